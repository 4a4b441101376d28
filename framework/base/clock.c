/* SPDX-License-Identifier: Apache-2.0 */
/* base/clock.c - the one clock that durations are taken from. */
#include "base/base.h"
#include <time.h>

double st_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
