/* SPDX-License-Identifier: Apache-2.0 */
/* model/test_groups.c - groups of ranks in a model: collectives go through the comm plugin, groups must exist, cuts
 * must divide, plugins must be made for larger groups. A mesh of more ranks is faked: no run has one yet. */
#include "fixture.h"

#define SPEC(keys, more) \
    "[run]\nprecision = f64\n[stack]\nhidden = 16\nvocab = 23\npattern = c-\n" \
    "[layer.c]\nplugin = grouped\n" keys "[layer.-]\nwidth = 8\n[batch]\ntokens = 32\nsequences = 4\n" more
#define COMM "[parallel]\nplugin = scaling\n"

static fixture *built(const char *spec)
{
    st_diags d = {0};
    fixture *f = fixture_build(spec, 0, &d);

    if (!f) {
        st_diags_print(&d, stderr);
        fail_msg("refused");
    }
    return f;
}

/* Each collective reaches its own operation of the comm plugin, over every group. */
static void collectives_go_through_the_comm_plugin(void **state)
{
    static const double factor[] = {0, 2, 3, 5, 7, 11};
    static const int lengths[] = {5, 9, 0};

    for (int group = ST_G_DATA; group < ST_G_COUNT; group++)
        for (int what = ST_ALL_GATHER; what <= ST_ALL_TO_ALL; what++) {
            char spec[1024];
            double x[32 * 16], y[32 * 16];
            st_error e = {0};
            fixture *f;
            snprintf(spec, sizeof spec, SPEC("what = %d\ngroup = %d\n", "%s"), what, group, COMM);
            f = fixture_open(spec, 0);
            st_uniform(1, 2, 0, 32 * 16, x);
            need_ok(st_model_layer_run(f->model, 0, make_row(f, lengths, 0, 5, 0), x, y, NULL, NULL, &e), &e);
            for (int i = 0; i < 32 * 16; i++) assert_true(y[i] == factor[what] * x[i]);
            fixture_close(f);
        }
}

/* Found while planning, before any device is opened. */
static void refused_in_planning(const char *spec, const char *words)
{
    fixture *f = built(spec);
    st_error e = {0};

    assert_int_not_equal(st_model_plan(f->model, &e), ST_OK);
    if (!strstr(e.message, words)) fail_msg("'%s' is not in: %s", words, e.message);
    assert_true(strstr(e.message, "layers.0 (c, grouped)") != NULL);
    fixture_close(f);
}

static void wrong_collectives_are_found_in_planning(void **state)
{
    refused_in_planning(SPEC("what = 6\n", ""), "collective 6 does not exist");
    refused_in_planning(SPEC("group = 0\n", ""), "group none does not exist in this run");
    refused_in_planning(SPEC("group = 7\n", ""), "group unknown does not exist in this run");
    refused_in_planning(SPEC("rows = 31\n", ""),
                        "all_reduce over the 1 ranks of group tokens: send has 512 elements, recv 496");
    refused_in_planning(SPEC("what = 1\nrows = 31\n", ""), "all_gather over the 1 ranks");
    refused_in_planning(SPEC("what = 2\nrows = 31\n", ""), "reduce_scatter over the 1 ranks");
}

/* A group that the mesh does not have is an error, never a group of one rank. */
static void a_missing_group_is_an_error(void **state)
{
    fixture *f = built(SPEC("group = 4\n", COMM));
    st_error e = {0};

    f->model->mesh.expert.size = 0;
    assert_int_equal(st_model_plan(f->model, &e), ST_E_COMM);
    assert_string_equal(e.message, "layers.0 (c, grouped): group expert does not exist in this run");
    fixture_close(f);
}

static void a_mesh_without_ranks_is_not_opened(void **state)
{
    fixture *f = built(SPEC("", ""));
    st_error e = {0};

    need_ok(st_model_plan(f->model, &e), &e);
    f->model->mesh.tensor.size = 2;
    assert_int_equal(st_model_open(f->model, &e), ST_E_UNSUPPORTED);
    assert_string_equal(e.message, "group tensor of 2 ranks: this process runs alone");
    fixture_close(f);
}

