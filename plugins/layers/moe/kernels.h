/* SPDX-License-Identifier: Apache-2.0 */
/* moe/kernels.h - the private kernel table of the mixture of experts.
 *
 * All entries take plain pointers and sizes; `dtype` is the run's type, "acc" the type of router, statistics and
 * gradients (on the CPU the same). Tensors are tight. Sorted rows are the picks of all tokens by expert: expert e owns
 * rows [offset[e], offset[e + 1]), a multiple of ST_GROUP_TILE, in order of tokens, then padding with zero rows. Rows
 * behind the last expert's are never touched. */
#ifndef MOE_KERNELS_H
#define MOE_KERNELS_H
#include <strata/ops.h>

#define MOE_IFACE 2u
#define MOE_VERSION "0.1.0"
#define MOE_FAULT_CAPACITY ST_FAULT_USER /* rows needed, rows there */
#define MOE_BLOCK 128 /* tokens whose sums are formed together */

/* Cells of an accumulator, acc: picks of every expert, its summed probabilities, rows counted, summed entropies. */
ST_FN int64_t moe_cells(int64_t experts) { return 2 * experts + 2; }
ST_FN int64_t moe_blocks(int64_t tokens) { return (tokens + MOE_BLOCK - 1) / MOE_BLOCK; }

/* Softmax of logits acc (tokens, experts), the top_k largest (the lower expert on a tie) and their shares, which add to
 * 1. choice i32 (tokens, top_k), -1 for tokens that are not real; share acc (tokens, top_k). sums: accumulators to add
 * to; NULL: none. forced 1: experts are taken in turn, whatever the logits. work: acc (blocks, cells). */
typedef struct moe_route {
    const void *logits;
    const uint8_t *real;
    int32_t *choice;
    void *share, *sums[2], *work;
    int64_t tokens;
    int32_t experts, top_k, forced, dtype;
} moe_route;

/* The order of sorted rows. offset i32 [experts + 1]; row i32 [rows]: token of a sorted row, -1 padding, -2 not used;
 * weight acc [rows]: its share; place i32 (tokens, top_k): sorted row of a pick, or -1. More than `rows` rows are a
 * fault MOE_FAULT_CAPACITY, and nothing is routed. work: i32 (blocks + 1, experts). */
typedef struct moe_sort {
    const int32_t *choice;
    const void *share;
    int32_t *offset, *row, *place, *work;
    void *weight;
    int64_t tokens, rows;
    int32_t experts, top_k, dtype, pad;
} moe_sort;

/* product (rows, width) = weight silu(gate) up of gate_up (rows, 2 width), for the rows that offset names; `rows` is
 * how many there is room for. Backward: gate_up becomes its gradient, dweight acc [rows]. */
typedef struct moe_glu {
    void *gate_up;
    const void *weight;
    const int32_t *offset;
    void *product;
    int64_t rows, width;
    int32_t experts, dtype;
    const void *dproduct;
    void *dweight;
} moe_glu;

/* dlogits acc (tokens, experts) from the gradients of the shares (dweight at place) and of the balance loss, which is
 * left out when total is NULL or counted nothing. Its factor is coef / tokens_in_step * experts. */
typedef struct moe_router_bwd {
    const void *logits, *share, *dweight;
    const int32_t *choice, *place;
    const void *total, *step_tokens; /* an accumulator's sums; acc [1] */
    void *dlogits;
    double coef;
    int64_t tokens;
    int32_t experts, top_k, dtype, pad;
} moe_router_bwd;

/* y (tokens, width) += sigmoid(gate) out; gate acc [tokens]. Backward: dout, dgate from dy. */
typedef struct moe_gate {
    const void *out, *gate;
    void *y;
    int64_t tokens, width;
    const void *dy;
    void *dout, *dgate;
    int32_t dtype, pad;
} moe_gate;

/* What metrics show of an accumulator's sums, into cells acc [2]; a NULL one is skipped. */
typedef struct moe_report {
    const void *total;
    void *load_max, *load_min, *violation, *entropy, *balance;
    double scale; /* of the balance loss: scale experts sum of f P */
    int32_t experts, dtype;
} moe_report;

typedef struct moe_kernels {
    int (*route)(const st_queue *, const moe_route *);
    int (*sort)(const st_queue *, const moe_sort *);
    int (*glu)(const st_queue *, const moe_glu *);
    int (*glu_bwd)(const st_queue *, const moe_glu *);
    int (*router_bwd)(const st_queue *, const moe_router_bwd *);
    int (*gate)(const st_queue *, const moe_gate *);
    int (*gate_bwd)(const st_queue *, const moe_gate *);
    int (*report)(const st_queue *, const moe_report *);
} moe_kernels;
#endif
