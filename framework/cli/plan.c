/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan.c - `strata plan`: what a run would take, by the real code with counting memory. No data are opened, no
 * weights are made, so it runs where the run itself could not. */
#include "base/json.h"
#include "cli/commands.h"
#include "cli/plan_stack.h"
#include "cli/plan_trade.h"
#include "cli/summary.h"
#include "config.h"
#include "train/train.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: strata plan [OPTION...] SPEC\n"
    "\n"
    "Prints parameters, memory and FLOPs of a spec, layer by layer, without taking the memory or opening data.\n"
    "FLOPs are of forward and backward, of rows filled with texts of [batch] max_len: as Megatron counts them, which "
    "leaves\n"
    "out the vision tower, and exactly, with a full tower. Several numbers of ranks are compared side by side.\n"
    "\n"
    "options:\n"
    "      --ranks N[,N...]            processes that would train together; default 1\n"
    "      --json                      one JSON object instead of text; of several plans it has an array\n" CLI_HELP_SET
        CLI_HELP_OPTIONS;

enum { OPT_RANKS = CLI_OPT_OWN, OPT_JSON, PLANS = 16, MOST_RANKS = 1 << 20 };
static const struct option options[] = {
    {"ranks", required_argument, NULL, OPT_RANKS},
    {"json", no_argument, NULL, OPT_JSON},
    CLI_OPTION_SET,
    CLI_OPTIONS,
    {0},
};

typedef struct planned {
    st_model *model;
    const st_mesh *mesh;
    const st_model_layer *layers;
    st_layer_cost *cost; /* of a row, each layer */
    st_layer_cost all;   /* of a step, all ranks */
    double tower;        /* of all.formula */
    int n;
    st_row_stats row;
    st_plan_bytes bytes;
    st_process_plan process; /* without data */
    const st_trade *trades;  /* of a plan alone */
    int n_trades;
} planned;
typedef struct plans {
    planned of[PLANS];
    int n;
} plans;

/* ---- planning ---- */

/* Texts as long as they may be, the rest of the row as one more. */
static st_row_stats full_row(const st_row_shape *s)
{
    double longest = s->max_len, texts = s->tokens / s->max_len, rest = s->tokens % s->max_len;

    return (st_row_stats){s->tokens, texts * longest * longest + rest * rest};
}

static bool in_tower(const st_model_layer *l) { return !strncmp(l->path, "encoder", 7); }

static double ranks_of(const planned *p)
{
    return (double)p->mesh->data.size * p->mesh->context.size * p->mesh->tensor.size;
}

static double all_rows(const planned *p) { return (double)st_model_micros(p->model) * p->mesh->data.size; }

