/* SPDX-License-Identifier: Apache-2.0 */
/* cli/new.c - `strata new layer NAME`: a folder with a layer that compiles, passes its checks and trains. Its files are
 * installed templates in which @NAME@, @SYMBOL@ and @ABI@ are replaced. */
#include "config.h"
#include "cli/commands.h"
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
    "usage: strata new layer NAME [OPTION...]\n"
    "\n"
    "Makes a folder NAME with a layer plugin to start from: its source, manifest and Makefile, a spec to try it in, "
    "and a\n"
    "README. It compiles, passes `strata selftest` and trains as it is.\n"
    "\n"
    "options:\n"
    "      --symbol SYMBOL             its symbol in patterns; a free letter if not given\n" CLI_HELP_OPTIONS;

enum { OPT_SYMBOL = CLI_OPT_OWN };
static const struct option options[] = {CLI_OPTIONS, {"symbol", required_argument, NULL, OPT_SYMBOL}, {0}};

/* A file of the template folder, and what it is called in the new one; '*' stands for the plugin's name. */
static const struct {
    const char *template, *name;
} files[] = {{"layer.c", "*.c"},
             {"layer.ini", "*.ini"},
             {"layer.mk", "Makefile"},
             {"spec.ini", "spec.ini"},
             {"README.md", "README.md"}};

typedef struct plan {
    const char *name;
    char symbol[2];
    const char *path[ST_COUNT(files)];
    st_buf text[ST_COUNT(files)];
} plan;

/* ---- what is free ---- */

static const st_manifest *holder(const st_registry *r, char symbol)
{
    const st_manifest *const *list;
    int n = st_registry_list(r, &list);

    for (int i = 0; i < n; i++)
        if (list[i]->wins && list[i]->symbol == symbol) return list[i];
    return NULL;
}

static void free_letters(const st_registry *r, char out[27])
{
    int n = 0;

    for (char c = 'A'; c <= 'Z'; c++)
        if (!holder(r, c)) out[n++] = c;
    out[n] = 0;
}

/* The first free capital of the name's own letters, else of all. */
static void choose_symbol(const st_registry *r, plan *p)
{
    char letters[27];

    free_letters(r, letters);
    p->symbol[0] = letters[0];
    for (const char *c = p->name; *c; c++) {
        char capital = (char)toupper((unsigned char)*c);
        if (!strchr(letters, capital)) continue;
        p->symbol[0] = capital;
        return;
    }
}

static int check_symbol(const st_registry *r, const char *symbol, st_error *e)
{
    const char *why = st_symbol_refused(symbol);
    const st_manifest *m = why ? NULL : holder(r, symbol[0]);
    char letters[27];

    if (why) {
        st_fail(e, ST_E_CONFIG, "'%s' cannot be a pattern symbol", symbol);
        st_error_hint(e, "%s", why);
        return ST_E_CONFIG;
    }
    if (!m) return ST_OK;
    free_letters(r, letters);
    st_fail(e, ST_E_CONFIG, "the symbol %s is taken by the layer %s", symbol, m->name);
    st_error_detail(e, "its manifest is %s", m->file);
    st_error_hint(e, "free letters: %s", letters);
    return ST_E_CONFIG;
}

static int check_name(const st_registry *r, const char *name, st_error *e)
{
    const char *why = st_plugin_name_refused(name);
    const st_manifest *m = why ? NULL : st_registry_find(r, ST_KIND_LAYER, name);

    if (why) {
        st_fail(e, ST_E_CONFIG, "'%s' cannot be a plugin's name", name);
        st_error_hint(e, "%s", why);
        return ST_E_CONFIG;
    }
    if (!m) return ST_OK;
    st_fail(e, ST_E_CONFIG, "there is a layer %s already", name);
    st_error_detail(e, "its manifest is %s", m->file);
    return ST_E_CONFIG;
}

static int choose(const st_registry *r, const char *symbol, plan *p, st_error *e)
{
    ST_TRY(check_name(r, p->name, e));
    if (symbol) {
        ST_TRY(check_symbol(r, symbol, e));
        p->symbol[0] = symbol[0];
    } else {
        choose_symbol(r, p);
    }
    return p->symbol[0] ? ST_OK : st_fail(e, ST_E_CONFIG, "no letter is free; choose another symbol by --symbol");
}

