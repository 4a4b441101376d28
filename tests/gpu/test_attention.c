/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention.c - attention of the cuda backend against the cpu backend in f64, on the same rounded inputs: by own kernels,
 * and forward by cuDNN where it is found. Where no GPU can be used every test is skipped, with the reason. The last tests
 * print times. */
#include "attention_sides.h"
#include <stdio.h>

enum { SPANS = 64, SPOILT = 16 << 20 };

/* ---- cases ---- */
typedef struct attn_case {
    int64_t tokens, keys, heads, kv_heads, d, gap;
    bool causal;
    int n;
    int32_t q_begin[SPANS], q_len[SPANS], k_begin[SPANS], k_len[SPANS];
} attn_case;

enum { Q, K, V, OUT, D_OUT, DQ, DK, DV, LSE, TENSORS };
static const char *const tensor_name[TENSORS] = {"q", "k", "v", "out", "d_out", "dq", "dk", "dv", "lse"};
typedef struct attn_rig {
    pair t[TENSORS];
    int32_t spans[4][SPANS];
    void *gpu_spans;
    st_tensor host_spans, device_spans;
    st_attn cpu, gpu;
} attn_rig;

static int32_t longest(const attn_case *c)
{
    int32_t most = 1;
    for (int i = 0; i < c->n; i++) {
        most = c->q_len[i] > most ? c->q_len[i] : most;
        most = c->k_len[i] > most ? c->k_len[i] : most;
    }
    return most;
}

static st_attn arguments(const attn_case *c, const attn_rig *x, const st_tensor *const *t, const st_tensor *spans)
{
    return (st_attn){.q = t[Q],
                     .k = t[K],
                     .v = t[V],
                     .spans = spans,
                     .out = t[OUT],
                     .lse = t[LSE],
                     .d_out = t[D_OUT],
                     .dq = t[DQ],
                     .dk = t[DK],
                     .dv = t[DV],
                     .scale = 1 / sqrt((double)c->d),
                     .causal = c->causal,
                     .max_len = longest(c)};
}

static void fill_spans(attn_rig *x, const attn_case *c)
{
    memset(x->spans, 0, sizeof x->spans);
    memcpy(x->spans[0], c->q_begin, sizeof c->q_begin);
    memcpy(x->spans[1], c->q_len, sizeof c->q_len);
    memcpy(x->spans[2], c->k_begin, sizeof c->k_begin);
    memcpy(x->spans[3], c->k_len, sizeof c->k_len);
    to_gpu(x->gpu_spans, x->spans, sizeof x->spans);
}
static void put_spans(attn_rig *x, const attn_case *c)
{
    assert_int_equal(gpu->backend->alloc(gpu->device, ST_MEM_DEVICE, sizeof x->spans, &x->gpu_spans), ST_OK);
    fill_spans(x, c);
    x->host_spans = st_tensor2(x->spans, ST_I32, 4, SPANS);
    x->device_spans = st_tensor2(x->gpu_spans, ST_I32, 4, SPANS);
}

/* Spans and inputs of a case with the same capacities. */
static void fill(attn_rig *x, const attn_case *c)
{
    fill_spans(x, c);
    set_random(&x->t[Q], 1, 2, c->q_begin, c->q_len, c->n);
    set_random(&x->t[K], 2, 2, c->k_begin, c->k_len, c->n);
    set_random(&x->t[V], 3, 1, c->k_begin, c->k_len, c->n);
    set_random(&x->t[D_OUT], 4, 1, c->q_begin, c->q_len, c->n);
}

static void make(attn_rig *x, const attn_case *c, int32_t type)
{
    const st_tensor *host_side[TENSORS], *device_side[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        bool of_k = i == K || i == V || i == DK || i == DV;
        x->t[i] = i == LSE ? new_pair(ST_F32, c->tokens, c->heads, 1, 0)
                           : new_pair(type, of_k ? c->keys : c->tokens, of_k ? c->kv_heads : c->heads, c->d, c->gap);
        host_side[i] = &x->t[i].cpu;
        device_side[i] = &x->t[i].gpu;
    }
    put_spans(x, c);
    fill(x, c);
    x->cpu = arguments(c, x, host_side, &x->host_spans);
    x->gpu = arguments(c, x, device_side, &x->device_spans);
}
static void drop(attn_rig *x)
{
    for (int i = 0; i < TENSORS; i++) free_pair(&x->t[i]);
    gpu->backend->free(gpu->device, ST_MEM_DEVICE, x->gpu_spans);
}

