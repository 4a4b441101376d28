/* SPDX-License-Identifier: Apache-2.0 */
/* device_cuda.c - device, memory, streams, events and graphs of the kernel module. */
#include "device_cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAVE_NVTX 1
#endif
#endif
#if !defined(HAVE_NVTX) /* a toolkit without the header: ranges are not told */
#define nvtxRangePushA(name) ((void)(name))
#define nvtxRangePop() ((void)0)
#endif

/* For calls that have no record of an error: the runtime's words go to the log. */
static int said(const cuda_device *d, const char *what, cudaError_t e)
{
    if (e == cudaSuccess) return ST_OK;
    cudaGetLastError();
    if (d->host->log) d->host->log(d->host, 1, "cuda", "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
    return e == cudaErrorMemoryAllocation ? ST_E_NOMEM : ST_E_DEVICE;
}

static int worded(const cuda_device *d, const char *what, cudaError_t e, st_error *error)
{
    if (e == cudaSuccess) return ST_OK;
    return d->host->fail(error, ST_E_DEVICE, __FILE__, __LINE__, "cuda device %d: %s: %s (%s)", d->ordinal, what,
                         cudaGetErrorString(e), cudaGetErrorName(e));
}

/* ---- opening ---- */
static int look_at(cuda_device *d, st_error *error)
{
    struct cudaDeviceProp p;
    ST_TRY(worded(d, "it cannot be selected", cudaSetDevice(d->ordinal), error));
    ST_TRY(worded(d, "its properties cannot be read", cudaGetDeviceProperties(&p, d->ordinal), error));
    d->units = p.multiProcessorCount;
    d->gib = (double)p.totalGlobalMem / (1 << 30);
    snprintf(d->name, sizeof d->name, "%s (%d.%d)", p.name, p.major, p.minor);
    return ST_OK;
}

int cuda_run_open(const st_host *host, int ordinal, const st_kernels *kernels, const cuda_self *self,
                  st_device **out, st_error *error)
{
    char words[768];
    cuda_device *d = calloc(1, sizeof *d);
    if (!d) return host->fail(error, ST_E_NOMEM, __FILE__, __LINE__, "cuda: no memory for the device record");
    d->plans = calloc(CUDA_PLANS, cuda_plan_size());
    d->base.table = kernels->table;
    d->host = host;
    d->archs = kernels->archs;
    d->ordinal = ordinal;
    int rc = d->plans ? look_at(d, error)
                      : host->fail(error, ST_E_NOMEM, __FILE__, __LINE__, "cuda: no memory for plans of products");
    if (rc != ST_OK) {
        free(d->plans);
        free(d);
        return rc;
    }
    cuda_attn_library_open(d, self->cudnn);
    cuda_run_describe(&d->base, words, sizeof words);
    if (host->log) host->log(host, 4, "cuda", "%s", words);
    *out = &d->base;
    return ST_OK;
}

static void free_lane(cuda_lane *lane)
{
    if (lane->handle) cublasLtDestroy(lane->handle);
    if (lane->workspace) cudaFree(lane->workspace);
    if (lane->stream) cudaStreamDestroy(lane->stream);
    memset(lane, 0, sizeof *lane);
}

void cuda_run_close(st_device *device)
{
    cuda_device *d = (cuda_device *)device;
    cudaDeviceSynchronize();
    cuda_attn_library_close(d);
    while (d->events) {
        cuda_event *next = d->events->next;
        cudaEventDestroy(d->events->event);
        free(d->events);
        d->events = next;
    }
    for (int i = 0; i < d->n_lanes; i++) free_lane(&d->lane[i]);
    free(d->plans);
    free(d);
}

int cuda_run_describe(const st_device *device, char *out, size_t n)
{
    const cuda_device *d = (const cuda_device *)device;
    snprintf(out, n, "%s, %d units, %.0f GiB, kernels for %s, CUDA %d.%d, cuBLASLt %zu, attention forward: %s, backward: %s",
             d->name, d->units, d->gib, d->archs, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, cublasLtGetVersion(),
             d->attn_words, cuda_attention_backward_words());
    return ST_OK;
}

/* ---- memory ---- */
int cuda_run_memory(const st_device *device, size_t *left, size_t *all)
{
    return said((cuda_device *)(uintptr_t)device, "the device's memory", cudaMemGetInfo(left, all));
}

int cuda_run_alloc(st_device *device, uint32_t kind, size_t bytes, void **out)
{
    const cuda_device *d = (const cuda_device *)device;
    size_t room = bytes ? bytes : 1;
    *out = NULL;
    if (kind == ST_MEM_PINNED) {
        ST_TRY(said(d, "pinned host memory", cudaMallocHost(out, room)));
        memset(*out, 0, room);
        return ST_OK;
    }
    ST_TRY(said(d, "device memory", cudaMalloc(out, room)));
    cudaError_t e = cudaMemset(*out, 0, room);
    if (e == cudaSuccess) e = cudaStreamSynchronize(NULL); /* our streams do not wait for the one that it runs on */
    if (e != cudaSuccess) cudaFree(*out);
    if (e != cudaSuccess) *out = NULL;
    return said(d, "device memory", e);
}

int cuda_run_free(st_device *device, uint32_t kind, void *p)
{
    const cuda_device *d = (const cuda_device *)device;
    return said(d, "freeing memory", kind == ST_MEM_PINNED ? cudaFreeHost(p) : cudaFree(p));
}

int cuda_run_copy(const st_queue *q, void *dst, const void *src, size_t bytes)
{
    if (!bytes) return ST_OK;
    return said(cuda_device_of(q), "copy", cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, q->stream));
}

