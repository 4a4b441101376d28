/* SPDX-License-Identifier: Apache-2.0 */
/* fixture.c - see fixture.h. */
#include "fixture.h"
#include <dlfcn.h>
#include <stdio.h>

enum { BORDER = 64, GUARD = 0xa5, THREADS = 3 };

/* ---- host ---- */
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

/* The queue is the first thing a rig hands out, so it is found back by the queue's address. */
static rig *rig_of(const st_queue *q) { return (rig *)((char *)(uintptr_t)q - offsetof(rig, q)); }

static void *take(const st_queue *q, size_t bytes)
{
    rig *r = rig_of(q);
    size_t at = r->taken;
    r->taken += (bytes + 255) / 256 * 256;
    if (q->planning) return (void *)(uintptr_t)(0x10000 + at);
    if (r->n_blocks == RIG_BLOCKS) return NULL;
    void *p = NULL;
    if (posix_memalign(&p, 256, bytes ? bytes : 1)) return NULL;
    memset(p, 0xff, bytes); /* NaN for both types */
    r->block[r->n_blocks++] = p;
    return p;
}

static void add_count(const st_queue *q, double flops, double bytes)
{
    rig_of(q)->flops += flops;
    rig_of(q)->bytes += bytes;
}

static int queue_fail(const st_queue *q, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(rig_of(q)->message, sizeof rig_of(q)->message, fmt, args);
    va_end(args);
    return code;
}

/* ---- module and device ---- */
const st_plugin *rig_plugin(void)
{
    const char *dir = getenv("ST_BUILDDIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/plugins/.libs/cpu.so", dir ? dir : ".");
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module) fail_msg("%s", dlerror());
    st_plugin_fn get = (st_plugin_fn)dlsym(module, "st_plugin_v1");
    if (!get) fail_msg("%s has no st_plugin_v1", path);
    return get();
}

static void set_param(const st_plugin *p, void *self, const char *key, int64_t value)
{
    for (uint32_t i = 0; i < p->n_params; i++)
        if (!strcmp(p->params[i].key, key)) {
            memcpy((char *)self + p->params[i].offset, &value, sizeof value);
            return;
        }
    fail_msg("no parameter %s", key);
}

st_device *rig_device(rig *r, int threads, int level)
{
    st_error e = {0};
    st_device *d = NULL;
    void *self = calloc(1, r->plugin->self_size);
    set_param(r->plugin, self, "threads", threads);
    set_param(r->plugin, self, "level", level);
    if (r->backend->open(self, &r->host, 0, NULL, &d, &e)) fail_msg("open: %s", e.message);
    free(self);
    return d;
}

void rig_open(rig *r, int32_t type, int level)
{
    memset(r, 0, sizeof *r);
    r->plugin = rig_plugin();
    r->backend = r->plugin->ops;
    r->host = (st_host){.size = sizeof r->host, .log = host_log, .fail = host_fail};
    r->type = type;
    r->level = level;
    r->one = rig_device(r, 1, level);
    r->more = rig_device(r, THREADS, level);
    r->q = (st_queue){.size = sizeof r->q, .fault = &r->fault, .layer = 7, .scratch = take, .count = add_count,
                      .fail = queue_fail};
}

void rig_clear(rig *r)
{
    for (int i = 0; i < r->n; i++) free(r->tensor[i].memory);
    r->n = 0;
    memset(&r->fault, 0, sizeof r->fault);
}

void rig_close(rig *r)
{
    rig_clear(r);
    r->backend->close(r->one);
    r->backend->close(r->more);
}

void rig_each(void (*test)(rig *))
{
    const int levels[] = {1, 3, 4};
    for (int i = 0; i < 3; i++) {
        if (levels[i] > st_cpu_level()) continue;
        for (int t = 0; t < 2; t++) {
            rig *r = malloc(sizeof *r);
            rig_open(r, t ? ST_F64 : ST_F32, levels[i]);
            test(r);
            rig_close(r);
            free(r);
        }
    }
}

/* ---- tensors ---- */
st_tensor *rig_new(rig *r, int32_t dtype, int nd, const int64_t *dim, int64_t gap)
{
    assert_true(r->n < RIG_TENSORS);
    rig_tensor *x = &r->tensor[r->n++];
    size_t size = st_dtype_size(dtype);
    int64_t n = 1;
    memset(x, 0, sizeof *x);
    x->t.dtype = dtype;
    x->t.nd = nd;
    for (int i = 0; i < ST_DIMS; i++) x->t.dim[i] = x->t.stride[i] = 1;
    for (int i = nd - 1; i >= 0; i--) {
        x->t.dim[i] = dim[i];
        x->t.stride[i] = n;
        n = n * dim[i] + (i == nd - 1 && nd > 1 ? gap : 0);
    }
    x->bytes = (size_t)n * size + 2 * BORDER;
    x->memory = malloc(x->bytes);
    memset(x->memory, GUARD, x->bytes);
    x->t.data = (char *)x->memory + BORDER;
    for (int64_t i = 0; i < elements(&x->t); i++) set_value(&x->t, i, 0);
    return &x->t;
}

