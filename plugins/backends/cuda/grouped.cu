/* SPDX-License-Identifier: Apache-2.0 */
/* grouped.cu - products of groups of rows whose borders only the device knows. bf16 goes to the tensor cores: tiles of
 * 128 x 128, 64 deep, three of them on the way by cp.async. f32, and what is not aligned, takes a plain tile of 64 x 64.
 * A tile belongs to one block, so the order of its sum is fixed. */
#include "kernel.h"

enum { TILE = 128, DEEP = 64, STAGES = 3, TILE_THREADS = 128, OPERAND_BYTES = TILE * DEEP * 2,
       STAGE_BYTES = 2 * OPERAND_BYTES, SHARED_BYTES = STAGES * STAGE_BYTES };
enum { PLAIN = 64, PLAIN_DEEP = 16, PLAIN_THREADS = 256, EACH = 4 };

/* One tile of work: c [rows, cols] from k steps, of group `group`, first row and column as in c. */
typedef struct grouped_tile { int64_t group, a_first, k_first, row, col; int32_t rows, cols, k; } grouped_tile;

/* ---- which tile ---- */
DEVICE bool border_bad(const cuda_grouped &g, int32_t from, int32_t end) { return from < 0 || end < from || end > g.rows; }

/* Group and first row of row tile `tile` of the list that runs through all groups. All threads take part; each counts the
 * tiles of a few groups. */
template <int SIZE, int THREADS>
DEVICE bool find_rows(const cuda_grouped &g, int64_t tile, grouped_tile *t, st_cuda_faults faults)
{
    __shared__ int32_t warp_tiles[THREADS / 32], found[3];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t per = (g.groups + THREADS - 1) / THREADS, e = threadIdx.x * per, end = min(e + per, g.groups);
    int32_t mine = 0, sum, before = 0;
    bool bad = false;
    for (int64_t i = e; i < end; i++) {
        bad = bad || border_bad(g, g.offset[i], g.offset[i + 1]);
        mine += (g.offset[i + 1] - g.offset[i] + SIZE - 1) / SIZE;
    }
    sum = mine;
    for (int step = 1; step < 32; step *= 2) {
        int32_t other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += other;
    }
    if (lane == 31) warp_tiles[warp] = sum;
    if (!threadIdx.x) found[2] = 0;
    if (__syncthreads_or(bad)) {
        if (bad && !blockIdx.x) st_cuda_fault(faults, ST_FAULT_RANGE, g.offset[end], g.rows);
        return false;
    }
    for (int w = 0; w < warp; w++) before += warp_tiles[w];
    before += sum - mine;
    if (tile >= before && tile < before + mine) {
        int32_t left = (int32_t)tile - before, n;
        for (; left >= (n = (g.offset[e + 1] - g.offset[e] + SIZE - 1) / SIZE); e++) left -= n;
        found[0] = (int32_t)e;
        found[1] = g.offset[e] + left * SIZE;
        found[2] = min(SIZE, g.offset[e + 1] - found[1]);
    }
    __syncthreads();
    t->group = found[0];
    t->row = t->a_first = found[1];
    t->rows = found[2];
    t->k_first = 0;
    t->k = (int32_t)g.k;
    return t->rows > 0;
}

/* The block's tile; false: none. */
template <int SIZE, int THREADS> DEVICE bool find_tile(const cuda_grouped &g, grouped_tile *t, st_cuda_faults faults)
{
    int64_t col_tiles = (g.n + SIZE - 1) / SIZE, at = blockIdx.x / col_tiles;
    t->col = blockIdx.x % col_tiles * SIZE;
    t->cols = (int32_t)min((int64_t)SIZE, g.n - t->col);
    if (!g.sum) return find_rows<SIZE, THREADS>(g, at, t, faults);
    int64_t row_tiles = (g.m + SIZE - 1) / SIZE;
    t->group = at / row_tiles;
    t->row = at % row_tiles * SIZE;
    t->rows = (int32_t)min((int64_t)SIZE, g.m - t->row);
    t->a_first = t->row;
    int32_t from = g.offset[t->group], end = g.offset[t->group + 1];
    if (border_bad(g, from, end)) {
        if (!threadIdx.x) st_cuda_fault(faults, ST_FAULT_RANGE, end, g.rows);
        return false;
    }
    t->k_first = from;
    t->k = end - from;
    return end > from || g.beta != 1.0f; /* an empty group: beta c */
}

