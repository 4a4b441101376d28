/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/safetensors_out.c - writes one safetensors file.
 *
 * All tensors are declared first, so the header is complete before the first byte of data and the data can stream
 * through. The bytes go to a temporary file beside the final name; only finish gives it that name, after fsync, so a
 * reader never sees half a file and a crash leaves the old one. The first failure sticks: later calls return it. */
#include "config.h"
#include "checkpoint/safetensors_format.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct st_tensors_out {
    char *path, *temporary;
    int fd, status;        /* fd -1: closed                                       */
    json_t *header, *meta; /* header in order of declaration                      */
    int32_t n, next;       /* tensors declared; the one that is being written     */
    int32_t cap;
    struct {
        const char *name;
        int64_t bytes;
    } * tensor;             /* names belong to `header`   */
    int64_t written, total; /* of tensor[next]; of all                             */
    int32_t begun;          /* the header is on disk                               */
};

static int failed(st_tensors_out *o, int rc)
{
    if (o->status == ST_OK) o->status = rc;
    return rc;
}

static int open_temporary(st_tensors_out *o, st_error *e)
{
    /* a name left behind by a killed process of the same id is passed over */
    for (int i = 0; i < 100; i++) {
        free(o->temporary);
        if (asprintf(&o->temporary, "%s.tmp-%ld-%d", o->path, (long)getpid(), i) < 0) {
            o->temporary = NULL;
            return st_fail(e, ST_E_NOMEM, "%s: no memory to create it", o->path);
        }
        o->fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (o->fd >= 0) return ST_OK;
        if (errno != EEXIST) break;
    }
    int rc = st_fail_errno(e, o->temporary, "create");
    free(o->temporary);
    o->temporary = NULL;
    return rc;
}

int st_tensors_create(const char *path, st_tensors_out **out, st_error *e)
{
    st_tensors_out *o = calloc(1, sizeof *o);
    int rc;

    *out = NULL;
    if (!o) return st_fail(e, ST_E_NOMEM, "%s: no memory to create it", path);
    o->fd = -1;
    o->path = strdup(path);
    o->header = json_object();
    if (!o->path || !o->header) rc = st_fail(e, ST_E_NOMEM, "%s: no memory to create it", path);
    else rc = open_temporary(o, e);
    if (rc != ST_OK) st_tensors_abort(o);
    else *out = o;
    return rc;
}

int st_tensors_meta(st_tensors_out *o, const char *key, const char *value)
{
    if (o->status != ST_OK) return o->status;
    if (o->begun) return failed(o, ST_E_INTERNAL);
    if (!o->meta) {
        o->meta = json_object();
        if (!o->meta || json_object_set(o->header, "__metadata__", o->meta)) return failed(o, ST_E_NOMEM);
    }
    return json_object_set_new(o->meta, key, json_string(value)) ? failed(o, ST_E_DATA) : ST_OK;
}

static int add(st_tensors_out *o, const char *name, json_t *entry, int64_t bytes)
{
    if (o->n == o->cap) {
        int32_t cap = o->cap ? 2 * o->cap : 64;
        void *grown = realloc(o->tensor, (size_t)cap * sizeof *o->tensor);
        if (!grown) {
            json_decref(entry);
            return ST_E_NOMEM;
        }
        o->tensor = grown;
        o->cap = cap;
    }
    if (!entry || json_object_set_new(o->header, name, entry)) return ST_E_NOMEM;
    /* the key as the object holds it: it outlives the caller's text */
    o->tensor[o->n].name = json_object_iter_key(json_object_iter_at(o->header, name));
    o->tensor[o->n].bytes = bytes;
    o->n++;
    o->total += bytes;
    return ST_OK;
}

int st_tensors_declare(st_tensors_out *o, const char *name, int32_t dtype, int32_t nd, const int64_t *dim, st_error *e)
{
    const st_format_type *type = st_format_type_of(dtype);
    int64_t count, bytes, end;

    if (o->status != ST_OK) return o->status;
    if (o->begun)
        return failed(o,
                      st_fail(e, ST_E_INTERNAL, "%s: tensor '%.96s' declared after data was written", o->path, name));
    if (!type || nd < 0 || nd > ST_TENSOR_DIMS || !st_format_bytes(type, nd, dim, &count, &bytes) ||
        __builtin_add_overflow(o->total, bytes, &end))
        return failed(o, st_fail(e, ST_E_INTERNAL, "%s: tensor '%.96s': dtype %d with %d dimensions cannot be stored",
                                 o->path, name, dtype, nd));
    size_t bad_at;
    if (!strcmp(name, "__metadata__") || json_object_get(o->header, name) ||
        !st_utf8_valid(name, strlen(name), &bad_at))
        return failed(o, st_fail(e, ST_E_INTERNAL, "%s: the tensor name '%.96s' is taken or not UTF-8", o->path, name));
    json_t *shape = json_array();
    for (int32_t i = 0; i < nd; i++) json_array_append_new(shape, json_integer(dim[i]));
    json_t *entry = json_pack("{s:s,s:o,s:[I,I]}", "dtype", type->name, "shape", shape, "data_offsets",
                              (json_int_t)o->total, (json_int_t)end);
    int rc = add(o, name, entry, bytes);
    if (rc != ST_OK) return failed(o, st_fail(e, rc, "%s: no memory for tensor '%.96s'", o->path, name));
    return ST_OK;
}

