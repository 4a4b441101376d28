/* SPDX-License-Identifier: Apache-2.0 */
/* parity/report.c - the table of errors and the account of keys read. */
#include "config.h"
#include "parity/parity.h"
#include <math.h>
#include <string.h>

static const char *const type_name[ST_PARITY_TYPES] = {"f64", "f32", "bf16"};

const char *st_parity_precision(const st_parity *p) { return type_name[p->type]; }

static st_parity_row *find_row(st_parity *p, const char *name)
{
    for (int32_t i = 0; i < p->n; i++)
        if (strcmp(p->rows[i].name, name) == 0) return &p->rows[i];
    if (p->n == p->cap) {
        int32_t cap = p->cap ? 2 * p->cap : 64;
        st_parity_row *rows = ST_NEW_N(p->arena, st_parity_row, cap);
        if (!rows) return NULL;
        if (p->n) memcpy(rows, p->rows, (size_t)p->n * sizeof *rows);
        p->rows = rows;
        p->cap = cap;
    }
    p->rows[p->n].name = st_arena_strdup(p->arena, name);
    return p->rows[p->n].name ? &p->rows[p->n++] : NULL;
}

int st_parity_compare(st_parity *p, const char *name, const double *want, const double *got, int64_t n, int how,
                      double gate, st_error *e)
{
    st_parity_row *row = find_row(p, name);
    double diff = 0, size = 0, max = 0, error;

    if (!row) return st_fail(e, ST_E_NOMEM, "no memory for the row of %s", name);
    for (int64_t i = 0; i < n; i++) {
        double d = got[i] - want[i];
        diff += d * d;
        size += want[i] * want[i];
        if (!(fabs(d) <= max)) max = isnan(d) ? INFINITY : fabs(d); /* a NaN is the largest error of all */
    }
    st_parity_cell *c = &row->cell[p->type];
    row->count = n;
    if (isinf(gate) && json_is_number(json_object_get(p->peer, name)))
        gate = ST_PARITY_PEER * json_number_value(json_object_get(p->peer, name));
    c->max = max;
    c->norm = sqrt(size != 0 ? diff / size : n > 0 ? diff / (double)n : 0); /* of zeros: what was made, by itself */
    if (isnan(c->norm)) c->norm = INFINITY; /* a NaN is on either side */
    c->gate = gate;
    c->how = how;
    c->done = 1;
    error = how == ST_BY_MAX ? c->max : c->norm;
    c->failed = !(error <= gate);
    return ST_OK;
}

int st_parity_compare_within(st_parity *p, const char *name, double want, double got, double gate, double reach,
                             st_error *e)
{
    ST_TRY(st_parity_compare(p, name, &want, &got, 1, ST_BY_NORM, gate, e));
    st_parity_cell *c = &find_row(p, name)->cell[p->type];
    c->reach = isfinite(reach) ? reach : 0; /* a curve that left the numbers proves nothing */
    c->failed = !(c->norm <= fmax(gate, c->reach));
    return ST_OK;
}

int st_parity_get(st_parity *p, const char *key, double **values, int64_t *n, const st_file_tensor **tensor,
                  st_error *e)
{
    *values = NULL;
    for (int32_t i = 0; i < p->n_io; i++) {
        const st_file_tensor *t = &p->io_list[i];
        if (strcmp(t->name, key) != 0) continue;
        p->read[i] = 1;
        *values = ST_NEW_N(p->arena, double, t->count ? t->count : 1);
        if (!*values) return st_fail(e, ST_E_NOMEM, "no memory to read %s", key);
        if (n) *n = t->count;
        if (tensor) *tensor = t;
        return st_tensor_to_f64(t, *values, e);
    }
    return ST_OK;
}

int st_parity_need(st_parity *p, const char *key, double **values, int64_t *n, st_error *e)
{
    ST_TRY(st_parity_get(p, key, values, n, NULL, e));
    return *values ? ST_OK : st_fail(e, ST_E_NOTFOUND, "%s: %s has no %s", p->dir, p->io_name, key);
}

int st_parity_take(st_parity *p, const char *key, int64_t count, double **values, st_error *e)
{
    int64_t n;

    ST_TRY(st_parity_need(p, key, values, &n, e));
    if (n == count) return ST_OK;
    return st_fail(e, ST_E_DATA, "%s: %s: %s has %lld values, not %lld", p->dir, p->io_name, key, (long long)n,
                   (long long)count);
}

bool st_parity_stored_f32(const st_parity *p)
{
    for (int32_t i = 0; i < p->n_io; i++)
        if (p->io_list[i].dtype == ST_F64) return false;
    return true;
}

/* Over its gate, but no further than rounding alone moves it. */
static bool is_undecided(const st_parity_cell *c)
{
    return c->done && !c->failed && (c->how == ST_BY_MAX ? c->max : c->norm) > c->gate;
}

static void print_cell(FILE *f, const st_parity_cell *c)
{
    if (!c->done) {
        fprintf(f, "  %9s %9s %9s     ", "", "", "");
        return;
    }
    if (isinf(c->gate)) {
        fprintf(f, "  %9.2e %9.2e %9s %s", c->max, c->norm, "", c->failed ? "BAD" : "   ");
        return;
    }
    fprintf(f, "  %9.2e %9.2e %8.0e%c %s", c->max, c->norm, c->gate, c->how == ST_BY_MAX ? 'm' : 'n',
            c->failed         ? "BAD"
            : is_undecided(c) ? "~  "
                              : "ok ");
}

void st_parity_print(st_parity *p)
{
    int32_t unread = 0, undecided = 0;

    if (p->n) {
        fprintf(p->out, "%-72s %9s", p->title, "values");
        for (int t = 0; t < ST_PARITY_TYPES; t++)
            if (p->ran[t]) fprintf(p->out, "  %5s max %9s %9s    ", type_name[t], "by norm", "gate");
        fputc('\n', p->out);
        for (int32_t i = 0; i < p->n; i++) {
            const st_parity_row *r = &p->rows[i];
            fprintf(p->out, "%-72s %9lld", r->name, (long long)r->count);
            for (int t = 0; t < ST_PARITY_TYPES; t++) {
                if (!p->ran[t]) continue;
                print_cell(p->out, &r->cell[t]);
                p->failed += r->cell[t].failed;
                undecided += is_undecided(&r->cell[t]);
            }
            fputc('\n', p->out);
        }
    }
    for (int32_t i = 0; i < p->n_io; i++) {
        if (p->read[i]) continue;
        if (unread++ < 5) fprintf(p->out, "%s: nothing compared key %s\n", p->title, p->io_list[i].name);
    }
    if (unread > 5) fprintf(p->out, "%s: and %d more\n", p->title, unread - 5);
    p->failed += unread;
    if (p->n == 0) {
        fprintf(p->out, "%s: nothing was compared\n", p->title);
        p->failed++;
    }
    if (p->failed) fprintf(p->out, "%s: %d rows, FAILED\n\n", p->title, p->n);
    else if (undecided)
        fprintf(p->out,
                "%s: %d rows within their gates, but %d values (~) over theirs that rounding alone moves as far\n\n",
                p->title, p->n, undecided);
    else fprintf(p->out, "%s: %d rows, all within their gates\n\n", p->title, p->n);
}
