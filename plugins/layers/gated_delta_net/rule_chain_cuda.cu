/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_chain_cuda.cu - forward along a segment: a block has one value head and VALUES of its columns
 * and walks the segment's chunks. The state stays in f32 in registers; shared memory holds its copy as an operand. */
#include "chain_cuda.h"

/* What one chunk brings. The room of q takes X and r X once q was used. */
template <typename T, int DK> struct chain_stage {
    static const int wide = CHUNK * padded_row<T>(DK), square = CHUNK * padded_row<T>(VALUES);
    T k[wide], q[wide > 2 * square ? wide : 2 * square], v[square];
    float decay[CHUNK], rest[CHUNK], k_scale[CHUNK], q_scale[CHUNK];
};
template <typename T, int DK> struct chain_shared {
    chain_stage<T, DK> stage[2];
    T state[DK * padded_row<T>(VALUES)];
    int tiles[2];
};
template <typename T, int DK>
DEVICE void load_stage(chain_stage<T, DK> *s, const rule_launch &l, const chain_place &c, int64_t tile)
{
    const chunk_place p = place_of(l.a.row, tile);
    const int64_t keys = p.begin * l.a.stride + (int64_t)c.key_head * l.a.key_dim;
    const int64_t values = p.begin * l.a.stride + (int64_t)c.head * l.a.value_dim + c.column;
    const int64_t at = (tile * l.a.value_heads + c.head) * CHUNK, key_at = (tile * l.a.key_heads + c.key_head) * CHUNK;
    load_tile<THREADS, CHUNK, DK>(s->k, (const T *)l.a.k + keys, l.a.stride, p.length, l.a.key_dim, l.fast.qk);
    if (l.a.out)
        load_tile<THREADS, CHUNK, DK>(s->q, (const T *)l.a.q + keys, l.a.stride, p.length, l.a.key_dim, l.fast.qk);
    load_tile<THREADS, CHUNK, VALUES>(s->v, (const T *)l.a.v + values, l.a.stride, p.length, c.columns, l.fast.v);
    load_floats(s->decay, l.decay + at, CHUNK, 0);
    load_floats(s->rest, l.rest + at, CHUNK, 16);
    load_floats(s->k_scale, l.k_scale + key_at, CHUNK, 32);
    load_floats(s->q_scale, l.q_scale + key_at, CHUNK, 48);
    st_copies_commit();
}

/* v becomes V - e K S; out the first part of O. Every thread rewrites what it alone has read. */
template <typename T, int DK>
DEVICE void chunk_values(chain_stage<T, DK> *s, const T *state, int row, int column, int with_out,
                         fragments<1, 4> &out)
{
    const int ld = padded_row<T>(DK), ldv = padded_row<T>(VALUES);
    fragments<1, 4> seen;
    clear(seen);
    clear(out);
    multiply<ROWS_ARE_M, ROWS_ARE_K>(seen, s->k + row * ld, ld, state + column, ldv, DK);
    scale_rows(seen, s->decay + row, s->k_scale + row, -1.0f);
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            T *v = s->v + (row + fragment_row(i)) * ldv + column + 8 * n + fragment_column();
            const float2 old = get2(v);
            put2(v, old.x + seen.v[0][n][i], old.y + seen.v[0][n][i + 1]);
        }
    if (!with_out) return;
    multiply<ROWS_ARE_M, ROWS_ARE_K>(out, s->q + row * ld, ld, state + column, ldv, DK);
    scale_rows(out, s->decay + row, s->q_scale + row, 1.0f);
}

