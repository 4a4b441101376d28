/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_prepare_bf16_cuda.cu - the rule's prepare step in bf16, on tensor cores. A block is one chunk and
 * one or two value heads of a key head, each with a team of four warps.
 *
 * With N = stril(K K^T) the inverse of I + beta N is made of 16 x 16 blocks: those on the diagonal, D_i, by substitution
 * in f32. Then warp w makes column w of blocks, T_ww = D_w, T_iw = -D_i beta_i sum_{w <= j < i} N_ij T_jw, transposed,
 * because a transposed result is the left operand of the next product. Operands of these products are sums of two bf16
 * numbers, a high and a low part, which is nearly f32. Decays are powers of two of differences of sums of log2; a sum is
 * a float and what it lacks, for the reason that other kernels have for double. Factors of rows join the exponents. */
#include "rule_cuda.h"

enum { BLOCK = 16, BLOCKS = CHUNK / BLOCK, BELOW = BLOCKS * (BLOCKS - 1) / 2 };
enum { LDB = BLOCK + 8, PART = BLOCK * LDB /* a block in shared memory, of bf16 */ };

/* The same in all lanes, and known to the compiler as such: a team's index, and that of 16 rows in it. */
struct warp_place {
    int warp, team, block;
};
DEVICE warp_place warp_place_of()
{
    const int warp = __shfl_sync(0xffffffffu, warp_of(), 0);
    warp_place w = {warp, warp / 4, warp % 4};
    return w;
}

template <int DK, int TEAMS> struct prepare_shared {
    bf16 k[CHUNK * padded_row<bf16>(DK)], q[CHUNK * padded_row<bf16>(DK)];
    bf16 below[BELOW][2 * PART];           /* N below the diagonal blocks, high and low               */
    float diagonal[BLOCKS][BLOCK * BLOCK]; /* N's blocks there; what is above the diagonal is not read */
    bf16 inverse[TEAMS][BLOCKS][2 * PART]; /* D, high and low                                         */
    bf16 out[4 * TEAMS][2 * PART];         /* a warp's results on their way                           */
    float4 sums[TEAMS][CHUNK / 2];         /* of log2 of the decay, high and low; two rows each       */
    float2 written[TEAMS][CHUNK];          /* these less log2(beta)                                   */
    float beta[TEAMS][CHUNK], k_scale[CHUNK];
};

DEVICE float2 row_sum(const float4 *sums, int row)
{
    const float4 both = sums[row / 2];
    return row % 2 ? make_float2(both.z, both.w) : make_float2(both.x, both.y);
}
DEVICE float log_2(float x)
{
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* A value head's gates, by the first warp of its team; a lane has two rows. */
template <int DK, int TEAMS>
DEVICE void gates(prepare_shared<DK, TEAMS> *s, const rule_launch &l, const chunk_place &p, int team, int at, int head)
{
    const int lane = lane_of();
    const int64_t gate = p.begin * l.a.gate_stride + head, stride = l.a.gate_stride;
    const float *from = (const float *)l.a.beta + gate + 2 * lane * stride;
    const float beta[2] = {2 * lane < p.length ? fmaxf(from[0], BETA_LEAST) : 0,
                           2 * lane + 1 < p.length ? fmaxf(from[stride], BETA_LEAST) : 0};
    double first, second;
    decay_sums((const float *)l.a.g + gate, stride, p.length, first, second);
    first *= 1.4426950408889634; /* log2(e) */
    second *= 1.4426950408889634;
    const double last = __shfl_sync(0xffffffffu, second, 31);
    const float high[2] = {(float)first, (float)second}, low[2] = {(float)(first - high[0]), (float)(second - high[1])};
    s->sums[team][lane] = make_float4(high[0], low[0], high[1], low[1]);
    s->written[team][2 * lane] = make_float2(high[0], low[0] - log_2(beta[0]));
    s->written[team][2 * lane + 1] = make_float2(high[1], low[1] - log_2(beta[1]));
    put2(s->beta[team] + 2 * lane, beta[0], beta[1]);
    put2(l.decay + at * CHUNK + 2 * lane, st_exp2_fast(high[0]), st_exp2_fast(high[1]));
    put2(l.rest + at * CHUNK + 2 * lane, st_exp2_fast((float)(last - first)), st_exp2_fast((float)(last - second)));
}

/* ---- numbers of two parts ---- */

DEVICE void split(uint32_t (&high)[4], uint32_t (&low)[4], const float (&c)[2][4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float x = c[i / 2][i % 2 * 2], y = c[i / 2][i % 2 * 2 + 1];
        high[i] = st_bf16_pair(x, y);
        low[i] = st_bf16_pair(x - __uint_as_float(high[i] << 16), y - __uint_as_float(high[i] & 0xffff0000u));
    }
}
/* c += a b of 16 x 16 blocks, b transposed in shared memory; the product of both low parts is too small to count. */
DEVICE void multiply_parts(float (&c)[2][4], const uint32_t (&high)[4], const uint32_t (&low)[4], const bf16 *b)
{
    uint32_t r[4];
    load_b<ROWS_ARE_N>(r, b + PART, LDB, 0, 0);
    st_mma(c[0], high, r);
    st_mma(c[1], high, r + 2);
    load_b<ROWS_ARE_N>(r, b, LDB, 0, 0);
    st_mma(c[0], low, r);
    st_mma(c[1], low, r + 2);
    st_mma(c[0], high, r);
    st_mma(c[1], high, r + 2);
}

/* ---- results to memory ---- */

DEVICE uint32_t transposed(uint32_t fragment)
{
    uint32_t t;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(fragment));
    return t;
}
/* A result of a warp to its block of a square, or transposed to where that lies. turn: of the two rooms on the way, one
 * is read while the other is filled. */
