/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_norm.c - kernels over whole rows: norm and its backward, rotary embedding, sums of columns.
 * Statistics and sums over rows are kept in f64 for both types. */
#ifndef T
#include "cpu.h"
#include <math.h>
#include <string.h>
#define KERNEL_FILE "kernel_norm.c"
#include "twice.h"
#else

static inline T *FN(row_at)(const cpu_view *v, int64_t row) /* row = token * heads + head; NULL when absent */
{
    return v->data ? (T *)v->data + row / v->heads * v->s_row + row % v->heads * v->s_head : NULL;
}

/* factor and shift: what a normed value is multiplied by and what is added, whatever the kind and the given weights. */
static void FN(norm_factors)(const cpu_norm *a)
{
    T *factor = a->factor, *shift = a->shift;
    const T *w = a->w, *b = a->b;
    for (int64_t j = 0; j < a->r.cols; j++) {
        factor[j] = (w ? w[j] : a->kind == ST_NORM_RMS1P ? 0 : 1) + (a->kind == ST_NORM_RMS1P ? 1 : 0);
        shift[j] = b ? b[j] : 0;
    }
}

static double FN(sum_of)(const T *x, const T *y, int64_t n)
{
    double sum = 0;
    if (y) {
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < n; j++) sum += (double)(x[j] + y[j]);
    } else {
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < n; j++) sum += (double)x[j];
    }
    return sum;
}

static double FN(sum_of_squares)(const T *x, const T *y, double mean, int64_t n)
{
    double sum = 0;
    if (y) {
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < n; j++) {
            double d = (double)(x[j] + y[j]) - mean;
            sum += d * d;
        }
    } else {
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < n; j++) {
            double d = (double)x[j] - mean;
            sum += d * d;
        }
    }
    return sum;
}

static void FN(write_normed)(const T *x, const T *y, T mean, T rstd, const T *factor, const T *shift, T *n,
                             int64_t cols)
{
    if (y) {
#pragma omp simd
        for (int64_t j = 0; j < cols; j++) n[j] = (x[j] + y[j] - mean) * rstd * factor[j] + shift[j];
    } else {
#pragma omp simd
        for (int64_t j = 0; j < cols; j++) n[j] = (x[j] - mean) * rstd * factor[j] + shift[j];
    }
}

static void FN(norm_piece)(void *arg, int64_t piece)
{
    const cpu_norm *a = arg;
    int64_t cols = a->r.cols, end = cpu_min((piece + 1) * a->rows_per, a->rows);
    for (int64_t i = piece * a->rows_per; i < end; i++) {
        const T *x = FN(row_at)(&a->r, i), *y = FN(row_at)(&a->y, i);
        T *out = FN(row_at)(&a->r_out, i), *n = FN(row_at)(&a->n, i);
        T *rstd_at = FN(row_at)(&a->rstd, i), *mean_at = FN(row_at)(&a->mean, i);
        if (out && y) {
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) out[j] = x[j] + y[j];
            x = out;
            y = NULL;
        } else if (out && out != x) {
            memcpy(out, x, (size_t)cols * sizeof(T));
        }
        double mean = a->kind == ST_NORM_LAYER ? FN(sum_of)(x, y, cols) / (double)cols : 0;
        double rstd = 1 / sqrt(FN(sum_of_squares)(x, y, mean, cols) / (double)cols + a->eps);
        if (rstd_at) *rstd_at = (T)rstd;
        if (mean_at) *mean_at = (T)mean;
        if (n) FN(write_normed)(x, y, (T)mean, (T)rstd, a->factor, a->shift, n, cols);
    }
}

void FN(norm)(const st_queue *q, const cpu_norm *a)
{
    FN(norm_factors)(a);
    st_cpu_run(q, a->pieces, FN(norm_piece), (void *)(uintptr_t)a);
}

/* dr of one row: rstd (g - mean(g) [layer] - xhat mean(g xhat)), g = dn * factor, xhat = (r - mean) rstd. */
static void FN(norm_bwd_row)(const cpu_norm *a, const T *r, const T *dn, T mean, T rstd, T *dr)
{
    const T *factor = a->factor;
    int64_t cols = a->r.cols;
    double sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
    for (int64_t j = 0; j < cols; j++) {
        T g = dn[j] * factor[j];
        sum += (double)g;
        along += (double)g * (double)((r[j] - mean) * rstd);
    }
    T g_mean = a->kind == ST_NORM_LAYER ? (T)(sum / (double)cols) : 0, x_mean = (T)(along / (double)cols);
    if (a->add) {
#pragma omp simd
        for (int64_t j = 0; j < cols; j++) dr[j] += rstd * (dn[j] * factor[j] - g_mean - (r[j] - mean) * rstd * x_mean);
    } else {
#pragma omp simd
        for (int64_t j = 0; j < cols; j++) dr[j] = rstd * (dn[j] * factor[j] - g_mean - (r[j] - mean) * rstd * x_mean);
    }
}

