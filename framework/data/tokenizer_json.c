/* SPDX-License-Identifier: Apache-2.0 */
/* data/tokenizer_json.c - tokenizer.json to tables. What would change ids and is not offered is refused by its name. */
#include "data/tokenizer_priv.h"

#include <jansson.h>
#include <stdlib.h>

enum { MOST_IDS = 1 << 22 };

/* Everything a parsing function needs. */
typedef struct parse {
    st_tokenizer *t;
    const char *path;
    st_error *error;
    uint32_t to_char[256];
    int16_t to_byte[512];
} parse;

#define REFUSE(p, code, ...) st_fail_at((p)->error, (code), (p)->path, 0, 0, __VA_ARGS__)

/* ---- tables ---- */

static uint32_t table_mask(size_t n) /* at most half full */
{
    uint32_t size = 16;
    while (size < 2 * n) size *= 2;
    return size - 1;
}

static st_text_slot *text_place(const st_text_map *m, const char *text, size_t n)
{
    for (uint32_t i = (uint32_t)st_hash64(text, n, 1) & m->mask;; i = (i + 1) & m->mask) {
        st_text_slot *s = &m->slot[i];
        if (!s->text || (s->n == n && memcmp(s->text, text, n) == 0)) return s;
    }
}

const st_text_slot *st_text_find(const st_text_map *m, const char *text, size_t n)
{
    const st_text_slot *s = text_place(m, text, n);
    return s->text ? s : NULL;
}

static uint32_t merge_hash(int32_t left, int32_t right)
{
    uint64_t x = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(x >> 32);
}

static st_merge *merge_place(const st_merge_map *m, int32_t left, int32_t right)
{
    for (uint32_t i = merge_hash(left, right) & m->mask;; i = (i + 1) & m->mask) {
        st_merge *s = &m->slot[i];
        if (s->left < 0 || (s->left == left && s->right == right)) return s;
    }
}

const st_merge *st_merge_find(const st_merge_map *m, int32_t left, int32_t right)
{
    const st_merge *s = merge_place(m, left, right);
    return s->left < 0 ? NULL : s;
}

/* ---- small readers ---- */

static bool is_given(const json_t *v) { return v && !json_is_null(v); }

static const char *type_of(const json_t *object) /* the "type" of a part, or a word for messages */
{
    const char *s = json_string_value(json_object_get(object, "type"));
    return s ? s : "a part without \"type\"";
}

static int read_flag(parse *p, const json_t *object, const char *key, bool unset, const char *where, bool *out)
{
    const json_t *v = json_object_get(object, key);
    *out = unset;
    if (!is_given(v)) return ST_OK;
    if (!json_is_boolean(v)) return REFUSE(p, ST_E_CONFIG, "%s: \"%s\" must be true or false", where, key);
    *out = json_is_true(v);
    return ST_OK;
}

/* ---- vocabulary ---- */

/* The bytes behind a piece. A piece with a character outside the byte alphabet stands for its own UTF-8. */
static int keep_bytes(parse *p, int32_t id, const char *text, size_t n)
{
    char *out = st_arena_alloc(p->t->arena, n + 1);
    size_t k = 0;
    if (!out) return REFUSE(p, ST_E_NOMEM, "no memory for the vocabulary");
    for (size_t i = 0; i < n;) {
        int32_t cp;
        i += (size_t)st_utf8_read(text + i, n - i, &cp);
        if (cp >= 512 || p->to_byte[cp] < 0) {
            memcpy(out, text, n);
            k = n;
            break;
        }
        out[k++] = (char)p->to_byte[cp];
    }
    p->t->id_bytes[id] = out;
    p->t->id_n[id] = (uint32_t)k;
    return ST_OK;
}

