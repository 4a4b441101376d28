/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - which types are computed in, faults, and how elementwise work is walked. */
#include "cpu.h"
#include <string.h>

int cpu_want_real(const st_queue *q, const char *op, const char *name, const st_tensor *t, int *real)
{
    if (!check_given(t)) return q->fail(q, ST_E_SHAPE, "%s: %s is absent", op, name);
    if (t->nd < 1 || t->nd > ST_DIMS)
        return q->fail(q, ST_E_SHAPE, "%s: %s has %d dimensions, it must have 1 to %d", op, name, (int)t->nd, ST_DIMS);
    if (t->dtype != ST_F32 && t->dtype != ST_F64)
        return q->fail(q, ST_E_UNSUPPORTED, "%s: %s is %s, the cpu backend computes in f32 or f64", op, name,
                       check_type_name(t->dtype));
    *real = t->dtype == ST_F32 ? CPU_F32 : CPU_F64;
    return check_rows(q, op, name, t);
}

void cpu_fault(const st_queue *q, uint32_t code, int64_t a, int64_t b)
{
    uint32_t none = ST_FAULT_NONE;
    if (!q->fault ||
        !__atomic_compare_exchange_n(&q->fault->code, &none, code, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    q->fault->layer = q->layer;
    q->fault->a = a;
    q->fault->b = b;
}

cpu_view cpu_view_of(const st_tensor *t)
{
    cpu_view v = {NULL, 0, 0, 0, 0, 0};
    if (!check_given(t)) return v;
    v.data = t->data;
    v.rows = t->dim[0];
    v.heads = t->nd == 3 ? t->dim[1] : 1;
    v.cols = t->nd == 1 ? 1 : t->dim[t->nd - 1];
    v.s_row = t->stride[0];
    v.s_head = t->nd == 3 ? t->stride[1] : 0;
    return v;
}

/* Elements in a piece of elementwise work: small enough to share a layer's tensors out, large enough to pay for the
 * start. */
enum { PIECE = 16384 };

void cpu_walk_make(cpu_walk *w, int n, const st_tensor *const *t)
{
    int64_t dim[ST_DIMS] = {1, 1, 1, 1}, stride[5][ST_DIMS] = {{0}};
    int nd = t[0]->nd, kept = 0;
    memset(w, 0, sizeof *w);
    w->n = n;
    for (int i = 0; i < nd; i++) { /* append dimension i, or merge it into the one before */
        bool merge = kept > 0;
        if (t[0]->dim[i] == 1 && i < nd - 1) continue;
        for (int k = 0; k < n && merge; k++)
            merge = !check_given(t[k]) || dim[kept - 1] == 1 || stride[k][kept - 1] == t[k]->dim[i] * t[k]->stride[i];
        if (!merge) dim[kept++] = 1;
        dim[kept - 1] *= t[0]->dim[i];
        for (int k = 0; k < n; k++) stride[k][kept - 1] = check_given(t[k]) ? t[k]->stride[i] : 0;
    }
    w->inner = kept ? dim[kept - 1] : 1;
    w->rows = 1;
    for (int i = 0; i < ST_DIMS - 1; i++) {
        int from = kept - 1 - (ST_DIMS - 1 - i); /* dimensions before the last sit at the end of w->dim */
        w->dim[i] = from >= 0 ? dim[from] : 1;
        w->rows *= w->dim[i];
        for (int k = 0; k < n; k++) w->stride[k][i] = from >= 0 ? stride[k][from] : 0;
    }
    for (int k = 0; k < n; k++) {
        w->data[k] = check_given(t[k]) ? t[k]->data : NULL;
        w->size[k] = check_given(t[k]) ? st_dtype_size(t[k]->dtype) : 0;
        w->last[k] = kept ? stride[k][kept - 1] : 1;
        if (w->inner == 1) w->last[k] = 1;
    }
    w->chunks = w->inner > PIECE ? cpu_div_up(w->inner, PIECE) : 1;
    w->rows_per = w->chunks > 1 ? 1 : cpu_max(1, PIECE / cpu_max(1, w->inner));
    w->pieces = w->inner == 0 ? 0 : w->chunks > 1 ? w->rows * w->chunks : cpu_div_up(w->rows, w->rows_per);
}
