/* SPDX-License-Identifier: Apache-2.0 */
/* base/base.h - what every room of the host uses: errors, log, arenas, strings, files, time, random numbers, threads.
 * No globals: a struct st_base is made once in main() and passed down (its st_host is what plugins get). */
#ifndef ST_BASE_H
#define ST_BASE_H
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <strata/plugin.h>

/* ---- errors (error.c). An st_error that already holds a code keeps it: the first error wins. All return `code`. */
int st_fail(st_error *, int code, const char *fmt, ...) ST_PRINTF(3, 4);
int st_fail_at(st_error *, int code, const char *file, int line, int column, const char *fmt, ...) ST_PRINTF(6, 7);
int st_fail_errno(st_error *, const char *path, const char *doing); /* ST_E_IO: "path: cannot DOING: No such file..." */
void st_error_hint(st_error *, const char *fmt, ...) ST_PRINTF(2, 3);
void st_error_detail(st_error *, const char *fmt, ...) ST_PRINTF(2, 3);
void st_error_context(st_error *, const char *fmt, ...) ST_PRINTF(2, 3); /* "context: " goes in front of the message */
const char *st_code_name(int code); /* "config", "abi", ... */

/* All mistakes found together, at most ST_DIAGS_MAX kept (the rest counted). `line_text` is shown with a caret
 * below its column `caret`. */
#define ST_DIAGS_MAX 20
typedef struct st_diag { st_error error; char line_text[256]; int32_t caret, warning; } st_diag;
typedef struct st_diags { int32_t n, errors, warnings; st_diag item[ST_DIAGS_MAX]; } st_diags;
int st_diags_add(st_diags *, const st_error *, const char *line_text, bool warning); /* -> the error's code */
/* A mistake in words, code ST_E_CONFIG, at a place in a file of the user's. hint NULL or "": none. */
typedef struct st_place { const char *file; int32_t line, column; const char *line_text; } st_place;
int st_diags_vfail(st_diags *, const st_place *, bool warning, const char *hint, const char *fmt, va_list);
void st_diags_print(const st_diags *, FILE *); /* file:line:column: error: message, line, caret, detail, hint */

/* ---- arenas (arena.c): bump blocks, freed as a whole. struct st_arena is what plugins see as st_arena. ---- */
st_arena *st_arena_create(size_t limit); /* limit 0: none */
void st_arena_destroy(st_arena *);
void st_arena_reset(st_arena *); /* keeps the blocks */
void *st_arena_alloc(st_arena *, size_t bytes); /* zeroed, 64-byte aligned; NULL when exhausted */
char *st_arena_strdup(st_arena *, const char *);
char *st_arena_strndup(st_arena *, const char *, size_t);
char *st_arena_printf(st_arena *, const char *fmt, ...) ST_PRINTF(2, 3);
#define ST_NEW(arena, T) ((T *)st_arena_alloc((arena), sizeof(T)))
#define ST_NEW_N(arena, T, n) ((T *)st_arena_alloc((arena), sizeof(T) * (size_t)(n)))

/* ---- growing byte buffer, malloc'd (text.c) ---- */
typedef struct st_buf { char *data; size_t n, cap; int32_t failed; } st_buf; /* data is NUL-terminated once written */
void st_buf_add(st_buf *, const void *, size_t);
void st_buf_puts(st_buf *, const char *);
void st_buf_printf(st_buf *, const char *fmt, ...) ST_PRINTF(2, 3);
void st_buf_free(st_buf *);

/* ---- text (text.c); locale independent ---- */
const char *st_nearest(const char *word, const char *const *known, int n); /* edit distance <= 3 and < half; or NULL */
bool st_glob(const char *pattern, const char *text); /* '*' and '?' */
bool st_parse_int(const char *text, int64_t *out, const char **why);  /* -12, 4k = 4096, 2M, 1G; why: a phrase */
bool st_parse_float(const char *text, double *out, const char **why); /* finite only */
bool st_parse_size(const char *text, int64_t *out, const char **why); /* 512MiB, 2GiB, 1000 */
void st_format_float(double, char out[32]);                            /* shortest text that reads back the same */
bool st_ends_with(const char *text, const char *end);
bool st_utf8_valid(const char *, size_t, size_t *bad_at);
/* Bytes of the control character that the text begins with, the last is its code; 0: none, or a tab. */
size_t st_control(const char *, size_t);
bool st_is_text(const char *, size_t, size_t *bad_at); /* UTF-8 without control characters but line feeds and tabs */
void st_make_utf8(char *);           /* bytes that are none become '?' */
void st_make_printable(char *);      /* the same, and what a terminal would act on: control characters but the tab */
uint64_t st_hash64(const void *, size_t, uint64_t seed); /* FNV-1a then mixed; for names, not for security */

