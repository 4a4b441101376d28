/* SPDX-License-Identifier: Apache-2.0 */
/* model/row.h - the host form of a packed row and how sequences get into it. The model uploads it to fixed addresses. */
#ifndef ST_ROW_H
#define ST_ROW_H
#include "base/base.h"
#include <strata/encoder.h>

/* Capacities, from [batch] and the model; the same for every row of a run. */
typedef struct st_row_shape {
    int32_t tokens, sequences, max_len, axes, depths; /* sequences: real ones; the filler segment is one more */
    int32_t n_tiles, tile[8];       /* work lists asked for by layers (tile sizes)                          */
    int32_t media;                  /* 1: an encoder is there and `caps` holds                              */
    st_media_caps caps;
} st_row_shape;
static inline int32_t st_shape_segments(const st_row_shape *s) { return s->sequences + 1; }
static inline int32_t st_shape_tile_capacity(const st_row_shape *s, int i)
{
    return s->tokens / s->tile[i] + s->sequences + 2;
}

/* One tokenised sample, ready to be packed. labels: target of slot i is ids[i + 1] where train[i + 1]. */
typedef struct st_item { st_media_plan plan; const void *payload; } st_item; /* payload NULL: another rank owns it */
typedef struct st_prepared {
    int32_t n, n_runs, n_items;
    const int32_t *ids;             /* [n]                                                                  */
    const uint8_t *train, *content; /* [n] the token is a trained target / is scored as content            */
    const int32_t *pos;             /* [axes][n]                                                            */
    const st_media_run *runs; const st_item *items;
    int64_t index;                  /* record, for messages; -1 none                                        */
    const char *id;
    int32_t cut;                    /* tokens cut off at its end, because a row takes no more               */
} st_prepared;

/* Members as st_row (strata/step.h), tightly stored; addresses fixed for the life of the row. */
typedef struct st_packed_row {
    st_row_shape shape;
    int32_t n_tokens, n_sequences, n_items; /* real ones                                                    */
    int64_t *trained_count;         /* [1 + depths]                                                         */
    int32_t *ids, *labels, *trained, *media, *order; /* [1 + depths][tokens]                                */
    uint8_t *real, *content;        /* [tokens]; content of the target at the slot (host only)              */
    int32_t *pos;                   /* [axes][tokens]                                                       */
    int32_t *segments;              /* [sequences + 2]                                                      */
    int32_t *to_time, *from_time;   /* [tokens]                                                             */
    int32_t *spans;                 /* [4][sequences + 1]                                                   */
    int32_t *tiles[8];              /* [capacity][3]                                                        */
    uint8_t *payload; int32_t *meta; /* encoder batch                                                       */
    st_media_plan *plans;           /* [caps.items] of the items in this row, in order                      */
    int64_t *sample;                /* [sequences] record index                                             */
} st_packed_row;
/* Whether it fits an empty row of this shape; payloads are not looked at. */
int st_row_check(const st_row_shape *, const st_prepared *, st_error *);
int st_row_create(st_arena *, const st_row_shape *, st_packed_row **, st_error *);
size_t st_row_bytes(const st_row_shape *); /* of the host's memory that one takes */
void st_row_clear(st_packed_row *);
/* ST_OK and *fits 0 when it does not fit beside what is there. A sequence that can never fit is ST_E_DATA. */
int st_row_add(st_packed_row *, const st_prepared *, int *fits, st_error *);
/* Shifted depths, order, trained lists, spans, tiles, filler; encoder->collate for meta. encoder NULL: text only. */
int st_row_finish(st_packed_row *, const st_encoder_ops *, const void *encoder_self, const st_worker *, st_error *);
#endif
