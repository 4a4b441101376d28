/* SPDX-License-Identifier: Apache-2.0 */
/* Published weights in one file or in shards: an index is held to its word, and every broken set is refused by name. */
#include "config.h"
#include "checkpoint_test.h"

static int setup(void **state) { return folder_make(state); }
static int teardown(void **state) { return folder_remove(state); }

#define INDEX "model.safetensors.index.json"
#define S1 "model-00001-of-00002.safetensors"
#define S2 "model-00002-of-00002.safetensors"
#define MAP "{\"metadata\":{\"total_size\":16},\"weight_map\":{\"a\":\"" S1 "\",\"b\":\"" S2 "\"}}"

static void put_tensor(const char *dir, const char *file, const char *name)
{
    const float v[2] = {1, 2};
    char header[128];
    snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", name);
    put_file(dir, file, header, v, sizeof v);
}
static void put_text(const char *dir, const char *file, const char *text) { put_raw(dir, file, text, strlen(text)); }

static void set_of_shards_loads(void **state)
{
    st_shards *s = NULL;
    st_error e = {0};
    const st_file_tensor *const *list;

    put_tensor(*state, S1, "a");
    put_tensor(*state, S2, "b");
    put_text(*state, INDEX, MAP);
    for (int by_file = 0; by_file < 2; by_file++) {
        assert_int_equal(st_shards_open(by_file ? path_in(*state, INDEX) : *state, &s, &e), ST_OK);
        assert_int_equal(st_shards_list(s, &list), 2);
        assert_string_equal(list[0]->name, "a");
        assert_non_null(strstr(st_shards_file(s, st_shards_find(s, "b")), S2));
        assert_null(st_shards_find(s, "c"));
        assert_null(st_shards_warning(s));
        st_shards_close(s);
    }
}

static void single_file_loads(void **state)
{
    st_shards *s = NULL;
    st_error e = {0};

    put_tensor(*state, "model.safetensors", "a");
    for (int by_file = 0; by_file < 2; by_file++) {
        assert_int_equal(st_shards_open(by_file ? path_in(*state, "model.safetensors") : *state, &s, &e), ST_OK);
        assert_non_null(st_shards_find(s, "a"));
        st_shards_close(s);
    }
    put_text(*state, INDEX, MAP);
    assert_int_equal(st_shards_open(*state, &s, &e), ST_E_DATA);
    assert_non_null(strstr(e.message, "both"));
}

static void refused(const char *dir, const char *named, const char *word)
{
    st_shards *s = (st_shards *)1;
    st_error e = {0};

    assert_int_not_equal(st_shards_open(dir, &s, &e), ST_OK);
    assert_null(s);
    if (!strstr(e.message, word)) fail_msg("'%s' not in: %s", word, e.message);
    if (!strstr(e.file, named) && !strstr(e.message, named))
        fail_msg("'%s' not named: %s: %s", named, e.file, e.message);
}

static void broken_sets_are_refused(void **state)
{
    refused("/nowhere/model", "/nowhere/model", "cannot open");
    refused(*state, *state, "neither");
    put_tensor(*state, S1, "a");
    put_text(*state, INDEX, MAP);
    refused(*state, S2, "not there");
    put_tensor(*state, S2, "c");
    refused(*state, S2, "tensor 'b' should be in this shard");
    put_text(*state, S2, "");
    refused(*state, S2, "0 bytes");
    put_text(*state, S2, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 72\n");
    refused(*state, S2, "not a tensor file");
    put_file(*state, S2,
             "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
             "\"stale\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
             "xy", 2);
    refused(*state, S2, "tensor 'stale' of this shard is placed in no shard");
    put_text(*state, INDEX, "{\"weight_map\":[\"a\"]}");
    refused(*state, INDEX, "'weight_map'");
    put_text(*state, INDEX, "{\"weight_map\":{\"a\":1}}");
    refused(*state, INDEX, "'a'");
    put_text(*state, INDEX, "{\"weight_map\":{\"a\":\"model-0000");
    refused(*state, INDEX, "not valid JSON");
    put_text(*state, INDEX, "{\"weight_map\":{\"a\":\"../../etc/hostname\"}}");
    refused(*state, INDEX, "../../etc/hostname");
    put_text(*state, INDEX, "{\"weight_map\":{\"a\":\"..\"}}");
    refused(*state, INDEX, "'..'");
    put_text(*state, INDEX, "{\"weight_map\":{\"a\":\"" S1 "\",\"a\":\"" S1 "\"}}");
    refused(*state, INDEX, "not valid JSON");
}

static void weights_of_other_formats_are_refused(void **state)
{
    static const char *const format[] = {"pt", "tf", "strata"};

    for (int i = 0; i < 3; i++) {
        char header[160];
        st_shards *s = NULL;
        st_error e = {0};
        int rc;
        snprintf(header, sizeof header,
                 "{\"__metadata__\":{\"format\":\"%s\"},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                 format[i]);
        put_file(*state, "model.safetensors", header, "x", 1);
        rc = st_shards_open(*state, &s, &e);
        assert_int_equal(rc, i ? ST_E_DATA : ST_OK);
        st_shards_close(s);
        if (!i) continue;
        assert_non_null(strstr(e.message, format[i]));
        assert_non_null(strstr(e.file, "model.safetensors"));
        assert_non_null(strstr(e.hint, i == 1 ? "PyTorch" : "[checkpoint]"));
    }
}

static void wrong_total_is_told(void **state)
{
    st_shards *s = NULL;
    st_error e = {0};

    put_tensor(*state, S1, "a");
    put_text(*state, INDEX, "{\"metadata\":{\"total_size\":999},\"weight_map\":{\"a\":\"" S1 "\"}}");
    assert_int_equal(st_shards_open(*state, &s, &e), ST_OK);
    assert_non_null(strstr(st_shards_warning(s), "999"));
    assert_non_null(strstr(st_shards_warning(s), " 8 bytes"));
    st_shards_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(set_of_shards_loads, setup, teardown),
        cmocka_unit_test_setup_teardown(single_file_loads, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_sets_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(weights_of_other_formats_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_total_is_told, setup, teardown),
    };
    return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
