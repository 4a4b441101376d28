/* SPDX-License-Identifier: Apache-2.0 */
/* test_gdn_kernels.c - gated_delta_net's CUDA kernels against its CPU kernels in double: odd sizes and strides, short
 * segments, decay from none to e^-200 a token, beta of 0, states in and out. */
#include "kernels_test.h"
#include "plugins/layers/gated_delta_net/work.h"
#include <stdlib.h>
#include <string.h>

static const gdn_kernels *cpu, *cuda;

/* Segments and their tiles; the lists have room for more. */
typedef struct row_lists { int32_t segments[32], tiles[3 * 256], n_segments, n_tiles, tokens; } row_lists;
static row_lists lists_of(const int *lengths)
{
    row_lists r = {.n_segments = 0};
    for (int i = 0; lengths[i]; i++) {
        for (int at = 0; at < lengths[i]; at += GDN_CHUNK) {
            int32_t *t = r.tiles + 3 * r.n_tiles++;
            t[0] = i;
            t[1] = r.tokens + at;
            t[2] = lengths[i] - at < GDN_CHUNK ? lengths[i] - at : GDN_CHUNK;
        }
        r.tokens += lengths[i];
        r.segments[++r.n_segments] = r.tokens;
    }
    for (int i = 0; i < 2; i++) { /* entries that are not used */
        r.segments[r.n_segments + 1] = r.tokens;
        r.n_segments++;
        r.n_tiles++;
    }
    return r;
}
typedef struct row_arrays { array *segments, *tiles; const row_lists *lists; } row_arrays;
static row_arrays row_of(arrays *s, const row_lists *r)
{
    return (row_arrays){whole_input(s, r->segments, r->n_segments + 1), whole_input(s, r->tiles, 3 * r->n_tiles), r};
}
static gdn_row row_on(const row_arrays *r, int device)
{
    return (gdn_row){on(r->segments, device), on(r->tiles, device), r->lists->n_segments, r->lists->n_tiles,
                     r->lists->tokens};
}

/* ---- the rule ---- */

typedef struct rule_case {
    const char *title;
    int hk, hv, dk, dv, pad, states; /* pad: columns behind those of q, k, v */
    int strong;                      /* every token's decay is one of the extremes */
    int lengths[16];
} rule_case;
typedef struct rule_data {
    const rule_case *c;
    int32_t type;
    row_arrays row;
    array *in, *beta, *g, *initial, *out, *kept, *alone, *final, *dout, *dfinal, *dq, *dk, *dv, *dbeta, *dg,
        *dinitial;
    void *work, *cpu_work;
} rule_data;

static int columns_of(const rule_case *c) { return 2 * c->hk * c->dk + c->hv * c->dv + c->pad; }
static void *column(const array *a, int device, int64_t first)
{
    return (char *)on(a, device) + first * (int64_t)(device ? st_dtype_size(a->type) : sizeof(double));
}
static int run_rule(void *ctx, int device)
{
    const rule_data *d = ctx;
    const rule_case *c = d->c;
    const int64_t k = c->hk * c->dk, state = (int64_t)c->hv * c->dk * c->dv;
    const st_queue q = device ? device_queue() : cpu_queue();
    const gdn_kernels *t = device ? cuda : cpu;
    gdn_rule a = {.row = row_on(&d->row, device),
                  .q = on(d->in, device),
                  .k = column(d->in, device, k),
                  .v = column(d->in, device, 2 * k),
                  .beta = on(d->beta, device),
                  .g = on(d->g, device),
                  .initial = on(d->initial, device),
                  .out = on(d->out, device),
                  .states = on(d->kept, device),
                  .final = on(d->final, device),
                  .stride = columns_of(c),
                  .gate_stride = c->hv,
                  .out_stride = c->hv * c->dv,
                  .initial_stride = state,
                  .final_stride = state,
                  .key_heads = c->hk,
                  .value_heads = c->hv,
                  .key_dim = c->dk,
                  .value_dim = c->dv,
                  .dtype = device ? d->type : ST_F64,
                  .work = device ? d->work : d->cpu_work};
    gdn_rule alone = a;
    alone.out = alone.final = NULL;
    alone.states = on(d->alone, device);
    ST_TRY(t->rule(&q, &alone));
    ST_TRY(t->rule(&q, &a));
    gdn_rule_bwd b = {.f = a,
                      .dout = on(d->dout, device),
                      .dfinal = on(d->dfinal, device),
                      .dq = on(d->dq, device),
                      .dk = column(d->dk, device, k),
                      .dv = column(d->dv, device, 2 * k),
                      .dbeta = on(d->dbeta, device),
                      .dg = on(d->dg, device),
                      .dinitial = on(d->dinitial, device),
                      .dstride = columns_of(c),
                      .dgate_stride = c->hv};
    return t->rule_bwd(&q, &b);
}
/* Gates of all strengths in turn, so that strong and weak decay meet inside a chunk; some beta are 0, 1 or nearly so.
 * */
