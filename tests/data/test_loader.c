/* SPDX-License-Identifier: Apache-2.0 */
/* tests/data/test_loader.c - the whole data path over the shipped data sets: order, determinism, save and restore,
 * samples that are set aside, borrowed media, mistakes in the spec. The encoder and position plugin are small ones of
 * this file. */
#include "config.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "data/loader_priv.h"
#include <strata/dataset.h>

/* ---- a small encoder: one feature per 16 x 16 pixels, pixels as payload ---- */

static int measure(const void *self, const st_worker *w, const st_media *m, st_media_plan *p)
{
    p->grid[0] = 1;
    p->grid[1] = (m->height + 15) / 16;
    p->grid[2] = (m->width + 15) / 16;
    p->rows = p->units = p->grid[1] * p->grid[2];
    p->spans = 1;
    p->payload = ((int64_t)m->width * m->height * 3 + 63) / 64 * 64;
    return p->rows < 4096 ? ST_OK : st_fail(w->error, ST_E_DATA, "too many patches");
}
static int layout(const void *self, const st_worker *w, const st_media *m, const st_media_plan *p, st_layout *out)
{
    const char *pad = self ? self : "<|image_pad|>";
    ST_TRY(out->text(out->ctx, "<|vision_start|>", 16));
    ST_TRY(out->rows(out->ctx, pad, p->grid));
    return out->text(out->ctx, "<|vision_end|>", 14);
}
static int prepare(const void *self, const st_worker *w, const st_media *m, const st_media_plan *p, void *payload)
{
    memcpy(payload, m->rgb, (size_t)m->width * (size_t)m->height * 3);
    return ST_OK;
}
static int collate(const void *self, const st_worker *w, const st_media_caps *c, const st_media_plan *p, int32_t n,
                   int32_t *meta)
{
    meta[0] = n;
    return ST_OK;
}
static const st_encoder_ops encoder_ops = {
    .size = sizeof encoder_ops, .measure = measure, .layout = layout, .prepare = prepare, .collate = collate};
static const st_plugin encoder_plugin = {ST_PLUGIN_HEAD(ST_KIND_ENCODER), .name = "test", .version = "1",
                                         .ops = &encoder_ops};

static int assign(const void *self, const st_worker *w, const st_sequence *q, int32_t *pos)
{
    for (int32_t i = 0; i < q->n; i++) pos[i] = i + 1000 * q->n_runs;
    return ST_OK;
}
static const st_position_ops position_ops = {.size = sizeof position_ops, .axes = 1, .assign = assign};
static const st_plugin position_plugin = {ST_PLUGIN_HEAD(ST_KIND_POSITION), .name = "test", .version = "1",
                                          .ops = &position_ops};

/* ---- a world: spec text -> loader ---- */

typedef struct world {
    st_base *base;
    st_spec *spec;
    st_registry *registry;
    st_row_shape shape;
    st_instance encoder, position;
    st_data_context context;
    st_loader *loader;
    st_arena *arena;
    st_packed_row *row[3];
    st_diags diags;
} world;

static const st_row_shape usual = {
    .tokens = 256,
    .sequences = 8,
    .max_len = 200,
    .axes = 1,
    .depths = 1,
    .n_tiles = 1,
    .tile = {64},
    .media = 1,
    .caps = {.payload = 1 << 20, .units = 256, .rows = 256, .meta = 4, .items = 8, .spans = 8}};

static int open_world(world *w, const char *text, int shuffle, const char *pad)
{
    memset(w, 0, sizeof *w);
    w->shape = usual;
    w->arena = st_arena_create(0);
    if (st_base_create(&w->base, tmpfile(), 2, 2) ||
        st_spec_parse("test.ini", text, strlen(text), getenv("ST_SRCDIR"), &w->spec, &w->diags) ||
        st_registry_open_for(w->base, NULL, 0, w->spec, &w->registry, &w->diags))
        fail_msg("%s", w->diags.item[0].error.message);
    w->encoder = (st_instance){.plugin = &encoder_plugin, .self = (void *)(pad ? pad : ""), .section = "encoder"};
    if (!pad) w->encoder.self = (void *)"<|image_pad|>";
    w->position = (st_instance){.plugin = &position_plugin, .self = (void *)"", .section = "position"};
    w->context = (st_data_context){w->base, w->spec, w->registry, &w->shape, &w->position, &w->encoder, 700, 5};
    return st_loader_open(&w->context, "dataset.train", shuffle, &w->loader, &w->diags);
}

