/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_cuda.h - what the rule's CUDA kernels share: the formulas, the layout of work, launches.
 *
 * Chunks are the tiles of the work list. Of one chunk and value head, with G the running sum of g inside the chunk,
 * D_ij = [i >= j] exp(G_i - G_j), e = exp(G), r = exp(G_last - G), gamma = exp(G_last), S the state before the chunk:
 *
 *     A = (I + stril(beta K K^T))^-1 * D * beta_j         P = (Q K^T) * D                              prepare
 *     X = A (V - e K S)      O = e Q S + P X      S' = gamma S + (r K)^T X                              chain
 *     dX = r (K dS') + P^T dO      dV = A^T dX      dS = gamma dS' + (e Q)^T dO - K^T (e dV)            chain, backward
 *     F = dO X^T     E = dV X^T     dP = F * D     T = -stril(E * D)                                    local
 *     dQ = e (dO S^T) + dP K        dK_w = dP^T Q + r (X dS'^T) + T^T K        dK_r = -e (dV S^T) + T K
 *     dbeta_i = E_ii / beta_i^2     dG_i = Q_i.dQ_i + K_i.dK_r,i - K_i.dK_w,i
 *     dG_last += gamma <dS', S> + sum_j K_j.(r X dS'^T)_j     dg = running sum of dG from the chunk's end
 *
 * Only chain and chain backward go along a segment. Only exponents of G_i - G_j with i >= j are taken, which are never
 * positive; G is double, because differences of large sums decide how far a token sees. Rows behind a segment's end
 * have q = k = v = g = beta = 0. K and Q in products are the raw rows: their l2 norms are factors of rows in f32
 * (k_scale; q_scale with key_dim^-1/2), so the operands are not rounded again. */
#ifndef GDN_RULE_CUDA_H
#define GDN_RULE_CUDA_H
#include "tile_cuda.h"
#include "work.h"

enum { CHUNK = GDN_CHUNK, MATRIX = CHUNK * CHUNK };
#define BETA_LEAST 1e-12f /* a smaller beta counts as this one, so that dbeta can be had by division */

/* Which operands can be moved 16 bytes at a time. wgmma: whether all of the pass can, and the warpgroup's
 * products are there for them. */
struct rule_fast { int qk, v, out, states, initial, final, dout, dqk, dv, dfinal, dinitial, wgmma; };

struct rule_launch {
    gdn_rule a;
    gdn_rule_bwd b; /* its f is not used */
    float *decay, *rest;      /* (tiles, value_heads, CHUNK): e, r                             */
    float *k_scale, *q_scale; /* (tiles, key_heads, CHUNK)                                     */
    void *solve, *mix;        /* (tiles, value_heads, CHUNK, CHUNK): A, P; backward: A^T, P^T  */
    void *x, *dstate;         /* (tiles, value_heads, CHUNK or key_dim, value_dim): X, dS'     */
    rule_fast fast;
    int backward; /* prepare for the backward pass */
};

template <typename T> static inline int aligned(const void *p, int64_t stride, int64_t columns)
{
    return (uintptr_t)p % 16 == 0 && stride % pack<T>::n == 0 && columns % pack<T>::n == 0;
}

/* The part of a launch that forward and backward have in common. */
template <typename T> static rule_launch rule_launch_of(const gdn_rule *a)
{
    rule_launch l = {};
    const int64_t values = a->row.n_tiles * a->value_heads, keys = a->row.n_tiles * a->key_heads;
    const int64_t state = (int64_t)a->key_dim * a->value_dim;
    l.a = *a;
    l.decay = (float *)a->work;
    l.rest = l.decay + values * CHUNK;
    l.k_scale = l.rest + values * CHUNK;
    l.q_scale = l.k_scale + keys * CHUNK;
    l.solve = l.q_scale + keys * CHUNK;
    l.mix = (T *)l.solve + values * MATRIX;
    l.x = (T *)l.mix + values * MATRIX;
    l.dstate = (T *)l.x + values * CHUNK * a->value_dim;
    l.fast.qk = aligned<T>(a->q, a->stride, a->key_dim) && aligned<T>(a->k, a->stride, a->key_dim);
    l.fast.v = aligned<T>(a->v, a->stride, a->value_dim);
    l.fast.out = aligned<T>(a->out, a->out_stride, a->value_dim);
    l.fast.states = aligned<T>(a->states, state, a->value_dim);
    l.fast.initial = aligned<T>(a->initial, a->initial_stride, a->value_dim) && state % pack<T>::n == 0;
    l.fast.final = aligned<T>(a->final, a->final_stride, a->value_dim) && state % pack<T>::n == 0;
    l.fast.wgmma = a->dtype == ST_BF16 && a->key_dim > 64 && l.fast.qk && l.fast.v && l.fast.out && l.fast.states &&
                   l.fast.final && st_cuda_has_wgmma();
    return l;
}

/* The tile of a block, its first token and length; the index of a tile and a head in work. */
struct chunk_place { int64_t begin; int segment, length; };
DEVICE chunk_place place_of(const gdn_row &row, int64_t tile)
{
    const int32_t *t = row.tiles + 3 * tile;
    chunk_place p = {t[1], t[0], t[2]};
    return p;
}
/* First tile and number of tiles of a segment; all threads of the block get both. */
template <int THREADS> DEVICE void find_tiles(const gdn_row &row, int segment, int shared[2], int &first, int &count)
{
    int least = INT32_MAX, n = 0;
    if (threadIdx.x < 2) shared[threadIdx.x] = threadIdx.x ? 0 : INT32_MAX;
    for (int64_t i = threadIdx.x; i < row.n_tiles; i += THREADS)
        if (row.tiles[3 * i] == segment && row.tiles[3 * i + 2] > 0) {
            least = least < (int)i ? least : (int)i;
            n++;
        }
    __syncthreads();
    if (n) {
        atomicMin(&shared[0], least);
        atomicAdd(&shared[1], n);
    }
    __syncthreads();
    first = shared[0];
    count = shared[1];
}
/* Running sums of g over the chunk, by one warp: those of rows 2 lane and 2 lane + 1. */
DEVICE void decay_sums(const float *g, int64_t stride, int length, double &first, double &second)
{
    const int lane = lane_of();
    const double before = 2 * lane < length ? (double)g[2 * lane * stride] : 0;
    const double last = 2 * lane + 1 < length ? (double)g[(2 * lane + 1) * stride] : 0;
    second = before + last;
    for (int step = 1; step < 32; step *= 2) {
        const double below = __shfl_up_sync(0xffffffffu, second, step);
        if (lane >= step) second += below;
    }
    first = second - last;
}
/* The same into `sums`, which may be read after a barrier. */
DEVICE void sum_decays(double *sums, const float *g, int64_t stride, int length)
{
    decay_sums(g, stride, length, sums[2 * lane_of()], sums[2 * lane_of() + 1]);
}
DEVICE float decay_between(const double *sums, int i, int j) { return expf((float)(sums[i] - sums[j])); }

/* The state before a tile, from what forward kept or the segment's initial state; NULL: it is zero. */
template <typename T>
DEVICE const T *state_before(const rule_launch &l, int64_t tile, const chunk_place &p, int head, int column, int &fast)
{
    const int64_t state = (int64_t)l.a.key_dim * l.a.value_dim;
    if (p.begin > l.a.row.segments[p.segment]) {
        fast = l.fast.states;
        return (const T *)l.a.states + (tile * l.a.value_heads + head) * state + column;
    }
    fast = l.a.initial && l.fast.initial;
    return l.a.initial ? (const T *)l.a.initial + p.begin * l.a.initial_stride + head * state + column : NULL;
}

/* Starts a kernel that takes more shared memory than a block has by default. */
static inline int rule_start(const st_queue *q, const char *name, void (*kernel)(const rule_launch), dim3 grid,
                             int threads, size_t bytes, const rule_launch &l)
{
    ST_CUDA_SHARED(kernel, bytes);
    kernel<<<grid, threads, bytes, st_cuda_stream(q)>>>(l);
    return st_cuda_launched(q, name);
}

/* One of four kernels: by type, and by key heads of at most 64 or 128 columns. */
#define RULE_BY_TYPE(name, q, l) \
    ((l)->a.dtype == ST_BF16 ? ((l)->a.key_dim > 64 ? name<bf16, 128>(q, l) : name<bf16, 64>(q, l)) \
                             : ((l)->a.key_dim > 64 ? name<float, 128>(q, l) : name<float, 64>(q, l)))

/* The steps, each in a file of its own. */
int gdn_rule_prepare(const st_queue *, const rule_launch *);
int gdn_rule_prepare_bf16(const st_queue *, const rule_launch *); /* the same of bf16 */
int gdn_rule_chain(const st_queue *, const rule_launch *);
int gdn_rule_chain_wgmma(const st_queue *, const rule_launch *); /* the same if fast.wgmma */
int gdn_rule_values(const st_queue *, const rule_launch *);
int gdn_rule_values_wgmma(const st_queue *, const rule_launch *);
int gdn_rule_chain_bwd(const st_queue *, const rule_launch *);
int gdn_rule_chain_bwd_wgmma(const st_queue *, const rule_launch *);
int gdn_rule_local(const st_queue *, const rule_launch *);
int gdn_rule_local_wgmma(const st_queue *, const rule_launch *);
#endif
