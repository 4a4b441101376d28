/* SPDX-License-Identifier: Apache-2.0 */
/* xent.cu - softmax and cross-entropy of rows of logits, and its gradient in their place. A block does one row, in stages,
 * because a cut vocabulary sums over ranks between them: largest logit, sum of exponentials, gradient. */
#include "kernel.h"
#include <math_constants.h>

enum { ROW_THREADS = 512 };

/* Row of h that takes part in place i, or -1; a label outside an uncut vocabulary is a fault. */
DEVICE int64_t live_row(const cuda_xent &x, int64_t i, st_cuda_faults faults)
{
    int64_t row = x.rows ? x.rows[i] : i, label;
    if (row < 0) return -1;
    if (row >= x.n) {
        st_cuda_fault(faults, ST_FAULT_RANGE, row, x.n);
        return -1;
    }
    label = x.labels[row];
    if (label < 0) return -1;
    if (x.uncut && (label < x.first || label >= x.first + x.words)) {
        st_cuda_fault(faults, ST_FAULT_RANGE, label, x.first + x.words);
        return -1;
    }
    return row;
}

KERNEL(CUDA_THREADS) live_kernel(const cuda_xent x, st_cuda_faults faults)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < x.cap) x.live[i] = (int32_t)live_row(x, i, faults);
}

extern "C" int cuda_run_xent_live(const st_queue *q, const cuda_xent *x)
{
    unsigned blocks = (unsigned)cuda_div_up(x->cap, CUDA_THREADS);
    live_kernel<<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*x, st_cuda_faults_of(q));
    return st_cuda_launched(q, "xent");
}

/* ---- largest logit, and the lowest word that has it ---- */
typedef struct top { float value; int64_t word; } top;
DEVICE top higher(top a, top b)
{
    if (b.value > a.value || (b.value == a.value && b.word < a.word)) return b;
    return a;
}

DEVICE top block_top(top t)
{
    __shared__ top room[ROW_THREADS / CUDA_WARP];
    for (int step = 16; step; step /= 2) {
        top other = {__shfl_xor_sync(0xffffffffu, t.value, step), __shfl_xor_sync(0xffffffffu, t.word, step)};
        t = higher(t, other);
    }
    if (threadIdx.x % CUDA_WARP == 0) room[threadIdx.x / CUDA_WARP] = t;
    __syncthreads();
    t = room[0];
    for (int i = 1; i < ROW_THREADS / CUDA_WARP; i++) t = higher(t, room[i]);
    return t;
}

KERNEL(ROW_THREADS) max_kernel(const cuda_xent x)
{
    int64_t i = blockIdx.x;
    if (x.live[x.at + i] < 0) return;
    top t = {-CUDART_INF_F, x.words};
    for (int64_t j = threadIdx.x; j < x.words; j += ROW_THREADS) {
        top here = {get_real(x.logits, x.type, i * x.words + j), j};
        t = higher(t, here);
    }
    t = block_top(t);
    if (threadIdx.x) return;
    x.max[i] = t.value;
    if (x.best) x.best[i] = (int32_t)(x.first + (t.word < x.words ? t.word : 0)); /* a row of NaN has no largest word */
}

/* A rank without the largest logit offers a word that no vocabulary reaches; words are exact in f32 below that. */
KERNEL(CUDA_THREADS) offer_kernel(const cuda_xent x, int take)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= x.count) return;
    if (x.live[x.at + i] < 0) x.low[i] = 0.0f;
    else if (!take) x.low[i] = x.max[i];
    else x.low[i] = x.low[i] == x.max[i] ? -(float)x.best[i] : -(float)(1 << 24);
}

/* ---- sums; where no row takes part they are finite all the same, since they travel between ranks ---- */
KERNEL(ROW_THREADS) sum_kernel(const cuda_xent x)
{
    __shared__ double room[ROW_THREADS / CUDA_WARP];
    int64_t i = blockIdx.x, row = x.live[x.at + i];
    if (row < 0) {
        if (threadIdx.x < 2) x.sum[2 * i + threadIdx.x] = 0.0f;
        return;
    }
    float most = x.max[i], run = 0;
    for (int64_t j = threadIdx.x; j < x.words; j += ROW_THREADS)
        run += expf(get_real(x.logits, x.type, i * x.words + j) - most);
    double sum = block_sum((double)run, room);
    if (threadIdx.x) return;
    int64_t label = (int64_t)x.labels[row] - x.first;
    bool own = label >= 0 && label < x.words;
    x.sum[2 * i] = (float)sum;
    x.sum[2 * i + 1] = own ? get_real(x.logits, x.type, i * x.words + label) - most : 0.0f;
}

