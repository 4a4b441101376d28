/* SPDX-License-Identifier: Apache-2.0 */
/* The delta rule's kernels as built for each instruction-set level that this machine runs, linked side by side: within
 * rounding of the baseline, in both types. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/layers/gated_delta_net/kernels_cpu.h"
#include <config.h>
#include <strata/cpu.h>

enum { TOKENS = 150, HK = 2, HV = 4, DK = 24, DV = 20, WIDTH = 2 * HK * DK + HV * DV, TILES = 3 };

static void run(const st_cpu_pool *pool, int64_t n, void (*fn)(void *, int64_t), void *arg)
{
    for (int64_t i = 0; i < n; i++) fn(arg, i);
}
typedef struct result {
    double value[TOKENS * (HV * DV + WIDTH + 2 * HV)];
} result;
static void *typed(const double *v, int64_t n, int32_t dtype)
{
    void *p = calloc((size_t)n, 8);
    for (int64_t i = 0; i < n; i++) {
        if (dtype == ST_F64) ((double *)p)[i] = v[i];
        else ((float *)p)[i] = (float)v[i];
    }
    return p;
}
static int64_t collect(const void *p, int64_t n, int32_t dtype, result *r, int64_t at)
{
    for (int64_t i = 0; i < n; i++)
        r->value[at + i] = dtype == ST_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
    return at + n;
}
static void run_table(const gdn_kernels *k, int32_t dtype, result *r)
{
    static const int32_t segments[] = {0, TOKENS}, tiles[] = {0, 0, 64, 0, 64, 64, 0, 128, 22};
    const st_cpu_pool pool = {1, run};
    const st_queue q = {.size = sizeof q, .stream = (void *)(uintptr_t)&pool};
    const size_t size = st_dtype_size(dtype), work = (size_t)gdn_rule_bwd_work(HV / HK, DK, DV) * HK * size;
    double x[TOKENS * WIDTH], gates[2][TOKENS * HV], dout[TOKENS * HV * DV];
    for (int i = 0; i < TOKENS * WIDTH; i++) x[i] = sin(1.7 * i) + 0.3 * cos(0.11 * i * i);
    for (int i = 0; i < TOKENS * HV; i++)
        gates[0][i] = 0.5 + 0.4 * sin(2.3 * i), gates[1][i] = -0.5 - 0.5 * cos(0.9 * i);
    for (int i = 0; i < TOKENS * HV * DV; i++) dout[i] = cos(0.37 * i * i);
    char *tx = typed(x, TOKENS * WIDTH, dtype), *dx = calloc(TOKENS * WIDTH, size);
    char *beta = typed(gates[0], TOKENS * HV, dtype), *g = typed(gates[1], TOKENS * HV, dtype);
    void *out = calloc(TOKENS * HV * DV, size), *td = typed(dout, TOKENS * HV * DV, dtype),
         *dbeta = calloc(TOKENS * HV, size);
    void *dg = calloc(TOKENS * HV, size), *states = calloc(TILES * HV * DK * DV, size),
         *area = aligned_alloc(256, (work + 255) / 256 * 256);
    gdn_rule a = {.row = {segments, tiles, 1, TILES, TOKENS},
                  .q = tx,
                  .k = tx + HK * DK * size,
                  .v = tx + 2 * HK * DK * size,
                  .beta = beta,
                  .g = g,
                  .out = out,
                  .states = states,
                  .stride = WIDTH,
                  .gate_stride = HV,
                  .out_stride = HV * DV,
                  .key_heads = HK,
                  .value_heads = HV,
                  .key_dim = DK,
                  .value_dim = DV,
                  .dtype = dtype,
                  .work = area};
    gdn_rule_bwd b = {.f = a,
                      .dout = td,
                      .dq = dx,
                      .dk = dx + HK * DK * size,
                      .dv = dx + 2 * HK * DK * size,
                      .dbeta = dbeta,
                      .dg = dg,
                      .dstride = WIDTH,
                      .dgate_stride = HV};
    memset(area, 0xff, work);
    assert_int_equal(k->rule(&q, &a), ST_OK);
    assert_int_equal(k->rule_bwd(&q, &b), ST_OK);
    int64_t at = collect(out, TOKENS * HV * DV, dtype, r, 0);
    at = collect(dx, TOKENS * WIDTH, dtype, r, at);
    at = collect(dbeta, TOKENS * HV, dtype, r, at);
    collect(dg, TOKENS * HV, dtype, r, at);
    void *all[] = {tx, dx, beta, g, out, td, dbeta, dg, states, area};
    for (int i = 0; i < 10; i++) free(all[i]);
}
static double distance(const result *a, const result *b)
{
    double d = 0, s = 0;
    for (size_t i = 0; i < sizeof a->value / sizeof a->value[0]; i++) {
        d += (a->value[i] - b->value[i]) * (a->value[i] - b->value[i]);
        s += b->value[i] * b->value[i];
    }
    return sqrt(d / s);
}
static void levels_agree(void **unused)
{
    result *exact = malloc(sizeof *exact), *r = malloc(sizeof *r);
    run_table(&gdn_table_level1, ST_F64, exact);
    run_table(&gdn_table_level1, ST_F32, r);
    assert_true(distance(r, exact) < 1e-6);
#if ST_HAVE_X86_LEVELS
    for (int level = 3; level <= st_cpu_level(); level++) {
        run_table(level == 3 ? &gdn_table_level3 : &gdn_table_level4, ST_F64, r);
        assert_true(distance(r, exact) < 1e-14);
        run_table(level == 3 ? &gdn_table_level3 : &gdn_table_level4, ST_F32, r);
        assert_true(distance(r, exact) < 1e-6);
    }
#endif
    free(exact);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(levels_agree)};
    return cmocka_run_group_tests_name("gdn_levels", tests, NULL, NULL);
}
