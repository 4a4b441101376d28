/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - inside the cuda backend: what the logic module (plain C, loads everywhere) and the kernel module (the only one
 * that knows the CUDA runtime) share. */
#ifndef CUDA_H
#define CUDA_H
#include <strata/backend.h>

enum { CUDA_IFACE = 3, CUDA_LANE_WORKSPACE = 32 << 20 }; /* of each queue, for the library of products: planned and taken */

typedef struct cuda_self { int32_t cudnn, pad; } cuda_self; /* keys of [run] */

/* Elements of up to CUDA_WALKED tensors of one shape, walked together: dim[ST_DIMS - 1] is the innermost. Dimensions that all
 * of them have without a gap are merged. wide: runs of 8 elements are contiguous and aligned in all of them. */
enum { CUDA_WALKED = 5, CUDA_WIDE = 8 };
typedef struct cuda_walk {
    int64_t n, dim[ST_DIMS], stride[CUDA_WALKED][ST_DIMS];
    void *data[CUDA_WALKED]; /* NULL: absent */
    int32_t type[CUDA_WALKED], wide;
} cuda_walk;

/* A tensor as (rows, heads, cols); strides in elements. data NULL: absent. */
typedef struct cuda_view { void *data; int64_t rows, heads, cols, s_row, s_head; int32_t type, pad; } cuda_view;

/* Elementwise work: z = f(x ...). */
enum { CUDA_GLU = 1, CUDA_GLU_BWD, CUDA_ACT, CUDA_ACT_BWD, CUDA_ADD };
typedef struct cuda_point { cuda_walk walk; int32_t what, act; float a, b; } cuda_point;

typedef struct cuda_norm {
    int32_t kind, add, wide, pad;
    double eps;
    cuda_view r, y, r_out, n, rstd, mean, dn, dr;
    const void *w, *b;
    int32_t w_type, b_type;
    float *dw, *db;
    double *part;               /* scratch [pieces][2][cols]: sums for dw and db of `per` rows */
    int64_t rows, per, pieces;
} cuda_norm;
typedef struct cuda_sums { cuda_view x; double *part; int64_t per, pieces; float *out; } cuda_sums;
typedef struct cuda_squares { cuda_walk walk; double *part, weight; int64_t pieces; float *cell; } cuda_squares;
typedef struct cuda_rope {
    cuda_view x;
    const float *cos, *sin;
    int64_t s_cos, s_sin, half;
    int32_t interleaved, inverse;
} cuda_rope;
/* Head norms and rotation of queries and keys. together: one kernel has it all. per, pieces: of tokens; part as norm's, the keys'
 * sums behind the queries'. */
typedef struct cuda_qk_side { cuda_view x, y, rstd, dy, dx; const void *w; float *dw; } cuda_qk_side;
typedef struct cuda_qk {
    int32_t kind, wide, together, interleaved;
    double eps;
    cuda_qk_side q, k;
    const float *cos, *sin;
    int64_t s_cos, s_sin, half, per, pieces;
    double *part;
} cuda_qk;
typedef struct cuda_adamw {
    void *master, *m, *v, *weight;
    const float *grad, *hyper, *clip, *skip, *step; /* step NULL: nothing is rounded at random */
    uint64_t seed;
    int64_t n, first;
    int32_t master_type, state_type, weight_type, pad;
} cuda_adamw;

/* c = act(alpha a b + bias) + beta c. The library computes into `target`; `finish` is what is left to do then. */
typedef struct cuda_product {
    const void *a, *b, *bias;
    void *c, *aux, *room;
    int64_t m, n, k, batch, lda, ldb, ldc, ldaux, s_a, s_b, s_c, s_aux;
    int32_t type, type_c, type_aux, type_bias, trans_a, trans_b, act, pad;
    double alpha;
    float beta;
} cuda_product;
/* Products of groups of rows: c[i] = a[i] b_e, b_e read as [k, n] with these strides; or b_e = a^T c (sum). */
typedef struct cuda_grouped {
    const void *a, *b;
    void *c;
    const int32_t *offset;
    int64_t groups, rows, m, n, k;            /* sum: c_e [m, n], k rows of the group; else c [rows, n] */
    int64_t lda, ldb, ldc, s_b, s_c;
    int32_t type, type_c, trans_b, sum;
    float beta;
} cuda_grouped;

