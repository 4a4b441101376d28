/* SPDX-License-Identifier: Apache-2.0 */
/* datasets/mock - seeded synthetic samples for tests and benchmarks: no files, the same on every machine.
 *
 * images = 0: ready token ids, uniform over the vocabulary, of uniform length; the first `prompt` tokens are not
 * trained. images > 0: a chat with that many pictures of 2 x 2 gray fields and an answer that spells the fields'
 * levels, so a model that looks can learn it. Pictures are PNG files built here (stored, not compressed). */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <strata/dataset.h>

struct mock {
    int64_t samples, seed, min_tokens, max_tokens, prompt, vocab, images, width, height;
};

enum { STREAM_LENGTH = 1, STREAM_IDS, STREAM_LEVELS, LEVELS = 10, FIELDS = 4 };

/* Uniform over [0, n). Streams of different samples do not meet: i counts draws inside a sample. */
static int64_t draw(const struct mock *m, const st_host *h, int stream, int64_t sample, int64_t i, int64_t n)
{
    double u;
    h->uniform((uint64_t)m->seed, (uint64_t)sample * 8 + (uint64_t)stream, i, 1, &u);
    int64_t k = (int64_t)(u * (double)n);
    return k < n ? k : n - 1;
}

static int no_memory(const st_worker *w) { return ST_WORKER_FAIL(w, ST_E_NOMEM, "mock: no memory for a sample"); }

/* ---- ready ids ---- */

static int give_ids(const struct mock *m, const st_worker *w, int64_t index, st_sample *s)
{
    int64_t n = m->min_tokens + draw(m, w->host, STREAM_LENGTH, index, 0, m->max_tokens - m->min_tokens + 1);
    int32_t *ids = w->host->alloc(w->arena, sizeof *ids * (size_t)n);
    uint8_t *train = w->host->alloc(w->arena, (size_t)n);
    if (!ids || !train) return no_memory(w);
    for (int64_t i = 0; i < n; i++) {
        ids[i] = (int32_t)draw(m, w->host, STREAM_IDS, index, i, m->vocab);
        train[i] = i >= m->prompt;
    }
    s->ids = ids;
    s->train = train;
    s->n_ids = (int32_t)n;
    return ST_OK;
}

/* ---- pictures ---- */

typedef struct bytes {
    uint8_t *p;
    size_t n;
} bytes;

static void put32(bytes *b, uint32_t x)
{
    for (int shift = 24; shift >= 0; shift -= 8) b->p[b->n++] = (uint8_t)(x >> shift);
}

static uint32_t crc(const uint8_t *p, size_t n)
{
    uint32_t c = 0xFFFFFFFFu;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (0xEDB88320u & (0u - (c & 1)));
    }
    return ~c;
}

static size_t begin_chunk(bytes *b, uint32_t n, const char *type)
{
    put32(b, n);
    size_t at = b->n;
    memcpy(b->p + b->n, type, 4);
    b->n += 4;
    return at;
}

static void end_chunk(bytes *b, size_t at) { put32(b, crc(b->p + at, b->n - at)); }

static uint8_t pixel(const struct mock *m, const uint8_t level[FIELDS], int64_t x, int64_t y)
{
    return (uint8_t)(level[(y >= m->height / 2) * 2 + (x >= m->width / 2)] * 255 / (LEVELS - 1));
}

/* One zlib block for each row: filter byte and gray values. */
static void put_rows(const struct mock *m, bytes *b, const uint8_t level[FIELDS])
{
    uint32_t a = 1, c = 0, n = (uint32_t)m->width + 1; /* Adler-32 */
    for (int64_t y = 0; y < m->height; y++) {
        b->p[b->n++] = y + 1 == m->height;
        b->p[b->n++] = (uint8_t)n;
        b->p[b->n++] = (uint8_t)(n >> 8);
        b->p[b->n++] = (uint8_t)~n;
        b->p[b->n++] = (uint8_t)(~n >> 8);
        for (int64_t x = -1; x < m->width; x++) {
            uint8_t v = x < 0 ? 0 : pixel(m, level, x, y);
            b->p[b->n++] = v;
            a = (a + v) % 65521;
            c = (c + a) % 65521;
        }
    }
    put32(b, c << 16 | a);
}

static int make_png(const struct mock *m, const st_worker *w, const uint8_t level[FIELDS], bytes *b)
{
    uint32_t n = 2 + (uint32_t)m->height * (5 + (uint32_t)m->width + 1) + 4;
    b->p = w->host->alloc(w->arena, n + 128);
    b->n = 8;
    if (!b->p) return no_memory(w);
    memcpy(b->p, "\x89PNG\r\n\x1A\n", 8);
    size_t at = begin_chunk(b, 13, "IHDR");
    put32(b, (uint32_t)m->width);
    put32(b, (uint32_t)m->height);
    b->p[b->n++] = 8; /* bits */
    b->n += 4;        /* gray, deflate, adaptive filters, not interlaced: all 0 */
    end_chunk(b, at);
    at = begin_chunk(b, n, "IDAT");
    b->p[b->n++] = 0x78;
    b->p[b->n++] = 0x01;
    put_rows(m, b, level);
    end_chunk(b, at);
    end_chunk(b, begin_chunk(b, 0, "IEND"));
    return ST_OK;
}

