/* SPDX-License-Identifier: Apache-2.0 */
/* moe/moe.c - mixture of experts: the router's top_k of many gated MLPs, weighted, plus a shared one behind a sigmoid
 * gate.
 *
 * Picks are sorted by expert, so that all experts are one grouped product whose group sizes only the device knows. No
 * pick is ever dropped: rows are reserved for the worst case, or a smaller capacity faults when it does not suffice.
 * The share of a pick goes between its two products, so its gradient needs no expert output. */
#include "cost.h"
#include <math.h>
#include <strata/layer.h>

enum { AUX_NONE, AUX_MICRO, AUX_STEP, AUX_HF };
typedef struct moe {
    int64_t experts, top_k, width, shared_width;
    double aux_coef, capacity;
    int32_t aux, force_balance;
    double report_scale, loss_coef; /* of experts * sum of f P: as reported, and as a factor of a token's gradient */
    st_wid router, gate_up, down, shared_gate_up, shared_down, shared_gate;
    int32_t load, balance; /* accumulators: of the whole step, and what the balance loss looks at */
    int32_t load_max, load_min, violation, entropy, balance_loss;
} moe;

enum { SEC_GATE, SEC_UP };
enum {
    LOGITS,
    CHOICE,
    SHARE,
    OFFSET,
    ROW,
    WEIGHT,
    PLACE,
    SORTED,
    GATE_UP,
    PRODUCT,
    SHARED_GATE_UP,
    SHARED_PRODUCT,
    SHARED_OUT,
    SHARED_GATE
};
static const st_slot slots[] = {
    [LOGITS] = {"router_logits", 0, 0},
    [CHOICE] = {"choice", 0, 0},
    [SHARE] = {"share", 0, 0},
    [OFFSET] = {"offset", 0, 0},
    [ROW] = {"row", 0, 0},
    [WEIGHT] = {"weight", 0, 0},
    [PLACE] = {"place", 0, 0},
    [SORTED] = {"sorted", ST_DROP, 0},
    [GATE_UP] = {"gate_up", 0, 0},
    [PRODUCT] = {"product", ST_DROP, 0},
    [SHARED_GATE_UP] = {"shared_gate_up", 0, 0},
    [SHARED_PRODUCT] = {"shared_product", ST_DROP, 0},
    [SHARED_OUT] = {"shared_out", ST_DROP, 0},
    [SHARED_GATE] = {"shared_gate", 0, 0},
};

/* ---- configure ---- */

