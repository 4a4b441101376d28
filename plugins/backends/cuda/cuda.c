/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - the cuda backend: descriptor, facts, and the way to its kernel module. Plain C that knows no CUDA library, so
 * that a spec can be checked and planned on any machine. */
#include "ops.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256, TILE = 64 };

static const st_ops ops = {
    .size = sizeof ops, .gemm = cuda_gemm, .grouped = cuda_grouped_op, .norm = cuda_norm_op, .norm_bwd = cuda_norm_bwd_op,
    .rope = cuda_rope_op, .attention = cuda_attention, .attention_bwd = cuda_attention_bwd, .lookup = cuda_lookup_op,
    .lookup_bwd = cuda_lookup_bwd, .xent = cuda_xent_op, .adamw = cuda_adamw_op, .glu = cuda_glu, .glu_bwd = cuda_glu_bwd,
    .act = cuda_act, .act_bwd = cuda_act_bwd, .add = cuda_add, .copy = cuda_copy, .fill = cuda_fill,
    .gather = cuda_gather, .scatter = cuda_scatter, .combine = cuda_combine_op, .colsum = cuda_colsum,
    .sumsq = cuda_sumsq, .adamw_rounded = cuda_adamw_rounded, .qk_norm = cuda_qk_norm_op, .qk_norm_bwd = cuda_qk_norm_bwd_op,
    .attention_gated_bwd = cuda_attention_gated_bwd,
};

static int facts(const void *self, st_facts *f)
{
    f->size = sizeof *f;
    f->dtypes = 1u << ST_F32 | 1u << ST_BF16 | 1u << ST_I32 | 1u << ST_I64 | 1u << ST_U8;
    f->align = ALIGN;
    f->tile = TILE;
    f->lane_workspace = CUDA_LANE_WORKSPACE;
    return ST_OK;
}

/* ---- the driver, which is asked without the runtime library, since this module does not need that ---- */

typedef struct driver {
    int (*init)(unsigned), (*count)(int *), (*get)(int *device, int ordinal), (*name)(char *, int size, int device);
    int (*attribute)(int *, int which, int device);
} driver;
enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR }; /* numbers of the driver's interface */

static const char *open_driver(driver *d)
{
    static const char *const names[] = {"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute"};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *at; /* stays open: a driver does not unload well */
    if (!library) return "there is no NVIDIA driver (libcuda.so.1 is not found)";
    for (size_t i = 0; i < ST_COUNT(names); i++) {
        if (!(at = dlsym(library, names[i]))) return "libcuda.so.1 is not the library of an NVIDIA driver";
        memcpy((char *)d + i * sizeof at, &at, sizeof at);
    }
    return d->init(0) ? "the NVIDIA driver does not start (cuInit fails); nvidia-smi may say why" : NULL;
}

static int count(const void *self, const st_host *host, const char **why)
{
    driver d;
    int n = 0;
    if ((*why = open_driver(&d))) return 0;
    *why = "";
    if (!d.count(&n) && n > 0) return n;
    *why = "the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES may hide them)";
    return 0;
}

/* "sm_80" is machine code for 8.0 and what has the same first digit and a larger second, "compute_80" PTX for all that is
 * later, "sm_90a" code for 9.0 alone, "sm_100f" for the family that begins there. */
static int runs(const char *arch, int capability)
{
    int ptx = !strncmp(arch, "compute_", 8);
    char *end;
    if (!ptx && strncmp(arch, "sm_", 3)) return 0; /* what follows is there only behind these words */
    long built = strtol(arch + (ptx ? 8 : 3), &end, 10);
    if (*end == 'a') return built == capability;
    if (!ptx || *end == 'f') return built / 10 == capability / 10 && built <= capability;
    return built <= capability;
}

