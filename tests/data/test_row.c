/* SPDX-License-Identifier: Apache-2.0 */
/* tests/data/test_row.c - packed rows: one by hand, many by their rules, what does not fit, placeholders equal to
 * features. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/row.h"

static int count_items(const void *self, const st_worker *w, const st_media_caps *c, const st_media_plan *p, int32_t n,
                       int32_t *meta)
{
    meta[0] = n;
    for (int32_t i = 0; i < n; i++) meta[1 + i] = p[i].rows;
    return ST_OK;
}
static const st_encoder_ops encoder = {.size = sizeof encoder, .collate = count_items};

static const st_row_shape shape = {
    .tokens = 16,
    .sequences = 3,
    .max_len = 10,
    .axes = 2,
    .depths = 2,
    .n_tiles = 1,
    .tile = {4},
    .media = 1,
    .caps = {.payload = 512, .units = 64, .rows = 16, .meta = 8, .items = 3, .spans = 3}};

static void check_ints(const char *what, const int32_t *got, const int32_t *want, int n)
{
    for (int i = 0; i < n; i++)
        if (got[i] != want[i]) fail_msg("%s[%d] is %d, expected %d", what, i, got[i], want[i]);
}

static void by_hand(void **state)
{
    enum { P = 2 };
    static const int32_t a_ids[] = {5, 6, 7, 8, 9}, a_pos[] = {0, 1, 2, 3, 4, 10, 11, 12, 13, 14};
    static const uint8_t a_train[] = {1, 0, 1, 1, 1}, a_content[] = {0, 0, 0, 1, 0}, b_train[] = {0, 0, 0, 1},
                         zeros[8] = {0};
    static const int32_t b_ids[] = {3, P, P, 4}, b_pos[] = {0, 1, 1, 2, 20, 21, 22, 23};
    static const st_media_run b_run[] = {{1, 2, ST_MEDIA_IMAGE, 0, {1, 1, 2}, 0}};
    uint8_t pixels[64];
    memset(pixels, 7, sizeof pixels);
    const st_item b_item[] = {
        {{.size = sizeof(st_media_plan), .rows = 2, .units = 8, .spans = 1, .payload = 64}, pixels}};
    const st_prepared a = {5, 0, 0, a_ids, a_train, a_content, a_pos, NULL, NULL, 41, "a", 0};
    const st_prepared b = {4, 1, 1, b_ids, b_train, zeros, b_pos, b_run, b_item, 42, "b", 0};
    st_arena *arena = st_arena_create(0);
    st_error e = {0};
    st_packed_row *r;
    int fits;
    assert_int_equal(st_row_create(arena, &shape, &r, &e), ST_OK);
    for (int round = 0; round < 2; round++) { /* a cleared row is as a new one */
        st_row_clear(r);
        assert_int_equal(st_row_add(r, &a, &fits, &e), ST_OK);
        assert_int_equal(fits, 1);
        assert_int_equal(st_row_add(r, &b, &fits, &e), ST_OK);
        assert_int_equal(fits, 1);
        assert_int_equal(st_row_finish(r, &encoder, NULL, NULL, &e), ST_OK);
        static const int32_t ids[] = {5, 6, 7, 8,  9,  3, P, P,  4,  -1, -1, -1, -1, -1, -1, -1,
                                      6, 7, 8, 9,  -1, P, P, 4,  -1, -1, -1, -1, -1, -1, -1, -1,
                                      7, 8, 9, -1, -1, P, 4, -1, -1, -1, -1, -1, -1, -1, -1, -1};
        static const int32_t labels[] = {-1, 7, 8,  9,  -1, -1, -1, 4,  -1, -1, -1, -1, -1, -1, -1, -1,
                                         7,  8, 9,  -1, -1, -1, 4,  -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                         8,  9, -1, -1, -1, 4,  -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
        static const int32_t media[] = {-1, -1, -1, -1, -1, -1, 0,  1,  -1, -1, -1, -1, -1, -1, -1, -1,
                                        -1, -1, -1, -1, -1, 0,  1,  -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                        -1, -1, -1, -1, -1, 1,  -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
        static const int32_t trained[] = {1, 2, 3, 7, -1}, trained2[] = {0, 1, 5, -1},
                             pos[] = {0, 1, 2, 3, 4, 0, 1, 1, 2, 0};
        static const int32_t order[] = {9, 10, 11, 12, 13, 14, 15, 6, 7, 5, 8, 0, 1, 2, 3, 4},
                             segments[] = {0, 5, 9, 16, 16};
        static const int32_t spans[] = {0, 5, 0, 0, 5, 4, 0, 0, 0, 5, 0, 0, 5, 4, 0, 0};
        static const int32_t tiles[] = {0, 0, 4, 0, 4, 1, 1, 5, 4, 2, 9, 4, 2, 13, 3, 0, 0, 0};
        check_ints("ids", r->ids, ids, 48);
        check_ints("labels", r->labels, labels, 48);
        check_ints("media", r->media, media, 48);
        check_ints("trained", r->trained, trained, 5);
        check_ints("trained at depth 2", r->trained + 32, trained2, 4);
        check_ints("pos", r->pos, pos, 10);
        check_ints("order", r->order, order, 16);
        check_ints("segments", r->segments, segments, 5);
        check_ints("spans", r->spans, spans, 16);
        check_ints("tiles", r->tiles[0], tiles, 18);
        assert_int_equal(r->pos[16 + 8], 23);
        assert_int_equal(r->trained_count[0], 4);
        assert_int_equal(r->trained_count[1], 4);
        assert_int_equal(r->trained_count[2], 3);
        assert_int_equal(r->content[2], 1);
        assert_int_equal(r->content[3], 0);
        assert_true(r->real[8] == 1 && r->real[9] == 0);
        assert_true(r->sample[0] == 41 && r->sample[1] == 42 && r->sample[2] == -1);
        assert_true(r->meta[0] == 1 && r->meta[1] == 2 && r->payload[63] == 7 && r->payload[64] == 0);
        assert_true(r->n_tokens == 9 && r->n_sequences == 2 && r->n_items == 1);
    }
    st_arena_destroy(arena);
}

