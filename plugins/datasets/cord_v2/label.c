/* SPDX-License-Identifier: Apache-2.0 */
/* datasets/cord_v2/label.c - ground truth to the tagged text of a label.
 *
 * {"nm": "Tea", "cnt": ["1", "2"]} is <s_nm>Tea</s_nm><s_cnt>1<sep/>2</s_cnt>; an object with text_sequence alone is
 * that text, and a label that is nothing else is content from its first byte to its last. Keys go in
 * descending order of their bytes, as in the reference converter, or as the file has them. Values that are no
 * strings are written as Python prints them, so numbers keep every digit. */
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cord_v2.h"

typedef struct writer {
    const st_worker *w;
    cord_label *out;
    size_t room;
    int32_t marks_room, order;
} writer;

static int no_memory(const st_worker *w) { return ST_WORKER_FAIL(w, ST_E_NOMEM, "no memory for a label"); }

static int put(writer *t, const char *text, size_t n)
{
    cord_label *o = t->out;
    if (o->n + n > t->room) {
        size_t room = 2 * (o->n + n) + 256;
        char *more = t->w->host->alloc(t->w->arena, room);
        if (!more) return no_memory(t->w);
        if (o->n) memcpy(more, o->text, o->n);
        o->text = more;
        t->room = room;
    }
    memcpy(o->text + o->n, text, n);
    o->n += n;
    return ST_OK;
}

static int put_tag(writer *t, const char *open, const char *key, size_t n)
{
    ST_TRY(put(t, open, strlen(open)));
    ST_TRY(put(t, key, n));
    return put(t, ">", 1);
}

static int mark(writer *t, size_t first, size_t n)
{
    cord_label *o = t->out;
    if (o->n_marks == t->marks_room) {
        int32_t room = 2 * o->n_marks + 16;
        st_text_mark *more = t->w->host->alloc(t->w->arena, sizeof *more * (size_t)room);
        if (!more) return no_memory(t->w);
        if (o->n_marks) memcpy(more, o->marks, sizeof *more * (size_t)o->n_marks);
        o->marks = more;
        t->marks_room = room;
    }
    o->marks[o->n_marks++] = (st_text_mark){(uint32_t)first, (uint32_t)n};
    return ST_OK;
}

/* A label that is one text: only the picture tells any of it. */
static int put_plain(writer *t, const char *text, size_t n)
{
    if (n == 0) return ST_OK;
    ST_TRY(mark(t, 0, n));
    return put(t, text, n);
}

/* What only the picture can tell: the leading digits of an amount (25 of 25,000), else where a word begins. */
static int put_value(writer *t, const char *text, size_t n)
{
    size_t digits = 0;
    if (n == 0) return ST_OK;
    while (digits < n && text[digits] >= '0' && text[digits] <= '9') digits++;
    ST_TRY(mark(t, t->out->n, digits ? digits : 1));
    return put(t, text, n);
}

/* ---- numbers: quoted before the JSON reader sees them, so that it keeps their digits ---- */

/* A value ends here; what is followed by a colon would be a key, which JSON wants in quotes. */
static bool number_ends(const char *p, const char *end)
{
    if (p < end && *p && strchr("0123456789+-.eE", *p)) return false;
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) p++;
    return p >= end || *p != ':';
}

static const char *digits_from(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p;
}

/* The end of a number as JSON spells it, and whether it has a point or exponent; NULL: none. */
static const char *scan_number(const char *p, const char *end, bool *real)
{
    const char *at = p + (*p == '-'), *digits = digits_from(at, end);
    *real = false;
    if (digits == at || (*at == '0' && digits > at + 1)) return NULL;
    at = digits;
    if (at < end && *at == '.') {
        *real = true;
        digits = digits_from(++at, end);
        if (digits == at) return NULL;
        at = digits;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        *real = true;
        at++;
        if (at < end && (*at == '+' || *at == '-')) at++;
        digits = digits_from(at, end);
        if (digits == at) return NULL;
        at = digits;
    }
    return number_ends(at, end) ? at : NULL;
}