static int name_id(parse *p, const char *text, size_t n, int32_t id)
{
    st_text_slot *s = text_place(&p->t->names, text, n);
    if (s->text && s->id != id) return REFUSE(p, ST_E_CONFIG, "token '%.60s' has two ids, %d and %d", text, s->id, id);
    char *copy = st_arena_strndup(p->t->arena, text, n);
    if (!copy) return REFUSE(p, ST_E_NOMEM, "no memory for the vocabulary");
    *s = (st_text_slot){copy, (uint32_t)n, id};
    return ST_OK;
}

static int check_id(parse *p, const json_t *v, const char *what, int32_t *id)
{
    json_int_t x = json_integer_value(v);
    if (!json_is_integer(v) || x < 0 || x >= MOST_IDS)
        return REFUSE(p, ST_E_CONFIG, "the id of token '%.60s' must be an integer from 0 to %d", what, MOST_IDS - 1);
    *id = (int32_t)x;
    return ST_OK;
}

/* Largest id + 1, and room for as many. */
static int measure_ids(parse *p, json_t *vocab, const json_t *added)
{
    const char *key;
    json_t *v;
    size_t i;
    int32_t id, size = 0;
    json_object_foreach(vocab, key, v)
    {
        ST_TRY(check_id(p, v, key, &id));
        if (id >= size) size = id + 1;
    }
    json_array_foreach(added, i, v)
    {
        const char *text = json_string_value(json_object_get(v, "content"));
        if (!text || !*text) return REFUSE(p, ST_E_CONFIG, "added_tokens[%zu] has no \"content\"", i);
        ST_TRY(check_id(p, json_object_get(v, "id"), text, &id));
        if (id >= size) size = id + 1;
    }
    st_tokenizer *t = p->t;
    size_t names = json_object_size(vocab) + json_array_size(added);
    t->size = size;
    t->id_kind = ST_NEW_N(t->arena, uint8_t, size);
    t->id_bytes = ST_NEW_N(t->arena, const char *, size);
    t->id_n = ST_NEW_N(t->arena, uint32_t, size);
    t->names.mask = table_mask(names);
    t->names.slot = ST_NEW_N(t->arena, st_text_slot, (size_t)t->names.mask + 1);
    if (!t->id_kind || !t->id_bytes || !t->id_n || !t->names.slot)
        return REFUSE(p, ST_E_NOMEM, "no memory for %d tokens", size);
    return ST_OK;
}

static int read_vocab(parse *p, json_t *vocab)
{
    st_tokenizer *t = p->t;
    const char *key;
    json_t *v;
    json_object_foreach(vocab, key, v)
    {
        int32_t id = (int32_t)json_integer_value(v);
        if (t->id_kind[id] != ST_ID_FREE)
            return REFUSE(p, ST_E_CONFIG, "id %d stands for two pieces, one is '%.60s'", id, key);
        t->id_kind[id] = ST_ID_PIECE;
        ST_TRY(name_id(p, key, strlen(key), id));
        ST_TRY(keep_bytes(p, id, key, strlen(key)));
    }
    for (int b = 0; b < 256; b++) {
        char text[4];
        size_t n = (size_t)st_utf8_write((int32_t)p->to_char[b], text);
        const st_text_slot *s = st_text_find(&t->names, text, n);
        if (!s) return REFUSE(p, ST_E_CONFIG, "the vocabulary has no piece for byte 0x%02X ('%.*s')", b, (int)n, text);
        t->byte_id[b] = s->id;
    }
    return ST_OK;
}

/* ---- merges ---- */

static int split_merge(const json_t *v, const char **left, size_t *nl, const char **right, size_t *nr)
{
    if (json_is_array(v)) { /* ["a","b"] */
        const json_t *l = json_array_get(v, 0), *r = json_array_get(v, 1);
        if (json_array_size(v) != 2 || !json_is_string(l) || !json_is_string(r)) return ST_E_CONFIG;
        *left = json_string_value(l);
        *nl = json_string_length(l);
        *right = json_string_value(r);
        *nr = json_string_length(r);
    } else { /* "a b" */
        const char *text = json_string_value(v), *blank = text ? strchr(text, ' ') : NULL;
        if (!blank || strchr(blank + 1, ' ')) return ST_E_CONFIG;
        *left = text;
        *nl = (size_t)(blank - text);
        *right = blank + 1;
        *nr = strlen(blank + 1);
    }
    return *nl && *nr ? ST_OK : ST_E_CONFIG;
}

