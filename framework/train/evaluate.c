/* SPDX-License-Identifier: Apache-2.0 */
/* train/evaluate.c - loss and teacher-forced accuracy over a data set: every trained token is predicted from the true
 * text before it. */
#include "config.h"

#include "train/train.h"
#include <math.h>
#include <stdlib.h>

typedef struct totals {
    double loss;
    int64_t trained, right, content, content_right, samples;
    struct { /* of a depth */
        double loss;
        int64_t trained;
        const char *name;
    } depth[ST_PATTERN_DEPTHS];
} totals;

/* labels [tokens], -1: not trained; content [tokens]: of the target at the slot */
static void count_row(const st_packed_row *row, const int32_t *best, totals *t)
{
    for (int32_t i = 0; i < row->shape.tokens; i++) {
        if (row->labels[i] < 0) continue;
        int right = best[i] == row->labels[i];
        t->trained++;
        t->right += right;
        if (!row->content[i]) continue;
        t->content++;
        t->content_right += right;
    }
    t->samples += row->n_sequences;
}

static int count_depths(st_model *model, totals *t, st_error *e)
{
    for (int32_t k = 0; k < st_model_shape(model)->depths; k++) {
        double sum;
        int64_t n;
        ST_TRY(st_model_depth_loss(model, k + 1, &sum, &n, &t->depth[k].name, e));
        t->depth[k].loss += sum;
        t->depth[k].trained += n;
    }
    return ST_OK;
}

static double ratio(double part, int64_t all) { return all ? part / (double)all : NAN; }

static int run_rows(st_model *model, st_loader *loader, st_packed_row *row, int64_t limit, st_stop *stop, int32_t *best,
                    totals *t, st_error *e)
{
    for (int end = 0; !end && (limit == 0 || t->samples < limit) && !st_stop_asked(stop);) {
        int64_t left = limit ? limit - t->samples : 0, count;
        double sum;
        ST_TRY(st_loader_next(loader, &row, 1, left > INT32_MAX ? INT32_MAX : (int32_t)left, &end, e));
        if (row->n_sequences == 0) break;
        ST_TRY(st_model_evaluate(model, row, &sum, &count, NULL, best, e));
        t->loss += sum;
        count_row(row, best, t);
        ST_TRY(count_depths(model, t, e));
    }
    return ST_OK;
}

int st_evaluate(st_model *model, st_loader *loader, st_packed_row *row, int64_t limit, st_stop *stop, st_scores *out,
                st_error *e)
{
    int32_t *best = malloc((size_t)row->shape.tokens * sizeof *best);
    totals t = {0};

    if (!best) return st_fail(e, ST_E_NOMEM, "no memory to evaluate %d tokens", row->shape.tokens);
    st_loader_rewind(loader);
    int rc = run_rows(model, loader, row, limit, stop, best, &t, e);
    free(best);
    st_loader_rewind(loader);
    *out = (st_scores){.loss = ratio(t.loss, t.trained),
                       .accuracy = ratio((double)t.right, t.trained),
                       .content = ratio((double)t.content_right, t.content),
                       .trained = t.trained,
                       .content_tokens = t.content,
                       .samples = t.samples,
                       .depths = t.samples ? st_model_shape(model)->depths : 0};
    for (int32_t k = 0; k < out->depths; k++) {
        out->depth_loss[k] = ratio(t.depth[k].loss, t.depth[k].trained);
        out->depth_name[k] = t.depth[k].name;
    }
    return rc;
}
