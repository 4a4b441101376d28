/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/module.c - opens modules: the file, its entry, the four fields that never change, then everything they vouch
 * for.
 *
 * A descriptor is copied into a struct of the host's own size, so a plugin built against an older minor reads as zero
 * where it knows nothing. Modules are never unloaded: threads and tools that keep addresses into them dislike that. */
#include "config.h"
#include "plugin/private.h"
#include <strata/backend.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* What a descriptor held at minor 0: the least that any module of this major has. */
#define PLUGIN_SIZE_0 (offsetof(st_plugin, faults) + sizeof(((st_plugin *)0)->faults))
#define PARAM_SIZE_0 (offsetof(st_param, size) + sizeof(((st_param *)0)->size))
#define KERNELS_SIZE_0 (offsetof(st_kernels, init) + sizeof(((st_kernels *)0)->init))
#define SELF_SIZE_MAX (16u << 20)
#define PARAMS_MAX 1024u

/* ---- differences ---- */

void st_differ(st_differences *d, const char *fmt, ...)
{
    size_t at = strlen(d->text);
    va_list ap;

    if (d->n++ && at + 2 < sizeof d->text) at += (size_t)snprintf(d->text + at, sizeof d->text - at, "; ");
    va_start(ap, fmt);
    vsnprintf(d->text + at, sizeof d->text - at, fmt, ap);
    va_end(ap);
}

static void differ_number(st_differences *d, const char *field, uint64_t module, uint64_t host)
{
    if (module != host)
        st_differ(d, "%s: module %llu, host %llu", field, (unsigned long long)module, (unsigned long long)host);
}

static void differ_text(st_differences *d, const char *field, const char *module, const char *other_name,
                        const char *other)
{
    if (!module || strcmp(module, other))
        st_differ(d, "%s: module '%.60s', %s '%.60s'", field, module ? module : "(absent)", other_name, other);
}

static int refuse(const st_differences *d, const char *path, st_error *e, const char *hint, const char *fmt, ...)
    ST_PRINTF(5, 6);
static int refuse(const st_differences *d, const char *path, st_error *e, const char *hint, const char *fmt, ...)
{
    char text[400];
    va_list ap;

    if (!d->n) return ST_OK;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    st_fail_at(e, ST_E_ABI, path, 0, 0, "%s", text);
    st_error_detail(e, "%s", d->text);
    st_error_hint(e, "%s", hint);
    return ST_E_ABI;
}

/* ---- the file ---- */

static int no_entry(const char *path, void *handle, const char *symbol, st_error *e)
{
    st_fail_at(e, ST_E_ABI, path, 0, 0, "this module has no function %s", symbol);
    char other[32] = "";
    for (int v = 2; v < 10 && !other[0]; v++) {
        char name[32];
        snprintf(name, sizeof name, "st_plugin_v%d", v);
        if (dlsym(handle, name)) snprintf(other, sizeof other, "%s", name);
    }
    if (other[0]) {
        st_error_detail(e, "it has %s: built for a later ABI than this host's %u", other, ST_ABI_MAJOR);
        st_error_hint(e, "update strata, or build the module for ABI %u", ST_ABI_MAJOR);
    } else if (dlsym(handle, "st_kernels_v1")) {
        st_error_detail(e, "it has st_kernels_v1: a kernel module, not a plugin");
    } else if (dlsym(handle, "st_plugin_v1")) {
        st_error_detail(e, "it has st_plugin_v1: a plugin, not a kernel module");
    } else {
        st_error_hint(e, "a plugin exports it with ST_EXPORT, see strata/plugin.h");
    }
    return ST_E_ABI;
}

static int load_failed(const char *path, const char *odd, st_error *e)
{
    const char *words = dlerror();

    if (odd) st_fail_at(e, ST_E_ABI, path, 0, 0, "this module %s", odd);
    else st_fail_at(e, ST_E_ABI, path, 0, 0, "this module cannot be loaded");
    st_error_detail(e, "the system's loader says: %s", words ? words : "nothing");
    if (!odd) st_error_hint(e, "a name the loader cannot find must come from a library that the module is linked with");
    return ST_E_ABI;
}

