/* SPDX-License-Identifier: Apache-2.0 */
/* model/test_ranges.c - what a backend that can tell a tool of ranges is told: each layer's forward and backward by index, symbol
 * and name, one inside the other, every one closed. */
#include "fixture.h"

static char told[8192];
static int open_now, deepest;

static int push(st_device *d, const char *name)
{
    size_t n = strlen(told);

    assert_non_null(d);
    if (++open_now > deepest) deepest = open_now;
    snprintf(told + n, sizeof told - n, "%*s%s\n", open_now - 1, "", name);
    return ST_OK;
}

static int pop(st_device *d)
{
    assert_non_null(d);
    assert_true(open_now-- > 0);
    return ST_OK;
}

static void run(const char *spec, const int *lengths)
{
    fixture *f = fixture_open(spec, 1);
    const st_packed_row *row = make_row(f, lengths, 0, 5, 0);
    const st_schedule at = {.size = sizeof at, .step = 1, .lr_scale = 1, .lr = 1e-2};
    st_step_result r;
    st_error e = {0};

    told[0] = 0;
    open_now = deepest = 0;
    f->model->be.range_push = push;
    f->model->be.range_pop = pop;
    need_ok(st_model_step(f->model, &row, 1, &at, 1, &r, &e), &e);
    assert_int_equal(open_now, 0);
    fixture_close(f);
}

static void layers_are_told_by_index_symbol_and_name(void **state)
{
    static const int lengths[] = {30, 9, 0};

    run(TEXT_MODEL TEXT_BATCH, lengths);
    assert_string_equal(told, "forward position rope\n"
                              "forward 0 G gated_delta_net\n"
                              "forward 1 - swiglu\n"
                              "forward 2 * attention\n"
                              "forward 3 - swiglu\n"
                              "loss head.lm lm\n"
                              "backward 3 - swiglu\n"
                              "backward 2 * attention\n"
                              "backward 1 - swiglu\n"
                              "backward 0 G gated_delta_net\n"
                              "update optimizer adamw\n");
}

/* Layers of a depth run inside its head, so their ranges lie inside the head's. */
static void ranges_nest(void **state)
{
    static const int lengths[] = {30, 9, 0};
    const char *in;

    run("[run]\nprecision = f64\n[stack]\npattern = *-/*-\nhidden = 16\nvocab = 23\n[layer.*]\nheads = 4\nkv_heads = 2\n"
        "head_dim = 8\n[layer.-]\nwidth = 24\n[optimizer]\nplugin = adamw\n" ROPE TEXT_BATCH, lengths);
    in = strstr(told, "\nloss head.mtp mtp\n ");
    assert_non_null(in);
    assert_non_null(strstr(in, "\n forward "));
    assert_non_null(strstr(in, "\n backward "));
    assert_int_equal(deepest, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_told_by_index_symbol_and_name),
        cmocka_unit_test(ranges_nest),
    };
    return cmocka_run_group_tests_name("ranges", tests, NULL, NULL);
}
