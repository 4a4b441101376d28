/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_test.c - see kernels_test.h. */
#include "kernels_test.h"
#include "modules.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(call) assert_int_equal((call), cudaSuccess)

int device_there(void)
{
    int n = 0;
    const cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaSuccess && n > 0) return 1;
    printf("1..0 # SKIP no GPU: %s\n", e == cudaSuccess ? "none found" : cudaGetErrorString(e));
    return 0;
}

const st_kernels *open_kernels(const char *plugin, const char *backend)
{
    const char *why = "";
    const st_kernels *kernels = module_kernels(plugin, backend, &why);

    if (!kernels) fail_msg("%s", why);
    return kernels;
}

static void run_all(const st_cpu_pool *pool, int64_t n, void (*fn)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    for (int64_t i = 0; i < n; i++) fn(arg, i);
}
static int queue_fail(const st_queue *q, int code, const char *fmt, ...)
{
    va_list ap;
    (void)q;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    return code;
}
st_queue cpu_queue(void)
{
    static const st_cpu_pool pool = {1, run_all};
    return (st_queue){.size = sizeof(st_queue), .stream = (void *)(uintptr_t)&pool, .fail = queue_fail};
}
st_queue device_queue(void) { return (st_queue){.size = sizeof(st_queue), .fail = queue_fail}; }

/* ---- arrays ---- */

void arrays_begin(arrays *s, int32_t type, uint64_t seed)
{
    memset(s, 0, sizeof *s);
    s->type = type;
    s->seed = seed * 2654435761u + 1;
}
void arrays_end(arrays *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->at[i].host);
        free(s->at[i].whole);
        free(s->at[i].first);
        cudaFree(s->at[i].device);
    }
    s->n = 0;
}
double uniform(arrays *s)
{
    s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(s->seed >> 11) * 0x1p-52 - 1;
}
static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float from_bf16(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static double rounded(double x, int32_t type)
{
    return type == ST_BF16 ? from_bf16(to_bf16((float)x)) : (double)(float)x;
}
static void *typed(const double *v, int64_t n, int32_t type)
{
    void *p = malloc((size_t)n * st_dtype_size(type) + 1);
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) {
        if (type == ST_BF16) ((uint16_t *)p)[i] = to_bf16((float)v[i]);
        else ((float *)p)[i] = (float)v[i];
    }
    return p;
}
static void to_device(const array *a)
{
    void *p = a->whole ? NULL : typed(a->host, a->n, a->type);
    MUST(cudaMemcpy(a->device, p ? p : a->whole, (size_t)a->n * st_dtype_size(a->type), cudaMemcpyHostToDevice));
    free(p);
}
static array *add(arrays *s, const char *name, int64_t n, int32_t type)
{
    assert_true(s->n < MOST_ARRAYS);
    array *a = &s->at[s->n++];
    *a = (array){.name = name, .n = n, .type = type};
    MUST(cudaMalloc(&a->device, (size_t)n * st_dtype_size(type) + 256));
    return a;
}
static int32_t type_of(const arrays *s, int wide) { return wide ? ST_F32 : s->type; }
array *input_of(arrays *s, const double *values, int64_t n, int wide)
{
    array *a = add(s, NULL, n, type_of(s, wide));
    a->host = malloc((size_t)n * sizeof *a->host + 1);
    for (int64_t i = 0; i < n; i++) a->host[i] = rounded(values[i], a->type);
    to_device(a);
    return a;
}
void arrays_refresh(array *a)
{
    for (int64_t i = 0; i < a->n; i++) a->host[i] = rounded(a->host[i], a->type);
    to_device(a);
}
array *input(arrays *s, int64_t n, int wide, double scale)
{
    double *v = malloc((size_t)n * sizeof *v + 1);
    for (int64_t i = 0; i < n; i++) v[i] = scale * uniform(s);
    array *a = input_of(s, v, n, wide);
    free(v);
    return a;
}
array *whole_input(arrays *s, const int32_t *values, int64_t n)
{
    array *a = add(s, NULL, n, ST_I32);
    a->whole = malloc((size_t)n * sizeof *a->whole + 1);
    memcpy(a->whole, values, (size_t)n * sizeof *values);
    to_device(a);
    return a;
}
array *bytes_input(arrays *s, const uint8_t *values, int64_t n)
{
    array *a = add(s, NULL, n, ST_U8);
    a->whole = malloc((size_t)n + 64);
    memcpy(a->whole, values, (size_t)n);
    to_device(a);
    return a;
}
array *result(arrays *s, const char *name, int64_t n, int wide, double fill, double bound)
{
    array *a = add(s, name, n, type_of(s, wide));
    a->bound = bound;
    a->host = malloc((size_t)n * sizeof *a->host + 1);
    for (int64_t i = 0; i < n; i++) a->host[i] = fill;
    to_device(a);
    return a;
}
array *whole_result(arrays *s, const char *name, int64_t n, int32_t fill)
{
    array *a = add(s, name, n, ST_I32);
    a->whole = malloc((size_t)n * sizeof *a->whole + 1);
    for (int64_t i = 0; i < n; i++) a->whole[i] = fill;
    to_device(a);
    return a;
}
void *device_scratch(arrays *s, int64_t floats)
{
    array *a = add(s, NULL, floats, ST_F32);
    MUST(cudaMemset(a->device, 0xff, (size_t)floats * 4)); /* NaN: what is not written may not be read */
    return a->device;
}

