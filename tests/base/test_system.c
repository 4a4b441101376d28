/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_system.c - arenas, files, log, threads, and the services of st_host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/base.h"
#include <dirent.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void arenas(void **state)
{
    st_arena *a = st_arena_create(1 << 20);
    char *first = NULL;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 500; i++) {
            size_t n = (size_t)(i * 7 % 1000);
            unsigned char *p = st_arena_alloc(a, n);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % 64, 0);
            for (size_t k = 0; k < n; k++) assert_int_equal(p[k], 0);
            memset(p, 0xAB, n);
            if (i == 0 && round == 0) first = (char *)p;
            if (i == 0 && round == 1) assert_ptr_equal(p, first); /* a reset keeps the blocks */
        }
        st_arena_reset(a);
    }
    assert_null(st_arena_alloc(a, (1 << 20) + 1));
    assert_non_null(st_arena_alloc(a, 1 << 20));
    assert_null(st_arena_alloc(a, 1));
    assert_null(st_arena_alloc(a, SIZE_MAX));
    assert_null(st_arena_alloc(NULL, 1));
    st_arena_destroy(a);
    a = st_arena_create(0);
    assert_string_equal(st_arena_strdup(a, "text"), "text");
    assert_string_equal(st_arena_strndup(a, "text", 2), "te");
    assert_null(st_arena_strdup(a, NULL));
    assert_string_equal(st_arena_printf(a, "%s-%d", "a", 5), "a-5");
    st_arena_destroy(a);
    st_arena_destroy(NULL);
}

static void count_files(const char *dir, int want)
{
    DIR *d = opendir(dir);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    assert_int_equal(n, want);
}

