/* SPDX-License-Identifier: Apache-2.0 */
/* See part_host.h. The nested stack is one linear map that needs spans and rotary tables: inside a span every row gets
 * u * (1 + 0.1 cos) plus a fifth of the span's mean; rows in no span keep u. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "part_host.h"

#define HOST_OF(member, p) ((part_host *)(void *)((char *)(p) - offsetof(part_host, member)))

static int set_error(st_error *e, int code, const char *fmt, va_list args)
{
    e->code = code;
    vsnprintf(e->message, sizeof e->message, fmt, args);
    return code;
}
static int host_fail(st_error *e, int code, const char *file, int line, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    set_error(e, code, fmt, args);
    va_end(args);
    return code;
}
static int env_fail(st_env *e, int code, const char *file, int line, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    set_error(&HOST_OF(env, e)->error, code, fmt, args);
    va_end(args);
    return e->status = code;
}
static int env_fail_key(st_env *e, const char *key, int code, const char *file, int line, const char *fmt, ...)
{
    part_host *h = HOST_OF(env, e);
    va_list args;
    int known = 0;

    for (uint32_t i = 0; i < h->plugin->n_params; i++)
        known |= !strcmp(h->plugin->params[i].key, key);
    assert_true(known);
    snprintf(h->failed_key, sizeof h->failed_key, "%s", key);
    va_start(args, fmt);
    set_error(&h->error, code, fmt, args);
    va_end(args);
    return e->status = code;
}
static int step_fail(st_step *s, int code, const char *file, int line, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    set_error(&HOST_OF(step, s)->error, code, fmt, args);
    va_end(args);
    return s->status = code;
}

void *part_alloc(part_host *h, size_t bytes)
{
    h->blocks = realloc(h->blocks, sizeof *h->blocks * (size_t)(h->n_blocks + 1));
    return h->blocks[h->n_blocks++] = calloc(1, bytes ? bytes : 1);
}
static void *arena_alloc(st_arena *arena, size_t bytes)
{
    return part_alloc((part_host *)(void *)arena, bytes);
}
st_tensor part_tensor(part_host *h, int32_t dtype, int64_t rows, int64_t cols)
{
    return st_tensor2(part_alloc(h, (size_t)(rows * cols) * st_dtype_size(dtype)), dtype, rows, cols);
}
double part_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 4503599627370496.0 - 1;
}

/* ---------------- configure ---------------- */
static st_wid env_declare(st_env *e, const st_weight *w)
{
    part_host *h = HOST_OF(env, e);
    part_weight *to = &h->weight[h->n_weights];

    to->def = *w;
    snprintf(to->name, sizeof to->name, "%s", w->name);
    to->n = w->dim[0] * (w->nd > 1 ? w->dim[1] : 1);
    to->value = part_alloc(h, sizeof(double) * (size_t)to->n);
    to->grad = part_alloc(h, sizeof(double) * (size_t)to->n);
    return h->n_weights++;
}
static int env_stack(st_env *e, const st_stack_def *d)
{
    part_host *h = HOST_OF(env, e);

    h->stack = *d;
    snprintf(h->stack_pattern, sizeof h->stack_pattern, "%s", d->pattern);
    return 3;
}
static int env_stack_rotary_dim(st_env *e, int32_t stack)
{
    assert_int_equal(stack, 3);
    return HOST_OF(env, e)->stack_rotary_dim;
}
static int env_metric(st_env *e, const st_metric *m)
{
    HOST_OF(env, e)->metric = *m;
    return 5;
}