/* ---- files (file.c) ---- */
int st_file_read(const char *path, st_arena *, char **data, size_t *n, st_error *); /* regular files; NUL appended */
/* What was renamed or made in a folder is durable once the folder itself is. */
int st_sync_folder(const char *dir, st_error *);
int st_sync_folder_of(const char *path, st_error *); /* the folder that path is in */
int st_file_write_atomic(const char *path, const void *, size_t, st_error *); /* temporary beside it, fsync, rename */
int st_make_dirs(const char *path, st_error *);
char *st_path_join(st_arena *, const char *dir, const char *name); /* absolute name: as it is */
char *st_path_dir(st_arena *, const char *path);
bool st_path_exists(const char *);

/* ---- time (clock.c) ---- */
double st_clock(void); /* seconds from a fixed moment, never going back */

/* ---- counter-based random numbers (rng.c): Philox 4x32-10, the same on every machine and cut ---- */
void st_uniform(uint64_t seed, uint64_t stream, int64_t first, int64_t n, double *out); /* (0,1) */
/* Box-Muller of the above, elementwise by index */
void st_normal(uint64_t seed, uint64_t stream, int64_t first, int64_t n, double *out);
uint64_t st_random_u64(uint64_t seed, uint64_t stream, int64_t index);
void st_permutation(uint64_t seed, uint64_t stream, int64_t n, int64_t *out); /* Fisher-Yates */

/* ---- log (log.c). Levels as in st_host: 1 error 2 warning 3 info 4 debug 5 trace ---- */
typedef struct st_log st_log;
st_log *st_log_create(FILE *screen, int level);
int st_log_file(st_log *, const char *path, st_error *); /* also into this file, with time stamps */
void st_log_write(st_log *, uint32_t level, const char *who, const char *fmt, ...) ST_PRINTF(4, 5);
/* Into the file alone: what the screen is told in another form. */
void st_log_record(st_log *, uint32_t level, const char *who, const char *fmt, ...) ST_PRINTF(4, 5);
void st_log_vwrite(st_log *, uint32_t level, const char *who, const char *fmt, va_list);
void st_log_destroy(st_log *);

/* ---- threads (threads.c): a fixed pool for data work ---- */
typedef struct st_threads st_threads;
st_threads *st_threads_create(int n); /* n 0: one per core of this process */
int st_threads_count(const st_threads *);
/* returns when all done; the caller helps; from inside a piece of work the pieces are done by their caller alone */
void st_threads_run(st_threads *, int64_t n, void (*fn)(void *, int64_t), void *arg);
void st_threads_destroy(st_threads *);

/* ---- everything a room needs from outside ---- */
typedef struct st_base {
    st_host host;        /* must be first: plugins hand it back */
    st_log *log;
    st_threads *threads;
} st_base;
/* Copies a struct that begins with its own uint32_t size into the host's form of it, `size` bytes: what its writer did
 * not know is zero. */
void st_sized_copy(void *to, size_t size, const void *from);
int st_base_create(st_base **, FILE *screen, int log_level, int threads);
void st_base_destroy(st_base *);

/* ---- places.c ---- */
/* Where this program's own files are. */
typedef struct st_places {
    int32_t uninstalled;              /* 1: it runs from its build tree                                         */
    const char *registry, *modules, *specs, *templates; /* templates: of `strata new`, a folder for each kind   */
} st_places;
int st_places_find(st_arena *, st_places *, st_error *);
/* The spec NAME or NAME.ini that came with the program. false: there is none, and *nearest is the name most like it, or NULL. */
bool st_places_spec(const st_places *, const char *name, st_arena *, const char **path, const char **nearest);
#endif
