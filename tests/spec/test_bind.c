/* SPDX-License-Identifier: Apache-2.0 */
/* tests/spec/test_bind.c - parameter tables: types, ranges, choices, inheritance, former names, messages. */
#include "spec_test.h"
#include <math.h>

typedef struct layer {
    int32_t bias, kind, other_kind;
    int64_t heads, window, memory, limit;
    double eps, rate;
    const char *name, *note, *file, *data;
    st_ints section, sizes;
    st_floats mean;
} layer;

static const st_param table[] = {
    ST_BOOL(layer, bias, "no", 0, "adds a bias"),
    ST_CHOICE(layer, kind, "causal", "causal|full|window", 0, "which pairs may look at each other"),
    ST_CHOICE(layer, other_kind, NULL, "a|b", 0, ""),
    ST_INT(layer, heads, NULL, 1, 1024, "heads", ST_PF_REQUIRED, "query heads"),
    ST_INT(layer, window, NULL, 0, 0, "", 0, ""),
    ST_PARAM(layer, memory, ST_P_SIZE, "512MiB", 0, 1e19, "", NULL, 0, ""),
    ST_INT(layer, limit, "4k", 1, 1e18, "", 0, ""),
    ST_FLOAT(layer, eps, "1e-6", 1e-12, 1, "", ST_PF_SHARED, "added to the variance"),
    ST_FLOAT(layer, rate, NULL, 0, 0, "", 0, ""),
    ST_STR(layer, name, "plain", 0, ""),
    ST_STR(layer, note, NULL, 0, ""),
    ST_PARAM(layer, file, ST_P_PATH, "def.json", 0, 0, "", NULL, 0, ""),
    ST_PARAM(layer, data, ST_P_PATH, NULL, 0, 0, "", NULL, 0, ""),
    ST_INTS(layer, section, "11,11,10", 0, 64, 0, "pairs of each axis"),
    ST_INTS(layer, sizes, NULL, 0, 0, 0, ""),
    ST_FLOATS(layer, mean, "0.5,0.5,0.5", 0, 1, 0, ""),
};
static const st_table layers = {table, ST_COUNT(table), sizeof(st_param), "plugin attention 0.1"};

static int bind_text(const char *text, const st_table *t, void *instance, st_spec **s, st_diags *d)
{
    static const char *const extra[] = {"plugin", NULL};
    memset(d, 0, sizeof *d);
    assert_int_equal(st_spec_parse("dir/t.ini", text, strlen(text), "dir", s, d), ST_OK);
    return st_spec_bind(*s, "layer.*", t, instance, extra, d);
}

static const st_param *param(const char *key)
{
    for (size_t i = 0; i < ST_COUNT(table); i++)
        if (!strcmp(table[i].key, key)) return &table[i];
    return NULL;
}

static void expect_text(const layer *l, const char *key, const char *want)
{
    st_buf b = {0};
    assert_int_equal(st_param_text(param(key), l, &b), ST_OK);
    assert_string_equal(b.data, want);
    st_buf_free(&b);
}