static int accepts(const void *self, const st_host *host, int ordinal, const char *archs, st_error *error)
{
    driver d;
    char name[128] = "";
    int device, major, minor;
    const char *why = open_driver(&d);
    if (why) return host->fail(error, ST_E_DEVICE, __FILE__, __LINE__, "%s", why);
    if (d.get(&device, ordinal) || d.name(name, sizeof name, device) || d.attribute(&major, CAPABILITY_MAJOR, device) ||
        d.attribute(&minor, CAPABILITY_MINOR, device))
        return host->fail(error, ST_E_DEVICE, __FILE__, __LINE__, "the NVIDIA driver says nothing of device %d", ordinal);
    for (const char *at = archs; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (runs(at, 10 * major + minor)) return ST_OK;
    host->fail(error, ST_E_ABI, __FILE__, __LINE__, "these kernels are built for %s, device %d is %s of compute capability %d.%d",
               archs, ordinal, name, major, minor);
    snprintf(error->hint, sizeof error->hint, "configure --with-cuda-arch=%d%d builds kernels for it", major, minor);
    return ST_E_ABI;
}

static int open_device(void *self, const st_host *host, int ordinal, const st_kernels *kernels, st_device **out,
                       st_error *error)
{
    return ((const cuda_table *)kernels->table)->open(host, ordinal, kernels, self, out, error);
}
static void close_device(st_device *d)
{
    if (d) d->table->close(d);
}
static int alloc(st_device *d, uint32_t kind, size_t bytes, void **out) { return d->table->alloc(d, kind, bytes, out); }
static int free_memory(st_device *d, uint32_t kind, void *p) { return d->table->free(d, kind, p); }
static int queue(st_device *d, int priority, st_queue *out) { return d->table->queue(d, priority, out); }
static int event(st_device *d, st_event **out) { return d->table->event(d, out); }
static int record(const st_queue *q, st_event *e) { return e->table->record(q, e); }
static int wait_event(const st_queue *q, st_event *e) { return e->table->wait(q, e); }
static int done(st_event *e) { return e->table->done(e); }
static int elapsed(st_event *from, st_event *to, double *ms) { return from->table->elapsed(from, to, ms); }
static int copy(const st_queue *q, void *dst, const void *src, size_t n) { return cuda_table_of(q)->copy(q, dst, src, n); }
static int set(const st_queue *q, void *dst, int byte, size_t n) { return cuda_table_of(q)->set(q, dst, byte, n); }
static int sync_device(st_device *d, st_error *e) { return d->table->sync(d, e); }
static int capture_begin(const st_queue *q) { return cuda_table_of(q)->capture_begin(q); }
static int capture_end(const st_queue *q, st_graph **out, st_error *e) { return cuda_table_of(q)->capture_end(q, out, e); }
static int replay(const st_queue *q, st_graph *g) { return g->table->replay(q, g); }
static int graph_free(st_graph *g) { return g->table->graph_free(g); }
static int describe(const st_device *d, char *out, size_t n) { return d->table->describe(d, out, n); }
static int memory(const st_device *d, size_t *left, size_t *all) { return d->table->memory(d, left, all); }

static int range_push(st_device *d, const char *name) { return d->table->range_push(d, name); }
static int range_pop(st_device *d) { return d->table->range_pop(d); }

static const st_backend_ops backend_ops = {
    .size = sizeof backend_ops,
    .ops = &ops,
    .facts = facts,
    .count = count,
    .open = open_device,
    .close = close_device,
    .alloc = alloc,
    .free = free_memory,
    .queue = queue,
    .event = event,
    .record = record,
    .wait = wait_event,
    .done = done,
    .elapsed = elapsed,
    .copy = copy,
    .set = set,
    .sync = sync_device,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .replay = replay,
    .graph_free = graph_free,
    .describe = describe,
    .memory = memory,
    .accepts = accepts,
    .range_push = range_push,
    .range_pop = range_pop,
};

static const st_param params[] = {
    ST_BOOL(cuda_self, cudnn, "yes", ST_PF_EXPERT | ST_PF_LOCAL,
            "attention forward in bf16 by cuDNN, where it is found; no: by own kernels, whose bits no library changes"),
};

ST_PLUGIN_V1(ST_KIND_BACKEND, cuda_self, backend_ops, ST_PARAMS(params), ST_KERNEL_TABLE(CUDA_IFACE, cuda_table),
    .name = "cuda",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "the strata authors",
    .summary = "NVIDIA GPU with CUDA, cuBLASLt and cuDNN",
    .description = "Runs in bf16 with f32 sums, or in f32. Sums have a fixed order, so two runs are equal in every bit.")
