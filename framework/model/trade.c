/* SPDX-License-Identifier: Apache-2.0 */
/* model/trade.c - memory against time: the step planned again with every choice of [recompute]. */
#include "model/private.h"
#include <string.h>

typedef struct trades {
    st_trade *list;
    int32_t n, cap;
    char *all; /* slots of all layers that can be dropped, as the key takes them */
} trades;

static bool same_words(const char *a, const char *b) { return !strcmp(a ? a : "", b ? b : ""); }

static bool listed(const trades *t, const char *full, const char *drop)
{
    for (int32_t i = 0; i < t->n; i++)
        if (same_words(t->list[i].full, full) && same_words(t->list[i].drop, drop)) return true;
    return false;
}

static int add(st_model *m, trades *t, const char *full, const char *drop)
{
    if (listed(t, full, drop)) return ST_OK;
    if (!model_grow(m->arena, &t->list, t->n, &t->cap, sizeof *t->list)) return ST_E_NOMEM;
    t->list[t->n++] = (st_trade){.full = full, .drop = drop};
    return ST_OK;
}

static int add_symbols(st_model *m, trades *t)
{
    for (int32_t i = 0; i < m->n_parts; i++) {
        const model_part *p = m->parts[i];
        const char *symbol;
        if (p->kind != ST_KIND_LAYER) continue;
        symbol = st_arena_printf(m->arena, "%c", p->proto->symbol);
        if (!symbol) return ST_E_NOMEM;
        ST_TRY(add(m, t, symbol, NULL));
    }
    return ST_OK;
}

static int add_slots(st_model *m, trades *t)
{
    for (int32_t i = 0; i < m->n_parts; i++) {
        const model_part *p = m->parts[i];
        char name[2] = {p->kind == ST_KIND_LAYER ? p->proto->symbol : 0, 0};
        for (int32_t k = 0; k < p->n_slots; k++) {
            char *word;
            if (!(p->slots[k].flags & ST_DROP) || (!name[0] && p->kind != ST_KIND_ENCODER)) continue;
            word = st_arena_printf(m->arena, "%s.%s", name[0] ? name : "encoder", p->slots[k].name);
            if (!word) return ST_E_NOMEM;
            if (listed(t, "none", word)) continue;
            ST_TRY(add(m, t, "none", word));
            t->all = st_arena_printf(m->arena, t->all ? "%s,%s" : "%s%s", t->all ? t->all : "", word);
            if (!t->all) return ST_E_NOMEM;
        }
    }
    return t->all ? add(m, t, "none", t->all) : ST_OK;
}

static int list_choices(st_model *m, trades *t)
{
    ST_TRY(add(m, t, "none", NULL));
    ST_TRY(add(m, t, "all", NULL));
    ST_TRY(add_symbols(m, t));
    ST_TRY(add_slots(m, t));
    ST_TRY(add(m, t, m->recompute.full, m->recompute.drop));
    for (int32_t i = 0; i < t->n; i++)
        t->list[i].own = same_words(t->list[i].full, m->recompute.full) && same_words(t->list[i].drop, m->recompute.drop);
    return ST_OK;
}

static int try_choice(st_model *m, st_trade *t, st_error *e)
{
    st_diags none = {0};

    if (model_set_recompute(m, &(recompute_keys){t->full, t->drop}, &none) != ST_OK)
        return st_fail(e, ST_E_INTERNAL, "[recompute] full = %s, drop = %s cannot be set", t->full,
                       t->drop ? t->drop : "");
    ST_TRY(model_plan_trial(m, e));
    t->kept = m->keep.high;
    t->scratch = m->scratch.high;
    t->flops = m->trial_flops;
    t->launches = m->trial_launches;
    return ST_OK;
}

/* Slots that no layer uses as it is configured are not told; the first choice and the own one are. */
static int32_t leave_out_idle(st_trade *t, int32_t n)
{
    int32_t left = 0;

    for (int32_t i = 0; i < n; i++)
        if (!i || t[i].own || t[i].kept != t[0].kept || t[i].launches != t[0].launches) t[left++] = t[i];
    return left;
}

int st_model_trades(st_model *m, const st_trade **out, st_error *e)
{
    trades t = {0};
    st_diags none = {0};
    int rc = ST_OK;

    if (!m->train || !m->planned || m->opened)
        return st_fail(e, ST_E_INTERNAL, "the model is not one that is only planned");
    if (list_choices(m, &t) != ST_OK) return st_fail(e, ST_E_NOMEM, "no memory for choices of [recompute]");
    for (int32_t i = 0; i < t.n && rc == ST_OK; i++) rc = try_choice(m, &t.list[i], e);
    model_set_recompute(m, &m->recompute, &none);
    *out = t.list;
    return rc == ST_OK ? leave_out_idle(t.list, t.n) : rc;
}
