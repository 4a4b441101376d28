/* SPDX-License-Identifier: Apache-2.0 */
/* attention_dq.cu - gradient of the queries of attention over spans, in bf16 on the tensor cores: dq = scale ds k, with ds
 * as in attention_dkv.cu. Computing the weights once more is dearer than one pass that adds to dq from many blocks, and
 * gives the same bits in every run. A block has BLOCK_Q rows of one query head, 16 for each warp, and walks the keys. */
#include "attention_tile.h"

enum { BLOCK_Q = 128, BLOCK_K = 32, SCORES = BLOCK_K / 8, THREADS = 256 };

template <int D> struct queries_room {
    st_bf16 q[BLOCK_Q * attn_row<D>::length], d_out[BLOCK_Q * attn_row<D>::length];
    struct { st_bf16 k[BLOCK_K * attn_row<D>::length], v[BLOCK_K * attn_row<D>::length]; } stage[2];
};

template <int D>
DEVICE void load_keys(queries_room<D> *room, int turn, const cuda_attn &a, const attn_walk &w, int kv)
{
    int64_t first = (int64_t)w.k + w.at, end = (int64_t)w.k + w.k_n;
    attn_load<D, BLOCK_K, THREADS>(room->stage[turn].k, a.k, kv, first, w.k, end);
    attn_load<D, BLOCK_K, THREADS>(room->stage[turn].v, a.v, kv, first, w.k, end);
    st_copies_commit();
}

/* score = rows of a warp times keys, dp = rows of d_out times values */
template <int D>
DEVICE void both_scores(float (*score)[4], float (*dp)[4], const queries_room<D> *room, int turn)
{
    constexpr int L = attn_row<D>::length;
    int row = threadIdx.x / 32 * 16;
#pragma unroll
    for (int j = 0; j < SCORES; j++)
        for (int i = 0; i < 4; i++) score[j][i] = dp[j][i] = 0;
#pragma unroll 2
    for (int c = 0; c < D; c += 16) {
        uint32_t q[4], d_out[4], right[4];
        attn_left<L>(q, room->q, row, c);
        attn_left<L>(d_out, room->d_out, row, c);
#pragma unroll
        for (int j = 0; j < SCORES; j += 2) {
            attn_right<L>(right, room->stage[turn].k, j * 8, c);
            st_mma(score[j], q, right);
            st_mma(score[j + 1], q, right + 2);
            attn_right<L>(right, room->stage[turn].v, j * 8, c);
            st_mma(dp[j], d_out, right);
            st_mma(dp[j + 1], d_out, right + 2);
        }
    }
}

/* sum += ds k, for two tiles of 8 keys at a time */
template <int D>
DEVICE void add_keys(float (*sum)[4], float (*ds)[4], const st_bf16 *k)
{
#pragma unroll
    for (int j = 0; j < SCORES; j += 2) {
        uint32_t left[4] = {st_bf16_pair(ds[j][0], ds[j][1]), st_bf16_pair(ds[j][2], ds[j][3]),
                            st_bf16_pair(ds[j + 1][0], ds[j + 1][1]), st_bf16_pair(ds[j + 1][2], ds[j + 1][3])};
#pragma unroll
        for (int c = 0; c < D / 8; c += 2) {
            uint32_t right[4];
            attn_right_turned<attn_row<D>::length>(right, k, j * 8, c * 8);
            st_mma(sum[c], left, right);
            st_mma(sum[c + 1], left, right + 2);
        }
    }
}

template <int D>
static __global__ void __launch_bounds__(THREADS, D <= 80 ? 2 : 1) queries_kernel(const __grid_constant__ cuda_attn a,
                                                                                 st_cuda_faults faults)
{
    extern __shared__ __align__(16) char shared[];
    queries_room<D> *room = (queries_room<D> *)shared;
    int tile = gridDim.x / a.q.heads - 1 - blockIdx.x / a.q.heads, head = blockIdx.x % a.q.heads;
    int kv = head / (a.q.heads / a.k.heads), low = tile * BLOCK_Q, high = min((int64_t)low + BLOCK_Q, a.q.rows);
    int lane = threadIdx.x & 31, mine = low + threadIdx.x / 32 * 16 + lane / 4;
    float sum[D / 8][4] = {{0}}, base[2], delta[2], factor = a.scale * CUDART_L2E_F;
    attn_walk w = attn_start<false>(a, faults, low, high, head, 1);

#pragma unroll
    for (int r = 0; r < 2; r++) {
        int64_t at = min((int64_t)mine + 8 * r, a.q.rows - 1);
        base[r] = *attn_statistic(a.lse, at, head) * CUDART_L2E_F;
        delta[r] = a.delta[at * a.q.heads + head];
    }
    if (w.live) {
        attn_load<D, BLOCK_Q, THREADS>(room->q, a.q, head, low, 0, a.q.rows);
        attn_load<D, BLOCK_Q, THREADS>(room->d_out, a.d_out, head, low, 0, a.q.rows);
        load_keys<D>(room, 0, a, w, kv);
    }
    for (int turn = 0; w.live; turn ^= 1) {
        float score[SCORES][4], dp[SCORES][4];
        attn_walk now = w;
        st_copies_wait<0>();
        __syncthreads(); /* this tile is there, and nobody reads the other one any more */
        attn_next<false>(w, BLOCK_K, a, faults, low, high);
        if (w.live) load_keys<D>(room, turn ^ 1, a, w, kv);
        int seen[2] = {attn_seen(now, a.causal, mine), attn_seen(now, a.causal, mine + 8)};
        if (__all_sync(~0u, max(seen[0], seen[1]) <= now.at)) continue; /* no key for these rows */
        both_scores<D>(score, dp, room, turn);
#pragma unroll
        for (int j = 0; j < SCORES; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool real = now.at + j * 8 + (lane & 3) * 2 + (i & 1) < seen[i >> 1];
                float p = st_exp2_fast(score[j][i] * factor - base[i >> 1]);
                score[j][i] = real ? p * (dp[j][i] - delta[i >> 1]) : 0;
            }
        add_keys<D>(sum, score, room->stage[turn].k);
    }
#pragma unroll
    for (int c = 0; c < D / 8; c++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            attn_store(a.dq, (int64_t)mine + 8 * r, head, c * 8 + (lane & 3) * 2, a.scale * sum[c][2 * r],
                       a.scale * sum[c][2 * r + 1]);
}

template <int D>
static int launch(const st_queue *q, const cuda_attn *a)
{
    unsigned blocks = (unsigned)(cuda_div_up(a->q.rows, BLOCK_Q) * a->q.heads);
    ST_CUDA_SHARED(queries_kernel<D>, sizeof(queries_room<D>));
    queries_kernel<D><<<blocks, THREADS, sizeof(queries_room<D>), st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
    return st_cuda_launched(q, "attention_bwd");
}

extern "C" int cuda_attention_tensor_dq(const st_queue *q, const cuda_attn *a)
{
    if (!a->dq.data || !a->q.rows) return ST_OK;
#define LAUNCH(D) launch<D>(q, a)
    return ATTN_FOR_WIDTH(a->q.cols, LAUNCH);
#undef LAUNCH
}
