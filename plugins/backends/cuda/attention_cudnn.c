/* SPDX-License-Identifier: Apache-2.0 */
/* attention_cudnn.c - attention over spans in bf16 by cuDNN, where its library is found when the device is opened.
 *
 * An entry of cuDNN's batch is a span: where it begins and how long it is are lists on the device, which a kernel makes from
 * the row's spans before each call, so a captured call serves rows cut in other ways. Plans are kept for each shape; they
 * are made in the first pass, or while a capture looks away. */
#include "attention_lists.h"
#include "cudnn_plan.h"
#include "device_cuda.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { Q = 1, K, V, OUT, STATS, FIRST_Q, FIRST_K, FIRST_V, FIRST_OUT, FIRST_STATS, Q_LEN, K_LEN, SCALE, HIDDEN, UIDS };
enum { PLANS = 64 };

/* All that a plan depends on; compared byte by byte, so it has no gaps. Strides: of a row, of a head. */
typedef struct plan_key {
    int64_t heads, kv_heads, cols, spans, q_longest, k_longest, stride[5][2], causal;
} plan_key;
typedef struct attn_plan {
    plan_key key;
    cudnn_part plan;
    int used;
} attn_plan; /* plan NULL: refused */
struct cuda_attn_library {
    cudnn_library cudnn;
    attn_plan plan[PLANS];
    int full; /* a shape came that has no place here */
};

