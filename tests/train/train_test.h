/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/train_test.h - a folder of its own per test, the small spec in it, and runs inside the test's process. */
#ifndef TRAIN_TEST_H
#define TRAIN_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "train/run.h"

typedef struct folder {
    char *path;
    st_arena *arena;
} folder;
int folder_make(void **state); /* with micro.ini and tokenizer.json */
int folder_drop(void **state);
const char *in_folder(const folder *, const char *fmt, ...) ST_PRINTF(2, 3);
const char *put_text(const folder *, const char *name, const char *text);
const char *text_of(const folder *, const char *path); /* of a file */

/* A run up to its first step: st_run_prepare, st_run_place and st_run_start have passed. */
typedef struct opened {
    st_base *base;
    st_train_options options;
    st_run run;
    char *said;
    size_t n_said;
} opened;
/* spec: a path, or NULL for the small one. sets: ended by NULL; one thread is used unless they say otherwise. */
opened *open_run(const folder *, const char *spec, const char *output, const char *const *sets);
void close_run(opened *);
/* Runs it; code of st_train, first message in *e (may be NULL), what went to the screen in *said (likewise). */
int train(const folder *, const char *spec, const char *output, const char *const *sets, st_error *e,
          const char **said);
#define SETS(...) ((const char *const[]){__VA_ARGS__, NULL})
void need_ok(int rc, const st_error *e);

/* A tensor of OUT/checkpoints/step-N/model.safetensors as double. */
const double *tensor(const folder *, const char *output, int64_t step, const char *name, int64_t *n);
#endif
