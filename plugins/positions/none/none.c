/* SPDX-License-Identifier: Apache-2.0 */
/* positions/none - no position ids, no tables: for models whose order comes from their layers alone. */
#include <strata/position.h>

struct none { int32_t unused; };

static int configure(void *self, st_env *e)
{
    return e->status;
}

static int assign(const void *self, const st_worker *w, const st_sequence *q, int32_t *pos)
{
    return ST_OK; /* zero axes: nothing to write */
}

ST_EXPORT const st_plugin *st_plugin_v1(void);
ST_EXPORT const st_plugin *st_plugin_v1(void)
{
    static const st_position_ops ops = {.size = sizeof ops, .axes = 0, .configure = configure, .assign = assign};
    static const st_plugin plugin = {
        ST_PLUGIN_HEAD(ST_KIND_POSITION), .self_size = sizeof(struct none), .caps = ST_CAP_TRAIN | ST_CAP_SHIFTABLE,
        .name = "none", .version = "0.1.0", .license = "Apache-2.0", .author = "the strata authors",
        .summary = "no positions", .description = "Tokens carry no position ids and no head rotates.", .ops = &ops,
    };

    return &plugin;
}
