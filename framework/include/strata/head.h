/* SPDX-License-Identifier: Apache-2.0 */
/* strata/head.h - losses on the final hidden states h [rows, hidden]: after the final norm, rows as a ST_SHARD layer sees them.
 *
 * loss() does forward AND backward: what it keeps dies when it returns, and logits are computed once instead of twice. Every
 * loss carries its own 1 / count; nothing is divided later. Heads run in spec order. */
#ifndef STRATA_HEAD_H
#define STRATA_HEAD_H
#include <strata/layer.h>

typedef struct st_head_ops {
    uint32_t size, n_maps;
    const st_map *maps;
    int32_t first_depth, depths;    /* label rows it consumes; depths -1: all mtp depths of the pattern                       */
    int (*configure)(void *self, st_env *);
    int (*loss)(const void *self, st_step *, const st_tensor *h, const st_tensor *dh); /* ADD to dh; absent in EVAL           */
    int (*cost)(const void *self, const st_env *, const st_row_stats *, st_cost *out); /* (optional)                          */
} st_head_ops;
#endif
