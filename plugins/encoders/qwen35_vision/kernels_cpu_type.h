/* SPDX-License-Identifier: Apache-2.0 */
/* encoders/qwen35_vision/kernels_cpu_type.h - the part of kernels_cpu.c that is written once and compiled for double
 * and float: T is the type, TYPED(name) the name it gives. Angles, taps and normalised values are computed in
 * double. */

/* Values of the 256 greys per channel are made once per launch. */
struct TYPED(patchify_work) { const struct vision_patchify *a; T grey[CHANNELS][GREYS]; };

static void TYPED(patch_of_pixels)(const struct TYPED(patchify_work) *w, const int32_t *item, const struct place *p,
                                   T *out)
{
    const struct vision_geometry *g = &w->a->g;
    int64_t line = (int64_t)item[ITEM_COLS] * g->patch * CHANNELS, plane = (int64_t)g->patch * g->patch;
    const uint8_t *from = w->a->batch.payload + (int64_t)item[ITEM_BLOCK] * PAYLOAD_ALIGN +
                          (int64_t)p->row * g->patch * line + (int64_t)p->col * g->patch * CHANNELS;

    for (int c = 0; c < CHANNELS; c++) {
        T *first = out + (int64_t)c * g->temporal * plane;
        for (int32_t y = 0; y < g->patch; y++)
            for (int32_t x = 0; x < g->patch; x++)
                first[y * g->patch + x] = w->grey[c][from[y * line + x * CHANNELS + c]];
        for (int32_t f = 1; f < g->temporal; f++) /* a still picture stands for all its frames */
            memcpy(first + f * plane, first, (size_t)plane * sizeof(T));
    }
}

static void TYPED(patchify_piece)(void *arg, int64_t piece)
{
    const struct TYPED(patchify_work) *w = arg;
    const struct vision_patchify *a = w->a;
    int64_t values = (int64_t)CHANNELS * a->g.temporal * a->g.patch * a->g.patch;
    int64_t first = piece * UNIT_PIECE, end = first + UNIT_PIECE < a->batch.units ? first + UNIT_PIECE : a->batch.units;

    for (int64_t u = first; u < end; u++) {
        T *out = (T *)a->out + u * values;
        struct place p;
        const int32_t *item = find_place(&a->batch, &a->g, u, &p);
        if (!item) {
            memset(out, 0, (size_t)values * sizeof(T));
        } else if (item[ITEM_VALUES]) {
            const double *from = (const double *)(const void *)
                                 (a->batch.payload + (int64_t)item[ITEM_BLOCK] * PAYLOAD_ALIGN) + p.local * values;
            for (int64_t i = 0; i < values; i++)
                out[i] = (T)from[i];
        } else {
            TYPED(patch_of_pixels)(w, item, &p, out);
        }
    }
}

static void TYPED(patchify)(const st_queue *q, const struct vision_patchify *a)
{
    struct TYPED(patchify_work) w = {.a = a};

    for (int c = 0; c < CHANNELS; c++)
        for (int v = 0; v < GREYS; v++)
            w.grey[c][v] = (T)((v / 255.0 - a->mean[c]) / a->std[c]);
    st_cpu_run(q, (a->batch.units + UNIT_PIECE - 1) / UNIT_PIECE, TYPED(patchify_piece), &w);
}

static void TYPED(position_piece)(void *arg, int64_t piece)
{
    const struct vision_position *a = arg;
    int64_t first = piece * UNIT_PIECE, end = first + UNIT_PIECE < a->batch.units ? first + UNIT_PIECE : a->batch.units;

    for (int64_t u = first; u < end; u++) {
        int64_t index[TAPS];
        double weight[TAPS];
        struct place p;
        const int32_t *item = find_place(&a->batch, &a->g, u, &p);
        if (!item)
            continue;
        find_taps(item, &p, a->g.side, index, weight);
        const T *t0 = (const T *)a->table + index[0] * a->width, *t1 = (const T *)a->table + index[1] * a->width;
        const T *t2 = (const T *)a->table + index[2] * a->width, *t3 = (const T *)a->table + index[3] * a->width;
        T w0 = (T)weight[0], w1 = (T)weight[1], w2 = (T)weight[2], w3 = (T)weight[3], *x = (T *)a->x + u * a->width;
        for (int64_t i = 0; i < a->width; i++)
            x[i] += w0 * t0[i] + w1 * t1[i] + w2 * t2[i] + w3 * t3[i];
    }
}

/* Pieces are runs of columns; each walks all units in order, so every sum has one order for any number of threads. */
static void TYPED(position_bwd_piece)(void *arg, int64_t piece)
{
    const struct vision_position *a = arg;
    int64_t first = piece * COLUMN_PIECE, end = first + COLUMN_PIECE < a->width ? first + COLUMN_PIECE : a->width;

    for (int64_t u = 0; u < a->batch.units; u++) {
        int64_t index[TAPS];
        double weight[TAPS];
        struct place p;
        const int32_t *item = find_place(&a->batch, &a->g, u, &p);
        const T *dx = (const T *)a->dx + u * a->width;
        if (!item)
            continue;
        find_taps(item, &p, a->g.side, index, weight);
        for (int k = 0; k < TAPS; k++) {
            T w = (T)weight[k], *to = (T *)a->d_table + index[k] * a->width;
            for (int64_t i = first; i < end; i++)
                to[i] += w * dx[i];
        }
    }
}

static void TYPED(rotary_piece)(void *arg, int64_t piece)
{
    const struct vision_rotary *a = arg;
    int64_t first = piece * UNIT_PIECE, end = first + UNIT_PIECE < a->batch.units ? first + UNIT_PIECE : a->batch.units;
    int32_t half = a->head_dim / 2, per_axis = a->head_dim / 4;

    for (int32_t i = 0; i < per_axis; i++) {
        double frequency = pow(a->base, -(double)i / per_axis);
        for (int64_t u = first; u < end; u++) {
            struct place p = {0, 0, 0, 0};
            T *c = (T *)a->cos + u * half, *s = (T *)a->sin + u * half;
            find_place(&a->batch, &a->g, u, &p);
            c[i] = (T)cos(frequency * p.row);
            s[i] = (T)sin(frequency * p.row);
            c[per_axis + i] = (T)cos(frequency * p.col);
            s[per_axis + i] = (T)sin(frequency * p.col);
        }
    }
}
