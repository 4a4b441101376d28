/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_chain_bwd_wgmma_cuda.cu - backward along a segment on Hopper, from its last chunk to its first: dV,
 * and the gradient of the state after every chunk. As forward, all is transposed and stays in registers; shared memory
 * holds tiles of K, Q, dO, A^T, P^T, two chunks ahead. */
#include "chain_wgmma_cuda.h"

enum { STAGES = 3 };

template <int GROUPS> struct back_stage {
    bf16 k[CHUNK * KEYS], q[CHUNK * KEYS], dout[GROUPS][CHUNK * VALUES], solve[MATRIX], mix[MATRIX];
};
template <int GROUPS> struct back_shared {
    back_stage<GROUPS> stage[STAGES];
    chain_factors factors[STAGES];
    bf16 rows[4 * GROUPS][2 * RIGHT];
    int tiles[2];
};

#if ST_CUDA_HAS_WGMMA
template <int GROUPS>
DEVICE void load_stage(back_shared<GROUPS> *s, int to, const rule_launch &l, const chain_place &c, int i)
{
    enum { THREADS = 128 * GROUPS };
    back_stage<GROUPS> *t = &s->stage[to];
    chain_factors *f = &s->factors[to];
    const int64_t token = c.begin + (int64_t)i * CHUNK, tile = c.first + i;
    const int64_t keys = token * l.a.stride + (int64_t)c.key_head * l.a.key_dim;
    const int64_t values = token * l.a.out_stride + (int64_t)c.head * l.a.value_dim + c.column;
    const int64_t at = tile * l.a.value_heads + c.head, key_at = tile * l.a.key_heads + c.key_head;
    const int length = length_of(c, i);
    load_swizzled<THREADS, CHUNK, KEYS>(t->k, (const bf16 *)l.a.k + keys, l.a.stride, length, l.a.key_dim);
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
        load_swizzled<THREADS, CHUNK, VALUES>(t->dout[g], (const bf16 *)l.b.dout + values + g * VALUES, l.a.out_stride,
                                              length, c.columns - g * VALUES);
    load_swizzled<THREADS, CHUNK, CHUNK>(t->mix, (const bf16 *)l.mix + at * MATRIX, CHUNK, CHUNK, CHUNK);
    load_swizzled<THREADS, CHUNK, CHUNK>(t->solve, (const bf16 *)l.solve + at * MATRIX, CHUNK, CHUNK, CHUNK);
    load_swizzled<THREADS, CHUNK, KEYS>(t->q, (const bf16 *)l.a.q + keys, l.a.stride, length, l.a.key_dim);
    load_floats(f->decay, l.decay + at * CHUNK, CHUNK, 0);
    load_floats(f->rest, l.rest + at * CHUNK, CHUNK, 16);
    load_floats(f->k_scale, l.k_scale + key_at * CHUNK, CHUNK, 32);
    load_floats(f->q_scale, l.q_scale + key_at * CHUNK, CHUNK, 48);
}

/* dO^T times e and the queries' factor as an operand: 16 value columns from `column` on. */
DEVICE void scaled_gradient(uint32_t (&d)[4][4], const bf16 *dout, int column, const chain_factors *f)
{
    const int lane = lane_of(), matrix = lane / 8;
#pragma unroll
    for (int s = 0; s < 4; s++) {
        load_four_transposed(d[s],
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

template <int GROUPS> static __global__ void __launch_bounds__(128 * GROUPS, 1) chain_bwd(const rule_launch l)
{
#if ST_CUDA_HAS_WGMMA
    extern __shared__ __align__(ST_TILE_ALIGN) unsigned char shared[];
    back_shared<GROUPS> *s = (back_shared<GROUPS> *)shared;
    const int group = warp_of() / 4, column = warp_of() % 4 * 16, from_block = group * VALUES + column;
    bf16 *const staging = s->rows[warp_of()];
    const chain_place c = chain_place_of<GROUPS>(l, s->tiles);
    if (!c.count) return;
    const int64_t size = (int64_t)l.a.key_dim * l.a.value_dim, head = c.head * size + c.column + from_block;
    const int columns = c.columns - from_block, last = c.count - 1;
    const bf16 *dfinal = (const bf16 *)l.b.dfinal;
    bf16 *const dstate = (bf16 *)l.dstate + (int64_t)c.first * l.a.value_heads * size + head;
    bf16 *const dv_at =
        (bf16 *)l.b.dv + c.begin * l.b.dstride + (int64_t)c.head * l.a.value_dim + c.column + from_block;
    const float *gammas = l.decay + ((int64_t)c.first * l.a.value_heads + c.head) * CHUNK + CHUNK - 1;

    float state[16][4], u[8][4], x[8][4];
    uint32_t after[8][4], d[4][4], w[4][4], ready[4][4]; /* dS'^T, dO^T, operands in turn, dV^T of the chunk before */
    for (int j = 0; j < STAGES - 1; j++) {
        if (j < c.count) load_stage(s, j, l, c, last - j);
        copies_commit();
    }
    first_state(state, dfinal ? dfinal + (c.end - 1) * l.a.final_stride + head : NULL, l, columns);
    operands(after, state);
    scale(state, gammas[(int64_t)last * l.a.value_heads * CHUNK]);
    for (int i = last, stage = 0, next = STAGES - 1; i >= 0; i--) {
        const back_stage<GROUPS> *t = &s->stage[stage];
        const chain_factors *f = &s->factors[stage];
        const float gamma = i ? gammas[(int64_t)(i - 1) * l.a.value_heads * CHUNK] : 1; /* of the next chunk */
        copies_wait<STAGES - 2>();
        st_wgmma_tiles_written();
        __syncthreads(); /* the stage is whole, and the last chunk's is not read again */
        scaled_gradient(d, t->dout[group], column, f);
        st_wgmma_begin();
        multiply<ST_COLUMNS_ARE_K>(u, after, t->k, 0);
        mixed_gradient(x, t->dout[group], t->mix);
        multiply<ST_ROWS_ARE_K>(state, d, t->q, 1);
        if (i >= STAGES - 1) load_stage(s, next, l, c, i - (STAGES - 1));
        copies_commit();
        write_rows(staging, dstate + i * l.a.value_heads * size, l.a.value_dim, l.a.key_dim, columns, after);
        if (i < last)
            write_rows(staging, dv_at + (int64_t)(i + 1) * CHUNK * l.b.dstride, l.b.dstride, length_of(c, i + 1),
                       columns, ready);
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
        st_wgmma_wait<0>();
        st_wgmma_touch<128>(state);
        operands(after, state);
        scale(state, gamma);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    write_rows(staging, dv_at, l.b.dstride, length_of(c, 0), columns, ready);
    if (l.b.dinitial)
        write_rows(staging, (bf16 *)l.b.dinitial + c.begin * l.a.initial_stride + head, l.a.value_dim, l.a.key_dim,
                   columns, after);
#endif
}

template <int GROUPS> static int run(const st_queue *q, const rule_launch *l)
{
    const int wide = GROUPS * VALUES;
    const dim3 grid((unsigned)l->a.row.n_segments, (unsigned)l->a.value_heads,
                    (unsigned)((l->a.value_dim + wide - 1) / wide));
    return rule_start(q, "gdn_rule_chain_bwd", chain_bwd<GROUPS>, grid, 128 * GROUPS, sizeof(back_shared<GROUPS>), *l);
}
int gdn_rule_chain_bwd_wgmma(const st_queue *q, const rule_launch *l)
{
    return run<2>(q, l); /* heads are wider than one group takes: backward_of() */
}
