/* SPDX-License-Identifier: Apache-2.0 */
/* model/optim.c - what is trained, how: [part.NAME], decay by path, groups of weights that one update treats alike. */
#include "model/private.h"
#include <math.h>
#include <string.h>

/* ---- [part.NAME] ---- */

static char *part_names(const st_model *m)
{
    char *text = NULL;
    for (int32_t i = 0; i < m->n_weights; i++) {
        int32_t seen = 0;
        for (int32_t k = 0; k < i && !seen; k++) seen = !strcmp(m->weights[k]->pub.part, m->weights[i]->pub.part);
        if (!seen)
            text = st_arena_printf(m->arena, text ? "%s, %s" : "%s%s", text ? text : "", m->weights[i]->pub.part);
    }
    return text;
}

/* The stack whose blocks a part counts: the trunk for the language, the encoder's for its own part. */
static model_stack *stack_of_part(const st_model *m, const char *part)
{
    for (int32_t i = 0; i < m->n_stacks; i++)
        if (!strcmp(m->stacks[i]->owner->trains_as, part)) return m->stacks[i];
    return NULL;
}

static int32_t blocks_of(const model_stack *st) { return st->n ? st->layers[st->n - 1]->block + 1 : 0; }

/* Below the last k blocks: earlier blocks and what feeds the stack. */
static bool below(const st_model *m, const model_weight *w, const model_stack *st, int64_t k)
{
    if (w->part->stack == st) return w->part->block < blocks_of(st) - k;
    if (st == m->trunk) return w == m->weights[m->embed] || w->part == m->position_part;
    return w->part == st->owner;
}

static int apply_part(st_model *m, const char *section, st_diags *d)
{
    const char *name = section + 5;
    part_keys k = {0};
    model_stack *st = stack_of_part(m, name);
    int32_t seen = 0;

    ST_TRY(model_bind_part(m, section, &k, d));
    if (k.last_blocks != ST_UNSET_INT && !st)
        return st_spec_fail(m->spec, d, st_spec_get(m->spec, section, "last_blocks"), NULL,
                            "last_blocks: part %s has no blocks", name);
    if (k.last_blocks != ST_UNSET_INT && k.last_blocks > blocks_of(st))
        return st_spec_fail(m->spec, d, st_spec_get(m->spec, section, "last_blocks"), NULL,
                            "last_blocks = %lld: part %s has %d", (long long)k.last_blocks, name, blocks_of(st));
    for (int32_t i = 0; i < m->n_weights; i++) {
        model_weight *w = m->weights[i];
        if (strcmp(w->pub.part, name)) continue;
        seen = 1;
        w->pub.lr_scale = k.lr_scale;
        w->pub.frozen = k.freeze || (k.last_blocks != ST_UNSET_INT && below(m, w, st, k.last_blocks));
    }
    if (seen) return ST_OK;
    return st_spec_fail_section(m->spec, d, section,
                                st_arena_printf(m->arena, "parts of this model: %s", part_names(m)),
                                "no weight belongs to the part '%s'", name);
}

/* An encoder's own part feeds its blocks; parts with a name of their own (merger) come behind them. */
static bool feeds_stack(const model_weight *w, const model_stack *st)
{
    return w->part == st->owner && w->trains && !strcmp(w->pub.part, st->owner->trains_as);
}

/* What must run backward: the lowest trained layer of every stack, and whether anything feeds it. */
static void find_lowest(st_model *m)
{
    for (int32_t i = 0; i < m->n_weights; i++) {
        model_weight *w = m->weights[i];
        if (!w->trains) continue;
        w->part->trained = 1;
        if (w->part->kind == ST_KIND_ENCODER || (w->part->stack && w->part->stack->owner->kind == ST_KIND_ENCODER))
            m->encoder_trained = 1;
    }
    m->embed_input =
        m->weights[m->embed]->trains || m->encoder_trained || (m->position_part && m->position_part->trained);
    for (int32_t i = 0; i < m->n_stacks; i++) {
        model_stack *st = m->stacks[i];
        st->input = st == m->trunk ? m->embed_input : st->owner->kind == ST_KIND_HEAD;
        for (int32_t k = 0; st->owner->kind == ST_KIND_ENCODER && k < m->n_weights; k++)
            if (feeds_stack(m->weights[k], st)) st->input = 1;
        st->first = st->input ? 0 : st->n;
        for (int32_t k = st->n; !st->input && k-- > 0;)
            if (st->layers[k]->trained) st->first = k;
    }
}

