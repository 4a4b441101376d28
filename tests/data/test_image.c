/* SPDX-License-Identifier: Apache-2.0 */
/* tests/data/test_image.c - every kind of PNG and JPEG to RGB, which way up, what is refused. Kept files with known
 * colours, and pictures made here with the libraries. */
#include <png.h>
#include <stdio.h>

#include <jpeglib.h>

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "data/image.h"

static const st_image_rules on_white = {ST_ALPHA_WHITE, 100000000}, drop = {ST_ALPHA_DROP, 100000000};

/* ---- kept files ---- */

typedef struct kept {
    const char *name;
    int32_t w, h, corners;
    const char *refused;
} kept;
enum { NONE = 0, EXACT, NEAR, GRAY, CLEAR /* top right and bottom left are transparent */ };
static const kept files[] = {
    {"png_rgb8.png", 64, 48, EXACT, NULL},
    {"png_all_filters.png", 64, 48, EXACT, NULL},
    {"png_adam7.png", 33, 17, EXACT, NULL},
    {"png_idat_split.png", 64, 48, EXACT, NULL},
    {"png_exif6.png", 64, 48, EXACT, NULL},
    {"png_gray8.png", 64, 48, GRAY, NULL},
    {"png_gray1.png", 50, 40, GRAY, NULL},
    {"png_pal2.png", 64, 48, EXACT, NULL},
    {"png_pal8_trns.png", 64, 48, NONE, NULL},
    {"png_rgba.png", 64, 48, CLEAR, NULL},
    {"png_ga8.png", 64, 48, GRAY, NULL},
    {"png_gamma.png", 64, 48, EXACT, NULL},
    {"png_1x1.png", 1, 1, NONE, NULL},
    {"png_200x1.png", 200, 1, NONE, NULL},
    {"png_201x1.png", 201, 1, NONE, NULL},
    {"jpg_rgb.jpg", 64, 48, NEAR, NULL},
    {"jpg_420_odd.jpg", 33, 17, NONE, NULL},
    {"jpg_progressive.jpg", 64, 48, NEAR, NULL},
    {"jpg_restart.jpg", 64, 48, NEAR, NULL},
    {"jpg_long_comment.jpg", 64, 48, NEAR, NULL},
    {"jpg_gray.jpg", 64, 48, GRAY, NULL},
    {"jpg_rgb_adobe0.jpg", 64, 48, NEAR, NULL},
    {"jpg_named.png", 64, 48, NEAR, NULL},
    {"jpg_exif6_le.jpg", 64, 48, NEAR, NULL},
    {"jpg_exif3_le.jpg", 64, 48, NEAR, NULL},
    {"jpg_exif_bad_offset.jpg", 64, 48, NEAR, NULL},
    {"jpg_cmyk_adobe.jpg", 64, 48, NEAR, NULL},
    {"jpg_ycck_adobe.jpg", 64, 48, NEAR, NULL},
    {"zero_byte.png", 0, 0, 0, "empty"},
    {"text_named.png", 0, 0, 0, "not a picture"},
    {"jpg_truncated.jpg", 0, 0, 0, "damaged JPEG"},
    {"jpg_no_eoi.jpg", 0, 0, 0, "damaged JPEG"},
    {"png_truncated.png", 0, 0, 0, "cut short"},
    {"png_no_iend.png", 0, 0, 0, "cut short"},
    {"png_bomb_60000.png", 0, 0, 0, "60000 x 60000"},
    {"png_zero_width.png", 0, 0, 0, "PNG"},
    {"jpg_bad_dht.jpg", 0, 0, 0, "damaged JPEG"},
    {"jpg_arith.jpg", 0, 0, 0, "arithmetic"},
    {"other.gif", 0, 0, 0, "GIF"},
    {"other.webp", 0, 0, 0, "WebP"},
    {"other.bmp", 0, 0, 0, "BMP"},
};

static void check_pixel(const kept *f, const st_image *im, int32_t x, int32_t y, const uint8_t want[3], int within)
{
    const uint8_t *p = im->rgb + 3 * (y * im->width + x);
    for (int c = 0; c < 3; c++)
        if (abs(p[c] - want[c]) > within)
            fail_msg("%s: pixel %d,%d is %d,%d,%d, expected %d,%d,%d", f->name, x, y, p[0], p[1], p[2], want[0],
                     want[1], want[2]);
}

