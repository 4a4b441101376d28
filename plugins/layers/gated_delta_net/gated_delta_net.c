/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/gated_delta_net.c - the linear-attention mixer of the Qwen3.5 family.
 *
 *     [q | k | v | z | b | a] = W_in x          one product for all inputs
 *     q, k, v = silu(causal depthwise convolution over the segment)
 *     beta = sigmoid(b),  g = -exp(A_log) softplus(a + dt_bias)
 *     o = gated delta rule(l2 norm(q) key_dim^-1/2, l2 norm(k), v, beta, g)      see rule_cpu.h
 *     y = W_out (w rms norm(o) silu(z))
 * Value head h uses key head h / (value_heads / key_heads). The heads are declared as cuts over the tensor group, but
 * neither tensor nor context groups are claimed yet: both need collectives that this layer does not make. */
#include "cost.h"
#include "work.h"
#include <strata/layer.h>

enum { DT_ONE, DT_SOFTPLUS };
typedef struct gdn {
    int64_t key_heads, value_heads, key_dim, value_dim, conv_kernel; /* parameters */
    double conv_init, dt_min, dt_max;
    int32_t dt_init;
    int32_t tiles;
    double eps;
    st_wid in, conv, a_log, dt_bias, norm, out;
} gdn;

enum { IN_Q, IN_K, IN_V, IN_Z, IN_B, IN_A }; /* sections of `in` */
enum { PROJ, CONV, BETA, DECAY, STATES, RULE_OUT, NORM_OUT };
static const st_slot slots[] = {
    [PROJ] = {"proj", 0, 0},              /* (rows, q | k | v | z | b | a)                             */
    [CONV] = {"conv", ST_DROP, 0},        /* (rows, q | k | v)                                         */
    [BETA] = {"beta", 0, 0},              /* (rows, value_heads) acc                                   */
    [DECAY] = {"decay", 0, 0},            /* (rows, value_heads) acc                                   */
    [STATES] = {"states", ST_DROP, 0},    /* (tiles * value_heads, key_dim * value_dim)                */
    [RULE_OUT] = {"rule_out", 0, 0},      /* (rows, value_heads * value_dim)                           */
    [NORM_OUT] = {"norm_out", ST_DROP, 0} /* (rows, value_heads * value_dim)                           */
};
static int64_t key_width(const gdn *m) { return m->key_heads * m->key_dim; }
static int64_t value_width(const gdn *m) { return m->value_heads * m->value_dim; }
static int64_t conv_width(const gdn *m) { return 2 * key_width(m) + value_width(m); }

static int configure(void *self, st_env *e)
{
    gdn *m = self;
    const int64_t k = key_width(m), v = value_width(m), h = m->value_heads;
    const st_section in[] = {{"q", k, m->key_dim, 1, 0},   {"k", k, m->key_dim, 1, 0}, {"v", v, m->value_dim, 1, 0},
                             {"z", v, m->value_dim, 1, 0}, {"b", h, 1, 1, 0},          {"a", h, 1, 1, 0}};
    const int uniform = m->dt_init == DT_ONE;

    if (h % m->key_heads)
        return ST_ENV_FAIL_KEY(e, "value_heads", ST_E_CONFIG,
                               "value_heads = %lld must be a multiple of key_heads = %lld", (long long)h,
                               (long long)m->key_heads);
    if (m->dt_min > m->dt_max)
        return ST_ENV_FAIL_KEY(e, "dt_min", ST_E_CONFIG, "dt_min = %g must not be larger than dt_max = %g", m->dt_min,
                               m->dt_max);
    m->eps = e->norm_eps;
    m->in = st_declare(e, (st_weight){.name = "in",
                                      .flags = ST_W_BETA,
                                      .nd = 2,
                                      .dim = {2 * k + 2 * v + 2 * h, e->hidden},
                                      .cut = {ST_G_TENSOR},
                                      .n_sec = 6,
                                      .sec = in,
                                      .init = ST_INIT_NORMAL});
    m->conv = st_declare(e, (st_weight){.name = "conv",
                                        .flags = ST_W_APART,
                                        .nd = 2,
                                        .dim = {conv_width(m), m->conv_kernel},
                                        .cut = {ST_G_TENSOR},
                                        .n_sec = 3,
                                        .sec = in,
                                        .init = ST_INIT_NORMAL,
                                        .a = m->conv_init});
    m->a_log = st_declare(e, (st_weight){.name = "a_log",
                                         .flags = ST_W_ACC,
                                         .nd = 1,
                                         .dim = {h},
                                         .cut = {ST_G_TENSOR},
                                         .init = ST_INIT_LN_UNIFORM,
                                         .a = 0.01,
                                         .b = 16});
    m->dt_bias = st_declare(e, (st_weight){.name = "dt_bias",
                                           .flags = ST_W_ACC,
                                           .nd = 1,
                                           .dim = {h},
                                           .cut = {ST_G_TENSOR},
                                           .init = uniform ? ST_INIT_ONE : ST_INIT_SOFTPLUS_INV,
                                           .a = uniform ? 0 : m->dt_min,
                                           .b = uniform ? 0 : m->dt_max});
    m->norm = st_declare(
        e, (st_weight){.name = "norm", .flags = ST_W_ACC, .nd = 1, .dim = {m->value_dim}, .init = ST_INIT_ONE});
    m->out = st_matrix(e, "out", e->hidden, v, ST_CUT_COLS);
    m->tiles = st_tiles_id(e, GDN_CHUNK, ST_TILES_TIME);
    return e->status;
}

