/* SPDX-License-Identifier: Apache-2.0 */
/* heads/test_depth_rules.c - which head takes the depths of a pattern, what is refused, names in files, and the
 * position plugin that no depth can use. */
#include "depths.h"
#include <math.h>

#define LEARNED "[position]\nplugin = learned_absolute\nmax_positions = 40\n"
#define ONE_DEPTH(more) DEPTH_MODEL("G*-/*-", "", "") more TEXT_BATCH

static void refused(const char *spec, const char *words, const char *section)
{
    st_diags d = {0};
    fixture *f = fixture_build(spec, 1, &d);

    if (f) fail_msg("not refused; expected: %s", words);
    for (int i = 0; i < d.n; i++)
        if (!d.item[i].warning && strstr(d.item[i].error.message, words)) {
            if (section && !strstr(d.item[i].line_text, section))
                fail_msg("shown at '%s', not '%s'", d.item[i].line_text, section);
            return;
        }
    st_diags_print(&d, stderr);
    fail_msg("no message says: %s", words);
}

static const st_model_layer *layer(const fixture *f, const char *path)
{
    const st_model_layer *l;
    int n = st_model_layers(f->model, &l);
    for (int i = 0; i < n; i++)
        if (!strcmp(l[i].path, path)) return &l[i];
    fail_msg("no layer %s", path);
    return NULL;
}

static void the_head_that_claims_them_takes_the_depths(void **state)
{
    fixture *f = fixture_open(ONE_DEPTH(ROPE), 1);
    st_buf written = {0};

    assert_int_equal(f->model->n_heads, 2);
    assert_string_equal(f->model->heads[1].plugin->name, "mtp");
    assert_int_equal(layer(f, "head.mtp.1.layers.0")->depth, 1);
    assert_int_equal(layer(f, "layers.1")->depth, 0);
    assert_int_equal(layer(f, "head.mtp")->depth, -1);
    st_spec_write(f->spec, &written); /* what is stored says so */
    assert_non_null(strstr(written.data, "[head.mtp]\n"));
    assert_non_null(strstr(written.data, "loss_weight = 0.1\n"));
    st_buf_free(&written);
    fixture_close(f);
}

/* Heads stand in the order of their sections' names, whether a section is written or not. */
static void heads_keep_their_order(void **state)
{
    fixture *f = fixture_open(ONE_DEPTH(ROPE "[head.a]\nplugin = lm\n[head.z]\nplugin = lm\n"), 1);
    static const char *const want[] = {"head.lm", "head.a", "head.mtp", "head.z"};

    assert_int_equal(f->model->n_heads, 4);
    for (int i = 0; i < 4; i++) assert_string_equal(f->model->heads[i].section, want[i]);
    fixture_close(f);
}

static void wrong_specs_are_refused(void **state)
{
    refused(ONE_DEPTH(LEARNED),
            "head mtp needs a position whose slots may hold another token (ST_CAP_SHIFTABLE): "
            "learned_absolute does not allow that",
            "plugin = learned_absolute");
    refused(DEPTH_MODEL("G*-", "", "") ROPE TEXT_BATCH "[head.mtp]\nloss_weight = 1\n", "has no depth for head mtp",
            NULL);
    refused(ONE_DEPTH(ROPE "[head.mtp]\n[head.other]\nplugin = mtp\n"), "both train the depths of the pattern", NULL);
    refused(DEPTH_MODEL("G*-/*-/-", "", "") ROPE TEXT_BATCH "[head.mtp]\nrepeated = yes\n",
            "depth 2 of the pattern is -, but its head runs the layers of depth 1, *-", "pattern");
    refused(ONE_DEPTH(ROPE "[head.mtp]\nloss_weight = -1\n"), "loss_weight", NULL);
    refused(DEPTH_MODEL("G*-/*Q", "", "") ROPE TEXT_BATCH, "'Q' at place 6", "pattern");
    refused(DEPTH_MODEL("G*-/", "", "") ROPE TEXT_BATCH, "mtp depth 1 of the pattern is empty", "pattern");
}

/* ---- names in files ---- */

