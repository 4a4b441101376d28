/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/tile_cuda.h - what the rule's kernels are made of: tiles in shared memory and their products, written
 * once for bf16 (tensor cores, mma m16n8k16) and f32 (the same layout of results, plain multiply-add). Sums are f32.
 *
 * A warp holds results as m16n8 fragments: with g = lane / 4 and t = lane % 4, values 0, 1 lie in row g, values 2, 3 in
 * row g + 8, columns 2 t and 2 t + 1. Rows of shared tiles are padded by 16 bytes, which keeps loads of fragments free
 * of bank conflicts. */
#ifndef GDN_TILE_CUDA_H
#define GDN_TILE_CUDA_H
#include "kernels.h"
#include <cuda_runtime.h>
#include <strata/cuda_tile.h>
#include <strata/cuda_wgmma.h>

#define DEVICE static __device__ __forceinline__

typedef st_bf16 bf16;
/* Two neighbours, the first of which is aligned to both. */
DEVICE void put2(float *to, float x, float y) { *(float2 *)to = make_float2(x, y); }
DEVICE void put2(bf16 *to, float x, float y)
{
    *(uint32_t *)to = st_bf16_pair(x, y);
}
DEVICE float2 get2(const float *from) { return *(const float2 *)from; }
DEVICE float2 get2(const bf16 *from)
{
    const uint32_t both = *(const uint32_t *)from;
    return make_float2(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u));
}

/* ---- copies into shared memory ---- */

template <typename T> struct pack { static const int n = 16 / (int)sizeof(T); }; /* elements of a 16-byte access */
template <typename T> static __host__ __device__ constexpr int padded_row(int columns) { return columns + pack<T>::n; }

/* (rows, columns) of memory into a tile of (ROWS, COLUMNS), zeros around it. fast: addresses, stride and columns are
 * multiples of 16 bytes. What is fast has arrived after copies_wait and a barrier, the rest after the barrier. */
template <int THREADS, int ROWS, int COLUMNS, typename T>
DEVICE void load_tile(T *to, const T *from, int64_t stride, int rows, int columns, int fast)
{
    const int ld = padded_row<T>(COLUMNS), n = pack<T>::n;
    if (fast) {
#pragma unroll 1
        for (int i = threadIdx.x; i < ROWS * (COLUMNS / n); i += THREADS) {
            const int r = i / (COLUMNS / n), c = i % (COLUMNS / n) * n, there = r < rows && c < columns;
            st_copy16(to + r * ld + c, there ? from + r * stride + c : from, there ? 16 : 0);
        }
        return;
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * COLUMNS; i += THREADS) {
        const int r = i / COLUMNS, c = i % COLUMNS;
        st_from_f32(to + r * ld + c, r < rows && c < columns ? st_to_f32(from[r * stride + c]) : 0);
    }
}
/* The same of bf16 into a swizzled tile (see cuda_wgmma.h); addresses, stride and columns are multiples of 16 bytes. */
template <int THREADS, int ROWS, int COLUMNS>
DEVICE void load_swizzled(bf16 *to, const bf16 *from, int64_t stride, int rows, int columns)
{
    const int pieces = COLUMNS / 8, step = THREADS / pieces; /* a multiple of 8: rows so far apart are swizzled alike */
    const int first = threadIdx.x / pieces, c = threadIdx.x % pieces * 8;
    to += st_tile_at(ROWS, first, c);
    from += first * stride + c;
#pragma unroll
    for (int r = 0; r < ROWS; r += step) st_copy16(to + r * 64, from + r * stride, first + r < rows && c < columns ? 16 : 0);
}
/* The way back, without zeros. */
template <int THREADS, int COLUMNS, typename T>
DEVICE void store_tile(T *to, int64_t stride, const T *from, int rows, int columns, int fast)
{
    const int ld = padded_row<T>(COLUMNS), n = pack<T>::n;
    if (fast) {
        for (int i = threadIdx.x; i < rows * (COLUMNS / n); i += THREADS) {
            const int r = i / (COLUMNS / n), c = i % (COLUMNS / n) * n;
            if (c < columns) *(uint4 *)(to + r * stride + c) = *(const uint4 *)(from + r * ld + c);
        }
        return;
    }
    for (int i = threadIdx.x; i < rows * COLUMNS; i += THREADS) {
        const int r = i / COLUMNS, c = i % COLUMNS;
        if (c < columns) to[r * stride + c] = from[r * ld + c];
    }
}
/* `n` floats, a multiple of 4, by the first n / 4 of the threads from `first` on. */
DEVICE void load_floats(float *to, const float *from, int n, int first)
{
    const int i = (int)threadIdx.x - first;
    if (i >= 0 && i < n / 4) st_copy16(to + 4 * i, from + 4 * i, 16);
}

/* ---- fragments ---- */

DEVICE int lane_of() { return threadIdx.x & 31; }
DEVICE int warp_of() { return threadIdx.x >> 5; }
DEVICE int fragment_row(int value) { return lane_of() / 4 + (value >= 2 ? 8 : 0); }
DEVICE int fragment_column() { return lane_of() % 4 * 2; }

