/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.h - the cuda backend beside the cpu backend in f64, both straight from their modules (folder ST_MODULES, or those of
 * the build folder), and tensors that exist on both sides with the very same values. Where no GPU can be used every test is
 * skipped, with the reason. */
#ifndef PAIRS_H
#define PAIRS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <strata/backend.h>

enum { PAIRS = 24 };
typedef struct pair {
    st_tensor cpu, gpu; /* cpu: f64 where gpu is f32 or bf16 */
    int64_t n;          /* elements of memory, gaps included */
    void *start, *got;  /* memory of gpu before a call, and after it */
} pair;
typedef struct side {
    const st_backend_ops *backend;
    st_device *device;
    st_queue q;
    st_fault fault;     /* after the last call */
    char *scratch;
    size_t taken, room;
    double flops, bytes;
    char message[512];
} side;
extern side cpu, gpu;
typedef int (*pair_call)(const st_queue *, const st_ops *, void *ctx);

int pairs_setup(void **state);
int pairs_teardown(void **state);
bool pairs_gpu_there(void); /* false: the whole program was skipped, and said so */
void pairs_clear(void);
/* Rows of the last dimension are `gap` elements apart; gaps hold a value that no call may change. */
pair *pair_new(int32_t type, int nd, const int64_t *dim, int64_t gap);
#define PAIR(type, gap, ...) \
    pair_new(type, (int)ST_COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__}, gap)
int64_t pair_elements(const pair *);
void pair_set(pair *, int64_t i, double v); /* rounded to the type; i in row-major order */
double pair_cpu(const pair *, int64_t i);
double pair_gpu(const pair *, int64_t i);   /* after a call */
void pair_random(pair *, uint64_t seed, double low, double high);
double random_at(uint64_t seed, int64_t i);

/* Uploads, calls, downloads: twice, with equal bits; workspace is what planning said; gaps are as they were. */
void gpu_run(pair_call, void *ctx);
void cpu_run(pair_call, void *ctx);
int gpu_once(pair_call, void *ctx, bool planning); /* -> status; nothing else */
/* ||gpu - cpu|| / ||cpu|| */
void pair_near(const char *what, const pair *, double limit);

/* For times: device memory with random numbers, and the shortest of a few rounds in ms. */
st_tensor device_random(int32_t type, int nd, const int64_t *dim, double low, double high);
#define DEVICE_RANDOM(type, low, high, ...) \
    device_random(type, (int)ST_COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__}, low, high)
double gpu_time(pair_call, void *ctx);
void print_rate(const char *what, double ms);
#endif
