/* SPDX-License-Identifier: Apache-2.0 */
/* The encoder on the device side: kernels against formulas written out here, published taps, and the gradient of
 * every weight against central differences through a host in small. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "part_host.h"
#include "../../plugins/encoders/qwen35_vision/kernels.h"

enum { HIDDEN = 8, OUT = 5, PATCH = 4, VALUES = 3 * 2 * PATCH * PATCH, SIDE = 3 };
static const char *const settings[] = {
    "pattern",    "(VF)x2", "hidden",     "8",  "patch",      "4",    "position_side", "3",
    "image_mean", "0.9,0.4,0.5", "min_pixels", "64", "max_pixels", "4096", "image_std",     "0.25,0.5,0.3",
    NULL};
static const st_encoder_ops *ops_of(part_host *h)
{
    return h->plugin->ops;
}

/* An encoder with room for 28 patches, and a row of pictures of the given sizes. Weights are random. */
struct encoder { part_host *h; st_media_batch batch; st_tensor features, d_features; int32_t units, rows; };
static struct encoder encoder_open(int n, const int32_t (*size)[2], uint64_t seed)
{
    struct encoder e = {.h = part_open("qwen35_vision", settings)};
    part_host *h = e.h;
    st_media_plan plans[3] = {{0}};
    int64_t at = 0;

    h->env.hidden = OUT;
    h->stack_rotary_dim = 8;
    h->caps = (st_media_caps){.units = 28, .items = 3, .spans = 3};
    assert_int_equal(ops_of(h)->capacity(h->self, &h->env, &h->caps), ST_OK);
    assert_int_equal(ops_of(h)->configure(h->self, &h->env), ST_OK);
    part_kernels(h);
    for (int i = 0; i < h->n_weights; i++)
        for (int64_t j = 0; j < h->weight[i].n; j++)
            h->weight[i].value[j] = 0.5 * part_random(&seed) + (strcmp(h->weight[i].name, "merger.norm") ? 0 : 1);
    e.batch = (st_media_batch){.size = sizeof e.batch, .payload = part_tensor(h, ST_U8, 1, h->caps.payload),
                               .meta = part_tensor(h, ST_I32, 1, h->caps.meta)};
    for (int i = 0; i < n; i++) {
        uint64_t pixel = (uint64_t)(31 * size[i][0] + size[i][1]);
        uint8_t *rgb = part_alloc(h, (size_t)size[i][0] * (size_t)size[i][1] * 3);
        st_media md = {.size = sizeof md,
                       .kind = ST_MEDIA_IMAGE,
                       .width = size[i][1],
                       .height = size[i][0],
                       .frames = 1,
                       .rgb = rgb};
        for (int j = 0; j < size[i][0] * size[i][1] * 3; j++)
            rgb[j] = (uint8_t)(127.5 + 127 * part_random(&pixel));
        assert_int_equal(ops_of(h)->measure(h->self, &h->worker, &md, &plans[i]), ST_OK);
        assert_int_equal(ops_of(h)->prepare(h->self, &h->worker, &md, &plans[i], (char *)e.batch.payload.data + at),
                         ST_OK);
        at += plans[i].payload;
        e.units += plans[i].units;
        e.rows += plans[i].rows;
    }
    assert_int_equal(ops_of(h)->collate(h->self, &h->worker, &h->caps, plans, n, e.batch.meta.data), ST_OK);
    e.features = part_tensor(h, ST_F64, h->caps.rows, OUT);
    e.d_features = part_tensor(h, ST_F64, h->caps.rows, OUT);
    for (int i = 0; i < e.rows * OUT; i++)
        ((double *)e.d_features.data)[i] = part_random(&seed);
    return e;
}
static double run_forward(struct encoder *e)
{
    double sum = 0;

    assert_int_equal(ops_of(e->h)->forward(e->h->self, &e->h->step, &e->batch, &e->features), ST_OK);
    for (int i = 0; i < e->rows * OUT; i++)
        sum += ((double *)e->features.data)[i] * ((double *)e->d_features.data)[i];
    return sum;
}
static void run_backward(struct encoder *e)
{
    assert_int_equal(ops_of(e->h)->backward(e->h->self, &e->h->step, &e->batch, &e->d_features), ST_OK);
}
static const int32_t two[2][2] = {{16, 16}, {8, 16}}, one[1][2] = {{8, 16}};

