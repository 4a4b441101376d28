/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/checkpoint.h - a folder per checkpoint, step-NNNNNNNNN below OUT/checkpoints, that alone makes the model
 * again:
 *
 *   model.safetensors      weights, bit by bit (masters where the run has them)
 *   optimizer.safetensors  the optimizer's state
 *   state.json             how far the run is, its place in the data, format version
 *   spec.ini               the resolved spec with all defaults; [tokenizer] path names the file beside it
 *   tokenizer.json         a copy, when the run has a tokenizer
 *
 * It is written as FOLDER.part and renamed when all of it is on disk, so a folder with the final name is whole. The
 * bytes depend on what was trained alone, not on where, when or by how many threads. */
#ifndef ST_CHECKPOINT_H
#define ST_CHECKPOINT_H
#include "checkpoint/safetensors.h"
#include "data/loader.h"
#include "model/model.h"

#define ST_CHECKPOINT_FORMAT 1

/* What a resume needs beside tensors. */
typedef struct st_checkpoint_state {
    int64_t step, tokens, trained; /* done                                                                   */
    st_loader_state train;
    uint64_t seed, spec_hash;
    const char *pattern;           /* expanded; read: in the arena given                                     */
    const char *timing;            /* what made it a run for timing only, whose weights mean nothing; or NULL */
} st_checkpoint_state;

/* Files that are the same in every checkpoint of a run, made once: what they were made from may go away while it
 * trains. */
typedef struct st_checkpoint_texts {
    const char *spec, *tokenizer;  /* tokenizer NULL: none                                                   */
    size_t n_spec, n_tokenizer;
} st_checkpoint_texts;
/* Adds to the spec what plugins of the model worked out, then makes the texts in the arena. */
int st_checkpoint_make_texts(st_spec *, const st_model *, st_arena *, st_checkpoint_texts *, st_error *);
int st_checkpoint_save(const char *dir, st_model *, const st_checkpoint_texts *, const st_checkpoint_state *,
                       st_error *);

/* The newest whole checkpoint below a run's output folder; NULL in *dir when there is none. */
int st_checkpoint_latest(const char *output, st_arena *, char **dir, st_error *);
/* Removes all but the newest `keep` of them, and what interrupted saves left. */
int st_checkpoint_prune(const char *output, int64_t keep, st_error *);
/* Its folder's name: OUTPUT/checkpoints/step-000000040. NULL: no memory. */
char *st_checkpoint_path(const char *output, int64_t step, st_arena *);

/* The spec stored with it (to rebuild the model from the folder alone). */
int st_checkpoint_spec(const char *dir, const char *const *sets, int n_sets, st_spec **, st_diags *);
int st_checkpoint_read_state(const char *dir, st_arena *, st_checkpoint_state *, st_error *);
/* Tensors into an open model. optimizer 0: weights only, which may be of another precision. ST_E_CONFIG: another
 * model's, with the first tensor that is missing, left over or of another shape. */
int st_checkpoint_load(const char *dir, st_model *, int optimizer, st_error *);
/* Whether its weights could be loaded into a planned model, by names and shapes. */
int st_checkpoint_fit(const char *dir, st_model *, st_error *);
int st_checkpoint_fit_hf(const char *dir, st_model *, st_error *); /* the same of published ones */

/* Weights in HuggingFace names from one file or an index of shards into an open model; what is missing or left over
 * is named. The log (NULL: none) is told what is odd: a wrong total size, prediction depths declared but not there. */
int st_checkpoint_look_at_hf(const char *dir, st_error *); /* whether there are files that can be read; names, no values */
int st_checkpoint_load_hf(const char *dir, st_model *, st_log *, st_error *);
/* The same from files that together are one model. */
int st_checkpoint_load_hf_files(const char *const *paths, int n, st_model *, st_log *, st_error *);
/* The part of a weight that one file tensor holds, out of `whole` (weight->count values). */
void st_weight_part(const st_model_weight *, const st_file_name *, const double *whole, double *part);
int64_t st_weight_part_count(const st_model_weight *, const st_file_name *);

/* Weights of an open model as one safetensors file in HuggingFace's names and shapes; ST_BF16 or ST_F32. ST_E_UNSUPPORTED: a weight
 * has no such name. */
int st_checkpoint_export(const char *path, st_model *, int32_t dtype, st_error *);
/* config.json and preprocessor_config.json as the family has them, for a built model; *why: what it has that the family has
 * not, and then there are none. With a tokenizer.json (path; NULL: none) also the ids of what stands for pictures. */
int st_hf_config_write(const char *dir, const st_spec *, const st_model *, const char *tokenizer, st_arena *, const char **why,
                       st_error *);

/* private to this room */
/* Side and frames of the patches of the family's encoder; 0: the model has none. */
void st_hf_patches(const st_model *, int64_t *side, int64_t *frames);
const char *st_checkpoint_file(int optimizer); /* "model.safetensors", "optimizer.safetensors" */
int st_checkpoint_write_state(const char *dir, const st_model *, const st_checkpoint_state *, st_arena *, st_error *);
int st_remove_folder(const char *dir, st_error *); /* with what is in it; one that is not there is no mistake */
#endif
