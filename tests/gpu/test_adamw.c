/* SPDX-License-Identifier: Apache-2.0 */
/* test_adamw.c - adamw_rounded of the cuda backend against the cpu backend on the same bytes: every bit is equal, whatever is
 * stored in bf16, in eights and one by one, in one piece and in shares. The last test prints times. */
#include "pairs.h"

static int call_rounded(const st_queue *q, const st_ops *ops, void *ctx) { return ops->adamw_rounded(q, ctx); }
static int call_adamw(const st_queue *q, const st_ops *ops, void *ctx) { return ops->adamw(q, ctx); }

enum { MASTER, M, V, GRAD, HYPER, CLIP, SKIP, STEP, WEIGHT, PARTS };
typedef struct variant { int32_t master, moments, weight; const char *name; } variant;
static const variant variants[] = {
    {ST_F32, ST_F32, ST_BF16, "f32 masters, f32 moments"},
    {ST_F32, ST_BF16, ST_BF16, "f32 masters, bf16 moments"},
    {ST_BF16, ST_F32, ST_NONE, "no masters, f32 moments"},
    {ST_BF16, ST_BF16, ST_NONE, "no masters, bf16 moments"},
    {ST_F32, ST_BF16, ST_NONE, "f32 weights, bf16 moments"},
};

static size_t bytes_of(const pair *p) { return (size_t)p->n * st_dtype_size(p->gpu.dtype); }

static void make(const variant *v, int64_t n, bool skip, pair *p[PARTS])
{
    static const double hyper[] = {0.01, 0.1, 0.9, 0.95, 1e-8, 0.271, 0.142625, 0.1, 0.05};
    const int32_t type[PARTS] = {v->master, v->moments, v->moments, ST_F32, ST_F32, ST_F32, ST_F32, ST_F32, v->weight};
    const int64_t count[PARTS] = {n, n, n, n, 9, 1, 1, 1, n};
    for (int i = 0; i < PARTS; i++) p[i] = type[i] ? PAIR(type[i], 0, count[i]) : NULL;
    pair_random(p[MASTER], 1, -1, 1);
    pair_random(p[M], 2, -0.01, 0.01);
    pair_random(p[V], 3, 0, 0.01);
    pair_random(p[GRAD], 4, -1, 1);
    pair_set(p[GRAD], 0, 0);
    pair_set(p[GRAD], 1, 1e-22); /* its square has no full mantissa */
    pair_set(p[V], 1, 0);
    pair_set(p[M], 2, 1e-39);
    for (int i = 0; i < 9; i++) pair_set(p[HYPER], i, hyper[i]);
    pair_set(p[CLIP], 0, 0.7);
    pair_set(p[SKIP], 0, skip ? 1 : 0);
    pair_set(p[STEP], 0, 1234);
}

/* t: views of the parts, in this order */
static st_adamw_rounded arguments(const st_tensor *t, bool weight, uint64_t seed, int64_t first)
{
    return (st_adamw_rounded){.of = {.master = &t[MASTER], .m = &t[M], .v = &t[V], .grad = &t[GRAD], .hyper = &t[HYPER],
                                     .clip = &t[CLIP], .skip = &t[SKIP], .weight = weight ? &t[WEIGHT] : NULL},
                              .step = &t[STEP], .seed = seed, .first = first};
}

static void check(const variant *v, int64_t n, int64_t first, bool skip)
{
    pair *p[PARTS];
    st_tensor on_gpu[PARTS], on_cpu[PARTS];
    make(v, n, skip, p);
    for (int i = 0; i < PARTS; i++) {
        if (!p[i]) continue;
        on_gpu[i] = on_cpu[i] = p[i]->gpu;
        on_cpu[i].data = memcpy(malloc(bytes_of(p[i]) + 8), p[i]->start, bytes_of(p[i]));
    }
    st_adamw_rounded a = arguments(on_gpu, v->weight, 99, first), b = arguments(on_cpu, v->weight, 99, first);
    gpu_run(call_rounded, &a);
    cpu_run(call_rounded, &b);
    for (int i = 0; i < PARTS; i++) {
        if (!p[i]) continue;
        size_t size = st_dtype_size(p[i]->gpu.dtype), bytes = bytes_of(p[i]);
        const char *x = p[i]->got, *y = on_cpu[i].data;
        for (size_t at = 0; at < bytes; at += size)
            if (memcmp(x + at, y + at, size))
                fail_msg("%s, n %lld, first %lld: part %d, element %zu differs", v->name, (long long)n, (long long)first, i,
                         at / size);
        bool output = i < GRAD || i == WEIGHT;
        assert_int_equal(memcmp(x, p[i]->start, bytes) != 0, output && !skip);
        free(on_cpu[i].data);
    }
    pairs_clear();
}

