/* SPDX-License-Identifier: Apache-2.0 */
/* cases_rows.c - norm and its backward, rope, sums of columns. */
#include "rig.h"

typedef struct norm { int kind, y, r_out, w, b, stats, add, grads, n; } norm;
enum { R, Y, W, B, R_OUT, N, RSTD, MEAN, DN, DR, DW, DB };
static const double f32 = 3e-6, bf16 = 6e-3;

static int call_norm(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    const norm *c = args;
    st_norm a = {.kind = c->kind, .eps = 1e-6, .r = AT(g, R), .y = c->y ? AT(g, Y) : NULL, .w = c->w ? AT(g, W) : NULL,
                 .b = c->b ? AT(g, B) : NULL, .r_out = c->r_out == 2 ? AT(g, R) : c->r_out ? AT(g, R_OUT) : NULL,
                 .n = AT(g, N), .rstd = AT(g, RSTD), .mean = AT(g, MEAN)};
    return o->norm(q, &a);
}

static int call_norm_bwd(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    const norm *c = args;
    st_norm_bwd a = {.kind = c->kind, .add = c->add, .eps = 1e-6, .r = AT(g, R), .w = c->w ? AT(g, W) : NULL,
                     .b = c->b ? AT(g, B) : NULL, .rstd = c->stats ? AT(g, RSTD) : NULL,
                     .mean = c->stats ? AT(g, MEAN) : NULL, .dn = AT(g, DN), .dr = AT(g, DR),
                     .dw = c->grads ? AT(g, DW) : NULL, .db = c->grads ? AT(g, DB) : NULL, .n = c->n ? AT(g, N) : NULL};
    return o->norm_bwd(q, &a);
}

/* heads 0: two dimensions. mixed: y and dn are f32 beside bf16. */
static void make(gpu *g, int64_t rows, int64_t heads, int64_t cols, int64_t gap, bool mixed)
{
    static const char *const name[] = {"r", "y", "w", "b", "r_out", "n", "rstd", "mean", "dn", "dr", "dw", "db"};
    for (int i = R; i <= DB; i++) {
        int64_t wide = gap * (1 + i % 2);
        int32_t type = mixed && (i == Y || i == DN) ? ACC : REAL;
        int t;
        if (i == W || i == B) t = NEW(g, name[i], REAL, 0, cols);
        else if (i == DW || i == DB) t = NEW(g, name[i], ACC, 0, cols);
        else if (i == RSTD || i == MEAN) t = NEW(g, name[i], ACC, 0, rows, heads ? heads : 1);
        else t = heads ? NEW(g, name[i], type, wide, rows, heads, cols) : NEW(g, name[i], type, wide, rows, cols);
        if (i == RSTD) gpu_random(g, t, 0.5, 1.5);
        else if (i != R_OUT && i != N) gpu_random(g, t, -1, 2);
    }
}

static void forward(gpu *g)
{
    const int64_t shapes[][4] = {{37, 0, 201, 3}, {5, 3, 72, 8}, {19, 0, 1000, 8}, {9, 0, 2048, 0}, {6, 0, 3000, 8},
                                 {3, 0, 4999, 1}, {3, 0, 8192, 0}, {3, 0, 8200, 0}, {70, 2, 256, 16}};
    const int outs[] = {R_OUT, N, RSTD, MEAN};
    for (size_t s = 0; s < ST_COUNT(shapes); s++)
        for (int kind = ST_NORM_RMS1P; kind <= ST_NORM_LAYER; kind++)
            for (int with = 0; with < 4; with++) {
                norm c = {.kind = kind, .y = with & 1, .r_out = with == 3 ? 2 : with & 1, .w = with != 2, .b = with > 1};
                make(g, shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3], with == 3);
                for (int i = 0; i < 4; i++) gpu_out(g, outs[i]);
                gpu_out(g, R);
                gpu_check(g, "norm", call_norm, &c, f32, bf16);
            }
    norm c = {.kind = ST_NORM_RMS1P, .y = 1, .r_out = 1, .w = 1};
    for (int i = R; i <= MEAN; i++)
        if (i == RSTD || i == MEAN) LARGE(g, ACC, 32768, 1);
        else if (i == W || i == B) LARGE(g, REAL, 2048);
        else LARGE(g, REAL, 32768, 2048);
    gpu_time(g, "norm", call_norm, &c);
}

