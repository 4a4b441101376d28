/* SPDX-License-Identifier: Apache-2.0 */
/* data/image.h - encoded pictures to RGB8, told by content and never by name.
 *
 * PNG: every colour type and depth, interlaced or not; 16 bits keep the high byte; gAMA and colour profiles are
 * ignored, as the reference reader does. JPEG: gray, YCbCr, RGB, CMYK and YCCK (inverted if an Adobe marker says so),
 * baseline or progressive. EXIF orientation is applied. Transparent pixels: alpha 0 drops the alpha channel (what
 * lies under it shows), alpha 1 lays the picture on white; the same rule for RGBA, gray with alpha, palettes and
 * colour keys. A damaged or cut file is refused. */
#ifndef ST_IMAGE_H
#define ST_IMAGE_H
#include "base/base.h"

enum { ST_ALPHA_DROP = 0, ST_ALPHA_WHITE };
typedef struct st_image_rules {
    int32_t alpha;
    int64_t max_pixels; /* told from the header, before memory is taken */
} st_image_rules;
typedef struct st_image {
    int32_t width, height;
    uint8_t *rgb; /* [height, width, 3] in the arena */
} st_image;

int st_image_decode(const void *data, size_t n, const st_image_rules *, st_arena *, st_image *,
                    st_error *); /* ST_E_DATA: unusable */
/* 8-bit RGB, whole or not at all. */
int st_image_write_png(const char *path, const st_image *, st_error *);
#endif
