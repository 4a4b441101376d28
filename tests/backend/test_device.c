/* SPDX-License-Identifier: Apache-2.0 */
/* test_device.c - the cpu backend as a module: descriptor, device, memory, queue, events. */
#include "fixture.h"
#include <time.h>

static void descriptor(void **state)
{
    const st_plugin *p = rig_plugin();
    const st_backend_ops *b = p->ops;
    assert_int_equal(p->magic, ST_MAGIC);
    assert_int_equal(p->abi_major, ST_ABI_MAJOR);
    assert_int_equal(p->kind, ST_KIND_BACKEND);
    assert_int_equal(p->tensor_size, sizeof(st_tensor));
    assert_string_equal(p->name, "cpu");
    assert_int_equal(b->size, sizeof(st_backend_ops));
    assert_int_equal(b->ops->size, sizeof(st_ops));
    void *const *op = (void *const *)&b->ops->gemm, *const *end = (void *const *)(b->ops + 1);
    for (; op < end; op++) assert_non_null(*op);
    assert_null(b->capture_begin);
    st_facts f = {0};
    assert_int_equal(b->facts(NULL, &f), ST_OK);
    assert_int_equal(f.align, 256);
    assert_int_equal(f.tile, 1);
    assert_int_equal(f.dtypes, 1u << ST_F64 | 1u << ST_F32 | 1u << ST_I32 | 1u << ST_I64 | 1u << ST_U8);
    const char *why = NULL;
    assert_int_equal(b->count(NULL, NULL, &why), 1);
}

static void device(void **state)
{
    rig *r = malloc(sizeof *r);
    rig_open(r, ST_F32, 0);
    const st_backend_ops *b = r->backend;
    char words[256];
    assert_int_equal(b->describe(r->more, words, sizeof words), ST_OK);
    assert_non_null(strstr(words, "3 threads"));
    assert_non_null(strstr(words, "OpenBLAS"));
    b->describe(r->more, words, 5);
    assert_int_equal(strlen(words), 4);
    const size_t sizes[] = {0, 1, 1000, (size_t)9 << 20};
    for (int i = 0; i < 4; i++) {
        unsigned char *p = NULL;
        assert_int_equal(b->alloc(r->one, ST_MEM_DEVICE, sizes[i], (void **)&p), ST_OK);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 256, 0);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(p[k], 0);
        assert_int_equal(b->free(r->one, ST_MEM_DEVICE, p), ST_OK);
    }
    void *none = r;
    assert_int_equal(b->alloc(r->one, ST_MEM_PINNED, SIZE_MAX - 10, &none), ST_E_NOMEM);
    assert_null(none);

    st_event *from, *to;
    double ms = -1;
    char text[16] = "abcdef", copy[16];
    b->queue(r->one, 0, &r->q);
    assert_int_equal(b->event(r->one, &from), ST_OK);
    assert_int_equal(b->event(r->one, &to), ST_OK);
    assert_int_equal(b->record(&r->q, from), ST_OK);
    assert_int_equal(b->copy(&r->q, copy, text, sizeof text), ST_OK);
    assert_string_equal(copy, "abcdef");
    assert_int_equal(b->set(&r->q, copy, 'x', 3), ST_OK);
    assert_string_equal(copy, "xxxdef");
    assert_int_equal(b->record(&r->q, to), ST_OK);
    assert_int_equal(b->wait(&r->q, to), ST_OK);
    assert_int_equal(b->done(to), 1);
    assert_int_equal(b->elapsed(from, to, &ms), ST_OK);
    assert_true(ms >= 0);
    assert_int_equal(b->sync(r->one, NULL), ST_OK);
    const st_cpu_pool *pool = r->q.stream;
    assert_int_equal(pool->threads, 1);
    rig_close(r);
    free(r);
}

static void refused(void **state)
{
    rig *r = malloc(sizeof *r);
    rig_open(r, ST_F32, 0);
    st_error e = {0};
    st_device *d = NULL;
    int64_t *self = calloc(1, r->plugin->self_size);
    assert_int_equal(r->backend->open(self, &r->host, 1, NULL, &d, &e), ST_E_DEVICE);
    assert_non_null(strstr(e.message, "device 1"));
    for (uint32_t i = 0; i < r->plugin->n_params; i++)
        if (!strcmp(r->plugin->params[i].key, "level")) *(int64_t *)((char *)self + r->plugin->params[i].offset) = 2;
    assert_int_equal(r->backend->open(self, &r->host, 0, NULL, &d, &e), ST_E_CONFIG);
    assert_non_null(strstr(e.message, "level = 2"));
    assert_null(d);
    free(self);
    rig_close(r);
    free(r);
}

/* Every piece runs exactly once, also from inside a piece. */
typedef struct tally { const st_cpu_pool *pool; int32_t count[100]; } tally;
static void inner(void *arg, int64_t i) { __atomic_fetch_add(&((tally *)arg)->count[i], 1, __ATOMIC_RELAXED); }
static void outer(void *arg, int64_t i)
{
    tally *t = arg;
    inner(t, i);
    if (i == 3) t->pool->run(t->pool, 100, inner, t);
}

static void pool(void **state)
{
    rig *r = malloc(sizeof *r);
    rig_open(r, ST_F32, 0);
    tally t = {0};
    r->backend->queue(r->more, 0, &r->q);
    t.pool = r->q.stream;
    t.pool->run(t.pool, 100, outer, &t);
    for (int i = 0; i < 100; i++) assert_int_equal(t.count[i], 2);
    t.pool->run(t.pool, 0, outer, &t);
    for (int i = 0; i < 3000; i++) { /* short launches one after the other; pauses let helpers fall asleep */
        if (i % 1000 == 0) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        t.pool->run(t.pool, 1 + i % 100, inner, &t);
    }
    for (int i = 0; i < 100; i++) assert_int_equal(t.count[i], 2 + 30 * (100 - i));
    rig_close(r);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptor), cmocka_unit_test(device), cmocka_unit_test(refused), cmocka_unit_test(pool),
    };
    return cmocka_run_group_tests_name("cpu device", tests, NULL, NULL);
}
