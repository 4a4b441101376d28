/* SPDX-License-Identifier: Apache-2.0 */
/* base/number.c - numbers from text, whole text or nothing, independent of the locale. `why` gets a phrase that ends a
 * sentence such as "lr = 1e-4x: trailing characters after the number". */
#include "config.h"
#include "base/base.h"
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(const char **why, const char *phrase)
{
    if (why) *why = phrase;
    return false;
}

static const char *skip_blanks(const char *p)
{
    while (*p == ' ' || *p == '\t') p++;
    return p;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Sign and digits; *end points behind them. Magnitudes beyond 2^63 are refused here. */
static bool read_digits(const char *p, bool *negative, uint64_t *magnitude, const char **end, const char **why)
{
    uint64_t v = 0;
    *negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    if (!is_digit(*p)) return refuse(why, "not a whole number");
    for (; is_digit(*p); p++)
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return refuse(why, "does not fit in 64 bits");
    *magnitude = v;
    *end = p;
    return true;
}

static bool finish(bool negative, uint64_t magnitude, int shift, int64_t *out, const char **why)
{
    uint64_t most = (uint64_t)INT64_MAX + negative;
    if (magnitude > most >> shift) return refuse(why, "does not fit in 64 bits");
    magnitude <<= shift;
    *out = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

bool st_parse_int(const char *text, int64_t *out, const char **why)
{
    const char *p = skip_blanks(text);
    bool negative;
    uint64_t magnitude;
    if (!*p) return refuse(why, "empty, a whole number is needed");
    if (!read_digits(p, &negative, &magnitude, &p, why)) return false;
    int shift = *p == 'k' || *p == 'K' ? 10 : *p == 'M' ? 20 : *p == 'G' ? 30 : 0;
    if (shift) p++;
    p = skip_blanks(p);
    if (*p == '.' || *p == 'e' || *p == 'E') return refuse(why, "not a whole number");
    if (*p) return refuse(why, "trailing characters after the number (suffixes are k, M, G)");
    return finish(negative, magnitude, shift, out, why);
}

bool st_parse_size(const char *text, int64_t *out, const char **why)
{
    static const struct { const char *name; int shift; } unit[] = {
        {"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40},
    };
    const char *p = skip_blanks(text);
    bool negative;
    uint64_t magnitude;
    if (!*p) return refuse(why, "empty, a number of bytes is needed");
    if (*p == '-') return refuse(why, "a number of bytes cannot be negative");
    if (!read_digits(p, &negative, &magnitude, &p, why)) return false;
    p = skip_blanks(p);
    size_t n = strcspn(p, " \t");
    if (*skip_blanks(p + n)) return refuse(why, "trailing characters after the number of bytes");
    for (size_t i = 0; i < sizeof unit / sizeof unit[0]; i++)
        if (strlen(unit[i].name) == n && !strncmp(p, unit[i].name, n))
            return finish(false, magnitude, unit[i].shift, out, why);
    return refuse(why, "unknown unit (units are B, KiB, MiB, GiB, TiB)");
}

/* Decimal notation only: strtod would also take hexadecimal, "inf", "nan" and leading blanks of all kinds. */
static bool decimal_extent(const char *p, const char **end, bool *has_digit_above_zero)
{
    int digits = 0;
    *has_digit_above_zero = false;
    if (*p == '-' || *p == '+') p++;
    for (int dots = 0; is_digit(*p) || (*p == '.' && !dots); p++) {
        if (*p == '.') dots = 1;
        else digits++;
        if (*p > '0') *has_digit_above_zero = true;
    }
    if (!digits) return false;
    if (*p == 'e' || *p == 'E') {
        const char *q = p + 1;
        if (*q == '-' || *q == '+') q++;
        if (is_digit(*q)) {
            while (is_digit(*q)) q++;
            p = q;
        }
    }
    *end = p;
    return true;
}

static bool word_is(const char *p, const char *word)
{
    if (*p == '-' || *p == '+') p++;
    for (; *word; p++, word++)
        if ((*p | 32) != *word) return false;
    return true;
}

bool st_parse_float(const char *text, double *out, const char **why)
{
    const char *p = skip_blanks(text), *end;
    bool nonzero;
    if (!*p) return refuse(why, "empty, a number is needed");
    if (word_is(p, "inf") || word_is(p, "nan")) return refuse(why, "not a finite number");
    if (!decimal_extent(p, &end, &nonzero)) return refuse(why, "not a number");
    if (*skip_blanks(end)) return refuse(why, "trailing characters after the number");
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* glibc hands out a static object: no cost, no failure */
    if (!c) return refuse(why, "not readable: the C locale is missing");
    double v = strtod_l(p, NULL, c);
    freelocale(c);
    if (!isfinite(v)) return refuse(why, "too large for a double");
    if (v == 0 && nonzero) return refuse(why, "too small for a double");
    *out = v;
    return true;
}

void st_format_float(double v, char out[32])
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t old = uselocale(c); /* of this thread only */
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, v);
        if (strtod(out, NULL) == v) break;
    }
    uselocale(old);
    if (c) freelocale(c);
}
