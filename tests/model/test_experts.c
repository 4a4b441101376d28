/* SPDX-License-Identifier: Apache-2.0 */
/* model/test_experts.c - layers with experts in a whole model: what parts add up over layers and micro-batches and read
 * back, balance losses, capacities, learning, and weights that files keep one expert at a time. */
#include "checkpoint/checkpoint.h"
#include "fixture.h"
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPERTS_WITH(run, pattern, keys) \
    "[run]\nprecision = f64\npoison = yes\n" run "[stack]\npattern = " pattern "\nhidden = 16\nvocab = 23\n" \
    "[layer.G]\nkey_heads = 2\nvalue_heads = 4\nkey_dim = 4\nvalue_dim = 4\n" \
    "[layer.*]\nheads = 4\nkv_heads = 2\nhead_dim = 8\n" \
    "[layer.E]\n" keys "[position]\nplugin = rope\nrotary_percent = 0.5\nbase = 100\n" \
    "[init]\nstd = 0.3\n[optimizer]\nplugin = adamw\n" TEXT_BATCH
#define SIZES "experts = 5\ntop_k = 2\nwidth = 6\nshared_width = 8\n"
#define EXPERTS(keys) EXPERTS_WITH("", "GE*E", SIZES keys)

static const int packed[] = {17, 1, 30, 9, 0}, first[] = {17, 1, 0}, second[] = {30, 9, 0};

static st_step_result gradients(fixture *f, st_packed_row *const *rows, int32_t micros)
{
    st_step_result r;
    st_error e = {0};
    need_ok(st_model_gradients(f->model, (const st_packed_row *const *)rows, micros, &r, &e), &e);
    assert_int_equal(r.skipped, 0);
    return r;
}
static st_step_result step(fixture *f, st_packed_row *const *rows, int32_t micros, int64_t number, double lr)
{
    st_schedule at = {sizeof at, 0, number, lr, 0, 0};
    st_step_result r;
    st_error e = {0};
    need_ok(st_model_step(f->model, (const st_packed_row *const *)rows, micros, &at, 1.0, &r, &e), &e);
    return r;
}
/* NaN: not reported */
static double reported(const st_step_result *r, const char *name)
{
    for (int32_t i = 0; i < r->n_metrics; i++)
        if (!strcmp(r->metrics[i].name, name)) return r->metrics[i].valid ? r->metrics[i].value : NAN;
    fail_msg("no metric %s", name);
    return NAN;
}
static void two_rows(fixture *f, st_packed_row *rows[2])
{
    rows[0] = make_row(f, first, 0, 5, 0);
    rows[1] = make_row(f, second, 2, 5, 0);
}

static void gradients_equal_differences(void **state)
{
    fixture *f = fixture_open(EXPERTS("aux = none\n"), 1);
    st_packed_row *rows[2];
    const char *where = "";

    two_rows(f, rows);
    double worst = check_differences(f, rows, 2, 4, &where);
    print_message("# worst gradient against differences: %.1e at %s\n", worst, where);
    assert_true(worst < 1e-8);
    fixture_close(f);
}

/* ---- the balance loss of a step ---- */

