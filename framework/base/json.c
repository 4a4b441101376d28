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