template <int M, int N> struct fragments { float v[M][N][4]; };
template <int M, int N> DEVICE void clear(fragments<M, N> &c)
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) c.v[i / (N * 4)][i / 4 % N][i % 4] = 0;
}
/* rows of c times scale[row] * scale2[row] * factor; both at c's first row */
template <int M, int N>
DEVICE void scale_rows(fragments<M, N> &c, const float *scale, const float *scale2, float factor)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const int row = 16 * m + fragment_row(i);
            const float s = scale[row] * scale2[row] * factor;
#pragma unroll
            for (int n = 0; n < N; n++) {
                c.v[m][n][i] *= s;
                c.v[m][n][i + 1] *= s;
            }
        }
}
/* Into a tile, or rows below `rows` and columns below `columns` of memory; `to` is at c's first row and column. */
template <int M, int N, typename T> DEVICE void store_fragments(const fragments<M, N> &c, T *to, int ld)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i += 2)
                put2(to + (16 * m + fragment_row(i)) * ld + 8 * n + fragment_column(), c.v[m][n][i], c.v[m][n][i + 1]);
}
template <int M, int N, typename T>
DEVICE void write_fragments(const fragments<M, N> &c, T *to, int64_t stride, int rows, int columns, int fast)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const int r = 16 * m + fragment_row(i), at = 8 * n + fragment_column();
                T *p = to + r * stride + at;
                if (r >= rows || at >= columns) continue;
                if (fast) {
                    put2(p, c.v[m][n][i], c.v[m][n][i + 1]);
                    continue;
                }
                st_from_f32(p, c.v[m][n][i]);
                if (at + 1 < columns) st_from_f32(p + 1, c.v[m][n][i + 1]);
            }
}

/* ---- products: c += a b over `depth` steps, a multiple of 16 ---- */

enum {
    ROWS_ARE_M,  /* a as (m, k) in shared memory                          */
    ROWS_ARE_K,  /* a transposed, as (k, m); b as (k, n)                  */
    ROWS_ARE_N,  /* b transposed, as (n, k)                               */
    ROWS_ANYWHERE /* a as (m, k), not in shared memory                    */
};

/* 16 x 16 of a at (m, k) as the four registers of an operand. Each lane names one row of 8 values: matrices 0, 1 are
 * rows m .. m + 7 and m + 8 .. m + 15 of columns k .. k + 7, matrices 2, 3 the same of k + 8 .. k + 15. */
template <int A> DEVICE void load_a(uint32_t r[4], const bf16 *a, int ld, int m, int k)
{
    const int lane = lane_of(), row = lane % 8, matrix = lane / 8;
    if (A == ROWS_ARE_M) st_load_matrices(r, a + (m + row + matrix % 2 * 8) * ld + k + matrix / 2 * 8);
    if (A == ROWS_ARE_K) st_load_matrices_transposed(r, a + (k + row + matrix / 2 * 8) * ld + m + matrix % 2 * 8);
    if (A == ROWS_ANYWHERE)
        for (int i = 0; i < 4; i++)
            r[i] = *(const uint32_t *)(a + (m + lane / 4 + i % 2 * 8) * ld + k + i / 2 * 8 + lane % 4 * 2);
}
/* 16 x 16 of b at (k, n): registers 0, 1 serve columns n .. n + 7, registers 2, 3 columns n + 8 .. n + 15. */
template <int B> DEVICE void load_b(uint32_t r[4], const bf16 *b, int ld, int k, int n)
{
    const int lane = lane_of(), row = lane % 8, matrix = lane / 8;
    if (B == ROWS_ARE_N) st_load_matrices(r, b + (n + row + matrix / 2 * 8) * ld + k + matrix % 2 * 8);
    else st_load_matrices_transposed(r, b + (k + row + matrix % 2 * 8) * ld + n + matrix / 2 * 8);
}
template <int A, int B, int M, int N>
DEVICE void multiply(fragments<M, N> &c, const bf16 *a, int lda, const bf16 *b, int ldb, int depth)
{
#pragma unroll 1
    for (int k = 0; k < depth; k += 16) {
        uint32_t fa[M][4], fb[N / 2][4];
#pragma unroll
        for (int m = 0; m < M; m++) load_a<A>(fa[m], a, lda, 16 * m, k);
#pragma unroll
        for (int n = 0; n < N / 2; n++) load_b<B>(fb[n], b, ldb, k, 16 * n);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < N; n++) st_mma(c.v[m][n], fa[m], fb[n / 2] + n % 2 * 2);
    }
}
template <int A, int B, int M, int N>
DEVICE void multiply(fragments<M, N> &c, const float *a, int lda, const float *b, int ldb, int depth)
{
#pragma unroll 1
    for (int k = 0; k < depth; k++) {
        float x[M][2], y[N][2];
#pragma unroll
        for (int i = 0; i < M * 2; i++) {
            const int row = i / 2 * 16 + fragment_row(i % 2 * 2);
            x[i / 2][i % 2] = A == ROWS_ARE_K ? a[k * lda + row] : a[row * lda + k];
        }
#pragma unroll
        for (int i = 0; i < N * 2; i++) {
            const int column = i / 2 * 8 + fragment_column() + i % 2;
            y[i / 2][i % 2] = B == ROWS_ARE_N ? b[column * ldb + k] : b[k * ldb + column];
        }
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) c.v[m][n][i] += x[m][i / 2] * y[n][i % 2];
    }
}
#endif
