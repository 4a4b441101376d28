/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/delta_rule.c - the gated delta rule alone, as a layer without weights: for checks against given
 * values through the public layer interface, and as the example of a second plugin on the same kernel sources. It has
 * no pattern symbol; a spec could bind one with [layer.X] plugin = delta_rule.
 *
 * Layout, all row-major, one row per token, Hk key_heads, Hv value_heads, Dk key_dim, Dv value_dim:
 *
 *   x   columns [ q (Hk, Dk) | k (Hk, Dk) | v (Hv, Dv) | beta (Hv) | g (Hv) | S0 (Hv, Dk, Dv) if states = yes ]
 *   y   columns [ out (Hv, Dv) | state (Hv, Dk, Dv) if states = yes ], every column behind them 0
 *
 * q and k come raw: the rule l2-norms both (eps 1e-6) and scales q by Dk^-1/2. beta is the write strength itself, g <=
 * 0 the log of the decay. Value head h uses key head h / (Hv / Hk).
 * With states = yes a segment begins with the S0 found in the row of its FIRST token (other rows' S0 is not read), and
 * its final state is written into the row of its LAST token (0 in other rows). With states = no all segments begin with
 * 0. Backward: dy has y's layout (dy's state columns, in the row of a segment's last token, are the gradient of the
 * final state), dx has x's (dS0 in the row of a segment's first token, 0 in other rows). Columns that the layout does
 * not name are 0 in y and dx. The width of the layer, env->hidden, must be at least both layouts' widths: delta_rule's
 * configure() says how many are needed. The run must not be bf16: x is read as it is, beta and g with it.
 *
 * A caller with inputs of T tokens in `n` segments therefore makes a row with these borders, fills x, and reads y and
 * dx. */
#include "cost.h"
#include "work.h"
#include <strata/layer.h>

typedef struct delta {
    int64_t key_heads, value_heads, key_dim, value_dim; /* parameters */
    int32_t states, tiles;
} delta;
enum { STATES };
static const st_slot slots[] = {[STATES] = {"states", ST_DROP, 0}};

/* First columns of what x and y hold. */
typedef struct columns {
    int64_t k, v, beta, g, s0, x_end, state, y_end;
} columns;
static columns columns_of(const delta *m)
{
    const int64_t q = m->key_heads * m->key_dim, v = m->value_heads * m->value_dim;
    const int64_t s = m->states ? m->value_heads * m->key_dim * m->value_dim : 0;
    columns c = {.k = q,
                 .v = 2 * q,
                 .beta = 2 * q + v,
                 .g = 2 * q + v + m->value_heads,
                 .s0 = 2 * q + v + 2 * m->value_heads,
                 .state = v,
                 .y_end = v + s};
    c.x_end = c.s0 + s;
    return c;
}
static int configure(void *self, st_env *e)
{
    delta *m = self;
    const columns c = columns_of(m);
    const int64_t need = c.x_end > c.y_end ? c.x_end : c.y_end;
    if (m->value_heads % m->key_heads)
        return ST_ENV_FAIL_KEY(e, "value_heads", ST_E_CONFIG,
                               "value_heads = %lld must be a multiple of key_heads = %lld", (long long)m->value_heads,
                               (long long)m->key_heads);
    if (e->hidden < need)
        return ST_ENV_FAIL(e, ST_E_CONFIG, "hidden = %lld: the rule's inputs and outputs need %lld columns",
                           (long long)e->hidden, (long long)need);
    if (e->dtype != e->acc_dtype)
        return ST_ENV_FAIL(e, ST_E_UNSUPPORTED,
                           "delta_rule runs in f64 and f32 only: its gates are read from x as they are");
    m->tiles = st_tiles_id(e, GDN_CHUNK, ST_TILES_TIME);
    return e->status;
}
static gdn_rule rule_args(const delta *m, st_step *s, const st_tensor *x, const st_tensor *states)
{
    const columns c = columns_of(m);
    const st_tensor tiles = st_tiles(s, m->tiles);
    gdn_rule a = {.row = {s->row->segments.data, tiles.data, s->row->max_segments, tiles.dim[0], x->dim[0]},
                  .q = x->data,
                  .k = st_cols(*x, c.k, 1).data,
                  .v = st_cols(*x, c.v, 1).data,
                  .beta = st_cols(*x, c.beta, 1).data,
                  .g = st_cols(*x, c.g, 1).data,
                  .initial = m->states ? st_cols(*x, c.s0, 1).data : NULL,
                  .states = states->data,
                  .stride = x->stride[0],
                  .gate_stride = x->stride[0],
                  .initial_stride = x->stride[0],
                  .key_heads = (int32_t)m->key_heads,
                  .value_heads = (int32_t)m->value_heads,
                  .key_dim = (int32_t)m->key_dim,
                  .value_dim = (int32_t)m->value_dim,
                  .dtype = s->dtype};
    return a;
}
static void *work_area(st_step *s, int64_t n) { return st_scratch(s, s->acc_dtype, 1, n).data; }
static int64_t state_rows(const delta *m, st_step *s) { return st_tiles(s, m->tiles).dim[0] * m->value_heads; }

