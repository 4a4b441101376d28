/* SPDX-License-Identifier: Apache-2.0 */
/* test_point.c - elementwise ops of the cpu backend: accuracy against libm, views, aliases, AdamW, copies. */
#include "fixture.h"

typedef struct point_call { int act; double a, b; st_tensor *t[5]; } point_call;
#define CALL(name, ...) \
    static int call_##name(const st_queue *q, const st_ops *ops, void *ctx) \
    { \
        const point_call *c = ctx; \
        return ops->name(q, __VA_ARGS__); \
    }
CALL(act, c->act, c->t[0], c->t[1])
CALL(act_bwd, c->act, c->t[0], c->t[1], c->t[2])
CALL(glu, c->act, c->t[0], c->t[1], c->t[2])
CALL(glu_bwd, c->act, c->t[0], c->t[1], c->t[2], c->t[3], c->t[4])
CALL(add, c->a, c->t[0], c->b, c->t[1], c->t[2])
CALL(copy, c->t[0], c->t[1])
CALL(fill, c->t[0], c->a)
static int call_adamw(const st_queue *q, const st_ops *ops, void *ctx) { return ops->adamw(q, ctx); }

/* In long double, so that f64 is judged by something better. */
static long double true_act(int act, long double x)
{
    switch (act) {
    case ST_ACT_SILU: return x / (1 + expl(-x));
    case ST_ACT_GELU_TANH: return x / (1 + expl(-2 * sqrtl(2 / acosl(-1)) * (x + 0.044715L * x * x * x)));
    case ST_ACT_GELU_ERF: return x * 0.5L * erfcl(-x * sqrtl(0.5L));
    case ST_ACT_SIGMOID: return 1 / (1 + expl(-x));
    case ST_ACT_RELU2: return x > 0 ? x * x : 0;
    default: return x;
    }
}
static long double true_slope(int act, long double x)
{
    const long double h = 1e-4L; /* eighth-order differences in long double: error near 1e-16 */
    static const long double w[4] = {4.0L / 5, -1.0L / 5, 4.0L / 105, -1.0L / 280};
    long double s = 0;
    if (act == ST_ACT_RELU2) return x > 0 ? 2 * x : 0;
    for (int k = 1; k <= 4; k++)
        s += w[k - 1] * (true_act(act, x + (long double)k * h) - true_act(act, x - (long double)k * h));
    return s / h;
}

static void accuracy(rig *r)
{
    enum { N = 4001 };
    const bool f64 = r->type == ST_F64;
    st_tensor *x = NEW_REAL(r, 0, N), *one = NEW_REAL(r, 0, N), *y = NEW_REAL(r, 0, N);
    for (int act = ST_ACT_NONE; act <= ST_ACT_RELU2; act++) {
        for (int i = 0; i < N; i++) set_value(x, i, (i - N / 2) * (12.0 / (N / 2)));
        set_all(one, 1);
        point_call c = {.act = act, .t = {x, y}};
        RUN_OK(r, call_act, &c);
        for (int i = 0; i < N; i++) { /* relative to the value where it is not tiny */
            double v = value_of(x, i), want = (double)true_act(act, v), off = fabs(value_of(y, i) - want);
            double limit = f64 ? 1e-15 : 6e-7;
            if (!(off <= limit * fabs(want) + (f64 ? 1e-16 : 1e-7)))
                fail_msg("act %d level %d at %.9g: %.17g, not %.17g", act, r->level, v, value_of(y, i), want);
        }
        c = (point_call){.act = act, .t = {x, one, y}};
        RUN_OK(r, call_act_bwd, &c);
        for (int i = 0; i < N; i++) {
            double v = value_of(x, i), want = (double)true_slope(act, v), off = fabs(value_of(y, i) - want);
            if (!(off <= (f64 ? 2e-14 : 6e-7)))
                fail_msg("slope %d at %.9g: %.17g, not %.17g", act, v, value_of(y, i), want);
        }
    }
    rig_clear(r);
}

/* exp over its whole range, through softmax of two words: sigmoid(x) = 1 / (1 + exp(-x)) for very negative x is
 * exp(x). */
