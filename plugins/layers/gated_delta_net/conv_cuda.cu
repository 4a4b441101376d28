/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/conv_cuda.cu - depthwise causal convolution + SiLU over segments. A thread has some neighbouring
 * channels of one tile and walks its tokens, several of which it loads at once; the last taps stay in registers. */
#include "kernels_cuda.h"
#include "math_cuda.h"

enum { THREADS = 128, AHEAD = 4, REDUCE_LANES = 8, REDUCE_COLUMNS = 32 }; /* AHEAD: tokens that are loaded at once */

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
        if (t >= first && j >= TAPS - a.taps) unpack<N, T>(x[j], load<N>((const T *)a.in + t * a.in_stride + channel));
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

/* Tokens [first, first + AHEAD) of this thread's channels; zeros from `end` on. */
template <int N, typename T>
DEVICE void load_tokens(run<N, T> to[AHEAD], const void *from, int64_t begin, int64_t stride, int channel, int first, int end)
{
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
        to[k] = first + k < end ? load<N>((const T *)from + (begin + first + k) * stride + channel) : run<N, T>{};
}

template <typename T, int TAPS, int N> static __global__ void __launch_bounds__(THREADS) forward(const gdn_conv a)
{
    const int channel = (blockIdx.y * THREADS + threadIdx.x) * N;
    const int32_t *tile = a.row.tiles + 3 * (int64_t)blockIdx.x;
    const int64_t begin = tile[1];
    const int length = tile[2];
    float w[TAPS][N], x[TAPS][N];
    run<N, T> in[AHEAD], next[AHEAD];
    if (length <= 0 || channel >= a.channels) return;
    load_tokens<N, T>(next, a.in, begin, a.in_stride, channel, 0, length);
    read_weights<TAPS, N, T>(w, a, channel);
    read_past<TAPS, N, T>(x, a, begin, a.row.segments[tile[0]], channel);
#pragma unroll 1
    for (int first = 0; first < length; first += AHEAD) {
#pragma unroll
        for (int k = 0; k < AHEAD; k++) in[k] = next[k];
        load_tokens<N, T>(next, a.in, begin, a.in_stride, channel, first + AHEAD, length);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            float y[N];
            unpack<N, T>(x[TAPS - 1], in[k]);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float sum = 0;
#pragma unroll
                for (int j = 0; j < TAPS; j++) sum += w[j][i] * x[j][i];
                y[i] = sum * sigmoid<T>(sum);
            }
            if (first + k < length) write<N>((T *)a.out + (begin + first + k) * a.out_stride + channel, y);
            shift<TAPS, N>(x);
        }
    }
}

/* du[TAPS - 1] of the token whose input is x[TAPS - 1], and its share of dw, if it is the tile's own. */
template <typename T, int TAPS, int N>
DEVICE void backward_token(float du[TAPS][N], float dw[TAPS][N], const float w[TAPS][N], const float x[TAPS][N],
                           const float dy[N], bool own)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < TAPS; j++) sum += w[j][i] * x[j][i];
        const float s = sigmoid<T>(sum);
        du[TAPS - 1][i] = dy[i] * (s * (1 + sum * (1 - s)));
        if (own)
#pragma unroll
            for (int j = 0; j < TAPS; j++) dw[j][i] += du[TAPS - 1][i] * x[j][i];
    }
}
/* The sums of a tile over its tokens, (taps, channels) for each tile. */
template <int TAPS, int N> DEVICE void put_dweight(const gdn_conv &a, int channel, const float dw[TAPS][N])
{
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
        const int tap = j - (TAPS - a.taps);
        if (tap >= 0) write<N>((float *)a.work + ((int64_t)blockIdx.x * a.taps + tap) * a.channels + channel, dw[j]);
    }
}
/* The gradient of an input needs those of up to taps - 1 later tokens of its segment, which are computed here again
 * instead of being waited for; weight gradients count the tile's own tokens only. du[j] is that of token
 * t - (TAPS - 1) + j, 0 where there is no such token, because dout is. */
