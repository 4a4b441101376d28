/* SPDX-License-Identifier: Apache-2.0 */
/* moe/router_cuda.cu - the choice of experts, its gradient, and what is reported of it. Sums over tokens are formed per
 * MOE_BLOCK of them, in their order, then over the blocks. */
#include "warp_cuda.h"

/* The best expert behind the pick before (-1: of all): by logit, the lower expert first on a tie, NaN last. */
DEVICE int next_pick(const float *l, int experts, int before)
{
    const float limit = before < 0 ? INFINITY : isnan(l[before]) ? -INFINITY : l[before];
    float best_value = 0;
    int best = INT32_MAX;
    for (int e = lane_of(); e < experts; e += 32) {
        const float v = isnan(l[e]) ? -INFINITY : l[e];
        const int behind = v < limit || (v == limit && e > before);
        const int take = behind && (best == INT32_MAX || v > best_value);
        best = take ? e : best;
        best_value = take ? v : best_value;
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const float v = __shfl_xor_sync(0xffffffffu, best_value, step);
        const int e = __shfl_xor_sync(0xffffffffu, best, step);
        const int take = e != INT32_MAX && (best == INT32_MAX || v > best_value || (v == best_value && e < best));
        best = take ? e : best;
        best_value = take ? v : best_value;
    }
    return best;
}
/* A warp has one token. One that is not real takes the same way, and its results are not used. */
static __global__ void __launch_bounds__(THREADS) choose(const moe_route a)
{
    const int64_t t = (int64_t)blockIdx.x * WARPS + warp_of();
    if (t >= a.tokens) return;
    const float *l = (const float *)a.logits + t * a.experts;
    const softmax s = softmax_of(l, a.experts);
    float *share = (float *)a.share + t * a.top_k, chosen = 0;
    int32_t *choice = a.choice + t * a.top_k;
    const int real = a.real[t] != 0;
    int before = -1;
    for (int k = 0; k < a.top_k; k++) {
        before = a.forced ? (int)((uint32_t)(t * a.top_k + k) % (uint32_t)a.experts) : next_pick(l, a.experts, before);
        const float p = probability(s, l[before]);
        chosen += p;
        if (lane_of() == 0) {
            choice[k] = real ? before : -1;
            share[k] = p;
        }
    }
    __syncwarp();
    for (int k = lane_of(); k < a.top_k; k += 32) share[k] = real ? share[k] / chosen : 0;
}
/* Sums of a block of tokens into its row of work: a warp has a token, then a thread an expert. */
static __global__ void __launch_bounds__(THREADS) sum_block(const moe_route a)
{
    extern __shared__ int32_t picks[]; /* (MOE_BLOCK, top_k) */
    __shared__ softmax soft[MOE_BLOCK];
    __shared__ float entropy[MOE_BLOCK], real[MOE_BLOCK];
    const int64_t begin = (int64_t)blockIdx.x * MOE_BLOCK;
    const int n = a.tokens - begin < MOE_BLOCK ? (int)(a.tokens - begin) : MOE_BLOCK;
    float *sums = (float *)a.work + blockIdx.x * (2 * (int64_t)a.experts + 2), rows = 0, all = 0;
    for (int i = threadIdx.x; i < n * a.top_k; i += THREADS) picks[i] = a.choice[begin * a.top_k + i];
    for (int i = warp_of(); i < n; i += WARPS) {
        const float *l = (const float *)a.logits + (begin + i) * a.experts;
        const softmax s = softmax_of(l, a.experts);
        float along = 0;
        for (int e = lane_of(); e < a.experts; e += 32) along += probability(s, l[e]) * (l[e] - s.top);
        along = st_lanes_sum<32>(along);
        if (lane_of() == 0) {
            soft[i] = s;
            entropy[i] = logf(s.sum) - along; /* -sum p ln p */
            real[i] = a.real[begin + i] ? 1 : 0;
        }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < a.experts; e += THREADS) {
        float chosen = 0, likely = 0;
        for (int i = 0; i < n * a.top_k; i++) chosen += picks[i] == e;
        for (int i = 0; i < n; i++)
            if (real[i] > 0) likely += probability(soft[i], ((const float *)a.logits)[(begin + i) * a.experts + e]);
        sums[e] = chosen;
        sums[a.experts + e] = likely;
    }
    if (threadIdx.x) return;
    for (int i = 0; i < n; i++) {
        rows += real[i];
        all += real[i] > 0 ? entropy[i] : 0;
    }
    sums[2 * a.experts] = rows;
    sums[2 * a.experts + 1] = all;
}
/* The blocks' sums, in their order, into the accumulators. */
static __global__ void __launch_bounds__(THREADS) add_sums(const moe_route a, int64_t blocks)
{
    const int64_t cells = 2 * (int64_t)a.experts + 2, c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    double sum = 0;
    if (c >= cells) return;
#pragma unroll 8
    for (int64_t b = 0; b < blocks; b++) sum += (double)((const float *)a.work)[b * cells + c];
    for (int i = 0; i < 2; i++)
        if (a.sums[i]) ((float *)a.sums[i])[c] = (float)((double)((float *)a.sums[i])[c] + sum);
}
int moe_cuda_route(const st_queue *q, const moe_route *a)
{
    const int64_t blocks = moe_blocks(a->tokens), cells = moe_cells(a->experts);
    if (a->dtype != ST_F32) return ST_E_UNSUPPORTED;
    choose<<<(unsigned)((a->tokens + WARPS - 1) / WARPS), THREADS, 0, st_cuda_stream(q)>>>(*a);
    sum_block<<<(unsigned)blocks, THREADS, (size_t)(MOE_BLOCK * a->top_k) * sizeof(int32_t), st_cuda_stream(q)>>>(*a);
    add_sums<<<(unsigned)((cells + THREADS - 1) / THREADS), THREADS, 0, st_cuda_stream(q)>>>(*a, blocks);
    return st_cuda_launched(q, "moe_route");
}