/* Sorted rows for n tokens: picks, and each expert's last tile filled up. */
static int64_t sorted_rows(const moe *m, int64_t n)
{
    const int64_t picks = n * m->top_k, used = m->experts < picks ? m->experts : picks;
    int64_t room = picks;
    if (m->capacity > 0 && m->capacity < 1) room = (int64_t)ceil(m->capacity * (double)picks);
    return (room + used * (ST_GROUP_TILE - 1) + ST_GROUP_TILE - 1) / ST_GROUP_TILE * ST_GROUP_TILE;
}
static st_wid matrices(st_env *e, const char *name, int64_t experts, int64_t out, int64_t in, const st_section *sec,
                       int init)
{
    const int expert = experts > 0; /* 0: one matrix, whole on every rank */
    st_weight w = {.name = name,
                   .flags = ST_W_BETA,
                   .nd = 2 + expert,
                   .sec_dim = sec ? expert : 0,
                   .n_sec = sec ? 2 : 0,
                   .sec = sec,
                   .init = init};
    if (expert) {
        w.dim[0] = experts;
        w.cut[0] = ST_G_EXPERT;
    }
    w.dim[expert] = out;
    w.dim[1 + expert] = in;
    return st_declare(e, w);
}
static void declare_weights(moe *m, st_env *e)
{
    const st_section routed[] = {{"gate", m->width, 1, 0, 0}, {"up", m->width, 1, 0, 0}};
    const st_section shared[] = {{"gate", m->shared_width, 1, 0, 0}, {"up", m->shared_width, 1, 0, 0}};
    m->router = st_matrix(e, "router", m->experts, e->hidden, ST_CUT_NONE);
    m->gate_up = matrices(e, "gate_up", m->experts, 2 * m->width, e->hidden, routed, ST_INIT_NORMAL);
    m->down = matrices(e, "down", m->experts, e->hidden, m->width, NULL, ST_INIT_OUT);
    if (!m->shared_width) return;
    m->shared_gate_up = matrices(e, "shared_gate_up", 0, 2 * m->shared_width, e->hidden, shared, ST_INIT_NORMAL);
    m->shared_down = matrices(e, "shared_down", 0, e->hidden, m->shared_width, NULL, ST_INIT_OUT);
    m->shared_gate = st_matrix(e, "shared_gate", 1, e->hidden, ST_CUT_NONE);
}
static int accum(st_env *e, const moe *m, const char *name, uint32_t pool, uint32_t reset, uint32_t sum)
{
    const st_accum a = {sizeof a, pool, name, moe_cells(m->experts), reset, sum};
    return e->api->accum(e, &a);
}
static int metric(st_env *e, uint32_t kind, const char *name, const char *unit)
{
    const st_metric d = {sizeof d, kind, name, unit};
    return e->api->metric(e, &d);
}
/* Sums of the whole step are for metrics; the balance loss needs its own when the stack's forward ends. */
static void declare_cells(moe *m, st_env *e)
{
    m->load = accum(e, m, "load", 0, ST_EACH_STEP, ST_AT_STEP_END);
    m->load_max = metric(e, ST_METRIC_MAX, "load_max", "x mean");
    m->load_min = metric(e, ST_METRIC_RATIO, "load_min", "x mean");
    m->violation = metric(e, ST_METRIC_RATIO, "violation", "x mean");
    m->entropy = metric(e, ST_METRIC_RATIO, "entropy", "nats");
    m->balance = m->balance_loss = -1;
    if (m->aux == AUX_NONE) return;
    m->balance =
        accum(e, m, "balance", m->aux == AUX_HF, m->aux == AUX_STEP ? ST_EACH_STEP : ST_EACH_MICRO, ST_AT_FORWARD_END);
    m->balance_loss = metric(e, ST_METRIC_RATIO, "balance_loss", "");
    /* Tokens of all pooled layers count as rows, but ST_S_REAL_TOKENS counts each once. */
    m->report_scale = m->aux == AUX_HF ? 1 : 1 / (double)m->top_k;
    m->loss_coef = m->aux_coef * m->report_scale / (m->aux == AUX_HF ? e->instances : 1);
}
static int configure(void *self, st_env *e)
{
    moe *m = self;
    if (m->top_k > m->experts)
        return ST_ENV_FAIL_KEY(e, "top_k", ST_E_CONFIG, "top_k = %lld: there are experts = %lld", (long long)m->top_k,
                               (long long)m->experts);
    if (m->experts % e->expert.size)
        return ST_ENV_FAIL_KEY(e, "experts", ST_E_CONFIG,
                               "experts = %lld do not divide over the %d ranks of [parallel] expert",
                               (long long)m->experts, (int)e->expert.size);
    if (sorted_rows(m, e->rows) > INT32_MAX)
        return ST_ENV_FAIL_KEY(e, "top_k", ST_E_CONFIG,
                               "top_k = %lld for each of %lld tokens: more than %d rows of experts",
                               (long long)m->top_k, (long long)e->rows, INT32_MAX);
    declare_weights(m, e);
    declare_cells(m, e);
    return e->status;
}

/* ---- forward ---- */

typedef struct kept {
    st_tensor logits, choice, share, offset, row, weight, place, sorted, gate_up, product;
} kept;

