/* SPDX-License-Identifier: Apache-2.0 */
/* model/test_build.c - from a spec to a model: patterns, refusals with their place and words, parts, names, first
 * values, plans. */
#include "fixture.h"
#include <math.h>

#define RUN "[run]\nprecision = f64\n"
#define DELTA "[layer.G]\nkey_heads = 2\nvalue_heads = 4\nkey_dim = 4\nvalue_dim = 4\n"
#define ATTENTION "[layer.*]\nheads = 4\nhead_dim = 4\n"
#define MLP "[layer.-]\nwidth = 8\n"
#define LAYERS DELTA ATTENTION MLP
#define BATCH "[batch]\ntokens = 32\nsequences = 4\n"
#define OPT "[optimizer]\nplugin = adamw\n"
#define POSITION "[position]\nplugin = rope\n"
#define STACK(pattern, more) RUN "[stack]\nhidden = 16\nvocab = 23\npattern = " pattern "\n" more
#define SMALL STACK("-", "") MLP BATCH OPT

/* The spec is refused, the first mistake says `words` at `line` (0: anywhere). */
static void refused(const char *spec, int line, const char *words)
{
    st_diags d = {0};
    fixture *f = fixture_build(spec, 1, &d);

    if (f) fail_msg("not refused; expected: %s", words);
    for (int i = 0; i < d.n; i++)
        if (!d.item[i].warning && strstr(d.item[i].error.message, words)) {
            if (line) assert_int_equal(d.item[i].error.line, line);
            return;
        }
    st_diags_print(&d, stderr);
    fail_msg("no message says: %s", words);
}

static fixture *accepted(const char *spec, int train)
{
    st_diags d = {0};
    fixture *f = fixture_build(spec, train, &d);

    if (!f) {
        st_diags_print(&d, stderr);
        fail_msg("refused");
    }
    return f;
}

static void wrong_specs_are_refused_with_place_and_words(void **state)
{
    refused(RUN "[stack]\nhidden = 16\nvocab = 23\n" BATCH OPT, 3, "neither pattern nor blocks is given");
    refused(STACK("G-Q-", "") LAYERS BATCH OPT, 6, "Q");
    refused(STACK("G-", "blocks = 2\n") LAYERS BATCH OPT, 6, "pattern is G-");
    refused(STACK("G-", "") LAYERS BATCH OPT POSITION, 12, "no pattern uses the symbol *");
    refused(STACK("*-", "") ATTENTION "kv_heads = 3\n" MLP BATCH OPT, 10, "kv_heads = 3 does not divide heads = 4");
    refused(SMALL "[part.merger]\nfreeze = yes\n", 14, "no weight belongs to the part 'merger'");
    refused(SMALL "[part.language]\nlast_blocks = 3\n", 15, "part language has 1");
    refused(SMALL "[part.language]\nfreeze = yes\n", 0, "nothing is trained");
    refused(SMALL "[recompute]\ndrop = -.gate_up\n", 15, "must be kept");
    refused(SMALL "[recompute]\ndrop = -.nothing\n", 15, "is no slot");
    refused(SMALL "[recompute]\nfull = G\n", 15, "no layer of the pattern has the symbol 'G'");
    refused(SMALL "[init.rules]\nconv = 0.3\n", 15, "no weight has such a name");
    refused(SMALL "[init]\nrule = fan_in\nstd = 0.1\n", 16, "std has no meaning under rule = fan_in");
    refused(SMALL "[init.rules]\npre_norm = 0.3\n", 15, "not drawn from a normal");
    refused(STACK("-", "") MLP BATCH "images = 3\n" OPT, 12, "there is no [encoder]");
    refused(SMALL IMAGE_PARTS, 0, "an encoder needs [batch] images and patches");
    refused(STACK("-", "") MLP "[batch]\ntokens = 32\nmax_len = 33\n" OPT, 11, "max_len = 33");
    refused("[run]\nprecision = bf16\nbackend = cpu\n[stack]\nhidden = 16\nvocab = 23\npattern = -\n" MLP BATCH OPT, 2,
            "precision = bf16");
    refused(STACK("-", "nom = rms\n") MLP BATCH OPT, 7, "[stack] has no key \"nom\"");
}

