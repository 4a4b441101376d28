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
    st_loader *train, *valid;      /* valid NULL: the spec has none                                          */
    st_packed_row **rows;          /* [micros] of one step                                                   */
    struct st_ahead {
        st_packed_row **rows;      /* of the next step, filled while this one computes; NULL: not on this device */
        st_loader_state before;    /* where the loader was before them                                       */
        int32_t filled, rc; st_error error;
    } ahead;
    st_packed_row *valid_row;
    int32_t micros;
    const char *output;            /* folder of the run                                                      */
    FILE *lock;                    /* held on the folder; NULL: not yet                                      */
    const char *resumed;           /* checkpoint to go on from; NULL: a new run                              */
    st_checkpoint_texts texts;
    st_metrics *metrics;
    st_progress *line;
    st_stop stop;
    st_checkpoint_state at;        /* done so far                                                            */
    int64_t first_step;            /* done before this part of the run                                       */
    int64_t saved_step;            /* newest checkpoint of this run, -1: none                                */
} st_run;

/* prepare.c: a spec to a checked model and opened data; nothing is made on disk and no device is opened. Commands that
 * only look at a spec use it too. */
int st_run_prepare(st_run *, st_diags *);
/* What makes the run one for timing only: its own keys, or else what its first weights were made under. */
int st_run_mark_timing(st_run *, const char *of_weights, st_error *);
void st_run_close(st_run *);
/* memory.c: with the samples of its data. */
void st_run_plan_process(const st_run *, st_process_plan *);
/* The same in the words of `strata check` and the log; what ST_PROGRAM_BYTES stands for comes last and is not among
 * them. -> bytes in all */
enum { ST_MEMORY_PARTS = 5 };
typedef struct st_memory_part { const char *name; size_t bytes; } st_memory_part;
size_t st_run_memory(const st_run *, st_memory_part out[ST_MEMORY_PARTS]);
/* resume.c: the folder of the run; whether a new run may begin there, or which checkpoint goes on. Makes nothing. */
int st_run_place(st_run *, st_diags *);
/* Of a run that goes on: where its spec leaves the precision to the machine, it is the checkpoint's. */
void st_run_keep_precision(st_run *);
int st_run_take_folder(st_run *, st_error *); /* makes the folder, for this process alone */
int st_run_damaged(const st_run *, int rc, st_error *); /* adds what to do about an unusable checkpoint; -> rc */
/* weights.c: those that [checkpoint] names can be opened; all of a run are loaded. */
int st_run_find_weights(const st_run *, st_diags *); /* the settings are bound */
int st_run_fit_weights(const st_run *, st_error *);   /* by names and shapes; the model is planned */
int st_run_load_weights(st_run *, st_error *);
/* start.c: the device, the weights, then the folder. */
int st_run_open_model(st_run *, st_error *); /* plans, opens, makes rows */
int st_run_start(st_run *, st_error *);
/* bad_samples.c: names records that are set aside, in the folder; tells how many they were. */
int st_run_watch_samples(st_run *, st_error *);
void st_run_count_samples(const st_run *);
/* finish.c: checkpoints and evaluations on the way and at the end. */
int st_run_save(st_run *, st_error *);
int st_run_evaluate(st_run *, st_error *);
int st_run_report(st_run *, st_error *);
#endif
