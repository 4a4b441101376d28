/* SPDX-License-Identifier: Apache-2.0 */
/* model/test_family.c - the specs of the public sizes against published figures: parameters and tensors by their file
 * names, bytes of the files, FLOPs as Megatron counts them; and that a plan is what a run takes. */
#include "checkpoint/checkpoint.h"
#include "fixture.h"
#include <math.h>

/* Parameters and tensors: public tables of the checkpoints, confirmed by the totals that safetensors files report.
 * The depth's experts lie one by one in the 397b's files, and by its header's size in the 122b's; in the 35b's together.
 * FLOPs: Megatron's own function for one sequence of 4096 tokens, without and with one multi-token-prediction depth. */
typedef struct published {
    const char *name;
    double text, mtp, visual, bytes;
    int tensors, each; /* each: the depth has a tensor for each expert */
    double flops, flops_mtp;
} published;
static const published sizes[] = {
    {"0.8b", 752393024, 20452864, 100592896, 1746882752, 488, 0, 19881000960000, 26735768764416},
    {"2b", 1881825088, 60828160, 331416576, 4548144832, 632, 0, 47327452594176, 61217376829440},
    {"4b", 4205751296, 120599552, 333514240, 9319737856, 738, 0, 105830141657088, 124249108905984},
    {"9b", 8953803264, 243290624, 456010480, 19306216416, 775, 0, 196282152910848, 226432823328768},
    {"27b", 26895998464, 424699392, 460730096, 55562872800, 1199, 0, 630970424229888, 671209972826112},
    {"35b-a3b", 34660610688, 844640768, 446571248, 71903655008, 1045, 0, 75497472000000, 89567784861696},
    {"122b-a10b", 122111526912, 2523679232, 451290864, 250173007840, 1949, 1, 226637371146240, 249611151212544},
    {"397b-a17b", 396346350336, 6595568128, 456010480, 806795875168, 2924, 1, 402900815708160, 433876119846912},
};

/* set: an override, NULL for none */
static fixture *open_size(const char *name, const char *set)
{
    fixture *f = calloc(1, sizeof *f);
    st_diags d = {0};
    st_search search = {0};
    char path[1024];
    int rc;

    snprintf(path, sizeof path, "%s/specs/qwen35-vl-%s.ini", getenv("ST_SRCDIR"), name);
    f->arena = st_arena_create(0);
    if (st_base_create(&f->base, stderr, 2, 1) != ST_OK) fail_msg("no base");
    rc = st_spec_load(path, &set, set ? 1 : 0, &f->spec, &d);
    if (rc == ST_OK) rc = st_registry_open(f->base, &search, &f->registry, &d);
    if (rc == ST_OK) rc = st_model_build(f->base, f->spec, f->registry, 1, &f->model, &d);
    if (rc == ST_OK) return f;
    st_diags_print(&d, stderr);
    fail_msg("%s was refused", path);
    return NULL;
}

/* ---- inventory ---- */

