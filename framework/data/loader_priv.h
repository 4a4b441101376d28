/* SPDX-License-Identifier: Apache-2.0 */
/* data/loader_priv.h - shared by loader.c (opening), look.c (a glance) and fill.c (rows). */
#ifndef ST_LOADER_PRIV_H
#define ST_LOADER_PRIV_H
#include "data/feed.h"
#include "data/loader.h"

enum { ST_ON_BAD_STOP = 0, ST_ON_BAD_SKIP };
typedef struct st_data_keys {
    int64_t max_bad, workers, cache, max_image_pixels;
    int32_t on_bad, prefetch, alpha;
} st_data_keys;

struct st_loader {
    st_arena *arena;
    st_data_context context;
    const char *section;
    st_data_keys keys;
    st_tokenizer *tokenizer;
    st_instance instance;
    int32_t opened;
    st_preparer preparer;
    st_threads *threads; /* NULL: the host's                                                          */
    st_feed *feed;
    int64_t count;
    int32_t shuffle, permute, end_of_turn;
    int32_t last_used; /* samples of the last step: as many are made ready for the next one         */
    int64_t seen, bad; /* samples packed; records set aside in the first epoch (unshuffled: in this pass) */
    uint8_t *told;     /* [count] the record's fault was told                                       */
    int64_t n_told;
    int32_t lines, told_cut; /* lines of the log about such records; that a sample was cut          */
    st_bad_fn on_bad;
    void *on_bad_ctx;
};

/* look.c: why a run cannot go on with its records. They return the error's code. */
int st_loader_unusable(const st_loader *, const st_look *, st_error *);
int st_loader_too_many(const st_loader *, int64_t bad, const st_error *last, st_error *);
int st_loader_stopped(const st_loader *, const st_error *named, st_error *);
#endif
