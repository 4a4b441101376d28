/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/hf_config.c - see the header. */
#include "config.h"

#include "checkpoint/hf_config.h"
#include <jansson.h>
#include <math.h>
#include <string.h>

typedef struct reader {
    const char *path;
    st_error *error;
    json_t *processor; /* preprocessor_config.json beside it; NULL: there is none */
    bool linear, full; /* the pattern has such a mixer */
} reader;

static int missing(const reader *r, const char *where, const char *key)
{
    return st_fail(r->error, ST_E_CONFIG, "%s: %s has no %s", r->path, where, key);
}

static int whole(const reader *r, json_t *j, const char *where, const char *key, int64_t *out)
{
    json_t *v = json_object_get(j, key);

    if (!v) return missing(r, where, key);
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > INT32_MAX)
        return st_fail(r->error, ST_E_CONFIG, "%s: %s.%s must be a whole number from 1 to %d", r->path, where, key,
                       INT32_MAX);
    *out = json_integer_value(v);
    return ST_OK;
}

/* A key of `a`, or of `b` when `a` lacks it; the older spelling keeps rotary keys one level up. */
static json_t *either(json_t *a, json_t *b, const char *key)
{
    json_t *v = json_object_get(a, key);

    return v ? v : json_object_get(b, key);
}

/* ---- the decoder's layers ---- */

static int layer_symbol(const reader *r, json_t *type, size_t index, char *out)
{
    const char *name = json_string_value(type);

    if (name && strcmp(name, "linear_attention") == 0) *out = 'G';
    else if (name && strcmp(name, "full_attention") == 0) *out = '*';
    else
        return st_fail(r->error, ST_E_CONFIG,
                       "%s: layer_types[%zu] = \"%s\": neither linear_attention nor full_attention", r->path, index,
                       name ? name : "not a string");
    return ST_OK;
}

static bool has_experts(json_t *text) { return json_integer_value(json_object_get(text, "num_experts")) > 0; }
static const char *channel_symbol(json_t *text) { return has_experts(text) ? "E" : "-"; }

/* The family's multi-token-prediction layers attend fully, whatever the last block does. */
static int add_depths(reader *r, json_t *text, st_buf *pattern)
{
    json_t *v = json_object_get(text, "mtp_num_hidden_layers");

    if (!v) return ST_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 64)
        return st_fail(r->error, ST_E_CONFIG,
                       "%s: text_config.mtp_num_hidden_layers must be a whole number from 0 to 64", r->path);
    for (json_int_t i = 0; i < json_integer_value(v); i++) st_buf_printf(pattern, "/*%s", channel_symbol(text));
    r->full = r->full || json_integer_value(v) > 0;
    return ST_OK;
}

static int write_pattern(reader *r, json_t *text, st_buf *out)
{
    json_t *types = json_object_get(text, "layer_types");
    int64_t layers, every = 4;
    st_buf pattern = {0};
    int rc = ST_OK;

    ST_TRY(whole(r, text, "text_config", "num_hidden_layers", &layers));
    if (layers > 4096)
        return st_fail(r->error, ST_E_CONFIG, "%s: num_hidden_layers = %lld: at most 4096", r->path, (long long)layers);
    if (types && json_array_size(types) != (size_t)layers)
        return st_fail(r->error, ST_E_CONFIG, "%s: layer_types has %zu entries, num_hidden_layers is %lld", r->path,
                       json_array_size(types), (long long)layers);
    if (!types && json_object_get(text, "full_attention_interval"))
        ST_TRY(whole(r, text, "text_config", "full_attention_interval", &every));
    for (int64_t i = 0; i < layers && rc == ST_OK; i++) {
        char mixer = (i + 1) % every == 0 ? '*' : 'G';
        if (types) rc = layer_symbol(r, json_array_get(types, (size_t)i), (size_t)i, &mixer);
        st_buf_add(&pattern, &mixer, 1);
        st_buf_puts(&pattern, channel_symbol(text));
        if (mixer == 'G') r->linear = true;
        else r->full = true;
    }
    if (rc == ST_OK) rc = add_depths(r, text, &pattern);
    if (rc == ST_OK) st_buf_printf(out, "pattern = %s\n", pattern.data);
    st_buf_free(&pattern);
    return rc;
}

