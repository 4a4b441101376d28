/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops.c - every op of the cuda backend against the cpu's in f64, twice for equal bits, and timed; a table comes last.
 * Without a GPU all is skipped, and the reason told. */
#include "rig.h"
#include <stdio.h>

enum { MOST = 64 };
gpu *the_gpu;

void each_type(void (*test)(gpu *))
{
    const int32_t types[] = {ST_F32, ST_BF16};
    for (int i = 0; i < 2; i++) {
        the_gpu->type = types[i];
        gpu_clear(the_gpu); /* what a failed test left */
        test(the_gpu);
    }
}

static int add(struct CMUnitTest *all, int n, const struct CMUnitTest *more, int count)
{
    for (int i = 0; i < count && n < MOST; i++) all[n++] = more[i];
    return n;
}

int main(int argc, char **argv) /* a pattern of names chooses tests */
{
    struct CMUnitTest all[MOST];
    const char *why = "";
    int n = 0;
    the_gpu = gpu_open(&why);
    if (!the_gpu) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
    n = add(all, n, device_tests, n_device_tests);
    n = add(all, n, point_tests, n_point_tests);
    n = add(all, n, rows_tests, n_rows_tests);
    n = add(all, n, move_tests, n_move_tests);
    n = add(all, n, product_tests, n_product_tests);
    n = add(all, n, attention_tests, n_attention_tests);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    int failed = _cmocka_run_group_tests("gpu ops", all, (size_t)n, NULL, NULL);
    gpu_table(the_gpu);
    gpu_close(the_gpu);
    return failed;
}
