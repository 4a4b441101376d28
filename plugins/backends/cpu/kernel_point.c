/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_point.c - elementwise kernels: activations, gated units, sums, sums of squares, AdamW. */
#ifndef T
#include "cpu.h"
#include <math.h>
#define KERNEL_FILE "kernel_point.c"
#include "twice.h"
#else
#include "activation.h"

typedef struct FN(point_job) {
    const cpu_walk *w;
    void (*run)(const struct FN(point_job) *, int64_t n, T *const *p); /* n elements from p[k] on, k as in the walk */
    int act;
    T a, b;
    double *part;
} FN(point_job);

static void FN(point_piece)(void *arg, int64_t piece)
{
    const FN(point_job) *job = arg;
    int64_t row, row_end, j, j_end;
    cpu_walk_piece(job->w, piece, &row, &row_end, &j, &j_end);
    for (; row < row_end; row++) {
        T *p[5] = {NULL};
        for (int k = 0; k < job->w->n; k++) {
            T *at = cpu_walk_at(job->w, k, row);
            p[k] = at ? at + j : NULL;
        }
        job->run(job, j_end - j, p);
    }
}

static void FN(act_run)(const FN(point_job) *job, int64_t n, T *const *p)
{
    const T *x = p[0];
    T *y = p[1];
#define LOOP(ACT) _Pragma("omp simd") for (int64_t j = 0; j < n; j++) y[j] = FN(act_value)(ACT, x[j]);
    ACT_CASES(job->act, LOOP)
#undef LOOP
}

void FN(act)(const st_queue *q, const cpu_walk *w, int act)
{
    FN(point_job) job = {.w = w, .run = FN(act_run), .act = act};
    st_cpu_run(q, w->pieces, FN(point_piece), &job);
}

static void FN(act_bwd_run)(const FN(point_job) *job, int64_t n, T *const *p)
{
    const T *x = p[0], *dy = p[1];
    T *dx = p[2];
#define LOOP(ACT) _Pragma("omp simd") for (int64_t j = 0; j < n; j++) dx[j] = dy[j] * FN(act_slope)(ACT, x[j]);
    ACT_CASES(job->act, LOOP)
#undef LOOP
}

void FN(act_bwd)(const st_queue *q, const cpu_walk *w, int act)
{
    FN(point_job) job = {.w = w, .run = FN(act_bwd_run), .act = act};
    st_cpu_run(q, w->pieces, FN(point_piece), &job);
}

static void FN(glu_run)(const FN(point_job) *job, int64_t n, T *const *p)
{
    const T *g = p[0], *u = p[1];
    T *y = p[2];
#define LOOP(ACT) _Pragma("omp simd") for (int64_t j = 0; j < n; j++) y[j] = FN(act_value)(ACT, g[j]) * u[j];
    ACT_CASES(job->act, LOOP)
#undef LOOP
}

void FN(glu)(const st_queue *q, const cpu_walk *w, int act)
{
    FN(point_job) job = {.w = w, .run = FN(glu_run), .act = act};
    st_cpu_run(q, w->pieces, FN(point_piece), &job);
}

/* dg may be g and du may be u: each element is read before it is written. */
static void FN(glu_bwd_run)(const FN(point_job) *job, int64_t n, T *const *p)
{
    const T *g = p[0], *u = p[1], *dy = p[2];
    T *dg = p[3], *du = p[4];
    if (dg && du) {
#define LOOP(ACT) _Pragma("omp simd") \
        for (int64_t j = 0; j < n; j++) { \
            T d_gate = dy[j] * u[j] * FN(act_slope)(ACT, g[j]), d_up = dy[j] * FN(act_value)(ACT, g[j]); \
            dg[j] = d_gate; \
            du[j] = d_up; \
        }
        ACT_CASES(job->act, LOOP)
#undef LOOP
    } else if (dg) {
#define LOOP(ACT) _Pragma("omp simd") for (int64_t j = 0; j < n; j++) dg[j] = dy[j] * u[j] * FN(act_slope)(ACT, g[j]);
        ACT_CASES(job->act, LOOP)
#undef LOOP
    } else {
#define LOOP(ACT) _Pragma("omp simd") for (int64_t j = 0; j < n; j++) du[j] = dy[j] * FN(act_value)(ACT, g[j]);
        ACT_CASES(job->act, LOOP)
#undef LOOP
    }
}