static void exponential(rig *r)
{
    enum { N = 3000 };
    st_tensor *x = NEW_REAL(r, 0, N), *y = NEW_REAL(r, 0, N);
    double low = r->type == ST_F64 ? -700 : -85, worst = 0;
    for (int i = 0; i < N; i++) set_value(x, i, low + (-40 - low) * i / N);
    point_call c = {.act = ST_ACT_SIGMOID, .t = {x, y}};
    RUN_OK(r, call_act, &c);
    for (int i = 0; i < N; i++) {
        double want = exp(value_of(x, i));
        worst = fmax(worst, fabs(value_of(y, i) / want - 1));
    }
    if (worst > (r->type == ST_F64 ? 5e-16 : 3e-7)) fail_msg("exp is off by %.3g at level %d", worst, r->level);
    rig_clear(r);
}

static void not_finite(rig *r)
{
    st_tensor *x = NEW_REAL(r, 0, 40), *y = NEW_REAL(r, 0, 40), *one = NEW_REAL(r, 0, 40);
    set_all(one, 1);
    for (int act = ST_ACT_NONE; act <= ST_ACT_RELU2; act++) {
        set_all(x, NAN);
        point_call c = {.act = act, .t = {x, y}};
        RUN_OK(r, call_act, &c);
        for (int i = 0; i < 40; i++) assert_true(isnan(value_of(y, i)));
        c = (point_call){.act = act, .t = {x, one, y}};
        RUN_OK(r, call_act_bwd, &c);
        for (int i = 0; act != ST_ACT_NONE && i < 40; i++) assert_true(isnan(value_of(y, i)));
        set_all(x, INFINITY);
        c = (point_call){.act = act, .t = {x, y}};
        RUN_OK(r, call_act, &c);
        for (int i = 0; i < 40; i++)
            assert_true(act == ST_ACT_SIGMOID ? value_of(y, i) == 1 : value_of(y, i) == INFINITY);
    }
    rig_clear(r);
}

/* g and u as halves of one fused row; y a head view; results also into g and u themselves. */
static void glu(rig *r)
{
    enum { ROWS = 23, COLS = 37 };
    for (int act = ST_ACT_NONE; act <= ST_ACT_RELU2; act++) {
        st_tensor *fused = NEW_REAL(r, 3, ROWS, 2 * COLS), *y = NEW_REAL(r, 1, ROWS, COLS),
                  *dy = NEW_REAL(r, 2, ROWS, COLS);
        st_tensor *g = rig_view(r, st_cols(*fused, 0, COLS)), *u = rig_view(r, st_cols(*fused, COLS, COLS));
        st_tensor *dg = NEW_REAL(r, 0, ROWS, COLS), *du = NEW_REAL(r, 0, ROWS, COLS);
        set_random(fused, 1, -3, 3);
        set_random(dy, 2, -1, 1);
        double *want = values(y), *want_g = values(y), *want_u = values(y);
        for (int64_t i = 0; i < ROWS * COLS; i++) {
            double gate = value_of(g, i);
            want[i] = (double)true_act(act, gate) * value_of(u, i);
            want_g[i] = value_of(dy, i) * value_of(u, i) * (act ? (double)true_slope(act, gate) : 1);
            want_u[i] = value_of(dy, i) * (double)true_act(act, gate);
        }
        point_call c = {.act = act, .t = {g, u, y}};
        RUN_OK(r, call_glu, &c);
        near_to(r, "glu", y, want, 1e-14, 3e-7);
        c = (point_call){.act = act, .t = {g, u, dy, dg, du}};
        RUN_OK(r, call_glu_bwd, &c);
        near_to(r, "glu_bwd dg", dg, want_g, 1e-13, 5e-7);
        near_to(r, "glu_bwd du", du, want_u, 1e-14, 5e-7);
        set_all(dg, 0);
        set_all(du, 0);
        c.t[4] = NULL;
        RUN_OK(r, call_glu_bwd, &c);
        c.t[3] = rig_absent(r);
        c.t[4] = du;
        RUN_OK(r, call_glu_bwd, &c);
        near_to(r, "glu_bwd dg alone", dg, want_g, 1e-13, 5e-7);
        near_to(r, "glu_bwd du alone", du, want_u, 1e-14, 5e-7);
        c.t[3] = g;
        c.t[4] = u;
        RUN_OK(r, call_glu_bwd, &c);
        near_to(r, "glu_bwd into g", g, want_g, 1e-13, 5e-7);
        near_to(r, "glu_bwd into u", u, want_u, 1e-14, 5e-7);
        free(want); free(want_g); free(want_u);
        rig_clear(r);
    }
    /* gated attention: sigmoid gate and output by heads, gate beside the query */
    st_tensor *qg = NEW_REAL(r, 2, 50, 4 * 2 * 16), *o = NEW_REAL(r, 0, 50, 4, 16), *z = NEW_REAL(r, 5, 50, 4, 16);
    st_tensor *gate = rig_view(r, st_heads(*qg, 16, 4, 16, 32));
    set_random(qg, 1, -3, 3);
    set_random(o, 2, -1, 1);
    double *want = values(z);
    for (int64_t i = 0; i < 50 * 64; i++)
        want[i] = (double)true_act(ST_ACT_SIGMOID, value_of(gate, i)) * value_of(o, i);
    point_call c = {.act = ST_ACT_SIGMOID, .t = {gate, o, z}};
    RUN_OK(r, call_glu, &c);
    near_to(r, "glu of heads", z, want, 1e-14, 3e-7);
    free(want);
    c.t[1] = qg;
    REFUSED(r, call_glu, &c, ST_E_SHAPE, "glu: u is", "[50, 128]", "g is", "[50, 4, 16]");
    rig_clear(r);
}

