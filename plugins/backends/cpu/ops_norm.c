/* SPDX-License-Identifier: Apache-2.0 */
/* ops_norm.c - entries norm, norm_bwd, rope, qk_norm, qk_norm_bwd, colsum, sumsq. */
#include "../check/attention.h"
#include "cpu.h"

/* Rows in a piece: enough work to pay for its start; for sums over rows at most SUM_PIECES, each with its own
 * partial sums. */
enum { PIECE = 16384, SUM_PIECES = 256 };

static void cut_rows(int64_t rows, int64_t cols, int64_t *per, int64_t *pieces)
{
    *per = cpu_max(cpu_max(1, PIECE / cpu_max(1, cols)), cpu_div_up(rows, SUM_PIECES));
    *pieces = cpu_div_up(rows, *per);
}

static int check_rows_of(const st_queue *q, const char *op, const char *name, const st_tensor *t, int *real)
{
    ST_TRY(cpu_want_real(q, op, name, t, real));
    if (t->nd == 2 || t->nd == 3) return ST_OK;
    return q->fail(q, ST_E_SHAPE, "%s: %s has %d dimensions, it must have 2 or 3", op, name, (int)t->nd);
}

static int want_stat(const st_queue *q, const char *op, const char *name, const st_tensor *t, const st_tensor *r)
{
    return CHECK_TENSOR_IF(q, op, name, t, r->dtype, r->dim[0], r->nd == 3 ? r->dim[1] : 1);
}

static int want_like_if(const st_queue *q, const char *op, const char *name, const st_tensor *t, const char *like_name,
                        const st_tensor *like)
{
    return check_given(t) ? check_like(q, op, name, t, like_name, like) : ST_OK;
}

static int norm_kind(const st_queue *q, const char *op, int kind)
{
    if (kind >= ST_NORM_RMS1P && kind <= ST_NORM_LAYER) return ST_OK;
    return q->fail(q, ST_E_UNSUPPORTED, "%s: kind %d, known are %d to %d", op, kind, ST_NORM_RMS1P, ST_NORM_LAYER);
}

static cpu_view stat_view(const st_tensor *t) /* (rows, heads) with one column */
{
    cpu_view v = cpu_view_of(t);
    v.heads = v.cols;
    v.s_head = check_given(t) ? t->stride[1] : 0;
    v.cols = 1;
    return v;
}

int cpu_norm_op(const st_queue *q, const st_norm *a)
{
    const char *const op = "norm";
    int real;
    ST_TRY(norm_kind(q, op, a->kind));
    ST_TRY(check_rows_of(q, op, "r", a->r, &real));
    int64_t cols = a->r->dim[a->r->nd - 1];
    ST_TRY(want_like_if(q, op, "y", a->y, "r", a->r));
    ST_TRY(want_like_if(q, op, "r_out", a->r_out, "r", a->r));
    ST_TRY(want_like_if(q, op, "n", a->n, "r", a->r));
    ST_TRY(check_vector_if(q, op, "w", a->w, a->r->dtype, cols));
    ST_TRY(check_vector_if(q, op, "b", a->b, a->r->dtype, cols));
    ST_TRY(want_stat(q, op, "rstd", a->rstd, a->r));
    ST_TRY(want_stat(q, op, "mean", a->mean, a->r));
    cpu_norm job = {.kind = a->kind, .eps = a->eps, .r = cpu_view_of(a->r), .y = cpu_view_of(a->y),
                    .r_out = cpu_view_of(a->r_out), .n = cpu_view_of(a->n), .rstd = stat_view(a->rstd),
                    .mean = stat_view(a->mean), .w = check_given(a->w) ? a->w->data : NULL,
                    .b = check_given(a->b) ? a->b->data : NULL};
    job.rows = job.r.rows * job.r.heads;
    cut_rows(job.rows, cols, &job.rows_per, &job.pieces);
    ST_TRY(check_scratch(q, op, (size_t)cols * cpu_real_size(real), &job.factor));
    ST_TRY(check_scratch(q, op, (size_t)cols * cpu_real_size(real), &job.shift));
    q->count(q, 5.0 * (double)job.rows * (double)cols,
             check_bytes(a->r) + check_bytes(a->y) + check_bytes(a->r_out) + check_bytes(a->n));
    if (!q->planning && job.rows && cols) cpu_table_of(q, real)->norm(q, &job);
    return ST_OK;
}

