/* SPDX-License-Identifier: Apache-2.0 */
/* muon/kernels_cuda.cu - the kernels on a GPU, for masters in f32. Sums run in double: over the columns of a row by one block, over
 * rows by another, in an order that depends on sizes alone. */
#include <cuda_runtime.h>
#include <strata/cuda.h>
#include "kernels.h"
#include "kernels_cuda.h"

enum { THREADS = 256, WARPS = THREADS / 32, MOST_BLOCKS = 132 * 16 };

/* Every thread gets the sum over the block. */
static __device__ double block_sum(double x)
{
    __shared__ double of_warp[WARPS];
    x = st_lanes_sum<32>(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < WARPS; i++) x += of_warp[i];
    return x;
}

static __global__ void __launch_bounds__(THREADS) momentum_rows(const struct muon_matrix a)
{
    const int64_t r = blockIdx.x;
    const float clip = *(const float *)a.clip, beta = ((const float *)a.hyper)[HYPER_MOMENTUM];
    const float *grad = (const float *)a.grad + r * a.stride;
    float *state = (float *)a.state + r * a.stride, *x = (float *)a.x + r * a.cols;
    const bool skip = *(const float *)a.skip != 0;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < a.cols; i += THREADS) {
        float u = 0;
        if (!skip) {
            const float g = clip * grad[i], m = beta * state[i] + g;
            u = a.nesterov ? g + beta * m : m;
            state[i] = m;
        }
        x[i] = u;
        sum += (double)u * (double)u;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) ((double *)a.row_sum)[r] = sum;
}

/* One block: the first of the sums becomes what x is multiplied by. */
static __global__ void __launch_bounds__(THREADS) factor(const struct muon_matrix a)
{
    double *row_sum = (double *)a.row_sum, sum = 0;
    for (int64_t r = threadIdx.x; r < a.rows; r += THREADS) sum += row_sum[r];
    sum = block_sum(sum); /* behind its barriers all have read */
    if (threadIdx.x == 0) row_sum[0] = 1 / (sqrt(sum) + a.eps);
}

static __global__ void __launch_bounds__(THREADS) divide(const struct muon_matrix a)
{
    const float by = (float)*(const double *)a.row_sum;
    const int64_t n = a.rows * a.cols, step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) ((float *)a.x)[i] *= by;
}

template <typename T> static __global__ void __launch_bounds__(THREADS) apply_rows(const struct muon_matrix a)
{
    const float *hyper = (const float *)a.hyper, lr = hyper[HYPER_LR], decay = hyper[HYPER_DECAY], scale = (float)a.scale;
    const int64_t r = blockIdx.x;
    const float *x = (const float *)a.x + r * a.cols;
    float *w = (float *)a.master + r * a.stride;
    T *out = (T *)a.weight + r * a.stride;
    if (*(const float *)a.skip != 0) return;
    for (int64_t i = threadIdx.x; i < a.cols; i += THREADS) {
        w[i] -= lr * (decay * w[i] + scale * x[i]);
        st_from_f32(out + i, w[i]); /* may be the master itself */
    }
}

static unsigned blocks_for(int64_t n)
{
    const int64_t blocks = (n + THREADS - 1) / THREADS;
    return (unsigned)(blocks < 1 ? 1 : blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
}

int muon_cuda_momentum(const st_queue *q, const struct muon_matrix *a)
{
    if (a->dtype != ST_F32) return ST_E_UNSUPPORTED;
    momentum_rows<<<(unsigned)a->rows, THREADS, 0, st_cuda_stream(q)>>>(*a);
    factor<<<1, THREADS, 0, st_cuda_stream(q)>>>(*a);
    divide<<<blocks_for(a->rows * a->cols), THREADS, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, "muon_momentum");
}

int muon_cuda_apply(const st_queue *q, const struct muon_matrix *a)
{
    if (a->dtype != ST_F32) return ST_E_UNSUPPORTED;
    if (a->weight_dtype == ST_BF16) apply_rows<st_bf16><<<(unsigned)a->rows, THREADS, 0, st_cuda_stream(q)>>>(*a);
    else if (a->weight_dtype == ST_F32) apply_rows<float><<<(unsigned)a->rows, THREADS, 0, st_cuda_stream(q)>>>(*a);
    else return ST_E_UNSUPPORTED;
    return st_cuda_launched(q, "muon_apply");
}
