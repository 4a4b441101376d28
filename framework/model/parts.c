/* SPDX-License-Identifier: Apache-2.0 */
/* model/parts.c - parts and stacks: plugins bound to symbols, one instance per layer, blocks, recompute choices. */
#include "model/private.h"
#include <string.h>

bool model_grow(st_arena *a, void *list, int32_t n, int32_t *cap, size_t size)
{
    int32_t room = *cap ? 2 * *cap : 32;
    void *old, *more;

    if (n < *cap) return true;
    more = st_arena_alloc(a, (size_t)room * size);
    if (!more) return false;
    memcpy(&old, list, sizeof old);
    if (n) memcpy(more, old, (size_t)n * size);
    memcpy(list, &more, sizeof more);
    *cap = room;
    return true;
}

model_part *model_add_part(st_model *m, int32_t kind, const char *path, const char *section, const st_instance *proto,
                           void *self)
{
    model_part *p = ST_NEW(m->arena, model_part);

    if (!p || !model_grow(m->arena, &m->parts, m->n_parts, &m->cap_parts, sizeof *m->parts)) return NULL;
    p->id = m->n_parts;
    p->kind = kind;
    p->path = st_arena_strdup(m->arena, path);
    p->section = section;
    p->trains_as = kind == ST_KIND_ENCODER ? "vision" : "language";
    p->proto = proto;
    p->self = self;
    p->index = p->block = p->norm = p->norm_bias = -1;
    p->seed = st_hash64(path, strlen(path), 0);
    m->parts[m->n_parts++] = p;
    return p;
}

/* ---- symbols ---- */

static char *layer_section(st_model *m, char symbol) { return st_arena_printf(m->arena, "layer.%c", symbol); }

/* The plugin bound to a symbol by its section, else the one that claims it; bound once, its values copied to all
 * layers. */
static st_instance *bound_symbol(st_model *m, char symbol, st_diags *d)
{
    unsigned char at = (unsigned char)symbol;
    char *section = layer_section(m, symbol);
    const char *name = NULL;
    st_instance *in;

    if (at > 127 || m->refused[at]) return NULL;
    if (m->symbols[at]) return m->symbols[at];
    if (!st_spec_get(m->spec, section, "plugin")) {
        st_error e = {0};
        const st_manifest *claims = st_registry_symbol(m->registry, symbol, &e);
        if (!claims) {
            m->refused[at] = 1;
            st_spec_fail(m->spec, d, st_spec_get(m->spec, "stack", "pattern"),
                         e.hint[0] ? e.hint : "bind it: [layer.X] plugin = NAME", "%s", e.message);
            return NULL;
        }
        name = claims->name;
        st_spec_take(m->spec, section, "plugin", name, NULL);
    }
    in = ST_NEW(m->arena, st_instance);
    if (!in || st_instance_create(m->registry, m->spec, ST_KIND_LAYER, name, section, in, d) != ST_OK) {
        m->refused[at] = 1;
        return NULL;
    }
    in->symbol = symbol;
    if (m->train && !(in->plugin->caps & ST_CAP_TRAIN)) {
        m->refused[at] = 1;
        st_spec_fail_section(m->spec, d, section, "use another plugin", "plugin %s cannot train: it has no backward",
                             in->plugin->name);
        return NULL;
    }
    return m->symbols[at] = in;
}

/* Binds every symbol that has a section, used or not. */
void model_look_at_symbols(st_model *m, const char *const *sections, int n, st_diags *d)
{
    for (int i = 0; i < n; i++)
        if (!strncmp(sections[i], "layer.", 6) && sections[i][6] && !sections[i][7])
            (void)bound_symbol(m, sections[i][6], d);
}

static bool known(void *ctx, char symbol)
{
    st_model *m = ctx;
    st_error e = {0};
    return st_spec_has(m->spec, layer_section(m, symbol)) || st_registry_symbol(m->registry, symbol, &e) ||
           e.code != ST_E_NOTFOUND;
}

static const char *list_symbols(void *ctx)
{
    st_model *m = ctx;
    const st_manifest *const *all;
    const char *const *names;
    char seen[128] = {0}, text[260];
    int n = st_registry_list(m->registry, &all), k = 0, s = st_spec_sections(m->spec, &names);

    for (int i = 0; i < n; i++)
        if (all[i]->symbol > 0 && all[i]->kind == ST_KIND_LAYER) seen[(unsigned char)all[i]->symbol & 127] = 1;
    for (int i = 0; i < s; i++)
        if (!strncmp(names[i], "layer.", 6) && names[i][6] > 0 && !names[i][7])
            seen[(unsigned char)names[i][6] & 127] = 1;
    for (int i = 33; i < 127; i++)
        if (seen[i]) {
            text[k++] = (char)i;
            text[k++] = ' ';
        }
    text[k ? k - 1 : 0] = 0;
    return st_arena_strdup(m->arena, text);
}

