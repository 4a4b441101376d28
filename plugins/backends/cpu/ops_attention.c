/* SPDX-License-Identifier: Apache-2.0 */
/* ops_attention.c - entries attention, attention_bwd and attention_gated_bwd. */
#include "../check/attention.h"
#include "cpu.h"
#include <stdlib.h>

/* ---- blocks ---- */
static int64_t most_blocks(int64_t rows, int64_t spans) { return rows / CPU_ATTN_BLOCK + 2 * spans + 1; }

static int take_blocks(const st_queue *q, const char *op, int64_t rows, int64_t spans, cpu_blocks *b)
{
    void *block, *cover;
    ST_TRY(check_scratch(q, op, (size_t)most_blocks(rows, spans) * sizeof *b->block, &block));
    ST_TRY(check_scratch(q, op, (size_t)spans * sizeof *b->cover, &cover));
    *b = (cpu_blocks){.block = block, .cover = cover};
    return ST_OK;
}

static int by_begin(const void *a_, const void *b_)
{
    const cpu_cover *a = a_, *b = b_;
    int32_t first = a->begin != b->begin ? a->begin : a->span, second = a->begin != b->begin ? b->begin : b->span;
    return (first > second) - (first < second);
}

/* The nearest end behind `row` of a cover that holds it, or `limit`. */
static int64_t next_end(const cpu_blocks *b, int64_t row, int64_t limit)
{
    int64_t from, to;
    cpu_covers_of(b, row, &from, &to);
    for (int64_t i = from; i < to; i++)
        if (b->cover[i].end > row && b->cover[i].end < limit) limit = b->cover[i].end;
    return limit;
}

/* begin, n: of each span; a span without rows on the other side covers nothing */
static void cut_blocks(int64_t rows, const int32_t *begin, const int32_t *n, const int32_t *other_n, int64_t spans,
                       cpu_blocks *b)
{
    for (int64_t i = 0; i < spans; i++)
        if (n[i] && other_n[i]) b->cover[b->n_covers++] = (cpu_cover){begin[i], begin[i] + n[i], 0, (int32_t)i};
    qsort(b->cover, (size_t)b->n_covers, sizeof *b->cover, by_begin);
    for (int64_t i = 0; i < b->n_covers; i++)
        b->cover[i].reach = (int32_t)cpu_max(b->cover[i].end, i ? b->cover[i - 1].reach : 0);
    int64_t next = 0; /* cover that begins next */
    for (int64_t row = 0, end; row < rows; row = end) {
        while (next < b->n_covers && b->cover[next].begin <= row) next++;
        end = cpu_min(row + CPU_ATTN_BLOCK, rows);
        if (next < b->n_covers) end = cpu_min(end, b->cover[next].begin);
        end = next_end(b, row, end);
        b->block[b->n++] = (cpu_block){(int32_t)row, (int32_t)(end - row)};
    }
}

void cpu_covers_of(const cpu_blocks *b, int64_t first, int64_t *from, int64_t *to)
{
    int64_t low = 0, high = b->n_covers;
    while (low < high) { /* the first that reaches behind `first` */
        int64_t mid = (low + high) / 2;
        if (b->cover[mid].reach > first) high = mid;
        else low = mid + 1;
    }
    *from = low;
    high = b->n_covers;
    while (low < high) { /* the first that begins behind it */
        int64_t mid = (low + high) / 2;
        if (b->cover[mid].begin > first) high = mid;
        else low = mid + 1;
    }
    *to = low;
}

static void cut_q(cpu_attn *a)
{
    const int32_t *s = a->spans;
    cut_blocks(a->q.rows, s, s + a->s_span, s + 3 * a->s_span, a->n_spans, &a->q_blocks);
}

static void cut_k(cpu_attn *a)
{
    const int32_t *s = a->spans;
    cut_blocks(a->k.rows, s + 2 * a->s_span, s + 3 * a->s_span, s + a->s_span, a->n_spans, &a->k_blocks);
}

static void mark_whole(const cpu_attn *a)
{
    const cpu_blocks *b = &a->k_blocks;
    for (int64_t i = 0; i < a->n_spans; i++) a->whole[i] = false;
    for (int64_t i = 0; i < b->n; i++) {
        int64_t from, to, first = b->block[i].first, end = first + b->block[i].n;
        cpu_covers_of(b, first, &from, &to);
        for (; from < to; from++)
            if (b->cover[from].begin == first && b->cover[from].end == end) a->whole[b->cover[from].span] = true;
    }
}