static void defaults(void **state)
{
    layer l;
    st_spec *s;
    st_diags d;
    memset(&l, 0xEE, sizeof l);
    assert_int_equal(bind_text("[layer.*]\nplugin = attention\nheads = 8\n", &layers, &l, &s, &d), ST_OK);
    assert_int_equal(d.errors + d.warnings, 0);
    assert_int_equal(l.bias, 0);
    assert_int_equal(l.kind, 0);
    assert_int_equal(l.other_kind, -1);
    assert_int_equal(l.heads, 8);
    assert_true(l.window == ST_UNSET_INT);
    assert_int_equal(l.memory, 536870912);
    assert_int_equal(l.limit, 4096);
    assert_true(l.eps == 1e-6);
    assert_true(isnan(l.rate));
    assert_string_equal(l.name, "plain");
    assert_null(l.note);
    assert_string_equal(l.file, "dir/def.json");
    assert_null(l.data);
    assert_true(l.section.n == 3 && l.section.v[0] == 11 && l.section.v[2] == 10);
    assert_int_equal(l.sizes.n, 0);
    assert_true(l.mean.n == 3 && l.mean.v[1] == 0.5);
    static const char *const text[][2] = {
        {"bias", "no"}, {"kind", "causal"},      {"other_kind", ""}, {"heads", "8"},
        {"window", ""}, {"memory", "512MiB"},    {"limit", "4096"},  {"eps", "1e-06"},
        {"rate", ""},   {"name", "plain"},       {"note", ""},       {"section", "11,11,10"},
        {"sizes", ""},  {"mean", "0.5,0.5,0.5"},
    };
    for (size_t i = 0; i < ST_COUNT(text); i++) expect_text(&l, text[i][0], text[i][1]);
    assert_int_equal(st_spec_check_unused(s, &d), ST_OK);
    st_spec_destroy(s);
}

static void all_types(void **state)
{
    layer l;
    st_spec *s;
    st_diags d;
    assert_int_equal(
        bind_text(
            "[layer.*]\nbias = on\nkind = window\nother_kind = b\nheads = 1k\nwindow = -3\nmemory = 2GiB\nlimit = 2M\n"
            "eps = 0.25\nrate = -1.5\nname =\nnote = \"a ; b\"\nfile = x/y\ndata = /abs\nsection = 1, 2 ,3k\n"
            "sizes = -1\nmean = 0.1\n",
            &layers, &l, &s, &d),
        ST_E_CONFIG);
    assert_int_equal(d.errors, 1); /* 3k is outside the range of section */
    assert_string_equal(d.item[0].error.message,
                        "[layer.*] section = 1, 2 ,3k: entry 3 (\"3k\"): must lie between 0 and 64");
    static const char *const text[][2] = {
        {"bias", "yes"},    {"kind", "window"},   {"other_kind", "b"}, {"heads", "1024"}, {"window", "-3"},
        {"memory", "2GiB"}, {"limit", "2097152"}, {"eps", "0.25"},     {"rate", "-1.5"},  {"name", ""},
        {"note", "a ; b"},  {"file", "dir/x/y"},  {"data", "/abs"},    {"sizes", "-1"},   {"mean", "0.1"},
    };
    for (size_t i = 0; i < ST_COUNT(text); i++) expect_text(&l, text[i][0], text[i][1]);
    st_buf b = {0};
    st_spec_write(s, &b); /* what was bound as a path is written absolute */
    assert_non_null(strstr(b.data, "data = /abs\n"));
    st_buf_free(&b);
    st_spec_destroy(s);
}

/* Joined to a folder it would be that folder, or with a name behind it the root. */
static void empty_paths(void **state)
{
    static const st_param paths[] = {
        ST_PARAM(layer, file, ST_P_PATH, "def.json", 0, 0, "", NULL, 0, ""),
        ST_PARAM(layer, data, ST_P_PATH, NULL, 0, 0, "", NULL, ST_PF_REQUIRED, "folder of the data"),
    };
    static const st_table t = {paths, ST_COUNT(paths), sizeof(st_param), "test"};
    layer l;
    st_spec *s;
    st_diags d;
    memset(&l, 0xEE, sizeof l);
    assert_int_equal(bind_text("[layer.*]\nfile =\ndata = x\n", &t, &l, &s, &d), ST_OK);
    assert_null(l.file);
    assert_string_equal(l.data, "dir/x");
    st_spec_destroy(s);
    assert_int_equal(bind_text("[layer.*]\nfile = x\ndata = \"\"\n", &t, &l, &s, &d), ST_E_CONFIG);
    assert_string_equal(d.item[0].error.message, "[layer.*] data is empty, a path is needed");
    assert_string_equal(d.item[0].error.hint, "folder of the data");
    assert_int_equal(d.item[0].error.line, 3);
    st_spec_destroy(s);
}

