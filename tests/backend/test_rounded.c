/* SPDX-License-Identifier: Apache-2.0 */
/* test_rounded.c - rounding at random (strata/rounding.h): no bias, exact values, random bits that are even and independent; and
 * adamw_rounded of the cpu backend, which other backends must equal in every bit: against the formulas in f64, in shares, and over
 * many steps too small for rounding to the nearest. */
#include "fixture.h"

/* ---- one value ---- */

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Over all sixteen random bits, exactly as many go up as the bits cut off say: the mean is the value. */
static void mean_is_the_value(void **state)
{
    for (int k = 0; k < 300; k++) {
        uint32_t own = (uint32_t)(random_at(1, k) * 0xffffffffu), ups = 0;
        float x = float_of(own);
        if (!isfinite(x)) continue;
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            uint16_t got = st_round_bf16(x, bits);
            if (got != own >> 16) assert_int_equal(got, (own >> 16) + 1);
            ups += got != own >> 16;
        }
        assert_int_equal(ups, own & 0xffff);
    }
}

static void what_bf16_has_stays(void **state)
{
    static const uint32_t some[] = {0, 1, 0x7fff, 0x8000, 0xffff};
    for (uint32_t own = 0; own < 0x10000; own++)
        for (size_t i = 0; i < ST_COUNT(some); i++) {
            uint16_t got = st_round_bf16(st_bf16_value((uint16_t)own), some[i]);
            if (isnan(st_bf16_value((uint16_t)own))) assert_true(isnan(st_bf16_value(got)));
            else assert_int_equal(got, own);
        }
}

static void nan_stays(void **state)
{
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffffffff, 0x7f80ffff};
    for (size_t i = 0; i < ST_COUNT(nans); i++)
        for (uint32_t bits = 0; bits < 0x10000; bits++)
            assert_true(isnan(st_bf16_value(st_round_bf16(float_of(nans[i]), bits))));
}

/* ---- random bits ---- */

/* Six deviations of the mean of n fair bits, or of products of two. */
static void assert_even(double sum, double n)
{
    if (fabs(sum / n - 0.5) > 6 * 0.5 / sqrt(n)) fail_msg("%g of %g bits are set", sum, n);
}

enum { ELEMENTS, STEPS, SEEDS, KINDS, WAYS };
static uint32_t bits_along(int way, int i)
{
    uint64_t step = way == STEPS ? (uint64_t)i : 7, seed = way == SEEDS ? (uint64_t)i : 1;
    return st_round_bits(st_round_key(seed, step, way == KINDS ? (uint32_t)i : 0), way == ELEMENTS ? (uint64_t)i : 12345);
}

static void bits_are_even(void **state)
{
    enum { N = 1 << 17, AWAY = 5 };
    for (int way = 0; way < WAYS; way++) {
        double set[16] = {0}, same[AWAY][16] = {{0}};
        for (int i = 0; i < N; i++) {
            uint32_t here = bits_along(way, i);
            assert_true(here < 0x10000);
            for (int b = 0; b < 16; b++) set[b] += here >> b & 1;
            for (int k = 1; k < AWAY; k++) {
                uint32_t other = here ^ bits_along(way, i + k);
                for (int b = 0; b < 16; b++) same[k][b] += other >> b & 1;
            }
        }
        for (int b = 0; b < 16; b++) assert_even(set[b], N);
        for (int k = 1; k < AWAY; k++)
            for (int b = 0; b < 16; b++) assert_even(same[k][b], N);
    }
}

/* What is rounded: a value off the grid, along each way. Its mean is the value, within six deviations. */
static void rounded_means(void **state)
{
    enum { N = 1 << 18 };
    static const float some[] = {1.0001f, -3.1415927f, 1.5e-8f, 77.3f, -1.00389f};
    for (int way = 0; way < WAYS; way++)
        for (size_t k = 0; k < ST_COUNT(some); k++) {
            double sum = 0, unit = ldexp(1, ilogbf(some[k]) - 7);
            for (int i = 0; i < N; i++) sum += (double)st_bf16_value(st_round_bf16(some[k], bits_along(way, i)));
            assert_true(fabs(sum / N - (double)some[k]) < 6 * 0.5 * unit / sqrt(N));
        }
}

static void four_at_once_are_the_four(void **state)
{
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t key = st_round_key(i, i * 3, 2);
        for (uint64_t k = 0; k < 4; k++)
            assert_int_equal(st_round_bits(key, i * 4 + k), st_round_bits4(key, i) >> 16 * k & 0xffff);
    }
}

/* ---- AdamW ---- */

static int call_rounded(const st_queue *q, const st_ops *ops, void *ctx) { return ops->adamw_rounded(q, ctx); }

typedef struct set { st_tensor *master, *m, *v, *grad, *hyper, *clip, *skip, *step, *weight; st_adamw_rounded a; } set;

