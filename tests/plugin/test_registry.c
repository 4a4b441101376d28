/* SPDX-License-Identifier: Apache-2.0 */
/* Which directories are searched, which manifest wins, what is refused and why. No module is opened here. */
#include "config.h"
#include "plugin_test.h"

static st_diags diags;

static const st_searched *searched(const st_registry *r, const char *dir)
{
    const st_searched *s;
    int n = st_registry_searched(r, &s);
    for (int i = 0; i < n; i++)
        if (!strcmp(s[i].dir, dir)) return &s[i];
    return NULL;
}

static void order_decides_and_is_shown(void **state)
{
    const char *root = *state, *name[] = {"given", "spec", "env"};
    const char *given = path_of("%s/given", root), *spec = path_of("%s/spec", root);
    const st_search search = {&given, 1, &spec, 1};
    st_registry *r = NULL;
    const st_manifest *const *list;

    for (int i = 0; i < 3; i++)
        manifest(path_of("%s/50-x.ini", make_dir(root, name[i])), "layer", "x", "x", "symbol = X\n");
    manifest(path_of("%s/env/10-y.ini", root), "position", "x", "y", "");
    setenv("STRATA_PLUGIN_PATH_ONLY", path_of("%s/env", root), 1);
    memset(&diags, 0, sizeof diags);
    assert_int_equal(st_registry_open(NULL, &search, &r, &diags), ST_OK);
    assert_int_equal(diags.n, 0);
    assert_int_equal(st_registry_list(r, &list), 4);
    const st_manifest *m = st_registry_find(r, ST_KIND_LAYER, "x");
    assert_string_equal(m->dir, given);
    assert_int_equal(m->symbol, 'X');
    assert_ptr_equal(st_registry_symbol(r, 'X', NULL), m);
    assert_non_null(st_registry_find(r, ST_KIND_POSITION, "x")); /* names are per kind */
    assert_null(st_registry_find(r, ST_KIND_HEAD, "x"));
    int shadowed = 0;
    for (int i = 0; i < 4; i++)
        if (!list[i]->wins) {
            shadowed++;
            assert_ptr_equal(list[i]->shadowed_by, m);
        }
    assert_int_equal(shadowed, 2);
    assert_string_equal(list[2]->file, path_of("%s/env/10-y.ini", root)); /* sorted within a directory */
    st_registry_close(r);
}

static void environment_and_user_directories(void **state)
{
    const char *root = *state, *env = make_dir(root, "env"), *user = make_dir(make_dir(root, "data"), "strata");
    st_registry *r = NULL;
    const st_searched *s;

    memset(&diags, 0, sizeof diags);
    manifest(path_of("%s/a.ini", env), "layer", "a", "a", "");
    manifest(path_of("%s/b.ini", user), "layer", "b", "b", "");
    unsetenv("STRATA_PLUGIN_PATH_ONLY");
    setenv("STRATA_PLUGIN_PATH", path_of("relative/dir::%s:/nowhere/at/all:%s", env, env), 1);
    setenv("XDG_DATA_HOME", path_of("%s/data", root), 1);
    assert_int_equal(st_registry_open(NULL, NULL, &r, &diags), ST_OK);
    assert_non_null(st_registry_find(r, ST_KIND_LAYER, "a"));
    assert_non_null(st_registry_find(r, ST_KIND_LAYER, "b"));
    assert_non_null(st_registry_find(r, ST_KIND_COMM, "self")); /* this test runs from the build tree */
    assert_has(searched(r, "relative/dir")->why_not, "relative");
    assert_has(searched(r, "/nowhere/at/all")->why_not, "does not exist");
    assert_string_equal(searched(r, user)->source, "user");
    int n = st_registry_searched(r, &s);
    assert_int_equal(n, 7);
    assert_has(s[3].why_not, "listed above");
    assert_string_equal(s[n - 1].source, "build tree");
    st_registry_close(r);

    unsetenv("STRATA_PLUGIN_PATH");
    unsetenv("XDG_DATA_HOME");
    const char *home = make_dir(root, "home");
    manifest(path_of("%s/c.ini", make_dir(make_dir(make_dir(home, ".local"), "share"), "strata")), "layer", "c", "c",
             "");
    setenv("HOME", home, 1);
    assert_int_equal(st_registry_open(NULL, NULL, &r, &diags), ST_OK);
    assert_non_null(st_registry_find(r, ST_KIND_LAYER, "c"));
    assert_null(st_registry_find(r, ST_KIND_LAYER, "b"));
    st_registry_close(r);
    assert_int_equal(diags.n, 0);
}

static void current_directory_is_never_searched(void **state)
{
    const char *root = *state, *empty = make_dir(root, "empty");
    char before[1024];

    manifest(path_of("%s/here.ini", root), "layer", "here", "here", "");
    put_text(path_of("%s/there.so", root), "");
    manifest(path_of("%s/there.ini", empty), "layer", "there", "there", "");
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(root), 0);
    st_registry *r = open_only(path_of("%s:.:", empty), &diags);
    assert_null(st_registry_find(r, ST_KIND_LAYER, "here"));
    assert_string_equal(st_registry_find(r, ST_KIND_LAYER, "there")->module, "there.so"); /* found nowhere */
    st_registry_close(r);
    assert_int_equal(chdir(before), 0);
}

