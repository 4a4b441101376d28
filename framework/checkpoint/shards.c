/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/shards.c - published weights: one file, or shards with an index.
 *
 * The index maps each tensor to the file that holds it. It is held to its word in both directions: a file it names
 * must be there, a tensor it names must be in that file, and a tensor in one of its files that it does not place
 * there marks a file of another export. Files are names inside the folder and nothing else. A total_size that
 * disagrees is known from published models and harmless, so it is only told. */
#include "config.h"
#include "checkpoint/safetensors.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct entry {
    const st_file_tensor *tensor;
    const char *file;
} entry;
struct st_shards {
    st_arena *arena;
    const char *index; /* path; NULL: a single file              */
    int32_t n_files;
    struct {
        const char *name, *path;
        st_tensors *open;
    } * file;
    int32_t n;
    entry *list;                    /* sorted by name                         */
    const st_file_tensor **tensors; /* the same                               */
    const char *warning;
};

static int bad(st_error *e, const char *path, const char *hint, const char *fmt, ...) ST_PRINTF(4, 5);
static int bad(st_error *e, const char *path, const char *hint, const char *fmt, ...)
{
    char text[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    int rc = st_fail_at(e, ST_E_DATA, path, 0, 0, "%s", text);
    if (hint) st_error_hint(e, "%s", hint);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->tensor->name, ((const entry *)b)->tensor->name);
}

/* ---- the index file ---- */

static int shard_of(const st_shards *s, const char *name)
{
    for (int32_t i = 0; i < s->n_files; i++)
        if (!strcmp(s->file[i].name, name)) return i;
    return -1;
}

/* Other libraries write other shapes under the same names: what a file says of itself must be "pt". */
static int open_tensors(st_shards *s, const char *path, st_error *e)
{
    const char *format;

    ST_TRY(st_tensors_open(path, &s->file[s->n_files].open, e));
    format = st_tensors_metadata(s->file[s->n_files++].open, "format");
    if (!format || !strcmp(format, "pt")) return ST_OK;
    return bad(e, path, !strcmp(format, "strata") ? "a checkpoint of strata is loaded by [checkpoint] from"
                                                  : "fetch the model's PyTorch weights",
               "the weights are of the format '%.60s', not 'pt'", format);
}

static int open_shard(st_shards *s, const char *dir, const char *name, st_error *e)
{
    if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
        return bad(e, s->index, NULL, "the shard '%.120s' is not a file name inside the index's folder", name);
    const char *path = st_path_join(s->arena, dir, name);
    if (!path) return st_fail(e, ST_E_NOMEM, "%s: no memory", s->index);
    if (!st_path_exists(path))
        return bad(e, path, "fetch all files of the model", "this shard is named by %.200s, but it is not there",
                   s->index);
    s->file[s->n_files].name = name;
    s->file[s->n_files].path = path;
    return open_tensors(s, path, e);
}

static int open_shards(st_shards *s, const char *dir, const json_t *map, st_error *e)
{
    const char *name;
    json_t *file;
    size_t n = json_object_size(map);

    s->file = st_arena_alloc(s->arena, (n + 1) * sizeof *s->file);
    if (!s->file) return st_fail(e, ST_E_NOMEM, "%s: no memory for %zu entries", s->index, n);
    json_object_foreach((json_t *)map, name, file)
    {
        if (!json_is_string(file))
            return bad(e, s->index, NULL, "weight_map: the file of tensor '%.96s' is not text", name);
        if (shard_of(s, json_string_value(file)) < 0) ST_TRY(open_shard(s, dir, json_string_value(file), e));
    }
    return ST_OK;
}

/* Every tensor of the index is where it says. */
static int match_index(st_shards *s, const json_t *map, st_error *e)
{
    const char *name;
    json_t *file;

    json_object_foreach((json_t *)map, name, file)
    {
        int i = shard_of(s, json_string_value(file));
        if (!st_tensors_find(s->file[i].open, name))
            return bad(e, s->file[i].path, "the index and this shard come from different exports",
                       "tensor '%.96s' should be in this shard by %.160s, but is not", name, s->index);
    }
    return ST_OK;
}

