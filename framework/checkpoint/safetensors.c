/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/safetensors.c - reads one safetensors file.
 *
 * The file is mapped and nothing in it is believed: the header's length is compared with the file's before it is
 * used, the JSON text goes through jansson (which bounds its depth and refuses a repeated key), each tensor's type,
 * shape and byte range must agree with each other, and together the ranges must cover the data exactly once. No size
 * that the file merely claims is ever allocated. Names point into the parsed header, data into the mapping. A file
 * that another process shortens while it is open cannot be guarded against: the writer of this room never changes a
 * file in place. */
#include "base/bf16.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_format.h"
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct st_tensors {
    char *path;
    void *map;
    size_t size;               /* of the file                                             */
    const unsigned char *data; /* behind the header                                       */
    size_t data_size;
    json_t *header; /* owns all names                                          */
    int32_t n;
    st_file_tensor *list;           /* [n] in the order of their data                          */
    const st_file_tensor **by_name; /* [n] sorted                                          */
};

static const st_format_type types[] = {
    {"F64", ST_F64, 64}, {"F32", ST_F32, 32}, {"BF16", ST_BF16, 16}, {"F16", ST_F16, 16}, {"I64", ST_I64, 64},
    {"I32", ST_I32, 32}, {"U8", ST_U8, 8},    {"I8", 0, 8},          {"I16", 0, 16},      {"U16", 0, 16},
    {"U32", 0, 32},      {"U64", 0, 64},      {"BOOL", 0, 8},        {"F8_E4M3", 0, 8},   {"F8_E5M2", 0, 8},
    {"F8_E8M0", 0, 8},   {"F6_E2M3", 0, 6},   {"F6_E3M2", 0, 6},     {"F4", 0, 4},        {"C64", 0, 64},
};

static const st_format_type *type_named(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, name)) return &types[i];
    return NULL;
}

const st_format_type *st_format_type_of(int32_t dtype)
{
    for (size_t i = 0; dtype && i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype) return &types[i];
    return NULL;
}

bool st_format_bytes(const st_format_type *type, int32_t nd, const int64_t *dim, int64_t *count, int64_t *bytes)
{
    int64_t n = 1, bits;
    bool zero = false;

    /* a zero anywhere makes the count 0, but the other factors must still not wrap */
    for (int32_t i = 0; i < nd; i++) {
        if (dim[i] < 0) return false;
        if (dim[i] == 0) zero = true;
        else if (__builtin_mul_overflow(n, dim[i], &n)) return false;
    }
    if (__builtin_mul_overflow(n, (int64_t)type->bits, &bits) || (!zero && bits % 8)) return false;
    *count = zero ? 0 : n;
    *bytes = zero ? 0 : bits / 8;
    return true;
}

/* Long names are shown by their beginning, so that an error's fixed space still holds what is wrong. */
#define SHOWN 96
#define NAME_ARGS(name) (int)strnlen((name), SHOWN), (name), strlen(name) > SHOWN ? "..." : ""
#define NAME_FMT "%.*s%s"

static int bad(st_error *e, const st_tensors *t, const char *hint, const char *fmt, ...) ST_PRINTF(4, 5);
static int bad(st_error *e, const st_tensors *t, const char *hint, const char *fmt, ...)
{
    char text[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++) /* names come from the file: nothing of them may steer a terminal */
        if ((unsigned char)*p < ' ' || *p == 127) *p = '?';
    int rc = st_fail_at(e, ST_E_DATA, t->path, 0, 0, "%s", text);
    if (hint) st_error_hint(e, "%s", hint);
    return rc;
}

/* ---- one entry of the header ---- */

