/* SPDX-License-Identifier: Apache-2.0 */
/* model/env.c - configure time: what a part is told, and what it declares. */
#include "model/private.h"
#include <string.h>

typedef struct env_state { /* st_env first: callbacks get it */
    st_env env;
    st_model *m;
    model_part *part;
    st_error *error;
    st_diags *diags;
    const char *key;  /* where the mistake is shown; NULL: at the section */
    int32_t reported; /* a mistake that belongs elsewhere is already in diags */
} env_state;

static env_state *state_of(st_env *e) { return (env_state *)(void *)e; }

static int keep_failure(st_env *e, const char *key, int code, const char *fmt, va_list ap)
{
    env_state *c = state_of(e);
    char text[512];

    if (e->status != ST_OK) return e->status;
    vsnprintf(text, sizeof text, fmt, ap);
    e->status = code;
    c->key = key ? st_arena_strdup(c->m->arena, key) : NULL;
    st_fail(c->error, code, "%s", text);
    return code;
}

static int env_fail(st_env *e, int code, const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    int rc;

    va_start(ap, fmt);
    rc = keep_failure(e, NULL, code, fmt, ap);
    va_end(ap);
    return rc;
}

static int env_fail_key(st_env *e, const char *key, int code, const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    int rc;

    va_start(ap, fmt);
    rc = keep_failure(e, key, code, fmt, ap);
    va_end(ap);
    return rc;
}

/* A key that the part does not have may be one of [stack], such as the pattern that a head takes its depths from. */
static const char *section_of_key(const env_state *c)
{
    const st_spec *spec = c->m->spec;
    bool of_stack = !st_spec_param(spec, c->part->section, c->key) && st_spec_param(spec, "stack", c->key);

    return of_stack ? "stack" : c->part->section;
}

/* Into diags: at the key, or at the part's section. hint NULL: none. */
static int report(env_state *c, int rc, const char *hint)
{
    const st_error *e = c->error;

    if (c->reported) return rc;
    if (c->key)
        st_spec_fail_key(c->m->spec, c->diags, section_of_key(c), c->key, hint, "[%s] %s", c->part->section,
                         e->message);
    else st_spec_fail_section(c->m->spec, c->diags, c->part->section, hint, "%s", e->message);
    return rc;
}

/* ---- what a part may ask for ---- */

static st_wid env_declare(st_env *e, const st_weight *w)
{
    env_state *c = state_of(e);
    st_error err = {0};
    st_wid id;

    if (e->status != ST_OK) return -1;
    id = model_declare(c->m, c->part, w, &err);
    if (id < 0) env_fail(e, err.code, __FILE__, __LINE__, "%s", err.message);
    return id;
}

static st_wid env_shared(st_env *e, const char *name)
{
    env_state *c = state_of(e);
    st_model *m = c->m;
    st_wid id = -1;

    if (e->status != ST_OK) return -1;
    if (!strcmp(name, "embed")) id = m->embed;
    else if (!strcmp(name, "lm_head")) id = m->lm_head;
    else if (!strcmp(name, "final_norm")) id = m->final_norm;
    else
        env_fail(e, ST_E_NOTFOUND, __FILE__, __LINE__, "the host has no weight '%s': embed, lm_head, final_norm", name);
    return id;
}

/* A work list over segments. All of one context cut agree, so a tile size is one list. */
static int env_tiles(st_env *e, int32_t tile, uint32_t which)
{
    env_state *c = state_of(e);
    st_row_shape *s = &c->m->shape;

    if (e->status != ST_OK) return -1;
    if (c->part->stack && c->part->stack->part == 0 && c->part->stack != c->m->trunk)
        return env_fail(e, ST_E_UNSUPPORTED, __FILE__, __LINE__,
                        "work lists over segments exist for the trunk and its depths, not in %s", c->part->stack->path),
               -1;
    if (tile < 1 || (which != ST_TILES_LOCAL && which != ST_TILES_TIME))
        return env_fail(e, ST_E_INTERNAL, __FILE__, __LINE__, "tiles of %d tokens, kind %u", tile, which), -1;
    for (int i = 0; i < s->n_tiles; i++)
        if (s->tile[i] == tile) return i;
    if (s->n_tiles == 8)
        return env_fail(e, ST_E_UNSUPPORTED, __FILE__, __LINE__, "more than 8 different tile sizes"), -1;
    s->tile[s->n_tiles] = tile;
    return s->n_tiles++;
}

