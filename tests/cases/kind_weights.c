/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/kind_weights.c - tensor files byte by byte, and sets of shards: what loads gives its values and is
 * written again as it was; all else is refused with the file and the reason. */
#include "config.h"

#include "cases.h"
#include "checkpoint/safetensors.h"
#include <math.h>

/* ---- single files ---- */

enum { PLAIN = 0, DEEP, LONG_NAME }; /* headers that are made */
enum { PAD = 1, NO_LENGTH = 2 };     /* header filled up with blanks to 8 bytes; the text is the whole file */
typedef struct tensors_row {
    const char *file, *header;
    int32_t make, how;
    uint64_t claimed; /* length in front of the header, when it is not the true one */
    const char *data; /* NULL: zeros                                                */
    int32_t n_data;
    const char *refused; /* NULL: it loads                                             */
    const char *values;  /* "NAME: V V; NAME: V"; NULL: not looked at                  */
    int32_t any;         /* loading and refusing are both right                        */
} tensors_row;

#define F32_1234 .data = "\0\0\x80?\0\0\0@\0\0@@\0\0\x80@", .n_data = 16
#define ONE(dtype, shape, offsets) "{\"a\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define FOUR ONE("\"F32\"", "[4]", "[0,16]")
#define TWO(a_shape, a_range, b_shape, b_range) \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":" a_shape ",\"data_offsets\":" a_range \
    "},\"b\":{\"dtype\":\"F32\",\"shape\":" b_shape ",\"data_offsets\":" b_range "}}"
#define T(name) "safetensors/" name ".safetensors"

