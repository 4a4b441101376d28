/* SPDX-License-Identifier: Apache-2.0 */
/* gradients SPEC WORD - checks the gradients of a spec's model against differences of its loss. For the test of a layer that
 * came from outside: the layer's own code is not linked here, the registry finds it as it does for the command.
 *
 * For each weight w whose path contains WORD, along one random direction d: the sum of gradient * d must equal
 * (loss(w + h d) - loss(w - h d)) / 2h. Prints one line a weight. Exits with 1 when one is wrong or when there is none. */
#include "model/model.h"
#include "data/loader.h"
#include <math.h>
#include <string.h>

#define STEP 2e-6
#define LARGEST_ERROR 1e-6 /* relative; in double, differences are good to about 1e-9 here */

struct check {
    st_base *base;
    st_spec *spec;
    st_registry *registry;
    st_model *model;
    st_loader *loader;
    st_arena *arena;
    st_packed_row *row;
};

static int open_model(struct check *c, const char *path, st_diags *d)
{
    const st_search search = {0};

    ST_TRY(st_spec_load(path, NULL, 0, &c->spec, d));
    ST_TRY(st_registry_open(c->base, &search, &c->registry, d));
    ST_TRY(st_model_build(c->base, c->spec, c->registry, 1, &c->model, d));
    st_data_context context = {.base = c->base, .spec = c->spec, .registry = c->registry, .shape = st_model_shape(c->model),
                               .position = st_model_position(c->model), .encoder = st_model_encoder(c->model),
                               .vocab = st_model_vocab(c->model), .seed = 1};
    return st_loader_open(&context, "dataset.train", 1, &c->loader, d);
}

static int fill_row(struct check *c, st_error *e)
{
    int end = 0;

    ST_TRY(st_model_plan(c->model, e));
    ST_TRY(st_model_open(c->model, e));
    ST_TRY(st_model_init(c->model, 1, e));
    c->arena = st_arena_create(0);
    if (!c->arena) return st_fail(e, ST_E_NOMEM, "no memory for an arena");
    ST_TRY(st_row_create(c->arena, st_model_shape(c->model), &c->row, e));
    return st_loader_next(c->loader, &c->row, 1, 0, &end, e);
}

/* The loss with weight w set to value + h * direction. */
static int loss_at(struct check *c, int32_t w, const double *value, const double *direction, int64_t n, double h, double *loss,
                   st_error *e)
{
    double *moved = ST_NEW_N(c->arena, double, n), sum;
    int64_t count;

    if (!moved) return st_fail(e, ST_E_NOMEM, "no memory for a weight of %lld elements", (long long)n);
    for (int64_t i = 0; i < n; i++) moved[i] = value[i] + h * direction[i];
    ST_TRY(st_model_write(c->model, w, moved, e));
    ST_TRY(st_model_evaluate(c->model, c->row, &sum, &count, NULL, NULL, e));
    *loss = sum / (double)count;
    return ST_OK;
}

static int check_weight(struct check *c, int32_t w, const st_model_weight *weight, double *error, st_error *e)
{
    const int64_t n = weight->count;
    double *value = ST_NEW_N(c->arena, double, n), *gradient = ST_NEW_N(c->arena, double, n);
    double *direction = ST_NEW_N(c->arena, double, n), above, below, analytic = 0, numeric;

    if (!value || !gradient || !direction) return st_fail(e, ST_E_NOMEM, "no memory for %s", weight->path);
    ST_TRY(st_model_read(c->model, w, ST_READ_WEIGHT, value, e));
    ST_TRY(st_model_read(c->model, w, ST_READ_GRAD, gradient, e));
    st_normal(1, (uint64_t)w, 0, n, direction);
    ST_TRY(loss_at(c, w, value, direction, n, STEP, &above, e));
    ST_TRY(loss_at(c, w, value, direction, n, -STEP, &below, e));
    ST_TRY(st_model_write(c->model, w, value, e));
    numeric = (above - below) / (2 * STEP);
    for (int64_t i = 0; i < n; i++) analytic += gradient[i] * direction[i];
    *error = fabs(analytic - numeric) / fmax(fabs(numeric), 1e-3);
    printf("%-40s gradient %+.9e difference %+.9e error %.1e%s\n", weight->path, analytic, numeric, *error,
           *error <= LARGEST_ERROR ? "" : ", too large");
    return ST_OK;
}

static int check_weights(struct check *c, const char *word, int *wrong, st_error *e)
{
    const st_packed_row *rows[] = {c->row};
    const st_model_weight *const *weights;
    const int n = st_model_weights(c->model, &weights);
    st_step_result result;
    int checked = 0;

    ST_TRY(st_model_gradients(c->model, rows, 1, &result, e));
    for (int i = 0; i < n; i++) {
        double error = INFINITY;
        if (!strstr(weights[i]->path, word)) continue;
        ST_TRY(check_weight(c, i, weights[i], &error, e));
        *wrong += !(error <= LARGEST_ERROR);
        checked++;
    }
    return checked > 0 ? ST_OK : st_fail(e, ST_E_NOTFOUND, "no weight's path contains '%s'", word);
}

int main(int argc, char **argv)
{
    struct check c = {0};
    st_diags d = {0};
    st_error e = {0};
    int wrong = 0;
    int rc;

    if (argc != 3) {
        fprintf(stderr, "usage: gradients SPEC WORD\n");
        return 2;
    }
    rc = st_base_create(&c.base, stderr, 2, 1);
    if (rc == ST_OK) rc = open_model(&c, argv[1], &d);
    if (rc == ST_OK) rc = fill_row(&c, &e);
    if (rc == ST_OK) rc = check_weights(&c, argv[2], &wrong, &e);
    st_diags_print(&d, stderr);
    if (e.code != ST_OK) st_error_print(&e, stderr);
    st_loader_close(c.loader);
    st_model_destroy(c.model);
    st_registry_close(c.registry);
    st_spec_destroy(c.spec);
    st_arena_destroy(c.arena);
    st_base_destroy(c.base);
    return rc != ST_OK || wrong > 0;
}
