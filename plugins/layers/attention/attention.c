/* SPDX-License-Identifier: Apache-2.0 */
/* attention/attention.c - softmax attention within segments, for decoders and for the blocks of a vision tower.
 *
 *     [q (and gate) | k | v] = W_qkv x + b
 *     q, k = rms norm over each head (optional), then rotated by the position plugin's tables (optional)
 *     a = softmax(q k^T head_dim^-1/2) v          query head h uses key head h / (heads / kv_heads)
 *     y = W_out (a sigmoid(gate)) + b_out
 * The gate's columns lie behind the queries of the same head. Everything is made of the backend's operations; q, k, v
 * and gate are strided views of one projection. Without the head norm q and k are rotated in place and nothing is
 * stored twice. `names` says how files call the weights: decoder (self_attn.q_proj, k_proj, v_proj, o_proj) or vision
 * (attn.qkv, attn.proj); the weights' own names follow it, so one table of names serves both. Neither tensor nor
 * context groups are claimed yet. */
#include <math.h>
#include <strata/layer.h>

enum { NAMES_DECODER, NAMES_VISION };
typedef struct attention {
    int64_t heads, kv_heads, head_dim; /* parameters */
    int32_t gate, qk_norm, bias, causal, rotary, names;
    int32_t table;
    double eps;
    st_wid qkv, qkv_bias, q_norm, k_norm, out, out_bias;
} attention;

enum { SEC_Q, SEC_K, SEC_V };
enum { PROJ, NORMED, RSTD_Q, RSTD_K, OUT, LSE, GATED };
static const st_slot slots[] = {
    [PROJ] = {"proj", 0, 0},         /* (rows, q and gate | k | v)                                  */
    [NORMED] = {"qk", ST_DROP, 0},   /* (rows, q | k) after norm and rotation; only with qk_norm     */
    [RSTD_Q] = {"rstd_q", 0, 0},     /* (rows, heads) acc                                           */
    [RSTD_K] = {"rstd_k", 0, 0},     /* (rows, kv_heads) acc                                        */
    [OUT] = {"out", 0, 0},           /* (rows, heads * head_dim), before the gate                   */
    [LSE] = {"lse", 0, 0},           /* (rows, heads) acc                                           */
    [GATED] = {"gated", ST_DROP, 0}, /* (rows, heads * head_dim); only with gate                    */
};

static int64_t step_of(const attention *m)
{
    return (m->gate ? 2 : 1) * m->head_dim;
} /* columns from head to head of q */
static int64_t q_width(const attention *m) { return m->heads * step_of(m); }
static int64_t kv_width(const attention *m) { return m->kv_heads * m->head_dim; }
static int64_t out_width(const attention *m) { return m->heads * m->head_dim; }

