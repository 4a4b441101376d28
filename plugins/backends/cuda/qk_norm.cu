/* SPDX-License-Identifier: Apache-2.0 */
/* qk_norm.cu - head norms of queries and keys with their rotation, and the backward of both, each in one pass. LANES threads have a
 * head of one token, eight columns each: a pair that is rotated lies in two of them. Heads that do not suit go through norm and
 * rope. */
#include "pack.h"

enum { AT_ONCE = 2 };

/* A head of a token, queries before keys; cols 0: there is none. */
typedef struct head_place {
    uint32_t token, head;
    int cols;
    bool key;
} head_place;

DEVICE head_place place_of(const cuda_qk &a, uint32_t row, uint32_t end)
{
    const uint32_t queries = (uint32_t)a.q.x.heads, heads = queries + (uint32_t)a.k.x.heads, head = row % heads;
    head_place p = {row / heads, head < queries ? head : head - queries, row < end ? (int)a.q.x.cols : 0,
                    head >= queries};
    return p;
}
/* In the view of its side; numbers are chosen, not the view: a pointer to it would have to be followed first. */
template <typename T> DEVICE T *head_at(const cuda_view &q, const cuda_view &k, const head_place &p)
{
    T *data = (T *)(p.key ? k.data : q.data);
    return data + (p.token * (p.key ? k.s_row : q.s_row) + p.head * (p.key ? k.s_head : q.s_head));
}

/* Cosines, and sines with the sign that the partner's column is multiplied by. */
typedef struct turn {
    float c[CUDA_WIDE], s[CUDA_WIDE];
} turn;

/* 0: this thread's columns lie in the lower half of what is rotated, 1: in the upper one, 2: behind both. */
template <int LANES> DEVICE int half_of(const cuda_qk &a)
{
    const int col = threadIdx.x % LANES * CUDA_WIDE;
    return col < a.half ? 0 : col < 2 * a.half ? 1 : 2;
}
template <int LANES> DEVICE turn turn_of(const cuda_qk &a, const head_place &p, bool inverse)
{
    const int half = half_of<LANES>(a), col = threadIdx.x % LANES * CUDA_WIDE - half * (int)a.half;
    turn t = {};
    if (half == 2 || !p.cols) return t;
    get_run<CUDA_WIDE>(a.cos + p.token * a.s_cos, ST_F32, col, t.c);
    get_run<CUDA_WIDE>(a.sin + p.token * a.s_sin, ST_F32, col, t.s);
#pragma unroll
    for (int i = 0; i < CUDA_WIDE; i++) t.s[i] = (half == 1) == inverse ? -t.s[i] : t.s[i];
    return t;
}
/* All threads of the warp take part. */
template <int LANES> DEVICE void rotate(const cuda_qk &a, const turn &t, float *x)
{
    const int half = half_of<LANES>(a), runs = (int)a.half / CUDA_WIDE, lane = threadIdx.x % LANES;
    const int partner = half == 0 ? lane + runs : half == 1 ? lane - runs : lane;
#pragma unroll
    for (int i = 0; i < CUDA_WIDE; i++) {
        const float other = __shfl_sync(0xffffffffu, x[i], partner, LANES);
        if (half < 2) x[i] = x[i] * t.c[i] + other * t.s[i];
    }
}

template <typename T> DEVICE void factors(const cuda_qk &a, const head_place &p, int col, float *factor)
{
    unpack(col < p.cols ? load((const T *)(p.key ? a.k.w : a.q.w) + col) : pack<T>{}, factor);
#pragma unroll
    for (int i = 0; i < CUDA_WIDE; i++) factor[i] += a.kind == ST_NORM_RMS1P ? 1.0f : 0.0f;
}