/* The shortest digits that read back as the same double, laid out as Python's repr: plain from 1e-4 to below 1e16. */
static size_t print_real(double x, char out[64])
{
    char sci[40], digits[20];
    int n = 0, exponent = 0, precision = 0;
    for (; precision < 17; precision++) {
        snprintf(sci, sizeof sci, "%.*e", precision, x);
        if (strtod(sci, NULL) == x) break;
    }
    const char *e = strchr(sci, 'e');
    exponent = atoi(e + 1);
    for (const char *p = sci; p < e; p++)
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0') n--;
    char *to = out;
    if (x < 0 || sci[0] == '-') *to++ = '-';
    if (exponent < -4 || exponent >= 16) {
        to += sprintf(to, "%c", digits[0]);
        if (n > 1) to += sprintf(to, ".%.*s", n - 1, digits + 1);
        to += sprintf(to, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        to += sprintf(to, "0.%.*s%.*s", -exponent - 1, "0000", n, digits);
    } else {
        for (int i = 0; i <= exponent || i < n; i++) {
            if (i == exponent + 1) *to++ = '.';
            *to++ = i < n ? digits[i] : '0';
        }
        if (n <= exponent + 1) to += sprintf(to, ".0");
    }
    return (size_t)(to - out);
}

static size_t print_number(const st_worker *w, const char *p, size_t n, bool real, char *out, int *rc)
{
    *rc = ST_OK;
    if (!real) { /* Python has no negative zero among its integers */
        if (n == 2 && memcmp(p, "-0", 2) == 0) p++, n--;
        memcpy(out, p, n);
        return n;
    }
    json_t *v = json_loadb(p, n, JSON_DECODE_ANY, NULL); /* independent of the locale; refuses what overflows */
    if (!v) {
        *rc = ST_WORKER_FAIL(w, ST_E_DATA, "ground_truth: the number %.*s is out of range", n < 40 ? (int)n : 40, p);
        return 0;
    }
    n = print_real(json_real_value(v), out);
    json_decref(v);
    return n;
}

/* A copy with every number outside strings in quotes. */
static int quote_numbers(const st_worker *w, const char *json, size_t n, char **out, size_t *n_out)
{
    char *to = w->host->alloc(w->arena, 8 * n + 64); /* 1e15 prints as 1000000000000000.0 */
    const char *end = json + n;
    bool inside = false;
    int rc;
    *out = to;
    if (!to) return no_memory(w);
    for (const char *p = json; p < end;) {
        bool real;
        const char *stop = !inside && (*p == '-' || (*p >= '0' && *p <= '9')) ? scan_number(p, end, &real) : NULL;
        if (stop) {
            *to++ = '"';
            to += print_number(w, p, (size_t)(stop - p), real, to, &rc);
            ST_TRY(rc);
            *to++ = '"';
            p = stop;
            continue;
        }
        if (inside && *p == '\\' && p + 1 < end) *to++ = *p++;
        else if (*p == '"') inside = !inside;
        *to++ = *p++;
    }
    *n_out = (size_t)(to - *out);
    return ST_OK;
}

/* ---- objects ---- */

typedef struct field {
    const char *key;
    size_t n;
    json_t *value;
} field;

static int descending(const void *a, const void *b)
{
    const field *x = a, *y = b;
    int c = memcmp(x->key, y->key, x->n < y->n ? x->n : y->n);
    return c ? -c : x->n < y->n ? 1 : x->n > y->n ? -1 : 0;
}

static int put_any(writer *t, json_t *v);

static int put_object(writer *t, json_t *object)
{
    size_t n = json_object_size(object), i = 0;
    json_t *sequence = n == 1 ? json_object_get(object, "text_sequence") : NULL, *value;
    const char *key;
    if (sequence) return put_any(t, sequence);
    if (n == 0) return ST_OK;
    field *f = t->w->host->alloc(t->w->arena, sizeof *f * n);
    if (!f) return no_memory(t->w);
    json_object_foreach(object, key, value) f[i++] = (field){key, strlen(key), value};
    if (t->order == CORD_ORDER_SORTED) qsort(f, n, sizeof *f, descending);
    for (i = 0; i < n; i++) {
        ST_TRY(put_tag(t, "<s_", f[i].key, f[i].n));
        ST_TRY(put_any(t, f[i].value));
        ST_TRY(put_tag(t, "</s_", f[i].key, f[i].n));
    }
    return ST_OK;
}

static int put_any(writer *t, json_t *v) /* as deep as the JSON reader allows: 2048 */
{
    size_t i;
    json_t *item;
    if (json_is_object(v)) return put_object(t, v);
    if (json_is_string(v)) return put_value(t, json_string_value(v), json_string_length(v));
    if (json_is_true(v)) return put_value(t, "True", 4);
    if (json_is_false(v)) return put_value(t, "False", 5);
    if (json_is_null(v)) return put_value(t, "None", 4);
    json_array_foreach(v, i, item)
    {
        if (i > 0) ST_TRY(put(t, "<sep/>", 6));
        ST_TRY(put_any(t, item));
    }
    return ST_OK;
}

static int write_label(const st_worker *w, json_t *root, int32_t order, cord_label *out)
{
    writer t = {.w = w, .out = out, .order = order};
    json_t *parse = json_object_get(root, "gt_parse");
    if (!json_is_object(root)) return ST_WORKER_FAIL(w, ST_E_DATA, "ground_truth is no object");
    if (!parse) parse = json_array_get(json_object_get(root, "gt_parses"), 0);
    if (!parse) return ST_WORKER_FAIL(w, ST_E_DATA, "ground_truth has neither gt_parse nor gt_parses");
    if (json_object_size(parse) == 1 && json_object_get(parse, "text_sequence"))
        parse = json_object_get(parse, "text_sequence");
    if (json_is_string(parse)) ST_TRY(put_plain(&t, json_string_value(parse), json_string_length(parse)));
    else ST_TRY(put_any(&t, parse));
    if (out->n > UINT32_MAX / 2) return ST_WORKER_FAIL(w, ST_E_DATA, "ground_truth: a label of %zu bytes", out->n);
    return ST_OK;
}

int cord_label_of(const st_worker *w, const char *json, size_t n, int32_t order, cord_label *out)
{
    char *quoted = NULL;
    size_t n_quoted = 0;
    json_error_t why;
    memset(out, 0, sizeof *out);
    ST_TRY(quote_numbers(w, json, n, &quoted, &n_quoted));
    json_t *root = json_loadb(quoted, n_quoted, JSON_ALLOW_NUL, &why);
    if (!root) return ST_WORKER_FAIL(w, ST_E_DATA, "ground_truth is not valid JSON: %s", why.text);
    int rc = write_label(w, root, order, out);
    json_decref(root);
    return rc;
}
