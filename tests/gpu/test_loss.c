/* SPDX-License-Identifier: Apache-2.0 */
/* test_loss.c - xent, lookup, adamw and grouped of the cuda backend against the cpu backend in f64, from the same rounded
 * inputs. Relative norms: f32 within 1e-5. bf16: what is one rounding away from f32 sums within 2e-3 (half a unit is 2^-9);
 * behind logits that are stored in bf16 within 2e-2 (logits of size 4 are off by up to 2^-7, and so are probabilities,
 * relatively). Every call runs twice for equal bits. The last test prints times. */
#include "pairs.h"
#include <stdio.h>

#define NEAR_F32 1e-5
#define NEAR_BF16 2e-3
#define BEHIND_BF16 2e-2

static int call_lookup(const st_queue *q, const st_ops *ops, void *ctx) { return ops->lookup(q, ctx); }
static int call_lookup_bwd(const st_queue *q, const st_ops *ops, void *ctx) { return ops->lookup_bwd(q, ctx); }
static int call_xent(const st_queue *q, const st_ops *ops, void *ctx) { return ops->xent(q, ctx); }
static int call_adamw(const st_queue *q, const st_ops *ops, void *ctx) { return ops->adamw(q, ctx); }
static int call_grouped(const st_queue *q, const st_ops *ops, void *ctx) { return ops->grouped(q, ctx); }

/* ---- lookup ---- */
enum { SLOTS = 1500, WORDS = 40, FIRST = 10, IMAGE_ROWS = 21 };
enum { MIXED, ONE_ID, PIECES }; /* ids; PIECES: runs that end at the borders of pieces of 64 */

static int id_at(int kind, int64_t t)
{
    if (kind == ONE_ID) return FIRST + 3;
    if (kind == PIECES) return FIRST + (int)(t / 64 / 3) % WORDS;
    return t % 2 ? 23 : (int)(random_at(5, t) * (FIRST + WORDS + 12)) - 1;
}
static void sort_by_id(const pair *ids, pair *order) /* stable */
{
    int64_t at = 0;
    for (int id = -1; id < FIRST + WORDS + 20; id++)
        for (int64_t t = 0; t < SLOTS; t++)
            if ((int)pair_cpu(ids, t) == id) pair_set(order, at++, (double)t);
    assert_int_equal(at, SLOTS);
}

static void check_lookup(int32_t type, int64_t cols, int64_t gap, int kind)
{
    pair *table = PAIR(type, gap, WORDS, cols), *features = PAIR(type, gap, IMAGE_ROWS, cols),
         *out = PAIR(type, gap, SLOTS, cols), *ids = PAIR(ST_I32, 0, SLOTS), *media = PAIR(ST_I32, 0, SLOTS),
         *order = PAIR(ST_I32, 0, SLOTS), *d_out = PAIR(type, gap, SLOTS, cols),
         *d_table = PAIR(ST_F32, gap, WORDS, cols), *d_features = PAIR(ST_F32, gap, IMAGE_ROWS, cols);
    pair_random(table, 1, -1, 1);
    pair_random(features, 2, -1, 1);
    pair_random(d_out, 3, -1, 1);
    pair_random(d_table, 4, -1, 1);
    pair_random(d_features, 5, -1, 1);
    for (int64_t t = 0; t < SLOTS; t++) {
        pair_set(ids, t, id_at(kind, t));
        pair_set(media, t, t >= 100 && t < 100 + 2 * IMAGE_ROWS ? (double)((t - 100) / 2) : -1);
    }
    sort_by_id(ids, order);
    st_lookup on_gpu = {.table = &table->gpu, .ids = &ids->gpu, .media = &media->gpu, .features = &features->gpu,
                        .order = &order->gpu, .out = &out->gpu, .d_out = &d_out->gpu, .d_table = &d_table->gpu,
                        .d_features = &d_features->gpu, .first = FIRST, .beta = 0.25f, .group = ST_G_TENSOR};
    st_lookup on_cpu = {.table = &table->cpu, .ids = &ids->cpu, .media = &media->cpu, .features = &features->cpu,
                        .order = &order->cpu, .out = &out->cpu, .d_out = &d_out->cpu, .d_table = &d_table->cpu,
                        .d_features = &d_features->cpu, .first = FIRST, .beta = 0.25f, .group = ST_G_TENSOR};
    gpu_run(call_lookup, &on_gpu);
    cpu_run(call_lookup, &on_cpu);
    pair_near("lookup", out, 0);
    gpu_run(call_lookup_bwd, &on_gpu);
    cpu_run(call_lookup_bwd, &on_cpu);
    pair_near("lookup_bwd d_table", d_table, NEAR_F32);
    pair_near("lookup_bwd d_features", d_features, NEAR_F32);
    pairs_clear();
}

