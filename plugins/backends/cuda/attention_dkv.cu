/* SPDX-License-Identifier: Apache-2.0 */
/* attention_dkv.cu - gradients of keys and values, in bf16 on the tensor cores. A block has 64 keys of one head; the query heads
 * that share it, the spans and the queries in tiles of 32 pass by in order. Four warps make dv, four dk, of 16 keys each: both
 * at once would not fit the registers of one. */
#include "attention_tile.h"
#include <math_constants.h>

enum { KEYS = 64, QUERIES = 32, THREADS = 256 };

/* Probabilities of 16 keys (rows) under 32 queries (columns), from their products. */
DEVICE void probabilities(const cuda_attn &a, const span &x, int64_t key, int64_t i, const float *lse, float (*p)[4])
{
    int t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < QUERIES / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int query = j * 8 + 2 * t + e % 2;
            int64_t k = key + e / 2 * 8;
            bool sees = k >= 0 && i + query < x.q_n && k < keys_seen(a, x, i + query);
            p[j][e] = sees ? exp2f(p[j][e] * (a.scale * CUDART_L2E_F) - lse[query]) : 0.0f;
        }
}

template <int D> KERNEL(THREADS) dkv_kernel(const cuda_attn a, st_cuda_faults faults)
{
    extern __shared__ __align__(16) st_bf16 shared[];
    __shared__ float lse[QUERIES], delta[QUERIES];
    st_bf16 *keys = shared, *values = keys + KEYS * tile<D>::ld, *queries = values + KEYS * tile<D>::ld;
    st_bf16 *grads = queries + QUERIES * tile<D>::ld;
    int warp = threadIdx.x / CUDA_WARP, own = warp % 4 * 16, g = threadIdx.x % CUDA_WARP / 4, t = threadIdx.x % 4;
    bool makes_dk = warp >= 4;
    int64_t first = (int64_t)blockIdx.x * KEYS, kv = blockIdx.y, group = a.q.heads / a.k.heads;
    float sum[D / 8][4] = {};
    load_tile<D, KEYS, THREADS>(keys, a.k, kv, first, a.k.rows - first);
    load_tile<D, KEYS, THREADS>(values, a.v, kv, first, a.k.rows - first);
    for (int64_t head = kv * group; head < (kv + 1) * group; head++)
        for (int64_t s = next_span(a, 0, SIDE_K, first, first + KEYS, faults); s < a.n_spans;
             s = next_span(a, s + 1, SIDE_K, first, first + KEYS, faults)) {
            span x = span_at(a, s);
            int64_t key = first + own + g - x.k; /* and key + 8, within the span; keys_seen is never above its length */
            for (int64_t i = first_query(a, x, first > x.k ? first - x.k : 0); i < x.q_n; i += QUERIES) {
                float p[QUERIES / 8][4];
                __syncthreads();
                load_tile<D, QUERIES, THREADS>(queries, a.q, head, x.q + i, x.q_n - i);
                load_tile<D, QUERIES, THREADS>(grads, a.d_out, head, x.q + i, x.q_n - i);
                if (threadIdx.x < QUERIES) {
                    int64_t at = x.q + i + threadIdx.x;
                    bool here = i + threadIdx.x < x.q_n;
                    lse[threadIdx.x] =
                        here ? ((const float *)a.lse.data)[at * a.lse.s_row + head * a.lse.s_head] * CUDART_L2E_F : 0.0f;
                    delta[threadIdx.x] = here ? a.delta[at * a.q.heads + head] : 0.0f;
                }
                __syncthreads();
                rows_by_rows<D, QUERIES>(p, keys + own * tile<D>::ld, queries);
                probabilities(a, x, key, i, lse, p);
                if (makes_dk) {
                    float dp[QUERIES / 8][4];
                    rows_by_rows<D, QUERIES>(dp, values + own * tile<D>::ld, grads);
#pragma unroll
                    for (int j = 0; j < QUERIES / 8; j++)
#pragma unroll
                        for (int e = 0; e < 4; e++) p[j][e] *= dp[j][e] - delta[j * 8 + 2 * t + e % 2];
                }
                add_product<D, QUERIES>(sum, p, makes_dk ? queries : grads);
            }
        }
    float factor = makes_dk ? a.scale : 1.0f;
    store_tile<D>(makes_dk ? a.dk : a.dv, kv, first + own, sum, factor, factor);
}

template <int D> static void run(const st_queue *q, const cuda_attn *a)
{
    size_t bytes = sizeof(st_bf16) * 2 * (QUERIES + KEYS) * tile<D>::ld;
    dim3 grid((unsigned)cuda_div_up(a->k.rows, KEYS), (unsigned)a->k.heads);
    ST_CUDA_SHARED(dkv_kernel<D>, bytes);
    dkv_kernel<D><<<grid, THREADS, bytes, st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
}

extern "C" int cuda_attention_tensor_dkv(const st_queue *q, const cuda_attn *a)
{
    if ((!a->dk.data && !a->dv.data) || !a->k.rows) return ST_OK;
    if (a->q.cols <= 64) run<64>(q, a);
    else if (a->q.cols <= 80) run<80>(q, a);
    else if (a->q.cols <= 128) run<128>(q, a);
    else run<256>(q, a);
    return st_cuda_launched(q, "attention_bwd");
}
