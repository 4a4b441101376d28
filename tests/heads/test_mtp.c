/* SPDX-License-Identifier: Apache-2.0 */
/* heads/test_mtp.c - gradients of the head mtp against differences, rows packed and alone, recompute, threads, options,
 * all in f64 with memory full of NaN. */
#include "depths.h"
#include <math.h>

static const int packed[] = {17, 12, 20, 9, 0}, first[] = {17, 12, 0}, second[] = {20, 9, 0}, ones[] = {1, 1, 1, 0},
                 alone[4][2] = {{17, 0}, {12, 0}, {20, 0}, {9, 0}};

/* ---- gradients ---- */

#define LIMIT 1e-7 /* what differences through three stacks reach; a wrong term is off by 1e-3 and more */

static void differences(const char *spec, int images, int each)
{
    fixture *f = fixture_open(spec, 1);
    st_packed_row *rows[2] = {make_row(f, first, 0, 5, images), make_row(f, second, 2, 5, images)};
    const char *where = "";
    double worst;

    f->objective = weighed_losses;
    worst = check_differences(f, rows, 2, each, &where);
    print_message("# worst gradient against differences: %.1e at %s\n", worst, where);
    assert_true(worst < LIMIT);
    fixture_close(f);
}

static void gradients_equal_differences(void **state) { differences(TEXT_DEPTHS HEAVY, 0, 3); }

static void with_images_too(void **state) { differences(IMAGE_DEPTHS HEAVY, 1, 2); }

static void with_a_tied_embedding(void **state)
{
    differences(DEPTH_MODEL(TWO_DEPTHS, "", "tie_embeddings = yes\n") ROPE TEXT_BATCH HEAVY, 0, 3);
}

static void with_every_kind_of_norm(void **state)
{
    differences(DEPTH_MODEL("G-*-/*-", "", "norm = layer\n") ROPE TEXT_BATCH HEAVY, 0, 2);
    differences(DEPTH_MODEL("G-*-/*-", "", "norm = rms\n") ROPE TEXT_BATCH HEAVY, 0, 2);
}

static void with_the_trunk_frozen(void **state)
{
    differences(TEXT_DEPTHS HEAVY "[part.language]\nlast_blocks = 0\n", 0, 3);
}

static void with_one_set_of_weights_for_all_depths(void **state)
{
    differences(DEPTH_MODEL("G-*-/*-/*-/*-", "", "") ROPE TEXT_BATCH "[head.mtp]\nrepeated = yes\nloss_weight = 0.7\n",
                0, 3);
}

static void with_a_dozen_depths(void **state)
{
    differences(DEPTH_MODEL("G-*-/-/*/-/-/-/-/-/-/-/-/-/-", "", "") ROPE TEXT_BATCH HEAVY, 0, 1);
}

/* ---- rows ---- */

/* The same sequences in two rows: counts of the depths differ from row to row and from depth to depth. */
static void two_rows_equal_one(void **state)
{
    fixture *f = fixture_open(IMAGE_DEPTHS HEAVY, 1);
    st_packed_row *both[1] = {make_row(f, packed, 0, 5, 1)},
                  *two[2] = {make_row(f, first, 0, 5, 1), make_row(f, second, 2, 5, 1)};
    int64_t n;
    st_step_result a = step_gradients(f, both, 1), b;
    double loss[2] = {metric_of(&a, "mtp.1.loss"), metric_of(&a, "mtp.2.loss")}, *ga = all_gradients(f, &n), *gb, worst;

    assert_true(two[0]->trained_count[1] != two[1]->trained_count[1]);
    assert_true(two[0]->trained_count[1] != two[0]->trained_count[2]);
    b = step_gradients(f, two, 2);
    gb = all_gradients(f, &n);
    worst = max_difference(gb, ga, n);
    print_message("# two rows against one: %.1e\n", worst);
    assert_true(worst < 1e-12 && fabs(metric_of(&b, "mtp.1.loss") - loss[0]) < 1e-12);
    assert_true(fabs(metric_of(&b, "mtp.2.loss") - loss[1]) < 1e-12);
    fixture_close(f);
}

/* Depths by themselves (weight of the trunk's loss 0): sums over segments alone, each by its share of the depth's
 * count, are the packed row's; so nothing looks across a border. */
static void packed_row_equals_segments_alone(void **state)
{
    fixture *f = fixture_open(DEPTH_MODEL("G-*-/G*-", "", "") MROPE IMAGE_PARTS IMAGE_BATCH
                              "[head.lm]\nweight = 0\n[head.mtp]\nloss_weight = 1\n",
                              1);
    st_packed_row *row = make_row(f, packed, 0, 5, 1);
    int64_t n;
    double *want, *sum, worst;

    step_gradients(f, &row, 1);
    want = all_gradients(f, &n);
    sum = ST_NEW_N(f->arena, double, n);
    for (int i = 0; i < 4; i++) {
        st_packed_row *single = make_row(f, alone[i], i, 5, 1);
        double share = (double)single->trained_count[1] / (double)row->trained_count[1], *g;
        step_gradients(f, &single, 1);
        g = all_gradients(f, &n);
        for (int64_t k = 0; k < n; k++) sum[k] += share * g[k];
    }
    worst = max_difference(sum, want, n);
    print_message("# packed against alone: %.1e\n", worst);
    assert_true(worst < 1e-12);
    fixture_close(f);
}

