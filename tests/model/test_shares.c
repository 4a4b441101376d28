/* SPDX-License-Identifier: Apache-2.0 */
/* model/test_shares.c - the data axis: shares of the optimizer's state, what ranks send each other, and that the shares
 * of all ranks together make the step of one. No run has more ranks than one yet: their models stand side by side. */
#include "fixture.h"
#include <math.h>

enum { RANKS = 3 };
#define BATCH "[batch]\ntokens = 96\nrows = 6\nsequences = 6\n"
#define MODEL(run, optimizer, more) \
    "[run]\n" run "[stack]\npattern = G-*-\nhidden = 16\nvocab = 23\n" \
    "[layer.G]\nkey_heads = 2\nvalue_heads = 4\nkey_dim = 4\nvalue_dim = 4\n" \
    "[layer.*]\nheads = 4\nkv_heads = 2\nhead_dim = 8\n[layer.-]\nwidth = 24\n[init]\nstd = 0.3\n" \
    "[optimizer]\n" optimizer BATCH more
#define F64 "precision = f64\npoison = yes\n"
#define ADAMW "plugin = adamw\nweight_decay = 0.1\n"
#define MUON "plugin = muon\nweight_decay = 0.1\n"

static fixture *planned(const char *spec, int32_t ranks, int32_t rank)
{
    st_diags d = {0};
    st_error e = {0};
    fixture *f = fixture_build_for(spec, 1, ranks, &d);

    if (!f) {
        st_diags_print(&d, stderr);
        fail_msg("refused");
    }
    f->model->mesh.data.rank = rank;
    need_ok(st_model_plan(f->model, &e), &e);
    return f;
}

static int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* Elements of the weights that decay or do not, each filled up to 64. */
static int64_t elements(const st_model *m, bool decays)
{
    int64_t n = 0;

    for (int32_t i = 0; i < m->n_weights; i++)
        if ((m->weights[i]->pub.decay != 0) == decays) n += up(m->weights[i]->pub.count, 64);
    return n;
}

/* AdamW keeps two numbers per element, of which a rank has its share; in f32 there is no master beside the weight. */
static void flat_groups_are_cut_into_equal_blocks(void **state)
{
    static const int32_t ranks[] = {1, 2, 3, 6};

    for (size_t i = 0; i < ST_COUNT(ranks); i++)
        for (int zero = 0; zero < 2; zero++) {
            char spec[2048];
            st_plan_bytes p;
            int64_t state_bytes = 0, all = 0;
            snprintf(spec, sizeof spec, MODEL("precision = f32\n", ADAMW, "[parallel]\nzero = %d\n"), zero);
            fixture *f = planned(spec, ranks[i], 0);
            for (int decays = 0; decays < 2; decays++) {
                int64_t n = elements(f->model, decays), share = zero ? up((n + ranks[i] - 1) / ranks[i], 64) : n;
                state_bytes += 2 * up(share * 4, 256);
                all += up((zero ? ranks[i] * share : n) * 4, 256);
            }
            st_model_plan_bytes(f->model, &p);
            assert_int_equal(p.optimizer, state_bytes);
            assert_int_equal(p.gradients, all);
            assert_int_equal(p.weights, all);
            assert_int_equal(st_model_micros(f->model), 6 / ranks[i]);
            fixture_close(f);
        }
}

/* Random bits are numbered in the bucket of all ranks, by a seed that is the bucket's own. */
static void compare_random_bits(const char *spec)
{
    fixture *one = planned(spec, 1, 0);
    const opt_bucket *whole = one->model->buckets;
    int32_t n = one->model->n_buckets;

    st_model_seed(one->model, 5);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < i; k++) assert_true(whole[i].unit.seed != whole[k].unit.seed);
    for (int rank = 0; rank < 3; rank++) {
        fixture *f = planned(spec, 3, rank);
        const opt_bucket *own = f->model->buckets;
        assert_int_equal(f->model->n_buckets, n);
        st_model_seed(f->model, 5);
        for (int32_t i = 0; i < n; i++) {
            assert_true(own[i].unit.seed == whole[i].unit.seed);
            assert_int_equal(own[i].unit.first, rank * own[i].share);
        }
        for (int32_t i = 0; i < f->model->n_weights; i++)
            assert_int_equal(f->model->weights[i]->offset, one->model->weights[i]->offset);
        st_model_seed(f->model, 6);
        for (int32_t i = 0; i < n; i++) assert_true(own[i].unit.seed != whole[i].unit.seed);
        fixture_close(f);
    }
    fixture_close(one);
}

