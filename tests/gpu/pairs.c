/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.c - see pairs.h. */
#include "pairs.h"
#include "modules.h"
#include <stdio.h>

enum { BLOCKS = 64, ROUNDS = 5, RANDOM_BYTES = 32 << 20 };
#define GAP_VALUE 777.0

side cpu, gpu;
static pair pairs[PAIRS];
static int n_pairs, n_blocks;
static void *blocks[BLOCKS]; /* on the device */

/* ---- both backends ---- */
static side *side_of(const st_queue *q) { return (side *)((char *)(uintptr_t)q - offsetof(side, q)); }
static void *take(const st_queue *q, size_t bytes)
{
    side *s = side_of(q);
    size_t at = s->taken;
    s->taken += (bytes + 255) / 256 * 256;
    if (q->planning) return (void *)(uintptr_t)(0x10000 + at);
    return s->taken > s->room ? NULL : s->scratch + at;
}
static void add_count(const st_queue *q, double flops, double bytes)
{
    side_of(q)->flops += flops;
    side_of(q)->bytes += bytes;
}
static int queue_fail(const st_queue *q, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(side_of(q)->message, sizeof side_of(q)->message, fmt, args);
    va_end(args);
    return code;
}

static void open_side(side *s, const st_plugin *plugin, const st_kernels *kernels)
{
    st_error e = {0};
    void *self = calloc(1, plugin->self_size + 1);
    s->backend = plugin->ops;
    if (s->backend->open(self, &module_host, 0, kernels, &s->device, &e)) fail_msg("open: %s", e.message);
    free(self);
    s->q = (st_queue){.size = sizeof s->q, .layer = 7, .scratch = take, .count = add_count, .fail = queue_fail};
    assert_int_equal(s->backend->queue(s->device, 0, &s->q), ST_OK);
    assert_int_equal(s->backend->alloc(s->device, ST_MEM_DEVICE, sizeof(st_fault), (void **)&s->q.fault), ST_OK);
}

int pairs_setup(void **state)
{
    const char *why = "";
    const st_plugin *mine = module_plugin("cpu", &why), *theirs = mine ? module_plugin("cuda", &why) : NULL;
    const st_kernels *kernels = theirs ? module_kernels("cuda", "cuda", &why) : NULL;
    if (!kernels) {
        print_message("%s\n", why);
        return -1;
    }
    open_side(&cpu, mine, NULL);
    open_side(&gpu, theirs, kernels);
    return 0;
}
int pairs_teardown(void **state)
{
    pairs_clear();
    return 0;
}
/* A module that is not found is the setup's to tell. */
bool pairs_gpu_there(void)
{
    const char *why = "";
    const st_plugin *theirs = module_plugin("cuda", &why);

    if (!theirs || ((const st_backend_ops *)theirs->ops)->count(NULL, &module_host, &why) > 0) return true;
    printf("1..0 # SKIP no GPU: %s\n", why);
    return false;
}

static void *device_block(size_t bytes)
{
    void *p = NULL;
    assert_true(n_blocks < BLOCKS);
    if (gpu.backend->alloc(gpu.device, ST_MEM_DEVICE, bytes + 256, &p)) fail_msg("no %zu bytes on the device", bytes);
    return blocks[n_blocks++] = p;
}
static void moved(void *to, const void *from, size_t bytes)
{
    st_error e = {0};
    assert_int_equal(gpu.backend->copy(&gpu.q, to, from, bytes), ST_OK);
    if (gpu.backend->sync(gpu.device, &e)) fail_msg("%s", e.message);
}

static void free_scratch(side *s)
{
    if (s->scratch) s->backend->free(s->device, ST_MEM_DEVICE, s->scratch);
    s->scratch = NULL;
    s->room = 0;
}
void pairs_clear(void)
{
    for (int i = 0; i < n_pairs; i++) {
        free(pairs[i].cpu.data);
        free(pairs[i].start);
        free(pairs[i].got);
    }
    while (n_blocks) gpu.backend->free(gpu.device, ST_MEM_DEVICE, blocks[--n_blocks]);
    n_pairs = 0;
    free_scratch(&cpu);
    free_scratch(&gpu);
}

