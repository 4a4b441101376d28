/* SPDX-License-Identifier: Apache-2.0 */
/* data/prepare.c - see prepare.h. Runs on many threads at once; everything it changes belongs to the call. */
#include "data/prepare.h"

#include <stdlib.h>
#include <string.h>

/* The media of one sample, in order. */
typedef struct media_list {
    int32_t n;
    st_media *media;
    st_item *item;
    st_media_plan *plan;
} media_list;

static int32_t count_media(const st_sample *s)
{
    int32_t n = 0;
    for (int32_t t = 0; t < s->n_turns; t++)
        for (int32_t i = 0; i < s->turns[t].n_parts; i++) n += s->turns[t].parts[i].type == ST_PART_IMAGE;
    return n;
}

/* A picture that is not there or cannot be read spoils its sample, not the run. */
static int read_bytes(const st_worker *w, const st_part *part, const uint8_t **bytes, size_t *n)
{
    st_error e = {0};
    char *data;
    *bytes = part->bytes;
    *n = part->n_bytes;
    if (part->bytes) return ST_OK;
    if (!part->path) return st_fail(w->error, ST_E_DATA, "a picture without bytes or a path");
    int rc = st_file_read(part->path, w->arena, &data, n, &e);
    if (rc != ST_OK) return st_fail(w->error, rc == ST_E_NOMEM ? rc : ST_E_DATA, "%s", e.message);
    *bytes = (const uint8_t *)data;
    return ST_OK;
}

static int load_picture(const st_preparer *p, const st_worker *w, const st_part *part, media_list *list)
{
    const uint8_t *bytes;
    size_t n;
    st_image image;
    st_media *m = &list->media[list->n];
    st_media_plan *plan = &list->plan[list->n];
    ST_TRY(read_bytes(w, part, &bytes, &n));
    int rc = st_image_decode(bytes, n, &p->image, w->arena, &image, w->error);
    if (rc != ST_OK && part->path) st_error_context(w->error, "%s", part->path);
    ST_TRY(rc);
    *m = (st_media){
        .size = sizeof *m, .kind = ST_MEDIA_IMAGE, .width = image.width, .height = image.height, .frames = 1};
    plan->size = sizeof *plan;
    rc = p->encoder.measure(p->encoder_self, w, m, plan); /* as on ranks that hold no pixels */
    if (rc != ST_OK) {
        if (!w->error->code) st_fail(w->error, rc, "the encoder cannot measure the picture");
        if (part->path) st_error_context(w->error, "%s", part->path);
        return rc;
    }
    if (plan->rows < 1 || plan->units < 1 || plan->spans < 0 || plan->payload < 0 || plan->payload % 64)
        return st_fail(w->error, ST_E_INTERNAL, "the encoder measured %d features, %d patches, %lld bytes", plan->rows,
                       plan->units, (long long)plan->payload);
    m->rgb = image.rgb;
    list->item[list->n++].plan = *plan;
    return ST_OK;
}

static int load_media(const st_preparer *p, const st_worker *w, const st_sample *s, media_list *list)
{
    int32_t n = count_media(s);
    list->n = 0;
    if (n == 0) return ST_OK;
    if (!p->encoder_self) return st_fail(w->error, ST_E_DATA, "a picture, but the model has no [encoder]");
    list->media = ST_NEW_N(w->arena, st_media, n);
    list->item = ST_NEW_N(w->arena, st_item, n);
    list->plan = ST_NEW_N(w->arena, st_media_plan, n);
    if (!list->media || !list->item || !list->plan)
        return st_fail(w->error, ST_E_NOMEM, "no memory for %d pictures", n);
    for (int32_t t = 0; t < s->n_turns; t++)
        for (int32_t i = 0; i < s->turns[t].n_parts; i++)
            if (s->turns[t].parts[i].type == ST_PART_IMAGE) ST_TRY(load_picture(p, w, &s->turns[t].parts[i], list));
    return ST_OK;
}

static int32_t first_trained(const st_laid *l, int32_t from)
{
    for (int32_t i = from; i < l->n; i++)
        if (l->train[i]) return i;
    return l->n;
}

/* prompt: in front of the first trained token. Else: at the row's capacity, if that costs no placeholder and leaves a
 * target. */
