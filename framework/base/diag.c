/* SPDX-License-Identifier: Apache-2.0 */
/* base/diag.c - mistakes collected so that a user sees them all at once, each with the line it is on and a caret. */
#include "base/base.h"
#include <string.h>

/* Copies the part of a line around `column` that fits the record; sets caret to the column inside the copy. */
static void keep_line(st_diag *d, const char *line, int column)
{
    size_t n = strcspn(line, "\r\n"), room = sizeof d->line_text - 8, start = 0;
    size_t at = column > 0 ? (size_t)column - 1 : 0;
    const char *front = "", *back = "";
    if (n > room && at > room * 3 / 4) {
        start = at - room / 2;
        if (start + room > n) start = n - room;
        while (start < n && ((unsigned char)line[start] & 0xC0) == 0x80) start++;
        front = "...";
    }
    size_t len = n - start;
    if (len > room) {
        len = room;
        while (len > 0 && ((unsigned char)line[start + len] & 0xC0) == 0x80) len--;
        back = "...";
    }
    snprintf(d->line_text, sizeof d->line_text, "%s%.*s%s", front, (int)len, line + start, back);
    st_make_printable(d->line_text);
    d->caret = column > 0 && at >= start && at - start <= len ? (int32_t)(at - start + strlen(front)) + 1 : 0;
}

int st_diags_add(st_diags *all, const st_error *e, const char *line_text, bool warning)
{
    int slot = all->n;
    if (warning) all->warnings++;
    else all->errors++;
    if (slot == ST_DIAGS_MAX) { /* full: an error still takes the place of the last warning */
        do slot--; while (slot >= 0 && !all->item[slot].warning);
        if (warning || slot < 0) return e->code;
    } else {
        all->n++;
    }
    st_diag *d = &all->item[slot];
    d->error = *e;
    st_make_printable(d->error.file); /* paths and values of a user's, told on a terminal */
    st_make_printable(d->error.message);
    st_make_printable(d->error.detail);
    st_make_printable(d->error.hint);
    d->warning = warning;
    d->line_text[0] = 0;
    d->caret = 0;
    if (line_text) keep_line(d, line_text, e->column);
    return e->code;
}

int st_diags_vfail(st_diags *all, const st_place *at, bool warning, const char *hint, const char *fmt, va_list ap)
{
    st_error e = {0};
    char text[sizeof e.message];
    vsnprintf(text, sizeof text, fmt, ap);
    st_fail_at(&e, ST_E_CONFIG, at->file, at->line, at->column, "%s", text);
    if (hint && hint[0]) st_error_hint(&e, "%s", hint);
    return st_diags_add(all, &e, at->line_text, warning);
}

static void print_caret(const st_diag *d, FILE *to)
{
    fputs("    ", to);
    for (int i = 0; i < d->caret - 1 && d->line_text[i]; i++) {
        unsigned char c = (unsigned char)d->line_text[i];
        if (c == '\t') fputc('\t', to); /* the same tab stops as in the line above */
        else if ((c & 0xC0) != 0x80) fputc(' ', to);
    }
    fputs("^\n", to);
}

void st_diags_print(const st_diags *all, FILE *to)
{
    for (int i = 0; i < all->n; i++) {
        const st_diag *d = &all->item[i];
        const st_error *e = &d->error;
        if (e->file[0] && e->line > 0 && e->column > 0) fprintf(to, "%s:%d:%d: ", e->file, e->line, e->column);
        else if (e->file[0] && e->line > 0) fprintf(to, "%s:%d: ", e->file, e->line);
        else if (e->file[0]) fprintf(to, "%s: ", e->file);
        fprintf(to, "%s: %s\n", d->warning ? "warning" : "error", e->message[0] ? e->message : st_code_name(e->code));
        if (d->line_text[0]) fprintf(to, "    %s\n", d->line_text);
        if (d->line_text[0] && d->caret > 0) print_caret(d, to);
        if (e->detail[0]) fprintf(to, "  detail: %s\n", e->detail);
        if (e->hint[0]) fprintf(to, "  hint: %s\n", e->hint);
    }
    int hidden = all->errors + all->warnings - all->n;
    if (hidden > 0) fprintf(to, "... and %d more\n", hidden);
}
