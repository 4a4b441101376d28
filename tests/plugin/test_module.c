/* SPDX-License-Identifier: Apache-2.0 */
/* Opening modules: every broken file and every descriptor that does not fit is refused by name with both values, and
 * the good ones stay usable. */
#include "config.h"
#include "plugin_test.h"
#include <elf.h>
#include <strata/backend.h>
#include <strata/layer.h>

static st_diags diags;

static int open_one(const char *root, const char *module, const st_plugin **p, st_registry **r, st_error *e)
{
    memset(e, 0, sizeof *e);
    manifest(path_of("%s/50-x.ini", root), "layer", "fixture", module, "symbol = X\n");
    *r = open_only(root, &diags);
    return st_module_open(*r, st_registry_find(*r, ST_KIND_LAYER, "fixture"), p, e);
}

static void refused(const char *root, const char *module, const char *word, const char *detail)
{
    const st_plugin *p = (const st_plugin *)1;
    st_registry *r;
    st_error e;

    assert_int_not_equal(open_one(root, module, &p, &r, &e), ST_OK);
    assert_null(p);
    assert_has(e.message, word);
    assert_has(e.detail, detail);
    assert_has(strstr(e.message, module) ? e.message : e.file, module);
    st_registry_close(r);
}

static void good_module_opens_once(void **state)
{
    const st_plugin *p, *again;
    st_registry *r;
    st_error e;
    st_layer_ops ops;

    if (open_one(*state, fixture("good"), &p, &r, &e) != ST_OK) fail_msg("%s: %s (%s)", e.file, e.message, e.detail);
    assert_string_equal(p->name, "fixture");
    assert_int_equal(p->n_params, 4);
    assert_int_equal(st_module_open_file(r, fixture("good"), &again, &e), ST_OK);
    assert_ptr_equal(p, again);
    st_ops_copy(p, &ops, sizeof ops);
    assert_non_null(ops.backward);
    st_registry_close(r);
}

static void descriptors_that_do_not_fit(void **state)
{
    refused(*state, fixture("magic"), "not strata's", "magic: module 0x46464646, host 0x53545241");
    refused(*state, fixture("older"), "plugin ABI 0.0, this host has 1.0", "abi_major: module 0, host 1");
    refused(*state, fixture("newer"), "plugin ABI 1.7, this host has 1.0", "abi_minor: module 7, host 0");
    refused(*state, fixture("short"), "this host has 1.0", path_of("size: module 64, host %zu", sizeof(st_plugin)));
    refused(*state, fixture("long"), "this host has 1.0", path_of("size: module 4096, host %zu", sizeof(st_plugin)));
    refused(*state, fixture("layout"), "does not fit", "kind: module 77");
    refused(*state, fixture("layout"), "does not fit", path_of("tensor_size: module 8, host %zu", sizeof(st_tensor)));
    refused(*state, fixture("name"), "50-x.ini", "name: module 'other', manifest 'fixture'");
    refused(*state, fixture("missing"), "backward (for ST_CAP_TRAIN)", "");
    refused(*state, fixture("text"), "texts", "summary: absent");
    refused(*state, fixture("default"), "default 'eight' of parameter width", "");
    refused(*state, fixture("offset"), "width: bytes 4000 to 4008 lie outside", "");
    refused(*state, fixture("entry"), "no function st_plugin_v1", "");
    refused(*state, fixture("kernels"), "no function st_plugin_v1", "kernel module");
    refused(*state, fixture("undefined"), "cannot be loaded", "not_there_anywhere");
}

