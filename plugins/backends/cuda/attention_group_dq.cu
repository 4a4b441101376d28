/* SPDX-License-Identifier: Apache-2.0 */
/* attention_group_dq.cu - as attention_dq.cu, for heads of 256 on Hopper. A block has 128 rows of one query head, 64 for each
 * warpgroup that multiplies, and walks the keys in tiles of 64: scores, dp, then dq += ds k. Keys have two stages; values, which
 * are done with first, have one. */
#include "attention_group.h"

enum { BLOCK_Q = 2 * GROUP_TILE };
enum { K_FULL = 1, K_EMPTY = 5, V_FULL = 9, V_EMPTY = 11 }; /* barriers; of each stage and each half of the rows */

struct queries_room {
    st_bf16 q[BLOCK_Q * GROUP_COLS], d_out[BLOCK_Q * GROUP_COLS];
    st_bf16 k[2][GROUP_TILE * GROUP_COLS], v[GROUP_TILE * GROUP_COLS];
};

#if ST_CUDA_HAS_WGMMA
DEVICE void tell(int barrier, int step) /* both halves */
{
    group_arrive(barrier);
    group_arrive(barrier + step);
}
DEVICE void wait_for(int barrier, int step)
{
    group_wait(barrier);
    group_wait(barrier + step);
}

DEVICE void bring(queries_room *room, const cuda_attn &a, st_cuda_faults faults, int low, int high, int head,
                  attn_walk w)
{
    int kv = head / (int)(a.q.heads / a.k.heads);
    group_load<BLOCK_Q, GROUP_COLS>(room->q, a.q, head, low, 0, a.q.rows);
    for (int i = 0; w.live; i++) {
        int turn = i & 1;
        int64_t first = (int64_t)w.k + w.at, end = (int64_t)w.k + w.k_n;
        if (i >= 2) wait_for(K_EMPTY + turn, 2);
        group_load<GROUP_TILE, GROUP_COLS>(room->k[turn], a.k, kv, first, w.k, end);
        st_copies_commit();
        if (i) wait_for(V_EMPTY, 1);
        else group_load<BLOCK_Q, GROUP_COLS>(room->d_out, a.d_out, head, low, 0, a.q.rows);
        group_load<GROUP_TILE, GROUP_COLS>(room->v, a.v, kv, first, w.k, end);
        st_copies_commit();
        st_copies_wait<1>();
        st_wgmma_tiles_written();
        tell(K_FULL + turn, 2);
        st_copies_wait<0>();
        st_wgmma_tiles_written();
        tell(V_FULL, 1);
        attn_next<false>(w, GROUP_TILE, a, faults, low, high);
    }
    st_copies_wait<0>();
}

/* Scores become weights. seen: keys of the span that this thread's two rows see. */
DEVICE void weights(float (&c)[8][4], int at, const int (&seen)[2], const float (&base)[2], float factor)
{
    int col = at + (threadIdx.x & 3) * 2;
    bool whole = min(seen[0], seen[1]) >= at + GROUP_TILE;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float x = st_exp2_fast(c[n][i] * factor - base[i >> 1]);
            c[n][i] = whole || col + n * 8 + (i & 1) < seen[i >> 1] ? x : 0;
        }
}

/* ds from dp and the weights, in pairs. Where a weight is 0, dp may be of rows that nobody wrote. */
DEVICE void slopes(uint32_t (&ds)[4][4], const float (&p)[8][4], const float (&dp)[8][4], const float (&delta)[2])
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float x = p[n][2 * r] == 0 ? 0 : p[n][2 * r] * (dp[n][2 * r] - delta[r]);
            float y = p[n][2 * r + 1] == 0 ? 0 : p[n][2 * r + 1] * (dp[n][2 * r + 1] - delta[r]);
            ds[n / 2][n % 2 * 2 + r] = st_bf16_pair(x, y);
        }
}