static double *values(fixture *f, int32_t i, int what)
{
    double *v = ST_NEW_N(f->arena, double, f->model->weights[i]->pub.count);
    st_error e = {0};
    need_ok(st_model_read(f->model, i, what, v, &e), &e);
    return v;
}
/* What the step adds to its loss, but for the factor: over layers of their mean over tokens, hf: of all layers at once. */
static double balance(fixture *f, st_packed_row *const *rows, int hf)
{
    st_step_result r = gradients(f, rows, 2);
    double a = reported(&r, "layers.1.balance_loss"), b = reported(&r, "layers.3.balance_loss");

    assert_true(fabs(reported(&r, "balance_loss") - (a + b) / 2) < 1e-14);
    if (hf) assert_true(a == b);
    return hf ? a : a + b;
}
/* Rows without a trained token: all gradients come from the balance loss. */
static void balance_gradients(const char *spec, int hf)
{
    fixture *f = fixture_open(spec, 1);
    st_packed_row *rows[2];
    st_error e = {0};
    double worst = 0;

    two_rows(f, rows);
    for (int i = 0; i < 2; i++) {
        rows[i]->trained_count[0] = 0;
        for (int32_t t = 0; t < rows[i]->shape.tokens; t++) rows[i]->labels[t] = rows[i]->trained[t] = -1;
    }
    balance(f, rows, hf);
    double **grad = ST_NEW_N(f->arena, double *, f->model->n_weights);
    for (int32_t i = 0; i < f->model->n_weights; i++) grad[i] = values(f, i, ST_READ_GRAD);
    for (int32_t i = 0; i < f->model->n_weights; i++) {
        double *v = values(f, i, ST_READ_WEIGHT), largest = 1e-3, d[4], h = 1e-5;
        int64_t n = f->model->weights[i]->pub.count, at = n / 3;
        for (int64_t k = 0; k < n; k++) largest = fmax(largest, fabs(grad[i][k]));
        for (int k = 0; k < 4; k++) {
            double was = v[at];
            v[at] = was + h * (k < 2 ? k - 2 : k - 1);
            need_ok(st_model_write(f->model, i, v, &e), &e);
            d[k] = balance(f, rows, hf);
            v[at] = was;
        }
        need_ok(st_model_write(f->model, i, v, &e), &e);
        worst = fmax(worst, fabs(0.7 * (8 * (d[2] - d[1]) - (d[3] - d[0])) / (12 * h) - grad[i][at]) / largest);
    }
    print_message("# worst gradient of the balance loss: %.1e\n", worst);
    assert_true(worst < 1e-7);
    fixture_close(f);
}
static void balance_is_exact_over_micro_batches(void **state)
{
    balance_gradients(EXPERTS("aux = micro\naux_coef = 0.7\n"), 0);
}
static void balance_is_exact_over_layers(void **state) { balance_gradients(EXPERTS("aux = hf\naux_coef = 0.7\n"), 1); }

/* Running sums: two equal rows are two equal micro-batches; what is reported at the end is of the whole step. */
static void a_step_pools_its_micro_batches(void **state)
{
    fixture *micro = fixture_open(EXPERTS("aux = micro\naux_coef = 0.7\n"), 1),
            *pooled = fixture_open(EXPERTS("aux = step\naux_coef = 0.7\n"), 1);
    st_packed_row *same[2], *two[2], *one;
    int64_t n;
    double *want, *got;

    same[0] = same[1] = make_row(micro, packed, 0, 5, 0);
    gradients(micro, same, 2);
    want = all_gradients(micro, &n);
    same[0] = same[1] = one = make_row(pooled, packed, 0, 5, 0);
    st_step_result r = gradients(pooled, same, 2);
    assert_true(isnan(reported(&r, "layers.1.balance_loss"))); /* known when the step ends */
    got = all_gradients(pooled, &n);
    assert_true(max_difference(got, want, n) < 1e-14);

    two_rows(pooled, two);
    st_step_result split = step(pooled, two, 2, 1, 0);
    static const char *const names[] = {"balance_loss", "load_max", "load_min", "violation", "entropy"};
    double of_split[5];
    for (int i = 0; i < 5; i++) of_split[i] = reported(&split, names[i]);
    st_step_result whole = step(pooled, &one, 1, 2, 0);
    for (int i = 0; i < 5; i++) assert_true(fabs(of_split[i] - reported(&whole, names[i])) < 1e-13);
    assert_true(of_split[1] >= 1 && of_split[2] <= 1 && of_split[4] > 0 && of_split[4] <= log(5));
    fixture_close(micro);
    fixture_close(pooled);
}

/* ---- recompute, threads, packing ---- */

