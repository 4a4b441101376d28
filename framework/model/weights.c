/* SPDX-License-Identifier: Apache-2.0 */
/* model/weights.c - declared weights: names, shapes, sections, the host's own, and access to their values. */
#include "base/bf16.h"
#include "model/private.h"
#include <string.h>

/* ---- declaring ---- */

static char *with_number(st_arena *a, const char *text, int32_t n)
{
    const char *at = strstr(text, "{n}");
    return at ? st_arena_printf(a, "%.*s%d%s", (int)(at - text), text, n, at + 3) : st_arena_strdup(a, text);
}

static bool name_ok(const char *name)
{ return name[0] && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.") == strlen(name); }

static int check_shape(const st_weight *w, const char *path, st_error *e)
{
    int64_t sum = 0, count = 1;

    if (w->nd < 1 || w->nd > ST_DIMS) return st_fail(e, ST_E_INTERNAL, "weight %s: %d dimensions", path, w->nd);
    for (int i = 0; i < w->nd; i++) {
        if (w->dim[i] < 1 || w->dim[i] > INT64_MAX / 16 / count)
            return st_fail(e, ST_E_CONFIG, "weight %s: dimension %d is %lld", path, i, (long long)w->dim[i]);
        count *= w->dim[i];
    }
    if (!w->n_sec) return ST_OK;
    if (w->sec_dim < 0 || w->sec_dim >= w->nd)
        return st_fail(e, ST_E_INTERNAL, "weight %s: sections of dimension %d of %d", path, w->sec_dim, w->nd);
    for (int i = 0; i < w->n_sec; i++) sum += w->sec[i].n;
    if (sum != w->dim[w->sec_dim])
        return st_fail(e, ST_E_INTERNAL, "weight %s: sections hold %lld, dimension %d is %lld", path, (long long)sum,
                       w->sec_dim, (long long)w->dim[w->sec_dim]);
    return ST_OK;
}

/* n elements in units over the ranks of a group: whole units, and as many for every rank or one for neighbours. */
static int check_cut(const st_mesh *mesh, uint32_t group, int64_t n, int64_t unit, const char *path, const char *what,
                     st_error *e)
{
    int64_t ranks = st_mesh_size(mesh, group), units;

    if (group == ST_G_NONE) return ST_OK;
    if (group != ST_G_TENSOR && group != ST_G_EXPERT)
        return st_fail(e, ST_E_INTERNAL, "weight %s, %s: cut over group %s", path, what, st_group_name(group));
    if (unit < 1 || n % unit)
        return st_fail(e, ST_E_CONFIG, "weight %s, %s: %lld is no multiple of its unit %lld", path, what, (long long)n,
                       (long long)unit);
    units = n / unit;
    if (ranks < 1 || (units % ranks && ranks % units))
        return st_fail(e, ST_E_CONFIG,
                       "weight %s, %s: %lld units of %lld do not divide over the %lld ranks of group %s", path, what,
                       (long long)units, (long long)unit, (long long)ranks, st_group_name(group));
    return ST_OK;
}

static int check_cuts(const st_mesh *mesh, const st_weight *w, const char *path, st_error *e)
{
    char what[80];

    for (int i = 0; i < w->nd; i++) {
        snprintf(what, sizeof what, "dimension %d", i);
        if (w->n_sec && i == w->sec_dim) continue;
        ST_TRY(check_cut(mesh, w->cut[i], w->dim[i], w->unit[i] ? w->unit[i] : 1, path, what, e));
    }
    for (int i = 0; i < w->n_sec; i++) {
        if (!w->sec[i].cut) continue;
        snprintf(what, sizeof what, "section %.60s", w->sec[i].name);
        ST_TRY(check_cut(mesh, w->cut[w->sec_dim], w->sec[i].n, w->sec[i].unit, path, what, e));
    }
    return ST_OK;
}

static int check_init(const st_weight *w, const char *path, st_error *e)
{
    if (w->init < ST_INIT_ZERO || w->init > ST_INIT_SOFTPLUS_INV)
        return st_fail(e, ST_E_INTERNAL, "weight %s: init %d", path, w->init);
    if (w->init == ST_INIT_CALL && !w->fill)
        return st_fail(e, ST_E_INTERNAL, "weight %s: ST_INIT_CALL without fill()", path);
    if (w->flags & ST_W_CONST && w->init == ST_INIT_NORMAL)
        return st_fail(e, ST_E_INTERNAL, "weight %s: constant but random", path);
    return ST_OK;
}

/* Where the weight of this path is, or would be. */
static int32_t *slot_of(const st_model *m, const char *path)
{
    uint32_t mask = m->path_slots - 1, i = (uint32_t)st_hash64(path, strlen(path), 0) & mask;

    while (m->by_path[i] && strcmp(m->weights[m->by_path[i] - 1]->pub.path, path)) i = (i + 1) & mask;
    return &m->by_path[i];
}

int32_t st_model_find_weight(const st_model *m, const char *path) { return m->path_slots ? *slot_of(m, path) - 1 : -1; }

static bool grow_slots(st_model *m)
{
    uint32_t n = m->path_slots ? 2 * m->path_slots : 64;
    int32_t *more;

    if (2 * ((uint32_t)m->n_weights + 1) <= m->path_slots) return true;
    more = ST_NEW_N(m->arena, int32_t, n);
    if (!more) return false;
    m->by_path = more;
    m->path_slots = n;
    for (int32_t i = 0; i < m->n_weights; i++) *slot_of(m, m->weights[i]->pub.path) = i + 1;
    return true;
}

static model_weight *add_weight(st_model *m, model_part *p, const st_weight *w, const char *name, const char *path)
{
    model_weight *x = ST_NEW(m->arena, model_weight);

    if (!x || !model_grow(m->arena, &m->weights, m->n_weights, &m->cap_weights, sizeof *m->weights)) return NULL;
    x->decl = *w;
    x->name = name;
    x->raw = st_arena_strdup(m->arena, w->name);
    x->part = p;
    x->index = w->index;
    x->group = x->bucket = x->order = -1;
    x->pub.path = path;
    x->pub.part = w->part ? st_arena_strdup(m->arena, w->part) : p->trains_as;
    x->pub.block = p->stack == m->trunk ? p->block : -1;
    x->pub.nd = w->nd;
    x->pub.count = 1;
    for (int i = 0; i < w->nd; i++) x->pub.count *= x->pub.dim[i] = w->dim[i];
    x->pub.flags = w->flags;
    x->pub.dtype = w->flags & ST_W_ACC ? m->acc_dtype : m->dtype;
    x->pub.lr_scale = 1;
    x->pub.n_sec = w->n_sec;
    x->pub.sec_dim = w->sec_dim;
    if (w->n_sec) {
        st_section *sec = ST_NEW_N(m->arena, st_section, w->n_sec);
        if (!sec) return NULL;
        for (int i = 0; i < w->n_sec; i++) {
            sec[i] = w->sec[i];
            sec[i].name = st_arena_strdup(m->arena, w->sec[i].name);
        }
        x->pub.sec = x->decl.sec = sec;
    }
    m->weights[m->n_weights++] = x;
    return x;
}

st_wid model_declare(st_model *m, model_part *p, const st_weight *given, st_error *e)
{
    st_weight w;
    char *name, *path;

    st_sized_copy(&w, sizeof w, given);
    if (!w.name) return st_fail(e, ST_E_INTERNAL, "%s declares a weight without a name", p->path), -1;
    name = with_number(m->arena, w.name, w.index);
    path = p->path[0] ? st_arena_printf(m->arena, "%s.%s", p->path, name) : name;
    if (!name || !path) return st_fail(e, ST_E_NOMEM, "no memory for weights"), -1;
    if (!name_ok(name)) return st_fail(e, ST_E_INTERNAL, "weight '%s': names hold a-z 0-9 _ .", path), -1;
    if (!grow_slots(m)) return st_fail(e, ST_E_NOMEM, "no memory for weights"), -1;
    if (st_model_find_weight(m, path) >= 0) return st_fail(e, ST_E_INTERNAL, "weight %s is declared twice", path), -1;
    if (check_shape(&w, path, e) != ST_OK || check_cuts(&m->mesh, &w, path, e) != ST_OK ||
        check_init(&w, path, e) != ST_OK)
        return -1;
    if (!add_weight(m, p, &w, name, path)) return st_fail(e, ST_E_NOMEM, "no memory for weights"), -1;
    *slot_of(m, path) = m->n_weights;
    return m->n_weights - 1;
}

/* The host's norm in front of a layer; "pre_norm" leaves "norm" to the layer. */
static int declare_norm(st_model *m, model_part *p, const char *name, int32_t kind, int64_t hidden, int32_t *w,
                        int32_t *b, st_error *e)
{
    st_weight d = {.size = sizeof d,
                   .name = name,
                   .nd = 1,
                   .dim = {hidden},
                   .init = kind == ST_NORM_RMS1P ? ST_INIT_ZERO : ST_INIT_ONE};

    *b = -1;
    *w = model_declare(m, p, &d, e);
    if (*w < 0) return e->code;
    m->weights[*w]->norm = NORM_WEIGHT;
    if (kind != ST_NORM_LAYER) return ST_OK;
    d.name = st_arena_printf(m->arena, "%s_bias", name);
    d.init = ST_INIT_ZERO;
    *b = model_declare(m, p, &d, e);
    if (*b < 0) return e->code;
    m->weights[*b]->norm = NORM_BIAS;
    return ST_OK;
}

int model_declare_norms(st_model *m, model_part *p, st_error *e)
{ return declare_norm(m, p, "pre_norm", p->stack->kind, p->stack->hidden, &p->norm, &p->norm_bias, e); }

/* Embedding, final norm, output matrix. */
int model_declare_host(st_model *m, st_error *e)
{
    int64_t hidden = m->stack_keys.hidden, vocab = m->stack_keys.vocab;
    st_weight embed = {.size = sizeof embed,
                       .flags = ST_W_BETA | ST_W_TABLE,
                       .name = "embed",
                       .nd = 2,
                       .dim = {vocab, hidden},
                       .init = ST_INIT_NORMAL};
    st_weight head = {.size = sizeof head,
                      .flags = ST_W_BETA | ST_W_APART,
                      .name = "lm_head",
                      .nd = 2,
                      .dim = {vocab, hidden},
                      .init = ST_INIT_NORMAL};

    m->embed = model_declare(m, m->host, &embed, e);
    if (m->embed < 0) return e->code;
    ST_TRY(declare_norm(m, m->host, "final_norm", m->stack_keys.norm + ST_NORM_RMS1P, hidden, &m->final_norm,
                        &m->final_norm_bias, e));
    m->lm_head = m->stack_keys.tie_embeddings ? m->embed : model_declare(m, m->host, &head, e);
    return m->lm_head < 0 ? e->code : ST_OK;
}

/* ---- tensors ---- */

static st_tensor shaped(const model_weight *w, void *data, int32_t dtype)
{
    st_tensor t = {data, NULL, {1, 1, 1, 1}, {1, 1, 1, 1}, dtype, w->pub.nd};
    int64_t stride = 1;

    for (int i = w->pub.nd; i-- > 0;) {
        t.dim[i] = w->pub.dim[i];
        t.stride[i] = stride;
        stride *= w->pub.dim[i];
    }
    return t;
}

/* Where a bucket has it whole, or NULL. */
static char *in_bucket(const model_weight *w, char *whole, int32_t dtype)
{ return whole ? whole + (size_t)w->offset * st_dtype_size(dtype) : NULL; }

st_tensor model_weight_tensor(const st_model *m, const model_weight *w)
{
    char *whole = w->bucket < 0 ? NULL : in_bucket(w, m->buckets[w->bucket].weights, w->pub.dtype);
    return shaped(w, whole ? whole : m->weight_block.base + w->at, w->pub.dtype);
}

bool model_group_has_masters(const st_model *m, const opt_group *g)
{ return g->dtype != m->acc_dtype && !g->class_.no_master; }

bool model_has_master(const st_model *m, const model_weight *w)
{ return w->group >= 0 && model_group_has_masters(m, &m->groups[w->group]); }

st_tensor model_master_tensor(const st_model *m, const model_weight *w)
{
    return model_has_master(m, w) ? shaped(w, m->state_block.base + w->master_at, m->acc_dtype)
                                  : model_weight_tensor(m, w);
}

st_tensor model_grad_tensor(const st_model *m, const model_weight *w)
{
    char *whole = w->bucket < 0 ? NULL : in_bucket(w, m->buckets[w->bucket].grads, m->acc_dtype);
    if (!w->trains) return st_absent();
    return shaped(w, whole ? whole : m->grad_block.base + w->grad_at, m->acc_dtype);
}

/* ---- values from and to the host ---- */

static void to_f64(const void *in, int32_t dtype, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == ST_F64) out[i] = ((const double *)in)[i];
        else if (dtype == ST_F32) out[i] = (double)((const float *)in)[i];
        else out[i] = st_bf16_to_f64(((const uint16_t *)in)[i]);
    }
}

