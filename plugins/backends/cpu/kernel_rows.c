/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_rows.c - kernels that add up rows chosen by index: gradient of a lookup, combine, scattered sums. */
#ifndef T
#include "cpu.h"
#include <string.h>
#define KERNEL_FILE "kernel_rows.c"
#include "twice.h"
#else

enum { FN(COLS) = 256, FN(RUNS) = 256, FN(WORK) = 16384 };

static inline T *FN(row_of)(const st_tensor *t, int64_t row) { return (T *)t->data + row * t->stride[0]; }

/* ---- gradient of a lookup ---- */
typedef struct FN(lookup_job) { const st_queue *q; const st_lookup *a; int64_t rows_per; } FN(lookup_job);

static void FN(table_piece)(void *arg, int64_t piece) /* d_table = beta * d_table, some rows */
{
    const FN(lookup_job) *job = arg;
    const st_tensor *table = job->a->d_table;
    int64_t cols = table->dim[1], end = cpu_min((piece + 1) * job->rows_per, table->dim[0]);
    T beta = (T)job->a->beta;
    for (int64_t i = piece * job->rows_per; i < end; i++) {
        T *row = FN(row_of)(table, i);
        if (beta == 0) {
            memset(row, 0, (size_t)cols * sizeof(T));
        } else {
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) row[j] *= beta;
        }
    }
}

/* Slot at place i of `order`, or -1; and the row of the table it took, or -1. */
static inline int64_t FN(slot_at)(const st_lookup *a, int64_t i)
{
    int64_t t = ((const int32_t *)a->order->data)[i];
    return t >= 0 && t < a->d_out->dim[0] ? t : -1;
}
static inline int64_t FN(taken)(const st_lookup *a, int64_t i)
{
    int64_t t = FN(slot_at)(a, i), row;
    if (t < 0) return -1;
    row = ((const int32_t *)a->ids->data)[t] - a->first;
    return row >= 0 && row < a->d_table->dim[0] ? row : -1;
}

/* row += sum of d_out over places [i, end) of `order` that took the table, in this order */
static void FN(add_run)(const st_lookup *a, int64_t i, int64_t end, T *row)
{
    const int32_t *media = check_given(a->media) ? a->media->data : NULL;
    int64_t cols = a->d_table->dim[1];
    for (int64_t first = 0; first < cols; first += FN(COLS)) {
        int64_t n = cpu_min(FN(COLS), cols - first);
        double sum[FN(COLS)] = {0};
        for (int64_t k = i; k < end; k++) {
            int64_t t = FN(slot_at)(a, k);
            const T *g = FN(row_of)(a->d_out, t) + first;
            if (media && media[t] >= 0) continue;
#pragma omp simd
            for (int64_t j = 0; j < n; j++) sum[j] += (double)g[j];
        }
#pragma omp simd
        for (int64_t j = 0; j < n; j++) row[first + j] = (T)((double)row[first + j] + sum[j]);
    }
}

/* Runs of equal ids that begin in this piece of `order`; the last one may reach into later pieces. */
static void FN(order_piece)(void *arg, int64_t piece)
{
    const FN(lookup_job) *job = arg;
    const st_lookup *a = job->a;
    int64_t n = check_elements(a->order), i = piece * FN(RUNS), limit = cpu_min(i + FN(RUNS), n);
    while (i > 0 && i < limit && FN(taken)(a, i) == FN(taken)(a, i - 1)) i++;
    while (i < limit) {
        int64_t row = FN(taken)(a, i), end = i + 1;
        while (end < n && FN(taken)(a, end) == row) end++;
        if (row >= 0) FN(add_run)(a, i, end, FN(row_of)(a->d_table, row));
        i = end;
    }
}

static void FN(features_piece)(void *arg, int64_t piece) /* some columns of all feature rows */
{
    const FN(lookup_job) *job = arg;
    const st_lookup *a = job->a;
    const int32_t *media = a->media->data;
    int64_t first = piece * FN(COLS), n = cpu_min(FN(COLS), a->d_features->dim[1] - first);
    for (int64_t t = 0; t < a->d_out->dim[0]; t++) {
        if (media[t] < 0) continue;
        if (media[t] >= a->d_features->dim[0]) {
            cpu_fault(job->q, ST_FAULT_RANGE, media[t], a->d_features->dim[0]);
            continue;
        }
        T *to = FN(row_of)(a->d_features, media[t]) + first;
        const T *from = FN(row_of)(a->d_out, t) + first;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) to[j] += from[j];
    }
}

