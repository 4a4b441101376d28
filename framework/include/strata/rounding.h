/* SPDX-License-Identifier: Apache-2.0 */
/* strata/rounding.h - bf16 rounded at random: up as often as the bits cut off are large. The mean is the value itself, so steps
 * far below a unit of the last place add up, where rounding to the nearest would lose every one of them.
 *
 * The random bits are a function of (seed, step, kind of value, element), not a stream that is drawn from: they are the same for
 * every number of threads, shape of a launch and share of ranks. C and CUDA give the same. */
#ifndef STRATA_ROUNDING_H
#define STRATA_ROUNDING_H
#include <strata/status.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define ST_BOTH_FN static __host__ __device__ __forceinline__ /* for the host and the device */
#else
#define ST_BOTH_FN static inline
#endif

#define ST_ROUND_STRIDE 0x9e3779b97f4a7c15u /* odd, the golden ratio of 2^64: counters that follow each other lie far apart */

/* Every bit of the result depends on every bit of x, one to one (D. Stafford's thirteenth set of constants). */
ST_BOTH_FN uint64_t st_round_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* For all elements of one kind of value (0, 1, 2 ...: the weight, a moment) in one step. */
ST_BOTH_FN uint64_t st_round_key(uint64_t seed, uint64_t step, uint32_t kind)
{
    uint64_t key = st_round_mix(seed + step * ST_ROUND_STRIDE);
    return st_round_mix(key + (kind + 1u) * ST_ROUND_STRIDE);
}
/* Sixteen bits each for elements 4 quad to 4 quad + 3, the first in the lowest. */
ST_BOTH_FN uint64_t st_round_bits4(uint64_t key, uint64_t quad) { return st_round_mix(key + quad * ST_ROUND_STRIDE); }
ST_BOTH_FN uint32_t st_round_bits(uint64_t key, uint64_t element)
{
    return (uint32_t)(st_round_bits4(key, element >> 2) >> (element & 3) * 16) & 0xffffu;
}

/* bits: sixteen random ones. Values that bf16 has stay as they are, so do infinities; NaN stays NaN. */
ST_BOTH_FN uint16_t st_round_bf16(float x, uint32_t bits)
{
    uint32_t own;
    memcpy(&own, &x, sizeof own);
    if ((own & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(own >> 16 | 0x40u); /* a carry could end it */
    return (uint16_t)((own + bits) >> 16);
}
ST_BOTH_FN float st_bf16_value(uint16_t bits)
{
    uint32_t own = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &own, sizeof x);
    return x;
}
#endif