void FN(glu_bwd)(const st_queue *q, const cpu_walk *w, int act)
{
    FN(point_job) job = {.w = w, .run = FN(glu_bwd_run), .act = act};
    st_cpu_run(q, w->pieces, FN(point_piece), &job);
}

static void FN(add_run)(const FN(point_job) *job, int64_t n, T *const *p)
{
    const T *x = p[0], *y = p[1];
    T *z = p[2], a = job->a, b = job->b;
    if (y) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) z[j] = a * x[j] + b * y[j];
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) z[j] = a * x[j];
    }
}

void FN(add)(const st_queue *q, const cpu_walk *w, double a, double b)
{
    FN(point_job) job = {.w = w, .run = FN(add_run), .a = (T)a, .b = (T)b};
    st_cpu_run(q, w->pieces, FN(point_piece), &job);
}

static void FN(sumsq_piece)(void *arg, int64_t piece)
{
    const FN(point_job) *job = arg;
    int64_t row, row_end, first, end;
    double sum = 0;
    cpu_walk_piece(job->w, piece, &row, &row_end, &first, &end);
    for (; row < row_end; row++) {
        const T *x = cpu_walk_at(job->w, 0, row);
        double run = 0;
#pragma omp simd reduction(+ : run)
        for (int64_t j = first; j < end; j++) run += (double)x[j] * (double)x[j];
        sum += run;
    }
    job->part[piece] = sum;
}

void FN(sumsq)(const st_queue *q, const cpu_walk *w, double *part, double weight, void *cell)
{
    FN(point_job) job = {.w = w, .part = part};
    double sum = 0;
    st_cpu_run(q, w->pieces, FN(sumsq_piece), &job);
    for (int64_t i = 0; i < w->pieces; i++) sum += part[i];
    *(T *)cell = (T)((double)*(T *)cell + weight * sum);
}

/* ---- AdamW with decoupled decay ---- */
typedef struct FN(adamw_job) {
    T *master, *m, *v, *weight;
    const T *grad;
    int64_t n;
    T lr, decay, beta1, beta2, eps, c1, c2, clip, rest1, rest2;
} FN(adamw_job);
enum { FN(ADAMW_PIECE) = 16384 };

static void FN(adamw_piece)(void *arg, int64_t piece)
{
    const FN(adamw_job) a = *(const FN(adamw_job) *)arg;
    int64_t first = piece * FN(ADAMW_PIECE), end = cpu_min(first + FN(ADAMW_PIECE), a.n);
#pragma omp simd
    for (int64_t i = first; i < end; i++) {
        T g = a.clip * a.grad[i];
        T m = a.beta1 * a.m[i] + a.rest1 * g, v = a.beta2 * a.v[i] + a.rest2 * g * g;
        T root = T_IS_DOUBLE ? (T)sqrt((double)(v / a.c2)) : (T)sqrtf((float)(v / a.c2));
        a.m[i] = m;
        a.v[i] = v;
        a.master[i] -= a.lr * (a.decay * a.master[i] + m / a.c1 / (root + a.eps));
    }
    if (!a.weight || a.weight == a.master) return;
#pragma omp simd
    for (int64_t i = first; i < end; i++) a.weight[i] = a.master[i];
}

void FN(adamw)(const st_queue *q, const st_adamw *o, int64_t n)
{
    const T *h = o->hyper->data;
    if (check_given(o->skip) && *(const T *)o->skip->data != 0) return; /* NaN also: it is not equal to 0 */
    FN(adamw_job) job = {.master = o->master->data,
           .m = o->m->data,
           .v = o->v->data,
           .grad = o->grad->data,
           .n = n,
           .weight = check_given(o->weight) ? o->weight->data : NULL,
           .lr = h[0],
           .decay = h[1],
           .beta1 = h[2],
           .beta2 = h[3],
           .eps = h[4],
           .c1 = h[5],
           .c2 = h[6],
           .rest1 = h[7],
           .rest2 = h[8],
           .clip = check_given(o->clip) ? *(const T *)o->clip->data : 1};
    st_cpu_run(q, cpu_div_up(n, FN(ADAMW_PIECE)), FN(adamw_piece), &job);
}
#endif
