/* SPDX-License-Identifier: Apache-2.0 */
/* strata/tensor.h - a typed view of memory. A plain value that owns nothing; never grows (see st_plugin.tensor_size). */
#ifndef STRATA_TENSOR_H
#define STRATA_TENSOR_H
#include <strata/status.h>

enum { ST_NONE = 0, ST_F64, ST_F32, ST_BF16, ST_F16, ST_F8E4M3, ST_F8E5M2, ST_I32, ST_I64, ST_U8, ST_DTYPES };
#define ST_DIMS 4

/* Row-major. stride counts elements; the last dimension is contiguous, earlier ones may be wider, so a column range of a
 * fused projection is a view: kernels honour stride[0..nd-2]. A const st_tensor * is a const VIEW; outputs are written.
 * data == NULL means absent: every op skips an absent output and takes an absent optional input as not given.
 * While planning data is a fake address: offsets may be formed, it is never read or written.
 * scale: 8-bit types only, device f32, one value per 128 x 128 block; else NULL. */
typedef struct st_tensor {
    void *data;
    const float *scale;
    int64_t dim[ST_DIMS], stride[ST_DIMS];
    int32_t dtype, nd;
} st_tensor;

ST_FN size_t st_dtype_size(int32_t dtype) /* bytes; 0 for an unknown type */
{
    static const unsigned char size[ST_DTYPES] = {0, 8, 4, 2, 2, 1, 1, 4, 8, 1};
    return dtype > 0 && dtype < ST_DTYPES ? size[dtype] : 0;
}
ST_FN st_tensor st_tensor2(void *data, int32_t dtype, int64_t rows, int64_t cols)
{
    st_tensor t = {data, NULL, {rows, cols, 1, 1}, {cols, 1, 1, 1}, dtype, 2};
    return t;
}
ST_FN st_tensor st_absent(void) { return st_tensor2(NULL, ST_NONE, 0, 0); }
ST_FN st_tensor st_cols(st_tensor t, int64_t first, int64_t n) /* columns [first, first + n) of the last dimension */
{
    if (t.data) t.data = (char *)t.data + (size_t)first * st_dtype_size(t.dtype);
    t.dim[t.nd - 1] = n;
    return t;
}
/* Columns of t seen as [rows, heads, width]: head h begins at column first + h * step (query and gate interleaved: step is
 * 2 width). */
ST_FN st_tensor st_heads(st_tensor t, int64_t first, int64_t heads, int64_t width, int64_t step)
{
    t = st_cols(t, first, heads);
    t.nd = 3; t.dim[2] = width; t.stride[1] = step; t.stride[2] = 1;
    return t;
}
ST_FN st_tensor st_rows(st_tensor t, int64_t first, int64_t n) /* entries [first, first + n) of dimension 0 */
{
    if (t.data) t.data = (char *)t.data + (size_t)(first * t.stride[0]) * st_dtype_size(t.dtype);
    t.dim[0] = n;
    return t;
}
#endif