/* Every tensor of a shard is placed there by the index. */
static int match_shards(st_shards *s, const json_t *map, st_error *e)
{
    for (int32_t i = 0; i < s->n_files; i++) {
        const st_file_tensor *list;
        int n = st_tensors_list(s->file[i].open, &list);
        for (int j = 0; j < n; j++) {
            const char *placed = json_string_value(json_object_get(map, list[j].name));
            if (!placed || strcmp(placed, s->file[i].name))
                return bad(e, s->file[i].path, "the index and this shard come from different exports",
                           "tensor '%.96s' of this shard is placed in %.80s by %.120s", list[j].name,
                           placed ? placed : "no shard", s->index);
        }
    }
    return ST_OK;
}

static void compare_total(st_shards *s, const json_t *total)
{
    int64_t bytes = 0;

    for (int32_t i = 0; i < s->n_files; i++) {
        const st_file_tensor *list;
        int n = st_tensors_list(s->file[i].open, &list);
        for (int j = 0; j < n; j++) bytes += (int64_t)list[j].bytes;
    }
    if (json_is_integer(total) && json_integer_value(total) != bytes)
        s->warning =
            st_arena_printf(s->arena, "%s: total_size is %" JSON_INTEGER_FORMAT ", the shards hold %" PRId64 " bytes",
                            s->index, json_integer_value(total), bytes);
}

static int read_index(st_shards *s, const char *path, json_t **root, st_error *e)
{
    char *text;
    size_t n;
    json_error_t why;

    s->index = st_arena_strdup(s->arena, path);
    ST_TRY(st_file_read(path, s->arena, &text, &n, e));
    *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!*root) {
        int rc = bad(e, path, NULL, "the index is not valid JSON");
        e->line = why.line;
        st_error_detail(e, "%s", why.text);
        return rc;
    }
    const json_t *map = json_object_get(*root, "weight_map");
    if (!json_is_object(map)) return bad(e, path, NULL, "the index has no object 'weight_map'");
    const char *dir = st_path_dir(s->arena, path);
    ST_TRY(open_shards(s, dir, map, e));
    ST_TRY(match_index(s, map, e));
    ST_TRY(match_shards(s, map, e));
    compare_total(s, json_object_get(json_object_get(*root, "metadata"), "total_size"));
    return ST_OK;
}

/* ---- opening ---- */

static int open_files(st_shards *s, const char *const *paths, int n, st_error *e)
{
    s->file = st_arena_alloc(s->arena, (size_t)n * sizeof *s->file);
    if (!s->file) return st_fail(e, ST_E_NOMEM, "%s: no memory", paths[0]);
    for (int i = 0; i < n; i++) {
        s->file[i].name = s->file[i].path = st_arena_strdup(s->arena, paths[i]);
        ST_TRY(open_tensors(s, paths[i], e));
    }
    return ST_OK;
}

/* The file that speaks for `path`: itself, or the one in the folder. */
static int choose(st_shards *s, const char *path, const char **file, st_error *e)
{
    struct stat st;

    *file = path;
    if (stat(path, &st)) return st_fail_errno(e, path, "open");
    if (!S_ISDIR(st.st_mode)) return ST_OK;
    const char *single = st_path_join(s->arena, path, "model.safetensors");
    const char *index = st_path_join(s->arena, path, "model.safetensors.index.json");
    bool has_single = st_path_exists(single), has_index = st_path_exists(index);
    if (has_single && has_index)
        return bad(e, path, "name one of the two instead of the folder",
                   "the folder holds both model.safetensors and model.safetensors.index.json");
    if (!has_single && !has_index)
        return st_fail_at(e, ST_E_NOTFOUND, path, 0, 0,
                          "the folder holds neither model.safetensors nor "
                          "model.safetensors.index.json");
    *file = has_index ? index : single;
    return ST_OK;
}