static int plan(planned *p, const st_spec *spec, st_arena *arena, st_error *e)
{
    double rows;

    p->mesh = st_model_mesh(p->model);
    rows = all_rows(p);
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

static int build(st_cli *cli, st_spec *spec, st_registry *registry, int32_t ranks, bool alone, planned *p)
{
    st_train_config config;
    st_error e = {0};
    int rc = st_train_config_bind(spec, &config, cli->diags), built;

    built = st_model_build_for(cli->base, spec, registry, 1, ranks, &p->model, cli->diags);
    cli_pass_over_data(spec);
    int unused = st_spec_check_unused(spec, cli->diags);
    if (rc == ST_OK) rc = built != ST_OK ? built : unused;
    if (rc == ST_OK) rc = plan(p, spec, cli->arena, &e);
    if (rc == ST_OK && alone && (p->n_trades = st_model_trades(p->model, &p->trades, &e)) < 0) rc = p->n_trades;
    if (e.code) st_diags_add(cli->diags, &e, NULL, false);
    return rc;
}

/* ---- text ---- */

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

/* One line of the table: a figure for each plan. */
static void print_line(const plans *all, const char *words, double (*figure)(const planned *, const void *),
                       const void *arg, FILE *out)
{
    char count[48];

    fprintf(out, "  %-24s", words);
    for (int i = 0; i < all->n; i++) fprintf(out, " %22s", cli_grouped(figure(&all->of[i], arg), count, sizeof count));
    fputc('\n', out);
}

static double memory_figure(const planned *p, const void *m) { return (double)memory_of(p, m); }
static double mib_figure(const planned *p, const void *none) { return ceil((double)p->bytes.total / 0x1p20); }
static double program_figure(const planned *p, const void *none) { return (double)ST_PROGRAM_BYTES; }
static double packed_figure(const planned *p, const void *none) { return (double)p->process.rows; }
static double ranks_figure(const planned *p, const void *none) { return ranks_of(p); }
static double rows_figure(const planned *p, const void *none) { return st_model_micros(p->model); }
static double axis_figure(const planned *p, const void *group)
{
    return st_mesh_size(p->mesh, *(const uint32_t *)group);
}
static double megatron_figure(const planned *p, const void *none) { return p->all.megatron / ranks_of(p); }
static double exact_figure(const planned *p, const void *none) { return p->all.formula / ranks_of(p); }

static void print_ranks(const plans *all, FILE *out)
{
    static const uint32_t axes[] = {ST_G_DATA, ST_G_CONTEXT, ST_G_TENSOR, ST_G_EXPERT};

    fputs("\nranks: data x context x tensor; experts are divided over a cut of all\n", out);
    print_line(all, "ranks", ranks_figure, NULL, out);
    for (size_t i = 0; i < ST_COUNT(axes); i++) print_line(all, st_group_name(axes[i]), axis_figure, &axes[i], out);
    print_line(all, "rows of a rank", rows_figure, NULL, out);
}

static void print_memory(const plans *all, FILE *out)
{
    fputs("\nmemory of a rank in bytes\n", out);
    for (size_t i = 0; i < ST_COUNT(memory); i++) print_line(all, memory[i].words, memory_figure, &memory[i], out);
    print_line(all, "all, in MiB", mib_figure, NULL, out);
    fputs("memory of its process beside that, in bytes\n", out);
    print_line(all, "rows packed", packed_figure, NULL, out);
    print_line(all, "program and libraries", program_figure, NULL, out);
    fputs("  prepared samples: up to [data] cache, in each of train and valid; `strata check` tells\n", out);
}

static bool one_rank(const plans *all) { return all->n == 1 && ranks_of(&all->of[0]) == 1; }

static void print_flops(const plans *all, FILE *out)
{
    const planned *p = &all->of[0];
    double rows = all_rows(p);
    char count[48];

    fprintf(out, "\nFLOPs of a step of %.0f row%s of %.0f tokens\n", rows, rows == 1 ? "" : "s", p->row.tokens);
    fprintf(out, "  %-24s %30s\n", "as Megatron counts", cli_grouped(p->all.megatron, count, sizeof count));
    fprintf(out, "  %-24s %30s\n", "exact", cli_grouped(p->all.formula, count, sizeof count));
    if (p->tower > 0)
        fprintf(out, "  %-24s %30s\n", "  of which the encoder", cli_grouped(p->tower, count, sizeof count));
    if (one_rank(all)) return;
    fputs("FLOPs of a rank\n", out);
    print_line(all, "as Megatron counts", megatron_figure, NULL, out);
    print_line(all, "exact", exact_figure, NULL, out);
}

/* ---- traffic ---- */

static bool same_traffic(const st_traffic *a, const st_traffic *b)
{
    return !strcmp(a->group, b->group) && !strcmp(a->call, b->call);
}

static double traffic_figure(const planned *p, const void *arg) /* arg NULL: all of it */
{
    double bytes = 0;
    st_traffic t;

    for (int i = 0; st_model_traffic(p->model, i, &t); i++)
        if (!arg || same_traffic(&t, arg)) bytes += t.bytes;
    return bytes;
}

static bool told_before(const plans *all, int plan, const st_traffic *one)
{
    st_traffic t;

    for (int i = 0; i < plan; i++)
        for (int k = 0; st_model_traffic(all->of[i].model, k, &t); k++)
            if (same_traffic(&t, one)) return true;
    return false;
}

static void print_traffic(const plans *all, FILE *out)
{
    char words[64];
    st_traffic t;

    if (one_rank(all)) {
        fputs("\ntraffic between ranks      none: one rank\n", out);
        return;
    }
    fputs("\ntraffic: bytes that a rank sends in a step by group and call, as n ranks of a ring do: (n - 1)/n of what "
          "is\n"
          "gathered or scattered, twice that for an all_reduce\n",
          out);
    for (int i = 0; i < all->n; i++)
        for (int k = 0; st_model_traffic(all->of[i].model, k, &t); k++) {
            if (told_before(all, i, &t)) continue;
            snprintf(words, sizeof words, "%s %s", t.group, t.call);
            print_line(all, words, traffic_figure, &t, out);
        }
    print_line(all, "all", traffic_figure, NULL, out);
}

static void print_text(const plans *all, const char *path, FILE *out)
{
    const planned *p = &all->of[0];

    fprintf(out, "%s\n\npattern    %s\nbackend    %s\n", path, st_model_pattern(p->model), st_model_choice(p->model));
    cli_print_stack(p->layers, p->cost, p->n, out);
    cli_print_parts(p->model, out);
    if (!one_rank(all)) print_ranks(all, out);
    print_memory(all, out);
    print_flops(all, out);
    print_traffic(all, out);
    if (p->n_trades) cli_print_trade(p->trades, p->n_trades, out);
}

/* ---- JSON ---- */

static json_t *json_layers(const planned *p)
{
    json_t *list = json_array();

    for (int i = 0; i < p->n; i++) {
        const st_model_layer *l = &p->layers[i];
        char symbol[2] = {l->symbol, 0};
        if (l->kind == ST_KIND_OPTIMIZER) continue;
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:f}", "path", l->path, "symbol", symbol,
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

static json_t *json_traffic(const planned *p)
{
    json_t *groups = json_object(), *group;
    st_traffic t;

    for (int i = 0; st_model_traffic(p->model, i, &t); i++) {
        if (!json_object_get(groups, t.group)) json_object_set_new(groups, t.group, json_object());
        group = json_object_get(groups, t.group);
        json_object_set_new(group, t.call, json_real(t.bytes));
    }
    return groups;
}

static json_t *json_memory(const planned *p)
{
    json_t *bytes = json_object();

    for (size_t i = 0; i < ST_COUNT(memory); i++)
        json_object_set_new(bytes, memory[i].key, json_integer((json_int_t)memory_of(p, &memory[i])));
    return bytes;
}

static json_t *json_flops(const planned *p, double ranks)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "megatron", p->all.megatron / ranks, "exact", p->all.formula / ranks,
                     "exact_encoder", p->tower / ranks, "launched", p->all.counted / ranks);
}