/* ---- comparison ---- */

static void *fetched(const array *a)
{
    const size_t bytes = (size_t)a->n * st_dtype_size(a->type);
    void *p = malloc(bytes + 1);
    MUST(cudaMemcpy(p, a->device, bytes, cudaMemcpyDeviceToHost));
    return p;
}
static double error_of(const array *a)
{
    double off = 0, all = 0;
    for (int64_t i = 0; i < a->n; i++) {
        if (a->whole) {
            off += ((const int32_t *)a->first)[i] != a->whole[i];
            continue;
        }
        const double x = a->type == ST_BF16 ? from_bf16(((const uint16_t *)a->first)[i]) : ((const float *)a->first)[i];
        off += (x - a->host[i]) * (x - a->host[i]);
        all += a->host[i] * a->host[i];
    }
    return a->whole ? off : all > 0 ? sqrt(off / all) : sqrt(off);
}
void compare(arrays *s, const char *title, int (*run)(void *ctx, int device), void *ctx)
{
    int bad = 0;
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < s->n; i++)
            if (s->at[i].name) to_device(&s->at[i]); /* as they were before: the CPU runs last */
        assert_int_equal(run(ctx, 1), ST_OK);
        MUST(cudaDeviceSynchronize());
        for (int i = 0; i < s->n; i++) {
            array *a = &s->at[i];
            if (!a->name) continue;
            void *now = fetched(a);
            if (!turn) {
                a->first = now;
                continue;
            }
            if (memcmp(now, a->first, (size_t)a->n * st_dtype_size(a->type))) {
                print_message("# %s: %s differs between two runs\n", title, a->name);
                bad = 1;
            }
            free(now);
        }
    }
    assert_int_equal(run(ctx, 0), ST_OK);
    for (int i = 0; i < s->n; i++) {
        if (!s->at[i].name) continue;
        const double error = error_of(&s->at[i]);
        print_message("# %-36s %-10s %.2e (at most %.0e)\n", title, s->at[i].name, error, s->at[i].bound);
        bad |= !(error <= s->at[i].bound);
    }
    if (bad) fail_msg("%s", title);
}

static int ascending(const void *a, const void *b)
{
    return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}
double milliseconds(int (*run)(void *ctx, int device), void *ctx, int times)
{
    cudaEvent_t from, to;
    float ms[64];
    assert_true(times <= 64);
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    for (int i = -3; i < times; i++) { /* three to warm up */
        MUST(cudaEventRecord(from, 0));
        assert_int_equal(run(ctx, 1), ST_OK);
        MUST(cudaEventRecord(to, 0));
        MUST(cudaEventSynchronize(to));
        if (i >= 0) MUST(cudaEventElapsedTime(&ms[i], from, to));
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    qsort(ms, (size_t)times, sizeof *ms, ascending);
    return ms[times / 2];
}