/* Gradient of the table: places of `order` are cut into pieces. part [pieces][2][cols]: sums of the run that comes into a piece
 * and of the one that goes on behind it. */
enum { CUDA_LOOKUP_PIECE = 64 };
typedef struct cuda_lookup {
    cuda_view table, features, out, d_out, d_table, d_features;
    const int32_t *ids, *media, *order;
    float *part;
    int64_t first, n_order;
    int32_t uncut, pad; /* 1: the table is whole */
} cuda_lookup;
typedef struct cuda_move {
    const int32_t *index;
    const void *src;
    void *dst;
    int64_t n, limit, row_bytes, s_src, s_dst; /* entries of index, rows of the indexed side; bytes */
    int32_t scatter, unit;                     /* bytes moved at once */
} cuda_move;
typedef struct cuda_combine { cuda_view src, dst, w; const int32_t *index; int64_t s_index, n_index; } cuda_combine;

/* Cross-entropy. live [cap]: row of h that takes part, or -1 behind the last. The rest is about one chunk of rows, whose logits
 * have a stride in whole eights. WHOLE does all of it; a vocabulary cut over ranks is SEEn, the largest logits reduced, SHIFTed
 * to them, the sums reduced, and then comes the gradient: CUT. */
enum { CUDA_XENT_WHOLE = 1, CUDA_XENT_SEE, CUDA_XENT_SHIFT, CUDA_XENT_CUT };
typedef struct cuda_xent {
    const int32_t *rows, *labels;
    int32_t *live, *best, *best_out;
    void *logits, *dh_part;
    float *max, *own, *sum, *nll, *nll_out, *loss; /* sum [rows][2]: sum of exp, exponent of the label's word; nll [cap];
                                                    * own [rows]: this rank's largest, then its offer for the best word */
    const float *scale;
    double weight;
    int64_t n, cap, at, count, words, first, s_logits;
    cuda_view dh;
    int32_t type, grad, uncut, type_part;
} cuda_xent;

typedef struct cuda_attn {
    cuda_view q, k, v, out, lse, d_out, dq, dk, dv;
    const int32_t *spans; /* [4][n_spans], row stride s_span */
    int64_t s_span, n_spans, q_longest, k_longest; /* rows of one span at most */
    float *delta;         /* scratch [tokens][heads]: out . d_out */
    void *room;           /* scratch of cuda_attn_room(n_spans) bytes for a library; NULL: it must not run */
    float scale;
    int32_t causal, type, wide;
} cuda_attn;

/* Before the backward: delta; with a gate also d_out and d_gate, of dy. */
typedef struct cuda_delta { cuda_view out, d_out, gate, dy, d_gate; float *delta; int32_t wide, pad; } cuda_delta;

/* What a library of attention may use: lists of the spans, then its workspace (cuDNN 9.14 asks for 2.8 KB of 8 spans, 17 of 64). */
enum { CUDA_ATTN_FIRSTS = 5, CUDA_ATTN_LISTS = CUDA_ATTN_FIRSTS + 2 };
ST_FN size_t cuda_attn_list_bytes(int64_t spans) { return ((size_t)(spans + 1) * sizeof(int64_t) + 255) / 256 * 256; }
ST_FN size_t cuda_attn_workspace(int64_t spans) { return (16 << 10) + (size_t)spans * 512; }
ST_FN size_t cuda_attn_room(int64_t spans) { return CUDA_ATTN_LISTS * cuda_attn_list_bytes(spans) + cuda_attn_workspace(spans); }

