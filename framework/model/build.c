/* SPDX-License-Identifier: Apache-2.0 */
/* model/build.c - a spec becomes a model: plugins bound, everything declared, capacities known. Opens no device. */
#include "model/private.h"
#include <stdlib.h>
#include <string.h>

static int keep_first(int first, int rc) { return first != ST_OK ? first : rc; }

/* ---- shapes ---- */

static int bind_shape(st_model *m, st_diags *d)
{
    st_row_shape *s = &m->shape;
    const batch_keys *b = &m->batch_keys;
    int64_t tile = m->facts.tile > 0 ? m->facts.tile : 1, tokens = (b->tokens + tile - 1) / tile * tile;
    int64_t longest = b->max_len == ST_UNSET_INT ? b->tokens : b->max_len;

    if (longest > b->tokens)
        return st_spec_fail(m->spec, d, st_spec_get(m->spec, "batch", "max_len"), "at most [batch] tokens",
                            "max_len = %lld: a row holds %lld tokens", (long long)longest, (long long)b->tokens);
    if (tokens * m->stack_keys.hidden > (int64_t)1 << 40)
        return st_spec_fail(m->spec, d, st_spec_get(m->spec, "batch", "tokens"), NULL,
                            "tokens = %lld x hidden = %lld: too large", (long long)b->tokens,
                            (long long)m->stack_keys.hidden);
    s->tokens = (int32_t)tokens;
    s->sequences = (int32_t)(b->sequences < tokens ? b->sequences : tokens);
    s->max_len = (int32_t)longest;
    s->depths = m->parts_of_pattern.depths;
    return ST_OK;
}

/* ---- position, encoder, heads, optimizer ---- */

static int bind_position(st_model *m, st_diags *d)
{
    int rc;

    if (!st_spec_has(m->spec, "position")) return ST_OK;
    ST_TRY(st_instance_create(m->registry, m->spec, ST_KIND_POSITION, NULL, "position", &m->position, d));
    st_ops_copy(m->position.plugin, &m->position_ops, sizeof m->position_ops);
    m->shape.axes = m->position_ops.axes;
    m->position_part = model_add_part(m, ST_KIND_POSITION, "position", "position", &m->position, m->position.self);
    if (!m->position_part) return ST_E_NOMEM;
    rc = model_configure(m, m->position_part, m->position_ops.configure, d);
    if (rc != ST_OK) m->position_ops.tables = NULL; /* layers are looked at all the same, without asking it */
    return rc;
}

