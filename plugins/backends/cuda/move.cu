/* SPDX-License-Identifier: Apache-2.0 */
/* move.cu - kernels that move rows by index: lookup and its gradient, gather, scatter, combine. A block does one row. */
#include "kernel.h"

/* ---- lookup: rows of a table or of features, converted where types differ ---- */
KERNEL(CUDA_THREADS) lookup_kernel(const cuda_lookup a, st_cuda_faults faults)
{
    for (int64_t t = blockIdx.x; t < a.out.rows; t += gridDim.x) {
        int64_t row = (int64_t)a.ids[t] - a.first;
        bool inside = row >= 0 && row < a.table.rows, media = a.media && a.media[t] >= 0;
        if (media) {
            row = a.media[t];
            inside = a.features.data && row < a.features.rows;
            if (!inside && threadIdx.x == 0) st_cuda_fault(faults, ST_FAULT_RANGE, row, a.features.rows);
        }
        const void *from = media ? a.features.data : a.table.data;
        int32_t type = media ? a.features.type : a.table.type;
        int64_t first = row * (media ? a.features.s_row : a.table.s_row);
        for (int64_t j = threadIdx.x; j < a.out.cols; j += blockDim.x)
            put_real(a.out.data, a.out.type, t * a.out.s_row + j, inside ? get_real(from, type, first + j) : 0.0f);
    }
}

extern "C" int cuda_run_lookup(const st_queue *q, const cuda_lookup *a)
{
    unsigned blocks = cuda_blocks(a->out.rows, CUDA_MOST_BLOCKS * 8);
    lookup_kernel<<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
    return st_cuda_launched(q, "lookup");
}

/* ---- its gradient: `order` has equal ids side by side; the block at the first of a run adds up the whole run ---- */
DEVICE int64_t slot_at(const cuda_lookup &a, int64_t i)
{
    int64_t t = a.order[i];
    return t >= 0 && t < a.d_out.rows ? t : -1;
}
DEVICE int64_t row_taken(const cuda_lookup &a, int64_t i) /* of the table by place i of `order`, or -1 */
{
    int64_t t = slot_at(a, i), row;
    if (t < 0) return -1;
    row = (int64_t)a.ids[t] - a.first;
    return row >= 0 && row < a.d_table.rows ? row : -1;
}

KERNEL(CUDA_THREADS) lookup_table_kernel(const cuda_lookup a)
{
    int64_t first = blockIdx.x, row = row_taken(a, first), end = first + 1;
    if (row < 0 || (first > 0 && row_taken(a, first - 1) == row)) return;
    while (end < a.n_order && row_taken(a, end) == row) end++;
    float *to = (float *)a.d_table.data + row * a.d_table.s_row;
    for (int64_t j = threadIdx.x; j < a.d_out.cols; j += blockDim.x) {
        double sum = 0;
        for (int64_t i = first; i < end; i++) {
            int64_t t = slot_at(a, i);
            if (a.media && a.media[t] >= 0) continue;
            sum += (double)get_real(a.d_out.data, a.d_out.type, t * a.d_out.s_row + j);
        }
        to[j] = (float)((double)to[j] + sum);
    }
}

extern "C" int cuda_run_lookup_table(const st_queue *q, const cuda_lookup *a)
{
    lookup_table_kernel<<<(unsigned)a->n_order, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, "lookup_bwd");
}

/* A block for each row of features: it looks for the slots that took the row, and adds them in their order. */
KERNEL(CUDA_THREADS) lookup_features_kernel(const cuda_lookup a, st_cuda_faults faults)
{
    __shared__ uint32_t taken[CUDA_THREADS / CUDA_WARP];
    float *to = (float *)a.d_features.data + (int64_t)blockIdx.x * a.d_features.s_row;
    for (int64_t first = 0; first < a.d_out.rows; first += CUDA_THREADS) {
        int64_t t = first + threadIdx.x, media = t < a.d_out.rows ? a.media[t] : -1;
        if (blockIdx.x == 0 && media >= a.d_features.rows)
            st_cuda_fault(faults, ST_FAULT_RANGE, media, a.d_features.rows);
        uint32_t mask = __ballot_sync(0xffffffffu, media == (int64_t)blockIdx.x);
        if (!__syncthreads_or(mask != 0)) continue; /* all have read what was found before */
        if (threadIdx.x % CUDA_WARP == 0) taken[threadIdx.x / CUDA_WARP] = mask;
        __syncthreads();
        for (int w = 0; w < CUDA_THREADS / CUDA_WARP; w++)
            for (uint32_t rest = taken[w]; rest; rest &= rest - 1) {
                int64_t slot = first + w * CUDA_WARP + __ffs((int)rest) - 1;
                for (int64_t j = threadIdx.x; j < a.d_out.cols; j += blockDim.x)
                    to[j] += get_real(a.d_out.data, a.d_out.type, slot * a.d_out.s_row + j);
            }
    }
}