static gdn_row row_of(const gdn *m, st_step *s, int64_t rows)
{
    const st_tensor tiles = st_tiles(s, m->tiles);
    gdn_row r = {s->row->segments.data, tiles.data, s->row->max_segments, tiles.dim[0], rows};
    return r;
}

static double acc_size(const st_step *s) { return (double)st_dtype_size(s->acc_dtype); }
static void *work_area(st_step *s, int64_t n) { return n ? st_scratch(s, s->acc_dtype, 1, n).data : NULL; }

/* ---- the pieces, each from its inputs: forward runs them all, backward those whose results were not kept ---- */

static gdn_conv conv_args(const gdn *m, st_step *s, const gdn_row *r, const st_tensor *proj)
{
    gdn_conv a = {.row = *r,
                  .in = proj->data,
                  .in_stride = proj->stride[0],
                  .weight = st_w(s, m->conv).data,
                  .channels = (int32_t)conv_width(m),
                  .taps = (int32_t)m->conv_kernel,
                  .dtype = s->dtype};
    return a;
}
static void run_conv(const gdn *m, st_step *s, const gdn_row *r, const st_tensor *proj, const st_tensor *out)
{
    const size_t mark = st_mark(s);
    gdn_conv a = conv_args(m, s, r, proj);
    a.out = out->data;
    a.out_stride = out->stride[0];
    a.work = work_area(s, gdn_conv_elements(s->backend, &a));
    const gdn_work w = gdn_conv_cost(&a, 0);
    ST_LAUNCH_COST(s, "gdn_conv", w.flops, w.bytes, ST_KERNELS(s, gdn_kernels)->conv(s->q, &a));
    st_release(s, mark);
}
static gdn_gate gate_args(const gdn *m, st_step *s, const st_tensor *proj, const st_tensor *beta, const st_tensor *g)
{
    const int64_t first = conv_width(m) + value_width(m);
    gdn_gate a = {.b = st_cols(*proj, first, m->value_heads).data,
                  .a = st_cols(*proj, first + m->value_heads, m->value_heads).data,
                  .a_log = st_w(s, m->a_log).data,
                  .dt_bias = st_w(s, m->dt_bias).data,
                  .beta = beta->data,
                  .g = g->data,
                  .tokens = proj->dim[0],
                  .stride = proj->stride[0],
                  .heads = (int32_t)m->value_heads,
                  .dtype = s->dtype};
    return a;
}
static gdn_rule rule_args(const gdn *m, st_step *s, const gdn_row *r, const st_tensor *mixed, const st_tensor *beta,
                          const st_tensor *g, const st_tensor *states)
{
    gdn_rule a = {.row = *r,
                  .q = mixed->data,
                  .k = st_cols(*mixed, key_width(m), 1).data,
                  .v = st_cols(*mixed, 2 * key_width(m), 1).data,
                  .beta = beta->data,
                  .g = g->data,
                  .states = states->data,
                  .stride = mixed->stride[0],
                  .gate_stride = beta->stride[0],
                  .key_heads = (int32_t)m->key_heads,
                  .value_heads = (int32_t)m->value_heads,
                  .key_dim = (int32_t)m->key_dim,
                  .value_dim = (int32_t)m->value_dim,
                  .dtype = s->dtype};
    return a;
}
/* out absent: only the states are wanted */
static void run_rule(st_step *s, gdn_rule *a, const st_tensor *out)
{
    const size_t mark = st_mark(s);
    if (out) {
        a->out = out->data;
        a->out_stride = out->stride[0];
    }
    a->work = work_area(s, gdn_rule_elements(s->backend, a));
    const gdn_work w = gdn_rule_cost(a, acc_size(s), 0);
    ST_LAUNCH_COST(s, "gdn_rule", w.flops, w.bytes, ST_KERNELS(s, gdn_kernels)->rule(s->q, a));
    st_release(s, mark);
}
static gdn_norm norm_args(const gdn *m, st_step *s, const st_tensor *o, const st_tensor *proj)
{
    const st_tensor z = st_cols(*proj, conv_width(m), value_width(m));
    gdn_norm a = {.o = o->data,
                  .z = z.data,
                  .weight = st_w(s, m->norm).data,
                  .tokens = o->dim[0],
                  .o_stride = o->stride[0],
                  .z_stride = z.stride[0],
                  .heads = (int32_t)m->value_heads,
                  .dim = (int32_t)m->value_dim,
                  .dtype = s->dtype,
                  .eps = m->eps};
    return a;
}
static void run_norm(const gdn *m, st_step *s, const st_tensor *o, const st_tensor *proj, const st_tensor *y)
{
    gdn_norm a = norm_args(m, s, o, proj);
    a.y = y->data;
    a.y_stride = y->stride[0];
    const gdn_work w = gdn_norm_cost(&a, 0);
    ST_LAUNCH_COST(s, "gdn_norm", w.flops, w.bytes, ST_KERNELS(s, gdn_kernels)->norm(s->q, &a));
}
static st_tensor states_memory(const gdn *m, st_step *s, const gdn_row *r, int keep)
{
    const int64_t rows = r->n_tiles * m->value_heads, cols = m->key_dim * m->value_dim;
    return keep ? st_keep(s, STATES, s->dtype, rows, cols) : st_scratch(s, s->dtype, rows, cols);
}

