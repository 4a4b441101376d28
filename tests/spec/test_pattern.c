/* SPDX-License-Identifier: Apache-2.0 */
/* tests/spec/test_pattern.c - the pattern grammar. The strict table was taken from runs of Megatron's own parser; the
 * symbols here are a fixture, since real ones come from the registry. */
#include "spec_test.h"

static bool fixture_known(void *ctx, char symbol)
{
    return symbol && strchr(ctx, symbol);
}

static const char *fixture_list(void *ctx)
{
    return ctx;
}

static const st_symbols symbols = {(void *)"MG*D+-E", fixture_known, fixture_list};

typedef struct accepted {
    const char *text, *main;
    int segments, depths;
    const char *depth[3];
} accepted;

static void expect_accepted(const accepted *want, int strict)
{
    st_arena *a = st_arena_create(0);
    st_pattern p;
    st_error e = {0};
    if (st_pattern_parse(want->text, &symbols, strict, a, &p, &e) != ST_OK)
        fail_msg("\"%s\": %s", want->text, e.message);
    assert_string_equal(p.main.symbols, want->main);
    assert_int_equal(p.main.n, strlen(want->main));
    assert_int_equal(p.segments, want->segments);
    assert_int_equal(p.depths, want->depths);
    for (int k = 0; k < p.depths; k++) {
        assert_string_equal(p.depth[k].symbols, want->depth[k]);
        assert_int_equal(p.depth[k].n, strlen(want->depth[k]));
    }
    assert_int_equal(p.segment_start[0], 0);
    for (int k = 1; k < p.segments; k++)
        assert_in_range(p.segment_start[k], p.segment_start[k - 1], p.main.n);
    for (int i = 0; i < p.main.n; i++) assert_int_equal(want->text[p.main.column[i] - 1], p.main.symbols[i]);
    for (int k = 0; k < p.depths; k++)
        for (int i = 0; i < p.depth[k].n; i++)
            assert_int_equal(want->text[p.depth[k].column[i] - 1], p.depth[k].symbols[i]);
    st_arena_destroy(a);
}

static void expect_refused(const char *text, int strict, int column, const char *message)
{
    st_arena *a = st_arena_create(0);
    st_pattern p;
    st_error e = {0};
    int rc = st_pattern_parse(text, &symbols, strict, a, &p, &e);
    if (rc != ST_E_CONFIG) fail_msg("\"%s\": code %d", text, rc);
    if (e.column != column || !strstr(e.message, message)) fail_msg("\"%s\": column %d: %s", text, e.column, e.message);
    st_arena_destroy(a);
}

/* Accepted by Megatron, and read the same in both modes. */
static const accepted both[] = {
    {"GGG*GGG*", "GGG*GGG*", 1, 0, {0}},
    {"GEGEGE*E/GG/GG", "GEGEGE*E", 1, 2, {"GG", "GG"}},
    {"M-M-|M-M*-/MM/MM", "M-M-M-M*-", 2, 2, {"MM", "MM"}},
    {"/MM/MM", "", 1, 2, {"MM", "MM"}},
    {"||M", "M", 3, 0, {0}},
    {"", "", 1, 0, {0}},
    {"|", "", 2, 0, {0}},
    {"M", "M", 1, 0, {0}},
    {"M||M|", "MM", 4, 0, {0}},
    {"*-/D-", "*-", 1, 1, {"D-"}}, /* the attention kinds are compared inside one part only */
    {"*-/+-/+-", "*-", 1, 2, {"+-", "+-"}},
    {"D+", "D+", 1, 0, {0}},
    {"---MM---M-M*-", "---MM---M-M*-", 1, 0, {0}},
    {"M-M-M-M*-M-|M-M-M*-M-M-|M-M*-M-M-M-|M*-M-M-M-M-", "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-", 4, 0, {0}},
    {"M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
     "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
     1,
     0,
     {0}},
    {"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
     "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
     1,
     0,
     {0}},
    {"G-G-G-*-/*-", "G-G-G-*-", 1, 1, {"*-"}},
};