template <typename T, int LANES> KERNEL(CUDA_THREADS) forward_kernel(const __grid_constant__ cuda_qk a)
{
    const uint32_t rows = (uint32_t)a.rows, step = CUDA_THREADS / LANES;
    const uint32_t first = blockIdx.x * (step * AT_ONCE) + threadIdx.x / LANES;
    const int col = threadIdx.x % LANES * CUDA_WIDE;
    head_place p[AT_ONCE];
    pack<T> x[AT_ONCE] = {};
    turn t[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        p[i] = place_of(a, first + i * step, rows);
        if (col < p[i].cols) x[i] = load(head_at<T>(a.q.x, a.k.x, p[i]) + col);
        t[i] = turn_of<LANES>(a, p[i], false);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        float y[CUDA_WIDE], factor[CUDA_WIDE], squares = 0;
        unpack(x[i], y);
        factors<T>(a, p[i], col, factor);
#pragma unroll
        for (int j = 0; j < CUDA_WIDE; j++) squares += y[j] * y[j];
        const float rstd = 1.0f / sqrtf(lanes_sum<LANES>(squares) / (float)a.q.x.cols + (float)a.eps);
#pragma unroll
        for (int j = 0; j < CUDA_WIDE; j++) y[j] = y[j] * rstd * factor[j];
        rotate<LANES>(a, t[i], y);
        if (col < p[i].cols) store(head_at<T>(a.q.y, a.k.y, p[i]) + col, y);
        if (p[i].cols && col == 0) *head_at<float>(a.q.rstd, a.k.rstd, p[i]) = rstd;
    }
}

/* What backward reads of a head. */
template <typename T> struct head_data {
    head_place p;
    pack<T> x, dy;
    float rstd;
};
template <typename T, int LANES> DEVICE head_data<T> fetch(const cuda_qk &a, uint32_t row, uint32_t end)
{
    const int col = threadIdx.x % LANES * CUDA_WIDE;
    head_data<T> d = {};
    d.p = place_of(a, row, end);
    if (col < d.p.cols) {
        d.x = load(head_at<T>(a.q.x, a.k.x, d.p) + col);
        d.dy = load(head_at<T>(a.q.dy, a.k.dy, d.p) + col);
        d.rstd = *head_at<float>(a.q.rstd, a.k.rstd, d.p);
    }
    return d;
}

/* dx of a head, and its share of the gradient of w into dw: dx = rstd (g - xhat mean(g xhat)), g = dn factor, xhat = x rstd, dn
 * what is rotated back of dy. */
template <typename T, int LANES> DEVICE void head_backward(const cuda_qk &a, const head_data<T> &d, float *dw)
{
    const int col = threadIdx.x % LANES * CUDA_WIDE;
    float x[CUDA_WIDE], g[CUDA_WIDE], factor[CUDA_WIDE], sum = 0;
    unpack(d.x, x);
    unpack(d.dy, g);
    rotate<LANES>(a, turn_of<LANES>(a, d.p, true), g);
    factors<T>(a, d.p, col, factor);
#pragma unroll
    for (int j = 0; j < CUDA_WIDE; j++) {
        x[j] *= d.rstd;
        dw[j] = g[j] * x[j];
        g[j] *= factor[j];
        sum += g[j] * x[j];
    }
    sum = lanes_sum<LANES>(sum) / (float)a.q.x.cols;
#pragma unroll
    for (int j = 0; j < CUDA_WIDE; j++) g[j] = d.rstd * (g[j] - x[j] * sum);
    if (col < d.p.cols && (d.p.key ? a.k.dx.data : a.q.dx.data)) store(head_at<T>(a.q.dx, a.k.dx, d.p) + col, g);
}

/* The sums of the block's heads: those of its groups of threads, in their order. */
template <int LANES> DEVICE void put_part(const cuda_qk &a, int which, const float *sum, float *room)
{
    __syncthreads();
    put_run<CUDA_WIDE>(room, ST_F32, threadIdx.x * CUDA_WIDE, sum);
    __syncthreads();
    for (int col = threadIdx.x; col < a.q.x.cols; col += CUDA_THREADS) {
        float all = 0;
        for (int g = 0; g < CUDA_THREADS / LANES; g++) all += room[g * LANES * CUDA_WIDE + col];
        a.part[((int64_t)blockIdx.x * 2 + which) * a.q.x.cols + col] = (double)all;
    }
}

