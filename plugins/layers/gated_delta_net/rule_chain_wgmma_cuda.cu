/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_chain_wgmma_cuda.cu - forward along a segment on Hopper: a block has one value head and a warpgroup
 * for every 64 of its value columns. All is transposed: S^T (value columns, keys) stays in f32 in registers, and so does
 * everything made from it, because results of a product are the next one's operand. Shared memory holds only what is
 * read from memory: tiles of K, Q, V, A, P, two chunks ahead. */
#include "rule_cuda.h"

enum { KEYS = 128, VALUES = 64, STAGES = 3 };
enum { STAGED = 32, RIGHT = 8 * STAGED + 32 /* where write_rows() puts the right half: on other banks */ };

template <int GROUPS> struct chain_stage {
    bf16 k[CHUNK * KEYS], q[CHUNK * KEYS], v[GROUPS][CHUNK * VALUES], solve[MATRIX], mix[MATRIX];
};
struct chain_factors {
    float decay[CHUNK], rest[CHUNK], k_scale[CHUNK], q_scale[CHUNK];
};
template <int GROUPS> struct chain_shared {
    chain_stage<GROUPS> stage[STAGES];
    chain_factors factors[STAGES];
    bf16 rows[4 * GROUPS][2 * RIGHT];
    int tiles[2];
};
/* The block's head and first column, the columns left from there, its segment's tiles and tokens. */
struct chain_place {
    int head, key_head, column, columns, first, count;
    int64_t begin, end;
};

#if ST_CUDA_HAS_WGMMA
DEVICE int length_of(const chain_place &c, int i) /* of chunk i */
{
    const int64_t left = c.end - c.begin - (int64_t)i * CHUNK;
    return left < CHUNK ? (int)left : CHUNK;
}
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

/* A warp's 16 rows of a transposed result, as operands, to the 16 columns of memory from `to` on. */
template <int STEPS>
DEVICE void write_rows(bf16 *staging, bf16 *to, int64_t stride, int rows, int columns, const uint32_t (&r)[STEPS][4])
{
    const int lane = lane_of(), matrix = lane / 8, row = lane / 2, column = lane % 2 * 8;
    bf16 *mine = staging + matrix % 2 * RIGHT + (matrix / 2 * 8 + lane % 8) * 8;
    const bf16 *from = staging + lane % 2 * RIGHT + row * 8;
    to += row * stride + column;
#pragma unroll
    for (int s = 0; s < STEPS; s += 2) {
        __syncwarp();
        store_four_transposed(mine, r[s]);
        store_four_transposed(mine + 16 * 8, r[s + 1]);
        __syncwarp();
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (row + 16 * (s + h) < rows && column < columns)
                *(uint4 *)(to + 16 * (s + h) * stride) = *(const uint4 *)(from + 16 * h * 8);
    }
}
template <int STEPS, int N> DEVICE void operands(uint32_t (&a)[STEPS][4], const float (&c)[N][4])
{
#pragma unroll
    for (int s = 0; s < STEPS; s++) st_wgmma_operand(a[s], c[2 * s], c[2 * s + 1]);
}
/* c = a b, or c += a b */
template <int LAYOUT, int STEPS, int N>
DEVICE void multiply(float (&c)[N][4], const uint32_t (&a)[STEPS][4], const bf16 *tile, int sum)
{
#pragma unroll
    for (int s = 0; s < STEPS; s++) st_wgmma<LAYOUT>(c, a[s], st_wgmma_tile<LAYOUT>(tile, CHUNK, 0, s), s || sum);
    st_wgmma_commit();
}
/* Of 64 factors of columns, the product of two for the columns of fragment n. */
DEVICE float2 factors_at(const float *a, const float *b, int n)
{
    const float2 x = get2(a + 8 * n + fragment_column()), y = get2(b + 8 * n + fragment_column());
    return make_float2(x.x * y.x, x.y * y.y);
}
template <int N> DEVICE void scale_columns(float (&c)[N][4], const float *a, const float *b)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        const float2 f = factors_at(a, b, n);
        c[n][0] *= f.x;
        c[n][1] *= f.y;
        c[n][2] *= f.x;
        c[n][3] *= f.y;
    }
}
template <int N> DEVICE void scale(float (&c)[N][4], float factor)
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++) c[i / 4][i % 4] *= factor;
}
/* W^T = V^T - e k_scale U^T as an operand; `values` at the warp's first column. */
DEVICE void written_values(uint32_t (&w)[4][4], float (&u)[8][4], const bf16 *values, int column,
                           const chain_factors *f)
{
    const int lane = lane_of(), matrix = lane / 8;
    scale_columns(u, f->decay, f->k_scale);
#pragma unroll
    for (int s = 0; s < 4; s++) {
        uint32_t v[4];
        load_four_transposed(v,
                             values + st_tile_at(CHUNK, 16 * s + matrix / 2 * 8 + lane % 8, column + matrix % 2 * 8));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float *old = &u[2 * s + i / 2][i % 2 * 2];
            old[0] = __uint_as_float(v[i] << 16) - old[0];
            old[1] = __uint_as_float(v[i] & 0xffff0000u) - old[1];
        }
        st_wgmma_operand(w[s], u[2 * s], u[2 * s + 1]);
    }
}
/* The state that a segment begins with. */
DEVICE void first_state(float (&state)[16][4], const rule_launch &l, const chain_place &c, int column)
{
    const bf16 *from = (const bf16 *)l.a.initial;
    if (from) from += c.begin * l.a.initial_stride + (int64_t)c.head * l.a.key_dim * l.a.value_dim + c.column;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        const int key = i / 4 * 8 + fragment_column() + i % 2, value = column + fragment_row(i % 4);
        const int there = from && key < l.a.key_dim && value < c.columns;
        state[i / 4][i % 4] = there ? st_to_f32(from[(int64_t)key * l.a.value_dim + value]) : 0;
    }
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
    chain_place c = {(int)blockIdx.y, (int)blockIdx.y / (l.a.value_heads / l.a.key_heads),
                     (int)blockIdx.z * VALUES * GROUPS, l.a.value_dim - (int)blockIdx.z * VALUES * GROUPS};
    find_tiles<128 * GROUPS>(l.a.row, blockIdx.x, s->tiles, c.first, c.count);
    if (!c.count) return;
    const chunk_place last = place_of(l.a.row, c.first + c.count - 1);
    c.begin = place_of(l.a.row, c.first).begin;
    c.end = last.begin + last.length;
    const int64_t size = (int64_t)l.a.key_dim * l.a.value_dim;
    bf16 *const states =
        (bf16 *)l.a.states + ((int64_t)c.first * l.a.value_heads + c.head) * size + c.column + from_block;
    bf16 *const out_at =
        (bf16 *)l.a.out + c.begin * l.a.out_stride + (int64_t)c.head * l.a.value_dim + c.column + from_block;
    const int columns = c.columns - from_block, chunks = WITH_OUT || l.a.final ? c.count : c.count - 1;
    const float *gammas = l.decay + ((int64_t)c.first * l.a.value_heads + c.head) * CHUNK + CHUNK - 1;

    float state[16][4], u[8][4], x[8][4], out[8][4];
    uint32_t before[8][4], w[4][4], ready[4][4]; /* S^T, operands in turn, O^T of the last chunk */
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < chunks) load_stage<GROUPS, WITH_OUT>(s, i, l, c, i);
        copies_commit();
    }
    first_state(state, l, c, from_block);
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
