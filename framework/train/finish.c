/* SPDX-License-Identifier: Apache-2.0 */
/* train/finish.c - checkpoints and evaluations of a run, on the way and at its end. */
#include "config.h"

#include "train/run.h"
#include <math.h>
#include <string.h>

int st_run_save(st_run *r, st_error *e)
{
    char *dir;

    if (r->saved_step == r->at.step) return ST_OK;
    dir = st_checkpoint_path(r->output, r->at.step, r->arena);
    if (!dir) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    if (r->ahead.filled) r->at.train = r->ahead.before;
    else st_loader_save(r->train, &r->at.train);
    ST_TRY(st_checkpoint_save(dir, r->model, &r->texts, &r->at, e));
    r->saved_step = r->at.step;
    st_log_write(r->base->log, 4, "train", "saved %s", dir);
    return st_checkpoint_prune(r->output, r->config.checkpoint.keep, e);
}

/* ---- evaluation ---- */

static int write_scores(st_run *r, const char *prefix, const st_scores *s, st_error *e)
{
    char key[128];

    if (!r->metrics) return ST_OK; /* of an evaluation alone nothing is written */
    st_metrics_begin(r->metrics, r->at.step);
    snprintf(key, sizeof key, "%s_loss", prefix);
    st_metrics_number(r->metrics, key, s->loss);
    snprintf(key, sizeof key, "%s_accuracy", prefix);
    st_metrics_number(r->metrics, key, s->accuracy);
    snprintf(key, sizeof key, "%s_content_accuracy", prefix);
    st_metrics_number(r->metrics, key, s->content);
    for (int32_t k = 0; k < s->depths; k++) {
        snprintf(key, sizeof key, "%s_%s", prefix, s->depth_name[k]);
        st_metrics_number(r->metrics, key, s->depth_loss[k]);
    }
    st_metrics_count(r->metrics, "samples", s->samples);
    return st_metrics_end(r->metrics, e);
}

static void say_scores(st_run *r, const char *what, const st_scores *s)
{
    char content[64] = "";

    if (s->content_tokens)
        snprintf(content, sizeof content, ", content %.1f%% of %lld", 100 * s->content, (long long)s->content_tokens);
    st_progress_clear(r->line);
    st_log_write(r->base->log, 3, "eval", "step %lld, %s: loss %.4f, tokens right %.1f%%%s (%lld samples)",
                 (long long)r->at.step, what, s->loss, 100 * s->accuracy, content, (long long)s->samples);
}

/* What a signal broke off is not written: a resume evaluates again. */
static int evaluate(st_run *r, const char *what, const char *prefix, st_error *e)
{
    st_scores s;

    ST_TRY(st_evaluate(r->model, r->valid, r->valid_row, r->config.eval.samples, &r->stop, &s, e));
    if (r->stop.signal) return ST_OK;
    if (s.trained == 0)
        st_log_write(r->base->log, 2, "eval", "no token of [dataset.valid] is a trained target: nothing to evaluate");
    say_scores(r, what, &s);
    return write_scores(r, prefix, &s, e);
}

int st_run_evaluate(st_run *r, st_error *e) { return r->valid ? evaluate(r, "held out", "eval", e) : ST_OK; }

static int evaluate_permuted(st_run *r, st_error *e)
{
    st_loader_permute_media(r->valid, 1);
    int rc = evaluate(r, "held out, pictures exchanged", "eval_permuted", e);
    st_loader_permute_media(r->valid, 0);
    return rc;
}

/* ---- texts ---- */

/* One line, and nothing that a terminal would act on. */
static void put_line(FILE *f, const char *what, const char *text)
{
    fprintf(f, "%s", what);
    for (const char *p = text; *p; p++) {
        size_t bytes = *p == '\t' ? 1 : st_control(p, 2); /* at the end the second is the text's 0 */
        if (bytes) p += bytes - 1;
        if (*p == '\n') fputs("\\n", f);
        else if (bytes) fprintf(f, "\\x%02x", (unsigned char)*p);
        else fputc(*p, f);
    }
    fputc('\n', f);
}

