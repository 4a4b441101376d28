/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan.c - `strata plan`: what a run would take, by the real code with counting memory. No data are opened, no
 * weights are made, so it runs where the run itself could not. */
#include "config.h"
#include "cli/commands.h"
#include "cli/summary.h"
#include "train/train.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: strata plan [OPTION...] SPEC\n"
    "\n"
    "Prints parameters, memory and FLOPs of a spec, layer by layer, without taking the memory or opening data.\n"
    "FLOPs are of forward and backward, of rows filled with texts of [batch] max_len: as Megatron counts them, which "
    "leaves\n"
    "out the vision tower, and exactly, with a full tower.\n"
    "\n"
    "options:\n"
    "      --ranks N                   processes that would train together; default 1\n"
    "      --json                      one JSON object instead of text\n" CLI_HELP_SET CLI_HELP_OPTIONS;

enum { OPT_RANKS = CLI_OPT_OWN, OPT_JSON };
static const struct option options[] = {
    {"ranks", required_argument, NULL, OPT_RANKS},
    {"json", no_argument, NULL, OPT_JSON},
    CLI_OPTION_SET,
    CLI_OPTIONS,
    {0},
};

typedef struct planned {
    st_model *model;
    const st_model_layer *layers;
    st_layer_cost *cost; /* of a row, each layer */
    st_layer_cost all;   /* of a step */
    double tower;        /* of all.formula */
    int n;
    st_row_stats row;
    st_plan_bytes bytes;
    st_process_plan process; /* without data */
} planned;

/* ---- planning ---- */

/* Texts as long as they may be, the rest of the row as one more. */
static st_row_stats full_row(const st_row_shape *s)
{
    double longest = s->max_len, texts = s->tokens / s->max_len, rest = s->tokens % s->max_len;

    return (st_row_stats){s->tokens, texts * longest * longest + rest * rest};
}

static bool in_tower(const st_model_layer *l) { return !strncmp(l->path, "encoder", 7); }

static int plan(planned *p, const st_spec *spec, st_arena *arena, st_error *e)
{
    double rows = st_model_micros(p->model);

    ST_TRY(st_model_plan(p->model, e));
    st_model_plan_bytes(p->model, &p->bytes);
    st_process_plan_model(p->model, st_spec_has(spec, "dataset.valid"), &p->process);
    p->n = st_model_layers(p->model, &p->layers);
    p->cost = ST_NEW_N(arena, st_layer_cost, p->n);
    if (!p->cost) return st_fail(e, ST_E_NOMEM, "no memory for the costs of %d layers", p->n);
    p->row = full_row(st_model_shape(p->model));
    ST_TRY(st_model_costs(p->model, &p->row, p->cost, e));
    for (int i = 0; i < p->n; i++) {
        p->all.megatron += rows * p->cost[i].megatron;
        p->all.formula += rows * p->cost[i].formula;
        p->all.counted += rows * p->cost[i].counted;
        if (in_tower(&p->layers[i])) p->tower += rows * p->cost[i].formula;
    }
    return ST_OK;
}

/* Sections about data are left to `strata check`: the data may be on another machine. */
static void pass_over_data(st_spec *spec)
{
    const char *const *names;
    const st_value *const *v;
    int n = st_spec_sections(spec, &names);

    for (int i = 0; i < n; i++) {
        const char *s = names[i];
        if (strncmp(s, "dataset.", 8) && strcmp(s, "data") && strcmp(s, "tokenizer") && strcmp(s, "chat")) continue;
        int values = st_spec_has(spec, s) ? st_spec_values(spec, s, &v) : 0;
        (void)st_spec_get(spec, s, "plugin"); /* the section is known, also an empty one */
        for (int k = 0; k < values; k++) (void)st_spec_get(spec, s, v[k]->key);
    }
}

static int build(st_cli *cli, st_spec *spec, st_registry *registry, planned *p)
{
    st_train_config config;
    st_error e = {0};
    int rc = st_train_config_bind(spec, &config, cli->diags), built;

    built = st_model_build(cli->base, spec, registry, 1, &p->model, cli->diags);
    pass_over_data(spec);
    int unused = st_spec_check_unused(spec, cli->diags);
    if (rc == ST_OK) rc = built != ST_OK ? built : unused;
    if (rc == ST_OK && (rc = plan(p, spec, cli->arena, &e)) != ST_OK) st_diags_add(cli->diags, &e, NULL, false);
    return rc;
}