static void make(rig *r, set *s, int32_t master, int32_t moments, int32_t weight, int64_t n)
{
    *s = (set){.master = NEW(r, master, 0, n), .m = NEW(r, moments, 0, n), .v = NEW(r, moments, 0, n),
               .grad = NEW(r, ST_F32, 0, n), .hyper = NEW(r, ST_F32, 0, 9), .clip = NEW(r, ST_F32, 0, 1),
               .skip = NEW(r, ST_F32, 0, 1), .step = NEW(r, ST_F32, 0, 1), .weight = weight ? NEW(r, weight, 0, n) : NULL};
    s->a = (st_adamw_rounded){.of = {.master = s->master, .m = s->m, .v = s->v, .weight = s->weight, .grad = s->grad,
                                     .hyper = s->hyper, .clip = s->clip, .skip = s->skip},
                              .step = s->step, .seed = 11};
    set_random(s->master, 1, -1, 1);
    set_random(s->m, 2, -0.01, 0.01);
    set_random(s->v, 3, 0, 0.01);
    set_random(s->grad, 4, -1, 1);
    set_value(s->clip, 0, 0.5);
    set_value(s->step, 0, 3);
}

static const double lr = 0.01, decay = 0.1, b1 = 0.9, b2 = 0.95, eps = 1e-8;
static void set_hyper(const set *s, double rate, double step)
{
    const double h[9] = {rate, decay, b1, b2, eps, 1 - pow(b1, step), 1 - pow(b2, step), 1 - b1, 1 - b2};
    set_values(s->hyper, h);
}

/* Each value is near `want`, and those in bf16 are it on average; below `least` terms cancel, and that is no matter of rounding. */
static void assert_rounded(const char *what, const st_tensor *t, const double *want, double least)
{
    double off = 0, n = 0, limit = t->dtype == ST_BF16 ? 0x1p-7 : 4e-7;
    for (int64_t i = 0; i < elements(t); i++) {
        double d = (value_of(t, i) - want[i]) / want[i];
        if (fabs(want[i]) < least) continue;
        n++;
        if (!(fabs(d) < limit)) fail_msg("%s: element %lld is %g, not %g", what, (long long)i, value_of(t, i), want[i]);
        off += d;
    }
    assert_true(n > (double)elements(t) / 2);
    if (t->dtype == ST_BF16 && fabs(off / n) > 6 * limit / 2 / sqrt(n)) fail_msg("%s: off by %g on average", what, off / n);
}

static void formulas(rig *r, int32_t master, int32_t moments, int32_t weight)
{
    enum { N = 40000 };
    set s;
    make(r, &s, master, moments, weight, N);
    set_hyper(&s, lr, 3);
    double *p = values(s.master), *m = values(s.m), *v = values(s.v);
    for (int i = 0; i < N; i++) {
        double g = 0.5 * value_of(s.grad, i);
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        p[i] -= lr * (decay * p[i] + m[i] / (1 - pow(b1, 3)) / (sqrt(v[i] / (1 - pow(b2, 3))) + eps));
    }
    RUN_OK(r, call_rounded, &s.a);
    assert_rounded("master", s.master, p, 0.05);
    assert_rounded("m", s.m, m, 0.005);
    assert_rounded("v", s.v, v, 1e-6);
    for (int i = 0; s.weight && i < N; i++) { /* to the nearest */
        double w = value_of(s.weight, i), q = value_of(s.master, i);
        assert_true(fabs(w - q) <= ldexp(1, ilogb(q) - 8));
    }
    set_value(s.skip, 0, NAN);
    double *before = values(s.master);
    RUN_OK(r, call_rounded, &s.a);
    near_to(r, "skipped", s.master, before, 0, 0);
    free(p), free(m), free(v), free(before);
    rig_clear(r);
}

/* The state after the call on elements [from, from + n) alone. */
static void run_share(rig *r, const set *s, int64_t from, int64_t n)
{
    st_tensor master = st_rows(*s->master, from, n), m = st_rows(*s->m, from, n), v = st_rows(*s->v, from, n),
              grad = st_rows(*s->grad, from, n);
    st_adamw_rounded a = s->a;
    a.of.master = &master, a.of.m = &m, a.of.v = &v, a.of.grad = &grad;
    a.first += from;
    RUN_OK(r, call_rounded, &a);
}