static void close_world(world *w)
{
    st_loader_close(w->loader);
    st_registry_close(w->registry);
    st_spec_destroy(w->spec);
    st_arena_destroy(w->arena);
    st_base_destroy(w->base);
}

static void must_open(world *w, const char *text, int shuffle)
{
    if (open_world(w, text, shuffle, NULL) != ST_OK) fail_msg("%s", w->diags.item[0].error.message);
    assert_int_equal(w->diags.n, 0);
    st_error e = {0};
    for (int i = 0; i < 3; i++) assert_int_equal(st_row_create(w->arena, &w->shape, &w->row[i], &e), ST_OK);
}

static uint64_t hash_row(const st_packed_row *r, uint64_t h)
{
    size_t all = sizeof(int32_t) * (size_t)r->shape.tokens * (size_t)(1 + r->shape.depths);
    h = st_hash64(r->ids, all, h);
    h = st_hash64(r->labels, all, h);
    h = st_hash64(r->trained, all, h);
    h = st_hash64(r->media, all, h);
    h = st_hash64(r->order, all, h);
    h = st_hash64(r->content, (size_t)r->shape.tokens, h);
    h = st_hash64(r->real, (size_t)r->shape.tokens, h);
    h = st_hash64(r->pos, sizeof(int32_t) * (size_t)r->shape.tokens, h);
    h = st_hash64(r->tiles[0], sizeof(int32_t) * 3 * (size_t)st_shape_tile_capacity(&r->shape, 0), h);
    h = st_hash64(r->sample, sizeof(int64_t) * (size_t)r->shape.sequences, h);
    return st_hash64(r->payload, (size_t)r->shape.caps.payload, h);
}

static uint64_t step(world *w, int32_t n, int32_t most, int *end)
{
    st_error e = {0};
    uint64_t h = 1;
    if (st_loader_next(w->loader, w->row, n, most, end, &e) != ST_OK) fail_msg("%s", e.message);
    for (int32_t i = 0; i < n; i++) h = hash_row(w->row[i], h);
    return h;
}

#define TOKENIZER "[tokenizer]\npath = tests/golden/tokenizer/tokenizer.json\n"
#define IDS "[dataset.train]\nplugin = mock\nsamples = 53\nmin_tokens = 5\nmax_tokens = 90\nvocab = 600\n"
#define PICTURES TOKENIZER "[dataset.train]\nplugin = mock\nsamples = 21\nimages = 1\nwidth = 48\nheight = 32\n"

/* ---- order ---- */

static void every_record_once(void **state)
{
    world w;
    int end, seen[3][53] = {{0}}, first[3] = {0}, n = 0;
    must_open(&w, IDS, 1);
    while (n < 3 * 53) {
        step(&w, 2, 0, &end);
        assert_int_equal(end, 0);
        for (int r = 0; r < 2; r++)
            for (int32_t i = 0; i < w.row[r]->n_sequences && n < 3 * 53; i++, n++) {
                if (n % 53 == 0) first[n / 53] = (int)w.row[r]->sample[i];
                seen[n / 53][w.row[r]->sample[i]]++;
            }
    }
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 53; i++) assert_int_equal(seen[k][i], 1);
    assert_true(first[0] != first[1] || first[1] != first[2]);
    close_world(&w);
}

static void one_pass(void **state)
{
    world w;
    int end = 0;
    int64_t next = 0;
    must_open(&w, IDS, 0);
    for (int pass = 0; pass < 2; pass++, next = 0) {
        for (end = 0; !end;) {
            step(&w, 1, 3, &end);
            assert_true(w.row[0]->n_sequences <= 3);
            for (int32_t i = 0; i < w.row[0]->n_sequences; i++) assert_int_equal(w.row[0]->sample[i], next++);
        }
        assert_int_equal(next, 53);
        step(&w, 1, 0, &end);
        assert_true(end == 1 && w.row[0]->n_sequences == 0);
        st_loader_rewind(w.loader);
    }
    st_loader_state s;
    st_loader_save(w.loader, &s);
    assert_true(s.next == 0 && s.seen == 0);
    close_world(&w);
}

