/* SPDX-License-Identifier: Apache-2.0 */
/* moe/sort_cuda.cu - picks sorted by expert: counts per block of tokens, their prefix sums, then every pick knows its
 * row. In order of tokens, whatever runs first: a thread has an expert and walks the block's picks. */
#include "warp_cuda.h"

enum { SCAN_THREADS = 1024, DROPPED = -1 /* behind an expert's rows, if nothing was routed */ };


DEVICE int64_t block_picks(const moe_sort &a, int &n, int32_t *picks)
{
    const int64_t first = (int64_t)blockIdx.x * MOE_BLOCK * a.top_k, left = a.tokens * a.top_k - first;
    n = left < MOE_BLOCK * a.top_k ? (int)left : MOE_BLOCK * a.top_k;
    for (int i = threadIdx.x; i < n; i += THREADS) picks[i] = a.choice[first + i];
    __syncthreads();
    return first;
}
static __global__ void __launch_bounds__(THREADS) count(const moe_sort a)
{
    extern __shared__ int32_t picks[];
    int n;
    block_picks(a, n, picks);
    for (int e = threadIdx.x; e < a.experts; e += THREADS) {
        int32_t sum = 0;
        for (int i = 0; i < n; i++) sum += picks[i] == e;
        a.work[(int64_t)blockIdx.x * a.experts + e] = sum;
    }
}
/* Rows of the experts of threads before this one, and of all; rows: those of this thread's experts. */
DEVICE int64_t scan(int64_t *room, int64_t rows, int64_t &all)
{
    int64_t sum = rows;
    room[threadIdx.x] = sum;
    for (int step = 1; step < SCAN_THREADS; step *= 2) {
        __syncthreads();
        const int64_t below = threadIdx.x >= step ? room[threadIdx.x - step] : 0;
        __syncthreads();
        room[threadIdx.x] = sum += below;
    }
    __syncthreads();
    all = room[SCAN_THREADS - 1];
    return sum - rows;
}
/* One block: counts become first rows of a block's picks; the row behind an expert's last pick goes into the last row
 * of work. */
static __global__ void __launch_bounds__(SCAN_THREADS)
    place_experts(const moe_sort a, int64_t blocks, const st_cuda_faults faults)
{
    __shared__ int64_t room[SCAN_THREADS];
    const int each = (a.experts + SCAN_THREADS - 1) / SCAN_THREADS, first = threadIdx.x * each;
    const int end = first + each < a.experts ? first + each : a.experts;
    int32_t *behind = a.work + blocks * a.experts;
    int64_t rows = 0, needed;
    for (int e = first; e < end; e++) {
        int64_t picks = 0;
        for (int64_t b = 0; b < blocks; b++) picks += a.work[b * a.experts + e];
        behind[e] = (int32_t)picks;
        rows += (picks + ST_GROUP_TILE - 1) / ST_GROUP_TILE * ST_GROUP_TILE;
    }
    int64_t at = scan(room, rows, needed);
    const int fits = needed <= a.rows;
    if (threadIdx.x == 0) {
        a.offset[a.experts] = fits ? (int32_t)needed : 0;
        if (!fits) st_cuda_fault(faults, MOE_FAULT_CAPACITY, needed, a.rows);
    }
    for (int e = first; e < end; e++) {
        const int64_t picks = behind[e];
        int32_t next = (int32_t)at;
        a.offset[e] = fits ? next : 0;
        for (int64_t b = 0; b < blocks; b++) {
            int32_t *n = a.work + b * a.experts + e;
            const int32_t of_block = *n;
            *n = next;
            next += of_block;
        }
        behind[e] = fits ? next : DROPPED;
        at += (picks + ST_GROUP_TILE - 1) / ST_GROUP_TILE * ST_GROUP_TILE;
    }
}
static __global__ void __launch_bounds__(THREADS) place_picks(const moe_sort a, int64_t blocks)
{
    extern __shared__ int32_t picks[];
    int n;
    const int64_t first = block_picks(a, n, picks);
    const int dropped = a.work[blocks * a.experts] == DROPPED;
    for (int i = threadIdx.x; i < n; i += THREADS)
        if (dropped || picks[i] < 0) a.place[first + i] = -1;
    if (dropped) return;
    for (int e = threadIdx.x; e < a.experts; e += THREADS) {
        int32_t next = a.work[(int64_t)blockIdx.x * a.experts + e];
        for (int i = 0; i < n; i++) {
            if (picks[i] != e) continue;
            a.place[first + i] = next;
            a.row[next] = (int32_t)((first + i) / a.top_k);
            ((float *)a.weight)[next] = ((const float *)a.share)[first + i];
            next++;
        }
    }
}
/* Padding behind the picks of an expert, and the rows behind all experts. */
static __global__ void __launch_bounds__(THREADS) fill(const moe_sort a, int64_t blocks)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int32_t *behind = a.work + blocks * a.experts;
    if (i < a.rows && i >= a.offset[a.experts]) {
        a.row[i] = -2;
        ((float *)a.weight)[i] = 0;
    }
    if (i >= a.experts || behind[i] == DROPPED) return;
    for (int32_t r = behind[i]; r < a.offset[i + 1]; r++) {
        a.row[r] = -1;
        ((float *)a.weight)[r] = 0;
    }
}
int moe_cuda_sort(const st_queue *q, const moe_sort *a)
{
    cudaStream_t stream = st_cuda_stream(q);
    const int64_t blocks = moe_blocks(a->tokens), most = a->rows > a->experts ? a->rows : a->experts;
    const size_t picks = (size_t)(MOE_BLOCK * a->top_k) * sizeof(int32_t);
    if (a->dtype != ST_F32) return ST_E_UNSUPPORTED;
    count<<<(unsigned)blocks, THREADS, picks, stream>>>(*a);
    place_experts<<<1, SCAN_THREADS, 0, stream>>>(*a, blocks, st_cuda_faults_of(q));
    place_picks<<<(unsigned)blocks, THREADS, picks, stream>>>(*a, blocks);
    fill<<<(unsigned)((most + THREADS - 1) / THREADS), THREADS, 0, stream>>>(*a, blocks);
    return st_cuda_launched(q, "moe_sort");
}
