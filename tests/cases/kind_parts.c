/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/kind_parts.c - rotary positions of pictures, alone and packed, and which axis drives which pair. */
#include "config.h"

#include "../encoder/part_host.h"
#include "cases.h"
#include <jansson.h>
#include <math.h>
#include <strata/position.h>

enum { MAX_DOCS = 3, MAX_PARTS = 6, MAX_TOKENS = 16 };
typedef struct part {
    int32_t text, rows, cols; /* so many tokens of text, or the grid of a picture in patches */
} part;
typedef struct position_case {
    const char *name;
    part docs[MAX_DOCS][MAX_PARTS];
    int32_t id[3][MAX_TOKENS];
} position_case;
#define TEXT(n) \
    { \
        .text = n \
    }
#define GRID(high, wide) \
    { \
        .rows = high, .cols = wide \
    }
static const position_case published[] = {
    {"text_only", {{TEXT(5)}}, {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}}},
    {"image_first",
     {{GRID(4, 6), TEXT(3)}},
     {{0, 0, 0, 0, 0, 0, 3, 4, 5}, {0, 0, 0, 1, 1, 1, 3, 4, 5}, {0, 1, 2, 0, 1, 2, 3, 4, 5}}},
    {"image_middle",
     {{TEXT(2), GRID(4, 4), TEXT(3)}},
     {{0, 1, 2, 2, 2, 2, 4, 5, 6}, {0, 1, 2, 2, 3, 3, 4, 5, 6}, {0, 1, 2, 3, 2, 3, 4, 5, 6}}},
    {"two_images",
     {{TEXT(1), GRID(2, 8), TEXT(2), GRID(6, 4), TEXT(1)}},
     {{0, 1, 1, 1, 1, 5, 6, 7, 7, 7, 7, 7, 7, 10},
      {0, 1, 1, 1, 1, 5, 6, 7, 7, 8, 8, 9, 9, 10},
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 7, 8, 7, 8, 10}}},
    {"packed_two",
     {{TEXT(2), GRID(4, 4), TEXT(1)}, {TEXT(3), GRID(2, 2), TEXT(2)}},
     {{0, 1, 2, 2, 2, 2, 4, 0, 1, 2, 3, 4, 5},
      {0, 1, 2, 2, 3, 3, 4, 0, 1, 2, 3, 4, 5},
      {0, 1, 2, 3, 2, 3, 4, 0, 1, 2, 3, 4, 5}}},
    {"one_token_image", {{TEXT(1), GRID(2, 2), TEXT(1)}}, {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}},
};
typedef struct parts_row {
    const char *file;
} parts_row;
static const parts_row rows[] = {{"positions/mrope.json"}, {"positions/sections.json"}};
static const char *const chunks[][3] = {
    {"interleaved", "11,11,10", "thwthwthwthwthwthwthwthwthwthwth"},
    {"interleaved", "3,3,2", "thwthwth"},
    {"chunked", "11,11,10", "ttttttttttthhhhhhhhhhhwwwwwwwwww"},
};

/* ---- making ---- */

static int32_t tokens_of(const part *p) { return p->text ? p->text : p->rows * p->cols / 4; }

static json_t *case_json(const position_case *p)
{
    static const char *const axis[] = {"t", "h", "w"};
    json_t *docs = json_array(), *borders = json_pack("[i]", 0), *j;
    int32_t n = 0;

    for (int d = 0; d < MAX_DOCS && (p->docs[d][0].text || p->docs[d][0].rows); d++) {
        json_t *doc = json_array();
        for (int i = 0; i < MAX_PARTS && (p->docs[d][i].text || p->docs[d][i].rows); i++) {
            const part *x = &p->docs[d][i];
            json_array_append_new(doc, x->text ? json_integer(x->text) : json_pack("[i,i,i]", 1, x->rows, x->cols));
            n += tokens_of(x);
        }
        json_array_append_new(docs, doc);
        json_array_append_new(borders, json_integer(n));
    }
    j = json_pack("{s:s,s:o,s:o}", "name", p->name, "docs", docs, "cu_seqlens", borders);
    for (int a = 0; a < 3; a++) {
        json_t *ids = json_array();
        for (int32_t i = 0; i < n; i++) json_array_append_new(ids, json_integer(p->id[a][i]));
        json_object_set_new(j, axis[a], ids);
    }
    return j;
}

static void make(const cases *c, const void *row)
{
    const parts_row *r = row;
    json_t *j = json_object();
    char *text;

    if (strstr(r->file, "mrope")) {
        json_t *list = json_array();
        for (size_t i = 0; i < ST_COUNT(published); i++) json_array_append_new(list, case_json(&published[i]));
        json_object_set_new(j, "cases", list);
    } else {
        for (size_t i = 0; i < ST_COUNT(chunks); i++) {
            if (!json_object_get(j, chunks[i][0])) json_object_set_new(j, chunks[i][0], json_object());
            json_object_set_new(json_object_get(j, chunks[i][0]), chunks[i][1], json_string(chunks[i][2]));
        }
    }
    text = json_dumps(j, JSON_PRESERVE_ORDER);
    case_put_text(c, r->file, text);
    free(text);
    json_decref(j);
}

