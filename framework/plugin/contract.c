/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/contract.c - is everything there that a descriptor's kind and capabilities promise? Found when a module is
 * opened, by name, so that nothing missing is called in the middle of a run. */
#include "config.h"
#include "plugin/private.h"
#include <ctype.h>
#include <stdlib.h>
#include <strata/backend.h>
#include <strata/comm.h>
#include <strata/dataset.h>
#include <strata/encoder.h>
#include <strata/head.h>
#include <strata/layer.h>
#include <strata/optimizer.h>
#include <strata/position.h>
#include <string.h>

/* caps: needed when the plugin declares it; 0: always. unless: not needed when it declares that. */
typedef struct op {
    const char *name;
    size_t offset;
    uint64_t caps, unless;
} op;
/* clang-format off */
#define OP(T, m) {#m, offsetof(T, m), 0, 0}
#define OP_IF(T, m, caps) {#m, offsetof(T, m), caps, 0}
/* clang-format on */

static const op backend[] = {
    OP(st_backend_ops, ops),     OP(st_backend_ops, facts),  OP(st_backend_ops, count), OP(st_backend_ops, open),
    OP(st_backend_ops, close),   OP(st_backend_ops, alloc),  OP(st_backend_ops, free),  OP(st_backend_ops, queue),
    OP(st_backend_ops, event),   OP(st_backend_ops, record), OP(st_backend_ops, wait),  OP(st_backend_ops, done),
    OP(st_backend_ops, elapsed), OP(st_backend_ops, copy),   OP(st_backend_ops, set),   OP(st_backend_ops, sync)};
static const op comm[] = {OP(st_comm_ops, open),       OP(st_comm_ops, split),          OP(st_comm_ops, close),
                          OP(st_comm_ops, all_gather), OP(st_comm_ops, reduce_scatter), OP(st_comm_ops, all_reduce),
                          OP(st_comm_ops, all_to_all), OP(st_comm_ops, exchange),       OP(st_comm_ops, reduce),
                          OP(st_comm_ops, broadcast),  OP(st_comm_ops, group),          OP(st_comm_ops, host_reduce),
                          OP(st_comm_ops, check),      OP(st_comm_ops, abort)};
static const op layer[] = {OP(st_layer_ops, configure), OP(st_layer_ops, forward),
                           OP_IF(st_layer_ops, backward, ST_CAP_TRAIN)};
static const op position[] = {OP(st_position_ops, configure), OP(st_position_ops, assign)};
static const op encoder[] = {OP(st_encoder_ops, configure), OP(st_encoder_ops, capacity),
                             OP(st_encoder_ops, measure),   OP(st_encoder_ops, layout),
                             OP(st_encoder_ops, prepare),   OP(st_encoder_ops, collate),
                             OP(st_encoder_ops, forward),   OP_IF(st_encoder_ops, backward, ST_CAP_TRAIN)};
static const op head[] = {OP(st_head_ops, configure), OP(st_head_ops, loss)};
static const op dataset[] = {OP(st_dataset_ops, open),
                             OP(st_dataset_ops, count),
                             {"get", offsetof(st_dataset_ops, get), 0, ST_CAP_STREAM},
                             OP_IF(st_dataset_ops, next, ST_CAP_STREAM),
                             OP_IF(st_dataset_ops, save, ST_CAP_STREAM),
                             OP_IF(st_dataset_ops, restore, ST_CAP_STREAM)};
static const op optimizer[] = {OP(st_optimizer_ops, configure), OP(st_optimizer_ops, classify),
                               OP(st_optimizer_ops, hyper), OP(st_optimizer_ops, update)};

static const struct {
    const op *ops;
    size_t n, size;
} kinds[] = {
    {NULL, 0, 0},
    {backend, ST_COUNT(backend), sizeof(st_backend_ops)},
    {comm, ST_COUNT(comm), sizeof(st_comm_ops)},
    {layer, ST_COUNT(layer), sizeof(st_layer_ops)},
    {position, ST_COUNT(position), sizeof(st_position_ops)},
    {encoder, ST_COUNT(encoder), sizeof(st_encoder_ops)},
    {head, ST_COUNT(head), sizeof(st_head_ops)},
    {dataset, ST_COUNT(dataset), sizeof(st_dataset_ops)},
    {optimizer, ST_COUNT(optimizer), sizeof(st_optimizer_ops)},
};

