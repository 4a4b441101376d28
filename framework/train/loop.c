/* SPDX-License-Identifier: Apache-2.0 */
/* train/loop.c - the training loop. */
#include "config.h"
#include "train/run.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

static void stop_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
}

void st_signals_block(void)
{
    sigset_t set;

    stop_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* The signal that asked to stop, or 0. After the first one they act as usual again, so a second one ends the process at once. */
static int asked_to_stop(void)
{
    const struct timespec now = {0, 0};
    sigset_t set;
    int sig;

    stop_signals(&set);
    sig = sigtimedwait(&set, NULL, &now);
    if (sig <= 0) return 0;
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    return sig;
}

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
        if (s->metrics[i].valid && strcmp(s->metrics[i].name, "loss") != 0) st_metrics_number(m, s->metrics[i].name, s->metrics[i].value);
    return st_metrics_end(m, e);
}

/* A step whose result is not finite changed nothing. Stopping leaves the last good checkpoint as the newest. */
static int judge_step(st_run *r, const st_step_result *s, st_error *e)
{
    if (!s->skipped) return ST_OK;
    st_progress_clear(r->line);
    st_log_write(r->base->log, 2, "train", "step %lld changed nothing: %s", (long long)r->at.step, s->bad);
    if (r->config.run.on_nan == ST_ON_NAN_SKIP) return ST_OK;
    st_fail(e, ST_E_FAULT, "step %lld: %s", (long long)r->at.step, s->bad);
    st_error_hint(e, "lower [schedule] lr or [optimizer] clip; [run] on_nan = skip goes on");
    return ST_E_FAULT;
}

static int one_step(st_run *r, st_error *e)
{
    st_schedule schedule = {.size = sizeof schedule, .step = r->at.step + 1, .lr_scale = 1};
    st_step_result s = {0};
    int end;

    schedule.lr = st_learning_rate(&r->config.schedule, schedule.step, r->config.run.steps);
    ST_TRY(st_loader_next(r->train, r->rows, r->micros, (int32_t)r->config.batch.samples, &end, e));
    ST_TRY(st_model_step(r->model, (const st_packed_row *const *)r->rows, r->micros, &schedule, r->config.clip.clip, &s, e));
    r->at.step++;
    r->at.tokens += s.tokens;
    r->at.trained += s.trained;
    if (s.trained == 0) st_log_write(r->base->log, 2, "train", "step %lld: no token is a trained target, nothing was learnt", (long long)r->at.step);
    ST_TRY(write_step(r, &s, schedule.lr, e));
    ST_TRY(judge_step(r, &s, e));
    st_progress_step(r->line, r->at.step, s.loss, schedule.lr, s.grad_norm, s.tokens);
    return ST_OK;
}

static bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

static int run_steps(st_run *r, int *stopped, st_error *e)
{
    const st_train_config *c = &r->config;
    int64_t trained = r->at.trained;

    while (r->at.step < c->run.steps) {
        int sig;
        ST_TRY(one_step(r, e));
        bool last = r->at.step == c->run.steps;
        if (!last && due(c->eval.every, r->at.step)) ST_TRY(st_run_evaluate(r, e));
        if (due(c->checkpoint.every, r->at.step) || (last && c->checkpoint.at_end)) ST_TRY(st_run_save(r, e));
        if (!last && (sig = asked_to_stop()) != 0) {
            *stopped = 1;
            st_progress_clear(r->line);
            ST_TRY(st_run_save(r, e));
            st_log_write(r->base->log, 3, "train", "stopped by %s after step %lld, saved; --resume goes on", sig == SIGTERM ? "SIGTERM" : "SIGINT",
                         (long long)r->at.step);
            return ST_OK;
        }
    }
    if (r->at.trained == trained) {
        st_fail(e, ST_E_DATA, "no token of the whole run was a trained target");
        st_error_hint(e, "look at the chat layout and the data set: which turns are trained?");
        return ST_E_DATA;
    }
    return st_run_report(r, e);
}

int st_train(st_base *base, const st_train_options *options, int *stopped, st_diags *d)
{
    st_run r = {.base = base, .options = options, .spec = options->spec, .arena = st_arena_create(0), .saved_step = -1};
    st_error e = {0};
    int rc;

    *stopped = 0;
    if (!r.arena) return st_diags_add(d, &(st_error){.code = ST_E_NOMEM, .message = "no memory for a run"}, NULL, false);
    rc = st_run_prepare(&r, d);
    if (rc == ST_OK) {
        rc = st_run_start(&r, &e);
        if (rc == ST_OK) rc = run_steps(&r, stopped, &e);
        if (rc != ST_OK) {
            if (r.line) st_progress_clear(r.line);
            st_diags_add(d, &e, NULL, false);
        }
    }
    st_run_close(&r);
    return rc;
}
