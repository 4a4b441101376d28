/* SPDX-License-Identifier: Apache-2.0 */
/* cli/bench.c - `strata bench SPEC`. */
#include "config.h"
#include "cli/commands.h"
#include "train/bench.h"

static const char usage[] =
    "usage: strata bench [OPTION...] SPEC\n"
    "\n"
    "Times training steps of SPEC on its own data and sets them against the floor: the matrix-product FLOPs of a step "
    "over the\n"
    "rate of one large matrix product, both measured in this run. Every launch has a floor of its own: its bytes over "
    "the\n"
    "rate of a copy, or its FLOPs over that of the product, whichever is longer. Nothing is saved.\n"
    "\n"
    "options:\n"
    "      --steps N                   timed steps; default 20\n"
    "      --warmup N                  steps before them; default 5\n"
    "      --kernel NAME               only this launch, by layer and by the work of a call\n"
    "      --peak FLOPS                what the device is sold with (989e12), for shares of it\n"
    "      --json                      one JSON object instead of text\n" CLI_HELP_SET CLI_HELP_OPTIONS;

enum { OPT_STEPS = CLI_OPT_OWN, OPT_WARMUP, OPT_KERNEL, OPT_PEAK, OPT_JSON };
static const struct option options[] = {
    {"steps", required_argument, NULL, OPT_STEPS},
    {"warmup", required_argument, NULL, OPT_WARMUP},
    {"kernel", required_argument, NULL, OPT_KERNEL},
    {"peak", required_argument, NULL, OPT_PEAK},
    {"json", no_argument, NULL, OPT_JSON},
    CLI_OPTION_SET,
    CLI_OPTIONS,
    {0},
};

static int bench(st_cli *cli, const char *name, st_bench_options *o)
{
    int rc = cli_start(cli, 0);

    if (rc == ST_OK) rc = cli_load(cli, name, &o->spec, &o->registry);
    if (rc == ST_OK) rc = st_bench(cli->base, o, cli->diags);
    st_registry_close(o->registry);
    st_spec_destroy(o->spec);
    return cli_report(cli, rc);
}

int cli_bench(st_cli *cli, int argc, char **argv)
{
    st_bench_options o = {.warmup = 5, .steps = 20, .out = cli->out};
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        const char *why = NULL;
        if (option == OPT_STEPS || option == OPT_WARMUP) {
            int64_t *n = option == OPT_STEPS ? &o.steps : &o.warmup;
            if (!st_parse_int(optarg, n, &why) || *n < (option == OPT_STEPS) || *n > 1000000)
                return cli_usage_error(cli, argv, "%s is no usable number of steps", optarg);
        } else if (option == OPT_KERNEL) {
            o.kernel = optarg;
        } else if (option == OPT_PEAK) {
            if (!st_parse_float(optarg, &o.peak, &why) || o.peak <= 0)
                return cli_usage_error(cli, argv, "--peak %s is no number of FLOP/s above 0", optarg);
        } else if (option == OPT_JSON) {
            o.json = 1;
        } else {
            int code = cli_option(cli, option, usage, argv);
            if (code >= 0) return code;
        }
    }
    if (argc - optind != 1) return cli_usage_error(cli, argv, "one spec is needed, %d were given", argc - optind);
    return bench(cli, argv[optind], &o);
}
