/* SPDX-License-Identifier: Apache-2.0 */
/* parity/rule_case.c - the gated delta rule alone: outputs, final state and all gradients, packed segments and initial states, by
 * running the layer plugin delta_rule on rows made of the given tensors (its source file states the columns). */
#include "config.h"
#include "data/sequence.h"
#include "parity/parity.h"
#include <stdlib.h>
#include <string.h>

#define GATE_F64 1e-9
#define OUT_F32 5e-5
#define GRADIENT_F32 1e-3

typedef struct rule {
    int index;
    int64_t tokens, hk, hv, dk, dv, hidden; /* hidden: width of the layer, room for both layouts */
    int64_t k, v, beta, g, s0, state;       /* first columns; q and out begin at 0 */
    int n_seg;
    double *cu;
} rule;

static int read_shape(st_parity *p, rule *r, st_error *e)
{
    const st_file_tensor *q, *v;
    double *unused;
    char key[64];
    int64_t n, need_x, need_y;

    snprintf(key, sizeof key, "%d.q", r->index);
    ST_TRY(st_parity_get(p, key, &unused, NULL, &q, e));
    snprintf(key, sizeof key, "%d.v", r->index);
    ST_TRY(st_parity_get(p, key, &unused, NULL, &v, e));
    snprintf(key, sizeof key, "%d.cu_seqlens", r->index);
    ST_TRY(st_parity_need(p, key, &r->cu, &n, e));
    if (!unused || q->nd != 3 || v->nd != 3 || n < 2)
        return st_fail(e, ST_E_DATA,
                       "%s: %d.q and %d.v must be [tokens, heads, width], %d.cu_seqlens two or more borders", p->dir,
                       r->index, r->index, r->index);
    r->tokens = q->dim[0];
    r->hk = q->dim[1];
    r->dk = q->dim[2];
    r->hv = v->dim[1];
    r->dv = v->dim[2];
    r->n_seg = (int)n - 1;
    for (int64_t i = 0; i < n; i++)
        if (!(i ? r->cu[i] > r->cu[i - 1] : r->cu[0] == 0) || (i + 1 == n && r->cu[i] != (double)r->tokens))
            return st_fail(e, ST_E_DATA, "%s: %s must rise from 0 to the %lld tokens of %d.q, value %lld is %g", p->dir,
                           key, (long long)r->tokens, r->index, (long long)i, r->cu[i]);
    r->k = r->hk * r->dk;
    r->v = 2 * r->k;
    r->beta = r->v + r->hv * r->dv;
    r->g = r->beta + r->hv;
    r->s0 = r->g + r->hv;
    r->state = r->hv * r->dv;
    need_x = r->s0 + r->hv * r->dk * r->dv;
    need_y = r->state + r->hv * r->dk * r->dv;
    r->hidden = need_x > need_y ? need_x : need_y;
    return ST_OK;
}

/* Columns [first, first + width) of `rows`, from or to the tight tensor `name`. */
static int put(st_parity *p, const rule *r, const char *name, double *rows, int64_t first, int64_t width, st_error *e)
{
    char key[64];
    double *v;

    snprintf(key, sizeof key, "%d.%s", r->index, name);
    ST_TRY(st_parity_take(p, key, r->tokens * width, &v, e));
    for (int64_t t = 0; t < r->tokens; t++)
        memcpy(rows + t * r->hidden + first, v + t * width, (size_t)width * sizeof *v);
    return ST_OK;
}

/* A state sits in one row: the first token's (S0) or the last token's (final state). */
static int put_state(st_parity *p, const rule *r, const char *name, double *row, st_error *e)
{
    char key[64];
    double *v;
    int64_t n = r->hv * r->dk * r->dv;

    snprintf(key, sizeof key, "%d.%s", r->index, name);
    ST_TRY(st_parity_take(p, key, n, &v, e));
    memcpy(row, v, (size_t)n * sizeof *v);
    return ST_OK;
}

static int compare(st_parity *p, const rule *r, const char *name, const double *rows, int64_t count, int64_t width,
                   double f32, st_error *e)
{
    char key[64];
    int64_t n = count * width;
    double *want, *got = ST_NEW_N(p->arena, double, n), gate = p->type == ST_PARITY_F64 ? GATE_F64 : f32;

    snprintf(key, sizeof key, "%d.%s", r->index, name);
    ST_TRY(st_parity_take(p, key, n, &want, e));
    if (!got) return st_fail(e, ST_E_NOMEM, "no memory for %s", key);
    for (int64_t t = 0; t < count; t++) memcpy(got + t * width, rows + t * r->hidden, (size_t)width * sizeof *got);
    return st_parity_compare(p, key, want, got, n, ST_BY_NORM, gate, e);
}