static void from_f64(const double *in, int64_t n, int32_t dtype, void *out)
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == ST_F64) ((double *)out)[i] = in[i];
        else if (dtype == ST_F32) ((float *)out)[i] = (float)in[i];
        else ((uint16_t *)out)[i] = st_bf16_from_f64(in[i]);
    }
}

/* n elements of a tensor in one piece, f64, f32 or bf16, by way of the staging memory. */
int model_read_tensor(st_model *m, st_tensor t, double *out, int64_t n, st_error *e)
{
    size_t size = st_dtype_size(t.dtype);
    int64_t most = (int64_t)(MODEL_STAGING / size);

    for (int64_t i = 0; i < n; i += most) {
        int64_t k = n - i < most ? n - i : most;
        ST_TRY(model_from_device(m, (const char *)t.data + (size_t)i * size, (size_t)k * size, e));
        to_f64(m->staging.base, t.dtype, k, out + i);
    }
    return ST_OK;
}

int model_write_tensor(st_model *m, st_tensor t, const double *in, int64_t n, st_error *e)
{
    size_t size = st_dtype_size(t.dtype);
    int64_t most = (int64_t)(MODEL_STAGING / size);

    for (int64_t i = 0; i < n; i += most) {
        int64_t k = n - i < most ? n - i : most;
        from_f64(in + i, k, t.dtype, m->staging.base);
        ST_TRY(model_to_device(m, (char *)t.data + (size_t)i * size, (size_t)k * size, e));
    }
    return ST_OK;
}

