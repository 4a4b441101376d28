/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/cost.h - what the entries have to do at least, for ST_LAUNCH_COST: operations as the formulas in
 * kernels.h and rule_cpu.h are written, an exp, a division or a root as one; bytes with every tensor read or written
 * once. What a kernel computes again, or keeps between its parts, is its own choice and not counted. */
#ifndef GDN_COST_H
#define GDN_COST_H
#include "kernels.h"

typedef struct gdn_work { double flops, bytes; } gdn_work;

ST_FN double gdn_size(int32_t dtype) { return (double)st_dtype_size(dtype); }

/* An element: taps products and sums, silu (4). Backward: the sum again (2 taps), silu' (8), its gradient into taps
 * inputs and taps weights (2 taps each). */
ST_FN gdn_work gdn_conv_cost(const gdn_conv *a, int backward)
{
    const double n = (double)a->row.tokens * a->channels, taps = a->taps;
    const gdn_work forward = {n * (2 * taps + 4), 2 * n * gdn_size(a->dtype)};
    const gdn_work back = {n * (6 * taps + 8), 3 * n * gdn_size(a->dtype)};
    return backward ? back : forward;
}
/* An element: sigmoid (3); softplus, exp and their product (7). Backward: both again, then their derivatives and two
 * sums (10). b and a are of the run's type, all others of acc. */
ST_FN gdn_work gdn_gate_cost(const gdn_gate *a, double acc, int backward)
{
    const double n = (double)a->tokens * a->heads, own = gdn_size(a->dtype);
    const gdn_work forward = {10 * n, n * (2 * own + 2 * acc)}, back = {20 * n, n * (4 * own + 2 * acc)};
    return backward ? back : forward;
}
/* The recurrence of one token and value head: decayed state times k, the outer product added to it, state times q, each
 * 2 key_dim value_dim. Backward: two such for each of them. The chunked form computes more. states: written by the
 * forward pass, read by the backward pass. */
ST_FN gdn_work gdn_rule_cost(const gdn_rule *a, double acc, int backward)
{
    const double tokens = (double)a->row.tokens, cell = (double)a->key_dim * a->value_dim, own = gdn_size(a->dtype);
    const double inputs = tokens * (own * (2.0 * a->key_heads * a->key_dim + (double)a->value_heads * a->value_dim) +
                                    2 * acc * a->value_heads);
    const double out = tokens * own * a->value_heads * a->value_dim;
    const double states = a->states ? own * (double)a->row.n_tiles * a->value_heads * cell : 0;
    const gdn_work forward = {6 * tokens * a->value_heads * cell, inputs + (a->out ? out : 0) + states};
    const gdn_work back = {12 * tokens * a->value_heads * cell, 2 * inputs + out + states};
    return backward ? back : forward;
}
/* An element: its square summed (2), scaled by rstd and weight (2), silu (4) and their product. Backward: all of it
 * again, then the gradients of the product, the norm, silu and the weight (16). */
ST_FN gdn_work gdn_norm_cost(const gdn_norm *a, int backward)
{
    const double n = (double)a->tokens * a->heads * a->dim, own = gdn_size(a->dtype);
    const gdn_work forward = {9 * n, 3 * n * own}, back = {25 * n, 5 * n * own};
    return backward ? back : forward;
}
#endif
