/* SPDX-License-Identifier: Apache-2.0 */
/* product_cuda.c - products by cuBLASLt. The library counts columns first, so c = a b is asked of it as c^T = b^T a^T with the
 * same memory. Which algorithm runs is the first answer of its heuristic, kept for each shape: timing candidates would let
 * bits differ from run to run. */
#include "device_cuda.h"
#include <stdbool.h>
#include <string.h>

/* All that the heuristic's answer depends on; compared byte by byte, so it has no gaps. */
typedef struct plan_key {
    int64_t m, n, k, batch, lda, ldb, ldc, s_a, s_b, s_c;
    int32_t type, type_c, trans_a, trans_b, bias, beta, align_a, align_b, align_c, align_bias;
} plan_key;
struct cuda_plan { plan_key key; cublasLtMatmulAlgo_t algo; int used; };

size_t cuda_plan_size(void) { return sizeof(struct cuda_plan); }

static cudaDataType_t data_type(int32_t type) { return type == ST_F32 ? CUDA_R_32F : CUDA_R_16BF; }

/* Bytes, a power of two up to 256, that divide an address and the distance between entries of a batch. */
static int32_t alignment(const void *p, int64_t stride, int32_t type)
{
    uint64_t all = (uint64_t)(uintptr_t)p | (uint64_t)(stride * (int64_t)st_dtype_size(type)) | 256;
    return (int32_t)(all & (~all + 1));
}

static plan_key key_of(const cuda_product *p, const void *bias)
{
    plan_key k;
    memset(&k, 0, sizeof k);
    k.m = p->m; k.n = p->n; k.k = p->k; k.batch = p->batch;
    k.lda = p->lda; k.ldb = p->ldb; k.ldc = p->ldc;
    k.s_a = p->s_a; k.s_b = p->s_b; k.s_c = p->s_c;
    k.type = p->type; k.type_c = p->type_c; k.trans_a = p->trans_a; k.trans_b = p->trans_b;
    k.bias = bias != NULL;
    k.beta = p->beta != 0;
    k.align_a = alignment(p->a, p->s_a, p->type);
    k.align_b = alignment(p->b, p->s_b, p->type);
    k.align_c = alignment(p->c, p->s_c, p->type_c);
    k.align_bias = bias ? alignment(bias, 0, p->type_c) : 0;
    return k;
}

typedef struct problem {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, c;
} problem;

static cublasStatus_t layout(cublasLtMatrixLayout_t l, int32_t type, int64_t rows, int64_t cols, int64_t ld,
                             int64_t batch, int64_t stride)
{
    int32_t count = (int32_t)batch;
    cublasStatus_t s = cublasLtMatrixLayoutInit(l, data_type(type), (uint64_t)rows, (uint64_t)cols, ld);
    if (s == CUBLAS_STATUS_SUCCESS && batch > 1) {
        s = cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
        if (s == CUBLAS_STATUS_SUCCESS)
            s = cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    }
    return s;
}

#define LT_TRY(call) do { cublasStatus_t s_ = (call); if (s_ != CUBLAS_STATUS_SUCCESS) return s_; } while (0)

