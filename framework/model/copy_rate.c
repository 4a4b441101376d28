/* SPDX-License-Identifier: Apache-2.0 */
/* model/copy_rate.c - what the device's memory reaches: beside the rate of products, the floor of launches that do
 * little with much. */
#include "config.h"
#include "model/private.h"

enum { TIMES = 4 }; /* copies between two looks at the clock, so that waiting for the device does not count */
#define CACHED ((int64_t)256 << 20) /* bytes of each side on a device: more than its caches hold */
#define CACHED_HOST ((int64_t)128 << 20)
#define LEAST ((int64_t)32 << 20) /* where a model leaves no more; caches may then answer a part */

static int copies(st_model *m, int op, const st_tensor t[2], size_t bytes)
{
    const st_queue *q = &m->queues[0].q;
    int rc = ST_OK;

    for (int i = 0; i < TIMES && rc == ST_OK; i++)
        rc = op ? m->ops.copy(q, &t[0], &t[1]) : m->be.copy(q, t[1].data, t[0].data, bytes);
    return rc;
}

/* The backend's copy and its op, if it has one, which may use more threads: the faster is what memory can do. */
static int measure(st_model *m, const st_tensor t[2], size_t bytes, double seconds, double *rate, st_error *e)
{
    double start = st_clock();

    *rate = 0;
    for (int i = 0; i < 6 || st_clock() - start < seconds; i++) {
        double before = st_clock(), reached;
        if (copies(m, m->ops.copy && i & 1, t, bytes) != ST_OK || m->be.sync(m->device, e) != ST_OK)
            return st_fail(e, ST_E_DEVICE, "the backend's copy failed");
        reached = 2.0 * TIMES * (double)bytes / (st_clock() - before);
        if (reached > *rate) *rate = reached;
    }
    return ST_OK;
}

static void give_back(st_model *m, void *side[2])
{
    for (int i = 0; i < 2; i++)
        if (side[i]) m->be.free(m->device, ST_MEM_DEVICE, side[i]);
    side[0] = side[1] = NULL;
}

/* Two sides as large as there is memory for; -> bytes of each, 0: not even the least. */
static int64_t take(st_model *m, void *side[2])
{
    for (int64_t bytes = m->facts.host_memory ? CACHED_HOST : CACHED; bytes >= LEAST; bytes /= 2) {
        if (m->be.alloc(m->device, ST_MEM_DEVICE, (size_t)bytes, &side[0]) == ST_OK &&
            m->be.alloc(m->device, ST_MEM_DEVICE, (size_t)bytes, &side[1]) == ST_OK)
            return bytes;
        give_back(m, side);
    }
    return 0;
}

int st_model_copy_rate(st_model *m, double seconds, double *rate, st_error *e)
{
    int64_t bytes, width = (int64_t)st_dtype_size(m->dtype);
    void *side[2] = {NULL, NULL};
    st_tensor t[2];
    int rc;

    if (!m->opened) return st_fail(e, ST_E_INTERNAL, "the model is not open");
    model_start(m);
    bytes = take(m, side);
    if (!bytes) return st_fail(e, ST_E_NOMEM, "no memory to measure a copy of %lld MiB", (long long)(LEAST >> 20));
    for (int i = 0; i < 2; i++) t[i] = st_tensor2(side[i], m->dtype, bytes / width / 4096, 4096);
    rc = measure(m, t, (size_t)bytes, seconds, rate, e);
    give_back(m, side);
    return rc;
}
