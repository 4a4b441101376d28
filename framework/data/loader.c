/* SPDX-License-Identifier: Apache-2.0 */
/* data/loader.c - opening a loader: binds its sections, checks them against the model, opens the data set. */
#include "data/loader_priv.h"

#include <stdlib.h>
#include <string.h>

typedef struct tokenizer_keys {
    const char *path;
} tokenizer_keys;
typedef struct split_keys {
    const char *split;
    int64_t limit;
} split_keys;

static const st_param tokenizer_params[] = {
    ST_PARAM(tokenizer_keys, path, ST_P_PATH, NULL, 0, 0, "", NULL, 0,
             "tokenizer.json, byte-level BPE; only data of ready token ids can do without"),
};
static const st_param data_params[] = {
    ST_CHOICE(st_data_keys, on_bad, "skip", "stop|skip", 0,
              "a sample that cannot be used: end the run, or set it aside, name it and count it"),
    ST_INT(st_data_keys, max_bad, "100", 0, 1e15, "samples", 0, "with skip: more of them than this end the run"),
    ST_INT(st_data_keys, workers, "0", 0, 1024, "threads", ST_PF_LOCAL,
           "threads that prepare samples; 0: the host's. Results do not depend on it"),
    ST_BOOL(st_data_keys, prefetch, "yes", ST_PF_LOCAL,
            "prepare the next step while the model runs. Results do not depend on it"),
    ST_PARAM(st_data_keys, cache, ST_P_SIZE, "512MiB", 0, 1e15, "bytes", NULL, ST_PF_LOCAL,
             "prepared samples kept in memory over epochs"),
    ST_CHOICE(st_data_keys, alpha, "white", "drop|white", 0,
              "transparent pixels: drop shows what lies under them, white lays them on white"),
    ST_INT(st_data_keys, max_image_pixels, "100000000", 1, 1e12, "pixels", 0,
           "larger pictures are unusable, told from the header"),
};
static const st_param split_params[] = {
    ST_STR(split_keys, split, NULL, 0, "name of the part of the data; default: the section's name behind the dot"),
    ST_INT(split_keys, limit, "0", 0, 1e15, "records", 0, "only the first so many; 0: all"),
};

#define KEYS(table) (table), ST_COUNT(table)
int st_data_key_tables(const st_key_table **out)
{
    static const st_key_table list[] = {
        {"tokenizer", "Text to token ids.", KEYS(tokenizer_params), 0, NULL},
        {"data", "From records to packed rows.", KEYS(data_params), 0, NULL},
        {"dataset.NAME", "Where samples come from: [dataset.train] must be there, [dataset.valid] may.",
         KEYS(split_params), ST_KIND_DATASET, ""},
    };
    *out = list;
    return (int)ST_COUNT(list);
}

#define BIND(l, section, table, keys, d) bind((l), section, table, ST_COUNT(table), keys, d)
static int bind(st_loader *l, const char *section, const st_param *params, uint32_t n, void *keys, st_diags *d)
{
    const st_table t = {params, n, sizeof *params, "the data path"};
    static const char *const extra[] = {"plugin", NULL};
    return st_spec_bind(l->context.spec, section, &t, keys, section == l->section ? extra : NULL, d);
}

/* ---- shared sections ---- */

static int open_tokenizer(st_loader *l, st_diags *d)
{
    st_spec *spec = l->context.spec;
    tokenizer_keys k = {0};
    st_error e = {0};
    ST_TRY(BIND(l, "tokenizer", tokenizer_params, &k, d));
    const st_value *v = st_spec_get(spec, "tokenizer", "path");
    if (!k.path || !k.path[0]) return ST_OK;
    if (st_tokenizer_open(k.path, &l->tokenizer, &e) != ST_OK) {
        if (e.file[0] && e.line) return st_diags_add(d, &e, NULL, false); /* a place inside tokenizer.json */
        return st_spec_fail(spec, d, v, e.hint, "[tokenizer] path: %s%s%s", e.file, e.file[0] ? ": " : "", e.message);
    }
    if (l->context.vocab > 0 && st_tokenizer_size(l->tokenizer) > l->context.vocab)
        return st_spec_fail(spec, d, v, "raise [stack] vocab, or take the model's own tokenizer",
                            "the tokenizer has %d tokens, the model's vocabulary %lld", st_tokenizer_size(l->tokenizer),
                            (long long)l->context.vocab);
    return ST_OK;
}

static int check_placeholder(st_loader *l, st_diags *d)
{
    st_error e = {0};
    st_arena *a = st_arena_create(0);
    st_worker w = {.size = sizeof w, .host = &l->context.base->host, .arena = a, .error = &e};
    if (!l->preparer.encoder_self || !l->tokenizer || !a) {
        st_arena_destroy(a);
        return ST_OK;
    }
    int rc = st_chat_check_media(l->tokenizer, &w, &l->preparer.encoder, l->preparer.encoder_self);
    st_arena_destroy(a);
    if (rc == ST_OK) return ST_OK;
    return st_spec_fail_section(l->context.spec, d, "encoder",
                                e.hint[0] ? e.hint : "its tokens must be in tokenizer.json", "[encoder] %s", e.message);
}

