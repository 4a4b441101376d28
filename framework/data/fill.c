/* SPDX-License-Identifier: Apache-2.0 */
/* data/fill.c - samples of a loader into the rows of a step: next fit, in order. A sample that does not fit beside
 * what a row holds begins the next row, or waits for the next step. */
#include "data/loader_priv.h"

#include <stdlib.h>
#include <string.h>

/* ---- samples that are set aside ---- */

static bool counts(const st_loader *l) /* every record comes by once an epoch: counting one epoch counts records */
{
    uint64_t epoch;
    int64_t next;
    st_feed_place(l->feed, &epoch, &next);
    return epoch == 0;
}

void st_loader_on_bad(st_loader *l, st_bad_fn fn, void *ctx)
{
    l->on_bad = fn;
    l->on_bad_ctx = ctx;
}

static bool first_time(st_loader *l, int64_t record)
{
    if (l->told[record]) return false;
    l->told[record] = 1;
    l->n_told++;
    return true;
}

void st_loader_known_bad(st_loader *l, int64_t record)
{
    if (record >= 0 && record < l->count) first_time(l, record);
}

int64_t st_loader_told(const st_loader *l) { return l->n_told; }

/* A data set with many such records must not flood the screen. */
static void log_bad(st_loader *l, const st_error *named)
{
    enum { MOST_LINES = 5 };
    st_log *log = l->context.base->log;
    if (l->lines++ < MOST_LINES) st_log_write(log, 2, l->section, "set aside: %s", named->message);
    else if (l->lines == MOST_LINES + 1)
        st_log_write(log, 2, l->section, "more samples are set aside: from here on they are only counted");
}

static int tell(st_loader *l, const st_prepared *p, const st_error *why, const st_error *named, st_error *e)
{
    const st_bad_sample bad = {l->section, p->id ? p->id : "", why->message, p->index};
    if (!first_time(l, p->index)) return ST_OK;
    if (l->keys.on_bad == ST_ON_BAD_SKIP) log_bad(l, named);
    return l->on_bad ? l->on_bad(l->on_bad_ctx, &bad, e) : ST_OK;
}

static int set_aside(st_loader *l, const st_prepared *p, const st_error *why, st_error *e)
{
    st_error named = *why;
    st_prepare_name(&named, p);
    ST_TRY(tell(l, p, why, &named, e));
    if (l->keys.on_bad == ST_ON_BAD_STOP) return st_loader_stopped(l, &named, e);
    if (counts(l)) l->bad++;
    return l->bad <= l->keys.max_bad ? ST_OK : st_loader_too_many(l, l->bad, &named, e);
}

/* ---- media of another sample ---- */

static bool same_grids(const st_prepared *a, const st_prepared *b)
{
    if (a->n_items != b->n_items) return false;
    for (int32_t i = 0; i < a->n_items; i++)
        if (memcmp(a->items[i].plan.grid, b->items[i].plan.grid, sizeof a->items[i].plan.grid) != 0) return false;
    return true;
}

/* The next record, in the data's own order, with the same grids lends its pictures; when there is none the sample
 * keeps its own. */
static void permute(st_loader *l, int64_t record, st_prepared *p, st_kept_sample **owned)
{
    *owned = NULL;
    for (int64_t k = 1; p->n_items > 0 && k < l->count; k++) {
        const st_kept_sample *other = st_feed_record(l->feed, (record + k) % l->count, owned);
        if (other && other->code == ST_OK && same_grids(p, &other->p)) {
            p->items = other->p.items;
            return;
        }
        free(*owned);
        *owned = NULL;
    }
}

/* ---- filling ---- */

static int add_sample(st_loader *l, st_packed_row *row, int64_t record, const st_kept_sample *s, int *fits, st_error *e)
{
    st_prepared p = s->p;
    st_kept_sample *owned = NULL;
    if (l->permute) permute(l, record, &p, &owned);
    int rc = st_row_add(row, &p, fits, e);
    free(owned);
    return rc;
}

static void tell_cut(st_loader *l, const st_prepared *p)
{
    st_error e = {0};
    if (!p->cut || l->told_cut) return;
    l->told_cut = 1;
    st_fail(&e, ST_E_DATA, "%d tokens, cut to %d; others that are too long are not told of", p->n + p->cut, p->n);
    st_prepare_name(&e, p);
    st_log_write(l->context.base->log, 2, l->section, "%s", e.message);
}

