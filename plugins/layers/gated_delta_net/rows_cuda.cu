/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rows_cuda.cu - the gates and the gated norm. Weight gradients are summed per GDN_CHUNK tokens into
 * work, then over those sums, always in the same order. */
#include "kernels_cuda.h"
#include "math_cuda.h"

enum { THREADS = 256 };

static unsigned blocks_of(int64_t n) { return (unsigned)((n + THREADS - 1) / THREADS); }

DEVICE float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

/* to[row] += sum over `n` blocks of from[block * stride + row]: a block of threads per row, then a tree. */
static __global__ void __launch_bounds__(THREADS) add_blocks(float *to, const float *from, int64_t n, int64_t stride)
{
    __shared__ float sums[THREADS];
    float sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) sum += from[i * stride + blockIdx.x];
    sums[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) to[blockIdx.x] += sums[0];
}

/* ---- gates ---- */

template <typename T> static __global__ void __launch_bounds__(THREADS) gate(const gdn_gate a)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, t = i / a.heads;
    const int h = (int)(i % a.heads);
    float rest;
    if (t >= a.tokens) return;
    const float u = st_to_f32(((const T *)a.a)[t * a.stride + h]) + ((const float *)a.dt_bias)[h];
    ((float *)a.beta)[i] = sigmoid<float>(st_to_f32(((const T *)a.b)[t * a.stride + h]), &rest);
    ((float *)a.g)[i] = -expf(((const float *)a.a_log)[h]) * softplus(u);
}
/* A block has GDN_CHUNK tokens; a thread one head at a time and every tokens_apart-th of the tokens. */
template <typename T> static __global__ void __launch_bounds__(THREADS) gate_bwd(const gdn_gate a)
{
    __shared__ float sums[2][THREADS];
    const int64_t begin = (int64_t)blockIdx.x * GDN_CHUNK;
    const int64_t end = begin + GDN_CHUNK < a.tokens ? begin + GDN_CHUNK : a.tokens;
    const int wide = a.heads < THREADS ? a.heads : THREADS, apart = THREADS / wide, lane = threadIdx.x / wide;
    for (int first = 0; first < a.heads; first += wide) {
        const int h = first + threadIdx.x % wide;
        float of_log = 0, of_bias = 0;
        if (lane < apart && h < a.heads)
            for (int64_t t = begin + lane; t < end; t += apart) {
                const int64_t at = t * a.heads + h;
                const float dg = ((const float *)a.dg)[at], beta = ((const float *)a.beta)[at];
                float rest;
                const float u = st_to_f32(((const T *)a.a)[t * a.stride + h]) + ((const float *)a.dt_bias)[h];
                const float d = -dg * expf(((const float *)a.a_log)[h]) * sigmoid<float>(u, &rest);
                st_from_f32((T *)a.da + t * a.dstride + h, d);
                st_from_f32((T *)a.db + t * a.dstride + h, ((const float *)a.dbeta)[at] * beta * (1 - beta));
                of_log += dg * ((const float *)a.g)[at];
                of_bias += d;
            }
        sums[0][threadIdx.x] = of_log;
        sums[1][threadIdx.x] = of_bias;
        __syncthreads();
        if (threadIdx.x < wide && h < a.heads)
            for (int what = 0; what < 2; what++) {
                float sum = 0;
                for (int i = 0; i < apart; i++) sum += sums[what][i * wide + threadIdx.x];
                ((float *)a.work)[((int64_t)blockIdx.x * 2 + what) * a.heads + h] = sum;
            }
        __syncthreads();
    }
}

template <typename T> static int run_gate(const st_queue *q, const gdn_gate *a)
{
    gate<T><<<blocks_of(a->tokens * a->heads), THREADS, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, "gdn_gate");
}
int gdn_cuda_gate(const st_queue *q, const gdn_gate *a)
{
    if (a->dtype == ST_BF16) return run_gate<bf16>(q, a);
    return a->dtype == ST_F32 ? run_gate<float>(q, a) : ST_E_UNSUPPORTED;
}
int gdn_cuda_gate_bwd(const st_queue *q, const gdn_gate *a)
{
    cudaStream_t stream = st_cuda_stream(q);
    const int64_t blocks = gdn_blocks(a->tokens);
    const float *sums = (const float *)a->work;
    if (a->dtype == ST_BF16) gate_bwd<bf16><<<(unsigned)blocks, THREADS, 0, stream>>>(*a);
    else if (a->dtype == ST_F32) gate_bwd<float><<<(unsigned)blocks, THREADS, 0, stream>>>(*a);
    else return ST_E_UNSUPPORTED;
    if (a->da_log) add_blocks<<<a->heads, THREADS, 0, stream>>>((float *)a->da_log, sums, blocks, 2 * a->heads);
    if (a->ddt_bias)
        add_blocks<<<a->heads, THREADS, 0, stream>>>((float *)a->ddt_bias, sums + a->heads, blocks, 2 * a->heads);
    return st_cuda_launched(q, "gdn_gate_bwd");
}

