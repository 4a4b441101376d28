/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/chain_wgmma_cuda.h - what the walks along a segment share on Hopper. A block has one value head and a
 * warpgroup for every 64 of its value columns. All is transposed: the state, or its gradient, (value columns, keys) stays
 * in f32 in registers, and so does everything made from it, because results of a product are the next one's operand. */
#ifndef GDN_CHAIN_WGMMA_CUDA_H
#define GDN_CHAIN_WGMMA_CUDA_H
#include "rule_cuda.h"
#include "tile_cuda.h"
#include <strata/cuda_bulk.h>

enum { KEYS = 128, VALUES = 64, STAGES = 3, GROUP = 128 /* threads */ };

/* What a chunk brings; values: V, backward dO. Once it is read by all, the next chunk's results take its place on their
 * way to memory: a group's state (KEYS, VALUES) that of K or Q, its rows that of its values. */
template <int GROUPS> struct chain_stage {
    bf16 k[CHUNK * KEYS], q[CHUNK * KEYS], values[GROUPS][CHUNK * VALUES], solve[MATRIX], mix[MATRIX];
};
struct chain_factors {
    float decay[CHUNK], rest[CHUNK], k_scale[CHUNK], q_scale[CHUNK];
};
template <int GROUPS> struct chain_shared {
    chain_stage<GROUPS> stage[STAGES];
    chain_factors factors[STAGES];
    uint64_t full[STAGES];
    int tiles[2];
};
/* Tensors as boxes of a chunk's rows, of a square, of a state. The last two are written: a state before a chunk (backward:
 * its gradient after one), and rows like those of values. */
struct chain_maps {
    CUtensorMap k, q, values, solve, mix, states, rows;
};
/* The block's head and first column, the columns left from there, its segment's tiles and tokens. */
struct chain_place {
    int head, key_head, column, columns, first, count;
    int64_t begin, end;
};
template <int GROUPS> DEVICE chain_place chain_place_of(const rule_launch &l, int tiles[2])
{
    const int column = (int)blockIdx.z * VALUES * GROUPS;
    chain_place c = {(int)blockIdx.y, (int)blockIdx.y / (l.a.value_heads / l.a.key_heads), column,
                     l.a.value_dim - column};
    find_tiles<128 * GROUPS>(l.a.row, blockIdx.x, tiles, c.first, c.count);
    if (!c.count) return c;
    const chunk_place last = place_of(l.a.row, c.first + c.count - 1);
    c.begin = place_of(l.a.row, c.first).begin;
    c.end = last.begin + last.length;
    return c;
}
DEVICE int length_of(const chain_place &c, int i) /* of chunk i */
{
    const int64_t left = c.end - c.begin - (int64_t)i * CHUNK;
    return left < CHUNK ? (int)left : CHUNK;
}

#if ST_CUDA_HAS_WGMMA
/* Which thread asks the copy engine for its group. */
DEVICE int is_leader() { return threadIdx.x % GROUP == 0; }
DEVICE void group_meets(int group)
{
    if (group) asm volatile("bar.sync 2, %0;" ::"n"((int)GROUP) : "memory");
    else asm volatile("bar.sync 1, %0;" ::"n"((int)GROUP) : "memory");
}
template <int GROUPS> DEVICE void chain_begin(chain_shared<GROUPS> *s)
{
    if (threadIdx.x) return;
    for (int i = 0; i < STAGES; i++) st_barrier_begin(&s->full[i], GROUPS);
    st_barriers_begun();
}
/* Starts to load a group's part of chunk i, of which it has to have read the results that were there. */
template <int GROUPS, int WITH_OUT>
DEVICE void load_stage(chain_shared<GROUPS> *s, int to, const chain_maps &m, const rule_launch &l, const chain_place &c,
                       int i, int group)
{
    chain_stage<GROUPS> *t = &s->stage[to];
    chain_factors *f = &s->factors[to];
    uint64_t *full = &s->full[to];
    const int token = (int)c.begin + i * CHUNK, at = (c.first + i) * l.a.value_heads + c.head;
    const int64_t key_at = (int64_t)(c.first + i) * l.a.key_heads + c.key_head, floats = (int64_t)at * CHUNK;
    const int with_keys = group == 0, with_queries = WITH_OUT && group == GROUPS - 1, each = sizeof f->decay;
    const int keys = sizeof t->k + sizeof t->solve + 3 * each, queries = sizeof t->q + sizeof t->mix + each;
    st_barrier_expect(full, (int)sizeof t->values[0] + (with_keys ? keys : 0) + (with_queries ? queries : 0));
    if (with_keys) {
        st_bulk_load_box(t->k, &m.k, 0, c.key_head, token, full);
        st_bulk_load_box(t->k + CHUNK * 64, &m.k, 64, c.key_head, token, full);
    }
    if (with_queries) {
        st_bulk_load_box(t->q, &m.q, 0, c.key_head, token, full);
        st_bulk_load_box(t->q + CHUNK * 64, &m.q, 64, c.key_head, token, full);
    }
    st_bulk_load_box(t->values[group], &m.values, c.column + group * VALUES, c.head, token, full);
    if (with_keys) {
        st_bulk_load_box(t->solve, &m.solve, 0, 0, at, full);
        st_bulk_load(f->decay, l.decay + floats, each, full);
        st_bulk_load(f->rest, l.rest + floats, each, full);
        st_bulk_load(f->k_scale, l.k_scale + key_at * CHUNK, each, full);
    }
    if (with_queries) {
        st_bulk_load_box(t->mix, &m.mix, 0, 0, at, full);
        st_bulk_load(f->q_scale, l.q_scale + key_at * CHUNK, each, full);
    }
}
/* Zeros in place of another segment's rows behind the last chunk's. */
template <int GROUPS> DEVICE void clear_behind(chain_stage<GROUPS> *t, int length)
{
    const int pieces = (CHUNK - length) * 8, all = pieces * (4 + GROUPS);
#pragma unroll 1
    for (int i = threadIdx.x; i < all; i += GROUP * GROUPS)
        *(uint4 *)(t->k + i / pieces * (CHUNK * 64) + length * 64 + i % pieces * 8) = make_uint4(0, 0, 0, 0);
    st_wgmma_tiles_written();
}

