/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/kernels_cpu.c - the CPU kernels of one instruction-set level, for float and double. The templates are
 * plain C over GCC vector types, so the same text serves SSE2, AVX2 and AVX-512. */
#include "kernels_cpu.h"
#include "kernels.h"
#include <math.h>
#include <strata/cpu.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#define CHANNEL_BLOCK 256
#if ST_CPU_LEVEL >= 4
#define VEC_BYTES 64
#define MR 8 /* rows of a register block: 2 MR accumulators and what they need fit the registers */
#elif ST_CPU_LEVEL >= 3
#define VEC_BYTES 32
#define MR 4
#else
#define VEC_BYTES 16
#define MR 4
#endif
#define W ((int64_t)(VEC_BYTES / sizeof(REAL)))
enum { PLAIN, SOLVE_LOWER, SOLVE_UPPER }; /* what `block` does beside its product */
enum {
    FULL,
    A_LOWER,
    A_UPPER,
    C_LOWER
}; /* `multiply`: A is zero above or below its diagonal; C is wanted on and below it */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

#define REAL float
#define INT int32_t
#define SUFFIX _f32
#define EXP expf
#define SQRT sqrtf
#define TINY 1e-30f
#define MANTISSA 23
#define EXPONENT_BIAS 127
#define ROUND_MAGIC 12582912.0f /* 1.5 * 2^23 */
#define EXP_LOWEST -87.3f
#define LN2_HIGH 0.693145751953125f
#define LN2_LOW 1.42860682030941723212e-6f
#define EXP_TAYLOR 1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f
#define ATANH_TERMS 7
#include "template_cpu.h"

#define REAL double
#define INT int64_t
#define SUFFIX _f64
#define EXP exp
#define SQRT sqrt
#define TINY 1e-290
#define MANTISSA 52
#define EXPONENT_BIAS 1023
#define ROUND_MAGIC 6755399441055744.0 /* 1.5 * 2^52 */
#define EXP_LOWEST -708.0
#define LN2_HIGH 6.93147180369123816490e-01
#define LN2_LOW 1.90821492927058770002e-10
#define EXP_TAYLOR \
    1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, \
        1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0
#define ATANH_TERMS 17
#include "template_cpu.h"

#define ENTRY(name, T, type_of) \
    static int name(const st_queue *q, const T *a) \
    { \
        if (a->type_of == ST_F64) return name##_f64(q, a); \
        return a->type_of == ST_F32 ? name##_f32(q, a) : ST_E_UNSUPPORTED; \
    }
ENTRY(conv, gdn_conv, dtype)
ENTRY(conv_bwd, gdn_conv, dtype)
ENTRY(gate, gdn_gate, dtype)
ENTRY(gate_bwd, gdn_gate, dtype)
ENTRY(rule, gdn_rule, dtype)
ENTRY(rule_bwd, gdn_rule_bwd, f.dtype)
ENTRY(norm, gdn_norm, dtype)
ENTRY(norm_bwd, gdn_norm, dtype)

const gdn_kernels ST_CPU_NAME(gdn_table) = {conv, conv_bwd, gate, gate_bwd, rule, rule_bwd, norm, norm_bwd};