/* ---- text ---- */

static void print_bar(double share, FILE *out)
{
    for (int i = 0; i < (int)(20 * share + 0.5); i++) fputc('#', out);
    fputc('\n', out);
}

static void print_stack(const planned *p, FILE *out)
{
    double most = 1;
    char count[48];

    for (int i = 0; i < p->n; i++)
        if (p->cost[i].formula > most) most = p->cost[i].formula;
    fprintf(out, "\n%-47s %14s  %s\n%-47s %14s %10s %10s\n", "", "", "GFLOP of a row", "made of", "parameters",
            "Megatron", "exact");
    for (int i = 0; i < p->n; i++) {
        const st_model_layer *l = &p->layers[i];
        if (l->kind == ST_KIND_OPTIMIZER) continue;
        fprintf(out, "  %-24s %c %-18s %14s %10.1f %10.1f ", *l->path ? l->path : "(host)", l->symbol ? l->symbol : ' ',
                l->plugin ? l->plugin->name : "", cli_grouped((double)l->parameters, count, sizeof count),
                1e-9 * p->cost[i].megatron, 1e-9 * p->cost[i].formula);
        print_bar(p->cost[i].formula / most, out);
    }
}

static const struct memory {
    const char *key, *words;
    size_t at;
} memory[] = {
    {"weights", "weights", offsetof(st_plan_bytes, weights)},
    {"gradients", "gradients", offsetof(st_plan_bytes, gradients)},
    {"optimizer", "optimizer state", offsetof(st_plan_bytes, optimizer)},
    {"kept", "kept for backward", offsetof(st_plan_bytes, kept)},
    {"scratch", "scratch", offsetof(st_plan_bytes, scratch)},
    {"rows", "rows and scalars", offsetof(st_plan_bytes, rows)},
    {"staging", "staging", offsetof(st_plan_bytes, staging)},
    {"workspace", "workspace of libraries", offsetof(st_plan_bytes, workspace)},
    {"total", "all", offsetof(st_plan_bytes, total)},
};

static size_t memory_of(const planned *p, const struct memory *m)
{
    size_t n;

    memcpy(&n, (const char *)&p->bytes + m->at, sizeof n);
    return n;
}

static void print_memory(const planned *p, FILE *out)
{
    char count[48];

    fputs("\nmemory of a rank in bytes\n", out);
    for (size_t i = 0; i < ST_COUNT(memory); i++)
        fprintf(out, "  %-24s %22s\n", memory[i].words,
                cli_grouped((double)memory_of(p, &memory[i]), count, sizeof count));
    fprintf(out, "  %-24s %22s\n", "process: rows packed",
            cli_grouped((double)p->process.rows, count, sizeof count));
    fprintf(out, "process: libraries and program about %.0f MiB\n", (double)ST_PROGRAM_BYTES / 1048576.0);
    fputs("process: prepared samples up to [data] cache, in each of train and valid; `strata check` tells\n", out);
}

static void print_flops(const planned *p, FILE *out)
{
    char count[48];

    fprintf(out, "\nFLOPs of a step of %d row%s of %.0f tokens\n", st_model_micros(p->model),
            st_model_micros(p->model) == 1 ? "" : "s", p->row.tokens);
    fprintf(out, "  %-24s %30s\n", "as Megatron counts", cli_grouped(p->all.megatron, count, sizeof count));
    fprintf(out, "  %-24s %30s\n", "exact", cli_grouped(p->all.formula, count, sizeof count));
    if (p->tower > 0)
        fprintf(out, "  %-24s %30s\n", "  of which the encoder", cli_grouped(p->tower, count, sizeof count));
    fputs("\ntraffic between ranks      none: one rank\n", out);
}

static void print_text(const planned *p, const char *path, FILE *out)
{
    fprintf(out, "%s\n\npattern    %s\nbackend    %s, %s\n", path, st_model_pattern(p->model),
            st_model_backend(p->model), cli_dtype(st_model_dtype(p->model)));
    print_stack(p, out);
    cli_print_parts(p->model, out);
    print_memory(p, out);
    print_flops(p, out);
}

