/* SPDX-License-Identifier: Apache-2.0 */
/* tests/data/test_cord.c - ground truth to label text, marks, damaged lines, paths; through the plugin's own table. */
#include <jansson.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include <strata/dataset.h>

const st_plugin *st_plugin_v1(void);

typedef struct fixture {
    st_base *base;
    st_arena *arena;
    st_error error;
    st_worker worker;
    st_dataset_ops ops;
    void *self;
    char dir[64];
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (st_base_create(&f->base, stderr, 1, 1) != ST_OK) return -1;
    f->arena = st_arena_create(0);
    f->worker = (st_worker){.size = sizeof f->worker, .host = &f->base->host, .arena = f->arena, .error = &f->error};
    memcpy(&f->ops, st_plugin_v1()->ops, sizeof f->ops);
    strcpy(f->dir, "/tmp/strata-cord-XXXXXX");
    *state = f;
    return mkdtemp(f->dir) ? 0 : -1;
}

static void set_field(fixture *f, const char *key, const void *value, size_t n)
{
    const st_plugin *p = st_plugin_v1();
    for (uint32_t i = 0; i < p->n_params; i++)
        if (strcmp(p->params[i].key, key) == 0) {
            memcpy((char *)f->self + p->params[i].offset, value, n);
            return;
        }
    fail_msg("no parameter %s", key);
}

static void write_file(fixture *f, const char *name, const void *data, size_t n)
{
    st_error e = {0};
    if (st_file_write_atomic(st_arena_printf(f->arena, "%s/%s", f->dir, name), data, n, &e)) fail_msg("%s", e.message);
}

static int open_set(fixture *f, int32_t order, const char *split)
{
    const char *path = f->dir;
    if (f->self) f->ops.close(f->self);
    free(f->self);
    f->self = calloc(1, st_plugin_v1()->self_size);
    set_field(f, "path", &path, sizeof path);
    set_field(f, "key_order", &order, sizeof order);
    memset(&f->error, 0, sizeof f->error);
    return f->ops.open(f->self, &f->worker, split);
}

static int teardown(void **state)
{
    fixture *f = *state;
    char *command = st_arena_printf(f->arena, "rm -rf %s", f->dir);
    if (f->self) f->ops.close(f->self);
    free(f->self);
    int rc = system(command);
    st_arena_destroy(f->arena);
    st_base_destroy(f->base);
    free(f);
    return rc;
}

static int get(fixture *f, int64_t index, st_sample *s)
{
    memset(&f->error, 0, sizeof f->error);
    memset(s, 0, sizeof *s);
    s->size = sizeof *s;
    return f->ops.get(f->self, &f->worker, index, s);
}

/* One record with this ground truth -> the answer's part, or NULL and the error in f->error. */
static const st_part *answer(fixture *f, const char *truth, size_t n, int32_t order)
{
    st_sample s;
    json_t *line = json_object();
    json_object_set_new(line, "file_name", json_string("a.png"));
    json_object_set_new(line, "ground_truth", json_stringn(truth, n));
    char *text = json_dumps(line, JSON_COMPACT);
    write_file(f, "metadata.jsonl", text, strlen(text));
    free(text);
    json_decref(line);
    assert_int_equal(open_set(f, order, "train"), ST_OK);
    assert_int_equal(f->ops.count(f->self), 1);
    int rc = get(f, 0, &s);
    if (rc != ST_OK) {
        assert_int_equal(rc, ST_E_DATA);
        assert_non_null(strstr(f->error.message, "metadata.jsonl:1: "));
        return NULL;
    }
    assert_int_equal(s.n_turns, 2);
    assert_string_equal(s.turns[0].role, "user");
    assert_int_equal(s.turns[0].parts[0].type, ST_PART_IMAGE);
    assert_string_equal(s.turns[1].role, "assistant");
    assert_int_equal(s.turns[1].train, 1);
    return &s.turns[1].parts[0];
}

