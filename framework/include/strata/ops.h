/* SPDX-License-Identifier: Apache-2.0 */
/* strata/ops.h - device operations shared by plugins; one table per backend.
 *
 * Call as ST_OP(step, norm, &args). Entries are plain C and need no device library: they check shapes, take workspace with
 * q->scratch, count work, return when q->planning, and only then go into kernels. So planning finds wrong shapes, missing
 * support and exact workspace on a machine without the device. A missing op is NULL: ST_E_UNSUPPORTED.
 * Argument structs NEVER grow (plugin and backend may be of different age): a new member means a new op at the end of st_ops.
 * Absent outputs are skipped. Inputs and outputs do not overlap unless said. Every reduction has a fixed order. */
#ifndef STRATA_OPS_H
#define STRATA_OPS_H
#include <strata/step.h>

enum { ST_ACT_NONE = 0, ST_ACT_SILU, ST_ACT_GELU_TANH, ST_ACT_GELU_ERF, ST_ACT_SIGMOID, ST_ACT_RELU2 };
enum { ST_NORM_RMS1P = 1 /* times 1 + w */, ST_NORM_RMS, ST_NORM_LAYER };
/* c[m,n] = act(alpha * a[m,k] b[k,n] + bias[n]) + beta * c. trans bit 0: a is [k,m], bit 1: b is [n,k]. 3-d operands: batch over
 * dim 0. c f32 or the type of a; sums in acc. aux: value before act. */
typedef struct st_gemm { const st_tensor *a, *b, *bias, *c, *aux; double alpha; float beta; uint32_t trans; int32_t act; } st_gemm;
/* Rows of a sorted by group; group e owns rows [offset[e], offset[e+1]), offset i32 [groups + 1] on the device, multiples of
 * ST_GROUP_TILE with zero rows as padding; rows behind the last are left alone.
 * mode 0: c = a b_e^T; 1: c = a b_e; 2: b_e = a^T c + beta b_e, b acc (empty group: beta b_e). */
#define ST_GROUP_TILE 64
typedef struct st_grouped { const st_tensor *a, *b, *c, *offset; float beta; int32_t mode; } st_grouped;
/* One pass: r_out = r + y (r_out may be r; y absent: r), n = norm(r_out) over the last dimension, 2-d or 3-d. rstd, mean acc
 * [rows, 1] or [rows, heads] for backward. */
typedef struct st_norm { int32_t kind, pad; double eps; const st_tensor *r, *y, *w, *b, *r_out, *n, *rstd, *mean; } st_norm;
/* One pass: dr = gradient at r for dn, or += with add 1; dw, db += (acc); n: norm(r) again. */
typedef struct st_norm_bwd {
    int32_t kind, add; double eps; const st_tensor *r, *w, *b, *rstd, *mean, *dn, *dr, *dw, *db, *n;
} st_norm_bwd;
/* Attention over spans (st_row.spans). q, out [tokens, heads, d], k, v [keys, kv_heads, d] by st_heads; lse acc [tokens, heads].
 * causal 0: a span sees all its keys. Rows in no span: out, dq, dk, dv are 0. max_len: capacity of one span, for launch sizes.
 * Backward reads out, lse, d_out. */
typedef struct st_attn {
    const st_tensor *q, *k, *v, *spans, *out, *lse, *d_out, *dq, *dk, *dv; double scale; int32_t causal, max_len;
} st_attn;
/* In place: the first table->dim columns of each head of x [tokens, heads, d]. inverse 1: transposed, for backward. */
typedef struct st_rope { const st_tensor *x; const st_rotary *table; int32_t inverse, pad; } st_rope;
/* Heads of queries and of keys normed and then rotated, both in one pass: y = rotated norm(x) over each head, kind not
 * ST_NORM_LAYER. x, y [tokens, heads, d], w [d], rstd acc [tokens, heads] for backward; a table of dim 0 rotates nothing.
 * Backward: dx = gradient at x for dy, dw (acc) += ; dy is used up, what it holds afterwards is not defined. */
typedef struct st_qk_side { const st_tensor *x, *w, *y, *rstd, *dy, *dx, *dw; } st_qk_side;
typedef struct st_qk_norm { int32_t kind, pad; double eps; const st_rotary *table; st_qk_side q, k; } st_qk_norm;
/* Backward of attention whose result a gate multiplies, out * sigmoid(gate), for the gradient dy of that: d_gate, and of.d_out,
 * which is written here and may be dy. All like out. There is no such forward: out itself is kept for backward anyway, and a
 * library that makes it knows no gate, so glu comes behind it. */
typedef struct st_attn_gated { st_attn of; const st_tensor *gate, *dy, *d_gate; } st_attn_gated;
/* out[t] = features[media[t]] if media[t] >= 0; table[ids[t] - first] if inside; else 0: a negative id is none, another is some
 * other rank's when the table is cut over group, and a fault (ST_FAULT_RANGE) for ST_G_NONE. Backward sums in `order`:
 * d_table (acc) = beta * d_table + , d_features (acc) += . */
