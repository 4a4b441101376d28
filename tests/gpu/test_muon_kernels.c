/* SPDX-License-Identifier: Apache-2.0 */
/* test_muon_kernels.c - muon's CUDA kernels against its CPU kernels in double: odd sizes, rows that lie apart, both forms of the
 * momentum, a clipped gradient, a step that is skipped, weights in f32 and bf16. */
#include "kernels_test.h"
#include "plugins/optimizers/muon/kernels.h"
#include <stdbool.h>
#include <stdlib.h>

static const struct muon_kernels *cpu, *cuda;

typedef struct matrix {
    const char *title;
    int64_t rows, cols, more; /* more: columns between rows */
    int32_t type, nesterov;
    double clip, skip;
    array *grad, *state, *master, *weight, *x, *hyper, *clipped, *skipped;
    void *row_sum;
    double *cpu_row_sum;
} matrix;

static int run_muon(void *ctx, int device)
{
    const matrix *m = ctx;
    const st_queue q = device ? device_queue() : cpu_queue();
    const struct muon_kernels *k = device ? cuda : cpu;
    const bool own = device && m->type == ST_BF16; /* elsewhere the weight is the master */
    const struct muon_matrix a = {.rows = m->rows,
                                  .cols = m->cols,
                                  .stride = m->cols + m->more,
                                  .grad = on(m->grad, device),
                                  .state = on(m->state, device),
                                  .master = on(m->master, device),
                                  .weight = own ? m->weight->device : on(m->master, device),
                                  .x = on(m->x, device),
                                  .row_sum = device ? m->row_sum : m->cpu_row_sum,
                                  .hyper = on(m->hyper, device),
                                  .clip = on(m->clipped, device),
                                  .skip = on(m->skipped, device),
                                  .eps = 1e-7,
                                  .scale = 0.7,
                                  .nesterov = m->nesterov,
                                  .dtype = device ? ST_F32 : ST_F64,
                                  .weight_dtype = own ? ST_BF16 : device ? ST_F32 : ST_F64};
    ST_TRY(k->momentum(&q, &a));
    ST_TRY(k->apply(&q, &a));
    for (int64_t r = 0; !device && m->weight && m->skip == 0 && r < m->rows; r++) /* what the CPU has no kernel for */
        for (int64_t i = 0; i < m->cols; i++)
            m->weight->host[r * a.stride + i] = m->master->host[r * a.stride + i];
    return ST_OK;
}

static void check(matrix m)
{
    static const double hyper[MUON_HYPERS] = {0.02, 0.1, 0.95};
    const int64_t n = m.rows * (m.cols + m.more);
    arrays s;

    arrays_begin(&s, m.type, (uint64_t)n);
    m.grad = input(&s, n, 1, 1);
    m.hyper = input_of(&s, hyper, MUON_HYPERS, 1);
    m.clipped = input_of(&s, &m.clip, 1, 1);
    m.skipped = input_of(&s, &m.skip, 1, 1);
    m.state = result(&s, "momentum", n, 1, 0.25, 1e-6);
    m.master = result(&s, "master", n, 1, 0.5, 1e-6);
    m.x = result(&s, "x", m.rows * m.cols, 1, 7, 1e-6);
    if (m.type == ST_BF16) m.weight = result(&s, "weight", n, 0, 0.5, 3e-3);
    m.row_sum = device_scratch(&s, 2 * m.rows);
    m.cpu_row_sum = malloc((size_t)m.rows * sizeof *m.cpu_row_sum);
    compare(&s, m.title, run_muon, &m);
    if (m.skip != 0) { /* nothing has moved */
        assert_true(m.master->host[0] == 0.5 && m.state->host[0] == 0.25);
        for (int64_t i = 0; i < m.rows * m.cols; i++) assert_true(m.x->host[i] == 0);
    }
    free(m.cpu_row_sum);
    arrays_end(&s);
}

static void matrices_agree(void **state)
{
    (void)state;
    check((matrix){.title = "5 x 7", .rows = 5, .cols = 7, .type = ST_F32, .nesterov = 1, .clip = 0.5});
    check((matrix){.title = "300 x 1025, apart", .rows = 300, .cols = 1025, .more = 3, .type = ST_F32, .nesterov = 1, .clip = 1});
    check((matrix){.title = "1025 x 300, no nesterov", .rows = 1025, .cols = 300, .type = ST_F32, .clip = 0.3});
    check((matrix){.title = "1 x 4096", .rows = 1, .cols = 4096, .type = ST_F32, .nesterov = 1, .clip = 1});
    check((matrix){.title = "300 x 257, bf16", .rows = 300, .cols = 257, .more = 5, .type = ST_BF16, .nesterov = 1, .clip = 0.5});
    check((matrix){.title = "64 x 64, skipped", .rows = 64, .cols = 64, .type = ST_BF16, .nesterov = 1, .clip = 0.5, .skip = 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matrices_agree)};

    if (!device_there()) return 0;
    cpu = open_kernels("muon", "cpu")->table;
    cuda = open_kernels("muon", "cuda")->table;
    return cmocka_run_group_tests_name("muon_kernels", tests, NULL, NULL);
}
