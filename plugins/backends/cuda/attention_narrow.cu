/* SPDX-License-Identifier: Apache-2.0 */
/* attention_narrow.cu - as attention_dq.cu and attention_dkv.cu, for heads of up to 128 on Hopper, where both are one kernel: a
 * block owns 128 rows of a head, of queries or of keys, and walks the other side in tiles of 64. Each of two warpgroups has 64
 * of the rows and makes all of their products, so that one multiplies while the other raises powers; the third brings tiles.
 *
 * Of every tensor there is x (q or k, which give scores) or y (d_out or v, which give dp), own or of the other side:
 * p = exp(x x'^T scale - lse), ds = p (y y'^T - delta), dx = scale ds x', and for keys dy = p y'. */
#include "attention_group.h"
#include <strata/cuda_bulk.h>

enum { OWN = 2 * GROUP_TILE, STAGES = 4, AHEAD = 2 }; /* AHEAD: stages that are told full while younger ones come */

template <int COLS> struct narrow_room {
    static constexpr int LENGTH = group_row<COLS>::length;
    st_bf16 x[OWN * LENGTH], y[OWN * LENGTH];
    struct {
        st_bf16 x[GROUP_TILE * LENGTH], y[GROUP_TILE * LENGTH];
    } stage[STAGES];
    float lse[STAGES][GROUP_TILE], delta[STAGES][GROUP_TILE]; /* of queries in a stage */
    uint64_t full[STAGES], empty[STAGES];
};

#if ST_CUDA_HAS_WGMMA
/* ---- a stage is full when all threads that bring have told so, and empty when all warps that multiply have ---- */
DEVICE void stage_wait(uint64_t *barrier, int turn) { st_barrier_wait(barrier, turn & 1); } /* for its turn-th phase */
DEVICE void stage_release(uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % CUDA_WARP == 0) st_barrier_arrive(barrier);
}

template <int COLS, bool KEYS>
DEVICE void load_stage(narrow_room<COLS> *room, int turn, const cuda_attn &a, const attn_walk &w, int head)
{
    int64_t low = KEYS ? w.q : w.k, first = low + w.at, end = low + (KEYS ? w.q_n : w.k_n);
    group_load<GROUP_TILE, COLS>(room->stage[turn].x, KEYS ? a.q : a.k, head, first, low, end);
    group_load<GROUP_TILE, COLS>(room->stage[turn].y, KEYS ? a.d_out : a.v, head, first, low, end);
    if (KEYS && threadIdx.x < GROUP_TILE) attn_load_statistics(room->lse[turn], room->delta[turn], a, head, first, end);
    st_copies_commit();
}

template <int COLS, bool KEYS>
DEVICE void bring(narrow_room<COLS> *room, const cuda_attn &a, st_cuda_faults faults, int low, int high, int head,
                  attn_walk w)
{
    int kv = KEYS ? head : head / (int)(a.q.heads / a.k.heads), i = 0;
    group_load<OWN, COLS>(room->x, KEYS ? a.k : a.q, head, low, 0, KEYS ? a.k.rows : a.q.rows);
    group_load<OWN, COLS>(room->y, KEYS ? a.v : a.d_out, head, low, 0, KEYS ? a.k.rows : a.q.rows);
    for (; w.live; i++) {
        if (i >= STAGES) stage_wait(&room->empty[i % STAGES], i / STAGES - 1);
        load_stage<COLS, KEYS>(room, i % STAGES, a, w, KEYS ? w.head : kv);
        if (i >= AHEAD) {
            st_copies_wait<AHEAD>();
            st_wgmma_tiles_written();
            st_barrier_arrive(&room->full[(i - AHEAD) % STAGES]);
        }
        attn_next<KEYS>(w, GROUP_TILE, a, faults, low, high);
    }
    st_copies_wait<0>();
    st_wgmma_tiles_written();
    for (int last = max(i - AHEAD, 0); last < i; last++) st_barrier_arrive(&room->full[last % STAGES]);
}