typedef struct st_lookup {
    const st_tensor *table, *ids, *media, *features, *order, *out, *d_out, *d_table, *d_features; int64_t first; float beta;
    uint32_t group;
} st_lookup;
/* Linear + cross-entropy, loss and gradient in one call: h [n, H] in chunks of rows sized by `budget` bytes through w
 * [V_local, H] (its first row is word `first`). rows i32 [m]: the rows of h that take part, each once, -1 = none (absent: all);
 * labels i32 [n], -1: none; scale: device acc [1]; loss acc [2] += {sum, count}; dh [n, H] += weight * scale * gradient;
 * dw (acc) = beta * dw + . Per row, both optional: nll acc [n] and best i32 [n], the most likely word (lowest id on a tie);
 * rows that take no part are left alone.
 * group: the vocabulary is cut over it (two small all-reduces per chunk through step), ST_G_NONE: it is not. */
typedef struct st_xent {
    st_step *step; const st_tensor *h, *w, *rows, *labels, *scale, *loss, *dh, *dw, *nll, *best;
    double weight; int64_t first; size_t budget; uint32_t group; float beta;
} st_xent;
/* One flat range. hyper [9] {lr, decay, beta1, beta2, eps, c1 = 1 - beta1^t, c2 = 1 - beta2^t, 1 - beta1, 1 - beta2} (the last two
 * because 1 - 0.999f is off by 1e-5 in f32); clip, skip [1]: device acc. Decoupled decay:
 * g = clip * grad; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; master -= lr (decay master + (m/c1) / (sqrt(v/c2) + eps)). */
typedef struct st_adamw { const st_tensor *master, *m, *v, *weight, *grad, *hyper, *clip, *skip; } st_adamw;
/* The same where master, or m and v alike, or all of them may be bf16: computed in f32 and rounded by strata/rounding.h, the kinds
 * in the order master, m, v. step: device acc [1]; first: number of the range's first element. A master of bf16 is the weight
 * itself, `weight` then absent or that. */
typedef struct st_adamw_rounded { st_adamw of; const st_tensor *step; uint64_t seed; int64_t first; } st_adamw_rounded;

typedef struct st_ops {
    uint32_t size;
    int (*gemm)(const st_queue *, const st_gemm *);
    int (*grouped)(const st_queue *, const st_grouped *);
    int (*norm)(const st_queue *, const st_norm *);
    int (*norm_bwd)(const st_queue *, const st_norm_bwd *);
    int (*rope)(const st_queue *, const st_rope *);
    int (*attention)(const st_queue *, const st_attn *);
    int (*attention_bwd)(const st_queue *, const st_attn *);
    int (*lookup)(const st_queue *, const st_lookup *);
    int (*lookup_bwd)(const st_queue *, const st_lookup *);
    int (*xent)(const st_queue *, const st_xent *);
    int (*adamw)(const st_queue *, const st_adamw *);
    int (*glu)(const st_queue *, int act, const st_tensor *g, const st_tensor *u, const st_tensor *y); /* y = act(g) * u      */
    int (*glu_bwd)(const st_queue *, int act, const st_tensor *g, const st_tensor *u, const st_tensor *dy,
                   const st_tensor *dg, const st_tensor *du);                  /* dg may be g, du may be u                    */
    int (*act)(const st_queue *, int act, const st_tensor *x, const st_tensor *y);
    int (*act_bwd)(const st_queue *, int act, const st_tensor *x, const st_tensor *dy, const st_tensor *dx);
    int (*add)(const st_queue *, double a, const st_tensor *x, double b, const st_tensor *y, const st_tensor *z); /* z = ax + by */
    int (*copy)(const st_queue *, const st_tensor *src, const st_tensor *dst); /* any strides; converts types                 */
    int (*fill)(const st_queue *, const st_tensor *dst, double value);
    int (*gather)(const st_queue *, const st_tensor *src, const st_tensor *index, const st_tensor *dst);
                                                                               /* dst[i] = src[index[i]]; -1: 0; -2: untouched */
    int (*scatter)(const st_queue *, const st_tensor *src, const st_tensor *index, const st_tensor *dst);
                                                                               /* dst[index[i]] = src[i]; -1: not; all different */
    int (*combine)(const st_queue *, const st_tensor *src, const st_tensor *index, const st_tensor *w, const st_tensor *dst);
                                  /* dst[t] = sum_k w[t,k] src[index[t,k]]; negative: skipped; w absent: 1; acc sum            */
    int (*colsum)(const st_queue *, const st_tensor *x, const st_tensor *out); /* out acc [cols] +=                           */
    int (*sumsq)(const st_queue *, const st_tensor *x, double weight, const st_tensor *cell); /* cell acc [1] += weight sum x^2 */
    int (*adamw_rounded)(const st_queue *, const st_adamw_rounded *);
    int (*qk_norm)(const st_queue *, const st_qk_norm *);
    int (*qk_norm_bwd)(const st_queue *, const st_qk_norm *);
    int (*attention_gated_bwd)(const st_queue *, const st_attn_gated *);
} st_ops;

#define ST_OP(s, op, ...) ((s)->status ? (s)->status : (s)->ops->op ? \
    ((s)->api->begin((s), #op), (s)->api->end((s), (s)->ops->op((s)->q, __VA_ARGS__))) : \
    ST_FAIL((s), ST_E_UNSUPPORTED, "this backend has no op %s", #op))
#endif
