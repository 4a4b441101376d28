/* SPDX-License-Identifier: Apache-2.0 */
/* model/pack.c - what follows from the sequences of a row: borders, shifted depths, lists of trained slots, orders,
 * work lists. */
#include "config.h"
#include "model/row.h"

#include <stdlib.h>
#include <string.h>

/* Borders of the real segments, then the filler segment that takes the tail, then empty ones. */
static void finish_segments(st_packed_row *r)
{
    int32_t n = st_shape_segments(&r->shape);
    r->segments[r->n_sequences] = r->n_tokens;
    for (int32_t i = r->n_sequences + 1; i <= n; i++) r->segments[i] = r->shape.tokens;
}

/* Depth k: every slot holds the token, label and feature k places on, inside its segment; behind the end there is
 * nothing. */
static void shift(st_packed_row *r, int32_t k)
{
    size_t base = (size_t)k * (size_t)r->shape.tokens;
    for (int32_t s = 0; s < r->n_sequences; s++) {
        for (int32_t i = r->segments[s]; i + k < r->segments[s + 1]; i++) {
            r->ids[base + (size_t)i] = r->ids[i + k];
            r->labels[base + (size_t)i] = r->labels[i + k];
            r->media[base + (size_t)i] = r->media[i + k];
        }
    }
}

static void list_trained(st_packed_row *r, int32_t k)
{
    size_t base = (size_t)k * (size_t)r->shape.tokens;
    int32_t n = 0;
    for (int32_t i = 0; i < r->shape.tokens; i++)
        if (r->labels[base + (size_t)i] >= 0) r->trained[base + (size_t)n++] = i;
    r->trained_count[k] = n;
}

static int by_id(const void *a, const void *b, void *ids)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b, ix = ((const int32_t *)ids)[x],
            iy = ((const int32_t *)ids)[y];
    return ix != iy ? (ix < iy ? -1 : 1) : x < y ? -1 : x > y;
}

static void sort_slots(st_packed_row *r, int32_t k) /* no two slots compare equal, so any sort is stable */
{
    size_t base = (size_t)k * (size_t)r->shape.tokens;
    for (int32_t i = 0; i < r->shape.tokens; i++) r->order[base + (size_t)i] = i;
    qsort_r(r->order + base, (size_t)r->shape.tokens, sizeof *r->order, by_id, r->ids + base);
}

/* Attention sees real segments only: filler rows stand in no span and come out as 0. */
static void finish_spans(st_packed_row *r)
{
    int32_t n = st_shape_segments(&r->shape);
    memset(r->spans, 0, sizeof *r->spans * 4 * (size_t)n);
    for (int32_t s = 0; s < r->n_sequences; s++) {
        int32_t begin = r->segments[s], len = r->segments[s + 1] - begin;
        r->spans[s] = r->spans[2 * n + s] = begin;
        r->spans[n + s] = r->spans[3 * n + s] = len;
    }
}

static void finish_tiles(st_packed_row *r, int i)
{
    int32_t capacity = st_shape_tile_capacity(&r->shape, i), size = r->shape.tile[i], n = 0, *t = r->tiles[i];
    memset(t, 0, sizeof *t * 3 * (size_t)capacity);
    for (int32_t s = 0; s <= r->n_sequences; s++) { /* the filler segment too: its rows must hold finite values */
        for (int32_t at = r->segments[s]; at < r->segments[s + 1]; at += size, n++) {
            int32_t left = r->segments[s + 1] - at;
            t[3 * n] = s;
            t[3 * n + 1] = at;
            t[3 * n + 2] = left < size ? left : size;
        }
    }
}

int st_row_finish(st_packed_row *r, const st_encoder_ops *encoder, const void *encoder_self, const st_worker *worker,
                  st_error *e)
{
    finish_segments(r);
    for (int32_t k = 0; k <= r->shape.depths; k++) {
        if (k > 0) shift(r, k);
        list_trained(r, k);
        sort_slots(r, k);
    }
    finish_spans(r);
    for (int i = 0; i < r->shape.n_tiles; i++) finish_tiles(r, i);
    if (!encoder || !r->shape.media) return ST_OK;
    memset(r->meta, 0, sizeof *r->meta * (size_t)r->shape.caps.meta);
    int rc = encoder->collate(encoder_self, worker, &r->shape.caps, r->plans, r->n_items, r->meta);
    return rc == ST_OK || e->code != ST_OK
               ? rc
               : st_fail(e, rc, "the encoder cannot describe the %d pictures of a row", r->n_items);
}