static void manifest_must_tell_the_truth(void **state)
{
    const char *root = *state;
    const st_plugin *p;
    st_error e = {0};

    manifest(path_of("%s/a.ini", root), "layer", "other_name", fixture("good"), "");
    manifest(path_of("%s/b.ini", root), "head", "fixture", fixture("good"), "");
    put_text(path_of("%s/c.ini", root),
             path_of("[manifest]\nformat = 1\n[plugin]\nname = fixture\nkind = layer\nmodule = %s\n"
                     "abi = 2\nversion = 9\n",
                     fixture("good")));
    st_registry *r = open_only(root, &diags);
    assert_int_equal(st_module_open(r, st_registry_find(r, ST_KIND_LAYER, "other_name"), &p, &e), ST_E_ABI);
    assert_has(e.detail, "name: module 'fixture', manifest 'other_name'");
    memset(&e, 0, sizeof e);
    assert_int_equal(st_module_open(r, st_registry_find(r, ST_KIND_HEAD, "fixture"), &p, &e), ST_E_ABI);
    assert_has(e.detail, "kind: module 'layer', manifest 'head'");
    memset(&e, 0, sizeof e);
    assert_int_equal(st_module_open(r, st_registry_find(r, ST_KIND_LAYER, "fixture"), &p, &e), ST_E_ABI);
    assert_has(e.message, "plugin ABI 2, this host has 1");
    st_registry_close(r);
    manifest(path_of("%s/a.ini", root), "layer", "fixture", fixture("kind"), "");
    r = open_only(root, &diags);
    memset(&e, 0, sizeof e);
    assert_int_equal(st_module_open(r, st_registry_find(r, ST_KIND_LAYER, "fixture"), &p, &e), ST_E_ABI);
    assert_true(e.message[0] != 0);
    st_registry_close(r);
}

static void files_that_are_no_modules(void **state)
{
    const char *root = *state, *so = path_of("%s/broken.so", root);
    static const char elf[30] = "\x7f"
                                "ELF\2\1\1\0\0\0\0\0\0\0\0\0\3\0\x3e\0\1";
    size_t n;
    char *good = slurp(fixture("good"), &n);

    refused(root, put_text(so, ""), "empty", "loader says: /");
    refused(root, put_text(so, "not a library\n"), "not a shared object", "loader says: /");
    refused(root, put_text(so, "INPUT(/lib/libc.so.6)\n"), "not a shared object", "loader says: /");
    refused(root, put(so, elf, sizeof elf), "cut short", "loader says: /");
    ((Elf64_Ehdr *)good)->e_machine ^= 0x55;
    refused(root, put(so, good, n), "another processor", "loader says: /");
    ((Elf64_Ehdr *)good)->e_machine ^= 0x55;
    ((Elf64_Ehdr *)good)->e_phoff = UINT64_MAX - 8;
    refused(root, put(so, good, n), "cut short", "");
    free(good);
    refused(root, fixture("absent"), "does not exist", "");
    assert_int_equal(unlink(so), 0);
    assert_int_equal(mkfifo(so, 0644), 0);
    refused(root, so, "not a regular file", "");
    refused(root, "unheard_of", "module unheard_of.so is nowhere", root);
}

/* A module cut at any length must be refused, not mapped: touching its missing part would end the process. */
static void cut_modules_are_refused(void **state)
{
    const char *root = *state, *so = path_of("%s/cut.so", root);
    size_t n;
    char *good = slurp(fixture("good"), &n);
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)good;
    const Elf64_Phdr *p = (const Elf64_Phdr *)(good + h->e_phoff);
    size_t needed = 0;

    for (int i = 0; i < h->e_phnum; i++)
        if (p[i].p_type == PT_LOAD && p[i].p_offset + p[i].p_filesz > needed) needed = p[i].p_offset + p[i].p_filesz;
    for (size_t cut = 1; cut < needed; cut += needed / 37 + 1) refused(root, put(so, good, cut), "this module is", "");
    refused(root, put(so, good, needed - 1), "cut short", "");
    free(good);
}

static void world_writable_modules(void **state)
{
    const char *root = *state, *so = path_of("%s/own.so", root);
    size_t n;
    char *good = slurp(fixture("good"), &n);
    st_registry *r;
    const st_plugin *p;
    st_error e;

    chmod(put(so, good, n), 0777);
    refused(root, so, "world-writable", "");
    chmod(so, 0644);
    assert_int_equal(open_one(root, so, &p, &r, &e), ST_OK);
    st_registry_close(r);
    const char *open_dir = make_dir(root, "open");
    put(path_of("%s/own.so", open_dir), good, n);
    chmod(open_dir, 0777);
    refused(root, path_of("%s/own.so", open_dir), "world-writable", "");
    free(good);
}

