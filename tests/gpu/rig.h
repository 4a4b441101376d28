/* SPDX-License-Identifier: Apache-2.0 */
/* rig.h - the cuda backend beside the cpu backend, both straight from their modules.
 *
 * A case makes tensors in pairs: f64 on the cpu, and on the GPU the type under test (REAL), f32 (ACC) or what it says. Inputs are
 * rounded to the GPU's type first, so both sides compute with the very same numbers. gpu_check plans the call, runs it on both,
 * compares all outputs by norm, runs it once more for equal bits, and looks for writes outside of tensors. */
#ifndef GPU_RIG_H
#define GPU_RIG_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <strata/backend.h>

enum { GPU_TENSORS = 24, GPU_ROWS = 64, REAL = -1, ACC = -2 };
typedef struct side { /* begins with its queue, which is how callbacks find it */
    st_queue q;
    const st_plugin *plugin;
    const st_backend_ops *backend;
    st_device *device;
    char *arena;
    size_t room, taken;
    double flops, bytes;
    char message[512];
} side;
typedef struct pair {
    st_tensor cpu, gpu, now;  /* now: of the side that runs */
    unsigned char *image;     /* GPU's bytes before the call, with borders */
    size_t bytes;
    char *memory;             /* on the GPU */
    const char *name;
    bool out;
} pair;
typedef struct row { const char *op; int32_t type; double error, limit, ms, flops, bytes; } row;
typedef struct gpu {
    side cpu, gpu;
    st_fault *fault;          /* on the GPU */
    st_fault cpu_fault;
    int32_t type;             /* ST_F32 or ST_BF16 */
    int n, n_rows;
    pair t[GPU_TENSORS];
    row rows[GPU_ROWS];
    char words[256];
} gpu;
typedef int (*gpu_call)(const st_queue *, const st_ops *, gpu *, const void *args);

/* NULL: there is no GPU, and *why says it. */
gpu *gpu_open(const char **why);
void gpu_close(gpu *);
void gpu_clear(gpu *); /* forgets all tensors */

/* Tensors; the result is a number for AT. Gap: elements between rows. dtype: REAL, ACC, or a type of whole numbers. */
int gpu_new(gpu *, const char *name, int32_t dtype, int64_t gap, int nd, const int64_t *dim);
#define NEW(g, name, dtype, gap, ...) \
    gpu_new(g, name, dtype, gap, (int)ST_COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__})
/* For times alone: small numbers on the GPU, nothing on the cpu. */
int gpu_large(gpu *, int32_t dtype, int nd, const int64_t *dim);
#define LARGE(g, dtype, ...) \
    gpu_large(g, dtype, (int)ST_COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__})
int gpu_random(gpu *, int tensor, double low, double high); /* -> tensor */
int gpu_values(gpu *, int tensor, const double *);
int gpu_out(gpu *, int tensor);                             /* compared after the call */
#define AT(g, tensor) (&(g)->t[tensor].now)
double random_at(uint64_t seed, int64_t i);

/* Limits of ||gpu - cpu|| / ||cpu|| for each output. */
void gpu_check(gpu *, const char *op, gpu_call, const void *args, double f32, double bf16);
/* The GPU alone, many times: the row of the table gets milliseconds and rates. */
void gpu_time(gpu *, const char *op, gpu_call, const void *args);
/* The call faults on the GPU with this code, as on the cpu. */
void gpu_faults(gpu *, gpu_call, const void *args, uint32_t code);
void gpu_table(const gpu *); /* printed last */

extern gpu *the_gpu; /* made by the group's setup */
void each_type(void (*test)(gpu *));

extern const struct CMUnitTest point_tests[], rows_tests[], move_tests[], product_tests[], attention_tests[], device_tests[];
extern const int n_point_tests, n_rows_tests, n_move_tests, n_product_tests, n_attention_tests, n_device_tests;
#endif
