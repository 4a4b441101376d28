/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/kind_text.c - texts to pieces, and tokenizer files to ids. Pieces are seen exactly: a vocabulary is made
 * that has each of them as one token, so that a text cut anywhere else gives other ids. */
#include "config.h"

#include "cases.h"
#include "data/tokenizer_priv.h"
#include <jansson.h>

/* ---- a tokenizer.json ---- */

enum { BYTES = 256, RUNS = 14 };
enum { MERGES_AS_STRINGS = 0, MERGES_AS_PAIRS };
typedef struct word {
    const char *text, *left, *right; /* left NULL: no merge makes it */
} word;
#define PATTERN \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static json_t *spelled(const char *text, size_t n) /* as vocabularies spell bytes */
{
    uint32_t to_char[256];
    int16_t to_byte[512];
    st_buf b = {0};
    char utf8[4];

    st_byte_alphabet(to_char, to_byte);
    for (size_t i = 0; i < n; i++)
        st_buf_add(&b, utf8, (size_t)st_utf8_write((int32_t)to_char[(uint8_t)text[i]], utf8));
    json_t *j = json_stringn(b.data, b.n);
    st_buf_free(&b);
    return j;
}

static void add_word(json_t *vocab, const char *text, size_t n, int id)
{
    json_t *name = spelled(text, n);

    json_object_set_new(vocab, json_string_value(name), json_integer(id));
    json_decref(name);
}

static json_t *merge_of(const word *w, int how)
{
    json_t *left = spelled(w->left, strlen(w->left)), *right = spelled(w->right, strlen(w->right));

    if (how == MERGES_AS_PAIRS) return json_pack("[o,o]", left, right);
    json_t *text = json_sprintf("%s %s", json_string_value(left), json_string_value(right));
    json_decref(left);
    json_decref(right);
    return text;
}

