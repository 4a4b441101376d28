/* SPDX-License-Identifier: Apache-2.0 */
/* ops_lookup.c - entries that move rows by index: lookup, lookup_bwd, gather, scatter, combine. */
#include "ops.h"

static const int32_t *indices(const st_tensor *t) { return check_given(t) ? t->data : NULL; }

int cuda_lookup_op(const st_queue *q, const st_lookup *a)
{
    const char *const op = "lookup";
    ST_TRY(WANT_REAL(q, op, "table", a->table, -1, -1));
    int64_t cols = a->table->dim[1];
    ST_TRY(WANT_REAL(q, op, "out", a->out, -1, cols));
    int64_t n = a->out->dim[0];
    ST_TRY(check_vector(q, op, "ids", a->ids, ST_I32, n));
    ST_TRY(check_vector_if(q, op, "media", a->media, ST_I32, n));
    ST_TRY(WANT_REAL_IF(q, op, "features", a->features, -1, cols));
    q->count(q, 0, 2 * check_bytes(a->out));
    if (q->planning || !n || !cols) return ST_OK;
    cuda_lookup job = {.table = view_of(a->table), .features = view_of(a->features), .out = view_of(a->out),
                       .ids = a->ids->data, .media = indices(a->media), .first = a->first,
                       .uncut = a->group == ST_G_NONE};
    return cuda_table_of(q)->lookup(q, &job);
}

/* d_table = beta * d_table */
static int scale_table(const st_queue *q, const st_tensor *t, float beta)
{
    if (beta == 1) return ST_OK;
    if (beta == 0) return cuda_fill(q, t, 0);
    cuda_point p = {.what = CUDA_ADD, .a = beta};
    const st_tensor *const both[] = {t, NULL, t};
    walk_make(&p.walk, 3, both);
    return p.walk.n ? cuda_table_of(q)->point(q, &p) : ST_OK;
}

int cuda_lookup_bwd(const st_queue *q, const st_lookup *a)
{
    const char *const op = "lookup_bwd";
    ST_TRY(WANT_REAL(q, op, "d_out", a->d_out, -1, -1));
    int64_t n = a->d_out->dim[0], cols = a->d_out->dim[1];
    ST_TRY(CHECK_TENSOR_IF(q, op, "d_table", a->d_table, ST_F32, -1, cols));
    ST_TRY(CHECK_TENSOR_IF(q, op, "d_features", a->d_features, ST_F32, -1, cols));
    ST_TRY(check_vector_if(q, op, "media", a->media, ST_I32, n));
    void *part = NULL;
    if (check_given(a->d_table)) {
        ST_TRY(check_vector(q, op, "ids", a->ids, ST_I32, n));
        ST_TRY(check_vector(q, op, "order", a->order, ST_I32, n));
        ST_TRY(check_scratch(q, op, (size_t)(2 * ops_div_up(n, CUDA_LOOKUP_PIECE) * cols) * sizeof(float), &part));
    }
    q->count(q, (double)n * (double)cols,
             2 * check_bytes(a->d_out) + (a->beta != 1 ? check_bytes(a->d_table) : 0));
    if (q->planning) return ST_OK;
    cuda_lookup job = {.d_out = view_of(a->d_out), .d_table = view_of(a->d_table), .d_features = view_of(a->d_features),
                       .ids = indices(a->ids), .media = indices(a->media), .order = indices(a->order),
                       .part = part, .first = a->first, .n_order = n};
    if (job.d_table.data) {
        ST_TRY(scale_table(q, a->d_table, a->beta));
        if (n && cols) ST_TRY(cuda_table_of(q)->lookup_table(q, &job));
    }
    if (!job.d_features.data || !job.media || !n || !cols || !job.d_features.rows) return ST_OK;
    return cuda_table_of(q)->lookup_features(q, &job);
}

/* The largest unit that divides rows, strides and addresses. */
static int32_t unit_of(const cuda_move *m)
{
    uint64_t all = (uint64_t)(uintptr_t)m->src | (uint64_t)(uintptr_t)m->dst | (uint64_t)m->row_bytes |
                   (uint64_t)m->s_src | (uint64_t)m->s_dst | 16;
    return (int32_t)(all & (~all + 1));
}

static int move(const st_queue *q, const char *op, const st_tensor *src, const st_tensor *index, const st_tensor *dst,
                bool scatter)
{
    const st_tensor *many = scatter ? src : dst; /* the side that has one row per entry of index */
    if (!check_given(src) || src->nd < 1 || src->nd > 2)
        return q->fail(q, ST_E_SHAPE, "%s: src has %d dimensions, it must have 1 or 2", op, src ? (int)src->nd : 0);
    int64_t cols = src->nd == 2 ? src->dim[1] : 1, size = (int64_t)st_dtype_size(src->dtype);
    const int64_t any[2] = {-1, cols};
    ST_TRY(check_tensor(q, op, "src", src, src->dtype, src->nd, any));
    ST_TRY(check_tensor(q, op, "dst", dst, src->dtype, src->nd, any));
    ST_TRY(check_vector(q, op, "index", index, ST_I32, many->dim[0]));
    q->count(q, 0, 2 * check_bytes(many));
    if (q->planning || !many->dim[0] || !cols) return ST_OK;
    cuda_move job = {.index = index->data, .src = src->data, .dst = dst->data, .n = many->dim[0],
                     .limit = (scatter ? dst : src)->dim[0], .row_bytes = cols * size,
                     .s_src = src->stride[0] * size, .s_dst = dst->stride[0] * size, .scatter = scatter};
    job.unit = unit_of(&job);
    return cuda_table_of(q)->move(q, &job);
}

int cuda_gather(const st_queue *q, const st_tensor *src, const st_tensor *index, const st_tensor *dst)
{
    return check_given(dst) ? move(q, "gather", src, index, dst, false) : ST_OK;
}

int cuda_scatter(const st_queue *q, const st_tensor *src, const st_tensor *index, const st_tensor *dst)
{
    return check_given(dst) ? move(q, "scatter", src, index, dst, true) : ST_OK;
}

int cuda_combine_op(const st_queue *q, const st_tensor *src, const st_tensor *index, const st_tensor *w,
                    const st_tensor *dst)
{
    const char *const op = "combine";
    if (!check_given(dst)) return ST_OK;
    ST_TRY(WANT_REAL(q, op, "src", src, -1, -1));
    ST_TRY(WANT_REAL(q, op, "dst", dst, -1, src->dim[1]));
    ST_TRY(CHECK_TENSOR(q, op, "index", index, ST_I32, dst->dim[0], -1));
    ST_TRY(WANT_REAL_IF(q, op, "w", w, dst->dim[0], index->dim[1]));
    q->count(q, 2.0 * (double)check_elements(dst) * (double)index->dim[1],
             check_bytes(dst) * (double)(index->dim[1] + 1));
    if (q->planning || !check_elements(dst)) return ST_OK;
    cuda_combine job = {.src = view_of(src), .dst = view_of(dst), .w = view_of(w), .index = index->data,
                        .s_index = index->stride[0], .n_index = index->dim[1]};
    return cuda_table_of(q)->combine(q, &job);
}