static void make_gates(arrays *s, rule_data *d, int64_t n)
{
    static const double decays[] = {0, -1e-3, -1, -20, -200}, strengths[] = {0, 1e-7, 1};
    double *g = malloc((size_t)n * sizeof *g), *beta = malloc((size_t)n * sizeof *beta);
    for (int64_t i = 0; i < n; i++) {
        const int pick = d->c->strong ? (int)((uniform(s) + 1) * 2.5) : (int)((uniform(s) + 1) * 20);
        g[i] = pick < 5 ? decays[pick % 5] : -0.1 * (uniform(s) + 1);
        beta[i] = pick >= 36 ? strengths[pick % 3] : 0.5 * (uniform(s) + 1);
    }
    d->g = input_of(s, g, n, 1);
    d->beta = input_of(s, beta, n, 1);
    free(g);
    free(beta);
}
static void rule_one(const rule_case *c, int32_t type)
{
    arrays s;
    const row_lists lists = lists_of(c->lengths);
    const int64_t n = lists.tokens, values = (int64_t)c->hv * c->dv, state = values * c->dk;
    const double bound = type == ST_BF16 ? 7e-3 : 1e-5;
    rule_data d = {.c = c, .type = type};
    gdn_rule sizes = {.row = {.n_segments = lists.n_segments, .n_tiles = lists.n_tiles}, .key_heads = c->hk,
                      .value_heads = c->hv, .key_dim = c->dk, .value_dim = c->dv, .dtype = type};

    arrays_begin(&s, type, (uint64_t)n + (uint64_t)c->dk);
    d.row = row_of(&s, &lists);
    d.in = input(&s, n * columns_of(c), 0, 1);
    make_gates(&s, &d, n * c->hv);
    d.dout = input(&s, n * values, 0, 1);
    d.alone = result(&s, "states alone", lists.n_tiles * state, 0, 0, bound);
    d.kept = result(&s, "states", lists.n_tiles * state, 0, 0, bound);
    d.out = result(&s, "out", n * values, 0, 0, bound);
    d.dq = result(&s, "dq", n * columns_of(c), 0, 0, bound); /* each by its own norm; all have one stride */
    d.dk = result(&s, "dk", n * columns_of(c), 0, 0, bound);
    d.dv = result(&s, "dv", n * columns_of(c), 0, 0, bound);
    d.dbeta = result(&s, "dbeta", n * c->hv, 1, 0, bound);
    d.dg = result(&s, "dg", n * c->hv, 1, 0, bound);
    if (c->states) {
        d.initial = input(&s, n * state, 0, 0.5);
        d.dfinal = input(&s, n * state, 0, 0.5);
        d.final = result(&s, "final", n * state, 0, 0, bound);
        d.dinitial = result(&s, "dinitial", n * state, 0, 0, bound);
    }
    d.work = device_scratch(&s, gdn_cuda_rule_bwd_work(&sizes));
    d.cpu_work = aligned_alloc(64, (size_t)gdn_rule_bwd_elements("cpu", &sizes) * sizeof(double) / 64 * 64 + 64);
    compare(&s, c->title, run_rule, &d);
    free(d.cpu_work);
    arrays_end(&s);
}
static const rule_case rule_cases[] = {
    {"rule 64x64", 1, 2, 64, 64, 0, 0, 0, {1, 63, 64, 65, 130}},
    {"rule 128x128", 1, 1, 128, 128, 8, 0, 0, {150, 1, 70}},
    {"rule 128x128, group of 3", 1, 3, 128, 128, 0, 0, 0, {65}},
    {"rule 24x40, odd stride", 2, 2, 24, 40, 3, 0, 0, {65, 2, 1, 1, 64}},
    {"rule 16x16, states", 2, 4, 16, 16, 0, 1, 0, {70, 1, 64}},
    {"rule 5x7, states", 1, 2, 5, 7, 1, 1, 0, {66, 3}},
    {"rule 100x130", 1, 1, 100, 130, 0, 0, 0, {80}},
    {"rule 128x128, states", 1, 2, 128, 128, 0, 1, 0, {65, 1, 64}},
    {"rule 72x64, states", 1, 2, 72, 64, 8, 1, 0, {1, 200, 65}},
    {"rule 128x200", 1, 1, 128, 200, 8, 0, 0, {64, 190}},
    {"rule 128x128, short segments", 2, 4, 128, 128, 8, 1, 0, {1, 63, 64, 65, 130, 1, 1}},
    {"rule 128x128, strong decay", 1, 2, 128, 128, 0, 0, 1, {63, 1, 1, 64, 200, 65, 320}},
};
static void rule_agrees(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rule_cases / sizeof *rule_cases; i++) rule_one(&rule_cases[i], ST_F32);
}
static void rule_agrees_in_bf16(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rule_cases / sizeof *rule_cases; i++) rule_one(&rule_cases[i], ST_BF16);
}

