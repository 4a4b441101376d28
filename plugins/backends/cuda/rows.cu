/* SPDX-License-Identifier: Apache-2.0 */
/* rows.cu - kernels over whole rows: norm and the gradient at its input for rows of any length, alignment and types (norm.cu
 * has the usual ones), rotary embedding. A row is done by a warp, or by a block when it is long. Statistics are summed in
 * f64. */
#include "kernel.h"

enum { LONG_ROW = 1024 };

/* Threads of a row: T = 32 (8 rows a block) or CUDA_THREADS. */
template <int T> DEVICE double row_sum(double x)
{
    if (T == CUDA_WARP) return warp_sum(x);
    __shared__ double room[CUDA_THREADS / CUDA_WARP];
    return block_sum(x, room);
}


template <int N> DEVICE void factors(const cuda_norm &a, int64_t j, float *factor)
{
    if (a.w) get_run<N>(a.w, a.w_type, j, factor);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float w = a.w ? factor[i] : a.kind == ST_NORM_RMS1P ? 0.0f : 1.0f;
        factor[i] = a.kind == ST_NORM_RMS1P ? 1.0f + w : w;
    }
}

template <int N> DEVICE void write_normed(const cuda_norm &a, int64_t j, const float *x, float mean, float rstd, void *n)
{
    float factor[N], shift[N], out[N];
    factors<N>(a, j, factor);
    if (a.b) get_run<N>(a.b, a.b_type, j, shift);
#pragma unroll
    for (int i = 0; i < N; i++) {
        out[i] = (x[i] - mean) * rstd * factor[i];
        if (a.b) out[i] += shift[i];
    }
    put_run<N>(n, a.n.type, j, out);
}

/* What is normed: r + y, as it was stored where r_out is given. */
template <int N> DEVICE void get_normed(const cuda_norm &a, const void *r, const void *y, int64_t j, float *x)
{
    if (a.r_out.data) {
        get_run<N>(r, a.r_out.type, j, x);
        return;
    }
    get_run<N>(r, a.r.type, j, x);
    if (y) {
        float add[N];
        get_run<N>(y, a.y.type, j, add);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] += add[i];
    }
}

template <int N> DEVICE void store_sum(const cuda_norm &a, const void *r, const void *y, void *out, int64_t j)
{
    float x[N], add[N];
    get_run<N>(r, a.r.type, j, x);
    if (y) {
        get_run<N>(y, a.y.type, j, add);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] += add[i];
    }
    put_run<N>(out, a.r_out.type, j, x);
}

