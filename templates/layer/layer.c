/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@ - a layer for strata. As it stands, a plain MLP to start from:
 *
 *     y = W_down silu(W_up x)
 *
 * x and y are (rows, hidden), what lies between is (rows, width). The host normalises x, adds y to the residual,
 * initialises, updates and saves the weights. */
#include <strata/layer.h>

struct instance {
    int64_t width; /* from the spec, by the table below */
    st_wid w_up, w_down;
};

static const st_param params[] = {
    ST_INT(struct instance, width, NULL, 1, 1 << 20, "columns", ST_PF_REQUIRED | ST_PF_FIXED,
           "width between the products"),
};

/* What forward keeps for backward. `active` is cheap to compute again, so a spec may choose to drop it. */
enum { SLOT_UP, SLOT_ACTIVE };
static const st_slot slots[] = {[SLOT_UP] = {"up", 0, 0}, [SLOT_ACTIVE] = {"active", ST_DROP, 0}};

/* Rules between parameters are checked here; weights are declared with their full shapes. */
static int configure(void *self, st_env *env)
{
    struct instance *layer = self;

    layer->w_up = st_matrix(env, "up", layer->width, env->hidden, ST_CUT_ROWS);
    layer->w_down = st_matrix(env, "down", env->hidden, layer->width, ST_CUT_COLS);
    return env->status;
}

static int forward(const void *self, st_step *step, const st_tensor *x, const st_tensor *y)
{
    const struct instance *layer = self;
    const int64_t rows = x->dim[0], width = layer->width / step->tensor.size;
    st_tensor up = st_keep(step, SLOT_UP, step->dtype, rows, width);
    st_tensor active = st_keep(step, SLOT_ACTIVE, step->dtype, rows, width);

    st_linear(step, layer->w_up, x, &up);
    ST_OP(step, act, ST_ACT_SILU, &up, &active);
    return st_linear(step, layer->w_down, &active, y);
}

/* dy is the gradient of y; writes dx, the gradient of x, and adds to the gradients of the weights. */
static int backward(const void *self, st_step *step, const st_tensor *x, const st_tensor *dy, const st_tensor *dx)
{
    const struct instance *layer = self;
    st_tensor up = st_kept(step, SLOT_UP), active = st_kept(step, SLOT_ACTIVE);
    const int64_t rows = up.dim[0], width = up.dim[1];
    st_tensor d_active = st_scratch(step, step->dtype, rows, width);
    st_tensor d_up = st_scratch(step, step->dtype, rows, width);

    if (!active.data) {
        active = st_scratch(step, step->dtype, rows, width);
        ST_OP(step, act, ST_ACT_SILU, &up, &active);
    }
    st_linear_bwd(step, layer->w_down, &active, dy, &d_active, 0);
    ST_OP(step, act_bwd, ST_ACT_SILU, &up, &d_active, &d_up);
    return st_linear_bwd(step, layer->w_up, x, &d_up, dx, 0);
}

static const st_layer_ops ops = {
    .size = sizeof ops,
    .role = ST_ROLE_CHANNEL, /* ST_ROLE_MIXER: tokens see each other */
    .tokens = ST_GATHERED,
    .slots = slots,
    .n_slots = ST_COUNT(slots),
    .configure = configure,
    .forward = forward,
    .backward = backward,
};

ST_PLUGIN_V1(ST_KIND_LAYER, struct instance, ops, ST_PARAMS(params),
    .caps = ST_CAP_TRAIN | ST_CAP_TENSOR | ST_CAP_CONTEXT | ST_CAP_LINEAR_X,
    .name = "@NAME@", /* name and version as in @NAME@.ini */
    .version = "0.1",
    .license = "Apache-2.0",
    .author = "",
    .summary = "plain MLP: down(silu(up))",
    .description = "")
