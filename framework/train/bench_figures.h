/* SPDX-License-Identifier: Apache-2.0 */
/* train/bench_figures.h - what a measurement found, and its printing. Times and counts are of one step. */
#ifndef ST_BENCH_FIGURES_H
#define ST_BENCH_FIGURES_H
#include "train/bench.h"

typedef struct st_bench_launch {
    const char *name, *path;       /* path, symbol: of the part, where they are told one by one               */
    char symbol;
    double flops, bytes;           /* of one call: which shape it is                                          */
    int64_t calls;
    double seconds, all_flops, all_bytes;
    double floor;                  /* seconds that its bytes or its FLOPs need at the rates measured          */
} st_bench_launch;
typedef struct st_bench_figures {
    const char *choice, *device, *timing; /* timing NULL: not for timing only                                 */
    double median, profiled;       /* seconds of a step; the same with events around every launch             */
    double tokens, samples, capacity;
    double product_flops, megatron, formula; /* forward and backward                                          */
    double rate, copy_rate;        /* FLOP/s of a large product, bytes/s of a copy                            */
    st_plan_bytes planned;
    int64_t used;                  /* bytes that the device gave this process; -1: it does not say            */
    st_bench_launch *launches; int n_launches; /* by name, longest first; or the places of one                */
} st_bench_figures;

int st_bench_print_text(const st_bench_figures *, const st_bench_options *);
int st_bench_print_json(const st_bench_figures *, const st_bench_options *, st_error *);
#endif