static void check_corners(const kept *f, const st_image *im)
{
    static const uint8_t color[4][3] = {{220, 40, 40}, {40, 180, 60}, {40, 70, 200}, {240, 240, 240}},
                         white[3] = {255, 255, 255};
    int32_t r = im->width - 1, b = im->height - 1;
    int within = f->corners == NEAR ? 12 : 0;
    if (f->corners == GRAY)
        for (int32_t i = 0; i < im->width * im->height; i++)
            assert_true(im->rgb[3 * i] == im->rgb[3 * i + 1] && im->rgb[3 * i] == im->rgb[3 * i + 2]);
    if (f->corners == NONE || f->corners == GRAY) return;
    check_pixel(f, im, 0, 0, color[0], within);
    check_pixel(f, im, r, 0, f->corners == CLEAR ? white : color[1], within);
    check_pixel(f, im, 0, b, f->corners == CLEAR ? white : color[2], within);
    check_pixel(f, im, r, b, color[3], within);
}

static void read_kept(st_arena *a, const char *name, char **data, size_t *n)
{
    st_error e = {0};
    if (st_file_read(st_arena_printf(a, "%s/tests/golden/pictures/%s", getenv("ST_SRCDIR"), name), a, data, n, &e))
        fail_msg("%s", e.message);
}

static void kept_files(void **state)
{
    st_arena *a = st_arena_create(0);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const kept *f = &files[i];
        char *data;
        size_t n;
        st_image im;
        st_error e = {0};
        read_kept(a, f->name, &data, &n);
        int rc = st_image_decode(data, n, &on_white, a, &im, &e);
        if (f->refused) {
            if (rc != ST_E_DATA || !strstr(e.message, f->refused))
                fail_msg("%s: code %d, '%s'", f->name, rc, e.message);
            continue;
        }
        if (rc != ST_OK) fail_msg("%s: %s", f->name, e.message);
        if (im.width != f->w || im.height != f->h) fail_msg("%s: %d x %d", f->name, im.width, im.height);
        check_corners(f, &im);
    }
    st_arena_destroy(a);
}

/* A few bytes of file that claim 1.6 GB of EXIF: refused by what they claim, before memory is taken. */
static void chunk_larger_than_the_file(void **state)
{
    static const char png[] = "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x30\0\0\0\x40\x08\x02\0\0\0\xd3\x42\x63\x11"
                              "\x5f\0\0\x1a" "eXIfMM\0*";
    st_arena *a = st_arena_create(0);
    st_image im;
    st_error e = {0};
    assert_int_equal(st_image_decode(png, sizeof png - 1, &on_white, a, &im, &e), ST_E_DATA);
    if (!strstr(e.message, "the chunk at byte 33, of 1593835546 bytes, is cut short")) fail_msg("%s", e.message);
    st_arena_destroy(a);
}

static void kept_details(void **state)
{
    static const uint8_t black[3] = {0, 0, 0}, white[3] = {255, 255, 255}, near[3] = {240, 240, 240};
    st_arena *a = st_arena_create(0);
    st_error e = {0};
    st_image im;
    char *data;
    size_t n;
    read_kept(a, "png_gray1.png", &data, &n);
    assert_int_equal(st_image_decode(data, n, &on_white, a, &im, &e), ST_OK);
    check_pixel(&files[6], &im, 0, 0, black, 0);
    check_pixel(&files[6], &im, 8, 0, white, 0);
    read_kept(a, "png_pal8_trns.png", &data, &n);
    assert_int_equal(st_image_decode(data, n, &on_white, a, &im, &e), ST_OK);
    check_pixel(&files[8], &im, 63, 47, white, 0);
    assert_int_equal(st_image_decode(data, n, &drop, a, &im, &e), ST_OK);
    check_pixel(&files[8], &im, 63, 47, near, 0);
    read_kept(a, "png_rgba.png", &data, &n);
    assert_int_equal(st_image_decode(data, n, &drop, a, &im, &e), ST_OK);
    check_pixel(&files[9], &im, 63, 0, black, 0);
    st_arena_destroy(a);
}

/* ---- made here ---- */

enum { W = 13, H = 7 };

