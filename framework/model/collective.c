/* SPDX-License-Identifier: Apache-2.0 */
/* model/collective.c - collectives of a step, over the groups of the run's comm plugin. A group must exist, while
 * planning too. One of a single rank is called like any other, unless its memory is the device's alone: then it is a
 * copy, for which no transport is needed that knows the device. */
#include "model/private.h"

static model_run *run_of(st_step *s) { return (model_run *)(void *)s; }

/* While planning nothing is open: then the mesh says what there will be. */
static int find_group(model_run *r, uint32_t group, int32_t *ranks, st_comm **comm)
{
    st_error e = {0};

    *comm = NULL;
    *ranks = st_mesh_size(&r->m->mesh, group);
    if (*ranks < 1) return model_fail(r->m, ST_E_COMM, "group %s does not exist in this run", st_group_name(group));
    if (r->planning) return ST_OK;
    *comm = st_groups_get(r->m->groups_open, group, &e);
    return *comm ? ST_OK : model_fail(r->m, e.code, "%s", e.message);
}

/* Elements of a tensor that lies in one piece; -1: it does not, or is absent. */
static int64_t elements(const st_tensor *t)
{
    int64_t n = 1;

    if (!t || !t->data) return -1;
    for (int i = t->nd; i-- > 0;) {
        if (t->dim[i] > 1 && t->stride[i] != n) return -1;
        n *= t->dim[i];
    }
    return n;
}

/* What the transport counts by: elements of one rank's block, or of the whole for a reduction. -1: wrong sizes. */
static int64_t count_of(uint32_t what, int32_t ranks, int64_t send, int64_t recv)
{
    switch (what) {
    case ST_ALL_GATHER: return recv == ranks * send ? send : -1;
    case ST_REDUCE_SCATTER: return send == ranks * recv ? recv : -1;
    case ST_ALL_TO_ALL: return send == recv && send % ranks == 0 ? send / ranks : -1;
    default: return send == recv ? send : -1;
    }
}

static int copy_alone(const model_run *r, const st_tensor *from, const st_tensor *to, int64_t n)
{
    size_t bytes = (size_t)n * st_dtype_size(from->dtype);

    return from->data == to->data || !bytes ? ST_OK : r->m->be.copy(r->s.q, to->data, from->data, bytes);
}

static int launch(model_run *r, uint32_t what, st_comm *c, const st_tensor *send, const st_tensor *recv, int64_t n)
{
    const st_comm_ops *ops = &r->m->comm_ops;
    const st_queue *q = r->s.q;

    switch (what) {
    case ST_ALL_GATHER: return ops->all_gather(c, q, send->data, recv->data, n, send->dtype);
    case ST_REDUCE_SCATTER: return ops->reduce_scatter(c, q, send->data, recv->data, n, send->dtype, ST_SUM);
    case ST_ALL_TO_ALL: return ops->all_to_all(c, q, send->data, recv->data, n, send->dtype);
    default:
        return ops->all_reduce(c, q, send->data, recv->data, n, send->dtype,
                               what == ST_ALL_REDUCE_MAX ? ST_MAX : ST_SUM);
    }
}

/* ---- what planning counts ---- */

/* Bytes that one rank sends to its neighbour in a ring. block: of one rank, or all of it for a reduction. */
static double ring_bytes(uint32_t what, int32_t ranks, double block)
{
    int reduces = what == ST_ALL_REDUCE || what == ST_ALL_REDUCE_MAX;

    return reduces ? 2 * block * (ranks - 1) / ranks : block * (ranks - 1);
}

static void count_traffic(const model_run *r, uint32_t what, uint32_t group, int32_t ranks, double block)
{
    model_traffic *t = r->m->traffic_now ? &r->m->traffic_now[group][what] : NULL;

    if (!t || ranks < 2) return;
    t->calls++;
    t->bytes += ring_bytes(what, ranks, block);
}

