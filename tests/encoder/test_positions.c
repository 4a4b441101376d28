/* SPDX-License-Identifier: Apache-2.0 */
/* Positions: ids of published cases, frequencies by axis, tables against long double, refusals that name the values. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "part_host.h"

enum { MAX_TOKENS = 16, MAX_PARTS = 5 };
/* A part is a run of text (length, grid 0) or a picture's grid in TOKENS; ids as the public processor gives them. */
struct part { int32_t text, rows, cols; };
static const struct position_case {
    const char *name;
    struct part parts[MAX_PARTS];
    int32_t n, id[3][MAX_TOKENS];
} cases[] = {
    {"text only", {{5, 0, 0}}, 5, {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}}},
    {"picture first", {{0, 2, 3}, {3, 0, 0}}, 9,
     {{0, 0, 0, 0, 0, 0, 3, 4, 5}, {0, 0, 0, 1, 1, 1, 3, 4, 5}, {0, 1, 2, 0, 1, 2, 3, 4, 5}}},
    {"picture in the middle", {{2, 0, 0}, {0, 2, 2}, {3, 0, 0}}, 9,
     {{0, 1, 2, 2, 2, 2, 4, 5, 6}, {0, 1, 2, 2, 3, 3, 4, 5, 6}, {0, 1, 2, 3, 2, 3, 4, 5, 6}}},
    {"wide, then tall", {{1, 0, 0}, {0, 1, 4}, {2, 0, 0}, {0, 3, 2}, {1, 0, 0}}, 14,
     {{0, 1, 1, 1, 1, 5, 6, 7, 7, 7, 7, 7, 7, 10}, {0, 1, 1, 1, 1, 5, 6, 7, 7, 8, 8, 9, 9, 10},
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 7, 8, 7, 8, 10}}},
    {"one token", {{1, 0, 0}, {0, 1, 1}, {1, 0, 0}}, 3, {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}},
    {"model file", {{3, 0, 0}, {0, 2, 3}, {2, 0, 0}}, 11,
     {{0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7}, {0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7}, {0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7}}},
};

static const char *const qwen[] = {"section", "11,11,10", NULL};
static const st_position_ops *ops_of(part_host *h)
{
    return h->plugin->ops;
}

static void mrope_ids(void **state)
{
    part_host *h = part_open("mrope", qwen);
    int32_t ids[MAX_TOKENS] = {0}, pos[3 * MAX_TOKENS];

    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        st_media_run runs[MAX_PARTS];
        st_sequence q = {.size = sizeof q, .ids = ids, .runs = runs};
        for (int i = 0; i < MAX_PARTS; i++) {
            const struct part *p = &cases[c].parts[i];
            int32_t n = p->text ? p->text : p->rows * p->cols;
            if (p->rows)
                runs[q.n_runs++] = (st_media_run){q.n, n, ST_MEDIA_IMAGE, q.n_runs, {1, p->rows, p->cols}, 0};
            q.n += n;
        }
        q.n_real = q.n;
        assert_int_equal(q.n, cases[c].n);
        assert_int_equal(ops_of(h)->assign(h->self, &h->worker, &q, pos), ST_OK);
        for (int axis = 0; axis < 3; axis++)
            for (int i = 0; i < q.n; i++)
                if (pos[axis * q.n + i] != cases[c].id[axis][i])
                    fail_msg("%s: axis %d, token %d is %d", cases[c].name, axis, i, pos[axis * q.n + i]);
    }
    part_close(h);
}

