/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_prepare_bf16_cuda.cu - the rule's prepare step in bf16, on tensor cores. A block is one chunk and
 * key head; every value head of the group has a team of four warps, or its turn of one.
 *
 * With N = stril(K K^T) the inverse of I + beta N is made of 16 x 16 blocks: those on the diagonal, D_i, by substitution
 * in f32, a warp each. Then warp w makes column w of blocks, T_ww = D_w, T_iw = -D_i beta_i sum_{w <= j < i} N_ij T_jw,
 * transposed, because a transposed result is the left operand of the next product. Operands of these products are sums
 * of two bf16 numbers, a high and a low part, which is nearly f32. */
#include "rule_cuda.h"

enum { BLOCK = 16, BLOCKS = CHUNK / BLOCK, BELOW = BLOCKS * (BLOCKS - 1) / 2 };
enum { LDB = BLOCK + 8, LDC = CHUNK + 8, PART = BLOCK * LDB /* a block in shared memory, of bf16 */ };

template <int DK, int TEAMS> struct prepare_shared {
    bf16 k[CHUNK * padded_row<bf16>(DK)], q[CHUNK * padded_row<bf16>(DK)];
    bf16 below[BELOW][2 * PART];           /* N below the diagonal blocks, high and low             */
    float diagonal[BLOCKS][BLOCK * BLOCK]; /* N's blocks there; what is above the diagonal is not read */
    bf16 own[4 * TEAMS][BLOCK * LDC];      /* a warp's D, high and low; its results on their way out */
    float4 sums[TEAMS][CHUNK / 2];         /* of log2 of the decay, high and low; two rows each     */
    float beta[TEAMS][CHUNK], k_scale[CHUNK], q_scale[CHUNK];
};

DEVICE float power_of_2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float2 row_sum(const float4 *sums, int row)
{
    const float4 both = sums[row / 2];
    return row % 2 ? make_float2(both.z, both.w) : make_float2(both.x, both.y);
}

/* 1 / norm of every row of k and q, times key_dim^-1/2 for q; TEAMS threads have a row. */
template <int DK, int TEAMS> DEVICE void scales(prepare_shared<DK, TEAMS> *s, const rule_launch &l, int64_t at)
{
    const int part = threadIdx.x % TEAMS, row = threadIdx.x / TEAMS % CHUNK, of_q = threadIdx.x / TEAMS / CHUNK;
    const int pieces = DK / 8 / TEAMS;
    const bf16 *from = (of_q ? s->q : s->k) + row * padded_row<bf16>(DK) + part * pieces * 8;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < pieces; i++) {
        const uint4 piece =
            *(const uint4 *)(from + (i + part * pieces / 2) % pieces * 8); /* each part on other banks */
        const uint32_t pairs[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const float x = __uint_as_float(pairs[n] << 16), y = __uint_as_float(pairs[n] & 0xffff0000u);
            squares += x * x + y * y;
        }
    }
    if (TEAMS == 2) squares += __shfl_xor_sync(0xffffffffu, squares, 1);
    if (part) return;
    const float scale = (of_q ? rsqrtf((float)l.a.key_dim) : 1.0f) / sqrtf(squares + 1e-6f);
    (of_q ? s->q_scale : s->k_scale)[row] = scale;
    (of_q ? l.q_scale : l.k_scale)[at * CHUNK + row] = scale;
}

