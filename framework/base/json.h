/* SPDX-License-Identifier: Apache-2.0 */
/* base/json.h - text for JSON that is written: paths and words about damaged files need not be UTF-8, JSON must. */
#ifndef ST_JSON_H
#define ST_JSON_H
#include <jansson.h>

json_t *st_json_text(const char *); /* bytes that are no UTF-8 become '?'; NULL: no memory */
#endif
