/* SPDX-License-Identifier: Apache-2.0 */
/* spec/pattern.c - the pattern string: one symbol, one layer. Parsing, the check of what can train, the block sugar. */
#include "spec/spec.h"
#include <string.h>

#define SYMBOLS_MAX 65536 /* of one part, repeats written out */
#define SEGMENTS_MAX 4096
#define NESTING_MAX 16

typedef struct parser {
    const char *text, *p;
    const st_symbols *known;
    int strict;
    st_arena *arena;
    st_pattern *out;
    st_error *error;
    st_pattern_part *part; /* the one being filled */
    int32_t cap;
    int32_t depth_index;   /* 0: main; else which mtp depth */
} parser;

static int column_of(const parser *s, const char *at)
{
    return (int)(at - s->text) + 1;
}

static int no_memory(parser *s)
{
    return st_fail(s->error, ST_E_NOMEM, "no memory for the pattern");
}

/* ---- messages ---- */

static int refuse(parser *s, const char *at, const char *fmt, ...) ST_PRINTF(3, 4);
static int refuse(parser *s, const char *at, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return st_fail_at(s->error, ST_E_CONFIG, NULL, 0, column_of(s, at), "%s", text);
}

/* One character as the user sees it: whole UTF-8 characters, names for what is invisible. */
static void name_character(const char *p, char *to, size_t size)
{
    size_t n = 1, left = strlen(p);
    while (n < 4 && n < left && ((unsigned char)p[n] & 0xC0) == 0x80) n++;
    if (*p == ' ') snprintf(to, size, "a blank");
    else if ((unsigned char)*p < ' ' || *p == 0x7F) snprintf(to, size, "a control character");
    else if (st_utf8_valid(p, n, NULL)) snprintf(to, size, "'%.*s'", (int)n, p);
    else snprintf(to, size, "the byte 0x%02x", (unsigned char)*p);
}

static int refuse_symbol(parser *s)
{
    char name[32];
    name_character(s->p, name, sizeof name);
    int rc = refuse(s, s->p, "%s at place %d of the pattern is not a layer", name, column_of(s, s->p));
    if (*s->p == '|' && s->depth_index) st_error_hint(s->error, "'|' cuts the main part only, not an mtp depth");
    else if (s->known->list && s->known->list(s->known->ctx))
        st_error_hint(s->error, "layers are: %s", s->known->list(s->known->ctx));
    return rc;
}

/* ---- parts ---- */

static int reserve(parser *s, int64_t more)
{
    st_pattern_part *part = s->part;
    if (part->n + more > SYMBOLS_MAX) return refuse(s, s->p, "the pattern is longer than %d layers", SYMBOLS_MAX);
    if (part->n + more <= s->cap) return ST_OK;
    int32_t cap = s->cap ? s->cap : 64;
    while (cap < part->n + more) cap *= 2;
    char *symbols = st_arena_alloc(s->arena, (size_t)cap + 1);
    int32_t *column = ST_NEW_N(s->arena, int32_t, cap);
    if (!symbols || !column) return no_memory(s);
    if (part->n) {
        memcpy(symbols, part->symbols, (size_t)part->n);
        memcpy(column, part->column, sizeof *column * (size_t)part->n);
    }
    part->symbols = symbols;
    part->column = column;
    s->cap = cap;
    return ST_OK;
}

static int add_symbol(parser *s)
{
    if (!s->known->known(s->known->ctx, *s->p)) return refuse_symbol(s);
    ST_TRY(reserve(s, 1));
    s->part->symbols[s->part->n] = *s->p;
    s->part->column[s->part->n++] = column_of(s, s->p);
    s->p++;
    return ST_OK;
}

static int add_segment(parser *s)
{
    st_pattern *o = s->out;
    if (o->segments == SEGMENTS_MAX) return refuse(s, s->p, "more than %d pipeline segments", SEGMENTS_MAX);
    if (!o->pipe_column) o->pipe_column = column_of(s, s->p);
    o->segment_start[o->segments++] = s->part->n;
    s->p++;
    return ST_OK;
}

/* ---- repeats ---- */

