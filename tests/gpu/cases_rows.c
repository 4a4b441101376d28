/* SPDX-License-Identifier: Apache-2.0 */
/* cases_rows.c - norm and its backward, rope, both for queries and keys, sums of columns. */
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

/* Queries, each with a gate behind it, and keys of one projection. */
typedef struct qk { int kind, heads, keys, cols, dim, interleaved, frozen; } qk;
enum { QK_X, QK_DX, QK_Y, QK_DY, QK_RSTD_Q, QK_RSTD_K, QK_W_Q, QK_W_K, QK_DW_Q, QK_DW_K, QK_COS, QK_SIN };

static int call_qk(const st_queue *q, const st_ops *o, gpu *g, const qk *c, bool backward)
{
    const int64_t d = c->cols, keys = 2 * c->heads * d;
    const st_rotary table = {*AT(g, QK_COS), *AT(g, QK_SIN), c->dim, c->interleaved};
    st_tensor xq = st_heads(*AT(g, QK_X), 0, c->heads, d, 2 * d), xk = st_heads(*AT(g, QK_X), keys, c->keys, d, d);
    st_tensor dxq = st_heads(*AT(g, QK_DX), 0, c->heads, d, 2 * d), dxk = st_heads(*AT(g, QK_DX), keys, c->keys, d, d);
    st_tensor yq = st_heads(*AT(g, QK_Y), 0, c->heads, d, d), yk = st_heads(*AT(g, QK_Y), c->heads * d, c->keys, d, d);
    st_tensor dyq = st_heads(*AT(g, QK_DY), 0, c->heads, d, d), dyk = st_heads(*AT(g, QK_DY), c->heads * d, c->keys, d, d);
    st_qk_norm a = {.kind = c->kind,
                    .eps = 1e-6,
                    .table = &table,
                    .q = {.x = &xq, .w = AT(g, QK_W_Q), .y = &yq, .rstd = AT(g, QK_RSTD_Q), .dy = &dyq, .dx = &dxq,
                          .dw = c->frozen & 1 ? NULL : AT(g, QK_DW_Q)},
                    .k = {.x = &xk, .w = AT(g, QK_W_K), .y = &yk, .rstd = AT(g, QK_RSTD_K), .dy = &dyk, .dx = &dxk,
                          .dw = c->frozen & 2 ? NULL : AT(g, QK_DW_K)}};
    return backward ? o->qk_norm_bwd(q, &a) : o->qk_norm(q, &a);
}
static int call_qk_norm(const st_queue *q, const st_ops *o, gpu *g, const void *args) { return call_qk(q, o, g, args, false); }
static int call_qk_norm_bwd(const st_queue *q, const st_ops *o, gpu *g, const void *args) { return call_qk(q, o, g, args, true); }

static void make_qk(gpu *g, const qk *c, int64_t tokens, int64_t gap)
{
    static const char *const name[] = {"x", "dx", "y", "dy"};
    const int64_t wide = (2 * c->heads + c->keys) * c->cols, narrow = (c->heads + c->keys) * c->cols;
    for (int i = QK_X; i <= QK_DY; i++)
        gpu_random(g, NEW(g, name[i], REAL, gap * (1 + i % 2), tokens, i < QK_Y ? wide : narrow), -1, 2);
    gpu_random(g, NEW(g, "rstd q", ACC, 0, tokens, c->heads), 0.5, 1.5);
    gpu_random(g, NEW(g, "rstd k", ACC, 1, tokens, c->keys), 0.5, 1.5);
    for (int i = QK_W_Q; i <= QK_DW_K; i++)
        gpu_random(g, NEW(g, i < QK_DW_Q ? "w" : "dw", i < QK_DW_Q ? REAL : ACC, 0, c->cols), -1, 1);
    for (int i = QK_COS; i <= QK_SIN; i++)
        gpu_random(g, NEW(g, "table", ACC, gap % 8 ? 1 : 4, tokens, c->dim ? c->dim / 2 : 1), -1, 1);
}

static void qk_norms(gpu *g)
{
    const struct {
        qk c;
        int64_t tokens, gap;
    } with[] = {
        {{ST_NORM_RMS1P, 8, 2, 256, 64, 0, 0}, 67, 8}, {{ST_NORM_RMS1P, 8, 2, 256, 256, 0, 1}, 900, 0},
        {{ST_NORM_RMS, 3, 1, 128, 128, 0, 0}, 37, 8},  {{ST_NORM_RMS1P, 3, 2, 72, 16, 0, 2}, 201, 16},
        {{ST_NORM_RMS1P, 4, 4, 64, 32, 0, 0}, 2500, 8}, {{ST_NORM_RMS1P, 2, 1, 256, 0, 0, 0}, 19, 0},
        {{ST_NORM_RMS1P, 3, 1, 80, 20, 0, 0}, 77, 8},  {{ST_NORM_RMS1P, 4, 2, 64, 32, 1, 0}, 1300, 8},
        {{ST_NORM_RMS, 2, 2, 64, 32, 0, 0}, 37, 3},    {{ST_NORM_RMS1P, 2, 1, 512, 64, 0, 3}, 40, 8},
        {{ST_NORM_RMS1P, 3, 1, 20, 8, 0, 0}, 35, 0},
    };
    for (size_t i = 0; i < ST_COUNT(with); i++) {
        make_qk(g, &with[i].c, with[i].tokens, with[i].gap);
        gpu_out(g, QK_Y);
        gpu_out(g, QK_RSTD_Q);
        gpu_out(g, QK_RSTD_K);
        gpu_check(g, "qk_norm", call_qk_norm, &with[i].c, f32, bf16);
        make_qk(g, &with[i].c, with[i].tokens, with[i].gap);
        gpu_out(g, QK_DX);
        gpu_out(g, QK_DW_Q);
        gpu_out(g, QK_DW_K);
        gpu_check(g, "qk_norm_bwd", call_qk_norm_bwd, &with[i].c, 1e-5, bf16);
    }
}
static void qk_times(gpu *g)
{
    const qk c = {ST_NORM_RMS1P, 8, 2, 256, 64, 0, 0};
    for (int back = 0; back < 2; back++) {
        for (int i = QK_X; i <= QK_SIN; i++)
            if (i <= QK_DY) LARGE(g, REAL, 32768, (i < QK_Y ? 2 * 8 + 2 : 8 + 2) * 256);
            else if (i <= QK_RSTD_K) LARGE(g, ACC, 32768, i == QK_RSTD_Q ? 8 : 2);
            else if (i <= QK_DW_K) LARGE(g, i < QK_DW_Q ? REAL : ACC, 256);
            else LARGE(g, ACC, 32768, 32);
        gpu_time(g, back ? "qk_norm_bwd" : "qk_norm", back ? call_qk_norm_bwd : call_qk_norm, &c);
    }
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
static void test_qk_norm(void **state) { each_type(qk_norms); }
static void test_qk_times(void **state) { each_type(qk_times); }
static void test_colsum(void **state) { each_type(columns); }

const struct CMUnitTest rows_tests[] = {cmocka_unit_test(test_norm), cmocka_unit_test(test_norm_bwd),
                                        cmocka_unit_test(test_rope), cmocka_unit_test(test_qk_norm),
                                        cmocka_unit_test(test_qk_times), cmocka_unit_test(test_colsum)};
const int n_rows_tests = (int)ST_COUNT(rows_tests);
