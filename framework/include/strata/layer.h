/* SPDX-License-Identifier: Apache-2.0 */
/* strata/layer.h - one pattern symbol: x_next = x + layer(norm(x)). The host owns norm, residual, x and dy.
 *
 *   x   [rows, hidden]: the normed input. Never written, not kept: backward is given it again (the host keeps it, or norms the
 *       residual again, or gathers again - its choice per run).
 *   y   [rows, hidden]: write every row. The host adds it to the residual and norms for the next layer in ONE pass.
 *   dy  IS the gradient of the residual stream, the same buffer for all layers: read-only; no copy of it is ever made.
 *   dx  [rows, hidden]: write every row; absent if nothing below is trained. Folded into the stream with the norm's backward.
 *
 * ST_CAP_LINEAR_X: x goes only into st_linear and st_linear_bwd. Then x may be opaque (data NULL, dims set), and the host is free
 * to fuse norm, 8-bit conversion or the tensor gather into the projection; it may recognise y in the last st_linear likewise.
 *
 * A minimal layer declares weights and writes forward and backward. Recompute, sharding, accumulation, packing, graphs, tensor
 * cut by rows and columns, and (per-token layers) context cut come without further code. */
#ifndef STRATA_LAYER_H
#define STRATA_LAYER_H
#include <strata/ops.h>

enum { ST_ROLE_MIXER = 1, ST_ROLE_CHANNEL = 2 }; /* decides blocks (block i = layers 2i, 2i+1) and the pre-norm's file name */

/* Rows of x when the tensor group is larger than 1; the residual stream itself is always cut over it by rows.
 * GATHERED: all rows of this rank's piece. Weights are cut; y and dx are this rank's PART of a sum. The host gathers x and dy
 *           and reduce-scatters y and dx.
 * SHARD:    rows / tensor.size of them. Weights are whole (experts may be cut); y and dx are complete. No tensor traffic. */
enum { ST_GATHERED = 1, ST_SHARD = 2 };
/* Neither of these two ever grows. */
typedef struct st_row_stats { double tokens, sum_sq; } st_row_stats;         /* sum of L and of L^2 over a typical row's segments */
typedef struct st_cost { double megatron, exact, comm_bytes; } st_cost;      /* forward FLOPs of the row by both formulas      */

typedef struct st_layer_ops {
    uint32_t size, role, tokens, n_slots, n_maps, pad;
    const st_slot *slots;              /* what forward keeps                                                                  */
    const st_map *maps;                /* file names below the block's prefix                                                 */
    int (*configure)(void *self, st_env *);
    int (*forward)(const void *self, st_step *, const st_tensor *x, const st_tensor *y);
    int (*backward)(const void *self, st_step *, const st_tensor *x, const st_tensor *dy, const st_tensor *dx);
    int (*finish_step)(const void *self, st_step *); /* (optional) once per optimizer step, totals ready, before update: for
                                       * ST_W_STATE weights and metrics; device work only                                     */
    int (*cost)(const void *self, const st_env *, const st_row_stats *, st_cost *out); /* (optional) default: counted linears */
    int64_t (*map_row)(const void *self, const st_map *, int64_t row); /* ST_MAP_ROWS: row of the file for a row of ours      */
} st_layer_ops;
#endif
