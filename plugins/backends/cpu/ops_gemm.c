/* SPDX-License-Identifier: Apache-2.0 */
/* ops_gemm.c - entries gemm and grouped. */
#include "cpu.h"

static int fits_blas(const st_queue *q, const char *op, const char *name, const st_tensor *t)
{
    for (int i = 0; i < t->nd; i++)
        if (t->dim[i] > INT32_MAX || t->stride[i] > INT32_MAX * (i + 2 < t->nd ? (int64_t)INT32_MAX : 1))
            return q->fail(q, ST_E_UNSUPPORTED, "%s: dimension %d of %s has size %lld and stride %lld, the limit is %d",
                           op, i, name, (long long)t->dim[i], (long long)t->stride[i], INT32_MAX);
    if (t->dim[t->nd - 2] > 1 && t->stride[t->nd - 2] < t->dim[t->nd - 1])
        return q->fail(q, ST_E_SHAPE, "%s: rows of %s overlap: stride %lld for %lld columns", op, name,
                       (long long)t->stride[t->nd - 2], (long long)t->dim[t->nd - 1]);
    return ST_OK;
}

static int want_matrix(const st_queue *q, const char *op, const char *name, const st_tensor *t, int32_t dtype, int nd,
                       int64_t batch, int64_t rows, int64_t cols)
{
    const int64_t dim[3] = {batch, rows, cols};
    ST_TRY(check_tensor(q, op, name, t, dtype, nd, nd == 3 ? dim : dim + 1));
    return fits_blas(q, op, name, t);
}

static int64_t entry_stride(const st_tensor *t) { return t->nd == 3 ? t->stride[0] : 0; }

int cpu_gemm(const st_queue *q, const st_gemm *g)
{
    const char *const op = "gemm";
    int real;
    ST_TRY(cpu_want_real(q, op, "c", g->c, &real));
    int nd = g->c->nd;
    if (nd != 2 && nd != 3) return q->fail(q, ST_E_SHAPE, "gemm: c has %d dimensions, it must have 2 or 3", nd);
    int64_t batch = nd == 3 ? g->c->dim[0] : 1, m = g->c->dim[nd - 2], n = g->c->dim[nd - 1];
    int ta = (int)(g->trans & 1), tb = (int)(g->trans >> 1 & 1);
    int32_t type = g->c->dtype;
    ST_TRY(want_matrix(q, op, "a", g->a, type, nd, batch, ta ? -1 : m, ta ? m : -1));
    int64_t k = g->a->dim[ta ? nd - 2 : nd - 1];
    ST_TRY(want_matrix(q, op, "b", g->b, type, nd, batch, tb ? n : k, tb ? k : n));
    ST_TRY(fits_blas(q, op, "c", g->c));
    ST_TRY(check_vector_if(q, op, "bias", g->bias, type, n));
    if (check_given(g->aux)) ST_TRY(want_matrix(q, op, "aux", g->aux, type, nd, batch, m, n));
    if (g->act < ST_ACT_NONE || g->act > ST_ACT_RELU2)
        return q->fail(q, ST_E_UNSUPPORTED, "gemm: activation %d, known are 0 to %d", (int)g->act, ST_ACT_RELU2);

    cpu_product p = {.real = real,
                     .act = g->act,
                     .trans_a = ta,
                     .trans_b = tb,
                     .m = m,
                     .n = n,
                     .k = k,
                     .batch = batch,
                     .a = g->a->data,
                     .b = g->b->data,
                     .c = g->c->data,
                     .lda = g->a->stride[nd - 2],
                     .ldb = g->b->stride[nd - 2],
                     .ldc = g->c->stride[nd - 2],
                     .s_a = entry_stride(g->a),
                     .s_b = entry_stride(g->b),
                     .s_c = entry_stride(g->c),
                     .alpha = g->alpha,
                     .beta = g->beta};
    if (check_given(g->bias)) p.bias = g->bias->data;
    if (check_given(g->aux)) {
        p.aux = g->aux->data;
        p.ldaux = g->aux->stride[nd - 2];
        p.s_aux = entry_stride(g->aux);
    }
    cpu_product_plan(&p, true);
    ST_TRY(check_scratch(q, op, cpu_product_work(&p), &p.work));
    q->count(q, 2.0 * (double)batch * (double)m * (double)n * (double)k,
             check_bytes(g->a) + check_bytes(g->b) + check_bytes(g->c) * (g->beta != 0 ? 2 : 1) + check_bytes(g->aux));
    if (!q->planning) cpu_product_run(q, &p);
    return ST_OK;
}

/* ---- grouped ---- */
typedef struct grouped_job {
    const st_grouped *g;
    const int32_t *offset;
    cpu_product p; /* of one group: shape of a tile; m or k differs between groups */
    int64_t groups, col_tiles;
} grouped_job;

enum { GROUP_ROWS = 256 };

