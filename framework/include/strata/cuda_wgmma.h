/* SPDX-License-Identifier: Apache-2.0 */
/* strata/cuda_wgmma.h - products of a warpgroup (four warps, the first of which has an index divisible by 4) on Hopper's tensor
 * cores: bf16 operands, f32 sums, 64 rows of M at a time. Only code built for sm_90a has them; ST_CUDA_HAS_WGMMA tells in
 * device code.
 *
 * Tiles in shared memory. A tile of `rows` rows (a multiple of 8) is cut into panels of 64 columns, each (rows, 64) of bf16 behind
 * the other, from an address that is a multiple of 1024 bytes. Within a panel the eight 16-byte pieces of a row are exchanged:
 * piece p of row r lies at piece p ^ (r % 8) ("128-byte swizzle"). st_tile_at() gives an element's place. The same tile serves
 * both ways: with its columns along K (ST_COLUMNS_ARE_K), or with its rows along K (ST_ROWS_ARE_K) and its columns along M or N.
 *
 * Results. A thread with warp w (0..3) of the warpgroup, g = lane / 4 and t = lane % 4 holds, of a (64, N) result, c[n][0], c[n][1]
 * in row 16 w + g, columns 8 n + 2 t and the next, and c[n][2], c[n][3] the same of row 16 w + g + 8. An operand A in registers
 * has the same layout: st_wgmma_operand() makes k step s (columns 16 s .. 16 s + 15) of it from such a result.
 *
 * Order. Whatever ordinary stores or cp.async wrote to a tile needs st_wgmma_tiles_written() in the writing thread and then a
 * barrier. A product is issued between st_wgmma_begin() and st_wgmma_commit(); its registers may be touched only after
 * st_wgmma_wait<PENDING>() has left at most PENDING younger commits under way. All four warps take part in every call. */
#ifndef STRATA_CUDA_WGMMA_H
#define STRATA_CUDA_WGMMA_H
#include <strata/cuda.h>
#include <string.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define ST_CUDA_HAS_WGMMA 1
#else
#define ST_CUDA_HAS_WGMMA 0
#endif

enum { ST_COLUMNS_ARE_K, ST_ROWS_ARE_K };
#define ST_TILE_ALIGN 1024 /* bytes */

#ifdef __CUDACC__
#define ST_WGMMA_FN static __device__ __forceinline__

#if !defined(ST_CUDA_ARCHS)
#error "compile with -DST_CUDA_ARCHS='\"sm_90a\"': what the module is built for, as for ST_KERNELS_V1"
#endif
/* Whether this module was built with them and the current device has them: the host's side of ST_CUDA_HAS_WGMMA. */
ST_FN int st_cuda_has_wgmma(void)
{
    int device = 0, major = 0;
    if (!strstr(ST_CUDA_ARCHS, "sm_90a") || cudaGetDevice(&device) != cudaSuccess) return 0;
    return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major == 9;
}

/* Index of an element in a tile of `rows` rows. */
ST_WGMMA_FN int st_tile_at(int rows, int row, int column)
{
    return column / 64 * rows * 64 + row * 64 + ((column % 64 / 8) ^ (row % 8)) * 8 + column % 8;
}

#if ST_CUDA_HAS_WGMMA
ST_WGMMA_FN void st_wgmma_tiles_written(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
ST_WGMMA_FN void st_wgmma_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ST_WGMMA_FN void st_wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> ST_WGMMA_FN void st_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
/* Keeps the compiler from moving uses of c over a wait. */
template <int N> ST_WGMMA_FN void st_wgmma_touch(float (&c)[N / 8][4])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
}
ST_WGMMA_FN void st_wgmma_operand(uint32_t (&a)[4], const float (&even)[4], const float (&odd)[4])
{
    a[0] = st_bf16_pair(even[0], even[1]);
    a[1] = st_bf16_pair(even[2], even[3]);
    a[2] = st_bf16_pair(odd[0], odd[1]);
    a[3] = st_bf16_pair(odd[2], odd[3]);
}

/* The descriptor of k step `step` (16 of K) of a tile of `rows` rows, of its columns from `first` (a multiple of 64 if rows are
 * K) or its rows from `first` (a multiple of 8 if columns are K). */