static int read_shape(const st_tensors *t, const char *name, const json_t *shape, st_file_tensor *out, st_error *e)
{
    if (!json_is_array(shape)) return bad(e, t, NULL, "tensor '" NAME_FMT "' has no list 'shape'", NAME_ARGS(name));
    size_t nd = json_array_size(shape);
    if (nd > ST_TENSOR_DIMS)
        return bad(e, t, NULL, "tensor '" NAME_FMT "' has %zu dimensions, at most %d are read", NAME_ARGS(name), nd,
                   ST_TENSOR_DIMS);
    out->nd = (int32_t)nd;
    for (size_t i = 0; i < nd; i++) {
        const json_t *d = json_array_get(shape, i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return bad(e, t, NULL, "tensor '" NAME_FMT "': dimension %zu of its shape is not a whole number from 0 up",
                       NAME_ARGS(name), i);
        out->dim[i] = json_integer_value(d);
    }
    return ST_OK;
}

static int read_range(const st_tensors *t, const char *name, const json_t *range, int64_t *begin, int64_t *end,
                      st_error *e)
{
    if (!json_is_array(range) || json_array_size(range) != 2 || !json_is_integer(json_array_get(range, 0)) ||
        !json_is_integer(json_array_get(range, 1)))
        return bad(e, t, NULL, "tensor '" NAME_FMT "': 'data_offsets' is not a list of two whole numbers",
                   NAME_ARGS(name));
    *begin = json_integer_value(json_array_get(range, 0));
    *end = json_integer_value(json_array_get(range, 1));
    if (*begin < 0 || *end < *begin)
        return bad(e, t, NULL, "tensor '" NAME_FMT "': data_offsets [%" PRId64 ", %" PRId64 "] are not a range",
                   NAME_ARGS(name), *begin, *end);
    if ((uint64_t)*end > t->data_size)
        return bad(e, t, "the file was cut short, or its header belongs to another file",
                   "tensor '" NAME_FMT "' ends at byte %" PRId64 " of the data, but the file holds %zu bytes of data",
                   NAME_ARGS(name), *end, t->data_size);
    return ST_OK;
}

static int read_entry(const st_tensors *t, const char *name, const json_t *entry, st_file_tensor *out, st_error *e)
{
    int64_t begin = 0, end = 0, bytes;

    if (!json_is_object(entry))
        return bad(e, t, NULL, "the header's entry '" NAME_FMT "' is not an object", NAME_ARGS(name));
    const json_t *dtype = json_object_get(entry, "dtype");
    if (!json_is_string(dtype)) return bad(e, t, NULL, "tensor '" NAME_FMT "' has no text 'dtype'", NAME_ARGS(name));
    const st_format_type *type = type_named(json_string_value(dtype));
    if (!type)
        return bad(e, t, NULL, "tensor '" NAME_FMT "' has the unknown dtype '%.40s'", NAME_ARGS(name),
                   json_string_value(dtype));
    ST_TRY(read_shape(t, name, json_object_get(entry, "shape"), out, e));
    ST_TRY(read_range(t, name, json_object_get(entry, "data_offsets"), &begin, &end, e));
    if (!st_format_bytes(type, out->nd, out->dim, &out->count, &bytes))
        return bad(e, t, NULL, "tensor '" NAME_FMT "': its shape does not describe a number of whole bytes",
                   NAME_ARGS(name));
    if (bytes != end - begin)
        return bad(e, t, NULL,
                   "tensor '" NAME_FMT "': shape and dtype %s need %" PRId64 " bytes, data_offsets span %" PRId64,
                   NAME_ARGS(name), type->name, bytes, end - begin);
    out->name = name;
    out->dtype = type->dtype;
    out->dtype_name = type->name;
    out->bytes = (size_t)bytes;
    out->data = t->data + begin;
    return ST_OK;
}

static int read_metadata(const st_tensors *t, const json_t *metadata, st_error *e)
{
    const char *key;
    json_t *value;

    if (!json_is_object(metadata)) return bad(e, t, NULL, "'__metadata__' is not an object");
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value))
            return bad(e, t, NULL, "'__metadata__': the value of '" NAME_FMT "' is not text", NAME_ARGS(key));
    }
    return ST_OK;
}

/* ---- the file as a whole ---- */

static int by_place(const void *a, const void *b)
{
    const st_file_tensor *x = a, *y = b;
    if (x->data != y->data) return (const char *)x->data < (const char *)y->data ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1; /* empty ones first: they cover nothing */
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const st_file_tensor *const *)a)->name, (*(const st_file_tensor *const *)b)->name);
}

/* Every byte of the data belongs to exactly one tensor. */
static int check_cover(const st_tensors *t, st_error *e)
{
    size_t at = 0;
    const char *before = NULL;

    for (int32_t i = 0; i < t->n; i++) {
        const st_file_tensor *x = &t->list[i];
        size_t begin = (size_t)((const unsigned char *)x->data - t->data);
        if (begin < at)
            return bad(e, t, NULL,
                       "tensors '" NAME_FMT "' and '" NAME_FMT "' overlap: one ends at byte %zu, the other "
                       "begins at %zu",
                       NAME_ARGS(before), NAME_ARGS(x->name), at, begin);
        if (begin > at)
            return bad(e, t, NULL, "bytes %zu to %zu of the data, before tensor '" NAME_FMT "', belong to no tensor",
                       at, begin, NAME_ARGS(x->name));
        at = begin + x->bytes;
        before = x->name;
    }
    if (at != t->data_size)
        return bad(e, t, NULL, "the tensors end at byte %zu, the file holds %zu bytes of data", at, t->data_size);
    return ST_OK;
}

