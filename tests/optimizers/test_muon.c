/* SPDX-License-Identifier: Apache-2.0 */
/* optimizers/test_muon.c - muon against values that make_muon.py computed from the formulas, its states, and what
 * planning says of them. */
#include "fixture.h"
#include "muon_values.h"
#include <math.h>

#define MODEL(precision, more) \
    "[run]\nbackend = cpu\nprecision = " precision "\npoison = yes\n[stack]\npattern = G*-E\nhidden = 6\nvocab = 7\n" \
    "[layer.G]\nkey_heads = 1\nvalue_heads = 2\nkey_dim = 2\nvalue_dim = 2\n[layer.*]\nheads = 2\nkv_heads = 1\n" \
    "head_dim = 2\n[layer.-]\nwidth = 5\n[layer.E]\nexperts = 2\ntop_k = 1\nwidth = 7\n[position]\nplugin = rope\n" \
    "[batch]\ntokens = 32\nsequences = 4\n[optimizer]\nplugin = muon\nweight_decay = 0.1\n" more

static int seed_of(const char *path)
{
    int sum = 0;
    while (*path) sum += *path++;
    return sum % 97;
}

static double first_weight(const char *path, double k) { return 0.5 * sin(0.7 * k + seed_of(path)); }

static double gradient(const char *path, double k, int step)
{
    return cos(0.3 * step * k + 0.1 * k * k + seed_of(path));
}

static void set(fixture *f, int step)
{
    st_error e = {0};

    for (int32_t i = 0; i < f->model->n_weights; i++) {
        const model_weight *w = f->model->weights[i];
        double *v = ST_NEW_N(f->arena, double, w->pub.count);
        for (int64_t k = 0; k < w->pub.count; k++)
            v[k] = step ? gradient(w->pub.path, (double)k, step) : first_weight(w->pub.path, (double)k);
        if (step) need_ok(st_model_write_grad(f->model, i, v, &e), &e);
        else need_ok(st_model_write(f->model, i, v, &e), &e);
    }
}

static void two_steps(fixture *f)
{
    st_step_result r;
    st_error e = {0};

    set(f, 0);
    for (int step = 1; step <= 2; step++) {
        const st_schedule at = {.size = sizeof at, .step = step, .lr = 0.02, .decay = 1, .lr_scale = 1};
        set(f, step);
        need_ok(st_model_update(f->model, &at, 0, &r, &e), &e);
        assert_int_equal(r.skipped, 0);
    }
}

static void compare(fixture *f, const struct muon_values *list, size_t n, double most)
{
    const st_model_weight *const *w;
    int n_weights = st_model_weights(f->model, &w);
    st_error e = {0};

    for (size_t i = 0; i < n; i++) {
        double got[256], diff = 0, size = 0;
        int at = 0;
        while (at < n_weights && strcmp(w[at]->path, list[i].path)) at++;
        if (at == n_weights) fail_msg("no weight %s", list[i].path);
        assert_int_equal(w[at]->count, list[i].n);
        need_ok(st_model_read(f->model, at, ST_READ_WEIGHT, got, &e), &e);
        for (int k = 0; k < list[i].n; k++) {
            diff += pow(got[k] - list[i].value[k], 2);
            size += pow(list[i].value[k], 2);
        }
        if (!(sqrt(diff) <= most * sqrt(size))) fail_msg("%s: off by %.1e", list[i].path, sqrt(diff / size));
    }
}

static void updates_are_those_of_the_formulas(void **state)
{
    fixture *f = fixture_open(MODEL("f64", ""), 1), *g = fixture_open(MODEL("f32", ""), 1);

    two_steps(f);
    compare(f, as_published, ST_COUNT(as_published), 1e-12);
    two_steps(g);
    compare(g, as_published, ST_COUNT(as_published), 1e-5);
    fixture_close(f);
    fixture_close(g);
}

static void settings_are_followed(void **state)
{
    fixture *f = fixture_open(MODEL("f64", "scale = shape\nnesterov = no\niterations = 3\n"), 1);

    two_steps(f);
    compare(f, other_settings, ST_COUNT(other_settings), 1e-12);
    fixture_close(f);
}