/* ---------------- step ---------------- */
static st_tensor step_memory(st_step *s, int32_t slot, uint32_t flags, int32_t dtype, int64_t rows, int64_t cols)
{
    part_host *h = HOST_OF(step, s);
    st_tensor t = part_tensor(h, dtype, rows, cols);

    if (!(flags & ST_ZEROED))
        memset(t.data, 0xff, (size_t)(rows * cols) * st_dtype_size(dtype));
    if (slot >= 0 && !(h->drop >> slot & 1))
        h->slot[slot] = t;
    return t;
}
static st_tensor step_kept(st_step *s, int32_t slot)
{
    return HOST_OF(step, s)->slot[slot];
}
static size_t step_mark(st_step *s)
{
    return 0;
}
static void step_release(st_step *s, size_t mark)
{
}
static st_tensor weight_tensor(const part_weight *w, double *data)
{
    st_tensor t = st_tensor2(data, ST_F64, w->def.dim[0], w->def.nd > 1 ? w->def.dim[1] : 1);

    t.nd = w->def.nd;
    return t;
}
static st_tensor step_weight(st_step *s, st_wid w)
{
    part_host *h = HOST_OF(step, s);

    return weight_tensor(&h->weight[w], h->weight[w].value);
}
static st_tensor step_grad(st_step *s, st_wid w, float *beta)
{
    part_host *h = HOST_OF(step, s);

    return weight_tensor(&h->weight[w], h->weight[w].grad);
}
static double gelu(double x)
{
    return 0.5 * x * (1 + erf(x * M_SQRT1_2));
}
static double gelu_slope(double x)
{
    return 0.5 * (1 + erf(x * M_SQRT1_2)) + x * exp(-0.5 * x * x) * 0.39894228040143267794;
}
static int step_linear(st_step *s, const st_linear_args *a)
{
    part_host *h = HOST_OF(step, s);
    const double *w = h->weight[a->w].value, *bias = a->bias >= 0 ? h->weight[a->bias].value : NULL, *x = a->x->data;
    int64_t in = h->weight[a->w].def.dim[1], out = h->weight[a->w].def.dim[0];

    for (int64_t r = 0; r < a->x->dim[0]; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = bias ? bias[o] : 0;
            for (int64_t i = 0; i < in; i++)
                sum += w[o * in + i] * x[r * in + i];
            if (a->act == ST_ACT_GELU_ERF) {
                ((double *)a->aux->data)[r * out + o] = sum;
                sum = gelu(sum);
            }
            ((double *)a->y->data)[r * out + o] = sum;
        }
    return s->status;
}
static int step_linear_bwd(st_step *s, const st_linear_args *a)
{
    part_host *h = HOST_OF(step, s);
    part_weight *w = &h->weight[a->w];
    double *db = a->bias >= 0 ? h->weight[a->bias].grad : NULL, *dx = a->dx ? a->dx->data : NULL;
    const double *x = a->x->data, *dy = a->dy->data;
    int64_t in = w->def.dim[1], out = w->def.dim[0];

    for (int64_t r = 0; r < a->x->dim[0]; r++) {
        for (int64_t i = 0; dx && i < in; i++)
            dx[r * in + i] = 0;
        for (int64_t o = 0; o < out; o++) {
            double d = dy[r * out + o];
            if (a->act == ST_ACT_GELU_ERF)
                d *= gelu_slope(((double *)a->aux->data)[r * out + o]);
            if (db)
                db[o] += d;
            for (int64_t i = 0; i < in; i++) {
                w->grad[o * in + i] += d * x[r * in + i];
                if (dx)
                    dx[r * in + i] += d * w->value[o * in + i];
            }
        }
    }
    return s->status;
}
static int step_begin(st_step *s, const char *name)
{
    return s->status == 0;
}
static int step_end(st_step *s, int rc)
{
    return rc ? (s->status = rc) : s->status;
}
static st_tensor step_scalar(st_step *s, int32_t which)
{
    return st_tensor2(&HOST_OF(step, s)->scalar[which], ST_F64, 1, 1);
}
static int step_lm_loss(st_step *s, int32_t depth, double weight, int32_t metric, const st_tensor *h,
                        const st_tensor *dh)
{
    HOST_OF(step, s)->lm_losses += depth == 0 && weight == 1.0 && metric == 5;
    return s->status;
}
/* The map is symmetric: forward and backward are the same. */
static int stack_map(part_host *h, const st_view *v, const double *u, double *out)
{
    const int32_t *begin = v->row->spans.data, spans = (int32_t)v->row->spans.dim[1], *len = begin + spans;
    int64_t d = h->stack.hidden, half = v->rotary->dim / 2;

    memcpy(out, u, sizeof(double) * (size_t)(h->stack.rows * d));
    for (int32_t s = 0; s < spans; s++)
        for (int64_t i = 0; i < d; i++) {
            double mean = 0;
            for (int32_t r = begin[s]; r < begin[s] + len[s]; r++)
                mean += u[r * d + i] / len[s];
            for (int32_t r = begin[s]; r < begin[s] + len[s]; r++)
                out[r * d + i] +=
                    0.1 * ((double *)v->rotary->cos.data)[r * half + i % half] * u[r * d + i] + 0.2 * mean;
        }
    return 0;
}
static int step_stack(st_step *s, int32_t id, const st_view *v, const st_tensor *u, st_wid norm, const st_tensor *out)
{
    return stack_map(HOST_OF(step, s), v, u->data, out->data);
}
static int step_stack_bwd(st_step *s, int32_t id, const st_view *v, const st_tensor *dout, const st_tensor *du)
{
    return stack_map(HOST_OF(step, s), v, dout->data, du->data);
}

