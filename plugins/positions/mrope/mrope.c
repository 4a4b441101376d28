/* SPDX-License-Identifier: Apache-2.0 */
/* positions/mrope - three ids per token (time, row, column). Text counts all three together; a picture's tokens
 * share one time and spread over rows and columns; what follows goes on behind the picture's longer side. Each
 * frequency of a head follows one axis, by `section`. */
#include "../rotary/rotary.h"

enum { FAMILY_NONE = 0, FAMILY_QWEN35 };
struct mrope { st_ints section; double base, rotary_percent; int32_t interleaved, family; };

static int32_t section_sum(const struct mrope *m)
{
    return m->section.v[0] + m->section.v[1] + m->section.v[2];
}

/* An interleaved split has fixed places per axis, so not every section can be had: 2,6,0 asks for more rows than
 * there are. */
static int check_split(const struct mrope *m, st_env *e)
{
    int32_t got[ROTARY_AXES] = {0, 0, 0}, half = section_sum(m);
    const int32_t *v = m->section.v;

    for (int32_t i = 0; i < half; i++)
        got[rotary_axis(v, m->interleaved, i)]++;
    for (int a = 0; a < ROTARY_AXES; a++)
        if (got[a] != v[a])
            return ST_ENV_FAIL_KEY(e, "section", ST_E_CONFIG,
                                   "section = %d,%d,%d: interleaved, %d frequencies split into %d,%d,%d instead; "
                                   "spread them evenly or set interleaved = no",
                                   v[0], v[1], v[2], half, got[0], got[1], got[2]);
    return ST_OK;
}

static int configure(void *self, st_env *e)
{
    const struct mrope *m = self;

    if (m->section.n != ROTARY_AXES)
        return ST_ENV_FAIL_KEY(e, "section", ST_E_CONFIG,
                               "section has %d numbers: give three, the frequencies of time, row and column, for "
                               "example 11,11,10",
                               (int)m->section.n);
    if (m->family == FAMILY_QWEN35 && !m->interleaved)
        return ST_ENV_FAIL_KEY(e, "interleaved", ST_E_CONFIG,
                               "interleaved = no: family = qwen3.5 needs interleaved = yes");
    return e->status;
}

static int rotary_dim(const void *self, st_env *e, int32_t head_dim)
{
    const struct mrope *m = self;
    const int32_t *v = m->section.v;
    int32_t width = rotary_width(e, head_dim, m->rotary_percent);

    if (width == 0)
        return 0;
    if (section_sum(m) != width / 2) {
        ST_ENV_FAIL_KEY(e, "section", ST_E_CONFIG,
                        "section = %d,%d,%d sums to %d: must be %d, half of the %d columns that rotate (head_dim %d x "
                        "rotary_percent %g)",
                        v[0], v[1], v[2], section_sum(m), width / 2, width, (int)head_dim, m->rotary_percent);
        return 0;
    }
    if (m->family == FAMILY_QWEN35 && head_dim == 256 && width == 64 && (v[0] != 11 || v[1] != 11 || v[2] != 10)) {
        ST_ENV_FAIL_KEY(e, "section", ST_E_CONFIG,
                        "section = %d,%d,%d: family = qwen3.5 needs 11,11,10 at head_dim %d x rotary_percent %g", v[0],
                        v[1], v[2], (int)head_dim, m->rotary_percent);
        return 0;
    }
    return check_split(m, e) == ST_OK ? width : 0;
}

static int check_run(const st_worker *w, const st_sequence *q, const st_media_run *run, int32_t i)
{
    int64_t cells = (int64_t)run->grid[0] * run->grid[1];

    if (run->first < i || run->n < 1 || run->n > q->n_real - run->first)
        return ST_WORKER_FAIL(w, ST_E_INTERNAL,
                              "media item %d: placeholders %d to %lld do not lie between token %d and the end "
                              "of the sequence at %d",
                              (int)run->item, (int)run->first, (long long)run->first + run->n, (int)i, (int)q->n_real);
    if (run->grid[0] < 1 || run->grid[1] < 1 || run->grid[2] < 1 || cells > run->n || cells * run->grid[2] != run->n)
        return ST_WORKER_FAIL(w, ST_E_DATA,
                              "media item %d: %d placeholders stand in the text, but its grid of %d x %d x %d "
                              "tokens needs another number",
                              (int)run->item, (int)run->n, (int)run->grid[0], (int)run->grid[1], (int)run->grid[2]);
    return ST_OK;
}

static int assign(const void *self, const st_worker *w, const st_sequence *q, int32_t *pos)
{
    int32_t *t = pos, *y = pos + q->n, *x = pos + 2 * (int64_t)q->n, i = 0, next = 0;

    for (int32_t r = 0; r < q->n_runs; r++) {
        const st_media_run *run = &q->runs[r];
        ST_TRY(check_run(w, q, run, i));
        for (; i < run->first; i++, next++)
            t[i] = y[i] = x[i] = next;
        for (int32_t a = 0; a < run->grid[0]; a++)
            for (int32_t b = 0; b < run->grid[1]; b++)
                for (int32_t c = 0; c < run->grid[2]; c++, i++) {
                    t[i] = next + a;
                    y[i] = next + b;
                    x[i] = next + c;
                }
        next += run->grid[1] > run->grid[2] ? run->grid[1] : run->grid[2];
    }
    for (; i < q->n; i++, next++)
        t[i] = y[i] = x[i] = next;
    return ST_OK;
}

static int tables(const void *self, st_step *s, int32_t head_dim, const st_tensor *pos, const st_rotary *out)
{
    const struct mrope *m = self;

    return rotary_launch(s, pos, out, m->base, m->section.v, m->interleaved);
}

static const st_param params[] = {
    ST_INTS(struct mrope, section, NULL, 0, 4096, ST_PF_REQUIRED | ST_PF_FIXED,
            "frequencies that follow time, row and column; they sum to half of the columns that rotate"),
    ST_FLOAT(struct mrope, base, "1e7", 1, 1e12, "", ST_PF_FIXED, "frequency i is base^(-2i / columns that rotate)"),
    ST_FLOAT(struct mrope, rotary_percent, "0.25", 0, 1, "", ST_PF_FIXED, "share of a head's columns that rotate"),
    ST_BOOL(struct mrope, interleaved, "yes", ST_PF_FIXED,
            "axes take turns (t h w t h w ...) instead of lying in three blocks"),
    ST_CHOICE(struct mrope, family, "none", "none|qwen3.5", ST_PF_SHARED,
              "also check the rules of a model family; not given: that of [stack]"),
};

static const st_position_ops ops = {
    .size = sizeof ops, .axes = ROTARY_AXES, .configure = configure, .assign = assign, .rotary_dim = rotary_dim,
    .tables = tables,
};

ST_PLUGIN_V1(ST_KIND_POSITION, struct mrope, ops, ST_PARAMS(params),
    ST_KERNEL_TABLE(ROTARY_IFACE, struct rotary_kernels),
    .caps = ST_CAP_TRAIN | ST_CAP_SHIFTABLE,
    .name = "mrope",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "the strata authors",
    .summary = "rotary positions over time, row and column",
    .description = "Multimodal rotary position embedding: text counts on all axes together, the tokens of a "
                   "picture are placed by their row and column.")
