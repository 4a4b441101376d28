/* SPDX-License-Identifier: Apache-2.0 */
/* speed_gdn.c - milliseconds of gated_delta_net's kernels in bf16 at 32,768 tokens (8 x 4096), 16 key and 32 value
 * heads of 128, with the work and the bytes that the sizes ask for at least. Printed, not judged. */
#include "kernels_test.h"
#include "plugins/layers/gated_delta_net/work.h"
#include <stdlib.h>

enum { SEGMENTS = 8, EACH = 4096, TOKENS = SEGMENTS * EACH, HK = 16, HV = 32, D = 128, TILES = TOKENS / GDN_CHUNK };
enum { KEYS = HK * D, VALUES = HV * D, WIDE = 2 * KEYS + VALUES, TAPS = 4, TIMES = 30 };

typedef struct data {
    const gdn_kernels *t;
    st_queue q;
    gdn_rule rule;
    gdn_rule_bwd rule_bwd;
    gdn_conv conv;
    gdn_gate gate;
    gdn_norm norm;
} data;
#define ENTRY(name, args) \
    static int run_##name(void *ctx, int device) \
    { \
        const data *d = ctx; \
        (void)device; \
        return d->t->name(&d->q, &d->args); \
    }
ENTRY(conv, conv)
ENTRY(conv_bwd, conv)
ENTRY(gate, gate)
ENTRY(gate_bwd, gate)
ENTRY(rule, rule)
ENTRY(rule_bwd, rule_bwd)
ENTRY(norm, norm)
ENTRY(norm_bwd, norm)

static void *zeros(int64_t n, size_t size)
{
    void *p;
    assert_int_equal(cudaMalloc(&p, (size_t)n * size), cudaSuccess);
    assert_int_equal(cudaMemset(p, 0, (size_t)n * size), cudaSuccess);
    return p;
}
static void *values(arrays *s, int64_t n, int wide, double scale) { return input(s, n, wide, scale)->device; }

