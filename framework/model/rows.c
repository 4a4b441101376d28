/* SPDX-License-Identifier: Apache-2.0 */
/* model/rows.c - a packed row on the device: one block at fixed addresses, filled by one copy per micro-batch. */
#include "model/private.h"
#include <string.h>

enum {
    R_IDS,
    R_LABELS,
    R_TRAINED,
    R_MEDIA,
    R_ORDER,
    R_REAL,
    R_POS,
    R_SEGMENTS,
    R_TO_TIME,
    R_FROM_TIME,
    R_SPANS,
    R_COUNT
};

static void row_sizes(const st_row_shape *s, size_t bytes[R_COUNT])
{
    size_t tokens = (size_t)s->tokens, rows = (size_t)(1 + s->depths) * tokens, segments = (size_t)st_shape_segments(s);

    bytes[R_IDS] = bytes[R_LABELS] = bytes[R_TRAINED] = bytes[R_MEDIA] = bytes[R_ORDER] = 4 * rows;
    bytes[R_REAL] = tokens;
    bytes[R_POS] = 4 * tokens * (size_t)s->axes;
    bytes[R_SEGMENTS] = 4 * (segments + 1);
    bytes[R_TO_TIME] = bytes[R_FROM_TIME] = 4 * tokens;
    bytes[R_SPANS] = 4 * 4 * segments;
}

static size_t tile_bytes(const st_row_shape *s, int i) { return 4 * 3 * (size_t)st_shape_tile_capacity(s, i); }

void model_row_layout(st_model *m, size_t *at)
{
    const st_row_shape *s = &m->shape;
    size_t bytes[R_COUNT];

    row_sizes(s, bytes);
    for (int i = 0; i < R_COUNT; i++) {
        m->row_at[i] = *at;
        *at = model_round(*at + bytes[i]);
    }
    for (int i = 0; i < s->n_tiles; i++) {
        m->tile_at[i] = *at;
        *at = model_round(*at + tile_bytes(s, i));
    }
    m->media_payload_at = *at;
    if (s->media) *at = model_round(*at + (size_t)s->caps.payload);
    m->media_meta_at = *at;
    if (s->media) *at = model_round(*at + 4 * (size_t)s->caps.meta);
}

static st_tensor ints(const st_model *m, int what, int64_t rows, int64_t cols)
{
    st_tensor t = st_tensor2(m->row_block.base + m->row_at[what], ST_I32, rows, cols);
    if (rows == 1 && what != R_IDS && what != R_LABELS && what != R_TRAINED && what != R_MEDIA && what != R_ORDER &&
        what != R_POS) {
        t.nd = 1;
        t.dim[0] = cols;
        t.dim[1] = t.stride[0] = 1;
    }
    return t;
}

void model_row_tensors(st_model *m)
{
    const st_row_shape *s = &m->shape;
    int64_t tokens = s->tokens, segments = st_shape_segments(s), depths = 1 + s->depths;
    st_row *r = &m->row;

    *r = (st_row){.size = sizeof *r,
                  .tokens = s->tokens,
                  .tokens_time = s->tokens,
                  .max_segments = (int32_t)segments,
                  .max_len = s->max_len,
                  .axes = s->axes,
                  .depths = s->depths};
    r->ids = ints(m, R_IDS, depths, tokens);
    r->labels = ints(m, R_LABELS, depths, tokens);
    r->trained = ints(m, R_TRAINED, depths, tokens);
    r->media = ints(m, R_MEDIA, depths, tokens);
    r->order = ints(m, R_ORDER, depths, tokens);
    r->real = ints(m, R_REAL, 1, tokens);
    r->real.dtype = ST_U8;
    r->pos = ints(m, R_POS, s->axes, tokens);
    r->segments = ints(m, R_SEGMENTS, 1, segments + 1);
    r->to_time = ints(m, R_TO_TIME, 1, tokens);
    r->from_time = ints(m, R_FROM_TIME, 1, tokens);
    r->spans = ints(m, R_SPANS, 4, segments);
    m->batch = (st_media_batch){.size = sizeof m->batch};
    m->batch.payload = st_tensor2(m->row_block.base + m->media_payload_at, ST_U8, s->caps.payload, 1);
    m->batch.meta = st_tensor2(m->row_block.base + m->media_meta_at, ST_I32, s->caps.meta, 1);
    m->batch.payload.nd = m->batch.meta.nd = 1;
}

static int check_shape(const st_model *m, const st_row_shape *r, st_error *e)
{
    const st_row_shape *s = &m->shape;
    bool same = r->tokens == s->tokens && r->sequences == s->sequences && r->axes == s->axes &&
                r->depths == s->depths && r->n_tiles == s->n_tiles && r->media == s->media &&
                r->caps.payload == s->caps.payload && r->caps.meta == s->caps.meta;
    for (int i = 0; same && i < s->n_tiles; i++) same = r->tile[i] == s->tile[i];
    return same ? ST_OK
                : st_fail(e, ST_E_SHAPE,
                          "a packed row of %d tokens and %d sequences was not made for this model (%d, %d)", r->tokens,
                          r->sequences, s->tokens, s->sequences);
}

int model_row_fill(const st_model *m, const st_packed_row *p, char *to, st_error *e)
{
    const void *from[R_COUNT] = {p->ids, p->labels,   p->trained, p->media,     p->order, p->real,
                                 p->pos, p->segments, p->to_time, p->from_time, p->spans};
    size_t bytes[R_COUNT];

    ST_TRY(check_shape(m, &p->shape, e));
    row_sizes(&m->shape, bytes);
    for (int i = 0; i < R_COUNT; i++)
        if (bytes[i]) memcpy(to + m->row_at[i], from[i], bytes[i]);
    for (int i = 0; i < m->shape.n_tiles; i++) memcpy(to + m->tile_at[i], p->tiles[i], tile_bytes(&m->shape, i));
    if (m->shape.media) {
        memcpy(to + m->media_payload_at, p->payload, (size_t)m->shape.caps.payload);
        memcpy(to + m->media_meta_at, p->meta, 4 * (size_t)m->shape.caps.meta);
    }
    return ST_OK;
}

int model_row_upload(st_model *m, const st_packed_row *p, st_error *e)
{
    char *to = m->staging.base;

    if (m->ahead.pinned.bytes) return model_row_arrive(m, p, e);
    ST_TRY(model_row_fill(m, p, to, e));
    if (m->be.copy(m->run.s.q, m->row_block.base, to, m->row_bytes) != ST_OK)
        return st_fail(e, ST_E_DEVICE, "a packed row was not copied to the device");
    return m->be.sync(m->device, e);
}
