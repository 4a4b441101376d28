/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/test_parts.c - learning rates, lines of metrics, lines of progress. */
#include "config.h"

#include "train_test.h"
#include <math.h>

/* ---- schedules ---- */

static double rate(int32_t kind, int64_t warmup, int64_t decay, double final_ratio, int64_t step, int64_t steps)
{
    const st_schedule_keys k = {.lr = 2, .final_ratio = final_ratio, .warmup = warmup, .decay = decay, .kind = kind};
    return st_learning_rate(&k, step, steps);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-14)) fail_msg("%.17g, it should be %.17g", got, want);
}

static void warm_up_trains_from_the_first_step(void **state)
{
    for (int32_t kind = ST_SCHEDULE_COSINE; kind <= ST_SCHEDULE_WSD; kind++) {
        near(rate(kind, 4, 0, 0.1, 1, 100), 0.5);
        near(rate(kind, 4, 0, 0.1, 2, 100), 1);
        near(rate(kind, 4, 0, 0.1, 4, 100), 2);
        near(rate(kind, 1, 0, 0.1, 1, 100), 2);
        near(rate(kind, 200, 0, 0.1, 100, 100), 1); /* a trial that ends in its warm-up */
        assert_true(rate(kind, 0, 0, 0.1, 1, 100) > 1.9);
    }
}

static void shapes(void **state)
{
    near(rate(ST_SCHEDULE_COSINE, 10, 0, 0.1, 60, 110), 1.1); /* half way: the mean of both ends */
    near(rate(ST_SCHEDULE_COSINE, 10, 0, 0, 35, 110), 1 + sqrt(0.5));
    near(rate(ST_SCHEDULE_LINEAR, 10, 0, 0.5, 60, 110), 1.5);
    near(rate(ST_SCHEDULE_LINEAR, 0, 0, 0, 25, 100), 1.5);
    near(rate(ST_SCHEDULE_CONSTANT, 10, 0, 0.1, 60, 110), 2);
    near(rate(ST_SCHEDULE_WSD, 10, 20, 0.5, 80, 100), 2);
    near(rate(ST_SCHEDULE_WSD, 10, 20, 0.5, 90, 100), 1.5);
    near(rate(ST_SCHEDULE_WSD, 10, 0, 0, 90, 100), 2); /* a tenth of the steps */
    near(rate(ST_SCHEDULE_WSD, 10, 0, 0, 95, 100), 1);
    near(rate(ST_SCHEDULE_WSD, 96, 0, 0, 98, 100), 1); /* the warm-up reaches into it: no jump */
}

static void last_step(void **state)
{
    near(rate(ST_SCHEDULE_COSINE, 10, 0, 0.1, 100, 100), 0.2);
    near(rate(ST_SCHEDULE_LINEAR, 10, 0, 0.1, 100, 100), 0.2);
    near(rate(ST_SCHEDULE_CONSTANT, 10, 0, 0.1, 100, 100), 2);
    near(rate(ST_SCHEDULE_WSD, 10, 5, 0.1, 100, 100), 0.2);
    near(rate(ST_SCHEDULE_COSINE, 0, 0, 1, 1, 1), 2);
}

static void rates_never_rise_behind_the_warm_up(void **state)
{
    for (int32_t kind = ST_SCHEDULE_COSINE; kind <= ST_SCHEDULE_WSD; kind++)
        for (int64_t step = 8; step < 50; step++)
            assert_true(rate(kind, 7, 0, 0, step + 1, 50) <= rate(kind, 7, 0, 0, step, 50));
}

/* ---- metrics ---- */

#define TRAINED(step) "{\"step\": " #step ", \"loss\": 1.5}\n"
#define EVALUATED(step) "{\"step\": " #step ", \"eval_loss\": 2}\n"

static void expect_cut(const folder *f, int64_t step, const char *before, const char *after)
{
    const char *path = put_text(f, "m.jsonl", before);
    st_metrics *m;
    st_error e = {0};

    need_ok(st_metrics_open(path, step, &m, &e), &e);
    st_metrics_begin(m, step + 1);
    st_metrics_number(m, "loss", NAN);
    need_ok(st_metrics_end(m, &e), &e);
    st_metrics_close(m);
    assert_string_equal(text_of(f, path), after);
}

static void resume_cuts_metrics(void **state)
{
    const folder *f = *state;
    const char *all = TRAINED(1) TRAINED(2) EVALUATED(2) TRAINED(3) TRAINED(4) EVALUATED(4) "{\"step\": 5, \"lo";

    expect_cut(f, 4, all, TRAINED(1) TRAINED(2) EVALUATED(2) TRAINED(3) TRAINED(4) "{\"step\": 5, \"loss\": null}\n");
    expect_cut(f, 3, all, TRAINED(1) TRAINED(2) EVALUATED(2) TRAINED(3) "{\"step\": 4, \"loss\": null}\n");
    expect_cut(f, 2, all, TRAINED(1) TRAINED(2) "{\"step\": 3, \"loss\": null}\n");
    expect_cut(f, 9, all,
               TRAINED(1) TRAINED(2) EVALUATED(2) TRAINED(3) TRAINED(4)
                   EVALUATED(4) "{\"step\": 10, \"loss\": null}\n");
    expect_cut(f, 1, "", "{\"step\": 2, \"loss\": null}\n");
    expect_cut(f, 1, "something else\n", "{\"step\": 2, \"loss\": null}\n");
    expect_cut(f, 1, "{\"step\": ", "{\"step\": 2, \"loss\": null}\n");
    expect_cut(f, 1, TRAINED(1) "{\"step\": 1", TRAINED(1) "{\"step\": 2, \"loss\": null}\n");
}