static void mesh_refused(st_model *m, const char *words)
{
    st_diags d = {0};

    assert_int_equal(model_check_mesh(m, &d), ST_E_CONFIG);
    assert_int_equal(d.errors, 1);
    assert_string_equal(d.item[0].error.message, words);
}

/* The host is asked last: it has nothing to say where a plugin is not made for it. */
static void plugins_say_for_which_groups_they_are_made(void **state)
{
    fixture *f = built(SPEC("", ""));
    st_model *m = f->model;
    st_plugin able = *m->symbols['-']->plugin, head = *m->heads[0].plugin;
    st_diags d = {0};

    assert_int_equal(model_check_mesh(m, &d), ST_OK);
    m->mesh.tensor.size = 2; /* grouped and self say so */
    mesh_refused(m, "[parallel] tensor = 2: ST_CAP_TENSOR lacked by swiglu of [layer.-], lm of [head.lm]");
    m->mesh = st_mesh_single();
    m->mesh.context.size = 4; /* swiglu says so */
    mesh_refused(m, "[parallel] context = 4: ST_CAP_CONTEXT lacked by grouped of [layer.c], lm of [head.lm]");
    m->mesh = st_mesh_single();
    m->mesh.expert.size = 2; /* nobody has experts */
    mesh_refused(m, "[parallel] expert = 2: the host does not cut weights over group expert");
    m->mesh = st_mesh_single();
    m->mesh.tensor.size = 2;
    able.caps |= ST_CAP_TENSOR;
    head.caps |= ST_CAP_TENSOR;
    m->symbols['-']->plugin = &able;
    m->heads[0].plugin = &head;
    mesh_refused(m, "[parallel] tensor = 2: the host cuts neither weights nor the residual stream over group tensor");
    fixture_close(f);
}

/* ---- what planning counts ---- */

/* Of a collective over n elements of f64 on four ranks, by the parts that a ring sends. */
static void traffic_is_counted_as_a_ring_sends_it(void **state)
{
    static const struct {
        int what;
        int64_t send, recv;
        double bytes;
        const char *call;
    } all[] = {{ST_ALL_GATHER, 12, 48, 3 * 12 * 8, "all_gather"},
               {ST_REDUCE_SCATTER, 48, 12, 3 * 12 * 8, "reduce_scatter"},
               {ST_ALL_REDUCE, 48, 48, 2 * 3 * 12 * 8, "all_reduce"},
               {ST_ALL_REDUCE_MAX, 48, 48, 2 * 3 * 12 * 8, "all_reduce_max"},
               {ST_ALL_TO_ALL, 48, 48, 3 * 12 * 8, "all_to_all"}};

    for (size_t i = 0; i < ST_COUNT(all); i++) {
        fixture *f = built(SPEC("", ""));
        st_model *m = f->model;
        st_tensor send = st_tensor2((void *)4096, ST_F64, all[i].send, 1),
                  recv = st_tensor2((void *)8192, ST_F64, all[i].recv, 1);
        st_traffic t;

        m->mesh.tensor.size = 4;
        model_start(m);
        m->run.planning = PLAN_PEAKS;
        model_queues(m);
        assert_int_equal(st_collective(&m->run.s, (uint32_t)all[i].what, ST_G_TENSOR, &send, &recv), ST_OK);
        assert_false(st_model_traffic(m, 0, &t)); /* it was not to be counted */
        for (int k = 0; k < 2; k++) {
            m->traffic_now = m->traffic[k];
            assert_int_equal(st_collective(&m->run.s, (uint32_t)all[i].what, ST_G_TENSOR, &send, &recv), ST_OK);
            assert_int_equal(st_collective(&m->run.s, (uint32_t)ST_ALL_REDUCE, ST_G_MEDIA, &send, &send), ST_OK);
        }
        assert_true(st_model_traffic(m, 0, &t)); /* of the row, of which there is one, and of the step's end */
        assert_string_equal(t.group, "tensor");
        assert_string_equal(t.call, all[i].call);
        assert_int_equal(t.ranks, 4);
        assert_true(t.calls == 2 && t.bytes == 2 * all[i].bytes);
        assert_false(st_model_traffic(m, 1, &t)); /* one rank sends nothing */
        fixture_close(f);
    }
}

