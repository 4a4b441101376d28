/* SPDX-License-Identifier: Apache-2.0 */
/* model/test_older.c - plugins built against older headers: what they do not know of a struct is zero, whatever lies
 * behind it in their memory. Also first values that a plugin draws itself. */
#include "fixture.h"

#define SPEC(pattern, more) \
    "[run]\nprecision = f64\npoison = yes\n[stack]\nhidden = 16\nvocab = 23\npattern = " pattern "\n" \
    "[layer.o]\nplugin = older\n[batch]\ntokens = 32\nsequences = 4\n" more

static void evaluate(fixture *f)
{
    static const int lengths[] = {5, 9, 0};
    double sum;
    int64_t count;
    st_error e = {0};

    need_ok(st_model_evaluate(f->model, make_row(f, lengths, 0, 5, 0), &sum, &count, NULL, NULL, &e), &e);
    assert_true(count > 0 && sum == sum);
}

static void shorter_structs_end_in_zeros(void **state)
{
    fixture *f = fixture_open(SPEC("oo", ""), 0);
    const st_model *m = f->model;

    assert_int_equal(m->n_accums, 2);
    assert_int_equal(m->accums[0].decl.n, 3);
    assert_int_equal(m->accums[0].decl.reset, ST_EACH_STEP);
    assert_int_equal(m->accums[0].decl.sum, 0);
    for (int32_t i = 0; i < m->n_metrics; i++)
        if (strcmp(m->metrics[i].decl.name, "loss")) assert_null(m->metrics[i].decl.unit);
    evaluate(f);
    fixture_close(f);
}

static void shorter_stacks_and_rows_end_in_zeros(void **state)
{
    fixture *f = fixture_open(
        SPEC("o", "[head.old]\nplugin = older_head\n[layer.n]\nplugin = older\nnested = yes\n"), 0);
    const model_stack *st = f->model->stacks[1];
    const st_file_name *names;
    int n, own = 0;

    assert_string_equal(st->path, "head.old.blocks");
    assert_null(st->maps);
    assert_int_equal(st->n_maps, 0);
    assert_int_equal(st->max_segments, 0);
    n = st_family_names(f->model, "hf", &names);
    for (int i = 0; i < n; i++) own += !strcmp(names[i].file_name, "old.weight"); /* below the head's own prefix */
    assert_int_equal(own, 1);
    evaluate(f);
    fixture_close(f);
}

static double first_of(fixture *f, const char *path)
{
    double v[8];
    st_error e = {0};

    for (int32_t i = 0; i < f->model->n_weights; i++) {
        if (strcmp(f->model->weights[i]->pub.path, path)) continue;
        need_ok(st_model_read(f->model, i, ST_READ_WEIGHT, v, &e), &e);
        for (int k = 1; k < 8; k++) assert_true(v[k] == v[0] + k / 1024.0); /* one stream, by element */
        return v[0];
    }
    fail_msg("no weight %s", path);
    return 0;
}

/* Each weight gets a seed of its own, made of the run's and its path. */
static void values_that_plugins_draw_differ_by_path_and_seed(void **state)
{
    fixture *f = fixture_open(SPEC("oo", ""), 0), *g = fixture_open(SPEC("o", ""), 0);
    double a = first_of(f, "layers.0.drawn"), b = first_of(f, "layers.1.drawn");
    st_error e = {0};

    assert_true(a != b);
    assert_true(a == first_of(g, "layers.0.drawn"));
    need_ok(st_model_init(g->model, 8, &e), &e);
    assert_true(a != first_of(g, "layers.0.drawn"));
    fixture_close(f);
    fixture_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shorter_structs_end_in_zeros),
        cmocka_unit_test(shorter_stacks_and_rows_end_in_zeros),
        cmocka_unit_test(values_that_plugins_draw_differ_by_path_and_seed),
    };
    return cmocka_run_group_tests_name("older", tests, NULL, NULL);
}