/* Products of one chunk and value head: K K^T and Q K^T are the key head's. */
static double rule_flops(int back)
{
    const double square = 2.0 * GDN_CHUNK * GDN_CHUNK * D, state = 2.0 * GDN_CHUNK * D * D;
    const double heads = (double)TILES * HV, keys = (double)TILES * HK;
    const double once = keys * 2 * square;
    return once + heads * (back ? 9 * square + 7 * state : 2 * square + 3 * state);
}
static void show(const char *name, double ms, double gigabytes, double flops)
{
    print_message("# %-10s %8.3f ms  %8.0f GB/s", name, ms, gigabytes / ms * 1e3);
    if (flops > 0) print_message("  %7.1f TFLOP/s", flops / ms * 1e-9);
    print_message("\n");
}
static void fill_lists(data *d, arrays *s)
{
    int32_t segments[SEGMENTS + 1], *tiles = malloc(3 * TILES * sizeof *tiles);
    for (int i = 0; i <= SEGMENTS; i++) segments[i] = i * EACH;
    for (int i = 0; i < TILES; i++) {
        tiles[3 * i] = i * GDN_CHUNK / EACH;
        tiles[3 * i + 1] = i * GDN_CHUNK;
        tiles[3 * i + 2] = GDN_CHUNK;
    }
    d->rule.row = d->conv.row = (gdn_row){whole_input(s, segments, SEGMENTS + 1)->device,
                                          whole_input(s, tiles, 3 * TILES)->device, SEGMENTS, TILES, TOKENS};
    free(tiles);
}
static void fill_rule(data *d, arrays *s)
{
    char *mixed = values(s, (int64_t)TOKENS * WIDE, 0, 1), *dmixed = zeros((int64_t)TOKENS * WIDE, 2);
    double *beta = malloc((size_t)TOKENS * HV * sizeof *beta), *g = malloc((size_t)TOKENS * HV * sizeof *g);
    for (int i = 0; i < TOKENS * HV; i++) {
        beta[i] = 0.5 * (uniform(s) + 1);
        g[i] = -0.05 * (uniform(s) + 1);
    }
    d->rule = (gdn_rule){.row = d->rule.row, .q = mixed, .k = mixed + 2 * KEYS, .v = mixed + 4 * KEYS,
                         .beta = input_of(s, beta, TOKENS * HV, 1)->device, .g = input_of(s, g, TOKENS * HV, 1)->device,
                         .out = zeros((int64_t)TOKENS * VALUES, 2), .states = zeros((int64_t)TILES * HV * D * D, 2),
                         .stride = WIDE, .gate_stride = HV, .out_stride = VALUES, .key_heads = HK, .value_heads = HV,
                         .key_dim = D, .value_dim = D, .dtype = ST_BF16};
    d->rule.work = zeros(gdn_cuda_rule_bwd_work(&d->rule), 4);
    d->rule_bwd = (gdn_rule_bwd){.f = d->rule, .dout = values(s, (int64_t)TOKENS * VALUES, 0, 1), .dq = dmixed,
                                 .dk = dmixed + 2 * KEYS, .dv = dmixed + 4 * KEYS,
                                 .dbeta = zeros(TOKENS * HV, 4), .dg = zeros(TOKENS * HV, 4), .dstride = WIDE,
                                 .dgate_stride = HV};
    free(beta);
    free(g);
}
static void fill_rest(data *d, arrays *s)
{
    void *o = values(s, (int64_t)TOKENS * VALUES, 0, 1), *z = values(s, (int64_t)TOKENS * VALUES, 0, 1);
    d->conv = (gdn_conv){.row = d->conv.row, .in = d->rule.q, .weight = values(s, WIDE * TAPS, 0, 1),
                         .out = zeros((int64_t)TOKENS * WIDE, 2), .in_stride = WIDE, .out_stride = WIDE,
                         .channels = WIDE, .taps = TAPS, .dtype = ST_BF16,
                         .work = zeros(gdn_conv_bwd_work(TILES, WIDE, TAPS), 4),
                         .dout = d->rule.q, .din = zeros((int64_t)TOKENS * WIDE, 2), .dweight = zeros(WIDE * TAPS, 4),
                         .dout_stride = WIDE, .din_stride = WIDE};
    d->norm = (gdn_norm){.o = o, .z = z, .weight = values(s, D, 1, 1), .y = zeros((int64_t)TOKENS * VALUES, 2),
                         .tokens = TOKENS, .o_stride = VALUES, .z_stride = VALUES, .y_stride = VALUES, .heads = HV,
                         .dim = D, .dtype = ST_BF16, .eps = 1e-6, .work = zeros(gdn_norm_bwd_work(TOKENS, D), 4),
                         .dy = o, .d_o = zeros((int64_t)TOKENS * VALUES, 2), .dz = zeros((int64_t)TOKENS * VALUES, 2),
                         .dweight = zeros(D, 4), .dy_stride = VALUES, .do_stride = VALUES, .dz_stride = VALUES};
    d->gate = (gdn_gate){.b = o, .a = z, .a_log = values(s, HV, 1, 1), .dt_bias = values(s, HV, 1, 1),
                         .beta = zeros(TOKENS * HV, 4), .g = zeros(TOKENS * HV, 4), .tokens = TOKENS, .stride = HV,
                         .heads = HV, .dtype = ST_BF16, .work = zeros(gdn_gate_bwd_work(TOKENS, HV), 4),
                         .dbeta = zeros(TOKENS * HV, 4), .dg = zeros(TOKENS * HV, 4), .db = zeros(TOKENS * HV, 2),
                         .da = zeros(TOKENS * HV, 2), .da_log = zeros(HV, 4), .ddt_bias = zeros(HV, 4), .dstride = HV};
}
static void speed(void **state)
{
    const double token = TOKENS * 1e-9, gates = 4.0 * HV * token;
    const double wide = 2.0 * WIDE * token, value = 2.0 * VALUES * token;
    data d = {.t = open_kernels("gated_delta_net", "cuda")->table, .q = device_queue()};
    arrays s;
    (void)state;
    arrays_begin(&s, ST_BF16, 1);
    fill_lists(&d, &s);
    fill_rule(&d, &s);
    fill_rest(&d, &s);
    show("conv", milliseconds(run_conv, &d, TIMES), 2 * wide, 0);
    show("conv_bwd", milliseconds(run_conv_bwd, &d, TIMES), 3 * wide, 0);
    show("gate", milliseconds(run_gate, &d, TIMES), 3 * gates, 0);
    show("gate_bwd", milliseconds(run_gate_bwd, &d, TIMES), 6 * gates, 0);
    show("rule", milliseconds(run_rule, &d, TIMES), wide + value + 2 * gates, rule_flops(0));
    show("rule_bwd", milliseconds(run_rule_bwd, &d, TIMES), 2 * wide + value + 4 * gates, rule_flops(1));
    show("norm", milliseconds(run_norm, &d, TIMES), 3 * value, 0);
    show("norm_bwd", milliseconds(run_norm_bwd, &d, TIMES), 5 * value, 0);
    arrays_end(&s);
}
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(speed)};
    if (!device_there()) return 0;
    return cmocka_run_group_tests_name("speed_gdn", tests, NULL, NULL);
}
