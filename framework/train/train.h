/* SPDX-License-Identifier: Apache-2.0 */
/* train/train.h - the training loop and its parts: settings, schedule, metrics, progress, evaluation, greedy text. */
#ifndef ST_TRAIN_H
#define ST_TRAIN_H
#include "checkpoint/checkpoint.h"

/* ---- settings (config.c): [run] [schedule] [optimizer] clip [eval] [checkpoint] [log] ---- */
enum { ST_ON_NAN_STOP = 0, ST_ON_NAN_SKIP };
enum { ST_SCHEDULE_COSINE = 0, ST_SCHEDULE_LINEAR, ST_SCHEDULE_CONSTANT, ST_SCHEDULE_WSD };
typedef struct st_run_keys { const char *name, *output; int64_t seed, steps; int32_t on_nan; } st_run_keys;
typedef struct st_schedule_keys { double lr, final_ratio; int64_t warmup, decay; int32_t kind; } st_schedule_keys;
typedef struct st_clip_keys { double clip; } st_clip_keys;
typedef struct st_batch_keys { int64_t samples; } st_batch_keys;
typedef struct st_eval_keys { int64_t every, samples, show; int32_t at_end, permute_media; int64_t show_tokens; } st_eval_keys;
typedef struct st_checkpoint_keys { int64_t every, keep; int32_t at_end; const char *from, *from_hf; } st_checkpoint_keys;
typedef struct st_log_keys { int64_t every; } st_log_keys;
typedef struct st_train_config {
    st_run_keys run;
    st_schedule_keys schedule;
    st_clip_keys clip;
    st_batch_keys batch;
    st_eval_keys eval;
    st_checkpoint_keys checkpoint;
    st_log_keys log;
} st_train_config;
int st_train_config_bind(st_spec *, st_train_config *, st_diags *);
int st_train_key_tables(const st_key_table **); /* these keys; -> how many */

/* ---- schedule (schedule.c) ---- */
/* Learning rate of a step counted from 1. Warm-up rises linearly and reaches lr at step `warmup`: step 1 trains at lr / warmup. */
double st_learning_rate(const st_schedule_keys *, int64_t step, int64_t steps);

/* ---- metrics (metrics.c): OUT/metrics.jsonl, one object a line; nothing in it depends on a clock ---- */
typedef struct st_metrics st_metrics;
/* keep_to >= 0: lines of later steps are cut off first (resume), so a resumed file equals an unbroken one. -1: a new file. */
int st_metrics_open(const char *path, int64_t keep_to, st_metrics **, st_error *);
int st_metrics_begin(st_metrics *, int64_t step);
void st_metrics_number(st_metrics *, const char *key, double value); /* not finite: null */
void st_metrics_count(st_metrics *, const char *key, int64_t value);
void st_metrics_text(st_metrics *, const char *key, const char *value);
int st_metrics_end(st_metrics *, st_error *);
void st_metrics_close(st_metrics *);

/* ---- progress (progress.c): one live line on a terminal, a line now and then elsewhere ---- */
typedef struct st_progress_line st_progress_line;
st_progress_line *st_progress_open(FILE *, int64_t first, int64_t steps);
void st_progress_step(st_progress_line *, int64_t step, double loss, double lr, double grad_norm, int64_t tokens);
void st_progress_clear(st_progress_line *); /* before other text goes to the screen */
double st_progress_seconds(const st_progress_line *);
double st_progress_rate(const st_progress_line *); /* tokens per second since the start */
void st_progress_close(st_progress_line *);
double st_clock(void); /* seconds, monotonic */

/* ---- evaluation (evaluate.c): teacher forced ---- */
typedef struct st_scores { double loss, accuracy, content; int64_t trained, content_tokens, samples; } st_scores; /* NaN: no such token */
/* limit: at most so many samples, 0 = all. The loader is rewound before and after. */
int st_evaluate(st_model *, st_loader *, st_packed_row *, int64_t limit, st_scores *, st_error *);

/* ---- greedy, free-running text (generate.c) ---- */
typedef struct st_generated { const char *id, *truth, *text; int64_t index; } st_generated;
/* Continues the prompts of `n` samples together, at most max_tokens each, until `end_id`. Strings live in the arena. */
int st_generate(st_model *, st_loader *, const int64_t *index, int32_t n, int32_t max_tokens, int32_t end_id, st_arena *, st_generated *, st_error *);

/* ---- the loop (loop.c) ---- */
typedef struct st_train_options {
    st_spec *spec; st_registry *registry;
    const char *output;     /* over [run] output; NULL: the spec's */
    int32_t resume;         /* 1: go on from the newest checkpoint in the output folder */
    FILE *screen;           /* progress and results */
} st_train_options;
/* Checks everything, then makes the output folder, then trains. ST_OK also when SIGTERM or SIGINT ended it after a save
 * (*stopped = 1). The caller has blocked these signals before any thread was made (st_signals_block). */
int st_train(st_base *, const st_train_options *, int *stopped, st_diags *);
void st_signals_block(void);
#endif
