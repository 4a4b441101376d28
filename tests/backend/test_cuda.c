/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda.c - the logic module of the cuda backend, which needs no GPU: descriptor, why there is no device, and planning: wrong
 * shapes and types are refused by name, workspace and FLOPs are what they should be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <strata/backend.h>

typedef struct plan { st_queue q; size_t taken; double flops; char message[512]; } plan; /* begins with the queue */

static plan *plan_of(const st_queue *q) { return (plan *)(uintptr_t)q; }
static void *take(const st_queue *q, size_t bytes)
{
    size_t at = plan_of(q)->taken;
    plan_of(q)->taken += bytes;
    return (void *)(uintptr_t)(0x100000 + at);
}
static void add_count(const st_queue *q, double flops, double bytes) { plan_of(q)->flops += flops; }
static int queue_fail(const st_queue *q, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(plan_of(q)->message, sizeof plan_of(q)->message, fmt, args);
    va_end(args);
    return code;
}
static plan new_plan(void)
{
    return (plan){.q = {.size = sizeof(st_queue), .planning = 1, .scratch = take, .count = add_count, .fail = queue_fail}};
}

static const st_plugin *module(void)
{
    const char *dir = getenv("ST_BUILDDIR");
    char path[4096];
    st_plugin_fn get;
    snprintf(path, sizeof path, "%s/plugins/.libs/cuda.so", dir ? dir : ".");
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL), *entry = handle ? dlsym(handle, "st_plugin_v1") : NULL;
    if (!entry) fail_msg("%s", dlerror());
    memcpy(&get, &entry, sizeof get);
    return get();
}
static const st_backend_ops *backend(void) { return module()->ops; }

static st_tensor matrix(int32_t type, int64_t rows, int64_t cols) /* an address that nobody may touch */
{
    return st_tensor2((void *)(uintptr_t)0x1000, type, rows, cols);
}

static void descriptor(void **state)
{
    const st_backend_ops *b = backend();
    st_facts f = {0};
    assert_string_equal(module()->name, "cuda");
    assert_int_equal(module()->kind, ST_KIND_BACKEND);
    assert_true(module()->kernel_size > 0);
    void *const *op = (void *const *)&b->ops->gemm, *const *end = (void *const *)(b->ops + 1);
    for (; op < end; op++) assert_non_null(*op);
    assert_int_equal(b->facts(NULL, &f), ST_OK);
    assert_int_equal(f.align, 256);
    assert_int_equal(f.tile % ST_GROUP_TILE, 0);
    assert_int_equal(f.dtypes, 1u << ST_F32 | 1u << ST_BF16 | 1u << ST_I32 | 1u << ST_I64 | 1u << ST_U8);
}

/* ---- with the stand-in for a driver ---- */

static int host_fail(st_error *e, int code, const char *file, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, args);
    va_end(args);
    return e->code = code;
}
static const st_host host = {.size = sizeof host, .fail = host_fail};

/* Once it is loaded, its name stands for it. Before that the real one may have been, on a machine that has one. */
static bool stand_in(void)
{
    const char *dir = getenv("ST_BUILDDIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/driver/.libs/libcuda.so.1", dir ? dir : ".");
    void *real = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *own = dlopen(path, RTLD_NOW);
    if (!own) fail_msg("%s", dlerror());
    if (real) dlclose(real);
    if (real && real != own) print_message("# a driver is loaded: the stand-in cannot take its place\n");
    return !real || real == own;
}

static void a_machine_without_a_gpu_says_why(void **state)
{
    const char *why = NULL;

    if (!stand_in()) return;
    unsetenv("STAND_IN_GPUS");
    assert_int_equal(backend()->count(NULL, &host, &why), 0);
    assert_string_equal(why, "the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES may hide them)");
    setenv("STAND_IN_BROKEN", "1", 1);
    assert_int_equal(backend()->count(NULL, &host, &why), 0);
    assert_non_null(strstr(why, "the NVIDIA driver does not start"));
    unsetenv("STAND_IN_BROKEN");
}

