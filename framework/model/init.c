/* SPDX-License-Identifier: Apache-2.0 */
/* model/init.c - first values of weights: a named rule, deviations by path pattern, one random stream per weight
 * path, so a weight's values do not depend on what else is in the model. */
#include "model/private.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 15, PIECES = 32, BLOCK = PIECE * PIECES };

static bool is_normal(const model_weight *w) { return w->decl.init == ST_INIT_NORMAL || w->decl.init == ST_INIT_OUT; }

/* A pattern with a dot means the path, one without the weight's own name. */
static bool matches(const char *pattern, const char *path, const char *name)
{ return st_glob(pattern, strchr(pattern, '.') ? path : name); }

bool model_listed(const char *list, const char *path, const char *name)
{
    char word[256];
    for (const char *at = list; at && *at;) {
        size_t n = strcspn(at, ", \t");
        if (n && n < sizeof word) {
            memcpy(word, at, n);
            word[n] = 0;
            if (matches(word, path, name)) return true;
        }
        at += n + (at[n] != 0);
    }
    return false;
}

/* [init.rules] PATTERN = deviation; later lines win. NULL: none. */
static const st_value *override_of(const st_model *m, const model_weight *w)
{
    const st_value *const *v, *found = NULL;
    int n = st_spec_values(m->spec, "init.rules", &v);
    for (int i = 0; i < n; i++)
        if (matches(v[i]->key, w->pub.path, w->name)) found = v[i];
    return found;
}

/* The deviation has no meaning under fan_in; under the other rules its default belongs to the resolved spec. */
static int settle_std(st_model *m, st_diags *d)
{
    if (m->init.rule == INIT_FAN_IN)
        return isnan(m->init.std) ? ST_OK
                                  : st_spec_fail_key(m->spec, d, "init", "std", "use [init.rules] for single weights",
                                                     "std has no meaning under rule = fan_in");
    if (!isnan(m->init.std)) return ST_OK;
    m->init.std = 0.02;
    st_spec_take(m->spec, "init", "std", "0.02", NULL);
    return ST_OK;
}

int model_check_init(st_model *m, st_diags *d)
{
    const st_value *const *v;
    int n = st_spec_values(m->spec, "init.rules", &v), first = ST_OK, rc = ST_OK;

    for (int i = 0; i < n; i++, rc = ST_OK) {
        const char *why = "";
        double std;
        int32_t any = 0, normal = 0;
        st_spec_get(m->spec, "init.rules", v[i]->key);
        for (int32_t k = 0; k < m->n_weights; k++)
            if (matches(v[i]->key, m->weights[k]->pub.path, m->weights[k]->name)) {
                any = 1;
                normal |= is_normal(m->weights[k]);
            }
        if (!st_parse_float(v[i]->text, &std, &why) || std < 0)
            rc = st_spec_fail(m->spec, d, v[i], "a deviation such as 0.3", "%s = %s: %s", v[i]->key, v[i]->text,
                              *why ? why : "must not be negative");
        else if (!any)
            rc = st_spec_fail(m->spec, d, v[i],
                              "with a dot: the whole path (layers.*.conv); without: the weight's name (conv)",
                              "%s: no weight has such a name or path", v[i]->key);
        else if (!normal)
            rc = st_spec_fail(m->spec, d, v[i], NULL, "%s: its weights are not drawn from a normal distribution",
                              v[i]->key);
        if (rc != ST_OK && first == ST_OK) first = rc;
    }
    rc = settle_std(m, d);
    return first != ST_OK ? first : rc;
}

static double deviation(const st_model *m, const model_weight *w)
{
    const st_value *v = override_of(m, w);
    const char *why;
    double std = m->init.std;

    if (v && st_parse_float(v->text, &std, &why)) return std;
    if (w->decl.a != 0) return w->decl.a;
    if (m->init.rule == INIT_FAN_IN && w->pub.nd >= 2) {
        /* tied: it is a matrix too */
        int lookup = w->pub.flags & ST_W_TABLE && &w->pub != &m->weights[m->lm_head]->pub;
        return lookup ? 1 : 1 / sqrt((double)w->pub.dim[w->pub.nd - 1]);
    }
    if (m->init.rule == INIT_MEGATRON_SCALED && w->decl.init == ST_INIT_OUT)
        return std / sqrt((double)(w->part->stack ? w->part->stack->n : m->trunk->n));
    return std;
}