/* A nested stack brings tables with its view: one head size for all of its layers, which its owner asks for. */
static int rotary_of_view(env_state *c, int32_t head_dim)
{
    model_stack *st = c->part->stack;
    char who[200], other[200];

    if (st->rotary_dim && st->rotary_dim != head_dim) {
        model_words(c->m, c->part, who, sizeof who);
        model_words(c->m, st->rotary_by, other, sizeof other);
        return env_fail(&c->env, ST_E_CONFIG, __FILE__, __LINE__,
                        "%s rotates heads of %d columns, but %s heads of %d: all layers of %s get one table", who,
                        head_dim, other, st->rotary_dim, st->path),
               -1;
    }
    st->rotary_dim = head_dim;
    st->rotary_by = c->part;
    return MODEL_ROTARY_VIEW;
}

/* What the position makes of a head size; its mistakes are shown at its own section. 0: refused. */
static int32_t position_dim(env_state *c, int32_t head_dim)
{
    st_model *m = c->m;
    st_error err = {0};
    env_state p = {.m = m, .part = m->position_part, .error = &err, .diags = c->diags};
    char who[200], hint[256];
    int32_t dim;

    model_env(m, m->position_part, &p.env);
    dim = m->position_ops.rotary_dim ? m->position_ops.rotary_dim(m->position.self, &p.env, head_dim) : head_dim;
    if (p.env.status == ST_OK && dim >= 2 && dim % 2 == 0 && dim <= head_dim) return dim;
    env_fail(&p.env, ST_E_CONFIG, __FILE__, __LINE__, "position %s rotates %d columns of a head of %d",
             m->position.plugin->name, dim, head_dim);
    model_words(m, c->part, who, sizeof who);
    snprintf(hint, sizeof hint, "%.200s asks for it", who);
    report(&p, p.env.status, hint);
    return 0;
}

static int env_rotary(st_env *e, int32_t head_dim)
{
    env_state *c = state_of(e);
    st_model *m = c->m;
    int32_t i = 0;

    if (e->status != ST_OK) return -1;
    if (head_dim < 1)
        return env_fail(e, ST_E_INTERNAL, __FILE__, __LINE__, "rotary tables of %d columns", head_dim), -1;
    if (c->part->stack && c->part->stack != m->trunk && c->part->stack->part == 0) return rotary_of_view(c, head_dim);
    if (!m->position.plugin || !m->position_ops.tables) return -1;
    while (i < m->n_tables && m->tables[i].head_dim != head_dim) i++;
    if (i == m->n_tables) {
        if (!model_grow(m->arena, &m->tables, m->n_tables, &m->cap_tables, sizeof *m->tables))
            return env_fail(e, ST_E_NOMEM, __FILE__, __LINE__, "no memory"), -1;
        m->tables[m->n_tables].head_dim = head_dim;
        m->tables[m->n_tables++].dim = position_dim(c, head_dim);
    }
    if (m->tables[i].dim) return i;
    c->reported = 1;
    return env_fail(e, ST_E_CONFIG, __FILE__, __LINE__, "the position refused heads of %d columns", head_dim), -1;
}

/* pool 1: one for all layers of the symbol in the same stack. */
static int env_accum(st_env *e, const st_accum *given)
{
    env_state *c = state_of(e);
    st_model *m = c->m;
    model_accum *at;
    st_accum a;

    if (e->status != ST_OK) return -1;
    st_sized_copy(&a, sizeof a, given);
    for (int32_t i = 0; a.pool && i < m->n_accums; i++) {
        const model_accum *o = &m->accums[i];
        if (o->decl.pool && o->stack == c->part->stack && o->part->proto == c->part->proto && !strcmp(o->name, a.name))
            return i;
    }
    if (a.n < 1 || (a.sum == ST_AT_FORWARD_END && !c->part->stack))
        return env_fail(e, ST_E_INTERNAL, __FILE__, __LINE__, "accumulator %s of %lld cells%s", a.name, (long long)a.n,
                        c->part->stack ? "" : ", summed with a stack that it is not in"),
               -1;
    if (!model_grow(m->arena, &m->accums, m->n_accums, &m->cap_accums, sizeof *m->accums))
        return env_fail(e, ST_E_NOMEM, __FILE__, __LINE__, "no memory"), -1;
    at = &m->accums[m->n_accums];
    at->part = c->part;
    at->stack = c->part->stack;
    at->decl = a;
    at->name = st_arena_strdup(m->arena, a.name);
    if (!at->name) return env_fail(e, ST_E_NOMEM, __FILE__, __LINE__, "no memory"), -1;
    return m->n_accums++;
}

