/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/cases.h - inputs that have broken other trainers, as data: a table for each kind with a row for each
 * file, how it is made, and what must come of it. Files are made into a folder and checked there; a folder of the same
 * layout from elsewhere can be checked in its place. */
#ifndef ST_CASES_H
#define ST_CASES_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "train/run.h"

typedef struct cases {
    const char *dir;     /* with images/, cord/, ...                                      */
    const char *scratch; /* for what a check writes                                       */
    int32_t given;       /* 1: the folder was not made here                               */
    st_arena *arena;     /* of one case                                                   */
} cases;

/* Rows of a table begin with the file's name below the folder. */
typedef struct case_kind {
    const char *name;
    const void *rows;
    size_t row_size;
    int32_t n;
    void (*make)(const cases *, const void *row);
    void (*check)(const cases *, const void *row); /* fails the test when the outcome is another one */
} case_kind;
#define CASE_KIND(name, table, make, check) \
    { \
        name, table, sizeof(table)[0], (int32_t)ST_COUNT(table), make, check \
    }

extern const case_kind image_kind, cord_kind, text_kind, tokenizer_kind, positions_kind, gdn_kind, loss_kind,
    config_kind, tied_kind, safetensors_kind, sharded_kind, ini_kind, plugin_kind;

/* ---- files (support.c) ---- */
char *case_path(const cases *, const char *file);
void case_put(const cases *, const char *file, const void *data, size_t n); /* makes the folders too */
void case_put_text(const cases *, const char *file, const char *text);
char *case_read(const cases *, const char *file, size_t *n); /* ends with NUL */
/* A new empty folder in scratch; a file in it. */
char *case_folder(const cases *);
char *case_write(const cases *, const char *folder, const char *name, const void *data, size_t n); /* -> its path */
bool case_has(const char *text, const char *words);
/* An error that names the file and the reason. */
void case_refused(const st_error *, const char *file, const char *words);

/* ---- a run as `strata train` prepares it (support.c) ---- */
typedef struct case_run {
    st_base *base;
    st_spec *spec;
    st_registry *registry;
    st_train_options options;
    st_run run;
    st_diags diags;
    FILE *screen;
    st_arena *arena;
    st_packed_row *row[2];
} case_run;
/* A small model that reads pictures, without data sets; sections in `more` follow. */
char *case_spec(const cases *, const char *batch, const char *more);
/* -> the code of the first mistake. Rows are made when there is none. */
int case_open(case_run *, const char *spec);
int case_open_file(case_run *, const char *path, const char *const *sets, int n_sets);
void case_must_open(case_run *, const char *spec);
void case_close(case_run *);
char *case_screen(case_run *); /* what was said so far, with all mistakes */
/* One pass over [dataset.train]: records that trained, in `trained` [room]; -> how many. */
int case_pass(case_run *, int64_t *trained, int room, st_loader_state *);

/* ---- pictures (make_image.c): four fields, or a gradient when larger ---- */
typedef struct png_wish {
    int32_t width, height, type, depth;
    int32_t adam7, filters, small_idat, gamma, exif,
        clear; /* clear: palette entry 3, or the mixed corners, see through */
} png_wish;
typedef struct jpeg_wish {
    int32_t width, height, channels;                         /* 1, 3, 4 */
    int32_t colour;                                          /* 0: as usual; 1: stored as RGB; 2: CMYK; 3: YCCK */
    int32_t subsampled, progressive, restart, comment, exif; /* exif -1: a directory outside the segment */
} jpeg_wish;
st_buf make_png(const png_wish *);
st_buf make_jpeg(const jpeg_wish *);
void png_set_size(st_buf *, uint32_t width, uint32_t height); /* in the header, with a right checksum */
#endif
