/* SPDX-License-Identifier: Apache-2.0 */
/* base/rng.c - Philox 4x32-10 (Salmon and others, Parallel random numbers: as easy as 1, 2, 3; 2011).
 *
 * Key = seed, counter = (block, stream). Value i of a stream is half i % 2 of block i / 2, so any cut of a tensor, on
 * any thread or rank, draws the same values. Whole numbers and uniforms are exact everywhere; normals go through the C
 * library's log and cos, which may differ in the last bit between machines. */
#include "base/base.h"
#include <math.h>

typedef struct block { uint64_t half[2]; } block;

static block philox(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (block){{(uint64_t)c1 << 32 | c0, (uint64_t)c3 << 32 | c2}};
}

/* 52 bits and a half, so that neither 0 nor 1 can come out: with 53 bits the largest would round up to 1. */
static double open_unit(uint64_t bits)
{
    return ((double)(bits >> 12) + 0.5) * 0x1p-52;
}

uint64_t st_random_u64(uint64_t seed, uint64_t stream, int64_t index)
{
    return philox(seed, stream, (uint64_t)index >> 1).half[index & 1];
}

void st_uniform(uint64_t seed, uint64_t stream, int64_t first, int64_t n, double *out)
{
    int64_t i = 0;
    if (n > 0 && (first & 1)) out[i++] = open_unit(st_random_u64(seed, stream, first));
    for (; i < n; i += 2) {
        block b = philox(seed, stream, (uint64_t)(first + i) >> 1);
        out[i] = open_unit(b.half[0]);
        if (i + 1 < n) out[i + 1] = open_unit(b.half[1]);
    }
}

/* Box-Muller keeping only the cosine: normal i needs uniforms 2i and 2i + 1 and nothing of its neighbours. */
void st_normal(uint64_t seed, uint64_t stream, int64_t first, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i++) {
        block b = philox(seed, stream, (uint64_t)(first + i));
        out[i] = sqrt(-2.0 * log(open_unit(b.half[0]))) * cos(6.283185307179586476925 * open_unit(b.half[1]));
    }
}

void st_permutation(uint64_t seed, uint64_t stream, int64_t n, int64_t *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        /* multiply-and-shift onto [0, i]: its bias is below (i + 1) / 2^64 */
        int64_t j = (int64_t)(((unsigned __int128)st_random_u64(seed, stream, i) * (uint64_t)(i + 1)) >> 64);
        int64_t t = out[i];
        out[i] = out[j];
        out[j] = t;
    }
}