/* Each thread reads again only what it wrote itself. */
template <int N, int T> KERNEL(CUDA_THREADS) norm_kernel(const cuda_norm a)
{
    int64_t row = (int64_t)blockIdx.x * (CUDA_THREADS / T) + threadIdx.x / T, cols = a.r.cols;
    if (row >= a.rows) return; /* whole warps, or the whole block */
    const void *r = row_at(a.r, row), *y = a.y.data ? row_at(a.y, row) : NULL;
    int64_t first = (int64_t)(threadIdx.x % T) * N;
    double sum = 0, squares = 0, mean = 0;
    if (a.r_out.data) {
        void *out = row_at(a.r_out, row);
        for (int64_t j = first; j < cols; j += T * N) store_sum<N>(a, r, y, out, j);
        r = out;
    }
    if (a.kind == ST_NORM_LAYER) {
        for (int64_t j = first; j < cols; j += T * N) {
            float x[N];
            get_normed<N>(a, r, y, j, x);
#pragma unroll
            for (int i = 0; i < N; i++) sum += (double)x[i];
        }
        mean = row_sum<T>(sum) / (double)cols;
    }
    for (int64_t j = first; j < cols; j += T * N) {
        float x[N];
        get_normed<N>(a, r, y, j, x);
#pragma unroll
        for (int i = 0; i < N; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    }
    double rstd = 1.0 / sqrt(row_sum<T>(squares) / (double)cols + a.eps);
    if (threadIdx.x % T == 0) {
        if (a.rstd.data) *(float *)row_at(a.rstd, row) = (float)rstd;
        if (a.mean.data) *(float *)row_at(a.mean, row) = (float)mean;
    }
    if (!a.n.data) return;
    void *n = row_at(a.n, row);
    for (int64_t j = first; j < cols; j += T * N) {
        float x[N];
        get_normed<N>(a, r, y, j, x);
        write_normed<N>(a, j, x, (float)mean, (float)rstd, n);
    }
}

/* dr = rstd (g - mean(g) [layer] - xhat mean(g xhat)), g = dn * factor, xhat = (r - mean) rstd; and n again. */
template <int N, int T> KERNEL(CUDA_THREADS) norm_bwd_kernel(const cuda_norm a)
{
    int64_t row = (int64_t)blockIdx.x * (CUDA_THREADS / T) + threadIdx.x / T, cols = a.r.cols;
    if (row >= a.rows) return;
    const void *r = row_at(a.r, row), *dn = row_at(a.dn, row);
    int64_t first = (int64_t)(threadIdx.x % T) * N;
    float mean = a.kind == ST_NORM_LAYER ? *(const float *)row_at(a.mean, row) : 0.0f;
    float rstd = *(const float *)row_at(a.rstd, row), x[N], g[N], factor[N];
    double sum = 0, along = 0;
    for (int64_t j = first; j < cols; j += T * N) {
        get_run<N>(r, a.r.type, j, x);
        get_run<N>(dn, a.dn.type, j, g);
        factors<N>(a, j, factor);
#pragma unroll
        for (int i = 0; i < N; i++) {
            double grad = (double)(g[i] * factor[i]);
            sum += grad;
            along += grad * (double)((x[i] - mean) * rstd);
        }
    }
    sum = row_sum<T>(sum);
    along = row_sum<T>(along);
    float g_mean = a.kind == ST_NORM_LAYER ? (float)(sum / (double)cols) : 0.0f, x_mean = (float)(along / (double)cols);
    void *dr = a.dr.data ? row_at(a.dr, row) : NULL, *n = a.n.data ? row_at(a.n, row) : NULL;
    for (int64_t j = first; j < cols; j += T * N) {
        get_run<N>(r, a.r.type, j, x);
        get_run<N>(dn, a.dn.type, j, g);
        factors<N>(a, j, factor);
        if (dr) {
            float old[N], out[N];
            if (a.add) get_run<N>(dr, a.dr.type, j, old);
#pragma unroll
            for (int i = 0; i < N; i++) {
                out[i] = rstd * (g[i] * factor[i] - g_mean - (x[i] - mean) * rstd * x_mean);
                if (a.add) out[i] += old[i];
            }
            put_run<N>(dr, a.dr.type, j, out);
        }
        if (n) write_normed<N>(a, j, x, mean, rstd, n);
    }
}

#define LAUNCH_ROWS(kernel, a) do { \
    bool is_long = (a)->r.cols > LONG_ROW; \
    unsigned blocks = (unsigned)cuda_div_up((a)->rows, is_long ? 1 : CUDA_THREADS / CUDA_WARP); \
    struct CUstream_st *stream = st_cuda_stream(q); \
    if ((a)->wide && is_long) kernel<CUDA_WIDE, CUDA_THREADS><<<blocks, CUDA_THREADS, 0, stream>>>(*(a)); \
    else if ((a)->wide) kernel<CUDA_WIDE, CUDA_WARP><<<blocks, CUDA_THREADS, 0, stream>>>(*(a)); \
    else if (is_long) kernel<1, CUDA_THREADS><<<blocks, CUDA_THREADS, 0, stream>>>(*(a)); \
    else kernel<1, CUDA_WARP><<<blocks, CUDA_THREADS, 0, stream>>>(*(a)); \
} while (0)

extern "C" int cuda_norm_walked(const st_queue *q, const cuda_norm *a)
{
    LAUNCH_ROWS(norm_kernel, a);
    return st_cuda_launched(q, "norm");
}

