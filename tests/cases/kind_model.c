/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/kind_model.c - config.json of published models, and heads that are or are not the embedding. Files that
 * are given may leave out what their point does not need; it is added before they are read. */
#include "config.h"

#include "cases.h"
#include "checkpoint/family.h"
#include "checkpoint/hf_config.h"
#include <jansson.h>

static json_t *json_of(const cases *c, const char *file)
{
    size_t n;
    char *text = case_read(c, file, &n);
    json_error_t why;
    json_t *j = json_loadb(text, n, 0, &why);

    if (!j) fail_msg("%s: %s", file, why.text);
    return j;
}

static char *write_json(const cases *c, const char *folder, const char *name, json_t *j)
{
    char *text = json_dumps(j, JSON_INDENT(1) | JSON_PRESERVE_ORDER),
         *path = case_write(c, folder, name, text, strlen(text));

    free(text);
    json_decref(j);
    return path;
}

/* ---- config ---- */

enum { NESTED = 1, OLDER, NO_THETA };
typedef struct config_row {
    const char *file;
    int32_t rope;
    const char *last; /* type of the last layer */
    int32_t section[3], depths;
    const char *refused;
} config_row;
static const config_row configs[] = {
    {"config/rope_parameters.json", NESTED, "full_attention", {3, 3, 2}, 0, NULL},
    {"config/rope_scaling.json", OLDER, "full_attention", {3, 3, 2}, 0, NULL},
    {"config/rope_no_theta.json", NO_THETA, "full_attention", {3, 3, 2}, 0, "rope_theta"},
    {"config/sections_wrong_sum.json", NESTED, "full_attention", {4, 4, 4}, 0, "adds to 12, but 8 pairs rotate"},
    {"config/layer_types_unknown.json", NESTED, "sliding_attention", {3, 3, 2}, 0, "\"sliding_attention\""},
    {"config/mtp_declared_absent.json", NESTED, "full_attention", {3, 3, 2}, 1, NULL},
};

/* Sizes of the parts that the files' point has nothing to do with. */
static void add_sizes(json_t *text)
{
    static const struct {
        const char *key;
        int value;
    } size[] = {{"linear_num_key_heads", 2},  {"linear_num_value_heads", 2}, {"linear_key_head_dim", 8},
                {"linear_value_head_dim", 8}, {"linear_conv_kernel_dim", 4}, {"intermediate_size", 96}};

    for (size_t i = 0; i < ST_COUNT(size); i++)
        if (!json_object_get(text, size[i].key)) json_object_set_new(text, size[i].key, json_integer(size[i].value));
}

static json_t *rope_of(const config_row *r, json_t *text)
{
    json_t *rope = json_pack("{s:s,s:[i,i,i],s:b}", "rope_type", "default", "mrope_section", r->section[0],
                             r->section[1], r->section[2], "mrope_interleaved", 1);
    json_t *at = r->rope == OLDER ? text : rope;

    if (r->rope != NO_THETA) json_object_set_new(at, "rope_theta", json_integer(10000000));
    json_object_set_new(at, "partial_rotary_factor", json_real(0.25));
    return rope;
}

static void make_config(const cases *c, const void *row)
{
    const config_row *r = row;
    json_t *text = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:[s,s,s,s]}", "model_type", "qwen3_5_text", "hidden_size",
                             64, "num_hidden_layers", 4, "head_dim", 64, "num_attention_heads", 4,
                             "num_key_value_heads", 2, "vocab_size", 512, "layer_types", "linear_attention",
                             "linear_attention", "linear_attention", r->last);
    char *printed;

    json_object_set_new(text, r->rope == OLDER ? "rope_scaling" : "rope_parameters", rope_of(r, text));
    if (r->depths) json_object_set_new(text, "mtp_num_hidden_layers", json_integer(r->depths));
    add_sizes(text);
    json_t *top = json_pack("{s:s,s:o}", "model_type", "qwen3_5", "text_config", text);
    printed = json_dumps(top, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    case_put_text(c, r->file, printed);
    free(printed);
    json_decref(top);
}

/* A model of the spec that a config.json became, and of what it leaves to the run. */
static void open_model(case_run *run, const char *described, const char *batch)
{
    char *text = NULL;

    if (asprintf(&text,
                 "%s\n[run]\nsteps = 1\n[schedule]\nlr = 0\n[batch]\n%s[dataset.train]\nplugin = mock\n"
                 "vocab = 2\nmin_tokens = 2\nmax_tokens = 4\nsamples = 1\n",
                 described, batch) < 0)
        fail_msg("no memory");
    int rc = case_open(run, text);
    free(text);
    st_error e = {0};
    if (rc == ST_OK && (st_model_plan(run->run.model, &e) || st_model_open(run->run.model, &e) ||
                        st_model_init(run->run.model, 1, &e)))
        fail_msg("%s", e.message);
    if (rc != ST_OK) fail_msg("%s", case_screen(run));
}

