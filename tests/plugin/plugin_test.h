/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for tests of plugins: a tree of directories per test, manifests, copies of fixture modules. */
#ifndef ST_PLUGIN_TEST_H
#define ST_PLUGIN_TEST_H
#include "plugin/registry.h"
#include <ftw.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static inline const char *path_of(const char *fmt, ...) ST_PRINTF(1, 2);
static inline const char *path_of(const char *fmt, ...) /* valid until 512 calls later */
{
    static char path[512][1024];
    static int next;
    char *p = path[next++ % 512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p, sizeof path[0], fmt, ap);
    va_end(ap);
    return p;
}
static inline int tree_make(void **state)
{
    const char *root = getenv("TMPDIR");
    char *path = NULL, *whole;
    umask(022);
    if (asprintf(&path, "%s/strata-test-XXXXXX", root && *root == '/' ? root : "/tmp") < 0 || !mkdtemp(path)) return -1;
    whole = realpath(path, NULL);
    free(path);
    *state = whole;
    return whole ? 0 : -1;
}
static inline int remove_one(const char *path, const struct stat *s, int type, struct FTW *f) { return remove(path); }
static inline int tree_remove(void **state)
{
    int rc = nftw(*state, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return rc;
}
static inline const char *make_dir(const char *root, const char *name)
{
    const char *p = path_of("%s/%s", root, name);
    assert_int_equal(mkdir(p, 0755), 0);
    return p;
}
static inline const char *put(const char *path, const void *data, size_t n)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
    return path;
}
static inline const char *put_text(const char *path, const char *text) { return put(path, text, strlen(text)); }
static inline const char *manifest(const char *path, const char *kind, const char *name, const char *module,
                                   const char *more)
{
    return put_text(path, path_of("[manifest]\nformat = 1\n[plugin]\nname = %s\nkind = %s\nmodule = %s\nabi = 1\n"
                                  "version = 0.1\nsummary = for tests\n%s", name, kind, module, more));
}
static inline const char *fixture(const char *name)
{
    return path_of("%s/tests/plugin/.libs/fix_%s.so", getenv("ST_BUILDDIR"), name);
}
static inline char *slurp(const char *path, size_t *n)
{
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    fseek(in, 0, SEEK_END);
    *n = (size_t)ftell(in);
    rewind(in);
    char *data = malloc(*n + 1);
    assert_int_equal(fread(data, 1, *n, in), *n);
    fclose(in);
    data[*n] = 0;
    return data;
}
static inline st_registry *open_only(const char *dirs, st_diags *diags) /* colon separated */
{
    st_registry *r = NULL;
    memset(diags, 0, sizeof *diags);
    setenv("STRATA_PLUGIN_PATH_ONLY", dirs, 1);
    assert_int_equal(st_registry_open(NULL, NULL, &r, diags), ST_OK);
    return r;
}
#define assert_has(text, word) \
    do { if (!strstr((text), (word))) fail_msg("'%s' is not in: %s", (word), (text)); } while (0)
#endif
