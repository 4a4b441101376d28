/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/conv_cuda.cu - depthwise causal convolution + SiLU over segments. A thread has some neighbouring
 * channels of one tile and walks its tokens; the last taps of them stay in registers. */
#include "kernels_cuda.h"
#include "tile_cuda.h"

enum { THREADS = 128, REDUCE_THREADS = 256 };

/* N neighbours in one access. */
template <int N, typename T> DEVICE void read(float out[N], const T *from)
{
    union { uint4 wide; uint2 half; T v[16 / sizeof(T)]; } u;
    if (N * sizeof(T) == 16) u.wide = *(const uint4 *)from;
    else if (N * sizeof(T) == 8) u.half = *(const uint2 *)from;
    else u.v[0] = *from;
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = st_to_f32(u.v[i]);
}
template <int N, typename T> DEVICE void write(T *to, const float in[N])
{
    union { uint4 wide; uint2 half; T v[16 / sizeof(T)]; } u;
#pragma unroll
    for (int i = 0; i < N; i++) st_from_f32(&u.v[i], in[i]);
    if (N * sizeof(T) == 16) *(uint4 *)to = u.wide;
    else if (N * sizeof(T) == 8) *(uint2 *)to = u.half;
    else *to = u.v[0];
}
DEVICE float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

/* Weights of this thread's channels, behind TAPS - a.taps zeros. */
template <int TAPS, int N, typename T> DEVICE void read_weights(float w[TAPS][N], const gdn_conv &a, int channel)
{
#pragma unroll
    for (int j = 0; j < TAPS; j++)
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int tap = j - (TAPS - a.taps);
            w[j][i] = tap < 0 ? 0 : st_to_f32(((const T *)a.weight)[(int64_t)(channel + i) * a.taps + tap]);
        }
}
/* Inputs before `begin` that the first token sees: x[0 .. TAPS - 2], zeros before the segment. */
template <int TAPS, int N, typename T>
DEVICE void read_past(float x[TAPS][N], const gdn_conv &a, int64_t begin, int64_t first, int channel)
{
#pragma unroll
    for (int j = 0; j < TAPS - 1; j++) {
        const int64_t t = begin - (TAPS - 1) + j;
        if (t >= first && j >= TAPS - a.taps) read<N>(x[j], (const T *)a.in + t * a.in_stride + channel);
        else
#pragma unroll
            for (int i = 0; i < N; i++) x[j][i] = 0;
    }
}
template <int TAPS, int N> DEVICE void shift(float x[TAPS][N])
{
#pragma unroll
    for (int j = 0; j < TAPS - 1; j++)
#pragma unroll
        for (int i = 0; i < N; i++) x[j][i] = x[j + 1][i];
}

template <typename T, int TAPS, int N> static __global__ void __launch_bounds__(THREADS) forward(const gdn_conv a)
{
    const int channel = (blockIdx.y * THREADS + threadIdx.x) * N;
    const int32_t *tile = a.row.tiles + 3 * (int64_t)blockIdx.x;
    const int64_t begin = tile[1];
    const int length = tile[2];
    float w[TAPS][N], x[TAPS][N];
    if (length <= 0 || channel >= a.channels) return;
    read_weights<TAPS, N, T>(w, a, channel);
    read_past<TAPS, N, T>(x, a, begin, a.row.segments[tile[0]], channel);
#pragma unroll 4
    for (int t = 0; t < length; t++) {
        float y[N];
        read<N>(x[TAPS - 1], (const T *)a.in + (begin + t) * a.in_stride + channel);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float sum = 0;
#pragma unroll
            for (int j = 0; j < TAPS; j++) sum += w[j][i] * x[j][i];
            y[i] = sum * sigmoid(sum);
        }
        write<N>((T *)a.out + (begin + t) * a.out_stride + channel, y);
        shift<TAPS, N>(x);
    }
}

/* The gradient of an input needs those of up to taps - 1 later tokens of its segment, which are computed here again
 * instead of being waited for; weight gradients count the tile's own tokens only. */
