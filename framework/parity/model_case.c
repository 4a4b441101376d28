/* SPDX-License-Identifier: Apache-2.0 */
/* parity/model_case.c - a whole model: vision, hidden states, logits, losses, every gradient, and a training curve. */
#include "config.h"
#include "checkpoint/hf_config.h"
#include "parity/samples.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The gates: what f64 must reach, and f32; bf16 has a peer's (a curve amplifies rounding by 1e5 in twenty steps, so f32
 * compares its start only). */
#define DEVICE_F32 1e-4 /* at least, of a device that sums in an order of its own */
double st_parity_gate(const st_parity *p, double f32_gate)
{
    if (p->type == ST_PARITY_BF16) return INFINITY;
    if (p->type == ST_PARITY_F32 && strcmp(p->backend, "cpu")) return fmax(f32_gate, DEVICE_F32);
    return p->type != ST_PARITY_F64 ? f32_gate : st_parity_stored_f32(p) ? 1e-6 : 1e-9;
}
#define VISION_F32 1e-5
#define HIDDEN_F32 5e-5
#define CURVE_F64 1e-7
#define CURVE_F32 1e-4
#define CURVE_F32_STEPS 3

/* ---- a model from text ---- */

int st_parity_model_open(st_parity *p, const char *text, int train, st_parity_model *pm, st_diags *d)
{
    st_error e = {0};
    int rc = st_spec_parse(p->dir, text, strlen(text), p->dir, &pm->spec, d);

    if (rc == ST_OK) rc = st_model_build(p->base, pm->spec, p->registry, train, &pm->model, d);
    if (rc == ST_OK) rc = st_spec_check_unused(pm->spec, d);
    if (rc != ST_OK) return rc;
    rc = st_model_plan(pm->model, &e);
    if (rc == ST_OK) rc = st_model_open(pm->model, &e);
    return rc == ST_OK ? ST_OK : st_diags_add(d, &e, NULL, false);
}

void st_parity_model_close(st_parity_model *pm)
{
    if (pm->model) st_model_destroy(pm->model);
    if (pm->spec) st_spec_destroy(pm->spec);
    memset(pm, 0, sizeof *pm);
}

json_t *st_parity_json(st_parity *p, const char *name, st_error *e)
{
    char *path = st_path_join(p->arena, p->dir, name), *text;
    json_error_t why;
    size_t n;
    json_t *j;

    if (!path || st_file_read(path, p->arena, &text, &n, e) != ST_OK) return NULL;
    j = json_loadb(text, n, JSON_ALLOW_NUL, &why);
    if (!j) st_fail_at(e, ST_E_DATA, path, why.line, why.column, "%s", why.text);
    return j;
}

/* config.json does not say how the balance loss of layers with experts is formed; reference values are without it. */
static void leave_out_balance(st_buf *text)
{
    static const char head[] = "[layer.E]\n";
    char *at = text->data ? strstr(text->data, head) : NULL, *rest = at ? strdup(at + strlen(head)) : NULL;

    if (!rest) return;
    text->n = (size_t)(at - text->data);
    st_buf_printf(text, "%s" ST_PARITY_NO_BALANCE "%s", head, rest);
    free(rest);
}

int st_parity_model_spec(st_parity *p, const st_parity_samples *s, json_t *train, st_buf *text, st_error *e)
{
    json_t *betas = json_object_get(train, "betas");

    ST_TRY(st_hf_config_spec(st_path_join(p->arena, p->dir, "config.json"), text, e));
    st_buf_printf(text, "\n[run]\nprecision = %s\nbackend = %s\n", st_parity_precision(p), p->backend);
    st_buf_printf(text, "\n[batch]\ntokens = %d\nsequences = %d\n", s->tokens, s->n);
    if (s->patches) st_buf_printf(text, "images = %d\npatches = %d\npatch_values = yes\n", s->images, s->patches);
    leave_out_balance(text);
    st_buf_puts(text, "\n[optimizer]\nplugin = adamw\n");
    if (train)
        st_buf_printf(text, "beta1 = %.17g\nbeta2 = %.17g\neps = %.17g\nweight_decay = %.17g\n",
                      json_number_value(json_array_get(betas, 0)), json_number_value(json_array_get(betas, 1)),
                      json_number_value(json_object_get(train, "eps")),
                      json_number_value(json_object_get(train, "weight_decay")));
    return text->failed ? st_fail(e, ST_E_NOMEM, "no memory for the spec of %s", p->dir) : ST_OK;
}

