/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/save.c - a checkpoint's folder is made. Bits are stored as they are in memory: a resume is exact. */
#include "config.h"

#include "checkpoint/checkpoint.h"
#include <stdlib.h>
#include <string.h>

const char *st_checkpoint_file(int optimizer) { return optimizer ? "optimizer.safetensors" : "model.safetensors"; }

/* ---- tensors ---- */

enum { PIECE = 4 << 20 }; /* bytes */

static int declare_tensors(st_tensors_out *out, const st_state_tensor *s, int n, int optimizer, st_error *e)
{
    ST_TRY(st_tensors_meta(out, "format", "strata"));
    for (int i = 0; i < n; i++)
        if (s[i].optimizer == optimizer) ST_TRY(st_tensors_declare(out, s[i].name, s[i].dtype, s[i].nd, s[i].dim, e));
    return ST_OK;
}

/* In pieces: a table of embeddings need not be in memory twice. */
static int write_tensor(st_tensors_out *out, st_model *m, int32_t i, size_t bytes, void *piece, st_error *e)
{
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < PIECE ? bytes - at : PIECE;
        ST_TRY(st_model_state_read(m, i, at, n, piece, e));
        ST_TRY(st_tensors_write(out, piece, n, e));
    }
    return ST_OK;
}

static int write_tensors(st_tensors_out *out, st_model *m, const st_state_tensor *s, int n, int optimizer, st_error *e)
{
    void *piece = malloc(PIECE);
    int rc = piece ? ST_OK : st_fail(e, ST_E_NOMEM, "no memory to save weights");

    for (int i = 0; i < n && rc == ST_OK; i++)
        if (s[i].optimizer == optimizer) rc = write_tensor(out, m, i, s[i].bytes, piece, e);
    free(piece);
    return rc;
}

static int save_tensors(const char *dir, st_model *m, int optimizer, st_arena *arena, st_error *e)
{
    const st_state_tensor *s;
    int n = st_model_states(m, &s), rc;
    char *path = st_path_join(arena, dir, st_checkpoint_file(optimizer));
    st_tensors_out *out;

    if (!path) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    ST_TRY(st_tensors_create(path, &out, e));
    rc = declare_tensors(out, s, n, optimizer, e);
    if (rc == ST_OK) rc = write_tensors(out, m, s, n, optimizer, e);
    if (rc == ST_OK) return st_tensors_finish(out, e);
    st_tensors_abort(out);
    return rc;
}

/* ---- the texts ---- */

static bool binds_alone(int32_t kind) /* sections that a plugin's table alone is bound to */
{
    return kind == ST_KIND_LAYER || kind == ST_KIND_POSITION || kind == ST_KIND_ENCODER || kind == ST_KIND_HEAD;
}

static int take_worked_out(st_spec *spec, const st_model *m, st_arena *arena, st_error *e)
{
    const st_model_layer *l;
    int n = st_model_layers(m, &l);
    const void **instances = ST_NEW_N(arena, const void *, n + 1);
    bool *taken = ST_NEW_N(arena, bool, n + 1);

    if (!instances || !taken) return st_fail(e, ST_E_NOMEM, "no memory for %d layers", n);
    for (int i = 0; i < n; i++) {
        int found = 0;
        for (int k = i; k < n && !taken[i] && binds_alone(l[i].kind); k++)
            if (binds_alone(l[k].kind) && strcmp(l[k].section, l[i].section) == 0) instances[found++] = l[k].self;
        for (int k = i + 1; k < n && found; k++) taken[k] = taken[k] || strcmp(l[k].section, l[i].section) == 0;
        if (found) st_spec_take_worked_out(spec, l[i].section, instances, found);
    }
    return ST_OK;
}

static int read_tokenizer(st_spec *spec, st_arena *arena, st_checkpoint_texts *out, st_error *e)
{
    const st_value *v = st_spec_get(spec, "tokenizer", "path");
    char *path = v && v->text[0] ? st_spec_file_of(spec, v, arena) : NULL, *text;

    if (!path) return ST_OK;
    ST_TRY(st_file_read(path, arena, &text, &out->n_tokenizer, e));
    out->tokenizer = text;
    return ST_OK;
}