static void file_names_tell_depths_apart(void **state)
{
    static const char *const want[] = {"mtp.fc.weight",
                                       "mtp.pre_fc_norm_embedding.weight",
                                       "mtp.pre_fc_norm_hidden.weight",
                                       "mtp.norm.weight",
                                       "mtp.layers.0.input_layernorm.weight",
                                       "mtp.layers.0.self_attn.q_proj.weight",
                                       "mtp.layers.0.post_attention_layernorm.weight",
                                       "mtp.layers.0.mlp.down_proj.weight",
                                       "mtp2.fc.weight",
                                       "mtp2.norm.weight",
                                       "mtp2.layers.1.input_layernorm.weight",
                                       "mtp2.layers.0.linear_attn.in_proj_qkv.weight",
                                       "mtp2.layers.1.mlp.gate_proj.weight",
                                       "mtp3.layers.0.mlp.up_proj.weight"};
    fixture *f = fixture_open(DEPTH_MODEL("G-*-/*-/G-*-/-", "", "") ROPE TEXT_BATCH, 1);
    const st_file_name *names;
    int n = st_family_names(f->model, "hf", &names), of_first = 0;

    for (size_t i = 0; i < ST_COUNT(want); i++) {
        int seen = 0;
        for (int k = 0; k < n; k++) seen += !strcmp(names[k].file_name, want[i]);
        if (seen != 1) fail_msg("%s: %d times", want[i], seen);
    }
    for (int i = 0; i < n; i++) {
        of_first += !strncmp(names[i].file_name, "mtp.", 4);
        for (int k = 0; k < i; k++) assert_string_not_equal(names[i].file_name, names[k].file_name);
    }
    assert_int_equal(of_first, 15); /* as published */
    for (int32_t w = 0; w < f->model->n_weights; w++) {
        int seen = 0;
        for (int k = 0; k < n; k++) seen += names[k].weight == w;
        if (!seen) fail_msg("%s has no name", f->model->weights[w]->pub.path);
    }
    fixture_close(f);
}

/* ---- learned_absolute ---- */

static void a_learned_position_trains(void **state)
{
    static const int first[] = {17, 1, 0}, second[] = {30, 9, 0};
    fixture *f = fixture_open(DEPTH_MODEL("G-*-", "", "") LEARNED TEXT_BATCH, 1);
    st_packed_row *rows[2] = {make_row(f, first, 0, 5, 0), make_row(f, second, 2, 5, 0)};
    const char *where = "";
    double worst = check_differences(f, rows, 2, 6, &where), *g = weight_values(f, "position.table", ST_READ_GRAD),
           sum = 0;
    const st_file_name *names;
    int n = st_family_names(f->model, "hf", &names);

    print_message("# worst gradient against differences: %.1e at %s\n", worst, where);
    assert_true(worst < 1e-8);
    for (int i = 0; i < 30 * 16; i++) sum += fabs(g[i]);
    assert_true(sum > 0);
    for (int i = 30 * 16; i < 40 * 16; i++) assert_true(g[i] == 0); /* no token stood there */
    for (int i = 0; i < n; i++) assert_int_not_equal(names[i].weight, weight_index(f, "position.table"));
    fixture_close(f);
}

static void positions_are_added_to_images_too(void **state)
{
    static const int first[] = {17, 12, 0};
    fixture *f = fixture_open(DEPTH_MODEL("G-*-", "", "") LEARNED IMAGE_PARTS IMAGE_BATCH, 1);
    st_packed_row *rows[1] = {make_row(f, first, 0, 5, 1)};
    const char *where = "";
    double worst = check_differences(f, rows, 1, 2, &where);

    print_message("# worst gradient against differences: %.1e at %s\n", worst, where);
    assert_true(worst < 1e-8);
    fixture_close(f);
}

static void learned_positions_give_the_same_bits(void **state)
{
    static const int packed[] = {17, 1, 30, 9, 0};
    double *g[2];
    fixture *f[2];
    int64_t n;

    for (int i = 0; i < 2; i++) {
        st_packed_row *row;
        f[i] = fixture_open(i ? DEPTH_MODEL("G-*-", "threads = 2\n", "") LEARNED TEXT_BATCH
                              : DEPTH_MODEL("G-*-", "threads = 1\n", "") LEARNED TEXT_BATCH,
                            1);
        row = make_row(f[i], packed, 0, 5, 0);
        step_gradients(f[i], &row, 1);
        g[i] = all_gradients(f[i], &n);
    }
    assert_memory_equal(g[0], g[1], (size_t)n * sizeof **g);
    fixture_close(f[0]);
    fixture_close(f[1]);
}

static void a_sequence_longer_than_the_table_is_unusable(void **state)
{
    fixture *f = fixture_open(DEPTH_MODEL("G*-", "", "") LEARNED TEXT_BATCH, 1);
    st_error e = {0};
    st_worker w = {.size = sizeof w, .host = &f->base->host, .arena = f->arena, .error = &e};
    st_sequence s = {.size = sizeof s, .n = 41, .n_real = 41};
    int32_t pos[41];

    assert_int_equal(f->model->position_ops.assign(f->model->position.self, &w, &s, pos), ST_E_DATA);
    assert_string_equal(e.message, "41 tokens: [position] max_positions = 40");
    s.n = s.n_real = 40;
    assert_int_equal(f->model->position_ops.assign(f->model->position.self, &w, &s, pos), ST_OK);
    assert_int_equal(pos[39], 39);
    fixture_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_head_that_claims_them_takes_the_depths),
        cmocka_unit_test(heads_keep_their_order),
        cmocka_unit_test(wrong_specs_are_refused),
        cmocka_unit_test(file_names_tell_depths_apart),
        cmocka_unit_test(a_learned_position_trains),
        cmocka_unit_test(positions_are_added_to_images_too),
        cmocka_unit_test(learned_positions_give_the_same_bits),
        cmocka_unit_test(a_sequence_longer_than_the_table_is_unusable),
    };
    return cmocka_run_group_tests_name("depth rules", tests, NULL, NULL);
}
