/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - inside the cpu backend: the device, checks, work cut into pieces, and the table of kernels.
 *
 * Three layers. cpu.c: device, memory, queue. ops_*.c: the entries of st_ops, plain C: check, take scratch, count,
 * return when planning, then call kernels. kernel_*.c: arithmetic, written once for `T` and built for float and
 * double at every instruction set level; they cut work into pieces by size alone, so results do not depend on the
 * number of threads. */
#ifndef CPU_H
#define CPU_H
#include <strata/backend.h>
#include <strata/cpu.h>
#include "../check/check.h"
#include "team.h"
#include <stdbool.h>

enum { CPU_F32 = 0, CPU_F64, CPU_REALS };

/* ---- checks: of shapes in ../check, the rest in check.c ---- */
/* t is there and of a type the backend computes in: real = CPU_F32 or CPU_F64. */
int cpu_want_real(const st_queue *, const char *op, const char *name, const st_tensor *t, int *real);
void cpu_fault(const st_queue *, uint32_t code, int64_t a, int64_t b); /* the first one stays */

/* ---- views ---- */
/* A 2-d or 3-d tensor as (rows, heads, cols); strides in elements. data NULL: absent. */
typedef struct cpu_view { void *data; int64_t rows, heads, cols, s_row, s_head; } cpu_view;
cpu_view cpu_view_of(const st_tensor *);

/* Up to five tensors of one shape, walked together: runs of `inner` elements. Neighbouring dimensions are merged
 * where all tensors allow it. A piece is either `rows_per` whole runs or 1 / `chunks` of one run. */
typedef struct cpu_walk {
    int32_t n;
    int64_t inner, rows, dim[ST_DIMS - 1], stride[5][ST_DIMS - 1];
    int64_t last[5]; /* stride inside a run: 1 except in copy and fill */
    int64_t chunks, rows_per, pieces;
    void *data[5];
    size_t size[5]; /* bytes of an element */
} cpu_walk;
void cpu_walk_make(cpu_walk *, int n, const st_tensor *const *t); /* t[k] absent: data[k] NULL */
ST_FN void cpu_walk_piece(const cpu_walk *w, int64_t piece, int64_t *row, int64_t *row_end, int64_t *j, int64_t *j_end)
{
    if (w->chunks > 1) {
        int64_t part = piece % w->chunks;
        *row = piece / w->chunks;
        *row_end = *row + 1;
        *j = w->inner * part / w->chunks;
        *j_end = w->inner * (part + 1) / w->chunks;
    } else {
        *row = piece * w->rows_per;
        *row_end = *row + w->rows_per < w->rows ? *row + w->rows_per : w->rows;
        *j = 0;
        *j_end = w->inner;
    }
}
ST_FN void *cpu_walk_at(const cpu_walk *w, int k, int64_t row)
{
    int64_t i2 = row % w->dim[2], i1 = row / w->dim[2] % w->dim[1], i0 = row / w->dim[2] / w->dim[1];
    if (!w->data[k]) return NULL;
    return (char *)w->data[k] +
           (i0 * w->stride[k][0] + i1 * w->stride[k][1] + i2 * w->stride[k][2]) * (int64_t)w->size[k];
}

/* ---- arguments of kernels that need more than the op's own struct ---- */
typedef struct cpu_norm {
    int32_t kind, add;
    double eps;
    cpu_view r, y, r_out, n, rstd, mean, dn, dr;
    const void *w, *b;
    void *dw, *db;
    void *factor, *shift; /* scratch [cols]: what a normed value is multiplied by, and what is added               */
    double *part;         /* scratch [pieces][2][cols]: sums for dw and db of the rows of one piece                */
    int64_t rows, rows_per, pieces;
} cpu_norm;
/* Rows of q or of k, cut at the ends of spans and then into blocks: a span covers a block or does not touch it. */
enum { CPU_ATTN_BLOCK = 64, CPU_ATTN_LANES = 64, CPU_ATTN_MOST = 256 /* columns of a head */ };
typedef struct cpu_block { int32_t first, n; } cpu_block;
typedef struct cpu_cover { int32_t begin, end, reach, span; } cpu_cover; /* reach: largest end up to here */
typedef struct cpu_blocks {
    cpu_block *block;
    cpu_cover *cover; /* the spans that are not empty, by begin */
    int64_t n, n_covers;
} cpu_blocks;
typedef struct cpu_attn {
    cpu_view q, k, v, out, lse, d_out, dq, dk, dv;
    const int32_t *spans;         /* [4][n_spans], row stride s_span */
    int64_t s_span, n_spans;
    double scale;
    int32_t causal;
    void *delta;                  /* scratch [tokens][heads]: out . d_out */
    cpu_blocks q_blocks, k_blocks;
    bool *whole;                  /* [n_spans]: the span's keys are one block, so dq comes with dk and dv; or NULL */
    void *room;                   /* scratch [lanes][room_size] elements: as many threads can take part */
    int64_t lanes, room_size;
} cpu_attn;
/* Covers [*from, *to) are all that may hold row `first`; those with end > first do. */
void cpu_covers_of(const cpu_blocks *, int64_t first, int64_t *from, int64_t *to);
typedef struct cpu_xent {
    void *logits;                 /* [rows][words]; becomes the gradient */
    int64_t rows, words, first;
    const int32_t *live, *labels; /* live [rows]: row of h; labels by row of h */
    void *max, *sum;              /* acc [rows], [rows][2]: sum of exp, exponent of the label's word */
    double *nll;                  /* [rows] */
    int32_t *best;                /* [rows] or NULL: word of this rank with the largest logit */
    double factor;
    int32_t grad;
} cpu_xent;
enum { CPU_XENT_MAX = 1, CPU_XENT_SUM = 2, CPU_XENT_GRAD = 4 };