static int bad(const st_plugin *p, const char *path, st_error *e, const char *fmt, ...) ST_PRINTF(4, 5);
static int bad(const st_plugin *p, const char *path, st_error *e, const char *fmt, ...)
{
    char text[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return st_fail_at(e, ST_E_ABI, path, 0, 0, "%s plugin %s: %s", st_kind_name((int)p->kind), p->name, text);
}

/* ---- texts ---- */

static int check_texts(const st_plugin *p, const char *path, st_error *e)
{
    const struct {
        const char *what, *text;
        bool empty;
    } texts[] = {{"name", p->name, false},    {"version", p->version, false}, {"license", p->license, true},
                 {"author", p->author, true}, {"summary", p->summary, false}, {"description", p->description, true}};
    st_differences d = {0};
    size_t at;

    for (size_t i = 0; i < ST_COUNT(texts); i++) {
        if (!texts[i].text) st_differ(&d, "%s: absent", texts[i].what);
        else if (!*texts[i].text && !texts[i].empty) st_differ(&d, "%s: empty", texts[i].what);
        else if (!st_utf8_valid(texts[i].text, strlen(texts[i].text), &at))
            st_differ(&d, "%s: not UTF-8", texts[i].what);
    }
    if (!d.n) return ST_OK;
    st_fail_at(e, ST_E_ABI, path, 0, 0, "this module's descriptor lacks texts that every plugin has");
    st_error_detail(e, "%s", d.text);
    return ST_E_ABI;
}

/* ---- operations ---- */

static bool is_set(const void *ops, size_t offset)
{
    void *member;
    memcpy(&member, (const char *)ops + offset, sizeof member);
    return member != NULL;
}

static int check_required(const st_plugin *p, const void *ops, const char *path, st_error *e)
{
    char missing[300] = "";
    size_t at = 0;

    for (size_t i = 0; i < kinds[p->kind].n; i++) {
        const op *o = &kinds[p->kind].ops[i];
        if ((o->caps && !(p->caps & o->caps)) || (p->caps & o->unless) || is_set(ops, o->offset)) continue;
        const char *why = o->caps == ST_CAP_TRAIN    ? " (for ST_CAP_TRAIN)"
                          : o->caps == ST_CAP_STREAM ? " (for ST_CAP_STREAM)"
                                                     : "";
        if (at < sizeof missing)
            at += (size_t)snprintf(missing + at, sizeof missing - at, "%s%s%s", at ? ", " : "", o->name, why);
    }
    return at ? bad(p, path, e, "its operations lack %s", missing) : ST_OK;
}

static int check_maps(const st_plugin *p, const char *path, const st_map *maps, uint32_t n, bool has_row, st_error *e)
{
    if (n && !maps) return bad(p, path, e, "it counts %u file names, but has no table of them", n);
    for (uint32_t i = 0; i < n; i++) {
        if (!maps[i].layout || !maps[i].weight || !maps[i].file)
            return bad(p, path, e, "file name %u is incomplete", i);
        if (maps[i].how == ST_MAP_ROWS && !has_row)
            return bad(p, path, e, "file name %s goes by rows, but the operation map_row is absent", maps[i].file);
    }
    return ST_OK;
}

static int check_slots(const st_plugin *p, const char *path, const st_slot *slots, uint32_t n, st_error *e)
{
    if (n > 32) return bad(p, path, e, "it has %u slots, at most 32 are kept", n);
    if (n && !slots) return bad(p, path, e, "it counts %u slots, but has no table of them", n);
    for (uint32_t i = 0; i < n; i++)
        if (!slots[i].name) return bad(p, path, e, "slot %u has no name", i);
    return ST_OK;
}

static int check_layer(const st_plugin *p, const char *path, const st_layer_ops *o, st_error *e)
{
    if (o->role != ST_ROLE_MIXER && o->role != ST_ROLE_CHANNEL)
        return bad(p, path, e, "its role is %u, known are %d (mixer) and %d (channel)", o->role, ST_ROLE_MIXER,
                   ST_ROLE_CHANNEL);
    if (o->tokens != ST_GATHERED && o->tokens != ST_SHARD)
        return bad(p, path, e, "its tokens are %u, known are %d (gathered) and %d (shard)", o->tokens, ST_GATHERED,
                   ST_SHARD);
    ST_TRY(check_slots(p, path, o->slots, o->n_slots, e));
    return check_maps(p, path, o->maps, o->n_maps, o->map_row != NULL, e);
}

static int check_position(const st_plugin *p, const char *path, const st_position_ops *o, st_error *e)
{
    if (o->axes < 0 || o->axes > 16) return bad(p, path, e, "it gives %d ids per token, known are 0 to 16", o->axes);
    if (!o->rotary_dim != !o->tables)
        return bad(p, path, e, "of the operations rotary_dim and tables only %s is there",
                   o->tables ? "tables" : "rotary_dim");
    if (o->embed && !o->embed_bwd && (p->caps & ST_CAP_TRAIN))
        return bad(p, path, e, "its operations lack embed_bwd (for ST_CAP_TRAIN)");
    return ST_OK;
}

typedef union any_ops {
    uint32_t size;
    st_backend_ops backend;
    st_comm_ops comm;
    st_layer_ops layer;
    st_position_ops position;
    st_encoder_ops encoder;
    st_head_ops head;
    st_dataset_ops dataset;
    st_optimizer_ops optimizer;
} any_ops;

static int check_kind(const st_plugin *p, const char *path, const any_ops *o, st_error *e)
{
    switch (p->kind) {
    case ST_KIND_BACKEND:
        if (o->backend.ops->size < sizeof(uint32_t) || o->backend.ops->size > sizeof(st_ops))
            return bad(p, path, e, "its table of ops has %u bytes, the host's %zu", o->backend.ops->size,
                       sizeof(st_ops));
        return ST_OK;
    case ST_KIND_LAYER: return check_layer(p, path, &o->layer, e);
    case ST_KIND_POSITION: return check_position(p, path, &o->position, e);
    case ST_KIND_ENCODER:
        ST_TRY(check_slots(p, path, o->encoder.slots, o->encoder.n_slots, e));
        return check_maps(p, path, o->encoder.maps, o->encoder.n_maps, false, e);
    case ST_KIND_HEAD: return check_maps(p, path, o->head.maps, o->head.n_maps, false, e);
    case ST_KIND_OPTIMIZER:
        if (o->optimizer.n_hyper < 0 || o->optimizer.n_hyper > 64)
            return bad(p, path, e, "it has %d hyper values, known are 0 to 64", o->optimizer.n_hyper);
        return ST_OK;
    default: return ST_OK;
    }
}

int st_contract_check(const st_plugin *p, const char *path, st_error *e)
{
    uint32_t size;
    any_ops ops;

    ST_TRY(check_texts(p, path, e));
    if (!p->ops) return bad(p, path, e, "it has no operations");
    memcpy(&size, p->ops, sizeof size);
    if (size < sizeof size || size > kinds[p->kind].size)
        return bad(p, path, e, "its operations have %u bytes, the host's %zu", size, kinds[p->kind].size);
    if (p->n_faults && !p->faults)
        return bad(p, path, e, "it counts %u fault texts, but has no table of them", p->n_faults);
    st_ops_copy(p, &ops, sizeof ops);
    ST_TRY(check_required(p, &ops, path, e));
    return check_kind(p, path, &ops, e);
}

/* ---- parameters ---- */

static size_t field_size(uint32_t type)
{
    static const unsigned char size[] = {0,
                                         sizeof(int32_t),
                                         sizeof(int64_t),
                                         sizeof(double),
                                         sizeof(int64_t),
                                         sizeof(char *),
                                         sizeof(int32_t),
                                         sizeof(st_ints),
                                         sizeof(char *),
                                         sizeof(st_floats)};
    return type < sizeof size ? size[type] : 0;
}

static bool is_key(const char *s)
{
    if (!s || !islower((unsigned char)*s)) return false;
    while (islower((unsigned char)*s) || isdigit((unsigned char)*s) || *s == '_') s++;
    return !*s;
}

static int check_param(const st_plugin *p, const st_param *q, const char *path, st_error *e)
{
    if (!is_key(q->key)) return bad(p, path, e, "parameter %d has no proper key", (int)(q - p->params));
    if (!field_size(q->type)) return bad(p, path, e, "parameter %s has the unknown type %u", q->key, q->type);
    if (q->size != field_size(q->type))
        return bad(p, path, e, "parameter %s: its field has %u bytes, its type takes %zu", q->key, q->size,
                   field_size(q->type));
    if (q->offset > p->self_size || q->size > p->self_size - q->offset)
        return bad(p, path, e, "parameter %s: bytes %u to %llu lie outside the instance's %u", q->key, q->offset,
                   (unsigned long long)q->offset + q->size, p->self_size);
    if (q->type == ST_P_ENUM && (!q->choices || !*q->choices))
        return bad(p, path, e, "parameter %s has no choices", q->key);
    if (!q->help || !*q->help) return bad(p, path, e, "parameter %s has no help", q->key);
    if (q->min > q->max) return bad(p, path, e, "parameter %s: its range %g to %g is empty", q->key, q->min, q->max);
    if ((q->flags & ST_PF_REQUIRED) && q->def)
        return bad(p, path, e, "parameter %s is required, but has the default '%s'", q->key, q->def);
    return ST_OK;
}

static int check_pair(const st_plugin *p, const st_param *a, const st_param *b, const char *path, st_error *e)
{
    if (!strcmp(a->key, b->key)) return bad(p, path, e, "parameter %s is there twice", a->key);
    if ((a->alias && !strcmp(a->alias, b->key)) || (b->alias && !strcmp(b->alias, a->key)))
        return bad(p, path, e, "parameters %s and %s share a name", a->key, b->key);
    if (a->offset < b->offset + b->size && b->offset < a->offset + a->size)
        return bad(p, path, e, "parameters %s and %s share bytes of the instance", a->key, b->key);
    return ST_OK;
}

/* Defaults go through the parser that user text goes through. */
static int check_defaults(const st_plugin *p, const char *path, st_error *e)
{
    st_diags *diags = calloc(1, sizeof *diags);
    st_param *params = calloc(p->n_params + 1u, sizeof *params);
    void *self = calloc(1, p->self_size + 1u);
    st_spec *spec = NULL;
    int rc = ST_OK;

    if (!diags || !params || !self) rc = st_fail_at(e, ST_E_NOMEM, path, 0, 0, "no memory to check this module");
    else rc = st_spec_parse(path, "", 0, ".", &spec, diags);
    for (uint32_t i = 0; rc == ST_OK && i < p->n_params; i++) {
        params[i] = p->params[i];
        params[i].flags = 0;
        const st_table one = {&params[i], 1, (uint32_t)sizeof *params, "default"};
        if (st_spec_bind(spec, "default", &one, self, NULL, diags) != ST_OK) {
            rc = bad(p, path, e, "the default '%s' of parameter %s is not a valid value", params[i].def, params[i].key);
            if (diags->n) st_error_detail(e, "%s", diags->item[0].error.message);
        }
    }
    st_spec_destroy(spec);
    free(self);
    free(params);
    free(diags);
    return rc;
}

int st_contract_params(const st_plugin *p, const char *path, st_error *e)
{
    for (uint32_t i = 0; i < p->n_params; i++) {
        ST_TRY(check_param(p, &p->params[i], path, e));
        for (uint32_t j = 0; j < i; j++) ST_TRY(check_pair(p, &p->params[j], &p->params[i], path, e));
    }
    return check_defaults(p, path, e);
}