DEVICE void put_sum(const cuda_grouped &g, const grouped_tile &t, int64_t row, int64_t col, float x)
{
    int64_t at = (g.sum ? t.group * g.s_c : 0) + (t.row + row) * g.ldc + t.col + col;
    if (g.beta != 0.0f) x += g.beta * get_real(g.c, g.type_c, at);
    put_real(g.c, g.type_c, at, x);
}
DEVICE void put_pair(const cuda_grouped &g, const grouped_tile &t, int64_t row, int64_t col, float x, float y)
{
    int64_t at = (g.sum ? t.group * g.s_c : 0) + (t.row + row) * g.ldc + t.col + col;
    if (g.beta != 0.0f) {
        x += g.beta * get_real(g.c, g.type_c, at);
        y += g.beta * get_real(g.c, g.type_c, at + 1);
    }
    if (g.type_c == ST_F32) *(float2 *)((float *)g.c + at) = make_float2(x, y);
    else *(uint32_t *)((st_bf16 *)g.c + at) = st_bf16_pair(x, y);
}

/* ---- tensor cores ---- */
DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
DEVICE void copy_16(uint32_t to, const void *from, bool there) /* zeros if not */
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
DEVICE void copies_sent(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> DEVICE void copies_done(void) { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

template <bool TURNED> DEVICE void load_matrices(uint32_t r[4], uint32_t from)
{
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
DEVICE void multiply(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* An operand as the kernel sees it: TILE outer indices (rows of a, columns of b) by k. ALONG: k is contiguous in memory, a
 * shared row is 64 k of one outer index; else the outer index is, and a shared row is 128 of them at one k. Chunks of 16 bytes
 * are swapped by the row's number, so that eight rows at one chunk lie in different banks. */
typedef struct operand { const st_bf16 *from; int64_t step; int32_t outer, k; uint32_t to; } operand;

/* What this thread copies of every stage: 8 chunks. */
template <bool ALONG>
DEVICE operand operand_of(const void *data, int64_t ld, int64_t first, int64_t k_first, int32_t outer, int32_t k)
{
    int row = threadIdx.x / (ALONG ? 8 : 16), chunk = threadIdx.x % (ALONG ? 8 : 16);
    operand o;
    int64_t from = ALONG ? (first + row) * ld + k_first : (k_first + row) * ld + first;
    o.from = (const st_bf16 *)data + from + chunk * 8;
    o.step = (ALONG ? 16 : 8) * ld;
    o.outer = outer - (ALONG ? row : chunk * 8);
    o.k = k - (ALONG ? chunk * 8 : row);
    o.to = (uint32_t)(row * (ALONG ? 128 : 256) + ((chunk ^ (row & 7)) << 4));
    return o;
}
/* Sends the next stage; `base` holds data whatever is out of range, which is not read. */
template <bool ALONG> DEVICE void send(operand &o, int64_t ld, const void *base, uint32_t stage)
{
#pragma unroll
    for (int j = 0; j < 8; j++) {
        bool there = ALONG ? o.outer > 16 * j && o.k > 0 : o.outer > 0 && o.k > 8 * j;
        copy_16(stage + o.to + j * 2048, there ? o.from + j * o.step : base, there);
    }
    o.from += ALONG ? DEEP : DEEP * ld;
    o.k -= DEEP;
}

/* 16 outer indices from `outer`, 16 k from `k`, of a stage. For a: {low, high} outer, then k; for b: {low, high} k, then
 * outer. */
template <bool ALONG, bool IS_A> DEVICE void fragment(uint32_t r[4], uint32_t stage, int outer, int k)
{
    int lane = threadIdx.x % 32, in = lane & 7, first = lane >> 3 & 1, second = lane >> 4;
    int high_outer = IS_A ? first : second, high_k = IS_A ? second : first;
    int row = ALONG ? outer + high_outer * 8 + in : k + high_k * 8 + in;
    int chunk = ALONG ? k / 8 + high_k : outer / 8 + high_outer;
    load_matrices<!ALONG>(r, stage + (uint32_t)(row * (ALONG ? 128 : 256) + ((chunk ^ in) << 4)));
}

template <bool A_ALONG, bool B_ALONG> DEVICE void multiply_stage(float c[4][8][4], uint32_t stage, int row, int col)
{
#pragma unroll
    for (int k = 0; k < DEEP; k += 16) {
        uint32_t a[4][4], b[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) fragment<A_ALONG, true>(a[i], stage, row + 16 * i, k);
#pragma unroll
        for (int i = 0; i < 4; i++) fragment<B_ALONG, false>(b[i], stage + OPERAND_BYTES, col + 16 * i, k);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) multiply(c[i][j], a[i], b[j / 2] + j % 2 * 2);
    }
}

DEVICE void put_tile(const cuda_grouped &g, const grouped_tile &t, float c[4][8][4], int row, int col)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            int y = row + 16 * i + lane / 4, x = col + 8 * j + lane % 4 * 2;
            if (x >= t.cols) continue;
            if (y < t.rows) put_pair(g, t, y, x, c[i][j][0], c[i][j][1]);
            if (y + 8 < t.rows) put_pair(g, t, y + 8, x, c[i][j][2], c[i][j][3]);
        }
}

/* 4 warps of 64 x 64 */
template <bool A_ALONG, bool B_ALONG>
static __global__ void __launch_bounds__(TILE_THREADS, 2)
    tensor_kernel(const __grid_constant__ cuda_grouped g, st_cuda_faults faults)
{
    extern __shared__ __align__(1024) char shared[];
    grouped_tile t;
    if (!find_tile<TILE, TILE_THREADS>(g, &t, faults)) return;
    const st_bf16 *b_group = (const st_bf16 *)g.b + (g.sum ? 0 : t.group * g.s_b);
    operand a = operand_of<A_ALONG>(g.a, g.lda, t.a_first, t.k_first, t.rows, t.k),
            b = operand_of<B_ALONG>(b_group, g.ldb, t.col, t.k_first, t.cols, t.k);
    uint32_t base = shared_address(shared);
    int warp = threadIdx.x / 32, row = warp / 2 * 64, col = warp % 2 * 64, steps = (t.k + DEEP - 1) / DEEP;
    float c[4][8][4] = {};
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) {
            send<A_ALONG>(a, g.lda, g.a, base + s * STAGE_BYTES);
            send<B_ALONG>(b, g.ldb, g.b, base + s * STAGE_BYTES + OPERAND_BYTES);
        }
        copies_sent();
    }
    for (int step = 0, slot = 0, next = STAGES - 1; step < steps; step++) {
        copies_done<STAGES - 2>();
        __syncthreads(); /* this step's stage is there for all; the one sent into now has been read by all */
        if (step + STAGES - 1 < steps) {
            send<A_ALONG>(a, g.lda, g.a, base + next * STAGE_BYTES);
            send<B_ALONG>(b, g.ldb, g.b, base + next * STAGE_BYTES + OPERAND_BYTES);
        }
        copies_sent();
        multiply_stage<A_ALONG, B_ALONG>(c, base + slot * STAGE_BYTES, row, col);
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    put_tile(g, t, c, row, col);
}