static int read_merge(parse *p, const json_t *v, int32_t rank, st_buf *joined)
{
    const char *left, *right;
    size_t nl, nr;
    if (split_merge(v, &left, &nl, &right, &nr) != ST_OK)
        return REFUSE(p, ST_E_CONFIG, "model.merges[%d] must be \"a b\" or [\"a\", \"b\"]", rank);
    joined->n = 0;
    st_buf_add(joined, left, nl);
    st_buf_add(joined, right, nr);
    if (joined->failed) return REFUSE(p, ST_E_NOMEM, "no memory for merges");
    const st_text_slot *l = st_text_find(&p->t->names, left, nl), *r = st_text_find(&p->t->names, right, nr);
    const st_text_slot *m = st_text_find(&p->t->names, joined->data, joined->n);
    if (!l || !r || !m)
        return REFUSE(p, ST_E_CONFIG, "model.merges[%d]: '%.*s' is not in the vocabulary", rank,
                      (int)(!l   ? nl
                            : !r ? nr
                                 : joined->n),
                      !l   ? left
                      : !r ? right
                           : joined->data);
    *merge_place(&p->t->merges, l->id, r->id) = (st_merge){l->id, r->id, rank, m->id};
    return ST_OK;
}

static int read_merges(parse *p, const json_t *merges)
{
    st_tokenizer *t = p->t;
    size_t n = json_array_size(merges), i;
    json_t *v;
    st_buf joined = {0};
    int rc = ST_OK;
    if (n == 0)
        return REFUSE(p, ST_E_CONFIG,
                      "model.merges is empty or missing: every text would fall apart into single bytes");
    if (n > MOST_IDS)
        return REFUSE(p, ST_E_CONFIG, "model.merges has %zu entries, at most %d are possible", n, MOST_IDS);
    t->merges.mask = table_mask(n);
    t->merges.slot = ST_NEW_N(t->arena, st_merge, (size_t)t->merges.mask + 1);
    if (!t->merges.slot) return REFUSE(p, ST_E_NOMEM, "no memory for %zu merges", n);
    for (uint32_t k = 0; k <= t->merges.mask; k++) t->merges.slot[k].left = -1;
    json_array_foreach(merges, i, v)
    {
        rc = read_merge(p, v, (int32_t)i, &joined);
        if (rc != ST_OK) break;
    }
    st_buf_free(&joined);
    return rc;
}

static int refuse_text(parse *p, const json_t *model, const char *key) /* null or "" is all that is known */
{
    const json_t *v = json_object_get(model, key);
    if (!is_given(v) || (json_is_string(v) && json_string_length(v) == 0)) return ST_OK;
    return REFUSE(p, ST_E_UNSUPPORTED, "model.%s is set: not offered", key);
}

static int read_model(parse *p, const json_t *root)
{
    json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    const json_t *type = json_object_get(model, "type"), *dropout = json_object_get(model, "dropout");
    const json_t *merges = json_object_get(model, "merges");
    bool fallback, ignore;
    if (!json_is_object(model)) return REFUSE(p, ST_E_CONFIG, "\"model\" is missing: not a tokenizer.json");
    if (is_given(type) && (!json_is_string(type) || strcmp(json_string_value(type), "BPE") != 0))
        return REFUSE(p, ST_E_UNSUPPORTED, "model.type is '%.60s': only BPE is offered", type_of(model));
    if (is_given(dropout) && json_number_value(dropout) != 0.0)
        return REFUSE(p, ST_E_UNSUPPORTED, "model.dropout is set: not offered");
    ST_TRY(refuse_text(p, model, "continuing_subword_prefix"));
    ST_TRY(refuse_text(p, model, "end_of_word_suffix"));
    ST_TRY(read_flag(p, model, "byte_fallback", false, "model", &fallback));
    ST_TRY(read_flag(p, model, "ignore_merges", false, "model", &ignore));
    if (fallback) return REFUSE(p, ST_E_UNSUPPORTED, "model.byte_fallback is set: not offered");
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return REFUSE(p, ST_E_CONFIG, "model.vocab is empty or missing");
    p->t->ignore_merges = ignore;
    ST_TRY(measure_ids(p, vocab, json_object_get(root, "added_tokens")));
    ST_TRY(read_vocab(p, vocab));
    return read_merges(p, merges);
}

