/* SPDX-License-Identifier: Apache-2.0 */
/* attention.cu - entries of attention: which kernels run. */
#include "attention_group.h"
#include "attention_lists.h"

extern "C" int cuda_run_attention(const st_queue *q, const cuda_attn *a)
{
    int done;
    if (a->type != ST_BF16 || !a->wide) return cuda_attention_plain(q, a);
    ST_TRY(cuda_attention_library(q, a, &done));
    return done ? ST_OK : cuda_attention_tensor(q, a);
}

extern "C" int cuda_run_attention_bwd(const st_queue *q, const cuda_attn *a)
{
    if (a->type != ST_BF16 || !a->wide) return cuda_attention_plain_bwd(q, a);
    if (cuda_attention_group_fits(a)) {
        ST_TRY(cuda_attention_group_dq(q, a));
        return cuda_attention_group_dkv(q, a);
    }
    if (cuda_attention_narrow_fits(a)) {
        ST_TRY(cuda_attention_narrow_dq(q, a));
        return cuda_attention_narrow_dkv(q, a);
    }
    ST_TRY(cuda_attention_tensor_dq(q, a));
    return cuda_attention_tensor_dkv(q, a);
}

extern "C" const char *cuda_attention_backward_words(void)
{
    return st_cuda_has_wgmma() ? "warpgroup products for heads of at most 128 and of 256" : "warp products";
}
