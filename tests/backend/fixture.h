/* SPDX-License-Identifier: Apache-2.0 */
/* fixture.h - a cpu backend loaded straight from its module, and tensors with guards, for tests of its ops.
 *
 * rig_run makes one call the way a host does: first planning with addresses that nobody may touch, then for real
 * with one thread and with three. It checks that planning and running take the same workspace, that the bits do not
 * depend on the number of threads, and that nothing outside the tensors was written. */
#ifndef FIXTURE_H
#define FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <strata/backend.h>
#include <strata/cpu.h>
#include <strata/rounding.h>

enum { RIG_TENSORS = 32, RIG_BLOCKS = 64 };
typedef struct rig_tensor {
    st_tensor t;
    void *memory;          /* owned, NULL for a view */
    size_t bytes;
} rig_tensor;
typedef struct rig {
    const st_plugin *plugin;
    const st_backend_ops *backend;
    st_device *one, *more; /* the same level with 1 and with 3 threads */
    st_host host;
    st_queue q;
    st_fault fault;
    int32_t type;          /* ST_F32 or ST_F64 */
    int level;
    int n;
    rig_tensor tensor[RIG_TENSORS];
    /* workspace of the running call */
    size_t taken;
    int n_blocks;
    void *block[RIG_BLOCKS];
    double flops, bytes;   /* counted by the last real call */
    double planned_flops;
    char message[512];     /* of the last failure */
} rig;
typedef int (*rig_call)(const st_queue *, const st_ops *, void *ctx);

const st_plugin *rig_plugin(void);
/* A device of this level; level 0: the highest. Threads through the parameter table. */
st_device *rig_device(rig *, int threads, int level);
void rig_open(rig *, int32_t type, int level);
void rig_close(rig *);
void rig_clear(rig *); /* forgets all tensors */
/* Runs `test` for both types at every level of this machine. */
void rig_each(void (*test)(rig *));

/* Row stride wider than the last dimension by `gap`; gaps and borders hold guard bytes. */
st_tensor *rig_new(rig *, int32_t dtype, int nd, const int64_t *dim, int64_t gap);
#define NEW(r, dtype, gap, ...) \
    rig_new(r, dtype, (int)ST_COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__}, gap)
#define NEW_REAL(r, gap, ...) NEW(r, (r)->type, gap, __VA_ARGS__)
st_tensor *rig_view(rig *, st_tensor); /* of memory that another tensor owns */
st_tensor *rig_absent(rig *);

int64_t elements(const st_tensor *);
void *element(const st_tensor *, int64_t i); /* i counts elements in row-major order */
double value_of(const st_tensor *, int64_t i);
void set_value(const st_tensor *, int64_t i, double v);
void set_random(const st_tensor *, uint64_t seed, double low, double high); /* rounded to the type */
void set_all(const st_tensor *, double v);
double *values(const st_tensor *); /* malloc'd copy, row-major */
void set_values(const st_tensor *, const double *);
double random_at(uint64_t seed, int64_t i); /* uniform in 0..1 */

int rig_run(rig *, rig_call, void *ctx);  /* -> status; fails the test when a rule above is broken */
int rig_once(rig *, rig_call, void *ctx); /* only the real call with one thread */
#define RUN_OK(r, call, ctx) do { \
    if (rig_run(r, call, ctx)) fail_msg("%s", (r)->message); \
} while (0)
/* The call is refused, and the message holds all these pieces. */
void rig_refused(rig *, rig_call, void *ctx, int code, const char *const *pieces, int n);
#define REFUSED(r, call, ctx, code, ...) \
    rig_refused(r, call, ctx, code, (const char *const[]){__VA_ARGS__}, \
                (int)ST_COUNT(((const char *const[]){__VA_ARGS__})))

/* ||a - b|| / ||b|| over all elements must not exceed f64 or f32, by the rig's type. */
void near_to(const rig *, const char *what, const st_tensor *a, const double *b, double f64, double f32);
/* f64 rigs only: derivative of sum(weight * out) by a few elements of x against grad. */
void check_gradient(rig *, const char *what, rig_call, void *ctx, const st_tensor *x, const st_tensor *out,
                    const double *weight, const double *grad, int samples);
#endif
