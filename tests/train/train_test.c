/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/train_test.c - see the header. */
#include "config.h"

#include "train_test.h"
#include <unistd.h>

static const char *source(void) { return getenv("ST_SRCDIR"); }

void need_ok(int rc, const st_error *e)
{
    if (rc != ST_OK) fail_msg("%s (%s)", e->message, st_code_name(rc));
}

/* ---- the folder ---- */

static void copy(const folder *f, const char *from, const char *name)
{
    st_error e = {0};
    char *text, *path = st_arena_printf(f->arena, "%s/%s", source(), from);
    size_t n;

    need_ok(st_file_read(path, f->arena, &text, &n, &e), &e);
    need_ok(st_file_write_atomic(in_folder(f, "%s", name), text, n, &e), &e);
}

int folder_make(void **state)
{
    const char *root = getenv("TMPDIR");
    folder *f = calloc(1, sizeof *f);

    if (!source() || !f) return -1;
    f->arena = st_arena_create(0);
    f->path = st_arena_printf(f->arena, "%s/strata-test-XXXXXX", root && root[0] == '/' ? root : "/tmp");
    if (!mkdtemp(f->path)) return -1;
    copy(f, "tests/train/micro.ini", "micro.ini");
    copy(f, "specs/receipts-tiny/tokenizer.json", "tokenizer.json");
    *state = f;
    return 0;
}

int folder_drop(void **state)
{
    folder *f = *state;
    st_error e = {0};
    int rc = st_remove_folder(f->path, &e);

    st_arena_destroy(f->arena);
    free(f);
    return rc;
}

const char *in_folder(const folder *f, const char *fmt, ...)
{
    char name[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    return st_path_join(f->arena, f->path, name);
}

const char *put_text(const folder *f, const char *name, const char *text)
{
    st_error e = {0};
    const char *path = in_folder(f, "%s", name);

    need_ok(st_file_write_atomic(path, text, strlen(text), &e), &e);
    return path;
}

const char *text_of(const folder *f, const char *path)
{
    st_error e = {0};
    char *text;
    size_t n;

    need_ok(st_file_read(path, f->arena, &text, &n, &e), &e);
    return text;
}

/* ---- runs ---- */

static void load(opened *o, const folder *f, const char *spec, const char *const *sets, st_diags *d)
{
    const char *all[64] = {"run.threads=1"};
    int n = 1;

    for (; sets && *sets; sets++) all[n++] = *sets;
    if (!spec) spec = in_folder(f, "micro.ini");
    if (st_base_create(&o->base, NULL, 1, 1) != ST_OK) fail_msg("no base");
    if (st_spec_load(spec, all, n, &o->options.spec, d) != ST_OK ||
        st_registry_open_for(o->base, NULL, 0, o->options.spec, &o->options.registry, d) != ST_OK) {
        st_diags_print(d, stderr);
        fail_msg("%s was refused", spec);
    }
    o->options.screen = open_memstream(&o->said, &o->n_said);
}

static void unload(opened *o)
{
    fclose(o->options.screen);
    free(o->said);
    st_registry_close(o->options.registry);
    st_spec_destroy(o->options.spec);
    st_base_destroy(o->base);
}

opened *open_run(const folder *f, const char *spec, const char *output, const char *const *sets)
{
    opened *o = calloc(1, sizeof *o);
    st_diags d = {0};
    st_error e = {0};

    load(o, f, spec, sets, &d);
    o->options.output = in_folder(f, "%s", output);
    o->run = (st_run){.base = o->base, .options = &o->options, .spec = o->options.spec, .arena = st_arena_create(0)};
    if (st_run_prepare(&o->run, &d) != ST_OK || st_run_place(&o->run, &d) != ST_OK) {
        st_diags_print(&d, stderr);
        fail_msg("the run was refused");
    }
    need_ok(st_run_start(&o->run, &e), &e);
    return o;
}

void close_run(opened *o)
{
    st_run_close(&o->run);
    unload(o);
    free(o);
}

int train(const folder *f, const char *spec, const char *output, const char *const *sets, st_error *e,
          const char **said)
{
    opened o = {0};
    st_diags d = {0};

    load(&o, f, spec, sets, &d);
    o.options.output = in_folder(f, "%s", output);
    int rc = st_train(o.base, &o.options, &d);
    fflush(o.options.screen);
    if (said) *said = st_arena_strdup(f->arena, o.said);
    if (e && rc != ST_OK) *e = d.item[0].error;
    if (!e && rc != ST_OK) fail_msg("%s", d.item[0].error.message);
    unload(&o);
    return rc;
}

const double *tensor(const folder *f, const char *output, int64_t step, const char *name, int64_t *n)
{
    st_error e = {0};
    st_tensors *file;
    const char *dir = st_checkpoint_path(in_folder(f, "%s", output), step, f->arena);

    need_ok(st_tensors_open(st_path_join(f->arena, dir, "model.safetensors"), &file, &e), &e);
    const st_file_tensor *t = st_tensors_find(file, name);
    if (!t) fail_msg("no tensor %s", name);
    double *out = ST_NEW_N(f->arena, double, t->count);
    need_ok(st_tensor_to_f64(t, out, &e), &e);
    if (n) *n = t->count;
    st_tensors_close(file);
    return out;
}
