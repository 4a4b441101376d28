/* SPDX-License-Identifier: Apache-2.0 */
/* attention_tile.h - tiles of bf16 rows in shared memory, and products of 16 rows a warp with them on the tensor cores.
 * A tile's rows are D + 8 long: the eight rows that a load of matrices reads then lie in different banks. */
#ifndef CUDA_ATTENTION_TILE_H
#define CUDA_ATTENTION_TILE_H
#include "attention.h"
#include "mma.h"

template <int D> struct tile { static const int ld = D + 8; };

/* Rows [first, first + n) of a head into a tile of R rows; zeros behind them and behind the head's columns. */
template <int D, int R, int THREADS>
DEVICE void load_tile(st_bf16 *to, const cuda_view &v, int64_t head, int64_t first, int64_t n)
{
    const st_bf16 *from = (const st_bf16 *)v.data + first * v.s_row + head * v.s_head;
#pragma unroll 4
    for (int e = threadIdx.x; e < R * (D / 8); e += THREADS) {
        int row = e / (D / 8), col = e % (D / 8) * 8;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (row < n && col < v.cols) x = *(const uint4 *)(from + row * v.s_row + col);
        *(uint4 *)(to + row * tile<D>::ld + col) = x;
    }
}

/* sum[j] (16 rows x columns 8 j ...) = a b^T: a's 16 rows against the N rows of b, over D. */
template <int D, int N> DEVICE void rows_by_rows(float (*sum)[4], const st_bf16 *a, const st_bf16 *b)
{
    int lane = threadIdx.x % CUDA_WARP, matrix = lane / 8, r = lane % 8;
    const st_bf16 *a_at = a + (matrix % 2 * 8 + r) * tile<D>::ld + matrix / 2 * 8;
    const st_bf16 *b_at = b + (matrix / 2 * 8 + r) * tile<D>::ld + matrix % 2 * 8;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) sum[j][i] = 0;
#pragma unroll 4
    for (int k = 0; k < D; k += 16) {
        uint32_t left[4], right[4];
        load_matrices(left, a_at + k);
#pragma unroll
        for (int j = 0; j < N / 16; j++) {
            load_matrices(right, b_at + j * 16 * tile<D>::ld + k);
            mma(sum[2 * j], left, right[0], right[1]);
            mma(sum[2 * j + 1], left, right[2], right[3]);
        }
    }
}

/* sum (16 rows x D) += p b: p, 16 rows x N from registers as rows_by_rows left it, rounded to bf16; b has N rows. */
template <int D, int N> DEVICE void add_product(float (*sum)[4], const float (*p)[4], const st_bf16 *b)
{
    int lane = threadIdx.x % CUDA_WARP, matrix = lane / 8, r = lane % 8;
    const st_bf16 *b_at = b + (matrix % 2 * 8 + r) * tile<D>::ld + matrix / 2 * 8;
#pragma unroll
    for (int j = 0; j < N / 16; j++) {
        const float *low = p[2 * j], *high = p[2 * j + 1];
        uint32_t left[4] = {st_bf16_pair(low[0], low[1]), st_bf16_pair(low[2], low[3]), st_bf16_pair(high[0], high[1]),
                            st_bf16_pair(high[2], high[3])};
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            uint32_t right[4];
            load_matrices_transposed(right, b_at + j * 16 * tile<D>::ld + c * 16);
            mma(sum[2 * c], left, right[0], right[1]);
            mma(sum[2 * c + 1], left, right[2], right[3]);
        }
    }
}

/* The 16 rows of a warp, times a factor for rows g and g + 8. */
template <int D>
DEVICE void store_tile(const cuda_view &v, int64_t head, int64_t row, const float (*x)[4], float low, float high)
{
    int lane = threadIdx.x % CUDA_WARP, g = lane / 4, t = lane % 4;
    if (!v.data) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t at = row + g + half * 8;
        float factor = half ? high : low;
        st_bf16 *to = (st_bf16 *)v.data + at * v.s_row + head * v.s_head;
        if (at >= v.rows) continue;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            if (j * 8 < v.cols)
                *(uint32_t *)(to + j * 8 + 2 * t) = st_bf16_pair(x[j][2 * half] * factor, x[j][2 * half + 1] * factor);
    }
}
#endif
