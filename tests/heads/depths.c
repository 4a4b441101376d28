/* SPDX-License-Identifier: Apache-2.0 */
/* heads/depths.c - see the header. */
#include "depths.h"
#include <math.h>

void depth_sums(fixture *f, st_packed_row *const *rows, int32_t micros, int32_t depth, double sum[2])
{
    st_error e = {0};

    sum[0] = sum[1] = 0;
    for (int32_t i = 0; i < micros; i++) {
        double trunk, cell[2];
        int64_t count;
        need_ok(st_model_evaluate(f->model, rows[i], &trunk, &count, NULL, NULL, &e), &e);
        need_ok(model_read_cells(f->model, f->model->metrics[f->model->run.loss_cell[depth]].at, 2, cell, &e), &e);
        sum[0] += cell[0];
        sum[1] += cell[1];
    }
}

/* The value of a key as the head's instance has it. */
static double number_of(const fixture *f, const char *section, const char *key)
{
    for (int32_t i = 0; i < f->model->n_heads; i++) {
        const st_instance *in = &f->model->heads[i];
        if (strcmp(in->section, section)) continue;
        for (uint32_t k = 0; k < in->plugin->n_params; k++)
            if (!strcmp(in->plugin->params[k].key, key))
                return *(const double *)(const void *)((const char *)in->self + in->plugin->params[k].offset);
    }
    fail_msg("no [%s] %s", section, key);
    return 0;
}

double weighed_losses(fixture *f, st_packed_row *const *rows, int32_t micros)
{
    int32_t depths = f->model->shape.depths;
    double sum[2], total;

    depth_sums(f, rows, micros, 0, sum);
    total = number_of(f, "head.lm", "weight") * sum[0] / sum[1];
    for (int32_t k = 1; k <= depths; k++) {
        depth_sums(f, rows, micros, k, sum);
        if (sum[1] > 0) total += number_of(f, "head.mtp", "loss_weight") / depths * sum[0] / sum[1];
    }
    return total;
}

st_step_result step_gradients(fixture *f, st_packed_row *const *rows, int32_t micros)
{
    st_step_result r;
    st_error e = {0};

    need_ok(st_model_gradients(f->model, (const st_packed_row *const *)rows, micros, &r, &e), &e);
    if (r.skipped) fail_msg("skipped: %s", r.bad);
    return r;
}

double metric_of(const st_step_result *r, const char *name)
{
    for (int32_t i = 0; i < r->n_metrics; i++)
        if (!strcmp(r->metrics[i].name, name)) return r->metrics[i].valid ? r->metrics[i].value : (double)NAN;
    fail_msg("no metric %s", name);
    return 0;
}

int32_t weight_index(const fixture *f, const char *path)
{
    for (int32_t i = 0; i < f->model->n_weights; i++)
        if (!strcmp(f->model->weights[i]->pub.path, path)) return i;
    fail_msg("no weight %s", path);
    return -1;
}

double *weight_values(fixture *f, const char *path, int what)
{
    int32_t i = weight_index(f, path);
    double *v = ST_NEW_N(f->arena, double, f->model->weights[i]->pub.count);
    st_error e = {0};

    need_ok(st_model_read(f->model, i, what, v, &e), &e);
    return v;
}
