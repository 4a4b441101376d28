/* SPDX-License-Identifier: Apache-2.0 */
/* train/run.h - what the files of this room share about one training run. */
#ifndef ST_RUN_H
#define ST_RUN_H
#include "train/train.h"

typedef struct st_run {
    st_base *base;
    const st_train_options *options;
    st_spec *spec;
    st_train_config config;
    st_arena *arena;
    st_model *model;
    st_loader *train, *valid;      /* valid NULL: the spec has none */
    st_packed_row **rows;          /* [micros] of one step */
    st_packed_row *valid_row;
    int32_t micros;
    const char *output, *checkpoints;
    st_metrics *metrics;
    st_progress_line *line;
    st_progress at;                /* done so far */
    int64_t saved_step;            /* newest checkpoint of this process, -1: none */
} st_run;

/* setup.c: spec to a run that is ready for its first step; nothing is made on disk before every check has passed. */
int st_run_prepare(st_run *, st_diags *);
int st_run_start_model(st_run *, st_error *); /* plans, opens, makes rows */
int st_run_start(st_run *, st_error *);
void st_run_close(st_run *);
/* finish.c: checkpoints and evaluation on the way and at the end. */
int st_run_save(st_run *, st_error *);
int st_run_evaluate(st_run *, st_error *);
int st_run_report(st_run *, st_error *);
#endif
