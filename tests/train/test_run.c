/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/test_run.c - whole runs of the small spec: parts that are frozen or slowed, a model that reads what it
 * was shown, greedy text, weights in HuggingFace's names. */
#include "config.h"

#include "checkpoint/hf_config.h"
#include "train_test.h"
#include <math.h>
#include <signal.h>

/* ---- parts ---- */

/* How far a tensor moved in one step, by the start that a learning rate of 0 leaves. */
static double moved(const folder *f, const char *output, const char *name)
{
    int64_t n;
    const double *a = tensor(f, "start", 1, name, &n), *b = tensor(f, output, 1, name, &n);
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += (b[i] - a[i]) * (b[i] - a[i]);
    return sqrt(sum);
}

static void one_step(const folder *f, const char *output, const char *set)
{
    train(f, NULL, output,
          SETS("run.steps=1", "schedule.warmup=0", "schedule.kind=constant", "eval.show=0", "run.precision=f64", set),
          NULL, NULL);
}

static const char *const vision[] = {"encoder.blocks.0.attn_qkv", "encoder.patch", "encoder.position"};
static const char *const trunk[] = {"layers.0.in", "layers.1.gate_up", "layers.2.qkv", "layers.3.down", "embed"};

static void parts_are_frozen_and_slowed(void **state)
{
    const folder *f = *state;

    one_step(f, "start", "schedule.lr=0");
    one_step(f, "all", "run.name=all");
    one_step(f, "frozen", "part.vision.freeze=yes");
    one_step(f, "slow", "part.vision.lr_scale=0.25");
    one_step(f, "last", "part.language.last_blocks=1");
    for (size_t i = 0; i < ST_COUNT(vision); i++) {
        assert_true(moved(f, "all", vision[i]) > 1e-3);
        assert_true(moved(f, "frozen", vision[i]) == 0);
        double ratio = moved(f, "slow", vision[i]) / moved(f, "all", vision[i]);
        if (fabs(ratio - 0.25) > 1e-9) fail_msg("%s moved by %g of the full step", vision[i], ratio);
    }
    for (size_t i = 0; i < ST_COUNT(trunk); i++) {
        assert_true(moved(f, "all", trunk[i]) > 1e-3);
        assert_true(moved(f, "frozen", trunk[i]) > 1e-3);
        assert_true(fabs(moved(f, "slow", trunk[i]) / moved(f, "all", trunk[i]) - 1) < 1e-12);
    }
    assert_true(moved(f, "frozen", "encoder.merger.fc1") > 1e-3); /* a part of its own */
    one_step(f, "merger", "part.merger.freeze=yes");
    assert_true(moved(f, "merger", "encoder.merger.fc1") == 0);
    assert_true(moved(f, "merger", "encoder.patch") > 1e-3);
    assert_true(moved(f, "last", "layers.0.in") == 0);
    assert_true(moved(f, "last", "layers.1.gate_up") == 0);
    assert_true(moved(f, "last", "layers.2.qkv") > 1e-3);
    assert_true(moved(f, "last", "layers.3.down") > 1e-3);
}

/* ---- reading what it was shown ---- */

#define LEARN \
    "run.steps=400", "schedule.lr=5e-3", "eval.every=0", "checkpoint.every=0", "dataset.train.samples=4", \
        "dataset.valid.samples=4", "dataset.valid.seed=1", "optimizer.beta2=0.95"

static const char *value(const folder *f, const char *line, const char *key, double *out)
{
    const char *at = strstr(line, st_arena_printf(f->arena, "\"%s\": ", key));
    if (!at) fail_msg("no %s", key);
    *out = strtod(strchr(at, ':') + 1, NULL);
    return at;
}

static void it_looks_and_reads(void **state)
{
    const folder *f = *state;
    const char *said, *metrics;
    double content, permuted;

    train(f, NULL, "out", SETS(LEARN, "eval.show=4"), NULL, &said);
    metrics = text_of(f, in_folder(f, "out/metrics.jsonl"));
    value(f, metrics, "eval_content_accuracy", &content);
    value(f, metrics, "eval_permuted_content_accuracy", &permuted);
    assert_true(content == 1);
    assert_true(permuted < 0.9); /* the same texts beside other pictures */
    for (int i = 0; i < 4; i++) assert_non_null(strstr(said, st_arena_printf(f->arena, "right mock-%d", i)));
    assert_null(strstr(said, "wrong"));
}

