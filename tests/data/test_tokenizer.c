/* SPDX-License-Identifier: Apache-2.0 */
/* tests/data/test_tokenizer.c - ids of the golden rows, offsets, both spellings of merges, normal form, files that
 * lie. */
#include <jansson.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>

#include <cmocka.h>

#include "data/tokenizer_priv.h"

static char *golden(st_arena *a, const char *name)
{
    return st_arena_printf(a, "%s/tests/golden/tokenizer/%s", getenv("ST_SRCDIR"), name);
}

static st_tokenizer *open_golden(st_arena *a, const char *name)
{
    st_tokenizer *t;
    st_error e = {0};
    if (st_tokenizer_open(golden(a, name), &t, &e) != ST_OK) fail_msg("%s: %s", e.file, e.message);
    return t;
}

static st_tokens encode(const st_tokenizer *t, const char *text, size_t n, int special, st_arena *a)
{
    st_tokens out;
    st_error e = {0};
    if (st_tokenizer_encode(t, text, n, special, a, &out, &e) != ST_OK) fail_msg("%s", e.message);
    return out;
}

static void check_offsets(st_tokens k, size_t n)
{
    for (int32_t i = 0; i < k.n; i++) {
        assert_true(k.begin[i] < k.end[i]);
        assert_true(k.end[i] <= n);
        if (i > 0) assert_true(k.begin[i] >= k.begin[i - 1] && k.end[i] >= k.end[i - 1] && k.begin[i] <= k.end[i - 1]);
    }
    if (k.n > 0) assert_true(k.begin[0] == 0 && k.end[k.n - 1] == n); /* nothing of the input is left out */
}

static void golden_rows(void **state)
{
    st_arena *a = st_arena_create(0);
    st_tokenizer *t = open_golden(a, "tokenizer.json");
    json_t *rows = json_load_file(golden(a, "cases.json"), JSON_ALLOW_NUL, NULL), *row;
    size_t i, j;
    assert_int_equal(st_tokenizer_size(t), 621);
    assert_int_equal(json_array_size(rows), 41);
    json_array_foreach(rows, i, row)
    {
        const json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "ids"),
                     *decoded = json_object_get(row, "decoded");
        st_tokens k = encode(t, json_string_value(text), json_string_length(text), 1, a);
        if ((size_t)k.n != json_array_size(ids))
            fail_msg("row %zu: %d ids, expected %zu", i, k.n, json_array_size(ids));
        for (j = 0; j < json_array_size(ids); j++)
            assert_int_equal(k.ids[j], json_integer_value(json_array_get(ids, j)));
        check_offsets(k, json_string_length(text));
        st_buf out = {0};
        st_error e = {0};
        assert_int_equal(st_tokenizer_decode(t, k.ids, k.n, 0, &out, &e), ST_OK);
        assert_int_equal(out.n, json_string_length(decoded));
        assert_memory_equal(out.data, json_string_value(decoded), out.n);
        st_buf_free(&out);
    }
    json_decref(rows);
    st_tokenizer_close(t);
    st_arena_destroy(a);
}

/* Merges spelled "a b" and ["a","b"]: the same ids; expected values from the file's own documentation. */
static void both_spellings(void **state)
{
    static const char *const name[] = {"merges_strings.json", "merges_pairs.json"};
    static const struct {
        const char *text;
        int n, ids[6];
    } row[] = {
        {"hello world", 2, {259, 264}},          {"hello  world", 3, {259, 32, 264}},           {"####", 2, {265, 265}},
        {"cafe\xCC\x81", 4, {99, 97, 102, 266}}, {"hello\nworld", 5, {259, 10, 119, 261, 263}}, {"12", 2, {49, 50}}};
    st_arena *a = st_arena_create(0);
    for (int f = 0; f < 2; f++) {
        st_tokenizer *t = open_golden(a, name[f]);
        for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
            st_tokens k = encode(t, row[i].text, strlen(row[i].text), 1, a);
            assert_int_equal(k.n, row[i].n);
            for (int j = 0; j < k.n; j++) assert_int_equal(k.ids[j], row[i].ids[j]);
        }
        st_tokenizer_close(t);
    }
    st_arena_destroy(a);
}

