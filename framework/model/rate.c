/* SPDX-License-Identifier: Apache-2.0 */
/* model/rate.c - what the device reaches on one large matrix product: the floor that a step is measured against. */
#include "config.h"
#include "model/private.h"
#include <stdlib.h>

#define SIDE 1536 /* large enough that edges and start-up vanish, small enough to be short */

static int take(st_model *m, st_tensor *t, st_error *e)
{
    size_t bytes = (size_t)SIDE * SIDE * st_dtype_size(m->dtype);
    double *values;
    void *p = NULL;
    int rc;

    if (m->be.alloc(m->device, ST_MEM_DEVICE, bytes, &p) != ST_OK)
        return st_fail(e, ST_E_NOMEM, "no memory to measure a product of %d x %d", SIDE, SIDE);
    *t = st_tensor2(p, m->dtype, SIDE, SIDE);
    values = malloc((size_t)SIDE * SIDE * sizeof *values);
    if (!values) return st_fail(e, ST_E_NOMEM, "no memory to measure a product of %d x %d", SIDE, SIDE);
    st_uniform(1, 0, 0, (int64_t)SIDE * SIDE, values);
    rc = model_write_tensor(m, *t, values, (int64_t)SIDE * SIDE, e);
    free(values);
    return rc;
}

static int measure(st_model *m, const st_tensor t[3], double seconds, double *rate, st_error *e)
{
    st_gemm g = {.a = &t[0], .b = &t[1], .c = &t[2], .alpha = 1, .trans = 2};
    double start = st_clock();

    *rate = 0;
    for (int i = 0; i < 3 || st_clock() - start < seconds; i++) {
        double before = st_clock(), took;
        if (m->ops.gemm(&m->queues[0].q, &g) != ST_OK || m->be.sync(m->device, e) != ST_OK)
            return st_fail(e, ST_E_DEVICE, "the backend's product failed");
        took = st_clock() - before;
        m->scratch.used = 0;
        if (2.0 * SIDE * SIDE * SIDE / took > *rate) *rate = 2.0 * SIDE * SIDE * SIDE / took;
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
