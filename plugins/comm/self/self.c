/* SPDX-License-Identifier: Apache-2.0 */
/* comm self: collectives over one rank. Every one of them is then a copy, made at once by the calling thread, so
 * memory must be host memory (the cpu backend's is); another device needs a comm of its own, also for one rank.
 *
 * It takes part wherever a group is passed: sizes, types and ranks are checked as a real transport would, so a wrong
 * call is found on one rank already. While planning nothing is read or written. */
#include <stdlib.h>
#include <strata/comm.h>
#include <string.h>

struct st_comm {
    const st_host *host;
    int aborted;
}; /* aborted: atomic, set by any thread */

#define REFUSE(q, code, ...) ((q)->fail ? (q)->fail((q), (code), __VA_ARGS__) : (code))

static int open_world(void *self, const st_host *host, const st_bootstrap *boot, st_device *device, st_comm **world,
                      st_error *e)
{
    (void)self;
    (void)device;
    *world = NULL;
    if (boot && (boot->ranks != 1 || boot->rank != 0))
        return host->fail(e, ST_E_COMM, __FILE__, __LINE__, "comm self is for one rank, this is rank %d of %d",
                          boot->rank, boot->ranks);
    st_comm *c = calloc(1, sizeof *c);
    if (!c) return host->fail(e, ST_E_NOMEM, __FILE__, __LINE__, "comm self: no memory");
    c->host = host;
    *world = c;
    return ST_OK;
}

static int split(st_comm *c, int32_t colour, int32_t key, st_comm **out, st_error *e)
{
    (void)key;
    *out = NULL;
    return colour == -1 ? ST_OK : open_world(NULL, c->host, NULL, NULL, out, e);
}

static void close_comm(st_comm *c) { free(c); }

static int alive(st_comm *c, const st_queue *q)
{
    return __atomic_load_n(&c->aborted, __ATOMIC_ACQUIRE) ? REFUSE(q, ST_E_COMM, "comm self: the group was aborted")
                                                          : ST_OK;
}

/* send to recv, both n elements. The same address needs no copy; a partial overlap is a mistake of the caller. */
static int move(st_comm *c, const st_queue *q, const char *what, const void *send, void *recv, int64_t n, int32_t dtype)
{
    size_t width = st_dtype_size(dtype);

    ST_TRY(alive(c, q));
    if (!width) return REFUSE(q, ST_E_SHAPE, "%s: unknown element type %d", what, dtype);
    if (n < 0 || (uint64_t)n > SIZE_MAX / 2 / width)
        return REFUSE(q, ST_E_SHAPE, "%s: %lld elements of %zu bytes are no size", what, (long long)n, width);
    size_t bytes = (size_t)n * width;
    if (bytes && (!send || !recv)) return REFUSE(q, ST_E_SHAPE, "%s: %s is absent", what, send ? "recv" : "send");
    uintptr_t a = (uintptr_t)send, b = (uintptr_t)recv;
    if (a != b && bytes && a < b + bytes && b < a + bytes)
        return REFUSE(q, ST_E_SHAPE, "%s: send and recv overlap", what);
    if (q->planning || !bytes || a == b) return ST_OK;
    memcpy(recv, send, bytes);
    return ST_OK;
}

static int known_op(const st_queue *q, const char *what, uint32_t op)
{
    return op == ST_SUM || op == ST_MAX ? ST_OK : REFUSE(q, ST_E_SHAPE, "%s: unknown reduction %u", what, op);
}
static int known_root(const st_queue *q, const char *what, int32_t root)
{
    return root == 0 ? ST_OK : REFUSE(q, ST_E_COMM, "%s: root %d is outside a group of size 1", what, root);
}

static int all_gather(st_comm *c, const st_queue *q, const void *send, void *recv, int64_t n, int32_t dtype)
{
    return move(c, q, "all_gather", send, recv, n, dtype);
}
static int reduce_scatter(st_comm *c, const st_queue *q, const void *send, void *recv, int64_t n, int32_t dtype,
                          uint32_t op)
{
    ST_TRY(known_op(q, "reduce_scatter", op));
    return move(c, q, "reduce_scatter", send, recv, n, dtype);
}
static int all_reduce(st_comm *c, const st_queue *q, const void *send, void *recv, int64_t n, int32_t dtype,
                      uint32_t op)
{
    ST_TRY(known_op(q, "all_reduce", op));
    return move(c, q, "all_reduce", send, recv, n, dtype);
}
static int all_to_all(st_comm *c, const st_queue *q, const void *send, void *recv, int64_t n, int32_t dtype)
{
    return move(c, q, "all_to_all", send, recv, n, dtype);
}
static int reduce(st_comm *c, const st_queue *q, const void *send, void *recv, int64_t n, int32_t dtype, int32_t root)
{
    ST_TRY(known_root(q, "reduce", root));
    return move(c, q, "reduce", send, recv, n, dtype);
}
static int broadcast(st_comm *c, const st_queue *q, void *mem, int64_t n, int32_t dtype, int32_t root)
{
    ST_TRY(known_root(q, "broadcast", root));
    return move(c, q, "broadcast", mem, mem, n, dtype);
}

