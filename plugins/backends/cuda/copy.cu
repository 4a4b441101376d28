/* SPDX-License-Identifier: Apache-2.0 */
/* copy.cu - copy with any strides and conversion of types, fill, and the sum of squares. */
#include "kernel.h"
#include "walk.h"

/* Whole numbers keep their value up to 2^53. */
DEVICE double get_any(const void *p, int32_t type, int64_t i)
{
    switch (type) {
    case ST_F64: return ((const double *)p)[i];
    case ST_I32: return ((const int32_t *)p)[i];
    case ST_I64: return (double)((const int64_t *)p)[i];
    case ST_U8: return ((const uint8_t *)p)[i];
    default: return get_real(p, type, i);
    }
}
DEVICE void put_any(void *p, int32_t type, int64_t i, double x)
{
    switch (type) {
    case ST_F64: ((double *)p)[i] = x; break;
    case ST_I32: ((int32_t *)p)[i] = (int32_t)x; break;
    case ST_I64: ((int64_t *)p)[i] = (int64_t)x; break;
    case ST_U8: ((uint8_t *)p)[i] = (uint8_t)x; break;
    default: put_real(p, type, i, (float)x);
    }
}

KERNEL(CUDA_THREADS) fill_kernel(const cuda_walk w, double value)
{
    int64_t at, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < w.n; i += step) {
        walk_places<1>(w, i, &at);
        put_any(w.data[0], w.type[0], at, value);
    }
}

extern "C" int cuda_run_fill(const st_queue *q, const cuda_walk *w, double value)
{
    unsigned blocks = cuda_blocks(cuda_div_up(w->n, CUDA_THREADS), CUDA_MOST_BLOCKS);
    fill_kernel<<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*w, value);
    return st_cuda_launched(q, "fill");
}

template <int N> KERNEL(CUDA_THREADS) copy_kernel(const cuda_walk w)
{
    int64_t at[2], runs = w.n / N, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < runs; i += step) {
        float x[N];
        walk_places<2>(w, i * N, at);
        if (N > 1) {
            get_run<N>(w.data[0], w.type[0], at[0], x);
            put_run<N>(w.data[1], w.type[1], at[1], x);
        } else {
            put_any(w.data[1], w.type[1], at[1], get_any(w.data[0], w.type[0], at[0]));
        }
    }
}

/* The same type: bits as they are. */
template <typename T> KERNEL(CUDA_THREADS) bits_kernel(const cuda_walk w)
{
    int64_t at[2], step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < w.n; i += step) {
        walk_places<2>(w, i, at);
        ((T *)w.data[1])[at[1]] = ((const T *)w.data[0])[at[0]];
    }
}

extern "C" int cuda_run_copy_elements(const st_queue *q, const cuda_walk *w)
{
    bool wide = w->wide && w->type[0] != w->type[1];
    unsigned blocks = cuda_blocks(cuda_div_up(wide ? w->n / CUDA_WIDE : w->n, CUDA_THREADS), CUDA_MOST_BLOCKS);
    struct CUstream_st *stream = st_cuda_stream(q);
    if (w->type[0] != w->type[1]) {
        if (wide) copy_kernel<CUDA_WIDE><<<blocks, CUDA_THREADS, 0, stream>>>(*w);
        else copy_kernel<1><<<blocks, CUDA_THREADS, 0, stream>>>(*w);
    } else {
        switch (st_dtype_size(w->type[0])) {
        case 8: bits_kernel<uint64_t><<<blocks, CUDA_THREADS, 0, stream>>>(*w); break;
        case 4: bits_kernel<uint32_t><<<blocks, CUDA_THREADS, 0, stream>>>(*w); break;
        case 2: bits_kernel<uint16_t><<<blocks, CUDA_THREADS, 0, stream>>>(*w); break;
        default: bits_kernel<uint8_t><<<blocks, CUDA_THREADS, 0, stream>>>(*w);
        }
    }
    return st_cuda_launched(q, "copy");
}

/* ---- sum of squares: a sum for each piece, then their sum; the number of pieces depends on the size alone ---- */
template <int N> KERNEL(CUDA_THREADS) squares_kernel(const cuda_walk w, double *part)
{
    __shared__ double room[CUDA_THREADS / CUDA_WARP];
    int64_t at, runs = w.n / N, step = (int64_t)gridDim.x * blockDim.x;
    double sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < runs; i += step) {
        float x[N];
        walk_places<1>(w, i * N, &at);
        get_run<N>(w.data[0], w.type[0], at, x);
#pragma unroll
        for (int j = 0; j < N; j++) sum += (double)x[j] * (double)x[j];
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

KERNEL(CUDA_THREADS) squares_total(const double *part, int64_t pieces, double weight, float *cell)
{
    __shared__ double room[CUDA_THREADS / CUDA_WARP];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < pieces; i += blockDim.x) sum += part[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) *cell = (float)((double)*cell + weight * sum);
}

extern "C" int cuda_run_sumsq(const st_queue *q, const cuda_squares *s)
{
    struct CUstream_st *stream = st_cuda_stream(q);
    unsigned pieces = (unsigned)s->pieces;
    if (s->walk.wide) squares_kernel<CUDA_WIDE><<<pieces, CUDA_THREADS, 0, stream>>>(s->walk, s->part);
    else squares_kernel<1><<<pieces, CUDA_THREADS, 0, stream>>>(s->walk, s->part);
    squares_total<<<1, CUDA_THREADS, 0, stream>>>(s->part, s->pieces, s->weight, s->cell);
    return st_cuda_launched(q, "sumsq");
}
