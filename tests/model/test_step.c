/* SPDX-License-Identifier: Apache-2.0 */
/* model/test_step.c - the step machinery on a small text model of the real plugins, in f64 with memory full of NaN. */
#include "fixture.h"
#include <math.h>

static const int packed[] = {17, 1, 30, 9, 0}, first[] = {17, 1, 0}, second[] = {30, 9, 0},
                 alone[4][2] = {{17, 0}, {1, 0}, {30, 0}, {9, 0}};

static st_step_result gradients(fixture *f, st_packed_row *const *rows, int32_t micros)
{
    st_step_result r;
    st_error e = {0};
    need_ok(st_model_gradients(f->model, (const st_packed_row *const *)rows, micros, &r, &e), &e);
    assert_int_equal(r.skipped, 0);
    return r;
}

static void differences(const char *spec, double limit)
{
    fixture *f = fixture_open(spec, 1);
    st_packed_row *rows[2] = {make_row(f, first, 0, 5, 0), make_row(f, second, 2, 5, 0)};
    const char *where = "";
    double worst = check_differences(f, rows, 2, 4, &where);
    print_message("# worst gradient against differences: %.1e at %s\n", worst, where);
    assert_true(worst < limit);
    fixture_close(f);
}

static void gradients_equal_differences(void **state) { differences(TEXT_MODEL TEXT_BATCH, 1e-8); }

static void tied_gradients_equal_differences(void **state)
{ differences(TEXT_MODEL_WITH("", "tie_embeddings = yes\n") ROPE TEXT_BATCH, 1e-8); }

static void layer_norms_equal_differences(void **state)
{ differences(TEXT_MODEL_WITH("", "norm = layer\n") ROPE TEXT_BATCH, 1e-8); }

/* ---- recompute ---- */

static const char *const droppable[] = {"G.conv", "G.states", "G.norm_out", "*.qk", "*.gated", "-.product"};
enum { DROPS = 6 };

static char *with_recompute(char *out, size_t n, unsigned drops, const char *full)
{
    size_t k = (size_t)snprintf(out, n, "%s%s[recompute]\nfull = %s\n", TEXT_MODEL, TEXT_BATCH, full);
    if (drops) k += (size_t)snprintf(out + k, n - k, "drop =");
    for (int i = 0; i < DROPS; i++)
        if (drops >> i & 1) k += (size_t)snprintf(out + k, n - k, " %s", droppable[i]);
    snprintf(out + k, n - k, "\n");
    return out;
}

static void check_peaks(const st_model *m)
{
    assert_int_equal(m->keep.high, m->peak_keep);
    assert_int_equal(m->scratch.high, m->peak_scratch);
}

static void recompute_gives_the_same_bits(void **state)
{
    static const char *const full[] = {"none", "all", "G", "*,-"};
    double *want = NULL, *g, loss = 0;
    fixture *ref = NULL;
    size_t kept_most = 0, kept_least = SIZE_MAX;
    int64_t n;
    char text[4096];

    for (unsigned mask = 0; mask < 1u << DROPS; mask++)
        for (int k = 0; k < 4; k++) {
            fixture *f;
            st_packed_row *rows[2];
            st_step_result r;
            if (k && mask % 9) continue; /* every subset without recompute, some of them with */
            f = fixture_open(with_recompute(text, sizeof text, mask, full[k]), 1);
            rows[0] = make_row(f, first, 0, 5, 0);
            rows[1] = make_row(f, second, 2, 5, 0);
            r = gradients(f, rows, 2);
            g = all_gradients(f, &n);
            check_peaks(f->model);
            if (f->model->peak_keep > kept_most) kept_most = f->model->peak_keep;
            if (f->model->peak_keep < kept_least) kept_least = f->model->peak_keep;
            if (!ref) {
                ref = f;
                want = g;
                loss = r.loss;
                continue;
            }
            assert_true(r.loss == loss);
            if (memcmp(g, want, (size_t)n * sizeof *g)) fail_msg("full = %s, drop mask %u: other bits", full[k], mask);
            fixture_close(f);
        }
    print_message("# kept %zu bytes at most, %zu at least\n", kept_most, kept_least);
    assert_true(kept_least < kept_most);
    fixture_close(ref);
}

/* ---- rows ---- */

