/* SPDX-License-Identifier: Apache-2.0 */
/* tests/spec/spec_test.h - what the programs of this folder share. */
#ifndef SPEC_TEST_H
#define SPEC_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "spec/spec.h"
#include <stdlib.h>
#include <string.h>

ST_FN char *shown(const st_diags *d) /* what the user sees; free it */
{
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    st_diags_print(d, f);
    fclose(f);
    return text;
}

ST_FN void expect_shown(const st_diags *d, const char *want)
{
    char *text = shown(d);
    assert_string_equal(text, want);
    free(text);
}

ST_FN const char *value_of(const st_spec *s, const char *section, const char *key)
{
    const st_value *v = st_spec_get(s, section, key);
    return v ? v->text : "(not given)";
}
#endif
