/* SPDX-License-Identifier: Apache-2.0 */
/* model/test_wrong.c - a layer plugin that asks for what it cannot have: found when it is configured or planned, before
 * any device is opened, and told with the layer's place and name. */
#include "fixture.h"

#define SPEC \
    "[run]\nprecision = f64\n[stack]\nhidden = 16\nvocab = 23\npattern = w-\n[layer.w]\nplugin = wrong\nfault = %s\n" \
    "[layer.-]\nwidth = 8\n[batch]\ntokens = 32\nsequences = 4\n[optimizer]\nplugin = adamw\n"

typedef struct fault {
    const char *name, *says;
} fault;

static const char *spec_of(char out[1024], const char *name)
{
    snprintf(out, 1024, SPEC, name);
    return out;
}

static void wishes_of_configure(void **state)
{
    static const fault f[] = {
        {"no_name", "layers.0 declares a weight without a name"},
        {"bad_name", "weight 'layers.0.W w': names hold a-z 0-9 _ ."},
        {"twice", "weight layers.0.w is declared twice"},
        {"no_dims", "weight layers.0.w: 0 dimensions"},
        {"zero_dim", "weight layers.0.w: dimension 1 is 0"},
        {"section_dim", "weight layers.0.w: sections of dimension 3 of 2"},
        {"section_sum", "weight layers.0.w: sections hold 5, dimension 0 is 8"},
        {"cut_group", "weight layers.0.w, dimension 0: cut over group data"},
        {"init", "weight layers.0.w: init 99"},
        {"call", "weight layers.0.w: ST_INIT_CALL without fill()"},
        {"constant", "weight layers.0.w: constant but random"},
        {"shared", "the host has no weight 'bias': embed, lm_head, final_norm"},
        {"tiles", "tiles of 0 tokens, kind 1"},
        {"many_tiles", "more than 8 different tile sizes"},
        {"rotary", "rotary tables of 0 columns"},
        {"accum", "accumulator sums of 0 cells"},
        {"stack", "only heads and encoders have nested stacks"},
        {"stack_rotary", "stack 0 is not its own"},
        {"silent", "plugin wrong refused its settings without a word"},
    };
    char spec[1024];

    for (size_t i = 0; i < ST_COUNT(f); i++) {
        st_diags d = {0};
        if (fixture_build(spec_of(spec, f[i].name), 1, &d)) fail_msg("%s was not refused", f[i].name);
        assert_string_equal(d.item[0].error.message, f[i].says);
        assert_string_equal(d.item[0].line_text, "[layer.w]");
        assert_int_equal(d.errors, 1);
    }
}

static void wishes_of_a_step(void **state)
{
    static const fault f[] = {
        {"weight", "asks for weight 900 of 8"},
        {"section", "asks for section 7 of weight layers.0.w, which has 0"},
        {"slot", "keeps slot 5: its table has 1"},
        {"memory", "asks for memory of -1 x 4 elements of type 1"},
        {"mark", "releases a mark that is not its own"},
        {"lane", "lane 9 does not exist"},
        {"lane_call", "lane call 99 does not exist"},
        {"scalar", "scalar 900 does not exist"},
        {"tiles_id", "work list 5 does not exist here"},
        {"rotary_id", "rotary table 5 does not exist"},
        {"accum_id", "accumulator 5 does not exist"},
        {"total_id", "accumulator 5 does not exist"},
        {"metric_id", "metric 900 does not exist"},
        {"own", "3 is too many"},
        {"copy", "copy: copy: dst is f64 [1, 16], but src is f64 [32, 16]"},
    };
    char spec[1024], want[256];

    for (size_t i = 0; i < ST_COUNT(f); i++) {
        st_diags d = {0};
        st_error e = {0};
        fixture *x = fixture_build(spec_of(spec, f[i].name), 1, &d);
        if (!x) fail_msg("%s was refused too early: %s", f[i].name, d.item[0].error.message);
        assert_int_not_equal(st_model_plan(x->model, &e), ST_OK);
        snprintf(want, sizeof want, "layers.0 (w, wrong)%s%s", strcmp(f[i].name, "copy") ? ": " : ", ", f[i].says);
        assert_string_equal(e.message, want);
        assert_int_equal(e.layer, 0);
        fixture_close(x);
    }
}

/* What only a running step can meet. */
static void faults_of_a_run(void **state)
{
    static const fault f[] = {
        {"none", ""},
        {"lane_memory", ""},
        {"launch", "layers.0 (w, wrong), wrong_launch: the launch failed (device)"},
        {"unplanned", " bytes for scratch is full: the plan did not see this call"},
        {"contribution", "weight layers.0.w got 2 contributions to its gradient, planning saw 1"},
    };
    static const int lengths[] = {5, 9, 0};
    char spec[1024];

    for (size_t i = 0; i < ST_COUNT(f); i++) {
        fixture *x = fixture_open(spec_of(spec, f[i].name), 1);
        const st_packed_row *row = make_row(x, lengths, 0, 5, 0);
        st_step_result r;
        st_error e = {0};
        int rc = st_model_gradients(x->model, &row, 1, &r, &e);
        assert_int_equal(rc == ST_OK, !f[i].says[0]);
        if (!strstr(e.message, f[i].says)) fail_msg("'%s' is not in: %s", f[i].says, e.message);
        fixture_close(x);
    }
}

/* Faults of kernels: the step changes nothing, and the words are the plugin's where it has some. */
static void faults_of_kernels(void **state)
{
    static const fault f[] = {
        {"fault_own", "layers.0 (w, wrong): 3 wishes, of which 2 were heard"},
        {"fault_full", "layers.0 (w, wrong): a capacity was too small (3, 2)"},
        {"fault_odd", "layers.0 (w, wrong): fault 257 (3, 2)"},
    };
    static const int lengths[] = {5, 9, 0};
    const st_schedule at = {.size = sizeof at, .step = 1, .lr_scale = 1, .lr = 1e-2};
    char spec[1024];

    for (size_t i = 0; i < ST_COUNT(f); i++) {
        fixture *x = fixture_open(spec_of(spec, f[i].name), 1);
        const st_packed_row *row = make_row(x, lengths, 0, 5, 0);
        st_step_result r;
        st_error e = {0};
        need_ok(st_model_step(x->model, &row, 1, &at, 1, &r, &e), &e);
        assert_int_equal(r.skipped, 1);
        assert_string_equal(r.bad, f[i].says);
        fixture_close(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wishes_of_configure),
        cmocka_unit_test(wishes_of_a_step),
        cmocka_unit_test(faults_of_a_run),
        cmocka_unit_test(faults_of_kernels),
    };
    return cmocka_run_group_tests_name("wrong", tests, NULL, NULL);
}
