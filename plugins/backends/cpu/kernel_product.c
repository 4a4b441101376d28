/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_product.c - what follows a matrix product: sums of its parts, bias, activation, beta. */
#ifndef T
#include "cpu.h"
#include <math.h>
#define KERNEL_FILE "kernel_product.c"
#include "twice.h"
#else
#include "activation.h"

/* c = act(p + bias) + beta c; aux = p + bias. p may be aux or c. */
void FN(epilogue)(int64_t rows, int64_t cols, const void *p_, int64_t ldp, const void *bias_, void *aux_, int64_t ldaux,
                  void *c_, int64_t ldc, int act, double beta_)
{
    T beta = (T)beta_;
    const T *bias = bias_;
    for (int64_t i = 0; i < rows; i++) {
        const T *p = (const T *)p_ + i * ldp;
        T *c = (T *)c_ + i * ldc, *aux = aux_ ? (T *)aux_ + i * ldaux : NULL;
        if (aux) { /* the rest of the row reads it back */
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) aux[j] = p[j] + (bias ? bias[j] : 0);
            p = aux;
        }
        const T *add = aux ? NULL : bias;
        if (add && beta == 0) {
#define LOOP(ACT) _Pragma("omp simd") for (int64_t j = 0; j < cols; j++) c[j] = FN(act_value)(ACT, p[j] + add[j]);
            ACT_CASES(act, LOOP)
#undef LOOP
        } else if (beta == 0) {
#define LOOP(ACT) _Pragma("omp simd") for (int64_t j = 0; j < cols; j++) c[j] = FN(act_value)(ACT, p[j]);
            ACT_CASES(act, LOOP)
#undef LOOP
        } else {
#define LOOP(ACT) _Pragma("omp simd") \
            for (int64_t j = 0; j < cols; j++) c[j] = FN(act_value)(ACT, p[j] + (add ? add[j] : 0)) + beta * c[j];
            ACT_CASES(act, LOOP)
#undef LOOP
        }
    }
}

/* Matrix 0 becomes the sum of `parts` matrices that lie `distance` apart; elements [first, first + n). */
void FN(add_parts)(int64_t parts, int64_t distance, int64_t first, int64_t n, void *p)
{
    T *sum = (T *)p + first;
    for (int64_t part = 1; part < parts; part++) {
        const T *more = sum + part * distance;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) sum[j] += more[j];
    }
}
#endif
