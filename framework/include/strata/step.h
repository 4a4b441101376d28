/* SPDX-License-Identifier: Apache-2.0 */
/* strata/step.h - the step context: all that forward, backward, loss and update may touch.
 *
 * Sticky status: after the first failure every call on the step does nothing and returns that status, so plugin code may run
 * straight through and end with `return st_status(step)`. Messages name layer index, symbol and launch.
 * Threads: one thread per device makes all these calls, one at a time. Instances are const here.
 * Captured graphs (a backend that can): host code runs once, at capture. Whatever differs from step to step must be read on the
 * device. */
#ifndef STRATA_STEP_H
#define STRATA_STEP_H
#include <strata/weight.h>

enum { ST_TRAIN = 1, ST_EVAL /* forward and loss only: nothing is kept, no gradient */ };

/* A packed row. Every tensor has one address and one shape (its capacity) for the whole run; only contents change. There is
 * no host copy on purpose: launch sizes come from capacities. Rows behind the last real token form a filler segment; unused
 * list entries have length 0. Capacity rows are finite, have zero gradient, are never counted, routed or measured.
 * Per-token members are cut like x of the part that looks (st_layer_ops.tokens). Context cut: zigzag per segment; the data
 * pipeline pads each segment to a multiple of 2 * context.size (real = 0 there, at the end, so causal layers never see it). */
typedef struct st_row {
    uint32_t size;
    int32_t tokens, tokens_time, max_segments, max_len, axes, depths; /* max_len: longest segment the class allows             */
    st_tensor ids;       /* i32 [1+depths, tokens]; row k is shifted by k inside its segment; -1: zero embedding row          */
    st_tensor labels;    /* i32 [1+depths, tokens]; target of depth k at this slot; -1: not trained                           */
    st_tensor trained;   /* i32 [1+depths, tokens]; slots that have a label, in order, then -1: a loss needs only these rows   */
    st_tensor media;     /* i32 [1+depths, tokens]; row of the features that replaces the embedding, or -1                    */
    st_tensor order;     /* i32 [1+depths, tokens]; slots sorted by id (stable): embedding gradients in a fixed order         */
    st_tensor real;      /* u8 [tokens]; 1 = real token                                                                       */
    st_tensor pos;       /* i32 [axes, tokens]; of the slot, the same for every depth                                         */
    st_tensor segments;  /* i32 [max_segments + 1]; borders in time order over tokens_time                                    */
    st_tensor to_time;   /* i32 [tokens_time]; time index -> index in rank-major order, as gathered over ST_G_CONTEXT         */
    st_tensor from_time; /* i32 [tokens_time]; the inverse                                                                    */
    st_tensor spans;     /* i32 [4, max_segments * (context > 1 ? 2 : 1)]: q_begin, q_len in this piece, k_begin, k_len in
                          * time order; causal is aligned at the end: query i sees keys < k_len - q_len + i + 1               */
} st_row;

typedef struct st_rotary { st_tensor cos, sin; int32_t dim, interleaved; } st_rotary;    /* acc [tokens, dim / 2]; never grows */
typedef struct st_view { const st_row *row; const st_rotary *rotary; } st_view;          /* for a nested stack; never grows    */

/* A tensor kept from forward to backward. Slots are numbered by their place in the part's table, at most 32. Never grows. */
enum { ST_DROP = 1 /* backward can compute it again, so the spec may choose not to keep it */ };
typedef struct st_slot { const char *name; uint32_t flags, pad; } st_slot;

enum { ST_ZEROED = 1, ST_ADD = 1, ST_SUM = 1, ST_MAX = 2 };
enum { ST_ALL_GATHER = 1, ST_REDUCE_SCATTER, ST_ALL_REDUCE, ST_ALL_REDUCE_MAX, ST_ALL_TO_ALL };
enum { ST_LANE_MAIN = 0, ST_LANE_SIDE, ST_LANE_COMM, ST_LANES, ST_LANE_ENTER = 16, ST_LANE_LEAVE, ST_LANE_JOIN };

/* Device cells (acc) of the running optimizer step. All its micro-batches are packed before it starts, so counts are known. */
enum { ST_S_REAL_TOKENS = 0, /* real tokens, all ranks and micro-batches                                                      */
       ST_S_STEP,            /* optimizer step, from 1                                                                        */
       ST_S_CLIP,            /* factor for gradients; valid in update                                                         */
       ST_S_SKIP,            /* != 0: update and finish_step leave everything as it is (non-finite norm, fault on any rank)   */
       ST_S_INV_COUNT = 16   /* + depth: 1 / trained tokens of that depth, all ranks and micro-batches; 0 if none             */ };