static void as_megatron(void **state)
{
    static const accepted strict_only[] = {
        {"MM/", "MM", 1, 0, {0}}, {"MM//", "MM", 1, 0, {0}}, {"/", "", 1, 0, {0}}, /* all-empty depths mean none */
    };
    for (size_t i = 0; i < ST_COUNT(both); i++) expect_accepted(&both[i], 1);
    for (size_t i = 0; i < ST_COUNT(strict_only); i++) expect_accepted(&strict_only[i], 1);
    expect_refused("GEGEGE*E/GG/G", 1, 13, "mtp depth 2 is not equal to depth 1");
    expect_refused("M/M/", 1, 5, "mtp depth 2 is not equal to depth 1");
    expect_refused("M//M", 1, 4, "mtp depth 2 is not equal to depth 1");
    expect_refused("GG/X/Y", 1, 6,
                   "mtp depth 2 is not equal to depth 1"); /* before the depths' symbols are looked at */
    expect_refused("A/MM/M", 1, 1, "'A' at place 1");                       /* but the main part comes first */
    expect_refused("GG/X/X", 1, 4, "'X' at place 4");
    expect_refused("MM/M|M", 1, 5, "'|' at place 5");
    expect_refused("*D", 1, 2, "'D' at place 2 cannot stand beside '*'");
    expect_refused("+-|*-", 1, 1, "'+' at place 1 cannot stand beside '*'");
    expect_refused("M/*-D/*-D", 1, 5, "'D' at place 5 cannot stand beside '*'");
    expect_refused("M M", 1, 2, "a blank at place 2");
    expect_refused("M\n", 1, 2, "a control character at place 2");
    expect_refused("(M)x2", 1, 1, "'(' at place 1");
    expect_refused("M)", 1, 2, "')' at place 2");
    expect_refused("G-G-X-*-", 1, 5, "'X' at place 5");
    expect_refused("m", 1, 1, "'m' at place 1");
}

static void segment_borders(void **state)
{
    st_arena *a = st_arena_create(0);
    st_pattern p;
    st_error e = {0};
    assert_int_equal(st_pattern_parse("MMM|M|MMMMM", &symbols, 1, a, &p, &e), ST_OK);
    assert_true(p.segment_start[1] == 3 && p.segment_start[2] == 4);
    assert_int_equal(p.pipe_column, 4);
    assert_int_equal(st_pattern_parse("MM|M*|M-|ME", &symbols, 1, a, &p, &e), ST_OK);
    assert_true(p.segment_start[1] == 2 && p.segment_start[2] == 4 && p.segment_start[3] == 6);
    assert_int_equal(st_pattern_parse("(M-|)x2*", &symbols, 0, a, &p, &e), ST_OK);
    assert_true(p.segments == 3 && p.segment_start[1] == 2 && p.segment_start[2] == 4 && p.main.n == 5);
    assert_int_equal(st_pattern_parse("((|M)x2-)x2", &symbols, 0, a, &p, &e), ST_OK);
    static const int32_t start[] = {0, 0, 1, 3, 4};
    assert_int_equal(p.segments, 5);
    assert_memory_equal(p.segment_start, start, sizeof start);
    assert_string_equal(p.main.symbols, "MM-MM-");
    st_arena_destroy(a);
}

