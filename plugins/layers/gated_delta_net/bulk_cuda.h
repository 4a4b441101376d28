/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/bulk_cuda.h - tiles between memory and shared memory by Hopper's copy engine. One thread asks for a box of
 * a tensor (outer, rows, columns), and the engine moves it without a thread's registers, swizzled as cuda_wgmma.h says.
 * What of a box lies outside its tensor is zeros in shared memory, and is not written to memory.
 *
 * A load ends with its bytes counted off on a barrier in shared memory, for which threads wait by the parity of its
 * phase. Before a store, the threads that wrote the tile call st_wgmma_tiles_written() and meet; before its tile is
 * written again, the thread that asked for the store calls bulk_stores_read(). */
#ifndef GDN_BULK_CUDA_H
#define GDN_BULK_CUDA_H
#include "tile_cuda.h"
#include <cuda.h>

/* A tensor of bf16, its strides in elements (multiples of 8), and the box of it that is moved at once, 64 columns wide. */
struct bulk_tensor {
    const void *at;
    int64_t outer, rows, columns, outer_stride, row_stride;
    int outer_box, row_box;
};
static inline int bulk_map_of(const st_queue *q, const char *name, CUtensorMap *map, const bulk_tensor &t)
{
    const cuuint64_t sizes[3] = {(cuuint64_t)t.columns, (cuuint64_t)t.rows, (cuuint64_t)t.outer};
    const cuuint64_t strides[2] = {(cuuint64_t)t.row_stride * sizeof(bf16), (cuuint64_t)t.outer_stride * sizeof(bf16)};
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
DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* A phase ends when `threads` have called bulk_expect() and all bytes they named are there. */
DEVICE void bulk_barrier_begin(uint64_t *barrier, int threads)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(threads) : "memory");
}
/* After the last of these, before the threads meet. */
DEVICE void bulk_barriers_begun() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void bulk_expect(uint64_t *barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
DEVICE void bulk_wait(uint64_t *barrier, int parity)
{
    uint32_t done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    } while (!done);
}
DEVICE void bulk_load(void *to, const void *from, int bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}
DEVICE void bulk_load_box(bf16 *to, const CUtensorMap *map, int column, int row, int outer, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(row), "r"(outer), "r"(shared_address(barrier))
                 : "memory");
}
DEVICE void bulk_store_box(const CUtensorMap *map, const bf16 *from, int column, int row, int outer)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
                 "r"(column), "r"(row), "r"(outer), "r"(shared_address(from))
                 : "memory");
}
DEVICE void bulk_stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
DEVICE void bulk_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
#endif
#endif
