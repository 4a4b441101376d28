/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/kind_cord.c - ground truths of receipts: the label that comes out and is trained, token by token, or the
 * row that is refused by file and line while the others train. */
#include "config.h"

#include "cases.h"
#include "data/loader_priv.h"
#include <strata/dataset.h>

enum { LONG = 1, DEEP, SET };
typedef struct cord_row {
    const char *file;
    const char *truth; /* NULL: made by `make`                                          */
    int32_t n_truth, make, size;
    const char *label; /* NULL: refused                                                 */
    int32_t n_label;
    const char *words; /* why it is refused, or why it is set aside although it is a label */
} cord_row;

#define TRUTH(text) text, sizeof(text) - 1
#define LABEL(text) .label = text, .n_label = sizeof(text) - 1
#define TEA "{\"nm\": \"Tea (L)\", \"cnt\": \"2 x\", \"price\": \"12,000\"}"
#define TEA_SUB(sub) "{\"nm\": \"Tea (L)\", \"cnt\": \"2 x\", \"price\": \"12,000\", \"sub\": " sub "}"
#define TEA_TAGS "<s_price>12,000</s_price><s_nm>Tea (L)</s_nm><s_cnt>2 x</s_cnt>"
#define NOTHING "nothing to train on"
#define IN_FILE "metadata.jsonl:1"