static int put(st_tensors_out *o, const void *data, size_t bytes, st_error *e)
{
    const char *p = data;

    while (bytes) {
        ssize_t n = write(o->fd, p, bytes < (1u << 30) ? bytes : 1u << 30);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(o, st_fail_errno(e, o->temporary, "write"));
        p += n;
        bytes -= (size_t)n;
    }
    return ST_OK;
}

/* The header is padded with spaces so that data begins on a multiple of 8 bytes. */
static int put_header(st_tensors_out *o, st_error *e)
{
    unsigned char length[8];
    char *text = json_dumps(o->header, JSON_COMPACT);

    o->begun = 1;
    if (!text) return failed(o, st_fail(e, ST_E_NOMEM, "%s: no memory for its header", o->path));
    size_t n = strlen(text), padded = (n + 7) / 8 * 8;
    int rc = ST_OK;
    if (padded > ST_FORMAT_HEADER_MAX)
        rc = failed(o, st_fail(e, ST_E_UNSUPPORTED, "%s: the header has %zu bytes, the format's limit is %d", o->path,
                               padded, ST_FORMAT_HEADER_MAX));
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(padded >> 8 * i);
    if (rc == ST_OK) rc = put(o, length, sizeof length, e);
    if (rc == ST_OK) rc = put(o, text, n, e);
    if (rc == ST_OK) rc = put(o, "        ", padded - n, e);
    free(text);
    return rc;
}

static void skip_whole(st_tensors_out *o) /* on to the next tensor that still lacks bytes */
{
    while (o->next < o->n && o->written == o->tensor[o->next].bytes) {
        o->next++;
        o->written = 0;
    }
}

int st_tensors_write(st_tensors_out *o, const void *data, size_t bytes, st_error *e)
{
    if (o->status != ST_OK) return o->status;
    if (!o->begun) ST_TRY(put_header(o, e));
    if (!bytes) return ST_OK;
    skip_whole(o);
    int64_t room = o->next < o->n ? o->tensor[o->next].bytes - o->written : 0;
    if (bytes > (uint64_t)room)
        return failed(o, st_fail(e, ST_E_INTERNAL, "%s: %zu bytes written where tensor '%.96s' takes %" PRId64 " more",
                                 o->path, bytes, o->next < o->n ? o->tensor[o->next].name : "(none is left)", room));
    ST_TRY(put(o, data, bytes, e));
    o->written += (int64_t)bytes;
    return ST_OK;
}

static int finish(st_tensors_out *o, st_error *e)
{
    if (o->status != ST_OK)
        return st_fail(e, o->status, "%s: not written: an earlier step of writing it failed", o->path);
    if (!o->begun) ST_TRY(put_header(o, e));
    skip_whole(o);
    if (o->next < o->n)
        return st_fail(e, ST_E_INTERNAL, "%s: tensor '%.96s' has %" PRId64 " of its %" PRId64 " bytes", o->path,
                       o->tensor[o->next].name, o->written, o->tensor[o->next].bytes);
    if (fsync(o->fd)) return st_fail_errno(e, o->temporary, "write");
    int fd = o->fd;
    o->fd = -1;
    if (close(fd)) return st_fail_errno(e, o->temporary, "write");
    if (rename(o->temporary, o->path)) return st_fail_errno(e, o->path, "rename a file to");
    free(o->temporary);
    o->temporary = NULL;
    return st_sync_folder_of(o->path, e);
}

int st_tensors_finish(st_tensors_out *o, st_error *e)
{
    int rc = finish(o, e);
    st_tensors_abort(o);
    return rc;
}

void st_tensors_abort(st_tensors_out *o)
{
    if (!o) return;
    if (o->fd >= 0) close(o->fd);
    if (o->temporary) unlink(o->temporary);
    json_decref(o->header);
    json_decref(o->meta);
    free(o->tensor);
    free(o->temporary);
    free(o->path);
    free(o);
}
