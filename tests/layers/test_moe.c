/* SPDX-License-Identifier: Apache-2.0 */
/* The mixture of experts as a layer: against a reference in plain loops, against differences, and what must never
 * happen to padding, idle experts and rows over a capacity. */
#include "layer_checks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { H = 9 };
#define MIXED 1 << 7 | 1 << 9 | 1 << 11 | 1 << 12 /* sorted, product, shared_product, shared_out */

static void set_weights(mock *m, uint64_t *state)
{
    for (int i = 0; i < m->n_weights; i++) mock_fill_normal(m->weight[i].value, m->weight[i].n, 0.5, state);
}
static const char *const plain[] = {"experts",      "5", "top_k", "2",    "width", "7",
                                    "shared_width", "6", "aux",   "none", NULL};
static const char *const all_of_four[] = {"experts", "4", "top_k", "4", "width", "3", "aux", "none", NULL};
static const char *const mostly_idle[] = {"experts", "70", "top_k", "3", "width", "4", "aux", "none", NULL};
static const char *const only_one[] = {"experts",      "6", "top_k", "1",    "width", "5",
                                       "shared_width", "3", "aux",   "none", NULL};
static const layer_case plain_case = {"moe", plain, H, set_weights, 0};
static const layer_case four_case = {"moe", all_of_four, H, set_weights, 0};
static const layer_case idle_case = {"moe", mostly_idle, 5, set_weights, 0};
static const layer_case one_case = {"moe", only_one, 7, set_weights, 0};

static void two_of_five(void **unused) { check_all(&plain_case, MIXED, 5e-6); }
static void top_k_equals_experts(void **unused) { check_all(&four_case, MIXED, 5e-6); }
static void more_experts_than_picks(void **unused) { check_all(&idle_case, MIXED, 5e-6); }
static void one_expert_per_token(void **unused) { check_all(&one_case, MIXED, 5e-6); }

/* ---- the reference ---- */

typedef struct router {
    double p[128], share[128];
    int32_t choice[128];
} router;

/* Softmax, the k largest (the lower expert on a tie), their shares. */
static router route(const mock *m, const double *weight, int64_t experts, int64_t k, const double *x)
{
    router r;
    double top = -INFINITY, sum = 0, chosen = 0;
    const int64_t h = m->env.hidden;
    for (int64_t e = 0; e < experts; e++) {
        r.p[e] = 0;
        for (int64_t i = 0; i < h; i++) r.p[e] += weight[e * h + i] * x[i];
        top = fmax(top, r.p[e]);
    }
    for (int64_t e = 0; e < experts; e++) sum += r.p[e] = exp(r.p[e] - top);
    for (int64_t e = 0; e < experts; e++) r.p[e] /= sum;
    for (int64_t j = 0; j < k; j++) {
        r.choice[j] = -1;
        for (int32_t e = 0; e < experts; e++) {
            int taken = 0;
            for (int64_t i = 0; i < j; i++) taken |= r.choice[i] == e;
            if (!taken && (r.choice[j] < 0 || r.p[e] > r.p[r.choice[j]])) r.choice[j] = e;
        }
        chosen += r.share[j] = r.p[r.choice[j]];
    }
    for (int64_t j = 0; j < k; j++) r.share[j] /= chosen;
    return r;
}
/* y += factor down(silu(gate x) * up x) */
static void add_mlp(const double *gate_up, const double *down, int64_t width, int64_t h, const double *x, double factor,
                    double *y)
{
    double a[16];
    for (int64_t w = 0; w < width; w++) {
        double g = 0, u = 0;
        for (int64_t i = 0; i < h; i++) {
            g += gate_up[w * h + i] * x[i];
            u += gate_up[(width + w) * h + i] * x[i];
        }
        a[w] = g / (1 + exp(-g)) * u;
    }
    for (int64_t o = 0; o < h; o++)
        for (int64_t w = 0; w < width; w++) y[o] += factor * down[o * width + w] * a[w];
}
static void reference(mock *m, int64_t experts, int64_t k, int64_t width, int64_t shared, const double *x, double *y)
{
    const int64_t h = m->env.hidden;
    const double *gate_up = mock_weight_of(m, "gate_up")->value, *down = mock_weight_of(m, "down")->value;
    memset(y, 0, (size_t)(m->row.tokens * h) * sizeof *y);
    for (int64_t t = 0; t < m->row.tokens; t++) {
        const router r = route(m, mock_weight_of(m, "router")->value, experts, k, x + t * h);
        for (int64_t j = 0; m->real[t] && j < k; j++)
            add_mlp(gate_up + r.choice[j] * 2 * width * h, down + r.choice[j] * h * width, width, h, x + t * h,
                    r.share[j], y + t * h);
        if (!shared) continue;
        double c = 0;
        for (int64_t i = 0; i < h; i++) c += mock_weight_of(m, "shared_gate")->value[i] * x[t * h + i];
        add_mlp(mock_weight_of(m, "shared_gate_up")->value, mock_weight_of(m, "shared_down")->value, shared, h,
                x + t * h, 1 / (1 + exp(-c)), y + t * h);
    }
}

