/* SPDX-License-Identifier: Apache-2.0 */
/* tests/spec/test_write.c - the resolved spec holds every value, and two specs are compared by value. */
#include "spec_test.h"

typedef struct keys {
    int64_t heads, width, threads, blocks;
    double eps;
    const char *name, *data;
    st_ints section;
} keys;

static const st_param table[] = {
    ST_INT(keys, heads, "4", 1, 1024, "heads", ST_PF_FIXED, ""),
    {"width", "4k", "", NULL, "", "columns", NULL, 1, 1e9, ST_P_INT, 0, offsetof(keys, width), sizeof(int64_t)},
    ST_INT(keys, threads, "0", 0, 4096, "", ST_PF_LOCAL, ""),
    ST_INT(keys, blocks, NULL, 1, 9, "", ST_PF_FIXED, ""),
    ST_FLOAT(keys, eps, "1e-6", 0, 1, "", ST_PF_SHARED | ST_PF_FIXED, ""),
    ST_STR(keys, name, NULL, 0, ""),
    ST_PARAM(keys, data, ST_P_PATH, "def.json", 0, 0, "", NULL, 0, ""),
    ST_INTS(keys, section, "2,1,1", 0, 64, ST_PF_FIXED, ""),
};
static const st_table all = {table, ST_COUNT(table), sizeof(st_param), "test"};

static st_spec *bound(const char *text)
{
    static const char *const extra[] = {"plugin", NULL};
    st_spec *s;
    st_diags d = {0};
    keys k;
    assert_int_equal(st_spec_parse("t.ini", text, strlen(text), "/dir", &s, &d), ST_OK);
    assert_int_equal(st_spec_bind(s, "layer.G", &all, &k, extra, &d), ST_OK);
    return s;
}

static void every_value_is_written(void **state)
{
    st_buf text = {0}, again = {0};
    st_spec *s = bound("[stack]\neps = 1e-5\n[layer.G]\ncolumns = 8\nthreads = 2\n[run]\npath = /x:/y/z:\n");
    st_spec_take(s, "layer.G", "plugin", "gated", NULL);
    st_spec_mark_paths(s, st_spec_get(s, "run", "path"));
    st_spec_write(s, &text);
    assert_string_equal(text.data, "[layer.G]\ndata = /dir/def.json\neps = 1e-5\nheads = 4\nplugin = gated\n"
                                   "section = 2,1,1\nwidth = 8\n\n[run]\npath = /x:/y/z:\n\n[stack]\neps = 1e-5\n");
    uint64_t hash = st_spec_hash(s);
    st_spec_destroy(s);

    s = bound(text.data); /* what was written means the same, and is written the same */
    st_spec_write(s, &again);
    assert_string_equal(again.data, text.data);
    assert_true(st_spec_hash(s) == hash);
    st_spec_destroy(s);
    st_buf_free(&text);
    st_buf_free(&again);
}

static void local_keys_are_no_part_of_it(void **state)
{
    st_spec *a = bound("[layer.G]\nheads = 4\n"), *b = bound("[layer.G]\nthreads = 7\n");
    assert_true(st_spec_hash(a) == st_spec_hash(b));
    st_spec_destroy(a);
    st_spec_destroy(b);
}

/* ---- comparing ---- */

static int list(void *ctx, const st_difference *d)
{
    st_buf_printf(ctx, "%s %s: %s -> %s%s\n", d->section, d->key, d->before ? d->before : "-", d->now ? d->now : "-",
                  d->fixed ? " fixed" : "");
    return ST_OK;
}

static void expect(const char *now, const char *then, const char *want)
{
    st_buf text = {0};
    st_diags d = {0};
    st_spec *a = bound(now), *b;
    assert_int_equal(st_spec_parse("then.ini", then, strlen(then), "/", &b, &d), ST_OK);
    assert_int_equal(st_spec_compare(a, b, list, &text), ST_OK);
    assert_string_equal(text.data ? text.data : "", want);
    st_spec_destroy(a);
    st_spec_destroy(b);
    st_buf_free(&text);
}

static void other_spellings_are_the_same(void **state)
{
    expect("[layer.G]\n", "", "");
    expect("[layer.G]\nheads = 4\nwidth = 4k\neps = 0.000001\n", "[layer.G]\nwidth = 4096\n", "");
    expect("[layer.G]\nsection = 2, 1, 1\ncolumns = 8\n", "[layer.G]\nwidth = 8\ndata = /x\nthreads = 9\n", "");
}

static void differences_are_told(void **state)
{
    expect("[layer.G]\nheads = 8\n", "", "layer.G heads: 4 -> 8 fixed\n");
    expect("[layer.G]\n", "[layer.G]\nheads = 8\n", "layer.G heads: 8 -> 4 fixed\n");
    expect("[layer.G]\nblocks = 2\n", "", "layer.G blocks: - -> 2 fixed\n");
    expect("[layer.G]\n", "[layer.G]\nblocks = 2\nname = x\n", "layer.G blocks: 2 -> - fixed\nlayer.G name: x -> -\n");
    expect("[stack]\neps = 1e-3\n[layer.G]\n", "[layer.G]\neps = 1e-4\n[stack]\neps = 1e-3\n",
           "layer.G eps: 1e-4 -> 1e-3 fixed\n");
    expect("[layer.G]\nplugin = a\n[dataset.train]\nplugin = c\n", "[layer.G]\nplugin = b\n",
           "layer.G plugin: b -> a fixed\ndataset.train plugin: - -> c\n");
    expect("[layer.G]\n", "[encoder]\nplugin = e\n", "encoder plugin: e -> - fixed\n");
}

static int stop(void *ctx, const st_difference *d)
{
    ++*(int *)ctx;
    assert_string_equal(d->at->text, "8");
    assert_int_equal(d->at->line, 2);
    return ST_E_CONFIG;
}

static void the_first_refusal_ends_it(void **state)
{
    st_diags d = {0};
    int n = 0;
    st_spec *a = bound("[layer.G]\nheads = 8\nwidth = 9\n"), *b;
    assert_int_equal(st_spec_parse("then.ini", "", 0, "/", &b, &d), ST_OK);
    assert_int_equal(st_spec_compare(a, b, stop, &n), ST_E_CONFIG);
    assert_int_equal(n, 1);
    st_spec_destroy(a);
    st_spec_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_is_written),       cmocka_unit_test(local_keys_are_no_part_of_it),
        cmocka_unit_test(other_spellings_are_the_same), cmocka_unit_test(differences_are_told),
        cmocka_unit_test(the_first_refusal_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