static int check_heads(attention *m, st_env *e)
{
    if (m->kv_heads == ST_UNSET_INT) m->kv_heads = m->heads;
    if (m->head_dim == ST_UNSET_INT) {
        if (e->hidden % m->heads)
            return ST_ENV_FAIL_KEY(e, "heads", ST_E_CONFIG, "heads = %lld does not divide hidden = %lld: give head_dim",
                                   (long long)m->heads, (long long)e->hidden);
        m->head_dim = e->hidden / m->heads;
    }
    if (m->heads % m->kv_heads)
        return ST_ENV_FAIL_KEY(e, "kv_heads", ST_E_CONFIG, "kv_heads = %lld does not divide heads = %lld",
                               (long long)m->kv_heads, (long long)m->heads);
    return ST_OK;
}
static int configure(void *self, st_env *e)
{
    attention *m = self;
    const int vision = m->names == NAMES_VISION;
    ST_TRY(check_heads(m, e));
    const int64_t q = q_width(m), kv = kv_width(m), d = m->head_dim;
    const st_section sections[] = {{"q", q, step_of(m), 1, 0}, {"k", kv, d, 1, 0}, {"v", kv, d, 1, 0}};

    m->eps = e->norm_eps;
    m->qkv = st_declare(e, (st_weight){.name = vision ? "attn_qkv" : "qkv",
                                       .flags = ST_W_BETA,
                                       .nd = 2,
                                       .dim = {q + 2 * kv, e->hidden},
                                       .cut = {ST_G_TENSOR},
                                       .n_sec = 3,
                                       .sec = sections,
                                       .init = ST_INIT_NORMAL});
    m->qkv_bias = m->q_norm = m->k_norm = m->out_bias = -1;
    if (m->bias)
        m->qkv_bias = st_declare(e, (st_weight){.name = vision ? "attn_qkv_bias" : "qkv_bias",
                                                .nd = 1,
                                                .dim = {q + 2 * kv},
                                                .cut = {ST_G_TENSOR},
                                                .n_sec = 3,
                                                .sec = sections,
                                                .init = ST_INIT_ZERO});
    if (m->qk_norm) {
        m->q_norm = st_declare(e, (st_weight){.name = "q_norm", .nd = 1, .dim = {d}, .init = ST_INIT_ZERO});
        m->k_norm = st_declare(e, (st_weight){.name = "k_norm", .nd = 1, .dim = {d}, .init = ST_INIT_ZERO});
    }
    m->out = st_matrix(e, vision ? "attn_proj" : "out", e->hidden, out_width(m), ST_CUT_COLS);
    if (m->bias)
        m->out_bias = st_declare(
            e, (st_weight){
                   .name = vision ? "attn_proj_bias" : "out_bias", .nd = 1, .dim = {e->hidden}, .init = ST_INIT_ZERO});
    m->table = m->rotary ? st_rotary_id(e, (int32_t)d) : -1;
    return e->status;
}

/* Views of a projection (or of its gradient). */
typedef struct parts {
    st_tensor q, gate, k, v;
} parts;
static parts parts_of(const attention *m, st_tensor t)
{
    const int64_t d = m->head_dim, q = q_width(m), kv = kv_width(m);
    parts p = {st_heads(t, 0, m->heads, d, step_of(m)), m->gate ? st_heads(t, d, m->heads, d, step_of(m)) : st_absent(),
               st_heads(t, q, m->kv_heads, d, d), st_heads(t, q + kv, m->kv_heads, d, d)};
    return p;
}
/* q and k of a (rows, q | k) tensor without gates */
static void pair_of(const attention *m, st_tensor t, st_tensor *q, st_tensor *k)
{
    *q = st_heads(t, 0, m->heads, m->head_dim, m->head_dim);
    *k = st_heads(t, out_width(m), m->kv_heads, m->head_dim, m->head_dim);
}
static st_tensor heads_view(const attention *m, st_tensor t)
{
    return st_heads(t, 0, m->heads, m->head_dim, m->head_dim);
}

