/* SPDX-License-Identifier: Apache-2.0 */
/* strata/position.h - position ids on the host, tables or additive embeddings on the device.
 *
 * assign() runs in data workers on one whole segment, before any context cut. tables() runs once per row and head size from the
 * ids of this rank's piece; layers get them by st_rotary_of(). Nothing else knows about positions.
 * Ids belong to slots: at mtp depth k a slot holds the token k places on and keeps its own id. ST_CAP_SHIFTABLE declares that
 * right (rotary: only distances count); an additive embedding must not claim it. */
#ifndef STRATA_POSITION_H
#define STRATA_POSITION_H
#include <strata/ops.h>

enum { ST_MEDIA_IMAGE = 1, ST_MEDIA_VIDEO = 2 };
/* A run of placeholders. grid: frames, rows, columns in TOKENS, so merge factors stay inside the encoder. Never grows. */
typedef struct st_media_run { int32_t first, n, kind, item, grid[3], pad; } st_media_run;
typedef struct st_sequence { /* one segment; arrays of the caller, valid during the call */
    uint32_t size;
    int32_t n, n_real, n_runs;      /* tokens with and without padding at the end; runs in order                              */
    const int32_t *ids;
    const st_media_run *runs;
} st_sequence;

typedef struct st_position_ops {
    uint32_t size;
    int32_t axes;                   /* ids per token: 1, 3 for mrope, 0 for none                                              */
    int (*configure)(void *self, st_env *);
    int (*assign)(const void *self, const st_worker *, const st_sequence *, int32_t *pos /* [axes][n] */);
    /* (optional) width that rotates for a head size, even; checks like sum(section) == width / 2, worded here; 0 = refused   */
    int (*rotary_dim)(const void *self, st_env *, int32_t head_dim);
    int (*tables)(const void *self, st_step *, int32_t head_dim, const st_tensor *pos /* i32 [axes, tokens] */, const st_rotary *);
    int (*embed)(const void *self, st_step *, const st_tensor *pos, const st_tensor *x);      /* (optional) x += table[pos]   */
    int (*embed_bwd)(const void *self, st_step *, const st_tensor *pos, const st_tensor *dx);
} st_position_ops;
#endif
