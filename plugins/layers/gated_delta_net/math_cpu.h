/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/math_cpu.h - template: vectors of REAL, their elementary functions, and small dense products.
 * Included once per type by kernels_cpu.c, which defines REAL, INT, MANTISSA, F(name) and the numeric constants. */

typedef REAL vec __attribute__((vector_size(VEC_BYTES), may_alias));
typedef REAL uvec __attribute__((vector_size(VEC_BYTES), may_alias, aligned(sizeof(REAL)))); /* any address */
typedef INT ivec __attribute__((vector_size(VEC_BYTES), may_alias));

/* n <= W elements; the rest of a partial load is 0. n is a constant W in all hot loops. */
INLINE vec load(const REAL *p, int64_t n)
{
    if (n >= W) return (vec) * (const uvec *)p;
    vec v = {0};
    for (int64_t i = 0; i < n; i++) v[i] = p[i];
    return v;
}
INLINE void store(REAL *p, vec v, int64_t n)
{
    if (n >= W) {
        *(uvec *)p = (uvec)v;
        return;
    }
    for (int64_t i = 0; i < n; i++) p[i] = v[i];
}
INLINE vec splat(REAL x) { return x - (vec){0}; }
INLINE vec pick(ivec mask, vec yes, vec no) { return (vec)((mask & (ivec)yes) | (~mask & (ivec)no)); }
INLINE REAL sum(vec v) /* a tree of halves */
{
#if ST_CPU_LEVEL >= 3
    static const INT ring[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
    for (int n = W / 2; n > 0; n /= 2) {
        ivec turn;
        memcpy(&turn, ring + n, sizeof turn);
        v += __builtin_shuffle(v, turn);
    }
    return v[0];
#else
    REAL s = 0;
    for (int i = 0; i < W; i++) s += v[i];
    return s;
#endif
}

/* e^x for x <= 0, within 1 ulp or two; 0 where the result would not be a normal number. NaN stays NaN. */
INLINE vec exp_neg(vec x)
{
    ivec small = x < (REAL)EXP_LOWEST;
    vec c = pick(small, splat((REAL)EXP_LOWEST), x);
    vec t = c * (REAL)1.4426950408889634074 + (REAL)ROUND_MAGIC; /* round to an integer in the low mantissa bits */
    vec n = t - (REAL)ROUND_MAGIC;
    vec r = (c - n * (REAL)LN2_HIGH) - n * (REAL)LN2_LOW;
    static const REAL coefficient[] = {EXP_TAYLOR}; /* 1/k!, highest first */
    vec p = splat(coefficient[0]);
    for (int k = 1; k < (int)(sizeof coefficient / sizeof coefficient[0]); k++) p = p * r + coefficient[k];
    ivec power = ((ivec)t + EXPONENT_BIAS) << MANTISSA; /* 2^n as bits: the magic's own bits shift out */
    return (vec)(~small & (ivec)(p * (vec)power));
}
/* sigmoid(x), and 1 - sigmoid(x) without cancellation */
INLINE vec sigmoid(vec x, vec *complement)
{
    ivec negative = x < (REAL)0;
    vec e = exp_neg(pick(negative, x, -x)), one = splat(1), d = one / (one + e), s = e * d;
    if (complement) *complement = pick(negative, d, s);
    return pick(negative, s, d);
}
/* ln(1 + e^x) = max(x, 0) + log1p(e^-|x|); log1p(e) = 2 atanh(e / (2 + e)), whose argument is at most 1/3. */
INLINE vec softplus(vec x)
{
    ivec negative = x < (REAL)0;
    vec e = exp_neg(pick(negative, x, -x)), s = e / (e + (REAL)2), q = s * s,
        p = splat((REAL)1 / (2 * ATANH_TERMS + 1));
    for (int k = ATANH_TERMS - 1; k >= 0; k--) p = p * q + (REAL)1 / (2 * k + 1);
    return pick(negative, splat(0), x) + (REAL)2 * s * p;
}

/* ---- dense products of chunk size. B and C are whole vectors wide and aligned, A is read element by element, so its
 * transpose costs nothing: a(i, p) = a[i * ar + p * ac]. Rows come in multiples of MR, columns of W. ---- */

/* One register block, MR rows by nv vectors: c = a b (or += ) over p in [p0, p1). With a solve, c is the right-hand
 * side and `d` the block of A on the diagonal: rows already solved are taken out in registers. */
INLINE void block(int nv, int solve, int add, int64_t p0, int64_t p1, const REAL *a, int64_t ar, int64_t ac,
                  const REAL *d, const REAL *b, int64_t ldb, REAL *c, int64_t ldc)
{
    vec s[MR][2];
    UNROLL
    for (int i = 0; i < MR; i++) UNROLL
    for (int j = 0; j < nv; j++) s[i][j] = add ? *(const vec *)(c + i * ldc + j * W) : splat(0);
    for (int64_t p = p0; p < p1; p++) {
        vec x[2];
        UNROLL
        for (int j = 0; j < nv; j++) x[j] = *(const vec *)(b + p * ldb + j * W);
        UNROLL
        for (int i = 0; i < MR; i++) {
            REAL f = a[i * ar + p * ac];
            UNROLL
            for (int j = 0; j < nv; j++) s[i][j] += f * x[j];
        }
    }
    if (solve == SOLVE_LOWER) UNROLL
    for (int k = 0; k < MR; k++) UNROLL
    for (int i = k + 1; i < MR; i++) UNROLL
    for (int j = 0; j < nv; j++) s[i][j] += d[i * ar + k * ac] * s[k][j];
    if (solve == SOLVE_UPPER) UNROLL
    for (int k = MR - 1; k >= 0; k--) UNROLL
    for (int i = k - 1; i >= 0; i--) UNROLL
    for (int j = 0; j < nv; j++) s[i][j] += d[i * ar + k * ac] * s[k][j];
    UNROLL
    for (int i = 0; i < MR; i++) UNROLL
    for (int j = 0; j < nv; j++) *(vec *)(c + i * ldc + j * W) = s[i][j];
}
/* MR rows across all columns. */
INLINE void strip(int solve, int add, int64_t n, int64_t p0, int64_t p1, const REAL *a, int64_t ar, int64_t ac,
                  const REAL *d, const REAL *b, int64_t ldb, REAL *c, int64_t ldc)
{
    int64_t j = 0;
    for (; j + 2 * W <= n; j += 2 * W) block(2, solve, add, p0, p1, a, ar, ac, d, b + j, ldb, c + j, ldc);
    if (j < n) block(1, solve, add, p0, p1, a, ar, ac, d, b + j, ldb, c + j, ldc);
}
INLINE int64_t lower_columns(int64_t i) { return (i / MR * MR + MR + W - 1) / W * W; } /* valid columns of row i then */

static void multiply(int shape, int add, int64_t m, int64_t n, int64_t k, const REAL *a, int64_t ar, int64_t ac,
                     const REAL *b, int64_t ldb, REAL *c, int64_t ldc)
{
    for (int64_t i = 0; i < m; i += MR) {
        int64_t p0 = shape == A_UPPER ? i : 0, p1 = shape == A_LOWER && i + MR < k ? i + MR : k;
        int64_t columns = shape == C_LOWER ? lower_columns(i) : n;
        if (add) strip(PLAIN, 1, columns, p0, p1, a + i * ar, ar, ac, NULL, b, ldb, c + i * ldc, ldc);
        else strip(PLAIN, 0, columns, p0, p1, a + i * ar, ar, ac, NULL, b, ldb, c + i * ldc, ldc);
    }
}
/* x = (I - L)^-1 x, L (m, m) strictly lower with rows of GDN_CHUNK; and with L's transpose. */
static void solve_lower(int64_t m, int64_t n, const REAL *l, REAL *x, int64_t ldx)
{
    for (int64_t i = 0; i < m; i += MR)
        strip(SOLVE_LOWER, 1, n, 0, i, l + i * GDN_CHUNK, GDN_CHUNK, 1, l + i * GDN_CHUNK + i, x, ldx, x + i * ldx,
              ldx);
}
static void solve_upper(int64_t m, int64_t n, const REAL *l, REAL *x, int64_t ldx)
{
    for (int64_t i = m - MR; i >= 0; i -= MR)
        strip(SOLVE_UPPER, 1, n, i + MR, m, l + i, 1, GDN_CHUNK, l + i * GDN_CHUNK + i, x, ldx, x + i * ldx, ldx);
}
/* to (columns, rows) = from (rows, columns), leading dimensions given */
static void transpose(int64_t rows, int64_t columns, const REAL *from, int64_t ld_from, REAL *to, int64_t ld_to)
{
    for (int64_t i = 0; i < rows; i += 8)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t r = i; r < i + 8; r++) to[j * ld_to + r] = from[r * ld_from + j];
}
