/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention.c - attention over spans of the cpu backend against softmax written out, backward against
 * differences. */
#include "fixture.h"

static int call_forward(const st_queue *q, const st_ops *ops, void *ctx) { return ops->attention(q, ctx); }
static int call_backward(const st_queue *q, const st_ops *ops, void *ctx) { return ops->attention_bwd(q, ctx); }

static int call_gated_backward(const st_queue *q, const st_ops *ops, void *ctx) { return ops->attention_gated_bwd(q, ctx); }

enum { SPANS = 8 };
typedef struct attn_case {
    int64_t tokens, keys, heads, kv_heads, d;
    bool causal;
    int n;
    int32_t q_begin[SPANS], q_len[SPANS], k_begin[SPANS], k_len[SPANS];
} attn_case;

typedef struct attn_rig {
    st_tensor *q, *k, *v, *spans, *out, *lse, *d_out, *dq, *dk, *dv;
    st_attn a;
} attn_rig;

/* q, k, v and their gradients are views of wider rows, as in a fused projection. */
static attn_rig make(rig *r, const attn_case *c)
{
    attn_rig x;
#define HEADS_OF(n, heads) rig_view(r, st_heads(*NEW_REAL(r, 3, n, (heads) * (c->d + 2)), 1, heads, c->d, c->d + 2))
    x.q = HEADS_OF(c->tokens, c->heads);
    x.k = HEADS_OF(c->keys, c->kv_heads);
    x.v = HEADS_OF(c->keys, c->kv_heads);
    x.out = HEADS_OF(c->tokens, c->heads);
    x.d_out = HEADS_OF(c->tokens, c->heads);
    x.dq = HEADS_OF(c->tokens, c->heads);
    x.dk = HEADS_OF(c->keys, c->kv_heads);
    x.dv = HEADS_OF(c->keys, c->kv_heads);
    x.lse = NEW_REAL(r, 1, c->tokens, c->heads);
    x.spans = NEW(r, ST_I32, 1, 4, SPANS); /* unused entries stay 0 */
    for (int i = 0; i < c->n; i++) {
        set_value(x.spans, i, c->q_begin[i]);
        set_value(x.spans, SPANS + i, c->q_len[i]);
        set_value(x.spans, 2 * SPANS + i, c->k_begin[i]);
        set_value(x.spans, 3 * SPANS + i, c->k_len[i]);
    }
    set_random(x.q, 1, -2, 2);
    set_random(x.k, 2, -2, 2);
    set_random(x.v, 3, -1, 1);
    set_random(x.d_out, 4, -1, 1);
    set_all(x.out, 7);
    set_all(x.dq, 7);
    set_all(x.dk, 7);
    set_all(x.dv, 7);
    x.a = (st_attn){.q = x.q,
                    .k = x.k,
                    .v = x.v,
                    .spans = x.spans,
                    .out = x.out,
                    .lse = x.lse,
                    .d_out = x.d_out,
                    .dq = x.dq,
                    .dk = x.dk,
                    .dv = x.dv,
                    .scale = 1 / sqrt((double)c->d),
                    .causal = c->causal,
                    .max_len = 256};
    return x;
}

static double *naive(const attn_case *c, const attn_rig *x)
{
    double *out = calloc((size_t)(c->tokens * c->heads * c->d), sizeof *out),
           *p = calloc((size_t)c->keys + 1, sizeof *p);
    double *q = values(x->q), *k = values(x->k), *v = values(x->v);
    int64_t d = c->d, group = c->heads / c->kv_heads;
    for (int s = 0; s < c->n; s++)
        for (int64_t i = 0; i < c->q_len[s]; i++)
            for (int64_t h = 0; h < c->heads; h++) {
                int64_t row = ((c->q_begin[s] + i) * c->heads + h) * d, seen = c->k_len[s];
                double most = -INFINITY, sum = 0;
                if (c->causal && c->k_len[s] - c->q_len[s] + i + 1 < seen) seen = c->k_len[s] - c->q_len[s] + i + 1;
                for (int64_t j = 0; j < seen; j++) {
                    int64_t key = ((c->k_begin[s] + j) * c->kv_heads + h / group) * d;
                    p[j] = 0;
                    for (int64_t e = 0; e < d; e++) p[j] += q[row + e] * k[key + e] * x->a.scale;
                    most = fmax(most, p[j]);
                }
                for (int64_t j = 0; j < seen; j++) sum += p[j] = exp(p[j] - most);
                for (int64_t j = 0; j < seen; j++)
                    for (int64_t e = 0; e < d; e++)
                        out[row + e] += p[j] / sum * v[((c->k_begin[s] + j) * c->kv_heads + h / group) * d + e];
            }
    free(p); free(q); free(k); free(v);
    return out;
}

