/* SPDX-License-Identifier: Apache-2.0 */
/* train/weights.c - the weights that a run begins with: looked for before anything is made, loaded later. */
#include "config.h"

#include "train/run.h"

/* ---- are they there? ---- */

/* The folder of a run stands for its newest checkpoint. */
static int open_from(const st_run *r, const char *dir, const char **newest, st_checkpoint_state *state, st_error *e)
{
    char *latest;

    ST_TRY(st_checkpoint_latest(dir, r->arena, &latest, e));
    *newest = latest ? latest : dir;
    return st_checkpoint_read_state(*newest, r->arena, state, e);
}

/* A header that can be read names every tensor; whether they fit is asked of a planned model. */
static int look_at_from(const st_run *r, const char *dir, st_error *e)
{
    st_checkpoint_state state;
    st_tensors *file;
    char *path;

    ST_TRY(open_from(r, dir, &dir, &state, e));
    path = st_path_join(r->arena, dir, st_checkpoint_file(0));
    if (!path) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    ST_TRY(st_tensors_open(path, &file, e));
    st_tensors_close(file);
    return ST_OK;
}

int st_run_find_weights(const st_run *r, st_diags *d)
{
    const st_checkpoint_keys *k = &r->config.checkpoint;
    const char *path = k->from ? k->from : k->from_hf, *key = k->from ? "from" : "from_hf";
    const char *hint = k->from ? "the folder of a run, or one of its checkpoints"
                               : "a folder with model.safetensors, or shards of it and their index";
    st_error e = {0};

    if (r->options->resume || r->options->evaluate || !path || (k->from && k->from_hf)) return ST_OK;
    if (!st_path_exists(path))
        return st_spec_fail_key(r->spec, d, "checkpoint", key, hint, "[checkpoint] %s: there is no %s", key, path);
    if ((k->from ? look_at_from(r, path, &e) : st_checkpoint_look_at_hf(path, &e)) == ST_OK) return ST_OK;
    return st_spec_fail_key(r->spec, d, "checkpoint", key, e.hint[0] ? e.hint : hint, "[checkpoint] %s: %s%s%s", key,
                            e.file, e.file[0] ? ": " : "", e.message);
}

int st_run_fit_weights(const st_run *r, st_error *e)
{
    const st_checkpoint_keys *k = &r->config.checkpoint;
    st_checkpoint_state state;
    const char *dir = k->from;

    if (!dir) return k->from_hf ? st_checkpoint_fit_hf(k->from_hf, r->model, e) : ST_OK;
    ST_TRY(open_from(r, dir, &dir, &state, e));
    return st_checkpoint_fit(dir, r->model, e);
}

/* ---- loading ---- */

static int load_from(st_run *r, const char *dir, st_error *e)
{
    st_checkpoint_state state;

    ST_TRY(open_from(r, dir, &dir, &state, e));
    ST_TRY(st_run_mark_timing(r, state.timing, e));
    ST_TRY(st_checkpoint_load(dir, r->model, 0, e));
    st_log_write(r->base->log, 3, "train", "weights from %s, step %lld", dir, (long long)state.step);
    return ST_OK;
}

int st_run_load_weights(st_run *r, st_error *e)
{
    const st_checkpoint_keys *k = &r->config.checkpoint;

    st_model_seed(r->model, (uint64_t)r->config.run.seed);
    if (r->resumed) {
        int rc = st_checkpoint_load(r->resumed, r->model, 1, e);
        if (rc != ST_OK) return st_run_damaged(r, rc, e);
        return st_loader_restore(r->train, &r->at.train, e);
    }
    ST_TRY(st_model_init(r->model, (uint64_t)r->config.run.seed, e));
    if (k->from) return load_from(r, k->from, e);
    if (!k->from_hf) return ST_OK;
    ST_TRY(st_checkpoint_load_hf(k->from_hf, r->model, r->base->log, e));
    st_log_write(r->base->log, 3, "train", "weights from %s", k->from_hf);
    return ST_OK;
}
