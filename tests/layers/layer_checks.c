/* SPDX-License-Identifier: Apache-2.0 */
/* layer_checks.c - see layer_checks.h. */
#include "layer_checks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int32_t mixed[] = {1, 63, 64, 65, 1};
enum { MIXED = 5 };

/* A layer with one input and one direction dy; L = sum(dy * y). */
typedef struct trial {
    mock *m;
    double *x, *y, *dy, *dx;
    int64_t n;
} trial;

static trial open_trial(const layer_case *c, int32_t dtype, int n, const int32_t *lengths)
{
    uint64_t state = 7;
    trial t = {.m = mock_open(c->plugin, c->settings, dtype, c->hidden)};
    t.m->built_backend = c->built_backend;
    mock_row(t.m, n, lengths);
    c->set(t.m, &state);
    t.n = t.m->row.tokens * c->hidden;
    t.x = calloc((size_t)t.n, sizeof(double));
    t.y = calloc((size_t)t.n, sizeof(double));
    t.dy = calloc((size_t)t.n, sizeof(double));
    t.dx = calloc((size_t)t.n, sizeof(double));
    mock_fill_normal(t.x, t.n, 1, &state);
    mock_fill_normal(t.dy, t.n, 1, &state);
    return t;
}
static void close_trial(trial *t)
{
    mock_close(t->m);
    free(t->x);
    free(t->y);
    free(t->dy);
    free(t->dx);
}
static void run_trial(trial *t)
{
    mock_forward(t->m, t->x, t->y);
    mock_backward(t->m, t->x, t->dy, t->dx);
}
static double loss(trial *t)
{
    double s = 0;
    mock_forward(t->m, t->x, t->y);
    for (int64_t i = 0; i < t->n; i++) s += t->y[i] * t->dy[i];
    return s;
}
static double loss_at(trial *t, double *at, double value)
{
    const double old = *at;
    *at = value;
    const double l = loss(t);
    *at = old;
    return l;
}
/* A sample of the elements of one tensor, by central differences over two distances: their error falls with h^4. */
static void compare_differences(trial *t, const char *name, double *value, const double *grad, int64_t n)
{
    const double h = 1e-4;
    double largest = 1;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(grad[i]));
    const int64_t step = n <= 12 ? 1 : n / 12;
    for (int64_t i = n <= 12 ? 0 : step / 3; i < n; i += step) {
        const double v = value[i], near = loss_at(t, value + i, v + h) - loss_at(t, value + i, v - h);
        const double far = loss_at(t, value + i, v + 2 * h) - loss_at(t, value + i, v - 2 * h),
                     slope = (8 * near - far) / (12 * h);
        if (!(fabs(slope - grad[i]) <= 1e-8 * largest))
            fail_msg("%s: gradient %lld of %s is %.12g, differences give %.12g", t->m->plugin->name, (long long)i, name,
                     grad[i], slope);
    }
}
void check_gradients(const layer_case *c, int n, const int32_t *lengths)
{
    trial t = open_trial(c, ST_F64, n, lengths);
    double *grad[MOCK_WEIGHTS];
    run_trial(&t);
    for (int i = 0; i < t.m->n_weights; i++) {
        const size_t bytes = (size_t)t.m->weight[i].n * sizeof(double);
        grad[i] = memcpy(malloc(bytes), t.m->weight[i].grad, bytes);
    }
    compare_differences(&t, "x", t.x, t.dx, t.n);
    for (int i = 0; i < t.m->n_weights; i++) {
        compare_differences(&t, t.m->weight[i].name, t.m->weight[i].value, grad[i], t.m->weight[i].n);
        free(grad[i]);
    }
    close_trial(&t);
}

