/* SPDX-License-Identifier: Apache-2.0 */
/* ops_gemm.c - entries gemm and grouped. */
#include "ops.h"

static int fits(const st_queue *q, const char *op, const char *name, const st_tensor *t)
{
    if (t->dim[t->nd - 2] > 1 && t->stride[t->nd - 2] < t->dim[t->nd - 1])
        return q->fail(q, ST_E_SHAPE, "%s: rows of %s overlap: stride %lld for %lld columns", op, name,
                       (long long)t->stride[t->nd - 2], (long long)t->dim[t->nd - 1]);
    return ST_OK;
}

static int want_matrix(const st_queue *q, const char *op, const char *name, const st_tensor *t, int nd, int64_t batch,
                       int64_t rows, int64_t cols)
{
    const int64_t dim[3] = {batch, rows, cols};
    ST_TRY(want_real(q, op, name, t, nd, nd == 3 ? dim : dim + 1));
    return fits(q, op, name, t);
}

/* The results of products are f32 or of the type of what is multiplied. */
static int want_result(const st_queue *q, const char *op, const char *name, const st_tensor *t, int32_t type)
{
    if (t->dtype == ST_F32 || t->dtype == type) return ST_OK;
    return q->fail(q, ST_E_SHAPE, "%s: %s is %s, it must be f32%s%s as what is multiplied", op, name,
                   check_type_name(t->dtype), type == ST_F32 ? "" : ", or ", type == ST_F32 ? "" : check_type_name(type));
}

static int same_type(const st_queue *q, const char *op, const char *name, const st_tensor *t, const char *other_name,
                     const st_tensor *other)
{
    if (t->dtype == other->dtype) return ST_OK;
    return q->fail(q, ST_E_SHAPE, "%s: %s is %s, but %s is %s", op, name, check_type_name(t->dtype), other_name,
                   check_type_name(other->dtype));
}

static int64_t entry_stride(const st_tensor *t) { return t->nd == 3 ? t->stride[0] : 0; }
/* The stride of one row says nothing, but the library wants one that is as long as the row. */
static int64_t row_stride(const st_tensor *t)
{
    return t->dim[t->nd - 2] > 1 ? t->stride[t->nd - 2] : ops_max(1, t->dim[t->nd - 1]);
}

static int check_gemm(const st_queue *q, const st_gemm *g, cuda_product *p)
{
    const char *const op = "gemm";
    if (!check_given(g->c)) return q->fail(q, ST_E_SHAPE, "gemm: c is absent");
    ST_TRY(want_real_like(q, op, "c", g->c, "c", g->c));
    int nd = g->c->nd;
    if (nd != 2 && nd != 3) return q->fail(q, ST_E_SHAPE, "gemm: c has %d dimensions, it must have 2 or 3", nd);
    p->batch = nd == 3 ? g->c->dim[0] : 1;
    p->m = g->c->dim[nd - 2];
    p->n = g->c->dim[nd - 1];
    p->trans_a = (int32_t)(g->trans & 1);
    p->trans_b = (int32_t)(g->trans >> 1 & 1);
    ST_TRY(want_matrix(q, op, "a", g->a, nd, p->batch, p->trans_a ? -1 : p->m, p->trans_a ? p->m : -1));
    p->k = g->a->dim[p->trans_a ? nd - 2 : nd - 1];
    ST_TRY(want_matrix(q, op, "b", g->b, nd, p->batch, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n));
    ST_TRY(same_type(q, op, "b", g->b, "a", g->a));
    ST_TRY(fits(q, op, "c", g->c));
    ST_TRY(want_result(q, op, "c", g->c, g->a->dtype));
    ST_TRY(want_real_vector_if(q, op, "bias", g->bias, p->n));
    if (check_given(g->aux)) {
        ST_TRY(want_matrix(q, op, "aux", g->aux, nd, p->batch, p->m, p->n));
        ST_TRY(want_result(q, op, "aux", g->aux, g->a->dtype));
    }
    if (g->act < ST_ACT_NONE || g->act > ST_ACT_RELU2)
        return q->fail(q, ST_E_UNSUPPORTED, "gemm: activation %d, known are 0 to %d", (int)g->act, ST_ACT_RELU2);
    return ST_OK;
}

