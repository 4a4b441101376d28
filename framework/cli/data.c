/* SPDX-License-Identifier: Apache-2.0 */
/* cli/data.c - `strata data show SPEC`: one sample as a packed row holds it, with what is trained, where everything
 * stands, and the pictures as the encoder gets them. */
#include "cli/commands.h"
#include "config.h"
#include "data/image.h"
#include "data/sequence.h"
#include "train/run.h"
#include <inttypes.h>
#include <string.h>

static const char usage[] =
    "usage: strata data show [OPTION...] SPEC\n"
    "\n"
    "Prints a sample of the data of SPEC as it is trained: each slot of its row with id, positions, and what the token "
    "stands for.\n"
    "Trained tokens are marked *, and + where evaluation scores them as content as well. The places of a picture are "
    "one line.\n"
    "\n"
    "options:\n"
    "  -n, --index N                   which record, from 0; default 0\n"
    "      --split NAME                train or valid; default train\n"
    "      --image DIR                 write its pictures, as they are after resizing, into this folder as "
    "PNG\n" CLI_HELP_SET CLI_HELP_OPTIONS;

enum { OPT_SPLIT = CLI_OPT_OWN, OPT_IMAGE };
static const struct option options[] = {{"index", required_argument, NULL, 'n'},
                                        {"split", required_argument, NULL, OPT_SPLIT},
                                        {"image", required_argument, NULL, OPT_IMAGE},
                                        CLI_OPTION_SET,
                                        CLI_OPTIONS,
                                        {0}};

typedef struct view {
    st_cli *cli;
    int64_t index;
    const char *split, *folder; /* folder NULL: no pictures are written */
    st_run run;
    st_loader *loader;
    st_prepared sample;
    st_packed_row *row;
    const char *text; /* that is trained */
} view;

/* ---- the row ---- */

static int make_row(view *v, st_error *e)
{
    st_worker w = {.size = sizeof w, .host = &v->run.base->host, .arena = v->cli->arena, .error = e};
    int fits;

    ST_TRY(st_loader_sample(v->loader, v->index, 0, v->cli->arena, &v->sample, &v->text, e));
    ST_TRY(st_row_create(v->cli->arena, st_model_shape(v->run.model), &v->row, e));
    ST_TRY(st_row_add(v->row, &v->sample, &fits, e));
    return st_sequence_finish(v->row, st_model_encoder(v->run.model), &w);
}

/* ---- pictures ---- */

/* As the encoder has it in the payload of the row; *has false: it cannot tell. */
static int picture_of(const view *v, int32_t item, st_image *out, bool *has, st_error *e)
{
    const st_instance *in = st_model_encoder(v->run.model);
    st_worker w = {.size = sizeof w, .host = &v->run.base->host, .arena = v->cli->arena, .error = e};
    st_media m = {.size = sizeof m};
    st_encoder_ops ops;

    *has = false;
    st_ops_copy(in->plugin, &ops, sizeof ops);
    if (!ops.picture) return ST_OK;
    ST_TRY(ops.picture(in->self, &w, &v->sample.items[item].plan, v->sample.items[item].payload, &m));
    *out = (st_image){m.width, m.height, (uint8_t *)m.rgb};
    *has = true;
    return ST_OK;
}

static int write_picture(const view *v, int32_t item, const st_image *im, st_error *e)
{
    char *path = st_arena_printf(v->cli->arena, "%s/record-%06" PRId64 "-%d.png", v->folder, v->index, item);

    if (!path) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    ST_TRY(st_make_dirs(v->folder, e));
    ST_TRY(st_image_write_png(path, im, e));
    fprintf(v->cli->out, ", written to %s", path);
    return ST_OK;
}

static void print_places(const view *v, int32_t item)
{
    for (int32_t i = 0; i < v->sample.n_runs; i++) {
        const st_media_run *r = &v->sample.runs[i];
        if (r->item == item)
            fprintf(v->cli->out, ", %d x %d x %d tokens in slots %d to %d", r->grid[0], r->grid[1], r->grid[2],
                    r->first, r->first + r->n - 1);
    }
}

static int show_picture(const view *v, int32_t item, st_error *e)
{
    const int32_t *grid = v->sample.items[item].plan.grid;
    st_image im;
    bool has;
    int rc;

    ST_TRY(picture_of(v, item, &im, &has, e));
    fprintf(v->cli->out, "picture %d: ", item);
    if (has) fprintf(v->cli->out, "%d x %d pixels (h x w), ", im.height, im.width);
    fprintf(v->cli->out, "grid %d x %d x %d", grid[0], grid[1], grid[2]);
    print_places(v, item);
    if (v->folder && !has)
        rc = st_fail(e, ST_E_UNSUPPORTED, "the encoder cannot show its pictures: --image has nothing to write");
    else rc = v->folder ? write_picture(v, item, &im, e) : ST_OK;
    fputc('\n', v->cli->out);
    return rc;
}

/* ---- slots ---- */

static bool is_trained(const st_packed_row *r, int32_t slot) /* its token is the target of the slot before it */
{
    return slot > 0 && r->labels[slot - 1] >= 0;
}

static void print_positions(const st_packed_row *r, int32_t slot, int32_t last, FILE *out)
{
    for (int32_t a = 0; a < r->shape.axes; a++) {
        const int32_t *pos = r->pos + (size_t)a * (size_t)r->shape.tokens;
        int32_t least = pos[slot], most = pos[slot];
        char text[32];
        for (int32_t i = slot; i <= last; i++) {
            if (pos[i] < least) least = pos[i];
            if (pos[i] > most) most = pos[i];
        }
        if (least == most) snprintf(text, sizeof text, "%d", least);
        else snprintf(text, sizeof text, "%d..%d", least, most);
        fprintf(out, " %9s", text);
    }
}