static void mrope_refuses_placeholders(void **state)
{
    part_host *h = part_open("mrope", qwen);
    int32_t ids[8] = {0}, pos[24];
    st_media_run run = {2, 5, ST_MEDIA_IMAGE, 4, {1, 2, 3}, 0};
    st_sequence q = {.size = sizeof q, .n = 8, .n_real = 8, .n_runs = 1, .ids = ids, .runs = &run};

    assert_int_equal(ops_of(h)->assign(h->self, &h->worker, &q, pos), ST_E_DATA);
    assert_words(h->error.message, "item 4: 5 placeholders");
    assert_words(h->error.message, "1 x 2 x 3");
    run.n = 6;
    assert_int_equal(ops_of(h)->assign(h->self, &h->worker, &q, pos), ST_OK);
    run.first = 3;
    assert_int_equal(ops_of(h)->assign(h->self, &h->worker, &q, pos), ST_E_INTERNAL);
    run = (st_media_run){0, 8, ST_MEDIA_IMAGE, 0, {65536, 65536, 65536}, 0};
    assert_int_equal(ops_of(h)->assign(h->self, &h->worker, &q, pos), ST_E_DATA);
    run.grid[0] = run.grid[1] = -2;
    run.grid[2] = 2;
    assert_int_equal(ops_of(h)->assign(h->self, &h->worker, &q, pos), ST_E_DATA);
    part_close(h);
}

static void simple_ids(void **state)
{
    part_host *none = part_open("none", NULL), *rope = part_open("rope", NULL), *mrope = part_open("mrope", qwen);
    int32_t ids[4] = {0}, pos[4] = {9, 9, 9, 9};
    st_sequence q = {.size = sizeof q, .n = 4, .n_real = 3, .ids = ids};

    assert_int_equal(ops_of(none)->axes, 0);
    assert_int_equal(ops_of(rope)->axes, 1);
    assert_int_equal(ops_of(mrope)->axes, 3);
    assert_int_equal(ops_of(none)->assign(none->self, &none->worker, &q, pos), ST_OK);
    assert_int_equal(pos[0], 9);
    assert_int_equal(ops_of(rope)->assign(rope->self, &rope->worker, &q, pos), ST_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pos[i], i);
    assert_true(none->plugin->caps & rope->plugin->caps & mrope->plugin->caps & ST_CAP_SHIFTABLE);
    part_close(none);
    part_close(rope);
    part_close(mrope);
}

/* Axis of each frequency, read off the tables: with base 1 every frequency is 1, and each axis has its own position. */
static void check_axes(const char *section, const char *interleaved, int32_t head_dim, const char *want)
{
    const char *settings[] = {"section", section, "base", "1", "rotary_percent", "1", "interleaved", interleaved, NULL};
    part_host *h = part_open("mrope", settings);
    int32_t ids[3] = {1, 2, 3}, width = ops_of(h)->rotary_dim(h->self, &h->env, head_dim);
    st_tensor pos = st_tensor2(ids, ST_I32, 3, 1);
    st_rotary out = {
        .cos = part_tensor(h, ST_F64, 1, width / 2), .sin = part_tensor(h, ST_F64, 1, width / 2), .dim = width};

    assert_int_equal(ops_of(h)->configure(h->self, &h->env), ST_OK);
    assert_int_equal(width, head_dim);
    part_kernels(h);
    assert_int_equal(ops_of(h)->tables(h->self, &h->step, head_dim, &pos, &out), ST_OK);
    for (int i = 0; i < width / 2; i++)
        assert_near(((double *)out.cos.data)[i], cos(want[i] == 't' ? 1 : want[i] == 'h' ? 2 : 3), 1e-15);
    part_close(h);
}

static void mrope_axes(void **state)
{
    check_axes("11,11,10", "yes", 64, "thwthwthwthwthwthwthwthwthwthwth");
    check_axes("3,3,2", "yes", 16, "thwthwth");
    check_axes("11,11,10", "no", 64, "ttttttttttthhhhhhhhhhhwwwwwwwwww");
    check_axes("6,5,5", "yes", 32, "thwthwthwthwthwt");
}