/* What a plugin finds wrong between keys is shown at one of them: line, column, the line itself. */
static void shown_at(const char *spec, const char *line_text, int column, const char *message, const char *hint)
{
    st_diags d = {0};
    const st_diag *first = &d.item[0];

    assert_null(fixture_build(spec, 1, &d));
    if (d.errors != 1) st_diags_print(&d, stderr);
    assert_int_equal(d.errors, 1);
    assert_string_equal(first->line_text, line_text);
    assert_int_equal(first->error.column, column);
    if (!strstr(first->error.message, message)) fail_msg("not '%s': %s", message, first->error.message);
    assert_string_equal(first->error.hint, hint);
}

static void mistakes_between_keys_are_shown_at_one(void **state)
{
    shown_at(STACK("*-", "") ATTENTION "kv_heads =  3\n" MLP BATCH OPT, "kv_heads =  3", 13,
             "[layer.*] kv_heads = 3 does not divide heads = 4", "");
    shown_at(STACK("G-", "") DELTA "dt_min = 0.2\n" MLP BATCH OPT, "dt_min = 0.2", 10, "[layer.G] dt_min = 0.2", "");
    shown_at(STACK("*-", "") "[layer.*]\nheads = 5\n" MLP BATCH OPT, "heads = 5", 9,
             "[layer.*] heads = 5 does not divide hidden = 16", "");
    shown_at(SMALL "beta2 = 1\n", "beta2 = 1", 9, "[optimizer] beta2 = 1: must be below 1", "");
    shown_at(TEXT_MODEL IMAGE_BATCH IMAGE_PARTS_WITH("VF", "image_std = 1,0,1\n", "heads = 2\n"),
             "image_std = 1,0,1", 13, "[encoder] image_std = 0 for channel 1", "");
}

/* A position's mistakes are its own, whichever layer asks; two layers of one head size tell it once. */
static void mistakes_of_positions_are_shown_there(void **state)
{
    const char *asks = "layers.0 (*, attention) asks for it";

    shown_at(STACK("*-B-", "") ATTENTION "[layer.B]\nplugin = attention\nheads = 2\nhead_dim = 4\n" MLP BATCH OPT
             POSITION "rotary_percent = 0.7\n", "rotary_percent = 0.7", 18,
             "[position] rotary_percent = 0.7: of head_dim 4 that is 2.8 columns", asks);
    shown_at(STACK("*-", "") ATTENTION MLP BATCH OPT "[position]\nplugin = mrope\nrotary_percent = 1\n"
                                                     "section = 1,1,1\n",
             "section = 1,1,1", 11, "[position] section = 1,1,1 sums to 3: must be 2", asks);
    shown_at(STACK("*-", "") ATTENTION MLP BATCH OPT "[position]\nplugin = mrope\nsection = 1,1\n",
             "section = 1,1", 11, "[position] section has 2 numbers", "");
}

static void mistakes_of_layers_are_told_together(void **state)
{
    st_diags d = {0};

    assert_null(fixture_build(STACK("*-", "") ATTENTION "kv_heads = 3\n[layer.-]\nwidth = 0\n" BATCH OPT, 1, &d));
    assert_int_equal(d.errors, 2);
}

static void blocks_give_a_pattern(void **state)
{
    fixture *f = accepted(RUN "[stack]\nhidden = 16\nvocab = 23\nblocks = 8\n" LAYERS BATCH OPT POSITION, 1);

    assert_string_equal(st_model_pattern(f->model), "G-G-G-*-G-G-G-*-");
    fixture_close(f);
    f = accepted(STACK("(G-)x3*-", "blocks = 4\n") LAYERS BATCH OPT POSITION, 1);
    assert_string_equal(st_model_pattern(f->model), "G-G-G-*-");
    fixture_close(f);
}

