/* SPDX-License-Identifier: Apache-2.0 */
/* spec/ini.c - the one place that reads INI, for specs and manifests. The syntax is told in docs/spec-syntax.md.
 *
 * inih drives sections and pairs, behind a reader of ours. Its buffers are short: release 55 splits a line over 199
 * bytes and reads the rest as a line of its own, cuts section names at 49 bytes, and takes an indented line for a
 * continuation. So the reader hands it short lines, one for each line of the file: a section becomes a number, a value
 * a mark, comments and refused lines become empty; names and values are kept here, whole and with their places. */
#include "spec/ini.h"
#include <ini.h>
#include <string.h>

#define MARK "@"

typedef struct reader {
    const char *name;
    st_arena *arena;
    st_ini_fn fn;
    void *user;
    st_diags *diags;
    char *raw, *work; /* two copies of the text: raw lines for messages, work is cut up into names and values */
    size_t n, at;
    int32_t line, sections;
    const char *section; /* the open one; NULL behind a refused header: its keys are checked but not handed on */
    char token[24];      /* the open section as inih knows it */
    st_ini_item item;
    int first_code, stop;
} reader;

static int refuse(reader *r, int32_t column, const char *hint, const char *fmt, ...) ST_PRINTF(4, 5);
static int refuse(reader *r, int32_t column, const char *hint, const char *fmt, ...)
{
    const st_place at = {r->name, r->line, column, r->item.line_text};
    va_list ap;
    va_start(ap, fmt);
    int rc = st_diags_vfail(r->diags, &at, false, hint, fmt, ap);
    va_end(ap);
    if (r->first_code == ST_OK) r->first_code = rc;
    return rc;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_comment(char c)
{
    return c == ';' || c == '#';
}

static char *skip_blanks(char *p)
{
    while (is_blank(*p)) p++;
    return p;
}

/* ---- bytes ---- */

/* Text in another encoding is refused as a whole, by its name: line by line it would be nothing but noise. */
static const char *foreign_encoding(const unsigned char *p, size_t n)
{
    if (n >= 4 && p[0] == 0xFF && p[1] == 0xFE && p[2] == 0 && p[3] == 0) return "UTF-32 (little-endian)";
    if (n >= 4 && p[0] == 0 && p[1] == 0 && p[2] == 0xFE && p[3] == 0xFF) return "UTF-32 (big-endian)";
    if (n >= 2 && p[0] == 0xFF && p[1] == 0xFE) return "UTF-16 (little-endian)";
    if (n >= 2 && p[0] == 0xFE && p[1] == 0xFF) return "UTF-16 (big-endian)";
    if (n >= 4 && p[0] && !p[1] && p[2] && !p[3]) return "UTF-16 (little-endian, without a byte-order mark)";
    if (n >= 4 && !p[0] && p[1] && !p[2] && p[3]) return "UTF-16 (big-endian, without a byte-order mark)";
    return NULL;
}

static bool bytes_are_text(reader *r, const char *line, size_t n)
{
    size_t bad;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = st_control(line + i, n - i);
        if (!bytes) continue;
        unsigned char c = (unsigned char)line[i + bytes - 1];
        int32_t column = (int32_t)i + 1;
        if (c == 0) refuse(r, column, "is this a text file?", "a NUL byte");
        else if (c == '\r') refuse(r, column, "end lines with a line feed", "a carriage return inside the line");
        else refuse(r, column, "remove it, or write it in quotes as an escape", "a control character (0x%02x)", c);
        return false;
    }
    if (st_utf8_valid(line, n, &bad)) return true;
    refuse(r, (int32_t)bad + 1, "save the file as UTF-8", "not UTF-8: byte 0x%02x", (unsigned char)line[bad]);
    return false;
}

/* ---- names ---- */

static bool name_is_good(reader *r, const char *what, const char *p, size_t n, int32_t column)
{
    if (n > ST_INI_NAME_MAX) {
        refuse(r, column, NULL, "a %s of %zu bytes; at most %d", what, n, ST_INI_NAME_MAX);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_blank(p[i]) && !strchr("=:;#[]\"", p[i])) continue;
        if (is_blank(p[i])) refuse(r, column + (int32_t)i, NULL, "a blank inside a %s", what);
        else refuse(r, column + (int32_t)i, NULL, "'%c' inside a %s", p[i], what);
        return false;
    }
    return true;
}