static void rotate(const attention *m, st_step *s, const st_tensor *q, const st_tensor *k, int inverse)
{
    const st_rotary table = st_rotary_of(s, m->table);
    if (table.dim <= 0) return;
    ST_OP(s, rope, &(st_rope){q, &table, inverse, 0});
    ST_OP(s, rope, &(st_rope){k, &table, inverse, 0});
}
/* Head norms and rotation, by one op where the backend has it. */
static void norm_heads(const attention *m, st_step *s, const parts *p, const st_tensor *normed, const st_tensor *rstd_q,
                       const st_tensor *rstd_k)
{
    const st_tensor none = st_absent(), wq = st_w(s, m->q_norm), wk = st_w(s, m->k_norm);
    const st_rotary table = st_rotary_of(s, m->table);
    st_tensor q, k;
    pair_of(m, *normed, &q, &k);
    if (s->ops->qk_norm) {
        ST_OP(s, qk_norm,
              &(st_qk_norm){.kind = ST_NORM_RMS1P,
                            .eps = m->eps,
                            .table = &table,
                            .q = {.x = &p->q, .w = &wq, .y = &q, .rstd = rstd_q},
                            .k = {.x = &p->k, .w = &wk, .y = &k, .rstd = rstd_k}});
        return;
    }
    ST_OP(s, norm, &(st_norm){ST_NORM_RMS1P, 0, m->eps, &p->q, &none, &wq, &none, &none, &q, rstd_q, &none});
    ST_OP(s, norm, &(st_norm){ST_NORM_RMS1P, 0, m->eps, &p->k, &none, &wk, &none, &none, &k, rstd_k, &none});
    rotate(m, s, &q, &k, 0);
}
/* What forward and backward have in common. */
static st_attn attn_of(const attention *m, const st_step *s, const st_tensor *q, const st_tensor *k, const st_tensor *v,
                       const st_tensor *out, const st_tensor *lse)
{
    return (st_attn){.q = q,
                     .k = k,
                     .v = v,
                     .spans = &s->row->spans,
                     .out = out,
                     .lse = lse,
                     .scale = 1 / sqrt((double)m->head_dim),
                     .causal = m->causal,
                     .max_len = s->row->max_len};
}
static int forward(const void *self, st_step *s, const st_tensor *x, const st_tensor *y)
{
    const attention *m = self;
    const int64_t n = x->dim[0], w = out_width(m);
    const st_tensor proj = st_keep(s, PROJ, s->dtype, n, q_width(m) + 2 * kv_width(m));
    const st_tensor out = st_keep(s, OUT, s->dtype, n, w), lse = st_keep(s, LSE, s->acc_dtype, n, m->heads);
    const parts p = parts_of(m, proj);
    st_tensor q = p.q, k = p.k, result = out, a = heads_view(m, out);

    st_linear_bias(s, m->qkv, m->qkv_bias, x, &proj);
    if (m->qk_norm) {
        const st_tensor normed = st_keep(s, NORMED, s->dtype, n, w + kv_width(m));
        const st_tensor rq = st_keep(s, RSTD_Q, s->acc_dtype, n, m->heads),
                        rk = st_keep(s, RSTD_K, s->acc_dtype, n, m->kv_heads);
        norm_heads(m, s, &p, &normed, &rq, &rk);
        pair_of(m, normed, &q, &k);
    } else {
        rotate(m, s, &q, &k, 0);
    }
    const st_attn made = attn_of(m, s, &q, &k, &p.v, &a, &lse);
    ST_OP(s, attention, &made);
    if (m->gate) {
        result = st_keep(s, GATED, s->dtype, n, w);
        const st_tensor gated = heads_view(m, result);
        ST_OP(s, glu, ST_ACT_SIGMOID, &p.gate, &a, &gated);
    }
    return st_linear_bias(s, m->out, m->out_bias, &result, y);
}

/* dq and dk of the rotated, normed heads to those of the projection */
static void norm_heads_bwd(const attention *m, st_step *s, const parts *p, const parts *dp, const st_tensor *dq,
                           const st_tensor *dk)
{
    const st_tensor none = st_absent(), wq = st_w(s, m->q_norm), wk = st_w(s, m->k_norm);
    const st_tensor rq = st_kept(s, RSTD_Q), rk = st_kept(s, RSTD_K);
    const st_tensor gq = st_grad(s, m->q_norm, NULL), gk = st_grad(s, m->k_norm, NULL);
    const st_rotary table = st_rotary_of(s, m->table);
    if (s->ops->qk_norm_bwd) {
        ST_OP(s, qk_norm_bwd,
              &(st_qk_norm){.kind = ST_NORM_RMS1P,
                            .eps = m->eps,
                            .table = &table,
                            .q = {.x = &p->q, .w = &wq, .rstd = &rq, .dy = dq, .dx = &dp->q, .dw = &gq},
                            .k = {.x = &p->k, .w = &wk, .rstd = &rk, .dy = dk, .dx = &dp->k, .dw = &gk}});
        return;
    }
    rotate(m, s, dq, dk, 1);
    ST_OP(s, norm_bwd,
          &(st_norm_bwd){ST_NORM_RMS1P, 0, m->eps, &p->q, &wq, &none, &rq, &none, dq, &dp->q, &gq, &none, &none});
    ST_OP(s, norm_bwd,
          &(st_norm_bwd){ST_NORM_RMS1P, 0, m->eps, &p->k, &wk, &none, &rk, &none, dk, &dp->k, &gk, &none, &none});
}
/* The gradient behind the output projection into d_out. If there is a gate that is what it multiplied: one op goes through
 * gate and attention, or a backend without it through the gate here, into d_out and the gate's columns of dproj. */
