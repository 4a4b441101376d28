/* SPDX-License-Identifier: Apache-2.0 */
/* test_rows.c - norm, rotary embedding, both for queries and keys, sums of columns and of squares of the cpu backend. */
#include "fixture.h"

static int call_norm(const st_queue *q, const st_ops *ops, void *ctx) { return ops->norm(q, ctx); }
static int call_norm_bwd(const st_queue *q, const st_ops *ops, void *ctx) { return ops->norm_bwd(q, ctx); }
static int call_rope(const st_queue *q, const st_ops *ops, void *ctx) { return ops->rope(q, ctx); }

/* ---- norm ---- */
static void naive_norm(int kind, double eps, const double *r, const double *w, const double *b, int64_t rows,
                       int64_t cols, double *n, double *rstd, double *mean)
{
    for (int64_t i = 0; i < rows; i++) {
        double m = 0, v = 0;
        for (int64_t j = 0; j < cols && kind == ST_NORM_LAYER; j++) m += r[i * cols + j] / (double)cols;
        for (int64_t j = 0; j < cols; j++) v += (r[i * cols + j] - m) * (r[i * cols + j] - m) / (double)cols;
        mean[i] = m;
        rstd[i] = 1 / sqrt(v + eps);
        for (int64_t j = 0; j < cols; j++)
            n[i * cols + j] = (r[i * cols + j] - m) * rstd[i] * (w ? w[j] + (kind == ST_NORM_RMS1P) : 1) +
                              (b ? b[j] : 0);
    }
}

typedef struct norm_case { int kind; int64_t rows, heads, cols; bool y, in_place, w, b; } norm_case; /* heads 0: 2-d */

static void one_norm(rig *r, norm_case c)
{
    int64_t all = c.rows * (c.heads ? c.heads : 1);
#define SHAPED(gap) (c.heads ? NEW_REAL(r, gap, c.rows, c.heads, c.cols) : NEW_REAL(r, gap, c.rows, c.cols))
    st_tensor *x = SHAPED(3), *y = c.y ? SHAPED(1) : rig_absent(r), *out = c.in_place ? x : SHAPED(2), *n = SHAPED(5);
    st_tensor *w = c.w ? NEW_REAL(r, 0, c.cols, 1) : rig_absent(r),
              *b = c.b ? NEW_REAL(r, 0, 1, c.cols) : rig_absent(r);
    st_tensor *rstd = NEW_REAL(r, 1, c.rows, c.heads ? c.heads : 1),
              *mean = NEW_REAL(r, 0, c.rows, c.heads ? c.heads : 1);
    set_random(x, 1, -2, 3);
    if (c.y) set_random(y, 2, -1, 1);
    if (c.w) set_random(w, 3, -1, 1);
    if (c.b) set_random(b, 4, -1, 1);
    double *sum = values(x), *vw = c.w ? values(w) : NULL, *vb = c.b ? values(b) : NULL;
    double *want = values(n), *want_rstd = values(rstd), *want_mean = values(mean);
    for (int64_t i = 0; c.y && i < elements(x); i++) sum[i] += value_of(y, i);
    naive_norm(c.kind, 1e-6, sum, vw, vb, all, c.cols, want, want_rstd, want_mean);
    st_norm a = {
        .kind = c.kind, .eps = 1e-6, .r = x, .y = y, .w = w, .b = b, .r_out = out, .n = n, .rstd = rstd, .mean = mean};
    RUN_OK(r, call_norm, &a);
    near_to(r, "norm n", n, want, 1e-14, 3e-7);
    near_to(r, "norm r_out", out, sum, 1e-15, 1e-7);
    near_to(r, "norm rstd", rstd, want_rstd, 1e-14, 1e-7);
    if (c.kind == ST_NORM_LAYER) near_to(r, "norm mean", mean, want_mean, 1e-14, 1e-7);
    if (!c.in_place) { /* outputs one by one; sum without r_out */
        a.r_out = a.rstd = a.mean = rig_absent(r);
        set_all(n, 0);
        RUN_OK(r, call_norm, &a);
        near_to(r, "norm n alone", n, want, 1e-14, 3e-7);
        a.r_out = out;
        a.n = NULL;
        RUN_OK(r, call_norm, &a);
    }
    free(sum); free(vw); free(vb); free(want); free(want_rstd); free(want_mean);
    rig_clear(r);
}

