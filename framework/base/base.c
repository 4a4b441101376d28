/* SPDX-License-Identifier: Apache-2.0 */
/* base/base.c - makes the host's services and hands them out as the st_host that plugins see. */
#include "base/base.h"
#include <stdlib.h>
#include <string.h>

void st_sized_copy(void *to, size_t size, const void *from)
{
    uint32_t theirs;
    memcpy(&theirs, from, sizeof theirs);
    memset(to, 0, size);
    memcpy(to, from, theirs < size ? theirs : size);
}

static const st_base *base_of(const st_host *host)
{
    return (const st_base *)host; /* host is the first member */
}

static void host_log(const st_host *host, uint32_t level, const char *who, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    st_log_vwrite(base_of(host)->log, level, who, fmt, ap);
    va_end(ap);
}

/* A place in a plugin's source helps only with a bug. The host itself places mistakes in
 * a spec or in data, at the user's line. */
static int host_fail(st_error *e, int code, const char *file, int line, const char *fmt, ...)
{
    char text[sizeof e->message];
    va_list ap;
    bool bug = code == ST_E_INTERNAL || code == ST_E_SHAPE || code == ST_E_DEVICE || code == ST_E_COMM;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return bug ? st_fail_at(e, code, file, line, 0, "%s", text) : st_fail(e, code, "%s", text);
}

static void host_parallel(const st_host *host, int64_t n, void (*fn)(void *arg, int64_t i), void *arg)
{
    st_threads_run(base_of(host)->threads, n, fn, arg);
}

int st_base_create(st_base **out, FILE *screen, int log_level, int threads)
{
    st_base *b = calloc(1, sizeof *b);
    *out = NULL;
    if (!b) return ST_E_NOMEM;
    b->log = st_log_create(screen, log_level);
    b->threads = st_threads_create(threads);
    if (!b->log || !b->threads) {
        st_base_destroy(b);
        return ST_E_NOMEM;
    }
    b->host.size = sizeof b->host;
    b->host.abi_minor = ST_ABI_MINOR;
    b->host.log = host_log;
    b->host.fail = host_fail;
    b->host.alloc = st_arena_alloc;
    b->host.uniform = st_uniform;
    b->host.parallel = host_parallel;
    *out = b;
    return ST_OK;
}

void st_base_destroy(st_base *b)
{
    if (!b) return;
    st_threads_destroy(b->threads);
    st_log_destroy(b->log);
    free(b);
}