/* A text has the ids of its pieces one after another. */
static void pieces(void **state)
{
    static const char *const row[][24] = {
        {"Total", " ", "1", "2", ".", "5", "0", " for", " two", " teas"},
        {"2", "0", "2", "4", "-", "0", "1", "-", "3", "1", " ", "1", ",", "2", "3", "4", ",", "5", "6", "7"},
        {"a", "->", "b", " (", "x", "):\n\n", "}];===", " $", "5"},
        {"a", " ", " b", "  ", " c", "\n\n", " ", " d", " \n", " e", "  "},
        {"one", "\r\n", "two", "\r\n\r\n", "three", "\r"},
        {"\t", "\tif", " x", ":", "\t", "\treturn"},
        {"I", "'ll", " we", "'ve", " it", "'s", " THEY", "'RE", " don", "'t", " '", "tis", " rock", "'n", "'roll"},
        {"\xE8\x8C\xB6", " ", "2", "\xE4\xBB\xBD", "\xE3\x80\x81\xE5\x85\xB1\xE4\xBA\xBA\xE6\xB0\x91\xE5\xB8\x81"},
        {"\xF0\xA0\x80\x80\xF0\x9D\x92\x9C", "\xF0\x9F\x98\x80"},
        {"a", "\xEF\xBB\xBF"
              "b"},
        {"abc", " \xE2\x80\xAE", "def", "\xE2\x80\xAC", " ghi"}};
    st_arena *a = st_arena_create(0);
    st_tokenizer *t = open_golden(a, "tokenizer.json");
    for (size_t r = 0; r < sizeof row / sizeof row[0]; r++) {
        st_buf text = {0};
        int32_t expected[256], n = 0;
        for (int i = 0; i < 24 && row[r][i]; i++) {
            st_tokens k = encode(t, row[r][i], strlen(row[r][i]), 1, a);
            for (int32_t j = 0; j < k.n; j++) expected[n++] = k.ids[j];
            st_buf_puts(&text, row[r][i]);
        }
        st_tokens k = encode(t, text.data, text.n, 1, a);
        assert_int_equal(k.n, n);
        assert_memory_equal(k.ids, expected, sizeof *expected * (size_t)n);
        st_buf_free(&text);
    }
    st_tokenizer_close(t);
    st_arena_destroy(a);
}

static void special_tokens(void **state)
{
    static const char text[] = "a<|im_end|><think>b";
    st_arena *a = st_arena_create(0);
    st_tokenizer *t = open_golden(a, "tokenizer.json");
    int32_t end = st_tokenizer_id(t, "<|im_end|>"), think = st_tokenizer_id(t, "<think>");
    assert_int_equal(end, 614);
    assert_int_equal(think, 619);
    assert_int_equal(st_tokenizer_id(t, "<|nothing|>"), -1);
    st_tokens k = encode(t, text, sizeof text - 1, 1, a);
    assert_int_equal(k.n, 4);
    assert_int_equal(k.ids[1], end);
    assert_int_equal(k.begin[1], 1);
    assert_int_equal(k.end[1], 11);
    k = encode(t, text, sizeof text - 1, 0, a); /* data: the turn's end is text, a label tag is a tag */
    int ends = 0, thinks = 0;
    for (int32_t i = 0; i < k.n; i++) {
        ends += k.ids[i] == end;
        thinks += k.ids[i] == think;
    }
    assert_int_equal(ends, 0);
    assert_int_equal(thinks, 1);
    st_buf out = {0};
    st_error e = {0};
    int32_t ids[] = {end, k.ids[0], 100000, -5, think};
    assert_int_equal(st_tokenizer_decode(t, ids, 5, 1, &out, &e), ST_OK);
    assert_string_equal(out.data, "a<think>");
    st_buf_free(&out);
    st_tokenizer_close(t);
    st_arena_destroy(a);
}

/* Offsets point into the text as given: composed characters cover all their bytes. */
static void original_offsets(void **state)
{
    static const char text[] = "xe\xCC\x81y";
    st_arena *a = st_arena_create(0);
    st_span_text s;
    assert_int_equal(st_nfc(text, sizeof text - 1, 10, a, &s), ST_OK);
    assert_int_equal(s.n, 4);
    assert_memory_equal(s.text, "x\xC3\xA9y", 4);
    assert_int_equal(s.begin[0], 10);
    assert_int_equal(s.begin[1], 11);
    assert_int_equal(s.end[1], 14);
    assert_int_equal(s.begin[2], 11);
    assert_int_equal(s.end[2], 14);
    assert_int_equal(s.begin[3], 14);
    assert_int_equal(s.end[3], 15);
    st_arena_destroy(a);
}