/* ---- JSON ---- */

static json_t *json_layers(const planned *p)
{
    json_t *list = json_array();

    for (int i = 0; i < p->n; i++) {
        const st_model_layer *l = &p->layers[i];
        char symbol[2] = {l->symbol, 0};
        if (l->kind == ST_KIND_OPTIMIZER) continue;
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:f}", "path", l->path, "symbol", symbol,
                                        "plugin", l->plugin ? l->plugin->name : "", "parameters",
                                        (json_int_t)l->parameters, "megatron_flops", p->cost[i].megatron,
                                        "exact_flops", p->cost[i].formula, "launched_flops", p->cost[i].counted));
    }
    return list;
}

static json_t *json_parts(const planned *p)
{
    json_t *list = json_object();
    st_part_count c;

    for (int i = 0; cli_part(p->model, i, &c); i++)
        json_object_set_new(list, c.part,
                            json_pack("{s:I, s:I}", "all", (json_int_t)c.all, "trained", (json_int_t)c.trained));
    return list;
}

static int print_json(const planned *p, const char *path, FILE *out)
{
    json_t *bytes = json_object(), *all;

    for (size_t i = 0; i < ST_COUNT(memory); i++)
        json_object_set_new(bytes, memory[i].key, json_integer((json_int_t)memory_of(p, &memory[i])));
    all = json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:f, s:o, s:o, s:{s:I, s:I}, s:{s:f, s:f, s:f, s:f}, s:{}, s:o}", "spec", path,
                    "pattern", st_model_pattern(p->model), "backend", st_model_backend(p->model), "precision",
                    cli_dtype(st_model_dtype(p->model)), "ranks", 1, "rows", st_model_micros(p->model), "row_tokens",
                    p->row.tokens, "parameters", json_parts(p), "memory_bytes", bytes, "process_bytes", "rows", (json_int_t)p->process.rows, "program",
                    (json_int_t)ST_PROGRAM_BYTES, "step_flops", "megatron",
                    p->all.megatron, "exact", p->all.formula, "exact_encoder", p->tower, "launched", p->all.counted,
                    "traffic_bytes", "layers", json_layers(p));
    if (!all || json_dumpf(all, out, JSON_INDENT(1) | JSON_REAL_PRECISION(17))) {
        json_decref(all);
        return ST_E_NOMEM;
    }
    fputc('\n', out);
    json_decref(all);
    return ST_OK;
}

/* ---- the command ---- */

static int run(st_cli *cli, const char *name, bool json)
{
    planned p = {0};
    st_spec *spec = NULL;
    st_registry *registry = NULL;
    int rc = cli_start(cli, 0);

    if (rc == ST_OK) rc = cli_load(cli, name, &spec, &registry);
    if (rc == ST_OK) rc = build(cli, spec, registry, &p);
    if (rc == ST_OK && json) rc = print_json(&p, st_spec_path(spec), cli->out);
    else if (rc == ST_OK) print_text(&p, st_spec_path(spec), cli->out);
    int code = cli_report(cli, rc);
    st_model_destroy(p.model);
    st_registry_close(registry);
    st_spec_destroy(spec);
    return code;
}

static int one_rank_only(st_cli *cli, long ranks)
{
    st_error e = {0};

    st_fail(&e, ST_E_UNSUPPORTED, "no plan of %ld ranks: one rank is all that can train yet", ranks);
    st_diags_add(cli->diags, &e, NULL, false);
    return cli_report(cli, ST_E_UNSUPPORTED);
}

int cli_plan(st_cli *cli, int argc, char **argv)
{
    bool json = false;
    long ranks = 1;
    char *end;
    int option, code;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1)
        if (option == OPT_JSON) json = true;
        else if (option == OPT_RANKS) {
            errno = 0;
            ranks = strtol(optarg, &end, 10);
            if (*end || end == optarg || errno || ranks < 1)
                return cli_usage_error(cli, argv, "--ranks %s: a number from 1", optarg);
        } else if ((code = cli_option(cli, option, usage, argv)) >= 0) return code;
    if (argc - optind != 1) return cli_usage_error(cli, argv, "one spec is needed, %d were given", argc - optind);
    return ranks > 1 ? one_rank_only(cli, ranks) : run(cli, argv[optind], json);
}
