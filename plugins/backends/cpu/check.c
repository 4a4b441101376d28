/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - shape and type checks with words, scratch, faults, and how elementwise work is walked. */
#include "cpu.h"
#include <stdio.h>
#include <string.h>

static const char *type_name(int32_t dtype)
{
    static const char *const name[ST_DTYPES] = {"none",   "f64",    "f32", "bf16", "f16",
                                                "f8e4m3", "f8e5m2", "i32", "i64",  "u8"};
    return dtype >= 0 && dtype < ST_DTYPES ? name[dtype] : "an unknown type";
}

typedef struct shape_text { char s[96]; } shape_text;

static shape_text shape_words(int32_t dtype, int nd, const int64_t *dim) /* "f32 [3, 4]"; -1 shows as "any" */
{
    shape_text t;
    int at = snprintf(t.s, sizeof t.s, "%s [", type_name(dtype));
    for (int i = 0; i < nd && i < ST_DIMS; i++) {
        const char *comma = i ? ", " : "";
        if (dim[i] < 0) at += snprintf(t.s + at, sizeof t.s - (size_t)at, "%sany", comma);
        else at += snprintf(t.s + at, sizeof t.s - (size_t)at, "%s%lld", comma, (long long)dim[i]);
    }
    snprintf(t.s + at, sizeof t.s - (size_t)at, "]");
    return t;
}

static int check_rows(const st_queue *q, const char *op, const char *name, const st_tensor *t)
{
    int last = t->nd - 1;
    if (t->dim[last] > 1 && t->stride[last] != 1)
        return q->fail(q, ST_E_SHAPE, "%s: %s has stride %lld in its last dimension, it must be 1", op, name,
                       (long long)t->stride[last]);
    for (int i = 0; i < last; i++)
        if (t->dim[i] > 1 && t->stride[i] < 0)
            return q->fail(q, ST_E_SHAPE, "%s: %s has stride %lld in dimension %d, it must not be negative", op, name,
                           (long long)t->stride[i], i);
    return ST_OK;
}

int cpu_want(const st_queue *q, const char *op, const char *name, const st_tensor *t, int32_t dtype, int nd,
             const int64_t *dim)
{
    shape_text want = shape_words(dtype, nd, dim);
    if (!cpu_given(t)) return q->fail(q, ST_E_SHAPE, "%s: %s is absent, it must be %s", op, name, want.s);
    bool good = t->dtype == dtype && t->nd == nd;
    for (int i = 0; good && i < nd; i++) good = t->dim[i] >= 0 && (dim[i] < 0 || t->dim[i] == dim[i]);
    if (!good)
        return q->fail(q, ST_E_SHAPE, "%s: %s is %s, it must be %s", op, name, shape_words(t->dtype, t->nd, t->dim).s,
                       want.s);
    return check_rows(q, op, name, t);
}

int cpu_want_like(const st_queue *q, const char *op, const char *name, const st_tensor *t, const char *like_name,
                  const st_tensor *like)
{
    if (!cpu_given(t)) return q->fail(q, ST_E_SHAPE, "%s: %s is absent, it must be like %s", op, name, like_name);
    bool good = t->dtype == like->dtype && t->nd == like->nd;
    for (int i = 0; good && i < t->nd; i++) good = t->dim[i] == like->dim[i];
    if (!good)
        return q->fail(q, ST_E_SHAPE, "%s: %s is %s, but %s is %s", op, name, shape_words(t->dtype, t->nd, t->dim).s,
                       like_name, shape_words(like->dtype, like->nd, like->dim).s);
    return check_rows(q, op, name, t);
}

int cpu_want_vector(const st_queue *q, const char *op, const char *name, const st_tensor *t, int32_t dtype, int64_t n)
{
    shape_text want = shape_words(dtype, 1, &n);
    if (!cpu_given(t)) return q->fail(q, ST_E_SHAPE, "%s: %s is absent, it must be %s", op, name, want.s);
    int wide = 0;
    bool good = t->dtype == dtype && t->nd >= 1 && t->nd <= ST_DIMS && cpu_elements(t) == n;
    for (int i = 0; good && i < t->nd; i++) {
        if (t->dim[i] <= 1) continue;
        wide++;
        good = t->stride[i] == 1;
    }
    if (!good || wide > 1)
        return q->fail(q, ST_E_SHAPE, "%s: %s is %s, it must be %s without gaps", op, name,
                       shape_words(t->dtype, t->nd, t->dim).s, want.s);
    return ST_OK;
}

int cpu_want_vector_if(const st_queue *q, const char *op, const char *name, const st_tensor *t, int32_t dtype,
                       int64_t n)
{
    return cpu_given(t) ? cpu_want_vector(q, op, name, t, dtype, n) : ST_OK;
}

int cpu_want_real(const st_queue *q, const char *op, const char *name, const st_tensor *t, int *real)
{
    if (!cpu_given(t)) return q->fail(q, ST_E_SHAPE, "%s: %s is absent", op, name);
    if (t->nd < 1 || t->nd > ST_DIMS)
        return q->fail(q, ST_E_SHAPE, "%s: %s has %d dimensions, it must have 1 to %d", op, name, (int)t->nd, ST_DIMS);
    if (t->dtype != ST_F32 && t->dtype != ST_F64)
        return q->fail(q, ST_E_UNSUPPORTED, "%s: %s is %s, the cpu backend computes in f32 or f64", op, name,
                       type_name(t->dtype));
    *real = t->dtype == ST_F32 ? CPU_F32 : CPU_F64;
    return check_rows(q, op, name, t);
}

int64_t cpu_elements(const st_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->nd; i++) n *= t->dim[i];
    return n;
}

double cpu_bytes(const st_tensor *t)
{
    return cpu_given(t) ? (double)cpu_elements(t) * (double)st_dtype_size(t->dtype) : 0;
}

int cpu_scratch(const st_queue *q, const char *op, size_t bytes, void **out)
{
    *out = NULL;
    if (!bytes) return ST_OK;
    *out = q->scratch(q, bytes);
    return *out ? ST_OK : q->fail(q, ST_E_NOMEM, "%s: no room for %zu bytes of workspace", op, bytes);
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
    if (!cpu_given(t)) return v;
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
            merge = !cpu_given(t[k]) || dim[kept - 1] == 1 || stride[k][kept - 1] == t[k]->dim[i] * t[k]->stride[i];
        if (!merge) dim[kept++] = 1;
        dim[kept - 1] *= t[0]->dim[i];
        for (int k = 0; k < n; k++) stride[k][kept - 1] = cpu_given(t[k]) ? t[k]->stride[i] : 0;
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
        w->data[k] = cpu_given(t[k]) ? t[k]->data : NULL;
        w->size[k] = cpu_given(t[k]) ? st_dtype_size(t[k]->dtype) : 0;
        w->last[k] = kept ? stride[k][kept - 1] : 1;
        if (w->inner == 1) w->last[k] = 1;
    }
    w->chunks = w->inner > PIECE ? cpu_div_up(w->inner, PIECE) : 1;
    w->rows_per = w->chunks > 1 ? 1 : cpu_max(1, PIECE / cpu_max(1, w->inner));
    w->pieces = w->inner == 0 ? 0 : w->chunks > 1 ? w->rows * w->chunks : cpu_div_up(w->rows, w->rows_per);
}