static int check(const st_queue *q, const char *op, const st_attn *a, int *real, cpu_attn *job)
{
    ST_TRY(cpu_want_real(q, op, "q", a->q, real));
    int32_t type = a->q->dtype;
    ST_TRY(CHECK_TENSOR(q, op, "q", a->q, type, -1, -1, -1));
    int64_t tokens = a->q->dim[0], heads = a->q->dim[1], d = a->q->dim[2];
    ST_TRY(CHECK_TENSOR(q, op, "k", a->k, type, -1, -1, d));
    int64_t keys = a->k->dim[0], kv_heads = a->k->dim[1];
    ST_TRY(CHECK_TENSOR(q, op, "v", a->v, type, keys, kv_heads, d));
    ST_TRY(CHECK_TENSOR(q, op, "out", a->out, type, tokens, heads, d));
    ST_TRY(CHECK_TENSOR_IF(q, op, "lse", a->lse, type, tokens, heads));
    ST_TRY(CHECK_TENSOR(q, op, "spans", a->spans, ST_I32, 4, -1));
    if (d > CPU_ATTN_MOST)
        return q->fail(q, ST_E_UNSUPPORTED, "%s: heads of %lld, the cpu backend goes up to %d", op, (long long)d,
                       CPU_ATTN_MOST);
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
    if (check_given(a->lse)) { /* as (tokens, heads) of one column each */
        job->lse = (cpu_view){a->lse->data, tokens, heads, 1, a->lse->stride[0], a->lse->stride[1]};
    }
    return ST_OK;
}

/* Blocks of both sides, and rooms per lane: `heads` of BLOCK rows of a head, `squares` of BLOCK^2, `rows` of BLOCK. */
static int take_room(const st_queue *q, const char *op, cpu_attn *a, int real, int64_t heads, int64_t squares,
                     int64_t rows)
{
    int64_t block = CPU_ATTN_BLOCK, wide = cpu_div_up(a->q.cols, 16) * 16;
    int64_t pieces = cpu_max(most_blocks(a->q.rows, a->n_spans) * a->q.heads,
                             most_blocks(a->k.rows, a->n_spans) * a->k.heads);
    ST_TRY(take_blocks(q, op, a->q.rows, a->n_spans, &a->q_blocks));
    ST_TRY(take_blocks(q, op, a->k.rows, a->n_spans, &a->k_blocks));
    a->lanes = cpu_min(CPU_ATTN_LANES, pieces);
    a->room_size = block * (heads * wide + squares * block + rows);
    return check_scratch(q, op, (size_t)(a->lanes * a->room_size) * cpu_real_size(real), &a->room);
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
    double bytes = check_bytes(a->q) + check_bytes(a->k) + check_bytes(a->v) + check_bytes(a->out);
    ST_TRY(take_room(q, op, &job, real, 3, 1, 3));
    if (q->planning) pairs = pairs_planned(a);
    else if (!pairs_real(q, &job, &pairs)) return ST_OK;
    q->count(q, 4 * pairs * (double)job.q.heads * (double)job.q.cols, bytes);
    if (q->planning) return ST_OK;
    cut_q(&job);
    cpu_table_of(q, real)->attention(q, &job);
    return ST_OK;
}

/* gate: what multiplied the result, NULL: nothing. Its backward comes first: values are those of the separate ops. */
static int backward(const st_queue *q, const char *op, const st_attn *a, const st_attn_gated *gate)
{
    int real;
    cpu_attn job;
    double pairs;
    ST_TRY(check(q, op, a, &real, &job));
    if (gate) {
        ST_TRY(check_gate(q, op, gate));
        ST_TRY(cpu_glu_bwd(q, ST_ACT_SIGMOID, gate->gate, a->out, gate->dy, gate->d_gate, a->d_out));
    }
    ST_TRY(CHECK_TENSOR(q, op, "lse", a->lse, a->q->dtype, job.q.rows, job.q.heads));
    ST_TRY(check_like(q, op, "d_out", a->d_out, "q", a->q));
    if (check_given(a->dq)) ST_TRY(check_like(q, op, "dq", a->dq, "q", a->q));
    if (check_given(a->dk)) ST_TRY(check_like(q, op, "dk", a->dk, "k", a->k));
    if (check_given(a->dv)) ST_TRY(check_like(q, op, "dv", a->dv, "v", a->v));
    job.d_out = cpu_view_of(a->d_out);
    job.dq = cpu_view_of(a->dq);
    job.dk = cpu_view_of(a->dk);
    job.dv = cpu_view_of(a->dv);
    bool both = check_given(a->dq) && (check_given(a->dk) || check_given(a->dv));
    void *whole;
    ST_TRY(check_scratch(q, op, (size_t)(job.q.rows * job.q.heads) * cpu_real_size(real), &job.delta));
    ST_TRY(check_scratch(q, op, both ? (size_t)job.n_spans * sizeof *job.whole : 0, &whole));
    job.whole = whole;
    ST_TRY(take_room(q, op, &job, real, 6, 2, 2));
    if (q->planning) pairs = pairs_planned(a);
    else if (!pairs_real(q, &job, &pairs)) return ST_OK;
    double bytes = 2 * (check_bytes(a->q) + check_bytes(a->k) + check_bytes(a->v)) + 2 * check_bytes(a->out);
    q->count(q, 10 * pairs * (double)job.q.heads * (double)job.q.cols, bytes);
    if (q->planning) return ST_OK;
    cut_q(&job);
    cut_k(&job);
    if (job.whole) mark_whole(&job);
    cpu_table_of(q, real)->attention_bwd(q, &job);
    return ST_OK;
}

int cpu_attention_bwd(const st_queue *q, const st_attn *a) { return backward(q, "attention_bwd", a, NULL); }

int cpu_attention_gated_bwd(const st_queue *q, const st_attn_gated *a)
{
    return backward(q, "attention_gated_bwd", &a->of, a);
}
