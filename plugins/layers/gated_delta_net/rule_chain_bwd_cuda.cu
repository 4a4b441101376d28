/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_chain_bwd_cuda.cu - backward along a segment, from its last chunk to its first: dV, and the
 * gradient of the state after every chunk, which the local step needs. */
#include "chain_cuda.h"

/* K and dO of the next chunk arrive while this one is worked on; Q is needed last and has one room. dO becomes e Q's
 * factor times dO once P^T dO was taken. */
template <typename T, int DK> struct back_stage {
    T k[CHUNK * padded_row<T>(DK)], dout[CHUNK * padded_row<T>(VALUES)];
    float decay[CHUNK], rest[CHUNK], k_scale[CHUNK], q_scale[CHUNK];
};
template <typename T, int DK> struct back_shared {
    back_stage<T, DK> stage[2];
    T q[CHUNK * padded_row<T>(DK)], dstate[DK * padded_row<T>(VALUES)];
    T dx[CHUNK * padded_row<T>(VALUES)], dv[CHUNK * padded_row<T>(VALUES)];
    int tiles[2];
};

template <typename T, int DK>
DEVICE void load_stage(back_stage<T, DK> *s, const rule_launch &l, const chain_place &c, int64_t tile)
{
    const chunk_place p = place_of(l.a.row, tile);
    const int64_t keys = p.begin * l.a.stride + (int64_t)c.key_head * l.a.key_dim;
    const int64_t values = p.begin * l.a.out_stride + (int64_t)c.head * l.a.value_dim + c.column;
    const int64_t at = (tile * l.a.value_heads + c.head) * CHUNK, key_at = (tile * l.a.key_heads + c.key_head) * CHUNK;
    load_tile<THREADS, CHUNK, DK>(s->k, (const T *)l.a.k + keys, l.a.stride, p.length, l.a.key_dim, l.fast.qk);
    load_tile<THREADS, CHUNK, VALUES>(s->dout, (const T *)l.b.dout + values, l.a.out_stride, p.length, c.columns,
                                      l.fast.dout);
    load_floats(s->decay, l.decay + at, CHUNK, 0);
    load_floats(s->rest, l.rest + at, CHUNK, 16);
    load_floats(s->k_scale, l.k_scale + key_at, CHUNK, 32);
    load_floats(s->q_scale, l.q_scale + key_at, CHUNK, 48);
    st_copies_commit();
}
template <typename T, int DK>
DEVICE void load_queries(T *to, const rule_launch &l, const chain_place &c, const chunk_place &p)
{
    load_tile<THREADS, CHUNK, DK>(to, (const T *)l.a.q + p.begin * l.a.stride + (int64_t)c.key_head * l.a.key_dim,
                                  l.a.stride, p.length, l.a.key_dim, l.fast.qk);
    st_copies_commit();
}

/* dX and dV of 16 rows and 32 columns; dV goes to memory and, times -e and the keys' factor, into shared memory. */
template <typename T, int DK>
DEVICE void chunk_values(back_shared<T, DK> *s, back_stage<T, DK> *now, const rule_launch &l, const chain_place &c,
                         int64_t at, const chunk_place &p)
{
    const int row = warp_of() % 4 * 16, column = warp_of() / 4 * 32;
    const int ld = padded_row<T>(DK), ldv = padded_row<T>(VALUES);
    const T *mix = (const T *)l.mix + at * MATRIX + row * CHUNK;
    const T *solve = (const T *)l.solve + at * MATRIX + row * CHUNK;
    fragments<1, 4> x, v;
    clear(x);
    multiply<ROWS_ARE_M, ROWS_ARE_K>(x, now->k + row * ld, ld, s->dstate + column, ldv, DK);
    scale_rows(x, now->rest + row, now->k_scale + row, 1.0f);
    /* rows of P^T and A^T begin at the diagonal */
    multiply<ROWS_ANYWHERE, ROWS_ARE_K>(x, mix + row, CHUNK, now->dout + row * ldv + column, ldv, CHUNK - row);
    store_fragments(x, s->dx + row * ldv + column, ldv);
    __syncthreads(); /* dX is whole; dO and the old gradient of the state are not read again */

    clear(v);
    multiply<ROWS_ANYWHERE, ROWS_ARE_K>(v, solve + row, CHUNK, s->dx + row * ldv + column, ldv, CHUNK - row);
    const int64_t to = (p.begin + row) * l.b.dstride + (int64_t)c.head * l.a.value_dim + c.column + column;
    write_fragments(v, (T *)l.b.dv + to, l.b.dstride, p.length - row, c.columns - column, l.fast.dv);
    scale_rows(v, now->decay + row, now->k_scale + row, -1.0f);
    store_fragments(v, s->dv + row * ldv + column, ldv);
}
/* dO times e and the queries' factor, in place. */
template <typename T, int DK> DEVICE void scale_dout(back_stage<T, DK> *now)
{
    for (int i = threadIdx.x; i < CHUNK * VALUES / 2; i += THREADS) {
        const int r = i / (VALUES / 2);
        T *at = now->dout + r * padded_row<T>(VALUES) + i % (VALUES / 2) * 2;
        const float scale = now->decay[r] * now->q_scale[r];
        const float2 old = get2(at);
        put2(at, old.x * scale, old.y * scale);
    }
}
template <typename T, int DK>
DEVICE void chunk_state(back_shared<T, DK> *s, back_stage<T, DK> *now,
                        fragments<1, state_part<DK>::columns / 8> &dstate)
{
    const int row = state_part<DK>::row(), column = state_part<DK>::column();
    const int ld = padded_row<T>(DK), ldv = padded_row<T>(VALUES);
    const float gamma = now->decay[CHUNK - 1];
#pragma unroll
    for (int n = 0; n < state_part<DK>::columns / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) dstate.v[0][n][i] *= gamma;
    multiply<ROWS_ARE_K, ROWS_ARE_K>(dstate, s->q + row, ld, now->dout + column, ldv, CHUNK);
    multiply<ROWS_ARE_K, ROWS_ARE_K>(dstate, now->k + row, ld, s->dv + column, ldv, CHUNK);
    store_fragments(dstate, s->dstate + row * ldv + column, ldv);
}