static const cord_row rows[] = {
    {"cord/menu_list.json",
     TRUTH("{\"gt_parse\": {\"menu\": [" TEA ", {\"nm\": \"Cake\", \"price\": \"8.50\"}], "
           "\"total\": {\"total_price\": \"20.50\"}}}"),
     LABEL("<s_total><s_total_price>20.50</s_total_price></s_total><s_menu>" TEA_TAGS
           "<sep/><s_price>8.50</s_price><s_nm>Cake</s_nm></s_menu>")},
    {"cord/menu_dict.json", TRUTH("{\"gt_parse\": {\"menu\": " TEA ", \"total\": {\"total_price\": \"12,000\"}}}"),
     LABEL("<s_total><s_total_price>12,000</s_total_price></s_total><s_menu>" TEA_TAGS "</s_menu>")},
    {"cord/menu_list_of_one.json", TRUTH("{\"gt_parse\": {\"menu\": [" TEA "]}}"),
     LABEL("<s_menu>" TEA_TAGS "</s_menu>")},
    {"cord/nested_sub.json",
     TRUTH("{\"gt_parse\": {\"menu\": [" TEA_SUB("[{\"nm\": \"less ice\"}, {\"nm\": \"no sugar\"}]") ", " TEA_SUB(
         "{\"nm\": \"hot\"}") "]}}"),
     LABEL("<s_menu><s_sub><s_nm>less ice</s_nm><sep/><s_nm>no sugar</s_nm></s_sub>" TEA_TAGS
           "<sep/><s_sub><s_nm>hot</s_nm></s_sub>" TEA_TAGS "</s_menu>")},
    {"cord/value_list.json",
     TRUTH("{\"gt_parse\": {\"menu\": {\"nm\": [\"Tea\", \"with lemon\"], \"price\": [\"1\", \"2\"]}}}"),
     LABEL("<s_menu><s_price>1<sep/>2</s_price><s_nm>Tea<sep/>with lemon</s_nm></s_menu>")},
    {"cord/empty_dict.json", TRUTH("{\"gt_parse\": {\"menu\": {}, \"total\": {\"total_price\": \"1\"}}}"),
     LABEL("<s_total><s_total_price>1</s_total_price></s_total><s_menu></s_menu>")},
    {"cord/empty_list.json", TRUTH("{\"gt_parse\": {\"menu\": [], \"total\": {\"total_price\": \"1\"}}}"),
     LABEL("<s_total><s_total_price>1</s_total_price></s_total><s_menu></s_menu>")},
    {"cord/empty_string.json", TRUTH("{\"gt_parse\": {\"menu\": {\"nm\": \"\", \"price\": \"\"}}}"),
     LABEL("<s_menu><s_price></s_price><s_nm></s_nm></s_menu>")},
    {"cord/empty_parse.json", TRUTH("{\"gt_parse\": {}}"), LABEL(""), .words = NOTHING},
    {"cord/null_bool_number.json",
     TRUTH(
         "{\"gt_parse\": {\"a\": null, \"b\": true, \"c\": false, \"d\": 3, \"e\": 1.0, \"f\": 0.1, \"g\": 100000.0}}"),
     LABEL(
         "<s_g>100000.0</s_g><s_f>0.1</s_f><s_e>1.0</s_e><s_d>3</s_d><s_c>False</s_c><s_b>True</s_b><s_a>None</s_a>")},
    {"cord/big_integer.json", TRUTH("{\"gt_parse\":{\"n\":123456789012345678901234567890}}"),
     LABEL("<s_n>123456789012345678901234567890</s_n>")},
    {"cord/gt_parses.json", TRUTH("{\"gt_parses\": [{\"a\": \"1\"}, {\"a\": \"2\"}]}"), LABEL("<s_a>1</s_a>")},
    {"cord/gt_missing.json", TRUTH("{\"meta\":{\"image_id\":1}}"), .words = IN_FILE},
    {"cord/extra_fields.json",
     TRUTH("{\"gt_parse\": {\"a\": \"1\"}, \"meta\": {\"image_id\": 7}, \"valid_line\": [{\"words\": []}], "
           "\"roi\": {}, \"dontcare\": []}"),
     LABEL("<s_a>1</s_a>")},
    {"cord/parse_is_list.json", TRUTH("{\"gt_parse\": [{\"a\": \"1\"}, {\"b\": \"2\"}]}"),
     LABEL("<s_a>1</s_a><sep/><s_b>2</s_b>")},
    {"cord/text_sequence.json", TRUTH("{\"gt_parse\": {\"text_sequence\": \"plain words\"}}"), LABEL("plain words")},
    {"cord/same_key_two_levels.json",
     TRUTH("{\"gt_parse\": {\"nm\": \"top\", \"menu\": {\"nm\": \"inner\", \"menu\": {\"nm\": \"deep\"}}}}"),
     LABEL("<s_nm>top</s_nm><s_menu><s_nm>inner</s_nm><s_menu><s_nm>deep</s_nm></s_menu></s_menu>")},
    {"cord/key_order.json",
     TRUTH("{\"gt_parse\": {\"b\": \"1\", \"a\": \"2\", \"B\": \"3\", \"_\": \"4\", \"10\": \"5\", \"9\": \"6\"}}"),
     LABEL("<s_b>1</s_b><s_a>2</s_a><s__>4</s__><s_B>3</s_B><s_9>6</s_9><s_10>5</s_10>")},
    {"cord/duplicate_keys.json", TRUTH("{\"gt_parse\":{\"a\":\"1\",\"b\":\"x\",\"a\":\"2\"}}"),
     LABEL("<s_b>x</s_b><s_a>2</s_a>")},
    {"cord/unicode_escapes.json", TRUTH("{\"gt_parse\":{\"nm\":\"\\u00e9\\u4e2d\\/\\t\\b\\f\\\"\\\\\"}}"),
     LABEL("<s_nm>\xC3\xA9\xE4\xB8\xAD/\t\b\f\"\\</s_nm>")},
    {"cord/escape_bad.json", TRUTH("{\"gt_parse\":{\"nm\":\"\\x41\"}}"), .words = IN_FILE},
    {"cord/escape_short.json", TRUTH("{\"gt_parse\":{\"nm\":\"\\u12\"}}"), .words = IN_FILE},
    {"cord/nul_escape.json", TRUTH("{\"gt_parse\":{\"nm\":\"a\\u0000b\"}}"), LABEL("<s_nm>a\0b</s_nm>")},
    {"cord/raw_newline.json", TRUTH("{\"gt_parse\":{\"nm\":\"a\nb\"}}"), .words = IN_FILE},
    {"cord/nan_literal.json", TRUTH("{\"gt_parse\":{\"n\":NaN}}"), .words = IN_FILE},
    {"cord/trailing_comma.json", TRUTH("{\"gt_parse\":{\"a\":\"1\",}}"), .words = IN_FILE},
    {"cord/truncated.json", TRUTH("{\"gt_parse\":{\"a\":\"1\""), .words = IN_FILE},
    {"cord/bom.json", TRUTH("\xEF\xBB\xBF{\"gt_parse\":{\"a\":\"1\"}}"), .words = IN_FILE},
    {"cord/latin1.json", TRUTH("{\"gt_parse\":{\"nm\":\"caf\xE9\"}}"), .words = IN_FILE},
    {"cord/deep_200.json", .make = DEEP, .size = 200, LABEL("<s_a>x</s_a>")},
    {"cord/deep_100000.json", .make = DEEP, .size = 100000, .words = IN_FILE},
    {"cord/long_label.json", .make = LONG, .size = 3000},
    {"cord/blank_label.json", TRUTH("{\"gt_parse\": {\"text_sequence\": \"\"}}"), LABEL(""), .words = NOTHING},
    {"cord/spaces_label.json", TRUTH("{\"gt_parse\": {\"text_sequence\": \"  two  spaces \\n tail \"}}"),
     LABEL("  two  spaces \n tail ")},
#define LINE(picture, truth) "{\"file_name\": \"../images/" picture "\", \"ground_truth\": \"" truth "\"}\n"
#define MENU "{\\\"gt_parse\\\": {\\\"menu\\\": {\\\"nm\\\": \\\"Tea (L)\\\", \\\"price\\\": \\\"12,000\\\"}}}"
#define TOTAL "{\\\"gt_parse\\\": {\\\"total\\\": {\\\"total_price\\\": \\\"5\\\"}}}"
    {"cord/metadata.jsonl", TRUTH(LINE("jpg_rgb.jpg", MENU) LINE("png_gray8.png", MENU) LINE("png_rgb8.png", TOTAL)),
     .make = SET},
    {"cord/metadata_damaged.jsonl",
     TRUTH(LINE("jpg_rgb.jpg", MENU) "\n{broken\n" LINE("png_gray8.png", MENU) LINE("none.jpg", "{\\\"gt_parse\\\":{}}")
               LINE("zero_byte.jpg", "{\\\"gt_parse\\\":{}}") LINE("png_rgb8.png", TOTAL)),
     .make = SET},
};

