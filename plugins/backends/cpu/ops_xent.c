/* SPDX-License-Identifier: Apache-2.0 */
/* ops_xent.c - entry xent: linear + cross-entropy with its gradient, in chunks of rows, so that logits exist once
 * and never in full. Only rows that take part are multiplied: they are packed first, in their order. */
#include "cpu.h"

typedef struct xent_work {
    int64_t n, words, hidden, cap, chunk;
    int32_t *live;
    void *logits, *h, *dh, *max, *sum, *low; /* low [chunk]: minus the best word, for the largest over ranks */
    double *nll;
    int32_t *best;
    bool grad;
    void *work; /* of a product */
    size_t work_bytes;
} xent_work;

static int check(const st_queue *q, const st_xent *x, int *real, xent_work *w)
{
    const char *const op = "xent";
    ST_TRY(cpu_want_real(q, op, "h", x->h, real));
    int32_t type = x->h->dtype;
    ST_TRY(CHECK_TENSOR(q, op, "h", x->h, type, -1, -1));
    w->n = x->h->dim[0];
    w->hidden = x->h->dim[1];
    ST_TRY(CHECK_TENSOR(q, op, "w", x->w, type, -1, w->hidden));
    w->words = x->w->dim[0];
    if (w->words < 1) return q->fail(q, ST_E_SHAPE, "xent: w has no rows");
    ST_TRY(check_vector(q, op, "labels", x->labels, ST_I32, w->n));
    w->cap = w->n;
    if (check_given(x->rows)) {
        w->cap = check_elements(x->rows);
        ST_TRY(check_vector(q, op, "rows", x->rows, ST_I32, w->cap));
    }
    ST_TRY(check_vector_if(q, op, "loss", x->loss, type, 2));
    ST_TRY(CHECK_TENSOR_IF(q, op, "dh", x->dh, type, w->n, w->hidden));
    ST_TRY(CHECK_TENSOR_IF(q, op, "dw", x->dw, type, w->words, w->hidden));
    w->grad = check_given(x->dh) || check_given(x->dw);
    if (w->grad) ST_TRY(check_vector(q, op, "scale", x->scale, type, 1));
    ST_TRY(check_vector_if(q, op, "nll", x->nll, type, w->n));
    ST_TRY(check_vector_if(q, op, "best", x->best, ST_I32, w->n));
    w->chunk = (int64_t)(x->budget / ((size_t)w->words * cpu_real_size(*real)));
    w->chunk = cpu_max(1, cpu_min(w->chunk, w->cap));
    return ST_OK;
}

/* c = a b (+ beta c); b transposed: tb, a: ta */
static cpu_product shape(int real, int ta, int tb, int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb,
                         int64_t ldc, bool panels)
{
    cpu_product p = {.real = real, .trans_a = ta, .trans_b = tb, .m = m, .n = n, .k = k, .batch = 1, .lda = lda,
                     .ldb = ldb, .ldc = ldc, .alpha = 1};
    cpu_product_plan(&p, panels);
    return p;
}

/* The three products of a chunk of rows */
static cpu_product logits_of(const st_xent *x, const xent_work *w, int real, int64_t rows)
{
    return shape(real, 0, 1, rows, w->words, w->hidden, w->hidden, x->w->stride[0], w->words, true);
}
static cpu_product dh_of(const st_xent *x, const xent_work *w, int real, int64_t rows)
{
    return shape(real, 0, 0, rows, w->hidden, w->words, w->words, x->w->stride[0], w->hidden, true);
}
static cpu_product dw_of(const st_xent *x, const xent_work *w, int real, int64_t rows)
{
    return shape(real, 1, 0, w->words, w->hidden, rows, w->words, w->hidden, x->dw->stride[0], true);
}

static int take_work(const st_queue *q, const st_xent *x, int real, xent_work *w)
{
    cpu_product p[3] = {logits_of(x, w, real, w->chunk)};
    int n = 1;
    if (check_given(x->dh)) p[n++] = dh_of(x, w, real, w->chunk);
    if (check_given(x->dw)) p[n++] = dw_of(x, w, real, w->chunk);
    while (n--)
        if (p[n].parts == 1 && cpu_product_work(&p[n]) > w->work_bytes) w->work_bytes = cpu_product_work(&p[n]);
    return check_scratch(q, "xent", w->work_bytes, &w->work);
}