/* Opens the file and gives the entry function. */
static int module_entry(st_registry *r, const char *path, const char *symbol, void **entry, st_error *e)
{
    const char *why = st_access_module(r->arena, path), *odd;

    if (why) {
        bool absent = !strcmp(why, "does not exist");
        st_fail_at(e, absent ? ST_E_NOTFOUND : ST_E_CONFIG, path, 0, 0, "this module %s", why);
        if (!absent) st_error_hint(e, "plugins are code: keep them where only trusted users can write");
        return e ? e->code : ST_E_CONFIG;
    }
    ST_TRY(st_elf_check(path, &odd, e));
    dlerror();
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) return load_failed(path, odd, e);
    *entry = dlsym(handle, symbol);
    if (*entry) return ST_OK;
    int rc = no_entry(path, handle, symbol, e);
    dlclose(handle);
    return rc;
}

/* ---- the head: four fields that never change ---- */

static int check_head(const uint32_t head[4], uint32_t magic, size_t least, size_t own, const char *path, st_error *e)
{
    st_differences d = {0};

    if (head[0] != magic) st_differ(&d, "magic: module 0x%08x, host 0x%08x", head[0], magic);
    differ_number(&d, "abi_major", head[1], ST_ABI_MAJOR);
    if (head[2] > ST_ABI_MINOR) differ_number(&d, "abi_minor", head[2], ST_ABI_MINOR);
    if (head[3] < least || (head[3] > own && head[2] <= ST_ABI_MINOR))
        st_differ(&d, "size: module %u, host %zu", head[3], own);
    if (head[0] != magic) return refuse(&d, path, e, "build it from strata's headers", "this module is not strata's");
    return refuse(&d, path, e,
                  head[1] > ST_ABI_MAJOR || head[2] > ST_ABI_MINOR
                      ? "update strata, or build the module against the headers of this host"
                      : "build the module against the headers of this host",
                  "this module is built for plugin ABI %u.%u, this host has %u.%u", head[1], head[2], ST_ABI_MAJOR,
                  ST_ABI_MINOR);
}

static int check_layout(const st_plugin *p, const char *path, st_error *e)
{
    const uint64_t caps = ST_CAP_TRAIN | ST_CAP_TENSOR | ST_CAP_CONTEXT | ST_CAP_EXPERT | ST_CAP_SHIFTABLE |
                          ST_CAP_LINEAR_X | ST_CAP_STREAM;
    st_differences d = {0};

    if (p->kind < ST_KIND_BACKEND || p->kind > ST_KIND_OPTIMIZER)
        st_differ(&d, "kind: module %u, host knows 1 to %d", p->kind, ST_KIND_OPTIMIZER);
    differ_number(&d, "tensor_size", p->tensor_size, sizeof(st_tensor));
    if (p->param_size < PARAM_SIZE_0 || p->param_size > sizeof(st_param))
        differ_number(&d, "param_size", p->param_size, sizeof(st_param));
    if (p->n_params > PARAMS_MAX) st_differ(&d, "n_params: module %u, host at most %u", p->n_params, PARAMS_MAX);
    if (p->self_size > SELF_SIZE_MAX)
        st_differ(&d, "self_size: module %u, host at most %u", p->self_size, SELF_SIZE_MAX);
    if (!p->kernel_iface != !p->kernel_size)
        st_differ(&d, "kernel_iface %u and kernel_size %u: both or neither", p->kernel_iface, p->kernel_size);
    if (p->caps & ~caps)
        st_differ(&d, "caps: module 0x%llx, host knows 0x%llx", (unsigned long long)p->caps, (unsigned long long)caps);
    if (p->needs & ~caps)
        st_differ(&d, "needs: module 0x%llx, host knows 0x%llx", (unsigned long long)p->needs,
                  (unsigned long long)caps);
    return refuse(&d, path, e, "build the module against the headers of this host",
                  "this module's descriptor does not fit this host");
}