/* ---- how 64 own rows from `low` on and the 64 of a step see each other ---- */
enum { NONE, SOME, ALL };
template <bool KEYS> DEVICE int seeing(const cuda_attn &a, const attn_walk &w, int low)
{
    int q = KEYS ? w.at : low - w.q, k = KEYS ? low - w.k : w.at, skew = w.k_n - w.q_n; /* first of both in the span */
    int q_end = min(q + GROUP_TILE, w.q_n), k_end = min(k + GROUP_TILE, w.k_n);
    if (q_end <= max(q, 0) || k_end <= max(k, 0) || (a.causal && max(k, 0) >= skew + q_end)) return NONE;
    return q >= 0 && k >= 0 && q_end - q == GROUP_TILE && k_end - k == GROUP_TILE &&
                   (!a.causal || k_end <= skew + q + 1)
               ? ALL
               : SOME;
}

/* Of a (64, 64) result this thread has rows `row` and row + 8, columns 8 n + col and the next. For keys, queries are columns. */
DEVICE int own_row(void) { return threadIdx.x % GROUP / 32 * 16 + (threadIdx.x & 31) / 4; }
DEVICE int own_col(void) { return (threadIdx.x & 3) * 2; }
template <bool KEYS> DEVICE float of_query(const float *column, const float (&row)[2], int n, int i)
{
    return KEYS ? column[n * 8 + own_col() + (i & 1)] : row[i >> 1];
}

/* Scores become weights. lse: of columns, base: of rows, times log2 e. */
template <bool KEYS> DEVICE void weights(float (&c)[8][4], const float *lse, const float (&base)[2], float factor)
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float from = of_query<KEYS>(lse, base, n, i) * (KEYS ? CUDART_L2E_F : 1);
            c[n][i] = st_exp2_fast(c[n][i] * factor - from);
        }
}
/* Weights are 0 where a query does not see the key. */
template <bool KEYS> DEVICE void cut(float (&c)[8][4], const cuda_attn &a, const attn_walk &w, int low)
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = low + own_row() + 8 * (i >> 1), col = w.at + n * 8 + own_col() + (i & 1);
            unsigned key = KEYS ? row - w.k : col, seen = attn_seen(w, a.causal, KEYS ? w.q + col : row);
            if (key >= seen) c[n][i] = 0;
        }
}
/* dp becomes ds. Where a weight was CUT to 0, dp may be of rows that nobody wrote. */
template <bool KEYS, bool CUT>
DEVICE void slopes(float (&dp)[8][4], const float (&p)[8][4], const float *delta, const float (&base)[2])
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float x = p[n][i] * (dp[n][i] - of_query<KEYS>(delta, base, n, i));
            dp[n][i] = CUT && p[n][i] == 0 ? 0 : x;
        }
}
DEVICE void operands(uint32_t (&to)[4][4], const float (&c)[8][4])
{
#pragma unroll
    for (int s = 0; s < 4; s++) st_wgmma_operand(to[s], c[2 * s], c[2 * s + 1]);
}

DEVICE void unpack(float (&c)[8][4], const uint32_t (&from)[4][4])
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t pair = from[n / 2][n % 2 * 2 + (i >> 1)];
            c[n][i] = i & 1 ? high_half(pair) : low_half(pair);
        }
}

/* Left operands from registers, so that shared memory has half as much to read, as far as there are enough. Not for heads of 64:
 * where all products have as many columns, ptxas 13.0 packs slopes into the registers of operands that are held. */
