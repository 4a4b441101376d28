/* SPDX-License-Identifier: Apache-2.0 */
/* The delta rule alone: against the token-by-token recurrence written here, and against given values
 * (tests/golden/gdn). */
#include "mock_host.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sizes {
    int64_t hk, hv, dk, dv, tokens;
    int n;
    const int32_t *lengths;
} sizes;

/* Columns as delta_rule.c lays them out. */
static int64_t x_width(const sizes *z) { return 2 * z->hk * z->dk + z->hv * z->dv + 2 * z->hv + z->hv * z->dk * z->dv; }
static int64_t at_k(const sizes *z) { return z->hk * z->dk; }
static int64_t at_v(const sizes *z) { return 2 * z->hk * z->dk; }
static int64_t at_beta(const sizes *z) { return at_v(z) + z->hv * z->dv; }
static int64_t at_g(const sizes *z) { return at_beta(z) + z->hv; }
static int64_t at_s0(const sizes *z) { return at_g(z) + z->hv; }
static int64_t at_state(const sizes *z) { return z->hv * z->dv; }

static mock *open_rule(const sizes *z, int32_t dtype)
{
    char text[4][24];
    const int64_t value[4] = {z->hk, z->hv, z->dk, z->dv};
    for (int i = 0; i < 4; i++) snprintf(text[i], sizeof text[i], "%lld", (long long)value[i]);
    const char *const settings[] = {"key_heads", text[0],     "value_heads", text[1], "key_dim",
                                    text[2],     "value_dim", text[3],       NULL};
    mock *m = mock_open("delta_rule", settings, dtype, x_width(z));
    mock_row(m, z->n, z->lengths);
    return m;
}

/* ---- the recurrence, one segment and value head; all states are kept, so the backward pass is the plain reverse
 * ---- */

typedef struct head_in {
    const double *q, *k, *v, *beta, *g;
    int64_t stride;
} head_in;
typedef struct head_out {
    double *q, *k, *v, *beta, *g;
} head_out;

static void normalise(const double *x, int64_t n, double factor, double *y, double *r)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += x[i] * x[i];
    *r = 1 / sqrt(s + 1e-6);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * *r * factor;
}
/* s: (length + 1) states, the first given; qn, kn normed rows, delta, error rows are left for the backward pass */
typedef struct trace {
    double *s, *qn, *kn, *rq, *rk, *delta, *error;
} trace;

