/* SPDX-License-Identifier: Apache-2.0 */
/* attention_delta.cu - what attention's backward begins with: delta = out . d_out of each row and head. Behind an output gate the
 * same pass makes d_out = dy sigmoid(gate) and the gate's gradient. LANES threads have a row, eight columns each. */
#include "pack.h"

/* A number as it reads back after being stored. */
DEVICE float as_stored(float x, const float *) { return x; }
DEVICE float as_stored(float x, const st_bf16 *)
{
    st_bf16 narrow;
    st_from_f32(&narrow, x);
    return st_to_f32(narrow);
}

/* d_out, as it is stored, and d_gate of one element */
template <typename T, bool FAST> DEVICE float through_gate(float gate, float out, float dy, float *d_gate)
{
    float rest, s = sigmoid_both<FAST>(gate, &rest);
    *d_gate = dy * out * (s * rest);
    return as_stored(dy * s, (const T *)NULL);
}

template <typename T, int LANES, bool GATED> KERNEL(CUDA_THREADS) delta_kernel(const __grid_constant__ cuda_delta a)
{
    const uint32_t heads = (uint32_t)a.out.heads, row = blockIdx.x * (CUDA_THREADS / LANES) + threadIdx.x / LANES;
    const uint32_t token = row / heads, head = row % heads;
    const int col = threadIdx.x % LANES * CUDA_WIDE;
    const bool here = token < a.out.rows && col < a.out.cols;
    pack<T> out = {}, grad = {}, gate = {};
    float o[CUDA_WIDE], g[CUDA_WIDE], z[CUDA_WIDE], sum = 0;
    if (here) {
        out = load(place<T>(a.out, token, head) + col);
        grad = load(place<T>(GATED ? a.dy : a.d_out, token, head) + col);
        if (GATED) gate = load(place<T>(a.gate, token, head) + col);
    }
    unpack(out, o);
    unpack(grad, g);
    unpack(gate, z);
#pragma unroll
    for (int j = 0; j < CUDA_WIDE; j++) {
        if (GATED) g[j] = through_gate<T, sizeof(T) == 2>(z[j], o[j], g[j], &z[j]);
        sum += o[j] * g[j];
    }
    if (GATED && here) store(place<T>(a.d_out, token, head) + col, g);
    if (GATED && here && a.d_gate.data) store(place<T>(a.d_gate, token, head) + col, z);
    sum = st_lanes_sum<LANES>(sum);
    if (here && col == 0) a.delta[row] = sum;
}

/* Rows of any alignment: a warp for each. */
template <typename T> KERNEL(CUDA_THREADS) delta_plain_kernel(const __grid_constant__ cuda_delta a)
{
    const int64_t row = (int64_t)blockIdx.x * (CUDA_THREADS / CUDA_WARP) + threadIdx.x / CUDA_WARP;
    float sum = 0;
    if (row >= a.out.rows * a.out.heads) return;
    const bool gated = a.gate.data != NULL;
    const T *out = (const T *)row_at(a.out, row), *gate = gated ? (const T *)row_at(a.gate, row) : NULL;
    const T *dy = (const T *)row_at(gated ? a.dy : a.d_out, row);
    T *d_out = (T *)row_at(a.d_out, row), *d_gate = a.d_gate.data ? (T *)row_at(a.d_gate, row) : NULL;
    for (int64_t j = threadIdx.x % CUDA_WARP; j < a.out.cols; j += CUDA_WARP) {
        float o = st_to_f32(out[j]), g = st_to_f32(dy[j]), z;
        if (gated) {
            g = through_gate<T, false>(st_to_f32(gate[j]), o, g, &z);
            st_from_f32(d_out + j, g);
            if (d_gate) st_from_f32(d_gate + j, z);
        }
        sum += o * g;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % CUDA_WARP == 0) a.delta[row] = sum;
}

template <typename T, int LANES, bool GATED> static void launch(const st_queue *q, const cuda_delta *a)
{
    const int64_t rows = a->out.rows * a->out.heads;
    const unsigned blocks = (unsigned)cuda_div_up(rows, CUDA_THREADS / LANES);
    delta_kernel<T, LANES, GATED><<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a);
}
template <typename T, bool GATED> static void launch_cols(const st_queue *q, const cuda_delta *a)
{
    if (a->out.cols <= 8 * CUDA_WIDE) launch<T, 8, GATED>(q, a);
    else if (a->out.cols <= 16 * CUDA_WIDE) launch<T, 16, GATED>(q, a);
    else launch<T, 32, GATED>(q, a); /* heads have at most 256 columns */
}
template <typename T> static void launch_typed(const st_queue *q, const cuda_delta *a)
{
    const int64_t rows = a->out.rows * a->out.heads;
    const unsigned blocks = (unsigned)cuda_div_up(rows, CUDA_THREADS / CUDA_WARP);
    if (!a->wide || rows > INT32_MAX) delta_plain_kernel<T><<<blocks, CUDA_THREADS, 0, st_cuda_stream(q)>>>(*a);
    else if (a->gate.data) launch_cols<T, true>(q, a);
    else launch_cols<T, false>(q, a);
}

extern "C" int cuda_run_attention_delta(const st_queue *q, const cuda_delta *a)
{
    if (a->out.rows * a->out.heads == 0) return ST_OK;
    if (a->out.type == ST_F32) launch_typed<float>(q, a);
    else launch_typed<st_bf16>(q, a);
    return st_cuda_launched(q, "attention_delta");
}