/* Random strings over characters that compose, reorder and decompose; the library's whole-string form is the judge. */
static void normal_form(void **state)
{
    static const int32_t from[] = {'a',    'e',     'o',    0x300,  0x301,  0x323,  0x327, 0x338, 0x344, 0x1E9B, 0x1E69,
                                   0x212B, 0x1100,  0x1161, 0x11A8, 0xAC00, 0x11A7, 0x9C7, 0x9BE, 0x9D7, 0x1F82, 0xFB1D,
                                   0x2ADC, 0x1D15E, 0x958,  0x93C,  0x915,  0x3B1,  0x345, 0x313, 0x34F, ' '};
    st_arena *a = st_arena_create(0);
    for (int round = 0; round < 4000; round++) {
        char text[80];
        size_t n = 0;
        int m = 1 + (int)(st_random_u64(1, 0, round) % 12);
        for (int i = 0; i < m; i++)
            n += (size_t)st_utf8_write(from[st_random_u64(2, (uint64_t)round, i) % (sizeof from / sizeof from[0])],
                                       text + n);
        text[n] = 0;
        st_span_text s;
        assert_int_equal(st_nfc(text, n, 0, a, &s), ST_OK);
        utf8proc_uint8_t *expected = utf8proc_NFC((const utf8proc_uint8_t *)text);
        assert_int_equal(s.n, strlen((char *)expected));
        assert_memory_equal(s.text, expected, s.n);
        for (size_t i = 0; i < s.n; i++) assert_true(s.begin[i] < s.end[i] && s.end[i] <= n);
        free(expected);
        st_arena_reset(a);
    }
    st_arena_destroy(a);
}

static void long_word(void **state)
{
    st_arena *a = st_arena_create(0);
    st_tokenizer *t = open_golden(a, "tokenizer.json");
    size_t n = 200000;
    char *text = malloc(n);
    for (size_t i = 0; i < n; i++) text[i] = (char)('a' + st_random_u64(3, 0, (int64_t)i) % 26);
    st_tokens k = encode(t, text, n, 1, a);
    check_offsets(k, n);
    free(text);
    st_tokenizer_close(t);
    st_arena_destroy(a);
}

static void bad_text(void **state)
{
    static const char text[] = "abc\xC3(def";
    st_arena *a = st_arena_create(0);
    st_tokenizer *t = open_golden(a, "tokenizer.json");
    st_tokens k;
    st_error e = {0};
    assert_int_equal(st_tokenizer_encode(t, text, sizeof text - 1, 1, a, &k, &e), ST_E_DATA);
    assert_non_null(strstr(e.message, "byte 3"));
    assert_int_equal(encode(t, "", 0, 1, a).n, 0);
    int32_t half[] = {st_tokenizer_id(t, "\xC3\x83"), st_tokenizer_id(t, "a")}; /* first byte of a pair, then 'a' */
    st_buf out = {0};
    memset(&e, 0, sizeof e);
    assert_int_equal(st_tokenizer_decode(t, half, 2, 0, &out, &e), ST_OK);
    assert_string_equal(out.data, "\xEF\xBF\xBD"
                                  "a");
    st_buf_free(&out);
    st_tokenizer_close(t);
    st_arena_destroy(a);
}

/* ---- files that lie: the golden file with one stretch replaced ---- */

static int open_text(const char *json, size_t n, st_error *e)
{
    char path[] = "/tmp/strata-tokenizer-XXXXXX";
    int fd = mkstemp(path);
    st_tokenizer *t = NULL;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, json, n), n);
    close(fd);
    memset(e, 0, sizeof *e);
    int rc = st_tokenizer_open(path, &t, e);
    unlink(path);
    if (rc == ST_OK) st_tokenizer_close(t);
    else {
        assert_null(t);
        assert_true(e->code == rc && e->message[0]);
        assert_string_equal(e->file, path);
    }
    return rc;
}

static int with(const char *json, const char *old, const char *new, st_error *e)
{
    const char *at = strstr(json, old);
    if (!at) fail_msg("'%s' is not in the file", old);
    st_buf b = {0};
    st_buf_add(&b, json, (size_t)(at - json));
    st_buf_puts(&b, new);
    st_buf_puts(&b, at + strlen(old));
    int rc = open_text(b.data, b.n, e);
    st_buf_free(&b);
    return rc;
}