/* ---- opening ---- */
void cuda_attn_library_open(cuda_device *d, int wanted)
{
    char why[160] = "[run] cudnn = no";
    struct cuda_attn_library *lib = wanted ? calloc(1, sizeof *lib) : NULL;
    if (wanted && !lib) snprintf(why, sizeof why, "no memory");
    if (lib && cudnn_open(&lib->cudnn, why, sizeof why)) {
        size_t v = lib->cudnn.cudnnGetVersion();
        d->attn_library = lib;
        snprintf(d->attn_words, sizeof d->attn_words, "cuDNN %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
        return;
    }
    free(lib);
    snprintf(d->attn_words, sizeof d->attn_words, "own kernels (%s)", why);
}

void cuda_attn_library_close(cuda_device *d)
{
    struct cuda_attn_library *lib = d->attn_library;
    if (!lib) return;
    for (int i = 0; i < PLANS; i++)
        if (lib->plan[i].plan) lib->cudnn.cudnnBackendDestroyDescriptor(lib->plan[i].plan);
    cudnn_close(&lib->cudnn);
    free(lib);
    d->attn_library = NULL;
}

/* ---- the graph ---- */
/* Rows of heads, at strides of our tensors: (spans, heads, longest, cols). */
static cudnn_part rows_tensor(cudnn_graph *g, const plan_key *k, int uid, int64_t heads, int64_t longest, int64_t cols)
{
    int64_t n = k->spans + 1, s_row = k->stride[uid - Q][0], s_head = k->stride[uid - Q][1];
    cudnn_part offsets = cudnn_tensor_part(
        g, &(cudnn_tensor){
               .uid = uid + FIRST_Q - Q, .dim = {n, 1, 1, 1}, .stride = {1, 1, 1, 1}, .type = CUDNN_DATA_INT64});
    bool turned = uid == K; /* the product wants (cols, longest) */
    return cudnn_tensor_part(
        g, &(cudnn_tensor){.uid = uid,
                           .dim = {k->spans, heads, turned ? cols : longest, turned ? longest : cols},
                           .stride = {longest * s_row, s_head, turned ? 1 : s_row, turned ? s_row : 1},
                           .type = uid == STATS ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16,
                           .offsets = offsets});
}

static cudnn_part lengths_tensor(cudnn_graph *g, const plan_key *k, int uid)
{
    return cudnn_tensor_part(
        g, &(cudnn_tensor){.uid = uid, .dim = {k->spans, 1, 1, 1}, .stride = {1, 1, 1, 1}, .type = CUDNN_DATA_INT32});
}

static cudnn_part scalar_tensor(cudnn_graph *g, int uid)
{
    return cudnn_tensor_part(
        g, &(cudnn_tensor){
               .uid = uid, .dim = {1, 1, 1, 1}, .stride = {1, 1, 1, 1}, .type = CUDNN_DATA_FLOAT, .by_value = true});
}

/* What the parts of a graph share: scores (spans, heads, q_longest, k_longest) and statistics of their rows. */
typedef struct attn_graph {
    cudnn_graph *g;
    const plan_key *k;
    cudnn_part q_len, k_len, hidden;
} attn_graph;

static cudnn_part scores(const attn_graph *a, cudnnDataType_t type)
{
    return cudnn_between(a->g, type, a->k->spans, a->k->heads, a->k->q_longest, a->k->k_longest);
}

static cudnn_part combine(const attn_graph *a, cudnnPointwiseMode_t mode, cudnnDataType_t type, cudnn_part x,
                          cudnn_part b)
{
    cudnn_part y = scores(a, type);
    cudnn_add_pointwise(a->g, &(cudnn_pointwise){.mode = mode, .math = type, .x = x, .b = b, .y = y});
    return y;
}
static cudnn_part apply(const attn_graph *a, cudnnPointwiseMode_t mode, cudnn_part x, cudnn_part b)
{
    return combine(a, mode, CUDNN_DATA_FLOAT, x, b);
}
static cudnn_part move(const attn_graph *a, cudnnPointwiseMode_t mode, cudnn_part index, cudnn_part by)
{
    return combine(a, mode, CUDNN_DATA_INT32, index, by);
}
static cudnn_part test(const attn_graph *a, cudnnPointwiseMode_t mode, cudnn_part x, cudnn_part b)
{
    return combine(a, mode, CUDNN_DATA_BOOLEAN, x, b);
}

static cudnn_part index_of(const attn_graph *a, cudnn_part x, int64_t axis)
{
    cudnn_part y = scores(a, CUDNN_DATA_INT32);
    cudnn_add_pointwise(
        a->g,
        &(cudnn_pointwise){.mode = CUDNN_POINTWISE_GEN_INDEX, .math = CUDNN_DATA_INT32, .x = x, .y = y, .axis = axis});
    return y;
}

/* -inf where the test says no */
static cudnn_part keep(const attn_graph *a, cudnn_part x, cudnn_part yes)
{
    cudnn_part y = scores(a, CUDNN_DATA_FLOAT);
    cudnn_add_pointwise(
        a->g,
        &(cudnn_pointwise){
            .mode = CUDNN_POINTWISE_BINARY_SELECT, .math = CUDNN_DATA_FLOAT, .x = x, .b = a->hidden, .t = yes, .y = y});
    return y;
}

static cudnn_part hide(const attn_graph *a, cudnn_part x)
{
    cudnn_part row = test(a, CUDNN_POINTWISE_CMP_LT, index_of(a, x, 2), a->q_len);
    cudnn_part col = test(a, CUDNN_POINTWISE_CMP_LT, index_of(a, x, 3), a->k_len);
    x = keep(a, x, test(a, CUDNN_POINTWISE_LOGICAL_AND, row, col));
    if (!a->k->causal) return x;
    row = move(a, CUDNN_POINTWISE_ADD, index_of(a, x, 2), a->k_len); /* the last row sees the last key */
    row = move(a, CUDNN_POINTWISE_SUB, row, a->q_len);
    col = index_of(a, x, 3);
    return keep(a, x, test(a, CUDNN_POINTWISE_CMP_GE, row, col));
}

/* Weights of scores, in bf16; their largest plus log of their sum into stats. */
static cudnn_part soften(const attn_graph *a, cudnn_part x, cudnn_part stats)
{
    const plan_key *k = a->k;
    cudnn_part part[3];
    for (int i = 0; i < 3; i++) part[i] = cudnn_between(a->g, CUDNN_DATA_FLOAT, k->spans, k->heads, k->q_longest, 1);
    cudnn_add_reduction(a->g, CUDNN_REDUCE_TENSOR_MAX, x, part[0]);
    x = apply(a, CUDNN_POINTWISE_SUB, x, part[0]);
    x = apply(a, CUDNN_POINTWISE_EXP, x, NULL);
    cudnn_add_reduction(a->g, CUDNN_REDUCE_TENSOR_ADD, x, part[1]);
    cudnn_add_pointwise(
        a->g, &(cudnn_pointwise){.mode = CUDNN_POINTWISE_LOG, .math = CUDNN_DATA_FLOAT, .x = part[1], .y = part[2]});
    cudnn_add_pointwise(
        a->g, &(cudnn_pointwise){
                  .mode = CUDNN_POINTWISE_ADD, .math = CUDNN_DATA_FLOAT, .x = part[0], .b = part[2], .y = stats});
    cudnn_part y = scores(a, CUDNN_DATA_BFLOAT16);
    cudnn_add_pointwise(
        a->g, &(cudnn_pointwise){.mode = CUDNN_POINTWISE_DIV, .math = CUDNN_DATA_FLOAT, .x = x, .b = part[1], .y = y});
    return y;
}

static void describe_graph(cudnn_graph *g, const plan_key *k)
{
    attn_graph a = {g, k, lengths_tensor(g, k, Q_LEN), lengths_tensor(g, k, K_LEN), scalar_tensor(g, HIDDEN)};
    cudnn_part q = rows_tensor(g, k, Q, k->heads, k->q_longest, k->cols);
    cudnn_part keys = rows_tensor(g, k, K, k->kv_heads, k->k_longest, k->cols);
    cudnn_part values = rows_tensor(g, k, V, k->kv_heads, k->k_longest, k->cols);
    cudnn_part out = rows_tensor(g, k, OUT, k->heads, k->q_longest, k->cols);
    cudnn_part stats = rows_tensor(g, k, STATS, k->heads, k->q_longest, 1);
    cudnn_part x = scores(&a, CUDNN_DATA_FLOAT);
    cudnn_add_matmul(g, &(cudnn_matmul){.a = q, .b = keys, .c = x, .m = a.q_len, .n = a.k_len});
    x = hide(&a, apply(&a, CUDNN_POINTWISE_MUL, x, scalar_tensor(g, SCALE)));
    x = soften(&a, x, stats);
    cudnn_add_matmul(g, &(cudnn_matmul){.a = x, .b = values, .c = out, .m = a.q_len, .k = a.k_len});
}

/* ---- plans ---- */
static plan_key key_of(const cuda_attn *a)
{
    const cuda_view *v[] = {&a->q, &a->k, &a->v, &a->out, &a->lse};
    plan_key k = {.heads = a->q.heads,
                  .kv_heads = a->k.heads,
                  .cols = a->q.cols,
                  .spans = a->n_spans,
                  .q_longest = a->q_longest,
                  .k_longest = a->k_longest,
                  .causal = a->causal};
    for (int i = 0; i < 5; i++) {
        k.stride[i][0] = v[i]->s_row;
        k.stride[i][1] = v[i]->s_head;
    }
    return k;
}

/* Makes kernels ready, which a capture on another stream of this thread must not see. */
static void make_plan(const cuda_device *d, attn_plan *p)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudnn_graph g;
    cudaThreadExchangeStreamCaptureMode(&mode);
    g = cudnn_begin(&d->attn_library->cudnn);
    describe_graph(&g, &p->key);
    p->plan = cudnn_plan(&g, cuda_attn_workspace(p->key.spans));
    cudnn_graph_clear(&g);
    cudaThreadExchangeStreamCaptureMode(&mode);
    if (!p->plan && d->host->log)
        d->host->log(d->host, 3, "cuda",
                     "attention of %lld and %lld heads of %lld, up to %lld rows in %lld spans: own kernels, cuDNN has "
                     "no plan (%s)",
                     (long long)p->key.heads, (long long)p->key.kv_heads, (long long)p->key.cols,
                     (long long)p->key.q_longest, (long long)p->key.spans, g.reason);
}