/* Rows to peers with counts only the device knows. send, recv [peers * cap, width], block p for peer p, its first n[p] rows
 * live. A transport moves whole blocks, or only live rows if it can read counts on the device (st_comm_ops.reads_counts).
 * The caller keeps n_send <= cap. recv rows behind n_recv are undefined. Never grows. */
typedef struct st_blocks { st_tensor send, n_send /* i32 [peers] */, recv, n_recv; } st_blocks;

/* y = act(x W^T + bias), any number of rows incl. 0. By handle, so the host may put an adapter, an 8-bit copy, a fused norm or a
 * fused gather behind it. Types may differ (bf16 x, f32 y or dy): product in the wider input type, sums in f32. */
typedef struct st_linear_args {
    uint32_t size, flags;         /* ST_ADD: add into y or dx instead of writing                                              */
    st_wid w, bias;               /* bias -1: none                                                                            */
    int32_t act, reserved;        /* ST_ACT_*; with an activation aux receives the value before it, for backward              */
    const st_tensor *x, *y, *aux;
    const st_tensor *dy, *dx;     /* backward: dx = dy W (NULL: not wanted); gradients of w and bias are accumulated          */
} st_linear_args;

typedef struct st_step st_step;
typedef struct st_step_api { /* called through the inline functions below */
    uint32_t size;
    st_tensor (*memory)(st_step *, int32_t slot, uint32_t flags, int32_t dtype, int64_t rows, int64_t cols);
    st_tensor (*kept)(st_step *, int32_t slot);
    size_t (*mark)(st_step *);
    void (*release)(st_step *, size_t mark);
    st_tensor (*weight)(st_step *, st_wid);
    st_tensor (*grad)(st_step *, st_wid, float *beta);
    st_tensor (*section)(st_step *, st_wid, st_tensor whole, int32_t sec);
    int (*linear)(st_step *, const st_linear_args *);
    int (*linear_bwd)(st_step *, const st_linear_args *);
    int (*collective)(st_step *, uint32_t what, uint32_t group, const st_tensor *send, const st_tensor *recv);
    int (*exchange)(st_step *, uint32_t group, const st_blocks *);
    int (*lane)(st_step *, uint32_t what, uint32_t lane);
    int (*begin)(st_step *, const char *name); /* 1: make the call; 0: planning or failed                                     */
    int (*end)(st_step *, int rc);
    int (*fail)(st_step *, int code, const char *file, int line, const char *fmt, ...) ST_PRINTF(5, 6);
    st_tensor (*scalar)(st_step *, int32_t which);
    st_tensor (*tiles)(st_step *, int32_t id);
    st_rotary (*rotary)(st_step *, int32_t id);
    st_tensor (*accum)(st_step *, int32_t id);
    st_tensor (*total)(st_step *, int32_t id);
    st_tensor (*metric)(st_step *, int32_t id);
    int (*embed)(st_step *, int32_t depth, const st_tensor *out);
    int (*embed_bwd)(st_step *, int32_t depth, const st_tensor *dout);
    int (*lm_loss)(st_step *, int32_t depth, double weight, int32_t metric, const st_tensor *h, const st_tensor *dh);
    int (*stack)(st_step *, int32_t id, const st_view *, const st_tensor *u, st_wid norm, const st_tensor *out);
    int (*stack_bwd)(st_step *, int32_t id, const st_view *, const st_tensor *dout, const st_tensor *du);
} st_step_api;

struct st_step { /* read-only to plugins */
    uint32_t size;
    int32_t status, mode, train;  /* train 1: backward follows                                                                */
    const st_step_api *api;
    const struct st_ops *ops;
    const st_queue *q;            /* the current lane                                                                         */
    const st_row *row;
    const void *kernels;          /* this plugin's table for the running backend; NULL while planning                         */
    uint64_t seed;                /* of this layer and micro-batch; mix with ST_S_STEP on the device                          */
    int32_t dtype;                /* activations: ST_F64, ST_F32 or ST_BF16 (x itself may be stored otherwise)                */
    int32_t acc_dtype;            /* statistics, gradients, scalars, metrics: ST_F64 in f64 runs, else ST_F32 ("acc" below)   */
    int32_t layer, depth, micro, micros;
    st_axis data, context, tensor, expert, media;
    const char *backend;          /* its name, while planning too: what a plugin's own kernels need may depend on it          */
};

