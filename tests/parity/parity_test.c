/* SPDX-License-Identifier: Apache-2.0 */
/* tests/parity/parity_test.c - see the header. */
#include "config.h"

#include "parity_test.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void need(int rc, const st_error *e)
{
    if (rc != ST_OK) fail_msg("%s (%s)", e->message, st_code_name(rc));
}

/* ---- the folder ---- */

int bench_open(void **state)
{
    const char *root = getenv("TMPDIR");
    bench *b = calloc(1, sizeof *b);
    st_diags d = {0};

    if (!b || !getenv("ST_SRCDIR") || st_base_create(&b->base, NULL, 1, 1) != ST_OK) return -1;
    b->arena = st_arena_create(0);
    char *dir = st_arena_printf(b->arena, "%s/strata-test-XXXXXX", root && root[0] == '/' ? root : "/tmp");
    b->dir = mkdtemp(dir);
    *state = b;
    return b->dir ? st_registry_open_for(b->base, NULL, 0, NULL, &b->registry, &d) : -1;
}

int bench_close(void **state)
{
    bench *b = *state;
    st_error e = {0};
    int rc = st_remove_folder(b->dir, &e);

    st_registry_close(b->registry);
    st_base_destroy(b->base);
    st_arena_destroy(b->arena);
    free(b);
    return rc;
}

void begin(bench *b, const char *golden)
{
    st_error e = {0};

    need(st_remove_folder(b->dir, &e), &e);
    need(st_make_dirs(b->dir, &e), &e);
    b->backend = "cpu";
    b->peer = NULL;
    if (!golden) return;
    char *from = st_arena_printf(b->arena, "%s/tests/golden/%s", getenv("ST_SRCDIR"), golden);
    DIR *d = opendir(from);
    if (!d) fail_msg("no %s", from);
    for (struct dirent *f; (f = readdir(d));)
        if (f->d_name[0] != '.')
            assert_int_equal(
                symlink(st_path_join(b->arena, from, f->d_name), st_path_join(b->arena, b->dir, f->d_name)), 0);
    closedir(d);
}

void put_text(bench *b, const char *name, const char *text)
{
    st_error e = {0};
    char *path = st_path_join(b->arena, b->dir, name);

    unlink(path);
    need(st_file_write_atomic(path, text, strlen(text), &e), &e);
}

/* ---- tensors ---- */

static size_t value_size(const st_file_tensor *t) { return t->bytes / (size_t)t->count; }

static void set_value(void *data, int32_t dtype, int64_t at, double value)
{
    if (dtype == ST_F64) ((double *)data)[at] = value;
    else if (dtype == ST_F32) ((float *)data)[at] = (float)value;
    else if (dtype == ST_I64) ((int64_t *)data)[at] = (int64_t)value;
    else if (dtype == ST_I32) ((int32_t *)data)[at] = (int32_t)value;
    else fail_msg("no values of such a type");
}

static bool left_out(const st_file_tensor *t, const char *key, int what)
{
    return what == DROP && strcmp(t->name, key) == 0;
}

static void declare(st_tensors_out *out, const st_file_tensor *t, const char *key, int what)
{
    int64_t flat = t->count + (what == GROW) - (what == SHORTEN);
    bool other = strcmp(t->name, key) == 0 && flat != t->count;
    st_error e = {0};

    need(st_tensors_declare(out, t->name, t->dtype, other ? 1 : t->nd, other ? &flat : t->dim, &e), &e);
}

static void copy_values(st_tensors_out *out, const st_file_tensor *t, const char *key, int what, int64_t at,
                        double value)
{
    size_t bytes = t->bytes;
    char *data = calloc(1, bytes + 16);
    st_error e = {0};

    memcpy(data, t->data, bytes);
    if (strcmp(t->name, key) == 0) {
        if (what == SHORTEN) bytes -= value_size(t);
        if (what == GROW) bytes += value_size(t);
        if (what == CLEAR) memset(data, 0, bytes);
        if (what == SET) set_value(data, t->dtype, at, value);
    }
    need(st_tensors_write(out, data, bytes, &e), &e);
    free(data);
}