/* A folder whose depth has a tensor for each expert, while the trunk's lie together. */
static bool has_depth_experts(void *each, const char *name)
{
    return *(const int *)each && !strncmp(name, "mtp.layers.0.mlp.experts.0.", 27);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

/* The published files hold these in four bytes, all else in two. */
static bool is_wide(const char *name)
{
    return ends_with(name, ".A_log") || ends_with(name, ".linear_attn.norm.weight");
}

static void compare_inventory(const published *p)
{
    fixture *f = open_size(p->name, NULL);
    const st_model_weight *const *w;
    const st_file_name *names;
    int each = p->each, n_weights = st_model_weights(f->model, &w);
    int n = st_model_file_names(f->model, "hf", st_family_maps(), has_depth_experts, &each, &names);
    double text = 0, mtp = 0, visual = 0, bytes = 0, all = 0;

    for (int i = 0; i < n; i++) {
        double k = (double)st_weight_part_count(w[names[i].weight], &names[i]);
        if (!strncmp(names[i].file_name, "mtp.", 4)) mtp += k;
        else if (!strncmp(names[i].file_name, "model.visual.", 13)) visual += k;
        else text += k;
        bytes += k * (is_wide(names[i].file_name) ? 4 : 2);
    }
    for (int i = 0; i < n_weights; i++) all += (double)w[i]->count;
    assert_int_equal(n, p->tensors);
    assert_true(text == p->text);
    assert_true(mtp == p->mtp);
    assert_true(visual == p->visual);
    assert_true(bytes == p->bytes);
    assert_true(all == text + mtp + visual); /* no weight without a name */
    fixture_close(f);
}

static void inventories_are_the_published_ones(void **state)
{
    for (size_t i = 0; i < ST_COUNT(sizes); i++) compare_inventory(&sizes[i]);
}

/* ---- FLOPs ---- */

static double megatron_flops(const char *name, const char *set)
{
    const st_row_stats row = {4096, 4096.0 * 4096.0};
    fixture *f = open_size(name, set);
    const st_model_layer *layers;
    int n = st_model_layers(f->model, &layers);
    st_layer_cost *c = calloc((size_t)n, sizeof *c);
    st_error e = {0};
    double sum = 0;

    need_ok(st_model_costs(f->model, &row, c, &e), &e);
    for (int i = 0; i < n; i++) sum += c[i].megatron;
    free(c);
    fixture_close(f);
    return sum;
}

static void flops_are_megatrons(void **state)
{
    for (size_t i = 0; i < ST_COUNT(sizes); i++) {
        const published *p = &sizes[i];
        double without = megatron_flops(p->name, "stack.mtp_depths=0"), with = megatron_flops(p->name, NULL);
        assert_true(fabs(without - p->flops) <= 1e-12 * p->flops);
        assert_true(fabs(with - p->flops_mtp) <= 1e-12 * p->flops_mtp);
    }
}

/* Megatron's figures for one layer, one sequence of 4096 tokens, hidden 1024. */
static void flops_of_a_layer_are_megatrons(void **state)
{
    static const char spec[] =
        "[run]\nbackend = cpu\n[stack]\npattern = G*-E\nhidden = 1024\nvocab = 248320\n"
        "[layer.G]\nkey_heads = 16\nvalue_heads = 16\nkey_dim = 128\nvalue_dim = 128\nconv_kernel = 4\n"
        "[layer.*]\nheads = 8\nkv_heads = 2\nhead_dim = 256\n[layer.-]\nwidth = 3584\n"
        "[layer.E]\nexperts = 16\ntop_k = 2\nwidth = 512\nshared_width = 512\n"
        "[position]\nplugin = rope\n[optimizer]\nplugin = adamw\n[batch]\ntokens = 4096\n";
    static const struct {
        const char *plugin;
        double flops;
    } want[] = {{"gated_delta_net", 284877127680},
                {"attention", 335007449088},
                {"swiglu", 270582939648},
                {"moe", 115964116992},
                {"lm", 6249177415680}};
    const st_row_stats row = {4096, 4096.0 * 4096.0};
    const st_model_layer *layers;
    st_layer_cost c[16];
    st_diags d = {0};
    st_error e = {0};
    fixture *f = fixture_build(spec, 1, &d);

    if (!f) st_diags_print(&d, stderr);
    assert_non_null(f);
    int n = st_model_layers(f->model, &layers);
    assert_true(n <= (int)ST_COUNT(c));
    need_ok(st_model_costs(f->model, &row, c, &e), &e);
    for (size_t k = 0; k < ST_COUNT(want); k++) {
        int found = 0;
        for (int i = 0; i < n; i++) {
            if (!layers[i].plugin || strcmp(layers[i].plugin->name, want[k].plugin) != 0) continue;
            assert_true(fabs(c[i].megatron - want[k].flops) <= 1e-12 * want[k].flops);
            found++;
        }
        assert_int_equal(found, 1);
    }
    fixture_close(f);
}

/* What planning counts falls on the parts; where a layer is products and little else, its formula agrees. */
static void counted_flops_fall_on_parts(void **state)
{
    fixture *f = open_size("0.8b", NULL);
    st_row_stats row = {4096, 4096.0 * 4096.0};
    const st_model_layer *layers;
    int n = st_model_layers(f->model, &layers);
    st_layer_cost *c = calloc((size_t)n, sizeof *c);
    st_error e = {0};
    double sum = 0;

    need_ok(st_model_plan(f->model, &e), &e);
    need_ok(st_model_costs(f->model, &row, c, &e), &e);
    for (int i = 0; i < n; i++) {
        sum += c[i].counted;
        if (layers[i].depth >= 0 && !strcmp(layers[i].plugin->name, "swiglu"))
            assert_true(fabs(c[i].counted / c[i].formula - 1) < 0.01);
    }
    assert_true(fabs(sum / st_model_flops(f->model) - 1) < 1e-12);
    free(c);
    fixture_close(f);
}

/* ---- memory ---- */

typedef struct taken {
    int (*alloc)(st_device *, uint32_t kind, size_t, void **);
    size_t bytes;
} taken;
static taken seen; /* the backend's alloc has no context of ours */

static int count_alloc(st_device *d, uint32_t kind, size_t bytes, void **out)
{
    seen.bytes += bytes;
    return seen.alloc(d, kind, bytes, out);
}

static void compare_plan(const char *spec)
{
    st_diags d = {0};
    st_error e = {0};
    fixture *f = fixture_build(spec, 1, &d);
    const int lengths[] = {40, 30, 20, 0};
    const st_schedule schedule = {.size = sizeof schedule, .step = 1, .lr = 1e-3, .decay = 1, .lr_scale = 1};
    st_packed_row *row;
    const st_packed_row *rows[2];
    st_plan_bytes plan;
    st_step_result r;
    double loss;
    int64_t count;

    assert_non_null(f);
    need_ok(st_model_plan(f->model, &e), &e);
    st_model_plan_bytes(f->model, &plan);
    seen = (taken){f->model->be.alloc, 0};
    f->model->be.alloc = count_alloc;
    need_ok(st_model_open(f->model, &e), &e);
    assert_true(seen.bytes + plan.workspace == plan.total);
    need_ok(st_model_init(f->model, 7, &e), &e);
    row = make_row(f, lengths, 0, 1, 0);
    rows[0] = rows[1] = row;
    f->model->keep.high = f->model->scratch.high = 0;
    need_ok(st_model_step(f->model, rows, 2, &schedule, 1, &r, &e), &e);
    size_t keep = f->model->keep.high, scratch = f->model->scratch.high;
    need_ok(st_model_evaluate(f->model, row, &loss, &count, NULL, NULL, &e), &e);
    if (f->model->keep.high > keep) keep = f->model->keep.high;
    if (f->model->scratch.high > scratch) scratch = f->model->scratch.high;
    assert_true(keep == plan.kept && scratch == plan.scratch);
    assert_true(seen.bytes + plan.workspace == plan.total); /* a step takes nothing more */
    fixture_close(f);
}

static void a_plan_is_what_a_run_takes(void **state)
{
    compare_plan(TEXT_MODEL TEXT_BATCH);
    compare_plan("[run]\nbackend = cpu\n[stack]\npattern = GE*E/*E\nhidden = 16\nvocab = 23\n"
                 "[layer.G]\nkey_heads = 2\nvalue_heads = 4\nkey_dim = 4\nvalue_dim = 4\n"
                 "[layer.*]\nheads = 4\nkv_heads = 2\nhead_dim = 8\n"
                 "[layer.E]\nexperts = 5\ntop_k = 2\nwidth = 6\nshared_width = 8\n"
                 "[position]\nplugin = rope\n[optimizer]\nplugin = adamw\n" TEXT_BATCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inventories_are_the_published_ones), cmocka_unit_test(flops_are_megatrons),
        cmocka_unit_test(flops_of_a_layer_are_megatrons),     cmocka_unit_test(counted_flops_fall_on_parts),
        cmocka_unit_test(a_plan_is_what_a_run_takes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
