/* SPDX-License-Identifier: Apache-2.0 */
/* train/bench.c - see the header. */
#include "config.h"

#include "train/bench.h"
#include "train/run.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RATE_SECONDS 1.0

typedef struct bench {
    const st_bench_options *o;
    st_run run;
    double median, rate, product_flops,
        profiled;                     /* seconds of a step; FLOP/s; FLOP of a step; seconds under the clocks */
    double tokens, samples, capacity; /* per step */
    double megatron, formula;         /* FLOP of a step by both formulas, forward and backward */
    st_plan_bytes planned;
    int64_t used;                     /* bytes that the device gave this process; -1: it does not say */
    const st_op_time *times;
    int n_times;
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
        b->megatron += cost[i].megatron;
        b->formula += cost[i].formula;
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
    b->tokens += (double)s.tokens;
    for (int32_t i = 0; i < r->micros; i++) b->samples += r->rows[i]->n_sequences;
    return ST_OK;
}

static int timed_steps(bench *b, st_error *e)
{
    int64_t n = b->o->steps;
    double *seconds = ST_NEW_N(b->run.arena, double, n), ignored;

    if (!seconds) return st_fail(e, ST_E_NOMEM, "no memory for %lld times", (long long)n);
    for (int64_t i = 0; i < b->o->warmup; i++) ST_TRY(one_step(b, i + 1, &ignored, e));
    b->tokens = b->samples = 0;
    for (int64_t i = 0; i < n; i++) ST_TRY(one_step(b, b->o->warmup + i + 1, &seconds[i], e));
    b->tokens /= (double)n;
    b->samples /= (double)n;
    for (int32_t i = 0; i < b->run.micros; i++) ST_TRY(add_costs(b, b->run.rows[i], e));
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    b->median = seconds[n / 2];
    return ST_OK;
}

static int profiled_steps(bench *b, st_error *e)
{
    int64_t n = b->o->steps < 5 ? b->o->steps : 5;
    double tokens = b->tokens, samples = b->samples, seconds;

    st_model_profile(b->run.model, 1);
    for (int64_t i = 0; i < n; i++) {
        ST_TRY(one_step(b, b->o->warmup + i + 1, &seconds, e));
        b->profiled += seconds / (double)n;
    }
    st_model_profile(b->run.model, 0);
    b->tokens = tokens;
    b->samples = samples;
    b->n_times = st_model_times(b->run.model, &b->times);
    st_op_time *mean = ST_NEW_N(b->run.arena, st_op_time, b->n_times + 1);
    if (!mean) return st_fail(e, ST_E_NOMEM, "no memory for %d times", b->n_times);
    for (int i = 0; i < b->n_times; i++) {
        mean[i] = b->times[i];
        mean[i].seconds /= (double)n;
        mean[i].flops /= (double)n;
        mean[i].bytes /= (double)n;
        mean[i].calls /= n;
        if (mean[i].product) b->product_flops += mean[i].flops;
    }
    b->times = mean;
    return ST_OK;
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const st_op_time *)a)->seconds, y = ((const st_op_time *)b)->seconds;

    return (x < y) - (x > y);
}

static void print_model_flops(const bench *b, const char *words, double flops)
{
    FILE *f = b->o->out;

    fprintf(f, "%-17s %.3f GFLOP a step, %.1f GFLOP/s", words, 1e-9 * flops, 1e-9 * flops / b->median);
    if (b->o->peak > 0) fprintf(f, ", %.1f%% of the peak given", 100 * flops / b->median / b->o->peak);
    fputc('\n', f);
}