static void recompute_counts_once_and_gives_the_same_bits(void **state)
{
    static const char *const drop[] = {"",
                                       "E.sorted",
                                       "E.product",
                                       "E.shared_product",
                                       "E.shared_out",
                                       "E.sorted,E.product,E.shared_product,E.shared_out"};
    static const char *const full[] = {"none", "E", "all"};
    static const char *const aux[] = {"micro", "step", "hf"};

    for (int a = 0; a < 3; a++) {
        double *want = NULL, load = 0, loss = 0;
        fixture *ref = NULL;
        for (int i = 0; i < 18; i++) {
            char text[4096];
            st_packed_row *rows[2];
            st_step_result r;
            int64_t n;
            snprintf(text, sizeof text, EXPERTS("aux = %s\naux_coef = 0.7\n") "[recompute]\nfull = %s\n%s%s\n", aux[a],
                     full[i % 3], i / 3 ? "drop = " : "", drop[i / 3]);
            fixture *f = fixture_open(text, 1);
            two_rows(f, rows);
            r = step(f, rows, 2, 1, 0);
            double *g = all_gradients(f, &n), violation = reported(&r, "layers.3.violation"),
                   balance_loss = reported(&r, "layers.1.balance_loss");
            assert_int_equal(f->model->keep.high, f->model->peak_keep);
            assert_int_equal(f->model->scratch.high, f->model->peak_scratch);
            if (!ref) {
                ref = f;
                want = g;
                load = violation;
                loss = balance_loss;
                continue;
            }
            assert_true(violation == load && balance_loss == loss);
            if (memcmp(g, want, (size_t)n * sizeof *g))
                fail_msg("full = %s, drop = %s: other bits", full[i % 3], drop[i / 3]);
            fixture_close(f);
        }
        fixture_close(ref);
    }
}

static void threads_give_the_same_bits(void **state)
{
    static const char *const specs[] = {EXPERTS_WITH("threads = 1\n", "GE*E", SIZES),
                                        EXPERTS_WITH("threads = 2\n", "GE*E", SIZES),
                                        EXPERTS_WITH("threads = 5\n", "GE*E", SIZES)};
    fixture *f[3];
    double *g[3];
    int64_t n;

    for (int i = 0; i < 3; i++) {
        f[i] = fixture_open(specs[i], 1);
        st_packed_row *row = make_row(f[i], packed, 0, 5, 0);
        step(f[i], &row, 1, 1, 0);
        g[i] = all_gradients(f[i], &n);
    }
    for (int i = 1; i < 3; i++) assert_memory_equal(g[0], g[i], (size_t)n * sizeof(double));
    for (int i = 0; i < 3; i++) fixture_close(f[i]);
}

static void two_rows_equal_one(void **state)
{
    fixture *f = fixture_open(EXPERTS("aux = none\n"), 1);
    st_packed_row *both[1] = {make_row(f, packed, 0, 5, 0)}, *two[2];
    int64_t n;
    double *a, *b;

    two_rows(f, two);
    gradients(f, both, 1);
    a = all_gradients(f, &n);
    gradients(f, two, 2);
    b = all_gradients(f, &n);
    assert_true(max_difference(b, a, n) < 1e-12);
    fixture_close(f);
}

/* An evaluation between the steps of a run leaves no trace in what is added up. */
static void an_evaluation_adds_nothing_to_a_step(void **state)
{
    fixture *f = fixture_open(EXPERTS(""), 1);
    st_packed_row *row = make_row(f, packed, 0, 5, 0);
    double sum;
    int64_t count;
    st_error e = {0};
    st_step_result r = step(f, &row, 1, 1, 0);
    double a = reported(&r, "balance_loss"), b = reported(&r, "load_max");

    need_ok(st_model_evaluate(f->model, row, &sum, &count, NULL, NULL, &e), &e);
    r = step(f, &row, 1, 2, 0);
    assert_true(reported(&r, "balance_loss") == a && reported(&r, "load_max") == b);
    fixture_close(f);
}

/* ---- capacity, learning ---- */

static void a_capacity_that_does_not_suffice_is_named(void **state)
{
    fixture *f = fixture_open(EXPERTS_WITH("", "GE*E", "experts = 2\ntop_k = 2\nwidth = 6\ncapacity = 0.01\n"), 1);
    static const int full[] = {40, 40, 16, 0};
    st_packed_row *row = make_row(f, full, 0, 5, 0);
    double *before = values(f, 0, ST_READ_WEIGHT);
    st_step_result r = step(f, &row, 1, 1, 1e-2);

    print_message("# %s\n", r.bad);
    assert_int_equal(r.skipped, 1);
    assert_string_equal(r.bad, "layers.1 (E, moe): 256 rows of experts are needed, capacity reserves 128");
    assert_true(isnan(reported(&r, "layers.1.load_max")));
    assert_memory_equal(before, values(f, 0, ST_READ_WEIGHT), (size_t)f->model->weights[0]->pub.count * sizeof *before);
    fixture_close(f);
}

