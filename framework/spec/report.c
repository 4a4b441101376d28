/* SPDX-License-Identifier: Apache-2.0 */
/* spec/report.c - mistakes placed in the user's file, and the hunt for names that nobody knows. */
#include "spec/store.h"
#include <string.h>

static st_place place_of(const st_spec *s, const st_value *v, int column)
{
    if (!v) return (st_place){.file = s->path};
    return (st_place){v->file, v->line, column, v->line_text};
}

int st_spec_fail(const st_spec *s, st_diags *diags, const st_value *v, const char *hint, const char *fmt, ...)
{
    const st_place at = place_of(s, v, v ? v->column : 0);
    va_list ap;
    va_start(ap, fmt);
    int rc = st_diags_vfail(diags, &at, false, hint, fmt, ap);
    va_end(ap);
    return rc;
}

/* The symbol of a pattern, or the blocks, that ask for a section [layer.X]; false: nothing asks for it. */
static bool place_of_symbol(const st_spec *s, const char *section, st_place *at)
{
    const st_entry *e = st_spec_find((st_spec *)s, "stack", "pattern");
    const char *symbol = strncmp(section, "layer.", 6) || !section[6] || section[7] ? NULL : section + 6;
    const char *found = symbol && e ? strchr(e->v.text, *symbol) : NULL;
    int32_t column = found ? (int32_t)(found - e->v.text) : 0;

    if (symbol && !found) e = st_spec_find((st_spec *)s, "stack", "blocks");
    if (!symbol || !e) return false;
    *at = place_of(s, &e->v, e->v.column + column);
    return true;
}

/* A section made by --set alone is shown at its first key, one that is not there where it is asked for. */
static st_place place_of_section(const st_spec *s, const char *section)
{
    const st_section *x = st_spec_section((st_spec *)s, section, false);
    st_place at;
    if (x && x->file) return (st_place){x->file, x->line, x->column, x->line_text};
    if (!(x && x->n_values) && place_of_symbol(s, section, &at)) return at;
    return place_of(s, x && x->n_values ? x->value[0] : NULL, 0);
}

int st_spec_fail_section(const st_spec *s, st_diags *diags, const char *section, const char *hint, const char *fmt, ...)
{
    const st_place at = place_of_section(s, section);
    va_list ap;
    va_start(ap, fmt);
    int rc = st_diags_vfail(diags, &at, false, hint, fmt, ap);
    va_end(ap);
    return rc;
}

int st_spec_fail_key(const st_spec *s, st_diags *diags, const char *section, const char *key, const char *hint,
                     const char *fmt, ...)
{
    const st_param *p = st_spec_param(s, section, key);
    const st_value *v = p ? st_spec_current(s, section, p) : NULL;
    const bool given = v && v->origin != ST_FROM_DEFAULT;
    const st_place at = given ? place_of(s, v, v->column) : place_of_section(s, section);
    va_list ap;
    va_start(ap, fmt);
    int rc = st_diags_vfail(diags, &at, false, hint, fmt, ap);
    va_end(ap);
    return rc;
}

int st_spec_fail_inside(const st_spec *s, st_diags *diags, const st_value *v, const st_error *inner)
{
    bool written = v && v->origin != ST_FROM_SUGAR && inner->column > 0;
    st_error e = *inner;
    if (e.file[0]) return st_diags_add(diags, &e, NULL, false); /* placed already */
    snprintf(e.file, sizeof e.file, "%s", v ? v->file : s->path);
    e.line = v ? v->line : 0;
    e.column = !v ? 0 : written ? v->column + inner->column - 1 : v->column;
    return st_diags_add(diags, &e, v ? v->line_text : NULL, false);
}

/* ---- names that nobody knows ---- */

static void list_keys(const st_section *x, char *to, size_t size)
{
    size_t n = (size_t)snprintf(to, size, "[%s] has the keys", x->name);
    for (int i = 0; i < x->n_keys; i++) {
        const char *comma = i ? "," : "";
        if (n + strlen(x->key[i]) + 8 > size) {
            snprintf(to + n, size - n, ", ...");
            return;
        }
        n += (size_t)snprintf(to + n, size - n, "%s %s", comma, x->key[i]);
    }
}

static bool knows(const st_section *x, const char *key)
{
    for (int i = 0; i < x->n_keys; i++)
        if (!strcmp(x->key[i], key)) return true;
    return false;
}

static void hint_for_key(const st_spec *s, const st_section *x, const char *key, char *hint, size_t size)
{
    const char *near = st_nearest(key, x->key, x->n_keys);
    for (int i = 0; i < s->n_sections; i++)
        if (s->section[i] != x && knows(s->section[i], key)) {
            snprintf(hint, size, "\"%s\" is a key of [%s]", key, s->section[i]->name);
            return;
        }
    if (near) snprintf(hint, size, "did you mean \"%s\"?", near);
    else if (x->n_keys) list_keys(x, hint, size);
}

static int unknown_key(const st_spec *s, const st_section *x, const st_value *v, st_diags *diags)
{
    char hint[256] = "";
    st_value at = *v;
    if (diags->errors < ST_DIAGS_MAX) hint_for_key(s, x, v->key, hint, sizeof hint); /* later ones are only counted */
    at.column = ((const st_entry *)v)->key_column;
    return st_spec_fail(s, diags, &at, hint, "[%s] has no key \"%s\"", x->name, v->key);
}

/* The nearest name of a section that is read; absent: of those that the spec does not have. */
static const char *nearest_section(const st_spec *s, const char *to, bool absent)
{
    const char *name[256];
    int n = 0;
    for (int i = 0; i < s->n_sections && n < (int)ST_COUNT(name); i++)
        if (s->section[i]->known && !(absent && s->section[i]->present)) name[n++] = s->section[i]->name;
    return st_nearest(to, name, n);
}

static int unknown_section(const st_spec *s, const st_section *x, st_diags *diags)
{
    char hint[256] = "";
    const char *near = diags->errors < ST_DIAGS_MAX ? nearest_section(s, x->name, false) : NULL;
    if (near) snprintf(hint, sizeof hint, "did you mean [%s]?", near);
    return st_spec_fail_section(s, diags, x->name, hint, "nothing reads the section [%s]", x->name);
}

/* After an error some readers did not get their turn, and what they would have read is no mistake: then only a slip is
 * told, of a known key, or of a section that is read and is not there. */
static bool is_slip(const st_section *x, const st_value *v)
{
    return st_nearest(v->key, x->key, x->n_keys) != NULL;
}

int st_spec_check_unused(const st_spec *s, st_diags *diags)
{
    bool complete = diags->errors == 0;
    int rc = ST_OK, code;
    for (int i = 0; i < s->n_sections; i++) {
        const st_section *x = s->section[i];
        if (!x->present) continue;
        if (!x->known) {
            code = complete || nearest_section(s, x->name, true) ? unknown_section(s, x, diags) : ST_OK;
            if (rc == ST_OK) rc = code;
            continue;
        }
        for (int k = 0; k < x->n_values; k++) {
            if (x->value[k]->used || (!complete && !is_slip(x, x->value[k]))) continue;
            code = unknown_key(s, x, x->value[k], diags);
            if (rc == ST_OK) rc = code;
        }
    }
    return rc;
}
