/* SPDX-License-Identifier: Apache-2.0 */
/* parity/samples.c - see the header. */
#include "parity/samples.h"
#include "config.h"
#include "data/sequence.h"
#include <string.h>

#define IGNORED (-100) /* label of a token that is no target */

static int read_ids(st_parity *p, int32_t i, st_prepared *q, st_error *e)
{
    char key[64];
    double *ids, *labels;
    int64_t n;

    snprintf(key, sizeof key, "s%d.input_ids", i);
    ST_TRY(st_parity_need(p, key, &ids, &n, e));
    snprintf(key, sizeof key, "s%d.labels", i);
    ST_TRY(st_parity_take(p, key, n, &labels, e));
    int32_t *out = ST_NEW_N(p->arena, int32_t, n);
    uint8_t *train = ST_NEW_N(p->arena, uint8_t, n), *content = ST_NEW_N(p->arena, uint8_t, n);
    if (!out || !train || !content) return st_fail(e, ST_E_NOMEM, "no memory for sample %d", i);
    for (int64_t t = 0; t < n; t++) {
        if (!(ids[t] >= 0 && ids[t] <= INT32_MAX))
            return st_fail(e, ST_E_DATA, "%s: sample %d has the id %g at token %lld", p->dir, i, ids[t], (long long)t);
        out[t] = (int32_t)ids[t];
        train[t] = labels[t] != IGNORED;
        if (train[t] && labels[t] != ids[t])
            return st_fail(e, ST_E_DATA, "%s: sample %d trains %g at token %lld, whose id is %g", p->dir, i, labels[t],
                           (long long)t, ids[t]);
    }
    *q = (st_prepared){.n = (int32_t)n, .ids = out, .train = train, .content = content, .index = i, .id = "reference"};
    return ST_OK;
}

/* Runs of picture placeholders from the token types, each with its grid in tokens (patches are merged 2 x 2). */
static int find_runs(st_parity *p, st_parity_samples *s, int32_t i, st_error *e)
{
    st_prepared *q = &s->at[i];
    char key[64];
    double *types, *grid;
    int64_t n_grid = 0, n_values = 0, patches = 0;

    snprintf(key, sizeof key, "s%d.token_type", i);
    ST_TRY(st_parity_take(p, key, q->n, &types, e));
    snprintf(key, sizeof key, "s%d.pixel_values", i);
    ST_TRY(st_parity_get(p, key, &s->values[i], &n_values, NULL, e));
    snprintf(key, sizeof key, "s%d.grid_thw", i);
    ST_TRY(st_parity_get(p, key, &grid, &n_grid, NULL, e));
    n_grid = grid ? n_grid / 3 : 0;
    st_media_run *runs = ST_NEW_N(p->arena, st_media_run, n_grid + 1);
    int32_t(*grids)[3] = st_arena_alloc(p->arena, (size_t)(n_grid + 1) * sizeof *grids);
    if (!runs || !grids) return st_fail(e, ST_E_NOMEM, "no memory for sample %d", i);
    for (int32_t t = 0, k = 0; t < q->n; t++) {
        if (types[t] == 0) continue;
        if (k >= n_grid)
            return st_fail(e, ST_E_DATA, "%s: sample %d has more runs of placeholders than the %lld grids", p->dir, i,
                           (long long)n_grid);
        for (int a = 0; a < 3; a++) {
            if (!(grid[3 * k + a] >= 1 && grid[3 * k + a] <= 65535))
                return st_fail(e, ST_E_DATA, "%s: %s holds %g, a side must be from 1 to 65535", p->dir, key,
                               grid[3 * k + a]);
            grids[k][a] = (int32_t)grid[3 * k + a];
        }
        runs[k] = (st_media_run){
            .first = t, .kind = ST_MEDIA_IMAGE, .item = k, .grid = {grids[k][0], grids[k][1] / 2, grids[k][2] / 2}};
        while (t < q->n && types[t] != 0) t++;
        runs[k].n = t - runs[k].first;
        if (runs[k].n != (int64_t)grids[k][0] * grids[k][1] * grids[k][2] / 4)
            return st_fail(e, ST_E_DATA, "%s: sample %d has %d placeholders for a picture of %d x %d x %d patches",
                           p->dir, i, runs[k].n, grids[k][0], grids[k][1], grids[k][2]);
        patches += (int64_t)grids[k][0] * grids[k][1] * grids[k][2];
        q->n_runs = ++k;
    }
    if (q->n_runs != n_grid)
        return st_fail(e, ST_E_DATA, "%s: sample %d has %d runs of placeholders and %lld grids", p->dir, i, q->n_runs,
                       (long long)n_grid);
    if (patches) s->width = n_values / patches;
    if (patches * s->width != n_values)
        return st_fail(e, ST_E_DATA, "%s: sample %d has %lld pixel values for %lld patches", p->dir, i,
                       (long long)n_values, (long long)patches);
    s->patches += (int32_t)patches;
    q->runs = runs;
    q->n_items = q->n_runs;
    s->grid[i] = grids;
    s->images += q->n_items;
    return ST_OK;
}

