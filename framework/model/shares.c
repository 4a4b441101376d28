/* SPDX-License-Identifier: Apache-2.0 */
/* model/shares.c - the data axis: ranks with rows of their own and the same weights, [parallel] zero.
 *
 * 0: gradients are summed over the ranks once per step. 1: a rank then keeps the sums of its share of every bucket,
 * updates that with the state that it alone has, and all gather the weights. 2: a layer's gradients are whole only
 * while its backward runs; then a rank adds its share of their sum to what it has. 3: so are the layer's weights, in
 * forward too. What is no layer's (embedding, output, heads, what is around an encoder's blocks), and all that is not
 * trained, is whole at every level.
 *
 * Shares are equal blocks in the order of ranks, so buckets are filled up to a multiple. A matrix that is updated as a
 * whole has one owner. */
#include "model/private.h"
#include <stdlib.h>
#include <string.h>

enum { UNIT = 64 }; /* weights and shares start at multiples of so many elements */
enum { ZERO_STATES = 1, ZERO_GRADIENTS, ZERO_WEIGHTS };

static int64_t filled(int64_t n) { return (n + UNIT - 1) / UNIT * UNIT; }

/* Ranks that have shares of a bucket. */
static int32_t owners(const st_model *m) { return m->parallel.zero >= ZERO_STATES ? m->mesh.data.size : 1; }

bool model_gathers(const st_model *m, const opt_bucket *b) { return b->part && m->parallel.zero >= ZERO_WEIGHTS; }

/* A layer's bucket is cut anywhere. */
int model_check_zero(st_model *m, st_diags *d)
{
    for (int32_t i = 0; i < m->n_groups && m->parallel.zero >= ZERO_GRADIENTS; i++)
        if (m->groups[i].class_.place == ST_PLACE_MATRIX)
            return st_spec_fail_key(
                m->spec, d, "parallel", "zero", "zero = 1 gives each matrix to one rank",
                "[parallel] zero = %lld cuts the layers' matrices, but optimizer %s updates them as "
                "a whole",
                (long long)m->parallel.zero, m->optimizer.plugin->name);
    return ST_OK;
}

/* ---- who has what ---- */

static int32_t bucket_of(st_model *m, const model_weight *w)
{
    model_part *part = m->parallel.zero >= ZERO_GRADIENTS && w->part->kind == ST_KIND_LAYER ? w->part : NULL;

    for (int32_t i = 0; i < m->n_buckets; i++)
        if (m->buckets[i].group == w->group && m->buckets[i].part == part) return i;
    if (!model_grow(m->arena, &m->buckets, m->n_buckets, &m->cap_buckets, sizeof *m->buckets)) return -1;
    m->buckets[m->n_buckets] = (opt_bucket){.group = w->group, .part = part};
    return m->n_buckets++;
}

/* Any cut of the elements will do: one behind the other. */
static void lay_flat(model_weight **w, int32_t n, opt_bucket *b, int64_t ranks)
{
    int64_t at = 0;

    for (int32_t i = 0; i < n; i++) {
        w[i]->offset = at;
        at += filled(w[i]->pub.count);
    }
    b->share = filled((at + ranks - 1) / ranks);
}

static int larger_first(const void *a, const void *b)
{
    const model_weight *x = *(model_weight *const *)a, *y = *(model_weight *const *)b;

    if (x->pub.count != y->pub.count) return x->pub.count > y->pub.count ? -1 : 1;
    return strcmp(x->pub.path, y->pub.path);
}

/* The larger a weight, the earlier it is given away, to the rank that has least so far. load: [ranks], zeros. */
static void lay_matrices(model_weight **w, int32_t n, opt_bucket *b, int64_t ranks, int64_t *load)
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
        if (load[r] > b->share) b->share = load[r];
    for (int32_t i = 0; i < n; i++) w[i]->offset += w[i]->owner * b->share;
}

static int cut_bucket(st_model *m, int32_t bucket, model_weight **members)
{
    opt_bucket *b = &m->buckets[bucket];
    int64_t ranks = owners(m), *load = ST_NEW_N(m->arena, int64_t, ranks);
    int32_t n = 0;

    if (!load) return ST_E_NOMEM;
    for (int32_t i = 0; i < m->n_weights; i++)
        if (m->weights[i]->bucket == bucket) members[n++] = m->weights[i];
    if (m->groups[b->group].class_.place == ST_PLACE_MATRIX) lay_matrices(members, n, b, ranks, load);
    else lay_flat(members, n, b, ranks);
    b->first = owners(m) > 1 ? m->mesh.data.rank * b->share : 0;
    b->count = ranks * b->share;
    return ST_OK;
}

