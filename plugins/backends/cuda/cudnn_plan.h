/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_plan.h - graphs of operations for cuDNN, by its C interface alone, and the plans that it makes of them.
 *
 * The library is opened when a device is, not linked: a machine without it still loads the backend. A graph is described
 * call by call; the first failure stays in it, and calls behind it do nothing, so that one look at the end is enough. */
#ifndef CUDA_CUDNN_PLAN_H
#define CUDA_CUDNN_PLAN_H
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <stdbool.h>
#include <stddef.h>

#define CUDNN_CALLS(X) \
    X(cudnnGetVersion) \
    X(cudnnGetErrorString) X(cudnnGetLastErrorString) X(cudnnCreate) X(cudnnDestroy) X(cudnnSetStream) \
        X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor) X(cudnnBackendSetAttribute) \
            X(cudnnBackendGetAttribute) X(cudnnBackendFinalize) X(cudnnBackendExecute)
#define CUDNN_MEMBER(name) __typeof__(name) *name;
typedef struct cudnn_library {
    CUDNN_CALLS(CUDNN_MEMBER)
    cudnnHandle_t handle; /* made for the first graph */
    cudaStream_t stream;  /* that the handle works on */
} cudnn_library;
typedef cudnnBackendDescriptor_t cudnn_part;

/* false: why says, in words, what stands in the way */
bool cudnn_open(cudnn_library *, char *why, size_t n);
void cudnn_close(cudnn_library *);

enum {
    CUDNN_PARTS = 128,
    CUDNN_OPS = 32,
    CUDNN_REASON = 256,
    CUDNN_UIDS = 1000
}; /* uids of tensors with memory are smaller */
typedef struct cudnn_graph {
    const cudnn_library *lib;
    cudnn_part part[CUDNN_PARTS], op[CUDNN_OPS]; /* all but the plan; the operations among them */
    int n_parts, n_ops;
    int64_t n_between;
    bool failed;
    char reason[CUDNN_REASON];
} cudnn_graph;

/* Four dimensions; uid 0: a value between operations, that has no memory. */
typedef struct cudnn_tensor {
    int64_t uid, dim[4], stride[4];
    cudnnDataType_t type;
    bool by_value;      /* from the host's memory */
    cudnn_part offsets; /* NULL, or first element of each entry of dim[0] */
} cudnn_tensor;

cudnn_graph cudnn_begin(cudnn_library *);
cudnn_part cudnn_tensor_part(cudnn_graph *, const cudnn_tensor *);
/* A value between operations, without gaps. */
cudnn_part cudnn_between(cudnn_graph *, cudnnDataType_t, int64_t d0, int64_t d1, int64_t d2, int64_t d3);
/* y = mode(x, b, t); what a mode does not take is NULL. axis: of CUDNN_POINTWISE_GEN_INDEX, else -1 */
typedef struct cudnn_pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t math;
    cudnn_part x, b, t, y;
    int64_t axis;
} cudnn_pointwise;
void cudnn_add_pointwise(cudnn_graph *, const cudnn_pointwise *);
void cudnn_add_reduction(cudnn_graph *, cudnnReduceTensorOp_t, cudnn_part x, cudnn_part y);
/* c = a b in f32; m, n, k: sizes of each entry, NULL: those of the tensors */
typedef struct cudnn_matmul {
    cudnn_part a, b, c, m, n, k;
} cudnn_matmul;
void cudnn_add_matmul(cudnn_graph *, const cudnn_matmul *);

/* The first of the heuristic's answers that can be had with so many bytes of workspace: never timed, so it is the same in
 * every run. NULL: g->reason says why. */
cudnn_part cudnn_plan(cudnn_graph *, size_t workspace);
void cudnn_graph_clear(cudnn_graph *); /* the plan stays */
cudnnStatus_t cudnn_execute(cudnn_library *, cudaStream_t, cudnn_part plan, int n, const int64_t *uid,
                            void *const *data, void *workspace);
#endif
