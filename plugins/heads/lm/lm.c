/* SPDX-License-Identifier: Apache-2.0 */
/* heads/lm - next-token cross-entropy. The host's shared service does the work: it walks the trained rows in chunks
 * through the output matrix (tied or not) and softmax, and divides by the number of trained tokens of the whole
 * step. */
#include <strata/head.h>

struct lm { double weight; int metric; };

static int configure(void *self, st_env *e)
{
    struct lm *m = self;

    m->metric = st_metric_id(e, (st_metric){.kind = ST_METRIC_RATIO, .name = "loss", .unit = "nats/token"});
    return e->status;
}

static int loss(const void *self, st_step *s, const st_tensor *h, const st_tensor *dh)
{
    const struct lm *m = self;

    return st_lm_loss(s, 0, m->weight, m->metric, h, dh);
}

/* As if every token were trained; receipts train few, so this is an upper bound. */
static int cost(const void *self, const st_env *e, const st_row_stats *row, st_cost *out)
{
    out->megatron = out->exact = 2.0 * row->tokens * (double)e->hidden * (double)e->vocab;
    return ST_OK;
}

static const st_param params[] = {
    ST_FLOAT(struct lm, weight, "1", 0, 1e6, "", 0, "factor on its gradient; the loss is logged without it"),
};

static const st_head_ops ops = {
    .size = sizeof ops, .first_depth = 0, .depths = 1, .configure = configure, .loss = loss, .cost = cost,
};

ST_PLUGIN_V1(ST_KIND_HEAD, struct lm, ops, ST_PARAMS(params),
    .caps = ST_CAP_TRAIN,
    .name = "lm",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "the strata authors",
    .summary = "next-token prediction",
    .description = "Cross-entropy of the next token, summed over trained tokens and divided by their number in the "
                   "whole step.")
