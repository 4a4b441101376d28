/* SPDX-License-Identifier: Apache-2.0 */
/* moe/kernels_cuda.h - the entries that module_cuda.c puts into the table. */
#ifndef MOE_KERNELS_CUDA_H
#define MOE_KERNELS_CUDA_H
#include "kernels.h"
#if defined(__cplusplus)
extern "C" {
#endif
int moe_cuda_route(const st_queue *, const moe_route *);
int moe_cuda_sort(const st_queue *, const moe_sort *);
int moe_cuda_glu(const st_queue *, const moe_glu *);
int moe_cuda_glu_bwd(const st_queue *, const moe_glu *);
int moe_cuda_router_bwd(const st_queue *, const moe_router_bwd *);
int moe_cuda_gate(const st_queue *, const moe_gate *);
int moe_cuda_gate_bwd(const st_queue *, const moe_gate *);
int moe_cuda_report(const st_queue *, const moe_report *);
#if defined(__cplusplus)
}
#endif
#endif
