/* SPDX-License-Identifier: Apache-2.0 */
/* model/fixture.c - see the header. */
#include "fixture.h"
#include <math.h>

void need_ok(int rc, const st_error *e)
{
    if (rc != ST_OK) fail_msg("%s (%s)", e->message, st_code_name(rc));
}

fixture *fixture_build(const char *text, int train, st_diags *d) { return fixture_build_for(text, train, 0, d); }

fixture *fixture_build_for(const char *text, int train, int32_t ranks, st_diags *d)
{
    fixture *f = calloc(1, sizeof *f);
    const char *dirs[2];
    st_search search = {.given = dirs, .n_given = 2};
    int rc;

    f->arena = st_arena_create(0);
    if (st_base_create(&f->base, stderr, 2, 1) != ST_OK) fail_msg("no base");
    dirs[0] = st_arena_printf(f->arena, "%s/tests/model/parts", getenv("ST_SRCDIR"));
    dirs[1] = st_arena_printf(f->arena, "%s/tests/model/parts/.libs", getenv("ST_BUILDDIR"));
    rc = st_spec_parse("test.ini", text, strlen(text), ".", &f->spec, d);
    if (rc == ST_OK) rc = st_registry_open(f->base, &search, &f->registry, d);
    if (rc == ST_OK) rc = st_model_build_for(f->base, f->spec, f->registry, train, ranks, &f->model, d);
    if (rc == ST_OK) rc = st_spec_check_unused(f->spec, d);
    if (rc == ST_OK) return f;
    fixture_close(f);
    return NULL;
}

fixture *fixture_open(const char *text, int train)
{
    st_diags d = {0};
    st_error e = {0};
    fixture *f = fixture_build(text, train, &d);

    if (!f) {
        st_diags_print(&d, stderr);
        fail_msg("the model was refused");
    }
    need_ok(st_model_plan(f->model, &e), &e);
    need_ok(st_model_open(f->model, &e), &e);
    need_ok(st_model_init(f->model, 7, &e), &e);
    return f;
}

void fixture_close(fixture *f)
{
    if (!f) return;
    st_model_destroy(f->model);
    if (f->registry) st_registry_close(f->registry);
    if (f->spec) st_spec_destroy(f->spec);
    st_base_destroy(f->base);
    st_arena_destroy(f->arena);
    free(f);
}

/* ---- rows ---- */

static void fill_ids(st_prepared *q, fixture *f, int number, uint64_t salt)
{
    int32_t *ids = ST_NEW_N(f->arena, int32_t, q->n);
    uint8_t *train = ST_NEW_N(f->arena, uint8_t, q->n), *content = ST_NEW_N(f->arena, uint8_t, q->n);

    for (int32_t i = 0; i < q->n; i++) {
        uint64_t r = st_random_u64(salt + (uint64_t)number, 1, i);
        ids[i] = (int32_t)(r % (uint64_t)st_model_vocab(f->model));
        train[i] = r >> 32 & 1;
    }
    q->ids = ids;
    q->train = train;
    q->content = content;
}

/* A picture of 2 x 4 patches becomes two tokens behind the first. */
static void add_picture(st_prepared *q, fixture *f, const st_worker *w, int number)
{
    const st_instance *in = st_model_encoder(f->model);
    st_encoder_ops ops;
    st_media_run *run = ST_NEW(f->arena, st_media_run);
    st_item *item = ST_NEW(f->arena, st_item);
    double *values = ST_NEW_N(f->arena, double, 8 * 96);
    st_media md = {.size = sizeof md, .kind = ST_MEDIA_IMAGE, .frames = 1, .patches = values, .patch_grid = {1, 2, 4}};
    void *payload;

    st_ops_copy(in->plugin, &ops, sizeof ops);
    st_uniform(50 + (uint64_t)number, 3, 0, 8 * 96, values);
    item->plan.size = sizeof item->plan;
    need_ok(ops.measure(in->self, w, &md, &item->plan), w->error);
    payload = st_arena_alloc(f->arena, (size_t)item->plan.payload);
    need_ok(ops.prepare(in->self, w, &md, &item->plan, payload), w->error);
    item->payload = payload;
    *run = (st_media_run){.first = 1, .n = 2, .kind = ST_MEDIA_IMAGE, .item = 0, .grid = {1, 1, 2}};
    q->n_runs = q->n_items = 1;
    q->runs = run;
    q->items = item;
    memset((uint8_t *)q->train + 1, 0, 2);
}

static void place(st_prepared *q, fixture *f, const st_worker *w)
{
    const st_instance *in = st_model_position(f->model);
    st_sequence s = {.size = sizeof s, .n = q->n, .n_real = q->n, .n_runs = q->n_runs, .ids = q->ids, .runs = q->runs};
    int32_t *pos = ST_NEW_N(f->arena, int32_t, q->n * (1 + st_model_shape(f->model)->axes));
    st_position_ops ops;

    if (in) {
        st_ops_copy(in->plugin, &ops, sizeof ops);
        need_ok(ops.assign(in->self, w, &s, pos), w->error);
    }
    q->pos = pos;
}

