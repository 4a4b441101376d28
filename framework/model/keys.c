/* SPDX-License-Identifier: Apache-2.0 */
/* model/keys.c - the keys of the spec that the model owns, as parameter tables. */
#include "model/private.h"

static const st_param run_params[] = {
    ST_CHOICE(run_keys, precision, "auto", "auto|f64|f32|bf16", ST_PF_FIXED,
              "type of weights and activations; auto: bf16 where the backend trains in it, else f32; f64 is the reference"),
    ST_STR(run_keys, backend, "auto", 0,
           "auto, or the name of a backend plugin; auto: cuda where there is a GPU that it can use, else cpu"),
    ST_INT(run_keys, device, NULL, 0, 63, "", ST_PF_LOCAL,
           "which of the backend's devices, from 0; default: LOCAL_RANK, as launchers set it, else 0"),
    ST_BOOL(run_keys, poison, "no", ST_PF_EXPERT,
            "fill step memory with NaN before each use, to find reads of what was not written"),
    ST_BOOL(run_keys, graph, "yes", ST_PF_EXPERT, "replay a step as one graph, where the backend can"),
};
/* Two specs may give one pattern in two ways: a resume compares the expanded one. */
static const st_param stack_params[] = {
    ST_STR(stack_keys, pattern, NULL, 0, "one symbol per residual layer; '/' starts a multi-token-prediction depth"),
    ST_INT(stack_keys, blocks, NULL, 0, 32768, "blocks", 0, "instead of pattern: mixer + mlp pairs"),
    ST_INT(stack_keys, cadence, "4", 1, 100000, "blocks", 0, "with blocks: every so many blocks the mixer is `full`"),
    ST_STR(stack_keys, linear, "G", 0, "with blocks: symbol of the usual mixer"),
    ST_STR(stack_keys, full, "*", 0, "with blocks: symbol of the mixer at the cadence"),
    ST_STR(stack_keys, mlp, "-", 0, "with blocks: symbol of the per-token layer"),
    ST_INT(stack_keys, mtp_depths, NULL, 0, ST_PATTERN_DEPTHS, "", 0,
           "with blocks: multi-token-prediction depths, copies of the last block; not given: none"),
    ST_INT(stack_keys, hidden, NULL, 1, 1 << 20, "columns", ST_PF_REQUIRED | ST_PF_FIXED,
           "width of the residual stream"),
    ST_INT(stack_keys, vocab, NULL, 1, 1 << 28, "words", ST_PF_REQUIRED | ST_PF_FIXED, "rows of the embedding"),
    ST_CHOICE(stack_keys, norm, "rms1p", "rms1p|rms|layer", ST_PF_FIXED, "norm in front of every layer and at the end"),
    ST_FLOAT(stack_keys, norm_eps, "1e-6", 1e-20, 1, "", ST_PF_FIXED,
             "added under the norm's root; empty slots of a row are zeros, so it cannot be 0"),
    ST_BOOL(stack_keys, tie_embeddings, "no", ST_PF_FIXED, "the output matrix is the embedding"),
    ST_CHOICE(stack_keys, family, "none", "none|qwen3.5", 0,
              "also check the rules of a model family, in plugins too that have this key"),
};
static const st_param batch_params[] = {
    ST_INT(batch_keys, tokens, NULL, 1, 1 << 28, "tokens", ST_PF_REQUIRED, "capacity of one packed row"),
    ST_INT(batch_keys, rows, "1", 1, 1 << 20, "rows", 0, "packed rows per optimizer step"),
    ST_INT(batch_keys, sequences, "64", 1, 1 << 24, "", 0, "most sequences in one row"),
    ST_INT(batch_keys, max_len, NULL, 1, 1 << 28, "tokens", 0, "longest sequence; default: tokens"),
    ST_INT(batch_keys, images, "0", 0, 1 << 20, "images", 0, "most images in one row"),
    ST_INT(batch_keys, patches, "0", 0, 1 << 28, "patches", 0, "most image patches in one row"),
    ST_BOOL(batch_keys, patch_values, "no", ST_PF_EXPERT, "images may come as ready patch values (reference inputs)"),
    ST_PARAM(batch_keys, logits, ST_P_SIZE, NULL, 4096, 1e15, "bytes", NULL, 0,
             "memory for one chunk of logits in the loss; not given: 32 MiB on the CPU, 1 GiB on a GPU"),
};
static const st_param recompute_params[] = {
    ST_STR(recompute_keys, full, "none", 0, "none, all, or symbols: forward is run again in backward, nothing is kept"),
    ST_STR(recompute_keys, drop, NULL, 0,
           "SYMBOL.slot list: single tensors that are computed again, such as G.conv,G.states"),
};
static const st_param decay_params[] = {
    ST_FLOAT(decay_keys, weight_decay, "0", 0, 100, "", 0,
             "decoupled weight decay of tensors with two or more dimensions"),
    ST_STR(decay_keys, decay, NULL, 0, "list of path patterns that decay whatever their shape"),
    ST_STR(decay_keys, no_decay, NULL, 0, "list of path patterns that never decay"),
};
static const st_param init_params[] = {
    ST_CHOICE(init_keys, rule, "hf", "hf|fan_in|megatron_scaled", 0,
              "hf: N(0, std). fan_in: N(0, 1 / fan in), looked-up tables N(0, 1). megatron_scaled: as hf, but "
              "projections into the residual have std / root of layers"),
    ST_FLOAT(init_keys, std, NULL, 0, 100, "", 0, "deviation under rules hf and megatron_scaled; not given: 0.02"),
};
/* Groups of more than one rank are refused by whoever cannot serve them. */
static const st_param parallel_params[] = {
    ST_INT(parallel_keys, tensor, "1", 1, 65536, "ranks", 0, "ranks that share the width of layers"),
    ST_INT(parallel_keys, context, "1", 1, 65536, "ranks", 0, "ranks that share the tokens of a row"),
    ST_INT(parallel_keys, expert, "1", 1, 65536, "ranks", 0, "ranks that share the experts of a layer"),
    ST_INT(parallel_keys, pipeline, "1", 1, 65536, "ranks", 0, "stages that share the layers"),
    ST_INT(parallel_keys, zero, "1", 0, 3, "", 0,
           "what ranks with rows of their own share out: 1 the optimizer's state, 2 layers' gradients too, 3 layers' "
           "weights too; 0 nothing"),
};
static const st_param part_params[] = {
    ST_BOOL(part_keys, freeze, "no", 0, "not trained"),
    ST_FLOAT(part_keys, lr_scale, "1", 0, 1e6, "", 0, "factor on the learning rate"),
    ST_INT(part_keys, last_blocks, NULL, 0, 100000, "blocks", 0,
           "train only the last so many blocks of the part's stack"),
};

