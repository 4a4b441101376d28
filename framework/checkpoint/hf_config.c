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
    bool experts;      /* every layer of channels has them */
} reader;

static int missing(const reader *r, const char *where, const char *key)
{
    return st_fail(r->error, ST_E_CONFIG, "%s: %s has no %s", r->path, where, key);
}

/* A key without a value is as one that is not there: NULL. */
static json_t *given(json_t *j, const char *key)
{
    json_t *v = json_object_get(j, key);

    return json_is_null(v) ? NULL : v;
}

static int whole(const reader *r, json_t *j, const char *where, const char *key, int64_t *out)
{
    json_t *v = given(j, key);

    if (!v) return missing(r, where, key);
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > INT32_MAX)
        return st_fail(r->error, ST_E_CONFIG, "%s: %s.%s must be a whole number from 1 to %d", r->path, where, key,
                       INT32_MAX);
    *out = json_integer_value(v);
    return ST_OK;
}

/* Values of another type than their key's are refused: a default in their place would be another model's. */
static int wrong_type(const reader *r, const char *key, const char *what)
{
    return st_fail(r->error, ST_E_CONFIG, "%s: %s must be %s", r->path, key, what);
}

/* *out keeps its default when the key is not there. v: the key's value. */
static int yes_no(const reader *r, json_t *v, const char *key, bool *out)
{
    if (v && !json_is_boolean(v)) return wrong_type(r, key, "true or false");
    if (v) *out = json_is_true(v);
    return ST_OK;
}

static int number(const reader *r, json_t *v, const char *key, double most, double *out)
{
    double x = json_number_value(v); /* 0: no number */

    if (v && (x <= 0 || x > most))
        return st_fail(r->error, ST_E_CONFIG, "%s: %s must be a number above 0 and at most %g", r->path, key, most);
    if (v) *out = x;
    return ST_OK;
}

/* A choice of which only one is known; not there: that one. */
static int only(const reader *r, json_t *v, const char *key, const char *known)
{
    const char *text = json_string_value(v);

    if (v && !text) return wrong_type(r, key, "a text");
    if (!v || strcmp(text, known) == 0) return ST_OK;
    return st_fail(r->error, ST_E_UNSUPPORTED, "%s: %s \"%s\": only %s is known", r->path, key, text, known);
}

static int list_or_none(const reader *r, json_t *j, const char *key, size_t *n)
{
    json_t *v = given(j, key);

    *n = json_array_size(v);
    return v && !json_is_array(v) ? wrong_type(r, key, "a list") : ST_OK;
}

/* A key of `a`, or of `b` when `a` lacks it; the older spelling keeps rotary keys one level up. */
static json_t *either(json_t *a, json_t *b, const char *key)
{
    json_t *v = given(a, key);

    return v ? v : given(b, key);
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

/* None, or 0, in files of the models without. */
static int find_experts(reader *r, json_t *text)
{
    json_t *v = given(text, "num_experts");
    int64_t n;

    r->experts = v && !(json_is_integer(v) && json_integer_value(v) == 0);
    return r->experts ? whole(r, text, "text_config", "num_experts", &n) : ST_OK;
}
static const char *channel_symbol(const reader *r) { return r->experts ? "E" : "-"; }

/* The family's multi-token-prediction layers attend fully, whatever the last block does. */
static int add_depths(reader *r, json_t *text, st_buf *pattern)
{
    json_t *v = given(text, "mtp_num_hidden_layers");

    if (!v) return ST_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 64)
        return st_fail(r->error, ST_E_CONFIG,
                       "%s: text_config.mtp_num_hidden_layers must be a whole number from 0 to 64", r->path);
    for (json_int_t i = 0; i < json_integer_value(v); i++) st_buf_printf(pattern, "/*%s", channel_symbol(r));
    r->full = r->full || json_integer_value(v) > 0;
    return ST_OK;
}