static void lookup(void **state)
{
    for (int kind = MIXED; kind <= PIECES; kind++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            check_lookup(bf16 ? ST_BF16 : ST_F32, 1288, 8, kind); /* by eights, in two blocks of columns */
            check_lookup(bf16 ? ST_BF16 : ST_F32, 37, 1, kind);
        }
}

/* ---- cross-entropy ---- */
enum { ROWS = 37, WORD0 = 5 };
typedef struct xent_pairs { pair *h, *w, *rows, *labels, *scale, *loss, *dh, *dw, *nll, *best; } xent_pairs;

static xent_pairs make_xent(int32_t type, int64_t hidden, int64_t words)
{
    xent_pairs x = {.h = PAIR(type, 8, ROWS, hidden), .w = PAIR(type, 8, words, hidden), .rows = PAIR(ST_I32, 0, ROWS),
                    .labels = PAIR(ST_I32, 0, ROWS), .scale = PAIR(ST_F32, 0, 1), .loss = PAIR(ST_F32, 0, 2),
                    .dh = PAIR(type, 8, ROWS, hidden), .dw = PAIR(ST_F32, 8, words, hidden),
                    .nll = PAIR(ST_F32, 0, ROWS), .best = PAIR(ST_I32, 0, ROWS)};
    int64_t n = 0;
    double wide = 1.5 / sqrt((double)hidden); /* logits within 4 or so */
    pair_random(x.h, 1, -2, 2);
    pair_random(x.w, 2, -wide, wide);
    pair_random(x.dw, 3, -0.01, 0.01);
    pair_set(x.scale, 0, 0.125);
    pair_set(x.loss, 0, 3);
    pair_set(x.loss, 1, 4);
    for (int64_t i = 0; i < ROWS; i++) {
        pair_set(x.nll, i, -1);
        pair_set(x.best, i, -9);
        pair_set(x.labels, i, i % 3 == 1 ? -1 : WORD0 + floor(random_at(5, i) * (double)words));
    }
    for (int64_t i = 6; i < ROWS; i++) /* from 6 on, some of them without a label, then nothing */
        if (i % 4) pair_set(x.rows, n++, (double)i);
    while (n < ROWS) pair_set(x.rows, n++, -1);
    return x;
}
#define XENT_OF(x, side, list_, budget_, beta_) \
    {.h = &(x).h->side, .w = &(x).w->side, .rows = (list_) ? &(x).rows->side : NULL, .labels = &(x).labels->side, \
     .scale = &(x).scale->side, .loss = &(x).loss->side, .dh = &(x).dh->side, .dw = &(x).dw->side, .nll = &(x).nll->side, \
     .best = &(x).best->side, .weight = 0.75, .first = WORD0, .budget = (budget_), .group = ST_G_NONE, .beta = (beta_)}

/* In bf16 logits that are equal after rounding have the same claim, so the best word may be another one of them. */
static void best_agree(const xent_pairs *x, double at_least)
{
    int same = 0;
    for (int64_t i = 0; i < ROWS; i++) same += pair_cpu(x->best, i) == pair_gpu(x->best, i);
    if (same < at_least * ROWS) fail_msg("%d of %d best words agree", same, ROWS);
}

static void check_xent(int32_t type, int64_t hidden, int64_t words, bool list, int64_t chunk, float beta)
{
    xent_pairs x = make_xent(type, hidden, words);
    bool f32 = type == ST_F32;
    size_t budget = (size_t)(chunk * (words + 8)) * st_dtype_size(type);
    st_xent on_gpu = XENT_OF(x, gpu, list, budget, beta), on_cpu = XENT_OF(x, cpu, list, budget, beta);
    gpu_run(call_xent, &on_gpu);
    cpu_run(call_xent, &on_cpu);
    assert_int_equal(gpu.fault.code, ST_FAULT_NONE);
    pair_near("xent nll", x.nll, f32 ? NEAR_F32 : BEHIND_BF16);
    pair_near("xent loss", x.loss, f32 ? NEAR_F32 : BEHIND_BF16);
    pair_near("xent dh", x.dh, f32 ? NEAR_F32 : BEHIND_BF16);
    pair_near("xent dw", x.dw, f32 ? NEAR_F32 : BEHIND_BF16);
    best_agree(&x, f32 ? 1 : 0.8);
    pairs_clear();
}

