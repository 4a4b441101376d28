/* SPDX-License-Identifier: Apache-2.0 */
/* attention_sides.h - for test_attention: the cpu backend in f64 and the cuda backend, loaded straight from their modules (from
 * the folder ST_MODULES, or those of the build folder), and tensors with the same layout and values on both sides. */
#ifndef ATTENTION_SIDES_H
#define ATTENTION_SIDES_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <strata/backend.h>

enum { ROOM = 512 << 20 };
typedef struct side {
    const st_backend_ops *backend;
    st_device *device;
    st_queue q; /* must be found from its address */
    char *scratch;
    size_t taken;
    char message[512];
} side;
extern side cpu, own, library, *gpu; /* own, library: the GPU with forward by own kernels, by cuDNN; gpu: one of them */

int sides_open(void **state);
int use_own(void **state);
int use_library(void **state); /* own kernels again where the library is not found */
bool gpu_there(const char **why);
void to_gpu(void *to, const void *from, size_t n);

#define GAP_VALUE 777.0
typedef struct pair {
    st_tensor cpu, gpu;
    int64_t n;     /* elements of memory, gaps included */
    double *value; /* memory of cpu */
    void *staged;  /* as on the GPU */
} pair;

/* (rows, heads, d) with `gap` elements between heads and behind a row. */
pair new_pair(int32_t type, int64_t rows, int64_t heads, int64_t d, int64_t gap);
void free_pair(pair *);
void upload(pair *); /* all of its memory, rounded to the GPU's type on both sides */
void download(pair *);
double staged_at(const pair *, int64_t i);
/* Place of element e of a row (its heads one after another) in memory. */
int64_t place(const pair *, int64_t row, int64_t e);
int64_t per_row(const pair *);
/* Random rows in spans, NaN elsewhere: what no span holds must not be used. */
void set_random(pair *, uint64_t seed, double size, const int32_t *begin, const int32_t *len, int n);
void set_all(pair *, double value);
double random_at(uint64_t seed, int64_t i);
uint16_t to_bf16(float);
float from_bf16(uint16_t);
#endif
