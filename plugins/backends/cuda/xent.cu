/* SPDX-License-Identifier: Apache-2.0 */
/* xent.cu - softmax and cross-entropy of rows of logits, and its gradient in their place. One block walks a row twice: first
 * for the largest logit and the sum of exponentials together, then for the gradient. A cut vocabulary sums over ranks between
 * the two. Exponents are to base 2: t = x log2(e) - max log2(e), rounded once, and the same in both walks. */
#include "wide.h"

enum { ROW_THREADS = 512, ROW_WARPS = ROW_THREADS / 32, LIST_THREADS = 1024, LIST_WARPS = LIST_THREADS / 32, AT_ONCE = 4 };
#define LN_2 0.69314718055994531
#define WARP 0xffffffffu

/* Elements seen so far: the largest, the sum of 2^t with that as maximum, and the first place of the largest. */
typedef struct running { float max, sum; int32_t at; } running;

DEVICE float exponent(float x, float max) { return fmaf(x, LOG2_E, -max * LOG2_E); }

/* From one maximum to another: exactly 0 between equal ones, so sums of nothing stay 0. */
DEVICE float distance(float from, float to) { return __fmul_rn(from, LOG2_E) - __fmul_rn(to, LOG2_E); }

DEVICE running nothing_seen(void) { return {-1e38f, 0.0f, 0x7fffffff}; } /* finite: infinities have no distance */

DEVICE running both(const running &a, const running &b)
{
    running r;
    r.max = fmaxf(a.max, b.max);
    r.sum = a.sum * st_exp2_fast(distance(a.max, r.max)) + b.sum * st_exp2_fast(distance(b.max, r.max));
    r.at = a.max > b.max ? a.at : b.max > a.max ? b.at : min(a.at, b.at);
    return r;
}

DEVICE void see(running &r, const cuda_eight &v, int32_t first)
{
    float most = v.x[0];
#pragma unroll
    for (int j = 1; j < CUDA_WIDE; j++) most = fmaxf(most, v.x[j]);
    if (most > r.max) {
        r.sum *= st_exp2_fast(distance(r.max, most));
        r.max = most;
        for (int j = CUDA_WIDE - 1; j >= 0; j--)
            if (v.x[j] == most) r.at = first + j;
    }
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < CUDA_WIDE; j++) sum += st_exp2_fast(exponent(v.x[j], r.max));
    r.sum += sum;
}

/* Rows are padded to eights; what lies behind the last word counts as -infinity. */
template <typename T> DEVICE cuda_eight logits_at(const T *row, int32_t first, int32_t words)
{
    cuda_eight v = get_eight(row + first);
    if (first + CUDA_WIDE > words)
        for (int j = 0; j < CUDA_WIDE; j++)
            if (first + j >= words) v.x[j] = -__int_as_float(0x7f800000);
    return v;
}

DEVICE running lower_lane(const running &r, int step)
{
    return {__shfl_xor_sync(WARP, r.max, step), __shfl_xor_sync(WARP, r.sum, step), __shfl_xor_sync(WARP, r.at, step)};
}

/* Over the block, in an order fixed by the thread numbers; all threads get it. */
DEVICE running over_block(running r)
{
    __shared__ running part[ROW_WARPS];
    int lane = threadIdx.x % 32;
    for (int step = 1; step < 32; step *= 2) {
        running other = lower_lane(r, step);
        r = lane & step ? both(other, r) : both(r, other);
    }
    if (!lane) part[threadIdx.x / 32] = r;
    __syncthreads();
    r = part[0];
    for (int i = 1; i < ROW_WARPS; i++) r = both(r, part[i]);
    return r;
}

template <typename T> DEVICE running see_row(const T *row, int32_t words)
{
    running r = nothing_seen();
    const int32_t step = ROW_THREADS * CUDA_WIDE;
    int32_t i = (int32_t)threadIdx.x * CUDA_WIDE;
    for (; i + (AT_ONCE - 1) * step + CUDA_WIDE <= words; i += AT_ONCE * step) {
        cuda_eight v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) v[k] = get_eight(row + i + k * step);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) see(r, v[k], i + k * step);
    }
    for (; i < words; i += step) see(r, logits_at(row, i, words), i);
    return over_block(r);
}

/* Word of this rank that row `row` of h is to predict, or -1. */
DEVICE int32_t own_word(const cuda_xent &x, int32_t row)
{
    int64_t word = (int64_t)x.labels[row] - x.first;
    return word >= 0 && word < x.words ? (int32_t)word : -1;
}

DEVICE void gradient(cuda_eight &v, float max, float factor, float one, int32_t word)
{
#pragma unroll
    for (int j = 0; j < CUDA_WIDE; j++) {
        v.x[j] = factor * st_exp2_fast(exponent(v.x[j], max));
        if (j == word) v.x[j] -= one;
    }
}

