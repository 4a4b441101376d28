/* SPDX-License-Identifier: Apache-2.0 */
/* model/plan.c - planning and opening. The real step is run with fake addresses: once to count contributions per
 * weight, once to measure. Then the device is opened and memory of exactly that size is taken. */
#include "model/private.h"
#include <string.h>

static int plan_pass(st_model *m, int pass, int mode)
{
    model_start(m);
    m->run.planning = pass;
    model_queues(m);
    m->keep.high = m->scratch.high = 0;
    model_begin_step(m, mode, 1);
    m->counting = pass == PLAN_PEAKS && (mode == ST_TRAIN) == (m->train != 0);
    m->traffic_now = m->counting ? m->traffic[0] : NULL;
    model_micro(m, mode, 0);
    m->traffic_now = m->counting ? m->traffic[1] : NULL;
    m->counting = 0;
    if (mode == ST_TRAIN) {
        model_sum_gradients(m);
        model_sums(m);
        model_finish_step(m);
        model_update(m);
    }
    m->traffic_now = NULL;
    m->run.planning = PLAN_NO;
    if (pass == PLAN_TRIAL) return m->run.s.status;
    if (m->keep.high > m->peak_keep) m->peak_keep = m->keep.high;
    if (m->scratch.high > m->peak_scratch) m->peak_scratch = m->scratch.high;
    return m->run.s.status;
}

int model_plan_trial(st_model *m, st_error *e)
{
    m->trial_flops = 0;
    m->trial_launches = 0;
    plan_pass(m, PLAN_TRIAL, ST_TRAIN);
    return model_end(m, e);
}

/* Masters are listed first, as parameters have them; then what the optimizer keeps for each. */
static int list_states(st_model *m)
{
    int32_t n = 0;

    for (int32_t i = 0; i < m->n_weights; i++) n += 1 + 4 * (m->weights[i]->group >= 0);
    m->states = ST_NEW_N(m->arena, st_state_tensor, n);
    m->state_places = ST_NEW_N(m->arena, struct state_place, n);
    if (!m->states || !m->state_places) return ST_E_NOMEM;
    for (int32_t s = -1; s < 4; s++)
        for (int32_t i = 0; i < m->n_weights; i++) {
            const model_weight *w = m->weights[i];
            const st_opt_class *c = w->group >= 0 ? &m->groups[w->group].class_ : NULL;
            st_state_tensor *t = &m->states[m->n_states];
            if (w->pub.flags & ST_W_CONST || (s >= 0 && (!c || s >= c->n_state))) continue;
            t->name = s < 0 ? w->pub.path : st_arena_printf(m->arena, "%s:%s", c->state[s].name, w->pub.path);
            if (!t->name) return ST_E_NOMEM;
            t->dtype = s >= 0 ? c->state[s].dtype : model_has_master(m, w) ? m->acc_dtype : w->pub.dtype;
            t->nd = w->pub.nd;
            memcpy(t->dim, w->pub.dim, sizeof t->dim);
            t->bytes = (size_t)w->pub.count * st_dtype_size(t->dtype);
            t->optimizer = s >= 0;
            m->state_places[m->n_states].weight = i;
            m->state_places[m->n_states++].state = s;
        }
    return ST_OK;
}

int st_model_plan(st_model *m, st_error *e)
{
    if (m->planned) return ST_OK;
    if (model_layout(m) != ST_OK || list_states(m) != ST_OK) return st_fail(e, ST_E_NOMEM, "no memory for a plan");
    if (m->train) {
        plan_pass(m, PLAN_COUNT, ST_TRAIN);
        ST_TRY(model_end(m, e));
        m->peak_keep = m->peak_scratch = 0;
        plan_pass(m, PLAN_PEAKS, ST_TRAIN);
        ST_TRY(model_end(m, e));
    }
    plan_pass(m, PLAN_PEAKS, ST_EVAL);
    ST_TRY(model_end(m, e));
    m->planned = 1;
    return ST_OK;
}

void st_model_plan_bytes(const st_model *m, st_plan_bytes *p)
{
    *p = (st_plan_bytes){.weights = m->weight_block.bytes,
                         .gradients = m->grad_block.bytes,
                         .optimizer = m->state_block.bytes,
                         .kept = m->peak_keep,
                         .scratch = m->peak_scratch,
                         .rows = m->row_block.bytes + m->cell_block.bytes + m->ahead.landing.bytes,
                         .staging = m->staging.bytes + m->ahead.pinned.bytes,
                         .workspace = m->facts.lane_workspace * ST_LANES};
    p->total = p->weights + p->gradients + p->optimizer + p->kept + p->scratch + p->rows + p->staging +
               p->workspace;
}

static int64_t free_bytes(const st_model *m)
{
    size_t left = 0, all = 0;
    return m->device && m->be.memory && m->be.memory(m->device, &left, &all) == ST_OK ? (int64_t)left : -1;
}

int64_t st_model_device_bytes(const st_model *m)
{
    int64_t now = free_bytes(m);
    return now < 0 || m->free_at_start < 0 ? -1 : m->free_at_start - now;
}

double st_model_flops(const st_model *m) { return m->flops; }
double st_model_gemm_flops(const st_model *m) { return m->gemm_flops; }

/* ---- opening ---- */

static st_kernels_for kernels_for(const st_model *m, const st_kernels *kernels)
{
    return (st_kernels_for){.backend = m->backend.plugin->name,
                            .kernels = kernels,
                            .host = &m->base->host,
                            .ops = &m->be,
                            .self = m->backend.self,
                            .ordinal = m->ordinal};
}

