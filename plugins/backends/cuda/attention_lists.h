/* SPDX-License-Identifier: Apache-2.0 */
/* attention_lists.h - spans as a library of attention reads them: entries of a batch, with first elements and lengths. */
#ifndef CUDA_ATTENTION_LISTS_H
#define CUDA_ATTENTION_LISTS_H
#include "cuda.h"

typedef struct cuda_attn_lists {
    int64_t *first[CUDA_ATTN_FIRSTS]; /* of q, k, v, out, lse: [n_spans + 1] elements from their begin */
    int32_t *q_len, *k_len;           /* [n_spans]; both 0 where a span has no rows of one side */
} cuda_attn_lists;

#if defined(__cplusplus)
extern "C" {
#endif
/* Makes the lists, and writes 0 to rows of out and lse that see no key. */
int cuda_attention_lists(const st_queue *, const cuda_attn *, const cuda_attn_lists *);
/* done 0: the library is not there or does not serve this call, and nothing was written. */
#ifdef CUDA_WITH_CUDNN
int cuda_attention_library(const st_queue *, const cuda_attn *, int *done);
#else
ST_FN int cuda_attention_library(const st_queue *q, const cuda_attn *a, int *done)
{
    *done = 0;
    return ST_OK;
}
#endif
#if defined(__cplusplus)
}
#endif
#endif
