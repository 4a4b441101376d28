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
typedef struct st_eval_keys {
    int64_t every, samples, show, show_tokens;
    int32_t at_end, permute_media;
} st_eval_keys;
typedef struct st_checkpoint_keys {
    int64_t every, keep;
    int32_t at_end;
    const char *from, *from_hf;
} st_checkpoint_keys;
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
/* Learning rate of a step counted from 1. Warm-up rises linearly and reaches lr at step `warmup`: step 1 trains at
 * lr / warmup. From there the shape goes on, and the last step has lr * final_ratio. */
double st_learning_rate(const st_schedule_keys *, int64_t step, int64_t steps);

/* ---- metrics (metrics.c): OUT/metrics.jsonl, one object a line; nothing in it depends on a clock ---- */
typedef struct st_metrics st_metrics;
/* A line of a training step has "loss" behind its step; all others are evaluations made after it. resume_at >= 0: what
 * was written after the training line of that step is cut off, so that a resumed file equals an unbroken one. -1: a
 * new file. */
int st_metrics_open(const char *path, int64_t resume_at, st_metrics **, st_error *);
void st_metrics_begin(st_metrics *, int64_t step);
void st_metrics_number(st_metrics *, const char *key, double value); /* not finite: null */
void st_metrics_count(st_metrics *, const char *key, int64_t value);
void st_metrics_text(st_metrics *, const char *key, const char *value);
int st_metrics_end(st_metrics *, st_error *);
void st_metrics_close(st_metrics *);

/* ---- progress (progress.c): one live line on a terminal, a line now and then elsewhere ---- */
typedef struct st_progress_view {
    int64_t step, steps;
    double loss, lr, grad_norm, tokens_per_second, seconds_left;
} st_progress_view;
int st_progress_text(const st_progress_view *, char *out, size_t n); /* as snprintf */
typedef struct st_progress st_progress;
st_progress *st_progress_open(FILE *, int64_t first, int64_t steps);
void st_progress_step(st_progress *, int64_t step, const st_step_result *, double lr, double seconds);
void st_progress_clear(st_progress *); /* before other text goes to the screen */
/* Of this part of the run, which may have begun at another's checkpoint. */
int64_t st_progress_tokens(const st_progress *);
double st_progress_seconds(const st_progress *);
double st_progress_rate(const st_progress *); /* tokens per second of the steps */
void st_progress_close(st_progress *);

/* ---- stopping (stop.c) ---- */
/* SIGTERM, SIGINT and, unless it is ignored, SIGHUP wait until they are asked for. After the first one they act as usual
 * again, so that a second one ends the process at once. */
typedef struct st_stop { int32_t signal; } st_stop;
void st_stop_block(void); /* before any thread is made */
bool st_stop_asked(st_stop *);
const char *st_stop_name(const st_stop *); /* of the signal that came */

/* ---- evaluation (evaluate.c): teacher forced ---- */
typedef struct st_scores {
    double loss, accuracy, content; /* NaN: no such token */
    int64_t trained, content_tokens, samples;
    int32_t depths;                 /* of the pattern */
    double depth_loss[ST_PATTERN_DEPTHS];
    const char *depth_name[ST_PATTERN_DEPTHS]; /* by which the head logs it: "mtp.1.loss"; lives as long as the model */
} st_scores;
/* limit: at most so many samples, 0 = all. The loader is rewound before and after. stop (NULL: never) is asked between
 * rows; when it says so the scores are of what was seen. */
int st_evaluate(st_model *, st_loader *, st_packed_row *, int64_t limit, st_stop *, st_scores *, st_error *);

/* ---- greedy, free-running text (generate.c) ---- */
typedef struct st_generated { const char *id, *truth, *text; int64_t index; } st_generated;
typedef struct st_generation {
    st_model *model;
    st_loader *loader;
    int32_t max_tokens; /* of one text; it also ends at the end of its turn, and when its row is full */
    st_stop *stop;      /* asked between tokens; NULL: never */
    st_arena *arena;    /* for the strings */
} st_generation;
/* Continues the prompts of the first n samples that can be used; -> how many in *made. */
int st_generate(const st_generation *, int32_t n, st_generated *, int32_t *made, st_error *);

/* ---- memory of the process (memory.c) ---- */
/* The program, its libraries and what they keep for themselves: tokenizer, spec, a picture being decoded in each of a
 * few threads. Measured, not planned: 14 MiB on receipts-tiny with 2 threads. */
#define ST_PROGRAM_BYTES ((size_t)16 << 20)
typedef struct st_process_plan {
    size_t arenas, rows, samples; /* the model's plan; rows being packed; prepared samples that stay             */
} st_process_plan;
size_t st_process_bytes(const st_process_plan *); /* all, ST_PROGRAM_BYTES included */
/* Without data; valid: rows for [dataset.valid] as well. The model is planned. */
void st_process_plan_model(const st_model *, int valid, st_process_plan *);
size_t st_machine_bytes(void); /* of memory; 0: the system does not tell */
/* By what a figure beside a total of so many bytes is divided, and its unit: MiB, from 10 GiB on GiB. */
double st_memory_unit(size_t total, const char **name);
const char *st_memory_text(size_t bytes, char *out, size_t n); /* "53.8 MiB", "12.3 GiB"; -> out */
size_t st_process_peak(void); /* the most that was resident so far; 0: the system does not tell */

/* ---- the loop (loop.c) ---- */
typedef struct st_train_options {
    st_spec *spec; st_registry *registry;
    const char *output;     /* over [run] output; NULL: the spec's */
    int32_t resume;         /* 1: go on from the newest checkpoint in the output folder */
    const char *evaluate;   /* a checkpoint's folder: evaluated only, nothing is written; NULL: train */
    FILE *screen;           /* progress and results */
} st_train_options;
/* Checks everything, then makes the output folder, then trains. ST_OK also when a signal ended it after a
 * save. The caller has blocked these signals (st_stop_block). */
/* Of options->evaluate, with the spec given: loss and tokens right of [dataset.valid], and texts as a run ends with. */
int st_evaluate_checkpoint(st_base *, const st_train_options *, st_diags *);
int st_train(st_base *, const st_train_options *, st_diags *);
#endif
