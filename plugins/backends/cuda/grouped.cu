/* SPDX-License-Identifier: Apache-2.0 */
/* grouped.cu - products of groups of rows, whose borders only the device knows. A block makes one tile of 64 x 64; the grid is
 * that of the worst case, and blocks without a tile return. */
#include "mma.h"

enum { TILE = 64, DEPTH = 32, THREADS = 128 };

/* Both operands lie as [64][DEPTH] in shared memory, with room between the rows against conflicts of banks. */
template <typename T> struct tile_row { static const int ld = sizeof(T) == 2 ? DEPTH + 8 : DEPTH + 1; };

/* Element (i, k) is at from[i * s_i + k * s_k]; one of the strides is 1, and neighbours along it go to neighbouring threads. */
template <typename T> DEVICE void load_tile(T *tile, const T *from, int64_t s_i, int64_t s_k, int64_t rows, int64_t depth)
{
    for (int e = threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        int i = s_k == 1 ? e / DEPTH : e % TILE, k = s_k == 1 ? e % DEPTH : e / TILE;
        T x = {0};
        if (i < rows && k < depth) x = from[i * s_i + k * s_k];
        tile[i * tile_row<T>::ld + k] = x;
    }
}

/* The same for bf16 whose runs of 8 are aligned, along whichever is contiguous. */
DEVICE void load_tile_wide(st_bf16 *tile, const st_bf16 *from, int64_t s_i, int64_t s_k, int64_t rows, int64_t depth)
{
    const int ld = tile_row<st_bf16>::ld;
    for (int e = threadIdx.x; e < TILE * DEPTH / 8; e += THREADS) {
        if (s_k == 1) {
            int i = e / (DEPTH / 8), k = e % (DEPTH / 8) * 8;
            uint4 x = make_uint4(0, 0, 0, 0);
            if (i < rows && k < depth) x = *(const uint4 *)(from + i * s_i + k);
            *(uint4 *)(tile + i * ld + k) = x;
        } else {
            int i = e % (TILE / 8) * 8, k = e / (TILE / 8);
            union { uint4 all; st_bf16 one[8]; } x;
            x.all = make_uint4(0, 0, 0, 0);
            if (i < rows && k < depth) x.all = *(const uint4 *)(from + i + k * s_k);
#pragma unroll
            for (int j = 0; j < 8; j++) tile[(i + j) * ld + k] = x.one[j];
        }
    }
}

/* A warp makes 32 x 32 of the tile: 2 x 4 products of the tensor core, or 4 x 8 elements a thread. */
DEVICE void multiply(const st_bf16 *a, const st_bf16 *b, float (*sum)[4][4])
{
    const int ld = tile_row<st_bf16>::ld, g = threadIdx.x % CUDA_WARP / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
        uint32_t left[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                left[i][r] = *(const uint32_t *)(a + (i * 16 + g + r % 2 * 8) * ld + k + 2 * t + r / 2 * 8);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t b0 = *(const uint32_t *)(b + (j * 8 + g) * ld + k + 2 * t);
            uint32_t b1 = *(const uint32_t *)(b + (j * 8 + g) * ld + k + 2 * t + 8);
            mma(sum[0][j], left[0], b0, b1);
            mma(sum[1][j], left[1], b0, b1);
        }
    }
}
/* The same places of the result as the tensor core: sum[i][j][r] is at row 16 i + g + 8 (r / 2), column 8 j + 2 t + r % 2. */
DEVICE void multiply(const float *a, const float *b, float (*sum)[4][4])
{
    const int ld = tile_row<float>::ld, g = threadIdx.x % CUDA_WARP / 4, t = threadIdx.x % 4;
    for (int k = 0; k < DEPTH; k++) {
        float left[2][2], right[4][2];
#pragma unroll
        for (int i = 0; i < 4; i++) left[i / 2][i % 2] = a[(i / 2 * 16 + g + i % 2 * 8) * ld + k];
#pragma unroll
        for (int j = 0; j < 8; j++) right[j / 2][j % 2] = b[(j / 2 * 8 + 2 * t + j % 2) * ld + k];
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int r = 0; r < 4; r++) sum[i][j][r] += left[i][r / 2] * right[j][r % 2];
    }
}

typedef struct group_tile { int64_t group, first, rows; } group_tile; /* rows 0: none */

/* Rows of group e, 0 where its borders make no sense. */
DEVICE int64_t group_rows(const cuda_grouped &g, int64_t e, st_cuda_faults faults)
{
    int64_t from = g.offset[e], to = g.offset[e + 1];
    if (from >= 0 && to >= from && to <= g.rows) return to - from;
    st_cuda_fault(faults, ST_FAULT_RANGE, to, g.rows);
    return 0;
}

/* Tile `tile` of the list that runs through all groups; each warp finds it for itself. */
DEVICE group_tile find_tile(const cuda_grouped &g, int64_t tile, st_cuda_faults faults)
{
    int lane = threadIdx.x % CUDA_WARP;
    for (int64_t first = 0, before = 0; first < g.groups; first += CUDA_WARP) {
        int64_t e = first + lane, rows = e < g.groups ? group_rows(g, e, faults) : 0;
        int64_t tiles = (rows + TILE - 1) / TILE, upto = tiles;
        for (int step = 1; step < CUDA_WARP; step *= 2) {
            int64_t other = __shfl_up_sync(0xffffffffu, upto, step);
            if (lane >= step) upto += other;
        }
        uint32_t behind = __ballot_sync(0xffffffffu, before + upto > tile);
        if (behind) {
            int owner = __ffs((int)behind) - 1;
            int64_t inside = tile - before - __shfl_sync(0xffffffffu, upto - tiles, owner);
            rows = __shfl_sync(0xffffffffu, rows, owner) - inside * TILE;
            group_tile found = {first + owner, g.offset[first + owner] + inside * TILE, rows < TILE ? rows : TILE};
            return found;
        }
        before += __shfl_sync(0xffffffffu, upto, CUDA_WARP - 1);
    }
    group_tile none = {0, 0, 0};
    return none;
}

