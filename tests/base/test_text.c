/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_text.c - numbers, nearest words, globs, UTF-8, buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/base.h"
#include "base/bf16.h"
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_int(const char *text, bool good, int64_t want)
{
    int64_t v = 77;
    const char *why = NULL;
    bool got = st_parse_int(text, &v, &why);
    if (got != good || (good && v != want)) fail_msg("\"%s\": %d, %lld", text, got, (long long)v);
    if (!good && (!why || !why[0])) fail_msg("\"%s\": refused without a reason", text);
    if (!good && v != 77) fail_msg("\"%s\": refused, yet a value was written", text);
}

static void whole_numbers(void **state)
{
    check_int("0", true, 0);
    check_int("-12", true, -12);
    check_int("+12", true, 12);
    check_int(" 12 ", true, 12);
    check_int("4k", true, 4096);
    check_int("4K", true, 4096);
    check_int("2M", true, 2097152);
    check_int("1G", true, 1073741824);
    check_int("-1k", true, -1024);
    check_int("007", true, 7);
    check_int("9223372036854775807", true, INT64_MAX);
    check_int("-9223372036854775808", true, INT64_MIN);
    check_int("8589934591G", true, INT64_C(8589934591) << 30);
    const char *bad[] = {"",
                         " ",
                         "-",
                         "+",
                         "k",
                         "x",
                         "1e3",
                         "3.7",
                         "3.",
                         "1_000",
                         "0x10",
                         "12 3",
                         "12a",
                         "4kk",
                         "4m",
                         "--1",
                         "9223372036854775808",
                         "-9223372036854775809",
                         "99999999999999999999",
                         "8589934592G",
                         "1 k k",
                         "１"};
    for (size_t i = 0; i < ST_COUNT(bad); i++) check_int(bad[i], false, 0);
}

static void check_float(const char *text, bool good, double want)
{
    double v = 77;
    const char *why = NULL;
    bool got = st_parse_float(text, &v, &why);
    if (got != good || (good && v != want)) fail_msg("\"%s\": %d, %g", text, got, v);
    if (!good && (!why || !why[0])) fail_msg("\"%s\": refused without a reason", text);
}

static void floats_under(const char *locale_name)
{
    setlocale(LC_ALL, locale_name); /* a locale that is not installed changes nothing */
    check_float("1e-6", true, 1e-6);
    check_float("0.1", true, 0.1);
    check_float(".5", true, 0.5);
    check_float("5.", true, 5);
    check_float("-2.5E+3", true, -2500);
    check_float("0", true, 0);
    check_float("0e-999", true, 0);
    check_float("4.9e-324", true, 4.9e-324);
    check_float("1.7976931348623157e308", true, DBL_MAX);
    const char *bad[] = {"",       " ",    ".",        "-",   "e5",    "1e",     "1e+",   "0x1p3",
                         "inf",    "-inf", "Infinity", "nan", "NaN",   "NAN(1)", "1e999", "-1e999",
                         "1e-999", "1.5x", "1.5 2",    "1,5", "1.2.3", "1e5.0",  "1f",    "--1"};
    for (size_t i = 0; i < ST_COUNT(bad); i++) check_float(bad[i], false, 0);
    char text[32];
    st_format_float(0.1, text);
    assert_string_equal(text, "0.1");
    st_format_float(1.0 / 3, text);
    check_float(text, true, 1.0 / 3);
    setlocale(LC_ALL, "C");
}

static void floats(void **state)
{
    floats_under("C");
    floats_under("de_DE.UTF-8");
    const double v[] = {0, -0.0, 1e-6, 123456789.123, DBL_MIN, DBL_MAX, 4.9e-324, 2.0 / 3, 1e22, -1e-5};
    for (size_t i = 0; i < ST_COUNT(v); i++) {
        char text[32];
        st_format_float(v[i], text);
        check_float(text, true, v[i]);
    }
}

static void sizes(void **state)
{
    static const struct { const char *text; int64_t want; } good[] = {
        {"1000", 1000}, {"0", 0}, {"512MiB", 536870912}, {"2GiB", INT64_C(2147483648)}, {"1 KiB", 1024}, {"3B", 3},
        {"8388607TiB", INT64_C(8388607) << 40},
    };
    static const char *const bad[] = {
        "", "-1", "MiB", "12MB", "12mib", "1.5GiB", "8388608TiB", "99999999999999999999", "1 KiB x"};
    int64_t v;
    const char *why;
    for (size_t i = 0; i < ST_COUNT(good); i++) {
        assert_true(st_parse_size(good[i].text, &v, &why));
        assert_int_equal(v, good[i].want);
    }
    for (size_t i = 0; i < ST_COUNT(bad); i++) {
        why = NULL;
        if (st_parse_size(bad[i], &v, &why)) fail_msg("\"%s\" was taken", bad[i]);
        assert_non_null(why);
    }
}

static void nearest(void **state)
{
    static const char *const known[] = {"lr", "weight_decay", "beta1", "beta2", "eps", "hidden"};
    int n = ST_COUNT(known);
    assert_string_equal(st_nearest("weigth_decay", known, n), "weight_decay");
    assert_string_equal(st_nearest("hiden", known, n), "hidden");
    assert_string_equal(st_nearest("beta", known, n), "beta1"); /* the first of equals */
    assert_string_equal(st_nearest("beta2", known, n), "beta2");
    assert_string_equal(st_nearest("esp", known, n), "eps"); /* a swap is one slip */
    assert_string_equal(st_nearest("lrr", known, n), "lr");
    assert_null(st_nearest("learning_rate", known, n));
    assert_null(st_nearest("xy", known, n));
    assert_null(st_nearest("", known, n));
    assert_null(st_nearest("hidden", known, 0));
    char longer[200];
    memset(longer, 'a', sizeof longer);
    longer[199] = 0;
    assert_null(st_nearest(longer, known, n));
}