/* Modes 0 and 1: tile `piece` of the list that runs through all groups, row tiles first. */
static void grouped_rows_piece(void *arg, int64_t piece)
{
    const grouped_job *job = arg;
    const cpu_product *p = &job->p;
    size_t size = cpu_real_size(p->real);
    int64_t tile = piece / job->col_tiles, j = piece % job->col_tiles * p->tile_n, e = 0;
    for (; e < job->groups; e++) {
        int64_t tiles = cpu_div_up(job->offset[e + 1] - job->offset[e], GROUP_ROWS);
        if (tile < tiles) break;
        tile -= tiles;
    }
    if (e == job->groups) return;
    int64_t i = job->offset[e] + tile * GROUP_ROWS, rows = cpu_min(GROUP_ROWS, job->offset[e + 1] - i);
    const void *b = cpu_at(p->b, e * p->s_b + (p->trans_b ? j * p->ldb : j), size);
    cpu_blas(p->real, 0, p->trans_b, rows, cpu_min(p->tile_n, p->n - j), p->k, 1, cpu_at(p->a, i * p->lda, size),
             p->lda, b, p->ldb, 0, cpu_at(p->c, i * p->ldc + j, size), p->ldc);
}

/* Mode 2: one tile of b_e = a^T c + beta b_e over the rows of group e. */
static void grouped_sum_piece(void *arg, int64_t piece)
{
    const grouped_job *job = arg;
    const cpu_product *p = &job->p;
    size_t size = cpu_real_size(p->real);
    int64_t row_tiles = cpu_div_up(p->m, p->tile_m), e = piece / (row_tiles * job->col_tiles);
    int64_t i = piece / job->col_tiles % row_tiles * p->tile_m, j = piece % job->col_tiles * p->tile_n;
    int64_t first = job->offset[e], rows = job->offset[e + 1] - first;
    cpu_blas(p->real, 1, 0, cpu_min(p->tile_m, p->m - i), cpu_min(p->tile_n, p->n - j), rows, 1,
             cpu_at(p->a, first * p->lda + i, size), p->lda, cpu_at(p->b, first * p->ldb + j, size), p->ldb, p->beta,
             cpu_at(p->c, e * p->s_c + i * p->ldc + j, size), p->ldc);
}

static bool offsets_good(const st_queue *q, const int32_t *offset, int64_t groups, int64_t rows)
{
    for (int64_t e = 0; e < groups; e++)
        if (offset[e] < 0 || offset[e + 1] < offset[e] || offset[e + 1] > rows) {
            cpu_fault(q, ST_FAULT_RANGE, offset[e + 1], rows);
            return false;
        }
    return true;
}

int cpu_grouped(const st_queue *q, const st_grouped *g)
{
    const char *const op = "grouped";
    int real;
    ST_TRY(cpu_want_real(q, op, "a", g->a, &real));
    int32_t type = g->a->dtype;
    if (g->mode < 0 || g->mode > 2)
        return q->fail(q, ST_E_UNSUPPORTED, "grouped: mode %d, known are 0 to 2", (int)g->mode);
    ST_TRY(want_matrix(q, op, "a", g->a, type, 2, 0, -1, -1));
    ST_TRY(want_matrix(q, op, "c", g->c, type, 2, 0, g->a->dim[0], -1));
    int64_t rows = g->a->dim[0], wide_a = g->a->dim[1], wide_c = g->c->dim[1];
    ST_TRY(want_matrix(q, op, "b", g->b, type, 3, -1, g->mode == 0 ? wide_c : wide_a, g->mode == 0 ? wide_a : wide_c));
    grouped_job job = {.g = g, .groups = g->b->dim[0]};
    ST_TRY(check_vector(q, op, "offset", g->offset, ST_I32, job.groups + 1));

    cpu_product *p = &job.p;
    p->real = real;
    p->batch = 1;
    p->lda = g->a->stride[0];
    p->a = g->a->data;
    p->beta = g->mode == 2 ? g->beta : 0;
    if (g->mode == 2) { /* in terms of the product: b is the rows of c, the result is the weight */
        p->m = wide_a; p->n = wide_c; p->k = cpu_div_up(rows, cpu_max(1, job.groups));
        p->b = g->c->data; p->ldb = g->c->stride[0];
        p->c = g->b->data; p->ldc = g->b->stride[1]; p->s_c = g->b->stride[0];
    } else {
        p->trans_b = g->mode == 0;
        p->m = rows; p->n = wide_c; p->k = wide_a;
        p->b = g->b->data; p->ldb = g->b->stride[1]; p->s_b = g->b->stride[0];
        p->c = g->c->data; p->ldc = g->c->stride[0];
    }
    cpu_product_plan(p, false);
    job.col_tiles = cpu_div_up(p->n, p->tile_n);
    double bytes = check_bytes(g->a) + check_bytes(g->b) * (p->beta != 0 ? 2 : 1) + check_bytes(g->c);
    if (q->planning) {
        q->count(q, 2.0 * (double)rows * (double)wide_a * (double)wide_c, bytes);
        return ST_OK;
    }
    job.offset = g->offset->data;
    if (!offsets_good(q, job.offset, job.groups, rows)) return ST_OK;
    int64_t live = job.groups ? job.offset[job.groups] - job.offset[0] : 0;
    q->count(q, 2.0 * (double)live * (double)wide_a * (double)wide_c, bytes);
    if (g->mode == 2) {
        st_cpu_run(q, job.groups * cpu_div_up(p->m, p->tile_m) * job.col_tiles, grouped_sum_piece, &job);
    } else {
        int64_t tiles = 0;
        for (int64_t e = 0; e < job.groups; e++) tiles += cpu_div_up(job.offset[e + 1] - job.offset[e], GROUP_ROWS);
        st_cpu_run(q, tiles * job.col_tiles, grouped_rows_piece, &job);
    }
    return ST_OK;
}
