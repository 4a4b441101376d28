/* SPDX-License-Identifier: Apache-2.0 */
/* ops_norm.c - entries norm, norm_bwd, rope, qk_norm, qk_norm_bwd and colsum. */
#include "../check/attention.h"
#include "ops.h"

/* Pieces of rows whose sums are added in order: as a function of the number of rows alone. */
enum { ROWS_IN_PIECE = 64, MOST_PIECES = 256 };

static void cut_rows(int64_t rows, int64_t *per, int64_t *pieces)
{
    *per = ops_max(ROWS_IN_PIECE, ops_div_up(rows, MOST_PIECES));
    *pieces = ops_div_up(rows, *per);
}

/* For the sums of norm's backward, which a block makes beside its rows: as many pieces as a large chip has room for at once,
 * eight rows at a time. */
static void cut_normed_rows(int64_t rows, int64_t cols, int64_t *per, int64_t *pieces)
{
    enum { AT_ONCE = 8, SHORT_ROW = 512, MOST = 2 * 132, MOST_OF_SHORT = 4 * 132 };
    int64_t most = cols <= SHORT_ROW ? MOST_OF_SHORT : MOST;
    *per = AT_ONCE * ops_max(1, ops_div_up(rows, AT_ONCE * most));
    *pieces = ops_div_up(rows, *per);
}

static int want_rows(const st_queue *q, const char *op, const char *name, const st_tensor *t)
{
    if (!check_given(t)) return q->fail(q, ST_E_SHAPE, "%s: %s is absent", op, name);
    ST_TRY(want_real_like(q, op, name, t, name, t));
    if (t->nd == 2 || t->nd == 3) return ST_OK;
    return q->fail(q, ST_E_SHAPE, "%s: %s has %d dimensions, it must have 2 or 3", op, name, (int)t->nd);
}

static int want_stat(const st_queue *q, const char *op, const char *name, const st_tensor *t, const st_tensor *r)
{
    return CHECK_TENSOR_IF(q, op, name, t, ST_F32, r->dim[0], r->nd == 3 ? r->dim[1] : 1);
}

static int norm_kind(const st_queue *q, const char *op, int kind)
{
    if (kind >= ST_NORM_RMS1P && kind <= ST_NORM_LAYER) return ST_OK;
    return q->fail(q, ST_E_UNSUPPORTED, "%s: kind %d, known are %d to %d", op, kind, ST_NORM_RMS1P, ST_NORM_LAYER);
}

static cuda_view stat_view(const st_tensor *t) /* (rows, heads) with one column */
{
    cuda_view v = view_of(t);
    v.heads = v.cols;
    v.s_head = check_given(t) ? t->stride[1] : 0;
    v.cols = 1;
    return v;
}

static bool wide_vector(const st_tensor *t) { return !check_given(t) || (uintptr_t)t->data % 16 == 0; }

static void take_weights(cuda_norm *job, const st_tensor *w, const st_tensor *b)
{
    if (check_given(w)) {
        job->w = w->data;
        job->w_type = w->dtype;
    }
    if (check_given(b)) {
        job->b = b->data;
        job->b_type = b->dtype;
    }
    job->rows = job->r.rows * job->r.heads;
    job->wide = wide_view(&job->r) && wide_view(&job->y) && wide_view(&job->r_out) && wide_view(&job->n) &&
                wide_view(&job->dn) && wide_view(&job->dr) && wide_vector(w) && wide_vector(b);
}

int cuda_norm_op(const st_queue *q, const st_norm *a)
{
    const char *const op = "norm";
    ST_TRY(norm_kind(q, op, a->kind));
    ST_TRY(want_rows(q, op, "r", a->r));
    int64_t cols = a->r->dim[a->r->nd - 1];
    ST_TRY(want_real_like_if(q, op, "y", a->y, "r", a->r));
    ST_TRY(want_real_like_if(q, op, "r_out", a->r_out, "r", a->r));
    ST_TRY(want_real_like_if(q, op, "n", a->n, "r", a->r));
    ST_TRY(want_real_vector_if(q, op, "w", a->w, cols));
    ST_TRY(want_real_vector_if(q, op, "b", a->b, cols));
    ST_TRY(want_stat(q, op, "rstd", a->rstd, a->r));
    ST_TRY(want_stat(q, op, "mean", a->mean, a->r));
    q->count(q, 5.0 * (double)check_elements(a->r),
             check_bytes(a->r) + check_bytes(a->y) + check_bytes(a->r_out) + check_bytes(a->n));
    if (q->planning || !check_elements(a->r)) return ST_OK;
    cuda_norm job = {.kind = a->kind, .eps = a->eps, .r = view_of(a->r), .y = view_of(a->y),
                     .r_out = view_of(a->r_out), .n = view_of(a->n), .rstd = stat_view(a->rstd),
                     .mean = stat_view(a->mean)};
    take_weights(&job, a->w, a->b);
    return cuda_table_of(q)->norm(q, &job);
}

