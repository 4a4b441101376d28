/* SPDX-License-Identifier: Apache-2.0 */
/* glu - a gated linear unit, as somebody outside of strata's tree writes it: this file, glu.ini and the installed headers.
 *
 *     y = W_down (gate(W_gate x) * (W_up x))
 *
 * x and y are (rows, hidden), the products in between (rows, width). The host normalises x, adds y to the residual, initialises,
 * updates and saves the weights. */
#include <strata/layer.h>

struct glu {
    int64_t width; /* from the spec, by the table below */
    int32_t gate;
    st_wid w_gate, w_up, w_down;
};

/* What forward keeps for backward. The product is cheap to compute again, so a spec may choose to drop it. */
enum { SLOT_GATE, SLOT_UP, SLOT_PRODUCT };
static const st_slot slots[] = {{"gate", 0, 0}, {"up", 0, 0}, {"product", ST_DROP, 0}};

static const st_param params[] = {
    ST_INT(struct glu, width, NULL, 1, 1 << 20, "columns", ST_PF_REQUIRED | ST_PF_FIXED, "width between the products"),
    ST_CHOICE(struct glu, gate, "sigmoid", "sigmoid|silu", ST_PF_FIXED, "function of the gate"),
};

static int activation(const struct glu *glu) { return glu->gate == 0 ? ST_ACT_SIGMOID : ST_ACT_SILU; }

static int configure(void *self, st_env *env)
{
    struct glu *glu = self;

    glu->w_gate = st_matrix(env, "gate", glu->width, env->hidden, ST_CUT_ROWS);
    glu->w_up = st_matrix(env, "up", glu->width, env->hidden, ST_CUT_ROWS);
    glu->w_down = st_matrix(env, "down", env->hidden, glu->width, ST_CUT_COLS);
    return env->status;
}

static int forward(const void *self, st_step *step, const st_tensor *x, const st_tensor *y)
{
    const struct glu *glu = self;
    const int64_t rows = x->dim[0], width = glu->width / step->tensor.size;
    st_tensor gate = st_keep(step, SLOT_GATE, step->dtype, rows, width);
    st_tensor up = st_keep(step, SLOT_UP, step->dtype, rows, width);
    st_tensor product = st_keep(step, SLOT_PRODUCT, step->dtype, rows, width);

    st_linear(step, glu->w_gate, x, &gate);
    st_linear(step, glu->w_up, x, &up);
    ST_OP(step, glu, activation(glu), &gate, &up, &product);
    return st_linear(step, glu->w_down, &product, y);
}

static int backward(const void *self, st_step *step, const st_tensor *x, const st_tensor *dy, const st_tensor *dx)
{
    const struct glu *glu = self;
    st_tensor gate = st_kept(step, SLOT_GATE), up = st_kept(step, SLOT_UP), product = st_kept(step, SLOT_PRODUCT);
    const int64_t rows = gate.dim[0], width = gate.dim[1];
    st_tensor d_product = st_scratch(step, step->dtype, rows, width);

    if (!product.data) {
        product = st_scratch(step, step->dtype, rows, width);
        ST_OP(step, glu, activation(glu), &gate, &up, &product);
    }
    st_linear_bwd(step, glu->w_down, &product, dy, &d_product, 0);
    ST_OP(step, glu_bwd, activation(glu), &gate, &up, &d_product, &gate, &up); /* both become their own gradients */
    st_linear_bwd(step, glu->w_gate, x, &gate, dx, 0);
    return st_linear_bwd(step, glu->w_up, x, &up, dx, ST_ADD);
}

static const st_layer_ops ops = {
    .size = sizeof ops,
    .role = ST_ROLE_CHANNEL,
    .tokens = ST_GATHERED,
    .slots = slots,
    .n_slots = ST_COUNT(slots),
    .configure = configure,
    .forward = forward,
    .backward = backward,
};

ST_PLUGIN_V1(ST_KIND_LAYER, struct glu, ops, ST_PARAMS(params),
    .caps = ST_CAP_TRAIN | ST_CAP_TENSOR | ST_CAP_CONTEXT | ST_CAP_LINEAR_X,
    .name = "glu",
    .version = "1.0",
    .license = "Apache-2.0",
    .author = "an author outside of the tree",
    .summary = "gated linear unit",
    .description = "")
