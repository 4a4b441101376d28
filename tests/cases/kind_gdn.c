/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/kind_gdn.c - the gated delta rule over packed documents: each as if it were alone, forward and backward,
 * and against values made here by the plain recurrence in long double, gradients by differences. */
#include "config.h"

#include "../layers/mock_host.h"
#include "cases.h"
#include <jansson.h>
#include <math.h>

typedef struct gdn_row {
    const char *file, *lengths; /* lengths: text of the file                     */
    int32_t documents[4];       /* of one pack, ended by 0                       */
    int32_t no_decay;
} gdn_row;
static const gdn_row rows[] = {
    {"gdn/lengths.json",
     "[[64], [63], [65], [128], [1], [2, 62], [3, 61, 64], [100, 27, 1], [17, 17, 17, 17, 17], [129, 127]]",
     {0},
     0},
    {"gdn/tiny_packed.json", NULL, {3, 17}, 0},
    {"gdn/tiny_no_decay.json", NULL, {16}, 1},
};

enum { K = 4, V = 3, MOST = 32, INPUTS = K + K + V + 2 }; /* columns of a token: q, k, v, g, beta */
enum { AT_Q = 0, AT_K = K, AT_V = 2 * K, AT_G = 2 * K + V, AT_BETA = 2 * K + V + 1 };
typedef struct pack {
    int32_t n, begin[8], documents;
    long double in[MOST][INPUTS], dout[MOST][V];
} pack;

/* ---- the rule ---- */

static void unit(const long double *x, long double *y)
{
    long double s = 1e-6L;

    for (int i = 0; i < K; i++) s += x[i] * x[i];
    for (int i = 0; i < K; i++) y[i] = x[i] / sqrtl(s);
}

/* S = exp(g) S; S += beta k (v - S' k)'; out = S' q / root of K */
static void recur(const pack *p, long double out[MOST][V])
{
    long double s[K][V], q[K], k[K];

    for (int32_t d = 0; d < p->documents; d++) {
        memset(s, 0, sizeof s);
        for (int32_t t = p->begin[d]; t < p->begin[d + 1]; t++) {
            const long double *x = p->in[t], a = expl(x[AT_G]);
            unit(x + AT_Q, q);
            unit(x + AT_K, k);
            for (int v = 0; v < V; v++) {
                long double seen = 0;
                out[t][v] = 0;
                for (int i = 0; i < K; i++) seen += (s[i][v] *= a) * k[i];
                for (int i = 0; i < K; i++) {
                    s[i][v] += x[AT_BETA] * k[i] * (x[AT_V + v] - seen);
                    out[t][v] += s[i][v] * q[i] / sqrtl(K);
                }
            }
        }
    }
}

static long double weighed(const pack *p)
{
    long double out[MOST][V], sum = 0;

    recur(p, out);
    for (int32_t t = 0; t < p->n; t++)
        for (int v = 0; v < V; v++) sum += out[t][v] * p->dout[t][v];
    return sum;
}

static long double slope(pack *p, long double *x) /* central differences of fourth order */
{
    const long double h = 1e-4L, was = *x;
    long double d[4];

    for (int i = 0; i < 4; i++) {
        *x = was + h * (i < 2 ? i - 2 : i - 1);
        d[i] = weighed(p);
    }
    *x = was;
    return (8 * (d[2] - d[1]) - (d[3] - d[0])) / (12 * h);
}

/* ---- making ---- */

static json_t *table(const long double *values, int32_t n, int width, int stride)
{
    json_t *j = json_array();

    for (int32_t t = 0; t < n; t++) {
        json_t *line = width == 1 ? NULL : json_array();
        for (int i = 0; i < width && line; i++) json_array_append_new(line, json_real((double)values[t * stride + i]));
        json_array_append_new(j, line ? line : json_real((double)values[t * stride]));
    }
    return j;
}

static void fill(pack *p, const gdn_row *r)
{
    double u[INPUTS + V];

    for (p->documents = 0; r->documents[p->documents]; p->documents++) {
        p->begin[p->documents] = p->n;
        p->n += r->documents[p->documents];
    }
    p->begin[p->documents] = p->n;
    for (int32_t t = 0; t < p->n; t++) {
        st_normal(11, (uint64_t)t, 0, INPUTS + V, u);
        for (int i = 0; i < INPUTS; i++) p->in[t][i] = u[i] / 2;
        p->in[t][AT_G] = r->no_decay ? 0 : -fabs(u[AT_G]);
        p->in[t][AT_BETA] = 1 / (1 + exp(u[AT_BETA]));
        for (int v = 0; v < V; v++) p->dout[t][v] = u[INPUTS + v];
    }
}