typedef struct cpu_product {
    int32_t real, act, trans_a, trans_b;
    int64_t m, n, k, batch;
    const void *a, *b, *bias;
    void *c, *aux;
    int64_t lda, ldb, ldc, ldaux, s_a, s_b, s_c, s_aux; /* row strides; strides between entries of the batch */
    double alpha, beta;
    int64_t tile_m, tile_n, parts, per; /* set by cpu_product_plan: parts of k; batch entries in a piece */
    int32_t panels;                     /* CPU_PANELS_*, see kernel_panel.c; 0: tiles are BLAS calls      */
    void *work;                                         /* scratch of cpu_product_work bytes; NULL when that is 0 */
} cpu_product;
/* Panels: all widths divide ALIGN, all tile heights STEP; ROWS are handed to panel_piece at once, at most. */
enum { CPU_PANELS_PACKED = 1, CPU_PANELS_DIRECT }; /* b is packed once for all pieces; is read where it lies */
enum { CPU_PANEL_ALIGN = 32, CPU_PANEL_STEP = 12, CPU_PANEL_ROWS = 48 };

/* All kernels: name, parameters. One table per type and level. */
#define CPU_KERNELS(X) \
    X(epilogue, (int64_t rows, int64_t cols, const void *p, int64_t ldp, const void *bias, void *aux, int64_t ldaux, \
                 void *c, int64_t ldc, int act, double beta)) \
    X(pack_panels, (const cpu_product *, int64_t begin, int64_t end)) \
    X(panel_piece, (const cpu_product *, int64_t i, int64_t rows, int64_t j, int64_t j_end, void *target, \
                    int64_t ldt, double beta)) \
    X(add_parts, (int64_t parts, int64_t distance, int64_t first, int64_t n, void *p)) \
    X(norm, (const st_queue *, const cpu_norm *)) \
    X(norm_bwd, (const st_queue *, const cpu_norm *)) \
    X(rope, (const st_queue *, const cpu_view *x, const st_rotary *, int inverse)) \
    X(colsum, (const st_queue *, const cpu_view *x, double *part, int64_t rows_per, int64_t pieces, void *out)) \
    X(sumsq, (const st_queue *, const cpu_walk *, double *part, double weight, void *cell)) \
    X(attention, (const st_queue *, const cpu_attn *)) \
    X(attention_bwd, (const st_queue *, const cpu_attn *)) \
    X(lookup_bwd, (const st_queue *, const st_lookup *)) \
    X(combine, \
      (const st_queue *, const st_tensor *src, const st_tensor *index, const st_tensor *w, const st_tensor *dst)) \
    X(add_rows, (const st_queue *, int64_t n, const int32_t *row, const void *src, int64_t lds, void *dst, \
                 int64_t ldd, int64_t cols)) \
    X(xent, (const st_queue *, const cpu_xent *, int stages)) \
    X(adamw, (const st_queue *, const st_adamw *, int64_t n)) \
    X(glu, (const st_queue *, const cpu_walk *, int act)) \
    X(glu_bwd, (const st_queue *, const cpu_walk *, int act)) \
    X(act, (const st_queue *, const cpu_walk *, int act)) \
    X(act_bwd, (const st_queue *, const cpu_walk *, int act)) \
    X(add, (const st_queue *, const cpu_walk *, double a, double b))

