/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a sharded model: the input is the index, beside two shards that are as they should be. */
#include "config.h"
#include "fuzz.h"
#include "checkpoint/safetensors.h"

static void shard(const char *file, const char *names)
{
    char whole[256];
    size_t header = strlen(names);
    memset(whole, 0, sizeof whole);
    whole[0] = (char)header;
    memcpy(whole + 8, names, header);
    fuzz_file(file, whole, 8 + header + 16);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *folder = fuzz_path(""), *name[] = {"a", "b", "c"};
    st_shards *s = NULL;
    st_error e = {0};
    const st_file_tensor *const *list;

    if (access(fuzz_path("1.safetensors"), R_OK)) {
        shard("1.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                               "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[8,16]}}");
        shard("2.safetensors", "{\"c\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]}}");
    }
    fuzz_file("model.safetensors.index.json", data, n);
    int rc = st_shards_open(folder, &s, &e);
    if (rc != ST_OK) {
        FUZZ_HOLDS(!s);
        fuzz_refused(rc, &e);
        return 0;
    }
    int n_tensors = st_shards_list(s, &list);
    FUZZ_HOLDS(n_tensors <= 3);
    for (int i = 0; i < n_tensors; i++) {
        FUZZ_HOLDS(st_shards_find(s, list[i]->name) == list[i]);
        FUZZ_HOLDS(!access(st_shards_file(s, list[i]), R_OK));
    }
    for (int i = 0; i < 3; i++) (void)st_shards_find(s, name[i]);
    (void)st_shards_warning(s);
    st_shards_close(s);
    return 0;
}
