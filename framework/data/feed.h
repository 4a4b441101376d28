/* SPDX-License-Identifier: Apache-2.0 */
/* data/feed.h - records in their order, prepared ahead by threads, kept in memory while there is room.
 *
 * Order: epoch e of a shuffled feed is the permutation number e of the records, drawn from the seed alone. A place is
 * (epoch, next), so where work was done ahead, by how many threads, or what was kept never shows in what comes out. */
#ifndef ST_FEED_H
#define ST_FEED_H
#include "data/prepare.h"
#include <pthread.h>

typedef struct st_feed_settings {
    uint64_t seed;
    int64_t count, cache;
    int32_t shuffle, background;
    st_threads *threads;
} st_feed_settings;
typedef struct st_feed st_feed;

int st_feed_open(const st_preparer *, const st_feed_settings *, st_feed **, st_error *);
void st_feed_close(st_feed *);
void st_feed_place(const st_feed *, uint64_t *epoch, int64_t *next);
void st_feed_go(st_feed *, uint64_t epoch, int64_t next); /* the following peek starts there */
/* The sample at the place, valid until the next call of a function of the feed with `st_feed *`; *record: its index.
 * NULL with *end 1: an unshuffled feed has given all. NULL with *end 0: no memory. hint: about so many will be asked
 * for in a row. */
const st_kept_sample *st_feed_peek(st_feed *, int32_t hint, int64_t *record, int *end);
void st_feed_pop(st_feed *);
/* Any record, out of order. *owned: the caller frees it. */
const st_kept_sample *st_feed_record(st_feed *, int64_t record, st_kept_sample **owned);
/* Lets a thread of the feed prepare the next `n` samples while the caller does something else. */
void st_feed_ahead(st_feed *, int32_t n);
#endif