#define TEA "<s_price>12,000</s_price><s_nm>Tea (L)</s_nm><s_cnt>2 x</s_cnt>"
#define TEA_JSON "{\"nm\": \"Tea (L)\", \"cnt\": \"2 x\", \"price\": \"12,000\"}"
static const struct {
    const char *truth, *text;
} labels[] = {
    /* text NULL: refused */
    {"{\"gt_parse\": {\"menu\": [" TEA_JSON
     ", {\"nm\": \"Cake\", \"price\": \"8.50\"}], \"total\": {\"total_price\": \"20.50\"}}}",
     "<s_total><s_total_price>20.50</s_total_price></s_total><s_menu>" TEA
     "<sep/><s_price>8.50</s_price><s_nm>Cake</s_nm></s_menu>"},
    {"{\"gt_parse\": {\"menu\": " TEA_JSON ", \"total\": {\"total_price\": \"12,000\"}}}",
     "<s_total><s_total_price>12,000</s_total_price></s_total><s_menu>" TEA "</s_menu>"},
    {"{\"gt_parse\": {\"menu\": [" TEA_JSON "]}}", "<s_menu>" TEA "</s_menu>"},
    {"{\"gt_parse\": {\"menu\": {\"sub\": [{\"nm\": \"less ice\"}, {\"nm\": \"no sugar\"}]}}}",
     "<s_menu><s_sub><s_nm>less ice</s_nm><sep/><s_nm>no sugar</s_nm></s_sub></s_menu>"},
    {"{\"gt_parse\": {\"menu\": {\"nm\": [\"Tea\", \"with lemon\"], \"price\": [\"1\", \"2\"]}}}",
     "<s_menu><s_price>1<sep/>2</s_price><s_nm>Tea<sep/>with lemon</s_nm></s_menu>"},
    {"{\"gt_parse\": {\"menu\": {}, \"total\": {\"total_price\": \"1\"}}}",
     "<s_total><s_total_price>1</s_total_price></s_total><s_menu></s_menu>"},
    {"{\"gt_parse\": {\"menu\": [], \"total\": {\"total_price\": \"1\"}}}",
     "<s_total><s_total_price>1</s_total_price></s_total><s_menu></s_menu>"},
    {"{\"gt_parse\": {\"menu\": {\"nm\": \"\", \"price\": \"\"}}}",
     "<s_menu><s_price></s_price><s_nm></s_nm></s_menu>"},
    {"{\"gt_parse\": {}}", ""},
    {"{\"gt_parse\": {\"a\": null, \"b\": true, \"c\": false, \"d\": 3, \"e\": 1.0, \"f\": 0.1, \"g\": 100000.0}}",
     "<s_g>100000.0</s_g><s_f>0.1</s_f><s_e>1.0</s_e><s_d>3</s_d><s_c>False</s_c><s_b>True</s_b><s_a>None</s_a>"},
    {"{\"gt_parse\":{\"n\":123456789012345678901234567890}}", "<s_n>123456789012345678901234567890</s_n>"},
    {"{\"gt_parse\":[1e5, 1e16, 1.5e-4, 1.5e-5, -0, -0.0, 12.50, 1E22, 0.1e1, 123456789012345680.0, 5e-324]}",
     "100000.0<sep/>1e+16<sep/>0.00015<sep/>1.5e-05<sep/>0<sep/>-0.0<sep/>12.5<sep/>1e+22<sep/>1.0<sep/"
     ">1.2345678901234568e+17<sep/>5e-324"},
    {"{\"gt_parses\": [{\"a\": \"1\"}, {\"a\": \"2\"}]}", "<s_a>1</s_a>"},
    {"{\"gt_parse\": {\"a\": \"1\"}, \"meta\": {\"image_id\": 7}, \"valid_line\": [{\"words\": []}], \"roi\": {}}",
     "<s_a>1</s_a>"},
    {"{\"gt_parse\": [{\"a\": \"1\"}, {\"b\": \"2\"}]}", "<s_a>1</s_a><sep/><s_b>2</s_b>"},
    {"{\"gt_parse\": {\"text_sequence\": \"plain words\"}}", "plain words"},
    {"{\"gt_parse\": {\"text_sequence\": \"  two  spaces \\n tail \"}}", "  two  spaces \n tail "},
    {"{\"gt_parse\": {\"nm\": \"top\", \"menu\": {\"nm\": \"inner\", \"menu\": {\"nm\": \"deep\"}}}}",
     "<s_nm>top</s_nm><s_menu><s_nm>inner</s_nm><s_menu><s_nm>deep</s_nm></s_menu></s_menu>"},
    {"{\"gt_parse\": {\"b\": \"1\", \"a\": \"2\", \"B\": \"3\", \"_\": \"4\", \"10\": \"5\", \"9\": \"6\"}}",
     "<s_b>1</s_b><s_a>2</s_a><s__>4</s__><s_B>3</s_B><s_9>6</s_9><s_10>5</s_10>"},
    {"{\"gt_parse\":{\"a\":\"1\",\"b\":\"x\",\"a\":\"2\"}}", "<s_b>x</s_b><s_a>2</s_a>"},
    {"{\"gt_parse\":{\"nm\":\"\\u00e9\\u4e2d\\/\\t\\b\\f\\\"\\\\\"}}", "<s_nm>\xC3\xA9\xE4\xB8\xAD/\t\b\f\"\\</s_nm>"},
    {"{\"gt_parse\":{\"nm\":\"a 5, -3\\\" 7\"}}", "<s_nm>a 5, -3\" 7</s_nm>"},
    {"{\"meta\":{\"image_id\":1}}", NULL},
    {"{\"gt_parse\":{\"nm\":\"\\x41\"}}", NULL},
    {"{\"gt_parse\":{\"nm\":\"\\u41\"}}", NULL},
    {"{\"gt_parse\":{\"nm\":\"a\nb\"}}", NULL},
    {"{\"gt_parse\":{\"n\":NaN}}", NULL},
    {"{\"gt_parse\":{\"n\":1,}}", NULL},
    {"{\"gt_parse\":{\"n\":\"1", NULL},
    {"\xEF\xBB\xBF{\"gt_parse\":{\"a\":\"1\"}}", NULL},
    {"{\"gt_parse\":{\"n\":01}}", NULL},
    {"{\"gt_parse\":{1:\"a\"}}", NULL},
    {"{\"gt_parse\":{\"n\":1e999}}", NULL},
    {"{\"gt_parse\":{\"n\":--1}}", NULL},
    {"7", NULL},
    {"", NULL},
};

