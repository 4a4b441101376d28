/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of tests/golden with one thing wrong: each is refused by tensor or key, with both values. */
#include "config.h"

#include "parity_test.h"
#include <math.h>
#include <unistd.h>

typedef struct fault {
    const char *key;
    int what;
    int64_t at;
    double value;
    const char *says;
} fault;

static void try_all(bench *b, const char *golden, const char *meta, const char *file, const fault *f, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        begin(b, golden);
        if (meta) put_text(b, "meta.json", meta); /* a model without its training curves: they take most of the time */
        change(b, file, f[i].key, f[i].what, f[i].at, f[i].value);
        refused(b, f[i].says);
    }
}
#define TRY(b, golden, meta, file, list) try_all(b, golden, meta, file, list, ST_COUNT(list))

static void samples(void **state)
{
    static const fault f[] = {
        {"s0.labels", DROP, 0, 0, "%s: io.safetensors has no s0.labels"},
        {"s0.labels", SHORTEN, 0, 0, "%s: io.safetensors: s0.labels has 48 values, not 49"},
        {"s0.input_ids", SET, 3, -5, "%s: sample 0 has the id -5 at token 3"},
        {"s0.token_type", GROW, 0, 0, "%s: io.safetensors: s0.token_type has 50 values, not 49"},
        {"s0.token_type", CLEAR, 0, 0, "%s: sample 0 has 0 runs of placeholders and 1 grids"},
        {"s0.grid_thw", DROP, 0, 0, "%s: sample 0 has more runs of placeholders than the 0 grids"},
        {"s0.grid_thw", SET, 1, 0, "%s: s0.grid_thw holds 0, a side must be from 1 to 65535"},
        {"s0.pixel_values", SHORTEN, 0, 0, "%s: sample 0 has 147455 pixel values for 96 patches"},
        {"s0.pixel_values", DROP, 0, 0, "%s: sample 0 has 1 pictures, but io.safetensors has no s0.pixel_values"},
        {"s0.position_ids", SHORTEN, 0, 0, "%s: io.safetensors: s0.position_ids has 146 values, not 147"},
    };

    TRY(*state, "dense-vl", "{}", "io.safetensors", f);
}

/* A model alone: what it computes is compared in this order. */
static void models(void **state)
{
    static const fault f[] = {
        {"s1.vision", GROW, 0, 0, "%s: s1.vision needs 1473 values behind 1536, the encoder made 3008"},
        {"s0.hidden.0", SHORTEN, 0, 0, "%s: io.safetensors: s0.hidden.0 has 3135 values, not 3136"},
        {"s3.logits", DROP, 0, 0, "%s: io.safetensors has no s3.logits"},
        {"s3.logits", SHORTEN, 0, 0, "%s: io.safetensors: s3.logits has 41599 values, not 41600"},
        {"s2.loss", DROP, 0, 0, "%s: io.safetensors has no s2.loss"},
        {"loss", DROP, 0, 0, "%s: io.safetensors has no loss"},
        {"ntok", GROW, 0, 0, "%s: io.safetensors: ntok has 2 values, not 1"},
        {"grad.lm_head.weight", DROP, 0, 0, "%s: io.safetensors has no grad.lm_head.weight"},
        {"grad.lm_head.weight", SHORTEN, 0, 0, "%s: io.safetensors: grad.lm_head.weight has 20479 values, not 20480"},
    };
    static const fault weights[] = {
        {"lm_head.weight", DROP, 0, 0, "%s/weights.safetensors: no tensor lm_head.weight, needed for weight lm_head"},
        {"lm_head.weight", SHORTEN, 0, 0,
         "%s/weights.safetensors: tensor lm_head.weight is [20479], weight lm_head [320,64] takes 20480 values of it"},
    };

    TRY(*state, "dense-vl", "{}", "io.safetensors", f);
    TRY(*state, "dense-vl", "{}", "weights.safetensors", weights);
}

