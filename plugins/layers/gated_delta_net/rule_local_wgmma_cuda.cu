/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_local_wgmma_cuda.cu - rule_local_cuda.cu for Hopper's warpgroup products. A block stays on its SM
 * and walks over chunks and key heads, so that memory streams: while 64 value columns of a head are worked on, the next
 * ones arrive, of the next head or chunk where this one ends. Both warpgroups do the same for half of the key columns;
 * beside that the first has F and dP, the second E and T. What is summed over a group stays in registers. */
#include "rule_cuda.h"

enum { THREADS = 256, WARPS = THREADS / 32, GROUPS = 2, KEYS = 128, VALUES = 64, STAGES = 2, HALF = KEYS / GROUPS };
enum { WALK_WARP = 1, SUMS_WARP = 4 }; /* warp 0 writes the gates' gradients, these find the next place, sum decays */
enum { PLACES = 4 };                   /* of the step before this one to the second behind it */
enum { BETWEEN = CHUNK + 8 };          /* a row of `between`: 8 rows lie on all banks */

struct local_stage {
    bf16 state[KEYS * VALUES], dstate[KEYS * VALUES];
    bf16 dout[CHUNK * VALUES], dv[CHUNK * VALUES], x[CHUNK * VALUES];
};
struct local_keys {
    bf16 k[CHUNK * KEYS], q[CHUNK * KEYS];
};
struct local_gates {
    float g[CHUNK], beta[CHUNK], decay[CHUNK], rest[CHUNK];
};
struct local_scales {
    float k[CHUNK], q[CHUNK];
};
struct local_place { /* a part of the value columns of one head of the group of one chunk and key head */
    chunk_place p;
    int item, tile, key_head, head, in_group, part;
    int chunks, heads; /* how many came before, which says where its keys and gates are */
};
struct local_shared {
    local_stage stage[STAGES];
    local_keys keys[2];               /* of this chunk and the next */
    bf16 dmix[MATRIX], lower[MATRIX]; /* dP and T, times rows' factors; zero where a warp's rows do not reach */
    float between[CHUNK * BETWEEN];   /* D times the keys' factors of columns */
    local_gates gates[2];             /* of this head and the next */
    local_scales scales[2];
    float2 sums[CHUNK]; /* of decays: a float and what it lacks */
    local_place place[PLACES];
    float dots[GROUPS][CHUNK], norms[2][GROUPS][CHUNK], diagonal[CHUNK], last[WARPS];
};

/* ---- the walk ---- */

struct local_sizes {
    int items, group;
};
#if ST_CUDA_HAS_WGMMA
/* From w.item on, the first chunk that has tokens. */
DEVICE void find_chunk(local_place &w, const rule_launch &l, const local_sizes &z)
{
    for (; w.item < z.items; w.item += gridDim.x) {
        w.tile = w.item / l.a.key_heads;
        w.key_head = w.item - w.tile * l.a.key_heads;
        w.head = w.key_head * z.group;
        w.p = place_of(l.a.row, w.tile);
        if (w.p.length > 0) return;
    }
}
DEVICE bool head_ends(const local_place &w, const rule_launch &l) { return (w.part + 1) * VALUES >= l.a.value_dim; }
DEVICE void step_on(local_place &w, const rule_launch &l, const local_sizes &z)
{
    if (!head_ends(w, l)) {
        w.part++;
        return;
    }
    w.part = 0;
    w.heads++;
    w.head++;
    if (++w.in_group < z.group) return;
    w.in_group = 0;
    w.chunks++;
    w.item += gridDim.x;
    find_chunk(w, l, z);
}

DEVICE void first_place(local_place &w, const rule_launch &l, const local_sizes &z)
{
    w.item = blockIdx.x;
    w.in_group = w.part = w.chunks = w.heads = 0;
    find_chunk(w, l, z);
}
DEVICE void next_place(local_place *places, int step, const rule_launch &l, const local_sizes &z)
{
    local_place w = places[(step - 1) % PLACES];
    step_on(w, l, z);
    places[step % PLACES] = w;
}

