/* SPDX-License-Identifier: Apache-2.0 */
/* positions/rotary/rotary.h - what the rotary position plugins share: the width that rotates, which axis turns which
 * pair of columns, and the call that fills cos and sin.
 *
 * Frequencies are not a tensor: frequency i is base^(-i / half), taken in double by the kernel, so a float run loses
 * nothing at long positions and one instance serves every head size. */
#ifndef POSITIONS_ROTARY_H
#define POSITIONS_ROTARY_H
#include <math.h>
#include <strata/position.h>
#include "rotary_kernels.h"

/* Axis of frequency i. Interleaved: t h w t h w ... while h and w have any left, then t. Else: all t, all h, all w. */
static inline int rotary_axis(const int32_t section[ROTARY_AXES], int interleaved, int32_t i)
{
    if (interleaved) {
        int axis = i % ROTARY_AXES;
        return axis > 0 && i < ROTARY_AXES * section[axis] ? axis : 0;
    }
    return i < section[0] ? 0 : i < section[0] + section[1] ? 1 : 2;
}

/* Columns of a head that rotate, or 0 with the reason in env. */
static inline int32_t rotary_width(st_env *e, int32_t head_dim, double rotary_percent)
{
    double width = head_dim * rotary_percent, whole = nearbyint(width);

    if (fabs(width - whole) < 1e-6 && whole >= 2 && fmod(whole, 2) == 0)
        return (int32_t)whole;
    ST_ENV_FAIL_KEY(e, "rotary_percent", ST_E_CONFIG,
                    "rotary_percent = %g: of head_dim %d that is %g columns, but they rotate in pairs: make it an even "
                    "whole number of at least 2",
                    rotary_percent, (int)head_dim, width);
    return 0;
}

static inline int rotary_launch(st_step *s, const st_tensor *pos, const st_rotary *out, double base,
                                const int32_t section[ROTARY_AXES], int interleaved)
{
    const struct rotary_kernels *k = ST_KERNELS(s, struct rotary_kernels);
    struct rotary_tables a = {
        .pos = (const int32_t *)pos->data, .pos_stride = pos->stride[0], .tokens = pos->dim[1],
        .cos = out->cos.data, .sin = out->sin.data, .stride = out->cos.stride[0], .base = base,
        .half = out->dim / 2, .dtype = out->cos.dtype,
        .section = {section[0], section[1], section[2]}, .interleaved = interleaved,
    };

    /* an angle, its cos and sin */
    const double n = (double)a.tokens * a.half, bytes = 2 * n * (double)st_dtype_size(a.dtype);

    return ST_LAUNCH_COST(s, "rotary_tables", 3 * n, bytes + 4.0 * ROTARY_AXES * (double)a.tokens, k->tables(s->q, &a));
}
#endif
