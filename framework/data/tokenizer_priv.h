/* SPDX-License-Identifier: Apache-2.0 */
/* data/tokenizer_priv.h - the tables of an opened tokenizer; shared by tokenizer*.c only. */
#ifndef ST_TOKENIZER_PRIV_H
#define ST_TOKENIZER_PRIV_H
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "data/tokenizer.h"

/* Open-addressing table of strings -> id. Keys live in the tokenizer's arena. */
typedef struct st_text_slot {
    const char *text;
    uint32_t n;
    int32_t id;
} st_text_slot;
typedef struct st_text_map {
    st_text_slot *slot;
    uint32_t mask;
} st_text_map;

/* (left, right) -> the rank of the merge and what it makes. */
typedef struct st_merge {
    int32_t left, right, rank, id;
} st_merge; /* left -1: free slot */
typedef struct st_merge_map {
    st_merge *slot;
    uint32_t mask;
} st_merge_map;

typedef struct st_added {
    const char *text;
    uint32_t n;
    int32_t id;
    uint8_t special, single_word, lstrip, rstrip, normalized;
} st_added;
/* Tokens cut out before BPE: from the raw text, or from the normalised one. Longest first within a first byte. */
typedef struct st_added_set {
    const st_added *item;
    int32_t n;
    int32_t first[257];
} st_added_set;

enum { ST_STAGE_SPLIT = 1, ST_STAGE_BYTES };
typedef struct st_stage {
    int32_t kind, prefix_space;
    pcre2_code *code;
} st_stage; /* BYTES: code NULL when use_regex is off */

enum { ST_ID_FREE = 0, ST_ID_PIECE, ST_ID_ADDED, ST_ID_SPECIAL };
struct st_tokenizer {
    st_arena *arena;
    int32_t size;
    uint8_t *id_kind; /* [size] ST_ID_*                                        */
    const char **id_bytes;
    uint32_t *id_n;          /* [size] what decoding writes                   */
    st_text_map names;       /* pieces and added tokens as the file spells them       */
    uint32_t byte_char[256]; /* how every byte is spelled in names              */
    int32_t byte_id[256];    /* piece of every single byte                            */
    st_merge_map merges;
    st_added_set raw, normal;
    st_stage *stage;
    int32_t n_stages;
    int32_t nfc, ignore_merges;
};

/* A stretch of text and, per byte, the range of input bytes it came from. */
typedef struct st_span_text {
    const char *text;
    size_t n;
    const uint32_t *begin, *end;
} st_span_text;

/* tokenizer_json.c */
int st_tokenizer_parse(st_tokenizer *, const char *path, const char *json, size_t n, st_error *);
const st_merge *st_merge_find(const st_merge_map *, int32_t left, int32_t right);
const st_text_slot *st_text_find(const st_text_map *, const char *text, size_t n);
/* tokenizer_bytes.c */
void st_byte_alphabet(uint32_t to_char[256], int16_t to_byte[512]); /* -1: not of the alphabet */
/* tokenizer_nfc.c */
int st_nfc(const char *text, size_t n, uint32_t offset, st_arena *, st_span_text *out);
int32_t st_utf8_read(const char *text, size_t n, int32_t *cp); /* valid UTF-8 only -> bytes read */
int st_utf8_write(int32_t cp, char out[4]);                    /* -> bytes written               */
bool st_is_space(int32_t cp);
bool st_is_word(int32_t cp);
#endif
