/* SPDX-License-Identifier: Apache-2.0 */
/* encoders/qwen35_vision/units_cuda.cu - the encoder's own kernels on the device: patches, the learned position table,
 * rotary tables. Angles, taps and normalised values are computed in double, as on the CPU. */
#include <cuda_runtime.h>
#include <strata/cuda.h>
#include "kernels_cuda.h"

enum { THREADS = 256, TAPS = 4 };
#define DEVICE static __device__ __forceinline__

/* Where a unit lies: row and column in patches, and its number in the item. NULL: it belongs to no item. */
struct place { int32_t row, col; int64_t local; };
DEVICE const int32_t *find_place(const vision_batch &b, const vision_geometry &g, int64_t unit, place &p)
{
    const int32_t of = b.unit_item[unit];
    if (of < 0) return NULL;
    const int32_t *item = b.items + (int64_t)ITEM_INTS * of;
    const int32_t blocks_across = item[ITEM_COLS] / g.merge;
    p.local = unit - item[ITEM_UNIT];
    const int32_t in_frame = (int32_t)(p.local % (item[ITEM_ROWS] * item[ITEM_COLS]));
    const int32_t block = in_frame / (g.merge * g.merge), in_block = in_frame % (g.merge * g.merge);
    p.row = block / blocks_across * g.merge + in_block / g.merge;
    p.col = block % blocks_across * g.merge + in_block % g.merge;
    return item;
}
/* The two table lines around place i of n, the grid's corners lying on the table's, and the weight of the second. */
DEVICE void line_pair(int32_t i, int32_t n, int32_t side, int32_t line[2], double &second)
{
    const double at = (double)i * (side - 1) / (n > 1 ? n - 1 : 1);
    line[0] = (int32_t)floor(at);
    line[1] = line[0] + 1 < side ? line[0] + 1 : side - 1;
    second = at - line[0];
}
DEVICE void find_taps(const int32_t *item, const place &p, int32_t side, int64_t index[TAPS], float weight[TAPS])
{
    int32_t rows[2], cols[2];
    double fr, fc;
    line_pair(p.row, item[ITEM_ROWS], side, rows, fr);
    line_pair(p.col, item[ITEM_COLS], side, cols, fc);
#pragma unroll
    for (int k = 0; k < TAPS; k++) {
        index[k] = (int64_t)rows[k / 2] * side + cols[k % 2];
        weight[k] = (float)((k / 2 ? fr : 1 - fr) * (k % 2 ? fc : 1 - fc));
    }
}

/* ---- patches: a block per unit ---- */

template <typename T> static __global__ void __launch_bounds__(THREADS) patchify(const vision_patchify a)
{
    const int plane = a.g.patch * a.g.patch, frames = a.g.temporal * plane, values = CHANNELS * frames;
    const int64_t unit = blockIdx.x;
    T *out = (T *)a.out + unit * values;
    place p;
    const int32_t *item = find_place(a.batch, a.g, unit, p);
    const uint8_t *payload = item ? a.batch.payload + (int64_t)item[ITEM_BLOCK] * PAYLOAD_ALIGN : NULL;
    for (int i = threadIdx.x; i < values; i += THREADS) {
        double v = 0;
        if (item && item[ITEM_VALUES]) v = ((const double *)payload)[p.local * values + i];
        else if (item) { /* a still picture stands for all its frames */
            const int c = i / frames, y = i % plane / a.g.patch, x = i % a.g.patch;
            const int64_t line = (int64_t)item[ITEM_COLS] * a.g.patch * CHANNELS;
            const int64_t row = (int64_t)p.row * a.g.patch + y, column = (int64_t)p.col * a.g.patch + x;
            const int64_t at = row * line + column * CHANNELS + c;
            const double mean = c == 0 ? a.mean[0] : c == 1 ? a.mean[1] : a.mean[2];
            const double deviation = c == 0 ? a.std[0] : c == 1 ? a.std[1] : a.std[2];
            v = (payload[at] / 255.0 - mean) / deviation;
        }
        st_from_f32(out + i, (float)v);
    }
}
int vision_cuda_patchify(const st_queue *q, const struct vision_patchify *a)
{
    const unsigned blocks = (unsigned)a->batch.units;
    if (a->dtype == ST_BF16) patchify<st_bf16><<<blocks, THREADS, 0, st_cuda_stream(q)>>>(*a);
    else if (a->dtype == ST_F32) patchify<float><<<blocks, THREADS, 0, st_cuda_stream(q)>>>(*a);
    else return ST_E_UNSUPPORTED;
    return st_cuda_launched(q, "vision_patchify");
}

/* ---- positions ---- */