static int cut(const st_preparer *p, const st_worker *w, int prompt, st_laid *l, int32_t *cut_off)
{
    int32_t most = p->shape->max_len < p->shape->tokens ? p->shape->max_len : p->shape->tokens;
    int32_t first = first_trained(l, 1),
            media_end = l->n_runs ? l->runs[l->n_runs - 1].first + l->runs[l->n_runs - 1].n : 0;
    if (prompt) {
        l->n = first;
        while (l->n_runs > 0 && l->runs[l->n_runs - 1].first + l->runs[l->n_runs - 1].n > l->n) l->n_runs--;
        return ST_OK;
    }
    if (l->n <= most) return ST_OK;
    if (media_end > most || first >= most) {
        st_fail(w->error, ST_E_DATA, "%d tokens: a sequence may have %d, and its %s", l->n, most,
                media_end > most ? "pictures do not fit into them" : "first trained token lies behind");
        st_error_hint(w->error, "raise [batch] tokens and max_len, or lower the encoder's pixel limit");
        return ST_E_DATA;
    }
    *cut_off = l->n - most;
    l->n = most;
    return ST_OK;
}

static int check_ids(const st_preparer *p, const st_worker *w, const st_laid *l)
{
    for (int32_t i = 0; i < l->n; i++)
        if (l->ids[i] < 0 || l->ids[i] >= p->vocab)
            return st_fail(w->error, ST_E_DATA, "token %d is %d: the vocabulary has ids 0 to %lld", i, l->ids[i],
                           (long long)p->vocab - 1);
    return ST_OK;
}

static int assign(const st_preparer *p, const st_worker *w, st_prepared *out)
{
    int32_t *pos = ST_NEW_N(w->arena, int32_t, (size_t)(p->shape->axes > 0 ? p->shape->axes : 1) * (size_t)out->n + 1);
    st_sequence q = {
        .size = sizeof q, .n = out->n, .n_real = out->n, .n_runs = out->n_runs, .ids = out->ids, .runs = out->runs};
    if (!pos) return st_fail(w->error, ST_E_NOMEM, "no memory for positions");
    out->pos = pos;
    if (!p->position_self || p->shape->axes == 0 || out->n == 0) return ST_OK;
    int rc = p->position.assign(p->position_self, w, &q, pos);
    return rc == ST_OK || w->error->code ? rc : st_fail(w->error, rc, "the position plugin cannot place a sequence");
}

static int make_payloads(const st_preparer *p, const st_worker *w, media_list *list)
{
    for (int32_t i = 0; i < list->n; i++) {
        void *payload = st_arena_alloc(w->arena, (size_t)list->item[i].plan.payload);
        if (!payload)
            return st_fail(w->error, ST_E_NOMEM, "no memory for %lld bytes of pixels",
                           (long long)list->item[i].plan.payload);
        int rc = p->encoder.prepare(p->encoder_self, w, &list->media[i], &list->item[i].plan, payload);
        if (rc != ST_OK) return w->error->code ? rc : st_fail(w->error, rc, "the encoder cannot prepare a picture");
        list->item[i].payload = payload;
    }
    return ST_OK;
}

static int prepare(const st_preparer *p, const st_worker *w, int64_t index, int prompt, st_sample *s, st_laid *l,
                   st_prepared *out)
{
    media_list list = {0};
    int32_t cut_off = 0;
    int rc = p->dataset.get(p->dataset_self, w, index, s);
    if (rc != ST_OK) return w->error->code ? rc : st_fail(w->error, rc, "the data set cannot give it");
    if (s->n_ids == 0 && !p->tokenizer)
        return st_fail(w->error, ST_E_CONFIG, "a sample of text, but there is no [tokenizer] path");
    ST_TRY(load_media(p, w, s, &list));
    st_chat_media media = {list.media, list.plan, list.n, &p->encoder, p->encoder_self};
    ST_TRY(st_chat_layout(&p->chat, p->tokenizer, w, s, &media, l));
    ST_TRY(cut(p, w, prompt, l, &cut_off));
    ST_TRY(check_ids(p, w, l));
    *out = (st_prepared){.n = l->n,
                         .n_runs = l->n_runs,
                         .n_items = l->n_runs ? l->runs[l->n_runs - 1].item + 1 : 0,
                         .ids = l->ids,
                         .train = l->train,
                         .content = l->content,
                         .runs = l->runs,
                         .items = list.item,
                         .index = index,
                         .id = s->id ? s->id : "",
                         .cut = cut_off};
    list.n = out->n_items;
    ST_TRY(st_row_check(p->shape, out, w->error));
    ST_TRY(assign(p, w, out));
    return make_payloads(p, w, &list);
}