/* ---- loss of the row, and softmax minus one in the place of the logits ---- */
KERNEL(ROW_THREADS) grad_kernel(const cuda_xent x)
{
    int64_t i = blockIdx.x, row = x.live[x.at + i];
    double sum = x.sum[2 * i], whole = x.grad ? x.weight * (double)*x.scale : 0;
    if (threadIdx.x == 0 && row >= 0) {
        x.nll[x.at + i] = (float)(log(sum) - (double)x.sum[2 * i + 1]);
        if (x.nll_out) x.nll_out[row] = x.nll[x.at + i];
        if (x.best_out) x.best_out[row] = x.low ? (int32_t)-x.low[i] : x.best[i];
    }
    if (!x.grad) return;
    int64_t label = row < 0 ? -1 : (int64_t)x.labels[row] - x.first;
    float most = row < 0 ? 0.0f : x.max[i], factor = row < 0 ? 0.0f : (float)(whole / sum);
    for (int64_t j = threadIdx.x; j < x.words; j += ROW_THREADS) {
        float g = 0.0f;
        if (row >= 0) g = expf(get_real(x.logits, x.type, i * x.words + j) - most) * factor;
        if (j == label) g -= (float)whole;
        put_real(x.logits, x.type, i * x.words + j, g);
    }
}

extern "C" int cuda_run_xent_rows(const st_queue *q, const cuda_xent *x, int stage)
{
    struct CUstream_st *stream = st_cuda_stream(q);
    unsigned rows = (unsigned)x->count, few = (unsigned)cuda_div_up(x->count, CUDA_THREADS);
    switch (stage) {
    case CUDA_XENT_MAX: max_kernel<<<rows, ROW_THREADS, 0, stream>>>(*x); break;
    case CUDA_XENT_OFFER: offer_kernel<<<few, CUDA_THREADS, 0, stream>>>(*x, 0); break;
    case CUDA_XENT_TAKE: offer_kernel<<<few, CUDA_THREADS, 0, stream>>>(*x, 1); break;
    case CUDA_XENT_SUM: sum_kernel<<<rows, ROW_THREADS, 0, stream>>>(*x); break;
    default: grad_kernel<<<rows, ROW_THREADS, 0, stream>>>(*x);
    }
    return st_cuda_launched(q, "xent");
}

/* dh[live[i]] += part[i]; rows are all different */
KERNEL(CUDA_THREADS) add_kernel(const cuda_xent x)
{
    int64_t i = blockIdx.x, row = x.live[x.at + i];
    if (row < 0) return;
    for (int64_t j = threadIdx.x; j < x.dh.cols; j += blockDim.x) {
        int64_t to = row * x.dh.s_row + j;
        float sum = get_real(x.dh.data, x.dh.type, to) + get_real(x.dh_part, x.type_part, i * x.dh.cols + j);
        put_real(x.dh.data, x.dh.type, to, sum);
    }
}

extern "C" int cuda_run_xent_add(const st_queue *q, const cuda_xent *x)
{
    add_kernel<<<(unsigned)x->count, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*x);
    return st_cuda_launched(q, "xent");
}

/* loss += {sum, count} over all rows that take part */
KERNEL(ROW_THREADS) loss_kernel(const cuda_xent x)
{
    __shared__ double room[ROW_THREADS / CUDA_WARP];
    double sum = 0, count = 0;
    for (int64_t i = threadIdx.x; i < x.cap; i += ROW_THREADS)
        if (x.live[i] >= 0) {
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
    loss_kernel<<<1, ROW_THREADS, 0, st_cuda_stream(q)>>>(*x);
    return st_cuda_launched(q, "xent");
}
