/* SPDX-License-Identifier: Apache-2.0 */
/* attention_plain.cu - attention and its backward in plain f32 arithmetic, for f32 and for bf16 that is not aligned. A tile is
 * 32 rows; eight threads share a row, each with every eighth column. */
#include "attention.h"
#include <math_constants.h>

enum { ROWS = 32, SHARE = 8, THREADS = ROWS * SHARE };

template <int D> struct room { /* rows are odd in length, against conflicts of banks */
    static const int ld = D + 1;
    static const size_t bytes = sizeof(float) * ROWS * (D + 1);
};
enum { SCORES = ROWS * (ROWS + 1) };

/* Rows [first, first + n) of a head; zeros behind them and behind the head's columns. */
template <int D> DEVICE void load_rows(float *to, const cuda_view &v, int64_t head, int64_t first, int64_t n)
{
    for (int e = threadIdx.x; e < ROWS * D; e += THREADS) {
        int row = e / D, col = e % D;
        int64_t at = (first + row) * v.s_row + head * v.s_head + col;
        to[row * room<D>::ld + col] = row < n && col < v.cols ? get_real(v.data, v.type, at) : 0.0f;
    }
}

template <int D> DEVICE float dot(const float *a, const float *b)
{
    float sum = 0;
#pragma unroll 8
    for (int j = 0; j < D; j++) sum += a[j] * b[j];
    return sum;
}

/* sum[j] += score[k] rows[k][column j of this thread], over the 32 rows */
template <int D> DEVICE void add_rows(float *sum, const float *score, const float *rows)
{
    int share = threadIdx.x % SHARE;
    for (int k = 0; k < ROWS; k++) {
        float p = score[k];
#pragma unroll
        for (int j = 0; j < D / SHARE; j++) sum[j] += p * rows[k * room<D>::ld + share + j * SHARE];
    }
}

template <int D> DEVICE void store_row(const cuda_view &v, int64_t head, int64_t row, const float *x, float factor)
{
#pragma unroll
    for (int j = 0; j < D / SHARE; j++) {
        int64_t col = threadIdx.x % SHARE + j * SHARE;
        if (v.data && row < v.rows && col < v.cols)
            put_real(v.data, v.type, row * v.s_row + head * v.s_head + col, x[j] * factor);
    }
}