ST_FN int st_status(const st_step *s) { return s->status; }
#define ST_FAIL(s, code, ...) ((s)->api->fail((s), (code), __FILE__, __LINE__, __VA_ARGS__))
#define ST_KERNELS(s, T) ((const T *)(s)->kernels)
/* The way to start anything that is not a backend op: ST_LAUNCH(s, "gdn_rule", k->rule(s->q, &args)). The call is not evaluated
 * while planning or after a failure. The name is static; profiles and errors show it. */
#define ST_LAUNCH(s, name, call) ((s)->api->end((s), (s)->api->begin((s), (name)) ? (call) : (s)->status))
/* The same with the work that its sizes ask for at least: floating-point operations, and bytes read and written when each tensor
 * crosses the memory once. `strata bench` sets the time beside them. Evaluated while planning too, so from sizes alone. */
#define ST_LAUNCH_COST(s, name, flops, bytes, call) \
    ((s)->api->end((s), st_begin_work((s), (name), (flops), (bytes)) ? (call) : (s)->status))
ST_FN int st_begin_work(st_step *s, const char *name, double flops, double bytes)
{
    const int run = s->api->begin(s, name);
    if (!s->status) s->q->count(s->q, flops, bytes);
    return run;
}

/* Memory: 256-byte aligned, uninitialised unless zeroed, the same address in every step.
 * scratch lives until this call returns, or until st_release(mark taken before it): for loops inside one call.
 * keep lives until this call's backward has returned; st_kept(slot) finds it there. The host has one table per call (micro-batch,
 * layer, depth), so micro-batches in flight, repeated layers and recompute need no care, and it may move or offload the memory in
 * between: never store the address. When the run drops a ST_DROP slot, in EVAL, and in the first pass of a full recompute, keep
 * gives scratch; backward sees a dropped slot as absent and computes it again. Kept memory may be overwritten in backward.
 * x is NOT kept: backward is given it again. */
ST_FN st_tensor st_keep(st_step *s, int32_t slot, int32_t type, int64_t rows, int64_t cols)
{ return s->api->memory(s, slot, 0, type, rows, cols); }
ST_FN st_tensor st_kept(st_step *s, int32_t slot) { return s->api->kept(s, slot); }
ST_FN st_tensor st_scratch(st_step *s, int32_t type, int64_t rows, int64_t cols)
{ return s->api->memory(s, -1, 0, type, rows, cols); }
ST_FN st_tensor st_zeroed(st_step *s, int32_t type, int64_t rows, int64_t cols)
{ return s->api->memory(s, -1, ST_ZEROED, type, rows, cols); }
ST_FN size_t st_mark(st_step *s) { return s->api->mark(s); }
ST_FN void st_release(st_step *s, size_t mark) { s->api->release(s, mark); }

/* The local weight, gathered if it is sharded. Ask in every call: the address differs between calls. */
ST_FN st_tensor st_w(st_step *s, st_wid w) { return s->api->weight(s, w); }
/* Where this contribution to the gradient goes: acc, local shape; absent when frozen (pass it on, ops skip it). Add into it.
 * Only a ST_W_BETA weight sees *beta = 0 (first contribution): then write beta * old + new for EVERY element. beta may be NULL
 * for other weights. One call = one contribution. Fixed order of sums, no float atomics. */
ST_FN st_tensor st_grad(st_step *s, st_wid w, float *beta) { return s->api->grad(s, w, beta); }
ST_FN st_tensor st_section_of(st_step *s, st_wid w, st_tensor t, int32_t sec) { return s->api->section(s, w, t, sec); }
ST_FN int st_linear(st_step *s, st_wid w, const st_tensor *x, const st_tensor *y) /* y = x W^T */
{
    st_linear_args a = {(uint32_t)sizeof(st_linear_args), 0, w, -1, 0, 0, x, y, NULL, NULL, NULL};
    return s->api->linear(s, &a);
}
/* dx = dy W (dx += with ST_ADD), W's gradient += dy^T x */
ST_FN int st_linear_bwd(st_step *s, st_wid w, const st_tensor *x, const st_tensor *dy, const st_tensor *dx, uint32_t flags)
{
    st_linear_args a = {(uint32_t)sizeof(st_linear_args), flags, w, -1, 0, 0, x, NULL, NULL, dy, dx};
    return s->api->linear_bwd(s, &a);
}

