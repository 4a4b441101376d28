/* SPDX-License-Identifier: Apache-2.0 */
/* data/chat.h - turns of a sample to tokens, by the texts of [chat]; which of them are trained is known from the
 * layout itself.
 *
 * A turn is ROLE_begin, its parts, ROLE_end. Texts of [chat] may hold \n \t \r \s (a blank) and \\. Texts of the
 * layout are tokenised with special tokens recognised, consecutive ones as one text; every text of the data is
 * tokenised alone and with special tokens off, so no text can forge a turn and a trained answer is exactly the tokens
 * of its text. In a trained turn the answer and the first token of ROLE_end are targets. `think` adds to assistant
 * turns behind the last user turn: nothing (none), the block think_begin think_end (empty), or the sample's own
 * reasoning in it, trained (keep; empty without one). */
#ifndef ST_CHAT_H
#define ST_CHAT_H
#include "model/row.h"
#include "data/tokenizer.h"
#include "spec/spec.h"
#include <strata/dataset.h>

enum { ST_THINK_NONE = 0, ST_THINK_EMPTY, ST_THINK_KEEP };
typedef struct st_chat {
    const char *system_begin, *system_end, *user_begin, *user_end, *assistant_begin, *assistant_end, *think_begin,
        *think_end;
    const char *system; /* text of a system turn for samples that have none; NULL: no such turn       */
    const char *prompt; /* text of user turns that have none (a picture alone); NULL: nothing         */
    int32_t think;
} st_chat;

/* Binds [chat]; every <|name|> in its texts must be a token. */
int st_chat_bind(st_spec *, const st_tokenizer *, st_chat *, st_diags *);
int st_chat_key_tables(const st_key_table **); /* its keys; -> how many */
int32_t st_chat_end_of_turn(const st_chat *, const st_tokenizer *); /* first token of assistant_end; -1: none */

/* What lays out media: an encoder, and the measured items of the sample in order. */
typedef struct st_chat_media {
    const st_media *media;
    const st_media_plan *plan;
    int32_t n;
    const st_encoder_ops *ops;
    const void *self;
} st_chat_media;
typedef struct st_laid {
    int32_t n, n_runs;
    int32_t *ids;
    uint8_t *train, *content; /* [n] */
    st_media_run *runs;
    const char *answer;
    size_t n_answer; /* text of the first trained turn */
} st_laid;
/* Memory from the worker's arena. ST_E_DATA: a sample that this layout cannot hold, or that trains nothing. */
int st_chat_layout(const st_chat *, const st_tokenizer *, const st_worker *, const st_sample *, const st_chat_media *,
                   st_laid *);
/* The placeholder tokens that the encoder will ask for exist: lays out one picture. */
int st_chat_check_media(const st_tokenizer *, const st_worker *, const st_encoder_ops *, const void *self);
#endif
