/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu/swiglu.c - the gated MLP: y = W_down (silu(W_gate x) * W_up x). Gate and up are one product. */
#include <strata/layer.h>

typedef struct swiglu {
    int64_t width;
    st_wid gate_up, down;
} swiglu;
enum { SEC_GATE, SEC_UP };
enum { GATE_UP, PRODUCT };
static const st_slot slots[] = {[GATE_UP] = {"gate_up", 0, 0}, [PRODUCT] = {"product", ST_DROP, 0}};

static int configure(void *self, st_env *e)
{
    swiglu *m = self;
    const st_section sections[] = {{"gate", m->width, 1, 1, 0}, {"up", m->width, 1, 1, 0}};
    m->gate_up = st_declare(e, (st_weight){.name = "gate_up",
                                           .flags = ST_W_BETA,
                                           .nd = 2,
                                           .dim = {2 * m->width, e->hidden},
                                           .cut = {ST_G_TENSOR},
                                           .n_sec = 2,
                                           .sec = sections,
                                           .init = ST_INIT_NORMAL});
    m->down = st_matrix(e, "down", e->hidden, m->width, ST_CUT_COLS);
    return e->status;
}
static int forward(const void *self, st_step *s, const st_tensor *x, const st_tensor *y)
{
    const swiglu *m = self;
    const int64_t n = x->dim[0], w = m->width;
    const st_tensor both = st_keep(s, GATE_UP, s->dtype, n, 2 * w), product = st_keep(s, PRODUCT, s->dtype, n, w);
    const st_tensor gate = st_cols(both, 0, w), up = st_cols(both, w, w);
    st_linear(s, m->gate_up, x, &both);
    ST_OP(s, glu, ST_ACT_SILU, &gate, &up, &product);
    return st_linear(s, m->down, &product, y);
}
static int backward(const void *self, st_step *s, const st_tensor *x, const st_tensor *dy, const st_tensor *dx)
{
    const swiglu *m = self;
    const int64_t n = x->dim[0], w = m->width;
    const st_tensor both = st_kept(s, GATE_UP), gate = st_cols(both, 0, w), up = st_cols(both, w, w);
    const st_tensor dproduct = st_scratch(s, s->dtype, n, w);
    st_tensor product = st_kept(s, PRODUCT);
    if (!product.data) {
        product = st_scratch(s, s->dtype, n, w);
        ST_OP(s, glu, ST_ACT_SILU, &gate, &up, &product);
    }
    st_linear_bwd(s, m->down, &product, dy, &dproduct, 0);
    ST_OP(s, glu_bwd, ST_ACT_SILU, &gate, &up, &dproduct, &gate,
          &up); /* in place: gate and up become their gradients */
    return st_linear_bwd(s, m->gate_up, x, &both, dx, 0);
}
static int cost(const void *self, const st_env *e, const st_row_stats *r, st_cost *out)
{
    const swiglu *m = self;
    out->megatron = out->exact = 6 * r->tokens * (double)e->hidden * (double)m->width;
    out->comm_bytes = 0;
    return ST_OK;
}

static const st_map maps[] = {
    {"hf", "gate_up", "mlp.gate_proj.weight", SEC_GATE, 1, ST_MAP_PLAIN, 0},
    {"hf", "gate_up", "mlp.up_proj.weight", SEC_UP, 1, ST_MAP_PLAIN, 0},
    {"hf", "down", "mlp.down_proj.weight", 0, 0, ST_MAP_PLAIN, 0},
};
static const st_param params[] = {
    ST_INT(swiglu, width, NULL, 1, 1 << 24, "columns", ST_PF_REQUIRED | ST_PF_FIXED, "width of gate and up"),
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
ST_PLUGIN_V1(ST_KIND_LAYER, swiglu, ops, ST_PARAMS(params),
    .caps = ST_CAP_TRAIN | ST_CAP_CONTEXT | ST_CAP_LINEAR_X,
    .name = "swiglu",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "The strata authors",
    .summary = "gated MLP: down(silu(gate) * up)",
    .description = "Per token, without biases, as in Qwen3.5's dense blocks.")