static void norm(rig *r)
{
    for (int kind = ST_NORM_RMS1P; kind <= ST_NORM_LAYER; kind++)
        for (int k = 0; k < 16; k++) {
            one_norm(r, (norm_case){kind, 5, 0, 37, k & 1, k & 2, k & 4, k & 8});
            one_norm(r, (norm_case){kind, 4, 3, 24, k & 1, k & 2, k & 4, k & 8});
        }
    one_norm(r, (norm_case){ST_NORM_RMS1P, 400, 0, 96, true, false, true, false});
    one_norm(r, (norm_case){ST_NORM_LAYER, 3, 0, 5000, true, true, true, true});
    one_norm(r, (norm_case){ST_NORM_RMS, 0, 0, 8, false, false, true, false});
}

static void one_norm_bwd(rig *r, norm_case c, bool add, bool stats)
{
    st_tensor *x = SHAPED(3), *dn = SHAPED(1), *dr = SHAPED(2), *n = SHAPED(0), *again = SHAPED(0);
    st_tensor *w = c.w ? NEW_REAL(r, 0, c.cols) : rig_absent(r), *b = c.b ? NEW_REAL(r, 0, c.cols) : rig_absent(r);
    st_tensor *dw = NEW_REAL(r, 0, c.cols), *db = NEW_REAL(r, 0, c.cols);
    st_tensor *rstd = stats ? NEW_REAL(r, 0, c.rows, c.heads ? c.heads : 1) : rig_absent(r);
    st_tensor *mean = stats ? NEW_REAL(r, 0, c.rows, c.heads ? c.heads : 1) : rig_absent(r);
    set_random(x, 1, -2, 3);
    set_random(dn, 2, -1, 1);
    set_random(dr, 3, -1, 1);
    set_random(dw, 4, -1, 1);
    set_random(db, 5, -1, 1);
    if (c.w) set_random(w, 6, -1, 1);
    if (c.b) set_random(b, 7, -1, 1);
    double *old_dr = values(dr), *old_dw = values(dw), *old_db = values(db), *weight = values(dn);
    st_norm f = {.kind = c.kind, .eps = 1e-6, .r = x, .w = w, .b = b, .n = n, .rstd = rstd, .mean = mean};
    st_norm_bwd a = {.kind = c.kind,
                     .add = add,
                     .eps = 1e-6,
                     .r = x,
                     .w = w,
                     .b = b,
                     .rstd = rstd,
                     .mean = mean,
                     .dn = dn,
                     .dr = dr,
                     .dw = dw,
                     .db = db,
                     .n = again};
    RUN_OK(r, call_norm, &f);
    RUN_OK(r, call_norm_bwd, &a);
    double *normed = values(n), *g = values(dr), *gw = values(dw), *gb = values(db);
    near_to(r, "norm_bwd n", again, normed, 1e-15, 1e-7);
    for (int64_t i = 0; add && i < elements(dr); i++) g[i] -= old_dr[i];
    for (int64_t j = 0; j < c.cols; j++) {
        gw[j] -= old_dw[j];
        gb[j] -= old_db[j];
    }
    check_gradient(r, "norm_bwd dr", call_norm, &f, x, n, weight, g, 20);
    if (c.w) check_gradient(r, "norm_bwd dw", call_norm, &f, w, n, weight, gw, 20);
    if (c.b) check_gradient(r, "norm_bwd db", call_norm, &f, b, n, weight, gb, 20);
    st_norm_bwd none = a;
    none.dr = none.dw = none.db = none.n = NULL;
    RUN_OK(r, call_norm_bwd, &none);
    free(old_dr); free(old_dw); free(old_db); free(weight); free(normed); free(g); free(gw); free(gb);
    rig_clear(r);
}

static void norm_bwd(rig *r)
{
    for (int kind = ST_NORM_RMS1P; kind <= ST_NORM_LAYER; kind++)
        for (int k = 0; k < 8; k++) {
            one_norm_bwd(r, (norm_case){kind, 9, 0, 21, false, false, k & 1, k & 1}, k & 2, k & 4);
            one_norm_bwd(r, (norm_case){kind, 5, 3, 16, false, false, k & 1, k & 1}, k & 2, k & 4);
        }
    one_norm_bwd(r, (norm_case){ST_NORM_RMS1P, 700, 0, 96, false, false, true, false}, true, true);
}

