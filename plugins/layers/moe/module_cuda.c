/* SPDX-License-Identifier: Apache-2.0 */
/* moe/module_cuda.c - kernel module for CUDA. */
#include "kernels_cuda.h"
#include <strata/cuda.h>

static const moe_kernels table = {
    .route = moe_cuda_route,
    .sort = moe_cuda_sort,
    .glu = moe_cuda_glu,
    .glu_bwd = moe_cuda_glu_bwd,
    .router_bwd = moe_cuda_router_bwd,
    .gate = moe_cuda_gate,
    .gate_bwd = moe_cuda_gate_bwd,
    .report = moe_cuda_report,
};

ST_KERNELS_V1(MOE_IFACE, table, "moe", "cuda", MOE_VERSION, ST_CUDA_TOOLCHAIN, ST_CUDA_ARCHS, NULL)
