/* SPDX-License-Identifier: Apache-2.0 */
/* sums.cu - sums over rows: columns of a matrix, gradients of a norm's weight and bias. A block sums one piece of rows for 32
 * columns, then the pieces are added in a fixed order: nothing depends on which block is first. */
#include "kernel.h"

enum { COLS = 32, LANES = 8, PIECE_LANES = 32 };

/* Sum of the lanes' values, in their order, for each column; valid in lane 0. */
template <int N> DEVICE double sum_of_lanes(double x, double (*room)[COLS])
{
    int col = threadIdx.x % COLS, lane = threadIdx.x / COLS;
    double sum = 0;
    __syncthreads();
    room[lane][col] = x;
    __syncthreads();
    for (int l = 0; lane == 0 && l < N; l++) sum += room[l][col];
    return sum;
}

KERNEL(COLS * LANES) colsum_kernel(const cuda_sums a)
{
    __shared__ double room[LANES][COLS];
    int64_t col = (int64_t)blockIdx.x * COLS + threadIdx.x % COLS, rows = a.x.rows * a.x.heads;
    int64_t first = (int64_t)blockIdx.y * a.per, end = first + a.per < rows ? first + a.per : rows;
    double sum = 0;
    for (int64_t row = first + threadIdx.x / COLS; row < end && col < a.x.cols; row += LANES)
        sum += (double)get_real(row_at(a.x, row), a.x.type, col);
    sum = sum_of_lanes<LANES>(sum, room);
    if (threadIdx.x < COLS && col < a.x.cols) a.part[blockIdx.y * a.x.cols + col] = sum;
}

/* part[piece][2][cols]: sums of dn * xhat, and of dn */
KERNEL(COLS * LANES) norm_sums_kernel(const cuda_norm a)
{
    __shared__ double room[LANES][COLS];
    int64_t cols = a.r.cols, col = (int64_t)blockIdx.x * COLS + threadIdx.x % COLS;
    int64_t first = (int64_t)blockIdx.y * a.per, end = first + a.per < a.rows ? first + a.per : a.rows;
    double along = 0, sum = 0;
    for (int64_t row = first + threadIdx.x / COLS; row < end && col < cols; row += LANES) {
        float mean = a.kind == ST_NORM_LAYER ? *(const float *)row_at(a.mean, row) : 0.0f;
        float rstd = *(const float *)row_at(a.rstd, row), dn = get_real(row_at(a.dn, row), a.dn.type, col);
        along += (double)(dn * ((get_real(row_at(a.r, row), a.r.type, col) - mean) * rstd));
        sum += (double)dn;
    }
    along = sum_of_lanes<LANES>(along, room);
    sum = sum_of_lanes<LANES>(sum, room);
    if (threadIdx.x >= COLS || col >= cols) return;
    a.part[(int64_t)blockIdx.y * 2 * cols + col] = along;
    a.part[((int64_t)blockIdx.y * 2 + 1) * cols + col] = sum;
}

/* out[col] += sum over pieces of part[piece * distance + col]; the grid's second row does `next` with the columns behind
 * those. A lane has every PIECE_LANES-th piece. */
KERNEL(COLS * PIECE_LANES)
add_pieces(const double *part, int64_t pieces, int64_t distance, int64_t cols, float *out, float *next)
{
    __shared__ double room[PIECE_LANES][COLS];
    int64_t col = (int64_t)blockIdx.x * COLS + threadIdx.x % COLS;
    double sum = 0;
    if (blockIdx.y) {
        out = next;
        part += cols;
    }
    if (!out) return;
#pragma unroll 4
    for (int64_t p = threadIdx.x / COLS; p < pieces; p += PIECE_LANES)
        if (col < cols) sum += part[p * distance + col];
    sum = sum_of_lanes<PIECE_LANES>(sum, room);
    if (threadIdx.x < COLS && col < cols) out[col] = (float)((double)out[col] + sum);
}

extern "C" int cuda_run_colsum(const st_queue *q, const cuda_sums *a)
{
    unsigned blocks = (unsigned)cuda_div_up(a->x.cols, COLS);
    struct CUstream_st *stream = st_cuda_stream(q);
    colsum_kernel<<<dim3(blocks, (unsigned)a->pieces), COLS * LANES, 0, stream>>>(*a);
    add_pieces<<<blocks, COLS * PIECE_LANES, 0, stream>>>(a->part, a->pieces, a->x.cols, a->x.cols, a->out, NULL);
    return st_cuda_launched(q, "colsum");
}

extern "C" int cuda_norm_sums(const st_queue *q, const cuda_norm *a)
{
    dim3 grid((unsigned)cuda_div_up(a->r.cols, COLS), (unsigned)a->pieces);
    norm_sums_kernel<<<grid, COLS * LANES, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, "norm_bwd");
}

extern "C" int cuda_norm_add_parts(const st_queue *q, const cuda_norm *a)
{
    int64_t cols = a->r.cols;
    dim3 grid((unsigned)cuda_div_up(cols, COLS), a->db ? 2 : 1);
    add_pieces<<<grid, COLS * PIECE_LANES, 0, st_cuda_stream(q)>>>(a->part, a->pieces, 2 * cols, cols, a->dw, a->db);
    return st_cuda_launched(q, "norm_bwd");
}
