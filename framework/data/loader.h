/* SPDX-License-Identifier: Apache-2.0 */
/* data/loader.h - records of a dataset plugin to packed rows, in a seeded order, with exact save and restore of the
 * place. */
#ifndef ST_LOADER_H
#define ST_LOADER_H
#include "model/row.h"
#include "data/tokenizer.h"
#include "plugin/registry.h"

typedef struct st_data_context {   /* what all loaders of a run share                                        */
    st_base *base; st_spec *spec; st_registry *registry;
    const st_row_shape *shape;             /* NULL: there is no model, a loader only finds mistakes          */
    const st_instance *position, *encoder; /* NULL: none                                                     */
    int64_t vocab;                         /* 0: not known                                                   */
    uint64_t seed;
} st_data_context;
typedef struct st_loader st_loader;
/* The keys that this room reads, for `strata inspect --spec`; -> how many. */
int st_data_key_tables(const st_key_table **);
/* section: "dataset.train" or "dataset.valid". Binds it, [tokenizer], [chat], [data]; checks all first. */
int st_loader_open(const st_data_context *, const char *section, int shuffle, st_loader **, st_diags *);
void st_loader_close(st_loader *);
int64_t st_loader_count(const st_loader *);
/* What its prepared samples are going to take, [data] cache at most: by a few records that are prepared for it. */
int64_t st_loader_samples_bytes(const st_loader *);
const st_tokenizer *st_loader_tokenizer(const st_loader *); /* NULL: data of ready ids and no [tokenizer] */
const st_host *st_loader_host(const st_loader *);
int32_t st_loader_end_of_turn(const st_loader *); /* id of the token that ends a trained turn; -1: none */
/* Fills rows[0 .. n) for one step. At the end of an unshuffled pass *end = 1 and later rows are empty; a shuffled
 * loader goes on for ever (new order each epoch). max_sequences: 0 = as many as fit, else at most so many samples in
 * these rows together. */
int st_loader_next(st_loader *, st_packed_row *const *rows, int32_t n, int32_t max_sequences, int *end, st_error *);
void st_loader_rewind(st_loader *);
/* Every sample keeps its text but gets the media of the next sample with the same grids (control for "does it
 * look?"). */
void st_loader_permute_media(st_loader *, int on);
typedef struct st_loader_state { uint64_t epoch; int64_t next; int64_t seen, bad; } st_loader_state;
void st_loader_save(const st_loader *, st_loader_state *);
int st_loader_restore(st_loader *, const st_loader_state *, st_error *);
/* A record that was set aside, when it comes by for the first time. reason: without the record's name. */
typedef struct st_bad_sample {
    const char *section, *id, *reason;
    int64_t record;
} st_bad_sample;
typedef int (*st_bad_fn)(void *ctx, const st_bad_sample *, st_error *); /* not ST_OK ends st_loader_next */
void st_loader_on_bad(st_loader *, st_bad_fn, void *ctx);
void st_loader_known_bad(st_loader *, int64_t record); /* told in an earlier part of the run: not again */
int64_t st_loader_told(const st_loader *);             /* how many records were, known ones too */
/* Prepares records in the loader's order until their usable ones have `tokens` tokens, or `most` were looked at; the place
 * stays. Refused as a run would: the first that is bad where [data] on_bad = stop, more than max_bad, and, in a shuffled
 * loader, none that can be used. */
typedef struct st_look {
    int64_t looked, usable, bad, tokens;
    int32_t n_named;
    st_error named[3]; /* the first faults, with their records' names */
} st_look;
int st_loader_look(st_loader *, int64_t tokens, int64_t most, st_look *, st_error *);
/* One record by index, for display, generation and tests. prompt 1: only up to the first trained token. *text: the
 * trained text. */
int st_loader_sample(st_loader *, int64_t index, int prompt, st_arena *, st_prepared *out, const char **text,
                     st_error *);
#endif