static int32_t end_of_places(const st_packed_row *r, int32_t slot) /* of a picture; else the slot itself */
{
    int32_t last = slot;

    while (r->media[slot] >= 0 && last + 1 < r->n_tokens && r->media[last + 1] >= 0 && r->ids[last + 1] == r->ids[slot])
        last++;
    return last;
}

static void print_slots(const view *v)
{
    const st_packed_row *r = v->row;
    const st_tokenizer *t = st_loader_tokenizer(v->loader);
    FILE *out = v->cli->out;

    fprintf(out, "\n    slot       id");
    for (int32_t a = 0; a < r->shape.axes; a++)
        fprintf(out, " %9s", r->shape.axes == 3 ? &"t\0h\0w"[2 * a] : "position");
    fputs("\n", out);
    for (int32_t i = 0, last; i < r->n_tokens; i = last + 1) {
        size_t n = 0;
        const char *piece = t ? st_tokenizer_piece(t, r->ids[i], &n) : NULL;
        last = end_of_places(r, i);
        fprintf(out, "%s %6d %8d", !is_trained(r, i) ? " " : r->content[i - 1] ? "+" : "*", i, r->ids[i]);
        print_positions(r, i, last, out);
        fputs("  ", out);
        if (piece) cli_put_quoted(out, piece, n);
        if (last > i) fprintf(out, " to slot %d, %d times", last, last - i + 1);
        fputc('\n', out);
    }
}

/* ---- the command ---- */

static int show(view *v, st_error *e)
{
    FILE *out = v->cli->out;
    int32_t trained = 0, content = 0;

    ST_TRY(make_row(v, e));
    for (int32_t i = 0; i < v->row->n_tokens; i++) {
        trained += is_trained(v->row, i);
        content += is_trained(v->row, i) && v->row->content[i - 1];
    }
    fprintf(out, "record %" PRId64 " of %" PRId64 " of [dataset.%s]", v->index, st_loader_count(v->loader), v->split);
    if (v->sample.id && *v->sample.id) {
        char *id = st_arena_strdup(v->cli->arena, v->sample.id);
        if (id) st_make_printable(id);
        fprintf(out, ", %s", id ? id : "");
    }
    fprintf(out, "\n%d tokens, %d trained, %d of these scored as content\n", v->row->n_tokens, trained, content);
    if (v->sample.cut) fprintf(out, "%d more tokens were cut off: a row takes no more\n", v->sample.cut);
    for (int32_t i = 0; i < v->row->n_sequences; i++)
        fprintf(out, "segment %d: slots %d to %d of %d\n", i, v->row->segments[i], v->row->segments[i + 1] - 1,
                v->row->shape.tokens);
    for (int32_t i = 0; i < v->sample.n_items; i++) ST_TRY(show_picture(v, i, e));
    if (v->text && *v->text) {
        fputs("trained text: ", out);
        cli_put_quoted(out, v->text, strlen(v->text));
        fputc('\n', out);
    }
    print_slots(v);
    return ST_OK;
}

static int choose(view *v, st_error *e)
{
    v->loader = strcmp(v->split, "valid") == 0 ? v->run.valid : v->run.train;
    if (v->loader) return ST_OK;
    return st_fail(e, ST_E_NOTFOUND, "the spec has no [dataset.%s]", v->split);
}

static int show_of(st_cli *cli, const char *name, view *v)
{
    st_train_options o = {.screen = cli->out};
    st_error e = {0};
    int rc = cli_start(cli, 0);

    if (rc == ST_OK) rc = cli_load(cli, name, &o.spec, &o.registry);
    if (rc == ST_OK) {
        v->run = (st_run){.base = cli->base, .options = &o, .spec = o.spec, .arena = cli->arena, .saved_step = -1};
        rc = st_run_prepare(&v->run, cli->diags);
        if (rc == ST_OK && ((rc = choose(v, &e)) != ST_OK || (rc = show(v, &e)) != ST_OK))
            st_diags_add(cli->diags, &e, NULL, false);
        v->run.arena = NULL; /* the command's own */
        st_run_close(&v->run);
    }
    int code = cli_report(cli, rc);
    st_registry_close(o.registry);
    st_spec_destroy(o.spec);
    return code;
}

int cli_data(st_cli *cli, int argc, char **argv)
{
    view v = {.cli = cli, .split = "train"};
    const char *why = NULL;
    int option, code;

    while ((option = getopt_long(argc, argv, "n:h", options, NULL)) != -1)
        if (option == OPT_SPLIT) v.split = optarg;
        else if (option == OPT_IMAGE) v.folder = optarg;
        else if (option == 'n') {
            if (!st_parse_int(optarg, &v.index, &why) || v.index < 0)
                return cli_usage_error(cli, argv, "%s is no index of a record", optarg);
        } else if ((code = cli_option(cli, option, usage, argv)) >= 0) return code;
    if (strcmp(v.split, "train") != 0 && strcmp(v.split, "valid") != 0)
        return cli_usage_error(cli, argv, "'%s' is no split: train and valid are known", v.split);
    if (argc - optind != 2 || strcmp(argv[optind], "show") != 0)
        return cli_usage_error(cli, argv, "it is: show, and one spec");
    return show_of(cli, argv[optind + 1], &v);
}
