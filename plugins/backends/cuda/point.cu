/* SPDX-License-Identifier: Apache-2.0 */
/* point.cu - kernels that treat each element on its own. */
#include "kernel.h"

/* Element i, row-major, of tensor k: its place in memory. */
DEVICE int64_t place(const cuda_walk &w, int k, int64_t i)
{
    int64_t at = 0;
    for (int d = ST_DIMS - 1; d > 0; d--) {
        at += i % w.dim[d] * w.stride[k][d];
        i /= w.dim[d];
    }
    return at + i * w.stride[k][0];
}

DEVICE void put_any(void *p, int32_t type, int64_t i, double x)
{
    switch (type) {
    case ST_F64: ((double *)p)[i] = x; break;
    case ST_I32: ((int32_t *)p)[i] = (int32_t)x; break;
    case ST_I64: ((int64_t *)p)[i] = (int64_t)x; break;
    case ST_U8: ((uint8_t *)p)[i] = (uint8_t)x; break;
    default: put_real(p, type, i, (float)x);
    }
}

static __global__ void __launch_bounds__(CUDA_THREADS) fill_kernel(cuda_walk w, int64_t n, double value)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        put_any(w.data[0], w.type[0], place(w, 0, i), value);
}

extern "C" int cuda_run_fill(const st_queue *q, const cuda_walk *w, double value)
{
    int64_t n = w->dim[0] * w->dim[1] * w->dim[2] * w->dim[3];
    unsigned blocks = cuda_blocks(cuda_div_up(n, CUDA_THREADS), CUDA_MOST_BLOCKS);
    if (!n) return ST_OK;
    fill_kernel<<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*w, n, value);
    return st_cuda_launched(q, "fill");
}

/* Asked while the device is opened: is there code for it? */
extern "C" int cuda_has_image(void)
{
    struct cudaFuncAttributes attributes;
    bool good = cudaFuncGetAttributes(&attributes, fill_kernel) == cudaSuccess;
    cudaGetLastError();
    return good;
}
