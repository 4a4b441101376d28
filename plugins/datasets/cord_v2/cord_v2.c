/* SPDX-License-Identifier: Apache-2.0 */
/* datasets/cord_v2 - receipts in the layout of CORD-V2: a folder with pictures and metadata.jsonl, one object a line
 * with file_name and ground_truth (JSON in a string). One line is one record; blank lines are none. A damaged line is
 * a record that cannot be given: the error names file and line, the host sets it aside. */
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cord_v2.h"

typedef struct line {
    size_t at, n;
    int32_t number;
} line;

struct cord {
    const char *path, *root, *task_prompt;
    int32_t key_order;
    char *file, *folder, *within; /* metadata.jsonl; its folder and the folder pictures must lie in, resolved */
    char *text;
    size_t n;
    line *lines;
    int64_t n_lines;
};

/* ---- opening ---- */

static char *joined(const char *a, const char *b, const char *c) /* a/b/c; NULL parts are left out; malloc'd */
{
    size_t n = strlen(a) + (b ? strlen(b) : 0) + (c ? strlen(c) : 0) + 3;
    char *out = malloc(n);
    if (out) snprintf(out, n, "%s%s%s%s%s", a, b ? "/" : "", b ? b : "", c ? "/" : "", c ? c : "");
    return out;
}

static int read_file(struct cord *m, const st_worker *w, FILE *f)
{
    size_t room = 0;
    for (;;) {
        if (m->n + 1 >= room) {
            char *more = realloc(m->text, room = room ? 2 * room : 1 << 16);
            if (!more) return ST_WORKER_FAIL(w, ST_E_NOMEM, "%s: no memory for it", m->file);
            m->text = more;
        }
        size_t got = fread(m->text + m->n, 1, room - m->n - 1, f);
        m->n += got;
        if (got == 0) break;
    }
    m->text[m->n] = 0;
    return ferror(f) ? ST_WORKER_FAIL(w, ST_E_IO, "%s: cannot read: %s", m->file, strerror(errno)) : ST_OK;
}

/* PATH/SPLIT/metadata.jsonl, or PATH/metadata.jsonl where a data set has no such part. */
static int find_file(struct cord *m, const st_worker *w, const char *split)
{
    char *folder = joined(m->path, split && split[0] ? split : NULL, NULL);
    FILE *f = NULL;
    for (int step = 0; folder && step < 2; step++) {
        free(m->file);
        m->file = joined(folder, "metadata.jsonl", NULL);
        f = m->file ? fopen(m->file, "rbe") : NULL;
        if (f || step) break;
        free(folder);
        folder = joined(m->path, NULL, NULL);
    }
    if (!folder || !m->file) {
        free(folder);
        return ST_WORKER_FAIL(w, ST_E_NOMEM, "no memory for a path");
    }
    if (!f) {
        int why = errno;
        free(folder);
        return ST_WORKER_FAIL(w, ST_E_NOTFOUND, "path = %s: no metadata.jsonl in it or in its folder %s: %s", m->path,
                              split ? split : "(none)", strerror(why));
    }
    m->folder = realpath(folder, NULL);
    m->within = realpath(m->root ? m->root : m->path, NULL);
    free(folder);
    int rc = m->folder && m->within
                 ? read_file(m, w, f)
                 : ST_WORKER_FAIL(w, ST_E_NOTFOUND, "%s: no such folder", m->folder && m->root ? m->root : m->path);
    fclose(f);
    return rc;
}

static bool is_blank(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r') return false;
    return true;
}

