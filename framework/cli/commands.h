/* SPDX-License-Identifier: Apache-2.0 */
/* cli/commands.h - the commands of the program: one file and one line of ST_COMMANDS each - and what they share. Only
 * this room prints and decides exit codes. */
#ifndef ST_COMMANDS_H
#define ST_COMMANDS_H
#include "plugin/registry.h"
#include <getopt.h>

/* name, function, one line for the listing; in the order of the listing */
#define ST_COMMANDS(X) \
    X("train", cli_train, "train a model from a spec") \
    X("check", cli_check, "find all mistakes of a spec, or tell what it would train") \
    X("plan", cli_plan, "parameters, memory and FLOPs of a spec, layer by layer") \
    X("bench", cli_bench, "time training steps against this machine's floor") \
    X("parity", cli_parity, "compare with stored reference values, tensor by tensor") \
    X("selftest", cli_selftest, "check every layer of a spec against differences") \
    X("data", cli_data, "show a sample as it is trained") \
    X("tokenize", cli_tokenize, "text to token ids") \
    X("spec", cli_spec, "write a spec from a published model's config.json") \
    X("eval", cli_eval, "evaluate a checkpoint on held-out samples") \
    X("export", cli_export, "write a checkpoint as transformers reads it") \
    X("inspect", cli_inspect, "print a plugin's parameters and capabilities") \
    X("plugins", cli_plugins, "list all plugins, where they were searched and which wins") \
    X("new", cli_new, "start a layer plugin in a folder of its own")

enum { CLI_OK = 0, CLI_REFUSED = 1 /* a spec, plugin or data */, CLI_USAGE = 2, CLI_FAILED = 3 /* while running */ };

typedef struct st_cli {
    FILE *out, *err;
    st_base *base;               /* NULL before cli_start                          */
    st_diags *diags;
    st_arena *arena;
    const char **plugin_path; int32_t n_plugin_path; /* --plugin-path              */
    const char **sets; int32_t n_sets;               /* --set                      */
} st_cli;
typedef int (*cli_fn)(st_cli *, int argc, char **argv); /* argv[0]: "strata COMMAND"; -> exit code */
#define CLI_DECLARE(name, fn, summary) int fn(st_cli *, int argc, char **argv);
ST_COMMANDS(CLI_DECLARE)

/* ---- options: put CLI_OPTIONS into a command's table and give what getopt_long returns to cli_option ---- */
enum { CLI_OPT_PLUGIN_PATH = 1000, CLI_OPT_SET, CLI_OPT_OWN /* commands count from here */ };
#define CLI_OPTIONS {"plugin-path", required_argument, NULL, CLI_OPT_PLUGIN_PATH}, {"help", no_argument, NULL, 'h'}
#define CLI_OPTION_SET {"set", required_argument, NULL, CLI_OPT_SET}
#define CLI_HELP_OPTIONS \
    "      --plugin-path DIR[:DIR...]  search these directories for plugins first\n" \
    "  -h, --help                      print this text\n"
#define CLI_HELP_SET "      --set SECTION.KEY=VALUE     change a value of the spec; may be repeated, the last wins\n"
/* -1: taken, go on. Else the command ends with this exit code: after -h, or for an option that is not known. */
int cli_option(st_cli *, int option, const char *usage, char **argv);
int cli_usage_error(st_cli *, char **argv, const char *fmt, ...) ST_PRINTF(3, 4); /* -> CLI_USAGE */

/* ---- work ---- */
int cli_start(st_cli *, int threads);  /* makes cli->base; threads 0: one per core. -> ST code */
/* The path of a spec: a file, a checkpoint folder, or the name of one that came with the program. NULL: told in
 * cli->diags. */
const char *cli_spec_path(st_cli *, const char *name);
/* Spec and registry, plugins of both --plugin-path and the spec searched. Mistakes go to cli->diags. */
int cli_load(st_cli *, const char *name, st_spec **, st_registry **);
/* Sections about data count as read: `strata check` looks at them, and the data may be on another machine. */
void cli_pass_over_data(st_spec *);
/* In quotes on one line; control bytes and what is not UTF-8 as \xNN. */
void cli_put_quoted(FILE *, const char *bytes, size_t n);
/* Prints what cli->diags holds; -> exit code for rc. */
int cli_report(st_cli *, int rc);
int cli_exit_code(int rc);
#endif