DEVICE void write_block(bf16 *out, int turn, bf16 *square, int row_block, int column_block, const uint32_t (&r)[4],
                        int as_columns)
{
    const int lane = lane_of(), below = as_columns ? 8 : 8 * LDB, right = as_columns ? 8 * LDB : 8;
    uint32_t v[4] = {r[0], r[1], r[2], r[3]};
    bf16 *to = out + turn % 2 * PART + lane / 4 * LDB + fragment_column();
    if (as_columns) {
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = transposed(r[i]);
    }
    *(uint32_t *)to = v[0];
    *(uint32_t *)(to + below) = v[1];
    *(uint32_t *)(to + right) = v[2];
    *(uint32_t *)(to + 8 * LDB + 8) = v[3];
    __syncwarp();
    square += as_columns ? BLOCK * (column_block * CHUNK + row_block) : BLOCK * (row_block * CHUNK + column_block);
    *(uint4 *)(square + lane / 2 * CHUNK + lane % 2 * 8) =
        *(const uint4 *)(out + turn % 2 * PART + lane / 2 * LDB + lane % 2 * 8);
}
/* Of a diagonal block, what is not above the diagonal; `upper`: not below. */
DEVICE void mask_block(uint32_t (&r)[4], int upper)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = fragment_row(0) + i % 2 * 8, column = i / 2 * 8 + fragment_column();
        const bool first = upper ? column >= row : row >= column, second = upper ? column + 1 >= row : row > column;
        r[i] &= (first ? 0xffffu : 0) | (second ? 0xffff0000u : 0);
    }
}

/* ---- the products of keys and queries ---- */

/* c += a of 16 rows times all rows of blocks first, first + 1, .. as far as `last`. */
template <int DK, int N>
DEVICE void multiply_rows(float (&c)[N][2][4], const bf16 *rows, const bf16 *keys, int first, int last,
                          float (*squares)[4])
{
    const int ld = padded_row<bf16>(DK);
#pragma unroll 2
    for (int k = 0; k < DK; k += 16) {
        uint32_t a[4], b[4];
        load_a<ROWS_ARE_M>(a, rows, ld, 0, k);
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (first + j > last) break;
            load_b<ROWS_ARE_N>(b, keys, ld, k, BLOCK * (first + j));
            st_mma(c[j][0], a, b);
            st_mma(c[j][1], a, b + 2);
        }
        if (!squares) continue;
        const uint32_t upper[2] = {a[0], a[2]}, lower[2] = {a[1], a[3]}; /* the rows again, as a right operand */
        st_mma(squares[0], a, upper);
        st_mma(squares[1], a, lower);
    }
}
/* From products of 16 rows with themselves 1 / norm of the lane's rows, fragment_row(0) and that + 8. */
DEVICE float2 scales(const float (*squares)[4])
{
    const int row = fragment_row(0), from = (lane_of() & ~3) + row / 2;
    const float upper = row % 2 ? squares[0][1] : squares[0][0], lower = row % 2 ? squares[1][3] : squares[1][2];
    return make_float2(1 / sqrtf(__shfl_sync(0xffffffffu, upper, from) + 1e-6f),
                       1 / sqrtf(__shfl_sync(0xffffffffu, lower, from) + 1e-6f));
}
DEVICE void write_scales(float *to, float2 scale)
{
    if (lane_of() % 4) return;
    to[fragment_row(0)] = scale.x;
    to[fragment_row(0) + 8] = scale.y;
}