static const moe_kernels *kernels(const st_step *s) { return ST_KERNELS(s, moe_kernels); }
static double acc_size(const st_step *s) { return (double)st_dtype_size(s->acc_dtype); }
static int64_t picks(const kept *k) { return k->place.dim[0] * k->place.dim[1]; }

static void run_router(const moe *m, st_step *s, const st_tensor *x, const kept *k)
{
    const size_t mark = st_mark(s);
    const int64_t n = x->dim[0];
    st_linear(s, m->router, x, &k->logits);
    moe_route route = {.logits = k->logits.data,
                       .real = s->row->real.data,
                       .choice = k->choice.data,
                       .share = k->share.data,
                       .sums = {st_accum_of(s, m->load).data, m->balance < 0 ? NULL : st_accum_of(s, m->balance).data},
                       .work = st_scratch(s, s->acc_dtype, moe_blocks(n), moe_cells(m->experts)).data,
                       .tokens = n,
                       .experts = (int32_t)m->experts,
                       .top_k = (int32_t)m->top_k,
                       .forced = m->force_balance,
                       .dtype = s->acc_dtype};
    moe_work w = moe_route_cost(&route);
    ST_LAUNCH_COST(s, "moe_route", w.flops, w.bytes, kernels(s)->route(s->q, &route));
    moe_sort sort = {.choice = k->choice.data,
                     .share = k->share.data,
                     .offset = k->offset.data,
                     .row = k->row.data,
                     .place = k->place.data,
                     .work = st_scratch(s, ST_I32, moe_blocks(n) + 1, m->experts).data,
                     .weight = k->weight.data,
                     .tokens = n,
                     .rows = k->row.dim[1],
                     .experts = (int32_t)m->experts,
                     .top_k = (int32_t)m->top_k,
                     .dtype = s->acc_dtype};
    w = moe_sort_cost(&sort);
    ST_LAUNCH_COST(s, "moe_sort", w.flops, w.bytes, kernels(s)->sort(s->q, &sort));
    st_release(s, mark);
}
static moe_glu glu_args(const moe *m, const st_step *s, const kept *k)
{
    return (moe_glu){.gate_up = k->gate_up.data,
                     .weight = k->weight.data,
                     .offset = k->offset.data,
                     .product = k->product.data,
                     .rows = k->row.dim[1],
                     .width = m->width,
                     .experts = (int32_t)m->experts,
                     .dtype = s->dtype};
}
static void run_glu(const moe *m, st_step *s, const kept *k)
{
    const moe_glu glu = glu_args(m, s, k);
    const moe_work w = moe_glu_cost(&glu, picks(k), acc_size(s), 0);
    ST_LAUNCH_COST(s, "moe_glu", w.flops, w.bytes, kernels(s)->glu(s->q, &glu));
}
static moe_gate gate_args(const st_step *s, const st_tensor *out, const st_tensor *gate)
{
    return (moe_gate){
        .out = out->data, .gate = gate->data, .tokens = out->dim[0], .width = out->dim[1], .dtype = s->dtype};
}
static void shared_product(const moe *m, st_step *s, const st_tensor *both, const st_tensor *product)
{
    const st_tensor gate = st_cols(*both, 0, m->shared_width), up = st_cols(*both, m->shared_width, m->shared_width);
    ST_OP(s, glu, ST_ACT_SILU, &gate, &up, product);
}

