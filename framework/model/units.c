/* SPDX-License-Identifier: Apache-2.0 */
/* model/units.c - what one call of the optimizer updates: flat ranges of weights, or single matrices of their weights.
 * Units are made twice, first over planned addresses, then over real ones. */
#include "model/private.h"
#include <string.h>

st_tensor model_flat(char *at, int32_t dtype, int64_t n)
{
    st_tensor t = st_tensor2(at, dtype, n, 1);
    t.nd = 1;
    return t;
}

/* The share of a bucket, weights side by side with what lies between them. */
static void make_range(st_model *m, opt_bucket *b)
{
    const opt_group *g = &m->groups[b->group];
    size_t first = (size_t)b->first, own = st_dtype_size(g->dtype), acc = st_dtype_size(m->acc_dtype);
    st_opt_unit *u = &b->unit;

    u->size = sizeof *u;
    u->rule = g->class_.rule;
    u->weight = u->master =
        model_flat(m->weight_block.base + b->at + (model_gathers(m, b) ? 0 : first * own), g->dtype, b->share);
    if (model_group_has_masters(m, g))
        u->master = model_flat(m->state_block.base + b->master_at, m->acc_dtype, b->share);
    u->grad = model_flat(m->grad_block.base + b->grad_at + (b->part ? 0 : first * acc), m->acc_dtype, b->share);
    for (int s = 0; s < 4; s++)
        u->state[s] = s < g->class_.n_state
                          ? model_flat(m->state_block.base + b->state_at[s], g->class_.state[s].dtype, b->share)
                          : st_absent();
    u->hyper = model_cell(m, g->hyper_at, m->optimizer_ops.n_hyper);
    u->first = b->first;
}

/* ---- random bits ---- */

/* Which weights lie in a bucket, and in what order, is the same for any number of ranks. */
static const char *first_path(const st_model *m, int32_t bucket)
{
    for (int32_t i = 0; i < m->n_weights; i++)
        if (m->weights[i]->bucket == bucket) return m->weights[i]->pub.path;
    return "";
}

static uint64_t seed_of(uint64_t seed, const char *path, const char *section)
{
    uint64_t stream = st_hash64(path, strlen(path), 0);

    return st_random_u64(seed, st_hash64(section, strlen(section), stream), 0);
}

void st_model_seed(st_model *m, uint64_t seed)
{
    for (int32_t i = 0; i < m->n_buckets; i++) m->buckets[i].unit.seed = seed_of(seed, first_path(m, i), "");
    for (int32_t i = 0; i < m->n_matrices; i++) {
        matrix_unit *x = &m->matrices[i];
        x->unit.seed = seed_of(seed, x->info.path, x->info.section);
    }
}

/* ---- matrices ---- */

/* A weight without sections is one matrix. */
static int32_t sections_of(const model_weight *w) { return w->pub.n_sec > 0 ? w->pub.n_sec : 1; }

int32_t model_weight_infos(const model_weight *w, int32_t section, st_weight_info *out)
{
    *out = (st_weight_info){.size = sizeof *out,
                            .flags = w->pub.flags,
                            .path = w->pub.path,
                            .section = "",
                            .nd = w->pub.nd,
                            .unit = 1,
                            .decay = w->pub.decay,
                            .lr_scale = w->pub.lr_scale};
    memcpy(out->dim, w->pub.dim, sizeof out->dim);
    if (section >= 0 && w->pub.n_sec > 0) {
        out->section = w->pub.sec[section].name;
        out->unit = w->pub.sec[section].unit;
        out->dim[w->pub.sec_dim] = w->pub.sec[section].n;
    }
    return sections_of(w);
}

/* The section's part of a tensor of the whole weight. */
static st_tensor part_of(const model_weight *w, int32_t section, st_tensor t)
{
    int64_t first = 0;

    if (w->pub.n_sec <= 0) return t;
    for (int32_t i = 0; i < section; i++) first += w->pub.sec[i].n;
    t.data = (char *)t.data + (size_t)(first * t.stride[w->pub.sec_dim]) * st_dtype_size(t.dtype);
    t.dim[w->pub.sec_dim] = w->pub.sec[section].n;
    return t;
}

static void make_matrix(st_model *m, const model_weight *w, int32_t section, matrix_unit *out)
{
    const opt_group *g = &m->groups[w->group];
    st_opt_unit *u = &out->unit;

    model_weight_infos(w, section, &out->info);
    *u = (st_opt_unit){
        .size = sizeof *u, .rule = g->class_.rule, .hyper = m->buckets[w->bucket].unit.hyper, .info = &out->info};
    u->weight = part_of(w, section, model_weight_tensor(m, w));
    u->master = part_of(w, section, model_master_tensor(m, w));
    u->grad = part_of(w, section, model_grad_tensor(m, w));
    for (int s = 0; s < 4; s++) {
        st_tensor t = model_weight_tensor(m, w); /* its shape, elsewhere */
        t.dtype = s < g->class_.n_state ? g->class_.state[s].dtype : ST_NONE;
        t.data = m->state_block.base + w->state_at[s];
        u->state[s] = s < g->class_.n_state ? part_of(w, section, t) : st_absent();
    }
}

/* One that this rank updates as a whole. */
static bool is_matrix(const st_model *m, const model_weight *w)
{
    return w->group >= 0 && m->groups[w->group].class_.place == ST_PLACE_MATRIX && model_updates(m, w);
}

static bool is_flat(const st_model *m, const opt_bucket *b)
{
    return m->groups[b->group].class_.place == ST_PLACE_FLAT;
}

static int32_t count_units(const st_model *m)
{
    int32_t n = 0;

    for (int32_t i = 0; i < m->n_buckets; i++) n += is_flat(m, &m->buckets[i]);
    for (int32_t i = 0; i < m->n_weights; i++) {
        const model_weight *w = m->weights[i];
        if (is_matrix(m, w)) n += sections_of(w);
    }
    return n;
}

int model_make_units(st_model *m)
{
    int32_t n = 0, k = 0;

    if (!m->units) {
        m->n_units = count_units(m);
        m->units = ST_NEW_N(m->arena, const st_opt_unit *, m->n_units ? m->n_units : 1);
        m->matrices = ST_NEW_N(m->arena, matrix_unit, m->n_units ? m->n_units : 1);
    }
    if (!m->units || !m->matrices) return ST_E_NOMEM;
    for (int32_t i = 0; i < m->n_buckets; i++) {
        make_range(m, &m->buckets[i]);
        if (is_flat(m, &m->buckets[i])) m->units[n++] = &m->buckets[i].unit;
    }
    for (int32_t i = 0; i < m->n_weights; i++) {
        const model_weight *w = m->weights[i];
        if (!is_matrix(m, w)) continue;
        for (int32_t s = 0; s < sections_of(w); s++, k++) {
            make_matrix(m, w, s, &m->matrices[k]);
            m->units[n++] = &m->matrices[k].unit;
        }
    }
    m->n_matrices = k;
    return ST_OK;
}
