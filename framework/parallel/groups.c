/* SPDX-License-Identifier: Apache-2.0 */
/* parallel/groups.c - makes the groups of a mesh through a comm plugin. */
#include "parallel/groups.h"
#include <stdlib.h>

struct st_groups {
    const st_comm_ops *ops;
    st_comm *world, *of[ST_G_COUNT];
};

st_mesh st_mesh_single(void)
{
    st_axis one = {1, 0};
    st_mesh m = {one, one, one, one, one};
    return m;
}

const char *st_group_name(uint32_t group)
{
    static const char *const names[ST_G_COUNT] = {"none", "data", "context", "tensor", "expert", "media", "tokens"};
    return group < ST_G_COUNT ? names[group] : "unknown";
}

int32_t st_mesh_size(const st_mesh *m, uint32_t group)
{
    switch (group) {
    case ST_G_DATA: return m->data.size;
    case ST_G_CONTEXT: return m->context.size;
    case ST_G_TENSOR: return m->tensor.size;
    case ST_G_EXPERT: return m->expert.size;
    case ST_G_MEDIA: return m->media.size;
    case ST_G_TOKENS: return m->data.size * m->context.size;
    default: return 0;
    }
}

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

int st_mesh_cut(int64_t ranks, int64_t context, int64_t tensor, int64_t expert, st_mesh *out, st_error *e)
{
    int64_t media = context * tensor;

    *out = st_mesh_single();
    if (ranks < 1 || ranks > INT32_MAX) return st_fail(e, ST_E_CONFIG, "%lld ranks", (long long)ranks);
    if (ranks % media)
        return st_fail(e, ST_E_CONFIG, "[parallel] context = %lld x tensor = %lld do not divide %lld rank%s",
                       (long long)context, (long long)tensor, (long long)ranks, plural(ranks));
    if (ranks % expert)
        return st_fail(e, ST_E_CONFIG, "[parallel] expert = %lld does not divide %lld rank%s", (long long)expert,
                       (long long)ranks, plural(ranks));
    out->data.size = (int32_t)(ranks / media);
    out->context.size = (int32_t)context;
    out->tensor.size = (int32_t)tensor;
    out->expert.size = (int32_t)expert;
    out->media.size = (int32_t)media;
    return ST_OK;
}

const char *st_mesh_lacks(const st_mesh *m, uint32_t group, const st_plugin *p)
{
    static const struct {
        uint64_t cap;
        const char *name;
    } need[ST_G_COUNT] = {[ST_G_CONTEXT] = {ST_CAP_CONTEXT, "ST_CAP_CONTEXT"},
                          [ST_G_TENSOR] = {ST_CAP_TENSOR, "ST_CAP_TENSOR"},
                          [ST_G_EXPERT] = {ST_CAP_EXPERT, "ST_CAP_EXPERT"}};

    return group < ST_G_COUNT && st_mesh_size(m, group) > 1 && need[group].cap & ~p->caps ? need[group].name : NULL;
}

/* A single process needs no meeting point: it gathers from itself. */
static int gather_alone(void *ctx, const void *send, void *recv, size_t bytes)
{
    const char *from = send;
    char *to = recv;
    for (size_t i = 0; i < bytes; i++) to[i] = from[i];
    return ST_OK;
}

static int open_groups(st_groups *g, const st_host *host, void *self, const st_mesh *mesh, st_device *device,
                       st_error *e)
{
    st_bootstrap alone = {sizeof alone, 0, 1, 0, NULL, gather_alone};
    int rc = g->ops->open(self, host, &alone, device, &g->world, e);

    if (rc != ST_OK) return st_fail(e, rc, "the transport did not open");
    for (uint32_t i = ST_G_DATA; i < ST_G_COUNT; i++) {
        int32_t ranks = st_mesh_size(mesh, i);
        if (ranks > 1)
            return st_fail(e, ST_E_UNSUPPORTED, "group %s of %d ranks: this process runs alone", st_group_name(i),
                           ranks);
        if (ranks < 1) continue; /* whoever asks for it is refused */
        rc = g->ops->split(g->world, 0, 0, &g->of[i], e);
        if (rc != ST_OK) return st_fail(e, rc, "group %s was not made", st_group_name(i));
    }
    return ST_OK;
}

int st_groups_open(const st_host *host, const st_comm_ops *ops, void *self, const st_mesh *mesh, st_device *device,
                   st_groups **out, st_error *e)
{
    st_groups *g = calloc(1, sizeof *g);
    int rc;

    *out = NULL;
    if (!g) return st_fail(e, ST_E_NOMEM, "no memory for groups");
    g->ops = ops;
    rc = open_groups(g, host, self, mesh, device, e);
    if (rc != ST_OK) {
        st_groups_close(g);
        return rc;
    }
    *out = g;
    return ST_OK;
}

void st_groups_close(st_groups *g)
{
    if (!g) return;
    for (int i = 0; i < ST_G_COUNT; i++)
        if (g->of[i] && g->of[i] != g->world) g->ops->close(g->of[i]);
    if (g->world) g->ops->close(g->world);
    free(g);
}

st_comm *st_groups_get(const st_groups *g, uint32_t group, st_error *e)
{
    if (g && group > ST_G_NONE && group < ST_G_COUNT && g->of[group]) return g->of[group];
    st_fail(e, ST_E_COMM, "group %s does not exist in this run", st_group_name(group));
    return NULL;
}

int st_groups_check(const st_groups *g, st_error *e)
{ return g && g->world && g->ops->check ? g->ops->check(g->world, e) : ST_OK; }
