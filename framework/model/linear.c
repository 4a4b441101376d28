/* SPDX-License-Identifier: Apache-2.0 */
/* model/linear.c - y = act(x W^T + bias) and its backward, by weight handle. */
#include "model/private.h"

static const st_model *model_of(st_step *s) { return ((model_run *)(void *)s)->m; }

static int check(st_step *s, st_wid id, const st_tensor *w, const st_tensor *in, const st_tensor *out)
{
    const st_model *m = model_of(s);

    if (s->status != ST_OK) return s->status;
    if (w->nd != 2)
        return model_fail((st_model *)m, ST_E_SHAPE, "weight %s has %d dimensions: a linear map needs 2",
                          m->weights[id]->pub.path, w->nd);
    if (in && in->dtype != ST_NONE && (in->nd != 2 || in->dim[1] != w->dim[1]))
        return model_fail((st_model *)m, ST_E_SHAPE, "weight %s takes %lld columns: its input is %lld x %lld",
                          m->weights[id]->pub.path, (long long)w->dim[1], (long long)in->dim[0], (long long)in->dim[1]);
    if (out && out->dtype != ST_NONE &&
        (out->nd != 2 || out->dim[1] != w->dim[0] || (in && in->dtype != ST_NONE && out->dim[0] != in->dim[0])))
        return model_fail((st_model *)m, ST_E_SHAPE, "weight %s gives %lld x %lld: its output is %lld x %lld",
                          m->weights[id]->pub.path, in ? (long long)in->dim[0] : -1LL, (long long)w->dim[0],
                          (long long)out->dim[0], (long long)out->dim[1]);
    return ST_OK;
}

static bool present(const st_tensor *t) { return t && t->data; }

/* t itself, or a copy of it in another type. */
static st_tensor as_type(st_step *s, const st_tensor *t, int32_t dtype)
{
    st_tensor copy;

    if (!present(t) || t->dtype == dtype) return t ? *t : st_absent();
    copy = st_scratch(s, dtype, t->dim[0], t->dim[1]);
    ST_OP(s, copy, t, &copy);
    return copy;
}

/* An op of another name, so that profiles and FLOPs tell the three products of a linear map apart. */
static int plain_product(st_step *s, const char *name, const st_gemm *g)
{
    if (s->status != ST_OK) return s->status;
    if (!s->ops->gemm) return ST_FAIL(s, ST_E_UNSUPPORTED, "this backend has no op gemm");
    s->api->begin(s, name);
    return s->api->end(s, s->ops->gemm(s->q, g));
}

/* Operands of two types are multiplied in the wider one, and what comes out is rounded once. */
static int product(st_step *s, const char *name, const st_gemm *g)
{
    int32_t wide = st_dtype_size(g->a->dtype) >= st_dtype_size(g->b->dtype) ? g->a->dtype : g->b->dtype;
    bool narrow = st_dtype_size(g->c->dtype) < st_dtype_size(wide);
    size_t mark = s->api->mark(s);
    st_tensor a, b, c;
    st_gemm own = *g;

    if (g->a->dtype == g->b->dtype && !narrow) return plain_product(s, name, g);
    a = as_type(s, g->a, wide);
    b = as_type(s, g->b, wide);
    c = narrow ? st_scratch(s, wide, g->c->dim[0], g->c->dim[1]) : *g->c;
    own.a = &a;
    own.b = &b;
    own.c = &c;
    if (narrow && g->beta != 0) ST_OP(s, copy, g->c, &c);
    plain_product(s, name, &own);
    if (narrow) ST_OP(s, copy, &c, g->c);
    if (s->status == ST_OK) s->api->release(s, mark);
    return s->status;
}

int model_linear(st_step *s, const st_linear_args *given)
{
    st_linear_args args, *a = &args;
    st_tensor w, bias;

    st_sized_copy(a, sizeof args, given);
    w = model_weight_of(s, a->w);
    bias = a->bias >= 0 ? model_weight_of(s, a->bias) : st_absent();
    ST_TRY(check(s, a->w, &w, a->x, a->y));
    return product(s, "linear",
                   &(st_gemm){.a = a->x,
                              .b = &w,
                              .bias = bias.data ? &bias : NULL,
                              .c = a->y,
                              .aux = a->act != ST_ACT_NONE ? a->aux : NULL,
                              .alpha = 1,
                              .beta = a->flags & ST_ADD ? 1 : 0,
                              .trans = 2,
                              .act = a->act});
}

int model_linear_bwd(st_step *s, const st_linear_args *given)
{
    st_linear_args args, *a = &args;
    st_tensor w, dy, pre, g, gb;
    size_t mark = s->api->mark(s);
    float beta = 1;

    st_sized_copy(a, sizeof args, given);
    w = model_weight_of(s, a->w);
    dy = a->dy ? *a->dy : st_absent();
    ST_TRY(check(s, a->w, &w, a->x, &dy));
    if (a->act != ST_ACT_NONE) {
        if (!present(a->aux))
            return ST_FAIL(s, ST_E_INTERNAL, "backward of weight %s needs the values before its activation",
                           model_of(s)->weights[a->w]->pub.path);
        pre = st_scratch(s, dy.dtype, dy.dim[0], dy.dim[1]);
        ST_OP(s, act_bwd, a->act, a->aux, &dy, &pre);
        dy = pre;
    }
    g = model_grad_of(s, a->w, &beta);
    gb = a->bias >= 0 ? model_grad_of(s, a->bias, NULL) : st_absent();
    if (g.data) product(s, "linear_dw", &(st_gemm){.a = &dy, .b = a->x, .c = &g, .alpha = 1, .beta = beta, .trans = 1});
    if (gb.data) ST_OP(s, colsum, &dy, &gb);
    if (present(a->dx))
        product(s, "linear_dx",
                &(st_gemm){.a = &dy, .b = &w, .c = a->dx, .alpha = 1, .beta = a->flags & ST_ADD ? 1 : 0});
    if (s->status == ST_OK) s->api->release(s, mark);
    return s->status;
}
