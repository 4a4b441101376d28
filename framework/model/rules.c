/* SPDX-License-Identifier: Apache-2.0 */
/* model/rules.c - what would train another model than the spec seems to say: keys of other trainers, rules of a model
 * family, ranks that nobody can use. docs/rules.md lists every rule with its message. */
#include "model/private.h"
#include <string.h>

/* ---- keys that other trainers know ---- */

/* The pattern is the architecture: such a key would be a second source of it, and one of the two would win. */
int model_check_keys(st_model *m, st_diags *d)
{
    static const struct {
        const char *key, *hint;
    } stale[] = {
        {"num_layers", "pattern has one symbol per layer; blocks counts pairs of a mixer and a per-token layer"},
        {"linear_attention_freq", "cadence: with blocks, every so many blocks the mixer is `full`"},
        {"moe_layer_freq", "mlp: with blocks, the symbol of the per-token layer, such as E"},
        {"mtp_num_layers", "mtp_depths: with blocks, copies of the last block; in a pattern, what follows each '/'"},
    };
    const st_value *const *given;
    int n = st_spec_has(m->spec, "stack") ? st_spec_values(m->spec, "stack", &given) : 0, first = ST_OK;

    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < ST_COUNT(stale); k++) {
            if (strcmp(given[i]->key, stale[k].key)) continue;
            (void)st_spec_get(m->spec, "stack", stale[k].key); /* known now: told once */
            first = st_spec_fail(m->spec, d, given[i], stale[k].hint,
                                 "[stack] %s = %.80s: layers are told by pattern or by blocks alone", stale[k].key,
                                 given[i]->text);
        }
    return first;
}

/* ---- the family ---- */

/* Pictures need a row and a column beside the time. */
static int check_family_position(st_model *m, st_diags *d)
{
    const st_value *plugin = st_spec_get(m->spec, "position", "plugin");
    const char *hint = "[position] plugin = mrope";

    if (m->position.plugin && m->position_ops.axes == 3) return ST_OK;
    if (!st_spec_has(m->spec, "position"))
        return st_spec_fail_key(m->spec, d, "stack", "family", hint,
                                "family = qwen3.5 needs a position of 3 axes, but there is no [position]");
    if (!m->position.plugin) return ST_E_CONFIG; /* told already */
    return st_spec_fail(m->spec, d, plugin, hint, "family = qwen3.5 needs a position of 3 axes: %s has %d",
                        m->position.plugin->name, m->position_ops.axes);
}

/* A depth of the family's files has full attention, whatever the trunk's last block does. */
static bool is_named_attention(const model_part *p)
{
    for (int32_t i = 0; i < p->n_maps; i++)
        if (!strcmp(p->maps[i].layout, "hf") && !strncmp(p->maps[i].file, "self_attn.", 10)) return true;
    return false;
}

static int check_family_depth(st_model *m, const model_stack *st, st_diags *d)
{
    const st_value *at = st_spec_get(m->spec, "stack", "pattern");
    st_error e = {0};

    for (int32_t i = 0; i < st->n; i++) {
        const model_part *p = st->layers[i];
        if (!p || p->layer.role == ST_ROLE_CHANNEL || is_named_attention(p)) continue;
        st_fail(&e, ST_E_CONFIG, "'%c' of depth %d is %s: depths of family = qwen3.5 have attention", st->symbols[i],
                st->part, p->proto->plugin->name);
        st_error_hint(&e, "write the depth as /*- or /*E, or leave family out");
        e.column = m->parts_of_pattern.depth[st->part - 1].column[i];
        if (at) return st_spec_fail_inside(m->spec, d, at, &e);
        return st_spec_fail_key(m->spec, d, "stack", "mtp_depths", e.hint, "%s", e.message);
    }
    return ST_OK;
}

static int check_family(st_model *m, st_diags *d)
{
    int first = ST_OK;

    if (m->stack_keys.family != FAMILY_QWEN35) return ST_OK;
    first = check_family_position(m, d);
    for (int32_t i = 0; i < m->n_stacks; i++)
        if (m->stacks[i]->part > 0 && check_family_depth(m, m->stacks[i], d) != ST_OK) first = ST_E_CONFIG;
    return first;
}

/* ---- ranks ---- */

static bool any_refused(const st_model *m)
{
    for (size_t i = 0; i < ST_COUNT(m->refused); i++)
        if (m->refused[i]) return true;
    return false;
}

static int refuse_ranks(st_model *m, const char *key, int64_t ranks, const char *hint, const char *why, st_diags *d)
{
    return ranks > 1 && why ? st_spec_fail_key(m->spec, d, "parallel", key, hint, "[parallel] %s = %lld: %s", key,
                                               (long long)ranks, why)
                            : ST_OK;
}

/* A group of more than one rank needs something to cut, and in a run a transport that joins so many. */
static int check_ranks(st_model *m, st_diags *d)
{
    const parallel_keys *k = &m->parallel;
    const char *joins = st_arena_printf(m->arena, "comm %s joins 1 rank", m->comm.plugin->name);
    const char *why = m->ranks ? NULL : joins, *hint = "leave it at 1";
    int rc[4] = {ST_OK, ST_OK, ST_OK, ST_OK};

    if (!joins) return ST_E_NOMEM;
    rc[0] = refuse_ranks(m, "tensor", k->tensor, hint, why, d);
    rc[1] = refuse_ranks(m, "context", k->context, hint, why, d);
    if (!any_refused(m)) /* else the layer with experts may be missing, or has told already that they do not divide */
        rc[2] = refuse_ranks(m, "expert", k->expert, hint,
                             model_has_experts(m, NULL) ? why : "no layer has experts to share out", d);
    rc[3] = refuse_ranks(m, "pipeline", k->pipeline, "cut by tensor, context or expert instead",
                         "stages of a pipeline are not offered: nothing sends between them, no schedule interleaves "
                         "their rows, and no '|' of the pattern is taken",
                         d);
    for (int i = 0; i < 4; i++)
        if (rc[i] != ST_OK) return rc[i];
    return ST_OK;
}

int model_check_rules(st_model *m, st_diags *d)
{
    int rc = check_family(m, d), ranks = m->comm.plugin ? check_ranks(m, d) : ST_OK;
    return rc != ST_OK ? rc : ranks;
}
