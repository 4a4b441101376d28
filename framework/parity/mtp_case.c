/* SPDX-License-Identifier: Apache-2.0 */
/* parity/mtp_case.c - the model of a folder with multi-token-prediction depths: logits and losses per depth and sample,
 * and gradients of the mean over depths of the depths' losses alone.
 *
 * config.json does not describe the depths. Their number comes from the keys (d1.*, d2.*); each is one full-attention
 * block with the trunk's kind of MLP. */
#include "config.h"
#include "parity/samples.h"
#include <stdlib.h>
#include <string.h>

typedef struct depths {
    st_parity *p; /* mtp_io.safetensors */
    st_parity_samples s;
    st_parity_model pm;
    int32_t n;
    double **final; /* [n] state of each depth behind its norm, [tokens, hidden] */
} depths;

static int count_depths(depths *t, st_error *e)
{
    for (int32_t i = 0; i < t->p->n_io; i++) {
        int depth = 0;
        if (sscanf(t->p->io_list[i].name, "d%d.", &depth) == 1 && depth > t->n) t->n = depth;
    }
    if (t->n < 1 || t->n > ST_PATTERN_DEPTHS)
        return st_fail(e, ST_E_DATA, "%s: the keys name %d depths (d1.*, d2.*, ...), not 1 to %d", t->p->title, t->n,
                       ST_PATTERN_DEPTHS);
    t->final = ST_NEW_N(t->p->arena, double *, t->n);
    return t->final ? ST_OK : st_fail(e, ST_E_NOMEM, "no memory for %d depths", t->n);
}

/* The folder's spec with the depths behind the trunk's pattern, and the losses weighed as the reference did. */
static int write_spec(depths *t, st_parity *folder, st_buf *out, st_error *e)
{
    static const char key[] = "\npattern = ";
    st_buf text = {0};
    int rc = st_parity_model_spec(folder, &t->s, NULL, &text, e);
    const char *at = rc == ST_OK ? strstr(text.data, key) : NULL, *end = at ? strchr(at + 1, '\n') : NULL;

    if (rc == ST_OK && (!end || end - at < (ptrdiff_t)sizeof key))
        rc = st_fail(e, ST_E_INTERNAL, "%s: config.json gave no pattern", t->p->dir);
    if (rc == ST_OK) {
        st_buf_add(out, text.data, (size_t)(end - text.data));
        for (int32_t k = 0; k < t->n; k++) st_buf_printf(out, "/*%c", end[-1]);
        st_buf_printf(out, "%s\n[head.lm]\nweight = 0\n\n[head.mtp]\nloss_weight = 1\n", end);
        if (out->failed) rc = st_fail(e, ST_E_NOMEM, "no memory for the spec of %s", t->p->dir);
    }
    st_buf_free(&text);
    return rc;
}

static int load(depths *t, st_error *e)
{
    const char *files[2] = {st_path_join(t->p->arena, t->p->dir, "weights.safetensors"),
                            st_path_join(t->p->arena, t->p->dir, "mtp_weights.safetensors")};

    if (!files[0] || !files[1]) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    return st_checkpoint_load_hf_files(files, 2, t->pm.model, NULL, e);
}

/* ---- logits ---- */

static void look(void *ctx, const char *name, int32_t depth, const double *values, int64_t rows, int64_t cols)
{
    depths *t = ctx;

    if (strcmp(name, "depth.final") != 0 || depth < 1 || depth > t->n) return;
    t->final[depth - 1] = ST_NEW_N(t->p->arena, double, rows * cols);
    if (t->final[depth - 1]) memcpy(t->final[depth - 1], values, (size_t)(rows * cols) * sizeof *values);
}

static int compare_logits(depths *t, st_error *e)
{
    int64_t vocab = st_model_vocab(t->pm.model), count;
    double *got = ST_NEW_N(t->p->arena, double, t->s.tokens * vocab), sum;
    int rc;

    if (!got) return st_fail(e, ST_E_NOMEM, "no memory for the logits of %s", t->p->title);
    st_model_probe(t->pm.model, look, t);
    rc = st_model_evaluate(t->pm.model, t->s.row, &sum, &count, NULL, NULL, e);
    st_model_probe(t->pm.model, NULL, NULL);
    if (rc != ST_OK) return rc;
    for (int32_t k = 0; k < t->n; k++) {
        if (!t->final[k]) return st_fail(e, ST_E_INTERNAL, "depth %d showed no state", k + 1);
        ST_TRY(st_parity_logits(t->p, t->pm.model, t->final[k], t->s.tokens, got, e));
        for (int32_t i = 0; i < t->s.n; i++) {
            char key[64];
            double *want;
            int64_t n = t->s.at[i].n * vocab;
            snprintf(key, sizeof key, "d%d.s%d.logits", k + 1, i);
            ST_TRY(st_parity_take(t->p, key, n, &want, e));
            ST_TRY(st_parity_compare(t->p, key, want, got + t->s.first[i] * vocab, n, ST_BY_NORM,
                                     st_parity_gate(t->p, ST_PARITY_LOGITS_F32), e));
        }
    }
    return ST_OK;
}

