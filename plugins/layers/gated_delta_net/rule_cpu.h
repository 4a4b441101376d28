/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_cpu.h - template: the gated delta rule in chunks, forward.
 *
 * For a value head with state S (key_dim, value_dim), normalised k and q, and decay a_t = e^g_t <= 1:
 *     S~ = a_t S,   delta_t = beta_t (v_t - S~^T k_t),   S = S~ + k_t delta_t^T,   o_t = S^T q_t.
 * A chunk of C = GDN_CHUNK tokens that begins with state S0 is, with D_ij = a_{j+1} .. a_i (i >= j, else 0) and e_i =
 * a_1 .. a_i:
 *     Delta = (I - L)^-1 diag(beta) (V - diag(e) K S0),   L_ij = -beta_i D_ij k_i.k_j  (i > j)
 *     O = P Delta + diag(e) Q S0,   P_ij = D_ij q_i.k_j  (i >= j)
 *     S' = e_C S0 + K^T diag(D_C) Delta.
 * D and e are running products of factors <= 1: nothing overflows, however strong the decay, and no exponent is ever
 * positive.
 *
 * A task is one segment and one key head with the value heads that share it: k k^T and q k^T are then computed once,
 * and the gradients of q and k are summed over the group in the order of its heads. A task walks the segment's chunks.
 * Lanes take tasks off a counter; which lane takes which task changes no result, and few threads keep using few (warm)
 * work areas. */

typedef struct lane {
    REAL *k, *q, *kt;       /* (C, key_dim) normalised, q scaled too; k transposed (key_dim, C)       */
    REAL *kk, *qk;          /* (C, C): k k^T and q k^T, lower parts                                    */
    REAL *l, *p;            /* (C, C) of one value head                                                */
    REAL *delta, *out, *ks; /* (C, value_dim) of one value head                                        */
    REAL *state;            /* (group, key_dim, value_dim) padded                                           */
    REAL k_scale[GDN_CHUNK], q_scale[GDN_CHUNK]; /* what the raw rows were multiplied with               */
    REAL beta[GDN_CHUNK], step[GDN_CHUNK];       /* of one value head: beta, a                           */
    REAL decay[GDN_CHUNK], rest[GDN_CHUNK];      /* e, and D's last row: decay from a token to the end   */
} lane;

/* What stays the same for one segment and key head. */
typedef struct walk {
    const gdn_rule *a;
    int64_t segment, head, group, first_tile, tiles; /* head: the key head; tiles of this segment     */
    int64_t first, last;                             /* its first and last token                      */
    int64_t ldk, ldv;                                /* padded key_dim, value_dim                     */
} walk;