static void print_text(const bench *b)
{
    double floor_seconds = b->product_flops / b->rate;
    FILE *f = b->o->out;

    fprintf(f, "backend           %s\n", st_model_choice(b->run.model));
    fprintf(f, "device            %s\n", st_model_device(b->run.model));
    if (b->run.at.timing) fprintf(f, "for timing only   %s: weights of such a run mean nothing\n", b->run.at.timing);
    fprintf(f, "step              %.2f ms (median of %lld)\n", 1e3 * b->median, (long long)b->o->steps);
    fprintf(f, "tokens            %.0f a step in rows of %.0f, %.0f tokens/s, %.1f samples/s\n", b->tokens, b->capacity,
            b->tokens / b->median, b->samples / b->median);
    fprintf(f, "matrix products   %.3f GFLOP a step, %.1f GFLOP/s\n", 1e-9 * b->product_flops,
            1e-9 * b->product_flops / b->median);
    print_model_flops(b, "model, Megatron", b->megatron);
    print_model_flops(b, "model, exact", b->formula);
    fprintf(f, "memory            %.1f MiB planned", (double)b->planned.total / 1048576);
    if (b->used >= 0) fprintf(f, ", %.1f MiB taken of the device", (double)b->used / 1048576);
    fputc('\n', f);
    fprintf(f, "this machine      %.1f GFLOP/s in one large product\n", 1e-9 * b->rate);
    fprintf(f, "floor             %.2f ms; the step reaches %.1f%% of it\n\n", 1e3 * floor_seconds,
            100 * floor_seconds / b->median);
    fprintf(f, "%-24s %9s %7s %7s %10s %10s\n", "launch", "ms", "share", "calls", "GFLOP/s", "GB/s");
    for (int i = 0; i < b->n_times; i++) {
        const st_op_time *t = &b->times[i];
        if (t->calls == 0) continue;
        fprintf(f, "%-24s %9.3f %6.1f%% %7lld %10.1f %10.2f\n", t->name, 1e3 * t->seconds,
                100 * t->seconds / b->profiled, (long long)t->calls, 1e-9 * t->flops / t->seconds,
                1e-9 * t->bytes / t->seconds);
    }
}

static void print_json(const bench *b)
{
    double floor_seconds = b->product_flops / b->rate;
    FILE *f = b->o->out;

    fputs("{\"timing_only\": ", f);
    json_t *timing = b->run.at.timing ? json_string(b->run.at.timing) : json_null();
    json_dumpf(timing, f, JSON_ENCODE_ANY);
    json_decref(timing);
    fprintf(f,
            ", \"seconds_per_step\": %.9g, \"tokens_per_step\": %.9g, \"samples_per_step\": %.9g, "
            "\"tokens_per_second\": %.9g, ",
            b->median, b->tokens, b->samples, b->tokens / b->median);
    fprintf(f,
            "\"megatron_flops\": %.9g, \"exact_flops\": %.9g, \"planned_bytes\": %zu, \"taken_bytes\": %lld, ",
            b->megatron, b->formula, b->planned.total, (long long)b->used);
    fprintf(f,
            "\"product_flops\": %.9g, \"product_rate\": %.9g, \"floor_seconds\": %.9g, \"share_of_floor\": %.6g, "
            "\"launches\": [",
            b->product_flops, b->rate, floor_seconds, floor_seconds / b->median);
    for (int i = 0, first = 1; i < b->n_times; i++) {
        if (b->times[i].calls == 0) continue;
        fprintf(f, "%s{\"name\": \"%s\", \"seconds\": %.9g, \"calls\": %lld, \"flops\": %.9g, \"bytes\": %.9g}",
                first ? "" : ", ", b->times[i].name, b->times[i].seconds, (long long)b->times[i].calls,
                b->times[i].flops, b->times[i].bytes);
        first = 0;
    }
    fprintf(f, "]}\n");
}

static int measure(bench *b, st_error *e)
{
    ST_TRY(st_run_open_model(&b->run, e));
    b->capacity = (double)st_model_shape(b->run.model)->tokens * b->run.micros;
    ST_TRY(st_model_init(b->run.model, (uint64_t)b->run.config.run.seed, e));
    ST_TRY(timed_steps(b, e));
    st_model_plan_bytes(b->run.model, &b->planned);
    b->used = st_model_device_bytes(b->run.model);
    ST_TRY(st_model_gemm_rate(b->run.model, RATE_SECONDS, &b->rate, e));
    ST_TRY(profiled_steps(b, e));
    qsort((void *)b->times, (size_t)b->n_times, sizeof *b->times, by_seconds);
    if (b->o->json) print_json(b);
    else print_text(b);
    return ST_OK;
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
