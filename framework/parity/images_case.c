/* SPDX-License-Identifier: Apache-2.0 */
/* parity/images_case.c - pictures: decoding, resized size and every patch value against the public processors. The values are the
 * tensor "patches" that the encoder keeps in a training pass over the picture. */
#include "config.h"
#include "data/image.h"
#include "data/sequence.h"
#include "parity/parity.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEVEL (1.0 / 127.5) /* one grey level after normalisation with mean and deviation 0.5 */
#define ROUNDING 1e-6
#define MOST_OFF 0.01 /* share of values that may be another level */
#define EVERY 97      /* large cases store every 97th value */

typedef struct seen {
    double *values;
    int64_t n;
} seen;

static void look(void *ctx, const char *name, int32_t layer, const double *values, int64_t rows, int64_t cols)
{
    seen *s = ctx;

    if (strcmp(name, "slot.patches") != 0) return;
    free(s->values);
    s->n = rows * cols;
    s->values = malloc((size_t)s->n * sizeof *values);
    if (s->values) memcpy(s->values, values, (size_t)s->n * sizeof *values);
}

static int write_spec(st_parity *p, json_t *c, int64_t patches, st_buf *text, st_error *e)
{
    st_buf_printf(text,
                  "[stack]\npattern = -\nhidden = 8\nvocab = 8\n[layer.-]\nplugin = swiglu\nwidth = "
                  "1\n[run]\nprecision = %s\nbackend = %s\n"
                  "[batch]\ntokens = %lld\nsequences = 1\nimages = 1\npatches = %lld\n[position]\nplugin = "
                  "none\n[optimizer]\nplugin = adamw\n"
                  "[encoder]\nplugin = qwen35_vision\npattern = F\nhidden = 4\npatch = 16\ntemporal_patch = 2\nmerge = "
                  "2\nposition_side = 2\n"
                  "min_pixels = %lld\nmax_pixels = %lld\nimage_mean = 0.5,0.5,0.5\nimage_std = "
                  "0.5,0.5,0.5\n[layer.F]\nplugin = gelu_mlp\nwidth = 1\nbias = yes\n",
                  st_parity_precision(p), p->backend, (long long)patches / 4 + 1, (long long)patches,
                  (long long)json_integer_value(json_object_get(c, "min_pixels")),
                  (long long)json_integer_value(json_object_get(c, "max_pixels")));
    return text->failed ? st_fail(e, ST_E_NOMEM, "no memory for a spec") : ST_OK;
}

static int decode(st_parity *p, int index, st_image *image, st_error *e)
{
    char *path = st_arena_printf(p->arena, "%s/img%d.png", p->dir, index), *data;
    st_image_rules rules = {.alpha = ST_ALPHA_DROP, .max_pixels = 1 << 28};
    size_t n;

    if (!path) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    ST_TRY(st_file_read(path, p->arena, &data, &n, e));
    if (st_image_decode(data, n, &rules, p->arena, image, e) != ST_OK) st_error_context(e, "%s", path);
    return e->code;
}

static int make_row(st_parity *p, st_model *m, int index, const st_image *image, st_packed_row **row, int32_t grid[3],
                    st_error *e)
{
    const st_instance *encoder = st_model_encoder(m);
    st_media md = {.size = sizeof md,
                   .kind = ST_MEDIA_IMAGE,
                   .width = image->width,
                   .height = image->height,
                   .frames = 1,
                   .rgb = image->rgb};
    st_worker w = {.size = sizeof w, .host = &p->base->host, .arena = p->arena, .error = e};
    st_item item;
    st_prepared q;
    int32_t fits;

    ST_TRY(st_sequence_picture(encoder, &w, &md, &item));
    memcpy(grid, item.plan.grid, sizeof item.plan.grid);
    if (item.plan.units > st_model_shape(m)->caps.units)
        return st_fail(e, ST_E_DATA, "%s: img%d.png gives %d patches, its grid in meta.json %lld", p->dir, index,
                       item.plan.units, (long long)st_model_shape(m)->caps.units);
    st_media_run run = {.n = item.plan.rows, .kind = ST_MEDIA_IMAGE, .grid = {1, grid[1] / 2, grid[2] / 2}};
    ST_TRY(st_sequence_blank(&w, run.n + 1, 1, run.n, &q));
    q.n_runs = q.n_items = 1;
    q.runs = &run;
    q.items = &item;
    q.id = "picture";
    ST_TRY(st_row_create(p->arena, st_model_shape(m), row, e));
    st_row_clear(*row);
    ST_TRY(st_row_add(*row, &q, &fits, e));
    return st_sequence_finish(*row, encoder, &w);
}

