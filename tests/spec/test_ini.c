/* SPDX-License-Identifier: Apache-2.0 */
/* tests/spec/test_ini.c - the file syntax: bytes, lines, headers, keys, values, comments; each oddity is one change to
 * a plain spec, and is either read to the same settings or refused with its place. */
#include "spec_test.h"

#define HEAD "; a spec\n[stack]\npattern = G-G-G-*-/*-\nhidden = 64\n\n[optimizer]\n"
#define TAIL "clip = 1.0\n\n[run]\nsteps = 100\noutput = runs/a\n"

static int parse(const char *text, size_t n, st_spec **s, st_diags *d)
{
    memset(d, 0, sizeof *d);
    return st_spec_parse("t.ini", text, n, ".", s, d);
}

static void expect_same(const char *what, const char *text, size_t n)
{
    static const char plain[] = HEAD "lr = 1e-5\n" TAIL;
    st_spec *s, *want;
    st_diags d;
    assert_int_equal(parse(plain, sizeof plain - 1, &want, &d), ST_OK);
    int rc = parse(text, n, &s, &d);
    if (rc != ST_OK || d.errors) {
        st_diags_print(&d, stderr);
        fail_msg("%s: refused", what);
    }
    if (st_spec_hash(s) != st_spec_hash(want)) fail_msg("%s: other settings", what);
    st_spec_destroy(s);
    st_spec_destroy(want);
}

static void expect_refused(const char *what, const char *text, size_t n, int line, int column, const char *message)
{
    st_spec *s = (st_spec *)1;
    st_diags d;
    int rc = parse(text, n, &s, &d);
    if (rc != ST_E_CONFIG || s || d.errors != 1) {
        st_diags_print(&d, stderr);
        fail_msg("%s: code %d, %d errors", what, rc, d.errors);
    }
    const st_error *e = &d.item[0].error;
    if (e->line != line || e->column != column || !strstr(e->message, message))
        fail_msg("%s: %d:%d: %s", what, e->line, e->column, e->message);
    assert_string_equal(e->file, "t.ini");
}

#define SAME(what, text) expect_same(what, text, sizeof text - 1)
#define REFUSED(what, text, line, column, message) expect_refused(what, text, sizeof text - 1, line, column, message)

static void read_the_same(void **state)
{
    SAME("plain", HEAD "lr = 1e-5\n" TAIL);
    SAME("byte-order mark", "\xEF\xBB\xBF" HEAD "lr = 1e-5\n" TAIL);
    SAME("no line feed at the end", HEAD "lr = 1e-5\nclip = 1.0\n[run]\nsteps = 100\noutput = runs/a");
    SAME("windows line ends",
         "[stack]\r\npattern = G-G-G-*-/*-\r\nhidden = 64\r\n\r\n[optimizer]\r\nlr = 1e-5\r\nclip = 1.0\r\n"
         "[run]\r\nsteps = 100\r\noutput = runs/a\r\n");
    SAME("blanks and tabs", HEAD "lr\t =\t 1e-5 \t \n" TAIL);
    SAME("no blanks", HEAD "lr=1e-5\n" TAIL);
    SAME("indented keys", HEAD "  lr = 1e-5\n\tclip = 1.0\n[run]\n  steps = 100\n  output = runs/a\n");
    SAME("comment behind a header",
         "[stack] ; note\npattern = G-G-G-*-/*-\nhidden = 64\n[optimizer]# x\nlr = 1e-5\n" TAIL);
    SAME("blanks around a section name",
         "[ stack\t]\npattern = G-G-G-*-/*-\nhidden = 64\n [optimizer]\nlr = 1e-5\n" TAIL);
    SAME("; behind a value", HEAD "lr = 1e-5 ; note = 3\n" TAIL);
    SAME("# behind a value", HEAD "lr = 1e-5\t# note\n" TAIL);
    SAME("quotes", HEAD "lr = \"1e-5\" ; note\n" TAIL);
    SAME("comment lines", HEAD "# lr = 2\n   ; lr = 3\n;\n#\n\t\nlr = 1e-5\n" TAIL);
    SAME("latin letters in UTF-8", HEAD "; caf\xC3\xA9\nlr = 1e-5\n" TAIL);
    SAME("order of sections and keys", "[run]\noutput = runs/a\nsteps = 100\n[optimizer]\nclip = 1.0\nlr = 1e-5\n"
                                       "[stack]\nhidden = 64\npattern = G-G-G-*-/*-\n");
}

