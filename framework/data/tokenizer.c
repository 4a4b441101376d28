/* SPDX-License-Identifier: Apache-2.0 */
/* data/tokenizer.c - text to ids and back.
 *
 * Encoding: added tokens are cut out of the raw text; what lies between is normalised; added tokens that want
 * normalised text are cut out of that; the rest is cut into words by the pre-tokenizer; each word is merged by rank.
 * Every token carries the range of input bytes it covers. Temporary memory comes from the caller's arena. */
#include "data/tokenizer_priv.h"

#include <stdlib.h>

/* ---- life ---- */

int st_tokenizer_open(const char *path, st_tokenizer **out, st_error *e)
{
    st_arena *arena = st_arena_create(0), *text = st_arena_create(0);
    st_tokenizer *t = arena ? ST_NEW(arena, st_tokenizer) : NULL;
    char *json;
    size_t n;
    int rc;
    *out = NULL;
    if (!t || !text) {
        st_arena_destroy(arena);
        st_arena_destroy(text);
        return st_fail(e, ST_E_NOMEM, "%s: no memory for the tokenizer", path);
    }
    t->arena = arena;
    rc = st_file_read(path, text, &json, &n, e);
    if (rc == ST_OK) rc = st_tokenizer_parse(t, path, json, n, e);
    st_arena_destroy(text);
    if (rc == ST_OK) *out = t;
    else st_tokenizer_close(t);
    return rc;
}

void st_tokenizer_close(st_tokenizer *t)
{
    if (!t) return;
    for (int32_t i = 0; i < t->n_stages; i++) pcre2_code_free(t->stage[i].code);
    st_arena_destroy(t->arena);
}

int32_t st_tokenizer_size(const st_tokenizer *t) { return t->size; }

int32_t st_tokenizer_id(const st_tokenizer *t, const char *token)
{
    const st_text_slot *s = st_text_find(&t->names, token, strlen(token));
    return s ? s->id : -1;
}

const char *st_tokenizer_piece(const st_tokenizer *t, int32_t id, size_t *n)
{
    if (id < 0 || id >= t->size || t->id_kind[id] == ST_ID_FREE) return NULL;
    *n = t->id_n[id];
    return t->id_bytes[id];
}

/* ---- encoding ---- */

typedef struct symbol {
    int32_t id, prev, next;
    uint32_t begin, end;
} symbol; /* begin, end: bytes of the word */
typedef struct pair {
    int32_t rank, at, left, right;
} pair; /* left, right: ids when it was found */

typedef struct encoder {
    const st_tokenizer *t;
    st_arena *arena;
    st_error *error;
    pcre2_match_data *match;
    int special;
    int32_t room;
    st_tokens out;
    symbol *symbol;
    pair *heap; /* work space for one word, grown as needed */
    size_t word_room;
    int32_t n_heap;
} encoder;

static int no_memory(encoder *e) { return st_fail(e->error, ST_E_NOMEM, "no memory to tokenize a text"); }

static int emit(encoder *e, int32_t id, uint32_t begin, uint32_t end)
{
    st_tokens *o = &e->out;
    if (o->n == e->room) {
        int32_t room = e->room ? 2 * e->room : 64;
        st_tokens more = {o->n, ST_NEW_N(e->arena, int32_t, room), ST_NEW_N(e->arena, uint32_t, room),
                          ST_NEW_N(e->arena, uint32_t, room)};
        if (!more.ids || !more.begin || !more.end) return no_memory(e);
        if (o->n > 0) {
            memcpy(more.ids, o->ids, sizeof *o->ids * (size_t)o->n);
            memcpy(more.begin, o->begin, sizeof *o->begin * (size_t)o->n);
            memcpy(more.end, o->end, sizeof *o->end * (size_t)o->n);
        }
        *o = more;
        e->room = room;
    }
    o->ids[o->n] = id;
    o->begin[o->n] = begin;
    o->end[o->n++] = end;
    return ST_OK;
}

/* ---- merging one word: a heap of candidate pairs over a linked list, O(n log n) ---- */

static bool before(const pair *a, const pair *b) /* lower rank first, then further left */
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(encoder *e, pair p)
{
    int32_t i = e->n_heap++;
    for (; i > 0 && before(&p, &e->heap[(i - 1) / 2]); i = (i - 1) / 2) e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = p;
}

