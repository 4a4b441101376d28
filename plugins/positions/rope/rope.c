/* SPDX-License-Identifier: Apache-2.0 */
/* positions/rope - one id per token, counted from 0 in every segment; the first columns of a head rotate by it. */
#include "../rotary/rotary.h"

struct rope { double base, rotary_percent; };

static int configure(void *self, st_env *e)
{
    return e->status;
}

static int assign(const void *self, const st_worker *w, const st_sequence *q, int32_t *pos)
{
    for (int32_t i = 0; i < q->n; i++)
        pos[i] = i;
    return ST_OK;
}

static int rotary_dim(const void *self, st_env *e, int32_t head_dim)
{
    const struct rope *r = self;

    return rotary_width(e, head_dim, r->rotary_percent);
}

static int tables(const void *self, st_step *s, int32_t head_dim, const st_tensor *pos, const st_rotary *out)
{
    const struct rope *r = self;
    int32_t section[ROTARY_AXES] = {out->dim / 2, 0, 0};

    return rotary_launch(s, pos, out, r->base, section, 0);
}

static const st_param params[] = {
    ST_FLOAT(struct rope, base, "10000", 1, 1e12, "", ST_PF_FIXED, "frequency i is base^(-2i / columns that rotate)"),
    ST_FLOAT(struct rope, rotary_percent, "1", 0, 1, "", ST_PF_FIXED, "share of a head's columns that rotate"),
};

static const st_position_ops ops = {
    .size = sizeof ops,
    .axes = 1,
    .configure = configure,
    .assign = assign,
    .rotary_dim = rotary_dim,
    .tables = tables,
};

ST_PLUGIN_V1(ST_KIND_POSITION, struct rope, ops, ST_PARAMS(params),
    ST_KERNEL_TABLE(ROTARY_IFACE, struct rotary_kernels),
    .caps = ST_CAP_TRAIN | ST_CAP_SHIFTABLE,
    .name = "rope",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "the strata authors",
    .summary = "rotary positions",
    .description = "Rotary position embedding over the first columns of each head, with halves paired: column i "
                   "turns with column i + half.")