/* The trunk's pattern: written out, or made from blocks and cadence; both may be given when they agree. */
static int pattern_text(st_model *m, st_diags *d, char **out, const st_value **at)
{
    const stack_keys *k = &m->stack_keys;
    const st_value *blocks = st_spec_get(m->spec, "stack", "blocks");
    int64_t depths = k->mtp_depths == ST_UNSET_INT ? 0 : k->mtp_depths;
    st_error e = {0};
    char *made = NULL;

    *at = st_spec_get(m->spec, "stack", "pattern");
    if (blocks) {
        const char *why = st_symbol_refused(k->linear);
        if (!why) why = st_symbol_refused(k->full);
        if (!why) why = st_symbol_refused(k->mlp);
        if (why)
            return st_spec_fail(m->spec, d, blocks, why, "linear = %s, full = %s, mlp = %s: one symbol each", k->linear,
                                k->full, k->mlp);
        if (st_pattern_expand(k->blocks, k->cadence, k->linear[0], k->full[0], k->mlp[0], depths, m->arena,
                              &made, &e) != ST_OK)
            return st_spec_fail(m->spec, d, blocks, e.hint, "%s", e.message);
    }
    if (!*at && !made)
        return st_spec_fail_section(m->spec, d, "stack", "pattern = G-G-G-*-, or blocks = 4",
                                    "neither pattern nor blocks is given");
    if (!*at) *at = blocks;
    *out = made ? made : st_arena_strdup(m->arena, k->pattern);
    return *out ? ST_OK : ST_E_NOMEM;
}

static int pattern_fail(st_model *m, st_diags *d, const st_value *at, const st_error *e)
{
    if (!strcmp(at->key, "pattern")) return st_spec_fail_inside(m->spec, d, at, e);
    return st_spec_fail(m->spec, d, at, e->hint, "%s", e->message);
}

static char *plain_text(st_arena *a, const st_pattern *p)
{
    char *text = st_arena_strdup(a, p->main.symbols);
    for (int i = 0; i < p->depths && text; i++) text = st_arena_printf(a, "%s/%s", text, p->depth[i].symbols);
    return text;
}

/* Without blocks the depths are the pattern's; a number that says otherwise is a mistake in one of the two. It has no
 * default: a checkpoint's spec, which has all of them written out, would say 0. */
static int check_depth_count(st_model *m, st_diags *d)
{
    const st_value *at = st_spec_get(m->spec, "stack", "mtp_depths");
    int64_t said = m->stack_keys.mtp_depths;

    if (!at || said == ST_UNSET_INT || said == m->parts_of_pattern.depths) return ST_OK;
    return st_spec_fail(m->spec, d, at, "a depth is what follows a '/' of the pattern",
                        "mtp_depths = %lld, but the pattern has %d", (long long)said, m->parts_of_pattern.depths);
}

int model_check_pattern(st_model *m, st_diags *d)
{
    st_symbols symbols = {m, known, list_symbols};
    const st_value *at, *given;
    st_pattern other;
    st_error e = {0};
    char *text = NULL;

    ST_TRY(pattern_text(m, d, &text, &at));
    if (st_pattern_parse(text, &symbols, 0, m->arena, &m->parts_of_pattern, &e) != ST_OK ||
        st_pattern_check(&m->parts_of_pattern, &e) != ST_OK)
        return pattern_fail(m, d, at, &e);
    m->pattern = plain_text(m->arena, &m->parts_of_pattern);
    given = st_spec_get(m->spec, "stack", "pattern");
    if (given && !st_spec_get(m->spec, "stack", "blocks")) ST_TRY(check_depth_count(m, d));
    if (given && st_spec_get(m->spec, "stack", "blocks")) {
        if (st_pattern_parse(m->stack_keys.pattern, &symbols, 0, m->arena, &other, &e) != ST_OK)
            return pattern_fail(m, d, given, &e);
        if (strcmp(plain_text(m->arena, &other), m->pattern))
            return st_spec_fail(m->spec, d, given, "give one of them",
                                "pattern is %s but blocks, cadence and mtp_depths give %s",
                                plain_text(m->arena, &other), m->pattern);
    }
    return m->pattern ? ST_OK : ST_E_NOMEM;
}

/* ---- stacks ---- */

