/* SPDX-License-Identifier: Apache-2.0 */
/* wgmma_products.cu - see wgmma_products.h. */
#include "wgmma_products.h"
#include <cuda_runtime.h>
#include <strata/cuda_wgmma.h>

enum { THREADS = 256, STEPS = WGMMA_K / 16, AT_ONCE = 2 };

#if ST_CUDA_HAS_WGMMA
/* (rows, columns) of memory as a tile. */
static __device__ void fill(st_bf16 *tile, const st_bf16 *from, int rows, int columns)
{
    for (int i = threadIdx.x; i < rows * columns; i += THREADS)
        tile[st_tile_at(rows, i / columns, i % columns)] = from[i];
}
/* Two neighbours of row `row` of A, whichever way it lies. */
static __device__ void pair_of(float *to, const wgmma_product &p, int row, int k)
{
    const st_bf16 *a = (const st_bf16 *)p.a;
    for (int i = 0; i < 2; i++)
        to[i] = st_to_f32(p.a_layout == ST_COLUMNS_ARE_K ? a[row * WGMMA_K + k + i] : a[(k + i) * WGMMA_M + row]);
}
static __device__ void operand_of(uint32_t (&r)[4], const wgmma_product &p, int row, int step)
{
    float even[4], odd[4];
    const int k = 16 * step + threadIdx.x % 4 * 2;
    for (int half = 0; half < 2; half++) {
        pair_of(even + 2 * half, p, row + 8 * half, k);
        pair_of(odd + 2 * half, p, row + 8 * half, k + 8);
    }
    st_wgmma_operand(r, even, odd);
}
#endif

template <int N, int A, int B, int IN_REGISTERS>
static __global__ void __launch_bounds__(THREADS) product(const wgmma_product p)
{
#if ST_CUDA_HAS_WGMMA
    extern __shared__ __align__(ST_TILE_ALIGN) unsigned char shared[];
    const int a_rows = A == ST_COLUMNS_ARE_K ? WGMMA_M : WGMMA_K, wide = N + WGMMA_SPARE;
    const int b_rows = B == ST_COLUMNS_ARE_K ? wide : WGMMA_K, group = threadIdx.x / 128;
    const int row = 64 * group + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    st_bf16 *a = (st_bf16 *)shared, *b = a + WGMMA_M * WGMMA_K;
    float *const to = p.c + row * N + threadIdx.x % 4 * 2, c[N / 8][4];
    fill(a, (const st_bf16 *)p.a, a_rows, WGMMA_M * WGMMA_K / a_rows);
    fill(b, (const st_bf16 *)p.b, b_rows, wide * WGMMA_K / b_rows);
    st_wgmma_tiles_written();
    __syncthreads();

#pragma unroll
    for (int i = 0; i < N / 2; i++) c[i / 4][i % 4] = to[i % 4 / 2 * 8 * N + i / 4 * 8 + i % 2];
#pragma unroll
    for (int first = 0; first < STEPS; first += AT_ONCE) {
        uint32_t held[AT_ONCE][4];
        if (IN_REGISTERS)
            for (int s = 0; s < AT_ONCE; s++) operand_of(held[s], p, row, first + s);
        st_wgmma_begin();
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++) {
            const uint64_t right = st_wgmma_tile<B>(b, b_rows, p.first, first + s);
            if (IN_REGISTERS) st_wgmma<B>(c, held[s], right, 1);
            else st_wgmma<A, B>(c, st_wgmma_tile<A>(a, a_rows, 64 * group, first + s), right, 1);
        }
        st_wgmma_commit();
        if (IN_REGISTERS) st_wgmma_wait<0>(); /* before the next operands take these registers */
        else st_wgmma_wait<1>();
    }
    st_wgmma_wait<0>();
    st_wgmma_touch<N>(c);
#pragma unroll
    for (int i = 0; i < N / 2; i++) to[i % 4 / 2 * 8 * N + i / 4 * 8 + i % 2] = c[i / 4][i % 4];
#else
    (void)p;
#endif
}

template <int N, int A, int B, int IN_REGISTERS> static int start(const wgmma_product *p)
{
    const size_t wide = (N + WGMMA_SPARE + 63) / 64 * 64; /* whole panels */
    const size_t bytes = sizeof(st_bf16) * (WGMMA_M + wide) * WGMMA_K;
    ST_CUDA_SHARED((product<N, A, B, IN_REGISTERS>), bytes);
    product<N, A, B, IN_REGISTERS><<<1, THREADS, bytes>>>(*p);
    return cudaGetLastError();
}
/* A from registers lies in memory as a_layout says, but one kernel serves both. */
template <int N, int B> static int start_with(const wgmma_product *p)
{
    if (p->a_in_registers) return start<N, ST_COLUMNS_ARE_K, B, 1>(p);
    return p->a_layout == ST_COLUMNS_ARE_K ? start<N, ST_COLUMNS_ARE_K, B, 0>(p) : start<N, ST_ROWS_ARE_K, B, 0>(p);
}
template <int N> static int start_wide(const wgmma_product *p)
{
    return p->b_layout == ST_COLUMNS_ARE_K ? start_with<N, ST_COLUMNS_ARE_K>(p) : start_with<N, ST_ROWS_ARE_K>(p);
}
int wgmma_multiply(const wgmma_product *p)
{
    switch (p->n) {
    case 64: return start_wide<64>(p);
    case 72: return start_wide<72>(p);
    case 80: return start_wide<80>(p);
    case 128: return start_wide<128>(p);
    default: return start_wide<256>(p);
    }
}
const char *wgmma_missing(void)
{
    return st_cuda_has_wgmma() ? NULL : "built for " ST_CUDA_ARCHS "; the products of warpgroups need sm_90a and its device";
}