static void a_checkpoint_alone_is_the_same_model(void **state)
{
    const folder *f = *state;
    st_scores a, b;
    st_error e = {0};

    train(f, NULL, "out", SETS("run.steps=5", "checkpoint.every=0"), NULL, NULL);
    char *dir = st_checkpoint_path(in_folder(f, "out"), 5, f->arena);
    opened *before = open_run(f, NULL, "before", SETS(st_arena_printf(f->arena, "checkpoint.from=%s", dir)));
    need_ok(st_evaluate(before->run.model, before->run.valid, before->run.valid_row, 0, NULL, &a, &e), &e);
    close_run(before);
    assert_int_equal(remove(in_folder(f, "micro.ini")), 0);
    assert_int_equal(remove(in_folder(f, "tokenizer.json")), 0);
    opened *after = open_run(f, st_path_join(f->arena, dir, "spec.ini"), "after",
                             SETS(st_arena_printf(f->arena, "checkpoint.from=%s", dir)));
    need_ok(st_evaluate(after->run.model, after->run.valid, after->run.valid_row, 0, NULL, &b, &e), &e);
    assert_string_equal(st_model_pattern(after->run.model), "G-*-");
    close_run(after);
    assert_true(a.trained > 0 && a.loss == b.loss && a.content == b.content && a.accuracy == b.accuracy);
}

static void evaluation_counts(void **state)
{
    const folder *f = *state;
    opened *o = open_run(f, NULL, "out", NULL);
    st_scores all, some;
    st_stop stopped = {.signal = 15};
    st_error e = {0};

    need_ok(st_evaluate(o->run.model, o->run.valid, o->run.valid_row, 0, NULL, &all, &e), &e);
    assert_int_equal(all.samples, 6); /* in rows of at most 4 */
    assert_int_equal(all.content_tokens, 24);
    assert_int_equal(all.trained, 48);
    need_ok(st_evaluate(o->run.model, o->run.valid, o->run.valid_row, 5, NULL, &some, &e), &e);
    assert_int_equal(some.samples, 5);
    need_ok(st_evaluate(o->run.model, o->run.valid, o->run.valid_row, 0, NULL, &some, &e), &e);
    assert_true(some.loss == all.loss);
    need_ok(st_evaluate(o->run.model, o->run.valid, o->run.valid_row, 0, &stopped, &some, &e), &e);
    assert_int_equal(some.samples, 0);
    assert_true(isnan(some.loss));
    close_run(o);
}

/* ---- signals ---- */

/* One that comes while the run is made ready: nothing is trained, so there is nothing to save. */
static void a_signal_before_the_first_step(void **state)
{
    static const struct {
        int number;
        const char *words;
    } signals[] = {{SIGTERM, "stopped by SIGTERM before the first step"},
                   {SIGINT, "stopped by SIGINT before the first step"},
                   {SIGHUP, "stopped by SIGHUP before the first step"}};
    const folder *f = *state;

    signal(SIGHUP, SIG_DFL);
    for (size_t i = 0; i < ST_COUNT(signals); i++) {
        char out[] = "out0", *latest;
        st_error e = {0};
        out[3] += (char)i;
        st_stop_block();
        assert_int_equal(raise(signals[i].number), 0);
        assert_int_equal(train(f, NULL, out, NULL, NULL, NULL), ST_OK);
        need_ok(st_checkpoint_latest(in_folder(f, out), f->arena, &latest, &e), &e);
        assert_null(latest);
        assert_string_equal(text_of(f, st_arena_printf(f->arena, "%s/metrics.jsonl", in_folder(f, out))), "");
        assert_non_null(strstr(text_of(f, st_arena_printf(f->arena, "%s/log", in_folder(f, out))), signals[i].words));
    }
}