/* What the manifest promises is what the module says of itself. */
static int check_promises(const st_plugin *p, const st_manifest *m, st_error *e)
{
    st_differences d = {0};

    differ_text(&d, "kind", st_kind_name((int)p->kind), "manifest", st_kind_name(m->kind));
    differ_text(&d, "name", p->name, "manifest", m->name);
    differ_text(&d, "version", p->version, "manifest", m->version);
    return refuse(&d, m->module, e, "correct the manifest, or put the module that it means in place",
                  "this module is not what the manifest %s says", m->file);
}

/* ---- plugins ---- */

static const loaded *find_loaded(const st_registry *r, const char *path, bool kernels)
{
    for (int32_t i = 0; i < r->n_loaded; i++)
        if (!strcmp(r->loaded[i].path, path) && !r->loaded[i].kernels == !kernels) return &r->loaded[i];
    return NULL;
}

static int remember(st_registry *r, const char *path, const st_plugin *p, const st_kernels *k, st_error *e)
{
    const char *kept = st_arena_strdup(r->arena, path);
    loaded *l = kept ? st_grow(&r->loaded, &r->n_loaded, sizeof *l) : NULL;

    if (!l) return st_fail_at(e, ST_E_NOMEM, path, 0, 0, "no memory to open this module");
    *l = (loaded){.path = kept, .plugin = p, .kernels = k};
    return ST_OK;
}

/* Entries of the module's size, in an array of the host's. */
static int copy_params(st_registry *r, st_plugin *p, const char *path, st_error *e)
{
    st_param *own = ST_NEW_N(r->arena, st_param, p->n_params);

    if (!own) return st_fail_at(e, ST_E_NOMEM, path, 0, 0, "no memory to open this module");
    if (p->n_params && !p->params)
        return st_fail_at(e, ST_E_ABI, path, 0, 0, "this module counts %u parameters, but has no table", p->n_params);
    for (uint32_t i = 0; i < p->n_params; i++)
        memcpy(&own[i], (const char *)p->params + (size_t)i * p->param_size, p->param_size);
    p->params = own;
    p->param_size = (uint32_t)sizeof *own;
    return ST_OK;
}

static int open_plugin(st_registry *r, const char *path, const st_plugin **out, st_error *e)
{
    void *entry = NULL;
    uint32_t head[4];
    st_plugin_fn fn;

    ST_TRY(module_entry(r, path, "st_plugin_v1", &entry, e));
    memcpy(&fn, &entry, sizeof fn);
    const st_plugin *theirs = fn();
    if (!theirs) return st_fail_at(e, ST_E_ABI, path, 0, 0, "this module's st_plugin_v1 gives no descriptor");
    memcpy(head, theirs, sizeof head);
    ST_TRY(check_head(head, ST_MAGIC, PLUGIN_SIZE_0, sizeof *theirs, path, e));
    st_plugin *p = ST_NEW(r->arena, st_plugin);
    if (!p) return st_fail_at(e, ST_E_NOMEM, path, 0, 0, "no memory to open this module");
    memcpy(p, theirs, head[3] < sizeof *p ? head[3] : sizeof *p);
    ST_TRY(check_layout(p, path, e));
    ST_TRY(copy_params(r, p, path, e));
    ST_TRY(st_contract_check(p, path, e));
    ST_TRY(st_contract_params(p, path, e));
    ST_TRY(remember(r, path, p, NULL, e));
    *out = p;
    return ST_OK;
}

int st_module_open_file(st_registry *r, const char *path, const st_plugin **out, st_error *e)
{
    char *whole = realpath(path, NULL); /* a path with '/' is opened as it is and never searched for */
    const loaded *known = whole ? find_loaded(r, whole, false) : NULL;
    int rc = ST_OK;

    *out = known ? known->plugin : NULL;
    if (!whole) {
        st_fail_at(e, ST_E_NOTFOUND, path, 0, 0, "this module does not exist");
        return ST_E_NOTFOUND;
    }
    if (!known) rc = open_plugin(r, whole, out, e);
    free(whole);
    return rc;
}

