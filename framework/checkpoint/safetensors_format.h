/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/safetensors_format.h - what reader and writer of the format share; private to this room. */
#ifndef ST_SAFETENSORS_FORMAT_H
#define ST_SAFETENSORS_FORMAT_H
#include "checkpoint/safetensors.h"

#define ST_FORMAT_HEADER_MAX 100000000 /* bytes, by the format's description */

typedef struct st_format_type { const char *name; int32_t dtype, bits; } st_format_type; /* dtype 0: named only */
const st_format_type *st_format_type_of(int32_t dtype);       /* NULL: not written in such files      */
/* Elements and bytes of a shape; false when they overflow, a dimension is negative or the last byte is not full. */
bool st_format_bytes(const st_format_type *, int32_t nd, const int64_t *dim, int64_t *count, int64_t *bytes);
#endif