static double largest(const double *v, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(v[i]) <= most)) most = fabs(v[i]);
    return most;
}

/* Segments of one token have no label anywhere, of two none at a depth: they weigh 0 and nothing is NaN. */
static void short_segments_weigh_nothing(void **state)
{
    static const int shorts[] = {1, 2, 1, 3, 2, 0};
    fixture *f = fixture_open(TEXT_DEPTHS HEAVY, 1);
    st_packed_row *row = make_row(f, ones, 0, 5, 0), *mixed = make_row(f, shorts, 0, 11, 0);
    st_step_result r = step_gradients(f, &row, 1);
    int64_t n;
    double *g = all_gradients(f, &n);

    assert_true(r.loss == 0 && r.trained == 0 && r.grad_norm == 0 && largest(g, n) == 0);
    assert_true(isnan(metric_of(&r, "mtp.1.loss")) && isnan(metric_of(&r, "loss")));
    r = step_gradients(f, &mixed, 1);
    g = all_gradients(f, &n);
    assert_true(mixed->trained_count[0] > 0 && mixed->trained_count[2] == 0);
    assert_true(isfinite(largest(g, n)) && largest(g, n) > 0 && isfinite(r.grad_norm));
    assert_true(isnan(metric_of(&r, "mtp.2.loss")));
    assert_true(largest(weight_values(f, "head.mtp.2.fc", ST_READ_GRAD), 512) == 0);
    fixture_close(f);
}

/* ---- the same bits ---- */

static void same_bits(const char *const *spec, int n_specs, int images)
{
    double *want = NULL, *g, loss[2] = {0};
    fixture *ref = NULL;
    int64_t n;

    for (int i = 0; i < n_specs; i++) {
        fixture *f = fixture_open(spec[i], 1);
        st_packed_row *rows[2] = {make_row(f, first, 0, 5, images), make_row(f, second, 2, 5, images)};
        st_step_result r = step_gradients(f, rows, 2);
        double now[2] = {metric_of(&r, "mtp.1.loss"), metric_of(&r, "mtp.2.loss")};
        g = all_gradients(f, &n);
        assert_int_equal(f->model->keep.high, f->model->peak_keep);
        assert_int_equal(f->model->scratch.high, f->model->peak_scratch);
        if (!ref) {
            ref = f;
            want = g;
            memcpy(loss, now, sizeof loss);
            continue;
        }
        assert_memory_equal(loss, now, sizeof loss);
        if (memcmp(g, want, (size_t)n * sizeof *g)) fail_msg("spec %d gives other bits", i);
        fixture_close(f);
    }
    fixture_close(ref);
}

static void recompute_gives_the_same_bits(void **state)
{
    static const char *const specs[] = {IMAGE_DEPTHS HEAVY, IMAGE_DEPTHS HEAVY "[recompute]\nfull = all\n",
                                        IMAGE_DEPTHS HEAVY "[recompute]\nfull = G\ndrop = *.qk,*.gated,-.product\n",
                                        IMAGE_DEPTHS HEAVY "[recompute]\ndrop = G.conv,G.states,G.norm_out\n"};
    same_bits(specs, 4, 1);
}

static void threads_give_the_same_bits(void **state)
{
    static const char *const specs[] = {DEPTH_MODEL(TWO_DEPTHS, "threads = 1\n", "") MROPE IMAGE_PARTS IMAGE_BATCH,
                                        DEPTH_MODEL(TWO_DEPTHS, "threads = 2\n", "") MROPE IMAGE_PARTS IMAGE_BATCH};
    same_bits(specs, 2, 1);
}

static void layers_of_depths_give_memory_back(void **state)
{
    fixture *f = fixture_open(TEXT_DEPTHS, 1), *g = fixture_open(TEXT_DEPTHS "[recompute]\nfull = all\n", 1);
    assert_true(g->model->peak_keep < f->model->peak_keep);
    fixture_close(f);
    fixture_close(g);
}

/* ---- options ---- */

static bool equal(fixture *f, fixture *g, const char *path)
{
    size_t bytes = (size_t)f->model->weights[weight_index(f, path)]->pub.count * sizeof(double);
    return !memcmp(weight_values(f, path, ST_READ_GRAD), weight_values(g, path, ST_READ_GRAD), bytes);
}

