/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate.c - greedy text by running the growing prompts again for every token: exact for any layer plugin, meant for
 * a few short samples. All samples sit in one row as segments, so they also cost one run a token together. */
#include "config.h"
#include "train/train.h"
#include <stdlib.h>
#include <string.h>

typedef struct line { st_prepared p; int32_t *ids, *pos, start, done; uint8_t *train; } line;

/* The token asked for is the target of the last slot; a placeholder target behind the end makes that slot count. Layers are
 * causal, so the placeholder changes nothing before it. */
static int set_positions(const st_instance *position, const st_worker *worker, int32_t axes, line *l)
{
    st_position_ops ops;
    st_sequence q = {.size = sizeof q, .n = l->p.n, .n_real = l->p.n, .n_runs = l->p.n_runs, .ids = l->ids, .runs = l->p.runs};

    if (!position || axes == 0) return ST_OK;
    st_ops_copy(position->plugin, &ops, sizeof ops);
    return ops.assign(position->self, worker, &q, l->pos);
}

static int pack(st_model *model, const st_worker *worker, line *lines, int32_t n, st_packed_row *row, int32_t *first, st_error *e)
{
    const st_instance *encoder = st_model_encoder(model);
    st_encoder_ops ops;
    int32_t at = 0;

    st_row_clear(row);
    for (int32_t i = 0; i < n; i++) {
        line *l = &lines[i];
        int fits = 0;
        first[i] = -1;
        if (l->done) continue;
        ST_TRY(set_positions(st_model_position(model), worker, row->shape.axes, l));
        memset(l->train, 0, (size_t)l->p.n);
        l->train[l->p.n - 1] = 1;
        ST_TRY(st_row_add(row, &l->p, &fits, e));
        if (!fits) { /* no room for its text so far: it ends here */
            l->done = 1;
            continue;
        }
        first[i] = at;
        at += l->p.n;
    }
    if (encoder) st_ops_copy(encoder->plugin, &ops, sizeof ops);
    return st_row_finish(row, encoder ? &ops : NULL, encoder ? encoder->self : NULL, worker, e);
}

static int start_line(st_loader *loader, int64_t index, int32_t room, int32_t axes, st_arena *arena, line *l, const char **truth, st_error *e)
{
    ST_TRY(st_loader_sample(loader, index, 1, arena, &l->p, truth, e));
    size_t n = (size_t)l->p.n + (size_t)room + 1;
    l->ids = ST_NEW_N(arena, int32_t, n);
    l->pos = ST_NEW_N(arena, int32_t, n * (size_t)(axes > 0 ? axes : 1));
    l->train = ST_NEW_N(arena, uint8_t, n);
    uint8_t *content = ST_NEW_N(arena, uint8_t, n);
    if (!l->ids || !l->pos || !l->train || !content) return st_fail(e, ST_E_NOMEM, "no memory to write text of %zu tokens", n);
    memcpy(l->ids, l->p.ids, (size_t)l->p.n * sizeof *l->ids);
    l->start = l->p.n;
    l->ids[l->p.n++] = l->ids[0]; /* the placeholder target */
    l->p.ids = l->ids;
    l->p.pos = l->pos;
    l->p.train = l->train;
    l->p.content = content;
    return ST_OK;
}

static int run_lines(st_model *model, const st_worker *worker, st_packed_row *row, line *lines, int32_t n, int32_t max_tokens,
                     int32_t end_id, int32_t *best, int32_t *first, st_error *e)
{
    for (int32_t t = 0; t < max_tokens; t++) {
        double sum;
        int64_t count;
        int running = 0;
        ST_TRY(pack(model, worker, lines, n, row, first, e));
        if (row->n_sequences == 0) return ST_OK;
        ST_TRY(st_model_evaluate(model, row, &sum, &count, NULL, best, e));
        for (int32_t i = 0; i < n; i++) {
            line *l = &lines[i];
            if (l->done) continue;
            int32_t id = best[first[i] + l->p.n - 2]; /* slot before the placeholder */
            if (id == end_id) {
                l->done = 1;
                continue;
            }
            l->ids[l->p.n - 1] = id;
            l->ids[l->p.n++] = l->ids[0];
            running = 1;
        }
        if (!running) return ST_OK;
    }
    return ST_OK;
}

int st_generate(st_model *model, st_loader *loader, const int64_t *index, int32_t n, int32_t max_tokens, int32_t end_id,
                st_arena *arena, st_generated *out, st_error *e)
{
    const st_row_shape *shape = st_model_shape(model);
    st_worker worker = {.size = sizeof worker, .arena = arena, .error = e, .host = NULL};
    line *lines = ST_NEW_N(arena, line, n);
    int32_t *best = ST_NEW_N(arena, int32_t, shape->tokens), *first = ST_NEW_N(arena, int32_t, n);
    st_packed_row *row;

    if (!lines || !best || !first) return st_fail(e, ST_E_NOMEM, "no memory to write text for %d samples", n);
    worker.host = st_loader_host(loader);
    ST_TRY(st_row_create(arena, shape, &row, e));
    for (int32_t i = 0; i < n; i++) {
        ST_TRY(start_line(loader, index[i], max_tokens, shape->axes, arena, &lines[i], &out[i].truth, e));
        out[i].index = index[i];
        out[i].id = lines[i].p.id;
    }
    ST_TRY(run_lines(model, &worker, row, lines, n, max_tokens, end_id, best, first, e));
    for (int32_t i = 0; i < n; i++) {
        st_buf text = {0};
        ST_TRY(st_tokenizer_decode(st_loader_tokenizer(loader), lines[i].ids + lines[i].start, lines[i].p.n - 1 - lines[i].start, 0, &text, e));
        out[i].text = st_arena_strndup(arena, text.data ? text.data : "", text.n);
        st_buf_free(&text);
    }
    return ST_OK;
}
