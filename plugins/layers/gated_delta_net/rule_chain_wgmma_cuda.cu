/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_chain_wgmma_cuda.cu - forward along a segment on Hopper: a block has one value head and a warpgroup
 * for every 64 of its value columns. All is transposed: S^T (value columns, keys) stays in f32 in registers, and so does
 * everything made from it, because results of a product are the next one's operand. Shared memory holds only what is
 * read from memory: tiles of K, Q, V, A, P, two chunks ahead; and states and outputs on their way there. */
#include "chain_wgmma_cuda.h"

template <int GROUPS, int WITH_OUT>
static __global__ void __launch_bounds__(GROUP *GROUPS, 1)
    chain_wgmma(const rule_launch l, const __grid_constant__ chain_maps m)
{
#if ST_CUDA_HAS_WGMMA
    extern __shared__ __align__(ST_TILE_ALIGN) unsigned char shared[];
    chain_shared<GROUPS> *s = (chain_shared<GROUPS> *)shared;
    const int group = warp_of() / 4, column = warp_of() % 4 * 16, from_block = group * VALUES + column;
    chain_begin(s);
    const chain_place c = chain_place_of<GROUPS>(l, s->tiles);
    if (!c.count) return;
    const int64_t size = (int64_t)l.a.key_dim * l.a.value_dim;
    const bf16 *initial = (const bf16 *)l.a.initial;
    const int columns = c.columns - from_block, chunks = WITH_OUT || l.a.final ? c.count : c.count - 1;

    float state[16][4], u[8][4], x[8][4], out[8][4];
    uint32_t before[8][4], w[4][4], ready[4][4]; /* S^T, operands in turn, O^T of the last chunk */
    if (is_leader())
        for (int i = 0; i < STAGES - 1 && i < chunks; i++) load_stage<GROUPS, WITH_OUT>(s, i, m, l, c, i, group);
    if (initial) initial += c.begin * l.a.initial_stride + c.head * size + c.column + from_block;
    first_state(state, initial, l, columns);
    operands(before, state);
    for (int i = 0, stage = 0, next = STAGES - 1, turn = 0; i < chunks; i++) {
        chain_stage<GROUPS> *t = &s->stage[stage], *past = &s->stage[next];
        const chain_factors *f = &s->factors[stage];
        const int length = length_of(c, i);
        st_barrier_wait(&s->full[stage], turn);
        if (length < CHUNK) clear_behind(t, length);
        scale(state, f->decay[CHUNK - 1]);
        __syncthreads(); /* the stage is whole, and the last chunk's is not read again */
        st_wgmma_begin();
        multiply<ST_COLUMNS_ARE_K>(u, before, t->k, 0);
        if (WITH_OUT) multiply<ST_COLUMNS_ARE_K>(out, before, t->q, 0);
        if (i) {
            if (l.a.states) put_rows(group ? past->q : past->k, column, before);
            if (WITH_OUT) put_rows(past->values[group], column, ready);
            st_wgmma_tiles_written();
            group_meets(group);
            if (is_leader()) {
                if (l.a.states)
                    st_bulk_store_box(&m.states, group ? past->q : past->k, c.column + group * VALUES, 0,
                                   (c.first + i) * l.a.value_heads + c.head);
                if (WITH_OUT)
                    st_bulk_store_box(&m.rows, past->values[group], c.column + group * VALUES, c.head,
                                   (int)c.begin + (i - 1) * CHUNK);
                st_bulk_stores_commit();
            }
        }
        st_wgmma_wait<WITH_OUT>();
        st_wgmma_touch<64>(u);
        written_values(w, u, t->values[group], column, f);
        st_wgmma_begin();
        multiply<ST_COLUMNS_ARE_K>(x, w, t->solve, 0);
        if (WITH_OUT) {
            st_wgmma_wait<1>();
            st_wgmma_touch<64>(out);
            scale_columns(out, f->decay, f->q_scale);
        }
        st_wgmma_wait<0>();
        st_wgmma_touch<64>(x);
        operands(ready, x);
        scale_columns(x, f->rest, f->k_scale);
        operands(w, x);
        st_wgmma_begin();
        multiply<ST_ROWS_ARE_K>(state, w, t->k, 1);
        if (WITH_OUT) multiply<ST_COLUMNS_ARE_K>(out, ready, t->mix, 1);
        if (is_leader() && i + STAGES - 1 < chunks) {
            st_bulk_stores_read();
            load_stage<GROUPS, WITH_OUT>(s, next, m, l, c, i + STAGES - 1, group);
        }
        st_wgmma_wait<WITH_OUT>();
        st_wgmma_touch<128>(state);
        operands(before, state);
        st_wgmma_wait<0>();
        if (WITH_OUT) {
            st_wgmma_touch<64>(out);
            operands(ready, out);
        }
        next = stage;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        turn ^= !stage;
    }
    if (!chunks) return;
    /* What the last chunk leaves; its stage was not waited for as the others. */
    const int whole = length_of(c, chunks - 1);
    chain_stage<GROUPS> *t = &s->stage[(chunks - 1) % STAGES];
    bf16 *const tile = group ? t->q : t->k;
    const int64_t at = c.head * size + c.column + group * VALUES;
    __syncthreads();
    put_rows(tile, column, before);
    if (WITH_OUT) put_rows(t->values[group], column, ready);
    __syncthreads();
    if (WITH_OUT)
        take_rows((bf16 *)l.a.out + (c.begin + (int64_t)(chunks - 1) * CHUNK) * l.a.out_stride +
                      (int64_t)c.head * l.a.value_dim + c.column + group * VALUES,
                  l.a.out_stride, t->values[group], whole, c.columns - group * VALUES);
    if (chunks < c.count && l.a.states) /* the last chunk itself was not needed */
        take_rows((bf16 *)l.a.states + (int64_t)(c.first + chunks) * l.a.value_heads * size + at, l.a.value_dim, tile,
                  l.a.key_dim, c.columns - group * VALUES);
    if (l.a.final)
        take_rows((bf16 *)l.a.final + (c.end - 1) * l.a.final_stride + at, l.a.value_dim, tile, l.a.key_dim,
                  c.columns - group * VALUES);
    if (is_leader()) st_bulk_stores_read();
#endif
}

template <int GROUPS, int WITH_OUT> static int run(const st_queue *q, const rule_launch *l)
{
    static const char name[] = "gdn_rule_chain";
    chain_maps m = {};
    ST_TRY(chain_maps_of(q, name, &m, l, l->a.v, l->a.stride, l->a.states, l->a.out, l->a.out_stride));
    return chain_start<GROUPS>(q, name, chain_wgmma<GROUPS, WITH_OUT>, l, m);
}
int gdn_rule_chain_wgmma(const st_queue *q, const rule_launch *l)
{
    if (l->a.out) return l->a.value_dim > VALUES ? run<2, 1>(q, l) : run<1, 1>(q, l);
    return l->a.value_dim > VALUES ? run<2, 0>(q, l) : run<1, 0>(q, l);
}