template <typename T, int TAPS, int N> static __global__ void __launch_bounds__(THREADS) backward(const gdn_conv a)
{
    const int channel = (blockIdx.y * THREADS + threadIdx.x) * N;
    const int32_t *tile = a.row.tiles + 3 * (int64_t)blockIdx.x;
    const int64_t begin = tile[1];
    const int length = tile[2];
    float w[TAPS][N], x[TAPS][N], du[TAPS][N] = {}, dw[TAPS][N] = {};
    run<N, T> in[AHEAD], dout[AHEAD], next_in[AHEAD], next_dout[AHEAD];
    if (channel >= a.channels) return;
    const int64_t left = length > 0 ? a.row.segments[tile[0] + 1] - begin : 0; /* tokens of the segment */
    const int all = length > 0 ? length + TAPS - 1 : 0, end = left < all ? (int)left : all;
    if (all) {
        load_tokens<N, T>(next_in, a.in, begin, a.in_stride, channel, 0, end);
        load_tokens<N, T>(next_dout, a.dout, begin, a.dout_stride, channel, 0, end);
        read_weights<TAPS, N, T>(w, a, channel);
        read_past<TAPS, N, T>(x, a, begin, a.row.segments[tile[0]], channel);
    }
#pragma unroll 1
    for (int first = 0; first < all; first += AHEAD) {
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            in[k] = next_in[k];
            dout[k] = next_dout[k];
        }
        load_tokens<N, T>(next_in, a.in, begin, a.in_stride, channel, first + AHEAD, end);
        load_tokens<N, T>(next_dout, a.dout, begin, a.dout_stride, channel, first + AHEAD, end);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int t = first + k;
            float dy[N], dx[N];
            unpack<N, T>(x[TAPS - 1], in[k]);
            unpack<N, T>(dy, dout[k]);
            backward_token<T, TAPS, N>(du, dw, w, x, dy, t < length);
#pragma unroll
            for (int i = 0; i < N; i++) {
                dx[i] = 0;
#pragma unroll
                for (int j = 0; j < TAPS; j++) dx[i] += w[j][i] * du[TAPS - 1 - j][i];
            }
            if (t >= TAPS - 1 && t < all) write<N>((T *)a.din + (begin + t - (TAPS - 1)) * a.din_stride + channel, dx);
            shift<TAPS, N>(x);
            shift<TAPS, N>(du);
        }
    }
    put_dweight<TAPS, N>(a, channel, dw); /* zeros for a tile that is not used */
}
/* dweight += the tiles' sums: each lane those of every REDUCE_LANES-th tile, then the lanes in their order */
static __global__ void __launch_bounds__(REDUCE_LANES *REDUCE_COLUMNS) reduce(const gdn_conv a)
{
    __shared__ float room[REDUCE_LANES][REDUCE_COLUMNS];
    const int column = threadIdx.x % REDUCE_COLUMNS, lane = threadIdx.x / REDUCE_COLUMNS;
    const int64_t i = (int64_t)blockIdx.x * REDUCE_COLUMNS + column, n = (int64_t)a.taps * a.channels;
    float sum = 0;
#pragma unroll 8
    for (int64_t k = lane; k < a.row.n_tiles; k += REDUCE_LANES)
        if (i < n) sum += ((const float *)a.work)[k * n + i];
    room[lane][column] = sum;
    __syncthreads();
    if (lane || i >= n) return;
    for (int l = 1; l < REDUCE_LANES; l++) sum += room[l][column];
    ((float *)a.dweight)[i % a.channels * a.taps + i / a.channels] += sum;
}

template <typename T, int TAPS, int N> static int run_tiles(const st_queue *q, const gdn_conv *a, int back)
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
    const int several = a->channels % n == 0 && in_runs<T>(a->in, a->in_stride, 8) &&
                        (back ? in_runs<T>(a->dout, a->dout_stride, 8) && in_runs<T>(a->din, a->din_stride, 8)
                              : in_runs<T>(a->out, a->out_stride, 8));
    if (a->taps > 4) return run_tiles<T, GDN_MAX_TAPS, 1>(q, a, back);
    return several ? run_tiles<T, 4, n>(q, a, back) : run_tiles<T, 4, 1>(q, a, back);
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
    const unsigned blocks = (unsigned)((n + REDUCE_COLUMNS - 1) / REDUCE_COLUMNS);
    reduce<<<blocks, REDUCE_LANES * REDUCE_COLUMNS, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, "gdn_conv_bwd");
}
