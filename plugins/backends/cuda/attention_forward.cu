/* SPDX-License-Identifier: Apache-2.0 */
/* attention_forward.cu - attention over spans in bf16 on the tensor cores.
 *
 * A block has BLOCK_Q rows of one query head, 16 for each warp, and walks the keys in tiles, the next tile arriving while
 * this one is used. Scores, the running maximum and sum, and the output stay in registers, in f32; only the weights that
 * go into the second product are rounded. Scores are in units of log 2. */
#include "attention_tile.h"

enum { BLOCK_Q = 128, BLOCK_K = 64, THREADS = 256, SCORES = BLOCK_K / 8 };
#define NONE (-CUDART_INF_F)

/* score [SCORES][4]: rows of a warp times a tile of keys. */
template <int D>
DEVICE void scores(float (*score)[4], const st_bf16 *q, const st_bf16 *k)
{
    constexpr int L = attn_row<D>::length;
    int row = threadIdx.x / 32 * 16;
#pragma unroll
    for (int j = 0; j < SCORES; j++)
        for (int i = 0; i < 4; i++) score[j][i] = 0;
#pragma unroll 4
    for (int c = 0; c < D; c += 16) {
        uint32_t left[4], right[4];
        attn_left<L>(left, q, row, c);
#pragma unroll
        for (int j = 0; j < SCORES; j += 2) {
            attn_right<L>(right, k, j * 8, c);
            st_mma(score[j], left, right);
            st_mma(score[j + 1], left, right + 2);
        }
    }
}

/* Scores of keys from `at` on that a row does not see become -inf. seen: of this lane's two rows. */
DEVICE void hide(float (*score)[4], int at, const int *seen)
{
    int col = at + (threadIdx.x & 3) * 2;
#pragma unroll
    for (int j = 0; j < SCORES; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (col + j * 8 + (i & 1) >= seen[i >> 1]) score[j][i] = NONE;
}

/* Scores become weights; most, sum: of this lane's two rows, sum of its own columns only. keep: what becomes of older
 * sums. */
DEVICE void soften(float (*score)[4], float factor, float *most, float *sum, float *keep)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float high = most[r];
#pragma unroll
        for (int j = 0; j < SCORES; j++) {
            score[j][2 * r] *= factor;
            score[j][2 * r + 1] *= factor;
            high = fmaxf(high, fmaxf(score[j][2 * r], score[j][2 * r + 1]));
        }
        high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
        high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
        float base = high == NONE ? 0 : high; /* a row that has seen no key yet */
        keep[r] = st_exp2_fast(most[r] - base);
        most[r] = high;
        sum[r] *= keep[r];
#pragma unroll
        for (int j = 0; j < SCORES; j++)
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                score[j][i] = st_exp2_fast(score[j][i] - base);
                sum[r] += score[j][i];
            }
    }
}

/* out = keep out + weights v */
template <int D>
DEVICE void gather_values(float (*out)[4], float (*weight)[4], const float *keep, const st_bf16 *v)
{
    constexpr int L = attn_row<D>::length;
#pragma unroll
    for (int c = 0; c < D / 8; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) out[c][i] *= keep[i >> 1];
#pragma unroll
    for (int j = 0; j < SCORES; j += 2) {
        uint32_t left[4] = {st_bf16_pair(weight[j][0], weight[j][1]), st_bf16_pair(weight[j][2], weight[j][3]),
                            st_bf16_pair(weight[j + 1][0], weight[j + 1][1]),
                            st_bf16_pair(weight[j + 1][2], weight[j + 1][3])};
#pragma unroll
        for (int c = 0; c < D / 8; c += 2) {
            uint32_t right[4];
            attn_right_turned<L>(right, v, j * 8, c * 8);
            st_mma(out[c], left, right);
            st_mma(out[c + 1], left, right + 2);
        }
    }
}

template <int D>
DEVICE void finish(const cuda_attn &a, float (*out)[4], float *most, float *sum, int64_t first, int head)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int64_t row = first + threadIdx.x / 32 * 16 + lane / 4 + 8 * r;
        float total = sum[r] + __shfl_xor_sync(~0u, sum[r], 1);
        total += __shfl_xor_sync(~0u, total, 2);
        bool none = most[r] == NONE && total == 0;
        float factor = none ? 0 : 1 / total;
