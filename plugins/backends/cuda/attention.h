/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - spans as the attention kernels see them. A block has a tile of rows of one head and goes through the spans that
 * touch it; rows of other spans are masked, so a tile may hold the ends of many. Nothing is summed across blocks. */
#ifndef CUDA_ATTENTION_H
#define CUDA_ATTENTION_H
#include "kernel.h"

typedef struct span { int64_t q, q_n, k, k_n; } span;
enum { SIDE_Q = 0, SIDE_K = 2 };

DEVICE span span_at(const cuda_attn &a, int64_t s)
{
    const int32_t *p = a.spans + s;
    span x = {p[0], p[a.s_span], p[2 * a.s_span], p[3 * a.s_span]};
    return x;
}

/* Whether span s has rows of both sides and touches [low, high) of one; one outside q or k is a fault, and counts as empty. */
DEVICE bool touches(const cuda_attn &a, int64_t s, int side, int64_t low, int64_t high, st_cuda_faults faults)
{
    span x = span_at(a, s);
    if (x.q_n == 0) return false;
    if (x.q < 0 || x.q_n < 0 || x.q + x.q_n > a.q.rows || x.k < 0 || x.k_n < 0 || x.k + x.k_n > a.k.rows) {
        st_cuda_fault(faults, ST_FAULT_RANGE, x.q + x.q_n, x.k + x.k_n);
        return false;
    }
    if (x.k_n == 0) return false;
    return side == SIDE_Q ? x.q < high && x.q + x.q_n > low : x.k < high && x.k + x.k_n > low;
}

/* The first span from s on that touches the rows; a.n_spans: none. All lanes of a warp ask together, and get one answer. */
DEVICE int64_t next_span(const cuda_attn &a, int64_t s, int side, int64_t low, int64_t high, st_cuda_faults faults)
{
    for (; s < a.n_spans; s += CUDA_WARP) {
        int64_t own = s + threadIdx.x % CUDA_WARP;
        uint32_t found = __ballot_sync(0xffffffffu, own < a.n_spans && touches(a, own, side, low, high, faults));
        if (found) return s + __ffs((int)found) - 1;
    }
    return a.n_spans;
}

/* Query i of the span (counted from its begin) sees keys below this. */
DEVICE int64_t keys_seen(const cuda_attn &a, const span &s, int64_t i)
{
    if (!a.causal) return s.k_n;
    int64_t seen = s.k_n - s.q_n + i + 1;
    return seen < 0 ? 0 : seen < s.k_n ? seen : s.k_n;
}
/* The first query of the span that sees its key x. */
DEVICE int64_t first_query(const cuda_attn &a, const span &s, int64_t x)
{
    int64_t i = x - (s.k_n - s.q_n);
    return !a.causal || i < 0 ? 0 : i;
}

/* Entries of the two ways to compute: plain f32 arithmetic for any type, tensor cores for aligned bf16. */
extern "C" {
int cuda_attention_plain(const st_queue *, const cuda_attn *);
int cuda_attention_plain_bwd(const st_queue *, const cuda_attn *);
int cuda_attention_tensor(const st_queue *, const cuda_attn *);
int cuda_attention_tensor_dq(const st_queue *, const cuda_attn *);
int cuda_attention_tensor_dkv(const st_queue *, const cuda_attn *);
}
#endif
