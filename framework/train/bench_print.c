/* SPDX-License-Identifier: Apache-2.0 */
/* train/bench_print.c - see the header. */
#include "config.h"

#include "base/json.h"
#include "train/bench_figures.h"

/* ---- text ---- */

static void print_model_flops(const st_bench_figures *f, const st_bench_options *o, const char *words, double flops)
{
    fprintf(o->out, "%-17s %.3f GFLOP a step, %.1f GFLOP/s", words, 1e-9 * flops, 1e-9 * flops / f->median);
    if (o->peak > 0) fprintf(o->out, ", %.1f%% of the peak given", 100 * flops / f->median / o->peak);
    fputc('\n', o->out);
}

static void print_machine(const st_bench_figures *f, FILE *out)
{
    fprintf(out, "this machine      %.1f GFLOP/s in one large product, %.2f GB/s in a copy\n", 1e-9 * f->rate,
            1e-9 * f->copy_rate);
}

static void print_step(const st_bench_figures *f, const st_bench_options *o)
{
    double floor_seconds = f->product_flops / f->rate;
    FILE *out = o->out;
    char bytes[32];

    fprintf(out, "step              %.2f ms (median of %lld)\n", 1e3 * f->median, (long long)o->steps);
    fprintf(out, "tokens            %.0f a step in rows of %.0f, %.0f tokens/s, %.1f samples/s\n", f->tokens,
            f->capacity, f->tokens / f->median, f->samples / f->median);
    fprintf(out, "matrix products   %.3f GFLOP a step, %.1f GFLOP/s\n", 1e-9 * f->product_flops,
            1e-9 * f->product_flops / f->median);
    print_model_flops(f, o, "model, Megatron", f->megatron);
    print_model_flops(f, o, "model, exact", f->formula);
    fprintf(out, "memory            %s planned", st_memory_text(f->planned.total, bytes, sizeof bytes));
    if (f->used >= 0) fprintf(out, ", %s taken of the device", st_memory_text((size_t)f->used, bytes, sizeof bytes));
    fputc('\n', out);
    print_machine(f, out);
    fprintf(out, "floor             %.2f ms; the step reaches %.1f%% of it\n\n", 1e3 * floor_seconds,
            100 * floor_seconds / f->median);
}

static void print_rates(const st_bench_launch *l, FILE *out)
{
    fprintf(out, " %7lld %10.1f %10.2f %9.3f %8.1f%%\n", (long long)l->calls, 1e-9 * l->all_flops / l->seconds,
            1e-9 * l->all_bytes / l->seconds, 1e3 * l->floor, 100 * l->floor / l->seconds);
}

static void print_launches(const st_bench_figures *f, FILE *out)
{
    fprintf(out, "%-24s %9s %7s %7s %10s %10s %9s %9s\n", "launch", "ms", "share", "calls", "GFLOP/s", "GB/s",
            "floor ms", "reached");
    for (int i = 0; i < f->n_launches; i++) {
        const st_bench_launch *l = &f->launches[i];
        fprintf(out, "%-24s %9.3f %6.1f%%", l->name, 1e3 * l->seconds, 100 * l->seconds / f->profiled);
        print_rates(l, out);
    }
}

static void print_places(const st_bench_figures *f, const st_bench_options *o)
{
    FILE *out = o->out;

    print_machine(f, out);
    fprintf(out, "\n%-26s %10s %10s %9s %7s %10s %10s %9s %9s\n", o->kernel, "MFLOP", "MB", "ms", "calls", "GFLOP/s",
            "GB/s", "floor ms", "reached");
    for (int i = 0; i < f->n_launches; i++) {
        const st_bench_launch *l = &f->launches[i];
        fprintf(out, "%-24s %c %10.3f %10.3f %9.3f", *l->path ? l->path : "(host)", l->symbol ? l->symbol : ' ',
                1e-6 * l->flops, 1e-6 * l->bytes, 1e3 * l->seconds);
        print_rates(l, out);
    }
}

int st_bench_print_text(const st_bench_figures *f, const st_bench_options *o)
{
    fprintf(o->out, "backend           %s\n", f->choice);
    fprintf(o->out, "device            %s\n", f->device);
    if (f->timing) fprintf(o->out, "for timing only   %s: weights of such a run mean nothing\n", f->timing);
    if (o->kernel) {
        print_places(f, o);
        return ST_OK;
    }
    print_step(f, o);
    print_launches(f, o->out);
    return ST_OK;
}

/* ---- JSON ---- */

static json_t *json_launch(const st_bench_launch *l, bool place)
{
    json_t *j = json_pack("{s:f, s:I, s:f, s:f, s:f}", "seconds", l->seconds, "calls", (json_int_t)l->calls, "flops",
                          l->all_flops, "bytes", l->all_bytes, "floor_seconds", l->floor);
    char symbol[2] = {l->symbol, 0};

    if (!place) json_object_set_new(j, "name", json_string(l->name));
    else json_object_update_new(j, json_pack("{s:s, s:s}", "layer", l->path, "symbol", symbol));
    return j;
}

static json_t *json_step(const st_bench_figures *f)
{
    double floor_seconds = f->product_flops / f->rate;

    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:f, s:f}", "seconds_per_step", f->median,
                     "tokens_per_step", f->tokens, "samples_per_step", f->samples, "tokens_per_second",
                     f->tokens / f->median, "megatron_flops", f->megatron, "exact_flops", f->formula, "planned_bytes",
                     (json_int_t)f->planned.total, "taken_bytes", (json_int_t)f->used, "product_flops",
                     f->product_flops, "floor_seconds", floor_seconds, "share_of_floor", floor_seconds / f->median);
}

int st_bench_print_json(const st_bench_figures *f, const st_bench_options *o, st_error *e)
{
    json_t *list = json_array();
    json_t *top = json_pack("{s:s?}", "timing_only", f->timing);

    for (int i = 0; i < f->n_launches; i++)
        json_array_append_new(list, json_launch(&f->launches[i], o->kernel != NULL));
    if (o->kernel) json_object_set_new(top, "kernel", json_string(o->kernel));
    else json_object_update_new(top, json_step(f));
    json_object_update_new(top, json_pack("{s:f, s:f, s:o}", "product_rate", f->rate, "copy_rate", f->copy_rate,
                                          o->kernel ? "places" : "launches", list));
    if (st_json_print(top, JSON_REAL_PRECISION(9), o->out) == ST_OK) return ST_OK;
    return st_fail(e, ST_E_NOMEM, "no memory for the figures as JSON");
}