/* Threads, prefetch and cache never show in what comes out. */
static void same_bytes(void **state)
{
    static const char *const how[] = {"[data]\nworkers = 1\nprefetch = no\n", "[data]\nworkers = 2\n",
                                      "[data]\ncache = 0\n", "[data]\nworkers = 3\ncache = 20KiB\n",
                                      "[data]\nworkers = 2\nprefetch = no\ncache = 0\n"};
    static const char *const what[] = {IDS, PICTURES};
    for (int k = 0; k < 2; k++) {
        uint64_t want[12];
        for (int v = 0; v < 5; v++) {
            world w;
            int end;
            char *text = NULL;
            assert_true(asprintf(&text, "%s%s", what[k], how[v]) > 0);
            must_open(&w, text, 1);
            for (int i = 0; i < 12; i++) {
                uint64_t h = step(&w, 3, 11, &end);
                if (v == 0) want[i] = h;
                assert_true(h == want[i]);
            }
            close_world(&w);
            free(text);
        }
    }
}

static void save_and_restore(void **state)
{
    uint64_t want[30];
    st_loader_state at[30];
    world w;
    int end;
    must_open(&w, IDS, 1);
    for (int i = 0; i < 30; i++) {
        st_loader_save(w.loader, &at[i]);
        want[i] = step(&w, 2, 0, &end);
    }
    for (int from = 29; from >= 0; from -= 3) {
        world other;
        st_error e = {0};
        must_open(&other, IDS, 1);
        assert_int_equal(st_loader_restore(other.loader, &at[from], &e), ST_OK);
        for (int i = from; i < 30; i++) {
            st_loader_state s;
            st_loader_save(other.loader, &s);
            assert_memory_equal(&s, &at[i], sizeof s);
            assert_true(step(&other, 2, 0, &end) == want[i]);
        }
        close_world(&other);
    }
    st_loader_state wrong = {0, 54, 0, 0};
    st_error e = {0};
    assert_int_equal(st_loader_restore(w.loader, &wrong, &e), ST_E_CONFIG);
    close_world(&w);
}

/* ---- media ---- */

static void borrowed_media(void **state)
{
    world w;
    int end;
    static uint8_t own[21][48 * 32 * 3];
    int32_t ids[256];
    must_open(&w, PICTURES, 0);
    for (int i = 0; i < 21; i++) {
        step(&w, 1, 1, &end);
        memcpy(own[w.row[0]->sample[0]], w.row[0]->payload, sizeof own[0]);
        if (i == 0) memcpy(ids, w.row[0]->ids, sizeof ids);
    }
    st_loader_rewind(w.loader);
    st_loader_permute_media(w.loader, 1);
    for (int i = 0; i < 21; i++) {
        step(&w, 1, 1, &end);
        assert_memory_equal(w.row[0]->payload, own[(i + 1) % 21], sizeof own[0]);
        if (i == 0) assert_memory_equal(w.row[0]->ids, ids, sizeof ids);
        assert_int_equal(w.row[0]->pos[0], 1000);
    }
    close_world(&w);
}

static void mock_pictures(void **state)
{
    world w;
    int end, placeholders = 0;
    must_open(&w, PICTURES, 0);
    step(&w, 1, 1, &end);
    for (int i = 0; i < 256; i++) placeholders += w.row[0]->media[i] >= 0;
    assert_int_equal(placeholders, 6);
    assert_int_equal(w.row[0]->plans[0].rows, 6);
    st_prepared p;
    st_error e = {0};
    const char *text;
    assert_int_equal(st_loader_sample(w.loader, 0, 0, w.arena, &p, &text, &e), ST_OK);
    assert_int_equal(strlen(text), 7);
    for (int k = 0; k < 4; k++) { /* the answer spells the gray levels of the four fields */
        const uint8_t *px = w.row[0]->payload + 3 * ((k / 2 * 31) * 48 + k % 2 * 47);
        assert_int_equal(text[2 * k] - '0', (px[0] * 9 + 127) / 255);
    }
    int32_t whole = p.n;
    assert_int_equal(st_loader_sample(w.loader, 0, 1, w.arena, &p, &text, &e), ST_OK);
    assert_true(p.n < whole && p.n_items == 1 && p.items[0].payload && p.n_runs == 1);
    for (int32_t i = 0; i < p.n; i++) assert_int_equal(p.train[i], 0);
    assert_int_equal(st_loader_sample(w.loader, 21, 1, w.arena, &p, &text, &e), ST_E_NOTFOUND);
    assert_int_equal(st_loader_end_of_turn(w.loader), st_tokenizer_id(st_loader_tokenizer(w.loader), "<|im_end|>"));
    close_world(&w);
}

