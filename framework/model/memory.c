/* SPDX-License-Identifier: Apache-2.0 */
/* model/memory.c - all device memory: where everything lies, arenas of a step, copies from and to the host. */
#include "model/private.h"
#include <string.h>

/* ---- where things lie ---- */

static size_t place(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at = model_round(here + bytes);
    return here;
}

/* Of a bucket all have whole weights and gradients, or a share as of the states. */
static void place_bucket(st_model *m, opt_bucket *b, size_t *weights, size_t *grads, size_t *states)
{
    const opt_group *g = &m->groups[b->group];
    size_t acc = st_dtype_size(m->acc_dtype), own = st_dtype_size(g->dtype), all = (size_t)b->count,
           share = (size_t)b->share;

    b->at = place(weights, (model_gathers(m, b) ? share : all) * own);
    b->grad_at = place(grads, (b->part ? share : all) * acc);
    if (model_group_has_masters(m, g)) b->master_at = place(states, share * acc);
    for (int s = 0; s < g->class_.n_state; s++)
        b->state_at[s] = place(states, share * st_dtype_size(g->class_.state[s].dtype));
}

static void place_weight(st_model *m, model_weight *w)
{
    const opt_bucket *b = &m->buckets[w->bucket];
    const opt_group *g = &m->groups[b->group];
    size_t acc = st_dtype_size(m->acc_dtype), all = (size_t)w->offset, mine = (size_t)(w->offset - b->first);

    w->at = b->at + (model_gathers(m, b) ? mine : all) * st_dtype_size(g->dtype);
    w->grad_at = b->grad_at + (b->part ? mine : all) * acc;
    w->master_at = b->master_at + mine * acc;
    for (int s = 0; s < g->class_.n_state; s++)
        w->state_at[s] = b->state_at[s] + mine * st_dtype_size(g->class_.state[s].dtype);
}

static int place_weights(st_model *m)
{
    size_t weights = 0, grads = 0, states = 0;

    ST_TRY(model_make_buckets(m));
    for (int32_t i = 0; i < m->n_buckets; i++) place_bucket(m, &m->buckets[i], &weights, &grads, &states);
    for (int32_t i = 0; i < m->n_weights; i++) {
        model_weight *w = m->weights[i];
        if (w->bucket >= 0) place_weight(m, w);
        else w->at = place(&weights, (size_t)w->pub.count * st_dtype_size(w->pub.dtype));
    }
    m->weight_block.bytes = weights;
    m->grad_block.bytes = grads;
    m->state_block.bytes = states;
    return ST_OK;
}

static bool summed_with(const model_accum *a, const model_stack *stack)
{ return (a->decl.sum == ST_AT_FORWARD_END ? a->stack : NULL) == stack; }

/* Accumulators that one call sums lie side by side, and so do their totals. stack NULL: those of the step's end. */
static void place_sums(st_model *m, const model_stack *stack, model_sum *sum, size_t *at)
{
    size_t acc = st_dtype_size(m->acc_dtype);

    sum->n = 0;
    for (int32_t i = 0; i < m->n_accums; i++) {
        model_accum *a = &m->accums[i];
        if (!summed_with(a, stack)) continue;
        a->at = (size_t)sum->n * acc;
        sum->n += a->decl.n;
    }
    sum->at = place(at, (size_t)sum->n * acc);
    sum->total_at = place(at, (size_t)sum->n * acc);
    for (int32_t i = 0; i < m->n_accums; i++) {
        model_accum *a = &m->accums[i];
        if (!summed_with(a, stack)) continue;
        a->total_at = sum->total_at + a->at;
        a->at += sum->at;
    }
}

static void place_cells(st_model *m)
{
    size_t at = 0, acc = st_dtype_size(m->acc_dtype), muted = 2;

    m->scalars_at = place(&at, MODEL_CELLS * acc);
    m->loss_at = place(&at, 2 * MODEL_DEPTHS * acc);
    m->metric_at = at;
    for (int32_t i = 0; i < m->n_metrics; i++) {
        m->metrics[i].at = at;
        at += 2 * acc;
    }
    m->metric_bytes = at - m->metric_at;
    m->accum_at = at = model_round(at);
    for (int32_t i = 0; i < m->n_stacks; i++) place_sums(m, m->stacks[i], &m->stacks[i]->sum, &at);
    place_sums(m, NULL, &m->step_sum, &at);
    m->accum_bytes = at - m->accum_at;
    for (int32_t i = 0; i < m->n_accums; i++)
        if ((size_t)m->accums[i].decl.n > muted) muted = (size_t)m->accums[i].decl.n;
    m->muted_at = place(&at, muted * acc);
    m->sumsq_at = place(&at, (size_t)m->n_weights * acc);
    m->fault_at = place(&at, sizeof(st_fault));
    for (int32_t g = 0; g < m->n_groups; g++)
        m->groups[g].hyper_at = place(&at, (size_t)m->optimizer_ops.n_hyper * acc);
    m->cell_block.bytes = at;
}

