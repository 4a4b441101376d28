/* SPDX-License-Identifier: Apache-2.0 */
/* model/step_api.c - what a running part calls: weights, gradients, launches, groups, lanes, cells, errors. */
#include "model/private.h"
#include <string.h>

static model_run *run_of(st_step *s) { return (model_run *)(void *)s; }

/* ---- errors ---- */

void model_words(const st_model *m, const model_part *p, char *out, size_t n)
{
    if (!p || !p->proto) snprintf(out, n, "the host");
    else if (p->kind == ST_KIND_LAYER)
        snprintf(out, n, "%s (%c, %s)", p->path, p->proto->symbol, p->proto->plugin->name);
    else snprintf(out, n, "%s (%s)", p->path, p->proto->plugin->name);
}

static int fail_text(st_model *m, int code, const char *text)
{
    model_run *r = &m->run;
    char who[200];

    if (r->s.status != ST_OK) return r->s.status;
    r->s.status = code;
    model_words(m, r->now.part, who, sizeof who);
    if (r->launch) st_fail(&m->error, code, "%s, %s: %s", who, r->launch, text);
    else st_fail(&m->error, code, "%s: %s", who, text);
    m->error.layer = r->now.part && r->now.part->kind == ST_KIND_LAYER ? r->now.part->index : -1;
    return code;
}

int model_fail(st_model *m, int code, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return fail_text(m, code, text);
}

static int api_fail(st_step *s, int code, const char *file, int line, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return fail_text(run_of(s)->m, code, text);
}

/* ---- the queue that ops see ---- */

static void *queue_scratch(const st_queue *q, size_t bytes)
{
    model_run *r = ((const run_queue *)(const void *)q)->run;
    void *at;

    if (r->s.status != ST_OK) return NULL;
    if (!r->op_open) {
        r->op_open = 1;
        r->op_mark = r->m->scratch.used;
    }
    at = bump_take(&r->m->scratch, bytes ? bytes : 1);
    if (!at)
        model_fail(r->m, ST_E_NOMEM,
                   "%zu bytes of workspace: the arena of %zu bytes is full, the plan did not see this call", bytes,
                   r->m->scratch.cap);
    return at;
}

static int queue_fail(const st_queue *q, int code, const char *fmt, ...)
{
    model_run *r = ((const run_queue *)(const void *)q)->run;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return fail_text(r->m, code, text);
}

static void queue_count(const st_queue *q, double flops, double bytes)
{
    model_run *r = ((const run_queue *)(const void *)q)->run;
    st_model *m = r->m;

    m->trial_flops += flops;
    if (m->counting && !r->now.muted) {
        m->flops += flops;
        (r->now.part ? r->now.part : m->host)->flops += flops;
        if (model_is_product(r->launch)) m->gemm_flops += flops;
    }
    if (m->profile && !r->planning && r->launch) model_timer_work(m, flops, bytes);
}

void model_queues(st_model *m)
{
    for (int i = 0; i < ST_LANES; i++) {
        st_queue *q = &m->queues[i].q;
        m->queues[i].run = &m->run;
        q->size = sizeof *q;
        q->planning = m->run.planning != PLAN_NO;
        q->fault = (st_fault *)(void *)(m->cell_block.base + m->fault_at);
        q->layer = -1;
        q->scratch = queue_scratch;
        q->count = queue_count;
        q->fail = queue_fail;
    }
    m->run.s.q = &m->queues[0].q;
}

/* ---- launches ---- */

static int api_begin(st_step *s, const char *name)
{
    model_run *r = run_of(s);

    if (s->status != ST_OK) return 0;
    r->launch = name;
    r->op_open = 0;
    if (r->planning) {
        model_note_launch(r->m, name);
        r->m->trial_launches++;
        return 0;
    }
    return !r->m->profile || model_timer_begin(r->m, name) == ST_OK;
}

/* An op's workspace ends with it, so it is given back unless side lanes still run. */
static int api_end(st_step *s, int rc)
{
    model_run *r = run_of(s);
    st_model *m = r->m;

    if (rc != ST_OK && s->status == ST_OK) model_fail(m, rc, "the launch failed (%s)", st_code_name(rc));
    if (r->op_open && !r->lanes && m->scratch.used >= r->op_mark) m->scratch.used = r->op_mark;
    if (m->profile && !r->planning && s->status == ST_OK) model_timer_end(m);
    r->op_open = 0;
    r->launch = NULL;
    return s->status;
}

