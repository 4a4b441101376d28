/* SPDX-License-Identifier: Apache-2.0 */
/* ops_lookup.c - entries that move rows by index: lookup, lookup_bwd, gather, scatter, combine. */
#include "cpu.h"
#include <string.h>

enum { PIECE_BYTES = 65536 };

static int64_t rows_in_piece(size_t row_bytes) { return cpu_max(1, PIECE_BYTES / cpu_max(1, (int64_t)row_bytes)); }

/* ---- lookup ---- */
typedef struct lookup_job { const st_queue *q; const st_lookup *a; int64_t rows_per; size_t row_bytes; } lookup_job;

/* The row that slot t takes; NULL: zeros. An index that must be inside and is not is a fault. */
static const void *source_of(const lookup_job *job, int64_t t)
{
    const st_lookup *a = job->a;
    const int32_t *media = check_given(a->media) ? a->media->data : NULL;
    int64_t id = ((const int32_t *)a->ids->data)[t], row = id - a->first;
    const st_tensor *from = a->table;
    if (media && media[t] >= 0) {
        row = media[t];
        from = a->features;
        if (!check_given(from) || row >= from->dim[0]) {
            cpu_fault(job->q, ST_FAULT_RANGE, row, check_given(from) ? from->dim[0] : 0);
            return NULL;
        }
    } else if (row < 0 || row >= from->dim[0]) {
        if (id >= 0 && a->group == ST_G_NONE) cpu_fault(job->q, ST_FAULT_RANGE, id, a->first + from->dim[0]);
        return NULL;
    }
    return cpu_at(from->data, row * from->stride[0], st_dtype_size(from->dtype));
}

static void lookup_piece(void *arg, int64_t piece)
{
    const lookup_job *job = arg;
    const st_lookup *a = job->a;
    size_t size = st_dtype_size(a->out->dtype);
    int64_t end = cpu_min((piece + 1) * job->rows_per, a->out->dim[0]);
    for (int64_t t = piece * job->rows_per; t < end; t++) {
        const void *from = source_of(job, t);
        void *to = cpu_at(a->out->data, t * a->out->stride[0], size);
        if (from) memcpy(to, from, job->row_bytes);
        else memset(to, 0, job->row_bytes);
    }
}

int cpu_lookup(const st_queue *q, const st_lookup *a)
{
    const char *const op = "lookup";
    int real;
    ST_TRY(cpu_want_real(q, op, "table", a->table, &real));
    int32_t type = a->table->dtype;
    ST_TRY(CHECK_TENSOR(q, op, "table", a->table, type, -1, -1));
    int64_t cols = a->table->dim[1];
    ST_TRY(CHECK_TENSOR(q, op, "out", a->out, type, -1, cols));
    int64_t n = a->out->dim[0];
    ST_TRY(check_vector(q, op, "ids", a->ids, ST_I32, n));
    ST_TRY(check_vector_if(q, op, "media", a->media, ST_I32, n));
    ST_TRY(CHECK_TENSOR_IF(q, op, "features", a->features, type, -1, cols));
    q->count(q, 0, 2 * check_bytes(a->out));
    if (q->planning) return ST_OK;
    lookup_job job = {q, a, 1, (size_t)cols * st_dtype_size(type)};
    job.rows_per = rows_in_piece(job.row_bytes);
    st_cpu_run(q, cpu_div_up(n, job.rows_per), lookup_piece, &job);
    return ST_OK;
}

int cpu_lookup_bwd(const st_queue *q, const st_lookup *a)
{
    const char *const op = "lookup_bwd";
    int real;
    ST_TRY(cpu_want_real(q, op, "d_out", a->d_out, &real));
    int32_t type = a->d_out->dtype;
    ST_TRY(CHECK_TENSOR(q, op, "d_out", a->d_out, type, -1, -1));
    int64_t n = a->d_out->dim[0], cols = a->d_out->dim[1];
    ST_TRY(CHECK_TENSOR_IF(q, op, "d_table", a->d_table, type, -1, cols));
    ST_TRY(CHECK_TENSOR_IF(q, op, "d_features", a->d_features, type, -1, cols));
    ST_TRY(check_vector_if(q, op, "media", a->media, ST_I32, n));
    if (check_given(a->d_table)) {
        ST_TRY(check_vector(q, op, "ids", a->ids, ST_I32, n));
        ST_TRY(check_vector(q, op, "order", a->order, ST_I32, n));
    }
    q->count(q, (double)n * (double)cols,
             2 * check_bytes(a->d_out) + (a->beta != 1 ? check_bytes(a->d_table) : 0));
    if (!q->planning) cpu_table_of(q, real)->lookup_bwd(q, a);
    return ST_OK;
}