static uint32_t sample(int x, int y, int c) /* 16 bits, different everywhere */
{
    return (uint32_t)(x * 4099 + y * 9001 + c * 21001 + 77) & 0xFFFF;
}

typedef struct made {
    int type, depth, interlaced, key;
} made; /* key: tRNS */

static void collect(png_structp p, png_bytep data, png_size_t n) { st_buf_add(png_get_io_ptr(p), data, n); }

static void fill_row(const made *m, int y, int channels, uint8_t *row)
{
    memset(row, 0, 8 * W);
    for (int x = 0; x < W; x++) {
        for (int c = 0; c < channels; c++) {
            uint32_t v = sample(x, y, c) >> (16 - m->depth);
            int at = x * channels + c;
            if (m->depth == 16) {
                row[2 * at] = (uint8_t)(v >> 8);
                row[2 * at + 1] = (uint8_t)v;
            } else if (m->depth == 8) row[at] = (uint8_t)v;
            else row[at * m->depth / 8] |= (uint8_t)(v << (8 - m->depth - at * m->depth % 8));
        }
    }
}

static st_buf write_png(const made *m, const uint8_t *exif, uint32_t n_exif)
{
    st_buf out = {0};
    png_structp p = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(p);
    png_color palette[256];
    uint8_t alphas[256], rows[H][8 * W];
    uint8_t *row[H];
    png_color_16 key = {1, (uint16_t)(sample(1, 1, 0) >> (16 - m->depth)),
                        (uint16_t)(sample(1, 1, 1) >> (16 - m->depth)), (uint16_t)(sample(1, 1, 2) >> (16 - m->depth)),
                        (uint16_t)(sample(1, 1, 0) >> (16 - m->depth))};
    png_set_write_fn(p, &out, collect, NULL);
    png_set_IHDR(p, info, W, H, m->depth, m->type, m->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
    for (int i = 0; i < 256; i++) {
        palette[i] = (png_color){(uint8_t)(i * 3), (uint8_t)(255 - i), (uint8_t)(i * 7)};
        alphas[i] = (uint8_t)(i * 5);
    }
    if (m->type == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(p, info, palette, 1 << m->depth);
    if (m->key) png_set_tRNS(p, info, alphas, m->type == PNG_COLOR_TYPE_PALETTE ? 1 << m->depth : 0, &key);
    if (exif) png_set_eXIf_1(p, info, n_exif, (png_bytep)exif);
    png_write_info(p, info);
    for (int y = 0; y < H; y++) {
        fill_row(m, y, png_get_channels(p, info), rows[y]);
        row[y] = rows[y];
    }
    png_write_image(p, row);
    png_write_end(p, info);
    png_destroy_write_struct(&p, &info);
    return out;
}

static void expected_pixel(const made *m, int x, int y, int white, uint8_t rgb[3])
{
    int max = (1 << m->depth) - 1, gray = !(m->type & PNG_COLOR_MASK_COLOR);
    uint32_t v[4], alpha = 255;
    for (int c = 0; c < 4; c++) v[c] = sample(x, y, c) >> (16 - m->depth);
    for (int c = 0; c < 3; c++)
        rgb[c] = (uint8_t)(m->depth == 16 ? v[gray ? 0 : c] >> 8 : v[gray ? 0 : c] * 255 / (uint32_t)max);
    if (m->type == PNG_COLOR_TYPE_PALETTE) {
        rgb[0] = (uint8_t)(v[0] * 3);
        rgb[1] = (uint8_t)(255 - v[0]);
        rgb[2] = (uint8_t)(v[0] * 7);
        alpha = m->key ? (uint8_t)(v[0] * 5) : 255;
    } else if (m->type & PNG_COLOR_MASK_ALPHA) {
        uint32_t a = v[gray ? 1 : 3];
        alpha = m->depth == 16 ? a >> 8 : a;
    } else if (m->key) {
        int same = 1;
        for (int c = 0; c < (gray ? 1 : 3); c++) same &= v[c] == sample(1, 1, c) >> (16 - m->depth);
        alpha = same ? 0 : 255;
    }
    for (int c = 0; white && c < 3; c++) rgb[c] = (uint8_t)((rgb[c] * alpha + 255 * (255 - alpha) + 127) / 255);
}

static void every_png(void **state)
{
    static const struct {
        int type, depth;
    } kind[] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}, {3, 1},
                {3, 2}, {3, 4}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};
    st_arena *a = st_arena_create(0);
    for (size_t k = 0; k < sizeof kind / sizeof kind[0]; k++) {
        for (int variant = 0; variant < 8; variant++) {
            made m = {kind[k].type, kind[k].depth, variant & 1, variant >> 1 & 1};
            if (m.key && m.type >= 4) continue; /* no colour key beside an alpha channel */
            st_buf file = write_png(&m, NULL, 0);
            st_image im;
            st_error e = {0};
            int white = variant >> 2;
            if (st_image_decode(file.data, file.n, white ? &on_white : &drop, a, &im, &e))
                fail_msg("type %d depth %d: %s", m.type, m.depth, e.message);
            assert_true(im.width == W && im.height == H);
            for (int i = 0; i < W * H; i++) {
                uint8_t want[3];
                expected_pixel(&m, i % W, i / W, white, want);
                if (memcmp(im.rgb + 3 * i, want, 3))
                    fail_msg("type %d depth %d variant %d pixel %d: %d,%d,%d, expected %d,%d,%d", m.type, m.depth,
                             variant, i, im.rgb[3 * i], im.rgb[3 * i + 1], im.rgb[3 * i + 2], want[0], want[1],
                             want[2]);
            }
            st_buf_free(&file);
        }
    }
    st_arena_destroy(a);
}

