/* SPDX-License-Identifier: Apache-2.0 */
/* test_wgmma.c - every order of operands of strata/cuda_wgmma.h against plain sums. The numbers are small integers, so
 * that all sums are exact and every bit must agree. */
#include "kernels_test.h"
#include "wgmma_products.h"
#include <strata/cuda_wgmma.h>
#include <stdio.h>
#include <stdlib.h>

static double *integers(arrays *s, int64_t n)
{
    double *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = (int)(uniform(s) * 8);
    return v;
}
static double at(const array *a, int layout, int wide, int row, int k)
{
    return a->host[layout == ST_COLUMNS_ARE_K ? row * WGMMA_K + k : k * wide + row];
}
typedef struct product_data { wgmma_product p; array *a, *b, *c; } product_data;
static int run_product(void *ctx, int device)
{
    product_data *d = ctx;
    wgmma_product *p = &d->p;
    if (device) return wgmma_multiply(p);
    for (int m = 0; m < WGMMA_M; m++)
        for (int n = 0; n < p->n; n++) {
            double sum = 0;
            for (int k = 0; k < WGMMA_K; k++)
                sum += at(d->a, p->a_layout, WGMMA_M, m, k) * at(d->b, p->b_layout, p->n + WGMMA_SPARE, p->first + n, k);
            d->c->host[m * p->n + n] += sum;
        }
    return 0;
}
static void product_agrees(int n, int a_layout, int b_layout, int a_in_registers, int first)
{
    static const char *const names[] = {"columns", "rows"};
    arrays s;
    char title[64];
    product_data d = {.p = {.n = n, .a_layout = a_layout, .b_layout = b_layout, .a_in_registers = a_in_registers,
                            .first = first}};
    snprintf(title, sizeof title, "N %d, a %s%s, b %s from %d", n, names[a_layout], a_in_registers ? " (held)" : "",
             names[b_layout], first);
    arrays_begin(&s, ST_BF16, (uint64_t)(n + first));
    double *a = integers(&s, WGMMA_M * WGMMA_K), *b = integers(&s, (n + WGMMA_SPARE) * WGMMA_K);
    d.a = input_of(&s, a, WGMMA_M * WGMMA_K, 0);
    d.b = input_of(&s, b, (n + WGMMA_SPARE) * WGMMA_K, 0);
    d.c = result(&s, "c", WGMMA_M * n, 1, 3, 0);
    d.p.a = d.a->device;
    d.p.b = d.b->device;
    d.p.c = d.c->device;
    compare(&s, title, run_product, &d);
    free(a);
    free(b);
    arrays_end(&s);
}
static void products_of(int n)
{
    for (int a = 0; a < 4; a++) /* two layouts, each as a tile and in registers */
        for (int b = 0; b < 2; b++) {
            const int b_layout = b ? ST_ROWS_ARE_K : ST_COLUMNS_ARE_K;
            product_agrees(n, a % 2 ? ST_ROWS_ARE_K : ST_COLUMNS_ARE_K, b_layout, a / 2, 0);
            product_agrees(n, a % 2 ? ST_ROWS_ARE_K : ST_COLUMNS_ARE_K, b_layout, a / 2, b ? 64 : 24);
        }
}
static void narrow_products_agree(void **state)
{
    (void)state;
    products_of(64);
    products_of(72);
    products_of(80);
}
static void products_agree(void **state)
{
    (void)state;
    products_of(128);
}
static void wide_products_agree(void **state)
{
    (void)state;
    products_of(256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(narrow_products_agree), cmocka_unit_test(products_agree),
                                       cmocka_unit_test(wide_products_agree)};
    if (!device_there()) return 0;
    if (wgmma_missing()) {
        printf("1..0 # SKIP %s\n", wgmma_missing());
        return 0;
    }
    return cmocka_run_group_tests_name("wgmma", tests, NULL, NULL);
}
