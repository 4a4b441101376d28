/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/safetensors.h - the safetensors file format: 8-byte length, JSON header, data. Every field is checked
 * before use. */
#ifndef ST_SAFETENSORS_H
#define ST_SAFETENSORS_H
#include "base/base.h"

#define ST_TENSOR_DIMS 8
typedef struct st_file_tensor {
    const char *name;
    int32_t dtype;                 /* ST_F64, F32, BF16, F16, I64, I32, U8; 0: another, named in dtype_name   */
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
/* Floats and integers as double, elements [first, first + n); an integer that double cannot hold is refused. */
int st_tensor_part_to_f64(const st_file_tensor *, int64_t first, int64_t n, double *out, st_error *);
int st_tensor_to_f64(const st_file_tensor *, double *out, st_error *); /* all of it */
/* It was read: its pages of the mapped file need not stay in memory. Reading it again is only slower. */
void st_tensor_done(const st_file_tensor *);

/* A model's weights as they are published: one file, or a folder with model.safetensors, or with shards and their index
 * model.safetensors.index.json. All shards are opened and compared with the index before anything is given out. */
typedef struct st_shards st_shards;
int st_shards_open(const char *path, st_shards **, st_error *);        /* folder, .safetensors or .index.json */
/* Whole files that together are a model, without an index; a tensor in two of them is refused. */
int st_shards_open_files(const char *const *paths, int n, st_shards **, st_error *);
void st_shards_close(st_shards *);
int st_shards_list(const st_shards *, const st_file_tensor *const **);
const st_file_tensor *st_shards_find(const st_shards *, const char *name);
const char *st_shards_file(const st_shards *, const st_file_tensor *); /* path of the file that holds it      */
const char *st_shards_warning(const st_shards *);                      /* NULL: nothing odd                   */

/* Streaming writer: declare all, then write the data in the same order, whole or in pieces of one tensor; temporary
 * file beside the final name, fsync, rename on finish. After a failure only abort is left, which also frees; finish
 * always frees. */
typedef struct st_tensors_out st_tensors_out;
int st_tensors_create(const char *path, st_tensors_out **, st_error *);
int st_tensors_meta(st_tensors_out *, const char *key, const char *value);
int st_tensors_declare(st_tensors_out *, const char *name, int32_t dtype, int32_t nd, const int64_t *dim, st_error *);
int st_tensors_write(st_tensors_out *, const void *data, size_t bytes, st_error *);
int st_tensors_finish(st_tensors_out *, st_error *);
void st_tensors_abort(st_tensors_out *);
#endif
