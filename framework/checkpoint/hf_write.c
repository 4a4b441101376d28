/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/hf_write.c - config.json and preprocessor_config.json of a model: what hf_config.c reads, written. */
#include "config.h"

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "data/tokenizer.h"
#include "spec/spec.h"
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    const st_spec *spec;
    const st_model *m;
    const st_model_layer *layers;
    int n;
    st_arena *arena;
    const st_model_layer *linear, *full, *channel, *position, *encoder, *v, *f,
        *mtp; /* the first of each; NULL: there is none */
    const char *why;
} writer;

/* ---- parameters of bound plugins ---- */

/* As the plugin's instance has it; "": no such parameter, or not set. */
static const char *text_of(const writer *w, const st_model_layer *l, const char *key)
{
    const char *found = NULL;

    for (uint32_t i = 0; l && i < l->plugin->n_params && !found; i++) {
        const st_param *p = (const st_param *)(const void *)((const char *)l->plugin->params + (size_t)i * l->plugin->param_size);
        st_buf b = {0};
        if (strcmp(p->key, key)) continue;
        if (st_param_text(p, l->self, &b) == ST_OK && b.data) found = st_arena_strdup(w->arena, b.data);
        st_buf_free(&b);
    }
    return found ? found : "";
}
/* A value of [stack], also one that was left at its default. */
static const char *stack_text(const writer *w, const char *key)
{
    const st_value *v = st_spec_get((st_spec *)w->spec, "stack", key), *taken;
    int n = st_spec_defaults(w->spec, &taken);

    for (int i = 0; i < n && !v; i++)
        if (!strcmp(taken[i].section, "stack") && !strcmp(taken[i].key, key)) v = &taken[i];
    return v ? v->text : "";
}
static json_int_t whole_of(const writer *w, const st_model_layer *l, const char *key)
{
    int64_t v = 0;
    return st_parse_int(text_of(w, l, key), &v, NULL) ? (json_int_t)v : 0;
}
static json_t *number_of(const char *text)
{
    double v = 0;
    return json_real(st_parse_float(text, &v, NULL) ? v : 0);
}
static json_t *list_of(const writer *w, const char *text, bool whole)
{
    char *copy = st_arena_strdup(w->arena, text), *rest = NULL;
    json_t *list = json_array();

    for (char *item = copy ? strtok_r(copy, ",", &rest) : NULL; item; item = strtok_r(NULL, ",", &rest)) {
        int64_t v;
        if (whole && st_parse_int(item, &v, NULL)) json_array_append_new(list, json_integer(v));
        else json_array_append_new(list, number_of(item));
    }
    return list;
}
void st_hf_patches(const st_model *m, int64_t *side, int64_t *frames)
{
    writer w = {.m = m, .arena = st_arena_create(0)};

    *side = *frames = 0;
    w.n = w.arena ? st_model_layers(m, &w.layers) : 0;
    for (int i = 0; i < w.n; i++) {
        if (w.layers[i].kind != ST_KIND_ENCODER) continue;
        *side = whole_of(&w, &w.layers[i], "patch");
        *frames = whole_of(&w, &w.layers[i], "temporal_patch");
    }
    st_arena_destroy(w.arena);
}
static bool is(const st_model_layer *l, const char *name) { return l && !strcmp(l->plugin->name, name); }

/* ---- is it one of the family ---- */

static bool same_plugin(const st_model_layer **first, const st_model_layer *l, const char *name)
{
    if (!is(l, name)) return false;
    if (!*first) *first = l;
    return !strcmp((*first)->section, l->section); /* two kinds of one plugin have no place in a config.json */
}

static bool fits_trunk(writer *w, const st_model_layer *l, int place)
{
    if (place % 2 == 0) return same_plugin(&w->linear, l, "gated_delta_net") || same_plugin(&w->full, l, "attention");
    if (w->channel) return same_plugin(&w->channel, l, w->channel->plugin->name);
    return same_plugin(&w->channel, l, "swiglu") || same_plugin(&w->channel, l, "moe");
}