/* ---- backward ---- */

/* A warp has one token. Of the loss only what was chosen has a gradient; the balance loss, factor sum_e f_e p_e per
 * token with f, the share of picks, a constant, reaches all. */
static __global__ void __launch_bounds__(THREADS) router_bwd(const moe_router_bwd a)
{
    const int64_t t = (int64_t)blockIdx.x * WARPS + warp_of();
    if (t >= a.tokens) return;
    const float *l = (const float *)a.logits + t * a.experts, *total = (const float *)a.total;
    const float *share = (const float *)a.share + t * a.top_k, *dweight = (const float *)a.dweight;
    const int32_t *choice = a.choice + t * a.top_k, *place = a.place + t * a.top_k;
    const float rows = total ? total[2 * a.experts] : 0;
    const int real = choice[0] >= 0, balance = real && rows > 0;
    float *dl = (float *)a.dlogits + t * a.experts, mean = 0, along = 0, factor = 0;
    softmax s = {0, 1};
    if (balance) {
        factor = (float)(a.coef / (double)*(const float *)a.step_tokens * a.experts);
        s = softmax_of(l, a.experts);
        for (int e = lane_of(); e < a.experts; e += 32) along += probability(s, l[e]) * (total[e] / rows);
        along = st_lanes_sum<32>(along);
    }
    for (int e = lane_of(); e < a.experts; e += 32)
        dl[e] = balance ? factor * probability(s, l[e]) * (total[e] / rows - along) : 0;
    if (!real) return;
    __syncwarp();
    for (int k = 0; k < a.top_k; k++)
        if (place[k] >= 0) mean += share[k] * dweight[place[k]];
    for (int k = lane_of(); k < a.top_k; k += 32)
        if (place[k] >= 0) dl[choice[k]] += share[k] * (dweight[place[k]] - mean);
}
int moe_cuda_router_bwd(const st_queue *q, const moe_router_bwd *a)
{
    if (a->dtype != ST_F32) return ST_E_UNSUPPORTED;
    router_bwd<<<(unsigned)((a->tokens + WARPS - 1) / WARPS), THREADS, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, "moe_router_bwd");
}

/* ---- report: one block; every thread has experts, then a tree ---- */

enum { MOST, LEAST, ALL, ALONG, OFF, FIGURES };
template <int WHAT> DEVICE float join(float x, float y)
{
    return WHAT == MOST ? fmaxf(x, y) : WHAT == LEAST ? fminf(x, y) : x + y;
}
template <int WHAT> DEVICE float join_threads(float *room, float x)
{
    __syncthreads();
    room[threadIdx.x] = x;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) room[threadIdx.x] = join<WHAT>(room[threadIdx.x], room[threadIdx.x + half]);
    }
    __syncthreads();
    return room[0];
}
DEVICE void show(void *cell, float value, float count)
{
    if (!cell) return;
    ((float *)cell)[0] += value;
    ((float *)cell)[1] += count;
}
static __global__ void __launch_bounds__(THREADS) report(const moe_report a)
{
    __shared__ float room[THREADS];
    const float *picks = (const float *)a.total, *sums = picks + a.experts, rows = picks[2 * a.experts];
    float most = -INFINITY, least = INFINITY, all = 0, along = 0, off = 0;
    if (!(rows > 0)) return;
    for (int e = threadIdx.x; e < a.experts; e += THREADS) {
        most = fmaxf(most, picks[e]);
        least = fminf(least, picks[e]);
        all += picks[e];
        along += picks[e] / rows * (sums[e] / rows);
    }
    most = join_threads<MOST>(room, most);
    least = join_threads<LEAST>(room, least);
    all = join_threads<ALL>(room, all);
    along = join_threads<ALONG>(room, along);
    const float mean = all / (float)a.experts;
    for (int e = threadIdx.x; e < a.experts; e += THREADS) off += fabsf(picks[e] - mean);
    off = join_threads<OFF>(room, off);
    if (threadIdx.x) return;
    show(a.load_max, most / mean, 1);
    show(a.load_min, least / mean, 1);
    show(a.violation, off / all, 1);
    show(a.entropy, picks[2 * a.experts + 1], rows);
    show(a.balance, (float)(a.scale * a.experts) * along * rows, rows);
}
int moe_cuda_report(const st_queue *q, const moe_report *a)
{
    if (a->dtype != ST_F32) return ST_E_UNSUPPORTED;
    report<<<1, THREADS, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, "moe_report");
}