/* ---- what is around the rule ---- */

typedef struct conv_data {
    int32_t type, channels, taps, in_stride, out_stride;
    row_arrays row;
    array *in, *weight, *out, *dout, *din, *dweight;
    void *work, *cpu_work;
} conv_data;
static int run_conv(void *ctx, int device)
{
    const conv_data *d = ctx;
    const st_queue q = device ? device_queue() : cpu_queue();
    const gdn_kernels *t = device ? cuda : cpu;
    const gdn_conv a = {.row = row_on(&d->row, device),
                        .in = on(d->in, device),
                        .weight = on(d->weight, device),
                        .out = on(d->out, device),
                        .in_stride = d->in_stride,
                        .out_stride = d->out_stride,
                        .channels = d->channels,
                        .taps = d->taps,
                        .dtype = device ? d->type : ST_F64,
                        .work = device ? d->work : d->cpu_work,
                        .dout = on(d->dout, device),
                        .din = on(d->din, device),
                        .dweight = on(d->dweight, device),
                        .dout_stride = d->out_stride,
                        .din_stride = d->in_stride};
    ST_TRY(t->conv(&q, &a));
    return t->conv_bwd(&q, &a);
}
static void conv_one(const char *title, int32_t type, int channels, int taps, int more)
{
    static const int lengths[] = {1, 2, 65, 64, 130, 3, 0};
    const row_lists lists = lists_of(lengths);
    const double bound = type == ST_BF16 ? 3e-3 : 1e-5;
    conv_data d = {
        .type = type, .channels = channels, .taps = taps, .in_stride = channels + more, .out_stride = channels};
    arrays s;
    arrays_begin(&s, type, (uint64_t)channels);
    d.row = row_of(&s, &lists);
    d.in = input(&s, (int64_t)lists.tokens * d.in_stride, 0, 1);
    d.weight = input(&s, (int64_t)channels * taps, 0, 1);
    d.dout = input(&s, (int64_t)lists.tokens * channels, 0, 1);
    d.out = result(&s, "out", (int64_t)lists.tokens * channels, 0, 0, bound);
    d.din = result(&s, "din", (int64_t)lists.tokens * d.in_stride, 0, 0, bound);
    d.dweight = result(&s, "dweight", (int64_t)channels * taps, 1, 0.5, 1e-5);
    const int64_t work = gdn_conv_bwd_work(lists.n_tiles, channels, taps);
    d.work = device_scratch(&s, work);
    d.cpu_work = malloc((size_t)work * sizeof(double));
    compare(&s, title, run_conv, &d);
    free(d.cpu_work);
    arrays_end(&s);
}
static void conv_agrees(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int32_t type = i ? ST_BF16 : ST_F32;
        conv_one(i ? "conv bf16" : "conv", type, 24, 4, 8);
        conv_one(i ? "conv bf16, odd" : "conv, odd", type, 13, 4, 5);
        conv_one(i ? "conv bf16, 3 taps" : "conv, 3 taps", type, 520, 3, 0);
        conv_one(i ? "conv bf16, 7 taps" : "conv, 7 taps", type, 10, 7, 0);
    }
}

