/* SPDX-License-Identifier: Apache-2.0 */
/* parity/experts_case.c - what a model with experts has beside a dense one: the routers' logits, the balance loss of
 * every sample in the library's pooled form, and its gradient alone. A sample of which no token is trained has no
 * other gradient. */
#include "config.h"
#include "parity/samples.h"
#include <stdlib.h>
#include <string.h>

#define ROUTER ".mlp.gate.weight" /* what a router's name in the file ends with */

/* ---- router logits of all samples ---- */

typedef struct seen { st_parity *p; const st_parity_samples *s; int32_t layers; st_error *error; int rc; } seen;

static void look(void *ctx, const char *name, int32_t layer, const double *values, int64_t rows, int64_t cols)
{
    seen *v = ctx;

    if (strcmp(name, "slot.router_logits") != 0) return;
    for (int32_t i = 0; i < v->s->n && v->rc == ST_OK; i++) {
        char key[64];
        double *want;
        int64_t n = v->s->at[i].n * cols;
        snprintf(key, sizeof key, "s%d.router_logits.%d", i, v->layers);
        v->rc = st_parity_take(v->p, key, n, &want, v->error);
        if (v->rc == ST_OK)
            v->rc = st_parity_compare(v->p, key, want, values + v->s->first[i] * cols, n, ST_BY_NORM,
                                      st_parity_gate(v->p, ST_PARITY_LOGITS_F32), v->error);
    }
    v->layers++;
}

static int compare_logits(st_parity *p, const st_parity_samples *s, st_model *m, st_error *e)
{
    const st_packed_row *rows[1] = {s->row};
    st_step_result r = {0};
    seen v = {.p = p, .s = s, .error = e};
    int rc;

    st_model_probe(m, look, &v);
    rc = st_model_gradients(m, rows, 1, &r, e);
    st_model_probe(m, NULL, NULL);
    return rc != ST_OK ? rc : v.rc;
}

/* ---- the balance loss of one sample ---- */

static int compare_loss(st_parity *p, int32_t i, const st_step_result *r, st_error *e)
{
    char key[64];
    double *want;

    snprintf(key, sizeof key, "s%d.aux_loss", i);
    ST_TRY(st_parity_take(p, key, 1, &want, e));
    for (int32_t k = 0; k < r->n_metrics; k++)
        if (r->metrics[k].valid && st_ends_with(r->metrics[k].name, ".balance_loss"))
            return st_parity_compare(p, key, want, &r->metrics[k].value, 1, ST_BY_NORM, st_parity_gate(p, ST_PARITY_LOSS_F32), e);
    return st_fail(e, ST_E_INTERNAL, "%s: no layer reported its balance loss", p->dir);
}

/* Of sample 0. Reference gradients are of the loss itself, ours of coef times the loss. */
static int compare_gradient(st_parity *p, st_model *m, const st_file_name *f, double coef, st_error *e)
{
    const st_model_weight *const *w;
    char *key = st_arena_printf(p->arena, "aux_grad_s0.%s", f->file_name);
    double *want, *got;

    (void)st_model_weights(m, &w);
    int64_t n = w[f->weight]->count;
    got = ST_NEW_N(p->arena, double, n);
    if (!key || !got) return st_fail(e, ST_E_NOMEM, "no memory to compare %s", f->file_name);
    ST_TRY(st_parity_take(p, key, n, &want, e));
    ST_TRY(st_model_read(m, f->weight, ST_READ_GRAD, got, e));
    for (int64_t k = 0; k < n; k++) got[k] /= coef;
    return st_parity_compare(p, key, want, got, n, ST_BY_NORM, st_parity_gate(p, ST_PARITY_GRADIENT_F32), e);
}

/* Sample i alone in a row, without a trained token. */
static int make_row(st_parity *p, const st_parity_samples *s, int32_t i, st_model *m, st_packed_row **row, st_error *e)
{
    st_prepared q = s->at[i];
    st_parity_samples alone = {.n = 1, .at = &q};

    q.train = ST_NEW_N(p->arena, uint8_t, q.n);
    if (!q.train) return st_fail(e, ST_E_NOMEM, "no memory for sample %d", i);
    ST_TRY(st_row_create(p->arena, st_model_shape(m), row, e));
    return st_parity_samples_fill(p, &alone, 0, 1, m, *row, e);
}

static int compare_sample(st_parity *p, const st_parity_samples *s, int32_t i, st_model *m, double coef, st_error *e)
{
    const st_file_name *names;
    st_packed_row *row;
    st_step_result r = {0};
    int n = st_family_names(m, "hf", &names);

    ST_TRY(make_row(p, s, i, m, &row, e));
    ST_TRY(st_model_gradients(m, (const st_packed_row *const *)&row, 1, &r, e));
    ST_TRY(compare_loss(p, i, &r, e));
    for (int k = 0; i == 0 && k < n; k++)
        if (st_ends_with(names[k].file_name, ROUTER)) ST_TRY(compare_gradient(p, m, &names[k], coef, e));
    return ST_OK;
}

static int compare_all(st_parity *p, const st_parity_samples *s, const st_parity_model *pm, st_error *e)
{
    const st_value *v = st_spec_get(pm->spec, "layer.E", "aux_coef");
    double coef = v ? strtod(v->text, NULL) : 0;

    if (!(coef > 0)) return st_fail(e, ST_E_DATA, "%s: config.json has no router_aux_loss_coef above 0", p->dir);
    ST_TRY(compare_logits(p, s, pm->model, e));
    for (int32_t i = 0; i < s->n; i++) ST_TRY(compare_sample(p, s, i, pm->model, coef, e));
    return ST_OK;
}

static int write_spec(st_parity *p, const st_parity_samples *s, st_buf *out, st_error *e)
{
    static const char none[] = ST_PARITY_NO_BALANCE;
    st_buf text = {0};
    int rc = st_parity_model_spec(p, s, NULL, &text, e);
    const char *at = rc == ST_OK ? strstr(text.data, none) : NULL;

    if (rc == ST_OK && !at) rc = st_fail(e, ST_E_DATA, "%s: config.json describes no experts", p->dir);
    if (rc == ST_OK) {
        st_buf_add(out, text.data, (size_t)(at - text.data));
        st_buf_printf(out, "aux = hf\n%s", at + strlen(none));
        if (out->failed) rc = st_fail(e, ST_E_NOMEM, "no memory for the spec of %s", p->dir);
    }
    st_buf_free(&text);
    return rc;
}

int st_parity_experts(st_parity *p, const st_parity_samples *s, st_diags *d)
{
    st_parity_model pm = {0};
    st_error e = {0};
    st_buf text = {0};
    int rc;

    if (!st_tensors_find(p->io, "s0.router_logits.0")) return ST_OK;
    rc = write_spec(p, s, &text, &e);
    if (rc == ST_OK) rc = st_parity_open_loaded(p, text.data, &pm, d);
    if (rc == ST_OK) rc = compare_all(p, s, &pm, &e);
    st_buf_free(&text);
    st_parity_model_close(&pm);
    if (e.code) st_diags_add(d, &e, NULL, false);
    return rc;
}
