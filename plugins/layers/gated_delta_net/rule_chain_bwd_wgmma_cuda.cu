/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_chain_bwd_wgmma_cuda.cu - backward along a segment on Hopper, from its last chunk to its first: dV,
 * and the gradient of the state after every chunk. As forward, all is transposed and stays in registers; shared memory
 * holds tiles of K, Q, dO, A^T, P^T, two chunks ahead. */
#include "chain_wgmma_cuda.h"

#if ST_CUDA_HAS_WGMMA
/* dO^T times e and the queries' factor as an operand: 16 value columns from `column` on. */
DEVICE void scaled_gradient(uint32_t (&d)[4][4], const bf16 *dout, int column, const chain_factors *f)
{
    const int lane = lane_of(), matrix = lane / 8;
#pragma unroll
    for (int s = 0; s < 4; s++) {
        st_load_matrices_transposed(d[s],
                             dout + st_tile_at(CHUNK, 16 * s + matrix / 2 * 8 + lane % 8, column + matrix % 2 * 8));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 by = factors_at(f->decay, f->q_scale, 2 * s + i / 2);
            d[s][i] = st_bf16_pair(__uint_as_float(d[s][i] << 16) * by.x,
                                   __uint_as_float(d[s][i] & 0xffff0000u) * by.y);
        }
    }
}
/* c = dO^T P */
DEVICE void mixed_gradient(float (&c)[8][4], const bf16 *dout, const bf16 *mix)
{
#pragma unroll
    for (int s = 0; s < 4; s++)
        st_wgmma<ST_ROWS_ARE_K, ST_COLUMNS_ARE_K>(c, st_wgmma_tile<ST_ROWS_ARE_K>(dout, CHUNK, 0, s),
                                                  st_wgmma_tile<ST_COLUMNS_ARE_K>(mix, CHUNK, 0, s), s);
    st_wgmma_commit();
}
/* x += r k_scale u, as an operand */
DEVICE void add_scaled(uint32_t (&a)[4][4], float (&x)[8][4], const float (&u)[8][4], const chain_factors *f)
{
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float2 by = factors_at(f->rest, f->k_scale, n);
        x[n][0] += u[n][0] * by.x;
        x[n][1] += u[n][1] * by.y;
        x[n][2] += u[n][2] * by.x;
        x[n][3] += u[n][3] * by.y;
    }
    operands(a, x);
}
#endif

