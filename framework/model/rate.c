/* SPDX-License-Identifier: Apache-2.0 */
/* model/rate.c - what the device reaches on one large matrix product: the floor that a step is measured against. */
#include "config.h"
#include "model/private.h"
#include <stdlib.h>

/* Large enough that edges and start-up vanish, small enough to be short. A device is many times as fast as a host. */
enum { SIDE_HOST = 1536, SIDE_DEVICE = 8192 };
enum { TIMES = 4 }; /* products between two looks at the clock on a device, so that waiting for it does not count */
enum { PIECES = 32 }; /* random numbers of a device's factor are made once for each of so many pieces */

static int64_t side_of(const st_model *m) { return m->facts.host_memory ? SIDE_HOST : SIDE_DEVICE; }

/* The first piece from the host, the others copies of it. */
static int fill(st_model *m, st_tensor t, st_error *e)
{
    int64_t rows = m->facts.host_memory ? t.dim[0] : t.dim[0] / PIECES, n = rows * t.dim[1];
    size_t bytes = (size_t)n * st_dtype_size(t.dtype);
    st_tensor first = t;
    double *values = malloc((size_t)n * sizeof *values);
    int rc;

    if (!values)
        return st_fail(e, ST_E_NOMEM, "no memory to measure a product of %lld rows", (long long)t.dim[0]);
    first.dim[0] = rows;
    st_uniform(1, 0, 0, n, values);
    rc = model_write_tensor(m, first, values, n, e);
    free(values);
    for (int64_t i = 1; i * rows < t.dim[0] && rc == ST_OK; i++)
        if (m->be.copy(&m->queues[0].q, (char *)t.data + (size_t)i * bytes, t.data, bytes) != ST_OK)
            rc = st_fail(e, ST_E_DEVICE, "the backend's copy failed");
    return rc;
}

static int take(st_model *m, st_tensor *t, st_error *e)
{
    int64_t side = side_of(m);
    void *p = NULL;

    if (m->be.alloc(m->device, ST_MEM_DEVICE, (size_t)(side * side) * st_dtype_size(m->dtype), &p) != ST_OK)
        return st_fail(e, ST_E_NOMEM, "no memory to measure a product of %lld x %lld", (long long)side, (long long)side);
    *t = st_tensor2(p, m->dtype, side, side);
    return fill(m, *t, e);
}

static int multiply(st_model *m, const st_gemm *g, int times, st_error *e)
{
    int rc = ST_OK;

    if (!m->ops.gemm) return st_fail(e, ST_E_UNSUPPORTED, "backend %s has no op gemm", m->backend.plugin->name);
    for (int i = 0; i < times && rc == ST_OK; i++) {
        rc = m->ops.gemm(&m->queues[0].q, g);
        m->scratch.used = 0;
    }
    if (rc != ST_OK || m->be.sync(m->device, e) != ST_OK)
        return st_fail(e, ST_E_DEVICE, "the backend's product failed");
    return ST_OK;
}

static int measure(st_model *m, const st_tensor t[3], double seconds, double *rate, st_error *e)
{
    const st_gemm g = {.a = &t[0], .b = &t[1], .c = &t[2], .alpha = 1, .trans = 2};
    int times = m->facts.host_memory ? 1 : TIMES;
    double start = st_clock(), side = (double)side_of(m), reached;

    *rate = 0;
    for (int i = 0; i < 3 || st_clock() - start < seconds; i++) {
        double before = st_clock();
        ST_TRY(multiply(m, &g, times, e));
        reached = times * 2.0 * side * side * side / (st_clock() - before);
        if (reached > *rate) *rate = reached;
    }
    return ST_OK;
}

int st_model_gemm_rate(st_model *m, double seconds, double *rate, st_error *e)
{
    st_tensor t[3] = {{0}};
    int rc = m->opened ? ST_OK : st_fail(e, ST_E_INTERNAL, "the model is not open");

    if (rc == ST_OK) model_start(m);
    for (int i = 0; i < 3 && rc == ST_OK; i++) rc = take(m, &t[i], e);
    if (rc == ST_OK) rc = measure(m, t, seconds, rate, e);
    for (int i = 0; i < 3; i++)
        if (t[i].data) m->be.free(m->device, ST_MEM_DEVICE, t[i].data);
    return rc;
}
