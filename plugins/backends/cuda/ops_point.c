/* SPDX-License-Identifier: Apache-2.0 */
/* ops_point.c - elementwise entries. */
#include "ops.h"
#include <stdbool.h>

ST_FN bool given(const st_tensor *t) { return t && t->data; }

static void walk_one(cuda_walk *w, const st_tensor *t)
{
    for (int i = 0; i < ST_DIMS; i++) { /* dimensions that t lacks stand in front */
        int from = i - (ST_DIMS - t->nd);
        w->dim[i] = from >= 0 ? t->dim[from] : 1;
        w->stride[0][i] = from >= 0 ? t->stride[from] : 0;
    }
    w->data[0] = t->data;
    w->type[0] = t->dtype;
}

int cuda_fill(const st_queue *q, const st_tensor *dst, double value)
{
    cuda_walk walk = {.data = {NULL}};
    double bytes = 1;
    if (!given(dst)) return ST_OK;
    bool known = dst->dtype == ST_F64 || dst->dtype == ST_F32 || dst->dtype == ST_BF16 || dst->dtype == ST_I32 ||
                 dst->dtype == ST_I64 || dst->dtype == ST_U8;
    if (!known || dst->nd < 1 || dst->nd > ST_DIMS)
        return q->fail(q, ST_E_UNSUPPORTED, "fill: dst of type %d with %d dimensions", (int)dst->dtype, (int)dst->nd);
    for (int i = 0; i < dst->nd; i++) bytes *= (double)dst->dim[i];
    q->count(q, 0, bytes * (double)st_dtype_size(dst->dtype));
    if (q->planning) return ST_OK;
    walk_one(&walk, dst);
    return cuda_table_of(q)->fill(q, &walk, value);
}