/* A pattern of a list that means no weight is a slip, as in [init.rules]; the caret stands below it. */
static int check_listed(st_model *m, const char *key, const char *list, st_diags *d)
{
    int first = ST_OK;

    for (const char *at = list; at && *at;) {
        size_t n = strcspn(at, ", \t");
        const char *word = st_arena_strndup(m->arena, at, n);
        st_error e = {0};
        int32_t i = 0;
        while (n && i < m->n_weights && !model_listed(word, m->weights[i]->pub.path, m->weights[i]->name)) i++;
        if (n && i == m->n_weights) {
            st_fail(&e, ST_E_CONFIG, "%s: no weight has the name or path '%s'", key, word);
            st_error_hint(&e, "with a dot: the whole path (layers.*.conv); without: the weight's name (conv)");
            e.column = (int32_t)(at - list) + 1;
            first = st_spec_fail_inside(m->spec, d, st_spec_get(m->spec, "optimizer", key), &e);
        }
        at += n + (at[n] != 0);
    }
    return first;
}

int model_assign_parts(st_model *m, st_diags *d)
{
    const char *const *names;
    int n = st_spec_sections(m->spec, &names), first = ST_OK;

    if (check_listed(m, "decay", m->decay.decay, d) != ST_OK) first = ST_E_CONFIG;
    if (check_listed(m, "no_decay", m->decay.no_decay, d) != ST_OK) first = ST_E_CONFIG;
    for (int i = 0; i < n; i++)
        if (!strncmp(names[i], "part.", 5)) {
            int rc = apply_part(m, names[i], d);
            if (rc != ST_OK && first == ST_OK) first = rc;
        }
    for (int32_t i = 0; i < m->n_weights; i++) {
        model_weight *w = m->weights[i];
        int decays = w->pub.nd >= 2 && !(w->pub.flags & ST_W_NO_DECAY);
        w->trains = m->train && !w->pub.frozen && !(w->pub.flags & (ST_W_CONST | ST_W_STATE));
        if (model_listed(m->decay.decay, w->pub.path, w->name)) decays = 1;
        if (model_listed(m->decay.no_decay, w->pub.path, w->name)) decays = 0;
        w->pub.decay = w->trains && decays ? m->decay.weight_decay : 0;
    }
    find_lowest(m);
    return first;
}

/* ---- groups ---- */

static bool same_class(const st_opt_class *a, const st_opt_class *b)
{
    if (a->rule != b->rule || a->place != b->place || a->n_state != b->n_state || a->no_master != b->no_master)
        return false;
    for (int i = 0; i < a->n_state; i++)
        if (a->state[i].dtype != b->state[i].dtype || a->state[i].like != b->state[i].like ||
            strcmp(a->state[i].name, b->state[i].name))
            return false;
    return true;
}

static int32_t group_of(st_model *m, const model_weight *w, const st_opt_class *c)
{
    opt_group *g;

    for (int32_t i = 0; i < m->n_groups; i++) {
        g = &m->groups[i];
        if (same_class(&g->class_, c) && g->dtype == w->pub.dtype && g->decay == w->pub.decay &&
            g->lr_scale == w->pub.lr_scale)
            return i;
    }
    if (!model_grow(m->arena, &m->groups, m->n_groups, &m->cap_groups, sizeof *m->groups)) return -1;
    g = &m->groups[m->n_groups];
    g->class_ = *c;
    g->decay = w->pub.decay;
    g->lr_scale = w->pub.lr_scale;
    g->dtype = w->pub.dtype;
    return m->n_groups++;
}

