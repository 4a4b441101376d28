/* SPDX-License-Identifier: Apache-2.0 */
/* moe/module_cpu.c - kernel module: the table of the best level this machine runs. */
#include "kernels_cpu.h"
#include <config.h>
#include <strata/cpu.h>

#define MODULE(level) ST_KERNELS_OF(MOE_IFACE, moe_table_level##level, "moe", "cpu", MOE_VERSION, "", "x86-64-v" #level, NULL)

ST_EXPORT const st_kernels *st_kernels_v1(void);
ST_EXPORT const st_kernels *st_kernels_v1(void)
{
    static const st_kernels baseline = MODULE(1);
#if ST_HAVE_X86_LEVELS
    static const st_kernels v3 = MODULE(3), v4 = MODULE(4);
    if (st_cpu_level() == 4) return &v4;
    if (st_cpu_level() == 3) return &v3;
#endif
    return &baseline;
}
