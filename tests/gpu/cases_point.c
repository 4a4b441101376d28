/* SPDX-License-Identifier: Apache-2.0 */
/* cases_point.c - elementwise ops. Limits in bf16 are those of rounding the result, 2^-9 at most. */
#include "rig.h"

typedef struct point { int act; double a, b; int with; } point;
static const double f32 = 2e-6, bf16 = 3e-3;
static const int acts = ST_ACT_RELU2 + 1;

static int call_glu(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    return o->glu(q, ((const point *)args)->act, AT(g, 0), AT(g, 1), AT(g, 2));
}
static int call_glu_bwd(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    return o->glu_bwd(q, ((const point *)args)->act, AT(g, 0), AT(g, 1), AT(g, 2), AT(g, 3), AT(g, 4));
}
static int call_glu_bwd_in_place(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    return o->glu_bwd(q, ((const point *)args)->act, AT(g, 0), AT(g, 1), AT(g, 2), AT(g, 0), AT(g, 1));
}
static int call_act(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    return o->act(q, ((const point *)args)->act, AT(g, 0), AT(g, 1));
}
static int call_act_bwd(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    return o->act_bwd(q, ((const point *)args)->act, AT(g, 0), AT(g, 1), AT(g, 2));
}
static int call_add(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    const point *p = args;
    return o->add(q, p->a, AT(g, 0), p->b, p->with ? AT(g, 1) : NULL, AT(g, 2));
}

/* n tensors of one shape; the first `in` are random, the rest are compared. Shapes: small and odd, with gaps, whole runs of 8. */
enum { SHAPES = 4 };
static void make(gpu *g, int shape, int n, int in)
{
    static const char *const name[] = {"first", "second", "third", "fourth", "fifth"};
    for (int i = 0; i < n; i++) {
        int t = shape == 0   ? NEW(g, name[i], REAL, i + 1, 3, 5, 7)
                : shape == 1 ? NEW(g, name[i], REAL, 8 * (i % 2), 33, 64)
                : shape == 2 ? NEW(g, name[i], REAL, 0, 1001)
                             : NEW(g, name[i], REAL, 16, 4, 3, 2, 40);
        if (i < in) gpu_random(g, t, -4, 4);
        else gpu_out(g, t);
    }
}

/* Gates that lie beside something else in each head of a wider row, as attention has them; what they gate lies close. */
enum { VIEW_HEADS = 3, VIEW_COLS = 24, VIEW_STEP = 2 * VIEW_COLS };
static st_tensor gate_view(const st_tensor *t) { return st_heads(*t, VIEW_COLS, VIEW_HEADS, VIEW_COLS, VIEW_STEP); }
static st_tensor close_view(const st_tensor *t) { return st_heads(*t, 0, VIEW_HEADS, VIEW_COLS, VIEW_COLS); }
static int call_glu_views(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    st_tensor gate = gate_view(AT(g, 0)), u = close_view(AT(g, 1)), y = close_view(AT(g, 2));
    return o->glu(q, ((const point *)args)->act, &gate, &u, &y);
}
static int call_glu_bwd_views(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    st_tensor gate = gate_view(AT(g, 0)), u = close_view(AT(g, 1)), dy = close_view(AT(g, 2));
    return o->glu_bwd(q, ((const point *)args)->act, &gate, &u, &dy, &gate, &u);
}
static void make_views(gpu *g, int32_t second)
{
    gpu_random(g, NEW(g, "gate", REAL, 8, 700, VIEW_HEADS * VIEW_STEP), -20, 20);
    gpu_random(g, NEW(g, "u", second, 0, 700, VIEW_HEADS * VIEW_COLS), -4, 4);
    gpu_random(g, NEW(g, "y", REAL, 0, 700, VIEW_HEADS * VIEW_COLS), -4, 4);
}
static void gated_views(gpu *g)
{
    for (int mixed = 0; mixed < 2; mixed++) /* mixed: f32 beside bf16 */
        for (int act = 0; act < acts; act++) {
            point p = {.act = act};
            make_views(g, mixed ? ACC : REAL);
            gpu_out(g, 2);
            gpu_check(g, "glu", call_glu_views, &p, f32, bf16);
            make_views(g, mixed ? ACC : REAL);
            gpu_out(g, 0);
            gpu_out(g, 1);
            gpu_check(g, "glu_bwd", call_glu_bwd_views, &p, f32, bf16);
        }
}