static void refused_bytes(void **state)
{
    REFUSED("NUL", HEAD "lr = 1e\0-5\n" TAIL, 7, 8, "NUL");
    REFUSED("latin-1 in a comment", "[run]\n; caf\xE9\nx = 1\n", 2, 6, "not UTF-8: byte 0xe9");
    REFUSED("latin-1 behind a byte-order mark", "\xEF\xBB\xBF\xE9 = 1\n", 1, 1, "not UTF-8");
    REFUSED("old line ends", "[run]\nx = 1\ry = 2\n", 2, 6, "carriage return");
    REFUSED("form feed", "[run]\n\fx = 1\n", 2, 1, "0x0c");
    REFUSED("a control character of two bytes", "[run]\nx = a\xC2\x9Bm\n", 2, 6, "control character (0x9b)");
    REFUSED("UTF-16", "\xFF\xFE[\0r\0]\0\n\0", 1, 1, "UTF-16 (little-endian)");
    REFUSED("UTF-16 big", "\xFE\xFF\0[\0r\0]\0\n", 1, 1, "UTF-16 (big-endian)");
    REFUSED("UTF-16 without mark", "[\0r\0]\0\n\0", 1, 1, "UTF-16 (little-endian, without");
    REFUSED("UTF-16 big without mark", "\0[\0r\0]\0\n", 1, 1, "UTF-16 (big-endian, without");
    REFUSED("UTF-32", "\xFF\xFE\0\0[\0\0\0", 1, 1, "UTF-32");
}

static void refused_lines(void **state)
{
    REFUSED("key outside", "hidden = 4\n[stack]\n", 1, 1, "\"hidden\" outside any section");
    REFUSED("no bracket", "[stack\nhidden = 4\n", 1, 1, "without ']'");
    REFUSED("no name", "[]\nhidden = 4\n", 1, 1, "without a name");
    REFUSED("blank name", "[  ]\nhidden = 4\n", 1, 1, "without a name");
    REFUSED("text behind a header", "[stack] x\nhidden = 4\n", 1, 9, "behind a section header");
    REFUSED("blank in a name", "[a b]\nhidden = 4\n", 1, 3, "a blank inside a section name");
    REFUSED("bracket in a name", "[a[b]\n", 1, 3, "'[' inside a section name");
    REFUSED("no equals", "[run]\n\n  steps 4\n", 3, 3, "neither a key");
    REFUSED("colon", "[run]\nsteps: 4\n", 2, 6, "neither a key");
    REFUSED("colon in a key", "[run]\nsteps:a = 4\n", 2, 6, "':' inside a key");
    REFUSED("no key", "[run]\n = 4\n", 2, 2, "no key in front");
    REFUSED("blank in a key", "[run]\nmax steps = 4\n", 2, 4, "a blank inside a key");
    REFUSED("key twice", "[run]\nsteps = 4\nseed = 1\n  steps = 4\n", 4, 3,
            "\"steps\" of [run] again; it is set at line 2");
    REFUSED("section twice", "[run]\nsteps = 4\n[a]\nb = 1\n[run]\nseed = 4\n", 5, 2,
            "[run] again; it began at line 1");
    REFUSED("open quote", "[run]\na = \"b ; c\n", 2, 5, "without its closing quote");
    REFUSED("text behind quotes", "[run]\na = \"b\" c\n", 2, 9, "behind a quoted value");
    REFUSED("unknown escape", "[run]\na = \"b\\q\"\n", 2, 7, "unknown escape");
    REFUSED("continuation", "[run]\na = 1\n  and 2\n", 3, 3, "neither a key");
    char line[400];
    snprintf(line, sizeof line, "[run]\n%0150d = 1\n", 7);
    expect_refused("long key", line, strlen(line), 2, 1, "a key of 150 bytes; at most 100");
    snprintf(line, sizeof line, "[%0150d]\na = 1\n", 7);
    expect_refused("long section name", line, strlen(line), 1, 2, "a section name of 150 bytes");
}