typedef struct gate_data {
    int32_t type, tokens, heads, stride;
    array *in, *a_log, *dt_bias, *beta, *g, *dbeta, *dg, *db, *da, *da_log, *ddt_bias;
    void *work, *cpu_work;
} gate_data;
static int run_gate(void *ctx, int device)
{
    const gate_data *d = ctx;
    const st_queue q = device ? device_queue() : cpu_queue();
    const gdn_kernels *t = device ? cuda : cpu;
    const gdn_gate a = {.b = on(d->in, device),
                        .a = column(d->in, device, d->heads),
                        .a_log = on(d->a_log, device),
                        .dt_bias = on(d->dt_bias, device),
                        .beta = on(d->beta, device),
                        .g = on(d->g, device),
                        .tokens = d->tokens,
                        .stride = d->stride,
                        .heads = d->heads,
                        .dtype = device ? d->type : ST_F64,
                        .work = device ? d->work : d->cpu_work,
                        .dbeta = on(d->dbeta, device),
                        .dg = on(d->dg, device),
                        .db = on(d->db, device),
                        .da = on(d->da, device),
                        .da_log = on(d->da_log, device),
                        .ddt_bias = on(d->ddt_bias, device),
                        .dstride = d->stride};
    ST_TRY(t->gate(&q, &a));
    return t->gate_bwd(&q, &a);
}
static void gate_one(const char *title, int32_t type, int tokens, int heads)
{
    const double bound = type == ST_BF16 ? 3e-3 : 1e-5;
    gate_data d = {.type = type, .tokens = tokens, .heads = heads, .stride = 2 * heads + 3};
    const int64_t n = (int64_t)tokens * heads;
    arrays s;
    arrays_begin(&s, type, (uint64_t)heads);
    d.in = input(&s, (int64_t)tokens * d.stride, 0, 4);
    d.a_log = input(&s, heads, 1, 2);
    d.dt_bias = input(&s, heads, 1, 1);
    d.dbeta = input(&s, n, 1, 1);
    d.dg = input(&s, n, 1, 1);
    d.beta = result(&s, "beta", n, 1, 0, 1e-5);
    d.g = result(&s, "g", n, 1, 0, 1e-5);
    d.db = result(&s, "db", (int64_t)tokens * d.stride, 0, 0, bound);
    d.da = result(&s, "da", (int64_t)tokens * d.stride, 0, 0, bound);
    d.da_log = result(&s, "da_log", heads, 1, 1, 1e-5);
    d.ddt_bias = result(&s, "ddt_bias", heads, 1, 1, 1e-5);
    const int64_t work = gdn_gate_bwd_work(tokens, heads);
    d.work = device_scratch(&s, work);
    d.cpu_work = malloc((size_t)work * sizeof(double));
    compare(&s, title, run_gate, &d);
    free(d.cpu_work);
    arrays_end(&s);
}
static void gate_agrees(void **state)
{
    (void)state;
    gate_one("gate", ST_F32, 150, 6);
    gate_one("gate bf16", ST_BF16, 150, 32);
    gate_one("gate, 300 heads", ST_F32, 70, 300);
}

