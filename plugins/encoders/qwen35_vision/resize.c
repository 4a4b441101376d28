/* SPDX-License-Identifier: Apache-2.0 */
/* encoders/qwen35_vision/resize.c - antialiased bicubic resampling of 8-bit pictures.
 *
 * The arithmetic is that of the Python Imaging Library, which the public models saw in training: a Keys kernel with
 * a = -0.5, widened by the reduction; columns first, then rows; weights in 22-bit fixed point; bytes between the two
 * passes. Rounding is part of the definition, so the order of operations below must stay. */
#include <math.h>
#include <string.h>
#include "vision.h"

enum { FRACTION_BITS = 22 };    /* 32 less 8 for the pixel and 2 for overshoot and sign */
#define KERNEL_RADIUS 2.0

struct taps {                   /* for each output place: its inputs first .. first + n, and their weights */
    int32_t width;              /* weights per place in `weight` */
    int32_t *first, *n, *weight;
};

static double keys(double x)
{
    const double a = -0.5;

    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

static int make_taps(const st_worker *w, int32_t in, int32_t out, struct taps *t)
{
    double scale = (double)in / out, stretch = scale < 1 ? 1 : scale, radius = KERNEL_RADIUS * stretch;
    double *real;

    t->width = (int32_t)ceil(radius) * 2 + 1;
    t->first = w->host->alloc(w->arena, (size_t)out * sizeof *t->first);
    t->n = w->host->alloc(w->arena, (size_t)out * sizeof *t->n);
    t->weight = w->host->alloc(w->arena, (size_t)out * (size_t)t->width * sizeof *t->weight);
    real = w->host->alloc(w->arena, (size_t)t->width * sizeof *real);
    if (!t->first || !t->n || !t->weight || !real)
        return ST_WORKER_FAIL(w, ST_E_NOMEM, "no memory for the weights of a resize from %d to %d pixels", (int)in,
                              (int)out);
    for (int32_t o = 0; o < out; o++) {
        double center = (o + 0.5) * scale, inverse = 1 / stretch, sum = 0;
        int32_t first = (int32_t)(center - radius + 0.5), end = (int32_t)(center + radius + 0.5);
        int32_t *weight = t->weight + (int64_t)o * t->width;
        first = first < 0 ? 0 : first;
        end = end > in ? in : end;
        for (int32_t i = 0; i < end - first; i++) {
            real[i] = keys((i + first - center + 0.5) * inverse);
            sum += real[i];
        }
        for (int32_t i = 0; i < end - first; i++) {
            double share = (sum != 0 ? real[i] / sum : real[i]) * (1 << FRACTION_BITS);
            weight[i] = (int32_t)(share < 0 ? share - 0.5 : share + 0.5);
        }
        t->first[o] = first;
        t->n[o] = end - first;
    }
    return ST_OK;
}

static uint8_t to_byte(int32_t fixed)
{
    int32_t v = fixed >> FRACTION_BITS;

    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* rows (n, in, CHANNELS) to (n, out, CHANNELS) */
static void resize_columns(const struct taps *t, const uint8_t *in, int32_t rows, int32_t in_width, uint8_t *out,
                           int32_t out_width)
{
    for (int32_t y = 0; y < rows; y++)
        for (int32_t x = 0; x < out_width; x++) {
            const uint8_t *from = in + ((int64_t)y * in_width + t->first[x]) * CHANNELS;
            const int32_t *weight = t->weight + (int64_t)x * t->width;
            int32_t sum[CHANNELS] = {1 << (FRACTION_BITS - 1), 1 << (FRACTION_BITS - 1), 1 << (FRACTION_BITS - 1)};
            for (int32_t i = 0; i < t->n[x]; i++)
                for (int c = 0; c < CHANNELS; c++)
                    sum[c] += from[i * CHANNELS + c] * weight[i];
            for (int c = 0; c < CHANNELS; c++)
                out[((int64_t)y * out_width + x) * CHANNELS + c] = to_byte(sum[c]);
        }
}

/* (in, line) to (out, line), line = width * CHANNELS bytes; one output row at a time in a row of sums */
static void resize_rows(const struct taps *t, const uint8_t *in, int64_t line, uint8_t *out, int32_t out_height,
                        int32_t *sum)
{
    for (int32_t y = 0; y < out_height; y++) {
        const int32_t *weight = t->weight + (int64_t)y * t->width;
        for (int64_t j = 0; j < line; j++)
            sum[j] = 1 << (FRACTION_BITS - 1);
        for (int32_t i = 0; i < t->n[y]; i++) {
            const uint8_t *from = in + (t->first[y] + i) * line;
            for (int64_t j = 0; j < line; j++)
                sum[j] += from[j] * weight[i];
        }
        for (int64_t j = 0; j < line; j++)
            out[y * line + j] = to_byte(sum[j]);
    }
}

int qwen35_vision_resize(const st_worker *w, const uint8_t *in, int32_t in_height, int32_t in_width, uint8_t *out,
                         int32_t out_height, int32_t out_width)
{
    int64_t line = (int64_t)out_width * CHANNELS;
    const uint8_t *between = in;
    struct taps taps;

    if (in_width != out_width) {
        uint8_t *narrow = in_height == out_height ? out : w->host->alloc(w->arena, (size_t)(in_height * line));
        if (!narrow)
            return ST_WORKER_FAIL(w, ST_E_NOMEM, "no memory to resize a picture of %d x %d pixels", (int)in_width,
                                  (int)in_height);
        ST_TRY(make_taps(w, in_width, out_width, &taps));
        resize_columns(&taps, in, in_height, in_width, narrow, out_width);
        between = narrow;
    }
    if (in_height != out_height) {
        int32_t *sum = w->host->alloc(w->arena, (size_t)line * sizeof *sum);
        if (!sum)
            return ST_WORKER_FAIL(w, ST_E_NOMEM, "no memory to resize a picture of %d x %d pixels", (int)in_width,
                                  (int)in_height);
        ST_TRY(make_taps(w, in_height, out_height, &taps));
        resize_rows(&taps, between, line, out, out_height, sum);
    } else if (in_width == out_width) {
        memcpy(out, in, (size_t)(in_height * line));
    }
    return ST_OK;
}
