/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_xent.c - softmax and cross-entropy of rows of logits, and its gradient in their place. Three stages,
 * because a cut vocabulary sums over ranks between them: largest logit, sum of exponentials, gradient. */
#ifndef T
#include "cpu.h"
#include <float.h>
#include <math.h>
#define KERNEL_FILE "kernel_xent.c"
#include "twice.h"
#else

typedef struct FN(xent_job) { const cpu_xent *x; int stages; } FN(xent_job);
enum { FN(MAX_LANES) = 128 / sizeof(T), FN(SUM_RUN) = 2048 };

static T FN(largest)(const T *x, int64_t n)
{
    T lane[FN(MAX_LANES)], most = (T)-INFINITY;
    int64_t j = 0;
    for (int l = 0; l < FN(MAX_LANES); l++) lane[l] = (T)-INFINITY;
    for (; j + FN(MAX_LANES) <= n; j += FN(MAX_LANES))
#pragma omp simd
        for (int l = 0; l < FN(MAX_LANES); l++) lane[l] = x[j + l] > lane[l] ? x[j + l] : lane[l];
    for (; j < n; j++) most = x[j] > most ? x[j] : most;
    for (int l = 0; l < FN(MAX_LANES); l++) most = lane[l] > most ? lane[l] : most;
    return most;
}

static void FN(max_stage)(const cpu_xent *x, int64_t i)
{
    const T *row = (const T *)x->logits + i * x->words;
    T most = FN(largest)(row, x->words);
    ((T *)x->max)[i] = most;
    if (!x->best) return;
    int64_t j = 0;
    while (j < x->words && row[j] != most) j++;
    x->best[i] = (int32_t)(x->first + (j < x->words ? j : 0)); /* a row of NaN has no largest word */
}

static void FN(sum_stage)(const cpu_xent *x, int64_t i)
{
    T *row = (T *)x->logits + i * x->words, most = ((const T *)x->max)[i];
    int64_t label = x->labels[x->live[i]] - x->first;
    bool own = label >= 0 && label < x->words;
    double sum = 0;
    ((T *)x->sum)[2 * i + 1] = own ? row[label] - most : 0;
    for (int64_t first = 0; first < x->words; first += FN(SUM_RUN)) {
        int64_t end = cpu_min(first + FN(SUM_RUN), x->words);
        T run = 0;
#pragma omp simd reduction(+ : run)
        for (int64_t j = first; j < end; j++) {
            row[j] = FN(exp)(row[j] - most);
            run += row[j];
        }
        sum += (double)run;
    }
    ((T *)x->sum)[2 * i] = (T)sum;
}

static void FN(grad_stage)(const cpu_xent *x, int64_t i)
{
    T *row = (T *)x->logits + i * x->words;
    const T *sum = (const T *)x->sum + 2 * i;
    x->nll[i] = log((double)sum[0]) - (double)sum[1];
    if (!x->grad) return;
    int64_t label = x->labels[x->live[i]] - x->first;
    T factor = (T)(x->factor / (double)sum[0]);
#pragma omp simd
    for (int64_t j = 0; j < x->words; j++) row[j] *= factor;
    if (label >= 0 && label < x->words) row[label] -= (T)x->factor;
}

static void FN(xent_piece)(void *arg, int64_t i)
{
    const FN(xent_job) *job = arg;
    if (job->stages & CPU_XENT_MAX) FN(max_stage)(job->x, i);
    if (job->stages & CPU_XENT_SUM) FN(sum_stage)(job->x, i);
    if (job->stages & CPU_XENT_GRAD) FN(grad_stage)(job->x, i);
}

void FN(xent)(const st_queue *q, const cpu_xent *x, int stages)
{
    FN(xent_job) job = {x, stages};
    st_cpu_run(q, x->rows, FN(xent_piece), &job);
}
#endif
