/* SPDX-License-Identifier: Apache-2.0 */
/* attention_tile.h - what the tensor core kernels of attention share: the walk over spans, tiles of bf16 rows in shared
 * memory that arrive while others are used, and operands for products of 16 rows. */
#ifndef CUDA_ATTENTION_TILE_H
#define CUDA_ATTENTION_TILE_H
#include "attention.h"
#include <math_constants.h>
#include <strata/cuda_tile.h>

/* The head dimensions that templates are made for; others go up to the next one, with columns of zeros. */
#define ATTN_FOR_WIDTH(cols, CALL) \
    ((cols) <= 64 ? CALL(64) : (cols) <= 80 ? CALL(80) : (cols) <= 128 ? CALL(128) : CALL(256))

/* ---- the walk over spans ----
 * A block owns rows [low, high) of one side and walks the other side in steps: for each span that holds some of its
 * rows, for each head of the group, positions begin, begin + step ... below end, counted inside the span. All threads
 * of a block hold the same walk. */
typedef struct attn_walk {
    int span, q, q_n, k, k_n; /* the span */
    int begin, end, at;
    int head, head_first, head_end;
    bool live;
} attn_walk;

/* To the first position of the next span that has any. */
template <bool KEYS>
DEVICE void attn_next_span(attn_walk &w, const cuda_attn &a, st_cuda_faults faults, int low, int high)
{
    for (int64_t s = w.span + 1;; s++) {
        s = next_span(a, s, KEYS ? SIDE_K : SIDE_Q, low, high, faults);
        w.live = s < a.n_spans;
        if (!w.live) return;
        span x = span_at(a, s);
        w.span = (int)s;
        w.q = (int)x.q;
        w.q_n = (int)x.q_n;
        w.k = (int)x.k;
        w.k_n = (int)x.k_n;
        int skew = w.k_n - w.q_n; /* query i sees keys below skew + i + 1 */
        w.begin = 0;
        if (KEYS) {
            w.end = w.q_n;
            if (a.causal) w.begin = max(0, max(low, w.k) - w.k - skew);
        } else {
            w.end = a.causal ? min(w.k_n, skew + min(high, w.q + w.q_n) - w.q) : w.k_n;
        }
        w.at = w.begin;
        w.head = w.head_first;
        if (w.begin < w.end) return;
    }
}

template <bool KEYS>
DEVICE attn_walk attn_start(const cuda_attn &a, st_cuda_faults faults, int low, int high, int head, int heads)
{
    attn_walk w = {-1, 0, 0, 0, 0, 0, 0, 0, head, head, head + heads, false};
    attn_next_span<KEYS>(w, a, faults, low, high);
    return w;
}

template <bool KEYS>
DEVICE void attn_next(attn_walk &w, int step, const cuda_attn &a, st_cuda_faults faults, int low, int high)
{
    w.at += step;
    if (w.at < w.end) return;
    w.at = w.begin;
    if (++w.head < w.head_end) return;
    attn_next_span<KEYS>(w, a, faults, low, high);
}

/* Keys of the span that this row of q sees; 0 where the row is not the span's. */
DEVICE int attn_seen(const attn_walk &w, int causal, int row)
{
    int i = row - w.q;
    if (i < 0 || i >= w.q_n) return 0;
    return causal ? max(0, min(w.k_n, w.k_n - w.q_n + i + 1)) : w.k_n;
}

/* ---- tiles ---- */
/* A row of a tile is 8 elements longer than D: an odd number of 16-byte words, so that 8 rows lie in different banks. */
template <int D> struct attn_row { static constexpr int length = D + 8; };

/* Rows [first, first + ROWS) of one head into a tile; rows outside [low, high) and columns beyond the head are 0. */
template <int D, int ROWS, int THREADS>
DEVICE void attn_load(st_bf16 *tile, const cuda_view &v, int head, int64_t first, int64_t low, int64_t high)
{
    constexpr int WORDS = D / 8;
    const st_bf16 *base = (const st_bf16 *)v.data + head * v.s_head;
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * WORDS; i += THREADS) {
        int row = i / WORDS, col = i % WORDS * 8;
        bool real = first + row >= low && first + row < high && col < v.cols;
        st_copy16(tile + row * attn_row<D>::length + col, real ? base + (first + row) * v.s_row + col : base,
                    real ? 16 : 0);
    }
}

/* ---- operands ---- */
/* a: 16 rows, 16 columns of a tile stored (m, k). */
template <int LENGTH>
DEVICE void attn_left(uint32_t *a, const st_bf16 *tile, int row, int col)
{
    int lane = threadIdx.x & 31;
    st_load_matrices(a, tile + (row + (lane & 15)) * LENGTH + col + (lane >> 4) * 8);
}
/* b for 16 columns n (b[0..1]: the first 8) and 16 of k, of a tile stored (n, k). */
template <int LENGTH>
DEVICE void attn_right(uint32_t *b, const st_bf16 *tile, int n, int k)
{
    int lane = threadIdx.x & 31;
    st_load_matrices(b, tile + (n + (lane & 7) + (lane >> 4) * 8) * LENGTH + k + (lane >> 3 & 1) * 8);
}
/* The same of a tile stored (k, n). */
template <int LENGTH>
DEVICE void attn_right_turned(uint32_t *b, const st_bf16 *tile, int k, int n)
{
    int lane = threadIdx.x & 31;
    st_load_matrices_transposed(b, tile + (k + (lane & 15)) * LENGTH + n + (lane >> 4) * 8);
}

/* lse of a row and head */
DEVICE const float *attn_statistic(const cuda_view &v, int64_t row, int head)
{
    return (const float *)v.data + row * v.s_row + head * v.s_head;
}

/* lse and delta of this thread's row from `first` on, zeros from `end` on; a copy as st_copy4's. */
DEVICE void attn_load_statistics(float *lse, float *delta, const cuda_attn &a, int head, int64_t first, int64_t end)
{
    int64_t row = first + threadIdx.x < end ? first + threadIdx.x : end - 1;
    int bytes = first + threadIdx.x < end ? 4 : 0;
    st_copy4(lse + threadIdx.x, attn_statistic(a.lse, row, head), bytes);
    st_copy4(delta + threadIdx.x, a.delta + row * a.q.heads + head, bytes);
}

/* Columns col, col + 1 of a row of a head. */
DEVICE void attn_store(const cuda_view &v, int64_t row, int head, int col, float x, float y)
{
    if (row < v.rows && col < v.cols)
        *(uint32_t *)((st_bf16 *)v.data + row * v.s_row + head * v.s_head + col) = st_bf16_pair(x, y);
}
#endif