template <int COLS, bool KEYS> struct narrow {
    static constexpr bool HOLD_X = COLS != 64 && (COLS <= 80 || !KEYS), HOLD_Y = COLS != 64 && COLS <= 80 && !KEYS;
    static constexpr bool ONE_RESULT = KEYS && COLS > 80; /* dp takes the place of the scores */
    static constexpr int STEPS = (COLS + 15) / 16;
};
template <int STEPS> DEVICE void hold(uint32_t (&to)[STEPS][4], const st_bf16 *tile, int row)
{
    int lane = threadIdx.x & 31;
    row += threadIdx.x % GROUP / 32 * 16 + (lane & 15);
#pragma unroll
    for (int s = 0; s < STEPS; s++) st_load_matrices(to[s], tile + st_tile_at(OWN, row, 16 * s + (lane >> 4) * 8));
}
template <int COLS, bool HELD, int STEPS>
DEVICE void scores(float (&c)[8][4], const uint32_t (&held)[STEPS][4], const st_bf16 *own, int row,
                   const st_bf16 *right)
{
    st_wgmma_begin();
    if (!HELD) {
        group_scores<OWN, COLS>(c, own, row, right);
    } else {
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            st_wgmma<ST_COLUMNS_ARE_K>(c, held[s], st_wgmma_tile<ST_COLUMNS_ARE_K>(right, GROUP_TILE, 0, s), s > 0);
    }
    st_wgmma_commit();
}

template <int COLS, bool KEYS>
DEVICE void multiply(narrow_room<COLS> *room, const cuda_attn &a, st_cuda_faults faults, int low, int high, int head,
                     attn_walk w, int half)
{
    typedef narrow<COLS, KEYS> way;
    constexpr int STEPS = way::STEPS;
    float dx[COLS / 8][4] = {{0}}, dy[COLS / 8][4] = {{0}}, c[8][4], dp[8][4], base[2] = {0}, delta[2] = {0};
    uint32_t x[STEPS][4], y[STEPS][4], p[4][4], ds[4][4];
    int row = half * GROUP_TILE, own = low + row, used = -1; /* used: the stage of products under way */
    for (int r = 0; r < 2 && !KEYS; r++) {
        int64_t at = min((int64_t)own + own_row() + 8 * r, a.q.rows - 1);
        base[r] = *attn_statistic(a.lse, at, head) * CUDART_L2E_F;
        delta[r] = a.delta[at * a.q.heads + head];
    }
    if (w.live) { /* what was brought first is there with the first stage */
        stage_wait(&room->full[0], 0);
        if (way::HOLD_X) hold(x, room->x, row);
        if (way::HOLD_Y) hold(y, room->y, row);
    }
    st_wgmma_touch<COLS>(dx);
    if (KEYS) st_wgmma_touch<COLS>(dy);
    for (int i = 0; w.live; i++) {
        int turn = i % STAGES, see = seeing<KEYS>(a, w, own);
        stage_wait(&room->full[turn], i / STAGES);
        if (see == NONE) {
            st_wgmma_wait<0>();
            if (used >= 0) stage_release(&room->empty[used]);
            stage_release(&room->empty[turn]);
            used = -1;
        } else {
            const st_bf16 *other_x = room->stage[turn].x, *other_y = room->stage[turn].y;
            scores<COLS, way::HOLD_X>(c, x, room->x, row, other_x);
            if (!way::ONE_RESULT) scores<COLS, way::HOLD_Y>(dp, y, room->y, row, other_y);
            st_wgmma_wait<way::ONE_RESULT ? 0 : 1>();
            st_wgmma_touch<64>(c);
            if (used >= 0) stage_release(&room->empty[used]);
            used = turn;
            weights<KEYS>(c, room->lse[turn], base, a.scale * CUDART_L2E_F);
            if (see == SOME) cut<KEYS>(c, a, w, own);
            if (way::ONE_RESULT) {
                operands(p, c);
                scores<COLS, way::HOLD_Y>(dp, y, room->y, row, other_y);
            }
            st_wgmma_wait<0>(); /* before operands are written */
            st_wgmma_touch<64>(dp);
            if (way::ONE_RESULT) unpack(c, p);
            if (see == SOME) slopes<KEYS, true>(dp, c, room->delta[turn], delta);
            else slopes<KEYS, false>(dp, c, room->delta[turn], delta);
            if (KEYS && !way::ONE_RESULT) operands(p, c);
            operands(ds, dp);
            st_wgmma_begin();
            if (KEYS) group_add<COLS>(dy, p, other_y);
            group_add<COLS>(dx, ds, other_x);
            st_wgmma_commit();
        }
        attn_next<KEYS>(w, GROUP_TILE, a, faults, low, high);
    }
    st_wgmma_wait<0>();
    st_wgmma_touch<COLS>(dx);
    group_store<COLS>(KEYS ? a.dk : a.dq, dx, own, head, a.scale);
    if (!KEYS) return;
    st_wgmma_touch<COLS>(dy);
    group_store<COLS>(a.dv, dy, own, head, 1);
}
#endif