static int forward(const void *self, st_step *s, const st_tensor *x, const st_tensor *y)
{
    const gdn *m = self;
    const int64_t n = x->dim[0], v = value_width(m);
    const gdn_row r = row_of(m, s, n);
    const st_tensor proj = st_keep(s, PROJ, s->dtype, n, conv_width(m) + v + 2 * m->value_heads);
    const st_tensor mixed = st_keep(s, CONV, s->dtype, n, conv_width(m));
    const st_tensor beta = st_keep(s, BETA, s->acc_dtype, n, m->value_heads);
    const st_tensor g = st_keep(s, DECAY, s->acc_dtype, n, m->value_heads);
    const st_tensor states = states_memory(m, s, &r, 1);
    const st_tensor o = st_keep(s, RULE_OUT, s->dtype, n, v), normed = st_keep(s, NORM_OUT, s->dtype, n, v);

    st_linear(s, m->in, x, &proj);
    run_conv(m, s, &r, &proj, &mixed);
    gdn_gate gate = gate_args(m, s, &proj, &beta, &g);
    const gdn_work w = gdn_gate_cost(&gate, acc_size(s), 0);
    ST_LAUNCH_COST(s, "gdn_gate", w.flops, w.bytes, ST_KERNELS(s, gdn_kernels)->gate(s->q, &gate));
    gdn_rule rule = rule_args(m, s, &r, &mixed, &beta, &g, &states);
    if (!s->train) rule.states = NULL;
    run_rule(s, &rule, &o);
    run_norm(m, s, &o, &proj, &normed);
    return st_linear(s, m->out, &normed, y);
}

/* ---- backward ---- */

