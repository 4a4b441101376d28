/* SPDX-License-Identifier: Apache-2.0 */
/* A spec: parsed, bound to the tables of the host that need no model, compared, written and read again; the values of
 * `pattern` and of [stack] go through the grammar of patterns. */
#include "config.h"
#include "fuzz.h"
#include "spec/spec.h"

struct keys {
    int64_t number, size;
    double rate;
    st_ints ints;
    st_floats floats;
    const char *text, *path;
    int32_t flag, mode;
};
static const st_param params[] = {
    ST_INT(struct keys, number, "4", 0, 1000, "", ST_PF_FIXED, "a number"),
    ST_PARAM(struct keys, size, ST_P_SIZE, "1MiB", 0, 0, "bytes", NULL, ST_PF_LOCAL, "a size"),
    ST_FLOAT(struct keys, rate, "1e-3", 0, 1, "", ST_PF_SHARED, "a rate"),
    ST_INTS(struct keys, ints, "1,2", 0, 9, 0, "numbers"),
    ST_FLOATS(struct keys, floats, NULL, 0, 1, ST_PF_REQUIRED, "numbers"),
    ST_STR(struct keys, text, NULL, ST_PF_DEPRECATED, "text"),
    ST_PARAM(struct keys, path, ST_P_PATH, ".", 0, 0, "", NULL, 0, "a file"),
    ST_BOOL(struct keys, flag, "no", ST_PF_OBSOLETE, "a flag"),
    ST_CHOICE(struct keys, mode, "soft", "soft|hard", 0, "a choice"),
};

static bool known(void *ctx, char symbol) { return strchr("GM*D+-", symbol) != NULL; }

static void try_pattern(const char *text, st_arena *a)
{
    const st_symbols symbols = {NULL, known, NULL};
    for (int strict = 0; strict < 2; strict++) {
        st_pattern p;
        st_error e = {0};
        int rc = st_pattern_parse(text, &symbols, strict, a, &p, &e);
        if (rc != ST_OK) {
            fuzz_refused(rc, &e);
            continue;
        }
        FUZZ_HOLDS(p.main.n >= 0 && strlen(p.main.symbols) == (size_t)p.main.n);
        for (int32_t i = 0; i < p.main.n; i++) FUZZ_HOLDS(known(NULL, p.main.symbols[i]));
        (void)st_pattern_check(&p, &e);
    }
}

static void try_numbers(const char *text)
{
    int64_t i;
    double d;
    const char *why;
    if (st_parse_float(text, &d, &why)) {
        char shown[32];
        double again;
        st_format_float(d, shown);
        FUZZ_HOLDS(st_parse_float(shown, &again, &why) && again == d);
    }
    if (!st_parse_int(text, &i, &why)) FUZZ_HOLDS(why);
    if (!st_parse_size(text, &i, &why)) FUZZ_HOLDS(why);
}

static int ignore(void *ctx, const st_difference *d) { return d->section && d->key ? ST_OK : ST_E_INTERNAL; }

static void bind_all(st_spec *s, st_diags *diags)
{
    static const char *const extra[] = {"plugin", NULL};
    static const char *const shown[] = {"stack", "layer.G", "run", "data"};
    const st_table table = {params, ST_COUNT(params), (uint32_t)sizeof(st_param), "fuzz"};
    for (size_t i = 0; i < ST_COUNT(shown); i++) {
        struct keys *self = st_arena_alloc(st_spec_arena(s), sizeof *self);
        if (st_spec_bind(s, shown[i], &table, self, extra, diags) == ST_OK)
            FUZZ_HOLDS(self->number >= 0 && self->number <= 1000 && self->rate >= 0 && self->rate <= 1);
    }
    (void)st_spec_check_unused(s, diags);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    st_diags *diags = calloc(1, sizeof *diags), *later = calloc(1, sizeof *later);
    st_spec *s = NULL, *again = NULL;
    const char *const *sections;
    const st_value *const *values;
    st_buf out = {0};
    int rc = st_spec_parse("fuzz.ini", (const char *)data, n, fuzz_path(""), &s, diags);

    if (rc != ST_OK) {
        FUZZ_HOLDS(!s && diags->errors > 0 && diags->item[0].error.message[0]);
    } else {
        int n_sections = st_spec_sections(s, &sections);
        for (int i = 0; i < n_sections; i++) {
            int n_values = st_spec_values(s, sections[i], &values);
            for (int k = 0; k < n_values; k++) {
                try_numbers(values[k]->text);
                if (!strcmp(values[k]->key, "pattern")) try_pattern(values[k]->text, st_spec_arena(s));
            }
        }
        bind_all(s, diags);
        st_spec_write(s, &out); /* what is written reads, and is written the same */
        int rc2 = st_spec_parse("again.ini", out.n ? out.data : "", out.n, "/", &again, later);
        if (rc2 != ST_OK) st_diags_print(later, stderr);
        FUZZ_HOLDS(rc2 == ST_OK);
        FUZZ_HOLDS(st_spec_compare(s, again, ignore, NULL) == ST_OK);
        (void)st_spec_hash(s);
    }
    st_buf_free(&out);
    st_spec_destroy(again);
    st_spec_destroy(s);
    free(later);
    free(diags);
    return 0;
}