/* Elements [first, first + n) of the flattened weight, into its master too. */
int model_write_weight(st_model *m, const model_weight *w, int64_t first, const double *in, int64_t n, st_error *e)
{
    st_tensor t = model_weight_tensor(m, w), master = model_master_tensor(m, w);

    t.data = (char *)t.data + (size_t)first * st_dtype_size(t.dtype);
    ST_TRY(model_write_tensor(m, t, in, n, e));
    if (!model_has_master(m, w)) return ST_OK;
    master.data = (char *)master.data + (size_t)first * st_dtype_size(master.dtype);
    return model_write_tensor(m, master, in, n, e);
}

/* The weight that is computed with follows its f32 master. */
int model_round_master(st_model *m, const model_weight *w, const float *master, st_error *e)
{
    st_tensor t = model_weight_tensor(m, w);
    int64_t most = (int64_t)(MODEL_STAGING / sizeof(uint16_t));
    uint16_t *to = (uint16_t *)(void *)m->staging.base;

    for (int64_t i = 0; i < w->pub.count; i += most) {
        int64_t k = w->pub.count - i < most ? w->pub.count - i : most;
        for (int64_t j = 0; j < k; j++) to[j] = st_bf16_from_f64((double)master[i + j]);
        ST_TRY(model_to_device(m, (uint16_t *)t.data + i, (size_t)k * sizeof *to, e));
    }
    return ST_OK;
}