int cpu_norm_bwd_op(const st_queue *q, const st_norm_bwd *a)
{
    const char *const op = "norm_bwd";
    int real;
    ST_TRY(norm_kind(q, op, a->kind));
    ST_TRY(check_rows_of(q, op, "r", a->r, &real));
    int64_t cols = a->r->dim[a->r->nd - 1];
    ST_TRY(check_like(q, op, "dn", a->dn, "r", a->r));
    ST_TRY(want_like_if(q, op, "dr", a->dr, "r", a->r));
    ST_TRY(want_like_if(q, op, "n", a->n, "r", a->r));
    ST_TRY(check_vector_if(q, op, "w", a->w, a->r->dtype, cols));
    ST_TRY(check_vector_if(q, op, "b", a->b, a->r->dtype, cols));
    ST_TRY(check_vector_if(q, op, "dw", a->dw, a->r->dtype, cols));
    ST_TRY(check_vector_if(q, op, "db", a->db, a->r->dtype, cols));
    ST_TRY(want_stat(q, op, "rstd", a->rstd, a->r));
    ST_TRY(want_stat(q, op, "mean", a->mean, a->r));
    cpu_norm job = {.kind = a->kind,
                    .add = a->add,
                    .eps = a->eps,
                    .r = cpu_view_of(a->r),
                    .dn = cpu_view_of(a->dn),
                    .dr = cpu_view_of(a->dr),
                    .n = cpu_view_of(a->n),
                    .rstd = stat_view(a->rstd),
                    .mean = stat_view(a->mean),
                    .w = check_given(a->w) ? a->w->data : NULL,
                    .b = check_given(a->b) ? a->b->data : NULL,
                    .dw = check_given(a->dw) ? a->dw->data : NULL,
                    .db = check_given(a->db) ? a->db->data : NULL};
    job.rows = job.r.rows * job.r.heads;
    cut_rows(job.rows, cols, &job.rows_per, &job.pieces);
    void *part = NULL;
    ST_TRY(check_scratch(q, op, (size_t)cols * cpu_real_size(real), &job.factor));
    ST_TRY(check_scratch(q, op, (size_t)cols * cpu_real_size(real), &job.shift));
    if (job.dw || job.db) ST_TRY(check_scratch(q, op, (size_t)(job.pieces * 2 * cols) * sizeof(double), &part));
    job.part = part;
    q->count(q, 10.0 * (double)job.rows * (double)cols,
             check_bytes(a->r) + check_bytes(a->dn) + check_bytes(a->dr) * (a->add ? 2 : 1) + check_bytes(a->n));
    if (!q->planning && job.rows && cols) cpu_table_of(q, real)->norm_bwd(q, &job);
    return ST_OK;
}

int cpu_rope(const st_queue *q, const st_rope *a)
{
    const char *const op = "rope";
    int real;
    ST_TRY(check_rows_of(q, op, "x", a->x, &real));
    int64_t dim = a->table->dim, cols = a->x->dim[a->x->nd - 1];
    if (dim == 0) return ST_OK;
    if (dim < 0 || dim % 2 || dim > cols)
        return q->fail(q, ST_E_SHAPE, "rope: %lld columns are to rotate, it must be even and at most the head's %lld",
                       (long long)dim, (long long)cols);
    ST_TRY(CHECK_TENSOR(q, op, "cos", &a->table->cos, a->x->dtype, a->x->dim[0], dim / 2));
    ST_TRY(CHECK_TENSOR(q, op, "sin", &a->table->sin, a->x->dtype, a->x->dim[0], dim / 2));
    cpu_view x = cpu_view_of(a->x);
    double pairs = (double)x.rows * (double)x.heads * (double)(dim / 2);
    q->count(q, 6 * pairs,
             4 * pairs * (double)cpu_real_size(real) + check_bytes(&a->table->cos) + check_bytes(&a->table->sin));
    if (!q->planning) cpu_table_of(q, real)->rope(q, &x, a->table, a->inverse);
    return ST_OK;
}

