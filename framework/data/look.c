/* SPDX-License-Identifier: Apache-2.0 */
/* data/look.c - the first records of an order are prepared and let go: what a run would find, told before it begins. */
#include "data/loader_priv.h"

#include <string.h>

enum { LISTED = 3 };

/* ---- what is wrong with all of them ---- */

/* "record 3 (a.png): why; record 1 (b.png): why" */
static void list_reasons(const st_look *look, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < look->n_named && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s", i ? "; " : ": ", look->named[i].message);
}

int st_loader_unusable(const st_loader *l, const st_look *look, st_error *e)
{
    char first[48] = "", reasons[400];
    list_reasons(look, reasons, sizeof reasons);
    if (look->looked < l->count) snprintf(first, sizeof first, "the first %lld of ", (long long)look->looked);
    st_fail(e, ST_E_DATA, "%s: none of %sits %lld records can be used%s", l->section, first, (long long)l->count,
            reasons);
    st_error_hint(e, "%s", look->n_named ? look->named[0].hint : "");
    return ST_E_DATA;
}

int st_loader_too_many(const st_loader *l, int64_t bad, const st_error *last, st_error *e)
{
    st_fail(e, ST_E_DATA, "%s: %lld samples set aside, [data] max_bad = %lld; the last: %s", l->section, (long long)bad,
            (long long)l->keys.max_bad, last->message);
    st_error_hint(e, "mend the data, or raise [data] max_bad");
    return ST_E_DATA;
}

int st_loader_stopped(const st_loader *l, const st_error *named, st_error *e)
{
    *e = *named;
    st_error_context(e, "%s", l->section);
    st_error_hint(e, "[data] on_bad = skip sets such samples aside");
    return e->code;
}

/* ---- looking ---- */

static int look_at(st_loader *l, const st_kept_sample *s, st_look *look, st_error *e)
{
    look->looked++;
    if (s->code == ST_OK) {
        look->usable++;
        look->tokens += s->p.n;
        return ST_OK;
    }
    st_error named = *s->error;
    st_prepare_name(&named, &s->p);
    if (s->code != ST_E_DATA) {
        *e = named;
        st_error_context(e, "%s", l->section);
        return s->code;
    }
    look->bad++;
    if (look->n_named < LISTED) look->named[look->n_named++] = named;
    if (l->keys.on_bad == ST_ON_BAD_STOP) return st_loader_stopped(l, &named, e);
    return look->bad > l->keys.max_bad ? st_loader_too_many(l, look->bad, &named, e) : ST_OK;
}

static int look_on(st_loader *l, int64_t tokens, int64_t most, st_look *look, st_error *e)
{
    int32_t at_once = st_threads_count(l->context.base->threads);
    while (look->looked < most && look->tokens < tokens) {
        int64_t record;
        int end;
        const st_kept_sample *s = st_feed_peek(l->feed, at_once, &record, &end);
        if (!s) return st_fail(e, ST_E_NOMEM, "%s: no memory to prepare samples", l->section);
        ST_TRY(look_at(l, s, look, e));
        st_feed_pop(l->feed);
    }
    return l->shuffle && look->usable == 0 ? st_loader_unusable(l, look, e) : ST_OK;
}

int st_loader_look(st_loader *l, int64_t tokens, int64_t most, st_look *out, st_error *e)
{
    uint64_t epoch;
    int64_t next;
    memset(out, 0, sizeof *out);
    st_feed_place(l->feed, &epoch, &next);
    int rc = look_on(l, tokens, most < l->count ? most : l->count, out, e);
    st_feed_go(l->feed, epoch, next);
    return rc;
}
