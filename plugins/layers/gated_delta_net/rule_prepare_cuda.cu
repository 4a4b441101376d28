/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_prepare_cuda.cu - what a chunk's keys, queries and gates decide before any state is known: A, P
 * and the factors of rows, in f32. A block is one chunk and key head; K K^T and Q K^T serve all value heads of the
 * group. */
#include "rule_cuda.h"

enum { THREADS = 128, LD = CHUNK + 1 };

template <int DK> struct prepare_shared {
    float k[CHUNK * padded_row<float>(DK)], q[CHUNK * padded_row<float>(DK)];
    float keys[CHUNK * LD];   /* K K^T of normed keys, below the diagonal           */
    float square[CHUNK * LD]; /* the inverse, then P                                */
    double sums[CHUNK];
    float k_scale[CHUNK], q_scale[CHUNK], beta[CHUNK];
};

/* 1 / norm of every row of k and q, times key_dim^-1/2 for q; a thread has one row. */
template <int DK> DEVICE void scales(prepare_shared<DK> *s, const rule_launch &l, int64_t at)
{
    const int row = threadIdx.x % CHUNK, of_q = threadIdx.x / CHUNK, ld = padded_row<float>(DK);
    const float *from = (of_q ? s->q : s->k) + row * ld;
    float squares = 0;
    for (int c = 0; c < DK; c += 2) {
        const float2 x = get2(from + c);
        squares += x.x * x.x + x.y * x.y;
    }
    const float scale = (of_q ? rsqrtf((float)l.a.key_dim) : 1.0f) / sqrtf(squares + 1e-6f);
    (of_q ? s->q_scale : s->k_scale)[row] = scale;
    (of_q ? l.q_scale : l.k_scale)[at * CHUNK + row] = scale;
}

/* Inverse of a unit lower triangle of 16 rows at (first, first), one column per lane below 16. */
DEVICE void invert_block(float *inverse, const float *keys, const float *beta, int first)
{
    const int column = lane_of();
    float x[16];
    if (column >= 16) return;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < i; j++) sum += keys[(first + i) * LD + first + j] * x[j];
        x[i] = (i == column ? 1.0f : 0.0f) - beta[first + i] * sum;
        inverse[(first + i) * LD + first + column] = x[i];
    }
}
/* From the inverses of two triangles of N rows at `first` and first + N, the block below and left of them:
 * -lower (beta K K^T) upper. The product of the last two waits where the result is zero. Each of `team` threads, N * N
 * / VALUES, has VALUES neighbours of a row. */
template <int N, int VALUES>
DEVICE void join_blocks(float *inverse, const float *keys, const float *beta, int first, int thread)
{
    const int row = thread / (N / VALUES), column = thread % (N / VALUES) * VALUES;
    const int low = first + N;
    float x[VALUES];
#pragma unroll
    for (int c = 0; c < VALUES; c++) x[c] = 0;
    for (int p = 0; p < N; p++) {
        const float f = keys[(low + row) * LD + first + p];
#pragma unroll
        for (int c = 0; c < VALUES; c++)
            if (p >= column + c) x[c] += f * inverse[(first + p) * LD + first + column + c];
    }
#pragma unroll
    for (int c = 0; c < VALUES; c++) inverse[(first + row) * LD + low + column + c] = beta[low + row] * x[c];
    __syncthreads();
#pragma unroll
    for (int c = 0; c < VALUES; c++) x[c] = 0;
    for (int p = 0; p <= row; p++) {
        const float f = inverse[(low + row) * LD + low + p];
#pragma unroll
        for (int c = 0; c < VALUES; c++) x[c] -= f * inverse[(first + p) * LD + low + column + c];
    }
#pragma unroll
    for (int c = 0; c < VALUES; c++) inverse[(low + row) * LD + first + column + c] = x[c];
    __syncthreads();
}
/* (I + stril(beta K K^T))^-1; the part above the diagonal is left undefined. */
DEVICE void invert(float *inverse, const float *keys, const float *beta)
{
    invert_block(inverse, keys, beta, 16 * warp_of());
    __syncthreads();
    join_blocks<16, 4>(inverse, keys, beta, threadIdx.x / 64 * 32, threadIdx.x % 64);
    join_blocks<32, 8>(inverse, keys, beta, 0, threadIdx.x);
}

