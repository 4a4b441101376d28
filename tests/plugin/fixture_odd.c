/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin that is wrong in the one way that $ST_FIXTURE_ODD names; without it, a layer that is as it should be. Each
 * opening asks again, so one module serves for all of test_refuse.c. */
#include <stdbool.h>
#include <stdlib.h>
#include <strata/backend.h>
#include <strata/dataset.h>
#include <strata/encoder.h>
#include <strata/head.h>
#include <strata/layer.h>
#include <strata/optimizer.h>
#include <strata/position.h>
#include <string.h>

typedef union any_ops {
    uint32_t size;
    void (*member[64])(void);
    st_backend_ops backend;
    st_layer_ops layer;
    st_position_ops position;
    st_encoder_ops encoder;
    st_head_ops head;
    st_dataset_ops dataset;
    st_optimizer_ops optimizer;
} any_ops;
struct self {
    int64_t width, depth;
    int32_t mode, pad;
};
static const st_param good_params[] = {
    ST_INT(struct self, width, "8", 1, 64, "", 0, "width of the layer"),
    ST_INT(struct self, depth, "8", 1, 64, "", 0, "depth of the layer"),
    ST_CHOICE(struct self, mode, "soft", "soft|hard", 0, "how it works"),
};
static const st_slot slots[33] = {{"kept", 0, 0}, {NULL, 0, 0}};
static const st_map maps[] = {{"hf", "w", "w.weight", 0, 0, 0, 0}, {"hf", NULL, "x", 0, 0, 0, 0},
                              {"hf", "w", "rows", 0, 0, ST_MAP_ROWS, 0}};
static const st_ops no_ops; /* size 0 */
static const st_ops some_ops = {.size = sizeof(st_ops)};

static void never(void) { abort(); }

static const char *odd_name(void)
{
    const char *name = getenv("ST_FIXTURE_ODD");
    return name ? name : "";
}
static bool is(const char *name) { return !strcmp(odd_name(), name); }
static bool begins(const char *name) { return !strncmp(odd_name(), name, strlen(name)); }

/* Every operation is there; what are numbers and tables is set per kind. */
static void fill_ops(any_ops *o, st_plugin *p)
{
    for (size_t i = 0; i < ST_COUNT(o->member); i++) o->member[i] = never;
    if (begins("backend")) {
        p->kind = ST_KIND_BACKEND;
        o->backend.size = sizeof o->backend;
        o->backend.ops = is("backend table") ? &no_ops : &some_ops;
        if (is("backend lacks")) o->backend.sync = NULL, o->backend.open = NULL;
    } else if (begins("position")) {
        p->kind = ST_KIND_POSITION;
        o->position.size = sizeof o->position;
        o->position.axes = is("position axes") ? 17 : 3;
        if (is("position pair")) o->position.rotary_dim = NULL;
        if (is("position embed")) o->position.embed_bwd = NULL;
    } else if (begins("encoder")) {
        p->kind = ST_KIND_ENCODER;
        o->encoder.size = sizeof o->encoder;
        o->encoder.n_slots = o->encoder.n_maps = 0;
        if (is("encoder slots")) o->encoder.n_slots = 33, o->encoder.slots = slots;
        if (is("encoder backward")) o->encoder.backward = NULL;
    } else if (begins("head")) {
        p->kind = ST_KIND_HEAD;
        o->head.size = sizeof o->head;
        o->head.n_maps = 3;
        o->head.maps = is("head maps") ? NULL : maps;
    } else if (begins("dataset")) {
        p->kind = ST_KIND_DATASET;
        o->dataset.size = sizeof o->dataset;
        o->dataset.get = NULL;
        if (is("dataset stream")) p->caps = ST_CAP_STREAM, o->dataset.save = NULL;
    } else if (begins("optimizer")) {
        p->kind = ST_KIND_OPTIMIZER;
        o->optimizer.size = sizeof o->optimizer;
        o->optimizer.n_hyper = is("optimizer hyper") ? 65 : 4;
        if (is("optimizer lacks")) o->optimizer.update = NULL;
    } else {
        o->layer.size = is("ops long") ? sizeof *o : is("ops short") ? 2 : sizeof o->layer;
        o->layer.role = is("role") ? 9 : ST_ROLE_CHANNEL;
        o->layer.tokens = is("tokens") ? 9 : ST_GATHERED;
        o->layer.n_slots = begins("slot") ? 2 : 0;
        o->layer.slots = is("slots absent") ? NULL : slots;
        o->layer.n_maps = begins("map") ? 3 : 0;
        o->layer.maps = is("map rows") ? maps + 2 : maps;
        if (is("map rows")) o->layer.n_maps = 1, o->layer.map_row = NULL;
        if (is("no forward")) o->layer.forward = NULL;
    }
}

static void spoil_params(st_param *q)
{
    if (is("param key")) q[1].key = "De-pth";
    if (is("param no key")) q[1].key = NULL;
    if (is("param type")) q[1].type = 99;
    if (is("param size")) q[1].size = 4;
    if (is("param choices")) q[2].choices = "";
    if (is("param help")) q[1].help = NULL;
    if (is("param range")) q[1].min = 65;
    if (is("param required")) q[1].flags = ST_PF_REQUIRED;
    if (is("param twice")) q[1].key = "width";
    if (is("param alias")) q[1].alias = "width";
    if (is("param bytes")) q[1].offset = 4;
}

static void spoil(st_plugin *p)
{
    if (is("param_size")) p->param_size = 8;
    if (is("n_params")) p->n_params = 5000;
    if (is("self_size")) p->self_size = 1u << 30;
    if (is("kernel half")) p->kernel_iface = 3;
    if (is("caps")) p->caps = 1ull << 40;
    if (is("needs")) p->needs = 1ull << 41;
    if (is("no params")) p->params = NULL;
    if (is("no ops")) p->ops = NULL;
    if (is("faults")) p->n_faults = 2;
    if (is("text empty")) p->version = "";
    if (is("text bytes")) p->author = "\xff";
}

ST_EXPORT const st_plugin *st_plugin_v1(void);
ST_EXPORT const st_plugin *st_plugin_v1(void)
{
    static any_ops ops;
    static st_param params[ST_COUNT(good_params)];
    static st_plugin p;
    memcpy(params, good_params, sizeof params);
    p = (st_plugin){ST_PLUGIN_HEAD(ST_KIND_LAYER),
                    .n_params = ST_COUNT(params),
                    .self_size = sizeof(struct self),
                    .caps = ST_CAP_TRAIN,
                    .name = "odd",
                    .version = "0.1",
                    .license = "Apache-2.0",
                    .author = "tests",
                    .summary = "a plugin with one thing wrong",
                    .description = "",
                    .params = params,
                    .ops = &ops};
    fill_ops(&ops, &p);
    spoil_params(params);
    spoil(&p);
    return is("no descriptor") ? NULL : &p;
}

