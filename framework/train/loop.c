/* SPDX-License-Identifier: Apache-2.0 */
/* train/loop.c - the training loop.
 *
 * Order at a step: its line of metrics, its checkpoint, its evaluation. So a checkpoint is always from before the
 * evaluation of its step, and a resume begins with that evaluation when one is due: whatever broke a run off, its files
 * end up as if nothing had. */
#include "config.h"

#include "train/run.h"
#include <string.h>

static int write_step(st_run *r, const st_step_result *s, double lr, st_error *e)
{
    st_metrics *m = r->metrics;

    if (r->at.step % r->config.log.every != 0 && r->at.step != r->config.run.steps) return ST_OK;
    st_metrics_begin(m, r->at.step);
    st_metrics_number(m, "loss", s->loss);
    st_metrics_number(m, "grad_norm", s->grad_norm);
    st_metrics_number(m, "lr", lr);
    st_metrics_count(m, "tokens", s->tokens);
    st_metrics_count(m, "trained_tokens", s->trained);
    if (s->skipped) st_metrics_text(m, "skipped", s->bad);
    for (int32_t i = 0; i < s->n_metrics; i++)
        if (s->metrics[i].valid && strcmp(s->metrics[i].name, "loss") != 0)
            st_metrics_number(m, s->metrics[i].name, s->metrics[i].value);
    return st_metrics_end(m, e);
}

/* A step whose result is not finite changed nothing. Stopping leaves the last good checkpoint as the newest. A step that
 * trains no token is told only: the data path sets such samples aside and ends a run that has no others. A fault, such as a
 * capacity that does not hold, has nothing to do with the size of steps. */
static int judge_step(st_run *r, const st_step_result *s, st_error *e)
{
    if (!s->skipped) return ST_OK;
    st_progress_clear(r->line);
    if (!s->fault && (r->config.run.on_nan == ST_ON_NAN_SKIP || s->trained == 0)) {
        st_log_write(r->base->log, 2, "train", "step %lld changed nothing: %s", (long long)r->at.step, s->bad);
        return ST_OK;
    }
    st_fail(e, ST_E_FAULT, "step %lld changed nothing: %s", (long long)r->at.step, s->bad);
    if (!s->fault) st_error_hint(e, "lower [schedule] lr or [optimizer] clip; [run] on_nan = skip goes on");
    return ST_E_FAULT;
}

/* ---- rows: those of the next step are filled while this one computes, on a device of its own ---- */

/* Asked by the model in the middle of a step. A mistake is told when its step comes. */
static const st_packed_row *fill_ahead(void *ctx)
{
    st_run *r = ctx;
    struct st_ahead *a = &r->ahead;
    int end;

    if (r->at.step + 2 > r->config.run.steps || st_stop_asked(&r->stop)) return NULL;
    st_loader_save(r->train, &a->before);
    a->rc = st_loader_next(r->train, a->rows, r->micros, (int32_t)r->config.batch.samples, &end, &a->error);
    a->filled = 1;
    return a->rc == ST_OK ? a->rows[0] : NULL;
}

static int next_rows(st_run *r, st_error *e)
{
    struct st_ahead *a = &r->ahead;
    st_packed_row **filled = a->rows;
    int end;

    if (!a->filled)
        return st_loader_next(r->train, r->rows, r->micros, (int32_t)r->config.batch.samples, &end, e);
    a->filled = 0;
    if (a->rc != ST_OK) {
        *e = a->error;
        return a->rc;
    }
    a->rows = r->rows;
    r->rows = filled;
    return ST_OK;
}

static int one_step(st_run *r, st_error *e)
{
    st_schedule schedule = {.size = sizeof schedule, .step = r->at.step + 1, .lr_scale = 1};
    st_step_result s = {0};
    double start = st_clock();

    schedule.lr = st_learning_rate(&r->config.schedule, schedule.step, r->config.run.steps);
    ST_TRY(next_rows(r, e));
    ST_TRY(st_model_step(r->model, (const st_packed_row *const *)r->rows, r->micros, &schedule, r->config.clip.clip, &s,
                         e));
    r->at.step++;
    r->at.tokens += s.tokens;
    r->at.trained += s.trained;
    ST_TRY(write_step(r, &s, schedule.lr, e));
    ST_TRY(judge_step(r, &s, e));
    st_progress_step(r->line, r->at.step, &s, schedule.lr, st_clock() - start);
    return ST_OK;
}

static bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

static bool is_last(const st_run *r) { return r->at.step == r->config.run.steps; }

static int evaluate_if_due(st_run *r, st_error *e)
{
    return !is_last(r) && r->at.step > 0 && due(r->config.eval.every, r->at.step) ? st_run_evaluate(r, e) : ST_OK;
}

static int run_steps(st_run *r, st_error *e)
{
    const st_checkpoint_keys *k = &r->config.checkpoint;

    if (r->ahead.rows) st_model_ahead(r->model, fill_ahead, r);
    ST_TRY(evaluate_if_due(r, e)); /* of the step that a resume begins at */
    while (!is_last(r) && !st_stop_asked(&r->stop)) {
        ST_TRY(one_step(r, e));
        if (due(k->every, r->at.step) || (is_last(r) && k->at_end)) ST_TRY(st_run_save(r, e));
        ST_TRY(evaluate_if_due(r, e));
    }
    return ST_OK;
}

static int end_stopped(st_run *r, st_error *e)
{
    const char *name = st_stop_name(&r->stop);

    st_progress_clear(r->line);
    if (r->at.step == 0) {
        st_log_write(r->base->log, 3, "train", "stopped by %s before the first step", name);
        return ST_OK;
    }
    ST_TRY(st_run_save(r, e));
    st_log_write(r->base->log, 3, "train", "stopped by %s after step %lld, saved; --resume goes on", name,
                 (long long)r->at.step);
    return ST_OK;
}

static int run(st_run *r, st_error *e)
{
    ST_TRY(run_steps(r, e));
    if (!st_stop_asked(&r->stop)) ST_TRY(st_run_report(r, e));
    return r->stop.signal ? end_stopped(r, e) : ST_OK;
}

/* "FILE:LINE: ", "FILE: " or nothing */
static const char *place_of(const st_error *e, char out[sizeof e->file + 16])
{
    if (e->line > 0) snprintf(out, sizeof e->file + 16, "%s:%d: ", e->file, e->line);
    else snprintf(out, sizeof e->file + 16, "%s%s", e->file, e->file[0] ? ": " : "");
    return out;
}

/* Told when the run begins, not when it has ended; then they are done with. */
static void log_warnings(st_run *r, st_diags *d)
{
    for (int32_t i = 0; i < d->n; i++) {
        const st_error *w = &d->item[i].error;
        char place[sizeof w->file + 16];
        st_log_write(r->base->log, 2, "spec", "%s%s", place_of(w, place), w->message);
    }
    *d = (st_diags){0};
}

/* The screen has it from the command, with its hint; whoever reads the log alone must learn why it ends. */
static void log_end(st_run *r, const st_error *e)
{
    char place[sizeof e->file + 16];

    st_log_record(r->base->log, 1, "train", "%s%s%s%s", place_of(e, place), e->message, e->detail[0] ? "; " : "",
                  e->detail);
}

int st_train(st_base *base, const st_train_options *options, st_diags *d)
{
    st_run r = {.base = base, .options = options, .spec = options->spec, .arena = st_arena_create(0)};
    st_error e = {0};
    int rc, found;

    if (!r.arena)
        return st_diags_add(d, &(st_error){.code = ST_E_NOMEM, .message = "no memory for a run"}, NULL, false);
    rc = st_run_prepare(&r, d);
    found = st_run_find_weights(&r, d);
    if (rc == ST_OK) rc = found;
    if (rc == ST_OK) rc = st_run_place(&r, d);
    if (rc == ST_OK) {
        rc = st_run_start(&r, &e);
        if (rc == ST_OK) {
            log_warnings(&r, d);
            rc = run(&r, &e);
        }
        if (rc != ST_OK) {
            if (r.line) st_progress_clear(r.line);
            log_end(&r, &e);
            st_diags_add(d, &e, NULL, false);
        }
    }
    st_run_close(&r);
    return rc;
}