static pair heap_pop(encoder *e)
{
    pair top = e->heap[0], last = e->heap[--e->n_heap];
    int32_t i = 0;
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= e->n_heap) break;
        if (child + 1 < e->n_heap && before(&e->heap[child + 1], &e->heap[child])) child++;
        if (!before(&e->heap[child], &last)) break;
        e->heap[i] = e->heap[child];
        i = child;
    }
    e->heap[i] = last;
    return top;
}

static void offer(encoder *e, int32_t at) /* the pair that begins at symbol `at`, if it merges */
{
    if (at < 0 || e->symbol[at].next < 0) return;
    int32_t left = e->symbol[at].id, right = e->symbol[e->symbol[at].next].id;
    const st_merge *m = st_merge_find(&e->t->merges, left, right);
    if (m) heap_push(e, (pair){m->rank, at, left, right});
}

static void merge_word(encoder *e, size_t n)
{
    symbol *s = e->symbol;
    e->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++) offer(e, (int32_t)i);
    while (e->n_heap > 0) {
        pair p = heap_pop(e);
        int32_t r = s[p.at].next;
        if (s[p.at].id != p.left || r < 0 || s[r].id != p.right) continue; /* changed since it was found */
        s[p.at].id = st_merge_find(&e->t->merges, p.left, p.right)->id;
        s[p.at].end = s[r].end;
        s[p.at].next = s[r].next;
        s[r].id = -1;
        if (s[r].next >= 0) s[s[r].next].prev = p.at;
        offer(e, s[p.at].prev);
        offer(e, p.at);
    }
}

static int word_room(encoder *e, size_t n)
{
    if (n <= e->word_room) return ST_OK;
    size_t room = n < 64 ? 64 : 2 * n;
    e->symbol = ST_NEW_N(e->arena, symbol, room);
    e->heap = ST_NEW_N(e->arena, pair, 3 * room); /* n - 1 at first, two more per merge */
    if (!e->symbol || !e->heap) return no_memory(e);
    e->word_room = room;
    return ST_OK;
}

/* ignore_merges: a word that is a piece as a whole is taken as it is. */
static int32_t whole_word(encoder *e, const char *text, size_t n)
{
    char spelled[512];
    size_t k = 0;
    if (!e->t->ignore_merges || n > sizeof spelled / 2) return -1;
    for (size_t i = 0; i < n; i++) k += (size_t)st_utf8_write((int32_t)e->t->byte_char[(uint8_t)text[i]], spelled + k);
    const st_text_slot *s = st_text_find(&e->t->names, spelled, k);
    return s ? s->id : -1;
}

static int encode_word(encoder *e, st_span_text w)
{
    if (w.n == 0) return ST_OK;
    int32_t whole = whole_word(e, w.text, w.n);
    if (whole >= 0) return emit(e, whole, w.begin[0], w.end[w.n - 1]);
    ST_TRY(word_room(e, w.n));
    for (size_t i = 0; i < w.n; i++)
        e->symbol[i] = (symbol){e->t->byte_id[(uint8_t)w.text[i]], (int32_t)i - 1, i + 1 < w.n ? (int32_t)i + 1 : -1,
                                (uint32_t)i, (uint32_t)i + 1};
    merge_word(e, w.n);
    for (int32_t i = 0; i >= 0; i = e->symbol[i].next)
        ST_TRY(emit(e, e->symbol[i].id, w.begin[e->symbol[i].begin], w.end[e->symbol[i].end - 1]));
    return ST_OK;
}

/* ---- cutting into words ---- */

static st_span_text part_of(st_span_text s, size_t begin, size_t end)
{
    return (st_span_text){s.text + begin, end - begin, s.begin + begin, s.end + begin};
}

static int run_stages(encoder *e, int32_t stage, st_span_text s);

static int find(encoder *e, const pcre2_code *code, st_span_text s, size_t from)
{
    int rc = pcre2_match(code, (PCRE2_SPTR)s.text, s.n, from, PCRE2_NO_UTF_CHECK, e->match, NULL);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter takes its memory from the heap */
        rc = pcre2_match(code, (PCRE2_SPTR)s.text, s.n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, e->match, NULL);
    return rc;
}

