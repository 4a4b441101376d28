/* SPDX-License-Identifier: Apache-2.0 */
/* attention_sides.c - see attention_sides.h. */
#include "attention_sides.h"
#include "modules.h"
#include <stdio.h>

/* ---- both backends ---- */
side cpu, own, library, *gpu = &own;

static void host_log(const st_host *host, uint32_t level, const char *who, const char *fmt, ...)
{
    char words[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(words, sizeof words, fmt, args);
    va_end(args);
    if (level <= 3) print_message("%s\n", words);
}
static st_host host; /* module_host, but that what is logged for information is told too */

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

static void set_key(void *self, const st_plugin *p, const char *key, int32_t value)
{
    for (uint32_t i = 0; i < p->n_params; i++) {
        const st_param *at = (const st_param *)((const char *)p->params + (size_t)i * p->param_size);
        if (!strcmp(at->key, key)) memcpy((char *)self + at->offset, &value, sizeof value);
    }
}

static void open_side(side *s, const char *module, const st_kernels *kernels)
{
    st_error e = {0};
    const char *why;
    const st_plugin *p = module_plugin(module, &why);
    if (!p) fail_msg("%s", why);
    s->backend = p->ops;
    void *self = calloc(1, p->self_size + 1);
    set_key(self, p, "cudnn", s == &library);
    if (s->backend->open(self, &host, 0, kernels, &s->device, &e)) fail_msg("%s: %s", module, e.message);
    free(self);
    s->q = (st_queue){.size = sizeof s->q, .layer = 7, .scratch = take, .count = add_count, .fail = queue_fail};
    assert_int_equal(s->backend->queue(s->device, 0, &s->q), ST_OK);
    assert_int_equal(s->backend->alloc(s->device, ST_MEM_DEVICE, ROOM, (void **)&s->scratch), ST_OK);
    assert_int_equal(s->backend->alloc(s->device, ST_MEM_DEVICE, sizeof(st_fault), (void **)&s->q.fault), ST_OK);
}

static bool library_there;
int use_own(void **state)
{
    gpu = &own;
    return 0;
}
int use_library(void **state)
{
    if (!library_there) print_message("# cuDNN is not there: own kernels again\n"); /* skip() would read as a failure */
    gpu = library_there ? &library : &own;
    return 0;
}

int sides_open(void **state)
{
    char words[512] = "";
    const char *why;
    const st_kernels *kernels = module_kernels("cuda", "cuda", &why);
    if (!kernels) fail_msg("%s", why);
    host = module_host;
    host.log = host_log;
    open_side(&cpu, "cpu", NULL);
    open_side(&own, "cuda", kernels);
    open_side(&library, "cuda", kernels);
    library.backend->describe(library.device, words, sizeof words);
    print_message("%s\n", words);
    library_there = strstr(words, "attention forward: cuDNN") != NULL;
    return 0;
}
/* A module that is not found is the setup's to tell. */
bool gpu_there(const char **why)
{
    const char *unseen;
    const st_plugin *p = module_plugin("cuda", &unseen);
    return !p || ((const st_backend_ops *)p->ops)->count(NULL, &module_host, why) > 0;
}

void to_gpu(void *to, const void *from, size_t n)
{
    assert_int_equal(gpu->backend->copy(&gpu->q, to, from, n), ST_OK);
    assert_int_equal(gpu->backend->sync(gpu->device, NULL), ST_OK);
}

/* ---- tensors: the same layout twice, f64 on the host and `type` on the GPU ---- */

uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (isnan(x)) return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, 4);
    return y;
}
double staged_at(const pair *p, int64_t i)
{
    if (p->gpu.dtype == ST_BF16) return from_bf16(((uint16_t *)p->staged)[i]);
    return p->gpu.dtype == ST_F32 ? (double)((float *)p->staged)[i] : ((int32_t *)p->staged)[i];
}

void upload(pair *p)
{
    for (int64_t i = 0; i < p->n; i++) {
        if (p->gpu.dtype == ST_BF16) ((uint16_t *)p->staged)[i] = to_bf16((float)p->value[i]);
        else ((float *)p->staged)[i] = (float)p->value[i];
        p->value[i] = staged_at(p, i);
    }
    to_gpu(p->gpu.data, p->staged, (size_t)p->n * st_dtype_size(p->gpu.dtype));
}
void download(pair *p)
{
    assert_int_equal(gpu->backend->copy(&gpu->q, p->staged, p->gpu.data, (size_t)p->n * st_dtype_size(p->gpu.dtype)),
                     ST_OK);
    assert_int_equal(gpu->backend->sync(gpu->device, NULL), ST_OK);
}

pair new_pair(int32_t type, int64_t rows, int64_t heads, int64_t d, int64_t gap)
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
    assert_int_equal(gpu->backend->alloc(gpu->device, ST_MEM_PINNED, bytes, &p.staged), ST_OK);
    assert_int_equal(gpu->backend->alloc(gpu->device, ST_MEM_DEVICE, bytes, &p.gpu.data), ST_OK);
    return p;
}
void free_pair(pair *p)
{
    free(p->value);
    gpu->backend->free(gpu->device, ST_MEM_PINNED, p->staged);
    gpu->backend->free(gpu->device, ST_MEM_DEVICE, p->gpu.data);
}

double random_at(uint64_t seed, int64_t i) /* splitmix64 of the pair, -1 to 1 */
{
    uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xd1342543de82ef95u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-52 - 1;
}

int64_t place(const pair *p, int64_t row, int64_t e)
{
    int64_t d = p->cpu.nd == 3 ? p->cpu.dim[2] : 1;
    return row * p->cpu.stride[0] + e / d * p->cpu.stride[1] + e % d;
}
int64_t per_row(const pair *p) { return p->cpu.dim[1] * (p->cpu.nd == 3 ? p->cpu.dim[2] : 1); }

void set_random(pair *p, uint64_t seed, double size, const int32_t *begin, const int32_t *len, int n)
{
    for (int64_t row = 0; row < p->cpu.dim[0]; row++) {
        bool inside = false;
        for (int s = 0; s < n; s++) inside |= row >= begin[s] && row < begin[s] + len[s];
        for (int64_t e = 0; e < per_row(p); e++)
            p->value[place(p, row, e)] = inside ? size * random_at(seed, row * per_row(p) + e) : NAN;
    }
    upload(p);
}
void set_all(pair *p, double value)
{
    for (int64_t row = 0; row < p->cpu.dim[0]; row++)
        for (int64_t e = 0; e < per_row(p); e++) p->value[place(p, row, e)] = value;
    upload(p);
}
