/* SPDX-License-Identifier: Apache-2.0 */
/* The per-token layers: swiglu and gelu_mlp. */
#include "layer_checks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void set_weights(mock *m, uint64_t *state)
{
    for (int i = 0; i < m->n_weights; i++) mock_fill_normal(m->weight[i].value, m->weight[i].n, 0.5, state);
}
static const char *const width[] = {"width", "13", NULL};
static const char *const tanh_bias[] = {"width", "13", "bias", "yes", NULL};
static const char *const erf_plain[] = {"width", "13", "act", "gelu_erf", NULL};
static const char *const silu_bias[] = {"width", "5", "act", "silu", "bias", "yes", NULL};
static const char *const relu2_bias[] = {"width", "5", "act", "relu2", "bias", "yes", NULL};
static const layer_case swiglu_case = {"swiglu", width, 9, set_weights, 0};
static const layer_case tanh_case = {"gelu_mlp", tanh_bias, 9, set_weights, 0};
static const layer_case erf_case = {"gelu_mlp", erf_plain, 9, set_weights, 0};
static const layer_case silu_case = {"gelu_mlp", silu_bias, 4, set_weights, 0};

static void swiglu_layer(void **unused) { check_all(&swiglu_case, 1 << 1, 1e-6); }
static void gelu_tanh(void **unused) { check_all(&tanh_case, 1 << 1, 1e-6); }
static void gelu_erf(void **unused) { check_all(&erf_case, 1 << 1, 1e-6); }
static void silu(void **unused) { check_all(&silu_case, 1 << 1, 1e-6); }

static void one_token(const char *plugin, const char *const *settings, const double *x, double *y, mock **out)
{
    const int32_t length = 1;
    uint64_t state = 5;
    mock *m = mock_open(plugin, settings, ST_F64, 4);
    mock_row(m, 1, &length);
    set_weights(m, &state);
    mock_forward(m, x, y);
    *out = m;
}
static double row_dot(const double *w, const double *x, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += w[i] * x[i];
    return s;
}
static void formulas(void **unused)
{
    const double x[4] = {0.3, -1.2, 0.8, 2};
    double y[4], h[13];
    mock *m;
    one_token("swiglu", width, x, y, &m);
    const double *gate_up = mock_weight_of(m, "gate_up")->value, *down = mock_weight_of(m, "down")->value;
    for (int i = 0; i < 13; i++) {
        const double g = row_dot(gate_up + 4 * i, x, 4);
        h[i] = g / (1 + exp(-g)) * row_dot(gate_up + 4 * (13 + i), x, 4);
    }
    for (int o = 0; o < 4; o++) assert_true(fabs(y[o] - row_dot(down + 13 * o, h, 13)) < 1e-14);
    mock_close(m);

    one_token("gelu_mlp", relu2_bias, x, y, &m);
    const double *fc1 = mock_weight_of(m, "fc1")->value, *fc2 = mock_weight_of(m, "fc2")->value;
    for (int i = 0; i < 5; i++) {
        const double v = row_dot(fc1 + 4 * i, x, 4) + mock_weight_of(m, "fc1_bias")->value[i];
        h[i] = v > 0 ? v * v : 0;
    }
    for (int o = 0; o < 4; o++)
        assert_true(fabs(y[o] - row_dot(fc2 + 5 * o, h, 5) - mock_weight_of(m, "fc2_bias")->value[o]) < 1e-14);
    mock_close(m);
}
static void cost_formulas(void **unused)
{
    static const char *const real[] = {"width", "3584", NULL};
    const st_row_stats stats = {4096, 4096.0 * 4096};
    st_cost cost;
    mock *m = mock_open("swiglu", real, ST_F32, 1024);
    assert_int_equal(m->ops->cost(m->self, &m->env, &stats, &cost), ST_OK);
    assert_true(3 * cost.megatron == 270582939648.0);
    mock_close(m);
    m = mock_open("gelu_mlp", real, ST_F32, 1024);
    assert_int_equal(m->ops->cost(m->self, &m->env, &stats, &cost), ST_OK);
    assert_true(3 * cost.megatron == 270582939648.0 * 2 / 3);
    mock_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swiglu_layer), cmocka_unit_test(gelu_tanh), cmocka_unit_test(gelu_erf),
        cmocka_unit_test(silu),         cmocka_unit_test(formulas),  cmocka_unit_test(cost_formulas),
    };
    return cmocka_run_group_tests_name("mlps", tests, NULL, NULL);
}