template <typename T, int TAPS, int N> static __global__ void __launch_bounds__(THREADS) backward(const gdn_conv a)
{
    const int channel = (blockIdx.y * THREADS + threadIdx.x) * N;
    const int32_t *tile = a.row.tiles + 3 * (int64_t)blockIdx.x;
    const int64_t begin = tile[1];
    const int length = tile[2];
    float w[TAPS][N], x[TAPS][N], du[TAPS][N] = {}, dw[TAPS][N] = {};
    if (length <= 0 || channel >= a.channels) return;
    const int64_t end = a.row.segments[tile[0] + 1] - begin; /* tokens left in the segment */
    read_weights<TAPS, N, T>(w, a, channel);
    read_past<TAPS, N, T>(x, a, begin, a.row.segments[tile[0]], channel);
#pragma unroll 2
    for (int t = 0; t < length + TAPS - 1; t++) { /* du[j]: of token t - (TAPS - 1) + j */
        float dy[N];
        const int64_t token = begin + t;
        if (t < end) {
            read<N>(x[TAPS - 1], (const T *)a.in + token * a.in_stride + channel);
            read<N>(dy, (const T *)a.dout + token * a.dout_stride + channel);
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            float sum = 0;
#pragma unroll
            for (int j = 0; j < TAPS; j++) sum += w[j][i] * x[j][i];
            const float s = sigmoid(sum);
            du[TAPS - 1][i] = t < end ? dy[i] * s * (1 + sum * (1 - s)) : 0;
#pragma unroll
            for (int j = 0; j < TAPS; j++)
                if (t < length) dw[j][i] += du[TAPS - 1][i] * x[j][i];
        }
        if (t >= TAPS - 1) {
            float dx[N];
#pragma unroll
            for (int i = 0; i < N; i++) {
                dx[i] = 0;
#pragma unroll
                for (int j = 0; j < TAPS; j++) dx[i] += w[j][i] * du[TAPS - 1 - j][i];
            }
            write<N>((T *)a.din + (token - (TAPS - 1)) * a.din_stride + channel, dx);
        }
        shift<TAPS, N>(x);
        shift<TAPS, N>(du);
    }
#pragma unroll
    for (int j = 0; j < TAPS; j++)
#pragma unroll
        for (int i = 0; i < N; i++)
            if (j >= TAPS - a.taps) {
                const int64_t tap = (int64_t)blockIdx.x * a.taps + j - (TAPS - a.taps);
                ((float *)a.work)[tap * a.channels + channel + i] = dw[j][i];
            }
}
/* dweight += the tiles' sums, in the order of tiles */
static __global__ void __launch_bounds__(REDUCE_THREADS) reduce(const gdn_conv a)
{
    const int64_t i = (int64_t)blockIdx.x * REDUCE_THREADS + threadIdx.x, n = (int64_t)a.taps * a.channels;
    float sum = 0;
    if (i >= n) return;
#pragma unroll 8
    for (int64_t k = 0; k < a.row.n_tiles; k++)
        sum += a.row.tiles[3 * k + 2] > 0 ? ((const float *)a.work)[k * n + i] : 0;
    ((float *)a.dweight)[i % a.channels * a.taps + i / a.channels] += sum;
}

static int packs(const void *p, int64_t stride, int64_t bytes) { return !((uintptr_t)p % 16) && stride % bytes == 0; }

template <typename T, int TAPS, int N> static int run(const st_queue *q, const gdn_conv *a, int back)
{
    const int groups = (a->channels + N - 1) / N;
    const dim3 grid((unsigned)a->row.n_tiles, (unsigned)((groups + THREADS - 1) / THREADS));
    if (back) backward<T, TAPS, N><<<grid, THREADS, 0, st_cuda_stream(q)>>>(*a);
    else forward<T, TAPS, N><<<grid, THREADS, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, back ? "gdn_conv_bwd" : "gdn_conv");
}
/* Several channels at a time where addresses allow it: 8 bytes are enough to fill the memory's width. */
template <typename T> static int run_type(const st_queue *q, const gdn_conv *a, int back)
{
    const int n = 8 / (int)sizeof(T);
    const int several = a->channels % n == 0 && packs(a->in, a->in_stride, n) &&
                        (back ? packs(a->dout, a->dout_stride, n) && packs(a->din, a->din_stride, n)
                              : packs(a->out, a->out_stride, n));
    if (a->taps > 4) return run<T, GDN_MAX_TAPS, 1>(q, a, back);
    return several ? run<T, 4, n>(q, a, back) : run<T, 4, 1>(q, a, back);
}
static int run_any(const st_queue *q, const gdn_conv *a, int back)
{
    if (a->dtype == ST_BF16) return run_type<bf16>(q, a, back);
    return a->dtype == ST_F32 ? run_type<float>(q, a, back) : ST_E_UNSUPPORTED;
}

int gdn_cuda_conv(const st_queue *q, const gdn_conv *a) { return run_any(q, a, 0); }
int gdn_cuda_conv_bwd(const st_queue *q, const gdn_conv *a)
{
    const int64_t n = (int64_t)a->taps * a->channels;
    ST_TRY(run_any(q, a, 1));
    if (!a->dweight) return ST_OK;
    reduce<<<(unsigned)((n + REDUCE_THREADS - 1) / REDUCE_THREADS), REDUCE_THREADS, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, "gdn_conv_bwd");
}
