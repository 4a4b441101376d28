/* SPDX-License-Identifier: Apache-2.0 */
/* product.c - matrix products over fixed tiles.
 *
 * A product is cut into tiles by its sizes alone, so the result does not depend on the number of threads. With a large
 * right side each tile is one single-threaded OpenBLAS call. Measured on two cores (f32): tiles of 256 rows by up to
 * 1024 columns reach 90 to 95 % of one call that owns both cores; 64 x 64 only 55 %, because every call packs its
 * operands again. A small right side is packed once for all tiles, see kernel_panel.c. */
#include "cpu.h"
#include <cblas.h>

enum { TILE_ROWS = 256, TILE_COLS = 1024, TILE_LEAST = 64, ROUND = 16 };
/* Long sums (k) of small results are cut into parts: more pieces, and less rounding in f32. */
enum { SPLIT_FROM = 4096, SPLIT_PART = 2048, SPLIT_MOST = 16, SPLIT_SIZE = 65536 };

/* Panels. PANEL_BYTES: what a right side may take that every piece reads as a whole. PANEL_ROWS: a left side so low
 * that pieces of columns alone do, whatever the right side takes. PANEL_FLOPS: operations worth a piece. PANEL_COLS:
 * columns of a piece of such a product, and the least that pay for turning a left side. PACK_PIECE: elements packed. */
enum { PANEL_BYTES = 2 << 20, PANEL_ROWS = 192, PANEL_FLOPS = 3000000, PANEL_PIECES = 64, PANEL_COLS = 64 };
enum { PANEL_LEAST = 16, PACK_PIECE = 16384, PAGE = 4096 };

static int64_t rounded(int64_t n, int64_t to) { return cpu_div_up(n, to) * to; }
static int64_t balanced(int64_t n, int64_t cuts) { return cpu_max(1, cpu_div_up(cpu_div_up(n, cuts), ROUND) * ROUND); }

/* Pieces worth starting for a product of that many operations: a piece of a MFLOP takes about ten microseconds. */
static int64_t pieces_for(double flops) { return flops < 2e6 ? 1 : flops < 4e6 ? 2 : flops < 256e6 ? 4 : 8; }

/* The product itself goes straight to c or aux where the steps after it allow that. */
static bool needs_target(const cpu_product *p)
{
    return p->beta != 0 && !p->aux && (p->bias || p->act != ST_ACT_NONE);
}

/* A right side is read where it lies when its rows are whole panels and do not all fall on the same places of a
 * cache. */
static int32_t suits_panels(const cpu_product *p)
{
    int64_t size = (int64_t)cpu_real_size(p->real), wide = rounded(p->n, CPU_PANEL_ALIGN);
    bool direct = !p->trans_b && p->n == wide && p->ldb * size % PAGE != 0, small = wide <= PANEL_BYTES / size / p->k;
    if (p->batch != 1 || p->parts != 1 || p->m < 2 * PANEL_LEAST || p->n < PANEL_LEAST || needs_target(p)) return 0;
    if (direct && (small || p->m <= PANEL_ROWS)) return CPU_PANELS_DIRECT;
    return small ? CPU_PANELS_PACKED : 0;
}

/* Pieces of one size that tile rows and panels divide. Cutting rows first reads the left side once, cutting columns
 * first a large right side. */
static void plan_panels(cpu_product *p, double flops)
{
    int64_t want = flops < PANEL_FLOPS / 2 ? 1 : cpu_max(2, cpu_min(PANEL_PIECES, (int64_t)(flops / PANEL_FLOPS)));
    bool large = p->n * p->k > PANEL_BYTES / (int64_t)cpu_real_size(p->real);
    p->tile_m = large ? p->m : rounded(cpu_div_up(p->m, want), CPU_PANEL_STEP);
    want = large ? p->n / PANEL_COLS
                 : cpu_min(cpu_div_up(want, cpu_div_up(p->m, p->tile_m)), p->n / PANEL_COLS);
    p->tile_n = rounded(cpu_div_up(p->n, cpu_max(1, want)), CPU_PANEL_ALIGN);
}

