/* SPDX-License-Identifier: Apache-2.0 */
/* rig.c - see rig.h. */
#include "rig.h"
#include "modules.h"
#include <stdio.h>

enum { BORDER = 256, GUARD = 0xa5 };
static const size_t gpu_room = (size_t)3 << 30, cpu_room = (size_t)256 << 20;

/* ---- queues ---- */
static side *side_of(const st_queue *q) { return (side *)(uintptr_t)q; }

static void *take(const st_queue *q, size_t bytes)
{
    side *s = side_of(q);
    size_t at = s->taken;
    s->taken += (bytes + 255) / 256 * 256;
    if (q->planning) return (void *)(uintptr_t)(0x10000 + at);
    return s->taken <= s->room ? s->arena + at : NULL;
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

/* ---- modules and devices ---- */
static bool open_side(side *s, const char *module, const st_kernels *kernels, const char **why)
{
    static st_error e;
    s->plugin = module_plugin(module, why);
    if (!s->plugin) return false;
    s->backend = s->plugin->ops;
    if (s->backend->count(NULL, &module_host, why) < 1) return false;
    void *self = calloc(1, s->plugin->self_size);
    int rc = s->backend->open(self, &module_host, 0, kernels, &s->device, &e);
    free(self);
    if (rc) *why = e.message;
    s->q = (st_queue){.size = sizeof s->q, .layer = 7, .scratch = take, .count = add_count, .fail = queue_fail};
    return !rc && !s->backend->queue(s->device, 0, &s->q);
}

gpu *gpu_open(const char **why)
{
    gpu *g = calloc(1, sizeof *g);
    const st_kernels *kernels = module_kernels("cuda", "cuda", why);
    if (!kernels || !open_side(&g->gpu, "cuda", kernels, why) || !open_side(&g->cpu, "cpu", NULL, why)) {
        free(g);
        return NULL;
    }
    g->cpu.q.fault = &g->cpu_fault;
    g->gpu.room = gpu_room;
    g->cpu.room = cpu_room;
    assert_int_equal(g->gpu.backend->alloc(g->gpu.device, ST_MEM_DEVICE, gpu_room, (void **)&g->gpu.arena), ST_OK);
    assert_int_equal(g->gpu.backend->alloc(g->gpu.device, ST_MEM_DEVICE, sizeof *g->fault, (void **)&g->fault), ST_OK);
    assert_int_equal(posix_memalign((void **)&g->cpu.arena, 256, cpu_room), 0);
    g->gpu.q.fault = g->fault;
    g->gpu.backend->describe(g->gpu.device, g->words, sizeof g->words);
    return g;
}

void gpu_close(gpu *g)
{
    gpu_clear(g);
    g->gpu.backend->free(g->gpu.device, ST_MEM_DEVICE, g->gpu.arena);
    g->gpu.backend->free(g->gpu.device, ST_MEM_DEVICE, g->fault);
    free(g->cpu.arena);
    g->gpu.backend->close(g->gpu.device);
    g->cpu.backend->close(g->cpu.device);
    free(g);
}

static void wait(gpu *g)
{
    st_error e = {0};
    if (g->gpu.backend->sync(g->gpu.device, &e)) fail_msg("%s", e.message);
}

static void transfer(gpu *g, void *dst, const void *src, size_t bytes)
{
    assert_int_equal(g->gpu.backend->copy(&g->gpu.q, dst, src, bytes), ST_OK);
    wait(g);
}

/* ---- tensors ---- */
static uint16_t to_bf16(double v) /* nearest, to even */
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static double from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static int64_t elements(const st_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->nd; i++) n *= t->dim[i];
    return n;
}

static int64_t place(const st_tensor *t, int64_t i) /* of element i, row-major */
{
    int64_t at = 0;
    for (int k = t->nd - 1; k >= 0; k--) {
        at += i % t->dim[k] * t->stride[k];
        i /= t->dim[k];
    }
    return at;
}