/* ---- who runs ---- */

static void apply(st_model *m)
{
    model_run *r = &m->run;
    st_step *s = &r->s;
    const context *c = &r->now;

    s->row = c->row;
    s->kernels = r->planning ? NULL : c->kernels;
    s->layer = c->layer;
    s->depth = c->depth;
    s->train = c->train;
    s->seed = c->seed;
    for (int i = 0; i < ST_LANES; i++) m->queues[i].q.layer = c->part ? c->part->id : -1;
}

/* "forward 3 G gated_delta_net": a layer of the trunk by its index, others by their path. */
static const char *range_name(st_model *m, model_part *p, int32_t why)
{
    static const char *const words[] = {"forward", "backward", "loss", "update"};
    const char *path = !strncmp(p->path, "layers.", 7) ? p->path + 7 : p->path;
    const char symbol[] = {' ', p->proto->symbol, 0};

    if (!p->range[why])
        p->range[why] = st_arena_printf(m->arena, "%s %s%s %s", words[why], path, symbol[1] ? symbol : "",
                                        p->proto->plugin->name);
    return p->range[why];
}

static int32_t open_range(st_model *m, model_part *p, int32_t why)
{
    const char *name = m->be.range_push && m->device && !m->run.planning && p->proto ? range_name(m, p, why) : NULL;
    return name && m->be.range_push(m->device, name) == ST_OK;
}

/* Until model_leave, calls on the step are this part's; its scratch ends with it. */
void model_enter(st_model *m, model_part *p, int32_t why, frame *f, context *saved)
{
    context *c = &m->run.now;

    *saved = *c;
    c->part = p;
    c->frame = f;
    c->scratch = m->scratch.used;
    c->kernels = p->proto ? p->proto->kernels : NULL;
    c->drop = p->drop;
    c->layer = p->index;
    c->depth = p->stack ? p->stack->depth : 0;
    c->range = open_range(m, p, why);
    c->seed = p->seed + 0x9e3779b97f4a7c15u * (uint64_t)(m->run.s.micro + 1);
    apply(m);
}

void model_leave(st_model *m, const context *saved)
{
    st_step *s = &m->run.s;

    if (m->run.lanes) s->api->lane(s, ST_LANE_JOIN, ST_LANE_SIDE);
    m->scratch.used = m->run.now.scratch;
    if (m->run.now.range) (void)m->be.range_pop(m->device);
    m->run.now = *saved;
    apply(m);
}

/* ---- weights ---- */

static model_weight *find(st_model *m, st_wid id)
{
    if (id >= 0 && id < m->n_weights) return m->weights[id];
    model_fail(m, ST_E_INTERNAL, "asks for weight %d of %d", id, m->n_weights);
    return NULL;
}

/* What only shares stay of is whole while its layer runs, and for nobody else. */
static bool is_whole(st_model *m, const model_weight *w, int gradient)
{
    const opt_bucket *b = w->bucket >= 0 ? &m->buckets[w->bucket] : NULL;

    if (!b || (gradient ? !b->part || b->grads : !model_gathers(m, b) || b->weights)) return true;
    model_fail(m, ST_E_INTERNAL,
               "asks for %s %s, but its layer does not run: with [parallel] zero = %lld only a share of it is there",
               gradient ? "the gradient of weight" : "weight", w->pub.path, (long long)m->parallel.zero);
    return false;
}

st_tensor model_weight_of(st_step *s, st_wid id)
{
    st_model *m = run_of(s)->m;
    const model_weight *w = s->status == ST_OK ? find(m, id) : NULL;
    if (!w || !is_whole(m, w, 0)) return st_absent();
    return model_weight_tensor(m, w);
}

