/* SPDX-License-Identifier: Apache-2.0 */
/* optimizers/adamw - Adam with decoupled weight decay. The learning rate comes from the schedule, decay and rate
 * factors per weight from the spec's path rules; here are only the rule's own constants, and what it keeps in bf16. */
#include <math.h>
#include <strata/optimizer.h>

enum { M, V, STATES };
enum { HYPER_LR, HYPER_DECAY, HYPER_BETA1, HYPER_BETA2, HYPER_EPS, HYPER_CORRECTION1, HYPER_CORRECTION2,
       HYPER_REST1, HYPER_REST2, HYPERS };

enum { MOMENTS_F32, MOMENTS_BF16 };
enum { MASTERS_F32, MASTERS_NONE };

struct adamw { double beta1, beta2, eps; int32_t moments, masters, acc_dtype; };

static const char *type_word(int32_t dtype) { return dtype == ST_F64 ? "f64" : "f32"; }

static int configure(void *self, st_env *e)
{
    struct adamw *a = self;

    if (a->beta1 >= 1)
        return ST_ENV_FAIL_KEY(e, "beta1", ST_E_CONFIG, "beta1 = %g: must be below 1, or the mean never moves",
                               a->beta1);
    if (a->beta2 >= 1)
        return ST_ENV_FAIL_KEY(e, "beta2", ST_E_CONFIG, "beta2 = %g: must be below 1, or the mean never moves",
                               a->beta2);
    if (a->moments == MOMENTS_BF16 && e->dtype != ST_BF16)
        return ST_ENV_FAIL_KEY(e, "moments", ST_E_CONFIG,
                               "moments = bf16: for runs with [run] precision = bf16, this one's is %s", type_word(e->dtype));
    if (a->masters == MASTERS_NONE && e->dtype != ST_BF16)
        return ST_ENV_FAIL_KEY(e, "masters", ST_E_CONFIG,
                               "masters = none: for runs with [run] precision = bf16, this one's is %s", type_word(e->dtype));
    a->acc_dtype = e->acc_dtype;
    return e->status;
}

static int classify(const void *self, const st_weight_info *info, st_opt_class *out)
{
    const struct adamw *a = self;
    int whole = (info->flags & ST_W_ACC) != 0; /* the few weights that are f32 throughout */
    int32_t dtype = a->moments == MOMENTS_BF16 && !whole ? ST_BF16 : a->acc_dtype;

    out->place = ST_PLACE_FLAT;
    out->rule = 0;
    out->n_state = STATES;
    out->state[M] = (st_opt_state){.name = "m", .dtype = dtype, .like = ST_LIKE_WEIGHT};
    out->state[V] = (st_opt_state){.name = "v", .dtype = dtype, .like = ST_LIKE_WEIGHT};
    out->no_master = a->masters == MASTERS_NONE && !whole;
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
    st_tensor clip = st_scalar(s, ST_S_CLIP), skip = st_scalar(s, ST_S_SKIP), step = st_scalar(s, ST_S_STEP);

    for (int32_t i = 0; i < n; i++) {
        const st_opt_unit *u = units[i];
        const st_adamw of = {.master = &u->master, .m = &u->state[M], .v = &u->state[V], .weight = &u->weight,
                             .grad = &u->grad, .hyper = &u->hyper, .clip = &clip, .skip = &skip};
        if (u->master.dtype == ST_BF16 || u->state[M].dtype == ST_BF16)
            ST_OP(s, adamw_rounded,
                  &(st_adamw_rounded){.of = of, .step = &step, .seed = u->seed, .first = u->first});
        else ST_OP(s, adamw, &of);
    }
    return st_status(s);
}

static const st_param params[] = {
    ST_FLOAT(struct adamw, beta1, "0.9", 0, 1, "", 0, "memory of the mean gradient"),
    ST_FLOAT(struct adamw, beta2, "0.999", 0, 1, "", 0, "memory of the mean squared gradient"),
    ST_FLOAT(struct adamw, eps, "1e-8", 1e-300, 1, "", 0, "added to the root of the mean squared gradient"),
    ST_CHOICE(struct adamw, moments, "f32", "f32|bf16", ST_PF_FIXED,
              "type of both means (f64 in f64 runs). bf16, of bf16 runs: 4 bytes a weight less, rounded at random"),
    ST_CHOICE(struct adamw, masters, "f32", "f32|none", ST_PF_FIXED,
              "of bf16 runs: the f32 copy of every weight. none: 4 bytes a weight less, the bf16 weight itself is updated "
              "and rounded at random"),
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
