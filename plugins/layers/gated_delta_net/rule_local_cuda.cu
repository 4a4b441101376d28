/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_local_cuda.cu - the gradients of a chunk once the states around it and their gradients are
 * known: dQ, dK, dbeta, dg. A block is one chunk and key head; the value heads that share it are summed in f32, in
 * their order. Gradients of keys and queries are taken times the rows' factors (dq~ = q_scale dQ), so that products and
 * dots need only raw rows: q.dq~ of raw rows is Q.dQ of normed ones. */
#include "rule_cuda.h"

enum { THREADS = 512, WARPS = THREADS / 32, PARTS = 4 /* column groups of warps */ };
enum { DOT_Q, DOT_READ, DOT_WRITE, DOT_KEPT, DOTS };

template <typename T> struct local_width { static const int values = sizeof(T) == 2 ? 64 : 16; }; /* what fits */
template <typename T, int DK> struct local_shared {
    static const int narrow = CHUNK * padded_row<T>(local_width<T>::values);
    T k[CHUNK * padded_row<T>(DK)], q[CHUNK * padded_row<T>(DK)];
    T state[DK * padded_row<T>(local_width<T>::values)], dstate[DK * padded_row<T>(local_width<T>::values)];
    T dout[narrow], x[narrow], dv[narrow];
    T dmix[CHUNK * padded_row<T>(CHUNK)], lower[CHUNK * padded_row<T>(CHUNK)]; /* dP and T, times rows' factors */
    double sums[CHUNK];
    float beta[CHUNK], decay[CHUNK], rest[CHUNK], k_scale[CHUNK], q_scale[CHUNK];
    float dots[DOTS][PARTS][CHUNK], along[WARPS];
    /* dq~ and dk~ of the group: every thread's own fragments, which registers have no room for */
    float dq[CHUNK * DK], dk[CHUNK * DK];
};

/* What a warp has: 16 rows and a quarter of the columns, of (CHUNK, DK) and of (CHUNK, CHUNK). */
DEVICE int part_row() { return warp_of() % 4 * 16; }
DEVICE int part_of() { return warp_of() / 4; }
template <int DK> struct sums_of { typedef fragments<1, DK / PARTS / 8> type; };
template <int DK> struct head_sums { /* of one value head */
    typename sums_of<DK>::type query, read, write; /* dq~, and the two parts of dk~ */
    fragments<1, CHUNK / PARTS / 8> f, e;
    float along; /* this thread's share of <dS', S> */
};

/* Dot products of c's rows with those of `raw`, over this warp's columns. */
template <int N, typename T> DEVICE void dot_rows(float *to, const fragments<1, N> &c, const T *raw, int ld)
{
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        float sum = 0;
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float2 x = get2(raw + fragment_row(i) * ld + 8 * n + fragment_column());
            sum += c.v[0][n][i] * x.x + c.v[0][n][i + 1] * x.y;
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane_of() % 4 == 0) to[fragment_row(i)] = sum;
    }
}

