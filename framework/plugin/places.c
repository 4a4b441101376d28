/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/places.c - where this program's own plugins and specs are.
 *
 * A program that was not installed must find the files of its own build, and only those. It knows by where it lies:
 * in the build directory it was compiled in, libtool's .libs there, or below tests. Everything else counts as
 * installed, also an install prefix inside the build directory. The current directory plays no part. */
#include "config.h"
#include "plugin/private.h"
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