static void beyond_megatron(void **state)
{
    static const accepted more[] = {
        {"(G-G-G-*-)x2", "G-G-G-*-G-G-G-*-", 1, 0, {0}},
        {"(G-G-G-*-)x1", "G-G-G-*-", 1, 0, {0}},
        {"M((G-)x2*-)x2E", "MG-G-*-G-G-*-E", 1, 0, {0}},
        {"(M)x2(G)x3", "MMGGG", 1, 0, {0}},
        {"(((((M)x2)x2)x2)x2)x2", "MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM", 1, 0, {0}},
        {"(M)x002", "MM", 1, 0, {0}},
        {"M/(*-)x2", "M", 1, 1, {"*-*-"}},
        {"GEGEGE*E/GG/G", "GEGEGE*E", 1, 2, {"GG", "G"}}, /* unequal depths */
        {"M/*-/G-/M", "M", 1, 3, {"*-", "G-", "M"}},
        {"M/M/", "M", 1, 2, {"M", ""}}, /* an empty depth is seen here and refused by the check */
        {"MM/", "MM", 1, 1, {""}},
        {"/", "", 1, 1, {""}},
    };
    for (size_t i = 0; i < ST_COUNT(both); i++) expect_accepted(&both[i], 0);
    for (size_t i = 0; i < ST_COUNT(more); i++) expect_accepted(&more[i], 0);
    expect_refused("(M", 0, 1, "'(' at place 1 of the pattern is never closed");
    expect_refused("M(M(G)x2", 0, 2, "'(' at place 2 of the pattern is never closed");
    expect_refused("(M/M)x2", 0, 1, "never closed"); /* a group stays inside its part */
    expect_refused("M)x2", 0, 2, "')' at place 2 of the pattern closes nothing");
    expect_refused("M/G)", 0, 4, "closes nothing");
    expect_refused("()x2", 0, 1, "nothing between");
    expect_refused("(M)", 0, 4, "no repeat count");
    expect_refused("(M)x", 0, 4, "no repeat count");
    expect_refused("(M)2", 0, 4, "no repeat count");
    expect_refused("(M)x-2", 0, 4, "no repeat count");
    expect_refused("(M)x0", 0, 5, "must lie between 1 and 65536");
    expect_refused("(M)x99999999999999999999", 0, 5, "must lie between 1 and 65536");
    expect_refused("((M)x65536)x2", 0, 14, "longer than 65536 layers");
    expect_refused("((((M)x60000)x60000)x60000)x60000", 0, 20, "longer than 65536 layers");
    expect_refused("(|)x65536", 0, 1, "more than 4096 pipeline segments");
    expect_refused("G-(G-X-)x2", 0, 6, "'X' at place 6");
    expect_refused("M/G|", 0, 4, "'|' at place 4");
    expect_refused("G- G- G- *-", 0, 3, "a blank at place 3");
    expect_refused("G-\xC3\xA9-", 0, 3, "'\xC3\xA9' at place 3");
    expect_refused("G-\xE9-", 0, 3, "the byte 0xe9 at place 3");
    expect_refused("(((((((((((((((((M)x1)x1", 0, 17, "nested more than 16 deep");
    char many[100];
    memset(many, '/', sizeof many);
    many[99] = 0;
    expect_refused(many, 0, 1, "more than 64 mtp depths");
}

static void hints(void **state)
{
    st_arena *a = st_arena_create(0);
    st_pattern p;
    st_error e = {0};
    st_pattern_parse("G-X", &symbols, 0, a, &p, &e);
    assert_string_equal(e.message, "'X' at place 3 of the pattern is not a layer");
    assert_string_equal(e.hint, "layers are: MG*D+-E");
    memset(&e, 0, sizeof e);
    st_pattern_parse("M(G", &symbols, 0, a, &p, &e);
    assert_string_equal(e.message, "'(' at place 2 of the pattern is never closed");
    memset(&e, 0, sizeof e);
    st_pattern_parse("M(G)", &symbols, 0, a, &p, &e);
    assert_string_equal(e.hint, "write (G-G-G-*-)x6; the parenthesis opened at place 2");
    st_arena_destroy(a);
}

