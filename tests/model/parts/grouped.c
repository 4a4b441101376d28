/* SPDX-License-Identifier: Apache-2.0 */
/* A layer that is one collective: y = what(x) over a group. The tensor group is the only one that may be larger than
 * one rank. Its weight has sections to be cut. */
#include <strata/layer.h>

typedef struct grouped {
    int64_t what, group, rows; /* rows: that y pretends to have, 0: as many as x */
    st_wid w;
} grouped;

static int configure(void *self, st_env *e)
{
    const st_section sections[] = {{"q", 12, 4, 1, 0}, {"k", 8, 4, 1, 0}};

    ((grouped *)self)->w = st_declare(e, (st_weight){.name = "w",
                                                     .nd = 2,
                                                     .dim = {20, e->hidden},
                                                     .cut = {ST_G_TENSOR},
                                                     .n_sec = 2,
                                                     .sec = sections,
                                                     .init = ST_INIT_NORMAL});
    return e->status;
}

static int forward(const void *self, st_step *s, const st_tensor *x, const st_tensor *y)
{
    const grouped *m = self;
    st_tensor part = m->rows ? st_rows(*y, 0, m->rows) : *y;

    return st_collective(s, (uint32_t)m->what, (uint32_t)m->group, x, &part);
}

static const st_param params[] = {
    ST_INT(grouped, what, "3", 0, 100, "", 0, "which collective"),
    ST_INT(grouped, group, "6", 0, 100, "", 0, "over which group"),
    ST_INT(grouped, rows, "0", 0, 100, "", 0, "rows of the result"),
};
static const st_layer_ops ops = {
    .size = sizeof ops, .role = ST_ROLE_CHANNEL, .tokens = ST_GATHERED, .configure = configure, .forward = forward};

ST_PLUGIN_V1(ST_KIND_LAYER, grouped, ops, ST_PARAMS(params),
    .caps = ST_CAP_TENSOR,
    .name = "grouped",
    .version = "0.1",
    .license = "Apache-2.0",
    .author = "tests",
    .summary = "a collective as a layer",
    .description = "")