static int not_found(const st_registry *r, const st_manifest *m, const char *file, st_error *e)
{
    st_buf dirs = {0};

    for (int32_t i = 0; i < r->n_searched; i++)
        if (!r->searched[i].why_not) st_buf_printf(&dirs, "%s%s", dirs.n ? ", " : "", r->searched[i].dir);
    st_fail_at(e, ST_E_NOTFOUND, m->file, 0, 0, "%s %s: its module %s is nowhere", st_kind_name(m->kind), m->name,
               file);
    st_error_detail(e, "looked beside the manifest and in %s", dirs.n ? dirs.data : "no other directory");
    st_error_hint(e, "`strata plugins` shows what is searched and why");
    st_buf_free(&dirs);
    return ST_E_NOTFOUND;
}

int st_module_open(st_registry *r, const st_manifest *m, const st_plugin **out, st_error *e)
{
    *out = NULL;
    if (!strchr(m->module, '/')) return not_found(r, m, m->module, e);
    if (m->abi != (int32_t)ST_ABI_MAJOR) {
        st_fail_at(e, ST_E_ABI, m->file, 0, 0, "%s %s is made for plugin ABI %d, this host has %u",
                   st_kind_name(m->kind), m->name, m->abi, ST_ABI_MAJOR);
        st_error_hint(e, m->abi > (int32_t)ST_ABI_MAJOR ? "update strata" : "get a newer version of the plugin");
        return ST_E_ABI;
    }
    ST_TRY(st_module_open_file(r, m->module, out, e));
    int rc = check_promises(*out, m, e);
    if (rc != ST_OK) *out = NULL;
    return rc;
}

void st_ops_copy(const st_plugin *p, void *out, size_t size) { st_sized_copy(out, size, p->ops); }

/* ---- kernel modules: everything must be equal, since logic and kernels are two halves of one plugin ---- */

static int check_kernels(const st_kernels *k, const st_plugin *p, const char *backend, const char *path, st_error *e)
{
    st_differences d = {0};

    if (k->iface != p->kernel_iface) st_differ(&d, "iface: kernels %u, plugin %u", k->iface, p->kernel_iface);
    if (k->table_size != p->kernel_size)
        st_differ(&d, "table_size: kernels %u, plugin %u", k->table_size, p->kernel_size);
    differ_text(&d, "plugin", k->plugin, "plugin", p->name);
    differ_text(&d, "version", k->version, "plugin", p->version);
    differ_text(&d, "backend", k->backend, "manifest", backend);
    if (!k->table) st_differ(&d, "table: absent");
    return refuse(&d, path, e, "build the plugin and its kernels together",
                  "this kernel module does not belong to plugin %s %s", p->name, p->version);
}

static int open_kernels(st_registry *r, const char *path, const st_plugin *p, const char *backend,
                        const st_kernels **out, st_error *e)
{
    void *entry = NULL;
    uint32_t head[4];
    const st_kernels *(*fn)(void);

    ST_TRY(module_entry(r, path, "st_kernels_v1", &entry, e));
    memcpy(&fn, &entry, sizeof fn);
    const st_kernels *theirs = fn();
    if (!theirs) return st_fail_at(e, ST_E_ABI, path, 0, 0, "this module's st_kernels_v1 gives no table");
    memcpy(head, theirs, sizeof head);
    ST_TRY(check_head(head, ST_KERNEL_MAGIC, KERNELS_SIZE_0, sizeof *theirs, path, e));
    st_kernels *k = ST_NEW(r->arena, st_kernels);
    if (!k) return st_fail_at(e, ST_E_NOMEM, path, 0, 0, "no memory to open this module");
    memcpy(k, theirs, head[3] < sizeof *k ? head[3] : sizeof *k);
    ST_TRY(check_kernels(k, p, backend, path, e));
    ST_TRY(remember(r, path, NULL, k, e));
    *out = k;
    return ST_OK;
}