static void refusals(void **state)
{
    static const struct {
        const char *old, *new;
        int code;
        const char *word;
    } row[] = {
        {"\"type\": \"NFC\"", "\"type\": \"NFKC\"", ST_E_UNSUPPORTED, "NFKC"},
        {"\"type\": \"BPE\"", "\"type\": \"Unigram\"", ST_E_UNSUPPORTED, "Unigram"},
        {"\"type\": \"Split\"", "\"type\": \"Metaspace\"", ST_E_UNSUPPORTED, "Metaspace"},
        {"\"behavior\": \"Isolated\"", "\"behavior\": \"Removed\"", ST_E_UNSUPPORTED, "Removed"},
        {"\"byte_fallback\": false", "\"byte_fallback\": true", ST_E_UNSUPPORTED, "byte_fallback"},
        {"\"dropout\": null", "\"dropout\": 0.1", ST_E_UNSUPPORTED, "dropout"},
        {"\"continuing_subword_prefix\": \"\"", "\"continuing_subword_prefix\": \"##\"", ST_E_UNSUPPORTED,
         "continuing_subword_prefix"},
        {"\\\\p{N}|", "\\\\p{N}|(", ST_E_CONFIG, "pattern"},
        {"\"special\": true", "\"special\": 7", ST_E_CONFIG, "special"},
        {"\"id\": 267", "\"id\": -1", ST_E_CONFIG, "<|im_end|>"},
        {"\"id\": 267", "\"id\": 99999999999", ST_E_CONFIG, "<|im_end|>"},
        {"\"id\": 267", "\"id\": 268", ST_E_CONFIG, "268"},
        {"\"content\": \"<|im_end|>\"", "\"content\": 5", ST_E_CONFIG, "content"},
        {"\"merges\": [", "\"merges\": [\"nope\", ", ST_E_CONFIG, "merges[0]"},
        {"\"merges\": [", "\"merges\": [\"zz zz\", ", ST_E_CONFIG, "zz"},
        {"\"merges\": [", "\"merges\": [[\"a\"], ", ST_E_CONFIG, "merges[0]"},
        {"\"merges\": [", "\"merges\": [], \"x\": [", ST_E_CONFIG, "empty"},
        {"\"a\": 97,", "", ST_E_CONFIG, "0x61"},
        {"\"a\": 97,", "\"a\": 98,", ST_E_CONFIG, "98"},
        {"\"a\": 97,", "\"a\": \"b\",", ST_E_CONFIG, "'a'"},
        {"\"model\"", "\"modle\"", ST_E_CONFIG, "model"},
        {"\"add_prefix_space\": false", "\"add_prefix_space\": 1", ST_E_CONFIG, "add_prefix_space"},
        {"\"vocab\": {", "\"vocab\": {}, \"x\": {", ST_E_CONFIG, "model.vocab is empty or missing"},
        {"\"id\": 267", "\"id\": 97", ST_E_CONFIG, "id 97 is a piece and the added token '<|im_end|>'"},
        {"\"decoder\": {", "\"decoder\": {\"type\": \"Metaspace\"}, \"x\": {", ST_E_UNSUPPORTED,
         "decoder is 'Metaspace': only ByteLevel is offered"},
        {"\"use_regex\": false\n   }", "\"use_regex\": false}, {\"type\": \"ByteLevel\"}", ST_E_UNSUPPORTED,
         "nothing may follow ByteLevel"},
        {"\"type\": \"NFC\"", "\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]", ST_OK, ""},
    };
    st_arena *a = st_arena_create(0);
    char *json;
    size_t n;
    st_error e = {0};
    assert_int_equal(st_file_read(golden(a, "merges_strings.json"), a, &json, &n, &e), ST_OK);
    assert_int_equal(open_text(json, n, &e), ST_OK);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        int rc = with(json, row[i].old, row[i].new, &e);
        if (rc != row[i].code || !strstr(e.message, row[i].word))
            fail_msg("%s: code %d, '%s'", row[i].new, rc, e.message);
    }
    assert_int_equal(st_file_read(golden(a, "truncated.json"), a, &json, &n, &e), ST_OK);
    assert_int_equal(open_text(json, n, &e), ST_E_CONFIG);
    assert_true(e.line > 0);
    assert_int_equal(open_text("", 0, &e), ST_E_CONFIG);
    assert_int_equal(open_text("[]", 2, &e), ST_E_CONFIG);
    st_tokenizer *t;
    memset(&e, 0, sizeof e);
    assert_int_equal(st_tokenizer_open("/nonexistent/tokenizer.json", &t, &e), ST_E_IO);
    st_arena_destroy(a);
}

