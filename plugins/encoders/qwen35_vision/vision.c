/* SPDX-License-Identifier: Apache-2.0 */
/* encoders/qwen35_vision/vision.c - the vision tower of Qwen3.5-VL: patches through one product, a learned position
 * table seen bilinearly, blocks as a nested stack of layer plugins, and a merger that turns merge x merge patches
 * into one row of the decoder's width. Units are patches in merge order, so the merger's shuffle is a view. */
#include <stdlib.h>
#include <string.h>
#include "vision.h"

#define NORM_EPS 1e-6

/* Droppable slots are made again in backward: from the batch, or from what is kept before them. */
enum { K_PATCHES, K_COS, K_SIN, K_STEM, K_LAST, K_RSTD, K_MEAN, K_NORMED, K_PRE, K_HIDDEN };
static const st_slot slots[] = {
    [K_PATCHES] = {"patches", ST_DROP, 0}, [K_COS] = {"cos", ST_DROP, 0}, [K_SIN] = {"sin", ST_DROP, 0},
    [K_STEM] = {"stem", 0, 0}, [K_LAST] = {"last", 0, 0}, [K_RSTD] = {"rstd", 0, 0}, [K_MEAN] = {"mean", 0, 0},
    [K_NORMED] = {"normed", ST_DROP, 0}, [K_PRE] = {"pre", 0, 0}, [K_HIDDEN] = {"hidden", ST_DROP, 0},
};

