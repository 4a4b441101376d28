/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_attention.c - attention over spans with an online softmax, and its backward.
 *
 * Rows are cut into blocks of at most BLOCK at the ends of spans; a piece is a block of a head. Scores exist for one
 * block of queries against one block of keys at a time. The backward is two passes, each without sums across pieces:
 * dq by blocks of queries, dk and dv by blocks of keys (over the query heads that share them, in order). A span whose
 * keys are one block needs the second pass alone, which then has all of dq at hand. Small products run in a register
 * tile of our own: packing for a BLAS call costs as much as the product at these sizes. In each pass the block that
 * stays is stored transposed, so that its rows are the lanes of a vector and softmax needs no sums across lanes.
 *
 * Lanes take pieces off a counter, each with a room of its own in the workspace; which one takes which changes
 * nothing. */
#ifndef T
#include "cpu.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if ST_CPU_LEVEL >= 4
enum { VECTOR_BYTES = 64, TILE_ROWS = 8 };
#elif ST_CPU_LEVEL >= 3
enum { VECTOR_BYTES = 32, TILE_ROWS = 4 };
#else
enum { VECTOR_BYTES = 16, TILE_ROWS = 4 };
#endif
enum { BLOCK = CPU_ATTN_BLOCK, TILE_VECTORS = 2 };
#define KERNEL_FILE "kernel_attention.c"
#include "twice.h"
#else
#define LOWEST (T_IS_DOUBLE ? (T)-DBL_MAX : (T)-FLT_MAX)

typedef T FN(vector) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T)), may_alias));
enum { FN(LANES) = VECTOR_BYTES / sizeof(T) };

/* c[m rows, vectors] = (add: c +) a b. a[i, p] = a[i * a_row + p * a_col]; rows of b and c are contiguous. */
static inline __attribute__((always_inline)) void FN(tile)(const int m, const int vectors, int64_t k, const T *a,
                                                           int64_t a_row, int64_t a_col, const T *b, int64_t ldb, T *c,
                                                           int64_t ldc, bool add)
{
    FN(vector) sum[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < m; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i][v] = add ? *(const FN(vector) *)(c + i * ldc + v * FN(LANES)) : (FN(vector)){0};
    for (int64_t p = 0; p < k; p++) {
        FN(vector) row[TILE_VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) row[v] = *(const FN(vector) *)(b + p * ldb + v * FN(LANES));
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            T x = a[i * a_row + p * a_col];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[i][v] += x * row[v];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < m; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) *(FN(vector) *)(c + i * ldc + v * FN(LANES)) = sum[i][v];
}

static inline __attribute__((always_inline)) void FN(columns)(const int vectors, int64_t m, int64_t k, const T *a,
                                                              int64_t a_row, int64_t a_col, const T *b, int64_t ldb,
                                                              T *c, int64_t ldc, bool add)
{
    int64_t i = 0;
    for (; i + TILE_ROWS <= m; i += TILE_ROWS)
        FN(tile)(TILE_ROWS, vectors, k, a + i * a_row, a_row, a_col, b, ldb, c + i * ldc, ldc, add);
    if (TILE_ROWS > 4 && i + 4 <= m) {
        FN(tile)(4, vectors, k, a + i * a_row, a_row, a_col, b, ldb, c + i * ldc, ldc, add);
        i += 4;
    }
    if (i + 2 <= m) {
        FN(tile)(2, vectors, k, a + i * a_row, a_row, a_col, b, ldb, c + i * ldc, ldc, add);
        i += 2;
    }
    if (i < m) FN(tile)(1, vectors, k, a + i * a_row, a_row, a_col, b, ldb, c + i * ldc, ldc, add);
}

/* n: a multiple of LANES */
static void FN(small_product)(int64_t m, int64_t n, int64_t k, const T *a, int64_t a_row, int64_t a_col, const T *b,
                              int64_t ldb, T *c, int64_t ldc, bool add)
{
    int64_t j = 0;
    for (; j + 2 * FN(LANES) <= n; j += 2 * FN(LANES))
        FN(columns)(2, m, k, a, a_row, a_col, b + j, ldb, c + j, ldc, add);
    if (j < n) FN(columns)(1, m, k, a, a_row, a_col, b + j, ldb, c + j, ldc, add);
}

