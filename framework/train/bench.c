/* SPDX-License-Identifier: Apache-2.0 */
/* train/bench.c - see the header. */
#include "config.h"

#include "train/bench.h"
#include "train/bench_figures.h"
#include "train/run.h"
#include <stdlib.h>
#include <string.h>

#define RATE_SECONDS 1.0

typedef struct bench {
    const st_bench_options *o;
    st_run run;
    st_bench_figures f;
} bench;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of the rows as they are packed: only pairs of tokens that see each other count. */
static int add_costs(bench *b, const st_packed_row *row, st_error *e)
{
    const st_model_layer *layers;
    int32_t n = st_model_layers(b->run.model, &layers);
    st_layer_cost *cost = ST_NEW_N(b->run.arena, st_layer_cost, n);
    st_row_stats stats = {0, 0};

    if (!cost) return st_fail(e, ST_E_NOMEM, "no memory for the costs of %d layers", n);
    for (int32_t i = 0; i < row->n_sequences; i++) {
        double length = row->segments[i + 1] - row->segments[i];
        stats.tokens += length;
        stats.sum_sq += length * length;
    }
    ST_TRY(st_model_costs(b->run.model, &stats, cost, e));
    for (int32_t i = 0; i < n; i++) {
        b->f.megatron += cost[i].megatron;
        b->f.formula += cost[i].formula;
    }
    return ST_OK;
}

static int one_step(bench *b, int64_t step, double *seconds, st_error *e)
{
    st_run *r = &b->run;
    st_schedule schedule = {.size = sizeof schedule, .step = step, .lr_scale = 1};
    st_step_result s = {0};
    int end;

    schedule.lr = st_learning_rate(&r->config.schedule, step, r->config.run.steps);
    ST_TRY(st_loader_next(r->train, r->rows, r->micros, (int32_t)r->config.batch.samples, &end, e));
    double start = st_clock();
    ST_TRY(st_model_step(r->model, (const st_packed_row *const *)r->rows, r->micros, &schedule, r->config.clip.clip, &s,
                         e));
    *seconds = st_clock() - start;
    b->f.tokens += (double)s.tokens;
    for (int32_t i = 0; i < r->micros; i++) b->f.samples += r->rows[i]->n_sequences;
    return ST_OK;
}

static int timed_steps(bench *b, st_error *e)
{
    int64_t n = b->o->steps;
    double *seconds = ST_NEW_N(b->run.arena, double, n), ignored;

    if (!seconds) return st_fail(e, ST_E_NOMEM, "no memory for %lld times", (long long)n);
    for (int64_t i = 0; i < b->o->warmup; i++) ST_TRY(one_step(b, i + 1, &ignored, e));
    b->f.tokens = b->f.samples = 0;
    for (int64_t i = 0; i < n; i++) ST_TRY(one_step(b, b->o->warmup + i + 1, &seconds[i], e));
    b->f.tokens /= (double)n;
    b->f.samples /= (double)n;
    for (int32_t i = 0; i < b->run.micros; i++) ST_TRY(add_costs(b, b->run.rows[i], e));
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    b->f.median = seconds[n / 2];
    return ST_OK;
}

/* ---- launches ---- */

static double at_least(const st_bench_figures *f, const st_op_time *t)
{
    double memory = t->bytes / f->copy_rate, product = t->flops / f->rate;

    return memory > product ? memory : product;
}

static bool same_place(const st_bench_launch *a, const st_op_time *t)
{
    return !strcmp(a->name, t->name) && !strcmp(a->path, t->path) && a->flops == t->flops / (double)t->calls &&
           a->bytes == t->bytes / (double)t->calls;
}

/* Places of one launch that do the same work for the same part become one; -> how many there are. kernel: only
 * launches of this name, each place by itself; NULL: one for each name. */
static int gather(const bench *b, const char *kernel, int64_t steps, const st_op_time *times, int n,
                  st_bench_launch *out)
{
    int found = 0;

    for (int i = 0; i < n; i++) {
        const st_op_time *t = &times[i];
        int k = 0;
        if (!t->calls || (kernel && strcmp(t->name, kernel) != 0)) continue;
        while (k < found && !(kernel ? same_place(&out[k], t) : !strcmp(out[k].name, t->name))) k++;
        if (k == found)
            out[found++] = (st_bench_launch){t->name, t->path, t->symbol, t->flops / (double)t->calls,
                                             t->bytes / (double)t->calls, 0, 0, 0, 0, 0};
        out[k].calls += t->calls;
        out[k].seconds += t->seconds / (double)steps;
        out[k].all_flops += t->flops / (double)steps;
        out[k].all_bytes += t->bytes / (double)steps;
        out[k].floor += at_least(&b->f, t) / (double)steps;
    }
    for (int k = 0; k < found; k++) out[k].calls = (out[k].calls + steps - 1) / steps; /* not 0: some steps may lack it */
    return found;
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const st_bench_launch *)a)->seconds, y = ((const st_bench_launch *)b)->seconds;

    return (x < y) - (x > y);
}