static void one_plugin_may_have_two_symbols(void **state)
{
    fixture *f =
        accepted(STACK("-m", "") "[layer.-]\nwidth = 8\n[layer.m]\nplugin = swiglu\nwidth = 40\n" BATCH OPT, 1);
    const st_model_layer *l;
    int n = st_model_layers(f->model, &l), seen = 0;

    for (int i = 0; i < n; i++) {
        if (l[i].kind != ST_KIND_LAYER) continue;
        assert_string_equal(l[i].plugin->name, "swiglu");
        assert_int_equal(l[i].parameters, 16 + 3 * 16 * (l[i].symbol == 'm' ? 40 : 8));
        seen++;
    }
    assert_int_equal(seen, 2);
    fixture_close(f);
}

static const st_model_weight *weight(const fixture *f, const char *path)
{
    const st_model_weight *const *w;
    int n = st_model_weights(f->model, &w);
    for (int i = 0; i < n; i++)
        if (!strcmp(w[i]->path, path)) return w[i];
    fail_msg("no weight %s", path);
    return NULL;
}

static void decay_follows_shape_and_lists(void **state)
{
    fixture *f = accepted(STACK("G-", "") DELTA MLP BATCH OPT "weight_decay = 0.1\nno_decay = conv, layers.1.*\n"
                                                              "decay = final_norm\n[part.language]\nlr_scale = 0.5\n",
                          1);

    assert_true(weight(f, "layers.0.in")->decay == 0.1);
    assert_true(weight(f, "layers.0.conv")->decay == 0);
    assert_true(weight(f, "layers.0.a_log")->decay == 0);
    assert_true(weight(f, "layers.0.pre_norm")->decay == 0);
    assert_true(weight(f, "layers.1.down")->decay == 0);
    assert_true(weight(f, "final_norm")->decay == 0.1);
    assert_true(weight(f, "embed")->decay == 0.1 && weight(f, "embed")->lr_scale == 0.5);
    assert_int_equal(weight(f, "layers.1.down")->block, 0);
    assert_int_equal(weight(f, "embed")->block, -1);
    fixture_close(f);
}

/* Written out again, a spec says what deviation was taken, and none where it has no meaning. */
static void the_resolved_spec_holds_the_deviation(void **state)
{
    static const char *const given[] = {"", "[init]\nrule = fan_in\n"};
    static const char *const want[] = {"[init]\nrule = hf\nstd = 0.02\n", "[init]\nrule = fan_in\n\n"};

    for (int i = 0; i < 2; i++) {
        char spec[1024];
        fixture *f;
        st_buf text = {0};
        snprintf(spec, sizeof spec, "%s%s", SMALL, given[i]);
        f = accepted(spec, 1);
        st_spec_write(f->spec, &text);
        if (!strstr(text.data, want[i])) fail_msg("'%s' is not in: %s", want[i], text.data);
        st_buf_free(&text);
        fixture_close(f);
    }
}

static void lists_of_decay_name_weights(void **state)
{
    const char *hint = "with a dot: the whole path (layers.*.conv); without: the weight's name (conv)";

    shown_at(SMALL "decay = up, layers.0.down embed\n", "decay = up, layers.0.down embed", 9,
             "decay: no weight has the name or path 'up'", hint);
    shown_at(SMALL "no_decay =  embed,layers.1.*\n", "no_decay =  embed,layers.1.*", 19,
             "no_decay: no weight has the name or path 'layers.1.*'", hint);
}