void st_prepare_name(st_error *e, const st_prepared *p)
{
    if (p->id && p->id[0]) st_error_context(e, "record %lld (%s)", (long long)p->index, p->id);
    else st_error_context(e, "record %lld", (long long)p->index);
}

/* As st_prepare, but the error does not name the record: *out tells index and id also then. */
static int prepare_plain(const st_preparer *p, int64_t index, int prompt, st_arena *arena, st_prepared *out,
                         st_laid *laid, st_error *e)
{
    st_worker w = {.size = sizeof w, .host = &p->base->host, .arena = arena, .error = e};
    st_sample s = {.size = sizeof s};
    int rc = prepare(p, &w, index, prompt, &s, laid, out);
    if (rc != ST_OK) *out = (st_prepared){.index = index, .id = s.id ? s.id : ""};
    return rc;
}

int st_prepare(const st_preparer *p, int64_t index, int prompt, st_arena *arena, st_prepared *out, const char **text,
               size_t *n_text, st_error *e)
{
    st_laid l = {0};
    int rc = prepare_plain(p, index, prompt, arena, out, &l, e);
    if (rc != ST_OK) st_prepare_name(e, out);
    if (rc == ST_OK && text) *text = l.answer;
    if (rc == ST_OK && n_text) *n_text = l.n_answer;
    return rc;
}

/* ---- kept in one block ---- */

typedef struct block {
    char *at;
    size_t used;
} block;

static void *take(block *b, const void *from, size_t n) /* from NULL: only counted */
{
    size_t at = (b->used + 63) / 64 * 64;
    b->used = at + n;
    if (!b->at) return NULL;
    if (from && n) memcpy(b->at + at, from, n);
    return b->at + at;
}

/* First with no memory, to count; then into it. */
static void copy_sample(block *b, const st_prepared *p, int32_t axes, st_kept_sample *out)
{
    size_t n = (size_t)p->n;
    st_kept_sample *head = take(b, out, sizeof *out);
    st_prepared q = *p;
    q.ids = take(b, p->ids, sizeof *p->ids * n);
    q.train = take(b, p->train, n);
    q.content = take(b, p->content, n);
    q.pos = take(b, p->pos, sizeof *p->pos * n * (size_t)axes);
    q.runs = take(b, p->runs, sizeof *p->runs * (size_t)p->n_runs);
    q.id = take(b, p->id, strlen(p->id) + 1);
    st_item *items = take(b, p->items, sizeof *p->items * (size_t)p->n_items);
    q.items = items;
    for (int32_t i = 0; i < p->n_items; i++) {
        const void *payload = take(b, p->items[i].payload, (size_t)p->items[i].plan.payload);
        if (items) items[i].payload = payload;
    }
    if (head) head->p = q;
}

static void copy_failure(block *b, const st_prepared *p, const st_error *e, st_kept_sample *out)
{
    st_kept_sample *head = take(b, out, sizeof *out);
    st_error *error = take(b, e, sizeof *e);
    const char *id = take(b, p->id, strlen(p->id) + 1);
    if (!head) return;
    head->error = error;
    head->p = (st_prepared){.index = p->index, .id = id};
}

st_kept_sample *st_prepare_kept(const st_preparer *p, int64_t index)
{
    st_arena *a = st_arena_create(0);
    st_prepared sample = {0};
    st_laid laid = {0};
    st_error e = {0};
    st_kept_sample head = {0};
    block b = {0};
    if (!a) return NULL;
    head.code = prepare_plain(p, index, 0, a, &sample, &laid, &e);
    for (int pass = 0; pass < 2; pass++) { /* counted, then copied */
        if (head.code == ST_OK) copy_sample(&b, &sample, p->shape->axes, &head);
        else copy_failure(&b, &sample, &e, &head);
        if (pass) break;
        head.bytes = b.used;
        b = (block){malloc(b.used), 0};
        if (!b.at) break;
    }
    st_arena_destroy(a);
    return (st_kept_sample *)b.at;
}