/* ---- files ---- */

static void replace(const plan *p, const char *text, st_buf *out)
{
    char abi[16];
    const struct {
        const char *mark, *value;
    } marks[] = {{"@NAME@", p->name}, {"@SYMBOL@", p->symbol}, {"@ABI@", abi}};

    snprintf(abi, sizeof abi, "%u", ST_ABI_MAJOR);
    while (*text) {
        size_t n = strcspn(text, "@"), m = 0;
        st_buf_add(out, text, n);
        text += n;
        while (m < ST_COUNT(marks) && strncmp(text, marks[m].mark, strlen(marks[m].mark)) != 0) m++;
        if (m < ST_COUNT(marks)) {
            st_buf_puts(out, marks[m].value);
            text += strlen(marks[m].mark);
        } else if (*text) {
            st_buf_add(out, text++, 1);
        }
    }
}

/* All files in memory, so that a template that is missing leaves nothing behind. */
static int fill(st_cli *cli, plan *p, st_error *e)
{
    st_places places;

    ST_TRY(st_places_find(cli->arena, &places, e));
    for (size_t i = 0; i < ST_COUNT(files); i++) {
        const char *from = st_arena_printf(cli->arena, "%s/layer/%s", places.templates, files[i].template);
        const char *own = files[i].name[0] == '*' ? p->name : "", *rest = files[i].name + (*own != 0);
        char *text;
        size_t n;
        p->path[i] = st_arena_printf(cli->arena, "%s/%s%s", p->name, own, rest);
        if (!from || !p->path[i]) return st_fail(e, ST_E_NOMEM, "no memory for a path");
        ST_TRY(st_file_read(from, cli->arena, &text, &n, e));
        replace(p, text, &p->text[i]);
        if (p->text[i].failed) return st_fail(e, ST_E_NOMEM, "no memory for %s", p->path[i]);
    }
    return ST_OK;
}

static int write_files(const plan *p, st_error *e)
{
    int rc = ST_OK;

    if (mkdir(p->name, 0777) != 0) {
        if (errno == EEXIST) return st_fail(e, ST_E_CONFIG, "%s exists already", p->name);
        return st_fail_errno(e, p->name, "make this folder");
    }
    for (size_t i = 0; i < ST_COUNT(files) && rc == ST_OK; i++)
        rc = st_file_write_atomic(p->path[i], p->text[i].data, p->text[i].n, e);
    if (rc == ST_OK) return ST_OK;
    for (size_t i = 0; i < ST_COUNT(files); i++) unlink(p->path[i]);
    rmdir(p->name);
    return rc;
}

/* ---- the command ---- */

static int make(st_cli *cli, const char *name, const char *symbol)
{
    plan p = {.name = name};
    st_registry *r = NULL;
    st_error e = {0};
    int rc = st_registry_open_for(NULL, cli->plugin_path, cli->n_plugin_path, NULL, &r, cli->diags);

    if (rc == ST_OK) {
        rc = choose(r, symbol, &p, &e);
        if (rc == ST_OK) rc = fill(cli, &p, &e);
        if (rc == ST_OK) rc = write_files(&p, &e);
        if (rc != ST_OK) st_diags_add(cli->diags, &e, NULL, false);
    }
    for (size_t i = 0; i < ST_COUNT(files); i++) {
        if (rc == ST_OK) fprintf(cli->out, "%s\n", p.path[i]);
        st_buf_free(&p.text[i]);
    }
    if (rc == ST_OK) fprintf(cli->out, "symbol %s. Next: cd %s && make check\n", p.symbol, name);
    st_registry_close(r);
    return cli_report(cli, rc);
}

int cli_new(st_cli *cli, int argc, char **argv)
{
    const char *symbol = NULL;
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == OPT_SYMBOL) symbol = optarg;
        else {
            int code = cli_option(cli, option, usage, argv);
            if (code >= 0) return code;
        }
    }
    if (argc - optind != 2) return cli_usage_error(cli, argv, "a kind and a name are needed: strata new layer NAME");
    if (strcmp(argv[optind], "layer") != 0)
        return cli_usage_error(cli, argv, "there is a template for a layer, none for '%s'", argv[optind]);
    return make(cli, argv[optind + 1], symbol);
}
