/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that go ahead to a device with memory of its own. The CPU's backend stands for one: its copies are the same. */
#include "fixture.h"
#include <math.h>
#include <string.h>

static const int packed[] = {17, 1, 30, 9, 0}, first[] = {17, 1, 0}, second[] = {30, 9, 0};
enum { STEPS = 6, ROWS = 2 };

static fixture *open_apart(void)
{
    st_diags d = {0};
    st_error e = {0};
    fixture *f = fixture_build(TEXT_MODEL TEXT_BATCH, 1, &d);

    if (!f) fail_msg("the model was refused");
    f->model->facts.host_memory = 0;
    need_ok(st_model_plan(f->model, &e), &e);
    need_ok(st_model_open(f->model, &e), &e);
    need_ok(st_model_init(f->model, 7, &e), &e);
    return f;
}

/* Steps take two pairs of rows in turn; told ahead of them, the model has the next pair's first. */
typedef struct turns {
    st_packed_row *rows[2][ROWS];
    int step, asked;
} turns;
static const st_packed_row *next_row(void *ctx)
{
    turns *t = ctx;

    t->asked++;
    return t->rows[(t->step + 1) % 2][0];
}

static double *trained(fixture *f, turns *t, int evaluated, int64_t *n)
{
    st_packed_row *apart = make_row(f, packed, 1, 6, 0);
    double sum, *all;
    int64_t count, at = 0;
    st_step_result r;
    st_error e = {0};

    t->rows[0][0] = make_row(f, first, 0, 5, 0);
    t->rows[0][1] = make_row(f, second, 2, 5, 0);
    t->rows[1][0] = make_row(f, packed, 0, 8, 0);
    t->rows[1][1] = make_row(f, first, 3, 9, 0);
    for (t->step = 0; t->step < STEPS; t->step++) {
        st_schedule s = {sizeof s, 0, t->step + 1, 1e-2, 0, 0};
        need_ok(st_model_step(f->model, (const st_packed_row *const *)t->rows[t->step % 2], ROWS, &s, 1.0, &r, &e), &e);
        assert_int_equal(r.skipped, 0);
        for (int i = 0; i < (t->step == 3 ? evaluated : 0); i++)
            need_ok(st_model_evaluate(f->model, apart, &sum, &count, NULL, NULL, &e), &e);
    }
    *n = 0;
    for (int32_t i = 0; i < f->model->n_weights; i++) *n += f->model->weights[i]->pub.count;
    all = ST_NEW_N(f->arena, double, *n);
    for (int32_t i = 0; i < f->model->n_weights; at += f->model->weights[i++]->pub.count)
        need_ok(st_model_read(f->model, i, ST_READ_WEIGHT, all + at, &e), &e);
    return all;
}

static void compare(int asks, int evaluated)
{
    fixture *plain = fixture_open(TEXT_MODEL TEXT_BATCH, 1), *apart = open_apart();
    turns a = {.asked = 0}, b = {.asked = 0};
    int64_t n, m;

    st_model_ahead(plain->model, next_row, &a);
    if (asks) st_model_ahead(apart->model, next_row, &b);
    double *want = trained(plain, &a, 0, &n), *got = trained(apart, &b, evaluated, &m);
    assert_int_equal(n, m);
    assert_memory_equal(got, want, (size_t)n * sizeof *want);
    assert_int_equal(a.asked, 0); /* where rows are written in place nothing is to be gained */
    assert_int_equal(b.asked, asks ? STEPS : 0);
    fixture_close(plain);
    fixture_close(apart);
}

static void rows_of_a_step_go_ahead(void **state) { compare(0, 0); }
static void the_next_steps_row_goes_ahead(void **state) { compare(1, 0); }
/* one and two rows go past the one that waits */
static void an_evaluation_goes_past_it(void **state)
{
    compare(1, 1);
    compare(1, 2);
}

/* The way is in the plan: a row twice in pinned memory and twice on the device. */
static void the_way_is_planned(void **state)
{
    fixture *plain = fixture_open(TEXT_MODEL TEXT_BATCH, 1), *apart = open_apart();
    st_plan_bytes a, b;

    st_model_plan_bytes(plain->model, &a);
    st_model_plan_bytes(apart->model, &b);
    assert_false(st_model_goes_ahead(plain->model));
    assert_true(st_model_goes_ahead(apart->model));
    assert_int_equal(b.rows - a.rows, 2 * model_round(apart->model->row_bytes));
    assert_int_equal(b.staging - a.staging, 2 * model_round(apart->model->row_bytes));
    assert_int_equal(b.total - a.total, b.rows - a.rows + b.staging - a.staging);
    fixture_close(plain);
    fixture_close(apart);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_step_go_ahead),
        cmocka_unit_test(the_next_steps_row_goes_ahead),
        cmocka_unit_test(an_evaluation_goes_past_it),
        cmocka_unit_test(the_way_is_planned),
    };
    return cmocka_run_group_tests_name("ahead", tests, NULL, NULL);
}
