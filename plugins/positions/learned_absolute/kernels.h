/* SPDX-License-Identifier: Apache-2.0 */
/* positions/learned_absolute/kernels.h - the kernel table: a row of a table added by position, and its gradient. */
#ifndef LEARNED_ABSOLUTE_KERNELS_H
#define LEARNED_ABSOLUTE_KERNELS_H
#include <strata/position.h>

#define LEARNED_ABSOLUTE_IFACE 2u

/* add: x[t] += table[pos[t]]; add_bwd: table[pos[t]] += x[t], in order of t. x (tokens, width) of the run's type, table
 * (positions, width) too, backward of acc; pos i32 (tokens) */
struct learned_rows {
    const int32_t *pos;
    int64_t tokens, width, positions, x_stride, table_stride;
    void *x, *table;
    int32_t dtype, table_dtype;
};
struct learned_kernels {
    int (*add)(const st_queue *, const struct learned_rows *);
    int (*add_bwd)(const st_queue *, const struct learned_rows *);
};
#endif
