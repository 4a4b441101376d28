/* SPDX-License-Identifier: Apache-2.0 */
/* cli/eval.c - `strata eval`: what a run prints at its end, of a checkpoint. */
#include "cli/commands.h"
#include "config.h"
#include "train/train.h"

static const char usage[] =
    "usage: strata eval [OPTION...] CHECKPOINT\n"
    "\n"
    "Loss and tokens right in the samples of [dataset.valid], as they are and with their pictures exchanged, and the texts "
    "that\n"
    "the model makes of some: by the checkpoint, or the newest in the folder of a run, and its own spec with [eval]. "
    "Nothing is\n"
    "written. Other data by --set dataset.valid.path=FOLDER, all samples by --set eval.samples=0.\n"
    "\n"
    "options:\n" CLI_HELP_SET CLI_HELP_OPTIONS;

static const struct option options[] = {CLI_OPTION_SET, CLI_OPTIONS, {0}};

static int eval(st_cli *cli, const char *name)
{
    st_train_options o = {.screen = cli->out, .evaluate = name};
    st_error e = {0};
    char *latest = NULL;
    int rc = cli_start(cli, 0);

    if (rc == ST_OK && (rc = st_checkpoint_latest(name, cli->arena, &latest, &e)) != ST_OK)
        st_diags_add(cli->diags, &e, NULL, false);
    if (latest) o.evaluate = latest;
    if (rc == ST_OK) rc = cli_load(cli, o.evaluate, &o.spec, &o.registry);
    if (rc == ST_OK) rc = st_evaluate_checkpoint(cli->base, &o, cli->diags);
    st_registry_close(o.registry);
    st_spec_destroy(o.spec);
    return cli_report(cli, rc);
}

int cli_eval(st_cli *cli, int argc, char **argv)
{
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        int code = cli_option(cli, option, usage, argv);
        if (code >= 0) return code;
    }
    if (argc - optind != 1) return cli_usage_error(cli, argv, "one checkpoint is needed, %d were given", argc - optind);
    return eval(cli, argv[optind]);
}