template <int LAYOUT> ST_WGMMA_FN uint64_t st_wgmma_tile(const st_bf16 *tile, int rows, int first, int step)
{
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(tile), panel = (uint32_t)rows * 128;
    uint32_t at, across; /* across: bytes from one panel to the next, where M or N goes over panels */
    if (LAYOUT == ST_COLUMNS_ARE_K) {
        at = base + (uint32_t)(step / 4) * panel + (uint32_t)first * 128 + (uint32_t)(step % 4) * 32;
        across = 16;
    } else {
        at = base + (uint32_t)(first / 64) * panel + (uint32_t)step * 16 * 128;
        across = panel;
    }
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(across >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* Registers of a result from row n of c on, as operands of one instruction: their numbers in its text, and what they are. */
#define ST_WGMMA_TEXT_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15" \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ST_WGMMA_TEXT_36 ST_WGMMA_TEXT_32 ", %32, %33, %34, %35"
#define ST_WGMMA_TEXT_40 ST_WGMMA_TEXT_36 ", %36, %37, %38, %39"
#define ST_WGMMA_TEXT_64 ST_WGMMA_TEXT_32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ST_WGMMA_TEXT_128 ST_WGMMA_TEXT_64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define ST_WGMMA_4(c, n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define ST_WGMMA_16(c, n) ST_WGMMA_4(c, n), ST_WGMMA_4(c, n + 1), ST_WGMMA_4(c, n + 2), ST_WGMMA_4(c, n + 3)
#define ST_WGMMA_32(c, n) ST_WGMMA_16(c, n), ST_WGMMA_16(c, n + 4)
#define ST_WGMMA_36(c, n) ST_WGMMA_32(c, n), ST_WGMMA_4(c, n + 8)
#define ST_WGMMA_40(c, n) ST_WGMMA_36(c, n), ST_WGMMA_4(c, n + 9)
#define ST_WGMMA_64(c, n) ST_WGMMA_32(c, n), ST_WGMMA_32(c, n + 8)
#define ST_WGMMA_128(c, n) ST_WGMMA_64(c, n), ST_WGMMA_64(c, n + 16)
#define ST_WGMMA_BEGIN(N, SUM) \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " SUM ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 "

/* c = a b (sum 0) or c += a b (sum 1) over one k step, with N columns in R = N / 2 registers. B_LAYOUT and A_LAYOUT: how
 * the tiles of the descriptors lie. Operands behind the registers are given by their numbers: inline PTX has no names. */
#define ST_WGMMA_OF_HELD(N, R, A, B, SUM, B_LIES) \
    template <int B_LAYOUT> \
    ST_WGMMA_FN void st_wgmma(float (&c)[N / 8][4], const uint32_t (&a)[4], uint64_t b, int sum) \
    { \
        asm volatile(ST_WGMMA_BEGIN(N, SUM) "{" ST_WGMMA_TEXT_##R "}, {" A "}, " B ", p, 1, 1, " B_LIES ";\n}" \
                     : ST_WGMMA_##R(c, 0) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(sum), "n"(B_LAYOUT)); \
    }
#define ST_WGMMA_OF_TILES(N, R, A, B, SUM, A_LIES, B_LIES) \
    template <int A_LAYOUT, int B_LAYOUT> \
    ST_WGMMA_FN void st_wgmma(float (&c)[N / 8][4], uint64_t a, uint64_t b, int sum) \
    { \
        asm volatile(ST_WGMMA_BEGIN(N, SUM) "{" ST_WGMMA_TEXT_##R "}, " A ", " B ", p, 1, 1, " A_LIES ", " B_LIES ";\n}" \
                     : ST_WGMMA_##R(c, 0) \
                     : "l"(a), "l"(b), "r"(sum), "n"(A_LAYOUT), "n"(B_LAYOUT)); \
    }
ST_WGMMA_OF_HELD(64, 32, "%32, %33, %34, %35", "%36", "%37", "%38")
ST_WGMMA_OF_TILES(64, 32, "%32", "%33", "%34", "%35", "%36")
ST_WGMMA_OF_HELD(72, 36, "%36, %37, %38, %39", "%40", "%41", "%42")
ST_WGMMA_OF_TILES(72, 36, "%36", "%37", "%38", "%39", "%40")
ST_WGMMA_OF_HELD(80, 40, "%40, %41, %42, %43", "%44", "%45", "%46")
ST_WGMMA_OF_TILES(80, 40, "%40", "%41", "%42", "%43", "%44")
ST_WGMMA_OF_HELD(128, 64, "%64, %65, %66, %67", "%68", "%69", "%70")
ST_WGMMA_OF_TILES(128, 64, "%64", "%65", "%66", "%67", "%68")
ST_WGMMA_OF_HELD(256, 128, "%128, %129, %130, %131", "%132", "%133", "%134")
ST_WGMMA_OF_TILES(256, 128, "%128", "%129", "%130", "%131", "%132")
#endif /* ST_CUDA_HAS_WGMMA */
#endif /* __CUDACC__ */
#endif