static void code_runs_where_it_was_built_for(void **state)
{
    const struct {
        const char *archs, *capability;
        int rc;
    } with[] = {
        {"sm_90a", "90", ST_OK}, {"sm_90a", "100", ST_E_ABI}, {"sm_90a", "80", ST_E_ABI}, {"sm_90a", "91", ST_E_ABI},
        {"sm_80", "80", ST_OK}, {"sm_80", "86", ST_OK}, {"sm_86", "80", ST_E_ABI}, {"sm_80", "90", ST_E_ABI},
        {"sm_80,compute_80", "90", ST_OK}, {"compute_80", "80", ST_OK}, {"compute_80", "120", ST_OK},
        {"compute_80", "75", ST_E_ABI}, {"compute_90a", "100", ST_E_ABI}, {"sm_100f", "103", ST_OK},
        {"sm_100f", "120", ST_E_ABI}, {"sm_90a,sm_100", "103", ST_OK}, {"", "90", ST_E_ABI}, {"compute", "90", ST_E_ABI},
    };
    const char *why;

    if (!stand_in()) return;
    setenv("STAND_IN_GPUS", "2", 1);
    assert_int_equal(backend()->count(NULL, &host, &why), 2);
    for (size_t i = 0; i < ST_COUNT(with); i++) {
        st_error e = {0};
        setenv("STAND_IN_CAPABILITY", with[i].capability, 1);
        if (backend()->accepts(NULL, &host, 1, with[i].archs, &e) != with[i].rc)
            fail_msg("%s on %s: %d, not %d (%s)", with[i].archs, with[i].capability, e.code, with[i].rc, e.message);
    }
    st_error e = {0};
    setenv("STAND_IN_CAPABILITY", "86", 1);
    assert_int_equal(backend()->accepts(NULL, &host, 1, "sm_90a,sm_100a", &e), ST_E_ABI);
    assert_string_equal(e.message, "these kernels are built for sm_90a,sm_100a, device 1 is Stand-in 1 of compute capability 8.6");
    assert_string_equal(e.hint, "configure --with-cuda-arch=86 builds kernels for it");
    assert_int_equal(backend()->accepts(NULL, &host, 2, "sm_86", &e), ST_E_DEVICE);
    assert_string_equal(e.message, "the NVIDIA driver says nothing of device 2");
}

static void types_are_refused_by_name(void **state)
{
    const st_ops *o = backend()->ops;
    plan p = new_plan();
    st_tensor whole = matrix(ST_F64, 4, 4), half = matrix(ST_F16, 4, 4), a = matrix(ST_BF16, 4, 4), b = matrix(ST_F32, 4, 4);
    assert_int_equal(o->act(&p.q, ST_ACT_SILU, &whole, &whole), ST_E_UNSUPPORTED);
    assert_string_equal(p.message, "act: x is f64, the cuda backend computes in bf16 or f32; f64 is what the cpu backend is for");
    assert_int_equal(o->act(&p.q, ST_ACT_SILU, &half, &half), ST_E_UNSUPPORTED);
    assert_string_equal(p.message, "act: x is f16, the cuda backend computes in bf16 or f32");
    assert_int_equal(o->gemm(&p.q, &(st_gemm){.a = &a, .b = &b, .c = &b, .alpha = 1}), ST_E_SHAPE);
    assert_string_equal(p.message, "gemm: b is f32, but a is bf16");
    assert_int_equal(o->gemm(&p.q, &(st_gemm){.a = &b, .b = &b, .c = &a, .alpha = 1}), ST_E_SHAPE);
    assert_string_equal(p.message, "gemm: c is bf16, it must be f32 as what is multiplied");
}

static void shapes_are_refused_by_name(void **state)
{
    const st_ops *o = backend()->ops;
    plan p = new_plan();
    st_tensor a = matrix(ST_BF16, 4, 6), b = matrix(ST_BF16, 5, 4), c = matrix(ST_BF16, 4, 4), gap = c;
    assert_int_equal(o->gemm(&p.q, &(st_gemm){.a = &a, .b = &b, .c = &c, .alpha = 1}), ST_E_SHAPE);
    assert_non_null(strstr(p.message, "gemm: b is bf16 [5, 4], it must be bf16 [6, 4]"));
    gap.stride[1] = 2;
    assert_int_equal(o->add(&p.q, 1, &gap, 1, &c, &c), ST_E_SHAPE);
    assert_non_null(strstr(p.message, "x has stride 2 in its last dimension"));
    assert_int_equal(o->glu(&p.q, 9, &c, &c, &c), ST_E_UNSUPPORTED);
    assert_non_null(strstr(p.message, "activation 9"));
}

