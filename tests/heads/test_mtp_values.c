/* SPDX-License-Identifier: Apache-2.0 */
/* heads/test_mtp_values.c - states and losses of the head mtp against its definition, written down once more without
 * rows, arenas or ops: per segment, token by token, from the plain sequence. The depths' layers are MLPs, so that the
 * definition fits here; what attention sees at a depth is compared by strata parity. */
#include "depths.h"
#include <math.h>

enum { H = 16, V = 23, W = 24, T = 96, DEPTHS = 3 };
#define SPEC DEPTH_MODEL("G-*-/-/--/-", "", "") MROPE IMAGE_PARTS IMAGE_BATCH
static const int lengths[] = {17, 12, 1, 9, 2, 0};

/* ---- what the model shows ---- */

typedef struct seen {
    double features[T * H], final[1 + DEPTHS][T * H];
} seen;

static void look(void *ctx, const char *name, int32_t layer, const double *values, int64_t rows, int64_t cols)
{
    seen *s = ctx;
    double *to = !strcmp(name, "features")      ? s->features
                 : !strcmp(name, "final")       ? s->final[0]
                 : !strcmp(name, "depth.final") ? s->final[layer]
                                                : NULL;
    if (to && rows <= T) memcpy(to, values, (size_t)(rows * cols) * sizeof *to);
}

/* ---- the definition ---- */

static void product(const double *w, const double *x, int out, int in, double *y)
{
    for (int o = 0; o < out; o++) {
        y[o] = 0;
        for (int i = 0; i < in; i++) y[o] += w[o * in + i] * x[i];
    }
}

static void norm(const double *w, const double *x, double *y)
{
    double sum = 0;
    for (int i = 0; i < H; i++) sum += x[i] * x[i];
    for (int i = 0; i < H; i++) y[i] = x[i] / sqrt(sum / H + 1e-6) * (1 + w[i]);
}

static double *at(fixture *f, int depth, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "head.mtp.%d.%s", depth, name);
    return weight_values(f, path, ST_READ_WEIGHT);
}

static void mlp(fixture *f, int depth, int layer, double *x)
{
    char name[32];
    double n[H], gu[2 * W], a[W], y[H];

    snprintf(name, sizeof name, "layers.%d.pre_norm", layer);
    norm(at(f, depth, name), x, n);
    snprintf(name, sizeof name, "layers.%d.gate_up", layer);
    product(at(f, depth, name), n, 2 * W, H, gu);
    for (int i = 0; i < W; i++) a[i] = gu[i] / (1 + exp(-gu[i])) * gu[W + i];
    snprintf(name, sizeof name, "layers.%d.down", layer);
    product(at(f, depth, name), a, H, W, y);
    for (int i = 0; i < H; i++) x[i] += y[i];
}

/* One slot of one depth: the embedding row of what stands k further on, and the state in front. */
static void slot(fixture *f, int depth, const double *embedding, const double *hidden, double *out)
{
    double pair[2 * H], u[H];

    norm(at(f, depth, "norm_embed"), embedding, pair);
    norm(at(f, depth, "norm_hidden"), hidden, pair + H);
    product(at(f, depth, "fc"), pair, H, 2 * H, u);
    for (int layer = 0; layer < (depth == 2 ? 2 : 1); layer++) mlp(f, depth, layer, u);
    norm(at(f, depth, "norm"), u, out);
}

static double token_loss(const double *lm_head, const double *h, int label)
{
    double logits[V], sum = 0;
    product(lm_head, h, V, H, logits);
    for (int o = 0; o < V; o++) sum += exp(logits[o]);
    return log(sum) - logits[label];
}

/* ---- sequences as they went in: ids and features of each token, whether it is a target ---- */

typedef struct text {
    int n, first; /* length, slot of its first token */
    int32_t id[32], feature[32], target[32];
} text;

/* From the row's own slots (depth 0), which tests/data check by hand. */
static int read_texts(const st_packed_row *row, text *t)
{
    for (int s = 0; s < row->n_sequences; s++) {
        t[s] = (text){.n = row->segments[s + 1] - row->segments[s], .first = row->segments[s]};
        for (int i = 0; i < t[s].n; i++) {
            t[s].id[i] = row->ids[t[s].first + i];
            t[s].feature[i] = row->media[t[s].first + i];
            t[s].target[i] = i > 0 && row->labels[t[s].first + i - 1] >= 0;
        }
    }
    return row->n_sequences;
}

static void states_and_losses_follow_the_definition(void **state)
{
    fixture *f = fixture_open(SPEC, 1);
    st_packed_row *row = make_row(f, lengths, 0, 5, 1);
    double *table = weight_values(f, "embed", ST_READ_WEIGHT), *head = weight_values(f, "lm_head", ST_READ_WEIGHT);
    seen *got = calloc(1, sizeof *got);
    double worst = 0, nothing[H] = {0}, sum[2], images = 0;
    text t[8];
    int n = read_texts(row, t);

    assert_int_equal(n, 5);
    st_model_probe(f->model, look, got);
    for (int k = 1; k <= DEPTHS; k++) {
        double loss = 0, before[T * H], count = 0;
        depth_sums(f, &row, 1, k, sum);
        memcpy(before, got->final[k - 1], sizeof before);
        for (int s = 0; s < n; s++)
            for (int i = 0; i < t[s].n; i++) {
                int j = i + k, feature = j < t[s].n ? t[s].feature[j] : -1;
                const double *embedding = feature >= 0 ? got->features + feature * H
                                          : j < t[s].n ? table + t[s].id[j] * H
                                                       : nothing,
                             *here = got->final[k] + (t[s].first + i) * H;
                double out[H];
                slot(f, k, embedding, before + (t[s].first + i) * H, out);
                for (int c = 0; c < H; c++) worst = fmax(worst, fabs(out[c] - here[c]));
                images += feature >= 0;
                if (j + 1 >= t[s].n || !t[s].target[j + 1]) continue;
                loss += token_loss(head, out, t[s].id[j + 1]);
                count++;
            }
        print_message("# depth %d: %g trained, loss %.6f, states within %.1e\n", k, count, loss / count, worst);
        assert_true(count > 0 && count == sum[1] && fabs(loss - sum[0]) < 1e-12 * (1 + loss));
    }
    assert_true(worst < 1e-12 && images > 0);
    free(got);
    fixture_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(states_and_losses_follow_the_definition)};
    return cmocka_run_group_tests_name("mtp values", tests, NULL, NULL);
}