static void print_texts(FILE *f, const st_generated *texts, int32_t n)
{
    fprintf(f, "\nWhat the model reads in held-out samples (greedy, free running):\n");
    for (int32_t i = 0; i < n; i++) {
        const char *truth = texts[i].truth ? texts[i].truth : "";
        put_line(f, strcmp(truth, texts[i].text) == 0 ? "  right " : "  wrong ", texts[i].id);
        put_line(f, "    truth  ", truth);
        put_line(f, "    model  ", texts[i].text);
    }
    fflush(f);
}

static int show_texts(st_run *r, st_error *e)
{
    st_generation g = {.model = r->model,
                       .loader = r->valid,
                       .max_tokens = (int32_t)r->config.eval.show_tokens,
                       .stop = &r->stop,
                       .arena = r->arena};
    int32_t n = (int32_t)r->config.eval.show, made = 0;
    st_generated *texts = ST_NEW_N(r->arena, st_generated, n);

    if (!texts) return st_fail(e, ST_E_NOMEM, "no memory to write %d texts", n);
    ST_TRY(st_generate(&g, n, texts, &made, e));
    if (!r->stop.signal) print_texts(r->options->screen, texts, made);
    return ST_OK;
}

/* Seconds are of this part of the run alone, so what stands beside them must be. */
static void say_totals(st_run *r)
{
    int64_t steps = r->at.step - r->first_step;
    char part[96] = "", speed[64] = "";

    if (r->first_step > 0)
        snprintf(part, sizeof part, ", of which this part %lld steps, %lld tokens", (long long)steps,
                 (long long)st_progress_tokens(r->line));
    if (steps > 0)
        snprintf(speed, sizeof speed, " in %.0f s, %.0f tokens/s while training", st_progress_seconds(r->line),
                 st_progress_rate(r->line));
    st_log_write(r->base->log, 3, "train", "%lld steps, %lld tokens (%lld trained)%s%s; output in %s",
                 (long long)r->at.step, (long long)r->at.tokens, (long long)r->at.trained, part, speed, r->output);
}

/* Held-out samples as they are, with their pictures exchanged, and what the model makes of some. */
static int evaluate_all(st_run *r, bool held_out, st_error *e)
{
    const st_eval_keys *k = &r->config.eval;

    if (held_out) ST_TRY(st_run_evaluate(r, e));
    if (r->valid && k->permute_media && !r->stop.signal) ST_TRY(evaluate_permuted(r, e));
    return r->valid && k->show > 0 && !r->stop.signal ? show_texts(r, e) : ST_OK;
}

int st_run_report(st_run *r, st_error *e)
{
    char peak[32];

    ST_TRY(evaluate_all(r, r->config.eval.at_end, e));
    if (r->stop.signal) return ST_OK;
    st_progress_clear(r->line);
    st_run_count_samples(r);
    say_totals(r);
    st_log_write(r->base->log, 3, "train", "memory %s at the most",
                 st_memory_text(st_process_peak(), peak, sizeof peak));
    return ST_OK;
}

/* ---- a checkpoint alone ---- */

static int evaluate_checkpoint(st_run *r, st_error *e)
{
    const char *dir = r->options->evaluate;

    if (!r->valid) {
        st_fail(e, ST_E_CONFIG, "%s: there is no [dataset.valid] to evaluate with", st_spec_path(r->spec));
        st_error_hint(e, "--set dataset.valid.plugin=cord_v2 --set dataset.valid.path=FOLDER");
        return ST_E_CONFIG;
    }
    ST_TRY(st_checkpoint_read_state(dir, r->arena, &r->at, e));
    ST_TRY(st_run_open_model(r, e));
    ST_TRY(st_checkpoint_load(dir, r->model, 0, e));
    r->line = st_progress_open(r->options->screen, r->at.step, r->at.step);
    if (!r->line) return st_fail(e, ST_E_NOMEM, "no memory for the progress line");
    return evaluate_all(r, true, e);
}

int st_evaluate_checkpoint(st_base *base, const st_train_options *options, st_diags *d)
{
    st_run r = {.base = base, .options = options, .spec = options->spec, .arena = st_arena_create(0)};
    st_error e = {0};
    int rc = r.arena ? st_run_prepare(&r, d)
                     : st_diags_add(d, &(st_error){.code = ST_E_NOMEM, .message = "no memory"}, NULL, false);

    if (rc == ST_OK && (rc = evaluate_checkpoint(&r, &e)) != ST_OK) st_diags_add(d, &e, NULL, false);
    st_run_close(&r);
    return rc;
}
