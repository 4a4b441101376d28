/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention.c - attention of the cuda backend against the cpu backend in f64, on the same rounded inputs. Both are
 * loaded straight from their modules: from the folder ST_MODULES, or those of the build folder. Where no GPU can be
 * used every test is skipped, with the reason. The last test prints times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <strata/backend.h>

/* ---- both backends ---- */
enum { ROOM = 512 << 20, SPANS = 8 };
typedef struct side {
    const st_backend_ops *backend;
    st_device *device;
    st_queue q; /* must be found from its address */
    char *scratch;
    size_t taken;
    char message[512];
} side;
static side cpu, gpu;

static int host_fail(st_error *e, int code, const char *file, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (e) {
        e->code = code;
        vsnprintf(e->message, sizeof e->message, fmt, args);
    }
    va_end(args);
    return code;
}
static void host_log(const st_host *host, uint32_t level, const char *who, const char *fmt, ...) {}
static const st_host host = {.size = sizeof host, .log = host_log, .fail = host_fail};

static side *side_of(const st_queue *q) { return (side *)((char *)(uintptr_t)q - offsetof(side, q)); }
static void *take(const st_queue *q, size_t bytes)
{
    side *s = side_of(q);
    size_t at = s->taken;
    s->taken += (bytes + 255) / 256 * 256;
    return s->taken > ROOM ? NULL : s->scratch + at;
}
static void add_count(const st_queue *q, double flops, double bytes) {}
static int queue_fail(const st_queue *q, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(side_of(q)->message, sizeof side_of(q)->message, fmt, args);
    va_end(args);
    return code;
}

static void *entry(const char *module, const char *name)
{
    const char *folder = getenv("ST_MODULES"), *build = getenv("ST_BUILDDIR");
    char path[4096];
    snprintf(path, sizeof path, "%s%s/%s.so",
             folder  ? folder
             : build ? build
                     : ".",
             folder ? "" : "/plugins/.libs", module);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) print_message("%s\n", dlerror());
    return handle ? dlsym(handle, name) : NULL;
}

static void open_side(side *s, const char *module, const st_kernels *kernels)
{
    st_error e = {0};
    st_plugin_fn get = (st_plugin_fn)entry(module, "st_plugin_v1");
    assert_non_null(get);
    s->backend = get()->ops;
    void *self = calloc(1, get()->self_size + 1);
    if (s->backend->open(self, &host, 0, kernels, &s->device, &e)) fail_msg("%s: %s", module, e.message);
    free(self);
    s->q = (st_queue){.size = sizeof s->q, .layer = 7, .scratch = take, .count = add_count, .fail = queue_fail};
    assert_int_equal(s->backend->queue(s->device, 0, &s->q), ST_OK);
    assert_int_equal(s->backend->alloc(s->device, ST_MEM_DEVICE, ROOM, (void **)&s->scratch), ST_OK);
    assert_int_equal(s->backend->alloc(s->device, ST_MEM_DEVICE, sizeof(st_fault), (void **)&s->q.fault), ST_OK);
}

static const char *why_not; /* no GPU */
static int open_both(void **state)
{
    st_plugin_fn get = (st_plugin_fn)entry("cuda", "st_plugin_v1");
    if (!get) return -1;
    const st_kernels *(*kernels)(void) = (const st_kernels *(*)(void))entry("cuda-cuda", "st_kernels_v1");
    if (!kernels) return -1;
    open_side(&cpu, "cpu", NULL);
    open_side(&gpu, "cuda", kernels());
    return 0;
}
/* A module that is not found is the setup's to tell. */
static bool gpu_there(void)
{
    st_plugin_fn get = (st_plugin_fn)entry("cuda", "st_plugin_v1");
    return !get || ((const st_backend_ops *)get()->ops)->count(NULL, &host, &why_not) > 0;
}

static void to_gpu(void *to, const void *from, size_t n)
{
    assert_int_equal(gpu.backend->copy(&gpu.q, to, from, n), ST_OK);
    assert_int_equal(gpu.backend->sync(gpu.device, NULL), ST_OK);
}

/* ---- tensors: the same layout twice, f64 on the host and `type` on the GPU ---- */
typedef struct pair {
    st_tensor cpu, gpu;
    int64_t n;     /* elements of memory, gaps included */
    double *value; /* memory of cpu */
    void *staged;  /* as on the GPU */
} pair;
#define GAP_VALUE 777.0

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (isnan(x)) return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, 4);
    return y;
}
static double staged_at(const pair *p, int64_t i)
{
    if (p->gpu.dtype == ST_BF16) return from_bf16(((uint16_t *)p->staged)[i]);
    return p->gpu.dtype == ST_F32 ? (double)((float *)p->staged)[i] : ((int32_t *)p->staged)[i];
}

