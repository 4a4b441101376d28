/* SPDX-License-Identifier: Apache-2.0 */
/* point.cu - kernels that treat each element on its own: glu, act, add and their backward. */
#include "kernel.h"
#include "walk.h"

template <int N> DEVICE void put_output(const cuda_walk &w, const int k, int64_t at, const float *y)
{
    if (w.data[k]) put_run<N>(w.data[k], w.type[k], at, y);
}

template <int N> DEVICE void one_run(const cuda_point &p, const int64_t *at)
{
    const cuda_walk &w = p.walk;
    float x[3][N], y[2][N]; /* inputs and outputs */
    int inputs = p.what == CUDA_GLU_BWD ? 3 : p.what == CUDA_ACT ? 1 : 2;
#pragma unroll
    for (int k = 0; k < 3; k++)
        if (k < inputs && w.data[k]) get_run<N>(w.data[k], w.type[k], at[k], x[k]);
#pragma unroll
    for (int j = 0; j < N; j++) {
        switch (p.what) {
        case CUDA_GLU: y[0][j] = act_value(p.act, x[0][j]) * x[1][j]; break;
        case CUDA_GLU_BWD:
            y[0][j] = x[2][j] * x[1][j] * act_slope(p.act, x[0][j]);
            y[1][j] = x[2][j] * act_value(p.act, x[0][j]);
            break;
        case CUDA_ACT: y[0][j] = act_value(p.act, x[0][j]); break;
        case CUDA_ACT_BWD: y[0][j] = x[1][j] * act_slope(p.act, x[0][j]); break;
        default: y[0][j] = w.data[1] ? p.a * x[0][j] + p.b * x[1][j] : p.a * x[0][j];
        }
    }
    switch (p.what) { /* outputs follow the inputs; their numbers are constants, so that nothing leaves the registers */
    case CUDA_ACT: put_output<N>(w, 1, at[1], y[0]); break;
    case CUDA_GLU_BWD:
        put_output<N>(w, 3, at[3], y[0]);
        put_output<N>(w, 4, at[4], y[1]);
        break;
    default: put_output<N>(w, 2, at[2], y[0]);
    }
}

template <int N> KERNEL(CUDA_THREADS) point_kernel(const cuda_point p)
{
    int64_t at[CUDA_WALKED], runs = p.walk.n / N, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < runs; i += step) {
        walk_places<CUDA_WALKED>(p.walk, i * N, at);
        one_run<N>(p, at);
    }
}

extern "C" int cuda_run_point(const st_queue *q, const cuda_point *p)
{
    int64_t runs = p->walk.wide ? p->walk.n / CUDA_WIDE : p->walk.n;
    unsigned blocks = cuda_blocks(cuda_div_up(runs, CUDA_THREADS), CUDA_MOST_BLOCKS);
    if (!p->walk.n) return ST_OK;
    if (p->walk.wide) point_kernel<CUDA_WIDE><<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*p);
    else point_kernel<1><<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*p);
    return st_cuda_launched(q, "point");
}