static void add(rig *r)
{
    st_tensor *x = NEW_REAL(r, 1, 30, 1200), *y = NEW_REAL(r, 2, 30, 1200), *z = NEW_REAL(r, 3, 30, 1200);
    set_random(x, 1, -1, 1);
    set_random(y, 2, -1, 1);
    double *want = values(x);
    for (int64_t i = 0; i < elements(x); i++) want[i] = 0.5 * want[i] - 2 * value_of(y, i);
    point_call c = {.a = 0.5, .b = -2, .t = {x, y, z}};
    RUN_OK(r, call_add, &c);
    near_to(r, "add", z, want, 1e-15, 1e-7);
    c.t[2] = y;
    RUN_OK(r, call_add, &c);
    near_to(r, "add into y", y, want, 1e-15, 1e-7);
    for (int64_t i = 0; i < elements(x); i++) want[i] = 0.5 * value_of(x, i);
    c.t[1] = NULL;
    c.t[2] = x;
    RUN_OK(r, call_add, &c);
    near_to(r, "scaled in place", x, want, 1e-15, 1e-7);
    free(want);
    rig_clear(r);
}

/* Ten steps against the formulas in f64; f32 state must stay within 1e-6. */
static void adamw(rig *r)
{
    enum { N = 20000, STEPS = 10 };
    const double b1 = 0.9, b2 = 0.999, eps = 1e-8, decay = 0.1, clip = 0.5;
    st_tensor *master = NEW_REAL(r, 0, N), *m = NEW_REAL(r, 0, N), *v = NEW_REAL(r, 0, N), *weight = NEW_REAL(r, 0, N);
    st_tensor *grad = NEW_REAL(r, 0, N), *hyper = NEW_REAL(r, 0, 9), *factor = NEW_REAL(r, 0, 1),
              *skip = NEW_REAL(r, 0, 1);
    set_random(master, 1, -1, 1);
    set_value(factor, 0, clip);
    double *p = values(master), *pm = calloc(N, 8), *pv = calloc(N, 8);
    st_adamw a = {
        .master = master, .m = m, .v = v, .weight = weight, .grad = grad, .hyper = hyper, .clip = factor, .skip = skip};
    for (int step = 1; step <= STEPS; step++) {
        double lr = 1e-3 * step, c1 = 1 - pow(b1, step), c2 = 1 - pow(b2, step);
        const double h[9] = {lr, decay, b1, b2, eps, c1, c2, 1 - b1, 1 - b2};
        set_values(hyper, h);
        set_random(grad, 10 + (uint64_t)step, -1, 1);
        for (int i = 0; i < N; i++) {
            double g = clip * value_of(grad, i);
            p[i] *= 1 - lr * decay;
            pm[i] = b1 * pm[i] + (1 - b1) * g;
            pv[i] = b2 * pv[i] + (1 - b2) * g * g;
            p[i] -= lr / c1 * pm[i] / (sqrt(pv[i]) / sqrt(c2) + eps);
        }
        RUN_OK(r, call_adamw, &a);
    }
    near_to(r, "adamw master", master, p, 1e-14, 2e-7);
    near_to(r, "adamw weight", weight, p, 1e-14, 2e-7);
    near_to(r, "adamw m", m, pm, 1e-14, 5e-7);
    near_to(r, "adamw v", v, pv, 1e-14, 5e-7);
    const double skips[] = {1, NAN};
    for (int i = 0; i < 2; i++) {
        double *before = values(master);
        set_value(skip, 0, skips[i]);
        RUN_OK(r, call_adamw, &a);
        near_to(r, "skipped", master, before, 0, 0);
        free(before);
    }
    set_value(skip, 0, 0);
    a.weight = master; /* f32 and f64 runs: one array */
    RUN_OK(r, call_adamw, &a);
    a.hyper = factor;
    REFUSED(r, call_adamw, &a, ST_E_SHAPE, "adamw: hyper is", "[1]", "[9]");
    free(p); free(pm); free(pv);
    rig_clear(r);
}

