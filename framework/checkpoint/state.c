/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/state.c - state.json: how far a run is, and its place in the data. */
#include "config.h"

#include "checkpoint/checkpoint.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static json_t *hex(uint64_t v) /* JSON numbers of many readers end at 2^53 */
{
    char text[32];

    snprintf(text, sizeof text, "%016" PRIx64, v);
    return json_string(text);
}

static json_t *state_json(const st_model *m, const st_checkpoint_state *s)
{
    static const char *const precision[] = {[ST_F64] = "f64", [ST_F32] = "f32", [ST_BF16] = "bf16"};
    json_t *train = json_pack("{s:o, s:I, s:I, s:I}", "epoch", hex(s->train.epoch), "next", (json_int_t)s->train.next,
                              "seen", (json_int_t)s->train.seen, "bad", (json_int_t)s->train.bad);

    json_t *j = json_pack("{s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "format", ST_CHECKPOINT_FORMAT,
                          "strata", PACKAGE_VERSION, "precision", precision[st_model_dtype(m)], "pattern",
                          st_model_pattern(m), "step", (json_int_t)s->step, "tokens", (json_int_t)s->tokens, "trained",
                          (json_int_t)s->trained, "seed", hex(s->seed), "spec_hash", hex(s->spec_hash), "train", train);

    if (s->timing && json_object_set_new(j, "timing_only", json_string(s->timing)) != 0) {
        json_decref(j);
        return NULL;
    }
    return j;
}

int st_checkpoint_write_state(const char *dir, const st_model *m, const st_checkpoint_state *s, st_arena *arena,
                              st_error *e)
{
    char *path = st_path_join(arena, dir, "state.json");
    json_t *j = path ? state_json(m, s) : NULL;
    char *text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;
    int rc =
        text ? st_file_write_atomic(path, text, strlen(text), e) : st_fail(e, ST_E_NOMEM, "no memory for state.json");

    free(text);
    json_decref(j);
    return rc;
}

/* ---- reading: the first field that is missing or of the wrong type is named ---- */

typedef struct reader {
    const char *path;
    st_error *error;
    int rc;
} reader;

static void wrong(reader *r, const char *key, const char *what)
{
    if (r->rc == ST_OK) r->rc = st_fail(r->error, ST_E_DATA, "%s: \"%s\" is no %s", r->path, key, what);
}

static uint64_t get_hex(reader *r, json_t *j, const char *key)
{
    const char *text = json_string_value(json_object_get(j, key));
    char *end = NULL;
    uint64_t v = text && strlen(text) == 16 ? strtoull(text, &end, 16) : 0;

    if (!end || *end) wrong(r, key, "number of 16 hexadecimal digits");
    return v;
}

static int64_t get_count(reader *r, json_t *j, const char *key)
{
    json_t *v = json_object_get(j, key);

    if (!json_is_integer(v) || json_integer_value(v) < 0) wrong(r, key, "whole number from 0");
    return json_integer_value(v);
}

static const char *get_text(reader *r, json_t *j, const char *key, st_arena *arena)
{
    const char *text = json_string_value(json_object_get(j, key));

    if (!text) wrong(r, key, "string");
    return text ? st_arena_strdup(arena, text) : NULL;
}

static void read_fields(reader *r, json_t *j, st_arena *arena, st_checkpoint_state *s)
{
    json_t *train = json_object_get(j, "train");
    int64_t format = get_count(r, j, "format");

    if (r->rc == ST_OK && (format < 1 || format > ST_CHECKPOINT_FORMAT)) {
        r->rc = st_fail(r->error, ST_E_ABI, "%s: checkpoint format %lld, this strata reads %d", r->path,
                        (long long)format, ST_CHECKPOINT_FORMAT);
        st_error_hint(r->error, "use the version of strata that wrote it, or a newer one");
    }
    s->pattern = get_text(r, j, "pattern", arena);
    if (json_object_get(j, "timing_only")) s->timing = get_text(r, j, "timing_only", arena);
    s->step = get_count(r, j, "step");
    s->tokens = get_count(r, j, "tokens");
    s->trained = get_count(r, j, "trained");
    s->seed = get_hex(r, j, "seed");
    s->spec_hash = get_hex(r, j, "spec_hash");
    if (!json_is_object(train)) wrong(r, "train", "object");
    s->train.epoch = get_hex(r, train, "epoch");
    s->train.next = get_count(r, train, "next");
    s->train.seen = get_count(r, train, "seen");
    s->train.bad = get_count(r, train, "bad");
}

int st_checkpoint_read_state(const char *dir, st_arena *arena, st_checkpoint_state *s, st_error *e)
{
    char *path = st_path_join(arena, dir, "state.json"), *text;
    reader r = {path, e, ST_OK};
    json_error_t why;
    json_t *j;
    size_t n;

    memset(s, 0, sizeof *s);
    if (!path) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    ST_TRY(st_file_read(path, arena, &text, &n, e));
    j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!j) return st_fail_at(e, ST_E_DATA, path, why.line, why.column, "%s", why.text);
    if (json_is_object(j)) read_fields(&r, j, arena, s);
    else r.rc = st_fail(e, ST_E_DATA, "%s: no JSON object", path);
    json_decref(j);
    return r.rc;
}
