/* SPDX-License-Identifier: Apache-2.0 */
/* base/places.c - where this program's own plugins and specs are.
 *
 * A program that was not installed must find the files of its own build, and only those. It knows by where it lies:
 * in the build directory it was compiled in, libtool's .libs there, or below tests. Everything else counts as
 * installed, also an install prefix inside the build directory. The current directory plays no part. */
#include "config.h"
#include "base/base.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool runs_from_build_tree(void)
{
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *build = realpath(ST_BUILD_DIR, NULL);
    bool inside = false;

    if (n > 0 && build) {
        exe[n] = 0;
        size_t root = strlen(build);
        char *name = strrchr(exe, '/');
        if (!strncmp(exe, build, root) && exe[root] == '/') {
            *name = 0; /* what is left is the folder */
            const char *below = exe + root;
            inside = !*below || !strcmp(below, "/.libs") || !strncmp(below, "/tests/", 7);
        }
    }
    free(build);
    return inside;
}

int st_places_find(st_arena *arena, st_places *out, st_error *e)
{
    out->uninstalled = runs_from_build_tree();
    out->registry = st_arena_strdup(arena, out->uninstalled ? ST_SOURCE_DIR "/registry" : ST_REGISTRY_DIR);
    out->modules = st_arena_strdup(arena, out->uninstalled ? ST_BUILD_DIR "/plugins/.libs" : ST_PLUGINS_DIR);
    out->specs = st_arena_strdup(arena, out->uninstalled ? ST_SOURCE_DIR "/specs" : ST_DATA_DIR "/specs");
    out->templates = st_arena_strdup(arena, out->uninstalled ? ST_SOURCE_DIR "/templates" : ST_DATA_DIR "/template");
    return out->registry && out->modules && out->specs && out->templates
               ? ST_OK
               : st_fail(e, ST_E_NOMEM, "no memory for paths");
}

/* Specs are files NAME.ini; what else lies there is theirs. */
static const char *nearest_spec(const st_places *p, const char *name, st_arena *arena)
{
    enum { MOST = 256 };
    const char *names[MOST];
    DIR *d = opendir(p->specs);
    int n = 0;

    for (struct dirent *x; d && n < MOST && (x = readdir(d));) {
        size_t length = strlen(x->d_name);
        if (length <= 4 || !st_ends_with(x->d_name, ".ini")) continue;
        names[n] = st_arena_strndup(arena, x->d_name, length - 4);
        n += names[n] != NULL;
    }
    if (d) closedir(d);
    return st_nearest(name, names, n);
}

bool st_places_spec(const st_places *p, const char *name, st_arena *arena, const char **path, const char **nearest)
{
    const char *whole = st_ends_with(name, ".ini") ? "" : ".ini";

    *nearest = NULL;
    *path = strchr(name, '/') ? NULL : st_arena_printf(arena, "%s/%s%s", p->specs, name, whole);
    if (*path && st_path_exists(*path)) return true;
    if (*path) *nearest = nearest_spec(p, name, arena);
    return false;
}