static void run_op(side *s, const st_attn *a, bool backward)
{
    const st_ops *ops = s->backend->ops;
    s->taken = 0;
    if ((backward ? ops->attention_bwd : ops->attention)(&s->q, a)) fail_msg("%s", s->message);
}
/* Nothing may come from workspace that nobody wrote: it is full of NaN. */
static void run_gpu(attn_rig *x)
{
    static const int written[] = {OUT, LSE, DQ, DK, DV};
    for (int i = 0; i < 5; i++) set_all(&x->t[written[i]], 7);
    assert_int_equal(gpu->backend->set(&gpu->q, gpu->scratch, 0xff, SPOILT), ST_OK);
    run_op(gpu, &x->gpu, false);
    run_op(gpu, &x->gpu, true);
    for (int i = 0; i < 5; i++) download(&x->t[written[i]]);
}

/* ||gpu - cpu|| / ||cpu||; gaps untouched */
static void compare(const attn_case *c, const char *type, const pair *p, const char *name, double allowed)
{
    double off = 0, norm = 0;
    int64_t used = 0, gaps = 0;
    for (int64_t row = 0; row < p->cpu.dim[0]; row++)
        for (int64_t e = 0; e < per_row(p); e++, used++) {
            double want = p->value[place(p, row, e)], d = staged_at(p, place(p, row, e)) - want;
            off += d * d;
            norm += want * want;
        }
    for (int64_t i = 0; i < p->n; i++)
        gaps += staged_at(p, i) == from_bf16(to_bf16(GAP_VALUE)) || staged_at(p, i) == GAP_VALUE;
    if (gaps < p->n - used) fail_msg("%s: %lld elements outside were written", name, (long long)(p->n - used - gaps));
    double error = norm > 0 ? sqrt(off / norm) : sqrt(off);
    if (!(error <= allowed))
        fail_msg("%s, %s, %lld tokens, %d spans, d %lld, causal %d: off by %.3g, allowed %.3g", name, type,
                 (long long)c->tokens, c->n, (long long)c->d, c->causal, error, allowed);
}

static void outside_is_zero(const attn_case *c, const pair *p, const char *name, const int32_t *begin,
                            const int32_t *len)
{
    for (int64_t row = 0; row < p->cpu.dim[0]; row++) {
        bool inside = false;
        for (int s = 0; s < c->n; s++) inside |= row >= begin[s] && row < begin[s] + len[s];
        for (int64_t e = 0; !inside && e < per_row(p); e++)
            if (staged_at(p, place(p, row, e)) != 0) fail_msg("%s, row %lld: not 0", name, (long long)row);
    }
}

static void one(const attn_case *c, int32_t type)
{
    static const int written[] = {OUT, DQ, DK, DV, LSE};
    const char *name = type == ST_F32 ? "f32" : "bf16";
    double allowed = type == ST_F32 ? 1e-5 : 1e-2;
    attn_rig x;
    void *first[5];
    make(&x, c, type);
    run_gpu(&x);
    for (int i = 0; i < 5; i++) {
        const pair *p = &x.t[written[i]];
        size_t bytes = (size_t)p->n * st_dtype_size(p->gpu.dtype);
        first[i] = malloc(bytes);
        memcpy(first[i], p->staged, bytes);
    }
    run_gpu(&x);
    run_op(&cpu, &x.cpu, false);
    run_op(&cpu, &x.cpu, true);
    for (int i = 0; i < 5; i++) {
        const pair *p = &x.t[written[i]];
        if (memcmp(first[i], p->staged, (size_t)p->n * st_dtype_size(p->gpu.dtype)))
            fail_msg("%s in %s differs between two runs", tensor_name[written[i]], name);
        compare(c, name, p, tensor_name[written[i]], written[i] == LSE ? 1e-5 : allowed);
        free(first[i]);
    }
    outside_is_zero(c, &x.t[OUT], "out", c->q_begin, c->q_len);
    outside_is_zero(c, &x.t[DQ], "dq", c->q_begin, c->q_len);
    outside_is_zero(c, &x.t[DK], "dk", c->k_begin, c->k_len);
    outside_is_zero(c, &x.t[DV], "dv", c->k_begin, c->k_len);
    drop(&x);
}