/* Backward in f32 against backward in f64 on the same numbers: both rigs fill in their own half. */
static void norm_bwd_types(void **state)
{
    double *kept[3] = {NULL};
    for (int pass = 0; pass < 2; pass++) {
        rig *r = malloc(sizeof *r);
        rig_open(r, pass ? ST_F32 : ST_F64, 0);
        norm_case c = {ST_NORM_LAYER, 300, 0, 96, false, false, true, true};
        st_tensor *x = SHAPED(0), *dn = SHAPED(0), *dr = SHAPED(0), *w = NEW_REAL(r, 0, 96), *dw = NEW_REAL(r, 0, 96);
        st_tensor *db = NEW_REAL(r, 0, 96);
        set_random(x, 1, -2, 3);
        set_random(dn, 2, -1, 1);
        set_random(w, 3, -1, 1);
        st_norm_bwd a = {.kind = c.kind, .eps = 1e-6, .r = x, .w = w, .dn = dn, .dr = dr, .dw = dw, .db = db};
        RUN_OK(r, call_norm_bwd, &a);
        st_tensor *const out[3] = {dr, dw, db};
        for (int i = 0; i < 3; i++) {
            if (!pass) kept[i] = values(out[i]);
            else near_to(r, "norm_bwd in f32", out[i], kept[i], 0, 1e-6);
        }
        rig_close(r);
        free(r);
    }
    for (int i = 0; i < 3; i++) free(kept[i]);
}

static void norm_refuses(rig *r)
{
    st_tensor *x = NEW_REAL(r, 0, 4, 6), *n = NEW_REAL(r, 0, 4, 7), *w = NEW_REAL(r, 0, 5);
    st_norm a = {.kind = ST_NORM_RMS, .r = x, .n = n};
    REFUSED(r, call_norm, &a, ST_E_SHAPE, "norm: n is", "[4, 7]", "r is", "[4, 6]");
    a.n = x;
    a.w = w;
    REFUSED(r, call_norm, &a, ST_E_SHAPE, "norm: w is", "[5]", "[6]");
    a.kind = 9;
    REFUSED(r, call_norm, &a, ST_E_UNSUPPORTED, "norm: kind 9");
    rig_clear(r);
}

/* ---- rotary embedding ---- */
static void one_rope(rig *r, int dim, bool interleaved, int64_t cols)
{
    enum { TOKENS = 150, HEADS = 3 };
    st_tensor *flat = NEW_REAL(r, 4, TOKENS, HEADS * 2 * cols); /* heads as every second run of columns */
    st_tensor *x = rig_view(r, st_heads(*flat, 0, HEADS, cols, 2 * cols));
    st_tensor *cosine = NEW_REAL(r, 0, TOKENS, dim / 2), *sine = NEW_REAL(r, 0, TOKENS, dim / 2);
    set_random(flat, 1, -1, 1);
    set_random(cosine, 2, -1, 1);
    set_random(sine, 3, -1, 1);
    double *want = values(flat), *start = values(flat);
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < dim / 2; i++) {
                double *v = want + (t * HEADS + h) * 2 * cols, c = value_of(cosine, t * (dim / 2) + i),
                       s = value_of(sine, t * (dim / 2) + i);
                int lo = interleaved ? 2 * i : i, hi = interleaved ? 2 * i + 1 : i + dim / 2;
                double a = v[lo], b = v[hi];
                v[lo] = a * c - b * s;
                v[hi] = b * c + a * s;
            }
    st_rotary table = {*cosine, *sine, dim, interleaved};
    st_rope a = {.x = x, .table = &table};
    RUN_OK(r, call_rope, &a);
    near_to(r, "rope", flat, want, 1e-15, 1e-7);
    /* its transpose is its inverse when the table holds true rotations */
    for (int64_t i = 0; i < elements(cosine); i++) {
        set_value(cosine, i, 0.6);
        set_value(sine, i, 0.8);
    }
    set_values(flat, start);
    RUN_OK(r, call_rope, &a);
    a.inverse = 1;
    RUN_OK(r, call_rope, &a);
    near_to(r, "rope there and back", flat, start, 1e-15, 2e-7);
    table.dim = dim + 1;
    REFUSED(r, call_rope, &a, ST_E_SHAPE, "rope");
    free(want); free(start);
    rig_clear(r);
}

static void rope(rig *r)
{
    one_rope(r, 12, false, 12);
    one_rope(r, 8, false, 20);
    one_rope(r, 8, true, 20);
}

/* ---- head norms with rotation ---- */
static int call_qk_norm(const st_queue *q, const st_ops *ops, void *ctx) { return ops->qk_norm(q, ctx); }
static int call_qk_norm_bwd(const st_queue *q, const st_ops *ops, void *ctx) { return ops->qk_norm_bwd(q, ctx); }

enum { QK_TOKENS = 150, QK_HEADS = 3, QK_KEYS = 2 };
typedef struct qk_case { int kind, dim, interleaved; int64_t cols; } qk_case;
typedef struct qk_rig {
    st_tensor *flat, *d_flat, *table[2]; /* a projection: queries and gates, keys; its gradient */
    st_rotary rotary;
    st_qk_norm a;
} qk_rig;

