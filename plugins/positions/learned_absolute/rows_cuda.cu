/* SPDX-License-Identifier: Apache-2.0 */
/* positions/learned_absolute/rows_cuda.cu - a row of a table added by position, and its gradient, which is summed in
 * the order of tokens: a block owns some positions, looks at all tokens in turn and takes those that are its own. */
#include <cuda_runtime.h>
#include <strata/cuda.h>
#include "kernels_cuda.h"

enum { THREADS = 256, POSITIONS = 64 };

template <typename T>
static __global__ void __launch_bounds__(THREADS) add(const learned_rows a, const st_cuda_faults faults)
{
    const int64_t t = blockIdx.x, p = a.pos[t];
    T *x = (T *)a.x + t * a.x_stride;
    if (p < 0 || p >= a.positions) {
        if (threadIdx.x == 0) st_cuda_fault(faults, ST_FAULT_RANGE, p, a.positions);
        return;
    }
    const T *row = (const T *)a.table + p * a.table_stride;
    for (int64_t i = threadIdx.x; i < a.width; i += THREADS) st_from_f32(x + i, st_to_f32(x[i]) + st_to_f32(row[i]));
}
template <typename T> static __global__ void __launch_bounds__(THREADS) add_bwd(const learned_rows a)
{
    __shared__ int hits[THREADS], of_warp[THREADS / 32 + 1];
    const int64_t first = (int64_t)blockIdx.x * POSITIONS;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int64_t begin = 0; begin < a.tokens; begin += THREADS) {
        const int64_t t = begin + threadIdx.x, p = t < a.tokens ? a.pos[t] - first : -1;
        const int mine = p >= 0 && p < POSITIONS && first + p < a.positions;
        const unsigned found = __ballot_sync(0xffffffffu, mine);
        if (lane == 0) of_warp[warp + 1] = __popc(found);
        __syncthreads();
        int before = 0, all = 0;
        for (int w = 0; w < THREADS / 32; w++) {
            if (w < warp) before += of_warp[w + 1];
            all += of_warp[w + 1];
        }
        if (mine) hits[before + __popc(found & ((1u << lane) - 1))] = (int)t;
        __syncthreads();
        for (int h = 0; h < all; h++) {
            const int64_t token = hits[h];
            const T *dx = (const T *)a.x + token * a.x_stride;
            float *row = (float *)a.table + a.pos[token] * a.table_stride;
            for (int64_t i = threadIdx.x; i < a.width; i += THREADS) row[i] += st_to_f32(dx[i]);
        }
        __syncthreads();
    }
}
int learned_cuda_add(const st_queue *q, const struct learned_rows *a)
{
    if (a->table_dtype != a->dtype) return ST_E_UNSUPPORTED;
    if (a->dtype == ST_BF16)
        add<st_bf16><<<(unsigned)a->tokens, THREADS, 0, st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
    else if (a->dtype == ST_F32)
        add<float><<<(unsigned)a->tokens, THREADS, 0, st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
    else return ST_E_UNSUPPORTED;
    return st_cuda_launched(q, "learned_add");
}
int learned_cuda_add_bwd(const st_queue *q, const struct learned_rows *a)
{
    const unsigned blocks = (unsigned)((a->positions + POSITIONS - 1) / POSITIONS);
    if (a->table_dtype != ST_F32) return ST_E_UNSUPPORTED;
    if (a->dtype == ST_BF16) add_bwd<st_bf16><<<blocks, THREADS, 0, st_cuda_stream(q)>>>(*a);
    else if (a->dtype == ST_F32) add_bwd<float><<<blocks, THREADS, 0, st_cuda_stream(q)>>>(*a);
    else return ST_E_UNSUPPORTED;
    return st_cuda_launched(q, "learned_add_bwd");
}
