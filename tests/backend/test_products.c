/* SPDX-License-Identifier: Apache-2.0 */
/* test_products.c - gemm and grouped of the cpu backend against sums written out in f64. */
#include "fixture.h"

static double gelu_erf(double x) { return 0.5 * x * erfc(-x * sqrt(0.5)); }
static double activation(int act, double x)
{
    switch (act) {
    case ST_ACT_SILU: return x / (1 + exp(-x));
    case ST_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ST_ACT_GELU_ERF: return gelu_erf(x);
    case ST_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case ST_ACT_RELU2: return x > 0 ? x * x : 0;
    default: return x;
    }
}

static int call_gemm(const st_queue *q, const st_ops *ops, void *ctx) { return ops->gemm(q, ctx); }
static int call_grouped(const st_queue *q, const st_ops *ops, void *ctx) { return ops->grouped(q, ctx); }

typedef struct sizes { int64_t batch, m, n, k; } sizes;

static void one_gemm(rig *r, sizes s, uint32_t trans, int act, double alpha, double beta, bool bias, bool aux)
{
    bool ta = trans & 1, tb = trans >> 1 & 1;
    int64_t batch = s.batch ? s.batch : 1, am = ta ? s.k : s.m, ak = ta ? s.m : s.k, bk = tb ? s.n : s.k,
            bn = tb ? s.k : s.n;
    st_tensor *a = s.batch ? NEW_REAL(r, 3, s.batch, am, ak) : NEW_REAL(r, 3, am, ak);
    st_tensor *b = s.batch ? NEW_REAL(r, 5, s.batch, bk, bn) : NEW_REAL(r, 5, bk, bn);
    st_tensor *c = s.batch ? NEW_REAL(r, 1, s.batch, s.m, s.n) : NEW_REAL(r, 1, s.m, s.n);
    st_tensor *x = !aux ? rig_absent(r) : s.batch ? NEW_REAL(r, 2, s.batch, s.m, s.n) : NEW_REAL(r, 2, s.m, s.n);
    st_tensor *v = bias ? NEW_REAL(r, 0, s.n) : rig_absent(r);
    set_random(a, 1, -1, 1);
    set_random(b, 2, -1, 1);
    if (beta != 0) set_random(c, 3, -1, 1);
    else set_all(c, NAN); /* beta 0 does not read */
    if (bias) set_random(v, 4, -1, 1);
    double *want = calloc((size_t)(batch * s.m * s.n) + 1, sizeof *want),
           *before = calloc((size_t)(batch * s.m * s.n) + 1, sizeof *before);
    double *va = values(a), *vb = values(b);
    for (int64_t e = 0; e < batch; e++)
        for (int64_t i = 0; i < s.m; i++)
            for (int64_t j = 0; j < s.n; j++) {
                double sum = 0;
                int64_t at = (e * s.m + i) * s.n + j;
                for (int64_t p = 0; p < s.k; p++)
                    sum += va[e * s.m * s.k + (ta ? p * s.m + i : i * s.k + p)] *
                           vb[e * s.k * s.n + (tb ? j * s.k + p : p * s.n + j)];
                before[at] = alpha * sum + (bias ? value_of(v, j) : 0);
                want[at] = activation(act, before[at]) + (beta != 0 ? beta * value_of(c, at) : 0);
            }
    st_gemm g = {
        .a = a, .b = b, .bias = v, .c = c, .aux = x, .alpha = alpha, .beta = (float)beta, .trans = trans, .act = act};
    RUN_OK(r, call_gemm, &g);
    near_to(r, "gemm c", c, want, 1e-13, 1e-6);
    if (aux) near_to(r, "gemm aux", x, before, 1e-13, 1e-6);
    assert_true(r->flops == 2.0 * (double)(batch * s.m * s.n * s.k) && r->planned_flops == r->flops);
    free(want); free(before); free(va); free(vb);
    rig_clear(r);
}

static void gemm(rig *r)
{
    for (uint32_t trans = 0; trans < 4; trans++) {
        one_gemm(r, (sizes){0, 7, 5, 9}, trans, 0, 1, 0, false, false);
        one_gemm(r, (sizes){3, 7, 5, 9}, trans, ST_ACT_SILU, 0.5, 0.25, true, true);
        one_gemm(r, (sizes){5, 33, 17, 20}, trans, 0, 1, 1, false, false);
        one_gemm(r, (sizes){0, 70, 130, 33}, trans, 0, 1, 1, true, false);
        one_gemm(r, (sizes){0, 300, 96, 90}, trans, ST_ACT_GELU_TANH, 1, 0, true, false); /* several tiles */
        one_gemm(r, (sizes){0, 301, 61, 300}, trans, 0, 0.5, 0, false, false); /* edges of panels, a long sum */
        one_gemm(r, (sizes){0, 95, 130, 270}, trans, 0, 2, 0.5, false, false);
        one_gemm(r, (sizes){0, 100, 200, 40}, trans, ST_ACT_SILU, 0.5, 0.5, true, true);
    }
    for (int act = ST_ACT_NONE; act <= ST_ACT_RELU2; act++)
        for (int k = 0; k < 8; k++) one_gemm(r, (sizes){0, 19, 23, 8}, 2, act, 0.5, k & 1 ? 0.5 : 0, k & 2, k & 4);
    one_gemm(r, (sizes){0, 6, 10, 9000}, 1, 0, 1, 0, false, false);
    one_gemm(r, (sizes){0, 20, 16, 9000}, 1, ST_ACT_SILU, 0.01, 0.5, true, true); /* k in parts */
    one_gemm(r, (sizes){0, 1, 2100, 64}, 2, 0, 1, 0, true, false);
    one_gemm(r, (sizes){0, 0, 4, 3}, 0, 0, 1, 0, false, false);
    one_gemm(r, (sizes){0, 4, 3, 0}, 0, 0, 1, 0.5, false, false);
    one_gemm(r, (sizes){0, 4, 3, 0}, 0, 0, 1, 0, true, true);
}