static void two_rows_equal_one(void **state)
{
    fixture *f = fixture_open(TEXT_MODEL TEXT_BATCH, 1);
    st_packed_row *both[1] = {make_row(f, packed, 0, 5, 0)},
                  *two[2] = {make_row(f, first, 0, 5, 0), make_row(f, second, 2, 5, 0)};
    int64_t n;
    double a = gradients(f, both, 1).loss, *ga = all_gradients(f, &n), b = gradients(f, two, 2).loss,
           *gb = all_gradients(f, &n);
    double worst = max_difference(gb, ga, n);

    print_message("# two rows against one: loss %.1e, gradients %.1e\n", fabs(a - b), worst);
    assert_true(fabs(a - b) < 1e-12 && worst < 1e-12);
    fixture_close(f);
}

typedef struct seen {
    double final[96 * 16];
} seen;
static void look(void *ctx, const char *name, int32_t layer, const double *values, int64_t rows, int64_t cols)
{
    seen *s = ctx;
    if (!strcmp(name, "final")) memcpy(s->final, values, (size_t)(rows * cols) * sizeof(double));
}

static void packed_row_equals_segments_alone(void **state)
{
    static seen all, one;
    fixture *f = fixture_open(TEXT_MODEL TEXT_BATCH, 1);
    st_packed_row *row = make_row(f, packed, 0, 5, 0);
    double worst = 0, loss = 0, *want, *sum;
    int64_t n, total = row->trained_count[0];
    st_step_result r;

    st_model_probe(f->model, look, &all);
    r = gradients(f, &row, 1);
    want = all_gradients(f, &n);
    sum = ST_NEW_N(f->arena, double, n);
    st_model_probe(f->model, look, &one);
    for (int i = 0; i < 4; i++) {
        st_packed_row *single = make_row(f, alone[i], i, 5, 0);
        double share = (double)single->trained_count[0] / (double)total, *g;
        st_step_result s;
        if (!single->trained_count[0]) continue;
        s = gradients(f, &single, 1);
        g = all_gradients(f, &n);
        loss += share * s.loss;
        for (int64_t k = 0; k < n; k++) sum[k] += share * g[k];
        worst = fmax(worst, max_difference(one.final, all.final + 16 * row->segments[i], 16 * (int64_t)alone[i][0]));
    }
    print_message("# packed against alone: outputs %.1e, loss %.1e, gradients %.1e\n", worst, fabs(loss - r.loss),
                  max_difference(sum, want, n));
    assert_true(worst < 1e-12 && fabs(loss - r.loss) < 1e-12 && max_difference(sum, want, n) < 1e-12);
    fixture_close(f);
}

static void threads_give_the_same_bits(void **state)
{
    static const int lengths[] = {65, 20, 0};
    double *g[2], loss[2];
    fixture *f[2];
    int64_t n;

    for (int i = 0; i < 2; i++) {
        st_packed_row *row;
        f[i] = fixture_open(i ? TEXT_MODEL_WITH("threads = 2\n", "") ROPE TEXT_BATCH
                              : TEXT_MODEL_WITH("threads = 1\n", "") ROPE TEXT_BATCH,
                            1);
        row = make_row(f[i], lengths, 0, 9, 0);
        loss[i] = gradients(f[i], &row, 1).loss;
        g[i] = all_gradients(f[i], &n);
    }
    assert_true(loss[0] == loss[1]);
    assert_memory_equal(g[0], g[1], (size_t)n * sizeof(double));
    fixture_close(f[0]);
    fixture_close(f[1]);
}

/* ---- freezing ---- */

static int32_t weight_of(const fixture *f, const char *path)
{
    for (int32_t i = 0; i < f->model->n_weights; i++)
        if (!strcmp(f->model->weights[i]->pub.path, path)) return i;
    fail_msg("no weight %s", path);
    return -1;
}

static double *value_of(fixture *f, int32_t i, int what)
{
    double *v = ST_NEW_N(f->arena, double, f->model->weights[i]->pub.count);
    st_error e = {0};
    need_ok(st_model_read(f->model, i, what, v, &e), &e);
    return v;
}