/* A mixer starts a block, a per-token layer joins it: block i of an alternating pattern is layers 2i and 2i + 1. */
static void number_blocks(model_stack *st)
{
    int32_t block = -1, joined = 1;
    for (int32_t i = 0; i < st->n; i++) {
        if (st->layers[i]->layer.role == ST_ROLE_CHANNEL && !joined) joined = 1;
        else {
            block++;
            joined = st->layers[i]->layer.role == ST_ROLE_CHANNEL;
        }
        st->layers[i]->block = block;
    }
}

static int add_layer(st_model *m, model_stack *st, int32_t i, st_diags *d)
{
    unsigned char symbol = (unsigned char)st->symbols[i] & 127;
    int32_t ordinal = st->instances[symbol]++;
    st_instance *proto = bound_symbol(m, st->symbols[i], d);
    model_part *p;
    void *self;

    if (!proto) return ST_E_CONFIG;
    self = st_arena_alloc(m->arena, proto->plugin->self_size ? proto->plugin->self_size : 1);
    p = model_add_part(m, ST_KIND_LAYER, st_arena_printf(m->arena, "%s.%d", st->path, i), proto->section, proto, self);
    if (!self || !p) return ST_E_NOMEM;
    memcpy(self, proto->self, proto->plugin->self_size);
    st_ops_copy(proto->plugin, &p->layer, sizeof p->layer);
    p->slots = p->layer.slots;
    p->n_slots = (int32_t)p->layer.n_slots;
    p->maps = p->layer.maps;
    p->n_maps = (int32_t)p->layer.n_maps;
    p->stack = st;
    p->index = i;
    p->ordinal = ordinal;
    p->trains_as = st->owner->trains_as;
    st->layers[i] = p;
    return ST_OK;
}

int model_add_stack(st_model *m, model_part *owner, const st_stack_def *def, const char *path, const char *symbols,
                    model_stack **out, st_diags *d)
{
    model_stack *st = ST_NEW(m->arena, model_stack);
    int first = ST_OK;

    if (!st || !model_grow(m->arena, &m->stacks, m->n_stacks, &m->cap_stacks, sizeof *m->stacks)) return ST_E_NOMEM;
    st->path = path;
    st->owner = owner;
    st->symbols = st_arena_strdup(m->arena, symbols);
    st->n = (int32_t)strlen(symbols);
    st->hidden = def->hidden;
    st->rows = def->rows;
    st->kind = def->norm;
    st->eps = def->eps;
    st->part = def->part;
    st->depth = def->part;
    st->maps = def->maps;
    st->n_maps = def->n_maps;
    st->max_segments = def->max_spans;
    st->layers = ST_NEW_N(m->arena, model_part *, st->n ? st->n : 1);
    if (!st->layers || !st->symbols) return ST_E_NOMEM;
    m->stacks[m->n_stacks++] = st;
    for (int32_t i = 0; i < st->n; i++) {
        int rc = add_layer(m, st, i, d);
        if (rc != ST_OK && first == ST_OK) first = rc;
    }
    if (first == ST_OK) number_blocks(st);
    *out = st;
    return first;
}

/* ---- recompute: which layers run again, which slots are not kept ---- */

static int slot_of(const model_part *p, const char *name)
{
    for (int32_t i = 0; i < p->n_slots; i++)
        if (!strcmp(p->slots[i].name, name)) return i;
    return -1;
}

static char *slot_names(st_arena *a, const model_part *p)
{
    char *text = NULL;
    for (int32_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].flags & ST_DROP)
            text = st_arena_printf(a, text ? "%s, %s" : "%s%s", text ? text : "can be dropped: ", p->slots[i].name);
    return text;
}

/* "G.conv": of every layer with that symbol; "encoder.patches": of the encoder. */
static bool named(const model_part *p, const char *word, size_t n)
{
    if (p->kind == ST_KIND_ENCODER) return n == 7 && !strncmp(word, "encoder", n);
    return p->kind == ST_KIND_LAYER && n == 1 && p->proto->symbol == word[0];
}

static int bind_drop(st_model *m, const char *word, st_diags *d)
{
    const st_value *at = st_spec_get(m->spec, "recompute", "drop");
    const char *dot = strchr(word, '.');
    int32_t seen = 0;

    if (!dot) return st_spec_fail(m->spec, d, at, "for example G.conv", "drop: '%s' is not SYMBOL.slot", word);
    for (int32_t i = 0; i < m->n_parts; i++) {
        model_part *p = m->parts[i];
        int slot;
        if (!named(p, word, (size_t)(dot - word))) continue;
        seen = 1;
        slot = slot_of(p, dot + 1);
        if (slot >= 0 && p->slots[slot].flags & ST_DROP) p->drop |= 1u << slot;
        else {
            char *can = slot_names(m->arena, p);
            return st_spec_fail(m->spec, d, at, can ? can : "nothing of it can be dropped", "drop: %s %s", word,
                                slot < 0 ? "is no slot of this layer"
                                         : "must be kept, backward cannot compute it again");
        }
    }
    return seen ? ST_OK
                : st_spec_fail(m->spec, d, at, NULL, "drop: no layer of the pattern has the symbol '%.*s'",
                               (int)(dot - word), word);
}

