/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/kind_ini.c - one spec with one change each, through all that `strata check` does: the same settings, or a
 * refusal by line. Files that are given have placeholder names of sections and keys; those are exchanged for real ones
 * byte by byte, lines and columns stay what they are about. */
#include "config.h"

#include "cases.h"

enum { SAME = 1, VALUE, REFUSED, ACCEPTED };
enum { CHANGE = 0, INSERT, APPEND, WHOLE, ENDS, INDENTED, WIDE, FILLED }; /* how base.ini becomes the file */
typedef struct ini_row {
    const char *file;
    int32_t how, line; /* CHANGE, INSERT: of this line     */
    const char *text;
    int32_t n_text, outcome, at; /* at: line of the message, 0: none */
    const char *words;           /* of the message; VALUE: of [run] output, or of "eee..." by its length */
    int32_t length;              /* of the value                     */
} ini_row;

static const char *const base[] = {
    "; a spec with one change",
    "[stack]",
    "pattern = G-G-G-*-/*-",
    "hidden = 64",
    "",
    "[schedule]",
    "lr = 1e-5",
    "final_ratio = 1.0",
    "",
    "[batch]",
    "tokens = 100",
    "sequences = 7",
    "",
    "[run]",
    "output = runs/a",
};
enum { PATTERN = 3, LR = 7, TOKENS = 11, OUTPUT = 15 };

/* The rest of a spec that can train. */
static const char *const sets[] = {
    "stack.vocab=600",
    "run.steps=3",
    "dataset.train.plugin=mock",
    "dataset.train.vocab=500",
    "dataset.train.min_tokens=9",
    "dataset.train.max_tokens=60",
    "layer.G.key_heads=2",
    "layer.G.value_heads=2",
    "layer.G.key_dim=8",
    "layer.G.value_dim=8",
    "layer.*.heads=2",
    "layer.*.kv_heads=1",
    "layer.*.head_dim=16",
    "layer.-.width=32",
    "position.plugin=rope",
};

#define TEXT(t) t, sizeof(t) - 1
#define LR_IS(text_, at_, words_) CHANGE, LR, TEXT(text_), .outcome = REFUSED, at_, words_
#define TOKENS_ARE(text_, words_) CHANGE, TOKENS, TEXT("tokens = " text_), .outcome = REFUSED, TOKENS, words_
#define PATTERN_IS(text_, outcome_, words_) \
    CHANGE, PATTERN, TEXT("pattern = " text_), .outcome = outcome_, PATTERN, words_
