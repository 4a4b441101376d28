/* SPDX-License-Identifier: Apache-2.0 */
/* heads/mtp - multi-token prediction. Slot i of depth k sees the token k places on and predicts the one after it:
 *
 *     u_i   = fc [ norm_embed(embed(t_(i+k))) ; norm_hidden(h_i) ]        (embedding first)
 *     out_i = norm(layers(u)_i)                                           (layers: part k of the pattern)
 *     loss  = cross-entropy of lm_head out_i against t_(i+k+1)
 *
 * h is the trunk's state after the final norm for depth 1, `out` of the depth before for the others. Embedding, image
 * features and output matrix are the trunk's. Slots keep their positions. Ids, labels and image rows come shifted
 * inside each segment, so a segment with too few tokens has no label and adds nothing, and each depth divides by its
 * own number of trained tokens. Norms are of the stack's kind; those of the head have no bias. */
#include <stdio.h>
#include <strata/head.h>
#include <string.h>

enum { MAX_DEPTHS = 64 };

struct depth {
    st_wid norm_embed, norm_hidden, fc, norm;
    int stack, metric;
};
struct mtp {
    double loss_weight, eps;
    int32_t detach, repeated, norm, depths;
    struct depth depth[MAX_DEPTHS];
};

/* ---- what a depth is made of ---- */