static void copies(rig *r)
{
    static const int32_t type[] = {ST_F64, ST_F32, ST_I32, ST_I64, ST_U8};
    for (int from = 0; from < 5; from++)
        for (int to = 0; to < 5; to++) {
            st_tensor *src = NEW(r, type[from], 2, 3, 4, 5), *dst = NEW(r, type[to], 1, 3, 4, 5);
            for (int64_t i = 0; i < 60; i++) set_value(src, i, (double)(3 * i + 1));
            point_call c = {.t = {src, dst}};
            if (from != to && to >= 2) {
                REFUSED(r, call_copy, &c, ST_E_UNSUPPORTED, "copy: no conversion");
            } else {
                RUN_OK(r, call_copy, &c);
                for (int64_t i = 0; i < 60; i++) assert_true(value_of(dst, i) == (double)(3 * i + 1));
            }
            rig_clear(r);
        }
    st_tensor *src = NEW_REAL(r, 3, 2, 30, 40, 50), *dst = NEW_REAL(r, 1, 50, 40, 2, 30);
    st_tensor turned = *dst; /* dst seen with the dimensions of src */
    const int from_dim[4] = {2, 3, 1, 0};
    for (int i = 0; i < 4; i++) {
        turned.dim[i] = dst->dim[from_dim[i]];
        turned.stride[i] = dst->stride[from_dim[i]];
    }
    st_tensor *view = rig_view(r, turned);
    set_random(src, 1, -1, 1);
    point_call c = {.t = {src, view}};
    RUN_OK(r, call_copy, &c);
    for (int64_t i = 0; i < elements(src); i++) assert_true(value_of(view, i) == value_of(src, i));
    c.a = 2.5;
    c.t[0] = dst;
    RUN_OK(r, call_fill, &c);
    for (int64_t i = 0; i < elements(dst); i++) assert_true(value_of(dst, i) == 2.5);
    c.t[1] = src;
    REFUSED(r, call_copy, &c, ST_E_SHAPE, "copy: dst is", "[2, 30, 40, 50]", "[50, 40, 2, 30]");
    rig_clear(r);
}

static void test_accuracy(void **state) { rig_each(accuracy); }
static void test_exponential(void **state) { rig_each(exponential); }
static void test_not_finite(void **state) { rig_each(not_finite); }
static void test_glu(void **state) { rig_each(glu); }
static void test_add(void **state) { rig_each(add); }
static void test_adamw(void **state) { rig_each(adamw); }
static void test_copies(void **state) { rig_each(copies); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accuracy), cmocka_unit_test(test_exponential), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_glu),      cmocka_unit_test(test_add),         cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_copies),
    };
    return cmocka_run_group_tests_name("cpu point", tests, NULL, NULL);
}
