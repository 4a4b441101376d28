/* SPDX-License-Identifier: Apache-2.0 */
/* parity/merger_case.c - the vision patch merger alone, at a real size. An encoder whose stem is the identity (patch values as wide
 * as its width) and whose one block adds zero hands the given rows to the merger unchanged. Weights follow a hash (meta.json). */
#include "config.h"
#include "data/sequence.h"
#include "parity/parity.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GATE_F64 1e-9
#define GATE_F32 5e-6 /* largest difference */
#define INPUT_SEED 99

/* Value i of a hashed tensor: splitmix64 of (i + seed 2^32), its top 24 bits scaled to mean 0 and variance 1. */
static double hashed(uint64_t i, uint64_t seed)
{
    uint64_t z = (i + (seed << 32) + 1) * 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (float)(((double)(z >> 40) / 16777216.0 - 0.5) * sqrt(12.0));
}

static int fill(st_model *m, const st_model_weight *w, int32_t index, json_t *param, int identity, st_error *e)
{
    double *v = calloc((size_t)w->count, sizeof *v);
    double scale = json_number_value(json_object_get(param, "scale")),
           offset = json_number_value(json_object_get(param, "offset"));
    uint64_t seed = (uint64_t)json_integer_value(json_object_get(param, "seed"));
    int rc;

    if (!v) return st_fail(e, ST_E_NOMEM, "no memory to fill %s", w->path);
    for (int64_t i = 0; param && i < w->count; i++) v[i] = (float)(offset + scale * hashed((uint64_t)i, seed));
    for (int64_t i = 0; identity && i < w->dim[0]; i++) v[i * w->dim[1] + i] = 1;
    rc = st_model_write(m, index, v, e);
    free(v);
    return rc;
}

/* The weights that meta.json names, the identity in the stem, zero everywhere else. */
static int fill_all(st_parity *p, st_model *m, json_t *params, st_error *e)
{
    const st_model_weight *const *w;
    const st_file_name *names;
    int n = st_model_weights(m, &w), n_names = st_family_names(m, "hf", &names);

    for (int32_t i = 0; i < n; i++) {
        const char *name = "";
        if (w[i]->flags & ST_W_CONST) continue;
        for (int k = 0; k < n_names; k++)
            if (names[k].weight == i) name = names[k].file_name;
        bool merger = strncmp(name, "model.visual.merger.", 20) == 0;
        json_t *param = merger ? json_object_get(params, name + 20) : NULL;
        if (merger && !param) return st_fail(e, ST_E_DATA, "%s: meta.json says nothing of %s", p->dir, name);
        ST_TRY(fill(m, w[i], i, param, strcmp(name, "model.visual.patch_embed.proj.weight") == 0, e));
    }
    return ST_OK;
}

static int write_spec(st_parity *p, int64_t hidden, int64_t out_hidden, int64_t patches, st_buf *text, st_error *e)
{
    /* 3 colours x frames x 8 x 8 values make one patch as wide as the encoder */
    int64_t frames = hidden / (3 * 8 * 8);

    if (frames * 3 * 8 * 8 != hidden || patches % 4)
        return st_fail(e, ST_E_UNSUPPORTED, "%s: width %lld or %lld patches do not fit an identity stem", p->dir,
                       (long long)hidden, (long long)patches);
    st_buf_printf(text,
                  "[stack]\npattern = -\nhidden = %lld\nvocab = 8\n[layer.-]\nplugin = swiglu\nwidth = "
                  "1\n[run]\nprecision = %s\nbackend = %s\n"
                  "[batch]\ntokens = %lld\nsequences = 1\nimages = 1\npatches = %lld\npatch_values = "
                  "yes\n[position]\nplugin = none\n"
                  "[encoder]\nplugin = qwen35_vision\npattern = VF\nhidden = %lld\npatch = 8\ntemporal_patch = "
                  "%lld\nmerge = 2\nposition_side = 2\n"
                  "[layer.V]\nplugin = attention\nheads = 1\nkv_heads = 1\nhead_dim = 8\ngate = no\nqk_norm = no\nbias "
                  "= yes\ncausal = no\nrotary = no\nnames = vision\n"
                  "[layer.F]\nplugin = gelu_mlp\nwidth = 1\nbias = yes\n",
                  (long long)out_hidden, st_parity_precision(p), p->backend, (long long)patches / 4 + 1, (long long)patches,
                  (long long)hidden, (long long)frames);
    return text->failed ? st_fail(e, ST_E_NOMEM, "no memory for a spec") : ST_OK;
}

typedef struct seen {
    double *features;
    int64_t n;
} seen;

static void look(void *ctx, const char *name, int32_t layer, const double *values, int64_t rows, int64_t cols)
{
    seen *s = ctx;

    if (strcmp(name, "features") != 0 || rows * cols < s->n) return;
    memcpy(s->features, values, (size_t)s->n * sizeof *values);
}

