/* SPDX-License-Identifier: Apache-2.0 */
/* strata/encoder.h - media to rows of the hidden size.
 *
 * Data workers:  measure (file header only, on every rank, so all token counts are known) -> layout -> [packing; items divided
 *                over ST_G_MEDIA by cost] -> prepare (pixels, only on the owner) -> collate.
 * Device:        forward once per row before the trunk, backward once after it, ALSO on ranks that own no item: all shapes are
 *                capacities, so collectives match and one graph fits every row. The host gathers features over ST_G_MEDIA in
 *                equal blocks, points st_row.media at them and reduce-scatters their gradients.
 * Blocks of an encoder are a nested stack (st_env_api.stack): norms, residual, recompute, sharding, freezing come from there. */
#ifndef STRATA_ENCODER_H
#define STRATA_ENCODER_H
#include <strata/position.h>

typedef struct st_media {           /* decoding to RGB8 (EXIF, CMYK, alpha by one documented rule) is the host's              */
    uint32_t size;
    int32_t kind, width, height, frames;
    double fps;                     /* of the sampled frames; 0 for images                                                    */
    const uint8_t *rgb;             /* [frames, height, width, 3]; NULL in measure and layout                                 */
    const double *patches;          /* ready values in the encoder's own order and size instead of pixels (reference inputs),  */
    int32_t patch_grid[3], pad;     /* with their grid in patches (t, h, w); NULL: from rgb. width, height are 0 then         */
} st_media;
typedef struct st_media_plan {      /* written by measure; plain data, sent between ranks                                     */
    uint32_t size;
    int32_t rows, units, spans;     /* features = placeholders; rows before merging; attention spans: each within st_media_caps */
    int32_t grid[3], own[4];        /* the encoder's own                                                                      */
    int64_t payload;                /* bytes that prepare writes; multiple of 64                                              */
    double cost;                    /* FLOPs, for dividing items over ranks                                                   */
} st_media_plan;
typedef struct st_layout {          /* sink; text is tokenised with special tokens recognised. Never grows                    */
    void *ctx;
    int (*text)(void *ctx, const char *utf8, size_t n);
    int (*rows)(void *ctx, const char *placeholder, const int32_t grid[3]); /* grid in tokens; becomes one st_media_run       */
} st_layout;
typedef struct st_media_batch {     /* items of this rank; fixed addresses                                                    */
    uint32_t size;
    st_tensor payload;              /* u8 [caps.payload], zero behind the last item                                           */
    st_tensor meta;                 /* i32 [caps.meta] as collate wrote it                                                    */
} st_media_batch;

typedef struct st_encoder_ops {
    uint32_t size, n_slots, n_maps, pad;
    const st_slot *slots;
    const st_map *maps;
    int (*configure)(void *self, st_env *);
    int (*capacity)(const void *self, const st_env *, st_media_caps *inout);                   /* before configure            */
    int (*measure)(const void *self, const st_worker *, const st_media *, st_media_plan *);    /* ST_E_DATA: set aside        */
    int (*layout)(const void *self, const st_worker *, const st_media *, const st_media_plan *, st_layout *);
    int (*prepare)(const void *self, const st_worker *, const st_media *, const st_media_plan *, void *payload);
    int (*collate)(const void *self, const st_worker *, const st_media_caps *, const st_media_plan *, int32_t n, int32_t *meta);
    int (*forward)(const void *self, st_step *, const st_media_batch *, const st_tensor *features);  /* [caps.rows, hidden]   */
    int (*backward)(const void *self, st_step *, const st_media_batch *, const st_tensor *d_features);
    int (*cost)(const void *self, const st_env *, const st_media_plan *, double *flops);       /* (optional)                  */
    /* (optional) what prepare left in payload, for people to look at: width, height and rgb, which may point into payload     */
    int (*picture)(const void *self, const st_worker *, const st_media_plan *, const void *payload, st_media *out);
} st_encoder_ops;
#endif
