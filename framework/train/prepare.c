/* SPDX-License-Identifier: Apache-2.0 */
/* train/prepare.c - from a spec to a checked run. Every room reports all it finds; what depends on a broken room is
 * left out. */
#include "config.h"

#include "train/run.h"

/* Without a model, because it was refused, the data's own mistakes are still found. */
static int open_data(st_run *r, st_diags *d)
{
    st_data_context c = {.base = r->base,
                         .spec = r->spec,
                         .registry = r->options->registry,
                         .shape = r->model ? st_model_shape(r->model) : NULL,
                         .position = r->model ? st_model_position(r->model) : NULL,
                         .encoder = r->model ? st_model_encoder(r->model) : NULL,
                         .seed = (uint64_t)r->config.run.seed};
    const st_value *vocab = st_spec_get(r->spec, "stack", "vocab");
    int rc;

    if (!vocab || !st_parse_int(vocab->text, &c.vocab, NULL)) c.vocab = 0;

    if (!st_spec_has(r->spec, "dataset.train"))
        return st_spec_fail(r->spec, d, NULL, "add [dataset.train] with plugin = cord_v2 and path = FOLDER",
                            "there is no [dataset.train]");
    rc = st_loader_open(&c, "dataset.train", 1, &r->train, d);
    if (st_spec_has(r->spec, "dataset.valid")) {
        int rv = st_loader_open(&c, "dataset.valid", 0, &r->valid, d);
        if (rc == ST_OK) rc = rv;
    }
    return rc;
}

int st_run_mark_timing(st_run *r, const char *of_weights, st_error *e)
{
    st_buf own = {0};

    st_spec_timing(r->spec, &own);
    bool failed = own.failed;
    r->at.timing = own.n ? st_arena_strndup(r->arena, own.data, own.n) : of_weights;
    failed |= own.n && !r->at.timing;
    st_buf_free(&own);
    return failed ? st_fail(e, ST_E_NOMEM, "no memory for the keys of a timing run") : ST_OK;
}

static int first_error(const st_diags *d)
{
    for (int32_t i = 0; i < d->n; i++)
        if (!d->item[i].warning) return d->item[i].error.code;
    return ST_E_CONFIG;
}

int st_run_prepare(st_run *r, st_diags *d)
{
    int before = d->errors;
    st_error e = {0};

    (void)st_train_config_bind(r->spec, &r->config, d);
    st_run_keep_precision(r);
    (void)st_model_build(r->base, r->spec, r->options->registry, !r->options->evaluate, &r->model, d);
    (void)open_data(r, d);
    (void)st_spec_check_unused(r->spec, d);
    if (d->errors != before) return first_error(d);
    if (st_checkpoint_make_texts(r->spec, r->model, r->arena, &r->texts, &e) != ST_OK ||
        st_run_mark_timing(r, NULL, &e) != ST_OK)
        return st_diags_add(d, &e, NULL, false);
    r->at.seed = (uint64_t)r->config.run.seed;
    r->at.spec_hash = st_spec_hash(r->spec);
    r->saved_step = -1;
    return ST_OK;
}

void st_run_close(st_run *r)
{
    st_progress_close(r->line);
    st_metrics_close(r->metrics);
    if (r->lock) fclose(r->lock);
    st_loader_close(r->train);
    st_loader_close(r->valid);
    st_model_destroy(r->model);
    st_arena_destroy(r->arena);
}
