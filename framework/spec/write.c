/* SPDX-License-Identifier: Apache-2.0 */
/* spec/write.c - the resolved spec as text and as a hash, and what two specs say otherwise,
 * keys that are for timing only. */
#include "spec/ini.h"
#include "spec/param.h"
#include "spec/store.h"
#include <stdlib.h>
#include <string.h>

/* ---- all values of a section, by name ---- */

typedef struct line {
    const char *key; /* its present name */
    const st_value *v;
    int32_t is_path;
} line;

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const st_section *const *)a)->name, (*(const st_section *const *)b)->name);
}

static int by_key(const void *a, const void *b) { return strcmp(((const line *)a)->key, ((const line *)b)->key); }

static void add_line(const st_spec *s, const st_section *x, const st_value *v, int32_t is_path, line *l, size_t *n)
{
    const st_param *p = st_spec_param(s, x->name, v->key);
    if (!p || !(p->flags & ST_PF_LOCAL)) l[(*n)++] = (line){p ? p->key : v->key, v, is_path};
}

/* Given values and taken ones, sorted; malloc'd, NULL: no memory. */
static line *lines_of(const st_spec *s, const st_section *x, size_t *n)
{
    line *l = malloc(sizeof *l * ((size_t)x->n_values + (size_t)s->n_taken + 1));
    *n = 0;
    if (!l) return NULL;
    for (int i = 0; i < x->n_values; i++) add_line(s, x, x->value[i], ((const st_entry *)x->value[i])->is_path, l, n);
    for (int i = 0; i < s->n_taken; i++)
        if (!strcmp(s->taken[i].section, x->name)) add_line(s, x, &s->taken[i], 0, l, n);
    qsort(l, *n, sizeof *l, by_key);
    return l;
}

/* ---- text and hash ---- */

static void put_one_path(st_buf *whole, const char *dir, const char *path, size_t n)
{
    char *absolute = n && path[0] != '/' ? realpath(dir, NULL) : NULL;
    if (absolute) st_buf_printf(whole, "%s/", absolute);
    st_buf_add(whole, path, n);
    free(absolute);
}

static void put_paths(st_buf *b, const line *l)
{
    const st_entry *e = (const st_entry *)l->v;
    st_buf whole = {0};
    for (const char *at = e->v.text;;) {
        size_t n = l->is_path == 2 ? strcspn(at, ":") : strlen(at);
        put_one_path(&whole, e->dir, at, n);
        if (!at[n]) break;
        st_buf_puts(&whole, ":");
        at += n + 1;
    }
    if (whole.failed) b->failed = 1;
    else st_ini_put_value(b, whole.data ? whole.data : "");
    st_buf_free(&whole);
}

/* hash of all when `to` is NULL, else the text */
static uint64_t walk_section(const st_spec *s, const st_section *x, st_buf *to, uint64_t h, bool *failed)
{
    size_t n;
    line *l = lines_of(s, x, &n);
    if (!l) *failed = true;
    if (!l || (!x->present && n == 0)) {
        free(l);
        return h;
    }
    h = st_hash64(x->name, strlen(x->name) + 1, h);
    if (to) st_buf_printf(to, "%s[%s]\n", to->n ? "\n" : "", x->name);
    for (size_t i = 0; i < n; i++) {
        h = st_hash64(l[i].key, strlen(l[i].key) + 1, h);
        h = st_hash64(l[i].v->text, strlen(l[i].v->text) + 1, h);
        if (!to) continue;
        st_buf_printf(to, "%s = ", l[i].key);
        if (l[i].is_path) put_paths(to, &l[i]);
        else st_ini_put_value(to, l[i].v->text);
        st_buf_puts(to, "\n");
    }
    free(l);
    return h;
}

static uint64_t walk(const st_spec *s, st_buf *to)
{
    uint64_t h = 0;
    size_t n = (size_t)s->n_sections;
    bool failed = false;
    const st_section **x = malloc(sizeof *x * (n + 1));
    if (x && n) memcpy(x, s->section, sizeof *x * n);
    if (x) qsort(x, n, sizeof *x, by_name);
    for (size_t i = 0; x && i < n; i++) h = walk_section(s, x[i], to, h, &failed);
    if (to && (!x || failed)) to->failed = 1;
    free(x);
    return h;
}

