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

double st_memory_unit(size_t total, const char **name)
{
    bool large = total >= (size_t)10 << 30;

    *name = large ? "GiB" : "MiB";
    return large ? 0x1p30 : 0x1p20;
}

const char *st_memory_text(size_t bytes, char *out, size_t n)
{
    const char *name;
    double unit = st_memory_unit(bytes, &name);

    snprintf(out, n, "%.1f %s", (double)bytes / unit, name);
    return out;
}

/* Rows count where they lie packed on the host and where the device has them. */
size_t st_run_memory(const st_run *r, st_memory_part out[ST_MEMORY_PARTS])
{
    st_plan_bytes b;
    st_process_plan p;

    st_model_plan_bytes(r->model, &b);
    st_run_plan_process(r, &p);
    out[0] = (st_memory_part){"weights and masters", b.weights};
    out[1] = (st_memory_part){"gradients, optimizer", b.gradients + b.optimizer};
    out[2] = (st_memory_part){"kept, scratch, workspace", b.kept + b.scratch + b.workspace};
    out[3] = (st_memory_part){"rows", b.rows + b.staging + p.rows};
    out[4] = (st_memory_part){"prepared samples", p.samples};
    return st_process_bytes(&p);
}

size_t st_process_peak(void)
{
    struct rusage u;

    return getrusage(RUSAGE_SELF, &u) == 0 ? (size_t)u.ru_maxrss * 1024 : 0;
}
