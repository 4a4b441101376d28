/* SPDX-License-Identifier: Apache-2.0 */
/* cli/parity.c - `strata parity DIR...`. */
#include "config.h"
#include "cli/commands.h"
#include "parity/parity.h"

static const char usage[] =
    "usage: strata parity [OPTION...] DIR...\n"
    "\n"
    "Computes the reference values stored in each folder again, in f64 and in f32 (on other backends than the cpu in f32 "
    "and bf16),\n"
    "and prints the errors tensor by tensor: the largest difference, and the difference by norm, |a-b| / |b|. Behind "
    "each\n"
    "gate, n or m says which of the two it holds for.\n"
    "Training curves amplify rounding: ~ marks a value over its gate, but within 16 times what moving the weights by up to 64\n"
    "units of the last place changes. It does not count as a failure.\n"
    "Fails on any tensor over its gate, on a stored value that nothing was compared with, and when nothing was "
    "compared.\n"
    "\n"
    "A folder holds a model (config.json, weights.safetensors, io.safetensors), one part of it (gated delta rule, "
    "patch merger,\n"
    "optimizer: io.safetensors and meta.json), pictures with their patch values, or tokenizer.json with cases.json.\n"
    "\n"
    "options:\n"
    "      --backend NAME              what computes; default cpu\n"
    "      --peer FILE                 JSON {\"NAME\": error by norm, ...} of another bf16 implementation: bf16 is then held "
    "to 1.25\n"
    "                                  times its errors; without it bf16 is only measured\n" CLI_HELP_OPTIONS;

enum { OPT_BACKEND = CLI_OPT_OWN, OPT_PEER };
static const struct option options[] = {
    {"backend", required_argument, NULL, OPT_BACKEND},
    {"peer", required_argument, NULL, OPT_PEER},
    CLI_OPTIONS,
    {0},
};

static int compare(st_cli *cli, const st_parity_options *o, char **dirs, int n)
{
    st_registry *registry = NULL;
    int failed = 0, rc = cli_start(cli, 0);

    if (rc == ST_OK)
        rc = st_registry_open_for(cli->base, cli->plugin_path, cli->n_plugin_path, NULL, &registry, cli->diags);
    for (int i = 0; i < n && rc == ST_OK; i++)
        rc = st_parity_folder(cli->base, registry, o, dirs[i], cli->out, &failed, cli->diags);
    if (registry) st_registry_close(registry);
    int code = cli_report(cli, rc);
    if (rc != ST_OK) return code;
    return failed ? CLI_REFUSED : CLI_OK;
}

int cli_parity(st_cli *cli, int argc, char **argv)
{
    st_parity_options o = {.backend = "cpu"};
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == OPT_BACKEND) o.backend = optarg;
        else if (option == OPT_PEER) o.peer = optarg;
        else {
            int code = cli_option(cli, option, usage, argv);
            if (code >= 0) return code;
        }
    }
    if (optind == argc) return cli_usage_error(cli, argv, "a folder is needed");
    return compare(cli, &o, argv + optind, argc - optind);
}