template <typename T, int DK>
DEVICE void load_gates(local_shared<T, DK> *s, const rule_launch &l, const chunk_place &p, int64_t at, int head)
{
    const int64_t gate = p.begin * l.a.gate_stride + head;
    const int row = threadIdx.x % CHUNK, what = threadIdx.x / CHUNK;
    if (what == 0 && warp_of() == 0) sum_decays(s->sums, (const float *)l.a.g + gate, l.a.gate_stride, p.length);
    if (what == 1)
        s->beta[row] = row < p.length ? fmaxf(((const float *)l.a.beta)[gate + row * l.a.gate_stride], BETA_LEAST) : 1;
    if (what == 2) s->decay[row] = l.decay[at * CHUNK + row];
    if (what == 3) s->rest[row] = l.rest[at * CHUNK + row];
}
/* What products over the value columns give, a part of the columns at a time. */
template <typename T, int DK>
DEVICE void sum_values(local_shared<T, DK> *s, const rule_launch &l, const chunk_place &p, int64_t tile, int head,
                       head_sums<DK> &h)
{
    const int width = local_width<T>::values, ldv = padded_row<T>(width), row = part_row();
    const int column = part_of() * (DK / PARTS), of_square = part_of() * (CHUNK / PARTS);
    const int64_t at = tile * l.a.value_heads + head, state = (int64_t)l.a.key_dim * l.a.value_dim;
    const int packed = l.a.value_dim % pack<T>::n == 0;
    clear(h.query);
    clear(h.read);
    clear(h.write);
    clear(h.f);
    clear(h.e);
    h.along = 0;
    for (int first = 0; first < l.a.value_dim; first += width) {
        const int columns = l.a.value_dim - first < width ? l.a.value_dim - first : width;
        const int64_t value = (int64_t)head * l.a.value_dim + first;
        int from_fast;
        const T *from = state_before<T>(l, tile, p, head, first, from_fast);
        __syncthreads(); /* the last part is used up */
        load_tile<THREADS, DK, local_width<T>::values>(s->state, from, l.a.value_dim, from ? l.a.key_dim : 0, columns,
                                                       from_fast);
        load_tile<THREADS, DK, local_width<T>::values>(s->dstate, (const T *)l.dstate + at * state + first,
                                                       l.a.value_dim, l.a.key_dim, columns, packed);
        const T *dout = (const T *)l.b.dout + p.begin * l.a.out_stride + value;
        load_tile<THREADS, CHUNK, local_width<T>::values>(s->dout, dout, l.a.out_stride, p.length, columns,
                                                          l.fast.dout);
        load_tile<THREADS, CHUNK, local_width<T>::values>(s->dv, (const T *)l.b.dv + p.begin * l.b.dstride + value,
                                                          l.b.dstride, p.length, columns, l.fast.dv);
        load_tile<THREADS, CHUNK, local_width<T>::values>(s->x, (const T *)l.x + at * CHUNK * l.a.value_dim + first,
                                                          l.a.value_dim, CHUNK, columns, packed);
        st_copies_commit();
        st_copies_wait<0>();
        __syncthreads();
        if (of_square <= row) { /* below the diagonal */
            multiply<ROWS_ARE_M, ROWS_ARE_N>(h.f, s->dout + row * ldv, ldv, s->x + of_square * ldv, ldv, width);
            multiply<ROWS_ARE_M, ROWS_ARE_N>(h.e, s->dv + row * ldv, ldv, s->x + of_square * ldv, ldv, width);
        }
        multiply<ROWS_ARE_M, ROWS_ARE_N>(h.query, s->dout + row * ldv, ldv, s->state + column * ldv, ldv, width);
        multiply<ROWS_ARE_M, ROWS_ARE_N>(h.read, s->dv + row * ldv, ldv, s->state + column * ldv, ldv, width);
        multiply<ROWS_ARE_M, ROWS_ARE_N>(h.write, s->x + row * ldv, ldv, s->dstate + column * ldv, ldv, width);
#pragma unroll 1
        for (int i = threadIdx.x; i < DK * width / 2; i += THREADS) {
            const int here = i / (width / 2) * ldv + i % (width / 2) * 2;
            const float2 a = get2(s->state + here), b = get2(s->dstate + here);
            h.along += a.x * b.x + a.y * b.y;
        }
    }
}
/* dP and T from F and E, and dbeta from E's diagonal. */
template <typename T, int DK>
DEVICE void square_gradients(local_shared<T, DK> *s, const rule_launch &l, const chunk_place &p, int head,
                             const head_sums<DK> &h)
{
    const int ldc = padded_row<T>(CHUNK);
    float *dbeta = (float *)l.b.dbeta + p.begin * l.b.dgate_stride + head;
#pragma unroll
    for (int n = 0; n < CHUNK / PARTS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const int r = part_row() + fragment_row(i), c = part_of() * (CHUNK / PARTS) + 8 * n + fragment_column();
            float mix[2], low[2];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const float d = r >= c + j ? decay_between(s->sums, r, c + j) * s->k_scale[c + j] : 0;
                mix[j] = h.f.v[0][n][i + j] * d * s->q_scale[r];
                low[j] = r > c + j ? -h.e.v[0][n][i + j] * d * s->k_scale[r] : 0;
                if (r == c + j && r < p.length) {
                    T beta; /* as A's diagonal has it */
                    st_from_f32(&beta, s->beta[r]);
                    dbeta[r * l.b.dgate_stride] = h.e.v[0][n][i + j] / (st_to_f32(beta) * st_to_f32(beta));
                }
            }
            put2(s->dmix + r * ldc + c, mix[0], mix[1]);
            put2(s->lower + r * ldc + c, low[0], low[1]);
        }
}
/* dg from the dots: by one warp, two rows a lane. */
template <typename T, int DK>
DEVICE void write_decays(local_shared<T, DK> *s, const rule_launch &l, const chunk_place &p, int head)
{
    const int lane = lane_of();
    double d[2], kept = 0, along = 0, sum;
    for (int j = 0; j < 2; j++) {
        const int r = 2 * lane + j;
        d[j] = 0;
        for (int part = 0; part < PARTS; part++) {
            d[j] += (double)s->dots[DOT_Q][part][r] + s->dots[DOT_READ][part][r] - s->dots[DOT_WRITE][part][r];
            kept += s->dots[DOT_KEPT][part][r];
        }
    }
    for (int step = 1; step < 32; step *= 2) kept += __shfl_xor_sync(0xffffffffu, kept, step);
    for (int w = 0; w < WARPS; w++) along += s->along[w];
    if (lane == 31) d[1] += kept + s->decay[CHUNK - 1] * along;
    sum = d[0] + d[1];
    for (int step = 1; step < 32; step *= 2) {
        const double behind = __shfl_down_sync(0xffffffffu, sum, step);
        if (lane + step < 32) sum += behind;
    }
    float *dg = (float *)l.b.dg + p.begin * l.b.dgate_stride + head;
    if (2 * lane < p.length) dg[2 * lane * l.b.dgate_stride] = (float)sum;
    if (2 * lane + 1 < p.length) dg[(2 * lane + 1) * l.b.dgate_stride] = (float)(sum - d[0]);
}

