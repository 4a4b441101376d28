/* SPDX-License-Identifier: Apache-2.0 */
/* model/services.c - what the host does for heads: embedding, the language-model loss; and tables and sums once per
 * row. */
#include "model/private.h"
#include <string.h>

static st_model *model_of(st_step *s) { return ((model_run *)(void *)s)->m; }

/* Row `depth` of a list [1 + depths, tokens]. */
static st_tensor depth_row(const st_tensor *t, int32_t depth)
{
    st_tensor r = st_rows(*t, depth, 1);
    r.nd = 1;
    r.dim[0] = t->dim[1];
    r.dim[1] = r.stride[0] = 1;
    return r;
}

static int check_depth(st_model *m, int32_t depth)
{
    if (m->run.s.status != ST_OK) return m->run.s.status;
    return depth >= 0 && depth <= m->shape.depths
               ? ST_OK
               : model_fail(m, ST_E_INTERNAL, "depth %d: the pattern has %d after '/'", depth, m->shape.depths);
}

static int position_embed(st_model *m, const st_tensor *x, int backward)
{
    context saved;
    int rc = ST_OK;

    if (!m->position_part || !(backward ? m->position_ops.embed_bwd : m->position_ops.embed)) return ST_OK;
    model_enter(m, m->position_part, MODEL_FORWARD, NULL, &saved);
    rc = backward ? m->position_ops.embed_bwd(m->position.self, &m->run.s, &m->row.pos, x)
                  : m->position_ops.embed(m->position.self, &m->run.s, &m->row.pos, x);
    if (rc != ST_OK) model_fail(m, rc, "the position failed");
    model_leave(m, &saved);
    return m->run.s.status;
}

int model_embed(st_step *s, int32_t depth, const st_tensor *out)
{
    st_model *m = model_of(s);
    st_tensor table, ids, media;

    ST_TRY(check_depth(m, depth));
    table = model_weight_of(s, m->embed);
    ids = depth_row(&m->row.ids, depth);
    media = depth_row(&m->row.media, depth);
    ST_OP(s, lookup,
          &(st_lookup){.table = &table,
                       .ids = &ids,
                       .media = m->shape.media ? &media : NULL,
                       .features = m->shape.media ? &m->run.features : NULL,
                       .out = out,
                       .group = ST_G_NONE});
    return position_embed(m, out, 0);
}

int model_embed_bwd(st_step *s, int32_t depth, const st_tensor *dout)
{
    st_model *m = model_of(s);
    st_tensor table, ids, media, order, g;
    float beta = 1;

    ST_TRY(check_depth(m, depth));
    ST_TRY(position_embed(m, dout, 1));
    g = model_grad_of(s, m->embed, &beta);
    if (!g.data && !m->run.d_features.data) return s->status;
    table = model_weight_of(s, m->embed);
    ids = depth_row(&m->row.ids, depth);
    media = depth_row(&m->row.media, depth);
    order = depth_row(&m->row.order, depth);
    return ST_OP(s, lookup_bwd,
                 &(st_lookup){.table = &table,
                              .ids = &ids,
                              .media = m->shape.media ? &media : NULL,
                              .order = &order,
                              .d_out = dout,
                              .d_table = &g,
                              .d_features = &m->run.d_features,
                              .beta = beta});
}

/* The loss of a depth lands in the head's metric, or in a cell of the host. */
static st_tensor loss_cell(st_model *m, int32_t depth, int32_t metric)
{
    size_t acc = st_dtype_size(m->acc_dtype);
    if (m->run.loss_cell[depth] < 0) m->run.loss_cell[depth] = metric;
    if (metric >= 0) return m->run.s.api->metric(&m->run.s, metric);
    return model_cell(m, m->loss_at + 2 * (size_t)depth * acc, 2);
}

/* A chunk reads and writes the whole gradient of the output matrix, and a product of few rows wastes a GPU: 1 GiB of logits
 * in bf16 is 2,048 rows of a vocabulary of 248,320. The CPU loses nothing by chunks that stay near its caches. */
static size_t logits_budget(const st_model *m)
{
    int64_t given = m->batch_keys.logits;
    return given != ST_UNSET_INT ? (size_t)given : m->facts.host_memory ? (size_t)32 << 20 : (size_t)1 << 30;
}

int model_lm_loss(st_step *s, int32_t depth, double weight, int32_t metric, const st_tensor *h, const st_tensor *dh)
{
    st_model *m = model_of(s);
    int backward = s->mode == ST_TRAIN && m->run.now.train, values = s->mode == ST_EVAL && depth == 0;
    st_tensor w, dw = st_absent(), rows, labels, scale, cell, nll, best;
    float beta = 1;

    ST_TRY(check_depth(m, depth));
    w = model_weight_of(s, m->lm_head);
    if (backward) dw = model_grad_of(s, m->lm_head, &beta);
    rows = depth_row(&m->row.trained, depth);
    labels = depth_row(&m->row.labels, depth);
    scale = s->api->scalar(s, ST_S_INV_COUNT + depth);
    cell = loss_cell(m, depth, metric);
    nll = model_flat(m->row_block.base + m->nll_at, m->acc_dtype, m->shape.tokens);
    best = model_flat(m->row_block.base + m->best_at, ST_I32, m->shape.tokens);
    return ST_OP(s, xent,
                 &(st_xent){.step = s,
                            .h = h,
                            .w = &w,
                            .rows = &rows,
                            .labels = &labels,
                            .scale = &scale,
                            .loss = &cell,
                            .dh = backward ? dh : NULL,
                            .dw = &dw,
                            .nll = values ? &nll : NULL,
                            .best = values ? &best : NULL,
                            .weight = weight,
                            .budget = logits_budget(m),
                            .group = ST_G_NONE,
                            .beta = beta});
}

/* Rotary tables of the row, one per head size that a layer asked for. */
int model_tables(st_model *m)
{
    context saved;

    if (!m->n_tables) return m->run.s.status;
    model_enter(m, m->position_part, MODEL_FORWARD, NULL, &saved);
    for (int32_t i = 0; i < m->n_tables && m->run.s.status == ST_OK; i++) {
        st_rotary t = m->run.s.api->rotary(&m->run.s, i);
        int rc = m->position_ops.tables(m->position.self, &m->run.s, m->tables[i].head_dim, &m->row.pos, &t);
        if (rc != ST_OK) model_fail(m, rc, "the tables of positions were not made");
    }
    model_leave(m, &saved);
    return m->run.s.status;
}

/* Sums over ranks of what a stack's parts added up. stack NULL: those wanted at the end of the step. */
int model_accum_total(st_model *m, model_stack *stack)
{
    st_step *s = &m->run.s;

    const model_sum *sum = stack ? &stack->sum : &m->step_sum;
    st_tensor from = model_cell(m, sum->at, sum->n), to = model_cell(m, sum->total_at, sum->n);

    return sum->n ? st_collective(s, ST_ALL_REDUCE, ST_G_TOKENS, &from, &to) : s->status;
}