static cuda_view own_stat(void *data, const cuda_view *r) /* scratch [rows][heads] */
{
    return (cuda_view){data, r->rows, r->heads, 1, r->heads, 1, ST_F32, 0};
}

/* The row's statistics, computed once more where forward did not keep them. */
static int again(const st_queue *q, cuda_norm *job, void *rstd, void *mean)
{
    cuda_norm stats = {.kind = job->kind, .eps = job->eps, .r = job->r, .rows = job->rows, .wide = job->wide};
    if (rstd) stats.rstd = job->rstd = own_stat(rstd, &job->r);
    if (mean) stats.mean = job->mean = own_stat(mean, &job->r);
    return rstd || mean ? cuda_table_of(q)->norm(q, &stats) : ST_OK;
}

int cuda_norm_bwd_op(const st_queue *q, const st_norm_bwd *a)
{
    const char *const op = "norm_bwd";
    ST_TRY(norm_kind(q, op, a->kind));
    ST_TRY(want_rows(q, op, "r", a->r));
    int64_t cols = a->r->dim[a->r->nd - 1], rows = a->r->dim[0] * (a->r->nd == 3 ? a->r->dim[1] : 1), per, pieces;
    if (!check_given(a->dn)) return q->fail(q, ST_E_SHAPE, "norm_bwd: dn is absent, it must be like r");
    ST_TRY(want_real_like(q, op, "dn", a->dn, "r", a->r));
    ST_TRY(want_real_like_if(q, op, "dr", a->dr, "r", a->r));
    ST_TRY(want_real_like_if(q, op, "n", a->n, "r", a->r));
    ST_TRY(want_real_vector_if(q, op, "w", a->w, cols));
    ST_TRY(want_real_vector_if(q, op, "b", a->b, cols));
    ST_TRY(check_vector_if(q, op, "dw", a->dw, ST_F32, cols));
    ST_TRY(check_vector_if(q, op, "db", a->db, ST_F32, cols));
    ST_TRY(want_stat(q, op, "rstd", a->rstd, a->r));
    ST_TRY(want_stat(q, op, "mean", a->mean, a->r));
    void *part = NULL, *rstd = NULL, *mean = NULL;
    cut_normed_rows(rows, cols, &per, &pieces);
    if (!check_given(a->rstd)) ST_TRY(check_scratch(q, op, (size_t)rows * sizeof(float), &rstd));
    if (!check_given(a->mean) && a->kind == ST_NORM_LAYER)
        ST_TRY(check_scratch(q, op, (size_t)rows * sizeof(float), &mean));
    if (check_given(a->dw) || check_given(a->db))
        ST_TRY(check_scratch(q, op, (size_t)(pieces * 2 * cols) * sizeof(double), &part));
    q->count(q, 10.0 * (double)rows * (double)cols,
             check_bytes(a->r) + check_bytes(a->dn) + check_bytes(a->dr) * (a->add ? 2 : 1) + check_bytes(a->n));
    if (q->planning || !rows || !cols) return ST_OK;
    cuda_norm job = {.kind = a->kind, .add = a->add, .eps = a->eps, .r = view_of(a->r), .dn = view_of(a->dn),
                     .dr = view_of(a->dr), .n = view_of(a->n), .rstd = stat_view(a->rstd), .mean = stat_view(a->mean),
                     .dw = check_given(a->dw) ? a->dw->data : NULL, .db = check_given(a->db) ? a->db->data : NULL,
                     .part = part, .per = per, .pieces = pieces};
    take_weights(&job, a->w, a->b);
    ST_TRY(again(q, &job, rstd, mean));
    return cuda_table_of(q)->norm_bwd(q, &job);
}

int cuda_rope_op(const st_queue *q, const st_rope *a)
{
    const char *const op = "rope";
    ST_TRY(want_rows(q, op, "x", a->x));
    int64_t dim = a->table->dim, cols = a->x->dim[a->x->nd - 1];
    if (dim == 0) return ST_OK;
    if (dim < 0 || dim % 2 || dim > cols)
        return q->fail(q, ST_E_SHAPE, "rope: %lld columns are to rotate, it must be even and at most the head's %lld",
                       (long long)dim, (long long)cols);
    ST_TRY(CHECK_TENSOR(q, op, "cos", &a->table->cos, ST_F32, a->x->dim[0], dim / 2));
    ST_TRY(CHECK_TENSOR(q, op, "sin", &a->table->sin, ST_F32, a->x->dim[0], dim / 2));
    cuda_rope job = {.x = view_of(a->x), .cos = a->table->cos.data, .sin = a->table->sin.data,
                     .s_cos = a->table->cos.stride[0], .s_sin = a->table->sin.stride[0], .half = dim / 2,
                     .interleaved = a->table->interleaved, .inverse = a->inverse};
    double pairs = (double)job.x.rows * (double)job.x.heads * (double)job.half;
    q->count(q, 6 * pairs,
             4 * pairs * (double)st_dtype_size(a->x->dtype) + check_bytes(&a->table->cos) + check_bytes(&a->table->sin));
    if (q->planning || pairs < 1) return ST_OK;
    return cuda_table_of(q)->rope(q, &job);
}

