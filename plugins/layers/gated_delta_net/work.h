/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/work.h - how much scratch the entries take on each backend, from their arguments alone: the logic
 * asks while it plans, when no kernel module is loaded. In elements of acc. */
#ifndef GDN_WORK_H
#define GDN_WORK_H
#include "kernels.h"
#include <string.h>

#define GDN_CUDA_KEY_DIM 128 /* the widest head of keys that the CUDA kernels take */

/* Of the rule on CUDA: floats of decay, rest and the scales; then A and P of every chunk, of the run's type; backward
 * also X and the gradients of states. See rule_cuda.h. */
ST_FN int64_t gdn_cuda_floats(int64_t elements, int32_t dtype)
{
    return (elements * (int64_t)st_dtype_size(dtype) + 3) / 4;
}
ST_FN int64_t gdn_cuda_rule_work(const gdn_rule *a)
{
    const int64_t heads = a->row.n_tiles * a->value_heads, keys = a->row.n_tiles * a->key_heads, c = GDN_CHUNK;
    return 2 * c * (heads + keys) + gdn_cuda_floats(2 * heads * c * c, a->dtype);
}
ST_FN int64_t gdn_cuda_rule_bwd_work(const gdn_rule *a)
{
    const int64_t heads = a->row.n_tiles * a->value_heads, v = a->value_dim;
    return gdn_cuda_rule_work(a) + gdn_cuda_floats(heads * (GDN_CHUNK + a->key_dim) * v, a->dtype);
}

/* `backend`: name of the run's; all that is not cuda is the CPU. */
ST_FN int gdn_is_cuda(const char *backend) { return !strcmp(backend, "cuda"); }
ST_FN int64_t gdn_conv_elements(const char *backend, const gdn_conv *a)
{
    return gdn_is_cuda(backend) ? 0 : gdn_conv_work(a->channels, a->taps);
}
ST_FN int64_t gdn_rule_elements(const char *backend, const gdn_rule *a)
{
    if (gdn_is_cuda(backend)) return gdn_cuda_rule_work(a);
    return gdn_lanes(a->row.n_segments, a->key_heads) *
           gdn_rule_work(a->value_heads / a->key_heads, a->key_dim, a->value_dim);
}
ST_FN int64_t gdn_rule_bwd_elements(const char *backend, const gdn_rule *a)
{
    if (gdn_is_cuda(backend)) return gdn_cuda_rule_bwd_work(a);
    return gdn_lanes(a->row.n_segments, a->key_heads) *
           gdn_rule_bwd_work(a->value_heads / a->key_heads, a->key_dim, a->value_dim);
}
#endif
