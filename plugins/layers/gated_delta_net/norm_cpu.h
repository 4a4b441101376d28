/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/norm_cpu.h - template: gated RMS norm y = w n silu(z), n = o rstd(o), one task per block of GDN_CHUNK
 * tokens. */

INLINE REAL norm_rstd(const REAL *o, int64_t dim, double eps)
{
    vec s = {0};
    int64_t c = 0;
    for (; c + W <= dim; c += W) {
        vec x = load(o + c, W);
        s += x * x;
    }
    if (c < dim) {
        vec x = load(o + c, dim - c);
        s += x * x;
    }
    return 1 / SQRT(sum(s) / (REAL)dim + (REAL)eps);
}
INLINE void norm_columns(const REAL *o, const REAL *z, const REAL *w, REAL rstd, REAL *y, int64_t n)
{
    vec vz = load(z, n);
    store(y, load(w, n) * (load(o, n) * rstd) * vz * sigmoid(vz, NULL), n);
}
static void norm_block(void *arg, int64_t block_index)
{
    const gdn_norm *a = arg;
    int64_t begin = block_index * GDN_CHUNK, end = begin + GDN_CHUNK < a->tokens ? begin + GDN_CHUNK : a->tokens;
    for (int64_t t = begin; t < end; t++)
        for (int64_t h = 0; h < a->heads; h++) {
            const REAL *o = (const REAL *)a->o + t * a->o_stride + h * a->dim, *w = a->weight;
            const REAL *z = (const REAL *)a->z + t * a->z_stride + h * a->dim;
            REAL *y = (REAL *)a->y + t * a->y_stride + h * a->dim, rstd = norm_rstd(o, a->dim, a->eps);
            int64_t c = 0;
            for (; c + W <= a->dim; c += W) norm_columns(o + c, z + c, w + c, rstd, y + c, W);
            if (c < a->dim) norm_columns(o + c, z + c, w + c, rstd, y + c, a->dim - c);
        }
}
static int norm(const st_queue *q, const gdn_norm *a)
{
    st_cpu_run(q, gdn_blocks(a->tokens), norm_block, (void *)a);
    return ST_OK;
}

/* First pass over a head: dz, the sum for dw, and dn (left in d_o) with its dot product with n. */
INLINE vec norm_bwd_columns(const REAL *o, const REAL *z, const REAL *w, const REAL *dy, REAL rstd, REAL *dn, REAL *dz,
                            REAL *dw, int64_t n)
{
    vec vz = load(z, n), rest, s = sigmoid(vz, &rest), gated = vz * s, vw = load(w, n), vy = load(dy, n);
    vec normed = load(o, n) * rstd, d = vy * vw * gated;
    store(dz, vy * vw * normed * s * ((REAL)1 + vz * rest), n);
    *(vec *)dw += vy * normed * gated;
    store(dn, d, n);
    return d * normed;
}
static void norm_bwd_head(const gdn_norm *a, int64_t t, int64_t h, REAL *dw)
{
    const REAL *o = (const REAL *)a->o + t * a->o_stride + h * a->dim, *w = a->weight;
    const REAL *z = (const REAL *)a->z + t * a->z_stride + h * a->dim,
               *dy = (const REAL *)a->dy + t * a->dy_stride + h * a->dim;
    REAL *d_o = (REAL *)a->d_o + t * a->do_stride + h * a->dim, *dz = (REAL *)a->dz + t * a->dz_stride + h * a->dim;
    REAL rstd = norm_rstd(o, a->dim, a->eps);
    vec dot = {0};
    int64_t c = 0;
    for (; c + W <= a->dim; c += W)
        dot += norm_bwd_columns(o + c, z + c, w + c, dy + c, rstd, d_o + c, dz + c, dw + c, W);
    if (c < a->dim) dot += norm_bwd_columns(o + c, z + c, w + c, dy + c, rstd, d_o + c, dz + c, dw + c, a->dim - c);
    REAL mean = sum(dot) / (REAL)a->dim * rstd; /* do = rstd (dn - n mean(dn n)) */
    for (c = 0; c + W <= a->dim; c += W) store(d_o + c, (load(d_o + c, W) - load(o + c, W) * mean) * rstd, W);
    if (c < a->dim) store(d_o + c, (load(d_o + c, a->dim - c) - load(o + c, a->dim - c) * mean) * rstd, a->dim - c);
}
static void norm_bwd_block(void *arg, int64_t block_index)
{
    const gdn_norm *a = arg;
    REAL *dw = (REAL *)a->work + block_index * gdn_padded(a->dim);
    int64_t begin = block_index * GDN_CHUNK, end = begin + GDN_CHUNK < a->tokens ? begin + GDN_CHUNK : a->tokens;
    for (int64_t c = 0; c < gdn_padded(a->dim); c++) dw[c] = 0;
    for (int64_t t = begin; t < end; t++)
        for (int64_t h = 0; h < a->heads; h++) norm_bwd_head(a, t, h, dw);
}
static int norm_bwd(const st_queue *q, const gdn_norm *a)
{
    const REAL *work = a->work;
    REAL *dweight = a->dweight;
    st_cpu_run(q, gdn_blocks(a->tokens), norm_bwd_block, (void *)a);
    if (dweight)
        for (int64_t k = 0; k < gdn_blocks(a->tokens); k++)
            for (int64_t c = 0; c < a->dim; c++) dweight[c] += work[k * gdn_padded(a->dim) + c];
    return ST_OK;
}