static void xent(void **state)
{
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int list = 0; list < 2; list++) {
            int32_t type = bf16 ? ST_BF16 : ST_F32;
            check_xent(type, 24, 203, list, 5, 0.5f);      /* rows of logits with padding; the last chunk is not full */
            check_xent(type, 64, 20011, list, ROWS, 0);    /* all in one chunk, more than one round of a block */
            check_xent(type, 64, 4096, list, 1, 1);        /* a row at a time */
        }
}

static void xent_faults(void **state)
{
    xent_pairs x = make_xent(ST_F32, 24, 203);
    st_xent on_gpu = XENT_OF(x, gpu, true, 1 << 20, 0.5f);
    for (int64_t i = 0; i < ROWS; i++) pair_set(x.rows, i, -1); /* nothing takes part: only beta acts */
    gpu_run(call_xent, &on_gpu);
    for (int64_t i = 0; i < pair_elements(x.dw); i++) assert_true(pair_gpu(x.dw, i) == 0.5 * pair_cpu(x.dw, i));
    for (int64_t i = 0; i < pair_elements(x.dh); i++) assert_true(pair_gpu(x.dh, i) == pair_cpu(x.dh, i));
    assert_true(pair_gpu(x.loss, 0) == 3 && pair_gpu(x.loss, 1) == 4);
    pair_set(x.rows, 0, 3);
    pair_set(x.labels, 3, WORD0 + 203); /* no such word */
    gpu_run(call_xent, &on_gpu);
    assert_int_equal(gpu.fault.code, ST_FAULT_RANGE);
    assert_int_equal(gpu.fault.a, WORD0 + 203);
    pair_set(x.labels, 3, WORD0 + 1);
    for (int64_t i = 0; i < pair_elements(x.w); i++) pair_set(x.w, i, i / 24 == 7 || i / 24 == 9 ? 1 : 0);
    for (int64_t i = 0; i < pair_elements(x.h); i++) pair_set(x.h, i, 1);
    gpu_run(call_xent, &on_gpu);
    assert_true(pair_gpu(x.best, 3) == WORD0 + 7); /* 9 is as likely: the lower one wins */
    pair_set(x.h, 3 * 24, NAN);
    gpu_run(call_xent, &on_gpu);
    assert_true(isnan(pair_gpu(x.loss, 0)) && isnan(pair_gpu(x.nll, 3)));
    pairs_clear();
}

/* Two halves of the vocabulary as two ranks would hold them, one after the other. A rank answers with what the other one sent
 * in the pass before; what is sent second depends on the answer to the first, so the third pass has the true sums. */
enum { CUT_CALLS = 8, CUT_PASSES = 4 };
typedef struct cut_step {
    st_step step;
    int rank, calls;
    float sent[2][CUT_CALLS][2 * ROWS];
} cut_step;

static int cut_collective(st_step *s, uint32_t what, uint32_t group, const st_tensor *send, const st_tensor *recv)
{
    cut_step *f = (cut_step *)s;
    st_error e = {0};
    int64_t n = send->dim[0] * send->dim[1];
    size_t bytes = (size_t)n * sizeof(float);
    if (gpu.q.planning) return ST_OK;
    float *mine = f->sent[f->rank][f->calls], *other = f->sent[!f->rank][f->calls], sum[2 * ROWS];
    assert_int_equal(group, ST_G_TENSOR);
    assert_true(f->calls++ < CUT_CALLS && n <= 2 * ROWS);
    gpu.backend->copy(&gpu.q, mine, send->data, bytes);
    gpu.backend->sync(gpu.device, &e);
    for (int64_t i = 0; i < n; i++) sum[i] = what == ST_ALL_REDUCE_MAX ? fmaxf(mine[i], other[i]) : mine[i] + other[i];
    gpu.backend->copy(&gpu.q, recv->data, sum, bytes);
    return gpu.backend->sync(gpu.device, &e);
}
static cut_step cut = {.step = {.size = sizeof(st_step)}};
static int call_cut(const st_queue *q, const st_ops *ops, void *ctx)
{
    cut.calls = 0;
    return ops->xent(q, ctx);
}