static void random_bits_do_not_depend_on_ranks(void **state)
{
    compare_random_bits(MODEL("precision = f32\n", ADAMW, ""));
    compare_random_bits(MODEL("precision = f32\n", ADAMW, "[parallel]\nzero = 3\n"));
}

/* Every weight of a group of matrices has one owner, and lies in its block. */
static void matrices_have_one_owner(void **state)
{
    int owners[128] = {0}, units = 0;
    fixture *one = planned(MODEL(F64, MUON, ""), 1, 0);

    for (int32_t r = 0; r < RANKS; r++) {
        fixture *f = planned(MODEL(F64, MUON, ""), RANKS, r);
        const st_model *m = f->model;
        for (int32_t i = 0; i < m->n_weights; i++) {
            const model_weight *w = m->weights[i];
            const opt_bucket *b = &m->buckets[w->bucket];
            if (m->groups[b->group].class_.place != ST_PLACE_MATRIX) continue;
            owners[i] += model_updates(m, w);
            assert_int_equal(w->offset / b->share, (w->offset + w->pub.count - 1) / b->share);
            for (int32_t k = 0; k < i; k++) { /* none lie on each other */
                const model_weight *o = m->weights[k];
                if (o->bucket == w->bucket)
                    assert_true(o->offset + o->pub.count <= w->offset || w->offset + w->pub.count <= o->offset);
            }
        }
        for (int32_t i = 0; i < m->n_units; i++) units += m->units[i]->info != NULL;
        fixture_close(f);
    }
    for (int32_t i = 0; i < one->model->n_weights; i++)
        assert_int_equal(owners[i], one->model->groups[one->model->weights[i]->group].class_.place == ST_PLACE_MATRIX);
    for (int32_t i = 0; i < one->model->n_units; i++) units -= one->model->units[i]->info != NULL;
    assert_int_equal(units, 0);
    fixture_close(one);
}

/* ---- ranks side by side ---- */

/* Planned as one of RANKS, opened alone: the share is all it updates, and nothing is sent. */
static fixture *opened_as(const char *spec, int32_t ranks, int32_t rank)
{
    fixture *f = planned(spec, ranks, rank);
    st_error e = {0};

    f->model->mesh = st_mesh_single();
    need_ok(st_model_open(f->model, &e), &e);
    need_ok(st_model_init(f->model, 7, &e), &e);
    return f;
}

static double *read_weights(fixture *f)
{
    const st_model_weight *const *w;
    int n = st_model_weights(f->model, &w);
    int64_t at = 0, all = 0;
    st_error e = {0};

    for (int i = 0; i < n; i++) all += w[i]->count;
    double *x = st_arena_alloc(f->arena, (size_t)all * sizeof *x);
    for (int i = 0; i < n; i++, at += w[i - 1]->count)
        need_ok(st_model_read(f->model, i, ST_READ_WEIGHT, x + at, &e), &e);
    return x;
}

static void write_weights(fixture *f, const double *x)
{
    const st_model_weight *const *w;
    int n = st_model_weights(f->model, &w);
    st_error e = {0};

    for (int i = 0; i < n; i++, x += w[i - 1]->count) need_ok(st_model_write(f->model, i, x, &e), &e);
}

static void step(fixture *f, int64_t number, int32_t micros)
{
    static const int lengths[] = {30, 11, 40, 0};
    int images = st_model_encoder(f->model) != NULL;
    const st_packed_row *rows[] = {make_row(f, lengths, 0, 5, images), make_row(f, lengths, 2, 6, images)};
    st_schedule at = {sizeof at, 0, number, 0.01, 0, 1};
    st_step_result out;
    st_error e = {0};

    need_ok(st_model_step(f->model, rows, micros, &at, 0, &out, &e), &e);
    assert_int_equal(out.skipped, 0);
}

/* After each step what a rank has changed is taken from it, as gathering does; then all go on from the same weights.
 * The second step has state of the first. */
