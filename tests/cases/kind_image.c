/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/kind_image.c - pictures: what they decode to, how large they become for the encoder, and what is set
 * aside by name while the run goes on. */
#include "config.h"

#include <png.h>

#include "cases.h"
#include "data/image.h"
#include <strata/encoder.h>

enum { PNG = 1, JPEG, BYTES };
enum { ANY = 0, EXACT, NEAR, GRAY, BILEVEL, CLEAR, CLEAR_GRAY, CLEAR_PALETTE }; /* what is looked at */
enum { CUT = 1, NO_END, SIZE, BAD_TABLE, ARITHMETIC };                          /* how it is spoilt  */
typedef struct image_row {
    const char *file;
    int32_t make;
    png_wish png;
    jpeg_wish jpeg;
    const char *bytes;
    int32_t n_bytes, spoil;
    int64_t spoil_by;            /* CUT: bytes that stay of 100; SIZE: both sides                      */
    int32_t width, height, look; /* as decoded                                                         */
    int32_t small[2], large[2];  /* height and width for 65536..16777216 and for 200704..1003520 pixels */
    const char *refused;         /* decoding says so                                                   */
    const char *not_measured;    /* the encoder says so                                                */
} image_row;

#define FIELDS .width = 64, .height = 48, .small = {224, 320}, .large = {416, 544}
#define ODD .width = 33, .height = 17, .small = {192, 384}, .large = {352, 640}
#define AS_PNG(type, depth, ...) .make = PNG, .png = {64, 48, PNG_COLOR_TYPE_##type, depth, __VA_ARGS__}
#define SIZED_PNG(width, height) .make = PNG, .png = {width, height, PNG_COLOR_TYPE_RGB, 8, 0}
#define AS_JPEG(...) .make = JPEG, .jpeg = {64, 48, 3, __VA_ARGS__}
#define AS_BYTES(text) .make = BYTES, .bytes = text, .n_bytes = sizeof(text) - 1

