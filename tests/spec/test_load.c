/* SPDX-License-Identifier: Apache-2.0 */
/* tests/spec/test_load.c - files and includes, --set, unknown names, the resolved text and its hash. */
#include "spec_test.h"
#include <sys/stat.h>
#include <unistd.h>

typedef struct folder { char path[32]; st_arena *arena; } folder;

static int make_folder(void **state)
{
    folder *f = calloc(1, sizeof *f);
    strcpy(f->path, "test_load.XXXXXX");
    f->arena = st_arena_create(0);
    *state = f;
    return mkdtemp(f->path) ? 0 : -1;
}

static int drop_folder(void **state)
{
    folder *f = *state;
    static const char *const name[] = {"a.ini", "b.ini", "c.ini", "sub/d.ini", "sub/e.ini", "sub", ""};
    for (size_t i = 0; i < ST_COUNT(name); i++) remove(st_arena_printf(f->arena, "%s/%s", f->path, name[i]));
    st_arena_destroy(f->arena);
    free(f);
    return 0;
}

static char *put(folder *f, const char *name, const char *text)
{
    st_error e = {0};
    char *path = st_path_join(f->arena, f->path, name);
    assert_int_equal(st_make_dirs(st_path_dir(f->arena, path), &e), ST_OK);
    assert_int_equal(st_file_write_atomic(path, text, strlen(text), &e), ST_OK);
    return path;
}

static void includes(void **state)
{
    folder *f = *state;
    st_spec *s;
    st_diags d = {0};
    put(f, "sub/d.ini", "[run]\nsteps = 1\nseed = 1\ndata = x\n[only.d]\n");
    put(f, "b.ini", "include = sub/d.ini\n[run]\nsteps = 2\nname = b\n");
    put(f, "c.ini", "[run]\nname = c\n");
    char *a = put(f, "a.ini", "; top\ninclude = b.ini\ninclude = c.ini ; later wins\n[run]\nsteps = 3\n");
    assert_int_equal(st_spec_load(a, NULL, 0, &s, &d), ST_OK);
    assert_string_equal(value_of(s, "run", "steps"), "3");
    assert_string_equal(value_of(s, "run", "seed"), "1");
    assert_string_equal(value_of(s, "run", "name"), "c");
    assert_true(st_spec_has(s, "only.d"));
    assert_false(st_spec_has(s, "only.e"));
    const st_value *v = st_spec_get(s, "run", "data");
    assert_string_equal(v->file, st_arena_printf(f->arena, "%s/sub/d.ini", f->path));
    assert_int_equal(v->line, 4);
    assert_string_equal(st_spec_file_of(s, v, f->arena), st_arena_printf(f->arena, "%s/sub/x", f->path));
    assert_string_equal(st_spec_path(s), a);
    assert_string_equal(st_spec_dir(s), f->path);
    st_spec_destroy(s);
}

/* By a link a spec says what it says by its own name. */
static void links(void **state)
{
    folder *f = *state;
    st_spec *s;
    st_diags d = {0};
    put(f, "sub/d.ini", "[run]\nseed = 1\n");
    put(f, "sub/e.ini", "include = d.ini\n[run]\ndata = x\n");
    char *link = st_path_join(f->arena, f->path, "a.ini");
    assert_int_equal(symlink("sub/e.ini", link), 0);
    assert_int_equal(st_spec_load(link, NULL, 0, &s, &d), ST_OK);
    assert_string_equal(value_of(s, "run", "seed"), "1");
    const st_value *v = st_spec_get(s, "run", "data");
    assert_string_equal(v->file, link);
    char *at = st_spec_file_of(s, v, f->arena), *real = realpath(f->path, NULL);
    assert_string_equal(at, st_arena_printf(f->arena, "%s/sub/x", real));
    free(real);
    st_spec_destroy(s);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("nowhere.ini", link), 0);
    assert_int_equal(st_spec_load(link, NULL, 0, &s, &d), ST_E_IO);
    assert_non_null(strstr(d.item[0].error.message, link));
}