/* Shaped as the public mixture models: three delta nets and one attention a round, a depth of attention. */
static void a_small_mixture_with_a_depth_learns(void **state)
{
    static const char *const spec = EXPERTS_WITH("", "GEGEGE*E/*E", SIZES);
    fixture *f[2] = {fixture_open(spec, 1), fixture_open(spec, 1)};
    double begin[2], end[2], *g[2];
    int64_t n;

    for (int k = 0; k < 2; k++) {
        st_packed_row *rows[2];
        st_step_result r;
        two_rows(f[k], rows);
        for (int i = 1; i <= 40; i++) {
            r = step(f[k], rows, 2, i, 1e-2);
            assert_int_equal(r.skipped, 0);
            if (i == 1) begin[k] = r.loss;
        }
        end[k] = r.loss;
        assert_true(reported(&r, "head.mtp.1.layers.1.balance_loss") > 0);
        g[k] = all_gradients(f[k], &n);
    }
    print_message("# loss %.3f -> %.3f\n", begin[0], end[0]);
    assert_true(end[0] < 0.5 * begin[0]);
    assert_true(end[0] == end[1]);
    assert_memory_equal(g[0], g[1], (size_t)n * sizeof(double));
    fixture_close(f[0]);
    fixture_close(f[1]);
}

/* ---- files with one tensor per expert and matrix ---- */

static bool has_each(void *ctx, const char *name) { return strstr(name, ".experts.0.") != NULL; }
/* As the largest published sizes: only the depth's experts lie one by one. */
static bool has_each_in_depth(void *ctx, const char *name) { return has_each(ctx, name) && !strncmp(name, "mtp.", 4); }

/* All weights of f under the given names; the last `leave_out` tensors are missing. */
static void write_file(fixture *f, const char *path, const st_file_name *names, int n, int leave_out)
{
    const st_model_weight *const *w;
    st_tensors_out *out;
    st_error e = {0};

    st_model_weights(f->model, &w);
    need_ok(st_tensors_create(path, &out, &e), &e);
    for (int i = 0; i < n - leave_out; i++) {
        int64_t dim[2] = {names[i].n, st_weight_part_count(w[names[i].weight], &names[i]) / names[i].n};
        if (names[i].entry < 0 && w[names[i].weight]->sec_dim > 0) { /* rows stand behind dimension 0 */
            dim[1] *= dim[0];
            dim[0] = w[names[i].weight]->dim[0];
            dim[1] /= dim[0];
        }
        need_ok(st_tensors_declare(out, names[i].file_name, ST_F64, 2, dim, &e), &e);
    }
    for (int i = 0; i < n - leave_out; i++) {
        int64_t count = st_weight_part_count(w[names[i].weight], &names[i]);
        double *whole = values(f, names[i].weight, ST_READ_WEIGHT), *part = ST_NEW_N(f->arena, double, count);
        st_weight_part(w[names[i].weight], &names[i], whole, part);
        need_ok(st_tensors_write(out, part, (size_t)count * sizeof *part, &e), &e);
    }
    need_ok(st_tensors_finish(out, &e), &e);
}

/* The same weights come back from a file with these names. */
static void names_load(fixture *f, fixture *g, const char *path, const st_file_name *names, int n)
{
    st_error e = {0};

    need_ok(st_model_init(g->model, 99, &e), &e);
    write_file(f, path, names, n, 0);
    need_ok(st_checkpoint_load_hf(path, g->model, f->base->log, &e), &e);
    for (int32_t i = 0; i < f->model->n_weights; i++)
        assert_memory_equal(values(f, i, ST_READ_WEIGHT), values(g, i, ST_READ_WEIGHT),
                            (size_t)f->model->weights[i]->pub.count * sizeof(double));
}

