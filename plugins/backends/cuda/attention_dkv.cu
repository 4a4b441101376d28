/* SPDX-License-Identifier: Apache-2.0 */
/* attention_dkv.cu - gradients of keys and values of attention over spans, in bf16 on the tensor cores. The weights are
 * computed again, p = exp(score - lse); with dp = d_out v^T, ds = p (dp - delta): dv = p^T d_out, dk = scale ds^T q.
 *
 * A block has TILE keys of one kv head and walks the queries of its group, so that sums over the group need no second
 * pass. Warps 0-3 compute p and dv, warps 4-7 dp, ds and dk. For the first product a warp has a quarter of the (keys,
 * queries), for the second M tiles of 16 keys and the columns of its share. */
#include "attention_tile.h"

enum { TILE = 64, PAIR = TILE + 8, THREADS = 256 };

template <int D> struct share {
    static constexpr int M = D % 64 ? 1 : 4, N = D / M / 8; /* tiles of 16 keys, of 8 columns */
    static constexpr int LENGTH = attn_row<D>::length;
};

/* What a block holds in shared memory. */
template <int D> struct keys_room {
    st_bf16 k[TILE * share<D>::LENGTH], v[TILE * share<D>::LENGTH];
    struct { st_bf16 q[TILE * share<D>::LENGTH], d_out[TILE * share<D>::LENGTH]; } stage[2];
    st_bf16 p[TILE * PAIR], ds[TILE * PAIR]; /* (keys, queries) */
    float lse[2][TILE], delta[2][TILE];
};

template <int D>
DEVICE void load_queries(keys_room<D> *room, int turn, const cuda_attn &a, const attn_walk &w)
{
    int64_t first = (int64_t)w.q + w.at, end = (int64_t)w.q + w.q_n;
    attn_load<D, TILE, THREADS>(room->stage[turn].q, a.q, w.head, first, w.q, end);
    attn_load<D, TILE, THREADS>(room->stage[turn].d_out, a.d_out, w.head, first, w.q, end);
    if (threadIdx.x < TILE) attn_load_statistics(room->lse[turn], room->delta[turn], a, w.head, first, end);
    st_copies_commit();
}

/* c = 32 rows of left, from row on, times 32 rows of right, from col on. */
template <int D>
DEVICE void quarter(float (*c)[4][4], const st_bf16 *left, int row, const st_bf16 *right, int col)
{
    constexpr int L = attn_row<D>::length;
#pragma unroll
    for (int m = 0; m < 2; m++)
        for (int n = 0; n < 4; n++)
            for (int i = 0; i < 4; i++) c[m][n][i] = 0;
#pragma unroll 4
    for (int k = 0; k < D; k += 16) {
        uint32_t l[2][4], r[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            attn_left<L>(l[i], left, row + 16 * i, k);
            attn_right<L>(r[i], right, col + 16 * i, k);
        }
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < 4; n++) st_mma(c[m][n], l[m], r[n / 2] + n % 2 * 2);
    }
}

/* The weights of a quarter, from scores, into `to`. Rows of c are keys from row + lane / 4 on, columns queries. */
DEVICE void weights(float (*c)[4][4], int row, int col, const cuda_attn &a, const attn_walk &w, int low,
                    const float *lse, st_bf16 *to)
{
    int lane = threadIdx.x & 31, key = low - w.k + row + lane / 4, skew = w.k_n - w.q_n;
    float factor = a.scale * CUDART_L2E_F;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        int query = col + n * 8 + (lane & 3) * 2, seen[2];
        float base[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int at = w.at + query + i;
            base[i] = lse[query + i] * CUDART_L2E_F;
            seen[i] = at >= w.q_n ? 0 : a.causal ? min(w.k_n, skew + at + 1) : w.k_n;
        }
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int j = key + 16 * m + 8 * r;
                float x = st_exp2_fast(c[m][n][2 * r] * factor - base[0]);
                float y = st_exp2_fast(c[m][n][2 * r + 1] * factor - base[1]);
                x = j >= 0 && j < seen[0] ? x : 0;
                y = j >= 0 && j < seen[1] ? y : 0;
                *(uint32_t *)(to + (row + lane / 4 + 16 * m + 8 * r) * PAIR + query) = st_bf16_pair(x, y);
            }
    }
}

/* ds of a quarter, from dp and the weights. Where a weight is 0, dp may be of rows that nobody wrote. */
DEVICE void slopes(float (*c)[4][4], int row, int col, const float *delta, const st_bf16 *p, st_bf16 *to)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        int query = col + n * 8 + (lane & 3) * 2;
        float first = delta[query], second = delta[query + 1];
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int at = (row + lane / 4 + 16 * m + 8 * r) * PAIR + query;
                float x = st_to_f32(p[at]), y = st_to_f32(p[at + 1]);
                x = x == 0 ? 0 : x * (c[m][n][2 * r] - first);
                y = y == 0 ? 0 : y * (c[m][n][2 * r + 1] - second);
                *(uint32_t *)(to + at) = st_bf16_pair(x, y);
            }
    }
}

