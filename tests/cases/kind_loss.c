/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/kind_loss.c - the loss is the mean over all trained tokens of a step, however its rows are cut; a step
 * without any is told and changes nothing. The model here has prescribed losses: its layer adds nothing, so a token
 * gives the logits of its column of the head. */
#include "config.h"

#include "cases.h"
#include <jansson.h>
#include <math.h>

typedef struct loss_row {
    const char *file, *text;
} loss_row;
static const loss_row rows[] = {
    {"loss/tokens.json", "{\"micro_batches\": [[2.0, 2.0, 2.0, 2.0, 2.0, 2.0], [8.0], [], [4.0, 4.0]],\n"
                         " \"mean_over_tokens\": 3.111111111111111, \"wrong_mean_of_means\": 4.666666666666667}\n"},
    {"loss/all_masked.json", "{\"micro_batches\": [[], [], []]}\n"},
};

static void make(const cases *c, const void *row)
{
    const loss_row *r = row;
    case_put_text(c, r->file, r->text);
}

/* ---- a model with prescribed losses ---- */

enum { WIDTH = 8, MOST = 16, TARGET = WIDTH - 1 }; /* ids 0 .. 6 have a loss each; TARGET is what comes next */
typedef struct world {
    case_run run;
    const cases *cases;
    double loss[WIDTH]; /* of the target behind each id */
    int32_t ids, weights;
} world;

static void open_world(world *w, const cases *c)
{
    static const char spec[] =
        "[run]\nsteps = 1\nprecision = f64\n[stack]\npattern = -\nhidden = 8\nvocab = 8\nnorm_eps = 1e-6\n"
        "[layer.-]\nwidth = 8\n[batch]\ntokens = 32\nrows = 4\nsequences = 16\n"
        "[optimizer]\nplugin = adamw\nweight_decay = 0.1\n[schedule]\nlr = 0.1\n"
        "[dataset.train]\nplugin = mock\nvocab = 8\nmin_tokens = 2\nmax_tokens = 4\n";
    st_error e = {0};

    memset(w, 0, sizeof *w);
    w->cases = c;
    case_must_open(&w->run, spec);
    st_model *m = w->run.run.model;
    if (st_model_plan(m, &e) || st_model_open(m, &e) || st_model_init(m, 1, &e)) fail_msg("%s", e.message);
}

static int32_t id_of(world *w, double loss)
{
    for (int32_t i = 0; i < w->ids; i++)
        if (w->loss[i] == loss) return i;
    if (w->ids == TARGET) fail_msg("more than %d different losses", TARGET);
    w->loss[w->ids] = loss;
    return w->ids++;
}

/* Column i of the head: 0 for the target, x for all others, so that the loss is log(1 + 7 e^x). */
static void write_weights(world *w)
{
    const st_model_weight *const *all;
    st_model *m = w->run.run.model;
    int n = st_model_weights(m, &all);
    st_error e = {0};

    for (int32_t i = 0; i < n; i++) {
        double *v = calloc((size_t)all[i]->count, sizeof *v);
        for (int k = 0; k < WIDTH && strcmp(all[i]->path, "embed") == 0; k++) v[k * WIDTH + k] = 1;
        for (int k = 0; k < w->ids && strcmp(all[i]->path, "lm_head") == 0; k++)
            for (int to = 0; to < TARGET; to++)
                v[to * WIDTH + k] =
                    log((exp(w->loss[k]) - 1) / TARGET) * sqrt(1.0 / WIDTH + 1e-6); /* what the norm divides by */
        if (st_model_write(m, i, v, &e) != ST_OK) fail_msg("%s", e.message);
        free(v);
    }
    w->weights = n;
}

static double *all_weights(world *w, int what, int64_t *count)
{
    const st_model_weight *const *all;
    st_model *m = w->run.run.model;
    st_error e = {0};
    int n = st_model_weights(m, &all);
    double *v = st_arena_alloc(w->cases->arena, sizeof *v * 4096);

    *count = 0;
    for (int32_t i = 0; i < n; i++) {
        if (st_model_read(m, i, what, v + *count, &e) != ST_OK) fail_msg("%s", e.message);
        *count += all[i]->count;
    }
    return v;
}

/* ---- rows ---- */

