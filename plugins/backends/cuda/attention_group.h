/* SPDX-License-Identifier: Apache-2.0 */
/* attention_group.h - what attention's backward kernels on Hopper share. A block is three warpgroups: the first brings
 * rows to shared memory, the others multiply. They wait for each other at named barriers between two warpgroups, where one side
 * arrives and goes on. */
#ifndef CUDA_ATTENTION_GROUP_H
#define CUDA_ATTENTION_GROUP_H
#include "attention_tile.h"
#include <strata/cuda_wgmma.h>

enum { GROUP = 128, GROUP_THREADS = 3 * GROUP, GROUP_COLS = 256, GROUP_TILE = 64 };
enum { BRINGING_REGISTERS = 40, MULTIPLYING_REGISTERS = 232 }; /* a thread; together those of a block with 168 */

DEVICE void group_wait(int barrier) { asm volatile("bar.sync %0, 256;" ::"r"(barrier) : "memory"); }
DEVICE void group_arrive(int barrier) { asm volatile("bar.arrive %0, 256;" ::"r"(barrier) : "memory"); }
template <int N> DEVICE void group_fewer_registers(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> DEVICE void group_more_registers(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* Columns of a tile for heads of COLS: whole panels. */
template <int COLS> struct group_row {
    static constexpr int length = (COLS + 63) / 64 * 64;
};

/* Rows [first, first + ROWS) of one head into a tile, by a warpgroup; rows outside [low, high) are 0, and so are columns
 * beyond the head in the last 16 that products read. */
template <int ROWS, int COLS>
DEVICE void group_load(st_bf16 *tile, const cuda_view &v, int head, int64_t first, int64_t low, int64_t high)
{
    constexpr int LANES = group_row<COLS>::length / 8, STEP = GROUP / LANES;
    int thread = threadIdx.x % GROUP, col = thread % LANES * 8, row = thread / LANES;
    const st_bf16 *base = (const st_bf16 *)v.data + head * v.s_head, *from = base + col + (first + row) * v.s_row;
    bool inside = COLS == GROUP_COLS || col < v.cols;
    if (col >= (COLS + 15) / 16 * 16) return;
#pragma unroll 4
    for (int i = 0; i < ROWS / STEP; i++, row += STEP, from += STEP * v.s_row) {
        bool real = inside && first + row >= low && first + row < high;
        st_copy16(tile + st_tile_at(ROWS, row, col), real ? from : base, real ? 16 : 0);
    }
}

#if ST_CUDA_HAS_WGMMA
/* c = rows of left times rows of right, over all columns; left has ROWS rows, and 64 from `row` on take part. */
template <int ROWS, int COLS>
DEVICE void group_scores(float (&c)[8][4], const st_bf16 *left, int row, const st_bf16 *right)
{
#pragma unroll
    for (int s = 0; s < (COLS + 15) / 16; s++)
        st_wgmma<ST_COLUMNS_ARE_K, ST_COLUMNS_ARE_K>(c, st_wgmma_tile<ST_COLUMNS_ARE_K>(left, ROWS, row, s),
                                                     st_wgmma_tile<ST_COLUMNS_ARE_K>(right, GROUP_TILE, 0, s), s > 0);
}
/* sum += left times rows */
template <int COLS> DEVICE void group_add(float (&sum)[COLS / 8][4], const uint32_t (&left)[4][4], const st_bf16 *rows)
{
#pragma unroll
    for (int s = 0; s < 4; s++)
        st_wgmma<ST_ROWS_ARE_K>(sum, left[s], st_wgmma_tile<ST_ROWS_ARE_K>(rows, GROUP_TILE, 0, s), 1);
}
/* 64 rows from `row` on, of which this thread holds two. */
template <int COLS>
DEVICE void group_store(const cuda_view &v, const float (&sum)[COLS / 8][4], int64_t row, int head, float factor)
{
    if (!v.data) return;
    int lane = threadIdx.x & 31;
    row += threadIdx.x % GROUP / 32 * 16 + lane / 4;
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            attn_store(v, row + 8 * r, head, n * 8 + (lane & 3) * 2, factor * sum[n][2 * r],
                       factor * sum[n][2 * r + 1]);
}
#endif

extern "C" {
int cuda_attention_group_fits(const cuda_attn *); /* heads of GROUP_COLS */
int cuda_attention_narrow_fits(const cuda_attn *);
int cuda_attention_group_dq(const st_queue *, const cuda_attn *);
int cuda_attention_group_dkv(const st_queue *, const cuda_attn *);
int cuda_attention_narrow_dq(const st_queue *, const cuda_attn *);
int cuda_attention_narrow_dkv(const st_queue *, const cuda_attn *);
}
#endif
