/* SPDX-License-Identifier: Apache-2.0 */
/* muon/kernels_cuda.h - the entries that module_cuda.c puts into the table. */
#ifndef MUON_KERNELS_CUDA_H
#define MUON_KERNELS_CUDA_H
#include "kernels.h"
#if defined(__cplusplus)
extern "C" {
#endif
int muon_cuda_momentum(const st_queue *, const struct muon_matrix *);
int muon_cuda_apply(const st_queue *, const struct muon_matrix *);
#if defined(__cplusplus)
}
#endif
#endif