extern "C" int cuda_run_lookup_features(const st_queue *q, const cuda_lookup *a)
{
    lookup_features_kernel<<<(unsigned)a->d_features.rows, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
    return st_cuda_launched(q, "lookup_bwd");
}

/* ---- gather and scatter: any type, in units of up to 16 bytes ---- */
template <typename T> KERNEL(CUDA_THREADS) move_kernel(const cuda_move a, st_cuda_faults faults)
{
    int64_t units = a.row_bytes / (int64_t)sizeof(T), step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n * units; i += step) {
        int64_t row = i / units, j = i % units, at = a.index[row];
        if (at >= a.limit || at < -2) {
            if (j == 0) st_cuda_fault(faults, ST_FAULT_RANGE, at, a.limit);
            continue;
        }
        int64_t from = a.scatter ? row : at, to = a.scatter ? at : row;
        if (at < 0 && (a.scatter || at == -2)) continue;
        T *out = (T *)((char *)a.dst + to * a.s_dst) + j;
        if (at < 0) memset(out, 0, sizeof *out);
        else *out = ((const T *)((const char *)a.src + from * a.s_src))[j];
    }
}

extern "C" int cuda_run_move(const st_queue *q, const cuda_move *a)
{
    unsigned blocks = cuda_blocks(cuda_div_up(a->n * (a->row_bytes / a->unit), CUDA_THREADS), CUDA_MOST_BLOCKS * 4);
    struct CUstream_st *stream = st_cuda_stream(q);
    st_cuda_faults faults = st_cuda_faults_of(q);
    switch (a->unit) {
    case 16: move_kernel<uint4><<<blocks, CUDA_THREADS, 0, stream>>>(*a, faults); break;
    case 8: move_kernel<uint2><<<blocks, CUDA_THREADS, 0, stream>>>(*a, faults); break;
    case 4: move_kernel<uint32_t><<<blocks, CUDA_THREADS, 0, stream>>>(*a, faults); break;
    case 2: move_kernel<uint16_t><<<blocks, CUDA_THREADS, 0, stream>>>(*a, faults); break;
    default: move_kernel<uint8_t><<<blocks, CUDA_THREADS, 0, stream>>>(*a, faults);
    }
    return st_cuda_launched(q, a->scatter ? "scatter" : "gather");
}

/* ---- combine: dst[t] = sum_k w[t,k] src[index[t,k]] ---- */
KERNEL(CUDA_THREADS) combine_kernel(const cuda_combine a, st_cuda_faults faults)
{
    int64_t n = a.dst.rows * a.dst.cols, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t t = i / a.dst.cols, j = i % a.dst.cols;
        float sum = 0;
        for (int64_t k = 0; k < a.n_index; k++) {
            int64_t row = a.index[t * a.s_index + k];
            if (row >= a.src.rows && j == 0) st_cuda_fault(faults, ST_FAULT_RANGE, row, a.src.rows);
            if (row < 0 || row >= a.src.rows) continue;
            float factor = a.w.data ? get_real(a.w.data, a.w.type, t * a.w.s_row + k) : 1.0f;
            sum += factor * get_real(a.src.data, a.src.type, row * a.src.s_row + j);
        }
        put_real(a.dst.data, a.dst.type, t * a.dst.s_row + j, sum);
    }
}

extern "C" int cuda_run_combine(const st_queue *q, const cuda_combine *a)
{
    unsigned blocks = cuda_blocks(cuda_div_up(a->dst.rows * a->dst.cols, CUDA_THREADS), CUDA_MOST_BLOCKS * 4);
    combine_kernel<<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a, st_cuda_faults_of(q));
    return st_cuda_launched(q, "combine");
}
