/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/checkpoint.c - a folder per checkpoint. It is written under another name and renamed when everything in it is on
 * disk, so a folder whose name does not end in .part is whole. Bits are stored as they are in memory: a resume is exact. */
#include "config.h"
#include "checkpoint/checkpoint.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const file_of[2] = {"model.safetensors", "optimizer.safetensors"};

/* ---- writing ---- */

static int declare_tensors(st_tensors_out *out, const st_state_tensor *s, int n, int optimizer, st_error *e)
{
    ST_TRY(st_tensors_meta(out, "format", "strata"));
    for (int i = 0; i < n; i++)
        if (s[i].optimizer == optimizer) ST_TRY(st_tensors_declare(out, s[i].name, s[i].dtype, s[i].nd, s[i].dim, e));
    return ST_OK;
}

static int write_tensors(st_tensors_out *out, st_model *m, const st_state_tensor *s, int n, int optimizer, st_error *e)
{
    for (int i = 0; i < n; i++) {
        if (s[i].optimizer != optimizer) continue;
        void *bits = malloc(s[i].bytes ? s[i].bytes : 1);
        if (!bits) return st_fail(e, ST_E_NOMEM, "no memory to save %s (%zu bytes)", s[i].name, s[i].bytes);
        int rc = st_model_state_read(m, i, bits, e);
        if (rc == ST_OK) rc = st_tensors_write(out, bits, s[i].bytes, e);
        free(bits);
        if (rc != ST_OK) return rc;
    }
    return ST_OK;
}

static int save_tensors(const char *dir, st_model *m, int optimizer, st_arena *arena, st_error *e)
{
    const st_state_tensor *s;
    int n = st_model_states(m, &s), rc;
    char *path = st_path_join(arena, dir, file_of[optimizer]);
    st_tensors_out *out;

    if (!path) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    ST_TRY(st_tensors_create(path, &out, e));
    rc = declare_tensors(out, s, n, optimizer, e);
    if (rc == ST_OK) rc = write_tensors(out, m, s, n, optimizer, e);
    if (rc == ST_OK) return st_tensors_finish(out, e);
    st_tensors_abort(out);
    return rc;
}

static json_t *number64(uint64_t v) /* JSON numbers of many readers end at 2^53 */
{
    char text[32];

    snprintf(text, sizeof text, "%016" PRIx64, v);
    return json_string(text);
}

static int save_state(const char *dir, const st_model *m, const st_progress *p, st_arena *arena, st_error *e)
{
    static const char *const precision[] = {[ST_F64] = "f64", [ST_F32] = "f32", [ST_BF16] = "bf16"};
    char *path = st_path_join(arena, dir, "state.json"), *text;
    json_t *j = json_pack("{s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:{s:o, s:I, s:I, s:I}}", "format", ST_CHECKPOINT_FORMAT,
                          "strata", PACKAGE_VERSION, "precision", precision[st_model_dtype(m)], "pattern", st_model_pattern(m),
                          "step", (json_int_t)p->step, "tokens", (json_int_t)p->tokens, "trained", (json_int_t)p->trained,
                          "seed", number64(p->seed), "spec_hash", number64(p->spec_hash), "train",
                          "epoch", number64(p->train.epoch), "next", (json_int_t)p->train.next,
                          "seen", (json_int_t)p->train.seen, "bad", (json_int_t)p->train.bad);
    int rc;

    if (!path || !j) {
        json_decref(j);
        return st_fail(e, ST_E_NOMEM, "no memory for state.json");
    }
    if (isfinite(p->best_valid)) json_object_set_new(j, "best_valid", json_real(p->best_valid));
    text = json_dumps(j, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    rc = text ? st_file_write_atomic(path, text, strlen(text), e) : st_fail(e, ST_E_NOMEM, "no memory for state.json");
    free(text);
    json_decref(j);
    return rc;
}

static int save_spec(const char *dir, const st_spec *spec, st_arena *arena, st_error *e)
{
    st_buf text = {0};
    int rc;

    st_spec_write(spec, &text);
    rc = text.failed ? st_fail(e, ST_E_NOMEM, "no memory for spec.ini")
                     : st_file_write_atomic(st_path_join(arena, dir, "spec.ini"), text.data, text.n, e);
    st_buf_free(&text);
    return rc;
}

static int clear_folder(const char *dir, st_arena *arena, st_error *e)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    int rc = ST_OK;

    if (!d) return errno == ENOENT ? ST_OK : st_fail_errno(e, dir, "open");
    while (rc == ST_OK && (entry = readdir(d)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *path = st_path_join(arena, dir, entry->d_name);
        if (!path || unlink(path) != 0) rc = st_fail_errno(e, path ? path : dir, "remove");
    }
    closedir(d);
    if (rc == ST_OK && rmdir(dir) != 0) rc = st_fail_errno(e, dir, "remove");
    return rc;
}

static int sync_folder(const char *dir, st_error *e)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    int bad = fd < 0 || fsync(fd) != 0;

    if (fd >= 0) close(fd);
    return bad ? st_fail_errno(e, dir, "write") : ST_OK;
}