/* ---- added tokens ---- */

static int longer_first(const void *a, const void *b)
{
    const st_added *x = a, *y = b;
    uint8_t cx = (uint8_t)x->text[0], cy = (uint8_t)y->text[0];
    if (cx != cy) return cx < cy ? -1 : 1;
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    return memcmp(x->text, y->text, x->n);
}

static int make_set(parse *p, const st_added *all, int32_t n, uint8_t normalized, st_added_set *out)
{
    st_added *item = ST_NEW_N(p->t->arena, st_added, n + 1);
    int32_t k = 0;
    if (!item) return REFUSE(p, ST_E_NOMEM, "no memory for added tokens");
    for (int32_t i = 0; i < n; i++)
        if (all[i].normalized == normalized) item[k++] = all[i];
    qsort(item, (size_t)k, sizeof *item, longer_first);
    out->item = item;
    out->n = k;
    for (int32_t c = 0, i = 0; c <= 256; c++) {
        while (i < k && (uint8_t)item[i].text[0] < c) i++;
        out->first[c] = i;
    }
    return ST_OK;
}

static int read_added(parse *p, const json_t *v, size_t index, st_added *out)
{
    st_tokenizer *t = p->t;
    const json_t *content = json_object_get(v, "content");
    const char *text = json_string_value(content);
    size_t n = json_string_length(content);
    bool special, single_word, lstrip, rstrip, normalized;
    int32_t id = (int32_t)json_integer_value(json_object_get(v, "id"));
    char where[40];
    snprintf(where, sizeof where, "added_tokens[%zu]", index);
    ST_TRY(read_flag(p, v, "special", false, where, &special));
    ST_TRY(read_flag(p, v, "single_word", false, where, &single_word));
    ST_TRY(read_flag(p, v, "lstrip", false, where, &lstrip));
    ST_TRY(read_flag(p, v, "rstrip", false, where, &rstrip));
    ST_TRY(read_flag(p, v, "normalized", !special, where, &normalized));
    if (t->id_kind[id] == ST_ID_ADDED || t->id_kind[id] == ST_ID_SPECIAL)
        return REFUSE(p, ST_E_CONFIG, "id %d stands for two added tokens, one is '%.60s'", id, text);
    if (t->id_kind[id] == ST_ID_PIECE) { /* a piece may also be an added token, under one name */
        const st_text_slot *s = st_text_find(&t->names, text, n);
        if (!s || s->id != id) return REFUSE(p, ST_E_CONFIG, "id %d is a piece and the added token '%.60s'", id, text);
    }
    t->id_kind[id] = special ? ST_ID_SPECIAL : ST_ID_ADDED;
    ST_TRY(name_id(p, text, n, id));
    *out = (st_added){NULL, (uint32_t)n, id, special, single_word, lstrip, rstrip, normalized};
    out->text = t->id_bytes[id] = st_arena_strndup(t->arena, text, n);
    t->id_n[id] = (uint32_t)n;
    if (!out->text) return REFUSE(p, ST_E_NOMEM, "no memory for added tokens");
    if (normalized && t->nfc) { /* matched against normalised text, so in normalised form */
        st_span_text form;
        if (st_nfc(out->text, n, 0, t->arena, &form) != ST_OK)
            return REFUSE(p, ST_E_NOMEM, "no memory for added tokens");
        out->text = form.text;
        out->n = (uint32_t)form.n;
    }
    return ST_OK;
}

