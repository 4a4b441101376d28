/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_local_wgmma_cuda.cu - rule_local_cuda.cu for Hopper's warpgroup products. A block stays on its SM
 * and walks over chunks and key heads, so that memory streams: while 64 value columns of a head are worked on, the next
 * ones arrive, of the next head or chunk where this one ends. Both warpgroups do the same for half of the key columns;
 * beside that the first has F and dP, the second E and T. What is summed over a group stays in registers. */
#include "rule_cuda.h"

enum { THREADS = 256, WARPS = THREADS / 32, GROUPS = 2, KEYS = 128, VALUES = 64, STAGES = 2, HALF = KEYS / GROUPS };
enum { DOT_Q, DOT_READ, DOT_WRITE, DOT_KEPT, DOTS };
enum { SUMS_WARP = 4 }; /* decays are written by warp 0, those of the present head summed by this one */

struct local_stage {
    bf16 state[KEYS * VALUES], dstate[KEYS * VALUES];
    bf16 dout[CHUNK * VALUES], dv[CHUNK * VALUES], x[CHUNK * VALUES];
};
struct local_keys { bf16 k[CHUNK * KEYS], q[CHUNK * KEYS]; };
struct local_gates { float g[CHUNK], beta[CHUNK], decay[CHUNK], rest[CHUNK]; };
struct local_scales { float k[CHUNK], q[CHUNK]; };
struct local_shared {
    local_stage stage[STAGES];
    local_keys keys[2];               /* of this chunk and the next */
    bf16 dmix[MATRIX], lower[MATRIX]; /* dP and T, times rows' factors */
    local_gates gates[2];             /* of this head and the next */
    local_scales scales[2];
    double sums[CHUNK];
    float dots[DOTS][GROUPS][CHUNK], norms[2][GROUPS][CHUNK], along[WARPS];
};

/* ---- the walk ---- */

struct local_place { /* a part of the value columns of one head of the group of one chunk and key head */
    chunk_place p;
    int item, tile, key_head, in_group, part, chunks, heads; /* chunks, heads: how many came before */
};
/* From w.item on, the first chunk that has tokens. */
DEVICE void find_chunk(local_place &w, const rule_launch &l)
{
    const int end = (int)l.a.row.n_tiles * l.a.key_heads;
    for (; w.item < end; w.item += gridDim.x) {
        w.tile = w.item / l.a.key_heads;
        w.key_head = w.item % l.a.key_heads;
        w.p = place_of(l.a.row, w.tile);
        if (w.p.length > 0) return;
    }
}
DEVICE bool walk_ended(const local_place &w, const rule_launch &l)
{
    return w.item >= (int)l.a.row.n_tiles * l.a.key_heads;
}
DEVICE bool head_ends(const local_place &w, const rule_launch &l) { return (w.part + 1) * VALUES >= l.a.value_dim; }
DEVICE int group_of(const rule_launch &l) { return l.a.value_heads / l.a.key_heads; }
DEVICE int head_of(const local_place &w, const rule_launch &l) { return w.key_head * group_of(l) + w.in_group; }
DEVICE void step_on(local_place &w, const rule_launch &l)
{
    if (!head_ends(w, l)) {
        w.part++;
        return;
    }
    w.part = 0;
    w.heads++;
    if (++w.in_group < group_of(l)) return;
    w.in_group = 0;
    w.chunks++;
    w.item += gridDim.x;
    find_chunk(w, l);
}

/* ---- loads ---- */

