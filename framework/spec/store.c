/* SPDX-License-Identifier: Apache-2.0 */
/* spec/store.c - values by section and key, in a hash table and in order of appearance. */
#include "spec/store.h"
#include "spec/ini.h"
#include <stdlib.h>
#include <string.h>

#define ARENA_LIMIT ((size_t)512 << 20) /* a spec that needs more is no spec */

st_spec *st_spec_new(const char *path, const char *dir)
{
    st_arena *a = st_arena_create(ARENA_LIMIT);
    st_spec *s = a ? ST_NEW(a, st_spec) : NULL;
    if (!s) {
        st_arena_destroy(a);
        return NULL;
    }
    s->arena = a;
    s->n_slots = 256;
    s->slot = calloc(s->n_slots, sizeof *s->slot);
    s->path = st_arena_strdup(a, path);
    s->dir = st_arena_strdup(a, dir);
    if (s->slot && s->path && s->dir) return s;
    st_spec_destroy(s);
    return NULL;
}

void st_spec_destroy(st_spec *s)
{
    if (!s) return;
    free(s->slot);
    st_arena_destroy(s->arena);
}

const char *st_spec_path(const st_spec *s)
{
    return s->path;
}

const char *st_spec_dir(const st_spec *s)
{
    return s->dir;
}

st_arena *st_spec_arena(st_spec *s)
{
    return s->arena;
}

/* ---- hash table. A slot holds an st_entry or, with the lowest bit of its address set, an st_section. ---- */

static void *as_section(st_section *x)
{
    return (void *)((uintptr_t)x | 1);
}

static st_section *section_of(void *slot)
{
    return (uintptr_t)slot & 1 ? (st_section *)((uintptr_t)slot & ~(uintptr_t)1) : NULL;
}

static uint64_t hash_of(const char *section, const char *key)
{
    uint64_t h = st_hash64(section, strlen(section), 1);
    return key ? st_hash64(key, strlen(key), h) : h;
}

static uint64_t slot_hash(void *slot)
{
    const st_section *x = section_of(slot);
    const st_entry *e = slot;
    return x ? hash_of(x->name, NULL) : hash_of(e->v.section, e->v.key);
}

static bool slot_is(void *slot, const char *section, const char *key)
{
    const st_section *x = section_of(slot);
    if (!key) return x && !strcmp(x->name, section);
    const st_entry *e = slot;
    return !x && !strcmp(e->v.key, key) && !strcmp(e->v.section, section);
}

/* The slot that holds the name, or the empty one where it belongs. The table is never full. */
static size_t place_of(const st_spec *s, const char *section, const char *key)
{
    size_t i = (size_t)hash_of(section, key) & (s->n_slots - 1);
    while (s->slot[i] && !slot_is(s->slot[i], section, key)) i = (i + 1) & (s->n_slots - 1);
    return i;
}

static bool make_room(st_spec *s)
{
    if ((s->n_used + 1) * 4 <= s->n_slots * 3) return true;
    size_t n = s->n_slots * 2;
    void **slot = calloc(n, sizeof *slot);
    if (!slot) return false;
    for (size_t k = 0; k < s->n_slots; k++) {
        if (!s->slot[k]) continue;
        size_t i = (size_t)slot_hash(s->slot[k]) & (n - 1);
        while (slot[i]) i = (i + 1) & (n - 1);
        slot[i] = s->slot[k];
    }
    free(s->slot);
    s->slot = slot;
    s->n_slots = n;
    return true;
}

/* Room for one more pointer in a list of the arena. Old lists stay behind until the spec goes. */
static bool grow(st_spec *s, void *list, int32_t n, int32_t *cap)
{
    void **old, **new_list;
    if (n < *cap) return true;
    int32_t more = *cap ? *cap * 2 : 8;
    new_list = ST_NEW_N(s->arena, void *, more);
    if (!new_list) return false;
    memcpy(&old, list, sizeof old);
    if (n) memcpy(new_list, old, sizeof *new_list * (size_t)n);
    memcpy(list, &new_list, sizeof new_list);
    *cap = more;
    return true;
}

