/* SPDX-License-Identifier: Apache-2.0 */
/* base/error.c - wording one error record. The first error wins: a record that already holds a code is left alone, so a
 * clean-up path that fails too never hides the cause. Fixed-size fields: a text that does not fit ends in "...". */
#include "config.h"
#include "base/base.h"
#include <errno.h>
#include <string.h>

const char *st_code_name(int code)
{
    static const char *const name[] = {"ok",     "config", "abi",  "not found", "memory", "unsupported", "shape",
                                       "device", "comm",   "file", "data",      "fault",  "internal"};
    return code <= 0 && code >= -(int)(sizeof name / sizeof name[0]) + 1 ? name[-code] : "unknown";
}

/* A cut text must not end inside a UTF-8 character and must show that it was cut. */
static void mark_cut(char *text, size_t size)
{
    size_t n = size - 4;
    while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) n--;
    memcpy(text + n, "...", 4);
}

static void put_va(char *to, size_t size, const char *fmt, va_list ap)
{
    int n = vsnprintf(to, size, fmt, ap);
    if (n < 0) snprintf(to, size, "(a message that cannot be formatted)");
    else if ((size_t)n >= size) mark_cut(to, size);
    for (char *p = to; *p; p++) if (*p == '\n' || *p == '\r') *p = ' ';
}

static bool claim(st_error *e, int code, const char *file, int line, int column)
{
    if (!e || e->code != ST_OK) return false;
    memset(e, 0, sizeof *e);
    e->code = code ? code : ST_E_INTERNAL;
    e->line = line;
    e->column = column;
    e->layer = -1;
    if (file && (size_t)snprintf(e->file, sizeof e->file, "%s", file) >= sizeof e->file)
        mark_cut(e->file, sizeof e->file);
    return true;
}

int st_fail(st_error *e, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (claim(e, code, NULL, 0, 0)) put_va(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return code;
}

int st_fail_at(st_error *e, int code, const char *file, int line, int column, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (claim(e, code, file, line, column)) put_va(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return code;
}

int st_fail_errno(st_error *e, const char *path, const char *doing)
{
    int number = errno;
    char text[128];
    const char *why = strerror_r(number, text, sizeof text); /* the GNU form: returns the text */
    return st_fail(e, number == ENOMEM ? ST_E_NOMEM : ST_E_IO, "%s: cannot %s: %s", path, doing, why);
}

void st_error_hint(st_error *e, const char *fmt, ...)
{
    va_list ap;
    if (!e || e->hint[0]) return;
    va_start(ap, fmt);
    put_va(e->hint, sizeof e->hint, fmt, ap);
    va_end(ap);
}

void st_error_detail(st_error *e, const char *fmt, ...)
{
    va_list ap;
    if (!e || e->detail[0]) return;
    va_start(ap, fmt);
    put_va(e->detail, sizeof e->detail, fmt, ap);
    va_end(ap);
}

void st_error_context(st_error *e, const char *fmt, ...)
{
    char old[sizeof e->message], front[sizeof e->message];
    va_list ap;
    if (!e) return;
    memcpy(old, e->message, sizeof old);
    va_start(ap, fmt);
    put_va(front, sizeof front, fmt, ap);
    va_end(ap);
    if ((size_t)snprintf(e->message, sizeof e->message, "%s: %s", front, old) >= sizeof e->message)
        mark_cut(e->message, sizeof e->message);
}
