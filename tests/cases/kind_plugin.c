/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/kind_plugin.c - files that are no plugins: refused with the path and the loader's words, and the plugins
 * beside them stay usable. Sources are compiled first. */
#include "config.h"

#include "cases.h"
#include <sys/stat.h>
#include <unistd.h>

typedef struct plugin_row {
    const char *file, *text;
    int32_t n_text;
    const char *refused, *detail; /* detail: the loader's own words, or the missing name */
} plugin_row;
#define BYTES(text) text, sizeof(text) - 1
static const plugin_row rows[] = {
    {"plugin/empty.so", BYTES(""), "empty", "loader says: "},
    {"plugin/text.so", BYTES("not a library\n"), "not a shared object", "loader says: "},
    {"plugin/ldscript.so", BYTES("INPUT(/lib/libc.so.6)\n"), "not a shared object", "loader says: "},
    {"plugin/wrong_machine.so",
     BYTES("\x7f"
           "ELF\2\1\1\0\0\0\0\0\0\0\0\0\3\0\xb7\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
           "\0\0\0\0\0\0\0\0\0\0\0\0"),
     "another processor", "loader says: "},
    {"plugin/cut_elf.so",
     BYTES("\x7f"
           "ELF\2\1\1\0\0\0\0\0\0\0\0\0\3\0\x3e\0\1\0\0\0\0\0\0\0\0\0"),
     "cut short", "loader says: "},
    {"plugin/no_entry.c", BYTES("int something_else(void) { return 0; }\n"), "no function st_plugin_v1", ""},
    {"plugin/undefined.c",
     BYTES("extern int not_there_anywhere(void);\nint who(void) { return not_there_anywhere(); }\n"),
     "cannot be loaded", "not_there_anywhere"},
};

static void make(const cases *c, const void *row)
{
    const plugin_row *r = row;
    case_put(c, r->file, r->text, (size_t)r->n_text);
}

static const char *module_of(const cases *c, const char *file, const char *folder)
{
    const char *out = st_arena_printf(c->arena, "%s/case.so", folder), *cc = getenv("ST_CC");
    size_t n;

    if (strcmp(file + strlen(file) - 2, ".c") != 0) {
        char *data = case_read(c, file, &n);
        return case_write(c, folder, "case.so", data,
                          n); /* a folder that others may write to would be another reason */
    }
    const char *command =
        st_arena_printf(c->arena, "%s -shared -fPIC '%s' -o '%s'", cc ? cc : "cc", case_path(c, file), out);
    if (system(command) != 0) fail_msg("it does not compile: %s", command);
    return out;
}

static void check(const cases *c, const void *row)
{
    const plugin_row *r = row;
    const char *folder = case_folder(c), *module = module_of(c, r->file, folder);
    const st_plugin *p = NULL;
    const st_search search = {.given = &folder, .n_given = 1};
    st_registry *registry;
    st_diags d = {0};
    st_error e = {0};
    const char *manifest = st_arena_printf(c->arena,
                                           "[manifest]\nformat = 1\n[plugin]\nname = broken\nkind = layer\nsymbol = Y\n"
                                           "module = %s\nabi = 1\nversion = 0.1\n",
                                           module);

    chmod(folder, 0755);
    chmod(module, 0644);
    case_write(c, folder, "broken.ini", manifest, strlen(manifest));
    if (st_registry_open(NULL, &search, &registry, &d) != ST_OK) fail_msg("%s", d.item[0].error.message);
    const st_manifest *m = st_registry_find(registry, ST_KIND_LAYER, "broken");
    if (!m) fail_msg("the manifest is not taken");
    if (st_module_open(registry, m, &p, &e) == ST_OK) fail_msg("it was loaded");
    case_refused(&e, module, r->refused);
    if (!case_has(e.detail, r->detail) && !case_has(e.message, r->detail))
        fail_msg("'%s' is not in: %s", r->detail, e.detail);
    memset(&e, 0, sizeof e);
    if (st_module_open(registry, st_registry_find(registry, ST_KIND_LAYER, "attention"), &p, &e) != ST_OK)
        fail_msg("another plugin is not usable any more: %s", e.message);
    st_registry_close(registry);
}

const case_kind plugin_kind = CASE_KIND("plugin", rows, make, check);
