/* SPDX-License-Identifier: Apache-2.0 */
/* test_position_kernels.c - CUDA kernels of positions and of the vision tower against their CPU kernels in double. */
#include "kernels_test.h"
#include "plugins/encoders/qwen35_vision/kernels.h"
#include "plugins/positions/learned_absolute/kernels.h"
#include "plugins/positions/rotary/rotary_kernels.h"
#include <stdlib.h>
#include <string.h>

/* ---- rotary tables ---- */

typedef struct rotary_data {
    const struct rotary_kernels *cpu, *cuda;
    struct rotary_tables a;
    array *pos, *cos, *sin;
} rotary_data;
static int run_rotary(void *ctx, int device)
{
    const rotary_data *d = ctx;
    const st_queue q = device ? device_queue() : cpu_queue();
    struct rotary_tables a = d->a;
    a.pos = on(d->pos, device);
    a.cos = on(d->cos, device);
    a.sin = on(d->sin, device);
    a.dtype = device ? ST_F32 : ST_F64;
    return (device ? d->cuda : d->cpu)->tables(&q, &a);
}
static void rotary_one(const char *plugin, int interleaved, int32_t tokens)
{
    rotary_data d = {.cpu = open_kernels(plugin, "cpu")->table, .cuda = open_kernels(plugin, "cuda")->table};
    int32_t *pos = malloc((size_t)(3 * tokens) * sizeof *pos);
    arrays s;
    arrays_begin(&s, ST_F32, 5);
    for (int i = 0; i < 3 * tokens; i++) pos[i] = i % 7 ? (int32_t)(131072 * (uniform(&s) + 1)) : i;
    d.a = (struct rotary_tables){.pos_stride = tokens, .tokens = tokens, .stride = 32, .base = 1e7, .half = 32,
                                 .section = {11, 11, 10}, .interleaved = interleaved};
    d.pos = whole_input(&s, pos, 3 * tokens);
    d.cos = result(&s, "cos", 32 * (int64_t)tokens, 1, 0, 1e-6);
    d.sin = result(&s, "sin", 32 * (int64_t)tokens, 1, 0, 1e-6);
    compare(&s, plugin, run_rotary, &d);
    arrays_end(&s);
    free(pos);
}
static void rotary_agrees(void **state)
{
    (void)state;
    rotary_one("mrope", 1, 77);
    rotary_one("rope", 0, 33);
}

/* ---- a learned table ---- */

typedef struct learned_data {
    const struct learned_kernels *cpu, *cuda;
    int32_t type, tokens, positions, width;
    array *pos, *x, *table, *dx, *dtable;
} learned_data;
static int run_learned(void *ctx, int device)
{
    const learned_data *d = ctx;
    const st_queue q = device ? device_queue() : cpu_queue();
    const struct learned_kernels *t = device ? d->cuda : d->cpu;
    const int32_t type = device ? d->type : ST_F64;
    struct learned_rows a = {.pos = on(d->pos, device), .tokens = d->tokens, .width = d->width,
                             .positions = d->positions, .x_stride = d->width, .table_stride = d->width,
                             .x = on(d->x, device), .table = on(d->table, device), .dtype = type, .table_dtype = type};
    ST_TRY(t->add(&q, &a));
    a.x = on(d->dx, device);
    a.table = on(d->dtable, device);
    a.table_dtype = device ? ST_F32 : ST_F64;
    return t->add_bwd(&q, &a);
}
static void learned_one(const char *title, int32_t type)
{
    learned_data d = {.cpu = open_kernels("learned_absolute", "cpu")->table,
                      .cuda = open_kernels("learned_absolute", "cuda")->table,
                      .type = type, .tokens = 700, .positions = 150, .width = 37};
    int32_t pos[700];
    arrays s;
    arrays_begin(&s, type, 6);
    for (int i = 0; i < d.tokens; i++) pos[i] = i % 141;
    d.pos = whole_input(&s, pos, d.tokens);
    d.x = input(&s, (int64_t)d.tokens * d.width, 0, 1);
    d.x->name = "x";
    d.x->bound = type == ST_BF16 ? 3e-3 : 1e-5;
    d.table = input(&s, (int64_t)d.positions * d.width, 0, 1);
    d.dx = input(&s, (int64_t)d.tokens * d.width, 0, 1);
    d.dtable = result(&s, "dtable", (int64_t)d.positions * d.width, 1, 1, 1e-5);
    compare(&s, title, run_learned, &d);
    arrays_end(&s);
}
static void learned_agrees(void **state)
{
    (void)state;
    learned_one("learned", ST_F32);
    learned_one("learned bf16", ST_BF16);
}

/* ---- the vision tower ---- */