static int read_header(st_tensors *t, st_error *e)
{
    const char *name;
    json_t *entry;
    size_t n = json_object_size(t->header);

    if (n > INT32_MAX) return bad(e, t, NULL, "the header has %zu entries", n);
    t->list = calloc(n ? n : 1, sizeof *t->list);
    t->by_name = calloc(n ? n : 1, sizeof *t->by_name);
    if (!t->list || !t->by_name) return st_fail(e, ST_E_NOMEM, "%s: no memory for %zu tensors", t->path, n);
    json_object_foreach(t->header, name, entry)
    {
        if (!strcmp(name, "__metadata__")) ST_TRY(read_metadata(t, entry, e));
        else {
            ST_TRY(read_entry(t, name, entry, &t->list[t->n], e));
            t->n++;
        }
    }
    qsort(t->list, (size_t)t->n, sizeof *t->list, by_place);
    for (int32_t i = 0; i < t->n; i++) t->by_name[i] = &t->list[i];
    qsort(t->by_name, (size_t)t->n, sizeof *t->by_name, by_name);
    return check_cover(t, e);
}

static int parse_header(st_tensors *t, const unsigned char *text, size_t n, st_error *e)
{
    json_error_t why;

    if (text[0] != '{') return bad(e, t, NULL, "not a tensor file: its header does not begin with '{'");
    t->header = json_loadb((const char *)text, n, JSON_REJECT_DUPLICATES, &why);
    if (t->header) return read_header(t, e); /* begins with '{', so it is an object */
    int rc = json_error_code(&why) == json_error_duplicate_key
                 ? bad(e, t, NULL, "the header holds the same name twice (byte %d of the header)", why.position)
                 : bad(e, t, NULL, "the header is not valid JSON (byte %d of the header)", why.position);
    st_error_detail(e, "%s", why.text);
    return rc;
}

static int read_file(st_tensors *t, st_error *e)
{
    static const char lfs[] = "version ";
    const unsigned char *p = t->map;
    uint64_t length = 0;

    if (t->size >= sizeof lfs - 1 && !memcmp(p, lfs, sizeof lfs - 1))
        return bad(e, t, "fetch the weights themselves with `git lfs pull`",
                   "not a tensor file: a text pointer that Git LFS leaves in place of the weights");
    for (int i = 7; i >= 0; i--) length = length << 8 | p[i];
    if (length < 2) return bad(e, t, NULL, "the header claims %" PRIu64 " bytes, the least is 2", length);
    if (length > t->size - 8)
        return bad(e, t, "fetch the file again",
                   "not a tensor file, or one cut short: its header claims %" PRIu64 " bytes, %zu are there", length,
                   t->size - 8);
    if (length > ST_FORMAT_HEADER_MAX)
        return bad(e, t, NULL, "the header has %" PRIu64 " bytes, the format's limit is %d", length,
                   ST_FORMAT_HEADER_MAX);
    t->data = p + 8 + length;
    t->data_size = t->size - 8 - (size_t)length;
    return parse_header(t, p + 8, (size_t)length, e);
}