/* y += sigmoid(shared_gate x) MLP(x) */
static void shared_forward(const moe *m, st_step *s, const st_tensor *x, const st_tensor *y)
{
    const int64_t n = x->dim[0];
    const st_tensor both = st_keep(s, SHARED_GATE_UP, s->dtype, n, 2 * m->shared_width);
    const st_tensor product = st_keep(s, SHARED_PRODUCT, s->dtype, n, m->shared_width);
    const st_tensor out = st_keep(s, SHARED_OUT, s->dtype, n, y->dim[1]);
    const st_tensor gate = st_keep(s, SHARED_GATE, s->acc_dtype, n, 1);
    st_linear(s, m->shared_gate_up, x, &both);
    shared_product(m, s, &both, &product);
    st_linear(s, m->shared_down, &product, &out);
    st_linear(s, m->shared_gate, x, &gate);
    moe_gate a = gate_args(s, &out, &gate);
    a.y = y->data;
    const moe_work w = moe_gate_cost(&a, acc_size(s), 0);
    ST_LAUNCH_COST(s, "moe_gate", w.flops, w.bytes, kernels(s)->gate(s->q, &a));
}

static int forward(const void *self, st_step *s, const st_tensor *x, const st_tensor *y)
{
    const moe *m = self;
    const int64_t n = x->dim[0], hidden = x->dim[1], rows = sorted_rows(m, n);
    const kept k = {.logits = st_keep(s, LOGITS, s->acc_dtype, n, m->experts),
                    .choice = st_keep(s, CHOICE, ST_I32, n, m->top_k),
                    .share = st_keep(s, SHARE, s->acc_dtype, n, m->top_k),
                    .offset = st_keep(s, OFFSET, ST_I32, 1, m->experts + 1),
                    .row = st_keep(s, ROW, ST_I32, 1, rows),
                    .weight = st_keep(s, WEIGHT, s->acc_dtype, 1, rows),
                    .place = st_keep(s, PLACE, ST_I32, n, m->top_k),
                    .sorted = st_keep(s, SORTED, s->dtype, rows, hidden),
                    .gate_up = st_keep(s, GATE_UP, s->dtype, rows, 2 * m->width),
                    .product = st_keep(s, PRODUCT, s->dtype, rows, m->width)};
    const st_tensor gate_up = st_w(s, m->gate_up), down = st_w(s, m->down);

    run_router(m, s, x, &k);
    ST_OP(s, gather, x, &k.row, &k.sorted);
    ST_OP(s, grouped, &(st_grouped){.a = &k.sorted, .b = &gate_up, .c = &k.gate_up, .offset = &k.offset});
    run_glu(m, s, &k);
    const size_t mark = st_mark(s);
    const st_tensor out = st_scratch(s, s->dtype, rows, hidden);
    ST_OP(s, grouped, &(st_grouped){.a = &k.product, .b = &down, .c = &out, .offset = &k.offset});
    ST_OP(s, combine, &out, &k.place, NULL, y);
    st_release(s, mark);
    if (m->shared_width) shared_forward(m, s, x, y);
    return st_status(s);
}

/* ---- backward ---- */

