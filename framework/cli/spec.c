/* SPDX-License-Identifier: Apache-2.0 */
/* cli/spec.c - `strata spec from-hf DIR`: the model of a published config.json, and what a run needs besides. */
#include "config.h"
#include "checkpoint/hf_config.h"
#include "cli/commands.h"
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: strata spec from-hf [OPTION...] DIR\n"
    "\n"
    "Writes a spec from DIR/config.json, as HuggingFace writes it for the Qwen3.5-VL family. How large pictures may be "
    "is taken\n"
    "from DIR/preprocessor_config.json; a tokenizer.json and weights in DIR are named. Batch, learning rate and data are "
    "a start:\n"
    "data are synthetic ids until the spec is given others.\n"
    "\n"
    "options:\n"
    "  -o, --output FILE               write there, which must not exist, instead of to the standard "
    "output\n" CLI_HELP_OPTIONS;

static const struct option options[] = {{"output", required_argument, NULL, 'o'}, CLI_OPTIONS, {0}};

/* Quoted, with what would end or change a quoted value escaped. */
static void put_value(st_buf *out, const char *key, const char *text)
{
    st_buf_printf(out, "%s = \"", key);
    for (; *text; text++) {
        static const char plain[] = "\n\t\"\\", shown[] = "nt\"\\";
        const char *at = strchr(plain, *text);
        if (at) st_buf_printf(out, "\\%c", shown[at - plain]);
        else st_buf_add(out, text, 1);
    }
    st_buf_puts(out, "\"\n");
}

static bool holds(st_cli *cli, const char *dir, const char *name)
{ return st_path_exists(st_path_join(cli->arena, dir, name)); }

static void write_rest(st_cli *cli, const char *dir, bool weights, bool pictures, st_buf *out)
{
    st_buf_puts(out, "\n[batch]\ntokens = 4096\nrows = 16\n");
    if (pictures) st_buf_puts(out, "images = 16\npatches = 8192\n");
    if (holds(cli, dir, "tokenizer.json")) {
        st_buf_puts(out, "\n[tokenizer]\n");
        put_value(out, "path", st_path_join(cli->arena, dir, "tokenizer.json"));
    }
    if (weights) {
        st_buf_puts(out, "\n[checkpoint]\n");
        put_value(out, "from_hf", dir);
    }
    st_buf_printf(out,
                  "\n; synthetic token ids; for receipts: plugin = cord_v2, path = FOLDER\n[dataset.train]\n"
                  "plugin = mock\n"
                  "\n[optimizer]\nplugin = adamw\nbeta1 = 0.9\nbeta2 = 0.95\nweight_decay = 0.1\nclip = 1\n"
                  "\n[schedule]\nlr = %s\nkind = cosine\nwarmup = 100\nfinal_ratio = 0.1\n",
                  weights ? "1e-5" : "1.2e-4");
}

static int write_spec(st_cli *cli, const char *given, st_buf *out, st_error *e)
{
    char *dir = realpath(given, NULL); /* the spec may come to lie elsewhere */
    st_buf model = {0};
    int rc;

    if (!dir) return st_fail(e, ST_E_NOTFOUND, "there is no folder %s", given);
    if (!holds(cli, dir, "config.json")) {
        free(dir);
        return st_fail(e, ST_E_NOTFOUND, "%s holds no config.json", given);
    }
    if (!st_is_text(dir, strlen(dir), NULL)) {
        free(dir);
        st_fail(e, ST_E_UNSUPPORTED, "%s: a spec cannot name this folder", given);
        st_error_hint(e, "its name, or that of one above it, is not UTF-8 or has control characters");
        return ST_E_UNSUPPORTED;
    }
    rc = st_hf_config_spec(st_path_join(cli->arena, dir, "config.json"), &model, e);
    if (rc == ST_OK) {
        bool weights = holds(cli, dir, "model.safetensors") || holds(cli, dir, "model.safetensors.index.json");
        st_buf_puts(out, "; Written by `strata spec from-hf` from the config.json of\n; ");
        for (const char *c = dir; *c; c++) st_buf_add(out, (unsigned char)*c < ' ' ? "?" : c, 1);
        st_buf_puts(out, "\n\n[run]\n");
        put_value(out, "name", strrchr(dir, '/')[1] ? strrchr(dir, '/') + 1 : "run");
        st_buf_puts(out, "steps = 500\n\n");
        st_buf_add(out, model.data, model.n);
        write_rest(cli, dir, weights, strstr(model.data, "\n[encoder]\n") != NULL, out);
    }
    if (rc == ST_OK && (model.failed || out->failed)) rc = st_fail(e, ST_E_NOMEM, "no memory for a spec");
    st_buf_free(&model);
    free(dir);
    return rc;
}

static int from_hf(st_cli *cli, const char *dir, const char *output)
{
    st_buf text = {0};
    st_error e = {0};
    int rc = write_spec(cli, dir, &text, &e);

    if (rc == ST_OK && output && st_path_exists(output)) {
        rc = st_fail(&e, ST_E_CONFIG, "%s exists already", output);
        st_error_hint(&e, "give another name, or remove it");
    } else if (rc == ST_OK && output) rc = st_file_write_atomic(output, text.data, text.n, &e);
    else if (rc == ST_OK) fwrite(text.data, 1, text.n, cli->out);
    st_buf_free(&text);
    if (rc != ST_OK) st_diags_add(cli->diags, &e, NULL, false);
    return cli_report(cli, rc);
}

int cli_spec(st_cli *cli, int argc, char **argv)
{
    const char *output = NULL;
    int option, code;

    while ((option = getopt_long(argc, argv, "ho:", options, NULL)) != -1)
        if (option == 'o') output = optarg;
        else if ((code = cli_option(cli, option, usage, argv)) >= 0) return code;
    if (argc - optind != 2) return cli_usage_error(cli, argv, "it takes from-hf and a folder");
    if (strcmp(argv[optind], "from-hf"))
        return cli_usage_error(cli, argv, "a spec is written from-hf, not '%s'", argv[optind]);
    return from_hf(cli, argv[optind + 1], output);
}
