/* SPDX-License-Identifier: Apache-2.0 */
/* strata/plugin.h - descriptor of a module, kernel modules, host services outside a step.
 *
 * Versions. A new ABI_MAJOR has a new symbol (st_plugin_v1, _v2). ABI_MINOR only appends members. Three directions:
 *   plugin -> host   structs carry their size; the host copies min(size, own) into a zeroed struct.
 *   host -> plugin   structs (st_host, st_env, st_step, st_row ...) are as old as the host. A module states in abi_minor
 *                    what it was compiled for; the host refuses more than its own. To run on older hosts define
 *                    ST_ABI_TARGET before including: newer members and wrappers are then hidden (#if ST_ABI_TARGET >= k).
 *   plugin -> plugin argument structs of backend ops never grow: a new member means a new op at the end of st_ops.
 * Structs passed by value or in arrays never grow either; they say so. */
#ifndef STRATA_PLUGIN_H
#define STRATA_PLUGIN_H
#include <strata/params.h>
#include <strata/tensor.h>

#define ST_MAGIC 0x53545241u        /* "STRA" */
#define ST_KERNEL_MAGIC 0x5354524bu /* "STRK" */
#define ST_ABI_MAJOR 1u
#define ST_ABI_MINOR 0u
#ifndef ST_ABI_TARGET
#define ST_ABI_TARGET ST_ABI_MINOR
#endif

enum { ST_KIND_BACKEND = 1, ST_KIND_COMM, ST_KIND_LAYER, ST_KIND_POSITION, ST_KIND_ENCODER, ST_KIND_HEAD,
       ST_KIND_DATASET, ST_KIND_OPTIMIZER };

#define ST_CAP_TRAIN (1ull << 0)     /* backward present                                                              */
#define ST_CAP_TENSOR (1ull << 2)    /* may run with a tensor group larger than 1                                     */
#define ST_CAP_CONTEXT (1ull << 3)   /* rows may be cut over the context group (per-token layers: always true)        */
#define ST_CAP_EXPERT (1ull << 4)    /* may run with an expert group larger than 1                                    */
#define ST_CAP_SHIFTABLE (1ull << 5) /* position: a slot may hold another token than its id says (mtp heads need it)  */
#define ST_CAP_LINEAR_X (1ull << 6)  /* layer: x goes only into st_linear and st_linear_bwd, see layer.h              */
#define ST_CAP_STREAM (1ull << 7)    /* dataset: next/save/restore instead of get by index                            */

/* Host services, valid at any time on any thread, as long as the process; a plugin may keep the pointer. */
typedef struct st_arena st_arena; /* host memory with a stated life, freed as a whole by the host */
typedef struct st_device st_device;
typedef struct st_host {
    uint32_t size, abi_minor;
    void (*log)(const struct st_host *, uint32_t level, const char *who, const char *fmt, ...) ST_PRINTF(4, 5); /* 1 error .. 5 */
    int (*fail)(st_error *, int code, const char *file, int line, const char *fmt, ...) ST_PRINTF(5, 6); /* -> code   */
    void *(*alloc)(st_arena *, size_t bytes); /* zeroed, 64-byte aligned; NULL when exhausted                         */
    /* out[i] = uniform (0,1) of (seed, stream, first + i): counter based, so every cut of a tensor draws the same    */
    void (*uniform)(uint64_t seed, uint64_t stream, int64_t first, int64_t n, double *out);
    /* on host threads; returns when all are done */
    void (*parallel)(const struct st_host *, int64_t n, void (*fn)(void *arg, int64_t i), void *arg);
} st_host;

/* What a call in a data worker gets. Such calls take a const instance and run on many threads at once, in any order. */
typedef struct st_worker {
    uint32_t size;
    int32_t thread;
    const st_host *host;
    st_arena *arena; /* lives until the sample is packed */
    st_error *error;
} st_worker;
#define ST_WORKER_FAIL(w, code, ...) ((w)->host->fail((w)->error, (code), __FILE__, __LINE__, __VA_ARGS__))

/* The constant behind st_plugin_v1(). Strings static, UTF-8, never NULL unless "(optional)". */
typedef struct st_plugin {
    uint32_t magic, abi_major, abi_minor, size;       /* these four never change; checked before anything else        */
    uint32_t kind, tensor_size, param_size, n_params; /* sizeof(st_tensor), sizeof(st_param)                          */
    uint32_t self_size;                               /* bytes of one instance; the host owns and zeroes it           */
    uint32_t kernel_iface, kernel_size;               /* private kernel table; 0, 0: no kernel module                 */
    uint32_t n_faults;
    uint64_t caps, needs;                             /* needs: caps that the bound position plugin must have         */
    const char *name, *version, *license, *author, *summary, *description;
    const st_param *params;
    const void *ops;                                  /* st_<kind>_ops; starts with its own size                      */
    const char *const *faults;                        /* (optional) text of ST_FAULT_USER + i; two %lld for a and b   */
} st_plugin;
typedef const st_plugin *(*st_plugin_fn)(void); /* exported as st_plugin_v1 */

