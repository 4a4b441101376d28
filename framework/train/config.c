/* SPDX-License-Identifier: Apache-2.0 */
/* train/config.c - the settings that the training loop owns, as parameter tables. */
#include "config.h"

#include "train/train.h"
#include <math.h>
#include <string.h>

static const st_param run_params[] = {
    ST_STR(st_run_keys, name, "run", 0, "name of the run; names its folder below runs/"),
    ST_PARAM(st_run_keys, output, ST_P_STRING, NULL, 0, 0, "", NULL, ST_PF_LOCAL,
             "folder of the run, relative to where strata is started; default runs/NAME"),
    ST_INT(st_run_keys, seed, "1", 0, 1e15, "", 0, "seed of weights and sample order"),
    ST_INT(st_run_keys, steps, NULL, 1, 1e12, "steps", ST_PF_REQUIRED, "optimizer steps"),
    ST_CHOICE(st_run_keys, on_nan, "stop", "stop|skip", 0,
              "a step with a NaN or Inf changes nothing; then stop, or go on"),
};
static const st_param schedule_params[] = {
    ST_FLOAT(st_schedule_keys, lr, NULL, 0, 1e3, "", ST_PF_REQUIRED, "peak learning rate"),
    ST_CHOICE(st_schedule_keys, kind, "cosine", "cosine|linear|constant|wsd", 0, "shape after the warm-up"),
    ST_INT(st_schedule_keys, warmup, "0", 0, 1e12, "steps", 0, "steps of linear warm-up; the first one already trains"),
    ST_FLOAT(st_schedule_keys, final_ratio, "0", 0, 1, "", 0,
             "learning rate at the last step, as a part of lr; at 0 that step changes nothing"),
    ST_INT(st_schedule_keys, decay, "0", 0, 1e12, "steps", 0,
           "wsd: length of the decay at the end; 0 = a tenth of the steps"),
};
static const st_param clip_params[] = {
    ST_FLOAT(st_clip_keys, clip, "1", 0, 1e9, "", 0, "largest norm of all gradients together; 0 = no clipping"),
};
static const st_param batch_params[] = {
    ST_INT(st_batch_keys, samples, "0", 0, 1e9, "samples", 0,
           "samples per optimizer step; 0 = as many as fit into its rows"),
};
static const st_param eval_params[] = {
    ST_INT(st_eval_keys, every, "0", 0, 1e12, "steps", 0, "evaluate every so many steps; 0 = only at the end"),
    ST_INT(st_eval_keys, samples, "0", 0, 1e12, "samples", 0, "samples of [dataset.valid] used each time; 0 = all"),
    ST_BOOL(st_eval_keys, at_end, "yes", 0, "evaluate after the last step"),
    ST_BOOL(st_eval_keys, permute_media, "no", 0,
            "at the end also with the pictures exchanged among samples: does the model look?"),
    ST_INT(st_eval_keys, show, "0", 0, 64, "samples", 0,
           "at the end, print greedy text of so many samples beside the truth"),
    ST_INT(st_eval_keys, show_tokens, "256", 1, 65536, "tokens", 0, "longest text printed for a sample"),
};
static const st_param checkpoint_params[] = {
    ST_INT(st_checkpoint_keys, every, "0", 0, 1e12, "steps", 0, "save every so many steps; 0 = only at the end"),
    ST_INT(st_checkpoint_keys, keep, "3", 1, 1e6, "", 0, "newest checkpoints kept"),
    ST_BOOL(st_checkpoint_keys, at_end, "yes", 0, "save after the last step"),
    ST_PARAM(st_checkpoint_keys, from, ST_P_PATH, NULL, 0, 0, "", NULL, 0,
             "start from the weights of this checkpoint folder, or of a run's folder: its newest"),
    ST_PARAM(st_checkpoint_keys, from_hf, ST_P_PATH, NULL, 0, 0, "", NULL, 0,
             "start from weights in HuggingFace's names: folder with model.safetensors or its index"),
};
static const st_param log_params[] = {
    ST_INT(st_log_keys, every, "1", 1, 1e9, "steps", 0, "steps between lines of metrics.jsonl"),
};

