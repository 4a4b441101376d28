/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/chain_wgmma_cuda.h - what the walks along a segment share on Hopper. A block has one value head and a
 * warpgroup for every 64 of its value columns. All is transposed: the state, or its gradient, (value columns, keys) stays
 * in f32 in registers, and so does everything made from it, because results of a product are the next one's operand. */
#ifndef GDN_CHAIN_WGMMA_CUDA_H
#define GDN_CHAIN_WGMMA_CUDA_H
#include "rule_cuda.h"

enum { KEYS = 128, VALUES = 64 };
enum { STAGED = 32, RIGHT = 8 * STAGED + 32 /* where write_rows() puts the right half: on other banks */ };

struct chain_factors {
    float decay[CHUNK], rest[CHUNK], k_scale[CHUNK], q_scale[CHUNK];
};
/* The block's head and first column, the columns left from there, its segment's tiles and tokens. */
struct chain_place {
    int head, key_head, column, columns, first, count;
    int64_t begin, end;
};
template <int GROUPS> DEVICE chain_place chain_place_of(const rule_launch &l, int tiles[2])
{
    const int column = (int)blockIdx.z * VALUES * GROUPS;
    chain_place c = {(int)blockIdx.y, (int)blockIdx.y / (l.a.value_heads / l.a.key_heads), column, l.a.value_dim - column};
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
/* W^T = V^T - e k_scale U^T as an operand; `values` is V's tile, `column` the warp's first one there. */
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
#endif