/* In the library's words: its a is our b, its b our a. */
static cublasStatus_t describe_problem(const cuda_product *p, const void *bias, problem *lt)
{
    cublasOperation_t op_a = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    LT_TRY(cublasLtMatmulDescInit(&lt->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT_TRY(cublasLtMatmulDescSetAttribute(&lt->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a));
    LT_TRY(cublasLtMatmulDescSetAttribute(&lt->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b));
    if (bias) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        cudaDataType_t type = data_type(p->type_c);
        LT_TRY(cublasLtMatmulDescSetAttribute(&lt->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
        LT_TRY(cublasLtMatmulDescSetAttribute(&lt->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
        LT_TRY(cublasLtMatmulDescSetAttribute(&lt->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    }
    LT_TRY(layout(&lt->a, p->type, p->trans_b ? p->k : p->n, p->trans_b ? p->n : p->k, p->ldb, p->batch, p->s_b));
    LT_TRY(layout(&lt->b, p->type, p->trans_a ? p->m : p->k, p->trans_a ? p->k : p->m, p->lda, p->batch, p->s_a));
    return layout(&lt->c, p->type_c, p->n, p->m, p->ldc, p->batch, p->s_c);
}

static cublasStatus_t ask(cublasLtHandle_t handle, problem *lt, const plan_key *key, cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulPreferenceOpaque_t want;
    cublasLtMatmulHeuristicResult_t result;
    uint64_t workspace = CUDA_LANE_WORKSPACE;
    uint32_t a = (uint32_t)key->align_b, b = (uint32_t)key->align_a, c = (uint32_t)key->align_c;
    int found = 0;
    LT_TRY(cublasLtMatmulPreferenceInit(&want));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(&want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(&want, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(&want, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(&want, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(&want, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c));
    LT_TRY(cublasLtMatmulAlgoGetHeuristic(handle, &lt->desc, &lt->a, &lt->b, &lt->c, &lt->c, &want, 1, &result, &found));
    if (!found) return CUBLAS_STATUS_NOT_SUPPORTED;
    *algo = result.algo;
    return result.state;
}

static uint64_t hash_of(const plan_key *key) /* FNV-1a */
{
    const unsigned char *p = (const unsigned char *)key;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof *key; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* Where the key's plan is or may go: within a few places of its own, which is taken over when they are full. */
static struct cuda_plan *place_of(cuda_device *d, const plan_key *key)
{
    enum { NEAR = 8 };
    uint64_t home = hash_of(key) % CUDA_PLANS;
    for (uint64_t i = 0; i < NEAR; i++) {
        struct cuda_plan *p = &d->plans[(home + i) % CUDA_PLANS];
        if (!p->used || !memcmp(&p->key, key, sizeof *key)) return p;
    }
    d->plans[home].used = 0;
    return &d->plans[home];
}

static cublasStatus_t multiply(const st_queue *q, const cuda_product *p, const void *bias)
{
    cuda_device *d = cuda_device_of(q);
    const cuda_lane *lane = cuda_lane_of(q);
    problem lt;
    plan_key key = key_of(p, bias);
    struct cuda_plan *plan = place_of(d, &key);
    float alpha = (float)p->alpha, beta = p->beta;
    LT_TRY(describe_problem(p, bias, &lt));
    if (!plan->used) {
        LT_TRY(ask(lane->handle, &lt, &key, &plan->algo));
        plan->key = key;
        plan->used = 1;
    }
    return cublasLtMatmul(lane->handle, &lt.desc, &alpha, p->b, &lt.a, p->a, &lt.b, &beta, p->c, &lt.c, p->c, &lt.c,
                          &plan->algo, lane->workspace, CUDA_LANE_WORKSPACE, lane->stream);
}

/* What the library does not do is done by finish: act, biases of another type, values before act, sums over nothing. */
int cuda_run_product(const st_queue *q, const cuda_product *p)
{
    cuda_product lib = *p;
    bool plain = p->act == ST_ACT_NONE && !p->aux, with_bias = plain && p->bias && p->type_bias == p->type_c;
    if (p->aux) {
        lib.c = p->aux; lib.ldc = p->ldaux; lib.s_c = p->s_aux; lib.type_c = p->type_aux;
        lib.beta = 0;
    } else if (p->room) {
        lib.c = p->room; lib.ldc = p->n; lib.s_c = p->m * p->n;
        lib.beta = 0;
    }
    if (p->k) {
        if (!cuda_lane_of(q)) return q->fail(q, ST_E_INTERNAL, "gemm: the stream is none of this device's queues");
        cublasStatus_t s = multiply(q, &lib, with_bias ? p->bias : NULL);
        if (s != CUBLAS_STATUS_SUCCESS)
            return q->fail(q, ST_E_DEVICE, "gemm: cuBLASLt cannot multiply %lld x %lld by %lld x %lld of %s into %s: %s",
                           (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n,
                           p->type == ST_F32 ? "f32" : "bf16", lib.type_c == ST_F32 ? "f32" : "bf16",
                           cublasLtGetStatusString(s));
        if (plain && (with_bias || !p->bias)) return ST_OK;
        lib.beta = plain ? 0 : p->beta; /* the old c is in the sum already */
        return cuda_finish(q, p, lib.c, lib.ldc, lib.s_c, lib.type_c, lib.beta);
    }
    return cuda_finish(q, p, NULL, 0, 0, p->type_c, p->beta);
}