static int write_pattern(reader *r, json_t *text, st_buf *out)
{
    json_t *types = given(text, "layer_types");
    int64_t layers, every = 4;
    st_buf pattern = {0};
    int rc = ST_OK;

    ST_TRY(whole(r, text, "text_config", "num_hidden_layers", &layers));
    if (layers > 4096)
        return st_fail(r->error, ST_E_CONFIG, "%s: num_hidden_layers = %lld: at most 4096", r->path, (long long)layers);
    if (types && !json_is_array(types)) return wrong_type(r, "layer_types", "a list");
    if (types && json_array_size(types) != (size_t)layers)
        return st_fail(r->error, ST_E_CONFIG, "%s: layer_types has %zu entries, num_hidden_layers is %lld", r->path,
                       json_array_size(types), (long long)layers);
    if (!types && given(text, "full_attention_interval"))
        ST_TRY(whole(r, text, "text_config", "full_attention_interval", &every));
    for (int64_t i = 0; i < layers && rc == ST_OK; i++) {
        char mixer = (i + 1) % every == 0 ? '*' : 'G';
        if (types) rc = layer_symbol(r, json_array_get(types, (size_t)i), (size_t)i, &mixer);
        st_buf_add(&pattern, &mixer, 1);
        st_buf_puts(&pattern, channel_symbol(r));
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
    double eps = 1e-6;
    bool tied = false;

    ST_TRY(whole(r, text, "text_config", "hidden_size", &hidden));
    ST_TRY(whole(r, text, "text_config", "vocab_size", &vocab));
    ST_TRY(number(r, given(text, "rms_norm_eps"), "rms_norm_eps", 1, &eps));
    ST_TRY(yes_no(r, either(top, text, "tie_word_embeddings"), "tie_word_embeddings", &tied));
    st_format_float(eps, eps_text);
    st_buf_puts(out, is_family(top, text) ? "[stack]\nfamily = qwen3.5\n" : "[stack]\n");
    ST_TRY(write_pattern(r, text, out));
    st_buf_printf(out, "hidden = %lld\nvocab = %lld\nnorm = rms1p\nnorm_eps = %s\ntie_embeddings = %s\n",
                  (long long)hidden, (long long)vocab, eps_text, tied ? "yes" : "no");
    return ST_OK;
}

/* Things that the layers here do in one way only. */
static int check_layers(const reader *r, json_t *text)
{
    bool bias = false, gate = true;

    ST_TRY(only(r, given(text, "hidden_act"), "hidden_act", "silu"));
    ST_TRY(yes_no(r, given(text, "attention_bias"), "attention_bias", &bias));
    ST_TRY(yes_no(r, given(text, "attn_output_gate"), "attn_output_gate", &gate));
    if (bias) return st_fail(r->error, ST_E_UNSUPPORTED, "%s: attention_bias = true: not in this family", r->path);
    if (!gate) return st_fail(r->error, ST_E_UNSUPPORTED, "%s: attn_output_gate = false: not in this family", r->path);
    return ST_OK;
}

/* In this family every layer has experts and their shares always add to 1. */
static int check_experts(const reader *r, json_t *text)
{
    json_t *every = given(text, "decoder_sparse_step");
    bool norm = true;
    size_t dense;

    ST_TRY(list_or_none(r, text, "mlp_only_layers", &dense));
    ST_TRY(yes_no(r, given(text, "norm_topk_prob"), "norm_topk_prob", &norm));
    if (dense > 0 || (every && !(json_is_integer(every) && json_integer_value(every) == 1)))
        return st_fail(r->error, ST_E_UNSUPPORTED, "%s: %s: layers without experts among those with them", r->path,
                       dense > 0 ? "mlp_only_layers is not empty" : "decoder_sparse_step is not 1");
    if (!norm) return st_fail(r->error, ST_E_UNSUPPORTED, "%s: norm_topk_prob = false: not in this family", r->path);
    return ST_OK;
}

/* How the balance loss is formed is left to the trainer; the file only says its factor. */
static int write_experts(const reader *r, json_t *text, st_buf *out)
{
    json_t *coef = given(text, "router_aux_loss_coef");
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
    if (coef && (!json_is_number(coef) || json_number_value(coef) < 0 || json_number_value(coef) > 1000))
        return wrong_type(r, "router_aux_loss_coef", "a number from 0 to 1000");
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
    if (r->experts) return write_experts(r, text, out);
    ST_TRY(whole(r, text, "text_config", "intermediate_size", &width));
    st_buf_printf(out, "\n[layer.-]\nplugin = swiglu\nwidth = %lld\n", (long long)width);
    return ST_OK;
}

/* ---- positions ---- */

/* Frequencies of time, row and column; they must be those that rotate. */
static int read_section(const reader *r, json_t *rope, double share, int64_t head, int64_t section[3])
{
    json_t *list = given(rope, "mrope_section");
    int64_t sum = 0, pairs = (int64_t)floor((double)head * share / 2 + 0.5);

    if (!list) return missing(r, "rope_parameters", "mrope_section of three numbers");
    for (size_t i = 0; i < 3; i++) {
        json_t *v = json_array_get(list, i);
        if (json_array_size(list) != 3 || !json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) > INT32_MAX)
            return wrong_type(r, "mrope_section", "three whole numbers from 0");
        sum += section[i] = json_integer_value(v);
    }
    if (sum == pairs) return ST_OK;
    return st_fail(r->error, ST_E_CONFIG,
                   "%s: mrope_section adds to %lld, but %lld pairs rotate (head_dim %lld x %g / 2)", r->path,
                   (long long)sum, (long long)pairs, (long long)head, share);
}