INLINE REAL *take(REAL **work, int64_t n) /* the next n elements of a work area */
{
    *work += n;
    return *work - n;
}
static void lane_init(lane *n, REAL *work, int64_t ldk, int64_t ldv)
{
    const int64_t c = GDN_CHUNK;
    n->k = take(&work, c * ldk);
    n->q = take(&work, c * ldk);
    n->kt = take(&work, c * ldk);
    n->kk = take(&work, c * c);
    n->qk = take(&work, c * c);
    n->l = take(&work, c * c);
    n->p = take(&work, c * c);
    n->delta = take(&work, c * ldv);
    n->out = take(&work, c * ldv);
    n->ks = take(&work, c * ldv);
    n->state = work;
}
/* Rows [0, rows) of a strided source into a padded square of `all` rows; everything else is zero. */
static void copy_in(const REAL *from, int64_t stride, int64_t rows, int64_t columns, REAL *to, int64_t ld, int64_t all)
{
    const int64_t whole = columns / W * W;
    for (int64_t t = 0; t < rows; t++) {
        int64_t c = 0;
        for (; c < whole; c += W) *(vec *)(to + t * ld + c) = load(from + t * stride + c, W);
        if (c < columns) *(vec *)(to + t * ld + c) = load(from + t * stride + c, columns - c), c += W;
        for (; c < ld; c += W) *(vec *)(to + t * ld + c) = splat(0);
    }
    for (int64_t c = rows * ld; c < all * ld; c += W) *(vec *)(to + c) = splat(0);
}
static void copy_out(const REAL *from, int64_t ld, int64_t rows, int64_t columns, REAL *to, int64_t stride)
{
    for (int64_t t = 0; t < rows; t++) {
        int64_t c = 0;
        for (; c + W <= columns; c += W) store(to + t * stride + c, *(const vec *)(from + t * ld + c), W);
        if (c < columns) store(to + t * stride + c, *(const vec *)(from + t * ld + c), columns - c);
    }
}
INLINE REAL dot(const REAL *a, const REAL *b, int64_t n) /* n a multiple of W, both aligned */
{
    vec s = {0};
    for (int64_t c = 0; c < n; c += W) s += *(const vec *)(a + c) * *(const vec *)(b + c);
    return sum(s);
}
/* to = x from + y to, one padded row */
INLINE void scale_add(REAL x, const REAL *from, REAL y, REAL *to, int64_t n)
{
    for (int64_t c = 0; c < n; c += W) *(vec *)(to + c) = x * *(const vec *)(from + c) + y * *(const vec *)(to + c);
}
INLINE void scale_row(REAL x, REAL *row, int64_t n)
{
    for (int64_t c = 0; c < n; c += W) *(vec *)(row + c) *= x;
}
/* row *= factor / sqrt(sum of squares + 1e-6): the l2 norm of q and k */
static void normalise(REAL *rows, int64_t n, int64_t ld, REAL factor, REAL *scale)
{
    for (int64_t t = 0; t < n; t++) {
        scale[t] = factor / SQRT(dot(rows + t * ld, rows + t * ld, ld) + (REAL)1e-6);
        scale_row(scale[t], rows + t * ld, ld);
    }
}
INLINE int64_t chunk_length(const walk *w, int64_t chunk) { return w->a->row.tiles[3 * (w->first_tile + chunk) + 2]; }
INLINE int64_t chunk_begin(const walk *w, int64_t chunk) { return w->a->row.tiles[3 * (w->first_tile + chunk) + 1]; }
INLINE int64_t block_rows(int64_t n) { return (n + MR - 1) / MR * MR; }

/* What all value heads of the group share: k, q, their products. */
static void chunk_keys(const walk *w, lane *n, int64_t begin, int64_t length, int with_q)
{
    const gdn_rule *a = w->a;
    const int64_t dk = a->key_dim, at = begin * a->stride + w->head * dk, m = block_rows(length), c = GDN_CHUNK;
    const int64_t all = (length + 15) / 16 * 16; /* rows that vectors over the transposed copy may reach */
    copy_in((const REAL *)a->k + at, a->stride, length, dk, n->k, w->ldk, all);
    normalise(n->k, length, w->ldk, 1, n->k_scale);
    transpose(all, dk, n->k, w->ldk, n->kt, c);
    multiply(C_LOWER, 0, m, c, dk, n->k, w->ldk, 1, n->kt, c, n->kk, c);
    if (!with_q) return;
    copy_in((const REAL *)a->q + at, a->stride, length, dk, n->q, w->ldk, all);
    normalise(n->q, length, w->ldk, 1 / SQRT((REAL)dk), n->q_scale);
    multiply(C_LOWER, 0, m, c, dk, n->q, w->ldk, 1, n->kt, c, n->qk, c);
}
static void chunk_gates(const walk *w, lane *n, int64_t begin, int64_t length, int64_t value_head)
{
    const gdn_rule *a = w->a;
    const REAL *beta = (const REAL *)a->beta + begin * a->gate_stride + value_head;
    const REAL *g = (const REAL *)a->g + begin * a->gate_stride + value_head;
    for (int64_t t = 0; t < GDN_CHUNK; t++) {
        n->beta[t] = t < length ? beta[t * a->gate_stride] : 0;
        n->step[t] = t < length ? g[t * a->gate_stride] : 0;
    }
    for (int64_t t = 0; t < GDN_CHUNK; t += W) store(n->step + t, exp_neg(load(n->step + t, W)), W);
    REAL e = 1;
    for (int64_t t = 0; t < GDN_CHUNK; t++) {
        e *= n->step[t];
        if (e < (REAL)TINY) e = 0;
        n->decay[t] = e;
    }
}
/* L and, with_p, P of one value head, row by row; `d` is D's running row. Rows up to block_rows(length), of which those
 * behind the last token have beta = 0 and q = 0. Values too small to matter become 0, so that no denormal number slows
 * the rest. */
