/* SPDX-License-Identifier: Apache-2.0 */
/* test_lookup.c - rows moved by index and linear + cross-entropy of the cpu backend. */
#include "fixture.h"

static int call_lookup(const st_queue *q, const st_ops *ops, void *ctx) { return ops->lookup(q, ctx); }
static int call_lookup_bwd(const st_queue *q, const st_ops *ops, void *ctx) { return ops->lookup_bwd(q, ctx); }
static int call_xent(const st_queue *q, const st_ops *ops, void *ctx) { return ops->xent(q, ctx); }
typedef struct move_call { st_tensor *src, *index, *w, *dst; } move_call;
static int call_gather(const st_queue *q, const st_ops *ops, void *ctx)
{
    const move_call *c = ctx;
    return ops->gather(q, c->src, c->index, c->dst);
}
static int call_scatter(const st_queue *q, const st_ops *ops, void *ctx)
{
    const move_call *c = ctx;
    return ops->scatter(q, c->src, c->index, c->dst);
}
static int call_combine(const st_queue *q, const st_ops *ops, void *ctx)
{
    const move_call *c = ctx;
    return ops->combine(q, c->src, c->index, c->w, c->dst);
}

/* ---- lookup ---- */
enum { SLOTS = 700, WORDS = 40, FIRST = 10, WIDE = 300, IMAGE_ROWS = 9 };

static void sort_by_id(const st_tensor *ids, const st_tensor *order) /* stable */
{
    int64_t at = 0;
    for (int id = -1; id < FIRST + WORDS + 20; id++)
        for (int64_t t = 0; t < SLOTS; t++)
            if ((int)value_of(ids, t) == id) set_value(order, at++, (double)t);
    assert_int_equal(at, SLOTS);
}

/* Of a whole table an id outside it: behind, in front, but not -1, nor one where a picture stands. */
static void id_outside_is_a_fault(rig *r, const st_lookup *cut)
{
    static const int id[] = {FIRST + WORDS, FIRST - 1, 0, FIRST + WORDS - 1, FIRST, -1};
    double *ids = values(cut->ids);
    st_lookup a = *cut;
    a.group = ST_G_NONE;
    for (int64_t t = 0; t < SLOTS; t++)
        if (value_of(a.ids, t) >= 0) set_value(a.ids, t, FIRST);
    for (size_t i = 0; i < ST_COUNT(id); i++) {
        bool outside = id[i] >= 0 && (id[i] < FIRST || id[i] >= FIRST + WORDS);
        r->fault = (st_fault){0};
        set_value(a.ids, 100, id[i]);
        RUN_OK(r, call_lookup, &a);
        assert_int_equal(r->fault.code, ST_FAULT_NONE);
        set_value(a.ids, 100, FIRST);
        set_value(a.ids, 699, id[i]);
        RUN_OK(r, call_lookup, &a);
        assert_int_equal(r->fault.code, outside ? ST_FAULT_RANGE : ST_FAULT_NONE);
        if (outside) assert_true(r->fault.a == id[i] && r->fault.b == FIRST + WORDS);
        for (int64_t j = 0; j < WIDE && outside; j++) assert_true(value_of(a.out, 699 * WIDE + j) == 0);
        set_value(a.ids, 699, FIRST);
    }
    set_values(a.ids, ids);
    free(ids);
}