static void FN(norm_bwd_piece)(void *arg, int64_t piece)
{
    const cpu_norm *a = arg;
    int64_t cols = a->r.cols, end = cpu_min((piece + 1) * a->rows_per, a->rows);
    double *dw = a->dw ? a->part + piece * 2 * cols : NULL, *db = a->db ? a->part + (piece * 2 + 1) * cols : NULL;
    if (dw) memset(dw, 0, (size_t)cols * sizeof *dw);
    if (db) memset(db, 0, (size_t)cols * sizeof *db);
    for (int64_t i = piece * a->rows_per; i < end; i++) {
        const T *r = FN(row_at)(&a->r, i), *dn = FN(row_at)(&a->dn, i);
        const T *rstd_at = FN(row_at)(&a->rstd, i), *mean_at = FN(row_at)(&a->mean, i);
        T *dr = FN(row_at)(&a->dr, i), *n = FN(row_at)(&a->n, i), mean = 0, rstd;
        if (a->kind == ST_NORM_LAYER) mean = mean_at ? *mean_at : (T)(FN(sum_of)(r, NULL, cols) / (double)cols);
        if (rstd_at) rstd = *rstd_at;
        else rstd = (T)(1 / sqrt(FN(sum_of_squares)(r, NULL, (double)mean, cols) / (double)cols + a->eps));
        if (dw) {
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) dw[j] += (double)(dn[j] * ((r[j] - mean) * rstd));
        }
        if (db) {
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) db[j] += (double)dn[j];
        }
        if (n) FN(write_normed)(r, NULL, mean, rstd, a->factor, a->shift, n, cols);
        if (dr) FN(norm_bwd_row)(a, r, dn, mean, rstd, dr);
    }
}

/* out[j] += sum over pieces, in their order, of part[piece * distance + j]; a piece of columns at a time */
typedef struct FN(sum_job) { const double *part; int64_t pieces, distance, cols; T *out; } FN(sum_job);
enum { FN(SUM_COLS) = 256 };

static void FN(sum_piece)(void *arg, int64_t piece)
{
    const FN(sum_job) *job = arg;
    int64_t first = piece * FN(SUM_COLS), n = cpu_min(FN(SUM_COLS), job->cols - first);
    double sum[FN(SUM_COLS)] = {0};
    for (int64_t p = 0; p < job->pieces; p++) {
        const double *part = job->part + p * job->distance + first;
        for (int64_t j = 0; j < n; j++) sum[j] += part[j];
    }
    for (int64_t j = 0; j < n; j++) job->out[first + j] = (T)((double)job->out[first + j] + sum[j]);
}

static void FN(sum_parts)(const st_queue *q, const double *part, int64_t pieces, int64_t distance, int64_t cols,
                          void *out)
{
    FN(sum_job) job = {part, pieces, distance, cols, out};
    if (out) st_cpu_run(q, cpu_div_up(cols, FN(SUM_COLS)), FN(sum_piece), &job);
}

void FN(norm_bwd)(const st_queue *q, const cpu_norm *a)
{
    FN(norm_factors)(a);
    st_cpu_run(q, a->pieces, FN(norm_bwd_piece), (void *)(uintptr_t)a);
    FN(sum_parts)(q, a->part, a->pieces, 2 * a->r.cols, a->r.cols, a->dw);
    FN(sum_parts)(q, a->part + (a->part ? a->r.cols : 0), a->pieces, 2 * a->r.cols, a->r.cols, a->db);
}

/* ---- columns ---- */
typedef struct FN(colsum_job) { const cpu_view *x; double *part; int64_t rows_per; } FN(colsum_job);

static void FN(colsum_piece)(void *arg, int64_t piece)
{
    const FN(colsum_job) *job = arg;
    int64_t cols = job->x->cols, end = cpu_min((piece + 1) * job->rows_per, job->x->rows * job->x->heads);
    double *part = job->part + piece * cols;
    memset(part, 0, (size_t)cols * sizeof *part);
    for (int64_t i = piece * job->rows_per; i < end; i++) {
        const T *x = FN(row_at)(job->x, i);
#pragma omp simd
        for (int64_t j = 0; j < cols; j++) part[j] += (double)x[j];
    }
}

void FN(colsum)(const st_queue *q, const cpu_view *x, double *part, int64_t rows_per, int64_t pieces, void *out)
{
    FN(colsum_job) job = {x, part, rows_per};
    st_cpu_run(q, pieces, FN(colsum_piece), &job);
    FN(sum_parts)(q, part, pieces, x->cols, x->cols, out);
}

/* ---- rotary embedding ---- */
typedef struct FN(rope_job) { const cpu_view *x; const st_rotary *table; T sign; int64_t rows_per; } FN(rope_job);

static void FN(rope_piece)(void *arg, int64_t piece)
{
    const FN(rope_job) *job = arg;
    const cpu_view *x = job->x;
    int64_t half = job->table->dim / 2, end = cpu_min((piece + 1) * job->rows_per, x->rows);
    T sign = job->sign;
    for (int64_t t = piece * job->rows_per; t < end; t++) {
        const T *cosine = (const T *)job->table->cos.data + t * job->table->cos.stride[0];
        const T *sine = (const T *)job->table->sin.data + t * job->table->sin.stride[0];
        for (int64_t h = 0; h < x->heads; h++) {
            T *v = (T *)x->data + t * x->s_row + h * x->s_head;
            if (job->table->interleaved) {
                for (int64_t i = 0; i < half; i++) {
                    T a = v[2 * i], b = v[2 * i + 1], s = sign * sine[i];
                    v[2 * i] = a * cosine[i] - b * s;
                    v[2 * i + 1] = b * cosine[i] + a * s;
                }
            } else {
#pragma omp simd
                for (int64_t i = 0; i < half; i++) {
                    T a = v[i], b = v[i + half], s = sign * sine[i];
                    v[i] = a * cosine[i] - b * s;
                    v[i + half] = b * cosine[i] + a * s;
                }
            }
        }
    }
}

void FN(rope)(const st_queue *q, const cpu_view *x, const st_rotary *table, int inverse)
{
    int64_t per = cpu_max(1, 8192 / cpu_max(1, x->heads * table->dim));
    FN(rope_job) job = {x, table, inverse ? -1 : 1, per};
    st_cpu_run(q, cpu_div_up(x->rows, per), FN(rope_piece), &job);
}
#endif
