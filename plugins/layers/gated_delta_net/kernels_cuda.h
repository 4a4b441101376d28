/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/kernels_cuda.h - the entries that module_cuda.c puts into the table. */
#ifndef GDN_KERNELS_CUDA_H
#define GDN_KERNELS_CUDA_H
#include "kernels.h"
#if defined(__cplusplus)
extern "C" {
#endif
int gdn_cuda_conv(const st_queue *, const gdn_conv *);
int gdn_cuda_conv_bwd(const st_queue *, const gdn_conv *);
int gdn_cuda_gate(const st_queue *, const gdn_gate *);
int gdn_cuda_gate_bwd(const st_queue *, const gdn_gate *);
int gdn_cuda_rule(const st_queue *, const gdn_rule *);
int gdn_cuda_rule_bwd(const st_queue *, const gdn_rule_bwd *);
int gdn_cuda_norm(const st_queue *, const gdn_norm *);
int gdn_cuda_norm_bwd(const st_queue *, const gdn_norm *);
#if defined(__cplusplus)
}
#endif
#endif
