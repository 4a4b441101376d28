/* SPDX-License-Identifier: Apache-2.0 */
/* speed.c - prints what the cpu backend reaches on typical shapes; asserts nothing. Not part of make check:
 *     make tests/backend/speed && ST_BUILDDIR=. tests/backend/speed [threads] */
#include "fixture.h"
#include <stdio.h>
#include <time.h>

/* With one thread the processor's time is taken, so that a busy machine disturbs less. */
static double now(const rig *r)
{
    struct timespec t;
    clock_gettime(((const st_cpu_pool *)r->q.stream)->threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best of several rounds, in seconds; r->flops and r->bytes are those of one call. */
static double time_call(rig *r, rig_call call, void *ctx)
{
    double best = INFINITY, once = now(r);
    r->q.planning = 0;
    r->taken = 0;
    r->flops = r->bytes = 0;
    if (call(&r->q, r->backend->ops, ctx)) fail_msg("%s", r->message);
    double flops = r->flops, bytes = r->bytes;
    once = now(r) - once;
    int times = once > 0.02 ? 1 : (int)(0.02 / (once + 1e-7)) + 1;
    for (int round = 0; round < 7; round++) {
        double from = now(r);
        for (int i = 0; i < times; i++) {
            call(&r->q, r->backend->ops, ctx);
            while (r->n_blocks) free(r->block[--r->n_blocks]);
        }
        best = fmin(best, (now(r) - from) / times);
    }
    r->flops = flops;
    r->bytes = bytes;
    return best;
}

static void line(rig *r, const char *name, double seconds)
{
    printf("%-34s %9.1f us  %7.1f GFLOP/s  %6.1f GB/s\n", name, 1e6 * seconds, 1e-9 * r->flops / seconds,
           1e-9 * r->bytes / seconds);
}

static int call_gemm(const st_queue *q, const st_ops *ops, void *ctx) { return ops->gemm(q, ctx); }
static int call_norm(const st_queue *q, const st_ops *ops, void *ctx) { return ops->norm(q, ctx); }
static int call_norm_bwd(const st_queue *q, const st_ops *ops, void *ctx) { return ops->norm_bwd(q, ctx); }
static int call_forward(const st_queue *q, const st_ops *ops, void *ctx) { return ops->attention(q, ctx); }
static int call_backward(const st_queue *q, const st_ops *ops, void *ctx) { return ops->attention_bwd(q, ctx); }
static int call_xent(const st_queue *q, const st_ops *ops, void *ctx) { return ops->xent(q, ctx); }
typedef struct glu_call { int act; st_tensor *g, *u, *y; } glu_call;
static int call_glu(const st_queue *q, const st_ops *ops, void *ctx)
{
    const glu_call *c = ctx;
    return ops->glu(q, c->act, c->g, c->u, c->y);
}

static void gemm(rig *r, int64_t m, int64_t n, int64_t k, uint32_t trans)
{
    char name[64];
    st_tensor *a = trans & 1 ? NEW_REAL(r, 0, k, m) : NEW_REAL(r, 0, m, k),
              *b = trans & 2 ? NEW_REAL(r, 0, n, k) : NEW_REAL(r, 0, k, n);
    st_gemm g = {.a = a, .b = b, .c = NEW_REAL(r, 0, m, n), .alpha = 1, .trans = trans};
    set_random(a, 1, -1, 1);
    set_random(b, 2, -1, 1);
    snprintf(name, sizeof name, "gemm %lldx%lldx%lld %s%s", (long long)m, (long long)n, (long long)k,
             trans & 1 ? "T" : "N", trans & 2 ? "T" : "N");
    line(r, name, time_call(r, call_gemm, &g));
    rig_clear(r);
}

static void attention(rig *r, int64_t segments, int64_t len, int64_t heads, int64_t kv, int64_t d, bool causal)
{
    char name[64];
    int64_t tokens = segments * len;
    st_tensor *t[8], *spans = NEW(r, ST_I32, 0, 4, segments);
    for (int i = 0; i < 8; i++) t[i] = NEW_REAL(r, 0, tokens, i == 1 || i == 2 || i >= 6 ? kv : heads, d);
    for (int i = 0; i < 4; i++) set_random(t[i], (uint64_t)i, -1, 1);
    for (int64_t i = 0; i < segments; i++)
        for (int k = 0; k < 4; k++) set_value(spans, k * segments + i, (double)(k % 2 ? len : i * len));
    st_attn a = {.q = t[0],
                 .k = t[1],
                 .v = t[2],
                 .spans = spans,
                 .out = t[3],
                 .lse = NEW_REAL(r, 0, tokens, heads),
                 .d_out = t[4],
                 .dq = t[5],
                 .dk = t[6],
                 .dv = t[7],
                 .scale = 0.1,
                 .causal = causal,
                 .max_len = (int32_t)len};
    snprintf(name, sizeof name, "attention %lldx%lld h%lld/%lld d%lld %s", (long long)segments, (long long)len,
             (long long)heads, (long long)kv, (long long)d, causal ? "causal" : "full");
    line(r, name, time_call(r, call_forward, &a));
    line(r, "  backward", time_call(r, call_backward, &a));
    rig_clear(r);
}

static void rows(rig *r, int64_t n, int64_t cols)
{
    st_tensor *t[6], *w = NEW_REAL(r, 0, cols), *dw = NEW_REAL(r, 0, cols), *rstd = NEW_REAL(r, 0, n, 1);
    for (int i = 0; i < 6; i++) {
        t[i] = NEW_REAL(r, 0, n, cols);
        set_random(t[i], (uint64_t)i, -1, 1);
    }
    st_norm f = {
        .kind = ST_NORM_RMS1P, .eps = 1e-6, .r = t[0], .y = t[1], .w = w, .r_out = t[2], .n = t[3], .rstd = rstd};
    st_norm_bwd b = {.kind = ST_NORM_RMS1P,
                     .add = 1,
                     .eps = 1e-6,
                     .r = t[2],
                     .w = w,
                     .rstd = rstd,
                     .dn = t[4],
                     .dr = t[5],
                     .dw = dw};
    glu_call g = {ST_ACT_SILU, t[0], t[1], t[3]};
    printf("%lld x %lld:\n", (long long)n, (long long)cols);
    line(r, "  norm", time_call(r, call_norm, &f));
    line(r, "  norm_bwd", time_call(r, call_norm_bwd, &b));
    line(r, "  glu silu", time_call(r, call_glu, &g));
    rig_clear(r);
}

static void xent(rig *r, int64_t n, int64_t hidden, int64_t words)
{
    char name[64];
    st_tensor *h = NEW_REAL(r, 0, n, hidden), *w = NEW_REAL(r, 0, words, hidden), *labels = NEW(r, ST_I32, 0, n);
    st_tensor *scale = NEW_REAL(r, 0, 1), *loss = NEW_REAL(r, 0, 2), *dh = NEW_REAL(r, 0, n, hidden),
              *dw = NEW_REAL(r, 0, words, hidden);
    set_random(h, 1, -1, 1);
    set_random(w, 2, -1, 1);
    set_value(scale, 0, 1);
    st_xent x = {.h = h,
                 .w = w,
                 .labels = labels,
                 .scale = scale,
                 .loss = loss,
                 .dh = dh,
                 .dw = dw,
                 .weight = 1,
                 .budget = 8 << 20};
    snprintf(name, sizeof name, "xent %lldx%lldx%lld", (long long)n, (long long)hidden, (long long)words);
    line(r, name, time_call(r, call_xent, &x));
    rig_clear(r);
}

int main(int argc, char **argv)
{
    rig *r = malloc(sizeof *r);
    for (int t = 0; t < 2; t++) {
        char words[256];
        rig_open(r, t ? ST_F64 : ST_F32, 0);
        st_device *d = rig_device(r, argc > 1 ? atoi(argv[1]) : 0, 0);
        r->backend->describe(d, words, sizeof words);
        printf("\n%s: %s\n", t ? "f64" : "f32", words);
        r->backend->queue(d, 0, &r->q);
        gemm(r, 1024, 608, 96, 2);
        gemm(r, 1024, 96, 608, 0);
        gemm(r, 608, 96, 1024, 1);
        gemm(r, 96, 256, 1024, 1);
        gemm(r, 131072, 96, 96, 2);
        gemm(r, 1024, 2048, 2048, 2);
        gemm(r, 2048, 2048, 1024, 1);
        attention(r, 16, 64, 3, 3, 32, false);
        attention(r, 10, 96, 4, 2, 32, true);
        attention(r, 1, 2048, 8, 2, 128, true);
        attention(r, 1, 1024, 8, 2, 256, true);
        rows(r, 1024, 96);
        rows(r, 2048, 2048);
        xent(r, 400, 96, 1000);
        xent(r, 256, 1024, 30000);
        r->backend->close(d);
        rig_close(r);
    }
    free(r);
    return 0;
}