/* ---- one layer with its rows ---- */

typedef struct trial {
    mock *m;
    int64_t n;
    double *x, *y, *dy, *dx;
} trial;

static trial open_trial(const char *const *settings, int32_t dtype, int32_t tokens, int32_t pads)
{
    const int32_t lengths[] = {tokens - tokens / 3, tokens / 3, pads};
    uint64_t state = 11;
    trial t = {.m = mock_open("moe", settings, dtype, H), .n = (int64_t)(tokens + pads) * H};
    mock_row(t.m, 3, lengths);
    memset(t.m->real + tokens, 0, (size_t)pads);
    set_weights(t.m, &state);
    double **all[] = {&t.x, &t.y, &t.dy, &t.dx};
    for (int i = 0; i < 4; i++) *all[i] = calloc((size_t)t.n, sizeof(double));
    mock_fill_normal(t.x, tokens * H, 1, &state);
    mock_fill_normal(t.dy, tokens * H, 1, &state);
    mock_fill_normal(t.x + tokens * H, pads * H, 1, &state);
    return t;
}
static void run(trial *t)
{
    mock_forward(t->m, t->x, t->y);
    mock_backward(t->m, t->x, t->dy, t->dx);
}
static void close_trial(trial *t)
{
    mock_close(t->m);
    free(t->x);
    free(t->y);
    free(t->dy);
    free(t->dx);
}

static void equals_the_formula(void **unused)
{
    for (int built = 0; built < 2; built++) {
        trial t = open_trial(plain, ST_F64, 150, 20);
        double *want = calloc((size_t)t.n, sizeof *want);
        t.m->built_backend = built;
        mock_forward(t.m, t.x, t.y);
        reference(t.m, 5, 2, 7, 6, t.x, want);
        assert_true(mock_distance(t.y, want, t.n) < 1e-14);
        free(want);
        close_trial(&t);
    }
}

/* Two routers' rows are equal: of both only the lower may be chosen, when one is. */
static void ties_go_to_the_lower_expert(void **unused)
{
    static const char *const settings[] = {"experts", "6", "top_k", "2", "width", "3", "aux", "none", NULL};
    trial t = open_trial(settings, ST_F64, 100, 0);
    double *w = mock_weight_of(t.m, "router")->value;
    int seen = 0;
    memcpy(w + 4 * H, w + 1 * H, H * sizeof *w);
    mock_forward(t.m, t.x, t.y);
    const int32_t *choice = mock_slot(t.m, "choice").data;
    for (int i = 0; i < 100; i++) {
        if (choice[2 * i] == 4) fail_msg("token %d: expert 4 went before its equal, expert 1", i);
        if (choice[2 * i + 1] == 4) assert_int_equal(choice[2 * i], 1);
        seen += choice[2 * i] == 1 || choice[2 * i + 1] == 1;
    }
    assert_true(seen > 0);
    memset(w, 0, 6 * H * sizeof *w); /* all equal */
    mock_forward(t.m, t.x, t.y);
    choice = mock_slot(t.m, "choice").data;
    for (int i = 0; i < 100; i++) assert_true(choice[2 * i] == 0 && choice[2 * i + 1] == 1);
    close_trial(&t);
}

