/* SPDX-License-Identifier: Apache-2.0 */
/* data/sequence.c - see the header. */
#include "config.h"

#include "data/sequence.h"

int st_sequence_blank(const st_worker *w, int64_t n, int32_t axes, int64_t trained, st_prepared *p)
{
    int32_t *ids = ST_NEW_N(w->arena, int32_t, n), *pos = ST_NEW_N(w->arena, int32_t, n * (axes ? axes : 1));
    uint8_t *train = ST_NEW_N(w->arena, uint8_t, n), *content = ST_NEW_N(w->arena, uint8_t, n);

    if (!ids || !pos || !train || !content)
        return st_fail(w->error, ST_E_NOMEM, "no memory for a sequence of %lld tokens", (long long)n);
    if (trained >= 0) train[trained] = 1;
    *p = (st_prepared){.n = (int32_t)n, .ids = ids, .train = train, .content = content, .pos = pos, .index = -1};
    return ST_OK;
}

int st_sequence_place(const st_instance *position, int32_t axes, const st_worker *w, const st_prepared *p, int32_t *pos)
{
    st_sequence q = {.size = sizeof q, .n = p->n, .n_real = p->n, .n_runs = p->n_runs, .ids = p->ids, .runs = p->runs};
    st_position_ops ops;

    if (!position || axes == 0) return ST_OK;
    st_ops_copy(position->plugin, &ops, sizeof ops);
    int rc = ops.assign(position->self, w, &q, pos);
    return rc == ST_OK || w->error->code ? rc : st_fail(w->error, rc, "the position plugin cannot place a sequence");
}

int st_sequence_picture(const st_instance *encoder, const st_worker *w, const st_media *md, st_item *item)
{
    st_encoder_ops ops;
    void *payload;

    st_ops_copy(encoder->plugin, &ops, sizeof ops);
    *item = (st_item){.plan = {.size = sizeof item->plan}};
    int rc = ops.measure(encoder->self, w, md, &item->plan);
    if (rc != ST_OK) return w->error->code ? rc : st_fail(w->error, rc, "the encoder cannot measure a picture");
    payload = st_arena_alloc(w->arena, (size_t)item->plan.payload);
    if (!payload)
        return st_fail(w->error, ST_E_NOMEM, "no memory for a picture of %lld bytes", (long long)item->plan.payload);
    item->payload = payload;
    rc = ops.prepare(encoder->self, w, md, &item->plan, payload);
    return rc == ST_OK || w->error->code ? rc : st_fail(w->error, rc, "the encoder cannot prepare a picture");
}

int st_sequence_finish(st_packed_row *row, const st_instance *encoder, const st_worker *w)
{
    st_encoder_ops ops;

    if (!encoder) return st_row_finish(row, NULL, NULL, w, w->error);
    st_ops_copy(encoder->plugin, &ops, sizeof ops);
    return st_row_finish(row, &ops, encoder->self, w, w->error);
}
