/* SPDX-License-Identifier: Apache-2.0 */
/* adamw.c - what any backend asks of the arguments of adamw_rounded. */
#include "adamw.h"

enum { HYPERS = 9 };
static const char *const op = "adamw_rounded";

/* f32 or bf16 */
static int check_stored(const st_queue *q, const char *name, const st_tensor *t, int64_t n)
{
    if (!check_given(t) || t->dtype != ST_BF16) return check_vector(q, op, name, t, ST_F32, n);
    return check_vector(q, op, name, t, ST_BF16, n);
}

static int check_weight(const st_queue *q, const st_adamw *a, int64_t n, bool *apart)
{
    *apart = check_given(a->weight) && a->weight->data != a->master->data;
    if (!*apart) return ST_OK;
    if (a->master->dtype == ST_BF16)
        return q->fail(q, ST_E_SHAPE, "%s: weight is apart from a master in bf16, which is the weight itself", op);
    return check_stored(q, "weight", a->weight, n);
}

int check_adamw_rounded(const st_queue *q, const st_adamw_rounded *r, int64_t *n, bool *apart)
{
    const st_adamw *a = &r->of;

    if (!check_given(a->master)) return q->fail(q, ST_E_SHAPE, "%s: master is absent", op);
    *n = check_elements(a->master);
    ST_TRY(check_stored(q, "master", a->master, *n));
    ST_TRY(check_stored(q, "m", a->m, *n));
    ST_TRY(check_vector(q, op, "v", a->v, a->m->dtype, *n));
    ST_TRY(check_vector(q, op, "grad", a->grad, ST_F32, *n));
    ST_TRY(check_weight(q, a, *n, apart));
    ST_TRY(check_vector(q, op, "hyper", a->hyper, ST_F32, HYPERS));
    ST_TRY(check_vector_if(q, op, "clip", a->clip, ST_F32, 1));
    ST_TRY(check_vector_if(q, op, "skip", a->skip, ST_F32, 1));
    ST_TRY(check_vector(q, op, "step", r->step, ST_F32, 1));
    if (r->first < 0) return q->fail(q, ST_E_SHAPE, "%s: first is %lld", op, (long long)r->first);
    q->count(q, 15.0 * (double)*n,
             2 * check_bytes(a->master) + 2 * check_bytes(a->m) + 2 * check_bytes(a->v) + check_bytes(a->grad) +
                 (*apart ? check_bytes(a->weight) : 0));
    return ST_OK;
}
