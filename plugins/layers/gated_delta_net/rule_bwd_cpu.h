/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_bwd_cpu.h - template: the gated delta rule in chunks, backward. Names as in rule_cpu.h.
 *
 * Chunks are walked from the last to the first, carrying dS', the gradient of the state after the chunk. With Y = V -
 * diag(e) K S0:
 *     dDelta = P^T dO + diag(D_C) K dS',     dR = (I - L)^-T dDelta,     dV = diag(beta) dR
 *     X = dR Delta^T,   dP = dO Delta^T  (lower parts)
 *     dQ = (dP D) K + diag(e) dO S0^T
 *     dK = (A + A^T) K + (dP D)^T Q - diag(e beta) dR S0^T + diag(D_C) Delta dS'^T,   A_ij = -beta_i X_ij D_ij  (i > j)
 *     dbeta_i = dR_i . Y_i - sum_j X_ij D_ij k_i.k_j
 *     dS = e_C dS' + Q^T diag(e) dO - K^T diag(e beta) dR.
 * Every decay a_t multiplies D_ij for j < t <= i, e_i for i >= t and D_C,j for j < t. So the gradient at g_t is the sum
 * over i >= t of c_i = rows(Z)_i - columns(Z)_i + (terms of e_i) - (terms of D_C,i), Z_ij = dP_ij P_ij + X_ij L_ij
 * below the diagonal, and the last c also has all terms of D_C and e_C <S0, dS'>. */

typedef struct lane_bwd {
    lane f;
    REAL *y, *dout, *dr, *kds; /* (C, value_dim) of one value head; f.delta keeps Delta                     */
    REAL *deltat;              /* (value_dim, C)                                                            */
    REAL *dp, *x;              /* (C, C) of one value head                                                  */
    REAL *dpd, *da;            /* (C, C) dP D and A, summed over the group                                  */
    REAL *dq, *dk, *t0, *t1;   /* (C, key_dim): sums over the group; two temporaries                        */
    REAL *s0, *s0t, *dst;      /* (key_dim, value_dim) S0; transposed S0 and dS'                            */
    REAL c[GDN_CHUNK], dbeta[GDN_CHUNK];
} lane_bwd; /* f.state: (group, key_dim, value_dim) dS' */

static void lane_bwd_init(lane_bwd *n, REAL *work, int64_t ldk, int64_t ldv, int64_t group)
{
    const int64_t c = GDN_CHUNK;
    lane_init(&n->f, work, ldk, ldv);
    work = n->f.state + group * ldk * ldv;
    n->y = take(&work, c * ldv);
    n->dout = take(&work, c * ldv);
    n->dr = take(&work, c * ldv);
    n->kds = take(&work, c * ldv);
    n->deltat = take(&work, c * ldv);
    n->dp = take(&work, c * c);
    n->x = take(&work, c * c);
    n->dpd = take(&work, c * c);
    n->da = take(&work, c * c);
    n->dq = take(&work, c * ldk);
    n->dk = take(&work, c * ldk);
    n->t0 = take(&work, c * ldk);
    n->t1 = take(&work, c * ldk);
    n->s0 = take(&work, ldk * ldv);
    n->s0t = take(&work, ldk * ldv);
    n->dst = work;
}

