/* SPDX-License-Identifier: Apache-2.0 */
/* optimizers/adamw - Adam with decoupled weight decay. The learning rate comes from the schedule, decay and rate
 * factors per weight from the spec's path rules; here are only the rule's own constants. */
#include <math.h>
#include <strata/optimizer.h>

enum { M, V, STATES };
enum { HYPER_LR, HYPER_DECAY, HYPER_BETA1, HYPER_BETA2, HYPER_EPS, HYPER_CORRECTION1, HYPER_CORRECTION2,
       HYPER_REST1, HYPER_REST2, HYPERS };

struct adamw { double beta1, beta2, eps; int32_t acc_dtype; };

static int configure(void *self, st_env *e)
{
    struct adamw *a = self;

    if (a->beta1 >= 1)
        return ST_ENV_FAIL_KEY(e, "beta1", ST_E_CONFIG, "beta1 = %g: must be below 1, or the mean never moves",
                               a->beta1);
    if (a->beta2 >= 1)
        return ST_ENV_FAIL_KEY(e, "beta2", ST_E_CONFIG, "beta2 = %g: must be below 1, or the mean never moves",
                               a->beta2);
    a->acc_dtype = e->acc_dtype;
    return e->status;
}

static int classify(const void *self, const st_weight_info *info, st_opt_class *out)
{
    const struct adamw *a = self;

    out->place = ST_PLACE_FLAT;
    out->rule = 0;
    out->n_state = STATES;
    out->state[M] = (st_opt_state){.name = "m", .dtype = a->acc_dtype, .like = ST_LIKE_WEIGHT};
    out->state[V] = (st_opt_state){.name = "v", .dtype = a->acc_dtype, .like = ST_LIKE_WEIGHT};
    return ST_OK;
}

static int hyper(const void *self, int32_t rule, const st_schedule *at, double *out)
{
    const struct adamw *a = self;

    out[HYPER_LR] = at->lr * at->lr_scale;
    out[HYPER_DECAY] = at->decay;
    out[HYPER_BETA1] = a->beta1;
    out[HYPER_BETA2] = a->beta2;
    out[HYPER_EPS] = a->eps;
    out[HYPER_CORRECTION1] = 1 - pow(a->beta1, (double)at->step);
    out[HYPER_CORRECTION2] = 1 - pow(a->beta2, (double)at->step);
    out[HYPER_REST1] = 1 - a->beta1; /* taken in f64: the update may run in f32 */
    out[HYPER_REST2] = 1 - a->beta2;
    return ST_OK;
}

static int update(const void *self, st_step *s, const st_opt_unit *const *units, int32_t n)
{
    st_tensor clip = st_scalar(s, ST_S_CLIP), skip = st_scalar(s, ST_S_SKIP);

    for (int32_t i = 0; i < n; i++) {
        const st_opt_unit *u = units[i];
        ST_OP(s, adamw, &(st_adamw){.master = &u->master, .m = &u->state[M], .v = &u->state[V], .weight = &u->weight,
                                    .grad = &u->grad, .hyper = &u->hyper, .clip = &clip, .skip = &skip});
    }
    return st_status(s);
}

static const st_param params[] = {
    ST_FLOAT(struct adamw, beta1, "0.9", 0, 1, "", 0, "memory of the mean gradient"),
    ST_FLOAT(struct adamw, beta2, "0.999", 0, 1, "", 0, "memory of the mean squared gradient"),
    ST_FLOAT(struct adamw, eps, "1e-8", 1e-300, 1, "", 0, "added to the root of the mean squared gradient"),
};

static const st_optimizer_ops ops = {
    .size = sizeof ops,
    .n_hyper = HYPERS,
    .configure = configure,
    .classify = classify,
    .hyper = hyper,
    .update = update,
};

ST_PLUGIN_V1(ST_KIND_OPTIMIZER, struct adamw, ops, ST_PARAMS(params),
    .caps = ST_CAP_TRAIN | ST_CAP_TENSOR | ST_CAP_CONTEXT | ST_CAP_EXPERT, /* every element is on its own */
    .name = "adamw",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "the strata authors",
    .summary = "Adam with decoupled weight decay",
    .description = "Adam with bias correction and weight decay applied to the weight itself, scaled by the "
                   "learning rate.")
