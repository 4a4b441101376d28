/* SPDX-License-Identifier: Apache-2.0 */
/* train/bad_samples.c - OUT/bad_samples.jsonl: every record that was set aside, once, in the order they came by. A
 * resumed run goes on with it: what it names already is known. */
#include "config.h"

#include "base/json.h"
#include "train/run.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *path_of(const st_run *r) { return st_path_join(r->arena, r->output, "bad_samples.jsonl"); }

static int append(const char *path, const char *line, st_error *e)
{
    FILE *f = fopen(path, "ae");
    size_t n = strlen(line);

    if (!f) return st_fail_errno(e, path, "open");
    int rc = fwrite(line, 1, n, f) == n && fflush(f) == 0 ? ST_OK : st_fail_errno(e, path, "write");
    if (fclose(f) != 0 && rc == ST_OK) rc = st_fail_errno(e, path, "write");
    return rc;
}

static int write_bad(void *ctx, const st_bad_sample *bad, st_error *e)
{
    const st_run *r = ctx;
    json_t *j = json_pack("{s:s, s:I, s:o, s:o}", "section", bad->section, "record", (json_int_t)bad->record, "id",
                          st_json_text(bad->id), "reason", st_json_text(bad->reason));
    char *line = j ? json_dumps(j, JSON_PRESERVE_ORDER) : NULL, *text = NULL, *path = path_of(r);
    int rc = line && path && asprintf(&text, "%s\n", line) > 0 ? append(path, text, e)
                                                               : st_fail(e, ST_E_NOMEM, "no memory for a line");

    free(text);
    free(line);
    json_decref(j);
    return rc;
}

static void know(st_run *r, const char *line, size_t n)
{
    json_t *j = json_loadb(line, n, 0, NULL), *record = json_object_get(j, "record");
    const char *section = json_string_value(json_object_get(j, "section"));
    st_loader *l = !section ? NULL : strcmp(section, "dataset.train") == 0 ? r->train : r->valid;

    if (l && json_is_integer(record)) st_loader_known_bad(l, json_integer_value(record));
    json_decref(j);
}

/* Whole lines are known; one that was broken off is cut away. */
static int know_all(st_run *r, const char *path, st_error *e)
{
    char *text, *end;
    size_t n, at = 0;

    ST_TRY(st_file_read(path, r->arena, &text, &n, e));
    for (; (end = memchr(text + at, '\n', n - at)); at = (size_t)(end - text) + 1)
        know(r, text + at, (size_t)(end - text) - at);
    return at == n || truncate(path, (off_t)at) == 0 ? ST_OK : st_fail_errno(e, path, "cut");
}

int st_run_watch_samples(st_run *r, st_error *e)
{
    char *path = path_of(r);

    if (!path) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    if (!r->resumed && unlink(path) != 0 && errno != ENOENT) return st_fail_errno(e, path, "remove");
    if (r->resumed && st_path_exists(path)) ST_TRY(know_all(r, path, e));
    st_loader_on_bad(r->train, write_bad, r);
    if (r->valid) st_loader_on_bad(r->valid, write_bad, r);
    return ST_OK;
}

void st_run_count_samples(const st_run *r)
{
    int64_t train = st_loader_told(r->train), valid = r->valid ? st_loader_told(r->valid) : 0;

    if (train + valid == 0) return;
    st_log_write(r->base->log, 2, "data",
                 "set aside: %lld of %lld training samples, %lld of %lld held out; named in %s", (long long)train,
                 (long long)st_loader_count(r->train), (long long)valid,
                 r->valid ? (long long)st_loader_count(r->valid) : 0, path_of(r));
}
