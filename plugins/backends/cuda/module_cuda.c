/* SPDX-License-Identifier: Apache-2.0 */
/* module_cuda.c - what the kernel module exports. */
#include "cuda.h"

#define ENTRY(name, args) .name = cuda_run_##name,
static const cuda_table table = {CUDA_DEVICE_ENTRIES(ENTRY) CUDA_OP_ENTRIES(ENTRY).close = cuda_run_close};

ST_KERNELS_V1(CUDA_IFACE, table, "cuda", "cuda", "0.1.0", ST_CUDA_TOOLCHAIN, ST_CUDA_ARCHS, NULL)
