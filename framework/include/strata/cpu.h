/* SPDX-License-Identifier: Apache-2.0 */
/* strata/cpu.h - for CPU kernels: one source file, several instruction sets.
 *
 * Compile the file once per level (-DST_CPU_LEVEL=1, =3 with -march=x86-64-v3, =4 with -march=x86-64-v4), name what it exports to
 * the module with ST_CPU_NAME(table), and let the module choose by st_cpu_level(). Results of one machine do not depend on the
 * number of threads: cut work into pieces by size alone, never by thread count, and add partial sums in a fixed order. */
#ifndef STRATA_CPU_H
#define STRATA_CPU_H
#include <strata/plugin.h>

#ifndef ST_CPU_LEVEL
#define ST_CPU_LEVEL 1
#endif
#define ST_CPU_CAT_(a, b) a##_level##b
#define ST_CPU_CAT(a, b) ST_CPU_CAT_(a, b)
#define ST_CPU_NAME(name) ST_CPU_CAT(name, ST_CPU_LEVEL)

ST_FN int st_cpu_level(void) /* the highest level this machine runs: 1, 3 or 4 */
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd")) return 4;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return 3;
#endif
    return 1;
}
/* Runs fn(arg, i) for i in [0, n) on the queue's threads; returns when all are done. */
ST_FN void st_cpu_run(const st_queue *q, int64_t n, void (*fn)(void *arg, int64_t i), void *arg)
{
    const st_cpu_pool *pool = (const st_cpu_pool *)q->stream;
    pool->run(pool, n, fn, arg);
}
#endif