static void refuse(const char *line, int column, const char *message, const char *hint)
{
    char text[700];
    layer l;
    st_spec *s;
    st_diags d;
    snprintf(text, sizeof text, "[layer.*]\n%s\n%s", line, strncmp(line, "heads", 5) ? "heads = 1\n" : "");
    int rc = bind_text(text, &layers, &l, &s, &d);
    if (rc != ST_E_CONFIG || d.errors != 1) fail_msg("%s: code %d, %d errors", line, rc, d.errors);
    const st_error *e = &d.item[0].error;
    assert_string_equal(e->message, message);
    assert_string_equal(e->hint, hint);
    assert_int_equal(e->line, 2);
    assert_int_equal(e->column, column);
    st_spec_destroy(s);
}

static void wrong_values(void **state)
{
    refuse("heads = 0", 9, "[layer.*] heads = 0: must lie between 1 and 1024 heads", "heads: query heads");
    refuse("heads = 1025", 9, "[layer.*] heads = 1025: must lie between 1 and 1024 heads", "heads: query heads");
    refuse("heads = -1", 9, "[layer.*] heads = -1: must lie between 1 and 1024 heads", "heads: query heads");
    refuse("heads = 3.7", 9, "[layer.*] heads = 3.7: not a whole number", "heads: query heads");
    refuse("heads = 1e3", 9, "[layer.*] heads = 1e3: not a whole number", "write 1000");
    refuse("heads = 4, 8", 9, "[layer.*] heads = 4, 8: trailing characters after the number (suffixes are k, M, G)",
           "one number is needed, this is a list");
    refuse("eps = 0,25", 7, "[layer.*] eps = 0,25: trailing characters after the number", "write 0.25: the point is a dot");
    refuse("eps = 5%", 7, "[layer.*] eps = 5%: trailing characters after the number", "write 0.05 for 5%");
    refuse("heads =", 8, "[layer.*] heads = : empty, a whole number is needed", "heads: query heads");
    refuse("limit = 0", 9, "[layer.*] limit = 0: must be at least 1", "");
    refuse("window = 99999999999999999999", 10, "[layer.*] window = 99999999999999999999: does not fit in 64 bits", "");
    refuse("eps = 1e-4x", 7, "[layer.*] eps = 1e-4x: trailing characters after the number",
           "eps: added to the variance");
    refuse("eps = nan", 7, "[layer.*] eps = nan: not a finite number", "eps: added to the variance");
    refuse("eps = 2", 7, "[layer.*] eps = 2: must lie between 1e-12 and 1", "eps: added to the variance");
    refuse("rate = 1e999", 8, "[layer.*] rate = 1e999: too large for a double", "");
    refuse("bias = maybe", 8, "[layer.*] bias = maybe: not a switch",
           "write yes or no (true, false, on, off, 1, 0 do as well)");
    refuse("kind = casual", 8, "[layer.*] kind = casual: must be one of causal, full, window",
           "did you mean \"causal\"?");
    refuse("kind =", 7, "[layer.*] kind = : must be one of causal, full, window",
           "kind: which pairs may look at each other");
    refuse("memory = 12MB", 10, "[layer.*] memory = 12MB: unknown unit (units are B, KiB, MiB, GiB, TiB)", "");
    refuse("section = 1,,2", 11, "[layer.*] section = 1,,2: entry 2 (\"\"): empty, a whole number is needed",
           "section: pairs of each axis");
    refuse("sizes = 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16", 9,
           "[layer.*] sizes = 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16: a list has at most 15 entries", "");
    refuse("sizes = 3000000000", 9, "[layer.*] sizes = 3000000000: entry 1 (\"3000000000\"): does not fit in 32 bits",
           "");
    refuse("mean = 0.5,x", 8, "[layer.*] mean = 0.5,x: entry 2 (\"x\"): not a number", "");
    refuse("mean = 0.5,1.5", 8, "[layer.*] mean = 0.5,1.5: entry 2 (\"1.5\"): must lie between 0 and 1", "");
}

