/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_table.c - the table of this level's kernels, for both types. */
#include "cpu.h"

#define F32_NAME(name) ST_CPU_NAME(cpu_##name##_f32)
#define F64_NAME(name) ST_CPU_NAME(cpu_##name##_f64)
#define DECLARE(name, args) void F32_NAME(name) args; void F64_NAME(name) args;
#define F32_MEMBER(name, args) .name = F32_NAME(name),
#define F64_MEMBER(name, args) .name = F64_NAME(name),
CPU_KERNELS(DECLARE)
const cpu_table ST_CPU_NAME(cpu_tables)[CPU_REALS] = {{CPU_KERNELS(F32_MEMBER)}, {CPU_KERNELS(F64_MEMBER)}};