static void make(const cases *c, const void *row)
{
    const gdn_row *r = row;
    static const struct {
        const char *in, *grad;
        int at, width;
    } column[] = {{"q", "dq", AT_Q, K},
                  {"k", "dk", AT_K, K},
                  {"v", "dv", AT_V, V},
                  {"g", "dg", AT_G, 1},
                  {"beta", "dbeta", AT_BETA, 1}};
    long double out[MOST][V], grad[MOST][INPUTS];
    pack p = {0};
    json_t *j, *borders;

    if (r->lengths) {
        case_put_text(c, r->file, r->lengths);
        return;
    }
    borders = json_array();
    fill(&p, r);
    recur(&p, out);
    for (int32_t t = 0; t < p.n; t++)
        for (int i = 0; i < INPUTS; i++) grad[t][i] = slope(&p, &p.in[t][i]);
    for (int32_t d = 0; d <= p.documents; d++) json_array_append_new(borders, json_integer(p.begin[d]));
    j = json_pack("{s:i,s:i,s:i,s:o}", "T", p.n, "K", K, "V", V, "cu_seqlens", borders);
    for (size_t i = 0; i < ST_COUNT(column); i++) {
        json_object_set_new(j, column[i].in, table(&p.in[0][column[i].at], p.n, column[i].width, INPUTS));
        json_object_set_new(j, column[i].grad, table(&grad[0][column[i].at], p.n, column[i].width, INPUTS));
    }
    json_object_set_new(j, "dout", table(&p.dout[0][0], p.n, V, V));
    json_object_set_new(j, "out", table(&out[0][0], p.n, V, V));
    char *text = json_dumps(j, JSON_COMPACT | JSON_PRESERVE_ORDER);
    case_put_text(c, r->file, text);
    free(text);
    json_decref(j);
}

/* ---- the plugin's layout of a token: q, k, v, beta, g, first state ---- */

typedef struct sizes {
    int32_t heads, key, value;
} sizes;
static int64_t width_of(const sizes *z) { return (int64_t)z->heads * (2 * z->key + z->value + 2 + z->key * z->value); }

static mock *open_rule(const sizes *z, int32_t dtype, int n, const int32_t *lengths)
{
    char heads[16], key[16], value[16];
    const char *const settings[] = {"key_heads", heads, "value_heads", heads, "key_dim", key, "value_dim", value, NULL};

    snprintf(heads, sizeof heads, "%d", z->heads);
    snprintf(key, sizeof key, "%d", z->key);
    snprintf(value, sizeof value, "%d", z->value);
    mock *m = mock_open("delta_rule", settings, dtype, width_of(z));
    mock_row(m, n, lengths);
    return m;
}

/* ---- packs of given lengths ---- */

static void run_rule(const sizes *z, int n, const int32_t *lengths, const double *x, const double *dy, double *y,
                     double *dx)
{
    mock *m = open_rule(z, ST_F64, n, lengths);

    mock_forward(m, x, y);
    mock_backward(m, x, dy, dx);
    mock_close(m);
}

static void check_pack(int n, const int32_t *lengths)
{
    const sizes z = {2, 8, 8};
    int64_t width = width_of(&z), tokens = 0, at = 0, gate = (int64_t)z.heads * (2 * z.key + z.value);
    uint64_t random = 5;

    for (int i = 0; i < n; i++) tokens += lengths[i];
    double *v[6];
    for (int i = 0; i < 6; i++) v[i] = calloc((size_t)(tokens * width), sizeof **v);
    mock_fill_normal(v[0], tokens * width, 1, &random);
    mock_fill_normal(v[1], tokens * width, 1, &random);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < width - gate; i++) {
            double *x = &v[0][t * width + gate + i];
            if (i < z.heads) *x = 1 / (1 + exp(-*x));
            else if (i < 2 * z.heads) *x = -fabs(*x);
            else *x = 0; /* states begin at 0 */
        }
    run_rule(&z, n, lengths, v[0], v[1], v[2], v[3]);
    for (int i = 0; i < n; i++, at = 0) {
        for (int k = 0; k < i; k++) at += lengths[k] * width;
        run_rule(&z, 1, &lengths[i], v[0] + at, v[1] + at, v[4], v[5]);
        for (int64_t k = 0; k < lengths[i] * width; k++)
            if (!(fabs(v[2][at + k] - v[4][k]) <= 1e-12 * (1 + fabs(v[4][k]))) ||
                !(fabs(v[3][at + k] - v[5][k]) <= 1e-11 * (1 + fabs(v[5][k]))))
                fail_msg("document %d of %d: value %lld is %g packed and %g alone, its gradient %g and %g", i, n,
                         (long long)k, v[2][at + k], v[4][k], v[3][at + k], v[5][k]);
    }
    for (int i = 0; i < 6; i++) free(v[i]);
}

