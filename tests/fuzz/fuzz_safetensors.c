/* SPDX-License-Identifier: Apache-2.0 */
/* One file of tensors: what opens has each tensor inside the file, in order, without overlap, and its values read. */
#include "config.h"
#include "fuzz.h"
#include "checkpoint/safetensors.h"

enum { VALUES_MAX = 4096 };

static void read_values(const st_file_tensor *t)
{
    double *v = malloc(sizeof *v * VALUES_MAX);
    unsigned sum = 0;
    st_error e = {0};
    for (size_t i = 0; i < t->bytes; i++) sum |= ((const unsigned char *)t->data)[i];
    FUZZ_HOLDS(sum < 256);
    if (t->count <= VALUES_MAX) {
        int rc = st_tensor_to_f64(t, v, &e);
        if (rc != ST_OK) fuzz_refused(rc, &e);
    }
    free(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *path = fuzz_file("one.safetensors", data, n);
    st_tensors *t = NULL;
    st_error e = {0};
    const st_file_tensor *list;
    int rc = st_tensors_open(path, &t, &e);

    if (rc != ST_OK) {
        FUZZ_HOLDS(!t);
        fuzz_refused(rc, &e);
        return 0;
    }
    int n_tensors = st_tensors_list(t, &list);
    size_t held = 0;
    for (int i = 0; i < n_tensors; i++) {
        FUZZ_HOLDS(st_tensors_find(t, list[i].name) == &list[i]);
        FUZZ_HOLDS(i == 0 || list[i].data == (const char *)list[i - 1].data + list[i - 1].bytes);
        held += list[i].bytes;
        read_values(&list[i]);
    }
    FUZZ_HOLDS(held <= n);
    (void)st_tensors_metadata(t, "format");
    st_tensors_close(t);
    return 0;
}