void change(bench *b, const char *file, const char *key, int what, int64_t at, double value)
{
    char *path = st_path_join(b->arena, b->dir, file);
    const st_file_tensor *list;
    st_tensors *in;
    st_tensors_out *out;
    st_error e = {0};

    need(st_tensors_open(path, &in, &e), &e);
    if (!st_tensors_find(in, key)) fail_msg("%s has no %s", path, key);
    need(st_tensors_create(path, &out, &e), &e);
    int n = st_tensors_list(in, &list);
    for (int i = 0; i < n; i++)
        if (!left_out(&list[i], key, what)) declare(out, &list[i], key, what);
    for (int i = 0; i < n; i++)
        if (!left_out(&list[i], key, what)) copy_values(out, &list[i], key, what, at, value);
    need(st_tensors_finish(out, &e), &e);
    st_tensors_close(in);
}

static void put_values(st_tensors_out *out, const made *m)
{
    int64_t count = 1;
    st_error e = {0};

    for (int i = 0; i < m->nd; i++) count *= m->dim[i];
    double *data = calloc((size_t)count, sizeof *data);
    for (int64_t i = 0; m->values && i < count; i++) set_value(data, m->dtype, i, m->values[i]);
    need(st_tensors_write(out, data, (size_t)count * (m->dtype == ST_F32 ? 4 : 8), &e), &e);
    free(data);
}

void put_tensors(bench *b, const char *file, const made *m, int n)
{
    st_tensors_out *out;
    st_error e = {0};

    need(st_tensors_create(st_path_join(b->arena, b->dir, file), &out, &e), &e);
    for (int i = 0; i < n; i++) need(st_tensors_declare(out, m[i].key, m[i].dtype, m[i].nd, m[i].dim, &e), &e);
    for (int i = 0; i < n; i++) put_values(out, &m[i]);
    need(st_tensors_finish(out, &e), &e);
}

/* ---- the comparison ---- */

static int compare(bench *b, int *failures, char **said, st_diags *d)
{
    const st_parity_options options = {.backend = b->backend, .peer = b->peer};
    size_t n;
    FILE *out = open_memstream(said, &n);
    int rc = st_parity_folder(b->base, b->registry, &options, b->dir, out, failures, d);

    fclose(out);
    return rc;
}

/* With its place in front, as it is printed. */
static void shown(const st_error *e, char *out, size_t n)
{
    if (!e->file[0]) snprintf(out, n, "%s", e->message);
    else if (e->line == 0) snprintf(out, n, "%s: %s", e->file, e->message);
    else snprintf(out, n, "%s:%d:%d: %s", e->file, e->line, e->column, e->message);
}

void refused(bench *b, const char *says)
{
    char want[1024], got[1024], *said;
    st_diags d = {0};
    int failures = 0, rc = compare(b, &failures, &said, &d);
    const char *at = strstr(says, "%s");

    if (rc == ST_OK) fail_msg("it was compared, with %d failures; to be refused with: %s\n%s", failures, says, said);
    free(said);
    assert_non_null(at);
    snprintf(want, sizeof want, "%.*s%s%s", (int)(at - says), says, b->dir, at + 2);
    shown(&d.item[0].error, got, sizeof got);
    assert_string_equal(got, want);
    assert_true(d.errors > 0);
}

void compared(bench *b, int failures, const char *prints)
{
    char *said;
    st_diags d = {0};
    int found = 0, rc = compare(b, &found, &said, &d);

    if (rc != ST_OK) fail_msg("refused: %s", d.item[0].error.message);
    if (found != failures) fail_msg("%d failures, not %d:\n%s", found, failures, said);
    if (prints && !strstr(said, prints)) fail_msg("not printed: %s\n%s", prints, said);
    free(said);
}