static double from_uniform(const model_weight *w, double u)
{
    double a = w->decl.a, b = w->decl.b, y;
    switch (w->decl.init) {
    case ST_INIT_UNIFORM: return a + (b - a) * u;
    case ST_INIT_LN_UNIFORM: return log(a + (b - a) * u);
    default: /* ST_INIT_SOFTPLUS_INV: softplus(x) = y */
        y = exp(log(a) + (log(b) - log(a)) * u);
        return y + log(-expm1(-y));
    }
}

/* Elements [first, first + n). */
static int fill(const st_model *m, const model_weight *w, uint64_t seed, double std, int64_t first, int64_t n,
                double *out)
{
    uint64_t stream = st_hash64(w->pub.path, strlen(w->pub.path), 0);

    switch (w->decl.init) {
    case ST_INIT_ZERO:
    case ST_INIT_ONE:
        for (int64_t i = 0; i < n; i++) out[i] = w->decl.init == ST_INIT_ONE;
        return ST_OK;
    case ST_INIT_CALL: return w->decl.fill(w->part->self, st_random_u64(seed, stream, 0), first, n, out);
    case ST_INIT_NORMAL:
    case ST_INIT_OUT:
        st_normal(seed, stream, first, n, out);
        for (int64_t i = 0; i < n; i++) out[i] *= std;
        return ST_OK;
    default:
        st_uniform(seed, stream, first, n, out);
        for (int64_t i = 0; i < n; i++) out[i] = from_uniform(w, out[i]);
        return ST_OK;
    }
}

/* ---- all elements, drawn by the host's threads ---- */

typedef struct draw {
    const st_model *m;
    const model_weight *w;
    uint64_t seed;
    double std, *out;
    int64_t first, n;
    int rc[PIECES];
} draw;

static void draw_piece(void *arg, int64_t i)
{
    draw *d = arg;
    int64_t at = i * PIECE, n = d->n - at < PIECE ? d->n - at : PIECE;

    d->rc[i] = fill(d->m, d->w, d->seed, d->std, d->first + at, n, d->out + at);
}

static int init_weight(st_model *m, const model_weight *w, uint64_t seed, double *block, st_error *e)
{
    draw d = {.m = m, .w = w, .seed = seed, .std = is_normal(w) ? deviation(m, w) : 0, .out = block};

    for (; d.first < w->pub.count; d.first += BLOCK) {
        d.n = w->pub.count - d.first < BLOCK ? w->pub.count - d.first : BLOCK;
        int64_t pieces = (d.n + PIECE - 1) / PIECE;
        st_threads_run(m->base->threads, pieces, draw_piece, &d);
        for (int64_t i = 0; i < pieces; i++)
            if (d.rc[i] != ST_OK) return st_fail(e, d.rc[i], "weight %s: fill() failed", w->pub.path);
        ST_TRY(model_write_weight(m, w, d.first, block, d.n, e));
    }
    return ST_OK;
}

/* constants 1: those that are not trained and not saved; 0: all others */
static int init_weights(st_model *m, bool constants, uint64_t seed, st_error *e)
{
    double *block = malloc(BLOCK * sizeof *block);
    int rc = block ? ST_OK : st_fail(e, ST_E_NOMEM, "no memory for first values");

    for (int32_t i = 0; i < m->n_weights && rc == ST_OK; i++)
        if (!(m->weights[i]->pub.flags & ST_W_CONST) != constants) rc = init_weight(m, m->weights[i], seed, block, e);
    free(block);
    return rc;
}

int model_fill_constants(st_model *m, st_error *e) { return init_weights(m, true, 0, e); }

int st_model_init(st_model *m, uint64_t seed, st_error *e)
{
    if (!m->opened) return st_fail(e, ST_E_INTERNAL, "the model is not open");
    return init_weights(m, false, seed, e);
}