static void out_backward(const attention *m, st_step *s, const parts *p, const parts *dp, const st_tensor *out,
                         const st_tensor *dy, const st_tensor *d_out)
{
    const size_t mark = st_mark(s);
    const st_tensor a = heads_view(m, *out), da = heads_view(m, *d_out);
    if (!m->gate) {
        st_linear_bias_bwd(s, m->out, m->out_bias, out, dy, d_out, 0);
        return;
    }
    st_tensor gated = st_kept(s, GATED), dgated = *d_out;
    if (!s->ops->attention_gated_bwd) dgated = st_scratch(s, s->dtype, out->dim[0], out_width(m));
    if (!gated.data) {
        gated = st_scratch(s, s->dtype, out->dim[0], out_width(m));
        const st_tensor view = heads_view(m, gated);
        ST_OP(s, glu, ST_ACT_SIGMOID, &p->gate, &a, &view);
    }
    st_linear_bias_bwd(s, m->out, m->out_bias, &gated, dy, &dgated, 0);
    if (!s->ops->attention_gated_bwd) {
        const st_tensor dg = heads_view(m, dgated);
        ST_OP(s, glu_bwd, ST_ACT_SIGMOID, &p->gate, &a, &dg, &dp->gate, &da);
    }
    st_release(s, mark);
}
static void attention_backward(const attention *m, st_step *s, const parts *p, const parts *dp, const st_attn *a)
{
    if (m->gate && s->ops->attention_gated_bwd)
        ST_OP(s, attention_gated_bwd, &(st_attn_gated){*a, &p->gate, a->d_out, &dp->gate});
    else ST_OP(s, attention_bwd, a);
}
static int backward(const void *self, st_step *s, const st_tensor *x, const st_tensor *dy, const st_tensor *dx)
{
    const attention *m = self;
    const int64_t n = x->dim[0], w = out_width(m);
    const st_tensor proj = st_kept(s, PROJ), out = st_kept(s, OUT), lse = st_kept(s, LSE);
    const st_tensor dproj = st_scratch(s, s->dtype, n, proj.dim[1]), d_out = st_scratch(s, s->dtype, n, w);
    const st_tensor a = heads_view(m, out), da = heads_view(m, d_out);
    const parts p = parts_of(m, proj), dp = parts_of(m, dproj);
    st_tensor q = p.q, k = p.k, dq = dp.q, dk = dp.k;

    out_backward(m, s, &p, &dp, &out, dy, &d_out);
    if (m->qk_norm) {
        st_tensor normed = st_kept(s, NORMED);
        if (!normed.data) {
            const st_tensor rq = st_kept(s, RSTD_Q), rk = st_kept(s, RSTD_K);
            normed = st_scratch(s, s->dtype, n, w + kv_width(m));
            norm_heads(m, s, &p, &normed, &rq, &rk);
        }
        pair_of(m, normed, &q, &k);
        pair_of(m, st_scratch(s, s->dtype, n, w + kv_width(m)), &dq, &dk);
    }
    st_attn made = attn_of(m, s, &q, &k, &p.v, &a, &lse);
    made.d_out = &da;
    made.dq = &dq;
    made.dk = &dk;
    made.dv = &dp.v;
    attention_backward(m, s, &p, &dp, &made);
    if (m->qk_norm) norm_heads_bwd(m, s, &p, &dp, &dq, &dk);
    else rotate(m, s, &dq, &dk, 1);
    return st_linear_bias_bwd(s, m->qkv, m->qkv_bias, x, &dproj, dx, 0);
}

/* Megatron counts half of all pairs and no gate; what is really visible of a segment of L tokens is L (L + 1) / 2
 * pairs, or L^2. */