static void recur(const sizes *z, const head_in *in, int64_t length, const trace *t, double *out, int64_t out_stride)
{
    const int64_t dk = z->dk, dv = z->dv;
    for (int64_t i = 0; i < length; i++) {
        const double *s = t->s + i * dk * dv, a = exp(in->g[i * in->stride]);
        double *next = t->s + (i + 1) * dk * dv, *k = t->kn + i * dk, *q = t->qn + i * dk;
        normalise(in->q + i * in->stride, dk, 1 / sqrt((double)dk), q, t->rq + i);
        normalise(in->k + i * in->stride, dk, 1, k, t->rk + i);
        for (int64_t c = 0; c < dv; c++) {
            double p = 0, o = 0;
            for (int64_t r = 0; r < dk; r++) p += a * s[r * dv + c] * k[r];
            t->error[i * dv + c] = in->v[i * in->stride + c] - p;
            t->delta[i * dv + c] = in->beta[i * in->stride] * t->error[i * dv + c];
            for (int64_t r = 0; r < dk; r++) {
                next[r * dv + c] = a * s[r * dv + c] + k[r] * t->delta[i * dv + c];
                o += next[r * dv + c] * q[r];
            }
            out[i * out_stride + c] = o;
        }
    }
}
static void through_norm(const double *y, double r, double factor, const double *d, int64_t n, double *to)
{
    double along = 0;
    for (int64_t i = 0; i < n; i++) along += y[i] * d[i] / factor;
    for (int64_t i = 0; i < n; i++) to[i] += r * factor * d[i] - r * y[i] * along; /* adds: key heads are shared */
}
static void recur_bwd(const sizes *z, const head_in *in, int64_t length, const trace *t, const double *dout,
                      int64_t dout_stride, double *ds, const head_out *d)
{
    const int64_t dk = z->dk, dv = z->dv;
    double *dq = calloc((size_t)dk, 8), *dkk = calloc((size_t)dk, 8);
    for (int64_t i = length - 1; i >= 0; i--) {
        const double *s = t->s + i * dk * dv, *next = s + dk * dv, *q = t->qn + i * dk, *k = t->kn + i * dk,
                     a = exp(in->g[i * in->stride]);
        memset(dq, 0, (size_t)dk * 8);
        memset(dkk, 0, (size_t)dk * 8);
        for (int64_t c = 0; c < dv; c++) {
            const double o = dout[i * dout_stride + c];
            double dd = 0;
            for (int64_t r = 0; r < dk; r++) {
                ds[r * dv + c] += q[r] * o;
                dq[r] += next[r * dv + c] * o;
                dd += ds[r * dv + c] * k[r];
                dkk[r] += ds[r * dv + c] * t->delta[i * dv + c];
            }
            d->beta[i * in->stride] += dd * t->error[i * dv + c];
            const double de = in->beta[i * in->stride] * dd;
            d->v[i * in->stride + c] += de;
            for (int64_t r = 0; r < dk; r++) {
                dkk[r] -= a * s[r * dv + c] * de;
                ds[r * dv + c] -= k[r] * de;
                d->g[i * in->stride] += ds[r * dv + c] * a * s[r * dv + c];
                ds[r * dv + c] *= a;
            }
        }
        through_norm(q, t->rq[i], 1 / sqrt((double)dk), dq, dk, d->q + i * in->stride);
        through_norm(k, t->rk[i], 1, dkk, dk, d->k + i * in->stride);
    }
    free(dq);
    free(dkk);
}
/* y and dx (zeroed by the caller) of a whole row in the plugin's layout. */
static void recurrence(const sizes *z, const double *x, const double *dy, double *y, double *dx)
{
    const int64_t w = x_width(z), dk = z->dk, dv = z->dv, state = dk * dv, group = z->hv / z->hk;
    double *memory = calloc((size_t)((z->tokens + 1) * state + z->tokens * (2 * dk + 2 + 2 * dv)), 8);
    trace t = {.s = memory, .qn = memory + (z->tokens + 1) * state};
    t.kn = t.qn + z->tokens * dk;
    t.rq = t.kn + z->tokens * dk;
    t.rk = t.rq + z->tokens;
    t.delta = t.rk + z->tokens;
    t.error = t.delta + z->tokens * dv;
    for (int64_t s = 0, at = 0; s < z->n; at += z->lengths[s++])
        for (int64_t h = 0; h < z->hv && z->lengths[s]; h++) {
            const int64_t length = z->lengths[s], base = at * w, last = (at + length - 1) * w;
            const head_in in = {x + base + h / group * dk,   x + base + at_k(z) + h / group * dk,
                                x + base + at_v(z) + h * dv, x + base + at_beta(z) + h,
                                x + base + at_g(z) + h,      w};
            const head_out d = {dx + base + h / group * dk, dx + base + at_k(z) + h / group * dk,
                                dx + base + at_v(z) + h * dv, dx + base + at_beta(z) + h, dx + base + at_g(z) + h};
            double *ds = dx + base + at_s0(z) + h * state;
            memcpy(t.s, x + base + at_s0(z) + h * state, (size_t)state * 8);
            recur(z, &in, length, &t, y + base + h * dv, w);
            memcpy(y + last + at_state(z) + h * state, t.s + length * state, (size_t)state * 8);
            memcpy(ds, dy + last + at_state(z) + h * state, (size_t)state * 8);
            recur_bwd(z, &in, length, &t, dy + base + h * dv, w, ds, &d);
        }
    free(memory);
}

/* ---- comparisons ---- */