static void frozen_blocks_do_no_backward(void **state)
{
    fixture *f = fixture_open(TEXT_MODEL TEXT_BATCH, 1),
            *g = fixture_open(TEXT_MODEL TEXT_BATCH "[part.language]\nlast_blocks = 1\n", 1);
    st_packed_row *row = make_row(f, packed, 0, 5, 0), *row2 = make_row(g, packed, 0, 5, 0);
    int32_t below = weight_of(g, "layers.0.in"), above = weight_of(g, "layers.2.qkv");
    size_t bytes = (size_t)f->model->weights[above]->pub.count * sizeof(double);
    double *before = value_of(g, below, ST_READ_WEIGHT), *moved = value_of(g, above, ST_READ_WEIGHT);
    st_schedule at = {sizeof at, 0, 1, 1e-2, 0, 0};
    st_step_result r;
    st_error e = {0};

    gradients(f, &row, 1);
    need_ok(st_model_step(g->model, (const st_packed_row *const *)&row2, 1, &at, 1.0, &r, &e), &e);
    assert_memory_equal(value_of(f, above, ST_READ_GRAD), value_of(g, above, ST_READ_GRAD), bytes);
    assert_memory_equal(before, value_of(g, below, ST_READ_WEIGHT),
                        (size_t)g->model->weights[below]->pub.count * sizeof(double));
    assert_memory_not_equal(moved, value_of(g, above, ST_READ_WEIGHT), bytes);
    assert_int_equal(st_model_read(g->model, below, ST_READ_GRAD, before, &e), ST_E_NOTFOUND);
    assert_int_equal(g->model->trunk->first, 2);
    print_message("# frozen below: %.0f of %.0f FLOPs\n", st_model_flops(g->model), st_model_flops(f->model));
    assert_true(st_model_flops(g->model) < 0.85 * st_model_flops(f->model));
    assert_true(g->model->peak_keep < f->model->peak_keep);
    fixture_close(f);
    fixture_close(g);
}

/* ---- learning, guard ---- */

static void steps_lower_the_loss(void **state)
{
    fixture *f = fixture_open(TEXT_MODEL TEXT_BATCH, 1);
    st_packed_row *rows[2] = {make_row(f, first, 0, 5, 0), make_row(f, second, 2, 5, 0)};
    double before = 0;
    st_step_result r;
    st_error e = {0};

    for (int i = 1; i <= 40; i++) {
        st_schedule at = {sizeof at, 0, i, 1e-2, 0, 0};
        need_ok(st_model_step(f->model, (const st_packed_row *const *)rows, 2, &at, 1.0, &r, &e), &e);
        assert_int_equal(r.skipped, 0);
        assert_int_equal(r.tokens, 57);
        if (i == 1) before = r.loss;
    }
    print_message("# loss %.3f -> %.3f\n", before, r.loss);
    assert_true(r.loss < 0.5 * before);
    assert_int_equal(r.n_metrics, 1);
    assert_string_equal(r.metrics[0].name, "loss");
    assert_true(fabs(r.metrics[0].value - r.loss) < 1e-12);
    fixture_close(f);
}

static void expect_bad(fixture *f, const char *path, int64_t element, double value, const char *words)
{
    st_packed_row *row = make_row(f, packed, 0, 5, 0);
    int32_t i = weight_of(f, path), other = weight_of(f, "layers.3.down");
    double *v = value_of(f, i, ST_READ_WEIGHT), was = v[element], *before = value_of(f, other, ST_READ_WEIGHT);
    st_schedule at = {sizeof at, 0, 1, 1e-2, 0, 0};
    st_step_result r;
    st_error e = {0};

    v[element] = value;
    need_ok(st_model_write(f->model, i, v, &e), &e);
    need_ok(st_model_step(f->model, (const st_packed_row *const *)&row, 1, &at, 1.0, &r, &e), &e);
    assert_int_equal(r.skipped, 1);
    if (!strstr(r.bad, words)) fail_msg("'%s' does not say '%s'", r.bad, words);
    if (other != i)
        assert_memory_equal(before, value_of(f, other, ST_READ_WEIGHT),
                            (size_t)f->model->weights[other]->pub.count * sizeof(double));
    v[element] = was;
    need_ok(st_model_write(f->model, i, v, &e), &e);
}

/* ---- learned positions: a table that is added to the embedding ---- */

#define LEARNED(precision) \
    "[run]\nbackend = cpu\nprecision = " precision "\n[stack]\npattern = *-\nhidden = 16\nvocab = 23\n" \
    "[layer.*]\nheads = 2\nkv_heads = 1\nhead_dim = 8\n[layer.-]\nwidth = 24\n[init]\nstd = 0.3\n" \
    "[position]\nplugin = learned_absolute\nmax_positions = 96\n[optimizer]\nplugin = adamw\n" TEXT_BATCH

