/* SPDX-License-Identifier: Apache-2.0 */
/* cli/export.c - `strata export`: a checkpoint as HuggingFace's libraries read a model. */
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "config.h"
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] =
    "usage: strata export [OPTION...] CHECKPOINT DIR\n"
    "\n"
    "Writes the weights of CHECKPOINT, or of the newest in the folder of a run, into the new folder DIR as transformers "
    "reads them:\n"
    "model.safetensors in HuggingFace's names and shapes, config.json and preprocessor_config.json, if the model is one "
    "of that\n"
    "family, and tokenizer.json. `strata spec from-hf DIR` makes a spec of them again. Computes on no GPU.\n"
    "\n"
    "options:\n"
    "      --dtype bf16|f32            type of the weights; default bf16, rounded to the nearest\n" CLI_HELP_OPTIONS;

enum { OPT_DTYPE = CLI_OPT_OWN };
static const struct option options[] = {{"dtype", required_argument, NULL, OPT_DTYPE}, CLI_OPTIONS, {0}};

typedef struct job {
    st_cli *cli;
    const char *checkpoint, *to, *part, *why; /* part: beside it until it is whole; why: there is no config.json */
    int32_t dtype;
    st_spec *spec;
    st_registry *registry;
    st_model *model;
} job;

/* Without slashes at its end, or what is beside it would be in it. */
static int name_target(job *j, st_error *e)
{
    size_t n = strlen(j->to);
    const char *given = j->to, *last;

    while (n > 1 && given[n - 1] == '/') n--;
    j->to = st_arena_strndup(j->cli->arena, given, n);
    j->part = j->to ? st_arena_printf(j->cli->arena, "%s.part", j->to) : NULL;
    if (!j->part) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    last = strrchr(j->to, '/') ? strrchr(j->to, '/') + 1 : j->to;
    if (*last && strcmp(last, ".") && strcmp(last, "..")) return ST_OK;
    st_fail(e, ST_E_CONFIG, "'%s' is not the name of a folder to write", given);
    st_error_hint(e, "give the name of a new folder");
    return ST_E_CONFIG;
}

/* It may be another's: only what was made here is removed. */
static int check_part(const job *j, st_error *e)
{
    if (!st_path_exists(j->part)) return ST_OK;
    st_fail(e, ST_E_CONFIG, "%s is there, where %s would be written until it is whole", j->part, j->to);
    st_error_hint(e, "an export that was broken off leaves it: remove it, or give another name");
    return ST_E_CONFIG;
}

/* A folder that is there may be given when it is empty. */
static int check_target(const job *j, st_error *e)
{
    DIR *d = opendir(j->to);
    int entries = 0;

    if (!d && errno == ENOENT) return ST_OK;
    if (!d) return st_fail_errno(e, j->to, "write into the folder");
    for (struct dirent *x; (x = readdir(d));) entries += strcmp(x->d_name, ".") && strcmp(x->d_name, "..");
    closedir(d);
    if (!entries) return ST_OK;
    st_fail(e, ST_E_CONFIG, "%s is not empty", j->to);
    st_error_hint(e, "give the name of a new folder");
    return ST_E_CONFIG;
}

/* Of a run's folder the newest checkpoint. */
static int find(job *j, st_error *e)
{
    st_checkpoint_state state;
    char *latest;

    ST_TRY(name_target(j, e));
    ST_TRY(check_target(j, e));
    ST_TRY(check_part(j, e));
    ST_TRY(st_checkpoint_latest(j->checkpoint, j->cli->arena, &latest, e));
    if (latest) j->checkpoint = latest;
    if (st_checkpoint_read_state(j->checkpoint, j->cli->arena, &state, e) == ST_OK) return ST_OK;
    st_error_hint(e, "the folder of a run, or one of its checkpoints");
    return e->code;
}