static void lookup(rig *r)
{
    st_tensor *table = NEW_REAL(r, 2, WORDS, WIDE), *features = NEW_REAL(r, 1, IMAGE_ROWS, WIDE),
              *out = NEW_REAL(r, 3, SLOTS, WIDE);
    st_tensor *ids = NEW(r, ST_I32, 0, 1, SLOTS), *media = NEW(r, ST_I32, 0, SLOTS), *order = NEW(r, ST_I32, 0, SLOTS);
    st_tensor *d_table = NEW_REAL(r, 2, WORDS, WIDE), *d_features = NEW_REAL(r, 1, IMAGE_ROWS, WIDE),
              *absent = rig_absent(r);
    set_random(table, 1, -1, 1);
    set_random(features, 2, -1, 1);
    /* id -1, ids of other ranks, one very frequent id over several pieces of the order */
    for (int64_t t = 0; t < SLOTS; t++) {
        set_value(ids, t, t % 2 ? 23 : floor(random_at(5, t) * (FIRST + WORDS + 12)) - 1);
        set_value(media, t, t >= 100 && t < 100 + 2 * IMAGE_ROWS ? (t - 100) / 2 : -1); /* a feature row used twice */
    }
    sort_by_id(ids, order);
    double *want = calloc(SLOTS * WIDE, sizeof *want);
    for (int64_t t = 0; t < SLOTS; t++)
        for (int64_t j = 0; j < WIDE; j++) {
            int64_t row = (int64_t)value_of(ids, t) - FIRST, m = (int64_t)value_of(media, t);
            want[t * WIDE + j] = m >= 0 ? value_of(features, m * WIDE + j)
                                 : row >= 0 && row < WORDS ? value_of(table, row * WIDE + j) : 0;
        }
    st_lookup a = {
        .table = table, .ids = ids, .media = media, .features = features, .order = order, .out = out, .first = FIRST,
        .group = ST_G_TENSOR};
    RUN_OK(r, call_lookup, &a);
    near_to(r, "lookup", out, want, 0, 0);
    assert_int_equal(r->fault.code, ST_FAULT_NONE);
    id_outside_is_a_fault(r, &a);

    for (int pass = 0; pass < 3; pass++) {
        set_random(out, 7, -1, 1);
        set_random(d_table, 8, -1, 1);
        set_random(d_features, 9, -1, 1);
        a.d_out = out;
        a.d_table = pass == 2 ? absent : d_table;
        a.d_features = pass == 1 ? absent : d_features;
        a.beta = pass ? 1 : 0.25f;
        double *g = values(d_table), *f = values(d_features);
        for (int64_t i = 0; i < WORDS * WIDE; i++) g[i] *= a.beta;
        for (int64_t t = 0; t < SLOTS; t++)
            for (int64_t j = 0; j < WIDE; j++) {
                int64_t row = (int64_t)value_of(ids, t) - FIRST, m = (int64_t)value_of(media, t);
                if (m >= 0) f[m * WIDE + j] += pass == 1 ? 0 : value_of(out, t * WIDE + j);
                else if (row >= 0 && row < WORDS) g[row * WIDE + j] += pass == 2 ? 0 : value_of(out, t * WIDE + j);
            }
        RUN_OK(r, call_lookup_bwd, &a);
        near_to(r, "d_table", d_table, g, 1e-14, 1e-7);
        near_to(r, "d_features", d_features, f, 1e-14, 1e-7);
        free(g); free(f);
    }
    set_all(d_table, NAN); /* beta 0 writes without reading */
    a.d_table = d_table;
    a.beta = 0;
    RUN_OK(r, call_lookup_bwd, &a);
    for (int64_t i = 0; i < WORDS * WIDE; i++) assert_false(isnan(value_of(d_table, i)));
    a.out = NEW_REAL(r, 0, SLOTS, WIDE + 1);
    REFUSED(r, call_lookup, &a, ST_E_SHAPE, "lookup: out is", "[700, 301]", "[any, 300]");
    free(want);
    rig_clear(r);
}

/* ---- gather, scatter, combine ---- */
static void moves(rig *r)
{
    const int32_t index[] = {3, -1, 0, -2, 4, 4}, to[] = {2, -1, 0, 5, 1, 4};
    st_tensor *src = NEW_REAL(r, 1, 6, 33), *dst = NEW_REAL(r, 2, 6, 33), *i = NEW(r, ST_I32, 0, 6);
    set_random(src, 1, -1, 1);
    set_all(dst, 5);
    double *want = values(dst);
    for (int k = 0; k < 6; k++) set_value(i, k, index[k]);
    for (int64_t k = 0; k < 6 * 33; k++)
        if (index[k / 33] > -2) want[k] = index[k / 33] < 0 ? 0 : value_of(src, index[k / 33] * 33 + k % 33);
    move_call c = {src, i, NULL, dst};
    RUN_OK(r, call_gather, &c);
    near_to(r, "gather", dst, want, 0, 0);
    set_all(dst, 5);
    for (int64_t k = 0; k < 6 * 33; k++) want[k] = 5;
    for (int k = 0; k < 6; k++) set_value(i, k, to[k]);
    for (int64_t k = 0; k < 6 * 33; k++)
        if (to[k / 33] >= 0) want[to[k / 33] * 33 + k % 33] = value_of(src, k);
    RUN_OK(r, call_scatter, &c);
    near_to(r, "scatter", dst, want, 0, 0);
    free(want);
    st_tensor *whole = NEW(r, ST_I32, 0, 6), *picked = NEW(r, ST_I32, 0, 6); /* one-dimensional, of whole numbers */
    for (int k = 0; k < 6; k++) {
        set_value(whole, k, 10 * k);
        set_value(i, k, 5 - k);
    }
    c = (move_call){whole, i, NULL, picked};
    RUN_OK(r, call_gather, &c);
    for (int k = 0; k < 6; k++) assert_true(value_of(picked, k) == 10 * (5 - k));
    set_value(i, 2, 6);
    RUN_OK(r, call_gather, &c);
    assert_int_equal(r->fault.code, ST_FAULT_RANGE);
    assert_int_equal(r->fault.a, 6);
    c.dst = NEW(r, ST_I32, 0, 7);
    REFUSED(r, call_gather, &c, ST_E_SHAPE, "gather: index is", "[6]", "[7]");
    rig_clear(r);
}