#pragma unroll
        for (int c = 0; c < D / 8; c++)
            attn_store(a.out, row, head, c * 8 + (lane & 3) * 2, out[c][2 * r] * factor, out[c][2 * r + 1] * factor);
        if (a.lse.data && (lane & 3) == 0 && row < a.q.rows)
            ((float *)a.lse.data)[row * a.lse.s_row + head * a.lse.s_head] =
                none ? 0 : CUDART_LN2_F * (most[r] + log2f(total));
    }
}

/* One tile of keys and the values behind it. */
template <int D>
DEVICE void load_keys(st_bf16 *stage, const cuda_attn &a, const attn_walk &w, int kv)
{
    attn_load<D, BLOCK_K, THREADS>(stage, a.k, kv, (int64_t)w.k + w.at, w.k, (int64_t)w.k + w.k_n);
    attn_load<D, BLOCK_K, THREADS>(stage + BLOCK_K * attn_row<D>::length, a.v, kv, (int64_t)w.k + w.at, w.k,
                                   (int64_t)w.k + w.k_n);
    st_copies_commit();
}

/* Later rows see more keys: they come first. The heads of a group run side by side and share keys in the L2. */
template <int D>
static __global__ void __launch_bounds__(THREADS, D <= 80 ? 2 : 1) attention_kernel(const __grid_constant__ cuda_attn a,
                                                                                   st_cuda_faults faults)
{
    constexpr int L = attn_row<D>::length, STAGE = 2 * BLOCK_K * L;
    extern __shared__ __align__(16) st_bf16 room[];
    st_bf16 *q = room, *stage = room + BLOCK_Q * L; /* stage: keys, then values */
    int tile = gridDim.x / a.q.heads - 1 - blockIdx.x / a.q.heads, head = blockIdx.x % a.q.heads;
    int kv = head / (a.q.heads / a.k.heads), low = tile * BLOCK_Q, high = min((int64_t)low + BLOCK_Q, a.q.rows);
    int mine = low + threadIdx.x / 32 * 16 + (threadIdx.x & 31) / 4;
    float out[D / 8][4] = {{0}}, most[2] = {NONE, NONE}, sum[2] = {0, 0}, keep[2], factor = a.scale * CUDART_L2E_F;
    attn_walk w = attn_start<false>(a, faults, low, high, head, 1);

    if (w.live) {
        attn_load<D, BLOCK_Q, THREADS>(q, a.q, head, low, 0, a.q.rows);
        load_keys<D>(stage, a, w, kv);
    }
    for (int turn = 0; w.live; turn ^= 1) {
        st_bf16 *k = stage + turn * STAGE;
        float score[SCORES][4];
        attn_walk now = w;
        st_copies_wait<0>();
        __syncthreads(); /* this tile is there, and nobody reads the other one any more */
        attn_next<false>(w, BLOCK_K, a, faults, low, high);
        if (w.live) load_keys<D>(stage + (turn ^ 1) * STAGE, a, w, kv);
        int seen[2] = {attn_seen(now, a.causal, mine), attn_seen(now, a.causal, mine + 8)};
        if (__all_sync(~0u, max(seen[0], seen[1]) <= now.at)) continue; /* no key for these rows */
        scores<D>(score, q, k);
        if (!__all_sync(~0u, min(seen[0], seen[1]) >= now.at + BLOCK_K)) hide(score, now.at, seen);
        soften(score, factor, most, sum, keep);
        gather_values<D>(out, score, keep, k + BLOCK_K * L);
    }
    finish<D>(a, out, most, sum, low, head);
}

template <int D>
static int launch(const st_queue *q, const cuda_attn *a)
{
    size_t bytes = (size_t)(BLOCK_Q + 4 * BLOCK_K) * attn_row<D>::length * sizeof(st_bf16);
    unsigned blocks = (unsigned)(cuda_div_up(a->q.rows, BLOCK_Q) * a->q.heads);
    ST_CUDA_SHARED(attention_kernel<D>, bytes);
    attention_kernel<D><<<blocks, THREADS, bytes, st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
    return st_cuda_launched(q, "attention");
}

extern "C" int cuda_attention_tensor(const st_queue *q, const cuda_attn *a)
{
#define LAUNCH(D) launch<D>(q, a)
    return ATTN_FOR_WIDTH(a->q.cols, LAUNCH);
#undef LAUNCH
}