static void equal_global_names_do_not_meet(void **state)
{
    st_registry *r = open_only("", &diags);
    const st_plugin *p[2];
    st_error e = {0};
    st_layer_ops ops[2];

    for (int i = 0; i < 2; i++) {
        assert_int_equal(st_module_open_file(r, fixture(i ? "twin2" : "twin1"), &p[i], &e), ST_OK);
        st_ops_copy(p[i], &ops[i], sizeof ops[i]);
    }
    assert_int_equal(ops[0].configure(NULL, NULL), 11);
    assert_int_equal(ops[1].configure(NULL, NULL), 22);
    st_registry_close(r);
}

static void smaller_structs_read_as_zero(void **state)
{
    st_registry *r = open_only("", &diags);
    const st_plugin *p;
    st_error e = {0};
    struct {
        st_layer_ops ops;
        char later[64];
    } wide;

    assert_int_equal(st_module_open_file(r, fixture("small"), &p, &e), ST_OK);
    memset(&wide, 0xff, sizeof wide);
    st_ops_copy(p, &wide, sizeof wide);
    assert_non_null(wide.ops.backward);
    assert_null(wide.ops.finish_step);
    for (size_t i = 0; i < sizeof wide.later; i++) assert_int_equal(wide.later[i], 0);
    st_registry_close(r);
}

static void kernels_must_match(void **state)
{
    const char *root = *state;
    st_error e = {0};
    const st_plugin *p;
    const st_kernels *k;

    manifest(path_of("%s/x.ini", root), "layer", "fixture", fixture("good"),
             path_of("[backend.cpu]\nmodule = %s\n[backend.old]\nmodule = %s\n[backend.none]\nmodule = not-there\n",
                     fixture("kernels"), fixture("kernels_old")));
    st_registry *r = open_only(root, &diags);
    const st_manifest *m = st_registry_find(r, ST_KIND_LAYER, "fixture");
    assert_int_equal(st_module_open(r, m, &p, &e), ST_OK);
    assert_int_equal(st_kernels_open(r, m, p, "cpu", &k, &e), ST_OK);
    assert_int_equal(*(const int *)k->table, 42);
    assert_int_equal(st_kernels_open(r, m, p, "old", &k, &e), ST_E_ABI);
    assert_has(e.detail, "table_size: kernels 99, plugin 4");
    assert_has(e.detail, "version: module '0.0', plugin '0.1'");
    assert_has(e.detail, "backend: module 'cpu', manifest 'old'");
    memset(&e, 0, sizeof e);
    assert_int_equal(st_kernels_open(r, m, p, "none", &k, &e), ST_E_NOTFOUND);
    assert_has(e.message, "not-there.so");
    memset(&e, 0, sizeof e);
    assert_int_equal(st_kernels_open(r, m, p, "cuda", &k, &e), ST_E_UNSUPPORTED);
    assert_has(e.message, "no kernels for backend cuda");
    assert_has(e.detail, "cpu");
    st_registry_close(r);
}

struct fixture_self {
    int64_t width;
    double rate;
    const char *note;
    int32_t mode;
};

static int create(st_registry *r, const char *text, const char *name, const char *section, st_instance *i,
                  st_spec **spec)
{
    memset(&diags, 0, sizeof diags);
    assert_int_equal(st_spec_parse("run.ini", text, strlen(text), ".", spec, &diags), ST_OK);
    return st_instance_create(r, *spec, ST_KIND_LAYER, name, section, i, &diags);
}

static int kernels_on(st_registry *r, st_instance *i, const st_kernels *of_backend, int ordinal, st_error *e)
{
    const st_kernels_for f = {.backend = "cpu", .kernels = of_backend, .ordinal = ordinal};
    return st_instance_kernels(r, i, &f, e);
}

