/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_stack.c - the stack drawn layer by layer with what each costs; of layers that come again and again, the first round. */
#include "config.h"

#include "cli/plan_stack.h"
#include "cli/summary.h"
#include <string.h>

enum { LONGEST_ROUND = 64 }; /* layers that may repeat together */

typedef struct drawing {
    const st_model_layer *layers;
    const st_layer_cost *costs;
    int n;
    double most; /* FLOPs of a whole bar */
    FILE *out;
} drawing;

/* Of paths such as layers.12, those of one stack are equal up to the number. */
static size_t stack_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? (size_t)(dot + 1 - path) : 0;
}

static bool alike(const drawing *d, int i, int k)
{
    const st_model_layer *a = &d->layers[i], *b = &d->layers[k];
    const st_layer_cost *x = &d->costs[i], *y = &d->costs[k];
    size_t n = stack_of(a->path);

    return a->symbol && a->symbol == b->symbol && n > 0 && n == stack_of(b->path) && !strncmp(a->path, b->path, n) &&
           a->parameters == b->parameters && x->megatron == y->megatron && x->formula == y->formula;
}

/* How often the `length` layers from `first` on stand there behind each other. */
static int rounds(const drawing *d, int first, int length)
{
    int same = 0;

    while (first + length + same < d->n && alike(d, first + same, first + length + same)) same++;
    return 1 + same / length;
}

/* The round that takes most layers together, of these the shortest; *times 1: none comes again. */
static int round_at(const drawing *d, int first, int *times)
{
    int best = 1;

    *times = 1;
    for (int length = 1; length <= LONGEST_ROUND && first + 2 * length <= d->n; length++) {
        int n = rounds(d, first, length);
        if (n == 1 || n * length <= *times * best) continue;
        best = length;
        *times = n;
    }
    return best;
}

static void draw_layer(const drawing *d, int i)
{
    const st_model_layer *l = &d->layers[i];
    const st_layer_cost *c = &d->costs[i];
    char count[48];

    if (l->kind == ST_KIND_OPTIMIZER) return;
    fprintf(d->out, "  %-24s %c %-18s %14s %10.1f %10.1f ", *l->path ? l->path : "(host)", l->symbol ? l->symbol : ' ',
            l->plugin ? l->plugin->name : "", cli_grouped((double)l->parameters, count, sizeof count), 1e-9 * c->megatron,
            1e-9 * c->formula);
    for (int k = 0; k < (int)(20 * c->formula / d->most + 0.5); k++) fputc('#', d->out);
    fputc('\n', d->out);
}

void cli_print_stack(const st_model_layer *layers, const st_layer_cost *costs, int n, FILE *out)
{
    drawing d = {layers, costs, n, 1, out};

    for (int i = 0; i < n; i++)
        if (costs[i].formula > d.most) d.most = costs[i].formula;
    fprintf(out, "\n%-47s %14s  %s\n%-47s %14s %10s %10s\n", "", "", "GFLOP of a row", "made of", "parameters",
            "Megatron", "exact");
    for (int i = 0, times; i < n;) {
        int length = round_at(&d, i, &times), all = length * times;
        for (int k = 0; k < length; k++) draw_layer(&d, i + k);
        if (times > 1)
            fprintf(out, "  %s to %s: the same %d more time%s\n", layers[i + length].path, layers[i + all - 1].path,
                    times - 1, times == 2 ? "" : "s");
        i += all;
    }
}
