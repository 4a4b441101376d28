/* SPDX-License-Identifier: Apache-2.0 */
/* strata/backend.h - a kind of device. `<name>.so` is plain C and loads everywhere: facts, shape checks, workspace formulas and
 * op entries. What touches the device sits in its kernel module (st_kernels), which the host loads for open(). */
#ifndef STRATA_BACKEND_H
#define STRATA_BACKEND_H
#include <strata/ops.h>

typedef struct st_facts {           /* pure: enough to plan without a device                                                  */
    uint32_t size, dtypes;          /* dtypes: bit per ST_<type>                                                              */
    int32_t align, tile;            /* bytes; row capacities are rounded up to tile                                           */
    size_t lane_workspace;          /* one fixed block per lane for GEMM libraries; never asked of a library                  */
    int32_t host_memory, pad;       /* 1: ST_MEM_DEVICE is memory that the host may read and write                            */
} st_facts;

enum { ST_MEM_DEVICE = 1, ST_MEM_PINNED };
typedef struct st_event st_event;
typedef struct st_graph st_graph;

typedef struct st_backend_ops {
    uint32_t size, pad;
    const st_ops *ops;
    int (*facts)(const void *self, st_facts *);
    int (*count)(const void *self, const st_host *, const char **why); /* devices usable now; 0 and the reason                */
    int (*open)(void *self, const st_host *, int ordinal, const st_kernels *, st_device **, st_error *);
    void (*close)(st_device *);
    int (*alloc)(st_device *, uint32_t kind, size_t bytes, void **out); /* at start only                                      */
    int (*free)(st_device *, uint32_t kind, void *);
    int (*queue)(st_device *, int priority, st_queue *out);
    int (*event)(st_device *, st_event **out);
    int (*record)(const st_queue *, st_event *);
    int (*wait)(const st_queue *, st_event *);                         /* the queue waits, not the host                       */
    int (*done)(st_event *);                                           /* 1 done, 0 not yet, negative error; never blocks     */
    int (*elapsed)(st_event *from, st_event *to, double *ms);
    int (*copy)(const st_queue *, void *dst, const void *src, size_t); /* device and pinned, any pairing                      */
    int (*set)(const st_queue *, void *dst, int byte, size_t);
    int (*sync)(st_device *, st_error *);                              /* host waits: start, end and save only                */
    int (*capture_begin)(const st_queue *);                            /* (optional) other queues join by record and wait     */
    int (*capture_end)(const st_queue *, st_graph **out, st_error *);
    int (*replay)(const st_queue *, st_graph *);
    int (*graph_free)(st_graph *);
    int (*describe)(const st_device *, char *out, size_t n);           /* (optional) words for logs: "2 threads, OpenBLAS ..." */
    int (*memory)(const st_device *, size_t *free, size_t *total);     /* (optional) bytes of device memory, as its driver says */
    int (*accepts)(const void *self, const st_host *, int ordinal, const char *archs, st_error *);
                                            /* (optional) does a device, not opened, run kernels built for st_kernels.archs? */
    int (*range_push)(st_device *, const char *name); /* (optional) for tools that draw a time line: what is enqueued */
    int (*range_pop)(st_device *);                    /* until the pop belongs to it; they nest                      */
} st_backend_ops;
#endif