static int env_metric(st_env *e, const st_metric *given)
{
    env_state *c = state_of(e);
    st_model *m = c->m;
    model_metric *at;
    int alone = c->part->kind == ST_KIND_HEAD;

    if (e->status != ST_OK) return -1;
    if (!model_grow(m->arena, &m->metrics, m->n_metrics, &m->cap_metrics, sizeof *m->metrics))
        return env_fail(e, ST_E_NOMEM, __FILE__, __LINE__, "no memory"), -1;
    at = &m->metrics[m->n_metrics];
    at->part = c->part;
    st_sized_copy(&at->decl, sizeof at->decl, given);
    at->decl.name = st_arena_strdup(m->arena, given->name);
    at->pooled = alone ? NULL : at->decl.name;
    at->shown = alone ? at->decl.name : st_arena_printf(m->arena, "%s.%s", c->part->path, at->decl.name);
    if (!at->decl.name || !at->shown) return env_fail(e, ST_E_NOMEM, __FILE__, __LINE__, "no memory"), -1;
    return m->n_metrics++;
}

/* ---- nested stacks ---- */

static bool any_symbol(void *ctx, char symbol) { return symbol > ' ' && symbol < 127; }
static const char *no_list(void *ctx) { return ""; }

static int add_nested(env_state *c, const st_stack_def *def, const char *path, const char *symbols)
{
    st_model *m = c->m;
    model_stack *st = NULL;
    int rc = model_add_stack(m, c->part, def, path, symbols, &st, c->diags);

    for (int32_t i = 0; rc == ST_OK && i < st->n; i++) rc = model_configure_layer(m, st->layers[i], c->diags);
    if (rc != ST_OK) {
        c->reported = c->diags->errors > 0; /* here, or where the symbol was used first */
        return env_fail(&c->env, rc, __FILE__, __LINE__, "the layers of %s were refused", path), -1;
    }
    for (int32_t i = 0; i < m->n_stacks; i++)
        if (m->stacks[i] == st) return i;
    return -1;
}

/* The text before '/' numbers in the pattern: part k is what follows the k-th '/'. */
static int stack_of_part(env_state *c, const st_stack_def *given)
{
    st_model *m = c->m;
    st_stack_def def = *given;

    if (given->part > m->parts_of_pattern.depths)
        return env_fail(&c->env, ST_E_CONFIG, __FILE__, __LINE__, "part %d: the pattern has %d after '/'", given->part,
                        m->parts_of_pattern.depths),
               -1;
    def.hidden = m->stack_keys.hidden;
    def.rows = m->shape.tokens;
    def.norm = m->stack_keys.norm + ST_NORM_RMS1P;
    def.eps = m->stack_keys.norm_eps;
    def.max_spans = st_shape_segments(&m->shape);
    return add_nested(c, &def, st_arena_printf(m->arena, "%s.%d.layers", c->part->path, given->part),
                      m->parts_of_pattern.depth[given->part - 1].symbols);
}

static int env_stack(st_env *e, const st_stack_def *given)
{
    env_state *c = state_of(e);
    st_model *m = c->m;
    st_symbols any = {NULL, any_symbol, no_list};
    st_pattern p;
    st_error err = {0};
    st_stack_def def;

    if (e->status != ST_OK) return -1;
    st_sized_copy(&def, sizeof def, given);
    if (c->part->kind != ST_KIND_HEAD && c->part->kind != ST_KIND_ENCODER)
        return env_fail(e, ST_E_INTERNAL, __FILE__, __LINE__, "only heads and encoders have nested stacks"), -1;
    if (def.part > 0) return stack_of_part(c, &def);
    if (st_pattern_parse(def.pattern, &any, 0, m->arena, &p, &err) != ST_OK || st_pattern_check(&p, &err) != ST_OK)
        return env_fail_key(e, "pattern", ST_E_CONFIG, __FILE__, __LINE__, "pattern %s: %s", def.pattern, err.message),
               -1;
    if (p.depths)
        return env_fail_key(e, "pattern", ST_E_CONFIG, __FILE__, __LINE__, "pattern %s: '/' has no meaning here",
                            def.pattern),
               -1;
    if (def.hidden < 1 || def.rows < 1)
        return env_fail(e, ST_E_CONFIG, __FILE__, __LINE__, "%s: %lld rows of %lld columns", def.name,
                        (long long)def.rows, (long long)def.hidden),
               -1;
    return add_nested(c, &def, st_arena_printf(m->arena, "%s.%s", c->part->path, def.name), p.main.symbols);
}