#define CUDA_DEVICE_ENTRIES(X) \
    X(open, (const st_host *, int ordinal, const st_kernels *, const cuda_self *, st_device **, st_error *)) \
    X(alloc, (st_device *, uint32_t kind, size_t bytes, void **out)) \
    X(free, (st_device *, uint32_t kind, void *)) \
    X(queue, (st_device *, int priority, st_queue *)) \
    X(event, (st_device *, st_event **)) \
    X(record, (const st_queue *, st_event *)) \
    X(wait, (const st_queue *, st_event *)) \
    X(done, (st_event *)) \
    X(elapsed, (st_event *from, st_event *to, double *ms)) \
    X(copy, (const st_queue *, void *dst, const void *src, size_t)) \
    X(set, (const st_queue *, void *dst, int byte, size_t)) \
    X(sync, (st_device *, st_error *)) \
    X(capture_begin, (const st_queue *)) \
    X(capture_end, (const st_queue *, st_graph **, st_error *)) \
    X(replay, (const st_queue *, st_graph *)) \
    X(graph_free, (st_graph *)) \
    X(describe, (const st_device *, char *out, size_t n)) \
    X(memory, (const st_device *, size_t *left, size_t *all)) \
    X(range_push, (st_device *, const char *name)) \
    X(range_pop, (st_device *))

#define CUDA_OP_ENTRIES(X) \
    X(fill, (const st_queue *, const cuda_walk *, double value)) \
    X(copy_elements, (const st_queue *, const cuda_walk *)) \
    X(point, (const st_queue *, const cuda_point *)) \
    X(adamw, (const st_queue *, const cuda_adamw *)) \
    X(sumsq, (const st_queue *, const cuda_squares *)) \
    X(norm, (const st_queue *, const cuda_norm *)) \
    X(norm_bwd, (const st_queue *, const cuda_norm *)) \
    X(colsum, (const st_queue *, const cuda_sums *)) \
    X(rope, (const st_queue *, const cuda_rope *)) \
    X(product, (const st_queue *, const cuda_product *)) \
    X(grouped, (const st_queue *, const cuda_grouped *)) \
    X(lookup, (const st_queue *, const cuda_lookup *)) \
    X(lookup_table, (const st_queue *, const cuda_lookup *)) \
    X(lookup_features, (const st_queue *, const cuda_lookup *)) \
    X(move, (const st_queue *, const cuda_move *)) \
    X(combine, (const st_queue *, const cuda_combine *)) \
    X(xent_live, (const st_queue *, const cuda_xent *)) \
    X(xent_rows, (const st_queue *, const cuda_xent *, int stage)) \
    X(xent_add, (const st_queue *, const cuda_xent *)) \
    X(xent_loss, (const st_queue *, const cuda_xent *)) \
    X(attention, (const st_queue *, const cuda_attn *)) \
    X(attention_delta, (const st_queue *, const cuda_delta *)) \
    X(attention_bwd, (const st_queue *, const cuda_attn *)) \
    X(qk_norm, (const st_queue *, const cuda_qk *)) \
    X(qk_norm_bwd, (const st_queue *, const cuda_qk *))

/* The private table of the kernel module. */
#define CUDA_MEMBER(name, args) int (*name) args;
typedef struct cuda_table {
    CUDA_DEVICE_ENTRIES(CUDA_MEMBER)
    CUDA_OP_ENTRIES(CUDA_MEMBER)
    void (*close)(st_device *);
} cuda_table;

/* Entries of the kernel module are cuda_run_<name>. */
#if defined(__cplusplus)
extern "C" {
#endif
#define CUDA_DECLARE(name, args) int cuda_run_##name args;
CUDA_DEVICE_ENTRIES(CUDA_DECLARE)
CUDA_OP_ENTRIES(CUDA_DECLARE)
void cuda_run_close(st_device *);
/* c = act(from + bias) + beta c, behind a product */
int cuda_finish(const st_queue *, const cuda_product *, const void *from, int64_t ld, int64_t stride, int32_t type,
                float beta);
int cuda_norm_walked(const st_queue *, const cuda_norm *);     /* rows of any kind */
int cuda_norm_walked_bwd(const st_queue *, const cuda_norm *); /* dr, n, and part by the next */
int cuda_norm_sums(const st_queue *, const cuda_norm *);
int cuda_norm_add_parts(const st_queue *, const cuda_norm *);  /* to dw and db */
#if defined(__cplusplus)
}
#endif

/* These begin with the table, so that the logic module finds its way back. */
struct st_device { const cuda_table *table; };
struct st_event { const cuda_table *table; };
struct st_graph { const cuda_table *table; };
ST_FN const cuda_table *cuda_table_of(const st_queue *q) { return ((const st_device *)q->device)->table; }
#endif
