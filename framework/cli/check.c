/* SPDX-License-Identifier: Apache-2.0 */
/* cli/check.c - `strata check`: goes the way of `strata train` up to the first thing that would be made on disk or on
 * a device, and tells all mistakes, or what would be trained. */
#include "config.h"
#include "cli/commands.h"
#include "cli/summary.h"
#include "train/run.h"
#include <inttypes.h>
#include <string.h>

static const char usage[] =
    "usage: strata check SPEC [OPTION...]\n"
    "\n"
    "Finds all mistakes of a spec, or prints what it would train: the expanded pattern, the layers, parameters and "
    "memory.\n"
    "SPEC is a file, or the name of a spec that came with the program, such as receipts-tiny. Nothing is written.\n"
    "\n"
    "options:\n" CLI_HELP_SET
    "      --explain                   print each value with where it comes from\n" CLI_HELP_OPTIONS;

enum { OPT_EXPLAIN = CLI_OPT_OWN };

/* ---- --explain ---- */

static void explain_value(const st_value *v, FILE *out)
{
    char left[96];
    bool plain = !strpbrk(v->text, "\n\r");

    snprintf(left, sizeof left, "%s = %s", v->key, plain ? v->text : "(several lines)");
    fprintf(out, "  %-48s ; ", left);
    switch (v->origin) {
    case ST_FROM_SET: fputs("--set\n", out); break;
    case ST_FROM_DEFAULT: fputs("default\n", out); break;
    case ST_FROM_AUTO: fputs("auto\n", out); break;
    case ST_FROM_STACK: fprintf(out, "[stack], %s:%d\n", v->file, v->line); break;
    case ST_FROM_SUGAR: fprintf(out, "worked out from %s:%d\n", v->file, v->line); break;
    default: fprintf(out, "%s:%d\n", v->file, v->line); break;
    }
}

static void explain_section(const st_spec *spec, const char *section, FILE *out)
{
    const st_value *const *given, *taken;
    int n = st_spec_has(spec, section) ? st_spec_values(spec, section, &given) : 0,
        n_taken = st_spec_defaults(spec, &taken);

    fprintf(out, "[%s]\n", section);
    for (int i = 0; i < n; i++) explain_value(given[i], out);
    for (int i = 0; i < n_taken; i++)
        if (!strcmp(taken[i].section, section)) explain_value(&taken[i], out);
    fputc('\n', out);
}

static void explain(const st_spec *spec, FILE *out)
{
    const char *const *sections;
    const st_value *taken;
    int n = st_spec_sections(spec, &sections), n_taken = st_spec_defaults(spec, &taken);

    for (int i = 0; i < n; i++) explain_section(spec, sections[i], out);
    for (int i = 0; i < n_taken; i++) { /* sections that the spec leaves out altogether */
        bool first = !st_spec_has(spec, taken[i].section);
        for (int j = 0; j < i && first; j++) first = strcmp(taken[i].section, taken[j].section) != 0;
        if (first) explain_section(spec, taken[i].section, out);
    }
}

/* ---- what would be trained ---- */

static void print_layers(const st_model *m, FILE *out)
{
    const st_model_layer *l;
    int n = st_model_layers(m, &l);
    char count[48];

    fputs("\nmade of                                                       parameters\n", out);
    for (int i = 0; i < n; i++)
        fprintf(out, "  %-24s %c %-18s %-9s %14s\n", *l[i].path ? l[i].path : "(host)", l[i].symbol ? l[i].symbol : ' ',
                l[i].plugin ? l[i].plugin->name : "", l[i].plugin ? l[i].plugin->version : "",
                cli_grouped((double)l[i].parameters, count, sizeof count));
}

static void print_plan(const st_run *r, FILE *out)
{
    const st_model *m = r->model;
    st_memory_part part[ST_MEMORY_PARTS];
    size_t all = st_run_memory(r, part);
    const char *name;
    double unit = st_memory_unit(all, &name);

    fprintf(out, "\nmemory                     %.1f %s\n", (double)all / unit, name);
    for (int i = 0; i < ST_MEMORY_PARTS; i++)
        fprintf(out, "  %-24s %.1f\n", part[i].name, (double)part[i].bytes / unit);
    fprintf(out, "  libraries and program    about %.0f MiB\n", (double)ST_PROGRAM_BYTES / 0x1p20);
    fprintf(out, "work of one row            %.3g FLOP, of which matrix products %.3g\n", st_model_flops(m),
            st_model_gemm_flops(m));
}

/* ---- this machine ---- */