/* What was dropped is made again from what was kept. */
static void restore(const moe *m, st_step *s, const st_tensor *x, kept *k)
{
    if (!k->sorted.data) {
        k->sorted = st_scratch(s, s->dtype, k->row.dim[1], x->dim[1]);
        ST_OP(s, gather, x, &k->row, &k->sorted);
    }
    if (!k->product.data) {
        k->product = st_scratch(s, s->dtype, k->row.dim[1], m->width);
        run_glu(m, s, k);
    }
}
/* Gradient of the experts' matrices w: a_e^T c_e over the rows of every expert; of an idle one it is 0. */
static void matrices_backward(st_step *s, st_wid w, const st_tensor *a, const st_tensor *c, const st_tensor *offset)
{
    float beta;
    const st_tensor grad = st_grad(s, w, &beta);
    if (grad.data)
        ST_OP(s, grouped, &(st_grouped){.a = a, .b = &grad, .c = c, .offset = offset, .beta = beta, .mode = 2});
}
/* Writes dx and dweight, the gradient of every pick's share by sorted row. */
static void experts_backward(const moe *m, st_step *s, const kept *k, const st_tensor *dy, const st_tensor *dx,
                             const st_tensor *dweight)
{
    const size_t mark = st_mark(s);
    const int64_t rows = k->row.dim[1];
    const st_tensor drows = st_scratch(s, s->dtype, rows, dy->dim[1]);
    const st_tensor dproduct = st_scratch(s, s->dtype, rows, m->width);
    const st_tensor gate_up = st_w(s, m->gate_up), down = st_w(s, m->down);

    ST_OP(s, gather, dy, &k->row, &drows);
    ST_OP(s, grouped, &(st_grouped){.a = &drows, .b = &down, .c = &dproduct, .offset = &k->offset, .mode = 1});
    matrices_backward(s, m->down, &drows, &k->product, &k->offset);
    moe_glu glu = glu_args(m, s, k);
    glu.dproduct = dproduct.data;
    glu.dweight = dweight->data;
    const moe_work w = moe_glu_cost(&glu, picks(k), acc_size(s), 1);
    /* gate_up becomes its gradient */
    ST_LAUNCH_COST(s, "moe_glu_bwd", w.flops, w.bytes, kernels(s)->glu_bwd(s->q, &glu));
    matrices_backward(s, m->gate_up, &k->gate_up, &k->sorted, &k->offset);
    if (dx->data) {
        ST_OP(s, grouped, &(st_grouped){.a = &k->gate_up, .b = &gate_up, .c = &drows, .offset = &k->offset, .mode = 1});
        ST_OP(s, combine, &drows, &k->place, NULL, dx);
    }
    st_release(s, mark);
}
static int run_report(st_step *s, const moe_report *a)
{
    const moe_work w = moe_report_cost(a);
    return ST_LAUNCH_COST(s, "moe_report", w.flops, w.bytes, kernels(s)->report(s->q, a));
}
/* dx is added to. */
static void router_backward(const moe *m, st_step *s, const kept *k, const st_tensor *x, const st_tensor *dweight,
                            const st_tensor *dx)
{
    const size_t mark = st_mark(s);
    const st_tensor dlogits = st_scratch(s, s->acc_dtype, x->dim[0], m->experts);
    const st_tensor total = m->balance < 0 ? st_absent() : st_total(s, m->balance);
    const moe_router_bwd a = {.logits = k->logits.data,
                              .share = k->share.data,
                              .dweight = dweight->data,
                              .choice = k->choice.data,
                              .place = k->place.data,
                              .total = m->loss_coef > 0 ? total.data : NULL,
                              .step_tokens = st_scalar(s, ST_S_REAL_TOKENS).data,
                              .dlogits = dlogits.data,
                              .coef = m->loss_coef,
                              .tokens = x->dim[0],
                              .experts = (int32_t)m->experts,
                              .top_k = (int32_t)m->top_k,
                              .dtype = s->acc_dtype};
    const moe_work w = moe_router_bwd_cost(&a);
    ST_LAUNCH_COST(s, "moe_router_bwd", w.flops, w.bytes, kernels(s)->router_bwd(s->q, &a));
    st_linear_bwd(s, m->router, x, &dlogits, dx, ST_ADD);
    if (total.data && m->aux != AUX_STEP) { /* of the step it is exact only at the step's end */
        const moe_report report = {.total = total.data,
                                   .balance = st_metric_cell(s, m->balance_loss).data,
                                   .scale = m->report_scale,
                                   .experts = (int32_t)m->experts,
                                   .dtype = s->acc_dtype};
        run_report(s, &report);
    }
    st_release(s, mark);
}
/* dx is added to. */
static void shared_backward(const moe *m, st_step *s, const st_tensor *x, const st_tensor *dy, const st_tensor *dx)
{
    const int64_t n = x->dim[0], width = m->shared_width;
    const st_tensor both = st_kept(s, SHARED_GATE_UP), gate = st_kept(s, SHARED_GATE);
    const st_tensor dout = st_scratch(s, s->dtype, n, dy->dim[1]), dgate = st_scratch(s, s->acc_dtype, n, 1);
    const st_tensor dproduct = st_scratch(s, s->dtype, n, width);
    st_tensor product = st_kept(s, SHARED_PRODUCT), out = st_kept(s, SHARED_OUT);
    if (!product.data) {
        product = st_scratch(s, s->dtype, n, width);
        shared_product(m, s, &both, &product);
    }
    if (!out.data) {
        out = st_scratch(s, s->dtype, n, dy->dim[1]);
        st_linear(s, m->shared_down, &product, &out);
    }
    moe_gate a = gate_args(s, &out, &gate);
    a.dy = dy->data;
    a.dout = dout.data;
    a.dgate = dgate.data;
    const moe_work w = moe_gate_cost(&a, acc_size(s), 1);
    ST_LAUNCH_COST(s, "moe_gate_bwd", w.flops, w.bytes, kernels(s)->gate_bwd(s->q, &a));
    st_linear_bwd(s, m->shared_gate, x, &dgate, dx, ST_ADD);
    st_linear_bwd(s, m->shared_down, &product, &dout, &dproduct, 0);
    const st_tensor g = st_cols(both, 0, width), u = st_cols(both, width, width);
    ST_OP(s, glu_bwd, ST_ACT_SILU, &g, &u, &dproduct, &g, &u); /* in place: both become their gradients */
    st_linear_bwd(s, m->shared_gate_up, x, &both, dx, ST_ADD);
}