static void instances_are_bound(void **state)
{
    const char *root = *state;
    st_instance i;
    st_spec *spec;
    st_error e = {0};

    manifest(path_of("%s/x.ini", root), "layer", "fixture", fixture("good"),
             path_of("symbol = X\n[backend.cpu]\nmodule = %s\n", fixture("kernels")));
    manifest(path_of("%s/y.ini", root), "position", "elsewhere", "y", "");
    manifest(path_of("%s/z.ini", root), "layer", "broken", fixture("newer"), "");
    st_registry *r = open_only(root, &diags);
    assert_int_equal(create(r, "[layer.X]\nwidth = 16\nnote = hello\nmode = hard\n", "fixture", "layer.X", &i, &spec),
                     ST_OK);
    const struct fixture_self *self = i.self;
    assert_int_equal(self->width, 16);
    assert_true(self->rate == 0.5);
    assert_string_equal(self->note, "hello");
    assert_int_equal(self->mode, 1);
    assert_int_equal(i.symbol, 'X');
    assert_int_equal(st_spec_check_unused(spec, &diags), ST_OK);
    assert_int_equal(kernels_on(r, &i, NULL, 0, &e), ST_OK);
    assert_int_equal(*(const int *)i.kernels, 42);
    st_spec_destroy(spec);

    assert_int_equal(create(r, "[layer.x]\nplugin = fixture\n", NULL, "layer.x", &i, &spec), ST_OK);
    assert_int_equal(((const struct fixture_self *)i.self)->width, 8);
    st_spec_destroy(spec);

    const struct {
        const char *text, *word, *hint;
        int line;
    } wrong[] = {
        {"[layer.X]\nplugin = fixtur\n", "no layer plugin fixtur", "fixture", 2},
        {"[layer.X]\nplugin = elsewhere\n", "is of kind position, not layer", "", 2},
        {"[layer.X]\nwidth = 9\n", "no key plugin", "fixture", 1},
        {"[layer.X]\nplugin = fixture\nwidth = 65\n", "65", "", 3},
        {"[layer.X]\nplugin = broken\n", "[layer.X]: this module is built for plugin ABI 1.7", "", 0},
    };
    for (size_t k = 0; k < ST_COUNT(wrong); k++) {
        assert_int_not_equal(create(r, wrong[k].text, NULL, "layer.X", &i, &spec), ST_OK);
        assert_int_equal(diags.errors, 1);
        assert_has(diags.item[0].error.message, wrong[k].word);
        assert_has(diags.item[0].error.hint, wrong[k].hint);
        assert_int_equal(diags.item[0].error.line, wrong[k].line);
        st_spec_destroy(spec);
    }
    st_registry_close(r);
}

/* Two instances, one device: one start. Another device: another. */
static void kernels_start_once_per_device(void **state)
{
    const char *root = *state;
    st_instance i, j;
    st_spec *spec, *other;
    st_error e = {0};

    manifest(path_of("%s/x.ini", root), "layer", "fixture", fixture("good"),
             path_of("[backend.cpu]\nmodule = %s\n", fixture("kernels_count")));
    st_registry *r = open_only(root, &diags);
    assert_int_equal(create(r, "[layer.X]\nwidth = 16\n", "fixture", "layer.X", &i, &spec), ST_OK);
    assert_int_equal(create(r, "[layer.Y]\nwidth = 16\n", "fixture", "layer.Y", &j, &other), ST_OK);
    assert_int_equal(kernels_on(r, &i, NULL, 0, &e), ST_OK);
    assert_int_equal(kernels_on(r, &j, NULL, 0, &e), ST_OK);
    assert_int_equal(*(const int *)i.kernels, 43);
    assert_int_equal(kernels_on(r, &j, NULL, 1, &e), ST_OK);
    assert_int_equal(*(const int *)i.kernels, 44);
    assert_int_equal(kernels_on(r, &j, NULL, 64, &e), ST_E_INTERNAL);
    st_spec_destroy(spec);
    st_spec_destroy(other);
    st_registry_close(r);
}

static void kernels_that_do_not_start(void **state)
{
    const char *root = *state;
    const st_plugin *p;
    const st_kernels *k;
    st_error e = {0};

    manifest(path_of("%s/x.ini", root), "layer", "fixture", fixture("good"),
             path_of("[backend.cpu]\nmodule = %s\n", fixture("kernels_fail")));
    st_registry *r = open_only(root, &diags);
    const st_manifest *m = st_registry_find(r, ST_KIND_LAYER, "fixture");
    assert_int_equal(st_module_open(r, m, &p, &e), ST_OK);
    assert_int_equal(st_kernels_open(r, m, p, "cpu", &k, &e), ST_OK);
    assert_int_equal(st_kernels_start(r, k, NULL, 3, &e), ST_E_DEVICE);
    assert_has(e.message, "kernels of plugin fixture did not start on device 3 of backend cpu");
    assert_has(e.file, "fix_kernels_fail.so");
    st_registry_close(r);
}