/* row = one * (softmax - label) */
template <typename T> DEVICE void grad_row(T *row, int32_t words, float max, float sum, float one, int32_t word)
{
    const int32_t step = ROW_THREADS * CUDA_WIDE;
    int32_t i = (int32_t)threadIdx.x * CUDA_WIDE;
    float factor = one / sum;
    for (; i + (AT_ONCE - 1) * step < words; i += AT_ONCE * step) { /* reads and writes the padding too */
        cuda_eight v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) v[k] = get_eight(row + i + k * step);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            gradient(v[k], max, factor, one, word - (i + k * step));
            put_eight(row + i + k * step, v[k]);
        }
    }
    for (; i < words; i += step) {
        cuda_eight v = get_eight(row + i);
        gradient(v, max, factor, one, word - i);
        put_eight(row + i, v);
    }
}

DEVICE void put_loss(const cuda_xent &x, int64_t i, int32_t row, float sum, float label, int32_t best)
{
    float nll = (float)(((double)log2f(sum) - (double)label) * LN_2);
    x.nll[x.at + i] = nll;
    if (x.nll_out) x.nll_out[row] = nll;
    if (x.best_out) x.best_out[row] = best;
}

DEVICE float grad_factor(const cuda_xent &x) { return (float)(x.weight * (double)x.scale[0]); }

/* Rows that take no part are not touched: their row of h is zero, so are their logits, and zero is their gradient. */
template <typename T> DEVICE T *logits_of(const cuda_xent &x, int64_t i) { return (T *)x.logits + i * x.s_logits; }

/* The vocabulary is whole: all of it in one launch. */
template <typename T> static __global__ void __launch_bounds__(ROW_THREADS, 2) whole_kernel(const __grid_constant__ cuda_xent x)
{
    int64_t i = blockIdx.x;
    int32_t row = x.live[x.at + i], words = (int32_t)x.words;
    if (row < 0) return;
    T *logits = logits_of<T>(x, i);
    int32_t word = own_word(x, row);
    float label = st_to_f32(logits[word]); /* read before any thread writes: over_block has a barrier */
    running r = see_row(logits, words);
    if (!threadIdx.x) {
        int32_t best = r.at < words ? r.at : 0; /* a row of NaN has no largest word */
        put_loss(x, i, row, r.sum, exponent(label, r.max), (int32_t)x.first + best);
    }
    if (x.grad) grad_row(logits, words, r.max, r.sum, grad_factor(x), word);
}

/* The vocabulary is cut over ranks: what this one sees. sum[1] is the exponent of the label's word, for its owner. */
template <typename T> static __global__ void __launch_bounds__(ROW_THREADS, 2) see_kernel(const __grid_constant__ cuda_xent x)
{
    int64_t i = blockIdx.x;
    int32_t row = x.live[x.at + i], words = (int32_t)x.words;
    bool live = row >= 0;
    running r = {0.0f, 0.0f, 0};
    const T *logits = logits_of<T>(x, i);
    if (live) r = see_row(logits, words);
    if (threadIdx.x) return;
    int32_t word = live ? own_word(x, row) : -1;
    x.max[i] = x.own[i] = r.max;
    x.sum[2 * i] = r.sum;
    x.sum[2 * i + 1] = word >= 0 ? exponent(st_to_f32(logits[word]), r.max) : 0.0f;
    x.best[i] = (int32_t)x.first + (r.at < words ? r.at : 0);
}

/* Now max is the largest over ranks. own becomes this rank's offer for the best word, negated because the largest offer
 * wins and the lowest word shall; a rank without it offers a word that no vocabulary reaches. */
static __global__ void __launch_bounds__(CUDA_THREADS) shift_kernel(const __grid_constant__ cuda_xent x)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= x.count) return;
    int32_t row = x.live[x.at + i];
    float own = x.own[i], most = x.max[i];
    x.sum[2 * i] *= st_exp2_fast(distance(own, most));
    if (row >= 0 && own_word(x, row) >= 0) x.sum[2 * i + 1] += distance(own, most);
    x.own[i] = own == most ? -(float)x.best[i] : -(float)(1 << 24);
}

template <typename T> static __global__ void __launch_bounds__(ROW_THREADS, 2) cut_kernel(const __grid_constant__ cuda_xent x)
{
    int64_t i = blockIdx.x;
    int32_t row = x.live[x.at + i];
    if (row < 0) return;
    float sum = x.sum[2 * i];
    if (!threadIdx.x) put_loss(x, i, row, sum, x.sum[2 * i + 1], (int32_t)-x.own[i]);
    if (x.grad) grad_row(logits_of<T>(x, i), (int32_t)x.words, x.max[i], sum, grad_factor(x), own_word(x, row));
}