static inline int64_t FN(padded)(int64_t n) { return cpu_div_up(n, FN(LANES)) * FN(LANES); }

/* to[p, i] = factor * from[i, p]; columns behind n are 0 up to the next full vector */
static void FN(transpose)(const T *from, int64_t stride, int64_t n, int64_t d, T factor, T *to)
{
    int64_t wide = FN(padded)(n);
    for (int64_t p = 0; p < d; p++) {
        for (int64_t i = 0; i < n; i++) to[p * BLOCK + i] = factor * from[i * stride + p];
        for (int64_t i = n; i < wide; i++) to[p * BLOCK + i] = 0;
    }
}

/* n rows whose length is a whole number of vectors: themselves if they are so, else a padded copy. */
static const T *FN(whole_rows)(const T *from, int64_t *stride, int64_t n, int64_t d, T *room)
{
    int64_t wide = FN(padded)(d);
    if (wide == d) return from;
    for (int64_t i = 0; i < n; i++) {
        memcpy(room + i * wide, from + i * *stride, (size_t)d * sizeof(T));
        memset(room + i * wide + d, 0, (size_t)(wide - d) * sizeof(T));
    }
    *stride = wide;
    return room;
}

static inline T *FN(head_at)(const cpu_view *v, int64_t row, int64_t head)
{
    return (T *)v->data + row * v->s_row + head * v->s_head;
}

typedef struct FN(span) { int64_t q, q_n, k, k_n; } FN(span);
static inline FN(span) FN(span_at)(const cpu_attn *a, int64_t s)
{
    const int32_t *p = a->spans + s;
    return (FN(span)){p[0], p[a->s_span], p[2 * a->s_span], p[3 * a->s_span]};
}
/* Query i of the span (counted from its begin) sees keys below this. */
static inline int64_t FN(seen)(const cpu_attn *a, const FN(span) *s, int64_t i)
{
    return a->causal ? cpu_max(0, cpu_min(s->k_n, s->k_n - s->q_n + i + 1)) : s->k_n;
}

static void FN(zero_row)(const cpu_view *v, int64_t row, int64_t head)
{
    if (v->data) memset(FN(head_at)(v, row, head), 0, (size_t)v->cols * sizeof(T));
}

/* ---- lanes ---- */
typedef struct FN(lanes) {
    const cpu_attn *a;
    void (*piece)(const cpu_attn *, int64_t piece, T *room);
    int64_t pieces, next;
} FN(lanes);

static void FN(lane)(void *arg, int64_t lane)
{
    FN(lanes) *all = arg;
    T *room = (T *)all->a->room + lane * all->a->room_size;
    for (int64_t i; (i = __atomic_fetch_add(&all->next, 1, __ATOMIC_RELAXED)) < all->pieces;)
        all->piece(all->a, i, room);
}

static void FN(run_lanes)(const st_queue *q, const cpu_attn *a, int64_t pieces,
                          void (*piece)(const cpu_attn *, int64_t, T *))
{
    FN(lanes) all = {a, piece, pieces, 0};
    st_cpu_run(q, cpu_min(a->lanes, pieces), FN(lane), &all);
}

static inline T *FN(take)(T **room, int64_t n)
{
    *room += n;
    return *room - n;
}
static inline int64_t FN(head_room)(const cpu_attn *a) { return BLOCK * (cpu_div_up(a->q.cols, 16) * 16); }

/* ---- forward ---- */
typedef struct FN(forward_room) {
    T *query, *out, *value; /* query transposed; a padded copy of v */
    T *score, *max, *keep, *sum;
} FN(forward_room);

static FN(forward_room) FN(forward_room_at)(const cpu_attn *a, T *room)
{
    FN(forward_room) r;
    r.query = FN(take)(&room, FN(head_room)(a));
    r.out = FN(take)(&room, FN(head_room)(a));
    r.value = FN(take)(&room, FN(head_room)(a));
    r.score = FN(take)(&room, BLOCK * BLOCK);
    r.max = FN(take)(&room, BLOCK);
    r.keep = FN(take)(&room, BLOCK);
    r.sum = room;
    return r;
}

