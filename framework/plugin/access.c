/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/access.c - whether code may be taken from a directory or a file. Plugins run with the user's rights, so
 * whoever may write there may do anything as that user: what everybody may write to is refused (the sticky bit of
 * /tmp does not help, since anybody may still add files). */
#include "config.h"
#include "plugin/private.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const char *no_entry(st_arena *arena, int why)
{
    if (why == ENOENT) return "does not exist";
    return st_arena_printf(arena, "cannot be looked at: %s", strerror(why));
}

const char *st_access_directory(st_arena *arena, const char *path)
{
    struct stat s;

    if (stat(path, &s)) return no_entry(arena, errno);
    if (!S_ISDIR(s.st_mode)) return "is not a directory";
    if (s.st_mode & S_IWOTH) return "is world-writable, so anybody could put code there";
    return NULL;
}

const char *st_access_module(st_arena *arena, const char *path)
{
    struct stat s;
    const char *dir = st_path_dir(arena, path), *why;

    if (stat(path, &s)) return no_entry(arena, errno);
    if (!S_ISREG(s.st_mode)) return "is not a regular file";
    if (s.st_mode & S_IWOTH) return "is world-writable, so anybody could change its code";
    if (!dir) return "could not be checked: no memory";
    why = st_access_directory(arena, dir);
    return why ? st_arena_printf(arena, "lies in %s, which %s", dir, why) : NULL;
}
