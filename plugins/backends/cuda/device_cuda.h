/* SPDX-License-Identifier: Apache-2.0 */
/* device_cuda.h - the device as the C files of the kernel module see it. */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H
#include "cuda.h"
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <strata/cuda.h>

enum { CUDA_LANES = 16, CUDA_PLANS = 1024 };
typedef struct cuda_event { st_event base; struct cuda_event *next; cudaEvent_t event; } cuda_event;
typedef struct cuda_graph { st_graph base; cudaGraph_t graph; cudaGraphExec_t exec; } cuda_graph;
/* A lane: products on it share one handle and one workspace, so their bits do not depend on other lanes. */
typedef struct cuda_lane { cudaStream_t stream; cublasLtHandle_t handle; void *workspace; } cuda_lane;

typedef struct cuda_device {
    st_device base;
    const st_host *host;
    const char *archs;
    int ordinal, units, n_lanes;
    char name[320];
    double gib;
    cuda_lane lane[CUDA_LANES];
    cuda_event *events; /* freed on close */
    struct cuda_attn_library *attn_library; /* NULL: own kernels only */
    char attn_words[160];    /* what computes attention forward in bf16 */
    struct cuda_plan *plans; /* [CUDA_PLANS], see product_cuda.c */
} cuda_device;

size_t cuda_plan_size(void);
const char *cuda_attention_backward_words(void); /* what computes attention backward in bf16 on the current device */
/* Sets attn_words in any case. */
#ifdef CUDA_WITH_CUDNN
void cuda_attn_library_open(cuda_device *, int wanted);
void cuda_attn_library_close(cuda_device *);
#else
ST_FN void cuda_attn_library_open(cuda_device *d, int wanted)
{
    snprintf(d->attn_words, sizeof d->attn_words, "own kernels (built without cudnn_graph.h)");
}
ST_FN void cuda_attn_library_close(cuda_device *d) {}
#endif
ST_FN cuda_device *cuda_device_of(const st_queue *q) { return (cuda_device *)q->device; }
ST_FN const cuda_lane *cuda_lane_of(const st_queue *q) /* NULL: not a queue of this device */
{
    const cuda_device *d = cuda_device_of(q);
    for (int i = 0; i < d->n_lanes; i++)
        if (d->lane[i].stream == q->stream) return &d->lane[i];
    return NULL;
}
#endif