static void file_names_are_those_of_the_family(void **state)
{
    static const char *const want[] = {"model.language_model.embed_tokens.weight",
                                       "model.language_model.norm.weight",
                                       "lm_head.weight",
                                       "model.language_model.layers.0.input_layernorm.weight",
                                       "model.language_model.layers.1.post_attention_layernorm.weight",
                                       "model.language_model.layers.0.linear_attn.in_proj_qkv.weight",
                                       "model.language_model.layers.1.self_attn.q_proj.weight",
                                       "model.language_model.layers.1.mlp.gate_proj.weight",
                                       "model.visual.patch_embed.proj.weight",
                                       "model.visual.merger.linear_fc2.bias",
                                       "model.visual.blocks.1.norm1.bias",
                                       "model.visual.blocks.1.norm2.weight",
                                       "model.visual.blocks.0.attn.qkv.weight",
                                       "model.visual.blocks.1.mlp.linear_fc1.bias"};
    fixture *f = accepted(TEXT_MODEL_WITH("", "") MROPE IMAGE_PARTS IMAGE_BATCH, 1);
    const st_model_weight *const *w;
    const st_file_name *names;
    int n = st_family_names(f->model, "hf", &names), weights = st_model_weights(f->model, &w);
    int64_t *rows = calloc((size_t)weights, sizeof *rows);

    assert_true(n > 0);
    for (size_t i = 0; i < ST_COUNT(want); i++) {
        int seen = 0;
        for (int k = 0; k < n; k++) seen += !strcmp(names[k].file_name, want[i]);
        if (seen != 1) fail_msg("%s: %d times", want[i], seen);
    }
    for (int k = 0; k < n; k++) rows[names[k].weight] += names[k].n;
    for (int i = 0; i < weights; i++)
        if (rows[i] != w[i]->dim[w[i]->n_sec ? w[i]->sec_dim : 0])
            fail_msg("%s: names cover %lld rows", w[i]->path, (long long)rows[i]);
    assert_int_equal(st_family_names(f->model, "no such layout", &names), 0);
    free(rows);
    fixture_close(f);
}

/* ---- first values ---- */

static double deviation(fixture *f, const char *path)
{
    const st_model_weight *const *w;
    int n = st_model_weights(f->model, &w);
    st_error e = {0};

    for (int i = 0; i < n; i++) {
        double *v, sum = 0;
        if (strcmp(w[i]->path, path)) continue;
        v = ST_NEW_N(f->arena, double, w[i]->count);
        need_ok(st_model_read(f->model, i, ST_READ_WEIGHT, v, &e), &e);
        for (int64_t k = 0; k < w[i]->count; k++) sum += v[k] * v[k];
        return sqrt(sum / (double)w[i]->count);
    }
    fail_msg("no weight %s", path);
    return 0;
}

static void near(double got, double want)
{
    if (!(fabs(got - want) < 0.08 * want)) fail_msg("deviation %g, expected %g", got, want);
}

#define WIDE(init) \
    RUN "[stack]\nhidden = 64\nvocab = 200\npattern = G-G-\n" \
        "[layer.G]\nkey_heads = 2\nvalue_heads = 4\nkey_dim = 16\nvalue_dim = 16\n[layer.-]\nwidth = 128\n" BATCH OPT \
            init

static void rules_give_their_deviations(void **state)
{
    fixture *f = fixture_open(WIDE(""), 1);
    near(deviation(f, "layers.1.gate_up"), 0.02);
    near(deviation(f, "layers.1.down"), 0.02);
    near(deviation(f, "embed"), 0.02);
    assert_true(deviation(f, "layers.1.pre_norm") == 0 && deviation(f, "layers.0.norm") == 1);
    fixture_close(f);
    f = fixture_open(WIDE("[init]\nrule = megatron_scaled\nstd = 0.1\n"), 1);
    near(deviation(f, "layers.1.gate_up"), 0.1);
    near(deviation(f, "layers.1.down"), 0.05); /* four layers */
    fixture_close(f);
    f = fixture_open(WIDE("[init]\nrule = fan_in\n[init.rules]\nconv = 0.3\nlayers.3.down = 0.7\n"), 1);
    near(deviation(f, "layers.1.gate_up"), 1 / sqrt(64));
    near(deviation(f, "layers.1.down"), 1 / sqrt(128));
    near(deviation(f, "layers.0.conv"), 0.3);
    near(deviation(f, "layers.3.down"), 0.7);
    near(deviation(f, "embed"), 1);
    near(deviation(f, "lm_head"), 1 / sqrt(64));
    fixture_close(f);
}