static void wrong_includes(void **state)
{
    folder *f = *state;
    st_spec *s;
    st_diags d = {0};
    put(f, "b.ini", "include = a.ini\n[run]\nseed 2\n");
    put(f, "c.ini", "include = c.ini\n");
    char *a =
        put(f, "a.ini", "include = b.ini\n\n include = no.ini\ninclude =\ninclude = c.ini\n[run]\ninclude = c.ini\n");
    assert_int_equal(st_spec_load(a, NULL, 0, &s, &d), ST_E_CONFIG);
    assert_null(s);
    char *want = st_arena_printf(
        f->arena,
        "%1$s/b.ini:1:11: error: %1$s/a.ini includes itself through %1$s/b.ini\n    include = a.ini\n              ^\n"
        "%1$s/b.ini:3:1: error: neither a key with '=' nor a section\n    seed 2\n    ^\n"
        "  hint: write key = value, [section] or ; comment\n"
        "%1$s/a.ini:3:12: error: %1$s/no.ini: cannot open: No such file or directory\n     include = no.ini\n          "
        "     ^\n"
        "%1$s/a.ini:4:10: error: include without a file\n    include =\n             ^\n  hint: write include = FILE\n"
        "%1$s/c.ini:1:11: error: %1$s/c.ini includes itself through %1$s/c.ini\n    include = c.ini\n              ^\n",
        f->path);
    expect_shown(&d, want);

    memset(&d, 0, sizeof d);
    assert_int_equal(st_spec_load("no/such.ini", NULL, 0, &s, &d), ST_E_IO);
    expect_shown(&d, "error: no/such.ini: cannot open: No such file or directory\n");
    memset(&d, 0, sizeof d);
    assert_int_equal(st_spec_load(f->path, NULL, 0, &s, &d), ST_E_IO);
    char text[2000] = "";
    for (int i = 0; i < 70; i++) strcat(text, "include = b.ini\n");
    put(f, "b.ini", "[x]\n");
    a = put(f, "a.ini", text);
    memset(&d, 0, sizeof d);
    assert_int_equal(st_spec_load(a, NULL, 0, &s, &d), ST_E_CONFIG); /* would grow without end when nested */
    assert_non_null(strstr(d.item[0].error.message, "more than 64 files"));
}

static void overrides(void **state)
{
    folder *f = *state;
    static const char *const sets[] = {"run.steps=5",
                                       "dataset.train.path = data/x ",
                                       "layer.*.heads=4",
                                       "layer.-.hidden=8",
                                       "chat.user=<|im_start|>user\n",
                                       "run.steps=6",
                                       "run.name=",
                                       "run.note=a = b ; c"};
    st_spec *s, *again;
    st_diags d = {0};
    char *a = put(f, "a.ini", "[run]\nsteps = 3\nseed = 1\nname = x\n[dataset.train]\npath = here\n");
    assert_int_equal(st_spec_load(a, sets, ST_COUNT(sets), &s, &d), ST_OK);
    assert_string_equal(value_of(s, "run", "steps"), "6");
    assert_string_equal(value_of(s, "run", "seed"), "1");
    assert_string_equal(value_of(s, "run", "name"), "");
    assert_string_equal(value_of(s, "run", "note"), "a = b ; c");
    assert_string_equal(value_of(s, "layer.*", "heads"), "4");
    assert_string_equal(value_of(s, "layer.-", "hidden"), "8");
    assert_string_equal(value_of(s, "chat", "user"), "<|im_start|>user\n");
    const st_value *v = st_spec_get(s, "dataset.train", "path");
    assert_string_equal(v->text, "data/x");
    assert_int_equal(v->origin, ST_FROM_SET);
    assert_string_equal(v->file, "--set");
    assert_string_equal(st_spec_file_of(s, v, f->arena), "data/x"); /* where the user stands */
    assert_int_equal(st_spec_get(s, "run", "seed")->origin, ST_FROM_FILE);
    st_spec_fail(s, &d, v, "another", "no such folder");
    expect_shown(&d, "--set: error: no such folder\n    dataset.train.path = data/x \n                         ^\n  "
                     "hint: another\n");

    st_buf text = {0};
    st_spec_write(s, &text);
    assert_string_equal(
        text.data, "[chat]\nuser = \"<|im_start|>user\\n\"\n\n[dataset.train]\npath = data/x\n\n[layer.*]\nheads = 4\n"
                   "\n[layer.-]\nhidden = 8\n\n[run]\nname = \nnote = \"a = b ; c\"\nseed = 1\nsteps = 6\n");
    memset(&d, 0, sizeof d);
    assert_int_equal(st_spec_parse("again", text.data, text.n, ".", &again, &d), ST_OK);
    assert_true(st_spec_hash(s) == st_spec_hash(again));
    st_spec_destroy(again);
    st_buf_free(&text);
    st_spec_destroy(s);
}