static st_qk_side qk_side(rig *r, const qk_rig *x, int64_t at, int64_t heads, int64_t cols, int64_t step, uint64_t seed)
{
    st_qk_side s = {.x = rig_view(r, st_heads(*x->flat, at, heads, cols, step)),
                    .dx = rig_view(r, st_heads(*x->d_flat, at, heads, cols, step)),
                    .w = NEW_REAL(r, 0, cols),
                    .y = NEW_REAL(r, 2, QK_TOKENS, heads, cols),
                    .rstd = NEW_REAL(r, 1, QK_TOKENS, heads),
                    .dy = NEW_REAL(r, 3, QK_TOKENS, heads, cols),
                    .dw = NEW_REAL(r, 0, cols)};
    set_random(s.w, seed, -1, 1);
    set_random(s.dy, seed + 1, -1, 1);
    set_random(s.dw, seed + 2, -1, 1);
    return s;
}
static qk_rig make_qk(rig *r, const qk_case *c)
{
    qk_rig x;
    const int64_t queries = 2 * QK_HEADS * c->cols;
    x.flat = NEW_REAL(r, 4, QK_TOKENS, queries + QK_KEYS * c->cols);
    x.d_flat = NEW_REAL(r, 1, QK_TOKENS, queries + QK_KEYS * c->cols);
    set_random(x.flat, 1, -2, 3);
    for (int i = 0; i < 2; i++) {
        x.table[i] = c->dim ? NEW_REAL(r, i, QK_TOKENS, c->dim / 2) : rig_absent(r);
        if (c->dim) set_random(x.table[i], 2 + (uint64_t)i, -1, 1);
    }
    x.rotary = (st_rotary){*x.table[0], *x.table[1], c->dim, c->interleaved};
    x.a = (st_qk_norm){.kind = c->kind, .eps = 1e-6};
    x.a.q = qk_side(r, &x, 0, QK_HEADS, c->cols, 2 * c->cols, 10);
    x.a.k = qk_side(r, &x, queries, QK_KEYS, c->cols, c->cols, 20);
    return x;
}

/* What the separate ops make of the same. */
static double *side_by_parts(rig *r, const qk_rig *x, const st_qk_side *s)
{
    st_norm norm = {.kind = x->a.kind, .eps = x->a.eps, .r = s->x, .w = s->w, .n = s->y, .rstd = s->rstd};
    st_rope turn = {s->y, &x->rotary, 0, 0};
    RUN_OK(r, call_norm, &norm);
    RUN_OK(r, call_rope, &turn);
    double *y = values(s->y);
    set_all(s->y, 7);
    set_all(s->rstd, 7);
    return y;
}

static void one_qk_side(rig *r, qk_rig *x, const st_qk_side *s, const double *dy, const double *old_dw)
{
    double *dx = values(s->dx), *dw = values(s->dw);
    for (int64_t j = 0; j < elements(s->dw); j++) dw[j] -= old_dw[j];
    check_gradient(r, "qk_norm dx", call_qk_norm, &x->a, s->x, s->y, dy, dx, 20);
    check_gradient(r, "qk_norm dw", call_qk_norm, &x->a, s->w, s->y, dy, dw, 20);
    free(dx); free(dw);
}

static void one_qk(rig *r, qk_case c)
{
    qk_rig x = make_qk(r, &c);
    x.a.table = &x.rotary;
    double *want_q = side_by_parts(r, &x, &x.a.q), *want_k = side_by_parts(r, &x, &x.a.k);
    double *dy_q = values(x.a.q.dy), *dy_k = values(x.a.k.dy), *dw_q = values(x.a.q.dw), *dw_k = values(x.a.k.dw);
    RUN_OK(r, call_qk_norm, &x.a);
    near_to(r, "qk_norm q", x.a.q.y, want_q, 0, 0);
    near_to(r, "qk_norm k", x.a.k.y, want_k, 0, 0);
    RUN_OK(r, call_qk_norm_bwd, &x.a);
    one_qk_side(r, &x, &x.a.q, dy_q, dw_q);
    one_qk_side(r, &x, &x.a.k, dy_k, dw_k);
    set_values(x.a.q.dy, dy_q); /* what is frozen is skipped */
    set_values(x.a.k.dy, dy_k);
    double *dx = values(x.a.k.dx);
    set_all(x.a.k.dx, 7);
    x.a.q.dw = x.a.k.dw = x.a.q.dx = NULL;
    RUN_OK(r, call_qk_norm_bwd, &x.a);
    near_to(r, "qk_norm dx alone", x.a.k.dx, dx, 0, 0);
    free(want_q); free(want_k); free(dy_q); free(dy_k); free(dw_q); free(dw_k); free(dx);
    rig_clear(r);
}

