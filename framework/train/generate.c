/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate.c - greedy text by running the growing prompts again for every token: exact for any layer plugin,
 * meant for a few short samples. As many as fit sit in one row as segments, so together they cost one run a token; the
 * others wait until one is done. */
#include "config.h"

#include "data/sequence.h"
#include "train/train.h"
#include <string.h>

/* A sample that grows. Behind its last token stands a placeholder target, so that the last slot is one whose best token
 * is told; layers are causal, so it changes nothing in front of it. */
typedef struct line {
    st_prepared p;
    int32_t *ids, *pos, start, most, done; /* most: tokens it may have, the placeholder included */
    int32_t slot;                          /* of its last token in the row; -1: not in it        */
    uint8_t *train;
} line;

typedef struct writer {
    const st_generation *g;
    const st_row_shape *shape;
    st_worker worker; /* its arena lives for one run */
    st_packed_row *row;
    int32_t *best; /* [tokens] */
    line *lines;
    int32_t n;
    st_error *error;
} writer;

/* ---- one run of all lines that fit ---- */

static int add_line(writer *w, line *l, int32_t *at)
{
    int fits = 0;

    l->slot = -1;
    if (l->done) return ST_OK;
    ST_TRY(st_sequence_place(st_model_position(w->g->model), w->shape->axes, &w->worker, &l->p, l->pos));
    memset(l->train, 0, (size_t)l->p.n);
    l->train[l->p.n - 1] = 1;
    ST_TRY(st_row_add(w->row, &l->p, &fits, w->error));
    if (!fits) return ST_OK; /* waits for room */
    *at += l->p.n;
    l->slot = *at - 2;
    return ST_OK;
}

static int pack(writer *w)
{
    int32_t at = 0;

    st_row_clear(w->row);
    for (int32_t i = 0; i < w->n; i++) ST_TRY(add_line(w, &w->lines[i], &at));
    return st_sequence_finish(w->row, st_model_encoder(w->g->model), &w->worker);
}

static void grow(line *l, int32_t id, int32_t end_id)
{
    if (id == end_id) {
        l->done = 1;
        return;
    }
    l->ids[l->p.n - 1] = id;
    l->ids[l->p.n++] = l->ids[0];
    if (l->p.n > l->most) l->done = 1;
}

static int run_lines(writer *w)
{
    const int32_t end_id = st_loader_end_of_turn(w->g->loader);
    double sum;
    int64_t count;

    while (!st_stop_asked(w->g->stop)) {
        st_arena_reset(w->worker.arena);
        ST_TRY(pack(w));
        if (w->row->n_sequences == 0) break;
        ST_TRY(st_model_evaluate(w->g->model, w->row, &sum, &count, NULL, w->best, w->error));
        for (int32_t i = 0; i < w->n; i++)
            if (w->lines[i].slot >= 0) grow(&w->lines[i], w->best[w->lines[i].slot], end_id);
    }
    return ST_OK;
}

/* ---- lines ---- */

static int start_line(writer *w, int64_t index, line *l, const char **truth)
{
    const st_row_shape *s = w->shape;
    st_arena *arena = w->g->arena;

    ST_TRY(st_loader_sample(w->g->loader, index, 1, arena, &l->p, truth, w->error));
    int64_t row = s->max_len < s->tokens ? s->max_len : s->tokens, most = (int64_t)l->p.n + w->g->max_tokens;
    l->most = (int32_t)(most < row ? most : row);
    size_t n = (size_t)(l->most > l->p.n ? l->most : l->p.n) + 2;
    uint8_t *content = ST_NEW_N(arena, uint8_t, n);
    l->ids = ST_NEW_N(arena, int32_t, n);
    l->pos = ST_NEW_N(arena, int32_t, n * (size_t)(s->axes > 0 ? s->axes : 1));
    l->train = ST_NEW_N(arena, uint8_t, n);
    if (!l->ids || !l->pos || !l->train || !content)
        return st_fail(w->error, ST_E_NOMEM, "no memory to write text of %zu tokens", n);
    memcpy(l->ids, l->p.ids, (size_t)l->p.n * sizeof *l->ids);
    l->start = l->p.n;
    l->ids[l->p.n++] = l->ids[0];
    l->done = l->p.n > l->most;
    l->p.ids = l->ids;
    l->p.pos = l->pos;
    l->p.train = l->train;
    l->p.content = content;
    return ST_OK;
}

/* The first n samples that can be used. */
static int start_lines(writer *w, int32_t n, st_generated *out)
{
    int64_t count = st_loader_count(w->g->loader);

    for (int64_t i = 0; i < count && w->n < n; i++) {
        int rc = start_line(w, i, &w->lines[w->n], &out[w->n].truth);
        if (rc == ST_E_DATA) {
            *w->error = (st_error){0};
            continue;
        }
        if (rc != ST_OK) return rc;
        out[w->n].index = i;
        out[w->n].id = w->lines[w->n].p.id;
        w->n++;
    }
    return ST_OK;
}

static int decode(writer *w, const line *l, st_generated *out)
{
    st_buf text = {0};
    int rc = st_tokenizer_decode(st_loader_tokenizer(w->g->loader), l->ids + l->start, l->p.n - 1 - l->start, 0, &text,
                                 w->error);

    if (rc == ST_OK && !(out->text = st_arena_strndup(w->g->arena, text.data ? text.data : "", text.n)))
        rc = st_fail(w->error, ST_E_NOMEM, "no memory for a text");
    st_buf_free(&text);
    return rc;
}

static int write_texts(writer *w, int32_t n, st_generated *out)
{
    st_arena *arena = w->g->arena;

    w->lines = ST_NEW_N(arena, line, n);
    w->best = ST_NEW_N(arena, int32_t, w->shape->tokens);
    if (!w->lines || !w->best) return st_fail(w->error, ST_E_NOMEM, "no memory to write text for %d samples", n);
    ST_TRY(st_row_create(arena, w->shape, &w->row, w->error));
    ST_TRY(start_lines(w, n, out));
    ST_TRY(run_lines(w));
    for (int32_t i = 0; i < w->n; i++) ST_TRY(decode(w, &w->lines[i], &out[i]));
    return ST_OK;
}

int st_generate(const st_generation *g, int32_t n, st_generated *out, int32_t *made, st_error *e)
{
    writer w = {.g = g, .shape = st_model_shape(g->model), .error = e};
    int rc;

    w.worker = (st_worker){
        .size = sizeof w.worker, .error = e, .host = st_loader_host(g->loader), .arena = st_arena_create(0)};
    rc = w.worker.arena ? write_texts(&w, n, out) : st_fail(e, ST_E_NOMEM, "no memory to write text");
    st_arena_destroy(w.worker.arena);
    *made = w.n;
    return rc;
}
