/* SPDX-License-Identifier: Apache-2.0 */
/* optimizers/muon - momentum whose matrices are made orthogonal: K. Jordan et al., "Muon: an optimizer for hidden
 * layers in neural networks", 2024, https://kellerjordan.github.io/posts/muon/. With g the clipped gradient of a matrix
 * W of r rows and c columns, the step is
 *
 *     m = momentum m + g            u = g + momentum m  (nesterov), or m
 *     X = u / (|u| + eps)           |u|: the root of the sum of squares
 *     iterations times:   A = X X^T,   X = a X + (b A + c A A) X         a, b, c = 3.4445, -4.7750, 2.0315
 *     W = W - lr (decay W + s X)
 *
 * so that all singular values of X end near 1; where r > c, A = X^T X stands on the right. s, by `scale`:
 *
 *     rms     0.2 sqrt(max(r, c)): as large as an update of Adam, so one learning rate serves both (J. Liu et al.,
 *             "Muon is scalable for LLM training", 2025, arXiv 2502.16982); `rms` is the 0.2
 *     shape   sqrt(max(1, r / c)), as first published
 *     none    1
 *
 * A fused weight is several matrices: each of its sections (q, k, v; gate, up) and each expert is made orthogonal on its
 * own. A section that holds two things row by row, such as queries and their gates, is one matrix.
 *
 * Not a map between hidden states, and so with AdamW: embeddings, positions and other tables, the output matrix,
 * vectors, biases, matrices of one row or column, and what is declared ST_W_APART, such as kernels of convolutions. All
 * of it runs in the type of the masters. */
#include "kernels.h"
#include <math.h>

enum { RULE_MUON, RULE_ADAMW };
enum { MOMENTUM, SECOND }; /* states */
enum { ADAM_LR, ADAM_DECAY, ADAM_BETA1, ADAM_BETA2, ADAM_EPS, ADAM_C1, ADAM_C2, ADAM_REST1, ADAM_REST2, HYPERS };
enum { SCALE_RMS, SCALE_SHAPE, SCALE_NONE };

struct muon {
    double momentum, eps, rms, beta1, beta2, adamw_eps, adamw_lr;
    st_floats coefficients;
    int64_t iterations;
    int32_t nesterov, scale, acc_dtype;
};

static int configure(void *self, st_env *e)
{
    struct muon *m = self;

    m->acc_dtype = e->acc_dtype;
    if (m->momentum >= 1)
        return ST_ENV_FAIL_KEY(e, "momentum", ST_E_CONFIG, "momentum = %g: must be below 1, or it never forgets",
                               m->momentum);
    if (m->coefficients.n != 3)
        return ST_ENV_FAIL_KEY(e, "coefficients", ST_E_CONFIG,
                               "coefficients has %lld numbers: give three, of X, A X and A A X",
                               (long long)m->coefficients.n);
    if (m->beta1 >= 1)
        return ST_ENV_FAIL_KEY(e, "beta1", ST_E_CONFIG, "beta1 = %g: must be below 1, or the mean never moves",
                               m->beta1);
    if (m->beta2 >= 1)
        return ST_ENV_FAIL_KEY(e, "beta2", ST_E_CONFIG, "beta2 = %g: must be below 1, or the mean never moves",
                               m->beta2);
    return e->status;
}

/* ---- which weight, which rule ---- */

/* The same for all sections of a weight, also for one of a single row, which is made as long as 1. */
static int is_hidden_matrix(const st_weight_info *w)
{
    if (w->nd < 2 || w->nd > 3 || w->flags & (ST_W_TABLE | ST_W_APART)) return 0;
    return w->section[0] || (w->dim[w->nd - 2] > 1 && w->dim[w->nd - 1] > 1);
}

static int classify(const void *self, const st_weight_info *info, st_opt_class *out)
{
    const struct muon *m = self;
    int matrix = is_hidden_matrix(info);

    out->rule = matrix ? RULE_MUON : RULE_ADAMW;
    out->place = matrix ? ST_PLACE_MATRIX : ST_PLACE_FLAT;
    out->n_state = matrix ? 1 : 2;
    out->state[MOMENTUM] =
        (st_opt_state){.name = matrix ? "momentum" : "m", .dtype = m->acc_dtype, .like = ST_LIKE_WEIGHT};
    out->state[SECOND] = (st_opt_state){.name = "v", .dtype = m->acc_dtype, .like = ST_LIKE_WEIGHT};
    return ST_OK;
}