static void label_table(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        const st_part *p = answer(f, labels[i].truth, strlen(labels[i].truth), 0);
        if (!p != !labels[i].text) fail_msg("%s: %s", labels[i].truth, p ? "was taken" : f->error.message);
        if (!p) continue;
        if (p->n_text != strlen(labels[i].text) || memcmp(p->text ? p->text : "", labels[i].text, p->n_text))
            fail_msg("%s: '%.*s', expected '%s'", labels[i].truth, (int)p->n_text, p->text, labels[i].text);
    }
}

static void nul_is_kept(void **state)
{
    fixture *f = *state;
    const char truth[] = "{\"gt_parse\":{\"nm\":\"a\\u0000b\"}}";
    const st_part *p = answer(f, truth, sizeof truth - 1, 0);
    assert_non_null(p);
    assert_int_equal(p->n_text, 16);
    assert_memory_equal(p->text, "<s_nm>a\0b</s_nm>", 16);
}

static void file_order(void **state)
{
    const char truth[] = "{\"gt_parse\": " TEA_JSON "}";
    const st_part *p = answer(*state, truth, sizeof truth - 1, 1);
    assert_non_null(p);
    assert_memory_equal(p->text, "<s_nm>Tea (L)</s_nm><s_cnt>2 x</s_cnt><s_price>12,000</s_price>", p->n_text);
}

static void deep(void **state)
{
    for (int n = 200; n <= 100000; n += 99800) {
        st_buf b = {0};
        st_buf_puts(&b, "{\"gt_parse\":{\"a\":");
        for (int i = 0; i < n; i++) st_buf_puts(&b, "[");
        st_buf_puts(&b, "\"x\"");
        for (int i = 0; i < n; i++) st_buf_puts(&b, "]");
        st_buf_puts(&b, "}}");
        const st_part *p = answer(*state, b.data, b.n, 0);
        if (n == 200) assert_memory_equal(p->text, "<s_a>x</s_a>", p->n_text);
        else assert_null(p);
        st_buf_free(&b);
    }
}

/* The first piece of a name, a count, the leading digits of a price. */
static void marks(void **state)
{
    static const char *const marked[] = {"12", "T", "2", "8", "C"};
    const char truth[] =
        "{\"gt_parse\": {\"menu\": [" TEA_JSON ", {\"nm\": \"Cake\", \"price\": \"8.50\", \"cnt\": \"\"}]}}";
    const st_part *p = answer(*state, truth, sizeof truth - 1, 0);
    assert_non_null(p);
    assert_int_equal(p->n_marks, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(p->marks[i].n, strlen(marked[i]));
        assert_memory_equal(p->text + p->marks[i].first, marked[i], p->marks[i].n);
        if (i > 0) assert_true(p->marks[i].first >= p->marks[i - 1].first + p->marks[i - 1].n);
    }
}

/* A caption is content as a whole, also where it begins with a number. */
static void plain_marks(void **state)
{
    static const char *const truth[] = {"{\"gt_parse\": {\"text_sequence\": \"25 cups of tea\"}}",
                                        "{\"gt_parse\": \"25 cups of tea\"}",
                                        "{\"gt_parses\": [{\"text_sequence\": \"25 cups of tea\"}]}"};
    for (size_t i = 0; i < ST_COUNT(truth); i++) {
        const st_part *p = answer(*state, truth[i], strlen(truth[i]), 0);
        assert_non_null(p);
        assert_int_equal(p->n_marks, 1);
        assert_int_equal(p->marks[0].first, 0);
        assert_int_equal(p->marks[0].n, strlen("25 cups of tea"));
    }
    const char tagged[] = "{\"gt_parse\": {\"a\": {\"text_sequence\": \"25 cups\"}}}";
    const st_part *p = answer(*state, tagged, sizeof tagged - 1, 0);
    assert_int_equal(p->n_marks, 1);
    assert_int_equal(p->marks[0].n, 2);
}

