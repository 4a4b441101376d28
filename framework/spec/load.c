/* SPDX-License-Identifier: Apache-2.0 */
/* spec/load.c - a file with its includes, then the --set overrides, into a spec. */
#include "config.h"
#include "spec/ini.h"
#include "spec/store.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_LIMIT ((size_t)4 << 20)
#define DEPTH_LIMIT 16
#define FILES_LIMIT 64 /* of one spec; a file may be reached on two ways and counts twice */

/* One file being read; the chain to the file at the top shows cycles. */
typedef struct reading {
    st_spec *spec;
    st_diags *diags;
    const char *name, *dir;
    struct reading *parent;
    dev_t device;
    ino_t inode;
    int32_t unit, depth;
    int first_code;
} reading;

static int load_file(st_spec *, const char *path, reading *parent, const st_ini_item *at, st_diags *);

static int note(reading *r, int code)
{
    if (r->first_code == ST_OK) r->first_code = code;
    return code == ST_E_NOMEM ? code : ST_OK; /* go on to the next line unless memory is gone */
}

static int refuse(reading *r, const st_ini_item *at, int32_t column, const char *hint, const char *fmt, ...)
    ST_PRINTF(5, 6);
static int refuse(reading *r, const st_ini_item *at, int32_t column, const char *hint, const char *fmt, ...)
{
    const st_place place = {r->name, at->line, column, at->line_text};
    va_list ap;
    va_start(ap, fmt);
    int rc = st_diags_vfail(r->diags, &place, false, hint, fmt, ap);
    va_end(ap);
    return note(r, rc);
}

static int no_memory(reading *r)
{
    st_error e = {0};
    st_fail_at(&e, ST_E_NOMEM, r->name, 0, 0, "no memory for the settings");
    return note(r, st_diags_add(r->diags, &e, NULL, false));
}

static int take_header(reading *r, const st_ini_item *at)
{
    st_section *x = st_spec_section(r->spec, at->section, true);
    if (!x || st_spec_mark_present(r->spec, x) != ST_OK) return no_memory(r);
    if (x->unit == r->unit)
        return refuse(r, at, at->column, "keep all its keys under one header",
                      "section [%s] again; it began at line %d", at->section, x->line);
    x->unit = r->unit;
    x->file = r->name;
    x->line_text = at->line_text;
    x->line = at->line;
    x->column = at->column;
    return ST_OK;
}

static int take_outside(reading *r, const st_ini_item *at)
{
    if (strcmp(at->key, "include") != 0)
        return refuse(r, at, at->key_column, "only include = FILE may stand in front of the first [section]",
                      "key \"%s\" outside any section", at->key);
    if (!at->text[0]) return refuse(r, at, at->column, "write include = FILE", "include without a file");
    const char *path = st_path_join(r->spec->arena, r->dir, at->text), *shipped, *nearest = NULL;
    st_places places;
    if (!path || st_places_find(r->spec->arena, &places, NULL) != ST_OK) return no_memory(r);
    /* a file beside the including one goes first; only a plain name may be a spec that came with the program */
    if (!st_path_exists(path) && st_places_spec(&places, at->text, r->spec->arena, &shipped, &nearest)) path = shipped;
    if (nearest) {
        char hint[128];
        snprintf(hint, sizeof hint, "did you mean %.64s, which came with the program?", nearest);
        return refuse(r, at, at->column, hint, "there is no file %s, and no spec of this name", path);
    }
    return note(r, load_file(r->spec, path, r, at, r->diags));
}

static int take_item(void *user, const st_ini_item *at)
{
    reading *r = user;
    if (!at->key) return take_header(r, at);
    if (!at->section[0]) return take_outside(r, at);
    const st_entry *old = st_spec_find(r->spec, at->section, at->key);
    if (old && old->unit == r->unit)
        return refuse(r, at, at->key_column, "remove one of the two",
                      "key \"%s\" of [%s] again; it is set at line %d already", at->key, at->section, old->v.line);
    st_entry e = {.dir = r->dir, .unit = r->unit, .key_column = at->key_column};
    e.v.section = at->section;
    e.v.key = at->key;
    e.v.text = at->text;
    e.v.file = r->name;
    e.v.line_text = at->line_text;
    e.v.line = at->line;
    e.v.column = at->column;
    e.v.origin = ST_FROM_FILE;
    return st_spec_store(r->spec, &e) == ST_OK ? ST_OK : no_memory(r);
}

static int read_text(reading *r, const char *text, size_t n)
{
    r->unit = ++r->spec->units;
    int rc = st_ini_parse(r->name, text, n, r->spec->arena, take_item, r, r->diags);
    return rc != ST_OK ? rc : r->first_code;
}

/* An error about a file as a whole stands at the include line that names it, if there is one. */
static int refuse_file(reading *parent, const st_ini_item *at, st_diags *diags, st_error *e)
{
    if (!at) return st_diags_add(diags, e, NULL, false);
    snprintf(e->file, sizeof e->file, "%s", parent->name);
    e->line = at->line;
    e->column = at->column;
    return st_diags_add(diags, e, at->line_text, false);
}

/* Refuses what would never end: a file inside itself, too deep, too many. */
static int check_chain(reading *r, st_error *e)
{
    struct stat s;
    if (stat(r->name, &s) != 0) return ST_OK; /* opening it says why */
    r->device = s.st_dev;
    r->inode = s.st_ino;
    for (const reading *up = r->parent; up; up = up->parent)
        if (up->inode == r->inode && up->device == r->device)
            return st_fail(e, ST_E_CONFIG, "%s includes itself through %s", up->name, r->parent->name);
    if (r->depth > DEPTH_LIMIT) return st_fail(e, ST_E_CONFIG, "includes nested more than %d deep", DEPTH_LIMIT);
    if (r->spec->units >= FILES_LIMIT) return st_fail(e, ST_E_CONFIG, "more than %d files in one spec", FILES_LIMIT);
    return ST_OK;
}

