/* SPDX-License-Identifier: Apache-2.0 */
/* attention.cu - entries of attention: which kernels run, and out . d_out for each row and head. */
#include "attention_group.h"
#include "attention_lists.h"

extern "C" int cuda_run_attention(const st_queue *q, const cuda_attn *a)
{
    int done;
    if (a->type != ST_BF16 || !a->wide) return cuda_attention_plain(q, a);
    ST_TRY(cuda_attention_library(q, a, &done));
    return done ? ST_OK : cuda_attention_tensor(q, a);
}

/* A warp for each row and head. */
KERNEL(CUDA_THREADS) delta_kernel(const cuda_attn a)
{
    int64_t i = (int64_t)blockIdx.x * (CUDA_THREADS / CUDA_WARP) + threadIdx.x / CUDA_WARP;
    float sum = 0;
    if (i >= a.q.rows * a.q.heads) return;
    const void *out = row_at(a.out, i), *grad = row_at(a.d_out, i);
    for (int64_t j = threadIdx.x % CUDA_WARP; j < a.q.cols; j += CUDA_WARP)
        sum += get_real(out, a.type, j) * get_real(grad, a.type, j);
    sum = warp_sum(sum);
    if (threadIdx.x % CUDA_WARP == 0) a.delta[i] = sum;
}

extern "C" int cuda_run_attention_bwd(const st_queue *q, const cuda_attn *a)
{
    int64_t rows = a->q.rows * a->q.heads;
    unsigned blocks = (unsigned)cuda_div_up(rows, CUDA_THREADS / CUDA_WARP);
    if (rows) delta_kernel<<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a);
    ST_TRY(st_cuda_launched(q, "attention_bwd"));
    if (a->type != ST_BF16 || !a->wide) return cuda_attention_plain_bwd(q, a);
    if (cuda_attention_group_fits(a)) {
        ST_TRY(cuda_attention_group_dq(q, a));
        return cuda_attention_group_dkv(q, a);
    }
    ST_TRY(cuda_attention_tensor_dq(q, a));
    return cuda_attention_tensor_dkv(q, a);
}
