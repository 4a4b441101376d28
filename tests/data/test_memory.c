/* SPDX-License-Identifier: Apache-2.0 */
/* tests/data/test_memory.c - what takes its memory from an arena, with an arena that ends everywhere: told each time,
 * and right as soon as there is enough. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/image.h"
#include "data/sequence.h"
#include "data/tokenizer.h"
#include "model/row.h"

typedef struct material {
    st_arena *arena;
    const st_tokenizer *tokenizer;
    const char *picture;
    size_t n_picture;
} material;

static char *golden(st_arena *a, const char *name)
{
    return st_arena_printf(a, "%s/tests/golden/%s", getenv("ST_SRCDIR"), name);
}

/* Larger arenas until one is enough; -> how many were not. */
static int grow(int (*work)(const material *, st_arena *, st_error *), const material *m)
{
    int short_ones = 0;

    for (size_t limit = 64; limit < (size_t)1 << 24; limit += limit / 8 + 63, short_ones++) {
        st_arena *a = st_arena_create(limit);
        st_error e = {0};
        int rc = work(m, a, &e);
        st_arena_destroy(a);
        if (rc == ST_OK) return short_ones;
        if (rc != ST_E_NOMEM || e.code != rc || !strstr(e.message, "no memory"))
            fail_msg("with %zu bytes: %s (%s)", limit, e.message, st_code_name(rc));
    }
    fail_msg("16 MiB were not enough");
    return 0;
}

static int read_file(const material *m, st_arena *a, st_error *e)
{
    char *text;
    size_t n;

    return st_file_read(golden(m->arena, "tokenizer/merges_strings.json"), a, &text, &n, e);
}

static int decode_picture(const material *m, st_arena *a, st_error *e)
{
    st_image_rules rules = {.alpha = ST_ALPHA_WHITE, .max_pixels = 1 << 24};
    st_image image;

    return st_image_decode(m->picture, m->n_picture, &rules, a, &image, e);
}

static int encode_text(const material *m, st_arena *a, st_error *e)
{
    static const char text[] = "hello world, caf\xC3\xA9 cafe\xCC\x81 <|im_end|> 12345";
    st_tokens k;

    return st_tokenizer_encode(m->tokenizer, text, sizeof text - 1, 1, a, &k, e);
}

static int make_row(const material *m, st_arena *a, st_error *e)
{
    static const st_row_shape shape = {
        .tokens = 512,
        .sequences = 8,
        .max_len = 512,
        .axes = 3,
        .depths = 2,
        .n_tiles = 1,
        .tile = {64},
        .media = 1,
        .caps = {.payload = 4096, .units = 64, .rows = 16, .meta = 8, .items = 3, .spans = 3}};
    st_packed_row *row;

    return st_row_create(a, &shape, &row, e);
}

static int blank_sequence(const material *m, st_arena *a, st_error *e)
{
    st_worker w = {.size = sizeof w, .arena = a, .error = e};
    st_prepared p;

    return st_sequence_blank(&w, 500, 3, 1, &p);
}

static bool is_letter(void *ctx, char symbol) { return symbol >= 'A' && symbol <= 'Z'; }

static int parse_pattern(const material *m, st_arena *a, st_error *e)
{
    const st_symbols symbols = {.known = is_letter};
    st_pattern p;

    return st_pattern_parse("((AB)x20CD)x30/AB/AB", &symbols, 0, a, &p, e);
}

static void every_limit(void **state)
{
    static const char *const pictures[] = {"pictures/png_adam7.png", "pictures/png_pal8_trns.png",
                                           "pictures/jpg_progressive.jpg", "pictures/jpg_exif6_le.jpg"};
    static int (*const work[])(const material *, st_arena *, st_error *) = {read_file, encode_text, make_row,
                                                                            blank_sequence, parse_pattern};
    material m = {.arena = st_arena_create(0)};
    st_tokenizer *t;
    st_error e = {0};
    char *bytes;

    assert_int_equal(st_tokenizer_open(golden(m.arena, "tokenizer/merges_strings.json"), &t, &e), ST_OK);
    m.tokenizer = t;
    for (size_t i = 0; i < ST_COUNT(work); i++) assert_true(grow(work[i], &m) > 0);
    for (size_t i = 0; i < ST_COUNT(pictures); i++) {
        assert_int_equal(st_file_read(golden(m.arena, pictures[i]), m.arena, &bytes, &m.n_picture, &e), ST_OK);
        m.picture = bytes;
        assert_true(grow(decode_picture, &m) > 0);
    }
    st_tokenizer_close(t);
    st_arena_destroy(m.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_limit)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
