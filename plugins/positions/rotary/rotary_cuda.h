/* SPDX-License-Identifier: Apache-2.0 */
/* positions/rotary/rotary_cuda.h - the entry that module_cuda.c puts into the table. */
#ifndef POSITIONS_ROTARY_CUDA_H
#define POSITIONS_ROTARY_CUDA_H
#include "rotary_kernels.h"
#if defined(__cplusplus)
extern "C"
#endif
int rotary_cuda_tables(const st_queue *, const struct rotary_tables *);
#endif