static const char *const names[MODEL_CALLS] = {
    "", "all_gather", "reduce_scatter", "all_reduce", "all_reduce_max", "all_to_all", "exchange"};

bool st_model_traffic(const st_model *m, int i, st_traffic *out)
{
    for (uint32_t g = 0; g < ST_G_COUNT; g++)
        for (int what = 0; what < MODEL_CALLS; what++) {
            const model_traffic *row = &m->traffic[0][g][what], *end = &m->traffic[1][g][what];
            double rows = st_model_micros(m);
            if (row->calls + end->calls == 0 || i-- > 0) continue;
            *out = (st_traffic){st_group_name(g), names[what], st_mesh_size(&m->mesh, g),
                                rows * (double)row->calls + (double)end->calls, rows * row->bytes + end->bytes};
            return true;
        }
    return false;
}

/* ---- calls ---- */

int model_collect(st_step *s, uint32_t what, uint32_t group, const st_tensor *send, const st_tensor *recv)
{
    model_run *r = run_of(s);
    int64_t n_send = elements(send), n_recv = elements(recv), n;
    int32_t ranks;
    st_comm *comm;

    if (s->status != ST_OK) return s->status;
    ST_TRY(find_group(r, group, &ranks, &comm));
    if (n_send < 0 || n_recv < 0)
        return model_fail(r->m, ST_E_SHAPE, "%s: %s is absent or does not lie in one piece", names[what],
                          n_send < 0 ? "send" : "recv");
    if (send->dtype != recv->dtype)
        return model_fail(r->m, ST_E_SHAPE, "%s: send is of type %d, recv of type %d", names[what], send->dtype,
                          recv->dtype);
    n = count_of(what, ranks, n_send, n_recv);
    if (n < 0)
        return model_fail(r->m, ST_E_SHAPE, "%s over the %d ranks of group %s: send has %lld elements, recv %lld",
                          names[what], ranks, st_group_name(group), (long long)n_send, (long long)n_recv);
    count_traffic(r, what, group, ranks, (double)n * (double)st_dtype_size(send->dtype));
    double bytes = (double)(n_send + n_recv) * (double)st_dtype_size(send->dtype);
    if (ranks == 1 && !r->m->facts.host_memory)
        return ST_LAUNCH_COST(s, names[what], 0, bytes, copy_alone(r, send, recv, n));
    return ST_LAUNCH_COST(s, names[what], 0, bytes, launch(r, what, comm, send, recv, n));
}

int model_collective(st_step *s, uint32_t what, uint32_t group, const st_tensor *send, const st_tensor *recv)
{
    int reduces = what == ST_ALL_REDUCE || what == ST_ALL_REDUCE_MAX;

    if (s->status != ST_OK) return s->status;
    if (what < ST_ALL_GATHER || what > ST_ALL_TO_ALL)
        return model_fail(run_of(s)->m, ST_E_INTERNAL, "collective %u does not exist", what);
    if (send && recv && send->data && send->data == recv->data && !reduces)
        return model_fail(run_of(s)->m, ST_E_SHAPE, "%s: send and recv are the same memory", names[what]);
    return model_collect(s, what, group, send, recv);
}

int model_exchange(st_step *s, uint32_t group, const st_blocks *b)
{
    model_run *r = run_of(s);
    int32_t ranks;
    st_comm *comm;

    if (s->status != ST_OK) return s->status;
    ST_TRY(find_group(r, group, &ranks, &comm));
    count_traffic(r, MODEL_CALLS - 1, group, ranks,
                  (double)b->send.dim[0] / ranks * (double)b->send.dim[1] * (double)st_dtype_size(b->send.dtype));
    double bytes = 2 * (double)b->send.dim[0] * (double)b->send.dim[1] * (double)st_dtype_size(b->send.dtype);
    return ST_LAUNCH_COST(s, "exchange", 0, bytes, r->m->comm_ops.exchange(comm, s->q, b));
}