/* ---- making ---- */

static st_buf made_truth(const cord_row *r)
{
    st_buf b = {0};

    if (r->make == LONG) {
        st_buf_puts(&b, "{\"gt_parse\": {\"menu\": [");
        for (int i = 0; i < r->size; i++)
            st_buf_printf(&b, "%s{\"nm\": \"item %d\", \"price\": \"%d\"}", i ? ", " : "", i, i);
        st_buf_puts(&b, "]}}");
    } else if (r->make == DEEP) {
        st_buf_puts(&b, "{\"gt_parse\":{\"a\":");
        for (int i = 0; i < r->size; i++) st_buf_puts(&b, "[");
        st_buf_puts(&b, "\"x\"");
        for (int i = 0; i < r->size; i++) st_buf_puts(&b, "]");
        st_buf_puts(&b, "}}");
    } else {
        st_buf_add(&b, r->truth, (size_t)r->n_truth);
    }
    return b;
}

static void make(const cases *c, const void *row)
{
    const cord_row *r = row;
    st_buf b = made_truth(r);

    case_put(c, r->file, b.data, b.n);
    st_buf_free(&b);
}

/* ---- checking ---- */

/* A line of metadata.jsonl with this ground truth. Bytes go in as they are, so that what is no UTF-8 stays none. */
static void add_line(st_buf *to, const char *picture, const char *truth, size_t n)
{
    st_buf_printf(to, "{\"file_name\": \"%s\", \"ground_truth\": \"", picture);
    for (size_t i = 0; i < n; i++) {
        uint8_t b = (uint8_t)truth[i];
        if (b == '"' || b == '\\') st_buf_printf(to, "\\%c", b);
        else if (b < 0x20) st_buf_printf(to, "\\u%04x", b);
        else st_buf_add(to, &b, 1);
    }
    st_buf_puts(to, "\"}\n");
}

