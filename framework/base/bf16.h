/* SPDX-License-Identifier: Apache-2.0 */
/* base/bf16.h - bf16 as it is stored: the upper half of an f32. */
#ifndef ST_BF16_H
#define ST_BF16_H
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline double st_bf16_to_f64(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

/* To the nearest, ties to even, by way of f32: what an optimizer's kernel makes of an f32 master. */
static inline uint16_t st_bf16_from_f64(double v)
{
    float f = (float)v;
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    if (isnan(f)) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#endif
