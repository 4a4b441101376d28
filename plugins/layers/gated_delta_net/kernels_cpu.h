/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/kernels_cpu.h - the tables that kernels_cpu.c exports to its module, one per level that was built. */
#ifndef GDN_KERNELS_CPU_H
#define GDN_KERNELS_CPU_H
#include "kernels.h"
extern const gdn_kernels gdn_table_level1, gdn_table_level3, gdn_table_level4;
#endif