static int save_all(const char *part, const char *dir, st_model *m, const st_spec *spec, const st_progress *p, st_arena *arena, st_error *e)
{
    ST_TRY(clear_folder(part, arena, e)); /* left by a run that was killed while saving */
    ST_TRY(st_make_dirs(part, e));
    ST_TRY(save_spec(part, spec, arena, e));
    ST_TRY(save_tensors(part, m, 0, arena, e));
    ST_TRY(save_tensors(part, m, 1, arena, e));
    ST_TRY(save_state(part, m, p, arena, e));
    ST_TRY(sync_folder(part, e));
    ST_TRY(clear_folder(dir, arena, e));
    if (rename(part, dir) != 0) return st_fail_errno(e, dir, "rename into place");
    return sync_folder(st_path_dir(arena, dir), e);
}

int st_checkpoint_save(const char *dir, st_model *m, const st_spec *spec, const st_progress *p, st_error *e)
{
    st_arena *arena = st_arena_create(0);
    char *part = arena ? st_arena_printf(arena, "%s.part", dir) : NULL;
    int rc = part ? save_all(part, dir, m, spec, p, arena, e) : st_fail(e, ST_E_NOMEM, "no memory to save %s", dir);

    if (arena) st_arena_destroy(arena);
    if (rc != ST_OK) st_error_context(e, "saving %s", dir);
    return rc;
}

/* ---- reading ---- */

static int is_whole(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);

    return strncmp(entry->d_name, "step-", 5) == 0 && !(n > 5 && strcmp(entry->d_name + n - 5, ".part") == 0);
}

int st_checkpoint_latest(const char *output, st_arena *arena, char **dir, st_error *e)
{
    char *folder = st_path_join(arena, output, "checkpoints");
    struct dirent **list;
    int n;

    *dir = NULL;
    if (!folder) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    n = scandir(folder, &list, is_whole, alphasort);
    if (n < 0) return errno == ENOENT ? ST_OK : st_fail_errno(e, folder, "list");
    if (n > 0) *dir = st_path_join(arena, folder, list[n - 1]->d_name);
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
    return ST_OK;
}

int st_checkpoint_spec(const char *dir, const char *const *sets, int n_sets, st_spec **out, st_diags *d)
{
    st_arena *arena = st_arena_create(0);
    char *path = arena ? st_path_join(arena, dir, "spec.ini") : NULL;
    int rc = path ? st_spec_load(path, sets, n_sets, out, d)
                  : st_diags_add(d, &(st_error){.code = ST_E_NOMEM, .message = "no memory for a path"}, NULL, false);

    if (arena) st_arena_destroy(arena);
    return rc;
}

static int read_hex(json_t *j, const char *key, uint64_t *out)
{
    const char *text = json_string_value(json_object_get(j, key));
    char *end;

    if (!text || strlen(text) != 16) return 0;
    *out = strtoull(text, &end, 16);
    return *end == '\0';
}

static int read_count(json_t *j, const char *key, int64_t *out)
{
    json_t *v = json_object_get(j, key);

    if (!json_is_integer(v) || json_integer_value(v) < 0) return 0;
    *out = json_integer_value(v);
    return 1;
}

