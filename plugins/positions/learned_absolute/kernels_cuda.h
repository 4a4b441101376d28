/* SPDX-License-Identifier: Apache-2.0 */
/* positions/learned_absolute/kernels_cuda.h - the entries that module_cuda.c puts into the table. */
#ifndef LEARNED_ABSOLUTE_KERNELS_CUDA_H
#define LEARNED_ABSOLUTE_KERNELS_CUDA_H
#include "kernels.h"
#if defined(__cplusplus)
extern "C" {
#endif
int learned_cuda_add(const st_queue *, const struct learned_rows *);
int learned_cuda_add_bwd(const st_queue *, const struct learned_rows *);
#if defined(__cplusplus)
}
#endif
#endif