static void learned_positions_equal_differences(void **state) { differences(LEARNED("f64"), 1e-8); }

static double learned_gradients(const char *spec, double *row_0)
{
    fixture *f = fixture_open(spec, 1);
    const st_packed_row *row = make_row(f, packed, 0, 5, 0);
    st_step_result r;
    st_error e = {0};

    need_ok(st_model_gradients(f->model, &row, 1, &r, &e), &e);
    memcpy(row_0, value_of(f, weight_of(f, "position.table"), ST_READ_GRAD), 16 * sizeof *row_0);
    fixture_close(f);
    return r.loss;
}

static void learned_positions_are_the_same_in_f32(void **state)
{
    double exact[16], single[16], loss = learned_gradients(LEARNED("f64"), exact);

    assert_true(fabs(learned_gradients(LEARNED("f32"), single) - loss) < 1e-5 * loss);
    for (int i = 0; i < 16; i++) assert_true(fabs(single[i] - exact[i]) < 1e-5);
    assert_true(fabs(exact[0]) > 1e-4); /* every sequence has a first token */
}

/* A number outside the vocabulary: the kernel raises a fault, the host words it with the part that ran. */
static void a_fault_changes_nothing(int label, const char *words)
{
    fixture *f = fixture_open(TEXT_MODEL TEXT_BATCH, 1);
    st_packed_row *row = make_row(f, packed, 0, 5, 0);
    double *before = value_of(f, 0, ST_READ_WEIGHT);
    st_schedule at = {sizeof at, 0, 1, 1e-2, 0, 0};
    st_step_result r;
    st_error e = {0};

    (label ? row->labels : row->ids)[row->trained[0]] = 1000;
    need_ok(st_model_step(f->model, (const st_packed_row *const *)&row, 1, &at, 1.0, &r, &e), &e);
    print_message("# %s\n", r.bad);
    assert_int_equal(r.skipped, 1);
    assert_string_equal(r.bad, words);
    assert_memory_equal(before, value_of(f, 0, ST_READ_WEIGHT),
                        (size_t)f->model->weights[0]->pub.count * sizeof(double));
    fixture_close(f);
}

static void faults_change_nothing_and_are_named(void **state)
{
    a_fault_changes_nothing(1, "head.lm (lm): an index is out of range (1000, 23)");
    a_fault_changes_nothing(0, "the host: an index is out of range (1000, 23)");
}

/* Gradients from outside: the first bad one in backward order is named, good ones move weights. */
static void a_bad_gradient_is_named(void **state)
{
    fixture *f = fixture_open(TEXT_MODEL TEXT_BATCH, 1);
    st_packed_row *row = make_row(f, packed, 0, 5, 0);
    int32_t low = weight_of(f, "layers.0.in"), high = weight_of(f, "layers.3.down");
    double *a = value_of(f, low, ST_READ_WEIGHT), *b = value_of(f, high, ST_READ_WEIGHT);
    st_schedule at = {sizeof at, 0, 1, 1e-2, 0, 0};
    st_step_result r;
    st_error e = {0};

    gradients(f, &row, 1);
    need_ok(st_model_update(f->model, &at, 1.0, &r, &e), &e);
    assert_int_equal(r.skipped, 0);
    a[5] = b[5] = INFINITY;
    need_ok(st_model_write_grad(f->model, low, a, &e), &e);
    need_ok(st_model_write_grad(f->model, high, b, &e), &e);
    need_ok(st_model_update(f->model, &at, 1.0, &r, &e), &e);
    assert_int_equal(r.skipped, 1);
    assert_string_equal(r.bad, "gradient: layers.3.down");
    fixture_close(f);
}

static void a_bad_value_changes_nothing_and_is_named(void **state)
{
    fixture *f = fixture_open(TEXT_MODEL TEXT_BATCH, 1);

    expect_bad(f, "layers.1.gate_up", 3, NAN, "weight: layers.1.gate_up element 3");
    expect_bad(f, "layers.2.pre_norm", 0, 1e308, "activation: residual behind layers.2 (*, attention)");
    fixture_close(f);
}

