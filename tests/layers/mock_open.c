/* SPDX-License-Identifier: Apache-2.0 */
/* mock_open.c - the mock host opens modules: parameters by the plugin's table, its kernels, the built cpu backend. */
#define _GNU_SOURCE
#include "mock_host.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *mock_module(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/plugins/.libs/%s.so", getenv("ST_BUILDDIR") ? getenv("ST_BUILDDIR") : ".", name);
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!h) fail_msg("%s", dlerror());
    return h;
}
static const char *setting(const char *const *settings, const char *key)
{
    for (; settings && *settings; settings += 2)
        if (!strcmp(settings[0], key)) return settings[1];
    return NULL;
}
static void bind_value(const st_param *p, const char *text, void *field)
{
    switch (p->type) {
    case ST_P_BOOL: *(int32_t *)field = text && !strcmp(text, "yes"); break;
    case ST_P_INT: *(int64_t *)field = text ? strtoll(text, NULL, 10) : ST_UNSET_INT; break;
    case ST_P_FLOAT: *(double *)field = text ? strtod(text, NULL) : NAN; break;
    case ST_P_ENUM: {
        int32_t index = 0, found = -1;
        for (const char *at = p->choices; text && at; at = strchr(at, '|'), at = at ? at + 1 : NULL, index++)
            if (!strncmp(at, text, strlen(text)) && (at[strlen(text)] == '|' || !at[strlen(text)])) found = index;
        *(int32_t *)field = found;
        break;
    }
    default: fail_msg("parameter %s: type %u is unknown to the mock host", p->key, p->type);
    }
}
void mock_bind(mock *m, const char *const *settings)
{
    for (const char *const *s = settings; s && *s; s += 2) {
        int known = 0;
        for (uint32_t i = 0; i < m->plugin->n_params; i++) known |= !strcmp(m->plugin->params[i].key, s[0]);
        if (!known) fail_msg("%s has no parameter %s", m->plugin->name, s[0]);
    }
    for (uint32_t i = 0; i < m->plugin->n_params; i++) {
        const st_param *p = &m->plugin->params[i];
        const char *text = setting(settings, p->key);
        if (!text) text = p->def;
        if (!text && p->flags & ST_PF_REQUIRED) fail_msg("%s: %s is required", m->plugin->name, p->key);
        bind_value(p, text, (char *)m->self + p->offset);
    }
}
void mock_kernels(mock *m)
{
    char name[128];
    const st_kernels *(*entry)(void);
    if (!m->plugin->kernel_size) return;
    snprintf(name, sizeof name, "%s-cpu", m->plugin->name);
    *(void **)&entry = dlsym(mock_module(name), "st_kernels_v1");
    assert_non_null(entry);
    m->kernels = entry();
    assert_int_equal(m->kernels->magic, ST_KERNEL_MAGIC);
    assert_int_equal(m->kernels->iface, m->plugin->kernel_iface);
    assert_int_equal(m->kernels->table_size, m->plugin->kernel_size);
    assert_string_equal(m->kernels->plugin, m->plugin->name);
    assert_string_equal(m->kernels->version, m->plugin->version);
}

/* ---- the built cpu backend ---- */

static mock *of_queue(const st_queue *q) { return (mock *)((char *)(uintptr_t)q - offsetof(mock, queue)); }
static void *queue_scratch(const st_queue *q, size_t bytes)
{
    return mock_scratch(of_queue(q), bytes, st_absent()).data;
}
void mock_count(const st_queue *q, double flops, double bytes) {}
static int queue_fail(const st_queue *q, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(of_queue(q)->error.message, sizeof of_queue(q)->error.message, fmt, ap);
    va_end(ap);
    return code;
}
static int host_fail(st_error *e, int code, const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return e->code = code;
}
void mock_backend(mock *m)
{
    char threads[16];
    st_plugin_fn entry;
    if (!m->built_backend || m->device) return;
    *(void **)&entry = dlsym(mock_module("cpu"), "st_plugin_v1");
    assert_non_null(entry);
    m->backend = entry()->ops;
    m->backend_self = calloc(1, entry()->self_size);
    snprintf(threads, sizeof threads, "%d", (int)m->threads);
    for (uint32_t i = 0; i < entry()->n_params; i++) {
        const st_param *p = &entry()->params[i];
        bind_value(p, strcmp(p->key, "threads") ? p->def : threads, (char *)m->backend_self + p->offset);
    }
    m->host.fail = host_fail;
    if (m->backend->open(m->backend_self, &m->host, 0, NULL, &m->device, &m->error))
        fail_msg("cpu: %s", m->error.message);
    assert_int_equal(m->backend->queue(m->device, 0, &m->queue), ST_OK);
    m->queue.scratch = queue_scratch;
    m->queue.count = mock_count; /* the queue was made anew */
    m->queue.fail = queue_fail;
    m->queue.fault = &m->fault;
    m->step.ops = m->backend->ops;
}