static void a_run_under_nohup_outlives_its_terminal(void **state)
{
    st_stop stop = {0};

    signal(SIGHUP, SIG_IGN);
    st_stop_block();
    assert_int_equal(raise(SIGHUP), 0);
    assert_false(st_stop_asked(&stop));
    assert_int_equal(raise(SIGINT), 0);
    assert_true(st_stop_asked(&stop));
    assert_string_equal(st_stop_name(&stop), "SIGINT");
    signal(SIGHUP, SIG_DFL);
}

/* ---- greedy text ---- */

static int count_words(const char *text)
{
    int n = 0;
    for (const char *p = text; *p; p++) n += *p != ' ' && (p == text || p[-1] == ' ');
    return n;
}

/* Data of ready ids has no end of turn, so only limits end a text. */
#define IDS \
    "tokenizer.path=", "dataset.train.images=0", "dataset.valid.images=0", "dataset.valid.min_tokens=30", \
        "dataset.valid.max_tokens=40", "dataset.valid.prompt=20", "run.precision=f64"

static int32_t generate(const folder *f, const char *output, const char *tokens, int32_t max_tokens, st_generated *out)
{
    opened *o = open_run(f, NULL, output, SETS(IDS, tokens));
    st_generation g = {.model = o->run.model, .loader = o->run.valid, .max_tokens = max_tokens, .arena = f->arena};
    st_error e = {0};
    int32_t made = 0;

    need_ok(st_generate(&g, 3, out, &made, &e), &e);
    close_run(o);
    return made;
}

static void text_ends_at_its_limits(void **state)
{
    const folder *f = *state;
    st_generated wide[3], narrow[3], cut[3], none[3];

    assert_int_equal(generate(f, "a", "batch.tokens=192", 9, wide), 3);
    assert_int_equal(generate(f, "b", "batch.tokens=45", 9, narrow), 3); /* one at a time fits a row */
    assert_int_equal(generate(f, "c", "batch.tokens=45", 1000, cut), 3);
    assert_int_equal(generate(f, "d", "batch.tokens=192", 0, none), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(count_words(wide[i].text), 9);
        assert_string_equal(wide[i].text, narrow[i].text);
        assert_int_equal(count_words(cut[i].text), 25); /* the row is full */
        assert_memory_equal(cut[i].text, wide[i].text, strlen(wide[i].text));
        assert_string_equal(none[i].text, "");
    }
}

static void text_stops_when_asked(void **state)
{
    const folder *f = *state;
    opened *o = open_run(f, NULL, "out", SETS(IDS));
    st_stop stopped = {.signal = 15};
    st_generation g = {
        .model = o->run.model, .loader = o->run.valid, .max_tokens = 9, .stop = &stopped, .arena = f->arena};
    st_generated out[3];
    st_error e = {0};
    int32_t made = 0;

    need_ok(st_generate(&g, 3, out, &made, &e), &e);
    assert_string_equal(out[0].text, "");
    close_run(o);
}

/* ---- weights in HuggingFace's names ---- */

static const char hf_rest[] = "[run]\nsteps = 1\nprecision = f64\n[batch]\ntokens = 128\nimages = 1\npatches = 16\n"
                              "[dataset.train]\nplugin = mock\n"
                              "[optimizer]\nplugin = adamw\n[schedule]\nlr = 0\n";

static const char *golden(const folder *f, const char *name)
{
    return st_arena_printf(f->arena, "%s/tests/golden/dense-vl/%s", getenv("ST_SRCDIR"), name);
}

static const char *hf_spec(const folder *f)
{
    st_buf text = {0};
    st_error e = {0};

    need_ok(st_hf_config_spec(golden(f, "config.json"), &text, &e), &e);
    st_buf_puts(&text, hf_rest);
    const char *path = put_text(f, "hf.ini", text.data);
    st_buf_free(&text);
    return path;
}

