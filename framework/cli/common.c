/* SPDX-License-Identifier: Apache-2.0 */
/* cli/common.c - what commands share: options, finding a spec, reports, exit codes. */
#include "config.h"
#include "cli/commands.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- options ---- */

static int add(const char ***list, int32_t *n, const char *text)
{
    const char **grown = realloc(*list, (size_t)(*n + 1) * sizeof *grown);
    if (!grown) return ST_E_NOMEM;
    *list = grown;
    grown[(*n)++] = text;
    return ST_OK;
}

static int add_directories(st_cli *cli, char *text)
{
    char *rest = NULL;

    for (char *dir = strtok_r(text, ":", &rest); dir; dir = strtok_r(NULL, ":", &rest))
        ST_TRY(add(&cli->plugin_path, &cli->n_plugin_path, dir));
    return ST_OK;
}

int cli_option(st_cli *cli, int option, const char *usage, char **argv)
{
    int rc = ST_OK;

    switch (option) {
    case CLI_OPT_PLUGIN_PATH: rc = add_directories(cli, optarg); break;
    case CLI_OPT_SET: rc = add(&cli->sets, &cli->n_sets, optarg); break;
    case 'h': fputs(usage, cli->out); return CLI_OK;
    default: fprintf(cli->err, "Try '%s --help'.\n", argv[0]); return CLI_USAGE;
    }
    if (rc == ST_OK) return -1;
    fprintf(cli->err, "%s: no memory\n", argv[0]);
    return CLI_FAILED;
}

int cli_usage_error(st_cli *cli, char **argv, const char *fmt, ...)
{
    va_list ap;

    fprintf(cli->err, "%s: ", argv[0]);
    va_start(ap, fmt);
    vfprintf(cli->err, fmt, ap);
    va_end(ap);
    fprintf(cli->err, "\nTry '%s --help'.\n", argv[0]);
    return CLI_USAGE;
}

/* ---- work ---- */

int cli_start(st_cli *cli, int threads)
{
    enum { INFO = 3 };
    int rc = st_base_create(&cli->base, cli->err, INFO, threads);

    if (rc != ST_OK) {
        st_error e = {0};
        st_fail(&e, rc, "no memory to start");
        st_diags_add(cli->diags, &e, NULL, false);
    }
    return rc;
}

static void no_spec(st_cli *cli, const char *name, const char *specs, const char *nearest)
{
    st_error e = {0};

    st_fail(&e, ST_E_NOTFOUND, "there is no spec %s", name);
    if (specs) st_error_detail(&e, "neither a file of this name nor one in %s", specs);
    if (nearest) st_error_hint(&e, "did you mean %s?", nearest);
    st_diags_add(cli->diags, &e, NULL, false);
}

/* The spec that a checkpoint folder holds. */
static const char *spec_in(st_cli *cli, const char *folder)
{
    const char *path = st_arena_printf(cli->arena, "%s/spec.ini", folder);
    return path && st_path_exists(path) ? path : NULL;
}

static bool is_file(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

/* A name without a folder that is no file here is one of the specs that come with the program, with or without
 * ".ini". */
const char *cli_spec_path(st_cli *cli, const char *name)
{
    const char *path, *nearest;
    st_places places;
    st_error e = {0};

    const char *inside = spec_in(cli, name);
    if (inside) return inside;
    if (is_file(name)) return name; /* a folder of that name without spec.ini does not hide a spec that came along */
    if (strchr(name, '/')) {
        no_spec(cli, name, NULL, NULL);
        return NULL;
    }
    if (st_places_find(cli->arena, &places, &e) != ST_OK) {
        st_diags_add(cli->diags, &e, NULL, false);
        return NULL;
    }
    if (st_places_spec(&places, name, cli->arena, &path, &nearest)) return path;
    no_spec(cli, name, places.specs, nearest);
    return NULL;
}

int cli_load(st_cli *cli, const char *name, st_spec **spec, st_registry **registry)
{
    const char *path = cli_spec_path(cli, name);

    *spec = NULL;
    *registry = NULL;
    if (!path) return ST_E_NOTFOUND;
    ST_TRY(st_spec_load(path, cli->sets, cli->n_sets, spec, cli->diags));
    return st_registry_open_for(cli->base, cli->plugin_path, cli->n_plugin_path, *spec, registry, cli->diags);
}

void cli_put_quoted(FILE *f, const char *bytes, size_t n)
{
    static const char plain[] = "\n\t\r\"\\", shown[] = "ntr\"\\";

    fputc('"', f);
    for (size_t i = 0, bad; i < n; i++) {
        size_t length = 1; /* of the character here; 0: it is none */
        while (length < 5 && i + length <= n && !st_utf8_valid(bytes + i, length, &bad)) length++;
        if (length == 5 || i + length > n) length = 0;
        const char *at = length == 1 ? memchr(plain, bytes[i], sizeof plain - 1) : NULL;
        if (at) fprintf(f, "\\%c", shown[at - plain]);
        else if (length == 0 || (uint8_t)bytes[i] < 0x20 || bytes[i] == 0x7f) fprintf(f, "\\x%02x", (uint8_t)bytes[i]);
        else fwrite(bytes + i, 1, length, f);
        if (length > 1) i += length - 1;
    }
    fputc('"', f);
}

void cli_pass_over_data(st_spec *spec)
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

int cli_exit_code(int rc)
{
    switch (rc) {
    case ST_OK: return CLI_OK;
    case ST_E_CONFIG:
    case ST_E_ABI:
    case ST_E_NOTFOUND:
    case ST_E_UNSUPPORTED:
    case ST_E_DATA: return CLI_REFUSED;
    default: return CLI_FAILED;
    }
}

int cli_report(st_cli *cli, int rc)
{
    const st_diags *d = cli->diags;

    st_diags_print(d, cli->err);
    if (d->errors > 1) fprintf(cli->err, "%d errors\n", d->errors);
    return cli_exit_code(rc);
}