/* All of its memory, rounded to the GPU's type on both sides. */
static void upload(pair *p)
{
    for (int64_t i = 0; i < p->n; i++) {
        if (p->gpu.dtype == ST_BF16) ((uint16_t *)p->staged)[i] = to_bf16((float)p->value[i]);
        else ((float *)p->staged)[i] = (float)p->value[i];
        p->value[i] = staged_at(p, i);
    }
    to_gpu(p->gpu.data, p->staged, (size_t)p->n * st_dtype_size(p->gpu.dtype));
}
static void download(pair *p)
{
    assert_int_equal(gpu.backend->copy(&gpu.q, p->staged, p->gpu.data, (size_t)p->n * st_dtype_size(p->gpu.dtype)),
                     ST_OK);
    assert_int_equal(gpu.backend->sync(gpu.device, NULL), ST_OK);
}

/* (rows, heads, d) with `gap` elements between heads and behind a row. */
static pair new_pair(int32_t type, int64_t rows, int64_t heads, int64_t d, int64_t gap)
{
    pair p = {.n = rows * (heads * (d + gap) + gap) + 8};
    p.value = malloc(sizeof(double) * (size_t)p.n);
    for (int64_t i = 0; i < p.n; i++) p.value[i] = GAP_VALUE;
    st_tensor t = {.dim = {rows, heads, d, 1}, .stride = {heads * (d + gap) + gap, d + gap, 1, 1}, .nd = 3};
    if (d == 1) t.nd = 2; /* statistics */
    p.cpu = p.gpu = t;
    p.cpu.dtype = ST_F64;
    p.cpu.data = p.value;
    p.gpu.dtype = type;
    size_t bytes = (size_t)p.n * st_dtype_size(type);
    assert_int_equal(gpu.backend->alloc(gpu.device, ST_MEM_PINNED, bytes, &p.staged), ST_OK);
    assert_int_equal(gpu.backend->alloc(gpu.device, ST_MEM_DEVICE, bytes, &p.gpu.data), ST_OK);
    return p;
}
static void free_pair(pair *p)
{
    free(p->value);
    gpu.backend->free(gpu.device, ST_MEM_PINNED, p->staged);
    gpu.backend->free(gpu.device, ST_MEM_DEVICE, p->gpu.data);
}

static double random_at(uint64_t seed, int64_t i) /* splitmix64 of the pair, -1 to 1 */
{
    uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xd1342543de82ef95u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-52 - 1;
}

/* Place of element e of a row (its heads one after another) in memory. */
static int64_t place(const pair *p, int64_t row, int64_t e)
{
    int64_t d = p->cpu.nd == 3 ? p->cpu.dim[2] : 1;
    return row * p->cpu.stride[0] + e / d * p->cpu.stride[1] + e % d;
}
static int64_t per_row(const pair *p) { return p->cpu.dim[1] * (p->cpu.nd == 3 ? p->cpu.dim[2] : 1); }

/* Random rows in spans, NaN elsewhere: what no span holds must not be used. */
static void set_random(pair *p, uint64_t seed, double size, const int32_t *begin, const int32_t *len, int n)
{
    for (int64_t row = 0; row < p->cpu.dim[0]; row++) {
        bool inside = false;
        for (int s = 0; s < n; s++) inside |= row >= begin[s] && row < begin[s] + len[s];
        for (int64_t e = 0; e < per_row(p); e++)
            p->value[place(p, row, e)] = inside ? size * random_at(seed, row * per_row(p) + e) : NAN;
    }
    upload(p);
}
static void set_all(pair *p, double value)
{
    for (int64_t row = 0; row < p->cpu.dim[0]; row++)
        for (int64_t e = 0; e < per_row(p); e++) p->value[place(p, row, e)] = value;
    upload(p);
}

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
                     .max_len = (int32_t)c->tokens};
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
    memset(x->spans, 0, sizeof x->spans);
    memcpy(x->spans[0], c->q_begin, sizeof c->q_begin);
    memcpy(x->spans[1], c->q_len, sizeof c->q_len);
    memcpy(x->spans[2], c->k_begin, sizeof c->k_begin);
    memcpy(x->spans[3], c->k_len, sizeof c->k_len);
    assert_int_equal(gpu.backend->alloc(gpu.device, ST_MEM_DEVICE, sizeof x->spans, &x->gpu_spans), ST_OK);
    to_gpu(x->gpu_spans, x->spans, sizeof x->spans);
    x->host_spans = st_tensor2(x->spans, ST_I32, 4, SPANS);
    x->device_spans = st_tensor2(x->gpu_spans, ST_I32, 4, SPANS);
    set_random(&x->t[Q], 1, 2, c->q_begin, c->q_len, c->n);
    set_random(&x->t[K], 2, 2, c->k_begin, c->k_len, c->n);
    set_random(&x->t[V], 3, 1, c->k_begin, c->k_len, c->n);
    set_random(&x->t[D_OUT], 4, 1, c->q_begin, c->q_len, c->n);
    x->cpu = arguments(c, x, host_side, &x->host_spans);
    x->gpu = arguments(c, x, device_side, &x->device_spans);
}
static void drop(attn_rig *x)
{
    for (int i = 0; i < TENSORS; i++) free_pair(&x->t[i]);
    gpu.backend->free(gpu.device, ST_MEM_DEVICE, x->gpu_spans);
}

