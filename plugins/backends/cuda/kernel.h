/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h - what the .cu files share: launch sizes, sums in a fixed order, and elements of a type that is known at run time
 * only. The type is the same for all threads of a launch, so the branch on it costs little beside the access to memory. */
#ifndef CUDA_KERNEL_H
#define CUDA_KERNEL_H
#include "cuda.h"
#include <strata/cuda.h>

#define DEVICE static __device__ __forceinline__
#define KERNEL(threads) static __global__ void __launch_bounds__(threads)

enum { CUDA_THREADS = 256, CUDA_WARP = 32, CUDA_MOST_BLOCKS = 132 * 16, CUDA_MOST_Y = 65535 };

ST_FN int64_t cuda_div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* Blocks for n pieces of work that a grid shares out in strides. */
ST_FN unsigned cuda_blocks(int64_t n, int64_t most) { return (unsigned)(n < most ? (n > 1 ? n : 1) : most); }

/* ---- one element, or 8 that are contiguous and aligned ---- */
DEVICE float get_real(const void *p, int32_t type, int64_t i)
{
    return type == ST_F32 ? ((const float *)p)[i] : st_to_f32(((const st_bf16 *)p)[i]);
}
DEVICE void put_real(void *p, int32_t type, int64_t i, float x)
{
    if (type == ST_F32) ((float *)p)[i] = x;
    else st_from_f32((st_bf16 *)p + i, x);
}
DEVICE float low_half(uint32_t pair) { return __uint_as_float(pair << 16); }
DEVICE float high_half(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

template <int N> DEVICE void get_run(const void *p, int32_t type, int64_t i, float *x) /* N: 1 or 8 */
{
    if (N == 1) {
        x[0] = get_real(p, type, i);
    } else if (type == ST_F32) {
        const float4 *from = (const float4 *)((const float *)p + i);
        float4 a = from[0], b = from[1];
        x[0] = a.x; x[1] = a.y; x[2] = a.z; x[3] = a.w;
        x[4] = b.x; x[5] = b.y; x[6] = b.z; x[7] = b.w;
    } else {
        uint4 a = *(const uint4 *)((const st_bf16 *)p + i);
        x[0] = low_half(a.x); x[1] = high_half(a.x); x[2] = low_half(a.y); x[3] = high_half(a.y);
        x[4] = low_half(a.z); x[5] = high_half(a.z); x[6] = low_half(a.w); x[7] = high_half(a.w);
    }
}
template <int N> DEVICE void put_run(void *p, int32_t type, int64_t i, const float *x)
{
    if (N == 1) {
        put_real(p, type, i, x[0]);
    } else if (type == ST_F32) {
        float4 *to = (float4 *)((float *)p + i);
        to[0] = make_float4(x[0], x[1], x[2], x[3]);
        to[1] = make_float4(x[4], x[5], x[6], x[7]);
    } else {
        *(uint4 *)((st_bf16 *)p + i) = make_uint4(st_bf16_pair(x[0], x[1]), st_bf16_pair(x[2], x[3]),
                                                  st_bf16_pair(x[4], x[5]), st_bf16_pair(x[6], x[7]));
    }
}
DEVICE void *row_at(const cuda_view &v, int64_t row) /* row = token * heads + head */
{
    int64_t at = v.heads == 1 ? row * v.s_row : row / v.heads * v.s_row + row % v.heads * v.s_head;
    return (char *)v.data + at * (v.type == ST_F32 ? 4 : 2);
}

/* ---- sums over the threads of a warp or block; every thread gets the result. The order is that of the lanes. ---- */
template <typename T> DEVICE T warp_sum(T x) { return st_lanes_sum<CUDA_WARP>(x); }
/* All threads of the block; room: one T for each warp. May be called again with the same room. */
template <typename T> DEVICE T block_sum(T x, T *room)
{
    int warps = blockDim.x / CUDA_WARP;
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % CUDA_WARP == 0) room[threadIdx.x / CUDA_WARP] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < warps; i++) x += room[i];
    return x;
}

/* ---- activations, as the cpu backend has them. FAST: within 2^-16, for what is rounded to bf16 next. ---- */
#define LOG2_E 1.4426950408889634f

template <bool FAST> DEVICE float sigmoid(float x)
{
    return FAST ? st_inverse_fast(1.0f + st_exp2_fast(-LOG2_E * x)) : 1.0f / (1.0f + expf(-x));
}
/* and sigmoid(-x), without the cancellation of 1 - sigmoid(x) */
template <bool FAST> DEVICE float sigmoid_both(float x, float *other)
{
    if (FAST) {
        float e = st_exp2_fast(-LOG2_E * x), s = st_inverse_fast(1.0f + e);
        *other = x < 0 ? 1.0f - s : e * s; /* e may be infinite below 0 */
        return s;
    }
    float e = expf(-fabsf(x)), large = 1.0f / (1.0f + e), small = e * large;
    *other = x < 0 ? large : small;
    return x < 0 ? small : large;
}
DEVICE float gelu_inner(float x) { return 1.59576912160573071176f * (x + 0.044715f * x * x * x); } /* 2 sqrt(2 / pi) ... */

template <bool FAST = false> DEVICE float act_value(int act, float x)
{
    switch (act) {
    case ST_ACT_SILU: return x * sigmoid<FAST>(x);
    case ST_ACT_GELU_TANH: return x * sigmoid<FAST>(gelu_inner(x));
    case ST_ACT_GELU_ERF: return x * normcdff(x);
    case ST_ACT_SIGMOID: return sigmoid<FAST>(x);
    case ST_ACT_RELU2: return (x < 0 ? 0.0f : x) * x;
    default: return x;
    }
}

template <bool FAST = false> DEVICE float act_slope(int act, float x)
{
    float s, rest;
    switch (act) {
    case ST_ACT_SILU:
        s = sigmoid_both<FAST>(x, &rest);
        return s * (1.0f + x * rest);
    case ST_ACT_GELU_TANH:
        s = sigmoid_both<FAST>(gelu_inner(x), &rest);
        return s * (1.0f + x * rest * (1.59576912160573071176f * (1.0f + 3.0f * 0.044715f * x * x)));
    case ST_ACT_GELU_ERF: return normcdff(x) + x * 0.39894228040143267794f * expf(-0.5f * x * x);
    case ST_ACT_SIGMOID:
        s = sigmoid_both<FAST>(x, &rest);
        return s * rest;
    case ST_ACT_RELU2: return 2.0f * (x < 0 ? 0.0f : x);
    default: return 1.0f;
    }
}
#endif