static void check_value(const char *line, const char *want, int column)
{
    char text[512];
    st_spec *s;
    st_diags d;
    snprintf(text, sizeof text, "[run]\n%s\n", line);
    if (parse(text, strlen(text), &s, &d) != ST_OK) fail_msg("refused: %s", line);
    const st_value *v = st_spec_get(s, "run", "a");
    if (strcmp(v->text, want) != 0 || v->column != column || v->line != 2)
        fail_msg("%s: \"%s\" at %d", line, v->text, v->column);
    assert_string_equal(v->line_text, line); /* raw, comment included */
    st_spec_destroy(s);
}

static void values(void **state)
{
    check_value("a = b", "b", 5);
    check_value("a=b", "b", 3);
    check_value("\ta  =   b c\t", "b c", 9);
    check_value("a =", "", 4);
    check_value("a = ", "", 5);
    check_value("a = ; note", "", 5);
    check_value("a =;b", ";b", 4);
    check_value("a = runs/a;b", "runs/a;b", 5);
    check_value("a = runs/a#b ;c", "runs/a#b", 5);
    check_value("a = b = c", "b = c", 5);
    check_value("a = x: y", "x: y", 5);
    check_value("a = [b]", "[b]", 5);
    check_value("a = \"\"", "", 6);
    check_value("a = \" b ; c \"", " b ; c ", 6);
    check_value("a = \"x\\ny\\t\\\"\\\\\" # note", "x\ny\t\"\\", 6);
    check_value("a = b \"c\"", "b \"c\"", 5);
    check_value("a = C:\\new", "C:\\new", 5);
    check_value("a = \xC3\xA9t\xC3\xA9", "\xC3\xA9t\xC3\xA9", 5);
}

/* Lengths around every buffer that a reader might have; inih's own would split at 199 and make "hidden" a key. */
static void long_lines(void **state)
{
    static const size_t length[] = {190, 196, 197, 198, 199, 200, 201,  202,   254,
                                    255, 256, 257, 398, 400, 600, 5000, 100000};
    for (size_t i = 0; i < ST_COUNT(length); i++) {
        size_t n = length[i];
        char *text = calloc(1, n + 200);
        st_spec *s;
        st_diags d;
        strcpy(text, "[run]\na = ");
        memset(text + 10, 'e', n - 4);
        memcpy(text + 10 + n / 2, "hidden=", 7);
        strcpy(text + 6 + n, "\nb = 2\n; ");
        size_t end = strlen(text);
        memset(text + end, 'c', 150);
        assert_int_equal(parse(text, strlen(text), &s, &d), ST_OK);
        assert_int_equal(strlen(value_of(s, "run", "a")), n - 4);
        assert_memory_equal(value_of(s, "run", "a"), text + 10, n - 4);
        assert_string_equal(value_of(s, "run", "b"), "2");
        const st_value *const *v;
        assert_int_equal(st_spec_values(s, "run", &v), 2);
        st_spec_destroy(s);
        free(text);
    }
    char text[1200] = "[run]\n; ";
    st_spec *s;
    st_diags d;
    memset(text + 8, '=', 800);
    strcpy(text + 808, "\na = 1\n");
    assert_int_equal(parse(text, strlen(text), &s, &d), ST_OK);
    const st_value *const *v;
    assert_int_equal(st_spec_values(s, "run", &v), 1);
    assert_int_equal(v[0]->line, 3);
    st_spec_destroy(s);
}