/* dDelta, dR (left in n->dr), dP and X. */
static void bwd_solve(const walk *w, lane_bwd *n, int64_t length, const REAL *ds)
{
    lane *f = &n->f;
    const int64_t m = block_rows(length), c = GDN_CHUNK, ldv = w->ldv, dv = w->a->value_dim;
    multiply(A_UPPER, 0, m, ldv, m, f->p, 1, c, n->dout, ldv, n->dr, ldv);
    if (ds) {
        multiply(FULL, 0, m, ldv, w->a->key_dim, f->k, w->ldk, 1, ds, ldv, n->kds, ldv);
        for (int64_t t = 0; t < length; t++) scale_add(f->rest[t], n->kds + t * ldv, 1, n->dr + t * ldv, ldv);
    }
    solve_upper(m, ldv, f->l, n->dr, ldv);
    transpose((length + 15) / 16 * 16, dv, f->delta, ldv, n->deltat, c);
    multiply(C_LOWER, 0, m, c, dv, n->dout, ldv, 1, n->deltat, c, n->dp, c);
    multiply(C_LOWER, 0, m, c, dv, n->dr, ldv, 1, n->deltat, c, n->x, c);
}
/* Everything elementwise in (C, C): dP D, A, and the parts of c and dbeta that come from D. D is run through again. */
static void bwd_matrices(lane_bwd *n, int64_t length, int add)
{
    const lane *f = &n->f;
    const int64_t c = GDN_CHUNK;
    REAL d[GDN_CHUNK] __attribute__((aligned(64))) = {0}, columns_sum[GDN_CHUNK] __attribute__((aligned(64))) = {0};
    for (int64_t i = 0; i < block_rows(length); i++) {
        vec z_sum = {0}, x_sum = {0};
        for (int64_t j = 0; j < lower_columns(i); j += W) {
            const int64_t at = i * c + j;
            vec e = *(vec *)(d + j) * f->step[i];
            e = (vec)((ivec)e & ~(e < (REAL)TINY));
            *(vec *)(d + j) = e;
            vec pd = *(vec *)(n->dp + at) * e, xd = *(vec *)(n->x + at) * e;
            vec xk = xd * *(vec *)(f->kk + at), z = pd * *(vec *)(f->qk + at) - f->beta[i] * xk;
            x_sum += xk;
            z_sum += z;
            *(vec *)(columns_sum + j) += z;
            xd *= -f->beta[i];
            if (add) {
                pd += *(vec *)(n->dpd + at);
                xd += *(vec *)(n->da + at);
            }
            *(vec *)(n->dpd + at) = pd;
            *(vec *)(n->da + at) = xd;
        }
        d[i] = 1;
        n->dpd[i * c + i] += n->dp[i * c + i]; /* D_ii = 1 */
        n->c[i] = sum(z_sum);
        n->dbeta[i] = -sum(x_sum);
    }
    for (int64_t i = 0; i < length; i++) n->c[i] -= columns_sum[i];
}
/* Terms with the chunk's first state: parts of dQ, dK, c. */
static void bwd_first_state(const walk *w, lane_bwd *n, int64_t length)
{
    lane *f = &n->f;
    const int64_t m = block_rows(length), ldk = w->ldk, ldv = w->ldv, dv = w->a->value_dim;
    multiply(FULL, 0, m, ldk, dv, n->dout, ldv, 1, n->s0t, ldk, n->t0, ldk);
    multiply(FULL, 0, m, ldk, dv, n->dr, ldv, 1, n->s0t, ldk, n->t1, ldk);
    for (int64_t t = 0; t < length; t++) {
        const REAL e = f->decay[t], eb = -e * f->beta[t];
        n->c[t] += e * dot(n->t0 + t * ldk, f->q + t * ldk, ldk) + eb * dot(n->t1 + t * ldk, f->k + t * ldk, ldk);
        scale_add(e, n->t0 + t * ldk, 1, n->dq + t * ldk, ldk);
        scale_add(eb, n->t1 + t * ldk, 1, n->dk + t * ldk, ldk);
    }
}
/* Terms with the gradient of the state after the chunk. */
static void bwd_last_state(const walk *w, lane_bwd *n, int64_t length, const REAL *ds, const REAL *s0)
{
    lane *f = &n->f;
    const int64_t m = block_rows(length), ldk = w->ldk, ldv = w->ldv, dk = w->a->key_dim, dv = w->a->value_dim;
    REAL total = 0;
    transpose(w->ldk, dv, ds, ldv, n->dst, ldk);
    multiply(FULL, 0, m, ldk, dv, f->delta, ldv, 1, n->dst, ldk, n->t0, ldk);
    for (int64_t t = 0; t < length; t++) {
        const REAL part = f->rest[t] * dot(n->t0 + t * ldk, f->k + t * ldk, ldk);
        n->c[t] -= part;
        total += part;
        scale_add(f->rest[t], n->t0 + t * ldk, 1, n->dk + t * ldk, ldk);
    }
    if (s0) total += f->decay[length - 1] * dot(s0, ds, dk * ldv);
    n->c[length - 1] += total;
}
/* dS from dS'; dout and dr are used up. fresh: dS' is taken as 0. */
static void bwd_state(const walk *w, lane_bwd *n, int64_t length, REAL *ds, int fresh)
{
    lane *f = &n->f;
    const int64_t m = block_rows(length), ldk = w->ldk, ldv = w->ldv;
    for (int64_t t = 0; t < m; t++) {
        scale_row(f->decay[t], n->dout + t * ldv, ldv);
        scale_row(-f->decay[t] * f->beta[t], n->dr + t * ldv, ldv);
    }
    if (!fresh) scale_row(f->decay[length - 1], ds, w->a->key_dim * ldv);
    multiply(FULL, !fresh, ldk, ldv, m, f->q, 1, ldk, n->dout, ldv, ds, ldv);
    multiply(FULL, 1, ldk, ldv, m, f->k, 1, ldk, n->dr, ldv, ds, ldv);
}
/* dv, dbeta, dg of one value head; reads dr before bwd_state uses it up. */
static void bwd_head_out(const walk *w, const gdn_rule_bwd *b, lane_bwd *n, int64_t begin, int64_t length, int64_t head)
{
    const lane *f = &n->f;
    const int64_t ldv = w->ldv, dv = w->a->value_dim;
    REAL *to = (REAL *)b->dv + begin * b->dstride + head * dv, carry = 0;
    REAL *dbeta = (REAL *)b->dbeta + begin * b->dgate_stride + head,
         *dg = (REAL *)b->dg + begin * b->dgate_stride + head;
    for (int64_t t = length - 1; t >= 0; t--) {
        const REAL *dr = n->dr + t * ldv;
        dbeta[t * b->dgate_stride] = n->dbeta[t] + dot(dr, n->y + t * ldv, ldv);
        dg[t * b->dgate_stride] = carry += n->c[t];
        int64_t c = 0;
        for (; c + W <= dv; c += W) store(to + t * b->dstride + c, *(const vec *)(dr + c) * f->beta[t], W);
        if (c < dv) store(to + t * b->dstride + c, *(const vec *)(dr + c) * f->beta[t], dv - c);
    }
}
/* Through the l2 norm, x^ = scale x: dx = scale (dx^ - x^ (x^ . dx^) / factor^2). */
static void bwd_normalise(const REAL *normed, const REAL *scale, REAL factor, const REAL *d, int64_t length, int64_t ld,
                          int64_t dim, REAL *to, int64_t stride)
{
    for (int64_t t = 0; t < length; t++) {
        const REAL *x = normed + t * ld, *dx = d + t * ld, along = dot(x, dx, ld) / (factor * factor);
        int64_t c = 0;
        for (; c + W <= dim; c += W)
            store(to + t * stride + c, (*(const vec *)(dx + c) - *(const vec *)(x + c) * along) * scale[t], W);
        if (c < dim)
            store(to + t * stride + c, (*(const vec *)(dx + c) - *(const vec *)(x + c) * along) * scale[t], dim - c);
    }
}
/* dq and dk of the group, once its (C, C) sums are complete. */
static void bwd_keys(const walk *w, const gdn_rule_bwd *b, lane_bwd *n, int64_t begin, int64_t length)
{
    const lane *f = &n->f;
    const int64_t m = block_rows(length), c = GDN_CHUNK, ldk = w->ldk, dk = w->a->key_dim,
                  at = begin * b->dstride + w->head * dk;
    multiply(A_LOWER, 1, m, ldk, m, n->dpd, c, 1, f->k, ldk, n->dq, ldk);
    multiply(A_UPPER, 1, m, ldk, m, n->dpd, 1, c, f->q, ldk, n->dk, ldk);
    multiply(A_LOWER, 1, m, ldk, m, n->da, c, 1, f->k, ldk, n->dk, ldk);
    multiply(A_UPPER, 1, m, ldk, m, n->da, 1, c, f->k, ldk, n->dk, ldk);
    bwd_normalise(f->q, f->q_scale, 1 / SQRT((REAL)dk), n->dq, length, ldk, dk, (REAL *)b->dq + at, b->dstride);
    bwd_normalise(f->k, f->k_scale, 1, n->dk, length, ldk, dk, (REAL *)b->dk + at, b->dstride);
}
/* One value head of one chunk. */
static void bwd_head(const walk *w, const gdn_rule_bwd *b, lane_bwd *n, int64_t chunk, int64_t r)
{
    const gdn_rule *a = w->a;
    const int64_t begin = chunk_begin(w, chunk), length = chunk_length(w, chunk), head = w->head * w->group + r;
    const int64_t dk = a->key_dim, dv = a->value_dim, end = chunk + 1 == w->tiles;
    const REAL *from = chunk ? stored_state(w, chunk, head) : initial_state(w, head), *s0 = from ? n->s0 : NULL;
    REAL *ds = n->f.state + r * w->ldk * w->ldv;
    const int fresh = end && !b->dfinal; /* nothing comes from behind the chunk */

    if (from) {
        copy_in(from, dv, dk, dv, n->s0, w->ldv, w->ldk);
        transpose(w->ldk, dv, n->s0, w->ldv, n->s0t, w->ldk);
    }
    if (end && b->dfinal)
        copy_in((const REAL *)b->dfinal + w->last * a->final_stride + head * dk * dv, dv, dk, dv, ds, w->ldv, w->ldk);
    copy_in((const REAL *)b->dout + begin * a->out_stride + head * dv, a->out_stride, length, dv, n->dout, w->ldv,
            block_rows(length));
    chunk_gates(w, &n->f, begin, length, head);
    chunk_matrices(&n->f, length, 1);
    chunk_delta(w, &n->f, begin, length, head, s0, n->y);
    memset(n->f.delta + block_rows(length) * w->ldv, 0,
           (size_t)((GDN_CHUNK - block_rows(length)) * w->ldv) * sizeof(REAL));
    bwd_solve(w, n, length, fresh ? NULL : ds);
    bwd_matrices(n, length, r > 0);
    if (s0) bwd_first_state(w, n, length);
    if (!fresh) bwd_last_state(w, n, length, ds, s0);
    bwd_head_out(w, b, n, begin, length, head);
    if (chunk || (from && b->dinitial)) bwd_state(w, n, length, ds, fresh);
    if (!chunk && from && b->dinitial)
        copy_out(ds, w->ldv, dk, dv, (REAL *)b->dinitial + w->first * a->initial_stride + head * dk * dv, dv);
}
static void rule_bwd_segment(const gdn_rule_bwd *b, lane_bwd *n, int64_t task)
{
    walk walk_of, *w = &walk_of;
    walk_init(w, &b->f, task);
    for (int64_t i = w->tiles - 1; i >= 0; i--) {
        const int64_t begin = chunk_begin(w, i), length = chunk_length(w, i);
        chunk_keys(w, &n->f, begin, length, 1);
        memset(n->dq, 0, (size_t)(GDN_CHUNK * w->ldk) * sizeof(REAL));
        memset(n->dk, 0, (size_t)(GDN_CHUNK * w->ldk) * sizeof(REAL));
        for (int64_t r = 0; r < w->group; r++) bwd_head(w, b, n, i, r);
        bwd_keys(w, b, n, begin, length);
    }
}
static void rule_bwd_lane(void *arg, int64_t index)
{
    lanes *all = arg;
    const gdn_rule_bwd *b = all->a;
    const int64_t group = b->f.value_heads / b->f.key_heads;
    lane_bwd n;
    lane_bwd_init(&n, (REAL *)b->f.work + index * gdn_rule_bwd_work(group, b->f.key_dim, b->f.value_dim),
                  gdn_padded(b->f.key_dim), gdn_padded(b->f.value_dim), group);
    for (int64_t i; (i = __atomic_fetch_add(&all->next, 1, __ATOMIC_RELAXED)) < all->tasks;) rule_bwd_segment(b, &n, i);
}
static int rule_bwd(const st_queue *q, const gdn_rule_bwd *b)
{
    lanes all = {b, b->f.row.n_segments * b->f.key_heads, 0};
    st_cpu_run(q, gdn_lanes(b->f.row.n_segments, b->f.key_heads), rule_bwd_lane, &all);
    return ST_OK;
}
