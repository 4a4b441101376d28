/* SPDX-License-Identifier: Apache-2.0 */
/* model/names.c - names of weights in other layouts ("hf"): a part's own table below the prefix of its block or of
 * its part. */
#include "model/private.h"
#include <string.h>

#define LM "model.language_model."
static const st_map host_maps[] = {
    {"hf", "embed", LM "embed_tokens.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "final_norm", LM "norm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "final_norm_bias", LM "norm.bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "lm_head", "lm_head.weight", 0, 0, ST_MAP_PLAIN, 0},
};
static const st_map trunk_maps[] = {
    {"hf", "", LM "layers.{block}.", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "mixer_norm", "input_layernorm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "mixer_norm_bias", "input_layernorm.bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "channel_norm", "post_attention_layernorm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "channel_norm_bias", "post_attention_layernorm.bias", 0, 0, ST_MAP_PLAIN, 0},
};

typedef struct maps {
    const st_map *at;
    int32_t n;
} maps;
typedef struct names {
    st_arena *arena;
    st_file_name *list;
    int32_t n, cap;
} names;

static maps stack_maps(const st_model *m, const model_stack *st)
{
    maps own = {st->maps, st->n_maps}, trunk = {trunk_maps, ST_COUNT(trunk_maps)};
    return st == m->trunk ? trunk : own;
}

static char *replace(st_arena *a, const char *text, const char *word, int32_t n)
{
    const char *at = strstr(text, word);
    return at ? st_arena_printf(a, "%.*s%d%s", (int)(at - text), text, n, at + strlen(word)) : st_arena_strdup(a, text);
}

/* "model.language_model.layers.3." or "model.visual." */
static const char *prefix_of(const st_model *m, const model_part *p, const char *layout, st_arena *a)
{
    maps t;
    if (p->kind == ST_KIND_ENCODER) return "model.visual.";
    if (!p->stack) return "";
    t = stack_maps(m, p->stack);
    for (int32_t i = 0; i < t.n; i++)
        if (!strcmp(t.at[i].layout, layout) && !t.at[i].weight[0])
            return st_arena_printf(a, "%s%s", p->stack->prefix,
                                   replace(a, replace(a, t.at[i].file, "{block}", p->block), "{n}", p->stack->part));
    return NULL;
}

/* Rows of dimension 0, or of the section dimension, that a map row covers. */
static void rows_of(const model_weight *w, const st_map *map, int64_t *first, int64_t *n)
{
    *first = 0;
    *n = w->pub.dim[w->pub.n_sec ? w->pub.sec_dim : 0];
    if (map->n_sec <= 0) return;
    *n = 0;
    for (int32_t i = 0; i < w->pub.n_sec && i < map->sec0 + map->n_sec; i++) {
        if (i < map->sec0) *first += w->pub.sec[i].n;
        else *n += w->pub.sec[i].n;
    }
}

static bool better_alternative(const maps *t, const st_map *than)
{
    for (int32_t i = 0; than->alt && i < t->n; i++)
        if (!strcmp(t->at[i].layout, than->layout) && !strcmp(t->at[i].weight, than->weight) && t->at[i].alt &&
            t->at[i].alt < than->alt)
            return true;
    return false;
}

static int add_names(names *out, const model_weight *w, int32_t id, const char *layout, const char *name, const maps *t,
                     const char *prefix)
{
    for (int32_t i = 0; i < t->n; i++) {
        const st_map *map = &t->at[i];
        if (strcmp(map->layout, layout) || strcmp(map->weight, name) || better_alternative(t, map)) continue;
        if (map->how != ST_MAP_PLAIN) return ST_E_UNSUPPORTED;
        out->list = model_grow(out->arena, out->list, out->n, &out->cap, sizeof *out->list);
        if (!out->list) return ST_E_NOMEM;
        out->list[out->n].file_name =
            st_arena_printf(out->arena, "%s%s", prefix, replace(out->arena, map->file, "{n}", w->index));
        out->list[out->n].weight = id;
        rows_of(w, map, &out->list[out->n].first, &out->list[out->n].n);
        out->n++;
    }
    return ST_OK;
}

static int names_of(const st_model *m, names *out, int32_t id, const char *layout)
{
    const model_weight *w = m->weights[id];
    const model_part *p = w->part;
    maps t = {p->maps, p->n_maps};
    const char *prefix, *name = w->raw;

    if (p == m->host) {
        t = (maps){host_maps, ST_COUNT(host_maps)};
        return add_names(out, w, id, layout, name, &t, "");
    }
    prefix = prefix_of(m, p, layout, out->arena);
    if (!prefix) return ST_OK;
    if (w->norm) {
        t = stack_maps(m, p->stack);
        if (p->layer.role == ST_ROLE_CHANNEL) name = w->norm == NORM_BIAS ? "channel_norm_bias" : "channel_norm";
        else name = w->norm == NORM_BIAS ? "mixer_norm_bias" : "mixer_norm";
    }
    return add_names(out, w, id, layout, name, &t, prefix);
}

/* -> how many, or a negative code. Weights without a name in the layout have no entry. */
int st_model_file_names(const st_model *m, const char *layout, const st_file_name **out)
{
    names n = {m->arena, NULL, 0, 0};

    for (int32_t i = 0; i < m->n_weights; i++)
        if (!(m->weights[i]->pub.flags & ST_W_CONST)) ST_TRY(names_of(m, &n, i, layout));
    *out = n.list;
    return n.n;
}