static int backward(const void *self, st_step *s, const st_tensor *x, const st_tensor *dy, const st_tensor *dx)
{
    const moe *m = self;
    kept k = {st_kept(s, LOGITS), st_kept(s, CHOICE), st_kept(s, SHARE),  st_kept(s, OFFSET),  st_kept(s, ROW),
              st_kept(s, WEIGHT), st_kept(s, PLACE),  st_kept(s, SORTED), st_kept(s, GATE_UP), st_kept(s, PRODUCT)};
    const size_t mark = st_mark(s);
    const st_tensor dweight = st_scratch(s, s->acc_dtype, 1, k.row.dim[1]);

    restore(m, s, x, &k);
    experts_backward(m, s, &k, dy, dx, &dweight);
    router_backward(m, s, &k, x, &dweight, dx);
    st_release(s, mark);
    if (m->shared_width) shared_backward(m, s, x, dy, dx);
    return st_status(s);
}

static int finish_step(const void *self, st_step *s)
{
    const moe *m = self;
    const moe_report a = {.total = st_total(s, m->load).data,
                          .load_max = st_metric_cell(s, m->load_max).data,
                          .load_min = st_metric_cell(s, m->load_min).data,
                          .violation = st_metric_cell(s, m->violation).data,
                          .entropy = st_metric_cell(s, m->entropy).data,
                          .balance = m->aux == AUX_STEP ? st_metric_cell(s, m->balance_loss).data : NULL,
                          .scale = m->report_scale,
                          .experts = (int32_t)m->experts,
                          .dtype = s->acc_dtype};
    return run_report(s, &a);
}

/* Megatron leaves out the router and the shared expert's gate. */
static int cost(const void *self, const st_env *e, const st_row_stats *r, st_cost *out)
{
    const moe *m = self;
    const double experts = 3 * (double)(m->width * m->top_k + m->shared_width);
    out->megatron = 2 * r->tokens * (double)e->hidden * experts;
    out->exact = 2 * r->tokens * (double)e->hidden * (experts + (double)m->experts + (m->shared_width > 0));
    out->comm_bytes = 0;
    return ST_OK;
}

