/* SPDX-License-Identifier: Apache-2.0 */
/* encoders/qwen35_vision/media.c - pictures on data workers: size, place in the text, pixels, lists for the device. */
#include <math.h>
#include <string.h>
#include "vision.h"

/* a / b to the nearest whole number, halves to the even one: sizes must come out as the public processor has them */
static int64_t divide_half_even(int64_t a, int64_t b)
{
    int64_t q = a / b, twice = 2 * (a % b);

    return twice > b || (twice == b && q % 2) ? q + 1 : q;
}

/* Sides become multiples of patch * merge; then the area is brought within min_pixels and max_pixels, keeping the
 * ratio. */
static void resized_sides(const struct vision *m, int64_t height, int64_t width, int64_t *out_height,
                          int64_t *out_width)
{
    int64_t step = m->patch * m->merge;
    int64_t h = step * divide_half_even(height, step), w = step * divide_half_even(width, step);
    double area = (double)height * (double)width;

    if (h * w > m->max_pixels) {
        double shrink = sqrt(area / (double)m->max_pixels);
        h = step * (int64_t)floor((double)height / shrink / (double)step);
        w = step * (int64_t)floor((double)width / shrink / (double)step);
        h = h < step ? step : h;
        w = w < step ? step : w;
    } else if (h * w < m->min_pixels) {
        double grow = sqrt((double)m->min_pixels / area);
        h = step * (int64_t)ceil((double)height * grow / (double)step);
        w = step * (int64_t)ceil((double)width * grow / (double)step);
    }
    *out_height = h;
    *out_width = w;
}

static int check_picture(const struct vision *m, const st_worker *w, const st_media *md)
{
    int32_t longer = md->width > md->height ? md->width : md->height;
    int32_t shorter = md->width > md->height ? md->height : md->width;

    if (md->kind != ST_MEDIA_IMAGE)
        return ST_WORKER_FAIL(w, ST_E_DATA, "a medium of kind %d: qwen35_vision reads still pictures only (kind %d)",
                              (int)md->kind, ST_MEDIA_IMAGE);
    if (shorter < 1)
        return ST_WORKER_FAIL(w, ST_E_DATA, "picture of %d x %d pixels: both sides must be at least 1", (int)md->width,
                              (int)md->height);
    if (longer > m->max_ratio * shorter)
        return ST_WORKER_FAIL(w, ST_E_DATA,
                              "picture of %d x %d pixels: its sides differ %.1f times, at most %g is allowed "
                              "(max_ratio)",
                              (int)md->width, (int)md->height, (double)longer / shorter, m->max_ratio);
    return ST_OK;
}

/* Ready values are as large as they say; they only have to fall into whole merge blocks. */
static int measure_values(const struct vision *m, const st_worker *w, const st_media *md, st_media_plan *p)
{
    const int32_t *g = md->patch_grid;

    if (g[0] < 1 || g[1] < 1 || g[2] < 1 || g[1] % m->merge || g[2] % m->merge)
        return ST_WORKER_FAIL(w, ST_E_DATA,
                              "ready patches of grid %d x %d x %d: rows and columns must be positive multiples "
                              "of merge = %d",
                              (int)g[0], (int)g[1], (int)g[2], (int)m->merge);
    if ((double)g[0] * g[1] * g[2] > INT32_MAX)
        return ST_WORKER_FAIL(w, ST_E_DATA, "ready patches of grid %d x %d x %d: too many to count", (int)g[0],
                              (int)g[1], (int)g[2]);
    memcpy(p->grid, g, sizeof p->grid);
    p->own[0] = 1;
    return ST_OK;
}

/* Forward FLOPs of one item, for dividing items over ranks: the stem, blocks as the public towers have them (four
 * products of the width in attention, an MLP four times as wide), the merger. */
double qwen35_vision_flops(const struct vision *m, const int32_t grid[3])
{
    double frame = (double)grid[1] * grid[2], units = grid[0] * frame, d = (double)m->hidden;
    double merged = (double)(m->merge * m->merge), wide = merged * d;
    double stem = 2 * (double)vision_patch_values(m) * d;
    double layers = 0.5 * (double)m->layers * (24 * d * d + 4 * frame * d);

    return units * (stem + layers + 2 * wide * (wide + (double)m->out_hidden) / merged);
}

int qwen35_vision_measure(const void *self, const st_worker *w, const st_media *md, st_media_plan *p)
{
    const struct vision *m = self;
    int64_t bytes, height, width;

    memset(p->own, 0, sizeof p->own);
    if (md->patches) {
        ST_TRY(measure_values(m, w, md, p));
    } else {
        ST_TRY(check_picture(m, w, md));
        resized_sides(m, md->height, md->width, &height, &width);
        p->grid[0] = 1;
        p->grid[1] = (int32_t)(height / m->patch);
        p->grid[2] = (int32_t)(width / m->patch);
    }
    p->units = p->grid[0] * p->grid[1] * p->grid[2];
    p->rows = p->units / (int32_t)(m->merge * m->merge);
    p->spans = p->grid[0];
    bytes = p->own[0] ? p->units * vision_patch_values(m) * (int64_t)sizeof(double)
                      : p->units * m->patch * m->patch * CHANNELS;
    p->payload = (bytes + PAYLOAD_ALIGN - 1) / PAYLOAD_ALIGN * PAYLOAD_ALIGN;
    p->cost = qwen35_vision_flops(m, p->grid);
    return ST_OK;
}