typedef struct row_values {
    double *x, *dy, *y, *dx, *want_y, *want_dx;
    int64_t n;
} row_values;
static row_values new_values(const sizes *z)
{
    const int64_t n = z->tokens * x_width(z);
    row_values v = {.n = n};
    double **all[] = {&v.x, &v.dy, &v.y, &v.dx, &v.want_y, &v.want_dx};
    for (int i = 0; i < 6; i++) *all[i] = calloc((size_t)n, 8);
    return v;
}
static void free_values(row_values *v)
{
    free(v->x);
    free(v->dy);
    free(v->y);
    free(v->dx);
    free(v->want_y);
    free(v->want_dx);
}
/* Every part of the row by its own norm, so that small gradients count. Returns the worst. */
static double worst_part(const sizes *z, const double *got, const double *want, const int64_t *border, int n)
{
    const int64_t w = x_width(z);
    double worst = 0;
    for (int p = 0; p < n; p++) {
        double d = 0, s = 0;
        for (int64_t t = 0; t < z->tokens; t++)
            for (int64_t c = border[p]; c < border[p + 1]; c++) {
                d += (got[t * w + c] - want[t * w + c]) * (got[t * w + c] - want[t * w + c]);
                s += want[t * w + c] * want[t * w + c];
            }
        worst = fmax(worst, s > 0 ? sqrt(d / s) : sqrt(d));
    }
    return worst;
}
static void compare_row(const sizes *z, int32_t dtype, uint32_t drop, const row_values *v, double tolerance)
{
    const int64_t y_parts[] = {0, at_state(z), at_state(z) + z->hv * z->dk * z->dv, x_width(z)};
    const int64_t x_parts[] = {0, at_k(z), at_v(z), at_beta(z), at_g(z), at_s0(z), x_width(z)};
    mock *m = open_rule(z, dtype);
    m->drop = (int32_t)drop;
    m->threads = 2;
    mock_forward(m, v->x, v->y);
    mock_backward(m, v->x, v->dy, v->dx);
    const double y = worst_part(z, v->y, v->want_y, y_parts, 3), dx = worst_part(z, v->dx, v->want_dx, x_parts, 6);
    if (!(y <= tolerance && dx <= tolerance))
        fail_msg("%lld/%lld heads of %lld/%lld, type %d: outputs differ by %.3g, gradients by %.3g; allowed %.3g",
                 (long long)z->hk, (long long)z->hv, (long long)z->dk, (long long)z->dv, dtype, y, dx, tolerance);
    mock_close(m);
}
static sizes make_sizes(int64_t hk, int64_t hv, int64_t dk, int64_t dv, int n, const int32_t *lengths)
{
    sizes z = {hk, hv, dk, dv, 0, n, lengths};
    for (int i = 0; i < n; i++) z.tokens += lengths[i];
    return z;
}
/* decay: g = -decay * |normal|; beta covers 0 and 1 too */
static void against_recurrence(sizes z, double decay, double f64_tolerance, double f32_tolerance)
{
    const int64_t w = x_width(&z);
    uint64_t random = 11;
    row_values v = new_values(&z);
    mock_fill_normal(v.x, v.n, 1, &random);
    mock_fill_normal(v.dy, v.n, 1, &random);
    for (int64_t t = 0; t < z.tokens; t++)
        for (int64_t h = 0; h < z.hv; h++) {
            double *beta = v.x + t * w + at_beta(&z) + h, *g = v.x + t * w + at_g(&z) + h;
            *beta = t % 7 == 3 ? 0 : t % 7 == 5 ? 1 : 1 / (1 + exp(-*beta));
            *g = t % 11 == 4 ? 0 : -decay * fabs(*g);
        }
    for (int64_t i = 0; i < v.n; i++) v.x[i] = (float)v.x[i]; /* the same inputs in both types */
    recurrence(&z, v.x, v.dy, v.want_y, v.want_dx);
    compare_row(&z, ST_F64, 0, &v, f64_tolerance);
    compare_row(&z, ST_F64, 1, &v, f64_tolerance);
    compare_row(&z, ST_F32, 0, &v, f32_tolerance);
    free_values(&v);
}
static const int32_t mixed[] = {1, 63, 64, 65, 1, 130};
static void weak_decay(void **unused)
{
    against_recurrence(make_sizes(2, 4, 16, 16, 6, mixed), 0.02, 1e-12, 1e-4);
    against_recurrence(make_sizes(1, 1, 32, 32, 6, mixed), 0.02, 1e-12, 1e-4);
}
static void usual_decay(void **unused)
{
    against_recurrence(make_sizes(1, 3, 8, 24, 6, mixed), 0.7, 1e-12, 2e-5);
    against_recurrence(make_sizes(2, 2, 13, 5, 6, mixed), 0.7, 1e-12, 2e-5);
}
static void strong_decay(void **unused)
{
    against_recurrence(make_sizes(1, 2, 16, 16, 6, mixed), 30, 1e-12, 1e-5);
    against_recurrence(make_sizes(1, 2, 16, 16, 6, mixed), 3000, 1e-12, 1e-5);
}
/* q = k = 0: outputs and gradients are finite, and what must be zero is. */
static void zero_rows(void **unused)
{
    const int32_t length = 70;
    const sizes z = make_sizes(1, 2, 16, 8, 1, &length);
    row_values v = new_values(&z);
    mock *m = open_rule(&z, ST_F32);
    uint64_t random = 2;
    mock_fill_normal(v.dy, v.n, 1, &random);
    mock_forward(m, v.x, v.y);
    mock_backward(m, v.x, v.dy, v.dx);
    for (int64_t i = 0; i < v.n; i++) {
        assert_true(v.y[i] == 0);
        assert_true(isfinite(v.dx[i]));
    }
    mock_close(m);
    free_values(&v);
}
static void refusals(void **unused)
{
    static const char *const settings[] = {"key_heads", "1",         "value_heads", "2", "key_dim",
                                           "8",         "value_dim", "8",           NULL};
    char words[512];
    assert_string_equal(mock_refusal("delta_rule", settings, ST_F64, 163, words),
                        "hidden = 163: the rule's inputs and outputs need 164 columns");
}

