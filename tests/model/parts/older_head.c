/* SPDX-License-Identifier: Apache-2.0 */
/* A head as if built against older headers: a nested stack, and a row for it, in structs shorter than the host's. */
#include <string.h>
#include <strata/head.h>

typedef struct older_head {
    const char *pattern;
    int64_t hidden, rows;
    int stack;
} older_head;

static const st_map maps[] = {{"hf", "", "old.", 0, 0, ST_MAP_PLAIN, 0}, {"hf", "w", "weight", 0, 0, ST_MAP_PLAIN, 0}};

static int configure(void *self, st_env *e)
{
    older_head *m = self;
    const st_stack_def known = {.name = "blocks", .pattern = m->pattern, .hidden = e->hidden, .rows = e->rows,
                                .norm = ST_NORM_RMS, .alone = 1, .eps = 1e-6};
    st_stack_def cut;

    memset(&cut, 0x5a, sizeof cut);
    memcpy(&cut, &known, offsetof(st_stack_def, maps));
    cut.size = (uint32_t)offsetof(st_stack_def, maps);
    m->stack = e->api->stack(e, &cut);
    m->hidden = e->hidden;
    m->rows = e->rows;
    st_declare(e, (st_weight){.name = "w", .nd = 1, .dim = {4}, .init = ST_INIT_ONE});
    return e->status;
}

static int loss(const void *self, st_step *s, const st_tensor *h, const st_tensor *dh)
{
    const older_head *m = self;
    st_tensor u = st_zeroed(s, s->dtype, m->rows, m->hidden), out = st_scratch(s, s->dtype, m->rows, m->hidden);
    st_row row;
    st_view view = {.row = &row};

    memset(&row, 0x5a, sizeof row);
    row.size = (uint32_t)offsetof(st_row, spans);
    return st_stack(s, m->stack, &view, &u, -1, &out);
}

static const st_param params[] = {ST_STR(older_head, pattern, "n", 0, "layers of its stack")};
static const st_head_ops ops = {
    .size = sizeof ops, .n_maps = ST_COUNT(maps), .maps = maps, .depths = 1, .configure = configure, .loss = loss};

ST_PLUGIN_V1(ST_KIND_HEAD, older_head, ops, ST_PARAMS(params),
    .name = "older_head",
    .version = "0.1",
    .license = "Apache-2.0",
    .author = "tests",
    .summary = "a head of older headers",
    .description = "")