template <typename T, int DK>
DEVICE void local_head(local_shared<T, DK> *s, const rule_launch &l, const chunk_place &p, int64_t tile, int head)
{
    const int ld = padded_row<T>(DK), ldc = padded_row<T>(CHUNK), row = part_row(), column = part_of() * (DK / PARTS);
    const T *k = s->k + column, *q = s->q + column, *k_row = k + row * ld, *q_row = q + row * ld;
    head_sums<DK> h;
    load_gates(s, l, p, tile * l.a.value_heads + head, head);
    sum_values(s, l, p, tile, head, h);
    square_gradients(s, l, p, head, h);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) h.along += __shfl_xor_sync(0xffffffffu, h.along, step);
    if (lane_of() == 0) s->along[warp_of()] = h.along;
    scale_rows(h.query, s->decay + row, s->q_scale + row, 1.0f);
    scale_rows(h.read, s->decay + row, s->k_scale + row, -1.0f);
    scale_rows(h.write, s->rest + row, s->k_scale + row, 1.0f);
    dot_rows(s->dots[DOT_KEPT][part_of()] + row, h.write, k_row, ld);
    __syncthreads(); /* dP and T are whole */

    multiply<ROWS_ARE_M, ROWS_ARE_K>(h.query, s->dmix + row * ldc, ldc, k, ld, row + 16);
    multiply<ROWS_ARE_M, ROWS_ARE_K>(h.read, s->lower + row * ldc, ldc, k, ld, row + 16);
    multiply<ROWS_ARE_K, ROWS_ARE_K>(h.write, s->dmix + row * ldc + row, ldc, q_row, ld, CHUNK - row);
    multiply<ROWS_ARE_K, ROWS_ARE_K>(h.write, s->lower + row * ldc + row, ldc, k_row, ld, CHUNK - row);
    dot_rows(s->dots[DOT_Q][part_of()] + row, h.query, q_row, ld);
    dot_rows(s->dots[DOT_READ][part_of()] + row, h.read, k_row, ld);
    dot_rows(s->dots[DOT_WRITE][part_of()] + row, h.write, k_row, ld);
