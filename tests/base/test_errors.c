/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_errors.c - one error record, and many shown with their lines and carets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/base.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static char *shown(const st_diags *d)
{
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    st_diags_print(d, f);
    fclose(f);
    return text;
}

static void first_error_wins(void **state)
{
    st_error e = {0};
    assert_int_equal(st_fail_at(&e, ST_E_CONFIG, "a.ini", 3, 4, "lr = %s: wrong", "x"), ST_E_CONFIG);
    assert_int_equal(st_fail(&e, ST_E_IO, "later"), ST_E_IO);
    st_error_hint(&e, "first hint");
    st_error_hint(&e, "second hint");
    st_error_detail(&e, "both %d", 2);
    st_error_context(&e, "layer %d", 7);
    assert_int_equal(e.code, ST_E_CONFIG);
    assert_int_equal(e.line, 3);
    assert_int_equal(e.column, 4);
    assert_string_equal(e.message, "layer 7: lr = x: wrong");
    assert_string_equal(e.hint, "first hint");
    assert_string_equal(e.detail, "both 2");
    assert_int_equal(st_fail(NULL, ST_E_IO, "nobody listens"), ST_E_IO);
    assert_string_equal(st_code_name(ST_E_CONFIG), "config");
    assert_string_equal(st_code_name(ST_E_INTERNAL), "internal");
    assert_string_equal(st_code_name(-99), "unknown");
    assert_string_equal(st_code_name(5), "unknown");
}

static void long_and_multi_line_texts(void **state)
{
    st_error e = {0};
    char text[1000];
    for (size_t i = 0; i < sizeof text - 1; i += 3) memcpy(text + i, "\xE2\x82\xAC", 3);
    text[999] = 0;
    st_fail(&e, ST_E_DATA, "%s", text);
    size_t n = strlen(e.message);
    assert_string_equal(e.message + n - 3, "...");
    assert_true(st_utf8_valid(e.message, n, NULL));
    memset(&e, 0, sizeof e);
    st_fail(&e, ST_E_DATA, "two\nlines");
    assert_string_equal(e.message, "two lines");
    memset(&e, 0, sizeof e);
    errno = ENOENT;
    assert_int_equal(st_fail_errno(&e, "p", "open"), ST_E_IO);
    assert_string_equal(e.message, "p: cannot open: No such file or directory");
}

static void mistakes_with_carets(void **state)
{
    st_diags d = {0};
    st_error e = {0}, w = {0}, f = {0};
    st_fail_at(&e, ST_E_CONFIG, "a.ini", 7, 9, "wrong");
    st_error_hint(&e, "do this");
    assert_int_equal(st_diags_add(&d, &e, "\tkey\xC3\xA9 = x\r\n", false), ST_E_CONFIG);
    st_fail_at(&w, ST_E_CONFIG, "a.ini", 8, 0, "odd");
    st_diags_add(&d, &w, NULL, true);
    st_fail(&f, ST_E_IO, "no place");
    st_diags_add(&d, &f, NULL, false);
    assert_int_equal(d.errors, 2);
    assert_int_equal(d.warnings, 1);
    char *text = shown(&d);
    assert_string_equal(text, "a.ini:7:9: error: wrong\n    \tkey\xC3\xA9 = x\n    \t      ^\n  hint: do this\n"
                              "a.ini:8: warning: odd\nerror: no place\n");
    free(text);
}

static void unprintable_lines(void **state)
{
    st_diags d = {0};
    st_error e = {0};
    st_fail_at(&e, ST_E_CONFIG, "a", 1, 8, "x");
    st_diags_add(&d, &e, "caf\xE9 \x1B\x80=", false);
    char *text = shown(&d);
    assert_string_equal(text, "a:1:8: error: x\n    caf? ?\?=\n           ^\n");
    free(text);
}

/* A user's paths and values stand in messages: nothing of them acts on a terminal, and each stays one line. */
static void unprintable_words(void **state)
{
    st_diags d = {0};
    st_error e = {0};
    st_fail_at(&e, ST_E_CONFIG, "a\n\x1B[31m", 1, 1, "b\x7F\tc\xFFz");
    st_error_detail(&e, "\xC2\x9B" "31m");
    st_error_hint(&e, "\xC3\xA9\r\xC2");
    st_diags_add(&d, &e, NULL, false);
    char *text = shown(&d);
    assert_string_equal(text, "a??[31m:1:1: error: b?\tc?z\n  detail: ??31m\n  hint: \xC3\xA9 ?\n");
    free(text);
}

/* The caret of a long line stands below the right character of the part that is shown. */
static void long_lines(void **state)
{
    char line[5001];
    for (int i = 0; i < 5000; i++) line[i] = (char)('a' + i % 26);
    line[5000] = 0;
    static const int column[] = {1, 2, 100, 200, 248, 249, 250, 2500, 4999, 5000, 5001};
    for (size_t i = 0; i < ST_COUNT(column); i++) {
        st_diags d = {0};
        st_error e = {0};
        st_fail_at(&e, ST_E_CONFIG, "a", 1, column[i], "x");
        st_diags_add(&d, &e, line, false);
        assert_int_equal(d.item[0].error.column, column[i]);
        assert_true(d.item[0].caret >= 1 && d.item[0].caret <= 256);
        assert_true(strlen(d.item[0].line_text) < sizeof d.item[0].line_text);
        if (column[i] <= 5000) assert_int_equal(d.item[0].line_text[d.item[0].caret - 1], line[column[i] - 1]);
    }
}

static void too_many(void **state)
{
    st_diags d = {0};
    st_error e = {0}, last = {0};
    st_fail(&e, ST_E_CONFIG, "one of many");
    for (int i = 0; i < 30; i++) st_diags_add(&d, &e, NULL, true);
    st_fail(&last, ST_E_CONFIG, "an error behind many warnings");
    st_diags_add(&d, &last, NULL, false);
    assert_int_equal(d.n, ST_DIAGS_MAX);
    assert_int_equal(d.warnings, 30);
    assert_int_equal(d.errors, 1);
    char *text = shown(&d);
    assert_non_null(strstr(text, "error: an error behind many warnings\n... and 11 more\n"));
    free(text);
    for (int i = 0; i < 100; i++) st_diags_add(&d, &last, NULL, false);
    assert_int_equal(d.n, ST_DIAGS_MAX);
    assert_int_equal(d.errors, 101);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_error_wins),
        cmocka_unit_test(long_and_multi_line_texts),
        cmocka_unit_test(mistakes_with_carets),
        cmocka_unit_test(unprintable_lines), cmocka_unit_test(unprintable_words), cmocka_unit_test(long_lines),
        cmocka_unit_test(too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
