/* SPDX-License-Identifier: Apache-2.0 */
/* model/ahead.c - rows on their way to a device with memory of its own, at most two at once.
 *
 * A row goes through pinned memory of its own to a landing place on the device, by the lane of transfers, while the
 * main lane computes; from there one copy on the device puts it where every pass reads it. Events order the copies, so
 * the host waits for none of them, and graphs see one address. Pinned memory of a row is written again two rows later.
 */
#include "model/private.h"
#include <time.h>

enum { LANE = ST_LANE_COMM };

static size_t room(const st_model *m) { return model_round(m->row_bytes); }

/* While planning: what the way takes; nothing where the host writes the device's memory itself. */
void model_ahead_layout(st_model *m)
{
    size_t bytes = m->facts.host_memory ? 0 : MODEL_AHEAD * room(m);

    m->ahead.pinned.bytes = m->ahead.landing.bytes = bytes;
}

static int make_events(st_model *m, row_way *w, st_error *e)
{
    if (m->be.event(m->device, &w->landed) == ST_OK && m->be.event(m->device, &w->taken) == ST_OK) return ST_OK;
    return st_fail(e, ST_E_DEVICE, "%s: no event", m->device_words);
}

/* One that no row waits in; of two the one that was used longer ago. */
static int32_t free_way(st_model *m)
{
    int32_t way = m->ahead.next;

    if (m->ahead.way[way].row) way = 1 - way;
    m->ahead.next = 1 - way;
    return way;
}

/* The copy of two rows ago: it has ended long since, unless the device is slower to copy than the host to compute. */
static int wait_landed(st_model *m, const row_way *w, st_error *e)
{
    int done = m->be.done(w->landed);

    while (done == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); /* the core is left to those who load samples */
        done = m->be.done(w->landed);
    }
    return done > 0 ? ST_OK : st_fail(e, ST_E_DEVICE, "a packed row was not copied to the device");
}

static int send(st_model *m, int32_t way, const st_packed_row *p, st_error *e)
{
    const st_queue *q = &m->queues[LANE].q;
    row_way *w = &m->ahead.way[way];
    size_t at = (size_t)way * room(m);

    if (!w->landed) ST_TRY(make_events(m, w, e));
    ST_TRY(wait_landed(m, w, e));
    ST_TRY(model_row_fill(m, p, m->ahead.pinned.base + at, e));
    if (m->be.wait(q, w->taken) != ST_OK ||
        m->be.copy(q, m->ahead.landing.base + at, m->ahead.pinned.base + at, m->row_bytes) != ST_OK ||
        m->be.record(q, w->landed) != ST_OK)
        return st_fail(e, ST_E_DEVICE, "a packed row was not copied to the device");
    w->row = p;
    return ST_OK;
}

int model_row_ahead(st_model *m, const st_packed_row *p, st_error *e)
{ return m->ahead.pinned.bytes ? send(m, free_way(m), p, e) : ST_OK; }

static int32_t way_of(const st_model *m, const st_packed_row *p)
{
    for (int32_t i = 0; i < MODEL_AHEAD; i++)
        if (m->ahead.way[i].row == p) return i;
    return -1;
}

int model_row_arrive(st_model *m, const st_packed_row *p, st_error *e)
{
    const st_queue *q = m->run.s.q;
    int32_t way = way_of(m, p);
    row_way *w;

    if (way < 0) {
        way = free_way(m);
        ST_TRY(send(m, way, p, e));
    }
    w = &m->ahead.way[way];
    w->row = NULL;
    if (m->be.wait(q, w->landed) != ST_OK ||
        m->be.copy(q, m->row_block.base, m->ahead.landing.base + (size_t)way * room(m), m->row_bytes) != ST_OK ||
        m->be.record(q, w->taken) != ST_OK)
        return st_fail(e, ST_E_DEVICE, "a packed row did not arrive on the device");
    return ST_OK;
}

bool st_model_goes_ahead(const st_model *m) { return !m->facts.host_memory; }

void st_model_ahead(st_model *m, st_next_row_fn next, void *ctx)
{
    m->ahead.next_row = m->ahead.pinned.bytes ? next : NULL;
    m->ahead.ctx = ctx;
}

int model_ask_ahead(st_model *m, st_error *e)
{
    const st_packed_row *row;

    if (!m->ahead.next_row || m->run.s.status != ST_OK) return ST_OK;
    row = m->ahead.next_row(m->ahead.ctx);
    return row ? model_row_ahead(m, row, e) : ST_OK;
}