template <int GROUPS>
static __global__ void __launch_bounds__(GROUP *GROUPS, 1)
    chain_bwd(const rule_launch l, const __grid_constant__ chain_maps m)
{
#if ST_CUDA_HAS_WGMMA
    extern __shared__ __align__(ST_TILE_ALIGN) unsigned char shared[];
    chain_shared<GROUPS> *s = (chain_shared<GROUPS> *)shared;
    const int group = warp_of() / 4, column = warp_of() % 4 * 16, from_block = group * VALUES + column;
    chain_begin(s);
    const chain_place c = chain_place_of<GROUPS>(l, s->tiles);
    if (!c.count) return;
    const int64_t head = (int64_t)c.head * l.a.key_dim * l.a.value_dim + c.column;
    const int last = c.count - 1;
    const bf16 *dfinal = (const bf16 *)l.b.dfinal;

    float state[16][4], u[8][4], x[8][4];
    uint32_t after[8][4], d[4][4], w[4][4], ready[4][4]; /* dS'^T, dO^T, operands in turn, dV^T of the chunk before */
    if (is_leader())
        for (int j = 0; j < STAGES - 1 && j < c.count; j++) load_stage<GROUPS, 1>(s, j, m, l, c, last - j, group);
    first_state(state, dfinal ? dfinal + (c.end - 1) * l.a.final_stride + head + from_block : NULL, l,
                c.columns - from_block);
    operands(after, state);
    for (int i = last, stage = 0, next = STAGES - 1, turn = 0; i >= 0; i--) {
        chain_stage<GROUPS> *t = &s->stage[stage], *past = &s->stage[next];
        const chain_factors *f = &s->factors[stage];
        const int length = length_of(c, i), dv_length = i < last ? length_of(c, i + 1) : 0;
        st_barrier_wait(&s->full[stage], turn);
        if (length < CHUNK) clear_behind(t, length);
        scale(state, f->decay[CHUNK - 1]);
        __syncthreads(); /* the stage is whole, and the last chunk's is not read again */
        scaled_gradient(d, t->values[group], column, f);
        st_wgmma_begin();
        multiply<ST_COLUMNS_ARE_K>(u, after, t->k, 0);
        mixed_gradient(x, t->values[group], t->mix);
        multiply<ST_ROWS_ARE_K>(state, d, t->q, 1);
        put_rows(group ? past->q : past->k, column, after);
        if (i < last) put_rows(past->values[group], column, ready);
        st_wgmma_tiles_written();
        group_meets(group);
        if (is_leader()) {
            st_bulk_store_box(&m.states, group ? past->q : past->k, c.column + group * VALUES, 0,
                           (c.first + i) * l.a.value_heads + c.head);
            if (dv_length == CHUNK)
                st_bulk_store_box(&m.rows, past->values[group], c.column + group * VALUES, c.head,
                               (int)c.begin + (i + 1) * CHUNK);
            st_bulk_stores_commit();
        }
        if (i < last && dv_length < CHUNK) {
            take_rows((bf16 *)l.b.dv + (c.begin + (int64_t)(i + 1) * CHUNK) * l.b.dstride +
                          (int64_t)c.head * l.a.value_dim + c.column + group * VALUES,
                      l.b.dstride, past->values[group], dv_length, c.columns - group * VALUES);
            group_meets(group);
        }
        st_wgmma_wait<1>();
        st_wgmma_touch<64>(u);
        st_wgmma_touch<64>(x);
        add_scaled(w, x, u, f);
        st_wgmma_begin();
        multiply<ST_COLUMNS_ARE_K>(u, w, t->solve, 0);
        st_wgmma_wait<0>();
        st_wgmma_touch<64>(u);
        operands(ready, u);
        scale(u, -1.0f);
        scale_columns(u, f->decay, f->k_scale);
        operands(w, u);
        st_wgmma_begin();
        multiply<ST_ROWS_ARE_K>(state, w, t->k, 1);
        if (is_leader() && i >= STAGES - 1) {
            st_bulk_stores_read();
            load_stage<GROUPS, 1>(s, next, m, l, c, i - (STAGES - 1), group);
        }
        st_wgmma_wait<0>();
        st_wgmma_touch<128>(state);
        operands(after, state);
        next = stage;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        turn ^= !stage;
    }
    /* What the segment's first chunk leaves, by way of its own stage. */
    chain_stage<GROUPS> *t = &s->stage[last % STAGES];
    bf16 *const tile = group ? t->q : t->k;
    __syncthreads();
    put_rows(tile, column, after);
    put_rows(t->values[group], column, ready);
    __syncthreads();
    take_rows((bf16 *)l.b.dv + c.begin * l.b.dstride + (int64_t)c.head * l.a.value_dim + c.column + group * VALUES,
              l.b.dstride, t->values[group], length_of(c, 0), c.columns - group * VALUES);
    if (l.b.dinitial)
        take_rows((bf16 *)l.b.dinitial + c.begin * l.a.initial_stride + head + group * VALUES, l.a.value_dim, tile,
                  l.a.key_dim, c.columns - group * VALUES);
    if (is_leader()) st_bulk_stores_read();
#endif
}

int gdn_rule_chain_bwd_wgmma(const st_queue *q, const rule_launch *l)
{
    static const char name[] = "gdn_rule_chain_bwd";
    chain_maps m = {};
    ST_TRY(chain_maps_of(q, name, &m, l, l->b.dout, l->a.out_stride, l->dstate, l->b.dv, l->b.dstride));
    return chain_start<2>(q, name, chain_bwd<2>, l, m); /* heads are wider than one group takes: backward_of() */
}