#define BIND(section, table, field) \
    do { \
        st_table t = {table, ST_COUNT(table), sizeof(st_param), NULL}; \
        int rc = st_spec_bind(spec, section, &t, &c->field, NULL, d); \
        if (rc != ST_OK && first == ST_OK) first = rc; \
    } while (0)

/* A run that is shorter than its warm-up is a trial: told, not refused. */
static int check_schedule(const st_spec *spec, const st_train_config *c, st_diags *d)
{
    const st_schedule_keys *k = &c->schedule;
    const st_value *warmup = st_spec_get(spec, "schedule", "warmup");
    st_error e = {0};

    if (k->kind == ST_SCHEDULE_WSD && k->decay > 0 && k->warmup + k->decay > c->run.steps)
        return st_spec_fail(spec, d, st_spec_get(spec, "schedule", "decay"), "make decay or warmup shorter",
                            "warmup = %lld and decay = %lld together exceed the %lld steps of the run",
                            (long long)k->warmup, (long long)k->decay, (long long)c->run.steps);
    if (!warmup || k->warmup <= c->run.steps) return ST_OK;
    st_fail_at(&e, ST_E_CONFIG, warmup->file, warmup->line, warmup->column,
               "warmup = %lld: in %lld steps the learning rate does not rise to lr", (long long)k->warmup,
               (long long)c->run.steps);
    st_diags_add(d, &e, warmup->line_text, true);
    return ST_OK;
}

/* Whether each part of a path goes one folder deeper. */
static bool goes_down(const char *path)
{
    for (;; path++) {
        size_t n = strcspn(path, "/");
        if (n == 0 || (n <= 2 && strspn(path, ".") >= n)) return false;
        path += n;
        if (!*path) return true;
    }
}

static int check_folder(const st_spec *spec, const st_run_keys *k, st_diags *d)
{
    if (k->output && !k->output[0])
        return st_spec_fail(spec, d, st_spec_get(spec, "run", "output"), "leave it out for runs/NAME",
                            "[run] output names no folder");
    if (goes_down(k->name)) return ST_OK;
    return st_spec_fail(spec, d, st_spec_get(spec, "run", "name"), "[run] output may be any folder",
                        "[run] name = %s: must name a folder below runs/", k->name);
}

int st_train_config_bind(st_spec *spec, st_train_config *c, st_diags *d)
{
    int first = ST_OK;

    memset(c, 0, sizeof *c);
    BIND("run", run_params, run);
    BIND("schedule", schedule_params, schedule);
    BIND("optimizer", clip_params, clip);
    BIND("batch", batch_params, batch);
    BIND("eval", eval_params, eval);
    BIND("checkpoint", checkpoint_params, checkpoint);
    BIND("log", log_params, log);
    if (first != ST_OK) return first;
    ST_TRY(check_folder(spec, &c->run, d));
    ST_TRY(check_schedule(spec, c, d));
    if (c->checkpoint.from && c->checkpoint.from_hf)
        return st_spec_fail(spec, d, st_spec_get(spec, "checkpoint", "from_hf"), "give one of them",
                            "from and from_hf are both given");
    return ST_OK;
}

#define KEYS(table) (table), ST_COUNT(table)
int st_train_key_tables(const st_key_table **out)
{
    static const st_key_table list[] = {
        {"run", NULL, KEYS(run_params), 0, NULL},
        {"batch", NULL, KEYS(batch_params), 0, NULL},
        {"optimizer", NULL, KEYS(clip_params), 0, NULL},
        {"schedule", "Learning rate over the steps.", KEYS(schedule_params), 0, NULL},
        {"eval", "Evaluation on [dataset.valid].", KEYS(eval_params), 0, NULL},
        {"checkpoint", "Checkpoints of this run, and weights to start from.", KEYS(checkpoint_params), 0, NULL},
        {"log", "What goes to metrics.jsonl.", KEYS(log_params), 0, NULL},
    };
    *out = list;
    return (int)ST_COUNT(list);
}