#define CPU_MEMBER(name, args) void (*name) args;
typedef struct cpu_table { CPU_KERNELS(CPU_MEMBER) } cpu_table;
extern const cpu_table cpu_tables_level1[CPU_REALS], cpu_tables_level3[CPU_REALS], cpu_tables_level4[CPU_REALS];

/* ---- device (cpu.c) ---- */
typedef struct cpu_event { struct cpu_event *next; double ms; } cpu_event;
struct st_device {
    const st_host *host;
    const cpu_table *tables; /* [CPU_REALS] */
    int32_t level;
    cpu_team *team;
    st_cpu_pool *pool;       /* the team's, what queues carry */
    cpu_event *events;       /* freed on close */
};
ST_FN const cpu_table *cpu_table_of(const st_queue *q, int real)
{
    return &((const st_device *)q->device)->tables[real];
}

/* ---- products (product.c): c = act(alpha a b + bias) + beta c over fixed tiles, one BLAS thread in each ---- */
void cpu_product_plan(cpu_product *, bool panels); /* panels: where they suit; needs the workspace */
size_t cpu_product_work(const cpu_product *);
void cpu_product_run(const st_queue *, const cpu_product *);
/* One single-threaded product: c = alpha a b + beta c. */
void cpu_blas(int real, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, double alpha, const void *a,
              int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc);
ST_FN size_t cpu_real_size(int real) { return real == CPU_F32 ? sizeof(float) : sizeof(double); }
ST_FN int32_t cpu_real_type(int real) { return real == CPU_F32 ? ST_F32 : ST_F64; }
ST_FN int64_t cpu_div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
ST_FN int64_t cpu_min(int64_t a, int64_t b) { return a < b ? a : b; }
ST_FN int64_t cpu_max(int64_t a, int64_t b) { return a > b ? a : b; }
ST_FN void *cpu_at(const void *p, int64_t elements, size_t size)
{
    return (char *)(uintptr_t)p + elements * (int64_t)size;
}

/* dst[i] = src[index[i]] without checks (ops_lookup.c) */
void cpu_gather_rows(const st_queue *, const st_tensor *src, const st_tensor *index, const st_tensor *dst);

/* ---- entries ---- */
int cpu_gemm(const st_queue *, const st_gemm *);
int cpu_grouped(const st_queue *, const st_grouped *);
int cpu_norm_op(const st_queue *, const st_norm *);
int cpu_norm_bwd_op(const st_queue *, const st_norm_bwd *);
int cpu_rope(const st_queue *, const st_rope *);
int cpu_qk_norm(const st_queue *, const st_qk_norm *);
int cpu_qk_norm_bwd(const st_queue *, const st_qk_norm *);
int cpu_colsum(const st_queue *, const st_tensor *x, const st_tensor *out);
int cpu_sumsq(const st_queue *, const st_tensor *x, double weight, const st_tensor *cell);
int cpu_attention(const st_queue *, const st_attn *);
int cpu_attention_bwd(const st_queue *, const st_attn *);
int cpu_attention_gated_bwd(const st_queue *, const st_attn_gated *);
int cpu_lookup(const st_queue *, const st_lookup *);
int cpu_lookup_bwd(const st_queue *, const st_lookup *);
int cpu_gather(const st_queue *, const st_tensor *src, const st_tensor *index, const st_tensor *dst);
int cpu_scatter(const st_queue *, const st_tensor *src, const st_tensor *index, const st_tensor *dst);
int cpu_combine(const st_queue *, const st_tensor *src, const st_tensor *index, const st_tensor *w,
                const st_tensor *dst);
int cpu_xent_op(const st_queue *, const st_xent *);
int cpu_adamw(const st_queue *, const st_adamw *);
int cpu_adamw_rounded(const st_queue *, const st_adamw_rounded *);
int cpu_glu(const st_queue *, int act, const st_tensor *g, const st_tensor *u, const st_tensor *y);
int cpu_glu_bwd(const st_queue *, int act, const st_tensor *g, const st_tensor *u, const st_tensor *dy,
                const st_tensor *dg, const st_tensor *du);
int cpu_act(const st_queue *, int act, const st_tensor *x, const st_tensor *y);
int cpu_act_bwd(const st_queue *, int act, const st_tensor *x, const st_tensor *dy, const st_tensor *dx);
int cpu_add(const st_queue *, double a, const st_tensor *x, double b, const st_tensor *y, const st_tensor *z);
int cpu_copy(const st_queue *, const st_tensor *src, const st_tensor *dst);
int cpu_fill(const st_queue *, const st_tensor *dst, double value);
#endif
