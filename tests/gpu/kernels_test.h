/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_test.h - a plugin's CUDA kernels beside its CPU kernels: arrays that exist as double for the CPU and in the
 * run's type on the device, both modules' tables, comparison by norm, and runs that are repeated for equal bits. */
#ifndef KERNELS_TEST_H
#define KERNELS_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>
#include <strata/plugin.h>

typedef struct array {
    const char *name; /* results: what is compared; NULL: an input */
    double *host, bound;
    int32_t *whole; /* of an array of integers, with `device` alone */
    void *device;
    void *first; /* the device's result of the first run */
    int64_t n;
    int32_t type;
} array;

enum { MOST_ARRAYS = 64 };
typedef struct arrays {
    array at[MOST_ARRAYS];
    int n;
    int32_t type; /* of the run on the device: ST_F32 or ST_BF16 */
    uint64_t seed;
} arrays;

int device_there(void); /* 0: the program is skipped, and the reason was printed */
const st_kernels *open_kernels(const char *plugin, const char *backend);
st_queue cpu_queue(void);
st_queue device_queue(void);

void arrays_begin(arrays *, int32_t type, uint64_t seed);
void arrays_end(arrays *);
double uniform(arrays *); /* -1 .. 1 */

/* Inputs are rounded to what the device holds before the CPU sees them. `wide` 1: f32 in bf16 runs. */
array *input(arrays *, int64_t n, int wide, double scale);
array *input_of(arrays *, const double *values, int64_t n, int wide);
/* The host's values were changed: rounds and copies them again. */
void arrays_refresh(array *);
array *whole_input(arrays *, const int32_t *values, int64_t n);
array *bytes_input(arrays *, const uint8_t *values, int64_t n);
/* Filled with `fill` on both sides before each run; compared relative by norm. */
array *result(arrays *, const char *name, int64_t n, int wide, double fill, double bound);
array *whole_result(arrays *, const char *name, int64_t n, int32_t fill);
void *device_scratch(arrays *, int64_t floats);

/* run(device 0, 1) with pointers of the right side by `on`. Once on the CPU, twice on the device; fails where a result
 * is off or two runs differ, and prints all errors. */
void compare(arrays *, const char *title, int (*run)(void *ctx, int device), void *ctx);
static inline void *on(const array *a, int device)
{
    if (!a) return NULL;
    return device ? a->device : a->whole ? (void *)a->whole : (void *)a->host;
}
/* Median of some launches in milliseconds. */
double milliseconds(int (*run)(void *ctx, int device), void *ctx, int times);
#endif
