/* SPDX-License-Identifier: Apache-2.0 */
/* positions/rotary/rotary_cpu.c - cos and sin tables on the CPU. Built once per plugin that uses it: ROTARY_PLUGIN
 * is its name. Angles are double in every run; only the table is rounded. */
#include <strata/cpu.h>
#include "rotary.h"

enum { PIECE = 64 }; /* tokens */

static void tables_piece(void *arg, int64_t piece)
{
    const struct rotary_tables *a = arg;
    int64_t first = piece * PIECE, end = first + PIECE < a->tokens ? first + PIECE : a->tokens;

    for (int32_t i = 0; i < a->half; i++) {
        double frequency = pow(a->base, -(double)i / a->half);
        const int32_t *pos = a->pos + rotary_axis(a->section, a->interleaved, i) * a->pos_stride;
        for (int64_t t = first; t < end; t++) {
            double angle = frequency * pos[t], c = cos(angle), s = sin(angle);
            int64_t at = t * a->stride + i;
            if (a->dtype == ST_F64) {
                ((double *)a->cos)[at] = c;
                ((double *)a->sin)[at] = s;
            } else {
                ((float *)a->cos)[at] = (float)c;
                ((float *)a->sin)[at] = (float)s;
            }
        }
    }
}

static int tables(const st_queue *q, const struct rotary_tables *a)
{
    struct rotary_tables copy = *a;

    if (a->dtype != ST_F64 && a->dtype != ST_F32)
        return ST_E_UNSUPPORTED;
    st_cpu_run(q, (a->tokens + PIECE - 1) / PIECE, tables_piece, &copy);
    return ST_OK;
}

static const struct rotary_kernels table = {.tables = tables};

ST_KERNELS_V1(ROTARY_IFACE, table, ROTARY_PLUGIN, "cpu", "0.1.0", "", "", NULL)
