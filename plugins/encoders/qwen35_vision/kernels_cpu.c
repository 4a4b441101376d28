/* SPDX-License-Identifier: Apache-2.0 */
/* encoders/qwen35_vision/kernels_cpu.c - the encoder's own kernels on the CPU, for double and float runs. They move
 * data and add a little; the time goes into the products around them, so one instruction set serves. */
#include <math.h>
#include <string.h>
#include <strata/cpu.h>
#include "kernels.h"

enum { UNIT_PIECE = 16, COLUMN_PIECE = 64, TAPS = 4, GREYS = 256 };

/* Where a unit lies: its item, frame, row and column in patches. NULL: it belongs to no item. */
struct place { int32_t frame, row, col; int64_t local; };
static const int32_t *find_place(const struct vision_batch *b, const struct vision_geometry *g, int64_t unit,
                                 struct place *p)
{
    const int32_t *item;
    int32_t area, blocks_across, in_frame, block, in_block;

    if (b->unit_item[unit] < 0)
        return NULL;
    item = b->items + (int64_t)ITEM_INTS * b->unit_item[unit];
    area = item[ITEM_ROWS] * item[ITEM_COLS];
    blocks_across = item[ITEM_COLS] / g->merge;
    p->local = unit - item[ITEM_UNIT];
    p->frame = (int32_t)(p->local / area);
    in_frame = (int32_t)(p->local % area);
    block = in_frame / (g->merge * g->merge);
    in_block = in_frame % (g->merge * g->merge);
    p->row = block / blocks_across * g->merge + in_block / g->merge;
    p->col = block % blocks_across * g->merge + in_block % g->merge;
    return item;
}

/* The two table lines around place i of n, the grid's corners lying on the table's, and the weight of the second. */
static void line_pair(int32_t i, int32_t n, int32_t side, int32_t line[2], double *second)
{
    double at = (double)i * (side - 1) / (n > 1 ? n - 1 : 1);

    line[0] = (int32_t)floor(at);
    line[1] = line[0] + 1 < side ? line[0] + 1 : side - 1;
    *second = at - line[0];
}

static void find_taps(const int32_t *item, const struct place *p, int32_t side, int64_t index[TAPS],
                      double weight[TAPS])
{
    int32_t rows[2], cols[2];
    double fr, fc;

    line_pair(p->row, item[ITEM_ROWS], side, rows, &fr);
    line_pair(p->col, item[ITEM_COLS], side, cols, &fc);
    for (int k = 0; k < TAPS; k++) {
        index[k] = (int64_t)rows[k / 2] * side + cols[k % 2];
        weight[k] = (k / 2 ? fr : 1 - fr) * (k % 2 ? fc : 1 - fc);
    }
}

#define T double
#define TYPED(name) name##_f64
#include "kernels_cpu_type.h"
#undef T
#undef TYPED
#define T float
#define TYPED(name) name##_f32
#include "kernels_cpu_type.h"
#undef T
#undef TYPED

static int64_t pieces(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

static int patchify(const st_queue *q, const struct vision_patchify *a)
{
    if (a->dtype == ST_F64)
        patchify_f64(q, a);
    else if (a->dtype == ST_F32)
        patchify_f32(q, a);
    else
        return ST_E_UNSUPPORTED;
    return ST_OK;
}

static int position(const st_queue *q, const struct vision_position *a)
{
    struct vision_position copy = *a;

    if (a->dtype != ST_F64 && a->dtype != ST_F32)
        return ST_E_UNSUPPORTED;
    st_cpu_run(q, pieces(a->batch.units, UNIT_PIECE), a->dtype == ST_F64 ? position_piece_f64 : position_piece_f32,
               &copy);
    return ST_OK;
}

static int position_bwd(const st_queue *q, const struct vision_position *a)
{
    struct vision_position copy = *a;

    if (a->dtype != a->acc_dtype || (a->dtype != ST_F64 && a->dtype != ST_F32))
        return ST_E_UNSUPPORTED;
    st_cpu_run(q, pieces(a->width, COLUMN_PIECE), a->dtype == ST_F64 ? position_bwd_piece_f64 : position_bwd_piece_f32,
               &copy);
    return ST_OK;
}

static int rotary(const st_queue *q, const struct vision_rotary *a)
{
    struct vision_rotary copy = *a;

    if (a->acc_dtype != ST_F64 && a->acc_dtype != ST_F32)
        return ST_E_UNSUPPORTED;
    st_cpu_run(q, pieces(a->batch.units, UNIT_PIECE), a->acc_dtype == ST_F64 ? rotary_piece_f64 : rotary_piece_f32,
               &copy);
    return ST_OK;
}

static const struct vision_kernels table = {
    .patchify = patchify, .position = position, .position_bwd = position_bwd, .rotary = rotary,
};

ST_KERNELS_V1(QWEN35_VISION_IFACE, table, "qwen35_vision", "cpu", "0.1.0", "", "", NULL)