st_packed_row *make_row(fixture *f, const int *lengths, int from, uint64_t salt, int images)
{
    st_error e = {0};
    st_worker w = {.size = sizeof w, .host = &f->base->host, .arena = f->arena, .error = &e};
    const st_instance *in = st_model_encoder(f->model);
    st_encoder_ops ops;
    st_packed_row *row;

    need_ok(st_row_create(f->arena, st_model_shape(f->model), &row, &e), &e);
    for (int i = 0; lengths[i]; i++) {
        st_prepared q = {.n = lengths[i], .index = i, .id = "test"};
        int fits = 0;
        fill_ids(&q, f, from + i, salt);
        if (images && (from + i) % 2) add_picture(&q, f, &w, from + i);
        place(&q, f, &w);
        need_ok(st_row_add(row, &q, &fits, &e), &e);
        assert_true(fits);
    }
    if (in) st_ops_copy(in->plugin, &ops, sizeof ops);
    need_ok(st_row_finish(row, in ? &ops : NULL, in ? in->self : NULL, &w, &e), &e);
    return row;
}

/* ---- gradients ---- */

double *all_gradients(fixture *f, int64_t *n)
{
    int64_t total = 0, at = 0;
    st_error e = {0};
    double *out;

    for (int32_t i = 0; i < f->model->n_weights; i++)
        if (f->model->weights[i]->trains) total += f->model->weights[i]->pub.count;
    out = ST_NEW_N(f->arena, double, total);
    for (int32_t i = 0; i < f->model->n_weights; i++) {
        if (!f->model->weights[i]->trains) continue;
        need_ok(st_model_read(f->model, i, ST_READ_GRAD, out + at, &e), &e);
        at += f->model->weights[i]->pub.count;
    }
    *n = total;
    return out;
}

double max_difference(const double *a, const double *b, int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs(a[i] - b[i]) / (1 + fabs(b[i]));
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

static double loss_of(fixture *f, st_packed_row *const *rows, int32_t micros)
{
    double sum = 0, one;
    int64_t count = 0, n;
    st_error e = {0};

    for (int32_t i = 0; i < micros; i++) {
        need_ok(st_model_evaluate(f->model, rows[i], &one, &n, NULL, NULL, &e), &e);
        sum += one;
        count += n;
    }
    return sum / (double)count;
}

static double at_value(fixture *f, st_packed_row *const *rows, int32_t micros, int32_t weight, double *v, int64_t at,
                       double value)
{
    double was = v[at], loss;
    st_error e = {0};

    v[at] = value;
    need_ok(st_model_write(f->model, weight, v, &e), &e);
    loss = f->objective ? f->objective(f, rows, micros) : loss_of(f, rows, micros);
    v[at] = was;
    return loss;
}

/* Central differences of fourth order. */
static double slope(fixture *f, st_packed_row *const *rows, int32_t micros, int32_t weight, double *v, int64_t at)
{
    double h = 3e-5, x = v[at], d[4];

    for (int k = 0; k < 4; k++) d[k] = at_value(f, rows, micros, weight, v, at, x + h * (k < 2 ? k - 2 : k - 1));
    return (8 * (d[2] - d[1]) - (d[3] - d[0])) / (12 * h);
}

double check_differences(fixture *f, st_packed_row *const *rows, int32_t micros, int each, const char **worst_path)
{
    double worst = 0;
    st_step_result r;
    st_error e = {0};

    need_ok(st_model_gradients(f->model, (const st_packed_row *const *)rows, micros, &r, &e), &e);
    assert_int_equal(r.skipped, 0);
    assert_true(fabs(r.loss - loss_of(f, rows, micros)) < 1e-12);
    for (int32_t i = 0; i < f->model->n_weights; i++) {
        const model_weight *w = f->model->weights[i];
        double *g = ST_NEW_N(f->arena, double, w->pub.count), *v = ST_NEW_N(f->arena, double, w->pub.count),
               largest = 1e-6;
        if (!w->trains) continue;
        need_ok(st_model_read(f->model, i, ST_READ_GRAD, g, &e), &e);
        need_ok(st_model_read(f->model, i, ST_READ_WEIGHT, v, &e), &e);
        for (int64_t k = 0; k < w->pub.count; k++) largest = fmax(largest, fabs(g[k]));
        for (int k = 0; k < each; k++) {
            int64_t at = (int64_t)(st_random_u64(3, (uint64_t)i, k) % (uint64_t)w->pub.count);
            double d = fabs(slope(f, rows, micros, i, v, at) - g[at]) / largest;
            if (!(d <= worst)) {
                worst = d;
                *worst_path = w->pub.path;
            }
        }
        need_ok(st_model_write(f->model, i, v, &e), &e);
    }
    return worst;
}
