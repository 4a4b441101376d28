/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h - runs of eight columns, kept as they lie in memory until they are used, and where a row of a view lies. */
#ifndef CUDA_PACK_H
#define CUDA_PACK_H
#include "kernel.h"

/* Eight elements as they lie in memory. */
template <typename T> struct pack {
    uint4 part[CUDA_WIDE * sizeof(T) / 16];
};

template <typename T> struct pack_type {
    enum { type = ST_F32 };
};
template <> struct pack_type<st_bf16> {
    enum { type = ST_BF16 };
};

template <typename T> DEVICE pack<T> load(const T *p)
{
    pack<T> v;
#pragma unroll
    for (int i = 0; i < (int)(CUDA_WIDE * sizeof(T) / 16); i++) v.part[i] = ((const uint4 *)p)[i];
    return v;
}
template <typename T> DEVICE void unpack(const pack<T> &v, float *x)
{
    get_run<CUDA_WIDE>(&v, pack_type<T>::type, 0, x);
}
template <typename T> DEVICE void store(T *p, const float *x) { put_run<CUDA_WIDE>(p, pack_type<T>::type, 0, x); }

template <typename T> DEVICE T *place(const cuda_view &v, uint32_t token, uint32_t head)
{
    return (T *)v.data + (token * v.s_row + head * v.s_head);
}
#endif
