/* SPDX-License-Identifier: Apache-2.0 */
/* model/step.c - one micro-batch, one optimizer step, one evaluation. */
#include "model/private.h"
#include <math.h>
#include <string.h>

/* ---- a public call ---- */

void model_start(st_model *m)
{
    model_run *r = &m->run;

    memset(&m->error, 0, sizeof m->error);
    memset(&r->now, 0, sizeof r->now);
    r->s = (st_step){.size = sizeof r->s,
                     .api = model_step_api(),
                     .ops = &m->ops,
                     .q = &m->queues[0].q,
                     .row = &m->row,
                     .dtype = m->dtype,
                     .acc_dtype = m->acc_dtype,
                     .layer = -1,
                     .micros = 1,
                     .data = m->mesh.data,
                     .context = m->mesh.context,
                     .tensor = m->mesh.tensor,
                     .expert = m->mesh.expert,
                     .media = m->mesh.media,
                     .backend = m->backend.plugin->name};
    r->m = m;
    r->launch = NULL;
    r->op_open = r->lanes = r->now.range = 0;
    r->now.part = m->host;
    r->now.row = &m->row;
    r->now.layer = -1;
    m->keep.used = m->scratch.used = 0;
}

int model_end(st_model *m, st_error *e)
{
    int rc = m->run.s.status;

    if (rc != ST_OK && e && !e->code) *e = m->error;
    return rc;
}

/* ---- cells ---- */

int model_read_cells(st_model *m, size_t at, int64_t n, double *out, st_error *e)
{ return model_read_tensor(m, model_cell(m, at, n), out, n, e); }

int model_write_cells(st_model *m, size_t at, int64_t n, const double *in, st_error *e)
{ return model_write_tensor(m, model_cell(m, at, n), in, n, e); }

/* ---- a micro-batch ---- */

static int zero_accums(st_model *m)
{
    for (int32_t i = 0; i < m->n_accums; i++)
        if (m->accums[i].decl.reset == ST_EACH_MICRO)
            ST_TRY(model_zero(m, m->cell_block.base + m->accums[i].at,
                              (size_t)m->accums[i].decl.n * st_dtype_size(m->acc_dtype)));
    return m->run.s.status;
}

int model_begin_step(st_model *m, int mode, int32_t micros)
{
    size_t acc = st_dtype_size(m->acc_dtype);

    m->run.s.mode = mode;
    m->run.s.micros = micros;
    m->run.order = 0;
    for (int i = 0; i < MODEL_DEPTHS; i++) m->run.loss_cell[i] = -1;
    model_zero(m, m->cell_block.base + m->loss_at, 2 * MODEL_DEPTHS * acc);
    model_zero(m, m->cell_block.base + m->metric_at, m->metric_bytes);
    model_zero(m, m->cell_block.base + m->fault_at, sizeof(st_fault));
    model_zero(m, m->cell_block.base + m->accum_at, m->accum_bytes); /* totals too: none is left from before */
    if (mode != ST_TRAIN) return m->run.s.status;
    for (int32_t i = 0; i < m->n_buckets; i++)
        if (m->buckets[i].part)
            model_zero(m, m->grad_block.base + m->buckets[i].grad_at, (size_t)m->buckets[i].share * acc);
    for (int32_t i = 0; i < m->n_weights; i++) {
        model_weight *w = m->weights[i];
        w->done = 0;
        if (w->trains && !m->buckets[w->bucket].part && (!(w->pub.flags & ST_W_BETA) || !w->per_micro))
            model_zero(m, m->grad_block.base + w->grad_at, (size_t)w->pub.count * acc);
    }
    return m->run.s.status;
}