static void place_rows(st_model *m)
{
    size_t at = 0, acc = st_dtype_size(m->acc_dtype), tokens = (size_t)m->shape.tokens;

    model_row_layout(m, &at);
    m->row_bytes = at;
    m->nll_at = place(&at, tokens * acc);
    m->best_at = place(&at, tokens * 4);
    for (int32_t i = 0; i < m->n_tables; i++) m->tables[i].at = place(&at, tokens * (size_t)m->tables[i].dim * acc);
    m->row_block.bytes = at;
}

/* Fake addresses, far apart: offsets may be formed, nothing may be read. */
int model_layout(st_model *m)
{
    mem_block *all[] = {&m->weight_block, &m->grad_block, &m->state_block, &m->row_block, &m->cell_block};

    ST_TRY(place_weights(m));
    place_cells(m);
    place_rows(m);
    model_ahead_layout(m);
    m->staging.bytes = m->row_bytes > MODEL_STAGING && !m->ahead.pinned.bytes ? m->row_bytes : MODEL_STAGING;
    for (size_t i = 0; i < ST_COUNT(all); i++) all[i]->base = (char *)((uintptr_t)(i + 1) << 44);
    m->keep = (bump){(char *)((uintptr_t)6 << 44), 0, 0, (size_t)1 << 44, "kept tensors"};
    m->scratch = (bump){(char *)((uintptr_t)7 << 44), 0, 0, (size_t)1 << 44, "scratch"};
    model_row_tensors(m);
    return model_make_units(m);
}

static int take(st_model *m, mem_block *b, uint32_t kind, const char *what, st_error *e)
{
    void *at = NULL;
    int rc = m->be.alloc(m->device, kind, b->bytes ? b->bytes : 1, &at);

    b->base = NULL;
    if (rc != ST_OK || !at) {
        rc = st_fail(e, ST_E_NOMEM, "no memory for %s: %.1f MiB on %s", what, (double)b->bytes / 1048576,
                     m->device_words);
        st_error_hint(e, "smaller [batch] tokens, or [recompute] full = all");
        return rc;
    }
    b->base = at;
    b->kind = kind;
    return ST_OK;
}

int model_alloc(st_model *m, st_error *e)
{
    mem_block keep = {NULL, m->peak_keep, 0}, scratch = {NULL, m->peak_scratch, 0};

    m->allocated = 1;
    m->keep.base = m->scratch.base = NULL;
    m->weight_block.base = m->grad_block.base = m->state_block.base = m->row_block.base = m->cell_block.base = NULL;
    ST_TRY(take(m, &m->weight_block, ST_MEM_DEVICE, "weights", e));
    ST_TRY(take(m, &m->grad_block, ST_MEM_DEVICE, "gradients", e));
    ST_TRY(take(m, &m->state_block, ST_MEM_DEVICE, "optimizer state", e));
    ST_TRY(take(m, &m->row_block, ST_MEM_DEVICE, "packed rows", e));
    ST_TRY(take(m, &m->cell_block, ST_MEM_DEVICE, "scalars", e));
    ST_TRY(take(m, &m->staging, ST_MEM_PINNED, "staging", e));
    if (m->ahead.pinned.bytes) {
        ST_TRY(take(m, &m->ahead.pinned, ST_MEM_PINNED, "rows on their way", e));
        ST_TRY(take(m, &m->ahead.landing, ST_MEM_DEVICE, "rows on their way", e));
    }
    ST_TRY(take(m, &keep, ST_MEM_DEVICE, "activations", e));
    m->keep = (bump){keep.base, 0, 0, m->peak_keep, "kept tensors"};
    ST_TRY(take(m, &scratch, ST_MEM_DEVICE, "scratch", e));
    m->scratch = (bump){scratch.base, 0, 0, m->peak_scratch, "scratch"};
    model_row_tensors(m);
    return model_make_units(m);
}

void model_free(st_model *m)
{
    mem_block *all[] = {&m->weight_block, &m->grad_block, &m->state_block,   &m->row_block,
                        &m->cell_block,   &m->staging,    &m->ahead.pinned, &m->ahead.landing};

    st_groups_close(m->groups_open);
    m->groups_open = NULL;
    if (!m->device) return;
    for (int i = 0; i < MODEL_GRAPHS; i++) model_graph_free(m, &m->graphs[i]);
    for (size_t i = 0; m->allocated && i < ST_COUNT(all); i++)
        if (all[i]->base) m->be.free(m->device, all[i]->kind, all[i]->base);
    if (m->allocated && m->keep.base) m->be.free(m->device, ST_MEM_DEVICE, m->keep.base);
    if (m->allocated && m->scratch.base) m->be.free(m->device, ST_MEM_DEVICE, m->scratch.base);
    m->be.close(m->device);
    m->device = NULL;
}

/* ---- arenas ---- */

