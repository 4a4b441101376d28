/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/folder.c - the checkpoints of a run: their names, the newest, and removing old ones. */
#include "config.h"

#include "checkpoint/checkpoint.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char prefix[] = "step-", unfinished[] = ".part";

char *st_checkpoint_path(const char *output, int64_t step, st_arena *arena)
{
    return st_arena_printf(arena, "%s/checkpoints/%s%09lld", output, prefix, (long long)step);
}

/* step-NNN, whole; step-NNN.part is one that was never finished. */
static bool is_name(const char *name, const char *ending)
{
    const char *at = name + sizeof prefix - 1;

    if (strncmp(name, prefix, sizeof prefix - 1) != 0 || !isdigit((unsigned char)*at)) return false;
    while (isdigit((unsigned char)*at)) at++;
    return strcmp(at, ending) == 0;
}

static int is_whole(const struct dirent *d) { return is_name(d->d_name, ""); }

static int is_unfinished(const struct dirent *d) { return is_name(d->d_name, unfinished); }

static int by_step(const struct dirent **a, const struct dirent **b)
{
    long long x = atoll((*a)->d_name + sizeof prefix - 1), y = atoll((*b)->d_name + sizeof prefix - 1);

    return (x > y) - (x < y);
}

static void free_list(struct dirent **list, int n)
{
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
}

int st_checkpoint_latest(const char *output, st_arena *arena, char **dir, st_error *e)
{
    char *folder = st_path_join(arena, output, "checkpoints");
    struct dirent **list;
    int n;

    *dir = NULL;
    if (!folder) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    n = scandir(folder, &list, is_whole, by_step);
    if (n < 0) return errno == ENOENT ? ST_OK : st_fail_errno(e, folder, "list");
    if (n > 0) *dir = st_path_join(arena, folder, list[n - 1]->d_name);
    free_list(list, n);
    return n == 0 || *dir ? ST_OK : st_fail(e, ST_E_NOMEM, "no memory for a path");
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) { return remove(path); }

int st_remove_folder(const char *dir, st_error *e)
{
    if (nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return ST_OK;
    return st_fail_errno(e, dir, "remove");
}

/* The first n - keep of the list. */
static int remove_old(const char *folder, int (*filter)(const struct dirent *), int64_t keep, st_arena *arena,
                      st_error *e)
{
    struct dirent **list;
    int n = scandir(folder, &list, filter, by_step), rc = ST_OK;

    if (n < 0) return st_fail_errno(e, folder, "list");
    for (int i = 0; i < n - keep && rc == ST_OK; i++) {
        char *path = st_path_join(arena, folder, list[i]->d_name);
        rc = path ? st_remove_folder(path, e) : st_fail(e, ST_E_NOMEM, "no memory for a path");
    }
    free_list(list, n);
    return rc;
}

int st_checkpoint_prune(const char *output, int64_t keep, st_error *e)
{
    st_arena *arena = st_arena_create(0);
    char *folder = arena ? st_path_join(arena, output, "checkpoints") : NULL;
    int rc = folder ? ST_OK : st_fail(e, ST_E_NOMEM, "no memory for a path");

    if (rc == ST_OK) rc = remove_old(folder, is_whole, keep, arena, e);
    if (rc == ST_OK) rc = remove_old(folder, is_unfinished, 0, arena, e);
    st_arena_destroy(arena);
    return rc;
}