static int no_backend(const st_manifest *m, const char *backend, st_error *e)
{
    st_buf known = {0};

    for (int32_t i = 0; i < m->n_kernels; i++) st_buf_printf(&known, "%s%s", i ? ", " : "", m->kernels[i].backend);
    st_fail_at(e, ST_E_UNSUPPORTED, m->file, 0, 0, "%s %s has no kernels for backend %s", st_kind_name(m->kind),
               m->name, backend);
    st_error_detail(e, "it has them for: %s", known.n ? known.data : "none");
    if (m->n_kernels) st_error_hint(e, "[run] backend = %s trains with it", m->kernels[0].backend);
    st_buf_free(&known);
    return ST_E_UNSUPPORTED;
}

int st_kernels_open(st_registry *r, const st_manifest *m, const st_plugin *p, const char *backend,
                    const st_kernels **out, st_error *e)
{
    const char *file = NULL;

    *out = NULL;
    if (!p->kernel_size) return ST_OK;
    for (int32_t i = 0; i < m->n_kernels; i++)
        if (!strcmp(m->kernels[i].backend, backend)) file = m->kernels[i].module;
    if (!file) return no_backend(m, backend, e);
    if (!strchr(file, '/')) return not_found(r, m, file, e);
    char *whole = realpath(file, NULL);
    const loaded *known = whole ? find_loaded(r, whole, true) : NULL;
    int rc = ST_OK;
    if (!whole) rc = st_fail_at(e, ST_E_NOTFOUND, file, 0, 0, "this module does not exist");
    else if (!known) rc = open_kernels(r, whole, p, backend, out, e);
    else rc = check_kernels(known->kernels, p, backend, whole, e); /* it was opened for another plugin, perhaps */
    if (known && rc == ST_OK) *out = known->kernels;
    free(whole);
    return rc;
}

int st_kernels_start(st_registry *r, const st_kernels *k, const st_host *host, int ordinal, st_error *e)
{
    loaded *l = NULL;
    int rc;

    for (int32_t i = 0; i < r->n_loaded && !l; i++)
        if (r->loaded[i].kernels == k) l = &r->loaded[i];
    if (!l || ordinal < 0 || ordinal >= 64)
        return st_fail(e, ST_E_INTERNAL, "kernels of %s cannot be started on device %d", k->plugin, ordinal);
    if (l->started >> ordinal & 1) return ST_OK;
    rc = k->init ? k->init(host, ordinal) : ST_OK;
    if (rc != ST_OK)
        return st_fail_at(e, rc, l->path, 0, 0, "kernels of plugin %s did not start on device %d of backend %s (%s)",
                          k->plugin, ordinal, k->backend, st_code_name(rc));
    l->started |= (uint64_t)1 << ordinal;
    return ST_OK;
}

static const char *toolchain_of(const st_kernels *k) { return k && k->toolchain ? k->toolchain : ""; }

int st_kernels_together(const st_kernels *k, const st_kernels *backend, const char *path, st_error *e)
{
    const char *own = toolchain_of(k), *other = toolchain_of(backend);
    size_t n = strcspn(own, ".");

    if (n == strcspn(other, ".") && !strncmp(own, other, n)) return ST_OK;
    st_fail_at(e, ST_E_ABI, path, 0, 0, "this kernel module does not fit the kernels of backend %s", k->backend);
    st_error_detail(e, "toolchain: module '%.60s', backend '%.60s'", own, other);
    st_error_hint(e, "build both with one major version of the toolchain");
    return ST_E_ABI;
}

const char *st_kernels_path(const st_registry *r, const st_kernels *k)
{
    for (int32_t i = 0; i < r->n_loaded; i++)
        if (r->loaded[i].kernels == k) return r->loaded[i].path;
    return "";
}

int st_kernels_accepted(const st_kernels *k, const st_kernels_for *f, const char *path, st_error *e)
{
    int rc;

    if (!f->ops || !f->ops->accepts) return ST_OK;
    rc = f->ops->accepts(f->self, f->host, f->ordinal, k->archs ? k->archs : "", e);
    if (rc == ST_OK || !e) return rc;
    snprintf(e->file, sizeof e->file, "%s", path); /* of what is wrong, not of the backend that found it */
    e->line = 0;
    return rc;
}
