/* SPDX-License-Identifier: Apache-2.0 */
/* The ground truth of a receipt (JSON): what becomes a label has its marks inside the text, in both orders of keys. */
#include "config.h"
#include "fuzz.h"
#include "../../plugins/datasets/cord_v2/cord_v2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    st_base *base = NULL;
    FUZZ_HOLDS(st_base_create(&base, stderr, 1, 1) == ST_OK);
    for (int32_t order = CORD_ORDER_SORTED; order <= CORD_ORDER_FILE; order++) {
        st_error e = {0};
        cord_label label;
        st_worker w = {.size = sizeof w, .host = &base->host, .arena = st_arena_create((size_t)64 << 20), .error = &e};
        int rc = cord_label_of(&w, (const char *)data, n, order, &label);
        if (rc != ST_OK) fuzz_refused(rc, &e);
        for (int32_t i = 0; rc == ST_OK && i < label.n_marks; i++)
            FUZZ_HOLDS(label.marks[i].n > 0 && (size_t)label.marks[i].first + label.marks[i].n <= label.n);
        st_arena_destroy(w.arena);
    }
    st_base_destroy(base);
    return 0;
}