static void missing_and_shared(void **state)
{
    layer l;
    st_spec *s;
    st_diags d;
    assert_int_equal(bind_text("[stack]\neps = 1e-3\n\n[layer.*]\nplugin = x\n", &layers, &l, &s, &d), ST_E_CONFIG);
    expect_shown(
        &d, "dir/t.ini:4:2: error: [layer.*] needs the key \"heads\" (plugin attention 0.1)\n    [layer.*]\n     ^\n"
            "  hint: heads: query heads\n");
    assert_true(l.eps == 1e-3);
    st_spec_destroy(s);
    assert_int_equal(bind_text("[stack]\neps = 7\n[layer.*]\nheads = 1\n", &layers, &l, &s, &d), ST_E_CONFIG);
    assert_int_equal(d.item[0].error.line, 2); /* where it is written */
    st_spec_destroy(s);
    assert_int_equal(bind_text("[stack]\neps = 7\n[layer.*]\nheads = 1\neps = 1e-5\n", &layers, &l, &s, &d), ST_OK);
    assert_true(l.eps == 1e-5);
    st_spec_destroy(s);
    assert_int_equal(bind_text("", &layers, &l, &s, &d), ST_E_CONFIG); /* no section at all */
    expect_shown(
        &d, "dir/t.ini: error: [layer.*] needs the key \"heads\" (plugin attention 0.1)\n  hint: heads: query heads\n");
    st_spec_destroy(s);
}

static void several_mistakes(void **state)
{
    layer l;
    st_spec *s;
    st_diags d;
    assert_int_equal(bind_text("[layer.*]\nbias = 2\nkind = x\nheds = 4\n", &layers, &l, &s, &d), ST_E_CONFIG);
    assert_int_equal(d.errors, 3);
    st_spec_check_unused(s, &d);
    assert_int_equal(d.errors, 4);
    assert_string_equal(d.item[3].error.hint, "did you mean \"heads\"?");
    st_spec_destroy(s);
}

/* What stands behind an error may not have had its reader yet: only slips of known names are told. */
static void readers_that_had_no_turn(void **state)
{
    static const char unread[] = "[layer.*]\nheads = 4\nheds = 4\nother = 1\n[later]\nkey = 1\n";
    layer l;
    st_spec *s;
    st_diags d;
    st_error e = {.code = ST_E_CONFIG, .message = "before"};
    assert_int_equal(bind_text(unread, &layers, &l, &s, &d), ST_OK);
    assert_int_equal(st_spec_check_unused(s, &d), ST_E_CONFIG);
    assert_int_equal(d.errors, 3);
    memset(&d, 0, sizeof d);
    st_diags_add(&d, &e, NULL, false);
    assert_int_equal(st_spec_check_unused(s, &d), ST_E_CONFIG);
    assert_int_equal(d.errors, 2);
    assert_string_equal(d.item[1].error.hint, "did you mean \"heads\"?");
    st_spec_destroy(s);
}

static void taken_values_are_known(void **state)
{
    layer l;
    st_spec *s;
    st_diags d;
    const st_value *v;
    assert_int_equal(bind_text("[layer.*]\nheads = 4\n", &layers, &l, &s, &d), ST_OK);
    int n = st_spec_defaults(s, &v);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(v[i].origin, ST_FROM_DEFAULT);
        assert_string_equal(v[i].section, "layer.*");
        assert_string_not_equal(v[i].key, "heads");
    }
    st_spec_destroy(s);
}

typedef struct aged { int64_t width, depth, height; } aged;