static int open_model(job *j, st_error *e)
{
    st_cli *cli = j->cli;

    ST_TRY(cli_load(cli, j->checkpoint, &j->spec, &j->registry));
    st_spec_put(j->spec, "run", "backend", "cpu", ST_FROM_SET, NULL);
    st_spec_put(j->spec, "run", "precision", "f32", ST_FROM_SET, NULL);
    ST_TRY(st_model_build(cli->base, j->spec, j->registry, 0, &j->model, cli->diags));
    ST_TRY(st_model_plan(j->model, e));
    ST_TRY(st_model_open(j->model, e));
    return st_checkpoint_load(j->checkpoint, j->model, 0, e);
}

static int copy_file(job *j, const char *from, const char *to, st_error *e)
{
    char *text;
    size_t n;

    ST_TRY(st_file_read(from, j->cli->arena, &text, &n, e));
    return st_file_write_atomic(to, text, n, e);
}

static int fill(job *j, st_error *e)
{
    st_arena *a = j->cli->arena;
    const char *weights = st_path_join(a, j->part, "model.safetensors"), *to = st_path_join(a, j->part, "tokenizer.json"),
               *tokenizer = st_path_join(a, j->checkpoint, "tokenizer.json");

    if (!weights || !to || !tokenizer) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    if (!st_path_exists(tokenizer)) tokenizer = NULL;
    ST_TRY(st_checkpoint_export(weights, j->model, j->dtype, e));
    if (tokenizer) ST_TRY(copy_file(j, tokenizer, to, e));
    ST_TRY(st_hf_config_write(j->part, j->spec, j->model, tokenizer, a, &j->why, e));
    return st_sync_folder(j->part, e);
}

/* Beside its place until it is whole. */
static int write_folder(job *j, st_error *e)
{
    const char *above = st_path_dir(j->cli->arena, j->to);
    int rc;

    if (!above) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    ST_TRY(st_make_dirs(above, e));
    if (mkdir(j->part, 0777) != 0) return st_fail_errno(e, j->part, "make the folder");
    rc = fill(j, e);
    if (rc == ST_OK && rename(j->part, j->to) != 0) rc = st_fail_errno(e, j->to, "rename the finished folder to");
    if (rc == ST_OK) return st_sync_folder_of(j->to, e);
    (void)st_remove_folder(j->part, &(st_error){0});
    return rc;
}

static int export(job *j)
{
    st_cli *cli = j->cli;
    st_error e = {0};
    int rc = cli_start(cli, 0), code;

    if (rc == ST_OK) rc = find(j, &e);
    if (rc == ST_OK) rc = open_model(j, &e);
    if (rc == ST_OK) rc = write_folder(j, &e);
    if (e.code) st_diags_add(cli->diags, &e, NULL, false);
    code = cli_report(cli, rc);
    if (rc == ST_OK) fprintf(cli->out, "%s in %s\n", j->checkpoint, j->to);
    if (rc == ST_OK && j->why) fprintf(cli->out, "without a config.json: %s, for which the family has no words\n", j->why);
    if (j->model) st_model_destroy(j->model);
    st_registry_close(j->registry);
    st_spec_destroy(j->spec);
    return code;
}

int cli_export(st_cli *cli, int argc, char **argv)
{
    job j = {.cli = cli, .dtype = ST_BF16};
    int option, code;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1)
        if (option != OPT_DTYPE) {
            if ((code = cli_option(cli, option, usage, argv)) >= 0) return code;
        } else if (!strcmp(optarg, "bf16")) j.dtype = ST_BF16;
        else if (!strcmp(optarg, "f32")) j.dtype = ST_F32;
        else return cli_usage_error(cli, argv, "--dtype %s: bf16 or f32", optarg);
    if (argc - optind != 2) return cli_usage_error(cli, argv, "it takes a checkpoint and a new folder");
    j.checkpoint = argv[optind];
    j.to = argv[optind + 1];
    return export(&j);
}
