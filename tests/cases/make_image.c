/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/make_image.c - pictures by the libraries that also read them: four fields of known colour, every way of
 * storing them. Larger ones, and those of another shape, are a gradient with the same corners as their use needs. */
#include "config.h"

#include <png.h>
#include <stdio.h>

#include <jpeglib.h>

#include "cases.h"

enum { FIELD_WIDTH = 64, FIELD_HEIGHT = 48 };
static const uint8_t field_color[4][3] = {{220, 40, 40}, {40, 180, 60}, {40, 70, 200}, {240, 240, 240}};

/* A pixel as it must be seen: fields, or a gradient. */
static void seen(int32_t width, int32_t height, int32_t x, int32_t y, uint8_t rgb[3])
{
    if (width <= FIELD_WIDTH && height <= FIELD_HEIGHT) {
        memcpy(rgb, field_color[2 * (2 * y >= height) + (2 * x >= width)], 3);
        return;
    }
    rgb[0] = (uint8_t)(x * 255 / width);
    rgb[1] = (uint8_t)(y * 255 / height);
    rgb[2] = (uint8_t)(x * y % 253);
}

/* A pixel as it is stored, so that the orientation brings it where it is seen. */
static void stored(int32_t width, int32_t height, int32_t orientation, int32_t x, int32_t y, uint8_t rgb[3])
{
    if (orientation == 3) seen(width, height, width - 1 - x, height - 1 - y, rgb);
    else if (orientation == 6) seen(width, height, width - 1 - y, x, rgb);
    else seen(width, height, x, y, rgb);
}

static uint8_t gray_of(const uint8_t rgb[3]) { return (uint8_t)((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2]) / 1000); }

static size_t put_exif(uint8_t *to, int orientation) /* little-endian; one entry */
{
    static const uint8_t head[] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3,
                                   0,   1,   0,  0, 0, 0, 0, 0, 0, 0, 0,    0, 0};

    memcpy(to, head, sizeof head);
    if (orientation < 0) memset(to + 4, 0xf0, 4);
    else to[18] = (uint8_t)orientation;
    return sizeof head;
}

/* ---- PNG ---- */

static void collect(png_structp png, png_bytep data, png_size_t n) { st_buf_add(png_get_io_ptr(png), data, n); }

static void ignore_flush(png_structp png) {}

static void png_pixel(const png_wish *w, int32_t x, int32_t y, uint8_t *row)
{
    uint8_t rgb[3];
    bool mixed;

    stored(w->width, w->height, w->exif, x, y, rgb);
    mixed = memcmp(rgb, field_color[1], 3) == 0 || memcmp(rgb, field_color[2], 3) == 0;
    if (w->clear && mixed && w->type != PNG_COLOR_TYPE_PALETTE) memset(rgb, 0, 3);
    switch (w->type) {
    case PNG_COLOR_TYPE_GRAY:
        if (w->depth == 8) row[x] = gray_of(rgb);
        else if ((x / 8 + y / 8) % 2) row[x / 8] |= (uint8_t)(0x80 >> x % 8);
        break;
    case PNG_COLOR_TYPE_PALETTE:
        for (int i = 0; i < 4; i++)
            if (memcmp(rgb, field_color[i], 3) == 0) {
                if (w->depth == 8) row[x] = (uint8_t)i;
                else row[x / 4] |= (uint8_t)(i << (6 - 2 * (x % 4)));
            }
        break;
    case PNG_COLOR_TYPE_GRAY_ALPHA:
        row[2 * x] = gray_of(rgb);
        row[2 * x + 1] = w->clear && mixed ? 0 : 255;
        break;
    case PNG_COLOR_TYPE_RGB_ALPHA:
        memcpy(row + 4 * x, rgb, 3);
        row[4 * x + 3] = w->clear && mixed ? 0 : 255;
        break;
    default: memcpy(row + 3 * x, rgb, 3); break;
    }
}

static void png_chunks(const png_wish *w, png_structp png, png_infop info)
{
    static const png_byte alpha[4] = {255, 255, 255, 0};
    png_color palette[4];
    uint8_t exif[64];

    for (int i = 0; i < 4; i++) palette[i] = (png_color){field_color[i][0], field_color[i][1], field_color[i][2]};
    if (w->type == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette, 4);
    if (w->type == PNG_COLOR_TYPE_PALETTE && w->clear) png_set_tRNS(png, info, alpha, 4, NULL);
    if (w->gamma) png_set_gAMA_fixed(png, info, 100000);
    if (w->exif) png_set_eXIf_1(png, info, (png_uint_32)put_exif(exif, w->exif), exif);
    if (w->filters) png_set_filter(png, 0, PNG_ALL_FILTERS);
    if (w->small_idat) png_set_compression_buffer_size(png, 16);
}