static void shares_together_are_the_whole_step(const char *spec)
{
    fixture *one = opened_as(spec, 1, 0), *f[RANKS];
    int64_t n = st_model_parameters(one->model, NULL), changed;

    for (int r = 0; r < RANKS; r++) f[r] = opened_as(spec, RANKS, r);
    for (int number = 1; number <= 2; number++) {
        double *before = read_weights(one), *want, *got[RANKS];
        step(one, number, 1);
        want = read_weights(one);
        for (int r = 0; r < RANKS; r++) {
            step(f[r], number, 1);
            got[r] = read_weights(f[r]);
        }
        for (int64_t i = 0; i < n; i++) {
            changed = 0;
            for (int r = 0; r < RANKS; r++) {
                changed += got[r][i] != before[i];
                assert_true(got[r][i] == before[i] || got[r][i] == want[i]);
            }
            assert_int_equal(changed, want[i] != before[i]);
        }
        for (int r = 0; r < RANKS; r++) write_weights(f[r], want);
    }
    for (int r = 0; r < RANKS; r++) fixture_close(f[r]);
    fixture_close(one);
}

static void shares_of_adamw(void **state) { shares_together_are_the_whole_step(MODEL(F64, ADAMW, "")); }
static void shares_of_muon(void **state) { shares_together_are_the_whole_step(MODEL(F64, MUON, "")); }

/* ---- whole only while a layer runs ---- */

static double sent(const st_model *m, const char *group, const char *call)
{
    st_traffic t;

    for (int i = 0; st_model_traffic(m, i, &t); i++)
        if (!strcmp(t.group, group) && !strcmp(t.call, call)) return t.bytes;
    return 0;
}

/* Elements of one class of weights: of the layers each filled up for itself, and of the rest. */
static void of_level(const st_model *m, bool decays, int32_t ranks, int64_t *layers, int64_t *rest)
{
    *layers = *rest = 0;
    for (int32_t p = 0; p < m->n_parts; p++) {
        int64_t n = 0;
        for (int32_t i = 0; i < m->n_weights; i++)
            if (m->weights[i]->part == m->parts[p] && (m->weights[i]->pub.decay != 0) == decays)
                n += up(m->weights[i]->pub.count, 64);
        if (m->parts[p]->kind == ST_KIND_LAYER) *layers += up((n + ranks - 1) / ranks, 64);
        else *rest += n;
    }
    *rest = up((*rest + ranks - 1) / ranks, 64);
}

static void layers_are_cut_one_by_one(void **state)
{
    enum { LEVELS = 4, BYTES = 4 };
    for (int zero = 2; zero < LEVELS; zero++) {
        char spec[2048];
        int64_t layers, rest, states = 0, weights = 0, gradients = 0, gathered = 0;
        st_plan_bytes p;
        fixture *f;
        snprintf(spec, sizeof spec, MODEL("precision = f32\n", ADAMW, "[parallel]\nzero = %d\n"), zero);
        f = planned(spec, RANKS, 1);
        for (int decays = 0; decays < 2; decays++) {
            of_level(f->model, decays, RANKS, &layers, &rest);
            states += 2 * (layers + rest) * BYTES;
            gradients += (layers + RANKS * rest) * BYTES;
            weights += ((zero == 3 ? 1 : RANKS) * layers + RANKS * rest) * BYTES;
            gathered += (RANKS - 1) * ((zero == 3 ? 2 * 2 : 1) * layers + rest) * BYTES; /* two rows, there and back */
        }
        st_model_plan_bytes(f->model, &p);
        assert_int_equal(p.optimizer, states);
        assert_int_equal(p.gradients, gradients);
        assert_int_equal(p.weights, weights);
        assert_true(sent(f->model, "data", "all_gather") == (double)gathered);
        fixture_close(f);
    }
}

/* What a plan counts is what one rank runs, where a group of one copies. Each level takes the same steps. */
static void levels_take_the_same_steps(const char *rest)
{
    double *want = NULL, *got;
    fixture *all[4];
    int64_t n;

    for (int zero = 0; zero < 4; zero++) {
        char spec[4096];
        snprintf(spec, sizeof spec, "%s[parallel]\nzero = %d\n", rest, zero);
        all[zero] = fixture_open(spec, 1);
        for (int number = 1; number <= 3; number++) step(all[zero], number, 2);
        got = read_weights(all[zero]);
        n = st_model_parameters(all[zero]->model, NULL);
        if (!want) want = got;
        assert_true(st_model_flops(all[zero]->model) == st_model_flops(all[0]->model));
        for (int64_t i = 0; i < n; i++)
            if (fabs(got[i] - want[i]) > 1e-9 * (1 + fabs(want[i])))
                fail_msg("zero = %d: element %lld", zero, (long long)i);
    }
    for (int zero = 0; zero < 4; zero++) fixture_close(all[zero]);
}

