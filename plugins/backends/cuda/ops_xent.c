/* SPDX-License-Identifier: Apache-2.0 */
/* ops_xent.c - entry xent: linear + cross-entropy with its gradient, in chunks of rows, so that logits exist once and never
 * in full. How many rows take part is known on the device only, so all rows of the list are walked; those that take no part
 * are rows of zeros. */
#include "ops.h"

typedef struct xent_work { int64_t n, words, hidden, chunk; void *h; size_t size; } xent_work;

static int check(const st_queue *q, const st_xent *x, cuda_xent *job, xent_work *w)
{
    const char *const op = "xent";
    ST_TRY(WANT_REAL(q, op, "h", x->h, -1, -1));
    w->n = x->h->dim[0];
    w->hidden = x->h->dim[1];
    w->size = st_dtype_size(x->h->dtype);
    ST_TRY(CHECK_TENSOR(q, op, "w", x->w, x->h->dtype, -1, w->hidden));
    w->words = x->w->dim[0];
    if (w->words < 1) return q->fail(q, ST_E_SHAPE, "xent: w has no rows");
    ST_TRY(check_vector(q, op, "labels", x->labels, ST_I32, w->n));
    job->cap = w->n;
    if (check_given(x->rows)) {
        job->cap = check_elements(x->rows);
        ST_TRY(check_vector(q, op, "rows", x->rows, ST_I32, job->cap));
    }
    ST_TRY(check_vector_if(q, op, "loss", x->loss, ST_F32, 2));
    ST_TRY(WANT_REAL_IF(q, op, "dh", x->dh, w->n, w->hidden));
    ST_TRY(CHECK_TENSOR_IF(q, op, "dw", x->dw, ST_F32, w->words, w->hidden));
    job->grad = check_given(x->dh) || check_given(x->dw);
    if (job->grad) ST_TRY(check_vector(q, op, "scale", x->scale, ST_F32, 1));
    ST_TRY(check_vector_if(q, op, "nll", x->nll, ST_F32, w->n));
    ST_TRY(check_vector_if(q, op, "best", x->best, ST_I32, w->n));
    if (w->words > INT32_MAX - CUDA_WIDE || w->n > INT32_MAX)
        return q->fail(q, ST_E_UNSUPPORTED, "xent: %lld rows and %lld words, the limit of both is %d", (long long)w->n,
                       (long long)w->words, INT32_MAX - CUDA_WIDE);
    job->s_logits = ops_div_up(w->words, CUDA_WIDE) * CUDA_WIDE;
    w->chunk = (int64_t)(x->budget / ((size_t)job->s_logits * w->size));
    w->chunk = ops_max(1, ops_min(w->chunk, job->cap));
    return ST_OK;
}

static int32_t part_type(const st_xent *x) { return x->dh->dtype == ST_F32 ? ST_F32 : x->h->dtype; }

static int take_room(const st_queue *q, const st_xent *x, cuda_xent *job, xent_work *w)
{
    const char *const op = "xent";
    size_t chunk = (size_t)w->chunk;
    void *live, *nll, *max = NULL, *sum = NULL, *best = NULL, *own = NULL;
    ST_TRY(check_scratch(q, op, (size_t)job->cap * sizeof(int32_t), &live));
    ST_TRY(check_scratch(q, op, (size_t)job->cap * sizeof(float), &nll));
    ST_TRY(check_scratch(q, op, chunk * (size_t)job->s_logits * w->size, &job->logits));
    ST_TRY(check_scratch(q, op, chunk * (size_t)w->hidden * w->size, &w->h));
    if (check_given(x->dh))
        ST_TRY(check_scratch(q, op, chunk * (size_t)w->hidden * st_dtype_size(part_type(x)), &job->dh_part));
    if (!job->uncut) {
        ST_TRY(check_scratch(q, op, chunk * sizeof(float), &max));
        ST_TRY(check_scratch(q, op, chunk * sizeof(float), &own));
        ST_TRY(check_scratch(q, op, chunk * 2 * sizeof(float), &sum));
        ST_TRY(check_scratch(q, op, chunk * sizeof(int32_t), &best));
    }
    job->live = live;
    job->nll = nll;
    job->max = max;
    job->own = own;
    job->sum = sum;
    job->best = best;
    return ST_OK;
}

static int over_ranks(const st_xent *x, uint32_t what, void *data, int64_t rows, int64_t cols)
{
    st_tensor t = st_tensor2(data, ST_F32, rows, cols);
    return st_collective(x->step, what, x->group, &t, &t);
}

/* What the ranks of a cut vocabulary tell each other about a chunk: the largest logits, then the sums and who has the
 * best word. */
static int reduce_largest(const st_xent *x, const cuda_xent *job)
{
    return over_ranks(x, ST_ALL_REDUCE_MAX, job->max, job->count, 1);
}
static int reduce_sums(const st_xent *x, const cuda_xent *job)
{
    ST_TRY(over_ranks(x, ST_ALL_REDUCE, job->sum, job->count, 2));
    return check_given(x->best) ? over_ranks(x, ST_ALL_REDUCE_MAX, job->own, job->count, 1) : ST_OK;
}

