/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures on data workers: sizes and token counts of published tables, pixels against the golden processor, layout,
 * lists. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "part_host.h"

static const char *const small[] = {"pattern", "(VF)x2", "hidden", "8", "heads", "1", NULL};

static part_host *open_encoder(const char *min_pixels, const char *max_pixels)
{
    return part_open("qwen35_vision", (const char *[]){"pattern", "(VF)x2", "hidden", "8", "heads", "1", "min_pixels",
                                                       min_pixels, "max_pixels", max_pixels, NULL});
}
static const st_encoder_ops *ops_of(part_host *h)
{
    return h->plugin->ops;
}

static void sizes(void **state)
{
    static const struct { int32_t width, height; const char *min, *max; int32_t rows, cols, tokens; } table[] = {
        {640, 480, "65536", "16777216", 30, 40, 300},      {1920, 1080, "65536", "16777216", 68, 120, 2040},
        {100, 100, "65536", "16777216", 16, 16, 64},       {40, 30, "65536", "16777216", 14, 20, 70},
        {208, 336, "65536", "16777216", 22, 14, 77},       {8000, 5000, "65536", "16777216", 202, 322, 16261},
        {48, 1000, "65536", "16777216", 74, 4, 74},        {1, 1, "65536", "16777216", 16, 16, 64},
        {1, 1, "200704", "1003520", 28, 28, 196},          {200, 1, "65536", "16777216", 2, 228, 114},
        {200, 1, "200704", "1003520", 2, 396, 198},        {2400, 1800, "65536", "16777216", 112, 150, 4200},
        {2400, 1800, "200704", "1003520", 54, 72, 972},    {500, 700, "65536", "16777216", 44, 32, 352},
        {64, 64, "4096", "1048576", 4, 4, 4},              {53, 37, "4096", "1048576", 4, 6, 6},
        {100, 300, "4096", "1048576", 18, 6, 27},          {864, 1296, "65536", "16777216", 80, 54, 1080},
        {33, 500, "4096", "1048576", 32, 2, 16},           {640, 480, "4096", "65536", 12, 18, 54},
        {1, 1, "4096", "65536", 4, 4, 4},                  {48, 80, "4096", "65536", 4, 4, 4},
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        part_host *h = open_encoder(table[i].min, table[i].max);
        st_media md = {
            .size = sizeof md, .kind = ST_MEDIA_IMAGE, .width = table[i].width, .height = table[i].height, .frames = 1};
        st_media_plan p = {.size = sizeof p};
        assert_int_equal(ops_of(h)->measure(h->self, &h->worker, &md, &p), ST_OK);
        if (p.grid[1] != table[i].rows || p.grid[2] != table[i].cols)
            fail_msg("%d x %d: grid %d x %d, expected %d x %d", md.width, md.height, p.grid[1], p.grid[2],
                     table[i].rows, table[i].cols);
        assert_int_equal(p.rows, table[i].tokens);
        assert_int_equal(p.units, 4 * table[i].tokens);
        assert_int_equal(p.spans, 1);
        assert_int_equal(p.payload, (int64_t)p.units * 768);
        part_close(h);
    }
}

static void bad_pictures(void **state)
{
    part_host *h = part_open("qwen35_vision", small);
    st_media md = {.size = sizeof md, .kind = ST_MEDIA_IMAGE, .width = 201, .height = 1, .frames = 1};
    st_media_plan p = {.size = sizeof p};

    assert_int_equal(ops_of(h)->measure(h->self, &h->worker, &md, &p), ST_E_DATA);
    assert_words(h->error.message, "201 x 1");
    assert_words(h->error.message, "at most 200");
    md.width = 5, md.height = 1138;
    assert_int_equal(ops_of(h)->measure(h->self, &h->worker, &md, &p), ST_E_DATA);
    md.width = 0;
    assert_int_equal(ops_of(h)->measure(h->self, &h->worker, &md, &p), ST_E_DATA);
    md.width = md.height = 64, md.kind = ST_MEDIA_VIDEO;
    assert_int_equal(ops_of(h)->measure(h->self, &h->worker, &md, &p), ST_E_DATA);
    md = (st_media){.size = sizeof md, .kind = ST_MEDIA_IMAGE, .patches = (double[]){0}, .patch_grid = {1, 3, 4}};
    assert_int_equal(ops_of(h)->measure(h->self, &h->worker, &md, &p), ST_E_DATA);
    assert_words(h->error.message, "1 x 3 x 4");
    part_close(h);
}