static void globs(void **state)
{
    assert_true(st_glob("*", ""));
    assert_true(st_glob("*.weight", "layers.0.conv.weight"));
    assert_true(st_glob("layers.?.*", "layers.7.x"));
    assert_true(st_glob("a*b*c", "a-b-b-c"));
    assert_true(st_glob("", ""));
    assert_false(st_glob("", "a"));
    assert_false(st_glob("layers.?.*", "layers.17.x"));
    assert_false(st_glob("*.bias", "a.bias2"));
    assert_false(st_glob("a?", "a"));
    char text[2001];
    memset(text, 'a', 2000);
    text[2000] = 0;
    assert_false(st_glob("a*a*a*a*a*a*a*a*a*a*a*b", text)); /* ends soon */
}

static void plain_text(void **state)
{
    static const struct { const char *text; size_t n, at; } wrong[] = {
        {"ab\x01", 3, 2},    {"\r\n", 2, 0},      {"a\x7F", 2, 1}, {"a\0", 2, 1},
        {"\n\xC2\x80", 3, 1}, {"x\xC2\x9F", 3, 1}, {"x\xC2", 2, 1},
    };
    size_t bad = 99;
    assert_true(st_is_text("", 0, &bad));
    assert_true(st_is_text("a\tb\n\xC2\xA0\xC3\x9F", 8, &bad));
    for (size_t i = 0; i < ST_COUNT(wrong); i++) {
        assert_false(st_is_text(wrong[i].text, wrong[i].n, &bad));
        assert_int_equal(bad, wrong[i].at);
        assert_false(st_is_text(wrong[i].text, wrong[i].n, NULL));
    }
    char text[] = "a\xC3\xA9\xC2\x9B\xFF\t\n.\xE2\x82"; /* the last is cut short */
    st_make_printable(text);
    assert_string_equal(text, "a\xC3\xA9???\t?.??");
}

static void utf8(void **state)
{
    size_t bad = 99;
    assert_true(st_utf8_valid("", 0, &bad));
    assert_true(st_utf8_valid("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", 10, &bad));
    static const struct { const char *text; size_t n, at; } wrong[] = {
        {"ab\xE9", 3, 2},             /* Latin-1 */
        {"a\xC3", 2, 1},              /* cut */
        {"\xC0\x80", 2, 0},           /* overlong */
        {"\xE0\x80\x80", 3, 0},       /* overlong */
        {"x\xED\xA0\x80", 4, 1},      /* surrogate */
        {"\xF4\x90\x80\x80", 4, 0},   /* above U+10FFFF */
        {"\xF0\x8F\xBF\xBF", 4, 0},   /* overlong */
        {"a\x80", 2, 1}, {"\xFF", 1, 0},
    };
    for (size_t i = 0; i < ST_COUNT(wrong); i++) {
        assert_false(st_utf8_valid(wrong[i].text, wrong[i].n, &bad));
        assert_int_equal(bad, wrong[i].at);
    }
}

static void buffers(void **state)
{
    st_buf b = {0};
    for (int i = 0; i < 1000; i++) st_buf_printf(&b, "%d,", i);
    assert_false(b.failed);
    assert_int_equal(b.n, 10 * 2 + 90 * 3 + 900 * 4);
    assert_int_equal(strlen(b.data), b.n);
    st_buf_add(&b, NULL, 0);
    st_buf_puts(&b, "end");
    assert_string_equal(b.data + b.n - 3, "end");
    st_buf_free(&b);
    assert_null(b.data);
}

static void hashes(void **state)
{
    assert_true(st_hash64("abc", 3, 0) == st_hash64("abc", 3, 0));
    assert_true(st_hash64("abc", 3, 0) != st_hash64("abd", 3, 0));
    assert_true(st_hash64("abc", 3, 0) != st_hash64("abc", 3, 1));
    assert_true(st_hash64("", 0, 0) != 0);
    assert_true(st_hash64("a", 1, 0) == UINT64_C(0x02c0bdbf481420f8)); /* names seed tensors: this must never change */
}

/* Ties go to the even neighbour, what is too large becomes infinite, and a NaN stays one. */
static void bf16_as_stored(void **state)
{
    static const struct { double value; uint16_t bits; } row[] = {
        {0, 0}, {1, 0x3f80}, {-2.5, 0xc020}, {1 + 0x1p-8, 0x3f80}, {1 + 0x3p-8, 0x3f82}, {1 + 0x1.8p-8, 0x3f81},
        {0x1.fep127, 0x7f7f}, {0x1.ffp127, 0x7f80}, {INFINITY, 0x7f80}, {-INFINITY, 0xff80},
    };

    for (size_t i = 0; i < ST_COUNT(row); i++) assert_int_equal(st_bf16_from_f64(row[i].value), row[i].bits);
    assert_true(isnan(st_bf16_to_f64(st_bf16_from_f64(NAN))));
    for (uint32_t bits = 0; bits < 0x7f80; bits++) /* every finite value comes back */
        assert_int_equal(st_bf16_from_f64(st_bf16_to_f64((uint16_t)bits)), bits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_as_stored),
        cmocka_unit_test(whole_numbers), cmocka_unit_test(floats), cmocka_unit_test(sizes), cmocka_unit_test(nearest),
        cmocka_unit_test(globs), cmocka_unit_test(plain_text), cmocka_unit_test(utf8), cmocka_unit_test(buffers),
        cmocka_unit_test(hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