/* Depth 1 has the names of published models; further ones have their number behind "mtp". */
static const st_map first_blocks[] = {
    {"hf", "", "mtp.layers.{block}.", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "mixer_norm", "input_layernorm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "mixer_norm_bias", "input_layernorm.bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "channel_norm", "post_attention_layernorm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "channel_norm_bias", "post_attention_layernorm.bias", 0, 0, ST_MAP_PLAIN, 0},
};
static const st_map later_blocks[] = {
    {"hf", "", "mtp{n}.layers.{block}.", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "mixer_norm", "input_layernorm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "mixer_norm_bias", "input_layernorm.bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "channel_norm", "post_attention_layernorm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "channel_norm_bias", "post_attention_layernorm.bias", 0, 0, ST_MAP_PLAIN, 0},
};

static st_wid norm_weight(st_env *e, const char *first, const char *later, int32_t k)
{
    return st_declare(e, (st_weight){.name = k > 1 ? later : first,
                                     .index = k,
                                     .nd = 1,
                                     .dim = {e->hidden},
                                     .init = e->norm == ST_NORM_RMS1P ? ST_INIT_ZERO : ST_INIT_ONE});
}

static void declare_depth(st_env *e, int32_t k, struct depth *d)
{
    d->norm_embed = norm_weight(e, "1.norm_embed", "{n}.norm_embed", k);
    d->norm_hidden = norm_weight(e, "1.norm_hidden", "{n}.norm_hidden", k);
    d->fc = st_declare(e, (st_weight){.flags = ST_W_BETA,
                                      .name = k > 1 ? "{n}.fc" : "1.fc",
                                      .index = k,
                                      .nd = 2,
                                      .dim = {e->hidden, 2 * e->hidden},
                                      .init = ST_INIT_NORMAL});
    d->stack = st_stack_id(e, (st_stack_def){.part = k,
                                             .maps = k > 1 ? later_blocks : first_blocks,
                                             .n_maps = ST_COUNT(first_blocks)});
    d->norm = norm_weight(e, "1.norm", "{n}.norm", k);
}

static int configure(void *self, st_env *e)
{
    struct mtp *m = self;

    if (e->depths < 1)
        return ST_ENV_FAIL_KEY(
            e, "pattern", ST_E_CONFIG,
            "the pattern has no depth for head mtp: write its layers behind '/', as in G-G-G-*-/*-");
    if (e->depths > MAX_DEPTHS)
        return ST_ENV_FAIL_KEY(e, "pattern", ST_E_UNSUPPORTED, "the pattern has %d depths: head mtp takes %d",
                               e->depths, MAX_DEPTHS);
    m->depths = e->depths;
    m->eps = e->norm_eps;
    m->norm = e->norm;
    for (int32_t i = 0; i < m->depths; i++) {
        char name[32];
        st_metric loss = {.kind = ST_METRIC_RATIO, .name = name, .unit = "nats/token"};
        if (i > 0 && m->repeated) m->depth[i] = m->depth[0];
        else declare_depth(e, i + 1, &m->depth[i]);
        snprintf(name, sizeof name, "mtp.%d.loss", (int)i + 1);
        m->depth[i].metric = st_metric_id(e, loss);
    }
    return e->status;
}

/* ---- one depth ---- */

struct normed {
    st_tensor rstd, mean;
}; /* acc (tokens, 1) */
struct work {
    st_tensor embed, pair; /* (tokens, hidden), (tokens, 2 hidden): what fc sees */
    struct normed of_embed, of_hidden;
    st_tensor out, d_out; /* (tokens, hidden) */
};

static struct normed statistics(const struct mtp *m, st_step *s, int64_t tokens)
{
    struct normed n = {st_scratch(s, s->acc_dtype, tokens, 1), st_absent()};

    if (m->norm == ST_NORM_LAYER) n.mean = st_scratch(s, s->acc_dtype, tokens, 1);
    return n;
}

static void norm(const struct mtp *m, st_step *s, st_wid w, const st_tensor *r, const st_tensor *n,
                 const struct normed *kept)
{
    st_tensor weight = st_w(s, w);

    ST_OP(s, norm,
          &(st_norm){
              .kind = m->norm, .eps = m->eps, .r = r, .w = &weight, .n = n, .rstd = &kept->rstd, .mean = &kept->mean});
}

static void norm_bwd(const struct mtp *m, st_step *s, st_wid w, const st_tensor *r, const struct normed *kept,
                     const st_tensor *dn, const st_tensor *dr, int add)
{
    st_tensor weight = st_w(s, w), dw = st_grad(s, w, NULL);

    if (!dw.data && !dr->data) return;
    ST_OP(s, norm_bwd,
          &(st_norm_bwd){.kind = m->norm,
                         .add = add,
                         .eps = m->eps,
                         .r = r,
                         .w = &weight,
                         .rstd = &kept->rstd,
                         .mean = &kept->mean,
                         .dn = dn,
                         .dr = dr,
                         .dw = &dw});
}

/* Loss and its gradient at `out`; the depth behind adds to that. What backward needs stays in scratch, for all depths
 * begin and end in one call of loss(). */
static void forward_depth(const struct mtp *m, st_step *s, int32_t i, const st_tensor *hidden, struct work *w)
{
    const struct depth *d = &m->depth[i];
    int64_t tokens = hidden->dim[0], width = hidden->dim[1];
    st_tensor left, right, u;
    size_t mark, inner;

    w->out = st_scratch(s, hidden->dtype, tokens, width);
    if (s->train) w->d_out = st_zeroed(s, hidden->dtype, tokens, width);
    mark = st_mark(s);
    w->embed = st_scratch(s, hidden->dtype, tokens, width);
    w->pair = st_scratch(s, hidden->dtype, tokens, 2 * width);
    w->of_embed = statistics(m, s, tokens);
    w->of_hidden = statistics(m, s, tokens);
    left = st_cols(w->pair, 0, width);
    right = st_cols(w->pair, width, width);
    st_embed(s, i + 1, &w->embed);
    norm(m, s, d->norm_embed, &w->embed, &left, &w->of_embed);
    norm(m, s, d->norm_hidden, hidden, &right, &w->of_hidden);
    inner = st_mark(s);
    u = st_scratch(s, hidden->dtype, tokens, width);
    st_linear(s, d->fc, &w->pair, &u);
    st_stack(s, d->stack, NULL, &u, d->norm, &w->out);
    st_release(s, inner);
    st_lm_loss(s, i + 1, m->loss_weight / m->depths, d->metric, &w->out, s->train ? &w->d_out : NULL);
    if (!s->train) st_release(s, mark);
}

/* hidden, d_hidden: what the depth took as h; d_hidden absent: not wanted. */
static void backward_depth(const struct mtp *m, st_step *s, int32_t i, const st_tensor *hidden,
                           const st_tensor *d_hidden, const struct work *w)
{
    const struct depth *d = &m->depth[i];
    int64_t tokens = hidden->dim[0], width = hidden->dim[1];
    size_t mark = st_mark(s);
    st_tensor du = st_scratch(s, hidden->dtype, tokens, width), d_pair, d_embed, left, right;

    st_stack_bwd(s, d->stack, NULL, &w->d_out, &du);
    d_pair = st_scratch(s, hidden->dtype, tokens, 2 * width);
    st_linear_bwd(s, d->fc, &w->pair, &du, &d_pair, 0);
    left = st_cols(d_pair, 0, width);
    right = st_cols(d_pair, width, width);
    d_embed = m->detach ? st_absent() : st_scratch(s, hidden->dtype, tokens, width);
    norm_bwd(m, s, d->norm_embed, &w->embed, &w->of_embed, &left, &d_embed, 0);
    if (!m->detach) st_embed_bwd(s, i + 1, &d_embed);
    norm_bwd(m, s, d->norm_hidden, hidden, &w->of_hidden, &right, d_hidden, 1);
    st_release(s, mark);
}

static int loss(const void *self, st_step *s, const st_tensor *h, const st_tensor *dh)
{
    const struct mtp *m = self;
    const st_tensor nothing = st_absent();
    struct work w[MAX_DEPTHS];

    memset(w, 0, sizeof w);
    for (int32_t i = 0; i < m->depths; i++) forward_depth(m, s, i, i ? &w[i - 1].out : h, &w[i]);
    for (int32_t i = m->depths; s->train && i-- > 0;)
        backward_depth(m, s, i, i ? &w[i - 1].out : h, i ? &w[i - 1].d_out : m->detach ? &nothing : dh, &w[i]);
    return st_status(s);
}

/* fc, which Megatron does not count, and the output matrix; the layers count for themselves. As if every token were
 * trained. */
static int cost(const void *self, const st_env *e, const st_row_stats *row, st_cost *out)
{
    double width = (double)e->hidden;

    out->megatron = 2 * e->depths * row->tokens * width * (double)e->vocab;
    out->exact = out->megatron + 4 * e->depths * row->tokens * width * width;
    return ST_OK;
}

/* ---- the plugin ---- */

#define NAMES(weight, file) \
    {"hf", "1." weight, "mtp." file, 0, 0, ST_MAP_PLAIN, 0}, \
    { \
        "hf", "{n}." weight, "mtp{n}." file, 0, 0, ST_MAP_PLAIN, 0 \
    }
static const st_map maps[] = {
    NAMES("norm_embed", "pre_fc_norm_embedding.weight"),
    NAMES("norm_hidden", "pre_fc_norm_hidden.weight"),
    NAMES("fc", "fc.weight"),
    NAMES("norm", "norm.weight"),
};

static const st_param params[] = {
    ST_FLOAT(struct mtp, loss_weight, "0.1", 0, 1e6, "", 0,
             "factor on the gradient of the mean over depths of their losses"),
    ST_BOOL(struct mtp, detach, "no", 0,
            "the trunk's layers, embedding and encoder learn nothing from the depths; the output matrix, which they "
            "share, does"),
    ST_BOOL(struct mtp, repeated, "no", ST_PF_FIXED, "one set of weights for all depths, which must have equal layers"),
};

static const st_head_ops ops = {
    .size = sizeof ops,
    .n_maps = ST_COUNT(maps),
    .maps = maps,
    .first_depth = 1,
    .depths = -1,
    .configure = configure,
    .loss = loss,
    .cost = cost,
};

ST_PLUGIN_V1(ST_KIND_HEAD, struct mtp, ops, ST_PARAMS(params),
    .caps = ST_CAP_TRAIN,
    .needs = ST_CAP_SHIFTABLE,
    .name = "mtp",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "the strata authors",
    .summary = "multi-token prediction: each depth looks one token further",
    .description = "What follows the k-th '/' of the pattern predicts, from the state of the depth before and the "
                   "embedding of the token k places on, the token after that one.")