/* What a good spec lacks here, for the first line. Memory of a device is known only when it is open. */
static const char *obstacle(const st_run *r, char *out, size_t n)
{
    static const char before[] = ", but not on this machine: ";
    st_process_plan p;
    st_error e = {0};
    size_t has = st_machine_bytes();
    char planned[32], there[32];

    out[0] = '\0';
    if (st_model_find_device(r->model, &e) != ST_OK) {
        snprintf(out, n, "%s%s", before, e.message);
        return out;
    }
    st_run_plan_process(r, &p);
    if (!st_model_goes_ahead(r->model) && has > 0 && st_process_bytes(&p) > has)
        snprintf(out, n, "%s%s of memory are planned, it has %s", before,
                 st_memory_text(st_process_bytes(&p), planned, sizeof planned),
                 st_memory_text(has, there, sizeof there));
    return out;
}

/* ---- the first records ---- */

enum { LOOK_AT = 64 }; /* records of a data set at the most, so that a large one takes no longer */

typedef struct looks {
    st_look train, valid;
} looks;

static int look_at_data(const st_run *r, looks *l, st_error *e)
{
    int64_t row = st_model_shape(r->model)->tokens;

    ST_TRY(st_loader_look(r->train, row, LOOK_AT, &l->train, e));
    return r->valid ? st_loader_look(r->valid, row, LOOK_AT, &l->valid, e) : ST_OK;
}

static void print_look(const char *before, const st_loader *l, const char *what, const st_look *look, FILE *out)
{
    fprintf(out, "%s%" PRId64 " of %" PRId64 " %s, ", before, look->looked, st_loader_count(l), what);
    if (look->bad == 0) fputs("all can be used\n", out);
    else fprintf(out, "%" PRId64 " cannot be used:\n", look->bad);
    for (int32_t i = 0; i < look->n_named; i++) fprintf(out, "             %s\n", look->named[i].message);
    if (look->bad > look->n_named) fprintf(out, "             and %" PRId64 " more\n", look->bad - look->n_named);
}

/* ---- all of it ---- */

static int print_run(const st_run *r, FILE *out, st_error *e)
{
    looks l = {0};
    char words[640];

    ST_TRY(st_model_plan(r->model, e)); /* the real code with counting memory: finds what shapes alone can tell */
    ST_TRY(st_run_fit_weights(r, e));
    ST_TRY(look_at_data(r, &l, e));
    fprintf(out, "%s can train%s\n\n", st_spec_path(r->spec), obstacle(r, words, sizeof words));
    fprintf(out, "pattern    %s\n", st_model_pattern(r->model));
    fprintf(out, "backend    %s\n", st_model_choice(r->model));
    if (r->train && st_loader_count(r->train) >= 0) fprintf(out, "samples    %" PRId64, st_loader_count(r->train));
    if (r->valid && st_loader_count(r->valid) >= 0) fprintf(out, ", held out %" PRId64, st_loader_count(r->valid));
    fputc('\n', out);
    print_look("looked at  ", r->train, "samples", &l.train, out);
    if (r->valid) print_look("           ", r->valid, "held out", &l.valid, out);
    fprintf(out, "steps      %" PRId64 "\n", r->config.run.steps);
    if (r->at.timing) fprintf(out, "timing     only: weights mean nothing with %s\n", r->at.timing);
    print_layers(r->model, out);
    cli_print_parts(r->model, out);
    print_plan(r, out);
    return ST_OK;
}

/* ---- the command ---- */

static int check(st_cli *cli, const char *name, bool explained)
{
    st_train_options o = {.screen = cli->out};
    st_run r = {.options = &o, .arena = cli->arena, .saved_step = -1};
    st_error e = {0};
    int rc = cli_start(cli, 0);

    if (rc == ST_OK) rc = cli_load(cli, name, &o.spec, &o.registry);
    if (rc == ST_OK) {
        r.base = cli->base;
        r.spec = o.spec;
        rc = st_run_prepare(&r, cli->diags);
        int found = st_run_find_weights(&r, cli->diags);
        if (rc == ST_OK) rc = found;
        if (rc == ST_OK && (rc = print_run(&r, cli->out, &e)) != ST_OK) st_diags_add(cli->diags, &e, NULL, false);
        if (explained) fputs("\n", cli->out);
        if (explained) explain(o.spec, cli->out);
        r.arena = NULL; /* the command's own */
        st_run_close(&r);
    }
    int code = cli_report(cli, rc);
    st_registry_close(o.registry);
    st_spec_destroy(o.spec);
    return code;
}

int cli_check(st_cli *cli, int argc, char **argv)
{
    static const struct option options[] = {
        CLI_OPTIONS, CLI_OPTION_SET, {"explain", no_argument, NULL, OPT_EXPLAIN}, {NULL, 0, NULL, 0}};
    bool explained = false;
    int option, code;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1)
        if (option == OPT_EXPLAIN) explained = true;
        else if ((code = cli_option(cli, option, usage, argv)) >= 0) return code;
    if (optind + 1 != argc)
        return optind < argc ? cli_usage_error(cli, argv, "one spec at a time, '%s' is too much", argv[optind + 1])
                             : cli_usage_error(cli, argv, "which spec?");
    return check(cli, argv[optind], explained);
}