static void backward(gpu *g)
{
    const int64_t shapes[][4] = {{37, 0, 201, 3}, {5, 3, 72, 8}, {19, 0, 1000, 8}, {9, 0, 2048, 0}, {6, 0, 3000, 8},
                                 {3, 0, 4999, 1}, {3, 0, 8192, 0}, {3, 0, 8200, 0}, {700, 2, 128, 16}, {2500, 2, 16, 8}};
    for (size_t s = 0; s < ST_COUNT(shapes); s++)
        for (int kind = ST_NORM_RMS1P; kind <= ST_NORM_LAYER; kind++)
            for (int with = 0; with < 4; with++) {
                norm c = {.kind = kind, .w = with != 2, .b = with & 1, .stats = with & 1, .add = with > 1,
                          .grads = with != 1, .n = with == 0};
                make(g, shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3], with == 3);
                gpu_out(g, DR);
                gpu_out(g, DW);
                gpu_out(g, DB);
                gpu_out(g, N);
                gpu_check(g, "norm_bwd", call_norm_bwd, &c, 1e-5, bf16);
            }
    norm c = {.kind = ST_NORM_RMS1P, .w = 1, .stats = 1, .add = 1, .grads = 1};
    for (int i = R; i <= DB; i++)
        if (i == RSTD || i == MEAN) LARGE(g, ACC, 32768, 1);
        else if (i == W || i == B || i >= DW) LARGE(g, i >= DW ? ACC : REAL, 2048);
        else LARGE(g, REAL, 32768, 2048);
    gpu_time(g, "norm_bwd", call_norm_bwd, &c);
}

typedef struct rope { int dim, interleaved, inverse; } rope;
static int call_rope(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    const rope *c = args;
    st_rotary table = {*AT(g, 1), *AT(g, 2), c->dim, c->interleaved};
    return o->rope(q, &(st_rope){AT(g, 0), &table, c->inverse, 0});
}

static void rotary(gpu *g)
{
    for (int i = 0; i < 6; i++) { /* the last two: aligned, halves of whole eights */
        rope c = {.dim = i < 2 || i > 3 ? 64 : 10, .interleaved = i < 4 && i & 1, .inverse = i == 2 || i == 3 || i == 5};
        gpu_out(g, gpu_random(g, NEW(g, "x", REAL, i < 4 ? 5 : 8, 19, 3, 80), -1, 1));
        gpu_random(g, NEW(g, "cos", ACC, i < 4 ? 3 : 4, 19, c.dim / 2), -1, 1);
        gpu_random(g, NEW(g, "sin", ACC, 0, 19, c.dim / 2), -1, 1);
        gpu_check(g, "rope", call_rope, &c, 2e-6, 3e-3);
    }
    rope c = {.dim = 64};
    LARGE(g, REAL, 32768, 8, 256);
    for (int i = 0; i < 2; i++) LARGE(g, ACC, 32768, 32);
    gpu_time(g, "rope", call_rope, &c);
}

static int call_colsum(const st_queue *q, const st_ops *o, gpu *g, const void *args) { return o->colsum(q, AT(g, 0), AT(g, 1)); }

static void columns(gpu *g)
{
    const int64_t shapes[][3] = {{1, 1, 3}, {777, 200, 5}, {4000, 64, 0}};
    for (int i = 0; i < 3; i++) {
        gpu_random(g, NEW(g, "x", REAL, shapes[i][2], shapes[i][0], shapes[i][1]), -1, 2);
        gpu_out(g, gpu_random(g, NEW(g, "out", ACC, 0, shapes[i][1]), -1, 1));
        gpu_check(g, "colsum", call_colsum, NULL, 3e-7, 3e-7);
    }
    LARGE(g, REAL, 32768, 2048);
    LARGE(g, ACC, 2048);
    gpu_time(g, "colsum", call_colsum, NULL);
}

static void test_norm(void **state) { each_type(forward); }
static void test_norm_bwd(void **state) { each_type(backward); }
static void test_rope(void **state) { each_type(rotary); }
static void test_colsum(void **state) { each_type(columns); }

const struct CMUnitTest rows_tests[] = {cmocka_unit_test(test_norm), cmocka_unit_test(test_norm_bwd),
                                        cmocka_unit_test(test_rope), cmocka_unit_test(test_colsum)};
const int n_rows_tests = (int)ST_COUNT(rows_tests);