static int bind_full(st_model *m, const char *word, st_diags *d)
{
    int32_t all = !strcmp(word, "all"), seen = 0;

    if (!strcmp(word, "none")) return ST_OK;
    for (int32_t i = 0; i < m->n_parts; i++)
        if (m->parts[i]->kind == ST_KIND_LAYER && (all || (word[0] == m->parts[i]->proto->symbol && !word[1]))) {
            m->parts[i]->full = 1;
            seen = 1;
        }
    return seen ? ST_OK
                : st_spec_fail(m->spec, d, st_spec_get(m->spec, "recompute", "full"),
                               "none, all, or symbols such as G,*", "full: no layer of the pattern has the symbol '%s'",
                               word);
}

/* Words of a list, separated by commas or blanks; fn on each. */
static int each_word(st_model *m, const char *list, int (*fn)(st_model *, const char *, st_diags *), st_diags *d)
{
    int first = ST_OK;
    for (const char *at = list; at && *at;) {
        size_t n = strcspn(at, ", \t");
        if (n) {
            int rc = fn(m, st_arena_strndup(m->arena, at, n), d);
            if (rc != ST_OK && first == ST_OK) first = rc;
        }
        at += n + (at[n] != 0);
    }
    return first;
}

int model_set_recompute(st_model *m, const recompute_keys *k, st_diags *d)
{
    int rc, rc2;

    for (int32_t i = 0; i < m->n_parts; i++) m->parts[i]->full = 0, m->parts[i]->drop = 0;
    rc = each_word(m, k->full, bind_full, d);
    rc2 = each_word(m, k->drop, bind_drop, d);
    return rc != ST_OK ? rc : rc2;
}

int model_bind_recompute(st_model *m, st_diags *d) { return model_set_recompute(m, &m->recompute, d); }

/* A section that binds a symbol nobody uses is a mistake in the pattern or in the section. */
int model_check_symbols(st_model *m, st_diags *d)
{
    const char *const *names;
    int n = st_spec_sections(m->spec, &names), first = ST_OK;

    for (int i = 0; i < n; i++) {
        unsigned char symbol;
        if (strncmp(names[i], "layer.", 6)) continue;
        symbol = (unsigned char)names[i][6];
        if (symbol && symbol < 128 && !names[i][7] && (m->symbols[symbol] || m->refused[symbol])) continue;
        if (symbol && names[i][7])
            st_spec_fail_section(m->spec, d, names[i], st_symbol_refused(names[i] + 6), "[%s] names no symbol", names[i]);
        else
            st_spec_fail_section(m->spec, d, names[i], "remove the section, or use the symbol",
                                 "no pattern uses the symbol %s", names[i] + 6);
        first = ST_E_CONFIG;
    }
    return first;
}

/* A layer of the trunk or of a depth, not of an encoder. */
bool model_in_pattern(const st_model *m, const model_part *p)
{ return p->stack && (p->stack == m->trunk || p->stack->part > 0); }

/* The public list: parts in order of configuration. */
int model_make_layers(st_model *m)
{
    m->layer_list = ST_NEW_N(m->arena, st_model_layer, m->n_parts);
    if (!m->layer_list) return ST_E_NOMEM;
    m->n_layer_list = m->n_parts;
    for (int32_t i = 0; i < m->n_parts; i++) {
        const model_part *p = m->parts[i];
        st_model_layer *l = &m->layer_list[i];
        l->path = p->path;
        l->section = p->section;
        l->kind = p->kind;
        l->index = p->index;
        l->block = p->block;
        l->depth = model_in_pattern(m, p) ? p->stack->depth : -1;
        l->symbol = p->proto ? p->proto->symbol : 0;
        l->plugin = p->proto ? p->proto->plugin : NULL;
        l->self = p->self;
    }
    for (int32_t i = 0; i < m->n_weights; i++)
        if (!(m->weights[i]->pub.flags & ST_W_CONST))
            m->layer_list[m->weights[i]->part->id].parameters += m->weights[i]->pub.count;
    return ST_OK;
}

int st_model_layers(const st_model *m, const st_model_layer **out)
{
    *out = m->layer_list;
    return m->n_layer_list;
}