static bool fits(writer *w, const st_model_layer *l, int *trunk, int *blocks)
{
    if (l->kind == ST_KIND_POSITION) return same_plugin(&w->position, l, "mrope");
    if (l->kind == ST_KIND_ENCODER) return same_plugin(&w->encoder, l, "qwen35_vision");
    if (l->kind == ST_KIND_HEAD) return is(l, "lm") || same_plugin(&w->mtp, l, "mtp");
    if (l->kind != ST_KIND_LAYER) return true;
    if (l->depth == 0) return fits_trunk(w, l, (*trunk)++);
    if (l->depth > 0)
        return same_plugin(&w->full, l, "attention") ||
               (w->channel && same_plugin(&w->channel, l, w->channel->plugin->name));
    return (*blocks)++ % 2 == 0 ? same_plugin(&w->v, l, "attention") : same_plugin(&w->f, l, "gelu_mlp");
}

/* ---- what a config.json has no key for, or its readers know in one way only ---- */

typedef struct fixed {
    const char *key, *value;
} fixed;

static bool has_all(writer *w, const st_model_layer *l, const fixed *f, size_t n)
{
    for (size_t i = 0; l && i < n; i++) {
        const char *text = text_of(w, l, f[i].key);
        if (!strcmp(text, f[i].value)) continue;
        w->why = st_arena_printf(w->arena, "%s has %s = %s", l->path, f[i].key, text);
        return false;
    }
    return true;
}

/* The blocks' heads are their columns, cut into equal parts. */
static bool has_blocks(writer *w, int blocks)
{
    int64_t heads = whole_of(w, w->v, "heads"), hidden = whole_of(w, w->encoder, "hidden");

    if (!w->encoder) return true;
    if (!w->v || !w->f || blocks % 2) w->why = "its encoder's layers are not pairs of attention and an MLP";
    else if (whole_of(w, w->v, "kv_heads") != heads || heads * whole_of(w, w->v, "head_dim") != hidden)
        w->why = st_arena_printf(w->arena, "heads x head_dim of %s, or its kv_heads, are not those of %lld columns",
                                 w->v->path, (long long)hidden);
    else return true;
    return false;
}

static bool has_shared_expert(writer *w)
{
    if (!is(w->channel, "moe") || whole_of(w, w->channel, "shared_width") > 0) return true;
    w->why = st_arena_printf(w->arena, "%s has shared_width = 0", w->channel->path);
    return false;
}

static bool is_as_read(writer *w, int blocks)
{
    static const fixed full[] = {{"gate", "yes"}, {"qk_norm", "yes"}, {"bias", "no"}, {"causal", "yes"},
                                 {"rotary", "yes"}, {"names", "decoder"}},
                       v[] = {{"gate", "no"}, {"qk_norm", "no"}, {"bias", "yes"}, {"causal", "no"}, {"rotary", "yes"},
                              {"names", "vision"}},
                       f[] = {{"act", "gelu_tanh"}, {"bias", "yes"}}, encoder[] = {{"base", "10000"}},
                       mtp[] = {{"repeated", "no"}};
    const char *norm = stack_text(w, "norm");

    if (strcmp(norm, "rms1p") != 0) {
        w->why = st_arena_printf(w->arena, "[stack] has norm = %s", norm);
        return false;
    }
    return has_all(w, w->full, full, ST_COUNT(full)) && has_all(w, w->v, v, ST_COUNT(v)) &&
           has_all(w, w->f, f, ST_COUNT(f)) && has_all(w, w->encoder, encoder, ST_COUNT(encoder)) &&
           has_all(w, w->mtp, mtp, ST_COUNT(mtp)) && has_blocks(w, blocks) && has_shared_expert(w);
}

static bool is_family(writer *w)
{
    int trunk = 0, blocks = 0;

    for (int i = 0; i < w->n; i++) {
        const st_model_layer *l = &w->layers[i];
        if (!l->plugin || fits(w, l, &trunk, &blocks)) continue;
        w->why = st_arena_printf(w->arena, "%s is %s", l->path, l->plugin->name);
        return false;
    }
    if (trunk % 2 == 0 && w->channel && w->full && w->position) return is_as_read(w, blocks);
    w->why = "its layers are not pairs of a mixer and an MLP, some of attention with mrope";
    return false;
}

/* ---- the parts of config.json ---- */

static json_t *layer_types(const writer *w)
{
    json_t *list = json_array();

    for (int i = 0; i < w->n; i++) {
        const st_model_layer *l = &w->layers[i];
        if (l->kind != ST_KIND_LAYER || l->depth != 0 || is(l, w->channel->plugin->name)) continue;
        json_array_append_new(list, json_string(is(l, "attention") ? "full_attention" : "linear_attention"));
    }
    return list;
}