static void levels_of_texts(void **state)
{
    levels_take_the_same_steps(MODEL(F64, ADAMW, ""));
    levels_take_the_same_steps(MODEL(F64, ADAMW, "[recompute]\nfull = G,-\n"));
}

static void levels_of_pictures(void **state)
{
    levels_take_the_same_steps(TEXT_MODEL_WITH("", "") MROPE IMAGE_PARTS IMAGE_BATCH);
}

/* The second depth runs the layers of the first again: two calls of a layer in one row. */
static void levels_of_depths(void **state)
{
    levels_take_the_same_steps("[run]\n" F64 "[stack]\npattern = -*/*-/*-\nhidden = 16\nvocab = 23\n"
                               "[layer.*]\nheads = 4\nkv_heads = 2\nhead_dim = 8\n[layer.-]\nwidth = 24\n"
                               "[init]\nstd = 0.3\n[optimizer]\n" ADAMW ROPE "[head.mtp]\nrepeated = yes\n" BATCH);
}

/* Forward and backward of one layer need no more than the plan of a step: what the first made whole is given back. The
 * layer is large beside its rows. */
static void a_layer_alone_is_the_same(void **state)
{
    static const char *const spec =
        "[run]\n" F64 "[stack]\npattern = -\nhidden = 64\nvocab = 23\n[layer.-]\nwidth = 512\n[optimizer]\n" ADAMW
        "[batch]\ntokens = 8\nlogits = 4KiB\n[parallel]\nzero = %d\n";
    static const int lengths[] = {5, 0};
    double x[8 * 64], dy[8 * 64], y[2][8 * 64], dx[2][8 * 64];

    st_uniform(1, 2, 0, 8 * 64, x);
    st_uniform(1, 3, 0, 8 * 64, dy);
    for (int i = 0; i < 2; i++) {
        char text[1024];
        st_error e = {0};
        snprintf(text, sizeof text, spec, 3 * i);
        fixture *f = fixture_open(text, 1);
        need_ok(st_model_layer_run(f->model, 0, make_row(f, lengths, 0, 5, 0), x, y[i], dy, dx[i], &e), &e);
        fixture_close(f);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
}

static void shares_are_not_handed_out(void **state)
{
    fixture *f = fixture_open(MODEL(F64, ADAMW, "[parallel]\nzero = 3\n"), 1);
    st_model *m = f->model;
    st_error e = {0};
    int32_t i = 0;

    while (!m->buckets[m->weights[i]->bucket].part) i++;
    model_start(m);
    assert_null(model_weight_of(&m->run.s, i).data);
    assert_int_equal(model_end(m, &e), ST_E_INTERNAL);
    assert_string_equal(e.message, "the host: asks for weight layers.0.pre_norm, but its layer does not run: with "
                                   "[parallel] zero = 3 only a share of it is there");
    model_start(m);
    memset(&e, 0, sizeof e);
    assert_null(model_grad_of(&m->run.s, i, NULL).data);
    assert_int_equal(model_end(m, &e), ST_E_INTERNAL);
    assert_non_null(strstr(e.message, "asks for the gradient of weight layers.0.pre_norm, but"));
    fixture_close(f);
}

/* ---- what is sent ---- */

static void what_ranks_send(void **state)
{
    enum { PAIR = 2 }; /* halves are exact */
    fixture *whole = planned(MODEL("precision = f32\n", ADAMW, "[parallel]\nzero = 0\n"), PAIR, 0),
            *shared = planned(MODEL("precision = f32\n", ADAMW, ""), PAIR, 0),
            *one = planned(MODEL("precision = f32\n", ADAMW, ""), 1, 0);
    double all = 0, blocks = 0;
    st_traffic t;

    for (int decays = 0; decays < 2; decays++) {
        int64_t n = elements(one->model, decays);
        all += (double)n * 4;
        blocks += (double)up((n + PAIR - 1) / PAIR, 64) * 4;
    }
    assert_false(st_model_traffic(one->model, 0, &t));
    assert_true(sent(whole->model, "data", "all_reduce") == 2 * all * (PAIR - 1) / PAIR);
    assert_true(sent(whole->model, "data", "all_gather") == 0);
    assert_true(sent(shared->model, "data", "reduce_scatter") == (PAIR - 1) * blocks);
    assert_true(sent(shared->model, "data", "all_gather") == (PAIR - 1) * blocks);
    assert_true(sent(shared->model, "data", "all_reduce") ==
                2.0 * (2 * 4) * (PAIR - 1) / PAIR); /* two sums of squares */
    fixture_close(whole);
    fixture_close(shared);
    fixture_close(one);
}

/* Sums of layers are made for each row of a rank. */
#define EXPERTS(rows) \
    "[run]\nprecision = f32\n[stack]\npattern = EE\nhidden = 16\nvocab = 23\n" \
    "[layer.E]\nexperts = 8\ntop_k = 2\nwidth = 8\naux = micro\n[batch]\ntokens = 32\nrows = " rows "\n"

static void sums_of_layers_are_sent_for_every_row(void **state)
{
    fixture *few = planned(EXPERTS("2"), 2, 0), *many = planned(EXPERTS("8"), 2, 0);
    double of_row = (sent(many->model, "tokens", "all_reduce") - sent(few->model, "tokens", "all_reduce")) / 3,
           cells = (double)(few->model->stacks[0]->sum.n) * 4;

    assert_true(cells > 0 && of_row == cells); /* twice, of which half stays: n - 1 of n ranks, n = 2 */
    assert_true(sent(few->model, "tokens", "all_reduce") == of_row + (double)few->model->step_sum.n * 4);
    assert_true(sent(few->model, "data", "reduce_scatter") == sent(many->model, "data", "reduce_scatter"));
    fixture_close(few);
    fixture_close(many);
}

/* ---- refusals ---- */

static void refused(const char *spec, int32_t ranks, const char *words, const char *line)
{
    st_diags d = {0};

    assert_null(fixture_build_for(spec, 1, ranks, &d));
    assert_int_equal(d.errors, 1);
    assert_string_equal(d.item[0].error.message, words);
    assert_string_equal(d.item[0].line_text, line);
}

static void what_cannot_be_cut_is_refused(void **state)
{
    refused(MODEL(F64, ADAMW, ""), 4, "rows = 6 do not divide over the 4 ranks of group data", "rows = 6");
    refused(MODEL(F64, ADAMW, "[parallel]\ntensor = 2\n"), 9,
            "[parallel] context = 1 x tensor = 2 do not divide 9 ranks", "tensor = 2");
    refused(MODEL(F64, ADAMW, "[parallel]\ncontext = 4\n"), 6,
            "[parallel] context = 4 x tensor = 1 do not divide 6 ranks", "context = 4");
    refused(MODEL(F64, MUON, "[parallel]\nzero = 2\n"), 0,
            "[parallel] zero = 2 cuts the layers' matrices, but optimizer muon updates them as a whole", "zero = 2");
}

static void a_plan_of_ranks_is_not_opened(void **state)
{
    fixture *f = planned(MODEL(F64, ADAMW, ""), 2, 0);
    st_error e = {0};

    assert_int_equal(st_model_open(f->model, &e), ST_E_UNSUPPORTED);
    assert_string_equal(e.message, "group data of 2 ranks: this process runs alone");
    fixture_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_bits_do_not_depend_on_ranks),
        cmocka_unit_test(flat_groups_are_cut_into_equal_blocks),
        cmocka_unit_test(matrices_have_one_owner),
        cmocka_unit_test(shares_of_adamw),
        cmocka_unit_test(shares_of_muon),
        cmocka_unit_test(layers_are_cut_one_by_one),
        cmocka_unit_test(levels_of_texts),
        cmocka_unit_test(levels_of_pictures),
        cmocka_unit_test(levels_of_depths),
        cmocka_unit_test(a_layer_alone_is_the_same),
        cmocka_unit_test(shares_are_not_handed_out),
        cmocka_unit_test(what_ranks_send),
        cmocka_unit_test(sums_of_layers_are_sent_for_every_row),
        cmocka_unit_test(what_cannot_be_cut_is_refused),
        cmocka_unit_test(a_plan_of_ranks_is_not_opened),
    };
    return cmocka_run_group_tests_name("shares of ranks", tests, NULL, NULL);
}