/* score (keys, queries) of keys [kb, kb + n): becomes exp(score - max) with max, sum brought up to date, keep = old
 * scale */
static void FN(soften)(const cpu_attn *a, const FN(span) *s, int64_t q_first, int64_t m, int64_t kb, int64_t n,
                       FN(forward_room) *r)
{
    int64_t wide = FN(padded)(m);
    for (int64_t i = 0; i < wide; i++) r->keep[i] = r->max[i];
    for (int64_t j = 0; j < n; j++) {
        T *row = r->score + j * BLOCK;
        int64_t from = a->causal ? cpu_min(wide, cpu_max(0, kb + j - (s->k_n - s->q_n) - q_first)) : 0;
        for (int64_t i = 0; i < from; i++) row[i] = LOWEST; /* queries that do not see this key */
#pragma omp simd
        for (int64_t i = 0; i < wide; i++) r->max[i] = row[i] > r->max[i] ? row[i] : r->max[i];
    }
#pragma omp simd
    for (int64_t i = 0; i < wide; i++) {
        r->keep[i] = FN(exp)(r->keep[i] - r->max[i]);
        r->sum[i] *= r->keep[i];
    }
    for (int64_t j = 0; j < n; j++) {
        T *row = r->score + j * BLOCK;
        int64_t from = a->causal ? cpu_min(wide, cpu_max(0, kb + j - (s->k_n - s->q_n) - q_first)) : 0;
#pragma omp simd
        for (int64_t i = 0; i < wide; i++) row[i] = FN(exp)(row[i] - r->max[i]);
        for (int64_t i = 0; i < from; i++) row[i] = 0;
#pragma omp simd
        for (int64_t i = 0; i < wide; i++) r->sum[i] += row[i];
    }
}

/* Queries [first, first + m) of span s, one head. */
static void FN(forward_rows)(const cpu_attn *a, const FN(span) *s, int64_t first, int64_t m, int64_t head,
                             FN(forward_room) *r)
{
    int64_t d = a->q.cols, wide = FN(padded)(d), kv = head / (a->q.heads / a->k.heads);
    int64_t keys = FN(seen)(a, s, first + m - 1);
    FN(transpose)(FN(head_at)(&a->q, s->q + first, head), a->q.s_row, m, d, (T)a->scale, r->query);
    memset(r->out, 0, (size_t)(m * wide) * sizeof(T));
    for (int64_t i = 0; i < BLOCK; i++) {
        r->max[i] = LOWEST;
        r->sum[i] = 0;
    }
    for (int64_t kb = 0; kb < keys; kb += BLOCK) {
        int64_t n = cpu_min(BLOCK, keys - kb), ldv = a->v.s_row;
        const T *k = FN(head_at)(&a->k, s->k + kb, kv);
        FN(small_product)(n, FN(padded)(m), d, k, a->k.s_row, 1, r->query, BLOCK, r->score, BLOCK, false);
        FN(soften)(a, s, first, m, kb, n, r);
        const T *v = FN(whole_rows)(FN(head_at)(&a->v, s->k + kb, kv), &ldv, n, d, r->value);
        for (int64_t i = 0; kb && i < m; i++) {
#pragma omp simd
            for (int64_t j = 0; j < wide; j++) r->out[i * wide + j] *= r->keep[i];
        }
        FN(small_product)(m, wide, n, r->score, 1, BLOCK, v, ldv, r->out, wide, true);
    }
    for (int64_t i = 0; i < m; i++) {
        T *out = FN(head_at)(&a->out, s->q + first + i, head);
        bool none = FN(seen)(a, s, first + i) == 0;
        T factor = none ? 0 : 1 / r->sum[i];
#pragma omp simd
        for (int64_t j = 0; j < d; j++) out[j] = none ? 0 : r->out[i * wide + j] * factor;
        if (a->lse.data)
            *FN(head_at)(&a->lse, s->q + first + i, head) = none ? 0 : (T)((double)r->max[i] + log((double)r->sum[i]));
    }
}