static void run_op(side *s, const st_attn *a, bool backward)
{
    const st_ops *ops = s->backend->ops;
    s->taken = 0;
    if ((backward ? ops->attention_bwd : ops->attention)(&s->q, a)) fail_msg("%s", s->message);
}
static void run_gpu(attn_rig *x)
{
    static const int written[] = {OUT, LSE, DQ, DK, DV};
    for (int i = 0; i < 5; i++) set_all(&x->t[written[i]], 7);
    run_op(&gpu, &x->gpu, false);
    run_op(&gpu, &x->gpu, true);
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
    static const int32_t len[] = {1500, 548};
    for (int causal = 0; causal < 2; causal++) {
        attn_case c = segments(len, 2, 0, 4, 1, 256, causal);
        each_type(&c);
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
    run_op(&gpu, &a, true);
    download(&x.t[DK]);
    download(&x.t[DQ]);
    assert_memory_equal(dk, x.t[DK].staged, bytes);
    assert_true(staged_at(&x.t[DQ], 0) == 7);
    a.lse = NULL;
    run_op(&gpu, &a, false);
    x.spans[1][1] = 51;
    to_gpu(x.gpu_spans, x.spans, sizeof x.spans);
    run_op(&gpu, &x.gpu, false);
    assert_int_equal(gpu.backend->copy(&gpu.q, x.t[DK].staged, gpu.q.fault, sizeof fault), ST_OK);
    assert_int_equal(gpu.backend->sync(gpu.device, NULL), ST_OK);
    memcpy(&fault, x.t[DK].staged, sizeof fault);
    assert_int_equal(fault.code, ST_FAULT_RANGE);
    assert_int_equal(fault.layer, 7);
    assert_int_equal(fault.a, 151);
    memset(x.t[DK].staged, 0, sizeof fault);
    to_gpu(gpu.q.fault, x.t[DK].staged, sizeof fault);
    free(dk);
    drop(&x);
}

/* ---- times ---- */
static double best_ms(const st_attn *a, bool backward)
{
    st_event *from, *to;
    double best = INFINITY, ms;
    assert_int_equal(gpu.backend->event(gpu.device, &from), ST_OK);
    assert_int_equal(gpu.backend->event(gpu.device, &to), ST_OK);
    for (int i = 0; i < 10; i++) {
        gpu.backend->record(&gpu.q, from);
        run_op(&gpu, a, backward);
        gpu.backend->record(&gpu.q, to);
        assert_int_equal(gpu.backend->sync(gpu.device, NULL), ST_OK);
        assert_int_equal(gpu.backend->elapsed(from, to, &ms), ST_OK);
        best = fmin(best, ms);
    }
    return best;
}

static void time_case(const char *what, const attn_case *c, int32_t type)
{
    attn_rig x;
    double pairs = 0;
    for (int i = 0; i < c->n; i++)
        pairs += (double)c->q_len[i] * (c->causal ? (c->k_len[i] + 1) / 2.0 : (double)c->k_len[i]);
    make(&x, c, type);
    double forward = best_ms(&x.gpu, false), backward = best_ms(&x.gpu, true);
    double flops = pairs * (double)(c->heads * c->d);
    print_message("%-44s %-4s forward %8.3f ms %6.1f TFLOP/s, backward %8.3f ms %6.1f TFLOP/s\n", what,
                  type == ST_F32 ? "f32" : "bf16", forward, 4e-9 * flops / forward, backward, 10e-9 * flops / backward);
    assert_true(isfinite(forward) && isfinite(backward));
    drop(&x);
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths),    cmocka_unit_test(not_aligned), cmocka_unit_test(shared_keys),
        cmocka_unit_test(long_rows), cmocka_unit_test(parts),       cmocka_unit_test(times),
    };
    if (!gpu_there()) {
        printf("1..0 # SKIP no GPU: %s\n", why_not);
        return 0;
    }
    return cmocka_run_group_tests_name("cuda attention", tests, open_both, NULL);
}
