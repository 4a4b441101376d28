/* SPDX-License-Identifier: Apache-2.0 */
/* parity/optimizer_case.c - AdamW alone: given parameters and gradients, a ramped learning rate, clipping at a global norm. The
 * parameters are the embedding [n, 1] of a model whose other gradients are zero. */
#include "config.h"
#include "parity/parity.h"

#define GATE_F64 1e-12
#define GATE_F32 1e-6

static int write_spec(st_parity *p, json_t *c, st_buf *text, st_error *e)
{
    json_t *betas = json_object_get(c, "betas");

    st_buf_printf(
        text,
        "[stack]\npattern = -\nhidden = 1\nvocab = %lld\ntie_embeddings = yes\n[layer.-]\nplugin = swiglu\nwidth = 1\n"
        "[run]\nprecision = %s\nbackend = %s\n[batch]\ntokens = 8\n[position]\nplugin = none\n"
        "[optimizer]\nplugin = adamw\nbeta1 = %.17g\nbeta2 = %.17g\neps = %.17g\nweight_decay = %.17g\n",
        (long long)json_integer_value(json_object_get(c, "n")), st_parity_precision(p), p->backend,
        json_number_value(json_array_get(betas, 0)), json_number_value(json_array_get(betas, 1)),
        json_number_value(json_object_get(c, "eps")), json_number_value(json_object_get(c, "weight_decay")));
    return text->failed ? st_fail(e, ST_E_NOMEM, "no memory for a spec") : ST_OK;
}

static int clear_gradients(st_parity *p, st_model *m, st_error *e)
{
    const st_model_weight *const *w;
    int n = st_model_weights(m, &w);

    for (int i = 0; i < n; i++) {
        double *zero = ST_NEW_N(p->arena, double, w[i]->count);
        if (!zero) return st_fail(e, ST_E_NOMEM, "no memory for gradients");
        if (!(w[i]->flags & ST_W_CONST)) ST_TRY(st_model_write_grad(m, i, zero, e));
    }
    return ST_OK;
}

static int compare_step(st_parity *p, st_model *m, int index, int32_t embed, int step, json_t *c, st_error *e)
{
    int64_t n = json_integer_value(json_object_get(c, "n"));
    double gate = p->type == ST_PARITY_F64 ? GATE_F64 : GATE_F32,
           steps = json_number_value(json_object_get(c, "steps"));
    st_schedule schedule = {.size = sizeof schedule,
                            .step = step + 1,
                            .lr_scale = 1,
                            .lr = json_number_value(json_object_get(c, "lr")) * (step + 1) / steps};
    st_step_result r = {0};
    char key[64];
    double *values, *got;

    snprintf(key, sizeof key, "%d.g%d", index, step);
    ST_TRY(st_parity_take(p, key, n, &values, e));
    ST_TRY(st_model_write_grad(m, embed, values, e));
    ST_TRY(st_model_update(m, &schedule, json_number_value(json_object_get(c, "clip")), &r, e));
    snprintf(key, sizeof key, "%d.norm%d", index, step);
    ST_TRY(st_parity_take(p, key, 1, &values, e));
    ST_TRY(st_parity_compare(p, key, values, &r.grad_norm, 1, ST_BY_NORM, gate, e));
    snprintf(key, sizeof key, "%d.p%d", index, step + 1);
    ST_TRY(st_parity_take(p, key, n, &values, e));
    got = ST_NEW_N(p->arena, double, n);
    if (!got) return st_fail(e, ST_E_NOMEM, "no memory for %s", key);
    ST_TRY(st_model_read(m, embed, ST_READ_WEIGHT, got, e));
    return st_parity_compare(p, key, values, got, n, ST_BY_NORM, gate, e);
}

static int run_case(st_parity *p, json_t *c, int index, st_model *m, st_error *e)
{
    int32_t embed = st_model_find_weight(m, "embed");
    char key[64];
    double *start;

    snprintf(key, sizeof key, "%d.p0", index);
    ST_TRY(st_parity_take(p, key, json_integer_value(json_object_get(c, "n")), &start, e));
    ST_TRY(st_model_write(m, embed, start, e));
    ST_TRY(clear_gradients(p, m, e));
    for (int step = 0; step < (int)json_integer_value(json_object_get(c, "steps")); step++)
        ST_TRY(compare_step(p, m, index, embed, step, c, e));
    return ST_OK;
}

int st_parity_optimizer_case(st_parity *p, st_diags *d)
{
    st_error e = {0};
    json_t *meta = st_parity_json(p, "meta.json", &e);
    int rc = meta ? ST_OK : st_diags_add(d, &e, NULL, false);

    for (size_t i = 0; rc == ST_OK && i < json_array_size(meta); i++) {
        st_parity_model pm = {0};
        st_buf text = {0};
        rc = write_spec(p, json_array_get(meta, i), &text, &e);
        if (rc != ST_OK) rc = st_diags_add(d, &e, NULL, false);
        else rc = st_parity_model_open(p, text.data, 1, &pm, d);
        if (rc == ST_OK && (rc = run_case(p, json_array_get(meta, i), (int)i, pm.model, &e)) != ST_OK)
            st_diags_add(d, &e, NULL, false);
        st_parity_model_close(&pm);
        st_buf_free(&text);
    }
    json_decref(meta);
    return rc;
}
