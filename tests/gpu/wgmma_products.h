/* SPDX-License-Identifier: Apache-2.0 */
/* wgmma_products.h - one product through strata/cuda_wgmma.h, for test_wgmma.c. */
#ifndef WGMMA_PRODUCTS_H
#define WGMMA_PRODUCTS_H
#include <stdint.h>
#if defined(__cplusplus)
extern "C" {
#endif
enum { WGMMA_M = 128, WGMMA_K = 128, WGMMA_SPARE = 64 }; /* M: of two warpgroups. SPARE: rows of B's side before and behind */

/* c (M, n) += a b over K. a_layout, b_layout: ST_COLUMNS_ARE_K or ST_ROWS_ARE_K; a_in_registers instead of a tile.
 * a: (M, K), or (K, M) if its rows are K. b: (n + SPARE, K) or (K, n + SPARE); the product begins at its row, or column,
 * `first`. All device memory, a and b bf16, c f32. */
typedef struct wgmma_product {
    int n, a_layout, b_layout, a_in_registers, first;
    const void *a, *b;
    float *c;
} wgmma_product;

/* NULL, or why there are no such products here. */
const char *wgmma_missing(void);
int wgmma_multiply(const wgmma_product *); /* a cudaError_t */
#if defined(__cplusplus)
}
#endif
#endif