static int give_chat(const struct mock *m, const st_worker *w, int64_t index, st_sample *s)
{
    static const char question[] = "How light are the fields?";
    st_part *part = w->host->alloc(w->arena, sizeof *part * (size_t)(m->images + 2));
    st_turn *turn = w->host->alloc(w->arena, sizeof *turn * 2);
    size_t n = (size_t)m->images * FIELDS * 2;
    char *text = w->host->alloc(w->arena, n);
    st_text_mark *marks = w->host->alloc(w->arena, sizeof *marks * (n / 2));
    if (!part || !turn || !text || !marks) return no_memory(w);
    for (int64_t i = 0; i < m->images; i++) {
        uint8_t level[FIELDS];
        bytes png;
        for (int64_t k = 0; k < FIELDS; k++) {
            int64_t at = i * FIELDS + k;
            level[k] = (uint8_t)draw(m, w->host, STREAM_LEVELS, index, at, LEVELS);
            text[2 * at] = (char)('0' + level[k]);
            text[2 * at + 1] = ' ';
            marks[at] = (st_text_mark){(uint32_t)(2 * at), 1};
        }
        ST_TRY(make_png(m, w, level, &png));
        part[i] = (st_part){.type = ST_PART_IMAGE, .bytes = png.p, .n_bytes = png.n};
    }
    part[m->images] = (st_part){.type = ST_PART_TEXT, .text = question, .n_text = sizeof question - 1};
    part[m->images + 1] =
        (st_part){.type = ST_PART_TEXT, .text = text, .n_text = n - 1, .marks = marks, .n_marks = (int32_t)(n / 2)};
    turn[0] = (st_turn){.role = "user", .parts = part, .n_parts = (int32_t)m->images + 1};
    turn[1] = (st_turn){.role = "assistant", .parts = part + m->images + 1, .n_parts = 1, .train = 1};
    s->turns = turn;
    s->n_turns = 2;
    return ST_OK;
}

/* ---- the plugin ---- */

static int mock_open(void *self, const st_worker *w, const char *split)
{
    struct mock *m = self;
    if (m->min_tokens > m->max_tokens)
        return ST_WORKER_FAIL(w, ST_E_CONFIG, "min_tokens = %lld is more than max_tokens = %lld",
                              (long long)m->min_tokens, (long long)m->max_tokens);
    if (m->prompt >= m->min_tokens)
        return ST_WORKER_FAIL(w, ST_E_CONFIG, "prompt = %lld leaves no trained token of min_tokens = %lld",
                              (long long)m->prompt, (long long)m->min_tokens);
    return ST_OK;
}

static int64_t mock_count(const void *self) { return ((const struct mock *)self)->samples; }

static int64_t mock_ids(const void *self)
{
    const struct mock *m = self;
    return m->images > 0 ? 0 : m->vocab;
}

static int mock_get(const void *self, const st_worker *w, int64_t index, st_sample *s)
{
    const struct mock *m = self;
    char *id = w->host->alloc(w->arena, 32);
    if (!id) return no_memory(w);
    snprintf(id, 32, "mock-%lld", (long long)index);
    s->id = id;
    return m->images > 0 ? give_chat(m, w, index, s) : give_ids(m, w, index, s);
}

static const st_param params[] = {
    ST_INT(struct mock, samples, "1000", 1, 1e12, "samples", 0, "records"),
    ST_INT(struct mock, seed, "1", 0, 1e15, "", 0, "of lengths, ids and pictures"),
    ST_INT(struct mock, min_tokens, "64", 2, 1 << 24, "tokens", 0, "shortest sample of ready ids"),
    ST_INT(struct mock, max_tokens, "64", 2, 1 << 24, "tokens", 0, "longest sample of ready ids"),
    ST_INT(struct mock, prompt, "1", 1, 1 << 24, "tokens", 0, "so many at the start of ready ids are not trained"),
    ST_INT(struct mock, vocab, "256", 1, 1 << 28, "words", 0, "ready ids are below this"),
    ST_INT(struct mock, images, "0", 0, 64, "pictures", 0, "pictures in one sample; 0: ready ids instead of a chat"),
    ST_INT(struct mock, width, "64", 2, 16384, "pixels", 0, "of a picture"),
    ST_INT(struct mock, height, "64", 2, 16384, "pixels", 0, "of a picture"),
};

static const st_dataset_ops ops = {.size = sizeof ops, .open = mock_open, .count = mock_count, .get = mock_get, .ids = mock_ids};

ST_PLUGIN_V1(ST_KIND_DATASET, struct mock, ops, ST_PARAMS(params),
    .name = "mock",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "the strata authors",
    .summary = "seeded synthetic samples, no files",
    .description = "Ready token ids of random length, or pictures of four gray fields with an answer that spells "
                   "them.")
