/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h - the entries of st_ops in the cuda backend's logic module: check, take scratch, count, return when planning, then
 * call the kernel module. Real numbers are f32 or bf16, each tensor on its own; statistics, sums and gradients are f32. */
#ifndef CUDA_OPS_H
#define CUDA_OPS_H
#include "../check/check.h"
#include "cuda.h"

ST_FN int64_t ops_div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
ST_FN int64_t ops_min(int64_t a, int64_t b) { return a < b ? a : b; }
ST_FN int64_t ops_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* t is there, f32 or bf16, with these sizes (-1: any). */
int want_real(const st_queue *, const char *op, const char *name, const st_tensor *t, int nd, const int64_t *dim);
#define WANT_REAL(q, op, name, t, ...) \
    want_real(q, op, name, t, (int)ST_COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__})
#define WANT_REAL_IF(q, op, name, t, ...) (check_given(t) ? WANT_REAL(q, op, name, t, __VA_ARGS__) : ST_OK)
int want_real_like(const st_queue *, const char *op, const char *name, const st_tensor *t, const char *like_name,
                   const st_tensor *like); /* its shape; the type may differ */
int want_real_like_if(const st_queue *, const char *op, const char *name, const st_tensor *t, const char *like_name,
                      const st_tensor *like);
int want_real_vector_if(const st_queue *, const char *op, const char *name, const st_tensor *t, int64_t n);

cuda_view view_of(const st_tensor *);
bool wide_view(const cuda_view *); /* rows of 8 n columns, aligned to 16 bytes; true when absent */
void walk_make(cuda_walk *, int n, const st_tensor *const *t);
/* Products of other ops: nothing but a, b, c. */
int run_product(const st_queue *, const cuda_product *);

int cuda_gemm(const st_queue *, const st_gemm *);
int cuda_grouped_op(const st_queue *, const st_grouped *);
int cuda_norm_op(const st_queue *, const st_norm *);
int cuda_norm_bwd_op(const st_queue *, const st_norm_bwd *);
int cuda_rope_op(const st_queue *, const st_rope *);
int cuda_qk_norm_op(const st_queue *, const st_qk_norm *);
int cuda_qk_norm_bwd_op(const st_queue *, const st_qk_norm *);
int cuda_colsum(const st_queue *, const st_tensor *x, const st_tensor *out);
int cuda_sumsq(const st_queue *, const st_tensor *x, double weight, const st_tensor *cell);
int cuda_attention(const st_queue *, const st_attn *);
int cuda_attention_bwd(const st_queue *, const st_attn *);
int cuda_attention_gated_bwd(const st_queue *, const st_attn_gated *);
int cuda_lookup_op(const st_queue *, const st_lookup *);
int cuda_lookup_bwd(const st_queue *, const st_lookup *);
int cuda_gather(const st_queue *, const st_tensor *src, const st_tensor *index, const st_tensor *dst);
int cuda_scatter(const st_queue *, const st_tensor *src, const st_tensor *index, const st_tensor *dst);
int cuda_combine_op(const st_queue *, const st_tensor *src, const st_tensor *index, const st_tensor *w,
                    const st_tensor *dst);
int cuda_xent_op(const st_queue *, const st_xent *);
int cuda_adamw_op(const st_queue *, const st_adamw *);
int cuda_adamw_rounded(const st_queue *, const st_adamw_rounded *);
int cuda_glu(const st_queue *, int act, const st_tensor *g, const st_tensor *u, const st_tensor *y);
int cuda_glu_bwd(const st_queue *, int act, const st_tensor *g, const st_tensor *u, const st_tensor *dy,
                 const st_tensor *dg, const st_tensor *du);
int cuda_act(const st_queue *, int act, const st_tensor *x, const st_tensor *y);
int cuda_act_bwd(const st_queue *, int act, const st_tensor *x, const st_tensor *dy, const st_tensor *dx);
int cuda_add(const st_queue *, double a, const st_tensor *x, double b, const st_tensor *y, const st_tensor *z);
int cuda_copy(const st_queue *, const st_tensor *src, const st_tensor *dst);
int cuda_fill(const st_queue *, const st_tensor *dst, double value);
#endif
