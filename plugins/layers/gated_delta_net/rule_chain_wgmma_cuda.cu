/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_chain_wgmma_cuda.cu - forward along a segment on Hopper: a block has one value head and a warpgroup
 * for every 64 of its value columns. All is transposed: S^T (value columns, keys) stays in f32 in registers, and so does
 * everything made from it, because results of a product are the next one's operand. Shared memory holds only what is
 * read from memory: tiles of K, Q, V, A, P, two chunks ahead. */
#include "chain_wgmma_cuda.h"

enum { STAGES = 3 };

template <int GROUPS> struct chain_stage {
    bf16 k[CHUNK * KEYS], q[CHUNK * KEYS], v[GROUPS][CHUNK * VALUES], solve[MATRIX], mix[MATRIX];
};
template <int GROUPS> struct chain_shared {
    chain_stage<GROUPS> stage[STAGES];
    chain_factors factors[STAGES];
    bf16 rows[4 * GROUPS][2 * RIGHT];
    int tiles[2];
};

#if ST_CUDA_HAS_WGMMA
template <int GROUPS, int WITH_OUT>
DEVICE void load_stage(chain_shared<GROUPS> *s, int to, const rule_launch &l, const chain_place &c, int i)
{
    enum { THREADS = 128 * GROUPS };
    chain_stage<GROUPS> *t = &s->stage[to];
    chain_factors *f = &s->factors[to];
    const int64_t token = (c.begin + (int64_t)i * CHUNK) * l.a.stride, tile = c.first + i;
    const int64_t keys = token + (int64_t)c.key_head * l.a.key_dim;
    const int64_t values = token + (int64_t)c.head * l.a.value_dim + c.column;
    const int64_t at = tile * l.a.value_heads + c.head, key_at = tile * l.a.key_heads + c.key_head;
    const int length = length_of(c, i);
    load_swizzled<THREADS, CHUNK, KEYS>(t->k, (const bf16 *)l.a.k + keys, l.a.stride, length, l.a.key_dim);
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
        load_swizzled<THREADS, CHUNK, VALUES>(t->v[g], (const bf16 *)l.a.v + values + g * VALUES, l.a.stride, length,
                                              c.columns - g * VALUES);
    load_swizzled<THREADS, CHUNK, CHUNK>(t->solve, (const bf16 *)l.solve + at * MATRIX, CHUNK, CHUNK, CHUNK);
    load_floats(f->decay, l.decay + at * CHUNK, CHUNK, 0);
    load_floats(f->rest, l.rest + at * CHUNK, CHUNK, 16);
    load_floats(f->k_scale, l.k_scale + key_at * CHUNK, CHUNK, 32);
    if (!WITH_OUT) return;
    load_floats(f->q_scale, l.q_scale + key_at * CHUNK, CHUNK, 48);
    load_swizzled<THREADS, CHUNK, KEYS>(t->q, (const bf16 *)l.a.q + keys, l.a.stride, length, l.a.key_dim);
    load_swizzled<THREADS, CHUNK, CHUNK>(t->mix, (const bf16 *)l.mix + at * MATRIX, CHUNK, CHUNK, CHUNK);
}
#endif

