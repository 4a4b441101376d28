/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/checkpoint.h - a folder per checkpoint: model.safetensors, optimizer.safetensors, state.json, spec.ini, and the
 * tokenizer. Written beside its final name and renamed, so a folder with the final name is whole. */
#ifndef ST_CHECKPOINT_H
#define ST_CHECKPOINT_H
#include "checkpoint/safetensors.h"
#include "data/loader.h"
#include "model/model.h"

#define ST_CHECKPOINT_FORMAT 1
typedef struct st_progress {       /* what a resume needs beside tensors                                     */
    int64_t step, tokens, trained; /* done                                                                   */
    st_loader_state train;
    uint64_t seed, spec_hash;
    double best_valid;             /* NaN: none yet                                                          */
} st_progress;
int st_checkpoint_save(const char *dir, st_model *, const st_spec *, const st_progress *, st_error *);
/* The newest whole checkpoint below a run's output folder; NULL in *dir when there is none. */
int st_checkpoint_latest(const char *output, st_arena *, char **dir, st_error *);
/* The spec stored with it (to rebuild the model from the folder alone). */
int st_checkpoint_spec(const char *dir, const char *const *sets, int n_sets, st_spec **, st_diags *);
/* Tensors and progress into an open model. optimizer 0: weights only. Shape or name differences are listed by name. */
int st_checkpoint_load(const char *dir, st_model *, int optimizer, st_progress *, st_error *);
/* Weights in HuggingFace names from one file or an index of shards into an open model; what is missing or left over is named. */
int st_checkpoint_load_hf(const char *dir, st_model *, st_error *);
/* The part of a weight that one file tensor holds: copies between `whole` (weight->count values) and `part`. */
enum { ST_PART_OUT = 0, ST_PART_IN = 1 };
void st_weight_part(const st_model_weight *, const st_file_name *, double *whole, double *part, int direction);
int64_t st_weight_part_count(const st_model_weight *, const st_file_name *);
#endif
