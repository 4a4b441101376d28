/* SPDX-License-Identifier: Apache-2.0 */
/* attention_dq.cu - gradient of the queries, in bf16 on the tensor cores. A block has 64 queries of one head, a warp 16 of them;
 * keys and values pass by in tiles of 32. */
#include "attention_tile.h"
#include <math_constants.h>

enum { QUERIES = 64, KEYS = 32, THREADS = 128 };

template <int D> KERNEL(THREADS) dq_kernel(const cuda_attn a, st_cuda_faults faults)
{
    extern __shared__ __align__(16) st_bf16 shared[];
    st_bf16 *queries = shared, *grads = queries + QUERIES * tile<D>::ld, *keys = grads + QUERIES * tile<D>::ld;
    st_bf16 *values = keys + KEYS * tile<D>::ld;
    int warp = threadIdx.x / CUDA_WARP, g = threadIdx.x % CUDA_WARP / 4, t = threadIdx.x % 4;
    int64_t first = (int64_t)blockIdx.x * QUERIES, head = blockIdx.y, kv = head / (a.q.heads / a.k.heads);
    int64_t row = first + warp * 16 + g;
    float lse[2] = {0, 0}, delta[2] = {0, 0}, dq[D / 8][4] = {};
    load_tile<D, QUERIES, THREADS>(queries, a.q, head, first, a.q.rows - first);
    load_tile<D, QUERIES, THREADS>(grads, a.d_out, head, first, a.q.rows - first);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t at = row + 8 * half;
        if (at >= a.q.rows) continue;
        lse[half] = ((const float *)a.lse.data)[at * a.lse.s_row + head * a.lse.s_head] * CUDART_L2E_F;
        delta[half] = a.delta[at * a.q.heads + head];
    }
    for (int64_t s = next_span(a, 0, SIDE_Q, first, first + QUERIES, faults); s < a.n_spans;
         s = next_span(a, s + 1, SIDE_Q, first, first + QUERIES, faults)) {
        span x = span_at(a, s);
        int64_t end = first + QUERIES < x.q + x.q_n ? first + QUERIES : x.q + x.q_n, seen[2];
        int64_t reach = keys_seen(a, x, end - 1 - x.q);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int64_t i = row + 8 * half - x.q;
            seen[half] = i >= 0 && i < x.q_n ? keys_seen(a, x, i) : 0;
        }
        for (int64_t k = 0; k < reach; k += KEYS) {
            float p[KEYS / 8][4], ds[KEYS / 8][4];
            __syncthreads();
            load_tile<D, KEYS, THREADS>(keys, a.k, kv, x.k + k, x.k_n - k);
            load_tile<D, KEYS, THREADS>(values, a.v, kv, x.k + k, x.k_n - k);
            __syncthreads();
            rows_by_rows<D, KEYS>(p, queries + warp * 16 * tile<D>::ld, keys);
            rows_by_rows<D, KEYS>(ds, grads + warp * 16 * tile<D>::ld, values);
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    bool sees = k + j * 8 + 2 * t + i % 2 < seen[i / 2];
                    float prob = sees ? exp2f(p[j][i] * (a.scale * CUDART_L2E_F) - lse[i / 2]) : 0.0f;
                    ds[j][i] = prob * (ds[j][i] - delta[i / 2]);
                }
            add_product<D, KEYS>(dq, ds, keys);
        }
    }
    store_tile<D>(a.dq, head, first + warp * 16, dq, a.scale, a.scale);
}

template <int D> static void run(const st_queue *q, const cuda_attn *a)
{
    size_t bytes = sizeof(st_bf16) * 2 * (QUERIES + KEYS) * tile<D>::ld;
    dim3 grid((unsigned)cuda_div_up(a->q.rows, QUERIES), (unsigned)a->q.heads);
    ST_CUDA_SHARED(dq_kernel<D>, bytes);
    dq_kernel<D><<<grid, THREADS, bytes, st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
}

extern "C" int cuda_attention_tensor_dq(const st_queue *q, const cuda_attn *a)
{
    if (!a->dq.data || !a->q.rows) return ST_OK;
    if (a->q.cols <= 64) run<64>(q, a);
    else if (a->q.cols <= 80) run<80>(q, a);
    else if (a->q.cols <= 128) run<128>(q, a);
    else run<256>(q, a);
    return st_cuda_launched(q, "attention_bwd");
}