int st_parity_samples_read(st_parity *p, st_parity_samples *s, st_error *e)
{
    for (int32_t i = 0; i < p->n_io; i++) s->n += strstr(p->io_list[i].name, ".input_ids") != NULL;
    if (s->n == 0)
        return st_fail(e, ST_E_DATA, "%s: %s has no sample (s0.input_ids, s1.input_ids, ...)", p->dir, p->io_name);
    s->at = ST_NEW_N(p->arena, st_prepared, s->n);
    s->first = ST_NEW_N(p->arena, int64_t, s->n);
    s->values = ST_NEW_N(p->arena, double *, s->n);
    s->grid = st_arena_alloc(p->arena, (size_t)(s->n + 1) * sizeof *s->grid);
    if (!s->at || !s->first || !s->values || !s->grid) return st_fail(e, ST_E_NOMEM, "no memory for %d samples", s->n);
    for (int32_t i = 0; i < s->n; i++) {
        ST_TRY(read_ids(p, i, &s->at[i], e));
        ST_TRY(find_runs(p, s, i, e));
        s->first[i] = s->tokens;
        s->tokens += s->at[i].n;
    }
    return ST_OK;
}

static int place_tokens(st_parity *p, st_prepared *q, int32_t i, st_model *m, const st_worker *w, st_error *e)
{
    int32_t axes = st_model_shape(m)->axes, *pos = ST_NEW_N(p->arena, int32_t, q->n * (axes ? axes : 1));
    int64_t n = (int64_t)axes * q->n;
    double *want, *got = ST_NEW_N(p->arena, double, q->n *(axes ? axes : 1));
    char key[64];

    if (!pos || !got) return st_fail(e, ST_E_NOMEM, "no memory for positions");
    for (int32_t t = 0; t < q->n; t++)
        if (q->ids[t] >= st_model_vocab(m))
            return st_fail(e, ST_E_DATA, "%s: sample %d has the id %d at token %d, the vocabulary has %lld", p->dir, i,
                           q->ids[t], t, (long long)st_model_vocab(m));
    ST_TRY(st_sequence_place(st_model_position(m), axes, w, q, pos));
    q->pos = pos;
    snprintf(key, sizeof key, "s%d.position_ids", i);
    ST_TRY(st_parity_take(p, key, n, &want, e));
    for (int64_t k = 0; k < n; k++) got[k] = pos[k];
    return st_parity_compare(p, key, want, got, n, ST_BY_MAX, 0, e);
}

static int place_pictures(st_parity *p, st_parity_samples *s, int32_t i, st_model *m, const st_worker *w, st_error *e)
{
    const st_instance *encoder = st_model_encoder(m);
    st_prepared *q = &s->at[i];
    st_item *items = ST_NEW_N(p->arena, st_item, q->n_items);
    const double *values = s->values[i];

    if (q->n_items == 0) return ST_OK;
    if (!items) return st_fail(e, ST_E_NOMEM, "no memory for the pictures of sample %d", i);
    if (!values)
        return st_fail(e, ST_E_DATA, "%s: sample %d has %d pictures, but %s has no s%d.pixel_values", p->dir, i,
                       q->n_items, p->io_name, i);
    for (int32_t k = 0; k < q->n_items; k++) {
        st_media md = {.size = sizeof md, .kind = ST_MEDIA_IMAGE, .frames = 1, .patches = values};
        memcpy(md.patch_grid, s->grid[i][k], sizeof md.patch_grid);
        ST_TRY(st_sequence_picture(encoder, w, &md, &items[k]));
        values += items[k].plan.units * s->width;
    }
    q->items = items;
    return ST_OK;
}

int st_parity_samples_pack(st_parity *p, st_parity_samples *s, st_model *m, st_error *e)
{
    st_worker w = {.size = sizeof w, .host = &p->base->host, .arena = p->arena, .error = e};

    ST_TRY(st_row_create(p->arena, st_model_shape(m), &s->row, e));
    for (int32_t i = 0; i < s->n; i++) {
        ST_TRY(place_tokens(p, &s->at[i], i, m, &w, e));
        ST_TRY(place_pictures(p, s, i, m, &w, e));
    }
    return st_parity_samples_fill(p, s, 0, s->n, m, s->row, e);
}

int st_parity_samples_fill(st_parity *p, const st_parity_samples *s, int32_t first, int32_t n, st_model *m,
                           st_packed_row *row, st_error *e)
{
    st_worker w = {.size = sizeof w, .host = &p->base->host, .arena = p->arena, .error = e};

    st_row_clear(row);
    for (int32_t i = first; i < first + n; i++) {
        int fits = 0;
        ST_TRY(st_row_add(row, &s->at[i], &fits, e));
        if (!fits) return st_fail(e, ST_E_INTERNAL, "sample %d does not fit into a row made for it", i);
    }
    return st_sequence_finish(row, st_model_encoder(m), &w);
}