void *bump_take(bump *b, size_t bytes)
{
    size_t at = model_round(b->used);

    if (bytes > b->cap || at > b->cap - bytes) return NULL;
    b->used = at + bytes;
    if (b->used > b->high) b->high = b->used;
    return b->base + at;
}

static int poison(st_model *m, void *at, size_t bytes)
{ return m->run_keys.poison && !m->run.planning ? m->be.set(m->run.s.q, at, 0xff, bytes) : ST_OK; }

static st_tensor take_from(st_model *m, bump *b, int32_t dtype, int64_t rows, int64_t cols)
{
    size_t width = st_dtype_size(dtype), bytes;
    void *at;

    if (m->run.s.status != ST_OK) return st_absent();
    if (rows < 0 || cols < 0 || !width || (cols && (uint64_t)rows > (uint64_t)INT64_MAX / 16 / (uint64_t)cols)) {
        model_fail(m, ST_E_SHAPE, "asks for memory of %lld x %lld elements of type %d", (long long)rows,
                   (long long)cols, dtype);
        return st_absent();
    }
    bytes = (size_t)rows * (size_t)cols * width;
    at = bump_take(b, bytes ? bytes : 1);
    if (!at) {
        model_fail(m, ST_E_NOMEM, "the arena of %zu bytes for %s is full: the plan did not see this call", b->cap,
                   b->name);
        return st_absent();
    }
    if (poison(m, at, bytes) != ST_OK) model_fail(m, ST_E_DEVICE, "memory was not filled");
    return st_tensor2(at, dtype, rows, cols);
}

st_tensor model_keep(st_model *m, int32_t dtype, int64_t rows, int64_t cols)
{ return take_from(m, &m->keep, dtype, rows, cols); }

st_tensor model_scratch(st_model *m, int32_t dtype, int64_t rows, int64_t cols)
{ return take_from(m, &m->scratch, dtype, rows, cols); }

/* Kept memory only when this call's backward follows and the slot is not dropped; else scratch, absent in backward. */
st_tensor model_memory(st_step *s, int32_t slot, uint32_t flags, int32_t dtype, int64_t rows, int64_t cols)
{
    model_run *r = (model_run *)(void *)s;
    st_model *m = r->m;
    const context *c = &r->now;
    bool kept = slot >= 0 && c->train && !c->dry && !(c->drop >> (slot & 31) & 1u);
    st_tensor t;

    if (s->status != ST_OK) return st_absent();
    if (slot >= 0 && (!c->frame || slot >= c->part->n_slots || slot >= MODEL_SLOTS)) {
        model_fail(m, ST_E_INTERNAL, "keeps slot %d: its table has %d", slot, c->part ? c->part->n_slots : 0);
        return st_absent();
    }
    t = kept ? model_keep(m, dtype, rows, cols) : model_scratch(m, dtype, rows, cols);
    if (t.data && flags & ST_ZEROED &&
        model_zero(m, t.data, (size_t)rows * (size_t)cols * st_dtype_size(dtype)) != ST_OK)
        return st_absent();
    if (slot >= 0) c->frame->slot[slot] = kept ? t : st_absent();
    return t;
}

int model_zero(st_model *m, void *at, size_t bytes)
{
    if (m->run.planning || m->run.s.status != ST_OK || !bytes) return m->run.s.status;
    return m->be.set(m->run.s.q, at, 0, bytes) == ST_OK ? ST_OK : model_fail(m, ST_E_DEVICE, "memory was not zeroed");
}

/* ---- host copies, in pieces through pinned memory ---- */

/* The first `bytes` of the staging memory, there and back; the host waits. */
int model_to_device(st_model *m, void *device, size_t bytes, st_error *e)
{
    if (m->be.copy(m->run.s.q, device, m->staging.base, bytes) != ST_OK)
        return st_fail(e, ST_E_DEVICE, "a copy to the device failed");
    return m->be.sync(m->device, e);
}

int model_from_device(st_model *m, const void *device, size_t bytes, st_error *e)
{
    if (m->be.copy(m->run.s.q, m->staging.base, device, bytes) != ST_OK)
        return st_fail(e, ST_E_DEVICE, "a copy from the device failed");
    return m->be.sync(m->device, e);
}

int model_upload(st_model *m, void *device, const void *host, size_t bytes, st_error *e)
{
    for (size_t i = 0; i < bytes; i += MODEL_STAGING) {
        size_t n = bytes - i < MODEL_STAGING ? bytes - i : MODEL_STAGING;
        memcpy(m->staging.base, (const char *)host + i, n);
        ST_TRY(model_to_device(m, (char *)device + i, n, e));
    }
    return ST_OK;
}

int model_download(st_model *m, void *host, const void *device, size_t bytes, st_error *e)
{
    for (size_t i = 0; i < bytes; i += MODEL_STAGING) {
        size_t n = bytes - i < MODEL_STAGING ? bytes - i : MODEL_STAGING;
        ST_TRY(model_from_device(m, (const char *)device + i, n, e));
        memcpy((char *)host + i, m->staging.base, n);
    }
    return ST_OK;
}
