/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/manifest.c - one manifest: an INI file read with the spec's reader, so its mistakes look like a spec's. */
#include "config.h"
#include "plugin/private.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MANIFEST_FORMAT 1

struct manifest_keys {
    int64_t format;
};
struct plugin_keys {
    const char *name, *symbol, *module, *version, *summary;
    int64_t abi;
    int32_t kind;
};
struct kernel_keys {
    const char *module;
};

static const st_param manifest_params[] = {
    ST_INT(struct manifest_keys, format, NULL, 1, 1 << 20, "", ST_PF_REQUIRED, "version of the manifest's own format")};
static const st_param plugin_params[] = {
    ST_STR(struct plugin_keys, name, NULL, ST_PF_REQUIRED, "name of the plugin, as specs write it"),
    ST_CHOICE(struct plugin_keys, kind, NULL, "backend|comm|layer|position|encoder|head|dataset|optimizer",
              ST_PF_REQUIRED, "what it is"),
    ST_STR(struct plugin_keys, symbol, NULL, 0,
           "layers: the character that stands for it in patterns; heads: / when they train what follows it"),
    ST_STR(struct plugin_keys, module, NULL, ST_PF_REQUIRED, "file that holds it; .so is added"),
    ST_INT(struct plugin_keys, abi, NULL, 1, 1 << 20, "", ST_PF_REQUIRED, "major version of the plugin ABI"),
    ST_STR(struct plugin_keys, version, NULL, ST_PF_REQUIRED, "version of the plugin"),
    ST_STR(struct plugin_keys, summary, "", 0, "one line for listings"),
};
static const st_param kernel_params[] = {
    ST_STR(struct kernel_keys, module, NULL, ST_PF_REQUIRED, "kernel module for this backend; .so is added")};

static int bind(st_spec *spec, const char *section, const st_param *params, uint32_t n, void *into, st_diags *diags)
{
    const st_table table = {params, n, (uint32_t)sizeof(st_param), "plugin manifest"};
    return st_spec_bind(spec, section, &table, into, NULL, diags);
}

int st_manifest_key_tables(const st_key_table **out)
{
    static const st_key_table list[] = {
        {"manifest", "Which form the file has; the newest is 1.", manifest_params, ST_COUNT(manifest_params), 0, NULL},
        {"plugin", "What is promised of the module; the module must say the same of itself.", plugin_params,
         ST_COUNT(plugin_params), 0, NULL},
        {"backend.NAME", "Plugins with kernels of their own: where they are for the backend NAME.", kernel_params,
         ST_COUNT(kernel_params), 0, NULL},
    };
    *out = list;
    return (int)ST_COUNT(list);
}

const char *st_plugin_name_refused(const char *name)
{
    const char *s = name;

    if (islower((unsigned char)*s))
        while (islower((unsigned char)*s) || isdigit((unsigned char)*s) || *s == '_') s++;
    return s > name && !*s ? NULL : "a name is a lower-case letter, then lower-case letters, digits and _";
}

/* A symbol must be writable in a pattern and as the name of a section. */
const char *st_symbol_refused(const char *s)
{
    bool good = s[0] && !s[1] && (unsigned char)s[0] > ' ' && (unsigned char)s[0] < 127 &&
                !isdigit((unsigned char)s[0]) && !strchr("/|()[]#;:=,\"'\\", s[0]);
    return good ? NULL
                : "one visible ASCII character that is no digit, bracket, quote, comma, '/', '|', '#', ';', ':' or '='";
}

static int check_plugin(const st_spec *spec, struct plugin_keys *k, st_diags *diags)
{
    int rc = ST_OK;

    if (st_plugin_name_refused(k->name))
        rc = st_spec_fail(spec, diags, st_spec_get(spec, "plugin", "name"), st_plugin_name_refused(k->name),
                          "'%s' is not a plugin name", k->name);
    if (!*k->module)
        rc = st_spec_fail(spec, diags, st_spec_get(spec, "plugin", "module"), NULL, "the module has no name");
    if (k->symbol && k->kind + 1 == ST_KIND_HEAD && !strcmp(k->symbol, "/")) return rc;
    if (k->symbol && st_symbol_refused(k->symbol))
        rc = st_spec_fail(spec, diags, st_spec_get(spec, "plugin", "symbol"), st_symbol_refused(k->symbol),
                          "'%s' cannot be a pattern symbol", k->symbol);
    if (k->symbol && k->kind + 1 != ST_KIND_LAYER)
        rc = st_spec_fail(spec, diags, st_spec_get(spec, "plugin", "symbol"), NULL,
                          "only layers have symbols, and a head may claim '/'; this is of kind %s",
                          st_kind_name(k->kind + 1));
    return rc;
}