/* ---- [section] ---- */

static bool read_header(reader *r, char *line, char *open)
{
    char *close = strchr(open, ']');
    r->section = NULL;
    if (!close) {
        refuse(r, (int32_t)(open - line) + 1, "write [name]", "a section header without ']'");
        return false;
    }
    char *rest = skip_blanks(close + 1), *name = skip_blanks(open + 1), *end = close;
    while (end > name && is_blank(end[-1])) end--;
    if (end == name) {
        refuse(r, (int32_t)(open - line) + 1, "write [name]", "a section without a name");
        return false;
    }
    if (*rest && !is_comment(*rest)) {
        refuse(r, (int32_t)(rest - line) + 1, "a header stands on a line of its own", "text behind a section header");
        return false;
    }
    if (!name_is_good(r, "section name", name, (size_t)(end - name), (int32_t)(name - line) + 1)) return false;
    *end = 0;
    r->section = r->item.section = name;
    r->item.key = r->item.text = NULL;
    r->item.column = r->item.key_column = (int32_t)(name - line) + 1;
    snprintf(r->token, sizeof r->token, MARK "%d", ++r->sections);
    return true;
}

/* ---- key = value ---- */

static char *read_quoted(reader *r, char *line, char *p)
{
    char *start = p++, *out = p, *text = p;
    for (; *p && *p != '"'; p++) {
        if (*p != '\\') {
            *out++ = *p;
            continue;
        }
        char c = *++p;
        if (c == 'n') *out++ = '\n';
        else if (c == 't') *out++ = '\t';
        else if (c == '\\' || c == '"') *out++ = c;
        else {
            refuse(r, (int32_t)(p - line), "escapes are \\n \\t \\\" \\\\", "an unknown escape in a quoted value");
            return NULL;
        }
    }
    if (!*p) {
        refuse(r, (int32_t)(start - line) + 1, "a value is one line", "a quoted value without its closing quote");
        return NULL;
    }
    char *rest = skip_blanks(p + 1);
    if (*rest && !(is_comment(*rest) && rest > p + 1)) {
        refuse(r, (int32_t)(rest - line) + 1, "put the whole value in quotes and write \\\" for a quote inside",
               "text behind a quoted value");
        return NULL;
    }
    *out = 0;
    r->item.column = (int32_t)(text - line) + 1;
    return text;
}

static char *read_value(reader *r, char *line, char *p)
{
    char *text = skip_blanks(p), *end;
    if (*text == '"') return read_quoted(r, line, text);
    for (end = text; *end; end++)
        if (is_comment(*end) && is_blank(end[-1])) break; /* end[-1]: at least the '=' stands in front */
    while (end > text && is_blank(end[-1])) end--;
    *end = 0;
    r->item.column = (int32_t)(text - line) + 1;
    return text;
}

static void refuse_no_equals(reader *r, char *line, char *first)
{
    char *colon = strchr(first, ':');
    const char *hint = "write key = value, [section] or ; comment";
    int32_t column = (int32_t)(first - line) + 1;
    if (colon) {
        hint = "write key = value; a colon does not set a key";
        column = (int32_t)(colon - line) + 1;
    } else if (first > line) {
        hint = "a value is one line: an indented line does not continue the one above";
    }
    refuse(r, column, hint, "neither a key with '=' nor a section");
}

static bool read_pair(reader *r, char *line, char *first)
{
    char *equals = strchr(first, '='), *end = equals;
    if (!equals) {
        refuse_no_equals(r, line, first);
        return false;
    }
    while (end > first && is_blank(end[-1])) end--;
    if (end == first) {
        refuse(r, (int32_t)(first - line) + 1, "write key = value", "no key in front of '='");
        return false;
    }
    int32_t column = (int32_t)(first - line) + 1;
    if (!name_is_good(r, "key", first, (size_t)(end - first), column)) return false;
    char *text = read_value(r, line, equals + 1);
    if (!text) return false;
    *end = 0;
    r->item.section = r->section;
    r->item.key = first;
    r->item.key_column = column;
    r->item.text = text;
    return r->section != NULL;
}

/* ---- inih's two callbacks ---- */

