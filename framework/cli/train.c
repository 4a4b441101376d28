/* SPDX-License-Identifier: Apache-2.0 */
/* cli/train.c - `strata train SPEC`. */
#include "config.h"

#include "cli/commands.h"
#include "train/train.h"
#include <signal.h>

static const char usage[] =
    "usage: strata train [OPTION...] SPEC\n"
    "\n"
    "Trains the model that SPEC describes: a file, the name of a spec that came with the program, or a checkpoint "
    "folder.\n"
    "Everything is checked before a folder is made. SIGTERM, SIGINT (Ctrl-C) and SIGHUP save a checkpoint\n"
    "and end the run; a second one ends it at once. Under nohup it goes on when the terminal closes.\n"
    "\n"
    "options:\n"
    "  -o, --output DIR                folder of the run; default [run] output, else runs/NAME\n"
    "  -r, --resume                    go on from the newest checkpoint in that folder\n" CLI_HELP_SET CLI_HELP_OPTIONS;

static const struct option options[] = {
    {"output", required_argument, NULL, 'o'}, {"resume", no_argument, NULL, 'r'}, CLI_OPTION_SET, CLI_OPTIONS, {0},
};

static int train(st_cli *cli, const char *name, st_train_options *o)
{
    int rc;

    signal(SIGPIPE, SIG_IGN); /* who reads the screen may end, the run goes on */
    st_stop_block();          /* before any thread is made */
    rc = cli_start(cli, 0);
    if (rc == ST_OK) rc = cli_load(cli, name, &o->spec, &o->registry);
    if (rc == ST_OK) rc = st_train(cli->base, o, cli->diags);
    st_registry_close(o->registry);
    st_spec_destroy(o->spec);
    return cli_report(cli, rc);
}

int cli_train(st_cli *cli, int argc, char **argv)
{
    st_train_options o = {.screen = cli->out};
    int option;

    while ((option = getopt_long(argc, argv, "o:rh", options, NULL)) != -1) {
        if (option == 'o') o.output = optarg;
        else if (option == 'r') o.resume = 1;
        else {
            int code = cli_option(cli, option, usage, argv);
            if (code >= 0) return code;
        }
    }
    if (argc - optind != 1) return cli_usage_error(cli, argv, "one spec is needed, %d were given", argc - optind);
    return train(cli, argv[optind], &o);
}