/* ---- plain ---- */
/* Elements (i, k) of a and (k, j) of b of the tile, through strides. */
typedef struct plain_operand { const void *data; int64_t first, s_outer, s_k; } plain_operand;

DEVICE void fill_plain(float to[PLAIN_DEEP][PLAIN + 4], const plain_operand &o, int32_t type, int32_t outer, int32_t k_left)
{
    bool along = o.s_k == 1; /* neighbouring threads read neighbouring elements */
    for (int i = threadIdx.x; i < PLAIN * PLAIN_DEEP; i += PLAIN_THREADS) {
        int k = along ? i % PLAIN_DEEP : i / PLAIN, x = along ? i / PLAIN_DEEP : i % PLAIN;
        to[k][x] = x < outer && k < k_left ? get_real(o.data, type, o.first + x * o.s_outer + k * o.s_k) : 0.0f;
    }
}

static __global__ void __launch_bounds__(PLAIN_THREADS)
    plain_kernel(const __grid_constant__ cuda_grouped g, st_cuda_faults faults)
{
    __shared__ __align__(16) float a[PLAIN_DEEP][PLAIN + 4], b[PLAIN_DEEP][PLAIN + 4];
    grouped_tile t;
    if (!find_tile<PLAIN, PLAIN_THREADS>(g, &t, faults)) return;
    plain_operand oa = {g.a, t.a_first * g.lda, g.lda, 1}, ob = {g.b, t.group * g.s_b + t.col, 1, g.ldb};
    if (g.sum) {
        oa = {g.a, t.k_first * g.lda + t.a_first, 1, g.lda};
        ob = {g.b, t.k_first * g.ldb + t.col, 1, g.ldb};
    } else if (g.trans_b) {
        ob = {g.b, t.group * g.s_b + t.col * g.ldb, g.ldb, 1};
    }
    int row = threadIdx.x / 16 * EACH, col = threadIdx.x % 16 * EACH;
    float c[EACH][EACH] = {};
    for (int32_t k = 0; k < t.k; k += PLAIN_DEEP) {
        fill_plain(a, oa, g.type, t.rows, t.k - k);
        fill_plain(b, ob, g.type, t.cols, t.k - k);
        oa.first += PLAIN_DEEP * oa.s_k;
        ob.first += PLAIN_DEEP * ob.s_k;
        __syncthreads();
#pragma unroll
        for (int d = 0; d < PLAIN_DEEP; d++) {
            float4 x = *(const float4 *)&a[d][row], y = *(const float4 *)&b[d][col];
            const float u[EACH] = {x.x, x.y, x.z, x.w}, v[EACH] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++) c[i][j] = fmaf(u[i], v[j], c[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (row + i < t.rows && col + j < t.cols) put_sum(g, t, row + i, col + j, c[i][j]);
}

/* ---- entry ---- */
static bool on_16(const void *p, int64_t ld, int64_t s, int64_t size)
{
    return ((uintptr_t)p | (uintptr_t)(ld * size) | (uintptr_t)(s * size)) % 16 == 0;
}
/* Chunks of 16 bytes lie inside the operands, pairs inside the result. */
static bool for_tensor_cores(const cuda_grouped *g)
{
    int64_t size_c = g->type_c == ST_F32 ? 4 : 2;
    return g->type == ST_BF16 && g->n % 8 == 0 && (g->sum ? g->m : g->k) % 8 == 0 && on_16(g->a, g->lda, 0, 2) &&
           on_16(g->b, g->ldb, g->sum ? 0 : g->s_b, 2) && on_16(g->c, g->ldc, g->sum ? g->s_c : 0, size_c);
}
/* All tiles there may be; those behind the last row of the last group return at once. */
static unsigned tiles_of(const cuda_grouped *g, int64_t size)
{
    int64_t rows = g->sum ? g->groups * cuda_div_up(g->m, size) : cuda_div_up(g->rows, size) + g->groups;
    return (unsigned)(rows * cuda_div_up(g->n, size));
}

template <bool A_ALONG, bool B_ALONG> static int launch(const st_queue *q, const cuda_grouped *g)
{
    ST_TRY(st_cuda_shared(q, "grouped", (const void *)tensor_kernel<A_ALONG, B_ALONG>, SHARED_BYTES));
    tensor_kernel<A_ALONG, B_ALONG>
        <<<tiles_of(g, TILE), TILE_THREADS, SHARED_BYTES, st_cuda_stream(q)>>>(*g, st_cuda_faults_of(q));
    return ST_OK;
}

extern "C" int cuda_run_grouped(const st_queue *q, const cuda_grouped *g)
{
    if (!for_tensor_cores(g))
        plain_kernel<<<tiles_of(g, PLAIN), PLAIN_THREADS, 0, st_cuda_stream(q)>>>(*g, st_cuda_faults_of(q));
    else ST_TRY((g->sum ? launch<false, false> : g->trans_b ? launch<true, true> : launch<true, false>)(q, g));
    return st_cuda_launched(q, "grouped");
}
