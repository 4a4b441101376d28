/* SPDX-License-Identifier: Apache-2.0 */
/* data/image_png.c - PNG through libpng. Its errors jump back to read_all(); nothing is allocated by us in between.
 * Writing goes through its simple interface, into memory first. */
#include "data/image_priv.h"

#include <png.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    st_image_job *job;
    size_t at; /* next byte of the file                                    */
    png_structp png;
    png_infop info, end;
    uint8_t *pixels; /* [height, width, channels]                                */
    png_bytep *rows;
    int32_t channels; /* 3 or 4                                                   */
    char why[160];
} reader;

static void on_error(png_structp png, png_const_charp text)
{
    reader *r = png_get_error_ptr(png);
    snprintf(r->why, sizeof r->why, "%s", text);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text) /* only ancillary chunks and benign oddities warn */ {}

static void on_read(png_structp png, png_bytep to, png_size_t n)
{
    reader *r = png_get_io_ptr(png);
    if (n > r->job->n - r->at) png_error(png, "the file is cut short");
    memcpy(to, r->job->data + r->at, n);
    r->at += n;
}

/* Each chunk must lie inside the file: the library takes as much memory as a chunk claims before it reads it. */
static int check_chunks(const st_image_job *job)
{
    size_t at = 8; /* behind the signature */
    while (job->n - at >= 12) {
        const uint8_t *p = job->data + at;
        uint32_t length = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
        if (length > job->n - at - 12)
            return st_fail(job->error, ST_E_DATA,
                           "damaged PNG picture: the chunk at byte %zu, of %u bytes, is cut short", at, length);
        if (!memcmp(p + 4, "IEND", 4)) return ST_OK;
        at += 12 + (size_t)length;
    }
    return ST_OK; /* without an end: the library's to tell */
}

/* Everything becomes 8-bit RGB or RGBA. */
static void set_transforms(reader *r)
{
    int type = png_get_color_type(r->png, r->info);
    bool alpha = (type & PNG_COLOR_MASK_ALPHA) || png_get_valid(r->png, r->info, PNG_INFO_tRNS);
    png_set_strip_16(r->png);
    png_set_expand(r->png);
    if (!(type & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(r->png);
    if (alpha && r->job->rules->alpha == ST_ALPHA_DROP) png_set_strip_alpha(r->png);
    r->channels = alpha && r->job->rules->alpha != ST_ALPHA_DROP ? 4 : 3;
    png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
}

static void take_orientation(reader *r, png_infop info)
{
    png_bytep exif = NULL;
    png_uint_32 n = 0;
    if (png_get_eXIf_1(r->png, info, &n, &exif)) r->job->orientation = st_exif_orientation(exif, n);
}

static int read_all(reader *r)
{
    if (setjmp(png_jmpbuf(r->png))) return st_fail(r->job->error, ST_E_DATA, "damaged PNG picture: %s", r->why);
    png_set_read_fn(r->png, r, on_read);
    png_set_user_limits(r->png, INT32_MAX, INT32_MAX);
    png_read_info(r->png, r->info);
    uint32_t width = png_get_image_width(r->png, r->info), height = png_get_image_height(r->png, r->info);
    int type = png_get_color_type(r->png, r->info);
    bool alpha = (type & PNG_COLOR_MASK_ALPHA) || png_get_valid(r->png, r->info, PNG_INFO_tRNS);
    r->pixels =
        st_image_memory(r->job, width, height, alpha ? 4 : 3, "PNG"); /* limits first: the next call takes memory */
    if (!r->pixels) return r->job->error->code;
    set_transforms(r);
    if (png_get_rowbytes(r->png, r->info) != (size_t)width * (size_t)r->channels)
        png_error(r->png, "an unknown colour layout");
    r->rows = st_arena_alloc(r->job->arena, sizeof *r->rows * height);
    if (!r->rows) return st_fail(r->job->error, ST_E_NOMEM, "no memory for a picture of %u x %u pixels", width, height);
    for (uint32_t y = 0; y < height; y++) r->rows[y] = r->pixels + (size_t)y * width * (size_t)r->channels;
    png_read_image(r->png, r->rows);
    png_read_end(r->png, r->end);
    take_orientation(r, r->info);
    take_orientation(r, r->end);
    return ST_OK;
}

static void lay_on_white(reader *r) /* RGBA -> RGB in the same memory */
{
    size_t n = (size_t)r->job->image.width * (size_t)r->job->image.height;
    for (size_t i = 0; i < n; i++) {
        uint32_t a = r->pixels[4 * i + 3];
        for (size_t c = 0; c < 3; c++)
            r->pixels[3 * i + c] = (uint8_t)((r->pixels[4 * i + c] * a + 255 * (255 - a) + 127) / 255);
    }
}

int st_png_decode(st_image_job *job)
{
    reader r = {.job = job};
    int rc;
    ST_TRY(check_chunks(job));
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
    if (r.png) r.info = png_create_info_struct(r.png);
    if (r.info) r.end = png_create_info_struct(r.png);
    rc = r.end ? read_all(&r) : st_fail(job->error, ST_E_NOMEM, "no memory for the PNG reader");
    png_destroy_read_struct(&r.png, &r.info, &r.end);
    ST_TRY(rc);
    if (r.channels == 4) lay_on_white(&r);
    job->image.rgb = r.pixels;
    return ST_OK;
}

int st_image_write_png(const char *path, const st_image *im, st_error *e)
{
    png_image png = {.version = PNG_IMAGE_VERSION, .width = (png_uint_32)im->width, .height = (png_uint_32)im->height};
    png_alloc_size_t n = 0;
    png.format = PNG_FORMAT_RGB;
    if (!png_image_write_to_memory(&png, NULL, &n, 0, im->rgb, 0, NULL))
        return st_fail(e, ST_E_DATA, "%s: %s", path, png.message);
    void *bytes = malloc(n);
    if (!bytes)
        return st_fail(e, ST_E_NOMEM, "%s: no memory for a picture of %d x %d pixels", path, im->width, im->height);
    int rc = png_image_write_to_memory(&png, bytes, &n, 0, im->rgb, 0, NULL)
                 ? st_file_write_atomic(path, bytes, n, e)
                 : st_fail(e, ST_E_DATA, "%s: %s", path, png.message);
    free(bytes);
    return rc;
}
