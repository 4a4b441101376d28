/* SPDX-License-Identifier: Apache-2.0 */
/* ops_point.c - elementwise entries: adamw, glu, act, add and the type-blind copy and fill. */
#include "cpu.h"
#include <string.h>

int cpu_adamw(const st_queue *q, const st_adamw *a)
{
    const char *const op = "adamw";
    enum { HYPERS = 9 };
    int real;
    ST_TRY(cpu_want_real(q, op, "master", a->master, &real));
    int32_t type = a->master->dtype;
    int64_t n = check_elements(a->master);
    ST_TRY(check_vector(q, op, "master", a->master, type, n));
    ST_TRY(check_vector(q, op, "m", a->m, type, n));
    ST_TRY(check_vector(q, op, "v", a->v, type, n));
    ST_TRY(check_vector(q, op, "grad", a->grad, type, n));
    ST_TRY(check_vector_if(q, op, "weight", a->weight, type, n));
    ST_TRY(check_vector(q, op, "hyper", a->hyper, type, HYPERS));
    ST_TRY(check_vector_if(q, op, "clip", a->clip, type, 1));
    ST_TRY(check_vector_if(q, op, "skip", a->skip, type, 1));
    q->count(q, 15.0 * (double)n,
             2 * check_bytes(a->master) + 2 * check_bytes(a->m) + 2 * check_bytes(a->v) + check_bytes(a->grad));
    if (!q->planning) cpu_table_of(q, real)->adamw(q, a, n);
    return ST_OK;
}

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

int cpu_glu(const st_queue *q, int act, const st_tensor *g, const st_tensor *u, const st_tensor *y)
{
    const char *const op = "glu";
    const st_tensor *const t[] = {g, u, y};
    int real;
    cpu_walk walk;
    ST_TRY(known_act(q, op, act));
    ST_TRY(cpu_want_real(q, op, "g", g, &real));
    ST_TRY(check_like(q, op, "u", u, "g", g));
    if (!check_given(y)) return ST_OK;
    ST_TRY(check_like(q, op, "y", y, "g", g));
    q->count(q, 10.0 * (double)check_elements(g), bytes_of(3, t));
    if (q->planning) return ST_OK;
    cpu_walk_make(&walk, 3, t);
    cpu_table_of(q, real)->glu(q, &walk, act);
    return ST_OK;
}

int cpu_glu_bwd(const st_queue *q, int act, const st_tensor *g, const st_tensor *u, const st_tensor *dy,
                const st_tensor *dg, const st_tensor *du)
{
    const char *const op = "glu_bwd";
    const st_tensor *const t[] = {g, u, dy, dg, du};
    int real;
    cpu_walk walk;
    ST_TRY(known_act(q, op, act));
    ST_TRY(cpu_want_real(q, op, "g", g, &real));
    ST_TRY(check_like(q, op, "u", u, "g", g));
    ST_TRY(check_like(q, op, "dy", dy, "g", g));
    if (check_given(dg)) ST_TRY(check_like(q, op, "dg", dg, "g", g));
    if (check_given(du)) ST_TRY(check_like(q, op, "du", du, "g", g));
    q->count(q, 20.0 * (double)check_elements(g), bytes_of(5, t));
    if (q->planning || (!check_given(dg) && !check_given(du))) return ST_OK;
    cpu_walk_make(&walk, 5, t);
    cpu_table_of(q, real)->glu_bwd(q, &walk, act);
    return ST_OK;
}

int cpu_act(const st_queue *q, int act, const st_tensor *x, const st_tensor *y)
{
    const char *const op = "act";
    const st_tensor *const t[] = {x, y};
    int real;
    cpu_walk walk;
    ST_TRY(known_act(q, op, act));
    ST_TRY(cpu_want_real(q, op, "x", x, &real));
    if (!check_given(y)) return ST_OK;
    ST_TRY(check_like(q, op, "y", y, "x", x));
    q->count(q, 10.0 * (double)check_elements(x), bytes_of(2, t));
    if (q->planning) return ST_OK;
    cpu_walk_make(&walk, 2, t);
    cpu_table_of(q, real)->act(q, &walk, act);
    return ST_OK;
}

int cpu_act_bwd(const st_queue *q, int act, const st_tensor *x, const st_tensor *dy, const st_tensor *dx)
{
    const char *const op = "act_bwd";
    const st_tensor *const t[] = {x, dy, dx};
    int real;
    cpu_walk walk;
    ST_TRY(known_act(q, op, act));
    ST_TRY(cpu_want_real(q, op, "x", x, &real));
    ST_TRY(check_like(q, op, "dy", dy, "x", x));
    if (!check_given(dx)) return ST_OK;
    ST_TRY(check_like(q, op, "dx", dx, "x", x));
    q->count(q, 15.0 * (double)check_elements(x), bytes_of(3, t));
    if (q->planning) return ST_OK;
    cpu_walk_make(&walk, 3, t);
    cpu_table_of(q, real)->act_bwd(q, &walk, act);
    return ST_OK;
}

int cpu_add(const st_queue *q, double a, const st_tensor *x, double b, const st_tensor *y, const st_tensor *z)
{
    const char *const op = "add";
    const st_tensor *const t[] = {x, y, z};
    int real;
    cpu_walk walk;
    ST_TRY(cpu_want_real(q, op, "x", x, &real));
    if (check_given(y)) ST_TRY(check_like(q, op, "y", y, "x", x));
    if (!check_given(z)) return ST_OK;
    ST_TRY(check_like(q, op, "z", z, "x", x));
    q->count(q, 3.0 * (double)check_elements(x), bytes_of(3, t));
    if (q->planning) return ST_OK;
    cpu_walk_make(&walk, 3, t);
    cpu_table_of(q, real)->add(q, &walk, a, b);
    return ST_OK;
}

