/* SPDX-License-Identifier: Apache-2.0 */
/* model/row.c - the memory of a packed row and placing one sequence in it. What depends on the whole row is made in
 * pack.c. */
#include "model/row.h"

#include <string.h>

static int check_shape(const st_row_shape *s, st_error *e)
{
    if (s->tokens < 1 || s->sequences < 1 || s->max_len < 1 || s->axes < 0 || s->depths < 0 || s->n_tiles < 0 ||
        s->n_tiles > 8)
        return st_fail(
            e, ST_E_CONFIG,
            "a row of %d tokens, %d sequences, %d tokens in one, %d axes, %d depths, %d work lists: not possible",
            s->tokens, s->sequences, s->max_len, s->axes, s->depths, s->n_tiles);
    for (int i = 0; i < s->n_tiles; i++)
        if (s->tile[i] < 1) return st_fail(e, ST_E_CONFIG, "a work list with tiles of %d tokens", s->tile[i]);
    return ST_OK;
}

/* Calls EACH(member, type, count) for all the memory of a row of shape s. */
#define ROW_MEMORY(EACH) \
    do { \
        const size_t tokens = (size_t)s->tokens, all = tokens * (size_t)(1 + s->depths); \
        const size_t segments = (size_t)st_shape_segments(s); \
        EACH(ids, int32_t, all); \
        EACH(labels, int32_t, all); \
        EACH(trained, int32_t, all); \
        EACH(media, int32_t, all); \
        EACH(order, int32_t, all); \
        EACH(real, uint8_t, tokens); \
        EACH(content, uint8_t, tokens); \
        EACH(pos, int32_t, tokens *(size_t)s->axes); \
        EACH(segments, int32_t, segments + 1); \
        EACH(to_time, int32_t, tokens); \
        EACH(from_time, int32_t, tokens); \
        EACH(spans, int32_t, 4 * segments); \
        EACH(sample, int64_t, (size_t)s->sequences); \
        EACH(trained_count, int64_t, (size_t)(1 + s->depths)); \
        for (int i = 0; i < s->n_tiles; i++) EACH(tiles[i], int32_t, 3 * (size_t)st_shape_tile_capacity(s, i)); \
        if (!s->media) break; \
        EACH(payload, uint8_t, (size_t)s->caps.payload); \
        EACH(meta, int32_t, (size_t)s->caps.meta); \
        EACH(plans, st_media_plan, (size_t)s->caps.items); \
    } while (0)

int st_row_create(st_arena *a, const st_row_shape *s, st_packed_row **out, st_error *e)
{
    ST_TRY(check_shape(s, e));
    st_packed_row *r = ST_NEW(a, st_packed_row);
    bool full = r != NULL;
    if (!r) return st_fail(e, ST_E_NOMEM, "no memory for a row");
    r->shape = *s;
#define TAKE(field, T, n) full = (r->field = ST_NEW_N(a, T, n)) != NULL && full
    ROW_MEMORY(TAKE);
#undef TAKE
    if (!full) return st_fail(e, ST_E_NOMEM, "no memory for a row of %d tokens", s->tokens);
    for (int32_t i = 0; i < s->tokens; i++)
        r->to_time[i] = r->from_time[i] = i; /* one context rank: time order is slot order */
    st_row_clear(r);
    *out = r;
    return ST_OK;
}

size_t st_row_bytes(const st_row_shape *s)
{
    size_t bytes = sizeof(st_packed_row);
#define COUNT(field, T, n) bytes += sizeof(T) * (n)
    ROW_MEMORY(COUNT);
#undef COUNT
    return bytes;
}

static void set_all(int32_t *p, size_t n, int32_t value)
{
    for (size_t i = 0; i < n; i++) p[i] = value;
}

static int64_t payload_used(const st_packed_row *r)
{
    int64_t n = 0;
    for (int32_t i = 0; i < r->n_items; i++) n += r->plans[i].payload;
    return n;
}

/* An empty row: no id, no label anywhere. Payload is zeroed only as far as it was written. */
void st_row_clear(st_packed_row *r)
{
    size_t tokens = (size_t)r->shape.tokens, all = tokens * (size_t)(1 + r->shape.depths);
    set_all(r->ids, all, -1);
    set_all(r->labels, all, -1);
    set_all(r->trained, all, -1);
    set_all(r->media, all, -1);
    memset(r->real, 0, tokens);
    memset(r->content, 0, tokens);
    memset(r->pos, 0, sizeof *r->pos * tokens * (size_t)r->shape.axes);
    for (int32_t i = 0; i < r->shape.sequences; i++) r->sample[i] = -1;
    if (r->shape.media) memset(r->payload, 0, (size_t)payload_used(r));
    memset(r->trained_count, 0, sizeof *r->trained_count * (size_t)(1 + r->shape.depths));
    memset(r->segments, 0, sizeof *r->segments * (size_t)(st_shape_segments(&r->shape) + 1));
    r->n_tokens = r->n_sequences = r->n_items = 0;
}

/* What media take in a row. */
typedef struct load {
    int64_t items, units, rows, spans, payload;
} load;

static void add_plan(load *l, const st_media_plan *p)
{
    l->items++;
    l->units += p->units;
    l->rows += p->rows;
    l->spans += p->spans;
    l->payload += p->payload;
}

