/* SPDX-License-Identifier: Apache-2.0 */
/* cases_move.c - rows by index: lookup, gather, scatter, combine; indices that name no row, and some that must not be. */
#include "rig.h"

enum { TABLE, IDS, MEDIA, FEATURES, ORDER, OUT, D_OUT, D_TABLE, D_FEATURES };
typedef struct lookup { int media; float beta; int whole; } lookup; /* whole: the table is not cut over ranks */

static st_lookup lookup_of(gpu *g, const lookup *c)
{
    return (st_lookup){.table = AT(g, TABLE), .ids = AT(g, IDS), .media = c->media ? AT(g, MEDIA) : NULL,
                       .features = AT(g, FEATURES), .order = AT(g, ORDER), .out = AT(g, OUT), .d_out = AT(g, D_OUT),
                       .d_table = AT(g, D_TABLE), .d_features = AT(g, D_FEATURES), .first = 100, .beta = c->beta,
                       .group = c->whole ? ST_G_NONE : ST_G_TENSOR};
}
static int call_lookup(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    st_lookup a = lookup_of(g, args);
    return o->lookup(q, &a);
}
static int call_lookup_bwd(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    st_lookup a = lookup_of(g, args);
    return o->lookup_bwd(q, &a);
}

/* 40 words from 100 on; ids outside of them and -1; every fifth slot takes a row of features. */
static void make(gpu *g, int64_t n, int64_t cols, int64_t gap)
{
    enum { WORDS = 40, ROWS = 30, MOST = 600 };
    double ids[MOST], media[MOST], order[MOST];
    int64_t placed = 0;
    for (int64_t i = 0; i < n; i++) {
        ids[i] = i % 11 == 3 ? -1 : floor(98 + 45 * random_at(5, i) * random_at(6, i));
        media[i] = i % 5 == 2 && i / 5 < 2 * ROWS ? (double)(i / 5 % ROWS) : -1;
    }
    for (int64_t id = -1; id < 200; id++)
        for (int64_t i = 0; i < n; i++)
            if (ids[i] == (double)id) order[placed++] = (double)i;
    gpu_random(g, NEW(g, "table", REAL, gap, WORDS, cols), -1, 1);
    gpu_values(g, NEW(g, "ids", ST_I32, 0, n), ids);
    gpu_values(g, NEW(g, "media", ST_I32, 0, n), media);
    gpu_random(g, NEW(g, "features", REAL, 0, ROWS, cols), -1, 1);
    gpu_values(g, NEW(g, "order", ST_I32, 0, n), order);
    NEW(g, "out", REAL, gap, n, cols);
    gpu_random(g, NEW(g, "d_out", REAL, 2 * gap, n, cols), -1, 1);
    gpu_random(g, NEW(g, "d_table", ACC, gap, WORDS, cols), -1, 1);
    gpu_random(g, NEW(g, "d_features", ACC, 0, ROWS, cols), -1, 1);
}

static void lookups(gpu *g)
{
    const int64_t shapes[][3] = {{300, 67, 3}, {600, 512, 8}, {1, 8, 0}};
    for (int s = 0; s < 3; s++)
        for (int with = 0; with < 4; with++) {
            lookup c = {.media = with & 1, .beta = (float[]){0, 1, 0.5f, 1}[with]};
            make(g, shapes[s][0], shapes[s][1], shapes[s][2]);
            gpu_out(g, OUT);
            gpu_check(g, "lookup", call_lookup, &c, 0, 0);
            make(g, shapes[s][0], shapes[s][1], shapes[s][2]);
            gpu_out(g, D_TABLE);
            gpu_out(g, D_FEATURES);
            gpu_check(g, "lookup_bwd", call_lookup_bwd, &c, 1e-6, 1e-6);
        }
    const double far = 30, outside[] = {140, 99};
    lookup c = {.media = 1, .beta = 1};
    make(g, 1, 8, 0);
    gpu_values(g, MEDIA, &far);
    gpu_faults(g, call_lookup, &c, ST_FAULT_RANGE);
    for (int i = 0; i < 2; i++) {
        c = (lookup){.beta = 1, .whole = 1};
        make(g, 1, 8, 0);
        gpu_values(g, IDS, &outside[i]);
        gpu_faults(g, call_lookup, &c, ST_FAULT_RANGE);
    }
}