static void what_cannot_train(void **state)
{
    static const struct { const char *text; int column; const char *message; } wrong[] = {
        {"", 1, "the pattern has no layers"},
        {"/*-", 1, "mtp depths but no layers"},
        {"G-G-G-*-/", 10, "mtp depth 1 of the pattern is empty"},
        {"G-/*-//*-", 7, "mtp depth 2 of the pattern is empty"},
        {"G-|*-", 3, "'|' cuts the stack"},
        {"|", 1, "'|' cuts the stack"},
    };
    static const char *const good[] = {"G", "G-G-G-*-/*-/*-", "(G-G-G-*-)x6/*-", "M/G/*"};
    st_arena *a = st_arena_create(0);
    for (size_t i = 0; i < ST_COUNT(wrong); i++) {
        st_pattern p;
        st_error e = {0};
        assert_int_equal(st_pattern_parse(wrong[i].text, &symbols, 0, a, &p, &e), ST_OK);
        assert_int_equal(st_pattern_check(&p, &e), ST_E_CONFIG);
        if (e.column != wrong[i].column || !strstr(e.message, wrong[i].message))
            fail_msg("%s: %d %s", wrong[i].text, e.column, e.message);
    }
    for (size_t i = 0; i < ST_COUNT(good); i++) {
        st_pattern p;
        st_error e = {0};
        assert_int_equal(st_pattern_parse(good[i], &symbols, 0, a, &p, &e), ST_OK);
        assert_int_equal(st_pattern_check(&p, &e), ST_OK);
    }
    st_arena_destroy(a);
}

/* ---- sugar, against two derivations that share nothing with it ---- */

/* HF writes the kinds of all blocks out as a list (layer_types); this walks such a list. */
static void from_layer_types(const char *const *types, int n, char mlp, int depths, char *out)
{
    for (int i = 0; i < n; i++) {
        *out++ = strcmp(types[i], "full_attention") == 0 ? '*' : 'G';
        *out++ = mlp;
    }
    for (int k = 0; k < depths; k++) {
        *out++ = '/';
        *out++ = strcmp(types[n - 1], "full_attention") == 0 ? '*' : 'G';
        *out++ = mlp;
    }
    *out = 0;
}

/* The integer rule: block i is full when (i + 1) % cadence == 0. */
static void from_rule(int n, int cadence, char mlp, int depths, char *out)
{
    int at = 0;
    for (int i = 0; i < n + depths; i++) {
        int block = i < n ? i : n - 1;
        if (i >= n) out[at++] = '/';
        out[at++] = (block + 1) % cadence ? 'G' : '*';
        out[at++] = mlp;
    }
    out[at] = 0;
}

static void expect_sugar(int blocks, int cadence, char mlp, int depths, const char *want)
{
    st_arena *a = st_arena_create(0);
    st_error e = {0};
    st_pattern p;
    char *got;
    assert_int_equal(st_pattern_expand(blocks, cadence, 'G', '*', mlp, depths, a, &got, &e), ST_OK);
    assert_string_equal(got, want);
    assert_int_equal(st_pattern_parse(got, &symbols, 1, a, &p, &e), ST_OK); /* Megatron takes it, too */
    assert_int_equal(p.main.n, 2 * blocks);
    assert_int_equal(p.depths, depths);
    st_arena_destroy(a);
}

static void sugar_small(void **state)
{
    /* the list as HF writes it, to any length */
    static const char *const types[] = {
        "linear_attention", "linear_attention", "linear_attention", "full_attention",   "linear_attention",
        "linear_attention", "linear_attention", "full_attention",   "linear_attention",
    };
    for (int n = 0; n <= 9; n++)
        for (int depths = 0; depths <= (n ? 3 : 0); depths++) {
            char list[64], rule[64];
            from_layer_types(types, n, '-', depths, list);
            from_rule(n, 4, '-', depths, rule);
            assert_string_equal(list, rule);
            expect_sugar(n, 4, '-', depths, list);
            for (int cadence = 1; cadence <= 10; cadence++) {
                from_rule(n, cadence, 'E', depths, rule);
                expect_sugar(n, cadence, 'E', depths, rule);
            }
        }
    expect_sugar(0, 4, '-', 0, "");
    expect_sugar(1, 4, '-', 1, "G-/G-"); /* the last block, whatever it is */
    expect_sugar(3, 4, '-', 1, "G-G-G-/G-");
    expect_sugar(4, 4, '-', 1, "G-G-G-*-/*-");
    expect_sugar(5, 4, '-', 2, "G-G-G-*-G-/G-/G-");
    expect_sugar(2, 1, 'E', 1, "*E*E/*E");
}

