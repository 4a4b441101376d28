/* SPDX-License-Identifier: Apache-2.0 */
/* Reference values that can be told without a computer, in files written here: a model whose weights are all zero, with
 * depths and with experts, and a picture of one colour. What is refused only there is asked for too. */
#include "config.h"

#include "data/image.h"
#include "parity_test.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- a model that says every token is as likely as any other ---- */

#define TEXT \
    "\"vocab_size\": 16, \"hidden_size\": 8, \"num_hidden_layers\": 2, \"full_attention_interval\": 2, " \
    "\"linear_num_key_heads\": 1, \"linear_num_value_heads\": 1, \"linear_key_head_dim\": 8, " \
    "\"linear_value_head_dim\": 8, \"linear_conv_kernel_dim\": 4, \"num_attention_heads\": 1, " \
    "\"num_key_value_heads\": 1, \"head_dim\": 16, \"tie_word_embeddings\": true, " \
    "\"rope_parameters\": {\"rope_theta\": 10000, \"partial_rotary_factor\": 0.5, \"mrope_section\": [2, 1, 1]}"
#define DENSE "{" TEXT ", \"intermediate_size\": 8}"
#define SPARSE(coef) \
    "{" TEXT ", \"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8, " \
    "\"shared_expert_intermediate_size\": 8, \"router_aux_loss_coef\": " coef "}"

#define TOKENS 4
#define TRAINED 3
static const double ids[TOKENS] = {1, 2, 3, 4}, labels[TOKENS] = {-100, 2, 3, 4},
                    positions[3 * TOKENS] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}, trained[1] = {TRAINED};
static const double even[1] = {2.7725887222397811}; /* log 16 */