static const st_map block_maps[] = {
    {"hf", "", "blocks.{block}.", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "mixer_norm", "norm1.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "mixer_norm_bias", "norm1.bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "channel_norm", "norm2.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "channel_norm_bias", "norm2.bias", 0, 0, ST_MAP_PLAIN, 0},
};
static const st_map maps[] = {
    {"hf", "", "model.visual.", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "patch", "patch_embed.proj.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "patch_bias", "patch_embed.proj.bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "position", "pos_embed.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "merger.norm", "merger.norm.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "merger.norm_bias", "merger.norm.bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "merger.fc1", "merger.linear_fc1.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "merger.fc1_bias", "merger.linear_fc1.bias", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "merger.fc2", "merger.linear_fc2.weight", 0, 0, ST_MAP_PLAIN, 0},
    {"hf", "merger.fc2_bias", "merger.linear_fc2.bias", 0, 0, ST_MAP_PLAIN, 0},
};

/* ---------------- configure ---------------- */

/* Symbols of a pattern with its repeats written out: (VF)x12 has 24. Wrong patterns are the host's to refuse;
 * counting only must end. */
static int64_t count_layers(const char **at, int depth)
{
    int64_t n = 0, group;

    while (**at && **at != ')') {
        char symbol = *(*at)++;
        if (symbol != '(' || depth > 16) {
            n += symbol != ' ';
            continue;
        }
        group = count_layers(at, depth + 1);
        if (**at == ')')
            ++*at;
        if (**at == 'x' && (*at)[1] >= '0' && (*at)[1] <= '9') {
            char *end;
            long times = strtol(*at + 1, &end, 10);
            group *= times > 0 && times < 100000 ? times : 1;
            *at = end;
        }
        n += group;
    }
    return n;
}

static int check_parameters(const struct vision *m, st_env *e)
{
    int64_t step = m->patch * m->merge;

    if (m->image_mean.n != CHANNELS)
        return ST_ENV_FAIL_KEY(e, "image_mean", ST_E_CONFIG, "image_mean has %lld numbers: give one per channel, %d",
                               (long long)m->image_mean.n, CHANNELS);
    if (m->image_std.n != CHANNELS)
        return ST_ENV_FAIL_KEY(e, "image_std", ST_E_CONFIG, "image_std has %lld numbers: give one per channel, %d",
                               (long long)m->image_std.n, CHANNELS);
    for (int c = 0; c < CHANNELS; c++)
        if (!(m->image_std.v[c] > 0))
            return ST_ENV_FAIL_KEY(e, "image_std", ST_E_CONFIG, "image_std = %g for channel %d: must be above 0",
                                   m->image_std.v[c], c);
    if (m->min_pixels > m->max_pixels)
        return ST_ENV_FAIL_KEY(e, "min_pixels", ST_E_CONFIG, "min_pixels = %lld is above max_pixels = %lld",
                               (long long)m->min_pixels, (long long)m->max_pixels);
    if (m->max_pixels < step * step)
        return ST_ENV_FAIL_KEY(e, "max_pixels", ST_E_CONFIG,
                               "max_pixels = %lld: the smallest picture has %lld pixels, (patch %lld x merge %lld) "
                               "squared",
                               (long long)m->max_pixels, (long long)(step * step), (long long)m->patch,
                               (long long)m->merge);
    return ST_OK;
}

/* The blocks' layers say how wide a head is that they rotate; 0: none does. */
static int add_blocks(struct vision *m, st_env *e)
{
    m->stack = st_stack_id(e, (st_stack_def){.name = "blocks",
                                             .pattern = m->pattern,
                                             .hidden = m->hidden,
                                             .rows = m->units,
                                             .norm = ST_NORM_LAYER,
                                             .alone = 1,
                                             .eps = NORM_EPS,
                                             .maps = block_maps,
                                             .n_maps = (int32_t)ST_COUNT(block_maps),
                                             .max_spans = m->spans});
    m->head_dim = st_stack_rotary_dim(e, m->stack);
    if (e->status == ST_OK && m->head_dim % 4)
        return ST_ENV_FAIL_KEY(e, "pattern", ST_E_CONFIG,
                               "pattern = %s: its layers rotate heads of %d columns, which must be a multiple of 4: "
                               "pairs of columns for rows and for columns of a picture",
                               m->pattern, m->head_dim);
    return e->status;
}

static st_wid vector(st_env *e, const char *name, const char *part, int64_t n, int32_t init)
{
    return st_declare(e, (st_weight){.name = name, .part = part, .nd = 1, .dim = {n}, .init = init});
}

static st_wid matrix(st_env *e, const char *name, const char *part, int64_t out, int64_t in)
{
    return st_declare(e, (st_weight){.name = name, .part = part, .flags = ST_W_BETA, .nd = 2, .dim = {out, in},
                                     .init = ST_INIT_NORMAL});
}

static void declare_weights(struct vision *m, st_env *e)
{
    int64_t wide = m->merge * m->merge * m->hidden;

    m->patch_w = st_declare(e, (st_weight){.name = "patch",
                                           .flags = ST_W_BETA | ST_W_APART, /* from pixels, not from a hidden state */
                                           .nd = 2,
                                           .dim = {m->hidden, vision_patch_values(m)},
                                           .init = ST_INIT_NORMAL});
    m->patch_b = vector(e, "patch_bias", NULL, m->hidden, ST_INIT_ZERO);
    m->table = st_declare(e, (st_weight){.name = "position",
                                         .flags = ST_W_TABLE,
                                         .nd = 2,
                                         .dim = {m->position_side * m->position_side, m->hidden},
                                         .init = ST_INIT_NORMAL,
                                         .a = m->position_init});
    m->norm_w = vector(e, "merger.norm", "merger", m->hidden, ST_INIT_ONE);
    m->norm_b = vector(e, "merger.norm_bias", "merger", m->hidden, ST_INIT_ZERO);
    m->fc1_w = matrix(e, "merger.fc1", "merger", wide, wide);
    m->fc1_b = vector(e, "merger.fc1_bias", "merger", wide, ST_INIT_ZERO);
    m->fc2_w = matrix(e, "merger.fc2", "merger", m->out_hidden, wide);
    m->fc2_b = vector(e, "merger.fc2_bias", "merger", m->out_hidden, ST_INIT_ZERO);
}

static int configure(void *self, st_env *e)
{
    struct vision *m = self;
    const char *at = m->pattern;

    ST_TRY(check_parameters(m, e));
    if (!e->media_caps)
        return ST_ENV_FAIL(e, ST_E_INTERNAL, "[encoder] the row has no capacity for media");
    m->units = e->media_caps->units;
    m->items = e->media_caps->items;
    m->spans = e->media_caps->spans;
    m->out_hidden = e->hidden;
    m->layers = count_layers(&at, 0);
    if (m->units < 1 || m->units % (m->merge * m->merge) || e->media_caps->rows != m->units / (m->merge * m->merge))
        return ST_ENV_FAIL(e, ST_E_INTERNAL,
                           "[encoder] a capacity of %lld patches and %lld rows: merge = %lld needs another",
                           (long long)m->units, (long long)e->media_caps->rows, (long long)m->merge);
    declare_weights(m, e);
    return add_blocks(m, e);
}

static int cost(const void *self, const st_env *e, const st_media_plan *p, double *flops)
{
    *flops = qwen35_vision_flops(self, p->grid);
    return ST_OK;
}

/* ---------------- device ---------------- */

static struct vision_batch device_batch(const struct vision *m, const st_media_batch *b)
{
    const int32_t *meta = b->meta.data;

    return (struct vision_batch){.payload = b->payload.data,
                                 .items = meta,
                                 .unit_item = meta + (int64_t)ITEM_INTS * m->items + 4 * (int64_t)m->spans,
                                 .units = m->units};
}

/* Work of the launches at least: an angle, sine or division as one operation; pixels of a still picture are read once.
 * Rows of the position table are seen by many patches and not counted as bytes. */
static double values(const struct vision *m, int64_t width) { return (double)m->units * (double)width; }
static double bytes_of(int32_t dtype) { return (double)st_dtype_size(dtype); }

static void fill_patches(const struct vision *m, st_step *s, const st_media_batch *b, const st_tensor *out)
{
    const struct vision_kernels *k = ST_KERNELS(s, struct vision_kernels);
    struct vision_patchify a = {
        .batch = device_batch(m, b), .g = vision_geometry(m), .out = out->data, .dtype = out->dtype};

    memcpy(a.mean, m->image_mean.v, sizeof a.mean);
    memcpy(a.std, m->image_std.v, sizeof a.std);
    const double n = values(m, vision_patch_values(m)); /* divided, less the mean, divided */
    const double pixels = n / (double)m->temporal_patch;
    ST_LAUNCH_COST(s, "vision_patchify", 3 * n, n * bytes_of(out->dtype) + pixels, k->patchify(s->q, &a));
}

static void fill_rotary(const struct vision *m, st_step *s, const st_media_batch *b, const st_tensor *cos_t,
                        const st_tensor *sin_t)
{
    const struct vision_kernels *k = ST_KERNELS(s, struct vision_kernels);
    struct vision_rotary a = {.batch = device_batch(m, b), .g = vision_geometry(m), .base = m->base, .cos = cos_t->data,
                              .sin = sin_t->data, .head_dim = m->head_dim, .acc_dtype = cos_t->dtype};

    const double n = values(m, m->head_dim / 2); /* an angle, its cos and sin */
    if (m->head_dim) ST_LAUNCH_COST(s, "vision_rotary", 3 * n, 2 * n * bytes_of(cos_t->dtype), k->rotary(s->q, &a));
}

/* What the blocks see instead of the decoder's row: one span per frame, axial rotary tables. */
struct block_view { st_row row; st_rotary rotary; st_view view; };
static void make_view(const struct vision *m, const st_media_batch *b, st_tensor cos_t, st_tensor sin_t,
                      struct block_view *v)
{
    int32_t *meta = b->meta.data;

    memset(v, 0, sizeof *v);
    v->row.size = sizeof v->row;
    v->row.tokens = v->row.tokens_time = v->row.max_len = (int32_t)m->units;
    v->row.max_segments = m->spans;
    v->row.spans = st_tensor2(meta + (int64_t)ITEM_INTS * m->items, ST_I32, 4, m->spans);
    v->rotary = (st_rotary){.cos = cos_t, .sin = sin_t, .dim = m->head_dim, .interleaved = 0};
    v->view = (st_view){.row = &v->row, .rotary = m->head_dim ? &v->rotary : NULL};
}

static void merger_norm(const struct vision *m, st_step *s, const st_tensor *last, const st_tensor *n,
                        const st_tensor *rstd, const st_tensor *mean)
{
    st_tensor w = st_w(s, m->norm_w), b = st_w(s, m->norm_b);

    ST_OP(s, norm, &(st_norm){.kind = ST_NORM_LAYER, .eps = NORM_EPS, .r = last, .w = &w, .b = &b, .n = n, .rstd = rstd,
                              .mean = mean});
}

/* (units, hidden) seen as (rows, merge * merge * hidden): patches of a merge block lie side by side */
static st_tensor shuffled(const struct vision *m, st_tensor t)
{
    int64_t block = m->merge * m->merge;

    return st_tensor2(t.data, t.dtype, m->units / block, block * m->hidden);
}

/* patches (units, values) -> x (units, hidden), table (side * side, hidden) -> blocks -> features (rows, out_hidden) */
static int forward(const void *self, st_step *s, const st_media_batch *b, const st_tensor *features)
{
    const struct vision *m = self;
    const struct vision_kernels *k = ST_KERNELS(s, struct vision_kernels);
    int64_t block = m->merge * m->merge, rows = m->units / block, wide = block * m->hidden;
    st_tensor patches = st_keep(s, K_PATCHES, s->dtype, m->units, vision_patch_values(m));
    st_tensor cos_t = st_keep(s, K_COS, s->acc_dtype, m->units, m->head_dim / 2);
    st_tensor sin_t = st_keep(s, K_SIN, s->acc_dtype, m->units, m->head_dim / 2);
    st_tensor stem = st_keep(s, K_STEM, s->dtype, m->units, m->hidden);
    st_tensor last = st_keep(s, K_LAST, s->dtype, m->units, m->hidden);
    st_tensor rstd = st_keep(s, K_RSTD, s->acc_dtype, m->units, 1),
              mean = st_keep(s, K_MEAN, s->acc_dtype, m->units, 1);
    st_tensor normed = st_keep(s, K_NORMED, s->dtype, m->units, m->hidden);
    st_tensor pre = st_keep(s, K_PRE, s->dtype, rows, wide), hidden = st_keep(s, K_HIDDEN, s->dtype, rows, wide);
    st_tensor table = st_w(s, m->table), merged = shuffled(m, normed);
    struct block_view v;

    fill_patches(m, s, b, &patches);
    fill_rotary(m, s, b, &cos_t, &sin_t);
    st_linear_bias(s, m->patch_w, m->patch_b, &patches, &stem);
    struct vision_position position = {.batch = device_batch(m, b),
                                       .g = vision_geometry(m),
                                       .width = m->hidden,
                                       .table = table.data,
                                       .x = stem.data,
                                       .dtype = s->dtype,
                                       .acc_dtype = s->acc_dtype};
    const double n = values(m, m->hidden); /* four rows, weighted and added */
    ST_LAUNCH_COST(s, "vision_position", 8 * n, 2 * n * bytes_of(s->dtype), k->position(s->q, &position));

    make_view(m, b, cos_t, sin_t, &v);
    st_stack(s, m->stack, &v.view, &stem, -1, &last);

    merger_norm(m, s, &last, &normed, &rstd, &mean);
    st_linear_act(s, m->fc1_w, m->fc1_b, ST_ACT_GELU_ERF, &merged, &hidden, &pre);
    st_linear_bias(s, m->fc2_w, m->fc2_b, &hidden, features);
    return st_status(s);
}

/* Gradient of the merger: d_features (rows, out_hidden) -> d_last (units, hidden) */
static void merger_bwd(const struct vision *m, st_step *s, const st_tensor *d_features, const st_tensor *d_last)
{
    int64_t block = m->merge * m->merge, rows = m->units / block, wide = block * m->hidden;
    st_tensor last = st_kept(s, K_LAST), rstd = st_kept(s, K_RSTD), mean = st_kept(s, K_MEAN), pre = st_kept(s, K_PRE);
    st_tensor normed = st_kept(s, K_NORMED), hidden = st_kept(s, K_HIDDEN);
    st_tensor d_hidden = st_scratch(s, s->dtype, rows, wide), d_normed = st_scratch(s, s->dtype, m->units, m->hidden);
    st_tensor d_merged = shuffled(m, d_normed), merged;

    if (!hidden.data) {
        hidden = st_scratch(s, s->dtype, rows, wide);
        ST_OP(s, act, ST_ACT_GELU_ERF, &pre, &hidden);
    }
    if (!normed.data) {
        normed = st_scratch(s, s->dtype, m->units, m->hidden);
        merger_norm(m, s, &last, &normed, NULL, NULL);
    }
    merged = shuffled(m, normed);
    st_linear_bias_bwd(s, m->fc2_w, m->fc2_b, &hidden, d_features, &d_hidden, 0);
    st_linear_act_bwd(s, m->fc1_w, m->fc1_b, ST_ACT_GELU_ERF, &merged, &pre, &d_hidden, &d_merged, 0);

    st_tensor w = st_w(s, m->norm_w), bias = st_w(s, m->norm_b);
    st_tensor dw = st_grad(s, m->norm_w, NULL), db = st_grad(s, m->norm_b, NULL);
    ST_OP(s, norm_bwd,
          &(st_norm_bwd){.kind = ST_NORM_LAYER,
                         .eps = NORM_EPS,
                         .r = &last,
                         .w = &w,
                         .b = &bias,
                         .rstd = &rstd,
                         .mean = &mean,
                         .dn = &d_normed,
                         .dr = d_last,
                         .dw = &dw,
                         .db = &db});
}

/* Gradient of the stem: d_stem (units, hidden) into the table, the patch product and its bias */
static void stem_bwd(const struct vision *m, st_step *s, const st_media_batch *b, const st_tensor *d_stem)
{
    const struct vision_kernels *k = ST_KERNELS(s, struct vision_kernels);
    st_tensor d_table = st_grad(s, m->table, NULL), patches = st_kept(s, K_PATCHES);
    struct vision_position position = {.batch = device_batch(m, b), .g = vision_geometry(m), .width = m->hidden,
                                       .dx = d_stem->data, .d_table = d_table.data, .dtype = s->dtype,
                                       .acc_dtype = s->acc_dtype};

    const double n = values(m, m->hidden);
    if (d_table.data)
        ST_LAUNCH_COST(s, "vision_position_bwd", 8 * n, n * bytes_of(s->dtype), k->position_bwd(s->q, &position));
    if (!patches.data) {
        patches = st_scratch(s, s->dtype, m->units, vision_patch_values(m));
        fill_patches(m, s, b, &patches);
    }
    st_linear_bias_bwd(s, m->patch_w, m->patch_b, &patches, d_stem, NULL, 0);
}

static int backward(const void *self, st_step *s, const st_media_batch *b, const st_tensor *d_features)
{
    const struct vision *m = self;
    st_tensor cos_t = st_kept(s, K_COS), sin_t = st_kept(s, K_SIN);
    st_tensor d_last = st_scratch(s, s->dtype, m->units, m->hidden),
              d_stem = st_scratch(s, s->dtype, m->units, m->hidden);
    struct block_view v;
    size_t mark;

    if (!cos_t.data || !sin_t.data) {
        cos_t = st_scratch(s, s->acc_dtype, m->units, m->head_dim / 2);
        sin_t = st_scratch(s, s->acc_dtype, m->units, m->head_dim / 2);
        fill_rotary(m, s, b, &cos_t, &sin_t);
    }
    mark = st_mark(s);
    merger_bwd(m, s, d_features, &d_last);
    st_release(s, mark);
    make_view(m, b, cos_t, sin_t, &v);
    st_stack_bwd(s, m->stack, &v.view, &d_last, &d_stem);
    stem_bwd(m, s, b, &d_stem);
    return st_status(s);
}

/* ---------------- descriptor ---------------- */

enum { FIXED = ST_PF_FIXED };
static const st_param params[] = {
    ST_STR(struct vision, pattern, NULL, ST_PF_REQUIRED | FIXED, "layers of the blocks, such as (VF)x12"),
    ST_INT(struct vision, hidden, NULL, 1, 65536, "columns", ST_PF_REQUIRED | FIXED, "width of the blocks"),
    ST_INT(struct vision, patch, "16", 1, 1024, "pixels", FIXED, "side of a patch"),
    ST_INT(struct vision, temporal_patch, "2", 1, 64, "frames", FIXED,
           "frames of a patch; a still picture is repeated"),
    ST_INT(struct vision, merge, "2", 1, 64, "patches", FIXED, "side of the square of patches that becomes one token"),
    ST_INT(struct vision, position_side, "48", 1, 4096, "", FIXED,
           "the learned position table has this number squared rows"),
    ST_FLOAT(struct vision, base, "10000", 1, 1e12, "", FIXED, "rotary base of the blocks"),
    ST_INT(struct vision, min_pixels, "65536", 1, 2147483647, "pixels", 0, "smaller pictures are enlarged"),
    ST_INT(struct vision, max_pixels, "16777216", 1, 2147483647, "pixels", 0, "larger pictures are reduced"),
    ST_FLOAT(struct vision, max_ratio, "200", 1, 1e9, "", 0, "pictures whose sides differ more often are set aside"),
    ST_FLOATS(struct vision, image_mean, "0.5,0.5,0.5", -1000, 1000, 0, "subtracted per channel from values of 0 to 1"),
    ST_FLOATS(struct vision, image_std, "0.5,0.5,0.5", 0, 1000, 0, "then divided by, per channel"),
    ST_STR(struct vision, image_token, "<|image_pad|>", 0, "placeholder, one per merged patch"),
    ST_STR(struct vision, vision_start, "<|vision_start|>", 0, "text in front of a picture's placeholders"),
    ST_STR(struct vision, vision_end, "<|vision_end|>", 0, "text behind them"),
    ST_FLOAT(struct vision, position_init, "0", 0, 100, "", 0,
             "deviation of the position table at start; 0: as other weights"),
};

static const st_encoder_ops ops = {
    .size = sizeof ops, .n_slots = ST_COUNT(slots), .n_maps = ST_COUNT(maps), .slots = slots, .maps = maps,
    .configure = configure, .capacity = qwen35_vision_capacity, .measure = qwen35_vision_measure,
    .layout = qwen35_vision_layout, .prepare = qwen35_vision_prepare, .collate = qwen35_vision_collate,
    .forward = forward, .backward = backward, .cost = cost, .picture = qwen35_vision_picture,
};

ST_PLUGIN_V1(ST_KIND_ENCODER, struct vision, ops, ST_PARAMS(params),
    ST_KERNEL_TABLE(QWEN35_VISION_IFACE, struct vision_kernels),
    .caps = ST_CAP_TRAIN,
    .name = "qwen35_vision",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .author = "the strata authors",
    .summary = "the vision tower of Qwen3.5-VL",
    .description = "Pictures of any size become patches, pass blocks of layer plugins and are merged into rows of "
                   "the decoder's width.")
