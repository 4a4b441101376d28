/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h - the entries of st_ops in the cuda backend's logic module: check, take scratch, count, return when planning, then
 * call the kernel module. */
#ifndef CUDA_OPS_H
#define CUDA_OPS_H
#include "cuda.h"

int cuda_fill(const st_queue *, const st_tensor *dst, double value);
#endif
