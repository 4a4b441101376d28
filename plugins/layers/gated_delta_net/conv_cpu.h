/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/conv_cpu.h - template: depthwise causal convolution + SiLU over segments, one task per tile. */

static void conv_transpose(void *arg,
                           int64_t i) /* weight (channels, taps) -> work (taps, channels), a block of channels */
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

/* Backward of n channels of a tile. The gradient of an input needs du of up to taps - 1 later tokens of its segment,
 * which are computed here again instead of being waited for; weight gradients count the tile's own tokens only. The
 * tile's inputs and du lie in two columns with zeros where the segment ends, so no loop asks where it is. */
INLINE void conv_bwd_columns(const gdn_conv *a, int64_t index, int64_t taps, int64_t c, int64_t n)
{
    const int32_t *tile = a->row.tiles + 3 * index;
    const int64_t first = a->row.segments[tile[0]], last = a->row.segments[tile[0] + 1], begin = tile[1],
                  length = tile[2];
    const int64_t more =
        begin + length + taps - 1 < last ? length + taps - 1 : last - begin; /* tokens whose du counts */
    const REAL *weight = (const REAL *)a->weight + c * taps;
    vec w[GDN_MAX_TAPS], dw[GDN_MAX_TAPS], x[GDN_CHUNK + 2 * GDN_MAX_TAPS], du[GDN_CHUNK + GDN_MAX_TAPS];

    for (int64_t j = 0; j < taps; j++) {
        w[j] = dw[j] = (vec){0};
        for (int64_t i = 0; i < n; i++) w[j][i] = weight[i * taps + j];
    }
    for (int64_t t = 0; t < more + taps - 1; t++) { /* x[t]: input of token begin - taps + 1 + t */
        const int64_t from = begin - taps + 1 + t;
        const REAL *in = (const REAL *)a->in + from * a->in_stride + c;
        if (from < first) {
            x[t] = splat(0);
            continue;
        }
        x[t] = load(in, n);
        __builtin_prefetch(in + W); /* the next columns: a walk down the rows is none that processors foresee */
    }
    for (int64_t t = 0; t < more; t++) {
        vec u = {0}, rest, s;
        UNROLL
        for (int64_t j = 0; j < taps; j++) u += w[j] * x[t + j];
        s = sigmoid(u, &rest);
        const REAL *dout = (const REAL *)a->dout + (begin + t) * a->dout_stride + c;
        du[t] = load(dout, n) * s * ((REAL)1 + u * rest);
        __builtin_prefetch(dout + W);
    }
    for (int64_t t = more; t < length + taps - 1; t++) du[t] = splat(0);
    for (int64_t t = 0; t < length; t++) {
        vec d = {0};
        UNROLL
        for (int64_t j = 0; j < taps; j++) {
            d += w[j] * du[t + taps - 1 - j];
            dw[j] += du[t] * x[t + j];
        }
        REAL *din = (REAL *)a->din + (begin + t) * a->din_stride + c;
        store(din, d, n);
        __builtin_prefetch(din + W, 1);
    }
    for (int64_t j = 0; j < taps; j++) store((REAL *)a->work + (index * taps + j) * a->channels + c, dw[j], n);
}
static void conv_bwd_tile(void *arg, int64_t i)
{
    const gdn_conv *a = arg;
    int64_t c = 0;
    if (a->row.tiles[3 * i + 2] <= 0) return;
    if (a->taps == 4) /* the usual width, unrolled */
        for (; c + W <= a->channels; c += W) conv_bwd_columns(a, i, 4, c, W);
    for (; c + W <= a->channels; c += W) conv_bwd_columns(a, i, a->taps, c, W);
    if (c < a->channels) conv_bwd_columns(a, i, a->taps, c, a->channels - c);
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
