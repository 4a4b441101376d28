/* SPDX-License-Identifier: Apache-2.0 */
/* model/guard.c - norm of all gradients, faults of kernels, the search for the first value that is not finite, the
 * probe. */
#include "model/private.h"
#include <math.h>
#include <string.h>

/* Sums of squares per bucket, added in a fixed order. */
int model_norm(st_model *m, double *norm, int32_t *finite, st_error *e)
{
    double sum = 0;

    if (!m->sums) m->sums = ST_NEW_N(m->arena, double, m->n_weights);
    if (!m->sums) return st_fail(e, ST_E_NOMEM, "no memory for the norm");
    ST_TRY(model_read_cells(m, m->sumsq_at, m->n_buckets, m->sums, e));
    for (int32_t i = 0; i < m->n_buckets; i++) sum += m->sums[i];
    *norm = sqrt(sum);
    *finite = isfinite(sum);
    return ST_OK;
}

/* ---- faults ---- */

static const char *fault_text(const model_part *p, const st_fault *f, char *out, size_t n)
{
    static const char *const text[] = {"none", "a value is not finite (%lld, %lld)",
                                       "an index is out of range (%lld, %lld)",
                                       "a capacity was too small (%lld, %lld)"};
    const st_plugin *plugin = p && p->proto ? p->proto->plugin : NULL;

    if (f->code >= ST_FAULT_USER && plugin && plugin->faults && f->code - ST_FAULT_USER < plugin->n_faults)
        snprintf(out, n, plugin->faults[f->code - ST_FAULT_USER], (long long)f->a, (long long)f->b);
    else if (f->code < ST_COUNT(text)) snprintf(out, n, text[f->code], (long long)f->a, (long long)f->b);
    else snprintf(out, n, "fault %u (%lld, %lld)", f->code, (long long)f->a, (long long)f->b);
    return out;
}

/* A fault carries the id of the part that ran. -> 1 and its words, 0, or an error. */
int model_fault(st_model *m, char out[256], st_error *e)
{
    st_fault f;
    const model_part *p;
    char who[128], what[120];

    ST_TRY(model_download(m, &f, m->cell_block.base + m->fault_at, sizeof f, e));
    if (f.code == ST_FAULT_NONE) return 0;
    p = f.layer >= 0 && f.layer < m->n_parts ? m->parts[f.layer] : NULL;
    model_words(m, p, who, sizeof who);
    snprintf(out, 256, "%s: %s", who, fault_text(p, &f, what, sizeof what));
    return 1;
}

/* ---- looking at tensors ---- */

static int fetch(st_model *m, const st_tensor *t, double **out, st_error *e)
{
    int64_t rows = t->dim[0], cols = t->nd > 1 ? t->dim[1] : 1, n = rows * cols;

    if (n > m->probe_cap) {
        m->probe_values = st_arena_alloc(m->arena, (size_t)n * sizeof(double));
        m->probe_cap = m->probe_values ? n : 0;
    }
    if (!m->probe_values) return st_fail(e, ST_E_NOMEM, "no memory to look at a tensor");
    ST_TRY(m->be.sync(m->device, e));
    ST_TRY(model_read_tensor(m, *t, m->probe_values, n, e));
    *out = m->probe_values;
    return ST_OK;
}

static void search(st_model *m, const char *name, int32_t layer, const st_tensor *t, const double *v)
{
    char who[120] = "";
    int residual = !strcmp(name, "residual"), depth = !strcmp(name, "depth.final");

    if (m->nonfinite[0]) return;
    for (int64_t i = 0; i < t->dim[0] * t->dim[1]; i++) {
        if (isfinite(v[i])) continue;
        if (residual) model_words(m, m->trunk->layers[layer], who, sizeof who);
        if (depth) snprintf(who, sizeof who, "%d", layer);
        snprintf(m->nonfinite, sizeof m->nonfinite, "activation: %s%s at token %lld, column %lld is %g",
                 residual ? "residual behind " : depth ? "final state of depth " : name, who,
                 (long long)(i / t->dim[1]), (long long)(i % t->dim[1]), v[i]);
        return;
    }
}

/* Called where a tensor of interest has just been made. */
void model_look(st_model *m, const char *name, int32_t layer, const st_tensor *t)
{
    st_error e = {0};
    double *v = NULL;

    if (m->run.planning || m->run.s.status != ST_OK || (!m->probe && !m->searching)) return;
    if (fetch(m, t, &v, &e) != ST_OK) {
        model_fail(m, e.code, "%s", e.message);
        return;
    }
    if (m->searching) search(m, name, layer, t, v);
    else m->probe(m->probe_ctx, name, layer, v, t->dim[0], t->dim[1]);
}