static int collect(st_shards *s, const char *path, st_error *e)
{
    size_t n = 0;

    for (int32_t i = 0; i < s->n_files; i++) {
        const st_file_tensor *list;
        n += (size_t)st_tensors_list(s->file[i].open, &list);
    }
    s->list = st_arena_alloc(s->arena, (n + 1) * sizeof *s->list);
    s->tensors = st_arena_alloc(s->arena, (n + 1) * sizeof *s->tensors);
    if (!s->list || !s->tensors) return st_fail(e, ST_E_NOMEM, "%s: no memory for %zu tensors", path, n);
    for (int32_t i = 0; i < s->n_files; i++) {
        const st_file_tensor *list;
        int count = st_tensors_list(s->file[i].open, &list);
        for (int j = 0; j < count; j++) s->list[s->n++] = (entry){&list[j], s->file[i].path};
    }
    qsort(s->list, (size_t)s->n, sizeof *s->list, by_name);
    for (int32_t i = 0; i < s->n; i++) s->tensors[i] = s->list[i].tensor;
    for (int32_t i = 1; i < s->n; i++)
        if (!by_name(&s->list[i - 1], &s->list[i]))
            return bad(e, s->list[i].file, NULL, "tensor '%.96s' is also in %.160s", s->list[i].tensor->name,
                       s->list[i - 1].file);
    return ST_OK;
}

static int create(const char *path, st_shards **out, st_error *e)
{
    st_shards *s = *out = calloc(1, sizeof *s);

    if (s && (s->arena = st_arena_create(0))) return ST_OK;
    free(s);
    *out = NULL;
    return st_fail(e, ST_E_NOMEM, "%s: no memory to open it", path);
}

/* What could not be opened as a whole is closed. */
static int deliver(st_shards *s, int rc, st_shards **out)
{
    if (rc != ST_OK) st_shards_close(s);
    *out = rc == ST_OK ? s : NULL;
    return rc;
}

int st_shards_open(const char *path, st_shards **out, st_error *e)
{
    static const char suffix[] = ".index.json";
    st_shards *s;
    const char *file;
    json_t *root = NULL;
    int rc;

    *out = NULL;
    ST_TRY(create(path, &s, e));
    ST_TRY_GOTO(rc, choose(s, path, &file, e), done);
    size_t n = strlen(file);
    if (n >= sizeof suffix && !strcmp(file + n - (sizeof suffix - 1), suffix)) rc = read_index(s, file, &root, e);
    else rc = open_files(s, &file, 1, e);
    if (rc == ST_OK) rc = collect(s, path, e);
done:
    json_decref(root);
    return deliver(s, rc, out);
}

int st_shards_open_files(const char *const *paths, int n, st_shards **out, st_error *e)
{
    st_shards *s;
    int rc;

    *out = NULL;
    ST_TRY(create(paths[0], &s, e));
    rc = open_files(s, paths, n, e);
    if (rc == ST_OK) rc = collect(s, paths[0], e);
    return deliver(s, rc, out);
}

void st_shards_close(st_shards *s)
{
    if (!s) return;
    for (int32_t i = 0; i < s->n_files; i++) st_tensors_close(s->file[i].open);
    st_arena_destroy(s->arena);
    free(s);
}

int st_shards_list(const st_shards *s, const st_file_tensor *const **list)
{
    *list = s->tensors;
    return s->n;
}

static const entry *find(const st_shards *s, const char *name)
{
    const st_file_tensor t = {.name = name};
    const entry key = {&t, NULL};
    return bsearch(&key, s->list, (size_t)s->n, sizeof *s->list, by_name);
}

const st_file_tensor *st_shards_find(const st_shards *s, const char *name)
{
    const entry *hit = find(s, name);
    return hit ? hit->tensor : NULL;
}

const char *st_shards_file(const st_shards *s, const st_file_tensor *tensor)
{
    const entry *hit = find(s, tensor->name);
    return hit ? hit->file : NULL;
}

const char *st_shards_warning(const st_shards *s) { return s->warning; }