/* ---- sections ---- */

st_section *st_spec_section(st_spec *s, const char *name, bool make)
{
    void *found = s->slot[place_of(s, name, NULL)];
    if (found || !make) return section_of(found);
    st_section *x = ST_NEW(s->arena, st_section);
    if (!x || !(x->name = st_arena_strdup(s->arena, name)) || !make_room(s) ||
        !grow(s, &s->section, s->n_sections, &s->cap_sections)) {
        s->failed = 1;
        return NULL;
    }
    s->section[s->n_sections++] = x;
    s->slot[place_of(s, name, NULL)] = as_section(x);
    s->n_used++;
    return x;
}

int st_spec_mark_present(st_spec *s, st_section *x)
{
    if (x->present) return ST_OK;
    if (!grow(s, &s->name, s->n_names, &s->cap_names)) return ST_E_NOMEM;
    s->name[s->n_names++] = x->name;
    x->present = 1;
    return ST_OK;
}

int st_spec_sections(const st_spec *s, const char *const **names)
{
    if (names) *names = s->name;
    return s->n_names;
}

bool st_spec_has(const st_spec *s, const char *section)
{
    const st_section *x = section_of(s->slot[place_of(s, section, NULL)]);
    return x && x->present;
}

int st_spec_values(const st_spec *s, const char *section, const st_value *const **values)
{
    const st_section *x = section_of(s->slot[place_of(s, section, NULL)]);
    if (values) *values = x ? x->value : NULL;
    return x ? x->n_values : 0;
}

void st_spec_know(st_spec *s, const char *section, const char *key)
{
    st_section *x = st_spec_section(s, section, true);
    if (!x) return;
    x->known = 1;
    for (int i = 0; key && i < x->n_keys; i++)
        if (!strcmp(x->key[i], key)) return;
    if (!key) return;
    const char *copy = st_arena_strdup(s->arena, key);
    if (!copy || !grow(s, &x->key, x->n_keys, &x->cap_keys)) {
        s->failed = 1;
        return;
    }
    x->key[x->n_keys++] = copy;
}

/* ---- values ---- */

st_entry *st_spec_find(const st_spec *s, const char *section, const char *key)
{
    return s->slot[place_of(s, section, key)];
}

const st_value *st_spec_get(const st_spec *spec, const char *section, const char *key)
{
    st_spec *s = (st_spec *)spec; /* what was asked for is noted; the values stay as they are */
    st_entry *e = st_spec_find(s, section, key);
    st_spec_know(s, section, key);
    if (!e) return NULL;
    e->v.used = 1;
    return &e->v;
}

int st_spec_store(st_spec *s, const st_entry *from)
{
    st_section *x = st_spec_section(s, from->v.section, true);
    if (!x || st_spec_mark_present(s, x) != ST_OK || !make_room(s)) return ST_E_NOMEM;
    size_t i = place_of(s, from->v.section, from->v.key);
    st_entry *e = s->slot[i];
    if (!e) {
        e = ST_NEW(s->arena, st_entry);
        if (!e || !grow(s, &x->value, x->n_values, &x->cap_values)) return ST_E_NOMEM;
        x->value[x->n_values++] = &e->v;
        s->slot[i] = e;
        s->n_used++;
    }
    int32_t used = e->v.used, is_path = e->is_path;
    *e = *from;
    e->v.section = x->name;
    e->v.used = used;
    e->is_path = is_path;
    return ST_OK;
}

int st_spec_put(st_spec *s, const char *section, const char *key, const char *text, int origin, const st_value *like)
{
    const st_entry *place = (const st_entry *)like;
    st_entry e = {.dir = s->dir};
    e.v.file = s->path;
    if (like) {
        e = *place;
        e.unit = 0;
    }
    e.v.section = section;
    e.v.key = st_arena_strdup(s->arena, key);
    e.v.text = st_arena_strdup(s->arena, text);
    e.v.origin = origin;
    e.v.used = 0;
    e.is_path = 0;
    return e.v.key && e.v.text ? st_spec_store(s, &e) : ST_E_NOMEM;
}