extern "C" int cuda_run_xent_rows(const st_queue *q, const cuda_xent *x, int stage)
{
    struct CUstream_st *stream = st_cuda_stream(q);
    unsigned rows = (unsigned)x->count;
    bool f32 = x->type == ST_F32;
    if (stage == CUDA_XENT_WHOLE && f32) whole_kernel<float><<<rows, ROW_THREADS, 0, stream>>>(*x);
    else if (stage == CUDA_XENT_WHOLE) whole_kernel<st_bf16><<<rows, ROW_THREADS, 0, stream>>>(*x);
    else if (stage == CUDA_XENT_SEE && f32) see_kernel<float><<<rows, ROW_THREADS, 0, stream>>>(*x);
    else if (stage == CUDA_XENT_SEE) see_kernel<st_bf16><<<rows, ROW_THREADS, 0, stream>>>(*x);
    else if (stage == CUDA_XENT_SHIFT)
        shift_kernel<<<(unsigned)cuda_div_up(x->count, CUDA_THREADS), CUDA_THREADS, 0, stream>>>(*x);
    else if (f32) cut_kernel<float><<<rows, ROW_THREADS, 0, stream>>>(*x);
    else cut_kernel<st_bf16><<<rows, ROW_THREADS, 0, stream>>>(*x);
    return st_cuda_launched(q, "xent");
}

/* ---- rows that take part ---- */
/* The row at place i of the list, or -1 when it takes no part. A label outside a whole vocabulary is a fault. */
DEVICE int32_t taking_part(const cuda_xent &x, int64_t i, st_cuda_faults faults)
{
    int64_t row = x.rows ? x.rows[i] : i;
    if (row < 0) return -1;
    if (row >= x.n) {
        st_cuda_fault(faults, ST_FAULT_RANGE, row, x.n);
        return -1;
    }
    int32_t label = x.labels[row];
    if (label < 0) return -1;
    if (x.uncut && own_word(x, (int32_t)row) < 0) {
        st_cuda_fault(faults, ST_FAULT_RANGE, label, x.first + x.words);
        return -1;
    }
    return (int32_t)row;
}

/* Moves those to the front of live, in their order; -1 behind them. One block: their places depend on all before. */
static __global__ void __launch_bounds__(LIST_THREADS) live_kernel(const __grid_constant__ cuda_xent x, st_cuda_faults faults)
{
    __shared__ int32_t count[LIST_WARPS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t kept = 0;
    for (int64_t first = 0; first < x.cap; first += LIST_THREADS) {
        int64_t i = first + threadIdx.x;
        int32_t row = i < x.cap ? taking_part(x, i, faults) : -1;
        uint32_t votes = __ballot_sync(WARP, row >= 0);
        if (!lane) count[warp] = __popc(votes);
        __syncthreads();
        int32_t before = 0, all = 0;
        for (int w = 0; w < LIST_WARPS; w++) {
            if (w < warp) before += count[w];
            all += count[w];
        }
        if (row >= 0) x.live[kept + before + __popc(votes & ((1u << lane) - 1))] = row;
        kept += all;
        __syncthreads(); /* count is free again */
    }
    for (int64_t i = kept + threadIdx.x; i < x.cap; i += LIST_THREADS) x.live[i] = -1;
}

extern "C" int cuda_run_xent_live(const st_queue *q, const cuda_xent *x)
{
    live_kernel<<<1, LIST_THREADS, 0, st_cuda_stream(q)>>>(*x, st_cuda_faults_of(q));
    return st_cuda_launched(q, "xent");
}

/* dh[live[i]] += dh_part[i]; rows are all different */
static __global__ void __launch_bounds__(CUDA_THREADS) add_kernel(const __grid_constant__ cuda_xent x, bool wide)
{
    int32_t row = x.live[x.at + blockIdx.x];
    if (row < 0) return;
    int64_t from = (int64_t)blockIdx.x * x.dh.cols, to = row * x.dh.s_row;
    for (int64_t j = (int64_t)threadIdx.x * CUDA_WIDE; j < x.dh.cols; j += CUDA_THREADS * CUDA_WIDE) {
        int64_t left = x.dh.cols - j;
        cuda_eight a = get_some(x.dh.data, x.dh.type, to + j, left, wide),
                   b = get_some(x.dh_part, x.type_part, from + j, left, wide);
        add_eight(a, b);
        put_some(x.dh.data, x.dh.type, to + j, left, wide, a);
    }
}

extern "C" int cuda_run_xent_add(const st_queue *q, const cuda_xent *x)
{
    add_kernel<<<(unsigned)x->count, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*x, cuda_rows_wide(&x->dh));
    return st_cuda_launched(q, "xent");
}

/* ---- loss = {sum of nll, count} + ---- */
static __global__ void __launch_bounds__(LIST_THREADS) loss_kernel(const __grid_constant__ cuda_xent x)
{
    __shared__ double room[LIST_WARPS];
    double sum = 0, count = 0;
    for (int64_t i = threadIdx.x; i < x.cap && x.live[i] >= 0; i += LIST_THREADS) {
        sum += (double)x.nll[i];
        count += 1;
    }
    sum = block_sum(sum, room);
    count = block_sum(count, room);
    if (threadIdx.x) return;
    x.loss[0] = (float)((double)x.loss[0] + sum);
    x.loss[1] = (float)((double)x.loss[1] + count);
}

extern "C" int cuda_run_xent_loss(const st_queue *q, const cuda_xent *x)
{
    loss_kernel<<<1, LIST_THREADS, 0, st_cuda_stream(q)>>>(*x);
    return st_cuda_launched(q, "xent");
}