static int depths_of(const writer *w)
{
    int depths = 0;

    for (int i = 0; i < w->n; i++)
        if (w->layers[i].depth > depths) depths = w->layers[i].depth;
    return depths;
}

static void set(json_t *j, const char *key, json_t *v) { json_object_set_new(j, key, v); }

static json_t *rope(const writer *w)
{
    json_t *j = json_object();

    set(j, "mrope_interleaved", json_boolean(!strcmp(text_of(w, w->position, "interleaved"), "yes")));
    set(j, "mrope_section", list_of(w, text_of(w, w->position, "section"), true));
    set(j, "partial_rotary_factor", number_of(text_of(w, w->position, "rotary_percent")));
    set(j, "rope_theta", number_of(text_of(w, w->position, "base")));
    set(j, "rope_type", json_string("default"));
    return j;
}

static void set_channel(const writer *w, json_t *text)
{
    if (is(w->channel, "swiglu")) {
        set(text, "intermediate_size", json_integer(whole_of(w, w->channel, "width")));
        return;
    }
    set(text, "num_experts", json_integer(whole_of(w, w->channel, "experts")));
    set(text, "num_experts_per_tok", json_integer(whole_of(w, w->channel, "top_k")));
    set(text, "moe_intermediate_size", json_integer(whole_of(w, w->channel, "width")));
    set(text, "shared_expert_intermediate_size", json_integer(whole_of(w, w->channel, "shared_width")));
    set(text, "router_aux_loss_coef", number_of(text_of(w, w->channel, "aux_coef")));
}

static void set_mixers(const writer *w, json_t *text)
{
    if (w->full) {
        set(text, "num_attention_heads", json_integer(whole_of(w, w->full, "heads")));
        set(text, "num_key_value_heads", json_integer(whole_of(w, w->full, "kv_heads")));
        set(text, "head_dim", json_integer(whole_of(w, w->full, "head_dim")));
        set(text, "attention_bias", json_false());
        set(text, "attn_output_gate", json_true());
    }
    if (w->linear) {
        set(text, "linear_num_key_heads", json_integer(whole_of(w, w->linear, "key_heads")));
        set(text, "linear_num_value_heads", json_integer(whole_of(w, w->linear, "value_heads")));
        set(text, "linear_key_head_dim", json_integer(whole_of(w, w->linear, "key_dim")));
        set(text, "linear_value_head_dim", json_integer(whole_of(w, w->linear, "value_dim")));
        set(text, "linear_conv_kernel_dim", json_integer(whole_of(w, w->linear, "conv_kernel")));
    }
}

static json_t *text_config(const writer *w, bool tied)
{
    json_t *text = json_object(), *types = layer_types(w);

    set(text, "model_type", json_string(is(w->channel, "moe") ? "qwen3_5_moe_text" : "qwen3_5_text"));
    set(text, "vocab_size", json_integer(st_model_vocab(w->m)));
    set(text, "hidden_size", json_integer(st_model_hidden(w->m)));
    set(text, "num_hidden_layers", json_integer((json_int_t)json_array_size(types)));
    set(text, "layer_types", types);
    set(text, "hidden_act", json_string("silu"));
    set(text, "rms_norm_eps", number_of(stack_text(w, "norm_eps")));
    set(text, "tie_word_embeddings", json_boolean(tied));
    set(text, "mtp_num_hidden_layers", json_integer(depths_of(w)));
    set(text, "rope_parameters", rope(w));
    set_mixers(w, text);
    set_channel(w, text);
    return text;
}

static json_t *vision_config(const writer *w)
{
    json_t *vision = json_object();
    json_int_t blocks = 0, side = whole_of(w, w->encoder, "position_side");

    for (int i = 0; i < w->n; i++) blocks += w->layers[i].kind == ST_KIND_LAYER && w->layers[i].depth < 0;
    set(vision, "model_type", json_string(is(w->channel, "moe") ? "qwen3_5_moe_vision" : "qwen3_5_vision"));
    set(vision, "depth", json_integer(blocks / 2));
    set(vision, "hidden_act", json_string("gelu_pytorch_tanh"));
    set(vision, "hidden_size", json_integer(whole_of(w, w->encoder, "hidden")));
    set(vision, "num_heads", json_integer(whole_of(w, w->v, "heads")));
    set(vision, "intermediate_size", json_integer(whole_of(w, w->f, "width")));
    set(vision, "in_channels", json_integer(3));
    set(vision, "patch_size", json_integer(whole_of(w, w->encoder, "patch")));
    set(vision, "temporal_patch_size", json_integer(whole_of(w, w->encoder, "temporal_patch")));
    set(vision, "spatial_merge_size", json_integer(whole_of(w, w->encoder, "merge")));
    set(vision, "num_position_embeddings", json_integer(side * side));
    set(vision, "out_hidden_size", json_integer(st_model_hidden(w->m)));
    return vision;
}