static int profiled_steps(bench *b, st_error *e)
{
    int64_t n = b->o->steps < 5 ? b->o->steps : 5;
    double tokens = b->f.tokens, samples = b->f.samples, seconds;
    const st_op_time *times;
    int n_times;

    st_model_profile(b->run.model, 1);
    for (int64_t i = 0; i < n; i++) {
        ST_TRY(one_step(b, b->o->warmup + i + 1, &seconds, e));
        b->f.profiled += seconds / (double)n;
    }
    n_times = st_model_times(b->run.model, &times);
    st_model_profile(b->run.model, 0);
    b->f.tokens = tokens;
    b->f.samples = samples;
    for (int i = 0; i < n_times; i++)
        if (times[i].product) b->f.product_flops += times[i].flops / (double)n;
    st_bench_launch *out = ST_NEW_N(b->run.arena, st_bench_launch, n_times + 1);
    if (!out) return st_fail(e, ST_E_NOMEM, "no memory for %d times", n_times);
    b->f.launches = out;
    b->f.n_launches = gather(b, b->o->kernel, n, times, n_times, out);
    if (!b->o->kernel) qsort(out, (size_t)b->f.n_launches, sizeof *out, by_seconds);
    return ST_OK;
}

/* Planning meets every launch, so a wrong name is told before the device is opened. */
static int check_kernel(const bench *b, st_error *e)
{
    char names[1024] = "";
    const char *name;
    size_t at = 0;

    if (!b->o->kernel) return ST_OK;
    ST_TRY(st_model_plan(b->run.model, e));
    for (int i = 0; (name = st_model_launch(b->run.model, i)) != NULL; i++) {
        if (!strcmp(name, b->o->kernel)) return ST_OK;
        if (at < sizeof names) at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", name);
    }
    st_fail(e, ST_E_CONFIG, "--kernel %s: a step of this spec makes no such launch", b->o->kernel);
    st_error_hint(e, "it makes %s", names);
    return ST_E_CONFIG;
}

static int measure(bench *b, st_error *e)
{
    ST_TRY(check_kernel(b, e));
    ST_TRY(st_run_open_model(&b->run, e));
    b->f.capacity = (double)st_model_shape(b->run.model)->tokens * b->run.micros;
    ST_TRY(st_model_init(b->run.model, (uint64_t)b->run.config.run.seed, e));
    ST_TRY(timed_steps(b, e));
    st_model_plan_bytes(b->run.model, &b->f.planned);
    b->f.used = st_model_device_bytes(b->run.model);
    ST_TRY(st_model_gemm_rate(b->run.model, RATE_SECONDS, &b->f.rate, e));
    ST_TRY(st_model_copy_rate(b->run.model, RATE_SECONDS, &b->f.copy_rate, e));
    ST_TRY(profiled_steps(b, e));
    b->f.choice = st_model_choice(b->run.model);
    b->f.device = st_model_device(b->run.model);
    b->f.timing = b->run.at.timing;
    return b->o->json ? st_bench_print_json(&b->f, b->o, e) : st_bench_print_text(&b->f, b->o);
}

int st_bench(st_base *base, const st_bench_options *o, st_diags *d)
{
    st_train_options options = {.spec = o->spec, .registry = o->registry, .screen = o->out};
    bench b = {
        .o = o,
        .run = {.base = base, .options = &options, .spec = o->spec, .arena = st_arena_create(0), .saved_step = -1}};
    st_error e = {0};
    int rc;

    if (!b.run.arena)
        return st_diags_add(d, &(st_error){.code = ST_E_NOMEM, .message = "no memory for a measurement"}, NULL, false);
    rc = st_run_prepare(&b.run, d);
    if (rc == ST_OK && (rc = measure(&b, &e)) != ST_OK) st_diags_add(d, &e, NULL, false);
    st_run_close(&b.run);
    return rc;
}
