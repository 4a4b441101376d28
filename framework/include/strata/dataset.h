/* SPDX-License-Identifier: Apache-2.0 */
/* strata/dataset.h - where samples come from. All after that (chat layout, tokens, masks, packing, order) is the host's. */
#ifndef STRATA_DATASET_H
#define STRATA_DATASET_H
#include <strata/plugin.h>

enum { ST_PART_TEXT = 1, ST_PART_IMAGE, ST_PART_VIDEO };
typedef struct st_text_mark { uint32_t first, n; } st_text_mark; /* bytes of a part's text; never grows                      */
typedef struct st_part {            /* text UTF-8, not terminated; media: encoded bytes, or a path. Never grows               */
    int32_t type, n_marks;
    const st_text_mark *marks;      /* (optional) what only the media can tell: tokens that touch a mark are also scored apart,
                                     * as "content", in evaluation; sorted                                                 */
    const char *text, *path; size_t n_text;
    const uint8_t *bytes; size_t n_bytes;
} st_part;
typedef struct st_turn { const char *role, *reasoning; const st_part *parts; int32_t n_parts, train; } st_turn; /* never grows */
typedef struct st_sample {          /* memory: the worker's arena, static, or the dataset's for its life                      */
    uint32_t size;
    int32_t n_turns, n_ids;
    const char *id;                 /* shown when it is set aside                                                             */
    const st_turn *turns;           /* a chat,                                                                                */
    const int32_t *ids; const uint8_t *train; /* or ready tokens [n_ids] with their mask                                      */
} st_sample;
typedef struct st_dataset_ops {
    uint32_t size, pad;
    int (*open)(void *self, const st_worker *, const char *split);              /* may read files; no network. A failure whose words
                                                                                 * begin "KEY = " is shown at that key        */
    int64_t (*count)(const void *self);                                         /* -1: stream                                 */
    int (*get)(const void *self, const st_worker *, int64_t index, st_sample *); /* same answer for ever; ST_E_DATA: set aside */
    int (*next)(void *self, const st_worker *, st_sample *);                    /* ST_CAP_STREAM; one thread                  */
    int (*save)(const void *self, void *buf, size_t *n);                        /* place in the stream; at most *n bytes      */
    int (*restore)(void *self, const st_worker *, const void *buf, size_t n);
    int (*score)(const void *self, int64_t index, const char *answer, double *sums, int32_t n); /* (optional) task metric     */
    void (*close)(void *self);                                                  /* (optional)                                 */
    int64_t (*ids)(const void *self);                                           /* (optional) ready ids of all records are below
                                                                                 * this; 0: they are text                    */
} st_dataset_ops;
#endif
