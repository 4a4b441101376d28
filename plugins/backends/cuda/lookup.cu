/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.cu - rows of a table by id, and the gradient of the table. It adds up runs of equal ids in sorted order: the order is
 * cut into pieces, one block adds up what a piece holds, and runs that cross pieces leave partial sums, which a second kernel
 * adds in the order of the pieces. So a frequent id takes many blocks, and nothing is atomic. */
#include "wide.h"

enum { PIECE = CUDA_LOOKUP_PIECE, PIECE_THREADS = 128, PIECE_COLS = PIECE_THREADS * CUDA_WIDE, ROWS = 8, AHEAD = 4 };

/* ---- forward: one warp a row ---- */
DEVICE const cuda_view *source_of(const cuda_lookup &a, int64_t t, int64_t *row, st_cuda_faults faults)
{
    if (a.media && a.media[t] >= 0) {
        *row = a.media[t];
        if (a.features.data && *row < a.features.rows) return &a.features;
        st_cuda_fault(faults, ST_FAULT_RANGE, *row, a.features.data ? a.features.rows : 0);
        return NULL;
    }
    int32_t id = a.ids[t];
    *row = (int64_t)id - a.first;
    if (*row >= 0 && *row < a.table.rows) return &a.table;
    if (id >= 0 && a.uncut) st_cuda_fault(faults, ST_FAULT_RANGE, id, a.first + a.table.rows);
    return NULL;
}

static __global__ void __launch_bounds__(32 * ROWS)
    lookup_kernel(const __grid_constant__ cuda_lookup a, bool wide, st_cuda_faults faults)
{
    int64_t t = (int64_t)blockIdx.x * ROWS + threadIdx.y, row;
    if (t >= a.out.rows) return;
    const cuda_view *from = source_of(a, t, &row, faults);
    int64_t at = from ? row * from->s_row : 0, to = t * a.out.s_row;
    for (int64_t j = (int64_t)threadIdx.x * CUDA_WIDE; j < a.out.cols; j += 32 * CUDA_WIDE) {
        int64_t left = a.out.cols - j;
        cuda_eight v = {{0, 0, 0, 0, 0, 0, 0, 0}};
        if (from) v = get_some(from->data, from->type, at + j, left, wide);
        put_some(a.out.data, a.out.type, to + j, left, wide, v);
    }
}

extern "C" int cuda_run_lookup(const st_queue *q, const cuda_lookup *a)
{
    bool wide = cuda_rows_wide(&a->table) && cuda_rows_wide(&a->features) && cuda_rows_wide(&a->out);
    lookup_kernel<<<(unsigned)cuda_div_up(a->out.rows, ROWS), dim3(32, ROWS), 0, st_cuda_stream(q)>>>(
        *a, wide, st_cuda_faults_of(q));
    return st_cuda_launched(q, "lookup");
}

/* ---- gradient of the table ---- */
/* Row of the table that place i of the order took, -1: none; *slot: the row of d_out, -1: its gradient is not the table's. */
DEVICE int32_t taken(const cuda_lookup &a, int64_t i, int32_t *slot)
{
    *slot = -1;
    if (i < 0 || i >= a.n_order) return -1;
    int32_t t = a.order[i];
    if (t < 0 || t >= a.d_out.rows) return -1;
    int64_t row = (int64_t)a.ids[t] - a.first;
    if (row < 0 || row >= a.d_table.rows) return -1;
    if (!a.media || a.media[t] < 0) *slot = t;
    return (int32_t)row;
}

DEVICE float *part_of(const cuda_lookup &a, int64_t piece, int tail) { return a.part + (2 * piece + tail) * a.d_table.cols; }

DEVICE void add_to_table(const cuda_lookup &a, int32_t row, int64_t j, const cuda_eight &sum, bool wide)
{
    float *to = (float *)a.d_table.data;
    int64_t at = row * a.d_table.s_row + j, left = a.d_table.cols - j;
    cuda_eight v = get_some(to, ST_F32, at, left, wide);
    add_eight(v, sum);
    put_some(to, ST_F32, at, left, wide, v);
}

/* Where the sum of a run goes that ends at place k of a piece: `head` began before the piece, `tail` goes on behind it. */
DEVICE void put_run(const cuda_lookup &a, int64_t piece, int32_t row, bool head, bool tail, int64_t j, const cuda_eight &sum,
                    bool wide)
{
    if (row < 0) return;
    if (head || tail) put_some(part_of(a, piece, !head), ST_F32, j, a.d_table.cols - j, wide, sum);
    else add_to_table(a, row, j, sum, wide);
}

static __global__ void __launch_bounds__(PIECE_THREADS)
    piece_kernel(const __grid_constant__ cuda_lookup a, bool wide)
{
    __shared__ int32_t slot[PIECE + 2], row[PIECE + 2]; /* one place before and one behind the piece */
    int64_t piece = blockIdx.x, j = (int64_t)blockIdx.y * PIECE_COLS + (int64_t)threadIdx.x * CUDA_WIDE;
    for (int k = threadIdx.x; k < PIECE + 2; k += PIECE_THREADS) row[k] = taken(a, piece * PIECE + k - 1, &slot[k]);
    __syncthreads();
    if (j >= a.d_table.cols) return;
    const cuda_eight zero = {{0, 0, 0, 0, 0, 0, 0, 0}};
    cuda_eight sum = zero;
    bool head = row[0] == row[1];
    for (int first = 1; first <= PIECE; first += AHEAD) {
        cuda_eight v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int32_t t = slot[first + k];
            v[k] = t < 0 ? zero : get_some(a.d_out.data, a.d_out.type, t * a.d_out.s_row + j, a.d_out.cols - j, wide);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int at = first + k;
            bool goes_on = row[at] == row[at + 1];
            add_eight(sum, v[k]);
            if (goes_on && at < PIECE) continue;
            put_run(a, piece, row[at], head, goes_on, j, sum, wide);
            head = false;
            sum = zero;
        }
    }
}

