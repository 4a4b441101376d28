/* SPDX-License-Identifier: Apache-2.0 */
/* spec/ini.h - one INI text, line by line, with exact places. Private to spec/. */
#ifndef ST_SPEC_INI_H
#define ST_SPEC_INI_H
#include "base/base.h"

#define ST_INI_NAME_MAX 100 /* bytes of a section or key name */

/* A key with its value, or (key NULL) a section header. Strings live in the arena given. */
typedef struct st_ini_item {
    const char *section, *key, *text; /* section "" before the first header                                  */
    const char *line_text;            /* the raw line without its end                                        */
    int32_t line, column, key_column; /* 1-based, in bytes; column: of the value, or of the section's name    */
} st_ini_item;
typedef int (*st_ini_fn)(void *user, const st_ini_item *); /* not ST_OK stops the reading */

/* Reports every mistake of form into diags (placed in file `name`) and goes on behind it; returns the first code. */
int st_ini_parse(const char *name, const char *bytes, size_t n, st_arena *, st_ini_fn, void *user, st_diags *);
/* value as it must stand behind '=': in quotes when it would be read differently without them. */
void st_ini_put_value(st_buf *, const char *value);
#endif