static int chunk_losses(const st_queue *q, const st_xent *x, const cuda_xent *job)
{
    const cuda_table *table = cuda_table_of(q);
    if (job->uncut) return table->xent_rows(q, job, CUDA_XENT_WHOLE);
    ST_TRY(table->xent_rows(q, job, CUDA_XENT_SEE));
    ST_TRY(reduce_largest(x, job));
    ST_TRY(table->xent_rows(q, job, CUDA_XENT_SHIFT));
    ST_TRY(reduce_sums(x, job));
    return table->xent_rows(q, job, CUDA_XENT_CUT);
}

static cuda_product product_of(const st_xent *x, const void *a, int64_t lda, int trans_a, const void *b, int64_t ldb,
                               int trans_b, int64_t m, int64_t n, int64_t k)
{
    return (cuda_product){.a = a, .b = b, .m = m, .n = n, .k = k, .batch = 1, .lda = lda, .ldb = ldb,
                          .type = x->h->dtype, .trans_a = trans_a, .trans_b = trans_b, .alpha = 1};
}

static int gather_rows(const st_queue *q, const st_xent *x, const cuda_xent *job, const xent_work *w)
{
    st_tensor index = st_tensor2(job->live + job->at, ST_I32, job->count, 1),
              h = st_tensor2(w->h, x->h->dtype, job->count, w->hidden);
    return cuda_gather(q, x->h, &index, &h);
}

static int one_chunk(const st_queue *q, const st_xent *x, const cuda_xent *job, const xent_work *w)
{
    int64_t rows = job->count, ldw = w->words > 1 ? x->w->stride[0] : w->hidden;
    cuda_product logits = product_of(x, w->h, w->hidden, 0, x->w->data, ldw, 1, rows, w->words, w->hidden);
    logits.c = job->logits;
    logits.ldc = job->s_logits;
    logits.type_c = x->h->dtype;
    ST_TRY(gather_rows(q, x, job, w));
    ST_TRY(run_product(q, &logits));
    ST_TRY(chunk_losses(q, x, job));
    if (job->dh_part) {
        cuda_product dh = product_of(x, job->logits, job->s_logits, 0, x->w->data, ldw, 0, rows, w->hidden, w->words);
        dh.c = job->dh_part;
        dh.ldc = w->hidden;
        dh.type_c = part_type(x);
        ST_TRY(run_product(q, &dh));
        ST_TRY(cuda_table_of(q)->xent_add(q, job));
    }
    if (!check_given(x->dw)) return ST_OK;
    cuda_product dw = product_of(x, job->logits, job->s_logits, 1, w->h, w->hidden, 0, w->words, w->hidden, rows);
    dw.c = x->dw->data;
    dw.ldc = w->words > 1 ? x->dw->stride[0] : w->hidden;
    dw.type_c = ST_F32;
    dw.beta = job->at == 0 ? x->beta : 1;
    return run_product(q, &dw);
}

static void count(const st_queue *q, const st_xent *x, const cuda_xent *job, const xent_work *w)
{
    double products = 1 + (check_given(x->dh) ? 1 : 0) + (check_given(x->dw) ? 1 : 0), rows = (double)job->cap;
    q->count(q, 2 * products * rows * (double)w->words * (double)w->hidden,
             check_bytes(x->w) * products + check_bytes(x->dw) + 2 * rows * (double)w->hidden * (double)w->size);
}

static int plan(const st_xent *x, cuda_xent *job, const xent_work *w)
{
    for (job->at = 0; !job->uncut && job->at < job->cap; job->at += w->chunk) {
        job->count = ops_min(w->chunk, job->cap - job->at);
        ST_TRY(reduce_largest(x, job));
        ST_TRY(reduce_sums(x, job));
    }
    return ST_OK;
}

int cuda_xent_op(const st_queue *q, const st_xent *x)
{
    cuda_xent job = {.weight = x->weight, .first = x->first, .uncut = x->group == ST_G_NONE};
    xent_work w = {0};
    ST_TRY(check(q, x, &job, &w));
    ST_TRY(take_room(q, x, &job, &w));
    count(q, x, &job, &w);
    if (q->planning) return plan(x, &job, &w);
    job.rows = check_given(x->rows) ? x->rows->data : NULL;
    job.labels = x->labels->data;
    job.n = w.n;
    job.words = w.words;
    job.type = x->h->dtype;
    if (job.grad) job.scale = x->scale->data;
    job.dh = view_of(x->dh);
    if (job.dh_part) job.type_part = part_type(x);
    job.nll_out = check_given(x->nll) ? x->nll->data : NULL;
    job.best_out = check_given(x->best) ? x->best->data : NULL;
    job.loss = check_given(x->loss) ? x->loss->data : NULL;
    if (!job.cap) { /* the sum over no rows */
        cuda_product none = product_of(x, w.h, w.words, 1, w.h, w.hidden, 0, w.words, w.hidden, 0);
        if (!check_given(x->dw)) return ST_OK;
        none.c = x->dw->data;
        none.ldc = w.words > 1 ? x->dw->stride[0] : w.hidden;
        none.type_c = ST_F32;
        none.beta = x->beta;
        return run_product(q, &none);
    }
    ST_TRY(cuda_table_of(q)->xent_live(q, &job));
    for (job.at = 0; job.at < job.cap; job.at += w.chunk) {
        job.count = ops_min(w.chunk, job.cap - job.at);
        ST_TRY(one_chunk(q, x, &job, &w));
    }
    return job.loss ? cuda_table_of(q)->xent_loss(q, &job) : ST_OK;
}