/* sum += pair (keys, queries) times rows (queries, columns), of this warp's share. */
template <int D>
DEVICE void add_share(float (*sum)[share<D>::N][4], const st_bf16 *pair, int key, const st_bf16 *rows, int col)
{
    constexpr int M = share<D>::M, N = share<D>::N;
#pragma unroll
    for (int k = 0; k < TILE; k += 16) {
        uint32_t left[M][4], right[4];
#pragma unroll
        for (int m = 0; m < M; m++) attn_left<PAIR>(left[m], pair, key + 16 * m, k);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            attn_right_turned<share<D>::LENGTH>(right, rows, k, col + 8 * n);
#pragma unroll
            for (int m = 0; m < M; m++) {
                st_mma(sum[m][n], left[m], right);
                st_mma(sum[m][n + 1], left[m], right + 2);
            }
        }
    }
}

template <int D>
DEVICE void write_share(const cuda_view &v, float (*sum)[share<D>::N][4], int kv, int64_t row, int col, float factor)
{
    if (!v.data) return;
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < share<D>::M; m++)
#pragma unroll
        for (int n = 0; n < share<D>::N; n++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                attn_store(v, row + 16 * m + 8 * r + lane / 4, kv, col + 8 * n + (lane & 3) * 2,
                           factor * sum[m][n][2 * r], factor * sum[m][n][2 * r + 1]);
}

template <int D>
static __global__ void __launch_bounds__(THREADS, D <= 80 ? 2 : 1) keys_kernel(const __grid_constant__ cuda_attn a,
                                                                              st_cuda_faults faults)
{
    constexpr int M = share<D>::M, N = share<D>::N;
    extern __shared__ __align__(16) char shared[];
    keys_room<D> *room = (keys_room<D> *)shared;
    int kv = blockIdx.x % a.k.heads, group = a.q.heads / a.k.heads, low = blockIdx.x / a.k.heads * TILE;
    int high = min((int64_t)low + TILE, a.k.rows), warp = threadIdx.x / 32, side = warp / 4;
    int row = warp % 4 / 2 * 32, column = warp % 2 * 32;                        /* of its quarter */
    int key = M == 4 ? 0 : warp % 4 * 16, col = M == 4 ? warp % 4 * N * 8 : 0; /* of its share */
    float sum[M][N][4] = {{{0}}};
    attn_walk w = attn_start<true>(a, faults, low, high, kv * group, group);

    if (w.live) {
        attn_load<D, TILE, THREADS>(room->k, a.k, kv, low, 0, a.k.rows);
        attn_load<D, TILE, THREADS>(room->v, a.v, kv, low, 0, a.k.rows);
        load_queries<D>(room, 0, a, w);
    }
    for (int turn = 0; w.live; turn ^= 1) {
        st_bf16 *q = room->stage[turn].q, *d_out = room->stage[turn].d_out;
        float c[2][4][4];
        attn_walk now = w;
        st_copies_wait<0>();
        __syncthreads(); /* this tile is there; the other one, p and ds are free */
        attn_next<true>(w, TILE, a, faults, low, high);
        if (w.live) load_queries<D>(room, turn ^ 1, a, w);
        quarter<D>(c, side ? room->v : room->k, row, side ? d_out : q, column);
        if (!side) weights(c, row, column, a, now, low, room->lse[turn], room->p);
        __syncthreads();
        if (side) {
            slopes(c, row, column, room->delta[turn], room->p, room->ds);
            asm volatile("bar.sync 1, 128;" ::: "memory"); /* among warps 4-7 */
        }
        add_share<D>(sum, side ? room->ds : room->p, key, side ? q : d_out, col);
    }
    write_share<D>(side ? a.dk : a.dv, sum, kv, (int64_t)low + key, col, side ? a.scale : 1);
}

template <int D>
static int launch(const st_queue *q, const cuda_attn *a)
{
    unsigned blocks = (unsigned)(cuda_div_up(a->k.rows, TILE) * a->k.heads);
    ST_CUDA_SHARED(keys_kernel<D>, sizeof(keys_room<D>));
    keys_kernel<D><<<blocks, THREADS, sizeof(keys_room<D>), st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
    return st_cuda_launched(q, "attention_bwd");
}

extern "C" int cuda_attention_tensor_dkv(const st_queue *q, const cuda_attn *a)
{
    if ((!a->dk.data && !a->dv.data) || !a->k.rows) return ST_OK;
#define LAUNCH(D) launch<D>(q, a)
    return ATTN_FOR_WIDTH(a->k.cols, LAUNCH);
#undef LAUNCH
}
