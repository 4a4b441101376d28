/* SPDX-License-Identifier: Apache-2.0 */
/* twice.h - included by a kernel file with KERNEL_FILE set to its own name: the file's body is compiled for float,
 * then for double. `T` is the type, FN(name) the name of a function of this type and level. No guard: it is meant to
 * be included again. */
#define T float
#define T_IS_DOUBLE 0
#define FN(name) ST_CPU_NAME(cpu_##name##_f32)
#define CPU_DECLARE(name, args) void FN(name) args;
CPU_KERNELS(CPU_DECLARE)
#include "real.h"
#include KERNEL_FILE
#undef T
#undef T_IS_DOUBLE
#undef FN

#define T double
#define T_IS_DOUBLE 1
#define FN(name) ST_CPU_NAME(cpu_##name##_f64)
CPU_KERNELS(CPU_DECLARE)
#include "real.h"
#include KERNEL_FILE
#undef T
#undef T_IS_DOUBLE
#undef FN
