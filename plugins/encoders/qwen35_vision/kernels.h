/* SPDX-License-Identifier: Apache-2.0 */
/* encoders/qwen35_vision/kernels.h - what the encoder's logic and its kernel modules agree on.
 *
 * Meta, i32, as collate writes it: items [items][ITEM_INTS], then the attention spans [4][spans], then unit_item
 * [units], the item of each unit or -1. A unit is one patch; units of an item follow in merge order: frame, block
 * row, block column, row in the block, column in the block. Values of a unit: channel, frame of the pair, row,
 * column. */
#ifndef QWEN35_VISION_KERNELS_H
#define QWEN35_VISION_KERNELS_H
#include <strata/plugin.h>

#define QWEN35_VISION_IFACE 1u
enum { CHANNELS = 3 };
enum {
    ITEM_FRAMES, /* grid in patches */
    ITEM_ROWS,
    ITEM_COLS,
    ITEM_UNIT,   /* its first unit */
    ITEM_BLOCK,  /* its payload begins at this multiple of PAYLOAD_ALIGN bytes */
    ITEM_VALUES, /* 1: f64 patch values in unit order; 0: u8 pixels (rows, cols, CHANNELS) */
    ITEM_INTS
};
enum { PAYLOAD_ALIGN = 64 };

struct vision_geometry { int32_t patch, temporal, merge, side; };
struct vision_batch { const uint8_t *payload; const int32_t *items, *unit_item; int64_t units; };

/* out (units, CHANNELS * temporal * patch * patch) of dtype; pixels become (x / 255 - mean) / std. Units of no item
 * become 0. */
struct vision_patchify {
    struct vision_batch batch;
    struct vision_geometry g;
    double mean[CHANNELS], std[CHANNELS];
    void *out;
    int32_t dtype;
};
/* The position table (side * side, width) seen at the corners of each patch's place, bilinearly, grid corners on
 * table corners. forward: x (units, width) += taps of table. backward: d_table (acc) += taps of dx, units in order. */
struct vision_position {
    struct vision_batch batch;
    struct vision_geometry g;
    int64_t width;
    const void *table, *dx;
    void *x, *d_table;
    int32_t dtype, acc_dtype;
};
/* cos, sin acc (units, head_dim / 2): first half of the angles by row, second half by column; units of no item:
 * angle 0 */
struct vision_rotary {
    struct vision_batch batch;
    struct vision_geometry g;
    double base;
    void *cos, *sin;
    int32_t head_dim, acc_dtype;
};
struct vision_kernels {
    int (*patchify)(const st_queue *, const struct vision_patchify *);
    int (*position)(const st_queue *, const struct vision_position *);
    int (*position_bwd)(const st_queue *, const struct vision_position *);
    int (*rotary)(const st_queue *, const struct vision_rotary *);
};
#endif