/* ---- head norms with rotation ---- */
static cuda_qk_side side_of(const st_qk_side *s)
{
    return (cuda_qk_side){.x = view_of(s->x), .y = view_of(s->y), .rstd = stat_view(s->rstd), .dy = view_of(s->dy),
                          .dx = view_of(s->dx), .w = s->w->data, .dw = check_given(s->dw) ? s->dw->data : NULL};
}
static bool wide_side(const cuda_qk_side *s)
{
    return wide_view(&s->x) && wide_view(&s->y) && wide_view(&s->dy) && wide_view(&s->dx) && (uintptr_t)s->w % 16 == 0;
}
/* Halves of whole eights, aligned in the tables. */
static bool wide_table(const st_rotary *table)
{
    const st_tensor *const t[] = {&table->cos, &table->sin};
    bool wide = !table->interleaved && table->dim % (2 * CUDA_WIDE) == 0;
    for (int i = 0; i < 2 && table->dim; i++)
        wide = wide && ((uintptr_t)t[i]->data | (uintptr_t)t[i]->stride[0] * sizeof(float)) % 16 == 0;
    return wide || !table->dim;
}

enum { MOST_COLS = 256 }; /* eight for each thread of a warp */

static int qk_check(const st_queue *q, const char *op, const st_qk_norm *a, bool backward, cuda_qk *job)
{
    const st_rotary *t = a->table;
    ST_TRY(WANT_REAL(q, op, "q.x", a->q.x, -1, -1, -1));
    ST_TRY(check_qk_norm(q, op, a, ST_F32, backward));
    *job = (cuda_qk){.kind = a->kind, .interleaved = t->interleaved, .eps = a->eps, .q = side_of(&a->q), .k = side_of(&a->k),
                     .half = t->dim / 2};
    if (t->dim) {
        job->cos = t->cos.data;
        job->sin = t->sin.data;
        job->s_cos = t->cos.stride[0];
        job->s_sin = t->sin.stride[0];
    }
    job->wide = wide_side(&job->q) && wide_side(&job->k);
    job->together = job->wide && wide_table(t) && job->q.x.cols <= MOST_COLS && job->q.x.rows <= INT32_MAX;
    return ST_OK;
}

/* The norm's operations as its own op counts them, and 6 for a pair that is rotated. */
static void qk_count(const st_queue *q, const st_qk_norm *a, const cuda_qk *job, double flops, double tensors)
{
    double heads = (double)job->q.x.rows * (double)(job->q.x.heads + job->k.x.heads);
    double bytes = check_bytes(a->q.x) + check_bytes(a->k.x), table = 0;
    if (a->table->dim) table = check_bytes(&a->table->cos) + check_bytes(&a->table->sin);
    q->count(q, heads * (flops * (double)job->q.x.cols + 6 * (double)job->half), tensors * bytes + table);
}

int cuda_qk_norm_op(const st_queue *q, const st_qk_norm *a)
{
    cuda_qk job;
    ST_TRY(qk_check(q, "qk_norm", a, false, &job));
    qk_count(q, a, &job, 5, 2);
    if (q->planning || !job.q.x.rows || !job.q.x.cols) return ST_OK;
    return cuda_table_of(q)->qk_norm(q, &job);
}

int cuda_qk_norm_bwd_op(const st_queue *q, const st_qk_norm *a)
{
    const char *const op = "qk_norm_bwd";
    cuda_qk job;
    void *part = NULL;
    ST_TRY(qk_check(q, op, a, true, &job));
    cut_normed_rows(job.q.x.rows, job.q.x.cols, &job.per, &job.pieces);
    if (job.q.dw || job.k.dw)
        ST_TRY(check_scratch(q, op, (size_t)(job.pieces * 2 * job.q.x.cols) * sizeof(double), &part));
    job.part = part;
    qk_count(q, a, &job, 10, 3);
    if (q->planning || !job.q.x.rows || !job.q.x.cols) return ST_OK;
    return cuda_table_of(q)->qk_norm_bwd(q, &job);
}

int cuda_colsum(const st_queue *q, const st_tensor *x, const st_tensor *out)
{
    cuda_sums job;
    void *part;
    ST_TRY(want_rows(q, "colsum", "x", x));
    if (!check_given(out)) return ST_OK;
    job.x = view_of(x);
    ST_TRY(check_vector(q, "colsum", "out", out, ST_F32, job.x.cols));
    cut_rows(job.x.rows * job.x.heads, &job.per, &job.pieces);
    ST_TRY(check_scratch(q, "colsum", (size_t)(job.pieces * job.x.cols) * sizeof(double), &part));
    q->count(q, (double)check_elements(x), check_bytes(x));
    if (q->planning || !job.pieces || !job.x.cols) return ST_OK;
    job.part = part;
    job.out = out->data;
    return cuda_table_of(q)->colsum(q, &job);
}
