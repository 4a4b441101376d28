/* SPDX-License-Identifier: Apache-2.0 */
/* mock_ops.c - the backend operations that layers use, as plain loops over double: slow, obvious, any stride. And what
 * needs no host: random numbers, distances, threads. */
#include "mock_host.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

static size_t place(const st_tensor *t, int64_t i, int64_t j, int64_t k)
{
    return (size_t)(i * t->stride[0] + (t->nd == 3 ? j * t->stride[1] + k : j));
}
double mock_get(const st_tensor *t, int64_t i, int64_t j, int64_t k)
{
    return t->dtype == ST_F64 ? ((const double *)t->data)[place(t, i, j, k)]
                              : (double)((const float *)t->data)[place(t, i, j, k)];
}
void mock_set(const st_tensor *t, int64_t i, int64_t j, int64_t k, double value)
{
    if (!t->data) return;
    if (t->dtype == ST_F64) ((double *)t->data)[place(t, i, j, k)] = value;
    else ((float *)t->data)[place(t, i, j, k)] = (float)value;
}
static double vector(const st_tensor *t, int64_t i) /* element of a one-dimensional weight */
{
    return t->dtype == ST_F64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
}
static int64_t width(const st_tensor *t) { return t->nd == 3 ? t->dim[2] : 1; }
#define EACH(t, i, j, k) \
    for (int64_t i = 0; i < (t)->dim[0]; i++) \
        for (int64_t j = 0; j < (t)->dim[1]; j++) \
            for (int64_t k = 0; k < width(t); k++)

double mock_act(int32_t act, double x)
{
    const double c = sqrt(2 / M_PI);
    switch (act) {
    case ST_ACT_SILU: return x / (1 + exp(-x));
    case ST_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(c * (x + 0.044715 * x * x * x)));
    case ST_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ST_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case ST_ACT_RELU2: return x > 0 ? x * x : 0;
    default: return x;
    }
}
double mock_act_slope(int32_t act, double x)
{
    const double c = sqrt(2 / M_PI), s = 1 / (1 + exp(-x)), t = tanh(c * (x + 0.044715 * x * x * x));
    switch (act) {
    case ST_ACT_SILU: return s * (1 + x * (1 - s));
    case ST_ACT_GELU_TANH: return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
    case ST_ACT_GELU_ERF: return 0.5 * (1 + erf(x / sqrt(2))) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
    case ST_ACT_SIGMOID: return s * (1 - s);
    case ST_ACT_RELU2: return x > 0 ? 2 * x : 0;
    default: return 1;
    }
}

static int op_glu(const st_queue *q, int act, const st_tensor *g, const st_tensor *u, const st_tensor *y)
{
    if (q->planning) return ST_OK;
    EACH(y, i, j, k) mock_set(y, i, j, k, mock_act(act, mock_get(g, i, j, k)) * mock_get(u, i, j, k));
    return ST_OK;
}
static int op_glu_bwd(const st_queue *q, int act, const st_tensor *g, const st_tensor *u, const st_tensor *dy,
                      const st_tensor *dg, const st_tensor *du)
{
    if (q->planning) return ST_OK;
    EACH(dy, i, j, k)
    {
        const double vg = mock_get(g, i, j, k), vu = mock_get(u, i, j, k), d = mock_get(dy, i, j, k);
        mock_set(dg, i, j, k, d * vu * mock_act_slope(act, vg));
        mock_set(du, i, j, k, d * mock_act(act, vg));
    }
    return ST_OK;
}
static int op_act(const st_queue *q, int act, const st_tensor *x, const st_tensor *y)
{
    if (q->planning) return ST_OK;
    EACH(y, i, j, k) mock_set(y, i, j, k, mock_act(act, mock_get(x, i, j, k)));
    return ST_OK;
}
static int op_act_bwd(const st_queue *q, int act, const st_tensor *x, const st_tensor *dy, const st_tensor *dx)
{
    if (q->planning) return ST_OK;
    EACH(dx, i, j, k) mock_set(dx, i, j, k, mock_get(dy, i, j, k) * mock_act_slope(act, mock_get(x, i, j, k)));
    return ST_OK;
}
static int op_fill(const st_queue *q, const st_tensor *t, double value)
{
    if (q->planning) return ST_OK;
    EACH(t, i, j, k) mock_set(t, i, j, k, value);
    return ST_OK;
}