int model_make_buckets(st_model *m)
{
    model_weight **members = ST_NEW_N(m->arena, model_weight *, m->n_weights);

    if (!members) return ST_E_NOMEM;
    for (int32_t i = 0; i < m->n_weights; i++) {
        model_weight *w = m->weights[i];
        if (w->group >= 0 && (w->bucket = bucket_of(m, w)) < 0) return ST_E_NOMEM;
    }
    for (int32_t i = 0; i < m->n_buckets; i++) ST_TRY(cut_bucket(m, i, members));
    return ST_OK;
}

bool model_updates(const st_model *m, const model_weight *w)
{
    const opt_bucket *b = &m->buckets[w->bucket];

    return w->offset >= b->first && w->offset < b->first + b->share;
}

/* ---- around a layer ---- */

int model_open_part(st_model *m, const model_part *p, int backward)
{
    st_step *s = &m->run.s;

    for (int32_t i = 0; i < m->n_buckets && s->status == ST_OK; i++) {
        opt_bucket *b = &m->buckets[i];
        int32_t dtype = m->groups[b->group].dtype;
        if (b->part != p) continue;
        if (model_gathers(m, b)) {
            st_tensor all = model_flat(model_scratch(m, dtype, b->count, 1).data, dtype, b->count);
            model_collect(s, ST_ALL_GATHER, ST_G_DATA, &b->unit.weight, &all);
            b->weights = all.data;
        }
        if (backward) {
            b->grads = model_scratch(m, m->acc_dtype, b->count, 1).data;
            model_zero(m, b->grads, (size_t)b->count * st_dtype_size(m->acc_dtype));
        }
    }
    return s->status;
}

/* Adding up is no work of the model's: FLOPs are the same at every level. */
int model_close_part(st_model *m, const model_part *p)
{
    st_step *s = &m->run.s;
    int32_t muted = m->run.now.muted;

    m->run.now.muted = 1;
    for (int32_t i = 0; i < m->n_buckets; i++) {
        opt_bucket *b = &m->buckets[i];
        if (b->part != p) continue;
        if (b->grads && s->status == ST_OK) { /* in place: the sum lies where the share does */
            size_t first = (size_t)b->first * st_dtype_size(m->acc_dtype);
            st_tensor all = model_flat(b->grads, m->acc_dtype, b->count),
                      mine = model_flat(b->grads + first, m->acc_dtype, b->share);
            model_collect(s, ST_REDUCE_SCATTER, ST_G_DATA, &all, &mine);
            ST_OP(s, add, 1.0, &b->unit.grad, 1.0, &mine, &b->unit.grad);
        }
        b->grads = b->weights = NULL;
    }
    m->run.now.muted = muted;
    return s->status;
}

/* ---- at the end of a step ---- */

int model_sum_gradients(st_model *m)
{
    st_step *s = &m->run.s;

    for (int32_t i = 0; i < m->n_buckets && m->mesh.data.size > 1; i++) {
        const opt_bucket *b = &m->buckets[i];
        st_tensor all = model_flat(m->grad_block.base + b->grad_at, m->acc_dtype, b->count);
        if (b->part) continue;
        if (owners(m) > 1) model_collect(s, ST_REDUCE_SCATTER, ST_G_DATA, &all, &b->unit.grad);
        else model_collect(s, ST_ALL_REDUCE, ST_G_DATA, &all, &all);
    }
    return s->status;
}

/* Sums of squares of shares make those of all. */
int model_sum_squares(st_model *m)
{
    st_tensor cells = model_cell(m, m->sumsq_at, m->n_buckets);

    return owners(m) > 1 ? model_collect(&m->run.s, ST_ALL_REDUCE, ST_G_DATA, &cells, &cells) : m->run.s.status;
}

int model_gather_weights(st_model *m)
{
    st_step *s = &m->run.s;

    for (int32_t i = 0; i < m->n_buckets && owners(m) > 1; i++) {
        const opt_bucket *b = &m->buckets[i];
        int32_t dtype = m->groups[b->group].dtype;
        st_tensor all = model_flat(m->weight_block.base + b->at, dtype, b->count);
        if (!model_gathers(m, b)) model_collect(s, ST_ALL_GATHER, ST_G_DATA, &b->unit.weight, &all);
    }
    return s->status;
}
