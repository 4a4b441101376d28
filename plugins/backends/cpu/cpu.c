/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - the cpu backend: descriptor, device, memory, queue, events. Work is done when a call returns, so queues
 * need no order of their own and events only keep the time. */
#include "cpu.h"
#include <cblas.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ALIGN = 256, HUGE_PAGE = 1 << 21 };
struct cpu_self { int64_t threads, level; };

static const st_ops ops = {
    .size = sizeof ops, .gemm = cpu_gemm, .grouped = cpu_grouped, .norm = cpu_norm_op, .norm_bwd = cpu_norm_bwd_op,
    .rope = cpu_rope, .attention = cpu_attention, .attention_bwd = cpu_attention_bwd, .lookup = cpu_lookup,
    .lookup_bwd = cpu_lookup_bwd, .xent = cpu_xent_op, .adamw = cpu_adamw, .glu = cpu_glu, .glu_bwd = cpu_glu_bwd,
    .act = cpu_act, .act_bwd = cpu_act_bwd, .add = cpu_add, .copy = cpu_copy, .fill = cpu_fill, .gather = cpu_gather,
    .scatter = cpu_scatter, .combine = cpu_combine, .colsum = cpu_colsum, .sumsq = cpu_sumsq,
    .adamw_rounded = cpu_adamw_rounded, .qk_norm = cpu_qk_norm, .qk_norm_bwd = cpu_qk_norm_bwd,
    .attention_gated_bwd = cpu_attention_gated_bwd,
};

static int facts(const void *self, st_facts *f)
{
    f->size = sizeof *f;
    f->dtypes = 1u << ST_F64 | 1u << ST_F32 | 1u << ST_I32 | 1u << ST_I64 | 1u << ST_U8;
    f->align = ALIGN;
    f->tile = 1;
    f->lane_workspace = 0;
    f->host_memory = 1;
    return ST_OK;
}

static int count(const void *self, const st_host *host, const char **why)
{
    *why = "";
    return 1;
}

static const cpu_table *tables_of(int level)
{
#ifdef CPU_ALL_LEVELS
    if (level >= 4) return cpu_tables_level4;
    if (level >= 3) return cpu_tables_level3;
#endif
    return cpu_tables_level1;
}

static int highest_level(void)
{
#ifdef CPU_ALL_LEVELS
    return st_cpu_level();
#else
    return 1;
#endif
}

static int describe(const st_device *d, char *out, size_t n)
{
    snprintf(out, n, "%d thread%s, kernels of x86-64 level %d, %s on %s", (int)d->pool->threads,
             d->pool->threads == 1 ? "" : "s", (int)d->level, openblas_get_config(), openblas_get_corename());
    return ST_OK;
}

static int open_device(void *self, const st_host *host, int ordinal, const st_kernels *kernels, st_device **out,
                       st_error *error)
{
    const struct cpu_self *p = self;
    int highest = highest_level(), level = p->level ? (int)p->level : highest;
    int threads = p->threads > 0 ? (int)p->threads : omp_get_max_threads();
    char words[256];
    if (ordinal != 0)
        return host->fail(error, ST_E_DEVICE, __FILE__, __LINE__, "cpu: there is no device %d, only device 0", ordinal);
    if (level > highest || level == 2)
        return host->fail(error, ST_E_CONFIG, __FILE__, __LINE__,
                          "[run] level = %d: this machine runs levels 1%s, not that one", level,
                          highest >= 4 ? ", 3 and 4" : highest >= 3 ? " and 3" : "");
    st_device *d = calloc(1, sizeof *d);
    if (!d) return host->fail(error, ST_E_NOMEM, __FILE__, __LINE__, "cpu: no memory for the device record");
    d->host = host;
    d->level = level;
    d->tables = tables_of(level);
    d->team = cpu_team_create(threads);
    if (!d->team) {
        free(d);
        return host->fail(error, ST_E_DEVICE, __FILE__, __LINE__,
                          "cpu: the system does not give %d threads; [run] threads sets another number", threads);
    }
    d->pool = cpu_team_pool(d->team);
    openblas_set_num_threads(1); /* our pieces are the parallel part; also keeps the order of sums fixed */
    describe(d, words, sizeof words);
    if (host->log) host->log(host, 4, "cpu", "%s", words);
    *out = d;
    return ST_OK;
}

static void close_device(st_device *d)
{
    if (!d) return;
    while (d->events) {
        cpu_event *next = d->events->next;
        free(d->events);
        d->events = next;
    }
    cpu_team_destroy(d->team);
    free(d);
}

static int alloc(st_device *d, uint32_t kind, size_t bytes, void **out)
{
    size_t align = bytes >= 2 * (size_t)HUGE_PAGE ? HUGE_PAGE : ALIGN;
    *out = NULL;
    if (bytes > SIZE_MAX - align || posix_memalign(out, align, bytes ? bytes : 1)) return ST_E_NOMEM;
    if (align == HUGE_PAGE) madvise(*out, bytes, MADV_HUGEPAGE); /* only a hint: whether it is taken does not matter */
    memset(*out, 0, bytes);
    return ST_OK;
}

static int free_memory(st_device *d, uint32_t kind, void *p)
{
    free(p);
    return ST_OK;
}

static int queue(st_device *d, int priority, st_queue *out)
{
    out->size = sizeof *out;
    out->planning = 0;
    out->stream = d->pool;
    out->device = d;
    out->sm_limit = 0;
    return ST_OK;
}

static int event(st_device *d, st_event **out)
{
    cpu_event *e = calloc(1, sizeof *e);
    if (!e) return ST_E_NOMEM;
    e->next = d->events;
    d->events = e;
    *out = (st_event *)e;
    return ST_OK;
}

static int record(const st_queue *q, st_event *event_)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ((cpu_event *)event_)->ms = 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
    return ST_OK;
}

static int wait_event(const st_queue *q, st_event *e) { return ST_OK; }
static int done(st_event *e) { return 1; }

static int elapsed(st_event *from, st_event *to, double *ms)
{
    *ms = ((cpu_event *)to)->ms - ((cpu_event *)from)->ms;
    return ST_OK;
}

static int copy(const st_queue *q, void *dst, const void *src, size_t bytes)
{
    memmove(dst, src, bytes);
    return ST_OK;
}

static int set(const st_queue *q, void *dst, int byte, size_t bytes)
{
    memset(dst, byte, bytes);
    return ST_OK;
}

static int sync_device(st_device *d, st_error *e) { return ST_OK; }

static const st_param params[] = {
    ST_INT(struct cpu_self, threads, "0", 0, 4096, "", ST_PF_LOCAL,
           "threads for kernels; 0: what OMP_NUM_THREADS or the process's cores allow"),
    ST_INT(struct cpu_self, level, "0", 0, 4, "", ST_PF_EXPERT | ST_PF_LOCAL,
           "x86-64 level of the kernels: 1, 3 or 4; 0: the highest that runs here"),
};

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
    .describe = describe,
};

ST_PLUGIN_V1(ST_KIND_BACKEND, struct cpu_self, backend_ops, ST_PARAMS(params),
    .name = "cpu",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "the strata authors",
    .summary = "CPU device with threads and OpenBLAS",
    .description = "Runs in f32 or f64. Products go to OpenBLAS in fixed tiles, so results do not depend on the thread "
                   "count.")
