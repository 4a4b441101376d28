/* SPDX-License-Identifier: Apache-2.0 */
/* data/prepare.h - one record of a data set to a prepared sequence: decode, measure, lay out, cut, place, pixels. */
#ifndef ST_PREPARE_H
#define ST_PREPARE_H
#include "data/chat.h"
#include "data/image.h"
#include "plugin/registry.h"

typedef struct st_preparer { /* read-only while data workers run */
    const st_base *base;
    const st_row_shape *shape;
    const st_tokenizer *tokenizer;
    st_chat chat;
    st_image_rules image;
    int64_t vocab;
    st_dataset_ops dataset;
    const void *dataset_self;
    st_position_ops position;
    const void *position_self; /* NULL: none */
    st_encoder_ops encoder;
    const void *encoder_self; /* NULL: none */
} st_preparer;

/* Record `index`, all memory from the arena. prompt 1: only up to the first trained token. text, n_text: the trained
 * text.
 *
 * Too long for a row: tokens are cut off at the end if every placeholder and a trained token stay, else the sample is
 * set aside. ST_E_DATA: set aside. */
int st_prepare(const st_preparer *, int64_t index, int prompt, st_arena *, st_prepared *, const char **text,
               size_t *n_text, st_error *);

/* The outcome for one record in one block of memory, so that it can be kept. */
typedef struct st_kept_sample {
    size_t bytes; /* of the block                                          */
    int32_t code; /* ST_OK, or why there is none; then `error` holds the words, without the record's name */
    st_prepared p; /* also then with index and id                          */
    st_error *error;
} st_kept_sample;
/* "record 12 (receipt_00012.png): what is wrong" */
void st_prepare_name(st_error *, const st_prepared *);
st_kept_sample *st_prepare_kept(const st_preparer *, int64_t index); /* malloc'd; NULL: no memory at all */
#endif