static void xent_cut(void **state)
{
    enum { HIDDEN = 24, ALL = 203, LOW = 104 };
    static const st_step_api api = {.size = sizeof api, .collective = cut_collective};
    xent_pairs x = make_xent(ST_F32, HIDDEN, ALL);
    double *dh = calloc(ROWS * HIDDEN, sizeof *dh), *dw = calloc(ALL * HIDDEN, sizeof *dw), off = 0, norm = 0;
    st_xent on_cpu = XENT_OF(x, cpu, false, 1 << 20, 1);
    memset(cut.sent, 0, sizeof cut.sent);
    for (int pass = 0; pass < 2 * CUT_PASSES; pass++) {
        st_xent on_gpu = XENT_OF(x, gpu, false, 1 << 20, 1);
        cut.rank = pass % 2;
        st_tensor w = st_rows(x.w->gpu, cut.rank ? LOW : 0, cut.rank ? ALL - LOW : LOW),
                  g = st_rows(x.dw->gpu, cut.rank ? LOW : 0, cut.rank ? ALL - LOW : LOW);
        cut.step.api = &api;
        on_gpu.step = &cut.step;
        on_gpu.w = &w;
        on_gpu.dw = &g;
        on_gpu.group = ST_G_TENSOR;
        on_gpu.first = WORD0 + (cut.rank ? LOW : 0);
        gpu_run(call_cut, &on_gpu);
        if (pass < 2 * CUT_PASSES - 2) continue;
        for (int64_t i = 0; i < ROWS * HIDDEN; i++) dh[i] += pair_gpu(x.dh, i);
        for (int64_t i = 0; i < ALL * HIDDEN; i++)
            if ((i / HIDDEN >= LOW) == cut.rank) dw[i] = pair_gpu(x.dw, i);
    }
    cpu_run(call_xent, &on_cpu);
    pair_near("xent cut nll", x.nll, NEAR_F32);
    pair_near("xent cut loss", x.loss, NEAR_F32);
    best_agree(&x, 1);
    for (int64_t i = 0; i < ROWS * HIDDEN; i++) {
        off += (dh[i] - pair_cpu(x.dh, i)) * (dh[i] - pair_cpu(x.dh, i));
        norm += pair_cpu(x.dh, i) * pair_cpu(x.dh, i);
    }
    assert_true(sqrt(off / norm) <= NEAR_F32);
    off = norm = 0;
    for (int64_t i = 0; i < ALL * HIDDEN; i++) {
        off += (dw[i] - pair_cpu(x.dw, i)) * (dw[i] - pair_cpu(x.dw, i));
        norm += pair_cpu(x.dw, i) * pair_cpu(x.dw, i);
    }
    assert_true(sqrt(off / norm) <= NEAR_F32);
    free(dh);
    free(dw);
    pairs_clear();
}

/* ---- AdamW ---- */
static void check_adamw(int32_t weight_type, int64_t n, bool skip)
{
    static const double hyper[] = {0.01, 0.1, 0.9, 0.95, 1e-8, 0.271, 0.142625, 0.1, 0.05};
    pair *master = PAIR(ST_F32, 0, n), *m = PAIR(ST_F32, 0, n), *v = PAIR(ST_F32, 0, n), *grad = PAIR(ST_F32, 0, n),
         *h = PAIR(ST_F32, 0, 9), *clip = PAIR(ST_F32, 0, 1), *stop = PAIR(ST_F32, 0, 1), *weight = NULL;
    if (weight_type) weight = PAIR(weight_type, 0, n);
    pair_random(master, 1, -1, 1);
    pair_random(m, 2, -0.01, 0.01);
    pair_random(v, 3, 0, 0.01);
    pair_random(grad, 4, -1, 1);
    for (int i = 0; i < 9; i++) pair_set(h, i, hyper[i]);
    pair_set(clip, 0, 0.5);
    pair_set(stop, 0, skip ? 1 : 0);
    st_adamw on_gpu = {.master = &master->gpu, .m = &m->gpu, .v = &v->gpu, .grad = &grad->gpu, .hyper = &h->gpu,
                       .weight = weight ? &weight->gpu : NULL, .clip = &clip->gpu, .skip = &stop->gpu};
    st_adamw on_cpu = {.master = &master->cpu, .m = &m->cpu, .v = &v->cpu, .grad = &grad->cpu, .hyper = &h->cpu,
                       .weight = weight ? &weight->cpu : NULL, .clip = &clip->cpu, .skip = &stop->cpu};
    gpu_run(call_adamw, &on_gpu);
    cpu_run(call_adamw, &on_cpu);
    pair_near("adamw master", master, skip ? 0 : NEAR_F32);
    pair_near("adamw m", m, skip ? 0 : NEAR_F32);
    pair_near("adamw v", v, skip ? 0 : NEAR_F32);
    for (int64_t i = 0; weight && !skip && i < n; i++) { /* the master, rounded */
        double want = pair_gpu(master, i);
        pair_set(weight, i, want);
        assert_true(pair_cpu(weight, i) == pair_gpu(weight, i));
    }
    for (int64_t i = 0; weight && skip && i < n; i++) assert_true(pair_gpu(weight, i) == 0);
    pairs_clear();
}