/* ---- head norms with rotation: their parts one after the other, so values are those of the separate ops ---- */
static int check_pair(const st_queue *q, const char *op, const st_qk_norm *a, bool backward)
{
    int real;
    ST_TRY(cpu_want_real(q, op, "q.x", a->q.x, &real));
    return check_qk_norm(q, op, a, a->q.x->dtype, backward);
}

static int norm_side(const st_queue *q, const st_qk_norm *a, const st_qk_side *s)
{
    ST_TRY(cpu_norm_op(q, &(st_norm){.kind = a->kind, .eps = a->eps, .r = s->x, .w = s->w, .n = s->y, .rstd = s->rstd}));
    return cpu_rope(q, &(st_rope){s->y, a->table, 0, 0});
}

int cpu_qk_norm(const st_queue *q, const st_qk_norm *a)
{
    ST_TRY(check_pair(q, "qk_norm", a, false));
    ST_TRY(norm_side(q, a, &a->q));
    return norm_side(q, a, &a->k);
}

static int norm_side_bwd(const st_queue *q, const st_qk_norm *a, const st_qk_side *s)
{
    ST_TRY(cpu_rope(q, &(st_rope){s->dy, a->table, 1, 0}));
    return cpu_norm_bwd_op(q, &(st_norm_bwd){.kind = a->kind, .eps = a->eps, .r = s->x, .w = s->w, .rstd = s->rstd,
                                             .dn = s->dy, .dr = s->dx, .dw = s->dw});
}

int cpu_qk_norm_bwd(const st_queue *q, const st_qk_norm *a)
{
    ST_TRY(check_pair(q, "qk_norm_bwd", a, true));
    ST_TRY(norm_side_bwd(q, a, &a->q));
    return norm_side_bwd(q, a, &a->k);
}

int cpu_colsum(const st_queue *q, const st_tensor *x, const st_tensor *out)
{
    const char *const op = "colsum";
    int real;
    int64_t per, pieces;
    void *part;
    ST_TRY(check_rows_of(q, op, "x", x, &real));
    if (!check_given(out)) return ST_OK;
    cpu_view v = cpu_view_of(x);
    ST_TRY(check_vector(q, op, "out", out, x->dtype, v.cols));
    cut_rows(v.rows * v.heads, v.cols, &per, &pieces);
    ST_TRY(check_scratch(q, op, (size_t)(pieces * v.cols) * sizeof(double), &part));
    q->count(q, (double)check_elements(x), check_bytes(x));
    if (!q->planning && pieces && v.cols) cpu_table_of(q, real)->colsum(q, &v, part, per, pieces, out->data);
    return ST_OK;
}

int cpu_sumsq(const st_queue *q, const st_tensor *x, double weight, const st_tensor *cell)
{
    const char *const op = "sumsq";
    int real;
    cpu_walk walk;
    void *part;
    ST_TRY(cpu_want_real(q, op, "x", x, &real));
    if (!check_given(cell)) return ST_OK;
    ST_TRY(check_vector(q, op, "cell", cell, x->dtype, 1));
    cpu_walk_make(&walk, 1, &x);
    ST_TRY(check_scratch(q, op, (size_t)walk.pieces * sizeof(double), &part));
    q->count(q, 2.0 * (double)check_elements(x), check_bytes(x));
    if (!q->planning) cpu_table_of(q, real)->sumsq(q, &walk, part, weight, cell->data);
    return ST_OK;
}
