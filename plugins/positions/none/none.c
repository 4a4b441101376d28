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

static const st_position_ops ops = {.size = sizeof ops, .axes = 0, .configure = configure, .assign = assign};

ST_PLUGIN_V1(ST_KIND_POSITION, struct none, ops,
    .caps = ST_CAP_TRAIN | ST_CAP_SHIFTABLE,
    .name = "none",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "the strata authors",
    .summary = "no positions",
    .description = "Tokens carry no position ids and no head rotates.")
