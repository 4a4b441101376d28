/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing safetensors: every kind of valid oddity loads, every kind of hostile header is refused with the
 * file and the reason, and what is written is read back bit by bit. Inputs are made here, byte by byte. */
#include "config.h"
#include "checkpoint_test.h"
#include <dirent.h>
#include <math.h>
#include <sys/resource.h>

static int setup(void **state) { return folder_make(state); }
static int teardown(void **state) { return folder_remove(state); }

/* ---- what must load ---- */

static st_tensors *must_open(const char *path)
{
    st_tensors *t = NULL;
    st_error e = {0};
    if (st_tensors_open(path, &t, &e) != ST_OK) fail_msg("%s: %s", path, e.message);
    return t;
}

static void small_file_loads(void **state)
{
    const float a[] = {1, 2, 3, 4};
    const char *p = put_file(*state, "a",
                             "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],"
                             "\"data_offsets\":[0,16]}}",
                             a, sizeof a);
    st_tensors *t = must_open(p);
    const st_file_tensor *list;
    double v[4];

    assert_int_equal(st_tensors_list(t, &list), 1);
    assert_string_equal(list->name, "a");
    assert_int_equal(list->dtype, ST_F32);
    assert_int_equal(list->nd, 2);
    assert_int_equal(list->count, 4);
    assert_int_equal(st_tensor_to_f64(list, v, NULL), ST_OK);
    for (int i = 0; i < 4; i++) assert_true(v[i] == i + 1);
    assert_string_equal(st_tensors_metadata(t, "format"), "pt");
    assert_null(st_tensors_metadata(t, "other"));
    assert_null(st_tensors_find(t, "b"));
    st_tensors_close(t);
}

static void all_types_convert(void **state)
{
    struct __attribute__((packed)) {
        double f64;
        float f32;
        uint16_t bf16[7], f16[6];
        int64_t i64;
        int32_t i32;
        uint8_t u8, f8;
    } d = {-0.1,
           1.5f,
           {0x3f80, 0xc000, 0x7f80, 0xff80, 0x7fc0, 0x8000, 0x0001},
           {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x8000},
           -7,
           1 << 30,
           255,
           0x38};
    const char *p = put_file(*state, "types",
                             "{\"f8\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[51,52]},"
                             "\"u8\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[50,51]},"
                             "\"i32\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[46,50]},"
                             "\"i64\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[38,46]},"
                             "\"f16\":{\"dtype\":\"F16\",\"shape\":[6],\"data_offsets\":[26,38]},"
                             "\"bf16\":{\"dtype\":\"BF16\",\"shape\":[7],\"data_offsets\":[12,26]},"
                             "\"f32\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
                             "\"f64\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}",
                             &d, sizeof d);
    st_tensors *t = must_open(p);
    st_error e = {0};
    double v[8];

    assert_int_equal(sizeof d, 52);
    assert_int_equal(st_tensor_to_f64(st_tensors_find(t, "f64"), v, NULL), ST_OK);
    assert_true(v[0] == -0.1);
    assert_int_equal(st_tensor_to_f64(st_tensors_find(t, "f32"), v, NULL), ST_OK);
    assert_true(v[0] == 1.5);
    assert_int_equal(st_tensor_to_f64(st_tensors_find(t, "bf16"), v, NULL), ST_OK);
    assert_true(v[0] == 1 && v[1] == -2 && v[2] == INFINITY && v[3] == -INFINITY && isnan(v[4]) && v[5] == 0 &&
                signbit(v[5]) && v[6] == ldexp(1, -133));
    assert_int_equal(st_tensor_to_f64(st_tensors_find(t, "f16"), v, NULL), ST_OK);
    assert_true(v[0] == 1 && v[1] == -2 && v[2] == ldexp(1, -24) && v[3] == 65504 && v[4] == INFINITY && signbit(v[5]));
    assert_int_equal(st_tensor_to_f64(st_tensors_find(t, "i64"), v, NULL), ST_OK);
    assert_true(v[0] == -7);
    assert_int_equal(st_tensor_to_f64(st_tensors_find(t, "i32"), v, NULL), ST_OK);
    assert_true(v[0] == 1 << 30);
    assert_int_equal(st_tensors_find(t, "u8")->nd, 0);
    assert_int_equal(st_tensor_to_f64(st_tensors_find(t, "u8"), v, NULL), ST_OK);
    assert_true(v[0] == 255);
    assert_int_equal(st_tensor_to_f64(st_tensors_find(t, "f8"), v, &e), ST_E_UNSUPPORTED);
    assert_non_null(strstr(e.message, "F8_E4M3"));
    st_tensors_close(t);
}

