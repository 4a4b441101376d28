/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_panel.c - products whose right side is small: it is packed once for all pieces, into panels of a register
 * tile's width, and the left side is read where it lies. A BLAS call packs both sides for itself and reads the result
 * back to add to it, which at a width of some hundred costs as much as a third of the product. */
#ifndef T
#include "cpu.h"
#include <string.h>
#if ST_CPU_LEVEL >= 4
enum { VECTOR_BYTES = 64, TILE_ROWS = 12 };
#elif ST_CPU_LEVEL >= 3
enum { VECTOR_BYTES = 32, TILE_ROWS = 6 };
#else
enum { VECTOR_BYTES = 16, TILE_ROWS = 6 };
#endif
enum { TILE_VECTORS = 2, DEPTH_BYTES = 1024 /* of a row of the left side that a tile walks at once */ };
#define KERNEL_FILE "kernel_panel.c"
#include "twice.h"
#else

typedef T FN(vector) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T)), may_alias));
enum {
    FN(LANES) = VECTOR_BYTES / sizeof(T),
    FN(WIDTH) = TILE_VECTORS * FN(LANES), /* of a panel */
    FN(DEPTH) = DEPTH_BYTES / sizeof(T),
    FN(RUN) = (TILE_ROWS + FN(LANES) - 1) / FN(LANES) * FN(LANES), /* vectors that cover a tile's rows */
    FN(BLOCK) = FN(DEPTH) * TILE_ROWS + FN(RUN)
};

/* Panel j of op(b) (k, n) is [k][WIDTH] at j * k * WIDTH of the workspace; columns behind n are 0. */
static void FN(pack_panel)(const cpu_product *p, int64_t panel)
{
    int64_t j = panel * FN(WIDTH), n = cpu_min(FN(WIDTH), p->n - j);
    const T *b = (const T *)p->b + (p->trans_b ? j * p->ldb : j);
    T *to = (T *)p->work + j * p->k;
    for (int64_t i = 0; i < p->k; i++, to += FN(WIDTH)) {
        if (p->trans_b)
            for (int64_t c = 0; c < n; c++) to[c] = b[c * p->ldb + i];
        else if (n == FN(WIDTH)) memcpy(to, b + i * p->ldb, FN(WIDTH) * sizeof(T));
        else memcpy(to, b + i * p->ldb, (size_t)n * sizeof(T));
        for (int64_t c = n; c < FN(WIDTH); c++) to[c] = 0;
    }
}

/* The panels of columns [begin, end); both are multiples of every panel's width, or n. */
void FN(pack_panels)(const cpu_product *p, int64_t begin, int64_t end)
{
    for (int64_t j = begin / FN(WIDTH); j * FN(WIDTH) < end; j++) FN(pack_panel)(p, j);
}

/* c [rows, cols] = alpha a panel + beta c over k terms; a[i, t] at i * a_row + t * a_col, rows of the panel ldp apart.
 * rows is a constant. */
static inline __attribute__((always_inline)) void FN(tile)(const int rows, int64_t k, const T *a, int64_t a_row,
                                                           int64_t a_col, const T *panel, int64_t ldp, T alpha,
                                                           T beta, T *c, int64_t ldc, int64_t cols)
{
    FN(vector) sum[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < TILE_VECTORS; v++) sum[i][v] = (FN(vector)){0};
    for (int64_t t = 0; t < k; t++, panel += ldp) {
        FN(vector) row[TILE_VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < TILE_VECTORS; v++) row[v] = *(const FN(vector) *)(panel + v * FN(LANES));
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            T x = a[i * a_row + t * a_col];
#pragma GCC unroll 2
            for (int v = 0; v < TILE_VECTORS; v++) sum[i][v] += x * row[v];
        }
    }
    T edge[TILE_ROWS][FN(WIDTH)];
    bool whole = cols == FN(WIDTH);
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < TILE_VECTORS; v++) {
            FN(vector) *to = (FN(vector) *)(whole ? c + i * ldc + v * FN(LANES) : edge[i] + v * FN(LANES));
            *to = whole && beta != 0 ? alpha * sum[i][v] + beta * *to : alpha * sum[i][v];
        }
    for (int i = 0; !whole && i < rows; i++)
        for (int64_t j = 0; j < cols; j++) c[i * ldc + j] = edge[i][j] + (beta != 0 ? beta * c[i * ldc + j] : 0);
}

typedef struct FN(left) { const T *a; int64_t row, col; } FN(left); /* element [i, t] at i * row + t * col */

/* All panels of columns [j, j_end) for some rows, terms [from, from + k) of each sum */
static inline __attribute__((always_inline)) void FN(tile_row)(const cpu_product *p, const int rows, FN(left) a,
                                                               int64_t from, int64_t k, T beta, T *c, int64_t ldc,
                                                               int64_t j, int64_t j_end)
{
    bool packed = p->panels == CPU_PANELS_PACKED;
    int64_t next = packed ? p->k : 1, ldp = packed ? FN(WIDTH) : p->ldb; /* from column to column; row to row */
    const T *panels = (const T *)(packed ? p->work : p->b) + from * ldp;
    for (; j < j_end; j += FN(WIDTH))
        FN(tile)(rows, k, a.a, a.row, a.col, panels + j * next, ldp, (T)p->alpha, beta, c + j, ldc,
                 cpu_min(FN(WIDTH), p->n - j));
}

