/* SPDX-License-Identifier: Apache-2.0 */
/* model/shares.c - the data axis: ranks with rows of their own and the same weights.
 *
 * Gradients are summed over the ranks once per step. With [parallel] zero = 1 a rank then keeps the sums of its share of
 * every group, updates that with the state that it alone has, and all gather the weights. Shares are equal blocks in
 * the order of ranks, so the ranges of a group are filled up to a multiple. A matrix that is updated as a whole has one
 * owner. */
#include "model/private.h"
#include <stdlib.h>
#include <string.h>

enum { UNIT = 64 }; /* weights and shares start at multiples of so many elements */

static int64_t filled(int64_t n) { return (n + UNIT - 1) / UNIT * UNIT; }

static bool shared(const st_model *m) { return m->parallel.zero > 0 && m->mesh.data.size > 1; }

/* ---- who has what ---- */

/* Any cut of the elements will do: one behind the other. */
static void lay_flat(model_weight **w, int32_t n, opt_group *g, int64_t ranks)
{
    int64_t at = 0;

    for (int32_t i = 0; i < n; i++) {
        w[i]->offset = at;
        at += filled(w[i]->pub.count);
    }
    g->share = filled((at + ranks - 1) / ranks);
}

static int larger_first(const void *a, const void *b)
{
    const model_weight *x = *(model_weight *const *)a, *y = *(model_weight *const *)b;

    if (x->pub.count != y->pub.count) return x->pub.count > y->pub.count ? -1 : 1;
    return strcmp(x->pub.path, y->pub.path);
}

/* The larger a weight, the earlier it is given away, to the rank that has least so far. load: [ranks], zeros. */
static void lay_matrices(model_weight **w, int32_t n, opt_group *g, int64_t ranks, int64_t *load)
{
    if (ranks > 1) qsort(w, (size_t)n, sizeof(model_weight *), larger_first);
    for (int32_t i = 0; i < n; i++) {
        int64_t least = 0;
        for (int64_t r = 1; r < ranks; r++)
            if (load[r] < load[least]) least = r;
        w[i]->owner = (int32_t)least;
        w[i]->offset = load[least];
        load[least] += filled(w[i]->pub.count);
    }
    for (int64_t r = 0; r < ranks; r++)
        if (load[r] > g->share) g->share = load[r];
    for (int32_t i = 0; i < n; i++) w[i]->offset += w[i]->owner * g->share;
}

int model_share_group(st_model *m, int32_t group)
{
    opt_group *g = &m->groups[group];
    int64_t ranks = shared(m) ? m->mesh.data.size : 1, *load = ST_NEW_N(m->arena, int64_t, ranks);
    model_weight **members = ST_NEW_N(m->arena, model_weight *, m->n_weights);
    int32_t n = 0;

    if (!load || !members) return ST_E_NOMEM;
    for (int32_t i = 0; i < m->n_weights; i++)
        if (m->weights[i]->group == group) members[n++] = m->weights[i];
    g->share = 0;
    if (g->class_.place == ST_PLACE_MATRIX) lay_matrices(members, n, g, ranks, load);
    else lay_flat(members, n, g, ranks);
    g->first = shared(m) ? m->mesh.data.rank * g->share : 0;
    g->count = ranks * g->share;
    return ST_OK;
}

bool model_updates(const st_model *m, const model_weight *w)
{
    const opt_group *g = &m->groups[w->group];

    return w->offset >= g->first && w->offset < g->first + g->share;
}

/* ---- between the ranks ---- */

static st_tensor whole(char *base, size_t at, int32_t dtype, int64_t n)
{
    st_tensor t = st_tensor2(base + at, dtype, n, 1);
    t.nd = 1;
    return t;
}

int model_sum_gradients(st_model *m)
{
    st_step *s = &m->run.s;

    for (int32_t i = 0; i < m->n_groups && m->mesh.data.size > 1; i++) {
        const opt_group *g = &m->groups[i];
        st_tensor all = whole(m->grad_block.base, g->grad_at, m->acc_dtype, g->count);
        if (shared(m)) model_collect(s, ST_REDUCE_SCATTER, ST_G_DATA, &all, &g->unit.grad);
        else model_collect(s, ST_ALL_REDUCE, ST_G_DATA, &all, &all);
    }
    return s->status;
}

/* Sums of squares of shares make those of all. */
int model_sum_squares(st_model *m)
{
    st_tensor cells = model_cell(m, m->sumsq_at, m->n_groups);

    return shared(m) ? model_collect(&m->run.s, ST_ALL_REDUCE, ST_G_DATA, &cells, &cells) : m->run.s.status;
}

int model_gather_weights(st_model *m)
{
    st_step *s = &m->run.s;

    for (int32_t i = 0; i < m->n_groups && shared(m); i++) {
        const opt_group *g = &m->groups[i];
        st_tensor all = whole(m->weight_block.base, g->at, g->dtype, g->count);
        model_collect(s, ST_ALL_GATHER, ST_G_DATA, &g->unit.weight, &all);
    }
    return s->status;
}