/* ---- many random rows against the rules ---- */

typedef struct made {
    st_prepared p;
    int32_t ids[12], pos[24];
    uint8_t train[12], content[12], pixels[128];
    st_media_run run[1];
    st_item item[1];
} made;

static int32_t pick(int64_t seed, int64_t i, int32_t n)
{
    return (int32_t)(st_random_u64(77, (uint64_t)seed, i) % (uint64_t)n);
}

static void make(made *m, int64_t seed)
{
    int32_t n = 1 + pick(seed, 0, 10), rows = n > 2 ? pick(seed, 1, n - 1) : 0;
    memset(m, 0, sizeof *m);
    for (int32_t i = 0; i < n; i++) {
        m->ids[i] = 10 + pick(seed, 10 + i, 5);
        m->train[i] = (uint8_t)pick(seed, 30 + i, 2);
        m->content[i] = (uint8_t)pick(seed, 50 + i, 2);
        m->pos[i] = i;
        m->pos[n + i] = 100 + i;
    }
    m->p = (st_prepared){n, rows > 0, rows > 0, m->ids, m->train, m->content, m->pos, m->run, m->item, seed, "x", 0};
    if (rows == 0) return;
    m->run[0] = (st_media_run){1, rows, ST_MEDIA_IMAGE, 0, {1, 1, rows}, 0};
    for (int32_t i = 1; i <= rows; i++) {
        m->ids[i] = 2;
        m->train[i] = 0;
    }
    memset(m->pixels, (int)(1 + seed % 200), sizeof m->pixels);
    m->item[0] = (st_item){{.size = sizeof(st_media_plan),
                            .rows = rows,
                            .units = 4 * rows,
                            .spans = 1,
                            .payload = 64 + 64 * pick(seed, 2, 2)},
                           m->pixels};
}

static void check_depth(const st_packed_row *r, const made *m, int32_t k)
{
    int32_t row = 0, T = r->shape.tokens;
    for (int32_t s = 0; s < r->n_sequences; s++) {
        const st_prepared *p = &m[s].p;
        int32_t begin = r->segments[s];
        assert_int_equal(r->segments[s + 1] - begin, p->n);
        for (int32_t i = 0; i < p->n; i++) {
            int32_t at = k * T + begin + i, j = i + k, t = j + 1, in_run = p->n_runs && j >= 1 && j <= m[s].run[0].n;
            assert_int_equal(r->ids[at], j < p->n ? p->ids[j] : -1);
            assert_int_equal(r->labels[at], t < p->n && p->train[t] ? p->ids[t] : -1);
            assert_int_equal(r->media[at], j < p->n && in_run ? row + j - 1 : -1);
        }
        row += p->n_runs ? m[s].run[0].n : 0;
    }
    for (int32_t i = r->n_tokens; i < T; i++)
        assert_true(r->ids[k * T + i] == -1 && r->labels[k * T + i] == -1 && r->media[k * T + i] == -1);
    int32_t n = 0;
    for (int32_t i = 0; i < T; i++) {
        if (r->labels[k * T + i] >= 0) assert_int_equal(r->trained[k * T + n++], i);
        if (i == 0) continue;
        int32_t x = r->order[k * T + i - 1], y = r->order[k * T + i], ix = r->ids[k * T + x], iy = r->ids[k * T + y];
        assert_true(ix < iy || (ix == iy && x < y));
    }
    assert_int_equal(n, r->trained_count[k]);
    if (n < T) assert_int_equal(r->trained[k * T + n], -1);
}