static void sugar_public_sizes(void **state)
{
    static const struct { const char *name; int blocks, linear, full; char mlp; const char *repeat; } size[] = {
        {"0.8B", 24, 18, 6, '-', "(G-G-G-*-)x6/*-"},      {"2B", 24, 18, 6, '-', "(G-G-G-*-)x6/*-"},
        {"4B", 32, 24, 8, '-', "(G-G-G-*-)x8/*-"},        {"9B", 32, 24, 8, '-', "(G-G-G-*-)x8/*-"},
        {"27B", 64, 48, 16, '-', "(G-G-G-*-)x16/*-"},     {"35B-A3B", 40, 30, 10, 'E', "(GEGEGE*E)x10/*E"},
        {"122B-A10B", 48, 36, 12, 'E', "(GEGEGE*E)x12/*E"}, {"397B-A17B", 60, 45, 15, 'E', "(GEGEGE*E)x15/*E"},
    };
    static const char *const group[] = {"linear_attention", "linear_attention", "linear_attention", "full_attention"};
    for (size_t s = 0; s < ST_COUNT(size); s++) {
        const char *types[64];
        char list[160], rule[160];
        int count[2] = {0};
        for (int i = 0; i < size[s].blocks; i++) types[i] = group[i % 4];
        from_layer_types(types, size[s].blocks, size[s].mlp, 1, list);
        from_rule(size[s].blocks, 4, size[s].mlp, 1, rule);
        assert_string_equal(list, rule);
        expect_sugar(size[s].blocks, 4, size[s].mlp, 1, list);
        st_arena *a = st_arena_create(0);
        st_pattern p;
        st_error e = {0};
        assert_int_equal(st_pattern_parse(size[s].repeat, &symbols, 0, a, &p, &e), ST_OK);
        assert_int_equal(p.main.n, 2 * size[s].blocks);
        assert_memory_equal(p.main.symbols, list, (size_t)p.main.n);
        assert_string_equal(p.depth[0].symbols, list + p.main.n + 1);
        for (int i = 0; i < p.main.n; i += 2) count[p.main.symbols[i] == '*']++;
        assert_true(count[0] == size[s].linear && count[1] == size[s].full);
        st_arena_destroy(a);
    }
}

static void sugar_refused(void **state)
{
    static const struct { int64_t blocks, cadence, depths; const char *message; } wrong[] = {
        {-1, 4, 0, "blocks = -1"}, {INT64_MAX, 4, 0, "blocks ="}, {4, 0, 0, "cadence = 0"}, {4, -4, 0, "cadence = -4"},
        {4, 4, -1, "mtp_depths = -1"}, {4, 4, 1000, "mtp_depths = 1000"}, {0, 4, 1, "no block to copy"},
    };
    st_arena *a = st_arena_create(0);
    for (size_t i = 0; i < ST_COUNT(wrong); i++) {
        st_error e = {0};
        char *out;
        assert_int_equal(
            st_pattern_expand(wrong[i].blocks, wrong[i].cadence, 'G', '*', '-', wrong[i].depths, a, &out, &e),
            ST_E_CONFIG);
        assert_non_null(strstr(e.message, wrong[i].message));
    }
    st_arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_megatron),        cmocka_unit_test(segment_borders),
        cmocka_unit_test(beyond_megatron),    cmocka_unit_test(hints),
        cmocka_unit_test(what_cannot_train),  cmocka_unit_test(sugar_small),
        cmocka_unit_test(sugar_public_sizes), cmocka_unit_test(sugar_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