static void FN(full_rows)(const cpu_product *p, FN(left) a, int64_t from, int64_t k, T beta, T *c, int64_t ldc,
                          int64_t j, int64_t j_end)
{
    FN(tile_row)(p, TILE_ROWS, a, from, k, beta, c, ldc, j, j_end);
}

/* As full_rows, from the copy that lies term by term */
static void FN(full_turned)(const cpu_product *p, const T *a, int64_t from, int64_t k, T beta, T *c, int64_t ldc,
                            int64_t j, int64_t j_end)
{
    FN(tile_row)(p, TILE_ROWS, (FN(left)){a, 1, TILE_ROWS}, from, k, beta, c, ldc, j, j_end);
}

static void FN(last_rows)(const cpu_product *p, int64_t rows, FN(left) a, int64_t from, int64_t k, T beta, T *c,
                          int64_t ldc, int64_t j, int64_t j_end)
{
    for (; rows >= 4; rows -= 4, a.a += 4 * a.row, c += 4 * ldc) FN(tile_row)(p, 4, a, from, k, beta, c, ldc, j, j_end);
    for (; rows > 0; rows--, a.a += a.row, c += ldc) FN(tile_row)(p, 1, a, from, k, beta, c, ldc, j, j_end);
}

/* to: per TILE_ROWS columns of the left side a block [k][TILE_ROWS], so that a tile reads it in one run. Where the row
 * goes on, whole vectors are copied: what they write too much is overwritten by the next row, or is the block's end. */
static void FN(turn)(const T *a, int64_t lda, int64_t k, int64_t rows, int64_t row_end, T *to)
{
    for (int64_t t = 0; t < k; t++, a += lda) {
        T *at = to + t * TILE_ROWS;
        for (int64_t i = 0; i < rows; i += TILE_ROWS, at += FN(BLOCK)) {
            if (i + FN(RUN) > row_end) {
                memcpy(at, a + i, (size_t)cpu_min(TILE_ROWS, rows - i) * sizeof(T));
                continue;
            }
            __builtin_prefetch(a + i + 8 * lda);
#pragma GCC unroll 4
            for (int v = 0; v < FN(RUN); v += FN(LANES)) *(FN(vector) *)(at + v) = *(const FN(vector) *)(a + i + v);
        }
    }
}

/* Asks for `rows` columns of terms [from, end) of a turned left side, which the next block copies. */
static void FN(ask_ahead)(const cpu_product *p, int64_t i, int64_t rows, int64_t from, int64_t end)
{
    for (int64_t t = from; t < cpu_min(end, p->k); t++)
        for (int64_t r = 0; r < rows; r += 64 / (int64_t)sizeof(T))
            __builtin_prefetch((const T *)p->a + t * p->lda + i + r, 0, 2);
}

/* Rows [i, i + rows), columns [j, j_end) of `target`; rows <= CPU_PANEL_ROWS */
void FN(panel_piece)(const cpu_product *p, int64_t i, int64_t rows, int64_t j, int64_t j_end, void *target_,
                     int64_t ldt, double beta_)
{
    T turned[CPU_PANEL_ROWS / TILE_ROWS * FN(BLOCK)] __attribute__((aligned(64))), *target = (T *)target_ + i * ldt;
    for (int64_t from = 0; from < p->k || from == 0; from += FN(DEPTH)) {
        int64_t k = cpu_min(FN(DEPTH), p->k - from);
        T beta = from ? 1 : (T)beta_;
        if (p->trans_a) FN(turn)((const T *)p->a + from * p->lda + i, p->lda, k, rows, p->m - i, turned);
        for (int64_t r = 0; r < rows; r += TILE_ROWS) {
            T *c = target + r * ldt;
            FN(left) a = {(const T *)p->a + (i + r) * p->lda + from, p->lda, 1};
            if (p->trans_a) {
                int64_t ahead = from + FN(DEPTH) + FN(DEPTH) * r / rows;
                FN(ask_ahead)(p, i, rows, ahead, ahead + FN(DEPTH) * TILE_ROWS / rows + 1);
                a = (FN(left)){turned + r / TILE_ROWS * FN(BLOCK), 1, TILE_ROWS};
            }
            if (r + TILE_ROWS > rows) FN(last_rows)(p, rows - r, a, from, k, beta, c, ldt, j, j_end);
            else if (p->trans_a) FN(full_turned)(p, a.a, from, k, beta, c, ldt, j, j_end);
            else FN(full_rows)(p, a, from, k, beta, c, ldt, j, j_end);
        }
    }
}
#endif
