/* SPDX-License-Identifier: Apache-2.0 */
/* muon/kernels_cpu.c - the kernels on the CPU, for double and float runs. They look at every value a few times, the
 * products of the iteration hundreds of times, so one instruction set serves. */
#include "kernels.h"
#include <math.h>
#include <strata/cpu.h>

enum { ROW_PIECE = 8 };

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

static int momentum(const st_queue *q, const struct muon_matrix *a)
{
    struct muon_matrix copy = *a;
    int64_t pieces = (a->rows + ROW_PIECE - 1) / ROW_PIECE;

    if (a->dtype != ST_F64 && a->dtype != ST_F32) return ST_E_UNSUPPORTED;
    st_cpu_run(q, pieces, a->dtype == ST_F64 ? momentum_piece_f64 : momentum_piece_f32, &copy);
    st_cpu_run(q, pieces, a->dtype == ST_F64 ? divide_piece_f64 : divide_piece_f32, &copy);
    return ST_OK;
}

/* The backend trains in the types of its masters. */
static int apply(const st_queue *q, const struct muon_matrix *a)
{
    struct muon_matrix copy = *a;

    if ((a->dtype != ST_F64 && a->dtype != ST_F32) || a->weight_dtype != a->dtype || a->weight != a->master)
        return ST_E_UNSUPPORTED;
    st_cpu_run(q, (a->rows + ROW_PIECE - 1) / ROW_PIECE, a->dtype == ST_F64 ? apply_piece_f64 : apply_piece_f32, &copy);
    return ST_OK;
}

static const struct muon_kernels table = {.momentum = momentum, .apply = apply};

ST_KERNELS_V1(MUON_IFACE, table, "muon", "cpu", "0.1.0", "", "", NULL)