static double get(const st_tensor *t, const void *data, int64_t i)
{
    int64_t at = place(t, i);
    switch (t->dtype) {
    case ST_F64: return ((const double *)data)[at];
    case ST_F32: return (double)((const float *)data)[at];
    case ST_BF16: return from_bf16(((const uint16_t *)data)[at]);
    case ST_I64: return (double)((const int64_t *)data)[at];
    case ST_I32: return ((const int32_t *)data)[at];
    default: return ((const uint8_t *)data)[at];
    }
}

static void put(const st_tensor *t, void *data, int64_t i, double v)
{
    int64_t at = place(t, i);
    switch (t->dtype) {
    case ST_F64: ((double *)data)[at] = v; break;
    case ST_F32: ((float *)data)[at] = (float)v; break;
    case ST_BF16: ((uint16_t *)data)[at] = to_bf16(v); break;
    case ST_I64: ((int64_t *)data)[at] = (int64_t)v; break;
    case ST_I32: ((int32_t *)data)[at] = (int32_t)v; break;
    default: ((uint8_t *)data)[at] = (uint8_t)v;
    }
}

static void set(gpu *g, int tensor, int64_t i, double v) /* the GPU's rounding, on both sides */
{
    pair *p = &g->t[tensor];
    put(&p->gpu, p->image + BORDER, i, v);
    put(&p->cpu, p->cpu.data, i, get(&p->gpu, p->image + BORDER, i));
}

/* Shape and memory on the GPU; -> elements with gaps */
static int64_t shape(gpu *g, pair *p, const char *name, int32_t dtype, int64_t gap, int nd, const int64_t *dim)
{
    int64_t n = 1;
    memset(p, 0, sizeof *p);
    p->name = name;
    p->cpu.dtype = dtype < 0 ? ST_F64 : dtype;
    p->gpu.dtype = dtype == REAL ? g->type : dtype == ACC ? ST_F32 : dtype;
    p->cpu.nd = p->gpu.nd = nd;
    for (int i = 0; i < ST_DIMS; i++) p->cpu.dim[i] = p->cpu.stride[i] = 1;
    for (int i = nd - 1; i >= 0; i--) {
        p->cpu.dim[i] = dim[i];
        p->cpu.stride[i] = n;
        n = n * dim[i] + (i == nd - 1 && nd > 1 ? gap : 0);
    }
    memcpy(p->gpu.dim, p->cpu.dim, sizeof p->gpu.dim);
    memcpy(p->gpu.stride, p->cpu.stride, sizeof p->gpu.stride);
    p->bytes = (size_t)n * st_dtype_size(p->gpu.dtype) + 2 * BORDER;
    assert_int_equal(g->gpu.backend->alloc(g->gpu.device, ST_MEM_DEVICE, p->bytes, (void **)&p->memory), ST_OK);
    p->gpu.data = p->memory + BORDER;
    return n;
}

int gpu_new(gpu *g, const char *name, int32_t dtype, int64_t gap, int nd, const int64_t *dim)
{
    pair *p = &g->t[g->n];
    assert_true(g->n < GPU_TENSORS);
    int64_t n = shape(g, p, name, dtype, gap, nd, dim);
    p->cpu.data = calloc((size_t)n + 1, st_dtype_size(p->cpu.dtype));
    p->image = malloc(p->bytes);
    memset(p->image, GUARD, p->bytes);
    for (int64_t i = 0; i < elements(&p->cpu); i++) set(g, g->n, i, 0);
    return g->n++;
}

int gpu_large(gpu *g, int32_t dtype, int nd, const int64_t *dim)
{
    assert_true(g->n < GPU_TENSORS);
    shape(g, &g->t[g->n], "large", dtype, 0, nd, dim);
    return g->n++;
}

void gpu_clear(gpu *g)
{
    for (int i = 0; i < g->n; i++) {
        free(g->t[i].cpu.data);
        free(g->t[i].image);
        g->gpu.backend->free(g->gpu.device, ST_MEM_DEVICE, g->t[i].memory);
    }
    g->n = 0;
}