static const tensors_row files[] = {
    {T("ok_small"),
     "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}",
     F32_1234, .values = "a: 1 2 3 4"},
    {T("ok_dtypes"),
     "{\"f32\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"bf16\":{\"dtype\":\"BF16\",\"shape\":[2],"
     "\"data_offsets\":[4,8]},\"f16\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[8,12]},\"i64\":{\"dtype\":"
     "\"I64\","
     "\"shape\":[1],\"data_offsets\":[12,20]},\"u8\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[20,24]},"
     "\"bool\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[24,26]}}",
     .how = PAD, .data = "\0\0\xc0?\x80?\0\xc0\0<\0\xc0\xf9\xff\xff\xff\xff\xff\xff\xff\1\2\3\4\1\0", .n_data = 26,
     .values = "f32: 1.5; bf16: 1 -2; f16: 1 -2; i64: -7"},
    {T("ok_no_metadata"), FOUR, .how = PAD, F32_1234, .values = "a: 1 2 3 4"},
    {T("ok_unaligned"), FOUR " ", F32_1234, .values = "a: 1 2 3 4"},
    {T("ok_out_of_order"),
     "{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},\"a\":{\"dtype\":\"F32\",\"shape\":[2],"
     "\"data_offsets\":[0,8]}}",
     .how = PAD, F32_1234, .values = "a: 1 2; b: 3 4"},
    {T("ok_scalar"), ONE("\"F32\"", "[]", "[0,4]"), .how = PAD, .data = "\0\0\xe0@", .n_data = 4, .values = "a: 7"},
    {T("ok_5d"), "{\"p\":{\"dtype\":\"F32\",\"shape\":[2,3,2,2,2],\"data_offsets\":[0,192]}}", .n_data = 192,
     .values = "p: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 "
               "36 37 38 39 40 41 42 43 44 45 46 47"},
    {T("ok_bf16_special"), ONE("\"BF16\"", "[6]", "[0,12]"), .data = "\x80\x7f\x80\xff\xc1\x7f\0\x80\1\0\x7f\x7f",
     .n_data = 12, .values = "a: inf -inf nan -0 9.1835496157991212e-41 3.3895313892515355e+38"},
    {T("ok_mixed_fp32"),
     "{\"layers.0.linear_attn.A_log\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"layers.0.linear_attn.norm.weight\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
     "\"layers.0.linear_attn.out_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[12,16]}}",
     .how = PAD, .data = "\xde\xd6\xfc=\xd7\xfcp\xc0\1\0\x80?\x80?\0\xc0", .n_data = 16},
    {T("ok_f8"), ONE("\"F8_E4M3\"", "[4]", "[0,4]"), .how = PAD, .data = "8@\0\xb8", .n_data = 4},
    {T("len_zero_file"), "", .how = NO_LENGTH, .refused = "0 bytes"},
    {T("len_short_file"), "\x10\0\0", .how = NO_LENGTH, .n_data = 3, .refused = "3 bytes"},
    {T("len_zero"), "", .refused = "the least is 2"},
    {T("len_past_end"), FOUR, .how = PAD, .claimed = 4096, F32_1234, .refused = "claims 4096 bytes"},
    {T("len_wraps"), FOUR, .how = PAD, .claimed = UINT64_MAX, F32_1234, .refused = "18446744073709551615"},
    {T("len_100mb_plus"), FOUR, .how = PAD, .claimed = 100000001, F32_1234, .refused = "100000001"},
    {T("head_not_object"), "[1,2,3]", .how = PAD, .refused = "does not begin with '{'"},
    {T("head_garbage"), "{not json", .how = PAD, .refused = "not valid JSON"},
    {T("head_trailing_comma"), "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},}", F32_1234,
     .refused = "not valid JSON"},
    {T("head_bad_utf8"), "{\"\xff\xfe\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", F32_1234,
     .refused = "not valid JSON"},
    {T("head_deep"), NULL, .make = DEEP, .refused = "not valid JSON"},
    {T("head_dup_name"),
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"a\":{\"dtype\":\"F32\",\"shape\":[2],"
     "\"data_offsets\":[8,16]}}",
     .how = PAD, F32_1234, .refused = "twice"},
    {T("head_long_name"), NULL, .make = LONG_NAME, .how = PAD, F32_1234},
    {T("head_path_name"), "{\"../../../tmp/x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", .how = PAD,
     F32_1234, .values = "../../../tmp/x: 1 2 3 4"},
    {T("field_no_dtype"), "{\"a\":{\"shape\":[4],\"data_offsets\":[0,16]}}", .how = PAD, F32_1234,
     .refused = "'dtype'"},
    {T("field_no_offsets"), "{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", .how = PAD, F32_1234,
     .refused = "'data_offsets'"},
    {T("field_unknown_dtype"), ONE("\"F33\"", "[4]", "[0,16]"), .how = PAD, F32_1234, .refused = "F33"},
    {T("field_offsets_one"), ONE("\"F32\"", "[4]", "[0]"), .how = PAD, F32_1234, .refused = "'data_offsets'"},
    {T("field_offsets_float"), ONE("\"F32\"", "[4]", "[0.0,16.0]"), .how = PAD, F32_1234, .refused = "'data_offsets'"},
    {T("field_offsets_negative"), ONE("\"F32\"", "[4]", "[-16,0]"), F32_1234, .refused = "[-16, 0]"},
    {T("field_offsets_reversed"), ONE("\"F32\"", "[4]", "[16,0]"), .how = PAD, F32_1234, .refused = "[16, 0]"},
    {T("field_offsets_past_end"), ONE("\"F32\"", "[4096]", "[0,16384]"), .how = PAD, F32_1234,
     .refused = "byte 16384 of the data, but the file holds 16"},
    {T("field_offsets_huge"), ONE("\"F32\"", "[4]", "[9223372036854775808,9223372036854775824]"), .how = PAD, F32_1234,
     .refused = "not valid JSON"},
    {T("field_span_over_shape"), ONE("\"F32\"", "[4]", "[0,65536]"), .how = PAD, .n_data = 65536,
     .refused = "need 16 bytes, data_offsets span 65536"},
    {T("field_span_under_shape"), ONE("\"F32\"", "[64]", "[0,16]"), F32_1234,
     .refused = "need 256 bytes, data_offsets span 16"},
    {T("field_shape_product_zero"), ONE("\"F32\"", "[4294967296,4294967296]", "[0,0]"), .how = PAD,
     .refused = "whole bytes"},
    {T("field_shape_negative"), ONE("\"F32\"", "[-2,-2]", "[0,16]"), .how = PAD, F32_1234, .refused = "dimension 0"},
    {T("field_shape_float"), ONE("\"F32\"", "[2.5,1.6]", "[0,16]"), .how = PAD, F32_1234, .refused = "dimension 0"},
    {T("field_shape_string"), ONE("\"F32\"", "[\"4\"]", "[0,16]"), .how = PAD, F32_1234, .refused = "dimension 0"},
    {T("field_shape_64d"),
     ONE("\"F32\"",
         "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
         "1,1,1,1,1,1,1,1,1,1,4]",
         "[0,16]"),
     .how = PAD, F32_1234, .refused = "65 dimensions"},
    {T("layout_overlap"), TWO("[3]", "[0,12]", "[2]", "[8,16]"), .how = PAD, F32_1234, .refused = "overlap"},
    {T("layout_hole"), TWO("[1]", "[0,4]", "[1]", "[12,16]"), .how = PAD, F32_1234, .refused = "bytes 4 to 12"},
    {T("layout_trailing"), FOUR, .how = PAD, .data = "\0\0\x80?\0\0\0@\0\0@@\0\0\x80@extra", .n_data = 21,
     .refused = "end at byte 16, the file holds 21"},
    {T("layout_truncated"), FOUR, .how = PAD, .data = "\0\0\x80?\0\0\0@\0", .n_data = 9,
     .refused = "byte 16 of the data, but the file holds 9"},
};

