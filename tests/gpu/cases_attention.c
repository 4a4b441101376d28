/* SPDX-License-Identifier: Apache-2.0 */
/* cases_attention.c - attention and its backward over spans: packed, with rows in none, of unequal sides, a tile long or longer.
 * The backward is given what the forward beside it left. */
#include "rig.h"

enum { Q, K, V, SPANS, OUT, LSE, D_OUT, DQ, DK, DV, GATE, DY, D_GATE };
typedef struct attn { int causal, max_len; double scale; bool in_place; } attn; /* in_place: d_out is dy */

static st_attn attn_of(gpu *g, const attn *c)
{
    return (st_attn){.q = AT(g, Q), .k = AT(g, K), .v = AT(g, V), .spans = AT(g, SPANS), .out = AT(g, OUT),
                     .lse = AT(g, LSE), .d_out = AT(g, D_OUT), .dq = AT(g, DQ), .dk = AT(g, DK), .dv = AT(g, DV),
                     .scale = c->scale, .causal = c->causal, .max_len = c->max_len};
}
static int call_forward(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    st_attn a = attn_of(g, args);
    return o->attention(q, &a);
}
static int call_backward(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    st_attn a = attn_of(g, args);
    return o->attention_bwd(q, &a);
}
static int call_both(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    ST_TRY(call_forward(q, o, g, args));
    return call_backward(q, o, g, args);
}

static int call_gated(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    const attn *c = args;
    st_attn_gated a = {attn_of(g, c), AT(g, GATE), AT(g, DY), AT(g, D_GATE)};
    if (c->in_place) a.of.d_out = a.dy;
    return o->attention_gated_bwd(q, &a);
}
static int call_both_gated(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    ST_TRY(call_forward(q, o, g, args));
    return call_gated(q, o, g, args);
}

typedef struct layout { int64_t tokens, keys, n; double spans[4][6]; } layout;
static const layout layouts[] = {
    {200, 200, 4, {{0, 70, 71, 0}, {70, 1, 129, 0}, {0, 70, 71, 0}, {70, 1, 129, 0}}}, /* packed; one unused */
    {90, 150, 3, {{5, 40, 80}, {30, 20, 10}, {0, 100, 130}, {64, 36, 20}}},            /* aligned at the end; gaps */
    {130, 100, 2, {{0, 64}, {64, 66}, {0, 40}, {40, 60}}},                             /* more queries than keys */
    {150, 100, 2, {{0, 75}, {75, 75}, {0, 0}, {100, 100}}},                            /* two spans over the same keys */
};

static void make(gpu *g, const layout *l, int64_t heads, int64_t kv_heads, int64_t d, int64_t gap)
{
    double spans[24];
    for (int64_t i = 0; i < 4 * l->n; i++) spans[i] = l->spans[i / l->n][i % l->n];
    gpu_random(g, NEW(g, "q", REAL, gap, l->tokens, heads, d), -1, 1);
    gpu_random(g, NEW(g, "k", REAL, gap, l->keys, kv_heads, d), -1, 1);
    gpu_random(g, NEW(g, "v", REAL, 2 * gap, l->keys, kv_heads, d), -1, 1);
    gpu_values(g, NEW(g, "spans", ST_I32, 0, 4, l->n), spans);
    gpu_out(g, gpu_random(g, NEW(g, "out", REAL, gap, l->tokens, heads, d), -1, 1));
    gpu_out(g, gpu_random(g, NEW(g, "lse", ACC, 0, l->tokens, heads), -1, 1));
    gpu_random(g, NEW(g, "d_out", REAL, gap, l->tokens, heads, d), -1, 1);
    gpu_out(g, gpu_random(g, NEW(g, "dq", REAL, 0, l->tokens, heads, d), -1, 1));
    gpu_out(g, gpu_random(g, NEW(g, "dk", REAL, gap, l->keys, kv_heads, d), -1, 1));
    gpu_out(g, gpu_random(g, NEW(g, "dv", REAL, gap, l->keys, kv_heads, d), -1, 1));
}