/* Sums over rows first: dr may lie where dn does. */
extern "C" int cuda_norm_walked_bwd(const st_queue *q, const cuda_norm *a)
{
    if (a->part) ST_TRY(cuda_norm_sums(q, a));
    if (!a->dr.data && !a->n.data) return ST_OK;
    LAUNCH_ROWS(norm_bwd_kernel, a);
    return st_cuda_launched(q, "norm_bwd");
}

/* ---- rotary embedding, in place ---- */
KERNEL(CUDA_THREADS) rope_kernel(const cuda_rope a)
{
    int64_t n = a.x.rows * a.x.heads * a.half, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t pair = i % a.half, row = i / a.half, token = row / a.x.heads;
        void *x = row_at(a.x, row);
        int64_t low = a.interleaved ? 2 * pair : pair, high = a.interleaved ? 2 * pair + 1 : pair + a.half;
        float c = a.cos[token * a.s_cos + pair], s = a.sin[token * a.s_sin + pair];
        if (a.inverse) s = -s;
        float u = get_real(x, a.x.type, low), v = get_real(x, a.x.type, high);
        put_real(x, a.x.type, low, u * c - v * s);
        put_real(x, a.x.type, high, v * c + u * s);
    }
}

/* Eight neighbouring pairs at a time: the halves of a head apart, all aligned. */
template <int TYPE> KERNEL(CUDA_THREADS) rope_wide_kernel(const __grid_constant__ cuda_rope a, uint32_t n)
{
    uint32_t i = blockIdx.x * CUDA_THREADS + threadIdx.x, runs = (uint32_t)a.half / CUDA_WIDE, heads = (uint32_t)a.x.heads;
    if (i >= n) return;
    uint32_t run = i % runs, row = i / runs, token = row / heads, head = row % heads;
    int64_t low = token * a.x.s_row + head * a.x.s_head + run * CUDA_WIDE, high = low + a.half;
    float u[CUDA_WIDE], v[CUDA_WIDE], c[CUDA_WIDE], s[CUDA_WIDE];
    get_run<CUDA_WIDE>(a.x.data, TYPE, low, u);
    get_run<CUDA_WIDE>(a.x.data, TYPE, high, v);
    get_run<CUDA_WIDE>(a.cos, ST_F32, token * a.s_cos + run * CUDA_WIDE, c);
    get_run<CUDA_WIDE>(a.sin, ST_F32, token * a.s_sin + run * CUDA_WIDE, s);
#pragma unroll
    for (int j = 0; j < CUDA_WIDE; j++) {
        float x = u[j], y = v[j], sine = a.inverse ? -s[j] : s[j];
        u[j] = x * c[j] - y * sine;
        v[j] = y * c[j] + x * sine;
    }
    put_run<CUDA_WIDE>(a.x.data, TYPE, low, u);
    put_run<CUDA_WIDE>(a.x.data, TYPE, high, v);
}

static bool rope_wide(const cuda_rope *a, int64_t n)
{
    int64_t size = a->x.type == ST_F32 ? 4 : 2;
    uintptr_t all = (uintptr_t)a->x.data | (uintptr_t)(a->x.s_row * size) | (uintptr_t)(a->x.s_head * size) |
                    (uintptr_t)a->cos | (uintptr_t)a->sin | (uintptr_t)(a->s_cos * 4) | (uintptr_t)(a->s_sin * 4);
    return !a->interleaved && a->half % CUDA_WIDE == 0 && all % 16 == 0 && n <= INT32_MAX;
}

extern "C" int cuda_run_rope(const st_queue *q, const cuda_rope *a)
{
    int64_t n = a->x.rows * a->x.heads * a->half;
    if (rope_wide(a, n)) {
        uint32_t runs = (uint32_t)(n / CUDA_WIDE);
        unsigned blocks = (unsigned)cuda_div_up(runs, CUDA_THREADS);
        if (a->x.type == ST_F32) rope_wide_kernel<ST_F32><<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a, runs);
        else rope_wide_kernel<ST_BF16><<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a, runs);
        return st_cuda_launched(q, "rope");
    }
    rope_kernel<<<cuda_blocks(cuda_div_up(n, CUDA_THREADS), CUDA_MOST_BLOCKS), CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, "rope");
}