/* ---- gated norm: LANES lanes have one head of one token, PACKS runs of N columns each ---- */

/* Columns of pack j of this lane begin here. */
template <int N, int LANES> DEVICE int column_of(int j) { return (j * LANES + lane_of() % LANES) * N; }

/* The head's values, zeros behind them; `there` 0: zeros alone. */
template <int N, int PACKS, int LANES, typename T>
DEVICE void load_head(run<N, T> to[PACKS], const T *from, int dim, int there)
{
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int c = column_of<N, LANES>(j);
        to[j] = there && c < dim ? load<N>(from + c) : run<N, T>{};
    }
}
/* 1 / the root mean square of a head */
template <int N, int PACKS, int LANES, typename T> DEVICE float rstd_of(const run<N, T> o[PACKS], int dim, double eps)
{
    float squares = 0;
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        float x[N];
        unpack<N, T>(x, o[j]);
#pragma unroll
        for (int i = 0; i < N; i++) squares += x[i] * x[i];
    }
    return 1.0f / sqrtf(st_lanes_sum<LANES>(squares) / (float)dim + (float)eps);
}

template <typename T, int N, int PACKS, int LANES>
static __global__ void __launch_bounds__(THREADS) norm(const gdn_norm a)
{
    const uint32_t i = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES, heads = (uint32_t)a.heads;
    const int64_t t = i / heads, first = i % heads * a.dim;
    const int there = t < a.tokens;
    run<N, T> o[PACKS], z[PACKS];
    run<N, float> weight[PACKS];
    load_head<N, PACKS, LANES, T>(o, (const T *)a.o + t * a.o_stride + first, a.dim, there);
    load_head<N, PACKS, LANES, T>(z, (const T *)a.z + t * a.z_stride + first, a.dim, there);
    load_head<N, PACKS, LANES, float>(weight, (const float *)a.weight, a.dim, 1);
    const float rstd = rstd_of<N, PACKS, LANES, T>(o, a.dim, a.eps);
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int c = column_of<N, LANES>(j);
        float x[N], gate[N], w[N], rest;
        if (!there || c >= a.dim) continue;
        unpack<N, T>(x, o[j]);
        unpack<N, T>(gate, z[j]);
        unpack<N, float>(w, weight[j]);
#pragma unroll
        for (int k = 0; k < N; k++) x[k] = w[k] * (x[k] * rstd) * gate[k] * sigmoid<T>(gate[k], &rest);
        write<N>((T *)a.y + t * a.y_stride + first + c, x);
    }
}

/* Gradient of one head: dz and do to memory, dw added up in registers. Lanes that have no head have zeros. */
template <typename T, int N, int PACKS, int LANES>
DEVICE void norm_head_bwd(const gdn_norm &a, int64_t t, int64_t first, int there, float dw[PACKS][N])
{
    run<N, T> o[PACKS], z[PACKS], dy[PACKS];
    float dn[PACKS][N], along = 0;
    load_head<N, PACKS, LANES, T>(o, (const T *)a.o + t * a.o_stride + first, a.dim, there);
    load_head<N, PACKS, LANES, T>(z, (const T *)a.z + t * a.z_stride + first, a.dim, there);
    load_head<N, PACKS, LANES, T>(dy, (const T *)a.dy + t * a.dy_stride + first, a.dim, there);
    const float rstd = rstd_of<N, PACKS, LANES, T>(o, a.dim, a.eps);
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int c = column_of<N, LANES>(j);
        float x[N], gate[N], d[N], w[N], dz[N];
        unpack<N, T>(x, o[j]);
        unpack<N, T>(gate, z[j]);
        unpack<N, T>(d, dy[j]);
        unpack<N, float>(w, c < a.dim ? load<N>((const float *)a.weight + c) : run<N, float>{});
#pragma unroll
        for (int k = 0; k < N; k++) {
            float rest;
            const float s = sigmoid<T>(gate[k], &rest), gated = gate[k] * s, normed = x[k] * rstd;
            dz[k] = d[k] * w[k] * normed * s * (1 + gate[k] * rest);
            dw[j][k] += d[k] * normed * gated;
            dn[j][k] = d[k] * w[k] * gated;
            along += dn[j][k] * normed;
        }
        if (there && c < a.dim) write<N>((T *)a.dz + t * a.dz_stride + first + c, dz);
    }
    const float mean = st_lanes_sum<LANES>(along) / (float)a.dim * rstd; /* do = rstd (dn - n mean(dn n)) */
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int c = column_of<N, LANES>(j);
        float x[N];
        if (!there || c >= a.dim) continue;
        unpack<N, T>(x, o[j]);
