/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - see check.h. */
#include "check.h"
#include <stdio.h>

const char *check_type_name(int32_t dtype)
{
    static const char *const name[ST_DTYPES] = {"none",   "f64",    "f32", "bf16", "f16",
                                                "f8e4m3", "f8e5m2", "i32", "i64",  "u8"};
    return dtype >= 0 && dtype < ST_DTYPES ? name[dtype] : "an unknown type";
}

typedef struct shape_text { char s[96]; } shape_text;

static shape_text shape_words(int32_t dtype, int nd, const int64_t *dim) /* "f32 [3, 4]"; -1 shows as "any" */
{
    shape_text t;
    int at = snprintf(t.s, sizeof t.s, "%s [", check_type_name(dtype));
    for (int i = 0; i < nd && i < ST_DIMS; i++) {
        const char *comma = i ? ", " : "";
        if (dim[i] < 0) at += snprintf(t.s + at, sizeof t.s - (size_t)at, "%sany", comma);
        else at += snprintf(t.s + at, sizeof t.s - (size_t)at, "%s%lld", comma, (long long)dim[i]);
    }
    snprintf(t.s + at, sizeof t.s - (size_t)at, "]");
    return t;
}

int check_rows(const st_queue *q, const char *op, const char *name, const st_tensor *t)
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

int check_tensor(const st_queue *q, const char *op, const char *name, const st_tensor *t, int32_t dtype, int nd,
             const int64_t *dim)
{
    shape_text want = shape_words(dtype, nd, dim);
    if (!check_given(t)) return q->fail(q, ST_E_SHAPE, "%s: %s is absent, it must be %s", op, name, want.s);
    bool good = t->dtype == dtype && t->nd == nd;
    for (int i = 0; good && i < nd; i++) good = t->dim[i] >= 0 && (dim[i] < 0 || t->dim[i] == dim[i]);
    if (!good)
        return q->fail(q, ST_E_SHAPE, "%s: %s is %s, it must be %s", op, name, shape_words(t->dtype, t->nd, t->dim).s,
                       want.s);
    return check_rows(q, op, name, t);
}

int check_like(const st_queue *q, const char *op, const char *name, const st_tensor *t, const char *like_name,
                  const st_tensor *like)
{
    if (!check_given(t)) return q->fail(q, ST_E_SHAPE, "%s: %s is absent, it must be like %s", op, name, like_name);
    bool good = t->dtype == like->dtype && t->nd == like->nd;
    for (int i = 0; good && i < t->nd; i++) good = t->dim[i] == like->dim[i];
    if (!good)
        return q->fail(q, ST_E_SHAPE, "%s: %s is %s, but %s is %s", op, name, shape_words(t->dtype, t->nd, t->dim).s,
                       like_name, shape_words(like->dtype, like->nd, like->dim).s);
    return check_rows(q, op, name, t);
}

int check_vector(const st_queue *q, const char *op, const char *name, const st_tensor *t, int32_t dtype, int64_t n)
{
    shape_text want = shape_words(dtype, 1, &n);
    if (!check_given(t)) return q->fail(q, ST_E_SHAPE, "%s: %s is absent, it must be %s", op, name, want.s);
    int wide = 0;
    bool good = t->dtype == dtype && t->nd >= 1 && t->nd <= ST_DIMS && check_elements(t) == n;
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

int check_vector_if(const st_queue *q, const char *op, const char *name, const st_tensor *t, int32_t dtype,
                       int64_t n)
{
    return check_given(t) ? check_vector(q, op, name, t, dtype, n) : ST_OK;
}

int64_t check_elements(const st_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->nd; i++) n *= t->dim[i];
    return n;
}

double check_bytes(const st_tensor *t)
{
    return check_given(t) ? (double)check_elements(t) * (double)st_dtype_size(t->dtype) : 0;
}

int check_scratch(const st_queue *q, const char *op, size_t bytes, void **out)
{
    *out = NULL;
    if (!bytes) return ST_OK;
    *out = q->scratch(q, bytes);
    return *out ? ST_OK : q->fail(q, ST_E_NOMEM, "%s: no room for %zu bytes of workspace", op, bytes);
}