static int encode(st_model *m)
{
    context saved;
    int rc;

    if (!m->shape.media) return m->run.s.status;
    m->run.features = model_scratch(m, m->dtype, m->shape.caps.rows, m->stack_keys.hidden);
    model_enter(m, m->encoder_part, MODEL_FORWARD, &m->encoder_frame, &saved);
    m->run.now.train = m->run.s.train = saved.train && m->encoder_trained;
    for (int i = 0; i < MODEL_SLOTS; i++) m->encoder_frame.slot[i] = st_absent();
    rc = m->run.s.status == ST_OK ? m->encoder_ops.forward(m->encoder.self, &m->run.s, &m->batch, &m->run.features)
                                  : m->run.s.status;
    if (rc != ST_OK) model_fail(m, rc, "forward failed (%s)", st_code_name(rc));
    model_leave(m, &saved);
    model_look_slots(m, m->encoder_part, &m->encoder_frame);
    model_look(m, "features", -1, &m->run.features);
    return m->run.s.status;
}

static int encode_bwd(st_model *m)
{
    context saved;
    int rc;

    if (!m->encoder_trained || m->run.s.status != ST_OK) return m->run.s.status;
    model_enter(m, m->encoder_part, MODEL_BACKWARD, &m->encoder_frame, &saved);
    rc = m->encoder_ops.backward(m->encoder.self, &m->run.s, &m->batch, &m->run.d_features);
    if (rc != ST_OK) model_fail(m, rc, "backward failed (%s)", st_code_name(rc));
    model_leave(m, &saved);
    return m->run.s.status;
}

static int losses(st_model *m, const st_tensor *h, const st_tensor *dh)
{
    for (int32_t i = 0; i < m->n_heads && m->run.s.status == ST_OK; i++) {
        context saved;
        int rc;
        model_enter(m, m->head_parts[i], MODEL_LOSS, NULL, &saved);
        rc = m->head_ops[i].loss(m->heads[i].self, &m->run.s, h, dh);
        if (rc != ST_OK) model_fail(m, rc, "the loss failed (%s)", st_code_name(rc));
        model_leave(m, &saved);
    }
    return m->run.s.status;
}

/* Something at or below the final norm is trained. */
static bool stream_wanted(const st_model *m)
{
    return m->trunk->first < m->trunk->n || m->trunk->input || m->weights[m->final_norm]->trains ||
           (m->final_norm_bias >= 0 && m->weights[m->final_norm_bias]->trains);
}

static int check_contributions(st_model *m, int32_t micro)
{
    for (int32_t i = 0; i < m->n_weights && !m->run.planning && m->run.s.status == ST_OK; i++) {
        const model_weight *w = m->weights[i];
        if (w->trains && w->done != w->per_micro * (micro + 1))
            return model_fail(m, ST_E_INTERNAL, "weight %s got %d contributions to its gradient, planning saw %d",
                              w->pub.path, w->done - w->per_micro * micro, w->per_micro);
    }
    return m->run.s.status;
}

static int backward(st_model *m, const st_tensor *dh)
{
    st_tensor dr = m->embed_input ? model_scratch(m, m->dtype, m->shape.tokens, m->stack_keys.hidden) : st_absent();

    model_stack_backward(m, m->trunk, NULL, dh, &dr);
    if (m->embed_input) st_embed_bwd(&m->run.s, 0, &dr);
    return encode_bwd(m);
}

int model_micro(st_model *m, int mode, int32_t micro)
{
    st_step *s = &m->run.s;
    int64_t tokens = m->shape.tokens, hidden = m->stack_keys.hidden;
    int train = mode == ST_TRAIN, wanted = train && stream_wanted(m);
    st_tensor h, dh = st_absent(), x;
    size_t mark;

    m->pass++;
    m->keep.used = m->scratch.used = 0;
    m->run.now.scratch = 0;
    m->run.now.train = s->train = train;
    s->micro = micro;
    m->run.features = m->run.d_features = st_absent();
    for (int32_t i = 0; i < m->n_stacks; i++) m->stacks[i]->n_calls = 0;
    zero_accums(m);
    model_tables(m);
    encode(m);
    if (train && m->encoder_trained) {
        m->run.d_features = model_scratch(m, m->acc_dtype, m->shape.caps.rows, hidden);
        model_zero(m, m->run.d_features.data, (size_t)(m->shape.caps.rows * hidden) * st_dtype_size(m->acc_dtype));
    }
    h = model_scratch(m, m->dtype, tokens, hidden);
    if (wanted) dh = model_scratch(m, m->dtype, tokens, hidden);
    mark = m->scratch.used;
    x = model_scratch(m, m->dtype, tokens, hidden);
    st_embed(s, 0, &x);
    model_look(m, "embed", -1, &x);
    model_stack_forward(m, m->trunk, NULL, &x, m->final_norm, &h);
    m->scratch.used = mark;
    if (wanted) model_zero(m, dh.data, (size_t)(tokens * hidden) * st_dtype_size(m->dtype));
    losses(m, &h, &dh);
    if (wanted) backward(m, &dh);
    return train ? check_contributions(m, micro) : s->status;
}

