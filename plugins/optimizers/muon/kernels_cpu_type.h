/* SPDX-License-Identifier: Apache-2.0 */
/* muon/kernels_cpu_type.h - bodies for one type T; TYPED(name) names them. No guard: included once per type. Sums run
 * in double, along a row and then over rows, whatever the number of threads. */

static void TYPED(momentum_row)(const struct muon_matrix *a, int64_t r)
{
    const T clip = *(const T *)a->clip, beta = ((const T *)a->hyper)[HYPER_MOMENTUM];
    const T *grad = (const T *)a->grad + r * a->stride;
    T *state = (T *)a->state + r * a->stride, *x = (T *)a->x + r * a->cols;
    double sum = 0;

    for (int64_t i = 0; i < a->cols; i++) {
        T g = clip * grad[i], m = beta * state[i] + g, u = a->nesterov ? g + beta * m : m;
        state[i] = m;
        x[i] = u;
        sum += (double)u * (double)u;
    }
    ((double *)a->row_sum)[r] = sum;
}

static void TYPED(momentum_piece)(void *arg, int64_t piece)
{
    const struct muon_matrix *a = arg;
    int64_t first = piece * ROW_PIECE, end = first + ROW_PIECE < a->rows ? first + ROW_PIECE : a->rows;

    for (int64_t r = first; r < end; r++) {
        if (*(const T *)a->skip == 0) {
            TYPED(momentum_row)(a, r);
            continue;
        }
        for (int64_t i = 0; i < a->cols; i++) ((T *)a->x)[r * a->cols + i] = 0;
        ((double *)a->row_sum)[r] = 0;
    }
}

static void TYPED(divide_piece)(void *arg, int64_t piece)
{
    const struct muon_matrix *a = arg;
    int64_t first = piece * ROW_PIECE, end = first + ROW_PIECE < a->rows ? first + ROW_PIECE : a->rows;
    double sum = 0;

    for (int64_t r = 0; r < a->rows; r++) sum += ((const double *)a->row_sum)[r];
    const T factor = (T)(1 / (sqrt(sum) + a->eps));
    for (int64_t i = first * a->cols; i < end * a->cols; i++) ((T *)a->x)[i] *= factor;
}

static void TYPED(apply_piece)(void *arg, int64_t piece)
{
    const struct muon_matrix *a = arg;
    const T *hyper = a->hyper, lr = hyper[HYPER_LR], decay = hyper[HYPER_DECAY], scale = (T)a->scale;
    int64_t first = piece * ROW_PIECE, end = first + ROW_PIECE < a->rows ? first + ROW_PIECE : a->rows;

    if (*(const T *)a->skip != 0) return;
    for (int64_t r = first; r < end; r++) {
        const T *x = (const T *)a->x + r * a->cols;
        T *w = (T *)a->master + r * a->stride;
        for (int64_t i = 0; i < a->cols; i++) w[i] -= lr * (decay * w[i] + scale * x[i]);
    }
}