/* Cuts the next line out of both copies; returns its length, the line end excluded. */
static size_t next_line(reader *r, char **line)
{
    char *p = r->work + r->at, *feed = memchr(p, '\n', r->n - r->at);
    size_t n = feed ? (size_t)(feed - p) : r->n - r->at, whole = n + (feed != NULL);
    if (n > 0 && p[n - 1] == '\r' && feed) n--;
    p[n] = 0;
    r->raw[r->at + n] = 0;
    memset(&r->item, 0, sizeof r->item);
    r->item.line_text = r->raw + r->at;
    r->item.line = ++r->line;
    r->at += whole;
    *line = p;
    return n;
}

static char *give_line(char *to, int size, void *user)
{
    reader *r = user;
    char *line;
    if (r->stop || r->at >= r->n) return NULL;
    size_t n = next_line(r, &line);
    snprintf(to, (size_t)size, "\n");
    if (!bytes_are_text(r, line, n)) return to;
    char *first = skip_blanks(line);
    if (!*first || is_comment(*first)) return to;
    if (*first == '[') {
        if (!read_header(r, line, first)) return to;
        r->stop = r->fn(r->user, &r->item);
        snprintf(to, (size_t)size, "[%s]\n", r->token);
    } else if (read_pair(r, line, first)) {
        snprintf(to, (size_t)size, "%s=" MARK "\n", r->item.key);
    }
    return to;
}

static int take_pair(void *user, const char *section, const char *key, const char *value)
{
    reader *r = user;
    bool same = r->item.key && !strcmp(key, r->item.key) && !strcmp(value, MARK) && !strcmp(section, r->token);
    if (r->stop) return 1;
    if (same) r->stop = r->fn(r->user, &r->item);
    return same;
}

static int finish(reader *r, int inih_says)
{
    st_error e = {0};
    if (r->first_code == ST_OK && r->stop == ST_OK && inih_says != 0) { /* it saw other lines than it was given */
        r->line = inih_says > 0 ? inih_says : 0;
        st_fail_at(&e, ST_E_INTERNAL, r->name, r->line, 0, "the INI library did not take a line that is well formed");
        return st_diags_add(r->diags, &e, NULL, false);
    }
    return r->first_code != ST_OK ? r->first_code : r->stop;
}

int st_ini_parse(const char *name, const char *bytes, size_t n, st_arena *arena, st_ini_fn fn, void *user,
                 st_diags *diags)
{
    reader r = {.name = name, .arena = arena, .fn = fn, .user = user, .diags = diags, .section = ""};
    const char *foreign = foreign_encoding((const unsigned char *)bytes, n);
    if (foreign) {
        r.line = 1;
        return refuse(&r, 1, "save the file as UTF-8", "the text is %s, not UTF-8", foreign);
    }
    if (n >= 3 && !memcmp(bytes, "\xEF\xBB\xBF", 3)) { /* byte-order mark */
        bytes += 3;
        n -= 3;
    }
    r.n = n;
    r.raw = st_arena_strndup(arena, bytes, n);
    r.work = st_arena_strndup(arena, bytes, n);
    if (!r.raw || !r.work) {
        st_error e = {0};
        st_fail_at(&e, ST_E_NOMEM, name, 0, 0, "no memory for the text (%zu bytes)", n);
        return st_diags_add(diags, &e, NULL, false);
    }
    return finish(&r, ini_parse_stream(give_line, &r, take_pair, &r));
}

/* ---- writing ---- */

static bool needs_quotes(const char *v)
{
    size_t n = strlen(v);
    if (n == 0) return false;
    if (is_blank(v[0]) || is_blank(v[n - 1]) || v[0] == '"' || is_comment(v[0])) return true;
    for (size_t i = 0; i < n; i++)
        if (v[i] == '\n' || v[i] == '\t' || (i > 0 && is_comment(v[i]) && is_blank(v[i - 1]))) return true;
    return false;
}

void st_ini_put_value(st_buf *b, const char *v)
{
    if (!needs_quotes(v)) {
        st_buf_puts(b, v);
        return;
    }
    st_buf_puts(b, "\"");
    for (; *v; v++) {
        if (*v == '\n') st_buf_puts(b, "\\n");
        else if (*v == '\t') st_buf_puts(b, "\\t");
        else if (*v == '"' || *v == '\\') st_buf_printf(b, "\\%c", *v);
        else st_buf_add(b, v, 1);
    }
    st_buf_puts(b, "\"");
}
