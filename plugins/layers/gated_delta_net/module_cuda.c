/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/module_cuda.c - kernel module for CUDA. Built once for each plugin that uses the kernels; GDN_PLUGIN
 * names it. */
#include "kernels_cuda.h"
#include <strata/cuda.h>

static const gdn_kernels table = {
    .conv = gdn_cuda_conv,
    .conv_bwd = gdn_cuda_conv_bwd,
    .gate = gdn_cuda_gate,
    .gate_bwd = gdn_cuda_gate_bwd,
    .rule = gdn_cuda_rule,
    .rule_bwd = gdn_cuda_rule_bwd,
    .norm = gdn_cuda_norm,
    .norm_bwd = gdn_cuda_norm_bwd,
};

ST_KERNELS_V1(GDN_IFACE, table, GDN_PLUGIN, "cuda", GDN_VERSION, ST_CUDA_TOOLCHAIN, ST_CUDA_ARCHS, NULL)