static int bind(st_model *m, const char *section, const st_param *params, uint32_t n, void *keys, st_diags *d)
{
    st_table t = {params, n, sizeof *params, NULL};
    return st_spec_bind(m->spec, section, &t, keys, NULL, d);
}
#define BIND(section, table, keys) bind(m, section, table, ST_COUNT(table), keys, d)

int model_bind_run(st_model *m, st_diags *d) { return BIND("run", run_params, &m->run_keys); }

/* All sections are looked at, so that all mistakes are told together. */
int model_bind_keys(st_model *m, st_diags *d)
{
    int rc[6] = {BIND("stack", stack_params, &m->stack_keys),       BIND("batch", batch_params, &m->batch_keys),
                 BIND("recompute", recompute_params, &m->recompute), BIND("init", init_params, &m->init),
                 BIND("parallel", parallel_params, &m->parallel),    ST_OK};

    if (m->train || st_spec_has(m->spec, "optimizer")) rc[5] = BIND("optimizer", decay_params, &m->decay);
    for (int i = 0; i < 6; i++)
        if (rc[i] != ST_OK) return rc[i];
    return ST_OK;
}

int model_bind_part(st_model *m, const char *section, part_keys *k, st_diags *d)
{ return BIND(section, part_params, k); }

/* ---- for `strata inspect --spec` ---- */

static const st_param rule_params[] = {
    {"PATTERN", NULL, "", NULL,
     "deviation of the normal distribution that weights with such a name are drawn from; with a dot: the whole path "
     "(layers.*.conv), without: the weight's own name (conv); * and ? stand for any characters; the last match counts",
     NULL, NULL, 0, 0, ST_P_FLOAT, 0, 0, 0},
};

#define KEYS(table) (table), ST_COUNT(table)
int st_model_key_tables(const st_key_table **out)
{
    static const st_key_table list[] = {
        {"run", "The run as a whole.", KEYS(run_params), ST_KIND_BACKEND, NULL},
        {"stack", "The residual stream and the layers over it. Give pattern, or blocks.", KEYS(stack_params), 0, NULL},
        {"layer.X", "What the symbol X of a pattern stands for; one section per symbol. Symbols of an encoder's "
         "pattern are bound in the same way.", NULL, 0, ST_KIND_LAYER, "the plugin that claims X"},
        {"position", "Position of tokens. Without this section there is none.", NULL, 0, ST_KIND_POSITION, ""},
        {"encoder", "Pictures to rows of the residual stream. Without this section the model reads text only.", NULL, 0,
         ST_KIND_ENCODER, ""},
        {"head.NAME", "A loss. [head.lm] is there also when it is not written.", NULL, 0, ST_KIND_HEAD, "NAME"},
        {"init", "First values of weights.", KEYS(init_params), 0, NULL},
        {"init.rules", "Deviations for single weights, one a line.", KEYS(rule_params), 0, NULL},
        {"batch", "What one packed row can hold, and how many make an optimizer step.", KEYS(batch_params), 0, NULL},
        {"recompute", "Memory against time: what is computed again in backward instead of being kept.",
         KEYS(recompute_params), 0, NULL},
        {"part.NAME", "Weights that are trained together: language, vision, merger; `strata check` lists the parts of "
         "a model.", KEYS(part_params), 0, NULL},
        {"optimizer", "The update rule, and which weights decay.", KEYS(decay_params), ST_KIND_OPTIMIZER, "adamw"},
        {"parallel", "How ranks share the work, and exchange data.", KEYS(parallel_params), ST_KIND_COMM, "self"},
    };
    *out = list;
    return (int)ST_COUNT(list);
}