static const ini_row rows[] = {
    {"ini/base.ini", CHANGE, 1, TEXT("; a spec with one change"), .outcome = SAME},
    {"ini/bom.ini", CHANGE, 1, TEXT("\xEF\xBB\xBF; a spec with one change"), .outcome = SAME},
    {"ini/utf16.ini", WIDE, 0, NULL, 0, .outcome = REFUSED, 1, "UTF-16"},
    {"ini/crlf.ini", ENDS, 0, TEXT("\r\n"), .outcome = SAME},
    {"ini/no_last_newline.ini", ENDS, 1, TEXT("\n"), .outcome = SAME},
    {"ini/empty.ini", WHOLE, 0, TEXT(""), .outcome = REFUSED, 0, "needs the key"},
    {"ini/only_comments.ini", WHOLE, 0, TEXT("; nothing\n# here\n"), .outcome = REFUSED, 0, "needs the key"},
    {"ini/nul_inside.ini", LR_IS("lr = 1e-5\0"
                                 "9",
                                 LR, "NUL")},
    {"ini/latin1_comment.ini", APPEND, 0, TEXT("; caf\xE9\n"), .outcome = REFUSED, 16, "not UTF-8"},
    {"ini/indent_keys.ini", INDENTED, 0, TEXT("  "), .outcome = SAME},
    {"ini/colon.ini", LR_IS("lr: 1e-5", LR, "neither a key")},
    {"ini/spaces_tabs.ini", CHANGE, LR, TEXT("lr\t =\t 1e-5 \t "), .outcome = SAME},
    {"ini/key_before_section.ini", INSERT, 1, TEXT("lr = 3"), .outcome = REFUSED, 1, "outside any section"},
    {"ini/no_bracket.ini", CHANGE, 6, TEXT("[schedule"), .outcome = REFUSED, 6, "without ']'"},
    {"ini/empty_section.ini", INSERT, 1, TEXT("[]\nx = 1"), .outcome = REFUSED, 1, "without a name"},
    {"ini/no_equals.ini", LR_IS("lr", LR, "neither a key")},
    {"ini/section_comment.ini", CHANGE, 6, TEXT("[schedule] ; note"), .outcome = SAME},
    {"ini/inline_semicolon.ini", CHANGE, LR, TEXT("lr = 1e-5 ; note"), .outcome = SAME},
    {"ini/inline_hash.ini", CHANGE, LR, TEXT("lr = 1e-5 # note"), .outcome = SAME},
    {"ini/semicolon_in_value.ini", CHANGE, OUTPUT, TEXT("output = runs/a;b"), .outcome = VALUE, 0, "runs/a;b"},
    {"ini/long_comment.ini", FILLED, 1, TEXT("; c"), .outcome = SAME, .length = 400},
    {"ini/long_value.ini", FILLED, OUTPUT, TEXT("output = runs/d"), .outcome = VALUE, 0, "d", 5000},
    {"ini/line_200.ini", FILLED, OUTPUT, TEXT("output = e"), .outcome = VALUE, 0, "e", 200},
    {"ini/line_256.ini", FILLED, OUTPUT, TEXT("output = e"), .outcome = VALUE, 0, "e", 256},
    {"ini/dup_key.ini", INSERT, 8, TEXT("lr = 0.5"), .outcome = REFUSED, 8, "it is set at line 7"},
    {"ini/dup_section.ini", APPEND, 0, TEXT("\n[schedule]\nlr = 0.5\n"), .outcome = REFUSED, 17, "it began at line 6"},
    {"ini/unknown_key.ini", INSERT, 8, TEXT("lr_rate = 1"), .outcome = REFUSED, 8, "lr_rate"},
    {"ini/typo_key.ini", LR_IS("lrr = 0.5", LR, "\"lr\"?")},
    {"ini/float_trailing.ini", LR_IS("lr = 1e-5x", LR, "trailing characters")},
    {"ini/float_empty.ini", LR_IS("lr = ", LR, "empty")},
    {"ini/float_nan.ini", LR_IS("lr = nan", LR, "not a finite number")},
    {"ini/float_inf.ini", LR_IS("lr = inf", LR, "not a finite number")},
    {"ini/float_overflow.ini", LR_IS("lr = 1e400", LR, "too large for a double")},
    {"ini/int_negative.ini", TOKENS_ARE("-1", "-1")},
    {"ini/int_overflow.ini", TOKENS_ARE("99999999999999999999", "does not fit in 64 bits")},
    {"ini/int_exp.ini", TOKENS_ARE("1e3", "not a whole number")},
    {"ini/int_fraction.ini", TOKENS_ARE("3.7", "not a whole number")},
    {"ini/int_zero.ini", TOKENS_ARE("0", "0")},
    {"ini/pattern_bad_symbol.ini", PATTERN_IS("G-G-X-*-", REFUSED, "'X' at place 5")},
    {"ini/pattern_empty.ini", PATTERN_IS("", REFUSED, "no layers")},
    {"ini/pattern_space.ini", PATTERN_IS("G- G- G- *-", REFUSED, "a blank at place 3")},
    {"ini/pattern_mtp_only.ini", PATTERN_IS("/*-", REFUSED, "no layers in front")},
    {"ini/pattern_trailing_slash.ini", PATTERN_IS("G-G-G-*-/", REFUSED, "mtp depth 1 of the pattern is empty")},
    {"ini/pattern_mtp_two.ini", PATTERN_IS("G-G-G-*-/*-/*-", ACCEPTED, "")},
    {"ini/pattern_moe_no_experts.ini", CHANGE, PATTERN, TEXT("pattern = GEGEGE*E"), .outcome = REFUSED, 0, "\"experts\""},
};

/* ---- making ---- */

static void add_filled(st_buf *b, const ini_row *r) /* its last letter again and again */
{
    bool whole = r->outcome == VALUE && r->length < 1000; /* the line's length; else that of what is filled in */

    st_buf_add(b, r->text, (size_t)r->n_text - 1);
    for (int32_t i = whole ? r->n_text - 1 : 0; i < r->length; i++) st_buf_add(b, r->text + r->n_text - 1, 1);
}

static void add_line(st_buf *b, const ini_row *r, int32_t line)
{
    const char *text = base[line - 1];
    bool here = line == r->line, key = text[0] && text[0] != '[' && text[0] != ';',
         last = line == (int32_t)ST_COUNT(base);

    if (here && r->how == INSERT) st_buf_printf(b, "%.*s\n", r->n_text, r->text);
    if (r->how == INDENTED && key) st_buf_puts(b, r->text);
    if (here && r->how == CHANGE) st_buf_add(b, r->text, (size_t)r->n_text);
    else if (here && r->how == FILLED) add_filled(b, r);
    else st_buf_puts(b, text);
    if (!(r->how == ENDS && r->line && last)) st_buf_puts(b, r->how == ENDS ? r->text : "\n");
}

static void make(const cases *c, const void *row)
{
    const ini_row *r = row;
    st_buf b = {0}, wide = {0};

    for (int32_t i = 1; i <= (int32_t)ST_COUNT(base) && r->how != WHOLE; i++) add_line(&b, r, i);
    if (r->how == WHOLE || r->how == APPEND) st_buf_add(&b, r->text, (size_t)r->n_text);
    if (r->how == WIDE) {
        st_buf_puts(&wide, "\xFF\xFE");
        for (size_t i = 0; i < b.n; i++) st_buf_add(&wide, (const char[]){b.data[i], 0}, 2);
    }
    case_put(c, r->file, r->how == WIDE ? wide.data : b.data ? b.data : "", r->how == WIDE ? wide.n : b.n);
    st_buf_free(&b);
    st_buf_free(&wide);
}

