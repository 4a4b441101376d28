/* SPDX-License-Identifier: Apache-2.0 */
/* spec/spec.h - INI text to a resolved spec: sections of keys, each value with its source. Later wins, --set last. */
#ifndef ST_SPEC_H
#define ST_SPEC_H
#include "base/base.h"

enum { ST_FROM_FILE = 1, ST_FROM_SET, ST_FROM_SUGAR, ST_FROM_DEFAULT, ST_FROM_STACK /* inherited from [stack] */,
       ST_FROM_AUTO /* the value was auto, and this is what was chosen */ };
typedef struct st_value {
    const char *section, *key, *text; /* includes are followed and leave no value                  */
    const char *file, *line_text;     /* file as given; the raw line for carets                    */
    int32_t line, column, origin;     /* column of the value, 1-based                              */
    int32_t used;                     /* set when some table knows the key                         */
} st_value;
typedef struct st_spec st_spec;

/* path: a file. sets: "section.key=value" (the key is after the last dot before '='). All mistakes go to diags;
 * returns the first code, and then *out is NULL. Nothing is created on disk. Relative paths in values are relative to
 * the folder of the file that holds them, those of --set to the current folder. */
int st_spec_load(const char *path, const char *const *sets, int n_sets, st_spec **out, st_diags *);
int st_spec_parse(const char *name, const char *text, size_t n, const char *dir, st_spec **out, st_diags *);
void st_spec_destroy(st_spec *);

const char *st_spec_path(const st_spec *);
const char *st_spec_dir(const st_spec *);
st_arena *st_spec_arena(st_spec *);                /* lives as long as the spec */
int st_spec_sections(const st_spec *, const char *const **names); /* in order of first appearance */
int st_spec_values(const st_spec *, const char *section, const st_value *const **values);
const st_value *st_spec_get(const st_spec *, const char *section, const char *key); /* marks it used; NULL: not given */
bool st_spec_has(const st_spec *, const char *section);
int st_spec_put(st_spec *, const char *section, const char *key, const char *text, int origin, const st_value *like);
char *st_spec_file_of(st_spec *, const st_value *, st_arena *); /* a path value, relative to where it was written */
const char *st_spec_dir_of(const st_value *);                   /* that folder, for values that list several paths */
/* A reader took `text` for a key that the section does not hold, such as the plugin that a symbol stands for: it
 * belongs to the resolved spec. from: the value of [stack] that was inherited, NULL: a default. */
void st_spec_take(st_spec *, const char *section, const char *key, const char *text, const st_value *from);
/* Likewise what plugins worked out for keys marked ST_PF_FIXED that were not given, where all instances of the section
 * agree. Only for sections that one table alone is bound to. */
void st_spec_take_worked_out(st_spec *, const char *section, const void *const *instances, int n);
/* What was chosen for a bound key whose value, given or by default, was "auto": the resolved spec holds the choice. */
void st_spec_settle(st_spec *, const char *section, const char *key, const char *text);
void st_spec_mark_paths(st_spec *, const st_value *); /* the value lists paths, separated by colons */

/* The resolved spec as INI: all values, defaults that were taken included, so that a later default cannot change it;
 * sections and keys sorted, keys by their present names, paths absolute. Keys marked ST_PF_LOCAL are left out. The
 * hash is of the same values, but of paths as they were written, so that a moved folder keeps it. */
void st_spec_write(const st_spec *, st_buf *);
uint64_t st_spec_hash(const st_spec *);

/* What a bound spec says otherwise than `then`, a stored one: by value, not by spelling; a key that `then` lacks had
 * its default. Paths and keys marked ST_PF_LOCAL are not compared. */
typedef struct st_difference {
    const char *section, *key;
    const char *before, *now; /* NULL: not set                                                     */
    const st_value *at;       /* where the value of now stands; NULL: nowhere                      */
    int32_t fixed;            /* ST_PF_FIXED, or the plugin of a section that is no data set       */
} st_difference;
typedef int (*st_difference_fn)(void *ctx, const st_difference *); /* not ST_OK ends it and is returned */
int st_spec_compare(const st_spec *now, const st_spec *then, st_difference_fn, void *ctx);

/* Keys marked ST_PF_TIMING that are not at their default: "[layer.E] force_balance = yes", separated by commas. */
void st_spec_timing(const st_spec *, st_buf *);

/* One mistake at a value: file:line:column, the line, a caret. v NULL: the file as a whole. */
int st_spec_fail(const st_spec *, st_diags *, const st_value *v, const char *hint, const char *fmt, ...)
    ST_PRINTF(5, 6);
