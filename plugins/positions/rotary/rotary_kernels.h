/* SPDX-License-Identifier: Apache-2.0 */
/* positions/rotary/rotary_kernels.h - the kernel table of the rotary position plugins. */
#ifndef POSITIONS_ROTARY_KERNELS_H
#define POSITIONS_ROTARY_KERNELS_H
#include <strata/plugin.h>

#define ROTARY_IFACE 1u
enum { ROTARY_AXES = 3 };

/* cos, sin acc (tokens, half) from pos i32 (axes, tokens) */
struct rotary_tables {
    const int32_t *pos;
    int64_t pos_stride, tokens;
    void *cos, *sin;
    int64_t stride;
    double base;
    int32_t half, dtype;
    int32_t section[ROTARY_AXES], interleaved;
};
struct rotary_kernels {
    int (*tables)(const st_queue *, const struct rotary_tables *);
};
#endif
