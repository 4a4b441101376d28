/* SPDX-License-Identifier: Apache-2.0 */
/* positions/rotary/module_cuda.c - kernel module for CUDA. Built once per plugin that uses it: ROTARY_PLUGIN is its
 * name. */
#include "rotary_cuda.h"
#include <strata/cuda.h>

static const struct rotary_kernels table = {.tables = rotary_cuda_tables};

ST_KERNELS_V1(ROTARY_IFACE, table, ROTARY_PLUGIN, "cuda", "0.1.0", ST_CUDA_TOOLCHAIN, ST_CUDA_ARCHS, NULL)