static void combine(rig *r)
{
    enum { N = 500, K = 3, COLS = 40 };
    st_tensor *src = NEW_REAL(r, 1, 50, COLS), *i = NEW(r, ST_I32, 1, N, K), *w = NEW_REAL(r, 2, N, K),
              *dst = NEW_REAL(r, 0, N, COLS);
    set_random(src, 1, -1, 1);
    set_random(w, 2, -1, 1);
    for (int64_t k = 0; k < N * K; k++) set_value(i, k, floor(random_at(3, k) * 55) - 5);
    for (int pass = 0; pass < 2; pass++) {
        double *want = calloc(N * COLS, sizeof *want);
        for (int64_t k = 0; k < N * K; k++)
            for (int64_t j = 0; j < COLS; j++)
                if (value_of(i, k) >= 0)
                    want[k / K * COLS + j] += (pass ? 1 : value_of(w, k)) *
                                              value_of(src, (int64_t)value_of(i, k) * COLS + j);
        move_call c = {src, i, pass ? NULL : w, dst};
        RUN_OK(r, call_combine, &c);
        near_to(r, "combine", dst, want, 1e-15, 1e-7);
        free(want);
    }
    rig_clear(r);
}

/* ---- cross-entropy ---- */
enum { ROWS = 37, HIDDEN = 24, VOCAB = 203, WORD0 = 5 };
typedef struct xent_rig {
    st_tensor *h, *w, *rows, *labels, *scale, *loss, *dh, *dw, *nll, *best;
    st_xent x;
} xent_rig;

static xent_rig make_xent(rig *r, bool list)
{
    xent_rig x;
    x.h = NEW_REAL(r, 2, ROWS, HIDDEN);
    x.w = NEW_REAL(r, 1, VOCAB, HIDDEN);
    x.labels = NEW(r, ST_I32, 0, 1, ROWS);
    x.rows = list ? NEW(r, ST_I32, 0, ROWS) : rig_absent(r);
    x.scale = NEW_REAL(r, 0, 1);
    x.loss = NEW_REAL(r, 0, 2);
    x.dh = NEW_REAL(r, 3, ROWS, HIDDEN);
    x.dw = NEW_REAL(r, 2, VOCAB, HIDDEN);
    x.nll = NEW_REAL(r, 0, ROWS);
    x.best = NEW(r, ST_I32, 0, ROWS);
    set_random(x.h, 1, -2, 2);
    set_random(x.w, 2, -1, 1);
    set_random(x.dh, 3, -1, 1);
    set_random(x.dw, 4, -1, 1);
    set_value(x.scale, 0, 0.125);
    set_value(x.loss, 0, 3);
    set_value(x.loss, 1, 4);
    set_all(x.nll, -1);
    set_all(x.best, -9);
    int64_t n = 0;
    for (int64_t i = 0; i < ROWS; i++)
        set_value(x.labels, i, i % 3 == 1 ? -1 : WORD0 + floor(random_at(5, i) * VOCAB));
    for (int64_t i = 0; list && i < ROWS; i++) { /* the rows with a label from 6 on, then nothing */
        if (value_of(x.labels, i) >= 0 && i >= 6) set_value(x.rows, n++, (double)i);
    }
    for (; list && n < ROWS; n++) set_value(x.rows, n, -1);
    x.x = (st_xent){.h = x.h,
                    .w = x.w,
                    .rows = x.rows,
                    .labels = x.labels,
                    .scale = x.scale,
                    .loss = x.loss,
                    .dh = x.dh,
                    .dw = x.dw,
                    .nll = x.nll,
                    .best = x.best,
                    .weight = 0.75,
                    .first = WORD0,
                    .budget = 4 * VOCAB * 8,
                    .group = ST_G_NONE,
                    .beta = 0.5f};
    return x;
}