/* Any single damaged byte: opened or refused, never a crash. */
static void damaged_bytes(void **state)
{
    st_arena *a = st_arena_create(0);
    char *json;
    size_t n;
    st_error e = {0};
    assert_int_equal(st_file_read(golden(a, "merges_strings.json"), a, &json, &n, &e), ST_OK);
    for (int i = 0; i < 300; i++) {
        size_t at = st_random_u64(5, 0, i) % n;
        char was = json[at];
        json[at] = "\"{}[]:,0-z\x80\n"[st_random_u64(5, 1, i) % 12];
        open_text(json, n, &e);
        json[at] = was;
    }
    st_arena_destroy(a);
}

static void stripping(void **state)
{
    st_arena *a = st_arena_create(0);
    char *json;
    size_t n;
    st_error e = {0};
    st_tokenizer *t;
    assert_int_equal(st_file_read(golden(a, "merges_strings.json"), a, &json, &n, &e), ST_OK);
    for (char *p = json; (p = strstr(p, "strip\": false")); p += 4) memcpy(p, "strip\":  true", 13);
    char path[] = "/tmp/strata-tokenizer-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, json, n), n);
    close(fd);
    assert_int_equal(st_tokenizer_open(path, &t, &e), ST_OK);
    unlink(path);
    st_tokens k = encode(t, "a  <|im_end|>\n b", 16, 1, a);
    assert_int_equal(k.n, 3);
    assert_int_equal(k.begin[1], 1);
    assert_int_equal(k.end[1], 15);
    st_tokenizer_close(t);
    st_arena_destroy(a);
}

static st_tokenizer *open_changed(const char *json, const char *const change[][2], int n)
{
    char path[] = "/tmp/strata-tokenizer-XXXXXX";
    st_buf b = {0};
    st_tokenizer *t;
    st_error e = {0};
    st_buf_puts(&b, json);
    for (int i = 0; i < n; i++) {
        const char *at = strstr(b.data, change[i][0]);
        st_buf next = {0};
        assert_non_null(at);
        st_buf_add(&next, b.data, (size_t)(at - b.data));
        st_buf_puts(&next, change[i][1]);
        st_buf_puts(&next, at + strlen(change[i][0]));
        st_buf_free(&b);
        b = next;
    }
    int fd = mkstemp(path);
    assert_int_equal(write(fd, b.data, b.n), b.n);
    close(fd);
    st_buf_free(&b);
    if (st_tokenizer_open(path, &t, &e) != ST_OK) fail_msg("%s", e.message);
    unlink(path);
    return t;
}

static void check_ids(const st_tokenizer *t, const char *text, const int32_t *want, int n, st_arena *a)
{
    st_tokens k = encode(t, text, strlen(text), 1, a);
    assert_int_equal(k.n, n);
    assert_memory_equal(k.ids, want, sizeof *want * (size_t)n);
    if (n) assert_true(k.begin[0] == 0 && k.end[n - 1] == strlen(text));
}

static void variants(void **state)
{
    static const char *const piece[][2] = {{"\"vocab\": {", "\"vocab\": {\"zq\": 300, "},
                                           {"\"ignore_merges\": false", "\"ignore_merges\": true"},
                                           {"\"add_prefix_space\": false", "\"add_prefix_space\": true"},
                                           {"\"use_regex\": false", "\"use_regex\": true"}};
    static const int32_t apart[] = {122, 113}, whole[] = {300}, blank[] = {32, 97}, own[] = {97, 32, 49, 50};
    st_arena *a = st_arena_create(0);
    char *json;
    size_t n;
    st_error e = {0};
    assert_int_equal(st_file_read(golden(a, "merges_strings.json"), a, &json, &n, &e), ST_OK);
    st_tokenizer *t = open_changed(json, piece, 1);
    check_ids(t, "zq", apart, 2, a);
    st_tokenizer_close(t);
    t = open_changed(json, piece, 2); /* a word that is a piece needs no merges */
    check_ids(t, "zq", whole, 1, a);
    st_tokenizer_close(t);
    t = open_changed(json, piece + 2, 1);
    check_ids(t, "a", blank, 2, a);
    st_tokenizer_close(t);
    t = open_changed(json, piece + 3, 1); /* ByteLevel's own cut behind the split */
    check_ids(t, "a 12", own, 4, a);
    st_tokenizer_close(t);
    st_arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_rows),    cmocka_unit_test(both_spellings),   cmocka_unit_test(pieces),
        cmocka_unit_test(special_tokens), cmocka_unit_test(original_offsets), cmocka_unit_test(normal_form),
        cmocka_unit_test(long_word),      cmocka_unit_test(bad_text),         cmocka_unit_test(refusals),
        cmocka_unit_test(damaged_bytes),  cmocka_unit_test(stripping),        cmocka_unit_test(variants),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
