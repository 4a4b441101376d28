/* SPDX-License-Identifier: Apache-2.0 */
/* attention_group_dkv.cu - as attention_dkv.cu, for heads of 256 on Hopper: keys and values of a tile stay in shared memory,
 * queries and gradients come through two stages. One warpgroup makes the weights p^T and sums dv += p^T d_out, the other
 * dp^T and dk += ds^T q; p^T goes over in bf16. */
#include "attention_group.h"

enum { FULL = 1, EMPTY = 5, P_FULL = 9, P_FREE = 11 }; /* barriers; of FULL and EMPTY two for dv, two for dk */
enum { VALUES = 0, KEYS = 2 };

struct keys_room {
    st_bf16 k[GROUP_TILE * GROUP_COLS], v[GROUP_TILE * GROUP_COLS];
    struct {
        st_bf16 q[GROUP_TILE * GROUP_COLS], d_out[GROUP_TILE * GROUP_COLS];
    } stage[2];
    uint32_t p[2][16][GROUP]; /* as the threads hold it */
    float lse[2][GROUP_TILE], delta[2][GROUP_TILE];
};

#if ST_CUDA_HAS_WGMMA
DEVICE void load_queries(keys_room *room, int turn, const cuda_attn &a, const attn_walk &w)
{
    int64_t first = (int64_t)w.q + w.at, end = (int64_t)w.q + w.q_n;
    group_load<GROUP_TILE, GROUP_COLS>(room->stage[turn].q, a.q, w.head, first, w.q, end);
    group_load<GROUP_TILE, GROUP_COLS>(room->stage[turn].d_out, a.d_out, w.head, first, w.q, end);
    if (threadIdx.x < GROUP_TILE) attn_load_statistics(room->lse[turn], room->delta[turn], a, w.head, first, end);
    st_copies_commit();
}

DEVICE void bring(keys_room *room, const cuda_attn &a, st_cuda_faults faults, int low, int high, int kv, attn_walk w)
{
    group_load<GROUP_TILE, GROUP_COLS>(room->k, a.k, kv, low, 0, a.k.rows);
    group_load<GROUP_TILE, GROUP_COLS>(room->v, a.v, kv, low, 0, a.k.rows);
    for (int i = 0; w.live; i++) {
        int turn = i & 1;
        if (i >= 2) {
            group_wait(EMPTY + VALUES + turn);
            group_wait(EMPTY + KEYS + turn);
        }
        load_queries(room, turn, a, w);
        st_copies_wait<0>();
        st_wgmma_tiles_written();
        group_arrive(FULL + VALUES + turn);
        group_arrive(FULL + KEYS + turn);
        attn_next<true>(w, GROUP_TILE, a, faults, low, high);
    }
    st_copies_wait<0>();
}

/* Whether every key of the tile is seen by every query of this step. */
DEVICE bool all_seen(const cuda_attn &a, const attn_walk &w, int low)
{
    int key = low - w.k;
    return key >= 0 && key + GROUP_TILE <= w.k_n && w.at + GROUP_TILE <= w.q_n &&
           (!a.causal || key + GROUP_TILE <= w.k_n - w.q_n + w.at + 1);
}

/* Scores (keys, queries) become weights, in pairs. */
DEVICE void weights(uint32_t (&p)[4][4], const float (&c)[8][4], const cuda_attn &a, const attn_walk &w, int low,
                    const float *lse)
{
    int lane = threadIdx.x & 31, key = low - w.k + threadIdx.x % GROUP / 32 * 16 + lane / 4, skew = w.k_n - w.q_n;
    float factor = a.scale * CUDART_L2E_F;
    bool whole = all_seen(a, w, low);
#pragma unroll
    for (int n = 0; n < 8; n++) {
        int query = n * 8 + (lane & 3) * 2;
        float2 base = *(const float2 *)(lse + query);
        float x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = st_exp2_fast(c[n][i] * factor - (i & 1 ? base.y : base.x) * CUDART_L2E_F);
        if (!whole)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int at = w.at + query + (i & 1), j = key + 8 * (i >> 1);
                int seen = at >= w.q_n ? 0 : a.causal ? min(w.k_n, skew + at + 1) : w.k_n;
                if (j < 0 || j >= seen) x[i] = 0;
            }
        p[n / 2][n % 2 * 2] = st_bf16_pair(x[0], x[1]);
        p[n / 2][n % 2 * 2 + 1] = st_bf16_pair(x[2], x[3]);
    }
}

/* ds from dp and the weights, in pairs. Where a weight is 0, dp may be of rows that nobody wrote. */
DEVICE void slopes(uint32_t (&p)[4][4], const float (&c)[8][4], const float *delta)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        float2 base = *(const float2 *)(delta + n * 8 + (lane & 3) * 2);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint32_t *pair = &p[n / 2][n % 2 * 2 + r];
            float x = low_half(*pair), y = high_half(*pair);
            x = x == 0 ? 0 : x * (c[n][2 * r] - base.x);
            y = y == 0 ? 0 : y * (c[n][2 * r + 1] - base.y);
            *pair = st_bf16_pair(x, y);
        }
    }
}