/* ---- tensors ---- */
static void put(void *p, int32_t type, int64_t i, double v)
{
    float x = (float)v;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (type == ST_F64) ((double *)p)[i] = v;
    else if (type == ST_F32) ((float *)p)[i] = x;
    else if (type == ST_I32) ((int32_t *)p)[i] = (int32_t)v;
    else ((uint16_t *)p)[i] = isnan(x) ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static double get(const void *p, int32_t type, int64_t i)
{
    float x;
    if (type == ST_F64) return ((const double *)p)[i];
    if (type == ST_F32) return ((const float *)p)[i];
    if (type == ST_I32) return ((const int32_t *)p)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static int64_t place(const st_tensor *t, int64_t i)
{
    int64_t at = 0;
    for (int k = t->nd - 1; k >= 0; k--) {
        at += i % t->dim[k] * t->stride[k];
        i /= t->dim[k];
    }
    return at;
}

static st_tensor shaped(int32_t type, int nd, const int64_t *dim, int64_t gap, int64_t *n)
{
    st_tensor t = {.dtype = type, .nd = nd};
    *n = 1;
    for (int i = 0; i < ST_DIMS; i++) t.dim[i] = t.stride[i] = 1;
    for (int i = nd - 1; i >= 0; i--) {
        t.dim[i] = dim[i];
        t.stride[i] = *n;
        *n = *n * dim[i] + (i == nd - 1 && nd > 1 ? gap : 0);
    }
    return t;
}

pair *pair_new(int32_t type, int nd, const int64_t *dim, int64_t gap)
{
    assert_true(n_pairs < PAIRS);
    pair *p = &pairs[n_pairs++];
    size_t size = st_dtype_size(type);
    p->gpu = p->cpu = shaped(type, nd, dim, gap, &p->n);
    if (type != ST_I32) p->cpu.dtype = ST_F64;
    p->cpu.data = malloc((size_t)p->n * 8 + 8);
    p->start = malloc((size_t)p->n * size + 8);
    p->got = malloc((size_t)p->n * size + 8);
    p->gpu.data = device_block((size_t)p->n * size);
    for (int64_t i = 0; i < p->n; i++) {
        put(p->start, type, i, GAP_VALUE);
        put(p->cpu.data, p->cpu.dtype, i, GAP_VALUE);
    }
    for (int64_t i = 0; i < pair_elements(p); i++) pair_set(p, i, 0);
    return p;
}

int64_t pair_elements(const pair *p)
{
    int64_t n = 1;
    for (int i = 0; i < p->gpu.nd; i++) n *= p->gpu.dim[i];
    return n;
}
void pair_set(pair *p, int64_t i, double v)
{
    int64_t at = place(&p->gpu, i);
    put(p->start, p->gpu.dtype, at, v);
    put(p->cpu.data, p->cpu.dtype, at, get(p->start, p->gpu.dtype, at));
}
double pair_cpu(const pair *p, int64_t i) { return get(p->cpu.data, p->cpu.dtype, place(&p->cpu, i)); }
double pair_gpu(const pair *p, int64_t i) { return get(p->got, p->gpu.dtype, place(&p->gpu, i)); }

double random_at(uint64_t seed, int64_t i) /* uniform in 0..1 */
{
    uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xd1342543de82ef95u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}
void pair_random(pair *p, uint64_t seed, double low, double high)
{
    for (int64_t i = 0; i < pair_elements(p); i++) pair_set(p, i, low + (high - low) * random_at(seed, i));
}

/* ---- calls ---- */
static int call_on(side *s, pair_call call, void *ctx, bool planning)
{
    s->taken = 0;
    s->flops = s->bytes = 0;
    s->q.planning = planning;
    return call(&s->q, s->backend->ops, ctx);
}
int gpu_once(pair_call call, void *ctx, bool planning) { return call_on(&gpu, call, ctx, planning); }

/* Workspace as planned, filled with NaN. */
static void prepare(side *s, pair_call call, void *ctx)
{
    free_scratch(s);
    if (call_on(s, call, ctx, true)) fail_msg("planning: %s", s->message);
    s->room = s->taken;
    assert_int_equal(s->backend->alloc(s->device, ST_MEM_DEVICE, s->room + 256, (void **)&s->scratch), ST_OK);
    assert_int_equal(s->backend->set(&s->q, s->scratch, 0xff, s->room + 256), ST_OK);
    assert_int_equal(s->backend->set(&s->q, s->q.fault, 0, sizeof(st_fault)), ST_OK);
}

static void run_side(side *s, pair_call call, void *ctx)
{
    prepare(s, call, ctx);
    if (call_on(s, call, ctx, false)) fail_msg("%s", s->message);
    if (s->taken != s->room) fail_msg("planned %zu bytes of workspace, took %zu", s->room, s->taken);
}
void cpu_run(pair_call call, void *ctx)
{
    run_side(&cpu, call, ctx);
    cpu.fault = *cpu.q.fault;
}

static void gpu_pass(pair_call call, void *ctx)
{
    for (int i = 0; i < n_pairs; i++)
        moved(pairs[i].gpu.data, pairs[i].start, (size_t)pairs[i].n * st_dtype_size(pairs[i].gpu.dtype));
    run_side(&gpu, call, ctx);
    for (int i = 0; i < n_pairs; i++)
        moved(pairs[i].got, pairs[i].gpu.data, (size_t)pairs[i].n * st_dtype_size(pairs[i].gpu.dtype));
    moved(&gpu.fault, gpu.q.fault, sizeof gpu.fault);
}

static void check_gaps(const pair *p)
{
    size_t size = st_dtype_size(p->gpu.dtype);
    char *own = calloc(1, (size_t)p->n + 1);
    for (int64_t i = 0; i < pair_elements(p); i++) own[place(&p->gpu, i)] = 1;
    for (int64_t i = 0; i < p->n; i++)
        if (!own[i] && memcmp((char *)p->got + (size_t)i * size, (char *)p->start + (size_t)i * size, size))
            fail_msg("tensor %d: element %lld of a gap was written", (int)(p - pairs), (long long)i);
    free(own);
}

void gpu_run(pair_call call, void *ctx)
{
    void *first[PAIRS];
    gpu_pass(call, ctx);
    for (int i = 0; i < n_pairs; i++) {
        size_t bytes = (size_t)pairs[i].n * st_dtype_size(pairs[i].gpu.dtype);
        first[i] = memcpy(malloc(bytes + 8), pairs[i].got, bytes);
    }
    gpu_pass(call, ctx);
    for (int i = 0; i < n_pairs; i++) {
        if (memcmp(first[i], pairs[i].got, (size_t)pairs[i].n * st_dtype_size(pairs[i].gpu.dtype)))
            fail_msg("tensor %d differs between two runs", i);
        free(first[i]);
        check_gaps(&pairs[i]);
    }
}

void pair_near(const char *what, const pair *p, double limit)
{
    double off = 0, norm = 0;
    for (int64_t i = 0; i < pair_elements(p); i++) {
        double d = pair_gpu(p, i) - pair_cpu(p, i);
        off += d * d;
        norm += pair_cpu(p, i) * pair_cpu(p, i);
    }
    double error = norm > 0 ? sqrt(off / norm) : sqrt(off);
    print_message("%-34s off by %.3g\n", what, error);
    if (!(error <= limit)) fail_msg("%s: off by %.3g, allowed %.3g", what, error, limit);
}

/* ---- times ---- */
st_tensor device_random(int32_t type, int nd, const int64_t *dim, double low, double high)
{
    int64_t n;
    st_tensor t = shaped(type, nd, dim, 0, &n);
    size_t size = st_dtype_size(type), bytes = (size_t)n * size, part = bytes < RANDOM_BYTES ? bytes : RANDOM_BYTES;
    void *some = malloc(part + 8);
    for (int64_t i = 0; i < (int64_t)(part / size); i++) put(some, type, i, low + (high - low) * random_at(3, i));
    t.data = device_block(bytes);
    for (size_t at = 0; at < bytes; at += part)
        moved((char *)t.data + at, some, bytes - at < part ? bytes - at : part);
    free(some);
    return t;
}

double gpu_time(pair_call call, void *ctx)
{
    st_event *from, *to;
    st_error e = {0};
    double best = INFINITY, ms;
    assert_int_equal(gpu.backend->event(gpu.device, &from), ST_OK);
    assert_int_equal(gpu.backend->event(gpu.device, &to), ST_OK);
    run_side(&gpu, call, ctx);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(gpu.backend->record(&gpu.q, from), ST_OK);
        if (call_on(&gpu, call, ctx, false)) fail_msg("%s", gpu.message);
        assert_int_equal(gpu.backend->record(&gpu.q, to), ST_OK);
        if (gpu.backend->sync(gpu.device, &e)) fail_msg("%s", e.message);
        assert_int_equal(gpu.backend->elapsed(from, to, &ms), ST_OK);
        best = fmin(best, ms);
    }
    return best;
}

void print_rate(const char *what, double ms)
{
    print_message("%-34s %9.3f ms  %7.1f TFLOP/s  %7.1f GB/s\n", what, ms, 1e-9 * gpu.flops / ms, 1e-6 * gpu.bytes / ms);
}