static int take_room(const st_queue *q, const st_xent *x, int real, xent_work *w)
{
    const char *const op = "xent";
    size_t size = cpu_real_size(real), chunk = (size_t)w->chunk;
    void *p;
    ST_TRY(check_scratch(q, op, (size_t)w->cap * sizeof(int32_t), &p));
    w->live = p;
    ST_TRY(check_scratch(q, op, chunk * (size_t)w->words * size, &w->logits));
    ST_TRY(check_scratch(q, op, chunk * (size_t)w->hidden * size, &w->h));
    if (check_given(x->dh)) ST_TRY(check_scratch(q, op, chunk * (size_t)w->hidden * size, &w->dh));
    ST_TRY(check_scratch(q, op, chunk * size, &w->max));
    ST_TRY(check_scratch(q, op, chunk * 2 * size, &w->sum));
    ST_TRY(check_scratch(q, op, chunk * sizeof(double), &p));
    w->nll = p;
    if (check_given(x->best)) {
        ST_TRY(check_scratch(q, op, chunk * sizeof(int32_t), &p));
        w->best = p;
        if (x->group != ST_G_NONE) ST_TRY(check_scratch(q, op, chunk * size, &w->low));
    }
    return take_work(q, x, real, w);
}

/* Rows that take part, in their order. A label outside an uncut vocabulary is a fault. */
static int64_t pack_rows(const st_queue *q, const st_xent *x, const xent_work *w)
{
    const int32_t *rows = check_given(x->rows) ? x->rows->data : NULL, *labels = x->labels->data;
    int64_t live = 0;
    for (int64_t i = 0; i < w->cap; i++) {
        int64_t row = rows ? rows[i] : i;
        if (row < 0) continue;
        if (row >= w->n) {
            cpu_fault(q, ST_FAULT_RANGE, row, w->n);
            continue;
        }
        if (labels[row] < 0) continue;
        if (x->group == ST_G_NONE && (labels[row] < x->first || labels[row] >= x->first + w->words)) {
            cpu_fault(q, ST_FAULT_RANGE, labels[row], x->first + w->words);
            continue;
        }
        w->live[live++] = (int32_t)row;
    }
    return live;
}

/* k is never cut into parts here: chunks of rows do that. */
static void product(const st_queue *q, const xent_work *w, cpu_product p, const void *a, const void *b, double beta,
                    void *c)
{
    if (p.parts > 1 || cpu_product_work(&p) > w->work_bytes) {
        cpu_product_plan(&p, false);
        p.parts = 1;
    }
    p.a = a;
    p.b = b;
    p.c = c;
    p.beta = beta;
    p.work = cpu_product_work(&p) ? w->work : NULL;
    cpu_product_run(q, &p);
}

static int over_ranks(const st_xent *x, uint32_t what, void *data, int32_t type, int64_t rows, int64_t cols)
{
    st_tensor t = st_tensor2(data, type, rows, cols);
    return st_collective(x->step, what, x->group, &t, &t);
}

static double get(const void *p, int real, int64_t i)
{
    return real == CPU_F32 ? ((const float *)p)[i] : ((const double *)p)[i];
}
static void put(void *p, int real, int64_t i, double value)
{
    if (real == CPU_F32) ((float *)p)[i] = (float)value;
    else ((double *)p)[i] = value;
}

/* Largest logit over ranks, and the word that has it: the lowest one on a tie. A rank without it offers a word that
 * no vocabulary reaches; words are exact in f32 below that. */
static int max_over_ranks(const st_xent *x, const xent_work *w, int real, int64_t rows)
{
    const double none = -(double)(1 << 24);
    int32_t type = cpu_real_type(real);
    for (int64_t i = 0; w->low && i < rows; i++) put(w->low, real, i, get(w->max, real, i));
    ST_TRY(over_ranks(x, ST_ALL_REDUCE_MAX, w->max, type, rows, 1));
    if (!w->low) return ST_OK;
    for (int64_t i = 0; i < rows; i++)
        put(w->low, real, i, get(w->low, real, i) == get(w->max, real, i) ? -(double)w->best[i] : none);
    ST_TRY(over_ranks(x, ST_ALL_REDUCE_MAX, w->low, type, rows, 1));
    for (int64_t i = 0; i < rows; i++) w->best[i] = (int32_t)-get(w->low, real, i);
    return ST_OK;
}

