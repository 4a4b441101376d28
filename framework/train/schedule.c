/* SPDX-License-Identifier: Apache-2.0 */
/* train/schedule.c - the learning rate of a step. */
#include "config.h"

#include "train/train.h"
#include <math.h>

static double between(double from, double to, int64_t step, int64_t first, int64_t last)
{
    return from + (to - from) * (double)(step - first) / (double)(last - first);
}

/* wsd: the step behind which the decay begins. */
static int64_t stable_until(const st_schedule_keys *k, int64_t steps)
{
    int64_t decay = k->decay > 0 ? k->decay : steps / 10 > 0 ? steps / 10 : 1;

    return steps - decay > k->warmup ? steps - decay : k->warmup;
}

double st_learning_rate(const st_schedule_keys *k, int64_t step, int64_t steps)
{
    const double pi = 3.14159265358979323846;
    double low = k->lr * k->final_ratio;
    int64_t stable = stable_until(k, steps);

    if (step <= k->warmup) return k->lr * (double)step / (double)k->warmup;
    if (k->kind == ST_SCHEDULE_CONSTANT || (k->kind == ST_SCHEDULE_WSD && step <= stable)) return k->lr;
    if (step >= steps) return low;
    if (k->kind == ST_SCHEDULE_WSD) return between(k->lr, low, step, stable, steps);
    if (k->kind == ST_SCHEDULE_LINEAR) return between(k->lr, low, step, k->warmup, steps);
    return low + (k->lr - low) * 0.5 * (1.0 + cos(pi * between(0, 1, step, k->warmup, steps)));
}