static void sorted_rows_are_stable_and_padded(void **unused)
{
    trial t = open_trial(plain, ST_F32, 150, 20);
    mock_forward(t.m, t.x, t.y);
    const int32_t *offset = mock_slot(t.m, "offset").data, *row = mock_slot(t.m, "row").data;
    const int32_t *choice = mock_slot(t.m, "choice").data, *place = mock_slot(t.m, "place").data;
    int64_t picks = 0;
    assert_int_equal(offset[0], 0);
    for (int e = 0; e < 5; e++) {
        assert_int_equal(offset[e + 1] % ST_GROUP_TILE, 0);
        for (int32_t i = offset[e], before = -1, pads = 0; i < offset[e + 1]; i++) {
            if (row[i] >= 0) {
                assert_true(row[i] > before && !pads); /* in order of tokens, padding behind them */
                before = row[i];
                picks++;
            } else {
                assert_int_equal(row[i], -1);
                pads++;
            }
        }
    }
    assert_int_equal(picks, 300);
    for (int i = 0; i < 340; i++) {
        assert_true(i < 300 ? place[i] >= offset[choice[i]] && place[i] < offset[choice[i] + 1] : place[i] == -1);
        if (i < 300) assert_int_equal(row[place[i]], i / 2);
    }
    for (int64_t i = offset[5]; i < mock_slot(t.m, "row").dim[1]; i++) assert_int_equal(row[i], -2);
    close_trial(&t);
}

/* Exactly: no rounding may leave a trace of an expert that nobody chose. */
static void idle_experts_have_no_gradient(void **unused)
{
    for (int built = 0; built < 2; built++)
        for (int32_t dtype = ST_F64; dtype <= ST_F32; dtype++) {
            trial t = open_trial(plain, dtype, 90, 6);
            t.m->built_backend = built;
            double *weight = mock_weight_of(t.m, "router")->value;
            int idle = 0;
            for (int i = 0; i < 90; i++) t.x[i * H] = 1 + fabs(t.x[i * H]);
            for (int i = 0; i < H; i++) weight[3 * H + i] = i ? 0 : -100;
            run(&t);
            const int32_t *choice = mock_slot(t.m, "choice").data;
            for (int i = 0; i < 180; i++) assert_int_not_equal(choice[i], 3);
            const char *const names[] = {"router", "gate_up", "down"};
            for (int n = 0; n < 3; n++) {
                const mock_weight *w = mock_weight_of(t.m, names[n]);
                const int64_t of_one = w->n / 5;
                for (int64_t i = 3 * of_one; i < 4 * of_one; i++, idle++) assert_true(w->grad[i] == 0);
                double sum = 0;
                for (int64_t i = 0; i < w->n; i++) sum += fabs(w->grad[i]);
                assert_true(sum > 0 && isfinite(sum));
            }
            assert_int_equal(idle, H + 14 * H + 7 * H);
            close_trial(&t);
        }
}

/* Rows that are not real: not routed, not counted, no gradient from or to them. */
static void padding_leaves_no_trace(void **unused)
{
    static const char *const settings[] = {"experts", "5",   "top_k", "2",        "width", "7", "shared_width",
                                           "6",       "aux", "micro", "aux_coef", "0.3",   NULL};
    for (int built = 0; built < 2; built++) {
        trial padded = open_trial(settings, ST_F64, 60, 37), alone = open_trial(settings, ST_F64, 60, 0);
        padded.m->built_backend = alone.m->built_backend = built;
        run(&padded);
        run(&alone);
        assert_true(mock_distance(padded.y, alone.y, alone.n) < 1e-14);
        assert_true(mock_distance(padded.dx, alone.dx, alone.n) < 1e-13);
        for (int64_t i = alone.n; i < padded.n; i++) assert_true(padded.dx[i] == 0 && isfinite(padded.y[i]));
        for (int w = 0; w < alone.m->n_weights; w++)
            assert_true(mock_distance(padded.m->weight[w].grad, alone.m->weight[w].grad, alone.m->weight[w].n) < 1e-13);
        mock_finish(padded.m);
        mock_finish(alone.m);
        for (int i = 0; i < alone.m->n_metrics; i++) {
            const char *name = alone.m->metric[i].name;
            assert_true(fabs(mock_metric_of(padded.m, name) - mock_metric_of(alone.m, name)) < 1e-14);
        }
        close_trial(&padded);
        close_trial(&alone);
    }
}

/* ---- the balance loss ---- */

