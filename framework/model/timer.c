/* SPDX-License-Identifier: Apache-2.0 */
/* model/timer.c - time of launches by events of the device, so that work which is only enqueued is timed where it
 * runs. Pairs of events are used again: when all are taken the device is waited for. */
#include "model/private.h"
#include <string.h>

enum { TIMERS = 1024, PLACES = 64 /* of one part and name in a pass; those behind it share the last */ };
struct model_timer {
    st_event *from, *to;
    const char *name;
    const model_part *part;
    int64_t pass;
    double flops, bytes;
};
struct model_place { const model_part *part; int64_t pass; /* that it was met in last */ };

/* What counts as a matrix product: the ops that are one, or are made of them. */
bool model_is_product(const char *launch)
{
    static const char *const names[] = {"linear", "linear_dx", "linear_dw",     "gemm",               "grouped",
                                        "xent",   "attention", "attention_bwd", "attention_gated_bwd"};
    for (size_t i = 0; launch && i < ST_COUNT(names); i++)
        if (!strcmp(launch, names[i])) return true;
    return false;
}

/* ---- names ---- */

int model_note_launch(st_model *m, const char *name)
{
    for (int32_t i = 0; i < m->n_launches; i++)
        if (m->launches[i] == name || !strcmp(m->launches[i], name)) return ST_OK;
    if (!model_grow(m->arena, &m->launches, m->n_launches, &m->cap_launches, sizeof *m->launches))
        return model_fail(m, ST_E_NOMEM, "no memory for the names of launches");
    m->launches[m->n_launches++] = name;
    return ST_OK;
}

const char *st_model_launch(const st_model *m, int i) { return i >= 0 && i < m->n_launches ? m->launches[i] : NULL; }

/* ---- places ---- */

static int32_t add_place(st_model *m, const struct model_timer *t)
{
    const model_part *p = t->part;

    if (!model_grow(m->arena, &m->times, m->n_times, &m->cap_times, sizeof *m->times) ||
        !model_grow(m->arena, &m->places, m->n_times, &m->cap_places, sizeof *m->places))
        return -1;
    m->times[m->n_times] = (st_op_time){.name = t->name,
                                        .path = p->path,
                                        .symbol = p->kind == ST_KIND_LAYER ? p->proto->symbol : 0,
                                        .product = model_is_product(t->name)};
    m->places[m->n_times] = (struct model_place){p, t->pass};
    return m->n_times++;
}

/* Every pass makes the same launches in the same order, so the next one is looked for behind the last. */
static int32_t place_of(st_model *m, const struct model_timer *t)
{
    int32_t met = 0, last = -1;

    for (int32_t k = 0; k < m->n_times && met < PLACES; k++) {
        int32_t i = (m->next_time + k) % m->n_times;
        if (m->places[i].part != t->part || strcmp(m->times[i].name, t->name) != 0) continue;
        last = i;
        if (m->places[i].pass != t->pass) break;
        met++;
    }
    if (last < 0 || (m->places[last].pass == t->pass && met < PLACES)) last = add_place(m, t);
    if (last >= 0) m->places[last].pass = t->pass;
    m->next_time = last + 1;
    return last;
}

static int add_times(st_model *m)
{
    for (int32_t i = 0; i < m->n_timers; i++) {
        const struct model_timer *t = &m->timers[i];
        double ms = 0;
        int32_t at = place_of(m, t);
        if (at < 0 || m->be.elapsed(t->from, t->to, &ms) != ST_OK)
            return model_fail(m, ST_E_DEVICE, "the time of %s cannot be read", t->name);
        m->times[at].seconds += 1e-3 * ms;
        m->times[at].flops += t->flops;
        m->times[at].bytes += t->bytes;
        m->times[at].calls++;
    }
    m->n_timers = 0;
    return ST_OK;
}

/* ---- timers ---- */

/* Adds up what has run; the device is waited for. */
int model_timers_end(st_model *m)
{
    st_error e = {0};

    if (!m->n_timers) return ST_OK;
    if (m->be.sync(m->device, &e) != ST_OK) return model_fail(m, ST_E_DEVICE, "%s", e.message);
    return add_times(m);
}

static int make_timers(st_model *m)
{
    m->timers = ST_NEW_N(m->arena, struct model_timer, TIMERS);
    if (!m->timers) return model_fail(m, ST_E_NOMEM, "no memory for timers");
    for (int i = 0; i < TIMERS; i++)
        if (m->be.event(m->device, &m->timers[i].from) != ST_OK || m->be.event(m->device, &m->timers[i].to) != ST_OK)
            return model_fail(m, ST_E_DEVICE, "no event to time launches with");
    return ST_OK;
}

int model_timer_begin(st_model *m, const char *name)
{
    struct model_timer *t;

    if (!m->timers) ST_TRY(make_timers(m));
    if (m->n_timers == TIMERS) ST_TRY(model_timers_end(m));
    t = &m->timers[m->n_timers];
    t->name = name;
    t->part = m->run.now.part ? m->run.now.part : m->host;
    t->pass = m->pass;
    t->flops = t->bytes = 0;
    return m->be.record(m->run.s.q, t->from) == ST_OK ? ST_OK
                                                      : model_fail(m, ST_E_DEVICE, "the start of %s was not timed", name);
}

void model_timer_work(st_model *m, double flops, double bytes)
{
    m->timers[m->n_timers].flops += flops;
    m->timers[m->n_timers].bytes += bytes;
}

int model_timer_end(st_model *m)
{
    struct model_timer *t = &m->timers[m->n_timers++];

    return m->be.record(m->run.s.q, t->to) == ST_OK ? ST_OK
                                                    : model_fail(m, ST_E_DEVICE, "the end of %s was not timed", t->name);
}

void st_model_profile(st_model *m, int on)
{
    if (on) m->n_timers = 0;
    for (int32_t i = 0; on && !m->profile && i < m->n_times; i++) {
        st_op_time *t = &m->times[i];
        t->seconds = t->flops = t->bytes = 0;
        t->calls = 0;
    }
    m->profile = on;
}

int st_model_times(st_model *m, const st_op_time **out)
{
    model_timers_end(m);
    *out = m->times;
    return m->n_times;
}