/* Segments of these lengths one after another with `between` rows between them, queries and keys alike. */
static attn_case segments(const int32_t *len, int n, int32_t between, int64_t heads, int64_t kv_heads, int64_t d,
                          bool causal)
{
    attn_case c = {.heads = heads, .kv_heads = kv_heads, .d = d, .gap = 8, .causal = causal, .n = n};
    int32_t at = between;
    for (int i = 0; i < n; i++) {
        c.q_begin[i] = c.k_begin[i] = at;
        c.q_len[i] = c.k_len[i] = len[i];
        at += len[i] + between;
    }
    c.tokens = c.keys = at;
    return c;
}

static void each_type(const attn_case *c)
{
    one(c, ST_F32);
    one(c, ST_BF16);
}

static void widths(void **state)
{
    static const int32_t len[] = {1, 63, 64, 65, 0, 200};
    static const int64_t width[] = {8, 40, 64, 72, 80, 96, 128, 200, 256};
    for (int causal = 0; causal < 2; causal++)
        for (int w = 0; w < 9; w++) {
            attn_case c = segments(len, 6, 3, 4, 2, width[w], causal);
            each_type(&c);
            c = segments(len + 5, 1, 0, 3, 3, width[w], causal);
            each_type(&c);
        }
}

static void not_aligned(void **state) /* heads that are no whole 16-byte words, or do not begin at one */
{
    static const int32_t len[] = {70, 5, 130};
    static const int64_t width[] = {9, 20, 64};
    for (int causal = 0; causal < 2; causal++)
        for (int w = 0; w < 3; w++) {
            attn_case c = segments(len, 3, 1, 6, 2, width[w], causal);
            c.gap = 3;
            each_type(&c);
        }
}

/* Pieces of one segment that share its keys, as in a row cut over a context group; queries that see fewer or no
 * keys. */
static void shared_keys(void **state)
{
    attn_case c = {.tokens = 190,
                   .keys = 350,
                   .heads = 4,
                   .kv_heads = 2,
                   .d = 128,
                   .gap = 8,
                   .causal = true,
                   .n = 4,
                   .q_begin = {0, 30, 60, 150},
                   .q_len = {30, 30, 20, 40},
                   .k_begin = {5, 5, 130, 200},
                   .k_len = {40, 120, 20, 150}};
    each_type(&c);
    c.causal = false;
    each_type(&c);
    c.d = 256;
    each_type(&c);
    c.causal = true;
    each_type(&c);
    c = (attn_case){.tokens = 150,
                    .keys = 70,
                    .heads = 2,
                    .kv_heads = 1,
                    .d = 64,
                    .gap = 8,
                    .causal = true,
                    .n = 2,
                    .q_begin = {0, 140},
                    .q_len = {130, 10},
                    .k_begin = {0, 66},
                    .k_len = {60, 0}};
    each_type(&c);
}

static void long_rows(void **state)
{
    static const int32_t len[] = {1500, 548}, shorter[] = {700, 250, 74};
    static const int64_t width[] = {64, 72, 80, 128};
    for (int causal = 0; causal < 2; causal++) {
        attn_case c = segments(len, 2, 0, 4, 1, 256, causal);
        each_type(&c);
        for (int w = 0; w < 4; w++) {
            c = segments(shorter, 3, 1, 4, 2, width[w], causal);
            each_type(&c);
        }
    }
}

static void parts(void **state) /* absent outputs; a span outside is a fault */
{
    st_fault fault = {0};
    attn_rig x;
    attn_case c = segments((const int32_t[]){100, 50}, 2, 0, 2, 1, 64, true);
    make(&x, &c, ST_BF16);
    run_gpu(&x);
    size_t bytes = (size_t)x.t[DK].n * 2;
    void *dk = malloc(bytes);
    memcpy(dk, x.t[DK].staged, bytes);
    st_attn a = x.gpu;
    a.dq = a.dv = NULL;
    set_all(&x.t[DK], 7);
    set_all(&x.t[DQ], 7);
    run_op(gpu, &a, true);
    download(&x.t[DK]);
    download(&x.t[DQ]);
    assert_memory_equal(dk, x.t[DK].staged, bytes);
    assert_true(staged_at(&x.t[DQ], 0) == 7);
    a.lse = NULL;
    run_op(gpu, &a, false);
    x.spans[1][1] = 51;
    to_gpu(x.gpu_spans, x.spans, sizeof x.spans);
    run_op(gpu, &x.gpu, false);
    assert_int_equal(gpu->backend->copy(&gpu->q, x.t[DK].staged, gpu->q.fault, sizeof fault), ST_OK);
    assert_int_equal(gpu->backend->sync(gpu->device, NULL), ST_OK);
    memcpy(&fault, x.t[DK].staged, sizeof fault);
    assert_int_equal(fault.code, ST_FAULT_RANGE);
    assert_int_equal(fault.layer, 7);
    assert_int_equal(fault.a, 151);
    memset(x.t[DK].staged, 0, sizeof fault);
    to_gpu(gpu->q.fault, x.t[DK].staged, sizeof fault);
    free(dk);
    drop(&x);
}