static void odd_but_valid_loads(void **state)
{
    float data[48];
    double v[48];
    char *name = malloc(70001), *header = NULL;
    st_tensors *t;

    for (int i = 0; i < 48; i++) data[i] = (float)i;
    t = must_open(put_file(*state, "five",
                           "{\"patch\":{\"dtype\":\"F32\",\"shape\":[2,3,2,2,2],\"data_offsets\":[0,192]}}", data,
                           192)); /* the header's length is no multiple of 8: data is unaligned */
    assert_int_equal(st_tensors_find(t, "patch")->nd, 5);
    assert_int_equal(st_tensor_to_f64(st_tensors_find(t, "patch"), v, NULL), ST_OK);
    for (int i = 0; i < 48; i++) assert_true(v[i] == i);
    st_tensors_close(t);

    t = must_open(put_file(*state, "empty",
                           "{\"e\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[0,0]},"
                           "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}   ",
                           data, 4));
    assert_int_equal(st_tensors_find(t, "e")->count, 0);
    st_tensors_close(t);
    st_tensors_close(must_open(put_file(*state, "none", "{}", NULL, 0)));

    memset(name, 'n', 70000);
    name[70000] = 0;
    assert_true(asprintf(&header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", name) > 0);
    t = must_open(put_file(*state, "long", header, data, 4));
    assert_non_null(st_tensors_find(t, name));
    st_tensors_close(t);
    free(name);
    free(header);
}

/* ---- what must be refused ---- */

static void refused(const char *path, const char *word)
{
    st_tensors *t = (st_tensors *)1;
    st_error e = {0};
    int rc = st_tensors_open(path, &t, &e);

    if (rc == ST_OK) fail_msg("%s loads, should name '%s'", path, word);
    assert_null(t);
    assert_int_equal(rc, e.code);
    if (!strstr(e.message, word)) fail_msg("'%s' not in: %s", word, e.message);
    if (strcmp(e.file, path) && !strstr(e.message, path)) fail_msg("no file named in: %s", e.message);
}

#define ONE(dtype, shape, offsets) "{\"a\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
static const struct {
    const char *name, *header;
    size_t data;
    const char *word;
} bad_headers[] = {
    {"list", "[1,2]", 0, "does not begin with '{'"},
    {"garbage", "{abcdefgh}", 0, "not valid JSON"},
    {"comma", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},}", 4, "not valid JSON"},
    {"utf8", "{\"\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "not valid JSON"},
    {"nul", "{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "not valid JSON"},
    {"twice",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     8, "twice"},
    {"entry", "{\"a\":7}", 0, "not an object"},
    {"metadata", "{\"__metadata__\":{\"k\":1}}", 0, "not text"},
    {"no_dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "'dtype'"},
    {"no_shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "'shape'"},
    {"no_offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "'data_offsets'"},
    {"dtype", ONE("\"F33\"", "[1]", "[0,4]"), 4, "'F33'"},
    {"off_one", ONE("\"F32\"", "[1]", "[0]"), 4, "'data_offsets'"},
    {"off_float", ONE("\"F32\"", "[1]", "[0.0,4.0]"), 4, "'data_offsets'"},
    {"off_negative", ONE("\"F32\"", "[1]", "[-4,0]"), 4, "[-4, 0]"},
    {"off_reversed", ONE("\"F32\"", "[1]", "[4,0]"), 4, "[4, 0]"},
    {"off_past", ONE("\"F32\"", "[2]", "[0,8]"), 4, "ends at byte 8 of the data, but the file holds 4"},
    {"off_huge", ONE("\"F32\"", "[1]", "[9223372036854775800,9223372036854775804]"), 4, "9223372036854775804"},
    {"off_wrap", ONE("\"F32\"", "[1]", "[0,18446744073709551620]"), 4, "not valid JSON"},
    {"span_over", ONE("\"F32\"", "[1]", "[0,65536]"), 65536, "need 4 bytes, data_offsets span 65536"},
    {"span_under", ONE("\"F32\"", "[4]", "[0,4]"), 4, "need 16 bytes, data_offsets span 4"},
    {"shape_wraps", ONE("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0, "whole bytes"},
    {"shape_negative", ONE("\"F32\"", "[-1]", "[0,4]"), 4, "dimension 0"},
    {"shape_float", ONE("\"F32\"", "[1.5]", "[0,4]"), 4, "dimension 0"},
    {"shape_text", ONE("\"F32\"", "\"1\"", "[0,4]"), 4, "'shape'"},
    {"shape_long", ONE("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "9 dimensions, at most 8"},
    {"half_byte", ONE("\"F4\"", "[3]", "[0,2]"), 2, "whole bytes"},
    {"overlap",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     8, "'a' and 'b' overlap"},
    {"hole",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
     12, "bytes 4 to 8"},
    {"trailing", ONE("\"F32\"", "[1]", "[0,4]"), 9, "end at byte 4, the file holds 9"},
    {"truncated", ONE("\"F32\"", "[4]", "[0,16]"), 13, "16 of the data, but the file holds 13"},
};

static void hostile_headers_are_refused(void **state)
{
    char *zeros = calloc(1, 1 << 17);
    for (size_t i = 0; i < sizeof bad_headers / sizeof *bad_headers; i++)
        refused(put_file(*state, bad_headers[i].name, bad_headers[i].header, zeros, bad_headers[i].data),
                bad_headers[i].word);
    free(zeros);
}

static void hostile_lengths_are_refused(void **state)
{
    static const unsigned char wraps[16] = {255, 255, 255, 255, 255, 255, 255, 255, '{', '}'};
    static const unsigned char zero[8] = {0}, past[10] = {9, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
    char *deep = malloc(200001);

    refused(put_raw(*state, "nothing", "", 0), "0 bytes");
    refused(put_raw(*state, "three", "abc", 3), "3 bytes");
    refused(put_raw(*state, "zero", zero, sizeof zero), "the least is 2");
    refused(put_raw(*state, "past", past, sizeof past), "claims 9 bytes, 2 are there");
    refused(put_raw(*state, "wraps", wraps, sizeof wraps), "18446744073709551615");
    refused(put_raw(*state, "lfs", lfs, sizeof lfs - 1), "not a tensor file");
    refused("/nowhere/at.all", "/nowhere/at.all");
    refused(*state, "not a regular file");
    memset(deep, '[', 100000);
    memset(deep + 100000, ']', 100000);
    memcpy(deep, "{\"a\":", 5);
    deep[199999] = '}';
    deep[200000] = 0;
    refused(put_file(*state, "deep", deep, NULL, 0), "not valid JSON");
    free(deep);
}

/* A sparse file that claims the format's whole header: refused by its text, without memory for what it claims. */
static void claimed_size_costs_nothing(void **state)
{
    static const unsigned char head[9] = {0, 225, 245, 5, 0, 0, 0, 0, 'x'}, more[9] = {1, 225, 245, 5, 0, 0, 0, 0, '{'};
    const char *p = put_raw(*state, "sparse", head, sizeof head);
    struct rusage before, after;

    assert_int_equal(truncate(p, 100000008), 0);
    getrusage(RUSAGE_SELF, &before);
    refused(p, "does not begin with '{'");
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 50000);
    p = put_raw(*state, "more", more, sizeof more);
    assert_int_equal(truncate(p, 100000009), 0);
    refused(p, "limit is 100000000");
}

/* Every prefix of a good file, and every file with one byte changed, loads or is refused; nothing is read outside. */
static void damaged_files_never_crash(void **state)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}}";
    unsigned char file[8 + sizeof header - 1 + 11] = {sizeof header - 1};
    const size_t n = sizeof file;

    memcpy(file + 8, header, sizeof header - 1);
    for (size_t i = 0; i < 3 * n; i++) {
        st_tensors *t;
        const st_file_tensor *list;
        st_error e = {0};
        double v[64];
        unsigned char kept = file[i % n];
        if (i >= n) file[i % n] = i < 2 * n ? kept ^ 1 : kept ^ 0x80;
        if (st_tensors_open(put_raw(*state, "damaged", file, i < n ? i : n), &t, &e) == ST_OK) {
            for (int j = st_tensors_list(t, &list); j-- > 0;)
                if (list[j].count <= 64) st_tensor_to_f64(&list[j], v, NULL);
            st_tensors_close(t);
        } else {
            assert_true(e.message[0] != 0);
        }
        file[i % n] = kept;
    }
}

/* ---- writing ---- */

static void written_is_read(void **state)
{
    const int64_t two[] = {2, 3}, odd[] = {3}, none[] = {0};
    const unsigned char bytes[] = {1, 2, 255};
    const double f[] = {1, -2, 0.1, 1e308, -0.0, 5};
    const char *p = path_in(*state, "out.safetensors");
    st_tensors_out *o;
    st_tensors *t;
    st_error e = {0};

    for (int round = 0; round < 2; round++) { /* the second replaces the first */
        assert_int_equal(st_tensors_create(p, &o, &e), ST_OK);
        assert_int_equal(st_tensors_meta(o, "format", "pt"), ST_OK);
        assert_int_equal(st_tensors_declare(o, "odd", ST_U8, 1, odd, &e), ST_OK);
        assert_int_equal(st_tensors_declare(o, "none", ST_F32, 1, none, &e), ST_OK);
        assert_int_equal(st_tensors_declare(o, "n\xc3\xa4me\"\n", ST_F64, 2, two, &e), ST_OK);
        assert_int_equal(st_tensors_write(o, bytes, 3, &e), ST_OK);
        assert_int_equal(st_tensors_write(o, f, 20, &e), ST_OK); /* a tensor may come in pieces */
        assert_int_equal(access(p, F_OK), round ? 0 : -1);
        assert_int_equal(st_tensors_write(o, (const char *)f + 20, sizeof f - 20, &e), ST_OK);
        assert_int_equal(st_tensors_finish(o, &e), ST_OK);
    }
    t = must_open(p);
    const st_file_tensor *x = st_tensors_find(t, "n\xc3\xa4me\"\n");
    assert_non_null(x);
    assert_int_equal(x->dtype, ST_F64);
    assert_memory_equal(x->data, f, sizeof f);
    assert_memory_equal(st_tensors_find(t, "odd")->data, bytes, 3);
    assert_int_equal(st_tensors_find(t, "none")->count, 0);
    assert_string_equal(st_tensors_metadata(t, "format"), "pt");
    st_tensors_close(t);
    assert_int_equal(files_in(*state), 1); /* no temporary file stays */
}

static void bad_writes_leave_the_old_file(void **state)
{
    const int64_t one[] = {1}, wrap[] = {INT64_MAX, 2}, negative[] = {-1};
    const char *p = put_raw(*state, "old.safetensors", "old", 3);
    const float f[2] = {0};
    st_tensors_out *o;

    for (int kind = 0; kind < 8; kind++) {
        st_error e = {0};
        assert_int_equal(st_tensors_create(p, &o, &e), ST_OK);
        assert_int_equal(st_tensors_declare(o, "a", ST_F32, 1, one, &e), ST_OK);
        int rc = ST_OK;
        if (kind == 0) rc = st_tensors_write(o, f, 8, &e);                  /* more than declared */
        if (kind == 2) rc = st_tensors_declare(o, "a", ST_F32, 1, one, &e); /* the same name  */
        if (kind == 3) rc = st_tensors_declare(o, "b", ST_F32, 2, wrap, &e);
        if (kind == 4) rc = st_tensors_declare(o, "b", ST_F32, 1, negative, &e);
        if (kind == 5) rc = st_tensors_declare(o, "\xff", ST_F32, 1, one, &e);
        if (kind == 6) rc = st_tensors_declare(o, "b", ST_DTYPES, 1, one, &e);
        if (kind == 7) {
            assert_int_equal(st_tensors_write(o, f, 2, &e), ST_OK);
            rc = st_tensors_declare(o, "b", ST_F32, 1, one, &e); /* too late */
        }
        if (kind != 1) assert_int_not_equal(rc, ST_OK);
        assert_int_not_equal(st_tensors_finish(o, &e), ST_OK); /* kind 1: data is missing */
        assert_true(e.message[0] != 0);
        assert_int_equal(files_in(*state), 1);
    }
    char text[4] = {0};
    FILE *in = fopen(p, "rb");
    assert_int_equal(fread(text, 1, 4, in), 3);
    fclose(in);
    assert_string_equal(text, "old");
    st_error e = {0};
    assert_int_equal(st_tensors_create("/nowhere/x", &o, &e), ST_E_IO);
    assert_non_null(strstr(e.message, "/nowhere/x"));
}

/* Two F32 and one BF16: each keeps its own type, and a copy tensor by tensor is the same file. */
static void copy_is_the_same_bytes(void **state)
{
    const int64_t dim[] = {3};
    const uint16_t special[6] = {0x7f80, 0xff80, 0x7fc1, 0x8000, 0x0001, 0x7f7f};
    const float f[3] = {1, 2, 3};
    const char *path[2] = {path_in(*state, "first"), path_in(*state, "second")};
    char bytes[2][1024];
    size_t n[2];
    st_tensors_out *o;
    st_error e = {0};

    assert_int_equal(st_tensors_create(path[0], &o, &e), ST_OK);
    assert_int_equal(st_tensors_declare(o, "z", ST_F32, 1, dim, &e), ST_OK);
    assert_int_equal(st_tensors_declare(o, "special", ST_BF16, 1, (int64_t[]){6}, &e), ST_OK);
    assert_int_equal(st_tensors_declare(o, "a", ST_F32, 1, dim, &e), ST_OK);
    assert_int_equal(st_tensors_write(o, f, sizeof f, &e), ST_OK);
    assert_int_equal(st_tensors_write(o, special, sizeof special, &e), ST_OK);
    assert_int_equal(st_tensors_write(o, f, sizeof f, &e), ST_OK);
    assert_int_equal(st_tensors_finish(o, &e), ST_OK);

    st_tensors *t = must_open(path[0]);
    const st_file_tensor *list;
    int count = st_tensors_list(t, &list);
    assert_int_equal(st_tensors_create(path[1], &o, &e), ST_OK);
    for (int i = 0; i < count; i++)
        assert_int_equal(st_tensors_declare(o, list[i].name, list[i].dtype, list[i].nd, list[i].dim, &e), ST_OK);
    for (int i = 0; i < count; i++) assert_int_equal(st_tensors_write(o, list[i].data, list[i].bytes, &e), ST_OK);
    assert_int_equal(st_tensors_finish(o, &e), ST_OK);
    st_tensors_close(t);
    for (int i = 0; i < 2; i++) {
        FILE *in = fopen(path[i], "rb");
        n[i] = fread(bytes[i], 1, sizeof bytes[i], in);
        fclose(in);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_file_loads, setup, teardown),
        cmocka_unit_test_setup_teardown(all_types_convert, setup, teardown),
        cmocka_unit_test_setup_teardown(odd_but_valid_loads, setup, teardown),
        cmocka_unit_test_setup_teardown(hostile_headers_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(hostile_lengths_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(claimed_size_costs_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_files_never_crash, setup, teardown),
        cmocka_unit_test_setup_teardown(written_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_writes_leave_the_old_file, setup, teardown),
        cmocka_unit_test_setup_teardown(copy_is_the_same_bytes, setup, teardown),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