typedef struct paths { const char *data, *more; } paths;

/* A checkpoint holds the spec's text and lies elsewhere: paths are written absolute. A moved folder keeps its hash. */
static void absolute_paths(void **state)
{
    static const st_param p[] = {
        ST_PARAM(paths, data, ST_P_PATH, NULL, 0, 0, "", NULL, 0, ""),
        ST_PARAM(paths, more, ST_P_PATH, NULL, 0, 0, "", NULL, 0, ""),
    };
    static const st_table table = {p, ST_COUNT(p), sizeof(st_param), "test"};
    folder *f = *state;
    st_spec *s;
    st_diags d = {0};
    paths got;
    char *here = realpath(f->path, NULL);
    char *a = put(f, "a.ini", "[run]\ndata = x/y.json\nmore = /abs\n");
    assert_int_equal(st_spec_load(a, NULL, 0, &s, &d), ST_OK);
    uint64_t hash = st_spec_hash(s);
    assert_int_equal(st_spec_bind(s, "run", &table, &got, NULL, &d), ST_OK);
    assert_string_equal(got.data, st_arena_printf(f->arena, "%s/x/y.json", f->path));
    st_buf text = {0};
    st_spec_write(s, &text);
    assert_string_equal(text.data, st_arena_printf(f->arena, "[run]\ndata = %s/x/y.json\nmore = /abs\n", here));
    assert_true(st_spec_hash(s) == hash);
    st_buf_free(&text);
    st_spec_destroy(s);
    free(here);
}

static void wrong_overrides(void **state)
{
    folder *f = *state;
    static const char *const sets[] = {"run.steps", "steps=3",    ".steps=3",       "run.=3",     "a b.c=3",
                                       "=",         "run.x=\x01", "run.x=\xC2\x85", "run.x=\xE9", ""};
    st_spec *s;
    st_diags d = {0};
    char *a = put(f, "a.ini", "[run]\nsteps = 3\n");
    assert_int_equal(st_spec_load(a, sets, ST_COUNT(sets), &s, &d), ST_E_CONFIG);
    assert_null(s);
    assert_int_equal(d.errors, ST_COUNT(sets));
}