static void an_exchange_counts_whole_blocks(void **state)
{
    fixture *f = built(SPEC("", ""));
    st_model *m = f->model;
    st_blocks b = {.send = st_tensor2((void *)4096, ST_F32, 4 * 10, 7), .recv = st_tensor2((void *)8192, ST_F32, 40, 7)};
    st_traffic t;

    m->mesh.expert.size = 4;
    model_start(m);
    m->run.planning = PLAN_PEAKS;
    model_queues(m);
    m->traffic_now = m->traffic[0];
    assert_int_equal(st_exchange(&m->run.s, ST_G_EXPERT, &b), ST_OK);
    assert_true(st_model_traffic(m, 0, &t));
    assert_string_equal(t.call, "exchange");
    assert_true(t.calls == 1 && t.bytes == 3 * 10 * 7 * 4);
    fixture_close(f);
}

static void declared(const st_section *sections, int32_t n_sec, int64_t rows, int64_t cols, int32_t tensor,
                     int32_t expert, const char *words)
{
    fixture *f = built(SPEC("", ""));
    st_weight w = {.size = sizeof w, .name = "new", .nd = 2, .dim = {rows, cols}, .unit = {4}, .cut = {ST_G_TENSOR,
                   ST_G_EXPERT}, .n_sec = n_sec, .sec = sections, .init = ST_INIT_NORMAL};
    st_error e = {0};
    st_wid id;

    f->model->mesh.tensor.size = tensor;
    f->model->mesh.expert.size = expert;
    id = model_declare(f->model, f->model->trunk->layers[0], &w, &e);
    if (words) {
        assert_int_equal(id, -1);
        assert_string_equal(e.message, words);
    } else if (id < 0) fail_msg("%s", e.message);
    fixture_close(f);
}

static void cuts_must_divide(void **state)
{
    const st_section pair[] = {{"q", 12, 4, 1, 0}, {"z", 5, 0, 0, 0}, {"k", 4, 4, 1, 0}}, odd[] = {{"q", 10, 4, 1, 0}};

    declared(NULL, 0, 12, 6, 3, 2, NULL);
    declared(NULL, 0, 12, 6, 6, 12, NULL); /* two neighbours hold the same unit */
    declared(NULL, 0, 12, 6, 2, 2,
             "weight layers.0.new, dimension 0: 3 units of 4 do not divide over the 2 ranks of group tensor");
    declared(NULL, 0, 12, 6, 3, 4,
             "weight layers.0.new, dimension 1: 6 units of 1 do not divide over the 4 ranks of group expert");
    declared(NULL, 0, 10, 6, 1, 1, "weight layers.0.new, dimension 0: 10 is no multiple of its unit 4");
    declared(pair, 3, 21, 6, 3, 1, NULL); /* a section that is not cut is not asked */
    declared(pair, 3, 21, 6, 2, 1,
             "weight layers.0.new, section q: 3 units of 4 do not divide over the 2 ranks of group tensor");
    declared(odd, 1, 10, 6, 1, 1, "weight layers.0.new, section q: 10 is no multiple of its unit 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_go_through_the_comm_plugin),
        cmocka_unit_test(wrong_collectives_are_found_in_planning),
        cmocka_unit_test(a_missing_group_is_an_error),
        cmocka_unit_test(a_mesh_without_ranks_is_not_opened),
        cmocka_unit_test(plugins_say_for_which_groups_they_are_made),
        cmocka_unit_test(traffic_is_counted_as_a_ring_sends_it),
        cmocka_unit_test(an_exchange_counts_whole_blocks),
        cmocka_unit_test(cuts_must_divide),
    };
    return cmocka_run_group_tests_name("groups", tests, NULL, NULL);
}