static void same_bits(const trial *a, const trial *b)
{
    assert_memory_equal(a->y, b->y, (size_t)a->n * sizeof(double));
    assert_memory_equal(a->dx, b->dx, (size_t)a->n * sizeof(double));
    for (int i = 0; i < a->m->n_weights; i++)
        assert_memory_equal(a->m->weight[i].grad, b->m->weight[i].grad, (size_t)a->m->weight[i].n * sizeof(double));
}
void check_dropped(const layer_case *c, uint32_t droppable)
{
    trial all = open_trial(c, ST_F32, MIXED, mixed);
    for (uint32_t i = 0; i < all.m->ops->n_slots; i++)
        assert_int_equal(all.m->ops->slots[i].flags & ST_DROP, droppable >> i & 1 ? ST_DROP : 0);
    run_trial(&all);
    for (uint32_t drop = droppable; drop; drop = (drop - 1) & droppable) {
        trial some = open_trial(c, ST_F32, MIXED, mixed);
        some.m->drop = (int32_t)drop;
        run_trial(&some);
        same_bits(&all, &some);
        close_trial(&some);
    }
    close_trial(&all);
}
void check_threads(const layer_case *c)
{
    static const int32_t counts[] = {2, 5};
    for (int type = 0; type < 2; type++) {
        trial one = open_trial(c, type ? ST_F32 : ST_F64, MIXED, mixed);
        run_trial(&one);
        for (int i = 0; i < 2; i++) {
            trial more = open_trial(c, type ? ST_F32 : ST_F64, MIXED, mixed);
            more.m->threads = counts[i];
            run_trial(&more);
            same_bits(&one, &more);
            close_trial(&more);
        }
        close_trial(&one);
    }
}
static void compare(const char *what, const double *a, const double *b, int64_t n, double tolerance)
{
    const double d = mock_distance(a, b, n);
    if (!(d <= tolerance)) fail_msg("%s differs by %.3g, allowed %.3g", what, d, tolerance);
}
void check_packed(const layer_case *c)
{
    trial all = open_trial(c, ST_F64, MIXED, mixed);
    double *sum[MOCK_WEIGHTS];
    run_trial(&all);
    for (int i = 0; i < all.m->n_weights; i++) sum[i] = calloc((size_t)all.m->weight[i].n, sizeof(double));
    for (int64_t s = 0, at = 0; s < MIXED; at += mixed[s++] * c->hidden) {
        trial one = open_trial(c, ST_F64, 1, &mixed[s]);
        memcpy(one.x, all.x + at, (size_t)one.n * sizeof(double));
        memcpy(one.dy, all.dy + at, (size_t)one.n * sizeof(double));
        run_trial(&one);
        compare("y", one.y, all.y + at, one.n, 1e-12);
        compare("dx", one.dx, all.dx + at, one.n, 1e-12);
        for (int i = 0; i < one.m->n_weights; i++)
            for (int64_t k = 0; k < one.m->weight[i].n; k++) sum[i][k] += one.m->weight[i].grad[k];
        close_trial(&one);
    }
    for (int i = 0; i < all.m->n_weights; i++) {
        compare(all.m->weight[i].name, sum[i], all.m->weight[i].grad, all.m->weight[i].n, 1e-12);
        free(sum[i]);
    }
    close_trial(&all);
}
void check_precision(const layer_case *c, double tolerance)
{
    trial exact = open_trial(c, ST_F64, MIXED, mixed), rounded = open_trial(c, ST_F32, MIXED, mixed);
    run_trial(&exact);
    run_trial(&rounded);
    compare("y", rounded.y, exact.y, exact.n, tolerance);
    compare("dx", rounded.dx, exact.dx, exact.n, tolerance);
    for (int i = 0; i < exact.m->n_weights; i++)
        compare(exact.m->weight[i].name, rounded.m->weight[i].grad, exact.m->weight[i].grad, exact.m->weight[i].n,
                tolerance);
    close_trial(&exact);
    close_trial(&rounded);
}
void check_planned(const layer_case *c)
{
    trial t = open_trial(c, ST_F64, MIXED, mixed);
    run_trial(&t);
    const size_t scratch = t.m->scratch_peak, kept = t.m->kept_bytes;
    size_t forward;
    mock_forward(t.m, t.x, t.y);
    forward = t.m->scratch_peak;
    mock_plan(t.m);
    assert_int_equal(t.m->kept_bytes, kept);
    assert_int_equal(t.m->scratch_peak, scratch > forward ? scratch : forward);
    close_trial(&t);
}
void check_frozen(const layer_case *c)
{
    trial t = open_trial(c, ST_F64, MIXED, mixed), frozen = open_trial(c, ST_F64, MIXED, mixed);
    run_trial(&t);
    for (int i = 0; i < frozen.m->n_weights; i++) frozen.m->weight[i].frozen = 1;
    run_trial(&frozen);
    assert_memory_equal(t.dx, frozen.dx, (size_t)t.n * sizeof(double));
    mock_forward(frozen.m, frozen.x, frozen.y);
    mock_backward(frozen.m, frozen.x, frozen.dy, NULL); /* nothing below is trained: no dx either */
    close_trial(&t);
    close_trial(&frozen);
}
void check_all(const layer_case *given, uint32_t droppable, double f32_tolerance)
{
    for (int built = 0; built < 2; built++) {
        layer_case c = *given;
        c.built_backend = built;
        for (int i = 0; i < 4; i++) check_gradients(&c, 1, &mixed[i]);
        check_gradients(&c, MIXED, mixed);
        check_dropped(&c, droppable);
        check_packed(&c);
        check_threads(&c);
        check_precision(&c, f32_tolerance);
        check_planned(&c);
        check_frozen(&c);
    }
}