void cpu_product_plan(cpu_product *p, bool panels)
{
    double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    int64_t row_cuts = cpu_max(1, cpu_div_up(p->m, TILE_ROWS)), col_cuts = cpu_max(1, cpu_div_up(p->n, TILE_COLS));
    int64_t want = pieces_for(flops);
    if (row_cuts > 1 && row_cuts < 16 && row_cuts % 2) row_cuts++; /* an odd few leaves one of two threads idle */
    p->tile_m = balanced(p->m, row_cuts);
    p->tile_n = balanced(p->n, col_cuts);
    p->parts = 1;
    p->per = 1;
    if (p->batch > 1) {
        want = cpu_div_up(want, p->batch);
        p->per = cpu_max(1, cpu_min(p->batch, (int64_t)(1e6 / cpu_max(1, (int64_t)flops))));
    }
    int64_t pieces = cpu_div_up(p->m, p->tile_m) * cpu_div_up(p->n, p->tile_n);
    if (p->k >= SPLIT_FROM && p->batch == 1 && p->m * p->n <= SPLIT_SIZE)
        p->parts = cpu_min(SPLIT_MOST, p->k / SPLIT_PART);
    p->panels = panels && p->k > 0 ? suits_panels(p) : 0;
    if (p->panels) {
        plan_panels(p, flops);
        return;
    }
    while (pieces * p->parts < want) {
        int64_t *side = p->tile_m >= p->tile_n ? &p->tile_m : &p->tile_n;
        if (*side < 2 * TILE_LEAST) break;
        *side = balanced(*side, 2);
        pieces = cpu_div_up(p->m, p->tile_m) * cpu_div_up(p->n, p->tile_n);
    }
}

size_t cpu_product_work(const cpu_product *p)
{
    if (p->panels == CPU_PANELS_DIRECT) return 0;
    if (p->panels) return (size_t)(rounded(p->n, CPU_PANEL_ALIGN) * p->k) * cpu_real_size(p->real);
    if (p->parts > 1) return (size_t)(p->parts * p->m * p->n) * cpu_real_size(p->real);
    return needs_target(p) ? (size_t)(p->batch * p->m * p->n) * cpu_real_size(p->real) : 0;
}

void cpu_blas(int real, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, double alpha, const void *a,
              int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc)
{
    CBLAS_TRANSPOSE ta = trans_a ? CblasTrans : CblasNoTrans, tb = trans_b ? CblasTrans : CblasNoTrans;
    lda = cpu_max(lda, cpu_max(1, trans_a ? m : k)); /* a single row may have any stride */
    ldb = cpu_max(ldb, cpu_max(1, trans_b ? k : n));
    ldc = cpu_max(ldc, cpu_max(1, n));
    if (m <= 0 || n <= 0) return;
    if (real == CPU_F32)
        cblas_sgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)k, (float)alpha, a, (blasint)lda, b,
                    (blasint)ldb, (float)beta, c, (blasint)ldc);
    else
        cblas_dgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)k, alpha, a, (blasint)lda, b, (blasint)ldb,
                    beta, c, (blasint)ldc);
}

typedef struct product_job { const cpu_product *p; const cpu_table *table; int64_t cols; } product_job;

static void finish_tile(const product_job *job, const cpu_product *p, const void *target, int64_t ldt, int64_t i,
                        int64_t j, int64_t rows, int64_t cols, int64_t entry)
{
    size_t size = cpu_real_size(p->real);
    void *aux = p->aux ? cpu_at(p->aux, entry * p->s_aux + i * p->ldaux + j, size) : NULL;
    job->table->epilogue(rows, cols, target, ldt, p->bias ? cpu_at(p->bias, j, size) : NULL, aux, p->ldaux,
                         cpu_at(p->c, entry * p->s_c + i * p->ldc + j, size), p->ldc, p->act, p->beta);
}

static void one_tile(const product_job *job, int64_t entry, int64_t i, int64_t j)
{
    const cpu_product *p = job->p;
    size_t size = cpu_real_size(p->real);
    int64_t rows = cpu_min(p->tile_m, p->m - i), cols = cpu_min(p->tile_n, p->n - j), ldt = p->ldc;
    const void *a = cpu_at(p->a, entry * p->s_a + (p->trans_a ? i : i * p->lda), size);
    const void *b = cpu_at(p->b, entry * p->s_b + (p->trans_b ? j * p->ldb : j), size);
    void *target = cpu_at(p->c, entry * p->s_c + i * p->ldc + j, size);
    if (!p->bias && !p->aux && p->act == ST_ACT_NONE) {
        cpu_blas(p->real, p->trans_a, p->trans_b, rows, cols, p->k, p->alpha, a, p->lda, b, p->ldb, p->beta, target,
                 ldt);
        return;
    }
    if (p->aux) {
        target = cpu_at(p->aux, entry * p->s_aux + i * p->ldaux + j, size);
        ldt = p->ldaux;
    } else if (p->beta != 0) {
        target = cpu_at(p->work, (entry * p->m + i) * p->n + j, size);
        ldt = p->n;
    }
    cpu_blas(p->real, p->trans_a, p->trans_b, rows, cols, p->k, p->alpha, a, p->lda, b, p->ldb, 0, target, ldt);
    finish_tile(job, p, target, ldt, i, j, rows, cols, entry);
}

