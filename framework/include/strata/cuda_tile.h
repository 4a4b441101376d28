/* SPDX-License-Identifier: Apache-2.0 */
/* strata/cuda_tile.h - what kernels on tensor cores are made of, from Ampere on: copies into shared memory that go on while threads
 * work, operands loaded from there by a warp, and products of 16 x 8 x 16 in bf16 with f32 sums.
 *
 * Copies. A thread's copies since its last st_copies_commit() are a group; st_copies_wait<PENDING>() leaves at most so many of the
 * youngest groups under way. They are its own then; other threads see them behind a barrier.
 *
 * Operands. Lane l of a warp has g = l / 4 and t = l % 4. a[0..3]: rows g, g + 8, g, g + 8; columns 2 t, 2 t, 2 t + 8, 2 t + 8
 * and the next one. b[0..1]: column g; rows 2 t, 2 t + 8 and the next one. c[0..3]: rows g, g, g + 8, g + 8; columns 2 t,
 * 2 t + 1 each. */
#ifndef STRATA_CUDA_TILE_H
#define STRATA_CUDA_TILE_H
#include <strata/cuda.h>

#ifdef __CUDACC__
#define ST_TILE_FN static __device__ __forceinline__

ST_TILE_FN uint32_t st_shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* ---- copies of 16 or 4 bytes, aligned so: the first `bytes` of `from`, then zeros; with 0, `from` is not read ---- */
ST_TILE_FN void st_copy16(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(st_shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
ST_TILE_FN void st_copy16_cached(void *to, const void *from, int bytes) /* by way of the first cache */
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(st_shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
ST_TILE_FN void st_copy4(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(st_shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
ST_TILE_FN void st_copies_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> ST_TILE_FN void st_copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* ---- operands: four matrices of 8 x 8; lanes 8 i .. 8 i + 7 name the rows of matrix i, each of 8 elements ---- */
ST_TILE_FN void st_load_matrices(uint32_t *r, const st_bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(st_shared_address(row))
                 : "memory");
}
ST_TILE_FN void st_load_matrices_transposed(uint32_t *r, const st_bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(st_shared_address(row))
                 : "memory");
}
#if __CUDA_ARCH__ >= 900
ST_TILE_FN void st_store_matrices_transposed(st_bf16 *row, const uint32_t *r)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(st_shared_address(row)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
#endif

/* c += a b */
ST_TILE_FN void st_mma(float *c, const uint32_t *a, const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
#endif