st_buf make_png(const png_wish *w)
{
    int32_t turned = w->exif == 6, width = turned ? w->height : w->width, height = turned ? w->width : w->height;
    st_buf out = {0};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    size_t row_bytes = (size_t)width * 4;
    uint8_t *pixels = calloc((size_t)height, row_bytes), **rows = malloc((size_t)height * sizeof *rows);

    for (int32_t y = 0; y < height; y++) {
        rows[y] = pixels + (size_t)y * row_bytes;
        for (int32_t x = 0; x < width; x++) png_pixel(w, x, y, rows[y]);
    }
    png_set_write_fn(png, &out, collect, ignore_flush);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, w->depth, w->type,
                 w->adam7 ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
    png_chunks(w, png, info);
    png_write_info(png, info);
    png_write_image(png, rows);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    free(rows);
    free(pixels);
    return out;
}

static uint32_t checksum(const uint8_t *p, size_t n)
{
    uint32_t c = 0xffffffffu;

    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
    }
    return ~c;
}

static void put_big(uint8_t *to, uint32_t v)
{
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(v >> (24 - 8 * i));
}

void png_set_size(st_buf *file, uint32_t width, uint32_t height)
{
    uint8_t *header = (uint8_t *)file->data + 12; /* behind the signature and the chunk's length: IHDR, 13 bytes, sum */

    put_big(header + 4, width);
    put_big(header + 8, height);
    put_big(header + 17, checksum(header, 17));
}

/* ---- JPEG ---- */

static void jpeg_pixel(const jpeg_wish *w, int32_t x, int32_t y, uint8_t *row)
{
    uint8_t rgb[3];

    stored(w->width, w->height, w->exif, x, y, rgb);
    if (w->channels == 1) row[x] = gray_of(rgb);
    else if (w->channels == 3) memcpy(row + 3 * x, rgb, 3);
    else { /* inks, inverted as Adobe stores them: no black */ memcpy(row + 4 * x, rgb, 3);
        row[4 * x + 3] = 255;
    }
}

static void jpeg_settings(const jpeg_wish *w, struct jpeg_compress_struct *j)
{
    static const J_COLOR_SPACE space[] = {JCS_YCbCr, JCS_RGB, JCS_CMYK, JCS_YCCK};

    jpeg_set_defaults(j);
    jpeg_set_quality(j, 97, TRUE);
    if (w->channels > 1) jpeg_set_colorspace(j, space[w->colour]);
    j->write_Adobe_marker = w->colour != 0;
    if (!w->subsampled)
        for (int i = 0; i < j->num_components; i++) j->comp_info[i].h_samp_factor = j->comp_info[i].v_samp_factor = 1;
    if (w->progressive) jpeg_simple_progression(j);
    if (w->restart) j->restart_interval = 4;
}

static void jpeg_markers(const jpeg_wish *w, struct jpeg_compress_struct *j)
{
    if (w->exif) {
        uint8_t segment[64] = "Exif\0";
        size_t n = 6 + put_exif(segment + 6, w->exif);
        jpeg_write_marker(j, JPEG_APP0 + 1, segment, (unsigned)n);
    }
    if (w->comment) {
        uint8_t *text = malloc(65000);
        memset(text, 'c', 65000);
        jpeg_write_marker(j, JPEG_COM, text, 65000);
        free(text);
    }
}

/* A fill byte in front of the first marker behind the comment. */
static void add_fill_byte(st_buf *out)
{
    static const uint8_t comment[] = {0xff, 0xfe};
    uint8_t *at = memmem(out->data, out->n, comment, 2);
    size_t behind = (size_t)(at - (uint8_t *)out->data) + 2 + 65002;

    st_buf_add(out, "", 1);
    memmove(out->data + behind + 1, out->data + behind, out->n - behind - 1);
    out->data[behind] = (char)0xff;
}

st_buf make_jpeg(const jpeg_wish *w)
{
    int32_t turned = w->exif == 6, width = turned ? w->height : w->width, height = turned ? w->width : w->height;
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr errors;
    uint8_t *file = NULL, *row = calloc((size_t)width, 4);
    unsigned long n = 0;
    st_buf out = {0};

    j.err = jpeg_std_error(&errors);
    jpeg_create_compress(&j);
    jpeg_mem_dest(&j, &file, &n);
    j.image_width = (JDIMENSION)width;
    j.image_height = (JDIMENSION)height;
    j.input_components = w->channels;
    j.in_color_space = w->channels == 1 ? JCS_GRAYSCALE : w->channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_settings(w, &j);
    jpeg_start_compress(&j, TRUE);
    jpeg_markers(w, &j);
    for (int32_t y = 0; y < height; y++) {
        for (int32_t x = 0; x < width; x++) jpeg_pixel(w, x, y, row);
        jpeg_write_scanlines(&j, &row, 1);
    }
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    st_buf_add(&out, file, n);
    if (w->comment) add_fill_byte(&out);
    free(file);
    free(row);
    return out;
}
