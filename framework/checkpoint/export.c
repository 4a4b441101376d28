/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/export.c - weights under the names and in the shapes in which HuggingFace's family has them. */
#include "config.h"

#include "base/bf16.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/family.h"
#include "checkpoint/view.h"
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16 }; /* values */

typedef struct export {
    st_model *m;
    const st_model_weight *const *weights;
    const st_file_name *names;
    int n;
    int32_t dtype;
    int64_t side, frames; /* of patches */
    double *values;
    void *bits; /* PIECE of each */
} export;

/* A_log and dt_bias stay f32 in files of bf16, as they are computed with. */
static int32_t type_of(const export *x, const st_model_weight *w) { return w->flags & ST_W_ACC ? ST_F32 : x->dtype; }

/* The family's convolutions have a dimension of one channel, and its patches those of a picture. */
static int32_t shape_of(const export *x, const st_model_weight *w, const st_file_name *f, int64_t dim[8])
{
    const int64_t rgb = 3, pixels = x->frames * x->side * x->side;
    int32_t nd = 0, first = f->entry >= 0, rows = w->sec_dim > first ? w->sec_dim : first;

    for (int i = first; i < w->nd; i++) dim[nd++] = i == rows ? f->n : w->dim[i];
    if (st_ends_with(f->file_name, "conv1d.weight") && nd == 2) {
        dim[2] = dim[1];
        dim[1] = 1;
        return 3;
    }
    if (st_ends_with(f->file_name, "patch_embed.proj.weight") && nd == 2 && pixels && dim[1] == rgb * pixels) {
        dim[1] = rgb;
        dim[2] = x->frames;
        dim[3] = dim[4] = x->side;
        return 5;
    }
    return nd;
}

/* Every weight that a run keeps, whole: a file that lacks some is another model. */
static int check_names(const export *x, int n_weights, st_error *e)
{
    for (int i = 0; i < n_weights; i++) {
        const st_model_weight *w = x->weights[i];
        int64_t covered = 0;
        if (w->flags & ST_W_CONST) continue;
        for (int k = 0; k < x->n; k++)
            if (x->names[k].weight == i) covered += st_weight_part_count(w, &x->names[k]);
        if (covered == w->count) continue;
        st_fail(e, ST_E_UNSUPPORTED, "weight %s has no HuggingFace name", w->path);
        st_error_hint(e, "the plugin of its layer gives none; only models of that family can be exported");
        return ST_E_UNSUPPORTED;
    }
    return ST_OK;
}

static int put(const export *x, st_tensors_out *out, int32_t dtype, int64_t n, st_error *e)
{
    uint16_t *half = x->bits;
    float *single = x->bits;

    for (int64_t i = 0; i < n; i++)
        if (dtype == ST_BF16) half[i] = st_bf16_from_f64(x->values[i]);
        else single[i] = (float)x->values[i];
    return st_tensors_write(out, x->bits, (size_t)n * st_dtype_size(dtype), e);
}

static int write_part(const export *x, st_tensors_out *out, const st_file_name *f, st_error *e)
{
    const st_model_weight *w = x->weights[f->weight];
    view v = view_of(w, f);
    int64_t n = run_length(&v, f);

    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t i = 0, k; i < n; i += k) {
            k = n - i < PIECE ? n - i : PIECE;
            ST_TRY(st_model_read_at(x->m, f->weight, run_at(&v, f, o) + i, x->values, k, e));
            ST_TRY(put(x, out, type_of(x, w), k, e));
        }
    return ST_OK;
}

static int write_all(const export *x, st_tensors_out *out, st_error *e)
{
    int64_t dim[8];

    ST_TRY(st_tensors_meta(out, "format", "pt")); /* what transformers asks of a file */
    for (int i = 0; i < x->n; i++) {
        const st_model_weight *w = x->weights[x->names[i].weight];
        int32_t nd = shape_of(x, w, &x->names[i], dim);
        ST_TRY(st_tensors_declare(out, x->names[i].file_name, type_of(x, w), nd, dim, e));
    }
    for (int i = 0; i < x->n; i++) ST_TRY(write_part(x, out, &x->names[i], e));
    return ST_OK;
}

int st_checkpoint_export(const char *path, st_model *m, int32_t dtype, st_error *e)
{
    export x = {.m = m,
                .dtype = dtype,
                .values = malloc(PIECE * sizeof(double)),
                .bits = malloc(PIECE * sizeof(float))};
    int n_weights = st_model_weights(m, &x.weights), rc = x.values && x.bits ? ST_OK : ST_E_NOMEM;
    st_tensors_out *out = NULL;

    st_hf_patches(m, &x.side, &x.frames);
    if (rc == ST_OK && (x.n = st_family_names(m, "hf", &x.names)) < 0) rc = x.n;
    if (rc != ST_OK) st_fail(e, rc, "no names for the weights of %s: %s", path, st_code_name(rc));
    if (rc == ST_OK) rc = check_names(&x, n_weights, e);
    if (rc == ST_OK) rc = st_tensors_create(path, &out, e);
    if (rc == ST_OK) {
        rc = write_all(&x, out, e);
        if (rc == ST_OK) rc = st_tensors_finish(out, e);
        else st_tensors_abort(out);
    }
    free(x.values);
    free(x.bits);
    return rc;
}
