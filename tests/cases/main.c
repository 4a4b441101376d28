/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cases/main.c - `cases` makes all files in a temporary folder and checks them; `cases make DIR` only makes them;
 * `cases check DIR` checks a folder from elsewhere by its manifest.csv, whose first two columns are file and kind. The
 * last line tells how many of how many came out right. */
#include "config.h"

#include "cases.h"
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

static const case_kind *const kinds[] = {
    &image_kind, &safetensors_kind, &sharded_kind,   &tied_kind, &config_kind, &ini_kind,   &cord_kind,
    &text_kind,  &tokenizer_kind,   &positions_kind, &gdn_kind,  &loss_kind,   &plugin_kind};

typedef struct job {
    cases c;
    const case_kind *kind; /* NULL: the manifest names a file that no table has */
    const void *row;
} job;

static const char *file_of(const void *row) { return *(const char *const *)row; }

static const void *row_at(const case_kind *k, int32_t i) { return (const char *)k->rows + k->row_size * (size_t)i; }

/* ---- which cases ---- */

static int32_t all_rows(job *jobs, const cases *c)
{
    int32_t n = 0;

    for (size_t k = 0; k < ST_COUNT(kinds); k++)
        for (int32_t i = 0; i < kinds[k]->n; i++, n++)
            if (jobs) jobs[n] = (job){*c, kinds[k], row_at(kinds[k], i)};
    return n;
}

static void find_row(job *j, const char *file, const char *kind)
{
    for (size_t k = 0; k < ST_COUNT(kinds); k++)
        for (int32_t i = 0; i < kinds[k]->n && strcmp(kinds[k]->name, kind) == 0; i++)
            if (strcmp(file_of(row_at(kinds[k], i)), file) == 0) {
                j->kind = kinds[k];
                j->row = row_at(kinds[k], i);
            }
}

/* The next record of a table of comma-separated values; fields behind the second are passed over. NULL: the end. */
static char *next_record(char *at, char **file, char **kind)
{
    bool quoted = false;
    char *end = at, *comma;

    if (!*at) return NULL;
    for (; *end && (quoted || *end != '\n'); end++)
        if (*end == '"') quoted = !quoted;
    if (*end) *end++ = 0;
    *file = at;
    *kind = NULL;
    if ((comma = strchr(at, ','))) {
        *comma = 0;
        *kind = comma + 1;
        (*kind)[strcspn(*kind, ",\r")] = 0;
    }
    return end;
}

static int32_t manifest_rows(job *jobs, const cases *c, char *text)
{
    char *file, *kind, *at = next_record(text, &file, &kind); /* the heading */
    int32_t n = 0;

    while (at && (at = next_record(at, &file, &kind)))
        if (kind) {
            jobs[n] = (job){.c = *c, .row = file};
            find_row(&jobs[n++], file, kind);
        }
    return n;
}

/* ---- work ---- */

static void run_case(void **state)
{
    job *j = *state;

    if (!j->kind) fail_msg("no table has this file");
    j->c.arena = st_arena_create(0);
    j->kind->check(&j->c, j->row);
    st_arena_destroy(j->c.arena);
}

static int check_all(job *jobs, int32_t n)
{
    struct CMUnitTest *tests = calloc((size_t)n, sizeof *tests);

    if (!tests) return 1;
    for (int32_t i = 0; i < n; i++)
        tests[i] = (struct CMUnitTest){.name = jobs[i].kind ? file_of(jobs[i].row) : jobs[i].row,
                                       .test_func = run_case,
                                       .initial_state = &jobs[i]};
    int failed = _cmocka_run_group_tests("cases", tests, (size_t)n, NULL, NULL);
    free(tests);
    printf("# %d of %d cases\n", n - failed, n);
    return failed != 0;
}

static int make_all(const job *jobs, int32_t n)
{
    st_buf manifest = {0};

    st_buf_puts(&manifest, "file,kind\n");
    for (int32_t i = 0; i < n; i++) {
        cases c = jobs[i].c;
        c.arena = st_arena_create(0);
        jobs[i].kind->make(&c, jobs[i].row);
        st_buf_printf(&manifest, "%s,%s\n", file_of(jobs[i].row), jobs[i].kind->name);
        if (i == n - 1) case_put(&c, "manifest.csv", manifest.data, manifest.n);
        st_arena_destroy(c.arena);
    }
    st_buf_free(&manifest);
    return 0;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) { return remove(path); }

static char *temporary(const char *what)
{
    const char *root = getenv("TMPDIR");
    char *path = NULL;

    if (asprintf(&path, "%s/strata-%s-XXXXXX", root && *root == '/' ? root : "/tmp", what) < 0) return NULL;
    return mkdtemp(path);
}

int main(int argc, char **argv)
{
    bool make = argc == 3 && !strcmp(argv[1], "make"), given = argc == 3 && !strcmp(argv[1], "check");
    char *scratch = temporary("scratch"), *dir;
    cases c = {.given = given, .arena = st_arena_create(0), .scratch = scratch};
    job *jobs = calloc(4096, sizeof *jobs);
    int32_t n;
    int status = 0;

    if (argc != 1 && !make && !given) {
        fputs("usage: cases [make DIR | check DIR]\n", stderr);
        return 2;
    }
    c.dir = dir = argc == 3 ? realpath(argv[2], NULL) : temporary("cases");
    if (!c.dir || !c.scratch || !jobs || !c.arena) {
        perror(argc == 3 ? argv[2] : "cases");
        return 2;
    }
    if (given) {
        size_t size;
        n = manifest_rows(jobs, &c, case_read(&c, "manifest.csv", &size));
    } else {
        n = all_rows(jobs, &c);
        status = make_all(jobs, n);
    }
    if (!make && status == 0) status = check_all(jobs, n);
    nftw(c.scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (argc == 1) nftw(c.dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    st_arena_destroy(c.arena);
    free(scratch);
    free(dir);
    free(jobs);
    return status;
}
