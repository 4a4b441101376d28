/* SPDX-License-Identifier: Apache-2.0 */
/* train/setup.c - from a spec to a run that is ready for its first step. */
#include "config.h"
#include "train/run.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/utsname.h>

static int open_data(st_run *r, st_diags *d)
{
    st_data_context c = {.base = r->base, .spec = r->spec, .registry = r->options->registry, .shape = st_model_shape(r->model),
                         .position = st_model_position(r->model), .encoder = st_model_encoder(r->model),
                         .vocab = st_model_vocab(r->model), .seed = (uint64_t)r->config.run.seed};
    int rc;

    if (!st_spec_has(r->spec, "dataset.train"))
        return st_spec_fail(r->spec, d, NULL, "add [dataset.train] with plugin = cord_v2 and path = FOLDER", "there is no [dataset.train]");
    rc = st_loader_open(&c, "dataset.train", 1, &r->train, d);
    if (st_spec_has(r->spec, "dataset.valid")) {
        int rv = st_loader_open(&c, "dataset.valid", 0, &r->valid, d);
        if (rc == ST_OK) rc = rv;
    }
    return rc;
}

static int choose_output(st_run *r, st_diags *d)
{
    st_error e = {0};
    char *latest = NULL;

    r->output = r->options->output ? r->options->output : r->config.run.output;
    if (!r->output) r->output = st_arena_printf(r->arena, "runs/%s", r->config.run.name);
    r->checkpoints = st_path_join(r->arena, r->output, "checkpoints");
    if (!r->output || !r->checkpoints) return st_diags_add(d, &(st_error){.code = ST_E_NOMEM, .message = "no memory for paths"}, NULL, false);
    if (r->options->resume || !st_path_exists(r->output)) return ST_OK;
    if (st_checkpoint_latest(r->output, r->arena, &latest, &e) != ST_OK) return st_diags_add(d, &e, NULL, false);
    if (!latest && !st_path_exists(st_path_join(r->arena, r->output, "metrics.jsonl"))) return ST_OK;
    st_fail(&e, ST_E_CONFIG, "the output folder %s already holds a run", r->output);
    st_error_hint(&e, "go on with it by --resume, or choose another by --output DIR");
    return st_diags_add(d, &e, NULL, false);
}

int st_run_prepare(st_run *r, st_diags *d)
{
    int before = d->errors;

    /* every room reports all it finds; what depends on a broken room is left out */
    (void)st_train_config_bind(r->spec, &r->config, d);
    if (st_model_build(r->base, r->spec, r->options->registry, 1, &r->model, d) == ST_OK) (void)open_data(r, d);
    (void)st_spec_check_unused(r->spec, d);
    if (d->errors == before) (void)choose_output(r, d);
    return d->errors == before ? ST_OK : d->item[0].error.code;
}

static int make_rows(st_run *r, st_error *e)
{
    r->micros = st_model_micros(r->model);
    r->rows = ST_NEW_N(r->arena, st_packed_row *, r->micros);
    if (!r->rows) return st_fail(e, ST_E_NOMEM, "no memory for %d rows", r->micros);
    for (int32_t i = 0; i < r->micros; i++) ST_TRY(st_row_create(r->arena, st_model_shape(r->model), &r->rows[i], e));
    return r->valid ? st_row_create(r->arena, st_model_shape(r->model), &r->valid_row, e) : ST_OK;
}

/* Sections that decide what the weights mean: a resume under others would train another model. */
static bool is_architecture(const char *section)
{
    return strcmp(section, "stack") == 0 || strncmp(section, "layer.", 6) == 0 || strcmp(section, "position") == 0 ||
           strcmp(section, "encoder") == 0 || strncmp(section, "head.", 5) == 0;
}

static int compare_section(const st_spec *now, const st_spec *then, const char *section, const char *dir, st_error *e)
{
    const st_value *const *values;
    int n = st_spec_values(now, section, &values);

    for (int i = 0; i < n; i++) {
        const st_value *old = st_spec_get(then, section, values[i]->key);
        if (old && strcmp(old->text, values[i]->text) == 0) continue;
        st_fail_at(e, ST_E_CONFIG, values[i]->file, values[i]->line, values[i]->column, "[%s] %s = %s, but the checkpoint was made with %s",
                   section, values[i]->key, values[i]->text, old ? old->text : "no such key");
        st_error_detail(e, "%s", dir);
        st_error_hint(e, "resume with the spec that began the run, or start a new one with [checkpoint] from");
        return ST_E_CONFIG;
    }
    return ST_OK;
}

static int compare_specs(st_run *r, const char *dir, st_error *e)
{
    st_diags d = {0};
    st_spec *then = NULL;
    const char *const *names;
    int rc = st_checkpoint_spec(dir, NULL, 0, &then, &d);

    if (rc != ST_OK) {
        *e = d.item[0].error;
        return rc;
    }
    for (int i = 0, n = st_spec_sections(r->spec, &names); i < n && rc == ST_OK; i++)
        if (is_architecture(names[i])) rc = compare_section(r->spec, then, names[i], dir, e);
    for (int i = 0, n = st_spec_sections(then, &names); i < n && rc == ST_OK; i++)
        if (is_architecture(names[i])) rc = compare_section(then, r->spec, names[i], dir, e);
    st_spec_destroy(then);
    return rc;
}