static void qk_norm(rig *r)
{
    one_qk(r, (qk_case){ST_NORM_RMS1P, 8, 0, 24});
    one_qk(r, (qk_case){ST_NORM_RMS, 12, 1, 12});
    one_qk(r, (qk_case){ST_NORM_RMS1P, 0, 0, 9});
}

static void qk_norm_refuses(rig *r)
{
    qk_case c = {ST_NORM_RMS1P, 8, 0, 16};
    qk_rig x = make_qk(r, &c);
    x.a.table = &x.rotary;
    st_qk_norm a = x.a;
    a.k.x = a.q.w;
    REFUSED(r, call_qk_norm, &a, ST_E_SHAPE, "qk_norm: k.x is", "[16]", "[150, any, 16]");
    a = x.a;
    a.q.y = a.k.y;
    REFUSED(r, call_qk_norm, &a, ST_E_SHAPE, "qk_norm: q.y is", "[150, 2, 16]", "q.x is", "[150, 3, 16]");
    a = x.a;
    a.k.rstd = NULL;
    REFUSED(r, call_qk_norm_bwd, &a, ST_E_SHAPE, "qk_norm_bwd: k.rstd is absent", "[150, 2]");
    a = x.a;
    a.kind = ST_NORM_LAYER;
    REFUSED(r, call_qk_norm, &a, ST_E_UNSUPPORTED, "qk_norm: kind 3");
    x.rotary.dim = 18;
    REFUSED(r, call_qk_norm_bwd, &x.a, ST_E_SHAPE, "qk_norm_bwd: 18 columns are to rotate", "16");
    rig_clear(r);
}

/* ---- sums ---- */
typedef struct sum_call { st_tensor *x, *out; double weight; } sum_call;
static int call_colsum(const st_queue *q, const st_ops *ops, void *ctx)
{
    const sum_call *c = ctx;
    return ops->colsum(q, c->x, c->out);
}
static int call_sumsq(const st_queue *q, const st_ops *ops, void *ctx)
{
    const sum_call *c = ctx;
    return ops->sumsq(q, c->x, c->weight, c->out);
}

static void sums(rig *r)
{
    st_tensor *x = NEW_REAL(r, 3, 1000, 70), *out = NEW_REAL(r, 0, 70), *cell = NEW_REAL(r, 0, 1);
    set_random(x, 1, -1, 1);
    set_random(out, 2, -1, 1);
    set_value(cell, 0, 3);
    double *want = values(out), squares = 3;
    for (int64_t i = 0; i < elements(x); i++) {
        want[i % 70] += value_of(x, i);
        squares += 0.25 * value_of(x, i) * value_of(x, i);
    }
    sum_call c = {x, out, 0.25};
    RUN_OK(r, call_colsum, &c);
    near_to(r, "colsum", out, want, 1e-14, 1e-7);
    c.out = cell;
    RUN_OK(r, call_sumsq, &c);
    near_to(r, "sumsq", cell, &squares, 1e-14, 1e-7);
    set_value(x, 777, INFINITY);
    RUN_OK(r, call_sumsq, &c);
    assert_true(isinf(value_of(cell, 0)));
    c.out = rig_absent(r);
    RUN_OK(r, call_sumsq, &c);
    RUN_OK(r, call_colsum, &c);
    c.out = cell;
    REFUSED(r, call_colsum, &c, ST_E_SHAPE, "colsum: out is", "[1]", "[70]");
    free(want);
    rig_clear(r);
}

static void test_norm(void **state) { rig_each(norm); }
static void test_norm_bwd(void **state) { rig_each(norm_bwd); }
static void test_norm_refuses(void **state) { rig_each(norm_refuses); }
static void test_rope(void **state) { rig_each(rope); }
static void test_qk_norm(void **state) { rig_each(qk_norm); }
static void test_qk_norm_refuses(void **state) { rig_each(qk_norm_refuses); }
static void test_sums(void **state) { rig_each(sums); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm), cmocka_unit_test(test_norm_bwd), cmocka_unit_test(norm_bwd_types),
        cmocka_unit_test(test_norm_refuses), cmocka_unit_test(test_rope), cmocka_unit_test(test_qk_norm),
        cmocka_unit_test(test_qk_norm_refuses), cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests_name("cpu rows", tests, NULL, NULL);
}