static int pack(st_parity *p, const rule *r, st_model *m, st_packed_row **row, st_error *e)
{
    st_worker w = {.size = sizeof w, .host = &p->base->host, .arena = p->arena, .error = e};

    ST_TRY(st_row_create(p->arena, st_model_shape(m), row, e));
    st_row_clear(*row);
    for (int i = 0; i < r->n_seg; i++) {
        st_prepared q;
        int32_t fits;
        ST_TRY(st_sequence_blank(&w, (int64_t)(r->cu[i + 1] - r->cu[i]), 1, -1, &q));
        q.index = i;
        q.id = "segment";
        ST_TRY(st_row_add(*row, &q, &fits, e));
        if (!fits) return st_fail(e, ST_E_INTERNAL, "segment %d does not fit into a row made for it", i);
    }
    return st_sequence_finish(*row, NULL, &w);
}

static int run_layer(st_parity *p, const rule *r, st_model *m, st_error *e)
{
    int64_t rows = st_model_shape(m)->tokens, size = rows * r->hidden, state = r->hv * r->dk * r->dv;
    double *x = ST_NEW_N(p->arena, double, size), *y = ST_NEW_N(p->arena, double, size),
           *dy = ST_NEW_N(p->arena, double, size), *dx = ST_NEW_N(p->arena, double, size);
    double *last = (r->tokens - 1) * r->hidden + r->state + dy;
    st_packed_row *row;

    if (!x || !y || !dy || !dx) return st_fail(e, ST_E_NOMEM, "no memory for %lld values", (long long)size);
    ST_TRY(put(p, r, "q", x, 0, r->hk * r->dk, e));
    ST_TRY(put(p, r, "k", x, r->k, r->hk * r->dk, e));
    ST_TRY(put(p, r, "v", x, r->v, r->hv * r->dv, e));
    ST_TRY(put(p, r, "beta", x, r->beta, r->hv, e));
    ST_TRY(put(p, r, "g", x, r->g, r->hv, e));
    ST_TRY(put_state(p, r, "S0", x + r->s0, e));
    ST_TRY(put(p, r, "dout", dy, 0, r->hv * r->dv, e));
    ST_TRY(put_state(p, r, "dstate", last, e));
    ST_TRY(pack(p, r, m, &row, e));
    ST_TRY(st_model_layer_run(m, 0, row, x, y, dy, dx, e));
    ST_TRY(compare(p, r, "out", y, r->tokens, r->hv * r->dv, OUT_F32, e));
    ST_TRY(compare(p, r, "state", y + (r->tokens - 1) * r->hidden + r->state, 1, state, OUT_F32, e));
    ST_TRY(compare(p, r, "dq", dx, r->tokens, r->hk * r->dk, GRADIENT_F32, e));
    ST_TRY(compare(p, r, "dk", dx + r->k, r->tokens, r->hk * r->dk, GRADIENT_F32, e));
    ST_TRY(compare(p, r, "dv", dx + r->v, r->tokens, r->hv * r->dv, GRADIENT_F32, e));
    ST_TRY(compare(p, r, "dbeta", dx + r->beta, r->tokens, r->hv, GRADIENT_F32, e));
    ST_TRY(compare(p, r, "dg", dx + r->g, r->tokens, r->hv, GRADIENT_F32, e));
    return compare(p, r, "dS0", dx + r->s0, 1, state, GRADIENT_F32, e);
}

static int run_case(st_parity *p, int index, st_diags *d)
{
    rule r = {.index = index};
    st_parity_model pm = {0};
    st_buf text = {0};
    st_error e = {0};
    int rc = read_shape(p, &r, &e);

    if (rc == ST_OK) {
        st_buf_printf(&text,
                      "[stack]\npattern = D\nhidden = %lld\nvocab = 8\n[layer.D]\nplugin = delta_rule\nkey_heads = "
                      "%lld\nvalue_heads = %lld\nkey_dim = %lld\nvalue_dim = %lld\n"
                      "states = yes\n[run]\nprecision = %s\nbackend = %s\n[batch]\ntokens = %lld\nsequences = "
                      "%d\n[position]\nplugin = none\n[optimizer]\nplugin = adamw\n",
                      (long long)r.hidden, (long long)r.hk, (long long)r.hv, (long long)r.dk, (long long)r.dv,
                      st_parity_precision(p), p->backend, (long long)r.tokens, r.n_seg);
        rc = text.failed ? st_fail(&e, ST_E_NOMEM, "no memory for a spec")
                         : st_parity_model_open(p, text.data, 1, &pm, d);
    }
    if (rc == ST_OK) rc = run_layer(p, &r, pm.model, &e);
    if (e.code) st_diags_add(d, &e, NULL, false);
    st_buf_free(&text);
    st_parity_model_close(&pm);
    return rc;
}

int st_parity_rule_case(st_parity *p, st_diags *d)
{
    char key[64];

    for (int i = 0;; i++) {
        snprintf(key, sizeof key, "%d.q", i);
        if (!st_tensors_find(p->io, key)) return ST_OK;
        ST_TRY(run_case(p, i, d));
    }
}