/* N: a warp has 16 rows and a team's share of the columns. */
template <int DK, int TEAMS>
DEVICE void multiply_keys(prepare_shared<DK, TEAMS> *s, const rule_launch &l, const warp_place &w, int at)
{
    enum { SHARE = BLOCKS / TEAMS };
    const int block = w.block, first = w.team * SHARE, row = fragment_row(0), column = fragment_column();
    float c[SHARE][2][4] = {};
    multiply_rows<DK>(c, s->k + BLOCK * block * padded_row<bf16>(DK), s->k, first, block, NULL);
#pragma unroll
    for (int j = 0; j < SHARE; j++) {
        if (first + j != block) continue;
        const float2 scale = scales(c[j]);
        write_scales(s->k_scale + BLOCK * block, scale);
        write_scales(l.k_scale + at * CHUNK + BLOCK * block, scale);
    }
    __syncthreads(); /* the scales are whole, and the gates */
#pragma unroll
    for (int j = 0; j < SHARE; j++) {
        const int other = first + j;
        if (other > block) break;
#pragma unroll
        for (int i = 0; i < 8; i++)
            c[j][i / 4][i % 4] *= s->k_scale[BLOCK * block + row + i / 2 % 2 * 8] *
                                  s->k_scale[BLOCK * other + i / 4 * 8 + column + i % 2];
        if (other == block) {
#pragma unroll
            for (int i = 0; i < 8; i += 2)
                put2(s->diagonal[block] + (row + i / 2 % 2 * 8) * BLOCK + i / 4 * 8 + column, c[j][i / 4][i % 4],
                     c[j][i / 4][i % 4 + 1]);
            continue;
        }
        uint32_t high[4], low[4];
        split(high, low, c[j]);
        bf16 *to = s->below[block * (block - 1) / 2 + other] + row * LDB + column;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            *(uint32_t *)(to + i % 2 * 8 * LDB + i / 2 * 8) = high[i];
            *(uint32_t *)(to + PART + i % 2 * 8 * LDB + i / 2 * 8) = low[i];
        }
    }
}
/* P of a value head: a warp has 16 rows. */
template <int DK, int TEAMS>
DEVICE void make_mix(prepare_shared<DK, TEAMS> *s, const rule_launch &l, const warp_place &w, int at, int key_at)
{
    const int block = w.block, team = w.team, row = BLOCK * block + fragment_row(0);
    float c[BLOCKS][2][4] = {}, squares[2][4] = {};
    multiply_rows<DK>(c, s->q + BLOCK * block * padded_row<bf16>(DK), s->k, 0, block, squares);
    float2 scale = scales(squares), sum[2] = {row_sum(s->sums[team], row), row_sum(s->sums[team], row + 8)};
    const float factor = rsqrtf((float)l.a.key_dim);
    scale.x *= factor;
    scale.y *= factor;
    if (team == 0) write_scales(l.q_scale + key_at * CHUNK + BLOCK * block, scale);
    sum[0].y += log_2(scale.x);
    sum[1].y += log_2(scale.y);
#pragma unroll
    for (int j = 0; j < BLOCKS; j++) {
        uint32_t r[4] = {};
        if (j <= block) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int h = i % 2, column = BLOCK * j + i / 2 * 8 + fragment_column();
                const float4 sums = s->sums[team][column / 2];
                const float2 k = get2(s->k_scale + column);
                const float *x = &c[j][i / 2][2 * h];
                r[i] = st_bf16_pair(x[0] * k.x * st_exp2_fast(sum[h].x - sums.x + (sum[h].y - sums.y)),
                                    x[1] * k.y * st_exp2_fast(sum[h].x - sums.z + (sum[h].y - sums.w)));
            }
            if (j == block) mask_block(r, 0);
        }
        write_block(s->out[w.warp], j, (bf16 *)l.mix + (int64_t)at * MATRIX, block, j, r, l.backward);
    }
}