/* One sample to the row, or *full, or *end. A sample that cannot be used counts as taken. */
static int take_one(st_loader *l, st_packed_row *row, int32_t hint, int *taken, int *full, int *end, st_error *e)
{
    int64_t record;
    st_error why = {0};
    int fits = 0;
    const st_kept_sample *s = st_feed_peek(l->feed, hint, &record, end);
    *taken = *full = 0;
    if (!s) return *end ? ST_OK : st_fail(e, ST_E_NOMEM, "%s: no memory to prepare samples", l->section);
    int rc = s->code == ST_OK ? add_sample(l, row, record, s, &fits, &why) : s->code;
    if (rc == ST_OK) {
        *full = !fits;
        *taken = fits;
        if (!fits) return ST_OK;
        tell_cut(l, &s->p);
        st_feed_pop(l->feed);
        return ST_OK;
    }
    if (s->code != ST_OK) why = *s->error;
    if (rc == ST_E_DATA) rc = set_aside(l, &s->p, &why, e);
    else {
        *e = why;
        st_prepare_name(e, &s->p);
        st_error_context(e, "%s", l->section);
    }
    if (rc == ST_OK) st_feed_pop(l->feed);
    return rc;
}

static int finish(st_loader *l, st_packed_row *row, st_error *e)
{
    const st_preparer *p = &l->preparer;
    st_arena *a = st_arena_create(0);
    st_worker w = {.size = sizeof w, .host = &l->context.base->host, .arena = a, .error = e};
    if (!a) return st_fail(e, ST_E_NOMEM, "no memory to pack a row");
    int rc = st_row_finish(row, p->encoder_self ? &p->encoder : NULL, p->encoder_self, &w, e);
    st_arena_destroy(a);
    return rc;
}

static int fill_rows(st_loader *l, st_packed_row *const *rows, int32_t n, int32_t most, int32_t *used, int *end,
                     st_error *e)
{
    int64_t useless = 0;
    int32_t hint = l->last_used             ? l->last_used
                   : most > 0 && most < 256 ? most
                                            : 2 * st_threads_count(l->context.base->threads);
    for (int32_t r = 0; r < n && !*end && (most == 0 || *used < most);) {
        int taken, full;
        ST_TRY(take_one(l, rows[r], hint, &taken, &full, end, e));
        if (full) r++;
        *used += taken;
        useless = taken || full || *end ? 0 : useless + 1;
        if (useless > l->count) return st_loader_unusable(l, &(st_look){.looked = l->count}, e);
    }
    return ST_OK;
}

int st_loader_next(st_loader *l, st_packed_row *const *rows, int32_t n, int32_t max_sequences, int *end, st_error *e)
{
    uint64_t epoch;
    int64_t next;
    int32_t used = 0;
    *end = 0;
    for (int32_t i = 0; i < n; i++) st_row_clear(rows[i]);
    ST_TRY(fill_rows(l, rows, n, max_sequences, &used, end, e));
    for (int32_t i = 0; i < n; i++) ST_TRY(finish(l, rows[i], e));
    l->seen += used;
    st_feed_place(l->feed, &epoch, &next);
    if (!l->shuffle && next == l->count) *end = 1;
    l->last_used = used;
    if (!*end) st_feed_ahead(l->feed, used + 1); /* one more: the sample that may not fit is looked at too */
    return ST_OK;
}

void st_loader_rewind(st_loader *l)
{
    st_feed_go(l->feed, 0, 0);
    l->seen = l->bad = 0;
}

void st_loader_permute_media(st_loader *l, int on) { l->permute = on; }

void st_loader_save(const st_loader *l, st_loader_state *out)
{
    st_feed_place(l->feed, &out->epoch, &out->next);
    out->seen = l->seen;
    out->bad = l->bad;
}

int st_loader_restore(st_loader *l, const st_loader_state *s, st_error *e)
{
    if (s->next < 0 || s->next > l->count || (l->shuffle && s->next == l->count) || s->seen < 0 || s->bad < 0)
        return st_fail(e, ST_E_CONFIG, "%s: the saved place is record %lld of %lld: the data set has changed",
                       l->section, (long long)s->next, (long long)l->count);
    st_feed_go(l->feed, s->epoch, s->next);
    l->seen = s->seen;
    l->bad = s->bad;
    return ST_OK;
}

int st_loader_sample(st_loader *l, int64_t index, int prompt, st_arena *arena, st_prepared *out, const char **text,
                     st_error *e)
{
    if (index < 0 || index >= l->count)
        return st_fail(e, ST_E_NOTFOUND, "%s: there is no record %lld, the records are 0 to %lld", l->section,
                       (long long)index, (long long)l->count - 1);
    int rc = st_prepare(&l->preparer, index, prompt, arena, out, text, NULL, e);
    if (rc != ST_OK) st_error_context(e, "%s", l->section);
    return rc;
}