static void norm_backward(const gdn *m, st_step *s, const st_tensor *o, const st_tensor *proj, const st_tensor *dy,
                          const st_tensor *d_o, const st_tensor *dproj)
{
    const size_t mark = st_mark(s);
    const st_tensor dz = st_cols(*dproj, conv_width(m), value_width(m));
    gdn_norm a = norm_args(m, s, o, proj);
    a.dy = dy->data;
    a.dy_stride = dy->stride[0];
    a.d_o = d_o->data;
    a.do_stride = d_o->stride[0];
    a.dz = dz.data;
    a.dz_stride = dz.stride[0];
    a.dweight = st_grad(s, m->norm, NULL).data;
    a.work = work_area(s, gdn_norm_bwd_work(a.tokens, m->value_dim));
    const gdn_work w = gdn_norm_cost(&a, 1);
    ST_LAUNCH_COST(s, "gdn_norm_bwd", w.flops, w.bytes, ST_KERNELS(s, gdn_kernels)->norm_bwd(s->q, &a));
    st_release(s, mark);
}
static void rule_backward(const gdn *m, st_step *s, const gdn_rule *f, const st_tensor *d_o, const st_tensor *dmixed,
                          const st_tensor *dbeta, const st_tensor *dg)
{
    const size_t mark = st_mark(s);
    gdn_rule_bwd a = {.f = *f,
                      .dout = d_o->data,
                      .dq = dmixed->data,
                      .dk = st_cols(*dmixed, key_width(m), 1).data,
                      .dv = st_cols(*dmixed, 2 * key_width(m), 1).data,
                      .dbeta = dbeta->data,
                      .dg = dg->data,
                      .dstride = dmixed->stride[0],
                      .dgate_stride = dbeta->stride[0]};
    a.f.out_stride = d_o->stride[0];
    a.f.work = work_area(s, gdn_rule_bwd_elements(s->backend, &a.f));
    const gdn_work w = gdn_rule_cost(f, acc_size(s), 1);
    ST_LAUNCH_COST(s, "gdn_rule_bwd", w.flops, w.bytes, ST_KERNELS(s, gdn_kernels)->rule_bwd(s->q, &a));
    st_release(s, mark);
}
static void gate_backward(const gdn *m, st_step *s, const st_tensor *proj, const st_tensor *beta, const st_tensor *g,
                          const st_tensor *dbeta, const st_tensor *dg, const st_tensor *dproj)
{
    const size_t mark = st_mark(s);
    const int64_t first = conv_width(m) + value_width(m);
    gdn_gate a = gate_args(m, s, proj, beta, g);
    a.dbeta = dbeta->data;
    a.dg = dg->data;
    a.db = st_cols(*dproj, first, m->value_heads).data;
    a.da = st_cols(*dproj, first + m->value_heads, m->value_heads).data;
    a.dstride = dproj->stride[0];
    a.da_log = st_grad(s, m->a_log, NULL).data;
    a.ddt_bias = st_grad(s, m->dt_bias, NULL).data;
    a.work = work_area(s, gdn_gate_bwd_work(a.tokens, m->value_heads));
    const gdn_work w = gdn_gate_cost(&a, acc_size(s), 1);
    ST_LAUNCH_COST(s, "gdn_gate_bwd", w.flops, w.bytes, ST_KERNELS(s, gdn_kernels)->gate_bwd(s->q, &a));
    st_release(s, mark);
}
static void conv_backward(const gdn *m, st_step *s, const gdn_row *r, const st_tensor *proj, const st_tensor *dmixed,
                          const st_tensor *dproj)
{
    const size_t mark = st_mark(s);
    gdn_conv a = conv_args(m, s, r, proj);
    a.dout = dmixed->data;
    a.dout_stride = dmixed->stride[0];
    a.din = dproj->data;
    a.din_stride = dproj->stride[0];
    a.dweight = st_grad(s, m->conv, NULL).data;
    a.work = work_area(s, gdn_conv_bwd_work(r->n_tiles, a.channels, a.taps));
    const gdn_work w = gdn_conv_cost(&a, 1);
    ST_LAUNCH_COST(s, "gdn_conv_bwd", w.flops, w.bytes, ST_KERNELS(s, gdn_kernels)->conv_bwd(s->q, &a));
    st_release(s, mark);
}

static int backward(const void *self, st_step *s, const st_tensor *x, const st_tensor *dy, const st_tensor *dx)
{
    const gdn *m = self;
    const int64_t n = x->dim[0], v = value_width(m);
    const gdn_row r = row_of(m, s, n);
    const st_tensor proj = st_kept(s, PROJ), beta = st_kept(s, BETA), g = st_kept(s, DECAY), o = st_kept(s, RULE_OUT);
    st_tensor mixed = st_kept(s, CONV), states = st_kept(s, STATES), normed = st_kept(s, NORM_OUT);
    const st_tensor dproj = st_scratch(s, s->dtype, n, proj.dim[1]), d_o = st_scratch(s, s->dtype, n, v);
    const st_tensor dnormed = st_scratch(s, s->dtype, n, v), dmixed = st_scratch(s, s->dtype, n, conv_width(m));
    const st_tensor dbeta = st_scratch(s, s->acc_dtype, n, m->value_heads),
                    dg = st_scratch(s, s->acc_dtype, n, m->value_heads);

    if (!normed.data) {
        normed = st_scratch(s, s->dtype, n, v);
        run_norm(m, s, &o, &proj, &normed);
    }
    st_linear_bwd(s, m->out, &normed, dy, &dnormed, 0);
    norm_backward(m, s, &o, &proj, &dnormed, &d_o, &dproj);
    if (!mixed.data) {
        mixed = st_scratch(s, s->dtype, n, conv_width(m));
        run_conv(m, s, &r, &proj, &mixed);
    }
    const int again = !states.data;
    if (again) states = states_memory(m, s, &r, 0);
    gdn_rule rule = rule_args(m, s, &r, &mixed, &beta, &g, &states);
    if (again) run_rule(s, &rule, NULL);
    rule_backward(m, s, &rule, &d_o, &dmixed, &dbeta, &dg);
    gate_backward(m, s, &proj, &beta, &g, &dbeta, &dg, &dproj);
    conv_backward(m, s, &r, &proj, &dmixed, &dproj);
    return st_linear_bwd(s, m->in, x, &dproj, dx, 0);
}

