/* SPDX-License-Identifier: Apache-2.0 */
/* spec/bind.c - a section of the spec into a struct, by the struct's parameter table. */
#include "spec/param.h"
#include "spec/store.h"
#include <string.h>

typedef struct binding {
    st_spec *spec;
    st_diags *diags;
    const char *section, *owner;
    void *instance;
    int first_code;
} binding;

static void note(binding *b, int code)
{
    if (b->first_code == ST_OK) b->first_code = code;
}

static void warn(binding *b, const st_value *v, const char *hint, const char *fmt, ...) ST_PRINTF(4, 5);
static void warn(binding *b, const st_value *v, const char *hint, const char *fmt, ...)
{
    const st_place at = {v->file, v->line, ((const st_entry *)v)->key_column, v->line_text};
    va_list ap;
    va_start(ap, fmt);
    st_diags_vfail(b->diags, &at, true, hint, fmt, ap);
    va_end(ap);
}

/* A wrong table or default is not the user's fault. */
static void owner_bug(binding *b, const st_param *p, const char *what)
{
    st_error e = {0};
    note(b, st_fail(&e, ST_E_INTERNAL, "%s: parameter \"%s\": %s", b->owner ? b->owner : b->section, p->key ? p->key : "?", what));
    st_diags_add(b->diags, &e, NULL, false);
}

/* The value for a parameter: its key, its former key, or the same key of [stack]. */
static const st_value *value_for(binding *b, const st_param *p)
{
    const st_value *v = st_spec_get(b->spec, b->section, p->key), *old = NULL;
    const st_entry *e = p->alias ? st_spec_find(b->spec, b->section, p->alias) : NULL;
    if (e) old = st_spec_get(b->spec, b->section, p->alias); /* hints shall not offer a former name that nobody wrote */
    if (v && old)
        note(b, st_spec_fail(b->spec, b->diags, old, "remove it",
                             "\"%s\" is the former name of \"%s\", which is set as well", p->alias, p->key));
    else if (old)
        warn(b, old, NULL, "\"%s\" is now called \"%s\"", p->alias, p->key);
    if (!v) v = old;
    if (v || !(p->flags & ST_PF_SHARED)) return v;
    v = st_spec_get(b->spec, "stack", p->key);
    if (v) st_spec_take(b->spec, b->section, p->key, v->text, v);
    return v;
}

static void set_from_value(binding *b, const st_param *p, const st_value *v)
{
    char why[256], hint[256];
    const char *text = v->text;
    if (p->flags & ST_PF_OBSOLETE) {
        note(b, st_spec_fail(b->spec, b->diags, v, p->help, "[%s] %s is no longer used", v->section, v->key));
        return;
    }
    if (p->flags & ST_PF_DEPRECATED) warn(b, v, p->help, "[%s] %s is going to be removed", v->section, v->key);
    if (p->type == ST_P_PATH && !text[0]) { /* none, whatever an included file says */
        if (p->flags & ST_PF_REQUIRED)
            note(b, st_spec_fail(b->spec, b->diags, v, p->help, "[%s] %s is empty, a path is needed", b->section,
                                 v->key));
        return;
    }
    if (p->type == ST_P_PATH) {
        ((st_entry *)v)->is_path = 1;
        text = st_spec_file_of(b->spec, v, st_spec_arena(b->spec));
        if (!text) {
            note(b, st_spec_fail(b->spec, b->diags, v, "", "no memory for a path"));
            return;
        }
    }
    if (st_param_set(p, text, b->instance, why, hint)) return;
    if (!hint[0] && p->help && p->help[0]) snprintf(hint, sizeof hint, "%s: %s", v->key, p->help);
    note(b, st_spec_fail(b->spec, b->diags, v, hint, "[%s] %s = %.80s: %s", b->section, v->key, v->text, why));
}

static void set_from_default(binding *b, const st_param *p)
{
    char why[256], hint[256];
    const char *text = p->def;
    if (p->flags & ST_PF_REQUIRED) {
        snprintf(hint, sizeof hint, "%.100s: %.150s", p->key, p->help ? p->help : "");
        note(b, st_spec_fail_section(b->spec, b->diags, b->section, hint, "[%s] needs the key \"%s\"%s%s%s", b->section,
                                     p->key, b->owner ? " (" : "", b->owner ? b->owner : "", b->owner ? ")" : ""));
        return;
    }
    if (!text || (p->flags & ST_PF_OBSOLETE)) return;
    if (p->type == ST_P_PATH && text[0]) text = st_path_join(st_spec_arena(b->spec), st_spec_dir(b->spec), text);
    if (text) st_spec_take(b->spec, b->section, p->key, text, NULL);
    if (!text) owner_bug(b, p, "no memory for its default");
    else if (!st_param_set(p, text, b->instance, why, hint)) owner_bug(b, p, "its default does not pass its own rules");
}

/* The field as text when all instances have the same; NULL: they differ, or it is not set. */
static const char *common_text(st_spec *s, const st_param *p, const void *const *instances, int n)
{
    st_buf first = {0};
    bool same = n > 0 && st_param_text(p, instances[0], &first) == ST_OK;
    for (int i = 1; i < n && same; i++) {
        st_buf other = {0};
        same = st_param_text(p, instances[i], &other) == ST_OK && !strcmp(first.data, other.data);
        st_buf_free(&other);
    }
    const char *text = same && first.data[0] ? st_arena_strdup(s->arena, first.data) : NULL;
    st_buf_free(&first);
    return text;
}

void st_spec_take_worked_out(st_spec *s, const char *section, const void *const *instances, int n)
{
    for (int i = 0; i < s->n_bound; i++) {
        const st_param *p = &s->bound[i].param;
        if (!(p->flags & ST_PF_FIXED) || strcmp(s->bound[i].section, section)) continue;
        if (st_spec_current(s, section, p)) continue;
        const char *text = common_text(s, p, instances, n);
        if (text) st_spec_take(s, section, p->key, text, NULL);
    }
}

int st_spec_bind(st_spec *spec, const char *section, const st_table *table, void *instance, const char *const *extra,
                 st_diags *diags)
{
    binding b = {.spec = spec, .diags = diags, .section = section, .instance = instance};
    b.owner = table->owner;
    st_spec_know(spec, section, NULL);
    for (; extra && *extra; extra++)
        (void)st_spec_get(spec, section, *extra); /* its reader takes it; here it is known */
    for (uint32_t i = 0; i < table->n; i++) {
        st_param p = st_param_at(table->params, i, table->param_size);
        const char *misfit = st_param_misfit(&p);
        if (misfit) {
            owner_bug(&b, &p, misfit);
            continue;
        }
        st_spec_note_param(spec, section, &p);
        st_param_unset(&p, instance);
        const st_value *v = value_for(&b, &p);
        if (v) set_from_value(&b, &p, v);
        else set_from_default(&b, &p);
    }
    if (spec->failed) {
        st_error e = {0};
        note(&b, st_fail(&e, ST_E_NOMEM, "no memory for the settings"));
        st_diags_add(diags, &e, NULL, false);
    }
    return b.first_code;
}