static int check_weight(const st_model *m, int32_t weight, st_error *e)
{
    if (!m->opened) return st_fail(e, ST_E_INTERNAL, "the model is not open");
    return weight >= 0 && weight < m->n_weights ? ST_OK
                                                : st_fail(e, ST_E_NOTFOUND, "weight %d of %d", weight, m->n_weights);
}

static int find_grad(const st_model *m, int32_t weight, st_tensor *out, st_error *e)
{
    *out = model_grad_tensor(m, m->weights[weight]);
    return out->data ? ST_OK
                     : st_fail(e, ST_E_NOTFOUND, "weight %s has no gradient: it is not trained",
                               m->weights[weight]->pub.path);
}

int st_model_read(st_model *m, int32_t weight, int what, double *out, st_error *e)
{
    st_tensor t;

    ST_TRY(check_weight(m, weight, e));
    t = model_master_tensor(m, m->weights[weight]);
    if (what == ST_READ_GRAD) ST_TRY(find_grad(m, weight, &t, e));
    return model_read_tensor(m, t, out, m->weights[weight]->pub.count, e);
}

static int check_elements(const st_model *m, int32_t weight, int64_t first, int64_t n, st_error *e)
{
    ST_TRY(check_weight(m, weight, e));
    const st_model_weight *w = &m->weights[weight]->pub;
    if (first >= 0 && n >= 0 && first <= w->count - n) return ST_OK;
    return st_fail(e, ST_E_INTERNAL, "elements %lld to %lld of %s, which has %lld", (long long)first, (long long)(first + n),
                   w->path, (long long)w->count);
}

