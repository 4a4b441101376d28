/* SPDX-License-Identifier: Apache-2.0 */
/* qk_norm.cu - head norms of queries and keys with their rotation, and the backward of both, each in one pass. LANES threads have a
 * token, eight columns of each head: a pair that is rotated lies in two of them. What all heads of the token share, turns and
 * weights, stays in registers. Heads that do not suit go through norm and rope. */
#include "pack.h"

enum { AT_ONCE = 2 }; /* heads that forward asks for before it uses any */
template <typename T> struct most_blocks { /* on a multiprocessor: numbers of f32 take more registers */
    enum { n = sizeof(T) == 2 ? 4 : 2 };
};

/* The columns that a thread has of a token. partner: the lane with the other ones of its pairs, itself where there are none. */
typedef struct token_part {
    uint32_t token;
    int col, partner;
    bool here;
} token_part;

template <int LANES> DEVICE token_part part_of(const cuda_qk &a, uint32_t token, uint32_t end)
{
    const int lane = threadIdx.x % LANES, col = lane * CUDA_WIDE, half = (int)a.half, runs = half / CUDA_WIDE;
    const int partner = col < half ? lane + runs : col < 2 * half ? lane - runs : lane;
    token_part p = {token, col, partner, token < end && col < a.q.x.cols};
    return p;
}

/* A rotated column is own times itself plus other times its partner's. */
typedef struct turn {
    float own[CUDA_WIDE], other[CUDA_WIDE];
} turn;

DEVICE turn turn_of(const cuda_qk &a, const token_part &p, bool inverse)
{
    turn t = {};
#pragma unroll
    for (int i = 0; i < CUDA_WIDE; i++) t.own[i] = 1;
    if (!p.here || p.col >= 2 * a.half) return t;
    const bool upper = p.col >= a.half;
    const int col = upper ? p.col - (int)a.half : p.col;
    get_run<CUDA_WIDE>(a.cos + p.token * a.s_cos, ST_F32, col, t.own);
    get_run<CUDA_WIDE>(a.sin + p.token * a.s_sin, ST_F32, col, t.other);
#pragma unroll
    for (int i = 0; i < CUDA_WIDE; i++) t.other[i] = upper == inverse ? -t.other[i] : t.other[i];
    return t;
}

/* What the partner holds; all threads of the warp take part. */
template <typename T, int LANES> DEVICE void of_partner(const pack<T> &v, const token_part &p, float *x)
{
    pack<T> other;
#pragma unroll
    for (int i = 0; i < (int)(CUDA_WIDE * sizeof(T) / 16); i++)
        other.part[i] = make_uint4(__shfl_sync(0xffffffffu, v.part[i].x, p.partner, LANES),
                                   __shfl_sync(0xffffffffu, v.part[i].y, p.partner, LANES),
                                   __shfl_sync(0xffffffffu, v.part[i].z, p.partner, LANES),
                                   __shfl_sync(0xffffffffu, v.part[i].w, p.partner, LANES));
    unpack(other, x);
}

/* What normed columns from col on are multiplied with. */
template <typename T>
DEVICE void factors(const cuda_qk &a, const cuda_qk_side &s, const token_part &p, int col, float *factor)
{
    unpack(p.here ? load((const T *)s.w + col) : pack<T>{}, factor);
#pragma unroll
    for (int i = 0; i < CUDA_WIDE; i++) factor[i] += a.kind == ST_NORM_RMS1P ? 1.0f : 0.0f;
}

/* The inverse root, for bf16 as the hardware has it. */
DEVICE float inverse_root(float x, const float *) { return 1.0f / sqrtf(x); }
DEVICE float inverse_root(float x, const st_bf16 *) { return rsqrtf(x); }

template <typename T, int LANES>
DEVICE void forward_side(const cuda_qk &a, const cuda_qk_side &s, const token_part &p, const turn &t)
{
    const int heads = (int)s.x.heads;
    const T *from = place<T>(s.x, p.token, 0) + p.col;
    T *to = place<T>(s.y, p.token, 0) + p.col;
    float own[CUDA_WIDE], other[CUDA_WIDE];
    factors<T>(a, s, p, p.col, own);
    factors<T>(a, s, p, p.partner * CUDA_WIDE, other);
#pragma unroll
    for (int j = 0; j < CUDA_WIDE; j++) {
        own[j] *= t.own[j];
        other[j] *= t.other[j];
    }
#pragma unroll 1
    for (int first = 0; first < heads; first += AT_ONCE) {
        pack<T> x[AT_ONCE] = {};
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (p.here && first + i < heads) x[i] = load(from + (first + i) * s.x.s_head);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            float y[CUDA_WIDE], pair[CUDA_WIDE], squares = 0;
            unpack(x[i], y);
            of_partner<T, LANES>(x[i], p, pair);
#pragma unroll
            for (int j = 0; j < CUDA_WIDE; j++) squares += y[j] * y[j];
            const float mean = st_lanes_sum<LANES>(squares) * (1.0f / (float)s.x.cols);
            const float rstd = inverse_root(mean + (float)a.eps, (const T *)NULL);
#pragma unroll
            for (int j = 0; j < CUDA_WIDE; j++) y[j] = (y[j] * own[j] + pair[j] * other[j]) * rstd;
            if (!p.here || first + i >= heads) continue;
            store(to + (first + i) * s.y.s_head, y);
            if (p.col == 0) *place<float>(s.rstd, p.token, (uint32_t)(first + i)) = rstd;
        }
    }
}

