/* SPDX-License-Identifier: Apache-2.0 */
/* spec/param.c - one parameter between its text and the field of an instance, both ways. */
#include "spec/param.h"
#include "spec/spec.h"
#include <math.h>
#include <string.h>

st_param st_param_at(const st_param *params, uint32_t i, uint32_t param_size)
{
    st_param p = {0};
    size_t stride = param_size ? param_size : sizeof p;
    memcpy(&p, (const char *)params + i * stride, stride < sizeof p ? stride : sizeof p);
    return p;
}

static size_t field_size(uint32_t type)
{
    switch (type) {
    case ST_P_BOOL: case ST_P_ENUM: return sizeof(int32_t);
    case ST_P_INT: case ST_P_SIZE: return sizeof(int64_t);
    case ST_P_FLOAT: return sizeof(double);
    case ST_P_STRING: case ST_P_PATH: return sizeof(const char *);
    case ST_P_INTS: return sizeof(st_ints);
    case ST_P_FLOATS: return sizeof(st_floats);
    default: return 0;
    }
}

const char *st_param_misfit(const st_param *p)
{
    if (!p->key || !p->key[0]) return "it has no key";
    if (field_size(p->type) == 0) return "its type is unknown";
    if (p->size != field_size(p->type)) return "its field has the wrong size for its type";
    if (p->type == ST_P_ENUM && (!p->choices || !p->choices[0])) return "it has no choices";
    if (!(p->min <= p->max)) return "its range is empty";
    return NULL;
}

void st_param_unset(const st_param *p, void *instance)
{
    char *field = (char *)instance + p->offset;
    memset(field, 0, p->size);
    if (p->type == ST_P_INT || p->type == ST_P_SIZE) *(int64_t *)(void *)field = ST_UNSET_INT;
    if (p->type == ST_P_FLOAT) *(double *)(void *)field = NAN;
    if (p->type == ST_P_ENUM) *(int32_t *)(void *)field = -1;
}

/* ---- text to field ---- */

static bool bounded(const st_param *p)
{
    return p->min != 0 || p->max != 0;
}

static void range_text(const st_param *p, char *to, size_t size)
{
    const char *unit = p->unit ? p->unit : "", *gap = unit[0] ? " " : "";
    bool lower = p->min > -1e18, upper = p->max < 1e18; /* beyond that a bound only says "none" */
    if (lower && upper) snprintf(to, size, "must lie between %.15g and %.15g%s%s", p->min, p->max, gap, unit);
    else if (lower) snprintf(to, size, "must be at least %.15g%s%s", p->min, gap, unit);
    else snprintf(to, size, "must be at most %.15g%s%s", p->max, gap, unit);
}

static bool in_range(const st_param *p, long double v, char why[256])
{
    if (!bounded(p) || (v >= (long double)p->min && v <= (long double)p->max)) return true;
    range_text(p, why, 256);
    return false;
}

