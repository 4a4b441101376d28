/* SPDX-License-Identifier: Apache-2.0 */
/* comm self: every collective of one rank is a copy, and wrong sizes, types and roots are found all the same. */
#include "config.h"
#include "plugin_test.h"
#include <strata/comm.h>

static int told_code;
static int tell(const st_queue *q, int code, const char *fmt, ...) { return told_code = code; }
static int fail_error(st_error *e, int code, const char *file, int line, const char *fmt, ...)
{
    if (e) e->code = code;
    return code;
}

typedef struct world {
    st_registry *r;
    st_comm_ops ops;
    st_host host;
    st_comm *comm;
    st_queue q;
} world;

static int setup(void **state)
{
    world *w = calloc(1, sizeof *w);
    st_diags *diags = calloc(1, sizeof *diags);
    const st_plugin *p;
    st_error e = {0};

    *state = w;
    w->r = open_only(path_of("%s/registry:%s/plugins/.libs", getenv("ST_SRCDIR"), getenv("ST_BUILDDIR")), diags);
    free(diags);
    const st_manifest *m = st_registry_find(w->r, ST_KIND_COMM, "self");
    if (!m || st_module_open(w->r, m, &p, &e) != ST_OK) return -1;
    st_ops_copy(p, &w->ops, sizeof w->ops);
    w->host.fail = fail_error;
    w->q = (st_queue){.size = sizeof w->q, .fail = tell};
    return w->ops.open(NULL, &w->host, NULL, NULL, &w->comm, &e);
}
static int teardown(void **state)
{
    world *w = *state;
    w->ops.close(w->comm);
    st_registry_close(w->r);
    free(w);
    return 0;
}

static void collectives_copy(void **state)
{
    world *w = *state;
    const float a[3] = {1, 2, 3};
    float b[6][3];

    memset(b, 0, sizeof b);
    assert_int_equal(w->ops.all_gather(w->comm, &w->q, a, b[0], 3, ST_F32), ST_OK);
    assert_int_equal(w->ops.reduce_scatter(w->comm, &w->q, a, b[1], 3, ST_F32, ST_SUM), ST_OK);
    assert_int_equal(w->ops.all_reduce(w->comm, &w->q, a, b[2], 3, ST_F32, ST_MAX), ST_OK);
    assert_int_equal(w->ops.all_to_all(w->comm, &w->q, a, b[3], 3, ST_F32), ST_OK);
    assert_int_equal(w->ops.reduce(w->comm, &w->q, a, b[4], 3, ST_F32, 0), ST_OK);
    for (int i = 0; i < 5; i++) assert_memory_equal(a, b[i], sizeof a);
    assert_int_equal(w->ops.all_reduce(w->comm, &w->q, b[0], b[0], 3, ST_F32, ST_SUM), ST_OK);
    assert_int_equal(w->ops.broadcast(w->comm, &w->q, b[0], 3, ST_F32, 0), ST_OK);
    assert_memory_equal(a, b[0], sizeof a);
    w->q.planning = 1; /* addresses are fake then */
    assert_int_equal(w->ops.all_gather(w->comm, &w->q, (void *)256, (void *)4096, 3, ST_F32), ST_OK);
}

static void mistakes_are_found(void **state)
{
    world *w = *state;
    float a[8] = {0};
    int64_t n[2] = {5, 6};
    st_comm *c = NULL;
    st_error e = {0};
    const st_bootstrap two = {.size = sizeof two, .rank = 1, .ranks = 2};

    assert_int_equal(w->ops.all_gather(w->comm, &w->q, a, a + 4, -1, ST_F32), ST_E_SHAPE);
    assert_int_equal(told_code, ST_E_SHAPE);
    assert_int_equal(w->ops.all_gather(w->comm, &w->q, a, a + 4, 4, 99), ST_E_SHAPE);
    assert_int_equal(w->ops.all_gather(w->comm, &w->q, a, a + 4, INT64_MAX, ST_F64), ST_E_SHAPE);
    assert_int_equal(w->ops.all_gather(w->comm, &w->q, a, a + 2, 4, ST_F32), ST_E_SHAPE);
    assert_int_equal(w->ops.all_gather(w->comm, &w->q, a, NULL, 4, ST_F32), ST_E_SHAPE);
    assert_int_equal(w->ops.all_gather(w->comm, &w->q, NULL, NULL, 0, ST_F32), ST_OK);
    assert_int_equal(w->ops.all_reduce(w->comm, &w->q, a, a, 4, ST_F32, 7), ST_E_SHAPE);
    assert_int_equal(w->ops.broadcast(w->comm, &w->q, a, 4, ST_F32, 1), ST_E_COMM);
    assert_int_equal(w->ops.reduce(w->comm, &w->q, a, a, 4, ST_F32, -1), ST_E_COMM);
    assert_int_equal(w->ops.host_reduce(w->comm, n, 2, ST_SUM), ST_OK);
    assert_true(n[0] == 5 && n[1] == 6);
    assert_int_equal(w->ops.host_reduce(w->comm, n, 2, 9), ST_E_SHAPE);
    assert_int_equal(w->ops.open(NULL, &w->host, &two, NULL, &c, &e), ST_E_COMM);
    assert_null(c);
}

static void exchange_moves_live_rows(void **state)
{
    world *w = *state;
    float from[4][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}}, to[4][2] = {{0}};
    int32_t n_from = 3, n_to = 0;
    st_blocks b = {st_tensor2(from, ST_F32, 4, 2), st_tensor2(&n_from, ST_I32, 1, 1), st_tensor2(to, ST_F32, 4, 2),
                   st_tensor2(&n_to, ST_I32, 1, 1)};

    assert_int_equal(w->ops.exchange(w->comm, &w->q, &b), ST_OK);
    assert_int_equal(n_to, 3);
    assert_memory_equal(from, to, 3 * sizeof from[0]);
    assert_true(to[3][0] == 0);
    n_from = 5;
    assert_int_equal(w->ops.exchange(w->comm, &w->q, &b), ST_E_COMM);
    b.recv.dim[1] = 1;
    assert_int_equal(w->ops.exchange(w->comm, &w->q, &b), ST_E_SHAPE);
}

static void groups_split_and_abort(void **state)
{
    world *w = *state;
    st_comm *c = NULL;
    st_error e = {0};
    float a = 1, b = 0;

    assert_int_equal(w->ops.split(w->comm, -1, 0, &c, &e), ST_OK);
    assert_null(c);
    assert_int_equal(w->ops.split(w->comm, 3, 0, &c, &e), ST_OK);
    assert_non_null(c);
    assert_int_equal(w->ops.group(c, 1), ST_OK);
    assert_int_equal(w->ops.check(c, &e), ST_OK);
    w->ops.abort(c);
    assert_int_equal(w->ops.all_gather(c, &w->q, &a, &b, 1, ST_F32), ST_E_COMM);
    assert_int_equal(w->ops.check(c, &e), ST_E_COMM);
    assert_int_equal(w->ops.check(w->comm, &e), ST_OK);
    w->ops.close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(collectives_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(mistakes_are_found, setup, teardown),
        cmocka_unit_test_setup_teardown(exchange_moves_live_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(groups_split_and_abort, setup, teardown),
    };
    return cmocka_run_group_tests_name("comm self", tests, NULL, NULL);
}
