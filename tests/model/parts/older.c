/* SPDX-License-Identifier: Apache-2.0 */
/* A layer as if built against older headers: the structs that it hands to the host are shorter than the host's, and
 * what lies behind them is no value. It also draws first values of its own. */
#include <string.h>
#include <strata/layer.h>

typedef struct older {
    int32_t nested; /* in a nested stack of older_head: the row must not be longer than its maker said */
    st_wid w, drawn;
    int cells, metric;
} older;

/* A struct of which only the members in front of `member` exist. */
#define SHORT(T, member, ...) \
    T cut; \
    memset(&cut, 0x5a, sizeof cut); \
    { \
        const T known = {__VA_ARGS__}; \
        memcpy(&cut, &known, offsetof(T, member)); \
        cut.size = (uint32_t)offsetof(T, member); \
    }

static int fill(const void *self, uint64_t seed, int64_t first, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = (double)(seed % 1000003) + (double)(first + i) / 1024;
    return ST_OK;
}

static int add_cells(st_env *e)
{
    SHORT(st_accum, sum, .name = "cells", .n = 3, .reset = ST_EACH_STEP)
    return e->api->accum(e, &cut);
}

static int add_metric(st_env *e)
{
    SHORT(st_metric, unit, .kind = ST_METRIC_SUM, .name = "short")
    return e->api->metric(e, &cut);
}

static int configure(void *self, st_env *e)
{
    older *m = self;

    m->w = st_matrix(e, "w", e->hidden, e->hidden, ST_CUT_NONE);
    m->drawn = st_declare(e, (st_weight){.name = "drawn", .nd = 1, .dim = {8}, .init = ST_INIT_CALL, .fill = fill});
    m->cells = add_cells(e);
    m->metric = add_metric(e);
    return e->status;
}

/* No aux: an activation must not look for a place to leave what was before it. */
static int forward(const void *self, st_step *s, const st_tensor *x, const st_tensor *y)
{
    const older *m = self;
    SHORT(st_linear_args, aux, .w = m->w, .bias = -1, .act = ST_ACT_SILU, .x = x, .y = y)

    if (m->nested && s->row->spans.data) return ST_FAIL(s, ST_E_SHAPE, "spans that the row's maker does not know");
    return s->api->linear(s, &cut);
}

static const st_param params[] = {ST_BOOL(older, nested, "no", 0, "it stands in a nested stack")};
static const st_layer_ops ops = {
    .size = sizeof ops, .role = ST_ROLE_CHANNEL, .tokens = ST_GATHERED, .configure = configure, .forward = forward};

ST_PLUGIN_V1(ST_KIND_LAYER, older, ops, ST_PARAMS(params),
    .name = "older",
    .version = "0.1",
    .license = "Apache-2.0",
    .author = "tests",
    .summary = "a layer of older headers",
    .description = "")