/* ---- what the forward shows ---- */

typedef struct seen { double *features, *final, **hidden; int64_t width, rows, n_hidden, feature_count, rc; } seen;

static double *copy_values(const double *v, int64_t n)
{
    double *c = malloc((size_t)(n ? n : 1) * sizeof *c);

    if (c) memcpy(c, v, (size_t)n * sizeof *c);
    return c;
}

/* Reference hidden states: 0 is the embedding, l the stream after block l - 1, the last one is after the final norm. Two layers
 * make a block here. */
static void look(void *ctx, const char *name, int32_t layer, const double *values, int64_t rows, int64_t cols)
{
    seen *s = ctx;

    if (strcmp(name, "features") == 0) {
        free(s->features);
        s->features = copy_values(values, rows * cols);
        s->feature_count = rows * cols;
        return;
    }
    if (strcmp(name, "final") == 0) {
        free(s->final);
        s->final = copy_values(values, rows * cols);
        s->width = cols;
        s->rows = rows;
        return;
    }
    int64_t at = strcmp(name, "embed") == 0 ? 0 : strcmp(name, "residual") == 0 && layer % 2 == 1 ? (layer + 1) / 2 : -1;
    if (at < 0 || at >= s->n_hidden) return;
    free(s->hidden[at]);
    s->hidden[at] = copy_values(values, rows * cols);
}

static void forget(seen *s)
{
    free(s->features);
    free(s->final);
    for (int64_t i = 0; s->hidden && i < s->n_hidden; i++) free(s->hidden[i]);
    free(s->hidden);
}

static int compare_hidden(st_parity *p, const st_parity_samples *s, const seen *v, st_error *e)
{
    for (int32_t i = 0; i < s->n; i++) {
        for (int64_t l = 0; l <= v->n_hidden; l++) { /* the last comes from the final norm */
            const double *from = l < v->n_hidden ? v->hidden[l] : v->final;
            char key[64];
            double *want;
            int64_t n = s->at[i].n * v->width;
            if (!from) return st_fail(e, ST_E_NOMEM, "no memory for the hidden states of %s", p->dir);
            snprintf(key, sizeof key, "s%d.hidden.%lld", i, (long long)l);
            ST_TRY(st_parity_take(p, key, n, &want, e));
            ST_TRY(st_parity_compare(p, key, want, from + s->first[i] * v->width, n, ST_BY_NORM,
                                     st_parity_gate(p, HIDDEN_F32), e));
        }
    }
    return ST_OK;
}

static int compare_vision(st_parity *p, const st_parity_samples *s, const seen *v, st_error *e)
{
    int64_t at = 0;

    for (int32_t i = 0; i < s->n; i++) {
        char key[64];
        double *want;
        int64_t n;
        snprintf(key, sizeof key, "s%d.vision", i);
        ST_TRY(st_parity_get(p, key, &want, &n, NULL, e));
        if (!want) continue;
        if (at + n > v->feature_count)
            return st_fail(e, ST_E_DATA, "%s: %s needs %lld values behind %lld, the encoder made %lld", p->dir, key,
                           (long long)n, (long long)at, (long long)v->feature_count);
        ST_TRY(st_parity_compare(p, key, want, v->features + at, n, ST_BY_NORM, st_parity_gate(p, VISION_F32), e));
        at += n;
    }
    return ST_OK;
}

static void multiply(const st_parity *p, const double *h, const double *w, int64_t rows, int64_t vocab, int64_t width,
                     double *out)
{
    for (int64_t t = 0; t < rows; t++) {
        for (int64_t o = 0; o < vocab; o++) {
            const double *a = h + t * width, *b = w + o * width;
            double sum = 0;
            float sum32 = 0;
            for (int64_t k = 0; k < width; k++) {
                sum += a[k] * b[k];
                sum32 += (float)a[k] * (float)b[k];
            }
            out[t * vocab + o] = p->type == ST_PARITY_F64 ? sum : (double)sum32;
        }
    }
}

int st_parity_logits(st_parity *p, st_model *m, const double *h, int64_t rows, double *out, st_error *e)
{
    int head = st_model_find_weight(m, "lm_head");
    int64_t vocab = st_model_vocab(m), width = st_model_hidden(m);
    double *w = ST_NEW_N(p->arena, double, vocab * width);

    if (head < 0) head = st_model_find_weight(m, "embed");
    if (head < 0 || !w) return st_fail(e, ST_E_NOMEM, "no memory for the logits of %s", p->dir);
    ST_TRY(st_model_read(m, head, ST_READ_WEIGHT, w, e));
    multiply(p, h, w, rows, vocab, width, out);
    return ST_OK;
}