/* values: ours. Largest difference against one grey level, and the share of values that are another level. */
static int compare_values(st_parity *p, const char *name, const double *want, const double *values, int64_t n,
                          int64_t step, st_error *e)
{
    double *got = ST_NEW_N(p->arena, double, n), zero = 0, off = 0;
    char *share = st_arena_printf(p->arena, "%s, share off", name);

    if (!got || !share) return st_fail(e, ST_E_NOMEM, "no memory to compare %s", name);
    for (int64_t i = 0; i < n; i++) {
        got[i] = values[i * step];
        off += fabs(got[i] - want[i]) > LEVEL / 2;
    }
    off = n ? off / (double)n : 1;
    ST_TRY(st_parity_compare(p, name, want, got, n, ST_BY_MAX, LEVEL + ROUNDING, e));
    return st_parity_compare(p, share, &zero, &off, 1, ST_BY_MAX, MOST_OFF, e);
}

static int compare(st_parity *p, json_t *c, const seen *s, const int32_t grid[3], st_error *e)
{
    int index = (int)json_integer_value(json_object_get(c, "case"));
    const char *processor = json_string_value(json_object_get(c, "processor"));
    double *want, got[3] = {grid[0], grid[1], grid[2]};
    char key[128];
    int64_t n;

    if (!processor) return st_fail(e, ST_E_DATA, "%s: meta.json: case %d names no processor", p->dir, index);
    snprintf(key, sizeof key, "%d.%s.grid_thw", index, processor);
    ST_TRY(st_parity_take(p, key, 3, &want, e));
    ST_TRY(st_parity_compare(p, key, want, got, 3, ST_BY_MAX, 0, e));
    snprintf(key, sizeof key, "%d.%s.pixel_values", index, processor);
    if (st_tensors_find(p->io, key)) {
        ST_TRY(st_parity_take(p, key, s->n, &want, e));
        return compare_values(p, key, want, s->values, s->n, 1, e);
    }
    snprintf(key, sizeof key, "%d.%s.pixel_values_every_97th", index, processor);
    n = (s->n + EVERY - 1) / EVERY;
    ST_TRY(st_parity_take(p, key, n, &want, e));
    return compare_values(p, key, want, s->values, n, EVERY, e);
}

static int run_entry(st_parity *p, json_t *c, st_diags *d)
{
    json_t *grid_json = json_array_get(json_object_get(c, "grid"), 0);
    int64_t patches =
        json_integer_value(json_array_get(grid_json, 1)) * json_integer_value(json_array_get(grid_json, 2));
    st_parity_model pm = {0};
    st_packed_row *row;
    st_image image;
    seen s = {0};
    st_buf text = {0};
    st_step_result r = {0};
    st_error e = {0};
    int32_t grid[3];
    int index = (int)json_integer_value(json_object_get(c, "case")), rc = write_spec(p, c, patches, &text, &e);

    if (rc == ST_OK) rc = decode(p, index, &image, &e);
    if (rc == ST_OK && (rc = st_parity_model_open(p, text.data, 1, &pm, d)) == ST_OK) {
        rc = st_model_init(pm.model, 1, &e);
        if (rc == ST_OK) rc = make_row(p, pm.model, index, &image, &row, grid, &e);
        st_model_probe(pm.model, look, &s);
        if (rc == ST_OK) rc = st_model_gradients(pm.model, (const st_packed_row *const *)&row, 1, &r, &e);
        if (rc == ST_OK && !s.values) rc = st_fail(&e, ST_E_INTERNAL, "the encoder kept no tensor \"patches\"");
        if (rc == ST_OK) rc = compare(p, c, &s, grid, &e);
    }
    if (e.code) st_diags_add(d, &e, NULL, false);
    free(s.values);
    st_buf_free(&text);
    st_parity_model_close(&pm);
    return rc;
}

int st_parity_images_case(st_parity *p, st_diags *d)
{
    st_error e = {0};
    json_t *meta = st_parity_json(p, "meta.json", &e);
    int rc = meta ? ST_OK : st_diags_add(d, &e, NULL, false);

    for (size_t i = 0; rc == ST_OK && i < json_array_size(meta); i++) {
        json_t *c = json_array_get(meta, i);
        if (json_object_get(c, "error")) continue; /* a picture that the processor itself refuses: nothing to compare */
        rc = run_entry(p, c, d);
    }
    json_decref(meta);
    return rc;
}