static void symbols_as_names(void **state)
{
    static const char text[] =
        "[layer.*]\nplugin = attention\n[layer.-]\nplugin = swiglu\n[layer./]\na = 1\n[layer.+]\na = 2\n"
        "[layer.@1]\na = 3\n[layer.|]\na = 4\n[layer.(]\na = 5\n"
        "[a.name.of.more.than.forty.nine.bytes.that.inih.alone.would.cut]\na = 6\n"
        "[a.name.of.more.than.forty.nine.bytes.that.inih.alone.would.cu]\na = 7\n";
    st_spec *s;
    st_diags d;
    const char *const *names;
    assert_int_equal(parse(text, sizeof text - 1, &s, &d), ST_OK);
    assert_int_equal(st_spec_sections(s, &names), 9);
    assert_string_equal(names[0], "layer.*");
    assert_string_equal(names[1], "layer.-");
    assert_string_equal(value_of(s, "layer.*", "plugin"), "attention");
    assert_string_equal(value_of(s, "layer.-", "plugin"), "swiglu");
    assert_string_equal(value_of(s, "layer.@1", "a"), "3");
    assert_string_equal(value_of(s, names[7], "a"), "6");
    assert_string_equal(value_of(s, names[8], "a"), "7");
    st_spec_destroy(s);
}

static void all_mistakes_at_once(void **state)
{
    static const char text[] =
        "[run]\nsteps 100\nseed = 1\nseed = 2\n[stack\nhidden = 3\n\tsame: 1\n[optimizer]\nlr = \"1\n";
    st_spec *s;
    st_diags d;
    assert_int_equal(parse(text, sizeof text - 1, &s, &d), ST_E_CONFIG);
    expect_shown(&d, "t.ini:2:1: error: neither a key with '=' nor a section\n"
                     "    steps 100\n    ^\n  hint: write key = value, [section] or ; comment\n"
                     "t.ini:4:1: error: key \"seed\" of [run] again; it is set at line 3 already\n"
                     "    seed = 2\n    ^\n  hint: remove one of the two\n"
                     "t.ini:5:1: error: a section header without ']'\n"
                     "    [stack\n    ^\n  hint: write [name]\n"
                     "t.ini:7:6: error: neither a key with '=' nor a section\n"
                     "    \tsame: 1\n    \t    ^\n  hint: write key = value; a colon does not set a key\n"
                     "t.ini:9:6: error: a quoted value without its closing quote\n"
                     "    lr = \"1\n         ^\n  hint: a value is one line\n");
}

/* No input may crash or hang: cut and damaged texts, with every byte value. */
static void damaged(void **state)
{
    static const char plain[] = "\xEF\xBB\xBF; x\n[a.*]\nb = \"c\\n\" ; d\ne=f\r\n[g] # h\ni = 1e-5\n";
    char text[sizeof plain];
    for (size_t n = 0; n < sizeof plain; n++)
        for (int byte = -1; byte < 256; byte++) {
            st_spec *s;
            st_diags d;
            memcpy(text, plain, sizeof plain);
            if (byte >= 0) text[n] = (char)byte;
            int rc = parse(text, byte >= 0 ? sizeof plain - 1 : n, &s, &d);
            assert_int_equal(rc == ST_OK, d.errors == 0);
            assert_int_equal(rc == ST_OK, s != NULL);
            st_spec_destroy(s);
        }
}

static void many_keys(void **state)
{
    st_buf b = {0};
    st_spec *s;
    st_diags d;
    st_buf_puts(&b, "[many]\n");
    for (int i = 0; i < 50000; i++) st_buf_printf(&b, "k%d=%d\n", i, i);
    for (int i = 0; i < 5000; i++) st_buf_printf(&b, "[s%d]\n", i);
    assert_int_equal(parse(b.data, b.n, &s, &d), ST_OK);
    assert_string_equal(value_of(s, "many", "k49999"), "49999");
    assert_true(st_spec_has(s, "s4999"));
    st_spec_destroy(s);
    st_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_the_same),
        cmocka_unit_test(refused_bytes),
        cmocka_unit_test(refused_lines),
        cmocka_unit_test(values),
        cmocka_unit_test(long_lines),
        cmocka_unit_test(symbols_as_names),
        cmocka_unit_test(all_mistakes_at_once),
        cmocka_unit_test(damaged),
        cmocka_unit_test(many_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