static void adamw(void **state)
{
    for (int skip = 0; skip < 2; skip++) {
        check_adamw(ST_BF16, 100003, skip);
        check_adamw(ST_F32, 4099, skip);
        check_adamw(ST_NONE, 5, skip);
    }
}

/* ---- groups ---- */
/* Lengths in tiles of 64 rows: empty groups at both ends and inside, odd and even numbers; 2 tiles behind the last. */
static const int lengths[] = {0, 1, 3, 0, 2, 5, 0};
enum { GROUPS = 7, GROUP_ROWS = (1 + 3 + 2 + 5 + 2) * 64 };

static void check_grouped(int mode, int32_t type, int32_t type_c, int64_t k, int64_t n, int64_t gap, float beta)
{
    bool sum = mode == 2;
    pair *a = PAIR(type, gap, GROUP_ROWS, k), *c = PAIR(sum ? type : type_c, gap, GROUP_ROWS, n),
         *b = PAIR(sum ? type_c : type, gap, GROUPS, mode ? k : n, mode ? n : k), *offset = PAIR(ST_I32, 0, GROUPS + 1);
    pair_random(a, 1, -1, 1);
    pair_random(b, 2, -1, 1);
    pair_random(c, 3, -1, 1);
    int at = 0;
    for (int e = 0; e <= GROUPS; e++) {
        pair_set(offset, e, at);
        at += e < GROUPS ? lengths[e] * 64 : 0;
    }
    st_grouped on_gpu = {&a->gpu, &b->gpu, &c->gpu, &offset->gpu, beta, mode},
               on_cpu = {&a->cpu, &b->cpu, &c->cpu, &offset->cpu, beta, mode};
    gpu_run(call_grouped, &on_gpu);
    cpu_run(call_grouped, &on_cpu);
    assert_int_equal(gpu.fault.code, ST_FAULT_NONE);
    pair_near(mode == 0 ? "grouped 0" : sum ? "grouped 2" : "grouped 1", sum ? b : c,
              type_c == ST_BF16 ? NEAR_BF16 : NEAR_F32);
    pairs_clear();
}

static void grouped(void **state)
{
    for (int mode = 0; mode < 3; mode++) {
        check_grouped(mode, ST_BF16, ST_F32, 200, 264, 8, 0.5f); /* tensor cores, tiles that are not full */
        check_grouped(mode, ST_BF16, ST_F32, 512, 128, 0, 0);
        check_grouped(mode, ST_BF16, ST_F32, 8, 8, 0, 1);
        check_grouped(mode, ST_BF16, ST_F32, 77, 93, 1, 0.5f);   /* not aligned */
        check_grouped(mode, ST_F32, ST_F32, 200, 130, 3, 0.5f);
        if (mode < 2) check_grouped(mode, ST_BF16, ST_BF16, 200, 264, 8, 0);
    }
}

/* ---- times ---- */
static void time_xent(int64_t rows, int64_t hidden, double gib)
{
    enum { V = 248320 };
    char name[80];
    st_tensor h = DEVICE_RANDOM(ST_BF16, -1, 1, rows, hidden), w = DEVICE_RANDOM(ST_BF16, -0.05, 0.05, V, hidden),
              labels = DEVICE_RANDOM(ST_I32, 0, V, rows), scale = DEVICE_RANDOM(ST_F32, 0.0001, 0.0002, 1),
              loss = DEVICE_RANDOM(ST_F32, 0, 1, 2), dh = DEVICE_RANDOM(ST_BF16, -1, 1, rows, hidden),
              dw = DEVICE_RANDOM(ST_F32, -1, 1, V, hidden);
    st_xent x = {.h = &h, .w = &w, .labels = &labels, .scale = &scale, .loss = &loss, .dh = &dh, .dw = &dw, .weight = 1,
                 .budget = (size_t)(gib * 0x1p30), .group = ST_G_NONE};
    snprintf(name, sizeof name, "xent %lld x %lld, logits %g GiB", (long long)rows, (long long)hidden, gib);
    print_rate(name, gpu_time(call_xent, &x));
    x.dh = x.dw = NULL;
    print_rate("the same without gradient", gpu_time(call_xent, &x));
    pairs_clear();
}