static int run_rule(st_step *s, const gdn_rule *a)
{
    const gdn_work w = gdn_rule_cost(a, (double)st_dtype_size(s->acc_dtype), 0);
    return ST_LAUNCH_COST(s, "gdn_rule", w.flops, w.bytes, ST_KERNELS(s, gdn_kernels)->rule(s->q, a));
}

static int forward(const void *self, st_step *s, const st_tensor *x, const st_tensor *y)
{
    const delta *m = self;
    const columns c = columns_of(m);
    const st_tensor states = st_keep(s, STATES, s->dtype, state_rows(m, s), m->key_dim * m->value_dim);
    gdn_rule a = rule_args(m, s, x, &states);

    if (x->dtype != s->dtype || y->dtype != s->dtype)
        return ST_FAIL(s, ST_E_SHAPE, "delta_rule: x of type %d and y of type %d in a run of type %d", x->dtype,
                       y->dtype, s->dtype);
    ST_OP(s, fill, y, 0);
    a.out = y->data;
    a.final = m->states ? st_cols(*y, c.state, 1).data : NULL;
    a.out_stride = a.final_stride = y->stride[0];
    a.work = work_area(s, gdn_rule_elements(s->backend, &a));
    return run_rule(s, &a);
}
static int backward(const void *self, st_step *s, const st_tensor *x, const st_tensor *dy, const st_tensor *dx)
{
    const delta *m = self;
    const columns c = columns_of(m);
    st_tensor states = st_kept(s, STATES);
    const int again = !states.data;
    if (!dx->data) return s->status;
    if (again) states = st_scratch(s, s->dtype, state_rows(m, s), m->key_dim * m->value_dim);
    gdn_rule_bwd b = {.f = rule_args(m, s, x, &states),
                      .dout = dy->data,
                      .dq = dx->data,
                      .dk = st_cols(*dx, c.k, 1).data,
                      .dv = st_cols(*dx, c.v, 1).data,
                      .dbeta = st_cols(*dx, c.beta, 1).data,
                      .dg = st_cols(*dx, c.g, 1).data,
                      .dstride = dx->stride[0],
                      .dgate_stride = dx->stride[0]};
    if (m->states) {
        b.dfinal = st_cols(*dy, c.state, 1).data;
        b.dinitial = st_cols(*dx, c.s0, 1).data;
    }
    b.f.out_stride = b.f.final_stride = dy->stride[0];
    b.f.initial_stride = x->stride[0];
    if (x->dtype != s->dtype || dy->dtype != s->dtype || dx->dtype != s->dtype || dx->stride[0] != x->stride[0])
        return ST_FAIL(s, ST_E_SHAPE, "delta_rule: x, dy and dx must be of the run's type, x and dx of one row length");
    ST_OP(s, fill, dx, 0);
    if (again) {
        b.f.work = work_area(s, gdn_rule_elements(s->backend, &b.f));
        run_rule(s, &b.f);
    }
    b.f.work = work_area(s, gdn_rule_bwd_elements(s->backend, &b.f));
    const gdn_work w = gdn_rule_cost(&b.f, (double)st_dtype_size(s->acc_dtype), 1);
    return ST_LAUNCH_COST(s, "gdn_rule_bwd", w.flops, w.bytes, ST_KERNELS(s, gdn_kernels)->rule_bwd(s->q, &b));
}
static int cost(const void *self, const st_env *e, const st_row_stats *r, st_cost *out)
{
    const delta *m = self;
    const double h = (double)m->value_heads, dv = (double)m->value_dim;
    out->megatron = 8 * r->tokens * h * dv * dv;
    out->exact = 6 * r->tokens * h * (double)m->key_dim * dv;
    out->comm_bytes = 0;
    return ST_OK;
}

static const st_param params[] = {
    ST_INT(delta, key_heads, "1", 1, 4096, "heads", ST_PF_FIXED, "heads of queries and keys"),
    ST_INT(delta, value_heads, "1", 1, 4096, "heads", ST_PF_FIXED, "heads of values; a multiple of key_heads"),
    ST_INT(delta, key_dim, "16", 1, 1024, "columns", ST_PF_FIXED, "size of one query or key head"),
    ST_INT(delta, value_dim, "16", 1, 1024, "columns", ST_PF_FIXED, "size of one value head"),
    ST_BOOL(delta, states, "yes", ST_PF_FIXED, "x holds initial states and y final states"),
};
static const st_layer_ops ops = {
    .size = sizeof ops,
    .role = ST_ROLE_MIXER,
    .tokens = ST_GATHERED,
    .slots = slots,
    .n_slots = ST_COUNT(slots),
    .configure = configure,
    .forward = forward,
    .backward = backward,
    .cost = cost,
};
ST_PLUGIN_V1(ST_KIND_LAYER, delta, ops, ST_PARAMS(params),
    ST_KERNEL_TABLE(GDN_IFACE, gdn_kernels),
    .caps = ST_CAP_TRAIN,
    .name = "delta_rule",
    .version = GDN_VERSION,
    .license = "Apache-2.0",
    .author = "The strata authors",
    .summary = "the gated delta rule alone, for checks",
    .description = "x holds q, k, v, beta, g and initial states, y the outputs and final states.")