static void bits(void **state)
{
    for (size_t i = 0; i < ST_COUNT(variants); i++)
        for (int skip = 0; skip < 2; skip++) {
            check(&variants[i], 100003, 0, skip);
            check(&variants[i], 4096, 192, skip);
            check(&variants[i], 4099, 5, skip); /* shares of a range begin at whole eights: here one by one */
            check(&variants[i], 5, 64, skip);
        }
}

/* Two launches over shares give what one gives over all. */
static void shares(void **state)
{
    enum { N = 20000, CUT = 128 * 64 };
    for (size_t i = 0; i < ST_COUNT(variants); i++) {
        pair *p[PARTS];
        st_tensor t[PARTS];
        char *whole[PARTS] = {NULL};
        make(&variants[i], N, false, p);
        for (int k = 0; k < PARTS; k++)
            if (p[k]) t[k] = p[k]->gpu;
        st_adamw_rounded a = arguments(t, variants[i].weight, 3, 640);
        gpu_run(call_rounded, &a);
        for (int k = 0; k < PARTS; k++)
            if (p[k]) whole[k] = memcpy(malloc(bytes_of(p[k])), p[k]->got, bytes_of(p[k]));
        for (int part = 0; part < 2; part++) {
            int64_t from = part ? CUT : 0, n = part ? N - CUT : CUT;
            for (int k = 0; k < PARTS; k++)
                if (p[k] && p[k]->n == N) t[k] = st_rows(p[k]->gpu, from, n);
            a = arguments(t, variants[i].weight, 3, 640 + from);
            gpu_run(call_rounded, &a);
            for (int k = 0; k < PARTS; k++) {
                size_t size = p[k] ? st_dtype_size(p[k]->gpu.dtype) : 0, at = (size_t)from * size;
                if (p[k] && p[k]->n == N) assert_memory_equal((char *)p[k]->got + at, whole[k] + at, (size_t)n * size);
            }
        }
        for (int k = 0; k < PARTS; k++) free(whole[k]);
        pairs_clear();
    }
}

/* Elements of f32, seen as of another type, with the values of the gradient. */
static st_tensor seen_as(st_tensor t, int32_t type, const st_tensor *grad)
{
    t.dtype = type;
    if (type != ST_F32) assert_int_equal(gpu.backend->ops->copy(&gpu.q, grad, &t), ST_OK);
    return t;
}

static void times(void **state)
{
    const int64_t n = 1000000000;
    st_tensor room[3], weight = DEVICE_RANDOM(ST_BF16, 0, 1, n), t[PARTS];
    for (int k = 0; k < 3; k++) room[k] = DEVICE_RANDOM(ST_F32, 0, 1, n);
    t[GRAD] = DEVICE_RANDOM(ST_F32, 0, 1, n);
    t[HYPER] = DEVICE_RANDOM(ST_F32, 0.01, 0.1, 9);
    t[CLIP] = t[STEP] = DEVICE_RANDOM(ST_F32, 0.5, 1, 1);
    t[SKIP] = DEVICE_RANDOM(ST_F32, 0, 0, 1);
    t[WEIGHT] = weight;
    gpu.q.planning = 0;
    for (size_t i = 0; i < ST_COUNT(variants); i++) {
        const variant *v = &variants[i];
        t[MASTER] = seen_as(room[0], v->master, &t[GRAD]);
        t[M] = seen_as(room[1], v->moments, &t[GRAD]);
        t[V] = seen_as(room[2], v->moments, &t[GRAD]);
        st_adamw_rounded a = arguments(t, v->weight, 1, 0);
        print_rate(v->name, gpu_time(call_rounded, &a));
        if (!i) print_rate("the same by adamw", gpu_time(call_adamw, &a.of));
    }
    pairs_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits), cmocka_unit_test(shares), cmocka_unit_test(times)};
    if (!pairs_gpu_there()) return 0;
    return cmocka_run_group_tests_name("gpu adamw", tests, pairs_setup, pairs_teardown);
}