/* A size that is off by some rounding would already have failed above; here every byte must be right. */
static void pixels(void **state)
{
    part_host *h = part_open("qwen35_vision", small);
    char path[4096];
    int32_t head[5], cases = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/tests/golden/images.bin", getenv("ST_SRCDIR"));
    f = fopen(path, "rb");
    assert_non_null(f);
    for (; fread(head, sizeof head, 1, f) == 1; cases++) {
        size_t in = (size_t)head[0] * head[1] * 3, n = (size_t)head[4] * head[3] * 3,
               out = (size_t)head[2] * head[3] * 3;
        uint8_t *rgb = part_alloc(h, in), *want = part_alloc(h, n), *got = part_alloc(h, out + 64);
        st_media md = {
            .size = sizeof md, .kind = ST_MEDIA_IMAGE, .width = head[1], .height = head[0], .frames = 1, .rgb = rgb};
        /* the processor's size, whatever measure would choose for the part of a picture that is kept here */
        st_media_plan p = {.size = sizeof p, .units = (int32_t)(out / 768), .grid = {1, head[2] / 16, head[3] / 16}};
        p.payload = (int64_t)out;
        assert_int_equal(fread(rgb, 1, in, f), in);
        assert_int_equal(fread(want, 1, n, f), n);
        assert_int_equal(ops_of(h)->prepare(h->self, &h->worker, &md, &p, got), ST_OK);
        assert_memory_equal(got, want, n);
        st_media seen = {.size = sizeof seen};
        assert_int_equal(ops_of(h)->picture(h->self, &h->worker, &p, got, &seen), ST_OK);
        assert_true(seen.width == head[3] && seen.height == head[2]);
        assert_memory_equal(seen.rgb, want, n);
    }
    fclose(f);
    assert_int_equal(cases, 7);
    part_close(h);
}

struct sink { char text[256]; int32_t grid[3]; };
static int sink_text(void *ctx, const char *utf8, size_t n)
{
    struct sink *s = ctx;

    snprintf(s->text + strlen(s->text), sizeof s->text - strlen(s->text), "%.*s", (int)n, utf8);
    return ST_OK;
}
static int sink_rows(void *ctx, const char *placeholder, const int32_t grid[3])
{
    struct sink *s = ctx;

    memcpy(s->grid, grid, sizeof s->grid);
    return sink_text(ctx, placeholder, strlen(placeholder));
}

static void layout(void **state)
{
    part_host *h = part_open("qwen35_vision", small);
    struct sink s = {0};
    st_layout out = {&s, sink_text, sink_rows};
    st_media md = {.size = sizeof md, .kind = ST_MEDIA_IMAGE, .width = 500, .height = 700, .frames = 1};
    st_media_plan p = {.size = sizeof p};

    assert_int_equal(ops_of(h)->measure(h->self, &h->worker, &md, &p), ST_OK);
    assert_int_equal(ops_of(h)->layout(h->self, &h->worker, &md, &p, &out), ST_OK);
    assert_string_equal(s.text, "<|vision_start|><|image_pad|><|vision_end|>");
    assert_int_equal(s.grid[0] * s.grid[1] * s.grid[2], p.rows);
    assert_int_equal(s.grid[1], 22);
    assert_int_equal(s.grid[2], 16);
    part_close(h);
}

static void lists(void **state)
{
    part_host *h = part_open("qwen35_vision", small);
    st_media_plan p[2] = {{.units = 8, .spans = 2, .grid = {2, 2, 2}, .own = {1}, .payload = 640},
                          {.units = 8, .spans = 1, .grid = {1, 2, 4}, .payload = 128}};
    st_media_caps c = {.units = 18, .items = 3, .spans = 4};
    int32_t *meta, *spans, *unit_item;

    assert_int_equal(ops_of(h)->capacity(h->self, &h->env, &c), ST_OK);
    assert_int_equal(c.units, 20);
    assert_int_equal(c.rows, 5);
    assert_int_equal(c.payload, 20 * 768 + 3 * 64);
    assert_int_equal(c.meta, 3 * 6 + 4 * 4 + 20);
    c.values = 1;
    assert_int_equal(ops_of(h)->capacity(h->self, &h->env, &c), ST_OK);
    assert_int_equal(c.payload, 20 * 1536 * 8 + 3 * 64);
    meta = part_alloc(h, (size_t)c.meta * sizeof *meta);
    memset(meta, 0x55, (size_t)c.meta * sizeof *meta);
    assert_int_equal(ops_of(h)->collate(h->self, &h->worker, &c, p, 2, meta), ST_OK);
    assert_memory_equal(meta, ((int32_t[]){2, 2, 2, 0, 0, 1, 1, 2, 4, 8, 10, 0, 0, 0, 0, 0, 0, 0}), 18 * sizeof *meta);
    spans = meta + 18;
    assert_memory_equal(spans, ((int32_t[]){0, 4, 8, 0, 4, 4, 8, 0, 0, 4, 8, 0, 4, 4, 8, 0}), 16 * sizeof *meta);
    unit_item = spans + 16;
    for (int u = 0; u < 20; u++)
        assert_int_equal(unit_item[u], u < 8 ? 0 : u < 16 ? 1 : -1);
    p[1].units = 13;
    assert_int_equal(ops_of(h)->collate(h->self, &h->worker, &c, p, 2, meta), ST_E_INTERNAL);
    assert_words(h->error.message, "21 of 20 patches");
    part_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes), cmocka_unit_test(bad_pictures), cmocka_unit_test(pixels), cmocka_unit_test(layout),
        cmocka_unit_test(lists),
    };

    return cmocka_run_group_tests_name("media", tests, NULL, NULL);
}
