/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/instance.c - a section of the spec becomes an instance: plugin chosen, memory zeroed, parameters written
 * into it. */
#include "config.h"
#include "plugin/private.h"
#include <string.h>

static void list_names(const st_registry *r, int kind, st_buf *out)
{
    for (int32_t i = 0; i < r->n_list; i++)
        if (r->list[i]->wins && r->list[i]->kind == kind)
            st_buf_printf(out, "%s%s", out->n ? ", " : "", r->list[i]->name);
}

static const char *nearest_name(const st_registry *r, int kind, const char *name, st_arena *arena)
{
    const char **names = ST_NEW_N(arena, const char *, r->n_list + 1);
    int n = 0;

    for (int32_t i = 0; names && i < r->n_list; i++)
        if (r->list[i]->kind == kind) names[n++] = r->list[i]->name;
    return names ? st_nearest(name, names, n) : NULL;
}

/* The key of a section that names its plugin; NULL: it is not given. */
static const st_value *choice(const st_spec *spec, int kind, const char *section)
{
    const st_value *v = st_spec_get(spec, section, kind == ST_KIND_BACKEND ? "backend" : "plugin");

    return v && v->origin != ST_FROM_DEFAULT ? v : NULL;
}

static int refuse(const st_registry *r, st_spec *spec, int kind, const char *section, const char *hint, st_diags *diags,
                  const char *fmt, ...) ST_PRINTF(7, 8);
static int refuse(const st_registry *r, st_spec *spec, int kind, const char *section, const char *hint, st_diags *diags,
                  const char *fmt, ...)
{
    const st_value *at = choice(spec, kind, section);
    char text[256];
    st_buf known = {0}, whole = {0};
    va_list ap;
    int rc;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    list_names(r, kind, &known);
    if (hint) st_buf_puts(&whole, hint);
    else st_buf_printf(&whole, "known: %s", known.n ? known.data : "none");
    st_registry_left_out(r, &whole);
    if (at) rc = st_spec_fail(spec, diags, at, whole.data, "[%s] %s", section, text);
    else rc = st_spec_fail_section(spec, diags, section, whole.data, "[%s] %s", section, text);
    st_buf_free(&known);
    st_buf_free(&whole);
    return rc;
}

static int unknown(const st_registry *r, st_spec *spec, int kind, const char *name, const char *section,
                   st_diags *diags)
{
    const char *nearest = nearest_name(r, kind, name, st_spec_arena(spec)), *other = NULL;
    char hint[256];

    for (int k = ST_KIND_BACKEND; k <= ST_KIND_OPTIMIZER && !other; k++)
        if (st_registry_find(r, k, name)) other = st_kind_name(k);
    if (kind == ST_KIND_BACKEND && !strcmp(name, "gpu") && st_registry_find(r, kind, "cuda")) nearest = "cuda";
    snprintf(hint, sizeof hint, "did you mean %s?", nearest ? nearest : "");
    return other ? refuse(r, spec, kind, section, nearest ? hint : NULL, diags, "plugin %s is of kind %s, not %s", name,
                          other, st_kind_name(kind))
                 : refuse(r, spec, kind, section, nearest ? hint : NULL, diags, "there is no %s plugin %s",
                          st_kind_name(kind), name);
}

/* A module that cannot be used is told where the spec asks for it, with the module's own story below. */
static int module_failed(const st_spec *spec, const char *section, const st_error *e, st_diags *diags)
{
    st_error told = *e;

    st_error_context(&told, "[%s]", section);
    return st_diags_add(diags, &told, NULL, false);
}

int st_instance_create(st_registry *r, st_spec *spec, int kind, const char *name, const char *section, st_instance *out,
                       st_diags *diags)
{
    static const char *const extra[] = {"plugin", NULL};
    st_error e = {0};

    memset(out, 0, sizeof *out);
    if (!name) {
        const st_value *v = st_spec_get(spec, section, "plugin");
        if (!v) return refuse(r, spec, kind, section, NULL, diags, "has no key plugin");
        name = v->text;
    }
    if (!*name) return refuse(r, spec, kind, section, NULL, diags, "no %s plugin is named", st_kind_name(kind));
    out->manifest = st_registry_find(r, kind, name);
    if (!out->manifest) return unknown(r, spec, kind, name, section, diags);
    if (st_module_open(r, out->manifest, &out->plugin, &e) != ST_OK) return module_failed(spec, section, &e, diags);
    out->section = st_arena_strdup(st_spec_arena(spec), section);
    out->self = st_arena_alloc(st_spec_arena(spec), out->plugin->self_size);
    const char *owner = st_arena_printf(st_spec_arena(spec), "plugin %s %s", out->plugin->name, out->plugin->version);
    if (!out->section || !out->self || !owner) {
        st_fail(&e, ST_E_NOMEM, "no memory for an instance of %s", name);
        return module_failed(spec, section, &e, diags);
    }
    out->symbol = !strncmp(section, "layer.", 6) && section[6] && !section[7] ? section[6] : 0;
    const st_table table = {out->plugin->params, out->plugin->n_params, out->plugin->param_size, owner};
    /* [run] names its plugin by the key backend, one of the host's own */
    return st_spec_bind(spec, section, &table, out->self, kind == ST_KIND_BACKEND ? NULL : extra, diags);
}

int st_instance_kernels(st_registry *r, st_instance *i, const st_kernels_for *f, st_error *e)
{
    const st_kernels *k;

    ST_TRY(st_kernels_open(r, i->manifest, i->plugin, f->backend, &k, e));
    if (!k) return ST_OK;
    ST_TRY(st_kernels_together(k, f->kernels, i->manifest->file, e));
    ST_TRY(st_kernels_accepted(k, f, st_kernels_path(r, k), e));
    ST_TRY(st_kernels_start(r, k, f->host, f->ordinal, e));
    i->kernels = k->table;
    return ST_OK;
}