static int read_all_added(parse *p, const json_t *added)
{
    size_t n = json_array_size(added), i;
    json_t *v;
    if (is_given(added) && !json_is_array(added)) return REFUSE(p, ST_E_CONFIG, "added_tokens must be a list");
    st_added *all = ST_NEW_N(p->t->arena, st_added, n + 1);
    if (!all) return REFUSE(p, ST_E_NOMEM, "no memory for added tokens");
    json_array_foreach(added, i, v) ST_TRY(read_added(p, v, i, &all[i]));
    ST_TRY(make_set(p, all, (int32_t)n, 0, &p->t->raw));
    return make_set(p, all, (int32_t)n, 1, &p->t->normal);
}

/* ---- normalizer, pre-tokenizer, decoder ---- */

static int read_normalizer(parse *p, const json_t *v, int depth)
{
    if (!is_given(v)) return ST_OK;
    if (strcmp(type_of(v), "NFC") == 0) {
        p->t->nfc = 1;
        return ST_OK;
    }
    if (strcmp(type_of(v), "Sequence") == 0 && depth < 8) {
        size_t i;
        json_t *part;
        json_array_foreach(json_object_get(v, "normalizers"), i, part) ST_TRY(read_normalizer(p, part, depth + 1));
        return ST_OK;
    }
    return REFUSE(p, ST_E_UNSUPPORTED, "normalizer is '%.60s': only NFC or none is offered", type_of(v));
}

static int compile(parse *p, const char *pattern, size_t n, uint32_t options, st_stage *stage)
{
    int code;
    PCRE2_SIZE at;
    PCRE2_UCHAR why[160];
    stage->code = pcre2_compile((PCRE2_SPTR)pattern, n, options | PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                                &code, &at, NULL);
    if (!stage->code) {
        pcre2_get_error_message(code, why, sizeof why);
        return REFUSE(p, ST_E_CONFIG, "pre_tokenizer pattern, character %zu: %s", (size_t)at + 1, (const char *)why);
    }
    pcre2_jit_compile(stage->code, PCRE2_JIT_COMPLETE); /* without a just-in-time compiler it is interpreted */
    return ST_OK;
}

enum { MOST_STAGES = 16 };

static int add_stage(parse *p, st_stage **out)
{
    if (p->t->n_stages == MOST_STAGES)
        return REFUSE(p, ST_E_UNSUPPORTED, "pre_tokenizer has more than %d parts", MOST_STAGES);
    if (p->t->n_stages > 0 && p->t->stage[p->t->n_stages - 1].kind == ST_STAGE_BYTES)
        return REFUSE(p, ST_E_UNSUPPORTED, "pre_tokenizer: nothing may follow ByteLevel");
    *out = &p->t->stage[p->t->n_stages++];
    return ST_OK;
}

static int read_split(parse *p, const json_t *v)
{
    const json_t *pattern = json_object_get(v, "pattern"), *regex = json_object_get(pattern, "Regex");
    const json_t *literal = json_object_get(pattern, "String"), *use = regex ? regex : literal;
    const char *behavior = json_string_value(json_object_get(v, "behavior"));
    bool invert;
    st_stage *stage;
    ST_TRY(read_flag(p, v, "invert", false, "pre_tokenizer Split", &invert));
    if (!behavior || strcmp(behavior, "Isolated") != 0)
        return REFUSE(p, ST_E_UNSUPPORTED, "pre_tokenizer Split: behavior '%.60s': only Isolated is offered",
                      behavior ? behavior : "");
    if (invert) return REFUSE(p, ST_E_UNSUPPORTED, "pre_tokenizer Split: invert is not offered");
    if (!json_is_string(use) || json_string_length(use) == 0)
        return REFUSE(p, ST_E_CONFIG, "pre_tokenizer Split: pattern must be {\"Regex\": ...} or {\"String\": ...}");
    ST_TRY(add_stage(p, &stage));
    stage->kind = ST_STAGE_SPLIT;
    return compile(p, json_string_value(use), json_string_length(use), regex ? 0 : PCRE2_LITERAL, stage);
}