static uint32_t make_exif(uint8_t *to, int orientation, int little)
{
    static const uint8_t big[] = {'M', 'M', 0, 42, 0,    0, 0, 8, 0, 2, 1, 0, 0, 3, 0, 0, 0, 1, 0,
                                  9,   0,   0, 1,  0x12, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t small[] = {'I', 'I', 42, 0,    8, 0, 0, 0, 2, 0, 0, 1, 3, 0, 1, 0, 0, 0, 9,
                                    0,   0,   0,  0x12, 1, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    memcpy(to, little ? small : big, sizeof big);
    to[little ? 30 : 31] = (uint8_t)orientation;
    return sizeof big;
}

/* Stored pixel (0,0) and (W-1,0) must come out where the orientation says. */
static void every_orientation(void **state)
{
    static const int corner[9][2][2] = {{{0}},
                                        {{0, 0}, {1, 0}},
                                        {{1, 0}, {0, 0}},
                                        {{1, 1}, {0, 1}},
                                        {{0, 1}, {1, 1}},
                                        {{0, 0}, {0, 1}},
                                        {{1, 0}, {1, 1}},
                                        {{1, 1}, {1, 0}},
                                        {{0, 1}, {0, 0}}};
    made m = {PNG_COLOR_TYPE_RGB, 8, 0, 0};
    st_arena *a = st_arena_create(0);
    for (int o = 0; o <= 9; o++) {
        for (int little = 0; little < 2; little++) {
            uint8_t exif[64], want[3];
            st_buf file = write_png(&m, exif, make_exif(exif, o, little));
            st_image im;
            st_error e = {0};
            assert_int_equal(st_image_decode(file.data, file.n, &drop, a, &im, &e), ST_OK);
            int use = o >= 1 && o <= 8 ? o : 1;
            assert_int_equal(im.width, use >= 5 ? H : W);
            assert_int_equal(im.height, use >= 5 ? W : H);
            for (int k = 0; k < 2; k++) {
                int32_t x = corner[use][k][0] * (im.width - 1), y = corner[use][k][1] * (im.height - 1);
                expected_pixel(&m, k * (W - 1), 0, 0, want);
                if (memcmp(im.rgb + 3 * (y * im.width + x), want, 3)) fail_msg("orientation %d, corner %d", o, k);
            }
            st_buf_free(&file);
        }
    }
    st_arena_destroy(a);
}

static void write_jpeg(int progressive, int gray, uint8_t **file, unsigned long *n)
{
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr errors;
    uint8_t row[3 * 40];
    JSAMPROW rows[1] = {row};
    j.err = jpeg_std_error(&errors);
    jpeg_create_compress(&j);
    *file = NULL;
    *n = 0;
    jpeg_mem_dest(&j, file, n);
    j.image_width = 40;
    j.image_height = 24;
    j.input_components = gray ? 1 : 3;
    j.in_color_space = gray ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&j);
    if (progressive) jpeg_simple_progression(&j);
    jpeg_start_compress(&j, TRUE);
    for (int y = 0; y < 24; y++) {
        for (int i = 0; i < 40 * j.input_components; i++) row[i] = (uint8_t)(i * 5 + y * 9);
        jpeg_write_scanlines(&j, rows, 1);
    }
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
}

/* A file cut anywhere is refused; with any byte changed it is refused or read, never a crash. */
static void cut_anywhere(void **state)
{
    made m = {PNG_COLOR_TYPE_RGB_ALPHA, 8, 1, 0};
    st_arena *a = st_arena_create(0);
    for (int k = 0; k < 4; k++) {
        st_buf png = write_png(&m, NULL, 0);
        uint8_t *file = NULL, *copy;
        unsigned long n = 0;
        if (k < 3) write_jpeg(k & 1, k >> 1, &file, &n);
        else {
            n = png.n;
            file = malloc(n);
            memcpy(file, png.data, n);
        }
        st_image im;
        st_error e = {0};
        assert_int_equal(st_image_decode(file, n, &on_white, a, &im, &e), ST_OK);
        for (unsigned long cut = 0; cut < n;
             cut++) { /* its own block, so that a read past the end is seen by checkers */
            copy = malloc(cut + 1);
            memcpy(copy, file, cut);
            memset(&e, 0, sizeof e);
            if (st_image_decode(copy, cut, &on_white, a, &im, &e) != ST_E_DATA)
                fail_msg("kind %d cut at %lu of %lu was read", k, cut, n);
            free(copy);
            st_arena_reset(a);
        }
        for (unsigned long at = 0; at < n; at++) {
            uint8_t was = file[at];
            file[at] = (uint8_t)st_random_u64(9, (uint64_t)k, (int64_t)at);
            memset(&e, 0, sizeof e);
            st_image_decode(file, n, &on_white, a, &im, &e);
            file[at] = was;
            st_arena_reset(a);
        }
        free(file);
        st_buf_free(&png);
    }
    st_arena_destroy(a);
}

static void limits(void **state)
{
    made m = {PNG_COLOR_TYPE_RGB, 8, 0, 0};
    st_buf file = write_png(&m, NULL, 0);
    st_image_rules tight = {ST_ALPHA_WHITE, W * H}, tighter = {ST_ALPHA_WHITE, W * H - 1};
    st_arena *a = st_arena_create(0);
    st_image im;
    st_error e = {0};
    assert_int_equal(st_image_decode(file.data, file.n, &tight, a, &im, &e), ST_OK);
    assert_int_equal(st_image_decode(file.data, file.n, &tighter, a, &im, &e), ST_E_DATA);
    assert_non_null(strstr(e.message, "13 x 7"));
    st_buf_free(&file);
    st_arena_destroy(a);
}

static void written_is_read(void **state)
{
    uint8_t rgb[3 * 5 * 3];
    const st_image im = {5, 3, rgb};
    st_arena *a = st_arena_create(0);
    char path[] = "/tmp/strata-image-XXXXXX", *data;
    int fd = mkstemp(path);
    st_image back;
    st_error e = {0};
    size_t n;
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof rgb; i++) rgb[i] = (uint8_t)(i * 37);
    assert_int_equal(st_image_write_png(path, &im, &e), ST_OK);
    assert_int_equal(st_file_read(path, a, &data, &n, &e), ST_OK);
    assert_int_equal(st_image_decode(data, n, &drop, a, &back, &e), ST_OK);
    assert_true(back.width == 5 && back.height == 3);
    assert_memory_equal(back.rgb, rgb, sizeof rgb);
    unlink(path);
    assert_int_equal(st_image_write_png("/nowhere/a.png", &im, &e), ST_E_IO);
    assert_non_null(strstr(e.message, "/nowhere/a.png"));
    st_arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_files),
        cmocka_unit_test(kept_details),
        cmocka_unit_test(every_png),
        cmocka_unit_test(chunk_larger_than_the_file),
        cmocka_unit_test(every_orientation),
        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(limits),
        cmocka_unit_test(written_is_read),
    };
    return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
