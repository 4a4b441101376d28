/* SPDX-License-Identifier: Apache-2.0 */
/* The gated delta net as a whole layer: gradients, packing, dropped slots, threads, precisions, hard inputs. */
#include "layer_checks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void set_weights(mock *m, uint64_t *state)
{
    mock_weight *w = mock_weight_of(m, "in");
    mock_fill_normal(w->value, w->n, 0.3, state);
    w = mock_weight_of(m, "conv");
    mock_fill_normal(w->value, w->n, 0.5, state);
    w = mock_weight_of(m, "out");
    mock_fill_normal(w->value, w->n, 0.3, state);
    w = mock_weight_of(m, "a_log");
    for (int64_t i = 0; i < w->n; i++) w->value[i] = -1 + 1.2 * mock_random(state);
    w = mock_weight_of(m, "dt_bias");
    mock_fill_normal(w->value, w->n, 0.5, state);
    w = mock_weight_of(m, "norm");
    for (int64_t i = 0; i < w->n; i++) w->value[i] = 1 + 0.2 * mock_random(state);
}
static const char *const odd[] = {"key_heads", "2", "value_heads", "4", "key_dim", "12", "value_dim", "10", NULL};
static const char *const even[] = {"key_heads", "2",  "value_heads", "2", "key_dim", "16",
                                   "value_dim", "32", "conv_kernel", "3", NULL};
static const char *const wide[] = {"key_heads", "1",  "value_heads", "3", "key_dim", "40",
                                   "value_dim", "24", "conv_kernel", "1", NULL};
static const layer_case odd_case = {"gated_delta_net", odd, 11, set_weights, 0};
static const layer_case even_case = {"gated_delta_net", even, 9, set_weights, 0};
static const layer_case wide_case = {"gated_delta_net", wide, 7, set_weights, 0};
enum { DROPPABLE = 1 << 1 | 1 << 4 | 1 << 6 }; /* conv, states, norm_out */

static void shared_key_heads(void **unused) { check_all(&odd_case, DROPPABLE, 5e-6); }
static void equal_heads(void **unused) { check_all(&even_case, DROPPABLE, 5e-6); }
static void three_values_per_key(void **unused) { check_all(&wide_case, DROPPABLE, 5e-6); }
static void three_chunks(void **unused)
{
    const int32_t lengths[] = {2, 150, 3};
    check_gradients(&odd_case, 3, lengths);
}

/* Rows of zeros make q = k = v = 0 exactly; a decay that forgets at once; logits far out. Nothing may become NaN or
 * infinite. */
static void hard_inputs(void **unused)
{
    for (int32_t dtype = ST_F64; dtype <= ST_F32; dtype++)
        for (int how = 0; how < 3; how++) {
            const int32_t lengths[] = {70, 5};
            uint64_t state = 3;
            mock *m = mock_open("gated_delta_net", odd, dtype, 11);
            mock_row(m, 2, lengths);
            set_weights(m, &state);
            double x[75 * 11], y[75 * 11], dx[75 * 11];
            mock_fill_normal(x, 75 * 11, how == 2 ? 1e3 : 1, &state);
            if (how == 0) memset(x + 20 * 11, 0, sizeof(double) * 30 * 11);
            for (int h = 0; how == 1 && h < 4; h++) {
                mock_weight_of(m, "a_log")->value[h] = h < 2 ? 8 : -30;
                mock_weight_of(m, "dt_bias")->value[h] = h % 2 ? 60 : -60;
            }
            mock_forward(m, x, y);
            mock_backward(m, x, x, dx);
            for (int i = 0; i < 75 * 11; i++) {
                assert_true(isfinite(y[i]));
                assert_true(isfinite(dx[i]));
            }
            for (int w = 0; w < m->n_weights; w++)
                for (int64_t i = 0; i < m->weight[w].n; i++) assert_true(isfinite(m->weight[w].grad[i]));
            mock_close(m);
        }
}
/* A value that is not a number must not be hidden by masks and clamps, and stays in its segment. */
static void nan_is_seen(void **unused)
{
    const int32_t lengths[] = {5, 10, 4};
    uint64_t state = 3;
    mock *m = mock_open("gated_delta_net", odd, ST_F32, 11);
    mock_row(m, 3, lengths);
    set_weights(m, &state);
    double x[19 * 11], y[19 * 11];
    mock_fill_normal(x, 19 * 11, 1, &state);
    x[9 * 11] = NAN;
    mock_forward(m, x, y);
    for (int i = 0; i < 19 * 11; i++) {
        if (i >= 9 * 11 && i < 15 * 11) assert_true(isnan(y[i]));
        if (i < 5 * 11 || i >= 15 * 11) assert_false(isnan(y[i]));
    }
    mock_close(m);
}

static void declared_weights(void **unused)
{
    static const char *const softplus[] = {"key_heads", "2",      "value_heads", "4", "dt_init",
                                           "softplus",  "dt_min", "0.002",       NULL};
    mock *m = mock_open("gated_delta_net", odd, ST_F32, 11);
    const mock_weight *w = mock_weight_of(m, "conv");
    assert_int_equal(w->decl.nd, 2);
    assert_false(w->decl.flags & ST_W_NO_DECAY); /* decays like every matrix */
    assert_int_equal(w->decl.dim[0], 2 * 24 + 40);
    w = mock_weight_of(m, "in");
    assert_int_equal(w->decl.dim[0], 2 * 24 + 2 * 40 + 8);
    assert_int_equal(w->decl.n_sec, 6);
    assert_int_equal(mock_weight_of(m, "dt_bias")->decl.init, ST_INIT_ONE);
    assert_int_equal(mock_weight_of(m, "a_log")->decl.flags, ST_W_ACC);
    mock_close(m);
    m = mock_open("gated_delta_net", softplus, ST_F32, 11);
    w = mock_weight_of(m, "dt_bias");
    assert_int_equal(w->decl.init, ST_INIT_SOFTPLUS_INV);
    assert_true(w->decl.a == 0.002 && w->decl.b == 0.1);
    mock_close(m);
}
static void refusals(void **unused)
{
    static const char *const heads[] = {"key_heads", "3", "value_heads", "4", NULL};
    static const char *const range[] = {"dt_min", "0.5", "dt_max", "0.1", NULL};
    char words[512];
    assert_string_equal(mock_refusal("gated_delta_net", heads, ST_F32, 8, words),
                        "value_heads = 4 must be a multiple of key_heads = 3");
    assert_non_null(strstr(mock_refusal("gated_delta_net", range, ST_F32, 8, words), "dt_min = 0.5"));
}
/* Megatron's figure for one layer of 0.8B at 4096 tokens, which counts three passes. */
static void cost_formula(void **unused)
{
    mock *m = mock_open("gated_delta_net", NULL, ST_F32, 1024);
    const st_row_stats stats = {4096, 4096.0 * 4096};
    st_cost cost;
    assert_int_equal(m->ops->cost(m->self, &m->env, &stats, &cost), ST_OK);
    assert_true(3 * cost.megatron == 284877127680.0);
    mock_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_key_heads), cmocka_unit_test(equal_heads), cmocka_unit_test(three_values_per_key),
        cmocka_unit_test(three_chunks),     cmocka_unit_test(hard_inputs), cmocka_unit_test(nan_is_seen),
        cmocka_unit_test(declared_weights), cmocka_unit_test(refusals),    cmocka_unit_test(cost_formula),
    };
    return cmocka_run_group_tests_name("gated_delta_net", tests, NULL, NULL);
}