static int bind_encoder(st_model *m, st_diags *d)
{
    st_media_caps *c = &m->shape.caps;
    int64_t given;

    if (!st_spec_has(m->spec, "encoder")) {
        if (m->batch_keys.images || m->batch_keys.patches)
            return st_spec_fail(m->spec, d, st_spec_get(m->spec, "batch", m->batch_keys.images ? "images" : "patches"),
                                "add [encoder] plugin = qwen35_vision", "rows hold images, but there is no [encoder]");
        return ST_OK;
    }
    if (m->batch_keys.images < 1 || m->batch_keys.patches < 1)
        return st_spec_fail_section(m->spec, d, "batch", "images = 8, patches = 2048",
                                    "an encoder needs [batch] images and patches: how much one row can hold");
    ST_TRY(st_instance_create(m->registry, m->spec, ST_KIND_ENCODER, NULL, "encoder", &m->encoder, d));
    st_ops_copy(m->encoder.plugin, &m->encoder_ops, sizeof m->encoder_ops);
    c->units = m->batch_keys.patches;
    c->items = c->spans = (int32_t)m->batch_keys.images;
    c->values = m->batch_keys.patch_values;
    given = c->units;
    m->encoder_part = model_add_part(m, ST_KIND_ENCODER, "encoder", "encoder", &m->encoder, m->encoder.self);
    if (!m->encoder_part) return ST_E_NOMEM;
    m->encoder_part->slots = m->encoder_ops.slots;
    m->encoder_part->n_slots = (int32_t)m->encoder_ops.n_slots;
    m->encoder_part->maps = m->encoder_ops.maps;
    m->encoder_part->n_maps = (int32_t)m->encoder_ops.n_maps;
    ST_TRY(model_capacity(m, m->encoder_part, d));
    if (c->units != given)
        return st_spec_fail(m->spec, d, st_spec_get(m->spec, "batch", "patches"),
                            st_arena_printf(m->arena, "patches = %lld", (long long)c->units),
                            "patches = %lld: encoder %s makes one token of %lld", (long long)given,
                            m->encoder.plugin->name, (long long)(c->rows > 0 ? c->units / c->rows : 0));
    m->shape.media = 1;
    return model_configure(m, m->encoder_part, m->encoder_ops.configure, d);
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* A language-model head stands first, written or not; then the sections [head.NAME] by name, so that a stored spec,
 * whose sections are sorted, gives the same sums in the same order. -> how many, or a negative code. */
static int list_heads(const st_model *m, const char **section, st_diags *d)
{
    const char *const *names;
    int n = st_spec_sections(m->spec, &names), k = 0;

    section[k++] = "head.lm";
    for (int i = 0; i < n; i++) {
        if (strncmp(names[i], "head.", 5) || !strcmp(names[i], "head.lm")) continue;
        if (k == MODEL_HEADS)
            return st_spec_fail_section(m->spec, d, names[i], NULL, "[%s]: a model has at most %d heads", names[i],
                                        MODEL_HEADS);
        section[k++] = names[i];
    }
    qsort(section + 1, (size_t)k - 1, sizeof *section, by_name);
    return k;
}

static int create_head(st_model *m, const char *section, st_instance *in, st_diags *d)
{
    const char *name = st_spec_get(m->spec, section, "plugin") ? NULL : section + 5;

    int rc;

    if (name) st_spec_take(m->spec, section, "plugin", name, NULL);
    rc = st_instance_create(m->registry, m->spec, ST_KIND_HEAD, name, section, in, d);
    if (rc != ST_OK) memset(in, 0, sizeof *in); /* one without plugin was refused */
    return rc;
}

static bool trains_depths(const st_instance *in)
{
    st_head_ops ops;

    if (!in->plugin) return false;
    st_ops_copy(in->plugin, &ops, sizeof ops);
    return ops.depths < 0 || ops.first_depth > 0;
}

/* Depths that no section's head trains go to the head that claims '/', as a symbol goes to the layer that claims it. It
 * takes the place that its section would have if it were written. */
static int add_depth_head(st_model *m, const char **section, int *n, st_diags *d)
{
    const st_manifest *claims;
    st_error e = {0};
    char *name;
    int at = 1;

    for (int i = 0; i < *n; i++)
        if (trains_depths(&m->heads[i]) || !m->heads[i].plugin) return ST_OK;
    claims = st_registry_symbol(m->registry, '/', &e);
    if (!claims)
        return st_spec_fail(m->spec, d, st_spec_get(m->spec, "stack", "pattern"),
                            e.hint[0] ? e.hint : "write [head.NAME] that trains them, or remove what follows '/'",
                            "the pattern has %d multi-token-prediction depths, but no head trains them: %s",
                            m->parts_of_pattern.depths, e.message);
    name = st_arena_printf(m->arena, "head.%s", claims->name);
    if (!name) return ST_E_NOMEM;
    while (at < *n && strcmp(section[at], name) < 0) at++;
    memmove(section + at + 1, section + at, (size_t)(*n - at) * sizeof *section);
    memmove(m->heads + at + 1, m->heads + at, (size_t)(*n - at) * sizeof *m->heads);
    memset(&m->heads[at], 0, sizeof m->heads[at]);
    section[at] = name;
    ++*n;
    return create_head(m, name, &m->heads[at], d);
}

static int configure_head(st_model *m, int32_t i, const char *section, st_diags *d)
{
    model_part *p = model_add_part(m, ST_KIND_HEAD, section, section, &m->heads[i], m->heads[i].self);

    if (!p) return ST_E_NOMEM;
    m->head_parts[i] = p;
    st_ops_copy(m->heads[i].plugin, &m->head_ops[i], sizeof m->head_ops[i]);
    p->maps = m->head_ops[i].maps;
    p->n_maps = (int32_t)m->head_ops[i].n_maps;
    return model_configure(m, p, m->head_ops[i].configure, d);
}

static int bind_heads(st_model *m, st_diags *d)
{
    const char *section[MODEL_HEADS + 1];
    int n = list_heads(m, section, d), first = ST_OK;

    if (n < 0) return n;
    m->heads = ST_NEW_N(m->arena, st_instance, MODEL_HEADS + 1);
    m->head_ops = ST_NEW_N(m->arena, st_head_ops, MODEL_HEADS + 1);
    m->head_parts = ST_NEW_N(m->arena, model_part *, MODEL_HEADS + 1);
    if (!m->heads || !m->head_ops || !m->head_parts) return ST_E_NOMEM;
    for (int i = 0; i < n; i++) first = keep_first(first, create_head(m, section[i], &m->heads[i], d));
    if (m->parts_of_pattern.depths) first = keep_first(first, add_depth_head(m, section, &n, d));
    for (int i = 0; i < n; i++)
        if (m->heads[i].plugin) first = keep_first(first, configure_head(m, i, section[i], d));
    m->n_heads = n;
    return first;
}

static int bind_optimizer(st_model *m, st_diags *d)
{
    const char *name = st_spec_get(m->spec, "optimizer", "plugin") ? NULL : "adamw";

    if (!m->train && !st_spec_has(m->spec, "optimizer")) return ST_OK;
    if (name) st_spec_take(m->spec, "optimizer", "plugin", name, NULL);
    ST_TRY(st_instance_create(m->registry, m->spec, ST_KIND_OPTIMIZER, name, "optimizer", &m->optimizer, d));
    st_ops_copy(m->optimizer.plugin, &m->optimizer_ops, sizeof m->optimizer_ops);
    if (m->optimizer_ops.n_hyper < 0 || m->optimizer_ops.n_hyper > 64)
        return st_spec_fail_section(m->spec, d, "optimizer", NULL, "optimizer %s: %d hyper-parameters",
                                    m->optimizer.plugin->name, m->optimizer_ops.n_hyper);
    if (!m->train) return ST_OK; /* its keys are known, nothing runs it */
    m->optimizer_part =
        model_add_part(m, ST_KIND_OPTIMIZER, "optimizer", "optimizer", &m->optimizer, m->optimizer.self);
    return m->optimizer_part ? model_configure(m, m->optimizer_part, m->optimizer_ops.configure, d) : ST_E_NOMEM;
}

static int bind_comm(st_model *m, st_diags *d)
{
    const char *name = st_spec_get(m->spec, "parallel", "plugin") ? NULL : "self";
    ST_TRY(st_instance_create(m->registry, m->spec, ST_KIND_COMM, name, "parallel", &m->comm, d));
    st_ops_copy(m->comm.plugin, &m->comm_ops, sizeof m->comm_ops);
    return ST_OK;
}

/* ---- the trunk ---- */

static int build_trunk(st_model *m, st_diags *d)
{
    st_stack_def def = {.size = sizeof def,
                        .hidden = m->stack_keys.hidden,
                        .rows = m->shape.tokens,
                        .norm = m->stack_keys.norm + ST_NORM_RMS1P,
                        .eps = m->stack_keys.norm_eps,
                        .max_spans = st_shape_segments(&m->shape)};
    st_error e = {0};
    int first = model_add_stack(m, m->host, &def, "layers", m->parts_of_pattern.main.symbols, &m->trunk, d);

    if (!m->trunk) return first;
    if (model_declare_host(m, &e) != ST_OK) return st_spec_fail_section(m->spec, d, "stack", NULL, "%s", e.message);
    for (int32_t i = 0; i < m->trunk->n; i++) /* also beside refused ones: all mistakes are told together */
        if (m->trunk->layers[i]) first = keep_first(first, model_configure_layer(m, m->trunk->layers[i], d));
    return first;
}

/* ---- checks between parts ---- */

static bool has_stack(const st_model *m, int32_t depth)
{
    for (int32_t i = 0; i < m->n_stacks; i++)
        if (m->stacks[i]->part == depth) return true;
    return false;
}

/* A head may run the layers of one depth again for the next, but then the pattern must say the same of both. */
static int check_depths(st_model *m, st_diags *d)
{
    const st_pattern *p = &m->parts_of_pattern;

    for (int32_t k = 1, from = 1; k <= p->depths; k++) {
        if (has_stack(m, k)) from = k;
        else if (!has_stack(m, from) || strcmp(p->depth[k - 1].symbols, p->depth[from - 1].symbols))
            return st_spec_fail(m->spec, d, st_spec_get(m->spec, "stack", "pattern"), "write equal depths",
                                "depth %d of the pattern is %s, but its head runs the layers of depth %d, %s", k,
                                p->depth[k - 1].symbols, from, p->depth[from - 1].symbols);
    }
    return ST_OK;
}

static int check_heads(st_model *m, st_diags *d)
{
    uint64_t have = m->position.plugin ? m->position.plugin->caps : ST_CAP_SHIFTABLE;
    const st_plugin *depths = NULL;

    for (int32_t i = 0; i < m->n_heads; i++) {
        const st_plugin *p = m->heads[i].plugin;
        if (trains_depths(&m->heads[i]) && depths)
            return st_spec_fail_section(m->spec, d, m->head_parts[i]->section, "keep one of the two",
                                        "heads %s and %s both train the depths of the pattern", depths->name, p->name);
        if (trains_depths(&m->heads[i])) depths = p;
        if (p->needs & ~have)
            return st_spec_fail(m->spec, d, st_spec_get(m->spec, "position", "plugin"),
                                "a rotary position can; or remove the head",
                                "head %s needs a position whose slots may hold another token "
                                "(ST_CAP_SHIFTABLE): %s does not allow that",
                                p->name, m->position.plugin->name);
        if (m->train && !(p->caps & ST_CAP_TRAIN))
            return st_spec_fail_section(m->spec, d, m->head_parts[i]->section, NULL, "head %s cannot train", p->name);
    }
    return check_depths(m, d);
}

static int check_train(st_model *m, st_diags *d)
{
    const st_instance *in[] = {&m->position, &m->encoder, &m->optimizer};
    int first = ST_OK;

    for (int i = 0; m->train && i < 3; i++)
        if (in[i]->plugin && !(in[i]->plugin->caps & ST_CAP_TRAIN))
            first = keep_first(first,
                               st_spec_fail_section(m->spec, d, in[i]->section, NULL,
                                                    "plugin %s cannot train (no ST_CAP_TRAIN)", in[i]->plugin->name));
    return first;
}

static int finish(st_model *m, st_diags *d)
{
    int first = model_bind_recompute(m, d);

    first = keep_first(first, check_heads(m, d));
    first = keep_first(first, check_train(m, d));
    first = keep_first(first, model_check_mesh(m, d));
    first = keep_first(first, model_check_symbols(m, d));
    first = keep_first(first, model_check_init(m, d));
    first = keep_first(first, model_assign_parts(m, d));
    if (first == ST_OK) first = model_classify(m, d);
    if (first == ST_OK) first = model_check_zero(m, d);
    if (first != ST_OK) return first;
    m->weight_list = ST_NEW_N(m->arena, const st_model_weight *, m->n_weights);
    if (!m->weight_list) return ST_E_NOMEM;
    for (int32_t i = 0; i < m->n_weights; i++) m->weight_list[i] = &m->weights[i]->pub;
    return model_make_layers(m);
}

/* Where there is no stack to configure, plugins' own keys are still looked at: all mistakes are told together. */
static int look_at_plugins(st_model *m, int first, st_diags *d)
{
    static const struct {
        const char *section;
        int32_t kind;
    } single[] = {{"position", ST_KIND_POSITION}, {"encoder", ST_KIND_ENCODER}};
    const char *const *names, *head[MODEL_HEADS + 1];
    int n = st_spec_sections(m->spec, &names);
    st_instance in;

    model_look_at_symbols(m, names, n, d);
    for (size_t i = 0; i < ST_COUNT(single); i++)
        if (st_spec_has(m->spec, single[i].section))
            (void)st_instance_create(m->registry, m->spec, single[i].kind, NULL, single[i].section, &in, d);
    n = list_heads(m, head, d);
    for (int i = 0; i < n; i++) (void)create_head(m, head[i], &in, d);
    (void)bind_optimizer(m, d);
    (void)bind_comm(m, d);
    return first;
}

static int build(st_model *m, st_diags *d)
{
    int first = model_bind_run(m, d), stale;

    if (first == ST_OK) first = model_bind_backend(m, d);
    else model_look_at_backend(m, d);
    first = keep_first(first, model_bind_keys(m, d));
    m->host = model_add_part(m, 0, "", "stack", NULL, NULL);
    if (!m->host) return ST_E_NOMEM;
    if (first == ST_OK || !st_spec_get(m->spec, "stack", "blocks"))
        first = keep_first(first, model_check_pattern(m, d));
    if (first == ST_OK) first = bind_shape(m, d);
    stale = model_check_keys(m, d);
    if (first != ST_OK) return look_at_plugins(m, first, d);
    first = keep_first(stale, model_take_mesh(m, d));
    first = keep_first(first, bind_position(m, d));
    first = keep_first(first, build_trunk(m, d));
    if (m->trunk) {
        first = keep_first(first, bind_encoder(m, d));
        first = keep_first(first, bind_heads(m, d));
    }
    first = keep_first(first, bind_optimizer(m, d));
    first = keep_first(first, bind_comm(m, d));
    first = keep_first(first, model_check_rules(m, d));
    return first != ST_OK ? first : finish(m, d);
}

int st_model_build(st_base *base, st_spec *spec, st_registry *registry, int train, st_model **out, st_diags *d)
{ return st_model_build_for(base, spec, registry, train, 0, out, d); }

int st_model_build_for(st_base *base, st_spec *spec, st_registry *registry, int train, int32_t ranks, st_model **out,
                       st_diags *d)
{
    st_arena *a = st_arena_create(0);
    st_model *m = a ? ST_NEW(a, st_model) : NULL;
    st_error none = {0};
    int rc, before = d->errors;

    *out = NULL;
    if (!m) {
        st_arena_destroy(a);
        st_fail(&none, ST_E_NOMEM, "no memory for a model");
        return st_diags_add(d, &none, NULL, false);
    }
    m->base = base;
    m->spec = spec;
    m->registry = registry;
    m->arena = a;
    m->train = train;
    m->ranks = ranks;
    m->mesh = st_mesh_single();
    rc = build(m, d);
    if (rc == ST_OK && d->errors > before) rc = ST_E_CONFIG;
    if (rc != ST_OK) {
        if (d->errors == before) {
            st_fail(&none, rc, "the model could not be built");
            st_diags_add(d, &none, NULL, false);
        }
        st_model_destroy(m);
        return rc;
    }
    *out = m;
    return ST_OK;
}

void st_model_destroy(st_model *m)
{
    if (!m) return;
    model_free(m);
    st_arena_destroy(m->arena);
}

/* ---- what others ask ---- */

const char *st_model_backend(const st_model *m) { return m->backend.plugin->name; }
const char *st_model_choice(const st_model *m) { return m->choice; }
const char *st_model_device(const st_model *m) { return m->device_words; }
int32_t st_model_dtype(const st_model *m) { return m->dtype; }
const char *st_model_pattern(const st_model *m) { return m->pattern; }
int64_t st_model_vocab(const st_model *m) { return m->stack_keys.vocab; }
int64_t st_model_hidden(const st_model *m) { return m->stack_keys.hidden; }
const st_row_shape *st_model_shape(const st_model *m) { return &m->shape; }
int32_t st_model_micros(const st_model *m) { return (int32_t)m->batch_keys.rows / m->mesh.data.size; }
const st_instance *st_model_position(const st_model *m) { return m->position.plugin ? &m->position : NULL; }
const st_instance *st_model_encoder(const st_model *m) { return m->encoder.plugin ? &m->encoder : NULL; }