static void put_header(st_buf *b, const tensors_row *r)
{
    if (r->make == DEEP) {
        st_buf_puts(b, "{\"a\":");
        for (int i = 0; i < 100000; i++) st_buf_puts(b, "[");
        for (int i = 0; i < 100000; i++) st_buf_puts(b, "]");
        st_buf_puts(b, "}");
    } else if (r->make == LONG_NAME) {
        st_buf_puts(b, "{\"");
        for (int i = 0; i < 70000; i++) st_buf_puts(b, "n");
        st_buf_puts(b, "\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}");
    } else {
        st_buf_puts(b, r->header);
    }
    while (r->how == PAD && b->n % 8) st_buf_puts(b, " ");
}

static void put_data(st_buf *b, const tensors_row *r)
{
    float v;

    if (r->data) st_buf_add(b, r->data, (size_t)r->n_data);
    for (int i = 0; i < r->n_data / 4 && !r->data; i++) {
        v = r->refused ? 0 : (float)i;
        st_buf_add(b, &v, sizeof v);
    }
}

static void make_tensors(const cases *c, const void *row)
{
    const tensors_row *r = row;
    st_buf header = {0}, file = {0};

    if (r->how == NO_LENGTH) {
        case_put(c, r->file, r->header, (size_t)r->n_data);
        return;
    }
    put_header(&header, r);
    uint64_t n = r->claimed ? r->claimed : header.n;
    for (int i = 0; i < 8; i++) st_buf_add(&file, (const char[]){(char)(n >> 8 * i)}, 1);
    st_buf_add(&file, header.data, header.n);
    put_data(&file, r);
    case_put(c, r->file, file.data, file.n);
    st_buf_free(&header);
    st_buf_free(&file);
}

