/* SPDX-License-Identifier: Apache-2.0 */
/* Every way in which a module can be wrong, each refused with its path and in words that say what: descriptors,
 * operations that a kind or capability promises, parameters, dependencies, kernels of another interface. */
#include "config.h"
#include "plugin_test.h"

static st_diags diags;

static void refused(const char *path, const char *word, const char *detail)
{
    st_registry *r = open_only("", &diags);
    const st_plugin *p = (const st_plugin *)1;
    st_error e = {0};

    if (st_module_open_file(r, path, &p, &e) == ST_OK) fail_msg("%s %s was taken", path, getenv("ST_FIXTURE_ODD"));
    assert_null(p);
    assert_string_equal(e.file, path);
    assert_has(e.message, word);
    assert_has(e.detail, detail);
    st_registry_close(r);
}

static const struct {
    const char *odd, *word, *detail;
} wrong[] = {
    {"no descriptor", "st_plugin_v1 gives no descriptor", ""},
    {"param_size", "does not fit", "param_size: module 8, host"},
    {"n_params", "does not fit", "n_params: module 5000, host at most 1024"},
    {"self_size", "does not fit", "self_size: module 1073741824, host at most"},
    {"kernel half", "does not fit", "kernel_iface 3 and kernel_size 0: both or neither"},
    {"caps", "does not fit", "caps: module 0x10000000000, host knows"},
    {"needs", "does not fit", "needs: module 0x20000000000, host knows"},
    {"no params", "counts 3 parameters, but has no table", ""},
    {"no ops", "has no operations", ""},
    {"ops short", "operations have 2 bytes", ""},
    {"ops long", "operations have 512 bytes", ""},
    {"faults", "counts 2 fault texts, but has no table", ""},
    {"text empty", "lacks texts", "version: empty"},
    {"text bytes", "lacks texts", "author: not UTF-8"},
    {"role", "its role is 9", ""},
    {"tokens", "its tokens are 9", ""},
    {"no forward", "its operations lack forward", ""},
    {"slot unnamed", "slot 1 has no name", ""},
    {"slots absent", "counts 2 slots, but has no table", ""},
    {"map incomplete", "file name 1 is incomplete", ""},
    {"map rows", "goes by rows, but the operation map_row is absent", ""},
    {"backend table", "its table of ops has 0 bytes", ""},
    {"backend lacks", "its operations lack open, sync", ""},
    {"position axes", "gives 17 ids per token", ""},
    {"position pair", "only tables is there", ""},
    {"position embed", "lack embed_bwd (for ST_CAP_TRAIN)", ""},
    {"encoder slots", "has 33 slots, at most 32", ""},
    {"encoder backward", "lack backward (for ST_CAP_TRAIN)", ""},
    {"head maps", "counts 3 file names, but has no table", ""},
    {"head", "file name 1 is incomplete", ""},
    {"dataset", "its operations lack get", ""},
    {"dataset stream", "its operations lack save (for ST_CAP_STREAM)", ""},
    {"optimizer hyper", "has 65 hyper values", ""},
    {"optimizer lacks", "its operations lack update", ""},
    {"param key", "parameter 1 has no proper key", ""},
    {"param no key", "parameter 1 has no proper key", ""},
    {"param type", "parameter depth has the unknown type 99", ""},
    {"param size", "its field has 4 bytes, its type takes 8", ""},
    {"param choices", "parameter mode has no choices", ""},
    {"param help", "parameter depth has no help", ""},
    {"param range", "parameter depth: its range 65 to 64 is empty", ""},
    {"param required", "parameter depth is required, but has the default '8'", ""},
    {"param twice", "parameter width is there twice", ""},
    {"param alias", "parameters width and depth share a name", ""},
    {"param bytes", "parameters width and depth share bytes", ""},
};

