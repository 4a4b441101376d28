/* SPDX-License-Identifier: Apache-2.0 */
/* sums.cu - sums over rows: columns of a matrix, gradients of a norm's weight and bias. A block sums one piece of rows for 32
 * columns, then the pieces are added in their order: nothing depends on which block is first. */
#include "kernel.h"

enum { COLS = 32, LANES = 8 };

/* Sum of the lanes' values, in their order, for each column; valid in lane 0. */
DEVICE double sum_of_lanes(double x, double (*room)[COLS])
{
    int col = threadIdx.x % COLS, lane = threadIdx.x / COLS;
    double sum = 0;
    __syncthreads();
    room[lane][col] = x;
    __syncthreads();
    for (int l = 0; lane == 0 && l < LANES; l++) sum += room[l][col];
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
    sum = sum_of_lanes(sum, room);
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
    along = sum_of_lanes(along, room);
    sum = sum_of_lanes(sum, room);
    if (threadIdx.x >= COLS || col >= cols) return;
    a.part[(int64_t)blockIdx.y * 2 * cols + col] = along;
    a.part[((int64_t)blockIdx.y * 2 + 1) * cols + col] = sum;
}

/* out[col] += sum over pieces of part[piece * distance + col] */
KERNEL(CUDA_THREADS) add_pieces(const double *part, int64_t pieces, int64_t distance, int64_t cols, float *out)
{
    int64_t col = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    double sum = 0;
    if (col >= cols) return;
    for (int64_t p = 0; p < pieces; p++) sum += part[p * distance + col];
    out[col] = (float)((double)out[col] + sum);
}

static void add_up(const st_queue *q, const double *part, int64_t pieces, int64_t distance, int64_t cols, float *out)
{
    unsigned blocks = (unsigned)cuda_div_up(cols, CUDA_THREADS);
    if (out) add_pieces<<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(part, pieces, distance, cols, out);
}

extern "C" int cuda_run_colsum(const st_queue *q, const cuda_sums *a)
{
    dim3 grid((unsigned)cuda_div_up(a->x.cols, COLS), (unsigned)a->pieces);
    colsum_kernel<<<grid, COLS * LANES, 0, st_cuda_stream(q)>>>(*a);
    add_up(q, a->part, a->pieces, a->x.cols, a->x.cols, a->out);
    return st_cuda_launched(q, "colsum");
}

/* Sums over rows first: dr may lie where dn does. */
extern "C" int cuda_run_norm_bwd(const st_queue *q, const cuda_norm *a)
{
    dim3 grid((unsigned)cuda_div_up(a->r.cols, COLS), (unsigned)a->pieces);
    if (a->part) {
        norm_sums_kernel<<<grid, COLS * LANES, 0, st_cuda_stream(q)>>>(*a);
        add_up(q, a->part, a->pieces, 2 * a->r.cols, a->r.cols, a->dw);
        add_up(q, a->part + a->r.cols, a->pieces, 2 * a->r.cols, a->r.cols, a->db);
    }
    return cuda_norm_rows_bwd(q, a);
}