template <typename T, int LANES>
static __global__ void __launch_bounds__(CUDA_THREADS, most_blocks<T>::n)
    forward_kernel(const __grid_constant__ cuda_qk a)
{
    const uint32_t token = blockIdx.x * (CUDA_THREADS / LANES) + threadIdx.x / LANES;
    const token_part p = part_of<LANES>(a, token, (uint32_t)a.q.x.rows);
    const turn t = turn_of(a, p, false);
    forward_side<T, LANES>(a, a.q, p, t);
    forward_side<T, LANES>(a, a.k, p, t);
}

/* dx of the heads of a side, and what they add to the gradient of w: dx = rstd (g - xhat mean(g xhat)), g = dn factor,
 * xhat = x rstd, dn what is rotated back of dy. */
template <typename T, int LANES>
DEVICE void backward_side(const cuda_qk &a, const cuda_qk_side &s, const token_part &p, const turn &t, float *dw)
{
    const T *x_from = place<T>(s.x, p.token, 0) + p.col, *dy_from = place<T>(s.dy, p.token, 0) + p.col;
    T *to = place<T>(s.dx, p.token, 0) + p.col;
    float factor[CUDA_WIDE];
    factors<T>(a, s, p, p.col, factor);
#pragma unroll 1
    for (int head = 0; head < (int)s.x.heads; head++) {
        pack<T> x_pack = {}, dy_pack = {};
        float x[CUDA_WIDE], g[CUDA_WIDE], pair[CUDA_WIDE], rstd = 0, sum = 0;
        if (p.here) {
            x_pack = load(x_from + head * s.x.s_head);
            dy_pack = load(dy_from + head * s.dy.s_head);
            rstd = *place<float>(s.rstd, p.token, (uint32_t)head);
        }
        unpack(x_pack, x);
        unpack(dy_pack, g);
        of_partner<T, LANES>(dy_pack, p, pair);
#pragma unroll
        for (int j = 0; j < CUDA_WIDE; j++) {
            g[j] = g[j] * t.own[j] + pair[j] * t.other[j];
            x[j] *= rstd;
            dw[j] += g[j] * x[j];
            g[j] *= factor[j];
            sum += g[j] * x[j];
        }
        sum = st_lanes_sum<LANES>(sum) * (1.0f / (float)s.x.cols);
#pragma unroll
        for (int j = 0; j < CUDA_WIDE; j++) g[j] = rstd * (g[j] - x[j] * sum);
        if (p.here && s.dx.data) store(to + head * s.dx.s_head, g);
    }
}

/* The sums of the block's tokens: those of its groups of threads, in their order. */
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

/* A block has a piece of a.per tokens. */
template <typename T, int LANES>
static __global__ void __launch_bounds__(CUDA_THREADS, most_blocks<T>::n)
    backward_kernel(const __grid_constant__ cuda_qk a)
{
    __shared__ __align__(16) float room[CUDA_THREADS * CUDA_WIDE];
    const uint32_t per = (uint32_t)a.per, first = blockIdx.x * per, end = min(first + per, (uint32_t)a.q.x.rows);
    float dw_q[CUDA_WIDE] = {}, dw_k[CUDA_WIDE] = {};
#pragma unroll 1
    for (uint32_t base = first; base < end; base += CUDA_THREADS / LANES) {
        const token_part p = part_of<LANES>(a, base + threadIdx.x / LANES, end);
        const turn t = turn_of(a, p, true);
        backward_side<T, LANES>(a, a.q, p, t, dw_q);
        backward_side<T, LANES>(a, a.k, p, t, dw_k);
    }
    if (a.part && a.q.dw) put_part<LANES>(a, 0, dw_q, room);
    if (a.part && a.k.dw) put_part<LANES>(a, 1, dw_k, room);
}

template <typename T, int LANES> static void launch(const st_queue *q, const cuda_qk *a, bool back)
{
    const unsigned blocks = (unsigned)cuda_div_up(a->q.x.rows, back ? a->per : CUDA_THREADS / LANES);
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