typedef struct norm_data {
    int32_t type, tokens, heads, dim, more;
    array *o, *z, *weight, *y, *dy, *d_o, *dz, *dweight;
    void *work, *cpu_work;
} norm_data;
static int run_norm(void *ctx, int device)
{
    const norm_data *d = ctx;
    const st_queue q = device ? device_queue() : cpu_queue();
    const gdn_kernels *t = device ? cuda : cpu;
    const int64_t wide = (int64_t)d->heads * d->dim;
    const gdn_norm a = {.o = on(d->o, device),
                        .z = on(d->z, device),
                        .weight = on(d->weight, device),
                        .y = on(d->y, device),
                        .tokens = d->tokens,
                        .o_stride = wide,
                        .z_stride = wide + d->more,
                        .y_stride = wide,
                        .heads = d->heads,
                        .dim = d->dim,
                        .dtype = device ? d->type : ST_F64,
                        .eps = 1e-6,
                        .work = device ? d->work : d->cpu_work,
                        .dy = on(d->dy, device),
                        .d_o = on(d->d_o, device),
                        .dz = on(d->dz, device),
                        .dweight = on(d->dweight, device),
                        .dy_stride = wide,
                        .do_stride = wide,
                        .dz_stride = wide + d->more};
    ST_TRY(t->norm(&q, &a));
    return t->norm_bwd(&q, &a);
}
static void norm_one(const char *title, int32_t type, int tokens, int heads, int dim, int more)
{
    const double bound = type == ST_BF16 ? 3e-3 : 1e-5;
    norm_data d = {.type = type, .tokens = tokens, .heads = heads, .dim = dim, .more = more};
    const int64_t n = (int64_t)tokens * heads * dim, wide = n + (int64_t)tokens * more;
    arrays s;
    arrays_begin(&s, type, (uint64_t)dim);
    d.o = input(&s, n, 0, 1);
    d.z = input(&s, wide, 0, 3);
    d.weight = input(&s, dim, 1, 1);
    d.dy = input(&s, n, 0, 1);
    d.y = result(&s, "y", n, 0, 0, bound);
    d.d_o = result(&s, "do", n, 0, 0, bound);
    d.dz = result(&s, "dz", wide, 0, 0, bound);
    d.dweight = result(&s, "dweight", dim, 1, 1, 1e-5);
    const int64_t work = gdn_norm_bwd_work(tokens, dim);
    d.work = device_scratch(&s, work);
    d.cpu_work = aligned_alloc(64, (size_t)work * sizeof(double) / 64 * 64 + 64);
    compare(&s, title, run_norm, &d);
    free(d.cpu_work);
    arrays_end(&s);
}
static void norm_agrees(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int32_t type = i ? ST_BF16 : ST_F32;
        norm_one(i ? "norm 128 bf16" : "norm 128", type, 100, 3, 128, 8);
        norm_one(i ? "norm 20 bf16" : "norm 20", type, 65, 2, 20, 3);
        norm_one(i ? "norm 264 bf16" : "norm 264", type, 65, 1, 264, 0);
        norm_one(i ? "norm 37 bf16" : "norm 37", type, 65, 2, 37, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(conv_agrees), cmocka_unit_test(gate_agrees),
                                       cmocka_unit_test(norm_agrees), cmocka_unit_test(rule_agrees),
                                       cmocka_unit_test(rule_agrees_in_bf16)};
    if (!device_there()) return 0;
    cpu = open_kernels("gated_delta_net", "cpu")->table;
    cuda = open_kernels("gated_delta_net", "cuda")->table;
    return cmocka_run_group_tests_name("gdn_kernels", tests, NULL, NULL);
}