/* factor E sum_e f_e P_e over the real tokens. */
static double balance(trial *t, double factor)
{
    double picks[128] = {0}, p[128] = {0}, sum = 0, n = 0;
    for (int64_t i = 0; i < t->m->row.tokens; i++) {
        if (!t->m->real[i]) continue;
        const router r = route(t->m, mock_weight_of(t->m, "router")->value, 5, 2, t->x + i * H);
        for (int e = 0; e < 5; e++) p[e] += r.p[e];
        for (int k = 0; k < 2; k++) picks[r.choice[k]]++;
        n++;
    }
    for (int e = 0; e < 5; e++) sum += picks[e] / n * (p[e] / n);
    return factor * 5 * sum;
}
static double slope(trial *t, double *at, double factor)
{
    const double h = 1e-4, old = *at;
    double d[4];
    for (int i = 0; i < 4; i++) {
        *at = old + h * (i < 2 ? i - 2 : i - 1);
        d[i] = balance(t, factor);
    }
    *at = old;
    return (8 * (d[2] - d[1]) - (d[3] - d[0])) / (12 * h);
}
static void balance_losses_are_exact(void **unused)
{
    static const struct {
        const char *aux;
        double factor;
    } form[] = {{"micro", 0.5}, {"step", 0.5}, {"hf", 1}};
    for (int f = 0; f < 3; f++) {
        const char *const settings[] = {"experts", "5",         "top_k",    "2", "width", "7",
                                        "aux",     form[f].aux, "aux_coef", "3", NULL};
        trial t = open_trial(settings, ST_F64, 80, 9);
        double *w = mock_weight_of(t.m, "router")->value, *grad = mock_weight_of(t.m, "router")->grad;
        memset(t.dy, 0, (size_t)t.n * sizeof *t.dy);
        run(&t);
        for (int i = 0; i < 5 * H; i++) assert_true(fabs(grad[i] - 3 * slope(&t, &w[i], form[f].factor)) < 1e-9);
        for (int i = 0; i < t.n; i += 5) assert_true(fabs(t.dx[i] - 3 * slope(&t, &t.x[i], form[f].factor)) < 1e-9);
        mock_finish(t.m);
        assert_true(fabs(mock_metric_of(t.m, "balance_loss") - balance(&t, form[f].factor)) < 1e-13);
        close_trial(&t);
    }
}

static void loads_are_reported(void **unused)
{
    trial t = open_trial(plain, ST_F64, 150, 20);
    double n[5] = {0}, most = 0, least = 300, off = 0, entropy = 0;
    mock_forward(t.m, t.x, t.y);
    mock_finish(t.m);
    for (int64_t i = 0; i < 150; i++) {
        const router r = route(t.m, mock_weight_of(t.m, "router")->value, 5, 2, t.x + i * H);
        for (int k = 0; k < 2; k++) n[r.choice[k]]++;
        for (int e = 0; e < 5; e++) entropy -= r.p[e] * log(r.p[e]) / 150;
    }
    for (int e = 0; e < 5; e++) {
        most = fmax(most, n[e]);
        least = fmin(least, n[e]);
        off += fabs(n[e] - 60) / 300;
    }
    assert_true(fabs(mock_metric_of(t.m, "load_max") - most / 60) < 1e-14);
    assert_true(fabs(mock_metric_of(t.m, "load_min") - least / 60) < 1e-14);
    assert_true(fabs(mock_metric_of(t.m, "violation") - off) < 1e-14);
    assert_true(fabs(mock_metric_of(t.m, "entropy") - entropy) < 1e-13);
    close_trial(&t);
}

/* ---- capacity, forced balance, what is not a number ---- */

static void a_capacity_faults_instead_of_dropping(void **unused)
{
    static const char *const tight[] = {"experts", "5",   "top_k", "2",        "width", "7", "shared_width",
                                        "6",       "aux", "none",  "capacity", "0.5",   NULL};
    static const char *const wide[] = {"experts", "5",   "top_k", "2",        "width", "7", "shared_width",
                                       "6",       "aux", "none",  "capacity", "1",     NULL};
    for (int built = 0; built < 2; built++) {
        trial t = open_trial(tight, ST_F64, 700, 10), same = open_trial(wide, ST_F64, 700, 10);
        t.m->built_backend = same.m->built_backend = built;
        run(&t);
        assert_int_equal(t.m->fault.code, ST_FAULT_USER);
        assert_true(t.m->fault.a > t.m->fault.b); /* rows needed, rows there */
        for (int64_t i = 0; i < t.n; i++) assert_true(isfinite(t.y[i]) && isfinite(t.dx[i]));
        run(&same);
        assert_int_equal(same.m->fault.code, ST_FAULT_NONE);
        close_trial(&t);
        close_trial(&same);
        t = open_trial(tight, ST_F64, 200, 510); /* half of the row is real: it suffices */
        same = open_trial(plain, ST_F64, 200, 510);
        run(&t);
        run(&same);
        assert_int_equal(t.m->fault.code, ST_FAULT_NONE);
        assert_memory_equal(t.y, same.y, (size_t)t.n * sizeof *t.y);
        assert_memory_equal(t.dx, same.dx, (size_t)t.n * sizeof *t.dx);
        close_trial(&t);
        close_trial(&same);
    }
}