static int open_kernels(st_model *m, st_instance *in, const st_kernels *backend, st_error *e)
{
    const st_kernels_for f = kernels_for(m, backend);
    return in->plugin ? st_instance_kernels(m->registry, in, &f, e) : ST_OK;
}

static int open_all_kernels(st_model *m, const st_kernels *backend, st_error *e)
{
    ST_TRY(open_kernels(m, &m->position, backend, e));
    ST_TRY(open_kernels(m, &m->encoder, backend, e));
    ST_TRY(open_kernels(m, &m->optimizer, backend, e));
    for (int32_t i = 0; i < m->n_heads; i++) ST_TRY(open_kernels(m, &m->heads[i], backend, e));
    for (int i = 0; i < 128; i++)
        if (m->symbols[i]) ST_TRY(open_kernels(m, m->symbols[i], backend, e));
    return ST_OK;
}

int st_model_find_device(st_model *m, st_error *e)
{
    const char *why = NULL, *name = m->backend.plugin->name, *from = "";
    int n = m->be.count(m->backend.self, &m->base->host, &why);

    ST_TRY(model_choose_device(m, n, &from, e));
    if (n > m->ordinal) return ST_OK;
    if (why && *why) return st_fail(e, ST_E_DEVICE, "backend %s has no device %d to use: %s", name, m->ordinal, why);
    return st_fail(e, ST_E_DEVICE, "backend %s has no device %d to use%s: it counts %d", name, m->ordinal, from, n);
}

static int open_device(st_model *m, const st_kernels **kernels, st_error *e)
{
    const char *name = m->backend.plugin->name;
    char words[400] = "";

    ST_TRY(st_model_find_device(m, e));
    ST_TRY(st_kernels_open(m->registry, m->backend.manifest, m->backend.plugin, name, kernels, e));
    const st_kernels_for f = kernels_for(m, *kernels);
    if (*kernels) ST_TRY(st_kernels_accepted(*kernels, &f, st_kernels_path(m->registry, *kernels), e));
    if (*kernels) ST_TRY(st_kernels_start(m->registry, *kernels, &m->base->host, m->ordinal, e));
    ST_TRY(m->be.open(m->backend.self, &m->base->host, m->ordinal, *kernels, &m->device, e));
    if (m->be.describe) m->be.describe(m->device, words, sizeof words);
    m->free_at_start = free_bytes(m);
    snprintf(m->device_words, sizeof m->device_words, words[0] ? "%s, %s" : "%s%s", name, words);
    for (int i = 0; i < ST_LANES; i++) {
        if (m->be.queue(m->device, 0, &m->queues[i].q) != ST_OK)
            return st_fail(e, ST_E_DEVICE, "%s: no queue", m->device_words);
        if (m->be.event && m->be.event(m->device, &m->lane_event[i]) != ST_OK)
            return st_fail(e, ST_E_DEVICE, "%s: no event", m->device_words);
    }
    return ST_OK;
}

static int zero_blocks(st_model *m, st_error *e)
{
    const mem_block *all[] = {&m->weight_block, &m->grad_block, &m->state_block, &m->row_block, &m->cell_block};

    for (size_t i = 0; i < ST_COUNT(all); i++) model_zero(m, all[i]->base, all[i]->bytes);
    ST_TRY(model_end(m, e));
    return m->be.sync(m->device, e);
}

int st_model_open(st_model *m, st_error *e)
{
    const st_kernels *kernels = NULL;

    if (m->opened) return ST_OK;
    ST_TRY(st_model_plan(m, e));
    ST_TRY(open_device(m, &kernels, e));
    ST_TRY(open_all_kernels(m, kernels, e));
    ST_TRY(st_groups_open(&m->base->host, &m->comm_ops, m->comm.self, &m->mesh, m->device, &m->groups_open, e));
    ST_TRY(model_alloc(m, e));
    model_start(m);
    model_queues(m);
    ST_TRY(zero_blocks(m, e));
    m->opened = 1;
    return model_fill_constants(m, e);
}

/* ---- bits as stored ---- */

int st_model_states(const st_model *m, const st_state_tensor **out)
{
    *out = m->states;
    return m->n_states;
}

static char *state_address(const st_model *m, int32_t i)
{
    const model_weight *w = m->weights[m->state_places[i].weight];
    int32_t s = m->state_places[i].state;
    return s < 0 ? model_master_tensor(m, w).data : m->state_block.base + w->state_at[s];
}

static int check_state(const st_model *m, int32_t i, st_error *e)
{
    if (!m->opened) return st_fail(e, ST_E_INTERNAL, "the model is not open");
    return i >= 0 && i < m->n_states ? ST_OK : st_fail(e, ST_E_NOTFOUND, "state tensor %d of %d", i, m->n_states);
}

int st_model_state_read(st_model *m, int32_t i, size_t first, size_t n, void *out, st_error *e)
{
    ST_TRY(check_state(m, i, e));
    if (first > m->states[i].bytes || n > m->states[i].bytes - first)
        return st_fail(e, ST_E_INTERNAL, "%s has no bytes %zu to %zu", m->states[i].name, first, first + n);
    return model_download(m, out, state_address(m, i) + first, n, e);
}

int st_model_state_write(st_model *m, int32_t i, const void *in, st_error *e)
{
    const model_weight *w;

    ST_TRY(check_state(m, i, e));
    ST_TRY(model_upload(m, state_address(m, i), in, m->states[i].bytes, e));
    w = m->weights[m->state_places[i].weight];
    return m->state_places[i].state < 0 && model_has_master(m, w) ? model_round_master(m, w, in, e) : ST_OK;
}
