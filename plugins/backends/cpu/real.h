/* SPDX-License-Identifier: Apache-2.0 */
/* real.h - elementary functions on T that a compiler can vectorise: no branches, no calls, no tables. Included once
 * per type.
 *
 * exp: x = n ln 2 + r with |r| <= ln 2 / 2, Taylor series of e^r (degree 13 in f64, 7 in f32: below half an ulp),
 * scaled by 2^n through the exponent bits. Within 2 ulp; results below 2^-125 (f32) or 2^-1021 (f64) become 0. NaN
 * stays NaN, +-Inf are right. */
#if T_IS_DOUBLE
#define REAL_BITS uint64_t
#define REAL_MAGIC 0x1.8p52       /* adding it leaves the nearest integer in the low bits of the mantissa */
#define REAL_SHIFT 52
#define REAL_BIAS 1023
#define REAL_LN2_HIGH 0x1.62e42fee00000p-1
#define REAL_LN2_LOW 0x1.a39ef35793c76p-33
#define REAL_EXP_LEAST -708.4 /* its n still makes the exponent bits 0, not negative */
#define REAL_EXP_MOST 710.0
#else
#define REAL_BITS uint32_t
#define REAL_MAGIC 0x1.8p23f
#define REAL_SHIFT 23
#define REAL_BIAS 127
#define REAL_LN2_HIGH 0x1.62e4p-1f
#define REAL_LN2_LOW 0x1.7f7d1cp-20f
#define REAL_EXP_LEAST -87.3f
#define REAL_EXP_MOST 89.0f
#endif

static inline __attribute__((always_inline)) T FN(exp)(T x)
{
    REAL_BITS bits;
    T scale, p, magic = REAL_MAGIC;
    x = x < REAL_EXP_LEAST ? REAL_EXP_LEAST : x; /* comparisons are false for NaN, which so goes through */
    x = x > REAL_EXP_MOST ? REAL_EXP_MOST : x;
    T shifted = x * (T)0x1.71547652b82fep0 + magic, n = shifted - magic;
    T r = x - n * REAL_LN2_HIGH - n * REAL_LN2_LOW;
#if T_IS_DOUBLE
    p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
#else
    p = (T)(1.0 / 5040);
#endif
    p = p * r + (T)(1.0 / 720);
    p = p * r + (T)(1.0 / 120);
    p = p * r + (T)(1.0 / 24);
    p = p * r + (T)(1.0 / 6);
    p = p * r + (T)0.5;
    p = p * r + 1;
    p = p * r + 1;
    __builtin_memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + REAL_BIAS - 1) << REAL_SHIFT; /* 2^(n - 1), as 2^n alone may be too large */
    __builtin_memcpy(&scale, &bits, sizeof bits);
    return 2 * p * scale;
}

static inline __attribute__((always_inline)) T FN(sigmoid)(T x) { return 1 / (1 + FN(exp)(-x)); }
#undef REAL_BITS
#undef REAL_MAGIC
#undef REAL_SHIFT
#undef REAL_BIAS
#undef REAL_LN2_HIGH
#undef REAL_LN2_LOW
#undef REAL_EXP_LEAST
#undef REAL_EXP_MOST