/* Matches and what lies between them, each a word of its own. */
static int cut(encoder *e, const pcre2_code *code, int32_t next, st_span_text s)
{
    size_t done = 0, from = 0;
    while (from < s.n) {
        int rc = find(e, code, s, from);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) {
            PCRE2_UCHAR why[160];
            pcre2_get_error_message(rc, why, sizeof why);
            return st_fail(e->error, ST_E_DATA, "the pre-tokenizer's pattern gave up at byte %u: %s", s.begin[from],
                           (const char *)why);
        }
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(e->match);
        size_t begin = at[0], end = at[1];
        if (begin < done) begin = done;
        if (end <= begin || end <= from) { /* an empty match cuts nothing */
            int32_t cp;
            if (begin > from) from = begin;
            from += from < s.n ? (size_t)st_utf8_read(s.text + from, s.n - from, &cp) : 1;
            continue;
        }
        if (begin > done) ST_TRY(run_stages(e, next, part_of(s, done, begin)));
        ST_TRY(run_stages(e, next, part_of(s, begin, end)));
        done = from = end;
    }
    return done < s.n ? run_stages(e, next, part_of(s, done, s.n)) : ST_OK;
}

static int with_blank(encoder *e, st_span_text *s) /* add_prefix_space */
{
    char *text = st_arena_alloc(e->arena, s->n + 1);
    uint32_t *begin = ST_NEW_N(e->arena, uint32_t, 2 * (s->n + 1)), *end = begin + s->n + 1;
    if (!text || !begin) return no_memory(e);
    text[0] = ' ';
    begin[0] = end[0] = s->begin[0];
    memcpy(text + 1, s->text, s->n);
    memcpy(begin + 1, s->begin, sizeof *begin * s->n);
    memcpy(end + 1, s->end, sizeof *end * s->n);
    *s = (st_span_text){text, s->n + 1, begin, end};
    return ST_OK;
}

static int run_stages(encoder *e, int32_t stage, st_span_text s)
{
    if (stage == e->t->n_stages) return encode_word(e, s);
    const st_stage *g = &e->t->stage[stage];
    if (g->prefix_space && s.n > 0 && s.text[0] != ' ') ST_TRY(with_blank(e, &s));
    return g->code ? cut(e, g->code, stage + 1, s) : run_stages(e, stage + 1, s);
}

/* ---- cutting out added tokens ---- */

static bool word_before(st_span_text s, size_t at)
{
    int32_t cp;
    size_t i = at;
    if (at == 0) return false;
    do i--;
    while (i > 0 && ((uint8_t)s.text[i] & 0xC0) == 0x80);
    st_utf8_read(s.text + i, s.n - i, &cp);
    return st_is_word(cp);
}

static bool word_at(st_span_text s, size_t at)
{
    int32_t cp;
    if (at >= s.n) return false;
    st_utf8_read(s.text + at, s.n - at, &cp);
    return st_is_word(cp);
}

/* The longest token of the set that begins at `at` and may stand there. */
static const st_added *added_at(const encoder *e, const st_added_set *set, st_span_text s, size_t at)
{
    uint8_t c = (uint8_t)s.text[at];
    for (int32_t i = set->first[c]; i < set->first[c + 1]; i++) {
        const st_added *a = &set->item[i];
        if (a->special && !e->special) continue;
        if (a->n > s.n - at || memcmp(a->text, s.text + at, a->n) != 0) continue;
        if (a->single_word && (word_before(s, at) || word_at(s, at + a->n))) continue;
        return a;
    }
    return NULL;
}

static size_t blanks_before(st_span_text s, size_t from, size_t at) /* where a run of blanks that ends at `at` begins */
{
    while (at > from) {
        int32_t cp;
        size_t i = at;
        do i--;
        while (i > from && ((uint8_t)s.text[i] & 0xC0) == 0x80);
        st_utf8_read(s.text + i, s.n - i, &cp);
        if (!st_is_space(cp)) break;
        at = i;
    }
    return at;
}

static size_t blanks_after(st_span_text s, size_t at)
{
    while (at < s.n) {
        int32_t cp;
        int32_t n = st_utf8_read(s.text + at, s.n - at, &cp);
        if (!st_is_space(cp)) break;
        at += (size_t)n;
    }
    return at;
}

/* Text between added tokens goes on to `rest`. */
static int cut_added(encoder *e, const st_added_set *set, st_span_text s, int (*rest)(encoder *, st_span_text))
{
    size_t done = 0, at = 0;
    while (set->n > 0 && at < s.n) {
        const st_added *a = added_at(e, set, s, at);
        if (!a) {
            at++;
            continue;
        }
        size_t begin = a->lstrip ? blanks_before(s, done, at) : at;
        size_t end = a->rstrip ? blanks_after(s, at + a->n) : at + a->n;
        if (begin > done) ST_TRY(rest(e, part_of(s, done, begin)));
        ST_TRY(emit(e, a->id, s.begin[begin], s.end[end - 1]));
        done = at = end;
    }
    return done < s.n ? rest(e, part_of(s, done, s.n)) : ST_OK;
}