/* A warp's 16 rows of a transposed result, as operands, to the columns from `column` on of a tile of 16 STEPS rows. */
template <int STEPS> DEVICE void put_rows(bf16 *tile, int column, const uint32_t (&r)[STEPS][4])
{
    const int lane = lane_of(), matrix = lane / 8;
    tile += st_tile_at(16 * STEPS, matrix / 2 * 8 + lane % 8, column + matrix % 2 * 8);
#pragma unroll
    for (int s = 0; s < STEPS; s++) st_store_matrices_transposed(tile + 16 * s * 64, r[s]);
}
/* A group's tile of 64 columns to memory, of which there are `rows` and `columns`. */
DEVICE void take_rows(bf16 *to, int64_t stride, const bf16 *tile, int rows, int columns)
{
    const int row = threadIdx.x % GROUP / 8, column = threadIdx.x % 8 * 8;
    if (column >= columns) return;
    to += row * stride + column;
    tile += st_tile_at(0, row, column);
    for (int r = row; r < rows; r += GROUP / 8, to += GROUP / 8 * stride, tile += GROUP / 8 * 64)
        *(uint4 *)to = *(const uint4 *)tile;
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
/* W^T = V^T - e k_scale U^T as an operand; `values` is V's tile, `column` the warp's first one there. */
DEVICE void written_values(uint32_t (&w)[4][4], float (&u)[8][4], const bf16 *values, int column,
                           const chain_factors *f)
{
    const int lane = lane_of(), matrix = lane / 8;
    scale_columns(u, f->decay, f->k_scale);
#pragma unroll
    for (int s = 0; s < 4; s++) {
        uint32_t v[4];
        st_load_matrices_transposed(v,
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
/* A state of memory (NULL: zeros), at the warp's first of `columns` value columns. */
DEVICE void first_state(float (&state)[16][4], const bf16 *from, const rule_launch &l, int columns)
{
#pragma unroll
    for (int i = 0; i < 64; i++) {
        const int key = i / 4 * 8 + fragment_column() + i % 2, value = fragment_row(i % 4);
        const int there = from && key < l.a.key_dim && value < columns;
        state[i / 4][i % 4] = there ? st_to_f32(from[(int64_t)key * l.a.value_dim + value]) : 0;
    }
}
#endif

/* rows: of what is written beside the states, (tokens, value_heads, value_dim) as `values` are. */
static inline int chain_maps_of(const st_queue *q, const char *name, chain_maps *m, const rule_launch *l,
                                const void *values, int64_t value_stride, const void *states, const void *rows,
                                int64_t row_stride)
{
    const gdn_rule *a = &l->a;
    const int64_t tokens = a->row.tokens, squares = a->row.n_tiles * a->value_heads;
    const st_bulk_tensor keys = {a->k, tokens, a->key_heads, a->key_dim, a->stride, a->key_dim, CHUNK, 1};
    const st_bulk_tensor square = {l->solve, squares, CHUNK, CHUNK, MATRIX, CHUNK, 1, CHUNK};
    const int64_t size = (int64_t)a->key_dim * a->value_dim;
    const st_bulk_tensor state = {states, squares, a->key_dim, a->value_dim, size, a->value_dim, 1, KEYS};
    st_bulk_tensor queries = keys, mix = square;
    st_bulk_tensor chunk = {values, tokens, a->value_heads, a->value_dim, value_stride, a->value_dim, CHUNK, 1};
    queries.at = a->q;
    mix.at = l->mix;
    ST_TRY(st_bulk_map(q, name, &m->k, keys));
    ST_TRY(st_bulk_map(q, name, &m->q, queries));
    ST_TRY(st_bulk_map(q, name, &m->values, chunk));
    ST_TRY(st_bulk_map(q, name, &m->solve, square));
    ST_TRY(st_bulk_map(q, name, &m->mix, mix));
    if (states) ST_TRY(st_bulk_map(q, name, &m->states, state));
    chunk.at = rows;
    chunk.outer_stride = row_stride;
    if (rows) ST_TRY(st_bulk_map(q, name, &m->rows, chunk));
    return ST_OK;
}
template <int GROUPS>
static inline int chain_start(const st_queue *q, const char *name, void (*kernel)(const rule_launch, const chain_maps),
                              const rule_launch *l, const chain_maps &m)
{
    const int wide = GROUPS * VALUES;
    const dim3 grid((unsigned)l->a.row.n_segments, (unsigned)l->a.value_heads,
                    (unsigned)((l->a.value_dim + wide - 1) / wide));
    ST_CUDA_SHARED(kernel, sizeof(chain_shared<GROUPS>));
    kernel<<<grid, GROUP * GROUPS, sizeof(chain_shared<GROUPS>), st_cuda_stream(q)>>>(*l, m);
    return st_cuda_launched(q, name);
}
#endif