/* A captured call serves rows that are cut in another way. */
static void replayed(void **state)
{
    static const int32_t before[] = {300, 200, 12}, after[] = {1, 0, 130, 64, 300};
    static const int written[] = {OUT, DQ, DK, DV, LSE};
    attn_rig x;
    st_graph *graph;
    st_error e = {0};
    attn_case c = segments(before, 3, 0, 4, 2, 256, true), other = segments(after, 5, 3, 4, 2, 256, true);
    assert_int_equal(c.tokens, 512);
    other.tokens = other.keys = c.tokens;
    make(&x, &c, ST_BF16);
    run_gpu(&x); /* the first pass is never captured */
    assert_int_equal(gpu->backend->capture_begin(&gpu->q), ST_OK);
    run_op(gpu, &x.gpu, false);
    run_op(gpu, &x.gpu, true);
    assert_int_equal(gpu->backend->capture_end(&gpu->q, &graph, &e), ST_OK);
    for (int turn = 0; turn < 2; turn++) {
        const attn_case *now = turn ? &c : &other;
        fill(&x, now);
        for (int i = 0; i < 5; i++) set_all(&x.t[written[i]], 7);
        assert_int_equal(gpu->backend->set(&gpu->q, gpu->scratch, 0xff, SPOILT), ST_OK);
        assert_int_equal(gpu->backend->replay(&gpu->q, graph), ST_OK);
        for (int i = 0; i < 5; i++) download(&x.t[written[i]]);
        run_op(&cpu, &x.cpu, false);
        run_op(&cpu, &x.cpu, true);
        for (int i = 0; i < 5; i++)
            compare(now, "bf16", &x.t[written[i]], tensor_name[written[i]], written[i] == LSE ? 1e-5 : 1e-2);
    }
    gpu->backend->graph_free(graph);
    drop(&x);
}

/* ---- times ---- */
static double best_ms(const st_attn *a, bool backward)
{
    st_event *from, *to;
    double best = INFINITY, ms;
    assert_int_equal(gpu->backend->event(gpu->device, &from), ST_OK);
    assert_int_equal(gpu->backend->event(gpu->device, &to), ST_OK);
    for (int i = 0; i < 10; i++) {
        gpu->backend->record(&gpu->q, from);
        run_op(gpu, a, backward);
        gpu->backend->record(&gpu->q, to);
        assert_int_equal(gpu->backend->sync(gpu->device, NULL), ST_OK);
        assert_int_equal(gpu->backend->elapsed(from, to, &ms), ST_OK);
        best = fmin(best, ms);
    }
    return best;
}

/* Without gaps and without a twin on the host; a million random elements over and over. */
static st_tensor timed_tensor(int32_t type, int64_t rows, int64_t heads, int64_t d)
{
    static float value[1 << 20];
    static uint16_t narrow[1 << 20];
    const int64_t n = rows * heads * d, most = (int64_t)ST_COUNT(value);
    const size_t size = st_dtype_size(type);
    st_tensor t = {.dim = {rows, heads, d, 1}, .stride = {heads * d, d, 1, 1}, .nd = d == 1 ? 2 : 3, .dtype = type};
    for (int64_t i = 0; i < most && value[most - 1] == 0; i++) {
        value[i] = (float)random_at(9, i);
        narrow[i] = to_bf16(value[i]);
    }
    assert_int_equal(gpu->backend->alloc(gpu->device, ST_MEM_DEVICE, (size_t)n * size, &t.data), ST_OK);
    for (int64_t at = 0; at < n; at += most)
        to_gpu((char *)t.data + (size_t)at * size, type == ST_F32 ? (void *)value : (void *)narrow,
               (size_t)(n - at < most ? n - at : most) * size);
    return t;
}

