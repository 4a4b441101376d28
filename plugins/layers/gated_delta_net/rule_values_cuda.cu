/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_values_cuda.cu - X of every chunk again for the backward pass, from the states that were kept:
 * no chunk waits for another. A block is one chunk, value head and 64 columns of its values. */
#include "rule_cuda.h"

enum { THREADS = 128, VALUES = 64 };

template <typename T, int DK> struct values_shared {
    T k[CHUNK * padded_row<T>(DK)], state[DK * padded_row<T>(VALUES)];
    T v[CHUNK * padded_row<T>(VALUES)], solve[CHUNK * padded_row<T>(CHUNK)];
};

template <typename T, int DK> static __global__ void __launch_bounds__(THREADS) values(const rule_launch l)
{
    extern __shared__ __align__(128) unsigned char shared[];
    values_shared<T, DK> *s = (values_shared<T, DK> *)shared;
    const int64_t tile = blockIdx.x, at = tile * l.a.value_heads + blockIdx.y;
    const int head = blockIdx.y, key_head = head / (l.a.value_heads / l.a.key_heads), column = blockIdx.z * VALUES;
    const int columns = l.a.value_dim - column < VALUES ? l.a.value_dim - column : VALUES, row = 16 * warp_of();
    const int ld = padded_row<T>(DK), ldv = padded_row<T>(VALUES), ldc = padded_row<T>(CHUNK);
    const chunk_place p = place_of(l.a.row, tile);
    if (p.length <= 0) return;
    int from_fast;
    const T *from = state_before<T>(l, tile, p, head, column, from_fast);
    load_tile<THREADS, CHUNK, DK>(s->k, (const T *)l.a.k + p.begin * l.a.stride + (int64_t)key_head * l.a.key_dim,
                                  l.a.stride, p.length, l.a.key_dim, l.fast.qk);
    load_tile<THREADS, CHUNK, VALUES>(
        s->v, (const T *)l.a.v + p.begin * l.a.stride + (int64_t)head * l.a.value_dim + column, l.a.stride, p.length,
        columns, l.fast.v);
    load_tile<THREADS, DK, VALUES>(s->state, from, l.a.value_dim, from ? l.a.key_dim : 0, columns, from_fast);
    load_tile<THREADS, CHUNK, CHUNK>(s->solve, (const T *)l.solve + at * MATRIX, CHUNK, CHUNK, CHUNK, 1);
    st_copies_commit();
    st_copies_wait<0>();
    __syncthreads();

    fragments<1, VALUES / 8> x;
    clear(x);
    multiply<ROWS_ARE_M, ROWS_ARE_K>(x, s->k + row * ld, ld, s->state, ldv, DK);
    scale_rows(x, l.decay + at * CHUNK + row, l.k_scale + (tile * l.a.key_heads + key_head) * CHUNK + row, -1.0f);
#pragma unroll
    for (int n = 0; n < VALUES / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) { /* what this thread alone reads and rewrites */
            T *v = s->v + (row + fragment_row(i)) * ldv + 8 * n + fragment_column();
            const float2 old = get2(v);
            put2(v, old.x + x.v[0][n][i], old.y + x.v[0][n][i + 1]);
        }
    __syncthreads();
    clear(x);
    multiply<ROWS_ARE_K, ROWS_ARE_K>(x, s->solve + row, ldc, s->v, ldv, row + 16); /* solve holds A^T */
    write_fragments(x, (T *)l.x + (at * CHUNK + row) * l.a.value_dim + column, l.a.value_dim, CHUNK, columns,
                    l.a.value_dim % pack<T>::n == 0);
}

template <typename T, int DK> static int run(const st_queue *q, const rule_launch *l)
{
    const dim3 grid((unsigned)l->a.row.n_tiles, (unsigned)l->a.value_heads,
                    (unsigned)((l->a.value_dim + VALUES - 1) / VALUES));
    return rule_start(q, "gdn_rule_values", values<T, DK>, grid, THREADS, sizeof(values_shared<T, DK>), *l);
}
int gdn_rule_values(const st_queue *q, const rule_launch *l)
{
    return l->fast.wgmma ? gdn_rule_values_wgmma(q, l) : RULE_BY_TYPE(run, q, l);
}
