/* SPDX-License-Identifier: Apache-2.0 */
/* cli/inspect.c - `strata inspect`: one plugin, as the plugin itself tells, or the sections that the host reads. */
#include "config.h"
#include "cli/inspect.h"
#include "cli/commands.h"
#include <string.h>

static const char usage[] =
    "usage: strata inspect NAME|FILE.so [OPTION...]\n"
    "       strata inspect --symbol G [OPTION...]\n"
    "       strata inspect --spec [OPTION...]\n"
    "\n"
    "Opens a plugin and prints its descriptor, capabilities and parameters: what its section of a spec may hold.\n"
    "With --spec, prints all other keys of a spec: those that strata itself reads.\n"
    "\n"
    "options:\n"
    "      --symbol SYMBOL             the layer that claims this pattern symbol\n"
    "      --spec                      the sections and keys that strata itself reads\n"
    "      --kind KIND                 of plugins with the same name, the one of this kind\n"
    "      --format text|json|md       form of the output; text if not given\n" CLI_HELP_OPTIONS;

enum { OPT_SYMBOL = CLI_OPT_OWN, OPT_SPEC, OPT_KIND, OPT_FORMAT };
enum { TEXT, JSON, MARKDOWN, FORMATS };
typedef struct asked {
    const char *name, *symbol;
    int kind, format;
    bool spec;
} asked;

static bool is_file(const char *name)
{
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 3 && !strcmp(name + n - 3, ".so"));
}

/* The winner of this name; the kind decides between plugins of several kinds. */
static int find_name(const st_registry *r, const asked *a, const st_manifest **out, st_error *e)
{
    const st_manifest *const *list;
    int n = st_registry_list(r, &list);
    const char *names[256], *nearest;
    int known = 0;

    *out = NULL;
    for (int i = 0; i < n; i++) {
        const st_manifest *m = list[i];
        if (!m->wins || (a->kind && a->kind != m->kind)) continue;
        if (known < (int)ST_COUNT(names)) names[known++] = m->name;
        if (strcmp(m->name, a->name)) continue;
        if (*out) {
            st_fail(e, ST_E_CONFIG, "%s is the name of plugins of kind %s and of kind %s", a->name, st_kind_name((*out)->kind),
                    st_kind_name(m->kind));
            st_error_hint(e, "say which by --kind");
            return ST_E_CONFIG;
        }
        *out = m;
    }
    if (*out) return ST_OK;
    nearest = st_nearest(a->name, names, known);
    st_fail(e, ST_E_NOTFOUND, "there is no %s %s", a->kind ? st_kind_name(a->kind) : "plugin", a->name);
    if (nearest) st_error_hint(e, "did you mean %s?", nearest);
    else st_error_hint(e, "`strata plugins` lists all");
    return ST_E_NOTFOUND;
}

static int open_plugin(st_registry *r, const asked *a, st_inspected *out, st_error *e)
{
    if (a->name && is_file(a->name)) {
        out->module = a->name;
        return st_module_open_file(r, a->name, &out->plugin, e);
    }
    if (a->symbol) {
        out->manifest = st_registry_symbol(r, a->symbol[0], e);
        if (!out->manifest) return e->code;
    } else {
        ST_TRY(find_name(r, a, &out->manifest, e));
    }
    out->module = out->manifest->module;
    return st_module_open(r, out->manifest, &out->plugin, e);
}

static int print(st_cli *cli, const asked *a, const st_inspected *i)
{
    switch (a->format) {
    case JSON: return inspect_json(i, cli->out);
    case MARKDOWN: inspect_markdown(i, cli->out); return ST_OK;
    default: inspect_text(i, cli->out); return ST_OK;
    }
}

static int inspect(st_cli *cli, const asked *a)
{
    st_registry *r = NULL;
    st_inspected i = {0};
    st_error e = {0};
    int rc = st_registry_open_for(NULL, cli->plugin_path, cli->n_plugin_path, NULL, &r, cli->diags);

    if (rc == ST_OK) {
        rc = open_plugin(r, a, &i, &e);
        if (rc == ST_OK && (rc = print(cli, a, &i)) != ST_OK) st_fail(&e, rc, "no memory to print %s", i.plugin->name);
        if (rc != ST_OK) st_diags_add(cli->diags, &e, NULL, false);
    }
    int code = cli_report(cli, rc);
    st_registry_close(r);
    return code;
}

static int inspect_spec(st_cli *cli, const asked *a)
{
    switch (a->format) {
    case JSON: return cli_exit_code(inspect_spec_json(cli->out));
    case MARKDOWN: inspect_spec_markdown(cli->out); return CLI_OK;
    default: inspect_spec_text(cli->out); return CLI_OK;
    }
}

static int read_options(st_cli *cli, int argc, char **argv, asked *a)
{
    static const char *const formats[FORMATS] = {"text", "json", "md"};
    static const struct option options[] = {CLI_OPTIONS,
                                            {"symbol", required_argument, NULL, OPT_SYMBOL},
                                            {"spec", no_argument, NULL, OPT_SPEC},
                                            {"kind", required_argument, NULL, OPT_KIND},
                                            {"format", required_argument, NULL, OPT_FORMAT},
                                            {NULL, 0, NULL, 0}};
    int option, code;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == OPT_SYMBOL) {
            if (!optarg[0] || optarg[1]) return cli_usage_error(cli, argv, "'%s' is not one character", optarg);
            a->symbol = optarg;
        } else if (option == OPT_SPEC) {
            a->spec = true;
        } else if (option == OPT_KIND) {
            if (!(a->kind = st_kind_of(optarg)))
                return cli_usage_error(cli, argv, "there is no kind '%s' of plugin", optarg);
        } else if (option == OPT_FORMAT) {
            for (a->format = 0; a->format < FORMATS && strcmp(formats[a->format], optarg); a->format++) {}
            if (a->format == FORMATS)
                return cli_usage_error(cli, argv, "the format '%s' is not text, json or md", optarg);
        } else if ((code = cli_option(cli, option, usage, argv)) >= 0) {
            return code;
        }
    }
    if (optind < argc) a->name = argv[optind++];
    if (optind < argc) return cli_usage_error(cli, argv, "one plugin at a time, '%s' is too much", argv[optind]);
    if ((a->name != NULL) + (a->symbol != NULL) + a->spec != 1)
        return cli_usage_error(cli, argv, "it takes a plugin's name or file, or --symbol, or --spec");
    return -1;
}

int cli_inspect(st_cli *cli, int argc, char **argv)
{
    asked a = {0};
    int code = read_options(cli, argc, argv, &a);
    if (code >= 0) return code;
    return a.spec ? inspect_spec(cli, &a) : inspect(cli, &a);
}
