/* SPDX-License-Identifier: Apache-2.0 */
/* train/bench.h - the time of a training step on real data, beside the floor that this machine's matrix product
 * sets. */
#ifndef ST_BENCH_H
#define ST_BENCH_H
#include "train/train.h"

typedef struct st_bench_options {
    st_spec *spec;
    st_registry *registry;
    int64_t warmup, steps;
    int32_t json;
    const char *kernel; /* name of the one launch that is told, place by place; NULL: all, by name */
    double peak; /* FLOP/s that the device is sold with, for shares of it; 0: not asked */
    FILE *out;
} st_bench_options;
/* Nothing is written to disk. Medians over `steps` steps after `warmup`; a second pass with a clock around every launch
 * gives the breakdown. Floor: matrix-product FLOPs of the step (attention and the loss included) over the rate of a
 * large product; of a launch what its bytes need at the rate of a copy, or its FLOPs at that of the product. */
int st_bench(st_base *, const st_bench_options *, st_diags *);
#endif