/* A matrix has one state, all else two; each has its weight's shape, whatever sections it is updated by. */
static void matrices_have_one_state(void **state)
{
    static const char *const matrices[] = {"layers.0.in",     "layers.0.out",     "layers.1.qkv",
                                           "layers.1.out",    "layers.2.gate_up", "layers.2.down",
                                           "layers.3.router", "layers.3.gate_up", "layers.3.down"};
    fixture *f = fixture_open(MODEL("f64", ""), 1);
    const st_state_tensor *s;
    int n = st_model_states(f->model, &s), found = 0, others = 0;

    for (int i = 0; i < n; i++) {
        if (!s[i].optimizer) continue;
        if (strncmp(s[i].name, "momentum:", 9)) {
            others++;
            for (size_t k = 0; k < ST_COUNT(matrices); k++) assert_null(strstr(s[i].name, matrices[k]));
            continue;
        }
        for (size_t k = 0; k < ST_COUNT(matrices); k++) found += !strcmp(s[i].name + 9, matrices[k]);
    }
    assert_int_equal(found, ST_COUNT(matrices));
    assert_int_equal(others, 2 * (f->model->n_weights - (int)ST_COUNT(matrices)));
    fixture_close(f);
}

/* Of this model nothing takes as much scratch as the iteration; the plan has seen it to the byte. */
static void plans_count_the_iteration(void **state)
{
    static const int lengths[] = {3, 0};
    const st_schedule at = {.size = sizeof at, .step = 1, .lr = 1e-3, .decay = 1, .lr_scale = 1};
    fixture *f = fixture_open("[run]\nprecision = f64\n[stack]\npattern = -\nhidden = 64\nvocab = 7\n"
                              "[layer.-]\nwidth = 64\n[batch]\ntokens = 4\n[init]\nstd = 0.1\n"
                              "[optimizer]\nplugin = muon\n",
                              1);
    st_packed_row *row = make_row(f, lengths, 0, 5, 0);
    const st_packed_row *rows[] = {row};
    st_plan_bytes plan;
    st_step_result r;
    st_error e = {0};

    st_model_plan_bytes(f->model, &plan);
    f->model->scratch.high = 0;
    need_ok(st_model_step(f->model, rows, 1, &at, 1, &r, &e), &e);
    assert_int_equal(r.skipped, 0);
    assert_int_equal(f->model->scratch.high, plan.scratch);
    assert_true(plan.scratch >= 4 * 64 * 64 * sizeof(double));
    fixture_close(f);
}

/* Nothing moves when the step's gradient is not finite: neither weights nor states. */
static void a_bad_gradient_changes_nothing(void **state)
{
    const st_schedule at = {.size = sizeof at, .step = 3, .lr = 0.02, .decay = 1, .lr_scale = 1};
    fixture *f = fixture_open(MODEL("f64", ""), 1);
    const st_state_tensor *s;
    int n = st_model_states(f->model, &s);
    st_step_result r;
    st_error e = {0};
    char **before = ST_NEW_N(f->arena, char *, n);
    double bad[42];

    two_steps(f);
    for (int i = 0; i < n; i++) {
        before[i] = st_arena_alloc(f->arena, s[i].bytes);
        need_ok(st_model_state_read(f->model, i, 0, s[i].bytes, before[i], &e), &e);
    }
    for (int i = 0; i < 42; i++) bad[i] = NAN;
    need_ok(st_model_write_grad(f->model, f->model->embed, bad, &e), &e);
    need_ok(st_model_update(f->model, &at, 1, &r, &e), &e);
    assert_int_equal(r.skipped, 1);
    for (int i = 0; i < n; i++) {
        char *after = st_arena_alloc(f->arena, s[i].bytes);
        need_ok(st_model_state_read(f->model, i, 0, s[i].bytes, after, &e), &e);
        assert_memory_equal(before[i], after, s[i].bytes);
    }
    fixture_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_are_those_of_the_formulas), cmocka_unit_test(settings_are_followed),
        cmocka_unit_test(matrices_have_one_state),           cmocka_unit_test(plans_count_the_iteration),
        cmocka_unit_test(a_bad_gradient_changes_nothing),
    };
    return cmocka_run_group_tests_name("muon", tests, NULL, NULL);
}