static void check_xent(rig *r, bool list, size_t budget)
{
    xent_rig x = make_xent(r, list);
    double *nll = values(x.nll), *best = values(x.best), *dh = values(x.dh), *dw = values(x.dw), loss[2] = {3, 4};
    double *h = values(x.h), *w = values(x.w), p[VOCAB], factor = 0.75 * 0.125;
    for (int64_t k = 0; k < VOCAB * HIDDEN; k++) dw[k] *= 0.5;
    for (int64_t i = 0; i < ROWS; i++) {
        int64_t label = (int64_t)value_of(x.labels, i) - WORD0;
        double most = -INFINITY, sum = 0;
        if (label < 0 || (list && i < 6)) continue;
        for (int64_t v = 0; v < VOCAB; v++) {
            p[v] = 0;
            for (int64_t k = 0; k < HIDDEN; k++) p[v] += h[i * HIDDEN + k] * w[v * HIDDEN + k];
            if (p[v] > most) {
                most = p[v];
                best[i] = (double)(v + WORD0);
            }
        }
        nll[i] = most - p[label];
        for (int64_t v = 0; v < VOCAB; v++) sum += p[v] = exp(p[v] - most);
        nll[i] += log(sum);
        loss[0] += nll[i];
        loss[1] += 1;
        for (int64_t v = 0; v < VOCAB; v++) {
            double g = factor * (p[v] / sum - (v == label));
            for (int64_t k = 0; k < HIDDEN; k++) {
                dh[i * HIDDEN + k] += g * w[v * HIDDEN + k];
                dw[v * HIDDEN + k] += g * h[i * HIDDEN + k];
            }
        }
    }
    x.x.budget = budget;
    RUN_OK(r, call_xent, &x.x);
    near_to(r, "xent nll", x.nll, nll, 1e-14, 1e-6);
    near_to(r, "xent best", x.best, best, 0, 0);
    near_to(r, "xent loss", x.loss, loss, 1e-14, 1e-6);
    near_to(r, "xent dh", x.dh, dh, 1e-13, 1e-6);
    near_to(r, "xent dw", x.dw, dw, 1e-13, 1e-6);
    double live = loss[1] - 4; /* rows without a label cost no products */
    assert_true(r->flops == 3 * 2.0 * live * VOCAB * HIDDEN);
    assert_true(r->planned_flops == 3 * 2.0 * ROWS * VOCAB * HIDDEN);
    free(nll); free(best); free(dh); free(dw); free(h); free(w);
    rig_clear(r);
}

static void xent(rig *r)
{
    const size_t word = st_dtype_size(r->type);
    for (int list = 0; list < 2; list++) {
        check_xent(r, list, 0);                        /* a row at a time */
        check_xent(r, list, 5 * VOCAB * word);         /* the last chunk is not full */
        check_xent(r, list, 1 << 20);                  /* all in one */
    }
}

static void xent_parts(rig *r)
{
    xent_rig x = make_xent(r, true);
    double *dw = values(x.dw), *dh = values(x.dh);
    st_xent eval = x.x; /* loss only */
    eval.dh = eval.dw = eval.scale = NULL;
    eval.best = NULL;
    RUN_OK(r, call_xent, &eval);
    near_to(r, "dw untouched", x.dw, dw, 0, 0);
    near_to(r, "dh untouched", x.dh, dh, 0, 0);
    assert_true(r->flops > 0 && r->planned_flops == 2.0 * ROWS * VOCAB * HIDDEN);
    set_all(x.rows, -1); /* nothing takes part: only beta acts */
    set_all(x.loss, 0);
    for (int64_t i = 0; i < elements(x.dw); i++) dw[i] *= 0.5;
    RUN_OK(r, call_xent, &x.x);
    near_to(r, "dw times beta", x.dw, dw, 0, 0);
    near_to(r, "dh untouched", x.dh, dh, 0, 0);
    assert_true(value_of(x.loss, 0) == 0 && value_of(x.loss, 1) == 0 && r->flops == 0);
    set_value(x.rows, 0, 3);
    set_value(x.labels, 3, WORD0 + VOCAB); /* no such word */
    RUN_OK(r, call_xent, &x.x);
    assert_int_equal(r->fault.code, ST_FAULT_RANGE);
    set_value(x.labels, 3, WORD0 + 1);
    for (int64_t v = 0; v < VOCAB; v++)
        for (int64_t k = 0; k < HIDDEN; k++) set_value(x.w, v * HIDDEN + k, v == 7 || v == 9 ? 1 : 0);
    set_all(x.h, 1); /* words 7 and 9 are equally likely: the lower one wins */
    RUN_OK(r, call_xent, &x.x);
    assert_true(value_of(x.best, 3) == WORD0 + 7);
    set_value(x.h, 3 * HIDDEN, NAN);
    RUN_OK(r, call_xent, &x.x);
    assert_true(isnan(value_of(x.loss, 0)) && isnan(value_of(x.nll, 3)));
    st_xent bad = x.x;
    bad.w = x.h;
    bad.dw = x.dw;
    REFUSED(r, call_xent, &bad, ST_E_SHAPE, "xent: dw is", "[203, 24]", "[37, 24]");
    free(dw); free(dh);
    rig_clear(r);
}