static void one_thing_wrong_at_a_time(void **state)
{
    const char *path = fixture("odd");
    st_registry *r = open_only("", &diags);
    const st_plugin *p;
    st_error e = {0};

    unsetenv("ST_FIXTURE_ODD");
    if (st_module_open_file(r, path, &p, &e) != ST_OK) fail_msg("%s %s", e.message, e.detail);
    st_registry_close(r);
    for (size_t i = 0; i < ST_COUNT(wrong); i++) {
        setenv("ST_FIXTURE_ODD", wrong[i].odd, 1);
        refused(path, wrong[i].word, wrong[i].detail);
    }
    unsetenv("ST_FIXTURE_ODD");
}

/* The same bytes with another word of the same length in place of one. */
static const char *patched(const char *root, const char *from, const char *to)
{
    size_t n, length = strlen(from);
    char *data = slurp(fixture("odd"), &n), *at = data;
    const char *path = path_of("%s/patched.so", root);

    assert_int_equal(length, strlen(to));
    int hits = 0;
    while ((at = memmem(at, n - (size_t)(at - data), from, length))) {
        memcpy(at, to, length);
        hits++;
    }
    assert_true(hits > 0);
    put(path, data, n);
    free(data);
    return path;
}

static void dependency_that_is_not_there(void **state)
{
    refused(patched(*state, "libc.so.6", "libq.so.6"), "cannot be loaded", "libq.so.6");
}

static void kernels_must_be_of_the_same_make(void **state)
{
    const char *root = *state;
    st_error e = {0};
    const st_plugin *p;
    const st_kernels *k;

    manifest(path_of("%s/x.ini", root), "layer", "fixture", fixture("good"),
             path_of("[backend.cpu]\nmodule = %s\n[backend.iface]\nmodule = %s\n[backend.plugin]\nmodule = %s\n"
                     "[backend.magic]\nmodule = %s\n[backend.again]\nmodule = %s\n[backend.gone]\nmodule = %s/gone.so\n",
                     fixture("kernels"), fixture("kernels_iface"), fixture("good"), fixture("kernels_magic"),
                     fixture("kernels"), root));
    st_registry *r = open_only(root, &diags);
    const st_manifest *m = st_registry_find(r, ST_KIND_LAYER, "fixture");
    const struct {
        const char *backend;
        int code;
        const char *file, *word, *detail;
    } bad[] = {
        {"iface", ST_E_ABI, "kernels_iface.so", "does not belong to plugin fixture", "iface: kernels 4, plugin 3"},
        {"plugin", ST_E_ABI, "good.so", "no function st_kernels_v1", "a plugin, not a kernel module"},
        {"magic", ST_E_ABI, "kernels_magic.so", "not strata's", "magic"},
        {"again", ST_E_ABI, "kernels.so", "does not belong", "backend: module 'cpu', manifest 'again'"},
        {"gone", ST_E_NOTFOUND, "gone.so", "does not exist", ""},
    };
    assert_int_equal(st_module_open(r, m, &p, &e), ST_OK);
    assert_int_equal(st_kernels_open(r, m, p, "cpu", &k, &e), ST_OK);
    const st_kernels *first = k;
    assert_int_equal(st_kernels_open(r, m, p, "cpu", &k, &e), ST_OK);
    assert_ptr_equal(k, first);
    for (size_t i = 0; i < ST_COUNT(bad); i++) {
        memset(&e, 0, sizeof e);
        assert_int_equal(st_kernels_open(r, m, p, bad[i].backend, &k, &e), bad[i].code);
        assert_null(k);
        assert_has(e.file, bad[i].file);
        assert_has(e.message, bad[i].word);
        assert_has(e.detail, bad[i].detail);
    }
    st_registry_close(r);
}

static void an_entry_of_a_later_abi(void **state)
{
    refused(fixture("later"), "no function st_plugin_v1", "it has st_plugin_v2: built for a later ABI");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thing_wrong_at_a_time),
        cmocka_unit_test_setup_teardown(dependency_that_is_not_there, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(kernels_must_be_of_the_same_make, tree_make, tree_remove),
        cmocka_unit_test(an_entry_of_a_later_abi),
    };
    return cmocka_run_group_tests_name("refusals of modules", tests, NULL, NULL);
}
