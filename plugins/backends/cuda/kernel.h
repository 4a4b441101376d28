/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h - what the .cu files share: launch sizes, and elements of a type that is known at run time only. The type is the
 * same for all threads of a launch, so the branch on it costs little beside the access to memory. */
#ifndef CUDA_KERNEL_H
#define CUDA_KERNEL_H
#include "cuda.h"
#include <strata/cuda.h>

#define DEVICE static __device__ __forceinline__

enum { CUDA_THREADS = 256, CUDA_MOST_BLOCKS = 132 * 16 };

ST_FN int64_t cuda_div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* Blocks for n pieces of work that a grid shares out in strides. */
ST_FN unsigned cuda_blocks(int64_t n, int64_t most) { return (unsigned)(n < most ? (n > 1 ? n : 1) : most); }

DEVICE float get_real(const void *p, int32_t type, int64_t i)
{
    return type == ST_F32 ? ((const float *)p)[i] : st_to_f32(((const st_bf16 *)p)[i]);
}
DEVICE void put_real(void *p, int32_t type, int64_t i, float x)
{
    if (type == ST_F32) ((float *)p)[i] = x;
    else st_from_f32((st_bf16 *)p + i, x);
}
#endif