static void tile_piece(void *arg, int64_t piece)
{
    const product_job *job = arg;
    const cpu_product *p = job->p;
    int64_t tiles = cpu_div_up(p->m, p->tile_m) * job->cols, tile = piece % tiles, first = piece / tiles * p->per;
    for (int64_t e = first; e < cpu_min(first + p->per, p->batch); e++)
        one_tile(job, e, tile / job->cols * p->tile_m, tile % job->cols * p->tile_n);
}

/* Part x of k of one tile, into its own matrix of the workspace. */
static void part_piece(void *arg, int64_t piece)
{
    const product_job *job = arg;
    const cpu_product *p = job->p;
    size_t size = cpu_real_size(p->real);
    int64_t part = piece % p->parts, tile = piece / p->parts;
    int64_t i = tile / job->cols * p->tile_m, j = tile % job->cols * p->tile_n;
    int64_t rows = cpu_min(p->tile_m, p->m - i), cols = cpu_min(p->tile_n, p->n - j);
    int64_t k0 = p->k * part / p->parts, k1 = p->k * (part + 1) / p->parts;
    const void *a = cpu_at(p->a, p->trans_a ? k0 * p->lda + i : i * p->lda + k0, size);
    const void *b = cpu_at(p->b, p->trans_b ? j * p->ldb + k0 : k0 * p->ldb + j, size);
    cpu_blas(p->real, p->trans_a, p->trans_b, rows, cols, k1 - k0, p->alpha, a, p->lda, b, p->ldb, 0,
             cpu_at(p->work, (part * p->m + i) * p->n + j, size), p->n);
}

static void sum_piece(void *arg, int64_t piece)
{
    const product_job *job = arg;
    const cpu_product *p = job->p;
    int64_t i = piece * TILE_LEAST, rows = cpu_min(TILE_LEAST, p->m - i);
    job->table->add_parts(p->parts, p->m * p->n, i * p->n, rows * p->n, p->work);
    finish_tile(job, p, cpu_at(p->work, i * p->n, cpu_real_size(p->real)), p->n, i, 0, rows, p->n, 0);
}

/* ---- a small right side ---- */
static int64_t pack_columns(const cpu_product *p) /* of a piece of packing */
{
    return rounded(cpu_max(1, PACK_PIECE / p->k), CPU_PANEL_ALIGN);
}

static void pack_piece(void *arg, int64_t piece)
{
    const product_job *job = arg;
    int64_t cols = pack_columns(job->p);
    job->table->pack_panels(job->p, piece * cols, cpu_min(job->p->n, (piece + 1) * cols));
}

static void panel_piece(void *arg, int64_t piece)
{
    const product_job *job = arg;
    const cpu_product *p = job->p;
    int64_t i = piece / job->cols * p->tile_m, j = piece % job->cols * p->tile_n;
    int64_t end = cpu_min(i + p->tile_m, p->m), j_end = cpu_min(j + p->tile_n, p->n);
    bool plain = !p->bias && !p->aux && p->act == ST_ACT_NONE;
    void *target = p->aux ? p->aux : p->c;
    int64_t ldt = p->aux ? p->ldaux : p->ldc;
    for (; i < end; i += CPU_PANEL_ROWS) {
        int64_t rows = cpu_min(CPU_PANEL_ROWS, end - i);
        job->table->panel_piece(p, i, rows, j, j_end, target, ldt, plain ? p->beta : 0);
        if (!plain)
            finish_tile(job, p, cpu_at(target, i * ldt + j, cpu_real_size(p->real)), ldt, i, j, rows, j_end - j, 0);
    }
}

void cpu_product_run(const st_queue *q, const cpu_product *p)
{
    product_job job = {p, cpu_table_of(q, p->real), cpu_div_up(p->n, p->tile_n)};
    int64_t tiles = cpu_div_up(p->m, p->tile_m) * job.cols;
    if (p->panels) {
        if (p->work) st_cpu_run(q, cpu_div_up(p->n, pack_columns(p)), pack_piece, &job);
        st_cpu_run(q, tiles, panel_piece, &job);
    } else if (p->parts > 1) {
        st_cpu_run(q, tiles * p->parts, part_piece, &job);
        st_cpu_run(q, cpu_div_up(p->m, TILE_LEAST), sum_piece, &job);
    } else {
        st_cpu_run(q, tiles * cpu_div_up(p->batch, p->per), tile_piece, &job);
    }
}