/* ---- samples that cannot be used, and too long ones ---- */

static char folder[64];

static void write_set(const char *lines)
{
    st_arena *a = st_arena_create(0);
    st_error e = {0};
    char *png;
    size_t n;
    if (!folder[0]) assert_non_null(mkdtemp(strcpy(folder, "/tmp/strata-loader-XXXXXX")));
    assert_int_equal(
        st_file_read(st_arena_printf(a, "%s/tests/golden/pictures/png_rgb8.png", getenv("ST_SRCDIR")), a, &png, &n, &e),
        ST_OK);
    assert_int_equal(st_file_write_atomic(st_arena_printf(a, "%s/a.png", folder), png, n, &e), ST_OK);
    assert_int_equal(st_file_write_atomic(st_arena_printf(a, "%s/empty.png", folder), "", 0, &e), ST_OK);
    assert_int_equal(st_file_write_atomic(st_arena_printf(a, "%s/metadata.jsonl", folder), lines, strlen(lines), &e),
                     ST_OK);
    st_arena_destroy(a);
}

static int open_set(world *w, const char *more)
{
    char *text = NULL;
    assert_true(asprintf(&text, TOKENIZER "[dataset.train]\nplugin = cord_v2\npath = %s\n%s", folder, more) > 0);
    int rc = open_world(w, text, 0, NULL);
    st_error e = {0};
    for (int i = 0; i < 3; i++) assert_int_equal(st_row_create(w->arena, &w->shape, &w->row[i], &e), ST_OK);
    free(text);
    return rc;
}

#define GOOD "{\"file_name\": \"a.png\", \"ground_truth\": \"{\\\"gt_parse\\\": {\\\"nm\\\": \\\"tea\\\"}}\"}\n"
#define BLANK "{\"file_name\": \"a.png\", \"ground_truth\": \"{\\\"gt_parse\\\": {}}\"}\n"
#define NO_FILE "{\"file_name\": \"none.png\", \"ground_truth\": \"{\\\"gt_parse\\\": {\\\"nm\\\": \\\"tea\\\"}}\"}\n"
#define NO_BYTES "{\"file_name\": \"empty.png\", \"ground_truth\": \"{\\\"gt_parse\\\": {\\\"nm\\\": \\\"tea\\\"}}\"}\n"

static void set_aside(void **state)
{
    world w;
    int end;
    st_loader_state s;
    st_error e = {0};
    write_set(GOOD "\n{broken\n" GOOD NO_FILE NO_BYTES BLANK GOOD);
    assert_int_equal(open_set(&w, ""), ST_OK);
    assert_int_equal(st_loader_count(w.loader), 7);
    for (int pass = 0; pass < 2; pass++) {
        step(&w, 2, 0, &end);
        assert_int_equal(end, 1);
        assert_int_equal(w.row[0]->n_sequences, 3);
        assert_true(w.row[0]->sample[0] == 0 && w.row[0]->sample[1] == 2 && w.row[0]->sample[2] == 6);
        st_loader_save(w.loader, &s);
        assert_true(s.bad == 4 && s.seen == 3);
        st_loader_rewind(w.loader);
    }
    close_world(&w);

    assert_int_equal(open_set(&w, "[data]\non_bad = stop\n"), ST_OK);
    assert_int_equal(st_loader_next(w.loader, w.row, 1, 0, &end, &e), ST_E_DATA);
    assert_non_null(strstr(e.message, "dataset.train: record 1: "));
    assert_non_null(strstr(e.message, "metadata.jsonl:3: "));
    close_world(&w);

    memset(&e, 0, sizeof e);
    assert_int_equal(open_set(&w, "[data]\nmax_bad = 2\n"), ST_OK);
    assert_int_equal(st_loader_next(w.loader, w.row, 1, 0, &end, &e), ST_E_DATA);
    assert_non_null(strstr(e.message, "max_bad"));
    close_world(&w);
}