/* A block has a piece of a.per heads, and asks for the next ones before it computes. */
template <typename T, int LANES>
static __global__ void __launch_bounds__(CUDA_THREADS, sizeof(T) == 4 ? 2 : 3)
    backward_kernel(const __grid_constant__ cuda_qk a)
{
    __shared__ __align__(16) float room[CUDA_THREADS * CUDA_WIDE];
    const uint32_t per = (uint32_t)a.per, first = blockIdx.x * per, end = min(first + per, (uint32_t)a.rows);
    const uint32_t step = CUDA_THREADS / LANES, own = threadIdx.x / LANES;
    float dw_q[CUDA_WIDE] = {}, dw_k[CUDA_WIDE] = {};
    head_data<T> next = fetch<T, LANES>(a, first + own, end);
#pragma unroll 1
    for (uint32_t base = first; base < end; base += step) {
        const head_data<T> d = next;
        float dw[CUDA_WIDE];
        next = fetch<T, LANES>(a, base + step + own, end);
        head_backward<T, LANES>(a, d, dw);
#pragma unroll
        for (int j = 0; j < CUDA_WIDE; j++) {
            dw_q[j] += d.p.key ? 0.0f : dw[j];
            dw_k[j] += d.p.key ? dw[j] : 0.0f;
        }
    }
    if (a.part && a.q.dw) put_part<LANES>(a, 0, dw_q, room);
    if (a.part && a.k.dw) put_part<LANES>(a, 1, dw_k, room);
}

template <typename T, int LANES> static void launch(const st_queue *q, const cuda_qk *a, bool back)
{
    const unsigned blocks = (unsigned)cuda_div_up(a->rows, back ? a->per : CUDA_THREADS / LANES * AT_ONCE);
    if (back) backward_kernel<T, LANES><<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a);
    else forward_kernel<T, LANES><<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a);
}
template <typename T> static void launch_cols(const st_queue *q, const cuda_qk *a, bool back)
{
    if (a->q.x.cols <= 8 * CUDA_WIDE) launch<T, 8>(q, a, back);
    else if (a->q.x.cols <= 16 * CUDA_WIDE) launch<T, 16>(q, a, back);
    else launch<T, 32>(q, a, back);
}

/* ---- by norm and rope ---- */
static int turn_side(const st_queue *q, const cuda_qk *a, const cuda_view *x, int32_t inverse)
{
    cuda_rope job = {*x, a->cos, a->sin, a->s_cos, a->s_sin, a->half, a->interleaved, inverse};
    return a->half ? cuda_run_rope(q, &job) : ST_OK;
}
static int by_parts(const st_queue *q, const cuda_qk *a, const cuda_qk_side *s, bool back)
{
    cuda_norm job = {};
    job.kind = a->kind;
    job.wide = a->wide;
    job.eps = a->eps;
    job.r = s->x;
    job.rstd = s->rstd;
    job.w = s->w;
    job.w_type = s->x.type;
    job.rows = s->x.rows * s->x.heads;
    if (!job.rows) return ST_OK;
    if (!back) {
        job.n = s->y;
        ST_TRY(cuda_run_norm(q, &job));
        return turn_side(q, a, &s->y, 0);
    }
    job.dn = s->dy;
    job.dr = s->dx;
    job.dw = s->dw;
    job.part = s->dw ? a->part : NULL;
    job.per = cuda_div_up(job.rows, a->pieces);
    job.pieces = cuda_div_up(job.rows, job.per);
    ST_TRY(turn_side(q, a, &s->dy, 1));
    return cuda_run_norm_bwd(q, &job);
}

static int run(const st_queue *q, const cuda_qk *a, bool back)
{
    if (!a->together) {
        ST_TRY(by_parts(q, a, &a->q, back));
        return by_parts(q, a, &a->k, back);
    }
    if (a->q.x.type == ST_F32) launch_cols<float>(q, a, back);
    else launch_cols<st_bf16>(q, a, back);
    return st_cuda_launched(q, back ? "qk_norm_bwd" : "qk_norm");
}

extern "C" int cuda_run_qk_norm(const st_queue *q, const cuda_qk *a) { return run(q, a, false); }

extern "C" int cuda_run_qk_norm_bwd(const st_queue *q, const cuda_qk *a)
{
    cuda_norm sums = {};
    sums.r = a->q.x;
    sums.part = a->part;
    sums.pieces = a->pieces;
    sums.dw = a->q.dw;
    sums.db = a->k.dw; /* what lies behind the queries' sums */
    ST_TRY(run(q, a, true));
    return a->together && a->part ? cuda_norm_add_parts(q, &sums) : ST_OK;
}