static int load_state(const char *dir, st_progress *p, st_arena *arena, st_error *e)
{
    char *path = st_path_join(arena, dir, "state.json"), *text;
    json_error_t why;
    json_t *j, *train;
    int64_t format = 0;
    size_t n;
    int ok;

    ST_TRY(st_file_read(path, arena, &text, &n, e));
    j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!j) return st_fail_at(e, ST_E_DATA, path, why.line, why.column, "%s", why.text);
    if (read_count(j, "format", &format) && format > ST_CHECKPOINT_FORMAT) {
        json_decref(j);
        return st_fail(e, ST_E_ABI, "%s: checkpoint format %lld, this strata reads up to %d", path, (long long)format, ST_CHECKPOINT_FORMAT);
    }
    train = json_object_get(j, "train");
    memset(p, 0, sizeof *p);
    ok = format > 0 && read_count(j, "step", &p->step) && read_count(j, "tokens", &p->tokens) && read_count(j, "trained", &p->trained) &&
         read_hex(j, "seed", &p->seed) && read_hex(j, "spec_hash", &p->spec_hash) && read_hex(train, "epoch", &p->train.epoch) &&
         read_count(train, "next", &p->train.next) && read_count(train, "seen", &p->train.seen) && read_count(train, "bad", &p->train.bad);
    p->best_valid = json_is_real(json_object_get(j, "best_valid")) ? json_real_value(json_object_get(j, "best_valid")) : NAN;
    json_decref(j);
    return ok ? ST_OK : st_fail(e, ST_E_DATA, "%s: a field is missing or of the wrong type", path);
}

static bool same_shape(const st_state_tensor *s, const st_file_tensor *t)
{
    if (s->nd != t->nd) return false;
    for (int i = 0; i < s->nd; i++)
        if (s->dim[i] != t->dim[i]) return false;
    return true;
}

/* Same type: the bits. Another (weights only: an f32 checkpoint starts an f64 run): by value. */
static int read_state(st_model *m, const st_state_tensor *s, int i, const st_file_tensor *t, const char *path, st_error *e)
{
    if (!same_shape(s, t)) return st_fail(e, ST_E_SHAPE, "%s: tensor %s has another shape than the model's", path, s->name);
    if (t->dtype == s->dtype) return st_model_state_write(m, i, t->data, e);
    if (s->optimizer) return st_fail(e, ST_E_SHAPE, "%s: tensor %s is %s, this run needs another precision", path, s->name, t->dtype_name);
    const st_model_weight *const *weights;
    int n = st_model_weights(m, &weights);
    for (int32_t w = 0; w < n; w++) {
        if (strcmp(weights[w]->path, s->name) != 0) continue;
        double *values = malloc((size_t)(t->count ? t->count : 1) * sizeof *values);
        if (!values) return st_fail(e, ST_E_NOMEM, "no memory to load %s", s->name);
        int rc = st_tensor_to_f64(t, values, e);
        if (rc == ST_OK) rc = st_model_write(m, w, values, e);
        free(values);
        return rc;
    }
    return st_fail(e, ST_E_INTERNAL, "state tensor %s is no weight's", s->name);
}

static int load_tensors(const char *dir, st_model *m, int optimizer, st_arena *arena, st_error *e)
{
    const st_state_tensor *s;
    const st_file_tensor *list;
    st_tensors *file;
    char *path = st_path_join(arena, dir, file_of[optimizer]);
    int n = st_model_states(m, &s), rc = ST_OK, used = 0;

    ST_TRY(st_tensors_open(path, &file, e));
    for (int i = 0; i < n && rc == ST_OK; i++) {
        if (s[i].optimizer != optimizer) continue;
        const st_file_tensor *t = st_tensors_find(file, s[i].name);
        if (!t) rc = st_fail(e, ST_E_NOTFOUND, "%s: no tensor %s", path, s[i].name);
        else rc = read_state(m, &s[i], i, t, path, e);
        used++;
    }
    n = st_tensors_list(file, &list);
    if (rc == ST_OK && used != n)
        rc = st_fail(e, ST_E_SHAPE, "%s holds %d tensors, the model has %d: it is another model's", path, n, used);
    st_tensors_close(file);
    return rc;
}

int st_checkpoint_load(const char *dir, st_model *m, int optimizer, st_progress *p, st_error *e)
{
    st_arena *arena = st_arena_create(0);
    int rc;

    if (!arena) return st_fail(e, ST_E_NOMEM, "no memory to load %s", dir);
    rc = load_state(dir, p, arena, e);
    if (rc == ST_OK) rc = load_tensors(dir, m, 0, arena, e);
    if (rc == ST_OK && optimizer) rc = load_tensors(dir, m, 1, arena, e);
    st_arena_destroy(arena);
    return rc;
}