/* The resolved spec is read again, so that the tokenizer's path can be another than this run's. */
static int write_spec(st_spec *spec, st_arena *arena, st_checkpoint_texts *out, st_error *e)
{
    st_buf text = {0}, stored = {0};
    st_spec *copy = NULL;
    st_diags d = {0};
    size_t bad;
    int rc;

    st_spec_write(spec, &text);
    if (!text.failed && !st_is_text(text.data, text.n, &bad)) {
        bool control = st_control(text.data + bad, text.n - bad) > 0;
        st_buf_free(&text);
        st_fail(e, ST_E_UNSUPPORTED, "%s: a path of it %s", st_spec_path(spec),
                control ? "has a control character, which the spec of a checkpoint cannot have"
                        : "is not UTF-8, which the spec of a checkpoint must be");
        st_error_hint(e, "move the spec and its data into folders whose names are plain text");
        return ST_E_UNSUPPORTED;
    }
    rc = text.failed ? ST_E_NOMEM : st_spec_parse("spec.ini", text.data, text.n, "/", &copy, &d);
    if (rc == ST_OK && out->tokenizer)
        rc = st_spec_put(copy, "tokenizer", "path", "tokenizer.json", ST_FROM_FILE, NULL);
    if (rc == ST_OK) st_spec_write(copy, &stored);
    if (rc == ST_OK && !stored.failed) out->spec = st_arena_strndup(arena, stored.data, stored.n);
    out->n_spec = stored.n;
    st_spec_destroy(copy);
    st_buf_free(&text);
    st_buf_free(&stored);
    if (d.errors) return st_fail(e, ST_E_INTERNAL, "the resolved spec is not readable: %s", d.item[0].error.message);
    return out->spec ? ST_OK : st_fail(e, ST_E_NOMEM, "no memory for the resolved spec");
}

int st_checkpoint_make_texts(st_spec *spec, const st_model *m, st_arena *arena, st_checkpoint_texts *out, st_error *e)
{
    *out = (st_checkpoint_texts){0};
    ST_TRY(take_worked_out(spec, m, arena, e));
    ST_TRY(read_tokenizer(spec, arena, out, e));
    return write_spec(spec, arena, out, e);
}

static int save_text(const char *dir, const char *name, const char *text, size_t n, st_arena *arena, st_error *e)
{
    char *path = st_path_join(arena, dir, name);

    return path ? st_file_write_atomic(path, text, n, e) : st_fail(e, ST_E_NOMEM, "no memory for a path");
}

/* ---- the folder ---- */

static int fill(const char *part, st_model *m, const st_checkpoint_texts *texts, const st_checkpoint_state *s,
                st_arena *arena, st_error *e)
{
    ST_TRY(st_make_dirs(part, e));
    ST_TRY(save_text(part, "spec.ini", texts->spec, texts->n_spec, arena, e));
    if (texts->tokenizer) ST_TRY(save_text(part, "tokenizer.json", texts->tokenizer, texts->n_tokenizer, arena, e));
    ST_TRY(save_tensors(part, m, 0, arena, e));
    ST_TRY(save_tensors(part, m, 1, arena, e));
    ST_TRY(st_checkpoint_write_state(part, m, s, arena, e));
    return st_sync_folder(part, e);
}

int st_checkpoint_save(const char *dir, st_model *m, const st_checkpoint_texts *texts, const st_checkpoint_state *s,
                       st_error *e)
{
    st_arena *arena = st_arena_create(0);
    char *part = arena ? st_arena_printf(arena, "%s.part", dir) : NULL;
    int rc = part ? st_remove_folder(part, e) : st_fail(e, ST_E_NOMEM, "no memory for a path");

    if (rc == ST_OK) rc = fill(part, m, texts, s, arena, e);
    if (rc == ST_OK && rename(part, dir) != 0) rc = st_fail_errno(e, dir, "rename the finished folder to");
    if (rc == ST_OK) rc = st_sync_folder(st_path_dir(arena, dir), e);
    if (rc != ST_OK && part) (void)st_remove_folder(part, &(st_error){0}); /* a full disk gets its room back */
    st_arena_destroy(arena);
    if (rc != ST_OK) st_error_context(e, "saving a checkpoint");
    return rc;
}
