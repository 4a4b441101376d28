/* SPDX-License-Identifier: Apache-2.0 */
/* attention_forward.cu - attention in bf16 on the tensor cores, with an online softmax in f32. A block has 64 queries of one
 * head, a warp 16 of them; keys and values pass by in tiles of 64. */
#include "attention_tile.h"
#include <math_constants.h>

enum { QUERIES = 64, KEYS = 64, THREADS = 128 };

/* Largest and sum of the four lanes that share a row. */
DEVICE float row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
DEVICE float row_add(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Scores become probabilities under the largest so far; what was summed before is brought under it too. */
template <int D> DEVICE void softmax_step(float (*p)[4], float (*out)[4], float *most, float *total, const int64_t *limit,
                                          float scale)
{
    int t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float high = -CUDART_INF_F, sum = 0;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                p[j][i] = j * 8 + 2 * t + i % 2 < limit[half] ? p[j][i] * scale : -CUDART_INF_F;
                high = fmaxf(high, p[j][i]);
            }
        high = fmaxf(most[half], row_max(high));
        float base = high == -CUDART_INF_F ? 0.0f : high, factor = exp2f(most[half] - base);
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                p[j][i] = exp2f(p[j][i] - base);
                sum += p[j][i];
            }
        total[half] = total[half] * factor + row_add(sum);
        most[half] = high;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            out[j][2 * half] *= factor;
            out[j][2 * half + 1] *= factor;
        }
    }
}

template <int D> KERNEL(THREADS) forward_kernel(const cuda_attn a, st_cuda_faults faults)
{
    extern __shared__ __align__(16) st_bf16 shared[];
    st_bf16 *queries = shared, *keys = queries + QUERIES * tile<D>::ld, *values = keys + KEYS * tile<D>::ld;
    int warp = threadIdx.x / CUDA_WARP, g = threadIdx.x % CUDA_WARP / 4;
    int64_t first = (int64_t)blockIdx.x * QUERIES, head = blockIdx.y, kv = head / (a.q.heads / a.k.heads);
    int64_t row = first + warp * 16 + g; /* and row + 8 */
    float most[2] = {-CUDART_INF_F, -CUDART_INF_F}, total[2] = {0, 0}, out[D / 8][4] = {};
    load_tile<D, QUERIES, THREADS>(queries, a.q, head, first, a.q.rows - first);
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
            float p[KEYS / 8][4];
            __syncthreads();
            load_tile<D, KEYS, THREADS>(keys, a.k, kv, x.k + k, x.k_n - k);
            load_tile<D, KEYS, THREADS>(values, a.v, kv, x.k + k, x.k_n - k);
            __syncthreads();
            rows_by_rows<D, KEYS>(p, queries + warp * 16 * tile<D>::ld, keys);
            int64_t limit[2] = {seen[0] - k, seen[1] - k};
            softmax_step<D>(p, out, most, total, limit, a.scale * CUDART_L2E_F);
            add_product<D, KEYS>(out, p, values);
        }
    }
    store_tile<D>(a.out, head, first + warp * 16, out, total[0] > 0 ? 1.0f / total[0] : 0.0f,
                  total[1] > 0 ? 1.0f / total[1] : 0.0f);
    if (!a.lse.data || threadIdx.x % 4) return;
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (row + 8 * half < a.q.rows)
            ((float *)a.lse.data)[(row + 8 * half) * a.lse.s_row + head * a.lse.s_head] =
                total[half] > 0 ? most[half] * CUDART_LN2_F + logf(total[half]) : 0.0f;
}

template <int D> static void run(const st_queue *q, const cuda_attn *a)
{
    size_t bytes = sizeof(st_bf16) * (QUERIES + 2 * KEYS) * tile<D>::ld;
    dim3 grid((unsigned)cuda_div_up(a->q.rows, QUERIES), (unsigned)a->q.heads);
    ST_CUDA_SHARED(forward_kernel<D>, bytes);
    forward_kernel<D><<<grid, THREADS, bytes, st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
}

extern "C" int cuda_attention_tensor(const st_queue *q, const cuda_attn *a)
{
    if (a->q.cols <= 64) run<64>(q, a);
    else if (a->q.cols <= 80) run<80>(q, a);
    else if (a->q.cols <= 128) run<128>(q, a);
    else run<256>(q, a);
    return st_cuda_launched(q, "attention");
}
