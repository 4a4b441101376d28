/* SPDX-License-Identifier: Apache-2.0 */
/* base/file.c - whole files in, whole files out. A written file is the old one or the new one, also after a crash. */
#include "config.h"
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool st_path_exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0;
}

char *st_path_join(st_arena *a, const char *dir, const char *name)
{
    size_t n = dir ? strlen(dir) : 0;
    if (name[0] == '/' || n == 0 || (n == 1 && dir[0] == '.')) return st_arena_strdup(a, name);
    return st_arena_printf(a, "%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
}

char *st_path_dir(st_arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return st_arena_strdup(a, ".");
    return st_arena_strndup(a, path, slash == path ? 1 : (size_t)(slash - path));
}

static int read_all(int fd, const char *path, char *data, size_t size, size_t *n, st_error *e)
{
    *n = 0;
    while (*n < size) {
        ssize_t got = read(fd, data + *n, size - *n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return st_fail_errno(e, path, "read");
        if (got == 0) break; /* it shrank meanwhile: what is there now */
        *n += (size_t)got;
    }
    return ST_OK;
}

int st_file_read(const char *path, st_arena *a, char **data, size_t *n, st_error *e)
{
    struct stat s;
    int rc = ST_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not wait for its writer */
    if (fd < 0) return st_fail_errno(e, path, "open");
    if (fstat(fd, &s) != 0) {
        rc = st_fail_errno(e, path, "examine");
        goto done;
    }
    if (!S_ISREG(s.st_mode)) {
        rc = st_fail(e, ST_E_IO, "%s: %s, not a regular file", path,
                     S_ISDIR(s.st_mode) ? "a folder" : "a device, pipe or socket");
        goto done;
    }
    *data = st_arena_alloc(a, (size_t)s.st_size + 1);
    if (!*data) {
        rc = st_fail(e, ST_E_NOMEM, "%s: no memory for its %lld bytes", path, (long long)s.st_size);
        goto done;
    }
    rc = read_all(fd, path, *data, (size_t)s.st_size, n, e);
done:
    close(fd);
    return rc;
}

static int write_all(int fd, const char *path, const char *data, size_t n, st_error *e)
{
    while (n > 0) {
        ssize_t put = write(fd, data, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return st_fail_errno(e, path, "write");
        data += put;
        n -= (size_t)put;
    }
    return ST_OK;
}

/* Not every file system can do it, and one that is read-only has nothing to do. */
int st_sync_folder(const char *dir, st_error *e)
{
    int rc = ST_OK, fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) rc = st_fail_errno(e, dir, "open");
    else if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS) rc = st_fail_errno(e, dir, "make durable");
    if (fd >= 0) close(fd);
    return rc;
}

int st_sync_folder_of(const char *path, st_error *e)
{
    const char *slash = strrchr(path, '/');
    size_t n = !slash ? 1 : slash == path ? 1 : (size_t)(slash - path);
    char *dir = strndup(slash ? path : ".", n);
    if (!dir) return st_fail(e, ST_E_NOMEM, "%s: no memory for a path", path);
    int rc = st_sync_folder(dir, e);
    free(dir);
    return rc;
}

/* A new file beside `path`, so that the rename stays inside one file system. Writes the name it took. */
static int open_beside(const char *path, char *name, size_t size)
{
    for (int i = 0; i < 1000; i++) {
        snprintf(name, size, "%s.%ld-%d.tmp", path, (long)getpid(), i);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

int st_file_write_atomic(const char *path, const void *data, size_t n, st_error *e)
{
    size_t size = strlen(path) + 64;
    char *name = malloc(size);
    if (!name) return st_fail(e, ST_E_NOMEM, "%s: no memory for a path", path);
    int rc, fd = open_beside(path, name, size);
    if (fd < 0) {
        rc = st_fail_errno(e, path, "create");
        free(name);
        return rc;
    }
    rc = write_all(fd, path, data, n, e);
    if (rc == ST_OK && fsync(fd) != 0) rc = st_fail_errno(e, path, "make durable");
    if (close(fd) != 0 && rc == ST_OK) rc = st_fail_errno(e, path, "close");
    if (rc == ST_OK && rename(name, path) != 0) rc = st_fail_errno(e, path, "replace");
    if (rc != ST_OK) unlink(name);
    else rc = st_sync_folder_of(path, e);
    free(name);
    return rc;
}

static int make_dir(const char *path, st_error *e)
{
    struct stat s;
    if (mkdir(path, 0777) == 0) return ST_OK;
    int why = errno;
    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode)) return ST_OK;
    errno = why == EEXIST ? ENOTDIR : why;
    return st_fail_errno(e, path, "make the folder");
}

int st_make_dirs(const char *path, st_error *e)
{
    int rc = ST_OK;
    char *part = strdup(path);
    if (!part) return st_fail(e, ST_E_NOMEM, "%s: no memory for a path", path);
    for (char *p = part + (part[0] == '/'); *p && rc == ST_OK; p++) {
        if (*p != '/' || p[-(p > part)] == '/') continue;
        *p = 0;
        rc = make_dir(part, e);
        *p = '/';
    }
    if (rc == ST_OK && part[0]) rc = make_dir(part, e);
    free(part);
    return rc;
}
