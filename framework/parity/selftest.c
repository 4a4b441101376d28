/* SPDX-License-Identifier: Apache-2.0 */
/* parity/selftest.c - see the header. */
#include "config.h"
#include "data/sequence.h"
#include "parity/selftest.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GRADIENT_GATE 1e-6 /* of a directional derivative by differences in f64 */
#define SEGMENT_GATE 1e-12 /* a packed segment against the segment alone */
#define STEP 5e-5          /* of the differences, times a direction of unit deviation */

typedef struct selftest {
    st_base *base;
    st_model *model;
    st_arena *arena;
    FILE *out;
    st_packed_row *row;
    int64_t rows, width, used; /* used: rows of real segments                        */
    int64_t *length;
    int32_t n_length;
    double *x, *y, *dy, *dx, *other, *along;
    int failed;
} selftest;

static void draw(double *v, int64_t n, uint64_t stream) { st_normal(20, stream, 0, n, v); }

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void report(selftest *t, int32_t layer, const st_model_layer *l, const char *what, double error, double gate)
{
    bool bad = !(error <= gate);

    t->failed += bad;
    fprintf(t->out, "layer %-3d %c %-20s %-28s %9.2e  gate %7.0e  %s\n", layer, l->symbol, l->plugin->name, what, error,
            gate, bad ? "BAD" : "ok");
}

/* ---- the row: segments of 1, 2, 3, 63, 64, 65 tokens and so on, as far as it reaches ---- */

static st_worker worker_of(selftest *t, st_error *e)
{
    return (st_worker){.size = sizeof(st_worker), .host = &t->base->host, .arena = t->arena, .error = e};
}

static int add_segment(selftest *t, st_packed_row *row, int64_t n, int *fits, st_error *e)
{
    int32_t axes = st_model_shape(t->model)->axes;
    st_worker w = worker_of(t, e);
    st_prepared q;

    ST_TRY(st_sequence_blank(&w, n, axes, -1, &q));
    q.id = "selftest";
    ST_TRY(st_sequence_place(st_model_position(t->model), axes, &w, &q, (int32_t *)q.pos));
    return st_row_add(row, &q, fits, e);
}

static int finish_row(selftest *t, st_packed_row *row, st_error *e)
{
    st_worker w = worker_of(t, e);

    return st_sequence_finish(row, st_model_encoder(t->model), &w);
}

static int make_row(selftest *t, st_error *e)
{
    static const int64_t lengths[] = {1, 3, 65, 2, 64, 63, 1, 17, 130};
    const st_row_shape *shape = st_model_shape(t->model);

    ST_TRY(st_row_create(t->arena, shape, &t->row, e));
    st_row_clear(t->row);
    t->length = ST_NEW_N(t->arena, int64_t, ST_COUNT(lengths));
    if (!t->length) return st_fail(e, ST_E_NOMEM, "no memory for segments");
    for (size_t i = 0; i < ST_COUNT(lengths); i++) {
        int fits;
        if (t->used + lengths[i] > shape->tokens || t->n_length == shape->sequences || lengths[i] > shape->max_len)
            continue;
        ST_TRY(add_segment(t, t->row, lengths[i], &fits, e));
        if (!fits) continue;
        t->length[t->n_length++] = lengths[i];
        t->used += lengths[i];
    }
    return finish_row(t, t->row, e);
}

/* ---- gradients ---- */

/* Central differences of fourth order, so that a strongly curved weight (a convolution in front of a norm) is told
 * from a wrong gradient. */
static const double moves[4] = {STEP, -STEP, 2 * STEP, -2 * STEP};
static double slope(const double value[4]) { return (8 * (value[0] - value[1]) - (value[2] - value[3])) / (12 * STEP); }

static int value_at(selftest *t, int32_t layer, const double *x, double *value, st_error *e)
{
    ST_TRY(st_model_layer_run(t->model, layer, t->row, x, t->y, NULL, NULL, e));
    *value = dot(t->y, t->dy, t->used * t->width);
    return ST_OK;
}

static double disagreement(double exact, double difference, double scale)
{
    return fabs(exact - difference) / fmax(fmax(fabs(exact), fabs(difference)), scale);
}