/* The halves of one product, as the gated MLP has them. */
static int call_glu_halves(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    int64_t w = AT(g, 1)->dim[1];
    st_tensor gate = st_cols(*AT(g, 0), 0, w), up = st_cols(*AT(g, 0), w, w);
    return o->glu(q, ((const point *)args)->act, &gate, &up, AT(g, 1));
}
static int call_glu_bwd_halves(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    int64_t w = AT(g, 1)->dim[1];
    st_tensor gate = st_cols(*AT(g, 0), 0, w), up = st_cols(*AT(g, 0), w, w);
    return o->glu_bwd(q, ((const point *)args)->act, &gate, &up, AT(g, 1), &gate, &up);
}

static void gated(gpu *g)
{
    for (int act = 0; act < acts; act++)
        for (int shape = 0; shape < SHAPES; shape++) {
            point p = {.act = act};
            make(g, shape, 3, 2);
            gpu_check(g, "glu", call_glu, &p, f32, bf16);
            make(g, shape, 5, 3);
            gpu_check(g, "glu_bwd", call_glu_bwd, &p, f32, bf16);
            make(g, shape, 3, 3);
            gpu_out(g, 0);
            gpu_out(g, 1);
            gpu_check(g, "glu_bwd", call_glu_bwd_in_place, &p, f32, bf16);
        }
    point p = {.act = ST_ACT_SILU};
    for (int back = 0; back < 2; back++) {
        LARGE(g, REAL, 16384, 7168);
        LARGE(g, REAL, 16384, 3584);
        gpu_time(g, back ? "glu_bwd" : "glu", back ? call_glu_bwd_halves : call_glu_halves, &p);
    }
}

static void activations(gpu *g)
{
    for (int act = 0; act < acts; act++)
        for (int shape = 0; shape < SHAPES; shape++) {
            point p = {.act = act};
            make(g, shape, 2, 1);
            gpu_check(g, "act", call_act, &p, f32, bf16);
            make(g, shape, 3, 2);
            gpu_check(g, "act_bwd", call_act_bwd, &p, f32, bf16);
        }
}

static void sums(gpu *g)
{
    for (int with = 0; with < 2; with++)
        for (int shape = 0; shape < SHAPES; shape++) {
            point p = {.a = 0.75, .b = -1.5, .with = with};
            make(g, shape, 3, 2);
            gpu_check(g, "add", call_add, &p, f32, bf16);
        }
    point p = {.a = 1, .b = 1, .with = 1};
    for (int i = 0; i < 3; i++) LARGE(g, REAL, 32768, 2048);
    gpu_time(g, "add", call_add, &p);
}

static int call_copy(const st_queue *q, const st_ops *o, gpu *g, const void *args) { return o->copy(q, AT(g, 0), AT(g, 1)); }
static int call_copy_turned(const st_queue *q, const st_ops *o, gpu *g, const void *args) /* a transposed view */
{
    st_tensor t = *AT(g, 0);
    t.dim[0] = AT(g, 0)->dim[1]; t.dim[1] = AT(g, 0)->dim[0];
    t.stride[0] = 1; t.stride[1] = AT(g, 0)->stride[0];
    return o->copy(q, &t, AT(g, 1));
}
static int call_fill(const st_queue *q, const st_ops *o, gpu *g, const void *args) { return o->fill(q, AT(g, 0), -2.5); }