#pragma unroll
        for (int k = 0; k < N; k++) dn[j][k] = (dn[j][k] - x[k] * mean) * rstd;
        write<N>((T *)a.d_o + t * a.do_stride + first + c, dn[j]);
    }
}
/* Threads of a block of the gradient: many, unless a head takes many registers. */
static __host__ __device__ constexpr int back_threads(int packs) { return packs == 1 ? 2 * THREADS : THREADS; }
/* A block has GDN_CHUNK tokens, whose heads its lanes take in turn; their dw are added in a fixed order: those of lanes of a
 * warp that share columns, then those of the warps. */
template <typename T, int N, int PACKS, int LANES>
static __global__ void __launch_bounds__(back_threads(PACKS), PACKS == 1 ? 2 : 1) norm_bwd(const gdn_norm a, int padded)
{
    extern __shared__ __align__(16) float sums[]; /* (warps, padded dim) */
    const int threads = back_threads(PACKS);
    const int64_t begin = (int64_t)blockIdx.x * GDN_CHUNK;
    const uint32_t left = (uint32_t)(a.tokens - begin < GDN_CHUNK ? a.tokens - begin : GDN_CHUNK);
    const uint32_t heads = (uint32_t)a.heads;
    float dw[PACKS][N] = {};
#pragma unroll 1
    for (uint32_t first = 0; first < left * heads; first += threads / LANES) {
        const uint32_t i = first + threadIdx.x / LANES;
        norm_head_bwd<T, N, PACKS, LANES>(a, begin + i / heads, i % heads * a.dim, i < left * heads, dw);
    }
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int c = column_of<N, LANES>(j);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float sum = dw[j][k];
            for (int step = LANES; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
            if (c < a.dim && lane_of() < LANES) sums[warp_of() * padded + c + k] = sum;
        }
    }
    __syncthreads();
    for (int c = threadIdx.x; c < a.dim; c += threads) {
        float sum = 0;
        for (int w = 0; w < threads / 32; w++) sum += sums[w * padded + c];
        ((float *)a.work)[blockIdx.x * padded + c] = sum;
    }
}

template <typename T, int N, int PACKS, int LANES> static int run_norm(const st_queue *q, const gdn_norm *a, int back)
{
    cudaStream_t stream = st_cuda_stream(q);
    const int64_t heads = a->tokens * a->heads, blocks = gdn_blocks(a->tokens), padded = gdn_padded(a->dim);
    const int64_t at_once = THREADS / LANES;
    const size_t room = (size_t)(back_threads(PACKS) / 32 * padded) * sizeof(float);
    if (back) norm_bwd<T, N, PACKS, LANES><<<(unsigned)blocks, back_threads(PACKS), room, stream>>>(*a, (int)padded);
    else norm<T, N, PACKS, LANES><<<(unsigned)((heads + at_once - 1) / at_once), THREADS, 0, stream>>>(*a);
    if (back && a->dweight)
        add_blocks<<<a->dim, THREADS, 0, stream>>>((float *)a->dweight, (const float *)a->work, blocks, padded);
    return st_cuda_launched(q, back ? "gdn_norm_bwd" : "gdn_norm");
}
template <typename T> static int run_type(const st_queue *q, const gdn_norm *a, int back)
{
    const int wide = a->dim % 8 == 0 && in_runs<T>(a->o, a->o_stride, 16) && in_runs<T>(a->z, a->z_stride, 16) &&
                     in_runs<float>(a->weight, 0, 16) &&
                     (back ? in_runs<T>(a->dy, a->dy_stride, 16) && in_runs<T>(a->d_o, a->do_stride, 16) &&
                                 in_runs<T>(a->dz, a->dz_stride, 16)
                           : in_runs<T>(a->y, a->y_stride, 16));
    if (wide && a->dim <= 128) return run_norm<T, 8, 1, 16>(q, a, back);
    return wide ? run_norm<T, 8, 4, 32>(q, a, back) : run_norm<T, 1, 32, 32>(q, a, back);
}
static int run_any(const st_queue *q, const gdn_norm *a, int back)
{
    if (a->dim > 1024 || a->tokens * a->heads > INT32_MAX) return ST_E_UNSUPPORTED;
    if (a->dtype == ST_BF16) return run_type<bf16>(q, a, back);
    return a->dtype == ST_F32 ? run_type<float>(q, a, back) : ST_E_UNSUPPORTED;
}
int gdn_cuda_norm(const st_queue *q, const gdn_norm *a) { return run_any(q, a, 0); }
int gdn_cuda_norm_bwd(const st_queue *q, const gdn_norm *a) { return run_any(q, a, 1); }