static void toolchains_must_match(void **state)
{
    const struct {
        const char *backend;
        int rc;
    } with[] = {{"cuda 13.0", ST_OK}, {"cuda 13", ST_OK}, {"cuda 12.4", ST_E_ABI}, {"cuda 1", ST_E_ABI},
                {"hip 13.0", ST_E_ABI}, {"", ST_E_ABI}, {NULL, ST_E_ABI}};
    const char *root = *state;
    st_instance i;
    st_spec *spec;

    manifest(path_of("%s/x.ini", root), "layer", "fixture", fixture("good"),
             path_of("[backend.cpu]\nmodule = %s\n", fixture("kernels_cuda")));
    st_registry *r = open_only(root, &diags);
    assert_int_equal(create(r, "[layer.X]\nwidth = 16\n", "fixture", "layer.X", &i, &spec), ST_OK);
    for (size_t n = 0; n < ST_COUNT(with); n++) {
        st_kernels backend = {.toolchain = with[n].backend};
        st_error e = {0};
        assert_int_equal(kernels_on(r, &i, &backend, 0, &e), with[n].rc);
        if (with[n].rc == ST_OK) continue;
        assert_has(e.message, "does not fit the kernels of backend cpu");
        assert_has(e.detail, path_of("module 'cuda 13.1', backend '%s'", with[n].backend ? with[n].backend : ""));
        assert_has(e.hint, "one major version");
    }
    st_spec_destroy(spec);
    st_registry_close(r);
}

/* A device that runs what was built for sm_90a. */
static int accepts_hopper(const void *self, const st_host *host, int ordinal, const char *archs, st_error *e)
{
    assert_int_equal(*(const int *)self, 5);
    return strstr(archs, "sm_90a") ? ST_OK : st_fail(e, ST_E_ABI, "built for %s, device %d is Hopper", archs, ordinal);
}

/* The backend is asked before anything of the module runs, and its words get the module's path. */
static void a_device_accepts_what_it_runs(void **state)
{
    const struct {
        const char *module;
        int rc;
    } with[] = {{"kernels_hopper", ST_OK}, {"kernels_ampere", ST_E_ABI}};
    const st_backend_ops ops = {.size = sizeof ops, .accepts = accepts_hopper}, silent = {.size = sizeof silent};
    const char *root = *state;
    const int self = 5;

    for (size_t n = 0; n < ST_COUNT(with); n++) {
        st_instance i;
        st_spec *spec;
        st_error e = {0};
        st_kernels_for f = {.backend = "cpu", .ops = &ops, .self = &self};
        manifest(path_of("%s/x.ini", root), "layer", "fixture", fixture("good"),
                 path_of("[backend.cpu]\nmodule = %s\n", fixture(with[n].module)));
        st_registry *r = open_only(root, &diags);
        assert_int_equal(create(r, "[layer.X]\nwidth = 16\n", "fixture", "layer.X", &i, &spec), ST_OK);
        assert_int_equal(st_instance_kernels(r, &i, &f, &e), with[n].rc);
        if (with[n].rc != ST_OK) {
            assert_null(i.kernels);
            assert_string_equal(e.message, "built for sm_80,compute_80, device 0 is Hopper");
            assert_has(e.file, "fix_kernels_ampere.so");
            f.ops = &silent; /* a backend that does not say takes all */
            assert_int_equal(st_instance_kernels(r, &i, &f, &e), ST_OK);
        }
        assert_non_null(i.kernels);
        st_spec_destroy(spec);
        st_registry_close(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(good_module_opens_once, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(descriptors_that_do_not_fit, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(manifest_must_tell_the_truth, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(files_that_are_no_modules, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(cut_modules_are_refused, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(world_writable_modules, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(equal_global_names_do_not_meet, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(smaller_structs_read_as_zero, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(kernels_must_match, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(kernels_start_once_per_device, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(kernels_that_do_not_start, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(toolchains_must_match, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(a_device_accepts_what_it_runs, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(instances_are_bound, tree_make, tree_remove),
    };
    return cmocka_run_group_tests_name("modules", tests, NULL, NULL);
}