/* ---- copy ---- */
/* The types that are copied into each other; from real numbers to whole ones there is no conversion. */
#define EACH_SOURCE(X, ...) \
    X(ST_F64, double, __VA_ARGS__) X(ST_F32, float, __VA_ARGS__) X(ST_I32, int32_t, __VA_ARGS__) \
    X(ST_I64, int64_t, __VA_ARGS__) X(ST_U8, uint8_t, __VA_ARGS__)
#define CONVERT(TYPE, from_t, to_t) \
    case TYPE: { \
        const from_t *from = src; \
        to_t *to = dst; \
        for (int64_t i = 0; i < n; i++) to[i * s_dst] = (to_t)from[i * s_src]; \
        break; \
    }

static void convert(int32_t from_type, const void *src, int64_t s_src, int32_t to_type, void *dst, int64_t s_dst,
                    int64_t n)
{
    if (to_type == ST_F64) {
        switch (from_type) { EACH_SOURCE(CONVERT, double) }
    } else {
        switch (from_type) { EACH_SOURCE(CONVERT, float) }
    }
}

/* Same type: by size of an element, contiguous or not. */
static void move_run(size_t size, const void *src, int64_t s_src, void *dst, int64_t s_dst, int64_t n)
{
    if (s_src == 1 && s_dst == 1) {
        memmove(dst, src, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)dst + i * s_dst * (int64_t)size, (const char *)src + i * s_src * (int64_t)size, size);
}

typedef struct copy_job { cpu_walk walk; int32_t from, to; double value; } copy_job;

static void copy_piece(void *arg, int64_t piece)
{
    const copy_job *job = arg;
    const cpu_walk *w = &job->walk;
    int64_t row, row_end, j, j_end;
    cpu_walk_piece(w, piece, &row, &row_end, &j, &j_end);
    for (; row < row_end; row++) {
        const void *src = cpu_at(cpu_walk_at(w, 0, row), j * w->last[0], w->size[0]);
        void *dst = cpu_at(cpu_walk_at(w, 1, row), j * w->last[1], w->size[1]);
        if (job->from == job->to) move_run(w->size[0], src, w->last[0], dst, w->last[1], j_end - j);
        else convert(job->from, src, w->last[0], job->to, dst, w->last[1], j_end - j);
    }
}

static bool convertible(int32_t from, int32_t to)
{
    bool known = from == ST_F64 || from == ST_F32 || from == ST_I32 || from == ST_I64 || from == ST_U8;
    return from == to ? st_dtype_size(from) > 0 : known && (to == ST_F64 || to == ST_F32);
}

int cpu_copy(const st_queue *q, const st_tensor *src, const st_tensor *dst)
{
    const st_tensor *const t[] = {src, dst};
    if (!check_given(dst)) return ST_OK;
    if (!check_given(src)) return q->fail(q, ST_E_SHAPE, "copy: src is absent");
    bool same = src->nd == dst->nd && src->nd >= 1 && src->nd <= ST_DIMS;
    for (int i = 0; same && i < src->nd; i++) same = src->dim[i] == dst->dim[i];
    if (!same) { /* words of the usual check */
        st_tensor plain = *src, to = *dst;
        plain.dtype = to.dtype;
        return check_like(q, "copy", "dst", &to, "src", &plain);
    }
    if (!convertible(src->dtype, dst->dtype))
        return q->fail(q, ST_E_UNSUPPORTED, "copy: no conversion from type %d of src to type %d of dst",
                       (int)src->dtype, (int)dst->dtype);
    q->count(q, 0, check_bytes(src) + check_bytes(dst));
    if (q->planning) return ST_OK;
    copy_job job = {.from = src->dtype, .to = dst->dtype};
    cpu_walk_make(&job.walk, 2, t);
    st_cpu_run(q, job.walk.pieces, copy_piece, &job);
    return ST_OK;
}

/* ---- fill ---- */
#define FILL(TYPE, to_t, unused) \
    case TYPE: { \
        to_t *to = dst, v = (to_t)value; \
        for (int64_t i = 0; i < n; i++) to[i * stride] = v; \
        break; \
    }

static void fill_run(int32_t type, void *dst, int64_t stride, int64_t n, double value)
{
    switch (type) { EACH_SOURCE(FILL, 0) }
}

static void fill_piece(void *arg, int64_t piece)
{
    const copy_job *job = arg;
    const cpu_walk *w = &job->walk;
    int64_t row, row_end, j, j_end;
    cpu_walk_piece(w, piece, &row, &row_end, &j, &j_end);
    for (; row < row_end; row++)
        fill_run(job->to, cpu_at(cpu_walk_at(w, 0, row), j * w->last[0], w->size[0]), w->last[0], j_end - j,
                 job->value);
}

int cpu_fill(const st_queue *q, const st_tensor *dst, double value)
{
    const st_tensor *const t[] = {dst};
    if (!check_given(dst)) return ST_OK;
    if (!convertible(dst->dtype, ST_F64) || dst->nd < 1 || dst->nd > ST_DIMS)
        return q->fail(q, ST_E_UNSUPPORTED, "fill: dst of type %d with %d dimensions", (int)dst->dtype, (int)dst->nd);
    q->count(q, 0, check_bytes(dst));
    if (q->planning) return ST_OK;
    copy_job job = {.to = dst->dtype, .value = value};
    cpu_walk_make(&job.walk, 1, t);
    st_cpu_run(q, job.walk.pieces, fill_piece, &job);
    return ST_OK;
}
