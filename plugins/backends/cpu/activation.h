/* SPDX-License-Identifier: Apache-2.0 */
/* activation.h - ST_ACT_* and their derivatives on T. Included once per type, after real.h. `act` is a constant at
 * every place of use (see ACT_CASES), so that each loop holds one formula. */
#define ACT_INLINE static inline __attribute__((always_inline))

/* Normal distribution function. f32: the tail is e^(-z^2) P(1 / (1 + 0.4 z)) with z = |x| / sqrt 2; P was fitted
 * (minimax, relative error 3e-8 up to z = 10) to erfc(z) e^(z^2) / 2. */
#if T_IS_DOUBLE
ACT_INLINE T FN(normal_cdf)(T x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
#else
ACT_INLINE T FN(normal_cdf)(T x)
{
    T z = (x < 0 ? -x : x) * (T)0.70710678118654752440, t = 1 / (1 + (T)0.4 * z);
    T p = (T)0.01434761006385088;
    p = p * t + (T)-0.03737311065196991;
    p = p * t + (T)-0.03184628486633301;
    p = p * t + (T)0.13789817690849304;
    p = p * t + (T)-0.03428668528795242;
    p = p * t + (T)0.13432054221630096;
    p = p * t + (T)0.0887075886130333;
    p = p * t + (T)0.11567769199609756;
    p = p * t + (T)0.11254127323627472;
    p = p * t + (T)1.3203284652263392e-05;
    T tail = FN(exp)(-z * z) * p;
    return x < 0 ? tail : 1 - tail;
}
#endif

/* 0.5 (1 + tanh(u)) = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3): without cancellation for negative x */
#define GELU_TWO_ROOT (T)1.59576912160573071176
#define GELU_CUBE (T)0.044715

ACT_INLINE T FN(act_value)(int act, T x)
{
    switch (act) {
    case ST_ACT_SILU: return x * FN(sigmoid)(x);
    case ST_ACT_GELU_TANH: return x * FN(sigmoid)(GELU_TWO_ROOT * (x + GELU_CUBE * x * x * x));
    case ST_ACT_GELU_ERF: return x * FN(normal_cdf)(x);
    case ST_ACT_SIGMOID: return FN(sigmoid)(x);
    case ST_ACT_RELU2: return (x < 0 ? 0 : x) * x;
    default: return x;
    }
}

/* sigmoid(x), and sigmoid(-x) without the cancellation of 1 - sigmoid(x) */
ACT_INLINE T FN(sigmoid_both)(T x, T *other)
{
    T e = FN(exp)(x < 0 ? x : -x), large = 1 / (1 + e), small = e * large;
    *other = x < 0 ? large : small;
    return x < 0 ? small : large;
}

ACT_INLINE T FN(act_slope)(int act, T x)
{
    T s, rest;
    switch (act) {
    case ST_ACT_SILU:
        s = FN(sigmoid_both)(x, &rest);
        return s * (1 + x * rest);
    case ST_ACT_GELU_TANH:
        s = FN(sigmoid_both)(GELU_TWO_ROOT * (x + GELU_CUBE * x * x * x), &rest);
        return s * (1 + x * rest * (GELU_TWO_ROOT * (1 + 3 * GELU_CUBE * x * x)));
    case ST_ACT_GELU_ERF: return FN(normal_cdf)(x) + x * (T)0.39894228040143267794 * FN(exp)((T)-0.5 * x * x);
    case ST_ACT_SIGMOID:
        s = FN(sigmoid_both)(x, &rest);
        return s * rest;
    case ST_ACT_RELU2: return 2 * (x < 0 ? 0 : x);
    default: return 1;
    }
}

/* Runs `loop(ACT)` with the constant that `act` holds. */
#undef ACT_CASES
#define ACT_CASES(act, loop) \
    switch (act) { \
    case ST_ACT_SILU: loop(ST_ACT_SILU) break; \
    case ST_ACT_GELU_TANH: loop(ST_ACT_GELU_TANH) break; \
    case ST_ACT_GELU_ERF: loop(ST_ACT_GELU_ERF) break; \
    case ST_ACT_SIGMOID: loop(ST_ACT_SIGMOID) break; \
    case ST_ACT_RELU2: loop(ST_ACT_RELU2) break; \
    default: loop(ST_ACT_NONE) break; \
    }
#undef ACT_INLINE
#undef GELU_TWO_ROOT
#undef GELU_CUBE