/* A sequence of a token and its target for each loss; without one, a sequence that trains nothing. */
static void add(world *w, st_packed_row *row, const json_t *losses)
{
    static const int32_t pos[2] = {0, 1};
    static const uint8_t content[2] = {0};
    size_t n = json_array_size(losses);
    st_error e = {0};

    for (size_t i = 0; i < (n ? n : 1); i++) {
        int32_t ids[2] = {n ? id_of(w, json_number_value(json_array_get(losses, i))) : 0, TARGET};
        uint8_t train[2] = {0, n > 0};
        st_prepared p = {.n = 2, .ids = ids, .train = train, .content = content, .pos = pos, .id = "loss"};
        int fits;
        if (st_row_add(row, &p, &fits, &e) != ST_OK || !fits) fail_msg("%s", e.message);
    }
}

static st_packed_row *new_row(world *w)
{
    st_packed_row *row;
    st_error e = {0};

    if (st_row_create(w->cases->arena, st_model_shape(w->run.run.model), &row, &e) != ST_OK) fail_msg("%s", e.message);
    return row;
}

static void end_row(world *w, st_packed_row *row)
{
    st_error e = {0};
    const st_worker worker = {.size = sizeof worker, .host = &w->run.base->host, .arena = w->cases->arena, .error = &e};

    if (st_row_finish(row, NULL, NULL, &worker, &e) != ST_OK) fail_msg("%s", e.message);
}

/* together 0: a row for each micro-batch; else all of them in one row. -> how many rows */
static int32_t make_rows(world *w, const json_t *batches, int together, st_packed_row **out)
{
    const json_t *losses;
    size_t i;
    int32_t n = 0;

    json_array_foreach(batches, i, losses)
    {
        if (n == 0 || !together) out[n++] = new_row(w);
        add(w, out[n - 1], losses);
    }
    for (int32_t k = 0; k < n; k++) end_row(w, out[k]);
    return n;
}

/* ---- checking ---- */

static st_step_result gradients(world *w, st_packed_row **rows_, int32_t n)
{
    st_step_result s;
    st_error e = {0};

    if (st_model_gradients(w->run.run.model, (const st_packed_row *const *)rows_, n, &s, &e) != ST_OK)
        fail_msg("%s", e.message);
    return s;
}

static void check_mean(world *w, const json_t *batches, double want)
{
    st_packed_row *rows_[MOST];
    double *first = NULL;
    int64_t count;

    for (int together = 0; together < 2; together++) {
        int32_t n = make_rows(w, batches, together, rows_);
        if (!together) write_weights(w);
        st_step_result s = gradients(w, rows_, n);
        if (s.skipped || !(fabs(s.loss - want) < 1e-12))
            fail_msg("loss %.17g in %d rows, it should be %.17g", s.loss, n, want);
        double *g = all_weights(w, ST_READ_GRAD, &count);
        for (int64_t i = 0; i < count && first; i++)
            if (!(fabs(g[i] - first[i]) < 1e-14))
                fail_msg("gradient %lld is %g, in other rows %g", (long long)i, g[i], first[i]);
        if (!first) first = g;
    }
}

/* Nothing is trained: finite, told, and not a weight moves. */
static void check_nothing(world *w, const json_t *batches)
{
    st_packed_row *rows_[MOST];
    int32_t n = make_rows(w, batches, 0, rows_);
    const st_schedule at = {.size = sizeof at, .step = 1, .lr = 0.1, .lr_scale = 1};
    int64_t count;
    st_step_result s;
    st_error e = {0};

    write_weights(w);
    double *before = all_weights(w, ST_READ_WEIGHT, &count);
    if (st_model_step(w->run.run.model, (const st_packed_row *const *)rows_, n, &at, 1, &s, &e) != ST_OK)
        fail_msg("%s", e.message);
    if (s.loss != 0 || s.trained != 0) fail_msg("loss %g of %lld tokens", s.loss, (long long)s.trained);
    if (!s.skipped || !case_has(s.bad, "no token of the step is trained")) fail_msg("it is not told: '%s'", s.bad);
    double *after = all_weights(w, ST_READ_WEIGHT, &count);
    if (memcmp(before, after, sizeof *before * (size_t)count) != 0) fail_msg("weights moved");
}

static void check(const cases *c, const void *row)
{
    const loss_row *r = row;
    json_t *j = json_load_file(case_path(c, r->file), 0, NULL), *batches = json_object_get(j, "micro_batches"),
           *mean = json_object_get(j, "mean_over_tokens");
    world w;

    if (!json_is_array(batches)) fail_msg("no micro_batches");
    open_world(&w, c);
    if (mean) check_mean(&w, batches, json_number_value(mean));
    else check_nothing(&w, batches);
    case_close(&w.run);
    json_decref(j);
}

const case_kind loss_kind = CASE_KIND("loss", rows, make, check);
