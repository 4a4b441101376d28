/* SPDX-License-Identifier: Apache-2.0 */
/* encoders/qwen35_vision/vision.h - the instance and what its files share: vision.c is the model, media.c the data
 * path, resize.c the one resampling of pixels. */
#ifndef QWEN35_VISION_H
#define QWEN35_VISION_H
#include <strata/encoder.h>
#include "kernels.h"

struct vision {
    /* parameters */
    const char *pattern, *image_token, *vision_start, *vision_end;
    int64_t hidden, patch, temporal_patch, merge, position_side, min_pixels, max_pixels;
    double base, max_ratio, position_init;
    st_floats image_mean, image_std;
    /* derived in configure */
    int64_t units, out_hidden, layers;
    int32_t items, spans, stack, head_dim;
    st_wid patch_w, patch_b, table, norm_w, norm_b, fc1_w, fc1_b, fc2_w, fc2_b;
};

static inline int64_t vision_patch_values(const struct vision *m)
{
    return CHANNELS * m->temporal_patch * m->patch * m->patch;
}
static inline struct vision_geometry vision_geometry(const struct vision *m)
{
    return (struct vision_geometry){(int32_t)m->patch, (int32_t)m->temporal_patch, (int32_t)m->merge,
                                    (int32_t)m->position_side};
}

/* media.c */
int qwen35_vision_capacity(const void *self, const st_env *, st_media_caps *);
int qwen35_vision_measure(const void *self, const st_worker *, const st_media *, st_media_plan *);
int qwen35_vision_layout(const void *self, const st_worker *, const st_media *, const st_media_plan *, st_layout *);
int qwen35_vision_prepare(const void *self, const st_worker *, const st_media *, const st_media_plan *, void *payload);
int qwen35_vision_collate(const void *self, const st_worker *, const st_media_caps *, const st_media_plan *, int32_t n,
                          int32_t *meta);
int qwen35_vision_picture(const void *self, const st_worker *, const st_media_plan *, const void *payload, st_media *);
double qwen35_vision_flops(const struct vision *, const int32_t grid[3]);

/* resize.c: in (in_height, in_width, CHANNELS) to out (out_height, out_width, CHANNELS), antialiased bicubic on
 * bytes */
int qwen35_vision_resize(const st_worker *, const uint8_t *in, int32_t in_height, int32_t in_width, uint8_t *out,
                         int32_t out_height, int32_t out_width);
#endif