/* A weight's first values depend on the seed and its own path, not on the rest of the model. */
static void first_values_follow_the_path(void **state)
{
    fixture *a = fixture_open(WIDE(""), 1), *b = fixture_open(WIDE("[part.language]\nlast_blocks = 1\n"), 1);
    int64_t n = weight(a, "layers.3.down")->count;
    double *x = ST_NEW_N(a->arena, double, n), *y = ST_NEW_N(a->arena, double, n);
    st_error e = {0};

    for (int32_t i = 0; i < a->model->n_weights; i++)
        if (!strcmp(a->model->weights[i]->pub.path, "layers.3.down")) {
            need_ok(st_model_read(a->model, i, ST_READ_WEIGHT, x, &e), &e);
            need_ok(st_model_read(b->model, i, ST_READ_WEIGHT, y, &e), &e);
        }
    assert_memory_equal(x, y, (size_t)n * sizeof *x);
    need_ok(st_model_init(b->model, 8, &e), &e);
    for (int32_t i = 0; i < a->model->n_weights; i++)
        if (!strcmp(a->model->weights[i]->pub.path, "layers.3.down"))
            need_ok(st_model_read(b->model, i, ST_READ_WEIGHT, y, &e), &e);
    assert_memory_not_equal(x, y, (size_t)n * sizeof *x);
    fixture_close(a);
    fixture_close(b);
}

/* ---- plans ---- */

static void a_plan_needs_no_device(void **state)
{
    fixture *f = accepted(TEXT_MODEL TEXT_BATCH, 1),
            *g = accepted(TEXT_MODEL TEXT_BATCH "[recompute]\nfull = all\n", 1),
            *e = accepted(TEXT_MODEL TEXT_BATCH, 0);
    st_plan_bytes a, b, c;
    st_error err = {0};

    need_ok(st_model_plan(f->model, &err), &err);
    need_ok(st_model_plan(g->model, &err), &err);
    need_ok(st_model_plan(e->model, &err), &err);
    assert_null(f->model->device);
    st_model_plan_bytes(f->model, &a);
    st_model_plan_bytes(g->model, &b);
    st_model_plan_bytes(e->model, &c);
    assert_true(a.kept > b.kept && b.kept > 0 && c.kept == 0 && c.gradients == 0 && c.optimizer == 0);
    assert_true(a.optimizer >= 2 * a.gradients && a.gradients >= 8 * (size_t)st_model_parameters(f->model, NULL));
    assert_true(st_model_flops(f->model) == st_model_flops(g->model)); /* replayed forwards are not useful work */
    assert_true(st_model_flops(f->model) > 2.5 * st_model_flops(e->model));
    assert_true(st_model_gemm_flops(f->model) > 0.5 * st_model_flops(f->model));
    fixture_close(f);
    fixture_close(g);
    fixture_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_specs_are_refused_with_place_and_words),
        cmocka_unit_test(mistakes_between_keys_are_shown_at_one),
        cmocka_unit_test(mistakes_of_positions_are_shown_there),
        cmocka_unit_test(mistakes_of_layers_are_told_together),
        cmocka_unit_test(blocks_give_a_pattern),
        cmocka_unit_test(one_plugin_may_have_two_symbols),
        cmocka_unit_test(decay_follows_shape_and_lists),
        cmocka_unit_test(lists_of_decay_name_weights),
        cmocka_unit_test(the_resolved_spec_holds_the_deviation),
        cmocka_unit_test(file_names_are_those_of_the_family),
        cmocka_unit_test(rules_give_their_deviations),
        cmocka_unit_test(first_values_follow_the_path),
        cmocka_unit_test(a_plan_needs_no_device),
    };
    return cmocka_run_group_tests_name("build", tests, NULL, NULL);
}
