/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/math_cuda.h - for the kernels around the rule, which are bound by memory: runs of neighbours that are
 * loaded and unpacked apart from each other, so that many loads are under way at once, and the sigmoid. */
#ifndef GDN_MATH_CUDA_H
#define GDN_MATH_CUDA_H
#include "tile_cuda.h"

/* N neighbours as they lie in memory: 8 bytes, a multiple of 16, or one element. */
template <int N, typename T> struct run { uint32_t word[(N * sizeof(T) + 3) / 4]; };

template <int N, typename T> DEVICE run<N, T> load(const T *from)
{
    run<N, T> r;
    if constexpr (N == 1) {
        r.word[0] = __float_as_uint(st_to_f32(*from));
    } else if constexpr (N * sizeof(T) == 8) {
        const uint2 v = *(const uint2 *)from;
        r.word[0] = v.x;
        r.word[1] = v.y;
    } else {
#pragma unroll
        for (int i = 0; i < (int)(N * sizeof(T) / 16); i++) {
            const uint4 v = ((const uint4 *)from)[i];
            r.word[4 * i] = v.x;
            r.word[4 * i + 1] = v.y;
            r.word[4 * i + 2] = v.z;
            r.word[4 * i + 3] = v.w;
        }
    }
    return r;
}
template <int N, typename T> DEVICE void unpack(float out[N], const run<N, T> &r)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        out[i] = __uint_as_float(N == 1 || sizeof(T) == 4 ? r.word[i]
                                 : i % 2                  ? r.word[i / 2] & 0xffff0000u
                                                          : r.word[i / 2] << 16);
}
template <int N, typename T> DEVICE void write(T *to, const float in[N])
{
    if constexpr (N == 1) {
        st_from_f32(to, in[0]);
    } else {
        uint32_t word[N * sizeof(T) / 4];
#pragma unroll
        for (int i = 0; i < (int)(N * sizeof(T) / 4); i++)
            word[i] = sizeof(T) == 4 ? __float_as_uint(in[i]) : st_bf16_pair(in[2 * i % N], in[(2 * i + 1) % N]);
        if constexpr (N * sizeof(T) == 8) *(uint2 *)to = make_uint2(word[0], word[1]);
        else
#pragma unroll
            for (int i = 0; i < (int)(N * sizeof(T) / 16); i++)
                ((uint4 *)to)[i] = make_uint4(word[4 * i], word[4 * i + 1], word[4 * i + 2], word[4 * i + 3]);
    }
}

/* In runs of bf16 the sigmoid is within 2^-16. */
DEVICE float fast_exp(float x) { return st_exp2_fast(1.4426950408889634f * x); }
template <typename T> DEVICE float sigmoid(float x)
{
    return sizeof(T) == 4 ? 1.0f / (1.0f + expf(-x)) : st_inverse_fast(1.0f + fast_exp(-x));
}
/* and sigmoid(-x), without the cancellation of 1 - sigmoid(x) */
template <typename T> DEVICE float sigmoid(float x, float *other)
{
    if constexpr (sizeof(T) == 4) {
        const float e = expf(-fabsf(x)), d = 1.0f / (1.0f + e), s = e * d;
        *other = x < 0 ? d : s;
        return x < 0 ? s : d;
    }
    const float e = fast_exp(-x), s = st_inverse_fast(1.0f + e);
    *other = x < 0 ? 1.0f - s : e * s; /* e may be infinite below 0 */
    return s;
}
/* May neighbours be taken in runs of `bytes` along rows of this stride? */
template <typename T> static int in_runs(const void *p, int64_t stride, int64_t bytes)
{
    return ((uintptr_t)p | (uintptr_t)(stride * (int64_t)sizeof(T))) % (uintptr_t)bytes == 0;
}
#endif