/* Only what the head norms need: rms norm times 1 + w over the last of three dimensions. */
static int op_norm(const st_queue *q, const st_norm *a)
{
    if (q->planning) return ST_OK;
    const int64_t d = a->r->dim[2];
    for (int64_t i = 0; i < a->r->dim[0]; i++)
        for (int64_t j = 0; j < a->r->dim[1]; j++) {
            double sum = 0, rstd;
            for (int64_t k = 0; k < d; k++) sum += mock_get(a->r, i, j, k) * mock_get(a->r, i, j, k);
            rstd = 1 / sqrt(sum / (double)d + a->eps);
            mock_set(a->rstd, i, j, 0, rstd);
            for (int64_t k = 0; k < d; k++)
                mock_set(a->n, i, j, k, mock_get(a->r, i, j, k) * rstd * (1 + vector(a->w, k)));
        }
    return ST_OK;
}
static int op_norm_bwd(const st_queue *q, const st_norm_bwd *a)
{
    if (q->planning) return ST_OK;
    const int64_t d = a->r->dim[2];
    for (int64_t i = 0; i < a->r->dim[0]; i++)
        for (int64_t j = 0; j < a->r->dim[1]; j++) {
            double mean = 0;
            const double rstd = mock_get(a->rstd, i, j, 0);
            for (int64_t k = 0; k < d; k++)
                mean += mock_get(a->dn, i, j, k) * (1 + vector(a->w, k)) * mock_get(a->r, i, j, k) * rstd / (double)d;
            for (int64_t k = 0; k < d; k++) {
                const double n = mock_get(a->r, i, j, k) * rstd, dn = mock_get(a->dn, i, j, k);
                mock_set(a->dr, i, j, k, rstd * (dn * (1 + vector(a->w, k)) - n * mean));
                if (a->dw->data && a->dw->dtype == ST_F64) ((double *)a->dw->data)[k] += dn * n;
                else if (a->dw->data) ((float *)a->dw->data)[k] += (float)(dn * n);
            }
        }
    return ST_OK;
}
static int op_rope(const st_queue *q, const st_rope *a)
{
    if (q->planning) return ST_OK;
    const int64_t half = a->table->dim / 2;
    for (int64_t i = 0; i < a->x->dim[0]; i++)
        for (int64_t j = 0; j < a->x->dim[1]; j++)
            for (int64_t k = 0; k < half; k++) {
                const double c = mock_get(&a->table->cos, i, k, 0),
                             s = mock_get(&a->table->sin, i, k, 0) * (a->inverse ? -1 : 1);
                const double x = mock_get(a->x, i, j, k), y = mock_get(a->x, i, j, k + half);
                mock_set(a->x, i, j, k, x * c - y * s);
                mock_set(a->x, i, j, k + half, y * c + x * s);
            }
    return ST_OK;
}

/* One query of one head: softmax weights over the keys it sees into p; returns how many. */
static int64_t weights_of(const st_attn *a, const int32_t *spans, int64_t n, int64_t span, int64_t i, int64_t h,
                          double *p, double *lse)
{
    const int64_t kb = spans[2 * n + span], kl = spans[3 * n + span], ql = spans[n + span],
                  group = a->q->dim[1] / a->k->dim[1];
    const int64_t see = a->causal ? kl - ql + i + 1 : kl, row = spans[span] + i;
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < see; j++) {
        p[j] = 0;
        for (int64_t c = 0; c < a->q->dim[2]; c++)
            p[j] += mock_get(a->q, row, h, c) * mock_get(a->k, kb + j, h / group, c);
        p[j] *= a->scale;
        if (p[j] > top) top = p[j];
    }
    for (int64_t j = 0; j < see; j++) sum += p[j] = exp(p[j] - top);
    for (int64_t j = 0; j < see; j++) p[j] /= sum;
    *lse = top + log(sum);
    return see;
}
static void add_to(const st_tensor *t, int64_t i, int64_t j, int64_t k, double v)
{
    mock_set(t, i, j, k, mock_get(t, i, j, k) + v);
}