/* One field of 64 x 48 pixels with four colours unless a row says otherwise. */
static const image_row rows[] = {
    {"images/png_rgb8.png", AS_PNG(RGB, 8, 0), FIELDS, .look = EXACT},
    {"images/png_all_filters.png", AS_PNG(RGB, 8, .filters = 1), FIELDS, .look = EXACT},
    {"images/png_adam7.png", .make = PNG, .png = {33, 17, PNG_COLOR_TYPE_RGB, 8, .adam7 = 1}, ODD, .look = EXACT},
    {"images/png_idat_split.png", AS_PNG(RGB, 8, .small_idat = 1), FIELDS, .look = EXACT},
    {"images/jpg_rgb.jpg", AS_JPEG(0), FIELDS, .look = NEAR},
    {"images/jpg_420_odd.jpg", .make = JPEG, .jpeg = {33, 17, 3, .subsampled = 1}, ODD},
    {"images/jpg_progressive.jpg", AS_JPEG(.progressive = 1), FIELDS, .look = NEAR},
    {"images/jpg_restart.jpg", AS_JPEG(.restart = 1), FIELDS, .look = NEAR},
    {"images/jpg_long_comment.jpg", AS_JPEG(.comment = 1), FIELDS, .look = NEAR},
    {"images/jpg_gray.jpg", .make = JPEG, .jpeg = {64, 48, 1}, FIELDS, .look = GRAY},
    {"images/jpg_rgb_adobe0.jpg", AS_JPEG(.colour = 1), FIELDS, .look = NEAR},
    {"images/jpg_named.png", AS_JPEG(0), FIELDS, .look = NEAR},
    {"images/jpg_exif6_le.jpg", AS_JPEG(.exif = 6), FIELDS, .look = NEAR},
    {"images/jpg_exif3_le.jpg", AS_JPEG(.exif = 3), FIELDS, .look = NEAR},
    {"images/png_exif6.png", AS_PNG(RGB, 8, .exif = 6), FIELDS, .look = EXACT},
    {"images/jpg_exif_bad_offset.jpg", AS_JPEG(.exif = -1), FIELDS, .look = NEAR},
    {"images/jpg_cmyk_adobe.jpg", .make = JPEG, .jpeg = {64, 48, 4, .colour = 2}, FIELDS, .look = NEAR},
    {"images/jpg_ycck_adobe.jpg", .make = JPEG, .jpeg = {64, 48, 4, .colour = 3}, FIELDS, .look = NEAR},
    {"images/png_gray8.png", AS_PNG(GRAY, 8, 0), FIELDS, .look = GRAY},
    {"images/png_gray1.png", .make = PNG, .png = {50, 40, PNG_COLOR_TYPE_GRAY, 1}, .width = 50, .height = 40,
     .small = {256, 288}, .large = {416, 512}, .look = BILEVEL},
    {"images/png_pal2.png", AS_PNG(PALETTE, 2, 0), FIELDS, .look = EXACT},
    {"images/png_pal8_trns.png", AS_PNG(PALETTE, 8, .clear = 1), FIELDS, .look = CLEAR_PALETTE},
    {"images/png_rgba.png", AS_PNG(RGB_ALPHA, 8, .clear = 1), FIELDS, .look = CLEAR},
    {"images/png_ga8.png", AS_PNG(GRAY_ALPHA, 8, .clear = 1), FIELDS, .look = CLEAR_GRAY},
    {"images/png_gamma.png", AS_PNG(RGB, 8, .gamma = 1), FIELDS, .look = EXACT},
    {"images/png_1x1.png", SIZED_PNG(1, 1), .width = 1, .height = 1, .small = {256, 256}, .large = {448, 448}},
    {"images/png_200x1.png", SIZED_PNG(200, 1), .width = 200, .height = 1, .small = {32, 3648}, .large = {32, 6336}},
    {"images/png_201x1.png", SIZED_PNG(201, 1), .width = 201, .height = 1, .not_measured = "201 x 1 pixels"},
    {"images/png_5x1138.png", SIZED_PNG(5, 1138), .width = 5, .height = 1138, .not_measured = "5 x 1138 pixels"},
    {"images/png_2400x1800.png", SIZED_PNG(2400, 1800), .width = 2400, .height = 1800, .small = {1792, 2400},
     .large = {864, 1152}},
    {"images/png_500x700.png", SIZED_PNG(500, 700), .width = 500, .height = 700, .small = {704, 512},
     .large = {704, 512}},
    {"images/zero_byte.jpg", AS_BYTES(""), .refused = "empty"},
    {"images/zero_byte.png", AS_BYTES(""), .refused = "empty"},
    {"images/text_named.png", AS_BYTES("this is not a picture\n"), .refused = "neither PNG nor JPEG"},
    {"images/jpg_truncated.jpg", AS_JPEG(0), .spoil = CUT, .spoil_by = 60, .refused = "damaged JPEG"},
    {"images/jpg_no_eoi.jpg", AS_JPEG(0), .spoil = NO_END, .spoil_by = 2, .refused = "damaged JPEG"},
    {"images/png_truncated.png", AS_PNG(RGB, 8, 0), .spoil = CUT, .spoil_by = 70, .refused = "cut short"},
    {"images/png_no_iend.png", AS_PNG(RGB, 8, 0), .spoil = NO_END, .spoil_by = 12, .refused = "cut short"},
    {"images/png_bomb_60000.png", SIZED_PNG(1, 1), .spoil = SIZE, .spoil_by = 60000, .refused = "60000 x 60000 pixels"},
    {"images/png_zero_width.png", SIZED_PNG(1, 1), .spoil = SIZE, .spoil_by = 0, .refused = "PNG"},
    {"images/jpg_bad_dht.jpg", AS_JPEG(0), .spoil = BAD_TABLE, .refused = "damaged JPEG"},
    {"images/jpg_arith.jpg", AS_JPEG(0), .spoil = ARITHMETIC, .refused = "arithmetic"},
    {"images/other.gif", AS_BYTES("GIF89a\1\0\1\0\x80\0\0\xff\xff\xff\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"),
     .refused = "GIF"},
    {"images/other.webp", AS_BYTES("RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0/\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0"),
     .refused = "WebP"},
    {"images/other.bmp",
     AS_BYTES("BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\1\0\0\0\1\0\0\0\1\0\x18\0\0\0\0\0\4\0\0\0"
              "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x28\x28\xdc\0"),
     .refused = "BMP"},
};

/* ---- making ---- */