static int hyper(const void *self, int32_t rule, const st_schedule *at, double *out)
{
    const struct muon *m = self;

    for (int i = 0; i < HYPERS; i++) out[i] = 0;
    if (rule == RULE_MUON) {
        out[HYPER_LR] = at->lr * at->lr_scale;
        out[HYPER_DECAY] = at->decay;
        out[HYPER_MOMENTUM] = m->momentum;
        return ST_OK;
    }
    out[ADAM_LR] = at->lr * at->lr_scale * m->adamw_lr;
    out[ADAM_DECAY] = at->decay;
    out[ADAM_BETA1] = m->beta1;
    out[ADAM_BETA2] = m->beta2;
    out[ADAM_EPS] = m->adamw_eps;
    out[ADAM_C1] = 1 - pow(m->beta1, (double)at->step);
    out[ADAM_C2] = 1 - pow(m->beta2, (double)at->step);
    out[ADAM_REST1] = 1 - m->beta1; /* taken in f64: the update may run in f32 */
    out[ADAM_REST2] = 1 - m->beta2;
    return ST_OK;
}

/* ---- update ---- */

static double scale_of(const struct muon *m, int64_t rows, int64_t cols)
{
    double r = (double)rows, c = (double)cols;

    if (m->scale == SCALE_RMS) return m->rms * sqrt(fmax(r, c));
    return m->scale == SCALE_SHAPE ? sqrt(fmax(1, r / c)) : 1;
}

/* x ends nearer to orthogonal. Products on the smaller side: x x^T or x^T x. */
static st_tensor orthogonal(const struct muon *m, st_step *s, st_tensor x)
{
    const int64_t r = x.dim[0], c = x.dim[1], n = r < c ? r : c;
    const double *k = m->coefficients.v;
    st_tensor y = st_scratch(s, m->acc_dtype, r, c), a = st_scratch(s, m->acc_dtype, n, n),
              aa = st_scratch(s, m->acc_dtype, n, n);

    for (int64_t i = 0; i < m->iterations; i++) {
        ST_OP(s, gemm, &(st_gemm){.a = &x, .b = &x, .c = &a, .alpha = 1, .trans = r <= c ? 2 : 1});
        ST_OP(s, gemm, &(st_gemm){.a = &a, .b = &a, .c = &aa, .alpha = 1});
        ST_OP(s, add, k[1], &a, k[2], &aa, &a);
        if (r <= c) ST_OP(s, gemm, &(st_gemm){.a = &a, .b = &x, .c = &y, .alpha = 1});
        else ST_OP(s, gemm, &(st_gemm){.a = &x, .b = &a, .c = &y, .alpha = 1});
        ST_OP(s, add, k[0], &x, 1, &y, &x);
    }
    return x;
}

static void *entry(const st_tensor *t, int64_t i)
{
    return (char *)t->data + (size_t)(i * t->stride[0]) * st_dtype_size(t->dtype);
}

/* Matrix i of a unit: the unit itself, or one entry of its first dimension. */
static void update_matrix(const struct muon *m, st_step *s, const st_opt_unit *u, int64_t i)
{
    const struct muon_kernels *k = ST_KERNELS(s, struct muon_kernels);
    const int32_t d = u->master.nd - 2;
    const int64_t rows = u->master.dim[d], cols = u->master.dim[d + 1];
    const st_tensor clip = st_scalar(s, ST_S_CLIP), skip = st_scalar(s, ST_S_SKIP);
    const size_t mark = st_mark(s);
    st_tensor x = st_scratch(s, m->acc_dtype, rows, cols), row_sum = st_scratch(s, ST_F64, rows, 1);
    struct muon_matrix a = {.rows = rows,
                            .cols = cols,
                            .stride = u->master.stride[d],
                            .x = x.data,
                            .row_sum = row_sum.data,
                            .hyper = u->hyper.data,
                            .clip = clip.data,
                            .skip = skip.data,
                            .eps = m->eps,
                            .scale = scale_of(m, rows, cols),
                            .nesterov = m->nesterov,
                            .dtype = m->acc_dtype,
                            .weight_dtype = u->weight.dtype};

    a.grad = d ? entry(&u->grad, i) : u->grad.data;
    a.state = d ? entry(&u->state[MOMENTUM], i) : u->state[MOMENTUM].data;
    a.master = d ? entry(&u->master, i) : u->master.data;
    a.weight = d ? entry(&u->weight, i) : u->weight.data;
    /* a value: momentum and its sum (3), nesterov (2), the norm (2), a division; then decay, scale and sum (5) */
    const double n = (double)rows * (double)cols, acc = (double)st_dtype_size(m->acc_dtype);
    ST_LAUNCH_COST(s, "muon_momentum", 8 * n, 4 * n * acc, k->momentum(s->q, &a));
    x = orthogonal(m, s, x);
    ST_LAUNCH_COST(s, "muon_apply", 5 * n, n * (3 * acc + (double)st_dtype_size(u->weight.dtype)), k->apply(s->q, &a));
    st_release(s, mark);
}

