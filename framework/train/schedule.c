/* SPDX-License-Identifier: Apache-2.0 */
/* train/schedule.c - the learning rate of a step. */
#include "config.h"
#include "train/train.h"
#include <math.h>

double st_learning_rate(const st_schedule_keys *k, int64_t step, int64_t steps)
{
    const double pi = 3.14159265358979323846;
    double low = k->lr * k->final_ratio, done;
    int64_t decay = k->decay;

    if (step <= k->warmup) return k->lr * (double)step / (double)k->warmup;
    if (k->kind == ST_SCHEDULE_WSD) {
        if (decay == 0) decay = steps / 10 > 0 ? steps / 10 : 1;
        if (step <= steps - decay) return k->lr;
        return k->lr + (low - k->lr) * (double)(step - (steps - decay)) / (double)decay;
    }
    if (k->kind == ST_SCHEDULE_CONSTANT || step >= steps) return k->kind == ST_SCHEDULE_CONSTANT ? k->lr : low;
    /* step `warmup` has the full rate, the last step the final one */
    done = (double)(step - k->warmup) / (double)(steps - k->warmup);
    if (k->kind == ST_SCHEDULE_LINEAR) return k->lr + (low - k->lr) * done;
    return low + (k->lr - low) * 0.5 * (1.0 + cos(pi * done));
}