static int cost(const void *self, const st_env *e, const st_row_stats *r, st_cost *out)
{
    const attention *m = self;
    const double h = (double)e->hidden, w = (double)out_width(m), kv = (double)kv_width(m);
    const double pairs = m->causal ? (r->sum_sq + r->tokens) / 2 : r->sum_sq;
    out->megatron = 4 * r->tokens * h * (w + kv) + (m->causal ? 2 : 4) * r->sum_sq * w;
    out->exact = 2 * r->tokens * h * ((double)q_width(m) + 2 * kv + w) + 4 * pairs * w;
    out->comm_bytes = 0;
    return ST_OK;
}

static const st_map maps[] = {
    {"hf", "qkv", "self_attn.q_proj.weight", SEC_Q, 1, ST_MAP_PLAIN, 0},
    {"hf", "qkv", "self_attn.k_proj.weight", SEC_K, 1, ST_MAP_PLAIN, 0},
    {"hf", "qkv", "self_attn.v_proj.weight", SEC_V, 1, ST_MAP_PLAIN, 0},
    {"hf", "qkv_bias", "self_attn.q_proj.bias", SEC_Q, 1, ST_MAP_PLAIN, 0},
    {"hf", "qkv_bias", "self_attn.k_proj.bias", SEC_K, 1, ST_MAP_PLAIN, 0},
    {"hf", "qkv_bias", "self_attn.v_proj.bias", SEC_V, 1, ST_MAP_PLAIN, 0},
    {"hf", "q_norm", "self_attn.q_norm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "k_norm", "self_attn.k_norm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "out", "self_attn.o_proj.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "out_bias", "self_attn.o_proj.bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "attn_qkv", "attn.qkv.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "attn_qkv_bias", "attn.qkv.bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "attn_proj", "attn.proj.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "attn_proj_bias", "attn.proj.bias", 0, 0, ST_MAP_PLAIN, 0},
};
static const st_param params[] = {
    ST_INT(attention, heads, NULL, 1, 4096, "heads", ST_PF_REQUIRED | ST_PF_FIXED, "query heads"),
    ST_INT(attention, kv_heads, NULL, 1, 4096, "heads", ST_PF_FIXED,
           "heads of keys and values; not given: as many as heads"),
    ST_INT(attention, head_dim, NULL, 1, 1024, "columns", ST_PF_FIXED, "size of one head; not given: hidden / heads"),
    ST_BOOL(attention, gate, "yes", ST_PF_FIXED, "multiply the result with the sigmoid of a gate per head and column"),
    ST_BOOL(attention, qk_norm, "yes", ST_PF_FIXED, "rms norm (times 1 + w) of query and key heads"),
    ST_BOOL(attention, bias, "no", ST_PF_FIXED, "biases in both projections"),
    ST_BOOL(attention, causal, "yes", ST_PF_FIXED, "a token sees only those before it and itself"),
    ST_BOOL(attention, rotary, "yes", ST_PF_FIXED, "rotate queries and keys by the position plugin's tables"),
    ST_CHOICE(attention, names, "decoder", "decoder|vision", ST_PF_FIXED,
              "how files name the weights: self_attn.q_proj, k_proj, v_proj, o_proj, or attn.qkv, attn.proj"),
};
static const st_layer_ops ops = {
    .size = sizeof ops,
    .role = ST_ROLE_MIXER,
    .tokens = ST_GATHERED,
    .slots = slots,
    .n_slots = ST_COUNT(slots),
    .maps = maps,
    .n_maps = ST_COUNT(maps),
    .configure = configure,
    .forward = forward,
    .backward = backward,
    .cost = cost,
};
ST_PLUGIN_V1(ST_KIND_LAYER, attention, ops, ST_PARAMS(params),
    .caps = ST_CAP_TRAIN | ST_CAP_LINEAR_X,
    .name = "attention",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "The strata authors",
    .summary = "softmax attention within segments, gated or plain",
    .description = "Grouped key heads, optional output gate, head norms, biases, causal mask and rotation. "
                   "Defaults are those of Qwen3.5's decoder; vision blocks set gate = no, qk_norm = no, bias = "
                   "yes, causal = no, names = vision.")