/* ---- the inverse ---- */

/* D of the team's block, a column for every lane below 16; the upper half of a warp serves the second team. */
template <int DK, int TEAMS> DEVICE void invert_block(prepare_shared<DK, TEAMS> *s, int block)
{
    const int column = lane_of() % BLOCK, team = lane_of() / BLOCK;
    if (team >= TEAMS) return;
    const float *keys = s->diagonal[block], *beta = s->beta[team] + BLOCK * block;
    bf16 *inverse = s->inverse[team][block] + column;
    float x[BLOCK];
#pragma unroll
    for (int i = 0; i < BLOCK; i++) {
        float sum[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < i; j++) sum[j % 2] += keys[i * BLOCK + j] * x[j];
        x[i] = (i == column ? 1.0f : 0.0f) - beta[i] * (sum[0] + sum[1]);
    }
#pragma unroll
    for (int i = 0; i < BLOCK; i++) {
        const uint32_t high = st_bf16_pair(x[i], 0);
        inverse[i * LDB].bits = (uint16_t)high;
        st_from_f32(inverse + PART + i * LDB, x[i] - __uint_as_float(high << 16));
    }
}
/* A^T's block from that of the transposed inverse: times D and the row's beta; written: of the warp's rows. */
DEVICE void make_solve(uint32_t (&r)[4], const float (&c)[2][4], const float2 *written, const float4 *sums, int block)
{
    const float2 own[2] = {written[fragment_row(0)], written[fragment_row(0) + 8]};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 row = own[i % 2];
        const float4 others = sums[(BLOCK * block + i / 2 * 8 + fragment_column()) / 2];
        const float *x = &c[i / 2][i % 2 * 2];
        r[i] = st_bf16_pair(x[0] * st_exp2_fast(others.x - row.x + (others.y - row.y)),
                            x[1] * st_exp2_fast(others.z - row.x + (others.w - row.y)));
    }
}
/* D, transposed, as a left operand. */
DEVICE void load_parts(uint32_t (&high)[4], uint32_t (&low)[4], const bf16 *inverse)
{
    load_a<ROWS_ARE_K>(high, inverse, LDB, 0, 0);
    load_a<ROWS_ARE_K>(low, inverse + PART, LDB, 0, 0);
}
/* A of a value head, of which the warp has 16 columns. */
template <int DK, int TEAMS>
DEVICE void join_blocks(prepare_shared<DK, TEAMS> *s, const rule_launch &l, const warp_place &w, int at)
{
    const int block = w.block, team = w.team;
    const bf16 *inverse = s->inverse[team][block];
    const float *beta = s->beta[team];
    bf16 *const square = (bf16 *)l.solve + (int64_t)at * MATRIX;
    const float2 *written = s->written[team] + BLOCK * block;
    uint32_t high[BLOCKS][4], low[BLOCKS][4], r[4];
    float c[2][4];
    load_parts(high[0], low[0], inverse);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        c[i / 2][i % 2 * 2] = __uint_as_float(high[0][i] << 16) + __uint_as_float(low[0][i] << 16);
        c[i / 2][i % 2 * 2 + 1] = __uint_as_float(high[0][i] & 0xffff0000u) + __uint_as_float(low[0][i] & 0xffff0000u);
    }
    make_solve(r, c, written, s->sums[team], block);
    mask_block(r, 1);
    write_block(s->out[w.warp], 0, square, block, block, r, !l.backward);
#pragma unroll
    for (int d = 1; d < BLOCKS; d++) {
        const int i = block + d;
        r[0] = r[1] = r[2] = r[3] = 0;
        if (i < BLOCKS) {
            float sum[2][4] = {}, t[2][4] = {};
            uint32_t sum_high[4], sum_low[4];
#pragma unroll
            for (int e = 0; e < d; e++) {
                if (e == 0) load_parts(high[0], low[0], inverse); /* again: registers are scarce */
                multiply_parts(sum, high[e], low[e], s->below[i * (i - 1) / 2 + block + e]);
            }
#pragma unroll
            for (int n = 0; n < 8; n++) sum[n / 4][n % 4] *= -beta[BLOCK * i + n / 4 * 8 + fragment_column() + n % 2];
            split(sum_high, sum_low, sum);
            multiply_parts(t, sum_high, sum_low, s->inverse[team][i]);
            make_solve(r, t, written, s->sums[team], i);
            split(high[d], low[d], t);
        }
        write_block(s->out[w.warp], d, square, block, i % BLOCKS, r, !l.backward);
    }
}