static bool set_bool(const char *text, int32_t *out, char why[256], char hint[256])
{
    static const char *const word[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
    for (int i = 0; i < (int)ST_COUNT(word); i++)
        if (!strcmp(text, word[i])) {
            *out = i & 1;
            return true;
        }
    snprintf(why, 256, "not a switch");
    snprintf(hint, 256, "write yes or no (true, false, on, off, 1, 0 do as well)");
    return false;
}

static bool set_enum(const st_param *p, const char *text, int32_t *out, char why[256], char hint[256])
{
    char copy[512], *save = NULL;
    const char *name[64];
    int n = 0;
    snprintf(copy, sizeof copy, "%s", p->choices);
    for (char *c = strtok_r(copy, "|", &save); c && n < (int)ST_COUNT(name); c = strtok_r(NULL, "|", &save))
        name[n++] = c;
    for (int i = 0; i < n; i++)
        if (!strcmp(text, name[i])) {
            *out = i;
            return true;
        }
    const char *near = st_nearest(text, name, n);
    size_t used = (size_t)snprintf(why, 256, "must be one of");
    for (int i = 0; i < n && used < 255; i++)
        used += (size_t)snprintf(why + used, 256 - used, "%s %s", i ? "," : "", name[i]);
    if (near) snprintf(hint, 256, "did you mean \"%s\"?", near);
    return false;
}

/* Item i of a list "11, 11, 10" into `to`; false behind the last. *text moves on. */
static bool next_item(const char **text, char *to, size_t size)
{
    if (!*text) return false;
    size_t n = strcspn(*text, ",");
    snprintf(to, size, "%.*s", (int)(n < size ? n : size - 1), *text);
    *text = (*text)[n] ? *text + n + 1 : NULL;
    return true;
}

static bool item_refused(int index, const char *item, const char *phrase, char why[256])
{
    char copy[128]; /* phrase may stand in why */
    snprintf(copy, sizeof copy, "%s", phrase);
    snprintf(why, 256, "entry %d (\"%.40s\"): %s", index + 1, item, copy);
    return false;
}

static bool set_ints(const st_param *p, const char *text, st_ints *out, char why[256])
{
    char item[64];
    const char *phrase = NULL;
    int64_t v;
    out->n = 0;
    while (next_item(&text, item, sizeof item)) {
        if (out->n == (int32_t)ST_COUNT(out->v)) {
            snprintf(why, 256, "a list has at most %d entries", (int)ST_COUNT(out->v));
            return false;
        }
        if (!st_parse_int(item, &v, &phrase)) return item_refused(out->n, item, phrase, why);
        if (v < INT32_MIN || v > INT32_MAX) return item_refused(out->n, item, "does not fit in 32 bits", why);
        if (!in_range(p, (long double)v, why)) return item_refused(out->n, item, why, why);
        out->v[out->n++] = (int32_t)v;
    }
    return true;
}

static bool set_floats(const st_param *p, const char *text, st_floats *out, char why[256])
{
    char item[64];
    const char *phrase = NULL;
    double v;
    out->n = 0;
    while (next_item(&text, item, sizeof item)) {
        if (out->n == (int64_t)ST_COUNT(out->v)) {
            snprintf(why, 256, "a list has at most %d entries", (int)ST_COUNT(out->v));
            return false;
        }
        if (!st_parse_float(item, &v, &phrase)) return item_refused((int)out->n, item, phrase, why);
        if (!in_range(p, (long double)v, why)) return item_refused((int)out->n, item, why, why);
        out->v[out->n++] = v;
    }
    return true;
}

/* What is often written in place of one number: a list, a comma for the point, a percentage, 1e3 for a whole one. */
static void hint_for_number(const st_param *p, const char *text, char hint[256])
{
    size_t n = strlen(text);
    char copy[64], point[32];
    char *comma;
    double v;

    if (n >= sizeof copy) return;
    memcpy(copy, text, n + 1);
    if ((comma = strchr(copy, ','))) {
        *comma = '.';
        if (p->type == ST_P_FLOAT && st_parse_float(copy, &v, NULL)) snprintf(hint, 256, "write %s: the point is a dot", copy);
        else snprintf(hint, 256, "one number is needed, this is a list");
        return;
    }
    if (n && copy[n - 1] == '%') {
        copy[n - 1] = '\0';
        if (!st_parse_float(copy, &v, NULL)) return;
        st_format_float(v / 100, point);
        if (p->type == ST_P_FLOAT) snprintf(hint, 256, "write %s for %s", point, text);
        return;
    }
    if (p->type == ST_P_INT && st_parse_float(copy, &v, NULL) && v == floor(v) && fabs(v) < 1e15)
        snprintf(hint, 256, "write %.0f", v);
}

bool st_param_set(const st_param *p, const char *text, void *instance, char why[256], char hint[256])
{
    void *field = (char *)instance + p->offset;
    const char *phrase = NULL;
    why[0] = hint[0] = 0;
    switch (p->type) {
    case ST_P_BOOL: return set_bool(text, field, why, hint);
    case ST_P_ENUM: return set_enum(p, text, field, why, hint);
    case ST_P_INTS: return set_ints(p, text, field, why);
    case ST_P_FLOATS: return set_floats(p, text, field, why);
    case ST_P_INT:
        if (st_parse_int(text, field, &phrase)) return in_range(p, (long double)*(int64_t *)field, why);
        break;
    case ST_P_SIZE:
        if (st_parse_size(text, field, &phrase)) return in_range(p, (long double)*(int64_t *)field, why);
        break;
    case ST_P_FLOAT:
        if (st_parse_float(text, field, &phrase)) return in_range(p, (long double)*(double *)field, why);
        break;
    default: /* string, path */
        memcpy(field, &text, sizeof text);
        return true;
    }
    snprintf(why, 256, "%s", phrase);
    hint_for_number(p, text, hint);
    return false;
}

/* ---- field to text ---- */

static void put_float(st_buf *b, double v)
{
    char text[32];
    st_format_float(v, text);
    st_buf_puts(b, text);
}

static void put_enum(st_buf *b, const char *choices, int32_t index)
{
    for (; index > 0 && choices; index--) {
        choices = strchr(choices, '|');
        if (choices) choices++;
    }
    if (choices) st_buf_add(b, choices, strcspn(choices, "|"));
}

static void put_size(st_buf *b, int64_t v)
{
    static const char *const unit[] = {"", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    while (v != 0 && u + 1 < (int)ST_COUNT(unit) && v % 1024 == 0) {
        v /= 1024;
        u++;
    }
    st_buf_printf(b, "%lld%s", (long long)v, unit[u]);
}

int st_param_text(const st_param *p, const void *instance, st_buf *b)
{
    const void *field = (const char *)instance + p->offset;
    switch (p->type) {
    case ST_P_BOOL: st_buf_puts(b, *(const int32_t *)field ? "yes" : "no"); break;
    case ST_P_ENUM: if (*(const int32_t *)field >= 0) put_enum(b, p->choices, *(const int32_t *)field); break;
    case ST_P_INT:
        if (*(const int64_t *)field != ST_UNSET_INT) st_buf_printf(b, "%lld", (long long)*(const int64_t *)field);
        break;
    case ST_P_SIZE: if (*(const int64_t *)field != ST_UNSET_INT) put_size(b, *(const int64_t *)field); break;
    case ST_P_FLOAT: if (!isnan(*(const double *)field)) put_float(b, *(const double *)field); break;
    case ST_P_INTS: {
        const st_ints *list = field;
        for (int i = 0; i < list->n; i++) st_buf_printf(b, "%s%d", i ? "," : "", list->v[i]);
        break;
    }
    case ST_P_FLOATS: {
        const st_floats *list = field;
        for (int i = 0; i < (int)list->n; i++) {
            if (i) st_buf_puts(b, ",");
            put_float(b, list->v[i]);
        }
        break;
    }
    default: {
        const char *text;
        memcpy(&text, field, sizeof text);
        if (text) st_buf_puts(b, text);
    }
    }
    st_buf_add(b, "", 0); /* so that data is a string also when nothing was written */
    return b->failed ? ST_E_NOMEM : ST_OK;
}