static int compare_logits(st_parity *p, const st_parity_samples *s, st_model *m, const seen *v, st_error *e)
{
    int64_t vocab = st_model_vocab(m);
    double *got = ST_NEW_N(p->arena, double, s->tokens * vocab);

    if (!got) return st_fail(e, ST_E_NOMEM, "no memory for the logits of %s", p->dir);
    ST_TRY(st_parity_logits(p, m, v->final, s->tokens, got, e));
    for (int32_t i = 0; i < s->n; i++) {
        char key[64];
        double *want;
        int64_t n = s->at[i].n * vocab;
        snprintf(key, sizeof key, "s%d.logits", i);
        ST_TRY(st_parity_take(p, key, n, &want, e));
        ST_TRY(st_parity_compare(p, key, want, got + s->first[i] * vocab, n, ST_BY_NORM,
                                 st_parity_gate(p, ST_PARITY_LOGITS_F32), e));
    }
    return ST_OK;
}

static int compare_losses(st_parity *p, const st_parity_samples *s, const double *nll, st_error *e)
{
    for (int32_t i = 0; i < s->n; i++) {
        char key[64];
        double *want, got = 0;
        int64_t count = 0;
        snprintf(key, sizeof key, "s%d.loss", i);
        ST_TRY(st_parity_take(p, key, 1, &want, e));
        for (int32_t t = 0; t + 1 < s->at[i].n; t++) {
            if (!s->at[i].train[t + 1]) continue;
            got += nll[s->first[i] + t];
            count++;
        }
        got = count ? got / (double)count : 0;
        ST_TRY(st_parity_compare(p, key, want, &got, 1, ST_BY_NORM, st_parity_gate(p, ST_PARITY_LOSS_F32), e));
    }
    return ST_OK;
}

static int compare_forward(st_parity *p, const st_parity_samples *s, st_model *m, st_error *e)
{
    const st_model_layer *layers;
    seen v = {0};
    double sum, *nll = ST_NEW_N(p->arena, double, s->tokens);
    int64_t count, blocks = 0;
    int rc;

    for (int i = 0, n = st_model_layers(m, &layers); i < n; i++)
        if (layers[i].kind == ST_KIND_LAYER && strncmp(layers[i].path, "layers.", 7) == 0) blocks = (layers[i].index + 2) / 2;
    v.n_hidden = blocks;
    v.hidden = calloc((size_t)blocks + 1, sizeof *v.hidden);
    if (!nll || !v.hidden) return st_fail(e, ST_E_NOMEM, "no memory to compare %s", p->dir);
    st_model_probe(m, look, &v);
    rc = st_model_evaluate(m, s->row, &sum, &count, nll, NULL, e);
    st_model_probe(m, NULL, NULL);
    if (rc == ST_OK && s->patches) rc = compare_vision(p, s, &v, e);
    if (rc == ST_OK) rc = compare_hidden(p, s, &v, e);
    if (rc == ST_OK) rc = compare_logits(p, s, m, &v, e);
    if (rc == ST_OK) rc = compare_losses(p, s, nll, e);
    forget(&v);
    return rc;
}

/* ---- gradients ---- */

int st_parity_gradient(st_parity *p, st_model *m, const st_file_name *f, int needed, st_error *e)
{
    const st_model_weight *const *weights;
    char *key = st_arena_printf(p->arena, "grad.%s", f->file_name);
    double *want, *whole, *part;

    (void)st_model_weights(m, &weights);
    const st_model_weight *w = weights[f->weight];
    int64_t n = st_weight_part_count(w, f);
    if (!key) return st_fail(e, ST_E_NOMEM, "no memory to compare the gradient of %s", w->path);
    if (!needed && !st_tensors_find(p->io, key)) return ST_OK;
    ST_TRY(st_parity_take(p, key, n, &want, e));
    whole = ST_NEW_N(p->arena, double, w->count);
    part = ST_NEW_N(p->arena, double, w->count);
    if (!whole || !part) return st_fail(e, ST_E_NOMEM, "no memory to compare %s", key);
    ST_TRY(st_model_read(m, f->weight, ST_READ_GRAD, whole, e));
    st_weight_part(w, f, whole, part);
    return st_parity_compare(p, key, want, part, n, ST_BY_NORM, st_parity_gate(p, ST_PARITY_GRADIENT_F32), e);
}