/* ---- loads ---- */

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
    const int64_t at = ((int64_t)w.tile * l.a.value_heads + w.head) * CHUNK;
    const int row = threadIdx.x % CHUNK, there = row < w.p.length;
    const int64_t gate = w.p.begin * l.a.gate_stride + w.head + row * l.a.gate_stride;
    if (threadIdx.x < CHUNK) st_copy4(to->g + row, (const float *)l.a.g + gate, there ? 4 : 0);
    else if (threadIdx.x < 2 * CHUNK) st_copy4(to->beta + row, (const float *)l.a.beta + gate, there ? 4 : 0);
    load_floats(to->decay, l.decay + at, CHUNK, 2 * CHUNK);
    load_floats(to->rest, l.rest + at, CHUNK, 2 * CHUNK + 16);
}
/* What the step at w needs that the one before it did not, as one group of copies. */
DEVICE void load_step(local_shared *s, local_stage *to, const rule_launch &l, const local_place &w,
                      const local_sizes &z)
{
    if (w.item < z.items) {
        const int head = w.head, first = w.part * VALUES;
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
    st_copies_commit();
}

/* ---- what a warpgroup has ---- */

DEVICE int group_index()
{
    return __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
} /* the same for all of a warp */
DEVICE int row_of() { return warp_of() % 4 * 16 + lane_of() / 4; } /* and the one 8 below */

typedef float block64[8][4]; /* (64, 64) of the warpgroup; the key columns are its half of them */
struct head_sums {
    block64 square, query, read, write; /* F or E; dq~; the two parts of dk~ */
    float along;                        /* this thread's share of <dS', S> */
};

/* c (+)= a b over 64 of K. */
template <int A, int B> DEVICE void multiply64(block64 &c, const bf16 *a, const bf16 *b, int b_rows, int first, int sum)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        st_wgmma<A, B>(c, st_wgmma_tile<A>(a, 64, 0, k), st_wgmma_tile<B>(b, b_rows, first, k), k ? 1 : sum);
}
DEVICE void clear(block64 &c)
{
#pragma unroll
    for (int i = 0; i < 32; i++) c[i / 4][i % 4] = 0;
}
DEVICE void scale_rows(block64 &c, float upper, float lower)
{
#pragma unroll
    for (int i = 0; i < 32; i++) c[i / 4][i % 4] *= i % 4 < 2 ? upper : lower;
}
/* Two neighbours of a tile of keys, where c[n][2 half] and the next are. */
DEVICE const bf16 *key_at(const bf16 *tile, int group, int n, int half)
{
    return tile + st_tile_at(CHUNK, row_of() + 8 * half, HALF * group + 8 * n + fragment_column());
}
/* sum += the products of two rows with those of a tile, this thread's share. */
DEVICE void dot_rows(float (&sum)[2], const block64 &c, const bf16 *tile, int group)
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float2 x = get2(key_at(tile, group, n, half));
            sum[half] += c[n][2 * half] * x.x + c[n][2 * half + 1] * x.y;
        }
}
DEVICE void put_rows(float *to, float (&sum)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
        sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
        if (lane_of() % 4 == 0) to[row_of() + 8 * half] = sum[half];
    }
}

/* ---- one value head ---- */

