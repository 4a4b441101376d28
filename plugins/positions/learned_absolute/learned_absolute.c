/* SPDX-License-Identifier: Apache-2.0 */
/* positions/learned_absolute - one id per token, counted from 0 in every segment, and a learned vector per id that is
 * added to the embedding (image features included). The vector belongs to the token, not to the slot: where a slot
 * holds a token from further on, as at a multi-token-prediction depth, it would be the wrong one. So this plugin does
 * not have ST_CAP_SHIFTABLE. */
#include "kernels.h"

struct learned {
    int64_t max_positions;
    st_wid table;
};

static int configure(void *self, st_env *e)
{
    struct learned *m = self;

    m->table = st_declare(e, (st_weight){.flags = ST_W_TABLE,
                                         .name = "table",
                                         .nd = 2,
                                         .dim = {m->max_positions, e->hidden},
                                         .init = ST_INIT_NORMAL});
    return e->status;
}

static int assign(const void *self, const st_worker *w, const st_sequence *q, int32_t *pos)
{
    const struct learned *m = self;

    if (q->n > m->max_positions)
        return ST_WORKER_FAIL(w, ST_E_DATA, "%d tokens: [position] max_positions = %lld", (int)q->n,
                              (long long)m->max_positions);
    for (int32_t i = 0; i < q->n; i++) pos[i] = i;
    return ST_OK;
}

static struct learned_rows rows_of(const st_tensor *pos, const st_tensor *x, const st_tensor *table)
{
    return (struct learned_rows){.pos = (const int32_t *)pos->data,
                                 .tokens = x->dim[0],
                                 .width = x->dim[1],
                                 .positions = table->dim[0],
                                 .x_stride = x->stride[0],
                                 .table_stride = table->stride[0],
                                 .x = x->data,
                                 .table = table->data,
                                 .dtype = x->dtype,
                                 .table_dtype = table->dtype};
}

/* One sum a value; so often do x and the rows of the table cross the memory. */
static double values_of(const struct learned_rows *a) { return (double)a->tokens * (double)a->width; }
static double bytes_of(const struct learned_rows *a, int x, int table)
{
    return values_of(a) * (x * (double)st_dtype_size(a->dtype) + table * (double)st_dtype_size(a->table_dtype));
}

static int embed(const void *self, st_step *s, const st_tensor *pos, const st_tensor *x)
{
    const struct learned *m = self;
    const struct learned_kernels *k = ST_KERNELS(s, struct learned_kernels);
    st_tensor table = st_w(s, m->table);
    struct learned_rows a = rows_of(pos, x, &table);

    return ST_LAUNCH_COST(s, "learned_add", values_of(&a), bytes_of(&a, 2, 1), k->add(s->q, &a));
}

static int embed_bwd(const void *self, st_step *s, const st_tensor *pos, const st_tensor *dx)
{
    const struct learned *m = self;
    const struct learned_kernels *k = ST_KERNELS(s, struct learned_kernels);
    st_tensor grad = st_grad(s, m->table, NULL);
    struct learned_rows a = rows_of(pos, dx, &grad);

    if (!grad.data) return st_status(s);
    return ST_LAUNCH_COST(s, "learned_add_bwd", values_of(&a), bytes_of(&a, 1, 2), k->add_bwd(s->q, &a));
}

static const st_param params[] = {
    ST_INT(struct learned, max_positions, NULL, 1, 1 << 28, "tokens", ST_PF_REQUIRED | ST_PF_FIXED,
           "rows of the table: the longest sequence"),
};

static const st_position_ops ops = {
    .size = sizeof ops,
    .axes = 1,
    .configure = configure,
    .assign = assign,
    .embed = embed,
    .embed_bwd = embed_bwd,
};

ST_PLUGIN_V1(ST_KIND_POSITION, struct learned, ops, ST_PARAMS(params),
    ST_KERNEL_TABLE(LEARNED_ABSOLUTE_IFACE, struct learned_kernels),
    .caps = ST_CAP_TRAIN,
    .name = "learned_absolute",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "the strata authors",
    .summary = "a learned vector per position, added to the embedding",
    .description = "Every token's place in its sequence picks a row of a learned table, which is added to its "
                   "embedding. Sequences longer than the table are unusable. No published model of the family has "
                   "such a table, so it has no HuggingFace name.")
