/* SPDX-License-Identifier: Apache-2.0 */
/* mock_host.c - see mock_host.h. */
#define _GNU_SOURCE
#include "mock_host.h"
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mock *of_step(st_step *s) { return (mock *)s; }
static mock *of_env(st_env *e) { return (mock *)((char *)e - offsetof(mock, env)); }

static void *unknown(size_t bytes) /* 256-byte aligned, NaN whatever the type */
{
    void *p = aligned_alloc(256, (bytes + 511) / 256 * 256);
    assert_non_null(p);
    return memset(p, 0xff, (bytes + 511) / 256 * 256);
}
static void *to_typed(const double *v, int64_t n, int32_t dtype)
{
    void *p = unknown((size_t)n * st_dtype_size(dtype));
    for (int64_t i = 0; i < n; i++) {
        if (dtype == ST_F64) ((double *)p)[i] = v[i];
        else ((float *)p)[i] = (float)v[i];
    }
    return p;
}
static void from_typed(const void *p, int64_t n, int32_t dtype, double *v)
{
    for (int64_t i = 0; i < n; i++) v[i] = dtype == ST_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

/* ---- configure ---- */

static bool mock_knows_key(const mock *m, const char *key) /* where a mistake is shown must be a parameter */
{
    for (uint32_t i = 0; i < m->plugin->n_params; i++)
        if (!strcmp(m->plugin->params[i].key, key)) return true;
    return false;
}

static st_wid env_declare(st_env *e, const st_weight *w)
{
    mock *m = of_env(e);
    if (e->status) return -1;
    assert_true(m->n_weights < MOCK_WEIGHTS);
    mock_weight *to = &m->weight[m->n_weights];
    snprintf(to->name, sizeof to->name, "%s", w->name);
    to->decl = *w;
    to->n = 1;
    for (int i = 0; i < w->nd; i++) to->n *= w->dim[i];
    int64_t sum = 0;
    for (int i = 0; i < w->n_sec; i++) {
        to->sec[i] = w->sec[i];
        sum += w->sec[i].n;
    }
    if (w->n_sec) assert_int_equal(sum, w->dim[w->sec_dim]);
    to->value = calloc((size_t)to->n, sizeof(double));
    to->grad = calloc((size_t)to->n, sizeof(double));
    return m->n_weights++;
}
static int env_tiles(st_env *e, int32_t tile, uint32_t which)
{
    of_env(e)->tile = tile;
    return 0;
}
static int env_rotary(st_env *e, int32_t head_dim)
{
    of_env(e)->rotary_dim = head_dim / 2 / 2 * 2; /* half of each head rotates */
    return 0;
}
static int env_fail(st_env *e, int code, const char *file, int line, const char *fmt, ...)
{
    mock *m = of_env(e);
    va_list ap;
    if (e->status) return e->status;
    va_start(ap, fmt);
    vsnprintf(m->error.message, sizeof m->error.message, fmt, ap);
    va_end(ap);
    return e->status = code;
}
static int env_fail_key(st_env *e, const char *key, int code, const char *file, int line, const char *fmt, ...)
{
    mock *m = of_env(e);
    va_list ap;
    if (e->status) return e->status;
    va_start(ap, fmt);
    vsnprintf(m->error.message, sizeof m->error.message, fmt, ap);
    va_end(ap);
    assert_true(mock_knows_key(m, key));
    return e->status = code;
}

/* ---- the step ---- */

static int step_fail(st_step *s, int code, const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    if (s->status) return s->status;
    va_start(ap, fmt);
    vsnprintf(of_step(s)->error.message, sizeof of_step(s)->error.message, fmt, ap);
    va_end(ap);
    return s->status = code;
}
st_tensor mock_scratch(mock *m, size_t bytes, st_tensor t)
{
    assert_true(m->n_scratch < MOCK_BLOCKS);
    m->scratch[m->n_scratch++] = (mock_memory){t.data = m->planning ? (void *)(uintptr_t)4096 : unknown(bytes), bytes};
    m->scratch_now += bytes;
    if (m->scratch_now > m->scratch_peak) m->scratch_peak = m->scratch_now;
    return t;
}
static st_tensor step_memory(st_step *s, int32_t slot, uint32_t flags, int32_t dtype, int64_t rows, int64_t cols)
{
    mock *m = of_step(s);
    const size_t bytes = (size_t)(rows * cols) * st_dtype_size(dtype);
    st_tensor t = st_tensor2(NULL, dtype, rows, cols);
    assert_true(st_dtype_size(dtype) > 0);
    if (slot < 0 || m->drop >> slot & 1) {
        t = mock_scratch(m, bytes, t);
        if (flags & ST_ZEROED && !m->planning) memset(t.data, 0, bytes);
        return t;
    }
    assert_true((uint32_t)slot < m->ops->n_slots);
    assert_null(m->kept[slot].at);
    m->kept[slot] = (mock_memory){t.data = m->planning ? (void *)(uintptr_t)4096 : unknown(bytes), bytes};
    m->kept_bytes += bytes;
    m->slot[slot] = t;
    return t;
}
static st_tensor step_kept(st_step *s, int32_t slot) { return of_step(s)->slot[slot]; }
static size_t step_mark(st_step *s) { return (size_t)of_step(s)->n_scratch; }
static void step_release(st_step *s, size_t mark)
{
    mock *m = of_step(s);
    while ((size_t)m->n_scratch > mark) {
        m->n_scratch--;
        m->scratch_now -= m->scratch[m->n_scratch].bytes;
        if (!m->planning) free(m->scratch[m->n_scratch].at);
    }
}
static st_tensor weight_tensor(const mock_weight *w, void *data, int32_t dtype)
{
    st_tensor t = {.data = data, .dtype = dtype, .nd = w->decl.nd, .dim = {1, 1, 1, 1}, .stride = {1, 1, 1, 1}};
    for (int i = 0; i < t.nd; i++) t.dim[i] = w->decl.dim[i];
    for (int i = t.nd - 2; i >= 0; i--) t.stride[i] = t.stride[i + 1] * t.dim[i + 1];
    return t;
}
static st_tensor step_weight(st_step *s, st_wid w)
{
    mock *m = of_step(s);
    return weight_tensor(&m->weight[w], m->planning ? (void *)(uintptr_t)4096 : m->weight[w].typed, s->dtype);
}
static st_tensor step_grad(st_step *s, st_wid w, float *beta)
{
    mock *m = of_step(s);
    if (m->weight[w].frozen) return st_absent();
    if (beta) *beta = 1;
    if (m->weight[w].decl.flags & ST_W_BETA) { /* every element must be written */
        assert_non_null(beta);
        *beta = 0;
        if (!m->planning) memset(m->weight[w].typed_grad, 0xff, (size_t)m->weight[w].n * st_dtype_size(s->acc_dtype));
    }
    return weight_tensor(&m->weight[w], m->planning ? (void *)(uintptr_t)4096 : m->weight[w].typed_grad, s->acc_dtype);
}
static int step_linear(st_step *s, const st_linear_args *a)
{
    mock *m = of_step(s);
    if (s->status || m->planning) return s->status;
    const mock_weight *w = &m->weight[a->w];
    const double *b = a->bias >= 0 ? m->weight[a->bias].value : NULL;
    const int64_t out = w->decl.dim[0], in = w->decl.dim[1];
    assert_int_equal(a->act, ST_ACT_NONE);
    assert_int_equal(a->x->dim[1], in);
    assert_int_equal(a->y->dim[1], out);
    assert_int_equal(a->x->dim[0], a->y->dim[0]);
    for (int64_t t = 0; t < a->x->dim[0]; t++)
        for (int64_t o = 0; o < out; o++) {
            double v = b ? b[o] : 0;
            for (int64_t i = 0; i < in; i++) v += mock_get(a->x, t, i, 0) * w->value[o * in + i];
            mock_set(a->y, t, o, 0, a->flags & ST_ADD ? v + mock_get(a->y, t, o, 0) : v);
        }
    return ST_OK;
}
static int step_linear_bwd(st_step *s, const st_linear_args *a)
{
    mock *m = of_step(s);
    if (s->status || m->planning) return s->status;
    mock_weight *w = &m->weight[a->w], *b = a->bias >= 0 ? &m->weight[a->bias] : NULL;
    const int64_t out = w->decl.dim[0], in = w->decl.dim[1];
    assert_int_equal(a->act, ST_ACT_NONE);
    assert_int_equal(a->dy->dim[1], out);
    for (int64_t t = 0; t < a->dy->dim[0]; t++) {
        for (int64_t o = 0; o < out; o++) {
            const double d = mock_get(a->dy, t, o, 0);
            if (b) b->grad[o] += d;
            for (int64_t i = 0; i < in; i++) w->grad[o * in + i] += d * mock_get(a->x, t, i, 0);
        }
        for (int64_t i = 0; a->dx && a->dx->data && i < in; i++) {
            double v = a->flags & ST_ADD ? mock_get(a->dx, t, i, 0) : 0;
            for (int64_t o = 0; o < out; o++) v += mock_get(a->dy, t, o, 0) * w->value[o * in + i];
            mock_set(a->dx, t, i, 0, v);
        }
    }
    return ST_OK;
}
static int step_begin(st_step *s, const char *name) { return !s->status && !of_step(s)->planning; }
static int step_end(st_step *s, int rc)
{
    if (rc != ST_OK && !s->status) s->status = rc;
    return s->status;
}
static st_tensor step_tiles(st_step *s, int32_t id)
{
    mock *m = of_step(s);
    return st_tensor2(m->planning ? (void *)(uintptr_t)4096 : m->tiles, ST_I32, m->n_tiles, 3);
}
static st_rotary step_rotary(st_step *s, int32_t id)
{
    mock *m = of_step(s);
    st_rotary r = {st_absent(), st_absent(), 0, 0};
    if (id < 0) return r;
    r.cos = st_tensor2(m->typed_cos, s->acc_dtype, m->row.tokens, m->rotary_dim / 2);
    r.sin = st_tensor2(m->typed_sin, s->acc_dtype, m->row.tokens, m->rotary_dim / 2);
    r.dim = m->rotary_dim;
    return r;
}

/* ---- opening ---- */

static const st_step_api step_api = {
    .size = sizeof step_api,
    .memory = step_memory,
    .kept = step_kept,
    .mark = step_mark,
    .release = step_release,
    .weight = step_weight,
    .grad = step_grad,
    .linear = step_linear,
    .linear_bwd = step_linear_bwd,
    .begin = step_begin,
    .end = step_end,
    .fail = step_fail,
    .tiles = step_tiles,
    .rotary = step_rotary,
    .accum = mock_step_accum,
    .total = mock_step_total,
    .metric = mock_step_metric,
    .scalar = mock_step_scalar,
};
static const st_env_api env_api = {
    .size = sizeof env_api,
    .declare = env_declare,
    .tiles = env_tiles,
    .rotary = env_rotary,
    .accum = mock_env_accum,
    .metric = mock_env_metric,
    .fail = env_fail,
    .fail_key = env_fail_key,
};
static int prepare(mock *m, const char *plugin, const char *const *settings, int32_t dtype, int64_t hidden)
{
    const st_axis one = {1, 0};
    st_plugin_fn entry;
    *(void **)&entry = dlsym(mock_module(plugin), "st_plugin_v1");
    assert_non_null(entry);
    m->plugin = entry();
    assert_int_equal(m->plugin->magic, ST_MAGIC);
    assert_int_equal(m->plugin->kind, ST_KIND_LAYER);
    m->ops = m->plugin->ops;
    m->self = calloc(1, m->plugin->self_size);
    mock_bind(m, settings);
    mock_kernels(m);
    m->pool = (st_cpu_pool){1, mock_run};
    m->queue = (st_queue){.size = sizeof m->queue, .stream = &m->pool, .fault = &m->fault};
    m->env = (st_env){.size = sizeof m->env,
                      .api = &env_api,
                      .host = &m->host,
                      .hidden = hidden,
                      .norm_eps = 1e-6,
                      .layers = 1,
                      .instances = 1,
                      .train = 1,
                      .dtype = dtype,
                      .acc_dtype = dtype,
                      .max_segments = 8,
                      .rows = 256,
                      .tokens = 256,
                      .tokens_time = 256,
                      .data = one,
                      .context = one,
                      .tensor = one,
                      .expert = one,
                      .media = one};
    m->queue.count = mock_count;
    m->step = (st_step){.size = sizeof m->step,
                        .mode = ST_TRAIN,
                        .train = 1,
                        .api = &step_api,
                        .ops = mock_ops(),
                        .q = &m->queue,
                        .row = &m->row,
                        .kernels = m->kernels ? m->kernels->table : NULL,
                        .dtype = dtype,
                        .acc_dtype = dtype,
                        .micros = 1,
                        .data = one,
                        .context = one,
                        .tensor = one,
                        .expert = one,
                        .media = one,
                        .backend = "cpu"};
    return m->ops->configure(m->self, &m->env);
}
mock *mock_open(const char *plugin, const char *const *settings, int32_t dtype, int64_t hidden)
{
    mock *m = calloc(1, sizeof *m);
    if (prepare(m, plugin, settings, dtype, hidden)) fail_msg("%s refused: %s", plugin, m->error.message);
    return m;
}
const char *mock_refusal(const char *plugin, const char *const *settings, int32_t dtype, int64_t hidden,
                         char words[512])
{
    mock *m = calloc(1, sizeof *m);
    if (prepare(m, plugin, settings, dtype, hidden) == ST_OK) fail_msg("%s refused nothing", plugin);
    memcpy(words, m->error.message, 512);
    mock_close(m);
    return words;
}
static void free_row(mock *m)
{
    free(m->segments);
    free(m->tiles);
    free(m->spans);
    free(m->cos);
    free(m->sin);
    free(m->typed_cos);
    free(m->typed_sin);
    free(m->real);
}
static void free_kept(mock *m)
{
    for (int i = 0; i < MOCK_SLOTS; i++) {
        if (!m->planning) free(m->kept[i].at);
        m->kept[i] = (mock_memory){0};
        m->slot[i] = st_absent();
    }
}
void mock_close(mock *m)
{
    free_kept(m);
    free_row(m);
    for (int i = 0; i < m->n_weights; i++) {
        free(m->weight[i].value);
        free(m->weight[i].grad);
    }
    mock_free_cells(m);
    if (m->device) m->backend->close(m->device);
    free(m->backend_self);
    free(m->self);
    free(m);
}

/* ---- rows and calls ---- */

static void make_lists(mock *m, int n, const int32_t *lengths)
{
    const int all = n + MOCK_SPARE;
    int tile = 0, at = 0;
    for (int i = 0; i < all; i++) {
        const int length = i < n ? lengths[i] : 0;
        m->segments[i] = m->spans[i] = m->spans[2 * all + i] = at;
        m->spans[all + i] = m->spans[3 * all + i] = length;
        for (int t = 0; m->tile && t < length; t += m->tile, tile++) {
            m->tiles[3 * tile] = i;
            m->tiles[3 * tile + 1] = at + t;
            m->tiles[3 * tile + 2] = length - t < m->tile ? length - t : m->tile;
        }
        at += length;
    }
    m->segments[all] = at;
}
void mock_row(mock *m, int n, const int32_t *lengths)
{
    const int all = n + MOCK_SPARE;
    int32_t tokens = 0, longest = 0;
    free_row(m);
    for (int i = 0; i < n; i++) {
        tokens += lengths[i];
        if (lengths[i] > longest) longest = lengths[i];
    }
    m->n_tiles = m->tile ? tokens / m->tile + all : 1;
    m->segments = calloc((size_t)all + 1, sizeof(int32_t));
    m->tiles = calloc((size_t)m->n_tiles * 3, sizeof(int32_t));
    m->spans = calloc((size_t)all * 4, sizeof(int32_t));
    make_lists(m, n, lengths);
    m->real = memset(calloc((size_t)tokens + 1, 1), 1, (size_t)tokens);
    const int64_t half = m->rotary_dim / 2;
    m->cos = calloc((size_t)(tokens * half + 1), sizeof(double));
    m->sin = calloc((size_t)(tokens * half + 1), sizeof(double));
    for (int i = 0, t = 0; i < n; i++)
        for (int p = 0; p < lengths[i]; p++, t++)
            for (int64_t k = 0; k < half; k++) {
                m->cos[t * half + k] = cos(p * pow(100, -(double)k / (double)half));
                m->sin[t * half + k] = sin(p * pow(100, -(double)k / (double)half));
            }
    m->typed_cos = to_typed(m->cos, tokens * half, m->step.acc_dtype);
    m->typed_sin = to_typed(m->sin, tokens * half, m->step.acc_dtype);
    m->row = (st_row){.size = sizeof m->row,
                      .tokens = tokens,
                      .tokens_time = tokens,
                      .max_segments = all,
                      .max_len = longest,
                      .real = st_tensor2(m->real, ST_U8, 1, tokens),
                      .segments = st_tensor2(m->segments, ST_I32, 1, all + 1),
                      .spans = st_tensor2(m->spans, ST_I32, 4, all)};
}
mock_weight *mock_weight_of(mock *m, const char *name)
{
    for (int i = 0; i < m->n_weights; i++)
        if (!strcmp(m->weight[i].name, name)) return &m->weight[i];
    fail_msg("%s declares no weight %s", m->plugin->name, name);
    return NULL;
}
static void begin_call(mock *m)
{
    m->scratch_now = m->scratch_peak = 0;
    m->step.status = ST_OK;
    for (int i = 0; i < m->n_weights; i++) {
        mock_weight *w = &m->weight[i];
        w->typed = to_typed(w->value, w->n, m->step.dtype);
        w->typed_grad = to_typed(w->grad, w->n, m->step.acc_dtype);
    }
}
static void end_call(mock *m, int rc)
{
    if (rc || m->step.status) fail_msg("%s failed with %d: %s", m->plugin->name, rc, m->error.message);
    step_release(&m->step, 0);
    for (int i = 0; i < m->n_weights; i++) {
        free(m->weight[i].typed);
        free(m->weight[i].typed_grad);
    }
}
void mock_forward(mock *m, const double *x, double *y)
{
    const int64_t n = m->row.tokens, h = m->env.hidden;
    st_tensor tx = st_tensor2(to_typed(x, n * h, m->step.dtype), m->step.dtype, n, h);
    st_tensor ty = st_tensor2(unknown((size_t)(n * h) * 8), m->step.dtype, n, h);
    free_kept(m);
    m->kept_bytes = 0;
    if (!m->threads) m->threads = 1;
    m->pool.threads = m->threads;
    mock_backend(m);
    mock_begin_cells(m);
    begin_call(m);
    end_call(m, m->ops->forward(m->self, &m->step, &tx, &ty));
    mock_sum_cells(m, ST_AT_FORWARD_END);
    from_typed(ty.data, n * h, m->step.dtype, y);
    free(tx.data);
    free(ty.data);
}
void mock_finish(mock *m)
{
    mock_sum_cells(m, ST_AT_STEP_END);
    begin_call(m);
    end_call(m, m->ops->finish_step ? m->ops->finish_step(m->self, &m->step) : ST_OK);
}
st_tensor mock_slot(const mock *m, const char *name)
{
    for (uint32_t i = 0; i < m->ops->n_slots; i++)
        if (!strcmp(m->ops->slots[i].name, name)) return m->slot[i];
    fail_msg("%s has no slot %s", m->plugin->name, name);
    return st_absent();
}
static void move_kept(mock *m)
{
    for (int i = 0; i < MOCK_SLOTS; i++) {
        if (!m->kept[i].at) continue;
        m->slot[i].data = memcpy(unknown(m->kept[i].bytes), m->kept[i].at, m->kept[i].bytes);
        memset(m->kept[i].at, 0xff, m->kept[i].bytes);
        free(m->kept[i].at);
        m->kept[i].at = m->slot[i].data;
    }
}
void mock_backward(mock *m, const double *x, const double *dy, double *dx)
{
    const int64_t n = m->row.tokens, h = m->env.hidden;
    const int32_t type = m->step.dtype;
    st_tensor tx = st_tensor2(to_typed(x, n * h, type), type, n, h),
              tdy = st_tensor2(to_typed(dy, n * h, type), type, n, h);
    st_tensor tdx = dx ? st_tensor2(unknown((size_t)(n * h) * 8), type, n, h) : st_absent();
    move_kept(m);
    for (int i = 0; i < m->n_weights; i++) memset(m->weight[i].grad, 0, (size_t)m->weight[i].n * sizeof(double));
    begin_call(m);
    int rc = m->ops->backward(m->self, &m->step, &tx, &tdy, &tdx);
    for (int i = 0; i < m->n_weights; i++) {
        mock_weight *w = &m->weight[i];
        double *own =
            calloc((size_t)w->n, sizeof(double)); /* what came by st_grad; the mock's linear adds to grad itself */
        from_typed(w->typed_grad, w->n, m->step.acc_dtype, own);
        for (int64_t k = 0; k < w->n; k++) w->grad[k] += own[k];
        free(own);
    }
    end_call(m, rc);
    if (dx) from_typed(tdx.data, n * h, type, dx);
    free(tx.data);
    free(tdy.data);
    free(tdx.data);
}
void mock_plan(mock *m)
{
    const int64_t n = m->row.tokens, h = m->env.hidden;
    st_tensor fake = st_tensor2((void *)(uintptr_t)4096, m->step.dtype, n, h);
    const void *kernels = m->step.kernels;
    free_kept(m);
    m->planning = m->queue.planning = 1;
    m->step.kernels = NULL;
    m->kept_bytes = m->scratch_now = m->scratch_peak = 0;
    m->step.status = ST_OK;
    int rc = m->ops->forward(m->self, &m->step, &fake, &fake);
    step_release(&m->step, 0);
    if (rc == ST_OK) rc = m->ops->backward(m->self, &m->step, &fake, &fake, &fake);
    if (rc) fail_msg("%s failed while planning: %s", m->plugin->name, m->error.message);
    step_release(&m->step, 0);
    free_kept(m);
    m->planning = m->queue.planning = 0;
    m->step.kernels = kernels;
}