/* The products over 64 value columns, under way. */
DEVICE void sum_values(head_sums &h, const local_stage *now, int group, int sum)
{
    const int first = HALF * group;
    st_wgmma_begin();
    multiply64<ST_COLUMNS_ARE_K, ST_COLUMNS_ARE_K>(h.square, group ? now->dv : now->dout, now->x, CHUNK, 0, sum);
    multiply64<ST_COLUMNS_ARE_K, ST_COLUMNS_ARE_K>(h.query, now->dout, now->state, KEYS, first, sum);
    multiply64<ST_COLUMNS_ARE_K, ST_COLUMNS_ARE_K>(h.read, now->dv, now->state, KEYS, first, sum);
    multiply64<ST_COLUMNS_ARE_K, ST_COLUMNS_ARE_K>(h.write, now->x, now->dstate, KEYS, first, sum);
    st_wgmma_commit();
}
DEVICE void sums_there(head_sums &h)
{
    st_wgmma_wait<0>();
    st_wgmma_touch<64>(h.square);
    st_wgmma_touch<64>(h.query);
    st_wgmma_touch<64>(h.read);
    st_wgmma_touch<64>(h.write);
}
/* This thread's share of <dS', S>; both tiles are swizzled alike. */
DEVICE float states_along(const local_stage *now)
{
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < KEYS * VALUES / 8 / THREADS; i++) {
        const uint4 a = ((const uint4 *)now->state)[i * THREADS + threadIdx.x];
        const uint4 b = ((const uint4 *)now->dstate)[i * THREADS + threadIdx.x];
        const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            sum += __uint_as_float(x[j] << 16) * __uint_as_float(y[j] << 16);
            sum += __uint_as_float(x[j] & 0xffff0000u) * __uint_as_float(y[j] & 0xffff0000u);
        }
    }
    return sum;
}
/* Running sums of decays, by one warp. */
DEVICE void split_decays(local_shared *s, const local_place &w)
{
    const int lane = lane_of();
    const float *g = s->gates[w.heads % 2].g; /* zeros behind the segment's end */
    const double first = g[2 * lane], second = g[2 * lane + 1];
    double sum = first + second;
    for (int step = 1; step < 32; step *= 2) {
        const double below = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += below;
    }
    const double before = sum - second;
    s->sums[2 * lane] = make_float2((float)before, (float)(before - (float)before));
    s->sums[2 * lane + 1] = make_float2((float)sum, (float)(sum - (float)sum));
}
/* D of a warp's 8 rows. */
DEVICE void fill_between(local_shared *s, const local_place &w)
{
    const float *scale = s->scales[w.chunks % 2].k;
    const int r = 8 * warp_of() + lane_of() / 4;
    const float2 row = s->sums[r];
#pragma unroll 1
    for (int n = 0; n <= warp_of(); n++) {
        float v[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int c = 8 * n + fragment_column() + j;
            const float2 column = s->sums[c];
            v[j] = r >= c ? __expf((row.x - column.x) + (row.y - column.y)) * scale[c] : 0;
        }
        put2(s->between + r * BETWEEN + 8 * n + fragment_column(), v[0], v[1]);
    }
}

