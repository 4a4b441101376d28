/* SPDX-License-Identifier: Apache-2.0 */
/* gelu_mlp/gelu_mlp.c - the plain MLP: y = W_2 act(W_1 x + b_1) + b_2, with a choice of activations. The activation is
 * an operation of its own, not part of the first product: so a backward pass that computes it again gets the same
 * bits. */
#include <strata/layer.h>

typedef struct gelu_mlp {
    int64_t width;
    int32_t act, bias;
    st_wid fc1, fc1_bias, fc2, fc2_bias;
} gelu_mlp;
enum { BEFORE, AFTER };
static const st_slot slots[] = {[BEFORE] = {"before", 0, 0}, [AFTER] = {"after", ST_DROP, 0}};

static int32_t act_of(const gelu_mlp *m) /* in the order of the parameter's choices */
{
    static const int32_t act[] = {ST_ACT_GELU_TANH, ST_ACT_GELU_ERF, ST_ACT_SILU, ST_ACT_RELU2};
    return act[m->act];
}
static int configure(void *self, st_env *e)
{
    gelu_mlp *m = self;
    m->fc1 = st_matrix(e, "fc1", m->width, e->hidden, ST_CUT_ROWS);
    m->fc2 = st_matrix(e, "fc2", e->hidden, m->width, ST_CUT_COLS);
    m->fc1_bias = m->fc2_bias = -1;
    if (m->bias) {
        m->fc1_bias = st_declare(
            e, (st_weight){.name = "fc1_bias", .nd = 1, .dim = {m->width}, .cut = {ST_G_TENSOR}, .init = ST_INIT_ZERO});
        m->fc2_bias = st_declare(e, (st_weight){.name = "fc2_bias", .nd = 1, .dim = {e->hidden}, .init = ST_INIT_ZERO});
    }
    return e->status;
}
static int forward(const void *self, st_step *s, const st_tensor *x, const st_tensor *y)
{
    const gelu_mlp *m = self;
    const int64_t n = x->dim[0];
    const st_tensor before = st_keep(s, BEFORE, s->dtype, n, m->width),
                    after = st_keep(s, AFTER, s->dtype, n, m->width);
    st_linear_bias(s, m->fc1, m->fc1_bias, x, &before);
    ST_OP(s, act, act_of(m), &before, &after);
    return st_linear_bias(s, m->fc2, m->fc2_bias, &after, y);
}
static int backward(const void *self, st_step *s, const st_tensor *x, const st_tensor *dy, const st_tensor *dx)
{
    const gelu_mlp *m = self;
    const int64_t n = x->dim[0];
    const st_tensor before = st_kept(s, BEFORE), dafter = st_scratch(s, s->dtype, n, m->width);
    const st_tensor dbefore = st_scratch(s, s->dtype, n, m->width);
    st_tensor after = st_kept(s, AFTER);
    if (!after.data) {
        after = st_scratch(s, s->dtype, n, m->width);
        ST_OP(s, act, act_of(m), &before, &after);
    }
    st_linear_bias_bwd(s, m->fc2, m->fc2_bias, &after, dy, &dafter, 0);
    ST_OP(s, act_bwd, act_of(m), &before, &dafter, &dbefore);
    return st_linear_bias_bwd(s, m->fc1, m->fc1_bias, x, &dbefore, dx, 0);
}
static int cost(const void *self, const st_env *e, const st_row_stats *r, st_cost *out)
{
    const gelu_mlp *m = self;
    out->megatron = out->exact = 4 * r->tokens * (double)e->hidden * (double)m->width;
    out->comm_bytes = 0;
    return ST_OK;
}

static const st_map maps[] = {
    {"hf", "fc1", "mlp.linear_fc1.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "fc1_bias", "mlp.linear_fc1.bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "fc2", "mlp.linear_fc2.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "fc2_bias", "mlp.linear_fc2.bias", 0, 0, ST_MAP_PLAIN, 0},
};
static const st_param params[] = {
    ST_INT(gelu_mlp, width, NULL, 1, 1 << 24, "columns", ST_PF_REQUIRED | ST_PF_FIXED,
           "width between the two products"),
    ST_CHOICE(gelu_mlp, act, "gelu_tanh", "gelu_tanh|gelu_erf|silu|relu2", ST_PF_FIXED, "activation"),
    ST_BOOL(gelu_mlp, bias, "no", ST_PF_FIXED, "biases in both products"),
};
static const st_layer_ops ops = {
    .size = sizeof ops,
    .role = ST_ROLE_CHANNEL,
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
ST_PLUGIN_V1(ST_KIND_LAYER, gelu_mlp, ops, ST_PARAMS(params),
    .caps = ST_CAP_TRAIN | ST_CAP_CONTEXT | ST_CAP_LINEAR_X,
    .name = "gelu_mlp",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "The strata authors",
    .summary = "plain MLP: fc2(act(fc1))",
    .description = "Per token, with optional biases; the vision blocks use it with gelu_tanh.")
