/* SPDX-License-Identifier: Apache-2.0 */
/* model/stack.c - the loop over a pattern: x = x + layer(norm(x)). At each border one pass adds what the layer
 * before gave and norms the sum; in backward one pass folds the layer's dx into the stream's gradient. The residual
 * in front of each layer is all that the host keeps; normed inputs are made again. */
#include "model/private.h"

static bool present(const st_tensor *t) { return t && t->data; }

static stack_call *open_call(st_model *m, model_stack *st)
{
    stack_call *c;

    if (st->n_calls == st->cap_calls && !m->run.planning) {
        model_fail(m, ST_E_NOMEM, "call %d of the stack %s: the plan did not see this call", st->n_calls + 1, st->path);
        return NULL;
    }
    if (st->n_calls == st->cap_calls) {
        if (!model_grow(m->arena, &st->calls, st->n_calls, &st->cap_calls, sizeof *st->calls)) {
            model_fail(m, ST_E_NOMEM, "no memory for the stack %s", st->path);
            return NULL;
        }
        for (int32_t i = st->n_calls; i < st->cap_calls; i++) st->calls[i] = NULL;
    }
    if (!st->calls[st->n_calls]) {
        c = ST_NEW(m->arena, stack_call);
        if (c) c->frames = ST_NEW_N(m->arena, frame, st->n);
        if (!c || !c->frames) {
            model_fail(m, ST_E_NOMEM, "no memory for the stack %s", st->path);
            return NULL;
        }
        st->calls[st->n_calls] = c;
    }
    return st->calls[st->n_calls];
}

static st_tensor keep_stat(st_model *m, const model_stack *st, int kept, int wanted)
{ return kept && wanted ? model_keep(m, m->acc_dtype, st->rows, 1) : st_absent(); }

static int norm(st_model *m, const model_stack *st, int32_t w, int32_t b, const st_tensor *r, const st_tensor *y,
                const st_tensor *r_out, const st_tensor *n, const st_tensor *rstd, const st_tensor *mean)
{
    st_step *s = &m->run.s;
    st_tensor tw = model_weight_of(s, w), tb = b >= 0 ? model_weight_of(s, b) : st_absent();
    return ST_OP(s, norm,
                 &(st_norm){.kind = st->kind,
                            .eps = st->eps,
                            .r = r,
                            .y = present(y) ? y : NULL,
                            .w = &tw,
                            .b = b >= 0 ? &tb : NULL,
                            .r_out = r_out,
                            .n = n,
                            .rstd = rstd,
                            .mean = mean});
}

static int norm_bwd(st_model *m, const model_stack *st, int32_t w, int32_t b, const st_tensor *r, const st_tensor *rstd,
                    const st_tensor *mean, const st_tensor *dn, const st_tensor *dr, int add)
{
    st_step *s = &m->run.s;
    st_tensor tw = model_weight_of(s, w), tb = b >= 0 ? model_weight_of(s, b) : st_absent();
    st_tensor dw = model_grad_of(s, w, NULL), db = b >= 0 ? model_grad_of(s, b, NULL) : st_absent();
    if (!dw.data && !db.data && !present(dr)) return s->status;
    return ST_OP(s, norm_bwd,
                 &(st_norm_bwd){.kind = st->kind,
                                .add = add,
                                .eps = st->eps,
                                .r = r,
                                .w = &tw,
                                .b = b >= 0 ? &tb : NULL,
                                .rstd = rstd,
                                .mean = present(mean) ? mean : NULL,
                                .dn = dn,
                                .dr = dr,
                                .dw = &dw,
                                .db = b >= 0 ? &db : NULL});
}

/* The layer's own forward. dry: the first pass of a full recompute keeps nothing. */
int model_call_forward(st_model *m, model_part *p, frame *f, const st_tensor *x, const st_tensor *y, int dry, int muted)
{
    model_run *r = &m->run;
    int rc;

    for (int i = 0; i < MODEL_SLOTS; i++) f->slot[i] = st_absent();
    r->now.dry = dry;
    r->now.muted = muted;
    rc = r->s.status == ST_OK ? p->layer.forward(p->self, &r->s, x, y) : r->s.status;
    if (rc != ST_OK) model_fail(m, rc, "forward failed (%s)", st_code_name(rc));
    r->now.dry = r->now.muted = 0;
    return r->s.status;
}

static void set_train(st_model *m, int train) { m->run.now.train = m->run.s.train = train; }