template <typename T> DEVICE void load_either(T *tile, const T *from, int64_t s_i, int64_t s_k, int64_t rows,
                                              int64_t depth, bool wide)
{
    if (sizeof(T) == 2 && wide) load_tile_wide((st_bf16 *)tile, (const st_bf16 *)from, s_i, s_k, rows, depth);
    else load_tile(tile, from, s_i, s_k, rows, depth);
}

/* wide: bit 0 for a, bit 1 for b */
template <typename T> KERNEL(THREADS) grouped_kernel(const cuda_grouped g, int wide, st_cuda_faults faults)
{
    __shared__ __align__(16) T a_tile[TILE * tile_row<T>::ld];
    __shared__ __align__(16) T b_tile[TILE * tile_row<T>::ld];
    int64_t col = (int64_t)blockIdx.y * TILE, cols = g.n - col, rows, depth, s_ai, s_ak, s_bi, s_bk;
    const T *a, *b;
    char *c = (char *)g.c;
    int64_t size = g.type_c == ST_F32 ? 4 : 2;
    if (g.sum) { /* c_e = a^T b over the group's rows */
        int64_t tiles = (g.m + TILE - 1) / TILE, e = blockIdx.x / tiles, row = blockIdx.x % tiles * TILE;
        int64_t first = g.offset[e];
        depth = group_rows(g, e, faults);
        if (depth == 0) first = 0;
        rows = g.m - row;
        a = (const T *)g.a + first * g.lda + row;
        b = (const T *)g.b + first * g.ldb + col;
        s_ai = s_bi = 1;
        s_ak = g.lda;
        s_bk = g.ldb;
        c += (e * g.s_c + row * g.ldc + col) * size;
    } else {
        group_tile t = find_tile(g, blockIdx.x, faults);
        if (t.rows == 0) return;
        rows = t.rows;
        depth = g.k;
        a = (const T *)g.a + t.first * g.lda;
        b = (const T *)g.b + t.group * g.s_b + (g.trans_b ? col * g.ldb : col);
        s_ai = g.lda;
        s_ak = 1;
        s_bi = g.trans_b ? g.ldb : 1;
        s_bk = g.trans_b ? 1 : g.ldb;
        c += (t.first * g.ldc + col) * size;
    }
    int warp = threadIdx.x / CUDA_WARP, row0 = warp / 2 * 32, col0 = warp % 2 * 32;
    float sum[2][4][4] = {};
    for (int64_t k = 0; k < depth; k += DEPTH) {
        load_either(a_tile, a + k * s_ak, s_ai, s_ak, rows, depth - k, wide & 1);
        load_either(b_tile, b + k * s_bk, s_bi, s_bk, cols, depth - k, wide & 2);
        __syncthreads();
        multiply(a_tile + row0 * tile_row<T>::ld, b_tile + col0 * tile_row<T>::ld, sum);
        __syncthreads();
    }
    int lane_row = threadIdx.x % CUDA_WARP / 4, lane_col = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int r = 0; r < 4; r++) {
                int64_t y = row0 + i * 16 + lane_row + r / 2 * 8, x = col0 + j * 8 + lane_col + r % 2;
                if (y >= rows || x >= cols) continue;
                float old = g.sum && g.beta != 0.0f ? g.beta * get_real(c, g.type_c, y * g.ldc + x) : 0.0f;
                put_real(c, g.type_c, y * g.ldc + x, sum[i][j][r] + old);
            }
}

/* Runs of 8 along the contiguous dimension of n elements. */
static int wide_rows(const void *p, int64_t ld, int64_t entry, int64_t n)
{
    return (((uintptr_t)p | (uintptr_t)(ld * 2) | (uintptr_t)(entry * 2)) % 16 == 0 && n % 8 == 0);
}

extern "C" int cuda_run_grouped(const st_queue *q, const cuda_grouped *g)
{
    int64_t tiles = g->sum ? cuda_div_up(g->m, TILE) * g->groups : cuda_div_up(g->rows, TILE) + g->groups;
    dim3 grid((unsigned)tiles, (unsigned)cuda_div_up(g->n, TILE));
    int wide = wide_rows(g->a, g->lda, 0, g->sum ? g->m : g->k) |
               wide_rows(g->b, g->ldb, g->s_b, g->sum || !g->trans_b ? g->n : g->k) << 1;
    st_cuda_faults faults = st_cuda_faults_of(q);
    if (g->type == ST_BF16) grouped_kernel<st_bf16><<<grid, THREADS, 0, st_cuda_stream(q)>>>(*g, wide, faults);
    else grouped_kernel<float><<<grid, THREADS, 0, st_cuda_stream(q)>>>(*g, wide, faults);
    return st_cuda_launched(q, "grouped");
}