static json_t *json_plan(const planned *p, const char *path)
{
    const st_mesh *m = p->mesh;

    return json_pack(
        "{s:o, s:s, s:s, s:s, s:i, s:{s:i, s:i, s:i, s:i}, s:i, s:i, s:f, s:o, s:o, s:{s:I, s:I}, s:o, s:o, "
        "s:o, s:o}",
        "spec", st_json_text(path), "pattern", st_model_pattern(p->model), "backend", st_model_backend(p->model),
        "precision", cli_dtype(st_model_dtype(p->model)), "ranks", (int)ranks_of(p), "mesh", "data", m->data.size,
        "context", m->context.size, "tensor", m->tensor.size, "expert", m->expert.size, "rows", (int)all_rows(p),
        "rank_rows", st_model_micros(p->model), "row_tokens", p->row.tokens, "parameters", json_parts(p),
        "memory_bytes", json_memory(p), "process_bytes", "rows", (json_int_t)p->process.rows, "program",
        (json_int_t)ST_PROGRAM_BYTES, "step_flops", json_flops(p, 1), "rank_flops", json_flops(p, ranks_of(p)),
        "traffic_bytes", json_traffic(p), "layers", json_layers(p));
}

/* Of one plan the object; of several an array of them. */
static int print_json(const plans *all, const char *path, FILE *out, st_error *e)
{
    json_t *list = json_array(), *top = NULL;

    for (int i = 0; i < all->n; i++) {
        const planned *p = &all->of[i];
        json_t *plan = json_plan(p, path);
        if (p->n_trades) json_object_set_new(plan, "recompute", cli_json_trade(p->trades, p->n_trades));
        if (json_array_append_new(list, plan)) break;
    }
    if (json_array_size(list) == (size_t)all->n)
        top = all->n == 1 ? json_incref(json_array_get(list, 0)) : json_pack("{s:O}", "plans", list);
    json_decref(list);
    if (st_json_print(top, JSON_INDENT(1) | JSON_REAL_PRECISION(17), out) == ST_OK) return ST_OK;
    return st_fail(e, ST_E_NOMEM, "no memory for the plan as JSON");
}

/* ---- the command ---- */

static int run(st_cli *cli, const char *name, const int32_t *ranks, int n, bool json)
{
    plans all = {.n = 0};
    st_spec *spec = NULL;
    st_registry *registry = NULL;
    st_error e = {0};
    int rc = cli_start(cli, 0);

    if (rc == ST_OK) rc = cli_load(cli, name, &spec, &registry);
    while (rc == ST_OK && all.n < n) {
        rc = build(cli, spec, registry, ranks[all.n], n == 1, &all.of[all.n]);
        all.n++;
    }
    if (rc == ST_OK && json) {
        rc = print_json(&all, st_spec_path(spec), cli->out, &e);
        if (rc != ST_OK) st_diags_add(cli->diags, &e, NULL, false);
    } else if (rc == ST_OK) print_text(&all, st_spec_path(spec), cli->out);
    int code = cli_report(cli, rc);
    for (int i = 0; i < all.n; i++) st_model_destroy(all.of[i].model);
    st_registry_close(registry);
    st_spec_destroy(spec);
    return code;
}

/* "1,8,64" behind those given before. */
static bool read_ranks(const char *text, int32_t *ranks, int *n)
{
    char *end;

    do {
        errno = 0;
        long value = strtol(text, &end, 10);
        if (end == text || errno || value < 1 || value > MOST_RANKS || (*end && *end != ',') || *n == PLANS)
            return false;
        ranks[(*n)++] = (int32_t)value;
        text = end + 1;
    } while (*end);
    return true;
}

int cli_plan(st_cli *cli, int argc, char **argv)
{
    int32_t ranks[PLANS] = {1};
    bool json = false;
    int option, code, n = 0;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1)
        if (option == OPT_JSON) json = true;
        else if (option == OPT_RANKS) {
            if (!read_ranks(optarg, ranks, &n))
                return cli_usage_error(cli, argv, "--ranks %s: numbers from 1 to %d, separated by commas, at most %d",
                                       optarg, MOST_RANKS, PLANS);
        } else if ((code = cli_option(cli, option, usage, argv)) >= 0) return code;
    if (argc - optind != 1) return cli_usage_error(cli, argv, "one spec is needed, %d were given", argc - optind);
    return run(cli, argv[optind], ranks, n ? n : 1, json);
}