static int attention_pass(const st_queue *q, const st_attn *a, int backward)
{
    const int64_t n = a->spans->dim[1], d = a->q->dim[2], group = a->q->dim[1] / a->k->dim[1];
    const int32_t *spans = a->spans->data;
    double *p = malloc(sizeof(double) * (size_t)(a->max_len + 1)), lse;
    if (backward) {
        op_fill(q, a->dq, 0);
        op_fill(q, a->dk, 0);
        op_fill(q, a->dv, 0);
    } else {
        op_fill(q, a->out, 0);
        op_fill(q, a->lse, 0);
    }
    for (int64_t span = 0; span < n; span++)
        for (int64_t i = 0; i < spans[n + span]; i++)
            for (int64_t h = 0; h < a->q->dim[1]; h++) {
                const int64_t see = weights_of(a, spans, n, span, i, h, p, &lse), row = spans[span] + i,
                              kb = spans[2 * n + span];
                double along = 0;
                if (!backward) mock_set(a->lse, row, h, 0, lse);
                for (int64_t c = 0; !backward && c < d; c++) {
                    double o = 0;
                    for (int64_t j = 0; j < see; j++) o += p[j] * mock_get(a->v, kb + j, h / group, c);
                    mock_set(a->out, row, h, c, o);
                }
                for (int64_t c = 0; backward && c < d; c++)
                    along += mock_get(a->d_out, row, h, c) * mock_get(a->out, row, h, c);
                for (int64_t j = 0; backward && j < see; j++) {
                    double dp = 0;
                    for (int64_t c = 0; c < d; c++)
                        dp += mock_get(a->d_out, row, h, c) * mock_get(a->v, kb + j, h / group, c);
                    const double ds = p[j] * (dp - along) * a->scale;
                    for (int64_t c = 0; c < d; c++) {
                        add_to(a->dv, kb + j, h / group, c, p[j] * mock_get(a->d_out, row, h, c));
                        add_to(a->dq, row, h, c, ds * mock_get(a->k, kb + j, h / group, c));
                        add_to(a->dk, kb + j, h / group, c, ds * mock_get(a->q, row, h, c));
                    }
                }
            }
    free(p);
    return ST_OK;
}
static int op_attention(const st_queue *q, const st_attn *a) { return q->planning ? ST_OK : attention_pass(q, a, 0); }
static int op_attention_bwd(const st_queue *q, const st_attn *a)
{
    return q->planning ? ST_OK : attention_pass(q, a, 1);
}

/* ---- rows by index, products by group ---- */