/* ---------------- ops ---------------- */
static void queue_count(const st_queue *q, double flops, double bytes) {}
static int op_norm(const st_queue *q, const st_norm *a)
{
    int64_t n = a->r->dim[0], d = a->r->dim[1];
    const double *w = a->w->data, *b = a->b->data;

    for (int64_t r = 0; r < n; r++) {
        const double *x = (double *)a->r->data + r * d;
        double mean = 0, var = 0, rstd;
        for (int64_t i = 0; i < d; i++)
            mean += x[i] / (double)d;
        for (int64_t i = 0; i < d; i++)
            var += (x[i] - mean) * (x[i] - mean) / (double)d;
        rstd = 1 / sqrt(var + a->eps);
        for (int64_t i = 0; i < d; i++)
            ((double *)a->n->data)[r * d + i] = (x[i] - mean) * rstd * w[i] + b[i];
        if (a->rstd && a->mean) {
            ((double *)a->rstd->data)[r] = rstd;
            ((double *)a->mean->data)[r] = mean;
        }
    }
    return ST_OK;
}
static int op_norm_bwd(const st_queue *q, const st_norm_bwd *a)
{
    int64_t n = a->r->dim[0], d = a->r->dim[1];
    const double *w = a->w->data;

    for (int64_t r = 0; r < n; r++) {
        const double *x = (double *)a->r->data + r * d, *dn = (double *)a->dn->data + r * d;
        double mean = ((double *)a->mean->data)[r], rstd = ((double *)a->rstd->data)[r], m1 = 0, m2 = 0;
        for (int64_t i = 0; i < d; i++) {
            double unit = (x[i] - mean) * rstd;
            m1 += dn[i] * w[i] / (double)d;
            m2 += dn[i] * w[i] * unit / (double)d;
            ((double *)a->dw->data)[i] += dn[i] * unit;
            ((double *)a->db->data)[i] += dn[i];
        }
        for (int64_t i = 0; i < d; i++)
            ((double *)a->dr->data)[r * d + i] = rstd * (dn[i] * w[i] - m1 - (x[i] - mean) * rstd * m2);
    }
    return ST_OK;
}
static int op_act(const st_queue *q, int act, const st_tensor *x, const st_tensor *y)
{
    for (int64_t i = 0; i < x->dim[0] * x->dim[1]; i++)
        ((double *)y->data)[i] = gelu(((double *)x->data)[i]);
    return ST_OK;
}
static int op_adamw(const st_queue *q, const st_adamw *a)
{
    part_host *h = HOST_OF(queue, q);

    h->adamw_calls++;
    h->adamw_seen = *a;
    return a->skip->data == &h->scalar[ST_S_SKIP] && a->clip->data == &h->scalar[ST_S_CLIP] ? ST_OK : ST_E_SHAPE;
}
static void run_reversed(const st_cpu_pool *p, int64_t n, void (*fn)(void *arg, int64_t i), void *arg)
{
    for (int64_t i = n; i-- > 0;)
        fn(arg, i);
}