static void time_grouped(void)
{
    enum { EXPERTS = 256, TOKENS = 16384 * 8, IN = 2048, OUT = 1024 };
    pair *offset = PAIR(ST_I32, 0, EXPERTS + 1);
    for (int e = 0; e <= EXPERTS; e++) pair_set(offset, e, e * (TOKENS / EXPERTS));
    st_tensor a = DEVICE_RANDOM(ST_BF16, -1, 1, TOKENS, IN), c = DEVICE_RANDOM(ST_BF16, -1, 1, TOKENS, OUT),
              b = DEVICE_RANDOM(ST_BF16, -1, 1, EXPERTS, OUT, IN), d = DEVICE_RANDOM(ST_F32, -1, 1, EXPERTS, OUT, IN);
    assert_int_equal(gpu.backend->copy(&gpu.q, offset->gpu.data, offset->start, (EXPERTS + 1) * 4), ST_OK);
    print_rate("grouped 0: 256 x [512, 2048 -> 1024]",
               gpu_time(call_grouped, &(st_grouped){&a, &b, &c, &offset->gpu, 0, 0}));
    print_rate("grouped 1: its gradient of a", gpu_time(call_grouped, &(st_grouped){&c, &b, &a, &offset->gpu, 0, 1}));
    print_rate("grouped 2: its gradient of b", gpu_time(call_grouped, &(st_grouped){&c, &d, &a, &offset->gpu, 0, 2}));
    pairs_clear();
}

static void time_lookup(void)
{
    enum { T = 32768, H = 2048, V = 248320 };
    pair *ids = PAIR(ST_I32, 0, T), *order = PAIR(ST_I32, 0, T);
    st_tensor table = DEVICE_RANDOM(ST_BF16, -1, 1, V, H), out = DEVICE_RANDOM(ST_BF16, -1, 1, T, H),
              d_table = DEVICE_RANDOM(ST_F32, -1, 1, V, H);
    st_lookup a = {.table = &table, .ids = &ids->gpu, .out = &out, .order = &order->gpu, .d_out = &out,
                   .d_table = &d_table, .beta = 1};
    for (int one = 0; one < 2; one++) {
        for (int64_t t = 0; t < T; t++) { /* sorted as they are; or one id everywhere */
            pair_set(ids, t, one ? 7 : floor((double)t * t / T / T * V / 8));
            pair_set(order, t, (double)t);
        }
        gpu.backend->copy(&gpu.q, ids->gpu.data, ids->start, T * 4);
        gpu.backend->copy(&gpu.q, order->gpu.data, order->start, T * 4);
        print_rate("lookup 32768 x 2048", gpu_time(call_lookup, &a));
        print_rate(one ? "lookup_bwd, one id" : "lookup_bwd, many ids", gpu_time(call_lookup_bwd, &a));
    }
    pairs_clear();
}

static void times(void **state)
{
    for (double gib = 1; gib <= 2; gib *= 2) time_xent(16384, 1024, gib);
    time_xent(8192, 2048, 1);
    time_grouped();
    time_lookup();
}

int main(int argc, char **argv) /* --times: they take gigabytes and seconds, so `make check` does not */
{
    const struct CMUnitTest only_times[] = {cmocka_unit_test(times)}, tests[] = {
        cmocka_unit_test(lookup), cmocka_unit_test(xent),    cmocka_unit_test(xent_faults), cmocka_unit_test(xent_cut),
        cmocka_unit_test(adamw),  cmocka_unit_test(grouped),
    };
    if (!pairs_gpu_there()) return 0;
    if (argc > 1 && !strcmp(argv[1], "--times"))
        return cmocka_run_group_tests_name("gpu loss, times", only_times, pairs_setup, pairs_teardown);
    return cmocka_run_group_tests_name("gpu loss", tests, pairs_setup, pairs_teardown);
}
