/* SPDX-License-Identifier: Apache-2.0 */
/* encoders/qwen35_vision/module_cuda.c - kernel module for CUDA. */
#include <strata/cuda.h>
#include "kernels_cuda.h"

static const struct vision_kernels table = {
    .patchify = vision_cuda_patchify, .position = vision_cuda_position, .position_bwd = vision_cuda_position_bwd,
    .rotary = vision_cuda_rotary,
};

ST_KERNELS_V1(QWEN35_VISION_IFACE, table, "qwen35_vision", "cuda", "0.1.0", ST_CUDA_TOOLCHAIN, ST_CUDA_ARCHS, NULL)
