/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h - where element i of the walked tensors lies. */
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
#endif