static int op_gather(const st_queue *q, const st_tensor *src, const st_tensor *index, const st_tensor *dst)
{
    if (q->planning) return ST_OK;
    for (int64_t i = 0; i < dst->dim[0]; i++) {
        const int32_t from = ((const int32_t *)index->data)[i];
        for (int64_t j = 0; from >= -1 && j < dst->dim[1]; j++)
            mock_set(dst, i, j, 0, from < 0 ? 0 : mock_get(src, from, j, 0));
    }
    return ST_OK;
}
static int op_combine(const st_queue *q, const st_tensor *src, const st_tensor *index, const st_tensor *w,
                      const st_tensor *dst)
{
    if (q->planning) return ST_OK;
    const int64_t many = index->dim[1];
    for (int64_t i = 0; i < dst->dim[0]; i++)
        for (int64_t j = 0; j < dst->dim[1]; j++) {
            double sum = 0;
            for (int64_t k = 0; k < many; k++) {
                const int32_t from = ((const int32_t *)index->data)[i * many + k];
                if (from >= 0) sum += (w ? mock_get(w, i, k, 0) : 1) * mock_get(src, from, j, 0);
            }
            mock_set(dst, i, j, 0, sum);
        }
    return ST_OK;
}
static int op_grouped(const st_queue *q, const st_grouped *g)
{
    if (q->planning) return ST_OK;
    const int32_t *offset = g->offset->data;
    for (int64_t e = 0; e < g->b->dim[0]; e++) {
        const int64_t first = offset[e], end = offset[e + 1], out = g->b->dim[1], in = g->b->dim[2];
        assert_int_equal(first % ST_GROUP_TILE, 0);
        for (int64_t o = 0; g->mode == 2 && o < out; o++)
            for (int64_t i = 0; i < in; i++) {
                double sum = g->beta != 0 ? (double)g->beta * mock_get(g->b, e, o, i) : 0;
                for (int64_t t = first; t < end; t++) sum += mock_get(g->a, t, o, 0) * mock_get(g->c, t, i, 0);
                mock_set(g->b, e, o, i, sum);
            }
        for (int64_t t = first; g->mode < 2 && t < end; t++)
            for (int64_t j = 0; j < (g->mode ? in : out); j++) {
                double sum = 0;
                for (int64_t k = 0; k < (g->mode ? out : in); k++)
                    sum += mock_get(g->a, t, k, 0) * (g->mode ? mock_get(g->b, e, k, j) : mock_get(g->b, e, j, k));
                mock_set(g->c, t, j, 0, sum);
            }
    }
    return ST_OK;
}

const st_ops *mock_ops(void)
{
    static const st_ops ops = {
        .size = sizeof ops,
        .norm = op_norm,
        .norm_bwd = op_norm_bwd,
        .rope = op_rope,
        .attention = op_attention,
        .attention_bwd = op_attention_bwd,
        .glu = op_glu,
        .glu_bwd = op_glu_bwd,
        .act = op_act,
        .act_bwd = op_act_bwd,
        .fill = op_fill,
        .grouped = op_grouped,
        .gather = op_gather,
        .combine = op_combine,
    };
    return &ops;
}

/* ---- small services ---- */

double mock_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*state >> 11) / (double)(1ll << 52) - 1;
}
double mock_normal(uint64_t *state) /* sum of twelve uniforms */
{
    double s = 0;
    for (int i = 0; i < 12; i++) s += mock_random(state) / 2;
    return s;
}
void mock_fill_normal(double *v, int64_t n, double deviation, uint64_t *state)
{
    for (int64_t i = 0; i < n; i++) v[i] = deviation * mock_normal(state);
}
double mock_distance(const double *a, const double *b, int64_t n)
{
    double d = 0, s = 0;
    for (int64_t i = 0; i < n; i++) {
        d += (a[i] - b[i]) * (a[i] - b[i]);
        s += b[i] * b[i];
    }
    return s > 0 ? sqrt(d / s) : sqrt(d);
}

/* ---- threads: pieces from the last to the first; more than one thread takes them off a shared counter ---- */

typedef struct job {
    void (*fn)(void *, int64_t);
    void *arg;
    int64_t left;
} job;
static void *work(void *arg)
{
    job *j = arg;
    for (int64_t i; (i = __atomic_sub_fetch(&j->left, 1, __ATOMIC_RELAXED)) >= 0;) j->fn(j->arg, i);
    return NULL;
}
void mock_run(const st_cpu_pool *p, int64_t n, void (*fn)(void *, int64_t), void *arg)
{
    job j = {fn, arg, n};
    pthread_t t[8];
    for (int i = 1; i < p->threads; i++) assert_int_equal(pthread_create(&t[i], NULL, work, &j), 0);
    work(&j);
    for (int i = 1; i < p->threads; i++) pthread_join(t[i], NULL);
}
