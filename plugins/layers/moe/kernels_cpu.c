/* SPDX-License-Identifier: Apache-2.0 */
/* moe/kernels_cpu.c - the CPU kernels of one instruction-set level, for float and double. Work is cut by size alone and
 * all sums have a fixed order, so results do not depend on the number of threads. */
#include "kernels_cpu.h"
#include "kernels.h"
#include <math.h>
#include <stdbool.h>
#include <strata/cpu.h>
#include <string.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define F(name) JOIN(name, SUFFIX) /* a name of the type's own */

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t pieces(int64_t n, int64_t per) { return (n + per - 1) / per; }

/* The first fault stays. */
static void set_fault(const st_queue *q, uint32_t code, int64_t a, int64_t b)
{
    uint32_t none = ST_FAULT_NONE;
    if (!q->fault ||
        !__atomic_compare_exchange_n(&q->fault->code, &none, code, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    q->fault->layer = q->layer;
    q->fault->a = a;
    q->fault->b = b;
}

/* ---- sort: counts per block of tokens, their prefix sums, then every pick knows its row ---- */

static void count_block(void *arg, int64_t b)
{
    const moe_sort *a = arg;
    const int64_t first = b * MOE_BLOCK * a->top_k, end = smaller((b + 1) * MOE_BLOCK, a->tokens) * a->top_k;
    int32_t *n = a->work + b * a->experts;
    memset(n, 0, (size_t)a->experts * sizeof *n);
    for (int64_t i = first; i < end; i++)
        if (a->choice[i] >= 0) n[a->choice[i]]++;
}
/* Counts become first rows of a block's picks; the row behind an expert's last pick goes into the last row of work.
 * -> rows needed. */
static int64_t place_experts(const moe_sort *a)
{
    const int64_t blocks = moe_blocks(a->tokens);
    int64_t at = 0;
    for (int64_t e = 0; e < a->experts; e++) {
        a->offset[e] = (int32_t)at;
        for (int64_t b = 0; b < blocks; b++) {
            int32_t *n = &a->work[b * a->experts + e];
            const int32_t of_block = *n;
            *n = (int32_t)at;
            at += of_block;
        }
        a->work[blocks * a->experts + e] = (int32_t)at;
        at = (at + ST_GROUP_TILE - 1) / ST_GROUP_TILE * ST_GROUP_TILE;
    }
    a->offset[a->experts] = (int32_t)at;
    return at;
}
static void put_share(const moe_sort *a, int64_t row, int64_t pick)
{
    if (a->dtype == ST_F64) ((double *)a->weight)[row] = pick < 0 ? 0 : ((const double *)a->share)[pick];
    else ((float *)a->weight)[row] = pick < 0 ? 0 : ((const float *)a->share)[pick];
}
static void place_block(void *arg, int64_t b)
{
    const moe_sort *a = arg;
    const int64_t first = b * MOE_BLOCK * a->top_k, end = smaller((b + 1) * MOE_BLOCK, a->tokens) * a->top_k;
    int32_t *next = a->work + b * a->experts;
    for (int64_t i = first; i < end; i++) {
        a->place[i] = -1;
        if (a->choice[i] < 0) continue;
        const int32_t row = next[a->choice[i]]++;
        a->place[i] = row;
        a->row[row] = (int32_t)(i / a->top_k);
        put_share(a, row, i);
    }
}
static void fill_rows(const moe_sort *a, int64_t first, int64_t end, int32_t with)
{
    for (int64_t i = first; i < end; i++) {
        a->row[i] = with;
        put_share(a, i, -1);
    }
}
static int sort(const st_queue *q, const moe_sort *a)
{
    const int64_t blocks = moe_blocks(a->tokens);
    const int32_t *behind = a->work + blocks * a->experts;
    st_cpu_run(q, blocks, count_block, (void *)(uintptr_t)a);
    const int64_t needed = place_experts(a);
    if (needed > a->rows) {
        set_fault(q, MOE_FAULT_CAPACITY, needed, a->rows);
        memset(a->offset, 0, (size_t)(a->experts + 1) * sizeof *a->offset);
        for (int64_t i = 0; i < a->tokens * a->top_k; i++) a->place[i] = -1;
        fill_rows(a, 0, a->rows, -2);
        return ST_OK;
    }
    st_cpu_run(q, blocks, place_block, (void *)(uintptr_t)a);
    for (int64_t e = 0; e < a->experts; e++) fill_rows(a, behind[e], a->offset[e + 1], -1);
    fill_rows(a, needed, a->rows, -2);
    return ST_OK;
}

/* ---- both types ---- */

#define REAL float
#define BITS uint32_t
#define SUFFIX _f32
#define MANTISSA 23
#define BIAS 127
#define ROUND_MAGIC 0x1.8p23f
#define EXP_LEAST -87.0f
#define EXP_MOST 88.0f
#define LN2_HIGH 0x1.62e4p-1f
#define LN2_LOW 0x1.7f7d1cp-20f
#define EXP_TERMS 7
#include "rows_cpu.h"

#include "router_cpu.h"

#undef REAL
#undef BITS
#undef SUFFIX
#undef MANTISSA
#undef BIAS
#undef ROUND_MAGIC
#undef EXP_LEAST
#undef EXP_MOST
#undef LN2_HIGH
#undef LN2_LOW
#undef EXP_TERMS
#define REAL double
#define BITS uint64_t
#define SUFFIX _f64
#define MANTISSA 52
#define BIAS 1023
#define ROUND_MAGIC 0x1.8p52
#define EXP_LEAST -708.0
#define EXP_MOST 709.0
#define LN2_HIGH 0x1.62e42fee00000p-1
#define LN2_LOW 0x1.a39ef35793c76p-33
#define EXP_TERMS 13
#include "rows_cpu.h"

#include "router_cpu.h"

#define ENTRY(name, T) \
    static int name(const st_queue *q, const T *a) \
    { \
        if (a->dtype == ST_F64) return name##_f64(q, a); \
        return a->dtype == ST_F32 ? name##_f32(q, a) : ST_E_UNSUPPORTED; \
    }
ENTRY(route, moe_route)
ENTRY(glu, moe_glu)
ENTRY(glu_bwd, moe_glu)
ENTRY(router_bwd, moe_router_bwd)
ENTRY(gate, moe_gate)
ENTRY(gate_bwd, moe_gate)
ENTRY(report, moe_report)

const moe_kernels ST_CPU_NAME(moe_table) = {route, sort, glu, glu_bwd, router_bwd, gate, gate_bwd, report};