static int write_position(const reader *r, json_t *text, st_buf *out)
{
    json_t *rope = given(text, "rope_parameters");
    double base = 0, share = 0;
    char base_text[32], share_text[32];
    int64_t d, section[3];
    bool interleaved = true;

    if (!rope) rope = given(text, "rope_scaling");
    if (!rope) return missing(r, "text_config", "rope_parameters or rope_scaling");
    if (!json_is_object(rope)) return wrong_type(r, "rope_parameters or rope_scaling", "an object");
    ST_TRY(number(r, either(rope, text, "rope_theta"), "rope_theta", 1e12, &base));
    ST_TRY(number(r, either(rope, text, "partial_rotary_factor"), "partial_rotary_factor", 1, &share));
    if (base == 0) return missing(r, "text_config", "rope_theta (rotary base)");
    if (share == 0) return missing(r, "text_config", "partial_rotary_factor");
    ST_TRY(only(r, given(rope, "rope_type"), "rope_type", "default"));
    ST_TRY(yes_no(r, given(rope, "mrope_interleaved"), "mrope_interleaved", &interleaved));
    ST_TRY(whole(r, text, "text_config", "head_dim", &d));
    ST_TRY(read_section(r, rope, share, d, section));
    st_format_float(base, base_text);
    st_format_float(share, share_text);
    st_buf_printf(out,
                  "\n[position]\nplugin = mrope\nsection = %lld,%lld,%lld\nbase = %s\nrotary_percent = %s\n"
                  "interleaved = %s\n",
                  (long long)section[0], (long long)section[1], (long long)section[2], base_text, share_text,
                  interleaved ? "yes" : "no");
    return ST_OK;
}

/* ---- vision ---- */

static int check_vision(const reader *r, json_t *text, json_t *vision)
{
    int64_t hidden, outer;
    size_t deep;

    ST_TRY(only(r, given(vision, "hidden_act"), "vision hidden_act", "gelu_pytorch_tanh"));
    ST_TRY(list_or_none(r, vision, "deepstack_visual_indexes", &deep));
    if (deep > 0)
        return st_fail(r->error, ST_E_UNSUPPORTED, "%s: deepstack_visual_indexes is not empty: that is another family",
                       r->path);
    if (!given(vision, "out_hidden_size")) return ST_OK;
    ST_TRY(whole(r, text, "text_config", "hidden_size", &hidden));
    ST_TRY(whole(r, vision, "vision_config", "out_hidden_size", &outer));
    if (outer == hidden) return ST_OK;
    return st_fail(r->error, ST_E_CONFIG, "%s: vision out_hidden_size = %lld, but hidden_size = %lld", r->path,
                   (long long)outer, (long long)hidden);
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
static int check_processor(const reader *r, const char *key, const char *of_vision, int64_t value)
{
    json_t *v = given(r->processor, key);

    if (!v || (json_is_integer(v) && json_integer_value(v) == value)) return ST_OK;
    return st_fail(r->error, ST_E_CONFIG, "%s: vision_config.%s is %lld, but %s in preprocessor_config.json is %lld",
                   r->path, of_vision, (long long)value, key, (long long)json_integer_value(v));
}

/* Pixels stand under a key of their own, or in `size` under the name of an edge, though they are no edge. */
static int write_pixels(const reader *r, const char *key, const char *edge, int64_t *pixels, st_buf *out)
{
    json_t *v = given(r->processor, key);

    *pixels = 0;
    if (!v) v = given(given(r->processor, "size"), edge);
    if (!v) return ST_OK;
    *pixels = json_integer_value(v);
    if (*pixels < 1 || *pixels > INT32_MAX)
        return st_fail(r->error, ST_E_CONFIG, "%s: preprocessor_config.json: %s must be a whole number from 1 to %d",
                       r->path, key, INT32_MAX);
    st_buf_printf(out, "%s = %lld\n", key, (long long)*pixels);
    return ST_OK;
}

static int write_channels(const reader *r, const char *key, st_buf *out)
{
    json_t *list = given(r->processor, key);
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
    json_t *text = given(top, "text_config"), *vision = given(top, "vision_config");

    if (!text) text = top; /* text-only models keep everything at the top */
    if (!json_is_object(text)) return st_fail(r->error, ST_E_CONFIG, "%s: text_config must be an object", r->path);
    if (vision && !json_is_object(vision)) return wrong_type(r, "vision_config", "an object");
    ST_TRY(find_experts(r, text));
    ST_TRY(write_stack(r, top, text, out));
    ST_TRY(write_layers(r, text, out));
    ST_TRY(write_position(r, text, out));
    return vision ? write_encoder(r, text, vision, out) : ST_OK;
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
