/* SPDX-License-Identifier: Apache-2.0 */
/* moe/warp_cuda.h - sums and logistic functions that the CUDA kernels of this folder share. */
#ifndef MOE_WARP_CUDA_H
#define MOE_WARP_CUDA_H
#include "kernels_cuda.h"
#include <cuda_runtime.h>
#include <strata/cuda.h>

#define DEVICE static __device__ __forceinline__
enum { THREADS = 256, WARPS = THREADS / 32 };

DEVICE int lane_of() { return threadIdx.x & 31; }
DEVICE int warp_of() { return threadIdx.x >> 5; }
DEVICE float warp_max(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* Softmax over all experts of a token as p_e = e^(l_e - top) / sum; by a warp. A NaN reaches the sum. */
typedef struct softmax { float top, sum; } softmax;
DEVICE softmax softmax_of(const float *l, int experts)
{
    softmax s = {-INFINITY, 0};
    for (int e = lane_of(); e < experts; e += 32) s.top = fmaxf(s.top, l[e]);
    s.top = warp_max(s.top);
    for (int e = lane_of(); e < experts; e += 32) s.sum += expf(l[e] - s.top);
    s.sum = st_lanes_sum<32>(s.sum);
    return s;
}
DEVICE float probability(softmax s, float l) { return expf(l - s.top) / s.sum; }
#endif