/* ---------------- modules and parameters ---------------- */
static void *open_module(const char *name, const char *symbol)
{
    char path[4096];
    void *module, *entry;

    snprintf(path, sizeof path, "%s/plugins/.libs/%s.so", getenv("ST_BUILDDIR"), name);
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        fail_msg("%s", dlerror());
    entry = dlsym(module, symbol);
    if (!entry)
        fail_msg("%s exports no %s", path, symbol);
    return entry;
}
static void bind_list(const st_param *p, char *field, const char *text)
{
    st_ints *ints = (void *)field;
    st_floats *floats = (void *)field;

    while (text && *text) {
        char *end;
        double v = strtod(text, &end);
        if (p->type == ST_P_INTS)
            ints->v[ints->n++] = (int32_t)v;
        else
            floats->v[floats->n++] = v;
        text = *end == ',' ? end + 1 : NULL;
    }
}
static void bind(part_host *h, const st_param *p, const char *text)
{
    char *field = (char *)h->self + p->offset;
    int64_t whole = text ? strtoll(text, NULL, 10) : ST_UNSET_INT;
    double real = text ? strtod(text, NULL) : NAN;
    int32_t choice = -1, i = 0;

    if (p->type == ST_P_STRING) {
        memcpy(field, &text, sizeof text);
    } else if (p->type == ST_P_INT) {
        memcpy(field, &whole, sizeof whole);
    } else if (p->type == ST_P_FLOAT) {
        memcpy(field, &real, sizeof real);
    } else if (p->type == ST_P_BOOL) {
        choice = text && !strcmp(text, "yes");
        memcpy(field, &choice, sizeof choice);
    } else if (p->type == ST_P_ENUM) {
        for (const char *c = p->choices; text && c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL, i++)
            if (!strncmp(c, text, strlen(text)) && (c[strlen(text)] == '|' || !c[strlen(text)]))
                choice = i;
        memcpy(field, &choice, sizeof choice);
    } else {
        bind_list(p, field, text);
    }
}

part_host *part_open(const char *module, const char *const *settings)
{
    static const st_env_api env_api = {
        .size = sizeof env_api, .declare = env_declare, .stack = env_stack, .metric = env_metric, .fail = env_fail,
        .fail_key = env_fail_key, .stack_rotary_dim = env_stack_rotary_dim};
    static const st_step_api step_api = {.size = sizeof step_api,
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
                                         .scalar = step_scalar,
                                         .lm_loss = step_lm_loss,
                                         .stack = step_stack,
                                         .stack_bwd = step_stack_bwd};
    static const st_ops ops = {
        .size = sizeof ops, .norm = op_norm, .norm_bwd = op_norm_bwd, .act = op_act, .adamw = op_adamw};
    part_host *h = calloc(1, sizeof *h);
    st_plugin_fn entry;

    *(void **)&entry = open_module(module, "st_plugin_v1");
    h->plugin = entry();
    h->host = (st_host){.size = sizeof h->host, .fail = host_fail, .alloc = arena_alloc};
    h->worker =
        (st_worker){.size = sizeof h->worker, .host = &h->host, .arena = (st_arena *)(void *)h, .error = &h->error};
    h->pool = (st_cpu_pool){.threads = 1, .run = run_reversed};
    h->queue = (st_queue){.size = sizeof h->queue, .stream = &h->pool, .count = queue_count};
    h->env = (st_env){.size = sizeof h->env, .api = &env_api, .host = &h->host, .dtype = ST_F64, .acc_dtype = ST_F64,
                      .media_caps = &h->caps, .train = 1};
    h->step = (st_step){.size = sizeof h->step,
                        .mode = ST_TRAIN,
                        .train = 1,
                        .api = &step_api,
                        .ops = &ops,
                        .q = &h->queue,
                        .dtype = ST_F64,
                        .acc_dtype = ST_F64};
    h->self = part_alloc(h, h->plugin->self_size);
    for (uint32_t i = 0; i < h->plugin->n_params; i++) {
        const char *text = h->plugin->params[i].def;
        for (const char *const *s = settings; s && *s; s += 2)
            if (!strcmp(s[0], h->plugin->params[i].key))
                text = s[1];
        bind(h, &h->plugin->params[i], text);
    }
    return h;
}

const void *part_kernels(part_host *h)
{
    const st_kernels *(*entry)(void);
    const st_kernels *k;
    char name[128];

    snprintf(name, sizeof name, "%s-cpu", h->plugin->name);
    *(void **)&entry = open_module(name, "st_kernels_v1");
    k = entry();
    assert_int_equal(k->magic, ST_KERNEL_MAGIC);
    assert_string_equal(k->plugin, h->plugin->name);
    assert_string_equal(k->version, h->plugin->version);
    assert_int_equal(k->iface, h->plugin->kernel_iface);
    assert_int_equal(k->table_size, h->plugin->kernel_size);
    return h->step.kernels = k->table;
}

part_weight *part_weight_of(part_host *h, const char *name)
{
    for (int i = 0; i < h->n_weights; i++)
        if (!strcmp(h->weight[i].name, name))
            return &h->weight[i];
    fail_msg("no weight %s", name);
    return NULL;
}

void part_close(part_host *h)
{
    for (int i = 0; i < h->n_blocks; i++)
        free(h->blocks[i]);
    free(h->blocks);
    free(h);
}
