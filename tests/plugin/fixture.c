/* SPDX-License-Identifier: Apache-2.0 */
/* One small layer plugin, built many times with one thing wrong (tests/plugin/module.mk names what). */
#include <strata/layer.h>

#ifndef FIX_MAGIC
#define FIX_MAGIC ST_MAGIC
#endif
#ifndef FIX_MAJOR
#define FIX_MAJOR ST_ABI_MAJOR
#endif
#ifndef FIX_MINOR
#define FIX_MINOR ST_ABI_MINOR
#endif
#ifndef FIX_SIZE
#define FIX_SIZE sizeof(st_plugin)
#endif
#ifndef FIX_KIND
#define FIX_KIND ST_KIND_LAYER
#endif
#ifndef FIX_TENSOR_SIZE
#define FIX_TENSOR_SIZE sizeof(st_tensor)
#endif
#ifndef FIX_NAME
#define FIX_NAME "fixture"
#endif
#ifndef FIX_OPS_SIZE
#define FIX_OPS_SIZE sizeof(st_layer_ops)
#endif
#ifndef FIX_BACKWARD
#define FIX_BACKWARD backward
#endif
#ifndef FIX_SUMMARY
#define FIX_SUMMARY "a layer for tests"
#endif
#ifndef FIX_DEFAULT
#define FIX_DEFAULT "8"
#endif
#ifndef FIX_ENTRY
#define FIX_ENTRY st_plugin_v1
#endif
#ifndef FIX_OFFSET
#define FIX_OFFSET (uint32_t) offsetof(struct fixture, width)
#endif

struct fixture {
    int64_t width;
    double rate;
    const char *note;
    int32_t mode;
};
static const st_param params[] = {
    {"width", FIX_DEFAULT, "columns", NULL, "width of the layer", NULL, NULL, 1, 64, ST_P_INT, ST_PF_FIXED, FIX_OFFSET,
     sizeof(int64_t)},
    ST_FLOAT(struct fixture, rate, "0.5", 0, 1, "", 0, "a rate"),
    ST_STR(struct fixture, note, NULL, 0, "free text"),
    ST_CHOICE(struct fixture, mode, "soft", "soft|hard", 0, "how it works"),
};

#ifdef FIX_UNDEFINED
extern int not_there_anywhere(void);
#define EXTRA not_there_anywhere()
#elif defined(FIX_GLOBAL)
/* two modules export this name with different values; each must see its own */
__attribute__((visibility("default"))) int fixture_global = FIX_GLOBAL;
__attribute__((visibility("default"))) int fixture_value(void);
__attribute__((visibility("default"))) int fixture_value(void) { return fixture_global; }
#define EXTRA fixture_value()
#else
#define EXTRA 0
#endif

static int configure(void *self, st_env *env) { return env ? env->status + EXTRA : EXTRA; }
static int forward(const void *self, st_step *s, const st_tensor *x, const st_tensor *y) { return st_status(s); }
__attribute__((unused)) static int backward(const void *self, st_step *s, const st_tensor *x, const st_tensor *dy,
                                            const st_tensor *dx)
{
    return st_status(s);
}

static const st_layer_ops ops = {.size = FIX_OPS_SIZE,
                                 .role = ST_ROLE_CHANNEL,
                                 .tokens = ST_GATHERED,
                                 .configure = configure,
                                 .forward = forward,
                                 .backward = FIX_BACKWARD};
#ifndef FIX_NO_ENTRY
ST_EXPORT const st_plugin *FIX_ENTRY(void);
ST_EXPORT const st_plugin *FIX_ENTRY(void)
{
    static const st_plugin p = {FIX_MAGIC,
                                FIX_MAJOR,
                                FIX_MINOR,
                                FIX_SIZE,
                                FIX_KIND,
                                FIX_TENSOR_SIZE,
                                sizeof(st_param),
                                .n_params = ST_COUNT(params),
                                .self_size = sizeof(struct fixture),
                                .kernel_iface = 3,
                                .kernel_size = sizeof(int),
                                .caps = ST_CAP_TRAIN,
                                .name = FIX_NAME,
                                .version = "0.1",
                                .license = "Apache-2.0",
                                .author = "tests",
                                .summary = FIX_SUMMARY,
                                .description = "",
                                .params = params,
                                .ops = &ops};
    return &p;
}
#else
const void *fixture_unused(void);
const void *fixture_unused(void) { return (const void *[]){&ops, params}[0]; }
#endif