static int index_lines(struct cord *m, const st_worker *w)
{
    int64_t room = 0;
    int32_t number = 1;
    size_t at = m->n >= 3 && memcmp(m->text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    for (; at < m->n && number < INT32_MAX; number++) {
        const char *stop = memchr(m->text + at, '\n', m->n - at);
        size_t n = stop ? (size_t)(stop - m->text) - at : m->n - at;
        if (!is_blank(m->text + at, n)) {
            if (m->n_lines == room) {
                line *more = realloc(m->lines, sizeof *more * (size_t)(room = room ? 2 * room : 256));
                if (!more) return ST_WORKER_FAIL(w, ST_E_NOMEM, "%s: no memory for its lines", m->file);
                m->lines = more;
            }
            m->lines[m->n_lines++] = (line){at, n, number};
        }
        at += n + 1;
    }
    return ST_OK;
}

static void cord_close(void *self)
{
    struct cord *m = self;
    free(m->file);
    free(m->folder);
    free(m->within);
    free(m->text);
    free(m->lines);
    m->file = m->folder = m->within = m->text = NULL;
    m->lines = NULL;
    m->n = 0;
    m->n_lines = 0;
}

static int cord_open(void *self, const st_worker *w, const char *split)
{
    struct cord *m = self;
    int rc = find_file(m, w, split);
    if (rc == ST_OK) rc = index_lines(m, w);
    if (rc != ST_OK) cord_close(m);
    return rc;
}

static int64_t cord_count(const void *self) { return ((const struct cord *)self)->n_lines; }

/* ---- one record ---- */

static char *arena_copy(const st_worker *w, const char *text, size_t n)
{
    char *p = w->host->alloc(w->arena, n + 1);
    if (p) memcpy(p, text, n);
    return p;
}

/* "." and ".." are resolved by name, so links inside the folder may lead anywhere and names may not. In place. */
static void resolve(char *path)
{
    char *to = path, *p = path;
    while (*p) {
        while (*p == '/') p++;
        char *end = p + strcspn(p, "/");
        size_t n = (size_t)(end - p);
        if (n == 2 && p[0] == '.' && p[1] == '.') {
            while (to > path && *--to != '/') {}
        } else if (n > 0 && !(n == 1 && p[0] == '.')) {
            *to++ = '/';
            memmove(to, p, n);
            to += n;
        }
        p = end;
    }
    *to = 0;
}

static int picture_path(const struct cord *m, const st_worker *w, const line *l, const json_t *name, const char **out)
{
    const char *text = json_string_value(name);
    size_t n = strlen(m->folder) + json_string_length(name) + 2, within = strlen(m->within);
    if (!text || !*text) return ST_WORKER_FAIL(w, ST_E_DATA, "%s:%d: no \"file_name\"", m->file, l->number);
    char *path = w->host->alloc(w->arena, n);
    if (!path) return ST_WORKER_FAIL(w, ST_E_NOMEM, "no memory for a path");
    if (text[0] == '/') memcpy(path, text, strlen(text) + 1);
    else snprintf(path, n, "%s/%s", m->folder, text);
    resolve(path);
    bool inside = within == 1 || (strncmp(path, m->within, within) == 0 && path[within] == '/');
    if (!inside)
        return ST_WORKER_FAIL(w, ST_E_DATA, "%s:%d: file_name '%.100s' leads out of %s (key root)", m->file, l->number,
                              text, m->within);
    *out = path;
    return ST_OK;
}

static int build(const struct cord *m, const st_worker *w, const char *path, const cord_label *label, st_sample *s)
{
    int32_t asks = 1 + (m->task_prompt && m->task_prompt[0]);
    st_part *part = w->host->alloc(w->arena, 3 * sizeof *part);
    st_turn *turn = w->host->alloc(w->arena, 2 * sizeof *turn);
    if (!part || !turn) return ST_WORKER_FAIL(w, ST_E_NOMEM, "no memory for a record");
    part[0] = (st_part){.type = ST_PART_IMAGE, .path = path};
    if (asks == 2) part[1] = (st_part){.type = ST_PART_TEXT, .text = m->task_prompt, .n_text = strlen(m->task_prompt)};
    part[2] = (st_part){.type = ST_PART_TEXT,
                        .text = label->text,
                        .n_text = label->n,
                        .marks = label->marks,
                        .n_marks = label->n_marks};
    turn[0] = (st_turn){.role = "user", .parts = part, .n_parts = asks};
    turn[1] = (st_turn){.role = "assistant", .parts = part + 2, .n_parts = 1, .train = 1};
    s->turns = turn;
    s->n_turns = 2;
    return ST_OK;
}

static int read_record(const struct cord *m, const st_worker *w, const line *l, const json_t *record, st_sample *s)
{
    const json_t *name = json_object_get(record, "file_name"), *truth = json_object_get(record, "ground_truth");
    const char *path = NULL;
    cord_label label;
    st_error inner = {0};
    st_worker quiet = *w;
    if (!json_is_object(record)) return ST_WORKER_FAIL(w, ST_E_DATA, "%s:%d: not an object", m->file, l->number);
    if (json_is_string(name)) s->id = arena_copy(w, json_string_value(name), json_string_length(name));
    ST_TRY(picture_path(m, w, l, name, &path));
    if (!json_is_string(truth))
        return ST_WORKER_FAIL(w, ST_E_DATA, "%s:%d: no \"ground_truth\" with JSON in a string", m->file, l->number);
    quiet.error = &inner;
    int rc = cord_label_of(&quiet, json_string_value(truth), json_string_length(truth), m->key_order, &label);
    if (rc != ST_OK) return ST_WORKER_FAIL(w, rc, "%s:%d: %s", m->file, l->number, inner.message);
    return build(m, w, path, &label, s);
}

static int cord_get(const void *self, const st_worker *w, int64_t index, st_sample *s)
{
    const struct cord *m = self;
    if (index < 0 || index >= m->n_lines)
        return ST_WORKER_FAIL(w, ST_E_NOTFOUND, "%s: record %lld of %lld", m->file, (long long)index,
                              (long long)m->n_lines);
    const line *l = &m->lines[index];
    json_error_t why;
    json_t *record = json_loadb(m->text + l->at, l->n, 0, &why);
    if (!record) return ST_WORKER_FAIL(w, ST_E_DATA, "%s:%d: not valid JSON: %s", m->file, l->number, why.text);
    int rc = read_record(m, w, l, record, s);
    json_decref(record);
    return rc;
}

static const st_param params[] = {
    ST_PARAM(struct cord, path, ST_P_PATH, NULL, 0, 0, "", NULL, ST_PF_REQUIRED,
             "folder with metadata.jsonl and the pictures, or with such a folder for each split"),
    ST_PARAM(struct cord, root, ST_P_PATH, NULL, 0, 0, "", NULL, 0,
             "file_name must not lead out of this folder; default: path"),
    ST_STR(struct cord, task_prompt, NULL, 0, "text behind the picture; default: [chat] prompt"),
    ST_CHOICE(struct cord, key_order, "sorted", "sorted|file", 0,
              "order of tags in a label: sorted (descending, as the reference converter writes them), or as the file "
              "has them"),
};

static const st_dataset_ops ops = {
    .size = sizeof ops, .open = cord_open, .count = cord_count, .get = cord_get, .close = cord_close};

ST_PLUGIN_V1(ST_KIND_DATASET, struct cord, ops, ST_PARAMS(params),
    .name = "cord_v2",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "the strata authors",
    .summary = "receipts in the layout of CORD-V2",
    .description = "A folder with pictures and metadata.jsonl (file_name, ground_truth). The answer is the tagged "
                   "text of gt_parse, or its text_sequence as it is. Evaluation scores the beginning of words and the "
                   "leading digits of amounts as content, of a text_sequence all of it.")
