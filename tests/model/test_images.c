/* SPDX-License-Identifier: Apache-2.0 */
/* model/test_images.c - an encoder in front: gradients through it, packing, rows without pictures, freezing it. */
#include "fixture.h"
#include <math.h>

#define SPEC TEXT_MODEL_WITH("", "") MROPE IMAGE_PARTS IMAGE_BATCH
#define SPEC_WITH(pattern, attention) \
    TEXT_MODEL_WITH("", "") MROPE IMAGE_PARTS_WITH(pattern, "", attention) IMAGE_BATCH
static const int packed[] = {17, 12, 20, 9, 0}, no_picture[] = {17, 0},
                 alone[4][2] = {{17, 0}, {12, 0}, {20, 0}, {9, 0}};

static st_step_result gradients(fixture *f, st_packed_row *row)
{
    st_step_result r;
    st_error e = {0};
    need_ok(st_model_gradients(f->model, (const st_packed_row *const *)&row, 1, &r, &e), &e);
    assert_int_equal(r.skipped, 0);
    return r;
}

static void gradients_equal_differences(void **state)
{
    fixture *f = fixture_open(SPEC, 1);
    st_packed_row *rows[2] = {make_row(f, packed, 0, 5, 1), make_row(f, no_picture, 0, 5, 1)};
    const char *where = "";
    double worst = check_differences(f, rows, 2, 3, &where);

    print_message("# worst gradient against differences: %.1e at %s\n", worst, where);
    assert_true(worst < 1e-8);
    fixture_close(f);
}

static void packed_row_equals_segments_alone(void **state)
{
    fixture *f = fixture_open(SPEC, 1);
    st_packed_row *row = make_row(f, packed, 0, 5, 1);
    double loss = gradients(f, row).loss, alone_loss = 0, worst, *want, *sum;
    int64_t n;

    want = all_gradients(f, &n);
    sum = ST_NEW_N(f->arena, double, n);
    for (int i = 0; i < 4; i++) {
        st_packed_row *single = make_row(f, alone[i], i, 5, 1);
        double share = (double)single->trained_count[0] / (double)row->trained_count[0], *g;
        if (!single->trained_count[0]) continue;
        alone_loss += share * gradients(f, single).loss;
        g = all_gradients(f, &n);
        for (int64_t k = 0; k < n; k++) sum[k] += share * g[k];
    }
    worst = max_difference(sum, want, n);
    print_message("# packed against alone: loss %.1e, gradients %.1e\n", fabs(loss - alone_loss), worst);
    assert_true(fabs(loss - alone_loss) < 1e-12 && worst < 1e-12);
    fixture_close(f);
}

static void recompute_gives_the_same_bits(void **state)
{
    static const char *const recompute[] = {"", "[recompute]\nfull = all\n",
                                            "[recompute]\nfull = V\ndrop = F.after encoder.patches,encoder.cos\n"};
    double *g[3], loss[3];
    fixture *f[3];
    char text[4096];
    int64_t n;

    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "%s%s", SPEC, recompute[i]);
        f[i] = fixture_open(text, 1);
        loss[i] = gradients(f[i], make_row(f[i], packed, 0, 5, 1)).loss;
        g[i] = all_gradients(f[i], &n);
        assert_true(loss[i] == loss[0]);
        assert_memory_equal(g[i], g[0], (size_t)n * sizeof(double));
        assert_int_equal(f[i]->model->keep.high, f[i]->model->peak_keep);
        assert_int_equal(f[i]->model->scratch.high, f[i]->model->peak_scratch);
    }
    assert_true(f[1]->model->peak_keep < f[0]->model->peak_keep);
    for (int i = 0; i < 3; i++) fixture_close(f[i]);
}