static void chunk_matrices(lane *n, int64_t length, int with_p)
{
    const int64_t c = GDN_CHUNK;
    REAL d[GDN_CHUNK] __attribute__((aligned(64))) = {0};
    for (int64_t i = 0; i < block_rows(length); i++) {
        const int64_t columns = lower_columns(i);
        for (int64_t j = 0; j < columns; j += W) {
            vec x = *(vec *)(d + j) * n->step[i];
            x = (vec)((ivec)x & ~(x < (REAL)TINY));
            *(vec *)(d + j) = x;
            *(vec *)(n->l + i * c + j) = -n->beta[i] * x * *(vec *)(n->kk + i * c + j);
            if (with_p) *(vec *)(n->p + i * c + j) = x * *(vec *)(n->qk + i * c + j);
        }
        d[i] = 1;
        if (with_p) n->p[i * c + i] = n->qk[i * c + i];
        if (i == length - 1) memcpy(n->rest, d, sizeof d);
    }
}
/* Delta of one value head; y receives V - diag(e) K S0 when asked for. */
static void chunk_delta(const walk *w, lane *n, int64_t begin, int64_t length, int64_t value_head, const REAL *s0,
                        REAL *y)
{
    const gdn_rule *a = w->a;
    const int64_t m = block_rows(length), ldv = w->ldv;
    copy_in((const REAL *)a->v + begin * a->stride + value_head * a->value_dim, a->stride, length, a->value_dim,
            n->delta, ldv, m);
    if (s0) {
        multiply(FULL, 0, m, ldv, a->key_dim, n->k, w->ldk, 1, s0, ldv, n->ks, ldv);
        for (int64_t t = 0; t < length; t++) scale_add(-n->decay[t], n->ks + t * ldv, 1, n->delta + t * ldv, ldv);
    }
    if (y) memcpy(y, n->delta, (size_t)(m * ldv) * sizeof(REAL));
    for (int64_t t = 0; t < m; t++) scale_row(n->beta[t], n->delta + t * ldv, ldv);
    solve_lower(m, ldv, n->l, n->delta, ldv);
}
static void chunk_out(const walk *w, lane *n, int64_t begin, int64_t length, int64_t value_head, const REAL *s0)
{
    const gdn_rule *a = w->a;
    const int64_t m = block_rows(length), ldv = w->ldv;
    if (s0) {
        multiply(FULL, 0, m, ldv, a->key_dim, n->q, w->ldk, 1, s0, ldv, n->out, ldv);
        for (int64_t t = 0; t < m; t++) scale_row(n->decay[t], n->out + t * ldv, ldv);
    }
    multiply(A_LOWER, s0 != NULL, m, ldv, m, n->p, GDN_CHUNK, 1, n->delta, ldv, n->out, ldv);
    copy_out(n->out, ldv, length, a->value_dim, (REAL *)a->out + begin * a->out_stride + value_head * a->value_dim,
             a->out_stride);
}
/* s = e_C s + K^T diag(D_C) Delta; Delta is used up. fresh: s is taken as 0. */
static void chunk_state(const walk *w, lane *n, int64_t length, REAL *s, int fresh)
{
    const int64_t m = block_rows(length), ldv = w->ldv;
    for (int64_t t = 0; t < length; t++) scale_row(n->rest[t], n->delta + t * ldv, ldv);
    if (!fresh) scale_row(n->decay[length - 1], s, w->a->key_dim * ldv);
    multiply(FULL, !fresh, w->ldk, ldv, m, n->k, 1, w->ldk, n->delta, ldv, s, ldv);
}
/* Finds the segment's tiles. No tiles: an unused list entry. */
static void walk_init(walk *w, const gdn_rule *a, int64_t task)
{
    const int32_t *tiles = a->row.tiles;
    *w = (walk){
        .a = a, .segment = task / a->key_heads, .head = task % a->key_heads, .group = a->value_heads / a->key_heads};
    w->ldk = gdn_padded(a->key_dim);
    w->ldv = gdn_padded(a->value_dim);
    w->first = a->row.segments[w->segment];
    w->last = a->row.segments[w->segment + 1] - 1;
    for (int64_t i = 0; i < a->row.n_tiles; i++)
        if (tiles[3 * i] == w->segment && tiles[3 * i + 2] > 0 && !w->tiles++) w->first_tile = i;
}
INLINE REAL *stored_state(const walk *w, int64_t chunk, int64_t value_head) /* the state before a chunk, in the slot */
{
    const gdn_rule *a = w->a;
    return (REAL *)a->states + ((w->first_tile + chunk) * a->value_heads + value_head) * a->key_dim * a->value_dim;
}
INLINE const REAL *initial_state(const walk *w, int64_t value_head)
{
    const gdn_rule *a = w->a;
    return a->initial ? (const REAL *)a->initial + w->first * a->initial_stride + value_head * a->key_dim * a->value_dim
                      : NULL;
}

