/* SPDX-License-Identifier: Apache-2.0 */
/* train/memory.c - memory of the process: what the plan takes, what stands beside it, and what it came to. */
#include "config.h"

#include "train/run.h"
#include <sys/resource.h>
#include <unistd.h>

size_t st_process_bytes(const st_process_plan *p) { return p->arenas + p->rows + p->samples + ST_PROGRAM_BYTES; }

void st_process_plan_model(const st_model *m, int valid, st_process_plan *out)
{
    st_plan_bytes plan;
    int steps = st_model_goes_ahead(m) ? 2 : 1; /* of which rows are packed at once */

    st_model_plan_bytes(m, &plan);
    *out = (st_process_plan){
        .arenas = plan.total,
        .rows = st_row_bytes(st_model_shape(m)) * (size_t)(steps * st_model_micros(m) + (valid != 0)),
    };
}

void st_run_plan_process(const st_run *r, st_process_plan *out)
{
    st_process_plan_model(r->model, r->valid != NULL, out);
    out->samples = (size_t)st_loader_samples_bytes(r->train);
    if (r->valid) out->samples += (size_t)st_loader_samples_bytes(r->valid);
}

size_t st_machine_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : 0;
}

const char *st_memory_text(size_t bytes, char *out, size_t n)
{
    bool large = bytes >= (size_t)10 << 30;

    snprintf(out, n, "%.1f %s", (double)bytes / (large ? 0x1p30 : 0x1p20), large ? "GiB" : "MiB");
    return out;
}

size_t st_process_peak(void)
{
    struct rusage u;

    return getrusage(RUSAGE_SELF, &u) == 0 ? (size_t)u.ru_maxrss * 1024 : 0;
}
