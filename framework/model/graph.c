/* SPDX-License-Identifier: Apache-2.0 */
/* model/graph.c - a pass over one row as a graph of the device: enqueued once, then replayed.
 *
 * Rows have fixed addresses and capacities, and what differs from step to step is read on the device, so one graph for
 * each row of a step serves the whole run. The first pass runs as it is: libraries load their kernels then. */
#include "model/private.h"
#include <string.h>

/* micro -1: an evaluation */
static int pass(st_model *m, int32_t micro, int32_t micros)
{
    int mode = micro < 0 ? ST_EVAL : ST_TRAIN;

    if (micro <= 0) model_begin_step(m, mode, micros);
    return model_micro(m, mode, micro < 0 ? 0 : micro);
}

static bool replayable(const st_model *m, int32_t micro)
{
    return m->be.capture_begin && m->be.capture_end && m->be.replay && m->be.graph_free &&
           micro < MODEL_GRAPHS - 1 && m->run_keys.graph && !m->profile && !m->probe && !m->searching;
}

static int capture(st_model *m, model_graph *g, int32_t micro, int32_t micros)
{
    const st_queue *q = m->run.s.q;
    st_error e = {0};
    int rc;

    if (m->be.capture_begin(q) != ST_OK) return model_fail(m, ST_E_DEVICE, "a graph could not be begun");
    pass(m, micro, micros);
    rc = m->be.capture_end(q, &g->graph, &e);
    if (rc != ST_OK && m->run.s.status == ST_OK) model_fail(m, ST_E_DEVICE, "a graph could not be made: %s", e.message);
    if (m->run.s.status != ST_OK) { /* a part of a pass must not be replayed */
        model_graph_free(m, g);
        return m->run.s.status;
    }
    memcpy(g->loss_cell, m->run.loss_cell, sizeof g->loss_cell);
    g->micros = micros;
    return ST_OK;
}

/* What the host knows after a pass that it has enqueued itself. */
static int replay(st_model *m, const model_graph *g, int32_t micro)
{
    m->run.s.mode = micro < 0 ? ST_EVAL : ST_TRAIN;
    m->run.s.micros = g->micros;
    m->run.s.micro = micro < 0 ? 0 : micro;
    memcpy(m->run.loss_cell, g->loss_cell, sizeof g->loss_cell);
    for (int32_t i = 0; i < m->n_weights && micro >= 0; i++)
        m->weights[i]->done = m->weights[i]->per_micro * (micro + 1);
    return m->be.replay(m->run.s.q, g->graph) == ST_OK ? ST_OK : model_fail(m, ST_E_DEVICE, "a graph was not replayed");
}

/* The uploaded row: number `micro` of the step, or -1 to evaluate it. The first also zeroes what a step adds to. */
int model_pass(st_model *m, int32_t micro, int32_t micros)
{
    model_graph *g;

    if (m->run.s.status != ST_OK) return m->run.s.status;
    if (!replayable(m, micro)) return pass(m, micro, micros);
    g = &m->graphs[micro + 1];
    if (g->graph && g->micros != micros) model_graph_free(m, g);
    if (!g->graph && g->passes++ == 0) return pass(m, micro, micros);
    if (!g->graph) ST_TRY(capture(m, g, micro, micros));
    return replay(m, g, micro);
}

void model_graph_free(st_model *m, model_graph *g)
{
    if (g->graph) m->be.graph_free(g->graph);
    *g = (model_graph){0};
}