/* ---- the end of a step ---- */

/* The step's end begins: nothing of its micro-batches is needed, and the optimizer has all scratch to itself.
 * One sum of squares per bucket: few launches. Which weight is bad is asked only when a sum is not finite. */
int model_sums(st_model *m)
{
    st_step *s = &m->run.s;
    size_t acc = st_dtype_size(m->acc_dtype);

    m->keep.used = m->scratch.used = 0;
    model_zero(m, m->cell_block.base + m->sumsq_at, (size_t)m->n_weights * acc);
    for (int32_t i = 0; i < m->n_buckets; i++) {
        st_tensor cell = model_cell(m, m->sumsq_at + (size_t)i * acc, 1);
        ST_OP(s, sumsq, &m->buckets[i].unit.grad, 1.0, &cell);
    }
    return model_sum_squares(m);
}

int model_finish_step(st_model *m)
{
    model_accum_total(m, NULL);
    for (int32_t i = 0; i < m->n_parts && m->run.s.status == ST_OK; i++) {
        model_part *p = m->parts[i];
        context saved;
        int rc;
        if (p->kind != ST_KIND_LAYER || !p->layer.finish_step) continue;
        model_enter(m, p, MODEL_UPDATE, NULL, &saved);
        rc = p->layer.finish_step(p->self, &m->run.s);
        if (rc != ST_OK) model_fail(m, rc, "the end of the step failed (%s)", st_code_name(rc));
        model_leave(m, &saved);
    }
    return m->run.s.status;
}

int model_update(st_model *m)
{
    context saved;
    int rc;

    model_enter(m, m->optimizer_part, MODEL_UPDATE, NULL, &saved);
    rc = m->run.s.status == ST_OK ? m->optimizer_ops.update(m->optimizer.self, &m->run.s, m->units, m->n_units)
                                  : m->run.s.status;
    if (rc != ST_OK) model_fail(m, rc, "the update failed (%s)", st_code_name(rc));
    model_leave(m, &saved);
    return model_gather_weights(m);
}

/* Counts of the whole step are known before its first forward. */
static int upload_scalars(st_model *m, const st_packed_row *const *rows, int32_t micros, int64_t step,
                          st_step_result *out, st_error *e)
{
    double cell[MODEL_CELLS] = {0}, count;

    *out = (st_step_result){0};
    for (int32_t i = 0; i < micros; i++) {
        out->tokens += rows[i]->n_tokens;
        out->trained += rows[i]->trained_count[0];
    }
    cell[ST_S_REAL_TOKENS] = (double)out->tokens;
    cell[ST_S_STEP] = (double)step;
    cell[ST_S_CLIP] = 1;
    for (int k = 0; k <= m->shape.depths; k++) {
        count = 0;
        for (int32_t i = 0; i < micros; i++) count += (double)rows[i]->trained_count[k];
        cell[ST_S_INV_COUNT + k] = count > 0 ? 1 / count : 0;
    }
    return model_write_cells(m, m->scalars_at, MODEL_CELLS, cell, e);
}