/* The same with a bias (-1: none) and an activation: aux receives the value before it and goes into the backward. */
ST_FN int st_linear_act(st_step *s, st_wid w, st_wid bias, int32_t act, const st_tensor *x, const st_tensor *y,
                        const st_tensor *aux)
{
    st_linear_args a = {(uint32_t)sizeof(st_linear_args), 0, w, bias, act, 0, x, y, aux, NULL, NULL};
    return s->api->linear(s, &a);
}
ST_FN int st_linear_act_bwd(st_step *s, st_wid w, st_wid bias, int32_t act, const st_tensor *x, const st_tensor *aux,
                            const st_tensor *dy, const st_tensor *dx, uint32_t flags)
{
    st_linear_args a = {(uint32_t)sizeof(st_linear_args), flags, w, bias, act, 0, x, NULL, aux, dy, dx};
    return s->api->linear_bwd(s, &a);
}
ST_FN int st_linear_bias(st_step *s, st_wid w, st_wid bias, const st_tensor *x, const st_tensor *y)
{ return st_linear_act(s, w, bias, 0, x, y, NULL); }
ST_FN int st_linear_bias_bwd(st_step *s, st_wid w, st_wid bias, const st_tensor *x, const st_tensor *dy, const st_tensor *dx,
                             uint32_t flags)
{ return st_linear_act_bwd(s, w, bias, 0, x, NULL, dy, dx, flags); }

/* Collectives, enqueued on the current lane. All ranks of the group make the same calls in the same order, also with nothing to
 * send. dim 0 is cut into equal blocks in rank order. Group of size 1: a plain copy. send = recv for all-reduce only. */
ST_FN int st_collective(st_step *s, uint32_t what, uint32_t group, const st_tensor *send, const st_tensor *recv)
{ return s->api->collective(s, what, group, send, recv); }
ST_FN int st_exchange(st_step *s, uint32_t group, const st_blocks *b) { return s->api->exchange(s, group, b); }
/* Lanes. enter: later calls go to `lane`, which first waits for all work so far of the lane left. leave: back to MAIN without
 * waiting. join: MAIN waits for the lane. The host joins all lanes when the plugin returns. Streams and events stay inside. */
ST_FN int st_lane(st_step *s, uint32_t what, uint32_t lane) { return s->api->lane(s, what, lane); }
ST_FN st_tensor st_scalar(st_step *s, int32_t which) { return s->api->scalar(s, which); } /* acc [1] on the device */
/* i32 [capacity, 3]: segment, begin, length; sorted, no tile crosses a border, length 0 = none. Built by data workers. */
ST_FN st_tensor st_tiles(st_step *s, int32_t id) { return s->api->tiles(s, id); }
ST_FN st_rotary st_rotary_of(st_step *s, int32_t id) { return s->api->rotary(s, id); } /* made once per row; id -1: dim 0 */
/* Cells acc [n] to add to, and their sum over ranks. In a replayed forward accum and metric give a throw-away copy, so plugins
 * need not know about recompute. Metric cells acc [2]; they reach the log one step later by an asynchronous copy. */
ST_FN st_tensor st_accum_of(st_step *s, int32_t id) { return s->api->accum(s, id); }
ST_FN st_tensor st_total(st_step *s, int32_t id) { return s->api->total(s, id); }
ST_FN st_tensor st_metric_cell(st_step *s, int32_t id) { return s->api->metric(s, id); }

/* For heads; rows as a ST_SHARD layer sees them. embed: rows of depth's ids, media features or zero, plus what an additive
 * position plugin adds. lm_loss: gathers h, walks it in chunks of rows through lm_head and softmax (logits exist once, never in
 * full), adds weight * dLoss/dh into dh (absent in EVAL), lm_head's gradient and the metric. Loss = sum / trained tokens. */
ST_FN int st_embed(st_step *s, int32_t depth, const st_tensor *out) { return s->api->embed(s, depth, out); }
ST_FN int st_embed_bwd(st_step *s, int32_t depth, const st_tensor *dout) { return s->api->embed_bwd(s, depth, dout); }
ST_FN int st_lm_loss(st_step *s, int32_t depth, double weight, int32_t metric, const st_tensor *h, const st_tensor *dh)
{ return s->api->lm_loss(s, depth, weight, metric, h, dh); }
/* A nested stack: u is its residual at entry, out = norm(residual at exit) with `norm` a weight of the caller, or the residual
 * itself for -1. Backward calls come in reverse order of the forward calls. view NULL: the caller's row. */
ST_FN int st_stack(st_step *s, int32_t id, const st_view *v, const st_tensor *u, st_wid norm, const st_tensor *out)
{ return s->api->stack(s, id, v, u, norm, out); }
ST_FN int st_stack_bwd(st_step *s, int32_t id, const st_view *v, const st_tensor *dout, const st_tensor *du)
{ return s->api->stack_bwd(s, id, v, dout, du); }
#endif
