/* SPDX-License-Identifier: Apache-2.0 */
/* cli/selftest.c - `strata selftest SPEC`. */
#include "config.h"
#include "cli/commands.h"
#include "parity/selftest.h"
#include "train/train.h"

static const char usage[] =
    "usage: strata selftest [OPTION...] SPEC\n"
    "\n"
    "Checks every layer of SPEC's pattern in f64, without data: the gradients of its input and of each weight against "
    "central\n"
    "differences, and that packed segments do not see each other. Meant for whoever writes a layer plugin.\n"
    "\n"
    "options:\n" CLI_HELP_SET CLI_HELP_OPTIONS;

static const struct option options[] = {CLI_OPTION_SET, CLI_OPTIONS, {0}};

/* A layer is tested without data or a loop, whose sections need not even be there; what they hold counts as read. */
static int pass_over_training(st_cli *cli, st_spec *spec)
{
    st_diags *untold = ST_NEW(cli->arena, st_diags);
    st_train_config config;

    if (!untold) return ST_E_NOMEM;
    (void)st_train_config_bind(spec, &config, untold);
    cli_pass_over_data(spec);
    return ST_OK;
}

static int selftest(st_cli *cli, const char *name)
{
    st_spec *spec = NULL;
    st_registry *registry = NULL;
    int failed = 0, code, rc = cli_start(cli, 0);

    if (rc == ST_OK) rc = cli_load(cli, name, &spec, &registry);
    if (rc == ST_OK) st_spec_put(spec, "run", "precision", "f64", ST_FROM_SET, NULL);
    if (rc == ST_OK) rc = pass_over_training(cli, spec);
    if (rc == ST_OK) rc = st_selftest(cli->base, spec, registry, cli->out, &failed, cli->diags);
    st_registry_close(registry);
    st_spec_destroy(spec);
    code = cli_report(cli, rc);
    if (rc != ST_OK) return code;
    fprintf(cli->out, failed ? "%d checks FAILED\n" : "all checks passed\n", failed);
    return failed ? CLI_REFUSED : CLI_OK;
}

int cli_selftest(st_cli *cli, int argc, char **argv)
{
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        int code = cli_option(cli, option, usage, argv);
        if (code >= 0) return code;
    }
    if (argc - optind != 1) return cli_usage_error(cli, argv, "one spec is needed, %d were given", argc - optind);
    return selftest(cli, argv[optind]);
}
