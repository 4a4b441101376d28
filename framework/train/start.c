/* SPDX-License-Identifier: Apache-2.0 */
/* train/start.c - device and folder of a run, up to its first step. */
#include "config.h"

#include "train/run.h"
#include <inttypes.h>
#include <string.h>
#include <sys/utsname.h>

static int make_rows(st_run *r, st_error *e)
{
    const st_row_shape *shape = st_model_shape(r->model);

    r->micros = st_model_micros(r->model);
    r->rows = ST_NEW_N(r->arena, st_packed_row *, r->micros);
    if (!r->rows) return st_fail(e, ST_E_NOMEM, "no memory for %d rows", r->micros);
    for (int32_t i = 0; i < r->micros; i++) ST_TRY(st_row_create(r->arena, shape, &r->rows[i], e));
    if (st_model_goes_ahead(r->model)) {
        r->ahead.rows = ST_NEW_N(r->arena, st_packed_row *, r->micros);
        if (!r->ahead.rows) return st_fail(e, ST_E_NOMEM, "no memory for %d rows", r->micros);
        for (int32_t i = 0; i < r->micros; i++) ST_TRY(st_row_create(r->arena, shape, &r->ahead.rows[i], e));
    }
    return r->valid ? st_row_create(r->arena, shape, &r->valid_row, e) : ST_OK;
}

int st_run_open_model(st_run *r, st_error *e)
{
    ST_TRY(st_model_plan(r->model, e));
    ST_TRY(st_model_open(r->model, e));
    return make_rows(r, e);
}

/* ---- the folder ---- */

static void log_memory(const st_run *r)
{
    st_memory_part part[ST_MEMORY_PARTS];
    size_t all = st_run_memory(r, part);
    const char *name;
    double unit = st_memory_unit(all, &name);
    char words[256];
    size_t at = 0;

    for (int i = 0; i < ST_MEMORY_PARTS && at < sizeof words; i++)
        at += (size_t)snprintf(words + at, sizeof words - at, "%s %.1f; ", part[i].name, (double)part[i].bytes / unit);
    st_log_write(r->base->log, 3, "train", "memory %.1f %s planned: %slibraries and program about %.0f MiB",
                 (double)all / unit, name, words, (double)ST_PROGRAM_BYTES / 0x1p20);
}

static void log_head(st_run *r)
{
    struct utsname u;
    st_log *log = r->base->log;

    if (uname(&u) != 0) memset(&u, 0, sizeof u);
    st_log_write(log, 3, "train", "strata %s, %s %s", PACKAGE_VERSION, u.sysname, u.machine);
    st_log_write(log, 3, "train", "spec %s, hash %016" PRIx64, st_spec_path(r->spec), r->at.spec_hash);
    st_log_write(log, 3, "train", "backend %s", st_model_choice(r->model));
    st_log_write(log, 3, "train", "device %s", st_model_device(r->model));
    st_log_write(log, 3, "train", "pattern %s, %lld parameters trained", st_model_pattern(r->model),
                 (long long)st_model_parameters(r->model, NULL));
    st_log_write(log, 3, "train", "%d row%s of %d tokens a step", r->micros, r->micros == 1 ? "" : "s",
                 st_model_shape(r->model)->tokens);
    log_memory(r);
    st_log_write(log, 3, "train", "data %lld training samples, %lld for evaluation",
                 (long long)st_loader_count(r->train), r->valid ? (long long)st_loader_count(r->valid) : 0);
    if (r->at.timing) st_log_write(log, 2, "train", "for timing only, the weights mean nothing: %s", r->at.timing);
    if (r->resumed) st_log_write(log, 3, "train", "goes on from %s at step %lld", r->resumed, (long long)r->at.step);
}

/* The resolved spec, for people; a resume takes the checkpoint's. */
static int write_spec(st_run *r, st_error *e)
{
    st_buf text = {0};
    int rc;

    st_spec_write(r->spec, &text);
    rc = text.failed ? st_fail(e, ST_E_NOMEM, "no memory for the resolved spec")
                     : st_file_write_atomic(st_path_join(r->arena, r->output, "spec.ini"), text.data, text.n, e);
    st_buf_free(&text);
    return rc;
}

static int open_folder(st_run *r, st_error *e)
{
    ST_TRY(st_run_take_folder(r, e));
    ST_TRY(st_log_file(r->base->log, st_path_join(r->arena, r->output, "log"), e));
    log_head(r);
    ST_TRY(write_spec(r, e));
    ST_TRY(st_run_watch_samples(r, e));
    return st_metrics_open(st_path_join(r->arena, r->output, "metrics.jsonl"), r->resumed ? r->at.step : -1,
                           &r->metrics, e);
}

/* A run without a single sample leaves no folder behind. */
static int find_sample(st_run *r, st_error *e)
{
    st_look look;

    return r->resumed ? ST_OK : st_loader_look(r->train, 1, INT64_MAX, &look, e);
}

int st_run_start(st_run *r, st_error *e)
{
    ST_TRY(find_sample(r, e));
    ST_TRY(st_run_open_model(r, e));
    ST_TRY(st_run_load_weights(r, e));
    ST_TRY(open_folder(r, e));
    r->first_step = r->at.step;
    r->line = st_progress_open(r->options->screen, r->at.step, r->config.run.steps);
    return r->line ? ST_OK : st_fail(e, ST_E_NOMEM, "no memory for the progress line");
}