void FN(lookup_bwd)(const st_queue *q, const st_lookup *a)
{
    FN(lookup_job) job = {q, a, 1};
    if (check_given(a->d_table)) {
        job.rows_per = cpu_max(1, FN(WORK) / cpu_max(1, a->d_table->dim[1]));
        if (a->beta != 1) st_cpu_run(q, cpu_div_up(a->d_table->dim[0], job.rows_per), FN(table_piece), &job);
        st_cpu_run(q, cpu_div_up(check_elements(a->order), FN(RUNS)), FN(order_piece), &job);
    }
    if (check_given(a->d_features) && check_given(a->media))
        st_cpu_run(q, cpu_div_up(a->d_features->dim[1], FN(COLS)), FN(features_piece), &job);
}

/* ---- combine: dst[t] = sum_k w[t,k] src[index[t,k]] ---- */
typedef struct FN(combine_job) {
    const st_queue *q;
    const st_tensor *src, *index, *w, *dst;
    int64_t rows_per;
} FN(combine_job);

static void FN(combine_piece)(void *arg, int64_t piece)
{
    const FN(combine_job) *job = arg;
    int64_t cols = job->dst->dim[1], end = cpu_min((piece + 1) * job->rows_per, job->dst->dim[0]);
    for (int64_t t = piece * job->rows_per; t < end; t++) {
        const int32_t *index = (const int32_t *)job->index->data + t * job->index->stride[0];
        const T *w = check_given(job->w) ? FN(row_of)(job->w, t) : NULL;
        T *to = FN(row_of)(job->dst, t);
        memset(to, 0, (size_t)cols * sizeof(T));
        for (int64_t k = 0; k < job->index->dim[1]; k++) {
            if (index[k] < 0) continue;
            if (index[k] >= job->src->dim[0]) {
                cpu_fault(job->q, ST_FAULT_RANGE, index[k], job->src->dim[0]);
                continue;
            }
            const T *from = FN(row_of)(job->src, index[k]);
            T factor = w ? w[k] : 1;
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) to[j] += factor * from[j];
        }
    }
}

void FN(combine)(const st_queue *q, const st_tensor *src, const st_tensor *index, const st_tensor *w,
                 const st_tensor *dst)
{
    int64_t per = cpu_max(1, FN(WORK) / cpu_max(1, dst->dim[1] * index->dim[1]));
    FN(combine_job) job = {q, src, index, w, dst, per};
    st_cpu_run(q, cpu_div_up(dst->dim[0], per), FN(combine_piece), &job);
}

/* ---- dst[row[i]] += src[i]; rows all different ---- */
typedef struct FN(add_rows_job) {
    int64_t n, lds, ldd, cols, rows_per;
    const int32_t *row;
    const T *src;
    T *dst;
} FN(add_rows_job);

static void FN(add_rows_piece)(void *arg, int64_t piece)
{
    const FN(add_rows_job) *job = arg;
    int64_t end = cpu_min((piece + 1) * job->rows_per, job->n);
    for (int64_t i = piece * job->rows_per; i < end; i++) {
        const T *from = job->src + i * job->lds;
        T *to = job->dst + job->row[i] * job->ldd;
#pragma omp simd
        for (int64_t j = 0; j < job->cols; j++) to[j] += from[j];
    }
}

void FN(add_rows)(const st_queue *q, int64_t n, const int32_t *row, const void *src, int64_t lds, void *dst,
                  int64_t ldd, int64_t cols)
{
    int64_t per = cpu_max(1, FN(WORK) / cpu_max(1, cols));
    FN(add_rows_job) job = {n, lds, ldd, cols, per, row, src, dst};
    st_cpu_run(q, cpu_div_up(n, per), FN(add_rows_piece), &job);
}
#endif
