/* SPDX-License-Identifier: Apache-2.0 */
/* move.cu - kernels that move rows by index: gather, scatter, combine. */
#include "kernel.h"

/* ---- gather and scatter: any type, in units of up to 16 bytes ---- */
template <typename T> KERNEL(CUDA_THREADS) move_kernel(const cuda_move a, st_cuda_faults faults)
{
    int64_t units = a.row_bytes / (int64_t)sizeof(T), step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n * units; i += step) {
        int64_t row = i / units, j = i % units, at = a.index[row];
        if (at >= a.limit || at < -2) {
            if (j == 0) st_cuda_fault(faults, ST_FAULT_RANGE, at, a.limit);
            continue;
        }
        int64_t from = a.scatter ? row : at, to = a.scatter ? at : row;
        if (at < 0 && (a.scatter || at == -2)) continue;
        T *out = (T *)((char *)a.dst + to * a.s_dst) + j;
        if (at < 0) memset(out, 0, sizeof *out);
        else *out = ((const T *)((const char *)a.src + from * a.s_src))[j];
    }
}

extern "C" int cuda_run_move(const st_queue *q, const cuda_move *a)
{
    unsigned blocks = cuda_blocks(cuda_div_up(a->n * (a->row_bytes / a->unit), CUDA_THREADS), CUDA_MOST_BLOCKS * 4);
    struct CUstream_st *stream = st_cuda_stream(q);
    st_cuda_faults faults = st_cuda_faults_of(q);
    switch (a->unit) {
    case 16: move_kernel<uint4><<<blocks, CUDA_THREADS, 0, stream>>>(*a, faults); break;
    case 8: move_kernel<uint2><<<blocks, CUDA_THREADS, 0, stream>>>(*a, faults); break;
    case 4: move_kernel<uint32_t><<<blocks, CUDA_THREADS, 0, stream>>>(*a, faults); break;
    case 2: move_kernel<uint16_t><<<blocks, CUDA_THREADS, 0, stream>>>(*a, faults); break;
    default: move_kernel<uint8_t><<<blocks, CUDA_THREADS, 0, stream>>>(*a, faults);
    }
    return st_cuda_launched(q, a->scatter ? "scatter" : "gather");
}

/* ---- combine: dst[t] = sum_k w[t,k] src[index[t,k]] ---- */
KERNEL(CUDA_THREADS) combine_kernel(const cuda_combine a, st_cuda_faults faults)
{
    int64_t n = a.dst.rows * a.dst.cols, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t t = i / a.dst.cols, j = i % a.dst.cols;
        float sum = 0;
        for (int64_t k = 0; k < a.n_index; k++) {
            int64_t row = a.index[t * a.s_index + k];
            if (row >= a.src.rows && j == 0) st_cuda_fault(faults, ST_FAULT_RANGE, row, a.src.rows);
            if (row < 0 || row >= a.src.rows) continue;
            float factor = a.w.data ? get_real(a.w.data, a.w.type, t * a.w.s_row + k) : 1.0f;
            sum += factor * get_real(a.src.data, a.src.type, row * a.src.s_row + j);
        }
        put_real(a.dst.data, a.dst.type, t * a.dst.s_row + j, sum);
    }
}

extern "C" int cuda_run_combine(const st_queue *q, const cuda_combine *a)
{
    unsigned blocks = cuda_blocks(cuda_div_up(a->dst.rows * a->dst.cols, CUDA_THREADS), CUDA_MOST_BLOCKS * 4);
    combine_kernel<<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
    return st_cuda_launched(q, "combine");
}
