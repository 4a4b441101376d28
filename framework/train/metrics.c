/* SPDX-License-Identifier: Apache-2.0 */
/* train/metrics.c - OUT/metrics.jsonl. A line is written whole, so a killed run leaves at most one torn line, which a
 * resume cuts. */
#include "config.h"

#include "train/train.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct st_metrics {
    FILE *file;
    char *path;
    st_buf line;
};

/* Whether a line was written before a checkpoint of that step: a training line up to it, an evaluation of an earlier
 * one. */
static bool is_before(const char *line, size_t n, int64_t step)
{
    static const char head[] = "{\"step\": ", loss[] = ", \"loss\": ";
    char *rest;

    if (n < sizeof head || memcmp(line, head, sizeof head - 1) != 0) return false;
    int64_t of = strtoll(line + sizeof head - 1, &rest, 10);
    return of < step || (of == step && strncmp(rest, loss, sizeof loss - 1) == 0);
}

/* Length of the leading lines of `text`, which ends with NUL, that a run resumed at `step` keeps. */
static size_t kept_length(const char *text, size_t n, int64_t step)
{
    size_t at = 0;

    while (at < n) {
        const char *end = memchr(text + at, '\n', n - at);
        if (!end || !is_before(text + at, n - at, step)) break;
        at = (size_t)(end - text) + 1;
    }
    return at;
}

static int cut(const char *path, int64_t step, st_error *e)
{
    st_arena *arena = st_arena_create(0);
    char *text;
    size_t n;
    int rc;

    if (!arena) return st_fail(e, ST_E_NOMEM, "no memory to read %s", path);
    rc = st_file_read(path, arena, &text, &n, e);
    if (rc == ST_OK && truncate(path, (off_t)kept_length(text, n, step)) != 0) rc = st_fail_errno(e, path, "cut");
    st_arena_destroy(arena);
    return rc;
}

int st_metrics_open(const char *path, int64_t resume_at, st_metrics **out, st_error *e)
{
    st_metrics *m = calloc(1, sizeof *m);

    if (!m || !(m->path = strdup(path))) {
        free(m);
        return st_fail(e, ST_E_NOMEM, "no memory to open %s", path);
    }
    if (resume_at >= 0 && st_path_exists(path)) {
        int rc = cut(path, resume_at, e);
        if (rc != ST_OK) {
            st_metrics_close(m);
            return rc;
        }
    }
    m->file = fopen(path, resume_at >= 0 ? "ae" : "we");
    if (!m->file) {
        int rc = st_fail_errno(e, path, "open");
        st_metrics_close(m);
        return rc;
    }
    *out = m;
    return ST_OK;
}

void st_metrics_begin(st_metrics *m, int64_t step)
{
    m->line.n = 0;
    st_buf_printf(&m->line, "{\"step\": %lld", (long long)step);
}

void st_metrics_number(st_metrics *m, const char *key, double value)
{
    if (isfinite(value)) st_buf_printf(&m->line, ", \"%s\": %.12g", key, value);
    else st_buf_printf(&m->line, ", \"%s\": null", key);
}

void st_metrics_count(st_metrics *m, const char *key, int64_t value)
{
    st_buf_printf(&m->line, ", \"%s\": %lld", key, (long long)value);
}

void st_metrics_text(st_metrics *m, const char *key, const char *value)
{
    st_buf_printf(&m->line, ", \"%s\": \"", key);
    for (const unsigned char *p = (const unsigned char *)value; *p; p++) {
        if (*p == '"' || *p == '\\') st_buf_printf(&m->line, "\\%c", *p);
        else if (*p < 0x20) st_buf_printf(&m->line, "\\u%04x", *p);
        else st_buf_add(&m->line, p, 1);
    }
    st_buf_puts(&m->line, "\"");
}

int st_metrics_end(st_metrics *m, st_error *e)
{
    st_buf_puts(&m->line, "}\n");
    if (m->line.failed) return st_fail(e, ST_E_NOMEM, "no memory for a line of %s", m->path);
    if (fwrite(m->line.data, 1, m->line.n, m->file) != m->line.n || fflush(m->file) != 0)
        return st_fail_errno(e, m->path, "write");
    return ST_OK;
}

void st_metrics_close(st_metrics *m)
{
    if (!m) return;
    if (m->file) fclose(m->file);
    st_buf_free(&m->line);
    free(m->path);
    free(m);
}
