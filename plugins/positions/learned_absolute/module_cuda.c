/* SPDX-License-Identifier: Apache-2.0 */
/* positions/learned_absolute/module_cuda.c - kernel module for CUDA. */
#include "kernels_cuda.h"
#include <strata/cuda.h>

static const struct learned_kernels table = {.add = learned_cuda_add, .add_bwd = learned_cuda_add_bwd};

ST_KERNELS_V1(LEARNED_ABSOLUTE_IFACE, table, "learned_absolute", "cuda", "0.1.0", ST_CUDA_TOOLCHAIN,
              ST_CUDA_ARCHS, NULL)