static int run_micros(st_model *m, const st_packed_row *const *rows, int32_t micros, int64_t step, st_step_result *out,
                      st_error *e)
{
    if (!m->opened) return st_fail(e, ST_E_INTERNAL, "the model is not open");
    if (!m->train) return st_fail(e, ST_E_INTERNAL, "the model was not built for training");
    if (micros < 1) return st_fail(e, ST_E_INTERNAL, "a step of %d rows", micros);
    model_start(m);
    ST_TRY(upload_scalars(m, rows, micros, step, out, e));
    for (int32_t i = 0; i < micros && m->run.s.status == ST_OK; i++) {
        ST_TRY(model_row_upload(m, rows[i], e));
        model_pass(m, i, micros);
        if (i + 1 < micros && m->run.s.status == ST_OK) ST_TRY(model_row_ahead(m, rows[i + 1], e));
    }
    model_sum_gradients(m);
    return model_end(m, e);
}

/* ---- results ---- */

static int read_loss(st_model *m, double *sum, st_error *e)
{
    double cell[2];
    int32_t id = m->run.loss_cell[0];

    ST_TRY(model_read_cells(m, id >= 0 ? m->metrics[id].at : m->loss_at, 2, cell, e));
    *sum = cell[0];
    return ST_OK;
}

static void add_value(st_model *m, const st_metric *d, const char *name, const double cell[2])
{
    st_metric_value *v = &m->metric_values[m->n_metric_values++];
    v->name = name;
    v->unit = d->unit ? d->unit : "";
    v->valid = d->kind == ST_METRIC_SUM || cell[1] != 0;
    v->value = d->kind == ST_METRIC_RATIO ? (v->valid ? cell[0] / cell[1] : 0) : cell[0];
}

/* Every instance's value, then for layers one over all instances of the plugin. */
static void collect(st_model *m, const double *cells)
{
    m->n_metric_values = 0;
    for (int32_t i = 0; i < m->n_metrics; i++) add_value(m, &m->metrics[i].decl, m->metrics[i].shown, cells + 2 * i);
    for (int32_t i = 0; i < m->n_metrics; i++) {
        const model_metric *d = &m->metrics[i];
        double sum[2] = {0, 0};
        int32_t first = i, n = 0;
        for (int32_t k = 0; d->pooled && k < m->n_metrics; k++) {
            const model_metric *o = &m->metrics[k];
            if (!o->pooled || o->part->proto != d->part->proto || strcmp(o->pooled, d->pooled)) continue;
            if (k < first) first = k;
            n++;
            if (d->decl.kind != ST_METRIC_MAX) sum[0] += cells[2 * k];
            else if (cells[2 * k + 1] != 0) sum[0] = sum[1] != 0 ? fmax(sum[0], cells[2 * k]) : cells[2 * k];
            sum[1] += cells[2 * k + 1];
        }
        if (n > 1 && first == i) add_value(m, &d->decl, d->pooled, sum);
    }
}

static int read_metrics(st_model *m, st_step_result *out, st_error *e)
{
    double *cells;
    int rc;

    if (!m->n_metrics) return ST_OK;
    if (!m->metric_values) m->metric_values = ST_NEW_N(m->arena, st_metric_value, 2 * m->n_metrics);
    cells = m->metric_cells ? m->metric_cells : (m->metric_cells = ST_NEW_N(m->arena, double, 2 * m->n_metrics));
    if (!m->metric_values || !cells) return st_fail(e, ST_E_NOMEM, "no memory for metrics");
    rc = model_read_cells(m, m->metric_at, 2 * m->n_metrics, cells, e);
    if (rc != ST_OK) return rc;
    collect(m, cells);
    out->metrics = m->metric_values;
    out->n_metrics = m->n_metric_values;
    return ST_OK;
}

static int read_results(st_model *m, st_step_result *out, st_error *e)
{
    double sum;

    ST_TRY(m->be.sync(m->device, e));
    ST_TRY(st_groups_check(m->groups_open, e));
    ST_TRY(read_loss(m, &sum, e));
    out->loss = out->trained ? sum / (double)out->trained : 0;
    return read_metrics(m, out, e);
}

/* Not finite, or a fault: the step changes nothing, and says what was wrong first. */
static int judge(st_model *m, const st_packed_row *const *rows, int32_t micros, st_step_result *out, st_error *e)
{
    int32_t finite;
    int fault;

    ST_TRY(model_norm(m, &out->grad_norm, &finite, e));
    fault = model_fault(m, out->bad, e);
    if (fault < 0) return fault;
    out->fault = fault;
    out->skipped = fault || !finite || !isfinite(out->loss);
    if (!out->skipped || fault) return ST_OK;
    return model_find_bad(m, rows, micros, out->loss, out->bad, e);
}

