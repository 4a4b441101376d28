/* SPDX-License-Identifier: Apache-2.0 */
/* moe/rows_cpu.h - template: exp, and what is done to rows of experts. Included once per type by kernels_cpu.c, which
 * defines REAL, F(name) and the constants of the type. */

/* e^x without branches, so that loops over it are vectorised: x = n ln 2 + r, a Taylor series for e^r, 2^n through the
 * exponent's bits. Within 2 ulp; clamped at both ends; NaN stays NaN. */
static inline __attribute__((always_inline)) REAL F(exp_of)(REAL x)
{
    BITS bits;
    REAL scale, p = 1;
    x = x < EXP_LEAST ? EXP_LEAST : x; /* false for NaN */
    x = x > EXP_MOST ? EXP_MOST : x;
    const REAL shifted = x * (REAL)M_LOG2E + (REAL)ROUND_MAGIC, n = shifted - (REAL)ROUND_MAGIC;
    const REAL r = x - n * LN2_HIGH - n * LN2_LOW;
#pragma GCC unroll 16
    for (int k = EXP_TERMS; k > 0; k--) p = 1 + p * r * (REAL)(1.0 / k);
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + BIAS) << MANTISSA; /* the low bits of `shifted` hold n */
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}
static inline __attribute__((always_inline)) REAL F(sigmoid)(REAL x) { return 1 / (1 + F(exp_of)(-x)); }

/* ---- weighted gated unit over sorted rows, a tile at a time ---- */

static void F(glu_tile)(void *arg, int64_t tile)
{
    const moe_glu *a = arg;
    const int64_t w = a->width;
    for (int64_t i = tile * ST_GROUP_TILE; i < (tile + 1) * ST_GROUP_TILE; i++) {
        const REAL *g = (const REAL *)a->gate_up + i * 2 * w, *u = g + w, weight = ((const REAL *)a->weight)[i];
        REAL *y = (REAL *)a->product + i * w;
#pragma omp simd
        for (int64_t k = 0; k < w; k++) y[k] = weight * g[k] * F(sigmoid)(g[k]) * u[k];
    }
}
static int F(glu)(const st_queue *q, const moe_glu *a)
{
    st_cpu_run(q, a->offset[a->experts] / ST_GROUP_TILE, F(glu_tile), (void *)(uintptr_t)a);
    return ST_OK;
}
static void F(glu_bwd_tile)(void *arg, int64_t tile)
{
    const moe_glu *a = arg;
    const int64_t w = a->width;
    for (int64_t i = tile * ST_GROUP_TILE; i < (tile + 1) * ST_GROUP_TILE; i++) {
        REAL *g = (REAL *)a->gate_up + i * 2 * w, *u = g + w, dweight = 0;
        const REAL *dy = (const REAL *)a->dproduct + i * w, weight = ((const REAL *)a->weight)[i];
#pragma omp simd reduction(+ : dweight)
        for (int64_t k = 0; k < w; k++) {
            const REAL s = F(sigmoid)(g[k]), act = g[k] * s, up = u[k], d = dy[k] * weight;
            dweight += dy[k] * act * up;
            u[k] = d * act;
            g[k] = d * up * s * (1 + g[k] * (1 - s));
        }
        ((REAL *)a->dweight)[i] = dweight;
    }
}
static int F(glu_bwd)(const st_queue *q, const moe_glu *a)
{
    st_cpu_run(q, a->offset[a->experts] / ST_GROUP_TILE, F(glu_bwd_tile), (void *)(uintptr_t)a);
    return ST_OK;
}

/* ---- the shared expert's gate ---- */

static void F(gate_block)(void *arg, int64_t b)
{
    const moe_gate *a = arg;
    for (int64_t t = b * MOE_BLOCK; t < smaller((b + 1) * MOE_BLOCK, a->tokens); t++) {
        const REAL *out = (const REAL *)a->out + t * a->width, s = F(sigmoid)(((const REAL *)a->gate)[t]);
        REAL *y = (REAL *)a->y + t * a->width;
#pragma omp simd
        for (int64_t k = 0; k < a->width; k++) y[k] += s * out[k];
    }
}
static int F(gate)(const st_queue *q, const moe_gate *a)
{
    st_cpu_run(q, moe_blocks(a->tokens), F(gate_block), (void *)(uintptr_t)a);
    return ST_OK;
}
static void F(gate_bwd_block)(void *arg, int64_t b)
{
    const moe_gate *a = arg;
    for (int64_t t = b * MOE_BLOCK; t < smaller((b + 1) * MOE_BLOCK, a->tokens); t++) {
        const REAL *out = (const REAL *)a->out + t * a->width, s = F(sigmoid)(((const REAL *)a->gate)[t]);
        const REAL *dy = (const REAL *)a->dy + t * a->width;
        REAL *dout = (REAL *)a->dout + t * a->width, dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t k = 0; k < a->width; k++) {
            dot += dy[k] * out[k];
            dout[k] = s * dy[k];
        }
        ((REAL *)a->dgate)[t] = dot * s * (1 - s);
    }
}
static int F(gate_bwd)(const st_queue *q, const moe_gate *a)
{
    st_cpu_run(q, moe_blocks(a->tokens), F(gate_bwd_block), (void *)(uintptr_t)a);
    return ST_OK;
}
