/* SPDX-License-Identifier: Apache-2.0 */
/* modules.c - see modules.h. */
#include "modules.h"
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *module_entry(const char *module, const char *symbol, const char **why)
{
    static char words[4200];
    const char *folder = getenv("ST_MODULES"), *build = getenv("ST_BUILDDIR");

    snprintf(words, sizeof words, "%s%s/%s.so", folder ? folder : build ? build : ".", folder ? "" : "/plugins/.libs", module);
    void *handle = dlopen(words, RTLD_NOW | RTLD_LOCAL), *entry = handle ? dlsym(handle, symbol) : NULL;
    if (!entry) {
        snprintf(words, sizeof words, "%s", dlerror());
        *why = words;
    }
    return entry;
}

const st_plugin *module_plugin(const char *module, const char **why)
{
    void *entry = module_entry(module, "st_plugin_v1", why);
    st_plugin_fn get;

    if (!entry) return NULL;
    memcpy(&get, &entry, sizeof get);
    return get();
}

const st_kernels *module_kernels(const char *plugin, const char *backend, const char **why)
{
    char module[256];
    const st_kernels *(*get)(void);

    snprintf(module, sizeof module, "%s-%s", plugin, backend);
    void *entry = module_entry(module, "st_kernels_v1", why);
    if (!entry) return NULL;
    memcpy(&get, &entry, sizeof get);
    return get();
}

static int host_fail(st_error *e, int code, const char *file, int line, const char *fmt, ...)
{
    va_list args;

    if (!e) return code;
    va_start(args, fmt);
    e->code = code;
    vsnprintf(e->message, sizeof e->message, fmt, args);
    va_end(args);
    return code;
}

static void host_log(const st_host *host, uint32_t level, const char *who, const char *fmt, ...)
{
    va_list args;

    if (level > 2) return;
    va_start(args, fmt);
    fprintf(stderr, "# %s: ", who);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n");
    va_end(args);
}

const st_host module_host = {.size = sizeof module_host, .log = host_log, .fail = host_fail};