/* The head size that the view's tables must serve. */
static int env_stack_rotary_dim(st_env *e, int32_t id)
{
    const st_model *m = state_of(e)->m;

    if (e->status != ST_OK) return 0;
    if (id >= 0 && id < m->n_stacks && m->stacks[id]->owner == state_of(e)->part) return m->stacks[id]->rotary_dim;
    return env_fail(e, ST_E_INTERNAL, __FILE__, __LINE__, "stack %d is not its own", id), 0;
}

/* ---- the environment of a part ---- */

static const st_env_api *env_api(void)
{
    static const st_env_api api = {
        .size = sizeof api,
        .declare = env_declare,
        .shared = env_shared,
        .tiles = env_tiles,
        .rotary = env_rotary,
        .accum = env_accum,
        .metric = env_metric,
        .stack = env_stack,
        .fail = env_fail,
        .fail_key = env_fail_key,
        .stack_rotary_dim = env_stack_rotary_dim,
    };
    return &api;
}

static void layer_env(const model_part *p, st_env *e)
{
    const model_stack *st = p->stack;
    e->hidden = st->hidden;
    e->rows = e->tokens = e->tokens_time = st->rows;
    e->norm_eps = st->eps;
    e->norm = st->kind;
    e->layers = st->n;
    e->layer = p->index;
    e->depth = st->depth;
    e->max_segments = st->max_segments;
    e->ordinal = p->ordinal;
    e->instances = st->instances[st->symbols[p->index] & 127];
}

void model_env(st_model *m, model_part *p, st_env *e)
{
    memset(e, 0, sizeof *e);
    e->size = sizeof *e;
    e->api = env_api();
    e->host = &m->base->host;
    e->hidden = m->stack_keys.hidden;
    e->vocab = m->stack_keys.vocab;
    e->norm_eps = m->stack_keys.norm_eps;
    e->norm = m->stack_keys.norm + ST_NORM_RMS1P;
    e->layers = m->trunk ? m->trunk->n : 0;
    e->layer = -1;
    e->depths = m->parts_of_pattern.depths;
    e->train = m->train;
    e->dtype = m->dtype;
    e->acc_dtype = m->acc_dtype;
    e->axes = m->shape.axes;
    e->max_segments = st_shape_segments(&m->shape);
    e->rows = e->tokens = e->tokens_time = m->shape.tokens;
    e->media_caps = p->kind == ST_KIND_ENCODER ? &m->shape.caps : NULL;
    e->data = m->mesh.data;
    e->context = m->mesh.context;
    e->tensor = m->mesh.tensor;
    e->expert = m->mesh.expert;
    e->media = m->mesh.media;
    if (p->stack) layer_env(p, e);
}

int model_configure(st_model *m, model_part *p, int (*configure)(void *, st_env *), st_diags *d)
{
    st_error err = {0};
    env_state c = {.m = m, .part = p, .error = &err, .diags = d};
    unsigned char symbol = p->proto && p->kind == ST_KIND_LAYER ? (unsigned char)p->proto->symbol : 0;
    int rc;

    model_env(m, p, &c.env);
    if (symbol && m->refused[symbol]) return ST_E_CONFIG; /* the same words for every layer of this symbol */
    rc = configure ? configure(p->self, &c.env) : ST_OK;
    if (rc == ST_OK) rc = c.env.status;
    if (rc == ST_OK) return ST_OK;
    m->refused[symbol] = symbol != 0;
    if (!err.code)
        st_fail(&err, rc, "plugin %s refused its settings without a word", p->proto ? p->proto->plugin->name : "host");
    return report(&c, rc, NULL);
}

/* The host's norm in front of a layer, then what the layer declares. */
int model_configure_layer(st_model *m, model_part *p, st_diags *d)
{
    st_error e = {0};

    if (model_declare_norms(m, p, &e) != ST_OK)
        return st_spec_fail_section(m->spec, d, p->section, NULL, "%s", e.message);
    return model_configure(m, p, p->layer.configure, d);
}

/* What an encoder derives from [batch] before it is configured. */
int model_capacity(st_model *m, model_part *p, st_diags *d)
{
    st_error err = {0};
    env_state c = {.m = m, .part = p, .error = &err, .diags = d};
    int rc;

    model_env(m, p, &c.env);
    rc = m->encoder_ops.capacity(p->self, &c.env, &m->shape.caps);
    if (rc == ST_OK) rc = c.env.status;
    if (rc == ST_OK) return ST_OK;
    if (!err.code) st_fail(&err, rc, "plugin %s refused the capacities of [batch]", p->proto->plugin->name);
    return report(&c, rc, NULL);
}