/* One sequence of placeholders and a last trained token, so that the row counts as data. */
static int make_row(st_parity *p, st_model *m, int64_t hidden, int64_t patches, st_packed_row **row, st_error *e)
{
    const st_instance *encoder = st_model_encoder(m);
    int32_t rows = (int32_t)patches / 4, fits;
    double *values = st_arena_alloc(p->arena, (size_t)(patches * hidden) * sizeof *values);
    st_media md = {.size = sizeof md,
                   .kind = ST_MEDIA_IMAGE,
                   .frames = 1,
                   .patches = values,
                   .patch_grid = {1, 2, (int32_t)patches / 2}};
    st_media_run run = {.n = rows, .kind = ST_MEDIA_IMAGE, .grid = {1, 1, rows}};
    st_worker w = {.size = sizeof w, .host = &p->base->host, .arena = p->arena, .error = e};
    st_item item;
    st_prepared q;

    if (!values) return st_fail(e, ST_E_NOMEM, "no memory for %lld patches", (long long)patches);
    for (int64_t i = 0; i < patches * hidden; i++) values[i] = hashed((uint64_t)i, INPUT_SEED);
    ST_TRY(st_sequence_picture(encoder, &w, &md, &item));
    ST_TRY(st_sequence_blank(&w, rows + 1, 1, rows, &q));
    q.n_runs = q.n_items = 1;
    q.runs = &run;
    q.items = &item;
    q.id = "merger";
    ST_TRY(st_row_create(p->arena, st_model_shape(m), row, e));
    st_row_clear(*row);
    ST_TRY(st_row_add(*row, &q, &fits, e));
    return st_sequence_finish(*row, encoder, &w);
}

static int compare(st_parity *p, const seen *s, json_t *meta, st_error *e)
{
    double *exact, *own32, *own16,
        own_error = json_number_value(json_object_get(json_object_get(meta, "note"), "bf16_own_error"));
    double rounded = p->type == ST_PARITY_F32 ? GATE_F32 : ST_PARITY_PEER * own_error;
    int64_t n = s->n;

    ST_TRY(st_parity_take(p, "out_f64", n, &exact, e));
    ST_TRY(st_parity_take(p, "out_f32", n, &own32, e));
    ST_TRY(st_parity_take(p, "out_bf16", n, &own16, e));
    if (p->type != ST_PARITY_F64) return st_parity_compare(p, "out_f64", exact, s->features, n, ST_BY_MAX, rounded, e);
    ST_TRY(st_parity_compare(p, "out_f64", exact, s->features, n, ST_BY_NORM, GATE_F64, e));
    /* the library's own rounding, seen from our exact values, must be the error that it states of itself */
    ST_TRY(st_parity_compare(p, "out_f32 (the library's own)", own32, s->features, n, ST_BY_MAX,
                             1e-9 + json_number_value(json_object_get(json_object_get(meta, "note"), "f32_own_error")),
                             e));
    return st_parity_compare(p, "out_bf16 (the library's own)", own16, s->features, n, ST_BY_MAX, 1e-9 + own_error, e);
}

static int run_case(st_parity *p, json_t *meta, st_diags *d)
{
    int64_t hidden = json_integer_value(json_object_get(meta, "hidden")),
            out_hidden = json_integer_value(json_object_get(meta, "out_hidden"));
    int64_t patches = json_integer_value(json_object_get(meta, "patches")), count;
    seen s = {.n = patches / 4 * out_hidden};
    st_parity_model pm = {0};
    st_packed_row *row;
    st_buf text = {0};
    st_error e = {0};
    double sum;
    int rc = write_spec(p, hidden, out_hidden, patches, &text, &e);

    s.features = ST_NEW_N(p->arena, double, s.n);
    if (rc == ST_OK && !s.features) rc = st_fail(&e, ST_E_NOMEM, "no memory for features");
    if (rc == ST_OK && (rc = st_parity_model_open(p, text.data, 0, &pm, d)) == ST_OK) {
        rc = fill_all(p, pm.model, json_object_get(meta, "params"), &e);
        if (rc == ST_OK) rc = make_row(p, pm.model, hidden, patches, &row, &e);
        st_model_probe(pm.model, look, &s);
        if (rc == ST_OK) rc = st_model_evaluate(pm.model, row, &sum, &count, NULL, NULL, &e);
        if (rc == ST_OK) rc = compare(p, &s, meta, &e);
    }
    if (e.code) st_diags_add(d, &e, NULL, false);
    st_buf_free(&text);
    st_parity_model_close(&pm);
    return rc;
}

int st_parity_merger_case(st_parity *p, st_diags *d)
{
    st_error e = {0};
    json_t *meta = st_parity_json(p, "meta.json", &e);
    int rc = meta ? run_case(p, meta, d) : st_diags_add(d, &e, NULL, false);

    json_decref(meta);
    return rc;
}