static void declares(void **state)
{
    static const struct { const char *name, *part; int64_t rows, cols; } want[] = {
        {"patch", NULL, HIDDEN, VALUES}, {"patch_bias", NULL, HIDDEN, 1}, {"position", NULL, SIDE * SIDE, HIDDEN},
        {"merger.norm", "merger", HIDDEN, 1}, {"merger.norm_bias", "merger", HIDDEN, 1},
        {"merger.fc1", "merger", 4 * HIDDEN, 4 * HIDDEN}, {"merger.fc1_bias", "merger", 4 * HIDDEN, 1},
        {"merger.fc2", "merger", OUT, 4 * HIDDEN}, {"merger.fc2_bias", "merger", OUT, 1},
    };
    struct encoder e = encoder_open(0, NULL, 1);

    assert_int_equal(e.h->n_weights, sizeof want / sizeof want[0]);
    assert_int_equal(ops_of(e.h)->n_maps, 1 + sizeof want / sizeof want[0]);
    assert_string_equal(ops_of(e.h)->maps[0].weight, "");
    assert_string_equal(ops_of(e.h)->maps[0].file, "model.visual.");
    for (int i = 0; i < e.h->n_weights; i++) {
        const part_weight *w = part_weight_of(e.h, want[i].name);
        assert_true(w->def.part == want[i].part || !strcmp(w->def.part, want[i].part));
        assert_int_equal(w->def.dim[0], want[i].rows);
        assert_int_equal(w->n, want[i].rows * want[i].cols);
        assert_string_equal(ops_of(e.h)->maps[i + 1].weight, want[i].name);
    }
    assert_string_equal(e.h->stack_pattern, "(VF)x2");
    assert_int_equal(e.h->stack.hidden, HIDDEN);
    assert_int_equal(e.h->stack.rows, 28);
    assert_int_equal(e.h->stack.norm, ST_NORM_LAYER);
    assert_int_equal(e.h->stack.alone, 1);
    part_close(e.h);
}

/* rows t, h/2, w/2, in_h, in_w; columns channel, frame, y, x; (x / 255 - mean) / std; units of no picture are 0 */
static void patch_order(void **state)
{
    static const double mean[3] = {0.9, 0.4, 0.5}, std[3] = {0.25, 0.5, 0.3};
    struct encoder e = encoder_open(2, two, 2);
    const uint8_t *pixels[2] = {e.batch.payload.data, (uint8_t *)e.batch.payload.data + 16 * 16 * 3};
    const double *got;
    int64_t at = 0;

    run_forward(&e);
    got = e.h->slot[0].data;
    for (int i = 0; i < 2; i++)
        for (int by = 0; by < two[i][0] / 8; by++)
            for (int bx = 0; bx < two[i][1] / 8; bx++)
                for (int q = 0; q < 4; q++)
                    for (int c = 0; c < 3; c++)
                        for (int t = 0; t < 2; t++)
                            for (int y = 0; y < PATCH; y++)
                                for (int x = 0; x < PATCH; x++, at++) {
                                    int row = (2 * by + q / 2) * PATCH + y, col = (2 * bx + q % 2) * PATCH + x;
                                    double v = pixels[i][(row * two[i][1] + col) * 3 + c];
                                    assert_near(got[at], (v / 255 - mean[c]) / std[c], 1e-14);
                                }
    assert_int_equal(at, 24 * VALUES);
    for (; at < 28 * VALUES; at++)
        assert_true(got[at] == 0);
    part_close(e.h);
}