static void forced_balance_is_equal_loads(void **unused)
{
    static const char *const forced[] = {"experts", "5", "top_k", "2", "width", "7", "force_balance", "yes", NULL};
    trial t = open_trial(forced, ST_F64, 150, 20);
    run(&t);
    mock_finish(t.m);
    assert_true(mock_metric_of(t.m, "load_max") == 1 && mock_metric_of(t.m, "load_min") == 1);
    assert_true(mock_metric_of(t.m, "violation") == 0);
    close_trial(&t);
}

/* It stays in its token, and no index is taken from it. */
static void nan_is_seen(void **unused)
{
    for (int built = 0; built < 2; built++) {
        trial t = open_trial(plain, ST_F32, 50, 5);
        t.m->built_backend = built;
        t.x[20 * H + 3] = NAN;
        run(&t);
        for (int64_t i = 0; i < t.n; i++) assert_int_equal(isnan(t.y[i]) != 0, i / H == 20);
        close_trial(&t);
        t = open_trial(plain, ST_F32, 50, 5);
        t.m->built_backend = built;
        mock_weight_of(t.m, "router")->value[2 * H] = NAN; /* of one expert: all shares become NaN */
        run(&t);
        for (int64_t i = 0; i < 50 * H; i++) assert_true(isnan(t.y[i]));
        close_trial(&t);
    }
}

static void declared_weights(void **unused)
{
    mock *m = mock_open("moe", plain, ST_F32, H);
    const mock_weight *w = mock_weight_of(m, "gate_up");
    assert_int_equal(m->n_weights, 6);
    assert_int_equal(w->decl.nd, 3);
    assert_int_equal(w->decl.sec_dim, 1);
    assert_int_equal(w->decl.cut[0], ST_G_EXPERT);
    assert_int_equal(w->n, 5 * 14 * H);
    assert_int_equal(mock_weight_of(m, "down")->decl.init, ST_INIT_OUT);
    mock_close(m);
    m = mock_open("moe", all_of_four, ST_F32, H);
    assert_int_equal(m->n_weights, 3);
    mock_close(m);
}
static void refusals(void **unused)
{
    static const char *const many[] = {"experts", "4", "top_k", "5", "width", "7", NULL};
    char words[512];
    assert_string_equal(mock_refusal("moe", many, ST_F32, 8, words), "top_k = 5: there are experts = 4");
}
/* Megatron's figure for one layer at 4096 tokens, which counts three passes. */
static void cost_formula(void **unused)
{
    static const char *const real[] = {"experts", "256", "top_k", "2", "width", "512", "shared_width", "512", NULL};
    mock *m = mock_open("moe", real, ST_F32, 1024);
    const st_row_stats stats = {4096, 4096.0 * 4096};
    st_cost cost;
    assert_int_equal(m->ops->cost(m->self, &m->env, &stats, &cost), ST_OK);
    assert_true(3 * cost.megatron == 115964116992.0);
    assert_true(cost.exact - cost.megatron == 2.0 * 4096 * 1024 * 257);
    mock_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_of_five),
        cmocka_unit_test(top_k_equals_experts),
        cmocka_unit_test(more_experts_than_picks),
        cmocka_unit_test(one_expert_per_token),
        cmocka_unit_test(equals_the_formula),
        cmocka_unit_test(ties_go_to_the_lower_expert),
        cmocka_unit_test(sorted_rows_are_stable_and_padded),
        cmocka_unit_test(idle_experts_have_no_gradient),
        cmocka_unit_test(padding_leaves_no_trace),
        cmocka_unit_test(balance_losses_are_exact),
        cmocka_unit_test(loads_are_reported),
        cmocka_unit_test(a_capacity_faults_instead_of_dropping),
        cmocka_unit_test(forced_balance_is_equal_loads),
        cmocka_unit_test(nan_is_seen),
        cmocka_unit_test(declared_weights),
        cmocka_unit_test(refusals),
        cmocka_unit_test(cost_formula),
    };
    return cmocka_run_group_tests_name("moe", tests, NULL, NULL);
}
