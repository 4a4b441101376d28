/* SPDX-License-Identifier: Apache-2.0 */
/* The lm head and adamw: what they ask of the host, and the numbers that adamw gives it per step. */
#include <math.h>
#include <string.h>
#include "part_host.h"

static void lm_head(void **state)
{
    part_host *h = part_open("lm", NULL);
    const st_head_ops *ops = h->plugin->ops;
    st_row_stats row = {100, 0};
    st_cost cost = {0};

    h->env.hidden = 8;
    h->env.vocab = 50;
    assert_int_equal(ops->configure(h->self, &h->env), ST_OK);
    assert_string_equal(h->metric.name, "loss");
    assert_int_equal(h->metric.kind, ST_METRIC_RATIO);
    assert_int_equal(ops->first_depth, 0);
    assert_int_equal(ops->depths, 1);
    assert_int_equal(ops->loss(h->self, &h->step, NULL, NULL), ST_OK);
    assert_int_equal(h->lm_losses, 1);
    assert_int_equal(ops->cost(h->self, &h->env, &row, &cost), ST_OK);
    assert_near(cost.exact, 80000, 0);
    part_close(h);
}

static void adamw_numbers(void **state)
{
    part_host *h = part_open("adamw", (const char *[]){"beta2", "0.95", NULL});
    const st_optimizer_ops *ops = h->plugin->ops;
    st_schedule at = {.size = sizeof at, .step = 3, .lr = 2e-3, .decay = 0.1, .lr_scale = 0.5};
    st_weight_info info = {.size = sizeof info, .path = "x"};
    st_opt_class class = {.size = sizeof class};
    double hyper[9];

    assert_int_equal(ops->configure(h->self, &h->env), ST_OK);
    assert_int_equal(ops->classify(h->self, &info, &class), ST_OK);
    assert_int_equal(class.place, ST_PLACE_FLAT);
    assert_int_equal(class.n_state, 2);
    assert_string_equal(class.state[0].name, "m");
    assert_string_equal(class.state[1].name, "v");
    assert_int_equal(class.state[0].dtype, ST_F64);
    assert_int_equal(ops->n_hyper, 9);
    assert_int_equal(ops->hyper(h->self, 0, &at, hyper), ST_OK);
    assert_near(hyper[0], 1e-3, 0);
    assert_near(hyper[1], 0.1, 0);
    assert_near(hyper[2], 0.9, 0);
    assert_near(hyper[3], 0.95, 0);
    assert_near(hyper[4], 1e-8, 0);
    assert_near(hyper[5], 1 - 0.9 * 0.9 * 0.9, 1e-16);
    assert_near(hyper[6], 1 - 0.95 * 0.95 * 0.95, 1e-16);
    assert_near(hyper[7], 0.1, 1e-16);
    assert_near(hyper[8], 0.05, 1e-16);
    part_close(h);
}

static void adamw_update(void **state)
{
    part_host *h = part_open("adamw", NULL);
    const st_optimizer_ops *ops = h->plugin->ops;
    st_opt_unit unit = {.size = sizeof unit, .master = part_tensor(h, ST_F64, 4, 1)};
    const st_opt_unit *units[2] = {&unit, &unit};

    assert_int_equal(ops->configure(h->self, &h->env), ST_OK);
    assert_int_equal(ops->update(h->self, &h->step, units, 2), ST_OK);
    assert_int_equal(h->adamw_calls, 2);
    assert_ptr_equal(h->adamw_seen.master, &unit.master);
    assert_ptr_equal(h->adamw_seen.m, &unit.state[0]);
    assert_ptr_equal(h->adamw_seen.v, &unit.state[1]);
    assert_ptr_equal(h->adamw_seen.hyper, &unit.hyper);
    part_close(h);
}

static void adamw_refuses(void **state)
{
    part_host *h = part_open("adamw", (const char *[]){"beta2", "1", NULL});

    assert_int_equal(((const st_optimizer_ops *)h->plugin->ops)->configure(h->self, &h->env), ST_E_CONFIG);
    assert_words(h->error.message, "beta2 = 1");
    part_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lm_head), cmocka_unit_test(adamw_numbers), cmocka_unit_test(adamw_update),
        cmocka_unit_test(adamw_refuses),
    };

    return cmocka_run_group_tests_name("small parts", tests, NULL, NULL);
}