static void rule_segment(const gdn_rule *a, lane *n, int64_t task)
{
    walk walk_of, *w = &walk_of;
    walk_init(w, a, task);
    const int64_t dk = a->key_dim, dv = a->value_dim, state = w->ldk * w->ldv;
    for (int64_t i = 0; i < w->tiles; i++) {
        const int64_t begin = chunk_begin(w, i), length = chunk_length(w, i);
        const int more = i + 1 < w->tiles, keep = (more && a->states) || (!more && a->final);
        if (!a->out && !more && !a->final) break;
        chunk_keys(w, n, begin, length, a->out != NULL);
        for (int64_t r = 0; r < w->group; r++) {
            const int64_t head = w->head * w->group + r;
            const REAL *first = i ? NULL : initial_state(w, head);
            REAL *s = n->state + r * state;
            const int fresh = !i && !first;
            if (first) copy_in(first, dv, dk, dv, s, w->ldv, w->ldk);
            chunk_gates(w, n, begin, length, head);
            chunk_matrices(n, length, a->out != NULL);
            chunk_delta(w, n, begin, length, head, fresh ? NULL : s, NULL);
            if (a->out) chunk_out(w, n, begin, length, head, fresh ? NULL : s);
            if (more || keep) chunk_state(w, n, length, s, fresh);
            if (keep)
                copy_out(s, w->ldv, dk, dv,
                         more ? stored_state(w, i + 1, head)
                              : (REAL *)a->final + w->last * a->final_stride + head * dk * dv,
                         dv);
        }
    }
}

typedef struct lanes {
    const void *a;
    int64_t tasks, next;
} lanes;

static void rule_lane(void *arg, int64_t index)
{
    lanes *all = arg;
    const gdn_rule *a = all->a;
    lane n;
    lane_init(&n, (REAL *)a->work + index * gdn_rule_work(a->value_heads / a->key_heads, a->key_dim, a->value_dim),
              gdn_padded(a->key_dim), gdn_padded(a->value_dim));
    for (int64_t i; (i = __atomic_fetch_add(&all->next, 1, __ATOMIC_RELAXED)) < all->tasks;) rule_segment(a, &n, i);
}
static int rule(const st_queue *q, const gdn_rule *a)
{
    lanes all = {a, a->row.n_segments * a->key_heads, 0};
    st_cpu_run(q, gdn_lanes(a->row.n_segments, a->key_heads), rule_lane, &all);
    return ST_OK;
}