static void a_call_that_was_not_planned_is_refused(void **state)
{
    fixture *f = fixture_open(TEXT_MODEL TEXT_BATCH, 1);
    st_packed_row *row = make_row(f, packed, 0, 5, 0);
    st_step_result r;
    st_error e = {0};

    f->model->scratch.cap -= 4096;
    assert_int_equal(st_model_gradients(f->model, (const st_packed_row *const *)&row, 1, &r, &e), ST_E_NOMEM);
    assert_non_null(strstr(e.message, "the plan did not see this call"));
    fixture_close(f);
}

static void a_layer_runs_alone(void **state)
{
    fixture *f = fixture_open(TEXT_MODEL TEXT_BATCH, 1);
    st_packed_row *row = make_row(f, packed, 0, 5, 0);
    static double x[96 * 16], y[96 * 16], y2[96 * 16], dy[96 * 16], dx[96 * 16];
    double h = 1e-6, worst = 0;
    st_error e = {0};

    for (int layer = 0; layer < 4; layer++) {
        st_normal(3, 1, 0, 96 * 16, x);
        st_normal(3, 2, 0, 96 * 16, dy);
        memset(dy + 57 * 16, 0, (96 - 57) * 16 * sizeof *dy); /* capacity rows have no gradient */
        need_ok(st_model_layer_run(f->model, layer, row, x, y, dy, dx, &e), &e);
        for (int k = 0; k < 6; k++) {
            int64_t at = (int64_t)(st_random_u64(4, (uint64_t)layer, k) % (57 * 16));
            double was = x[at], up = 0, down = 0;
            x[at] = was + h;
            need_ok(st_model_layer_run(f->model, layer, row, x, y, NULL, NULL, &e), &e);
            x[at] = was - h;
            need_ok(st_model_layer_run(f->model, layer, row, x, y2, NULL, NULL, &e), &e);
            x[at] = was;
            for (int i = 0; i < 57 * 16; i++) {
                up += y[i] * dy[i];
                down += y2[i] * dy[i];
            }
            worst = fmax(worst, fabs((up - down) / (2 * h) - dx[at]) / (1 + fabs(dx[at])));
        }
    }
    print_message("# single layers against differences: %.1e\n", worst);
    assert_true(worst < 1e-6);
    fixture_close(f);
}

static void states_round_trip(void **state)
{
    fixture *f = fixture_open(TEXT_MODEL TEXT_BATCH, 1), *g = fixture_open(TEXT_MODEL TEXT_BATCH, 1);
    st_packed_row *row = make_row(f, packed, 0, 5, 0);
    const st_state_tensor *s;
    st_schedule at = {sizeof at, 0, 1, 1e-2, 0, 0};
    int n = st_model_states(f->model, &s);
    st_step_result a, b;
    st_error e = {0};

    need_ok(st_model_step(f->model, (const st_packed_row *const *)&row, 1, &at, 1.0, &a, &e), &e);
    for (int i = 0; i < n; i++) {
        void *bits = st_arena_alloc(f->arena, s[i].bytes);
        need_ok(st_model_state_read(f->model, i, 0, s[i].bytes, bits, &e), &e);
        need_ok(st_model_state_write(g->model, i, bits, &e), &e);
    }
    at.step = 2;
    need_ok(st_model_step(f->model, (const st_packed_row *const *)&row, 1, &at, 1.0, &a, &e), &e);
    need_ok(st_model_step(g->model, (const st_packed_row *const *)&row, 1, &at, 1.0, &b, &e), &e);
    assert_true(a.loss == b.loss && a.grad_norm == b.grad_norm);
    assert_memory_equal(value_of(f, 0, ST_READ_WEIGHT), value_of(g, 0, ST_READ_WEIGHT),
                        (size_t)f->model->weights[0]->pub.count * sizeof(double));
    fixture_close(f);
    fixture_close(g);
}

static int no_devices(const void *self, const st_host *host, const char **why)
{
    *why = "all are asleep";
    return 0;
}

static void a_backend_without_devices_is_not_opened(void **state)
{
    st_diags d = {0};
    st_error e = {0};
    fixture *f = fixture_build(TEXT_MODEL TEXT_BATCH, 1, &d);

    assert_non_null(f);
    f->model->be.count = no_devices;
    assert_int_equal(st_model_open(f->model, &e), ST_E_DEVICE);
    assert_string_equal(e.message, "backend cpu has no device 0 to use: all are asleep");
    assert_null(f->model->device);
    fixture_close(f);
}

