/* SPDX-License-Identifier: Apache-2.0 */
/* positions/rotary/rotary_cuda.cu - cos and sin tables on the device, a thread per value. Angles are double, as on the
 * CPU: only the table is rounded. */
#include <cuda_runtime.h>
#include <strata/cuda.h>
#include "rotary_cuda.h"

enum { THREADS = 256 };

static __device__ int axis_of(const struct rotary_tables &a, int i) /* rotary_axis */
{
    if (a.interleaved) {
        const int axis = i % ROTARY_AXES;
        return axis > 0 && i < ROTARY_AXES * (axis == 1 ? a.section[1] : a.section[2]) ? axis : 0;
    }
    return i < a.section[0] ? 0 : i < a.section[0] + a.section[1] ? 1 : 2;
}
static __global__ void __launch_bounds__(THREADS) fill(const rotary_tables a)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, t = at / a.half;
    const int i = (int)(at % a.half);
    double c, s;
    if (t >= a.tokens) return;
    const double angle = exp(-log(a.base) * i / a.half) * a.pos[axis_of(a, i) * a.pos_stride + t];
    sincospi(angle * 0.31830988618379067154, &s, &c); /* of angle / pi: sincos itself would need local memory */
    ((float *)a.cos)[t * a.stride + i] = (float)c;
    ((float *)a.sin)[t * a.stride + i] = (float)s;
}
int rotary_cuda_tables(const st_queue *q, const struct rotary_tables *a)
{
    const int64_t n = a->tokens * a->half;
    if (a->dtype != ST_F32) return ST_E_UNSUPPORTED;
    fill<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, "rotary_tables");
}
