/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/chain_cuda.h - what the walks along a segment share, forward and backward: a block has one value head
 * and VALUES of its columns. The state, or its gradient, stays in f32 in registers; shared memory holds its copy as an
 * operand. */
#ifndef GDN_CHAIN_CUDA_H
#define GDN_CHAIN_CUDA_H
#include "rule_cuda.h"

enum { THREADS = 256, VALUES = 64 };

/* How 8 warps divide (DK, VALUES): 16 rows each, and columns if warps are left. */
template <int DK> struct state_part {
    static const int columns = VALUES / (8 / (DK / 16));
    DEVICE int row() { return warp_of() % (DK / 16) * 16; }
    DEVICE int column() { return warp_of() / (DK / 16) * columns; }
};

struct chain_place { int head, key_head, column, columns; }; /* the block's value head and its columns */
DEVICE chain_place chain_place_of(const rule_launch &l)
{
    const int head = blockIdx.y, column = blockIdx.z * VALUES, left = l.a.value_dim - column;
    chain_place c = {head, head / (l.a.value_heads / l.a.key_heads), column, left < VALUES ? left : VALUES};
    return c;
}

/* A state of memory (NULL: zeros) into the operand and the registers. */
template <typename T, int DK>
DEVICE void first_state(T *shared, const T *from, const rule_launch &l, const chain_place &c, int fast,
                        fragments<1, state_part<DK>::columns / 8> &state)
{
    const int ldv = padded_row<T>(VALUES);
    load_tile<THREADS, DK, VALUES>(shared, from, l.a.value_dim, from ? l.a.key_dim : 0, c.columns, from ? fast : 0);
    st_copies_commit();
    st_copies_wait<0>();
    __syncthreads();
    const T *part = shared + state_part<DK>::row() * ldv + state_part<DK>::column();
#pragma unroll
    for (int n = 0; n < state_part<DK>::columns / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const float2 both = get2(part + fragment_row(i) * ldv + 8 * n + fragment_column());
            state.v[0][n][i] = both.x;
            state.v[0][n][i + 1] = both.y;
        }
}
/* From the registers to memory. */
template <typename T, int DK>
DEVICE void last_state(T *to, const rule_launch &l, const chain_place &c, int fast,
                       const fragments<1, state_part<DK>::columns / 8> &state)
{
    const int row = state_part<DK>::row(), column = state_part<DK>::column();
    write_fragments(state, to + (int64_t)row * l.a.value_dim + column, l.a.value_dim, l.a.key_dim - row,
                    c.columns - column, fast);
}
/* Of a stored state, the part that this block has. */
DEVICE int64_t state_at(const rule_launch &l, const chain_place &c, int64_t tile)
{
    return (tile * l.a.value_heads + c.head) * l.a.key_dim * l.a.value_dim + c.column;
}
#endif
