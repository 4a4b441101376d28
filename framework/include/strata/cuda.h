/* SPDX-License-Identifier: Apache-2.0 */
/* strata/cuda.h - for kernel modules of the cuda backend.
 *
 * A kernel module `<plugin>-cuda` is a C file with the export, ST_KERNELS_V1(..., ST_CUDA_TOOLCHAIN, ST_CUDA_ARCHS, NULL), and .cu
 * files with kernels and their entries. An entry is extern "C", checks nothing that the logic module checked, launches on
 * st_cuda_stream(q), and ends with `return st_cuda_launched(q, "name")`. It never synchronises, allocates or copies to the host,
 * so that a step can be captured as a graph; grids come from capacities, and what differs from step to step is read on the
 * device. Results are the same in every run: no float atomics, sums in an order that depends on sizes alone. */
#ifndef STRATA_CUDA_H
#define STRATA_CUDA_H
#include <strata/plugin.h>

ST_FN struct CUstream_st *st_cuda_stream(const st_queue *q) { return (struct CUstream_st *)q->stream; } /* a cudaStream_t */

#ifdef __CUDACC__
ST_FN int st_cuda_most_shared(void) /* bytes that a block can have on this GPU: 99 to 227 KiB */
{
    int device = 0, most = 0;
    if (cudaGetDevice(&device) == cudaSuccess)
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return most;
}
/* Status of the launches since the last call, with the runtime's own words. */
ST_FN int st_cuda_launched(const st_queue *q, const char *name)
{
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) return ST_OK;
    if (e == cudaErrorInvalidValue) /* what asking for too much shared memory comes to */
        return q->fail(q, ST_E_DEVICE,
                       "%s: the kernel was not launched: %s (%s); perhaps for shared memory, of which a block has at "
                       "most %d bytes here",
                       name, cudaGetErrorString(e), cudaGetErrorName(e), st_cuda_most_shared());
    return q->fail(q, ST_E_DEVICE, "%s: the kernel was not launched: %s (%s)", name, cudaGetErrorString(e), cudaGetErrorName(e));
}
/* Shared memory beyond 48 KiB has to be allowed once per kernel; doing it before every launch is cheap. A GPU that has less
 * says so: ST_TRY(st_cuda_shared(q, name, kernel, bytes)) in words with both numbers, ST_CUDA_SHARED when the kernel is
 * launched. */
ST_FN int st_cuda_shared(const st_queue *q, const char *name, const void *kernel, size_t bytes)
{
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) == cudaSuccess) return ST_OK;
    cudaGetLastError();
    return q->fail(q, ST_E_UNSUPPORTED, "%s: a block needs %zu bytes of shared memory, this GPU has at most %d", name, bytes,
                   st_cuda_most_shared());
}
#define ST_CUDA_SHARED(kernel, bytes) cudaFuncSetAttribute((kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes))

/* Where a kernel reports a fault: passed by value. code: ST_FAULT_*, or ST_FAULT_USER + i with the plugin's own text. */
typedef struct st_cuda_faults { st_fault *word; int32_t layer; } st_cuda_faults;
ST_FN st_cuda_faults st_cuda_faults_of(const st_queue *q)
{
    st_cuda_faults f = {q->fault, q->layer};
    return f;
}
static __device__ inline void st_cuda_fault(st_cuda_faults f, uint32_t code, int64_t a, int64_t b) /* the first one stays */
{
    if (!f.word || atomicCAS(&f.word->code, (uint32_t)ST_FAULT_NONE, code) != ST_FAULT_NONE) return;
    f.word->layer = f.layer;
    f.word->a = a;
    f.word->b = b;
}

/* 2^x and 1 / x as the hardware has them, within 2^-22 of their size; 2^x is 0 for -inf. For runs in bf16. */
static __device__ inline float st_exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ inline float st_inverse_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Over LANES neighbouring threads of a warp, a power of two; every one gets the result, in the same order. All threads of the warp
 * take part. */
template <int LANES, typename T> static __device__ inline T st_lanes_sum(T x)
{
#pragma unroll
    for (int step = LANES / 2; step; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* bf16 as it lies in memory, without the cost of compiling cuda_bf16.h. Rounds to the nearest even. */
typedef struct st_bf16 { uint16_t bits; } st_bf16;
static __device__ inline float st_to_f32(float x) { return x; }
static __device__ inline float st_to_f32(st_bf16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
static __device__ inline uint32_t st_bf16_pair(float low, float high) /* low in bits 0-15 */
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
static __device__ inline void st_from_f32(float *to, float x) { *to = x; }
static __device__ inline void st_from_f32(st_bf16 *to, float x) { to->bits = (uint16_t)st_bf16_pair(x, 0.0f); }
#endif
#endif