static void world_writable_is_refused(void **state)
{
    const char *root = *state, *open_dir = make_dir(root, "open"), *dir = make_dir(root, "dir");

    manifest(path_of("%s/a.ini", open_dir), "layer", "a", "a", "");
    chmod(open_dir, 01777);
    chmod(manifest(path_of("%s/b.ini", dir), "layer", "b", "b", ""), 0666);
    manifest(path_of("%s/c.ini", dir), "layer", "c", "c", "");
    st_registry *r = open_only(path_of("%s:%s", open_dir, dir), &diags);
    assert_has(searched(r, open_dir)->why_not, "world-writable");
    assert_null(st_registry_find(r, ST_KIND_LAYER, "a"));
    assert_null(st_registry_find(r, ST_KIND_LAYER, "b"));
    assert_non_null(st_registry_find(r, ST_KIND_LAYER, "c"));
    assert_int_equal(searched(r, dir)->set_aside, 1);
    assert_int_equal(diags.warnings, 1);
    assert_has(diags.item[0].error.message, "world-writable");
    assert_has(diags.item[0].error.file, "b.ini");
    st_registry_close(r);
}

#define HEAD "[manifest]\nformat = 1\n[plugin]\nname = a\nkind = layer\nmodule = a\nabi = 1\nversion = 1\n"
static const struct {
    const char *text, *word;
    int line;
} bad[] = {
    {"[manifest]\nformat = 1\n[plugin]\nkind = layer\nmodule = a\nabi = 1\nversion = 1\n", "name", 3},
    {"[manifest]\nformat = 1\n[plugin]\nname = a\nkind = lair\nmodule = a\nabi = 1\nversion = 1\n", "lair", 5},
    {"[manifest]\nformat = 1\n[plugin]\nname = A b\nkind = layer\nmodule = a\nabi = 1\nversion = 1\n", "A b", 4},
    {"[manifest]\nformat = one\n[plugin]\nname = a\nkind = layer\nmodule = a\nabi = 1\nversion = 1\n", "one", 2},
    {"[manifest]\n[plugin]\nname = a\nkind = layer\nmodule = a\nabi = 1\nversion = 1\n", "format", 1},
    {"[plugin]\nname = a\nkind = layer\nmodule = a\nabi = 1\nversion = 1\n", "format", 0},
    {HEAD "symbl = G\n", "symbl", 9},
    {HEAD "symbol = GG\n", "GG", 9},
    {HEAD "symbol = /\n", "'/'", 9},
    {HEAD "symbol = 7\n", "'7'", 9},
    {HEAD "[backend.cpu]\n", "module", 9},
    {HEAD "[backend.]\nmodule = a\n", "backend", 9},
    {HEAD "[other]\nmodule = a\n", "other", 9},
    {HEAD "name = b\n", "name", 9},
    {HEAD "no equals\n", "", 9},
    {"\xff\xfe[\0m\0", "", 0},
    {"[manifest]\nformat = 1\n[plugin]\nname = a\nkind = head\nsymbol = G\nmodule = a\nabi = 1\nversion = 1\n",
     "only layers", 6},
};

static void mistakes_set_one_manifest_aside(void **state)
{
    const char *root = *state, *file = path_of("%s/50-bad.ini", root);

    manifest(path_of("%s/60-good.ini", root), "layer", "good", "good", "");
    for (size_t i = 0; i < ST_COUNT(bad); i++) {
        put_text(file, bad[i].text);
        st_registry *r = open_only(root, &diags);
        if (!diags.warnings || diags.errors)
            fail_msg("manifest %zu: %d warnings, %d errors", i, diags.warnings, diags.errors);
        const st_error *e = &diags.item[0].error;
        assert_has(e->message, bad[i].word);
        assert_has(e->file[0] ? e->file : e->message, "50-bad.ini");
        if (bad[i].line && e->line != bad[i].line) fail_msg("manifest %zu: line %d, not %d", i, e->line, bad[i].line);
        assert_int_equal(searched(r, root)->set_aside, 1);
        assert_null(st_registry_find(r, ST_KIND_LAYER, "a"));
        assert_non_null(st_registry_find(r, ST_KIND_LAYER, "good"));
        st_registry_close(r);
    }
}