/* One call is one contribution. The first planning pass counts them; ST_W_BETA weights start by being overwritten. */
st_tensor model_grad_of(st_step *s, st_wid id, float *beta)
{
    model_run *r = run_of(s);
    st_model *m = r->m;
    model_weight *w = s->status == ST_OK ? find(m, id) : NULL;

    if (beta) *beta = 1;
    if (!w || !w->trains || !is_whole(m, w, 1)) return st_absent();
    if (r->planning == PLAN_COUNT) {
        w->per_micro++;
        if (w->order < 0) w->order = r->order++;
    }
    if (w->pub.flags & ST_W_BETA && !w->done && !m->buckets[w->bucket].grads) { /* those of a layer start at 0 */
        if (beta) *beta = 0;
        else model_zero(m, model_grad_tensor(m, w).data, (size_t)w->pub.count * st_dtype_size(m->acc_dtype));
    }
    w->done++;
    return model_grad_tensor(m, w);
}

static st_tensor api_section(st_step *s, st_wid id, st_tensor whole, int32_t sec)
{
    st_model *m = run_of(s)->m;
    const model_weight *w = s->status == ST_OK ? find(m, id) : NULL;
    int64_t first = 0;
    int32_t dim;

    if (!w) return st_absent();
    if (sec < 0 || sec >= w->pub.n_sec) {
        model_fail(m, ST_E_INTERNAL, "asks for section %d of weight %s, which has %d", sec, w->pub.path, w->pub.n_sec);
        return st_absent();
    }
    dim = w->pub.sec_dim;
    for (int32_t i = 0; i < sec; i++) first += w->pub.sec[i].n;
    if (whole.data) whole.data = (char *)whole.data + (size_t)(first * whole.stride[dim]) * st_dtype_size(whole.dtype);
    whole.dim[dim] = w->pub.sec[sec].n;
    return whole;
}

/* ---- memory marks ---- */

static st_tensor api_kept(st_step *s, int32_t slot)
{
    const context *c = &run_of(s)->now;
    if (s->status != ST_OK || !c->frame || slot < 0 || slot >= c->part->n_slots) return st_absent();
    return c->frame->slot[slot];
}

static size_t api_mark(st_step *s) { return run_of(s)->m->scratch.used; }

/* What side lanes may still use stays taken; the release behind their join, or the call's end, gives it back. */
static void api_release(st_step *s, size_t mark)
{
    model_run *r = run_of(s);
    if (mark >= r->now.scratch && mark <= r->m->scratch.used) r->m->scratch.used = r->lanes ? r->m->scratch.used : mark;
    else model_fail(r->m, ST_E_INTERNAL, "releases a mark that is not its own");
}

/* ---- lanes ---- */

static int wait_for(st_model *m, int32_t waits, int32_t on)
{
    if (m->run.planning || !m->lane_event[on]) return ST_OK;
    if (m->be.record(&m->queues[on].q, m->lane_event[on]) == ST_OK &&
        m->be.wait(&m->queues[waits].q, m->lane_event[on]) == ST_OK)
        return ST_OK;
    return model_fail(m, ST_E_DEVICE, "a lane could not wait for another");
}

static int api_lane(st_step *s, uint32_t what, uint32_t lane)
{
    model_run *r = run_of(s);
    st_model *m = r->m;
    int32_t here = (int32_t)((const run_queue *)(const void *)s->q - m->queues);

    if (s->status != ST_OK) return s->status;
    if (lane >= ST_LANES) return model_fail(m, ST_E_INTERNAL, "lane %u does not exist", lane);
    switch (what) {
    case ST_LANE_ENTER:
        ST_TRY(wait_for(m, (int32_t)lane, here));
        r->lanes |= 1 << lane & ~1;
        s->q = &m->queues[lane].q;
        return ST_OK;
    case ST_LANE_LEAVE: s->q = &m->queues[0].q; return ST_OK;
    case ST_LANE_JOIN:
        s->q = &m->queues[0].q;
        for (int32_t i = 1; i < ST_LANES; i++)
            if (r->lanes >> i & 1) ST_TRY(wait_for(m, 0, i));
        r->lanes = 0;
        return ST_OK;
    default: return model_fail(m, ST_E_INTERNAL, "lane call %u does not exist", what);
    }
}

/* ---- cells, tables, lists ---- */

st_tensor model_cell(const st_model *m, size_t at, int64_t n)
{
    return model_flat(m->cell_block.base + at, m->acc_dtype, n);
}