static void published_weights_are_taken(void **state)
{
    const folder *f = *state;
    const char *from = st_arena_printf(f->arena, "checkpoint.from_hf=%s", golden(f, "weights.safetensors"));
    st_tensors *file;
    st_error e = {0};
    int64_t n;

    train(f, hf_spec(f), "out", SETS(from), NULL, NULL); /* a learning rate of 0 leaves them as they are */
    need_ok(st_tensors_open(golden(f, "weights.safetensors"), &file, &e), &e);
    const st_file_tensor *t = st_tensors_find(file, "model.language_model.embed_tokens.weight");
    assert_non_null(t);
    double *want = ST_NEW_N(f->arena, double, t->count);
    need_ok(st_tensor_to_f64(t, want, &e), &e);
    const double *got = tensor(f, "out", 1, "embed", &n);
    assert_int_equal(n, t->count);
    assert_memory_equal(got, want, sizeof *want * (size_t)n);
    st_tensors_close(file);
}

static void other_published_weights_are_refused(void **state)
{
    const folder *f = *state;
    const char *spec = hf_spec(f), *file = golden(f, "weights.safetensors");
    const char *from = st_arena_printf(f->arena, "checkpoint.from_hf=%s", file);
    st_error e = {0};

    assert_int_equal(train(f, spec, "out", SETS(from, "stack.pattern=G-G-*-"), &e, NULL), ST_E_CONFIG);
    assert_non_null(
        strstr(e.message, "that the model has no place for, the first is model.language_model.layers.2.linear_attn."));
    assert_int_equal(train(f, spec, "out", SETS(from, "stack.pattern=G-G-G-*-*-"), &e, NULL), ST_E_CONFIG);
    assert_non_null(strstr(e.message, "no tensor model.language_model.layers.4."));
    assert_int_equal(train(f, spec, "out", SETS(from, "layer.-.width=64"), &e, NULL), ST_E_CONFIG);
    assert_non_null(strstr(e.message, "[128,64], weight layers.1."));
    assert_int_equal(train(f, spec, "out", SETS("checkpoint.from_hf=/nowhere"), &e, NULL), ST_E_CONFIG);
    assert_false(st_path_exists(in_folder(f, "out")));
}

static void other_configs_are_refused(void **state)
{
    const folder *f = *state;
    const char *config = text_of(f, golden(f, "config.json"));
    static const char *const change[][3] = {
        {"\"silu\"", "\"gelu\"", "hidden_act \"gelu\": only silu is known"},
        {"\"hidden_size\": 64", "\"hidden_size\": -1", "text_config.hidden_size must be a whole number from 1"},
        {"\"out_hidden_size\": 64", "\"out_hidden_size\": 48", "vision out_hidden_size = 48, but hidden_size = 64"},
        {"\"head_dim\": 32,", "", "text_config has no head_dim"},
        {"\"full_attention\"", "\"other\"", "layer_types[3] = \"other\""},
        {"\"num_position_embeddings\": 16", "\"num_position_embeddings\": 17", "= 17 is no square"},
        {"\"partial_rotary_factor\": 0.25,\n    \"rms", "\"partial_rotary_factor\": 0.5,\n    \"rms", NULL},
        {"\"text_config\": {", "\"text_config\": [{", ""},
    };
    for (size_t i = 0; i < ST_COUNT(change); i++) {
        const char *at = strstr(config, change[i][0]);
        st_error e = {0};
        st_buf out = {0};
        assert_non_null(at);
        char *text =
            st_arena_printf(f->arena, "%.*s%s%s", (int)(at - config), config, change[i][1], at + strlen(change[i][0]));
        int rc = st_hf_config_spec(put_text(f, "config.json", text), &out, &e);
        if (!change[i][2]) assert_int_equal(rc, ST_OK); /* rope_parameters has its own */
        else if (rc == ST_OK || !strstr(e.message, change[i][2])) fail_msg("%s: %s", change[i][1], e.message);
        st_buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts_are_frozen_and_slowed, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(it_looks_and_reads, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(a_checkpoint_alone_is_the_same_model, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(evaluation_counts, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(a_signal_before_the_first_step, folder_make, folder_drop),
        cmocka_unit_test(a_run_under_nohup_outlives_its_terminal),
        cmocka_unit_test_setup_teardown(text_ends_at_its_limits, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(text_stops_when_asked, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(published_weights_are_taken, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(other_published_weights_are_refused, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(other_configs_are_refused, folder_make, folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