/* Ids by which transformers finds pictures among tokens. */
static int set_ids(const writer *w, const char *tokenizer, json_t *top, st_error *e)
{
    static const char *const key[][2] = {{"image_token_id", "image_token"},
                                         {"vision_start_token_id", "vision_start"},
                                         {"vision_end_token_id", "vision_end"}};
    st_tokenizer *t;

    if (!tokenizer || !w->encoder) return ST_OK;
    ST_TRY(st_tokenizer_open(tokenizer, &t, e));
    for (size_t i = 0; i < ST_COUNT(key); i++) {
        int32_t id = st_tokenizer_id(t, text_of(w, w->encoder, key[i][1]));
        if (id >= 0) set(top, key[i][0], json_integer(id));
    }
    int32_t video = st_tokenizer_id(t, "<|video_pad|>");
    if (video >= 0) set(top, "video_token_id", json_integer(video));
    st_tokenizer_close(t);
    return ST_OK;
}

static json_t *preprocessor(const writer *w)
{
    json_t *j = json_object(), *size = json_object();

    set(size, "shortest_edge", json_integer(whole_of(w, w->encoder, "min_pixels")));
    set(size, "longest_edge", json_integer(whole_of(w, w->encoder, "max_pixels")));
    set(j, "size", size);
    set(j, "patch_size", json_integer(whole_of(w, w->encoder, "patch")));
    set(j, "temporal_patch_size", json_integer(whole_of(w, w->encoder, "temporal_patch")));
    set(j, "merge_size", json_integer(whole_of(w, w->encoder, "merge")));
    set(j, "image_mean", list_of(w, text_of(w, w->encoder, "image_mean"), false));
    set(j, "image_std", list_of(w, text_of(w, w->encoder, "image_std"), false));
    set(j, "image_processor_type", json_string("Qwen2VLImageProcessorFast"));
    return j;
}

static int put_file(const writer *w, const char *dir, const char *name, json_t *j, st_error *e)
{
    char *text = json_dumps(j, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(15)),
         *path = st_path_join(w->arena, dir, name);
    int rc = text && path ? st_file_write_atomic(path, text, strlen(text), e) : st_fail(e, ST_E_NOMEM, "no memory for %s", name);

    free(text);
    json_decref(j);
    return rc;
}

int st_hf_config_write(const char *dir, const st_spec *spec, const st_model *m, const char *tokenizer, st_arena *arena,
                       const char **why, st_error *e)
{
    writer w = {.spec = spec, .m = m, .arena = arena};
    bool tied = st_model_find_weight(m, "lm_head") < 0, moe;
    json_t *top;
    int rc;

    w.n = st_model_layers(m, &w.layers);
    *why = is_family(&w) ? NULL : w.why ? w.why : "no memory";
    if (*why) return ST_OK;
    moe = is(w.channel, "moe");
    top = json_object();
    set(top, "model_type", json_string(moe ? "qwen3_5_moe" : "qwen3_5"));
    set(top, "architectures",
        json_pack("[s]", moe ? "Qwen3_5MoeForConditionalGeneration" : "Qwen3_5ForConditionalGeneration"));
    set(top, "tie_word_embeddings", json_boolean(tied));
    set(top, "text_config", text_config(&w, tied));
    if (w.encoder) set(top, "vision_config", vision_config(&w));
    rc = set_ids(&w, tokenizer, top, e);
    if (rc != ST_OK) {
        json_decref(top);
        return rc;
    }
    ST_TRY(put_file(&w, dir, "config.json", top, e));
    return w.encoder ? put_file(&w, dir, "preprocessor_config.json", preprocessor(&w), e) : ST_OK;
}
