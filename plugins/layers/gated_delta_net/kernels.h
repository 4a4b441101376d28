/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/kernels.h - the private kernel table of this folder's two plugins, gated_delta_net and delta_rule.
 *
 * All entries take plain pointers and sizes; `dtype` is the run's type, "acc" the type of statistics and gradients (on
 * the CPU the same). A stride counts elements from one token to the next. Weight gradients are added to; a NULL one is
 * skipped. `work` is scratch in elements of acc, as much as work.h says for the backend. */
#ifndef GDN_KERNELS_H
#define GDN_KERNELS_H
#include <strata/plugin.h>

#define GDN_IFACE 2u
#define GDN_VERSION "0.1.0"
#define GDN_CHUNK 64 /* tokens of one chunk of the rule and of one work-list tile */
#define GDN_MAX_TAPS 8
#define GDN_LANES 64 /* work areas of the rule: as many threads can walk segments at once */

/* Segments and their tiles as the step gives them: borders i32 [segments + 1], tiles i32 [tiles, 3] = segment, begin,
 * length. */
typedef struct gdn_row {
    const int32_t *segments, *tiles;
    int64_t n_segments, n_tiles, tokens;
} gdn_row;

/* out[t, c] = silu(sum_j weight[c, j] in[t - taps + 1 + j, c]), in = 0 before the segment. weight (channels, taps). */
typedef struct gdn_conv {
    gdn_row row;
    const void *in, *weight;
    void *out;
    int64_t in_stride, out_stride;
    int32_t channels, taps, dtype, pad;
    void *work;
    const void *dout; /* backward: reads in, weight, dout */
    void *din, *dweight;
    int64_t dout_stride, din_stride;
} gdn_conv;

/* beta = sigmoid(b), g = -exp(a_log) softplus(a + dt_bias). b, a of dtype with `stride`; beta, g acc (tokens,
 * heads). */
typedef struct gdn_gate {
    const void *b, *a, *a_log, *dt_bias;
    void *beta, *g;
    int64_t tokens, stride;
    int32_t heads, dtype;
    void *work;
    const void *dbeta, *dg; /* backward: reads all of the above */
    void *db, *da, *da_log, *ddt_bias;
    int64_t dstride;
} gdn_gate;

/* The gated delta rule over every segment, see rule_cpu.h. q, k (tokens, key_heads, key_dim), v (tokens, value_heads,
 * value_dim) share `stride`; q and k are l2-normed inside. states: (tiles, value_heads, key_dim, value_dim), the state
 * before a tile, of the run's type as are initial and final; written by the forward pass for all tiles that do not
 * begin a segment (NULL: not written), read by the backward pass. initial (optional): a segment starts from the state
 * at initial + first token * initial_stride; final (optional): its last state goes to final + last token *
 * final_stride; both (value_heads, key_dim, value_dim). out NULL: only states are wanted. */
typedef struct gdn_rule {
    gdn_row row;
    const void *q, *k, *v, *beta, *g, *initial;
    void *out, *states, *final;
    int64_t stride, gate_stride, out_stride, initial_stride, final_stride;
    int32_t key_heads, value_heads, key_dim, value_dim, dtype, pad;
    void *work;
} gdn_rule;
typedef struct gdn_rule_bwd {
    gdn_rule f;                /* as in the forward pass; out and final are not used */
    const void *dout, *dfinal; /* strides as out and final */
    void *dq, *dk, *dv, *dbeta, *dg, *dinitial;
    int64_t dstride, dgate_stride; /* of dq, dk, dv; of dbeta, dg. dinitial: stride as initial */
} gdn_rule_bwd;

/* y = weight * o * rstd(o) * silu(z) over each head of o, z, y (tokens, heads, dim). */
typedef struct gdn_norm {
    const void *o, *z, *weight;
    void *y;
    int64_t tokens, o_stride, z_stride, y_stride;
    int32_t heads, dim, dtype, pad;
    double eps;
    void *work;
    const void *dy; /* backward: reads o, z, weight, dy */
    void *d_o, *dz, *dweight;
    int64_t dy_stride, do_stride, dz_stride;
} gdn_norm;

typedef struct gdn_kernels {
    int (*conv)(const st_queue *, const gdn_conv *);
    int (*conv_bwd)(const st_queue *, const gdn_conv *);
    int (*gate)(const st_queue *, const gdn_gate *);
    int (*gate_bwd)(const st_queue *, const gdn_gate *);
    int (*rule)(const st_queue *, const gdn_rule *);
    int (*rule_bwd)(const st_queue *, const gdn_rule_bwd *);
    int (*norm)(const st_queue *, const gdn_norm *);
    int (*norm_bwd)(const st_queue *, const gdn_norm *);
} gdn_kernels;

/* ---- sizes of the CPU's work areas, in elements of acc ---- */
ST_FN int64_t gdn_blocks(int64_t tokens) { return (tokens + GDN_CHUNK - 1) / GDN_CHUNK; }
ST_FN int64_t gdn_padded(int64_t n) { return (n + 15) / 16 * 16; } /* a multiple of every vector length */
ST_FN int64_t gdn_conv_work(int64_t channels, int64_t taps) { return channels * taps; }
ST_FN int64_t gdn_conv_bwd_work(int64_t tiles, int64_t channels, int64_t taps) { return tiles * channels * taps; }
ST_FN int64_t gdn_gate_bwd_work(int64_t tokens, int64_t heads) { return gdn_blocks(tokens) * 2 * heads; }
ST_FN int64_t gdn_norm_bwd_work(int64_t tokens, int64_t dim) { return gdn_blocks(tokens) * gdn_padded(dim); }
/* Rows of the two rule areas: one per lane. Columns: see struct lane in rule_cpu.h and rule_bwd_cpu.h. */
ST_FN int64_t gdn_lanes(int64_t segments, int64_t key_heads)
{
    return segments * key_heads < GDN_LANES ? segments * key_heads : GDN_LANES;
}
ST_FN int64_t gdn_rule_work(int64_t group, int64_t key_dim, int64_t value_dim)
{
    int64_t k = gdn_padded(key_dim), v = gdn_padded(value_dim), c = GDN_CHUNK;
    return c * (3 * k + 3 * v + 4 * c) + group * k * v;
}
ST_FN int64_t gdn_rule_bwd_work(int64_t group, int64_t key_dim, int64_t value_dim)
{
    int64_t k = gdn_padded(key_dim), v = gdn_padded(value_dim), c = GDN_CHUNK;
    return c * (7 * k + 8 * v + 8 * c) + (group + 3) * k * v;
}
#endif
