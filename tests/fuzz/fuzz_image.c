/* SPDX-License-Identifier: Apache-2.0 */
/* A picture: what decodes has its size within the limit and every pixel set, under both rules for transparency. */
#include "config.h"
#include "fuzz.h"
#include "data/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    for (int alpha = ST_ALPHA_DROP; alpha <= ST_ALPHA_WHITE; alpha++) {
        const st_image_rules rules = {alpha, 1 << 16};
        st_arena *a = st_arena_create((size_t)64 << 20);
        st_image image = {0};
        st_error e = {0};
        int rc = st_image_decode(data, n, &rules, a, &image, &e);
        if (rc != ST_OK) {
            fuzz_refused(rc, &e);
        } else {
            unsigned sum = 0;
            FUZZ_HOLDS(image.width > 0 && image.height > 0);
            FUZZ_HOLDS((int64_t)image.width * image.height <= rules.max_pixels);
            for (int64_t i = 0; i < (int64_t)image.width * image.height * 3; i++) sum += image.rgb[i];
            FUZZ_HOLDS(sum <= 255u * 3u << 16);
        }
        st_arena_destroy(a);
    }
    return 0;
}
