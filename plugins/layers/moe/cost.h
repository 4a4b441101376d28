/* SPDX-License-Identifier: Apache-2.0 */
/* moe/cost.h - what the entries have to do at least, for ST_LAUNCH_COST: operations as kernels.h words them, an exp, a
 * division or a logarithm as one, comparing and ordering not counted; bytes with every tensor read or written once.
 * Sorted rows count as picks: how much padding lies between them only the device knows. */
#ifndef MOE_COST_H
#define MOE_COST_H
#include "kernels.h"

typedef struct moe_work { double flops, bytes; } moe_work;

ST_FN double moe_size(int32_t dtype) { return (double)st_dtype_size(dtype); }

/* Softmax (4 an expert), its entropy (3), the balance's sums (1); shares of the picks (2). */
ST_FN moe_work moe_route_cost(const moe_route *a)
{
    const double n = (double)a->tokens, acc = moe_size(a->dtype), picks = n * a->top_k;
    const moe_work w = {8 * n * a->experts + 2 * picks, n * a->experts * acc + n + picks * (4 + acc)};
    return w;
}
/* choice and share to place, row and weight */
ST_FN moe_work moe_sort_cost(const moe_sort *a)
{
    const double picks = (double)a->tokens * a->top_k, acc = moe_size(a->dtype);
    const moe_work w = {0, picks * (4 + acc) + picks * 4 + (double)a->rows * (4 + acc) + 4.0 * (a->experts + 1)};
    return w;
}
/* silu (4), times up and weight. Backward: those again, the gradients of gate, up and the sum for the weight (14). */
ST_FN moe_work moe_glu_cost(const moe_glu *a, int64_t picks, double acc, int backward)
{
    const double rows = (double)(picks < a->rows ? picks : a->rows), n = rows * (double)a->width;
    const double own = moe_size(a->dtype);
    const moe_work forward = {6 * n, 3 * n * own + rows * acc}, back = {20 * n, 5 * n * own + 2 * rows * acc};
    return backward ? back : forward;
}
/* Softmax again (4 an expert), its product with the gradients of shares (3), the balance loss (3). */
ST_FN moe_work moe_router_bwd_cost(const moe_router_bwd *a)
{
    const double n = (double)a->tokens, acc = moe_size(a->dtype), picks = n * a->top_k;
    const moe_work w = {10 * n * a->experts, 2 * n * a->experts * acc + picks * (8 + 2 * acc)};
    return w;
}
/* One product and sum; a sigmoid a token (3). Backward: dout, and a sum for dgate. */
ST_FN moe_work moe_gate_cost(const moe_gate *a, double acc, int backward)
{
    const double rows = (double)a->tokens, n = rows * (double)a->width, own = moe_size(a->dtype);
    const moe_work forward = {2 * n + 3 * rows, 3 * n * own + rows * acc};
    const moe_work back = {3 * n + 6 * rows, 3 * n * own + 2 * rows * acc};
    return backward ? back : forward;
}
/* maxima, means and the sum of products over the cells */
ST_FN moe_work moe_report_cost(const moe_report *a)
{
    const double cells = (double)moe_cells(a->experts);
    const moe_work w = {4 * cells, cells * moe_size(a->dtype)};
    return w;
}
#endif