int st_model_gradients(st_model *m, const st_packed_row *const *rows, int32_t micros, st_step_result *out, st_error *e)
{
    ST_TRY(run_micros(m, rows, micros, 1, out, e));
    model_sums(m);
    ST_TRY(model_end(m, e));
    ST_TRY(read_results(m, out, e));
    return judge(m, rows, micros, out, e);
}

/* Clip factor and hyper-parameters go up, then everything that changes a weight. */
static int apply_update(st_model *m, const st_schedule *at, double clip, double norm, st_error *e)
{
    double factor[2] = {clip > 0 && norm + 1e-6 > clip ? clip / (norm + 1e-6) : 1, 0};

    ST_TRY(model_write_cells(m, m->scalars_at + ST_S_CLIP * st_dtype_size(m->acc_dtype), 2, factor, e));
    ST_TRY(model_hyper(m, at, e));
    model_finish_step(m);
    model_update(m);
    ST_TRY(model_end(m, e));
    return m->be.sync(m->device, e);
}

/* Without a target there is nothing to learn; momentum and decay alone must not move weights. */
static void judge_targets(st_step_result *out)
{
    if (out->skipped || out->trained > 0) return;
    out->skipped = 1;
    snprintf(out->bad, sizeof out->bad, "no token of the step is trained");
}

int st_model_step(st_model *m, const st_packed_row *const *rows, int32_t micros, const st_schedule *at, double clip,
                  st_step_result *out, st_error *e)
{
    ST_TRY(run_micros(m, rows, micros, at->step, out, e));
    model_sums(m);
    ST_TRY(model_ask_ahead(m, e));
    ST_TRY(model_end(m, e));
    ST_TRY(read_results(m, out, e));
    ST_TRY(judge(m, rows, micros, out, e));
    judge_targets(out);
    if (out->skipped) return ST_OK;
    ST_TRY(apply_update(m, at, clip, out->grad_norm, e));
    return read_metrics(m, out, e); /* what layers report at the end of the step came last */
}

int st_model_update(st_model *m, const st_schedule *at, double clip, st_step_result *out, st_error *e)
{
    *out = (st_step_result){0};
    if (!m->opened || !m->train) return st_fail(e, ST_E_INTERNAL, "the model is not open for training");
    model_start(m);
    ST_TRY(upload_scalars(m, NULL, 0, at->step, out, e));
    model_sums(m);
    ST_TRY(model_end(m, e));
    ST_TRY(judge(m, NULL, 0, out, e));
    return out->skipped ? ST_OK : apply_update(m, at, clip, out->grad_norm, e);
}

/* ---- one layer alone ---- */

static int layer_forward_alone(st_model *m, model_part *p, frame *f, const st_tensor *x, const st_tensor *y, int train)
{
    size_t mark = m->scratch.used;
    context saved;

    model_open_part(m, p, 0);
    model_enter(m, p, MODEL_FORWARD, f, &saved);
    m->run.now.train = m->run.s.train = train;
    model_call_forward(m, p, f, x, y, 0, 0);
    model_leave(m, &saved);
    model_close_part(m, p);
    m->scratch.used = mark;
    return m->run.s.status;
}

static int layer_backward_alone(st_model *m, model_part *p, frame *f, const st_tensor *x, const st_tensor *dy,
                                const st_tensor *dx)
{
    size_t mark = m->scratch.used;
    context saved;
    int rc;

    model_open_part(m, p, 1);
    model_enter(m, p, MODEL_BACKWARD, f, &saved);
    m->run.now.train = m->run.s.train = 1;
    rc = m->run.s.status == ST_OK ? p->layer.backward(p->self, &m->run.s, x, dy, dx) : m->run.s.status;
    if (rc != ST_OK) model_fail(m, rc, "backward failed (%s)", st_code_name(rc));
    model_leave(m, &saved);
    model_close_part(m, p);
    m->scratch.used = mark;
    return m->run.s.status;
}