/* Blocks with more to see come first: late queries, early keys. The heads of a group run side by side and share in the L2. */
template <int COLS, bool KEYS>
static __global__ void __launch_bounds__(GROUP_THREADS, 1)
    narrow_kernel(const __grid_constant__ cuda_attn a, st_cuda_faults faults)
{
#if ST_CUDA_HAS_WGMMA
    extern __shared__ __align__(ST_TILE_ALIGN) char shared[];
    narrow_room<COLS> *room = (narrow_room<COLS> *)shared;
    const cuda_view &own = KEYS ? a.k : a.q;
    int heads = (int)own.heads, head = blockIdx.x % heads, tile = blockIdx.x / heads, group = a.q.heads / a.k.heads;
    int low = (KEYS ? tile : gridDim.x / heads - 1 - tile) * OWN, high = min((int64_t)low + OWN, own.rows);
    int role = threadIdx.x / GROUP;
    attn_walk w = attn_start<KEYS>(a, faults, low, high, KEYS ? head * group : head, KEYS ? group : 1);
    if (threadIdx.x < STAGES) {
        st_barrier_begin(&room->full[threadIdx.x], GROUP);
        st_barrier_begin(&room->empty[threadIdx.x], 2 * GROUP / CUDA_WARP);
    }
    __syncthreads();
    if (role == 0) {
        group_fewer_registers<BRINGING_REGISTERS>();
        bring<COLS, KEYS>(room, a, faults, low, high, head, w);
    } else {
        group_more_registers<MULTIPLYING_REGISTERS>();
        multiply<COLS, KEYS>(room, a, faults, low, high, head, w, role - 1);
    }
#endif
}

template <int COLS, bool KEYS> static int launch(const st_queue *q, const cuda_attn *a)
{
    unsigned blocks = (unsigned)(cuda_div_up(KEYS ? a->k.rows : a->q.rows, OWN) * (KEYS ? a->k.heads : a->q.heads));
    if (!blocks) return ST_OK;
    ST_CUDA_SHARED((narrow_kernel<COLS, KEYS>), sizeof(narrow_room<COLS>));
    narrow_kernel<COLS, KEYS>
        <<<blocks, GROUP_THREADS, sizeof(narrow_room<COLS>), st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
    return st_cuda_launched(q, "attention_bwd");
}
template <bool KEYS> static int launch_for(const st_queue *q, const cuda_attn *a)
{
    int64_t cols = a->q.cols;
    return cols <= 64   ? launch<64, KEYS>(q, a)
           : cols <= 72 ? launch<72, KEYS>(q, a)
           : cols <= 80 ? launch<80, KEYS>(q, a)
                        : launch<128, KEYS>(q, a);
}

extern "C" int cuda_attention_narrow_fits(const cuda_attn *a)
{
    return a->type == ST_BF16 && a->wide && a->q.cols <= 128 && st_cuda_has_wgmma();
}
extern "C" int cuda_attention_narrow_dq(const st_queue *q, const cuda_attn *a)
{
    return a->dq.data ? launch_for<false>(q, a) : ST_OK;
}
extern "C" int cuda_attention_narrow_dkv(const st_queue *q, const cuda_attn *a)
{
    return a->dk.data || a->dv.data ? launch_for<true>(q, a) : ST_OK;
}