static void all_ways_to_keep_experts_load(void **state)
{
    fixture *f = fixture_open(EXPERTS_WITH("", "GE*E/*E", SIZES), 1),
            *g = fixture_open(EXPERTS_WITH("", "GE*E/*E", SIZES), 1);
    const st_file_name *fused, *each, *mixed;
    int n_fused = st_family_names(f->model, "hf", &fused),
        n_each = st_model_file_names(f->model, "hf", st_family_maps(), has_each, NULL, &each),
        n_mixed = st_model_file_names(f->model, "hf", st_family_maps(), has_each_in_depth, NULL, &mixed), seen = 0;
    const char *folder = getenv("TMPDIR");
    char path[512];
    st_error e = {0};

    assert_int_equal(n_each - n_fused, 3 * (3 * 5 - 2)); /* of three layers, two tensors become three per expert */
    assert_int_equal(n_mixed - n_fused, 3 * 5 - 2);
    for (int i = 0; i < n_each; i++)
        seen += !strcmp(each[i].file_name, "model.language_model.layers.1.mlp.experts.4.up_proj.weight") ||
                !strcmp(each[i].file_name, "mtp.layers.0.mlp.experts.0.down_proj.weight");
    assert_int_equal(seen, 2);
    snprintf(path, sizeof path, "%s/strata-experts-%ld.safetensors", folder ? folder : "/tmp", (long)getpid());
    names_load(f, g, path, fused, n_fused);
    names_load(f, g, path, each, n_each);
    names_load(f, g, path, mixed, n_mixed);
    write_file(f, path, each, n_each, 7); /* the last names are those of the depth's layer */
    assert_int_equal(st_checkpoint_load_hf(path, g->model, f->base->log, &e), ST_E_CONFIG);
    print_message("# %s\n", e.message);
    assert_non_null(strstr(e.message, "no tensor "));
    unlink(path);
    fixture_close(f);
    fixture_close(g);
}

#ifndef __SANITIZE_ADDRESS__ /* its shadow has no limit */
/* A weight is never in memory a second time: what loading may map beside the file is a fraction of one. */
static void loading_takes_no_copy_of_a_weight(void **state)
{
    static const char spec[] =
        "[run]\n[stack]\npattern = *-\nhidden = 64\nvocab = 100000\n[layer.*]\nheads = 4\nkv_heads = 2\nhead_dim = 8\n"
        "[layer.-]\nwidth = 8\n[optimizer]\nplugin = adamw\n[batch]\ntokens = 8\n";
    enum { ROOM = 4 << 20 }; /* the embedding has 25.6 MB, as doubles 51.2 MB */
    fixture *f = fixture_open(spec, 1);
    const char *folder = getenv("TMPDIR");
    const st_file_name *names;
    struct rlimit was, less;
    struct stat info;
    long pages = 0;
    char path[512];
    st_error e = {0};

    snprintf(path, sizeof path, "%s/strata-large-%ld.safetensors", folder ? folder : "/tmp", (long)getpid());
    int n = st_family_names(f->model, "hf", &names);
    write_file(f, path, names, n, 0);
    assert_int_equal(stat(path, &info), 0);
    FILE *now = fopen("/proc/self/statm", "r");
    assert_non_null(now);
    assert_int_equal(fscanf(now, "%ld", &pages), 1);
    fclose(now);
    assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
    less = was;
    less.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (rlim_t)info.st_size + ROOM;
    assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
    int rc = st_checkpoint_load_hf(path, f->model, f->base->log, &e);
    void *volatile copy = malloc(2 * (size_t)info.st_size); /* the limit does refuse what is too much */
    assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
    need_ok(rc, &e);
    assert_null(copy);
    unlink(path);
    fixture_close(f);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifndef __SANITIZE_ADDRESS__
        cmocka_unit_test(loading_takes_no_copy_of_a_weight), /* first: later ones leave memory that is free again */
#endif
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(balance_is_exact_over_micro_batches),
        cmocka_unit_test(balance_is_exact_over_layers),
        cmocka_unit_test(a_step_pools_its_micro_batches),
        cmocka_unit_test(recompute_counts_once_and_gives_the_same_bits),
        cmocka_unit_test(threads_give_the_same_bits),
        cmocka_unit_test(two_rows_equal_one),
        cmocka_unit_test(an_evaluation_adds_nothing_to_a_step),
        cmocka_unit_test(a_capacity_that_does_not_suffice_is_named),
        cmocka_unit_test(a_small_mixture_with_a_depth_learns),
        cmocka_unit_test(all_ways_to_keep_experts_load),
    };
    return cmocka_run_group_tests_name("model experts", tests, NULL, NULL);
}