/* "NAME: V V; NAME: V" against what the file holds, in that order and no more of each. */
static void check_values(const cases *c, const tensors_row *r, const st_tensors *t)
{
    char *rest = NULL, *text = st_arena_strdup(c->arena, r->values);

    for (char *part = strtok_r(text, ";", &rest); part; part = strtok_r(NULL, ";", &rest)) {
        part += strspn(part, " ");
        char *at = strstr(part, ": ");
        *at = 0;
        const st_file_tensor *tensor = st_tensors_find(t, part);
        st_error e = {0};
        double value[64], want;
        if (!tensor || tensor->count > 64) fail_msg("no tensor %s", part);
        if (st_tensor_to_f64(tensor, value, &e) != ST_OK) fail_msg("%s", e.message);
        at++;
        for (int64_t i = 0; i < tensor->count; i++) {
            want = strtod(at, &at);
            if (!(value[i] == want && signbit(value[i]) == signbit(want)) && !(isnan(want) && isnan(value[i])))
                fail_msg("%s, value %lld is %.17g, it should be %.17g", part, (long long)i, value[i], want);
        }
        if (*at) fail_msg("%s has %lld values", part, (long long)tensor->count);
    }
}

/* Written again by our writer: each tensor keeps its type and its bytes, and the file lands where it was asked for. */
static void check_written(const cases *c, const st_tensors *t)
{
    const st_file_tensor *list;
    int n = st_tensors_list(t, &list);
    char *path = st_arena_printf(c->arena, "%s/again.safetensors", case_folder(c));
    st_tensors_out *out;
    st_tensors *again;
    st_error e = {0};

    for (int i = 0; i < n; i++)
        if (!list[i].dtype) return; /* a type that is listed and not computed with */
    int rc = st_tensors_create(path, &out, &e);
    for (int i = 0; i < n && rc == ST_OK; i++)
        rc = st_tensors_declare(out, list[i].name, list[i].dtype, list[i].nd, list[i].dim, &e);
    for (int i = 0; i < n && rc == ST_OK; i++) rc = st_tensors_write(out, list[i].data, list[i].bytes, &e);
    if (rc != ST_OK || st_tensors_finish(out, &e) != ST_OK || st_tensors_open(path, &again, &e) != ST_OK)
        fail_msg("%s", e.message);
    for (int i = 0; i < n; i++) {
        const st_file_tensor *x = st_tensors_find(again, list[i].name);
        if (!x || x->dtype != list[i].dtype || x->bytes != list[i].bytes ||
            memcmp(x->data, list[i].data, x->bytes) != 0)
            fail_msg("%.60s is not as it was", list[i].name);
    }
    st_tensors_close(again);
}

static void check_tensors(const cases *c, const void *row)
{
    const tensors_row *r = row;
    st_tensors *t = NULL;
    st_error e = {0};
    int rc = st_tensors_open(case_path(c, r->file), &t, &e);

    if (r->refused) {
        case_refused(&e, r->file, r->refused);
        return;
    }
    if (rc != ST_OK) fail_msg("%s", e.message);
    if (r->values) check_values(c, r, t);
    if (case_has(r->file, "ok_f8") && st_tensor_to_f64(st_tensors_find(t, "a"), (double[4]){0}, &e) != ST_E_UNSUPPORTED)
        fail_msg("values of a type that is not known");
    check_written(c, t);
    st_tensors_close(t);
}

const case_kind safetensors_kind = CASE_KIND("safetensors", files, make_tensors, check_tensors);

/* ---- shards ---- */

#define INDEX "model.safetensors.index.json"
#define SHARD_1 "model-00001-of-00002.safetensors"
#define SHARD_2 "model-00002-of-00002.safetensors"
#define MAP(total, b) \
    "{\n \"metadata\": {\n  \"total_size\": " total "\n },\n \"weight_map\": {\n  \"a\": \"" SHARD_1 \
    "\",\n  \"b\": \"" b "\"\n }\n}"
typedef struct shards_row {
    const char *file;
    const char *text;          /* the file, or                         */
    const char *tensor;        /* the tensor it holds                  */
    const char *named, *words; /* of the whole set; both NULL: it loads */
    const char *warning;
} shards_row;
#define SET(set, index, ...) {"sharded/" set "/" INDEX, index, NULL, __VA_ARGS__}, FIRST(set, __VA_ARGS__)
#define FIRST(set, ...) \
    { \
        "sharded/" set "/" SHARD_1, NULL, "a", __VA_ARGS__ \
    }
