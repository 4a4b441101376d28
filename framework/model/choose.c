/* SPDX-License-Identifier: Apache-2.0 */
/* model/choose.c - which backend a run has, and which type it computes in, when the spec leaves that to the machine.
 *
 * auto is cuda where its modules load and there is a GPU for them, else cpu; the type is bf16 where the backend trains
 * in it, else f32. What is chosen becomes the spec's own value, so that a checkpoint says what it was made with. */
#include "model/private.h"
#include <stdlib.h>
#include <string.h>

static const int32_t type_of[] = {
    [PRECISION_F64] = ST_F64, [PRECISION_F32] = ST_F32, [PRECISION_BF16] = ST_BF16};
static const char *const word_of[] = {
    [PRECISION_F64] = "f64", [PRECISION_F32] = "f32", [PRECISION_BF16] = "bf16"};

static bool trains_in(const st_facts *f, int32_t precision) { return f->dtypes >> type_of[precision] & 1u; }

/* ---- the backend ---- */

static bool fits(st_model *m, const st_backend_ops *ops, const void *self, const st_kernels *k, st_error *e)
{
    const st_kernels_for f = {.host = &m->base->host, .ops = ops, .self = self, .ordinal = m->ordinal};
    return !k || st_kernels_accepted(k, &f, st_kernels_path(m->registry, k), e) == ST_OK;
}

/* Why auto does not take this backend; NULL: it can be used, and *devices of it. A device that was asked for and is not
 * there is no reason: the run is refused when that device is opened, and does not go on elsewhere. */
static const char *unusable(st_model *m, const char *name, int *devices)
{
    const st_manifest *manifest = st_registry_find(m->registry, ST_KIND_BACKEND, name);
    const st_plugin *p = NULL;
    const st_kernels *kernels;
    st_backend_ops ops;
    st_facts facts = {.size = sizeof facts};
    st_error e = {0};
    const char *why = NULL;
    int32_t precision = m->run_keys.precision;

    if (!manifest) return "there is no plugin of this name";
    if (st_module_open(m->registry, manifest, &p, &e) != ST_OK) return st_arena_strdup(m->arena, e.message);
    st_ops_copy(p, &ops, sizeof ops);
    const void *self = st_arena_alloc(m->arena, p->self_size);
    if (!self || !ops.facts || !ops.count || ops.facts(self, &facts) != ST_OK) return "it says nothing about itself";
    if (precision != PRECISION_AUTO && !trains_in(&facts, precision))
        return st_arena_printf(m->arena, "it does not train in %s", word_of[precision]);
    *devices = ops.count(self, &m->base->host, &why);
    if (*devices < 1) return why && *why ? why : "it has no device";
    if (model_choose_device(m, *devices, &why, &e) != ST_OK || m->ordinal >= *devices) return NULL;
    if (st_kernels_open(m->registry, manifest, p, name, &kernels, &e) == ST_OK && fits(m, &ops, self, kernels, &e))
        return NULL;
    why = st_arena_printf(m->arena, "%s%s%s%s%s", e.file, e.file[0] ? ": " : "", e.message, e.detail[0] ? "; " : "",
                          e.detail);
    return why ? why : "no memory";
}

/* words: what auto went by, or "" */
static const char *backend_name(st_model *m, char *words, size_t size)
{
    static const char first[] = "cuda", last[] = "cpu";
    const char *why;
    int devices = 0;

    if (strcmp(m->run_keys.backend, "auto")) return m->run_keys.backend;
    why = unusable(m, first, &devices);
    if (why) snprintf(words, size, " (auto: not %s, %s)", first, why);
    else snprintf(words, size, " (auto: %d device%s)", devices, devices == 1 ? "" : "s");
    st_spec_settle(m->spec, "run", "backend", why ? last : first);
    return why ? last : first;
}

static int bind_facts(st_model *m, st_diags *d)
{
    st_ops_copy(m->backend.plugin, &m->be, sizeof m->be);
    m->facts.size = sizeof m->facts;
    if (!m->be.ops || !m->be.facts || m->be.facts(m->backend.self, &m->facts) != ST_OK)
        return st_spec_fail_section(m->spec, d, "run", NULL, "backend %s gives no facts about itself",
                                    m->backend.plugin->name);
    st_sized_copy(&m->ops, sizeof m->ops, m->be.ops);
    m->ops.size = sizeof m->ops;
    return ST_OK;
}

/* ---- the type ---- */

static int bind_types(st_model *m, const char *words, st_diags *d)
{
    static const int32_t liked[] = {PRECISION_BF16, PRECISION_F32, PRECISION_F64};
    const st_value *at = st_spec_get(m->spec, "run", "precision");
    int32_t p = m->run_keys.precision;
    bool chosen = p == PRECISION_AUTO;

    for (size_t i = 0; i < ST_COUNT(liked) && p == PRECISION_AUTO; i++)
        if (trains_in(&m->facts, liked[i])) p = liked[i];
    if (p == PRECISION_AUTO || !trains_in(&m->facts, p))
        return st_spec_fail(m->spec, d, at, "precision = auto", "precision = %s: backend %s%s does not train in it",
                            p == PRECISION_AUTO ? "auto" : word_of[p], m->backend.plugin->name, words);
    if (chosen) st_spec_settle(m->spec, "run", "precision", word_of[p]);
    m->dtype = type_of[p];
    m->acc_dtype = p == PRECISION_F64 ? ST_F64 : ST_F32;
    m->choice = st_arena_printf(m->arena, "%s%s, %s%s", m->backend.plugin->name, words, word_of[p],
                                chosen ? " (auto)" : "");
    return m->choice ? ST_OK : ST_E_NOMEM;
}

void model_look_at_backend(st_model *m, st_diags *d)
{
    const char *name = m->run_keys.backend;
    st_instance in;

    if (name && strcmp(name, "auto")) (void)st_instance_create(m->registry, m->spec, ST_KIND_BACKEND, name, "run", &in, d);
}

int model_bind_backend(st_model *m, st_diags *d)
{
    char words[600] = "";
    const char *name = backend_name(m, words, sizeof words);

    ST_TRY(st_instance_create(m->registry, m->spec, ST_KIND_BACKEND, name, "run", &m->backend, d));
    ST_TRY(bind_facts(m, d));
    return bind_types(m, words, d);
}

/* ---- the device ---- */

/* Launchers start a process for each device of a machine and number them; where each sees its own device alone
 * (CUDA_VISIBLE_DEVICES), that is number 0. Memory of the host is one device for all. */
int model_choose_device(st_model *m, int count, const char **from, st_error *e)
{
    const char *local = getenv("LOCAL_RANK"), *why = NULL;
    int64_t rank = 0;

    m->ordinal = m->run_keys.device == ST_UNSET_INT ? 0 : (int32_t)m->run_keys.device;
    *from = m->run_keys.device == ST_UNSET_INT ? "" : " ([run] device)";
    if (m->run_keys.device != ST_UNSET_INT || m->facts.host_memory || count == 1 || !local || !*local) return ST_OK;
    if (!st_parse_int(local, &rank, &why) || rank < 0 || rank > 63)
        return st_fail(e, ST_E_CONFIG, "LOCAL_RANK = %.40s is no number of a device", local);
    m->ordinal = (int32_t)rank;
    *from = " (LOCAL_RANK)";
    return ST_OK;
}