static void spoil(const image_row *r, st_buf *file)
{
    static const uint8_t table[] = {0xff, 0xc4}, frame[] = {0xff, 0xc0};
    uint8_t *at;

    switch (r->spoil) {
    case CUT: file->n = file->n * (size_t)r->spoil_by / 100; break;
    case NO_END: file->n -= (size_t)r->spoil_by; break;
    case SIZE: png_set_size(file, (uint32_t)r->spoil_by, r->spoil_by ? (uint32_t)r->spoil_by : 1); break;
    case BAD_TABLE: /* sixteen counts that add to more codes than there are */
        at = memmem(file->data, file->n, table, sizeof table);
        memset(at + 5, 0x13, 16);
        break;
    case ARITHMETIC:
        at = memmem(file->data, file->n, frame, sizeof frame);
        at[1] = 0xc9;
        break;
    default: break;
    }
}

static void make(const cases *c, const void *row)
{
    const image_row *r = row;
    st_buf file = {0};

    if (r->make == PNG) file = make_png(&r->png);
    else if (r->make == JPEG) file = make_jpeg(&r->jpeg);
    else st_buf_add(&file, r->bytes, (size_t)r->n_bytes);
    spoil(r, &file);
    case_put(c, r->file, file.data, file.n);
    st_buf_free(&file);
}

/* ---- checking ---- */

static void check_pixel(const st_image *im, int32_t x, int32_t y, const uint8_t want[3], int within)
{
    const uint8_t *p = im->rgb + 3 * ((int64_t)y * im->width + x);

    for (int i = 0; i < 3; i++)
        if (abs(p[i] - want[i]) > within)
            fail_msg("pixel %d,%d is %d,%d,%d, it should be %d,%d,%d", x, y, p[0], p[1], p[2], want[0], want[1],
                     want[2]);
}

static void check_gray(const st_image *im, bool bilevel)
{
    for (int64_t i = 0; i < (int64_t)im->width * im->height; i++) {
        const uint8_t *p = im->rgb + 3 * i;
        if (p[0] != p[1] || p[0] != p[2] || (bilevel && p[0] != 0 && p[0] != 255))
            fail_msg("pixel %lld is %d,%d,%d", (long long)i, p[0], p[1], p[2]);
    }
}

static void check_colours(const image_row *r, const st_image *im)
{
    static const uint8_t color[4][3] = {{220, 40, 40}, {40, 180, 60}, {40, 70, 200}, {240, 240, 240}}, black[3] = {0},
                         white[3] = {255, 255, 255};
    bool clear = r->look == CLEAR || r->look == CLEAR_GRAY, gray = r->look == GRAY || r->look == CLEAR_GRAY;
    int32_t right = im->width - 1, bottom = im->height - 1;
    int within = r->look == NEAR ? 12 : 0;

    if (gray || r->look == BILEVEL) check_gray(im, r->look == BILEVEL);
    if (r->look == BILEVEL) {
        check_pixel(im, 0, 0, black, 0);
        check_pixel(im, 8, 0, white, 0);
    }
    if (clear) {
        check_pixel(im, right, 0, white, 0);
        check_pixel(im, 0, bottom, white, 0);
    }
    if (r->look == ANY || r->look == BILEVEL || gray) return;
    check_pixel(im, 0, 0, color[0], within);
    if (!clear) check_pixel(im, right, 0, color[1], within);
    if (!clear) check_pixel(im, 0, bottom, color[2], within);
    check_pixel(im, right, bottom, r->look == CLEAR_PALETTE ? white : color[3], within);
}

/* The plan of the real encoder within a budget of pixels. */
static int measure(const cases *c, const char *pixels, const st_image *im, st_media_plan *plan, st_error *e)
{
    const char *text =
        st_arena_printf(c->arena, "[encoder]\nplugin = qwen35_vision\npattern = VF\nhidden = 16\n%s", pixels);
    st_media media = {
        .size = sizeof media, .kind = ST_MEDIA_IMAGE, .width = im->width, .height = im->height, .frames = 1};
    st_diags d = {0};
    st_base *base;
    st_spec *spec;
    st_registry *registry;
    st_instance encoder;
    st_encoder_ops ops;

    if (st_base_create(&base, stderr, 1, 1) != ST_OK || st_spec_parse("case.ini", text, strlen(text), "/", &spec, &d) ||
        st_registry_open_for(base, NULL, 0, spec, &registry, &d) ||
        st_instance_create(registry, spec, ST_KIND_ENCODER, NULL, "encoder", &encoder, &d))
        fail_msg("%s", d.item[0].error.message);
    st_worker w = {.size = sizeof w, .host = &base->host, .arena = c->arena, .error = e};
    st_ops_copy(encoder.plugin, &ops, sizeof ops);
    *plan = (st_media_plan){.size = sizeof *plan};
    int rc = ops.measure(encoder.self, &w, &media, plan);
    st_registry_close(registry);
    st_spec_destroy(spec);
    st_base_destroy(base);
    return rc;
}