static void update_flat(st_step *s, const st_opt_unit *u)
{
    const st_tensor clip = st_scalar(s, ST_S_CLIP), skip = st_scalar(s, ST_S_SKIP);

    ST_OP(s, adamw,
          &(st_adamw){.master = &u->master,
                      .m = &u->state[MOMENTUM],
                      .v = &u->state[SECOND],
                      .weight = &u->weight,
                      .grad = &u->grad,
                      .hyper = &u->hyper,
                      .clip = &clip,
                      .skip = &skip});
}

static int update(const void *self, st_step *s, const st_opt_unit *const *units, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const st_opt_unit *u = units[i];
        if (u->rule == RULE_ADAMW) {
            update_flat(s, u);
            continue;
        }
        for (int64_t k = 0; k < (u->master.nd == 3 ? u->master.dim[0] : 1); k++) update_matrix(self, s, u, k);
    }
    return st_status(s);
}

static const st_param params[] = {
    ST_FLOAT(struct muon, momentum, "0.95", 0, 1, "", 0, "memory of the gradient"),
    ST_BOOL(struct muon, nesterov, "yes", 0, "look ahead: the gradient counts once more than in the memory"),
    ST_INT(struct muon, iterations, "5", 1, 100, "", 0, "steps towards an orthogonal matrix"),
    ST_FLOATS(struct muon, coefficients, "3.4445,-4.7750,2.0315", -100, 100, 0,
              "of X, A X and A A X in one such step, A = X X^T"),
    ST_FLOAT(struct muon, eps, "1e-7", 1e-300, 1, "", 0, "added to the norm that a matrix is divided by"),
    ST_CHOICE(
        struct muon, scale, "rms", "rms|shape|none", 0,
        "factor of an orthogonal matrix of r rows and c columns. rms: rms x root of max(r, c), as large as a step "
        "of Adam. shape: root of max(1, r / c). none: 1"),
    ST_FLOAT(struct muon, rms, "0.2", 1e-6, 100, "", 0, "with scale = rms: root mean square of an update"),
    ST_FLOAT(struct muon, beta1, "0.9", 0, 1, "", 0, "AdamW's weights: memory of the mean gradient"),
    ST_FLOAT(struct muon, beta2, "0.95", 0, 1, "", 0, "AdamW's weights: memory of the mean squared gradient"),
    ST_FLOAT(struct muon, adamw_eps, "1e-8", 1e-300, 1, "", 0,
             "AdamW's weights: added to the root of the mean squared gradient"),
    ST_FLOAT(struct muon, adamw_lr, "1", 0, 1e6, "", 0, "AdamW's weights: factor on the learning rate"),
};

static const st_optimizer_ops ops = {
    .size = sizeof ops,
    .n_hyper = HYPERS,
    .configure = configure,
    .classify = classify,
    .hyper = hyper,
    .update = update,
};

ST_PLUGIN_V1(
    ST_KIND_OPTIMIZER, struct muon, ops, ST_PARAMS(params), ST_KERNEL_TABLE(MUON_IFACE, struct muon_kernels),
    .caps = ST_CAP_TRAIN | ST_CAP_CONTEXT | ST_CAP_EXPERT, .name = "muon", .version = "0.1.0", .license = "Apache-2.0",
    .author = "the strata authors", .summary = "momentum made orthogonal for hidden matrices, AdamW for the rest",
    .description = "Muon (K. Jordan et al., 2024): the momentum of every hidden matrix is made orthogonal by a few "
                   "steps of a polynomial iteration. Sections of a fused weight and experts are matrices of their own. "
                   "Embeddings, the output matrix, norms, vectors, biases and kernels of convolutions are updated by "
                   "AdamW. Weight decay is decoupled in both.")