static void expect(const case_run *run, const char *section, const char *key, const char *want)
{
    const st_value *v = st_spec_get(run->spec, section, key);

    if (!v || strcmp(v->text, want) != 0)
        fail_msg("[%s] %s is %s, it should be %s", section, key, v ? v->text : "not given", want);
}

/* All weights of a model under their published names, with zeros; those of `file` as they are there. */
static void write_weights(const cases *c, const char *path, st_model *m, const st_tensors *file)
{
    const st_model_weight *const *w;
    const st_file_name *names;
    const st_file_tensor *list = NULL;
    int n = st_family_names(m, "hf", &names), n_file = file ? st_tensors_list(file, &list) : 0;
    st_tensors_out *out;
    st_error e = {0};
    int rc = st_tensors_create(path, &out, &e);

    st_model_weights(m, &w);
    for (int i = 0; i < n_file && rc == ST_OK; i++)
        rc = st_tensors_declare(out, list[i].name, list[i].dtype, list[i].nd, list[i].dim, &e);
    for (int i = 0; i < n && rc == ST_OK; i++) {
        const st_model_weight *x = w[names[i].weight];
        int64_t dim[ST_DIMS];
        if (file && (case_has(names[i].file_name, "embed_tokens") || case_has(names[i].file_name, "lm_head"))) continue;
        memcpy(dim, x->dim, sizeof dim);
        if (x->nd) dim[x->sec_dim] = names[i].n;
        rc = st_tensors_declare(out, names[i].file_name, ST_F32, x->nd, dim, &e);
    }
    for (int i = 0; i < n_file && rc == ST_OK; i++) rc = st_tensors_write(out, list[i].data, list[i].bytes, &e);
    for (int i = 0; i < n && rc == ST_OK; i++) {
        const st_model_weight *x = w[names[i].weight];
        size_t bytes = 4 * (size_t)st_weight_part_count(x, &names[i]);
        if (file && (case_has(names[i].file_name, "embed_tokens") || case_has(names[i].file_name, "lm_head"))) continue;
        rc = st_tensors_write(out, st_arena_alloc(c->arena, bytes), bytes, &e);
    }
    if (rc != ST_OK || st_tensors_finish(out, &e) != ST_OK) fail_msg("%s", e.message);
}

/* Weights without the declared depth: no model that has it takes them, one without does, and it is told. */
static void check_declared(const cases *c, const char *folder, const char *described)
{
    const char *depth = strstr(described, "/*-\n"), *path = st_arena_printf(c->arena, "%s/model.safetensors", folder);

    if (!depth) fail_msg("the declared depth is not in the pattern: %s", described);
    const char *without = st_arena_printf(c->arena, "%.*s%s", (int)(depth - described), described, depth + 3);
    for (int whole = 0; whole < 2; whole++) {
        case_run run;
        st_error e = {0};
        open_model(&run, whole ? described : without, "tokens = 8\n");
        if (!whole) write_weights(c, path, run.run.model, NULL);
        int rc = st_checkpoint_load_hf(folder, run.run.model, run.base->log, &e);
        if (whole) case_refused(&e, folder, "no tensor mtp.");
        else if (rc != ST_OK) fail_msg("%s", e.message);
        const char *said = case_screen(&run);
        if (!case_has(said, "config.json declares 1 multi-token-prediction layer")) fail_msg("it is not told: %s", said);
        case_close(&run);
    }
}

static void check_config(const cases *c, const void *row)
{
    const config_row *r = row;
    json_t *j = json_of(c, r->file);
    const char *folder = case_folder(c), *path;
    st_buf text = {0};
    st_error e = {0};
    case_run run;

    add_sizes(json_object_get(j, "text_config"));
    path = write_json(c, folder, "config.json", j);
    int rc = st_hf_config_spec(path, &text, &e);
    if (r->refused) {
        case_refused(&e, "config.json", r->refused);
        st_buf_free(&text);
        return;
    }
    if (rc != ST_OK) fail_msg("%s", e.message);
    open_model(&run, text.data, "tokens = 8\n");
    expect(&run, "position", "plugin", "mrope");
    expect(&run, "position", "base", "10000000");
    expect(&run, "position", "rotary_percent", "0.25");
    expect(&run, "position", "section", "3,3,2");
    expect(&run, "position", "interleaved", "yes");
    case_close(&run);
    if (r->depths) check_declared(c, folder, text.data);
    st_buf_free(&text);
}

const case_kind config_kind = CASE_KIND("config", configs, make_config, check_config);

/* ---- tied ---- */

typedef struct tied_row {
    const char *file;
    int32_t tied, head; /* as the config says; the file has a head */
    const char *refused;
} tied_row;
#define WAYS "tie_embeddings = yes"
#define BOTH(set, ...) \
    {"tied/" set "/config.json", __VA_ARGS__}, { "tied/" set "/model.safetensors", __VA_ARGS__ }
static const tied_row tied[] = {
    BOTH("tied_no_head", 1, 0, NULL),
    BOTH("tied_same_head", 1, 1, NULL),
    BOTH("untied_no_head", 0, 0, WAYS),
    BOTH("untied_both", 0, 1, NULL),
};