static int ask(st_model *m, const model_weight *w, int32_t section, st_opt_class *c, int32_t *sections, st_diags *d)
{
    const char *name = m->optimizer.plugin->name;
    st_weight_info info;

    *sections = model_weight_infos(w, section, &info);
    *c = (st_opt_class){.size = sizeof *c};
    if (m->optimizer_ops.classify(m->optimizer.self, &info, c) != ST_OK)
        return st_spec_fail_section(m->spec, d, "optimizer", NULL, "optimizer %s refused weight %s", name, w->pub.path);
    if (c->place != ST_PLACE_FLAT && c->place != ST_PLACE_MATRIX)
        return st_spec_fail_section(m->spec, d, "optimizer", NULL, "optimizer %s: weight %s lies in a way %u", name,
                                    w->pub.path, c->place);
    if (c->n_state < 0 || c->n_state > 4)
        return st_spec_fail_section(m->spec, d, "optimizer", NULL, "optimizer %s: %d states for weight %s", name,
                                    c->n_state, w->pub.path);
    for (int i = 0; i < c->n_state; i++)
        if (c->state[i].like != ST_LIKE_WEIGHT || !st_dtype_size(c->state[i].dtype))
            return st_spec_fail_section(m->spec, d, "optimizer", NULL,
                                        "optimizer %s: state %s of weight %s has not the weight's shape", name,
                                        c->state[i].name, w->pub.path);
    return ST_OK;
}

/* Of a weight that is taken as matrices each section is asked about: they share its states, so they are treated alike. */
static int classify(st_model *m, model_weight *w, st_diags *d)
{
    const char *name = m->optimizer.plugin->name;
    st_opt_class c, other;
    int32_t n;

    ST_TRY(ask(m, w, -1, &c, &n, d));
    if (c.place == ST_PLACE_MATRIX && w->pub.nd < 2)
        return st_spec_fail_section(m->spec, d, "optimizer", NULL, "optimizer %s wants a matrix: weight %s is a vector",
                                    name, w->pub.path);
    for (int32_t i = 0; c.place == ST_PLACE_MATRIX && i < n; i++) {
        ST_TRY(ask(m, w, i, &other, &n, d));
        if (!same_class(&c, &other))
            return st_spec_fail_section(m->spec, d, "optimizer", NULL,
                                        "optimizer %s treats section %s of weight %s unlike the others", name,
                                        w->pub.n_sec > 0 ? w->pub.sec[i].name : "", w->pub.path);
    }
    w->group = group_of(m, w, &c);
    return w->group < 0 ? ST_E_NOMEM : ST_OK;
}

/* What is kept in less than is usual is told beside the type of the run. */
static int tell_narrow(st_model *m)
{
    bool moments = false, masters = false;

    for (int32_t i = 0; i < m->n_groups; i++) {
        const opt_group *g = &m->groups[i];
        for (int s = 0; s < g->class_.n_state; s++) moments |= g->class_.state[s].dtype == ST_BF16;
        masters |= g->dtype != m->acc_dtype && g->class_.no_master;
    }
    m->choice = st_arena_printf(m->arena, "%s%s%s", m->choice, moments ? ", moments in bf16" : "",
                                masters ? ", no masters" : "");
    return m->choice ? ST_OK : ST_E_NOMEM;
}

int model_classify(st_model *m, st_diags *d)
{
    if (!m->train) return ST_OK;
    for (int32_t i = 0; i < m->n_weights; i++)
        if (m->weights[i]->trains) ST_TRY(classify(m, m->weights[i], d));
    if (m->n_groups) return tell_narrow(m);
    return st_spec_fail_section(m->spec, d, "optimizer", "unfreeze a part", "nothing is trained: every part is frozen");
}

/* ---- hyper-parameters of a step ---- */

static int group_hyper(st_model *m, const opt_group *g, const st_schedule *at, st_error *e)
{
    double value[64];
    st_schedule s = {sizeof s, 0, at->step, at->lr, g->decay, g->lr_scale};
    int32_t n = m->optimizer_ops.n_hyper;
    int rc = m->optimizer_ops.hyper(m->optimizer.self, g->class_.rule, &s, value);

    if (rc != ST_OK)
        return st_fail(e, rc, "optimizer %s: no hyper-parameters for step %lld", m->optimizer.plugin->name,
                       (long long)at->step);
    return model_write_cells(m, g->hyper_at, n, value, e);
}

int model_hyper(st_model *m, const st_schedule *at, st_error *e)
{
    for (int32_t i = 0; i < m->n_groups; i++) ST_TRY(group_hyper(m, &m->groups[i], at, e));
    return ST_OK;
}