/* The case's record and a good one behind it, as a data set. */
static const char *two_records(const cases *c, const char *truth, size_t n)
{
    static const char good[] = "{\"gt_parse\": {\"nm\": \"tea\"}}";
    const char *folder = case_folder(c), *picture = case_path(c, "images/png_rgb8.png");
    st_buf lines = {0};

    add_line(&lines, picture, truth, n);
    add_line(&lines, picture, good, sizeof good - 1);
    case_write(c, folder, "metadata.jsonl", lines.data, lines.n);
    st_buf_free(&lines);
    return folder;
}

static const char *spec_of(const cases *c, const char *folder, const char *batch)
{
    return case_spec(c, batch,
                     st_arena_printf(c->arena, "[dataset.train]\nplugin = cord_v2\npath = %s\nroot = /\n", folder));
}

/* What the data set itself gives, before it is laid out. */
static void check_label(const cases *c, const case_run *run, const cord_row *r)
{
    const st_preparer *p = &run->run.train->preparer;
    st_sample s = {.size = sizeof s};
    st_error e = {0};
    st_worker w = {.size = sizeof w, .host = &run->base->host, .arena = c->arena, .error = &e};

    if (p->dataset.get(p->dataset_self, &w, 0, &s) != ST_OK) fail_msg("%s", e.message);
    const st_part *part = &s.turns[s.n_turns - 1].parts[0];
    if (part->n_text != (size_t)r->n_label || memcmp(part->text ? part->text : "", r->label, part->n_text) != 0)
        fail_msg("the label is '%.*s', it should be '%s'", (int)part->n_text, part->text, r->label);
}

/* Trained are the tokens of the label and the end of the turn, whole and nothing else. */
static void check_trained(const case_run *run, const cord_row *r, const st_prepared *p)
{
    const st_tokenizer *t = st_loader_tokenizer(run->run.train);
    int32_t *ids = calloc((size_t)p->n, sizeof *ids), n = 0;
    st_buf text = {0};
    st_error e = {0};

    for (int32_t i = 0; i < p->n; i++)
        if (p->train[i]) ids[n++] = p->ids[i];
    if (n < 1 || ids[n - 1] != st_loader_end_of_turn(run->run.train)) fail_msg("the end of the turn is not trained");
    if (st_tokenizer_decode(t, ids, n - 1, 0, &text, &e) != ST_OK) fail_msg("%s", e.message);
    if (text.n != (size_t)r->n_label || memcmp(text.data, r->label, text.n) != 0)
        fail_msg("trained is '%s', it should be '%s'", text.data, r->label);
    st_buf_free(&text);
    free(ids);
}

/* One pass over both records: the second trains, the first too or is named and counted. */
static void check_pass(case_run *run, bool trains)
{
    int64_t trained[2] = {-1, -1};
    st_loader_state state;
    int n = case_pass(run, trained, 2, &state);

    if (n != 1 + trains || trained[0] != !trains || state.bad != !trains)
        fail_msg("%d trained, the first is %lld; %lld set aside", n, (long long)trained[0], (long long)state.bad);
}

