/* SPDX-License-Identifier: Apache-2.0 */
/* base/json.c - see the header. */
#include "config.h"
#include "base/json.h"
#include "base/base.h"
#include <stdlib.h>
#include <string.h>

json_t *st_json_text(const char *text)
{
    char *copy = strdup(text);
    json_t *j;

    if (copy) st_make_utf8(copy);
    j = copy ? json_string(copy) : NULL;
    free(copy);
    return j;
}

int st_json_print(json_t *j, size_t flags, FILE *to)
{
    char *text = j ? json_dumps(j, flags) : NULL;

    json_decref(j);
    if (!text) return ST_E_NOMEM;
    fprintf(to, "%s\n", text);
    free(text);
    return ST_OK;
}