double random_at(uint64_t seed, int64_t i) /* splitmix64 of the pair */
{
    uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xd1342543de82ef95u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

int gpu_random(gpu *g, int tensor, double low, double high)
{
    for (int64_t i = 0; i < elements(&g->t[tensor].cpu); i++)
        set(g, tensor, i, low + (high - low) * random_at((uint64_t)tensor + 1000, i));
    return tensor;
}

int gpu_values(gpu *g, int tensor, const double *v)
{
    for (int64_t i = 0; i < elements(&g->t[tensor].cpu); i++) set(g, tensor, i, v[i]);
    return tensor;
}

int gpu_out(gpu *g, int tensor)
{
    g->t[tensor].out = true;
    return tensor;
}

/* ---- calls ---- */
static void use(gpu *g, bool on_gpu, bool planning)
{
    for (int i = 0; i < g->n; i++) {
        g->t[i].now = on_gpu ? g->t[i].gpu : g->t[i].cpu;
        if (planning) g->t[i].now.data = (void *)(uintptr_t)(0x1000 + 256 * (size_t)i);
    }
}

static int call_side(gpu *g, bool on_gpu, bool planning, gpu_call call, const void *args)
{
    side *s = on_gpu ? &g->gpu : &g->cpu;
    void *device = s->q.device, *stream = s->q.stream;
    use(g, on_gpu, planning);
    s->taken = 0;
    s->flops = s->bytes = 0;
    s->q.planning = planning;
    if (planning) s->q.device = s->q.stream = NULL;
    int rc = call(&s->q, s->backend->ops, g, args);
    s->q.device = device;
    s->q.stream = stream;
    s->q.planning = 0;
    return rc;
}

static void upload(gpu *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->t[i].image) transfer(g, g->t[i].memory, g->t[i].image, g->t[i].bytes);
        else g->gpu.backend->set(&g->gpu.q, g->t[i].memory, 0x3c, g->t[i].bytes); /* 0.011 in both types */
    assert_int_equal(g->gpu.backend->set(&g->gpu.q, g->fault, 0, sizeof *g->fault), ST_OK);
}

static unsigned char *download(gpu *g, int i)
{
    unsigned char *bytes = malloc(g->t[i].bytes);
    transfer(g, bytes, g->t[i].memory, g->t[i].bytes);
    return bytes;
}

static row *row_of(gpu *g, const char *op)
{
    int i = 0;
    while (i < g->n_rows && (strcmp(g->rows[i].op, op) || g->rows[i].type != g->type)) i++;
    assert_true(i < GPU_ROWS);
    if (i == g->n_rows) g->rows[g->n_rows++] = (row){.op = op, .type = g->type};
    return &g->rows[i];
}

static void run_on_gpu(gpu *g, const char *op, gpu_call call, const void *args)
{
    upload(g);
    g->gpu.backend->set(&g->gpu.q, g->gpu.arena, 0xff, (size_t)64 << 20); /* NaN */
    if (call_side(g, true, false, call, args)) fail_msg("%s: %s", op, g->gpu.message);
    wait(g);
}

static st_fault fault_of(gpu *g)
{
    st_fault fault;
    transfer(g, &fault, g->fault, sizeof fault);
    return fault;
}

static void run_without_fault(gpu *g, const char *op, gpu_call call, const void *args)
{
    run_on_gpu(g, op, call, args);
    st_fault f = fault_of(g);
    if (f.code) fail_msg("%s: fault %u of layer %d (%lld, %lld)", op, f.code, f.layer, (long long)f.a, (long long)f.b);
}

static void check_guards(const gpu *g, const char *op, int i, const unsigned char *bytes)
{
    const pair *p = &g->t[i];
    size_t size = st_dtype_size(p->gpu.dtype);
    unsigned char *own = calloc(1, p->bytes);
    for (int64_t k = 0; k < elements(&p->gpu); k++)
        memset(own + BORDER + (size_t)place(&p->gpu, k) * size, 1, size);
    for (size_t k = 0; k < p->bytes; k++)
        if (!own[k] && bytes[k] != GUARD) fail_msg("%s: byte %zu outside of %s was written", op, k, p->name);
    free(own);
}

static double error_of(const pair *p, const unsigned char *bytes)
{
    double off = 0, norm = 0;
    for (int64_t i = 0; i < elements(&p->cpu); i++) {
        double want = get(&p->cpu, p->cpu.data, i), d = get(&p->gpu, bytes + BORDER, i) - want;
        off += d * d;
        norm += want * want;
    }
    return norm > 0 ? sqrt(off / norm) : sqrt(off);
}

