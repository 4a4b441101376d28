/* SPDX-License-Identifier: Apache-2.0 */
/* data/image_priv.h - what the picture readers share. */
#ifndef ST_IMAGE_PRIV_H
#define ST_IMAGE_PRIV_H
#include "data/image.h"

typedef struct st_image_job { /* one decode */
    const uint8_t *data;
    size_t n;
    const st_image_rules *rules;
    st_arena *arena;
    st_error *error;
    st_image image;      /* as stored, before orientation        */
    int32_t orientation; /* EXIF 1..8                            */
} st_image_job;

int st_png_decode(st_image_job *);
int st_jpeg_decode(st_image_job *);
/* Limits from the header, then the memory for [height, width, channels]; NULL and an error when refused. */
uint8_t *st_image_memory(st_image_job *, uint32_t width, uint32_t height, int32_t channels, const char *format);
int32_t st_exif_orientation(const uint8_t *tiff, size_t n); /* 1 when there is none or it is damaged */
#endif
