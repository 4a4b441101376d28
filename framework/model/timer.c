/* SPDX-License-Identifier: Apache-2.0 */
/* model/timer.c - time of launches by events of the device, so that work which is only enqueued is timed where it
 * runs. Pairs of events are used again: when all are taken the device is waited for. */
#include "model/private.h"
#include <string.h>

enum { TIMERS = 1024 };
struct model_timer { st_event *from, *to; const char *name; };

/* What counts as a matrix product: the ops that are one, or are made of them. */
bool model_is_product(const char *launch)
{
    static const char *const names[] = {"linear",  "linear_dx", "linear_dw", "gemm",
                                        "grouped", "xent",      "attention", "attention_bwd"};
    for (size_t i = 0; launch && i < ST_COUNT(names); i++)
        if (!strcmp(launch, names[i])) return true;
    return false;
}

st_op_time *model_time_of(st_model *m, const char *name)
{
    st_op_time *t;

    for (int32_t i = 0; i < m->n_times; i++)
        if (m->times[i].name == name || !strcmp(m->times[i].name, name)) return &m->times[i];
    m->times = model_grow(m->arena, m->times, m->n_times, &m->cap_times, sizeof *m->times);
    if (!m->times) {
        m->n_times = m->cap_times = 0;
        return NULL;
    }
    t = &m->times[m->n_times++];
    *t = (st_op_time){.name = name, .product = model_is_product(name)};
    return t;
}

static int add_times(st_model *m)
{
    for (int32_t i = 0; i < m->n_timers; i++) {
        st_op_time *t = model_time_of(m, m->timers[i].name);
        double ms = 0;
        if (!t || m->be.elapsed(m->timers[i].from, m->timers[i].to, &ms) != ST_OK)
            return model_fail(m, ST_E_DEVICE, "the time of %s cannot be read", m->timers[i].name);
        t->seconds += 1e-3 * ms;
        t->calls++;
    }
    m->n_timers = 0;
    return ST_OK;
}

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
    return m->be.record(m->run.s.q, t->from) == ST_OK ? ST_OK
                                                      : model_fail(m, ST_E_DEVICE, "the start of %s was not timed", name);
}

int model_timer_end(st_model *m)
{
    struct model_timer *t = &m->timers[m->n_timers++];

    return m->be.record(m->run.s.q, t->to) == ST_OK ? ST_OK
                                                    : model_fail(m, ST_E_DEVICE, "the end of %s was not timed", t->name);
}