char *st_spec_file_of(st_spec *s, const st_value *v, st_arena *arena)
{
    const st_entry *e = (const st_entry *)v;
    (void)s;
    return st_path_join(arena, e->dir, v->text);
}

const char *st_spec_dir_of(const st_value *v)
{
    return ((const st_entry *)v)->dir;
}

void st_spec_take(st_spec *s, const char *section, const char *key, const char *text, const st_value *from)
{
    for (int i = 0; i < s->n_taken; i++)
        if (!strcmp(s->taken[i].key, key) && !strcmp(s->taken[i].section, section))
            return; /* one table, many instances */
    if (s->n_taken == s->cap_taken) {
        int32_t cap = s->cap_taken ? 2 * s->cap_taken : 64;
        st_value *grown = ST_NEW_N(s->arena, st_value, cap);
        if (grown && s->n_taken) memcpy(grown, s->taken, sizeof *grown * (size_t)s->n_taken);
        if (!grown) s->failed = 1;
        if (!grown) return;
        s->taken = grown;
        s->cap_taken = cap;
    }
    st_value v = from ? *from : (st_value){.line = 0};
    v.origin = from ? ST_FROM_STACK : ST_FROM_DEFAULT;
    v.section = st_arena_strdup(s->arena, section);
    v.key = st_arena_strdup(s->arena, key);
    v.text = st_arena_strdup(s->arena, text);
    if (v.section && v.key && v.text) s->taken[s->n_taken++] = v;
    else s->failed = 1;
}

void st_spec_settle(st_spec *s, const char *section, const char *key, const char *text)
{
    const st_param name = {.key = key};
    st_value *v = (st_value *)st_spec_current(s, section, &name);
    const char *copy = st_arena_strdup(s->arena, text);

    if (!copy) s->failed = 1;
    if (!v || !copy) return;
    v->text = copy;
    v->origin = ST_FROM_AUTO;
}

void st_spec_mark_paths(st_spec *s, const st_value *v)
{
    (void)s;
    ((st_entry *)v)->is_path = 2;
}

void st_spec_note_param(st_spec *s, const char *section, const st_param *p)
{
    if (st_spec_param(s, section, p->key)) return;
    if (s->n_bound == s->cap_bound) {
        int32_t cap = s->cap_bound ? 2 * s->cap_bound : 64;
        st_bound *grown = ST_NEW_N(s->arena, st_bound, cap);
        if (grown && s->n_bound) memcpy(grown, s->bound, sizeof *grown * (size_t)s->n_bound);
        if (!grown) s->failed = 1;
        if (!grown) return;
        s->bound = grown;
        s->cap_bound = cap;
    }
    const char *copy = st_arena_strdup(s->arena, section);
    if (copy) s->bound[s->n_bound++] = (st_bound){copy, *p};
    else s->failed = 1;
}

const st_param *st_spec_param(const st_spec *s, const char *section, const char *key)
{
    for (int i = 0; i < s->n_bound; i++) {
        const st_param *p = &s->bound[i].param;
        if (strcmp(s->bound[i].section, section)) continue;
        if (!strcmp(p->key, key) || (p->alias && !strcmp(p->alias, key))) return p;
    }
    return NULL;
}

const st_value *st_spec_current(const st_spec *s, const char *section, const st_param *p)
{
    const st_entry *e = st_spec_find(s, section, p->key);
    if (!e && p->alias) e = st_spec_find(s, section, p->alias);
    for (int i = 0; !e && i < s->n_taken; i++)
        if (!strcmp(s->taken[i].key, p->key) && !strcmp(s->taken[i].section, section)) return &s->taken[i];
    return e ? &e->v : NULL;
}

int st_spec_defaults(const st_spec *s, const st_value **list)
{
    *list = s->taken;
    return s->n_taken;
}
