/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/load.c - a checkpoint's folder is read. A folder that another model wrote is refused by tensor. */
#include "config.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors_format.h"
#include <stdlib.h>
#include <string.h>

int st_checkpoint_spec(const char *dir, const char *const *sets, int n_sets, st_spec **out, st_diags *d)
{
    st_arena *arena = st_arena_create(0);
    char *path = arena ? st_path_join(arena, dir, "spec.ini") : NULL;
    int rc = path ? st_spec_load(path, sets, n_sets, out, d)
                  : st_diags_add(d, &(st_error){.code = ST_E_NOMEM, .message = "no memory for a path"}, NULL, false);

    st_arena_destroy(arena);
    return rc;
}

static void list_dims(const int64_t *dim, int nd, char *out, size_t size)
{
    size_t at = 0;

    out[0] = '\0';
    for (int i = 0; i < nd && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", i ? "," : "", (long long)dim[i]);
}

static int check_shape(const st_state_tensor *s, const st_file_tensor *t, const char *path, st_error *e)
{
    bool same = s->nd == t->nd;
    char have[128], need[128];

    for (int i = 0; i < s->nd && same; i++) same = s->dim[i] == t->dim[i];
    if (same) return ST_OK;
    list_dims(t->dim, t->nd, have, sizeof have);
    list_dims(s->dim, s->nd, need, sizeof need);
    return st_fail(e, ST_E_CONFIG, "%s: tensor %s is [%s], the model's is [%s]", path, s->name, have, need);
}

/* Weights of another precision, by value and in pieces: an f32 checkpoint starts an f64 run. */
static int read_values(st_model *m, const st_state_tensor *s, const st_file_tensor *t, st_error *e)
{
    enum { PIECE = 1 << 16 };
    int32_t weight = st_model_find_weight(m, s->name);
    double *values = malloc(PIECE * sizeof *values);
    int rc = values ? ST_OK : st_fail(e, ST_E_NOMEM, "no memory to load %s", s->name);

    if (rc == ST_OK && weight < 0) rc = st_fail(e, ST_E_INTERNAL, "%s is no weight of the model", s->name);
    for (int64_t i = 0; i < t->count && rc == ST_OK; i += PIECE) {
        int64_t n = t->count - i < PIECE ? t->count - i : PIECE;
        rc = st_tensor_part_to_f64(t, i, n, values, e);
        if (rc == ST_OK) rc = st_model_write_at(m, weight, i, values, n, e);
    }
    free(values);
    return rc;
}

static int read_state(st_model *m, const st_state_tensor *s, int i, const st_file_tensor *t, const char *path,
                      st_error *e)
{
    int rc;

    ST_TRY(check_shape(s, t, path, e));
    if (t->dtype == s->dtype || !s->optimizer) {
        rc = t->dtype == s->dtype ? st_model_state_write(m, i, t->data, e) : read_values(m, s, t, e);
        st_tensor_done(t);
        return rc;
    }
    return st_fail(e, ST_E_CONFIG, "%s: tensor %s is %s, the run's is %s", path, s->name, t->dtype_name,
                   st_format_type_of(s->dtype)->name);
}

/* Tensors that the model has no place for: the first by name, and how many. */
static int check_left_over(const st_tensors *file, const st_state_tensor *s, int n, int optimizer, const char *path,
                           st_error *e)
{
    const st_file_tensor *list;
    int total = st_tensors_list(file, &list), left = 0;
    const char *first = NULL;

    for (int i = 0; i < total; i++) {
        bool known = false;
        for (int k = 0; k < n && !known; k++)
            known = s[k].optimizer == optimizer && strcmp(s[k].name, list[i].name) == 0;
        if (!known && !first) first = list[i].name;
        left += !known;
    }
    if (!left) return ST_OK;
    return st_fail(e, ST_E_CONFIG, "%s: the model has no place for tensor %s%s", path, first,
                   left > 1 ? " and others" : "");
}

/* values false: only names and shapes are compared. */
static int load_tensors(const char *path, st_model *m, int optimizer, bool values, st_error *e)
{
    const st_state_tensor *s;
    st_tensors *file;
    int n = st_model_states(m, &s), rc = ST_OK;

    ST_TRY(st_tensors_open(path, &file, e));
    for (int i = 0; i < n && rc == ST_OK; i++) {
        if (s[i].optimizer != optimizer) continue;
        const st_file_tensor *t = st_tensors_find(file, s[i].name);
        rc = t ? (values ? read_state(m, &s[i], i, t, path, e) : check_shape(&s[i], t, path, e))
               : st_fail(e, ST_E_CONFIG, "%s: no tensor %s, which the model has", path, s[i].name);
    }
    if (rc == ST_OK) rc = check_left_over(file, s, n, optimizer, path, e);
    st_tensors_close(file);
    if (rc == ST_E_CONFIG)
        st_error_hint(e, optimizer ? "the checkpoint is of another model or optimizer, or freezes other parts"
                                   : "the checkpoint is another model's: compare its spec.ini with this spec");
    return rc;
}

int st_checkpoint_fit(const char *dir, st_model *m, st_error *e)
{
    st_arena *arena = st_arena_create(0);
    char *path = arena ? st_path_join(arena, dir, st_checkpoint_file(0)) : NULL;
    int rc = path ? load_tensors(path, m, 0, false, e) : st_fail(e, ST_E_NOMEM, "no memory for a path");

    st_arena_destroy(arena);
    return rc;
}

int st_checkpoint_load(const char *dir, st_model *m, int optimizer, st_error *e)
{
    st_arena *arena = st_arena_create(0);
    int rc = arena ? ST_OK : st_fail(e, ST_E_NOMEM, "no memory to load %s", dir);

    for (int i = 0; i <= (optimizer != 0) && rc == ST_OK; i++) {
        char *path = st_path_join(arena, dir, st_checkpoint_file(i));
        rc = path ? load_tensors(path, m, i, true, e) : st_fail(e, ST_E_NOMEM, "no memory for a path");
    }
    st_arena_destroy(arena);
    return rc;
}