int qwen35_vision_layout(const void *self, const st_worker *w, const st_media *md, const st_media_plan *p,
                         st_layout *out)
{
    const struct vision *m = self;
    int32_t grid[3] = {p->grid[0], p->grid[1] / (int32_t)m->merge, p->grid[2] / (int32_t)m->merge};

    ST_TRY(out->text(out->ctx, m->vision_start, strlen(m->vision_start)));
    ST_TRY(out->rows(out->ctx, m->image_token, grid));
    return out->text(out->ctx, m->vision_end, strlen(m->vision_end));
}

int qwen35_vision_prepare(const void *self, const st_worker *w, const st_media *md, const st_media_plan *p,
                          void *payload)
{
    const struct vision *m = self;
    int64_t bytes;

    if (p->own[0]) {
        bytes = p->units * vision_patch_values(m) * (int64_t)sizeof(double);
        if (!md->patches)
            return ST_WORKER_FAIL(w, ST_E_INTERNAL, "the plan expects ready patch values, but there are none");
        memcpy(payload, md->patches, (size_t)bytes);
    } else {
        bytes = p->units * m->patch * m->patch * CHANNELS;
        if (!md->rgb)
            return ST_WORKER_FAIL(w, ST_E_INTERNAL, "the plan expects pixels, but there are none");
        ST_TRY(qwen35_vision_resize(w, md->rgb, md->height, md->width, payload, p->grid[1] * (int32_t)m->patch,
                                    p->grid[2] * (int32_t)m->patch));
    }
    memset((char *)payload + bytes, 0, (size_t)(p->payload - bytes));
    return ST_OK;
}

int qwen35_vision_picture(const void *self, const st_worker *w, const st_media_plan *p, const void *payload,
                          st_media *out)
{
    const struct vision *m = self;

    if (p->own[0])
        return ST_WORKER_FAIL(w, ST_E_UNSUPPORTED, "ready patch values are no picture");
    out->kind = ST_MEDIA_IMAGE;
    out->height = p->grid[1] * (int32_t)m->patch;
    out->width = p->grid[2] * (int32_t)m->patch;
    out->frames = 1;
    out->rgb = payload;
    return ST_OK;
}

int qwen35_vision_capacity(const void *self, const st_env *e, st_media_caps *c)
{
    const struct vision *m = self;
    int64_t block = m->merge * m->merge, bytes = m->patch * m->patch * CHANNELS;

    if (c->values)
        bytes = vision_patch_values(m) * (int64_t)sizeof(double);
    c->units = (c->units + block - 1) / block * block;
    c->rows = c->units / block;
    c->payload =
        (c->units * bytes + c->items * (PAYLOAD_ALIGN - 1) + PAYLOAD_ALIGN - 1) / PAYLOAD_ALIGN * PAYLOAD_ALIGN;
    c->meta = (int64_t)ITEM_INTS * c->items + 4 * (int64_t)c->spans + c->units;
    return ST_OK;
}

static int check_capacity(const st_worker *w, const st_media_caps *c, const st_media_plan *p, int32_t n)
{
    int64_t units = 0, spans = 0, payload = 0;

    for (int32_t i = 0; i < n; i++) {
        units += p[i].units;
        spans += p[i].spans;
        payload += p[i].payload;
    }
    if (n > c->items || units > c->units || spans > c->spans || payload > c->payload)
        return ST_WORKER_FAIL(w, ST_E_INTERNAL,
                              "a row holds %d of %d media items, %lld of %lld patches, %lld of %lld frames, "
                              "%lld of %lld bytes",
                              (int)n, (int)c->items, (long long)units, (long long)c->units, (long long)spans,
                              (long long)c->spans, (long long)payload, (long long)c->payload);
    return ST_OK;
}

int qwen35_vision_collate(const void *self, const st_worker *w, const st_media_caps *c, const st_media_plan *plans,
                          int32_t n, int32_t *meta)
{
    int32_t *q_begin = meta + (int64_t)ITEM_INTS * c->items, *q_len = q_begin + c->spans;
    int32_t *k_begin = q_len + c->spans, *k_len = k_begin + c->spans, *unit_item = k_len + c->spans;
    int32_t unit = 0, block = 0, span = 0;

    ST_TRY(check_capacity(w, c, plans, n));
    memset(meta, 0, (size_t)(unit_item - meta) * sizeof *meta); /* unused spans have length 0 */
    for (int32_t i = 0; i < n; i++) {
        const st_media_plan *p = &plans[i];
        int32_t *item = meta + (int64_t)ITEM_INTS * i, frame = p->grid[1] * p->grid[2];
        memcpy(item, p->grid, sizeof p->grid);
        item[ITEM_UNIT] = unit;
        item[ITEM_BLOCK] = block;
        item[ITEM_VALUES] = p->own[0];
        for (int32_t f = 0; f < p->grid[0]; f++, span++) { /* patches attend within their frame */
            q_begin[span] = k_begin[span] = unit + f * frame;
            q_len[span] = k_len[span] = frame;
        }
        for (int32_t u = 0; u < p->units; u++)
            unit_item[unit++] = i;
        block += (int32_t)(p->payload / PAYLOAD_ALIGN);
    }
    for (; unit < c->units; unit++)
        unit_item[unit] = -1;
    return ST_OK;
}