DEVICE void sum_queries(queries_room *room, const cuda_attn &a, st_cuda_faults faults, int low, int high, int head,
                        attn_walk w, int half)
{
    float sum[32][4] = {{0}}, c[8][4], dp[8][4], base[2], delta[2], factor = a.scale * CUDART_L2E_F;
    uint32_t ds[4][4];
    int own = half * GROUP_TILE, mine = low + own + threadIdx.x % GROUP / 32 * 16 + (threadIdx.x & 31) / 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int64_t at = min((int64_t)mine + 8 * r, a.q.rows - 1);
        base[r] = *attn_statistic(a.lse, at, head) * CUDART_L2E_F;
        delta[r] = a.delta[at * a.q.heads + head];
    }
    for (int i = 0; w.live; i++) {
        int turn = i & 1, seen[2] = {attn_seen(w, a.causal, mine), attn_seen(w, a.causal, mine + 8)};
        group_wait(K_FULL + 2 * half + turn);
        st_wgmma_begin();
        group_scores<BLOCK_Q, GROUP_COLS>(c, room->q, own, room->k[turn]);
        st_wgmma_commit();
        st_wgmma_wait<1>();
        if (i) group_arrive(K_EMPTY + 2 * half + (turn ^ 1));
        group_wait(V_FULL + half);
        st_wgmma_begin();
        group_scores<BLOCK_Q, GROUP_COLS>(dp, room->d_out, own, room->v);
        st_wgmma_commit();
        st_wgmma_wait<1>();
        st_wgmma_touch<64>(c);
        weights(c, w.at, seen, base, factor);
        st_wgmma_wait<0>();
        st_wgmma_touch<64>(dp);
        group_arrive(V_EMPTY + half);
        slopes(ds, c, dp, delta);
        st_wgmma_begin();
        group_add<GROUP_COLS>(sum, ds, room->k[turn]);
        st_wgmma_commit();
        attn_next<false>(w, GROUP_TILE, a, faults, low, high);
    }
    st_wgmma_wait<0>();
    st_wgmma_touch<256>(sum);
    group_store<GROUP_COLS>(a.dq, sum, low + own, head, a.scale);
}
#endif

/* Later rows see more keys: they come first. The heads of a group run side by side and share keys in the L2. */
static __global__ void __launch_bounds__(GROUP_THREADS, 1)
    queries_kernel(const __grid_constant__ cuda_attn a, st_cuda_faults faults)
{
#if ST_CUDA_HAS_WGMMA
    extern __shared__ __align__(ST_TILE_ALIGN) char shared[];
    queries_room *room = (queries_room *)shared;
    int tile = gridDim.x / a.q.heads - 1 - blockIdx.x / a.q.heads, head = blockIdx.x % a.q.heads, low = tile * BLOCK_Q;
    int high = min((int64_t)low + BLOCK_Q, a.q.rows), role = threadIdx.x / GROUP;
    attn_walk w = attn_start<false>(a, faults, low, high, head, 1);
    if (role == 0) {
        group_fewer_registers<BRINGING_REGISTERS>();
        bring(room, a, faults, low, high, head, w);
    } else {
        group_more_registers<MULTIPLYING_REGISTERS>();
        sum_queries(room, a, faults, low, high, head, w, role - 1);
    }
#endif
}

extern "C" int cuda_attention_group_fits(const cuda_attn *a)
{
    return a->type == ST_BF16 && a->wide && a->q.cols == GROUP_COLS && st_cuda_has_wgmma();
}

extern "C" int cuda_attention_group_dq(const st_queue *q, const cuda_attn *a)
{
    unsigned blocks = (unsigned)(cuda_div_up(a->q.rows, BLOCK_Q) * a->q.heads);
    if (!a->dq.data || !blocks) return ST_OK;
    ST_CUDA_SHARED(queries_kernel, sizeof(queries_room));
    queries_kernel<<<blocks, GROUP_THREADS, sizeof(queries_room), st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
    return st_cuda_launched(q, "attention_bwd");
}
