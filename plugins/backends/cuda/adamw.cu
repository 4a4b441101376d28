/* SPDX-License-Identifier: Apache-2.0 */
/* adamw.cu - the update of a flat range of weights. Bound by memory: every thread has five to ten loads of 16 bytes in flight.
 * What is stored in bf16 is rounded at random, with four elements' bits from one multiplication chain. */
#include "../check/adamw.h"
#include "wide.h"

typedef struct adamw_keys { uint64_t of[ADAMW_KINDS]; } adamw_keys;

DEVICE adamw_keys keys_of(const cuda_adamw &a)
{
    adamw_keys k = {};
    uint64_t step = a.step ? (uint64_t)a.step[0] : 0;
    for (uint32_t kind = 0; kind < ADAMW_KINDS; kind++) k.of[kind] = st_round_key(a.seed, step, kind);
    return k;
}

/* `at`: number of the element, or of the first of eight */
DEVICE void put_one(float *p, float x, uint64_t key, uint64_t at) { *p = x; }
DEVICE void put_one(st_bf16 *p, float x, uint64_t key, uint64_t at) { p->bits = st_round_bf16(x, st_round_bits(key, at)); }
DEVICE void put_eight(float *p, const cuda_eight &v, uint64_t key, uint64_t at) { put_eight(p, v); }
DEVICE void put_eight(st_bf16 *p, const cuda_eight &v, uint64_t key, uint64_t at)
{
    uint32_t pair[CUDA_WIDE / 2];
#pragma unroll
    for (int j = 0; j < CUDA_WIDE; j += 4) {
        uint64_t bits = st_round_bits4(key, (at + j) / 4);
        uint32_t low = (uint32_t)bits, high = (uint32_t)(bits >> 32);
        pair[j / 2] = st_round_bf16(v.x[j], low & 0xffffu) | (uint32_t)st_round_bf16(v.x[j + 1], low >> 16) << 16;
        pair[j / 2 + 1] = st_round_bf16(v.x[j + 2], high & 0xffffu) | (uint32_t)st_round_bf16(v.x[j + 3], high >> 16) << 16;
    }
    *(uint4 *)p = make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

template <typename W, typename M>
DEVICE void update_one(const cuda_adamw &a, const adamw_rates &r, const adamw_keys &k, int64_t i)
{
    W *master_at = (W *)a.master + i;
    M *m_at = (M *)a.m + i, *v_at = (M *)a.v + i;
    uint64_t at = (uint64_t)(a.first + i);
    float master = st_to_f32(*master_at), m = st_to_f32(*m_at), v = st_to_f32(*v_at);
    adamw_element(&r, a.grad[i], &master, &m, &v);
    put_one(master_at, master, k.of[ADAMW_MASTER], at);
    put_one(m_at, m, k.of[ADAMW_M], at);
    put_one(v_at, v, k.of[ADAMW_V], at);
    if (a.weight) put_real(a.weight, a.weight_type, i, master);
}

template <typename W, typename M>
DEVICE void update_eight(const cuda_adamw &a, const adamw_rates &r, const adamw_keys &k, int64_t i)
{
    W *master_at = (W *)a.master + i;
    M *m_at = (M *)a.m + i, *v_at = (M *)a.v + i;
    uint64_t at = (uint64_t)(a.first + i);
    cuda_eight grad = get_eight(a.grad + i), master = get_eight(master_at), m = get_eight(m_at), v = get_eight(v_at);
#pragma unroll
    for (int j = 0; j < CUDA_WIDE; j++) adamw_element(&r, grad.x[j], &master.x[j], &m.x[j], &v.x[j]);
    put_eight(master_at, master, k.of[ADAMW_MASTER], at);
    put_eight(m_at, m, k.of[ADAMW_M], at);
    put_eight(v_at, v, k.of[ADAMW_V], at);
    if (a.weight) put_some(a.weight, a.weight_type, i, CUDA_WIDE, true, master);
}

/* W: type of masters, M: of moments */
template <typename W, typename M>
KERNEL(CUDA_THREADS) adamw_kernel(const __grid_constant__ cuda_adamw a, int64_t eights)
{
    if (a.skip && a.skip[0] != 0.0f) return;
    adamw_rates r = adamw_rates_of(a.hyper, a.clip);
    adamw_keys k = keys_of(a);
    int64_t from = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = from; i < eights; i += step) update_eight<W, M>(a, r, k, i * CUDA_WIDE);
    for (int64_t i = eights * CUDA_WIDE + from; i < a.n; i += step) update_one<W, M>(a, r, k, i);
}

extern "C" int cuda_run_adamw(const st_queue *q, const cuda_adamw *a)
{
    uintptr_t all = (uintptr_t)a->master | (uintptr_t)a->m | (uintptr_t)a->v | (uintptr_t)a->grad | (uintptr_t)a->weight;
    int64_t eights = all % 16 || a->first % CUDA_WIDE ? 0 : a->n / CUDA_WIDE, items = eights ? eights : a->n;
    cudaStream_t stream = st_cuda_stream(q);
    if (!a->n) return ST_OK;
    unsigned blocks = cuda_blocks(cuda_div_up(items, CUDA_THREADS), CUDA_MOST_BLOCKS);
    bool half = a->master_type == ST_BF16, halves = a->state_type == ST_BF16;
    if (half && halves) adamw_kernel<st_bf16, st_bf16><<<blocks, CUDA_THREADS, 0, stream>>>(*a, eights);
    else if (half) adamw_kernel<st_bf16, float><<<blocks, CUDA_THREADS, 0, stream>>>(*a, eights);
    else if (halves) adamw_kernel<float, st_bf16><<<blocks, CUDA_THREADS, 0, stream>>>(*a, eights);
    else adamw_kernel<float, float><<<blocks, CUDA_THREADS, 0, stream>>>(*a, eights);
    return st_cuda_launched(q, "adamw");
}