/* The module file of a manifest's `module` value: a path, or the file name when it is found nowhere. */
static const char *find_module(const st_registry *r, const char *manifest, const char *name)
{
    size_t n = strlen(name);
    const char *so = n > 3 && !strcmp(name + n - 3, ".so") ? "" : ".so";
    const char *file = st_arena_printf(r->arena, "%s%s", name, so), *beside = st_path_dir(r->arena, manifest), *path;

    if (!file || !beside) return NULL;
    if (strchr(file, '/')) return st_path_join(r->arena, beside, file);
    path = st_path_join(r->arena, beside, file);
    if (path && st_path_exists(path)) return path;
    for (int32_t i = 0; i < r->n_searched; i++) {
        if (r->searched[i].why_not) continue;
        path = st_path_join(r->arena, r->searched[i].dir, file);
        if (path && st_path_exists(path)) return path;
    }
    return file;
}

static int read_kernels(st_registry *r, st_spec *spec, const char *path, st_manifest *m, st_diags *diags)
{
    const char *const *sections;
    int n = st_spec_sections(spec, &sections), rc = ST_OK;

    for (int i = 0; i < n; i++) {
        struct kernel_keys k = {0};
        if (strncmp(sections[i], "backend.", 8)) continue;
        if (!sections[i][8] || m->n_kernels == (int)ST_COUNT(m->kernels)) {
            rc = st_spec_fail_section(spec, diags, sections[i], NULL,
                                      "[%s]: a manifest names at most %d backends, each by name", sections[i],
                                      (int)ST_COUNT(m->kernels));
            continue;
        }
        int bound = bind(spec, sections[i], kernel_params, ST_COUNT(kernel_params), &k, diags);
        if (bound != ST_OK) rc = bound;
        else {
            m->kernels[m->n_kernels].backend = st_arena_strdup(r->arena, sections[i] + 8);
            m->kernels[m->n_kernels].module = find_module(r, path, k.module);
            m->n_kernels++;
        }
    }
    return rc;
}

static int fill(st_registry *r, const struct plugin_keys *k, const char *path, const char *dir, st_manifest *m)
{
    m->name = st_arena_strdup(r->arena, k->name);
    m->summary = st_arena_strdup(r->arena, k->summary);
    m->version = st_arena_strdup(r->arena, k->version);
    m->file = st_arena_strdup(r->arena, path);
    m->dir = dir;
    m->kind = k->kind + 1;
    m->abi = (int32_t)k->abi;
    m->symbol = k->symbol ? k->symbol[0] : 0;
    m->module = find_module(r, path, k->module);
    m->wins = 1;
    return m->name && m->summary && m->version && m->file && m->module ? ST_OK : ST_E_NOMEM;
}

/* A newer format may know keys that this host does not: those are only told. */
static int check_keys(st_spec *spec, int64_t format, st_diags *diags)
{
    if (format <= MANIFEST_FORMAT) return st_spec_check_unused(spec, diags);
    st_error e = {0};
    st_fail_at(&e, ST_E_CONFIG, st_spec_path(spec), 0, 0,
               "manifest format %lld is newer than %d, the newest known: "
               "keys that this host does not know are ignored",
               (long long)format, MANIFEST_FORMAT);
    st_diags_add(diags, &e, NULL, true);
    return ST_OK;
}

static int read_spec(st_registry *r, st_spec *spec, const char *path, const char *dir, st_manifest **out,
                     st_diags *diags)
{
    struct manifest_keys head = {0};
    struct plugin_keys keys = {0};
    int errors = diags->errors;

    if (!st_spec_has(spec, "manifest") && !st_spec_has(spec, "plugin"))
        return ST_OK; /* a spec, say, that lies there too */
    bind(spec, "manifest", manifest_params, ST_COUNT(manifest_params), &head, diags);
    bind(spec, "plugin", plugin_params, ST_COUNT(plugin_params), &keys, diags);
    if (diags->errors == errors) check_plugin(spec, &keys, diags);
    st_manifest *m = ST_NEW(r->arena, st_manifest);
    if (!m) return ST_E_NOMEM;
    read_kernels(r, spec, path, m, diags);
    if (diags->errors == errors) check_keys(spec, head.format, diags);
    if (diags->errors > errors) return ST_E_CONFIG;
    ST_TRY(fill(r, &keys, path, dir, m));
    *out = m;
    return ST_OK;
}

int st_manifest_read(st_registry *r, const char *path, const char *dir, st_manifest **out, st_diags *diags)
{
    st_spec *spec = NULL;
    int rc = st_spec_load(path, NULL, 0, &spec, diags);

    *out = NULL;
    if (rc == ST_OK) rc = read_spec(r, spec, path, dir, out, diags);
    st_spec_destroy(spec);
    return rc;
}