static void outside_is_zero(const attn_case *c, const st_tensor *t, const int32_t *begin, const int32_t *len)
{
    int64_t per = elements(t) / t->dim[0];
    for (int64_t i = 0; i < t->dim[0]; i++) {
        bool inside = false;
        for (int s = 0; s < c->n; s++) inside |= i >= begin[s] && i < begin[s] + len[s];
        for (int64_t e = 0; !inside && e < per; e++) assert_true(value_of(t, i * per + e) == 0);
    }
}

static void one(rig *r, const attn_case *c, int samples)
{
    attn_rig x = make(r, c);
    double *want = naive(c, &x), *weight = values(x.d_out);
    RUN_OK(r, call_forward, &x.a);
    near_to(r, "attention out", x.out, want, 1e-13, 1e-6);
    outside_is_zero(c, x.out, c->q_begin, c->q_len);
    RUN_OK(r, call_backward, &x.a);
    outside_is_zero(c, x.dq, c->q_begin, c->q_len);
    outside_is_zero(c, x.dk, c->k_begin, c->k_len);
    outside_is_zero(c, x.dv, c->k_begin, c->k_len);
    double *dq = values(x.dq), *dk = values(x.dk), *dv = values(x.dv);
    check_gradient(r, "attention dq", call_forward, &x.a, x.q, x.out, weight, dq, samples);
    check_gradient(r, "attention dk", call_forward, &x.a, x.k, x.out, weight, dk, samples);
    check_gradient(r, "attention dv", call_forward, &x.a, x.v, x.out, weight, dv, samples);
    st_attn part = x.a;
    part.dq = part.dv = rig_absent(r);
    set_all(x.dk, 7);
    RUN_OK(r, call_backward, &part);
    near_to(r, "attention dk alone", x.dk, dk, 0, 0);
    part = x.a;
    part.lse = NULL;
    RUN_OK(r, call_forward, &part);
    free(want); free(weight); free(dq); free(dk); free(dv);
    rig_clear(r);
}

/* Segments of these lengths one after another with `gap` rows between them, queries and keys alike. */
static attn_case segments(const int32_t *len, int n, int32_t gap, int64_t heads, int64_t kv_heads, int64_t d,
                          bool causal)
{
    attn_case c = {.heads = heads, .kv_heads = kv_heads, .d = d, .causal = causal, .n = n};
    int32_t at = gap;
    for (int i = 0; i < n; i++) {
        c.q_begin[i] = c.k_begin[i] = at;
        c.q_len[i] = c.k_len[i] = len[i];
        at += len[i] + gap;
    }
    c.tokens = c.keys = at;
    return c;
}

static void lengths(rig *r)
{
    static const int32_t len[] = {1, 63, 64, 65, 200};
    static const int64_t width[] = {8, 16, 72, 256};
    for (int causal = 0; causal < 2; causal++)
        for (int w = 0; w < 4; w++)
            for (int i = 0; i < 5; i++) {
                if (width[w] == 256 && r->level != st_cpu_level()) continue; /* slow, and the same code as at 72 */
                attn_case c = segments(len + i, 1, 0, 2, 1, width[w], causal);
                one(r, &c, len[i] > 100 ? 2 : 5);
            }
}

static void mixed(rig *r)
{
    static const int32_t len[] = {1, 63, 1, 65, 0, 200};
    for (int causal = 0; causal < 2; causal++) {
        attn_case c = segments(len, 6, 2, 4, 2, 20, causal);
        one(r, &c, 12);
        c = segments(len, 4, 0, 3, 3, 16, causal);
        one(r, &c, 12);
        c = segments(len, 6, 0, 6, 1, 9, causal);
        one(r, &c, 6);
    }
}