static json_t *tokenizer_of(const word *words, int n, int how, int whole_words)
{
    static const char *const added[] = {"<|im_end|>", "<|im_start|>", "<|image_pad|>"};
    json_t *vocab = json_object(), *merges = json_array(), *tokens = json_array();

    for (int i = 0; i < BYTES; i++) add_word(vocab, (const char[]){(char)i}, 1, i);
    for (int i = 0; i < n; i++) {
        add_word(vocab, words[i].text, strlen(words[i].text), BYTES + i);
        if (words[i].left) json_array_append_new(merges, merge_of(&words[i], how));
    }
    for (int i = 0; i < 3; i++)
        json_array_append_new(tokens,
                              json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", BYTES + n + i, "content", added[i],
                                        "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    return json_pack("{s:s,s:n,s:n,s:o,s:{s:s},s:{s:s,s:[{s:s,s:{s:s},s:s,s:b},{s:s,s:b,s:b,s:b}]},s:n,s:{s:s},"
                     "s:{s:s,s:n,s:n,s:s,s:s,s:b,s:b,s:b,s:o,s:o}}",
                     "version", "1.0", "truncation", "padding", "added_tokens", tokens, "normalizer", "type", "NFC",
                     "pre_tokenizer", "type", "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex", PATTERN,
                     "behavior", "Isolated", "invert", 0, "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
                     "use_regex", 0, "post_processor", "decoder", "type", "ByteLevel", "model", "type", "BPE",
                     "dropout", "unk_token", "continuing_subword_prefix", "", "end_of_word_suffix", "", "fuse_unk", 0,
                     "byte_fallback", 0, "ignore_merges", whole_words, "vocab", vocab, "merges", merges);
}

static char *text_of(const cases *c, json_t *j)
{
    char *text = json_dumps(j, JSON_INDENT(1) | JSON_PRESERVE_ORDER), *copy = st_arena_strdup(c->arena, text);

    free(text);
    json_decref(j);
    return copy;
}

static st_tokenizer *open_or_fail(const char *path)
{
    st_tokenizer *t = NULL;
    st_error e = {0};

    if (st_tokenizer_open(path, &t, &e) != ST_OK) fail_msg("%s: %s", e.file, e.message);
    return t;
}

static st_tokens encode(const cases *c, const st_tokenizer *t, const char *text, size_t n)
{
    st_tokens k;
    st_error e = {0};

    if (st_tokenizer_encode(t, text, n, 1, c->arena, &k, &e) != ST_OK) fail_msg("%s", e.message);
    return k;
}

/* ---- texts ---- */

enum { MAX_PIECES = 24, RUN = 20000 };
typedef struct text_row {
    const char *file, *text;
    const char *pieces[MAX_PIECES]; /* in normal form C                 */
    const char *refused;
    int32_t run; /* so many letters a, one piece     */
} text_row;

#define CAFE "caf\xC3\xA9"
#define RESUME " r\xC3\xA9sum\xC3\xA9"
static const text_row texts[] = {
    {"text/plain.txt", "Total 12.50 for two teas",
     .pieces = {"Total", " ", "1", "2", ".", "5", "0", " for", " two", " teas"}},
    {"text/digits.txt", "2024-01-31 1,234,567",
     .pieces = {"2", "0", "2", "4", "-", "0", "1", "-", "3", "1", " ", "1", ",", "2", "3", "4", ",", "5", "6", "7"}},
    {"text/symbols.txt", "a->b (x):\n\n}];=== $5",
     .pieces = {"a", "->", "b", " (", "x", "):\n\n", "}];===", " $", "5"}},
    {"text/blanks.txt", "a  b   c\n\n  d \n e  ",
     .pieces = {"a", " ", " b", "  ", " c", "\n\n", " ", " d", " \n", " e", "  "}},
    {"text/crlf.txt", "one\r\ntwo\r\n\r\nthree\r", .pieces = {"one", "\r\n", "two", "\r\n\r\n", "three", "\r"}},
    {"text/tabs.txt", "\t\tif x:\t\treturn", .pieces = {"\t", "\tif", " x", ":", "\t", "\treturn"}},
    {"text/contractions.txt", "I'll we've it's THEY'RE don't 'tis rock'n'roll",
     .pieces = {"I", "'ll", " we", "'ve", " it", "'s", " THEY", "'RE", " don", "'t", " '", "tis", " rock", "'n",
                "'roll"}},
    {"text/nfd_latin.txt", "cafe\xCC\x81 re\xCC\x81sume\xCC\x81", .pieces = {CAFE, RESUME}},
    {"text/nfd_hangul.txt", "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB\xE1\x84\x80\xE1\x85\xB3\xE1\x86\xAF",
     .pieces = {"\xED\x95\x9C\xEA\xB8\x80"}},
    {"text/cjk.txt", "\xE8\x8C\xB6 2\xE4\xBB\xBD\xE3\x80\x81\xE5\x85\xB1\xE4\xBA\xBA\xE6\xB0\x91\xE5\xB8\x81",
     .pieces = {"\xE8\x8C\xB6", " ", "2", "\xE4\xBB\xBD",
                "\xE3\x80\x81\xE5\x85\xB1\xE4\xBA\xBA\xE6\xB0\x91\xE5\xB8\x81"}},
    {"text/astral.txt", "\xF0\xA0\x80\x80\xF0\x9D\x92\x9C\xF0\x9F\x98\x80",
     .pieces = {"\xF0\xA0\x80\x80\xF0\x9D\x92\x9C", "\xF0\x9F\x98\x80"}},
    {"text/bom_inside.txt",
     "a\xEF\xBB\xBF"
     "b",
     .pieces = {"a", "\xEF\xBB\xBF"
                     "b"}},
    {"text/bidi.txt",
     "abc \xE2\x80\xAE"
     "def\xE2\x80\xAC ghi",
     .pieces = {"abc", " \xE2\x80\xAE", "def", "\xE2\x80\xAC", " ghi"}},
    {"text/long_run.txt", NULL, .pieces = {NULL}, .run = RUN},
    {"text/empty.txt", "", .pieces = {NULL}},
    {"text/bad_utf8.txt", "caf\xE9 \xFF\xFE \xC3", .pieces = {NULL}, .refused = "byte 3 is 0xE9"},
};

static void make_text(const cases *c, const void *row)
{
    const text_row *r = row;
    char *run = st_arena_alloc(c->arena, (size_t)r->run + 1);

    memset(run, 'a', (size_t)r->run);
    case_put_text(c, r->file, r->text ? r->text : run);
}

/* Runs of 2, 4, ... 16384 letters: a run that is one piece becomes the fewest tokens that powers of two allow. */
static int32_t run_words(const cases *c, word *words)
{
    for (int i = 0; i < RUNS; i++) {
        char *run = st_arena_alloc(c->arena, ((size_t)2 << i) + 1);
        memset(run, 'a', (size_t)2 << i);
        words[i] = (word){run, i ? words[i - 1].text : "a", i ? words[i - 1].text : "a"};
    }
    return RUNS;
}

static void check_pieces(const cases *c, const text_row *r, const char *text, size_t n)
{
    word words[RUNS + MAX_PIECES];
    int32_t n_words = run_words(c, words), pieces = 0, want = 0;
    char *json;

    for (; pieces < MAX_PIECES && r->pieces[pieces]; pieces++) words[n_words++] = (word){.text = r->pieces[pieces]};
    json = text_of(c, tokenizer_of(words, n_words, MERGES_AS_STRINGS, 1));
    st_tokenizer *t = open_or_fail(case_write(c, case_folder(c), "tokenizer.json", json, strlen(json)));
    st_tokens k = encode(c, t, text, n);
    for (int32_t left = r->run; left > 0; left &= left - 1) want++;
    if (r->run && k.n != want) fail_msg("%d tokens of a run that is one piece, it should be %d", k.n, want);
    for (int32_t i = 0; i < k.n && !r->run; i++) {
        size_t length = i < pieces ? strlen(r->pieces[i]) : 0;
        json_t *name = spelled(i < pieces ? r->pieces[i] : "", length);
        if (i >= pieces || k.ids[i] != st_tokenizer_id(t, json_string_value(name)))
            fail_msg("piece %d of %d is bytes %u to %u, it should be '%s'", i, pieces, k.begin[i], k.end[i],
                     i < pieces ? r->pieces[i] : "(none)");
        json_decref(name);
    }
    if (!r->run && k.n != pieces) fail_msg("%d pieces, there should be %d", k.n, pieces);
    st_tokenizer_close(t);
}

/* With a usual vocabulary: the ids of the normal form, which is also what decoding gives. */
static void check_normal_form(const cases *c, const text_row *r, const char *text, size_t n)
{
    st_tokenizer *t =
        open_or_fail(st_arena_printf(c->arena, "%s/tests/golden/tokenizer/tokenizer.json", getenv("ST_SRCDIR")));
    st_buf normal = {0}, decoded = {0};
    st_error e = {0};

    for (int i = 0; i < MAX_PIECES && r->pieces[i]; i++) st_buf_puts(&normal, r->pieces[i]);
    if (!r->pieces[0]) st_buf_add(&normal, text, n);
    st_tokens a = encode(c, t, text, n), b = encode(c, t, normal.data, normal.n);
    if (a.n != b.n || (a.n && memcmp(a.ids, b.ids, (size_t)a.n * sizeof *a.ids) != 0))
        fail_msg("other ids than the normal form");
    if (st_tokenizer_decode(t, a.ids, a.n, 0, &decoded, &e) != ST_OK) fail_msg("%s", e.message);
    if (decoded.n != normal.n || memcmp(decoded.data, normal.data, normal.n) != 0)
        fail_msg("decoded: '%s'", decoded.data);
    st_buf_free(&normal);
    st_buf_free(&decoded);
    st_tokenizer_close(t);
}

static void check_text(const cases *c, const void *row)
{
    const text_row *r = row;
    size_t n;
    char *text = case_read(c, r->file, &n);

    if (r->refused) {
        st_tokenizer *t =
            open_or_fail(st_arena_printf(c->arena, "%s/tests/golden/tokenizer/tokenizer.json", getenv("ST_SRCDIR")));
        st_tokens k;
        st_error e = {0};
        if (st_tokenizer_encode(t, text, n, 1, c->arena, &k, &e) != ST_E_DATA || !case_has(e.message, r->refused))
            fail_msg("'%s' is not in: %s", r->refused, e.message);
        st_tokenizer_close(t);
        return;
    }
    check_pieces(c, r, text, n);
    check_normal_form(c, r, text, n);
}

const case_kind text_kind = CASE_KIND("text", texts, make_text, check_text);

/* ---- tokenizer files ---- */

typedef struct tokenizer_row {
    const char *file;
    int32_t merges, keep; /* keep: only the first so many bytes */
    const char *refused;
} tokenizer_row;
static const tokenizer_row tokenizers[] = {
    {"tokenizer/merges_strings.json", MERGES_AS_STRINGS, 0, NULL},
    {"tokenizer/merges_pairs.json", MERGES_AS_PAIRS, 0, NULL},
    {"tokenizer/truncated.json", MERGES_AS_STRINGS, 2000, "json"},
};
static const word hello_words[] = {
    {"he", "h", "e"},         {"ll", "l", "l"}, {"hell", "he", "ll"},         {"hello", "hell", "o"},
    {" w", " ", "w"},         {"or", "o", "r"}, {" wor", " w", "or"},         {"ld", "l", "d"},
    {" world", " wor", "ld"}, {"##", "#", "#"}, {"\xC3\xA9", "\xC3", "\xA9"},
};
static const struct {
    const char *text;
    int32_t n, ids[6];
} hello_ids[] = {
    {"hello world", 2, {259, 264}},          {"hello  world", 3, {259, 32, 264}},           {"####", 2, {265, 265}},
    {"cafe\xCC\x81", 4, {99, 97, 102, 266}}, {"hello\nworld", 5, {259, 10, 119, 261, 263}}, {"12", 2, {49, 50}},
};

static void make_tokenizer(const cases *c, const void *row)
{
    const tokenizer_row *r = row;
    char *text = text_of(c, tokenizer_of(hello_words, ST_COUNT(hello_words), r->merges, 0));

    case_put(c, r->file, text, r->keep ? (size_t)r->keep : strlen(text));
}

/* The same file without its merges is refused, so that the ids cannot be those of single bytes. */
static void check_without_merges(const cases *c, const tokenizer_row *r)
{
    json_t *j = json_load_file(case_path(c, r->file), JSON_ALLOW_NUL, NULL);
    st_tokenizer *t;
    st_error e = {0};

    json_object_set_new(json_object_get(j, "model"), "merges", json_array());
    char *text = text_of(c, j), *path = case_write(c, case_folder(c), "tokenizer.json", text, strlen(text));
    if (st_tokenizer_open(path, &t, &e) != ST_E_CONFIG) fail_msg("an empty table of merges was taken");
    case_refused(&e, "tokenizer.json", "empty");
}

static void check_tokenizer(const cases *c, const void *row)
{
    const tokenizer_row *r = row;
    st_tokenizer *t = NULL;
    st_error e = {0};

    if (r->refused) {
        if (st_tokenizer_open(case_path(c, r->file), &t, &e) == ST_OK) fail_msg("it was taken");
        case_refused(&e, r->file, "");
        if (e.line < 1) fail_msg("no line is named: %s", e.message);
        return;
    }
    t = open_or_fail(case_path(c, r->file));
    for (size_t i = 0; i < ST_COUNT(hello_ids); i++) {
        st_tokens k = encode(c, t, hello_ids[i].text, strlen(hello_ids[i].text));
        if (k.n != hello_ids[i].n || memcmp(k.ids, hello_ids[i].ids, (size_t)k.n * sizeof *k.ids) != 0)
            fail_msg("other ids for '%s', %d of them", hello_ids[i].text, k.n);
    }
    st_tokenizer_close(t);
    check_without_merges(c, r);
}

const case_kind tokenizer_kind = CASE_KIND("tokenizer", tokenizers, make_tokenizer, check_tokenizer);