void gpu_check(gpu *g, const char *op, gpu_call call, const void *args, double f32, double bf16)
{
    unsigned char *first[GPU_TENSORS];
    row *r = row_of(g, op);
    double limit = g->type == ST_F32 ? f32 : bf16;
    char wrong[512] = "";
    r->limit = fmax(r->limit, limit);
    if (call_side(g, true, true, call, args)) fail_msg("%s, planning: %s", op, g->gpu.message);
    size_t planned = g->gpu.taken;
    run_without_fault(g, op, call, args);
    if (g->gpu.taken != planned) fail_msg("%s: planned %zu bytes of workspace, took %zu", op, planned, g->gpu.taken);
    for (int i = 0; i < g->n; i++) first[i] = download(g, i);
    run_without_fault(g, op, call, args);
    if (call_side(g, false, false, call, args)) fail_msg("%s on the cpu: %s", op, g->cpu.message);
    for (int i = 0; i < g->n; i++) {
        unsigned char *second = download(g, i);
        check_guards(g, op, i, second);
        if (memcmp(first[i], second, g->t[i].bytes)) fail_msg("%s: %s differs between two runs", op, g->t[i].name);
        double error = g->t[i].out ? error_of(&g->t[i], second) : 0;
        if (!(error <= limit) && !wrong[0])
            snprintf(wrong, sizeof wrong, "%s (%s): %s is off by %.3g, allowed %.3g", op,
                     g->type == ST_F32 ? "f32" : "bf16", g->t[i].name, error, limit);
        if (!(error <= r->error)) r->error = error;
        free(second);
        free(first[i]);
    }
    gpu_clear(g);
    if (wrong[0]) fail_msg("%s", wrong);
}

void gpu_faults(gpu *g, gpu_call call, const void *args, uint32_t code)
{
    run_on_gpu(g, "fault", call, args);
    st_fault fault = fault_of(g);
    assert_int_equal(fault.code, code);
    assert_int_equal(fault.layer, 7);
    memset(&g->cpu_fault, 0, sizeof g->cpu_fault);
    if (call_side(g, false, false, call, args)) fail_msg("on the cpu: %s", g->cpu.message);
    assert_int_equal(g->cpu_fault.code, code);
    gpu_clear(g);
}

void gpu_time(gpu *g, const char *op, gpu_call call, const void *args)
{
    enum { WARM = 3, TIMES = 20 };
    const st_backend_ops *b = g->gpu.backend;
    st_event *from, *to;
    row *r = row_of(g, op);
    upload(g);
    assert_int_equal(b->event(g->gpu.device, &from), ST_OK);
    assert_int_equal(b->event(g->gpu.device, &to), ST_OK);
    for (int i = 0; i < WARM + TIMES; i++) {
        if (i == WARM) assert_int_equal(b->record(&g->gpu.q, from), ST_OK);
        if (call_side(g, true, false, call, args)) fail_msg("%s: %s", op, g->gpu.message);
    }
    assert_int_equal(b->record(&g->gpu.q, to), ST_OK);
    wait(g);
    assert_int_equal(b->elapsed(from, to, &r->ms), ST_OK);
    r->ms /= TIMES;
    r->flops = g->gpu.flops;
    r->bytes = g->gpu.bytes;
    gpu_clear(g);
}

void gpu_table(const gpu *g)
{
    printf("# %s\n# %-14s %-5s %10s %10s %9s %9s %9s\n", g->words, "op", "type", "error", "allowed", "ms", "GB/s",
           "TFLOP/s");
    for (int i = 0; i < g->n_rows; i++) {
        const row *r = &g->rows[i];
        printf("# %-14s %-5s %10.2e %10.0e", r->op, r->type == ST_F32 ? "f32" : "bf16", r->error, r->limit);
        if (r->ms > 0) printf(" %9.4f %9.0f %9.1f", r->ms, 1e-6 * r->bytes / r->ms, 1e-9 * r->flops / r->ms);
        printf("\n");
    }
}
