/* SPDX-License-Identifier: Apache-2.0 */
/* model/names.c - names of weights in other layouts ("hf"): a part's own table below its prefix or its block's. What is
 * the host's own is named by a table of the caller. */
#include "model/private.h"
#include <string.h>

typedef struct maps {
    const st_map *at;
    int32_t n;
} maps;
typedef struct names {
    const st_model *m;
    st_arena *arena;
    const char *layout;
    const st_host_maps *host;
    st_has_file_name has;
    void *ctx;
    st_file_name *list;
    int32_t n, cap;
} names;

static maps stack_maps(const names *out, const model_stack *st)
{
    maps own = {st->maps, st->n_maps}, trunk = {out->host->trunk, out->host->n_trunk};
    return st == out->m->trunk ? trunk : own;
}

static char *replace(st_arena *a, const char *text, const char *word, int32_t n)
{
    const char *at = strstr(text, word);
    return at ? st_arena_printf(a, "%.*s%d%s", (int)(at - text), text, n, at + strlen(word)) : st_arena_strdup(a, text);
}

/* The row without a weight is the prefix of all others; NULL: there is none in this layout. */
static const char *prefix_row(const names *out, maps t)
{
    for (int32_t i = 0; i < t.n; i++)
        if (!strcmp(t.at[i].layout, out->layout) && !t.at[i].weight[0]) return t.at[i].file;
    return NULL;
}

/* "model.visual." of an encoder, "model.visual.blocks.3." of a layer of its stack. NULL: the stack has no names. */
static const char *prefix_of(const names *out, const model_part *p)
{
    const model_part *owner = p->stack ? p->stack->owner : p;
    const char *own = prefix_row(out, (maps){owner->maps, owner->n_maps}), *block;

    if (!own) own = "";
    if (!p->stack) return own;
    block = prefix_row(out, stack_maps(out, p->stack));
    if (!block) return NULL;
    block = replace(out->arena, replace(out->arena, block, "{block}", p->block), "{n}", p->stack->part);
    return st_arena_printf(out->arena, "%s%s", own, block);
}

/* One tensor per entry of dimension 0: the sections must be of a later one. */
static bool has_entries(const model_weight *w) { return w->pub.nd > 1 && (!w->pub.n_sec || w->pub.sec_dim > 0); }

/* Rows that a map row covers: of the section dimension, else of the first that the file's tensor has. */
static void rows_of(const model_weight *w, const st_map *map, int64_t *first, int64_t *n)
{
    *first = 0;
    *n = w->pub.dim[w->pub.n_sec ? w->pub.sec_dim : map->how == ST_MAP_EACH];
    if (map->n_sec <= 0) return;
    *n = 0;
    for (int32_t i = 0; i < w->pub.n_sec && i < map->sec0 + map->n_sec; i++) {
        if (i < map->sec0) *first += w->pub.sec[i].n;
        else *n += w->pub.sec[i].n;
    }
}

/* ---- one map row of one weight ---- */

typedef struct row { const model_weight *w; int32_t id; const char *name, *prefix; maps t; } row;

static bool names_row(const names *out, const row *r, const st_map *map)
{ return !strcmp(map->layout, out->layout) && !strcmp(map->weight, r->name); }

/* entry >= 0: the file's tensor holds that entry of dimension 0 alone. */
static char *file_name(const names *out, const row *r, const st_map *map, int32_t entry)
{
    char *name = replace(out->arena, map->file, "{n}", r->w->index);
    if (name && entry >= 0) name = replace(out->arena, name, "{i}", entry);
    return name ? st_arena_printf(out->arena, "%s%s", r->prefix, name) : NULL;
}

/* The alternative to take: the lowest of which the file has a tensor, else the lowest. 0: the weight has none. */
static int choose_alternative(const names *out, const row *r)
{
    int lowest = 0, found = 0;

    for (int32_t i = 0; i < r->t.n; i++) {
        const st_map *map = &r->t.at[i];
        const char *first;
        if (!map->alt || !names_row(out, r, map)) continue;
        if (!lowest || map->alt < lowest) lowest = map->alt;
        if (!out->has || (found && found <= map->alt)) continue;
        first = file_name(out, r, map, map->how == ST_MAP_EACH ? 0 : -1);
        if (first && out->has(out->ctx, first)) found = map->alt;
    }
    return found ? found : lowest;
}

static int add_name(names *out, const row *r, const st_map *map, int32_t entry)
{
    st_file_name *f;

    if (!model_grow(out->arena, &out->list, out->n, &out->cap, sizeof *out->list)) return ST_E_NOMEM;
    f = &out->list[out->n];
    f->file_name = file_name(out, r, map, entry);
    f->weight = r->id;
    f->entry = entry;
    rows_of(r->w, map, &f->first, &f->n);
    if (!f->file_name) return ST_E_NOMEM;
    out->n++;
    return ST_OK;
}

static int add_names(names *out, const row *r)
{
    int alt = choose_alternative(out, r);

    for (int32_t i = 0; i < r->t.n; i++) {
        const st_map *map = &r->t.at[i];
        bool each = map->how == ST_MAP_EACH;
        if (!names_row(out, r, map) || (map->alt && map->alt != alt)) continue;
        if (map->how == ST_MAP_ROWS || (each && !has_entries(r->w))) return ST_E_UNSUPPORTED;
        for (int32_t k = 0; k < (each ? r->w->pub.dim[0] : 1); k++) ST_TRY(add_name(out, r, map, each ? k : -1));
    }
    return ST_OK;
}

static int names_of(names *out, int32_t id)
{
    const model_weight *w = out->m->weights[id];
    const model_part *p = w->part;
    row r = {w, id, w->raw, "", {p->maps, p->n_maps}};

    if (p == out->m->host) {
        r.t = (maps){out->host->host, out->host->n_host};
        return add_names(out, &r);
    }
    r.prefix = prefix_of(out, p);
    if (!r.prefix) return ST_OK;
    if (w->norm) {
        r.t = stack_maps(out, p->stack);
        if (p->layer.role == ST_ROLE_CHANNEL) r.name = w->norm == NORM_BIAS ? "channel_norm_bias" : "channel_norm";
        else r.name = w->norm == NORM_BIAS ? "mixer_norm_bias" : "mixer_norm";
    }
    return add_names(out, &r);
}

int st_model_file_names(const st_model *m, const char *layout, const st_host_maps *host, st_has_file_name has,
                        void *ctx, const st_file_name **out)
{
    names n = {.m = m, .arena = m->arena, .layout = layout, .host = host, .has = has, .ctx = ctx};

    for (int32_t i = 0; i < m->n_weights; i++)
        if (!(m->weights[i]->pub.flags & ST_W_CONST)) ST_TRY(names_of(&n, i));
    *out = n.list;
    return n.n;
}