st_tensor *rig_view(rig *r, st_tensor t)
{
    assert_true(r->n < RIG_TENSORS);
    rig_tensor *x = &r->tensor[r->n++];
    memset(x, 0, sizeof *x);
    x->t = t;
    return &x->t;
}

st_tensor *rig_absent(rig *r) { return rig_view(r, st_absent()); }

int64_t elements(const st_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->nd; i++) n *= t->dim[i];
    return n;
}

void *element(const st_tensor *t, int64_t i)
{
    int64_t at = 0;
    for (int k = t->nd - 1; k >= 0; k--) {
        at += i % t->dim[k] * t->stride[k];
        i /= t->dim[k];
    }
    return (char *)t->data + at * (int64_t)st_dtype_size(t->dtype);
}

double value_of(const st_tensor *t, int64_t i)
{
    const void *p = element(t, i);
    switch (t->dtype) {
    case ST_F64: return *(const double *)p;
    case ST_F32: return *(const float *)p;
    case ST_BF16: return st_bf16_value(*(const uint16_t *)p);
    case ST_I32: return *(const int32_t *)p;
    case ST_I64: return (double)*(const int64_t *)p;
    default: return *(const uint8_t *)p;
    }
}

void set_value(const st_tensor *t, int64_t i, double v)
{
    void *p = element(t, i);
    switch (t->dtype) {
    case ST_F64: *(double *)p = v; break;
    case ST_F32: *(float *)p = (float)v; break;
    case ST_BF16: *(uint16_t *)p = st_round_bf16((float)v, 0x8000); break; /* to the nearest, ties away from 0 */
    case ST_I32: *(int32_t *)p = (int32_t)v; break;
    case ST_I64: *(int64_t *)p = (int64_t)v; break;
    default: *(uint8_t *)p = (uint8_t)v; break;
    }
}