int cuda_gemm(const st_queue *q, const st_gemm *g)
{
    cuda_product p = {.alpha = g->alpha, .beta = g->beta, .act = g->act};
    ST_TRY(check_gemm(q, g, &p));
    p.type = g->a->dtype;
    p.type_c = g->c->dtype;
    p.a = g->a->data;
    p.b = g->b->data;
    p.c = g->c->data;
    p.lda = row_stride(g->a);
    p.ldb = row_stride(g->b);
    p.ldc = row_stride(g->c);
    p.s_a = entry_stride(g->a);
    p.s_b = entry_stride(g->b);
    p.s_c = entry_stride(g->c);
    if (check_given(g->bias)) {
        p.bias = g->bias->data;
        p.type_bias = g->bias->dtype;
    }
    if (check_given(g->aux)) {
        p.aux = g->aux->data;
        p.ldaux = row_stride(g->aux);
        p.s_aux = entry_stride(g->aux);
        p.type_aux = g->aux->dtype;
    }
    if (!p.aux && g->act != ST_ACT_NONE && g->beta != 0) /* the value before act must not meet the old c */
        ST_TRY(check_scratch(q, "gemm", (size_t)(p.batch * p.m * p.n) * st_dtype_size(p.type_c), &p.room));
    q->count(q, 2.0 * (double)p.batch * (double)p.m * (double)p.n * (double)p.k,
             check_bytes(g->a) + check_bytes(g->b) + check_bytes(g->c) * (g->beta != 0 ? 2 : 1) + check_bytes(g->aux));
    return q->planning ? ST_OK : run_product(q, &p);
}

int run_product(const st_queue *q, const cuda_product *p)
{
    return p->m && p->n && p->batch ? cuda_table_of(q)->product(q, p) : ST_OK;
}

int cuda_grouped_op(const st_queue *q, const st_grouped *g)
{
    const char *const op = "grouped";
    if (g->mode < 0 || g->mode > 2)
        return q->fail(q, ST_E_UNSUPPORTED, "grouped: mode %d, known are 0 to 2", (int)g->mode);
    ST_TRY(want_matrix(q, op, "a", g->a, 2, 0, -1, -1));
    ST_TRY(want_matrix(q, op, "c", g->c, 2, 0, g->a->dim[0], -1));
    int64_t rows = g->a->dim[0], wide_a = g->a->dim[1], wide_c = g->c->dim[1];
    ST_TRY(want_matrix(q, op, "b", g->b, 3, -1, g->mode == 0 ? wide_c : wide_a, g->mode == 0 ? wide_a : wide_c));
    if (g->mode == 2) {
        ST_TRY(same_type(q, op, "c", g->c, "a", g->a));
        ST_TRY(want_result(q, op, "b", g->b, ST_F32));
    } else {
        ST_TRY(same_type(q, op, "b", g->b, "a", g->a));
        ST_TRY(want_result(q, op, "c", g->c, g->a->dtype));
    }
    int64_t groups = g->b->dim[0];
    ST_TRY(check_vector(q, op, "offset", g->offset, ST_I32, groups + 1));
    q->count(q, 2.0 * (double)rows * (double)wide_a * (double)wide_c,
             check_bytes(g->a) + check_bytes(g->b) * (g->mode == 2 && g->beta != 0 ? 2 : 1) + check_bytes(g->c));
    if (q->planning || !groups || !wide_a || !wide_c) return ST_OK;
    cuda_grouped job = {.a = g->a->data, .offset = g->offset->data, .groups = groups, .rows = rows,
                        .lda = row_stride(g->a), .type = g->a->dtype, .sum = g->mode == 2};
    if (g->mode == 2) {
        job.b = g->c->data; job.ldb = row_stride(g->c);
        job.c = g->b->data; job.ldc = row_stride(g->b); job.s_c = g->b->stride[0]; job.type_c = g->b->dtype;
        job.m = wide_a; job.n = wide_c; job.beta = g->beta;
    } else {
        job.b = g->b->data; job.ldb = row_stride(g->b); job.s_b = g->b->stride[0]; job.trans_b = g->mode == 0;
        job.c = g->c->data; job.ldc = row_stride(g->c); job.type_c = g->c->dtype;
        job.n = wide_c; job.k = wide_a;
    }
    return cuda_table_of(q)->grouped(q, &job);
}