static void shares(rig *r)
{
    enum { N = 50000, CUT = 192 * 64 };
    set s;
    make(r, &s, ST_BF16, ST_BF16, ST_NONE, N);
    set_hyper(&s, lr, 3);
    st_tensor *const state[] = {s.master, s.m, s.v};
    double *start[3], *whole[3];
    for (int i = 0; i < 3; i++) start[i] = values(state[i]);
    RUN_OK(r, call_rounded, &s.a);
    for (int i = 0; i < 3; i++) {
        whole[i] = values(state[i]);
        set_values(state[i], start[i]);
    }
    run_share(r, &s, CUT, N - CUT);
    run_share(r, &s, 0, CUT);
    for (int i = 0; i < 3; i++) near_to(r, "in shares", state[i], whole[i], 0, 0);
    for (int other = 0; other < 3; other++) { /* another step, seed or place: other bits */
        int64_t differ = 0;
        for (int i = 0; i < 3; i++) set_values(state[i], start[i]);
        st_adamw_rounded a = s.a;
        if (other == 0) set_value(s.step, 0, 4);
        if (other == 1) a.seed++;
        if (other == 2) a.first = 4;
        RUN_OK(r, call_rounded, &a);
        set_value(s.step, 0, 3);
        for (int64_t i = 0; i < N; i++) differ += value_of(s.v, i) != whole[2][i];
        assert_true(differ > N / 8);
    }
    for (int i = 0; i < 3; i++) free(start[i]), free(whole[i]);
    rig_clear(r);
}

/* Weights of 1 that lose 1e-4 a step, a fortieth of the distance to the next bf16 below, and a mean square that forgets a twentieth
 * of a unit: to the nearest, neither would ever move. */
static void small_steps_add_up(rig *r)
{
    enum { N = 4096, TIMES = 400 };
    const double keep = 0.9998;
    set s;
    make(r, &s, ST_BF16, ST_BF16, ST_NONE, N);
    set_all(s.master, 1), set_all(s.m, 0), set_all(s.v, 1), set_all(s.grad, 0);
    const double h[9] = {1e-4, 1, 0.9, keep, 1e-8, 1, 1, 0.1, 1 - keep}; /* the weight decays by its rate alone */
    set_values(s.hyper, h);
    for (int i = 1; i <= TIMES; i++) {
        set_value(s.step, 0, i);
        RUN_OK(r, call_rounded, &s.a);
    }
    double weight = 0, square = 0;
    for (int64_t i = 0; i < N; i++) weight += value_of(s.master, i), square += value_of(s.v, i);
    /* a step's variance is at most unit x change; the sum of steps has a deviation of at most root(unit x all change) */
    const double want_w = pow(1 - 1e-4, TIMES), want_v = pow(keep, TIMES);
    assert_true(fabs(weight / N - want_w) < 6 * sqrt(0x1p-8 * (1 - want_w) / N));
    assert_true(fabs(square / N - want_v) < 6 * sqrt(0x1p-8 * (1 - want_v) / N));
    for (int64_t i = 0; i < N; i++) assert_true(value_of(s.m, i) == 0);
    rig_clear(r);
}

static void refused(rig *r)
{
    set s, half;
    make(r, &s, ST_F32, ST_BF16, ST_BF16, 20);
    make(r, &half, ST_BF16, ST_BF16, ST_BF16, 20);
    REFUSED(r, call_rounded, &half.a, ST_E_SHAPE, "weight is apart from a master in bf16");
    half.a.of.weight = half.master; /* the same memory: as if it were not given */
    RUN_OK(r, call_rounded, &half.a);
    half.a.of.v = s.grad;
    REFUSED(r, call_rounded, &half.a, ST_E_SHAPE, "adamw_rounded: v is f32 [20], it must be bf16 [20]");
    s.a.step = NULL;
    REFUSED(r, call_rounded, &s.a, ST_E_SHAPE, "adamw_rounded: step is absent, it must be f32 [1]");
    s.a.step = s.step;
    s.a.of.grad = s.m;
    REFUSED(r, call_rounded, &s.a, ST_E_SHAPE, "adamw_rounded: grad is bf16 [20], it must be f32 [20]");
    s.a.of.grad = s.grad;
    s.a.first = -1;
    REFUSED(r, call_rounded, &s.a, ST_E_SHAPE, "first is -1");
    rig_clear(r);
}

static void with_rig(void (*test)(rig *))
{
    rig *r = malloc(sizeof *r);
    rig_open(r, ST_F32, 0);
    test(r);
    rig_close(r);
    free(r);
}
static void all_formulas(rig *r)
{
    formulas(r, ST_F32, ST_F32, ST_BF16);
    formulas(r, ST_F32, ST_BF16, ST_BF16);
    formulas(r, ST_BF16, ST_F32, ST_NONE);
    formulas(r, ST_BF16, ST_BF16, ST_NONE);
}
static void test_formulas(void **state) { with_rig(all_formulas); }
static void test_shares(void **state) { with_rig(shares); }
static void test_small_steps(void **state) { with_rig(small_steps_add_up); }
static void test_refused(void **state) { with_rig(refused); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mean_is_the_value), cmocka_unit_test(what_bf16_has_stays),
        cmocka_unit_test(nan_stays),         cmocka_unit_test(bits_are_even),
        cmocka_unit_test(rounded_means),     cmocka_unit_test(four_at_once_are_the_four),
        cmocka_unit_test(test_formulas),     cmocka_unit_test(test_shares),
        cmocka_unit_test(test_small_steps),  cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("rounded at random", tests, NULL, NULL);
}