/* Two halves of the vocabulary as two ranks would hold them, with an all-reduce that knows the other rank's numbers:
 * each half runs once to record what it sends, and again with the sums of both. */
typedef struct fake_step {
    st_step step;
    int calls;
    double sent[2][8][2 * ROWS];
    int rank, answer;
} fake_step;

static int fake_collective(st_step *s, uint32_t what, uint32_t group, const st_tensor *send, const st_tensor *recv)
{
    fake_step *f = (fake_step *)s;
    assert_int_equal(group, ST_G_TENSOR);
    for (int64_t i = 0; i < elements(send); i++) {
        double *mine = &f->sent[f->rank][f->calls][i], other = f->sent[!f->rank][f->calls][i];
        *mine = value_of(send, i);
        if (f->answer) set_value(recv, i, what == ST_ALL_REDUCE_MAX ? fmax(*mine, other) : *mine + other);
    }
    f->calls++;
    return ST_OK;
}

static void xent_cut(rig *r)
{
    static const st_step_api api = {.size = sizeof api, .collective = fake_collective};
    enum { HALF = 100 };
    fake_step *f = calloc(1, sizeof *f);
    xent_rig x = make_xent(r, true);
    f->step.api = &api;
    x.x.budget = 1 << 20;
    double *h0 = values(x.dh), *w0 = values(x.dw);
    if (rig_once(r, call_xent, &x.x)) fail_msg("%s", r->message);
    double *nll = values(x.nll), *best = values(x.best), *dh = values(x.dh), *dw = values(x.dw),
           *sum = calloc(ROWS * HIDDEN, 8);
    st_tensor w = *x.w, g = *x.dw;
    for (int round = 0; round < 4; round++) /* what is sent settles after as many rounds as a chunk has collectives */
        for (int rank = 0; rank < 2; rank++) {
            st_tensor wr = st_rows(w, rank ? HALF : 0, rank ? VOCAB - HALF : HALF),
                      gr = st_rows(g, rank ? HALF : 0, wr.dim[0]);
            set_values(x.dh, h0);
            for (int64_t i = rank ? HALF * HIDDEN : 0; i < (rank ? VOCAB : HALF) * HIDDEN; i++)
                set_value(x.dw, i, w0[i]);
            f->rank = rank;
            f->calls = 0;
            f->answer = round > 0;
            st_xent part = x.x;
            part.step = &f->step;
            part.group = ST_G_TENSOR;
            part.w = &wr;
            part.dw = &gr;
            part.first = WORD0 + (rank ? HALF : 0);
            if (rig_once(r, call_xent, &part)) fail_msg("%s", r->message);
            assert_int_equal(f->calls, 3);
            for (int64_t i = 0; round == 3 && i < ROWS * HIDDEN; i++) sum[i] += value_of(x.dh, i) - h0[i];
        }
    near_to(r, "cut nll", x.nll, nll, 1e-13, 1e-6);
    near_to(r, "cut best", x.best, best, 0, 0);
    near_to(r, "cut dw", x.dw, dw, 1e-13, 1e-6);
    for (int64_t i = 0; i < ROWS * HIDDEN; i++) set_value(x.dh, i, h0[i] + sum[i]);
    near_to(r, "cut dh", x.dh, dh, 1e-13, 1e-6);
    free(h0); free(w0); free(nll); free(best); free(dh); free(dw); free(sum); free(f);
    rig_clear(r);
}

static void test_lookup(void **state) { rig_each(lookup); }
static void test_moves(void **state) { rig_each(moves); }
static void test_combine(void **state) { rig_each(combine); }
static void test_xent(void **state) { rig_each(xent); }
static void test_xent_parts(void **state) { rig_each(xent_parts); }
static void test_xent_cut(void **state) { rig_each(xent_cut); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup), cmocka_unit_test(test_moves), cmocka_unit_test(test_combine),
        cmocka_unit_test(test_xent), cmocka_unit_test(test_xent_parts), cmocka_unit_test(test_xent_cut),
    };
    return cmocka_run_group_tests_name("cpu lookup", tests, NULL, NULL);
}