/* A thread has a piece of 16 bytes in every step-th row. */
template <int THREADS, int COLUMNS> struct piece {
    static const int step = THREADS * 8 / COLUMNS;
    DEVICE int row() { return threadIdx.x / (COLUMNS / 8); }
    DEVICE int column() { return threadIdx.x % (COLUMNS / 8) * 8; }
};
/* Keys or queries of a chunk: as load_tile(), in fewer instructions where 16 bytes can be copied at a time. */
template <int DK, int THREADS> DEVICE void load_rows(bf16 *to, const bf16 *from, const rule_launch &l, int rows)
{
    typedef piece<THREADS, DK> own;
    const int ld = padded_row<bf16>(DK), row = own::row();
    if (!l.fast.qk) return load_tile<THREADS, CHUNK, DK>(to, from, l.a.stride, rows, l.a.key_dim, 0);
    to += row * ld + own::column();
    from += row * l.a.stride + own::column();
    rows = own::column() < l.a.key_dim ? rows - row : 0;
#pragma unroll
    for (int r = 0; r < CHUNK; r += own::step, from += own::step * l.a.stride)
        st_copy16(to + r * ld, from, r < rows ? 16 : 0);
}

template <int DK, int TEAMS>
static __global__ void __launch_bounds__(128 * TEAMS, TEAMS == 2 ? 3 : 5) prepare_bf16(const rule_launch l)
{
    enum { THREADS = 128 * TEAMS };
    extern __shared__ __align__(128) unsigned char shared[];
    prepare_shared<DK, TEAMS> *s = (prepare_shared<DK, TEAMS> *)shared;
    const int turns = l.a.value_heads / l.a.key_heads / TEAMS, key_at = (int)blockIdx.x / turns;
    const int tile = key_at / l.a.key_heads, key_head = key_at % l.a.key_heads;
    const warp_place w = warp_place_of();
    const int at = (int)blockIdx.x * TEAMS + w.team; /* of the team's value head, in the tile's order */
    const chunk_place p = place_of(l.a.row, tile);
    if (p.length <= 0) return;
    const int64_t from = p.begin * l.a.stride + (int64_t)key_head * l.a.key_dim;
    load_rows<DK, THREADS>(s->k, (const bf16 *)l.a.k + from, l, p.length);
    load_rows<DK, THREADS>(s->q, (const bf16 *)l.a.q + from, l, p.length);
    st_copies_commit();
    if (w.block == 0) gates(s, l, p, w.team, at, at - tile * l.a.value_heads);
    st_copies_wait<0>();
    __syncthreads();
    multiply_keys(s, l, w, key_at);
    __syncthreads(); /* N is whole */
    if (TEAMS == 1 || w.block / 2 == w.team) invert_block(s, w.block);
    __syncthreads(); /* D is whole */
    if (l.a.out || l.backward) make_mix(s, l, w, at, key_at);
    join_blocks(s, l, w, at);
}

template <int DK, int TEAMS> static int run(const st_queue *q, const rule_launch *l)
{
    const dim3 grid((unsigned)(l->a.row.n_tiles * l->a.value_heads / TEAMS));
    return rule_start(q, "gdn_rule_prepare", prepare_bf16<DK, TEAMS>, grid, 128 * TEAMS,
                      sizeof(prepare_shared<DK, TEAMS>), *l);
}
int gdn_rule_prepare_bf16(const st_queue *q, const rule_launch *l)
{
    const int teams = l->a.value_heads / l->a.key_heads % 2 ? 1 : 2;
    if (l->a.key_dim > 64) return teams == 2 ? run<128, 2>(q, l) : run<128, 1>(q, l);
    return teams == 2 ? run<64, 2>(q, l) : run<64, 1>(q, l);
}