static void counted_once(void **state) /* in a shuffled run over epochs, and none usable at all */
{
    world w;
    int end;
    st_loader_state s;
    st_error e = {0};
    write_set(GOOD NO_FILE GOOD);
    assert_int_equal(open_set(&w, ""), ST_OK);
    st_loader *plain = w.loader;
    st_diags d = {0};
    assert_int_equal(st_loader_open(&w.context, "dataset.train", 1, &w.loader, &d), ST_OK);
    for (int i = 0; i < 10; i++) step(&w, 1, 2, &end);
    st_loader_save(w.loader, &s);
    assert_true(s.bad == 1 && s.seen == 20);
    st_loader_close(plain);
    close_world(&w);

    write_set(NO_FILE NO_FILE);
    assert_int_equal(open_set(&w, ""), ST_OK);
    st_loader_close(w.loader);
    assert_int_equal(st_loader_open(&w.context, "dataset.train", 1, &w.loader, &d), ST_OK);
    assert_int_equal(st_loader_next(w.loader, w.row, 1, 0, &end, &e), ST_E_DATA);
    assert_non_null(strstr(e.message, "none of its 2 records"));
    close_world(&w);
}

static void looked_at(void **state) /* bounded by tokens and by records, and the place stays */
{
    world w;
    int end;
    st_look look;
    st_loader_state before, after;
    st_error e = {0};
    write_set(GOOD NO_FILE GOOD GOOD);
    assert_int_equal(open_set(&w, ""), ST_OK);
    st_loader_save(w.loader, &before);
    assert_int_equal(st_loader_look(w.loader, INT64_MAX, 64, &look, &e), ST_OK);
    assert_true(look.looked == 4 && look.usable == 3 && look.bad == 1 && look.n_named == 1);
    assert_non_null(strstr(look.named[0].message, "record 1 ("));
    assert_int_equal(st_loader_look(w.loader, 1, 64, &look, &e), ST_OK);
    assert_true(look.looked == 1 && look.usable == 1);
    assert_int_equal(st_loader_look(w.loader, INT64_MAX, 2, &look, &e), ST_OK);
    assert_true(look.looked == 2 && look.bad == 1);
    st_loader_save(w.loader, &after);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(st_loader_told(w.loader), 0);
    step(&w, 1, 2, &end);
    st_loader_save(w.loader, &after);
    assert_true(after.seen == 2 && after.bad == 1);
    close_world(&w);
}

static void too_long(void **state)
{
    world w;
    int end;
    st_buf b = {0};
    st_buf_puts(&b, "{\"file_name\": \"a.png\", \"ground_truth\": \"{\\\"gt_parse\\\": {\\\"nm\\\": \\\"");
    for (int i = 0; i < 3000; i++) st_buf_puts(&b, "xq ");
    st_buf_puts(&b, "\\\"}}\"}\n" GOOD);
    write_set(b.data);
    assert_int_equal(open_set(&w, ""), ST_OK); /* cut at the end: the picture and the start of the answer stay */
    step(&w, 1, 1, &end);
    assert_int_equal(w.row[0]->n_tokens, 200);
    assert_true(w.row[0]->labels[198] >= 0 && w.row[0]->labels[199] == -1);
    int placeholders = 0;
    for (int i = 0; i < 200; i++) placeholders += w.row[0]->media[i] >= 0;
    assert_int_equal(placeholders, w.row[0]->plans[0].rows);
    close_world(&w);

    assert_int_equal(open_set(&w, ""), ST_OK);
    w.shape.max_len = 10; /* not even the picture: set aside */
    for (int i = 0; i < 3; i++) assert_int_equal(st_row_create(w.arena, &w.shape, &w.row[i], &(st_error){0}), ST_OK);
    step(&w, 1, 0, &end);
    st_loader_state s;
    st_loader_save(w.loader, &s);
    assert_true(end == 1 && s.bad == 2 && w.row[0]->n_sequences == 0);
    close_world(&w);
    st_buf_free(&b);
}

/* ---- mistakes in the spec ---- */

