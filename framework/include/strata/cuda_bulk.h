/* SPDX-License-Identifier: Apache-2.0 */
/* strata/cuda_bulk.h - barriers in shared memory, and tiles that Hopper's copy engine moves between memory and shared memory. One
 * thread asks for a box of a tensor (outer, rows, columns), and the engine moves it without a thread's registers, swizzled as
 * cuda_wgmma.h says. What of a box lies outside its tensor is zeros in shared memory, and is not written to memory. The
 * functions for kernels are there where ST_CUDA_HAS_WGMMA is 1.
 *
 * A load ends with its bytes counted off on a barrier, for which threads wait by the parity of its phase. Before a store, the
 * threads that wrote the tile call st_wgmma_tiles_written() and meet; before its tile is written again, the thread that asked for
 * the store calls st_bulk_stores_read(). */
#ifndef STRATA_CUDA_BULK_H
#define STRATA_CUDA_BULK_H
#include <strata/cuda_tile.h>
#include <strata/cuda_wgmma.h>

#ifdef __CUDACC__
#include <cuda.h>

/* A tensor of bf16 at an address that is a multiple of 16 bytes, its strides in elements (multiples of 8), and the box of it that
 * is moved at once, 64 columns wide; `outer_box` and `row_box` are at most 256. */
struct st_bulk_tensor {
    const void *at;
    int64_t outer, rows, columns, outer_stride, row_stride;
    int outer_box, row_box;
};
/* For a kernel's __grid_constant__ argument. Only what the tensor is, not what it holds, is read here. */
static inline int st_bulk_map(const st_queue *q, const char *name, CUtensorMap *map, const st_bulk_tensor &t)
{
    const cuuint64_t sizes[3] = {(cuuint64_t)t.columns, (cuuint64_t)t.rows, (cuuint64_t)t.outer};
    const cuuint64_t strides[2] = {(cuuint64_t)t.row_stride * sizeof(st_bf16), (cuuint64_t)t.outer_stride * sizeof(st_bf16)};
    const cuuint32_t box[3] = {64, (cuuint32_t)t.row_box, (cuuint32_t)t.outer_box}, steps[3] = {1, 1, 1};
    cudaDriverEntryPointQueryResult found;
    void *encode = NULL;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess) {
        cudaGetLastError();
        return q->fail(q, ST_E_DEVICE, "%s: the driver cannot describe tensors to the copy engine", name);
    }
    const CUresult r = ((decltype(&cuTensorMapEncodeTiled))encode)(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *)t.at, sizes, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r == CUDA_SUCCESS) return ST_OK;
    return q->fail(q, ST_E_DEVICE, "%s: the driver does not describe a tensor to the copy engine (error %d)", name,
                   (int)r);
}

#if ST_CUDA_HAS_WGMMA
/* A phase ends when `arrivals` calls of st_barrier_arrive() and st_barrier_expect() came and all bytes that these named are there.
 * The first phase has parity 0; waiting for the parity of the phase before the present one returns at once. */
ST_TILE_FN void st_barrier_begin(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(st_shared_address(barrier)), "r"(arrivals) : "memory");
}
/* After the last of these, before the threads meet. */
ST_TILE_FN void st_barriers_begun(void) { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
ST_TILE_FN void st_barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(st_shared_address(barrier)) : "memory");
}
ST_TILE_FN void st_barrier_expect(uint64_t *barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(st_shared_address(barrier)), "r"(bytes)
                 : "memory");
}
ST_TILE_FN void st_barrier_wait(uint64_t *barrier, int parity)
{
    uint32_t done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(st_shared_address(barrier)), "r"(parity)
                     : "memory");
    } while (!done);
}
ST_TILE_FN void st_bulk_load(void *to, const void *from, int bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     st_shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(st_shared_address(barrier))
                 : "memory");
}
ST_TILE_FN void st_bulk_load_box(st_bf16 *to, const CUtensorMap *map, int column, int row, int outer, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(st_shared_address(to)),
                 "l"(map), "r"(column), "r"(row), "r"(outer), "r"(st_shared_address(barrier))
                 : "memory");
}
ST_TILE_FN void st_bulk_store_box(const CUtensorMap *map, const st_bf16 *from, int column, int row, int outer)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
                 "r"(column), "r"(row), "r"(outer), "r"(st_shared_address(from))
                 : "memory");
}
ST_TILE_FN void st_bulk_stores_commit(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
ST_TILE_FN void st_bulk_stores_read(void) { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
#endif /* ST_CUDA_HAS_WGMMA */
#endif /* __CUDACC__ */
#endif