enum { PATCH = 4, TEMPORAL = 2, MERGE = 2, SIDE = 6, WIDTH = 40, HEAD = 24, UNITS = 80 };
enum { VALUES = CHANNELS * TEMPORAL * PATCH * PATCH };
typedef struct vision_data {
    const struct vision_kernels *cpu, *cuda;
    int32_t type;
    array *payload, *items, *unit_item, *patches, *table, *x, *dx, *dtable, *cos, *sin;
} vision_data;
static int run_vision(void *ctx, int device)
{
    const vision_data *d = ctx;
    const st_queue q = device ? device_queue() : cpu_queue();
    const struct vision_kernels *t = device ? d->cuda : d->cpu;
    const int32_t type = device ? d->type : ST_F64, acc = device ? ST_F32 : ST_F64;
    const struct vision_batch batch = {on(d->payload, device), on(d->items, device), on(d->unit_item, device), UNITS};
    const struct vision_geometry g = {PATCH, TEMPORAL, MERGE, SIDE};
    const struct vision_patchify patchify = {.batch = batch, .g = g, .mean = {0.5, 0.4, 0.6}, .std = {0.5, 0.3, 0.25},
                                             .out = on(d->patches, device), .dtype = type};
    const struct vision_position position = {.batch = batch, .g = g, .width = WIDTH, .table = on(d->table, device),
                                             .dx = on(d->dx, device), .x = on(d->x, device),
                                             .d_table = on(d->dtable, device), .dtype = type, .acc_dtype = acc};
    const struct vision_rotary rotary = {.batch = batch, .g = g, .base = 10000, .cos = on(d->cos, device),
                                         .sin = on(d->sin, device), .head_dim = HEAD, .acc_dtype = acc};
    ST_TRY(t->patchify(&q, &patchify));
    ST_TRY(t->position(&q, &position));
    ST_TRY(t->position_bwd(&q, &position));
    return t->rotary(&q, &rotary);
}
/* A picture of 4 x 6 patches, ready values of 2 frames of 2 x 4, a picture of 6 x 2; then units of no item. */
static void vision_one(const char *title, int32_t type)
{
    static const int32_t items[] = {1, 4, 6, 0, 0, 0, 2, 2, 4, 24, 19, 1, 1, 6, 2, 40, 0, 0};
    enum { PIXELS = 4 * 6 * PATCH * PATCH * CHANNELS, PAYLOAD = 64 * 224 };
    vision_data d = {.cpu = open_kernels("qwen35_vision", "cpu")->table,
                     .cuda = open_kernels("qwen35_vision", "cuda")->table, .type = type};
    int32_t unit_item[UNITS], meta[18];
    uint8_t *payload = calloc(1, PAYLOAD);
    const double bound = type == ST_BF16 ? 3e-3 : 1e-5;
    arrays s;
    arrays_begin(&s, type, 7);
    memcpy(meta, items, sizeof meta);
    meta[16] = 19 + (16 * VALUES * 8 + 63) / 64;
    assert_true(meta[16] * 64 + PIXELS / 2 <= PAYLOAD && PIXELS <= 19 * 64);
    for (int i = 0; i < PAYLOAD; i++) payload[i] = (uint8_t)(127 + 127 * uniform(&s));
    for (int i = 0; i < 16 * VALUES; i++) {
        const double v = uniform(&s);
        memcpy(payload + 19 * 64 + i * 8, &v, sizeof v);
    }
    for (int u = 0; u < UNITS; u++) unit_item[u] = u < 24 ? 0 : u < 40 ? 1 : u < 52 ? 2 : -1;
    d.payload = bytes_input(&s, payload, PAYLOAD);
    d.items = whole_input(&s, meta, 18);
    d.unit_item = whole_input(&s, unit_item, UNITS);
    d.patches = result(&s, "patches", UNITS * VALUES, 0, 9, bound);
    d.table = input(&s, SIDE * SIDE * WIDTH, 0, 1);
    d.x = input(&s, UNITS * WIDTH, 0, 1);
    d.x->name = "x";
    d.x->bound = bound;
    d.dx = input(&s, UNITS * WIDTH, 0, 1);
    d.dtable = result(&s, "dtable", SIDE * SIDE * WIDTH, 1, 1, 1e-5);
    d.cos = result(&s, "cos", UNITS * HEAD / 2, 1, 0, 1e-6);
    d.sin = result(&s, "sin", UNITS * HEAD / 2, 1, 0, 1e-6);
    compare(&s, title, run_vision, &d);
    arrays_end(&s);
    free(payload);
}
static void vision_agrees(void **state)
{
    (void)state;
    vision_one("vision", ST_F32);
    vision_one("vision bf16", ST_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rotary_agrees), cmocka_unit_test(learned_agrees),
                                       cmocka_unit_test(vision_agrees)};
    if (!device_there()) return 0;
    return cmocka_run_group_tests_name("position_kernels", tests, NULL, NULL);
}