/* Published taps at the real table size: grid 4 x 6, row 1, column 2 is unit 6; grid 48 x 48, row 7, column 9 is on
 * the table. */
static void taps_of(int rows, int cols, int unit, int64_t *index, double *weight)
{
    part_host *h = part_open("qwen35_vision", settings);
    const struct vision_kernels *k = part_kernels(h);
    int32_t units = rows * cols, item[ITEM_INTS] = {1, rows, cols, 0, 0, 0},
            *unit_item = part_alloc(h, sizeof(int32_t) * (size_t)units);
    double *dx = part_alloc(h, sizeof *dx * (size_t)units), *d_table = part_alloc(h, sizeof *d_table * 2304);
    double *x = part_alloc(h, sizeof *x * (size_t)units), *table = part_alloc(h, sizeof *table * 2304), want = 0;
    struct vision_position a = {.batch = {.items = item, .unit_item = unit_item, .units = units},
                                .g = {16, 2, 2, 48},
                                .width = 1,
                                .dx = dx,
                                .d_table = d_table,
                                .table = table,
                                .x = x,
                                .dtype = ST_F64,
                                .acc_dtype = ST_F64};
    int n = 0;

    dx[unit] = 1;
    for (int i = 0; i < 2304; i++)
        table[i] = i * i;
    assert_int_equal(k->position_bwd(&h->queue, &a), ST_OK);
    assert_int_equal(k->position(&h->queue, &a), ST_OK);
    for (int i = 0; i < 2304; i++)
        if (d_table[i] > 1e-12) {
            assert_true(n < 4);
            index[n] = i;
            weight[n++] = d_table[i];
            want += d_table[i] * table[i];
        }
    assert_near(x[unit], want, 1e-9);
    part_close(h);
}

static void position_taps(void **state)
{
    static const int64_t want[4] = {738, 739, 786, 787};
    static const double share[4] = {1 / 15.0, 4 / 15.0, 2 / 15.0, 8 / 15.0};
    int64_t index[4] = {0};
    double weight[4] = {0};

    taps_of(4, 6, 6, index, weight);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(index[k], want[k]);
        assert_near(weight[k], share[k], 1e-13);
    }
    taps_of(48, 48, 4 * (3 * 24 + 4) + 3, index, weight);
    assert_int_equal(index[0], 345);
    assert_near(weight[0], 1, 1e-13);
    taps_of(2, 2, 3, index, weight); /* the last corner lies on the last line, not behind it */
    assert_int_equal(index[0], 2303);
    assert_near(weight[0], 1, 1e-13);
}

static void rotary_tables(void **state)
{
    struct encoder e = encoder_open(2, two, 3);

    run_forward(&e);
    for (int u = 0; u < 28; u++)
        for (int i = 0; i < 4; i++) {
            int across = 2, b = (u < 16 ? u : u - 16) / 4, q = u % 4; /* both pictures are two merge blocks wide */
            int row = u < 24 ? b / across * 2 + q / 2 : 0, col = u < 24 ? b % across * 2 + q % 2 : 0;
            long double angle = powl(10000, -(long double)(i % 2) / 2) * (i < 2 ? row : col);
            assert_near(((double *)e.h->slot[1].data)[u * 4 + i], (double)cosl(angle), 1e-15);
            assert_near(((double *)e.h->slot[2].data)[u * 4 + i], (double)sinl(angle), 1e-15);
        }
    part_close(e.h);
}

