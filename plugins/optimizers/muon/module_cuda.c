/* SPDX-License-Identifier: Apache-2.0 */
/* muon/module_cuda.c - kernel module for CUDA. */
#include "kernels_cuda.h"
#include <strata/cuda.h>

static const struct muon_kernels table = {.momentum = muon_cuda_momentum, .apply = muon_cuda_apply};

ST_KERNELS_V1(MUON_IFACE, table, "muon", "cuda", "0.1.0", ST_CUDA_TOOLCHAIN, ST_CUDA_ARCHS, NULL)
