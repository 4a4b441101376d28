/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - see attention.h. */
#include "attention.h"

enum { X, W, RSTD, Y, DY, DX, DW, MEMBERS };
static const char *const names[2][MEMBERS] = {{"q.x", "q.w", "q.rstd", "q.y", "q.dy", "q.dx", "q.dw"},
                                              {"k.x", "k.w", "k.rstd", "k.y", "k.dy", "k.dx", "k.dw"}};

static int check_side(const st_queue *q, const char *op, const char *const *name, const st_qk_side *s, int32_t acc,
                      bool backward)
{
    const int64_t tokens = s->x->dim[0], heads = s->x->dim[1], d = s->x->dim[2];

    ST_TRY(check_vector(q, op, name[W], s->w, s->x->dtype, d));
    ST_TRY(CHECK_TENSOR(q, op, name[RSTD], s->rstd, acc, tokens, heads));
    if (!backward) return check_like(q, op, name[Y], s->y, name[X], s->x);
    ST_TRY(check_like(q, op, name[DY], s->dy, name[X], s->x));
    if (check_given(s->dx)) ST_TRY(check_like(q, op, name[DX], s->dx, name[X], s->x));
    return check_vector_if(q, op, name[DW], s->dw, acc, d);
}

static int check_table(const st_queue *q, const char *op, const st_rotary *table, int32_t acc, int64_t tokens,
                       int64_t d)
{
    const int64_t dim = table->dim;

    if (dim == 0) return ST_OK;
    if (dim < 0 || dim % 2 || dim > d)
        return q->fail(q, ST_E_SHAPE, "%s: %lld columns are to rotate, it must be even and at most the head's %lld", op,
                       (long long)dim, (long long)d);
    ST_TRY(CHECK_TENSOR(q, op, "cos", &table->cos, acc, tokens, dim / 2));
    return CHECK_TENSOR(q, op, "sin", &table->sin, acc, tokens, dim / 2);
}

int check_qk_norm(const st_queue *q, const char *op, const st_qk_norm *a, int32_t acc, bool backward)
{
    const st_tensor *x = a->q.x;

    if (a->kind != ST_NORM_RMS1P && a->kind != ST_NORM_RMS)
        return q->fail(q, ST_E_UNSUPPORTED, "%s: kind %d, known are %d and %d", op, (int)a->kind, ST_NORM_RMS1P,
                       ST_NORM_RMS);
    ST_TRY(CHECK_TENSOR(q, op, "q.x", x, x->dtype, -1, -1, -1));
    ST_TRY(CHECK_TENSOR(q, op, "k.x", a->k.x, x->dtype, x->dim[0], -1, x->dim[2]));
    ST_TRY(check_side(q, op, names[0], &a->q, acc, backward));
    ST_TRY(check_side(q, op, names[1], &a->k, acc, backward));
    return check_table(q, op, a->table, acc, x->dim[0], x->dim[2]);
}

int check_gate(const st_queue *q, const char *op, const st_attn_gated *a)
{
    ST_TRY(check_like(q, op, "gate", a->gate, "out", a->of.out));
    ST_TRY(check_like(q, op, "dy", a->dy, "out", a->of.out));
    ST_TRY(check_like(q, op, "d_out", a->of.d_out, "out", a->of.out));
    return check_given(a->d_gate) ? check_like(q, op, "d_gate", a->d_gate, "out", a->of.out) : ST_OK;
}
