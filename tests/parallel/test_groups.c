/* SPDX-License-Identifier: Apache-2.0 */
/* parallel/test_groups.c - groups of a mesh over a transport that counts what is opened and closed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "parallel/groups.h"

typedef struct transport {
    int opened, closed, splits, refuse_open, refuse_split; /* refuse_split: the number of the split that fails */
    int bad, ranks;
} transport;
struct st_comm { transport *of; };

static st_comm *comm(transport *t)
{
    st_comm *c = calloc(1, sizeof *c);
    c->of = t;
    t->opened++;
    return c;
}
static int open_world(void *self, const st_host *host, const st_bootstrap *boot, st_device *d, st_comm **out,
                      st_error *e)
{
    transport *t = self;
    char all[4];

    t->ranks = boot->ranks;
    assert_int_equal(boot->rank, 0);
    assert_int_equal(boot->all_gather(boot->ctx, "abc", all, 4), ST_OK);
    assert_string_equal(all, "abc");
    if (t->refuse_open) return st_fail(e, ST_E_COMM, "no cable");
    *out = comm(t);
    return ST_OK;
}
static int split(st_comm *c, int32_t colour, int32_t key, st_comm **out, st_error *e)
{
    if (++c->of->splits == c->of->refuse_split) return ST_E_COMM;
    *out = comm(c->of);
    return ST_OK;
}
static void close_comm(st_comm *c)
{
    c->of->closed++;
    free(c);
}
static int check(st_comm *c, st_error *e) { return c->of->bad ? st_fail(e, ST_E_COMM, "the peer is gone") : ST_OK; }

static const st_comm_ops ops = {
    .size = sizeof ops, .open = open_world, .split = split, .close = close_comm, .check = check};

static int open_groups(transport *t, const st_mesh *mesh, st_groups **g, st_error *e)
{
    memset(e, 0, sizeof *e);
    return st_groups_open(NULL, &ops, t, mesh, NULL, g, e);
}

static void every_group_of_one_rank_is_made(void **state)
{
    const st_mesh mesh = st_mesh_single();
    transport t = {0};
    st_groups *g;
    st_error e;

    assert_int_equal(open_groups(&t, &mesh, &g, &e), ST_OK);
    assert_int_equal(t.ranks, 1);
    assert_int_equal(t.opened, 1 + ST_G_COUNT - ST_G_DATA);
    for (uint32_t i = ST_G_DATA; i < ST_G_COUNT; i++) {
        assert_int_equal(st_mesh_size(&mesh, i), 1);
        assert_non_null(st_groups_get(g, i, &e));
        for (uint32_t k = ST_G_DATA; k < i; k++) assert_ptr_not_equal(st_groups_get(g, i, &e), st_groups_get(g, k, &e));
    }
    st_groups_close(g);
    assert_int_equal(t.closed, t.opened);
    st_groups_close(NULL);
}

static void a_group_that_was_not_made_is_an_error(void **state)
{
    st_mesh mesh = st_mesh_single();
    const uint32_t none[] = {ST_G_NONE, ST_G_EXPERT, ST_G_COUNT, 99};
    const char *const names[] = {"none", "expert", "unknown", "unknown"};
    transport t = {0};
    st_groups *g;
    st_error e;

    mesh.expert.size = 0;
    assert_int_equal(open_groups(&t, &mesh, &g, &e), ST_OK);
    for (int i = 0; i < 4; i++) {
        char words[80];
        memset(&e, 0, sizeof e);
        assert_null(st_groups_get(g, none[i], &e));
        snprintf(words, sizeof words, "group %s does not exist in this run", names[i]);
        assert_int_equal(e.code, ST_E_COMM);
        assert_string_equal(e.message, words);
        assert_int_equal(st_mesh_size(&mesh, none[i]), 0);
    }
    assert_non_null(st_groups_get(g, ST_G_TENSOR, &e));
    memset(&e, 0, sizeof e);
    assert_null(st_groups_get(NULL, ST_G_TENSOR, &e));
    st_groups_close(g);
    assert_int_equal(t.closed, t.opened);
}

static void more_ranks_than_this_process_are_refused(void **state)
{
    st_mesh mesh = st_mesh_single();
    transport t = {0};
    st_groups *g;
    st_error e;

    mesh.context.size = 2;
    mesh.data.size = 3;
    assert_int_equal(st_mesh_size(&mesh, ST_G_TOKENS), 6);
    assert_int_equal(open_groups(&t, &mesh, &g, &e), ST_E_UNSUPPORTED);
    assert_string_equal(e.message, "group data of 3 ranks: this process runs alone");
    assert_null(g);
    assert_int_equal(t.closed, t.opened);
}

