/* SPDX-License-Identifier: Apache-2.0 */
/* test_moe_kernels.c - moe's CUDA kernels against its CPU kernels in double: choice, order, shares, padding, capacity,
 * and all gradients; numbers of tokens and experts that fill no block. */
#include "kernels_test.h"
#include "plugins/layers/moe/kernels.h"
#include <stdlib.h>
#include <string.h>

static const moe_kernels *cpu, *cuda;

typedef struct moe_case { const char *title; int tokens, experts, top_k, width, forced, room; } moe_case;
typedef struct moe_data {
    const moe_case *c;
    int32_t type;
    int64_t rows;
    array *logits, *real, *choice, *share, *load, *balance, *offset, *row, *place, *weight;
    array *gate_up, *product, *dproduct, *dweight, *step_tokens, *dlogits, *out, *gate, *y, *dy, *dout, *dgate, *cells;
    void *work, *sort_work;
} moe_data;

/* Sorted rows hold unused ones that stay as they were, on both sides. */
static int run_moe(void *ctx, int device)
{
    const moe_data *d = ctx;
    const moe_case *c = d->c;
    const st_queue q = device ? device_queue() : cpu_queue();
    const moe_kernels *t = device ? cuda : cpu;
    const int32_t acc = device ? ST_F32 : ST_F64, type = device ? d->type : ST_F64;
    double *cpu_work = malloc((size_t)(moe_blocks(c->tokens) * moe_cells(c->experts)) * sizeof *cpu_work);
    int32_t *cpu_sort = malloc((size_t)((moe_blocks(c->tokens) + 1) * c->experts) * sizeof *cpu_sort);
    const moe_route route = {.logits = on(d->logits, device), .real = on(d->real, device),
                             .choice = on(d->choice, device), .share = on(d->share, device),
                             .sums = {on(d->load, device), on(d->balance, device)},
                             .work = device ? d->work : cpu_work, .tokens = c->tokens, .experts = c->experts,
                             .top_k = c->top_k, .forced = c->forced, .dtype = acc};
    const moe_sort sort = {.choice = on(d->choice, device), .share = on(d->share, device),
                           .offset = on(d->offset, device), .row = on(d->row, device), .place = on(d->place, device),
                           .work = device ? d->sort_work : cpu_sort, .weight = on(d->weight, device),
                           .tokens = c->tokens, .rows = d->rows, .experts = c->experts, .top_k = c->top_k,
                           .dtype = acc};
    const moe_glu glu = {.gate_up = on(d->gate_up, device), .weight = on(d->weight, device),
                         .offset = on(d->offset, device), .product = on(d->product, device), .rows = d->rows,
                         .width = c->width, .experts = c->experts, .dtype = type,
                         .dproduct = on(d->dproduct, device), .dweight = on(d->dweight, device)};
    const moe_router_bwd back = {.logits = on(d->logits, device), .share = on(d->share, device),
                                 .dweight = on(d->dweight, device), .choice = on(d->choice, device),
                                 .place = on(d->place, device), .total = on(d->balance, device),
                                 .step_tokens = on(d->step_tokens, device), .dlogits = on(d->dlogits, device),
                                 .coef = 0.3, .tokens = c->tokens, .experts = c->experts, .top_k = c->top_k,
                                 .dtype = acc};
    const moe_gate gate = {.out = on(d->out, device), .gate = on(d->gate, device), .y = on(d->y, device),
                           .tokens = c->tokens, .width = c->width, .dy = on(d->dy, device),
                           .dout = on(d->dout, device), .dgate = on(d->dgate, device), .dtype = type};
    char *cells = on(d->cells, device);
    const size_t two = 2 * st_dtype_size(acc);
    const moe_report report = {.total = on(d->load, device), .load_max = cells, .load_min = cells + two,
                               .violation = cells + 2 * two, .entropy = cells + 3 * two, .balance = cells + 4 * two,
                               .scale = 0.5, .experts = c->experts, .dtype = acc};
    int rc = t->route(&q, &route);
    if (rc == ST_OK) rc = t->sort(&q, &sort);
    if (rc == ST_OK) rc = t->glu(&q, &glu);
    if (rc == ST_OK) rc = t->glu_bwd(&q, &glu);
    if (rc == ST_OK) rc = t->router_bwd(&q, &back);
    if (rc == ST_OK) rc = t->gate(&q, &gate);
    if (rc == ST_OK) rc = t->gate_bwd(&q, &gate);
    if (rc == ST_OK) rc = t->report(&q, &report);
    free(cpu_work);
    free(cpu_sort);
    return rc;
}
/* What is kept from call to call is an input and a result at once. */
static array *random_result(arrays *s, const char *name, int64_t n, double scale, double bound)
{
    array *a = input(s, n, 0, scale);
    a->name = name;
    a->bound = bound;
    return a;
}
static void moe_one(const moe_case *c, int32_t type)
{
    const double bound = type == ST_BF16 ? 3e-3 : 1e-5;
    const int64_t n = c->tokens, picks = n * c->top_k;
    moe_data d = {.c = c, .type = type};
    uint8_t *real = malloc((size_t)n);
    const double tokens = (double)n;
    arrays s;

    arrays_begin(&s, type, (uint64_t)n);
    d.rows = c->room ? c->room : (picks + (int64_t)c->experts * 63 + 63) / 64 * 64;
    for (int64_t i = 0; i < n; i++) real[i] = i % 11 != 7;
    d.real = bytes_input(&s, real, n);
    d.logits = input(&s, n * c->experts, 1, 3);
    for (int e = 0; e < 2; e++) { /* equal logits: the lower expert goes first */
        double *l = d.logits->host + 3 * c->experts;
        l[e] = l[c->experts - 1 - e] = 4;
    }
    arrays_refresh(d.logits);
    d.choice = whole_result(&s, "choice", picks, 7);
    d.share = result(&s, "share", picks, 1, 9, 1e-5);
    d.load = result(&s, "load", moe_cells(c->experts), 1, 2, 1e-5);
    d.balance = result(&s, "balance", moe_cells(c->experts), 1, 0, 1e-5);
    d.offset = whole_result(&s, "offset", c->experts + 1, -5);
    d.row = whole_result(&s, "row", d.rows, -9);
    d.place = whole_result(&s, "place", picks, -9);
    d.weight = result(&s, "weight", d.rows, 1, 9, 1e-5);
    d.gate_up = random_result(&s, "dgate_up", d.rows * 2 * c->width, 2, bound);
    d.product = result(&s, "product", d.rows * c->width, 0, 0, bound);
    d.dproduct = input(&s, d.rows * c->width, 0, 1);
    d.dweight = result(&s, "dweight", d.rows, 1, 0, 1e-5);
    d.step_tokens = input_of(&s, &tokens, 1, 1);
    d.dlogits = result(&s, "dlogits", n * c->experts, 1, 5, 1e-5);
    d.out = input(&s, n * c->width, 0, 1);
    d.gate = input(&s, n, 1, 2);
    d.y = random_result(&s, "y", n * c->width, 1, bound);
    d.dy = input(&s, n * c->width, 0, 1);
    d.dout = result(&s, "dout", n * c->width, 0, 0, bound);
    d.dgate = result(&s, "dgate", n, 1, 0, 1e-5);
    d.cells = result(&s, "report", 10, 1, 0, 1e-5);
    d.work = device_scratch(&s, moe_blocks(n) * moe_cells(c->experts));
    d.sort_work = device_scratch(&s, (moe_blocks(n) + 1) * c->experts);
    compare(&s, c->title, run_moe, &d);
    arrays_end(&s);
    free(real);
}
static const moe_case cases[] = {
    {"moe 8 of 256", 300, 256, 8, 64, 0, 0},     {"moe 2 of 5", 131, 5, 2, 24, 0, 0},
    {"moe 1 of 3", 64, 3, 1, 7, 0, 0},           {"moe 4 of 1500", 129, 1500, 4, 16, 0, 0},
    {"moe taken in turn", 200, 40, 3, 36, 1, 0}, {"moe without room", 300, 16, 2, 24, 0, 640},
};
static void kernels_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) moe_one(&cases[i], ST_F32);
}
static void kernels_agree_in_bf16(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) moe_one(&cases[i], ST_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_agree), cmocka_unit_test(kernels_agree_in_bf16)};
    if (!device_there()) return 0;
    cpu = open_kernels("moe", "cpu")->table;
    cuda = open_kernels("moe", "cuda")->table;
    return cmocka_run_group_tests_name("moe_kernels", tests, NULL, NULL);
}