double random_at(uint64_t seed, int64_t i) /* splitmix64 of the pair */
{
    uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xd1342543de82ef95u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

/* Multiples of 2^-10: f32 and f64 rigs then compute with the very same inputs. */
void set_random(const st_tensor *t, uint64_t seed, double low, double high)
{
    for (int64_t i = 0; i < elements(t); i++)
        set_value(t, i, floor((low + (high - low) * random_at(seed, i)) * 1024) / 1024);
}

void set_all(const st_tensor *t, double v)
{
    for (int64_t i = 0; i < elements(t); i++) set_value(t, i, v);
}

double *values(const st_tensor *t)
{
    double *v = malloc(sizeof *v * (size_t)(elements(t) + 1));
    for (int64_t i = 0; i < elements(t); i++) v[i] = value_of(t, i);
    return v;
}

void set_values(const st_tensor *t, const double *v)
{
    for (int64_t i = 0; i < elements(t); i++) set_value(t, i, v[i]);
}

/* ---- calls ---- */
static void free_blocks(rig *r)
{
    while (r->n_blocks) free(r->block[--r->n_blocks]);
}

static int call_on(rig *r, st_device *d, rig_call call, void *ctx)
{
    r->taken = 0;
    r->flops = r->bytes = 0;
    r->q.planning = 0;
    r->backend->queue(d, 0, &r->q);
    int rc = call(&r->q, r->backend->ops, ctx);
    free_blocks(r);
    return rc;
}

int rig_once(rig *r, rig_call call, void *ctx) { return call_on(r, r->one, call, ctx); }

static int call_planning(rig *r, rig_call call, void *ctx)
{
    void *data[RIG_TENSORS];
    for (int i = 0; i < r->n; i++) {
        data[i] = r->tensor[i].t.data;
        if (data[i]) r->tensor[i].t.data = (void *)(uintptr_t)(0x1000 + 64 * (size_t)i);
    }
    r->taken = 0;
    r->flops = r->bytes = 0;
    r->q.planning = 1;
    r->q.stream = r->q.device = NULL;
    int rc = call(&r->q, r->backend->ops, ctx);
    r->planned_flops = r->flops;
    for (int i = 0; i < r->n; i++) r->tensor[i].t.data = data[i];
    return rc;
}

static void keep_memory(rig *r, void **copy)
{
    for (int i = 0; i < r->n; i++) {
        copy[i] = r->tensor[i].memory ? malloc(r->tensor[i].bytes) : NULL;
        if (copy[i]) memcpy(copy[i], r->tensor[i].memory, r->tensor[i].bytes);
    }
}

static void swap_memory(rig *r, void **copy)
{
    for (int i = 0; i < r->n; i++) {
        char *a = r->tensor[i].memory, *b = copy[i];
        for (size_t k = 0; a && k < r->tensor[i].bytes; k++) {
            char c = a[k];
            a[k] = b[k];
            b[k] = c;
        }
    }
}

/* Guards: all bytes of a tensor's memory that are not its elements. */
static void check_guards(const rig *r)
{
    for (int i = 0; i < r->n; i++) {
        const rig_tensor *x = &r->tensor[i];
        if (!x->memory) continue;
        size_t size = st_dtype_size(x->t.dtype);
        unsigned char *own = calloc(1, x->bytes);
        for (int64_t k = 0; k < elements(&x->t); k++)
            memset(own + ((char *)element(&x->t, k) - (char *)x->memory), 1, size);
        for (size_t k = 0; k < x->bytes; k++)
            if (!own[k] && ((unsigned char *)x->memory)[k] != GUARD)
                fail_msg("tensor %d: byte %zu outside was written", i, k);
        free(own);
    }
}

int rig_run(rig *r, rig_call call, void *ctx)
{
    void *copy[RIG_TENSORS];
    int rc = call_planning(r, call, ctx);
    size_t planned = r->taken;
    if (rc) return rc;
    keep_memory(r, copy);
    rc = call_on(r, r->one, call, ctx);
    if (r->taken != planned) fail_msg("planned %zu bytes of workspace, took %zu", planned, r->taken);
    check_guards(r);
    swap_memory(r, copy); /* the memory is as before the call, the copy holds its results */
    if (!rc) rc = call_on(r, r->more, call, ctx);
    for (int i = 0; i < r->n; i++) {
        if (copy[i] && memcmp(copy[i], r->tensor[i].memory, r->tensor[i].bytes))
            fail_msg("tensor %d differs between 1 and %d threads", i, THREADS);
        free(copy[i]);
    }
    return rc;
}

void rig_refused(rig *r, rig_call call, void *ctx, int code, const char *const *pieces, int n)
{
    r->message[0] = 0;
    assert_int_equal(call_planning(r, call, ctx), code);
    for (int i = 0; i < n; i++)
        if (!strstr(r->message, pieces[i])) fail_msg("\"%s\" is not in: %s", pieces[i], r->message);
}

/* ---- comparisons ---- */
void near_to(const rig *r, const char *what, const st_tensor *a, const double *b, double f64, double f32)
{
    double off = 0, norm = 0, limit = r->type == ST_F64 ? f64 : f32;
    for (int64_t i = 0; i < elements(a); i++) {
        double d = value_of(a, i) - b[i];
        off += d * d;
        norm += b[i] * b[i];
    }
    double error = norm > 0 ? sqrt(off / norm) : sqrt(off);
    if (!(error <= limit))
        fail_msg("%s (%s, level %d): off by %.3g, allowed %.3g", what, r->type == ST_F64 ? "f64" : "f32", r->level,
                 error, limit);
}

static double weighted(const st_tensor *out, const double *weight)
{
    double sum = 0;
    for (int64_t i = 0; i < elements(out); i++) sum += weight[i] * value_of(out, i);
    return sum;
}

void check_gradient(rig *r, const char *what, rig_call call, void *ctx, const st_tensor *x, const st_tensor *out,
                    const double *weight, const double *grad, int samples)
{
    const double h = 1e-4; /* fourth-order differences: error h^4, rounding 1e-16 / h */
    int64_t n = elements(x);
    double scale = 0;
    if (r->type != ST_F64) return;
    for (int64_t i = 0; i < n; i++) scale = fmax(scale, fabs(grad[i]));
    for (int s = 0; s < samples && s < n; s++) {
        int64_t i = samples >= n ? s : (int64_t)(random_at(99, s) * (double)n);
        double v = value_of(x, i), at[4];
        const double step[4] = {1, -1, 2, -2};
        for (int k = 0; k < 4; k++) {
            set_value(x, i, v + step[k] * h);
            if (rig_once(r, call, ctx)) fail_msg("%s", r->message);
            at[k] = weighted(out, weight);
        }
        set_value(x, i, v);
        double slope = (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * h);
        if (!(fabs(slope - grad[i]) <= 1e-7 * scale + 1e-10))
            fail_msg("%s: element %lld has gradient %.12g, differences give %.12g", what, (long long)i, grad[i], slope);
    }
    if (rig_once(r, call, ctx)) fail_msg("%s", r->message);
}