static void make_tied(const cases *c, const void *row)
{
    static const float embed[4] = {1, 2, 3, 4}, other[4] = {5, 6, 7, 8};
    const tied_row *r = row;
    const int64_t dim[] = {2, 2};
    st_tensors_out *out;
    st_error e = {0};

    if (case_has(r->file, "config.json")) {
        json_t *j = json_pack("{s:s,s:b,s:{s:b,s:i,s:i}}", "model_type", "qwen3_5", "tie_word_embeddings", r->tied,
                              "text_config", "tie_word_embeddings", r->tied, "vocab_size", 2, "hidden_size", 2);
        char *text = json_dumps(j, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
        case_put_text(c, r->file, text);
        free(text);
        json_decref(j);
        return;
    }
    case_put_text(c, r->file, "");
    int rc = st_tensors_create(case_path(c, r->file), &out, &e);
    if (rc == ST_OK) rc = st_tensors_declare(out, "model.language_model.embed_tokens.weight", ST_F32, 2, dim, &e);
    if (rc == ST_OK && r->head) rc = st_tensors_declare(out, "lm_head.weight", ST_F32, 2, dim, &e);
    if (rc == ST_OK) rc = st_tensors_write(out, embed, sizeof embed, &e);
    if (rc == ST_OK && r->head) rc = st_tensors_write(out, r->tied ? embed : other, sizeof embed, &e);
    if (rc != ST_OK || st_tensors_finish(out, &e) != ST_OK) fail_msg("%s", e.message);
}

/* What the rest of the config would have to say about layers. */
static json_t *whole_config(json_t *j)
{
    json_t *text = json_object_get(j, "text_config");

    json_object_update_new(text, json_pack("{s:i,s:i,s:i,s:i,s:[s,s],s:{s:i,s:f,s:[i,i,i]}}", "num_hidden_layers", 2,
                                           "head_dim", 8, "num_attention_heads", 1, "num_key_value_heads", 1,
                                           "layer_types", "linear_attention", "full_attention", "rope_parameters",
                                           "rope_theta", 100, "partial_rotary_factor", 1.0, "mrope_section", 2, 1, 1));
    add_sizes(text);
    return j;
}

static void check_head(const case_run *run, const tied_row *r, const st_tensors *file)
{
    const st_model_weight *const *w;
    const st_state_tensor *states;
    int n = st_model_weights(run->run.model, &w), n_states = st_model_states(run->run.model, &states), heads = 0;
    st_error e = {0};

    for (int i = 0; i < n; i++) {
        bool head = strcmp(w[i]->path, "lm_head") == 0;
        const st_file_tensor *t =
            st_tensors_find(file, head ? "lm_head.weight" : "model.language_model.embed_tokens.weight");
        double got[4], want[4];
        if (!head && strcmp(w[i]->path, "embed") != 0) continue;
        heads += head;
        if (!t || st_tensor_to_f64(t, want, &e) || st_model_read(run->run.model, i, ST_READ_WEIGHT, got, &e))
            fail_msg("%s: %s", w[i]->path, e.message);
        if (memcmp(got, want, sizeof got) != 0) fail_msg("%s holds other values than the file", w[i]->path);
    }
    if (heads != !r->tied) fail_msg("%d separate heads", heads);
    for (int i = 0; i < n_states; i++)
        if (r->tied && !states[i].optimizer && strcmp(states[i].name, "lm_head") == 0)
            fail_msg("%s would be saved beside the embedding", states[i].name);
}

static void check_tied(const cases *c, const void *row)
{
    const tied_row *r = row;
    char *set = strrchr(st_path_dir(c->arena, r->file), '/') + 1;
    const char *folder = case_folder(c);
    st_buf text = {0};
    st_tensors *file;
    st_error e = {0};
    case_run run;

    if (!st_path_exists(case_path(c, r->file))) fail_msg("the file is not there");
    write_json(c, folder, "config.json",
               whole_config(json_of(c, st_arena_printf(c->arena, "tied/%s/config.json", set))));
    if (st_hf_config_spec(st_arena_printf(c->arena, "%s/config.json", folder), &text, &e) != ST_OK ||
        st_tensors_open(case_path(c, st_arena_printf(c->arena, "tied/%s/model.safetensors", set)), &file, &e) != ST_OK)
        fail_msg("%s", e.message);
    open_model(&run, text.data, "tokens = 8\n");
    write_weights(c, st_arena_printf(c->arena, "%s/model.safetensors", folder), run.run.model, file);
    int rc = st_checkpoint_load_hf(folder, run.run.model, run.base->log, &e);
    if (r->refused) {
        case_refused(&e, folder, "lm_head.weight");
        if (!case_has(e.hint, r->refused) || !case_has(e.hint, "add the tensor"))
            fail_msg("both ways are not told: %s", e.hint);
    } else {
        if (rc != ST_OK) fail_msg("%s", e.message);
        check_head(&run, r, file);
    }
    st_tensors_close(file);
    case_close(&run);
    st_buf_free(&text);
}

const case_kind tied_kind = CASE_KIND("tied", tied, make_tied, check_tied);