static int compare_gradients(st_parity *p, const st_parity_samples *s, st_model *m, st_error *e)
{
    const st_packed_row *rows[1] = {s->row};
    const st_file_name *names;
    st_step_result r = {0};
    double *want, got;
    int n = st_family_names(m, "hf", &names);

    ST_TRY(st_model_gradients(m, rows, 1, &r, e));
    ST_TRY(st_parity_take(p, "loss", 1, &want, e));
    ST_TRY(st_parity_compare(p, "loss", want, &r.loss, 1, ST_BY_NORM, st_parity_gate(p, ST_PARITY_LOSS_F32), e));
    ST_TRY(st_parity_take(p, "ntok", 1, &want, e));
    got = (double)r.trained;
    ST_TRY(st_parity_compare(p, "ntok", want, &got, 1, ST_BY_MAX, 0, e));
    for (int i = 0; i < n; i++) ST_TRY(st_parity_gradient(p, m, &names[i], 1, e));
    return ST_OK;
}

/* ---- the training curve ---- */

/* A training curve amplifies rounding: Adam turns a gradient near zero into a step of the size of the learning rate, whatever its
 * sign. How far that goes is measured by a second curve from weights moved by a few units of the last place. What an error of the
 * reference and one of ours may do together is taken as REACH times the distance of the two. */
#define NUDGE_UNITS 64
#define REACH 16

typedef struct curve { size_t n; double *loss, *norm; } curve;

static int run_curve(st_parity *p, const st_parity_samples *s, st_model *m, json_t *train, curve *c, st_error *e)
{
    const st_packed_row *rows[1] = {s->row};
    st_schedule schedule = {.size = sizeof schedule, .lr = json_number_value(json_object_get(train, "lr")), .lr_scale = 1};

    c->loss = ST_NEW_N(p->arena, double, c->n);
    c->norm = ST_NEW_N(p->arena, double, c->n);
    if (!c->loss || !c->norm) return st_fail(e, ST_E_NOMEM, "no memory for a curve of %zu steps", c->n);
    for (size_t i = 0; i < c->n; i++) {
        st_step_result r = {0};
        schedule.step = (int64_t)i + 1;
        ST_TRY(st_model_step(m, rows, 1, &schedule, json_number_value(json_object_get(train, "clip")), &r, e));
        c->loss[i] = r.loss;
        c->norm[i] = r.grad_norm;
    }
    return ST_OK;
}

static int nudge(st_parity *p, st_model *m, st_error *e)
{
    const st_model_weight *const *w;
    double unit = NUDGE_UNITS * (p->type == ST_PARITY_F64 ? 0x1p-53 : 0x1p-24);

    for (int32_t i = 0, n = st_model_weights(m, &w); i < n; i++) {
        double *v = malloc((size_t)w[i]->count * sizeof *v), *u = malloc((size_t)w[i]->count * sizeof *u);
        int rc = v && u ? st_model_read(m, i, ST_READ_WEIGHT, v, e) : st_fail(e, ST_E_NOMEM, "no memory for %s", w[i]->path);
        if (rc == ST_OK) {
            st_uniform(1, (uint64_t)i, 0, w[i]->count, u);
            for (int64_t k = 0; k < w[i]->count; k++) v[k] += v[k] * unit * (2 * u[k] - 1);
            rc = st_model_write(m, i, v, e);
        }
        free(v);
        free(u);
        if (rc != ST_OK) return rc;
    }
    return ST_OK;
}

static double distance(double a, double b) { return b != 0 ? fabs(a - b) / fabs(b) : fabs(a); }