DEVICE void sum_values(keys_room *room, const cuda_attn &a, st_cuda_faults faults, int low, int high, int kv,
                       attn_walk w)
{
    float sum[32][4] = {{0}}, c[8][4];
    uint32_t p[4][4];
    int thread = threadIdx.x % GROUP;
    for (int i = 0; w.live; i++) {
        int turn = i & 1;
        group_wait(FULL + VALUES + turn);
        st_wgmma_begin();
        group_scores<GROUP_TILE, GROUP_COLS>(c, room->k, 0, room->stage[turn].q);
        st_wgmma_commit();
        st_wgmma_wait<1>();
        if (i) group_arrive(EMPTY + VALUES + (turn ^ 1));
        st_wgmma_wait<0>();
        st_wgmma_touch<64>(c);
        weights(p, c, a, w, low, room->lse[turn]);
        if (i >= 2) group_wait(P_FREE + turn);
#pragma unroll
        for (int j = 0; j < 16; j++) room->p[turn][j][thread] = p[j / 4][j % 4];
        group_arrive(P_FULL + turn);
        st_wgmma_begin();
        group_add<GROUP_COLS>(sum, p, room->stage[turn].d_out);
        st_wgmma_commit();
        attn_next<true>(w, GROUP_TILE, a, faults, low, high);
    }
    st_wgmma_wait<0>();
    st_wgmma_touch<256>(sum);
    group_store<GROUP_COLS>(a.dv, sum, low, kv, 1);
}

DEVICE void sum_keys(keys_room *room, const cuda_attn &a, st_cuda_faults faults, int low, int high, int kv, attn_walk w)
{
    float sum[32][4] = {{0}}, c[8][4];
    uint32_t p[4][4];
    int thread = threadIdx.x % GROUP;
    for (int i = 0; w.live; i++) {
        int turn = i & 1;
        group_wait(FULL + KEYS + turn);
        st_wgmma_begin();
        group_scores<GROUP_TILE, GROUP_COLS>(c, room->v, 0, room->stage[turn].d_out);
        st_wgmma_commit();
        st_wgmma_wait<1>();
        if (i) group_arrive(EMPTY + KEYS + (turn ^ 1));
        group_wait(P_FULL + turn);
        st_wgmma_wait<0>();
        st_wgmma_touch<64>(c);
#pragma unroll
        for (int j = 0; j < 16; j++) p[j / 4][j % 4] = room->p[turn][j][thread];
        group_arrive(P_FREE + turn);
        slopes(p, c, room->delta[turn]);
        st_wgmma_begin();
        group_add<GROUP_COLS>(sum, p, room->stage[turn].q);
        st_wgmma_commit();
        attn_next<true>(w, GROUP_TILE, a, faults, low, high);
    }
    st_wgmma_wait<0>();
    st_wgmma_touch<256>(sum);
    group_store<GROUP_COLS>(a.dk, sum, low, kv, a.scale);
}
#endif

static __global__ void __launch_bounds__(GROUP_THREADS, 1)
    keys_kernel(const __grid_constant__ cuda_attn a, st_cuda_faults faults)
{
#if ST_CUDA_HAS_WGMMA
    extern __shared__ __align__(ST_TILE_ALIGN) char shared[];
    keys_room *room = (keys_room *)shared;
    int kv = blockIdx.x % a.k.heads, group = a.q.heads / a.k.heads, low = blockIdx.x / a.k.heads * GROUP_TILE;
    int high = min((int64_t)low + GROUP_TILE, a.k.rows), role = threadIdx.x / GROUP;
    attn_walk w = attn_start<true>(a, faults, low, high, kv * group, group);
    if (role == 0) {
        group_fewer_registers<BRINGING_REGISTERS>();
        bring(room, a, faults, low, high, kv, w);
    } else {
        group_more_registers<MULTIPLYING_REGISTERS>();
        if (role == 1) sum_values(room, a, faults, low, high, kv, w);
        else sum_keys(room, a, faults, low, high, kv, w);
    }
#endif
}

extern "C" int cuda_attention_group_dkv(const st_queue *q, const cuda_attn *a)
{
    unsigned blocks = (unsigned)(cuda_div_up(a->k.rows, GROUP_TILE) * a->k.heads);
    if ((!a->dk.data && !a->dv.data) || !blocks) return ST_OK;
    ST_CUDA_SHARED(keys_kernel, sizeof(keys_room));
    keys_kernel<<<blocks, GROUP_THREADS, sizeof(keys_room), st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
    return st_cuda_launched(q, "attention_bwd");
}