static void spec_mistakes(void **state)
{
    static const struct {
        const char *text, *word;
        int line;
        const char *pad;
        int64_t vocab;
    } row[] = {
        {"[tokenizer]\npath = none.json\n" IDS, "none.json", 2, NULL, 700},
        {TOKENIZER IDS, "621 tokens", 2, NULL, 620},
        {TOKENIZER IDS "[encoder]\n", "<|no_pad|>", 9, "<|no_pad|>", 700},
        {TOKENIZER "[chat]\nuser_begin = <|user|>\n" IDS, "<|user|>", 4, NULL, 700},
        {"[data]\non_bad = perhaps\n" IDS, "perhaps", 2, NULL, 700},
        {"[dataset.train]\nplugin = mock\nimages = 1\n", "no [tokenizer]", 1, NULL, 700},
        {"[dataset.train]\nplugin = nothing\n", "nothing", 2, NULL, 700},
        {"[dataset.train]\nplugin = mock\nmin_tokens = 9\nmax_tokens = 3\n", "min_tokens", 3, NULL, 700},
        {TOKENIZER "[dataset.train]\nplugin = cord_v2\npath = nowhere\n", "metadata.jsonl", 5, NULL, 700},
        {TOKENIZER "[dataset.train]\nplugin = cord_v2\n", "path", 3, NULL, 700},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        world w;
        int rc = open_world(&w, row[i].text, 1, row[i].pad);
        if (rc == ST_OK) { /* the vocabulary is the caller's: try again with the smaller one */
            st_loader_close(w.loader);
            w.context.vocab = row[i].vocab;
            rc = st_loader_open(&w.context, "dataset.train", 1, &w.loader, &w.diags);
        }
        assert_true(rc != ST_OK && w.loader == NULL);
        if (w.diags.n != 1)
            fail_msg("%s: %d mistakes: %s", row[i].word, w.diags.n, w.diags.n ? w.diags.item[1].error.message : "");
        const st_error *e = &w.diags.item[0].error;
        if (!strstr(e->message, row[i].word) || e->line != row[i].line)
            fail_msg("line %d, '%s', expected line %d, %s", e->line, e->message, row[i].line, row[i].word);
        close_world(&w);
    }
}

static void told_once(void **state) /* two loaders share [chat]: one message */
{
    world w;
    st_loader *valid;
    open_world(&w, TOKENIZER "[chat]\nthink = maybe\n" IDS "[dataset.valid]\nplugin = mock\n", 1, NULL);
    assert_int_equal(w.diags.n, 1);
    assert_true(st_loader_open(&w.context, "dataset.valid", 0, &valid, &w.diags) != ST_OK);
    assert_int_equal(w.diags.n, 1);
    close_world(&w);
}

static void ids_outside(void **state) /* told before any record is read, else of the record */
{
    world w;
    int end;
    st_error e = {0};
    must_open(&w, IDS "[data]\non_bad = stop\n", 0);
    w.loader->preparer.vocab = 300;
    assert_int_equal(st_loader_next(w.loader, w.row, 1, 0, &end, &e), ST_E_DATA);
    assert_non_null(strstr(e.message, "0 to 299"));
    st_loader_close(w.loader);
    w.context.vocab = 599;
    assert_int_equal(st_loader_open(&w.context, "dataset.train", 0, &w.loader, &w.diags), ST_E_CONFIG);
    assert_non_null(strstr(w.diags.item[0].error.message, "ids 0 to 599, the model's vocabulary 0 to 598"));
    assert_int_equal(w.diags.item[0].error.line, 6);
    w.context.vocab = 600;
    assert_int_equal(st_loader_open(&w.context, "dataset.train", 0, &w.loader, &w.diags), ST_OK);
    close_world(&w);
}

static int remove_folder(void **state)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return folder[0] ? system(command) : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_record_once), cmocka_unit_test(one_pass),       cmocka_unit_test(same_bytes),
        cmocka_unit_test(save_and_restore),  cmocka_unit_test(borrowed_media), cmocka_unit_test(mock_pictures),
        cmocka_unit_test(set_aside),         cmocka_unit_test(counted_once),   cmocka_unit_test(too_long),
        cmocka_unit_test(looked_at),         cmocka_unit_test(spec_mistakes),  cmocka_unit_test(told_once),
        cmocka_unit_test(ids_outside),
    };
    return cmocka_run_group_tests_name("loader", tests, NULL, remove_folder);
}