int cuda_run_set(const st_queue *q, void *dst, int byte, size_t bytes)
{
    if (!bytes) return ST_OK;
    return said(cuda_device_of(q), "set", cudaMemsetAsync(dst, byte, bytes, q->stream));
}

/* ---- queues ---- */
static int make_lane(const cuda_device *d, int priority, cuda_lane *lane)
{
    int least = 0, greatest = 0;
    cudaDeviceGetStreamPriorityRange(&least, &greatest); /* 0 and a negative number: a higher priority is lower */
    ST_TRY(said(d, "stream", cudaStreamCreateWithPriority(&lane->stream, cudaStreamNonBlocking,
                                                          -priority < greatest ? greatest : -priority)));
    ST_TRY(said(d, "workspace of a stream", cudaMalloc(&lane->workspace, CUDA_LANE_WORKSPACE)));
    cublasStatus_t status = cublasLtCreate(&lane->handle);
    if (status == CUBLAS_STATUS_SUCCESS) return ST_OK;
    if (d->host->log) d->host->log(d->host, 1, "cuda", "cublasLtCreate: %s", cublasLtGetStatusString(status));
    return ST_E_DEVICE;
}

int cuda_run_queue(st_device *device, int priority, st_queue *out)
{
    cuda_device *d = (cuda_device *)device;
    if (d->n_lanes == CUDA_LANES) return ST_E_NOMEM;
    cuda_lane *lane = &d->lane[d->n_lanes];
    int rc = make_lane(d, priority, lane);
    if (rc != ST_OK) {
        free_lane(lane);
        return rc;
    }
    d->n_lanes++;
    out->size = sizeof *out;
    out->planning = 0;
    out->stream = lane->stream;
    out->device = d;
    out->sm_limit = 0;
    return ST_OK;
}

int cuda_run_event(st_device *device, st_event **out)
{
    cuda_device *d = (cuda_device *)device;
    cuda_event *e = calloc(1, sizeof *e);
    if (!e) return ST_E_NOMEM;
    int rc = said(d, "event", cudaEventCreate(&e->event));
    if (rc != ST_OK) {
        free(e);
        return rc;
    }
    e->base.table = d->base.table;
    e->next = d->events;
    d->events = e;
    *out = &e->base;
    return ST_OK;
}

int cuda_run_record(const st_queue *q, st_event *e)
{
    return said(cuda_device_of(q), "recording an event", cudaEventRecord(((cuda_event *)e)->event, q->stream));
}

int cuda_run_wait(const st_queue *q, st_event *e)
{
    return said(cuda_device_of(q), "waiting for an event", cudaStreamWaitEvent(q->stream, ((cuda_event *)e)->event, 0));
}

int cuda_run_done(st_event *e)
{
    cudaError_t status = cudaEventQuery(((cuda_event *)e)->event);
    if (status == cudaSuccess) return 1;
    cudaGetLastError();
    return status == cudaErrorNotReady ? 0 : ST_E_DEVICE;
}

int cuda_run_elapsed(st_event *from, st_event *to, double *ms)
{
    float value = 0;
    cudaError_t status = cudaEventElapsedTime(&value, ((cuda_event *)from)->event, ((cuda_event *)to)->event);
    *ms = (double)value;
    if (status == cudaSuccess) return ST_OK;
    cudaGetLastError();
    return ST_E_DEVICE;
}

int cuda_run_sync(st_device *device, st_error *error)
{
    return worded((const cuda_device *)device, "work on it failed", cudaDeviceSynchronize(), error);
}

/* ---- graphs ---- */
int cuda_run_capture_begin(const st_queue *q)
{
    return said(cuda_device_of(q), "capture", cudaStreamBeginCapture(q->stream, cudaStreamCaptureModeThreadLocal));
}

int cuda_run_capture_end(const st_queue *q, st_graph **out, st_error *error)
{
    const cuda_device *d = cuda_device_of(q);
    cuda_graph *g = calloc(1, sizeof *g);
    int rc;
    if (!g) return d->host->fail(error, ST_E_NOMEM, __FILE__, __LINE__, "cuda: no memory for a graph");
    g->base.table = d->base.table;
    ST_TRY_GOTO(rc, worded(d, "the step was not captured", cudaStreamEndCapture(q->stream, &g->graph), error), fail);
    ST_TRY_GOTO(rc, worded(d, "the captured step is refused", cudaGraphInstantiate(&g->exec, g->graph, 0), error), fail);
    ST_TRY_GOTO(rc, worded(d, "the captured step is not taken", cudaGraphUpload(g->exec, q->stream), error), fail);
    *out = &g->base;
    return ST_OK;
fail:
    cuda_run_graph_free(&g->base);
    return rc;
}

int cuda_run_replay(const st_queue *q, st_graph *g)
{
    return said(cuda_device_of(q), "replay", cudaGraphLaunch(((cuda_graph *)g)->exec, q->stream));
}

int cuda_run_graph_free(st_graph *graph)
{
    cuda_graph *g = (cuda_graph *)graph;
    if (g->exec) cudaGraphExecDestroy(g->exec);
    if (g->graph) cudaGraphDestroy(g->graph);
    free(g);
    return ST_OK;
}

/* ---- ranges: where no tool listens, these look at a pointer and return ---- */
int cuda_run_range_push(st_device *device, const char *name)
{
    nvtxRangePushA(name);
    return ST_OK;
}

int cuda_run_range_pop(st_device *device)
{
    nvtxRangePop();
    return ST_OK;
}