static bool is_real(int32_t dtype) { return dtype == ST_F64 || dtype == ST_F32 || dtype == ST_BF16; }

/* What a part has just kept, by the names of its table. */
void model_look_slots(st_model *m, const model_part *p, const frame *f)
{
    char name[80];

    if (m->run.planning || !m->probe || m->searching) return;
    for (int32_t i = 0; i < p->n_slots && i < MODEL_SLOTS; i++) {
        if (!f->slot[i].data || !is_real(f->slot[i].dtype)) continue;
        snprintf(name, sizeof name, "slot.%s", p->slots[i].name);
        model_look(m, name, p->index, &f->slot[i]);
    }
}

void st_model_probe(st_model *m, st_probe_fn fn, void *ctx)
{
    m->probe = fn;
    m->probe_ctx = ctx;
}

/* ---- what was bad first: a weight, an activation, the loss, a gradient ---- */

static int bad_weight(st_model *m, char out[256], st_error *e)
{
    double piece[1024];

    for (int32_t i = 0; i < m->n_weights; i++) {
        st_tensor t = model_weight_tensor(m, m->weights[i]);
        size_t width = st_dtype_size(t.dtype);
        for (int64_t at = 0; at < m->weights[i]->pub.count; at += 1024) {
            int64_t n = m->weights[i]->pub.count - at < 1024 ? m->weights[i]->pub.count - at : 1024;
            t.data = (char *)model_weight_tensor(m, m->weights[i]).data + (size_t)at * width;
            ST_TRY(model_read_tensor(m, t, piece, n, e));
            for (int64_t k = 0; k < n; k++) {
                if (isfinite(piece[k])) continue;
                snprintf(out, 256, "weight: %s element %lld is %g", m->weights[i]->pub.path, (long long)(at + k),
                         piece[k]);
                return 1;
            }
        }
    }
    return 0;
}

static int bad_activation(st_model *m, const st_packed_row *const *rows, int32_t micros, char out[256], st_error *e)
{
    int rc = ST_OK;

    m->nonfinite[0] = 0;
    m->searching = 1;
    for (int32_t i = 0; i < micros && rc == ST_OK && !m->nonfinite[0]; i++) {
        model_start(m);
        model_begin_step(m, ST_EVAL, 1);
        rc = model_row_upload(m, rows[i], e);
        if (rc != ST_OK) break;
        model_micro(m, ST_EVAL, 0);
        rc = model_end(m, e);
    }
    m->searching = 0;
    if (rc != ST_OK || !m->nonfinite[0]) return rc;
    snprintf(out, 256, "%s", m->nonfinite);
    return 1;
}

/* Sums of squares per weight, into m->sums. */
static int sums_of_weights(st_model *m, st_error *e)
{
    st_step *s = &m->run.s;
    size_t acc = st_dtype_size(m->acc_dtype);

    model_start(m);
    model_zero(m, m->cell_block.base + m->sumsq_at, (size_t)m->n_weights * acc);
    for (int32_t i = 0; i < m->n_weights; i++) {
        st_tensor g = model_grad_tensor(m, m->weights[i]), cell = model_cell(m, m->sumsq_at + (size_t)i * acc, 1);
        if (g.data) ST_OP(s, sumsq, &g, 1.0, &cell);
    }
    ST_TRY(model_end(m, e));
    return model_read_cells(m, m->sumsq_at, m->n_weights, m->sums, e);
}

/* In the order in which backward made them: the first is nearest to the cause. */
static int bad_gradient(st_model *m, char out[256], st_error *e)
{
    const model_weight *first = NULL;

    ST_TRY(sums_of_weights(m, e));
    for (int32_t i = 0; i < m->n_weights; i++) {
        const model_weight *w = m->weights[i];
        if (w->trains && !isfinite(m->sums[i]) && (!first || w->order < first->order)) first = w;
    }
    snprintf(out, 256, "%s%s", first ? "gradient: " : "the sum of all squared gradients", first ? first->pub.path : "");
    return ST_OK;
}

int model_find_bad(st_model *m, const st_packed_row *const *rows, int32_t micros, double loss, char out[256],
                   st_error *e)
{
    int found = bad_weight(m, out, e);

    if (found == 0) found = bad_activation(m, rows, micros, out, e);
    if (found < 0) return found;
    if (found) return ST_OK;
    if (isfinite(loss)) return bad_gradient(m, out, e);
    snprintf(out, 256, "loss: %g, with every activation finite", loss);
    return ST_OK;
}