static bool is_family(json_t *top, json_t *text)
{
    static const char *const types[] = {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"};
    const char *type = json_string_value(either(text, top, "model_type"));

    for (size_t i = 0; type && i < ST_COUNT(types); i++)
        if (!strcmp(type, types[i])) return true;
    return false;
}

static int write_stack(reader *r, json_t *top, json_t *text, st_buf *out)
{
    int64_t hidden, vocab;
    char eps_text[32];
    json_t *eps = json_object_get(text, "rms_norm_eps"), *tie = either(top, text, "tie_word_embeddings");

    ST_TRY(whole(r, text, "text_config", "hidden_size", &hidden));
    ST_TRY(whole(r, text, "text_config", "vocab_size", &vocab));
    st_format_float(json_is_number(eps) ? json_number_value(eps) : 1e-6, eps_text);
    st_buf_puts(out, is_family(top, text) ? "[stack]\nfamily = qwen3.5\n" : "[stack]\n");
    ST_TRY(write_pattern(r, text, out));
    st_buf_printf(out, "hidden = %lld\nvocab = %lld\nnorm = rms1p\nnorm_eps = %s\ntie_embeddings = %s\n",
                  (long long)hidden, (long long)vocab, eps_text, json_is_true(tie) ? "yes" : "no");
    return ST_OK;
}

/* Things that the layers here do in one way only. */
static int check_layers(const reader *r, json_t *text)
{
    const char *act = json_string_value(json_object_get(text, "hidden_act"));
    json_t *gate = json_object_get(text, "attn_output_gate");

    if (act && strcmp(act, "silu") != 0)
        return st_fail(r->error, ST_E_UNSUPPORTED, "%s: hidden_act \"%s\": only silu is known", r->path, act);
    if (json_is_true(json_object_get(text, "attention_bias")))
        return st_fail(r->error, ST_E_UNSUPPORTED, "%s: attention_bias = true: not in this family", r->path);
    if (gate && !json_is_true(gate))
        return st_fail(r->error, ST_E_UNSUPPORTED, "%s: attn_output_gate = false: not in this family", r->path);
    return ST_OK;
}

/* In this family every layer has experts and their shares always add to 1. */
static int check_experts(const reader *r, json_t *text)
{
    json_t *dense = json_object_get(text, "mlp_only_layers"), *every = json_object_get(text, "decoder_sparse_step");

    if (json_array_size(dense) > 0 || (every && json_integer_value(every) != 1))
        return st_fail(r->error, ST_E_UNSUPPORTED, "%s: %s: layers without experts among those with them", r->path,
                       json_array_size(dense) > 0 ? "mlp_only_layers is not empty" : "decoder_sparse_step is not 1");
    if (json_is_false(json_object_get(text, "norm_topk_prob")))
        return st_fail(r->error, ST_E_UNSUPPORTED, "%s: norm_topk_prob = false: not in this family", r->path);
    return ST_OK;
}

/* How the balance loss is formed is left to the trainer; the file only says its factor. */
static int write_experts(const reader *r, json_t *text, st_buf *out)
{
    json_t *coef = json_object_get(text, "router_aux_loss_coef");
    int64_t experts, picks, width, shared;
    char coef_text[32];

    ST_TRY(check_experts(r, text));
    ST_TRY(whole(r, text, "text_config", "num_experts", &experts));
    ST_TRY(whole(r, text, "text_config", "num_experts_per_tok", &picks));
    ST_TRY(whole(r, text, "text_config", "moe_intermediate_size", &width));
    ST_TRY(whole(r, text, "text_config", "shared_expert_intermediate_size", &shared));
    if (picks > experts)
        return st_fail(r->error, ST_E_CONFIG, "%s: num_experts_per_tok = %lld, num_experts = %lld", r->path,
                       (long long)picks, (long long)experts);
    if (coef && (!json_is_number(coef) || json_number_value(coef) < 0))
        return st_fail(r->error, ST_E_CONFIG, "%s: router_aux_loss_coef must be a number from 0", r->path);
    st_format_float(coef ? json_number_value(coef) : 0.001, coef_text);
    st_buf_printf(out,
                  "\n[layer.E]\nplugin = moe\nexperts = %lld\ntop_k = %lld\nwidth = %lld\nshared_width = %lld\n"
                  "aux_coef = %s\n",
                  (long long)experts, (long long)picks, (long long)width, (long long)shared, coef_text);
    return ST_OK;
}

static int write_linear(const reader *r, json_t *text, st_buf *out)
{
    int64_t nk, nv, dk, dv, taps;

    ST_TRY(whole(r, text, "text_config", "linear_num_key_heads", &nk));
    ST_TRY(whole(r, text, "text_config", "linear_num_value_heads", &nv));
    ST_TRY(whole(r, text, "text_config", "linear_key_head_dim", &dk));
    ST_TRY(whole(r, text, "text_config", "linear_value_head_dim", &dv));
    ST_TRY(whole(r, text, "text_config", "linear_conv_kernel_dim", &taps));
    st_buf_printf(out,
                  "\n[layer.G]\nplugin = gated_delta_net\nkey_heads = %lld\nvalue_heads = %lld\nkey_dim = %lld\n"
                  "value_dim = %lld\nconv_kernel = %lld\n",
                  (long long)nk, (long long)nv, (long long)dk, (long long)dv, (long long)taps);
    return ST_OK;
}

static int write_attention(const reader *r, json_t *text, st_buf *out)
{
    int64_t heads, kv, d;

    ST_TRY(whole(r, text, "text_config", "num_attention_heads", &heads));
    ST_TRY(whole(r, text, "text_config", "num_key_value_heads", &kv));
    ST_TRY(whole(r, text, "text_config", "head_dim", &d));
    st_buf_printf(out, "\n[layer.*]\nplugin = attention\nheads = %lld\nkv_heads = %lld\nhead_dim = %lld\n",
                  (long long)heads, (long long)kv, (long long)d);
    return ST_OK;
}

/* A section for each symbol of the pattern: one of a symbol that is not there would be refused. */
static int write_layers(const reader *r, json_t *text, st_buf *out)
{
    int64_t width;

    ST_TRY(check_layers(r, text));
    if (r->linear) ST_TRY(write_linear(r, text, out));
    if (r->full) ST_TRY(write_attention(r, text, out));
    if (has_experts(text)) return write_experts(r, text, out);
    ST_TRY(whole(r, text, "text_config", "intermediate_size", &width));
    st_buf_printf(out, "\n[layer.-]\nplugin = swiglu\nwidth = %lld\n", (long long)width);
    return ST_OK;
}

/* ---- positions ---- */

static int write_position(const reader *r, json_t *text, st_buf *out)
{
    json_t *rope = json_object_get(text, "rope_parameters"), *section, *theta, *part, *type;
    int64_t d, sum = 0, pairs;
    char base_text[32], share_text[32];
    double share;

    if (!json_is_object(rope)) rope = json_object_get(text, "rope_scaling");
    if (!json_is_object(rope)) return missing(r, "text_config", "rope_parameters or rope_scaling");
    section = json_object_get(rope, "mrope_section");
    theta = either(rope, text, "rope_theta");
    part = either(rope, text, "partial_rotary_factor");
    type = json_object_get(rope, "rope_type");
    if (!json_is_number(theta)) return missing(r, "text_config", "rope_theta (rotary base)");
    if (!json_is_number(part)) return missing(r, "text_config", "partial_rotary_factor");
    if (!json_is_array(section) || json_array_size(section) != 3)
        return missing(r, "rope_parameters", "mrope_section of three numbers");
    if (type && strcmp(json_string_value(type) ? json_string_value(type) : "", "default") != 0)
        return st_fail(r->error, ST_E_UNSUPPORTED, "%s: rope_type \"%s\": only \"default\" is known", r->path,
                       json_string_value(type) ? json_string_value(type) : "?");
    ST_TRY(whole(r, text, "text_config", "head_dim", &d));
    share = json_number_value(part);
    pairs = (int64_t)floor((double)d * share / 2 + 0.5);
    for (size_t i = 0; i < 3; i++) sum += json_integer_value(json_array_get(section, i));
    if (sum != pairs)
        return st_fail(r->error, ST_E_CONFIG,
                       "%s: mrope_section adds to %lld, but %lld pairs rotate (head_dim %lld x %g / 2)", r->path,
                       (long long)sum, (long long)pairs, (long long)d, share);
    st_format_float(json_number_value(theta), base_text);
    st_format_float(share, share_text);
    st_buf_printf(out,
                  "\n[position]\nplugin = mrope\nsection = %lld,%lld,%lld\nbase = %s\nrotary_percent = %s\n"
                  "interleaved = %s\n",
                  (long long)json_integer_value(json_array_get(section, 0)),
                  (long long)json_integer_value(json_array_get(section, 1)),
                  (long long)json_integer_value(json_array_get(section, 2)), base_text, share_text,
                  json_is_false(json_object_get(rope, "mrope_interleaved")) ? "no" : "yes");
    return ST_OK;
}

/* ---- vision ---- */

static int check_vision(const reader *r, json_t *text, json_t *vision)
{
    const char *act = json_string_value(json_object_get(vision, "hidden_act"));
    int64_t hidden, given;

    if (act && strcmp(act, "gelu_pytorch_tanh") != 0)
        return st_fail(r->error, ST_E_UNSUPPORTED, "%s: vision hidden_act \"%s\": only gelu_pytorch_tanh is known",
                       r->path, act);
    if (json_array_size(json_object_get(vision, "deepstack_visual_indexes")) > 0)
        return st_fail(r->error, ST_E_UNSUPPORTED, "%s: deepstack_visual_indexes is not empty: that is another family",
                       r->path);
    if (!json_object_get(vision, "out_hidden_size")) return ST_OK;
    ST_TRY(whole(r, text, "text_config", "hidden_size", &hidden));
    ST_TRY(whole(r, vision, "vision_config", "out_hidden_size", &given));
    if (given == hidden) return ST_OK;
    return st_fail(r->error, ST_E_CONFIG, "%s: vision out_hidden_size = %lld, but hidden_size = %lld", r->path,
                   (long long)given, (long long)hidden);
}

static int position_side(const reader *r, json_t *vision, int64_t *side)
{
    int64_t n;

    ST_TRY(whole(r, vision, "vision_config", "num_position_embeddings", &n));
    *side = (int64_t)floor(sqrt((double)n) + 0.5);
    if (*side * *side == n) return ST_OK;
    return st_fail(r->error, ST_E_CONFIG, "%s: num_position_embeddings = %lld is no square", r->path, (long long)n);
}

/* ---- pictures, as the processor's file has them ---- */

/* Both files tell how pictures are cut: a folder in which they disagree is not one model's. */
static int check_processor(const reader *r, const char *key, const char *of_vision, int64_t given)
{
    json_t *v = json_object_get(r->processor, key);

    if (!v || (json_is_integer(v) && json_integer_value(v) == given)) return ST_OK;
    return st_fail(r->error, ST_E_CONFIG, "%s: vision_config.%s is %lld, but %s in preprocessor_config.json is %lld",
                   r->path, of_vision, (long long)given, key, (long long)json_integer_value(v));
}

/* Pixels stand under a key of their own, or in `size` under the name of an edge, though they are no edge. */
static int write_pixels(const reader *r, const char *key, const char *edge, int64_t *pixels, st_buf *out)
{
    json_t *v = json_object_get(r->processor, key);

    *pixels = 0;
    if (!v) v = json_object_get(json_object_get(r->processor, "size"), edge);
    if (!v || json_is_null(v)) return ST_OK;
    *pixels = json_integer_value(v);
    if (*pixels < 1 || *pixels > INT32_MAX)
        return st_fail(r->error, ST_E_CONFIG, "%s: preprocessor_config.json: %s must be a whole number from 1 to %d",
                       r->path, key, INT32_MAX);
    st_buf_printf(out, "%s = %lld\n", key, (long long)*pixels);
    return ST_OK;
}

static int write_channels(const reader *r, const char *key, st_buf *out)
{
    json_t *list = json_object_get(r->processor, key);
    char number[32];

    if (!list) return ST_OK;
    for (size_t i = 0; i < 3; i++) {
        json_t *v = json_array_get(list, i);
        if (json_array_size(list) != 3 || !json_is_number(v))
            return st_fail(r->error, ST_E_CONFIG, "%s: preprocessor_config.json: %s must be three numbers", r->path,
                           key);
        st_format_float(json_number_value(v), number);
        st_buf_printf(out, i ? ",%s" : "%s = %s", i ? number : key, number);
    }
    st_buf_puts(out, "\n");
    return ST_OK;
}

static int write_processor(const reader *r, int64_t patch, int64_t frames, int64_t merge, st_buf *out)
{
    int64_t least, most;

    if (!r->processor) return ST_OK;
    ST_TRY(check_processor(r, "patch_size", "patch_size", patch));
    ST_TRY(check_processor(r, "temporal_patch_size", "temporal_patch_size", frames));
    ST_TRY(check_processor(r, "merge_size", "spatial_merge_size", merge));
    ST_TRY(write_pixels(r, "min_pixels", "shortest_edge", &least, out));
    ST_TRY(write_pixels(r, "max_pixels", "longest_edge", &most, out));
    if (least && most && least > most)
        return st_fail(r->error, ST_E_CONFIG, "%s: preprocessor_config.json: min_pixels = %lld, max_pixels = %lld",
                       r->path, (long long)least, (long long)most);
    ST_TRY(write_channels(r, "image_mean", out));
    return write_channels(r, "image_std", out);
}

static int write_encoder(const reader *r, json_t *text, json_t *vision, st_buf *out)
{
    int64_t depth, hidden, heads, width, patch, frames, merge, side;

    ST_TRY(check_vision(r, text, vision));
    ST_TRY(whole(r, vision, "vision_config", "depth", &depth));
    ST_TRY(whole(r, vision, "vision_config", "hidden_size", &hidden));
    ST_TRY(whole(r, vision, "vision_config", "num_heads", &heads));
    ST_TRY(whole(r, vision, "vision_config", "intermediate_size", &width));
    ST_TRY(whole(r, vision, "vision_config", "patch_size", &patch));
    ST_TRY(whole(r, vision, "vision_config", "temporal_patch_size", &frames));
    ST_TRY(whole(r, vision, "vision_config", "spatial_merge_size", &merge));
    ST_TRY(position_side(r, vision, &side));
    if (hidden % heads)
        return st_fail(r->error, ST_E_CONFIG, "%s: vision hidden_size %lld is no multiple of num_heads %lld", r->path,
                       (long long)hidden, (long long)heads);
    st_buf_printf(out,
                  "\n[encoder]\nplugin = qwen35_vision\npattern = (VF)x%lld\nhidden = %lld\n"
                  "patch = %lld\ntemporal_patch = %lld\nmerge = %lld\nposition_side = %lld\n",
                  (long long)depth, (long long)hidden, (long long)patch, (long long)frames, (long long)merge,
                  (long long)side);
    ST_TRY(write_processor(r, patch, frames, merge, out));
    st_buf_printf(out,
                  "\n[layer.V]\nplugin = attention\nheads = %lld\nkv_heads = %lld\nhead_dim = %lld\ngate = no\n"
                  "qk_norm = no\nbias = yes\ncausal = no\nnames = vision\n",
                  (long long)heads, (long long)heads, (long long)(hidden / heads));
    st_buf_printf(out, "\n[layer.F]\nplugin = gelu_mlp\nwidth = %lld\nact = gelu_tanh\nbias = yes\n", (long long)width);
    return ST_OK;
}

static int write_all(reader *r, json_t *top, st_buf *out)
{
    json_t *text = json_object_get(top, "text_config"), *vision = json_object_get(top, "vision_config");

    if (!text) text = top; /* text-only models keep everything at the top */
    if (!json_is_object(text)) return st_fail(r->error, ST_E_CONFIG, "%s: text_config must be an object", r->path);
    ST_TRY(write_stack(r, top, text, out));
    ST_TRY(write_layers(r, text, out));
    ST_TRY(write_position(r, text, out));
    return json_is_object(vision) ? write_encoder(r, text, vision, out) : ST_OK;
}

static int read_object(const char *path, st_arena *arena, json_t **out, st_error *e)
{
    json_error_t why;
    char *text;
    size_t n;

    *out = NULL;
    if (!path) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    ST_TRY(st_file_read(path, arena, &text, &n, e));
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!*out) return st_fail_at(e, ST_E_CONFIG, path, why.line, why.column, "%s", why.text);
    return json_is_object(*out) ? ST_OK : st_fail(e, ST_E_CONFIG, "%s: no JSON object", path);
}

int st_hf_config_spec(const char *path, st_buf *out, st_error *e)
{
    st_arena *arena = st_arena_create(0);
    reader r = {.path = path, .error = e};
    json_t *config = NULL;
    int rc = arena ? read_object(path, arena, &config, e) : st_fail(e, ST_E_NOMEM, "no memory to read %s", path);

    if (rc == ST_OK) {
        char *beside = st_path_join(arena, st_path_dir(arena, path), "preprocessor_config.json");
        if (!beside || st_path_exists(beside)) rc = read_object(beside, arena, &r.processor, e);
    }
    if (rc == ST_OK) rc = write_all(&r, config, out);
    if (rc == ST_OK && out->failed) rc = st_fail(e, ST_E_NOMEM, "no memory for the spec of %s", path);
    json_decref(r.processor);
    json_decref(config);
    st_arena_destroy(arena);
    return rc;
}
