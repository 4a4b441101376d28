/* SPDX-License-Identifier: Apache-2.0 */
/* model/cost.c - FLOPs of each part of a model: by the plugins' formulas, and as planning counted them. */
#include "model/private.h"

/* A part without a formula: its matrices, each used once by every row it sees. */
static double matrices(const st_model *m, const model_part *p, double rows)
{
    double cells = 0;

    for (int32_t i = 0; i < m->n_weights; i++) {
        const model_weight *w = m->weights[i];
        if (w->part == p && w->pub.nd >= 2 && !(w->pub.flags & (ST_W_TABLE | ST_W_CONST | ST_W_STATE)))
            cells += (double)w->pub.count;
    }
    return 2 * rows * cells;
}

static int (*formula(const st_model *m, const model_part *p))(const void *, const st_env *, const st_row_stats *,
                                                              st_cost *)
{
    if (p->kind == ST_KIND_LAYER) return p->layer.cost;
    for (int32_t i = 0; i < m->n_heads; i++)
        if (m->head_parts[i] == p) return m->head_ops[i].cost;
    return NULL;
}

/* A full row's patches, as pictures of one size. */
static st_row_stats media_stats(const st_model *m)
{
    double units = (double)m->shape.caps.units, items = m->shape.caps.items ? m->shape.caps.items : 1;

    return (st_row_stats){units, units * units / items};
}

static int cost_of(st_model *m, model_part *p, const st_row_stats *text, st_cost *c, st_error *e)
{
    int (*ask)(const void *, const st_env *, const st_row_stats *, st_cost *) = formula(m, p);
    bool media = p->kind == ST_KIND_LAYER && !model_in_pattern(m, p);
    st_row_stats row = media ? media_stats(m) : *text;
    st_env env;

    *c = (st_cost){0, 0, 0};
    if (!ask && p->kind != ST_KIND_LAYER) return ST_OK;
    model_env(m, p, &env);
    if (!ask) c->megatron = c->exact = matrices(m, p, row.tokens);
    else if (ask(p->self, &env, &row, c) != ST_OK || env.status != ST_OK)
        return st_fail(e, ST_E_CONFIG, "%s: plugin %s gives no cost", p->path, p->proto->plugin->name);
    if (media) c->megatron = 0;
    return ST_OK;
}

int st_model_costs(st_model *m, const st_row_stats *row, st_layer_cost *out, st_error *e)
{
    for (int32_t i = 0; i < m->n_parts; i++) {
        st_cost c;
        ST_TRY(cost_of(m, m->parts[i], row, &c, e));
        out[i] = (st_layer_cost){.megatron = 3 * c.megatron, .formula = 3 * c.exact, .counted = m->parts[i]->flops};
        if (m->parts[i] == m->encoder_part) out[i].formula = out[i].counted; /* stem and merger around its blocks */
    }
    return ST_OK;
}
