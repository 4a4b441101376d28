/* SPDX-License-Identifier: Apache-2.0 */
/* strata/comm.h - collectives over a set of ranks. Device calls only enqueue and may be captured; host calls may block. */
#ifndef STRATA_COMM_H
#define STRATA_COMM_H
#include <strata/step.h>

typedef struct st_comm st_comm;

typedef struct st_bootstrap {       /* how ranks meet first; made by the host from mpirun/srun, or RANK, WORLD_SIZE, MASTER_ADDR */
    uint32_t size;
    int32_t rank, ranks, local_rank;
    void *ctx;
    int (*all_gather)(void *ctx, const void *send, void *recv, size_t bytes); /* blocks; one call at a time                   */
} st_bootstrap;

typedef struct st_comm_ops {
    uint32_t size;
    int32_t reads_counts;           /* exchange moves live rows only (1) or whole blocks (0); planning counts bytes by it     */
    /* The bootstrap is the host's during this call only. */
    int (*open)(void *self, const st_host *, const st_bootstrap *, st_device *, st_comm **world, st_error *);
    int (*split)(st_comm *, int32_t colour, int32_t key, st_comm **out, st_error *); /* all ranks call; colour -1: not in it  */
    void (*close)(st_comm *);
    int (*alloc)(st_comm *, size_t bytes, void **out);                 /* (optional) device memory that peers reach; at start,
                                                                        * same order and size on all ranks; NULL: any memory  */
    /* In place: the rank's block of all_gather and reduce_scatter where it lies in the whole; send = recv of all_reduce.      */
    int (*all_gather)(st_comm *, const st_queue *, const void *send, void *recv, int64_t n, int32_t dtype); /* n: per rank    */
    int (*reduce_scatter)(st_comm *, const st_queue *, const void *send, void *recv, int64_t n, int32_t dtype, uint32_t op);
    int (*all_reduce)(st_comm *, const st_queue *, const void *send, void *recv, int64_t n, int32_t dtype, uint32_t op);
    int (*all_to_all)(st_comm *, const st_queue *, const void *send, void *recv, int64_t n, int32_t dtype);
    int (*exchange)(st_comm *, const st_queue *, const st_blocks *);
    int (*reduce)(st_comm *, const st_queue *, const void *send, void *recv, int64_t n, int32_t dtype, int32_t root);
    int (*broadcast)(st_comm *, const st_queue *, void *mem, int64_t n, int32_t dtype, int32_t root);
    int (*group)(st_comm *, int begin);                                /* 1: collect calls, 0: launch them together           */
    int (*host_reduce)(st_comm *, int64_t *inout, int32_t n, uint32_t op);
    int (*check)(st_comm *, st_error *);                               /* asynchronous errors; watchdog thread; never blocks  */
    void (*abort)(st_comm *);                                          /* any thread; pending work fails                      */
} st_comm_ops;
#endif
