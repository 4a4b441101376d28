/* SPDX-License-Identifier: Apache-2.0 */
/* A host in small for one layer plugin: opens the built modules, binds parameters by the plugin's table, declares, and
 * runs forward and backward over a packed row. Values go in and out as double; inside they have the run's type.
 * It is an unkind host: memory is filled with NaN, kept tensors lie elsewhere when backward begins, weights have
 * another address in every call, scratch is freed when its mark is released, and kernel pieces run from the last to the
 * first. */
#ifndef MOCK_HOST_H
#define MOCK_HOST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <strata/backend.h>
#include <strata/layer.h>

enum {
    MOCK_WEIGHTS = 16,
    MOCK_SLOTS = 32,
    MOCK_BLOCKS = 256,
    MOCK_SPARE = 2, /* unused entries at the end of the lists */
    MOCK_ACCUMS = 4,
    MOCK_METRICS = 16
};

typedef struct mock_weight {
    char name[64];
    st_weight decl; /* sections are copied */
    st_section sec[8];
    int64_t n;
    double *value, *grad; /* n each; set value, read grad after mock_backward */
    int32_t frozen;       /* 1: the plugin sees no gradient */
    void *typed, *typed_grad;
} mock_weight;

typedef struct mock_accum {
    const char *name;
    int64_t n;
    uint32_t sum;
    void *cell, *total; /* typed; begin at 0 in mock_forward, total is their sum at its end */
} mock_accum;
typedef struct mock_metric {
    const char *name;
    void *cell; /* typed [2]; begin at 0 in mock_forward */
} mock_metric;

typedef struct mock_memory {
    void *at;
    size_t bytes;
} mock_memory;

typedef struct mock {
    st_step step; /* first: callbacks get back to the host from it */
    st_env env;
    st_host host;
    st_queue queue; /* of the mock's own operations and of the kernels */
    st_cpu_pool pool;
    st_row row;
    st_error error;
    const st_plugin *plugin;
    const st_layer_ops *ops;
    const st_kernels *kernels;
    void *self;
    int32_t n_weights, drop, planning, tile, threads;
    mock_weight weight[MOCK_WEIGHTS];
    st_tensor slot[MOCK_SLOTS];
    mock_memory kept[MOCK_SLOTS], scratch[MOCK_BLOCKS];
    int32_t n_scratch;
    size_t scratch_now, scratch_peak, kept_bytes; /* of the last call */
    int32_t rotary_dim;
    double *cos, *sin;
    void *typed_cos, *typed_sin;
    int32_t *segments, *tiles, *spans, n_tiles;
    uint8_t *real; /* all 1 after mock_row; a test may clear some */
    mock_accum accum[MOCK_ACCUMS];
    mock_metric metric[MOCK_METRICS];
    int32_t n_accums, n_metrics;
    void *typed_tokens;
    st_fault fault; /* of the last call */
    int32_t built_backend; /* 1: operations, queue and threads are those of the built cpu backend */
    const st_backend_ops *backend;
    void *backend_self;
    st_device *device;
} mock;

/* settings: key, value, ..., NULL. dtype ST_F64 or ST_F32. Fails the test when the plugin refuses. */
mock *mock_open(const char *plugin, const char *const *settings, int32_t dtype, int64_t hidden);
/* The same, but a refusal is the expected outcome: returns its words. */
const char *mock_refusal(const char *plugin, const char *const *settings, int32_t dtype, int64_t hidden,
                         char words[512]);
void mock_close(mock *);
void mock_row(mock *, int n, const int32_t *lengths);
mock_weight *mock_weight_of(mock *, const char *name);
void mock_forward(mock *, const double *x, double *y);
void mock_backward(mock *, const double *x, const double *dy, double *dx); /* gradients of weights begin at 0 */
void mock_finish(mock *);                                                  /* the end of a step, where a layer has one */
st_tensor mock_slot(const mock *, const char *name);                       /* as forward kept it */
double mock_metric_of(const mock *, const char *name);                     /* cell 0 / cell 1; NaN: not reported */
void mock_plan(mock *);                                                    /* both calls without memory and kernels */

/* Modules (mock_open.c): a built one; values for the plugin's parameters; its kernels; the cpu backend, if it is wanted. */
void *mock_module(const char *name);
void mock_bind(mock *, const char *const *settings);
void mock_kernels(mock *);
void mock_backend(mock *);
void mock_count(const st_queue *, double flops, double bytes); /* (mock_open.c) work of a launch: not looked at */
st_tensor mock_scratch(mock *, size_t bytes, st_tensor); /* (mock_host.c) freed when its mark is released */

/* Cells (mock_cells.c): entries of the two tables, and what a call does with them. */
int mock_env_accum(st_env *, const st_accum *);
int mock_env_metric(st_env *, const st_metric *);
st_tensor mock_step_accum(st_step *, int32_t id);
st_tensor mock_step_total(st_step *, int32_t id);
st_tensor mock_step_metric(st_step *, int32_t id);
st_tensor mock_step_scalar(st_step *, int32_t which);
void mock_begin_cells(mock *);
void mock_sum_cells(mock *, uint32_t when);
void mock_free_cells(mock *);

/* The mock's operations in plain loops over double (mock_ops.c). */
const st_ops *mock_ops(void);
double mock_get(const st_tensor *, int64_t i, int64_t j, int64_t k);
void mock_set(const st_tensor *, int64_t i, int64_t j, int64_t k, double value);
double mock_act(int32_t act, double x);
double mock_act_slope(int32_t act, double x);

/* A queue's threads: pieces from the last to the first; more than one thread takes them off a shared counter. */
void mock_run(const st_cpu_pool *, int64_t n, void (*fn)(void *, int64_t), void *arg);
double mock_random(uint64_t *state); /* -1 .. 1 */
double mock_normal(uint64_t *state); /* about normal, deviation 1 */
void mock_fill_normal(double *, int64_t n, double deviation, uint64_t *state);
double mock_distance(const double *a, const double *b, int64_t n); /* |a - b| / |b| by norm; |a - b| if b is 0 */
#endif
