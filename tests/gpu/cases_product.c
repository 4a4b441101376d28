/* SPDX-License-Identifier: Apache-2.0 */
/* cases_product.c - gemm, grouped, xent. In bf16 the value before an activation and the logits are rounded, which shows in what
 * follows: limits tell. */
#include "rig.h"

enum { A, B, BIAS, C, AUX };
typedef struct gemm { int trans, act, bias, aux; double alpha; float beta; } gemm;

static int call_gemm(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    const gemm *c = args;
    st_gemm a = {.a = AT(g, A), .b = AT(g, B), .bias = c->bias ? AT(g, BIAS) : NULL, .c = AT(g, C),
                 .aux = c->aux ? AT(g, AUX) : NULL, .alpha = c->alpha, .beta = c->beta, .trans = (uint32_t)c->trans,
                 .act = c->act};
    return o->gemm(q, &a);
}

static int matrix(gpu *g, const char *name, int32_t type, int64_t gap, int64_t batch, int64_t rows, int64_t cols)
{
    return batch ? NEW(g, name, type, gap, batch, rows, cols) : NEW(g, name, type, gap, rows, cols);
}

static void make(gpu *g, const gemm *c, int32_t type_c, int64_t gap, int64_t batch, int64_t m, int64_t n, int64_t k)
{
    bool ta = c->trans & 1, tb = c->trans & 2;
    gpu_random(g, matrix(g, "a", REAL, gap, batch, ta ? k : m, ta ? m : k), -1, 1);
    gpu_random(g, matrix(g, "b", REAL, gap, batch, tb ? n : k, tb ? k : n), -1, 1);
    gpu_random(g, NEW(g, "bias", REAL, 0, n), -1, 1);
    gpu_out(g, gpu_random(g, matrix(g, "c", type_c, gap, batch, m, n), -1, 1));
    gpu_out(g, matrix(g, "aux", type_c, 0, batch, m, n));
}

static void products(gpu *g)
{
    const int64_t shapes[][5] = {{3, 0, 7, 13, 5}, {0, 0, 64, 96, 128}, {8, 3, 40, 72, 56}, {1, 2, 1, 1, 3}, {0, 0, 200, 33, 600}};
    for (int s = 0; s < 5; s++)
        for (int trans = 0; trans < 4; trans++)
            for (int with = 0; with < 4; with++) {
                const int64_t *d = shapes[s];
                gemm c = {.trans = trans, .alpha = with == 3 ? 0.5 : 1, .beta = with == 1 ? 1 : with == 3 ? 0.25f : 0,
                          .bias = with > 1};
                make(g, &c, with == 1 ? ACC : REAL, d[0], d[1], d[2], d[3], d[4]);
                gpu_check(g, "gemm", call_gemm, &c, 1e-6, 3e-3);
            }
    for (int act = ST_ACT_SILU; act <= ST_ACT_RELU2; act++)
        for (int with = 0; with < 4; with++) {
            gemm c = {.trans = 2, .act = act, .alpha = 1, .beta = with & 1, .bias = with > 0, .aux = with & 2};
            make(g, &c, REAL, 8, 0, 48, 80, 40);
            gpu_check(g, "gemm act", call_gemm, &c, 3e-6, 8e-3);
        }
    for (int with = 0; with < 2; with++) { /* a sum over nothing */
        gemm c = {.alpha = 1, .beta = 0.5f, .bias = with};
        make(g, &c, ACC, 0, 0, 5, 9, 0);
        gpu_check(g, "gemm", call_gemm, &c, 1e-6, 3e-3);
    }
    gemm c = {.trans = 2, .alpha = 1};
    LARGE(g, REAL, 8192, 4096);
    LARGE(g, REAL, 4096, 4096);
    LARGE(g, REAL, 4096);
    LARGE(g, REAL, 8192, 4096);
    gpu_time(g, "gemm", call_gemm, &c);
}

enum { OFFSET = 3 };
typedef struct grouped { int mode; float beta; } grouped;
static int call_grouped(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    const grouped *c = args;
    return o->grouped(q, &(st_grouped){AT(g, 0), AT(g, 1), AT(g, 2), AT(g, OFFSET), c->beta, c->mode});
}