static void check_long(const cases *c, const char *folder)
{
    static const char *const batch[] = {"tokens = 256\n", "tokens = 512\n", "tokens = 1024\n",
                                        "tokens = 2048\nmax_len = 300\n"};

    for (size_t i = 0; i < ST_COUNT(batch); i++) {
        case_run run;
        st_prepared p;
        st_error e = {0};
        const char *text;
        int32_t trained = 0, places = 0;
        case_must_open(&run, spec_of(c, folder, batch[i]));
        const st_row_shape *shape = st_model_shape(run.run.model);
        if (st_loader_sample(run.run.train, 0, 0, c->arena, &p, &text, &e) != ST_OK) fail_msg("%s", e.message);
        for (int32_t k = 0; k < p.n; k++) trained += p.train[k];
        for (int32_t k = 0; k < p.n_runs; k++) places += p.runs[k].n;
        if (p.n != (shape->max_len < shape->tokens ? shape->max_len : shape->tokens)) fail_msg("%d tokens", p.n);
        if (p.n_items != 1 || places != p.items[0].plan.rows) fail_msg("%d places for the picture", places);
        if (trained < 1) fail_msg("nothing of it is trained");
        check_pass(&run, true);
        case_close(&run);
    }
}

static void check_truth(const cases *c, const cord_row *r)
{
    size_t n;
    char *truth = case_read(c, r->file, &n);
    const char *folder = two_records(c, truth, n), *text;
    case_run run;
    st_prepared p;
    st_error e = {0};

    if (r->make == LONG) {
        check_long(c, folder);
        return;
    }
    case_must_open(&run, spec_of(c, folder, "tokens = 512\n"));
    int rc = st_loader_sample(run.run.train, 0, 0, c->arena, &p, &text, &e);
    if (r->label) check_label(c, &run, r);
    if (r->words) {
        if (rc != ST_E_DATA || !case_has(e.message, "record 0") || !case_has(e.message, r->words))
            fail_msg("code %d: %s", rc, e.message);
    } else {
        if (rc != ST_OK) fail_msg("%s", e.message);
        check_trained(&run, r, &p);
    }
    check_pass(&run, !r->words);
    if (r->words && !case_has(case_screen(&run), r->words)) fail_msg("it was not told why");
    case_close(&run);
}

/* All records of a file: the good ones train in their order, the others are told by line. */
static void check_set(const cases *c, const cord_row *r)
{
    bool damaged = strstr(r->file, "damaged") != NULL;
    const int64_t good[2][3] = {{0, 1, 2}, {0, 2, 5}}; /* blank lines are no records */
    const char *folder = case_folder(c);
    int64_t trained[8];
    st_loader_state state;
    case_run run;
    size_t n;
    char *text = case_read(c, r->file, &n);
    st_buf lines = {0};

    for (char *at = text, *hit; *at; at = hit + 10) { /* pictures by their whole path */
        hit = strstr(at, "../images/");
        if (!hit) {
            st_buf_puts(&lines, at);
            break;
        }
        st_buf_add(&lines, at, (size_t)(hit - at));
        st_buf_printf(&lines, "%s/images/", c->dir);
    }
    case_write(c, folder, "metadata.jsonl", lines.data, lines.n);
    st_buf_free(&lines);
    case_must_open(&run, spec_of(c, folder, "tokens = 512\n"));
    int used = case_pass(&run, trained, 8, &state);
    if (used != 3 || memcmp(trained, good[damaged], sizeof good[0]) != 0 || state.bad != (damaged ? 3 : 0))
        fail_msg("%d trained, %lld set aside", used, (long long)state.bad);
    const char *said = case_screen(&run);
    if (damaged &&
        (!case_has(said, "metadata.jsonl:3: ") || !case_has(said, "none.jpg") || !case_has(said, "zero_byte.jpg")))
        fail_msg("not all are named in: %s", said);
    case_close(&run);
}

static void check(const cases *c, const void *row)
{
    const cord_row *r = row;

    if (r->make == SET) check_set(c, r);
    else check_truth(c, r);
}

const case_kind cord_kind = CASE_KIND("cord", rows, make, check);