/* Gradients of the weights that both train are the same bits; how much backward is skipped shows in FLOPs. */
static void compare_frozen(fixture *full, fixture *part, st_packed_row *(*row)(fixture *))
{
    st_error e = {0};

    gradients(full, row(full));
    gradients(part, row(part));
    for (int32_t i = 0; i < part->model->n_weights; i++) {
        const model_weight *w = part->model->weights[i];
        double *a = ST_NEW_N(full->arena, double, w->pub.count), *b = ST_NEW_N(full->arena, double, w->pub.count);
        if (!w->trains) continue;
        need_ok(st_model_read(full->model, i, ST_READ_GRAD, a, &e), &e);
        need_ok(st_model_read(part->model, i, ST_READ_GRAD, b, &e), &e);
        if (memcmp(a, b, (size_t)w->pub.count * sizeof *a)) fail_msg("gradient of %s differs", w->pub.path);
    }
    assert_true(st_model_flops(part->model) < st_model_flops(full->model));
}

static st_packed_row *picture_row(fixture *f) { return make_row(f, packed, 0, 5, 1); }

static void frozen_parts_are_left_alone(void **state)
{
    fixture *full = fixture_open(SPEC, 1), *vision = fixture_open(SPEC "[part.vision]\nfreeze = yes\n", 1);
    fixture *both = fixture_open(SPEC "[part.vision]\nfreeze = yes\n[part.merger]\nfreeze = yes\n", 1);
    fixture *last = fixture_open(SPEC "[part.vision]\nlast_blocks = 1\n", 1);

    compare_frozen(full, vision, picture_row);
    compare_frozen(full, both, picture_row);
    compare_frozen(full, last, picture_row);
    assert_int_equal(vision->model->encoder_trained, 1);
    assert_int_equal(vision->model->stacks[1]->first, 4); /* nothing of the blocks runs backward */
    assert_int_equal(last->model->stacks[1]->first, 2);
    assert_int_equal(both->model->encoder_trained, 0);
    assert_true(st_model_flops(both->model) < st_model_flops(vision->model));
    assert_true(both->model->peak_keep < vision->model->peak_keep);
    assert_int_equal(st_model_parameters(both->model, "vision"), 0);
    assert_true(st_model_parameters(full->model, "vision") > 0 && st_model_parameters(full->model, "merger") > 0);
    fixture_close(full);
    fixture_close(vision);
    fixture_close(both);
    fixture_close(last);
}

/* What is trained alone still gets its gradient: the encoder below a frozen language model, the merger below all of
 * it. */
static void the_encoder_trains_below_a_frozen_language(void **state)
{
    fixture *full = fixture_open(SPEC, 1), *f = fixture_open(SPEC "[part.language]\nfreeze = yes\n", 1);

    compare_frozen(full, f, picture_row);
    assert_int_equal(f->model->trunk->first, 0);
    fixture_close(full);
    fixture_close(f);
}

typedef struct seen {
    int features, embed, residual, final, slots;
} seen;
static void look(void *ctx, const char *name, int32_t layer, const double *values, int64_t rows, int64_t cols)
{
    seen *s = ctx;
    s->features += !strcmp(name, "features") && rows == 16 && cols == 16;
    s->embed += !strcmp(name, "embed") && rows == 96;
    s->residual += !strcmp(name, "residual") && layer >= 0 && layer < 4;
    s->final += !strcmp(name, "final");
    s->slots += !strncmp(name, "slot.", 5);
}

static void the_probe_sees_each_tensor(void **state)
{
    fixture *f = fixture_open(SPEC, 1);
    seen s = {0};

    st_model_probe(f->model, look, &s);
    gradients(f, make_row(f, packed, 0, 5, 1));
    assert_int_equal(s.features, 1);
    assert_int_equal(s.embed, 1);
    assert_int_equal(s.residual, 4);
    assert_int_equal(s.final, 1);
    assert_true(s.slots > 10);
    fixture_close(f);
}

/* Columns of "slot.cos": half of the head size that the blocks' layers ask for. */
static void look_cos(void *ctx, const char *name, int32_t layer, const double *values, int64_t rows, int64_t cols)
{
    if (!strcmp(name, "slot.cos") && layer == -1) *(int64_t *)ctx = cols;
}