DEVICE float share_max(float x) /* over the threads of a row */
{
    for (int step = SHARE / 2; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

template <int D> KERNEL(THREADS) forward_kernel(const cuda_attn a, st_cuda_faults faults)
{
    extern __shared__ float shared[];
    const int ld = room<D>::ld;
    float *queries = shared, *keys = queries + ROWS * ld, *values = keys + ROWS * ld, *score = values + ROWS * ld;
    int row = threadIdx.x / SHARE, share = threadIdx.x % SHARE;
    int64_t first = (int64_t)blockIdx.x * ROWS, head = blockIdx.y, kv = head / (a.q.heads / a.k.heads);
    float most = -CUDART_INF_F, total = 0, out[D / SHARE] = {};
    load_rows<D>(queries, a.q, head, first, a.q.rows - first);
    for (int64_t s = next_span(a, 0, SIDE_Q, first, first + ROWS, faults); s < a.n_spans;
         s = next_span(a, s + 1, SIDE_Q, first, first + ROWS, faults)) {
        span x = span_at(a, s);
        int64_t i = first + row - x.q, end = first + ROWS < x.q + x.q_n ? first + ROWS : x.q + x.q_n;
        int64_t limit = i >= 0 && i < x.q_n ? keys_seen(a, x, i) : 0, reach = keys_seen(a, x, end - 1 - x.q);
        for (int64_t k = 0; k < reach; k += ROWS) {
            __syncthreads();
            load_rows<D>(keys, a.k, kv, x.k + k, x.k_n - k);
            load_rows<D>(values, a.v, kv, x.k + k, x.k_n - k);
            __syncthreads();
            float p[ROWS / SHARE], high = -CUDART_INF_F, sum = 0;
#pragma unroll
            for (int j = 0; j < ROWS / SHARE; j++) {
                int key = share + j * SHARE;
                p[j] = k + key < limit ? a.scale * dot<D>(queries + row * ld, keys + key * ld) : -CUDART_INF_F;
                high = fmaxf(high, p[j]);
            }
            high = fmaxf(most, share_max(high));
            float base = high == -CUDART_INF_F ? 0.0f : high, factor = expf(most - base);
#pragma unroll
            for (int j = 0; j < ROWS / SHARE; j++) {
                p[j] = expf(p[j] - base);
                sum += p[j];
                score[row * (ROWS + 1) + share + j * SHARE] = p[j];
            }
            total = total * factor + st_lanes_sum<SHARE>(sum);
            most = high;
            __syncwarp();
#pragma unroll
            for (int j = 0; j < D / SHARE; j++) out[j] *= factor;
            add_rows<D>(out, score + row * (ROWS + 1), values);
            __syncwarp();
        }
    }
    store_row<D>(a.out, head, first + row, out, total > 0 ? 1.0f / total : 0.0f);
    if (a.lse.data && share == 0 && first + row < a.q.rows)
        ((float *)a.lse.data)[(first + row) * a.lse.s_row + head * a.lse.s_head] = total > 0 ? most + logf(total) : 0.0f;
}

/* dq of a tile of queries */
template <int D> KERNEL(THREADS) dq_kernel(const cuda_attn a, st_cuda_faults faults)
{
    extern __shared__ float shared[];
    const int ld = room<D>::ld;
    float *queries = shared, *grads = queries + ROWS * ld, *keys = grads + ROWS * ld, *values = keys + ROWS * ld;
    float *score = values + ROWS * ld, dq[D / SHARE] = {};
    int row = threadIdx.x / SHARE, share = threadIdx.x % SHARE;
    int64_t first = (int64_t)blockIdx.x * ROWS, head = blockIdx.y, kv = head / (a.q.heads / a.k.heads), at = first + row;
    bool here = at < a.q.rows;
    float lse = here ? ((const float *)a.lse.data)[at * a.lse.s_row + head * a.lse.s_head] : 0.0f;
    float delta = here ? a.delta[at * a.q.heads + head] : 0.0f;
    load_rows<D>(queries, a.q, head, first, a.q.rows - first);
    load_rows<D>(grads, a.d_out, head, first, a.q.rows - first);
    for (int64_t s = next_span(a, 0, SIDE_Q, first, first + ROWS, faults); s < a.n_spans;
         s = next_span(a, s + 1, SIDE_Q, first, first + ROWS, faults)) {
        span x = span_at(a, s);
        int64_t i = at - x.q, end = first + ROWS < x.q + x.q_n ? first + ROWS : x.q + x.q_n;
        int64_t limit = i >= 0 && i < x.q_n ? keys_seen(a, x, i) : 0, reach = keys_seen(a, x, end - 1 - x.q);
        for (int64_t k = 0; k < reach; k += ROWS) {
            __syncthreads();
            load_rows<D>(keys, a.k, kv, x.k + k, x.k_n - k);
            load_rows<D>(values, a.v, kv, x.k + k, x.k_n - k);
            __syncthreads();
#pragma unroll
            for (int j = 0; j < ROWS / SHARE; j++) {
                int key = share + j * SHARE;
                float ds = 0;
                if (k + key < limit) {
                    float p = expf(a.scale * dot<D>(queries + row * ld, keys + key * ld) - lse);
                    ds = p * (dot<D>(grads + row * ld, values + key * ld) - delta);
                }
                score[row * (ROWS + 1) + key] = ds;
            }
            __syncwarp();
            add_rows<D>(dq, score + row * (ROWS + 1), keys);
            __syncwarp();
        }
    }
    store_row<D>(a.dq, head, at, dq, a.scale);
}

/* dk and dv of a tile of keys: over the query heads that share them, then spans, then queries, in order */
template <int D> KERNEL(THREADS) dkv_kernel(const cuda_attn a, st_cuda_faults faults)
{
    extern __shared__ float shared[];
    const int ld = room<D>::ld;
    float *keys = shared, *values = keys + ROWS * ld, *queries = values + ROWS * ld, *grads = queries + ROWS * ld;
    float *prob = grads + ROWS * ld, *score = prob + SCORES, *lse = score + SCORES, *delta = lse + ROWS;
    float dk[D / SHARE] = {}, dv[D / SHARE] = {};
    int row = threadIdx.x / SHARE, share = threadIdx.x % SHARE;
    int64_t first = (int64_t)blockIdx.x * ROWS, kv = blockIdx.y, group = a.q.heads / a.k.heads;
    load_rows<D>(keys, a.k, kv, first, a.k.rows - first);
    load_rows<D>(values, a.v, kv, first, a.k.rows - first);
    for (int64_t head = kv * group; head < (kv + 1) * group; head++)
        for (int64_t s = next_span(a, 0, SIDE_K, first, first + ROWS, faults); s < a.n_spans;
             s = next_span(a, s + 1, SIDE_K, first, first + ROWS, faults)) {
            span x = span_at(a, s);
            int64_t key = first + row - x.k; /* within the span */
            bool inside = key >= 0 && key < x.k_n;
            for (int64_t i = first_query(a, x, first > x.k ? first - x.k : 0); i < x.q_n; i += ROWS) {
                __syncthreads();
                load_rows<D>(queries, a.q, head, x.q + i, x.q_n - i);
                load_rows<D>(grads, a.d_out, head, x.q + i, x.q_n - i);
                if (threadIdx.x < ROWS && i + threadIdx.x < x.q_n) {
                    int64_t at = x.q + i + threadIdx.x;
                    lse[threadIdx.x] = ((const float *)a.lse.data)[at * a.lse.s_row + head * a.lse.s_head];
                    delta[threadIdx.x] = a.delta[at * a.q.heads + head];
                }
                __syncthreads();
#pragma unroll
                for (int j = 0; j < ROWS / SHARE; j++) {
                    int query = share + j * SHARE;
                    float p = 0, ds = 0;
                    if (inside && i + query < x.q_n && key < keys_seen(a, x, i + query)) {
                        p = expf(a.scale * dot<D>(keys + row * ld, queries + query * ld) - lse[query]);
                        ds = p * (dot<D>(values + row * ld, grads + query * ld) - delta[query]);
                    }
                    prob[row * (ROWS + 1) + query] = p;
                    score[row * (ROWS + 1) + query] = ds;
                }
                __syncwarp();
                add_rows<D>(dv, prob + row * (ROWS + 1), grads);
                add_rows<D>(dk, score + row * (ROWS + 1), queries);
                __syncwarp();
            }
        }
    store_row<D>(a.dk, kv, first + row, dk, a.scale);
    store_row<D>(a.dv, kv, first + row, dv, 1.0f);
}

template <int D> static void run_forward(const st_queue *q, const cuda_attn *a)
{
    size_t bytes = 3 * room<D>::bytes + SCORES * sizeof(float);
    dim3 grid((unsigned)cuda_div_up(a->q.rows, ROWS), (unsigned)a->q.heads);
    ST_CUDA_SHARED(forward_kernel<D>, bytes);
    forward_kernel<D><<<grid, THREADS, bytes, st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
}

template <int D> static void run_backward(const st_queue *q, const cuda_attn *a)
{
    size_t bytes = 4 * room<D>::bytes + (2 * SCORES + 2 * ROWS) * sizeof(float);
    dim3 q_grid((unsigned)cuda_div_up(a->q.rows, ROWS), (unsigned)a->q.heads);
    dim3 k_grid((unsigned)cuda_div_up(a->k.rows, ROWS), (unsigned)a->k.heads);
    ST_CUDA_SHARED(dq_kernel<D>, bytes);
    ST_CUDA_SHARED(dkv_kernel<D>, bytes);
    if (a->dq.data && a->q.rows) dq_kernel<D><<<q_grid, THREADS, bytes, st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
    if ((a->dk.data || a->dv.data) && a->k.rows)
        dkv_kernel<D><<<k_grid, THREADS, bytes, st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
}

extern "C" int cuda_attention_plain(const st_queue *q, const cuda_attn *a)
{
    if (a->q.cols <= 64) run_forward<64>(q, a);
    else if (a->q.cols <= 128) run_forward<128>(q, a);
    else run_forward<256>(q, a);
    return st_cuda_launched(q, "attention");
}

extern "C" int cuda_attention_plain_bwd(const st_queue *q, const cuda_attn *a)
{
    if (a->q.cols <= 64) run_backward<64>(q, a);
    else if (a->q.cols <= 128) run_backward<128>(q, a);
    else run_backward<256>(q, a);
    return st_cuda_launched(q, "attention_bwd");
}
