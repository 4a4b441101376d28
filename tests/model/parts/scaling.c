/* SPDX-License-Identifier: Apache-2.0 */
/* A comm over one rank whose collectives can be told apart by what they do to doubles: each multiplies by a factor of
 * its own. */
#include <stdlib.h>
#include <strata/comm.h>

struct st_comm { int32_t ranks; };
enum { GATHER = 2, SCATTER = 3, SUM = 5, LARGEST = 7, TO_ALL = 11 };

static int open_world(void *self, const st_host *host, const st_bootstrap *b, st_device *d, st_comm **out, st_error *e)
{
    *out = calloc(1, sizeof **out);
    return *out ? ST_OK : ST_E_NOMEM;
}
static int split(st_comm *c, int32_t colour, int32_t key, st_comm **out, st_error *e)
{ return open_world(NULL, NULL, NULL, NULL, out, e); }
static void close_comm(st_comm *c) { free(c); }

static int scale(const void *send, void *recv, int64_t n, int32_t dtype, double by)
{
    if (dtype != ST_F64) return ST_E_UNSUPPORTED;
    for (int64_t i = 0; i < n; i++) ((double *)recv)[i] = by * ((const double *)send)[i];
    return ST_OK;
}
static int all_gather(st_comm *c, const st_queue *q, const void *send, void *recv, int64_t n, int32_t dtype)
{ return scale(send, recv, n, dtype, GATHER); }
static int reduce_scatter(st_comm *c, const st_queue *q, const void *send, void *recv, int64_t n, int32_t dtype,
                          uint32_t op)
{ return scale(send, recv, n, dtype, SCATTER); }
static int all_reduce(st_comm *c, const st_queue *q, const void *send, void *recv, int64_t n, int32_t dtype,
                      uint32_t op)
{ return scale(send, recv, n, dtype, op == ST_MAX ? LARGEST : SUM); }
static int all_to_all(st_comm *c, const st_queue *q, const void *send, void *recv, int64_t n, int32_t dtype)
{ return scale(send, recv, n, dtype, TO_ALL); }
static int exchange(st_comm *c, const st_queue *q, const st_blocks *b) { return ST_E_UNSUPPORTED; }
static int reduce(st_comm *c, const st_queue *q, const void *send, void *recv, int64_t n, int32_t dtype, int32_t root)
{ return ST_E_UNSUPPORTED; }
static int broadcast(st_comm *c, const st_queue *q, void *mem, int64_t n, int32_t dtype, int32_t root)
{ return ST_E_UNSUPPORTED; }
static int group(st_comm *c, int begin) { return ST_OK; }
static int host_reduce(st_comm *c, int64_t *inout, int32_t n, uint32_t op) { return ST_OK; }
static int check(st_comm *c, st_error *e) { return ST_OK; }
static void abort_comm(st_comm *c) { c->ranks = -1; }

static const st_comm_ops ops = {.size = sizeof ops,
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
                                .abort = abort_comm};

ST_PLUGIN_V1(ST_KIND_COMM, char, ops,
    .name = "scaling",
    .version = "0.1",
    .license = "Apache-2.0",
    .author = "tests",
    .summary = "collectives that can be told apart",
    .description = "")