static void take_plugins(st_loader *l)
{
    st_preparer *p = &l->preparer;
    const st_data_context *c = &l->context;
    if (c->position) {
        st_ops_copy(c->position->plugin, &p->position, sizeof p->position);
        p->position_self = c->position->self;
    }
    if (c->encoder) {
        st_ops_copy(c->encoder->plugin, &p->encoder, sizeof p->encoder);
        p->encoder_self = c->encoder->self;
    }
    p->base = c->base;
    p->shape = c->shape;
    p->vocab = c->vocab;
}

static int bind_shared(st_loader *l, st_diags *d)
{
    int rc[4] = {BIND(l, "data", data_params, &l->keys, d), open_tokenizer(l, d), ST_OK, ST_OK};
    rc[2] = st_chat_bind(l->context.spec, l->tokenizer, &l->preparer.chat, d);
    rc[3] = check_placeholder(l, d);
    l->preparer.tokenizer = l->tokenizer;
    l->preparer.image = (st_image_rules){l->keys.alpha, l->keys.max_image_pixels};
    for (int i = 0; i < 4; i++)
        if (rc[i] != ST_OK) return rc[i];
    return ST_OK;
}

/* Two loaders read the shared sections; what the first one found is not told again. */
static bool is_known(const st_diags *d, const st_diag *x)
{
    for (int32_t i = 0; i < d->n; i++) {
        const st_error *a = &d->item[i].error, *b = &x->error;
        if (a->line == b->line && a->column == b->column && strcmp(a->file, b->file) == 0 &&
            strcmp(a->message, b->message) == 0)
            return true;
    }
    return false;
}

static int bind_shared_once(st_loader *l, st_diags *d)
{
    st_diags *own = calloc(1, sizeof *own);
    if (!own) return bind_shared(l, d);
    int rc = bind_shared(l, own);
    for (int32_t i = 0; i < own->n; i++)
        if (!is_known(d, &own->item[i]))
            st_diags_add(d, &own->item[i].error, own->item[i].line_text, own->item[i].warning);
    free(own);
    return rc;
}

/* ---- the data set ---- */

/* A message that begins "KEY = " is about that key. */
static int refused(const st_loader *l, const st_error *e, st_diags *d)
{
    const st_spec *spec = l->context.spec;
    const char *words = e->code ? e->message : "the data set cannot be opened", *end = strstr(words, " = ");
    char key[64];

    snprintf(key, sizeof key, "%.*s", end ? (int)(end - words) : 0, words);
    if (*key && st_spec_param(spec, l->section, key))
        return st_spec_fail_key(spec, d, l->section, key, e->hint, "[%s] %s", l->section, words);
    return st_spec_fail_section(spec, d, l->section, e->hint, "[%s] %s%s%s", l->section, e->file, e->file[0] ? ": " : "",
                                words);
}

/* Before any record is read: a data set of ready ids may know how large they get. */
static int check_ids(const st_loader *l, st_diags *d)
{
    const st_dataset_ops *ops = &l->preparer.dataset;
    int64_t ids = ops->ids ? ops->ids(l->instance.self) : 0, vocab = l->context.vocab;
    char hint[64];

    if (vocab < 1 || ids <= vocab) return ST_OK;
    snprintf(hint, sizeof hint, "vocab = %lld, or raise [stack] vocab", (long long)vocab);
    return st_spec_fail_key(l->context.spec, d, l->section, "vocab", hint,
                            "[%s] its tokens have ids 0 to %lld, the model's vocabulary 0 to %lld", l->section,
                            (long long)ids - 1, (long long)vocab - 1);
}

static int open_dataset(st_loader *l, const char *split, st_diags *d)
{
    st_error e = {0};
    st_dataset_ops *ops = &l->preparer.dataset;
    st_worker w = {.size = sizeof w, .host = &l->context.base->host, .arena = l->arena, .error = &e};
    const st_plugin *plugin = l->instance.plugin;
    st_ops_copy(plugin, ops, sizeof *ops);
    l->preparer.dataset_self = l->instance.self;
    if ((plugin->caps & ST_CAP_STREAM) || !ops->get || !ops->count)
        return st_spec_fail_section(l->context.spec, d, l->section, "use a data set with records",
                                    "[%s] the data set '%s' is a stream: not offered", l->section, plugin->name);
    int rc = ops->open ? ops->open(l->instance.self, &w, split) : ST_OK;
    if (rc != ST_OK) return refused(l, &e, d);
    l->opened = 1;
    l->count = ops->count(l->instance.self);
    return check_ids(l, d);
}