static void aging_keys(void **state)
{
    st_param p[] = {
        ST_INT(aged, width, "1", 1, 9, "", 0, "columns"),
        ST_INT(aged, depth, "2", 1, 9, "", ST_PF_DEPRECATED, "use width instead"),
        ST_INT(aged, height, NULL, 0, 0, "", ST_PF_OBSOLETE, "it follows from width"),
    };
    p[0].alias = "columns";
    const st_table t = {p, ST_COUNT(p), sizeof(st_param), "plugin aged"};
    aged a;
    st_spec *s;
    st_diags d;
    assert_int_equal(bind_text("[layer.*]\ncolumns = 3\ndepth = 4\n", &t, &a, &s, &d), ST_OK);
    assert_int_equal(a.width, 3);
    assert_int_equal(a.depth, 4);
    assert_true(a.height == ST_UNSET_INT);
    expect_shown(&d, "dir/t.ini:2:1: warning: \"columns\" is now called \"width\"\n    columns = 3\n    ^\n"
                     "dir/t.ini:3:1: warning: [layer.*] depth is going to be removed\n    depth = 4\n    ^\n  hint: "
                     "use width instead\n");
    assert_int_equal(st_spec_check_unused(s, &d), ST_OK);
    st_spec_destroy(s);
    assert_int_equal(bind_text("[layer.*]\nwidth = 5\ncolumns = 3\nheight = 1\n", &t, &a, &s, &d), ST_E_CONFIG);
    assert_int_equal(d.errors, 2);
    assert_string_equal(d.item[0].error.message, "\"columns\" is the former name of \"width\", which is set as well");
    assert_string_equal(d.item[1].error.message, "[layer.*] height is no longer used");
    assert_string_equal(d.item[1].error.hint, "it follows from width");
    st_spec_destroy(s);
}

/* A plugin's table may be of another age: longer entries are stepped over, what shorter ones lack is zero. */
static void other_strides(void **state)
{
    struct { st_param p; char more[24]; } longer[2] = {{.p = ST_INT(aged, width, "1", 1, 9, "", 0, "")},
                                                        {.p = ST_INT(aged, depth, "2", 1, 9, "", 0, "")}};
    const st_table t = {&longer[0].p, 2, sizeof longer[0], "plugin newer"};
    aged a;
    st_spec *s;
    st_diags d;
    assert_int_equal(bind_text("[layer.*]\ndepth = 4\n", &t, &a, &s, &d), ST_OK);
    assert_int_equal(a.width, 1);
    assert_int_equal(a.depth, 4);
    st_spec_destroy(s);
}

static void wrong_tables(void **state)
{
    st_param p[] = {
        ST_INT(aged, width, "0", 1, 9, "", 0, ""),
        ST_PARAM(aged, depth, ST_P_BOOL, "no", 0, 1, "", NULL, 0, ""),
        ST_PARAM(aged, height, 99, NULL, 0, 0, "", NULL, 0, ""),
    };
    const st_table t = {p, ST_COUNT(p), sizeof(st_param), "plugin wrong"};
    aged a;
    st_spec *s;
    st_diags d;
    assert_int_equal(bind_text("[layer.*]\n", &t, &a, &s, &d), ST_E_INTERNAL);
    expect_shown(&d, "error: plugin wrong: parameter \"width\": its default does not pass its own rules\n"
                     "error: plugin wrong: parameter \"depth\": its field has the wrong size for its type\n"
                     "error: plugin wrong: parameter \"height\": its type is unknown\n");
    st_spec_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),           cmocka_unit_test(all_types),        cmocka_unit_test(wrong_values),
        cmocka_unit_test(missing_and_shared), cmocka_unit_test(several_mistakes), cmocka_unit_test(aging_keys),
        cmocka_unit_test(readers_that_had_no_turn), cmocka_unit_test(taken_values_are_known),
        cmocka_unit_test(other_strides),      cmocka_unit_test(wrong_tables),     cmocka_unit_test(empty_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