static int put(st_model *m, const st_tensor *t, const double *v, st_error *e)
{ return t->data ? model_write_tensor(m, *t, v, t->dim[0] * t->dim[1], e) : ST_OK; }
static int get(st_model *m, const st_tensor *t, double *v, st_error *e)
{ return t->data && v ? model_read_tensor(m, *t, v, t->dim[0] * t->dim[1], e) : ST_OK; }

static model_part *layer_at(const st_model *m, int32_t layer)
{
    for (int32_t i = 0; i < m->n_parts; i++)
        if (model_in_pattern(m, m->parts[i]) && layer-- == 0) return m->parts[i];
    return NULL;
}

int st_model_layer_run(st_model *m, int32_t layer, const st_packed_row *row, const double *x, double *y,
                       const double *dy, double *dx, st_error *e)
{
    int64_t tokens = m->shape.tokens, hidden = m->stack_keys.hidden;
    model_part *part = layer_at(m, layer);
    frame f = {0};
    st_tensor t[4];
    st_step_result none;

    if (!m->opened || (dy && !m->train)) return st_fail(e, ST_E_INTERNAL, "the model is not open for this");
    if (!part) return st_fail(e, ST_E_NOTFOUND, "the pattern has no layer %d", layer);
    model_start(m);
    ST_TRY(upload_scalars(m, &row, 1, 1, &none, e));
    model_begin_step(m, dy ? ST_TRAIN : ST_EVAL, 1);
    ST_TRY(model_row_upload(m, row, e));
    model_tables(m);
    for (int i = 0; i < (dy ? 4 : 2); i++) t[i] = model_scratch(m, m->dtype, tokens, hidden);
    ST_TRY(model_end(m, e));
    ST_TRY(put(m, &t[0], x, e));
    layer_forward_alone(m, part, &f, &t[0], &t[1], dy != NULL);
    ST_TRY(model_end(m, e));
    ST_TRY(get(m, &t[1], y, e));
    if (!dy) return ST_OK;
    ST_TRY(put(m, &t[2], dy, e));
    layer_backward_alone(m, part, &f, &t[0], &t[2], &t[3]);
    ST_TRY(model_end(m, e));
    return get(m, &t[3], dx, e);
}

int st_model_evaluate(st_model *m, const st_packed_row *row, double *loss_sum, int64_t *count, double *nll,
                      int32_t *best, st_error *e)
{
    size_t acc = st_dtype_size(m->acc_dtype), tokens = (size_t)m->shape.tokens;
    st_step_result none;

    if (!m->opened) return st_fail(e, ST_E_INTERNAL, "the model is not open");
    model_start(m);
    ST_TRY(upload_scalars(m, &row, 1, 1, &none, e));
    ST_TRY(model_row_upload(m, row, e));
    model_zero(m, m->row_block.base + m->nll_at, tokens * acc);
    model_pass(m, -1, 1);
    ST_TRY(model_end(m, e));
    ST_TRY(read_loss(m, loss_sum, e));
    *count = row->trained_count[0];
    if (best) ST_TRY(model_download(m, best, m->row_block.base + m->best_at, tokens * 4, e));
    return nll ? model_read_tensor(m, st_tensor2(m->row_block.base + m->nll_at, m->acc_dtype, (int64_t)tokens, 1), nll,
                                   (int64_t)tokens, e)
               : ST_OK;
}

int st_model_depth_loss(st_model *m, int32_t depth, double *loss_sum, int64_t *count, const char **name, st_error *e)
{
    int32_t id = depth > 0 && depth <= m->shape.depths ? m->run.loss_cell[depth] : -1;
    double cell[2];

    if (id < 0) return st_fail(e, ST_E_NOTFOUND, "no head has logged a loss of depth %d", depth);
    ST_TRY(model_read_cells(m, m->metrics[id].at, 2, cell, e));
    *loss_sum = cell[0];
    *count = (int64_t)cell[1];
    *name = m->metrics[id].shown;
    return ST_OK;
}
