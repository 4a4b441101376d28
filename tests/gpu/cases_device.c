/* SPDX-License-Identifier: Apache-2.0 */
/* cases_device.c - the device itself: memory, events, two queues, a graph; and f64, which is refused by name. */
#include "rig.h"

static void memory_and_events(void **state)
{
    gpu *g = the_gpu;
    const st_backend_ops *b = g->gpu.backend;
    st_error e = {0};
    st_queue other = g->gpu.q;
    st_event *from, *to;
    unsigned char *pinned, *device, bytes[64];
    double ms = -1;
    assert_int_equal(b->alloc(g->gpu.device, ST_MEM_PINNED, 64, (void **)&pinned), ST_OK);
    assert_int_equal(b->alloc(g->gpu.device, ST_MEM_DEVICE, 64, (void **)&device), ST_OK);
    assert_int_equal((uintptr_t)device % 256, 0);
    assert_int_equal(b->queue(g->gpu.device, 1, &other), ST_OK);
    assert_ptr_not_equal(other.stream, g->gpu.q.stream);
    assert_int_equal(b->event(g->gpu.device, &from), ST_OK);
    assert_int_equal(b->event(g->gpu.device, &to), ST_OK);
    for (int i = 0; i < 64; i++) pinned[i] = (unsigned char)i;
    assert_int_equal(b->record(&g->gpu.q, from), ST_OK);
    assert_int_equal(b->copy(&g->gpu.q, device, pinned, 64), ST_OK);
    assert_int_equal(b->record(&g->gpu.q, to), ST_OK);
    assert_int_equal(b->wait(&other, to), ST_OK);
    assert_int_equal(b->set(&other, device, 0x77, 16), ST_OK);
    assert_int_equal(b->copy(&other, bytes, device, 64), ST_OK);
    assert_int_equal(b->sync(g->gpu.device, &e), ST_OK);
    assert_int_equal(bytes[15], 0x77);
    assert_int_equal(bytes[16], 16);
    assert_int_equal(b->done(to), 1);
    assert_int_equal(b->elapsed(from, to, &ms), ST_OK);
    assert_true(ms >= 0);
    assert_int_equal(b->free(g->gpu.device, ST_MEM_PINNED, pinned), ST_OK);
    assert_int_equal(b->free(g->gpu.device, ST_MEM_DEVICE, device), ST_OK);
}

/* A captured product gives the bits of one that was not, and follows what its inputs hold now. */
static void graph(void **state)
{
    enum { N = 64 };
    gpu *g = the_gpu;
    const st_backend_ops *b = g->gpu.backend;
    st_error e = {0};
    st_graph *captured;
    float once[N * N], again[N * N], *device;
    size_t bytes = sizeof once;
    assert_int_equal(b->alloc(g->gpu.device, ST_MEM_DEVICE, 2 * bytes, (void **)&device), ST_OK);
    st_tensor x = st_tensor2(device, ST_F32, N, N), y = st_tensor2(device + N * N, ST_F32, N, N);
    st_gemm product = {.a = &x, .b = &x, .c = &y, .alpha = 1, .trans = 2, .act = ST_ACT_SILU};
    for (int i = 0; i < N * N; i++) once[i] = (float)random_at(1, i);
    for (int i = 0; i < 2; i++) { /* the first time loads modules, which a capture must not */
        assert_int_equal(b->copy(&g->gpu.q, device, once, bytes), ST_OK);
        assert_int_equal(b->sync(g->gpu.device, &e), ST_OK);
        if (i) assert_int_equal(b->capture_begin(&g->gpu.q), ST_OK);
        assert_int_equal(b->ops->gemm(&g->gpu.q, &product), ST_OK);
    }
    if (b->capture_end(&g->gpu.q, &captured, &e)) fail_msg("%s", e.message);
    assert_int_equal(b->copy(&g->gpu.q, once, y.data, bytes), ST_OK); /* what the first one left */
    assert_int_equal(b->set(&g->gpu.q, y.data, 0xff, bytes), ST_OK);
    assert_int_equal(b->replay(&g->gpu.q, captured), ST_OK);
    assert_int_equal(b->copy(&g->gpu.q, again, y.data, bytes), ST_OK);
    assert_int_equal(b->sync(g->gpu.device, &e), ST_OK);
    assert_memory_equal(once, again, bytes);
    assert_int_equal(b->set(&g->gpu.q, device, 0, bytes), ST_OK);
    assert_int_equal(b->replay(&g->gpu.q, captured), ST_OK);
    assert_int_equal(b->copy(&g->gpu.q, again, y.data, bytes), ST_OK);
    assert_int_equal(b->sync(g->gpu.device, &e), ST_OK);
    for (int i = 0; i < N * N; i++) assert_true(again[i] == 0);
    assert_int_equal(b->graph_free(captured), ST_OK);
    assert_int_equal(b->free(g->gpu.device, ST_MEM_DEVICE, device), ST_OK);
}

static void refused(void **state)
{
    gpu *g = the_gpu;
    st_facts facts = {0};
    st_tensor x = st_tensor2(g->gpu.arena, ST_F64, 4, 4);
    assert_int_equal(g->gpu.backend->ops->act(&g->gpu.q, ST_ACT_SILU, &x, &x), ST_E_UNSUPPORTED);
    assert_non_null(strstr(g->gpu.message, "x is f64"));
    assert_int_equal(g->gpu.backend->facts(NULL, &facts), ST_OK);
    assert_false(facts.dtypes >> ST_F64 & 1);
    assert_true(facts.dtypes >> ST_BF16 & 1);
}

const struct CMUnitTest device_tests[] = {cmocka_unit_test(memory_and_events), cmocka_unit_test(graph),
                                          cmocka_unit_test(refused)};
const int n_device_tests = (int)ST_COUNT(device_tests);