static int chunk_losses(const st_queue *q, const st_xent *x, const xent_work *w, int real, cpu_xent *job)
{
    const cpu_table *table = cpu_table_of(q, real);
    if (x->group == ST_G_NONE) {
        table->xent(q, job, CPU_XENT_MAX | CPU_XENT_SUM | CPU_XENT_GRAD);
        return ST_OK;
    }
    table->xent(q, job, CPU_XENT_MAX);
    ST_TRY(max_over_ranks(x, w, real, job->rows));
    table->xent(q, job, CPU_XENT_SUM);
    ST_TRY(over_ranks(x, ST_ALL_REDUCE, w->sum, cpu_real_type(real), job->rows, 2));
    table->xent(q, job, CPU_XENT_GRAD);
    return ST_OK;
}

/* Rows live[0 .. rows) of one chunk: loss, then gradients. `first`: dw still holds what beta applies to. */
static int one_chunk(const st_queue *q, const st_xent *x, const xent_work *w, int real, const int32_t *live,
                     int64_t rows, bool first, double *loss)
{
    st_tensor index = st_tensor2((void *)(uintptr_t)live, ST_I32, rows, 1),
              h = st_tensor2(w->h, x->h->dtype, rows, w->hidden);
    cpu_xent job = {.logits = w->logits,
                    .rows = rows,
                    .words = w->words,
                    .first = x->first,
                    .live = live,
                    .labels = x->labels->data,
                    .max = w->max,
                    .sum = w->sum,
                    .nll = w->nll,
                    .best = w->best,
                    .grad = w->grad};
    if (w->grad) job.factor = x->weight * get(x->scale->data, real, 0);
    cpu_gather_rows(q, x->h, &index, &h);
    product(q, w, logits_of(x, w, real, rows), w->h, x->w->data, 0, w->logits);
    ST_TRY(chunk_losses(q, x, w, real, &job));
    for (int64_t i = 0; i < rows; i++) {
        *loss += w->nll[i];
        if (check_given(x->nll)) put(x->nll->data, real, live[i], w->nll[i]);
        if (w->best) ((int32_t *)x->best->data)[live[i]] = w->best[i];
    }
    if (w->dh) {
        product(q, w, dh_of(x, w, real, rows), w->logits, x->w->data, 0, w->dh);
        cpu_table_of(q, real)->add_rows(q, rows, live, w->dh, w->hidden, x->dh->data, x->dh->stride[0], w->hidden);
    }
    if (check_given(x->dw))
        product(q, w, dw_of(x, w, real, rows), w->logits, w->h, first ? (double)x->beta : 1, x->dw->data);
    return ST_OK;
}

/* Work of `live` rows. */
static void count(const st_queue *q, const st_xent *x, const xent_work *w, double live)
{
    double products = 1 + (check_given(x->dh) ? 1 : 0) + (check_given(x->dw) ? 1 : 0);
    q->count(q, 2 * products * live * (double)w->words * (double)w->hidden,
             check_bytes(x->w) * products + check_bytes(x->dw) +
                 2 * live * (double)w->hidden * (double)st_dtype_size(x->h->dtype));
}

static int plan(const st_queue *q, const st_xent *x, const xent_work *w)
{
    count(q, x, w, (double)w->cap);
    for (int64_t at = 0; x->group != ST_G_NONE && at < w->cap; at += w->chunk) {
        ST_TRY(over_ranks(x, ST_ALL_REDUCE_MAX, w->max, x->h->dtype, w->chunk, 1));
        if (w->low) ST_TRY(over_ranks(x, ST_ALL_REDUCE_MAX, w->low, x->h->dtype, w->chunk, 1));
        ST_TRY(over_ranks(x, ST_ALL_REDUCE, w->sum, x->h->dtype, w->chunk, 2));
    }
    return ST_OK;
}

int cpu_xent_op(const st_queue *q, const st_xent *x)
{
    int real;
    xent_work w = {0};
    double loss = 0;
    ST_TRY(check(q, x, &real, &w));
    ST_TRY(take_room(q, x, real, &w));
    if (q->planning) return plan(q, x, &w);
    int64_t live = pack_rows(q, x, &w);
    count(q, x, &w, (double)live);
    for (int64_t at = 0; at < live; at += w.chunk)
        ST_TRY(one_chunk(q, x, &w, real, w.live + at, cpu_min(w.chunk, live - at), at == 0, &loss));
    if (!live && check_given(x->dw) && x->beta != 1)
        product(q, &w, dw_of(x, &w, real, 0), w.logits, w.h, x->beta, x->dw->data);
    if (check_given(x->loss)) {
        put(x->loss->data, real, 0, get(x->loss->data, real, 0) + loss);
        put(x->loss->data, real, 1, get(x->loss->data, real, 1) + (double)live);
    }
    return ST_OK;
}
