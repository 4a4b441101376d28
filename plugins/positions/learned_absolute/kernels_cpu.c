/* SPDX-License-Identifier: Apache-2.0 */
/* positions/learned_absolute/kernels_cpu.c - the kernels on the CPU, for double and float runs. They add once per
 * value, so memory sets their pace and one instruction set serves. */
#include "kernels.h"
#include <strata/cpu.h>

enum { TOKEN_PIECE = 64, COLUMN_PIECE = 64 };

static int64_t end_of(int64_t piece, int64_t size, int64_t n)
{
    return (piece + 1) * size < n ? (piece + 1) * size : n;
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

typedef void (*piece_fn)(void *, int64_t);

/* Positions were checked when they were given; one out of range would be a row made elsewhere. */
static int run(const st_queue *q, const struct learned_rows *a, int64_t pieces, piece_fn f64, piece_fn f32)
{
    struct learned_rows copy = *a;

    if ((a->dtype != ST_F64 && a->dtype != ST_F32) || a->table_dtype != a->dtype) return ST_E_UNSUPPORTED;
    for (int64_t t = 0; t < a->tokens; t++)
        if (a->pos[t] < 0 || a->pos[t] >= a->positions) return ST_E_DATA;
    st_cpu_run(q, pieces, a->dtype == ST_F64 ? f64 : f32, &copy);
    return ST_OK;
}

static int add(const st_queue *q, const struct learned_rows *a)
{
    return run(q, a, (a->tokens + TOKEN_PIECE - 1) / TOKEN_PIECE, add_piece_f64, add_piece_f32);
}

static int add_bwd(const st_queue *q, const struct learned_rows *a)
{
    return run(q, a, (a->width + COLUMN_PIECE - 1) / COLUMN_PIECE, add_bwd_piece_f64, add_bwd_piece_f32);
}

static const struct learned_kernels table = {.add = add, .add_bwd = add_bwd};

ST_KERNELS_V1(LEARNED_ABSOLUTE_IFACE, table, "learned_absolute", "cpu", "0.1.0", "", "", NULL)