static void unknown_names(void **state)
{
    static const char text[] =
        "[run]\nsteps = 3\nsede = 1\n[optimizer]\nlearning_rate = 1\nbeta3 = 1\nsteps = 4\nzzzzzz = 1\n"
        "[layr.G]\nplugin = x\n[free]\n";
    st_spec *s;
    st_diags d = {0};
    assert_int_equal(st_spec_parse("t.ini", text, sizeof text - 1, ".", &s, &d), ST_OK);
    static const char *const keys[] = {"lr", "beta1", "beta2", "eps"};
    for (size_t i = 0; i < ST_COUNT(keys); i++) assert_null(st_spec_get(s, "optimizer", keys[i]));
    assert_non_null(st_spec_get(s, "run", "steps"));
    assert_null(st_spec_get(s, "run", "seed"));
    assert_null(st_spec_get(s, "layer.G", "plugin"));
    assert_int_equal(st_spec_check_unused(s, &d), ST_E_CONFIG);
    expect_shown(
        &d,
        "t.ini:3:1: error: [run] has no key \"sede\"\n    sede = 1\n    ^\n  hint: did you mean \"seed\"?\n"
        "t.ini:5:1: error: [optimizer] has no key \"learning_rate\"\n    learning_rate = 1\n    ^\n"
        "  hint: [optimizer] has the keys lr, beta1, beta2, eps\n"
        "t.ini:6:1: error: [optimizer] has no key \"beta3\"\n    beta3 = 1\n    ^\n  hint: did you mean \"beta1\"?\n"
        "t.ini:7:1: error: [optimizer] has no key \"steps\"\n    steps = 4\n    ^\n  hint: \"steps\" is a key of "
        "[run]\n"
        "t.ini:8:1: error: [optimizer] has no key \"zzzzzz\"\n    zzzzzz = 1\n    ^\n"
        "  hint: [optimizer] has the keys lr, beta1, beta2, eps\n"
        "t.ini:9:2: error: nothing reads the section [layr.G]\n    [layr.G]\n     ^\n  hint: did you mean [layer.G]?\n"
        "t.ini:11:2: error: nothing reads the section [free]\n    [free]\n     ^\n");
    st_spec_destroy(s);
}

static void placed_values(void **state)
{
    static const char text[] = "[stack]\n  pattern = G-X- ; note\n";
    st_spec *s;
    st_diags d = {0};
    st_error inner = {0};
    assert_int_equal(st_spec_parse("t.ini", text, sizeof text - 1, ".", &s, &d), ST_OK);
    const st_value *v = st_spec_get(s, "stack", "pattern");
    st_fail_at(&inner, ST_E_CONFIG, NULL, 0, 3, "'X' is not a layer");
    assert_int_equal(st_spec_fail_inside(s, &d, v, &inner), ST_E_CONFIG);
    assert_int_equal(st_spec_put(s, "stack", "sugar", "abc", ST_FROM_SUGAR, v), ST_OK);
    st_spec_fail_inside(s, &d, st_spec_get(s, "stack", "sugar"), &inner); /* not written by the user: no place inside */
    st_spec_fail_section(s, &d, "stack", "", "the section");
    st_spec_fail_section(s, &d, "nowhere", "", "no section");
    st_spec_fail(s, &d, NULL, NULL, "the file");
    expect_shown(&d, "t.ini:2:15: error: 'X' is not a layer\n      pattern = G-X- ; note\n                  ^\n"
                     "t.ini:2:13: error: 'X' is not a layer\n      pattern = G-X- ; note\n                ^\n"
                     "t.ini:1:2: error: the section\n    [stack]\n     ^\n"
                     "t.ini: error: no section\nt.ini: error: the file\n");
    assert_string_equal(value_of(s, "stack", "sugar"), "abc");
    assert_int_equal(st_spec_put(s, "new", "key", "v", ST_FROM_SUGAR, NULL), ST_OK);
    assert_true(st_spec_has(s, "new"));
    st_spec_destroy(s);
}

static void hash_of_values(void **state)
{
    static const char *const text[] = {"[a]\nb = 1\n",      "; x\n[a]\n\n b=1 ; y\n", "[a]\nb = 2\n",
                                       "[a]\nb = 1\n[c]\n", "[a]\nc = 1\n",           "[a]\nb =\n1 = \n"};
    uint64_t h[ST_COUNT(text)] = {0};
    for (size_t i = 0; i < ST_COUNT(text); i++) {
        st_spec *s;
        st_diags d = {0};
        assert_int_equal(st_spec_parse("t", text[i], strlen(text[i]), ".", &s, &d), ST_OK);
        h[i] = st_spec_hash(s);
        st_spec_destroy(s);
    }
    assert_true(h[0] == h[1]);
    for (size_t i = 2; i < ST_COUNT(text); i++)
        for (size_t k = 0; k < i; k++) assert_true(h[i] != h[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(includes, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(links, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(wrong_includes, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(overrides, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(absolute_paths, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(wrong_overrides, make_folder, drop_folder),
        cmocka_unit_test(unknown_names), cmocka_unit_test(placed_values), cmocka_unit_test(hash_of_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