void st_spec_write(const st_spec *s, st_buf *to) { walk(s, to); }

uint64_t st_spec_hash(const st_spec *s) { return walk(s, NULL); }

/* ---- what two specs say otherwise ---- */

/* The text that a value of this parameter would be written as, whatever way it was spelled. */
static bool plain_text(const st_param *p, const char *text, st_buf *out)
{
    union {
        int64_t i;
        double d;
        const char *s;
        st_ints ints;
        st_floats floats;
    } field;
    st_param at_start = *p;
    char why[256], hint[256];
    at_start.offset = 0;
    st_param_unset(&at_start, &field);
    return st_param_set(&at_start, text, &field, why, hint) && st_param_text(&at_start, &field, out) == ST_OK;
}

static bool same(const st_param *p, const char *a, const char *b)
{
    st_buf x = {0}, y = {0};
    if (!a || !b) return a == b;
    bool is = !strcmp(a, b) || (plain_text(p, a, &x) && plain_text(p, b, &y) && !strcmp(x.data, y.data));
    st_buf_free(&x);
    st_buf_free(&y);
    return is;
}

/* Not by what data comes, nor how ranks exchange theirs. */
static bool chooses_model(const char *section, const char *key)
{
    return !strcmp(key, "plugin") && strncmp(section, "dataset.", 8) != 0 && strcmp(section, "parallel") != 0;
}

static int compare_param(const st_spec *now, const st_spec *then, const st_bound *b, st_difference_fn fn, void *ctx)
{
    const st_param *p = &b->param;
    const st_value *v = st_spec_current(now, b->section, p), *old = st_spec_current(then, b->section, p);
    st_difference d = {.section = b->section, .key = p->key, .at = v, .fixed = (p->flags & ST_PF_FIXED) != 0};
    d.before = old ? old->text : p->def;
    d.now = v ? v->text : NULL;
    if (p->type == ST_P_PATH || (p->flags & (ST_PF_LOCAL | ST_PF_OBSOLETE)) || same(p, d.before, d.now)) return ST_OK;
    return fn(ctx, &d);
}

/* Values that no table knows: which plugin, and keys that are names themselves. */
static int compare_free(const st_spec *now, const st_spec *then, const char *section, const char *key,
                        st_difference_fn fn, void *ctx)
{
    const st_param name = {.key = key};
    if (st_spec_param(now, section, key)) return ST_OK;
    const st_value *v = st_spec_current(now, section, &name), *old = st_spec_current(then, section, &name);
    st_difference d = {.section = section, .key = key, .at = v, .fixed = chooses_model(section, key)};
    d.before = old ? old->text : NULL;
    d.now = v ? v->text : NULL;
    if (d.before && d.now && !strcmp(d.before, d.now)) return ST_OK;
    return fn(ctx, &d);
}

static int compare_given(const st_spec *now, const st_spec *then, const st_spec *of, st_difference_fn fn, void *ctx)
{
    for (int i = 0; i < of->n_sections; i++)
        for (int k = 0; k < of->section[i]->n_values; k++) {
            const st_value *v = of->section[i]->value[k];
            if (of == then && st_spec_find(now, v->section, v->key)) continue; /* had its turn */
            ST_TRY(compare_free(now, then, v->section, v->key, fn, ctx));
        }
    return ST_OK;
}

int st_spec_compare(const st_spec *now, const st_spec *then, st_difference_fn fn, void *ctx)
{
    ST_TRY(compare_given(now, then, now, fn, ctx));
    ST_TRY(compare_given(now, then, then, fn, ctx));
    for (int i = 0; i < now->n_bound; i++) ST_TRY(compare_param(now, then, &now->bound[i], fn, ctx));
    return ST_OK;
}

/* ---- what makes a run one for timing only ---- */

void st_spec_timing(const st_spec *s, st_buf *to)
{
    for (int i = 0; i < s->n_bound; i++) {
        const st_bound *b = &s->bound[i];
        const st_value *v = b->param.flags & ST_PF_TIMING ? st_spec_current(s, b->section, &b->param) : NULL;
        if (v && !same(&b->param, b->param.def, v->text))
            st_buf_printf(to, "%s[%s] %s = %s", to->n ? ", " : "", b->section, b->param.key, v->text);
    }
}
