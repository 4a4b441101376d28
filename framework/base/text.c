/* SPDX-License-Identifier: Apache-2.0 */
/* base/text.c - growing buffers, nearest words, globs, UTF-8, name hashes. Nothing here looks at the locale. */
#include "base/base.h"
#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* ---- buffer. A failed allocation is sticky in `failed`; later writes are then dropped, so callers check once. ---- */
static bool buf_reserve(st_buf *b, size_t more)
{
    if (b->failed) return false;
    if (more > SIZE_MAX / 2 - b->n - 1) {
        b->failed = 1;
        return false;
    }
    size_t need = b->n + more + 1;
    if (need <= b->cap) return true;
    size_t cap = b->cap ? b->cap : 256;
    while (cap < need) cap *= 2;
    char *p = realloc(b->data, cap);
    if (!p) {
        b->failed = 1;
        return false;
    }
    b->data = p;
    b->cap = cap;
    return true;
}

void st_buf_add(st_buf *b, const void *bytes, size_t n)
{
    if (!buf_reserve(b, n)) return;
    if (n) memcpy(b->data + b->n, bytes, n);
    b->n += n;
    b->data[b->n] = 0;
}

void st_buf_puts(st_buf *b, const char *text)
{
    st_buf_add(b, text, strlen(text));
}

/* What goes into buffers is read again, also by other programs: a plugin or library that sets a locale with a decimal
 * comma must not show in it. */
void st_buf_printf(st_buf *b, const char *fmt, ...)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), old = uselocale(plain); /* of this thread only */
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) b->failed = 1;
    if (n >= 0 && buf_reserve(b, (size_t)n)) {
        va_start(ap, fmt);
        vsnprintf(b->data + b->n, (size_t)n + 1, fmt, ap);
        va_end(ap);
        b->n += (size_t)n;
    }
    uselocale(old);
    if (plain) freelocale(plain);
}

void st_buf_free(st_buf *b)
{
    free(b->data);
    memset(b, 0, sizeof *b);
}

/* ---- nearest word ---- */
#define WORD_MAX 64 /* longer words are never a slip of the finger */

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edits that turn a into b: insert, drop, replace, swap of two neighbours. */
static int edit_distance(const char *a, int na, const char *b, int nb)
{
    int row[3][WORD_MAX + 1];
    int *before = row[0], *above = row[1], *here = row[2];
    for (int j = 0; j <= nb; j++) above[j] = j;
    for (int i = 1; i <= na; i++) {
        here[0] = i;
        for (int j = 1; j <= nb; j++) {
            here[j] = min3(above[j] + 1, here[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < here[j])
                here[j] = before[j - 2] + 1;
        }
        int *spare = before;
        before = above;
        above = here;
        here = spare;
    }
    return above[nb];
}

const char *st_nearest(const char *word, const char *const *known, int n)
{
    const char *best = NULL;
    int best_distance = 4; /* at most 3 edits */
    size_t length = strlen(word);
    if (length == 0 || length > WORD_MAX) return NULL;
    for (int i = 0; i < n; i++) {
        size_t other = known[i] ? strlen(known[i]) : 0;
        if (other == 0 || other > WORD_MAX) continue;
        int d = edit_distance(word, (int)length, known[i], (int)other);
        size_t longer = length > other ? length : other;
        if (d < best_distance && (size_t)d * 2 < longer) {
            best_distance = d;
            best = known[i];
        }
    }
    return best;
}

/* ---- globs: '*' any run, '?' one character. Linear back-tracking to the last star only, so it cannot blow up. ---- */
bool st_glob(const char *pattern, const char *text)
{
    const char *star = NULL, *resume = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            resume = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

/* ---- UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF ---- */
bool st_utf8_valid(const char *text, size_t n, size_t *bad_at)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; i < n;) {
        unsigned char c = s[i];
        size_t more = 9; /* bytes that follow the first; 9: it cannot be a first byte */
        if (c < 0x80) more = 0;
        else if (c >= 0xC2 && c <= 0xDF) more = 1;
        else if ((c & 0xF0) == 0xE0) more = 2;
        else if (c >= 0xF0 && c <= 0xF4) more = 3;
        bool good = more != 9 && more < n - i;
        for (size_t k = 1; good && k <= more; k++) good = (s[i + k] & 0xC0) == 0x80;
        if (good && more >= 2) {
            unsigned char d = s[i + 1];
            good = !(c == 0xE0 && d < 0xA0) && !(c == 0xED && d > 0x9F) && !(c == 0xF0 && d < 0x90) &&
                   !(c == 0xF4 && d > 0x8F);
        }
        if (!good) {
            if (bad_at) *bad_at = i;
            return false;
        }
        i += more + 1;
    }
    return true;
}

bool st_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

size_t st_control(const char *text, size_t n)
{
    const unsigned char *c = (const unsigned char *)text;
    if (n > 0 && ((*c < ' ' && *c != '\t') || *c == 0x7F)) return 1;
    return n > 1 && *c == 0xC2 && c[1] >= 0x80 && c[1] <= 0x9F ? 2 : 0; /* U+0080 to U+009F */
}

bool st_is_text(const char *text, size_t n, size_t *bad_at)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n' || !st_control(text + i, n - i)) continue;
        if (bad_at) *bad_at = i;
        return false;
    }
    return st_utf8_valid(text, n, bad_at);
}

void st_make_utf8(char *text)
{
    size_t n = strlen(text), bad = 0;
    for (size_t at = 0; !st_utf8_valid(text + at, n - at, &bad);) {
        at += bad;
        text[at] = '?';
    }
}

/* One byte stays one byte, for carets below it. */
void st_make_printable(char *text)
{
    st_make_utf8(text);
    while (*text) {
        size_t n = st_control(text, 2); /* at the end the second is the text's 0 */
        memset(text, '?', n);
        text += n ? n : 1;
    }
}

/* ---- hash ---- */
uint64_t st_hash64(const void *bytes, size_t n, uint64_t seed)
{
    const unsigned char *p = bytes;
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    h = (h ^ (h >> 30)) * UINT64_C(0xbf58476d1ce4e5b9); /* FNV leaves the high bits of short names nearly constant */
    h = (h ^ (h >> 27)) * UINT64_C(0x94d049bb133111eb);
    return h ^ (h >> 31);
}