static int load_start(st_run *r, st_error *e)
{
    const st_checkpoint_keys *k = &r->config.checkpoint;
    char *latest = NULL;

    r->at.seed = (uint64_t)r->config.run.seed;
    r->at.spec_hash = st_spec_hash(r->spec);
    r->at.best_valid = NAN;
    if (r->options->resume) {
        ST_TRY(st_checkpoint_latest(r->output, r->arena, &latest, e));
        if (!latest) {
            st_fail(e, ST_E_NOTFOUND, "%s holds no whole checkpoint to resume from", r->output);
            st_error_hint(e, "start without --resume");
            return ST_E_NOTFOUND;
        }
        ST_TRY(compare_specs(r, latest, e));
        ST_TRY(st_checkpoint_load(latest, r->model, 1, &r->at, e));
        st_log_write(r->base->log, 3, "train", "resumed from %s at step %lld", latest, (long long)r->at.step);
        return st_loader_restore(r->train, &r->at.train, e);
    }
    ST_TRY(st_model_init(r->model, (uint64_t)r->config.run.seed, e));
    if (k->from) {
        st_progress ignored;
        ST_TRY(st_checkpoint_load(k->from, r->model, 0, &ignored, e));
    }
    return k->from_hf ? st_checkpoint_load_hf(k->from_hf, r->model, e) : ST_OK;
}

static void log_head(st_run *r)
{
    static const char *const precision[] = {[ST_F64] = "f64", [ST_F32] = "f32", [ST_BF16] = "bf16"};
    const st_row_shape *shape = st_model_shape(r->model);
    st_plan_bytes plan;
    struct utsname u;
    st_log *log = r->base->log;

    st_model_plan_bytes(r->model, &plan);
    if (uname(&u) != 0) memset(&u, 0, sizeof u);
    st_log_write(log, 3, "train", "strata %s, %s %s", PACKAGE_VERSION, u.sysname, u.machine);
    st_log_write(log, 3, "train", "spec %s, hash %016" PRIx64, st_spec_path(r->spec), r->at.spec_hash);
    st_log_write(log, 3, "train", "device %s, precision %s", st_model_device(r->model), precision[st_model_dtype(r->model)]);
    st_log_write(log, 3, "train", "pattern %s, %lld parameters trained", st_model_pattern(r->model),
                 (long long)st_model_parameters(r->model, NULL));
    st_log_write(log, 3, "train", "%d row(s) of %d tokens a step, %.1f MiB planned", r->micros, shape->tokens,
                 (double)plan.total / 1048576.0);
    st_log_write(log, 3, "train", "data %lld training samples, %lld for evaluation", (long long)st_loader_count(r->train),
                 r->valid ? (long long)st_loader_count(r->valid) : 0);
}

static int open_output(st_run *r, st_error *e)
{
    st_buf text = {0};
    int rc;

    ST_TRY(st_make_dirs(r->checkpoints, e));
    ST_TRY(st_log_file(r->base->log, st_path_join(r->arena, r->output, "log"), e));
    st_spec_write(r->spec, &text);
    rc = text.failed ? st_fail(e, ST_E_NOMEM, "no memory for the resolved spec")
                     : st_file_write_atomic(st_path_join(r->arena, r->output, "spec.ini"), text.data, text.n, e);
    st_buf_free(&text);
    if (rc != ST_OK) return rc;
    return st_metrics_open(st_path_join(r->arena, r->output, "metrics.jsonl"), r->options->resume ? r->at.step : -1, &r->metrics, e);
}

int st_run_start_model(st_run *r, st_error *e)
{
    ST_TRY(st_model_plan(r->model, e));
    ST_TRY(st_model_open(r->model, e));
    return make_rows(r, e);
}

int st_run_start(st_run *r, st_error *e)
{
    ST_TRY(st_run_start_model(r, e));
    ST_TRY(load_start(r, e));
    ST_TRY(open_output(r, e));
    log_head(r);
    if (r->at.step >= r->config.run.steps)
        return st_fail(e, ST_E_CONFIG, "[run] steps = %lld, but %lld steps are already done", (long long)r->config.run.steps, (long long)r->at.step);
    r->line = st_progress_open(r->options->screen, r->at.step, r->config.run.steps);
    return r->line ? ST_OK : st_fail(e, ST_E_NOMEM, "no memory for the progress line");
}

void st_run_close(st_run *r)
{
    st_progress_close(r->line);
    st_metrics_close(r->metrics);
    st_loader_close(r->train);
    st_loader_close(r->valid);
    st_model_destroy(r->model);
    st_arena_destroy(r->arena);
}