static void check_lengths(const json_t *packs)
{
    const json_t *p, *x;
    size_t i, k;

    json_array_foreach(packs, i, p)
    {
        int32_t lengths[8];
        json_array_foreach(p, k, x) lengths[k] = (int32_t)json_integer_value(x);
        check_pack((int)json_array_size(p), lengths);
    }
    if (json_array_size(packs) < 10) fail_msg("%zu packs", json_array_size(packs));
}

/* ---- given values ---- */

static void put(const json_t *j, const char *key, const sizes *z, int64_t column, int width, double *row)
{
    const json_t *list = json_object_get(j, key), *line;
    size_t t;

    if (!list) fail_msg("no %s", key);
    json_array_foreach(list, t, line) for (int i = 0; i < width; i++) row[(int64_t)t * width_of(z) + column + i] =
        json_number_value(json_is_array(line) ? json_array_get(line, (size_t)i) : line);
}

static void check_column(const char *name, const sizes *z, int32_t n, int64_t column, int width, const double *got,
                         const double *want)
{
    double d = 0, s = 0;

    for (int32_t t = 0; t < n; t++)
        for (int64_t i = t * width_of(z) + column; i < t * width_of(z) + column + width; i++) {
            d += (got[i] - want[i]) * (got[i] - want[i]);
            s += want[i] * want[i];
        }
    if (!(sqrt(d) <= 1e-4 * sqrt(s))) fail_msg("%s differs by %g of %g", name, sqrt(d), sqrt(s));
}

static void check_values(const json_t *j)
{
    const sizes z = {1, (int32_t)json_integer_value(json_object_get(j, "K")),
                     (int32_t)json_integer_value(json_object_get(j, "V"))};
    const json_t *borders = json_object_get(j, "cu_seqlens");
    int32_t n = (int32_t)json_integer_value(json_object_get(j, "T")), documents = (int32_t)json_array_size(borders) - 1,
            lengths[8];
    const struct {
        const char *in, *grad;
        int64_t at;
        int width;
    } column[] = {{"q", "dq", 0, z.key},
                  {"k", "dk", z.key, z.key},
                  {"v", "dv", 2 * z.key, z.value},
                  {"beta", "dbeta", 2 * z.key + z.value, 1},
                  {"g", "dg", 2 * z.key + z.value + 1, 1}};
    double *v[6];

    for (int i = 0; i < 6; i++) v[i] = calloc((size_t)(n * width_of(&z)), sizeof **v);
    for (size_t i = 0; i < ST_COUNT(column); i++) {
        put(j, column[i].in, &z, column[i].at, column[i].width, v[0]);
        put(j, column[i].grad, &z, column[i].at, column[i].width, v[5]);
    }
    put(j, "out", &z, 0, z.value, v[4]);
    put(j, "dout", &z, 0, z.value, v[1]);
    for (int32_t d = 0; d < documents; d++)
        lengths[d] = (int32_t)(json_integer_value(json_array_get(borders, (size_t)d + 1)) -
                               json_integer_value(json_array_get(borders, (size_t)d)));
    mock *m = open_rule(&z, ST_F32, documents, lengths);
    mock_forward(m, v[0], v[2]);
    mock_backward(m, v[0], v[1], v[3]);
    check_column("out", &z, n, 0, z.value, v[2], v[4]);
    for (size_t i = 0; i < ST_COUNT(column); i++)
        if (strcmp(column[i].grad, "dg") != 0 || lengths[0] > 1)
            check_column(column[i].grad, &z, n, column[i].at, column[i].width, v[3], v[5]);
    for (int32_t d = 0, t = 0; d < documents; t += lengths[d++]) {
        double dg = v[3][t * width_of(&z) + column[4].at]; /* nothing is there to decay: 0 but for rounding */
        if (!(fabs(dg) < 1e-6)) fail_msg("dg is %g at the first token of document %d", dg, d);
    }
    mock_close(m);
    for (int i = 0; i < 6; i++) free(v[i]);
}

static void check(const cases *c, const void *row)
{
    const gdn_row *r = row;
    json_t *j = json_load_file(case_path(c, r->file), 0, NULL);

    if (!j) fail_msg("no JSON");
    if (r->lengths) check_lengths(j);
    else check_values(j);
    json_decref(j);
}

const case_kind gdn_kind = CASE_KIND("gdn", rows, make, check);