static void files(void **state)
{
    char dir[] = "test_system.XXXXXX";
    st_arena *a = st_arena_create(0);
    st_error e = {0};
    char *data;
    size_t n;
    assert_non_null(mkdtemp(dir));
    char *deep = st_path_join(a, dir, "a//b/c"), *file = st_path_join(a, deep, "f");
    assert_int_equal(st_make_dirs(deep, &e), ST_OK);
    assert_int_equal(st_make_dirs(deep, &e), ST_OK); /* again is fine */
    assert_int_equal(st_file_write_atomic(file, "one", 3, &e), ST_OK);
    assert_int_equal(st_file_write_atomic(file, "two\0three", 9, &e), ST_OK);
    assert_int_equal(st_file_read(file, a, &data, &n, &e), ST_OK);
    assert_int_equal(n, 9);
    assert_memory_equal(data, "two\0three", 10); /* a NUL behind the end */
    count_files(deep, 1);                        /* no temporary stays */
    assert_true(st_path_exists(file));

    assert_int_equal(st_file_read(deep, a, &data, &n, &e), ST_E_IO);
    assert_non_null(strstr(e.message, "a folder"));
    memset(&e, 0, sizeof e);
    assert_int_equal(st_file_read("no/such", a, &data, &n, &e), ST_E_IO);
    assert_string_equal(e.message, "no/such: cannot open: No such file or directory");
    memset(&e, 0, sizeof e);
    assert_int_equal(st_file_write_atomic(deep, "x", 1, &e), ST_E_IO); /* a folder is in the way */
    count_files(st_path_dir(a, deep), 1);
    memset(&e, 0, sizeof e);
    assert_int_equal(st_make_dirs(st_path_join(a, file, "d"), &e), ST_E_IO);
    memset(&e, 0, sizeof e);
    char *pipe = st_path_join(a, dir, "pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(st_file_read(pipe, a, &data, &n, &e), ST_E_IO); /* does not wait for a writer */

    assert_string_equal(st_path_join(a, "d", "/abs"), "/abs");
    assert_string_equal(st_path_join(a, ".", "x"), "x");
    assert_string_equal(st_path_join(a, "/", "x"), "/x");
    assert_string_equal(st_path_dir(a, "x"), ".");
    assert_string_equal(st_path_dir(a, "/x"), "/");
    assert_string_equal(st_path_dir(a, "a/b/x"), "a/b");
    unlink(pipe);
    unlink(file);
    rmdir(deep);
    rmdir(st_path_join(a, dir, "a/b"));
    rmdir(st_path_join(a, dir, "a"));
    assert_int_equal(rmdir(dir), 0);
    st_arena_destroy(a);
}

typedef struct work { st_threads *pool; _Atomic int64_t sum; _Atomic int done[300]; } work;

static void add_one(void *arg, int64_t i)
{
    work *w = arg;
    atomic_fetch_add(&w->sum, i);
}

static void nested(void *arg, int64_t i)
{
    work *w = arg;
    st_threads_run(w->pool, 10, add_one, w);
    atomic_fetch_add(&w->done[i], 1);
}

static void threads(void **state)
{
    for (int n = 0; n < 5; n++) {
        st_threads *pool = st_threads_create(n);
        assert_true(n ? st_threads_count(pool) == n : st_threads_count(pool) >= 1);
        for (int round = 0; round < 200; round++) {
            work w = {.pool = pool};
            st_threads_run(pool, round, add_one, &w);
            assert_int_equal(w.sum, (int64_t)round * (round - 1) / 2);
        }
        work w = {.pool = pool};
        st_threads_run(pool, 300, nested, &w);
        assert_int_equal(w.sum, 300 * 45);
        for (int i = 0; i < 300; i++) assert_int_equal(w.done[i], 1);
        st_threads_destroy(pool);
    }
    work w = {0};
    st_threads_run(NULL, 10, add_one, &w); /* no pool: the caller alone */
    assert_int_equal(w.sum, 45);
}

static void host_services(void **state)
{
    char *text = NULL, *file;
    size_t n = 0;
    FILE *screen = open_memstream(&text, &n);
    st_base *b;
    st_error e = {0};
    st_arena *a = st_arena_create(0);
    char name[] = "test_log.XXXXXX";
    int fd = mkstemp(name);
    assert_int_equal(st_base_create(&b, screen, 3, 2), ST_OK);
    assert_int_equal(st_log_file(b->log, name, &e), ST_OK);
    const st_host *h = &b->host;
    assert_int_equal(h->size, sizeof *h);
    assert_ptr_equal(h, b);

    h->log(h, 3, "cord_v2", "%d\nsamples\x1B\n", 7); /* one line, and nothing that a terminal acts on */
    h->log(h, 2, "cord_v2", "one is odd");
    h->log(h, 4, "cord_v2", "not shown");
    char longer[3000];
    memset(longer, 'y', sizeof longer);
    longer[2999] = 0;
    h->log(h, 1, "", "%s", longer);
    assert_true(strncmp(text, "cord_v2: 7?samples?\ncord_v2: warning: one is odd\nerror: yyy", 59) == 0);
    assert_int_equal(n, strlen("cord_v2: 7?samples?\ncord_v2: warning: one is odd\nerror: ") + 2999 + 1);
    size_t size;
    assert_int_equal(st_file_read(name, a, &file, &size, &e), ST_OK);
    assert_true(st_glob("2*-*-*T*:*:*.*Z info    cord_v2: 7?samples?\n2*Z warning cord_v2: one is odd\n*yyy\n", file));

    assert_int_equal((h->fail)(&e, ST_E_DATA, "plugin.c", 12, "sample %d", 3), ST_E_DATA);
    assert_string_equal(e.message, "sample 3");
    assert_string_equal(e.file, ""); /* the user's data, not our source */
    assert_int_equal(e.layer, -1);
    memset(&e, 0, sizeof e);
    assert_int_equal((h->fail)(&e, ST_E_INTERNAL, "plugin.c", 12, "broken"), ST_E_INTERNAL);
    assert_string_equal(e.file, "plugin.c");
    assert_int_equal(e.line, 12);
    double u[2], v[2];
    h->uniform(1, 2, 3, 2, u);
    st_uniform(1, 2, 3, 2, v);
    assert_memory_equal(u, v, sizeof u);
    work w = {0};
    h->parallel(h, 100, add_one, &w);
    assert_int_equal(w.sum, 4950);
    assert_non_null(h->alloc(a, 10));
    assert_null(h->alloc(NULL, 10));
    st_base_destroy(b);
    st_base_destroy(NULL);
    fclose(screen);
    free(text);
    close(fd);
    unlink(name);
    st_arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arenas), cmocka_unit_test(files), cmocka_unit_test(threads), cmocka_unit_test(host_services),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