#pragma unroll
    for (int i = 0; i < DK / PARTS / 2; i++) {
        s->dq[i * THREADS + threadIdx.x] += h.query.v[0][i / 4][i % 4];
        s->dk[i * THREADS + threadIdx.x] += h.read.v[0][i / 4][i % 4] + h.write.v[0][i / 4][i % 4];
    }
    __syncthreads(); /* all dots are there */
    if (warp_of() == 0) write_decays(s, l, p, head);
    __syncthreads(); /* gates, squares and dots are used up */
}
/* Through the l2 norm: dx = dx~ - x |x|^-2 (x.dx~), with |x|^-2 = scale^2 factor. */
template <typename T, int DK>
DEVICE void write_keys(local_shared<T, DK> *s, const rule_launch &l, const chunk_place &p, int dot, const T *raw,
                       const float *scale, float factor, const float *sums, T *to)
{
    const int ld = padded_row<T>(DK), row = part_row(), column = part_of() * (DK / PARTS);
    typename sums_of<DK>::type d;
#pragma unroll
    for (int i = 0; i < DK / PARTS / 2; i++) d.v[0][i / 4][i % 4] = sums[i * THREADS + threadIdx.x];
    dot_rows(s->dots[dot][part_of()] + row, d, raw + row * ld + column, ld);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const int r = row + fragment_row(i);
        float along = 0;
        for (int part = 0; part < PARTS; part++) along += s->dots[dot][part][r];
        along *= scale[r] * scale[r] * factor;
#pragma unroll
        for (int n = 0; n < DK / PARTS / 8; n++) {
            const float2 x = get2(raw + r * ld + column + 8 * n + fragment_column());
            d.v[0][n][i] -= along * x.x;
            d.v[0][n][i + 1] -= along * x.y;
        }
    }
    write_fragments(d, to + (p.begin + row) * l.b.dstride + column, l.b.dstride, p.length - row, l.a.key_dim - column,
                    l.fast.dqk);
}

template <typename T, int DK> static __global__ void __launch_bounds__(THREADS, 1) local(const rule_launch l)
{
    extern __shared__ __align__(128) unsigned char shared[];
    local_shared<T, DK> *s = (local_shared<T, DK> *)shared;
    const int64_t tile = blockIdx.x;
    const int head = blockIdx.y, group = l.a.value_heads / l.a.key_heads;
    const chunk_place p = place_of(l.a.row, tile);
    if (p.length <= 0) return;
    const int64_t at = p.begin * l.a.stride + (int64_t)head * l.a.key_dim;
    const int64_t key_at = (tile * l.a.key_heads + head) * CHUNK;
    load_tile<THREADS, CHUNK, DK>(s->k, (const T *)l.a.k + at, l.a.stride, p.length, l.a.key_dim, l.fast.qk);
    load_tile<THREADS, CHUNK, DK>(s->q, (const T *)l.a.q + at, l.a.stride, p.length, l.a.key_dim, l.fast.qk);
    load_floats(s->k_scale, l.k_scale + key_at, CHUNK, 0);
    load_floats(s->q_scale, l.q_scale + key_at, CHUNK, 16);
    st_copies_commit(); /* waited for with the first head's values */

    for (int i = threadIdx.x; i < CHUNK * DK; i += THREADS) s->dq[i] = s->dk[i] = 0; /* the thread's own */
    for (int r = 0; r < group; r++) local_head(s, l, p, tile, head * group + r);
    T *to_q = (T *)l.b.dq + (int64_t)head * l.a.key_dim, *to_k = (T *)l.b.dk + (int64_t)head * l.a.key_dim;
    write_keys<T, DK>(s, l, p, DOT_Q, s->q, s->q_scale, (float)l.a.key_dim, s->dq, to_q);
    write_keys<T, DK>(s, l, p, DOT_READ, s->k, s->k_scale, 1.0f, s->dk, to_k);
}

template <typename T, int DK> static int run(const st_queue *q, const rule_launch *l)
{
    const dim3 grid((unsigned)l->a.row.n_tiles, (unsigned)l->a.key_heads);
    return rule_start(q, "gdn_rule_local", local<T, DK>, grid, THREADS, sizeof(local_shared<T, DK>), *l);
}
int gdn_rule_local(const st_queue *q, const rule_launch *l)
{
    return l->fast.wgmma ? gdn_rule_local_wgmma(q, l) : RULE_BY_TYPE(run, q, l);
}