/* r, y: the residual in front of the layer before and what that layer gave. r becomes this layer's residual. */
static int layer_forward(st_model *m, model_stack *st, int32_t i, frame *f, int kept, st_tensor *r, const st_tensor *y,
                         const st_tensor *rbuf)
{
    model_part *p = st->layers[i];
    size_t mark = m->scratch.used;
    context saved;
    st_tensor n;

    f->keep_mark = m->keep.used;
    model_open_part(m, p, 0);
    model_enter(m, p, MODEL_FORWARD, f, &saved);
    set_train(m, kept);
    f->r = kept ? model_keep(m, m->dtype, st->rows, st->hidden) : *rbuf;
    f->rstd = keep_stat(m, st, kept, 1);
    f->mean = keep_stat(m, st, kept, st->kind == ST_NORM_LAYER);
    n = model_scratch(m, m->dtype, st->rows, st->hidden);
    norm(m, st, p->norm, p->norm_bias, r, i ? y : NULL, &f->r, &n, &f->rstd, &f->mean);
    if (i && st == m->trunk) model_look(m, "residual", i - 1, &f->r);
    model_call_forward(m, p, f, &n, y, kept && p->full, 0);
    if (kept && st == m->trunk) model_look_slots(m, p, f);
    *r = f->r;
    model_leave(m, &saved);
    model_close_part(m, p);
    m->scratch.used = mark;
    return m->run.s.status;
}

static int32_t bias_of(const st_model *m, st_wid norm_w) { return norm_w == m->final_norm ? m->final_norm_bias : -1; }

static int finish_forward(st_model *m, model_stack *st, stack_call *c, int keeps, const st_tensor *r,
                          const st_tensor *y, const st_tensor *rbuf, const st_tensor *out)
{
    st_step *s = &m->run.s;

    if (c->norm < 0) return ST_OP(s, add, 1.0, r, 1.0, y, out);
    c->last = keeps ? model_keep(m, m->dtype, st->rows, st->hidden) : *rbuf;
    c->rstd = keep_stat(m, st, keeps, 1);
    c->mean = keep_stat(m, st, keeps, st->kind == ST_NORM_LAYER);
    norm(m, st, c->norm, bias_of(m, c->norm), r, y, &c->last, out, &c->rstd, &c->mean);
    if (st == m->trunk) {
        model_look(m, "residual", st->n - 1, &c->last);
        model_look(m, "final", -1, out);
    }
    if (st->part > 0) model_look(m, "depth.final", st->part, out);
    return s->status;
}

/* The layers see the view's row as the host's own form of it; the caller gives memory that lasts as long. */
static void enter_view(st_model *m, const st_view *v, st_row *row)
{
    if (!v) return;
    st_sized_copy(row, sizeof *row, v->row);
    row->size = sizeof *row;
    m->run.now.row = m->run.s.row = row;
    m->run.now.rotary = v->rotary;
}

int model_stack_forward(st_model *m, model_stack *st, const st_view *v, const st_tensor *u, st_wid norm_w,
                        const st_tensor *out)
{
    model_run *run = &m->run;
    context saved = run->now;
    int keeps = run->now.train;
    size_t mark = m->scratch.used;
    stack_call *c = open_call(m, st);
    st_row row;
    st_tensor r = *u, y, rbuf = st_absent();

    if (!c) return run->s.status;
    enter_view(m, v, &row);
    c->norm = norm_w;
    y = model_scratch(m, m->dtype, st->rows, st->hidden);
    if (!keeps || st->first > 0) rbuf = model_scratch(m, m->dtype, st->rows, st->hidden);
    for (int32_t i = 0; i < st->n && run->s.status == ST_OK; i++)
        layer_forward(m, st, i, &c->frames[i], keeps && i >= st->first, &r, &y, &rbuf);
    finish_forward(m, st, c, keeps, &r, &y, &rbuf, out);
    c->keep_end = m->keep.used;
    st->n_calls += keeps;
    m->scratch.used = mark;
    run->now = saved;
    run->s.row = saved.row;
    return model_accum_total(m, st);
}

/* ---- backward ---- */

/* dr: the stream's gradient behind the layer on entry, in front of it on return. */
static int layer_backward(st_model *m, model_stack *st, int32_t i, frame *f, const st_tensor *dr)
{
    st_step *s = &m->run.s;
    model_part *p = st->layers[i];
    int below = i > st->first || st->input;
    int norm_trains = m->weights[p->norm]->trains || (p->norm_bias >= 0 && m->weights[p->norm_bias]->trains);
    st_tensor n, dx = st_absent();
    size_t mark = m->scratch.used;
    context saved;
    int rc;

    model_open_part(m, p, 1);
    model_enter(m, p, MODEL_BACKWARD, f, &saved);
    set_train(m, 1);
    n = model_scratch(m, m->dtype, st->rows, st->hidden);
    norm(m, st, p->norm, p->norm_bias, &f->r, NULL, NULL, &n, NULL, NULL);
    if (p->full) { /* forward again, keeping this time; counted once, so cells are muted */
        size_t again = m->scratch.used;
        st_tensor y = model_scratch(m, m->dtype, st->rows, st->hidden);
        model_call_forward(m, p, f, &n, &y, 0, 1);
        m->scratch.used = again;
    }
    if (below || norm_trains) dx = model_scratch(m, m->dtype, st->rows, st->hidden);
    rc = s->status == ST_OK ? p->layer.backward(p->self, s, &n, dr, &dx) : s->status;
    if (rc != ST_OK) model_fail(m, rc, "backward failed (%s)", st_code_name(rc));
    if (dx.data) norm_bwd(m, st, p->norm, p->norm_bias, &f->r, &f->rstd, &f->mean, &dx, below ? dr : NULL, 1);
    model_leave(m, &saved);
    model_close_part(m, p);
    m->scratch.used = mark;
    return s->status;
}