/* ---- real names ---- */

static size_t replaced(const char *at, size_t n, const char **by)
{
    static const char *const name[][2] = {{"[model", "[stack"},    {"[optim", "[schedule"}, {"[train", "[batch"},
                                          {"clip", "final_ratio"}, {"steps", "tokens"},     {"seed", "sequences"},
                                          {"out", "output"}};

    for (size_t i = 0; i < ST_COUNT(name); i++) {
        size_t length = strlen(name[i][0]);
        if (length <= n && memcmp(at, name[i][0], length) == 0) {
            *by = name[i][1];
            return length;
        }
    }
    return 0;
}

static st_buf with_real_names(const char *text, size_t n)
{
    st_buf b = {0};
    bool begins = true;

    for (size_t i = 0; i < n;) {
        const char *by = NULL;
        size_t length = begins ? replaced(text + i, n - i, &by) : 0;
        if (length) st_buf_puts(&b, by);
        else st_buf_add(&b, text + i, 1);
        begins = !length && (text[i] == '\n' || (begins && (text[i] == ' ' || text[i] == '\t')));
        i += length ? length : 1;
    }
    return b;
}

/* ---- checking ---- */

static const char *value(const case_run *run, const char *section, const char *key)
{
    const st_value *v = run->spec ? st_spec_get(run->spec, section, key) : NULL;
    return v ? v->text : "(not given)";
}

static void check_same(const case_run *run)
{
    static const char *const want[][3] = {
        {"stack", "pattern", "G-G-G-*-/*-"}, {"stack", "hidden", "64"},  {"schedule", "lr", "1e-5"},
        {"schedule", "final_ratio", "1.0"},  {"batch", "tokens", "100"}, {"batch", "sequences", "7"},
        {"run", "output", "runs/a"},
    };

    for (size_t i = 0; i < ST_COUNT(want); i++)
        if (strcmp(value(run, want[i][0], want[i][1]), want[i][2]) != 0)
            fail_msg("[%s] %s is %s", want[i][0], want[i][1], value(run, want[i][0], want[i][1]));
    if (run->run.config.schedule.lr != 1e-5) fail_msg("the learning rate is %g", run->run.config.schedule.lr);
}

static void check_value(const cases *c, const ini_row *r, const case_run *run)
{
    const char *text = value(run, "run", "output");
    size_t filled = 0;

    if (!r->length) {
        if (strcmp(text, r->words) != 0) fail_msg("the value is %s", text);
        return;
    }
    for (const char *p = text + strspn(text, "runs/"); *p == r->words[0]; p++) filled++;
    if (filled != strlen(text) - strspn(text, "runs/")) fail_msg("the value was changed at byte %zu", filled);
    if (filled != (size_t)r->length - (r->length < 1000 ? strlen(c->given ? "out = " : "output = ") : 0))
        fail_msg("the value has %zu bytes", filled);
}

/* The first mistake, at its line, with what is wrong; more than one may follow from it. */
static void check_refused(const ini_row *r, const char *path, const case_run *run)
{
    for (int32_t i = 0; i < run->diags.n; i++) {
        const st_error *e = &run->diags.item[i].error;
        if (run->diags.item[i].warning) continue;
        if (strcmp(e->file, path) != 0 || (r->at && e->line != r->at)) continue;
        if (case_has(e->message, r->words) || case_has(e->hint, r->words)) return;
    }
    const st_error *e = &run->diags.item[0].error;
    fail_msg("line %d, '%s' is not what it says: %s:%d: %s", r->at, r->words, e->file, e->line, e->message);
}

static void check(const cases *c, const void *row)
{
    const ini_row *r = row;
    size_t n;
    char *text = case_read(c, r->file, &n);
    st_buf real = {0};
    case_run run;

    if (c->given) real = with_real_names(text, n);
    else st_buf_add(&real, text, n);
    const char *path = case_write(c, case_folder(c), "case.ini", real.data ? real.data : "", real.n);
    st_buf_free(&real);
    int rc = case_open_file(&run, path, sets, (int)ST_COUNT(sets));
    if (r->outcome == REFUSED) {
        if (rc == ST_OK) fail_msg("it was taken");
        check_refused(r, path, &run);
    } else {
        if (rc != ST_OK) fail_msg("%s", case_screen(&run));
        if (r->outcome == SAME) check_same(&run);
        if (r->outcome == VALUE) check_value(c, r, &run);
        if (r->outcome == ACCEPTED && st_model_shape(run.run.model)->depths != 2)
            fail_msg("%d depths", st_model_shape(run.run.model)->depths);
    }
    case_close(&run);
}

const case_kind ini_kind = CASE_KIND("ini", rows, make, check);