static void one_part(void **state)
{
    static const fault rule[] = {
        {"0.v", DROP, 0, 0, "%s: 0.q and 0.v must be [tokens, heads, width], 0.cu_seqlens two or more borders"},
        {"0.q", SHORTEN, 0, 0, "%s: 0.q and 0.v must be [tokens, heads, width], 0.cu_seqlens two or more borders"},
        {"0.cu_seqlens", DROP, 0, 0, "%s: io.safetensors has no 0.cu_seqlens"},
        {"0.cu_seqlens", SET, 0, 1, "%s: 0.cu_seqlens must rise from 0 to the 1 tokens of 0.q, value 0 is 1"},
        {"0.cu_seqlens", SET, 1, 7, "%s: 0.cu_seqlens must rise from 0 to the 1 tokens of 0.q, value 1 is 7"},
        {"0.k", SHORTEN, 0, 0, "%s: io.safetensors: 0.k has 7 values, not 8"},
        {"0.S0", SHORTEN, 0, 0, "%s: io.safetensors: 0.S0 has 63 values, not 64"},
        {"0.out", GROW, 0, 0, "%s: io.safetensors: 0.out has 9 values, not 8"},
    };
    static const fault merger[] = {
        {"out_f64", SHORTEN, 0, 0, "%s: io.safetensors: out_f64 has 57343 values, not 57344"},
        {"out_bf16", SHORTEN, 0, 0, "%s: io.safetensors: out_bf16 has 57343 values, not 57344"},
    };
    static const fault adamw[] = {
        {"0.p0", SHORTEN, 0, 0, "%s: io.safetensors: 0.p0 has 256 values, not 257"},
        {"0.g0", SHORTEN, 0, 0, "%s: io.safetensors: 0.g0 has 256 values, not 257"},
        {"1.norm3", DROP, 0, 0, "%s: io.safetensors has no 1.norm3"},
        {"1.p10", GROW, 0, 0, "%s: io.safetensors: 1.p10 has 65 values, not 64"},
    };

    TRY(*state, "gdn", NULL, "io.safetensors", rule);
    TRY(*state, "merger", NULL, "io.safetensors", merger);
    TRY(*state, "adamw", NULL, "io.safetensors", adamw);
}

/* What is beside the tensors: each text in the place of one file. */
static void texts(void **state)
{
    static const struct {
        const char *golden, *file, *text, *says;
    } t[] = {
        {"dense-vl", "meta.json", "[1,\n2", "%s/meta.json:2:1: ']' expected near end of file"},
        {"dense-vl", "meta.json", "{\"train\": {}}", "%s: meta.json has an empty curve train"},
        {"dense-vl", "config.json", "[]", "%s/config.json: no JSON object"},
        {"dense-vl", "io.safetensors", "",
         "%s/io.safetensors: not a tensor file: 0 bytes, the length of the header alone takes 8"},
        {"merger", "meta.json", "{", "%s/meta.json:1:1: string or '}' expected near end of file"},
        {"merger", "meta.json", "{\"hidden\": 100, \"out_hidden\": 8, \"patches\": 6}",
         "%s: width 100 or 6 patches do not fit an identity stem"},
        {"merger", "meta.json", "{\"hidden\": 384, \"out_hidden\": 8, \"patches\": 4, \"params\": {}}",
         "%s: meta.json says nothing of model.visual.merger.norm.weight"},
        {"adamw", "meta.json", "{]", "%s/meta.json:1:2: string or '}' expected near ']'"},
        {"adamw", "meta.json", "[{\"n\": 0}]", "%s:4:9: [stack] vocab = 0: must lie between 1 and 268435456 words"},
        {"tokenizer", "cases.json", "[{\"text\": \"a\"}]", "%s: case 0 lacks text, ids or decoded"},
        {"tokenizer", "cases.json", "[", "%s/cases.json:1:1: ']' expected near end of file"},
        {"tokenizer", "tokenizer.json", "{}",
         "%s/tokenizer.json: pre_tokenizer has no ByteLevel: only byte-level BPE is offered"},
    };
    bench *b = *state;

    for (size_t i = 0; i < ST_COUNT(t); i++) {
        begin(b, t[i].golden);
        put_text(b, t[i].file, t[i].text);
        refused(b, t[i].says);
    }
    begin(b, "adamw");
    assert_int_equal(unlink(st_path_join(b->arena, b->dir, "meta.json")), 0);
    refused(b, "%s/meta.json: cannot open: No such file or directory");
}

/* Values that differ do not stop a comparison: they are counted, and each is told. */
static void differences(void **state)
{
    bench *b = *state;

    begin(b, "tokenizer");
    put_text(b, "cases.json", "[{\"text\": \"a\", \"ids\": [], \"decoded\": \"b\"}]");
    compared(b, 1, ": case 0: 1 ids, not the 0 expected\n");
    compared(b, 1, ": case 0: decoded text differs\n");
    put_text(b, "cases.json", "[]");
    compared(b, 1, ": nothing was compared\n");
    begin(b, "adamw");
    change(b, "io.safetensors", "1.norm9", SET, 0, NAN);
    compared(b, 2, "inf");
    begin(b, "adamw");
    put_text(b, "meta.json", "[]");
    compared(b, 63, ": and 57 more\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(samples), cmocka_unit_test(models), cmocka_unit_test(one_part),
                                       cmocka_unit_test(texts), cmocka_unit_test(differences)};

    return cmocka_run_group_tests(tests, bench_open, bench_close);
}
