/* SPDX-License-Identifier: Apache-2.0 */
/* moe/rows_cuda.cu - the weighted gated unit over sorted rows, and the shared expert's gate: a warp per row. How many
 * rows there are only the device knows; grids are of the capacity. */
#include "warp_cuda.h"

/* N neighbours: 1, or the 16 bytes of an access where addresses allow it. */
template <typename T> struct pack { enum { n = 16 / sizeof(T) }; };
template <int N> DEVICE void read(float out[N], const float *from)
{
    if constexpr (N == 4) {
        const float4 v = *(const float4 *)from;
        out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
    } else out[0] = *from;
}
template <int N> DEVICE void read(float out[N], const st_bf16 *from)
{
    if constexpr (N == 8) {
        const uint4 v = *(const uint4 *)from;
        const uint32_t word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = __uint_as_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
    } else out[0] = st_to_f32(*from);
}
template <int N> DEVICE void write(float *to, const float in[N])
{
    if constexpr (N == 4) *(float4 *)to = make_float4(in[0], in[1], in[2], in[3]);
    else *to = in[0];
}
template <int N> DEVICE void write(st_bf16 *to, const float in[N])
{
    if constexpr (N == 8)
        *(uint4 *)to = make_uint4(st_bf16_pair(in[0], in[1]), st_bf16_pair(in[2], in[3]), st_bf16_pair(in[4], in[5]),
                                  st_bf16_pair(in[6], in[7]));
    else st_from_f32(to, in[0]);
}
/* Of the unit's gate; in bf16 within 2^-16. */
template <typename T> DEVICE float unit_sigmoid(float x)
{
    if constexpr (sizeof(T) == 4) return sigmoid(x);
    return st_inverse_fast(1.0f + st_exp2_fast(-1.4426950408889634f * x));
}

template <typename T, int N> static __global__ void __launch_bounds__(THREADS) glu(const moe_glu a)
{
    const int64_t i = (int64_t)blockIdx.x * WARPS + warp_of();
    if (i >= a.offset[a.experts]) return;
    const T *gate = (const T *)a.gate_up + i * 2 * a.width, *up = gate + a.width;
    const float weight = ((const float *)a.weight)[i];
    for (int64_t k = lane_of() * N; k < a.width; k += 32 * N) {
        float g[N], u[N];
        read<N>(g, gate + k);
        read<N>(u, up + k);
#pragma unroll
        for (int j = 0; j < N; j++) g[j] = weight * g[j] * unit_sigmoid<T>(g[j]) * u[j];
        write<N>((T *)a.product + i * a.width + k, g);
    }
}
template <typename T, int N> static __global__ void __launch_bounds__(THREADS) glu_bwd(const moe_glu a)
{
    const int64_t i = (int64_t)blockIdx.x * WARPS + warp_of();
    if (i >= a.offset[a.experts]) return;
    T *gate = (T *)a.gate_up + i * 2 * a.width, *up = gate + a.width;
    const float weight = ((const float *)a.weight)[i];
    float dweight = 0;
    for (int64_t k = lane_of() * N; k < a.width; k += 32 * N) {
        float g[N], u[N], dy[N];
        read<N>(g, gate + k);
        read<N>(u, up + k);
        read<N>(dy, (const T *)a.dproduct + i * a.width + k);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float s = unit_sigmoid<T>(g[j]), act = g[j] * s, d = dy[j] * weight, du = d * act;
            dweight += dy[j] * act * u[j];
            g[j] = d * u[j] * s * (1 + g[j] * (1 - s));
            u[j] = du;
        }
        write<N>(gate + k, g);
        write<N>(up + k, u);
    }
    dweight = st_lanes_sum<32>(dweight);
    if (lane_of() == 0) ((float *)a.dweight)[i] = dweight;
}
template <typename T, int N> static __global__ void __launch_bounds__(THREADS) gate(const moe_gate a)
{
    const int64_t t = (int64_t)blockIdx.x * WARPS + warp_of();
    if (t >= a.tokens) return;
    const float s = sigmoid(((const float *)a.gate)[t]);
    for (int64_t k = lane_of() * N; k < a.width; k += 32 * N) {
        float out[N], y[N];
        read<N>(out, (const T *)a.out + t * a.width + k);
        read<N>(y, (const T *)a.y + t * a.width + k);
#pragma unroll
        for (int j = 0; j < N; j++) y[j] += s * out[j];
        write<N>((T *)a.y + t * a.width + k, y);
    }
}
template <typename T, int N> static __global__ void __launch_bounds__(THREADS) gate_bwd(const moe_gate a)
{
    const int64_t t = (int64_t)blockIdx.x * WARPS + warp_of();
    if (t >= a.tokens) return;
    const float s = sigmoid(((const float *)a.gate)[t]);
    float dot = 0;
    for (int64_t k = lane_of() * N; k < a.width; k += 32 * N) {
        float out[N], dy[N];
        read<N>(out, (const T *)a.out + t * a.width + k);
        read<N>(dy, (const T *)a.dy + t * a.width + k);
#pragma unroll
        for (int j = 0; j < N; j++) {
            dot += dy[j] * out[j];
            dy[j] *= s;
        }
        write<N>((T *)a.dout + t * a.width + k, dy);
    }
    dot = st_lanes_sum<32>(dot);
    if (lane_of() == 0) ((float *)a.dgate)[t] = dot * s * (1 - s);
}

