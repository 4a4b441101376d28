/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/support.c - see cases.h. */
#include "config.h"

#include "cases.h"
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ---- */

char *case_path(const cases *c, const char *file) { return st_arena_printf(c->arena, "%s/%s", c->dir, file); }

static void put(const char *path, const void *data, size_t n)
{
    st_error e = {0};

    if (st_file_write_atomic(path, data, n, &e) != ST_OK) fail_msg("%s", e.message);
}

void case_put(const cases *c, const char *file, const void *data, size_t n)
{
    char *path = case_path(c, file);
    st_error e = {0};

    if (st_make_dirs(st_path_dir(c->arena, path), &e) != ST_OK) fail_msg("%s", e.message);
    put(path, data, n);
}

void case_put_text(const cases *c, const char *file, const char *text) { case_put(c, file, text, strlen(text)); }

char *case_read(const cases *c, const char *file, size_t *n)
{
    st_error e = {0};
    char *data = NULL;

    if (st_file_read(case_path(c, file), c->arena, &data, n, &e) != ST_OK) fail_msg("%s", e.message);
    return data;
}

char *case_folder(const cases *c)
{
    char *path = st_arena_printf(c->arena, "%s/XXXXXX", c->scratch);

    if (!path || !mkdtemp(path)) fail_msg("%s: %s", c->scratch, strerror(errno));
    return path;
}

char *case_write(const cases *c, const char *folder, const char *name, const void *data, size_t n)
{
    char *path = st_arena_printf(c->arena, "%s/%s", folder, name);

    put(path, data, n);
    return path;
}

bool case_has(const char *text, const char *words) { return text && strstr(text, words) != NULL; }

void case_refused(const st_error *e, const char *file, const char *words)
{
    if (!e->code) fail_msg("%s was taken; it should name '%s'", file, words);
    if (!case_has(e->message, words)) fail_msg("'%s' is not in: %s", words, e->message);
    if (!case_has(e->message, file) && !case_has(e->file, file)) fail_msg("%s is not named in: %s", file, e->message);
}

/* ---- a run ---- */

char *case_spec(const cases *c, const char *batch, const char *more)
{
    return st_arena_printf(
        c->arena,
        "[run]\nsteps = 2\n"
        "[stack]\npattern = G-*-\nhidden = 16\nvocab = 352\n"
        "[layer.G]\nkey_heads = 2\nvalue_heads = 2\nkey_dim = 8\nvalue_dim = 8\n"
        "[layer.*]\nheads = 2\nkv_heads = 1\nhead_dim = 16\n"
        "[layer.-]\nwidth = 32\n"
        "[position]\nplugin = mrope\nsection = 4,2,2\nrotary_percent = 1\nbase = 100\n"
        "[encoder]\nplugin = qwen35_vision\npattern = VF\nhidden = 16\nposition_side = 4\n"
        "min_pixels = 1024\nmax_pixels = 4096\n"
        "[layer.V]\nplugin = attention\nnames = vision\nheads = 1\nhead_dim = 16\nbias = yes\ngate = no\nqk_norm = no\n"
        "causal = no\n"
        "[layer.F]\nplugin = gelu_mlp\nwidth = 32\nbias = yes\n"
        "[tokenizer]\npath = %s/specs/receipts-tiny/tokenizer.json\n"
        "[chat]\nprompt = Read.\n"
        "[schedule]\nlr = 1e-2\n"
        "[batch]\nimages = 4\npatches = 64\n%s%s",
        getenv("ST_SRCDIR"), batch, more);
}

static int open_run(case_run *r, int rc)
{
    st_error e = {0};

    if (rc == ST_OK) rc = st_registry_open_for(r->base, NULL, 0, r->spec, &r->registry, &r->diags);
    if (rc != ST_OK) return rc;
    r->options = (st_train_options){.spec = r->spec, .registry = r->registry, .screen = r->screen};
    r->run = (st_run){.base = r->base, .options = &r->options, .spec = r->spec, .arena = r->arena, .saved_step = -1};
    rc = st_run_prepare(&r->run, &r->diags);
    for (int i = 0; i < 2 && rc == ST_OK; i++)
        rc = st_row_create(r->arena, st_model_shape(r->run.model), &r->row[i], &e);
    return rc;
}

static void begin(case_run *r)
{
    memset(r, 0, sizeof *r);
    r->screen = tmpfile();
    r->arena = st_arena_create(0);
    if (!r->screen || !r->arena || st_base_create(&r->base, r->screen, 3, 1) != ST_OK) fail_msg("no memory to begin");
}

int case_open(case_run *r, const char *spec)
{
    begin(r);
    return open_run(r, st_spec_parse("case.ini", spec, strlen(spec), "/", &r->spec, &r->diags));
}

int case_open_file(case_run *r, const char *path, const char *const *sets, int n_sets)
{
    begin(r);
    return open_run(r, st_spec_load(path, sets, n_sets, &r->spec, &r->diags));
}

void case_must_open(case_run *r, const char *spec)
{
    if (case_open(r, spec) != ST_OK) fail_msg("%s", case_screen(r));
}

void case_close(case_run *r)
{
    r->run.arena = NULL;
    st_run_close(&r->run);
    st_registry_close(r->registry);
    st_spec_destroy(r->spec);
    st_base_destroy(r->base);
    st_arena_destroy(r->arena);
    fclose(r->screen);
}

char *case_screen(case_run *r)
{
    st_diags_print(&r->diags, r->screen);
    r->diags = (st_diags){0};
    fflush(r->screen);
    long n = ftell(r->screen);
    char *text = st_arena_alloc(r->arena, (size_t)n + 1);
    rewind(r->screen);
    if (!text || fread(text, 1, (size_t)n, r->screen) != (size_t)n) fail_msg("the log cannot be read");
    return text;
}

int case_pass(case_run *r, int64_t *trained, int room, st_loader_state *state)
{
    st_diags d = {0};
    st_loader *pass;
    st_error e = {0};
    int n = 0, end = 0;
    const st_data_context context = {.base = r->base,
                                     .spec = r->spec,
                                     .registry = r->registry,
                                     .shape = st_model_shape(r->run.model),
                                     .position = st_model_position(r->run.model),
                                     .encoder = st_model_encoder(r->run.model),
                                     .vocab = st_model_vocab(r->run.model)};

    if (st_loader_open(&context, "dataset.train", 0, &pass, &d) != ST_OK) fail_msg("%s", d.item[0].error.message);
    while (!end) {
        if (st_loader_next(pass, r->row, 1, 0, &end, &e) != ST_OK) fail_msg("%s", e.message);
        for (int32_t i = 0; i < r->row[0]->n_sequences && n < room; i++) trained[n++] = r->row[0]->sample[i];
    }
    st_loader_save(pass, state);
    st_loader_close(pass);
    return n;
}