/* ---- gather, scatter: any type, [rows, cols] or [rows] ---- */
typedef struct move_job {
    const st_queue *q;
    const int32_t *index;
    const char *src;
    char *dst;
    int64_t n, limit, rows_per;      /* entries of index; rows of the indexed side */
    size_t row_bytes, s_src, s_dst;  /* bytes */
    bool scatter;
} move_job;

static void move_piece(void *arg, int64_t piece)
{
    const move_job *job = arg;
    int64_t end = cpu_min((piece + 1) * job->rows_per, job->n);
    for (int64_t i = piece * job->rows_per; i < end; i++) {
        int64_t at = job->index[i];
        if (at >= job->limit || at < -2) {
            cpu_fault(job->q, ST_FAULT_RANGE, at, job->limit);
        } else if (job->scatter) {
            if (at >= 0) memcpy(job->dst + (size_t)at * job->s_dst, job->src + (size_t)i * job->s_src, job->row_bytes);
        } else if (at >= 0) {
            memcpy(job->dst + (size_t)i * job->s_dst, job->src + (size_t)at * job->s_src, job->row_bytes);
        } else if (at == -1) {
            memset(job->dst + (size_t)i * job->s_dst, 0, job->row_bytes);
        }
    }
}

static void move_rows(const st_queue *q, const st_tensor *src, const st_tensor *index, const st_tensor *dst,
                      bool scatter)
{
    size_t size = st_dtype_size(src->dtype);
    move_job job = {.q = q,
                    .index = index->data,
                    .src = src->data,
                    .dst = dst->data,
                    .n = (scatter ? src : dst)->dim[0],
                    .limit = (scatter ? dst : src)->dim[0],
                    .row_bytes = (size_t)(src->nd == 2 ? src->dim[1] : 1) * size,
                    .s_src = (size_t)src->stride[0] * size,
                    .s_dst = (size_t)dst->stride[0] * size,
                    .scatter = scatter};
    job.rows_per = rows_in_piece(job.row_bytes);
    st_cpu_run(q, cpu_div_up(job.n, job.rows_per), move_piece, &job);
}

void cpu_gather_rows(const st_queue *q, const st_tensor *src, const st_tensor *index, const st_tensor *dst)
{
    move_rows(q, src, index, dst, false);
}

static int move(const st_queue *q, const char *op, const st_tensor *src, const st_tensor *index, const st_tensor *dst,
                bool scatter)
{
    const st_tensor *many = scatter ? src : dst; /* the side that has one row per entry of index */
    if (!check_given(src) || src->nd < 1 || src->nd > 2)
        return q->fail(q, ST_E_SHAPE, "%s: src has %d dimensions, it must have 1 or 2", op, src ? (int)src->nd : 0);
    int64_t cols = src->nd == 2 ? src->dim[1] : 1;
    const int64_t any[2] = {-1, cols};
    ST_TRY(check_tensor(q, op, "src", src, src->dtype, src->nd, any));
    ST_TRY(check_tensor(q, op, "dst", dst, src->dtype, src->nd, any));
    ST_TRY(check_vector(q, op, "index", index, ST_I32, many->dim[0]));
    q->count(q, 0, 2 * check_bytes(many));
    if (!q->planning) move_rows(q, src, index, dst, scatter);
    return ST_OK;
}

int cpu_gather(const st_queue *q, const st_tensor *src, const st_tensor *index, const st_tensor *dst)
{
    return check_given(dst) ? move(q, "gather", src, index, dst, false) : ST_OK;
}

int cpu_scatter(const st_queue *q, const st_tensor *src, const st_tensor *index, const st_tensor *dst)
{
    return check_given(dst) ? move(q, "scatter", src, index, dst, true) : ST_OK;
}

int cpu_combine(const st_queue *q, const st_tensor *src, const st_tensor *index, const st_tensor *w,
                const st_tensor *dst)
{
    const char *const op = "combine";
    int real;
    if (!check_given(dst)) return ST_OK;
    ST_TRY(cpu_want_real(q, op, "src", src, &real));
    ST_TRY(CHECK_TENSOR(q, op, "src", src, src->dtype, -1, -1));
    ST_TRY(CHECK_TENSOR(q, op, "dst", dst, src->dtype, -1, src->dim[1]));
    ST_TRY(CHECK_TENSOR(q, op, "index", index, ST_I32, dst->dim[0], -1));
    ST_TRY(CHECK_TENSOR_IF(q, op, "w", w, src->dtype, dst->dim[0], index->dim[1]));
    q->count(q, 2.0 * (double)check_elements(dst) * (double)index->dim[1],
             check_bytes(dst) * (double)(index->dim[1] + 1));
    if (!q->planning) cpu_table_of(q, real)->combine(q, src, index, w, dst);
    return ST_OK;
}
