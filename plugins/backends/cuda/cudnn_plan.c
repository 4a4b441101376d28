/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_plan.c - see cudnn_plan.h. */
#include "cudnn_plan.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcudnn.so.9"
enum { OLDEST = 91400 }; /* the first that was seen to be right; 9.10.0 and 9.10.1 are known not to be */

/* ---- the library ---- */
static bool find_calls(cudnn_library *lib, void *file, char *why, size_t n)
{
#define FIND(name) \
    { \
        void *at = dlsym(file, #name); \
        if (!at) return snprintf(why, n, LIBRARY " has no " #name), false; \
        memcpy(&lib->name, &at, sizeof at); \
    }
    CUDNN_CALLS(FIND)
#undef FIND
    return true;
}

bool cudnn_open(cudnn_library *lib, char *why, size_t n)
{
    void *file = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL); /* stays open, as its kernels may */
    *lib = (cudnn_library){.handle = NULL};
    if (!file) return snprintf(why, n, "%s", dlerror()), false;
    if (!find_calls(lib, file, why, n)) return false;
    size_t version = lib->cudnnGetVersion();
    if (version >= OLDEST) return true;
    return snprintf(why, n, "cuDNN %zu.%zu.%zu is older than 9.14", version / 10000, version / 100 % 100,
                    version % 100),
           false;
}

void cudnn_close(cudnn_library *lib)
{
    if (lib->handle) lib->cudnnDestroy(lib->handle);
    lib->handle = NULL;
}

/* ---- parts ---- */
static void check(cudnn_graph *g, cudnnStatus_t status, const char *what)
{
    char words[CUDNN_REASON / 2] = "";
    if (status == CUDNN_STATUS_SUCCESS || g->failed) return;
    g->failed = true;
    g->lib->cudnnGetLastErrorString(words, sizeof words);
    snprintf(g->reason, sizeof g->reason, "%s: %s %s", what, g->lib->cudnnGetErrorString(status), words);
}

cudnn_graph cudnn_begin(cudnn_library *lib)
{
    cudnn_graph g = {.lib = lib};
    if (!lib->handle) check(&g, lib->cudnnCreate(&lib->handle), "the library does not start");
    return g;
}

static cudnn_part new_part(cudnn_graph *g, cudnnBackendDescriptorType_t type, const char *what)
{
    cudnn_part part = NULL;
    if (g->failed) return NULL;
    if (g->n_parts == CUDNN_PARTS) check(g, CUDNN_STATUS_ALLOC_FAILED, what);
    else check(g, g->lib->cudnnBackendCreateDescriptor(type, &part), what);
    if (part) g->part[g->n_parts++] = part;
    return part;
}

static void set(cudnn_graph *g, cudnn_part part, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t n, const void *value)
{
    char what[40];
    if (g->failed) return;
    snprintf(what, sizeof what, "attribute %d", (int)name);
    check(g, g->lib->cudnnBackendSetAttribute(part, name, type, n, value), what);
}
static void set_part(cudnn_graph *g, cudnn_part part, cudnnBackendAttributeName_t name, cudnn_part value)
{
    if (value) set(g, part, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finish(cudnn_graph *g, cudnn_part part, const char *what)
{
    if (!g->failed) check(g, g->lib->cudnnBackendFinalize(part), what);
}
static void finish_op(cudnn_graph *g, cudnn_part op, const char *what)
{
    if (g->n_ops == CUDNN_OPS) check(g, CUDNN_STATUS_ALLOC_FAILED, what);
    finish(g, op, what);
    if (!g->failed) g->op[g->n_ops++] = op;
}

/* ---- tensors ---- */
cudnn_part cudnn_tensor_part(cudnn_graph *g, const cudnn_tensor *t)
{
    cudnn_part part = new_part(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor");
    int64_t uid = t->uid ? t->uid : CUDNN_UIDS + g->n_between++, align = t->by_value ? 4 : 16;
    bool is_virtual = !t->uid;
    set(g, part, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(g, part, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type);
    set(g, part, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    set(g, part, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t->dim);
    set(g, part, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t->stride);
    set(g, part, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(g, part, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &t->by_value);
    set_part(g, part, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, t->offsets);
    finish(g, part, "tensor");
    return part;
}

cudnn_part cudnn_between(cudnn_graph *g, cudnnDataType_t type, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    return cudnn_tensor_part(
        g, &(cudnn_tensor){.dim = {d0, d1, d2, d3}, .stride = {d1 * d2 * d3, d2 * d3, d3, 1}, .type = type});
}

/* ---- operations ---- */
void cudnn_add_pointwise(cudnn_graph *g, const cudnn_pointwise *p)
{
    cudnn_part how = new_part(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise");
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p->mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p->math);
    if (p->mode == CUDNN_POINTWISE_GEN_INDEX) set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p->axis);
    finish(g, how, "pointwise");
    cudnn_part op = new_part(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise operation");
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p->x);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p->b);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p->t);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p->y);
    finish_op(g, op, "pointwise operation");
}

void cudnn_add_reduction(cudnn_graph *g, cudnnReduceTensorOp_t what, cudnn_part x, cudnn_part y)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnn_part how = new_part(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "reduction");
    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &what);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finish(g, how, "reduction");
    cudnn_part op = new_part(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduction operation");
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    finish_op(g, op, "reduction operation");
}

void cudnn_add_matmul(cudnn_graph *g, const cudnn_matmul *p)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    double padding = 0;
    cudnn_part how = new_part(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "matmul");
    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, how, CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE, 1, &padding);
    finish(g, how, "matmul");
    cudnn_part op = new_part(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "matmul operation");
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, p->a);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, p->b);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, p->c);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, p->m);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, p->n);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, p->k);
    finish_op(g, op, "matmul operation");
}

