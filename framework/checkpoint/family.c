/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/family.c - see the header. */
#include "config.h"

#include "checkpoint/family.h"

#define LM "model.language_model."
static const st_map host[] = {
    {"hf", "embed", LM "embed_tokens.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "final_norm", LM "norm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "final_norm_bias", LM "norm.bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "lm_head", "lm_head.weight", 0, 0, ST_MAP_PLAIN, 0},
};
static const st_map trunk[] = {
    {"hf", "", LM "layers.{block}.", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "mixer_norm", "input_layernorm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "mixer_norm_bias", "input_layernorm.bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "channel_norm", "post_attention_layernorm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "channel_norm_bias", "post_attention_layernorm.bias", 0, 0, ST_MAP_PLAIN, 0},
};

const st_host_maps *st_family_maps(void)
{
    static const st_host_maps maps = {host, trunk, ST_COUNT(host), ST_COUNT(trunk)};
    return &maps;
}

int st_family_names(const st_model *m, const char *layout, const st_file_name **out)
{ return st_model_file_names(m, layout, st_family_maps(), NULL, NULL, out); }