/* ---- given values: a reader for the one file, whose tensors are all F64 or I32 ---- */

typedef struct given {
    char *data, *header;
    const char *body;
} given;
static given open_given(void)
{
    char path[512];
    uint64_t n;
    long size;
    given g;
    snprintf(path, sizeof path, "%s/tests/golden/gdn/io.safetensors", getenv("ST_SRCDIR") ? getenv("ST_SRCDIR") : ".");
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    fseek(f, 0, SEEK_END);
    size = ftell(f);
    rewind(f);
    g.data = malloc((size_t)size);
    assert_int_equal(fread(g.data, 1, (size_t)size, f), size);
    fclose(f);
    memcpy(&n, g.data, 8);
    g.header = strndup(g.data + 8, n);
    g.body = g.data + 8 + n;
    return g;
}
/* Its first two dimensions and its bytes; NULL when there is none. */
static const void *find_given(const given *g, int which, const char *name, long long dim[3])
{
    char key[64];
    unsigned long long begin;
    snprintf(key, sizeof key, "\"%d.%s\":", which, name);
    const char *at = strstr(g->header, key);
    if (!at) return NULL;
    dim[0] = dim[1] = dim[2] = 1;
    assert_true(sscanf(strstr(at, "\"shape\":["), "\"shape\":[%lld,%lld,%lld", &dim[0], &dim[1], &dim[2]) >= 1);
    assert_int_equal(sscanf(strstr(at, "\"data_offsets\":["), "\"data_offsets\":[%llu", &begin), 1);
    return g->body + begin;
}
/* A tensor (tokens, n) into columns of the packed row; or a state into the row of one token. */
static void put_columns(const given *g, int which, const char *name, const sizes *z, int64_t column, int64_t n,
                        double *row)
{
    long long dim[3];
    const char *from = find_given(g, which, name, dim);
    assert_non_null(from);
    assert_int_equal(dim[0] * dim[1] * dim[2], z->tokens * n);
    for (int64_t t = 0; t < z->tokens; t++) memcpy(row + t * x_width(z) + column, from + t * n * 8, (size_t)n * 8);
}
static void put_state(const given *g, int which, const char *name, const sizes *z, int64_t token, int64_t column,
                      double *row)
{
    long long dim[3];
    const char *from = find_given(g, which, name, dim);
    assert_non_null(from);
    assert_int_equal(dim[0] * dim[1] * dim[2], z->hv * z->dk * z->dv);
    memcpy(row + token * x_width(z) + column, from, (size_t)(z->hv * z->dk * z->dv) * 8);
}
static void against_given(const given *g, int which)
{
    long long q[3], v_dim[3], cu_dim[3];
    int32_t lengths[16], cu[17];
    find_given(g, which, "q", q);
    find_given(g, which, "v", v_dim);
    const void *borders = find_given(g, which, "cu_seqlens", cu_dim);
    assert_in_range(cu_dim[0], 2, 17);
    memcpy(cu, borders, (size_t)cu_dim[0] * 4);
    for (int i = 0; i + 1 < cu_dim[0]; i++) lengths[i] = cu[i + 1] - cu[i];
    const sizes z = make_sizes(q[1], v_dim[1], q[2], v_dim[2], (int)cu_dim[0] - 1, lengths);
    const int64_t qw = z.hk * z.dk, vw = z.hv * z.dv, w = x_width(&z), last = z.tokens - 1;
    row_values v = new_values(&z);
    struct {
        const char *in, *grad;
        int64_t column, n;
    } part[] = {{"q", "dq", 0, qw},
                {"k", "dk", at_k(&z), qw},
                {"v", "dv", at_v(&z), vw},
                {"beta", "dbeta", at_beta(&z), z.hv},
                {"g", "dg", at_g(&z), z.hv}};
    for (int i = 0; i < 5; i++) {
        put_columns(g, which, part[i].in, &z, part[i].column, part[i].n, v.x);
        put_columns(g, which, part[i].grad, &z, part[i].column, part[i].n, v.want_dx);
    }
    put_columns(g, which, "out", &z, 0, vw, v.want_y);
    put_columns(g, which, "dout", &z, 0, vw, v.dy);
    put_state(g, which, "S0", &z, 0, at_s0(&z), v.x);
    put_state(g, which, "dS0", &z, 0, at_s0(&z), v.want_dx);
    put_state(g, which, "state", &z, last, at_state(&z), v.want_y);
    put_state(g, which, "dstate", &z, last, at_state(&z), v.dy);
    for (int type = ST_F64; type <= ST_F32; type++) {
        mock *m = open_rule(&z, type);
        mock_forward(m, v.x, v.y);
        mock_backward(m, v.x, v.dy, v.dx);
        for (int s = 0; s + 1 < z.n; s++) /* the file has the last segment's state and the first one's gradient only */
            for (int64_t c = at_state(&z); c < w; c++) v.y[(cu[s + 1] - 1) * w + c] = 0;
        for (int s = 1; s < z.n; s++)
            for (int64_t c = at_s0(&z); c < w; c++) v.dx[cu[s] * w + c] = 0;
        const int64_t parts[] = {0, at_k(&z), at_v(&z), at_beta(&z), at_g(&z), at_s0(&z), w},
                      y_parts[] = {0, at_state(&z), w};
        const double y = worst_part(&z, v.y, v.want_y, y_parts, 2), dx = worst_part(&z, v.dx, v.want_dx, parts, 6);
        print_message("golden case %d, %s: outputs %.1e, gradients %.1e\n", which, type == ST_F64 ? "f64" : "f32", y,
                      dx);
        assert_true(y <= (type == ST_F64 ? 1e-12 : 1e-5));
        assert_true(dx <= (type == ST_F64 ? 1e-11 : 1e-4));
        mock_close(m);
    }
    free_values(&v);
}
static void given_values(void **unused)
{
    given g = open_given();
    long long dim[3];
    int n = 0;
    while (find_given(&g, n, "q", dim)) against_given(&g, n++);
    assert_int_equal(n, 10);
    free(g.data);
    free(g.header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weak_decay), cmocka_unit_test(usual_decay), cmocka_unit_test(strong_decay),
        cmocka_unit_test(zero_rows),  cmocka_unit_test(refusals),    cmocka_unit_test(given_values),
    };
    return cmocka_run_group_tests_name("delta_rule", tests, NULL, NULL);
}