int st_model_read_at(st_model *m, int32_t weight, int64_t first, double *out, int64_t n, st_error *e)
{
    st_tensor t;

    ST_TRY(check_elements(m, weight, first, n, e));
    t = model_master_tensor(m, m->weights[weight]);
    t.data = (char *)t.data + (size_t)first * st_dtype_size(t.dtype);
    return model_read_tensor(m, t, out, n, e);
}

int st_model_write(st_model *m, int32_t weight, const double *in, st_error *e)
{
    ST_TRY(check_weight(m, weight, e));
    return model_write_weight(m, m->weights[weight], 0, in, m->weights[weight]->pub.count, e);
}

int st_model_write_at(st_model *m, int32_t weight, int64_t first, const double *in, int64_t n, st_error *e)
{
    ST_TRY(check_elements(m, weight, first, n, e));
    return model_write_weight(m, m->weights[weight], first, in, n, e);
}

int st_model_write_grad(st_model *m, int32_t weight, const double *in, st_error *e)
{
    st_tensor t;

    ST_TRY(check_weight(m, weight, e));
    ST_TRY(find_grad(m, weight, &t, e));
    return model_write_tensor(m, t, in, m->weights[weight]->pub.count, e);
}

int st_model_weights(const st_model *m, const st_model_weight *const **out)
{
    *out = m->weight_list;
    return m->n_weights;
}

int64_t st_model_parameters(const st_model *m, const char *part)
{
    int64_t n = 0;
    for (int32_t i = 0; i < m->n_weights; i++) {
        const st_model_weight *w = &m->weights[i]->pub;
        if (!w->frozen && !(w->flags & (ST_W_CONST | ST_W_STATE)) && (!part || !strcmp(part, w->part))) n += w->count;
    }
    return n;
}