DEVICE void copy4(float *to, const float *from, int there)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(there ? 4 : 0) : "memory");
}
DEVICE void load_keys(local_shared *s, const rule_launch &l, const local_place &w)
{
    const int64_t at = w.p.begin * l.a.stride + (int64_t)w.key_head * l.a.key_dim;
    const int64_t key_at = ((int64_t)w.tile * l.a.key_heads + w.key_head) * CHUNK;
    local_keys *to = &s->keys[w.chunks % 2];
    load_swizzled<THREADS, CHUNK, KEYS>(to->k, (const bf16 *)l.a.k + at, l.a.stride, w.p.length, l.a.key_dim);
    load_swizzled<THREADS, CHUNK, KEYS>(to->q, (const bf16 *)l.a.q + at, l.a.stride, w.p.length, l.a.key_dim);
    load_floats(s->scales[w.chunks % 2].k, l.k_scale + key_at, CHUNK, 0);
    load_floats(s->scales[w.chunks % 2].q, l.q_scale + key_at, CHUNK, 16);
}
DEVICE void load_gates(local_gates *to, const rule_launch &l, const local_place &w)
{
    const int64_t at = ((int64_t)w.tile * l.a.value_heads + head_of(w, l)) * CHUNK;
    const int row = threadIdx.x % CHUNK, there = row < w.p.length;
    const int64_t gate = w.p.begin * l.a.gate_stride + head_of(w, l) + row * l.a.gate_stride;
    if (threadIdx.x < CHUNK) copy4(to->g + row, (const float *)l.a.g + gate, there);
    else if (threadIdx.x < 2 * CHUNK) copy4(to->beta + row, (const float *)l.a.beta + gate, there);
    load_floats(to->decay, l.decay + at, CHUNK, 2 * CHUNK);
    load_floats(to->rest, l.rest + at, CHUNK, 2 * CHUNK + 16);
}
/* What the step at w needs that the one before it did not, as one group of copies. */
DEVICE void load_step(local_shared *s, local_stage *to, const rule_launch &l, const local_place &w)
{
    if (!walk_ended(w, l)) {
        const int head = head_of(w, l), first = w.part * VALUES;
        const int columns = l.a.value_dim - first < VALUES ? l.a.value_dim - first : VALUES;
        const int64_t at = (int64_t)w.tile * l.a.value_heads + head, value = (int64_t)head * l.a.value_dim + first;
        const int64_t state = (int64_t)l.a.key_dim * l.a.value_dim;
        int fast;
        const bf16 *from = state_before<bf16>(l, w.tile, w.p, head, first, fast);
        if (!w.part && !w.in_group) load_keys(s, l, w);
        if (!w.part) load_gates(&s->gates[w.heads % 2], l, w);
        load_swizzled<THREADS, CHUNK, VALUES>(to->dout, (const bf16 *)l.b.dout + w.p.begin * l.a.out_stride + value,
                                              l.a.out_stride, w.p.length, columns);
        load_swizzled<THREADS, CHUNK, VALUES>(to->dv, (const bf16 *)l.b.dv + w.p.begin * l.b.dstride + value,
                                              l.b.dstride, w.p.length, columns);
        load_swizzled<THREADS, CHUNK, VALUES>(to->x, (const bf16 *)l.x + at * CHUNK * l.a.value_dim + first,
                                              l.a.value_dim, CHUNK, columns);
        load_swizzled<THREADS, KEYS, VALUES>(to->state, from, l.a.value_dim, from ? l.a.key_dim : 0, columns);
        load_swizzled<THREADS, KEYS, VALUES>(to->dstate, (const bf16 *)l.dstate + at * state + first, l.a.value_dim,
                                             l.a.key_dim, columns);
    }
    copies_commit();
}

#if ST_CUDA_HAS_WGMMA
/* ---- what a warpgroup has ---- */

DEVICE int group_index() { return threadIdx.x / 128; }
DEVICE int row_of() { return warp_of() % 4 * 16 + lane_of() / 4; } /* and the one 8 below */

typedef float block64[8][4]; /* (64, 64) of the warpgroup; the key columns are its half of them */
struct head_sums {
    block64 square, query, read, write; /* F or E; dq~; the two parts of dk~ */
    float along;                        /* this thread's share of <dS', S> */
};