/* ---- checking ---- */

static const st_position_ops *ops_of(part_host *h) { return h->plugin->ops; }

/* Ids of one document by the plugin, then against the rows of the file from `at` on. -> its tokens */
static int32_t check_doc(part_host *h, const char *name, const json_t *doc, const json_t *stored, int32_t at)
{
    static const char *const axis[] = {"t", "h", "w"};
    st_media_run runs[MAX_PARTS];
    int32_t ids[64] = {0}, pos[3 * 64];
    st_sequence q = {.size = sizeof q, .ids = ids, .runs = runs};
    const json_t *x;
    size_t i;

    json_array_foreach(doc, i, x)
    {
        int32_t n = (int32_t)json_integer_value(x);
        if (json_is_array(x)) {
            int32_t h2 = (int32_t)json_integer_value(json_array_get(x, 1)) / 2,
                    w2 = (int32_t)json_integer_value(json_array_get(x, 2)) / 2;
            n = h2 * w2;
            runs[q.n_runs] = (st_media_run){q.n, n, ST_MEDIA_IMAGE, q.n_runs, {1, h2, w2}, 0};
            q.n_runs++;
        }
        q.n += n;
    }
    q.n_real = q.n;
    if (q.n > 64) fail_msg("%s: %d tokens", name, q.n);
    if (ops_of(h)->assign(h->self, &h->worker, &q, pos) != ST_OK) fail_msg("%s: %s", name, h->error.message);
    for (int a = 0; a < 3; a++)
        for (int32_t k = 0; k < q.n; k++) {
            int32_t want =
                (int32_t)json_integer_value(json_array_get(json_object_get(stored, axis[a]), (size_t)(at + k)));
            if (pos[a * q.n + k] != want)
                fail_msg("%s: axis %s, token %d is %d, it should be %d", name, axis[a], at + k, pos[a * q.n + k], want);
        }
    return q.n;
}

static void check_ids(const json_t *list)
{
    part_host *h = part_open("mrope", (const char *[]){"section", "11,11,10", NULL});
    const json_t *j, *doc;
    size_t i, k, n = 0;

    json_array_foreach(list, i, j)
    {
        int32_t at = 0;
        json_array_foreach(json_object_get(j, "docs"), k, doc)
        {
            const char *name = json_string_value(json_object_get(j, "name"));
            if (json_integer_value(json_array_get(json_object_get(j, "cu_seqlens"), k)) != at)
                fail_msg("%s: document %zu begins at %d", name, k, at);
            at += check_doc(h, name, doc, j, at);
            n++;
        }
    }
    if (n < 7) fail_msg("only %zu documents", n);
    part_close(h);
}

/* With base 1 every frequency is 1, so the table of a token at (1, 2, 3) shows the axis of each pair. */
static void check_axes(const char *section, bool interleaved, const char *want)
{
    int32_t pairs = (int32_t)strlen(want), ids[3] = {1, 2, 3};
    const char *settings[] = {
        "section", section, "base", "1", "rotary_percent", "1", "interleaved", interleaved ? "yes" : "no", NULL};
    part_host *h = part_open("mrope", settings);
    st_tensor pos = st_tensor2(ids, ST_I32, 3, 1);
    st_rotary out = {
        .cos = part_tensor(h, ST_F64, 1, pairs), .sin = part_tensor(h, ST_F64, 1, pairs), .dim = 2 * pairs};

    if (ops_of(h)->configure(h->self, &h->env) != ST_OK ||
        ops_of(h)->rotary_dim(h->self, &h->env, 2 * pairs) != 2 * pairs)
        fail_msg("%s: %s", section, h->error.message);
    part_kernels(h);
    if (ops_of(h)->tables(h->self, &h->step, 2 * pairs, &pos, &out) != ST_OK) fail_msg("%s: no tables", section);
    for (int32_t i = 0; i < pairs; i++)
        assert_near(((double *)out.cos.data)[i], cos(want[i] == 't' ? 1 : want[i] == 'h' ? 2 : 3), 1e-15);
    part_close(h);
}

static void check(const cases *c, const void *row)
{
    const parts_row *r = row;
    json_t *j = json_load_file(case_path(c, r->file), 0, NULL);
    const char *kind, *section;
    json_t *group, *want;
    int n = 0;

    if (!j) fail_msg("no JSON");
    if (strstr(r->file, "mrope")) {
        check_ids(json_object_get(j, "cases"));
    } else {
        json_object_foreach(j, kind, group) json_object_foreach(group, section, want)
        {
            check_axes(section, strcmp(kind, "interleaved") == 0, json_string_value(want));
            n++;
        }
        if (n != 3) fail_msg("%d sections", n);
    }
    json_decref(j);
}

const case_kind positions_kind = CASE_KIND("positions", rows, make, check);