static int read_count(parser *s, const char *open, int64_t *count)
{
    int64_t n = 0;
    const char *at = s->p;
    if (*s->p == 'x') s->p++;
    if (at == s->p || *s->p < '0' || *s->p > '9') {
        int rc = refuse(s, at, "no repeat count behind ')' of the pattern");
        st_error_hint(s->error, "write (G-G-G-*-)x6; the parenthesis opened at place %d", column_of(s, open));
        return rc;
    }
    for (; *s->p >= '0' && *s->p <= '9'; s->p++)
        if (n <= SYMBOLS_MAX) n = n * 10 + (*s->p - '0');
    if (n < 1 || n > SYMBOLS_MAX) return refuse(s, at + 1, "a repeat count must lie between 1 and %d", SYMBOLS_MAX);
    *count = n;
    return ST_OK;
}

static int read_run(parser *s, int nesting);

/* "(" run ")x" count: the run is read once and then copied, segment borders included. */
static int read_group(parser *s, int nesting)
{
    st_pattern *o = s->out;
    const char *open = s->p++;
    int32_t first = s->part->n, first_segment = o->segments;
    int64_t count = 0;
    if (nesting == NESTING_MAX) return refuse(s, open, "parentheses nested more than %d deep", NESTING_MAX);
    ST_TRY(read_run(s, nesting + 1));
    if (*s->p != ')') return refuse(s, open, "'(' at place %d of the pattern is never closed", column_of(s, open));
    s->p++;
    int32_t n = s->part->n - first, borders = o->segments - first_segment;
    if (n == 0 && borders == 0) return refuse(s, open, "nothing between '(' and ')' of the pattern");
    ST_TRY(read_count(s, open, &count));
    ST_TRY(reserve(s, n * (count - 1)));
    if (borders * (count - 1) > SEGMENTS_MAX - o->segments)
        return refuse(s, open, "more than %d pipeline segments", SEGMENTS_MAX);
    for (int64_t k = 1; k < count; k++) {
        for (int32_t i = 0; i < borders; i++)
            o->segment_start[o->segments++] = o->segment_start[first_segment + i] + (int32_t)(n * k);
        if (!n) continue;
        memcpy(s->part->symbols + s->part->n, s->part->symbols + first, (size_t)n);
        memcpy(s->part->column + s->part->n, s->part->column + first, sizeof(int32_t) * (size_t)n);
        s->part->n += n;
    }
    return ST_OK;
}

/* Symbols up to the end of the part or group. */
static int read_run(parser *s, int nesting)
{
    while (*s->p && *s->p != '/') {
        if (*s->p == '|' && s->depth_index == 0) ST_TRY(add_segment(s));
        else if (s->strict) ST_TRY(add_symbol(s));
        else if (*s->p == ')' && nesting > 0) return ST_OK;
        else if (*s->p == ')')
            return refuse(s, s->p, "')' at place %d of the pattern closes nothing", column_of(s, s->p));
        else if (*s->p == '(') ST_TRY(read_group(s, nesting));
        else ST_TRY(add_symbol(s));
    }
    return ST_OK;
}

/* ---- Megatron's two extra rules ---- */

/* One attention kind per part: '*' is plain, 'D' and '+' need the latent kind; a run of Megatron has one switch for
 * it. */
static int check_mixing(parser *s)
{
    const st_pattern_part *part = s->part;
    if (!s->strict || !memchr(part->n ? part->symbols : "", '*', (size_t)part->n)) return ST_OK;
    for (int32_t i = 0; i < part->n; i++)
        if (part->symbols[i] == 'D' || part->symbols[i] == '+')
            return st_fail_at(s->error, ST_E_CONFIG, NULL, 0, part->column[i],
                              "'%c' at place %d cannot stand beside '*'", part->symbols[i], part->column[i]);
    return ST_OK;
}

/* Depth k against depth 1, as texts: this comes before their symbols are looked at. */
static int check_equal(parser *s, const char *depths)
{
    size_t n = strcspn(depths, "/");
    const char *next = depths + n;
    for (int k = 2; *next == '/'; k++) {
        const char *other = next + 1;
        size_t m = strcspn(other, "/");
        if (m != n || memcmp(depths, other, n) != 0) return refuse(s, other, "mtp depth %d is not equal to depth 1", k);
        next = other + m;
    }
    return ST_OK;
}

/* ---- entry points ---- */

static int read_part(parser *s, st_pattern_part *part, int32_t depth_index)
{
    s->part = part;
    s->cap = 0;
    s->depth_index = depth_index;
    part->at = column_of(s, s->p);
    ST_TRY(read_run(s, 0));
    if (!part->symbols && !(part->symbols = st_arena_alloc(s->arena, 1))) return no_memory(s);
    return check_mixing(s);
}

