/* SPDX-License-Identifier: Apache-2.0 */
/* encoders/qwen35_vision/kernels_cuda.h - the entries that module_cuda.c puts into the table. */
#ifndef QWEN35_VISION_KERNELS_CUDA_H
#define QWEN35_VISION_KERNELS_CUDA_H
#include "kernels.h"
#if defined(__cplusplus)
extern "C" {
#endif
int vision_cuda_patchify(const st_queue *, const struct vision_patchify *);
int vision_cuda_position(const st_queue *, const struct vision_position *);
int vision_cuda_position_bwd(const st_queue *, const struct vision_position *);
int vision_cuda_rotary(const st_queue *, const struct vision_rotary *);
#if defined(__cplusplus)
}
#endif
#endif