static void plans_tell_work_and_workspace(void **state)
{
    enum { N = 100, WORDS = 300, HIDDEN = 64, CHUNK = 16 };
    const st_ops *o = backend()->ops;
    plan p = new_plan();
    st_tensor h = matrix(ST_BF16, N, HIDDEN), w = matrix(ST_BF16, WORDS, HIDDEN), labels = matrix(ST_I32, 1, N),
              cell = matrix(ST_F32, 1, 2), one = matrix(ST_F32, 1, 1), dw = matrix(ST_F32, WORDS, HIDDEN);
    st_xent x = {.h = &h, .w = &w, .labels = &labels, .scale = &one, .loss = &cell, .dh = &h, .dw = &dw,
                 .budget = (size_t)CHUNK * WORDS * 2, .group = ST_G_NONE};
    if (o->xent(&p.q, &x)) fail_msg("%s", p.message);
    assert_true(p.flops == 6.0 * N * WORDS * HIDDEN);
    assert_true(p.taken >= (size_t)CHUNK * (WORDS + 2 * HIDDEN) * 2); /* a chunk of logits, of h and of dh; no more logits */
    assert_true(p.taken < (size_t)2 * CHUNK * WORDS * 2 + (size_t)N * 64);
    p = new_plan();
    st_tensor c = matrix(ST_BF16, N, WORDS);
    assert_int_equal(o->gemm(&p.q, &(st_gemm){.a = &h, .b = &w, .c = &c, .alpha = 1, .trans = 2}), ST_OK);
    assert_int_equal(p.taken, 0);
    assert_true(p.flops == 2.0 * N * WORDS * HIDDEN);
    st_gemm kept = {.a = &h, .b = &w, .c = &c, .alpha = 1, .beta = 1, .trans = 2, .act = ST_ACT_SILU};
    assert_int_equal(o->gemm(&p.q, &kept), ST_OK); /* the value before act needs a place beside the old c */
    assert_int_equal(p.taken, (size_t)N * WORDS * 2);
}

static void joined_ops_are_planned(void **state)
{
    enum { N = 100, HEADS = 4, KEYS = 2, D = 64, WIDE = (2 * HEADS + KEYS) * D };
    const st_ops *o = backend()->ops;
    plan apart = new_plan(), joined = new_plan(), frozen = new_plan();
    st_tensor x = matrix(ST_BF16, N, WIDE), w = matrix(ST_BF16, 1, D), dw = matrix(ST_F32, 1, D), rstd_q = matrix(ST_F32, N, HEADS),
              rstd_k = matrix(ST_F32, N, KEYS), spans = matrix(ST_I32, 4, 3);
    st_tensor q = st_heads(x, 0, HEADS, D, 2 * D), gate = st_heads(x, D, HEADS, D, 2 * D),
              k = st_heads(x, 2 * HEADS * D, KEYS, D, D);
    st_rotary table = {matrix(ST_F32, N, 8), matrix(ST_F32, N, 8), 16, 0};
    st_qk_norm a = {.kind = ST_NORM_RMS1P, .eps = 1e-6, .table = &table, .q = {&q, &w, NULL, &rstd_q, &q, &q, &dw},
                    .k = {&k, &w, NULL, &rstd_k, &k, &k, &dw}};
    if (o->qk_norm_bwd(&joined.q, &a)) fail_msg("%s", joined.message);
    assert_true(joined.flops == N * (HEADS + KEYS) * (10.0 * D + 6.0 * 8));
    assert_true(joined.taken >= 2 * D * sizeof(double));
    a.q.dw = a.k.dw = NULL;
    assert_int_equal(o->qk_norm_bwd(&frozen.q, &a), ST_OK);
    assert_int_equal(frozen.taken, 0);
    a.k.rstd = &rstd_q;
    assert_int_equal(o->qk_norm_bwd(&frozen.q, &a), ST_E_SHAPE);
    assert_string_equal(frozen.message, "qk_norm_bwd: k.rstd is f32 [100, 4], it must be f32 [100, 2]");

    st_attn_gated g = {{.q = &q, .k = &k, .v = &k, .spans = &spans, .out = &q, .lse = &rstd_q, .d_out = &q, .dq = &q, .dk = &k,
                        .dv = &k, .scale = 1, .causal = 1, .max_len = 50}, &gate, &q, &gate};
    joined = new_plan();
    if (o->attention_gated_bwd(&joined.q, &g)) fail_msg("%s", joined.message);
    assert_int_equal(o->attention_bwd(&apart.q, &g.of), ST_OK);
    assert_int_equal(joined.taken, apart.taken);
    assert_true(joined.flops == apart.flops + 20.0 * N * HEADS * D);
    g.gate = &k;
    assert_int_equal(o->attention_gated_bwd(&joined.q, &g), ST_E_SHAPE);
    assert_string_equal(joined.message, "attention_gated_bwd: gate is bf16 [100, 2, 64], but out is bf16 [100, 4, 64]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptor),
        cmocka_unit_test(a_machine_without_a_gpu_says_why),
        cmocka_unit_test(code_runs_where_it_was_built_for),
        cmocka_unit_test(types_are_refused_by_name),
        cmocka_unit_test(shapes_are_refused_by_name),
        cmocka_unit_test(plans_tell_work_and_workspace),
        cmocka_unit_test(joined_ops_are_planned),
    };
    return cmocka_run_group_tests_name("cuda logic", tests, NULL, NULL);
}