/* What ByteLevel cuts by itself when use_regex is on: contractions, then runs of letters, digits, other signs,
 * blanks. */
static const char byte_level_pattern[] =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static int read_byte_level(parse *p, const json_t *v)
{
    bool prefix, regex;
    st_stage *stage;
    ST_TRY(read_flag(p, v, "add_prefix_space", true, "pre_tokenizer ByteLevel", &prefix));
    ST_TRY(read_flag(p, v, "use_regex", true, "pre_tokenizer ByteLevel", &regex));
    ST_TRY(add_stage(p, &stage));
    stage->kind = ST_STAGE_BYTES;
    stage->prefix_space = prefix;
    return regex ? compile(p, byte_level_pattern, sizeof byte_level_pattern - 1, 0, stage) : ST_OK;
}

static int read_pre_tokenizer(parse *p, const json_t *v, int depth)
{
    const char *type = type_of(v);
    if (!is_given(v)) return ST_OK;
    if (strcmp(type, "Split") == 0) return read_split(p, v);
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(p, v);
    if (strcmp(type, "Sequence") == 0 && depth < 8) {
        size_t i;
        json_t *part;
        json_array_foreach(json_object_get(v, "pretokenizers"), i, part) ST_TRY(read_pre_tokenizer(p, part, depth + 1));
        return ST_OK;
    }
    return REFUSE(p, ST_E_UNSUPPORTED, "pre_tokenizer is '%.60s': Split, ByteLevel and Sequence are offered", type);
}

static int read_parts(parse *p, const json_t *root)
{
    const json_t *decoder = json_object_get(root, "decoder");
    st_tokenizer *t = p->t;
    t->stage = ST_NEW_N(t->arena, st_stage, MOST_STAGES);
    if (!t->stage) return REFUSE(p, ST_E_NOMEM, "no memory for the pre-tokenizer");
    ST_TRY(read_normalizer(p, json_object_get(root, "normalizer"), 0));
    ST_TRY(read_pre_tokenizer(p, json_object_get(root, "pre_tokenizer"), 0));
    if (t->n_stages == 0 || t->stage[t->n_stages - 1].kind != ST_STAGE_BYTES)
        return REFUSE(p, ST_E_UNSUPPORTED, "pre_tokenizer has no ByteLevel: only byte-level BPE is offered");
    if (is_given(decoder) && strcmp(type_of(decoder), "ByteLevel") != 0)
        return REFUSE(p, ST_E_UNSUPPORTED, "decoder is '%.60s': only ByteLevel is offered", type_of(decoder));
    return ST_OK;
}

int st_tokenizer_parse(st_tokenizer *t, const char *path, const char *json, size_t n, st_error *e)
{
    parse p = {.t = t, .path = path, .error = e};
    json_error_t why;
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &why);
    int rc;
    if (!root) return st_fail_at(e, ST_E_CONFIG, path, why.line, why.column, "not valid JSON: %s", why.text);
    st_byte_alphabet(p.to_char, p.to_byte);
    memcpy(t->byte_char, p.to_char, sizeof t->byte_char);
    if (!json_is_object(root)) rc = st_fail_at(e, ST_E_CONFIG, path, 0, 0, "not a tokenizer.json: no object");
    else if ((rc = read_parts(&p, root)) == ST_OK && (rc = read_model(&p, root)) == ST_OK)
        rc = read_all_added(&p, json_object_get(root, "added_tokens"));
    json_decref(root);
    return rc;
}