static const char *exceeded(const load *l, const st_media_caps *c, int64_t *has, int64_t *may)
{
    const struct {
        const char *name;
        int64_t has, may;
    } row[] = {{"pictures ([batch] images)", l->items, c->items},
               {"patches ([batch] patches)", l->units, c->units},
               {"picture tokens", l->rows, c->rows},
               {"frames", l->spans, c->spans},
               {"bytes of pixels", l->payload, c->payload}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        *has = row[i].has;
        *may = row[i].may;
        if (*has > *may) return row[i].name;
    }
    return NULL;
}

/* Placeholders and features are equal in number, for every item; runs are in order and inside the sequence. */
static int check_media(const st_row_shape *s, const st_prepared *p, st_error *e)
{
    int32_t at = 0, run = 0;
    if (p->n_items > 0 && !s->media) return st_fail(e, ST_E_DATA, "a picture, but the model has no [encoder]");
    for (int32_t i = 0; i < p->n_items; i++) {
        int64_t n = 0;
        for (; run < p->n_runs && p->runs[run].item == i; run++) {
            const st_media_run *m = &p->runs[run];
            if (m->first < at || m->n < 0 || m->first > p->n - m->n)
                return st_fail(e, ST_E_INTERNAL, "placeholders %d .. %d of a sequence of %d tokens", m->first,
                               m->first + m->n, p->n);
            at = m->first + m->n;
            n += m->n;
        }
        if (n != p->items[i].plan.rows)
            return st_fail(e, ST_E_INTERNAL, "%lld placeholders for %d features", (long long)n, p->items[i].plan.rows);
    }
    return run == p->n_runs ? ST_OK : st_fail(e, ST_E_INTERNAL, "placeholders without a picture");
}

int st_row_check(const st_row_shape *s, const st_prepared *p, st_error *e)
{
    load l = {0};
    int64_t has, may;
    int32_t most = s->max_len < s->tokens ? s->max_len : s->tokens;
    if (p->n < 1) return st_fail(e, ST_E_DATA, "no tokens");
    if (p->n > most) return st_fail(e, ST_E_DATA, "%d tokens: a sequence may have %d", p->n, most);
    ST_TRY(check_media(s, p, e));
    for (int32_t i = 0; i < p->n_items; i++) add_plan(&l, &p->items[i].plan);
    const char *what = p->n_items > 0 ? exceeded(&l, &s->caps, &has, &may) : NULL;
    if (what) {
        st_fail(e, ST_E_DATA, "%lld %s: a row takes %lld", (long long)has, what, (long long)may);
        st_error_hint(e, "raise the capacity in [batch] or lower the encoder's pixel limit");
        return ST_E_DATA;
    }
    return ST_OK;
}

static bool fits_beside(const st_packed_row *r, const st_prepared *p)
{
    load l = {0};
    int64_t has, may;
    if (r->n_sequences == r->shape.sequences || p->n > r->shape.tokens - r->n_tokens) return false;
    if (p->n_items == 0) return true;
    for (int32_t i = 0; i < r->n_items; i++) add_plan(&l, &r->plans[i]);
    for (int32_t i = 0; i < p->n_items; i++) add_plan(&l, &p->items[i].plan);
    return exceeded(&l, &r->shape.caps, &has, &may) == NULL;
}

/* Features stand in the order of the items; slot k of an item's placeholders takes its k-th feature. */
static void place_media(st_packed_row *r, const st_prepared *p)
{
    int64_t row = 0, byte = payload_used(r);
    int32_t run = 0;
    for (int32_t i = 0; i < r->n_items; i++) row += r->plans[i].rows;
    for (int32_t i = 0; i < p->n_items; i++) {
        const st_item *item = &p->items[i];
        for (; run < p->n_runs && p->runs[run].item == i; run++)
            for (int32_t k = 0; k < p->runs[run].n; k++)
                r->media[r->n_tokens + p->runs[run].first + k] = (int32_t)row++;
        if (item->payload) memcpy(r->payload + byte, item->payload, (size_t)item->plan.payload);
        byte += item->plan.payload;
        r->plans[r->n_items++] = item->plan;
    }
}

int st_row_add(st_packed_row *r, const st_prepared *p, int *fits, st_error *e)
{
    int32_t at = r->n_tokens;
    *fits = 0;
    ST_TRY(st_row_check(&r->shape, p, e));
    if (!fits_beside(r, p)) return ST_OK;
    *fits = 1;
    memcpy(r->ids + at, p->ids, sizeof *p->ids * (size_t)p->n);
    memset(r->real + at, 1, (size_t)p->n);
    for (int32_t i = 0; i + 1 < p->n; i++) {
        if (!p->train[i + 1]) continue;
        r->labels[at + i] = p->ids[i + 1];
        r->content[at + i] = p->content[i + 1];
    }
    for (int32_t a = 0; a < r->shape.axes; a++)
        memcpy(r->pos + (size_t)a * (size_t)r->shape.tokens + at, p->pos + (size_t)a * (size_t)p->n,
               sizeof *p->pos * (size_t)p->n);
    place_media(r, p);
    r->sample[r->n_sequences] = p->index;
    r->segments[r->n_sequences++] = at;
    r->n_tokens += p->n;
    return ST_OK;
}
