/* SPDX-License-Identifier: Apache-2.0 */
/* ops_check.c - checks of real numbers, views, and how elementwise work is walked. */
#include "ops.h"
#include <string.h>

static int check_real(const st_queue *q, const char *op, const char *name, const st_tensor *t)
{
    if (!check_given(t)) return q->fail(q, ST_E_SHAPE, "%s: %s is absent", op, name);
    if (t->nd < 1 || t->nd > ST_DIMS)
        return q->fail(q, ST_E_SHAPE, "%s: %s has %d dimensions, it must have 1 to %d", op, name, (int)t->nd, ST_DIMS);
    if (t->dtype == ST_F32 || t->dtype == ST_BF16) return check_rows(q, op, name, t);
    return q->fail(q, ST_E_UNSUPPORTED, "%s: %s is %s, the cuda backend computes in bf16 or f32%s", op, name,
                   check_type_name(t->dtype), t->dtype == ST_F64 ? "; f64 is what the cpu backend is for" : "");
}

int want_real(const st_queue *q, const char *op, const char *name, const st_tensor *t, int nd, const int64_t *dim)
{
    ST_TRY(check_real(q, op, name, t));
    return check_tensor(q, op, name, t, t->dtype, nd, dim);
}

int want_real_like(const st_queue *q, const char *op, const char *name, const st_tensor *t, const char *like_name,
                   const st_tensor *like)
{
    ST_TRY(check_real(q, op, name, t));
    st_tensor typed = *like;
    typed.dtype = t->dtype;
    return check_like(q, op, name, t, like_name, &typed);
}

int want_real_like_if(const st_queue *q, const char *op, const char *name, const st_tensor *t, const char *like_name,
                      const st_tensor *like)
{
    return check_given(t) ? want_real_like(q, op, name, t, like_name, like) : ST_OK;
}

int want_real_vector_if(const st_queue *q, const char *op, const char *name, const st_tensor *t, int64_t n)
{
    if (!check_given(t)) return ST_OK;
    ST_TRY(check_real(q, op, name, t));
    return check_vector(q, op, name, t, t->dtype, n);
}

cuda_view view_of(const st_tensor *t)
{
    cuda_view v = {NULL, 0, 0, 0, 0, 0, 0, 0};
    if (!check_given(t)) return v;
    v.data = t->data;
    v.type = t->dtype;
    v.rows = t->dim[0];
    v.heads = t->nd == 3 ? t->dim[1] : 1;
    v.cols = t->nd == 1 ? 1 : t->dim[t->nd - 1];
    v.s_row = t->stride[0];
    v.s_head = t->nd == 3 ? t->stride[1] : 0;
    return v;
}

static bool aligned(const void *p, int64_t bytes) { return ((uintptr_t)p | (uintptr_t)bytes) % 16 == 0; }

bool wide_view(const cuda_view *v)
{
    int64_t size = (int64_t)st_dtype_size(v->type);
    return !v->data || (v->cols % CUDA_WIDE == 0 && aligned(v->data, v->s_row * size) && aligned(NULL, v->s_head * size));
}

static bool wide_walk(const cuda_walk *w, int n)
{
    int last = ST_DIMS - 1;
    bool wide = w->dim[last] % CUDA_WIDE == 0;
    for (int k = 0; k < n && wide; k++) {
        int64_t size = (int64_t)st_dtype_size(w->type[k]);
        if (!w->data[k]) continue;
        wide = (w->type[k] == ST_F32 || w->type[k] == ST_BF16) && w->stride[k][last] == 1 && aligned(w->data[k], 0);
        for (int i = 0; i < last && wide; i++) wide = w->dim[i] == 1 || aligned(NULL, w->stride[k][i] * size);
    }
    return wide;
}

void walk_make(cuda_walk *w, int n, const st_tensor *const *t)
{
    int64_t dim[ST_DIMS] = {1, 1, 1, 1}, stride[CUDA_WALKED][ST_DIMS] = {{0}};
    int kept = 0;
    memset(w, 0, sizeof *w);
    for (int i = 0; i < t[0]->nd; i++) { /* append dimension i, or merge it into the one before */
        bool merge = kept > 0;
        if (t[0]->dim[i] == 1) continue;
        for (int k = 0; k < n && merge; k++)
            merge = !check_given(t[k]) || stride[k][kept - 1] == t[k]->dim[i] * t[k]->stride[i];
        if (!merge) dim[kept++] = 1;
        dim[kept - 1] *= t[0]->dim[i];
        for (int k = 0; k < n; k++) stride[k][kept - 1] = check_given(t[k]) ? t[k]->stride[i] : 0;
    }
    w->n = 1;
    for (int i = 0; i < ST_DIMS; i++) {
        int from = i - (ST_DIMS - kept); /* what is kept sits at the end */
        w->dim[i] = from >= 0 ? dim[from] : 1;
        w->n *= w->dim[i];
        for (int k = 0; k < n; k++) w->stride[k][i] = from >= 0 ? stride[k][from] : 1;
    }
    for (int k = 0; k < n; k++) {
        w->data[k] = check_given(t[k]) ? t[k]->data : NULL;
        w->type[k] = check_given(t[k]) ? t[k]->dtype : ST_NONE;
    }
    w->wide = wide_walk(w, n);
}
