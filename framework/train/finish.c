/* SPDX-License-Identifier: Apache-2.0 */
/* train/finish.c - checkpoints and evaluations of a run, on the way and at its end. */
#include "config.h"
#include "train/run.h"
#include <dirent.h>
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    return remove(path);
}

static int is_step_folder(const struct dirent *entry) { return strncmp(entry->d_name, "step-", 5) == 0 && !strchr(entry->d_name, '.'); }

/* Names are zero padded, so the order of names is the order of steps. */
static int prune(st_run *r, st_error *e)
{
    struct dirent **list;
    int n = scandir(r->checkpoints, &list, is_step_folder, alphasort);
    int rc = n < 0 ? st_fail_errno(e, r->checkpoints, "list") : ST_OK;

    for (int i = 0; i < n; i++) {
        if (rc == ST_OK && i < n - (int)r->config.checkpoint.keep) {
            char *path = st_path_join(r->arena, r->checkpoints, list[i]->d_name);
            if (!path || nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0) rc = st_fail_errno(e, r->checkpoints, "remove an old checkpoint in");
        }
        free(list[i]);
    }
    if (n >= 0) free(list);
    return rc;
}

int st_run_save(st_run *r, st_error *e)
{
    char *dir;

    if (r->saved_step == r->at.step) return ST_OK;
    dir = st_arena_printf(r->arena, "%s/step-%09lld", r->checkpoints, (long long)r->at.step);
    if (!dir) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    st_loader_save(r->train, &r->at.train);
    ST_TRY(st_checkpoint_save(dir, r->model, r->spec, &r->at, e));
    r->saved_step = r->at.step;
    st_log_write(r->base->log, 4, "train", "saved %s", dir);
    return prune(r, e);
}

static int write_scores(st_run *r, const char *prefix, const st_scores *s, st_error *e)
{
    char key[64];

    st_metrics_begin(r->metrics, r->at.step);
    snprintf(key, sizeof key, "%s_loss", prefix);
    st_metrics_number(r->metrics, key, s->loss);
    snprintf(key, sizeof key, "%s_accuracy", prefix);
    st_metrics_number(r->metrics, key, s->accuracy);
    snprintf(key, sizeof key, "%s_content_accuracy", prefix);
    st_metrics_number(r->metrics, key, s->content);
    st_metrics_count(r->metrics, "samples", s->samples);
    return st_metrics_end(r->metrics, e);
}

static void say_scores(st_run *r, const char *what, const st_scores *s)
{
    char content[64] = "";

    if (s->content_tokens) snprintf(content, sizeof content, ", content %.1f%% of %lld", 100 * s->content, (long long)s->content_tokens);
    st_progress_clear(r->line);
    st_log_write(r->base->log, 3, "eval", "step %lld, %s: loss %.4f, tokens right %.1f%%%s (%lld samples)", (long long)r->at.step, what,
                 s->loss, 100 * s->accuracy, content, (long long)s->samples);
}

int st_run_evaluate(st_run *r, st_error *e)
{
    st_scores s;

    if (!r->valid) return ST_OK;
    ST_TRY(st_evaluate(r->model, r->valid, r->valid_row, r->config.eval.samples, &s, e));
    if (s.trained == 0) st_log_write(r->base->log, 2, "eval", "no token of [dataset.valid] is a trained target: nothing to evaluate");
    if (isnan(r->at.best_valid) || s.loss < r->at.best_valid) r->at.best_valid = s.loss;
    say_scores(r, "held out", &s);
    return write_scores(r, "eval", &s, e);
}

static int evaluate_permuted(st_run *r, st_error *e)
{
    st_scores s;
    int rc;

    st_loader_permute_media(r->valid, 1);
    rc = st_evaluate(r->model, r->valid, r->valid_row, r->config.eval.samples, &s, e);
    st_loader_permute_media(r->valid, 0);
    if (rc != ST_OK) return rc;
    say_scores(r, "held out, pictures exchanged", &s);
    return write_scores(r, "eval_permuted", &s, e);
}

static int show_text(st_run *r, st_error *e)
{
    int64_t n = st_loader_count(r->valid), *index;
    st_generated *texts;
    FILE *f = r->options->screen;

    if (n > r->config.eval.show) n = r->config.eval.show;
    index = ST_NEW_N(r->arena, int64_t, n);
    texts = ST_NEW_N(r->arena, st_generated, n);
    if (!index || !texts) return st_fail(e, ST_E_NOMEM, "no memory to write %lld texts", (long long)n);
    for (int64_t i = 0; i < n; i++) index[i] = i;
    ST_TRY(st_generate(r->model, r->valid, index, (int32_t)n, (int32_t)r->config.eval.show_tokens, st_loader_end_of_turn(r->valid), r->arena, texts, e));
    fprintf(f, "\nWhat the model reads in held-out samples (greedy, free running):\n");
    for (int64_t i = 0; i < n; i++) {
        const char *truth = texts[i].truth ? texts[i].truth : "";
        fprintf(f, "  %s %s\n    truth  %s\n    model  %s\n", strcmp(truth, texts[i].text) == 0 ? "right" : "wrong",
                texts[i].id ? texts[i].id : "", truth, texts[i].text);
    }
    fflush(f);
    return ST_OK;
}

int st_run_report(st_run *r, st_error *e)
{
    if (r->config.eval.at_end) ST_TRY(st_run_evaluate(r, e));
    if (r->valid && r->config.eval.permute_media) ST_TRY(evaluate_permuted(r, e));
    if (r->valid && r->config.eval.show > 0) ST_TRY(show_text(r, e));
    st_progress_clear(r->line);
    st_log_write(r->base->log, 3, "train", "%lld steps, %lld tokens (%lld trained) in %.0f s, %.0f tokens/s while training; output in %s",
                 (long long)r->at.step, (long long)r->at.tokens, (long long)r->at.trained, st_progress_seconds(r->line),
                 st_progress_rate(r->line), r->output);
    return ST_OK;
}