/* A value head's gates: the sums of its decays by the team's first warp, beta by the next two. */
template <int DK, int TEAMS>
DEVICE void gates(prepare_shared<DK, TEAMS> *s, const rule_launch &l, const chunk_place &p, int64_t tile, int head)
{
    const int64_t at = (tile * l.a.value_heads + head) * CHUNK, gate = p.begin * l.a.gate_stride + head;
    const int team = warp_of() / 4, lane = lane_of(), row = threadIdx.x % 128 - 32;
    if (row >= 0 && row < CHUNK)
        s->beta[team][row] =
            row < p.length ? fmaxf(((const float *)l.a.beta)[gate + row * l.a.gate_stride], BETA_LEAST) : 0;
    if (row >= 0) return;
    double first, second;
    decay_sums((const float *)l.a.g + gate, l.a.gate_stride, p.length, first, second);
    first *= 1.4426950408889634; /* log2(e) */
    second *= 1.4426950408889634;
    const double last = __shfl_sync(0xffffffffu, second, 31);
    const float high[2] = {(float)first, (float)second};
    s->sums[team][lane] = make_float4(high[0], (float)(first - high[0]), high[1], (float)(second - high[1]));
    put2(l.decay + at + 2 * lane, power_of_2(high[0]), power_of_2(high[1]));
    put2(l.rest + at + 2 * lane, power_of_2((float)(last - first)), power_of_2((float)(last - second)));
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
    multiply_add(c[0], high, r);
    multiply_add(c[1], high, r + 2);
    load_b<ROWS_ARE_N>(r, b, LDB, 0, 0);
    multiply_add(c[0], low, r);
    multiply_add(c[1], low, r + 2);
    multiply_add(c[0], high, r);
    multiply_add(c[1], high, r + 2);
}

/* ---- results to memory ---- */

DEVICE uint32_t transposed(uint32_t fragment)
{
    uint32_t t;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(fragment));
    return t;
}
/* A warp's 16 rows of a square or, as_columns, its 16 columns, block by block; the rest after the last block. */
DEVICE void write_block(bf16 *own, bf16 *square, int block, const uint32_t (&r)[4], int as_columns)
{
    const int lane = lane_of(), row = lane / 4, column = fragment_column();
    if (as_columns) {
        bf16 *part = own + block % 2 * PART; /* one is read while the other is filled */
#pragma unroll
        for (int i = 0; i < 4; i++)
            *(uint32_t *)(part + (i / 2 * 8 + row) * LDB + i % 2 * 8 + column) = transposed(r[i]);
        __syncwarp();
        bf16 *to = square + (BLOCK * block + lane / 2) * CHUNK + warp_of() % 4 * BLOCK + lane % 2 * 8;
        *(uint4 *)to = *(const uint4 *)(part + lane / 2 * LDB + lane % 2 * 8);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        *(uint32_t *)(own + (i % 2 * 8 + row) * LDC + BLOCK * block + i / 2 * 8 + column) = r[i];
}
DEVICE void write_rest(const bf16 *own, bf16 *square, int as_columns)
{
    const int lane = lane_of();
    __syncwarp();
    if (as_columns) return;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = 4 * i + lane / 8, c = lane % 8 * 8;
        *(uint4 *)(square + (warp_of() % 4 * BLOCK + r) * CHUNK + c) = *(const uint4 *)(own + r * LDC + c);
    }
}

/* ---- the products of keys and queries ---- */