/* Pieces of one segment that share its keys, as in a row cut over a context group; and queries that see fewer or no
 * keys. */
static void shared_keys(rig *r)
{
    attn_case c = {.tokens = 90, .keys = 150, .heads = 2, .kv_heads = 2, .d = 24, .causal = true, .n = 3,
                   .q_begin = {0, 30, 60}, .q_len = {30, 30, 20}, .k_begin = {5, 5, 130}, .k_len = {40, 120, 20}};
    one(r, &c, 15);
    c.causal = false;
    one(r, &c, 15);
    c = (attn_case){.tokens = 12, .keys = 6, .heads = 1, .kv_heads = 1, .d = 8, .causal = true, .n = 1, .q_begin = {0},
                    .q_len = {12}, .k_begin = {0}, .k_len = {5}}; /* the first 7 queries see nothing */
    attn_rig x = make(r, &c);
    RUN_OK(r, call_forward, &x.a);
    RUN_OK(r, call_backward, &x.a);
    for (int64_t i = 0; i < 7 * 8; i++) assert_true(value_of(x.out, i) == 0 && value_of(x.dq, i) == 0);
    for (int64_t e = 0; e < 8; e++)
        assert_true(value_of(x.out, 7 * 8 + e) == value_of(x.v, e)); /* one key: its value */
    rig_clear(r);
}

static void large_scores(rig *r) /* softmax must not overflow, and NaN must come through */
{
    attn_case c = segments((const int32_t[]){70}, 1, 0, 1, 1, 16, true);
    attn_rig x = make(r, &c);
    for (int64_t i = 0; i < elements(x.q); i++) set_value(x.q, i, 100 * value_of(x.q, i));
    double *want = naive(&c, &x);
    RUN_OK(r, call_forward, &x.a);
    near_to(r, "attention of large scores", x.out, want, 1e-11, 1e-4);
    set_value(x.k, 3 * 16, NAN);
    RUN_OK(r, call_forward, &x.a);
    assert_true(isnan(value_of(x.out, 40 * 16)));
    assert_false(isnan(value_of(x.out, 2 * 16)));
    free(want);
    rig_clear(r);
}

/* ---- behind a gate ---- */
typedef struct gated_call { st_attn a; st_tensor *gate, *y; } gated_call;
static int call_gated_forward(const st_queue *q, const st_ops *ops, void *ctx)
{
    gated_call *c = ctx;
    ST_TRY(ops->attention(q, &c->a));
    return ops->glu(q, ST_ACT_SIGMOID, c->gate, c->a.out, c->y);
}

/* Against differences, and against the two ops that it joins; d_out apart from dy, and the same. */
static void one_gated(rig *r, const attn_case *c)
{
    attn_rig x = make(r, c);
    st_tensor *gate = HEADS_OF(c->tokens, c->heads), *y = HEADS_OF(c->tokens, c->heads), *dy = HEADS_OF(c->tokens, c->heads),
              *d_gate = HEADS_OF(c->tokens, c->heads);
    gated_call forward = {x.a, gate, y};
    st_attn_gated a = {x.a, gate, dy, d_gate};
    set_random(gate, 5, -3, 3);
    set_random(dy, 6, -1, 1);
    double *weight = values(dy);
    RUN_OK(r, call_gated_forward, &forward);
    RUN_OK(r, call_gated_backward, &a);
    double *d_out = values(x.d_out), *dg = values(d_gate), *dq = values(x.dq), *dk = values(x.dk), *dv = values(x.dv);
    check_gradient(r, "gated d_gate", call_gated_forward, &forward, gate, y, weight, dg, 20);
    check_gradient(r, "gated dq", call_gated_forward, &forward, x.q, y, weight, dq, 10);
    check_gradient(r, "gated dv", call_gated_forward, &forward, x.v, y, weight, dv, 10);
    set_all(x.dq, 7);
    set_all(x.dk, 7);
    RUN_OK(r, call_backward, &x.a); /* d_out is what attention's own backward needs */
    near_to(r, "dq by parts", x.dq, dq, 0, 0);
    near_to(r, "dk by parts", x.dk, dk, 0, 0);
    set_all(x.dk, 7);
    a.of.d_out = dy;
    a.d_gate = rig_absent(r);
    RUN_OK(r, call_gated_backward, &a);
    near_to(r, "gated d_out in place of dy", dy, d_out, 0, 0);
    near_to(r, "gated dk in place", x.dk, dk, 0, 0);
    a.gate = x.k;
    REFUSED(r, call_gated_backward, &a, ST_E_SHAPE, "attention_gated_bwd: gate is", "but out is");
    a.gate = gate;
    a.of.lse = NULL;
    REFUSED(r, call_gated_backward, &a, ST_E_SHAPE, "attention_gated_bwd: lse is absent");
    free(weight); free(d_out); free(dg); free(dq); free(dk); free(dv);
    rig_clear(r);
}