template <typename T> static __global__ void __launch_bounds__(THREADS) position(const vision_position a)
{
    const int64_t unit = blockIdx.x;
    const T *table = (const T *)a.table;
    T *x = (T *)a.x + unit * a.width;
    int64_t index[TAPS];
    float weight[TAPS];
    place p;
    const int32_t *item = find_place(a.batch, a.g, unit, p);
    if (!item) return;
    find_taps(item, p, a.g.side, index, weight);
    for (int64_t i = threadIdx.x; i < a.width; i += THREADS) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < TAPS; k++) sum += weight[k] * st_to_f32(table[index[k] * a.width + i]);
        st_from_f32(x + i, st_to_f32(x[i]) + sum);
    }
}
/* A block has one row of the table and some of its columns; it looks at all units in turn and adds those that took from
 * the row, in their order. */
template <typename T> static __global__ void __launch_bounds__(THREADS) position_bwd(const vision_position a)
{
    __shared__ int units[THREADS], of_warp[THREADS / 32];
    __shared__ float weights[THREADS];
    const int64_t row = blockIdx.x, column = (int64_t)blockIdx.y * THREADS + threadIdx.x;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float sum = 0;
    for (int64_t begin = 0; begin < a.batch.units; begin += THREADS) {
        const int64_t unit = begin + threadIdx.x;
        float share = 0;
        int mine = 0;
        place p;
        const int32_t *item = unit < a.batch.units ? find_place(a.batch, a.g, unit, p) : NULL;
        if (item) {
            int64_t index[TAPS];
            float weight[TAPS];
            find_taps(item, p, a.g.side, index, weight);
#pragma unroll
            for (int k = 0; k < TAPS; k++)
                if (index[k] == row) {
                    share += weight[k];
                    mine = 1;
                }
        }
        const unsigned found = __ballot_sync(0xffffffffu, mine);
        if (lane == 0) of_warp[warp] = __popc(found);
        __syncthreads();
        int before = 0, all = 0;
        for (int w = 0; w < THREADS / 32; w++) {
            if (w < warp) before += of_warp[w];
            all += of_warp[w];
        }
        if (mine) {
            const int at = before + __popc(found & ((1u << lane) - 1));
            units[at] = (int)unit;
            weights[at] = share;
        }
        __syncthreads();
        if (column < a.width)
            for (int i = 0; i < all; i++) sum += weights[i] * st_to_f32(((const T *)a.dx)[units[i] * a.width + column]);
        __syncthreads();
    }
    if (column < a.width) ((float *)a.d_table)[row * a.width + column] += sum;
}
int vision_cuda_position(const st_queue *q, const struct vision_position *a)
{
    const unsigned blocks = (unsigned)a->batch.units;
    if (a->dtype == ST_BF16) position<st_bf16><<<blocks, THREADS, 0, st_cuda_stream(q)>>>(*a);
    else if (a->dtype == ST_F32) position<float><<<blocks, THREADS, 0, st_cuda_stream(q)>>>(*a);
    else return ST_E_UNSUPPORTED;
    return st_cuda_launched(q, "vision_position");
}
int vision_cuda_position_bwd(const st_queue *q, const struct vision_position *a)
{
    const dim3 grid((unsigned)(a->g.side * a->g.side), (unsigned)((a->width + THREADS - 1) / THREADS));
    if (a->acc_dtype != ST_F32) return ST_E_UNSUPPORTED;
    if (a->dtype == ST_BF16) position_bwd<st_bf16><<<grid, THREADS, 0, st_cuda_stream(q)>>>(*a);
    else if (a->dtype == ST_F32) position_bwd<float><<<grid, THREADS, 0, st_cuda_stream(q)>>>(*a);
    else return ST_E_UNSUPPORTED;
    return st_cuda_launched(q, "vision_position_bwd");
}

static __global__ void __launch_bounds__(THREADS) rotary(const vision_rotary a)
{
    const int half = a.head_dim / 2, per_axis = a.head_dim / 4;
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, unit = at / half;
    const int i = (int)(at % half);
    place p = {0, 0, 0};
    double c, s;
    if (unit >= a.batch.units) return;
    find_place(a.batch, a.g, unit, p);
    const double angle = exp(-log(a.base) * (i % per_axis) / per_axis) * (i < per_axis ? p.row : p.col);
    sincospi(angle * 0.31830988618379067154, &s, &c); /* of angle / pi: sincos itself would need local memory */
    ((float *)a.cos)[at] = (float)c;
    ((float *)a.sin)[at] = (float)s;
}
int vision_cuda_rotary(const st_queue *q, const struct vision_rotary *a)
{
    const int64_t n = a->batch.units * (a->head_dim / 2);
    if (a->acc_dtype != ST_F32) return ST_E_UNSUPPORTED;
    rotary<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, "vision_rotary");
}
