/* SPDX-License-Identifier: Apache-2.0 */
/* mma.h - tensor core products of 16 x 8 x 16 in bf16 with f32 sums, and loads of their operands from shared memory.
 *
 * Lane l has g = l / 4 and t = l % 4. a[0..3]: rows g, g + 8, g, g + 8; columns 2t, 2t, 2t + 8, 2t + 8 and the next one.
 * b[0..1]: column g; rows 2t, 2t + 8 and the next one. c[0..3]: rows g, g, g + 8, g + 8; columns 2t, 2t + 1 each. */
#ifndef CUDA_MMA_H
#define CUDA_MMA_H
#include "kernel.h"

DEVICE void mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* Four 8 x 8 matrices; lanes 8 i ... 8 i + 7 give the addresses of the rows of matrix i. */
DEVICE void load_matrices(uint32_t *r, const st_bf16 *p)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(p);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEVICE void load_matrices_transposed(uint32_t *r, const st_bf16 *p)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(p);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
#endif
