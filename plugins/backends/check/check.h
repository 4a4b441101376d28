/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - shape and type checks with words, for the ops of all backends. */
#ifndef CHECK_H
#define CHECK_H
#include <stdbool.h>
#include <strata/backend.h>

ST_FN bool check_given(const st_tensor *t) { return t && t->data; }
const char *check_type_name(int32_t dtype);
/* t must be there with this type and these sizes (-1: any), last dimension contiguous. name: as in the argument struct. */
int check_tensor(const st_queue *, const char *op, const char *name, const st_tensor *t, int32_t dtype, int nd,
                 const int64_t *dim);
#define CHECK_TENSOR(q, op, name, t, dtype, ...) \
    check_tensor(q, op, name, t, dtype, (int)ST_COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__})
#define CHECK_TENSOR_IF(q, op, name, t, dtype, ...) \
    (check_given(t) ? CHECK_TENSOR(q, op, name, t, dtype, __VA_ARGS__) : ST_OK)
/* As t, for one that has the shape and type of `like`. */
int check_like(const st_queue *, const char *op, const char *name, const st_tensor *t, const char *like_name,
               const st_tensor *like);
/* n contiguous elements in any of the shapes [n], [n, 1], [1, n]. */
int check_vector(const st_queue *, const char *op, const char *name, const st_tensor *t, int32_t dtype, int64_t n);
int check_vector_if(const st_queue *, const char *op, const char *name, const st_tensor *t, int32_t dtype, int64_t n);
/* The rows of t are contiguous in the last dimension and do not run backwards. */
int check_rows(const st_queue *, const char *op, const char *name, const st_tensor *t);
int64_t check_elements(const st_tensor *);
double check_bytes(const st_tensor *); /* 0 when absent */
int check_scratch(const st_queue *, const char *op, size_t bytes, void **out);
#endif