/* Covers of a block: the spans that hold it */
#define FOR_SPANS(a, blocks, row, s) \
    int64_t s##_at, s##_end; \
    FN(span) s; \
    cpu_covers_of(blocks, row, &s##_at, &s##_end); \
    for (; s##_at < s##_end; s##_at++) \
        if ((blocks)->cover[s##_at].end > (row) && (s = FN(span_at)(a, (blocks)->cover[s##_at].span), true))

static void FN(forward_piece)(const cpu_attn *a, int64_t piece, T *room)
{
    cpu_block b = a->q_blocks.block[piece / a->q.heads];
    int64_t head = piece % a->q.heads;
    bool covered = false;
    FN(forward_room) r = FN(forward_room_at)(a, room);
    FOR_SPANS(a, &a->q_blocks, b.first, s)
    {
        FN(forward_rows)(a, &s, b.first - s.q, b.n, head, &r);
        covered = true;
    }
    for (int64_t i = 0; !covered && i < b.n; i++) {
        FN(zero_row)(&a->out, b.first + i, head);
        FN(zero_row)(&a->lse, b.first + i, head);
    }
}

void FN(attention)(const st_queue *q, const cpu_attn *a)
{
    FN(run_lanes)(q, a, a->q_blocks.n * a->q.heads, FN(forward_piece));
}

/* ---- backward ---- */
typedef struct FN(backward_room) {
    T *left, *right;                /* the block that stays, transposed: q, d_out or k, v */
    T *sum_q, *sum_k, *sum_v;       /* results */
    T *rows, *prob, *grad, *lse, *delta; /* rows: padded copies */
} FN(backward_room);

static FN(backward_room) FN(backward_room_at)(const cpu_attn *a, T *room)
{
    FN(backward_room) r;
    r.left = FN(take)(&room, FN(head_room)(a));
    r.right = FN(take)(&room, FN(head_room)(a));
    r.sum_q = FN(take)(&room, FN(head_room)(a));
    r.sum_k = FN(take)(&room, FN(head_room)(a));
    r.sum_v = FN(take)(&room, FN(head_room)(a));
    r.rows = FN(take)(&room, FN(head_room)(a));
    r.prob = FN(take)(&room, BLOCK * BLOCK);
    r.grad = FN(take)(&room, BLOCK * BLOCK);
    r.lse = FN(take)(&room, BLOCK);
    r.delta = room;
    return r;
}

/* delta (tokens, heads) = out . d_out */
static void FN(delta_piece)(void *arg, int64_t piece)
{
    const cpu_attn *a = arg;
    int64_t heads = a->q.heads, end = cpu_min((piece + 1) * BLOCK, a->q.rows);
    for (int64_t t = piece * BLOCK; t < end; t++)
        for (int64_t h = 0; h < heads; h++) {
            const T *o = FN(head_at)(&a->out, t, h), *g = FN(head_at)(&a->d_out, t, h);
            double sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < a->q.cols; j++) sum += (double)o[j] * (double)g[j];
            ((T *)a->delta)[t * heads + h] = (T)sum;
        }
}

/* Rows [row, row + n) of dq or dk = scale * sum */
static void FN(write_scaled)(const cpu_attn *a, const cpu_view *v, int64_t row, int64_t n, int64_t head, const T *sum)
{
    int64_t d = a->q.cols, wide = FN(padded)(d);
    T scale = (T)a->scale;
    for (int64_t i = 0; i < n; i++) {
        T *to = FN(head_at)(v, row + i, head);
        for (int64_t j = 0; j < d; j++) to[j] = scale * sum[i * wide + j];
    }
}

/* dq of queries [first, first + m): scores as (keys, queries), queries in the lanes */
static void FN(dq_rows)(const cpu_attn *a, const FN(span) *s, int64_t first, int64_t m, int64_t head,
                        FN(backward_room) *r)
{
    int64_t d = a->q.cols, wide = FN(padded)(d), lanes = FN(padded)(m), kv = head / (a->q.heads / a->k.heads);
    int64_t keys = FN(seen)(a, s, first + m - 1), row = s->q + first;
    FN(transpose)(FN(head_at)(&a->q, row, head), a->q.s_row, m, d, (T)a->scale, r->left);
    FN(transpose)(FN(head_at)(&a->d_out, row, head), a->d_out.s_row, m, d, 1, r->right);
    for (int64_t i = 0; i < lanes; i++) {
        r->lse[i] = i < m ? *FN(head_at)(&a->lse, row + i, head) : 0;
        r->delta[i] = i < m ? ((const T *)a->delta)[(row + i) * a->q.heads + head] : 0;
    }
    memset(r->sum_q, 0, (size_t)(m * wide) * sizeof(T));
    for (int64_t kb = 0; kb < keys; kb += BLOCK) {
        int64_t n = cpu_min(BLOCK, keys - kb), ldk = a->k.s_row;
        const T *k = FN(head_at)(&a->k, s->k + kb, kv), *v = FN(head_at)(&a->v, s->k + kb, kv);
        FN(small_product)(n, lanes, d, k, a->k.s_row, 1, r->left, BLOCK, r->prob, BLOCK, false);
        FN(small_product)(n, lanes, d, v, a->v.s_row, 1, r->right, BLOCK, r->grad, BLOCK, false);
        for (int64_t j = 0; j < n; j++) {
            T *p = r->prob + j * BLOCK, *g = r->grad + j * BLOCK;
            int64_t from = a->causal ? cpu_min(lanes, cpu_max(0, kb + j - (s->k_n - s->q_n) - first)) : 0;
#pragma omp simd
            for (int64_t i = 0; i < lanes; i++) g[i] = FN(exp)(p[i] - r->lse[i]) * (g[i] - r->delta[i]);
            for (int64_t i = 0; i < from; i++) g[i] = 0;
        }
        k = FN(whole_rows)(k, &ldk, n, d, r->rows);
        FN(small_product)(m, wide, n, r->grad, 1, BLOCK, k, ldk, r->sum_q, wide, true);
    }
    FN(write_scaled)(a, &a->dq, row, m, head, r->sum_q);
}

static void FN(dq_piece)(const cpu_attn *a, int64_t piece, T *room)
{
    cpu_block b = a->q_blocks.block[piece / a->q.heads];
    int64_t head = piece % a->q.heads;
    bool covered = false;
    FN(backward_room) r = FN(backward_room_at)(a, room);
    FOR_SPANS(a, &a->q_blocks, b.first, s)
    {
        if (!a->whole || !a->whole[a->q_blocks.cover[s_at].span]) FN(dq_rows)(a, &s, b.first - s.q, b.n, head, &r);
        covered = true;
    }
    for (int64_t i = 0; !covered && i < b.n; i++) FN(zero_row)(&a->dq, b.first + i, head);
}

/* What queries [first, first + m) of one head add to keys [key, key + n) of the span: scores as (queries, keys),
 * keys in the lanes. with_dq: these keys are all that the span has. */
static void FN(dkv_rows)(const cpu_attn *a, const FN(span) *s, int64_t first, int64_t m, int64_t head, int64_t key,
                         int64_t n, bool with_dq, FN(backward_room) *r)
{
    int64_t d = a->q.cols, wide = FN(padded)(d), lanes = FN(padded)(n), row = s->q + first;
    int64_t ldq = a->q.s_row, ldo = a->d_out.s_row;
    const T *q = FN(head_at)(&a->q, row, head), *d_out = FN(head_at)(&a->d_out, row, head);
    FN(small_product)(m, lanes, d, q, ldq, 1, r->left, BLOCK, r->prob, BLOCK, false);
    FN(small_product)(m, lanes, d, d_out, ldo, 1, r->right, BLOCK, r->grad, BLOCK, false);
    for (int64_t i = 0; i < m; i++) {
        T *p = r->prob + i * BLOCK, *g = r->grad + i * BLOCK;
        T lse = *FN(head_at)(&a->lse, row + i, head), delta = ((const T *)a->delta)[(row + i) * a->q.heads + head];
        int64_t seen = cpu_max(0, cpu_min(n, FN(seen)(a, s, first + i) - key));
#pragma omp simd
        for (int64_t j = 0; j < lanes; j++) {
            p[j] = FN(exp)(p[j] - lse);
            g[j] = p[j] * (g[j] - delta);
        }
        for (int64_t j = seen; j < lanes; j++) p[j] = g[j] = 0;
    }
    d_out = FN(whole_rows)(d_out, &ldo, m, d, r->rows);
    FN(small_product)(n, wide, m, r->prob, 1, BLOCK, d_out, ldo, r->sum_v, wide, true);
    q = FN(whole_rows)(q, &ldq, m, d, r->rows);
    FN(small_product)(n, wide, m, r->grad, 1, BLOCK, q, ldq, r->sum_k, wide, true);
    if (!with_dq) return;
    int64_t kv = head / (a->q.heads / a->k.heads), ldk = a->k.s_row;
    const T *k = FN(whole_rows)(FN(head_at)(&a->k, s->k + key, kv), &ldk, n, d, r->rows);
    FN(small_product)(m, wide, n, r->grad, BLOCK, 1, k, ldk, r->sum_q, wide, false);
    FN(write_scaled)(a, &a->dq, row, m, head, r->sum_q);
}

static void FN(dkv_span)(const cpu_attn *a, const FN(span) *s, int64_t key, int64_t n, int64_t kv, bool with_dq,
                         FN(backward_room) *r)
{
    int64_t group = a->q.heads / a->k.heads, d = a->q.cols;
    /* earlier queries see none of these keys */
    int64_t begin = a->causal && !with_dq ? cpu_max(0, key - (s->k_n - s->q_n)) / BLOCK * BLOCK : 0;
    FN(transpose)(FN(head_at)(&a->k, s->k + key, kv), a->k.s_row, n, d, (T)a->scale, r->left);
    FN(transpose)(FN(head_at)(&a->v, s->k + key, kv), a->v.s_row, n, d, 1, r->right);
    for (int64_t head = kv * group; head < (kv + 1) * group; head++)
        for (int64_t first = begin; first < s->q_n; first += BLOCK)
            FN(dkv_rows)(a, s, first, cpu_min(BLOCK, s->q_n - first), head, key, n, with_dq, r);
}

static void FN(dkv_piece)(const cpu_attn *a, int64_t piece, T *room)
{
    cpu_block b = a->k_blocks.block[piece / a->k.heads];
    int64_t kv = piece % a->k.heads, d = a->q.cols, wide = FN(padded)(d);
    FN(backward_room) r = FN(backward_room_at)(a, room);
    memset(r.sum_k, 0, (size_t)(b.n * wide) * sizeof(T));
    memset(r.sum_v, 0, (size_t)(b.n * wide) * sizeof(T));
    FOR_SPANS(a, &a->k_blocks, b.first, s)
        FN(dkv_span)(a, &s, b.first - s.k, b.n, kv, a->whole && a->whole[a->k_blocks.cover[s_at].span], &r);
    if (a->dk.data) FN(write_scaled)(a, &a->dk, b.first, b.n, kv, r.sum_k);
    for (int64_t i = 0; a->dv.data && i < b.n; i++)
        memcpy(FN(head_at)(&a->dv, b.first + i, kv), r.sum_v + i * wide, (size_t)d * sizeof(T));
}

void FN(attention_bwd)(const st_queue *q, const cpu_attn *a)
{
    st_cpu_run(q, cpu_div_up(a->q.rows, BLOCK), FN(delta_piece), (void *)(uintptr_t)a);
    if (a->dq.data) FN(run_lanes)(q, a, a->q_blocks.n * a->q.heads, FN(dq_piece));
    if (a->dk.data || a->dv.data) FN(run_lanes)(q, a, a->k_blocks.n * a->k.heads, FN(dkv_piece));
}
#undef FOR_SPANS
#undef LOWEST
#endif
