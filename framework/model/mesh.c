/* SPDX-License-Identifier: Apache-2.0 */
/* model/mesh.c - how many ranks share a run, who is made for that, and what the host itself does not cut. */
#include "model/private.h"

/* A run has the ranks that its transport joins, which is asked when all parts have looked at the mesh. A plan is made
 * for a number of ranks. */
int model_take_mesh(st_model *m, st_diags *d)
{
    const parallel_keys *k = &m->parallel;
    int64_t rows = m->batch_keys.rows, media = k->context * k->tensor;
    const char *key = m->ranks % media == 0 ? "expert" : k->tensor > 1 ? "tensor" : "context";
    st_error e = {0};
    st_mesh cut;

    if (!m->ranks) {
        m->mesh.tensor.size = (int32_t)k->tensor;
        m->mesh.context.size = (int32_t)k->context;
        m->mesh.expert.size = (int32_t)k->expert;
        return ST_OK;
    }
    if (st_mesh_cut(m->ranks, k->context, k->tensor, k->expert, &cut, &e) != ST_OK)
        return st_spec_fail_key(m->spec, d, "parallel", key, "another number of ranks, or other keys of [parallel]",
                                "%s", e.message);
    if (rows % cut.data.size)
        return st_spec_fail_key(m->spec, d, "batch", "rows",
                                st_arena_printf(m->arena, "--set batch.rows=%d, or another multiple: every rank takes as "
                                                "many rows of a step", cut.data.size),
                                "rows = %lld do not divide over the %d ranks of group data", (long long)rows,
                                cut.data.size);
    m->mesh = cut;
    return ST_OK;
}

/* ---- who is made for it ---- */

static bool cuts_by_experts(const model_weight *w)
{
    for (int i = 0; i < w->pub.nd; i++)
        if (w->decl.cut[i] == ST_G_EXPERT) return true;
    return false;
}

bool model_has_experts(const st_model *m, const st_instance *in)
{
    for (int32_t i = 0; i < m->n_weights; i++)
        if ((!in || m->weights[i]->part->proto == in) && cuts_by_experts(m->weights[i])) return true;
    return false;
}

/* Whoever has no experts sees nothing of a group that divides them. */
static bool concerned(const st_model *m, uint32_t group, const st_instance *in)
{
    return in->plugin && (group != ST_G_EXPERT || model_has_experts(m, in));
}

/* "attention of [layer.*], lm of [head.lm]"; NULL: all are made for it. */
static const char *who_lacks(const st_model *m, uint32_t group, const char **cap)
{
    const st_instance *all[4 + 128 + MODEL_HEADS] = {&m->position, &m->encoder, &m->optimizer, &m->comm};
    const char *text = NULL, *lacks;
    int n = 4;

    for (int i = 0; i < 128; i++)
        if (m->symbols[i]) all[n++] = m->symbols[i];
    for (int i = 0; i < m->n_heads; i++) all[n++] = &m->heads[i];
    for (int i = 0; i < n; i++) {
        if (!concerned(m, group, all[i])) continue;
        lacks = st_mesh_lacks(&m->mesh, group, all[i]->plugin);
        if (!lacks) continue;
        *cap = lacks;
        text = st_arena_printf(m->arena, "%s%s%s of [%s]", text ? text : "", text ? ", " : "", all[i]->plugin->name,
                               all[i]->section);
    }
    return text;
}

int model_check_mesh(st_model *m, st_diags *d)
{
    static const struct {
        uint32_t group;
        const char *key, *host;
    } axes[] = {{ST_G_TENSOR, "tensor", "cuts neither weights nor the residual stream over group tensor"},
                {ST_G_CONTEXT, "context", "does not cut rows over group context"},
                {ST_G_EXPERT, "expert", "does not cut weights over group expert"}};
    int first = ST_OK;

    for (size_t i = 0; i < ST_COUNT(axes); i++) {
        const char *cap = NULL, *who = who_lacks(m, axes[i].group, &cap), *key = axes[i].key;
        int32_t ranks = st_mesh_size(&m->mesh, axes[i].group);
        int rc = ST_OK;
        if (who)
            rc = st_spec_fail_key(m->spec, d, "parallel", key, "leave it at 1, or take other plugins",
                                  "[parallel] %s = %d: %s lacked by %s", key, ranks, cap, who);
        else if (ranks > 1)
            rc = st_spec_fail_key(m->spec, d, "parallel", key, "leave it at 1", "[parallel] %s = %d: the host %s", key,
                                  ranks, axes[i].host);
        if (first == ST_OK) first = rc;
    }
    return first;
}

const st_mesh *st_model_mesh(const st_model *m) { return &m->mesh; }