/* ---- plans ---- */
/* A plan of one of the heuristic's answers; NULL when it cannot be had. */
static cudnn_part plan_of(const cudnn_library *lib, cudnn_part config, size_t workspace)
{
    cudnn_part plan = NULL;
    int64_t bytes = 0, n = 0;
    if (lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (lib->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &lib->handle) ==
            CUDNN_STATUS_SUCCESS &&
        lib->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                      &config) == CUDNN_STATUS_SUCCESS &&
        lib->cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
        lib->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                      &bytes) == CUDNN_STATUS_SUCCESS &&
        (size_t)bytes <= workspace)
        return plan;
    lib->cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

cudnn_part cudnn_plan(cudnn_graph *g, size_t workspace)
{
    enum { ANSWERS = 8 };
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnn_part answer[ANSWERS], plan = NULL;
    int64_t found = 0;
    cudnn_part all = new_part(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph of operations");
    set(g, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->lib->handle);
    set(g, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->op);
    finish(g, all, "graph of operations");
    cudnn_part ask = new_part(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristic");
    set_part(g, ask, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, all);
    set(g, ask, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finish(g, ask, "heuristic");
    for (int i = 0; i < ANSWERS; i++) answer[i] = new_part(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "answer");
    if (!g->failed)
        check(g,
              g->lib->cudnnBackendGetAttribute(ask, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                               ANSWERS, &found, answer),
              "answers");
    for (int i = 0; i < found && !g->failed && !plan; i++) plan = plan_of(g->lib, answer[i], workspace);
    if (!plan) check(g, CUDNN_STATUS_NOT_SUPPORTED, found ? "no plan runs here" : "no answer");
    return plan;
}

void cudnn_graph_clear(cudnn_graph *g)
{
    while (g->n_parts) g->lib->cudnnBackendDestroyDescriptor(g->part[--g->n_parts]);
    g->n_ops = 0;
}

#define TRY(call) \
    if (status == CUDNN_STATUS_SUCCESS) status = (call)
cudnnStatus_t cudnn_execute(cudnn_library *lib, cudaStream_t stream, cudnn_part plan, int n, const int64_t *uid,
                            void *const *data, void *workspace)
{
    cudnn_part pack = NULL;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (lib->stream != stream) TRY(lib->cudnnSetStream(lib->handle, stream));
    if (status == CUDNN_STATUS_SUCCESS) lib->stream = stream;
    TRY(lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    TRY(lib->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uid));
    TRY(lib->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data));
    TRY(lib->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    TRY(lib->cudnnBackendFinalize(pack));
    TRY(lib->cudnnBackendExecute(lib->handle, plan, pack));
    if (pack) lib->cudnnBackendDestroyDescriptor(pack);
    return status;
}
#undef TRY
