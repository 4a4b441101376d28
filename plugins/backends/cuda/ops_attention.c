/* SPDX-License-Identifier: Apache-2.0 */
/* ops_attention.c - entries attention, attention_bwd and attention_gated_bwd. */
#include "../check/attention.h"
#include "ops.h"

enum { MOST_COLUMNS = 256 };

static int same_type(const st_queue *q, const char *op, const char *name, const st_tensor *t, const st_tensor *like)
{
    if (!check_given(t) || t->dtype == like->dtype) return ST_OK;
    return q->fail(q, ST_E_SHAPE, "%s: %s is %s, but q is %s", op, name, check_type_name(t->dtype),
                   check_type_name(like->dtype));
}

/* Rows of t that one span may have. */
static int64_t longest(const st_attn *a, const st_tensor *t)
{
    return a->max_len > 0 ? ops_min(a->max_len, t->dim[0]) : t->dim[0];
}

static int check(const st_queue *q, const char *op, const st_attn *a, cuda_attn *job)
{
    ST_TRY(WANT_REAL(q, op, "q", a->q, -1, -1, -1));
    int64_t tokens = a->q->dim[0], heads = a->q->dim[1], d = a->q->dim[2];
    ST_TRY(WANT_REAL(q, op, "k", a->k, -1, -1, d));
    int64_t keys = a->k->dim[0], kv_heads = a->k->dim[1];
    ST_TRY(WANT_REAL(q, op, "v", a->v, keys, kv_heads, d));
    ST_TRY(WANT_REAL(q, op, "out", a->out, tokens, heads, d));
    ST_TRY(same_type(q, op, "k", a->k, a->q));
    ST_TRY(same_type(q, op, "v", a->v, a->q));
    ST_TRY(same_type(q, op, "out", a->out, a->q));
    ST_TRY(CHECK_TENSOR_IF(q, op, "lse", a->lse, ST_F32, tokens, heads));
    ST_TRY(CHECK_TENSOR(q, op, "spans", a->spans, ST_I32, 4, -1));
    if (d < 1 || d > MOST_COLUMNS)
        return q->fail(q, ST_E_UNSUPPORTED, "%s: heads of %lld, the cuda backend goes up to %d", op, (long long)d,
                       MOST_COLUMNS);
    if (!heads || !kv_heads || heads % kv_heads)
        return q->fail(q, ST_E_SHAPE, "%s: %lld heads of q do not share %lld heads of k evenly", op, (long long)heads,
                       (long long)kv_heads);
    *job = (cuda_attn){.q = view_of(a->q), .k = view_of(a->k), .v = view_of(a->v), .out = view_of(a->out),
                       .spans = a->spans->data, .s_span = a->spans->stride[0], .n_spans = a->spans->dim[1],
                       .q_longest = longest(a, a->q), .k_longest = longest(a, a->k),
                       .scale = (float)a->scale, .causal = a->causal, .type = a->q->dtype};
    if (check_given(a->lse)) /* as (tokens, heads) of one column each */
        job->lse = (cuda_view){a->lse->data, tokens, heads, 1, a->lse->stride[0], a->lse->stride[1], ST_F32, 0};
    job->wide = wide_view(&job->q) && wide_view(&job->k) && wide_view(&job->v) && wide_view(&job->out);
    return ST_OK;
}

/* Pairs of query and key, every row in a span as long as one may be: what spans say is on the device. */
static double pairs_of(const st_attn *a)
{
    double keys = (double)longest(a, a->k);
    return (double)a->q->dim[0] * (a->causal ? (keys + 1) / 2 : keys);
}

int cuda_attention(const st_queue *q, const st_attn *a)
{
    cuda_attn job;
    ST_TRY(check(q, "attention", a, &job));
    if (job.type == ST_BF16 && job.q.cols % 8 == 0 && job.lse.data)
        ST_TRY(check_scratch(q, "attention", cuda_attn_room(job.n_spans), &job.room));
    q->count(q, 4 * pairs_of(a) * (double)job.q.heads * (double)job.q.cols,
             check_bytes(a->q) + check_bytes(a->k) + check_bytes(a->v) + check_bytes(a->out));
    return q->planning || !job.q.rows ? ST_OK : cuda_table_of(q)->attention(q, &job);
}

static int check_backward(const st_queue *q, const char *op, const st_attn *a, cuda_attn *job)
{
    const st_tensor *const grad[] = {a->d_out, a->dq, a->dk, a->dv};
    static const char *const name[] = {"d_out", "dq", "dk", "dv"};
    ST_TRY(check(q, op, a, job));
    ST_TRY(CHECK_TENSOR(q, op, "lse", a->lse, ST_F32, job->q.rows, job->q.heads));
    if (!check_given(a->d_out)) return q->fail(q, ST_E_SHAPE, "%s: d_out is absent, it must be like q", op);
    for (int i = 0; i < 4; i++) {
        ST_TRY(same_type(q, op, name[i], grad[i], a->q));
        ST_TRY(want_real_like_if(q, op, name[i], grad[i], i < 2 ? "q" : "k", i < 2 ? a->q : a->k));
    }
    job->d_out = view_of(a->d_out);
    job->dq = view_of(a->dq);
    job->dk = view_of(a->dk);
    job->dv = view_of(a->dv);
    job->wide = job->wide && wide_view(&job->d_out) && wide_view(&job->dq) && wide_view(&job->dk) && wide_view(&job->dv);
    return ST_OK;
}

/* first: views of the gate, absent where there is none. */
static int backward(const st_queue *q, const char *op, const st_attn *a, cuda_attn *job, cuda_delta *first)
{
    void *delta;
    ST_TRY(check_scratch(q, op, (size_t)(job->q.rows * job->q.heads) * sizeof(float), &delta));
    job->delta = first->delta = delta;
    first->out = job->out;
    first->d_out = job->d_out;
    first->wide = wide_view(&first->out) && wide_view(&first->d_out) && wide_view(&first->gate) &&
                  wide_view(&first->dy) && wide_view(&first->d_gate);
    q->count(q, 10 * pairs_of(a) * (double)job->q.heads * (double)job->q.cols,
             2 * (check_bytes(a->q) + check_bytes(a->k) + check_bytes(a->v)) + 2 * check_bytes(a->out));
    if (q->planning) return ST_OK;
    ST_TRY(cuda_table_of(q)->attention_delta(q, first));
    return cuda_table_of(q)->attention_bwd(q, job);
}

int cuda_attention_bwd(const st_queue *q, const st_attn *a)
{
    const char *const op = "attention_bwd";
    cuda_attn job;
    cuda_delta first = {0};
    ST_TRY(check_backward(q, op, a, &job));
    return backward(q, op, a, &job, &first);
}

int cuda_attention_gated_bwd(const st_queue *q, const st_attn_gated *a)
{
    const char *const op = "attention_gated_bwd";
    cuda_attn job;
    ST_TRY(check_backward(q, op, &a->of, &job));
    ST_TRY(check_gate(q, op, a));
    cuda_delta first = {.gate = view_of(a->gate), .dy = view_of(a->dy), .d_gate = view_of(a->d_gate)};
    q->count(q, 20.0 * (double)check_elements(a->gate), check_bytes(a->gate) + check_bytes(a->dy) + check_bytes(a->d_gate));
    return backward(q, op, &a->of, &job, &first);
}