static void rotary_tables_are_as_wide_as_the_heads_of_the_blocks(void **state)
{
    static const char *const spec[] = {SPEC_WITH("VFVF", "heads = 2\n"), SPEC_WITH("VFVF", "heads = 1\n")};

    for (int i = 0; i < 2; i++) {
        fixture *f = fixture_open(spec[i], 1);
        int64_t cols = 0;
        st_model_probe(f->model, look_cos, &cols);
        gradients(f, make_row(f, packed, 0, 5, 1));
        assert_int_equal(cols, i ? 4 : 2);
        fixture_close(f);
    }
}

static void one_view_has_one_head_size(void **state)
{
    st_diags d = {0};

    assert_null(fixture_build(
        SPEC_WITH("VFWF", "heads = 2\n") "[layer.W]\nplugin = attention\nheads = 1\nnames = vision\n", 1, &d));
    assert_int_equal(d.errors, 1);
    assert_string_equal(d.item[0].error.message,
                        "encoder.blocks.2 (W, attention) rotates heads of 8 columns, but encoder.blocks.0 (V, "
                        "attention) heads of 4: all layers of encoder.blocks get one table");
    assert_string_equal(d.item[0].line_text, "[layer.W]");
}

static void blocks_without_rotation_need_no_tables(void **state)
{
    fixture *f = fixture_open(SPEC_WITH("VFVF", "heads = 2\nrotary = no\n"), 1);

    gradients(f, make_row(f, packed, 0, 5, 1));
    fixture_close(f);
}

/* The largest gradient of the encoder's weights. */
static double vision_gradient(fixture *f)
{
    double most = 0;
    st_error e = {0};

    for (int32_t i = 0; i < f->model->n_weights; i++) {
        const model_weight *w = f->model->weights[i];
        double *g = ST_NEW_N(f->arena, double, w->pub.count);
        if (!w->trains || !strcmp(w->pub.part, "language")) continue;
        need_ok(st_model_read(f->model, i, ST_READ_GRAD, g, &e), &e);
        for (int64_t k = 0; k < w->pub.count; k++) most = fmax(most, fabs(g[k]));
    }
    return most;
}

/* Text alone, pictures alone and both of them are rows of one step. It trains, and text gives the encoder nothing. */
static void rows_of_every_kind_train_together(void **state)
{
    static const int text[] = {17, 0}, picture[] = {12, 0};
    fixture *f = fixture_open(SPEC, 1);
    st_packed_row *rows[3] = {make_row(f, text, 0, 5, 1), make_row(f, picture, 1, 5, 1), make_row(f, packed, 0, 5, 1)};
    st_step_result s = {0};
    st_error e = {0};
    double first = 0;

    gradients(f, rows[0]);
    assert_true(vision_gradient(f) == 0);
    gradients(f, rows[1]);
    assert_true(vision_gradient(f) > 0);
    for (int i = 1; i <= 20; i++) {
        const st_schedule at = {.size = sizeof at, .step = i, .lr = 1e-2, .lr_scale = 1};
        need_ok(st_model_step(f->model, (const st_packed_row *const *)rows, 3, &at, 1, &s, &e), &e);
        assert_int_equal(s.skipped, 0);
        if (i == 1) first = s.loss;
    }
    print_message("# loss %.3f to %.3f\n", first, s.loss);
    assert_true(s.loss < 0.7 * first);
    fixture_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_every_kind_train_together),
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(packed_row_equals_segments_alone),
        cmocka_unit_test(recompute_gives_the_same_bits),
        cmocka_unit_test(frozen_parts_are_left_alone),
        cmocka_unit_test(the_encoder_trains_below_a_frozen_language),
        cmocka_unit_test(the_probe_sees_each_tensor),
        cmocka_unit_test(rotary_tables_are_as_wide_as_the_heads_of_the_blocks),
        cmocka_unit_test(one_view_has_one_head_size),
        cmocka_unit_test(blocks_without_rotation_need_no_tables),
    };
    return cmocka_run_group_tests_name("images", tests, NULL, NULL);
}
