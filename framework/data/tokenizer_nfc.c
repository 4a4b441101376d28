/* SPDX-License-Identifier: Apache-2.0 */
/* data/tokenizer_nfc.c - composed form (NFC) that remembers where every byte came from, and a few character classes.
 *
 * utf8proc normalises whole strings but loses the origin of characters. Here each input character is decomposed
 * alone, marks are put in canonical order together with their origins, and pairs are composed again by asking
 * utf8proc about two characters at a time. */
#include "data/tokenizer_priv.h"

#include <utf8proc.h>

int32_t st_utf8_read(const char *text, size_t n, int32_t *cp)
{
    const uint8_t *p = (const uint8_t *)text;
    if (p[0] < 0x80 || n < 2) {
        *cp = p[0];
        return 1;
    }
    if (p[0] < 0xE0) {
        *cp = (p[0] & 0x1F) << 6 | (p[1] & 0x3F);
        return 2;
    }
    if (p[0] < 0xF0 && n >= 3) {
        *cp = (p[0] & 0x0F) << 12 | (p[1] & 0x3F) << 6 | (p[2] & 0x3F);
        return 3;
    }
    if (n < 4) {
        *cp = p[0];
        return 1;
    }
    *cp = (p[0] & 0x07) << 18 | (p[1] & 0x3F) << 12 | (p[2] & 0x3F) << 6 | (p[3] & 0x3F);
    return 4;
}

int st_utf8_write(int32_t cp, char out[4]) { return (int)utf8proc_encode_char(cp, (utf8proc_uint8_t *)out); }

bool st_is_space(int32_t cp)
{
    if ((cp >= 9 && cp <= 13) || cp == 0x20 || cp == 0x85) return true;
    if (cp < 0xA0) return false;
    utf8proc_category_t c = utf8proc_category(cp);
    return c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
}

bool st_is_word(int32_t cp)
{
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
    }
}

/* A character and the input bytes it stands for. */
typedef struct nfc_char {
    int32_t cp, ccc;
    uint32_t begin, end;
} nfc_char;

enum {
    MOST_PARTS = 32
}; /* the longest canonical decomposition of one character is 4; utf8proc may ask for more room */

static int ccc_of(int32_t cp) { return utf8proc_get_property(cp)->combining_class; }

/* Canonical decomposition of every character, each part with the bytes of its character. -> characters, or -1 */
static int64_t decompose(const char *text, size_t n, uint32_t offset, nfc_char *out, size_t room)
{
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        int32_t cp, parts[MOST_PARTS];
        int boundclass = 0;
        int32_t step = st_utf8_read(text + i, n - i, &cp);
        utf8proc_ssize_t m =
            utf8proc_decompose_char(cp, parts, MOST_PARTS, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundclass);
        if (m < 0 || m > MOST_PARTS || k + (size_t)m > room) return -1;
        for (utf8proc_ssize_t j = 0; j < m; j++, k++)
            out[k] =
                (nfc_char){parts[j], ccc_of(parts[j]), offset + (uint32_t)i, offset + (uint32_t)(i + (size_t)step)};
        i += (size_t)step;
    }
    return (int64_t)k;
}

/* Marks between two starters in order of their combining class; equal ones keep their order. Merge sort: a hostile
 * text may hold a hundred thousand marks in one run. */
static void sort_run(nfc_char *c, nfc_char *spare, int64_t n)
{
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * width) {
            int64_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            int64_t a = lo, b = mid;
            for (int64_t k = lo; k < hi; k++) spare[k] = a < mid && (b >= hi || c[a].ccc <= c[b].ccc) ? c[a++] : c[b++];
        }
        memcpy(c, spare, sizeof *c * (size_t)n);
    }
}

static void order_marks(nfc_char *c, nfc_char *spare, int64_t n)
{
    for (int64_t i = 0; i < n;) {
        int64_t j = i;
        bool sorted = true;
        while (j < n && c[j].ccc > 0) {
            if (j > i && c[j - 1].ccc > c[j].ccc) sorted = false;
            j++;
        }
        if (!sorted) sort_run(c + i, spare, j - i);
        i = j > i ? j : i + 1;
    }
}

static int32_t compose_pair(int32_t a, int32_t b) /* the primary composite, or -1 */
{
    if (b < 0x300) return -1; /* nothing below the combining marks is ever the second of a pair */
    int32_t pair[2] = {a, b};
    return utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE) == 1 ? pair[0] : -1;
}

static int64_t compose(nfc_char *c, int64_t n)
{
    int64_t out = 0, starter = -1;
    int last = 0; /* combining class of the last character kept behind the starter; 0: none yet */
    for (int64_t i = 0; i < n; i++) {
        bool adjacent = starter >= 0 && starter == out - 1;
        bool blocked = starter < 0 || (!adjacent && last >= c[i].ccc);
        int32_t made = blocked ? -1 : compose_pair(c[starter].cp, c[i].cp);
        if (made >= 0) {
            c[starter].cp = made;
            if (c[i].begin < c[starter].begin) c[starter].begin = c[i].begin;
            if (c[i].end > c[starter].end) c[starter].end = c[i].end;
            continue;
        }
        if (c[i].ccc == 0) starter = out;
        last = c[i].ccc;
        c[out++] = c[i];
    }
    return out;
}

static int same_bytes(const char *text, size_t n, uint32_t offset, st_arena *a, st_span_text *out)
{
    uint32_t *begin = ST_NEW_N(a, uint32_t, 2 * n + 2), *end = begin + n + 1;
    if (!begin) return ST_E_NOMEM;
    for (size_t i = 0; i < n; i++) {
        begin[i] = offset + (uint32_t)i;
        end[i] = offset + (uint32_t)i + 1;
    }
    *out = (st_span_text){text, n, begin, end};
    return ST_OK;
}

static bool is_ascii(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)text[i] >= 0x80) return false;
    return true;
}

static int write_chars(const nfc_char *c, int64_t n, const char *text, uint32_t offset, st_arena *a, st_span_text *out)
{
    char *t = st_arena_alloc(a, (size_t)n * 4 + 1);
    uint32_t *begin = ST_NEW_N(a, uint32_t, 8 * (size_t)n + 2), *end = begin + 4 * n + 1;
    size_t k = 0;
    if (!t || !begin) return ST_E_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        int m = st_utf8_write(c[i].cp, t + k);
        bool kept = (uint32_t)m == c[i].end - c[i].begin && memcmp(t + k, text + (c[i].begin - offset), (size_t)m) == 0;
        for (int j = 0; j < m; j++, k++) { /* bytes of an unchanged character keep their own place */
            begin[k] = kept ? c[i].begin + (uint32_t)j : c[i].begin;
            end[k] = kept ? begin[k] + 1 : c[i].end;
        }
    }
    *out = (st_span_text){t, k, begin, end};
    return ST_OK;
}

/* text: valid UTF-8 that begins `offset` bytes into the input. */
int st_nfc(const char *text, size_t n, uint32_t offset, st_arena *a, st_span_text *out)
{
    if (is_ascii(text, n)) return same_bytes(text, n, offset, a, out);
    size_t room = 2 * n + MOST_PARTS; /* a character of k bytes has at most 4 parts, and then k >= 2 */
    nfc_char *c = ST_NEW_N(a, nfc_char, room), *spare = ST_NEW_N(a, nfc_char, room);
    if (!c || !spare) return ST_E_NOMEM;
    int64_t m = decompose(text, n, offset, c, room);
    if (m < 0) return ST_E_INTERNAL;
    order_marks(c, spare, m);
    m = compose(c, m);
    return write_chars(c, m, text, offset, a, out);
}
