/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plugins.c - `strata plugins`: what was searched, what was found there, which plugin wins and why. Opens no
 * module. */
#include "config.h"
#include "cli/commands.h"
#include <string.h>

static const char usage[] =
    "usage: strata plugins [OPTION...]\n"
    "\n"
    "Lists the directories searched for plugins, in order, and all plugins found. Of two with one kind and name the\n"
    "first wins; the other is shown as shadowed.\n"
    "\n"
    "options:\n" CLI_HELP_OPTIONS;

static void print_searched(const st_registry *r, FILE *out)
{
    const st_searched *s;
    int n = st_registry_searched(r, &s);

    fputs("searched, the first wins:\n", out);
    for (int i = 0; i < n; i++) {
        fprintf(out, "  %-24s %s: ", s[i].source, s[i].dir);
        if (s[i].why_not) fprintf(out, "not searched, %s\n", s[i].why_not);
        else if (s[i].set_aside)
            fprintf(out, "%d plugins, %d set aside for mistakes\n", s[i].manifests, s[i].set_aside);
        else fprintf(out, "%d plugins\n", s[i].manifests);
    }
}

static void print_plugin(const st_manifest *m, FILE *out)
{
    char symbol[2] = {m->symbol ? m->symbol : ' ', 0};

    fprintf(out, "  %-9s %-18s %s  %-8s %s\n", st_kind_name(m->kind), m->name, symbol, m->version, m->summary);
    fprintf(out, "            %s", strchr(m->module, '/') ? m->module : "");
    if (!strchr(m->module, '/')) fprintf(out, "module %s is nowhere", m->module);
    if (!m->wins) fprintf(out, "; shadowed: %s comes first", m->shadowed_by->file);
    fputc('\n', out);
}

/* Symbols with two claims are an error only for specs that use them without saying which. */
static void print_claims(const st_registry *r, FILE *out)
{
    const st_manifest *const *list;
    int n = st_registry_list(r, &list);

    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (list[i]->wins && list[j]->wins && list[i]->symbol && list[i]->symbol == list[j]->symbol)
                fprintf(out, "symbol %c is claimed by %s and %s: a spec must bind it by [%s.%c] plugin = NAME\n",
                        list[i]->symbol, list[j]->name, list[i]->name,
                        list[i]->kind == ST_KIND_HEAD ? "head" : "layer",
                        list[i]->kind == ST_KIND_HEAD ? 'X' : list[i]->symbol);
}

static void print(const st_registry *r, FILE *out)
{
    const st_manifest *const *list;
    int n = st_registry_list(r, &list);

    print_searched(r, out);
    fputs("\nplugins:\n", out);
    for (int kind = ST_KIND_BACKEND; kind <= ST_KIND_OPTIMIZER; kind++)
        for (int i = 0; i < n; i++)
            if (list[i]->kind == kind) print_plugin(list[i], out);
    if (!n) fputs("  none\n", out);
    print_claims(r, out);
}

int cli_plugins(st_cli *cli, int argc, char **argv)
{
    static const struct option options[] = {CLI_OPTIONS, {NULL, 0, NULL, 0}};
    st_registry *r = NULL;
    int option, code;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1)
        if ((code = cli_option(cli, option, usage, argv)) >= 0) return code;
    if (optind < argc) return cli_usage_error(cli, argv, "it takes no argument, but got '%s'", argv[optind]);
    int rc = st_registry_open_for(NULL, cli->plugin_path, cli->n_plugin_path, NULL, &r, cli->diags);
    if (rc == ST_OK) print(r, cli->out);
    st_registry_close(r);
    return cli_report(cli, rc);
}