static void time_case(const char *what, const attn_case *c, int32_t type)
{
    st_tensor t[TENSORS];
    const st_tensor *at[TENSORS];
    attn_rig x;
    double pairs = 0;
    for (int i = 0; i < c->n; i++)
        pairs += (double)c->q_len[i] * (c->causal ? (c->k_len[i] + 1) / 2.0 : (double)c->k_len[i]);
    for (int i = 0; i < TENSORS; i++) {
        bool of_k = i == K || i == V || i == DK || i == DV;
        t[i] = i == LSE ? timed_tensor(ST_F32, c->tokens, c->heads, 1)
                        : timed_tensor(type, of_k ? c->keys : c->tokens, of_k ? c->kv_heads : c->heads, c->d);
        at[i] = &t[i];
    }
    put_spans(&x, c);
    x.gpu = arguments(c, &x, at, &x.device_spans);
    double forward = best_ms(&x.gpu, false), backward = best_ms(&x.gpu, true);
    double flops = pairs * (double)(c->heads * c->d);
    print_message("%-44s %-4s forward %8.3f ms %6.1f TFLOP/s, backward %8.3f ms %6.1f TFLOP/s\n", what,
                  type == ST_F32 ? "f32" : "bf16", forward, 4e-9 * flops / forward, backward, 10e-9 * flops / backward);
    assert_true(isfinite(forward) && isfinite(backward));
    for (int i = 0; i < TENSORS; i++) gpu->backend->free(gpu->device, ST_MEM_DEVICE, t[i].data);
    gpu->backend->free(gpu->device, ST_MEM_DEVICE, x.gpu_spans);
}

static void time_short(int32_t patches, int64_t d) /* 64 pictures */
{
    char what[64];
    int32_t len[SPANS];
    for (int i = 0; i < SPANS; i++) len[i] = patches;
    attn_case c = segments(len, SPANS, 0, 16, 16, d, false);
    snprintf(what, sizeof what, "64 x %d patches, 16 heads, d %lld", (int)patches, (long long)d);
    time_case(what, &c, ST_BF16);
}

static void times(void **state)
{
    static const int32_t text[] = {4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096}, longest[] = {32768};
    attn_case c = segments(text, 8, 0, 8, 2, 256, true);
    time_case("8 x 4096, heads 8 of 2, d 256, causal", &c, ST_BF16);
    c = segments(longest, 1, 0, 8, 2, 256, true);
    time_case("32768, heads 8 of 2, d 256, causal", &c, ST_BF16);
    c = segments(text, 1, 0, 8, 2, 256, true);
    time_case("4096, heads 8 of 2, d 256, causal", &c, ST_F32);
    c = segments(text, 1, 0, 16, 16, 64, false);
    time_case("4096 patches, 16 heads, d 64", &c, ST_BF16);
    c = segments(text, 1, 0, 16, 16, 72, false);
    time_case("4096 patches, 16 heads, d 72", &c, ST_BF16);
    c = segments(text, 4, 0, 16, 16, 72, false);
    time_case("4 x 4096 patches, 16 heads, d 72", &c, ST_BF16);
    time_short(256, 72);
    time_short(256, 64);
    time_short(64, 72);
    c = segments(text, 4, 0, 16, 4, 128, true);
    time_case("4 x 4096, heads 16 of 4, d 128, causal", &c, ST_BF16);
}

#define OWN(test) cmocka_unit_test_setup(test, use_own)
#define LIBRARY(test) \
    { \
        "library_" #test, test, use_library, NULL, NULL \
    }
int main(int argc, char **argv) /* a pattern of names chooses tests */
{
    const struct CMUnitTest tests[] = {
        OWN(widths),       LIBRARY(widths),    OWN(not_aligned), OWN(shared_keys), LIBRARY(shared_keys),
        OWN(long_rows),    LIBRARY(long_rows), OWN(parts),       LIBRARY(parts),   OWN(replayed),
        LIBRARY(replayed), OWN(times),         LIBRARY(times),
    };
    const char *why_not;
    if (!gpu_there(&why_not)) {
        printf("1..0 # SKIP no GPU: %s\n", why_not);
        return 0;
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("cuda attention", tests, sides_open, NULL);
}
