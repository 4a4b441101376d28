/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/safetensors.h - the safetensors file format: 8-byte length, JSON header, data. Every field is checked before use. */
#ifndef ST_SAFETENSORS_H
#define ST_SAFETENSORS_H
#include "base/base.h"

#define ST_TENSOR_DIMS 8
typedef struct st_file_tensor {
    const char *name;
    int32_t dtype;                 /* ST_F64, ST_F32, ST_BF16, ST_F16, ST_I64, ST_I32, ST_U8; 0: another, named in dtype_name */
    const char *dtype_name;
    int32_t nd; int64_t dim[ST_TENSOR_DIMS], count;
    size_t bytes; const void *data; /* into the mapping; may be unaligned                                    */
} st_file_tensor;
typedef struct st_tensors st_tensors;
int st_tensors_open(const char *path, st_tensors **, st_error *);      /* mapped read-only                   */
void st_tensors_close(st_tensors *);
int st_tensors_list(const st_tensors *, const st_file_tensor **);
const st_file_tensor *st_tensors_find(const st_tensors *, const char *name);
const char *st_tensors_metadata(const st_tensors *, const char *key);  /* "__metadata__"; NULL               */
int st_tensor_to_f64(const st_file_tensor *, double *out, st_error *); /* floats and integers                */

/* Streaming writer: declare all, then write data in the same order; temporary file, fsync, rename on finish. */
typedef struct st_tensors_out st_tensors_out;
int st_tensors_create(const char *path, st_tensors_out **, st_error *);
int st_tensors_meta(st_tensors_out *, const char *key, const char *value);
int st_tensors_declare(st_tensors_out *, const char *name, int32_t dtype, int32_t nd, const int64_t *dim, st_error *);
int st_tensors_write(st_tensors_out *, const void *data, size_t bytes, st_error *);
int st_tensors_finish(st_tensors_out *, st_error *);
void st_tensors_abort(st_tensors_out *);
#endif
