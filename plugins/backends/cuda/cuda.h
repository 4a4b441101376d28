/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - inside the cuda backend: what the logic module (plain C, loads everywhere) and the kernel module (the only one
 * that knows the CUDA runtime) share. */
#ifndef CUDA_H
#define CUDA_H
#include <strata/backend.h>

enum { CUDA_IFACE = 1 };

/* Elements of up to CUDA_WALKED tensors of one shape, walked together. Dimensions that all of them have without a gap are
 * merged; the last one has stride 1 unless `last` says otherwise. data NULL: absent. */
enum { CUDA_WALKED = 5 };
typedef struct cuda_walk {
    int64_t dim[ST_DIMS];                 /* dim[ST_DIMS - 1] is the innermost */
    int64_t stride[CUDA_WALKED][ST_DIMS]; /* elements */
    void *data[CUDA_WALKED];
    int32_t type[CUDA_WALKED];
} cuda_walk;

#define CUDA_DEVICE_ENTRIES(X) \
    X(open, (const st_host *, int ordinal, const st_kernels *, st_device **, st_error *)) \
    X(alloc, (st_device *, uint32_t kind, size_t bytes, void **out)) \
    X(free, (st_device *, uint32_t kind, void *)) \
    X(queue, (st_device *, int priority, st_queue *)) \
    X(event, (st_device *, st_event **)) \
    X(record, (const st_queue *, st_event *)) \
    X(wait, (const st_queue *, st_event *)) \
    X(done, (st_event *)) \
    X(elapsed, (st_event *from, st_event *to, double *ms)) \
    X(copy, (const st_queue *, void *dst, const void *src, size_t)) \
    X(set, (const st_queue *, void *dst, int byte, size_t)) \
    X(sync, (st_device *, st_error *)) \
    X(capture_begin, (const st_queue *)) \
    X(capture_end, (const st_queue *, st_graph **, st_error *)) \
    X(replay, (const st_queue *, st_graph *)) \
    X(graph_free, (st_graph *)) \
    X(describe, (const st_device *, char *out, size_t n))

#define CUDA_OP_ENTRIES(X) \
    X(fill, (const st_queue *, const cuda_walk *, double value))

/* The private table of the kernel module. */
#define CUDA_MEMBER(name, args) int (*name) args;
typedef struct cuda_table {
    CUDA_DEVICE_ENTRIES(CUDA_MEMBER)
    CUDA_OP_ENTRIES(CUDA_MEMBER)
    void (*close)(st_device *);
} cuda_table;

/* Entries of the kernel module are cuda_run_<name>. */
#if defined(__cplusplus)
extern "C" {
#endif
#define CUDA_DECLARE(name, args) int cuda_run_##name args;
CUDA_DEVICE_ENTRIES(CUDA_DECLARE)
CUDA_OP_ENTRIES(CUDA_DECLARE)
void cuda_run_close(st_device *);
int cuda_has_image(void); /* 1: this module holds code for the current device */
#if defined(__cplusplus)
}
#endif

/* These begin with the table, so that the logic module finds its way back. */
struct st_device { const cuda_table *table; };
struct st_event { const cuda_table *table; };
struct st_graph { const cuda_table *table; };
ST_FN const cuda_table *cuda_table_of(const st_queue *q) { return ((const st_device *)q->device)->table; }
#endif
