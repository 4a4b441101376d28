/* SPDX-License-Identifier: Apache-2.0 */
/* finish.cu - what comes behind a product: c = act(product + bias) + beta c, and the value before act. */
#include "kernel.h"

typedef struct finish_job {
    cuda_product p;
    const void *from; /* NULL: zeros */
    int64_t ld, stride;
    int32_t type;
    float beta;
} finish_job;

KERNEL(CUDA_THREADS) finish_kernel(const finish_job f)
{
    const cuda_product &p = f.p;
    int64_t n = p.batch * p.m * p.n, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t col = i % p.n, row = i / p.n, entry = row / p.m;
        row -= entry * p.m;
        float x = f.from ? get_real(f.from, f.type, entry * f.stride + row * f.ld + col) : 0.0f;
        int64_t at = entry * p.s_c + row * p.ldc + col;
        if (p.bias) x += get_real(p.bias, p.type_bias, col);
        if (p.aux) put_real(p.aux, p.type_aux, entry * p.s_aux + row * p.ldaux + col, x);
        x = act_value(p.act, x);
        if (f.beta != 0.0f) x += f.beta * get_real(p.c, p.type_c, at);
        put_real(p.c, p.type_c, at, x);
    }
}

extern "C" int cuda_finish(const st_queue *q, const cuda_product *p, const void *from, int64_t ld, int64_t stride,
                           int32_t type, float beta)
{
    finish_job job = {*p, from, ld, stride, type, beta};
    unsigned blocks = cuda_blocks(cuda_div_up(p->batch * p->m * p->n, CUDA_THREADS), CUDA_MOST_BLOCKS * 2);
    finish_kernel<<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(job);
    return st_cuda_launched(q, "gemm");
}
