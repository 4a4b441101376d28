/* SPDX-License-Identifier: Apache-2.0 */
/* norm.cu - norm and its backward. Rows of one type that are wide and not too long are read once and lie in registers: GROUP
 * warps have a row, a thread PACKS runs of eight of its columns. Backward sums the gradients of weight and bias over the
 * rows of its block as it goes. Other rows are walked, see rows.cu and sums.cu. */
#include "pack.h"
#include <strata/cuda_tile.h>

enum { WARPS = CUDA_THREADS / CUDA_WARP, MOST_PACKS = 4, MOST_COLS = MOST_PACKS * CUDA_WIDE * CUDA_THREADS };

/* Over the GROUP warps of a row; every thread of the block takes part. */
template <int GROUP> DEVICE float row_sum(float x)
{
    __shared__ float room[WARPS];
    x = warp_sum(x);
    if (GROUP == 1) return x;
    const int warp = threadIdx.x / CUDA_WARP;
    __syncthreads();
    if (threadIdx.x % CUDA_WARP == 0) room[warp] = x;
    __syncthreads();
    x = 0;
#pragma unroll
    for (int i = 0; i < GROUP; i++) x += room[warp / GROUP * GROUP + i];
    return x;
}

/* Columns of pack j of this thread begin here. */
template <int GROUP> DEVICE int column(int j)
{
    return (j * CUDA_WARP * GROUP + (int)threadIdx.x % (CUDA_WARP * GROUP)) * CUDA_WIDE;
}

/* What the normed row is multiplied with. */
template <typename T> DEVICE void factors(const cuda_norm &a, const pack<T> &w, float *factor)
{
    unpack(w, factor);
#pragma unroll
    for (int i = 0; i < CUDA_WIDE; i++) factor[i] = a.w ? factor[i] + (a.kind == ST_NORM_RMS1P ? 1.0f : 0.0f) : 1.0f;
}
template <typename T> DEVICE pack<T> weights(const cuda_norm &a, int col)
{
    return a.w && col < a.r.cols ? load((const T *)a.w + col) : pack<T>{};
}

template <typename T>
DEVICE void put_normed(const cuda_norm &a, T *n, int col, const float *normed, const float *factor)
{
    float out[CUDA_WIDE], shift[CUDA_WIDE] = {};
    if (a.b) unpack(load((const T *)a.b + col), shift);
#pragma unroll
    for (int i = 0; i < CUDA_WIDE; i++) out[i] = normed[i] * factor[i] + shift[i];
    store(n + col, out);
}

template <typename T, int PACKS, int GROUP> KERNEL(CUDA_THREADS) forward_kernel(const __grid_constant__ cuda_norm a)
{
    const uint32_t row = blockIdx.x * (WARPS / GROUP) + threadIdx.x / (CUDA_WARP * GROUP);
    const uint32_t token = row / (uint32_t)a.r.heads, head = row % (uint32_t)a.r.heads;
    const int cols = row < a.rows ? (int)a.r.cols : 0;
    pack<T> r[PACKS] = {}, y[PACKS] = {}, w[PACKS] = {};
    float x[PACKS][CUDA_WIDE], sum = 0, mean = 0, squares = 0;
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int col = column<GROUP>(j);
        if (col >= cols) continue;
        r[j] = load(place<T>(a.r, token, head) + col);
        if (a.y.data) y[j] = load(place<T>(a.y, token, head) + col);
        w[j] = weights<T>(a, col);
    }
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        float add[CUDA_WIDE];
        unpack(r[j], x[j]);
        unpack(y[j], add);
#pragma unroll
        for (int i = 0; i < CUDA_WIDE; i++) x[j][i] += add[i];
        if (a.r_out.data && column<GROUP>(j) < cols) { /* what is normed is what was stored */
            store((T *)&r[j], x[j]);
            store(place<T>(a.r_out, token, head) + column<GROUP>(j), x[j]);
            unpack(r[j], x[j]);
        }
#pragma unroll
        for (int i = 0; i < CUDA_WIDE; i++) sum += x[j][i];
    }
    if (a.kind == ST_NORM_LAYER) mean = row_sum<GROUP>(sum) / (float)a.r.cols;
