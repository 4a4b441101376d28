/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/test_locale.c - a locale with a decimal comma, as a plugin or library may set it: numbers are read and
 * written as ever, and a run leaves the same bytes. The locale is made here; where that is not possible the tests run
 * without one. */
#include "config.h"

#include "train_test.h"
#include <locale.h>
#include <math.h>

static const char name[] = "de_DE.UTF-8";

/* A folder with the locale in it, for all tests. */
static int locale_make(void **state)
{
    int rc = folder_make(state);
    const folder *f = *state;
    char *command = st_arena_printf(f->arena, "localedef -i de_DE -f UTF-8 %s > %s 2>&1", in_folder(f, "%s", name),
                                    in_folder(f, "said"));

    if (rc == 0 && system(command) == 0) setenv("LOCPATH", f->path, 1);
    return rc;
}

static int locale_drop(void **state)
{
    unsetenv("LOCPATH");
    return folder_drop(state);
}

static int leave(void **state)
{
    setlocale(LC_ALL, "C");
    return folder_drop(state);
}

static void enter(void)
{
    bool comma = setlocale(LC_ALL, name) && localeconv()->decimal_point[0] == ',';
    print_message("# %s\n", comma ? "with a decimal comma" : "no locale with a decimal comma could be made here");
}

static void numbers(void **state)
{
    static const double value[] = {0.5, -1.25e-7, 1e300, 3.4e-5, 1.0 / 3};
    st_buf b = {0};
    double v;
    const char *why;
    char text[32];

    enter();
    for (size_t i = 0; i < ST_COUNT(value); i++) {
        st_format_float(value[i], text);
        if (strchr(text, ',')) fail_msg("%s", text);
        assert_true(st_parse_float(text, &v, &why));
        assert_true(v == value[i]);
    }
    assert_false(st_parse_float("0,5", &v, &why));
    st_buf_printf(&b, "%.12g %.3f %d", 0.25, 1234.5, 1234);
    assert_string_equal(b.data, "0.25 1234.500 1234");
    st_buf_free(&b);
}

static void metrics(void **state)
{
    const folder *f = *state;
    const char *path = in_folder(f, "metrics.jsonl");
    st_metrics *m;
    st_error e = {0};

    enter();
    need_ok(st_metrics_open(path, -1, &m, &e), &e);
    st_metrics_begin(m, 1);
    st_metrics_number(m, "loss", 0.125);
    st_metrics_number(m, "norm", NAN);
    need_ok(st_metrics_end(m, &e), &e);
    st_metrics_close(m);
    assert_string_equal(text_of(f, path), "{\"step\": 1, \"loss\": 0.125, \"norm\": null}\n");
}

static void same_file(const folder *f, const char *file)
{
    char *data[2];
    size_t n[2];
    st_error e = {0};

    for (int i = 0; i < 2; i++)
        need_ok(st_file_read(in_folder(f, "%s/%s", i ? "comma" : "plain", file), f->arena, &data[i], &n[i], &e), &e);
    if (n[0] != n[1] || memcmp(data[0], data[1], n[0]) != 0) fail_msg("%s differs", file);
    assert_true(n[0] > 0);
}

/* Also a resume reads what the same locale wrote. */
static void a_run_leaves_the_same_bytes(void **state)
{
    static const char *const files[] = {"metrics.jsonl",
                                        "spec.ini",
                                        "checkpoints/step-000000008/model.safetensors",
                                        "checkpoints/step-000000008/optimizer.safetensors",
                                        "checkpoints/step-000000008/state.json",
                                        "checkpoints/step-000000008/spec.ini"};
    const folder *f = *state;
    st_error e = {0};

    need_ok(train(f, NULL, "plain", SETS("run.steps=8"), &e, NULL), &e);
    enter();
    need_ok(train(f, NULL, "comma", SETS("run.steps=8"), &e, NULL), &e);
    for (size_t i = 0; i < ST_COUNT(files); i++) same_file(f, files[i]);
    opened *again = open_run(f, in_folder(f, "comma/checkpoints/step-000000008/spec.ini"), "again", NULL);
    assert_true(again->run.config.schedule.lr == 1e-2);
    close_run(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(numbers, folder_make, leave),
        cmocka_unit_test_setup_teardown(metrics, folder_make, leave),
        cmocka_unit_test_setup_teardown(a_run_leaves_the_same_bytes, folder_make, leave),
    };
    return cmocka_run_group_tests(tests, locale_make, locale_drop);
}
