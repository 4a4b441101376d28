/* SPDX-License-Identifier: Apache-2.0 */
/* ops_point.c - elementwise entries: adamw in both forms, glu, act, add, copy and fill; and sumsq. */
#include "../check/adamw.h"
#include "ops.h"

static int known_act(const st_queue *q, const char *op, int act)
{
    if (act >= ST_ACT_NONE && act <= ST_ACT_RELU2) return ST_OK;
    return q->fail(q, ST_E_UNSUPPORTED, "%s: activation %d, known are 0 to %d", op, act, ST_ACT_RELU2);
}

static double bytes_of(int n, const st_tensor *const *t)
{
    double bytes = 0;
    for (int i = 0; i < n; i++) bytes += check_bytes(t[i]);
    return bytes;
}

/* Counts, and runs it unless planning. */
static int point(const st_queue *q, cuda_point p, double flops, int n, const st_tensor *const *t)
{
    q->count(q, flops * (double)check_elements(t[0]), bytes_of(n, t));
    if (q->planning) return ST_OK;
    walk_make(&p.walk, n, t);
    return cuda_table_of(q)->point(q, &p);
}

static int want_all_like(const st_queue *q, const char *op, int n, const char *const *name, const st_tensor *const *t)
{
    ST_TRY(want_real_like(q, op, name[0], t[0], name[0], t[0]));
    for (int i = 1; i < n; i++) ST_TRY(want_real_like_if(q, op, name[i], t[i], name[0], t[0]));
    return ST_OK;
}

static int absent(const st_queue *q, const char *op, const char *name)
{
    return q->fail(q, ST_E_SHAPE, "%s: %s is absent", op, name);
}

int cuda_glu(const st_queue *q, int act, const st_tensor *g, const st_tensor *u, const st_tensor *y)
{
    static const char *const name[] = {"g", "u", "y"};
    const st_tensor *const t[] = {g, u, y};
    ST_TRY(known_act(q, "glu", act));
    if (!check_given(g) || !check_given(u)) return absent(q, "glu", check_given(g) ? "u" : "g");
    ST_TRY(want_all_like(q, "glu", 3, name, t));
    if (!check_given(y)) return ST_OK;
    return point(q, (cuda_point){.what = CUDA_GLU, .act = act}, 10, 3, t);
}

int cuda_glu_bwd(const st_queue *q, int act, const st_tensor *g, const st_tensor *u, const st_tensor *dy,
                 const st_tensor *dg, const st_tensor *du)
{
    static const char *const name[] = {"g", "u", "dy", "dg", "du"};
    const st_tensor *const t[] = {g, u, dy, dg, du};
    ST_TRY(known_act(q, "glu_bwd", act));
    for (int i = 0; i < 3; i++)
        if (!check_given(t[i])) return absent(q, "glu_bwd", name[i]);
    ST_TRY(want_all_like(q, "glu_bwd", 5, name, t));
    if (!check_given(dg) && !check_given(du)) return ST_OK;
    return point(q, (cuda_point){.what = CUDA_GLU_BWD, .act = act}, 20, 5, t);
}

int cuda_act(const st_queue *q, int act, const st_tensor *x, const st_tensor *y)
{
    static const char *const name[] = {"x", "y"};
    const st_tensor *const t[] = {x, y};
    ST_TRY(known_act(q, "act", act));
    if (!check_given(x)) return absent(q, "act", "x");
    ST_TRY(want_all_like(q, "act", 2, name, t));
    if (!check_given(y)) return ST_OK;
    return point(q, (cuda_point){.what = CUDA_ACT, .act = act}, 10, 2, t);
}

int cuda_act_bwd(const st_queue *q, int act, const st_tensor *x, const st_tensor *dy, const st_tensor *dx)
{
    static const char *const name[] = {"x", "dy", "dx"};
    const st_tensor *const t[] = {x, dy, dx};
    ST_TRY(known_act(q, "act_bwd", act));
    if (!check_given(x) || !check_given(dy)) return absent(q, "act_bwd", check_given(x) ? "dy" : "x");
    ST_TRY(want_all_like(q, "act_bwd", 3, name, t));
    if (!check_given(dx)) return ST_OK;
    return point(q, (cuda_point){.what = CUDA_ACT_BWD, .act = act}, 15, 3, t);
}

int cuda_add(const st_queue *q, double a, const st_tensor *x, double b, const st_tensor *y, const st_tensor *z)
{
    static const char *const name[] = {"x", "y", "z"};
    const st_tensor *const t[] = {x, y, z};
    if (!check_given(x)) return absent(q, "add", "x");
    ST_TRY(want_all_like(q, "add", 3, name, t));
    if (!check_given(z)) return ST_OK;
    return point(q, (cuda_point){.what = CUDA_ADD, .a = (float)a, .b = (float)b}, 3, 3, t);
}

static int run_adamw(const st_queue *q, const st_adamw *a, const st_adamw_rounded *r, int64_t n, bool apart)
{
    if (q->planning || !n) return ST_OK;
    cuda_adamw job = {.master = a->master->data, .m = a->m->data, .v = a->v->data, .grad = a->grad->data,
                      .hyper = a->hyper->data, .clip = check_given(a->clip) ? a->clip->data : NULL,
                      .skip = check_given(a->skip) ? a->skip->data : NULL, .step = r->step ? r->step->data : NULL,
                      .seed = r->seed, .n = n, .first = r->first, .master_type = a->master->dtype,
                      .state_type = a->m->dtype};
    if (apart) {
        job.weight = a->weight->data;
        job.weight_type = a->weight->dtype;
    }
    return cuda_table_of(q)->adamw(q, &job);
}

