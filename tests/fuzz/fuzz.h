/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share: a folder of their own in which an input becomes a file, and properties that end the
 * process when they do not hold. */
#ifndef ST_FUZZ_H
#define ST_FUZZ_H
#include "base/base.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A property that holds for every input, whatever is in it. */
#define FUZZ_HOLDS(what) \
    do { if (!(what)) { fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #what); abort(); } } while (0)

/* FUZZ_DIR is made and removed by tests/fuzz/run.sh; each target runs in one of its own. */
static inline const char *fuzz_path(const char *name)
{
    static char path[8][512];
    static int next;
    const char *dir = getenv("FUZZ_DIR");
    char *p = path[next++ % 8];
    FUZZ_HOLDS(dir && dir[0] == '/');
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}
static inline const char *fuzz_file(const char *name, const void *data, size_t n)
{
    const char *path = fuzz_path(name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    FUZZ_HOLDS(fd >= 0 && write(fd, data, n) == (ssize_t)n && close(fd) == 0);
    return path;
}
/* A refusal has a code of its own and words. */
static inline void fuzz_refused(int rc, const st_error *e)
{
    FUZZ_HOLDS(rc != ST_OK && e->code == rc && e->message[0]);
    FUZZ_HOLDS(rc != ST_E_INTERNAL);
}
#endif