static int check_input(selftest *t, int32_t layer, const st_model_layer *l, st_error *e)
{
    int64_t n = t->rows * t->width;
    double value[4], exact;

    draw(t->along, n, 100 + (uint64_t)layer);
    exact = dot(t->dx, t->along, t->used * t->width);
    for (int s = 0; s < 4; s++) {
        for (int64_t i = 0; i < n; i++) t->other[i] = t->x[i] + moves[s] * t->along[i];
        ST_TRY(value_at(t, layer, t->other, &value[s], e));
    }
    report(t, layer, l, "input gradient",
           disagreement(exact, slope(value), 1e-3 * sqrt(dot(t->dx, t->dx, n))), GRADIENT_GATE);
    return ST_OK;
}

static int check_weight(selftest *t, int32_t layer, const st_model_layer *l, int32_t index, const st_model_weight *w,
                        st_error *e)
{
    double *v = malloc((size_t)w->count * sizeof *v), *g = malloc((size_t)w->count * sizeof *g);
    double *d = malloc((size_t)w->count * sizeof *d), *moved = malloc((size_t)w->count * sizeof *moved), value[4] = {0};
    int rc = v && g && d && moved ? ST_OK : st_fail(e, ST_E_NOMEM, "no memory to check %s", w->path);

    if (rc == ST_OK) rc = st_model_read(t->model, index, ST_READ_WEIGHT, v, e);
    if (rc == ST_OK) rc = st_model_read(t->model, index, ST_READ_GRAD, g, e);
    if (rc == ST_OK) draw(d, w->count, 1000 + (uint64_t)index);
    for (int s = 0; s < 4 && rc == ST_OK; s++) {
        for (int64_t i = 0; i < w->count; i++) moved[i] = v[i] + moves[s] * d[i];
        rc = st_model_write(t->model, index, moved, e);
        if (rc == ST_OK) rc = value_at(t, layer, t->x, &value[s], e);
    }
    if (rc == ST_OK) rc = st_model_write(t->model, index, v, e);
    if (rc == ST_OK)
        report(t, layer, l, w->path,
               disagreement(dot(g, d, w->count), slope(value), 1e-3 * sqrt(dot(g, g, w->count))), GRADIENT_GATE);
    free(v);
    free(g);
    free(d);
    free(moved);
    return rc;
}

/* ---- segments: each alone, from the same rows, must give the same ---- */

static int check_segments(selftest *t, int32_t layer, const st_model_layer *l, const double *y, st_error *e)
{
    int64_t first = 0;
    double worst = 0;

    for (int32_t i = 0; i < t->n_length; first += t->length[i++]) {
        st_packed_row *alone;
        int64_t n = t->length[i] * t->width;
        double norm = sqrt(dot(y + first * t->width, y + first * t->width, n)), diff = 0;
        int fits;
        ST_TRY(st_row_create(t->arena, st_model_shape(t->model), &alone, e));
        st_row_clear(alone);
        ST_TRY(add_segment(t, alone, t->length[i], &fits, e));
        ST_TRY(finish_row(t, alone, e));
        memset(t->other, 0, (size_t)(t->rows * t->width) * sizeof *t->other);
        memcpy(t->other, t->x + first * t->width, (size_t)n * sizeof *t->other);
        ST_TRY(st_model_layer_run(t->model, layer, alone, t->other, t->y, NULL, NULL, e));
        for (int64_t k = 0; k < n; k++)
            diff += (t->y[k] - y[first * t->width + k]) * (t->y[k] - y[first * t->width + k]);
        worst = fmax(worst, norm > 0 ? sqrt(diff) / norm : sqrt(diff));
    }
    report(t, layer, l, "segments packed and alone", worst, SEGMENT_GATE);
    return ST_OK;
}