static void a_profile_marks_products(void **state)
{
    static const char *const products[] = {"linear",    "linear_dx",           "linear_dw",
                                           "attention", "attention_gated_bwd", "xent"},
                            *const others[] = {"norm", "qk_norm", "glu", "lookup", "gdn_rule"};
    fixture *f = fixture_open(TEXT_MODEL TEXT_BATCH, 1);
    st_packed_row *row = make_row(f, packed, 0, 5, 0);
    const st_op_time *t;
    int n, right = 0;

    st_model_profile(f->model, 1);
    gradients(f, &row, 1);
    n = st_model_times(f->model, &t);
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < ST_COUNT(products); k++)
            if (!strcmp(t[i].name, products[k])) right |= t[i].product ? 1 << k : 1 << 30;
        for (size_t k = 0; k < ST_COUNT(others); k++)
            if (!strcmp(t[i].name, others[k])) right |= t[i].product ? 1 << 30 : 1 << (ST_COUNT(products) + k);
    }
    assert_int_equal(right, (1 << (ST_COUNT(products) + ST_COUNT(others))) - 1);
    fixture_close(f);
}

/* The k-th launch of a name that a layer makes in a pass is one place, however many passes there are. */
static void a_profile_tells_places(void **state)
{
    fixture *f = fixture_open(TEXT_MODEL TEXT_BATCH, 1);
    st_packed_row *row = make_row(f, packed, 0, 5, 0);
    const st_op_time *t;
    int n, rules = 0, products = 0;

    st_model_profile(f->model, 1);
    for (int i = 0; i < 3; i++) gradients(f, &row, 1);
    n = st_model_times(f->model, &t);
    for (int i = 0; i < n; i++) {
        int lowest = !strcmp(t[i].path, "layers.0");
        assert_true(t[i].bytes > 0);
        assert_int_equal(t[i].calls, 3);
        rules += lowest && t[i].symbol == 'G' && !strcmp(t[i].name, "gdn_rule");
        products += lowest && t[i].symbol == 'G' && !strcmp(t[i].name, "linear");
    }
    assert_int_equal(rules, 1);
    assert_int_equal(products, 2);
    fixture_close(f);
}

/* What a step launches is known from its plan, each name once. */
static void a_plan_knows_the_launches(void **state)
{
    fixture *f = fixture_open(TEXT_MODEL TEXT_BATCH, 1);
    st_packed_row *row = make_row(f, packed, 0, 5, 0);
    const st_op_time *t;
    int n, names = 0;

    while (st_model_launch(f->model, names)) names++;
    st_model_profile(f->model, 1);
    gradients(f, &row, 1);
    n = st_model_times(f->model, &t);
    for (int i = 0; i < n; i++) {
        int found = 0;
        for (int k = 0; k < names; k++) found += !strcmp(st_model_launch(f->model, k), t[i].name);
        assert_int_equal(found, 1);
    }
    fixture_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(tied_gradients_equal_differences),
        cmocka_unit_test(layer_norms_equal_differences),
        cmocka_unit_test(learned_positions_equal_differences),
        cmocka_unit_test(learned_positions_are_the_same_in_f32),
        cmocka_unit_test(recompute_gives_the_same_bits),
        cmocka_unit_test(two_rows_equal_one),
        cmocka_unit_test(packed_row_equals_segments_alone),
        cmocka_unit_test(threads_give_the_same_bits),
        cmocka_unit_test(frozen_blocks_do_no_backward),
        cmocka_unit_test(steps_lower_the_loss),
        cmocka_unit_test(faults_change_nothing_and_are_named),
        cmocka_unit_test(a_bad_gradient_is_named),
        cmocka_unit_test(a_bad_value_changes_nothing_and_is_named),
        cmocka_unit_test(a_call_that_was_not_planned_is_refused),
        cmocka_unit_test(a_layer_runs_alone),
        cmocka_unit_test(states_round_trip),
        cmocka_unit_test(a_backend_without_devices_is_not_opened),
        cmocka_unit_test(a_profile_marks_products),
        cmocka_unit_test(a_profile_tells_places),
        cmocka_unit_test(a_plan_knows_the_launches),
    };
    return cmocka_run_group_tests_name("step", tests, NULL, NULL);
}