/* N: a warp has 16 rows and a team's share of the columns. */
template <int DK, int TEAMS> DEVICE void multiply_keys(prepare_shared<DK, TEAMS> *s)
{
    const int ld = padded_row<bf16>(DK), block = warp_of() % 4, first = warp_of() / 4 * (BLOCKS / TEAMS);
    const int row = fragment_row(0), column = fragment_column();
    float c[BLOCKS / TEAMS][2][4] = {};
#pragma unroll 1
    for (int k = 0; k < DK; k += 16) {
        uint32_t a[4], b[4];
        load_a<ROWS_ARE_M>(a, s->k, ld, BLOCK * block, k);
#pragma unroll
        for (int j = 0; j < BLOCKS / TEAMS; j++) {
            if (first + j > block) break;
            load_b<ROWS_ARE_N>(b, s->k, ld, k, BLOCK * (first + j));
            multiply_add(c[j][0], a, b);
            multiply_add(c[j][1], a, b + 2);
        }
    }
#pragma unroll
    for (int j = 0; j < BLOCKS / TEAMS; j++) {
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
template <int DK, int TEAMS> DEVICE void make_mix(prepare_shared<DK, TEAMS> *s, const rule_launch &l, int64_t at)
{
    const int ld = padded_row<bf16>(DK), block = warp_of() % 4, team = warp_of() / 4;
    float c[BLOCKS][2][4] = {};
#pragma unroll 1
    for (int k = 0; k < DK; k += 16) {
        uint32_t a[4], b[4];
        load_a<ROWS_ARE_M>(a, s->q, ld, BLOCK * block, k);
#pragma unroll
        for (int j = 0; j < BLOCKS; j++) {
            if (j > block) break;
            load_b<ROWS_ARE_N>(b, s->k, ld, k, BLOCK * j);
            multiply_add(c[j][0], a, b);
            multiply_add(c[j][1], a, b + 2);
        }
    }
    bf16 *const own = s->own[warp_of()], *const square = (bf16 *)l.mix + at * MATRIX;
    const int row = BLOCK * block + fragment_row(0);
    const float2 sum[2] = {row_sum(s->sums[team], row), row_sum(s->sums[team], row + 8)};
    const float scale[2] = {s->q_scale[row], s->q_scale[row + 8]};
#pragma unroll
    for (int j = 0; j < BLOCKS; j++) {
        uint32_t r[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (j > block) break;
            const int h = i % 2, column = BLOCK * j + i / 2 * 8 + fragment_column();
            const float4 sums = s->sums[team][column / 2];
            const float2 k = get2(s->k_scale + column);
            const float *x = &c[j][i / 2][2 * h];
            const float v = x[0] * scale[h] * k.x * power_of_2(sum[h].x - sums.x + (sum[h].y - sums.y));
            const float w = x[1] * scale[h] * k.y * power_of_2(sum[h].x - sums.z + (sum[h].y - sums.w));
            r[i] = st_bf16_pair(row + 8 * h >= column ? v : 0, row + 8 * h > column ? w : 0);
        }
        write_block(own, square, j, r, l.backward);
    }
    write_rest(own, square, l.backward);
}

/* ---- the inverse ---- */

/* D of the warp's diagonal block, a column for every lane below 16. */
DEVICE void invert_block(bf16 *inverse, const float *keys, const float *beta)
{
    const int column = lane_of();
    float x[BLOCK];
    __syncwarp();
    if (column >= BLOCK) return;
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
        inverse[i * LDB + column].bits = (uint16_t)high;
        st_from_f32(inverse + PART + i * LDB + column, x[i] - __uint_as_float(high << 16));
    }
}
/* Of a block of the transposed inverse, A^T: times D and the row's beta. first: token of the block's first column. */
DEVICE void make_solve(uint32_t (&r)[4], const float (&c)[2][4], const float4 *sums, const float *beta, int first)
{
    const int row = warp_of() % 4 * BLOCK + fragment_row(0);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int j = row + i % 2 * 8, column = first + i / 2 * 8 + fragment_column();
        const float2 own = row_sum(sums, j);
        const float4 others = sums[column / 2];
        const float *x = &c[i / 2][i % 2 * 2];
        const float v = column >= j ? x[0] * power_of_2(others.x - own.x + (others.y - own.y)) * beta[j] : 0;
        const float w = column + 1 >= j ? x[1] * power_of_2(others.z - own.x + (others.w - own.y)) * beta[j] : 0;
        r[i] = st_bf16_pair(v, w);
    }
}
/* A of a value head, of which the warp has 16 columns; D of all four warps is there. */
template <int DK, int TEAMS> DEVICE void join_blocks(prepare_shared<DK, TEAMS> *s, uint32_t (&r)[BLOCKS][4])
{
    const int block = warp_of() % 4, team = warp_of() / 4;
    uint32_t high[BLOCKS][4], low[BLOCKS][4];
    float c[2][4];
    load_a<ROWS_ARE_K>(high[0], s->own[warp_of()], LDB, 0, 0);
    load_a<ROWS_ARE_K>(low[0], s->own[warp_of()] + PART, LDB, 0, 0);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        c[i / 2][i % 2 * 2] = __uint_as_float(high[0][i] << 16) + __uint_as_float(low[0][i] << 16);
        c[i / 2][i % 2 * 2 + 1] = __uint_as_float(high[0][i] & 0xffff0000u) + __uint_as_float(low[0][i] & 0xffff0000u);
    }
    make_solve(r[0], c, s->sums[team], s->beta[team], BLOCK * block);