static int check_blocks(const st_queue *q, const st_blocks *b)
{
    const st_tensor *s = &b->send, *r = &b->recv;

    if (s->nd != 2 || r->nd != 2 || s->dtype != r->dtype || !st_dtype_size(s->dtype))
        return REFUSE(q, ST_E_SHAPE,
                      "exchange: send and recv must be matrices of one type, not %d-d type %d and %d-d type %d", s->nd,
                      s->dtype, r->nd, r->dtype);
    if (s->dim[0] != r->dim[0] || s->dim[1] != r->dim[1])
        return REFUSE(q, ST_E_SHAPE, "exchange: send is %lld x %lld, recv %lld x %lld", (long long)s->dim[0],
                      (long long)s->dim[1], (long long)r->dim[0], (long long)r->dim[1]);
    if (b->n_send.dtype != ST_I32 || b->n_recv.dtype != ST_I32 || b->n_send.dim[0] != 1 || b->n_recv.dim[0] != 1)
        return REFUSE(q, ST_E_SHAPE, "exchange: the counts must be one i32 per rank of a group of size 1");
    return ST_OK;
}

/* Only live rows move: counts are host memory here, so they can be read. */
static int exchange(st_comm *c, const st_queue *q, const st_blocks *b)
{
    ST_TRY(alive(c, q));
    ST_TRY(check_blocks(q, b));
    if (q->planning) return ST_OK;
    int32_t n = *(const int32_t *)b->n_send.data;
    if (n < 0 || n > b->send.dim[0])
        return REFUSE(q, ST_E_COMM, "exchange: %d rows to send, the block holds %lld", n, (long long)b->send.dim[0]);
    size_t width = st_dtype_size(b->send.dtype), row = (size_t)b->send.dim[1] * width;
    for (int32_t i = 0; i < n; i++)
        memcpy((char *)b->recv.data + (size_t)(i * b->recv.stride[0]) * width,
               (const char *)b->send.data + (size_t)(i * b->send.stride[0]) * width, row);
    *(int32_t *)b->n_recv.data = n;
    return ST_OK;
}

static int group(st_comm *c, int begin)
{
    (void)begin;
    return __atomic_load_n(&c->aborted, __ATOMIC_ACQUIRE) ? ST_E_COMM : ST_OK;
}

static int host_reduce(st_comm *c, int64_t *inout, int32_t n, uint32_t op)
{
    if (__atomic_load_n(&c->aborted, __ATOMIC_ACQUIRE)) return ST_E_COMM;
    return n >= 0 && (inout || !n) && (op == ST_SUM || op == ST_MAX) ? ST_OK : ST_E_SHAPE;
}

static int check(st_comm *c, st_error *e)
{
    if (!__atomic_load_n(&c->aborted, __ATOMIC_ACQUIRE)) return ST_OK;
    return c->host->fail(e, ST_E_COMM, __FILE__, __LINE__, "comm self: the group was aborted");
}

static void abort_comm(st_comm *c) { __atomic_store_n(&c->aborted, 1, __ATOMIC_RELEASE); }

static const st_comm_ops ops = {
    .size = sizeof ops,
    .reads_counts = 1,
    .open = open_world,
    .split = split,
    .close = close_comm,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_reduce = all_reduce,
    .all_to_all = all_to_all,
    .exchange = exchange,
    .reduce = reduce,
    .broadcast = broadcast,
    .group = group,
    .host_reduce = host_reduce,
    .check = check,
    .abort = abort_comm,
};

ST_PLUGIN_V1(ST_KIND_COMM, char, ops,
    .caps = ST_CAP_TRAIN | ST_CAP_TENSOR | ST_CAP_CONTEXT | ST_CAP_EXPERT,
    .name = "self",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "the strata authors",
    .summary = "a group of one rank",
    .description = "All collectives of one process, as copies in host memory.")
