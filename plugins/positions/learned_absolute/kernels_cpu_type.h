/* SPDX-License-Identifier: Apache-2.0 */
/* positions/learned_absolute/kernels_cpu_type.h - bodies for one type T; TYPED(name) names them. No guard: included
 * once per type. */

static void TYPED(add_piece)(void *arg, int64_t piece)
{
    const struct learned_rows *a = arg;
    int64_t end = end_of(piece, TOKEN_PIECE, a->tokens);

    for (int64_t t = piece * TOKEN_PIECE; t < end; t++) {
        T *x = (T *)a->x + t * a->x_stride;
        const T *row = (const T *)a->table + a->pos[t] * a->table_stride;
        for (int64_t i = 0; i < a->width; i++) x[i] += row[i];
    }
}

/* Some columns of all tokens: no two pieces write one value, and every sum runs in order of tokens. */
static void TYPED(add_bwd_piece)(void *arg, int64_t piece)
{
    const struct learned_rows *a = arg;
    int64_t first = piece * COLUMN_PIECE, end = end_of(piece, COLUMN_PIECE, a->width);

    for (int64_t t = 0; t < a->tokens; t++) {
        const T *dx = (const T *)a->x + t * a->x_stride;
        T *row = (T *)a->table + a->pos[t] * a->table_stride;
        for (int64_t i = first; i < end; i++) row[i] += dx[i];
    }
}
