/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer.json: what opens encodes text and decodes it again; and the input as text for a tokenizer that is as it
 * should be: every byte of it belongs to tokens, which say it again. */
#include "config.h"
#include "fuzz.h"
#include "data/tokenizer.h"

enum { TEXT_MAX = 400 }; /* of an input taken as text: a whole file of it would only be slow */

static void both_ways(const st_tokenizer *t, const char *text, size_t n, bool whole)
{
    st_arena *a = st_arena_create((size_t)256 << 20);
    for (int special = 0; special < 2; special++) {
        st_tokens k = {0};
        st_error e = {0};
        st_buf out = {0};
        int rc = st_tokenizer_encode(t, text, n, special, a, &k, &e);
        if (rc != ST_OK) {
            fuzz_refused(rc, &e);
            continue;
        }
        for (int32_t i = 0; i < k.n; i++) {
            FUZZ_HOLDS(k.ids[i] >= 0 && k.ids[i] < st_tokenizer_size(t));
            FUZZ_HOLDS(k.begin[i] <= k.end[i] && k.end[i] <= n);
        }
        if (whole && n) FUZZ_HOLDS(k.n > 0 && k.begin[0] == 0 && k.end[k.n - 1] == n);
        rc = st_tokenizer_decode(t, k.ids, k.n, special, &out, &e);
        if (rc != ST_OK) fuzz_refused(rc, &e);
        st_buf_free(&out);
    }
    st_arena_destroy(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char text[] = "Tea 2 x 12,000 <s_nm>le caf\xc3\xa9</s_nm>\n\n  <|im_start|> "
                               "\xe4\xb8\xad\xe6\x96\x87 don't \xf0\x9f\x8d\xb5";
    static st_tokenizer *good;
    st_tokenizer *t = NULL;
    st_error e = {0};

    if (!good && st_tokenizer_open(getenv("FUZZ_TOKENIZER"), &good, &e) != ST_OK) {
        fprintf(stderr, "%s\n", e.message);
        abort();
    }
    both_ways(good, (const char *)data, n < TEXT_MAX ? n : TEXT_MAX, true);
    int rc = st_tokenizer_open(fuzz_file("tokenizer.json", data, n), &t, &e);
    if (rc != ST_OK) {
        FUZZ_HOLDS(!t);
        fuzz_refused(rc, &e);
        return 0;
    }
    both_ways(t, text, sizeof text - 1, false);
    (void)st_tokenizer_id(t, "Tea");
    st_tokenizer_close(t);
    return 0;
}