static int read_depths(parser *s)
{
    st_pattern *o = s->out;
    int32_t n = 0;
    for (const char *c = s->p; *c; c++) n += *c == '/';
    if (n > ST_PATTERN_DEPTHS) return refuse(s, s->p, "more than %d mtp depths", ST_PATTERN_DEPTHS);
    if (n == 0) return ST_OK;
    if (s->strict) ST_TRY(check_equal(s, s->p + 1));
    o->depth = ST_NEW_N(s->arena, st_pattern_part, n);
    if (!o->depth) return no_memory(s);
    for (o->depths = 0; o->depths < n;) {
        s->p++;
        ST_TRY(read_part(s, &o->depth[o->depths], o->depths + 1));
        o->depths++;
        if (*s->p && *s->p != '/')
            return st_fail_at(s->error, ST_E_INTERNAL, NULL, 0, column_of(s, s->p),
                              "the pattern was not read to its end");
    }
    if (s->strict && o->depth[0].n == 0) o->depths = 0; /* all empty: no mtp */
    return ST_OK;
}

int st_pattern_parse(const char *text, const st_symbols *known, int strict, st_arena *arena, st_pattern *out,
                     st_error *error)
{
    parser s = {.text = text, .p = text, .known = known, .strict = strict, .arena = arena, .out = out, .error = error};
    memset(out, 0, sizeof *out);
    out->segment_start = ST_NEW_N(arena, int32_t, SEGMENTS_MAX);
    if (!out->segment_start) return no_memory(&s);
    out->segments = 1;
    ST_TRY(read_part(&s, &out->main, 0));
    return read_depths(&s);
}

int st_pattern_check(const st_pattern *p, st_error *error)
{
    if (p->pipe_column) {
        int rc = st_fail_at(error, ST_E_CONFIG, NULL, 0, p->pipe_column,
                            "'|' cuts the stack for a pipeline, which is not offered");
        st_error_hint(error, "remove '|'");
        return rc;
    }
    if (p->main.n == 0) {
        int rc = st_fail_at(error, ST_E_CONFIG, NULL, 0, 1,
                            p->depths ? "the pattern has mtp depths but no layers in front of them"
                                      : "the pattern has no layers");
        st_error_hint(error, "one symbol is one layer, as in G-G-G-*-");
        return rc;
    }
    for (int32_t k = 0; k < p->depths; k++) {
        if (p->depth[k].n > 0) continue;
        int rc = st_fail_at(error, ST_E_CONFIG, NULL, 0, p->depth[k].at, "mtp depth %d of the pattern is empty", k + 1);
        st_error_hint(error, "write its layers behind '/', or remove the '/'");
        return rc;
    }
    return ST_OK;
}

int st_pattern_expand(int64_t blocks, int64_t cadence, char linear, char full, char mlp, int64_t mtp_depths,
                      st_arena *arena, char **out, st_error *error)
{
    if (blocks < 0 || blocks > SYMBOLS_MAX / 2)
        return st_fail(error, ST_E_CONFIG, "blocks = %lld: must lie between 0 and %d", (long long)blocks,
                       SYMBOLS_MAX / 2);
    if (cadence < 1) return st_fail(error, ST_E_CONFIG, "cadence = %lld: must be at least 1", (long long)cadence);
    if (mtp_depths < 0 || mtp_depths > ST_PATTERN_DEPTHS)
        return st_fail(error, ST_E_CONFIG, "mtp_depths = %lld: must lie between 0 and %d", (long long)mtp_depths,
                       ST_PATTERN_DEPTHS);
    if (blocks == 0 && mtp_depths > 0)
        return st_fail(error, ST_E_CONFIG, "mtp_depths = %lld, but there is no block to copy", (long long)mtp_depths);
    char *p = *out = st_arena_alloc(arena, (size_t)(2 * blocks + 3 * mtp_depths + 1));
    if (!p) return st_fail(error, ST_E_NOMEM, "no memory for the pattern");
    for (int64_t i = 0; i < blocks; i++) {
        *p++ = (i + 1) % cadence == 0 ? full : linear;
        *p++ = mlp;
    }
    for (int64_t k = 0; k < mtp_depths; k++) {
        p[0] = '/';
        p[1] = *(*out + 2 * blocks - 2);
        p[2] = mlp;
        p += 3;
    }
    return ST_OK;
}