/* dP from F in the first warpgroup; in the second T from E, and E's diagonal. */
DEVICE void square_gradients(local_shared *s, const local_place &w, int group, const block64 &square)
{
    const local_scales *scales = &s->scales[w.chunks % 2];
    bf16 *to = group ? s->lower : s->dmix;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = row_of() + 8 * half;
        const float scale = group ? -scales->k[r] : scales->q[r];
#pragma unroll
        for (int n = 0; n < 8; n++)
            if (8 * n < warp_of() % 4 * 16 + 16) { /* the warp's rows reach the diagonal */
                const int c = 8 * n + fragment_column();
                const float2 d = get2(s->between + r * BETWEEN + c);
                const float x = square[n][2 * half], y = square[n][2 * half + 1];
                if (group && r == c) s->diagonal[r] = x;
                if (group && r == c + 1) s->diagonal[r] = y;
                put2(to + st_tile_at(CHUNK, r, c), group && r == c ? 0 : x * d.x * scale,
                     group && r == c + 1 ? 0 : y * d.y * scale);
            }
    }
}
/* The head's sums become its gradients. */
DEVICE void head_gradients(local_shared *s, const local_place &w, int group, head_sums &h)
{
    const local_gates *gates = &s->gates[w.heads % 2];
    const local_scales *scales = &s->scales[w.chunks % 2];
    const local_keys *keys = &s->keys[w.chunks % 2];
    const int first = HALF * group, r = row_of();
    float dot[2] = {0, 0};
    square_gradients(s, w, group, h.square);
    st_wgmma_tiles_written();
    scale_rows(h.query, gates->decay[r] * scales->q[r], gates->decay[r + 8] * scales->q[r + 8]);
    scale_rows(h.read, -gates->decay[r] * scales->k[r], -gates->decay[r + 8] * scales->k[r + 8]);
    scale_rows(h.write, gates->rest[r] * scales->k[r], gates->rest[r + 8] * scales->k[r + 8]);
    dot_rows(dot, h.write, keys->k, group);
    __syncthreads(); /* dP and T are whole */

    st_wgmma_begin();
    multiply64<ST_COLUMNS_ARE_K, ST_ROWS_ARE_K>(h.query, s->dmix, keys->k, CHUNK, first, 1);
    multiply64<ST_COLUMNS_ARE_K, ST_ROWS_ARE_K>(h.read, s->lower, keys->k, CHUNK, first, 1);
    multiply64<ST_ROWS_ARE_K, ST_ROWS_ARE_K>(h.write, s->dmix, keys->q, CHUNK, first, 1);
    multiply64<ST_ROWS_ARE_K, ST_ROWS_ARE_K>(h.write, s->lower, keys->k, CHUNK, first, 1);
    st_wgmma_commit();
    float last = dot[0] + dot[1] + gates->decay[CHUNK - 1] * h.along; /* all of this goes to dG_last */
#pragma unroll
    for (int step = 16; step > 0; step /= 2) last += __shfl_xor_sync(0xffffffffu, last, step);
    if (lane_of() == 0) s->last[warp_of()] = last;
    sums_there(h);
}
/* The head's gradients to the group's, and their dots with keys and queries, which are dG but for the last one's more. */
DEVICE void add_head(local_shared *s, const local_place &w, int group, const head_sums &h, block64 &dq, block64 &dk)
{
    const local_keys *keys = &s->keys[w.chunks % 2];
    float dot[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float2 q = get2(key_at(keys->q, group, n, half)), k = get2(key_at(keys->k, group, n, half));
            const float x[2] = {q.x, q.y}, y[2] = {k.x, k.y};
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int i = 2 * half + j;
                const float query = h.query[n][i], read = h.read[n][i], write = h.write[n][i];
                dot[half] += query * x[j] + (read - write) * y[j];
                dq[n][i] += query;
                dk[n][i] += read + write;
            }
        }
    put_rows(s->dots[group], dot);
}
/* dbeta and dg of the head at w: by one warp, two rows a lane. */
DEVICE void write_gates(const local_shared *s, const rule_launch &l, const local_place &w)
{
    const int lane = lane_of();
    const int64_t to = w.p.begin * l.b.dgate_stride + w.head;
    float *dbeta = (float *)l.b.dbeta + to, *dg = (float *)l.b.dg + to;
    double d[2], last = 0, sum;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int r = 2 * lane + j;
        bf16 kept; /* as A's diagonal has it */
        st_from_f32(&kept, fmaxf(s->gates[w.heads % 2].beta[r], BETA_LEAST));
        const float beta = st_to_f32(kept);
        if (r < w.p.length) dbeta[r * l.b.dgate_stride] = s->diagonal[r] / (beta * beta);
        d[j] = (double)s->dots[0][r] + s->dots[1][r];
    }
    for (int i = 0; i < WARPS; i++) last += s->last[i];
    if (lane == 31) d[1] += last;
    sum = d[0] + d[1];
    for (int step = 1; step < 32; step *= 2) {
        const double behind = __shfl_down_sync(0xffffffffu, sum, step);
        if (lane + step < 32) sum += behind;
    }
    if (2 * lane < w.p.length) dg[2 * lane * l.b.dgate_stride] = (float)sum;
    if (2 * lane + 1 < w.p.length) dg[(2 * lane + 1) * l.b.dgate_stride] = (float)(sum - d[0]);
}

/* ---- the group's sums ---- */

