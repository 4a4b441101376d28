/* SPDX-License-Identifier: Apache-2.0 */
/* moe/kernels_cpu.h - the tables that kernels_cpu.c exports to its module, one per level that was built. */
#ifndef MOE_KERNELS_CPU_H
#define MOE_KERNELS_CPU_H
#include "kernels.h"
extern const moe_kernels moe_table_level1, moe_table_level3, moe_table_level4;
#endif
