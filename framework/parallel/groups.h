/* SPDX-License-Identifier: Apache-2.0 */
/* parallel/groups.h - the groups of ranks that a run is made of. A group is always passed in; one that was not made
 * is an error, never a group of size 1. */
#ifndef ST_GROUPS_H
#define ST_GROUPS_H
#include "base/base.h"
#include <strata/comm.h>

typedef struct st_groups st_groups;
/* A mesh of ranks: data x context x tensor are all of them. Experts are divided over a cut of all, and media is
 * context x tensor. */
typedef struct st_mesh { st_axis data, context, tensor, expert, media; } st_mesh;

st_mesh st_mesh_single(void); /* one rank, member of every group */
const char *st_group_name(uint32_t group); /* "tensor" */
int32_t st_mesh_size(const st_mesh *, uint32_t group); /* ranks of a group; 0: it does not exist */
/* The mesh of so many ranks, seen by rank 0: data is what the other axes leave. */
int st_mesh_cut(int64_t ranks, int64_t context, int64_t tensor, int64_t expert, st_mesh *, st_error *);
/* A plugin runs with a group of more than one rank only if it says so. -> what it lacks, "ST_CAP_TENSOR"; NULL: nothing */
const char *st_mesh_lacks(const st_mesh *, uint32_t group, const st_plugin *);
/* Opens the transport and makes every group of the mesh. ops, self: an instance of a comm plugin. */
int st_groups_open(const st_host *, const st_comm_ops *, void *self, const st_mesh *, st_device *, st_groups **,
                   st_error *);
void st_groups_close(st_groups *);
/* The communicator of a group; NULL and an error that names the group when it was not made. */
st_comm *st_groups_get(const st_groups *, uint32_t group, st_error *);
int st_groups_check(const st_groups *, st_error *); /* asynchronous errors of the transport; never waits */
#endif