static int map_file(st_tensors *t, st_error *e)
{
    struct stat s;
    int fd = open(t->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0) return st_fail_errno(e, t->path, "open");
    int rc = ST_OK;
    if (fstat(fd, &s)) rc = st_fail_errno(e, t->path, "look at");
    else if (!S_ISREG(s.st_mode)) rc = bad(e, t, NULL, "not a tensor file: not a regular file");
    else if (s.st_size < 8)
        rc = bad(e, t, NULL, "not a tensor file: %lld bytes, the length of the header alone takes 8",
                 (long long)s.st_size);
    else if ((uint64_t)s.st_size > SIZE_MAX / 2)
        rc = bad(e, t, NULL, "%lld bytes are too many to map", (long long)s.st_size);
    if (rc == ST_OK) {
        t->size = (size_t)s.st_size;
        t->map = mmap(NULL, t->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (t->map == MAP_FAILED) {
            t->map = NULL;
            rc = st_fail_errno(e, t->path, "map");
        }
    }
    close(fd);
    return rc;
}

int st_tensors_open(const char *path, st_tensors **out, st_error *e)
{
    st_tensors *t = calloc(1, sizeof *t);
    int rc;

    *out = NULL;
    if (!t || !(t->path = strdup(path))) {
        free(t);
        return st_fail(e, ST_E_NOMEM, "%s: no memory to open it", path);
    }
    if ((rc = map_file(t, e)) != ST_OK || (rc = read_file(t, e)) != ST_OK) {
        st_tensors_close(t);
        return rc;
    }
    *out = t;
    return ST_OK;
}

void st_tensors_close(st_tensors *t)
{
    if (!t) return;
    if (t->map) munmap(t->map, t->size);
    json_decref(t->header);
    free(t->list);
    free(t->by_name);
    free(t->path);
    free(t);
}

int st_tensors_list(const st_tensors *t, const st_file_tensor **list)
{
    *list = t->list;
    return t->n;
}

const st_file_tensor *st_tensors_find(const st_tensors *t, const char *name)
{
    const st_file_tensor key = {.name = name}, *k = &key;
    const st_file_tensor **hit = bsearch(&k, t->by_name, (size_t)t->n, sizeof *t->by_name, by_name);
    return hit ? *hit : NULL;
}

const char *st_tensors_metadata(const st_tensors *t, const char *key)
{
    return json_string_value(json_object_get(json_object_get(t->header, "__metadata__"), key));
}

/* ---- values ---- */

static double from_half(uint16_t h)
{
    int exponent = h >> 10 & 31;
    double mantissa = h & 1023, v;

    if (exponent == 31) v = mantissa != 0 ? __builtin_nan("") : __builtin_inf();
    else if (exponent) v = __builtin_ldexp(mantissa + 1024, exponent - 25);
    else v = __builtin_ldexp(mantissa, -24);
    return h >> 15 ? -v : v;
}

#define EACH(T, convert) \
    for (int64_t i = 0; i < n; i++) { \
        T v; \
        memcpy(&v, (const char *)t->data + (size_t)(first + i) * sizeof v, sizeof v); \
        out[i] = (convert); \
    } \
    return ST_OK

static int whole_numbers(const st_file_tensor *t, int64_t first, int64_t n, double *out, st_error *e)
{
    const int64_t exact = INT64_C(1) << 53;

    for (int64_t i = 0; i < n; i++) {
        int64_t v;
        memcpy(&v, (const char *)t->data + (size_t)(first + i) * sizeof v, sizeof v);
        if (v > exact || v < -exact)
            return st_fail(e, ST_E_DATA, "tensor '" NAME_FMT "': element %" PRId64 " = %" PRId64 " has no exact double",
                           NAME_ARGS(t->name), first + i, v);
        out[i] = (double)v;
    }
    return ST_OK;
}

int st_tensor_part_to_f64(const st_file_tensor *t, int64_t first, int64_t n, double *out, st_error *e)
{
    if (first < 0 || n < 0 || first > t->count - n)
        return st_fail(e, ST_E_INTERNAL, "tensor '" NAME_FMT "': elements %" PRId64 " to %" PRId64 " of %" PRId64,
                       NAME_ARGS(t->name), first, first + n, t->count);
    switch (t->dtype) {
    case ST_F64: EACH(double, v);
    case ST_F32: EACH(float, v);
    case ST_BF16: EACH(uint16_t, st_bf16_to_f64(v));
    case ST_F16: EACH(uint16_t, from_half(v));
    case ST_I64: return whole_numbers(t, first, n, out, e);
    case ST_I32: EACH(int32_t, v);
    case ST_U8: EACH(uint8_t, v);
    default:
        return st_fail(e, ST_E_UNSUPPORTED, "tensor '" NAME_FMT "': values of dtype %s cannot be used here",
                       NAME_ARGS(t->name), t->dtype_name);
    }
}

int st_tensor_to_f64(const st_file_tensor *t, double *out, st_error *e)
{
    return st_tensor_part_to_f64(t, 0, t->count, out, e);
}

void st_tensor_done(const st_file_tensor *t)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)t->data;
    const uintptr_t first = (at + page - 1) / page * page, end = (at + t->bytes) / page * page;

    if (first < end) (void)madvise((char *)(uintptr_t)t->data + (first - at), end - first, MADV_DONTNEED);
}