/* Through the l2 norm: dx = dx~ - x |x|^-2 (x.dx~), with |x|^-2 = scale^2 factor; in the place of x. */
DEVICE void through_norm(bf16 *raw, const block64 &d, int group, const float (*dots)[CHUNK], const float *scale,
                         float factor)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = row_of() + 8 * half;
        const float along = (dots[0][r] + dots[1][r]) * scale[r] * scale[r] * factor;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            bf16 *x = (bf16 *)key_at(raw, group, n, half);
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
DEVICE void write_keys(local_shared *s, const rule_launch &l, const local_place &w, int group, const block64 &dq,
                       const block64 &dk)
{
    local_keys *keys = &s->keys[w.chunks % 2];
    const local_scales *scales = &s->scales[w.chunks % 2];
    const int64_t to = w.p.begin * l.b.dstride + (int64_t)w.key_head * l.a.key_dim;
    float q_dot[2] = {0, 0}, k_dot[2] = {0, 0};
    dot_rows(q_dot, dq, keys->q, group);
    dot_rows(k_dot, dk, keys->k, group);
    put_rows(s->norms[0][group], q_dot);
    put_rows(s->norms[1][group], k_dot);
    __syncthreads();
    through_norm(keys->q, dq, group, s->norms[0], scales->q, (float)l.a.key_dim);
    through_norm(keys->k, dk, group, s->norms[1], scales->k, 1.0f);
    __syncthreads();
    store_keys((bf16 *)l.b.dq + to, keys->q, l.b.dstride, w.p.length, l.a.key_dim);
    store_keys((bf16 *)l.b.dk + to, keys->k, l.b.dstride, w.p.length, l.a.key_dim);
}
/* Zeros where no warp ever writes. */
DEVICE void clear_squares(local_shared *s)
{
    for (int i = threadIdx.x; i < MATRIX / 2; i += THREADS) {
        put2(s->dmix + 2 * i, 0, 0);
        put2(s->lower + 2 * i, 0, 0);
    }
    for (int i = threadIdx.x; i < CHUNK * BETWEEN; i += THREADS) s->between[i] = 0;
}
#endif

static __global__ void __launch_bounds__(THREADS, 1) local(const rule_launch l)
{
#if ST_CUDA_HAS_WGMMA
    extern __shared__ __align__(ST_TILE_ALIGN) unsigned char shared[];
    local_shared *s = (local_shared *)shared;
    const local_sizes z = {(int)l.a.row.n_tiles * l.a.key_heads, l.a.value_heads / l.a.key_heads};
    const int group = group_index();
    head_sums h;
    block64 dq, dk;
    int step = 0;
    clear(dq);
    clear(dk);
    clear_squares(s);
    if (threadIdx.x == 0) {
        first_place(s->place[0], l, z);
        for (int i = 1; i < STAGES; i++) next_place(s->place, i, l, z);
    }
    __syncthreads();
    for (int i = 0; i < STAGES; i++) load_step(s, &s->stage[i], l, s->place[i], z);
    for (; s->place[step % PLACES].item < z.items; step++) {
        const local_place &here = s->place[step % PLACES];
        local_stage *now = &s->stage[step % STAGES];
        const bool begins = !here.part, ends = head_ends(here, l);
        st_copies_wait<STAGES - 1>();
        st_wgmma_tiles_written();
        __syncthreads(); /* this step's copies are whole, and what the last head left for the gates */
        sum_values(h, now, group, !begins);
        h.along = states_along(now) + (begins ? 0 : h.along);
        if (begins && step && warp_of() == 0) write_gates(s, l, s->place[(step - 1) % PLACES]);
        if (begins && warp_of() == SUMS_WARP) split_decays(s, here);
        if (threadIdx.x == 32 * WALK_WARP) next_place(s->place, step + STAGES, l, z);
        if (ends) fill_between(s, here);
        sums_there(h);
        __syncthreads(); /* the stage is used up; D and the next place are whole */
        load_step(s, now, l, s->place[(step + STAGES) % PLACES], z);
        if (ends) {
            head_gradients(s, here, group, h);
            add_head(s, here, group, h, dq, dk);
            if (here.in_group + 1 == z.group) {
                write_keys(s, l, here, group, dq, dk);
                clear(dq);
                clear(dk);
            }
        }
    }
    __syncthreads();
    if (step && warp_of() == 0) write_gates(s, l, s->place[(step - 1) % PLACES]);
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