/* Every step by itself: early large losses must not hide later ones. */
static int compare_curves(st_parity *p, json_t *train, const char *prefix, const curve *c, const curve *moved, st_error *e)
{
    json_t *losses = json_object_get(train, "losses"), *norms = json_object_get(train, "grad_norms");
    double gate = p->type == ST_PARITY_F64 ? CURVE_F64 : CURVE_F32, loss_reach = 0, norm_reach = 0;

    for (size_t i = 0; i < c->n; i++) {
        char name[64];
        if (moved) { /* once lost, not regained by luck */
            loss_reach = fmax(loss_reach, REACH * distance(moved->loss[i], c->loss[i]));
            norm_reach = fmax(norm_reach, REACH * distance(moved->norm[i], c->norm[i]));
        }
        snprintf(name, sizeof name, "%s.loss.%zu", prefix, i);
        ST_TRY(st_parity_compare_within(p, name, json_number_value(json_array_get(losses, i)), c->loss[i], gate, loss_reach, e));
        if (p->type != ST_PARITY_F64) continue;
        snprintf(name, sizeof name, "%s.grad_norm.%zu", prefix, i);
        ST_TRY(st_parity_compare_within(p, name, json_number_value(json_array_get(norms, i)), c->norm[i], gate, norm_reach, e));
    }
    return ST_OK;
}

int st_parity_open_loaded(st_parity *p, const char *text, st_parity_model *pm, st_diags *d)
{
    st_error e = {0};
    int rc = st_parity_model_open(p, text, 1, pm, d);

    if (rc != ST_OK) return rc;
    rc = st_checkpoint_load_hf(st_path_join(p->arena, p->dir, "weights.safetensors"), pm->model, NULL, &e);
    return rc == ST_OK ? ST_OK : st_diags_add(d, &e, NULL, false);
}

/* The curve of meta.json under `key`, and for one that amplifies rounding a second from moved weights. Each has a model of its own:
 * optimizer state cannot be unmade. */
static int compare_training(st_parity *p, const st_parity_samples *s, json_t *meta, const char *key, bool amplifies, st_diags *d)
{
    json_t *train = json_object_get(meta, key);
    size_t steps = json_array_size(json_object_get(train, "losses"));
    curve c[2] = {{.n = p->type == ST_PARITY_F64 ? steps : CURVE_F32_STEPS < steps ? CURVE_F32_STEPS : steps}};
    st_error e = {0};
    st_buf text = {0};
    int rc = steps ? st_parity_model_spec(p, s, train, &text, &e)
                   : st_fail(&e, ST_E_DATA, "%s: meta.json has an empty curve %s", p->dir, key);

    c[1].n = c[0].n;
    for (int i = 0; i < 1 + amplifies && rc == ST_OK; i++) {
        st_parity_model pm = {0};
        rc = st_parity_open_loaded(p, text.data, &pm, d);
        if (rc == ST_OK && i == 1) rc = nudge(p, pm.model, &e);
        if (rc == ST_OK) rc = run_curve(p, s, pm.model, train, &c[i], &e);
        st_parity_model_close(&pm);
    }
    if (rc == ST_OK) rc = compare_curves(p, train, key, &c[0], amplifies ? &c[1] : NULL, &e);
    st_buf_free(&text);
    if (e.code) st_diags_add(d, &e, NULL, false);
    return rc;
}

static int run_case(st_parity *p, json_t *meta, st_parity_samples *s, st_parity_model *pm, st_diags *d)
{
    st_error e = {0};
    st_buf text = {0};
    int rc = st_parity_samples_read(p, s, &e);

    if (rc == ST_OK) rc = st_parity_model_spec(p, s, NULL, &text, &e);
    if (rc == ST_OK && (rc = st_parity_open_loaded(p, text.data, pm, d)) == ST_OK) {
        rc = st_parity_samples_pack(p, s, pm->model, &e);
        if (rc == ST_OK) rc = compare_forward(p, s, pm->model, &e);
        if (rc == ST_OK) rc = compare_gradients(p, s, pm->model, &e);
    }
    st_buf_free(&text);
    if (e.code) st_diags_add(d, &e, NULL, false);
    if (rc == ST_OK) rc = st_parity_experts(p, s, d);
    if (p->type == ST_PARITY_BF16) return rc;
    if (rc == ST_OK && json_object_get(meta, "train")) rc = compare_training(p, s, meta, "train", true, d);
    if (rc == ST_OK && json_object_get(meta, "train_smooth")) rc = compare_training(p, s, meta, "train_smooth", false, d);
    return rc;
}

int st_parity_model_case(st_parity *p, st_diags *d)
{
    st_parity_samples s = {0};
    st_parity_model pm = {0};
    st_error e = {0};
    json_t *meta = st_parity_json(p, "meta.json", &e);
    int rc = meta ? run_case(p, meta, &s, &pm, d) : st_diags_add(d, &e, NULL, false);

    st_parity_model_close(&pm);
    json_decref(meta);
    return rc;
}