/* c (+)= a b over 64 of K. */
template <int A, int B>
DEVICE void multiply64(block64 &c, const bf16 *a, const bf16 *b, int b_rows, int first, int sum)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        st_wgmma<A, B>(c, st_wgmma_tile<A>(a, 64, 0, k), st_wgmma_tile<B>(b, b_rows, first, k), k ? 1 : sum);
}
DEVICE void scale_rows(block64 &c, float upper, float lower)
{
#pragma unroll
    for (int i = 0; i < 32; i++) c[i / 4][i % 4] *= i % 4 < 2 ? upper : lower;
}
/* Of two rows, the products with those of a tile of all key columns; every lane of four gets them. */
DEVICE void dot_rows(float (&sum)[2], const block64 &c, const bf16 *tile)
{
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float2 x = get2(tile + st_tile_at(CHUNK, row_of() + 8 * half, HALF * group_index() + 8 * n + fragment_column()));
            sum[half] += c[n][2 * half] * x.x + c[n][2 * half + 1] * x.y;
        }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
        sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
    }
}
DEVICE void put_dots(float *to, const block64 &c, const bf16 *tile)
{
    float sum[2];
    dot_rows(sum, c, tile);
    if (lane_of() % 4 == 0) {
        to[row_of()] = sum[0];
        to[row_of() + 8] = sum[1];
    }
}

/* ---- one value head ---- */

/* The products over 64 value columns, and the share of <dS', S> while they run. */
DEVICE void sum_values(head_sums &h, const local_stage *now, int sum)
{
    const int group = group_index(), first = HALF * group;
    st_wgmma_begin();
    multiply64<ST_COLUMNS_ARE_K, ST_COLUMNS_ARE_K>(h.square, group ? now->dv : now->dout, now->x, CHUNK, 0, sum);
    multiply64<ST_COLUMNS_ARE_K, ST_COLUMNS_ARE_K>(h.query, now->dout, now->state, KEYS, first, sum);
    multiply64<ST_COLUMNS_ARE_K, ST_COLUMNS_ARE_K>(h.read, now->dv, now->state, KEYS, first, sum);
    multiply64<ST_COLUMNS_ARE_K, ST_COLUMNS_ARE_K>(h.write, now->x, now->dstate, KEYS, first, sum);
    st_wgmma_commit();
    if (!sum) h.along = 0;
#pragma unroll
    for (int i = 0; i < KEYS * VALUES / 8 / THREADS; i++) { /* both tiles are swizzled alike */
        const uint4 a = ((const uint4 *)now->state)[i * THREADS + threadIdx.x];
        const uint4 b = ((const uint4 *)now->dstate)[i * THREADS + threadIdx.x];
        const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            h.along += __uint_as_float(x[j] << 16) * __uint_as_float(y[j] << 16);
            h.along += __uint_as_float(x[j] & 0xffff0000u) * __uint_as_float(y[j] & 0xffff0000u);
        }
    }
}
DEVICE void values_summed(head_sums &h)
{
    st_wgmma_wait<0>();
    st_wgmma_touch<64>(h.square);
    st_wgmma_touch<64>(h.query);
    st_wgmma_touch<64>(h.read);
    st_wgmma_touch<64>(h.write);
}