/* Megatron counts the state as four products of value_dim^2; the recurrence itself makes three of key_dim value_dim. */
static int cost(const void *self, const st_env *e, const st_row_stats *r, st_cost *out)
{
    const gdn *m = self;
    const double qk = (double)key_width(m), v = (double)value_width(m), h = (double)m->value_heads,
                 dv = (double)m->value_dim;
    const double linear = (double)e->hidden * (2 * qk + 3 * v + 2 * h) + (double)m->conv_kernel * (2 * qk + v);
    out->megatron = 2 * r->tokens * (linear + 4 * h * dv * dv);
    out->exact = 2 * r->tokens * (linear + 3 * h * (double)m->key_dim * dv);
    out->comm_bytes = 0;
    return ST_OK;
}

static const st_map maps[] = {
    {"hf", "in", "linear_attn.in_proj_qkv.weight", IN_Q, 3, ST_MAP_PLAIN, 0},
    {"hf", "in", "linear_attn.in_proj_z.weight", IN_Z, 1, ST_MAP_PLAIN, 0},
    {"hf", "in", "linear_attn.in_proj_b.weight", IN_B, 1, ST_MAP_PLAIN, 0},
    {"hf", "in", "linear_attn.in_proj_a.weight", IN_A, 1, ST_MAP_PLAIN, 0},
    {"hf", "conv", "linear_attn.conv1d.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "a_log", "linear_attn.A_log", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "dt_bias", "linear_attn.dt_bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "norm", "linear_attn.norm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "out", "linear_attn.out_proj.weight", 0, 0, ST_MAP_PLAIN, 0},
};
static const st_param params[] = {
    ST_INT(gdn, key_heads, "16", 1, 4096, "heads", ST_PF_FIXED, "heads of queries and keys"),
    ST_INT(gdn, value_heads, "16", 1, 4096, "heads", ST_PF_FIXED,
           "heads of values; a multiple of key_heads, which they share"),
    ST_INT(gdn, key_dim, "128", 1, 1024, "columns", ST_PF_FIXED, "size of one query or key head"),
    ST_INT(gdn, value_dim, "128", 1, 1024, "columns", ST_PF_FIXED, "size of one value head"),
    ST_INT(gdn, conv_kernel, "4", 1, GDN_MAX_TAPS, "tokens", ST_PF_FIXED, "width of the causal convolution"),
    ST_FLOAT(gdn, conv_init, "0", 0, 100, "", 0, "deviation of the first convolution weights; 0: as [init] says"),
    ST_CHOICE(gdn, dt_init, "one", "one|softplus", 0,
              "first dt_bias: 1, or x with softplus(x) log-uniform in dt_min .. dt_max"),
    ST_FLOAT(gdn, dt_min, "1e-3", 1e-9, 1e3, "", 0, "smallest first step size under dt_init = softplus"),
    ST_FLOAT(gdn, dt_max, "1e-1", 1e-9, 1e3, "", 0, "largest first step size under dt_init = softplus"),
};
static const st_layer_ops ops = {
    .size = sizeof ops,
    .role = ST_ROLE_MIXER,
    .tokens = ST_GATHERED,
    .slots = slots,
    .n_slots = ST_COUNT(slots),
    .maps = maps,
    .n_maps = ST_COUNT(maps),
    .configure = configure,
    .forward = forward,
    .backward = backward,
    .cost = cost,
};
ST_PLUGIN_V1(ST_KIND_LAYER, gdn, ops, ST_PARAMS(params),
    ST_KERNEL_TABLE(GDN_IFACE, gdn_kernels),
    .caps = ST_CAP_TRAIN | ST_CAP_LINEAR_X,
    .name = "gated_delta_net",
    .version = GDN_VERSION,
    .license = "Apache-2.0",
    .author = "The strata authors",
    .summary = "gated delta net: linear attention with a decaying matrix state per head",
    .description = "Causal convolution, gated delta rule in chunks of 64 tokens, gated norm. Segments of a packed "
                   "row do not see each other. Defaults are the public sizes' and HuggingFace's initialisation.")