static int check_layer(selftest *t, int32_t layer, const st_model_layer *l, st_error *e)
{
    const st_model_weight *const *w;
    int n = st_model_weights(t->model, &w);
    size_t prefix = strlen(l->path);
    double *y = ST_NEW_N(t->arena, double, t->rows * t->width);

    if (!y) return st_fail(e, ST_E_NOMEM, "no memory for layer %d", layer);
    draw(t->x, t->rows * t->width, (uint64_t)layer);
    draw(t->dy, t->rows * t->width, 50 + (uint64_t)layer);
    memset(t->dy + t->used * t->width, 0, (size_t)((t->rows - t->used) * t->width) * sizeof *t->dy);
    ST_TRY(st_model_layer_run(t->model, layer, t->row, t->x, y, t->dy, t->dx, e));
    ST_TRY(check_input(t, layer, l, e));
    for (int32_t i = 0; i < n; i++) {
        bool own = strncmp(w[i]->path, l->path, prefix) == 0 && w[i]->path[prefix] == '.';
        bool norm =
            own && strncmp(w[i]->path + prefix, ".pre_norm", 9) == 0; /* the host's norm stands in front of the layer */
        if (own && !norm && !w[i]->frozen && !(w[i]->flags & (ST_W_CONST | ST_W_STATE)))
            ST_TRY(check_weight(t, layer, l, i, w[i], e));
    }
    return check_segments(t, layer, l, y, e);
}

/* Weights that begin at zero hide mistakes: all get some noise. */
static int shake(selftest *t, st_error *e)
{
    const st_model_weight *const *w;

    for (int32_t i = 0, n = st_model_weights(t->model, &w); i < n; i++) {
        double *v, *noise;
        int rc;
        if (w[i]->flags & ST_W_CONST) continue;
        v = malloc((size_t)w[i]->count * sizeof *v);
        noise = malloc((size_t)w[i]->count * sizeof *noise);
        rc = v && noise ? st_model_read(t->model, i, ST_READ_WEIGHT, v, e)
                        : st_fail(e, ST_E_NOMEM, "no memory for %s", w[i]->path);
        if (rc == ST_OK) {
            draw(noise, w[i]->count, 5000 + (uint64_t)i);
            for (int64_t k = 0; k < w[i]->count; k++) v[k] += 0.1 * noise[k];
            rc = st_model_write(t->model, i, v, e);
        }
        free(v);
        free(noise);
        if (rc != ST_OK) return rc;
    }
    return ST_OK;
}

static int run(selftest *t, st_error *e)
{
    const st_model_layer *layers;
    int64_t size;
    int n, layer = 0;

    ST_TRY(st_model_plan(t->model, e));
    ST_TRY(st_model_open(t->model, e));
    ST_TRY(st_model_init(t->model, 1, e));
    ST_TRY(shake(t, e));
    ST_TRY(make_row(t, e));
    t->rows = st_model_shape(t->model)->tokens;
    t->width = st_model_hidden(t->model);
    size = t->rows * t->width;
    double **buffers[] = {&t->x, &t->y, &t->dy, &t->dx, &t->other, &t->along};
    for (size_t i = 0; i < ST_COUNT(buffers); i++)
        if (!(*buffers[i] = ST_NEW_N(t->arena, double, size)))
            return st_fail(e, ST_E_NOMEM, "no memory for rows of %lld values", (long long)size);
    n = st_model_layers(t->model, &layers);
    for (int i = 0; i < n; i++)
        if (layers[i].depth >= 0) ST_TRY(check_layer(t, layer++, &layers[i], e));
    return ST_OK;
}

int st_selftest(st_base *base, st_spec *spec, st_registry *registry, FILE *out, int *failed, st_diags *d)
{
    selftest t = {.base = base, .out = out, .arena = st_arena_create(0)};
    st_error e = {0};
    int rc = t.arena ? st_model_build(base, spec, registry, 1, &t.model, d)
                     : st_diags_add(d, &(st_error){.code = ST_E_NOMEM, .message = "no memory"}, NULL, false);

    if (rc == ST_OK) rc = st_spec_check_unused(spec, d);
    if (rc == ST_OK && st_model_dtype(t.model) != ST_F64) {
        rc = st_spec_fail(spec, d, st_spec_get(spec, "run", "precision"), "run it with --set run.precision=f64",
                          "differences need precision = f64");
    } else if (rc == ST_OK) {
        rc = run(&t, &e);
        if (rc != ST_OK) st_diags_add(d, &e, NULL, false);
    }
    *failed += t.failed;
    if (t.model) st_model_destroy(t.model);
    if (t.arena) st_arena_destroy(t.arena);
    return rc;
}
