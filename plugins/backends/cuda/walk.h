/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h - where element i, or run i of eight elements, of the walked tensors lies. */
#ifndef CUDA_WALK_H
#define CUDA_WALK_H
#include "kernel.h"

/* at[k]: place, in elements, of element i (row-major) in tensor k. Division of 64 bits is slow, and seldom needed. */
template <int N> DEVICE void walk_places(const cuda_walk &w, int64_t i, int64_t *at)
{
    int64_t at_dim[ST_DIMS];
    if (w.dim[0] == 1 && w.dim[1] == 1 && w.dim[2] == 1) {
#pragma unroll
        for (int k = 0; k < N; k++) at[k] = i * w.stride[k][ST_DIMS - 1];
        return;
    }
    if (w.n <= INT32_MAX) {
        uint32_t rest = (uint32_t)i;
#pragma unroll
        for (int d = ST_DIMS - 1; d >= 0; d--) {
            at_dim[d] = rest % (uint32_t)w.dim[d];
            rest /= (uint32_t)w.dim[d];
        }
    } else {
#pragma unroll
        for (int d = ST_DIMS - 1; d >= 0; d--) {
            at_dim[d] = i % w.dim[d];
            i /= w.dim[d];
        }
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        at[k] = at_dim[0] * w.stride[k][0] + at_dim[1] * w.stride[k][1] + at_dim[2] * w.stride[k][2] +
                at_dim[3] * w.stride[k][3];
}

/* n / by for n < 2^31 by one multiplication: with factor = 2^p / by rounded up, 2^31 <= factor < 2^32, n factor / 2^p is
 * off by less than 1 / by. */
typedef struct walk_divisor { uint32_t by, factor, shift; } walk_divisor;
ST_FN walk_divisor walk_divisor_of(int64_t by)
{
    walk_divisor d = {(uint32_t)by, 0, 0};
    uint32_t bits = 0;
    while ((int64_t)1 << bits < by) bits++;
    if (by < 2) return d;
    d.factor = (uint32_t)((((uint64_t)1 << (31 + bits)) + d.by - 1) / d.by);
    d.shift = bits - 1;
    return d;
}
DEVICE uint32_t walk_divide(const walk_divisor &d, uint32_t n)
{
    return d.by == 1 ? n : __umulhi(n, d.factor) >> d.shift;
}

/* Runs of a wide walk, innermost dimension last, for numbers of 32 bits: products with them are one instruction. */
typedef struct walk_runs {
    uint32_t n, flat;
    walk_divisor dim[ST_DIMS];
    uint32_t stride[CUDA_WALKED][ST_DIMS];
} walk_runs;
/* false: something is too large */
ST_FN bool walk_runs_of(const cuda_walk *w, walk_runs *r)
{
    bool fits = w->n / CUDA_WIDE <= INT32_MAX;
    r->n = (uint32_t)(w->n / CUDA_WIDE);
    r->flat = w->dim[0] == 1 && w->dim[1] == 1 && w->dim[2] == 1;
    for (int d = 0; d < ST_DIMS; d++) {
        int64_t scale = d == ST_DIMS - 1 ? CUDA_WIDE : 1;
        r->dim[d] = walk_divisor_of(w->dim[d] / scale);
        for (int k = 0; k < CUDA_WALKED; k++) {
            int64_t stride = w->data[k] ? w->stride[k][d] * scale : 0;
            fits = fits && stride >= 0 && stride <= UINT32_MAX;
            r->stride[k][d] = (uint32_t)stride;
        }
    }
    return fits;
}
template <int N> DEVICE void walk_run_places(const walk_runs &r, uint32_t run, uint64_t *at)
{
    uint32_t at_dim[ST_DIMS] = {run, 0, 0, 0};
#pragma unroll
    for (int d = ST_DIMS - 1; d > 0; d--) {
        uint32_t above = walk_divide(r.dim[d], at_dim[0]);
        at_dim[d] = at_dim[0] - above * r.dim[d].by;
        at_dim[0] = above;
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        at[k] = 0;
#pragma unroll
        for (int d = 0; d < ST_DIMS; d++) at[k] += (uint64_t)at_dim[d] * r.stride[k][d];
    }
}
#endif