#define ST_PLUGIN_HEAD(kind) ST_MAGIC, ST_ABI_MAJOR, ST_ABI_TARGET, (uint32_t)sizeof(st_plugin), \
    (kind), (uint32_t)sizeof(st_tensor), (uint32_t)sizeof(st_param)
#define ST_COUNT(a) ((uint32_t)(sizeof(a) / sizeof((a)[0])))

/* A plugin's export (C; a C++ plugin writes the function): kind, type of an instance, its table of operations, then the members
 * that are its own. ST_PARAMS names its parameter table, ST_KERNEL_TABLE the private table of its kernel modules. */
#define ST_PARAMS(table) .params = (table), .n_params = ST_COUNT(table)
#define ST_KERNEL_TABLE(iface, T) .kernel_iface = (iface), .kernel_size = (uint32_t)sizeof(T)
#define ST_PLUGIN_V1(kind, T, table, ...) \
    ST_EXPORT const st_plugin *st_plugin_v1(void); \
    ST_EXPORT const st_plugin *st_plugin_v1(void) \
    { \
        static const st_plugin plugin = { \
            ST_PLUGIN_HEAD(kind), .self_size = (uint32_t)sizeof(T), .ops = &(table), __VA_ARGS__}; \
        return &plugin; \
    }

/* One per device. The first fault stays (compare-and-swap of code from 0). The host reads it before a step's update, which then
 * changes no weight, and words it with layer, symbol and text. Never grows. */
enum { ST_FAULT_NONE = 0, ST_FAULT_NONFINITE, ST_FAULT_RANGE, ST_FAULT_CAPACITY, ST_FAULT_USER = 256 };
typedef struct st_fault { uint32_t code; int32_t layer; int64_t a, b; } st_fault;

/* What kernels see: one ordered lane of work. Kernels and ops only enqueue; they never synchronise, allocate or copy to the
 * host. */
typedef struct st_queue {
    uint32_t size;
    int32_t planning;        /* 1: no device; ops check, take scratch, count, and return before launching             */
    void *stream;            /* cuda: cudaStream_t; cpu: const st_cpu_pool *                                          */
    void *device;            /* the backend's context; opaque to all others                                           */
    st_fault *fault;         /* device address                                                                        */
    int32_t layer, sm_limit; /* for st_fault; sm_limit: units a kernel may fill, 0 = all (side lanes)                 */
    /* scratch for backend ops only; count for them and ST_LAUNCH_COST: */
    void *(*scratch)(const struct st_queue *, size_t bytes); /* until the calling plugin function returns             */
    void (*count)(const struct st_queue *, double flops, double bytes);
    int (*fail)(const struct st_queue *, int code, const char *fmt, ...) ST_PRINTF(3, 4);
} st_queue;

typedef struct st_cpu_pool { /* stream of the cpu backend; kernels create no threads of their own */
    int32_t threads;
    void (*run)(const struct st_cpu_pool *, int64_t n, void (*fn)(void *arg, int64_t i), void *arg);
} st_cpu_pool;

/* A kernel module `<plugin>-<backend>.so` exports `const st_kernels *st_kernels_v1(void)`; the plugin's manifest names it in
 * [backend.<name>]. Its table is private to the plugin's folder and does not grow: iface, table_size, plugin and version must
 * equal the descriptor exactly, the first four fields are checked first. Entries take const st_queue * first, then plain
 * structs of pointers and sizes, and return a status (launch error). All sizes, scratch included, are computed by the logic
 * module: while planning no kernel module is loaded and ST_KERNELS is NULL. CUDA modules share one libcudart. */
typedef struct st_kernels {
    uint32_t magic, abi_major, abi_minor, size;
    uint32_t iface, table_size;
    const char *plugin, *backend, *version;
    const char *toolchain, *archs;             /* "cuda 13.0": name and major as the backend's, "": none; "sm_90a,compute_90" */
    const void *table;
    int (*init)(const st_host *, int ordinal); /* (optional) once per device and run, before any launch or capture    */
} st_kernels;

/* What a kernel module exports, around its table, a static const struct of entries. */
#define ST_KERNELS_OF(iface_, entries, plugin_, backend_, version_, toolchain_, archs_, init_) \
    {ST_KERNEL_MAGIC, ST_ABI_MAJOR, ST_ABI_TARGET, (uint32_t)sizeof(st_kernels), (iface_), (uint32_t)sizeof(entries), \
     (plugin_), (backend_), (version_), (toolchain_), (archs_), &(entries), (init_)}
#define ST_KERNELS_V1(...) \
    ST_EXPORT const st_kernels *st_kernels_v1(void); \
    ST_EXPORT const st_kernels *st_kernels_v1(void) \
    { \
        static const st_kernels kernels = ST_KERNELS_OF(__VA_ARGS__); \
        return &kernels; \
    }
#endif
