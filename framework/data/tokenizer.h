/* SPDX-License-Identifier: Apache-2.0 */
/* data/tokenizer.h - tokenizer.json, byte-level BPE (HuggingFace tokenizers format). Thread-safe once opened. */
#ifndef ST_TOKENIZER_H
#define ST_TOKENIZER_H
#include "base/base.h"

typedef struct st_tokenizer st_tokenizer;
typedef struct st_tokens { int32_t n; int32_t *ids; uint32_t *begin, *end; } st_tokens; /* byte range in the input */
int st_tokenizer_open(const char *path, st_tokenizer **, st_error *);
void st_tokenizer_close(st_tokenizer *);
int32_t st_tokenizer_size(const st_tokenizer *);             /* largest id + 1 */
int32_t st_tokenizer_id(const st_tokenizer *, const char *token); /* added tokens and pieces; -1 */
/* The bytes that an id stands for, which may be a part of a character; NULL: none does. */
const char *st_tokenizer_piece(const st_tokenizer *, int32_t id, size_t *n);
/* special 0: added tokens marked special are plain text in it, so data cannot forge a turn; other added tokens (label
 * tags, <think>) are matched as always. */
int st_tokenizer_encode(const st_tokenizer *, const char *text, size_t n, int special, st_arena *, st_tokens *,
                        st_error *);
/* Tokenizer NULL: the ids as numbers. */
int st_tokenizer_decode(const st_tokenizer *, const int32_t *ids, int32_t n, int skip_special, st_buf *, st_error *);
#endif