#pragma unroll
    for (int j = 0; j < PACKS; j++)
#pragma unroll
        for (int i = 0; i < CUDA_WIDE; i++)
            if (column<GROUP>(j) < cols) squares += (x[j][i] - mean) * (x[j][i] - mean);
    const float rstd = 1.0f / sqrtf(row_sum<GROUP>(squares) / (float)a.r.cols + (float)a.eps);
    if (cols && threadIdx.x % (CUDA_WARP * GROUP) == 0) {
        if (a.rstd.data) *place<float>(a.rstd, token, head) = rstd;
        if (a.mean.data) *place<float>(a.mean, token, head) = mean;
    }
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        float factor[CUDA_WIDE];
        if (!a.n.data || column<GROUP>(j) >= cols) continue;
        factors(a, w[j], factor);
#pragma unroll
        for (int i = 0; i < CUDA_WIDE; i++) x[j][i] = (x[j][i] - mean) * rstd;
        put_normed(a, place<T>(a.n, token, head), column<GROUP>(j), x[j], factor);
    }
}

/* Rows on their way into shared memory: r, dn and dr, 16 bytes a thread side by side. A thread reads nothing but what it
 * copied itself, so there is no barrier. */
enum { OF_R, OF_DN, OF_DR, STAGED };
template <typename T> struct stages {
    enum { n = sizeof(T) == 2 ? 2 : 1, parts = CUDA_WIDE * sizeof(T) / 16, pack_size = STAGED * parts * CUDA_THREADS };
};

/* A row of this thread's group, and where it ends: at 0 if there is none. */
typedef struct row_place { uint32_t token, head; int cols; float rstd, mean; } row_place;

template <typename T, int PACKS> DEVICE uint4 *slot(uint4 *stage, int of, int j)
{
    return stage + (of * PACKS + j) * (int)stages<T>::parts * CUDA_THREADS + threadIdx.x;
}
template <typename T> DEVICE void copy_pack(uint4 *to, const cuda_view &from, const row_place &p, int col)
{
    const T *at = col < p.cols ? place<T>(from, p.token, p.head) + col : (const T *)from.data;
#pragma unroll
    for (int i = 0; i < stages<T>::parts; i++) { /* zeros where there is nothing */
        const uint4 *part = (const uint4 *)at + i;
        const int bytes = col < p.cols ? 16 : 0;
        if (stages<T>::parts == 1) st_copy16(to + i * CUDA_THREADS, part, bytes);
        else st_copy16_cached(to + i * CUDA_THREADS, part, bytes); /* the other half of what is fetched is next */
    }
}
template <typename T> DEVICE void staged(const uint4 *from, float *x)
{
    pack<T> v;
#pragma unroll
    for (int i = 0; i < stages<T>::parts; i++) v.part[i] = from[i * CUDA_THREADS];
    unpack(v, x);
}
template <typename T, int PACKS, int GROUP, bool ALL>
DEVICE row_place copy_row(const cuda_norm &a, uint4 *stage, uint32_t base, uint32_t end)
{
    const uint32_t row = base + threadIdx.x / (CUDA_WARP * GROUP), heads = (uint32_t)a.r.heads;
    row_place p = {row / heads, row % heads, row < end ? (int)a.r.cols : 0, 0, 0};
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int col = column<GROUP>(j);
        copy_pack<T>(slot<T, PACKS>(stage, OF_R, j), a.r, p, col);
        copy_pack<T>(slot<T, PACKS>(stage, OF_DN, j), a.dn, p, col);
        if (a.add) copy_pack<T>(slot<T, PACKS>(stage, OF_DR, j), a.dr, p, col);
    }
    st_copies_commit();
    if (p.cols) p.rstd = *place<float>(a.rstd, p.token, p.head);
    if (ALL && p.cols && a.kind == ST_NORM_LAYER) p.mean = *place<float>(a.mean, p.token, p.head);
    return p;
}

