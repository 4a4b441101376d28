/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_rng.c - Philox 4x32-10 against its authors' known answers, and independence of every cut.
 * Values not published were computed by a plain re-statement of the algorithm in another language. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/base.h"
#include <math.h>
#include <string.h>

static void known_answers(void **state)
{
    /* Random123's kat_vectors: counter 0, key 0 -> 6627e8d5 e169c58d bc57ac4c 9b00dbd8 */
    assert_true(st_random_u64(0, 0, 0) == UINT64_C(0xe169c58d6627e8d5));
    assert_true(st_random_u64(0, 0, 1) == UINT64_C(0x9b00dbd8bc57ac4c));
    /* all words of key, stream and block in use */
    int64_t index = INT64_C(0x0b4611a6487ed510);
    assert_true(st_random_u64(UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e), index) ==
                UINT64_C(0x572a2f272fe11a02));
    assert_true(st_random_u64(UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e), index + 1) ==
                UINT64_C(0x78d5e3252f88763b));
}

static void uniforms(void **state)
{
    static double all[1001], part[1001];
    st_uniform(7, 3, 0, 3, all);
    assert_true(all[0] == 0x1.fb03c4297b358p-4 && all[1] == 0x1.33168c20534f3p-1 && all[2] == 0x1.d6e8cf62597dep-2);
    st_uniform(7, 3, 0, 1001, all);
    for (int first = 0; first < 5; first++)
        for (int n = 0; n < 6; n++) {
            memset(part, 0, sizeof part);
            st_uniform(7, 3, first, n, part);
            assert_memory_equal(part, all + first, sizeof(double) * (size_t)n);
            assert_true(part[n] == 0);
        }
    double sum = 0, low = 1, high = 0;
    for (int64_t i = 0; i < 100000; i += 1000) {
        st_uniform(1, 2, i, 1000, part);
        for (int k = 0; k < 1000; k++) {
            sum += part[k];
            low = fmin(low, part[k]);
            high = fmax(high, part[k]);
        }
    }
    assert_true(low > 0 && high < 1);
    assert_true(fabs(sum / 100000 - 0.5) < 0.004); /* four standard deviations */
}

static void normals(void **state)
{
    static double all[1000], one;
    st_normal(7, 3, 0, 3, all);
    assert_true(fabs(all[0] + 1.6553816395620728) < 1e-14 && fabs(all[1] + 1.2343375014315892) < 1e-14 &&
                fabs(all[2] + 0.22991261480789468) < 1e-14);
    st_normal(7, 3, 1000001, 1, &one);
    assert_true(fabs(one - 0.28171781146618446) < 1e-14);
    st_normal(7, 3, 1000000, 1000, all); /* the same element inside a longer run */
    assert_true(all[1] == one);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < 100000; i += 1000) {
        st_normal(5, 6, i, 1000, all);
        for (int k = 0; k < 1000; k++) {
            sum += all[k];
            squares += all[k] * all[k];
        }
    }
    assert_true(fabs(sum / 100000) < 0.013 && fabs(squares / 100000 - 1) < 0.018);
}

static void permutations(void **state)
{
    static const int64_t want[8] = {7, 3, 1, 5, 6, 2, 4, 0};
    int64_t out[1000] = {0};
    char seen[1000] = {0};
    st_permutation(7, 3, 8, out);
    assert_memory_equal(out, want, sizeof want);
    st_permutation(7, 4, 1000, out);
    for (int i = 0; i < 1000; i++) {
        assert_in_range(out[i], 0, 999);
        assert_int_equal(seen[out[i]]++, 0);
    }
    st_permutation(7, 3, 1, out);
    assert_int_equal(out[0], 0);
    out[0] = 5;
    st_permutation(7, 3, 0, out);
    assert_int_equal(out[0], 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(uniforms),
        cmocka_unit_test(normals),
        cmocka_unit_test(permutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