template <int GROUPS, int WITH_OUT>
static __global__ void __launch_bounds__(128 * GROUPS, 1) chain_wgmma(const rule_launch l)
{
#if ST_CUDA_HAS_WGMMA
    extern __shared__ __align__(ST_TILE_ALIGN) unsigned char shared[];
    chain_shared<GROUPS> *s = (chain_shared<GROUPS> *)shared;
    const int group = warp_of() / 4, column = warp_of() % 4 * 16, from_block = group * VALUES + column;
    bf16 *const staging = s->rows[warp_of()];
    const chain_place c = chain_place_of<GROUPS>(l, s->tiles);
    if (!c.count) return;
    const int64_t size = (int64_t)l.a.key_dim * l.a.value_dim;
    bf16 *const states =
        (bf16 *)l.a.states + ((int64_t)c.first * l.a.value_heads + c.head) * size + c.column + from_block;
    bf16 *const out_at =
        (bf16 *)l.a.out + c.begin * l.a.out_stride + (int64_t)c.head * l.a.value_dim + c.column + from_block;
    const bf16 *initial = (const bf16 *)l.a.initial;
    const int columns = c.columns - from_block, chunks = WITH_OUT || l.a.final ? c.count : c.count - 1;
    const float *gammas = l.decay + ((int64_t)c.first * l.a.value_heads + c.head) * CHUNK + CHUNK - 1;

    float state[16][4], u[8][4], x[8][4], out[8][4];
    uint32_t before[8][4], w[4][4], ready[4][4]; /* S^T, operands in turn, O^T of the last chunk */
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < chunks) load_stage<GROUPS, WITH_OUT>(s, i, l, c, i);
        copies_commit();
    }
    if (initial) initial += c.begin * l.a.initial_stride + c.head * size + c.column + from_block;
    first_state(state, initial, l, columns);
    operands(before, state);
    scale(state, *gammas);
    for (int i = 0, stage = 0, next = STAGES - 1; i < chunks; i++) {
        const chain_stage<GROUPS> *t = &s->stage[stage];
        const chain_factors *f = &s->factors[stage];
        const float gamma =
            i + 1 < chunks ? gammas[(int64_t)(i + 1) * l.a.value_heads * CHUNK] : 1; /* of the next chunk */
        copies_wait<STAGES - 2>();
        st_wgmma_tiles_written();
        __syncthreads(); /* the stage is whole, and the last chunk's is not read again */
        st_wgmma_begin();
        multiply<ST_COLUMNS_ARE_K>(u, before, t->k, 0);
        if (WITH_OUT) multiply<ST_COLUMNS_ARE_K>(out, before, t->q, 0);
        if (i + STAGES - 1 < chunks) load_stage<GROUPS, WITH_OUT>(s, next, l, c, i + STAGES - 1);
        copies_commit();
        if (i && l.a.states)
            write_rows(staging, states + i * l.a.value_heads * size, l.a.value_dim, l.a.key_dim, columns, before);
        if (WITH_OUT && i)
            write_rows(staging, out_at + (int64_t)(i - 1) * CHUNK * l.a.out_stride, l.a.out_stride, CHUNK, columns,
                       ready);
        st_wgmma_wait<WITH_OUT>();
        st_wgmma_touch<64>(u);
        written_values(w, u, t->v[group], column, f);
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
        st_wgmma_wait<WITH_OUT>();
        st_wgmma_touch<128>(state);
        operands(before, state);
        scale(state, gamma);
        st_wgmma_wait<0>();
        if (WITH_OUT) {
            st_wgmma_touch<64>(out);
            operands(ready, out);
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    if (WITH_OUT)
        write_rows(staging, out_at + (int64_t)(chunks - 1) * CHUNK * l.a.out_stride, l.a.out_stride,
                   length_of(c, chunks - 1), columns, ready);
    if (chunks < c.count && chunks && l.a.states) /* the last chunk itself was not needed */
        write_rows(staging, states + chunks * l.a.value_heads * size, l.a.value_dim, l.a.key_dim, columns, before);
    if (l.a.final)
        write_rows(staging, (bf16 *)l.a.final + (c.end - 1) * l.a.final_stride + c.head * size + c.column + from_block,
                   l.a.value_dim, l.a.key_dim, columns, before);
#endif
}

template <int GROUPS, int WITH_OUT> static int run(const st_queue *q, const rule_launch *l)
{
    const int wide = GROUPS * VALUES;
    const dim3 grid((unsigned)l->a.row.n_segments, (unsigned)l->a.value_heads,
                    (unsigned)((l->a.value_dim + wide - 1) / wide));
    return rule_start(q, "gdn_rule_chain", chain_wgmma<GROUPS, WITH_OUT>, grid, 128 * GROUPS,
                      sizeof(chain_shared<GROUPS>), *l);
}
int gdn_rule_chain_wgmma(const st_queue *q, const rule_launch *l)
{
    if (l->a.out) return l->a.value_dim > VALUES ? run<2, 1>(q, l) : run<1, 1>(q, l);
    return l->a.value_dim > VALUES ? run<2, 0>(q, l) : run<1, 0>(q, l);
}