#define FIRST(name) "model.language_model.layers.0." name
#define SECOND(name) "model.language_model.layers.1." name
static const made shared[] = {
    {"model.language_model.embed_tokens.weight", ST_F32, 2, {16, 8}, NULL},
    {"model.language_model.norm.weight", ST_F32, 1, {8}, NULL},
    {FIRST("input_layernorm.weight"), ST_F32, 1, {8}, NULL},
    {FIRST("post_attention_layernorm.weight"), ST_F32, 1, {8}, NULL},
    {FIRST("linear_attn.in_proj_qkv.weight"), ST_F32, 2, {24, 8}, NULL},
    {FIRST("linear_attn.in_proj_z.weight"), ST_F32, 2, {8, 8}, NULL},
    {FIRST("linear_attn.in_proj_a.weight"), ST_F32, 2, {1, 8}, NULL},
    {FIRST("linear_attn.in_proj_b.weight"), ST_F32, 2, {1, 8}, NULL},
    {FIRST("linear_attn.conv1d.weight"), ST_F32, 3, {24, 1, 4}, NULL},
    {FIRST("linear_attn.A_log"), ST_F32, 1, {1}, NULL},
    {FIRST("linear_attn.dt_bias"), ST_F32, 1, {1}, NULL},
    {FIRST("linear_attn.norm.weight"), ST_F32, 1, {8}, NULL},
    {FIRST("linear_attn.out_proj.weight"), ST_F32, 2, {8, 8}, NULL},
    {SECOND("input_layernorm.weight"), ST_F32, 1, {8}, NULL},
    {SECOND("post_attention_layernorm.weight"), ST_F32, 1, {8}, NULL},
    {SECOND("self_attn.q_proj.weight"), ST_F32, 2, {32, 8}, NULL},
    {SECOND("self_attn.k_proj.weight"), ST_F32, 2, {16, 8}, NULL},
    {SECOND("self_attn.v_proj.weight"), ST_F32, 2, {16, 8}, NULL},
    {SECOND("self_attn.o_proj.weight"), ST_F32, 2, {8, 16}, NULL},
    {SECOND("self_attn.q_norm.weight"), ST_F32, 1, {16}, NULL},
    {SECOND("self_attn.k_norm.weight"), ST_F32, 1, {16}, NULL},
};
static const made dense[] = {
    {FIRST("mlp.gate_proj.weight"), ST_F32, 2, {8, 8}, NULL}, {FIRST("mlp.up_proj.weight"), ST_F32, 2, {8, 8}, NULL},
    {FIRST("mlp.down_proj.weight"), ST_F32, 2, {8, 8}, NULL}, {SECOND("mlp.gate_proj.weight"), ST_F32, 2, {8, 8}, NULL},
    {SECOND("mlp.up_proj.weight"), ST_F32, 2, {8, 8}, NULL},  {SECOND("mlp.down_proj.weight"), ST_F32, 2, {8, 8}, NULL},
};
static const made sparse[] = {
    {FIRST("mlp.gate.weight"), ST_F32, 2, {4, 8}, NULL},
    {FIRST("mlp.experts.gate_up_proj"), ST_F32, 3, {4, 16, 8}, NULL},
    {FIRST("mlp.experts.down_proj"), ST_F32, 3, {4, 8, 8}, NULL},
    {FIRST("mlp.shared_expert.gate_proj.weight"), ST_F32, 2, {8, 8}, NULL},
    {FIRST("mlp.shared_expert.up_proj.weight"), ST_F32, 2, {8, 8}, NULL},
    {FIRST("mlp.shared_expert.down_proj.weight"), ST_F32, 2, {8, 8}, NULL},
    {FIRST("mlp.shared_expert_gate.weight"), ST_F32, 2, {1, 8}, NULL},
    {SECOND("mlp.gate.weight"), ST_F32, 2, {4, 8}, NULL},
    {SECOND("mlp.experts.gate_up_proj"), ST_F32, 3, {4, 16, 8}, NULL},
    {SECOND("mlp.experts.down_proj"), ST_F32, 3, {4, 8, 8}, NULL},
    {SECOND("mlp.shared_expert.gate_proj.weight"), ST_F32, 2, {8, 8}, NULL},
    {SECOND("mlp.shared_expert.up_proj.weight"), ST_F32, 2, {8, 8}, NULL},
    {SECOND("mlp.shared_expert.down_proj.weight"), ST_F32, 2, {8, 8}, NULL},
    {SECOND("mlp.shared_expert_gate.weight"), ST_F32, 2, {1, 8}, NULL},
};
static const made sample[] = {
    {"s0.input_ids", ST_I64, 2, {1, TOKENS}, ids},
    {"s0.labels", ST_I64, 2, {1, TOKENS}, labels},
    {"s0.token_type", ST_I64, 2, {1, TOKENS}, NULL},
    {"s0.position_ids", ST_I64, 3, {3, 1, TOKENS}, positions},
    {"s0.hidden.0", ST_F64, 3, {1, TOKENS, 8}, NULL},
    {"s0.hidden.1", ST_F64, 3, {1, TOKENS, 8}, NULL},
    {"s0.hidden.2", ST_F64, 3, {1, TOKENS, 8}, NULL},
    {"s0.logits", ST_F64, 3, {1, TOKENS, 16}, NULL},
    {"s0.loss", ST_F64, 1, {1}, even},
    {"loss", ST_F64, 1, {1}, even},
    {"ntok", ST_I64, 1, {1}, trained},
};
static const double picks[1] = {2}; /* experts x (share of each x probability of each), summed: those of a token */
static const made routed[] = {
    {"s0.router_logits.0", ST_F64, 2, {TOKENS, 4}, NULL},
    {"s0.router_logits.1", ST_F64, 2, {TOKENS, 4}, NULL},
    {"s0.aux_loss", ST_F64, 1, {1}, picks},
    {"aux_grad_s0." FIRST("mlp.gate.weight"), ST_F64, 2, {4, 8}, NULL},
    {"aux_grad_s0." SECOND("mlp.gate.weight"), ST_F64, 2, {4, 8}, NULL},
};

static int append(made *to, int at, const made *list, size_t n)
{
    memcpy(to + at, list, n * sizeof *list);
    return at + (int)n;
}

static int append_gradients(bench *b, made *to, int at, const made *weights, int n)
{
    for (int i = 0; i < n; i++) {
        to[at] = weights[i];
        to[at++].key = st_arena_printf(b->arena, "grad.%s", weights[i].key);
    }
    return at;
}