static void groups(gpu *g)
{
    const double even[] = {0, 64, 64, 192, 256, 256}, odd[] = {3, 3, 68, 70, 200, 201};
    const int64_t wide[][3] = {{72, 136, 0}, {64, 128, 8}, {19, 33, 1}};
    for (int s = 0; s < 3; s++)
        for (int mode = 0; mode < 3; mode++)
            for (int with = 0; with < 2; with++) {
                grouped c = {mode, with ? 0.5f : 0};
                int64_t k = wide[s][0], n = wide[s][1], gap = wide[s][2];
                gpu_random(g, NEW(g, "a", REAL, gap, 256, k), -1, 1);
                gpu_random(g, NEW(g, "b", mode == 2 ? ACC : REAL, gap, 5, mode ? k : n, mode ? n : k), -1, 1);
                gpu_random(g, NEW(g, "c", REAL, 2 * gap, 256, n), -1, 1);
                gpu_values(g, NEW(g, "offset", ST_I32, 0, 6), with ? odd : even);
                gpu_out(g, mode == 2 ? 1 : 2);
                gpu_check(g, "grouped", call_grouped, &c, 2e-6, 4e-3);
            }
    const double wrong[] = {0, 64, 32, 128};
    grouped c = {0, 0};
    NEW(g, "a", REAL, 0, 128, 64);
    NEW(g, "b", REAL, 0, 3, 64, 64);
    NEW(g, "c", REAL, 0, 128, 64);
    gpu_values(g, NEW(g, "offset", ST_I32, 0, 4), wrong);
    gpu_faults(g, call_grouped, &c, ST_FAULT_RANGE);
    double offset[65];
    for (int i = 0; i < 65; i++) offset[i] = 512 * i;
    LARGE(g, REAL, 32768, 2048);
    LARGE(g, REAL, 64, 1024, 2048);
    LARGE(g, REAL, 32768, 1024);
    gpu_values(g, NEW(g, "offset", ST_I32, 0, 65), offset);
    gpu_time(g, "grouped", call_grouped, &c);
}

enum { H, W, ROWS, LABELS, SCALE, LOSS, DH, DW, NLL, BEST };
typedef struct xent { int rows, grads; int64_t first; float beta; size_t budget; } xent;
static int call_xent(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    const xent *c = args;
    st_xent x = {.h = AT(g, H), .w = AT(g, W), .rows = c->rows ? AT(g, ROWS) : NULL, .labels = AT(g, LABELS),
                 .scale = AT(g, SCALE), .loss = AT(g, LOSS), .dh = c->grads ? AT(g, DH) : NULL,
                 .dw = c->grads ? AT(g, DW) : NULL, .nll = c->grads ? AT(g, NLL) : NULL,
                 .best = c->grads < 2 ? NULL : AT(g, BEST), .weight = 0.5, .first = c->first, .budget = c->budget,
                 .group = ST_G_NONE, .beta = c->beta};
    return o->xent(q, &x);
}

static void make_xent(gpu *g, int64_t n, int64_t words, int64_t hidden, int64_t gap, int64_t first)
{
    enum { MOST = 200 };
    double rows[MOST], labels[MOST], scale = 0.03;
    for (int64_t i = 0; i < n; i++) {
        rows[i] = i < n - 4 ? (double)((i * 7 + 3) % n) : -1;
        labels[i] = i % 9 == 4 ? -1 : (double)first + floor((double)words * random_at(2, i));
    }
    gpu_random(g, NEW(g, "h", REAL, gap, n, hidden), -1, 1);
    gpu_random(g, NEW(g, "w", REAL, 0, words, hidden), -0.5, 0.5);
    gpu_values(g, NEW(g, "rows", ST_I32, 0, n), rows);
    gpu_values(g, NEW(g, "labels", ST_I32, 0, n), labels);
    gpu_values(g, NEW(g, "scale", ACC, 0, 1), &scale);
    gpu_out(g, gpu_random(g, NEW(g, "loss", ACC, 0, 2), 1, 2));
    gpu_out(g, NEW(g, "dh", REAL, gap, n, hidden));
    gpu_out(g, gpu_random(g, NEW(g, "dw", ACC, 0, words, hidden), -0.01, 0.01));
    gpu_out(g, gpu_random(g, NEW(g, "nll", ACC, 0, n), -1, 1));
    gpu_out(g, NEW(g, "best", ST_I32, 0, n));
}

static void losses(gpu *g)
{
    for (int with = 0; with < 6; with++) {
        xent c = {.rows = with & 1, .grads = with < 2 ? 0 : g->type == ST_F32 ? 2 : 1, .first = with == 3 ? 1000 : 0,
                  .beta = with == 4 ? 0 : 1, .budget = with == 5 ? 1 << 20 : 20000};
        make_xent(g, with < 3 ? 61 : 104, with == 2 ? 333 : 512, with < 3 ? 40 : 64, with < 3 ? 3 : 8, c.first);
        gpu_check(g, "xent", call_xent, &c, 5e-6, 1.5e-2);
    }
    if (g->type == ST_F32) return; /* its times say nothing that gemm's do not */
    xent c = {.grads = 1, .budget = (size_t)1 << 30};
    LARGE(g, REAL, 8192, 2048);
    LARGE(g, REAL, 248320, 2048);
    NEW(g, "rows", ST_I32, 0, 1);
    gpu_random(g, NEW(g, "labels", ST_I32, 0, 8192), 0, 248320);
    for (int i = SCALE; i <= BEST; i++)
        if (i == DH) LARGE(g, REAL, 8192, 2048);
        else if (i == DW) LARGE(g, ACC, 248320, 2048);
        else LARGE(g, ACC, i == SCALE ? 1 : i == LOSS ? 2 : 8192);
    gpu_time(g, "xent", call_xent, &c);
}

static void test_products(void **state) { each_type(products); }
static void test_groups(void **state) { each_type(groups); }
static void test_losses(void **state) { each_type(losses); }

const struct CMUnitTest product_tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_groups),
                                           cmocka_unit_test(test_losses)};
const int n_product_tests = (int)ST_COUNT(product_tests);