static const attn_plan *plan_for(const cuda_device *d, const cuda_attn *a)
{
    plan_key key = key_of(a);
    attn_plan *p = d->attn_library->plan;
    for (int i = 0; i < PLANS; i++, p++) {
        if (p->used && !memcmp(&p->key, &key, sizeof key)) return p;
        if (p->used) continue;
        p->key = key;
        p->used = 1;
        make_plan(d, p);
        return p;
    }
    if (!d->attn_library->full && d->host->log)
        d->host->log(d->host, 3, "cuda", "attention: more than %d shapes, those that come later run on own kernels", PLANS);
    d->attn_library->full = 1;
    return NULL;
}

/* ---- running ---- */
static cuda_attn_lists lists_in(const cuda_attn *a)
{
    char *at = a->room;
    size_t each = cuda_attn_list_bytes(a->n_spans);
    cuda_attn_lists l;
    for (int i = 0; i < CUDA_ATTN_FIRSTS; i++) l.first[i] = (int64_t *)(at + (size_t)i * each);
    l.q_len = (int32_t *)(at + CUDA_ATTN_FIRSTS * each);
    l.k_len = (int32_t *)(at + (CUDA_ATTN_FIRSTS + 1) * each);
    return l;
}

int cuda_attention_library(const st_queue *q, const cuda_attn *a, int *done)
{
    cuda_device *d = cuda_device_of(q);
    const cuda_lane *lane = cuda_lane_of(q);
    *done = 0;
    if (!lane || !d->attn_library || !a->room) return ST_OK;
    const attn_plan *plan = plan_for(d, a);
    if (!plan || !plan->plan) return ST_OK;
    cuda_attn_lists lists = lists_in(a);
    char *workspace = (char *)a->room + CUDA_ATTN_LISTS * cuda_attn_list_bytes(a->n_spans);
    ST_TRY(cuda_attention_lists(q, a, &lists));
    float scale = a->scale, hidden = -INFINITY;
    static const int64_t uid[] = {Q,       K,         V,           OUT,   STATS, FIRST_Q, FIRST_K,
                                  FIRST_V, FIRST_OUT, FIRST_STATS, Q_LEN, K_LEN, SCALE,   HIDDEN};
    void *data[] = {a->q.data,      a->k.data,      a->v.data,      a->out.data,    a->lse.data,
                    lists.first[0], lists.first[1], lists.first[2], lists.first[3], lists.first[4],
                    lists.q_len,    lists.k_len,    &scale,         &hidden};
    cudnnStatus_t status =
        cudnn_execute(&d->attn_library->cudnn, lane->stream, plan->plan, ST_COUNT(uid), uid, data, workspace);
    if (status != CUDNN_STATUS_SUCCESS)
        return q->fail(q, ST_E_DEVICE, "attention: cuDNN does not run: %s",
                       d->attn_library->cudnn.cudnnGetErrorString(status));
    *done = 1;
    return ST_OK;
}