static void a_transport_that_fails_leaves_nothing_open(void **state)
{
    const st_mesh mesh = st_mesh_single();
    transport t = {.refuse_open = 1}, s = {.refuse_split = 3};
    st_groups *g;
    st_error e;

    assert_int_equal(open_groups(&t, &mesh, &g, &e), ST_E_COMM);
    assert_string_equal(e.message, "no cable");
    assert_null(g);
    assert_int_equal(open_groups(&s, &mesh, &g, &e), ST_E_COMM);
    assert_string_equal(e.message, "group tensor was not made");
    assert_null(g);
    assert_int_equal(s.opened, 3);
    assert_int_equal(s.closed, 3);
}

static void errors_of_the_transport_are_passed_on(void **state)
{
    const st_mesh mesh = st_mesh_single();
    transport t = {0};
    st_groups *g;
    st_error e;

    assert_int_equal(open_groups(&t, &mesh, &g, &e), ST_OK);
    assert_int_equal(st_groups_check(g, &e), ST_OK);
    t.bad = 1;
    assert_int_equal(st_groups_check(g, &e), ST_E_COMM);
    assert_string_equal(e.message, "the peer is gone");
    st_groups_close(g);
}

static void capabilities_are_read_for_larger_groups(void **state)
{
    const st_plugin all = {.name = "all", .caps = ST_CAP_TENSOR | ST_CAP_CONTEXT | ST_CAP_EXPERT};
    const st_plugin none = {.name = "none"};
    st_mesh mesh = st_mesh_single();
    st_axis *const axes[ST_G_COUNT] = {
        [ST_G_CONTEXT] = &mesh.context, [ST_G_TENSOR] = &mesh.tensor, [ST_G_EXPERT] = &mesh.expert};
    const char *const words[ST_G_COUNT] = {
        [ST_G_CONTEXT] = "ST_CAP_CONTEXT", [ST_G_TENSOR] = "ST_CAP_TENSOR", [ST_G_EXPERT] = "ST_CAP_EXPERT"};

    for (uint32_t g = 0; g <= ST_G_COUNT; g++) assert_null(st_mesh_lacks(&mesh, g, &none));
    mesh.data.size = 8; /* whole rows: nobody has to know */
    assert_null(st_mesh_lacks(&mesh, ST_G_DATA, &none));
    assert_null(st_mesh_lacks(&mesh, ST_G_TOKENS, &none));
    for (uint32_t g = 0; g < ST_G_COUNT; g++) {
        if (!axes[g]) continue;
        axes[g]->size = 2;
        assert_null(st_mesh_lacks(&mesh, g, &all));
        for (uint32_t k = 0; k < ST_G_COUNT; k++) {
            const char *lacks = st_mesh_lacks(&mesh, k, &none);
            if (k == g) assert_string_equal(lacks, words[g]);
            else assert_null(lacks);
        }
        axes[g]->size = 1;
    }
}

static void cut(int64_t ranks, int64_t context, int64_t tensor, int64_t expert, int32_t data, const char *words)
{
    st_mesh m;
    st_error e = {0};
    int rc = st_mesh_cut(ranks, context, tensor, expert, &m, &e);

    assert_int_equal(rc, words ? ST_E_CONFIG : ST_OK);
    assert_string_equal(e.message, words ? words : "");
    assert_int_equal(m.data.size, data);
    assert_int_equal(m.context.size, words ? 1 : context);
    assert_int_equal(m.tensor.size, words ? 1 : tensor);
    assert_int_equal(m.expert.size, words ? 1 : expert);
    assert_int_equal(m.media.size, words ? 1 : context * tensor);
    assert_int_equal(st_mesh_size(&m, ST_G_TOKENS), words ? 1 : data * context);
}

static void data_is_what_the_other_axes_leave(void **state)
{
    cut(1, 1, 1, 1, 1, NULL);
    cut(64, 1, 1, 1, 64, NULL);
    cut(64, 2, 4, 16, 8, NULL);
    cut(8, 2, 4, 8, 1, NULL);
    cut(64, 3, 2, 1, 1, "[parallel] context = 3 x tensor = 2 do not divide 64 ranks");
    cut(1, 1, 2, 1, 1, "[parallel] context = 1 x tensor = 2 do not divide 1 rank");
    cut(64, 1, 1, 3, 1, "[parallel] expert = 3 does not divide 64 ranks");
    cut(4, 1, 1, 8, 1, "[parallel] expert = 8 does not divide 4 ranks");
    cut(0, 1, 1, 1, 1, "0 ranks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_group_of_one_rank_is_made),
        cmocka_unit_test(a_group_that_was_not_made_is_an_error),
        cmocka_unit_test(more_ranks_than_this_process_are_refused),
        cmocka_unit_test(a_transport_that_fails_leaves_nothing_open),
        cmocka_unit_test(errors_of_the_transport_are_passed_on),
        cmocka_unit_test(capabilities_are_read_for_larger_groups),
        cmocka_unit_test(data_is_what_the_other_axes_leave),
    };
    return cmocka_run_group_tests_name("groups of ranks", tests, NULL, NULL);
}