static int encode_normal(encoder *e, st_span_text s) { return run_stages(e, 0, s); }

static int encode_raw(encoder *e, st_span_text s)
{
    st_span_text normal = s;
    if (e->t->nfc) {
        int rc = st_nfc(s.text, s.n, s.begin[0], e->arena, &normal);
        if (rc == ST_E_NOMEM) return no_memory(e);
        if (rc != ST_OK) return st_fail(e->error, rc, "a text cannot be brought into normal form C");
    }
    return cut_added(e, &e->t->normal, normal, encode_normal);
}

int st_tokenizer_encode(const st_tokenizer *t, const char *text, size_t n, int special, st_arena *arena, st_tokens *out,
                        st_error *error)
{
    encoder e = {.t = t, .arena = arena, .error = error, .special = special};
    size_t bad;
    memset(out, 0, sizeof *out);
    if (n == 0) return ST_OK;
    if (n >= INT32_MAX / 4) return st_fail(error, ST_E_DATA, "a text of %zu bytes is too long to tokenize", n);
    if (!st_utf8_valid(text, n, &bad))
        return st_fail(error, ST_E_DATA, "the text is not UTF-8: byte %zu is 0x%02X", bad, (uint8_t)text[bad]);
    uint32_t *begin = ST_NEW_N(arena, uint32_t, 2 * n), *end = begin + n;
    e.match = pcre2_match_data_create(16, NULL);
    if (!begin || !e.match) {
        pcre2_match_data_free(e.match);
        return no_memory(&e);
    }
    for (size_t i = 0; i < n; i++) end[i] = (begin[i] = (uint32_t)i) + 1;
    int rc = cut_added(&e, &t->raw, (st_span_text){text, n, begin, end}, encode_raw);
    pcre2_match_data_free(e.match);
    if (rc == ST_OK) *out = e.out;
    return rc;
}

/* ---- decoding ---- */

/* Length of the well-formed character at p, or 0 and in *skip the bytes that one replacement character stands for. */
static size_t good_char(const uint8_t *p, size_t n, size_t *skip)
{
    size_t want = p[0] < 0x80                   ? 1
                  : p[0] >= 0xC2 && p[0] < 0xE0 ? 2
                  : p[0] >= 0xE0 && p[0] < 0xF0 ? 3
                  : p[0] >= 0xF0 && p[0] < 0xF5 ? 4
                                                : 0;
    uint8_t low = p[0] == 0xE0   ? 0xA0
                  : p[0] == 0xF0 ? 0x90
                                 : 0x80,
            high = p[0] == 0xED   ? 0x9F
                   : p[0] == 0xF4 ? 0x8F
                                  : 0xBF;
    size_t k = 1;
    *skip = 1;
    if (want == 0) return 0;
    for (; k < want; k++, low = 0x80, high = 0xBF)
        if (k >= n || p[k] < low || p[k] > high) break;
    *skip = k;
    return k == want ? want : 0;
}

static void add_lossy(st_buf *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t skip, good = good_char((const uint8_t *)text + i, n - i, &skip);
        if (good) st_buf_add(out, text + i, good);
        else st_buf_puts(out, "\xEF\xBF\xBD");
        i += good ? good : skip;
    }
}

static int decode_numbers(const int32_t *ids, int32_t n, st_buf *out, st_error *error)
{
    for (int32_t i = 0; i < n; i++) st_buf_printf(out, "%s%d", i ? " " : "", ids[i]);
    return out->failed ? st_fail(error, ST_E_NOMEM, "no memory to decode %d tokens", n) : ST_OK;
}

/* Ids without a piece (padding rows of the embedding) write nothing; broken UTF-8 becomes U+FFFD. */
int st_tokenizer_decode(const st_tokenizer *t, const int32_t *ids, int32_t n, int skip_special, st_buf *out,
                        st_error *error)
{
    st_buf bytes = {0};
    if (!t) return decode_numbers(ids, n, out, error);
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->size || t->id_kind[ids[i]] == ST_ID_FREE) continue;
        if (skip_special && t->id_kind[ids[i]] == ST_ID_SPECIAL) continue;
        st_buf_add(&bytes, t->id_bytes[ids[i]], t->id_n[ids[i]]);
    }
    st_buf_add(out, "", 0);
    add_lossy(out, bytes.data, bytes.n);
    int failed = bytes.failed || out->failed;
    st_buf_free(&bytes);
    return failed ? st_fail(error, ST_E_NOMEM, "no memory to decode %d tokens", n) : ST_OK;
}