DEVICE bool goes_through(const cuda_lookup &a, int64_t piece, int32_t row) /* to the end of this piece and into the next */
{
    int32_t unused;
    return taken(a, (piece + 1) * PIECE - 1, &unused) == row && taken(a, (piece + 1) * PIECE, &unused) == row;
}

/* A run that begins in this piece and goes on behind it: its partial sums, in their order. Each lane looks at one of the
 * next 32 pieces, so that a long run does not wait for its end piece by piece. */
static __global__ void __launch_bounds__(PIECE_THREADS)
    across_kernel(const __grid_constant__ cuda_lookup a, bool wide)
{
    int32_t unused, row;
    int64_t piece = blockIdx.x, j = (int64_t)blockIdx.y * PIECE_COLS + (int64_t)threadIdx.x * CUDA_WIDE;
    int64_t left = a.d_table.cols - j, next = piece + 1;
    row = taken(a, next * PIECE - 1, &unused);
    if (row < 0 || taken(a, next * PIECE, &unused) != row) return;
    if (taken(a, piece * PIECE, &unused) == row && taken(a, piece * PIECE - 1, &unused) == row) return; /* began earlier */
    cuda_eight sum = {{0, 0, 0, 0, 0, 0, 0, 0}};
    if (left > 0) sum = get_some(part_of(a, piece, 1), ST_F32, j, left, wide);
    for (bool more = true; more; next += 32) {
        uint32_t votes = __ballot_sync(0xffffffffu, goes_through(a, next + threadIdx.x % CUDA_WARP, row));
        int n = ~votes ? __ffs((int)~votes) : 32; /* those it goes through, and the one it ends in */
        more = !~votes;
#pragma unroll 4
        for (int k = 0; k < n; k++)
            if (left > 0) add_eight(sum, get_some(part_of(a, next + k, 0), ST_F32, j, left, wide));
    }
    if (left > 0) add_to_table(a, row, j, sum, wide);
}

extern "C" int cuda_run_lookup_table(const st_queue *q, const cuda_lookup *a)
{
    bool wide = cuda_rows_wide(&a->d_out) && cuda_rows_wide(&a->d_table);
    dim3 grid((unsigned)cuda_div_up(a->n_order, PIECE), (unsigned)cuda_div_up(a->d_table.cols, PIECE_COLS));
    piece_kernel<<<grid, PIECE_THREADS, 0, st_cuda_stream(q)>>>(*a, wide);
    across_kernel<<<grid, PIECE_THREADS, 0, st_cuda_stream(q)>>>(*a, wide);
    return st_cuda_launched(q, "lookup_bwd");
}

/* ---- gradient of the features: a block looks for the slots that took one of its few rows, and adds them in order ---- */
enum { SOUGHT = 4, SLOTS = SOUGHT * CUDA_THREADS, MASKS = SLOTS / 32 };

DEVICE void add_feature(const cuda_lookup &a, int64_t t, bool wide)
{
    int64_t from = t * a.d_out.s_row, to = a.media[t] * a.d_features.s_row, cols = a.d_features.cols;
    for (int64_t j = (int64_t)threadIdx.x * CUDA_WIDE; j < cols; j += CUDA_THREADS * CUDA_WIDE) {
        cuda_eight v = get_some(a.d_features.data, ST_F32, to + j, cols - j, wide);
        add_eight(v, get_some(a.d_out.data, a.d_out.type, from + j, cols - j, wide));
        put_some(a.d_features.data, ST_F32, to + j, cols - j, wide, v);
    }
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    features_kernel(const __grid_constant__ cuda_lookup a, bool wide, st_cuda_faults faults)
{
    __shared__ uint32_t mask[MASKS];
    int64_t from = (int64_t)blockIdx.x * ROWS, end = from + ROWS;
    if (end > a.d_features.rows) end = a.d_features.rows;
    for (int64_t first = 0; first < a.d_out.rows; first += SLOTS) {
        bool any = false;
        for (int k = 0; k < SOUGHT; k++) {
            int64_t t = first + k * CUDA_THREADS + threadIdx.x;
            int32_t m = t < a.d_out.rows ? a.media[t] : -1;
            if (m >= a.d_features.rows && !blockIdx.x) st_cuda_fault(faults, ST_FAULT_RANGE, m, a.d_features.rows);
            bool hit = m >= from && m < end;
            uint32_t votes = __ballot_sync(0xffffffffu, hit);
            if (threadIdx.x % CUDA_WARP == 0) mask[k * (CUDA_THREADS / 32) + threadIdx.x / 32] = votes;
            any = any || hit;
        }
        if (!__syncthreads_or(any)) continue; /* nobody has read mask */
        for (int w = 0; w < MASKS; w++)
            for (uint32_t left = mask[w]; left; left &= left - 1) add_feature(a, first + 32 * w + __ffs((int)left) - 1, wide);
        __syncthreads();
    }
}

extern "C" int cuda_run_lookup_features(const st_queue *q, const cuda_lookup *a)
{
    bool wide = cuda_rows_wide(&a->d_out) && cuda_rows_wide(&a->d_features);
    features_kernel<<<(unsigned)cuda_div_up(a->d_features.rows, ROWS), CUDA_THREADS, 0, st_cuda_stream(q)>>>(
        *a, wide, st_cuda_faults_of(q));
    return st_cuda_launched(q, "lookup_bwd");
}
