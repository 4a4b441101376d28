/* SPDX-License-Identifier: Apache-2.0 */
/* cli/tokenize.c - `strata tokenize`: ids, what each stands for, and the bytes of the input it covers. */
#include "cli/commands.h"
#include "config.h"
#include "data/tokenizer.h"
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: strata tokenize [OPTION...] SPEC|FILE.json TEXT|-\n"
    "\n"
    "Prints the token ids of TEXT, or of the standard input for -, by the tokenizer of a spec or by a tokenizer.json: "
    "id, "
    "bytes of\n"
    "the input that it covers (first, behind the last), and what it stands for.\n"
    "\n"
    "options:\n"
    "      --data                      as text of data: special tokens are not recognised in it\n"
    "      --ids                       only the ids, on one line\n" CLI_HELP_SET CLI_HELP_OPTIONS;

enum { OPT_DATA = CLI_OPT_OWN, OPT_IDS };
static const struct option options[] = {
    {"data", no_argument, NULL, OPT_DATA}, {"ids", no_argument, NULL, OPT_IDS}, CLI_OPTION_SET, CLI_OPTIONS, {0},
};

/* ---- which tokenizer ---- */

static bool is_json(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".json") == 0;
}

static const char *path_in_spec(st_cli *cli, const char *name, int *rc)
{
    const char *path = cli_spec_path(cli, name);
    st_spec *spec = NULL;
    char *found = NULL;

    *rc = path ? st_spec_load(path, cli->sets, cli->n_sets, &spec, cli->diags) : ST_E_NOTFOUND;
    if (*rc != ST_OK) return NULL;
    const st_value *v = st_spec_get(spec, "tokenizer", "path");
    if (v && v->text[0]) found = st_spec_file_of(spec, v, cli->arena);
    else
        *rc = st_spec_fail(spec, cli->diags, v, "name the tokenizer.json itself, or add [tokenizer] with path = FILE",
                           "the spec has no [tokenizer] path");
    st_spec_destroy(spec);
    return found;
}

/* ---- the text ---- */

static int read_input(st_buf *text, st_error *e)
{
    char piece[65536];
    size_t n;

    while ((n = fread(piece, 1, sizeof piece, stdin)) > 0) st_buf_add(text, piece, n);
    if (ferror(stdin)) return st_fail_errno(e, "standard input", "read");
    return text->failed ? st_fail(e, ST_E_NOMEM, "no memory for the text") : ST_OK;
}

/* ---- the command ---- */

static void print(FILE *out, const st_tokenizer *t, const st_tokens *k, bool only_ids)
{
    for (int32_t i = 0; i < k->n; i++) {
        size_t n = 0;
        const char *piece = st_tokenizer_piece(t, k->ids[i], &n);
        if (only_ids) {
            fprintf(out, "%s%d", i ? " " : "", k->ids[i]);
            continue;
        }
        fprintf(out, "%8d %8u %8u  ", k->ids[i], k->begin[i], k->end[i]);
        cli_put_quoted(out, piece ? piece : "", n);
        fputc('\n', out);
    }
    if (only_ids) fputc('\n', out);
}

static int tokenize(st_cli *cli, const char *name, const char *given, int special, bool only_ids)
{
    st_tokenizer *t = NULL;
    st_buf text = {0};
    st_tokens k;
    st_error e = {0};
    int rc = ST_OK;
    const char *path = is_json(name) ? name : path_in_spec(cli, name, &rc);

    if (rc != ST_OK) return cli_report(cli, rc);
    rc = path ? st_tokenizer_open(path, &t, &e) : st_fail(&e, ST_E_NOMEM, "no memory for a path");
    if (rc == ST_OK && strcmp(given, "-") == 0) rc = read_input(&text, &e);
    else if (rc == ST_OK) st_buf_puts(&text, given);
    if (rc == ST_OK && (rc = st_tokenizer_encode(t, text.data, text.n, special, cli->arena, &k, &e)) != ST_OK)
        st_error_context(&e, "%s", strcmp(given, "-") == 0 ? "standard input" : "the text given");
    if (rc == ST_OK) print(cli->out, t, &k, only_ids);
    else st_diags_add(cli->diags, &e, NULL, false);
    st_tokenizer_close(t);
    st_buf_free(&text);
    return cli_report(cli, rc);
}

int cli_tokenize(st_cli *cli, int argc, char **argv)
{
    int option, special = 1, code;
    bool only_ids = false;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1)
        if (option == OPT_DATA) special = 0;
        else if (option == OPT_IDS) only_ids = true;
        else if ((code = cli_option(cli, option, usage, argv)) >= 0) return code;
    if (argc - optind != 2)
        return cli_usage_error(cli, argv, "a spec or tokenizer.json and a text are needed, %d words were given",
                               argc - optind);
    return tokenize(cli, argv[optind], argv[optind + 1], special, only_ids);
}