int cuda_adamw_op(const st_queue *q, const st_adamw *a)
{
    const char *const op = "adamw";
    enum { HYPERS = 9 };
    if (!check_given(a->master)) return absent(q, op, "master");
    int64_t n = check_elements(a->master);
    ST_TRY(check_vector(q, op, "master", a->master, ST_F32, n));
    ST_TRY(check_vector(q, op, "m", a->m, ST_F32, n));
    ST_TRY(check_vector(q, op, "v", a->v, ST_F32, n));
    ST_TRY(check_vector(q, op, "grad", a->grad, ST_F32, n));
    ST_TRY(want_real_vector_if(q, op, "weight", a->weight, n));
    ST_TRY(check_vector(q, op, "hyper", a->hyper, ST_F32, HYPERS));
    ST_TRY(check_vector_if(q, op, "clip", a->clip, ST_F32, 1));
    ST_TRY(check_vector_if(q, op, "skip", a->skip, ST_F32, 1));
    bool apart = check_given(a->weight) && a->weight->data != a->master->data;
    q->count(q, 15.0 * (double)n,
             2 * check_bytes(a->master) + 2 * check_bytes(a->m) + 2 * check_bytes(a->v) + check_bytes(a->grad) +
                 (apart ? check_bytes(a->weight) : 0));
    return run_adamw(q, a, &(st_adamw_rounded){0}, n, apart);
}

int cuda_adamw_rounded(const st_queue *q, const st_adamw_rounded *a)
{
    int64_t n;
    bool apart;
    ST_TRY(check_adamw_rounded(q, a, &n, &apart));
    return run_adamw(q, &a->of, a, n, apart);
}

int cuda_sumsq(const st_queue *q, const st_tensor *x, double weight, const st_tensor *cell)
{
    enum { PER_PIECE = 8192, MOST = 1024 };
    cuda_squares job = {.weight = weight};
    void *part;
    if (!check_given(x)) return absent(q, "sumsq", "x");
    ST_TRY(want_real_like(q, "sumsq", "x", x, "x", x));
    if (!check_given(cell)) return ST_OK;
    ST_TRY(check_vector(q, "sumsq", "cell", cell, ST_F32, 1));
    job.pieces = ops_max(1, ops_min(MOST, ops_div_up(check_elements(x), PER_PIECE)));
    ST_TRY(check_scratch(q, "sumsq", (size_t)job.pieces * sizeof(double), &part));
    q->count(q, 2.0 * (double)check_elements(x), check_bytes(x));
    if (q->planning) return ST_OK;
    job.part = part;
    job.cell = cell->data;
    walk_make(&job.walk, 1, &x);
    return cuda_table_of(q)->sumsq(q, &job);
}

/* ---- copy and fill ---- */
static bool number(int32_t type)
{
    return type == ST_F64 || type == ST_F32 || type == ST_BF16 || type == ST_I32 || type == ST_I64 || type == ST_U8;
}
static bool convertible(int32_t from, int32_t to)
{
    return from == to ? st_dtype_size(from) > 0 : number(from) && (to == ST_F64 || to == ST_F32 || to == ST_BF16);
}

int cuda_copy(const st_queue *q, const st_tensor *src, const st_tensor *dst)
{
    const st_tensor *const t[] = {src, dst};
    cuda_walk walk;
    if (!check_given(dst)) return ST_OK;
    if (!check_given(src)) return absent(q, "copy", "src");
    bool same = src->nd == dst->nd && src->nd >= 1 && src->nd <= ST_DIMS;
    for (int i = 0; same && i < src->nd; i++) same = src->dim[i] == dst->dim[i];
    if (!same) { /* words of the usual check */
        st_tensor plain = *src;
        plain.dtype = dst->dtype;
        return check_like(q, "copy", "dst", dst, "src", &plain);
    }
    if (!convertible(src->dtype, dst->dtype))
        return q->fail(q, ST_E_UNSUPPORTED, "copy: no conversion from %s of src to %s of dst",
                       check_type_name(src->dtype), check_type_name(dst->dtype));
    q->count(q, 0, check_bytes(src) + check_bytes(dst));
    if (q->planning) return ST_OK;
    walk_make(&walk, 2, t);
    return walk.n ? cuda_table_of(q)->copy_elements(q, &walk) : ST_OK;
}

int cuda_fill(const st_queue *q, const st_tensor *dst, double value)
{
    cuda_walk walk;
    if (!check_given(dst)) return ST_OK;
    if (!number(dst->dtype) || dst->nd < 1 || dst->nd > ST_DIMS)
        return q->fail(q, ST_E_UNSUPPORTED, "fill: dst is %s with %d dimensions", check_type_name(dst->dtype),
                       (int)dst->nd);
    q->count(q, 0, check_bytes(dst));
    if (q->planning) return ST_OK;
    walk_make(&walk, 1, &dst);
    return walk.n ? cuda_table_of(q)->fill(q, &walk, value) : ST_OK;
}