/* The lower triangle of `square` to memory, transposed or not; with sums: times D and column's beta. */
DEVICE void write_square(float *to, const float *square, const double *sums, const float *beta, int transposed)
{
    for (int at = 2 * threadIdx.x; at < MATRIX; at += 2 * THREADS) {
        float v[2];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const int r = at / CHUNK, c = at % CHUNK + n, i = transposed ? c : r, j = transposed ? r : c;
            v[n] = i < j ? 0 : square[i * LD + j] * (sums ? decay_between(sums, i, j) * beta[j] : 1);
        }
        put2(to + at, v[0], v[1]);
    }
}

/* One value head: gates, A, P. products: Q K^T of this warp's 16 rows, scaled. */
template <int DK>
DEVICE void prepare_head(prepare_shared<DK> *s, const rule_launch &l, const chunk_place &p, int64_t tile, int head,
                         const fragments<1, CHUNK / 8> &products)
{
    const int64_t at = tile * l.a.value_heads + head, gate = p.begin * l.a.gate_stride + head;
    const int row = threadIdx.x % CHUNK;
    if (warp_of() == 0) sum_decays(s->sums, (const float *)l.a.g + gate, l.a.gate_stride, p.length);
    else if (threadIdx.x >= CHUNK)
        s->beta[row] = row < p.length ? fmaxf(((const float *)l.a.beta)[gate + row * l.a.gate_stride], BETA_LEAST) : 0;
    __syncthreads();
    if (threadIdx.x < CHUNK) l.decay[at * CHUNK + row] = expf((float)s->sums[row]);
    else l.rest[at * CHUNK + row] = expf((float)(s->sums[CHUNK - 1] - s->sums[row]));
    invert(s->square, s->keys, s->beta);
    write_square((float *)l.solve + at * MATRIX, s->square, s->sums, s->beta, l.backward);
    __syncthreads();
    if (!l.a.out && !l.backward) return;
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = 16 * warp_of() + fragment_row(i), c = 8 * n + fragment_column() + i % 2;
            s->square[r * LD + c] = r < c ? 0 : products.v[0][n][i] * decay_between(s->sums, r, c);
        }
    __syncthreads();
    write_square((float *)l.mix + at * MATRIX, s->square, (const double *)NULL, s->beta, l.backward);
    __syncthreads();
}

template <int DK> static __global__ void __launch_bounds__(THREADS) prepare(const rule_launch l)
{
    extern __shared__ __align__(128) unsigned char shared[];
    prepare_shared<DK> *s = (prepare_shared<DK> *)shared;
    const int64_t tile = blockIdx.x;
    const int head = blockIdx.y, group = l.a.value_heads / l.a.key_heads, ld = padded_row<float>(DK);
    const chunk_place p = place_of(l.a.row, tile);
    if (p.length <= 0) return;
    const int64_t at = p.begin * l.a.stride + (int64_t)head * l.a.key_dim;
    load_tile<THREADS, CHUNK, DK>(s->k, (const float *)l.a.k + at, l.a.stride, p.length, l.a.key_dim, l.fast.qk);
    load_tile<THREADS, CHUNK, DK>(s->q, (const float *)l.a.q + at, l.a.stride, p.length, l.a.key_dim, l.fast.qk);
    st_copies_commit();
    st_copies_wait<0>();
    __syncthreads();
    scales(s, l, tile * l.a.key_heads + head);
    __syncthreads();

    const int first = 16 * warp_of();
    fragments<1, CHUNK / 8> keys, queries;
    clear(keys);
    clear(queries);
    multiply<ROWS_ARE_M, ROWS_ARE_N>(keys, s->k + first * ld, ld, s->k, ld, DK);
    multiply<ROWS_ARE_M, ROWS_ARE_N>(queries, s->q + first * ld, ld, s->k, ld, DK);
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = first + fragment_row(i), c = 8 * n + fragment_column() + i % 2;
            s->keys[r * LD + c] = keys.v[0][n][i] * s->k_scale[r] * s->k_scale[c];
            queries.v[0][n][i] *= s->q_scale[r] * s->k_scale[c];
        }
    __syncthreads();
    for (int r = 0; r < group; r++) prepare_head(s, l, p, tile, head * group + r, queries);
}

template <int DK> static int run(const st_queue *q, const rule_launch *l)
{
    const dim3 grid((unsigned)l->a.row.n_tiles, (unsigned)l->a.key_heads);
    return rule_start(q, "gdn_rule_prepare", prepare<DK>, grid, THREADS, sizeof(prepare_shared<DK>), *l);
}
int gdn_rule_prepare(const st_queue *q, const rule_launch *l)
{
    if (l->a.dtype == ST_BF16) return gdn_rule_prepare_bf16(q, l);
    return l->a.key_dim > 64 ? run<128>(q, l) : run<64>(q, l);
}