static void lines_of_metrics(void **state)
{
    const folder *f = *state;
    const char *path = put_text(f, "m.jsonl", TRAINED(1));
    st_metrics *m;
    st_error e = {0};

    need_ok(st_metrics_open(path, -1, &m, &e), &e);
    st_metrics_begin(m, 7);
    st_metrics_number(m, "loss", 0.1);
    st_metrics_number(m, "worst", -INFINITY);
    st_metrics_count(m, "tokens", 1234567890123);
    st_metrics_text(m, "skipped", "a \"b\"\\\n\x01 \xC3\xA4");
    need_ok(st_metrics_end(m, &e), &e);
    st_metrics_close(m);
    assert_string_equal(text_of(f, path), "{\"step\": 7, \"loss\": 0.1, \"worst\": null, \"tokens\": 1234567890123, "
                                          "\"skipped\": \"a \\\"b\\\"\\\\\\u000a\\u0001 \xC3\xA4\"}\n");
    e = (st_error){0};
    assert_int_equal(st_metrics_open(in_folder(f, "nowhere/m.jsonl"), -1, &m, &e), ST_E_IO);
}

/* ---- progress ---- */

static void expect_progress(st_progress_view v, const char *want)
{
    char text[256];
    assert_int_equal(st_progress_text(&v, text, sizeof text), strlen(want));
    assert_string_equal(text, want);
}

static void lines_of_progress(void **state)
{
    st_progress_view v = {12, 1500, 2.34567, 2e-3, 1.239, 12345.6, 59.4};
    expect_progress(v, "step 12/1500  loss 2.3457  lr 2.00e-03  norm 1.24  12346 tokens/s  0:59 left");
    v.seconds_left = 59.6;
    expect_progress(v, "step 12/1500  loss 2.3457  lr 2.00e-03  norm 1.24  12346 tokens/s  1:00 left");
    v.seconds_left = 3600 * 25 + 61;
    v.loss = NAN;
    expect_progress(v, "step 12/1500  loss nan  lr 2.00e-03  norm 1.24  12346 tokens/s  25:01:01 left");
    v.seconds_left = 0;
    v.step = 1500;
    expect_progress(v, "step 1500/1500  loss nan  lr 2.00e-03  norm 1.24  12346 tokens/s  0:00 left");
}

static void progress_without_a_terminal(void **state)
{
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    st_progress *p = st_progress_open(f, 0, 3);
    const st_step_result s = {.loss = 1, .grad_norm = 2, .tokens = 100};

    for (int64_t step = 1; step <= 3; step++) st_progress_step(p, step, &s, 0.5, 0.25);
    assert_true(fabs(st_progress_rate(p) - 400) < 1e-9);
    st_progress_close(p);
    fclose(f);
    assert_string_equal(text, "step 1/3  loss 1.0000  lr 5.00e-01  norm 2.00  400 tokens/s  0:01 left\n"
                              "step 3/3  loss 1.0000  lr 5.00e-01  norm 2.00  400 tokens/s  0:00 left\n");
    free(text);
}

/* ---- settings ---- */

static void expect_config(const char *text, int errors, int warnings, const char *message)
{
    st_train_config c;
    st_diags d = {0};
    st_spec *s;
    char *whole = NULL;

    if (asprintf(&whole, "%s%s", strstr(text, "[run]") ? "" : "[run]\nsteps = 100\n", text) < 0) fail();
    assert_int_equal(st_spec_parse("t.ini", whole, strlen(whole), ".", &s, &d), ST_OK);
    (void)st_train_config_bind(s, &c, &d);
    if (d.errors != errors || d.warnings != warnings) fail_msg("%s: %d errors", whole, d.errors);
    if (message) assert_string_equal(d.item[0].error.message, message);
    st_spec_destroy(s);
    free(whole);
}

static void settings(void **state)
{
    expect_config("[schedule]\nlr = 1\nwarmup = 100\n", 0, 0, NULL);
    expect_config("[schedule]\nlr = 1\nwarmup = 101\n", 0, 1,
                  "warmup = 101: in 100 steps the learning rate does not rise to lr");
    expect_config("[schedule]\nlr = 1\nkind = wsd\nwarmup = 60\ndecay = 40\n", 0, 0, NULL);
    expect_config("[schedule]\nlr = 1\nkind = wsd\nwarmup = 60\ndecay = 41\n", 1, 0,
                  "warmup = 60 and decay = 41 together exceed the 100 steps of the run");
    expect_config("[schedule]\nlr = 1\n[checkpoint]\nfrom = a\nfrom_hf = b\n", 1, 0, "from and from_hf are both given");
    expect_config("[run]\nseed = 1\n", 2, 0, NULL); /* steps and lr */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_trains_from_the_first_step),
        cmocka_unit_test(shapes),
        cmocka_unit_test(last_step),
        cmocka_unit_test(rates_never_rise_behind_the_warm_up),
        cmocka_unit_test_setup_teardown(resume_cuts_metrics, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(lines_of_metrics, folder_make, folder_drop),
        cmocka_unit_test(lines_of_progress),
        cmocka_unit_test(progress_without_a_terminal),
        cmocka_unit_test(settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