static void model(bench *b, const char *config, const made *mlp, size_t n_mlp, const made *more, size_t n_more)
{
    made weights[64], io[96];
    int n = append(weights, 0, shared, ST_COUNT(shared)), n_io;

    n = append(weights, n, mlp, n_mlp);
    n_io = append_gradients(b, io, append(io, 0, sample, ST_COUNT(sample)), weights, n);
    if (n_more) n_io = append(io, n_io, more, n_more);
    begin(b, NULL);
    put_text(b, "config.json", config);
    put_text(b, "meta.json", "{}");
    put_tensors(b, "weights.safetensors", weights, n);
    put_tensors(b, "io.safetensors", io, n_io);
}

static void dense_model(void **state)
{
    bench *b = *state;

    model(b, DENSE, dense, ST_COUNT(dense), NULL, 0);
    compared(b, 0, " rows, all within their gates");
    change(b, "io.safetensors", "s0.logits", SET, 5, 1e-3);
    compared(b, 2, "BAD");
    change(b, "io.safetensors", "s0.logits", CLEAR, 0, 0);
    change(b, "io.safetensors", "s0.input_ids", SET, 0, 16);
    refused(b, "%s: sample 0 has the id 16 at token 0, the vocabulary has 16");
    change(b, "io.safetensors", "s0.labels", SET, 2, 9);
    refused(b, "%s: sample 0 trains 9 at token 2, whose id is 3");
    change(b, "io.safetensors", "s0.input_ids", DROP, 0, 0);
    refused(b, "%s: io.safetensors has no sample (s0.input_ids, s1.input_ids, ...)");
}

static void depths(void **state)
{
    static const made far[] = {{"d999.loss", ST_F32, 1, {1}, NULL}}, none[] = {{"loss", ST_F32, 1, {1}, NULL}};
    bench *b = *state;

    model(b, DENSE, dense, ST_COUNT(dense), NULL, 0);
    put_tensors(b, "mtp_io.safetensors", far, 1);
    refused(b, "%s/mtp_io.safetensors: the keys name 999 depths (d1.*, d2.*, ...), not 1 to 64");
    put_tensors(b, "mtp_io.safetensors", none, 1);
    refused(b, "%s/mtp_io.safetensors: the keys name 0 depths (d1.*, d2.*, ...), not 1 to 64");
    put_text(b, "mtp_io.safetensors", "no tensors");
    refused(b,
            "%s/mtp_io.safetensors: not a tensor file, or one cut short: its header claims 8030883942550761326 bytes, "
            "2 are there");
}

static void experts(void **state)
{
    bench *b = *state;

    model(b, SPARSE("0.01"), sparse, ST_COUNT(sparse), routed, ST_COUNT(routed));
    compared(b, 0, "all within their gates");
    change(b, "io.safetensors", "s0.aux_loss", SET, 0, 2.001);
    compared(b, 2, "BAD");
    change(b, "io.safetensors", "s0.aux_loss", GROW, 0, 0);
    refused(b, "%s: io.safetensors: s0.aux_loss has 2 values, not 1");
    change(b, "io.safetensors", "s0.router_logits.0", SHORTEN, 0, 0);
    refused(b, "%s: io.safetensors: s0.router_logits.0 has 15 values, not 16");
    model(b, SPARSE("0"), sparse, ST_COUNT(sparse), routed, ST_COUNT(routed));
    refused(b, "%s: config.json has no router_aux_loss_coef above 0");
    model(b, DENSE, dense, ST_COUNT(dense), routed, ST_COUNT(routed));
    refused(b, "%s: config.json describes no experts");
}

static void options(void **state)
{
    bench *b = *state;

    model(b, DENSE, dense, ST_COUNT(dense), NULL, 0);
    b->peer = st_path_join(b->arena, b->dir, "peer.json");
    refused(b, "%s/peer.json: cannot open: No such file or directory");
    put_text(b, "peer.json", "{\"loss\": ");
    refused(b, "%s/peer.json:1:9: unexpected token near end of file");
    put_text(b, "peer.json", "[]");
    refused(b, "%s/peer.json: not an object of errors by name");
    put_text(b, "peer.json", "{\"loss\": 1e-3}");
    compared(b, 0, " rows, all within their gates"); /* it is for bf16 alone */
    b->backend = "abacus";
    refused(b, "%s:36:11: [run] there is no backend plugin abacus"); /* a place in the spec that parity wrote */
}

