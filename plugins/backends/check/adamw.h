/* SPDX-License-Identifier: Apache-2.0 */
/* adamw.h - AdamW of one element in f32, the same bits from every backend: each sum of products is one fused operation, and
 * division and root are those of IEEE 754, so a compiler has nothing left to choose. */
#ifndef CHECK_ADAMW_H
#define CHECK_ADAMW_H
#include "check.h"
#include <math.h>
#include <strata/rounding.h>

enum { ADAMW_MASTER, ADAMW_M, ADAMW_V, ADAMW_KINDS }; /* of random bits */

typedef struct adamw_rates { float lr, decay, beta1, beta2, eps, inv_c1, inv_c2, rest1, rest2, clip; } adamw_rates;

ST_BOTH_FN adamw_rates adamw_rates_of(const float *hyper, const float *clip)
{
    adamw_rates r = {hyper[0], hyper[1], hyper[2], hyper[3], hyper[4], 1.0f / hyper[5], 1.0f / hyper[6], hyper[7], hyper[8],
                     clip ? clip[0] : 1.0f};
    return r;
}

/* The new moments are used as they are, before they are rounded for the next step. */
ST_BOTH_FN void adamw_element(const adamw_rates *r, float grad, float *master, float *m, float *v)
{
    float g = r->clip * grad, root;
    *m = fmaf(r->rest1, g, r->beta1 * *m);
    *v = fmaf(r->rest2, g * g, r->beta2 * *v);
    root = sqrtf(*v * r->inv_c2) + r->eps;
    *master = fmaf(-r->lr, fmaf(r->decay, *master, *m * r->inv_c1 / root), *master);
}

/* n: elements of the range; apart: a weight beside the master is written. Counts the work. */
int check_adamw_rounded(const st_queue *, const st_adamw_rounded *, int64_t *n, bool *apart);
#endif
