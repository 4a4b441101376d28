/* SPDX-License-Identifier: Apache-2.0 */
/* mock_cells.c - accumulators, metrics and scalars of the mock host. */
#include "mock_host.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static mock *of_step(st_step *s) { return (mock *)s; }
static mock *of_env(st_env *e) { return (mock *)((char *)e - offsetof(mock, env)); }

int mock_env_accum(st_env *e, const st_accum *a)
{
    mock *m = of_env(e);
    assert_true(m->n_accums < MOCK_ACCUMS);
    const size_t bytes = (size_t)a->n * st_dtype_size(e->acc_dtype);
    m->accum[m->n_accums] = (mock_accum){a->name, a->n, a->sum, calloc(1, bytes), calloc(1, bytes)};
    return m->n_accums++;
}
int mock_env_metric(st_env *e, const st_metric *d)
{
    mock *m = of_env(e);
    assert_true(m->n_metrics < MOCK_METRICS);
    m->metric[m->n_metrics] = (mock_metric){d->name, calloc(2, st_dtype_size(e->acc_dtype))};
    return m->n_metrics++;
}
static st_tensor cells(const mock *m, void *at, int64_t n)
{
    st_tensor t = st_tensor2(m->planning ? (void *)(uintptr_t)4096 : at, m->step.acc_dtype, n, 1);
    t.nd = 1;
    return t;
}
st_tensor mock_step_accum(st_step *s, int32_t id)
{
    mock *m = of_step(s);
    return cells(m, m->accum[id].cell, m->accum[id].n);
}
st_tensor mock_step_total(st_step *s, int32_t id)
{
    mock *m = of_step(s);
    return cells(m, m->accum[id].total, m->accum[id].n);
}
st_tensor mock_step_metric(st_step *s, int32_t id) { return cells(of_step(s), of_step(s)->metric[id].cell, 2); }
st_tensor mock_step_scalar(st_step *s, int32_t which)
{
    assert_int_equal(which, ST_S_REAL_TOKENS);
    return cells(of_step(s), of_step(s)->typed_tokens, 1);
}

void mock_begin_cells(mock *m)
{
    const size_t size = st_dtype_size(m->step.acc_dtype);
    double real = 0;
    st_tensor tokens;
    for (int i = 0; i < m->n_accums; i++) {
        memset(m->accum[i].cell, 0, (size_t)m->accum[i].n * size);
        memset(m->accum[i].total, 0, (size_t)m->accum[i].n * size);
    }
    for (int i = 0; i < m->n_metrics; i++) memset(m->metric[i].cell, 0, 2 * size);
    for (int32_t t = 0; t < m->row.tokens; t++) real += m->real[t];
    if (!m->typed_tokens) m->typed_tokens = calloc(1, size);
    tokens = st_tensor2(m->typed_tokens, m->step.acc_dtype, 1, 1);
    mock_set(&tokens, 0, 0, 0, real);
    m->fault = (st_fault){0};
}
void mock_sum_cells(mock *m, uint32_t when)
{
    for (int i = 0; i < m->n_accums; i++)
        if (m->accum[i].sum == when)
            memcpy(m->accum[i].total, m->accum[i].cell, (size_t)m->accum[i].n * st_dtype_size(m->step.acc_dtype));
}
void mock_free_cells(mock *m)
{
    for (int i = 0; i < m->n_accums; i++) {
        free(m->accum[i].cell);
        free(m->accum[i].total);
    }
    for (int i = 0; i < m->n_metrics; i++) free(m->metric[i].cell);
    free(m->typed_tokens);
}
double mock_metric_of(const mock *m, const char *name)
{
    for (int i = 0; i < m->n_metrics; i++) {
        const st_tensor cell = st_tensor2(m->metric[i].cell, m->step.acc_dtype, 2, 1);
        if (strcmp(m->metric[i].name, name)) continue;
        return mock_get(&cell, 1, 0, 0) != 0 ? mock_get(&cell, 0, 0, 0) / mock_get(&cell, 1, 0, 0) : NAN;
    }
    fail_msg("%s has no metric %s", m->plugin->name, name);
    return NAN;
}