/* Where relative paths of a file count from: its own folder. For a link that of the file it leads to, so that a spec
 * says the same by whatever name it is reached. */
static char *folder_of(st_arena *arena, const char *path)
{
    struct stat s;
    char *real = lstat(path, &s) == 0 && S_ISLNK(s.st_mode) ? realpath(path, NULL) : NULL;
    char *dir = st_path_dir(arena, real ? real : path);
    free(real);
    return dir;
}

static int load_file(st_spec *s, const char *path, reading *parent, const st_ini_item *at, st_diags *diags)
{
    reading r = {.spec = s, .diags = diags, .name = path, .parent = parent, .depth = parent ? parent->depth + 1 : 0};
    st_error e = {0};
    char *text = NULL;
    size_t n = 0;
    r.dir = folder_of(s->arena, path);
    int rc = r.dir ? check_chain(&r, &e) : st_fail(&e, ST_E_NOMEM, "no memory for a path");
    if (rc == ST_OK) rc = st_file_read(path, s->arena, &text, &n, &e);
    if (rc == ST_OK && n > FILE_LIMIT)
        rc = st_fail(&e, ST_E_CONFIG, "%s: %zu bytes; a spec file has at most %zu", path, n, FILE_LIMIT);
    if (rc != ST_OK) return refuse_file(parent, at, diags, &e);
    return read_text(&r, text, n);
}

/* ---- --set section.key=value ---- */

static int refuse_set(st_diags *diags, const char *set, size_t at, const char *hint, const char *message)
{
    st_error e = {0};
    st_fail_at(&e, ST_E_CONFIG, "--set", 0, (int)at + 1, "%s", message);
    st_error_hint(&e, "%s", hint);
    return st_diags_add(diags, &e, set, false);
}

static bool is_name(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)p[i] <= ' ' || strchr("=:;#[]\"", p[i])) return false;
    return n > 0 && n <= ST_INI_NAME_MAX;
}

static int apply_set(st_spec *s, const char *set, st_diags *diags)
{
    static const char hint[] = "write --set section.key=value";
    const char *equals = strchr(set, '='), *dot = equals, *end = equals;
    size_t bad = 0;
    if (!equals) return refuse_set(diags, set, strlen(set), hint, "no '=' in the override");
    while (dot > set && dot[-1] != '.') dot--; /* behind the last dot in front of '=' */
    if (dot == set) return refuse_set(diags, set, 0, hint, "no section in the override");
    if (!is_name(set, (size_t)(dot - 1 - set)))
        return refuse_set(diags, set, 0, hint, "not a section name in the override");
    while (end > dot && (end[-1] == ' ' || end[-1] == '\t')) end--;
    if (!is_name(dot, (size_t)(end - dot)))
        return refuse_set(diags, set, (size_t)(dot - set), hint, "not a key in the override");
    const char *value = equals + 1 + strspn(equals + 1, " \t");
    size_t n = strlen(value);
    while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t')) n--;
    if (!st_is_text(value, n, &bad)) /* line feeds may come in (chat layouts); st_spec_write puts them in quotes */
        return refuse_set(diags, set, (size_t)(value - set) + bad, "use UTF-8 without control characters",
                          "a byte in the override that is no text");
    st_entry e = {.dir = ".", .key_column = (int32_t)(dot - set) + 1}; /* paths start where the user stands */
    e.v.section = st_arena_strndup(s->arena, set, (size_t)(dot - 1 - set));
    e.v.key = st_arena_strndup(s->arena, dot, (size_t)(end - dot));
    e.v.text = st_arena_strndup(s->arena, value, n);
    e.v.line_text = st_arena_strdup(s->arena, set);
    e.v.file = "--set";
    e.v.column = (int32_t)(value - set) + 1;
    e.v.origin = ST_FROM_SET;
    if (e.v.section && e.v.key && e.v.text && e.v.line_text && st_spec_store(s, &e) == ST_OK) return ST_OK;
    return refuse_set(diags, set, 0, "", "no memory for the override");
}

/* ---- entry points ---- */

static int deliver(st_spec *s, int rc, st_spec **out)
{
    if (rc == ST_OK) *out = s;
    else st_spec_destroy(s);
    return rc;
}

static int start(st_spec **s, const char *path, const char *dir, st_diags *diags)
{
    st_error e = {0};
    *s = st_spec_new(path, dir);
    if (*s) return ST_OK;
    st_fail_at(&e, ST_E_NOMEM, path, 0, 0, "no memory for the settings");
    return st_diags_add(diags, &e, NULL, false);
}

int st_spec_load(const char *path, const char *const *sets, int n_sets, st_spec **out, st_diags *diags)
{
    st_spec *s;
    *out = NULL;
    ST_TRY(start(&s, path, ".", diags));
    if (!(s->dir = folder_of(s->arena, path))) s->dir = ".";
    int rc = load_file(s, path, NULL, NULL, diags);
    for (int i = 0; i < n_sets; i++) {
        int code = apply_set(s, sets[i], diags);
        if (rc == ST_OK) rc = code;
    }
    return deliver(s, rc, out);
}

int st_spec_parse(const char *name, const char *text, size_t n, const char *dir, st_spec **out, st_diags *diags)
{
    st_spec *s;
    *out = NULL;
    ST_TRY(start(&s, name, dir ? dir : ".", diags));
    reading r = {.spec = s, .diags = diags, .name = s->path, .dir = s->dir};
    return deliver(s, read_text(&r, text, n), out);
}
