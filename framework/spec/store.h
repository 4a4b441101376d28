/* SPDX-License-Identifier: Apache-2.0 */
/* spec/store.h - the inside of a spec: sections, values, and the names that somebody asked for. Private to spec/. */
#ifndef ST_SPEC_STORE_H
#define ST_SPEC_STORE_H
#include "spec/spec.h"

typedef struct st_entry {
    st_value v;      /* must be first: callers see this part */
    const char *dir; /* relative paths in the value start here */
    int32_t key_column;
    int32_t unit;    /* which reading of which file gave it: the same key twice in one is a mistake */
    int32_t is_path; /* 1: bound as a path; 2: a list of paths. Written out absolute */
} st_entry;

typedef struct st_bound { /* a row of some table that was bound to a section */
    const char *section;
    st_param param;
} st_bound;

typedef struct st_section {
    const char *name;
    const char *file, *line_text; /* its last header; file NULL: not in the spec, only asked for */
    int32_t line, column, unit;
    int32_t present, known;       /* known: a table was bound to it or a key asked for */
    const st_value **value;       /* in order of appearance */
    int32_t n_values, cap_values;
    const char **key;             /* keys that are known here, given or not */
    int32_t n_keys, cap_keys;
} st_section;

struct st_spec {
    st_arena *arena;
    const char *path, *dir;
    st_section **section; /* all, in order of first mention */
    int32_t n_sections, cap_sections;
    const char **name; /* those present */
    int32_t n_names, cap_names;
    void **slot; /* hash table of sections (key NULL) and entries */
    size_t n_slots, n_used;
    st_value *taken; /* defaults and inherited values of bound tables */
    int32_t n_taken, cap_taken;
    st_bound *bound; /* each section and key once */
    int32_t n_bound, cap_bound;
    int32_t units, failed; /* failed: out of memory */
};

st_spec *st_spec_new(const char *path, const char *dir);
st_section *st_spec_section(st_spec *, const char *name, bool make);
st_entry *st_spec_find(const st_spec *, const char *section, const char *key);
/* Stores or replaces. The strings of v must live as long as the spec. */
int st_spec_store(st_spec *, const st_entry *);
int st_spec_mark_present(st_spec *, st_section *);
void st_spec_note_param(st_spec *, const char *section, const st_param *);
/* The value of a parameter as text: given by either name, inherited or a default; NULL: it has none. */
const st_value *st_spec_current(const st_spec *, const char *section, const st_param *);
void st_spec_know(st_spec *, const char *section, const char *key); /* key NULL: the section alone */
#endif