static void other_files_are_no_manifests(void **state)
{
    const char *root = *state;

    put_text(path_of("%s/spec.ini", root), "[run]\nname = x\n");
    put_text(path_of("%s/.hidden.ini", root), "rubbish");
    put_text(path_of("%s/readme.txt", root), "rubbish");
    manifest(path_of("%s/newer.ini", root), "layer", "newer", "x", "unheard = of\n");
    put_text(path_of("%s/newer.ini", root),
             "[manifest]\nformat = 2\n[plugin]\nname = newer\nkind = layer\nmodule = x\nabi = 1\n"
             "version = 1\nunheard = of\n");
    st_registry *r = open_only(root, &diags);
    assert_int_equal(searched(r, root)->manifests, 1);
    assert_int_equal(searched(r, root)->set_aside, 0);
    assert_int_equal(diags.warnings, 1); /* a newer format: keys we do not know are only told */
    assert_has(diags.item[0].error.message, "newer");
    assert_non_null(st_registry_find(r, ST_KIND_LAYER, "newer"));
    st_registry_close(r);
}

static void two_claims_on_a_symbol(void **state)
{
    const char *root = *state;
    st_error e = {0};

    manifest(path_of("%s/1.ini", root), "layer", "one", "one", "symbol = G\n");
    manifest(path_of("%s/2.ini", root), "layer", "two", "two", "symbol = G\n");
    manifest(path_of("%s/3.ini", root), "layer", "three", "three", "symbol = *\n");
    st_registry *r = open_only(root, &diags);
    assert_null(st_registry_symbol(r, 'G', &e));
    assert_has(e.message, "one and two");
    assert_has(e.detail, "1.ini");
    assert_has(e.detail, "2.ini");
    assert_has(e.hint, "[layer.G] plugin = ");
    assert_string_equal(st_registry_symbol(r, '*', NULL)->name, "three");
    memset(&e, 0, sizeof e);
    assert_null(st_registry_symbol(r, 'Q', &e));
    assert_has(e.message, "'Q'");
    assert_has(e.detail, "* three");
    st_registry_close(r);
}

static void modules_are_looked_up_in_order(void **state)
{
    const char *root = *state, *a = make_dir(root, "a"), *b = make_dir(root, "b"), *c = make_dir(root, "c");
    const char *dirs = path_of("%s:%s:%s", a, b, c);

    manifest(path_of("%s/m.ini", b), "layer", "m", "m",
             "[backend.cpu]\nmodule = m-cpu\n[backend.cuda]\nmodule = m-cuda.so\n");
    manifest(path_of("%s/n.ini", b), "layer", "n", "./sub/n", "");
    put_text(path_of("%s/m-cpu.so", a), "");
    for (int i = 0; i < 3; i++) { /* last directory, then an earlier one, then beside the manifest */
        put_text(path_of("%s/m.so", i == 0 ? c : i == 1 ? a : b), "");
        st_registry *r = open_only(dirs, &diags);
        const st_manifest *m = st_registry_find(r, ST_KIND_LAYER, "m");
        assert_string_equal(m->module, path_of("%s/m.so", i == 0 ? c : i == 1 ? a : b));
        assert_int_equal(m->n_kernels, 2);
        assert_string_equal(m->kernels[0].backend, "cpu");
        assert_string_equal(m->kernels[0].module, path_of("%s/m-cpu.so", a));
        assert_string_equal(m->kernels[1].module, "m-cuda.so");
        assert_string_equal(st_registry_find(r, ST_KIND_LAYER, "n")->module, path_of("%s/./sub/n.so", b));
        st_registry_close(r);
    }
}

static void spec_names_directories(void **state)
{
    const char *root = *state, *a = make_dir(root, "a"), *b = make_dir(root, "b");
    st_spec *spec = NULL;
    st_registry *r = NULL;

    manifest(path_of("%s/a.ini", a), "layer", "a", "a", "");
    manifest(path_of("%s/b.ini", b), "layer", "b", "b", "");
    put_text(path_of("%s/run.ini", root), path_of("[plugins]\npath = a:%s\n", b));
    memset(&diags, 0, sizeof diags);
    setenv("STRATA_PLUGIN_PATH_ONLY", "", 1);
    assert_int_equal(st_spec_load(path_of("%s/run.ini", root), NULL, 0, &spec, &diags), ST_OK);
    assert_int_equal(st_registry_open_for(NULL, NULL, 0, spec, &r, &diags), ST_OK);
    assert_string_equal(st_registry_find(r, ST_KIND_LAYER, "a")->dir, a); /* relative to the spec */
    assert_string_equal(searched(r, b)->source, "spec");
    assert_int_equal(st_spec_check_unused(spec, &diags), ST_OK);
    st_registry_close(r);
    st_spec_destroy(spec);
}

static void kinds_have_names(void **state)
{
    for (int k = ST_KIND_BACKEND; k <= ST_KIND_OPTIMIZER; k++) assert_int_equal(st_kind_of(st_kind_name(k)), k);
    assert_int_equal(st_kind_of("lair"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(order_decides_and_is_shown, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(environment_and_user_directories, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(current_directory_is_never_searched, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(world_writable_is_refused, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(mistakes_set_one_manifest_aside, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(other_files_are_no_manifests, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(two_claims_on_a_symbol, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(modules_are_looked_up_in_order, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(spec_names_directories, tree_make, tree_remove),
        cmocka_unit_test(kinds_have_names),
    };
    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