#define SECOND(set, text, tensor, ...) \
    { \
        "sharded/" set "/" SHARD_2, text, tensor, __VA_ARGS__ \
    }
static const shards_row shards[] = {
    SET("ok", MAP("16", SHARD_2), NULL, NULL, NULL),
    SECOND("ok", NULL, "b", NULL, NULL, NULL),
    SET("missing_shard", MAP("16", SHARD_2), SHARD_2, "not there", NULL),
    SET("tensor_not_in_shard", MAP("16", SHARD_2), SHARD_2, "tensor 'b' should be in this shard", NULL),
    SECOND("tensor_not_in_shard", NULL, "c", SHARD_2, "tensor 'b' should be in this shard", NULL),
    SET("zero_byte_shard", MAP("16", SHARD_2), SHARD_2, "0 bytes", NULL),
    SECOND("zero_byte_shard", "", NULL, SHARD_2, "0 bytes", NULL),
    SET("lfs_pointer", MAP("16", SHARD_2), SHARD_2, "not a tensor file", NULL),
    SECOND("lfs_pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 1234\n", NULL, SHARD_2,
           "not a tensor file", NULL),
    SET("total_size_wrong", MAP("999", SHARD_2), NULL, NULL, "999"),
    SECOND("total_size_wrong", NULL, "b", NULL, NULL, "999"),
    SET("path_up", MAP("16", "../../../../etc/hostname"), INDEX, "../../../../etc/hostname", NULL),
    SET("map_not_object", "{\"weight_map\":[\"a\"]}", INDEX, "'weight_map'", NULL),
    SET("index_truncated", "{\"weight_map\":{\"a\":\"model-0000", INDEX, "not valid JSON", NULL),
    SECOND("index_truncated", NULL, "b", INDEX, "not valid JSON", NULL),
};

static void make_shard(const cases *c, const void *row)
{
    const shards_row *r = row;
    st_buf b = {0};
    float v = r->tensor && r->tensor[0] == 'b' ? 2 : 1;

    if (r->text) {
        case_put_text(c, r->file, r->text);
        return;
    }
    st_buf_add(&b, "\x38\0\0\0\0\0\0\0", 8);
    st_buf_printf(&b, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", r->tensor);
    while (b.n < 8 + 0x38) st_buf_puts(&b, " ");
    for (int i = 0; i < 2; i++) st_buf_add(&b, &v, sizeof v);
    case_put(c, r->file, b.data, b.n);
    st_buf_free(&b);
}

/* Every file of a set stands for the outcome of the set. */
static void check_shard(const cases *c, const void *row)
{
    const shards_row *r = row;
    char *folder = st_path_dir(c->arena, case_path(c, r->file));
    st_shards *s = NULL;
    st_error e = {0};
    const st_file_tensor *const *list;
    int rc = st_shards_open(folder, &s, &e);

    if (!st_path_exists(case_path(c, r->file))) fail_msg("the file is not there");
    if (r->words) {
        case_refused(&e, r->named, r->words);
        return;
    }
    if (rc != ST_OK) fail_msg("%s", e.message);
    if (st_shards_list(s, &list) != 2) fail_msg("other tensors than a and b");
    for (int i = 0; i < 2; i++) {
        double v[2] = {0};
        if (st_tensor_to_f64(list[i], v, &e) != ST_OK || v[0] != i + 1 || v[1] != i + 1)
            fail_msg("%s is %g, %g", list[i]->name, v[0], v[1]);
    }
    if (r->warning ? !case_has(st_shards_warning(s), r->warning) : st_shards_warning(s) != NULL)
        fail_msg("warning: %s", st_shards_warning(s) ? st_shards_warning(s) : "none");
    st_shards_close(s);
}

const case_kind sharded_kind = CASE_KIND("sharded", shards, make_shard, check_shard);