/* ---- losses and gradients ---- */

/* The loss of a depth as the step logs it: sum / count; 0 where no token has a label. */
static double logged_loss(const st_step_result *r, int32_t depth)
{
    char name[32];

    snprintf(name, sizeof name, "mtp.%d.loss", depth);
    for (int32_t i = 0; i < r->n_metrics; i++)
        if (strcmp(r->metrics[i].name, name) == 0 && r->metrics[i].valid) return r->metrics[i].value;
    return 0;
}

static int compare_loss(depths *t, const char *key, double got, st_error *e)
{
    double *want;

    ST_TRY(st_parity_take(t->p, key, 1, &want, e));
    return st_parity_compare(t->p, key, want, &got, 1, ST_BY_NORM, st_parity_gate(t->p, ST_PARITY_LOSS_F32), e);
}

/* Every sample in a row of its own: the step then logs that sample's losses. */
static int compare_sample_losses(depths *t, st_error *e)
{
    const st_packed_row *rows[1];
    st_packed_row *row;
    st_step_result r;

    ST_TRY(st_row_create(t->p->arena, st_model_shape(t->pm.model), &row, e));
    rows[0] = row;
    for (int32_t i = 0; i < t->s.n; i++) {
        ST_TRY(st_parity_samples_fill(t->p, &t->s, i, 1, t->pm.model, row, e));
        ST_TRY(st_model_gradients(t->pm.model, rows, 1, &r, e));
        for (int32_t k = 0; k < t->n; k++) {
            char key[64];
            snprintf(key, sizeof key, "d%d.s%d.loss", k + 1, i);
            ST_TRY(compare_loss(t, key, logged_loss(&r, k + 1), e));
        }
    }
    return ST_OK;
}

static int compare_gradients(depths *t, st_error *e)
{
    const st_packed_row *rows[1] = {t->s.row};
    const st_file_name *names;
    st_step_result r;
    int n = st_family_names(t->pm.model, "hf", &names);

    ST_TRY(st_model_gradients(t->pm.model, rows, 1, &r, e));
    for (int32_t k = 0; k < t->n; k++) {
        char key[64];
        double *want, trained = (double)t->s.row->trained_count[k + 1];
        snprintf(key, sizeof key, "d%d.loss", k + 1);
        ST_TRY(compare_loss(t, key, logged_loss(&r, k + 1), e));
        snprintf(key, sizeof key, "d%d.ntok", k + 1);
        ST_TRY(st_parity_take(t->p, key, 1, &want, e));
        ST_TRY(st_parity_compare(t->p, key, want, &trained, 1, ST_BY_MAX, 0, e));
    }
    for (int i = 0; i < n; i++) ST_TRY(st_parity_gradient(t->p, t->pm.model, &names[i], 0, e));
    return ST_OK;
}

/* ---- the case ---- */

static int compare(depths *t, st_parity *in, st_error *e)
{
    ST_TRY(load(t, e));
    ST_TRY(st_parity_samples_pack(in, &t->s, t->pm.model, e));
    ST_TRY(compare_logits(t, e));
    ST_TRY(compare_sample_losses(t, e));
    return compare_gradients(t, e);
}

int st_parity_mtp_case(st_parity *folder, st_parity *p, st_diags *d)
{
    depths t = {.p = p};
    st_parity in = *folder; /* samples come from its io, but its table is printed already */
    st_error e = {0};
    st_buf text = {0};
    int rc;

    in.rows = NULL;
    in.n = in.cap = 0;
    in.type = p->type;
    rc = count_depths(&t, &e);
    if (rc == ST_OK) rc = st_parity_samples_read(&in, &t.s, &e);
    if (rc == ST_OK) rc = write_spec(&t, &in, &text, &e);
    if (rc == ST_OK) rc = st_parity_model_open(p, text.data, 1, &t.pm, d);
    if (rc == ST_OK) rc = compare(&t, &in, &e);
    if (e.code) st_diags_add(d, &e, NULL, false);
    st_parity_model_close(&t.pm);
    st_buf_free(&text);
    return rc;
}
