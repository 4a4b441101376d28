/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/conv_cpu.h - template: depthwise causal convolution + SiLU over segments, one task per tile. */

/* The convolution's value before SiLU for n channels of token t, whose segment begins at `first`. w: taps vectors. */
INLINE vec conv_sum(const REAL *in, int64_t stride, int64_t t, int64_t first, const vec *w, int64_t taps, int64_t n)
{
    vec s = {0};
    for (int64_t j = 0; j < taps; j++) {
        int64_t from = t - taps + 1 + j;
        if (from >= first) s += w[j] * load(in + from * stride, n);
    }
    return s;
}
/* Taps of n channels as vectors. */
INLINE void conv_taps(const REAL *weight, int64_t taps, int64_t n, vec *w)
{
    for (int64_t j = 0; j < taps; j++) {
        w[j] = (vec){0};
        for (int64_t i = 0; i < n; i++) w[j][i] = weight[i * taps + j];
    }
}
static void conv_transpose(void *arg, int64_t i) /* weight (channels, taps) -> work (taps, channels), a block of channels */
{
    const gdn_conv *a = arg;
    const REAL *weight = a->weight;
    REAL *work = a->work;
    int64_t end = (i + 1) * CHANNEL_BLOCK < a->channels ? (i + 1) * CHANNEL_BLOCK : a->channels;
    for (int64_t c = i * CHANNEL_BLOCK; c < end; c++)
        for (int64_t j = 0; j < a->taps; j++) work[j * a->channels + c] = weight[c * a->taps + j];
}
INLINE void conv_columns(const gdn_conv *a, int64_t t, int64_t first, int64_t c, int64_t n)
{
    const REAL *in = (const REAL *)a->in + c, *w = (const REAL *)a->work + c;
    int64_t begin = t - a->taps + 1 < first ? first - (t - a->taps + 1) : 0;
    vec s = {0};
    for (int64_t j = begin; j < a->taps; j++)
        s += load(w + j * a->channels, n) * load(in + (t - a->taps + 1 + j) * a->in_stride, n);
    store((REAL *)a->out + t * a->out_stride + c, s * sigmoid(s, NULL), n);
}
static void conv_tile(void *arg, int64_t i)
{
    const gdn_conv *a = arg;
    const int32_t *tile = a->row.tiles + 3 * i;
    for (int64_t t = tile[1]; t < tile[1] + tile[2]; t++) {
        int64_t first = a->row.segments[tile[0]], c = 0;
        for (; c + W <= a->channels; c += W) conv_columns(a, t, first, c, W);
        if (c < a->channels) conv_columns(a, t, first, c, a->channels - c);
    }
}
static int conv(const st_queue *q, const gdn_conv *a)
{
    st_cpu_run(q, (a->channels + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK, conv_transpose, (void *)a);
    st_cpu_run(q, a->row.n_tiles, conv_tile, (void *)a);
    return ST_OK;
}

/* Backward of n channels of a tile. The gradient of an input needs du of up to taps - 1 later tokens of its segment, which are
 * computed here again instead of being waited for; weight gradients count the tile's own tokens only. */
INLINE void conv_bwd_columns(const gdn_conv *a, int64_t index, int64_t c, int64_t n)
{
    const int32_t *tile = a->row.tiles + 3 * index;
    int64_t taps = a->taps, first = a->row.segments[tile[0]], last = a->row.segments[tile[0] + 1];
    int64_t begin = tile[1], end = begin + tile[2], more = end + taps - 1 < last ? end + taps - 1 : last;
    const REAL *in = (const REAL *)a->in + c, *dout = (const REAL *)a->dout + c;
    vec w[GDN_MAX_TAPS], dw[GDN_MAX_TAPS], du[GDN_CHUNK + GDN_MAX_TAPS];

    conv_taps((const REAL *)a->weight + c * taps, taps, n, w);
    for (int64_t j = 0; j < taps; j++) dw[j] = (vec){0};
    for (int64_t t = begin; t < more; t++) {
        vec u = conv_sum(in, a->in_stride, t, first, w, taps, n), rest, s = sigmoid(u, &rest);
        du[t - begin] = load(dout + t * a->dout_stride, n) * s * ((REAL)1 + u * rest);
    }
    for (int64_t t = begin; t < end; t++) {
        vec d = {0};
        for (int64_t j = 0; j < taps; j++) {
            int64_t to = t + taps - 1 - j, from = t - taps + 1 + j;
            if (to < more) d += w[j] * du[to - begin];
            if (from >= first) dw[j] += du[t - begin] * load(in + from * a->in_stride, n);
        }
        store((REAL *)a->din + t * a->din_stride + c, d, n);
    }
    for (int64_t j = 0; j < taps; j++) store((REAL *)a->work + (index * taps + j) * a->channels + c, dw[j], n);
}
static void conv_bwd_tile(void *arg, int64_t i)
{
    const gdn_conv *a = arg;
    int64_t c = 0;
    if (a->row.tiles[3 * i + 2] <= 0) return;
    for (; c + W <= a->channels; c += W) conv_bwd_columns(a, i, c, W);
    if (c < a->channels) conv_bwd_columns(a, i, c, a->channels - c);
}
static void conv_bwd_reduce(void *arg, int64_t i) /* dweight += the tiles' sums, in the order of tiles */
{
    const gdn_conv *a = arg;
    const REAL *work = a->work;
    REAL *dweight = a->dweight;
    int64_t end = (i + 1) * CHANNEL_BLOCK < a->channels ? (i + 1) * CHANNEL_BLOCK : a->channels;
    for (int64_t j = 0; j < a->taps; j++) {
        REAL s[CHANNEL_BLOCK] = {0};
        for (int64_t k = 0; k < a->row.n_tiles; k++)
            if (a->row.tiles[3 * k + 2] > 0)
                for (int64_t c = i * CHANNEL_BLOCK; c < end; c++)
                    s[c - i * CHANNEL_BLOCK] += work[(k * a->taps + j) * a->channels + c];
        for (int64_t c = i * CHANNEL_BLOCK; c < end; c++) dweight[c * a->taps + j] += s[c - i * CHANNEL_BLOCK];
    }
}
static int conv_bwd(const st_queue *q, const gdn_conv *a)
{
    st_cpu_run(q, a->row.n_tiles, conv_bwd_tile, (void *)a);
    if (a->dweight) st_cpu_run(q, (a->channels + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK, conv_bwd_reduce, (void *)a);
    return ST_OK;
}
