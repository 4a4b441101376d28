/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rows_cuda.cu - the gates and the gated norm. Weight gradients are summed per GDN_CHUNK tokens into
 * work, then over those sums, always in the same order. */
#include "kernels_cuda.h"
#include "tile_cuda.h"

enum { THREADS = 256, WARPS = THREADS / 32 };

static unsigned blocks_of(int64_t n) { return (unsigned)((n + THREADS - 1) / THREADS); }

/* sigmoid(x), and 1 - sigmoid(x) without cancellation */
DEVICE float sigmoid(float x, float *complement)
{
    const float e = expf(-fabsf(x)), d = 1.0f / (1.0f + e), s = e * d;
    *complement = x < 0 ? d : s;
    return x < 0 ? s : d;
}
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
    ((float *)a.beta)[i] = sigmoid(st_to_f32(((const T *)a.b)[t * a.stride + h]), &rest);
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
                const float d = -dg * expf(((const float *)a.a_log)[h]) * sigmoid(u, &rest);
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

/* ---- gated norm: a warp has one head of one token, a lane every 32nd pack of N columns ---- */

template <int N, typename T> DEVICE void read(float out[N], const T *from)
{
    if constexpr (N == 1) out[0] = st_to_f32(*from);
    else
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const float2 x = get2(from + i);
            out[i] = x.x;
            out[i + 1] = x.y;
        }
}
template <int N, typename T> DEVICE void write(T *to, const float in[N])
{
    if constexpr (N == 1) st_from_f32(to, in[0]);
    else
#pragma unroll
        for (int i = 0; i < N; i += 2) put2(to + i, in[i], in[i + 1]);
}
DEVICE float warp_sum(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
/* PACKS of N columns a lane: the values of a head, and 1 / its root mean square. */
template <int N, int PACKS, typename T> DEVICE float read_head(float o[PACKS][N], const T *from, int dim, double eps)
{
    float squares = 0;
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int c = (j * 32 + lane_of()) * N;
#pragma unroll
        for (int i = 0; i < N; i++) o[j][i] = 0;
        if (c < dim) read<N>(o[j], from + c);
#pragma unroll
        for (int i = 0; i < N; i++) squares += o[j][i] * o[j][i];
    }
    return 1.0f / sqrtf(warp_sum(squares) / (float)dim + (float)eps);
}

template <typename T, int N, int PACKS> static __global__ void __launch_bounds__(THREADS) norm(const gdn_norm a)
{
    const int64_t i = (int64_t)blockIdx.x * WARPS + warp_of(), t = i / a.heads;
    const int64_t first = i % a.heads * a.dim;
    float o[PACKS][N];
    if (t >= a.tokens) return;
    const float rstd = read_head<N, PACKS>(o, (const T *)a.o + t * a.o_stride + first, a.dim, a.eps);
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int c = (j * 32 + lane_of()) * N;
        float z[N], w[N], y[N], rest;
        if (c >= a.dim) continue;
        read<N>(z, (const T *)a.z + t * a.z_stride + first + c);
        read<N>(w, (const float *)a.weight + c);
#pragma unroll
        for (int k = 0; k < N; k++) y[k] = w[k] * (o[j][k] * rstd) * z[k] * sigmoid(z[k], &rest);
        write<N>((T *)a.y + t * a.y_stride + first + c, y);
    }
}

/* Gradient of one head: dz and do to memory, dw added up in registers. */
template <typename T, int N, int PACKS>
DEVICE void norm_head_bwd(const gdn_norm &a, int64_t t, int64_t first, float dw[PACKS][N])
{
    float o[PACKS][N], dn[PACKS][N], along = 0;
    const float rstd = read_head<N, PACKS>(o, (const T *)a.o + t * a.o_stride + first, a.dim, a.eps);
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int c = (j * 32 + lane_of()) * N;
        float z[N], w[N], dy[N], dz[N];
        if (c >= a.dim) continue;
        read<N>(z, (const T *)a.z + t * a.z_stride + first + c);
        read<N>(dy, (const T *)a.dy + t * a.dy_stride + first + c);
        read<N>(w, (const float *)a.weight + c);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float rest;
            const float s = sigmoid(z[k], &rest), gated = z[k] * s, normed = o[j][k] * rstd;
            dz[k] = dy[k] * w[k] * normed * s * (1 + z[k] * rest);
            dw[j][k] += dy[k] * normed * gated;
            dn[j][k] = dy[k] * w[k] * gated;
            along += dn[j][k] * normed;
        }
        write<N>((T *)a.dz + t * a.dz_stride + first + c, dz);
    }
    const float mean = warp_sum(along) / (float)a.dim * rstd; /* do = rstd (dn - n mean(dn n)) */
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int c = (j * 32 + lane_of()) * N;
        if (c >= a.dim) continue;