template <typename T, int DK>
DEVICE void chain_chunk(chain_shared<T, DK> *s, chain_stage<T, DK> *now, const rule_launch &l, const chain_place &c,
                        int64_t tile, int more, fragments<1, state_part<DK>::columns / 8> &state)
{
    const int row = warp_of() % 4 * 16, column = warp_of() / 4 * 32, with_out = l.a.out != NULL;
    const int ld = padded_row<T>(DK), ldv = padded_row<T>(VALUES);
    const int64_t at = tile * l.a.value_heads + c.head;
    T *x_at = now->q, *rest_at = now->q + CHUNK * ldv;
    fragments<1, 4> out, x;
    chunk_values(now, s->state, row, column, with_out, out);
    __syncthreads(); /* V - e K S is whole; q and the old state are not read again */

    clear(x);
    multiply<ROWS_ANYWHERE, ROWS_ARE_K>(x, (const T *)l.solve + at * MATRIX + row * CHUNK, CHUNK, now->v + column, ldv,
                                        row + 16);
    store_fragments(x, x_at + row * ldv + column, ldv);
    scale_rows(x, now->rest + row, now->k_scale + row, 1.0f);
    store_fragments(x, rest_at + row * ldv + column, ldv);
    __syncthreads(); /* X is whole */

    if (with_out) {
        multiply<ROWS_ANYWHERE, ROWS_ARE_K>(out, (const T *)l.mix + at * MATRIX + row * CHUNK, CHUNK, x_at + column,
                                            ldv, row + 16);
        const chunk_place p = place_of(l.a.row, tile);
        const int64_t to = (p.begin + row) * l.a.out_stride + (int64_t)c.head * l.a.value_dim + c.column + column;
        write_fragments(out, (T *)l.a.out + to, l.a.out_stride, p.length - row, c.columns - column, l.fast.out);
    }
    if (!more) return;
    const float gamma = now->decay[CHUNK - 1];
    const int state_row = state_part<DK>::row(), state_column = state_part<DK>::column();
#pragma unroll
    for (int n = 0; n < state_part<DK>::columns / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) state.v[0][n][i] *= gamma;
    multiply<ROWS_ARE_K, ROWS_ARE_K>(state, now->k + state_row, ld, rest_at + state_column, ldv, CHUNK);
    store_fragments(state, s->state + state_row * ldv + state_column, ldv);
}

template <typename T, int DK>
static __global__ void __launch_bounds__(THREADS, sizeof(T) == 2 ? 2 : 1) chain(const rule_launch l)
{
    extern __shared__ __align__(128) unsigned char shared[];
    chain_shared<T, DK> *s = (chain_shared<T, DK> *)shared;
    const chain_place c = chain_place_of(l);
    int first, count;
    find_tiles<THREADS>(l.a.row, blockIdx.x, s->tiles, first, count);
    if (!count) return;
    const int64_t begin = place_of(l.a.row, first).begin;
    fragments<1, state_part<DK>::columns / 8> state;
    const T *from = (const T *)l.a.initial;
    if (from) from += begin * l.a.initial_stride + state_at(l, c, 0);
    first_state<T, DK>(s->state, from, l, c, l.fast.initial, state);
    load_stage(&s->stage[0], l, c, first);
    for (int i = 0; i < count; i++) {
        const int last = i + 1 == count;
        st_copies_wait<0>();
        __syncthreads(); /* the stage and the state's copy are whole; the other stage is not read again */
        if (i && l.a.states)
            store_tile<THREADS, VALUES>((T *)l.a.states + state_at(l, c, first + i), l.a.value_dim, s->state,
                                        l.a.key_dim, c.columns, l.fast.states);
        if (last && !l.a.out && !l.a.final) return;
        if (!last) load_stage(&s->stage[(i + 1) % 2], l, c, first + i + 1);
        chain_chunk(s, &s->stage[i % 2], l, c, first + i, !last || l.a.final, state);
    }
    if (!l.a.final) return;
    const chunk_place p = place_of(l.a.row, first + count - 1);
    last_state<T, DK>((T *)l.a.final + (p.begin + p.length - 1) * l.a.final_stride + state_at(l, c, 0), l, c,
                      l.fast.final, state);
}

template <typename T, int DK> static int run(const st_queue *q, const rule_launch *l)
{
    const dim3 grid((unsigned)l->a.row.n_segments, (unsigned)l->a.value_heads,
                    (unsigned)((l->a.value_dim + VALUES - 1) / VALUES));
    return rule_start(q, "gdn_rule_chain", chain<T, DK>, grid, THREADS, sizeof(chain_shared<T, DK>), *l);
}
int gdn_rule_chain(const st_queue *q, const rule_launch *l)
{
    return l->fast.wgmma ? gdn_rule_chain_wgmma(q, l) : RULE_BY_TYPE(run, q, l);
}