static void damaged_lines(void **state)
{
    static const char file[] =
        "\xEF\xBB\xBF{\"file_name\": \"a.png\", \"ground_truth\": \"{\\\"gt_parse\\\": {\\\"a\\\": 1}}\"}\n"
        "\n  \r\n{broken\n{\"file_name\": 5, \"ground_truth\": \"{}\"}\n[1]\n{\"file_name\": \"b.png\"}\n"
        "{\"file_name\": \"c.png\", \"ground_truth\": \"{\xE9}\"}\n"
        "{\"file_name\": \"sub/../d.png\", \"ground_truth\": \"{\\\"gt_parse\\\": {\\\"a\\\": 2}}\"}";
    static const int line[] = {1, 4, 5, 6, 7, 8, 9}, good[] = {1, 0, 0, 0, 0, 0, 1};
    fixture *f = *state;
    write_file(f, "metadata.jsonl", file, sizeof file - 1);
    assert_int_equal(open_set(f, 0, "nothing"), ST_OK);
    assert_int_equal(f->ops.count(f->self), 7);
    for (int i = 0; i < 7; i++) {
        st_sample s;
        int rc = get(f, i, &s);
        if (rc != (good[i] ? ST_OK : ST_E_DATA)) fail_msg("line %d: %d %s", line[i], rc, f->error.message);
        if (!good[i])
            assert_non_null(strstr(f->error.message, st_arena_printf(f->arena, "metadata.jsonl:%d: ", line[i])));
        else assert_non_null(strstr(s.turns[0].parts[0].path, i ? "/d.png" : "/a.png"));
    }
}

static void paths(void **state)
{
    static const struct {
        const char *name;
        int inside;
    } row[] = {{"a.png", 1},         {"x/../a.png", 1},  {"./x//y/a.png", 1}, {"../a.png", 0},
               {"x/../../a.png", 0}, {"/etc/passwd", 0}, {"..", 0},           {"", 0}};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        st_sample s;
        char *text = st_arena_printf(f->arena, "{\"file_name\": \"%s\", \"ground_truth\": \"{\\\"gt_parse\\\": 1}\"}",
                                     row[i].name);
        write_file(f, "metadata.jsonl", text, strlen(text));
        assert_int_equal(open_set(f, 0, "train"), ST_OK);
        assert_int_equal(get(f, 0, &s), row[i].inside ? ST_OK : ST_E_DATA);
    }
    const char *root = "/tmp"; /* root widens where pictures may lie */
    open_set(f, 0, "train");
    f->ops.close(f->self);
    set_field(f, "root", &root, sizeof root);
    const char line[] = "{\"file_name\": \"../a.png\", \"ground_truth\": \"{\\\"gt_parse\\\": 1}\"}";
    write_file(f, "metadata.jsonl", line, sizeof line - 1);
    st_sample s;
    assert_int_equal(f->ops.open(f->self, &f->worker, "train"), ST_OK);
    assert_int_equal(get(f, 0, &s), ST_OK);
    assert_string_equal(s.turns[0].parts[0].path, "/tmp/a.png");
}

static void splits(void **state)
{
    fixture *f = *state;
    const char line[] = "{\"file_name\": \"a.png\", \"ground_truth\": \"{\\\"gt_parse\\\": 1}\"}\n";
    st_error e = {0};
    st_sample s;
    assert_int_equal(st_make_dirs(st_arena_printf(f->arena, "%s/valid", f->dir), &e), ST_OK);
    write_file(f, "valid/metadata.jsonl", line, sizeof line - 1);
    unlink(st_arena_printf(f->arena, "%s/metadata.jsonl", f->dir));
    assert_int_equal(open_set(f, 0, "valid"), ST_OK);
    assert_int_equal(get(f, 0, &s), ST_OK);
    assert_non_null(strstr(s.turns[0].parts[0].path, "/valid/a.png"));
    assert_int_equal(open_set(f, 0, "train"), ST_E_NOTFOUND);
    assert_non_null(strstr(f->error.message, "train"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(label_table),   cmocka_unit_test(nul_is_kept), cmocka_unit_test(file_order),
        cmocka_unit_test(deep),          cmocka_unit_test(marks),       cmocka_unit_test(plain_marks),
        cmocka_unit_test(damaged_lines), cmocka_unit_test(paths),       cmocka_unit_test(splits),
    };
    return cmocka_run_group_tests_name("cord", tests, setup, teardown);
}