/* float kernels: the double result, rounded once or summed in float */
static void float_kernels(void **state)
{
    struct encoder e = encoder_open(2, two, 4);
    const struct vision_kernels *k = e.h->step.kernels;
    const int32_t *meta = e.batch.meta.data;
    struct vision_batch b = {e.batch.payload.data, meta, meta + 3 * ITEM_INTS + 4 * 3, 28};
    float *patches = part_alloc(e.h, sizeof *patches * 28 * VALUES), *cos_f = part_alloc(e.h, sizeof *cos_f * 28 * 4);
    float *sin_f = part_alloc(e.h, sizeof *sin_f * 28 * 4);
    struct vision_patchify p = {.batch = b, .g = {PATCH, 2, 2, SIDE}, .mean = {0.9, 0.4, 0.5}, .std = {0.25, 0.5, 0.3},
                                .out = patches, .dtype = ST_F32};
    struct vision_rotary r = {
        .batch = b, .g = p.g, .base = 1e4, .cos = cos_f, .sin = sin_f, .head_dim = 8, .acc_dtype = ST_F32};

    run_forward(&e);
    assert_int_equal(k->patchify(&e.h->queue, &p), ST_OK);
    assert_int_equal(k->rotary(&e.h->queue, &r), ST_OK);
    for (int i = 0; i < 28 * VALUES; i++)
        assert_true(patches[i] == (float)((double *)e.h->slot[0].data)[i]);
    for (int i = 0; i < 28 * 4; i++)
        assert_true(cos_f[i] == (float)((double *)e.h->slot[1].data)[i] &&
                    sin_f[i] == (float)((double *)e.h->slot[2].data)[i]);
    p.dtype = ST_BF16;
    assert_int_equal(k->patchify(&e.h->queue, &p), ST_E_UNSUPPORTED);
    part_close(e.h);
}

static void gradients(void **state)
{
    struct encoder e = encoder_open(2, two, 5);

    run_forward(&e);
    run_backward(&e);
    for (int i = 0; i < e.h->n_weights; i++) {
        part_weight *w = &e.h->weight[i];
        double *exact = part_alloc(e.h, sizeof *exact * (size_t)w->n), norm = 0, off = 0;
        memcpy(exact, w->grad, sizeof *exact * (size_t)w->n);
        for (int64_t j = 0; j < w->n; j += 1 + w->n / 97) {
            double keep = w->value[j], step = 1e-5, up, down;
            w->value[j] = keep + step;
            up = run_forward(&e);
            w->value[j] = keep - step;
            down = run_forward(&e);
            w->value[j] = keep;
            norm += exact[j] * exact[j];
            off += (exact[j] - (up - down) / (2 * step)) * (exact[j] - (up - down) / (2 * step));
        }
        if (!(norm > 0 && sqrt(off / norm) < 1e-8))
            fail_msg("%s: gradient differs by %.3g of its norm %.3g", w->name, sqrt(off / norm), sqrt(norm));
    }
    part_close(e.h);
}

/* Every set of dropped slots gives the same bits; the rows behind the last are finite. */
static void dropped_slots(void **state)
{
    struct encoder e = encoder_open(2, two, 6), d;

    run_forward(&e);
    run_backward(&e);
    for (int i = 0; i < 7 * OUT; i++)
        assert_true(isfinite(((double *)e.features.data)[i]));
    for (uint32_t drop = 1; drop < 1u << ops_of(e.h)->n_slots; drop++) {
        uint32_t may = 0;
        for (uint32_t i = 0; i < ops_of(e.h)->n_slots; i++)
            may |= (ops_of(e.h)->slots[i].flags & ST_DROP) << i;
        if (drop & ~may)
            continue;
        d = encoder_open(2, two, 6);
        d.h->drop = drop;
        run_forward(&d);
        run_backward(&d);
        for (int i = 0; i < e.h->n_weights; i++)
            assert_memory_equal(d.h->weight[i].grad, e.h->weight[i].grad, sizeof(double) * (size_t)e.h->weight[i].n);
        part_close(d.h);
    }
    part_close(e.h);
}

static void no_pictures(void **state)
{
    struct encoder e = encoder_open(0, NULL, 7);

    run_forward(&e);
    for (int i = 0; i < 7 * OUT; i++)
        assert_true(isfinite(((double *)e.features.data)[i]));
    run_backward(&e);
    for (int i = 0; i < e.h->n_weights; i++)
        for (int64_t j = 0; j < e.h->weight[i].n; j++)
            assert_true(e.h->weight[i].grad[j] == 0);
    part_close(e.h);
}