/* The sums of the block's rows: those of its groups, in their order. */
template <int PACKS, int GROUP>
DEVICE void put_part(const cuda_norm &a, int which, const float (*sum)[CUDA_WIDE], float *room)
{
    const int width = PACKS * CUDA_WARP * GROUP * CUDA_WIDE, group = threadIdx.x / (CUDA_WARP * GROUP);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < PACKS; j++) put_run<CUDA_WIDE>(room, ST_F32, group * width + column<GROUP>(j), sum[j]);
    __syncthreads();
    for (int col = threadIdx.x; col < a.r.cols; col += CUDA_THREADS) {
        float all = 0;
        for (int g = 0; g < WARPS / GROUP; g++) all += room[g * width + col];
        a.part[((int64_t)blockIdx.x * 2 + which) * a.r.cols + col] = (double)all;
    }
}

/* Sums of a row: of g xhat, and of g; what the row adds to dw and db. */
template <typename T, int PACKS, int GROUP, bool ALL>
DEVICE float2 row_sums(const cuda_norm &a, uint4 *stage, const row_place &p, float (*dw)[CUDA_WIDE],
                       float (*db)[CUDA_WIDE])
{
    float2 sum = {0, 0};
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        float x[CUDA_WIDE], dn[CUDA_WIDE], factor[CUDA_WIDE];
        staged<T>(slot<T, PACKS>(stage, OF_R, j), x);
        staged<T>(slot<T, PACKS>(stage, OF_DN, j), dn);
        factors(a, weights<T>(a, column<GROUP>(j)), factor);
#pragma unroll
        for (int i = 0; i < CUDA_WIDE; i++) {
            const float normed = (x[i] - p.mean) * p.rstd, g = dn[i] * factor[i];
            dw[j][i] += dn[i] * normed;
            if (ALL) db[j][i] += dn[i];
            sum.x += g * normed;
            sum.y += g;
        }
    }
    return sum;
}
template <typename T, int PACKS, int GROUP, bool ALL>
DEVICE void put_row(const cuda_norm &a, uint4 *stage, const row_place &p, float2 mean)
{
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int col = column<GROUP>(j);
        float x[CUDA_WIDE], g[CUDA_WIDE], factor[CUDA_WIDE], before[CUDA_WIDE] = {};
        if (col >= p.cols) continue;
        staged<T>(slot<T, PACKS>(stage, OF_R, j), x);
        staged<T>(slot<T, PACKS>(stage, OF_DN, j), g);
        if (a.add) staged<T>(slot<T, PACKS>(stage, OF_DR, j), before);
        factors(a, weights<T>(a, col), factor);
#pragma unroll
        for (int i = 0; i < CUDA_WIDE; i++) {
            x[i] = (x[i] - p.mean) * p.rstd;
            g[i] = p.rstd * (g[i] * factor[i] - mean.y - x[i] * mean.x) + before[i];
        }
        if (a.dr.data) store(place<T>(a.dr, p.token, p.head) + col, g);
        if (ALL && a.n.data) put_normed(a, place<T>(a.n, p.token, p.head), col, x, factor);
    }
}

/* dr = rstd (g - mean(g) [layer] - xhat mean(g xhat)), g = dn * factor, xhat = (r - mean) rstd; n = norm(r) again. A block
 * has a piece of a.per rows, and in bf16 copies the next ones while it computes. Without ALL there is neither a mean nor db
 * nor n. dr may lie where dn does: a thread has read its columns of a row before it writes any. */
