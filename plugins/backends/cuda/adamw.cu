/* SPDX-License-Identifier: Apache-2.0 */
/* adamw.cu - the update of a flat range of weights. Bound by memory: every thread has ten loads of 16 bytes in flight. */
#include "wide.h"

typedef struct adamw_factors { float lr, decay, beta1, beta2, eps, inv_c1, inv_c2, rest1, rest2, clip; } adamw_factors;

DEVICE adamw_factors factors_of(const cuda_adamw &a)
{
    const float *h = a.hyper;
    return {h[0], h[1], h[2], h[3], h[4], 1.0f / h[5], 1.0f / h[6], h[7], h[8], a.clip ? a.clip[0] : 1.0f};
}

DEVICE void update(const adamw_factors &f, float grad, float *master, float *m, float *v)
{
    float g = f.clip * grad;
    *m = f.beta1 * *m + f.rest1 * g;
    *v = f.beta2 * *v + f.rest2 * (g * g);
    *master -= f.lr * (f.decay * *master + *m * f.inv_c1 / (sqrtf(*v * f.inv_c2) + f.eps));
}

DEVICE void update_one(const cuda_adamw &a, const adamw_factors &f, int64_t i)
{
    float master = a.master[i], m = a.m[i], v = a.v[i];
    update(f, a.grad[i], &master, &m, &v);
    a.master[i] = master;
    a.m[i] = m;
    a.v[i] = v;
    if (a.weight) put_real(a.weight, a.weight_type, i, master);
}

DEVICE void update_eight(const cuda_adamw &a, const adamw_factors &f, int64_t i)
{
    cuda_eight grad = get_eight(a.grad + i), master = get_eight(a.master + i), m = get_eight(a.m + i),
               v = get_eight(a.v + i);
#pragma unroll
    for (int j = 0; j < CUDA_WIDE; j++) update(f, grad.x[j], &master.x[j], &m.x[j], &v.x[j]);
    put_eight(a.master + i, master);
    put_eight(a.m + i, m);
    put_eight(a.v + i, v);
    if (a.weight) put_some(a.weight, a.weight_type, i, CUDA_WIDE, true, master);
}

static __global__ void __launch_bounds__(CUDA_THREADS) adamw_kernel(const __grid_constant__ cuda_adamw a, int64_t eights)
{
    if (a.skip && a.skip[0] != 0.0f) return;
    adamw_factors f = factors_of(a);
    int64_t from = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = from; i < eights; i += step) update_eight(a, f, i * CUDA_WIDE);
    for (int64_t i = eights * CUDA_WIDE + from; i < a.n; i += step) update_one(a, f, i);
}

extern "C" int cuda_run_adamw(const st_queue *q, const cuda_adamw *a)
{
    uintptr_t all = (uintptr_t)a->master | (uintptr_t)a->m | (uintptr_t)a->v | (uintptr_t)a->grad | (uintptr_t)a->weight;
    int64_t eights = all % 16 ? 0 : a->n / CUDA_WIDE, items = eights ? eights : a->n;
    if (!a->n) return ST_OK;
    unsigned blocks = cuda_blocks(cuda_div_up(items, CUDA_THREADS), CUDA_MOST_BLOCKS);
    adamw_kernel<<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a, eights);
    return st_cuda_launched(q, "adamw");
}