static void attention(gpu *g)
{
    const int64_t sizes[][4] = {{4, 2, 64, 8}, {2, 2, 72, 0}, {8, 2, 128, 16}, {4, 1, 256, 8}, {3, 3, 20, 1}, {2, 1, 80, 8}};
    for (int s = 0; s < 6; s++)
        for (size_t l = 0; l < ST_COUNT(layouts); l++)
            for (int causal = 0; causal < 2; causal++) {
                attn c = {causal, 200, 1.0 / sqrt((double)sizes[s][2]), false};
                if (l == 3) c.scale *= 3;
                make(g, &layouts[l], sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3]);
                gpu_check(g, "attention", call_both, &c, 5e-6, 1e-2);
            }
}

static void make_gate(gpu *g, const layout *l, int64_t heads, int64_t d, int64_t gap)
{
    gpu_random(g, NEW(g, "gate", REAL, gap, l->tokens, heads, d), -3, 3);
    gpu_random(g, NEW(g, "dy", REAL, 0, l->tokens, heads, d), -1, 1);
    gpu_out(g, gpu_random(g, NEW(g, "d_gate", REAL, 2 * gap, l->tokens, heads, d), -1, 1));
}
static void behind_gate(gpu *g)
{
    const int64_t sizes[][4] = {{4, 2, 64, 8}, {2, 2, 72, 0}, {8, 2, 128, 16}, {4, 1, 256, 8}, {3, 3, 20, 1}};
    for (int s = 0; s < 5; s++)
        for (int l = 0; l < 3; l++)
            for (int in_place = 0; in_place < 2; in_place++) {
                attn c = {l != 1, 200, 1.0 / sqrt((double)sizes[s][2]), in_place};
                make(g, &layouts[l], sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3]);
                make_gate(g, &layouts[l], sizes[s][0], sizes[s][2], sizes[s][3]);
                gpu_out(g, in_place ? DY : D_OUT);
                gpu_check(g, "attention gated", call_both_gated, &c, 5e-6, 1e-2);
            }
}

static void fault(gpu *g)
{
    const layout wrong = {20, 20, 1, {{0}, {20}, {0}, {21}}};
    attn c = {1, 20, 1, false};
    make(g, &wrong, 2, 1, 64, 0);
    gpu_faults(g, call_forward, &c, ST_FAULT_RANGE);
}

static void make_large(gpu *g)
{
    double spans[4 * 8];
    for (int i = 0; i < 8; i++) {
        spans[i] = spans[16 + i] = 4096 * i;
        spans[8 + i] = spans[24 + i] = 4096;
    }
    for (int i = Q; i <= DV; i++)
        if (i == SPANS) gpu_values(g, NEW(g, "spans", ST_I32, 0, 4, 8), spans);
        else if (i == LSE) LARGE(g, ACC, 32768, 8);
        else LARGE(g, REAL, 32768, i == K || i == V || i == DK || i == DV ? 2 : 8, 256);
}

static void times(gpu *g)
{
    attn c = {1, 4096, 1.0 / 16, false};
    if (g->type == ST_F32) return; /* plain arithmetic: nothing to see */
    make_large(g);
    gpu_time(g, "attention", call_forward, &c);
    make_large(g);
    gpu_time(g, "attention bwd", call_backward, &c);
    make_large(g);
    for (int i = GATE; i <= D_GATE; i++) LARGE(g, REAL, 32768, 8, 256);
    gpu_time(g, "attention gated", call_gated, &c);
}

static void test_attention(void **state) { each_type(attention); }
static void test_behind_gate(void **state) { each_type(behind_gate); }
static void test_fault(void **state) { each_type(fault); }
static void test_times(void **state) { each_type(times); }

const struct CMUnitTest attention_tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_behind_gate),
                                             cmocka_unit_test(test_fault), cmocka_unit_test(test_times)};
const int n_attention_tests = (int)ST_COUNT(attention_tests);