static void check_tables(const char *module, const char *const *settings, int32_t head_dim, double base, int32_t dtype,
                         double tolerance)
{
    enum { N = 70 };
    part_host *h = part_open(module, settings);
    int32_t axes = ops_of(h)->axes, ids[3 * N], width = ops_of(h)->rotary_dim(h->self, &h->env, head_dim),
            half = width / 2;
    st_tensor pos = st_tensor2(ids, ST_I32, axes, N);
    st_rotary out = {.cos = part_tensor(h, dtype, N, half), .sin = part_tensor(h, dtype, N, half), .dim = width};

    for (int a = 0; a < axes; a++)
        for (int t = 0; t < N; t++)
            ids[a * N + t] = t < 60 ? t + 7 * a : 262143 - 1000 * t + a;
    part_kernels(h);
    assert_int_equal(ops_of(h)->tables(h->self, &h->step, head_dim, &pos, &out), ST_OK);
    for (int t = 0; t < N; t++)
        for (int i = 0; i < half; i++) {
            int axis = axes == 1 ? 0 : i % 3; /* sections of these tests fill every place */
            long double angle = powl(base, -(long double)i / half) * ids[axis * N + t];
            int64_t at = (int64_t)t * half + i;
            double c = dtype == ST_F64 ? ((double *)out.cos.data)[at] : ((float *)out.cos.data)[at];
            double s = dtype == ST_F64 ? ((double *)out.sin.data)[at] : ((float *)out.sin.data)[at];
            assert_near(c, (double)cosl(angle), tolerance);
            assert_near(s, (double)sinl(angle), tolerance);
        }
    part_close(h);
}

static void tables(void **state)
{
    const char *partial[] = {"base", "1e7", "rotary_percent", "0.25", NULL};

    check_tables("rope", NULL, 32, 1e4, ST_F64, 1e-10);
    check_tables("rope", partial, 256, 1e7, ST_F64, 1e-10);
    check_tables("rope", partial, 256, 1e7, ST_F32, 6e-8);
    check_tables("mrope", qwen, 256, 1e7, ST_F64, 1e-10);
    check_tables("mrope", qwen, 256, 1e7, ST_F32, 6e-8);
}

static void refused(const char *module, const char *const *settings, int32_t head_dim, const char *words)
{
    part_host *h = part_open(module, settings);
    int rc = ops_of(h)->configure(h->self, &h->env);

    if (rc == ST_OK)
        assert_int_equal(ops_of(h)->rotary_dim(h->self, &h->env, head_dim), 0);
    assert_int_equal(h->error.code, ST_E_CONFIG);
    assert_words(h->error.message, words);
    part_close(h);
}

static void refusals(void **state)
{
    refused("mrope", (const char *[]){"section", "11,11,9", NULL}, 256, "section = 11,11,9 sums to 31: must be 32");
    refused("mrope", (const char *[]){"section", "11,11,9", NULL}, 256, "head_dim 256 x rotary_percent 0.25");
    refused("mrope", qwen, 128, "sums to 32: must be 16");
    refused("mrope", (const char *[]){"section", "11,11", NULL}, 256, "2 numbers");
    refused("mrope", (const char *[]){"section", "12,10,10", "family", "qwen3.5", NULL}, 256, "needs 11,11,10");
    refused("mrope", (const char *[]){"section", "11,11,10", "family", "qwen3.5", "interleaved", "no", NULL}, 256,
            "interleaved = no");
    refused("mrope", (const char *[]){"section", "2,6,0", "rotary_percent", "0.25", NULL}, 64, "split into 5,3,0");
    refused("rope", (const char *[]){"rotary_percent", "0.3", NULL}, 32, "9.6 columns");
    refused("rope", NULL, 33, "33 columns");
    refused("rope", (const char *[]){"rotary_percent", "0", NULL}, 64, "0 columns");
}

static void family(void **state)
{
    part_host *h = part_open("mrope", (const char *[]){"section", "11,11,10", "family", "qwen3.5", NULL});

    assert_int_equal(ops_of(h)->configure(h->self, &h->env), ST_OK);
    assert_int_equal(ops_of(h)->rotary_dim(h->self, &h->env, 256), 64);
    part_close(h);
    h = part_open("mrope", (const char *[]){"section", "3,3,2", "family", "qwen3.5", NULL});
    assert_int_equal(ops_of(h)->configure(h->self, &h->env), ST_OK);
    assert_int_equal(ops_of(h)->rotary_dim(h->self, &h->env, 64), 16);
    part_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mrope_ids), cmocka_unit_test(mrope_refuses_placeholders), cmocka_unit_test(simple_ids),
        cmocka_unit_test(mrope_axes), cmocka_unit_test(tables), cmocka_unit_test(refusals), cmocka_unit_test(family),
    };

    return cmocka_run_group_tests_name("positions", tests, NULL, NULL);
}