template <typename T, int PACKS, int GROUP, bool ALL>
static __global__ void __launch_bounds__(CUDA_THREADS, sizeof(T) == 4 ? 1 : PACKS == 1 ? 4 : ALL ? 1 : 2)
    backward_kernel(const __grid_constant__ cuda_norm a)
{
    extern __shared__ uint4 shared[];
    const int more = stages<T>::n - 1, stage_size = PACKS * stages<T>::pack_size;
    const uint32_t per = (uint32_t)a.per, first = blockIdx.x * per, end = min(first + per, (uint32_t)a.rows);
    const float share = 1.0f / (float)a.r.cols;
    float dw[PACKS][CUDA_WIDE] = {}, db[ALL ? PACKS : 1][CUDA_WIDE] = {};
    uint4 *stage = shared;
    row_place next = {};
    if (more) next = copy_row<T, PACKS, GROUP, ALL>(a, stage, first, end);
#pragma unroll 1
    for (uint32_t base = first; base < end; base += WARPS / GROUP) {
        uint4 *other = stage == shared && more ? shared + stage_size : shared;
        const row_place p = more ? next : copy_row<T, PACKS, GROUP, ALL>(a, stage, base, end);
        if (more) next = copy_row<T, PACKS, GROUP, ALL>(a, other, base + WARPS / GROUP, end);
        st_copies_wait<more>();
        float2 mean = row_sums<T, PACKS, GROUP, ALL>(a, stage, p, dw, db);
        mean.x = row_sum<GROUP>(mean.x) * share;
        mean.y = ALL && a.kind == ST_NORM_LAYER ? row_sum<GROUP>(mean.y) * share : 0.0f;
        asm volatile("" ::: "memory"); /* read the row once more instead of keeping it in registers */
        put_row<T, PACKS, GROUP, ALL>(a, stage, p, mean);
        stage = other;
    }
    st_copies_wait<0>();
    if (a.part && a.dw) put_part<PACKS, GROUP>(a, 0, dw, (float *)shared);
    if (ALL && a.part && a.db) put_part<PACKS, GROUP>(a, 1, db, (float *)shared);
}

static bool same_type(const cuda_norm *a, const cuda_view *v) { return !v->data || v->type == a->r.type; }
static bool in_registers(const cuda_norm *a)
{
    return a->wide && a->r.cols <= MOST_COLS && a->rows <= INT32_MAX && same_type(a, &a->y) &&
           same_type(a, &a->r_out) && same_type(a, &a->n) && same_type(a, &a->dn) && same_type(a, &a->dr) &&
           (!a->w || a->w_type == a->r.type) && (!a->b || a->b_type == a->r.type);
}

template <typename T, int PACKS, int GROUP> static void launch(const st_queue *q, const cuda_norm *a, bool back)
{
    struct CUstream_st *stream = st_cuda_stream(q);
    const unsigned blocks = (unsigned)cuda_div_up(a->rows, back ? a->per : WARPS / GROUP);
    const size_t room = sizeof(uint4) * stages<T>::n * PACKS * stages<T>::pack_size; /* more than put_part needs */
    if (!back) {
        forward_kernel<T, PACKS, GROUP><<<blocks, CUDA_THREADS, 0, stream>>>(*a);
        return;
    }
    auto kernel = backward_kernel<T, PACKS, GROUP, false>;
    if (a->db || a->n.data || a->kind == ST_NORM_LAYER) kernel = backward_kernel<T, PACKS, GROUP, true>;
    ST_CUDA_SHARED(kernel, room);
    kernel<<<blocks, CUDA_THREADS, room, stream>>>(*a);
}
template <typename T> static void launch_cols(const st_queue *q, const cuda_norm *a, bool back)
{
    const int64_t each = CUDA_WARP * CUDA_WIDE, cols = a->r.cols;
    if (cols <= each) launch<T, 1, 1>(q, a, back);
    else if (cols <= MOST_PACKS * each) launch<T, MOST_PACKS, 1>(q, a, back);
    else if (cols <= 2 * MOST_PACKS * each) launch<T, MOST_PACKS, 2>(q, a, back);
    else if (cols <= 4 * MOST_PACKS * each) launch<T, MOST_PACKS, 4>(q, a, back);
    else launch<T, MOST_PACKS, 8>(q, a, back);
}
static int run_in_registers(const st_queue *q, const cuda_norm *a, bool back)
{
    if (a->r.type == ST_F32) launch_cols<float>(q, a, back);
    else launch_cols<st_bf16>(q, a, back);
    return st_cuda_launched(q, back ? "norm_bwd" : "norm");
}

extern "C" int cuda_run_norm(const st_queue *q, const cuda_norm *a)
{
    return in_registers(a) ? run_in_registers(q, a, false) : cuda_norm_walked(q, a);
}

extern "C" int cuda_run_norm_bwd(const st_queue *q, const cuda_norm *a)
{
    cuda_norm job = *a;
    job.add = a->add && a->dr.data;
    if (in_registers(a)) ST_TRY(run_in_registers(q, &job, true));
    else ST_TRY(cuda_norm_walked_bwd(q, a));
    return a->part ? cuda_norm_add_parts(q, a) : ST_OK;
}
