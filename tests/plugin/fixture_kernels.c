/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel module of the fixture plugin, also built with one thing wrong. */
#include <strata/plugin.h>

#ifndef FIX_VERSION
#define FIX_VERSION "0.1"
#endif
#ifndef FIX_TABLE_SIZE
#define FIX_TABLE_SIZE sizeof(int)
#endif

ST_EXPORT const st_kernels *st_kernels_v1(void);
ST_EXPORT const st_kernels *st_kernels_v1(void)
{
    static const int table = 42;
    static const st_kernels k = {
        ST_KERNEL_MAGIC, ST_ABI_MAJOR, ST_ABI_MINOR, sizeof k, 3,   FIX_TABLE_SIZE, "fixture", "cpu",
        FIX_VERSION,     "",           "",           &table,   NULL};
    return &k;
}