/* Experts lie in one tensor, or in one per expert and matrix. */
static const st_map maps[] = {
    {"hf", "router", "mlp.gate.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "gate_up", "mlp.experts.gate_up_proj", 0, 0, ST_MAP_PLAIN, 1},
    {"hf", "gate_up", "mlp.experts.{i}.gate_proj.weight", SEC_GATE, 1, ST_MAP_EACH, 2},
    {"hf", "gate_up", "mlp.experts.{i}.up_proj.weight", SEC_UP, 1, ST_MAP_EACH, 2},
    {"hf", "down", "mlp.experts.down_proj", 0, 0, ST_MAP_PLAIN, 1},
    {"hf", "down", "mlp.experts.{i}.down_proj.weight", 0, 0, ST_MAP_EACH, 2},
    {"hf", "shared_gate_up", "mlp.shared_expert.gate_proj.weight", SEC_GATE, 1, ST_MAP_PLAIN, 0},
    {"hf", "shared_gate_up", "mlp.shared_expert.up_proj.weight", SEC_UP, 1, ST_MAP_PLAIN, 0},
    {"hf", "shared_down", "mlp.shared_expert.down_proj.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "shared_gate", "mlp.shared_expert_gate.weight", 0, 0, ST_MAP_PLAIN, 0},
};
static const st_param params[] = {
    ST_INT(moe, experts, NULL, 1, 65536, "experts", ST_PF_REQUIRED | ST_PF_FIXED, "routed experts"),
    ST_INT(moe, top_k, NULL, 1, 64, "experts", ST_PF_REQUIRED | ST_PF_FIXED,
           "experts that one token goes to; with 1 only the balance loss trains the router"),
    ST_INT(moe, width, NULL, 1, 1 << 24, "columns", ST_PF_REQUIRED | ST_PF_FIXED, "width of one routed expert"),
    ST_INT(moe, shared_width, "0", 0, 1 << 24, "columns", ST_PF_FIXED,
           "width of the expert that all tokens go to; 0: there is none"),
    ST_CHOICE(moe, aux, "step", "none|micro|step|hf", 0,
              "balance loss of a layer: over the row (micro), over the step's rows so far (step); 1 when loads are "
              "equal. hf: HuggingFace's over all layers of the stack at once; top_k when loads are equal"),
    ST_FLOAT(moe, aux_coef, "0.001", 0, 1e3, "", 0, "factor of the balance loss; it is not part of the shown loss"),
    ST_FLOAT(
        moe, capacity, "0", 0, 64, "", ST_PF_EXPERT,
        "rows reserved for experts as a share of tokens x top_k; a step that needs more fails and changes nothing, "
        "no pick is dropped. 0: what the worst case needs"),
    ST_BOOL(moe, force_balance, "no", ST_PF_FIXED | ST_PF_EXPERT | ST_PF_TIMING,
            "experts are taken in turn instead of by their logits: for timing only, the model learns nothing useful"),
};
static const st_layer_ops ops = {
    .size = sizeof ops,
    .role = ST_ROLE_CHANNEL,
    .tokens = ST_SHARD,
    .slots = slots,
    .n_slots = ST_COUNT(slots),
    .maps = maps,
    .n_maps = ST_COUNT(maps),
    .configure = configure,
    .forward = forward,
    .backward = backward,
    .finish_step = finish_step,
    .cost = cost,
};
static const char *const faults[] = {"%lld rows of experts are needed, capacity reserves %lld"};
ST_PLUGIN_V1(ST_KIND_LAYER, moe, ops, ST_PARAMS(params), ST_KERNEL_TABLE(MOE_IFACE, moe_kernels),
    .caps = ST_CAP_TRAIN | ST_CAP_CONTEXT,
    .n_faults = ST_COUNT(faults),
    .faults = faults,
    .name = "moe",
    .version = MOE_VERSION,
    .license = "Apache-2.0",
    .author = "The strata authors",
    .summary = "mixture of experts: top-k of many gated MLPs per token, and a shared one",
    .description = "Softmax over all experts, the top_k largest share their sum; on a tie the lower expert goes first. "
                   "Tokens are sorted by expert for grouped products; nothing is dropped and padding is neither routed "
                   "nor counted.")
