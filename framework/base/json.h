/* SPDX-License-Identifier: Apache-2.0 */
/* base/json.h - JSON that is written. Paths and words about damaged files need not be UTF-8, JSON must. */
#ifndef ST_JSON_H
#define ST_JSON_H
#include <jansson.h>
#include <stdio.h>

json_t *st_json_text(const char *); /* bytes that are no UTF-8 become '?'; NULL: no memory */
/* Takes j over and prints all of it and a line feed, or nothing: ST_E_NOMEM, when j is NULL too. flags: json_dumps's. */
int st_json_print(json_t *j, size_t flags, FILE *to);
#endif