static void copies(gpu *g)
{
    const int32_t from[] = {REAL, REAL, ACC, ACC, ST_I32, ST_I64, ST_U8}, to[] = {REAL, ACC, REAL, ACC, REAL, ACC, REAL};
    for (int i = 0; i < 7; i++)
        for (int wide = 0; wide < 2; wide++) {
            double low = from[i] == ST_U8 ? 0 : -100;
            gpu_random(g, NEW(g, "src", from[i], 8 * wide + 8, 5, wide ? 64 : 13), low, 100);
            gpu_out(g, NEW(g, "dst", to[i], 16 - wide * 8, 5, wide ? 64 : 13));
            gpu_check(g, "copy", call_copy, NULL, 0, 3e-3);
        }
    gpu_random(g, NEW(g, "src", REAL, 3, 17, 29), -1, 1);
    gpu_out(g, NEW(g, "dst", REAL, 5, 29, 17));
    gpu_check(g, "copy", call_copy_turned, NULL, 0, 0);
    gpu_out(g, NEW(g, "dst", REAL, 5, 29, 3, 17));
    gpu_check(g, "fill", call_fill, NULL, 0, 0);
    LARGE(g, REAL, 32768, 2048);
    LARGE(g, ACC, 32768, 2048);
    gpu_time(g, "copy", call_copy, NULL);
}

static int call_adamw(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    const bool *timed = args;
    st_adamw a = {.master = AT(g, 0), .m = AT(g, 1), .v = AT(g, 2), .weight = AT(g, 3), .grad = AT(g, 4),
                  .hyper = AT(g, 5), .clip = AT(g, 6), .skip = timed ? NULL : AT(g, 7)};
    return o->adamw(q, &a);
}

static void make_adamw(gpu *g, int64_t n, double skip)
{
    const double hyper[] = {0.01, 0.1, 0.9, 0.99, 1e-8, 0.271, 0.0297, 0.1, 0.01}, clip = 0.5;
    gpu_out(g, gpu_random(g, NEW(g, "master", ACC, 0, n), -1, 1));
    gpu_out(g, gpu_random(g, NEW(g, "m", ACC, 0, n), -1, 1));
    gpu_out(g, gpu_random(g, NEW(g, "v", ACC, 0, n), 0, 1));
    gpu_out(g, NEW(g, "weight", REAL, 0, n));
    gpu_random(g, NEW(g, "grad", ACC, 0, n), -1, 1);
    gpu_values(g, NEW(g, "hyper", ACC, 0, 9), hyper);
    gpu_values(g, NEW(g, "clip", ACC, 0, 1), &clip);
    gpu_values(g, NEW(g, "skip", ACC, 0, 1), &skip);
}

static void optimizer(gpu *g)
{
    make_adamw(g, 10007, 0);
    gpu_check(g, "adamw", call_adamw, NULL, f32, bf16);
    make_adamw(g, 10007, 1);
    gpu_check(g, "adamw", call_adamw, NULL, 0, 0);
    for (int i = 0; i < 5; i++) LARGE(g, i == 3 ? REAL : ACC, 1 << 26);
    for (int i = 0; i < 3; i++) LARGE(g, ACC, i ? 1 : 9);
    const bool timed = true; /* without skip, which is not 0 */
    gpu_time(g, "adamw", call_adamw, &timed);
}

static int call_sumsq(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    return o->sumsq(q, AT(g, 0), 0.25, AT(g, 1));
}

static void squares(gpu *g)
{
    const int64_t n[] = {1, 1001, 262144};
    for (int i = 0; i < 3; i++) {
        gpu_random(g, NEW(g, "x", REAL, 0, n[i]), -1, 2);
        gpu_out(g, gpu_random(g, NEW(g, "cell", ACC, 0, 1), 1, 2));
        gpu_check(g, "sumsq", call_sumsq, NULL, 2e-7, 2e-7);
    }
    LARGE(g, ACC, 1 << 26);
    LARGE(g, ACC, 1);
    gpu_time(g, "sumsq", call_sumsq, NULL);
}

static void test_gated(void **state) { each_type(gated); }
static void test_gated_views(void **state) { each_type(gated_views); }
static void test_activations(void **state) { each_type(activations); }
static void test_sums(void **state) { each_type(sums); }
static void test_copies(void **state) { each_type(copies); }
static void test_optimizer(void **state) { each_type(optimizer); }
static void test_squares(void **state) { each_type(squares); }

const struct CMUnitTest point_tests[] = {cmocka_unit_test(test_gated), cmocka_unit_test(test_gated_views),
                                         cmocka_unit_test(test_activations), cmocka_unit_test(test_sums),
                                         cmocka_unit_test(test_copies), cmocka_unit_test(test_optimizer),
                                         cmocka_unit_test(test_squares)};
const int n_point_tests = (int)ST_COUNT(point_tests);