template <typename T, int DK>
static __global__ void __launch_bounds__(THREADS, sizeof(T) == 2 ? 2 : 1) chain_bwd(const rule_launch l)
{
    extern __shared__ __align__(128) unsigned char shared[];
    back_shared<T, DK> *s = (back_shared<T, DK> *)shared;
    const chain_place c = chain_place_of(l);
    int first, count;
    find_tiles<THREADS>(l.a.row, blockIdx.x, s->tiles, first, count);
    if (!count) return;
    const chunk_place end = place_of(l.a.row, first + count - 1);
    const T *from = (const T *)l.b.dfinal;
    if (from) from += (end.begin + end.length - 1) * l.a.final_stride + state_at(l, c, 0);
    fragments<1, state_part<DK>::columns / 8> dstate;
    first_state<T, DK>(s->dstate, from, l, c, l.fast.dfinal, dstate);
    load_stage(&s->stage[(count - 1) % 2], l, c, first + count - 1);
    for (int i = count - 1; i >= 0; i--) {
        back_stage<T, DK> *now = &s->stage[i % 2];
        const int64_t tile = first + i;
        const chunk_place p = place_of(l.a.row, tile);
        st_copies_wait<0>();
        __syncthreads(); /* the stage and the gradient's copy are whole; q and the other stage are not read again */
        if (i || l.b.dinitial) load_queries<T, DK>(s->q, l, c, p);
        if (i) load_stage(&s->stage[(i - 1) % 2], l, c, tile - 1);
        else st_copies_commit(); /* so that one group is always behind the queries */
        store_tile<THREADS, VALUES>((T *)l.dstate + state_at(l, c, tile), l.a.value_dim, s->dstate, l.a.key_dim,
                                    c.columns, l.a.value_dim % pack<T>::n == 0);
        chunk_values(s, now, l, c, tile * l.a.value_heads + c.head, p);
        if (!i && !l.b.dinitial) return;
        scale_dout<T, DK>(now);
        st_copies_wait<1>();
        __syncthreads(); /* dV, the scaled dO and the queries are whole */
        chunk_state(s, now, dstate);
    }
    last_state<T, DK>((T *)l.b.dinitial + place_of(l.a.row, first).begin * l.a.initial_stride + state_at(l, c, 0), l, c,
                      l.fast.dinitial, dstate);
}

template <typename T, int DK> static int run(const st_queue *q, const rule_launch *l)
{
    const dim3 grid((unsigned)l->a.row.n_segments, (unsigned)l->a.value_heads,
                    (unsigned)((l->a.value_dim + VALUES - 1) / VALUES));
    return rule_start(q, "gdn_rule_chain_bwd", chain_bwd<T, DK>, grid, THREADS, sizeof(back_shared<T, DK>), *l);
}
int gdn_rule_chain_bwd(const st_queue *q, const rule_launch *l)
{
    return l->fast.wgmma ? gdn_rule_chain_bwd_wgmma(q, l) : RULE_BY_TYPE(run, q, l);
}
