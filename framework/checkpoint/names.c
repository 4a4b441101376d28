/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/names.c - weights in other layouts: which run of rows of a weight a file tensor holds, and loading by
 * those names. */
#include "config.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/family.h"
#include "checkpoint/view.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

view view_of(const st_model_weight *w, const st_file_name *f)
{
    int32_t first = f->entry >= 0, dim = w->sec_dim > first ? w->sec_dim : first;
    view v = {0, 1, w->dim[dim], 1, dim == first};

    for (int i = first; i < dim; i++) v.outer *= w->dim[i];
    for (int i = dim + 1; i < w->nd; i++) v.inner *= w->dim[i];
    if (first) v.at = f->entry * v.outer * v.rows * v.inner;
    return v;
}

int64_t st_weight_part_count(const st_model_weight *w, const st_file_name *f)
{
    view v = view_of(w, f);

    return v.outer * f->n * v.inner;
}

void st_weight_part(const st_model_weight *w, const st_file_name *f, const double *whole, double *part)
{
    view v = view_of(w, f);
    int64_t n = run_length(&v, f);

    for (int64_t o = 0; o < v.outer; o++) memcpy(part + o * n, whole + run_at(&v, f, o), (size_t)n * sizeof *part);
}

static void list_dims(const int64_t *dim, int nd, char *out, size_t size)
{
    size_t at = 0;

    out[0] = '\0';
    for (int i = 0; i < nd && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", i ? "," : "", (long long)dim[i]);
}

/* One load: the file, which tensor holds which part of which weight, and the names of these tensors, sorted. */
typedef struct load {
    const st_shards *file;
    const char *dir;
    const st_file_name *names;
    const char **sorted;
    double *piece; /* PIECE values on their way from the file to the model; NULL: nothing is read */
    int n;
} load;
enum { PIECE = 1 << 16 };

static int check_part(const load *l, const st_model_weight *w, const st_file_name *f, const st_file_tensor *t,
                      st_error *e)
{
    int64_t want = st_weight_part_count(w, f), lead = view_of(w, f).leads ? f->n : w->dim[f->entry >= 0];
    char have[128], need[128];

    if (!t) {
        st_fail(e, ST_E_CONFIG, "%s: no tensor %s, needed for weight %s", l->dir, f->file_name, w->path);
        if (strcmp(f->file_name, "lm_head.weight") == 0)
            st_error_hint(e, "set [stack] tie_embeddings = yes when the head is the embedding, or add the tensor");
        if (strncmp(f->file_name, "mtp.", 4) == 0)
            st_error_hint(e, "remove what follows '/' in [stack] pattern, or take weights that hold the depth");
        return ST_E_CONFIG;
    }
    if (t->count != want || (t->nd > 0 && t->dim[0] != lead)) {
        list_dims(t->dim, t->nd, have, sizeof have);
        list_dims(w->dim, w->nd, need, sizeof need);
        st_fail(e, ST_E_CONFIG, "%s: tensor %s is [%s], weight %s [%s] takes %lld values of it", l->dir, t->name, have,
                w->path, need, (long long)want);
        st_error_hint(e, "compare the spec's sizes with the folder's config.json");
        return ST_E_CONFIG;
    }
    return ST_OK;
}

/* From the mapped file in pieces, so that no tensor is ever in memory a second time. */
static int read_part(const load *l, st_model *m, const st_model_weight *w, const st_file_name *f, st_error *e)
{
    const st_file_tensor *t = st_shards_find(l->file, f->file_name);
    view v = view_of(w, f);
    int64_t n = run_length(&v, f);

    ST_TRY(check_part(l, w, f, t, e));
    if (!l->piece) return ST_OK;
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t i = 0; i < n; i += PIECE) {
            int64_t k = n - i < PIECE ? n - i : PIECE;
            ST_TRY(st_tensor_part_to_f64(t, o * n + i, k, l->piece, e));
            ST_TRY(st_model_write_at(m, f->weight, run_at(&v, f, o) + i, l->piece, k, e));
        }
    st_tensor_done(t);
    return ST_OK;
}