static void check_lists(const st_packed_row *r, const made *m)
{
    int32_t covered = 0, last = 0;
    for (int32_t i = 0; i < st_shape_tile_capacity(&r->shape, 0); i++) {
        const int32_t *t = r->tiles[0] + 3 * i;
        if (t[2] == 0) continue;
        assert_int_equal(t[1], covered); /* in order, nothing left out, no border crossed */
        assert_true(t[0] >= last && t[2] <= 4 && t[1] >= r->segments[t[0]] && t[1] + t[2] <= r->segments[t[0] + 1]);
        last = t[0];
        covered += t[2];
    }
    assert_int_equal(covered, r->shape.tokens);
    int64_t byte = 0;
    for (int32_t s = 0, item = 0; s < r->n_sequences; s++) {
        if (!m[s].p.n_items) continue;
        assert_int_equal(r->plans[item].rows, m[s].item[0].plan.rows);
        assert_memory_equal(r->payload + byte, m[s].pixels, (size_t)r->plans[item].payload);
        byte += r->plans[item++].payload;
    }
    for (int64_t i = byte; i < r->shape.caps.payload; i++) assert_int_equal(r->payload[i], 0);
}

static void by_rule(void **state)
{
    st_arena *arena = st_arena_create(0);
    st_error e = {0};
    st_packed_row *r;
    made m[3];
    int rows = 0, refused = 0;
    assert_int_equal(st_row_create(arena, &shape, &r, &e), ST_OK);
    for (int64_t seed = 0; rows < 500; rows++) {
        st_row_clear(r);
        for (int fits = 1; fits; seed += fits) {
            made next;
            make(&next, seed);
            next.p.ids = next.ids; /* the copy below moves it */
            assert_int_equal(st_row_add(r, &next.p, &fits, &e), ST_OK);
            if (!fits) {
                refused++;
                assert_true(r->n_sequences > 0); /* alone everything fits */
                continue;
            }
            made *to = &m[r->n_sequences - 1];
            make(to, seed);
        }
        assert_int_equal(st_row_finish(r, &encoder, NULL, NULL, &e), ST_OK);
        for (int32_t k = 0; k <= shape.depths; k++) check_depth(r, m, k);
        check_lists(r, m);
    }
    assert_int_equal(refused, 500);
    st_arena_destroy(arena);
}

static void what_never_fits(void **state)
{
    st_arena *arena = st_arena_create(0);
    st_packed_row *r;
    int32_t ids[16] = {0}, pos[32] = {0};
    uint8_t zeros[16] = {0};
    st_media_run run[2] = {{0, 3, ST_MEDIA_IMAGE, 0, {1, 1, 3}, 0}};
    st_item item[4] = {{{.rows = 3, .units = 12, .spans = 1, .payload = 64}, NULL}};
    st_prepared p = {11, 0, 0, ids, zeros, zeros, pos, run, item, 0, "", 0};
    st_error e = {0};
    int fits;
    assert_int_equal(st_row_create(arena, &shape, &r, &e), ST_OK);
    assert_int_equal(st_row_add(r, &p, &fits, &e), ST_E_DATA); /* max_len 10 */
    assert_non_null(strstr(e.message, "11"));
    p.n = 10;
    p.n_runs = p.n_items = 1;
    memset(&e, 0, sizeof e);
    assert_int_equal(st_row_add(r, &p, &fits, &e), ST_OK); /* a payload of another rank: left zero */
    item[0].plan.rows = 4;                                 /* one feature without a placeholder */
    assert_int_equal(st_row_check(&shape, &p, &e), ST_E_INTERNAL);
    item[0].plan.rows = 3;
    item[0].plan.payload = 1024;
    memset(&e, 0, sizeof e);
    assert_int_equal(st_row_check(&shape, &p, &e), ST_E_DATA);
    assert_non_null(strstr(e.message, "1024"));
    item[0].plan.payload = 64;
    run[0].first = 8; /* runs past the end */
    memset(&e, 0, sizeof e);
    assert_int_equal(st_row_check(&shape, &p, &e), ST_E_INTERNAL);
    st_row_shape text = shape;
    text.media = 0;
    run[0].first = 0;
    memset(&e, 0, sizeof e);
    assert_int_equal(st_row_check(&text, &p, &e), ST_E_DATA);
    text.tokens = 0;
    memset(&e, 0, sizeof e);
    assert_int_equal(st_row_create(arena, &text, &r, &e), ST_E_CONFIG);
    st_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_hand), cmocka_unit_test(by_rule),
                                       cmocka_unit_test(what_never_fits)};
    return cmocka_run_group_tests_name("row", tests, NULL, NULL);
}