static int even(const void *p) { return (uintptr_t)p % 16 == 0; }
static unsigned blocks_of(int64_t rows) { return (unsigned)((rows + WARPS - 1) / WARPS); }
template <typename T, int N> static int run_glu(const st_queue *q, const moe_glu *a, int back)
{
    if (back) glu_bwd<T, N><<<blocks_of(a->rows), THREADS, 0, st_cuda_stream(q)>>>(*a);
    else glu<T, N><<<blocks_of(a->rows), THREADS, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, back ? "moe_glu_bwd" : "moe_glu");
}
template <typename T> static int glu_of_type(const st_queue *q, const moe_glu *a, int back)
{
    const int n = pack<T>::n, packed = a->width % n == 0 && even(a->gate_up) && even(back ? a->dproduct : a->product);
    return packed ? run_glu<T, n>(q, a, back) : run_glu<T, 1>(q, a, back);
}
static int any_glu(const st_queue *q, const moe_glu *a, int back)
{
    if (a->dtype == ST_BF16) return glu_of_type<st_bf16>(q, a, back);
    return a->dtype == ST_F32 ? glu_of_type<float>(q, a, back) : ST_E_UNSUPPORTED;
}
int moe_cuda_glu(const st_queue *q, const moe_glu *a) { return any_glu(q, a, 0); }
int moe_cuda_glu_bwd(const st_queue *q, const moe_glu *a) { return any_glu(q, a, 1); }

template <typename T, int N> static int run_gate(const st_queue *q, const moe_gate *a, int back)
{
    if (back) gate_bwd<T, N><<<blocks_of(a->tokens), THREADS, 0, st_cuda_stream(q)>>>(*a);
    else gate<T, N><<<blocks_of(a->tokens), THREADS, 0, st_cuda_stream(q)>>>(*a);
    return st_cuda_launched(q, back ? "moe_gate_bwd" : "moe_gate");
}
template <typename T> static int gate_of_type(const st_queue *q, const moe_gate *a, int back)
{
    const int n = pack<T>::n;
    const int packed = a->width % n == 0 && even(a->out) && (back ? even(a->dy) && even(a->dout) : even(a->y));
    return packed ? run_gate<T, n>(q, a, back) : run_gate<T, 1>(q, a, back);
}
static int any_gate(const st_queue *q, const moe_gate *a, int back)
{
    if (a->dtype == ST_BF16) return gate_of_type<st_bf16>(q, a, back);
    return a->dtype == ST_F32 ? gate_of_type<float>(q, a, back) : ST_E_UNSUPPORTED;
}
int moe_cuda_gate(const st_queue *q, const moe_gate *a) { return any_gate(q, a, 0); }
int moe_cuda_gate_bwd(const st_queue *q, const moe_gate *a) { return any_gate(q, a, 1); }
