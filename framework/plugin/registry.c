/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/registry.c - the list of all plugins: which directories are searched, which manifest wins. */
#include "config.h"
#include "plugin/private.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const kinds[] = {NULL,      "backend", "comm",    "layer",    "position",
                                    "encoder", "head",    "dataset", "optimizer"};

const char *st_kind_name(int kind) { return kind > 0 && kind < (int)ST_COUNT(kinds) ? kinds[kind] : "unknown kind"; }

int st_kind_of(const char *name)
{
    for (int i = 1; i < (int)ST_COUNT(kinds); i++)
        if (!strcmp(name, kinds[i])) return i;
    return 0;
}

void *st_grow(void *array_pointer, int32_t *n, size_t size)
{
    void *array;
    memcpy(&array, array_pointer, sizeof array);
    if ((*n & (*n - 1)) == 0) { /* full at every power of two */
        array = realloc(array, (*n ? 2 * (size_t)*n : 1) * size);
        if (!array) return NULL;
        memcpy(array_pointer, &array, sizeof array);
    }
    return memset((char *)array + (size_t)(*n)++ * size, 0, size);
}

/* ---- directories ---- */

static bool seen(const st_registry *r, const char *dir)
{
    struct stat a, b;

    if (stat(dir, &a)) return false;
    for (int32_t i = 0; i < r->n_searched; i++)
        if (!r->searched[i].why_not && !stat(r->searched[i].dir, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
            return true;
    return false;
}

static int add_directory(st_registry *r, const char *dir, const char *source)
{
    char *whole = realpath(dir, NULL);
    st_searched *s = st_grow(&r->searched, &r->n_searched, sizeof *s);

    if (!s) {
        free(whole);
        return ST_E_NOMEM;
    }
    const char *path = st_arena_strdup(r->arena, whole ? whole : dir);
    free(whole);
    s->why_not = "no memory"; /* not yet searched: `seen` must not find it */
    s->dir = path;
    s->source = source;
    if (!path) return ST_E_NOMEM;
    s->listed = seen(r, path);
    s->why_not = s->listed ? "is listed above" : st_access_directory(r->arena, path);
    return ST_OK;
}

/* Directories of a variable, separated by colons. Relative ones would depend on the current directory. */
static int add_variable(st_registry *r, const char *list, const char *source)
{
    char *text = st_arena_strdup(r->arena, list), *rest = NULL;

    if (!text) return ST_E_NOMEM;
    for (char *dir = strtok_r(text, ":", &rest); dir; dir = strtok_r(NULL, ":", &rest)) {
        if (*dir == '/') {
            ST_TRY(add_directory(r, dir, source));
            continue;
        }
        st_searched *s = st_grow(&r->searched, &r->n_searched, sizeof *s);
        if (!s) return ST_E_NOMEM;
        s->dir = dir;
        s->source = source;
        s->why_not = "is relative: nothing is searched from the current directory";
    }
    return ST_OK;
}

static int add_user(st_registry *r)
{
    const char *data = secure_getenv("XDG_DATA_HOME"), *home = secure_getenv("HOME"), *dir = NULL;

    if (data && *data == '/') dir = st_arena_printf(r->arena, "%s/strata", data);
    else if (home && *home == '/') dir = st_arena_printf(r->arena, "%s/.local/share/strata", home);
    else return ST_OK;
    return dir ? add_directory(r, dir, "user") : ST_E_NOMEM;
}

static int add_own(st_registry *r)
{
    st_places places;

    ST_TRY(st_places_find(r->arena, &places, NULL));
    ST_TRY(add_directory(r, places.registry, places.uninstalled ? "source tree" : "installed"));
    return add_directory(r, places.modules, places.uninstalled ? "build tree" : "installed");
}

/* What a user named, in a command, a spec or the environment. */
static int add_asked(st_registry *r, const st_search *search, const char *only)
{
    const char *more = secure_getenv("STRATA_PLUGIN_PATH");

    for (int32_t i = 0; search && i < search->n_given; i++) ST_TRY(add_directory(r, search->given[i], "--plugin-path"));
    for (int32_t i = 0; search && i < search->n_spec; i++) ST_TRY(add_directory(r, search->spec[i], "spec"));
    if (only) ST_TRY(add_variable(r, only, "STRATA_PLUGIN_PATH_ONLY"));
    else if (more) ST_TRY(add_variable(r, more, "STRATA_PLUGIN_PATH"));
    for (int32_t i = 0; i < r->n_searched; i++) r->searched[i].asked = true;
    return ST_OK;
}

static int add_all(st_registry *r, const st_search *search)
{
    const char *only = secure_getenv("STRATA_PLUGIN_PATH_ONLY");

    ST_TRY(add_asked(r, search, only));
    if (only) return ST_OK;
    ST_TRY(add_user(r));
    return add_own(r);
}

/* ---- manifests ---- */

static int is_manifest_name(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return d->d_name[0] != '.' && n > 4 && !strcmp(d->d_name + n - 4, ".ini");
}

static int by_bytes(const struct dirent **a, const struct dirent **b) /* the same order in every locale */
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void as_warnings(const st_diags *from, bool set_aside, st_diags *to)
{
    for (int i = 0; i < from->n; i++) {
        st_error e = from->item[i].error;
        if (set_aside) st_error_hint(&e, "the plugin of this manifest is set aside");
        st_diags_add(to, &e, from->item[i].line_text[0] ? from->item[i].line_text : NULL, true);
    }
}

static int read_manifest(st_registry *r, st_searched *s, const char *name, st_diags *own, st_diags *diags)
{
    const char *path = st_path_join(r->arena, s->dir, name), *why = path ? st_access_module(r->arena, path) : NULL;
    st_manifest *m = NULL;
    int rc = ST_OK;

    if (!path) return ST_E_NOMEM;
    memset(own, 0, sizeof *own);
    if (why) {
        st_error e = {0};
        rc = st_fail_at(&e, ST_E_CONFIG, path, 0, 0, "this manifest %s", why);
        st_diags_add(own, &e, NULL, false);
    } else {
        rc = st_manifest_read(r, path, s->dir, &m, own);
    }
    as_warnings(own, rc != ST_OK, diags);
    if (rc != ST_OK) {
        s->set_aside++;
        r->set_aside++;
        return rc == ST_E_NOMEM ? rc : ST_OK;
    }
    if (!m) return ST_OK;
    const st_manifest **at = st_grow(&r->list, &r->n_list, sizeof *at);
    if (!at) return ST_E_NOMEM;
    for (int32_t i = 0; i < r->n_list - 1 && m->wins; i++)
        if (r->list[i]->kind == m->kind && !strcmp(r->list[i]->name, m->name)) {
            m->wins = 0;
            m->shadowed_by = r->list[i];
        }
    *at = m;
    s->manifests++;
    return ST_OK;
}

static int read_directory(st_registry *r, st_searched *s, st_diags *own, st_diags *diags)
{
    struct dirent **files;
    int n = scandir(s->dir, &files, is_manifest_name, by_bytes), rc = ST_OK;

    if (n < 0) {
        s->why_not = st_arena_printf(r->arena, "cannot be read: %s", strerror(errno));
        return ST_OK;
    }
    for (int i = 0; i < n; i++) {
        if (rc == ST_OK) rc = read_manifest(r, s, files[i]->d_name, own, diags);
        free(files[i]);
    }
    free(files);
    return rc;
}

/* Directories are all known before the first manifest is read, since modules are looked up in all of them. */
static int read_all(st_registry *r, const st_search *search, st_diags *diags)
{
    st_diags *own = calloc(1, sizeof *own);
    int rc = own ? add_all(r, search) : ST_E_NOMEM;

    for (int32_t i = 0; rc == ST_OK && i < r->n_searched; i++)
        if (!r->searched[i].why_not) rc = read_directory(r, &r->searched[i], own, diags);
    free(own);
    return rc;
}

int st_registry_open(const st_base *base, const st_search *search, st_registry **out, st_diags *diags)
{
    st_registry *r = calloc(1, sizeof *r);
    int rc = ST_E_NOMEM;

    *out = NULL;
    if (r && (r->arena = st_arena_create(0))) {
        r->base = base;
        rc = read_all(r, search, diags);
    }
    if (rc == ST_OK) {
        *out = r;
        return ST_OK;
    }
    st_error e = {0};
    st_fail(&e, rc, "the plugin registry cannot be read: no memory");
    st_registry_close(r);
    return st_diags_add(diags, &e, NULL, false);
}

void st_registry_close(st_registry *r)
{
    if (!r) return;
    free(r->searched);
    free(r->list);
    free(r->loaded);
    st_arena_destroy(r->arena);
    free(r);
}

/* ---- [plugins] of a spec ---- */

struct plugins_keys {
    const char *path;
};
static const st_param plugins_params[] = {
    ST_STR(struct plugins_keys, path, NULL, 0, "directories with manifests and modules, separated by colons")};

static int spec_directories(st_spec *spec, const char ***dirs, int32_t *n, st_diags *diags)
{
    const st_table table = {plugins_params, ST_COUNT(plugins_params), (uint32_t)sizeof(st_param), "plugins"};
    struct plugins_keys keys = {0};
    char *rest = NULL;

    ST_TRY(st_spec_bind(spec, "plugins", &table, &keys, NULL, diags));
    const st_value *v = st_spec_get(spec, "plugins", "path");
    char *text = v ? st_arena_strdup(st_spec_arena(spec), v->text) : NULL;
    if (v) st_spec_mark_paths(spec, v);
    for (char *dir = text ? strtok_r(text, ":", &rest) : NULL; dir; dir = strtok_r(NULL, ":", &rest)) {
        const char **at = st_grow(dirs, n, sizeof *at);
        if (!at || !(*at = st_path_join(st_spec_arena(spec), st_spec_dir_of(v), dir)))
            return st_spec_fail(spec, diags, v, NULL, "no memory for the directories of plugins");
    }
    return ST_OK;
}

int st_registry_open_for(const st_base *base, const char *const *given, int32_t n_given, st_spec *spec,
                         st_registry **out, st_diags *diags)
{
    const char **dirs = NULL;
    int32_t n = 0;
    int rc = spec && st_spec_has(spec, "plugins") ? spec_directories(spec, &dirs, &n, diags) : ST_OK;

    *out = NULL;
    if (rc == ST_OK) {
        const st_search search = {given, n_given, dirs, n};
        rc = st_registry_open(base, &search, out, diags);
    }
    free(dirs);
    return rc;
}

int st_plugin_key_tables(const st_key_table **out)
{
    static const st_key_table list[] = {
        {"plugins", "Where this spec's plugins are, searched before the other places.", plugins_params,
         ST_COUNT(plugins_params), 0, NULL},
    };
    *out = list;
    return (int)ST_COUNT(list);
}

/* ---- asking ---- */

int st_registry_list(const st_registry *r, const st_manifest *const **list)
{
    *list = r->list;
    return r->n_list;
}

int st_registry_searched(const st_registry *r, const st_searched **list)
{
    *list = r->searched;
    return r->n_searched;
}

const st_manifest *st_registry_find(const st_registry *r, int kind, const char *name)
{
    for (int32_t i = 0; i < r->n_list; i++)
        if (r->list[i]->wins && r->list[i]->kind == kind && !strcmp(r->list[i]->name, name)) return r->list[i];
    return NULL;
}

void st_registry_left_out(const st_registry *r, st_buf *out)
{
    for (int32_t i = 0; i < r->n_searched; i++) {
        const st_searched *s = &r->searched[i];
        if (s->why_not && s->asked && !s->listed) st_buf_printf(out, "; %s is not searched: it %s", s->dir, s->why_not);
    }
    if (r->set_aside) st_buf_puts(out, "; some manifests were set aside, see `strata plugins`");
}

static void list_symbols(const st_registry *r, st_error *e)
{
    st_buf known = {0};

    for (int32_t i = 0; i < r->n_list; i++)
        if (r->list[i]->wins && r->list[i]->symbol && r->list[i]->kind == ST_KIND_LAYER)
            st_buf_printf(&known, "%s%c %s", known.n ? ", " : "", r->list[i]->symbol, r->list[i]->name);
    st_error_detail(e, "known: %s", known.n ? known.data : "none");
    st_buf_free(&known);
}

const st_manifest *st_registry_symbol(const st_registry *r, char symbol, st_error *e)
{
    const char text[] = {symbol, 0};
    const st_manifest *found = NULL;
    st_buf left_out = {0};

    for (int32_t i = 0; i < r->n_list; i++) {
        const st_manifest *m = r->list[i];
        if (!m->wins || m->symbol != symbol || !symbol) continue;
        if (found) {
            st_fail(e, ST_E_CONFIG, "two plugins claim the symbol '%c': %s and %s", symbol, found->name, m->name);
            st_error_detail(e, "%s (%s) and %s (%s)", found->name, found->file, m->name, m->file);
            if (symbol == '/') st_error_hint(e, "say which in the spec: [head.%s]", found->name);
            else st_error_hint(e, "say which in the spec: [layer.%c] plugin = %s", symbol, found->name);
            return NULL;
        }
        found = m;
    }
    if (found) return found;
    st_fail(e, ST_E_NOTFOUND, "no plugin claims the symbol '%c'", symbol);
    if (symbol == '/') return NULL;
    list_symbols(r, e);
    if (st_symbol_refused(text)) {
        st_error_hint(e, "%s", st_symbol_refused(text));
        return NULL;
    }
    st_registry_left_out(r, &left_out);
    st_error_hint(e, "[layer.%c] plugin = NAME binds it%s", symbol, left_out.n ? left_out.data : "");
    st_buf_free(&left_out);
    return NULL;
}