/* dP from F in the first warpgroup; in the second T from E, and dbeta from E's diagonal. */
DEVICE void square_gradients(local_shared *s, const rule_launch &l, const local_place &w, const block64 &square)
{
    const local_gates *gates = &s->gates[w.heads % 2];
    const local_scales *scales = &s->scales[w.chunks % 2];
    const int of_keys = group_index(), first = warp_of() % 4 * 16;
    bf16 *to = of_keys ? s->lower : s->dmix;
    float *dbeta = (float *)l.b.dbeta + w.p.begin * l.b.dgate_stride + head_of(w, l);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = row_of() + 8 * half, c = 8 * n + fragment_column();
            const float scale = of_keys ? -scales->k[r] : scales->q[r];
            float v[2] = {0, 0};
            if (8 * n < first + 16) /* the warp's rows reach the diagonal */
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const float old = square[n][2 * half + j];
                    if (r >= c + j + of_keys) v[j] = old * decay_between(s->sums, r, c + j) * scales->k[c + j] * scale;
                    if (of_keys && r == c + j && r < w.p.length) {
                        bf16 kept; /* as A's diagonal has it */
                        st_from_f32(&kept, fmaxf(gates->beta[r], BETA_LEAST));
                        const float beta = st_to_f32(kept);
                        dbeta[r * l.b.dgate_stride] = old / (beta * beta);
                    }
                }
            put2(to + st_tile_at(CHUNK, r, c), v[0], v[1]);
        }
}
/* The head's sums become its gradients. */
DEVICE void head_gradients(local_shared *s, const rule_launch &l, const local_place &w, head_sums &h)
{
    const local_gates *gates = &s->gates[w.heads % 2];
    const local_scales *scales = &s->scales[w.chunks % 2];
    const local_keys *keys = &s->keys[w.chunks % 2];
    const int group = group_index(), first = HALF * group, r = row_of();
    square_gradients(s, l, w, h.square);
    st_wgmma_tiles_written();
    scale_rows(h.query, gates->decay[r] * scales->q[r], gates->decay[r + 8] * scales->q[r + 8]);
    scale_rows(h.read, -gates->decay[r] * scales->k[r], -gates->decay[r + 8] * scales->k[r + 8]);
    scale_rows(h.write, gates->rest[r] * scales->k[r], gates->rest[r + 8] * scales->k[r + 8]);
    put_dots(s->dots[DOT_KEPT][group], h.write, keys->k);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) h.along += __shfl_xor_sync(0xffffffffu, h.along, step);
    if (lane_of() == 0) s->along[warp_of()] = h.along;
    __syncthreads(); /* dP and T are whole */

    st_wgmma_begin();
    multiply64<ST_COLUMNS_ARE_K, ST_ROWS_ARE_K>(h.query, s->dmix, keys->k, CHUNK, first, 1);
    multiply64<ST_COLUMNS_ARE_K, ST_ROWS_ARE_K>(h.read, s->lower, keys->k, CHUNK, first, 1);
    multiply64<ST_ROWS_ARE_K, ST_ROWS_ARE_K>(h.write, s->dmix, keys->q, CHUNK, first, 1);
    multiply64<ST_ROWS_ARE_K, ST_ROWS_ARE_K>(h.write, s->lower, keys->k, CHUNK, first, 1);
    st_wgmma_commit();
    values_summed(h);
    put_dots(s->dots[DOT_Q][group], h.query, keys->q);
    put_dots(s->dots[DOT_READ][group], h.read, keys->k);
    put_dots(s->dots[DOT_WRITE][group], h.write, keys->k);
}
/* dg of the head at w from the dots: by one warp, two rows a lane. */
DEVICE void write_decays(local_shared *s, const rule_launch &l, const local_place &w)
{
    const int lane = lane_of();
    double d[2], kept = 0, along = 0, sum;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int r = 2 * lane + j;
        d[j] = 0;
        for (int part = 0; part < GROUPS; part++) {
            d[j] += (double)s->dots[DOT_Q][part][r] + s->dots[DOT_READ][part][r] - s->dots[DOT_WRITE][part][r];
            kept += s->dots[DOT_KEPT][part][r];
        }
    }
    for (int step = 1; step < 32; step *= 2) kept += __shfl_xor_sync(0xffffffffu, kept, step);
    for (int i = 0; i < WARPS; i++) along += s->along[i];
    if (lane == 31) d[1] += kept + s->gates[w.heads % 2].decay[CHUNK - 1] * along;
    sum = d[0] + d[1];
    for (int step = 1; step < 32; step *= 2) {
        const double behind = __shfl_down_sync(0xffffffffu, sum, step);
        if (lane + step < 32) sum += behind;
    }
    float *dg = (float *)l.b.dg + w.p.begin * l.b.dgate_stride + head_of(w, l);
    if (2 * lane < w.p.length) dg[2 * lane * l.b.dgate_stride] = (float)sum;
    if (2 * lane + 1 < w.p.length) dg[(2 * lane + 1) * l.b.dgate_stride] = (float)(sum - d[0]);
}

/* ---- the group's sums ---- */