static st_tensor api_scalar(st_step *s, int32_t which)
{
    st_model *m = run_of(s)->m;
    if (s->status != ST_OK) return st_absent();
    if (which < 0 || which >= MODEL_CELLS) {
        model_fail(m, ST_E_INTERNAL, "scalar %d does not exist", which);
        return st_absent();
    }
    return model_cell(m, m->scalars_at + (size_t)which * st_dtype_size(m->acc_dtype), 1);
}

static st_tensor api_tiles(st_step *s, int32_t id)
{
    st_model *m = run_of(s)->m;
    if (s->status != ST_OK) return st_absent();
    if (id < 0 || id >= m->shape.n_tiles || s->row != &m->row) {
        model_fail(m, ST_E_INTERNAL, "work list %d does not exist here", id);
        return st_absent();
    }
    return st_tensor2(m->row_block.base + m->tile_at[id], ST_I32, st_shape_tile_capacity(&m->shape, id), 3);
}

static st_rotary api_rotary(st_step *s, int32_t id)
{
    model_run *r = run_of(s);
    st_model *m = r->m;
    st_rotary none = {st_absent(), st_absent(), 0, 0};
    const model_table *t;
    size_t half;

    if (s->status != ST_OK || id == -1) return none;
    if (id == MODEL_ROTARY_VIEW) return r->now.rotary ? *r->now.rotary : none;
    if (id < 0 || id >= m->n_tables) {
        model_fail(m, ST_E_INTERNAL, "rotary table %d does not exist", id);
        return none;
    }
    t = &m->tables[id];
    half = (size_t)m->shape.tokens * (size_t)(t->dim / 2) * st_dtype_size(m->acc_dtype);
    none.cos = st_tensor2(m->row_block.base + t->at, m->acc_dtype, m->shape.tokens, t->dim / 2);
    none.sin = st_tensor2(m->row_block.base + t->at + half, m->acc_dtype, m->shape.tokens, t->dim / 2);
    none.dim = t->dim;
    return none;
}

/* In a replayed forward: a cell that nobody reads. */
static st_tensor muted(st_model *m, int64_t n) { return model_cell(m, m->muted_at, n); }

static st_tensor api_accum(st_step *s, int32_t id)
{
    model_run *r = run_of(s);
    st_model *m = r->m;
    if (s->status != ST_OK) return st_absent();
    if (id < 0 || id >= m->n_accums) {
        model_fail(m, ST_E_INTERNAL, "accumulator %d does not exist", id);
        return st_absent();
    }
    return r->now.muted ? muted(m, m->accums[id].decl.n) : model_cell(m, m->accums[id].at, m->accums[id].decl.n);
}

static st_tensor api_total(st_step *s, int32_t id)
{
    st_model *m = run_of(s)->m;
    if (s->status != ST_OK) return st_absent();
    if (id >= 0 && id < m->n_accums) return model_cell(m, m->accums[id].total_at, m->accums[id].decl.n);
    model_fail(m, ST_E_INTERNAL, "accumulator %d does not exist", id);
    return st_absent();
}

static st_tensor api_metric(st_step *s, int32_t id)
{
    model_run *r = run_of(s);
    st_model *m = r->m;
    if (s->status != ST_OK) return st_absent();
    if (id >= 0 && id < m->n_metrics) return r->now.muted ? muted(m, 2) : model_cell(m, m->metrics[id].at, 2);
    model_fail(m, ST_E_INTERNAL, "metric %d does not exist", id);
    return st_absent();
}

const st_step_api *model_step_api(void)
{
    static const st_step_api api = {
        .size = sizeof api,
        .memory = model_memory,
        .kept = api_kept,
        .mark = api_mark,
        .release = api_release,
        .weight = model_weight_of,
        .grad = model_grad_of,
        .section = api_section,
        .linear = model_linear,
        .linear_bwd = model_linear_bwd,
        .collective = model_collective,
        .exchange = model_exchange,
        .lane = api_lane,
        .begin = api_begin,
        .end = api_end,
        .fail = api_fail,
        .scalar = api_scalar,
        .tiles = api_tiles,
        .rotary = api_rotary,
        .accum = api_accum,
        .total = api_total,
        .metric = api_metric,
        .embed = model_embed,
        .embed_bwd = model_embed_bwd,
        .lm_loss = model_lm_loss,
        .stack = model_stack_api,
        .stack_bwd = model_stack_bwd_api,
    };
    return &api;
}
