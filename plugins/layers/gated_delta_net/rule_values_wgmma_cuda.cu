/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_values_wgmma_cuda.cu - rule_values_cuda.cu for Hopper's warpgroup products. A block is one chunk,
 * value head and 64 columns of its values, one warpgroup; four on an SM hide each other's loads. Blocks that share keys
 * follow one another. */
#include "chain_wgmma_cuda.h"

enum { THREADS = 128 };

struct values_shared {
    bf16 k[CHUNK * KEYS], state[KEYS * VALUES], v[CHUNK * VALUES], solve[MATRIX];
    chain_factors factors;
};

static __global__ void __launch_bounds__(THREADS, 4) values(const rule_launch l)
{
#if ST_CUDA_HAS_WGMMA
    extern __shared__ __align__(ST_TILE_ALIGN) unsigned char shared[];
    values_shared *s = (values_shared *)shared;
    const int parts = (l.a.value_dim + VALUES - 1) / VALUES, column = blockIdx.x % parts * VALUES;
    const int head = blockIdx.x / parts % l.a.value_heads, key_head = head / (l.a.value_heads / l.a.key_heads);
    const int64_t tile = blockIdx.x / parts / l.a.value_heads, at = tile * l.a.value_heads + head;
    const int columns = l.a.value_dim - column < VALUES ? l.a.value_dim - column : VALUES, row = 16 * warp_of();
    const chunk_place p = place_of(l.a.row, tile);
    if (p.length <= 0) return;
    int fast;
    const bf16 *from = state_before<bf16>(l, tile, p, head, column, fast);
    load_swizzled<THREADS, CHUNK, KEYS>(s->k, (const bf16 *)l.a.k + p.begin * l.a.stride + (int64_t)key_head * l.a.key_dim,
                                        l.a.stride, p.length, l.a.key_dim);
    load_swizzled<THREADS, KEYS, VALUES>(s->state, from, l.a.value_dim, from ? l.a.key_dim : 0, columns);
    load_floats(s->factors.decay, l.decay + at * CHUNK, CHUNK, 0);
    load_floats(s->factors.k_scale, l.k_scale + (tile * l.a.key_heads + key_head) * CHUNK, CHUNK, 16);
    load_swizzled<THREADS, CHUNK, VALUES>(
        s->v, (const bf16 *)l.a.v + p.begin * l.a.stride + (int64_t)head * l.a.value_dim + column, l.a.stride, p.length,
        columns);
    load_swizzled<THREADS, CHUNK, CHUNK>(s->solve, (const bf16 *)l.solve + at * MATRIX, CHUNK, CHUNK, CHUNK);
    st_copies_commit();
    st_copies_wait<0>();
    st_wgmma_tiles_written();
    __syncthreads();

    float u[8][4];
    uint32_t w[4][4];
    st_wgmma_begin();
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
        st_wgmma<ST_ROWS_ARE_K, ST_COLUMNS_ARE_K>(u, st_wgmma_tile<ST_ROWS_ARE_K>(s->state, KEYS, 0, k),
                                                  st_wgmma_tile<ST_COLUMNS_ARE_K>(s->k, CHUNK, 0, k), k);
    st_wgmma_commit();
    st_wgmma_wait<0>();
    st_wgmma_touch<64>(u);
    written_values(w, u, s->v, row, &s->factors);
    st_wgmma_begin();
    multiply<ST_ROWS_ARE_K>(u, w, s->solve, 0); /* solve holds A^T */
    st_wgmma_wait<0>();
    st_wgmma_touch<64>(u);
    operands(w, u);
    put_rows(s->v, row, w);
    __syncthreads();
    take_rows((bf16 *)l.x + at * CHUNK * l.a.value_dim + column, l.a.value_dim, s->v, CHUNK, columns);
#endif
}

int gdn_rule_values_wgmma(const st_queue *q, const rule_launch *l)
{
    const int64_t parts = (l->a.value_dim + VALUES - 1) / VALUES;
    const dim3 grid((unsigned)(l->a.row.n_tiles * l->a.value_heads * parts));
    return rule_start(q, "gdn_rule_values", values, grid, THREADS, sizeof(values_shared), *l);
}