#pragma unroll
    for (int d = 1; d < BLOCKS; d++) {
        const int i = block + d;
        r[d][0] = r[d][1] = r[d][2] = r[d][3] = 0;
        if (i >= BLOCKS) continue;
        float sum[2][4] = {}, t[2][4] = {};
        uint32_t sum_high[4], sum_low[4];
#pragma unroll
        for (int e = 0; e < d; e++) multiply_parts(sum, high[e], low[e], s->below[i * (i - 1) / 2 + block + e]);
#pragma unroll
        for (int n = 0; n < 8; n++)
            sum[n / 4][n % 4] *= -s->beta[team][BLOCK * i + n / 4 * 8 + fragment_column() + n % 2];
        split(sum_high, sum_low, sum);
        multiply_parts(t, sum_high, sum_low, s->own[4 * team + i]);
        make_solve(r[d], t, s->sums[team], s->beta[team], BLOCK * i);
        split(high[d], low[d], t);
    }
}

template <int DK, int TEAMS>
static __global__ void __launch_bounds__(128 * TEAMS, TEAMS == 2 ? 3 : 5) prepare_bf16(const rule_launch l)
{
    enum { THREADS = 128 * TEAMS };
    extern __shared__ __align__(128) unsigned char shared[];
    prepare_shared<DK, TEAMS> *s = (prepare_shared<DK, TEAMS> *)shared;
    const int64_t tile = blockIdx.x / l.a.key_heads;
    const int key_head = blockIdx.x % l.a.key_heads, group = l.a.value_heads / l.a.key_heads, block = warp_of() % 4;
    const chunk_place p = place_of(l.a.row, tile);
    if (p.length <= 0) return;
    const int64_t at = p.begin * l.a.stride + (int64_t)key_head * l.a.key_dim;
    load_tile<THREADS, CHUNK, DK>(s->k, (const bf16 *)l.a.k + at, l.a.stride, p.length, l.a.key_dim, l.fast.qk);
    load_tile<THREADS, CHUNK, DK>(s->q, (const bf16 *)l.a.q + at, l.a.stride, p.length, l.a.key_dim, l.fast.qk);
    copies_commit();
    for (int turn = 0; turn < group; turn += TEAMS) {
        const int head = key_head * group + turn + warp_of() / 4;
        uint32_t solve[BLOCKS][4];
        gates(s, l, p, tile, head);
        if (turn == 0) {
            copies_wait<0>();
            __syncthreads();
            scales(s, l, tile * l.a.key_heads + key_head);
            __syncthreads();
            multiply_keys(s);
        }
        __syncthreads(); /* N and the gates are whole */
        const int64_t square = tile * l.a.value_heads + head;
        if (l.a.out || l.backward) make_mix(s, l, square);
        invert_block(s->own[warp_of()], s->diagonal[block], s->beta[warp_of() / 4] + BLOCK * block);
        __syncthreads(); /* D is whole */
        join_blocks(s, solve);
        __syncthreads(); /* D and the gates are used up */
#pragma unroll
        for (int d = 0; d < BLOCKS; d++)
            write_block(s->own[warp_of()], (bf16 *)l.solve + square * MATRIX, (block + d) % BLOCKS, solve[d],
                        !l.backward);
        write_rest(s->own[warp_of()], (bf16 *)l.solve + square * MATRIX, !l.backward);
    }
}

template <int DK, int TEAMS> static int run(const st_queue *q, const rule_launch *l)
{
    const dim3 grid((unsigned)(l->a.row.n_tiles * l->a.key_heads));
    return rule_start(q, "gdn_rule_prepare", prepare_bf16<DK, TEAMS>, grid, 128 * TEAMS,
                      sizeof(prepare_shared<DK, TEAMS>), *l);
}
int gdn_rule_prepare_bf16(const st_queue *q, const rule_launch *l)
{
    const int teams = l->a.value_heads / l->a.key_heads % 2 ? 1 : 2;
    if (l->a.key_dim > 64) return teams == 2 ? run<128, 2>(q, l) : run<128, 1>(q, l);
    return teams == 2 ? run<64, 2>(q, l) : run<64, 1>(q, l);
}