/* The trunk learns what it would without the head, and the head what it would otherwise. */
static void detach_leaves_the_trunk_alone(void **state)
{
    fixture *f = fixture_open(IMAGE_DEPTHS "[head.mtp]\ndetach = yes\n", 1), *joined = fixture_open(IMAGE_DEPTHS, 1),
            *without = fixture_open(DEPTH_MODEL("G-*-", "", "") MROPE IMAGE_PARTS IMAGE_BATCH, 1);
    fixture *all[] = {f, joined, without};

    for (int i = 0; i < 3; i++) {
        st_packed_row *row = make_row(all[i], packed, 0, 5, 1);
        step_gradients(all[i], &row, 1);
    }
    for (int32_t i = 0; i < without->model->n_weights; i++) {
        const char *path = without->model->weights[i]->pub.path;
        if (!without->model->weights[i]->trains) continue;
        if (equal(f, without, path) != (strcmp(path, "lm_head") != 0)) fail_msg("detached: gradient of %s", path);
        if (equal(joined, without, path)) fail_msg("joined: gradient of %s is that of a model without the head", path);
    }
    for (int32_t i = 0; i < f->model->n_weights; i++) {
        const char *path = f->model->weights[i]->pub.path;
        if (!strncmp(path, "head.", 5) && !equal(f, joined, path)) fail_msg("gradient of %s", path);
    }
    for (int i = 0; i < 3; i++) fixture_close(all[i]);
}

static void the_weight_of_a_loss_scales_its_gradient(void **state)
{
    fixture *f = fixture_open(TEXT_DEPTHS "[head.mtp]\nloss_weight = 0\n[head.lm]\nweight = 2\n", 1),
            *without = fixture_open(DEPTH_MODEL("G-*-", "", "") ROPE TEXT_BATCH, 1);
    st_packed_row *row = make_row(f, packed, 0, 5, 0), *row2 = make_row(without, packed, 0, 5, 0);
    st_step_result a = step_gradients(f, &row, 1), b = step_gradients(without, &row2, 1);
    double *x = weight_values(f, "layers.0.in", ST_READ_GRAD), *y = weight_values(without, "layers.0.in", ST_READ_GRAD);
    int64_t n = f->model->weights[weight_index(f, "layers.0.in")]->pub.count;

    assert_true(a.loss == b.loss && metric_of(&a, "mtp.2.loss") > 0);
    for (int64_t i = 0; i < n; i++) y[i] *= 2;
    assert_true(max_difference(x, y, n) < 1e-13);
    assert_true(largest(weight_values(f, "head.mtp.1.fc", ST_READ_GRAD), 512) == 0);
    fixture_close(f);
    fixture_close(without);
}

static void steps_lower_all_losses(void **state)
{
    fixture *f = fixture_open(IMAGE_DEPTHS "[head.mtp]\nloss_weight = 1\n", 1);
    st_packed_row *rows[2] = {make_row(f, first, 0, 5, 1), make_row(f, second, 2, 5, 1)};
    double before[3] = {0}, after[3];
    st_step_result r;
    st_error e = {0};

    for (int i = 1; i <= 60; i++) {
        st_schedule at = {sizeof at, 0, i, 1e-2, 0, 0};
        need_ok(st_model_step(f->model, (const st_packed_row *const *)rows, 2, &at, 1.0, &r, &e), &e);
        assert_int_equal(r.skipped, 0);
        after[0] = r.loss;
        after[1] = metric_of(&r, "mtp.1.loss");
        after[2] = metric_of(&r, "mtp.2.loss");
        if (i == 1) memcpy(before, after, sizeof before);
    }
    for (int k = 0; k < 3; k++) {
        print_message("# depth %d: loss %.3f -> %.3f\n", k, before[k], after[k]);
        assert_true(after[k] < 0.5 * before[k]);
    }
    fixture_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(with_images_too),
        cmocka_unit_test(with_a_tied_embedding),
        cmocka_unit_test(with_every_kind_of_norm),
        cmocka_unit_test(with_the_trunk_frozen),
        cmocka_unit_test(with_one_set_of_weights_for_all_depths),
        cmocka_unit_test(with_a_dozen_depths),
        cmocka_unit_test(two_rows_equal_one),
        cmocka_unit_test(packed_row_equals_segments_alone),
        cmocka_unit_test(short_segments_weigh_nothing),
        cmocka_unit_test(recompute_gives_the_same_bits),
        cmocka_unit_test(threads_give_the_same_bits),
        cmocka_unit_test(layers_of_depths_give_memory_back),
        cmocka_unit_test(detach_leaves_the_trunk_alone),
        cmocka_unit_test(the_weight_of_a_loss_scales_its_gradient),
        cmocka_unit_test(steps_lower_all_losses),
    };
    return cmocka_run_group_tests_name("mtp", tests, NULL, NULL);
}