static void gemm_refuses(rig *r)
{
    st_tensor *a = NEW_REAL(r, 0, 4, 6), *b = NEW_REAL(r, 0, 5, 7), *c = NEW_REAL(r, 0, 4, 7),
              *i = NEW(r, ST_I32, 0, 4, 6);
    st_gemm g = {.a = a, .b = b, .c = c, .alpha = 1};
    REFUSED(r, call_gemm, &g, ST_E_SHAPE, "gemm", "b is", "[5, 7]", "[6, 7]");
    g.b = rig_absent(r);
    REFUSED(r, call_gemm, &g, ST_E_SHAPE, "gemm", "b is absent", "[6, 7]");
    g.c = i;
    REFUSED(r, call_gemm, &g, ST_E_UNSUPPORTED, "gemm", "c is i32", "f32 or f64");
    st_tensor *wide = NEW_REAL(r, 0, 6, 7), *other = NEW(r, r->type == ST_F64 ? ST_F32 : ST_F64, 0, 4, 6);
    g = (st_gemm){.a = other, .b = wide, .c = c, .alpha = 1};
    REFUSED(r, call_gemm, &g, ST_E_SHAPE, "gemm: a is", "f32", "f64");
    st_tensor *bent = rig_view(r, *a);
    bent->stride[1] = 2;
    g.a = bent;
    REFUSED(r, call_gemm, &g, ST_E_SHAPE, "a has stride 2");
    g.a = a;
    g.act = 17;
    REFUSED(r, call_gemm, &g, ST_E_UNSUPPORTED, "activation 17");
    rig_clear(r);
}

static void grouped(rig *r)
{
    enum { GROUPS = 4, K = 19, N = 37, ROWS = 64 * 7 };
    const int32_t border[GROUPS + 1] = {0, 64, 64, 64 + 320, 64 * 6}; /* an empty group, one over a row tile, a tail */
    for (int mode = 0; mode < 3; mode++) {
        int64_t wide_a = mode == 1 ? N : K, wide_c = mode == 1 ? K : N;
        st_tensor *a = NEW_REAL(r, 3, ROWS, wide_a), *c = NEW_REAL(r, 2, ROWS, wide_c),
                  *offset = NEW(r, ST_I32, 0, GROUPS + 1);
        st_tensor *b = mode == 2 ? NEW_REAL(r, 1, GROUPS, wide_a, wide_c) : NEW_REAL(r, 1, GROUPS, N, K);
        set_random(a, 1, -1, 1);
        set_random(b, 2, -1, 1);
        set_random(c, 3, -1, 1);
        for (int e = 0; e <= GROUPS; e++) set_value(offset, e, border[e]);
        double *want = values(mode == 2 ? b : c);
        for (int e = 0; e < GROUPS; e++) {
            if (mode == 2)
                for (int64_t i = 0; i < wide_a; i++)
                    for (int64_t j = 0; j < wide_c; j++) {
                        double sum = 0.5 * want[(e * wide_a + i) * wide_c + j];
                        for (int64_t t = border[e]; t < border[e + 1]; t++)
                            sum += value_of(a, t * wide_a + i) * value_of(c, t * wide_c + j);
                        want[(e * wide_a + i) * wide_c + j] = sum;
                    }
            else
                for (int64_t t = border[e]; t < border[e + 1]; t++)
                    for (int64_t j = 0; j < wide_c; j++) {
                        double sum = 0;
                        for (int64_t p = 0; p < wide_a; p++)
                            sum += value_of(a, t * wide_a + p) *
                                   value_of(b, (e * N + (mode ? p : j)) * K + (mode ? j : p));
                        want[t * wide_c + j] = sum;
                    }
        }
        st_grouped g = {.a = a, .b = b, .c = c, .offset = offset, .beta = 0.5f, .mode = mode};
        RUN_OK(r, call_grouped, &g);
        near_to(r, "grouped", mode == 2 ? b : c, want, 1e-13, 1e-6);
        free(want);
        if (mode == 0) {
            st_grouped bad = g;
            bad.c = a;
            REFUSED(r, call_grouped, &bad, ST_E_SHAPE, "grouped: b is", "[4, 37, 19]", "[any, 19, 19]");
            set_value(offset, 2, 9999);
            assert_int_equal(rig_once(r, call_grouped, &g), ST_OK);
            assert_int_equal(r->fault.code, ST_FAULT_RANGE);
            assert_int_equal(r->fault.layer, 7);
        }
        rig_clear(r);
    }
}

static void test_gemm(void **state) { rig_each(gemm); }
static void test_gemm_refuses(void **state) { rig_each(gemm_refuses); }
static void test_grouped(void **state) { rig_each(grouped); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm), cmocka_unit_test(test_gemm_refuses), cmocka_unit_test(test_grouped),
    };
    return cmocka_run_group_tests_name("cpu products", tests, NULL, NULL);
}