/* Placeholders where the model has no vision tower. */
static void no_tower(void **state)
{
    static const double types[TOKENS] = {0, 1, 0, 0}, grid[3] = {1, 2, 2};
    static const made picture[] = {{"s0.grid_thw", ST_I64, 2, {1, 3}, grid},
                                   {"s0.pixel_values", ST_F32, 2, {4, 3}, NULL}};
    bench *b = *state;

    model(b, DENSE, dense, ST_COUNT(dense), picture, ST_COUNT(picture));
    change(b, "io.safetensors", "s0.token_type", SET, 1, types[1]);
    refused(b, "%s:41:10: rows hold images, but there is no [encoder]");
}

/* ---- a picture of one colour ---- */

#define SIDE 64
#define VALUE(v) ((v) / 127.5 - 1)
enum {
    COLOURS = 3,
    PATCH = 16 * 16,
    FRAMES = 2,
    PATCHES = SIDE * SIDE / PATCH,
    PIXELS = PATCHES * COLOURS * FRAMES * PATCH
};

/* Values of a patch lie colour by colour. every: only each 97th is stored. */
static void picture(bench *b, const char *meta, const char *key, int64_t n, int every)
{
    static const uint8_t colour[COLOURS] = {255, 128, 0};
    static uint8_t rgb[SIDE * SIDE * COLOURS];
    static double values[PIXELS];
    static const double grid[3] = {1, SIDE / 16, SIDE / 16};
    const made io[] = {{"0.fast.grid_thw", ST_I64, 2, {1, 3}, grid}, {key, ST_F64, 1, {n}, values}};
    const st_image image = {SIDE, SIDE, rgb};
    st_error e = {0};

    for (int i = 0; i < SIDE * SIDE * COLOURS; i++) rgb[i] = colour[i % COLOURS];
    for (int64_t i = 0; i < n; i++) values[i] = VALUE(colour[i * every / (FRAMES * PATCH) % COLOURS]);
    begin(b, NULL);
    assert_int_equal(st_image_write_png(st_path_join(b->arena, b->dir, "img0.png"), &image, &e), ST_OK);
    put_text(b, "meta.json", meta);
    put_tensors(b, "io.safetensors", io, 2);
}

#define CASE(grid, more) \
    "[{\"case\": 1, \"error\": \"too small\"}, {\"case\": 0, \"min_pixels\": 1024, \"max_pixels\": 65536, \"grid\": " \
    "[" grid "]" more "}]"
#define GOOD CASE("[1, 4, 4]", ", \"processor\": \"fast\"")

static void pictures(void **state)
{
    bench *b = *state;

    picture(b, GOOD, "0.fast.pixel_values", PIXELS, 1);
    compared(b, 0, ": 3 rows, all within their gates");
    change(b, "io.safetensors", "0.fast.pixel_values", SET, 0, 0.5);
    compared(b, 2, "BAD");
    change(b, "io.safetensors", "0.fast.pixel_values", SHORTEN, 0, 0);
    refused(b, "%s: io.safetensors: 0.fast.pixel_values has 24575 values, not 24576");
    picture(b, GOOD, "0.fast.pixel_values_every_97th", (PIXELS + 96) / 97, 97);
    compared(b, 0, ": 3 rows, all within their gates");
    change(b, "io.safetensors", "0.fast.pixel_values_every_97th", SHORTEN, 0, 0);
    refused(b, "%s: io.safetensors: 0.fast.pixel_values_every_97th has 253 values, not 254");
    put_text(b, "meta.json", CASE("[1, 4, 4]", ""));
    refused(b, "%s: meta.json: case 0 names no processor");
    put_text(b, "meta.json", CASE("[1, 2, 2]", ", \"processor\": \"fast\""));
    refused(b, "%s: img0.png gives 16 patches, its grid in meta.json 4");
    put_text(b, "meta.json", "{");
    refused(b, "%s/meta.json:1:1: string or '}' expected near end of file");
    put_text(b, "meta.json", GOOD);
    put_text(b, "img0.png", "no picture");
    refused(b, "%s/img0.png: not a picture: begins with byte 0x6E, neither PNG nor JPEG");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(dense_model), cmocka_unit_test(depths),
                                       cmocka_unit_test(experts),     cmocka_unit_test(options),
                                       cmocka_unit_test(no_tower),    cmocka_unit_test(pictures)};

    return cmocka_run_group_tests(tests, bench_open, bench_close);
}