int st_spec_fail_section(const st_spec *, st_diags *, const char *section, const char *hint, const char *fmt, ...)
    ST_PRINTF(5, 6);
/* At a key's value where the spec gives one (under its present or former name, or in [stack]), else at the section. */
int st_spec_fail_key(const st_spec *, st_diags *, const char *section, const char *key, const char *hint,
                     const char *fmt, ...) ST_PRINTF(6, 7);
/* An error found inside a value (a pattern): its column counts from the value's first character. */
int st_spec_fail_inside(const st_spec *, st_diags *, const st_value *v, const st_error *inner);
/* After all tables are bound: every section and key that nobody knows is an error with the nearest known name. When
 * diags holds an error already, some readers had no turn: then only keys that look like a slip of a known one. */
int st_spec_check_unused(const st_spec *, st_diags *);

/* ---- binding a section to a struct by its parameter table (bind.c) ---- */
typedef struct st_table {
    const st_param *params;
    uint32_t n, param_size;
    const char *owner; /* "plugin attention 0.1"; NULL: the host */
} st_table;
/* Writes defaults, then values, into instance. Strings live in the spec's arena. ST_P_PATH: joined to the folder it
 * counts from. extra: further keys the section may hold ("plugin"), NULL-terminated. PF_SHARED keys fall back to
 * [stack]. Reports every wrong value, returns the first code. Keys the table does not name are left to
 * st_spec_check_unused. */
int st_spec_bind(st_spec *, const char *section, const st_table *, void *instance, const char *const *extra,
                 st_diags *);
/* The parameter of a table bound to the section, by present or former name; NULL: none has it. */
const st_param *st_spec_param(const st_spec *, const char *section, const char *key);
/* What binding took that the section does not hold: defaults (file NULL) and values of [stack]; for --explain. */
int st_spec_defaults(const st_spec *, const st_value **);
/* The text form of the field of a bound instance, for --explain, inspect and checkpoints. */
int st_param_text(const st_param *, const void *instance, st_buf *);

/* Keys that the host itself reads, for `strata inspect --spec`: each room hands out a list of these. Entries of one
 * section, also of different rooms, belong together; the first tells its purpose. */
typedef struct st_key_table {
    const char *section, *purpose; /* "part.NAME"; one or more whole sentences, or NULL                             */
    const st_param *params;
    uint32_t n;
    int32_t kind;       /* ST_KIND_* of the plugin whose keys stand here as well; 0: none                           */
    const char *plugin; /* default of the key `plugin`, "": it must be given; NULL: the section has no such key     */
} st_key_table;

/* ---- pattern grammar (pattern.c) ----
 * pattern := main { '/' depth }; main and depth are symbols; '|' in main begins a new pipeline segment. Symbols come
 * from the registry; '/', '|', '(' and ')' can be none. Columns are 1-based bytes of the text. */
typedef struct st_pattern_part {
    char *symbols; /* n of them, then NUL                                */
    int32_t n;
    int32_t *column; /* where each symbol stands in the text             */
    int32_t at;      /* where the part begins: names an empty one        */
} st_pattern_part;
typedef struct st_pattern {
    st_pattern_part main;                   /* '|' removed                                             */
    int32_t depths; st_pattern_part *depth; /* mtp depths; may differ                                  */
    int32_t segments; int32_t *segment_start; /* first layer of each pipeline segment of main          */
    int32_t pipe_column;                    /* of the first '|'; 0: none                               */
} st_pattern;
typedef struct st_symbols {
    void *ctx;
    bool (*known)(void *ctx, char symbol);
    const char *(*list)(void *ctx); /* for hints; may be NULL */
} st_symbols;
#define ST_PATTERN_DEPTHS 64 /* most mtp depths of a pattern */
/* strict 0: Megatron's language plus repeats "(G-G-G-*-)x6" (nesting allowed) and unequal depths; "M/" has one empty
 * depth. strict 1: what Megatron accepts and nothing else: depths are equal, all-empty depths mean none, no repeats,
 * '*' never beside 'D' or '+' in one part. On error: message, and the column in error->column. */
int st_pattern_parse(const char *text, const st_symbols *, int strict, st_arena *, st_pattern *out, st_error *);
/* What cannot train: no layers, an empty depth, '|' (pipeline). */
int st_pattern_check(const st_pattern *, st_error *);
/* blocks/cadence/mlp/mtp_depths sugar -> pattern text. Every cadence-th block mixes by `full`, the others by `linear`;
 * mtp depths copy the last block. */
int st_pattern_expand(int64_t blocks, int64_t cadence, char linear, char full, char mlp, int64_t mtp_depths, st_arena *,
                      char **out, st_error *);
#endif
