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

/* ---- the usual case: wide tensors of one type, all given. What is done is known to the compiler, and a thread asks for
 * all that it reads before it uses any of it. ---- */
enum { AT_ONCE = 2 };
template <int WHAT> struct operands {
    enum { in = WHAT == CUDA_GLU_BWD ? 3 : WHAT == CUDA_ACT ? 1 : 2, out = WHAT == CUDA_GLU_BWD ? 2 : 1 };
};
template <typename T> struct point_traits { enum { type = ST_F32, fast = 0 }; };
template <> struct point_traits<st_bf16> { enum { type = ST_BF16, fast = 1 }; };

template <int WHAT, int ACT, bool FAST> DEVICE void element(const cuda_point &p, const float *x, float *y)
{
    switch (WHAT) {
    case CUDA_GLU: y[0] = act_value<FAST>(ACT, x[0]) * x[1]; break;
    case CUDA_GLU_BWD:
        y[0] = x[2] * x[1] * act_slope<FAST>(ACT, x[0]);
        y[1] = x[2] * act_value<FAST>(ACT, x[0]);
        break;
    case CUDA_ACT: y[0] = act_value<FAST>(ACT, x[0]); break;
    case CUDA_ACT_BWD: y[0] = x[1] * act_slope<FAST>(ACT, x[0]); break;
    default: y[0] = p.a * x[0] + p.b * x[1];
    }
}

template <int WHAT, int ACT, typename T>
KERNEL(CUDA_THREADS) typed_kernel(const __grid_constant__ cuda_point p, const __grid_constant__ walk_runs r)
{
    const int in = operands<WHAT>::in, out = operands<WHAT>::out, all = in + out, type = point_traits<T>::type;
    const uint32_t first = blockIdx.x * (CUDA_THREADS * AT_ONCE) + threadIdx.x;
    uint64_t at[AT_ONCE][all];
    float x[AT_ONCE][in][CUDA_WIDE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) { /* behind the last run: the last one is read again, and nothing written */
        const uint32_t run = min(first + i * CUDA_THREADS, r.n - 1);
        if (r.flat)
            for (int k = 0; k < all; k++) at[i][k] = (uint64_t)run * CUDA_WIDE;
        else walk_run_places<all>(r, run, at[i]);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
        for (int k = 0; k < in; k++) get_run<CUDA_WIDE>(p.walk.data[k], type, at[i][k], x[i][k]);
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        float y[out][CUDA_WIDE];
#pragma unroll
        for (int j = 0; j < CUDA_WIDE; j++) {
            float from[in], to[out];
#pragma unroll
            for (int k = 0; k < in; k++) from[k] = x[i][k][j];
            element<WHAT, ACT, point_traits<T>::fast>(p, from, to);
#pragma unroll
            for (int k = 0; k < out; k++) y[k][j] = to[k];
        }
        if (first + i * CUDA_THREADS >= r.n) return;
#pragma unroll
        for (int k = 0; k < out; k++) put_run<CUDA_WIDE>(p.walk.data[in + k], type, at[i][in + k], y[k]);
    }
}

template <int WHAT, int ACT, typename T> static void launch(const st_queue *q, const cuda_point *p, const walk_runs *r)
{
    const unsigned blocks = (unsigned)cuda_div_up(r->n, CUDA_THREADS * AT_ONCE);
    typed_kernel<WHAT, ACT, T><<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*p, *r);
}
template <int WHAT, typename T> static void launch_act(const st_queue *q, const cuda_point *p, const walk_runs *r)
{
    switch (p->act) {
    case ST_ACT_SILU: launch<WHAT, ST_ACT_SILU, T>(q, p, r); break;
    case ST_ACT_GELU_TANH: launch<WHAT, ST_ACT_GELU_TANH, T>(q, p, r); break;
    case ST_ACT_GELU_ERF: launch<WHAT, ST_ACT_GELU_ERF, T>(q, p, r); break;
    case ST_ACT_SIGMOID: launch<WHAT, ST_ACT_SIGMOID, T>(q, p, r); break;
    case ST_ACT_RELU2: launch<WHAT, ST_ACT_RELU2, T>(q, p, r); break;
    default: launch<WHAT, ST_ACT_NONE, T>(q, p, r);
    }
}
template <typename T> static void launch_typed(const st_queue *q, const cuda_point *p, const walk_runs *r)
{
    switch (p->what) {
    case CUDA_GLU: launch_act<CUDA_GLU, T>(q, p, r); break;
    case CUDA_GLU_BWD: launch_act<CUDA_GLU_BWD, T>(q, p, r); break;
    case CUDA_ACT: launch_act<CUDA_ACT, T>(q, p, r); break;
    case CUDA_ACT_BWD: launch_act<CUDA_ACT_BWD, T>(q, p, r); break;
    default: launch<CUDA_ADD, ST_ACT_NONE, T>(q, p, r);
    }
}

static bool of_one_type(const cuda_point *p, walk_runs *r)
{
    int n = p->what == CUDA_GLU_BWD ? 5 : p->what == CUDA_ACT ? 2 : 3;
    bool same = p->walk.wide;
    for (int k = 0; k < n; k++) same = same && p->walk.data[k] && p->walk.type[k] == p->walk.type[0];
    return same && walk_runs_of(&p->walk, r);
}

extern "C" int cuda_run_point(const st_queue *q, const cuda_point *p)
{
    int64_t runs = p->walk.wide ? p->walk.n / CUDA_WIDE : p->walk.n;
    unsigned blocks = cuda_blocks(cuda_div_up(runs, CUDA_THREADS), CUDA_MOST_BLOCKS);
    walk_runs typed;
    if (!p->walk.n) return ST_OK;
    if (of_one_type(p, &typed)) {
        if (p->walk.type[0] == ST_F32) launch_typed<float>(q, p, &typed);
        else launch_typed<st_bf16>(q, p, &typed);
    } else if (p->walk.wide) point_kernel<CUDA_WIDE><<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*p);
    else point_kernel<1><<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*p);
    return st_cuda_launched(q, "point");
}
