/* SPDX-License-Identifier: Apache-2.0 */
/* ops_attention.c - entries attention and attention_bwd. */
#include "cpu.h"

enum { MOST_HEAD = 256 };

static int check(const st_queue *q, const char *op, const st_attn *a, int *real, cpu_attn *job)
{
    ST_TRY(cpu_want_real(q, op, "q", a->q, real));
    int32_t type = a->q->dtype;
    ST_TRY(CPU_WANT(q, op, "q", a->q, type, -1, -1, -1));
    int64_t tokens = a->q->dim[0], heads = a->q->dim[1], d = a->q->dim[2];
    ST_TRY(CPU_WANT(q, op, "k", a->k, type, -1, -1, d));
    int64_t keys = a->k->dim[0], kv_heads = a->k->dim[1];
    ST_TRY(CPU_WANT(q, op, "v", a->v, type, keys, kv_heads, d));
    ST_TRY(CPU_WANT(q, op, "out", a->out, type, tokens, heads, d));
    ST_TRY(CPU_WANT_IF(q, op, "lse", a->lse, type, tokens, heads));
    ST_TRY(CPU_WANT(q, op, "spans", a->spans, ST_I32, 4, -1));
    if (d > MOST_HEAD)
        return q->fail(q, ST_E_UNSUPPORTED, "%s: heads of %lld, the cpu backend goes up to %d", op, (long long)d,
                       MOST_HEAD);
    if (!heads || !kv_heads || heads % kv_heads)
        return q->fail(q, ST_E_SHAPE, "%s: %lld heads of q do not share %lld heads of k evenly", op, (long long)heads,
                       (long long)kv_heads);
    *job = (cpu_attn){.q = cpu_view_of(a->q),
                      .k = cpu_view_of(a->k),
                      .v = cpu_view_of(a->v),
                      .out = cpu_view_of(a->out),
                      .spans = a->spans->data,
                      .s_span = a->spans->stride[0],
                      .n_spans = a->spans->dim[1],
                      .scale = a->scale,
                      .causal = a->causal};
    if (cpu_given(a->lse)) { /* as (tokens, heads) of one column each */
        job->lse = (cpu_view){a->lse->data, tokens, heads, 1, a->lse->stride[0], a->lse->stride[1]};
    }
    return ST_OK;
}

/* Pairs of query and key. Planning: every row in a span as long as one may be. */
static double pairs_planned(const st_attn *a)
{
    double keys = (double)(a->max_len > 0 ? cpu_min(a->max_len, a->k->dim[0]) : a->k->dim[0]);
    return (double)a->q->dim[0] * (a->causal ? (keys + 1) / 2 : keys);
}

/* Checks spans on the way: a span outside q or k is a fault, and nothing is computed. */
static bool pairs_real(const st_queue *q, const cpu_attn *a, double *pairs)
{
    *pairs = 0;
    for (int64_t i = 0; i < a->n_spans; i++) {
        const int32_t *s = a->spans + i;
        int64_t q0 = s[0], qn = s[a->s_span], k0 = s[2 * a->s_span], kn = s[3 * a->s_span];
        if (qn == 0) continue;
        if (q0 < 0 || qn < 0 || q0 + qn > a->q.rows || k0 < 0 || kn < 0 || k0 + kn > a->k.rows) {
            cpu_fault(q, ST_FAULT_RANGE, q0 + qn, k0 + kn);
            return false;
        }
        int64_t hidden = a->causal ? cpu_min(qn, kn) : 0; /* the last `hidden` queries miss 0, 1, 2 ... keys */
        int64_t seeing = a->causal && qn > kn ? kn : qn;
        *pairs += (double)seeing * (double)kn - 0.5 * (double)hidden * (double)(hidden - 1);
    }
    return true;
}

int cpu_attention(const st_queue *q, const st_attn *a)
{
    const char *const op = "attention";
    int real;
    cpu_attn job;
    double pairs;
    ST_TRY(check(q, op, a, &real, &job));
    double bytes = cpu_bytes(a->q) + cpu_bytes(a->k) + cpu_bytes(a->v) + cpu_bytes(a->out);
    if (q->planning) pairs = pairs_planned(a);
    else if (!pairs_real(q, &job, &pairs)) return ST_OK;
    q->count(q, 4 * pairs * (double)job.q.heads * (double)job.q.cols, bytes);
    if (!q->planning) cpu_table_of(q, real)->attention(q, &job);
    return ST_OK;
}

int cpu_attention_bwd(const st_queue *q, const st_attn *a)
{
    const char *const op = "attention_bwd";
    int real;
    cpu_attn job;
    double pairs;
    ST_TRY(check(q, op, a, &real, &job));
    ST_TRY(CPU_WANT(q, op, "lse", a->lse, a->q->dtype, job.q.rows, job.q.heads));
    ST_TRY(cpu_want_like(q, op, "d_out", a->d_out, "q", a->q));
    if (cpu_given(a->dq)) ST_TRY(cpu_want_like(q, op, "dq", a->dq, "q", a->q));
    if (cpu_given(a->dk)) ST_TRY(cpu_want_like(q, op, "dk", a->dk, "k", a->k));
    if (cpu_given(a->dv)) ST_TRY(cpu_want_like(q, op, "dv", a->dv, "v", a->v));
    job.d_out = cpu_view_of(a->d_out);
    job.dq = cpu_view_of(a->dq);
    job.dk = cpu_view_of(a->dk);
    job.dv = cpu_view_of(a->dv);
    ST_TRY(cpu_scratch(q, op, (size_t)(job.q.rows * job.q.heads) * cpu_real_size(real), &job.delta));
    if (q->planning) pairs = pairs_planned(a);
    else if (!pairs_real(q, &job, &pairs)) return ST_OK;
    double bytes = 2 * (cpu_bytes(a->q) + cpu_bytes(a->k) + cpu_bytes(a->v)) + 2 * cpu_bytes(a->out);
    q->count(q, 10 * pairs * (double)job.q.heads * (double)job.q.cols, bytes);
    if (!q->planning) cpu_table_of(q, real)->attention_bwd(q, &job);
    return ST_OK;
}