/* Through the l2 norm: dx = dx~ - x |x|^-2 (x.dx~), with |x|^-2 = scale^2 factor; in the place of x. */
DEVICE void through_norm(bf16 *raw, const block64 &d, const float (*dots)[CHUNK], const float *scale, float factor)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = row_of() + 8 * half;
        const float along = (dots[0][r] + dots[1][r]) * scale[r] * scale[r] * factor;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            bf16 *x = raw + st_tile_at(CHUNK, r, HALF * group_index() + 8 * n + fragment_column());
            const float2 old = get2(x);
            put2(x, d[n][2 * half] - along * old.x, d[n][2 * half + 1] - along * old.y);
        }
    }
}
DEVICE void store_keys(bf16 *to, const bf16 *tile, int64_t stride, int rows, int columns)
{
    const int pieces = KEYS / 8, c = threadIdx.x % pieces * 8;
    if (c >= columns) return;
#pragma unroll
    for (int r = threadIdx.x / pieces; r < CHUNK; r += THREADS / pieces)
        if (r < rows) *(uint4 *)(to + r * stride + c) = *(const uint4 *)(tile + st_tile_at(CHUNK, r, c));
}
DEVICE void write_keys(local_shared *s, const rule_launch &l, const local_place &w, const block64 &dq, const block64 &dk)
{
    local_keys *keys = &s->keys[w.chunks % 2];
    const local_scales *scales = &s->scales[w.chunks % 2];
    const int64_t to = w.p.begin * l.b.dstride + (int64_t)w.key_head * l.a.key_dim;
    put_dots(s->norms[0][group_index()], dq, keys->q);
    put_dots(s->norms[1][group_index()], dk, keys->k);
    __syncthreads();
    through_norm(keys->q, dq, s->norms[0], scales->q, (float)l.a.key_dim);
    through_norm(keys->k, dk, s->norms[1], scales->k, 1.0f);
    __syncthreads();
    store_keys((bf16 *)l.b.dq + to, keys->q, l.b.dstride, w.p.length, l.a.key_dim);
    store_keys((bf16 *)l.b.dk + to, keys->k, l.b.dstride, w.p.length, l.a.key_dim);
}
DEVICE void add(block64 &sum, const block64 &c, int first)
{
#pragma unroll
    for (int i = 0; i < 32; i++) sum[i / 4][i % 4] = first ? c[i / 4][i % 4] : sum[i / 4][i % 4] + c[i / 4][i % 4];
}
#endif

static __global__ void __launch_bounds__(THREADS, 1) local(const rule_launch l)
{
#if ST_CUDA_HAS_WGMMA
    extern __shared__ __align__(ST_TILE_ALIGN) unsigned char shared[];
    local_shared *s = (local_shared *)shared;
    local_place here = {}, ahead, last;
    head_sums h;
    block64 dq, dk;
    bool owed = false; /* the decays of the head at `last` */
    here.item = blockIdx.x;
    find_chunk(here, l);
    ahead = here;
    for (int i = 0; i < STAGES; i++) {
        load_step(s, &s->stage[i], l, ahead);
        if (!walk_ended(ahead, l)) step_on(ahead, l);
    }
    for (int step = 0; !walk_ended(here, l); step++) {
        local_stage *now = &s->stage[step % STAGES];
        copies_wait<STAGES - 1>();
        st_wgmma_tiles_written();
        __syncthreads(); /* this step's copies are whole; the dots of the last head are, too */
        sum_values(h, now, here.part);
        if (!here.part) {
            if (warp_of() == 0 && owed) write_decays(s, l, last);
            if (warp_of() == SUMS_WARP) sum_decays(s->sums, s->gates[here.heads % 2].g, 1, here.p.length);
            owed = false;
        }
        values_summed(h);
        __syncthreads(); /* the stage and what the last head left are used up */
        load_step(s, now, l, ahead);
        if (!walk_ended(ahead, l)) step_on(ahead, l);
        if (head_ends(here, l)) {
            head_gradients(s, l, here, h);
            add(dq, h.query, !here.in_group);
            add(dk, h.read, !here.in_group);
            add(dk, h.write, 0);
            if (here.in_group + 1 == group_of(l)) write_keys(s, l, here, dq, dk);
            last = here;
            owed = true;
        }
        step_on(here, l);
    }
    __syncthreads();
    if (warp_of() == 0 && owed) write_decays(s, l, last);
#endif
}

int gdn_rule_local_wgmma(const st_queue *q, const rule_launch *l)
{
    int device = 0, processors = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    const int64_t items = l->a.row.n_tiles * l->a.key_heads;
    const dim3 grid((unsigned)(items < processors ? items : processors));
    return rule_start(q, "gdn_rule_local", local, grid, THREADS, sizeof(local_shared), *l);
}