static int call_gather(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    return o->gather(q, AT(g, 0), AT(g, 1), AT(g, 2));
}
static int call_scatter(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    return o->scatter(q, AT(g, 0), AT(g, 1), AT(g, 2));
}

static void moves(gpu *g)
{
    const int32_t types[] = {REAL, REAL, ACC, ST_I32, ST_U8};
    const int64_t cols[] = {33, 64, 8, 3, 7};
    double index[50], places[50], beyond[50];
    for (int i = 0; i < 50; i++) {
        index[i] = i % 7 == 1 ? -1 : i % 7 == 4 ? -2 : floor(20 * random_at(3, i));
        places[i] = i % 6 == 2 ? -1 : (double)(i * 7 % 50);
        beyond[i] = i == 30 ? 20 : index[i];
    }
    for (int i = 0; i < 5; i++) {
        gpu_random(g, NEW(g, "src", types[i], i == 1 ? 8 : i, 20, cols[i]), 0, 100);
        gpu_values(g, NEW(g, "index", ST_I32, 0, 50), index);
        gpu_out(g, gpu_random(g, NEW(g, "dst", types[i], 8 * i, 50, cols[i]), 0, 100));
        gpu_check(g, "gather", call_gather, NULL, 0, 0);
        gpu_random(g, NEW(g, "src", types[i], i, 50, cols[i]), 0, 100);
        gpu_values(g, NEW(g, "index", ST_I32, 0, 50), places);
        gpu_out(g, gpu_random(g, NEW(g, "dst", types[i], 8, 50, cols[i]), 0, 100));
        gpu_check(g, "scatter", call_scatter, NULL, 0, 0);
    }
    NEW(g, "src", REAL, 0, 20, 16);
    gpu_values(g, NEW(g, "index", ST_I32, 0, 50), beyond);
    NEW(g, "dst", REAL, 0, 50, 16);
    gpu_faults(g, call_gather, NULL, ST_FAULT_RANGE);
    gpu_random(g, NEW(g, "src", REAL, 0, 20, 1), 0, 1); /* rows of one element, without columns */
    g->t[0].cpu.nd = g->t[0].gpu.nd = 1;
    gpu_values(g, NEW(g, "index", ST_I32, 0, 50), index);
    gpu_out(g, NEW(g, "dst", REAL, 0, 50));
    gpu_check(g, "gather", call_gather, NULL, 0, 0);
}

static int call_combine(const st_queue *q, const st_ops *o, gpu *g, const void *args)
{
    return o->combine(q, AT(g, 0), AT(g, 1), *(const int *)args ? AT(g, 2) : NULL, AT(g, 3));
}

static void combines(gpu *g)
{
    const int64_t cols[] = {65, 128};
    for (int i = 0; i < 4; i++) {
        int with = i & 1;
        gpu_random(g, NEW(g, "src", REAL, 3, 90, cols[i / 2]), -1, 1);
        gpu_random(g, NEW(g, "index", ST_I32, 1, 40, 8), -20, 90);
        gpu_random(g, NEW(g, "w", REAL, 2, 40, 8), -1, 1);
        gpu_out(g, NEW(g, "dst", REAL, 5, 40, cols[i / 2]));
        gpu_check(g, "combine", call_combine, &with, 2e-6, 3e-3);
    }
}

static void test_lookups(void **state) { each_type(lookups); }
static void test_moves(void **state) { each_type(moves); }
static void test_combines(void **state) { each_type(combines); }

const struct CMUnitTest move_tests[] = {cmocka_unit_test(test_lookups), cmocka_unit_test(test_moves),
                                        cmocka_unit_test(test_combines)};
const int n_move_tests = (int)ST_COUNT(move_tests);
