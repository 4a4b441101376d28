/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in the forms that the decoder and the vision blocks use, and all switches between them. */
#include "layer_checks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void set_weights(mock *m, uint64_t *state)
{
    for (int i = 0; i < m->n_weights; i++) mock_fill_normal(m->weight[i].value, m->weight[i].n, 0.4, state);
}
static const char *const decoder[] = {"heads", "4", "kv_heads", "2", "head_dim", "8", NULL};
static const char *const vision[] = {"heads", "3",      "gate", "no",    "qk_norm", "no", "bias",
                                     "yes",   "causal", "no",   "names", "vision",  NULL};
static const char *const plain[] = {"heads", "2", "kv_heads", "1", "head_dim", "6", "gate", "no", "rotary", "no", NULL};
static const char *const gated[] = {"heads", "2",   "head_dim", "6",  "qk_norm", "no",
                                    "bias",  "yes", "rotary",   "no", NULL};
static const layer_case decoder_case = {"attention", decoder, 10, set_weights, 0};
static const layer_case vision_case = {"attention", vision, 12, set_weights, 0};
static const layer_case plain_case = {"attention", plain, 8, set_weights, 0};
static const layer_case gated_case = {"attention", gated, 8, set_weights, 0};
/* The mock has no ops that join several steps, as a backend of another age; the built one has them. */
static const layer_case joined_case = {"attention", decoder, 10, set_weights, 1};
static const layer_case joined_plain_case = {"attention", plain, 8, set_weights, 1};
static const layer_case joined_gated_case = {"attention", gated, 8, set_weights, 1};
enum { DROPPABLE = 1 << 1 | 1 << 6 }; /* qk, gated */

static void decoder_layer(void **unused) { check_all(&decoder_case, DROPPABLE, 2e-6); }
static void vision_block(void **unused) { check_all(&vision_case, DROPPABLE, 2e-6); }
static void without_gate_and_rotation(void **unused) { check_all(&plain_case, DROPPABLE, 2e-6); }
static void without_head_norm(void **unused) { check_all(&gated_case, DROPPABLE, 2e-6); }
static void with_joined_ops(void **unused)
{
    check_all(&joined_case, DROPPABLE, 2e-6);
    check_all(&joined_plain_case, DROPPABLE, 2e-6);
    check_all(&joined_gated_case, DROPPABLE, 2e-6);
}

/* The decoder's formula written out for one segment, with the file's row order: per head queries, then gates. */
static void norm_and_rotate(const mock *m, const double *x, const double *w, int64_t t, double *y)
{
    double s = 0;
    for (int c = 0; c < 8; c++) s += x[c] * x[c] / 8;
    for (int c = 0; c < 8; c++) y[c] = x[c] / sqrt(s + 1e-6) * (1 + w[c]);
    for (int c = 0; c < 2; c++) {
        const double a = y[c], b = y[c + 2], cs = m->cos[t * 2 + c], sn = m->sin[t * 2 + c];
        y[c] = a * cs - b * sn;
        y[c + 2] = b * cs + a * sn;
    }
}
static void decoder_formula(void **unused)
{
    enum { N = 7, H = 10 };
    const int32_t length = N;
    uint64_t state = 9;
    mock *m = mock_open("attention", decoder, ST_F64, H);
    mock_row(m, 1, &length);
    set_weights(m, &state);
    const double *w = mock_weight_of(m, "qkv")->value, *wo = mock_weight_of(m, "out")->value;
    double x[N * H], y[N * H], proj[N][96], q[N][4][8], k[N][2][8], a_gated[N][32];
    assert_int_equal(mock_weight_of(m, "qkv")->decl.dim[0], 96);
    mock_fill_normal(x, N * H, 1, &state);
    mock_forward(m, x, y);
    for (int t = 0; t < N; t++) {
        for (int r = 0; r < 96; r++) {
            proj[t][r] = 0;
            for (int c = 0; c < H; c++) proj[t][r] += w[r * H + c] * x[t * H + c];
        }
        for (int h = 0; h < 4; h++)
            norm_and_rotate(m, &proj[t][16 * h], mock_weight_of(m, "q_norm")->value, t, q[t][h]);
        for (int h = 0; h < 2; h++)
            norm_and_rotate(m, &proj[t][64 + 8 * h], mock_weight_of(m, "k_norm")->value, t, k[t][h]);
    }
    for (int t = 0; t < N; t++)
        for (int h = 0; h < 4; h++) {
            double p[N], sum = 0;
            for (int j = 0; j <= t; j++) {
                double dot = 0;
                for (int c = 0; c < 8; c++) dot += q[t][h][c] * k[j][h / 2][c];
                sum += p[j] = exp(dot / sqrt(8));
            }
            for (int c = 0; c < 8; c++) {
                double a = 0;
                for (int j = 0; j <= t; j++) a += p[j] / sum * proj[j][80 + 8 * (h / 2) + c];
                a_gated[t][8 * h + c] = a / (1 + exp(-proj[t][16 * h + 8 + c]));
            }
        }
    for (int t = 0; t < N; t++)
        for (int o = 0; o < H; o++) {
            double v = 0;
            for (int c = 0; c < 32; c++) v += wo[o * 32 + c] * a_gated[t][c];
            assert_true(fabs(v - y[t * H + o]) < 1e-13);
        }
    mock_close(m);
}
static void names_follow_the_use(void **unused)
{
    mock *m = mock_open("attention", vision, ST_F32, 12);
    assert_int_equal(m->n_weights, 4);
    assert_int_equal(mock_weight_of(m, "attn_qkv")->decl.dim[0], 36);
    assert_int_equal(mock_weight_of(m, "attn_proj_bias")->n, 12);
    for (int i = 0; i < m->n_weights; i++) { /* every weight has exactly one file name, whole */
        int found = 0;
        for (uint32_t k = 0; k < m->ops->n_maps; k++)
            if (!strcmp(m->ops->maps[k].weight, m->weight[i].name)) found += m->ops->maps[k].n_sec == 0;
        assert_int_equal(found, 1);
    }
    mock_close(m);
}
static void refusals(void **unused)
{
    static const char *const groups[] = {"heads", "4", "kv_heads", "3", "head_dim", "8", NULL}, *const size[] = {
                                                                                                    "heads", "3", NULL};
    char words[512];
    assert_string_equal(mock_refusal("attention", groups, ST_F32, 8, words),
                        "kv_heads = 3 does not divide heads = 4");
    assert_string_equal(mock_refusal("attention", size, ST_F32, 8, words),
                        "heads = 3 does not divide hidden = 8: give head_dim");
}
/* Megatron's figure for one layer of 0.8B at 4096 tokens, which counts three passes. */
static void cost_formula(void **unused)
{
    static const char *const real[] = {"heads", "8", "kv_heads", "2", "head_dim", "256", NULL};
    mock *m = mock_open("attention", real, ST_F32, 1024);
    const st_row_stats stats = {4096, 4096.0 * 4096};
    st_cost cost;
    assert_int_equal(m->ops->cost(m->self, &m->env, &stats, &cost), ST_OK);
    assert_true(3 * cost.megatron == 335007449088.0);
    mock_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoder_layer),
        cmocka_unit_test(vision_block),
        cmocka_unit_test(without_gate_and_rotation),
        cmocka_unit_test(without_head_norm),
        cmocka_unit_test(with_joined_ops),
        cmocka_unit_test(decoder_formula),
        cmocka_unit_test(names_follow_the_use),
        cmocka_unit_test(refusals),
        cmocka_unit_test(cost_formula),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
