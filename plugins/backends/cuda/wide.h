/* SPDX-License-Identifier: Apache-2.0 */
/* wide.h - eight neighbouring elements as a value, by 16-byte accesses where rows allow it. */
#ifndef CUDA_WIDE_H
#define CUDA_WIDE_H
#include "kernel.h"

typedef struct cuda_eight { float x[CUDA_WIDE]; } cuda_eight;

DEVICE cuda_eight get_eight(const float *p)
{
    cuda_eight v;
    get_run<CUDA_WIDE>(p, ST_F32, 0, v.x);
    return v;
}
DEVICE cuda_eight get_eight(const st_bf16 *p)
{
    cuda_eight v;
    get_run<CUDA_WIDE>(p, ST_BF16, 0, v.x);
    return v;
}
DEVICE void put_eight(float *p, const cuda_eight &v) { put_run<CUDA_WIDE>(p, ST_F32, 0, v.x); }
DEVICE void put_eight(st_bf16 *p, const cuda_eight &v) { put_run<CUDA_WIDE>(p, ST_BF16, 0, v.x); }

/* Elements [i, i + 8) of one of the two types; only the first n exist. wide: all do, and i lies on 16 bytes. */
DEVICE cuda_eight get_some(const void *p, int32_t type, int64_t i, int64_t n, bool wide)
{
    cuda_eight v;
    if (wide) get_run<CUDA_WIDE>(p, type, i, v.x);
    else
        for (int j = 0; j < CUDA_WIDE; j++) v.x[j] = j < n ? get_real(p, type, i + j) : 0.0f;
    return v;
}
DEVICE void put_some(void *p, int32_t type, int64_t i, int64_t n, bool wide, const cuda_eight &v)
{
    if (wide) put_run<CUDA_WIDE>(p, type, i, v.x);
    else
        for (int j = 0; j < CUDA_WIDE; j++)
            if (j < n) put_real(p, type, i + j, v.x[j]);
}
DEVICE void add_eight(cuda_eight &a, const cuda_eight &b)
{
#pragma unroll
    for (int j = 0; j < CUDA_WIDE; j++) a.x[j] += b.x[j];
}

/* Of a view without heads, in the host's code: may its rows be walked by eights? */
ST_FN bool cuda_rows_wide(const cuda_view *v)
{
    int64_t size = v->type == ST_F32 ? 4 : 2;
    return !v->data || (v->cols % CUDA_WIDE == 0 && ((uintptr_t)v->data | (uintptr_t)(v->s_row * size)) % 16 == 0);
}
#endif