static void check_size(const cases *c, const st_image *im, const char *pixels, const int32_t want[2])
{
    st_media_plan plan;
    st_error e = {0};

    if (measure(c, pixels, im, &plan, &e) != ST_OK) fail_msg("%s", e.message);
    if (plan.grid[0] != 1 || plan.grid[1] != want[0] / 16 || plan.grid[2] != want[1] / 16)
        fail_msg("grid %dx%dx%d, it should be 1x%dx%d", plan.grid[0], plan.grid[1], plan.grid[2], want[0] / 16,
                 want[1] / 16);
    if (plan.rows != want[0] / 32 * (want[1] / 32)) fail_msg("%d picture tokens", plan.rows);
}

/* Beside a good record, in a run: this one is named and counted, the other trains, twice the same. */
static void check_set_aside(const cases *c, const char *file, const char *words)
{
    const char *folder = case_folder(c);
    st_buf line = {0};
    case_run run;

    for (int i = 0; i < 2; i++)
        st_buf_printf(&line,
                      "{\"file_name\": \"%s\", \"ground_truth\": \"{\\\"gt_parse\\\": {\\\"nm\\\": \\\"tea\\\"}}\"}\n",
                      case_path(c, i ? "images/png_rgb8.png" : file));
    case_write(c, folder, "metadata.jsonl", line.data, line.n);
    st_buf_free(&line);
    case_must_open(
        &run, case_spec(c, "tokens = 256\n",
                        st_arena_printf(c->arena, "[dataset.train]\nplugin = cord_v2\npath = %s\nroot = /\n", folder)));
    for (int pass = 0; pass < 2; pass++) {
        st_loader_state state;
        int64_t trained[2] = {-1, -1};
        int n = case_pass(&run, trained, 2, &state);
        if (n != 1 || trained[0] != 1 || state.bad != 1)
            fail_msg("%d trained, the first is %lld; %lld set aside", n, (long long)trained[0], (long long)state.bad);
    }
    const char *said = case_screen(&run);
    if (!case_has(said, strrchr(file, '/') + 1) || !case_has(said, words)) fail_msg("'%s' is not in: %s", words, said);
    case_close(&run);
}

static void check(const cases *c, const void *row)
{
    const image_row *r = row;
    const st_image_rules rules = {ST_ALPHA_WHITE, 100000000};
    st_media_plan plan;
    st_error e = {0};
    st_image im;
    size_t n;
    char *data = case_read(c, r->file, &n);
    int rc = st_image_decode(data, n, &rules, c->arena, &im, &e);

    if (r->refused) {
        if (rc != ST_E_DATA || !case_has(e.message, r->refused)) fail_msg("code %d: %s", rc, e.message);
        check_set_aside(c, r->file, r->refused);
        return;
    }
    if (rc != ST_OK) fail_msg("%s", e.message);
    if (im.width != r->width || im.height != r->height) fail_msg("%d x %d pixels", im.width, im.height);
    check_colours(r, &im);
    if (r->not_measured) {
        rc = measure(c, "", &im, &plan, &e);
        if (rc != ST_E_DATA || !case_has(e.message, r->not_measured)) fail_msg("code %d: %s", rc, e.message);
        check_set_aside(c, r->file, r->not_measured);
        return;
    }
    check_size(c, &im, "min_pixels = 65536\nmax_pixels = 16777216\n", r->small);
    check_size(c, &im, "min_pixels = 200704\nmax_pixels = 1003520\n", r->large);
}

const case_kind image_kind = CASE_KIND("image", rows, make, check);
