/* SPDX-License-Identifier: Apache-2.0 */
/* tests/parity/parity_test.h - folders of reference values made for one comparison: those of tests/golden with one
 * thing changed, or files written here. */
#ifndef PARITY_TEST_H
#define PARITY_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity/parity.h"

typedef struct bench {
    st_base *base;
    st_registry *registry;
    st_arena *arena;
    const char *dir;            /* of the comparison; made anew by begin() */
    const char *backend, *peer; /* options of it; begin() sets cpu and none */
} bench;
int bench_open(void **state);
int bench_close(void **state);

/* An empty folder with links to the files of tests/golden/NAME; NULL: none. */
void begin(bench *, const char *golden);
void put_text(bench *, const char *name, const char *text); /* in the place of a link too */

/* One tensor of a file of the folder: left out; flat and one value shorter or longer; all zero; one value another. */
enum { DROP = 1, SHORTEN, GROW, CLEAR, SET };
void change(bench *, const char *file, const char *key, int what, int64_t at, double value);

typedef struct made {
    const char *key;
    int32_t dtype, nd;
    int64_t dim[4];
    const double *values; /* NULL: zeros */
} made;
void put_tensors(bench *, const char *file, const made *, int n);

/* Compares. Refused: the first message is `says`, in which %s is the folder. Compared: so many failures; `prints`, which may
 * be NULL, is in what is printed. */
void refused(bench *, const char *says);
void compared(bench *, int failures, const char *prints);
#endif