/* Without a tokenizer a data set must give ready ids; its first usable record tells. */
static int check_ready(st_loader *l, st_diags *d)
{
    int rc = ST_OK;
    const st_value *v = st_spec_get(l->context.spec, "tokenizer", "path");
    if (l->tokenizer || (v && v->text[0])) return ST_OK;
    for (int64_t i = 0; i < l->count && i < 16; i++) {
        st_error e = {0};
        st_sample s = {.size = sizeof s};
        st_worker w = {.size = sizeof w, .host = &l->context.base->host, .arena = l->arena, .error = &e};
        if (l->preparer.dataset.get(l->instance.self, &w, i, &s) != ST_OK) continue;
        if (s.n_ids == 0)
            rc = st_spec_fail_section(l->context.spec, d, l->section, "add [tokenizer] with path = .../tokenizer.json",
                                      "[%s] gives text, but there is no [tokenizer] path", l->section);
        break;
    }
    return rc;
}

static int open_feed(st_loader *l, int shuffle, st_diags *d)
{
    st_error e = {0};
    uint64_t seed = st_hash64(l->section, strlen(l->section), l->context.seed);
    if (l->keys.workers > 0 && !(l->threads = st_threads_create((int)l->keys.workers)))
        return st_diags_add(d, &(st_error){.code = ST_E_NOMEM, .message = "no memory for data threads"}, NULL, false);
    st_feed_settings set = {seed,    l->count,         l->keys.cache,
                            shuffle, l->keys.prefetch, l->threads ? l->threads : l->context.base->threads};
    l->told = calloc((size_t)l->count, 1);
    if (l->told && st_feed_open(&l->preparer, &set, &l->feed, &e) == ST_OK) return ST_OK;
    if (!l->told) st_fail(&e, ST_E_NOMEM, "no memory for a list of %lld records", (long long)l->count);
    return st_diags_add(d, &e, NULL, false);
}

static int open_records(st_loader *l, int shuffle, st_diags *d)
{
    split_keys k = {0};
    const char *dot = strrchr(l->section, '.');
    ST_TRY(
        st_instance_create(l->context.registry, l->context.spec, ST_KIND_DATASET, NULL, l->section, &l->instance, d));
    ST_TRY(BIND(l, l->section, split_params, &k, d));
    ST_TRY(open_dataset(l, k.split ? k.split : dot ? dot + 1 : l->section, d));
    if (k.limit > 0 && k.limit < l->count) l->count = k.limit;
    if (l->count < 1)
        return st_spec_fail_section(l->context.spec, d, l->section, "", "[%s] the data set has no records", l->section);
    ST_TRY(check_ready(l, d));
    return l->context.shape ? open_feed(l, shuffle, d) : ST_OK; /* without a model: only looked at */
}

int st_loader_open(const st_data_context *c, const char *section, int shuffle, st_loader **out, st_diags *d)
{
    st_arena *arena = st_arena_create(0);
    st_loader *l = arena ? ST_NEW(arena, st_loader) : NULL;
    *out = NULL;
    if (l) l->section = st_arena_strdup(arena, section);
    if (!l || !l->section) {
        st_arena_destroy(arena);
        return st_diags_add(d, &(st_error){.code = ST_E_NOMEM, .message = "no memory for a loader"}, NULL, false);
    }
    l->arena = arena;
    l->context = *c;
    l->shuffle = shuffle;
    take_plugins(l);
    int shared = bind_shared_once(l, d), own = open_records(l, shuffle, d);
    if (shared == ST_OK && own == ST_OK) {
        l->end_of_turn = l->tokenizer ? st_chat_end_of_turn(&l->preparer.chat, l->tokenizer) : -1;
        *out = l;
        return ST_OK;
    }
    st_loader_close(l);
    return shared != ST_OK ? shared : own;
}

void st_loader_close(st_loader *l)
{
    if (!l) return;
    st_feed_close(l->feed);
    st_threads_destroy(l->threads);
    if (l->opened && l->preparer.dataset.close) l->preparer.dataset.close(l->instance.self);
    st_tokenizer_close(l->tokenizer);
    free(l->told);
    st_arena_destroy(l->arena);
}

int64_t st_loader_count(const st_loader *l) { return l->count; }

int64_t st_loader_samples_bytes(const st_loader *l)
{
    enum { LOOKED_AT = 8 };
    int64_t n = l->count < LOOKED_AT ? l->count : LOOKED_AT;
    double bytes = 0;
    for (int64_t i = 0; i < n; i++) {
        st_kept_sample *s = st_prepare_kept(&l->preparer, i * l->count / n);
        if (s) bytes += (double)s->bytes;
        free(s);
    }
    bytes = n > 0 ? bytes / (double)n * (double)l->count : 0;
    return bytes < (double)l->keys.cache ? (int64_t)bytes : l->keys.cache;
}

const st_tokenizer *st_loader_tokenizer(const st_loader *l) { return l->tokenizer; }

const st_host *st_loader_host(const st_loader *l) { return &l->context.base->host; }

int32_t st_loader_end_of_turn(const st_loader *l) { return l->end_of_turn; }
