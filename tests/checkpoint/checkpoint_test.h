/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for tests of files: a folder of its own per test, and tensor files made byte by byte. */
#ifndef ST_CHECKPOINT_TEST_H
#define ST_CHECKPOINT_TEST_H
#include "checkpoint/safetensors.h"
#include <dirent.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static inline int folder_make(void **state)
{
    const char *root = getenv("TMPDIR");
    char *path = NULL;
    if (asprintf(&path, "%s/strata-test-XXXXXX", root && *root == '/' ? root : "/tmp") < 0) return -1;
    *state = mkdtemp(path);
    return *state ? 0 : -1;
}
/* The path stays valid until the next 16 calls. */
static inline const char *path_in(const char *dir, const char *name)
{
    static char path[16][512];
    static int next;
    char *p = path[next++ % 16];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}
static inline int files_in(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *f; d && (f = readdir(d));) n += f->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}
static inline int folder_remove(void **state)
{
    DIR *d = opendir(*state);
    for (struct dirent *f; d && (f = readdir(d));)
        if (strcmp(f->d_name, ".") && strcmp(f->d_name, "..")) unlink(path_in(*state, f->d_name));
    if (d) closedir(d);
    int rc = rmdir(*state);
    free(*state);
    return rc;
}
static inline const char *put_raw(const char *dir, const char *name, const void *data, size_t n)
{
    const char *path = path_in(dir, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
    return path;
}
static inline const char *put_file(const char *dir, const char *name, const char *header, const void *data,
                                   size_t bytes)
{
    size_t n = strlen(header);
    char *file = malloc(8 + n + bytes);
    for (int i = 0; i < 8; i++) file[i] = (char)(n >> 8 * i);
    memcpy(file + 8, header, n);
    if (bytes) memcpy(file + 8 + n, data, bytes);
    const char *path = put_raw(dir, name, file, 8 + n + bytes);
    free(file);
    return path;
}
#endif