static void packing(void **state)
{
    struct encoder both = encoder_open(2, two, 8), alone = encoder_open(1, one, 8);

    run_forward(&both);
    run_forward(&alone);
    assert_memory_equal((double *)both.features.data + 4 * OUT, alone.features.data, sizeof(double) * 2 * OUT);
    part_close(both.h);
    part_close(alone.h);
}

/* Ready values equal to the patches of a picture give the picture's features. */
static void ready_patches(void **state)
{
    struct encoder e = encoder_open(2, two, 9), r = encoder_open(0, NULL, 9);
    st_media md = {.size = sizeof md, .kind = ST_MEDIA_IMAGE, .patch_grid = {1, 4, 4}};
    st_media_plan plans[2] = {{0}};
    int64_t at = 0;

    run_forward(&e);
    r.h->caps.values = 1;
    assert_int_equal(ops_of(r.h)->capacity(r.h->self, &r.h->env, &r.h->caps), ST_OK);
    r.batch.payload = part_tensor(r.h, ST_U8, 1, r.h->caps.payload);
    for (int i = 0; i < 2; i++) {
        md.patches = (double *)e.h->slot[0].data + 16 * VALUES * i;
        md.patch_grid[1] = two[i][0] / PATCH;
        assert_int_equal(ops_of(r.h)->measure(r.h->self, &r.h->worker, &md, &plans[i]), ST_OK);
        assert_int_equal(plans[i].payload % 64, 0);
        assert_int_equal(
            ops_of(r.h)->prepare(r.h->self, &r.h->worker, &md, &plans[i], (char *)r.batch.payload.data + at), ST_OK);
        at += plans[i].payload;
    }
    assert_true(at <= r.h->caps.payload);
    assert_int_equal(ops_of(r.h)->collate(r.h->self, &r.h->worker, &r.h->caps, plans, 2, r.batch.meta.data), ST_OK);
    run_forward(&r);
    assert_memory_equal(r.features.data, e.features.data, sizeof(double) * 7 * OUT);
    part_close(e.h);
    part_close(r.h);
}

static void refused(const char *key, const char *value, int32_t rotary_dim, const char *words)
{
    const char *with[32], *const *s = settings;
    part_host *h;
    int n = 0;

    while (*s)
        with[n++] = *s++;
    with[n++] = key;
    with[n++] = value;
    with[n] = NULL;
    h = part_open("qwen35_vision", with);
    h->env.hidden = OUT;
    h->stack_rotary_dim = rotary_dim;
    h->caps = (st_media_caps){.units = 28, .items = 3, .spans = 3};
    assert_int_equal(ops_of(h)->capacity(h->self, &h->env, &h->caps), ST_OK);
    assert_int_equal(ops_of(h)->configure(h->self, &h->env), ST_E_CONFIG);
    assert_words(h->error.message, words);
    assert_words(words, h->failed_key);
    part_close(h);
}

static void refusals(void **state)
{
    refused("pattern", "VF", 6, "pattern = VF: its layers rotate heads of 6 columns");
    refused("image_mean", "0.5", 8, "image_mean has 1 numbers");
    refused("image_std", "0,1,1", 8, "image_std = 0");
    refused("max_pixels", "63", 8, "min_pixels = 64 is above max_pixels = 63");
    refused("min_pixels", "5000", 8, "min_pixels = 5000");
    refused("patch", "40", 8, "max_pixels = 4096: the smallest picture has 6400 pixels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(declares), cmocka_unit_test(patch_order), cmocka_unit_test(position_taps),
        cmocka_unit_test(rotary_tables), cmocka_unit_test(float_kernels), cmocka_unit_test(gradients),
        cmocka_unit_test(dropped_slots), cmocka_unit_test(no_pictures), cmocka_unit_test(packing),
        cmocka_unit_test(ready_patches), cmocka_unit_test(refusals),
    };

    return cmocka_run_group_tests_name("vision", tests, NULL, NULL);
}