static int load_weight(const load *l, st_model *m, int32_t index, const st_model_weight *w, st_error *e)
{
    int64_t filled = 0;

    for (int i = 0; i < l->n; i++) {
        if (l->names[i].weight != index) continue;
        ST_TRY(read_part(l, m, w, &l->names[i], e));
        filled += st_weight_part_count(w, &l->names[i]);
    }
    if (!filled)
        return st_fail(e, ST_E_CONFIG, "weight %s has no HuggingFace name, so %s cannot fill it", w->path, l->dir);
    if (filled == w->count) return ST_OK;
    return st_fail(e, ST_E_INTERNAL, "weight %s: its names in files cover %lld of %lld values", w->path,
                   (long long)filled, (long long)w->count);
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static bool is_named(const load *l, const char *name)
{
    return bsearch(&name, l->sorted, (size_t)l->n, sizeof *l->sorted, by_name) != NULL;
}

/* A tied model reads the embedding alone; a head of the file's own that differs would be lost without a word. */
static int check_tied_head(const load *l, st_error *e)
{
    const st_file_tensor *head = st_shards_find(l->file, "lm_head.weight"), *embed = NULL;

    for (int i = 0; i < l->n && !embed; i++)
        if (st_ends_with(l->names[i].file_name, "embed_tokens.weight"))
            embed = st_shards_find(l->file, l->names[i].file_name);
    if (!head || !embed || is_named(l, head->name)) return ST_OK;
    if (head->dtype == embed->dtype && head->bytes == embed->bytes && !memcmp(head->data, embed->data, head->bytes))
        return ST_OK;
    st_fail(e, ST_E_CONFIG, "%s: %s is not %s, but [stack] tie_embeddings = yes makes them one", l->dir, head->name,
            embed->name);
    st_error_hint(e, "set [stack] tie_embeddings = no");
    return ST_E_CONFIG;
}

/* A folder with more than the model takes is another model. Two things are rightly left out: multi-token prediction
 * parts when the pattern has none, and the copy of a tied head that some writers keep. */
static int check_left_over(const load *l, st_error *e)
{
    const st_file_tensor *const *list;
    const char *first = NULL;
    int total = st_shards_list(l->file, &list), left = 0;
    bool has_mtp = false, has_head = is_named(l, "lm_head.weight");

    for (int i = 0; i < l->n; i++) has_mtp |= strncmp(l->names[i].file_name, "mtp.", 4) == 0;
    for (int i = 0; i < total; i++) {
        const char *name = list[i]->name;
        if (is_named(l, name) || (!has_mtp && strncmp(name, "mtp.", 4) == 0)) continue;
        if (!has_head && strcmp(name, "lm_head.weight") == 0) continue;
        if (!first) first = name;
        left++;
    }
    if (!left) return ST_OK;
    st_fail(e, ST_E_CONFIG, "%s holds %d tensor%s that the model has no place for, the first is %s", l->dir, left,
            left > 1 ? "s" : "", first);
    st_error_hint(e, "the spec describes a smaller or another model");
    return ST_E_CONFIG;
}

/* ---- what is odd without being wrong ---- */

/* Depths that the config.json beside the weights declares; 0 also when there is none to read. */
static int64_t declared_depths(const char *path)
{
    st_arena *arena = st_arena_create(0);
    const char *ending = strrchr(path, '.');
    bool file = ending && (strcmp(ending, ".safetensors") == 0 || strcmp(ending, ".json") == 0);
    const char *folder = arena && file ? st_path_dir(arena, path) : path;
    char *config = arena && folder ? st_path_join(arena, folder, "config.json") : NULL;
    json_t *top = config ? json_load_file(config, 0, NULL) : NULL, *text = json_object_get(top, "text_config");
    int64_t n = json_integer_value(json_object_get(text ? text : top, "mtp_num_hidden_layers"));

    json_decref(top);
    st_arena_destroy(arena);
    return n;
}

static void tell_oddities(const load *l, st_log *log)
{
    const st_file_tensor *const *list;
    int total = st_shards_list(l->file, &list), held = 0, taken = 0;
    int64_t declared = declared_depths(l->dir);

    for (int i = 0; i < total; i++) held += strncmp(list[i]->name, "mtp.", 4) == 0;
    for (int i = 0; i < l->n; i++) taken += strncmp(l->names[i].file_name, "mtp.", 4) == 0;
    if (st_shards_warning(l->file)) st_log_write(log, 2, "checkpoint", "%s", st_shards_warning(l->file));
    if (declared > 0 && !held)
        st_log_write(log, 2, "checkpoint",
                     "%s: config.json declares %lld multi-token-prediction layer%s, but there is no tensor mtp.*",
                     l->dir, (long long)declared, declared > 1 ? "s" : "");
    if (held && !taken)
        st_log_write(log, 3, "checkpoint", "%s: %d tensors mtp.* are left out: the pattern has no such depth", l->dir,
                     held);
}

static bool has_name(void *file, const char *name) { return st_shards_find(file, name) != NULL; }

static int load_named(load *l, st_model *m, st_log *log, st_error *e)
{
    const st_model_weight *const *weights;
    int n_weights = st_model_weights(m, &weights);

    for (int i = 0; i < l->n; i++) l->sorted[i] = l->names[i].file_name;
    qsort(l->sorted, (size_t)l->n, sizeof *l->sorted, by_name);
    ST_TRY(check_left_over(l, e));
    ST_TRY(check_tied_head(l, e));
    tell_oddities(l, log);
    for (int32_t i = 0; i < n_weights; i++)
        if (!(weights[i]->flags & ST_W_CONST)) ST_TRY(load_weight(l, m, i, weights[i], e));
    return ST_OK;
}

/* values false: only names and shapes are compared. */
static int load_all(st_shards *file, const char *dir, st_model *m, bool values, st_log *log, st_error *e)
{
    load l = {.file = file, .dir = dir};
    int rc;

    l.n = st_model_file_names(m, "hf", st_family_maps(), has_name, file, &l.names);
    if (l.n < 0) return st_fail(e, l.n, "weights cannot be named as files do: %s", st_code_name(l.n));
    l.sorted = malloc((size_t)(l.n ? l.n : 1) * sizeof *l.sorted);
    l.piece = values ? malloc(PIECE * sizeof *l.piece) : NULL;
    rc = l.sorted && (l.piece || !values) ? load_named(&l, m, log, e)
                                          : st_fail(e, ST_E_NOMEM, "no memory for the names of %s", dir);
    free(l.piece);
    free(l.sorted);
    return rc;
}

int st_checkpoint_look_at_hf(const char *dir, st_error *e)
{
    st_shards *file;

    ST_TRY(st_shards_open(dir, &file, e));
    st_shards_close(file);
    return ST_OK;
}

int st_checkpoint_fit_hf(const char *dir, st_model *m, st_error *e)
{
    st_shards *file;
    int rc;

    ST_TRY(st_shards_open(dir, &file, e));
    rc = load_all(file, dir, m, false, NULL, e);
    st_shards_close(file);
    return rc;
}

int st_checkpoint_load_hf(const char *dir, st_model *m, st_log *log, st_error *e)
{
    st_shards *file;
    int rc;

    ST_TRY(st_shards_open(dir, &file, e));
    rc = load_all(file, dir, m, true, log, e);
    st_shards_close(file);
    return rc;
}

int st_checkpoint_load_hf_files(const char *const *paths, int n, st_model *m, st_log *log, st_error *e)
{
    st_shards *file;
    int rc;

    ST_TRY(st_shards_open_files(paths, n, &file, e));
    rc = load_all(file, paths[0], m, true, log, e);
    st_shards_close(file);
    return rc;
}