static void gated(rig *r)
{
    static const int32_t len[] = {1, 63, 0, 40};
    attn_case c = segments(len, 4, 2, 4, 2, 20, true);
    one_gated(r, &c);
    c = segments(len, 2, 0, 3, 1, 16, false);
    one_gated(r, &c);
}

static void types(void **state) /* f32 against f64 on the same numbers */
{
    double *kept[4] = {NULL};
    for (int pass = 0; pass < 2; pass++) {
        rig *r = malloc(sizeof *r);
        rig_open(r, pass ? ST_F32 : ST_F64, 0);
        attn_case c = segments((const int32_t[]){100, 150}, 2, 1, 4, 2, 32, true);
        attn_rig x = make(r, &c);
        RUN_OK(r, call_forward, &x.a);
        RUN_OK(r, call_backward, &x.a);
        st_tensor *const out[4] = {x.out, x.dq, x.dk, x.dv};
        for (int i = 0; i < 4; i++) {
            if (!pass) kept[i] = values(out[i]);
            else near_to(r, "attention in f32", out[i], kept[i], 0, 1e-6);
        }
        rig_close(r);
        free(r);
    }
    for (int i = 0; i < 4; i++) free(kept[i]);
}

static void refuses(rig *r)
{
    attn_case c = segments((const int32_t[]){5}, 1, 0, 3, 1, 8, true);
    attn_rig x = make(r, &c);
    st_tensor *two = NEW_REAL(r, 0, 5, 2, 8), *big = NEW_REAL(r, 0, 5, 3, 300), *big_k = NEW_REAL(r, 0, 5, 1, 300);
    st_attn a = x.a;
    a.k = a.v = two;
    REFUSED(r, call_forward, &a, ST_E_SHAPE, "attention", "3 heads", "2 heads");
    a = x.a;
    a.out = two;
    REFUSED(r, call_forward, &a, ST_E_SHAPE, "attention: out is", "[5, 2, 8]", "[5, 3, 8]");
    a = (st_attn){.q = big, .k = big_k, .v = big_k, .out = big, .spans = x.spans, .scale = 1};
    REFUSED(r, call_forward, &a, ST_E_UNSUPPORTED, "300", "256");
    a = x.a;
    a.lse = NULL;
    REFUSED(r, call_backward, &a, ST_E_SHAPE, "attention_bwd: lse is absent");
    set_value(x.spans, SPANS, 6); /* a span behind the last row */
    assert_int_equal(rig_once(r, call_forward, &x.a), ST_OK);
    assert_int_equal(r->fault.code, ST_FAULT_RANGE);
    rig_clear(r);
}

static void test_lengths(void **state) { rig_each(lengths); }
static void test_mixed(void **state) { rig_each(mixed); }
static void test_shared_keys(void **state) { rig_each(shared_keys); }
static void test_large_scores(void **state) { rig_each(large_scores); }
static void test_gated(void **state) { rig_each(gated); }
static void test_refuses(void **state) { rig_each(refuses); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths), cmocka_unit_test(test_mixed), cmocka_unit_test(test_shared_keys),
        cmocka_unit_test(test_large_scores), cmocka_unit_test(types), cmocka_unit_test(test_gated),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests_name("cpu attention", tests, NULL, NULL);
}
