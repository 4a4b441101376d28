/* SPDX-License-Identifier: Apache-2.0 */
/* attention_lists.cu - see attention_lists.h. */
#include "attention.h"
#include "attention_lists.h"

enum { ROWS = 64 };

/* Where queries at the begin of a span see no key, a library would divide by 0: they are left out of the lists, and cleared. */
DEVICE span seeing_part(const cuda_attn &a, span x)
{
    if (a.causal && x.q_n > x.k_n) {
        x.q += x.q_n - x.k_n;
        x.q_n = x.k_n;
    }
    return x;
}

/* One that is longer than its class allows is a fault, and counts as empty. */
DEVICE bool short_enough(const cuda_attn &a, const span &x, st_cuda_faults faults)
{
    if (x.q_n <= a.q_longest && x.k_n <= a.k_longest) return true;
    st_cuda_fault(faults, ST_FAULT_RANGE, x.q_n, x.k_n);
    return false;
}

DEVICE void make_lists(const cuda_attn &a, const cuda_attn_lists &l, st_cuda_faults faults)
{
    const int64_t stride[CUDA_ATTN_FIRSTS] = {a.q.s_row, a.k.s_row, a.v.s_row, a.out.s_row, a.lse.s_row};
    for (int64_t s = threadIdx.x; s <= a.n_spans; s += CUDA_THREADS) {
        span x = {a.q.rows, 0, a.k.rows, 0}; /* behind the last */
        if (s < a.n_spans) {
            bool live = touches(a, s, SIDE_Q, 0, a.q.rows, faults);
            if (live) x = seeing_part(a, span_at(a, s));
            if (!live || !short_enough(a, x, faults)) x = span{0, 0, 0, 0};
            l.q_len[s] = (int32_t)x.q_n;
            l.k_len[s] = (int32_t)x.k_n;
        }
#pragma unroll
        for (int i = 0; i < CUDA_ATTN_FIRSTS; i++) l.first[i][s] = (i == 1 || i == 2 ? x.k : x.q) * stride[i];
    }
}

/* Out is in whole 16-byte words. */
DEVICE void clear_row(const cuda_attn &a, int64_t row)
{
    int64_t words = a.out.cols / 8;
    for (int64_t i = threadIdx.x % CUDA_WARP; i < a.out.heads * words; i += CUDA_WARP)
        *(uint4 *)((st_bf16 *)a.out.data + row * a.out.s_row + i / words * a.out.s_head + i % words * 8) = uint4{};
    for (int64_t i = threadIdx.x % CUDA_WARP; i < a.lse.heads; i += CUDA_WARP)
        ((float *)a.lse.data)[row * a.lse.s_row + i * a.lse.s_head] = 0;
}

KERNEL(CUDA_THREADS) lists_kernel(const cuda_attn a, const cuda_attn_lists l, st_cuda_faults faults)
{
    __shared__ uint8_t inside[ROWS];
    int64_t low = (int64_t)blockIdx.x * ROWS, high = low + ROWS < a.q.rows ? low + ROWS : a.q.rows;
    if (blockIdx.x == 0) make_lists(a, l, faults);
    if (threadIdx.x < ROWS) inside[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t s = threadIdx.x; s < a.n_spans; s += CUDA_THREADS) {
        if (!touches(a, s, SIDE_Q, low, high, faults)) continue;
        span x = seeing_part(a, span_at(a, s));
        for (int64_t row = x.q > low ? x.q : low; row < high && row < x.q + x.q_n; row++) inside[row - low] = 1;
    }
    __syncthreads();
    for (int64_t row = low + threadIdx.x / CUDA_WARP; row < high; row += CUDA_THREADS / CUDA_WARP)
        if (!inside[row - low]) clear_row(a, row);
}

extern "C" int cuda_attention_lists(const st_queue *q, const cuda_attn *a, const cuda_attn_lists *l)
{
    lists_kernel<<<(unsigned)cuda_div_up(a->q.rows, ROWS), CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a, *l,
                                                                                                 st_cuda_faults_of(q));
    return st_cuda_launched(q, "attention");
}