#pragma unroll
        for (int k = 0; k < N; k++) dn[j][k] = (dn[j][k] - o[j][k] * mean) * rstd;
        write<N>((T *)a.d_o + t * a.do_stride + first + c, dn[j]);
    }
}
/* A block has GDN_CHUNK tokens; its warps take heads in turn, and their dw are added in the order of warps. */
template <typename T, int N, int PACKS>
static __global__ void __launch_bounds__(THREADS) norm_bwd(const gdn_norm a, int padded)
{
    extern __shared__ __align__(16) float sums[]; /* (WARPS, padded dim) */
    const int64_t begin = (int64_t)blockIdx.x * GDN_CHUNK;
    const int64_t left = a.tokens - begin < GDN_CHUNK ? a.tokens - begin : GDN_CHUNK;
    float dw[PACKS][N] = {};
    for (int64_t i = warp_of(); i < left * a.heads; i += WARPS)
        norm_head_bwd<T, N, PACKS>(a, begin + i / a.heads, i % a.heads * a.dim, dw);
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int c = (j * 32 + lane_of()) * N;
#pragma unroll
        for (int k = 0; k < N; k++)
            if (c < a.dim) sums[warp_of() * padded + c + k] = dw[j][k];
    }
    __syncthreads();
    for (int c = threadIdx.x; c < a.dim; c += THREADS) {
        float sum = 0;
        for (int w = 0; w < WARPS; w++) sum += sums[w * padded + c];
        ((float *)a.work)[blockIdx.x * padded + c] = sum;
    }
}

template <typename T, int N, int PACKS> static int run_norm(const st_queue *q, const gdn_norm *a, int back)
{
    cudaStream_t stream = st_cuda_stream(q);
    const int64_t heads = a->tokens * a->heads, blocks = gdn_blocks(a->tokens), padded = gdn_padded(a->dim);
    const size_t room = (size_t)(WARPS * padded) * sizeof(float);
    if (back) norm_bwd<T, N, PACKS><<<(unsigned)blocks, THREADS, room, stream>>>(*a, (int)padded);
    else norm<T, N, PACKS><<<(unsigned)((heads + WARPS - 1) / WARPS), THREADS, 0, stream>>>(*a);
    if (back && a->dweight)
        add_blocks<<<a->dim, THREADS, 0, stream>>>((float *)a->dweight, (const float *)a->work, blocks, padded);
    return st_cuda_launched(q, back ? "gdn_norm_bwd" : "gdn_norm");
}
static int even(const void *p, int64_t stride) { return (uintptr_t)p % 16 == 0 && stride % 4 == 0; }
template <typename T> static int run_type(const st_queue *q, const gdn_norm *a, int back)
{
    const int packed = a->dim % 4 == 0 && even(a->o, a->o_stride) && even(a->z, a->z_stride) && even(a->weight, 4) &&
                       (back ? even(a->dy, a->dy_stride) && even(a->d_o, a->do_stride) && even(a->dz, a->dz_stride)
                             : even(a->y, a->y_stride));
    if (packed && a->dim <= 128) return run_norm<T, 4, 1>(q, a, back);
    return packed ? run_norm<T, 4, 8>(q, a, back) : run_norm<T, 1, 32>(q, a, back);
}
static int run_any(const st_queue *q, const gdn_norm *a, int back)
{
    if (a->dim > 1024) return ST_E_UNSUPPORTED;
    if (a->dtype == ST_BF16) return run_type<bf16>(q, a, back);
    return a->dtype == ST_F32 ? run_type<float>(q, a, back) : ST_E_UNSUPPORTED;
}
int gdn_cuda_norm(const st_queue *q, const gdn_norm *a) { return run_any(q, a, 0); }
int gdn_cuda_norm_bwd(const st_queue *q, const gdn_norm *a) { return run_any(q, a, 1); }