static int enter_backward(st_model *m, model_stack *st, stack_call *c, const st_tensor *dout, const st_tensor *dr)
{
    st_step *s = &m->run.s;

    if (c->norm >= 0) return norm_bwd(m, st, c->norm, bias_of(m, c->norm), &c->last, &c->rstd, &c->mean, dout, dr, 0);
    if (present(dr) && dr->data != dout->data) return ST_OP(s, copy, dout, dr);
    return s->status;
}

int model_stack_backward(st_model *m, model_stack *st, const st_view *v, const st_tensor *dout, const st_tensor *du)
{
    model_run *run = &m->run;
    context saved = run->now;
    size_t mark = m->scratch.used;
    int wanted = st->first < st->n || st->input, top;
    st_tensor dr = present(du) ? *du : st_absent();
    stack_call *c;
    st_row row;

    if (run->s.status != ST_OK) return run->s.status;
    if (!st->n_calls) return model_fail(m, ST_E_INTERNAL, "backward of the stack %s without a forward", st->path);
    c = st->calls[--st->n_calls];
    top = m->keep.used == c->keep_end; /* nothing that its owner keeps lies above: give memory back layer by layer */
    enter_view(m, v, &row);
    if (wanted && !dr.data) dr = model_scratch(m, m->dtype, st->rows, st->hidden);
    enter_backward(m, st, c, dout, wanted ? &dr : NULL);
    for (int32_t i = st->n; i-- > st->first && run->s.status == ST_OK;) {
        size_t keep = m->keep.used;
        layer_backward(m, st, i, &c->frames[i], &dr);
        m->keep.used = top ? c->frames[i].keep_mark : keep;
    }
    /* what the owner does with it is dropped */
    if (!wanted && dr.data) model_zero(m, dr.data, (size_t)(st->rows * st->hidden) * st_dtype_size(m->dtype));
    m->scratch.used = mark;
    run->now = saved;
    run->s.row = saved.row;
    return run->s.status;
}

/* ---- nested stacks ---- */

static model_stack *nested(st_model *m, int32_t id)
{
    if (m->run.s.status != ST_OK) return NULL;
    if (id >= 0 && id < m->n_stacks && m->stacks[id]->owner == m->run.now.part) return m->stacks[id];
    model_fail(m, ST_E_INTERNAL, "stack %d is not its own", id);
    return NULL;
}

static int check_width(st_model *m, const model_stack *st, const st_tensor *t, const char *what)
{
    if (!present(t) || (t->nd == 2 && t->dim[0] == st->rows && t->dim[1] == st->hidden && t->stride[0] == st->hidden))
        return ST_OK;
    return model_fail(m, ST_E_SHAPE, "%s of the stack %s is %lld x %lld, not %lld x %lld in one piece", what, st->path,
                      (long long)t->dim[0], (long long)t->dim[1], (long long)st->rows, (long long)st->hidden);
}

/* The layers of a stack with a view of its own rotate by the view's tables. */
static int check_view(st_model *m, const model_stack *st, const st_view *v)
{
    int32_t dim = v && v->rotary ? v->rotary->dim : 0;

    if (!st->rotary_dim || st->part > 0 || (dim > 0 && dim <= st->rotary_dim)) return ST_OK;
    return model_fail(m, ST_E_SHAPE, "layers of the stack %s rotate heads of %d columns: its view's tables have %d",
                      st->path, st->rotary_dim, dim);
}

int model_stack_api(st_step *s, int32_t id, const st_view *v, const st_tensor *u, st_wid norm_w, const st_tensor *out)
{
    st_model *m = ((model_run *)(void *)s)->m;
    model_stack *st = nested(m, id);

    if (!st) return s->status;
    ST_TRY(check_width(m, st, u, "the entry"));
    ST_TRY(check_width(m, st, out, "the exit"));
    ST_TRY(check_view(m, st, v));
    return model_stack_forward(m, st, v, u, norm_w, out);
}

int model_stack_bwd_api(st_step *s, int32_t id, const st_view *v, const st_tensor *dout, const st_tensor *du)
{
    st_model *m = ((model_run *)(void *)s)->m;
    model_stack *st = nested(m, id);

    if (!st) return s->status;
    ST_TRY(check_width(m, st, dout, "the gradient at the exit"));
    ST_TRY(check_width(m, st, du, "the gradient at the entry"));
    return model_stack_backward(m, st, v, dout, du);
}
